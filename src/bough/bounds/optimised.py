"""Optimised root bounds: every ambiguous ReLU's own bounds by dual ascent, layer after layer, batched over neurons.

The question "how low can z_j be" is the search's own question with the network cut off at layer k and a unit row, so
the same ascent answers it, for both sides of every ReLU of a layer at once. What it finds is proved in float64 like
every other bound before anything stands on it.
"""

from dataclasses import dataclass, field, replace
from functools import partial
from typing import final

import torch
from torch import Tensor

from bough.bounds.ascent import Ascent, Chords, Climber, Duals, Functionals
from bough.bounds.deepening import TreePlan, TreePlans
from bough.bounds.intermediate import (
    AbstractClauseBounds,
    AbstractIntermediate,
    ClauseBatch,
    ReluBoundsEntry,
    TightBounds,
    settled,
)
from bough.bounds.linear import Region, bound_functionals, proved_rows
from bough.bounds.proof import by_duals
from bough.bounds.reduced import Reduced, reduce
from bough.bounds.relaxation import AbstractSlopes
from bough.bounds.trees import TreeLeaves, Trees, TreeWork, by_pattern
from bough.bounds.witness import AbstractWitness
from bough.budget import Deadline, OutOfTime
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
    # The last layer's at unsafe points after every split, too: dear, but it propagates constraints.
    refresh: bool = False
    at_unsafe: Ascent = field(default_factory=lambda: Ascent(steps=4))
    trees: TreePlans | None = None  # for roots that stay open

    @property
    def slopes(self) -> AbstractSlopes:
        """The slopes of the policy inside."""
        return self.inner.slopes

    def at_root(self, network: Network, box: Box, deadline: Deadline, witness: AbstractWitness | None = None) -> Region:
        """Interval, linear, then ascent, each only where the last left a ReLU ambiguous."""
        region = self.inner.at_root(network, box, deadline)
        return self._ascended(network, region, deadline, witness, None) or region

    def by_trees(
        self,
        network: Network,
        region: Region,
        work: TreeWork,
        deadline: Deadline,
        witness: AbstractWitness | None = None,
    ) -> Region | None:
        """Ambiguous ReLUs bounded again, layer after layer, the chosen ones over small trees."""
        return self._ascended(network, region, deadline, witness, work)

    def _ascended(
        self,
        network: Network,
        region: Region,
        deadline: Deadline,
        witness: AbstractWitness | None,
        work: TreeWork | None,
    ) -> Region | None:
        """The region with bounds ascended layer after layer; None where that takes too many operations.

        Trees that run out of time leave the layers before theirs bounded.
        """
        net = reduce(network, region, deadline)
        steps = _affordable(net, self.ascent.steps, region.lower.device.type)
        if steps < FEWEST_STEPS:
            return None
        ascent = replace(self.ascent, steps=steps, deadline=deadline)
        for k, part in enumerate(net.layers):
            if k > 0 and part.stop > part.start:
                try:
                    region = replace(region, bounds=_tightened(network, region, net, k, ascent, witness, work))
                except OutOfTime:
                    if work is None:
                        raise
                    break
        return settled(network, region)

    @property
    def conditional(self) -> bool:
        """Whether the bounds of clauses leave out safe points."""
        return self.unsafe_only

    def unconditional(self) -> "OptimisedBounds":
        """The same policy without bounds of clauses."""
        return replace(self, unsafe_only=False)

    def for_clauses(
        self, network: Network, region: Region, witness: AbstractWitness | None = None
    ) -> "UnsafePointBounds | None":
        """What bounds the last layer's ReLUs clause by clause."""
        return UnsafePointBounds(self, network, region, witness) if self.unsafe_only else None

    @property
    def refreshes(self) -> bool:
        """Whether this policy or the one inside was made to."""
        return self.refresh or self.inner.refreshes

    def refreshed(self, network: Network, region: Region, neurons: Tensor, clauses: ClauseBatch) -> Bounds:
        """The last layer's bounds at the unsafe points of each domain."""
        bounds = super().refreshed(network, region, neurons, clauses)
        if not (self.refresh and self.unsafe_only):
            return bounds
        root = replace(region, lower=region.lower[:1], upper=region.upper[:1], bounds=bounds)
        return UnsafePointBounds(replace(self, rounds=1), network, root).tightened(replace(clauses, bounds=bounds))

    def after_split(self, network: Network, region: Region, neurons: Tensor, deadline: Deadline) -> Bounds:
        """The bounds of the policy inside."""
        return self.inner.after_split(network, region, neurons, deadline)


