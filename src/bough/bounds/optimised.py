"""Optimised root bounds: every ambiguous ReLU's own bounds by dual ascent, layer after layer, batched over neurons.

The question "how low can z_j be" is the search's own question with the network cut off at layer k and a unit row, so
the same ascent answers it, for both sides of every ReLU of a layer at once. What it finds is proved in float64 like
every other bound before anything stands on it.
"""

from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from typing import Any, final

import torch
from torch import Tensor

from bough.bounds.ascent import Ascent, Climber, Duals, Question
from bough.bounds.intermediate import AbstractIntermediate, Asked, TightBounds, settled
from bough.bounds.linear import Region, bound_functionals, bound_rows
from bough.bounds.proof import by_duals
from bough.bounds.reduced import Reduced, reduce
from bough.bounds.relaxation import AbstractSlopes, chord
from bough.bounds.witness import AbstractWitness
from bough.budget import Deadline
from bough.domain.batch import Bounds
from bough.network.graph import Network
from bough.problem.property import Box

CHUNK = 2048  # functionals in one ascent
MOST_WORK = {"cpu": 2e11, "cuda": 1e14}  # operations spent at the root; beyond it, fewer steps or none
FEWEST_STEPS = 5
SMALL_LAYER = 512  # ReLUs of all clauses, up to which an earlier layer is bounded at unsafe points, too
LEAST_GAIN = 1e-3  # of some ReLU's width, for which another round is worth its time


