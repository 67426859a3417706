"""The network under verification, immutable: topologically ordered nodes with known shapes, and its ReLUs counted
flat.
"""

import math
from collections import Counter
from dataclasses import dataclass, field, replace
from functools import cached_property
from itertools import accumulate

import torch
from torch import Tensor

from bough.network.ops import AbstractAffine, Biases, Input, Operator, Relu, Shape, Weights


@dataclass(frozen=True, eq=False)
class Node:
    """One operator applied to earlier nodes; `shape` leaves out the batch axis."""

    op: Operator
    inputs: tuple[int, ...]
    shape: Shape
    name: str

    @property
    def size(self) -> int:
        """Number of elements."""
        return math.prod(self.shape)


@dataclass(frozen=True, eq=False)
class Network:
    """Nodes in topological order; node 0 is the input, the last node the output.

    The ReLUs of all layers are numbered in one flat sequence, layer after layer, row-major inside a layer: bounds,
    splits and scores are indexed by this number everywhere.
    """

    nodes: tuple[Node, ...]
    cast: str | None = None  # where the file rounds computed doubles to float, which no node does here
    _elsewhere: dict[tuple[torch.device, torch.dtype], "Network"] = field(default_factory=dict, init=False, repr=False)

    @property
    def input_shape(self) -> Shape:
        """Shape of the point under verification, without a batch axis."""
        return self.nodes[0].shape

    @property
    def inputs(self) -> int:
        """Number of input elements."""
        return self.nodes[0].size

    @property
    def outputs(self) -> int:
        """Number of output elements."""
        return self.nodes[-1].size

    @cached_property
    def relus(self) -> tuple[int, ...]:
        """Node numbers of the ReLU layers, in order."""
        return tuple(i for i, node in enumerate(self.nodes) if isinstance(node.op, Relu))

    @cached_property
    def slices(self) -> dict[int, slice]:
        """For each ReLU node, its part of the flat numbering."""
        sizes = [self.nodes[i].size for i in self.relus]
        return {i: slice(end - n, end) for i, n, end in zip(self.relus, sizes, accumulate(sizes), strict=True)}

    @property
    def neurons(self) -> int:
        """Number of ReLUs in all."""
        return sum(self.nodes[i].size for i in self.relus)

    def apply(self, i: int, *inputs: Tensor) -> Tensor:
        """The value of node `i` from the values of its inputs, all with a leading batch axis."""
        node = self.nodes[i]
        return node.op.apply(node.shape, *inputs)

    def transpose(self, i: int, f: Tensor) -> tuple[Tensor, ...]:
        """What functionals `f` of affine node `i` are of each of its inputs, constants left out."""
        op, shapes = self.affine[i]
        return op.transpose(shapes, f)

    @cached_property
    def affine(self) -> dict[int, tuple[AbstractAffine, list[Shape]]]:
        """For each affine node, its operator, and the shapes of its inputs."""
        return {
            i: (node.op, [self.nodes[j].shape for j in node.inputs])
            for i, node in enumerate(self.nodes)
            if not isinstance(node.op, Input | Relu)
        }

    def on(self, device: torch.device, dtype: torch.dtype = torch.float64) -> "Network":
        """The same network with its weights on a device, in a precision, made once."""
        if device.type == "cpu" and dtype == torch.float64:
            return self
        key = device, dtype
        if key not in self._elsewhere:
            self._elsewhere[key] = Network(tuple(replace(n, op=_moved(n.op, device, dtype)) for n in self.nodes))
        return self._elsewhere[key]

    @cached_property
    def magnitude(self) -> "Network":
        """The same graph with absolute weights and bias magnitudes: what rounding errors are proportional to."""
        return _changed(self.nodes, torch.abs, lambda _, size: (size, size))

    @cached_property
    def radius(self) -> "Network":
        """The same graph with absolute weights and no bias: how the half-widths of boxes travel."""
        return _changed(self.nodes, torch.abs, _no_bias)

    @cached_property
    def pattern(self) -> "Network":
        """The same graph with 1 for every weight and bias that is not 0: which elements can be other than exactly 0."""
        return _changed(self.nodes, _ones, lambda _, size: (_ones(size), size))

    def linear_part(self, last: int) -> "Network":
        """The nodes up to one, without their biases."""
        return _changed(self.nodes[: last + 1], lambda weight: weight, _no_bias)

    @property
    def multiplications(self) -> int:
        """Multiplications of one evaluation at one point; where nothing is multiplied, an element counts as one."""
        return sum(node.size * max(1, node.op.products) for node in self.nodes)

    @cached_property
    def rounding(self) -> float:
        """Relative error bound, twice over, of any sum this network's operators form in float64 (Higham's gamma_n).

        n counts the longest sum: products in one element of an operator or of its transpose, consumers of a node, or
        elements of a node in a dot product; then one sum over all nodes, and slack for the few operations around it.
        """
        consumers = Counter(i for node in self.nodes for i in node.inputs)
        longest = max(max(node.op.terms, node.size) for node in self.nodes)
        terms = longest + max(consumers.values(), default=0) + 4 * len(self.nodes) + 16
        unit = torch.finfo(torch.float64).eps / 2
        return 2 * terms * unit / (1 - terms * unit)


def _changed(nodes: tuple[Node, ...], weights: Weights, biases: Biases) -> Network:
    return Network(tuple(replace(node, op=node.op.changed(weights, biases)) for node in nodes))


def _no_bias(bias: Tensor, magnitude: Tensor) -> tuple[Tensor, Tensor]:
    return torch.zeros_like(bias), magnitude


def _ones(t: Tensor) -> Tensor:
    """1 for what is not 0."""
    return (t.abs() > 0).double()


def _moved(op: Operator, device: torch.device, dtype: torch.dtype) -> Operator:
    tensors = ((name, t) for name, t in vars(op).items() if isinstance(t, Tensor))
    return replace(op, **{name: t.to(device, dtype if t.is_floating_point() else t.dtype) for name, t in tensors})
