"""Training: samples and a recipe enter, a model that ranks ReLUs leaves, with its figures.

A folder holds one training: `checkpoint.pt` and `epochs.jsonl`, replaced whole after every epoch, and in the end
`weights.safetensors`, `training.json` (the recipe, the figures, the norms of gradients) and `curves.png`. Everything
random is drawn from the seed and the number of the epoch, so a training that was interrupted goes on as if it had not
been.
"""

import io
import json
import math
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any, get_args

import torch
from torch import Tensor

from bough.branching.improvement import Measure
from bough.budget import Clock, Deadline, OutOfTime
from bough.errors import BadInput
from bough.learning.dataset import write_whole
from bough.learning.features import fit
from bough.learning.lessons import Aim, Lessons, Loss, Tally, evaluate
from bough.learning.model import AbstractModel
from bough.learning.samples import Samples, Worth
from bough.problem.files import read_bytes

CHECKPOINT, EPOCHS, WEIGHTS = "checkpoint.pt", "epochs.jsonl", "weights.safetensors"
REPORT, CURVES = "training.json", "curves.png"
CHECKPOINT_LIMIT = 1 << 30
FORMAT = 1  # of checkpoints
MEASURES: tuple[str, ...] = (*get_args(Measure), "size")
LOOK_BACK = 32  # groups of samples over which the norms of gradients are taken at the end


@dataclass(frozen=True)
class Recipe:
    """What the weights depend on, beside the samples. The defaults are the paper's (Appendix D.1)."""

    preset: str = "paper"
    reduced: bool = False
    measure: Worth = "mean"
    loss: Loss = "rank"
    classes: int = 10
    relative: bool = True  # classes over the best improvement of a sample, or over all that is possible
    epochs: int = 100
    rate: float = 1e-4
    decay: float = 1e-4
    decoupled: bool = False  # decay apart from the gradient (AdamW): with it, parts of little gradient do not die
    batch: int = 2
    group: int = 1  # most samples of one property next to each other: these are scored together
    patience: int = 10  # epochs without a better validation loss, after which the rate is divided
    divisor: float = 5.0
    stop: int = 20  # epochs without a better validation loss, after which it ends
    anneal: bool = False  # the rate falls to 0 along half a cosine over all epochs, instead of by patience
    seed: int = 0
    inputs: bool = False  # whether inputs are learnt about, too
    start: str | None = None  # weights to begin with, by name or file; their scales stay as they are

    def __post_init__(self) -> None:
        for name, least in (("epochs", 1), ("batch", 1), ("group", 1), ("patience", 1), ("stop", 1), ("seed", 0)):
            if getattr(self, name) < least:
                raise BadInput(f"{name} is {getattr(self, name)}; give a whole number, {least} or more")
        if not 2 <= self.classes <= 1000:
            raise BadInput(f"there are {self.classes} classes; give a whole number from 2 to 1000")
        if not 0 < self.rate < math.inf:
            raise BadInput(f"the learning rate is {self.rate}; give a number above 0")
        if not 0 <= self.decay < math.inf:
            raise BadInput(f"the weight decay is {self.decay}; give a number, 0 or more")
        for name, kinds in (("measure", MEASURES), ("loss", get_args(Loss))):
            if getattr(self, name) not in kinds:
                raise BadInput(f"there is no {name} '{getattr(self, name)}'; there are: {', '.join(kinds)}")

    @property
    def aim(self) -> Aim:
        """What is learnt."""
        return Aim(self.measure, self.loss, self.classes, self.relative, self.inputs)

    def told(self) -> dict[str, Any]:
        """All of it, by name; what came later only where it is asked for, as in recipes from before it could be."""
        told = {**asdict(self), "start": self.start and Path(self.start).name}
        return {name: value for name, value in told.items() if name not in ("inputs", "start") or value}


# A small rate and tiny batches are the paper's; with scaled features larger ones get there in a tenth of the time.
_OURS: Mapping[str, Any] = {
    "loss": "choice",
    "epochs": 30,
    "rate": 4e-3,
    "batch": 64,
    "group": 16,
    "decoupled": True,
    "anneal": True,
}
USUAL: Mapping[str, Mapping[str, Any]] = {"paper": {}, "paper-code": {}, "fast": _OURS, "local": _OURS}


