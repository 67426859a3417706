"""Neurify's priority (Wang et al. 2018): the ReLU on whose output the functional can depend most steeply goes first.

Gradients are enclosed, not sampled: an ambiguous ReLU passes any share of a gradient from none to all of it, so from
the output back to every ReLU there is an interval of gradients that points of the domain can have.
"""

from dataclasses import dataclass
from typing import final

import torch
from torch import Tensor

from bough.branching.base import AbstractScoring, RuleEntry
from bough.domain.batch import DomainBatch
from bough.network.graph import Network
from bough.network.walk import Interval, carry
from bough.problem.problem import Problem


@final
@dataclass(frozen=True)
class SteepestGradient(AbstractScoring[Network]):
    """The greatest absolute gradient over all layers; of equals the ReLU with the lowest number.

    Neurify's code then sorts by layers, the first one first; its paper, and the comparison in Lu and Kumar's appendix,
    speak of the gradient alone, and so it is here.
    """

    def prepare(self, problem: Problem) -> Network:
        """The network is all that the rule remembers."""
        return problem.network

    def scores(self, memory: Network, domains: DomainBatch) -> Tensor:
        """The greater end of every interval, by its absolute value."""
        device = domains.lower.device
        dtype = torch.float64 if device.type == "cpu" else torch.float32  # float64 is slow on a GPU
        return steepest_gradients(memory.on(device, dtype), domains, dtype)


RULES = (
    RuleEntry(
        name="gradient",
        words="the ReLU that the output can depend on most steeply (Neurify, Wang et al. 2018)",
        comparison=True,
        make=lambda settings: SteepestGradient(),
    ),
)


def steepest_gradients(network: Network, domains: DomainBatch, dtype: torch.dtype) -> Tensor:
    """max(|g|) over the interval of gradients of the functional by each ReLU's output, [domains, neurons].

    Intervals are kept as middle and radius: through W^T they go as W^T middle and |W|^T radius.
    """
    blocked = domains.bounds.upper <= 0
    passing = domains.bounds.lower >= 0
    steepest = torch.zeros(domains.signs.shape, dtype=dtype, device=domains.signs.device)
    last = len(network.nodes) - 1

    def relu(i: int, arriving: Interval) -> Interval:
        (middle, radius), part = arriving, network.slices[i]
        steepest[:, part] = (middle.abs() + radius).reshape(len(domains), -1)
        # Blocked: 0. Passing: all of it. Ambiguous: anything between.
        low = middle - radius
        high = middle + radius
        open_ = (~passing[:, part]).reshape(low.shape)
        none = blocked[:, part].reshape(low.shape)
        low = torch.where(open_, low.clamp(max=0), low).masked_fill(none, 0.0)
        high = torch.where(open_, high.clamp(min=0), high).masked_fill(none, 0.0)
        return (high + low) / 2, (high - low) / 2

    def affine(i: int, interval: Interval) -> list[Interval]:
        return list(zip(network.transpose(i, interval[0]), network.radius.transpose(i, interval[1]), strict=True))

    def total(one: Interval, other: Interval) -> Interval:
        return one[0] + other[0], one[1] + other[1]

    seed = domains.functional.to(dtype).reshape(-1, *network.nodes[last].shape)
    carry(network, last, (seed, torch.zeros_like(seed)), relu, affine, total)
    return steepest
