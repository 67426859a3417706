"""A second opinion on certificates: what their numbers prove, by automatic differentiation instead of the checker.

A leaf's bound is that of a linear function which meets the network at every ReLU by multipliers of its own. Here these
are the derivative of a ReLU (`_Bend`), PyTorch carries them back, and the constant follows from one point: no line is
shared with `bough.verdict.check`, but for the reader of files. Nothing is rounded outward, so it is an opinion only:
what it calls proved by more than `TOLERANCE` is a proof, or the checker and it are wrong in the same way.
"""

from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
import torch
from torch import Tensor

from bough.network.graph import Network
from bough.network.ops import Relu
from bough.problem.problem import Problem
from bough.verdict.certificate import DIRECT, EMPTY, FINE, LOCAL, SLOPES, Chunk, Leaves, Lemma, TreeLemma

TOLERANCE = 1e-7  # of bounds whose terms are about 1
ELEMENTS = 1 << 21  # of the widest node at once
ADAPTIVE, CHORD, FLAT, IDENTITY = range(4)  # what docs/certificates.md calls kinds of slopes
Objective = Callable[[list[Tensor]], Tensor]  # of the values of nodes [rows, ...] -> [rows]


@dataclass(frozen=True, eq=False)
class Region:
    """Boxes [rows, inputs] and bounds of ReLU inputs [rows, neurons]."""

    low: Tensor
    high: Tensor
    lower: Tensor
    upper: Tensor

    def take(self, rows: Tensor) -> "Region":
        """Some rows, any number of times."""
        return Region(self.low[rows], self.high[rows], self.lower[rows], self.upper[rows])

    def with_bounds(self, lower: Tensor, upper: Tensor) -> "Region":
        """The same boxes, with the tighter of both bounds."""
        return replace(self, lower=torch.maximum(self.lower, lower), upper=torch.minimum(self.upper, upper))

    @property
    def empty(self) -> Tensor:
        """Which rows hold no point."""
        return (self.lower > self.upper).any(dim=1)


@dataclass(frozen=True, eq=False)
class Slopes:
    """Of every ReLU [rows, neurons]: the lower line's slope, the multiplier of a split's sign, or a given one."""

    lower: Tensor
    sign: Tensor | None = None
    given: Tensor | None = None  # nan where there is none


class _Bend(torch.autograd.Function):
    """A ReLU with another derivative."""

    @staticmethod
    def forward(ctx: Any, z: Tensor, derivative: Callable[[Tensor], Tensor]) -> Tensor:
        ctx.derivative = derivative
        return z.clamp(min=0)

    @staticmethod
    def backward(ctx: Any, nu: Tensor) -> tuple[Tensor, None]:
        return ctx.derivative(nu), None


