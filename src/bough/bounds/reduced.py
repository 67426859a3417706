"""The network between its ambiguous ReLUs, everything else substituted: root bounds enter, a few dense matrices leave.

Over one box, ReLUs that the root bounds decide are the identity or zero, so the input z of every ambiguous ReLU, and
every output, is an affine function of the input and of the outputs x of earlier ambiguous ReLUs:

    z = inputs @ s + between @ x + centre,    input point = centre of the box + radius * s,  s in [-1, 1]

Bounds that are optimised many times over do all their work on these matrices, as large products that CPUs and GPUs
are good at, whatever the network looked like. Nothing proved rests on them: `linear` proves on the network itself.
"""

from dataclasses import dataclass
from functools import cached_property

import torch
from torch import Tensor

from bough.bounds.linear import Region
from bough.bounds.relaxation import chord
from bough.budget import Deadline
from bough.network import walk
from bough.network.graph import Network
from bough.problem.property import Ball

CHUNK_ROWS = 256


@dataclass(frozen=True, eq=False)
class Stem:
    """The first affine stretch of a network that the input only enters through its first ReLU layer.

    There, `inputs` is a product: of that stretch (often a convolution, hence sparse) and of what its ambiguous and
    passing ReLUs are to the rows. Two thin products instead of a wide one, which is what a CPU wants.
    """

    network: Network  # up to the first ReLU layer's input, without biases
    ambiguous: Tensor  # int64: elements of that input
    passing: Tensor
    through: Tensor  # [rows after the first layer, passing]

    def to(self, device: torch.device, dtype: torch.dtype) -> "Stem":
        """The same on a device, in a precision."""
        network = self.network.on(device, dtype)
        return Stem(network, self.ambiguous.to(device), self.passing.to(device), self.through.to(device, dtype))

    @property
    def work(self) -> int:
        """Multiplications of one pass."""
        return self.through.numel() + self.network.multiplications


@dataclass(frozen=True, eq=False)
class Reduced:
    """Ambiguous ReLUs are numbered 0..n-1 in the order of their layers; rows n.. are the network's outputs."""

    neurons: Tensor  # int64 [n]: their flat numbers in the network
    layers: tuple[slice, ...]  # of each ReLU layer, its part of 0..n-1
    inputs: Tensor  # [n + outputs, inputs], times the radius of the box
    between: Tensor  # [n + outputs, n]: block lower triangular
    centre: Tensor  # [n + outputs]: values at the centre of the box with every x = 0
    lower: Tensor  # [n], at the root
    upper: Tensor
    middle: Tensor  # [inputs], of the box, float64
    radius: Tensor
    ball: Ball | None = None  # what else the input is in
    stem: Stem | None = None  # where it makes a pass cheaper

    def to(self, device: torch.device, dtype: torch.dtype) -> "Reduced":
        """The same on a device, in a precision."""
        inputs, between, centre, lower, upper = (
            t.to(device, dtype) for t in (self.inputs, self.between, self.centre, self.lower, self.upper)
        )
        ball = None if self.ball is None else self.ball.to(device, torch.float64)
        sides = self.middle.to(device), self.radius.to(device)
        stem = None if self.stem is None else self.stem.to(device, dtype)
        return Reduced(self.neurons.to(device), self.layers, inputs, between, centre, lower, upper, *sides, ball, stem)

    @cached_property
    def slope(self) -> Tensor:
        """The slope of every chord, [n]."""
        return chord(self.lower, self.upper)

    @cached_property
    def intercept(self) -> Tensor:
        """The intercept of every chord, [n]."""
        return -self.lower.clamp(max=0) * self.slope

    @cached_property
    def between_t(self) -> Tensor:
        """Transposed, in the memory order that products want."""
        return self.between.T.contiguous()


def reduce(network: Network, root: Region, deadline: Deadline | None = None) -> Reduced:
    """Substitute what the root bounds decide; `root` is a region of one domain."""
    ambiguous = root.bounds.ambiguous()[0]
    passing = root.bounds.lower[0] >= 0
    inside = {i: ambiguous[part].nonzero()[:, 0] for i, part in network.slices.items()}
    layers = {}
    count = 0
    for i, elements in inside.items():
        layers[i] = slice(count, count + len(elements))
        count += len(elements)
    last = len(network.nodes) - 1
    rows = count + network.outputs
    stem = _stem(network, inside, passing, rows)
    between = root.lower.new_zeros(rows, count)
    centre = root.lower.new_zeros(rows)
    inputs = root.lower.new_zeros(rows, network.inputs)
    targets = [(network.nodes[i].inputs[0], inside[i], layers[i].start) for i in network.relus]
    for node, elements, start in [*targets, (last, torch.arange(network.outputs, device=ambiguous.device), count)]:
        for first, chunk in enumerate(elements.split(CHUNK_ROWS) if len(elements) else ()):
            if deadline is not None:
                deadline.check()
            part = slice(start + first * CHUNK_ROWS, start + first * CHUNK_ROWS + len(chunk))
            f = root.lower.new_zeros(len(chunk), network.nodes[node].size).scatter(1, chunk[:, None], 1.0)

            def visit(i: int, g: Tensor, part: slice = part) -> None:
                constant = network.nodes[i].op.bias_term(g)
                if constant is not None:
                    centre[part] += constant

            def relu(i: int, g: Tensor, part: slice = part) -> Tensor:
                nu = g.reshape(g.shape[0], -1)
                if stem is not None and i == network.relus[0]:
                    later = slice(part.start - len(stem.ambiguous), part.stop - len(stem.ambiguous))
                    stem.through[later] = nu[:, stem.passing]
                between[part, layers[i]] = nu[:, inside[i]]
                return (nu * passing[network.slices[i]]).reshape(g.shape)

            seed = f.reshape(len(chunk), *network.nodes[node].shape)
            inputs[part] = walk.backward(network, node, seed, relu, visit).reshape(len(chunk), -1)
    middle = (root.lower[0] + root.upper[0]) / 2
    radius = (root.upper[0] - root.lower[0]) / 2
    neurons = ambiguous.nonzero()[:, 0]
    bounds = root.bounds.lower[0][neurons], root.bounds.upper[0][neurons]
    matrices = inputs * radius, between, centre + inputs @ middle
    if stem is not None and stem.work > inputs.numel():
        stem = None
    return Reduced(neurons, tuple(layers.values()), *matrices, *bounds, middle, radius, root.ball, stem)


def _stem(network: Network, inside: dict[int, Tensor], passing: Tensor, rows: int) -> Stem | None:
    """The network's stem, its `through` still to be filled in; None where the input also goes another way."""
    if not network.relus:
        return None
    first = network.relus[0]
    source = network.nodes[first].inputs[0]
    if any(j <= source for i, node in enumerate(network.nodes) if i > source and i != first for j in node.inputs):
        return None
    through = passing[network.slices[first]].nonzero()[:, 0]
    later = passing.new_zeros(rows - len(inside[first]), len(through), dtype=torch.float64)
    return Stem(network.linear_part(source), inside[first], through, later)
