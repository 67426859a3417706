"""The network under verification, immutable: topologically ordered nodes with known shapes, and its ReLUs counted
flat.
"""

import math
from collections import Counter
from dataclasses import dataclass, fields, replace
from functools import cached_property
from typing import Any

import torch
from torch import Tensor

from bough.network.ops import Conv, Linear, Operator, Relu, Scale

Shape = tuple[int, ...]


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
        starts, start = {}, 0
        for i in self.relus:
            starts[i] = slice(start, start + self.nodes[i].size)
            start += self.nodes[i].size
        return starts

    @property
    def neurons(self) -> int:
        """Number of ReLUs in all."""
        return sum(self.nodes[i].size for i in self.relus)

    def on(self, device: torch.device, dtype: torch.dtype = torch.float64) -> "Network":
        """The same network with its weights on a device, in a precision, made once."""
        if device.type == "cpu" and dtype == torch.float64:
            return self
        key = device, dtype
        if key not in self._elsewhere:
            self._elsewhere[key] = Network(tuple(replace(n, op=_moved(n.op, device, dtype)) for n in self.nodes))
        return self._elsewhere[key]

    @cached_property
    def _elsewhere(self) -> dict[tuple[torch.device, torch.dtype], "Network"]:
        return {}

    @cached_property
    def magnitude(self) -> "Network":
        """The same graph with absolute weights and bias magnitudes: what rounding errors are proportional to."""
        return Network(tuple(replace(node, op=_absolute(node.op)) for node in self.nodes))

    @cached_property
    def radius(self) -> "Network":
        """The same graph with absolute weights and no bias: how the half-widths of boxes travel."""
        return Network(tuple(replace(node, op=_without_bias(_absolute(node.op))) for node in self.nodes))

    @cached_property
    def pattern(self) -> "Network":
        """The same graph with 1 for every weight and bias that is not 0: which elements can be other than exactly 0."""
        return Network(tuple(replace(node, op=_nonzero(_absolute(node.op))) for node in self.nodes))

    def linear_part(self, last: int) -> "Network":
        """The nodes up to one, without their biases."""
        return Network(tuple(replace(node, op=_without_bias(node.op)) for node in self.nodes[: last + 1]))

    @property
    def multiplications(self) -> int:
        """Of one evaluation at one point."""
        return sum(_multiplications(node) for node in self.nodes)

    @cached_property
    def rounding(self) -> float:
        """Relative error bound, twice over, of any sum this network's operators form in float64 (Higham's gamma_n).

        n counts the longest sum: products in one element of an operator or of its transpose, consumers of a node, or
        elements of a node in a dot product; then one sum over all nodes, and slack for the few operations around it.
        """
        consumers = Counter(i for node in self.nodes for i in node.inputs)
        longest = max(max(_terms(node), node.size) for node in self.nodes)
        terms = longest + max(consumers.values(), default=0) + 4 * len(self.nodes) + 16
        unit = torch.finfo(torch.float64).eps / 2
        return 2 * terms * unit / (1 - terms * unit)


def _moved(op: Operator, device: torch.device, dtype: torch.dtype) -> Operator:
    def moved(value: Any) -> Any:
        if not isinstance(value, Tensor):
            return value
        return value.to(device, dtype) if value.is_floating_point() else value.to(device)

    make: Any = type(op)
    made: Operator = make(**{f.name: moved(getattr(op, f.name)) for f in fields(op)})
    return made


def _absolute(op: Operator) -> Operator:
    if isinstance(op, Linear | Conv):
        return replace(op, weight=op.weight.abs(), bias=op.bias_magnitude)
    if isinstance(op, Scale):
        return replace(op, factor=op.factor.abs(), bias=op.bias_magnitude)
    return op


def _without_bias(op: Operator) -> Operator:
    if isinstance(op, Linear | Conv | Scale):
        return replace(op, bias=torch.zeros_like(op.bias))
    return op


def _nonzero(op: Operator) -> Operator:
    if isinstance(op, Linear | Conv):
        return replace(op, weight=(op.weight > 0).double(), bias=(op.bias > 0).double())
    if isinstance(op, Scale):
        return replace(op, factor=(op.factor > 0).double(), bias=(op.bias > 0).double())
    return op


def _multiplications(node: Node) -> int:
    if isinstance(node.op, Linear | Conv):
        weight: Tensor = node.op.weight
        return node.size * math.prod(weight.shape[1:])
    return node.size


def _terms(node: Node) -> int:
    """Most products summed in one element of the operator or of its transpose."""
    if isinstance(node.op, Linear | Conv):
        weight: Tensor = node.op.weight
        taps = math.prod(weight.shape[2:])
        return max(weight.shape[0], weight.shape[1]) * taps + 1
    return 2
