"""BaBSR (Bunel et al. 2020), exactly as the paper's authors run it (facts 3.1 and 3.2): bounds enter, one ReLU per
domain leaves.

The score estimates how much a split improves a Wong-Kolter bound: a functional goes back once from the output with
the chord's slopes, and at every ambiguous ReLU the bias and intercept terms tell what either side would gain.
"""

from dataclasses import dataclass, replace
from typing import final

import torch
from torch import Tensor

from bough.bounds.relaxation import chord
from bough.branching.base import BLIND, AbstractBrancher, AbstractLookAhead, Decision, RuleEntry, highest
from bough.domain.batch import DomainBatch
from bough.network import walk
from bough.network.graph import Network
from bough.problem.problem import Problem

SCORE_THRESHOLD = 1e-3
INTERCEPT_THRESHOLD = -1e-4
CONSECUTIVE_FIRST_LAYER = 2


@dataclass(frozen=True, eq=False)
class BaBSRMemory:
    """What the rule knows between decisions."""

    network: Network
    bias: Tensor  # [neurons]: constant part of each ReLU's input
    first_layer_picks: int  # consecutive intercept picks in the first layer (facts 3.2, step 3)

    def on(self, device: torch.device) -> "BaBSRMemory":
        """The same on the device where the domains are."""
        if self.bias.device == device:
            return self
        dtype = torch.float64 if device.type == "cpu" else torch.float32  # float64 is slow on a GPU
        return BaBSRMemory(self.network.on(device, dtype), self.bias.to(device, dtype), self.first_layer_picks)


@dataclass(frozen=True, eq=False)
class Scores:
    """Both scores of every ReLU, [domains, neurons]; 0 where a ReLU is not ambiguous."""

    score: Tensor
    intercept: Tensor


def local_bias(network: Network) -> Tensor:
    """The constant part of every ReLU's input, given the outputs of the ReLUs before it, [neurons]."""
    nothing = torch.zeros(1, *network.input_shape, dtype=torch.float64)
    values = walk.forward(network, nothing, lambda _i, z: torch.zeros_like(z))
    parts = [values[network.nodes[i].inputs[0]].reshape(-1) for i in network.relus]
    return torch.cat(parts) if parts else torch.zeros(0, dtype=torch.float64)


def scores(network: Network, bias: Tensor, domains: DomainBatch, *, worse_side: bool = False) -> Scores:
    """BaBSR's score s and intercept score t (facts 3.1) of every ReLU in every domain."""
    lower, upper = domains.bounds.lower.to(bias.dtype), domains.bounds.upper.to(bias.dtype)
    ambiguous = domains.bounds.ambiguous()
    a = chord(lower, upper)
    reduce = torch.minimum if worse_side else torch.maximum
    intercept = -lower.clamp(max=0) * a  # B in facts 3.1
    score, drop = torch.zeros_like(lower), torch.zeros_like(lower)

    def relu(i: int, arriving: Tensor) -> Tensor:
        part = network.slices[i]
        n = arriving.reshape(len(domains), -1)
        a_i = a[:, part]
        b = bias[part]
        below = n.clamp(max=0) * intercept[:, part]
        gain = reduce(b * n * (a_i - 1), b * n * a_i) + below
        score[:, part] = torch.where(ambiguous[:, part], gain.abs(), 0.0)
        drop[:, part] = torch.where(ambiguous[:, part], below, 0.0)
        return (n * a_i).reshape(arriving.shape)

    last = len(network.nodes) - 1
    seed = domains.functional.to(bias.dtype).reshape(-1, *network.nodes[last].shape)
    walk.backward(network, last, seed, relu)
    return Scores(score, drop)


