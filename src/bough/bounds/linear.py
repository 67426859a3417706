"""Linear bounds: carry functionals of a node back to the input through relaxed ReLUs, and prove bounds of them.

A functional has a coefficient on each element of a node. At a ReLU, `nu` is the coefficient on its output, and `lam`
the one that is put on its input; the least difference of the two terms between the ReLU's bounds is added to the bound
(`relaxation.extremes`). Any `lam` gives a valid bound, so a rounded `lam` counts as exact. Rounding enters where
coefficients pass an operator: at most `rounding * sum(|coefficient| * magnitude)` at a node, with magnitudes from
interval bounds. That error is subtracted, so every bound returned here holds in real arithmetic.
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

CHUNK_ELEMENTS = 1 << 20  # float64 elements of the widest node in a chunk: the deadline is checked between chunks
CHUNK_ELEMENTS_CUDA = 1 << 26  # a GPU is fast on larger chunks only


@dataclass(frozen=True, eq=False)
class Region:
    """A region is where functionals are bounded: a batch of domains, each a box with ReLU bounds; all within one ball.

    `lower` and `upper` [domains, inputs] are the boxes; magnitudes and underflow cover all domains.
    """

    lower: Tensor
    upper: Tensor
    bounds: Bounds
    magnitude: list[Tensor]  # of each node [*shape]: the largest absolute value of every element
    underflow: float  # the most that a functional can lose by coefficients that underflow in float64
    ball: Ball | None = None

    def with_bounds(self, bounds: Bounds) -> "Region":
        """The first box of the region, once for each domain of the bounds."""
        count = bounds.lower.shape[0]
        return replace(
            self, lower=self.lower[:1].expand(count, -1), upper=self.upper[:1].expand(count, -1), bounds=bounds
        )


PassRelu = Callable[[slice, Tensor, Tensor, Tensor], tuple[Tensor, Tensor]]
"""A function that chooses `lam` for the ReLUs of a layer, and says which of them may lose something.

It takes the layer's place among all ReLUs, nu [domains, rows, n], and bounds [domains, 1, n]. It returns lam, shaped
like nu, and the places (int64) in the layer of those ReLUs.
"""


def by_slopes(slopes: AbstractSlopes) -> PassRelu:
    """Make a function that sets lam to nu at passing ReLUs, to 0 at blocked ones, and by slopes at ambiguous ones."""

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
    """Make a function that takes lam from given multipliers [domains, neurons].

    Where one is not a number, lam is nu if the ReLU is passing, and else 0.
    """

    def pass_relu(part: slice, nu: Tensor, lower: Tensor, upper: Tensor) -> tuple[Tensor, Tensor]:
        del upper
        given = multipliers[:, None, part].expand_as(nu)
        return torch.where(given.isnan(), nu * (lower >= 0), given), torch.arange(nu.shape[-1], device=nu.device)

    return pass_relu


@dataclass(frozen=True, eq=False)
class Proved:
    """Proved bounds of functionals, [domains, rows], and the coefficients that reach the input (one axis more)."""

    lower: Tensor
    upper: Tensor
    inputs: Tensor
    error: Tensor  # [domains, rows]: what was subtracted from the lower bound for rounding


def bound_functionals(
    network: Network,
    region: Region,
    node: int,
    functionals: Tensor,
    pass_relu: PassRelu,
    also: Mapping[int, Tensor] | None = None,
    *,
    below_only: bool = False,
) -> Proved:
    """Bound functionals [domains, rows, elements of the node] over each domain of the region.

    `also` holds further terms of the same functionals, for some earlier nodes: [domains, rows, elements of that node].
    The upper bound is always valid, and as tight as the lower one if -nu gets the slopes of nu. With `below_only` it is
    infinite.
    """
    domains, rows = functionals.shape[:2]
    least, greatest, magnitude = (functionals.new_zeros(domains, rows) for _ in range(3))

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
            out, into, low, high = nu[..., columns], lam[..., columns], lower[..., columns], upper[..., columns]
            least_gap, greatest_gap = extremes(out, into, low, high, below_only=below_only)
            least.add_(least_gap.sum(-1))
            if greatest_gap is not None:
                greatest.add_(greatest_gap.sum(-1))
            # What the two terms can be, in size; their difference rounds by a share of that.
            magnitude.add_((into.abs() * torch.maximum(low.abs(), high.abs()) + out.abs() * high.relu()).sum(-1))
        return lam.reshape(arriving.shape)

    seed = functionals.reshape(domains * rows, *network.nodes[node].shape)
    more = {i: t.reshape(domains * rows, *network.nodes[i].shape) for i, t in (also or {}).items()}
    g = walk.backward(network, node, seed, relu, visit, more).reshape(domains, rows, -1)
    inputs = proved_range(g, region.lower, region.upper, region.ball, network.rounding)
    error = network.rounding * (magnitude + inputs.magnitude) + region.underflow
    upper = torch.full_like(error, torch.inf) if below_only else greatest + inputs.greatest + error
    return Proved(least + inputs.least - error, upper, g, error)


def bound_clause(network: Network, region: Region, clause: Clause, weights: Tensor, pass_relu: PassRelu) -> Tensor:
    """Proved lower bounds [domains, n] of weighted sums of a clause's row margins, for weights [domains, n, rows]."""
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
    """Bound weighted sums of rows [domains, rows, outputs] less their offsets.

    Each domain may have rows and offsets of its own. The weighted sum rounds, too; a bound on that error is subtracted.
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
    """Bound some elements of a node over each domain, [domains, elements], in chunks; the deadline is checked before
    each.
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
