"""BaBSR (Bunel et al. 2020), exactly as the paper's authors run it (facts 3.1 and 3.2): bounds enter, one ReLU per
domain leaves.

The score estimates how much a split improves a Wong-Kolter bound: a functional goes back once from the output with
the chord's slopes, and at every ambiguous ReLU the bias and intercept terms tell what either side would gain.
"""

from dataclasses import dataclass
from typing import final

import torch
from torch import Tensor

from bough.bounds.relaxation import chord
from bough.branching.base import AbstractBrancher, Decision
from bough.domain.batch import DomainBatch
from bough.network import walk
from bough.network.graph import Network
from bough.network.ops import Input, Relu
from bough.problem.problem import Problem

SCORE_THRESHOLD = 1e-3
INTERCEPT_THRESHOLD = -1e-4
CONSECUTIVE_FIRST_LAYER = 2


@dataclass(frozen=True, eq=False)
class _Memory:
    network: Network
    bias: Tensor  # [neurons]: constant part of each ReLU's input
    first_layer_picks: int  # consecutive intercept picks in the first layer (facts 3.2, step 3)


@dataclass(frozen=True, eq=False)
class Scores:
    """Both scores of every ReLU, [domains, neurons]; 0 where a ReLU is not ambiguous."""

    score: Tensor
    intercept: Tensor


def local_bias(network: Network) -> Tensor:
    """The constant part of every ReLU's input, given the outputs of the ReLUs before it, [neurons]."""
    values: list[Tensor] = []
    for node in network.nodes:
        if isinstance(node.op, Relu | Input):
            values.append(torch.zeros(1, *node.shape, dtype=torch.float64))
        else:
            values.append(walk.apply(node, *(values[i] for i in node.inputs)))
    parts = [values[network.nodes[i].inputs[0]].reshape(-1) for i in network.relus]
    return torch.cat(parts) if parts else torch.zeros(0, dtype=torch.float64)


def scores(network: Network, bias: Tensor, domains: DomainBatch) -> Scores:
    """BaBSR's score s and intercept score t (facts 3.1) of every ReLU in every domain."""
    lower, upper = domains.bounds.lower, domains.bounds.upper
    ambiguous = domains.bounds.ambiguous()
    a = chord(lower, upper)
    intercept = -lower.clamp(max=0) * a  # B in facts 3.1
    score, drop = torch.zeros_like(lower), torch.zeros_like(lower)

    def relu(i: int, here: Tensor) -> Tensor:
        part = network.slices[i]
        n, a_i, b = here.reshape(len(domains), -1), a[:, part], bias[part]
        below = n.clamp(max=0) * intercept[:, part]
        gain = torch.maximum(b * n * (a_i - 1), b * n * a_i) + below
        score[:, part] = torch.where(ambiguous[:, part], gain.abs(), 0.0)
        drop[:, part] = torch.where(ambiguous[:, part], below, 0.0)
        return (n * a_i).reshape(here.shape)

    last = len(network.nodes) - 1
    seed = domains.functional.reshape(-1, *network.nodes[last].shape)
    walk.backward(network, last, seed, relu, lambda _i, _here: None)
    return Scores(score, drop)


@final
@dataclass(frozen=True)
class BaBSR(AbstractBrancher):
    """The paper's hand-made rule, with its preference for late layers and its two fallbacks."""

    def prepare(self, problem: Problem) -> _Memory:
        """The biases, which do not change."""
        return _Memory(problem.network, local_bias(problem.network), 0)

    def decide(self, memory: _Memory, domains: DomainBatch) -> Decision:
        """Facts 3.2; the count of first-layer picks runs through the domains in order, as in the authors' code."""
        network = memory.network
        found = scores(network, memory.bias, domains)
        parts = list(network.slices.values())
        best = torch.stack([found.score[:, p].max(dim=1).values for p in parts], dim=1).tolist()
        worst = torch.stack([found.intercept[:, p].min(dim=1).values for p in parts], dim=1).tolist()
        ambiguous = domains.bounds.ambiguous()
        picks, chosen = memory.first_layer_picks, []
        for d, (scored, dropped) in enumerate(zip(best, worst, strict=True)):
            # Ties between layers go to the later one (the authors compare (value, layer) pairs).
            score, layer = max((score, layer) for layer, score in enumerate(scored))
            falling = [layer for layer, drop in enumerate(dropped) if drop < INTERCEPT_THRESHOLD]
            if layer != 0 and score > SCORE_THRESHOLD:
                chosen.append(parts[layer].start + int(found.score[d, parts[layer]].argmax()))
            elif falling and picks < CONSECUTIVE_FIRST_LAYER:
                layer = falling[-1]
                picks = picks + 1 if layer == 0 else 0
                chosen.append(parts[layer].start + int(found.intercept[d, parts[layer]].argmin()))
            else:
                picks = 0
                chosen.append(_last_layer_first(ambiguous[d], parts))
        return Decision(torch.tensor(chosen), _Memory(network, memory.bias, picks))


def _last_layer_first(ambiguous: Tensor, parts: list[slice]) -> int:
    """The first ambiguous ReLU of the last layer that has one."""
    for part in reversed(parts):
        where = ambiguous[part].nonzero()
        if len(where):
            return int(part.start) + int(where[0])
    raise ValueError("a domain without ambiguous ReLUs cannot be split")
