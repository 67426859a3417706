"""Linear bounds: functionals of a node go back to the input through relaxed ReLUs; proved bounds of them leave.

The bound is the Lagrangian of the network's own equations: a multiplier per node element (the coefficients met on
the way), and at each ReLU the worst case of its graph between its bounds (`relaxation.extremes`). It is valid
whatever the multipliers are, so computed multipliers count as exact numbers, and rounding enters only where they are
multiplied through an operator: at most `rounding * |multiplier| . magnitude` per node, with magnitudes from the
interval pass. That error is subtracted: every bound returned here holds in real arithmetic.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace

import torch
from torch import Tensor

from bough.bounds.inputs import proved_range
from bough.bounds.relaxation import AbstractSlopes, extremes
from bough.budget import Deadline
from bough.domain.batch import Bounds
from bough.network import walk
from bough.network.graph import Network
from bough.problem.property import Ball, Clause

CHUNK_ELEMENTS = 1 << 20  # float64 elements of the widest node held at once: 8 MiB, so that deadlines are heard
CHUNK_ELEMENTS_CUDA = 1 << 26  # a GPU wants larger pieces


@dataclass(frozen=True, eq=False)
class Region:
    """Where functionals are bounded: input boxes [domains, inputs] within one ball, ReLU bounds, and magnitudes that
    cover all of them.
    """

    lower: Tensor
    upper: Tensor
    bounds: Bounds
    magnitude: list[Tensor]  # per node [*shape]
    underflow: float  # most that functionals can lose by coefficients too small for float64, at values up to magnitude
    ball: Ball | None = None

    def with_bounds(self, bounds: Bounds) -> "Region":
        """The same single box for as many domains as there are bounds."""
        count = bounds.lower.shape[0]
        return replace(
            self, lower=self.lower[:1].expand(count, -1), upper=self.upper[:1].expand(count, -1), bounds=bounds
        )


PassRelu = Callable[[slice, Tensor, Tensor, Tensor], tuple[Tensor, Tensor]]
"""(which ReLUs, nu [domains, rows, n], lower [domains, 1, n], upper) -> (lam like nu, numbers of those that may
lose)."""


def by_slopes(slopes: AbstractSlopes) -> PassRelu:
    """Pass passing ReLUs unchanged, blocked ones not at all, ambiguous ones by a rule for slopes."""

    def pass_relu(part: slice, nu: Tensor, lower: Tensor, upper: Tensor) -> tuple[Tensor, Tensor]:
        del part
        lam = nu * (lower >= 0)
        ambiguous = (lower < 0) & (upper > 0)
        columns = ambiguous.flatten(0, 1).any(dim=0).nonzero()[:, 0]
        if len(columns):
            chosen = slopes(nu[..., columns], lower[..., columns], upper[..., columns])
            lam[..., columns] = torch.where(ambiguous[..., columns], chosen, lam[..., columns])
        return lam, columns

    return pass_relu


def by_multipliers(multipliers: Tensor) -> PassRelu:
    """Pass every ReLU with a given multiplier [domains, neurons]; NaN means: as if passing or blocked, losing
    nothing.
    """

    def pass_relu(part: slice, nu: Tensor, lower: Tensor, upper: Tensor) -> tuple[Tensor, Tensor]:
        del upper
        given = multipliers[:, None, part].expand_as(nu)
        lam = torch.where(torch.isnan(given), nu * (lower >= 0), given)
        return lam, torch.arange(nu.shape[-1], device=nu.device)

    return pass_relu


@dataclass(frozen=True, eq=False)
class Proved:
    """Bounds of functionals, [domains, rows], and what is left of them at the input, [domains, rows, inputs]."""

    lower: Tensor
    upper: Tensor
    inputs: Tensor
    error: Tensor  # [domains, rows]: what was subtracted from the lower bound for rounding


def bound_functionals(
    network: Network,
    region: Region,
    start: int,
    f: Tensor,
    pass_relu: PassRelu,
    also: Mapping[int, Tensor] | None = None,
    *,
    below_only: bool = False,
) -> Proved:
    """Bound the functionals `f` [domains, rows, elements of node `start`] over each domain of the region.

    `also` holds further terms of the same functionals, on earlier nodes (each node's own shape of last axis).

    The upper bound is as good as the lower one only under symmetric slopes; it is valid always.
    """
    domains, rows = f.shape[:2]
    least, greatest, magnitude = (f.new_zeros(domains, rows) for _ in range(3))

    def visit(i: int, arriving: Tensor) -> None:
        op = network.nodes[i].op
        constant = op.bias_term(arriving)
        if constant is not None:
            least.add_(constant.reshape(domains, rows))
            greatest.add_(constant.reshape(domains, rows))
        if not op.exact:
            magnitude.add_(arriving.abs().reshape(domains, rows, -1) @ region.magnitude[i].reshape(-1))

    def relu(i: int, arriving: Tensor) -> Tensor:
        part = network.slices[i]
        lower, upper = region.bounds.lower[:, None, part], region.bounds.upper[:, None, part]
        nu = arriving.reshape(domains, rows, -1)
        lam, columns = pass_relu(part, nu, lower, upper)
        if len(columns):
            n, m, low, high = nu[..., columns], lam[..., columns], lower[..., columns], upper[..., columns]
            worst, best = extremes(n, m, low, high, below_only=below_only)
            least.add_(worst.sum(-1))
            if best is not None:
                greatest.add_(best.sum(-1))
            magnitude.add_((m.abs() * torch.maximum(low.abs(), high.abs()) + n.abs() * high.relu()).sum(-1))
        return lam.reshape(arriving.shape)

    seed = f.reshape(domains * rows, *network.nodes[start].shape)
    more = {i: t.reshape(domains * rows, *network.nodes[i].shape) for i, t in (also or {}).items()}
    g = walk.backward(network, start, seed, relu, visit, more).reshape(domains, rows, -1)
    inputs = proved_range(g, region.lower, region.upper, region.ball, network.rounding)
    error = network.rounding * (magnitude + inputs.magnitude) + region.underflow
    upper = torch.full_like(error, torch.inf) if below_only else greatest + inputs.greatest + error
    return Proved(least + inputs.least - error, upper, g, error)


def bound_clause(network: Network, region: Region, clause: Clause, weights: Tensor, pass_relu: PassRelu) -> Tensor:
    """Proved lower bounds [domains, n] of `weights . (coefficients @ y - offsets)`, for weights [domains, n, rows]."""
    return proved_rows(network, region, clause.coefficients, clause.offsets, weights, pass_relu).lower


def proved_rows(
    network: Network,
    region: Region,
    coefficients: Tensor,
    offsets: Tensor,
    weights: Tensor,
    pass_relu: PassRelu,
    also: Mapping[int, Tensor] | None = None,
) -> Proved:
    """Combine rows [domains, rows, outputs] less offsets by weights, and bound the combinations.

    Rows and offsets may differ from domain to domain. Combining the rows rounds too; what that can change is bounded
    by the outputs' magnitude, and subtracted.
    """
    last = len(network.nodes) - 1
    proved = bound_functionals(network, region, last, weights @ coefficients, pass_relu, also, below_only=True)
    constant = (weights * offsets[..., None, :]).sum(-1)
    size = coefficients.abs() @ region.magnitude[last].reshape(-1) + offsets.abs()
    error = network.rounding * offsets.shape[-1] * ((weights.abs() * size[..., None, :]).sum(-1) + proved.lower.abs())
    return replace(proved, lower=proved.lower - constant - error, error=proved.error + error)


def bound_elements(
    network: Network, region: Region, node: int, elements: Tensor, slopes: AbstractSlopes, deadline: Deadline
) -> Bounds:
    """Bound some elements of a node over each domain: lower and upper [domains, elements], in chunks that fit
    memory.
    """
    domains = region.lower.shape[0]
    size = network.nodes[node].size
    widest = max(n.size for n in network.nodes[: node + 1])
    step = max(1, (CHUNK_ELEMENTS_CUDA if region.lower.is_cuda else CHUNK_ELEMENTS) // (domains * widest))
    parts: list[tuple[Tensor, Tensor]] = []
    for chunk in elements.split(step):
        deadline.check()
        rows = region.lower.new_zeros(len(chunk), size).scatter(1, chunk[:, None], 1.0)
        f = rows.expand(domains, -1, -1)
        proved = bound_functionals(network, region, node, f, by_slopes(slopes))
        upper = proved.upper
        if not slopes.symmetric:
            upper = -bound_functionals(network, region, node, -f, by_slopes(slopes)).lower
        parts.append((proved.lower, upper))
    return Bounds(torch.cat([p[0] for p in parts], dim=1), torch.cat([p[1] for p in parts], dim=1))
