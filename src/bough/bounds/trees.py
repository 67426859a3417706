"""Bounds by small trees: a functional that one relaxation bounds badly is bounded over the parts that splits make.

Every functional has a tree of its own, whose leaves are patterns of signs. In a round, each tree's lowest leaves are
split, by the ReLU at which the relaxation loses most of that functional; the children start from the parent's duals.
The functional's bound is the least over its leaves. Nothing here proves anything: leaves are returned with their duals,
and are proved like any other bound (`Trees.least`).
"""

from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import final

import torch
from torch import Tensor

from bough.bounds.ascent import Ascended, Ascent, Climber, Duals, Functionals, evaluate
from bough.bounds.proof import PROOF_BYTES
from bough.domain.arrays import Arrays
from bough.domain.batch import Bounds

CHUNK = 4096  # leaves that are split, or proved, together
LEAF_BYTES = {"cpu": 1 << 30, "cuda": 1 << 34}  # of all leaves that grow together; trees stop before it is more


@dataclass(frozen=True, eq=False)
class TreeLeaves(Arrays):
    """The leaves of the trees of several functionals, in any order; each functional has one or more."""

    owner: Tensor  # int64 [leaves]: the functional
    signs: Tensor  # int8 [leaves, n]: known signs of ReLUs, splits among them
    duals: Duals
    value: Tensor  # [leaves], as ascent computed it
    whole: Tensor  # bool [leaves]: whether the relaxation loses nothing there, so that no split can help


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
        split: list[TreeLeaves] | None = None,
    ) -> TreeLeaves:
        """The leaves of the functionals' trees, grown from the functionals' own duals; to `split` go their parents."""
        owner = torch.arange(len(ascended.value), device=ascended.value.device)
        whole = torch.zeros_like(owner, dtype=torch.bool)
        leaves = TreeLeaves(owner, functionals.signs.contiguous(), ascended.duals, ascended.value, whole)
        n = leaves.signs.shape[1]
        most = LEAF_BYTES[leaves.value.device.type] // (8 * max(1, n))
        for _ in range(self.rounds if n else 0):
            chosen = self._lowest(leaves, len(functionals.offsets))
            rows = chosen.nonzero()[:, 0]
            if not len(rows) or len(chosen) + len(rows) > most:
                break
            if split is not None:
                split.append(leaves[chosen])
            children = [self._children(climber, functionals, leaves[piece]) for piece in rows.split(CHUNK)]
            leaves = TreeLeaves.concatenate([leaves[~chosen], *children])
        return leaves

    def least(
        self,
        climber: Climber,
        functionals: Functionals,
        ascended: Ascended,
        widest: int,
        prove: Callable[[TreeLeaves], Tensor],
        tell: Callable[[TreeLeaves], None] | None = None,
    ) -> Tensor:
        """The proved bounds of the functionals: the least over each one's leaves, which `prove` bounds in pieces.

        `widest` is how many numbers such a proof holds at once for each leaf. `tell` is given whole trees: the leaves,
        and all that was split on the way to them.
        """
        count = len(functionals.offsets)
        least = torch.full((count,), torch.inf, dtype=torch.float64, device=functionals.offsets.device)
        if not count:
            return least
        split: list[TreeLeaves] = []
        leaves = self.grown(climber, functionals, ascended, None if tell is None else split)
        if tell is not None:
            tell(TreeLeaves.concatenate([leaves, *split]))
        size = max(1, min(CHUNK, PROOF_BYTES[least.device.type] // (8 * widest)))
        for piece in torch.arange(len(leaves.owner), device=least.device).split(size):
            self.ascent.deadline.check()
            part = leaves[piece]
            proved = prove(part)
            least.scatter_reduce_(0, part.owner, torch.where(proved.isnan(), -torch.inf, proved), "amin")
        return torch.where(least == torch.inf, -torch.inf, least)  # no leaf holds a point: nothing is said of it

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
        lost, split = torch.where(parents.signs == 0, nu * (z.relu() - x), 0.0).max(dim=1)
        whole = lost <= 0
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


def by_pattern(bounds: Bounds, rows: Tensor, neurons: Tensor, signs: Tensor) -> Bounds:
    """Some rows of bounds [rows, all neurons], cut at 0 where a row of `signs` has one for a ReLU of `neurons`."""
    lower, upper = bounds.lower[rows], bounds.upper[rows]
    low, high = lower[:, neurons], upper[:, neurons]
    lower[:, neurons] = torch.where(signs > 0, low.clamp(min=0), low)
    upper[:, neurons] = torch.where(signs < 0, high.clamp(max=0), high)
    return Bounds(lower, upper)
