"""Filtered smart branching (De Palma et al. 2021): hand-made scores propose, cheap bounds of the children decide.

FSB takes from every layer the best ReLU by BaBSR's score and the best by its intercept score; kFSB takes the k best of
each over all layers. Both children of every candidate are then bounded once through the search's look-ahead.

Where a domain's bound is 0 but for rounding, no split gains on it; there kFSB takes candidates by their influence
(`branching.influence`) instead of their intercept.
"""

from dataclasses import dataclass
from typing import final

import torch
from torch import Tensor

from bough.branching.babsr import AbstractByScores, BaBSRMemory, Scores, scores
from bough.branching.base import AbstractLookAhead, RuleEntry
from bough.branching.improvement import LEAST_GAIN
from bough.branching.influence import influence
from bough.domain.batch import DomainBatch
from bough.network.graph import Network

TINY = 1e-12
TIE = 1e-6
FLAT = 1e-6  # of what the relaxation cuts off: a bound so close below 0 tells nothing about where to split


@final
@dataclass(frozen=True)
class Filtered(AbstractByScores):
    """FSB, or with `best` given, kFSB with that many candidates by each score.

    `product` weighs both children by the product of what they gain, as MIP solvers do, instead of the worse child only.
    """

    best: int | None = None
    product: bool = True

    def rank(self, memory: BaBSRMemory, domains: DomainBatch, look: AbstractLookAhead, count: int) -> Tensor:
        """The candidates whose children promise most."""
        memory = memory.on(domains.lower.device)
        both = scores(memory.network, memory.bias, domains, worse_side=True)
        ambiguous = domains.bounds.ambiguous()
        noise = -FLAT * both.intercept.sum(dim=1)
        flat = (domains.lower > -noise) & (self.best is not None)
        boxes = look.unsafe_boxes(domains[flat]) if bool(flat.any()) else None
        flat = flat & (boxes is not None)
        if boxes is not None:
            both = _by_influence(both, flat, memory.network, boxes)
        candidates = self._candidates(both, ambiguous, list(memory.network.slices.values()), count)
        children = look.estimate(domains, candidates)
        # Nothing can be gained on the way to 0 where there is no way: what counts is how many children are closed.
        closed = (children > noise[:, None, None]).sum(dim=2)
        value = torch.where(flat[:, None], closed, self._value(children, domains.lower))
        # A layer without ambiguous ReLUs still names one; and what two scores propose may be one ReLU.
        repeated = (candidates[:, :, None] == candidates[:, None, :]).tril(diagonal=-1).any(dim=2)
        value = value.masked_fill((children == -torch.inf).all(dim=2) | repeated, -torch.inf)
        # Where nothing promises a gain, what the relaxation cuts off (the intercept's candidates, first) goes first.
        value = value - TIE * torch.arange(value.shape[1], device=value.device)
        return candidates.gather(1, value.topk(min(count, candidates.shape[1]), dim=1).indices)

    def _value(self, children: Tensor, parent: Tensor) -> Tensor:
        if not self.product:
            return children.min(dim=2).values
        # A child is done at 0, so no gain beyond that counts; and one side without any must not hide the other's.
        size = -parent.clamp(max=-TINY)[:, None, None]
        return ((children.clamp(max=0) + size) / size).clamp(min=LEAST_GAIN).log().sum(dim=2)

    def _candidates(self, both: Scores, ambiguous: Tensor, parts: list[slice], count: int) -> Tensor:
        by_score = torch.where(ambiguous, both.score, -torch.inf)
        by_intercept = torch.where(ambiguous, -both.intercept, -torch.inf)
        if self.best is None:
            first = [p.start + s[:, p].argmax(dim=1, keepdim=True) for s in (by_intercept, by_score) for p in parts]
            return torch.cat(first, dim=1)
        each = min(max(self.best, count), ambiguous.shape[1])
        return torch.cat([s.topk(each, dim=1).indices for s in (by_intercept, by_score)], dim=1)


def _by_influence(both: Scores, flat: Tensor, network: Network, boxes: tuple[Tensor, Tensor]) -> Scores:
    """The scores with, in flat domains, the intercept's place taken by influence, at ReLUs that have an intercept."""
    drop = both.intercept.clone()
    drop[flat] = torch.where(drop[flat] < 0, -influence(network, *(side.to(drop) for side in boxes)), 0.0)
    return Scores(both.score, drop)


RULES = (
    RuleEntry(
        name="fsb",
        words="per layer the best by both of its scores, then one cheap bound of their children (De Palma et al. 2021)",
        make=lambda settings: Filtered(product=False),
    ),
    RuleEntry(
        name="kfsb",
        words="the eight best over all layers by each score, children weighed by the product of their gains",
        make=lambda settings: Filtered(best=8),
    ),
)
