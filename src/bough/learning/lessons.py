"""Samples as training takes them: many properties on one device, in batches that mix them, and a tally of it all."""

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from itertools import pairwise

import torch
from torch import Tensor

from bough.learning.loss import choice_loss, classes, expected_loss, judge, rank_loss
from bough.learning.model import AbstractModel
from bough.learning.presets import TrainingRecipe
from bough.learning.samples import Samples

DEPTHS = (0, 5, 10, 20, 40)  # where bins of depth in the tree begin
BINS = (*(f"{a}-{b - 1}" for a, b in pairwise(DEPTHS)), f"{DEPTHS[-1]}+")
DEVICE_SHARE = 0.4  # of a GPU's free memory, for samples that stay there
Batch = list[tuple[int, Tensor]]  # numbers of properties, and of their samples


@dataclass(frozen=True)
class Figures:
    """How well a model does on some samples, in the mean."""

    samples: int
    loss: float
    accuracy: float  # share of samples in which m of the chosen ReLU is at least 0.9 of the best m
    absolute: float  # share of samples in which m of the chosen ReLU is at least 0.9 itself
    share: float  # m of the chosen ReLU over the best m


@dataclass(frozen=True)
class FiguresByDepth(Figures):
    """Figures of all samples, and of those of each bin of depth in the tree."""

    by_depth: Mapping[str, Figures]


@dataclass(frozen=True)
class EpochFigures:
    """One pass over the training samples, and what the validation samples say of it."""

    epoch: int
    of: int
    rate: float  # the learning rate at its beginning
    training: FiguresByDepth
    validation: FiguresByDepth
    best: bool  # whether the validation loss is the least so far
    seconds: float


@dataclass(frozen=True, eq=False)
class Lessons:
    """The samples of many properties; graphs are on the device, scenes as well where they fit."""

    parts: tuple[Samples, ...]
    device: torch.device

    @classmethod
    def of(cls, samples: Iterable[Samples], device: torch.device) -> "Lessons":
        """Lessons of the samples in which at least one ReLU was tried; the others teach nothing."""
        useful = [taught for s in samples if len(taught := s[s.tried.any(dim=1)])]
        room = DEVICE_SHARE * torch.cuda.mem_get_info(device)[0] if device.type == "cuda" else float("inf")
        size = sum(t.nbytes for s in useful for t in (*s.scene.tensors(), s.children, *s.optional().values()))
        if size <= room:
            return cls(tuple(s.to(device) for s in useful), device)
        # Only the graphs are moved now, so that what they compute once stays with them.
        return cls(tuple(replace(s, graph=s.graph.to(device)) for s in useful), device)

    def __len__(self) -> int:
        return sum(map(len, self.parts))

    def piece(self, number: int, rows: Tensor) -> Samples:
        """Some samples of one property, on the device."""
        part = self.parts[number]
        rows = rows.to(part.children.device)
        return part.changed(part.graph, lambda array: array[rows].to(self.device))

    def counts(self) -> dict[str, int]:
        """How many properties, samples and ReLUs there are: it tells one set from another for a checkpoint."""
        relus = sum(len(part) * part.children.shape[1] for part in self.parts)
        return {"properties": len(self.parts), "samples": len(self), "relus": relus}

    def batches(self, size: int, group: int, generator: torch.Generator) -> Iterator[Batch]:
        """All samples once, in an order drawn from the generator: groups of one property's, joined to batches."""
        groups: Batch = []
        for k, part in enumerate(self.parts):
            groups += [(k, rows) for rows in torch.randperm(len(part), generator=generator).split(min(group, size))]
        batch: Batch = []
        for at in torch.randperm(len(groups), generator=generator).tolist():
            if sum(len(rows) for _, rows in batch) + len(groups[at][1]) > size and batch:
                yield batch
                batch = []
            batch.append(groups[at])
        if batch:
            yield batch

    def in_order(self, size: int) -> Batch:
        """All samples once, in order."""
        return [(k, rows) for k, part in enumerate(self.parts) for rows in torch.arange(len(part)).split(size)]


class LessonTally:
    """Sums over samples, by depth in the tree; on the device until they are read."""

    def __init__(self, device: torch.device) -> None:
        self._sums = torch.zeros(len(BINS), 5, dtype=torch.float64, device=device)  # [bins, figures]

    def add(self, loss: Tensor, scores: Tensor, gains: Tensor, depth: Tensor) -> None:
        """Add some samples to the sums."""
        judgement = judge(scores, gains)
        columns = (torch.ones_like(loss), loss, judgement.relative, judgement.absolute, judgement.share)
        edges = torch.tensor(DEPTHS[1:], device=depth.device, dtype=depth.dtype)
        self._sums.index_add_(0, torch.bucketize(depth, edges, right=True), torch.stack(columns, dim=1).double())

    def figures(self) -> FiguresByDepth:
        """The means of all samples so far."""
        sums = self._sums.cpu()
        by_depth = {name: Figures(*_means(row)) for name, row in zip(BINS, sums, strict=True) if row[0] > 0}
        return FiguresByDepth(*_means(sums.sum(dim=0)), by_depth)


def _means(sums: Tensor) -> tuple[int, float, float, float, float]:
    count, *totals = sums.tolist()
    loss, accuracy, absolute, share = (total / max(1, count) for total in totals)
    return int(count), loss, accuracy, absolute, share


def losses(model: AbstractModel, samples: Samples, recipe: TrainingRecipe, tally: LessonTally) -> Tensor:
    """The loss of each sample by the recipe's measure; the tally hears of them."""
    gains = samples.improvements(recipe.measure)
    if recipe.inputs:
        gains = torch.cat([gains, samples.input_improvements(recipe.measure)], dim=1)
    scores = (model.score_all if recipe.inputs else model)(samples.graph, samples.scene)
    if recipe.loss == "choice":
        loss = choice_loss(scores, gains)
    elif recipe.loss == "expected":
        loss = expected_loss(scores, gains)
    else:
        loss = rank_loss(scores, classes(gains, recipe.classes, relative=recipe.relative), recipe.classes)
    tally.add(loss.detach(), scores.detach(), gains, samples.scene.depth)
    return loss


def evaluate(
    model: AbstractModel, lessons: Lessons, recipe: TrainingRecipe, check: Callable[[], None] = lambda: None
) -> FiguresByDepth:
    """The figures of a model over all samples; `check` may end it by raising."""
    tally = LessonTally(lessons.device)
    with torch.no_grad():
        for k, rows in lessons.in_order(4 * recipe.group):
            check()
            losses(model, lessons.piece(k, rows), recipe, tally)
    return tally.figures()
