"""Splitting inputs: rules for bounders whose domains carry boxes (`bounds/boxes.py`). Choice `neurons + k` halves input
k.
"""

from dataclasses import dataclass
from typing import ClassVar, final

import torch
from torch import Tensor

from bough.bounds.base import Capability
from bough.branching.babsr import BaBSR, BaBSRMemory, scores
from bough.branching.base import BLIND, AbstractBrancher, AbstractLookAhead, Decision, RuleEntry
from bough.domain.batch import DomainBatch, InputParts
from bough.problem.problem import Problem

TINY = 1e-9  # of a bound: what differs by less is equal
HALVES = frozenset({Capability.INPUT_PARTS})
NARROW = 1 / 32  # of the part of the widest input
OTHER = 0.1  # what the better child's bound counts beside the worse one's, and width beside the bound's dependence


class AbstractHalving(AbstractBrancher[Tensor]):
    """A rule that halves inputs, and compares them with the boxes of the clauses."""

    needs: ClassVar[frozenset[Capability]] = HALVES

    def prepare(self, problem: Problem) -> Tensor:
        """The widths of each clause's box."""
        boxes = [problem.property.boxes[clause.box] for clause in problem.clauses]
        return torch.stack([box.upper - box.lower for box in boxes])


@final
@dataclass(frozen=True)
class Longest(AbstractHalving):
    """The input whose interval is the largest part of what it was at the root."""

    def decide(self, memory: Tensor, domains: DomainBatch, look: AbstractLookAhead = BLIND) -> Decision[Tensor]:
        """The first of equals."""
        share = shares(memory, domains, look.input_parts(domains))
        return Decision(domains.signs.shape[1] + share.argmax(dim=1), memory)


def shares(widths: Tensor, domains: DomainBatch, parts: InputParts) -> Tensor:
    """What part of its width at the root each input still has, [domains, inputs]; 0 where it was a point."""
    whole = widths.to(domains.lower.device)[domains.clause]
    return torch.where(whole > 0, parts.width / whole.clamp(min=torch.finfo(whole.dtype).tiny), 0.0)


@final
@dataclass(frozen=True)
class Smear(AbstractHalving):
    """The input on which the bound depends most: the size of its coefficient times the width of its interval.

    With every relaxation kept, that is twice what halving the input gains for the better half, and the other half gains
    nothing: the estimate of Bunel et al. without bounding any layer again.
    """

    def decide(self, memory: Tensor, domains: DomainBatch, look: AbstractLookAhead = BLIND) -> Decision[Tensor]:
        """The largest product."""
        parts = look.input_parts(domains)
        share = shares(memory, domains, parts)
        product = parts.slope.abs() * parts.width
        # What part of each input is left counts a little: an LP's coefficients may be 0 on inputs that matter.
        whole = product.amax(dim=1, keepdim=True).clamp(min=torch.finfo(product.dtype).tiny)
        value = product / whole + OTHER * share / share.amax(dim=1, keepdim=True)
        return Decision(domains.signs.shape[1] + torch.where(narrow(share), -1.0, value).argmax(dim=1), memory)


@final
@dataclass(frozen=True)
class BaBSB(AbstractHalving):
    """Both halves of every input bounded (Bunel et al. 2018): the input whose worse half is best.

    Of equals, the input that is the largest part of what it was; or one that does nothing would be halved for ever.
    Where `few` ReLUs or less are ambiguous, looking ahead costs more than it saves, and `Smear` decides.
    """

    few: int = 40

    def decide(self, memory: Tensor, domains: DomainBatch, look: AbstractLookAhead = BLIND) -> Decision[Tensor]:
        """The larger of the worse halves; of equals the one with the better other half."""
        chosen = Smear().decide(memory, domains, look).neurons
        many = (domains.bounds.ambiguous().sum(dim=1) > self.few).nonzero()[:, 0]
        if len(many):
            domains = domains[many]
            share = shares(memory, domains, look.input_parts(domains))
            inputs = torch.arange(share.shape[1], device=share.device)
            choices = (domains.signs.shape[1] + inputs).expand(len(domains), -1)
            chosen[many] = best_worst(choices, look.estimate(domains, choices), share, narrow(share))
        return Decision(chosen, memory)