@final
@dataclass(frozen=True)
class OptimisedBounds(AbstractIntermediate):
    """Another policy's bounds, tightened at the root; after splits they stay as they are."""

    inner: AbstractIntermediate = field(default_factory=lambda: TightBounds(refresh=False))
    ascent: Ascent = field(default_factory=lambda: Ascent(steps=8))
    unsafe_only: bool = True  # also bound the last layer's ReLUs at unsafe points only, clause by clause
    rounds: int = 8  # of that in one call: each stands on the bounds of the last
    refresh: bool = (
        False  # the last layer's at unsafe points after every split, too: dear, but it propagates constraints
    )
    at_unsafe: Ascent = field(default_factory=lambda: Ascent(steps=4))
    witness: AbstractWitness | None = field(default=None, compare=False)  # told of the duals behind every bound

    @property
    def slopes(self) -> AbstractSlopes:
        """Those of the policy inside."""
        return self.inner.slopes

    def at_root(self, network: Network, box: Box, deadline: Deadline) -> Region:
        """Interval, linear, then ascent, each only where the last left a ReLU ambiguous."""
        where = self.inner.at_root(network, box, deadline)
        net = reduce(network, where, deadline)
        steps = _affordable(net, self.ascent.steps, where.lower.device.type)
        if steps < FEWEST_STEPS:
            return where
        ascent = replace(self.ascent, steps=steps, deadline=deadline)
        for k, part in enumerate(net.layers):
            if k > 0 and part.stop > part.start:
                where = replace(where, bounds=_tightened(network, where, net, k, ascent, self.witness))
        return settled(network, where)

    @property
    def conditional(self) -> bool:
        """Whether `for_clauses` leaves out safe points."""
        return self.unsafe_only

    def for_clauses(self, network: Network, where: Region, asked: Asked, memory: dict[str, Any]) -> Bounds:
        """The last layer's bounds once more, given that every row of the clause holds: what else there is, is safe.

        Measured on the paper's networks: earlier layers gain nothing from it, the last one gains so much that trees
        shrink to a fraction, most of all after many rounds of few steps. Layers go on as long as they gain.
        """
        if not self.unsafe_only:
            return asked.bounds
        if "net" not in memory:
            widest = where.bounds  # a region of several domains is reduced over all of them
            all_of = Bounds(widest.lower.min(dim=0, keepdim=True).values, widest.upper.max(dim=0, keepdim=True).values)
            memory["net"] = net = reduce(network, replace(where, bounds=all_of), asked.deadline)
            memory["climber"] = Climber(net.to(where.lower.device, torch.float32))
        net, bounds = memory["net"], asked.bounds
        if _affordable(net, FEWEST_STEPS, where.lower.device.type) < FEWEST_STEPS:
            return bounds
        if "layers" not in memory:
            memory["layers"] = _worth_trying(net, len(asked.offsets))
        for _ in range(self.rounds):
            gaining = []
            for part in memory["layers"]:
                before = bounds
                bounds = self._tightened_if_unsafe(network, where, part, replace(asked, bounds=bounds), memory)
                gain = (bounds.lower - before.lower + before.upper - bounds.upper) / (before.upper - before.lower)
                gaining += [part] if bool((gain > LEAST_GAIN).any()) else []
            if not gaining or bool(bounds.empty().all()):
                break
            memory["layers"] = gaining
        return bounds

    def _tightened_if_unsafe(
        self, network: Network, where: Region, part: slice, asked: Asked, memory: dict[str, Any]
    ) -> Bounds:
        """The bounds [clauses, neurons] with those of one layer ascended, under the constraints of each clause.

        Each row enters with a multiplier g >= 0: z_j >= min of z_j + g (row @ y - offset) wherever the row holds.
        """
        net: Reduced = memory["net"]
        where, clauses = where.with_bounds(asked.bounds), len(asked.offsets)
        node, first = _home(network, net, part)
        lower, upper = asked.bounds.lower.clone(), asked.bounds.upper.clone()
        low, high = lower[:, net.neurons], upper[:, net.neurons]
        signs = (low >= 0).to(torch.int8) - (high <= 0).to(torch.int8)
        slope = chord(low, high)
        lines = slope.float(), (-low.clamp(max=0) * slope).float()
        ascent = replace(self.at_unsafe, deadline=asked.deadline)
        for elements in torch.arange(part.start, part.stop, device=lower.device).split(max(1, CHUNK // 2 // clauses)):
            count, key = 2 * len(elements), f"duals from {int(elements[0])}"  # functionals of a clause
            kind = torch.arange(clauses, device=lower.device).repeat_interleave(count)
            side = torch.cat([torch.ones_like(low[0, elements]), -torch.ones_like(low[0, elements])])[:, None]
            seed = side.new_zeros(count, len(net.neurons)).scatter(1, elements.repeat(2)[:, None], side)
            question = Question(
                asked.rows.float()[kind],
                asked.offsets.float()[kind],
                signs[kind],
                (*lines, kind),
                seed.float().repeat(clauses, 1),
                cone=True,
            )
            begin = _begin(memory.get(key), asked, torch.where(high > -low, 1.0, 0.0), count)
            # A ReLU that the last round decided has a multiplier now, and begins without.
            begin = Duals(torch.where(question.signs == 0, begin.p, 0.0), begin.logits)
            found = ascent.run(memory["climber"], question, begin).duals
            p, weights = (t.reshape(clauses, count, -1) for t in (found.p, found.logits))
            memory[key] = asked.numbers, p, weights
            numbers = net.neurons[elements]
            f = side.new_zeros(count, network.nodes[node].size).scatter(1, (numbers - first).repeat(2)[:, None], side)
            rule = by_duals(net, p.double(), signs[:, None])
            also = {node: f.expand(clauses, -1, -1)}
            # The proof rests on weights that are not negative; ascent promises that, and is not believed.
            weights = weights.double().clamp(min=0)
            proved = bound_rows(network, where, asked.rows, asked.offsets, weights, rule, also)
            if self.witness is not None:
                self.witness.at_unsafe(asked.numbers, numbers, net.neurons, (p, weights), proved)
            lower[:, numbers] = torch.fmax(lower[:, numbers], proved[:, : len(elements)])
            upper[:, numbers] = torch.fmin(upper[:, numbers], -proved[:, len(elements) :])
        return Bounds(lower, upper)

    @property
    def refreshes(self) -> bool:
        """If asked to."""
        return self.refresh or self.inner.refreshes

    def refreshed(self, network: Network, where: Region, neurons: Tensor, asked: Asked) -> Bounds:
        """The last layer's bounds at the unsafe points of each domain."""
        bounds = super().refreshed(network, where, neurons, asked)
        if not (self.refresh and self.unsafe_only):
            return bounds
        root = replace(where, lower=where.lower[:1], upper=where.upper[:1], bounds=bounds)
        few = Asked(asked.numbers, asked.rows, asked.offsets, bounds, asked.deadline)
        return replace(self, rounds=1).for_clauses(network, root, few, {})

    def after_split(self, network: Network, where: Region, neurons: Tensor, deadline: Deadline) -> Bounds:
        """As the policy inside says."""
        return self.inner.after_split(network, where, neurons, deadline)


def _affordable(net: Reduced, steps: int, device: str) -> int:
    """As many steps as the allowed operations pay for: two products each way per step."""
    width = net.inputs.shape[1]
    step = sum(2 * (p.stop - p.start) * 4 * p.stop * (width + p.start / 2) for p in net.layers if p.start)
    return min(steps, int(MOST_WORK[device] / max(step, 1)))


def _tightened(
    network: Network, where: Region, net: Reduced, k: int, ascent: Ascent, witness: AbstractWitness | None
) -> Bounds:
    """The region's bounds with those of layer k ascended, standing on the bounds of the layers before."""
    start = net.layers[k].start
    low, high = where.bounds.lower[0, net.neurons], where.bounds.upper[0, net.neurons]
    # Earlier ReLUs that were ambiguous when the network was reduced and are no more: known signs.
    signs = torch.where(low >= 0, 1, torch.where(high <= 0, -1, 0)).to(torch.int8)[None, :start]
    node, first = _home(network, net, net.layers[k])
    lower, upper = where.bounds.lower.clone(), where.bounds.upper.clone()
    for elements in _chunks(net.layers[k], low, high):
        ascent.deadline.check()
        cut = _cut(net, k, elements, low, high).to(low.device, torch.float32)
        eye = torch.eye(len(elements), device=low.device)
        rows = torch.cat([eye, -eye])[:, None]
        count = len(rows)
        asked = Question(rows, rows.new_zeros(count, 1), signs.expand(count, -1))
        p = torch.where(signs == 0, (cut.upper > -cut.lower).float(), 0.0).expand(count, -1)
        found = ascent.run(Climber(cut, capture=False), asked, Duals(p, rows.new_zeros(count, 1))).duals
        f = low.new_zeros(count, network.nodes[node].size)
        numbers = net.neurons[elements]
        at = (numbers - first).repeat(2)[:, None]
        f.scatter_(1, at, rows.sum(dim=2, dtype=torch.float64))
        proved = bound_functionals(
            network, where, node, f[None], by_duals(cut, found.p[None].double(), signs[None])
        ).lower
        if witness is not None:
            witness.ascended(numbers, cut.neurons, found.p, proved[0])
        lower[0, numbers] = torch.fmax(lower[0, numbers], proved[0, : len(elements)])
        upper[0, numbers] = torch.fmin(upper[0, numbers], -proved[0, len(elements) :])
    return Bounds(lower, upper)


def _worth_trying(net: Reduced, clauses: int) -> list[slice]:
    """The last layer, and on a CPU those before it that are small: they gain on fully connected networks at times."""
    layers = [part for part in net.layers if part.stop > part.start]
    small = [] if net.inputs.is_cuda else [p for p in layers[:-1] if clauses * (p.stop - p.start) <= SMALL_LAYER]
    return [*small, *layers[-1:]]


def _begin(last: tuple[Tensor, Tensor, Tensor] | None, asked: Asked, slopes: Tensor, count: int) -> Duals:
    """The last round's duals of the clauses that are still asked about; at first, plain slopes and small weights."""
    if last is None or last[1].shape[1] != count:  # with fewer clauses, more ReLUs of each are bounded at once
        p = slopes.float().repeat_interleave(count, dim=0)
        return Duals(p, p.new_full((len(p), asked.offsets.shape[1]), 0.1))
    numbers, p, weights = last
    kept = torch.searchsorted(numbers, asked.numbers)
    return Duals(p[kept].flatten(0, 1), weights[kept].flatten(0, 1))


def _home(network: Network, net: Reduced, part: slice) -> tuple[int, int]:
    """The node whose elements are the inputs of a layer's ReLUs, and the flat number of the first of them."""
    some = int(net.neurons[part.start])
    return next((network.nodes[i].inputs[0], s.start) for i, s in network.slices.items() if s.start <= some < s.stop)


def _chunks(part: slice, low: Tensor, high: Tensor) -> Iterator[Tensor]:
    """Those of a layer that are still ambiguous, in pieces."""
    inside = torch.arange(part.start, part.stop, device=low.device)
    yield from inside[(low[part] < 0) & (high[part] > 0)].split(CHUNK // 2)


def _cut(net: Reduced, k: int, elements: Tensor, low: Tensor, high: Tensor) -> Reduced:
    """The network up to layer k, whose elements are its outputs."""
    start = net.layers[k].start
    rows = torch.cat([torch.arange(start, device=elements.device), elements])
    return replace(
        net,
        neurons=net.neurons[:start],
        layers=net.layers[:k],
        inputs=net.inputs[rows],
        between=net.between[rows, :start],
        centre=net.centre[rows],
        lower=low[:start],
        upper=high[:start],
        stem=None
        if net.stem is None
        else replace(net.stem, through=net.stem.through[rows[_first(net) :] - _first(net)]),
    )


def _first(net: Reduced) -> int:
    """How many of the first layer are ambiguous."""
    return int(net.layers[0].stop)
