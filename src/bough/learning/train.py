"""Training: samples and a recipe enter, a model that ranks ReLUs leaves, with its figures.

A folder holds one training: `checkpoint.pt` and `epochs.jsonl`, replaced whole after every epoch, and in the end
`weights.safetensors`, `training.json` (the recipe, the figures, the norms of gradients) and `curves.png`. Everything
random is drawn from the seed and the number of the epoch, so a training that was interrupted goes on as if it had not
been.
"""

import copy
import io
import json
import math
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from bough.budget import Clock, Deadline, OutOfTime
from bough.errors import BadInput
from bough.files.reading import JsonObject, read_bytes
from bough.files.writing import write_bytes, write_text
from bough.learning.features import fit
from bough.learning.lessons import EpochFigures, Figures, FiguresByDepth, Lessons, LessonTally, evaluate, losses
from bough.learning.model import AbstractModel
from bough.learning.presets import TrainingRecipe, build
from bough.learning.weights import WeightsCard, load, named, save

CHECKPOINT, EPOCHS, WEIGHTS = "checkpoint.pt", "epochs.jsonl", "weights.safetensors"
REPORT, CURVES = "training.json", "curves.png"
CHECKPOINT_LIMIT = 1 << 30
FORMAT = 1  # of checkpoints
LOOK_BACK = 32  # groups of samples over which the norms of gradients are taken at the end


@dataclass(eq=False)
class Progress:
    """Where a training stands."""

    model: AbstractModel
    optimiser: torch.optim.Optimizer
    best: dict[str, Tensor] = field(default_factory=dict)  # the weights of least validation loss
    least: float = math.inf
    without: int = 0  # epochs since the validation loss was at its least
    history: list[EpochFigures] = field(default_factory=list)


@dataclass(frozen=True, eq=False)
class Trained:
    """The model of least validation loss, every epoch, and whether the training came to its end."""

    model: AbstractModel
    history: tuple[EpochFigures, ...]
    finished: bool


@dataclass(frozen=True)
class SampleOrigin:
    """Where the samples of a training are from, by their cards."""

    bounder_name: str = ""
    networks: tuple[str, ...] = ()
    datasets: tuple[str, ...] = ()


@dataclass(frozen=True)
class ParameterNorms:
    """The norms of one parameter and of its gradient over some samples."""

    weights: float
    gradient: float


@dataclass(frozen=True)
class TrainingReport:
    """What a training leaves beside its weights; the fields are those of its file."""

    weights: str
    recipe: JsonObject
    data: JsonObject
    epochs: int
    finished: bool
    figures: Mapping[str, FiguresByDepth]
    gradients: Mapping[str, ParameterNorms]
    parameters: int
    seconds: float


Report = Callable[[EpochFigures], None]
Tick = Callable[[str, int, int], None]
Make = Callable[[TrainingRecipe], AbstractModel]


def first_model(recipe: TrainingRecipe) -> AbstractModel:
    """The model of the recipe's preset, with first weights, or those that it is to start from."""
    if recipe.start is None:
        return build(recipe.preset, reduced=recipe.reduced)
    model, _ = load(named(recipe.start))
    if (model.preset, model.settings.reduced) != (recipe.preset, recipe.reduced):
        kind = f"{model.preset}{', reduced' if model.settings.reduced else ''}"
        raise BadInput(f"{recipe.start} has weights of preset {kind}; give that preset, or other weights to start from")
    return model


def train(
    recipe: TrainingRecipe,
    training: Lessons,
    validation: Lessons,
    folder: Path,
    report: Report,
    tick: Tick,
    limit: Deadline,
    make: Make = first_model,
) -> Trained:
    """Train, or go on with what the folder holds, until the recipe says that it is enough or the time is up."""
    _check_samples(training, validation, recipe)
    identity = {**replace(recipe, epochs=1).to_json(), "training": training.counts(), "validation": validation.counts()}
    now = _begin(recipe, training, folder / CHECKPOINT, identity, make)
    try:
        while len(now.history) < recipe.epochs and (now.without < recipe.stop or recipe.anneal):
            limit.check()
            line = _epoch(now, recipe, training, validation, tick, limit)
            now.history.append(line)
            _save(folder, now, identity)
            report(line)
        finished = True
    except OutOfTime:  # an epoch that it cut short did not happen
        finished = False
    if now.best:
        now.model.load_state_dict(now.best)
    return Trained(now.model.eval(), tuple(now.history), finished)


