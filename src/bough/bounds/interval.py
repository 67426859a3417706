"""Interval bounds (the paper's naive relaxation, Figure 1a): a box and known ReLU bounds enter, an enclosure of every
node leaves.

Everything is float64 with an outward margin for rounding, so the enclosures hold in real arithmetic. The same pass
gives the magnitudes that every other error bound in this package is proportional to.
"""

from dataclasses import dataclass

import torch
from torch import Tensor

from bough.domain.batch import Bounds
from bough.network.graph import Network
from bough.network.ops import Relu

UNDERFLOW = 1e-300  # more than the products of any one element can lose by being too small for float64


@dataclass(frozen=True, eq=False)
class Enclosure:
    """For every node: lower and upper [domains, *shape], and the magnitude [domains, *shape] of the sums that form
    it.
    """

    lower: list[Tensor]
    upper: list[Tensor]
    magnitude: list[Tensor]

    def relu_inputs(self, network: Network) -> Bounds:
        """The part that concerns ReLU inputs, flat [domains, neurons]."""
        sources = [network.nodes[i].inputs[0] for i in network.relus]
        none = self.lower[0].flatten(1)[:, :0]  # for networks without ReLUs
        return Bounds(
            torch.cat([none, *(self.lower[i].flatten(1) for i in sources)], dim=1),
            torch.cat([none, *(self.upper[i].flatten(1) for i in sources)], dim=1),
        )


def enclose(network: Network, lower: Tensor, upper: Tensor, known: Bounds | None = None) -> Enclosure:
    """Propagate the boxes [domains, inputs] through the network, intersecting each ReLU's input with what is known of
    it.

    Where the intersection is empty the domain holds no point; the enclosure then still is finite and `lower > upper`
    there.
    """
    domains = lower.shape[0]
    lowers = [lower.reshape(domains, *network.input_shape)]
    uppers = [upper.reshape(domains, *network.input_shape)]
    magnitudes = [torch.maximum(lowers[0].abs(), uppers[0].abs())]
    sources = {network.nodes[i].inputs[0]: network.slices[i] for i in network.relus}
    for i, node in enumerate(network.nodes[1:], start=1):
        if isinstance(node.op, Relu):
            low, high = lowers[node.inputs[0]].relu(), uppers[node.inputs[0]].relu()
            magnitude = magnitudes[node.inputs[0]]
        else:
            low, high, magnitude = _affine(network, i, lowers, uppers)
        if known is not None and i in sources:
            low = torch.fmax(low, known.lower[:, sources[i]].reshape(low.shape))
            high = torch.fmin(high, known.upper[:, sources[i]].reshape(high.shape))
        lowers.append(low)
        uppers.append(high)
        magnitudes.append(magnitude)
    return Enclosure(lowers, uppers, magnitudes)


def _affine(network: Network, i: int, lowers: list[Tensor], uppers: list[Tensor]) -> tuple[Tensor, Tensor, Tensor]:
    """Centre and radius through one affine node, rounded outward by the error of the sums involved."""
    node = network.nodes[i]
    centres = [(lowers[j] + uppers[j]) / 2 for j in node.inputs]
    # Twice the rounding of the two subtractions; an empty interval (lower > upper) gives a radius that still covers
    # both.
    radii = [
        torch.maximum((uppers[j] - c).abs(), (c - lowers[j]).abs()) * (1 + 2**-50)
        for j, c in zip(node.inputs, centres, strict=True)
    ]
    centre = network.apply(i, *centres)
    radius = network.radius.apply(i, *radii)
    magnitude = network.magnitude.apply(i, *(c.abs() + r for c, r in zip(centres, radii, strict=True)))
    error = network.rounding * magnitude + UNDERFLOW
    if bool((magnitude == 0).any()):
        # What is 0 by the weights' zeros is exactly 0, and must not seem ambiguous; what only underflowed is not.
        sizes = [((lowers[j] != 0) | (uppers[j] != 0)).double() for j in node.inputs]
        error = torch.where(network.pattern.apply(i, *sizes) > 0, error, 0.0)
    reach = radius + error
    return centre - reach, centre + reach, magnitude