def pick(scores: Scores, ambiguous: Tensor, parts: list[slice], first_layer_picks: int) -> tuple[Tensor, int]:
    """Facts 3.2: one ReLU per domain, [domains], and the count of consecutive intercept picks in the first layer.

    The authors decide one domain at a time; of a batch, all see the count as it stands before them.
    """
    best = torch.stack([scores.score[:, p].max(dim=1).values for p in parts], dim=1)
    worst = torch.stack([scores.intercept[:, p].min(dim=1).values for p in parts], dim=1)
    score, from_last = best.flip(1).max(dim=1)  # ties between layers go to the later one, as the authors compare
    layer = len(parts) - 1 - from_last
    by_score = torch.stack([p.start + scores.score[:, p].argmax(dim=1) for p in parts], dim=1)
    by_intercept = torch.stack([p.start + scores.intercept[:, p].argmin(dim=1) for p in parts], dim=1)
    falling = worst < INTERCEPT_THRESHOLD
    last_falling = _last(falling)
    scored = (layer != 0) & (score > SCORE_THRESHOLD)
    dropped = ~scored & falling.any(dim=1) & (first_layer_picks < CONSECUTIVE_FIRST_LAYER)
    chosen = torch.where(
        scored,
        by_score.gather(1, layer[:, None])[:, 0],
        torch.where(dropped, by_intercept.gather(1, last_falling[:, None])[:, 0], _last_layer_first(ambiguous, parts)),
    )
    in_first = dropped & (last_falling == 0)
    reset = bool((~scored & ~in_first).any())
    return chosen, 0 if reset else first_layer_picks + int(in_first.sum())


def _last(mask: Tensor) -> Tensor:
    """The last true column of every row; any where there is none."""
    return mask.shape[1] - 1 - mask.flip(1).int().argmax(dim=1)


def _last_layer_first(ambiguous: Tensor, parts: list[slice]) -> Tensor:
    """The first ambiguous ReLU of the last layer that has one, [domains]."""
    first = torch.stack([p.start + ambiguous[:, p].int().argmax(dim=1) for p in parts], dim=1)
    layer = _last(torch.stack([ambiguous[:, p].any(dim=1) for p in parts], dim=1))
    return first.gather(1, layer[:, None])[:, 0]


class AbstractByScores(AbstractBrancher[BaBSRMemory]):
    """A rule whose `rank` stands on BaBSR's scores; what it ranks first is split."""

    def prepare(self, problem: Problem) -> BaBSRMemory:
        """The biases, which do not change."""
        return BaBSRMemory(problem.network, local_bias(problem.network), 0)

    def decide(
        self, memory: BaBSRMemory, domains: DomainBatch, look: AbstractLookAhead = BLIND
    ) -> Decision[BaBSRMemory]:
        """The first by `rank`."""
        memory = memory.on(domains.lower.device)
        return Decision(self.rank(memory, domains, look, 1)[:, 0], memory)


@final
@dataclass(frozen=True)
class BaBSR(AbstractByScores):
    """The paper's hand-made rule, with its preference for late layers and its two fallbacks.

    `worse_side` takes the lesser gain of the two children instead of the greater: the later form of the rule.
    """

    worse_side: bool = False

    def decide(
        self, memory: BaBSRMemory, domains: DomainBatch, look: AbstractLookAhead = BLIND
    ) -> Decision[BaBSRMemory]:
        """Pick by both scores, in the authors' order (facts 3.2)."""
        del look
        memory = memory.on(domains.lower.device)
        both = scores(memory.network, memory.bias, domains, worse_side=self.worse_side)
        parts = list(memory.network.slices.values())
        chosen, picks = pick(both, domains.bounds.ambiguous(), parts, memory.first_layer_picks)
        return Decision(chosen, replace(memory, first_layer_picks=picks))

    def rank(self, memory: BaBSRMemory, domains: DomainBatch, look: AbstractLookAhead, count: int) -> Tensor:
        """The choice, then the others by score."""
        chosen = self.decide(memory, domains, look).neurons[:, None]
        memory = memory.on(domains.lower.device)
        score = scores(memory.network, memory.bias, domains, worse_side=self.worse_side).score
        others = domains.bounds.ambiguous().scatter(1, chosen, value=False)
        return torch.cat([chosen, highest(score, others, count)[:, : count - 1]], dim=1)


RULES = (
    RuleEntry(
        name="babsr",
        words="the paper's hand-made rule: estimated gain of the Wong-Kolter bound (Bunel et al. 2020)",
        make=lambda settings: BaBSR(),
    ),
    RuleEntry(
        name="babsr-min",
        words="its later form, which looks at the lesser gain of the two children",
        make=lambda settings: BaBSR(worse_side=True),
    ),
)