def _check_samples(training: Lessons, validation: Lessons, recipe: TrainingRecipe) -> None:
    for name, lessons in (("training", training), ("validation", validation)):
        if not len(lessons):
            raise BadInput(f"there are no samples for {name}; make some by `bough label`")
        if treeless := sum((part.sizes is None) == (recipe.measure == "size") for part in lessons.parts):
            known = "no trees, which --measure size is about" if recipe.measure == "size" else "nothing but trees"
            raise BadInput(f"{treeless} of {len(lessons.parts)} properties for {name} tell of {known}")
        if recipe.inputs and (silent := sum(part.halves is None for part in lessons.parts)):
            raise BadInput(
                f"{silent} of {len(lessons.parts)} properties for {name} say nothing about inputs; label them with "
                "--inputs, or train without"
            )


def _begin(recipe: TrainingRecipe, training: Lessons, path: Path, identity: JsonObject, make: Make) -> Progress:
    torch.manual_seed(recipe.seed)
    model = make(recipe)
    state = _read(path, identity) if path.exists() else None
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
            now.least, now.without = state["least"], state["without"]
            now.history = [_epoch_figures(line) for line in state["history"]]
        except (KeyError, RuntimeError, ValueError, TypeError) as error:
            raise BadInput(f"{path} does not fit the model; move it away to start anew") from error
    return now


def _epoch(
    now: Progress, recipe: TrainingRecipe, training: Lessons, validation: Lessons, tick: Tick, limit: Deadline
) -> EpochFigures:
    """One pass over all training samples, and what the validation samples say of it."""
    before = copy.deepcopy(now.model.state_dict())
    clock = Clock.start()
    number = len(now.history)
    rate = _annealed(recipe, number) if recipe.anneal else now.optimiser.param_groups[0]["lr"]
    moments = copy.deepcopy(now.optimiser.state_dict())
    try:
        learnt = _pass(now, recipe, training, number, tick, limit)
        now.model.eval()
        seen = evaluate(now.model, validation, recipe, limit.check)
    except OutOfTime:
        now.model.load_state_dict(before)
        now.optimiser.load_state_dict(moments)
        raise
    if not math.isfinite(learnt.loss) or not math.isfinite(seen.loss):
        raise BadInput(f"the loss is no number after epoch {number + 1}; try a smaller --rate than {rate:g}")
    better = seen.loss < now.least
    now.without = 0 if better else now.without + 1
    if better:
        now.least = seen.loss
        now.best = copy.deepcopy(now.model.state_dict())
    elif now.without % recipe.patience == 0 and not recipe.anneal:
        for group in now.optimiser.param_groups:
            group["lr"] /= recipe.divisor
    return EpochFigures(number + 1, recipe.epochs, rate, learnt, seen, better, clock.seconds())


def _pass(
    now: Progress, recipe: TrainingRecipe, training: Lessons, number: int, tick: Tick, limit: Deadline
) -> FiguresByDepth:
    """One step per batch (Eq. 10); the figures are those of the samples as they came by."""
    generator = torch.Generator().manual_seed(recipe.seed * 1_000_003 + number)
    tally = LessonTally(training.device)
    done = 0
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
            (losses(now.model, training.piece(k, rows), recipe, tally).sum() / count).backward()
        now.optimiser.step()
        done += count
    return tally.figures()


def _annealed(recipe: TrainingRecipe, epoch: float) -> float:
    """The rate after so many epochs."""
    return recipe.rate * (1 + math.cos(math.pi * min(1.0, epoch / recipe.epochs))) / 2


