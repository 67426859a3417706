"""Robust training: a data set, an architecture and a recipe enter, an ONNX network with its errors leaves.

A folder holds one training: `checkpoint.pt` and `epochs.jsonl`, replaced whole after every epoch, and at the end
`<title>.onnx` and `card.json`. Everything random is drawn from the seed and the number of the epoch, so a training that
was interrupted goes on as if it had not been.
"""

import io
import json
import math
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from bough.budget import Clock, Deadline
from bough.errors import BadInput, NetworkError
from bough.files.reading import LINES_LIMIT, parsed_json, read_bytes
from bough.files.writing import write_bytes, write_text
from bough.problem.onnx_writer import write_network
from bough.problem.runtime import Reference, compare
from bough.problem.torch import read_module
from bough.report.record import revision
from bough.zoo.datasets import Images
from laboratory.architectures import Architecture
from laboratory.robust import attack, robust_loss

CHECKPOINT, EPOCHS, CARD = "checkpoint.pt", "epochs.jsonl", "card.json"
CHECKPOINT_LIMIT = 1 << 30
ATTACK_STEPS = 20
FORMAT = 1  # of checkpoints
OPTIMISERS = ("sgd", "adam")


@dataclass(frozen=True)
class NetworkRecipe:
    """What the weights depend on, beside images and architecture. `eps` is in the units that the network sees."""

    eps: float
    first_eps: float
    growing: int  # epochs over which eps grows from the first to the full one
    epochs: int
    rate: float
    halve: int  # epochs after which the rate is halved, again and again
    batch: int = 50
    momentum: float = 0.9
    decay: float = 5e-4
    optimiser: str = "sgd"
    clip: float = 1.0  # largest norm of a gradient
    augment: bool = False
    seed: int = 0

    def __post_init__(self) -> None:
        if not 0 < self.eps < float("inf"):
            raise BadInput(f"eps is {self.eps}; give a number above 0")
        if not 0 <= self.first_eps <= self.eps:
            raise BadInput(f"eps grows from {self.first_eps} to {self.eps}; the first must not be above the last")
        for name, least in (("epochs", 1), ("batch", 1), ("halve", 1), ("growing", 0)):
            if getattr(self, name) < least:
                raise BadInput(f"{name} is {getattr(self, name)}; give a whole number, {least} or more")
        if self.optimiser not in OPTIMISERS:
            raise BadInput(f"there is no optimiser '{self.optimiser}'; there are: {', '.join(OPTIMISERS)}")
        if not 0 < self.rate < float("inf"):
            raise BadInput(f"the learning rate is {self.rate}; give a number above 0")

    def radius(self, epoch: int) -> float:
        """The radius of an epoch, counted from 0."""
        share = 1.0 if epoch >= self.growing else epoch / self.growing
        return self.first_eps + share * (self.eps - self.first_eps)

    def rate_of(self, epoch: int) -> float:
        """The learning rate of an epoch."""
        return self.rate * 0.5 ** (epoch // self.halve)


RECIPES: Mapping[str, NetworkRecipe] = {
    # As the authors' networks were trained (facts 1.3); their script grows eps over an unpublished number of epochs.
    "cifar10": NetworkRecipe(
        eps=0.0347, first_eps=0.001, growing=40, epochs=120, rate=0.05, halve=10, momentum=0.9, augment=True
    ),
    "mnist": NetworkRecipe(
        eps=0.1, first_eps=0.01, growing=10, epochs=30, rate=1e-3, halve=6, decay=0.0, optimiser="adam", batch=100
    ),
}


def recipe_for(dataset: str, **given: Any) -> NetworkRecipe:
    """The usual recipe with what is given (and not None) instead; schedules keep their shape."""
    usual = RECIPES[dataset]
    given = {name: value for name, value in given.items() if value is not None}
    if "eps" in given:
        given["first_eps"] = usual.first_eps * given["eps"] / usual.eps
    if "epochs" in given:
        share = given["epochs"] / usual.epochs
        given["growing"] = int(usual.growing * share)
        given["halve"] = max(1, round(usual.halve * share))
    return replace(usual, **given)


def _optimiser(model: nn.Module, recipe: NetworkRecipe) -> torch.optim.Optimizer:
    if recipe.optimiser == "adam":
        on_gpu = next(model.parameters()).is_cuda  # where a step becomes part of a CUDA graph
        return torch.optim.Adam(model.parameters(), recipe.rate, weight_decay=recipe.decay, capturable=on_gpu)
    return torch.optim.SGD(model.parameters(), recipe.rate, momentum=recipe.momentum, weight_decay=recipe.decay)


@dataclass(frozen=True)
class Errors:
    """Shares of images: given another class; brought to one by an attack; not certified by Wong & Kolter's bound."""

    clean: float
    attacked: float
    uncertified: float
    images: int


@dataclass(frozen=True, eq=False)
class Examples:
    """Images on the training's device: pixels uint8 [n, channels, height, width] and labels [n]."""

    source: Images
    pixels: Tensor
    labels: Tensor

    @classmethod
    def of(cls, images: Images, device: torch.device, first: int | None = None) -> "Examples":
        """All of a split, or the first of it."""
        pixels, labels = (torch.tensor(part[:first], device=device) for part in (images.pixels, images.labels))
        return cls(images, pixels, labels)

    def batches(self, order: Tensor, size: int) -> Iterator[tuple[Tensor, Tensor]]:
        """Pixels and labels, in that order."""
        for chosen in order.to(self.pixels.device).split(size):
            yield self.pixels[chosen], self.labels[chosen]

    def seen(self, pixels: Tensor) -> Tensor:
        """What the network sees of pixels."""
        return self.source.dataset.normalise(pixels)


Report = Callable[[dict[str, Any]], None]
Tick = Callable[[str, int, int], None]  # what is going on, how much of it is done, how much there is


def train(
    architecture: Architecture,
    recipe: NetworkRecipe,
    examples: tuple[Examples, Examples],
    folder: Path,
    report: Report,
    tick: Tick,
    *,
    evaluated: int,
    limit: Deadline,
) -> nn.Sequential | None:
    """Train, or go on with what the folder holds; None when the time was up before the last epoch."""
    train_set, test_set = examples
    device = train_set.pixels.device
    torch.manual_seed(recipe.seed)
    model = architecture.build().to(device)
    optimiser = _optimiser(model, recipe)
    first = _go_on(folder, architecture, recipe, model, optimiser)
    written = read_bytes(folder / EPOCHS, LINES_LIMIT, BadInput) if (folder / EPOCHS).exists() else b""
    lines = written.splitlines(keepends=True)[:first]  # an epoch that the checkpoint has not seen is repeated
    with _fast_products():
        for epoch in range(first, recipe.epochs):
            if limit.passed():
                return None
            clock = Clock.start()
            figures = _epoch(model, optimiser, recipe, train_set, epoch, tick)
            seconds = clock.seconds()
            errors = evaluate(model, test_set, recipe.eps, evaluated)
            line = {"epoch": epoch + 1, "of": recipe.epochs, "eps": recipe.radius(epoch), **figures}
            line |= {**asdict(errors), "seconds": seconds}
            lines.append(json.dumps(line).encode() + b"\n")
            write_bytes(folder / EPOCHS, b"".join(lines))
            buffer = io.BytesIO()
            state = {"format": FORMAT, "told": _told(architecture, recipe), "epochs": epoch + 1}
            torch.save({**state, "model": model.state_dict(), "optimiser": optimiser.state_dict()}, buffer)
            write_bytes(folder / CHECKPOINT, buffer.getvalue())
            report(line)
    return model


def _epoch(
    model: nn.Sequential,
    optimiser: torch.optim.Optimizer,
    recipe: NetworkRecipe,
    examples: Examples,
    epoch: int,
    tick: Tick,
) -> dict[str, float]:
    """One pass over all images; mean robust loss, and the share not certified at the radius of this epoch."""
    for group in optimiser.param_groups:
        group["lr"] = recipe.rate_of(epoch)
    generator = torch.Generator().manual_seed(recipe.seed * 1_000_003 + epoch)
    order = torch.randperm(len(examples.labels), generator=generator)
    totals = torch.zeros(2, device=examples.pixels.device)

    def step(x: Tensor, labels: Tensor) -> None:
        loss, proved = robust_loss(model, x, labels, recipe.radius(epoch))
        optimiser.zero_grad()
        loss.backward()
        nn.utils.clip_grad_norm_(model.parameters(), recipe.clip)
        optimiser.step()
        totals.add_(torch.stack([loss.detach() * len(labels), proved.sum()]))

    model.train()
    run = Captured(step) if totals.is_cuda else step
    for k, (pixels, labels) in enumerate(examples.batches(order, recipe.batch)):
        tick(f"epoch {epoch + 1}, images", k * recipe.batch, len(order))
        run(examples.seen(moved(pixels, generator) if recipe.augment else pixels), labels)
    total, certified = totals.tolist()
    if not math.isfinite(total):
        raise BadInput(f"the loss is no number in epoch {epoch + 1}; lower the learning rate or the first eps")
    return {"loss": total / len(order), "train_uncertified": 1 - certified / len(order)}


class Captured:
    """A step on a GPU as one CUDA graph: hundreds of small kernels, launched one by one, would take most of the time.

    The first batches run as they are, which fills the caches that a capture needs; and so does a last, smaller one.
    """

    WARM_UP = 3

    def __init__(self, step: Callable[[Tensor, Tensor], None]) -> None:
        self._step = step
        self._seen = 0
        self._graph: torch.cuda.CUDAGraph | None = None
        self._inputs: tuple[Tensor, Tensor] | None = None
        self._side = torch.cuda.Stream()

    def __call__(self, x: Tensor, labels: Tensor) -> None:
        """One step; the tensors may be used again afterwards."""
        self._seen += 1
        if self._seen <= self.WARM_UP or (self._inputs is not None and len(x) != len(self._inputs[0])):
            self._side.wait_stream(torch.cuda.current_stream())
            with torch.cuda.stream(self._side):
                self._step(x, labels)
            torch.cuda.current_stream().wait_stream(self._side)
            return
        if self._graph is None or self._inputs is None:
            self._graph = torch.cuda.CUDAGraph()
            self._inputs = (x.clone(), labels.clone())
            with torch.cuda.graph(self._graph):
                self._step(*self._inputs)
        for buffer, value in zip(self._inputs, (x, labels), strict=True):
            buffer.copy_(value)
        self._graph.replay()


def moved(pixels: Tensor, generator: torch.Generator, by: int = 4) -> Tensor:
    """Every image mirrored or not, and moved by up to `by` pixels, black moving in."""
    batch, _, height, width = pixels.shape
    padded = nn.functional.pad(pixels, (by, by, by, by))
    draw = torch.randint(0, 2 * by + 1, (2, batch, 1), generator=generator)
    mirror = torch.rand(batch, 1, generator=generator) < 0.5
    rows = draw[0] + torch.arange(height)
    columns = draw[1] + torch.where(mirror, torch.arange(width - 1, -1, -1), torch.arange(width))
    chosen = torch.arange(batch)[:, None, None], rows[:, :, None], columns[:, None, :]
    return padded.permute(0, 2, 3, 1)[tuple(i.to(pixels.device) for i in chosen)].permute(0, 3, 1, 2)


def evaluate(
    model: nn.Sequential, examples: Examples, eps: float, count: int, batch: int = 100, tick: Tick = lambda *_: None
) -> Errors:
    """Errors over the first `count` images: as they are, under a PGD attack of 20 steps, and certified."""
    model.eval()
    wrong = torch.zeros(3, dtype=torch.int64, device=examples.pixels.device)
    order = torch.arange(min(count, len(examples.labels)))
    generator = torch.Generator().manual_seed(0)
    for k, (pixels, labels) in enumerate(examples.batches(order, batch)):
        tick("evaluating, images", k * batch, len(order))
        x = examples.seen(pixels)
        missed = model(x).argmax(1) != labels
        attacked = model(attack(model, x, labels, eps, ATTACK_STEPS, generator)).argmax(1) != labels
        with torch.no_grad():
            proved = robust_loss(model, x, labels, eps)[1]
        wrong += torch.stack([missed.sum(), (missed | attacked).sum(), (~proved).sum()])
    clean, attacked_too, uncertified = (n / len(order) for n in wrong.tolist())
    return Errors(clean, attacked_too, uncertified, len(order))


def finish(
    model: nn.Sequential,
    architecture: Architecture,
    recipe: NetworkRecipe,
    test_set: Examples,
    folder: Path,
    tick: Tick = lambda *_: None,
) -> tuple[Path, Errors]:
    """Write the network as ONNX and its card, after the file was held against the model; its path and its errors."""
    path = folder / f"{architecture.title}.onnx"
    host = architecture.build()
    host.load_state_dict({name: value.cpu() for name, value in model.state_dict().items()})
    network = read_module(host.eval(), architecture.dataset.shape)
    data = write_network(network)
    reference = Reference(data)
    compare(network, reference)
    images = test_set.seen(test_set.pixels[:64]).cpu()
    with torch.no_grad():
        outputs = host(images).numpy()
    exported = np.stack([reference.run(x) for x in images.flatten(1).numpy()])
    difference = float(np.abs(outputs - exported).max())
    if not difference <= 1e-4 * max(1.0, float(np.abs(outputs).max())):
        raise NetworkError(
            f"the exported network differs from the trained one by {difference:.2g}; nothing was written"
        )
    errors = evaluate(model, test_set, recipe.eps, len(test_set.labels), tick=tick)
    card = {
        "network": path.name,
        "dataset": architecture.dataset.name,
        "input": {"mean": architecture.dataset.mean, "std": architecture.dataset.std},
        "relus": network.neurons,
        "recipe": asdict(recipe),
        "errors": {"eps": recipe.eps, **asdict(errors)},
        "export_difference": difference,
        "revision": revision(),
    }
    write_bytes(path, data)
    write_text(folder / CARD, json.dumps(card, indent=1) + "\n")
    return path, errors


def finished_before(folder: Path, architecture: Architecture, recipe: NetworkRecipe) -> Path | None:
    """The network of a training with this recipe that the folder holds to the end, if it does."""
    path = folder / f"{architecture.title}.onnx"
    card = folder / CARD
    if not (path.is_file() and card.is_file()):
        return None
    try:
        stored = parsed_json(read_bytes(card, CHECKPOINT_LIMIT, BadInput))
    except ValueError:
        return None  # it is written again
    return path if isinstance(stored, dict) and stored.get("recipe") == asdict(recipe) else None


@contextmanager
def _fast_products() -> Iterator[None]:
    """TF32 where a GPU has it: gradients need no more; what is shipped is certified anew, in float64, by bough."""
    before = torch.get_float32_matmul_precision()
    torch.set_float32_matmul_precision("high")
    try:
        yield
    finally:
        torch.set_float32_matmul_precision(before)


def _told(architecture: Architecture, recipe: NetworkRecipe) -> dict[str, Any]:
    """What a checkpoint must agree with to be gone on with; training longer is allowed."""
    return {"architecture": architecture.title, **asdict(replace(recipe, epochs=1))}


def _go_on(
    folder: Path, architecture: Architecture, recipe: NetworkRecipe, model: nn.Module, optimiser: torch.optim.Optimizer
) -> int:
    """Load the checkpoint, where there is one, and return how many epochs it has seen."""
    path = folder / CHECKPOINT
    if not path.exists():
        return 0
    data = read_bytes(path, CHECKPOINT_LIMIT, BadInput)
    try:
        # Only tensors and plain values: a checkpoint from a stranger runs nothing.
        state = torch.load(io.BytesIO(data), map_location="cpu", weights_only=True)
        version, stored, epochs = int(state["format"]), dict(state["told"]), int(state["epochs"])
    except Exception as error:  # whatever a broken file makes PyTorch raise
        raise BadInput(f"{path} is no checkpoint of bough; move it away to start anew") from error
    current = _told(architecture, recipe)
    other = [k for k in current if stored.get(k) != current[k]]
    if version != FORMAT or other:
        differences = ", ".join(f"{k} {stored.get(k)} there, {current[k]} now" for k in other) or f"format {version}"
        raise BadInput(f"{path} belongs to another training ({differences}); use another --out, or the same settings")
    model.load_state_dict(state["model"])
    on_gpu = [group.get("capturable") for group in optimiser.param_groups]
    optimiser.load_state_dict(state["optimiser"])
    for group, capturable in zip(optimiser.param_groups, on_gpu, strict=True):
        if capturable is not None:  # the checkpoint may come from another device
            group["capturable"] = capturable
            for parameter in group["params"]:
                moments = optimiser.state[parameter]
                moments["step"] = moments["step"].to(parameter.device if capturable else "cpu")
    return epochs
