"""Bounds by small trees: a functional that one relaxation bounds badly is bounded over the parts that splits make.

Every functional has a tree of its own, whose leaves are patterns of signs. In a round, each tree's lowest leaves are
split, by the ReLU at which the relaxation loses most of that functional; the children start from the parent's duals.
The functional's bound is the least over its leaves. Nothing here proves anything: leaves are returned with their duals,
and are proved like any other bound (`Trees.least`).
"""

import math
from collections import deque
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace
from typing import final

import torch
from torch import Tensor

from bough.bounds.ascent import Ascended, Ascent, Climb, Climber, Duals, Functionals, evaluate
from bough.bounds.proof import PROOF_BYTES
from bough.domain.arrays import Arrays
from bough.domain.batch import Bounds

TINY = 1e-12
CHUNK = 4096  # leaves that are split, or proved, together
LEAF_BYTES = {"cpu": 1 << 30, "cuda": 1 << 34}  # of all leaves that grow together; trees stop before it is more
MOST_DEPTH = 60.0  # of a tree that is foreseen
MOST_TIMES_MEAN = 2.0  # times the depth by what a split gains in the mean


@dataclass(frozen=True, eq=False)
class TreeLeaves(Arrays):
    """The leaves of the trees of several functionals, in any order; each functional has one or more."""

    owner: Tensor  # int64 [leaves]: the functional
    signs: Tensor  # int8 [leaves, n]: known signs of ReLUs, splits among them
    duals: Duals
    value: Tensor  # [leaves], as ascent computed it
    whole: Tensor  # bool [leaves]: whether the relaxation loses nothing there, so that no split can help


@final
@dataclass(eq=False)
class TreeWork:
    """Which ReLUs are to be bounded by trees, by which trees, and within how many bounds; `bounds` counts them."""

    trees: "Trees"
    chosen: Tensor  # bool [clauses, neurons]; over a whole box [1, neurons]
    budget: float = math.inf
    bounds: int = 0
    sides: int = field(init=False)  # of chosen ReLUs, that have not had their turn

    def __post_init__(self) -> None:
        self.sides = 2 * int(self.chosen.sum())

    def allowance(self, count: int) -> float:
        """How many bounds so many sides may take, if those that follow are to have as many each."""
        share = count / max(1, count, self.sides)
        self.sides -= count
        return share * (self.budget - self.bounds)