# Trees are grown below a few ReLUs of each sample only: a rule is taught to choose among what it chose from, gently.
_BY_TREES: Mapping[str, Any] = {"loss": "expected", "rate": 1e-3, "decay": 1e-2, "decoupled": True, "anneal": True}


def recipe_for(preset: str, **given: Any) -> Recipe:
    """The usual recipe of a preset and a measure, with what is given (and not None) instead."""
    if preset not in USUAL:
        raise BadInput(f"there is no preset '{preset}'; there are: {', '.join(USUAL)}")
    usual = {**USUAL[preset], **(_BY_TREES if given.get("measure") == "size" else {})}
    return Recipe(preset=preset, **{**usual, **{name: v for name, v in given.items() if v is not None}})


@dataclass(eq=False)
class Progress:
    """Where a training stands."""

    model: AbstractModel
    optimiser: torch.optim.Optimizer
    best: dict[str, Tensor] = field(default_factory=dict)  # the weights of least validation loss
    least: float = math.inf
    without: int = 0  # epochs since the validation loss was at its least
    history: list[dict[str, Any]] = field(default_factory=list)  # a line per epoch

    def done(self, recipe: Recipe) -> bool:
        """Whether there is nothing left to do."""
        return len(self.history) >= recipe.epochs or (self.without >= recipe.stop and not recipe.anneal)


@dataclass(frozen=True, eq=False)
class Trained:
    """The model of least validation loss, a line per epoch, and whether the training came to its end."""

    model: AbstractModel
    history: tuple[dict[str, Any], ...]
    finished: bool


Report = Callable[[dict[str, Any]], None]
Tick = Callable[[str, int, int], None]
Make = Callable[[Recipe], AbstractModel]


def build(recipe: Recipe) -> AbstractModel:
    """The model of the recipe's preset, with first weights, or those that it is to start from."""
    from bough.learning.gnn import build as built
    from bough.learning.weights import load, named

    if recipe.start is None:
        return built(recipe.preset, reduced=recipe.reduced)
    model, _ = load(named(recipe.start))
    if (model.preset, bool(model.settings["reduced"])) != (recipe.preset, recipe.reduced):
        kind = f"{model.preset}{', reduced' if model.settings['reduced'] else ''}"
        raise BadInput(f"{recipe.start} has weights of preset {kind}; give that preset, or other weights to start from")
    return model


def train(
    recipe: Recipe,
    training: Lessons,
    validation: Lessons,
    folder: Path,
    report: Report,
    tick: Tick,
    limit: Deadline,
    make: Make = build,
) -> Trained:
    """Train, or go on with what the folder holds, until the recipe says that it is enough or the time is up."""
    _check_samples(training, validation, recipe)
    told = {
        **replace(recipe, epochs=1).told(),
        "training": training.told(),
        "validation": validation.told(),
    }
    now = _begin(recipe, training, folder / CHECKPOINT, told, make)
    try:
        while not now.done(recipe):
            limit.check()
            line = _epoch(now, recipe, training, validation, tick, limit)
            now.history.append(line)
            _save(folder, now, told)
            report(line)
    except OutOfTime:  # an epoch that it cut short did not happen
        return _trained(now, finished=False)
    return _trained(now, finished=True)


def _check_samples(training: Lessons, validation: Lessons, recipe: Recipe) -> None:
    for name, lessons in (("training", training), ("validation", validation)):
        if not len(lessons):
            raise BadInput(f"there are no samples for {name}; make some by `bough label`")
        treeless = sum((part.sizes is None) == (recipe.measure == "size") for part in lessons.parts)
        if treeless:
            known = "no trees, which --measure size is about" if recipe.measure == "size" else "nothing but trees"
            raise BadInput(f"{treeless} of {len(lessons.parts)} properties for {name} tell of {known}")
        silent = sum(part.halves is None for part in lessons.parts)
        if recipe.inputs and silent:
            raise BadInput(
                f"{silent} of {len(lessons.parts)} properties for {name} say nothing about inputs; label them with "
                "--inputs, or train without"
            )