@dataclass(frozen=True, eq=False)
class CombinedMemory:
    """What both kinds of rules remember."""

    relus: BaBSRMemory
    widths: Tensor


@final
@dataclass(frozen=True)
class Combined(AbstractBrancher[CombinedMemory]):
    """An input or a ReLU, whichever promises more: both children of some candidates of each kind are bounded."""

    relus: int = 4  # the best by BaBSR's score
    inputs: int = 8  # the best by `Smear`

    needs: ClassVar[frozenset[Capability]] = HALVES

    def prepare(self, problem: Problem) -> CombinedMemory:
        """What BaBSR needs, and the widths of each clause's box."""
        return CombinedMemory(BaBSR().prepare(problem), Longest().prepare(problem))

    def decide(
        self, memory: CombinedMemory, domains: DomainBatch, look: AbstractLookAhead = BLIND
    ) -> Decision[CombinedMemory]:
        """The choice whose worse child gains most; where none gains, an input."""
        parts = look.input_parts(domains)
        score = scores(memory.relus.network, memory.relus.bias, domains, worse_side=True).score
        ranked = torch.where(domains.bounds.ambiguous(), score, -torch.inf)
        relus = ranked.topk(min(self.relus, ranked.shape[1]), dim=1).indices
        smear = parts.slope.abs() * parts.width
        inputs = smear.topk(min(self.inputs, smear.shape[1]), dim=1).indices
        choices = torch.cat([domains.signs.shape[1] + inputs, relus], dim=1)
        children = look.estimate(domains, choices)
        share = shares(memory.widths, domains, parts).gather(1, inputs)
        without = torch.cat([narrow(share), torch.zeros_like(relus, dtype=torch.bool)], dim=1)
        tie = torch.cat([share, torch.full(relus.shape, -1.0, dtype=share.dtype, device=share.device)], dim=1)
        return Decision(best_worst(choices, children, tie, without), memory)


def narrow(share: Tensor) -> Tensor:
    """Which inputs were halved far more often than others, and are left alone.

    CROWN's bounds may fall when a box is halved, so an input that no longer does anything can look best, for ever.
    """
    return share < NARROW * share.amax(dim=1, keepdim=True)


def best_worst(choices: Tensor, children: Tensor, tie: Tensor, without: Tensor) -> Tensor:
    """The choice [domains] with the best worse child, from bounds [domains, choices, 2], `without` some choices.

    A closed child has all there is to gain; the other child counts a little; of equals `tie` decides.
    """
    worth = children.clamp(max=0.0)
    value = (worth.min(dim=2).values + OTHER * worth.max(dim=2).values).nan_to_num(-torch.inf, neginf=-torch.inf)
    value = torch.where(without, -torch.inf, value)
    best = value.max(dim=1, keepdim=True).values
    equal = value >= best - TINY * (1 + best.abs())
    return choices.gather(1, torch.where(equal, tie, -torch.inf).argmax(dim=1, keepdim=True))[:, 0]


RULES = (
    RuleEntry(
        name="babsb",
        words="halves an input: both halves of each are bounded (Bunel et al. 2018); for few inputs",
        make=lambda settings: BaBSB(),
        needs=HALVES,
    ),
    RuleEntry(
        name="smear",
        words="halves the input on which the bound depends most: coefficient times width",
        make=lambda settings: Smear(),
        needs=HALVES,
    ),
    RuleEntry(
        name="shadow",
        words="the same with the LP's coefficients, the shadow prices of the box's sides (Royo et al. 2019)",
        make=lambda settings: Smear(),
        needs=HALVES | {Capability.SHADOW_PRICES},
    ),
    RuleEntry(
        name="longest",
        words="halves the input that is the largest part of what it was",
        make=lambda settings: Longest(),
        needs=HALVES,
    ),
    RuleEntry(
        name="combined",
        words="halves an input or splits a ReLU, whichever promises more",
        make=lambda settings: Combined(),
        needs=HALVES,
    ),
)