@final
@dataclass(frozen=True)
class Trees:
    """How trees grow: for so many rounds, up to so many leaves; the lower half of a tree's leaves is split in a round.

    A tree stops where all its leaves are above 0, which decides the sign of what it bounds.
    """

    rounds: int = 8
    leaves: int = 64
    ascent: Ascent = field(default_factory=lambda: Ascent(steps=8))

    def grown(
        self,
        climber: Climber,
        functionals: Functionals,
        ascended: Ascended,
        budget: float = math.inf,
        split: list[TreeLeaves] | None = None,
    ) -> TreeLeaves:
        """The leaves of the functionals' trees, grown from the functionals' own duals; no round exceeds the budget.

        Leaves that were split go to `split`.
        """
        (leaves,) = deque(self._rounds(climber, functionals, ascended, budget, split), maxlen=1)  # holds one round
        return leaves

    def _rounds(
        self,
        climber: Climber,
        functionals: Functionals,
        ascended: Ascended,
        budget: float = math.inf,
        split: list[TreeLeaves] | None = None,
    ) -> Iterator[TreeLeaves]:
        """The leaves before the first round and after each."""
        owner = torch.arange(len(ascended.value), device=ascended.value.device)
        whole = torch.zeros_like(owner, dtype=torch.bool)
        leaves = TreeLeaves(owner, functionals.signs.contiguous(), ascended.duals, ascended.value, whole)
        yield leaves
        n = leaves.signs.shape[1]
        room = LEAF_BYTES[leaves.value.device.type] // (8 * max(1, n))
        most = min(room, len(owner) + budget / 2)  # a split makes two bounds, and one leaf more
        for _ in range(self.rounds if n else 0):
            chosen = self._lowest(leaves, len(functionals.offsets))
            rows = chosen.nonzero()[:, 0]
            if not len(rows) or len(chosen) + len(rows) > most:
                break
            if split is not None:
                split.append(leaves[chosen])
            children = [self._children(climber, functionals, leaves[piece]) for piece in rows.split(CHUNK)]
            leaves = TreeLeaves.concatenate([leaves[~chosen], *children])
            yield leaves

    def foreseen(self, climber: Climber, functionals: Functionals, ascended: Ascended) -> float:
        """About how many branches a search takes that starts from these functionals.

        Measured: each time that the leaves of a tree double, its bound rises by about as much as the last time; the
        first rounds rise by more, and do not count. Where the last rounds hardly rise, that foresees too much, and
        what a split gains in the mean limits it.
        """
        least, depth = [], []
        for leaves in self._rounds(climber, functionals, ascended):
            least.append(_over_trees(leaves, leaves.value, "amin").clamp(max=0))
            depth.append(torch.bincount(leaves.owner).log2())
        half = (len(least) - 1) // 2
        more = -least[-1] * (depth[-1] - depth[half]) / (least[-1] - least[half])
        splits = (leaves.signs != functionals.signs[leaves.owner]).sum(dim=1)
        share = torch.exp2(-splits.to(leaves.value))  # of a tree's points that a leaf would have if splits were even
        rise = _over_trees(
            leaves, share * (leaves.value.clamp(max=0) - least[0][leaves.owner]) / splits.clamp(min=1), "sum"
        ).clamp(min=TINY)
        mean = _over_trees(
            leaves, torch.exp2((-leaves.value.clamp(max=0) / rise[leaves.owner]).clamp(max=MOST_DEPTH)), "sum"
        )
        bits = torch.fmin(torch.where(least[-1] < 0, depth[-1] + more, depth[-1]), MOST_TIMES_MEAN * mean.log2())
        return 2 * float(bits.nan_to_num(0.0).clamp(max=MOST_DEPTH).exp2().sum())

    def least(
        self,
        climber: Climber,
        functionals: Functionals,
        ascended: Ascended,
        widest: int,
        prove: Callable[[TreeLeaves], Tensor],
        budget: float = math.inf,
        tell: Callable[[TreeLeaves], None] | None = None,
    ) -> tuple[Tensor, int]:
        """The proved bounds of the functionals: the least over each one's leaves, which `prove` bounds in pieces.

        `widest` is how many numbers such a proof holds at once for each leaf. The number of bounds comes with them.
        `tell` is given whole trees: the leaves, and all that was split on the way to them.
        """
        count = len(functionals.offsets)
        least = torch.full((count,), torch.inf, dtype=torch.float64, device=functionals.offsets.device)
        if not count:
            return least, 0
        split: list[TreeLeaves] = []
        leaves = self.grown(climber, functionals, ascended, budget, None if tell is None else split)
        if tell is not None:
            tell(TreeLeaves.concatenate([leaves, *split]))
        size = max(1, min(CHUNK, PROOF_BYTES[least.device.type] // (8 * widest)))
        for piece in torch.arange(len(leaves.owner), device=least.device).split(size):
            self.ascent.deadline.check()
            part = leaves[piece]
            proved = prove(part)
            least.scatter_reduce_(0, part.owner, torch.where(proved.isnan(), -torch.inf, proved), "amin")
        # Where no leaf holds a point, nothing is said. Each split made two bounds, and one leaf more.
        return torch.where(least == torch.inf, -torch.inf, least), 2 * (len(leaves.owner) - count)

    def _lowest(self, leaves: TreeLeaves, count: int) -> Tensor:
        """Which leaves are split next, bool [leaves]."""
        size = torch.bincount(leaves.owner, minlength=count)
        by_value = leaves.value.argsort(stable=True)
        order = by_value[leaves.owner[by_value].argsort(stable=True)]  # tree after tree, the lowest leaves first
        rank = torch.empty_like(order)
        first = size.cumsum(0) - size
        rank[order] = torch.arange(len(order), device=order.device) - first[leaves.owner[order]]
        size = size[leaves.owner]
        return (size < self.leaves) & (rank < (size + 1) // 2) & (leaves.value < 0) & ~leaves.whole

    def _children(self, climber: Climber, functionals: Functionals, parents: TreeLeaves) -> TreeLeaves:
        """Both children of every leaf, split where the relaxation loses most at its least point.

        A leaf whose relaxation loses nothing there stays as it is: no split can raise its value.
        """
        own = replace(functionals[parents.owner], signs=parents.signs)
        climb = evaluate(climber, own, parents.duals)
        rows, n = parents.signs.shape
        nu, z, x = (t[:rows, :n] for t in (climb.nu, climb.z, climb.x))
        lost = torch.where(parents.signs == 0, nu * (z.relu() - x), 0.0)
        whole = (lost <= 0).all(dim=1)
        # Measured: what the chord loses at most, added, makes better trees, on networks for MNIST most of all.
        split = (lost + chord_losses(climb, own)).argmax(dim=1)
        some = (~whole).nonzero()[:, 0]
        kept = replace(parents[whole], whole=whole[whole])
        if not len(some):
            return kept
        one = torch.zeros_like(parents.signs[some]).scatter_(1, split[some, None], 1)
        fresh = torch.stack([-one, one], dim=1).flatten(0, 1)
        each = some.repeat_interleave(2)
        ascended = self.ascent.run(climber, own, parents.duals, fresh, each=each)
        signs = parents.signs[each] + fresh
        children = TreeLeaves(parents.owner[each], signs, ascended.duals, ascended.value, whole[each])
        return TreeLeaves.concatenate([kept, children])


def _over_trees(leaves: TreeLeaves, values: Tensor, how: str) -> Tensor:
    """Numbers of leaves summed, or the least of them, tree by tree."""
    start = values.new_full((int(leaves.owner.max()) + 1,), 0.0 if how == "sum" else torch.inf)
    return start.scatter_reduce_(0, leaves.owner, values, how)


def chord_losses(climb: Climb, functionals: Functionals) -> Tensor:
    """The most that each chord can lose of functionals that were evaluated last, [functionals, n]."""
    rows, n = functionals.signs.shape
    chords = functionals.chords
    intercept = climb.net.intercept if chords is None else chords.intercept[chords.kind]
    return torch.where(functionals.signs == 0, (-climb.nu[:rows, :n]).clamp(min=0) * intercept, 0.0)


def by_pattern(bounds: Bounds, rows: Tensor, neurons: Tensor, signs: Tensor) -> Bounds:
    """Some rows of bounds [rows, all neurons], cut at 0 where a row of `signs` has one for a ReLU of `neurons`."""
    lower, upper = bounds.lower[rows], bounds.upper[rows]
    low, high = lower[:, neurons], upper[:, neurons]
    lower[:, neurons] = torch.where(signs > 0, low.clamp(min=0), low)
    upper[:, neurons] = torch.where(signs < 0, high.clamp(max=0), high)
    return Bounds(lower, upper)