def _begin(recipe: Recipe, training: Lessons, path: Path, told: dict[str, Any], make: Make) -> Progress:
    torch.manual_seed(recipe.seed)
    model = make(recipe)
    state = _read(path, told) if path.exists() else None
    model.to(training.device)
    if state is None and recipe.start is None:  # a checkpoint has the scales, and so have weights
        fit(model, ((part.graph, part.scene.to(training.device)) for part in training.parts))
    kind = torch.optim.AdamW if recipe.decoupled else torch.optim.Adam
    now = Progress(model, kind(model.parameters(), recipe.rate, weight_decay=recipe.decay))
    if state is not None:
        try:
            model.load_state_dict(state["model"])
            now.optimiser.load_state_dict(state["optimiser"])
            now.best = {name: value.to(training.device) for name, value in state["best"].items()}
            now.least, now.without, now.history = state["least"], state["without"], list(state["history"])
        except (KeyError, RuntimeError, ValueError, TypeError) as error:
            raise BadInput(f"{path} does not fit the model; move it away to start anew") from error
    return now


def _trained(now: Progress, *, finished: bool) -> Trained:
    if now.best:
        now.model.load_state_dict(now.best)
    return Trained(now.model.eval(), tuple(now.history), finished)


def _epoch(
    now: Progress, recipe: Recipe, training: Lessons, validation: Lessons, tick: Tick, limit: Deadline
) -> dict[str, Any]:
    """One pass over all training samples, and what the validation samples say of it; the line that tells of it."""
    before, clock = _copy(now.model.state_dict()), Clock.start()
    number = len(now.history)
    rate = _annealed(recipe, number) if recipe.anneal else now.optimiser.param_groups[0]["lr"]
    moments = _copy(now.optimiser.state_dict())
    try:
        learnt = _pass(now, recipe, training, number, tick, limit)
        now.model.eval()
        seen = evaluate(_scores(now.model, recipe.aim), validation, recipe.aim, 4 * recipe.group, limit.check)
    except OutOfTime:
        now.model.load_state_dict(before)
        now.optimiser.load_state_dict(moments)
        raise
    if not math.isfinite(learnt["loss"]) or not math.isfinite(seen["loss"]):
        raise BadInput(f"the loss is no number after epoch {number + 1}; try a smaller --rate than {rate:g}")
    better = seen["loss"] < now.least
    now.without = 0 if better else now.without + 1
    if better:
        now.least, now.best = seen["loss"], _copy(now.model.state_dict())
    elif now.without % recipe.patience == 0 and not recipe.anneal:
        for group in now.optimiser.param_groups:
            group["lr"] /= recipe.divisor
    line = {"epoch": number + 1, "of": recipe.epochs, "rate": rate, "training": learnt, "validation": seen}
    return {**line, "best": better, "seconds": clock.seconds()}


def _pass(now: Progress, recipe: Recipe, training: Lessons, number: int, tick: Tick, limit: Deadline) -> dict[str, Any]:
    """One step per batch (Eq. 10); the figures are those of the samples as they came by."""
    generator = torch.Generator().manual_seed(recipe.seed * 1_000_003 + number)
    tally, done = Tally(training.device), 0
    now.model.train()
    for batch in training.batches(recipe.batch, recipe.group, generator):
        limit.check()
        tick(f"epoch {number + 1}, samples", done, len(training))
        count = sum(len(rows) for _, rows in batch)
        if recipe.anneal:
            for group in now.optimiser.param_groups:
                group["lr"] = _annealed(recipe, number + done / len(training))
        now.optimiser.zero_grad()
        for k, rows in batch:  # properties have different ReLUs: one after another, their gradients added up
            samples = training.piece(k, rows)
            loss = recipe.aim.losses(recipe.aim.scores(now.model, samples), samples, tally).sum() / count
            loss.backward()
        now.optimiser.step()
        done += count
    return tally.figures()


def _annealed(recipe: Recipe, epoch: float) -> float:
    """The rate after so many epochs."""
    return recipe.rate * (1 + math.cos(math.pi * min(1.0, epoch / recipe.epochs))) / 2


def _scores(model: AbstractModel, aim: Aim) -> Callable[[Samples], Tensor]:
    return lambda samples: aim.scores(model, samples)


