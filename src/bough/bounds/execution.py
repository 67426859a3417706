"""How far a network's execution in its own precision can be from real arithmetic: domains enter, bounds of it leave.

The execution is any that sums the products of each operator in some order, with or without fused multiply-add, and
rounds to nearest; the point of the box is rounded to the network's input type first. A sum of n products is then off by
at most gamma_n (|W| |x| + |b|), gamma_n = n u / (1 - n u) (Higham, 2002, chapter 3), x being values of the execution
itself. Let d be the difference between execution and real arithmetic at every node: an operator passes it on and adds
its own error e, and a ReLU passes a share s of it, 0 <= s <= 1; 1 where both surely are above 0, 0 where both surely
are below. So a row of the outputs is off by at most the sum over all nodes of |J| e, with J anything that the row's
derivative by the node can be for such s: an interval, carried from the row back to the input.

All that is known of a domain counts: the smaller it is, and the more of its ReLUs are decided, the less it can be off.
"""

from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor

from bough.bounds.base import AbstractSession
from bough.bounds.interval import Enclosure, enclose
from bough.domain.batch import Bounds, DomainBatch
from bough.network import walk
from bough.network.graph import Network
from bough.network.ops import Relu
from bough.network.walk import Interval
from bough.problem.problem import Problem

FOLDED = 16  # roundings of what is folded into weights: normalisation, scales, averages, each a few times
OWN = 1 + 2.0**-20  # more than what all sums of this module, of terms that are not negative, are off by in float64
ELEMENTS = 1 << 22  # of the widest node held at a time


