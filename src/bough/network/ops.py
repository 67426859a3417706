"""The operators a verified network is made of: eight immutable values; every file format is read into these.

All weights are float64 copies of what the file holds. Each affine operator also carries the *magnitude* of its bias: a
bound on the size of the numbers the bias was computed from (larger than the bias itself where batch
normalisation was folded in), so that rounding errors made while reading are covered by the error bounds.
"""

from dataclasses import dataclass

from torch import Tensor


@dataclass(frozen=True, eq=False)
class Input:
    """The point under verification."""


@dataclass(frozen=True, eq=False)
class Linear:
    """`weight @ x + bias` on the last axis; weight is [out, in]."""

    weight: Tensor
    bias: Tensor
    bias_magnitude: Tensor


@dataclass(frozen=True, eq=False)
class Conv:
    """Two-dimensional convolution of [channels, height, width]; padding is (top, left, bottom, right)."""

    weight: Tensor
    bias: Tensor
    bias_magnitude: Tensor
    stride: tuple[int, int]
    padding: tuple[int, int, int, int]
    dilation: tuple[int, int]
    groups: int


@dataclass(frozen=True, eq=False)
class Scale:
    """Element-wise `factor * x + bias`, both of the node's own shape."""

    factor: Tensor
    bias: Tensor
    bias_magnitude: Tensor


@dataclass(frozen=True, eq=False)
class Select:
    """Picks elements by flat index (slices, transposes, pooling windows); the index has the node's shape, flattened."""

    index: Tensor


@dataclass(frozen=True, eq=False)
class Reshape:
    """The same elements in another shape."""


@dataclass(frozen=True, eq=False)
class Add:
    """The sum of two nodes of one shape (residual connections)."""


@dataclass(frozen=True, eq=False)
class Relu:
    """`max(x, 0)`, the only operator that is not affine."""


Operator = Input | Linear | Conv | Scale | Select | Reshape | Add | Relu
OPERATORS: tuple[type, ...] = (Input, Linear, Conv, Scale, Select, Reshape, Add, Relu)