def gradient_norms(model: AbstractModel, recipe: TrainingRecipe, lessons: Lessons) -> dict[str, ParameterNorms]:
    """The norms of each parameter and of its gradient over some samples: a part that died shows as 0."""
    groups = lessons.in_order(recipe.group)
    chosen = groups[:: max(1, len(groups) // LOOK_BACK)]
    model.zero_grad()
    for k, rows in chosen:
        loss = losses(model, lessons.piece(k, rows), recipe, LessonTally(lessons.device))
        (loss.mean() / len(chosen)).backward()
    norms = {
        name: ParameterNorms(float(p.detach().norm()), 0.0 if p.grad is None else float(p.grad.norm()))
        for name, p in model.named_parameters()
        if p.requires_grad
    }
    model.zero_grad()
    return norms


def finish(
    trained: Trained, recipe: TrainingRecipe, training: Lessons, validation: Lessons, origin: SampleOrigin, folder: Path
) -> TrainingReport:
    """Write weights, report and curves; returns the report."""
    from bough.learning.curves import draw

    model = trained.model
    figures = {"training": evaluate(model, training, recipe), "validation": evaluate(model, validation, recipe)}
    report = TrainingReport(
        weights=WEIGHTS,
        recipe=recipe.to_json(),
        data={
            "bounder": origin.bounder_name,
            "network": list(origin.networks),
            "dataset": list(origin.datasets),
            "inputs": sorted({part.graph.network.inputs for part in training.parts}),
            "training": training.counts(),
            "validation": validation.counts(),
            **({} if recipe.start is None else {"start": asdict(load(named(recipe.start))[1])}),
        },
        epochs=len(trained.history),
        finished=trained.finished,
        figures=figures,
        gradients=gradient_norms(model, recipe, training),
        parameters=sum(p.numel() for p in model.parameters()),
        seconds=sum(line.seconds for line in trained.history),
    )
    accuracy = {name: {k: v for k, v in asdict(part).items() if k != "by_depth"} for name, part in figures.items()}
    card = WeightsCard(origin.bounder_name, data=report.data, settings=report.recipe, accuracy=accuracy)
    save(folder / WEIGHTS, model, card)
    write_text(folder / REPORT, json.dumps(asdict(report), indent=1) + "\n")
    draw(folder / CURVES, trained.history)
    return report


def _save(folder: Path, now: Progress, identity: JsonObject) -> None:
    buffer = io.BytesIO()
    history = [asdict(line) for line in now.history]
    state = {"format": FORMAT, "told": identity, "least": now.least, "without": now.without, "history": history}
    state |= {"model": now.model.state_dict(), "best": now.best, "optimiser": now.optimiser.state_dict()}
    torch.save(state, buffer)
    write_bytes(folder / CHECKPOINT, buffer.getvalue())
    write_text(folder / EPOCHS, "".join(json.dumps(line) + "\n" for line in history))


def _epoch_figures(line: Mapping[str, Any]) -> EpochFigures:
    """An epoch as a checkpoint has it."""
    parts = {}
    for name in ("training", "validation"):
        by_depth = {depth: Figures(**figures) for depth, figures in line[name]["by_depth"].items()}
        parts[name] = FiguresByDepth(**{**line[name], "by_depth": by_depth})
    return EpochFigures(**{**line, **parts})


def _read(path: Path, identity: JsonObject) -> dict[str, Any]:
    """What a checkpoint holds, if it is of this training."""
    data = read_bytes(path, CHECKPOINT_LIMIT, BadInput)
    try:
        # Only tensors and plain values: a checkpoint from a stranger runs nothing.
        state = dict(torch.load(io.BytesIO(data), map_location="cpu", weights_only=True))
        version, other = int(state["format"]), dict(state["told"])
    except Exception as error:  # whatever a broken file makes PyTorch raise
        raise BadInput(f"{path} is no checkpoint of bough; move it away to start anew") from error
    differing = [name for name in dict.fromkeys((*identity, *other)) if other.get(name) != identity.get(name)]
    if version != FORMAT or differing:
        differences = [f"{name} {other.get(name)} there, {identity.get(name)} now" for name in differing]
        seen = ", ".join(differences) or f"format {version}"
        raise BadInput(f"{path} belongs to another training ({seen}); use another --out, or the same settings")
    return state