@dataclass(frozen=True, eq=False)
class Execution:
    """What the search asks before it closes a domain, where `verified` is to hold for the execution, too."""

    problem: Problem

    def errors(self, domains: DomainBatch, session: AbstractSession) -> Tensor:
        """How far off each row of its clause can be in each domain, at most: [domains]; infinity: it may overflow.

        The bound of a clause with several rows is one of some mean of them, which is not further off than the worst.
        """
        device = domains.lower.device
        network = self.problem.network.on(device)
        worst = torch.zeros_like(domains.lower)
        parts = None if session.capabilities.input_parts is None else session.capabilities.input_parts.parts(domains)
        for c in domains.clause.unique().tolist():
            clause = self.problem.clauses[c].on(device)
            box = self.problem.property.boxes[clause.box].on(device)
            widest = max(node.size for node in network.nodes) * len(clause.offsets)
            for some in (domains.clause == c).nonzero()[:, 0].split(max(1, ELEMENTS // widest)):
                sides = (box.lower.expand(len(some), -1), box.upper.expand(len(some), -1))
                if parts is not None:
                    sides = parts.lower[some], parts.upper[some]
                bounds = domains.bounds[some]
                rows = row_errors(network, sides, clause.coefficients, self.problem.reference.dtype, bounds)
                worst[some] = rows.amax(dim=1)
        return worst


@dataclass(frozen=True, eq=False)
class _Drift:
    """What every node adds to the difference, and how much has come together there; [domains, *shape] each."""

    own: list[Tensor]
    total: list[Tensor]


def row_errors(
    network: Network,
    box: tuple[Tensor, Tensor],
    rows: Tensor,
    dtype: np.dtype[np.floating[Any]],
    known: Bounds | None = None,
) -> Tensor:
    """Bounds [domains, rows] on how far `rows` @ y [rows, outputs] of an execution is from real arithmetic.

    `box` is lower and upper [domains, inputs], `known` [domains, neurons] are bounds of ReLU inputs that hold there.
    Infinity where the execution may overflow.
    """
    enclosed = enclose(network, *box, known)
    drift, inside = _forward(network, enclosed, dtype)
    if drift is None:
        return rows.new_full((len(box[0]), len(rows)), torch.inf)
    errors = _carried_back(network, enclosed, drift, rows) * OWN
    return torch.where(inside[:, None] & errors.isfinite(), errors, torch.inf)


def _forward(network: Network, enclosed: Enclosure, dtype: np.dtype[np.floating[Any]]) -> tuple[_Drift | None, Tensor]:
    """The errors of every node, and which domains' values stay in the range of the type; None: sums are too long."""
    limits = np.finfo(dtype)
    unit = float(limits.eps) / 2
    tiny = float(limits.tiny)
    largest = float(limits.max) / 2
    low, high = enclosed.lower, enclosed.upper
    sizes = [torch.maximum(a.abs(), b.abs()) for a, b in zip(low, high, strict=True)]
    own = [unit * sizes[0] + tiny]
    total = [own[0]]
    inside = (sizes[0] <= largest).flatten(1).all(dim=1)
    for i, node in enumerate(network.nodes[1:], start=1):
        held = [total[j] for j in node.inputs]
        if isinstance(node.op, Relu):
            added = torch.zeros_like(sizes[i])
            gathered = torch.minimum(held[0], (high[node.inputs[0]] + held[0]).relu())
        else:
            # Beginning with the inputs; 0 where elements are only moved.
            count = node.op.roundings + (FOLDED if node.op.products else 0)
            if count * unit >= 0.5:
                return None, inside
            reached = [sizes[j] + total[j] for j in node.inputs]
            summed = network.magnitude.apply(i, *reached)
            inside = inside & (summed <= largest).flatten(1).all(dim=1)
            added = torch.zeros_like(summed)
            if count:
                # What is flushed to 0, or lost below the least number: of each product, value and weight.
                most = torch.stack([t.flatten(1).amax(dim=1) for t in reached]).amax(dim=0)
                lost = count * tiny * (1 + most) + tiny * node.op.gain
                added = count * unit / (1 - count * unit) * summed + lost.reshape(-1, *(1,) * (summed.ndim - 1))
            gathered = network.radius.apply(i, *held) + added
        own.append(added * OWN)
        total.append(gathered * OWN)
    return _Drift(own, total), inside


def _carried_back(network: Network, enclosed: Enclosure, drift: _Drift, rows: Tensor) -> Tensor:
    """The sum over all nodes of |J| own, where J = centre -+ radius is carried from the rows to the input."""
    last, (domains, count) = len(network.nodes) - 1, (len(drift.own[0]), len(rows))
    seed = rows.expand(domains, -1, -1).reshape(domains * count, *network.nodes[last].shape)
    errors = seed.new_zeros(domains * count)

    def each(t: Tensor) -> Tensor:
        return t.repeat_interleave(count, dim=0)  # functionals are ordered domain after domain

    def visit(i: int, interval: Interval) -> None:
        centre, radius = interval
        errors.add_(((centre.abs() + radius) * each(drift.own[i])).flatten(1).sum(dim=1))

    def relu(i: int, interval: Interval) -> Interval:
        before = (each(t[network.nodes[i].inputs[0]]) for t in (enclosed.lower, enclosed.upper, drift.total))
        return _through(*interval, *before)

    def affine(i: int, interval: Interval) -> list[Interval]:
        centre, radius = interval
        # In float64 the product of the centres is off by a share of that of their sizes.
        wide = radius * OWN + network.rounding * centre.abs()
        return list(zip(network.transpose(i, centre), network.radius.transpose(i, wide), strict=True))

    def total(one: Interval, other: Interval) -> Interval:
        centre = one[0] + other[0]
        return centre, one[1] + other[1] + network.rounding * centre.abs()

    arrived = walk.carry(network, last, (seed, torch.zeros_like(seed)), relu, affine, total, visit)
    if arrived is not None:
        visit(0, arrived)
    return errors.reshape(domains, count)


def _through(centre: Tensor, radius: Tensor, low: Tensor, high: Tensor, total: Tensor) -> Interval:
    """What a derivative's interval becomes by a ReLU that passes a share of every difference."""
    passes = low - total >= 0
    blocks = high + total <= 0
    least = (centre - radius).clamp(max=0)
    most = (centre + radius).clamp(min=0)
    centre = torch.where(passes, centre, (least + most) / 2)
    radius = torch.where(passes, radius, (most - least) / 2 * OWN)
    return torch.where(blocks, 0.0, centre), torch.where(blocks, 0.0, radius)