# Measured on networks for CIFAR-10 and MNIST. A GPU is slow with few bounds at a time, and grows large trees at once.
LEVELS = (Trees(6, 32), Trees(10, 128), Trees(14, 512))
USUAL_TREES = TreePlans(
    cpu=TreePlan(LEVELS, share=0.5, free=0.0, first=2.0**15, most=2e5, trial=0.25, later=2.0**13, fewest=1024),
    cuda=TreePlan(LEVELS, share=2.0, free=2.0**14, first=2.0**18, most=5e7, trial=1.0, later=2.0**16, fewest=512),
)


def by_trees() -> OptimisedBounds:
    """The policy that goes on with small trees where a search would take long."""
    return OptimisedBounds(trees=USUAL_TREES)


RELU_BOUNDS = (
    ReluBoundsEntry(name="optimised", words="ascended at the root, and at unsafe points", make=OptimisedBounds),
    ReluBoundsEntry(
        name="trees", words="ascended at the root over small trees of splits, for roots that are hard", make=by_trees
    ),
)


@final
class UnsafePointBounds(AbstractClauseBounds):
    """The last layer's bounds once more, given that every row of the clause holds: what else there is, is safe.

    Measured on the paper's networks: the last layer gains so much that searches shrink to a fraction, most of all after
    many rounds of few steps. Layers before it gain little without trees, and much with them. Layers go on as long as
    they gain.
    """

    def __init__(
        self, policy: OptimisedBounds, network: Network, region: Region, witness: AbstractWitness | None = None
    ) -> None:
        self._policy, self._network, self._where, self._witness = policy, network, region, witness
        self._climber: Climber | None = None
        self._layers: list[slice] = []  # that still gain
        # By the first ReLU of a layer: the clauses' numbers, and duals [clauses, functionals, ...] where it was left.
        self._last: dict[int, tuple[Tensor, Duals]] = {}

    def tightened(self, clauses: ClauseBatch, work: TreeWork | None = None) -> Bounds:
        """Bound layer after layer, for as many rounds as gain something, or once with trees."""
        region, bounds = self._where, clauses.bounds
        if self._climber is None:
            widest = region.bounds  # a region of several domains is reduced over all of them
            all_of = Bounds(widest.lower.min(dim=0, keepdim=True).values, widest.upper.max(dim=0, keepdim=True).values)
            net = reduce(self._network, replace(region, bounds=all_of), clauses.deadline)
            self._climber = Climber(net.to(region.lower.device, torch.float32))
            self._layers = _worth_trying(net, len(clauses.offsets))
        if _affordable(self._climber.net, FEWEST_STEPS, region.lower.device.type) < FEWEST_STEPS:
            return bounds
        if work is not None:
            return self._by_trees(self._climber, clauses, work)
        for _ in range(self._policy.rounds):
            gaining = []
            for part in self._layers:
                before = bounds
                bounds = self._layer(self._climber, part, replace(clauses, bounds=bounds))
                gain = (bounds.lower - before.lower + before.upper - bounds.upper) / (before.upper - before.lower)
                gaining += [part] if bool((gain > LEAST_GAIN).any()) else []
            if not gaining or bool(bounds.empty().all()):
                break
            self._layers = gaining
        return bounds

    def _by_trees(self, climber: Climber, clauses: ClauseBatch, work: TreeWork) -> Bounds:
        """Bound every layer but the first once, the chosen ReLUs over small trees, as long as there is time."""
        bounds = clauses.bounds
        for part in climber.net.layers[1:]:  # measured: trees of the first layer gain less than they cost
            if part.stop > part.start and not bool(bounds.empty().all()):
                try:
                    bounds = self._layer(climber, part, replace(clauses, bounds=bounds), work)
                except OutOfTime:
                    break
        return bounds

    def _layer(self, climber: Climber, part: slice, clauses: ClauseBatch, work: TreeWork | None = None) -> Bounds:
        """The bounds [clauses, neurons] with those of one layer ascended, under the constraints of each clause.

        Each row enters with a multiplier g >= 0: z_j >= min of z_j + g (row @ y - offset) wherever the row holds.
        """
        network, net = self._network, climber.net
        region = self._where.with_bounds(clauses.bounds)
        number = len(clauses.offsets)
        node, first = _home(network, net, part)
        lower, upper = clauses.bounds.lower.clone(), clauses.bounds.upper.clone()
        low, high = lower[:, net.neurons], upper[:, net.neurons]
        signs = (low >= 0).to(torch.int8) - (high <= 0).to(torch.int8)
        ascent = replace(self._policy.at_unsafe, deadline=clauses.deadline)
        last = self._begin(part, clauses, torch.where(high > -low, 1.0, 0.0))
        layer = torch.arange(part.start, part.stop, device=lower.device)
        if work is not None and part not in _worth_trying(net, number):  # there, the others follow the chosen ones
            layer = layer[(work.chosen[:, net.neurons[part]] & (signs[:, part] == 0)).any(dim=0)]
        for elements in layer.split(max(1, CHUNK // 2 // number)) if len(layer) else ():
            count = 2 * len(elements)  # functionals of a clause
            at = torch.cat([elements - part.start, elements + (part.stop - 2 * part.start)])
            kind = torch.arange(number, device=lower.device).repeat_interleave(count)
            side = torch.cat([torch.ones_like(low[0, elements]), -torch.ones_like(low[0, elements])])[:, None]
            seed = side.new_zeros(count, len(net.neurons)).scatter(1, elements.repeat(2)[:, None], side)
            functionals = Functionals(
                clauses.rows.float()[kind],
                clauses.offsets.float()[kind],
                signs[kind],
                Chords.of(low, high, kind),
                seed.float().repeat(number, 1),
                cone=True,
            )
            # A ReLU that the last round decided has a multiplier now, and begins without.
            begin = Duals(
                torch.where(functionals.signs == 0, last.p[:, at].flatten(0, 1), 0.0), last.logits[:, at].flatten(0, 1)
            )
            ascended = ascent.run(climber, functionals, begin)
            p, weights = (t.reshape(number, count, -1) for t in ascended.duals.tensors())
            last.p[:, at], last.logits[:, at] = p, weights
            numbers = net.neurons[elements]
            f = side.new_zeros(count, network.nodes[node].size).scatter(1, (numbers - first).repeat(2)[:, None], side)
            rule = by_duals(net, p.double(), signs[:, None])
            also = {node: f.expand(number, -1, -1)}
            # The proof rests on weights that are not negative; ascent promises that, and is not believed.
            weights = weights.double().clamp(min=0)
            proved = proved_rows(network, region, clauses.rows, clauses.offsets, weights, rule, also).lower
            wanted = torch.zeros_like(lower[:, numbers], dtype=torch.bool)
            if work is not None:
                wanted = (lower[:, numbers] < 0) & (upper[:, numbers] > 0) & work.chosen[:, numbers]
            if self._witness is not None:  # a tree begins with what its functional's own duals prove
                plain = proved.masked_fill(torch.cat([wanted, wanted], dim=1), -torch.inf)
                self._witness.at_unsafe(clauses.numbers, numbers, net.neurons, (p, weights), plain)
            if work is not None:
                sides = torch.cat([wanted, wanted], dim=1).flatten().nonzero()[:, 0]
                prove = partial(self._proved, node, f, net, clauses, sides)
                trees = replace(work.trees, ascent=replace(work.trees.ascent, deadline=clauses.deadline))
                tell = None
                if self._witness is not None:
                    told = _sides(numbers).repeat(number)[sides]
                    of = clauses.numbers[sides // count]
                    tell = partial(self._witness.by_trees, told, net.neurons, functionals.signs[sides], clauses=of)
                least, grown = trees.least(
                    climber,
                    functionals[sides],
                    ascended[sides],
                    _widest(network),
                    prove,
                    work.allowance(len(sides)),
                    tell,
                )
                work.bounds += grown
                proved.view(-1)[sides] = torch.fmax(proved.view(-1)[sides], least)
            _tighten(lower, upper, numbers, proved)
        return Bounds(lower, upper)

    def _proved(
        self, node: int, f: Tensor, net: Reduced, clauses: ClauseBatch, sides: Tensor, leaves: TreeLeaves
    ) -> Tensor:
        """Proved lower bounds [leaves] at the unsafe points of each leaf's clause, within the leaf's pattern."""
        side = sides[leaves.owner]
        clause = side // len(f)
        pattern = by_pattern(clauses.bounds, clause, net.neurons, leaves.signs)
        rule = by_duals(net, leaves.duals.p[:, None].double(), leaves.signs[:, None])
        weights = leaves.duals.logits[:, None].double().clamp(min=0)
        also = {node: f[side % len(f)][:, None]}
        region = self._where.with_bounds(pattern)
        proved = proved_rows(self._network, region, clauses.rows[clause], clauses.offsets[clause], weights, rule, also)
        return torch.where(pattern.empty(), torch.inf, proved.lower[:, 0])

    def _begin(self, part: slice, clauses: ClauseBatch, slopes: Tensor) -> Duals:
        """The last round's duals of the clauses that are still open; at first, plain slopes and small weights."""
        if part.start in self._last:
            numbers, duals = self._last[part.start]
            duals = duals[torch.searchsorted(numbers, clauses.numbers)]
        else:
            p = slopes.float()[:, None].repeat(1, 2 * (part.stop - part.start), 1)
            duals = Duals(p, p.new_full((*p.shape[:2], clauses.offsets.shape[1]), 0.1))
        self._last[part.start] = clauses.numbers, duals
        return duals


def _affordable(net: Reduced, steps: int, device: str) -> int:
    """How many steps the allowed operations pay for: two products each way per step."""
    step = sum(2 * (p.stop - p.start) * 4 * p.stop * (net.inputs.shape[1] + p.start / 2) for p in net.layers if p.start)
    return min(steps, int(MOST_WORK[device] / max(step, 1)))


def _tightened(
    network: Network,
    region: Region,
    net: Reduced,
    k: int,
    ascent: Ascent,
    witness: AbstractWitness | None,
    work: TreeWork | None = None,
) -> Bounds:
    """The region's bounds with those of layer k ascended, standing on the bounds of the layers before.

    With trees, each side of a chosen ReLU has the tree of its own functional.
    """
    start = net.layers[k].start
    low, high = region.bounds.lower[0, net.neurons], region.bounds.upper[0, net.neurons]
    # Earlier ReLUs that were ambiguous when the network was reduced and are no more: known signs.
    signs = torch.where(low >= 0, 1, torch.where(high <= 0, -1, 0)).to(torch.int8)[None, :start]
    node, first = _home(network, net, net.layers[k])
    lower, upper = region.bounds.lower.clone(), region.bounds.upper.clone()
    layer = torch.arange(start, net.layers[k].stop, device=low.device)
    wanted = (low < 0) & (high > 0)
    if work is not None:
        wanted &= work.chosen[0, net.neurons]
    layer = layer[wanted[layer]]
    for elements in layer.split(CHUNK // 2) if len(layer) else ():
        ascent.deadline.check()
        cut = _cut(net, k, elements, low, high).to(low.device, torch.float32)
        eye = torch.eye(len(elements), device=low.device)
        rows = torch.cat([eye, -eye])[:, None]
        count = len(rows)
        functionals = Functionals(rows, rows.new_zeros(count, 1), signs.expand(count, -1))
        p = torch.where(signs == 0, (cut.upper > -cut.lower).float(), 0.0).expand(count, -1)
        climber = Climber(cut, capture=False)
        ascended = ascent.run(climber, functionals, Duals(p, rows.new_zeros(count, 1)))
        p = ascended.duals.p
        f = low.new_zeros(count, network.nodes[node].size)
        numbers = net.neurons[elements]
        f.scatter_(1, (numbers - first).repeat(2)[:, None], rows.sum(dim=2, dtype=torch.float64))
        rule = by_duals(cut, p[None].double(), signs[None])
        proved = bound_functionals(network, region, node, f[None], rule).lower
        _tighten(lower, upper, numbers, proved)
        left = torch.zeros_like(numbers, dtype=torch.bool)
        if work is not None:
            left = (lower[0, numbers] < 0) & (upper[0, numbers] > 0)
        if witness is not None:  # a tree begins with what its functional's own duals prove
            witness.ascended(numbers, cut.neurons, p, proved[0].masked_fill(torch.cat([left, left]), -torch.inf))
        if work is not None:
            sides = torch.cat([left, left]).nonzero()[:, 0]
            prove = partial(_proved, network, region, node, f[sides], cut)
            trees = replace(work.trees, ascent=replace(work.trees.ascent, deadline=ascent.deadline))
            tell = None
            if witness is not None:
                tell = partial(witness.by_trees, _sides(numbers)[sides], cut.neurons, functionals.signs[sides])
            allowed = work.allowance(len(sides))
            least, grown = trees.least(
                climber, functionals[sides], ascended[sides], _widest(network), prove, allowed, tell
            )
            work.bounds += grown
            proved[0, sides] = least
            _tighten(lower, upper, numbers, proved)
    return Bounds(lower, upper)


def _sides(numbers: Tensor) -> Tensor:
    """The numbers of functionals: twice a ReLU's for its input z, then, of all again, one more for -z."""
    return torch.cat([2 * numbers, 2 * numbers + 1])


def _tighten(lower: Tensor, upper: Tensor, numbers: Tensor, proved: Tensor) -> None:
    """Tighten bounds in place by proved lower bounds [domains, 2 m] of the inputs of the ReLUs, then of minus these."""
    low, minus_high = proved.chunk(2, dim=1)
    lower[:, numbers] = torch.fmax(lower[:, numbers], low)
    upper[:, numbers] = torch.fmin(upper[:, numbers], -minus_high)


def _proved(network: Network, region: Region, node: int, f: Tensor, cut: Reduced, leaves: TreeLeaves) -> Tensor:
    """Proved lower bounds [leaves] of the functionals f [functionals, elements of the node] over leaves' patterns."""
    pattern = by_pattern(region.bounds, torch.zeros_like(leaves.owner), cut.neurons, leaves.signs)
    rule = by_duals(cut, leaves.duals.p[:, None].double(), leaves.signs[:, None])
    proved = bound_functionals(
        network, region.with_bounds(pattern), node, f[leaves.owner][:, None], rule, below_only=True
    )
    return torch.where(pattern.empty(), torch.inf, proved.lower[:, 0])


def _widest(network: Network) -> int:
    """The numbers that a proof has at once for each functional."""
    return 4 * max(network.neurons, *(node.size for node in network.nodes))


def _worth_trying(net: Reduced, clauses: int) -> list[slice]:
    """The last layer, and on a CPU those before it that are small: they gain on fully connected networks at times."""
    layers = [part for part in net.layers if part.stop > part.start]
    small = [] if net.inputs.is_cuda else [p for p in layers[:-1] if clauses * (p.stop - p.start) <= SMALL_LAYER]
    return [*small, *layers[-1:]]


def _home(network: Network, net: Reduced, part: slice) -> tuple[int, int]:
    """The node whose elements are the inputs of a layer's ReLUs, and the flat number of the first of them."""
    some = int(net.neurons[part.start])
    return next((network.nodes[i].inputs[0], s.start) for i, s in network.slices.items() if s.start <= some < s.stop)


def _cut(net: Reduced, k: int, elements: Tensor, low: Tensor, high: Tensor) -> Reduced:
    """The network up to layer k, whose elements are its outputs."""
    start = net.layers[k].start
    rows = torch.cat([torch.arange(start, device=elements.device), elements])
    stem = net.stem
    if stem is not None:
        later = rows[len(stem.ambiguous) :] - len(stem.ambiguous)
        stem = replace(stem, through=stem.through[later])
    return replace(
        net,
        neurons=net.neurons[:start],
        layers=net.layers[:k],
        inputs=net.inputs[rows],
        between=net.between[rows, :start],
        centre=net.centre[rows],
        lower=low[:start],
        upper=high[:start],
        stem=stem,
    )