def gradient_norms(model: AbstractModel, recipe: Recipe, lessons: Lessons) -> dict[str, dict[str, float]]:
    """Of each parameter, its norm and that of its gradient over some samples: a part that died shows as 0."""
    groups = list(lessons.in_order(recipe.group))
    chosen = groups[:: max(1, len(groups) // LOOK_BACK)]
    model.zero_grad()
    for k, rows in chosen:
        samples = lessons.piece(k, rows)
        losses = recipe.aim.losses(recipe.aim.scores(model, samples), samples, Tally(lessons.device))
        (losses.mean() / len(chosen)).backward()
    named = [(name, p) for name, p in model.named_parameters() if p.requires_grad]
    found = {
        name: {"weights": float(p.detach().norm()), "gradient": 0.0 if p.grad is None else float(p.grad.norm())}
        for name, p in named
    }
    model.zero_grad()
    return found


def finish(
    trained: Trained, recipe: Recipe, training: Lessons, validation: Lessons, data: Mapping[str, Any], folder: Path
) -> dict[str, Any]:
    """Write weights, report and curves; returns the report. `data` says where the samples are from."""
    from bough.learning.curves import draw
    from bough.learning.weights import Card, load, named, save

    model = trained.model
    figures = {
        name: evaluate(_scores(model, recipe.aim), lessons, recipe.aim, 4 * recipe.group)
        for name, lessons in (("training", training), ("validation", validation))
    }
    inputs = sorted({part.graph.network.inputs for part in training.parts})
    before = {} if recipe.start is None else {"start": asdict(load(named(recipe.start))[1])}
    report = {
        "weights": WEIGHTS,
        "recipe": recipe.told(),
        "data": {**data, "inputs": inputs, "training": training.told(), "validation": validation.told(), **before},
        "epochs": len(trained.history),
        "finished": trained.finished,
        "figures": figures,
        "gradients": gradient_norms(model, recipe, training),
        "parameters": sum(p.numel() for p in model.parameters()),
        "seconds": sum(line["seconds"] for line in trained.history),
    }
    card = Card(
        bounder=str(data.get("bounder", "")),
        data=report["data"],
        settings=recipe.told(),
        accuracy={name: {k: v for k, v in found.items() if k != "by_depth"} for name, found in figures.items()},
    )
    save(folder / WEIGHTS, model, card)
    write_whole(folder / REPORT, (json.dumps(report, indent=1) + "\n").encode())
    draw(folder / CURVES, trained.history)
    return report


def _save(folder: Path, now: Progress, told: dict[str, Any]) -> None:
    buffer = io.BytesIO()
    state = {"format": FORMAT, "told": told, "least": now.least, "without": now.without, "history": now.history}
    state |= {"model": now.model.state_dict(), "best": now.best, "optimiser": now.optimiser.state_dict()}
    torch.save(state, buffer)
    write_whole(folder / CHECKPOINT, buffer.getvalue())
    write_whole(folder / EPOCHS, "".join(json.dumps(line) + "\n" for line in now.history).encode())


def _read(path: Path, told: dict[str, Any]) -> dict[str, Any]:
    """What a checkpoint holds, if it is of this training."""
    data = read_bytes(path, CHECKPOINT_LIMIT, BadInput)
    try:
        # Only tensors and plain values: a checkpoint from a stranger runs nothing.
        state = dict(torch.load(io.BytesIO(data), map_location="cpu", weights_only=True))
        version, theirs = int(state["format"]), dict(state["told"])
    except Exception as error:  # whatever a broken file makes PyTorch raise
        raise BadInput(f"{path} is no checkpoint of bough; move it away to start anew") from error
    other = [k for k in dict.fromkeys((*told, *theirs)) if theirs.get(k) != told.get(k)]
    if version != FORMAT or other:
        seen = ", ".join(f"{k} {theirs.get(k)} there, {told.get(k)} now" for k in other) or f"format {version}"
        raise BadInput(f"{path} belongs to another training ({seen}); use another --out, or the same settings")
    return state


def _copy(state: Any) -> Any:
    """The same values in tensors of their own."""
    if isinstance(state, Tensor):
        return state.detach().clone()
    if isinstance(state, Mapping):
        return {key: _copy(value) for key, value in state.items()}
    return [_copy(value) for value in state] if isinstance(state, list) else state
