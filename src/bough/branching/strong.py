"""Strong branching: both children of every candidate are bounded in earnest, and the best improvement wins.

The best of rules by branches and the dearest by bounds, and what the paper's network learns to imitate. Here all
candidates of all domains of a step are bounded as one batch, as far as memory allows.
"""

from dataclasses import dataclass
from typing import final

import torch
from torch import Tensor

from bough.branching.babsr import Memory, local_bias, scores
from bough.branching.base import BLIND, AbstractBrancher, Decision, LookAhead, highest
from bough.branching.improvement import Measure, improvements
from bough.branching.subset import Subset
from bough.domain.batch import DomainBatch
from bough.problem.problem import Problem

TIE = 1e-6  # improvements closer than this are equal: bounds found in another batch differ by their rounding


@final
@dataclass(frozen=True)
class Strong(AbstractBrancher):
    """The ReLU of greatest improvement (Eq. 8, or another `measure` of it), of all ambiguous ones or of a `subset`.

    Where improvements are equal, as where no split gains anything, BaBSR's score decides, and of equals by both the
    ReLU with the lowest number is taken.
    """

    measure: Measure = "mean"
    subset: Subset | None = None

    def prepare(self, problem: Problem) -> Memory:
        """The biases, which do not change."""
        return Memory(problem.network, local_bias(problem.network), 0)

    def decide(self, memory: Memory, domains: DomainBatch, look: LookAhead = BLIND) -> Decision:
        """Bound the children of all candidates, and compare."""
        memory = memory.on(domains.lower.device)
        ambiguous, score = domains.bounds.ambiguous(), scores(memory.network, memory.bias, domains).score
        tried = ambiguous
        if self.subset is not None:
            tried = self.subset.of(domains, score, list(memory.network.slices.values()), look.levels)
        candidates = listed(tried)
        gains = improvements(domains.lower, look.bound(domains, candidates), look.cutoff, self.measure)
        # A ReLU that was not tried may fill a row up to its batch's width, and must not win there.
        gains = torch.where(tried.gather(1, candidates), (gains / TIE).round() * TIE, -torch.inf)
        share = score / score.amax(dim=1, keepdim=True).clamp(min=torch.finfo(score.dtype).tiny)
        gains = gains + TIE / 2 * share.gather(1, candidates)
        order = highest(gains, tried.gather(1, candidates), look.levels)
        return Decision(candidates.gather(1, order), memory)


def listed(tried: Tensor) -> Tensor:
    """The numbers of the ReLUs to try, in order, [domains, candidates]; a domain that has fewer than another fills its
    row with ReLUs that are not to be tried.
    """
    width = int(tried.sum(dim=1).max()) if tried.numel() else 0
    return tried.to(torch.int8).argsort(dim=1, descending=True, stable=True)[:, :width]
