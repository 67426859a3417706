"""Strong branching: both children of every candidate are bounded in earnest, and the best improvement wins.

The best of rules by branches and the dearest by bounds, and what the paper's network learns to imitate. Here all
candidates of all domains of a step are bounded as one batch, as far as memory allows.
"""

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import final

import torch
from torch import Tensor

from bough.branching.babsr import AbstractByScores, BaBSRMemory, scores
from bough.branching.base import AbstractLookAhead, RuleEntry, highest
from bough.branching.improvement import Measure, improvements
from bough.branching.subset import Subset
from bough.domain.batch import DomainBatch

Heard = Callable[[DomainBatch, Tensor, Tensor], None]
"""Told the domains, the candidates [domains, candidates] and the bounds of their children [domains, candidates, 2]."""

TIE = 1e-6  # improvements closer than this are equal: bounds found in another batch differ by their rounding


@final
@dataclass(frozen=True)
class Strong(AbstractByScores):
    """The ReLU of greatest improvement (Eq. 8, or another `measure` of it), of all ambiguous ones or of a `subset`.

    `heard` is told the bounds of the children that every decision rests on. Where improvements are equal, as where no
    split gains anything, BaBSR's score decides, and of equals by both the ReLU with the lowest number is taken.
    """

    measure: Measure = "mean"
    subset: Subset | None = None
    heard: Heard | None = field(default=None, repr=False, compare=False)

    def rank(self, memory: BaBSRMemory, domains: DomainBatch, look: AbstractLookAhead, count: int) -> Tensor:
        """Bound the children of all candidates, and compare their improvements."""
        memory = memory.on(domains.lower.device)
        score = scores(memory.network, memory.bias, domains).score
        tried = domains.bounds.ambiguous()
        if self.subset is not None:
            tried = self.subset.of(domains, score, list(memory.network.slices.values()))
        candidates = listed(tried)
        children = look.bound(domains, candidates)
        if self.heard is not None:
            self.heard(domains, candidates, children)
        gains = improvements(domains.lower, children, look.cutoff, self.measure)
        # A ReLU that was not tried may fill a row up to its batch's width, and must not win there.
        gains = torch.where(tried.gather(1, candidates), (gains / TIE).round() * TIE, -torch.inf)
        share = score / score.amax(dim=1, keepdim=True).clamp(min=torch.finfo(score.dtype).tiny)
        gains = gains + TIE / 2 * share.gather(1, candidates)
        return candidates.gather(1, highest(gains, tried.gather(1, candidates), count))


def listed(tried: Tensor) -> Tensor:
    """The numbers of the ReLUs to try, in order, [domains, candidates]; a domain that has fewer than another fills its
    row with ReLUs that are not to be tried.
    """
    width = int(tried.sum(dim=1).max()) if tried.numel() else 0
    return tried.to(torch.int8).argsort(dim=1, descending=True, stable=True)[:, :width]


RULES = (
    RuleEntry(
        name="strong",
        words="bounds both children of every ReLU; greatest relative improvement (Lu & Kumar 2020, Eq. 8)",
        comparison=True,
        make=lambda settings: Strong(),
    ),
    RuleEntry(
        name="strong-min",
        words="strong, by the worse of both children",
        comparison=True,
        make=lambda settings: Strong("min"),
    ),
    RuleEntry(
        name="strong-max",
        words="strong, by the better of both children",
        comparison=True,
        make=lambda settings: Strong("max"),
    ),
    RuleEntry(
        name="strong-product",
        words="strong, by the product of what both children gain, as kfsb weighs them",
        comparison=True,
        make=lambda settings: Strong("product"),
    ),
    RuleEntry(
        name="strong-tree",
        words="strong, by how large a tree of such splits would be; shallower trees",
        comparison=True,
        make=lambda settings: Strong("tree"),
    ),
    RuleEntry(
        name="strong-subset",
        words="strong among the 64 best by babsr and at random 5% of each layer, by --seed",
        comparison=True,
        make=lambda settings: Strong(subset=Subset(seed=settings.seed)),
    ),
)