@dataclass(eq=False)
class Opinion:
    """What is thought of one problem's certificates."""

    problem: Problem
    roots: dict[int, Region] = field(default_factory=dict)  # as they are without any lemma
    kept: tuple[list[Lemma | TreeLemma], dict[int, Region]] | None = (
        None  # lemmas that come again and again, and what they give
    )

    @property
    def network(self) -> Network:
        """What is bounded."""
        return self.problem.network

    def least(self, region: Region, objective: Objective, slopes: Slopes, last: int) -> Tensor:
        """Lower bounds [rows] of a function of nodes up to `last`."""
        x = ((region.low + region.high) / 2).requires_grad_()
        gained = torch.zeros(len(x), dtype=torch.float64)  # what the least terms are less than those at x

        def bent(i: int, z: Tensor) -> Tensor:
            part, flat = self.network.slices[i], z.detach().flatten(1)

            def derivative(nu: Tensor) -> Tensor:
                n = nu.flatten(1)
                l, u = region.lower[:, part], region.upper[:, part]
                lam = _multiplier(n, l, u, slopes, part)
                ends = [n * end.clamp(min=0) - lam * end for end in (l, u)]
                least = torch.where((l <= 0) & (u >= 0), torch.minimum(*ends).clamp(max=0), torch.minimum(*ends))
                gained.add_((least - (n * flat.clamp(min=0) - lam * flat)).sum(dim=1))
                return lam.reshape(nu.shape)

            return _Bend.apply(z, derivative)  # type: ignore[no-any-return,no-untyped-call]

        values: list[Tensor] = []
        for i, node in enumerate(self.network.nodes[: last + 1]):
            if isinstance(node.op, Relu):
                values.append(bent(i, values[node.inputs[0]]))
            else:
                inputs = (values[j] for j in node.inputs)
                values.append(
                    self.network.apply(i, *inputs) if node.inputs else x.reshape(-1, *self.network.input_shape)
                )
        value = objective(values)
        (g,) = torch.autograd.grad(value.sum(), x, allow_unused=True, materialize_grads=True)
        least = torch.minimum(g * (region.low - x), g * (region.high - x)).sum(dim=1)
        return (value + least + gained).detach().nan_to_num(nan=-torch.inf, posinf=-torch.inf)

    def enclosed(self, region: Region) -> Region:
        """With the bounds that intervals give."""
        lower, upper = region.lower.clone(), region.upper.clone()
        ends: list[tuple[Tensor, Tensor]] = []
        for i, node in enumerate(self.network.nodes):
            if not node.inputs:
                shape = (-1, *self.network.input_shape)
                ends.append((region.low.reshape(shape), region.high.reshape(shape)))
            elif isinstance(node.op, Relu):
                part, (low, high) = self.network.slices[i], ends[node.inputs[0]]
                lower[:, part] = torch.maximum(lower[:, part], low.flatten(1))
                upper[:, part] = torch.minimum(upper[:, part], high.flatten(1))
                sides = (side[:, part].clamp(min=0).reshape(low.shape) for side in (lower, upper))
                ends.append((next(sides), next(sides)))
            else:
                middle = self.network.apply(i, *((ends[j][0] + ends[j][1]) / 2 for j in node.inputs))
                radii = ((ends[j][1] - ends[j][0]).abs() / 2 for j in node.inputs)
                radius = self.network.radius.apply(i, *radii)
                ends.append((middle - radius, middle + radius))
        return region.with_bounds(lower, upper)

    def renewed(self, region: Region, relu: int, kind: int) -> Region:
        """With the bounds of one layer's ambiguous ReLUs derived by a kind of slopes."""
        part = self.network.slices[relu]
        row, neuron = ((region.lower < 0) & (region.upper > 0))[:, part].nonzero(as_tuple=True)
        chosen = Slopes(slopes_of(region, kind))
        return self._bounded(region, relu, row, neuron, lambda rows: Slopes(chosen.lower[rows]))

    def _bounded(
        self,
        region: Region,
        relu: int,
        row: Tensor,
        neuron: Tensor,
        slopes: Callable[[Tensor], Slopes],
    ) -> Region:
        part, source = self.network.slices[relu], self.network.nodes[relu].inputs[0]
        lower, upper = region.lower.clone(), region.upper.clone()
        step = self.step
        for first in range(0, len(row), step):
            rows, j = row[first : first + step], neuron[first : first + step]
            for sign, bounds in ((1.0, lower), (-1.0, upper)):

                def picked(values: list[Tensor], j: Tensor = j, sign: float = sign) -> Tensor:
                    return sign * values[source].flatten(1)[torch.arange(len(j)), j]

                bound = sign * self.least(region.take(rows), picked, slopes(rows), source)
                at = (rows, part.start + j)
                bounds[at] = torch.maximum(bounds[at], bound) if sign > 0 else torch.minimum(bounds[at], bound)
        return region.with_bounds(lower, upper)

    @property
    def step(self) -> int:
        """Rows at once."""
        return max(1, ELEMENTS // max(node.size for node in self.network.nodes))

    def root(self, box: int) -> Region:
        """A whole box without any lemma: intervals, then two kinds of slopes."""
        if box not in self.roots:
            given = self.problem.property.boxes[box]
            unknown = torch.full((1, self.network.neurons), torch.inf, dtype=torch.float64)
            region = self.enclosed(Region(given.lower[None], given.upper[None], -unknown, unknown))
            for kind in (ADAPTIVE, CHORD):
                for i in self.network.relus:
                    region = self.renewed(region, i, kind)
                region = self.enclosed(region)
            self.roots[box] = region
        return self.roots[box]

    def learnt(self, lemmas: list[Lemma | TreeLemma]) -> dict[int, Region]:
        """The region of every clause, after all lemmas."""
        boxes: dict[int, Region] = {}
        own: dict[int, tuple[Tensor, Tensor]] = {}

        def of_clause(k: int) -> Region:
            box = self.problem.property.clauses[k].box
            region = boxes.get(box, self.root(box))
            return region if k not in own else region.with_bounds(*own[k])

        for lemma in lemmas:
            box, clause = int(lemma.head[0]), int(lemma.head[1]) - 1
            region = boxes.get(box, self.root(box)) if clause < 0 else of_clause(clause)
            if isinstance(lemma, TreeLemma):
                region = self._by_trees(region, lemma, clause)
            else:
                for i in self.network.relus:
                    region = self._by_lemma(region, lemma, i, clause)
            if clause < 0:
                boxes[box] = self.enclosed(region)
            else:
                own[clause] = region.lower, region.upper
        return {k: of_clause(k) for k in range(len(self.problem.clauses))}

    def keep(self, lemmas: list[Lemma | TreeLemma]) -> None:
        """Remember what these give."""
        self.kept = lemmas, self.learnt(lemmas)

    def _by_lemma(self, region: Region, lemma: Lemma, relu: int, clause: int) -> Region:
        part, source = self.network.slices[relu], self.network.nodes[relu].inputs[0]
        count = len(lemma.neurons)
        own_rows = np.flatnonzero((lemma.neurons >= part.start) & (lemma.neurons < part.stop))
        base, slots = slopes_of(region, ADAPTIVE), torch.from_numpy(lemma.slots.astype(np.int64))
        lower, upper, last = region.lower.clone(), region.upper.clone(), len(self.network.nodes) - 1
        for first in range(0, len(own_rows), self.step):
            rows = own_rows[first : first + self.step]
            j = torch.from_numpy(lemma.neurons[rows].astype(np.int64)) - part.start
            for sign, at, bounds in ((1.0, rows, lower), (-1.0, count + rows, upper)):
                slope = base.repeat(len(rows), 1)
                slope[:, slots] = torch.from_numpy(lemma.slopes[at] / 255.0)

                def objective(values: list[Tensor], j: Tensor = j, sign: float = sign, at: Any = at) -> Tensor:
                    value = sign * values[source].flatten(1)[torch.arange(len(j)), j]
                    return value if clause < 0 else value + self._rows(clause, lemma.weights[at], values)

                local = region.take(torch.zeros(len(rows), dtype=torch.int64))
                bound = sign * self.least(local, objective, Slopes(slope), source if clause < 0 else last)
                k = part.start + j
                bounds[0, k] = torch.maximum(bounds[0, k], bound) if sign > 0 else torch.minimum(bounds[0, k], bound)
        return region.with_bounds(lower, upper)

    def _by_trees(self, region: Region, lemma: TreeLemma, clause: int) -> Region:
        """With every side bounded by its worst pattern; a side whose patterns leave a gap says nothing."""
        patterns: dict[int, list[int]] = {}
        for k, side in enumerate(lemma.sides.astype(int).tolist()):
            patterns.setdefault(side, []).append(k)
        lower, upper = region.lower.clone(), region.upper.clone()
        for side, members in patterns.items():
            if not covers([{a >> 1: a & 1 for a, _ in splits_of(lemma, k)} for k in members]):
                continue
            neuron, least = side >> 1, min(self._pattern(region, lemma, k, clause) for k in members)
            if least == np.inf:
                continue  # known bounds contradict each other anyway
            if side & 1:
                upper[0, neuron] = min(float(upper[0, neuron]), -least)
            else:
                lower[0, neuron] = max(float(lower[0, neuron]), least)
        return region.with_bounds(lower, upper)

    def _pattern(self, region: Region, lemma: TreeLemma, k: int, clause: int) -> float:
        """The bound of one side's functional where one pattern's splits hold."""
        lower, upper = region.lower.clone(), region.upper.clone()
        splits = splits_of(lemma, k)
        for literal, _ in splits:
            side, keep = (lower, max) if literal & 1 else (upper, min)
            side[0, literal >> 1] = keep(0.0, float(side[0, literal >> 1]))
        inside = replace(region, lower=lower, upper=upper)
        if bool(inside.empty[0]):
            return np.inf
        neuron, sign = int(lemma.sides[k]) >> 1, -1.0 if int(lemma.sides[k]) & 1 else 1.0
        relu = next(i for i in self.network.relus if neuron in range(*self.network.slices[i].indices(1 << 40)))
        source, at = self.network.nodes[relu].inputs[0], neuron - self.network.slices[relu].start
        slope, multiplier = slopes_of(inside, ADAPTIVE), torch.zeros_like(lower)
        slope[0, torch.from_numpy(lemma.slots.astype(np.int64))] = torch.from_numpy(
            lemma.slopes[int(lemma.vector[k])] / 255.0
        )
        for literal, value in splits:
            multiplier[0, literal >> 1] = value

        def objective(values: list[Tensor]) -> Tensor:
            value = sign * values[source].flatten(1)[:, at]
            return value if clause < 0 else value + self._rows(clause, lemma.weights[k : k + 1], values)

        last = source if clause < 0 else len(self.network.nodes) - 1
        return float(self.least(inside, objective, Slopes(slope, multiplier), last)[0])

    def _rows(self, clause: int, weights: np.ndarray[Any, Any], values: list[Tensor]) -> Tensor:
        """`weights . (A y - b)`, a row each."""
        target = self.problem.clauses[clause]
        rows = values[-1].flatten(1) @ target.coefficients.T - target.offsets
        return (torch.from_numpy(weights[:, : len(target.offsets)]) * rows).sum(dim=1)

    def bounds(
        self, chunks: list[Chunk], chosen: dict[int, list[int]] | None = None, *, above: float | None = None
    ) -> dict[tuple[int, int], float]:
        """What every leaf proves, by chunk and number; or of some leaves of some chunks only.

        The first bound that is not greater than `above` is the last one.
        """
        lemmas = [c for c in chunks if isinstance(c, Lemma | TreeLemma)]
        same = self.kept is not None and [id(c) for c in lemmas] == [id(c) for c in self.kept[0]]
        clauses = self.kept[1] if self.kept is not None and same else self.learnt(lemmas)
        proved = {}
        for at, chunk in enumerate(chunks):
            if isinstance(chunk, Leaves):
                for k in range(len(chunk)) if chosen is None else chosen.get(at, []):
                    proved[at, k] = self._leaf(chunk, k, clauses[int(chunk.clause[k])])
                    if above is not None and not proved[at, k] > above:
                        return proved
        return proved

    def _leaf(self, leaves: Leaves, k: int, region: Region) -> float:
        clause, kind, vector = (int(a[k]) for a in (leaves.clause, leaves.kind, leaves.vector))
        splits, halvings = entries(leaves, k)
        low, high, lower, upper = (side.clone() for side in (region.low, region.high, region.lower, region.upper))
        for literal, _ in splits:
            if literal & 1:
                lower[0, literal >> 1] = max(0.0, float(lower[0, literal >> 1]))
            else:
                upper[0, literal >> 1] = min(0.0, float(upper[0, literal >> 1]))
        whole = region
        for i, times, halves in halvings:
            low[0, i], high[0, i] = part_of(float(low[0, i]), float(high[0, i]), times, halves)
        region = Region(low, high, lower, upper)
        if kind == LOCAL:
            region = self._local(region, whole, vector // 4)
            slopes = Slopes(slopes_of(region, vector % 4))
        if bool(region.empty[0]):
            return np.inf
        if kind == EMPTY:
            return -np.inf
        if kind != LOCAL:
            slopes = _slopes(leaves, kind, vector, splits, slopes_of(region, ADAPTIVE))
        weights = leaves.weights[k : k + 1]
        last = len(self.network.nodes) - 1
        return float(self.least(region, lambda values: self._rows(clause, weights, values), slopes, last)[0])

    def _local(self, region: Region, whole: Region, effort: int) -> Region:
        """All bounds derived again: once, twice, or in ever smaller boxes from the whole one on."""

        def once(current: Region) -> Region:
            current = self.enclosed(current)
            for i in self.network.relus:
                for kind in (ADAPTIVE, CHORD):
                    current = self.renewed(current, i, kind)
            return current

        if effort < 2:
            return once(once(region) if effort else region)
        now = replace(region, low=whole.low, high=whole.high)
        while True:
            left = ((now.low != region.low) | (now.high != region.high))[0]
            if not bool(left.any()):
                return now
            i = int(torch.where(left, (now.high - now.low)[0], -1.0).argmax())
            low, high = now.low.clone(), now.high.clone()
            middle = float(low[0, i]) / 2 + float(high[0, i]) / 2
            if float(region.low[0, i]) >= middle:
                low[0, i] = middle
            else:
                high[0, i] = middle
            now = once(replace(now, low=low, high=high))


def slopes_of(region: Region, kind: int) -> Tensor:
    """Lower slopes [rows, neurons] that follow from bounds."""
    if kind == ADAPTIVE:
        return (region.upper * (1 - 2.0**-20) > -region.lower).double()
    if kind == CHORD:
        return _chord(region.lower, region.upper)
    return torch.full_like(region.lower, float(kind == IDENTITY))


def _chord(lower: Tensor, upper: Tensor) -> Tensor:
    return torch.where((lower < 0) & (upper > 0), upper / (upper - lower), 1.0)


def _multiplier(n: Tensor, lower: Tensor, upper: Tensor, slopes: Slopes, part: slice) -> Tensor:
    """Of a ReLU's input, where its output has n: the identity, none, a line below or the chord; or what is given."""
    on, off = lower >= 0, upper <= 0
    bent = n * torch.where(n >= 0, slopes.lower[:, part], _chord(lower, upper))
    lam = torch.where(on, n, torch.where(off, 0.0, bent))
    if slopes.sign is not None:
        sign = slopes.sign[:, part]
        lam = torch.where(on, lam - sign, torch.where(off, lam + sign, lam))
    if slopes.given is not None:
        given = slopes.given[:, part]
        lam = torch.where(given.isnan(), lam, given)
    return lam


def _slopes(leaves: Leaves, kind: int, vector: int, splits: list[tuple[int, float]], slope: Tensor) -> Slopes:
    """As they are stored."""
    slots = torch.from_numpy(leaves.slots.astype(np.int64))
    sign, given = torch.zeros_like(slope), None
    for literal, value in splits:
        sign[0, literal >> 1] = value
    if kind == SLOPES and vector:
        slope[0, slots] = torch.from_numpy(leaves.coarse[vector - 1] / 255.0)
    elif kind == FINE:
        slope[0, slots] = torch.from_numpy(leaves.fine[vector])
    elif kind == DIRECT:
        given = torch.full_like(slope, torch.nan)
        given[0, slots] = torch.from_numpy(leaves.fine[vector])
    return Slopes(slope, sign, given)


def entries(leaves: Leaves, k: int) -> tuple[list[tuple[int, float]], list[tuple[int, int, int]]]:
    """The splits (literal, multiplier) and halvings (input, times, halves) of one leaf."""
    first, count = int(leaves.splits[:k].sum(dtype=np.int64)), int(leaves.splits[k])
    some = slice(first, first + count)
    splits = [(int(a), float(b)) for a, b in zip(leaves.literals[some], leaves.signs[some], strict=True)]
    first, count = int(leaves.halvings[:k].sum(dtype=np.int64)), int(leaves.halvings[k])
    some = slice(first, first + count)
    columns = (leaves.inputs[some], leaves.times[some], leaves.halves[some])
    return splits, [(int(i), int(t), int(h)) for i, t, h in zip(*columns, strict=True)]


def splits_of(lemma: TreeLemma, k: int) -> list[tuple[int, float]]:
    """The splits (literal, multiplier) of one pattern."""
    first, count = int(lemma.splits[:k].sum(dtype=np.int64)), int(lemma.splits[k])
    some = slice(first, first + count)
    return [(int(a), float(b)) for a, b in zip(lemma.literals[some], lemma.signs[some], strict=True)]


def covers(patterns: list[dict[int, int]]) -> bool:
    """Whether every combination of signs agrees with a pattern, a tree or not: by cases, for one ReLU after another."""
    if any(not pattern for pattern in patterns):
        return True
    if not patterns:
        return False
    some = next(iter(patterns[0]))
    cases = ([p for p in patterns if p.get(some, side) == side] for side in (0, 1))
    return all(covers([{v: s for v, s in p.items() if v != some} for p in case]) for case in cases)


def part_of(low: float, high: float, times: int, halves: int) -> tuple[float, float]:
    """One side of a box, halved so often; the highest bit comes first."""
    for shift in range(times - 1, -1, -1):
        middle = low / 2 + high / 2
        low, high = (middle, high) if halves >> shift & 1 else (low, middle)
    return low, high
