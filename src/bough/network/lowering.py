"""Tensor operations as file formats know them, with batch axes and broadcasting, lowered to nodes of a `GraphBuilder`.

In go values whose shape includes the batch axis, and numpy constants; out come values. The readers of ONNX files and of
PyTorch modules share this, so that an operator is lowered once.
"""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from numpy.typing import ArrayLike, NDArray
from torch import Tensor

from bough.errors import NetworkError, UnsupportedOperator
from bough.network.ops import Shape
from bough.network.rewrite import LARGEST_NODE, GraphBuilder, Window

Array = NDArray[Any]


@dataclass(frozen=True)
class Value:
    """A tensor that depends on the input: the elements of a node, in row-major order, in the file's own shape.

    A change of shape alone is thus free; nodes are reshaped where an operator needs it. Arithmetic with constants and
    other values broadcasts.
    """

    builder: GraphBuilder
    node: int
    shape: Shape

    __array_ufunc__ = None  # NumPy leaves arithmetic with a value to the value

    def positions(self) -> NDArray[np.int64]:
        """The flat position of every element: what an operation that only moves elements is applied to."""
        return np.arange(math.prod(self.shape), dtype=np.int64).reshape(self.shape)

    def rearrange(self, index: NDArray[np.int64]) -> "Value":
        """The elements at `index`, in its shape: every slice, transposition and repetition is one of these."""
        small(index.shape)
        if index.size == math.prod(self.shape) and bool((index.reshape(-1) == np.arange(index.size)).all()):
            return Value(self.builder, self.node, index.shape)
        inner = index[0] if index.ndim > 1 and index.shape[0] == 1 else index.reshape(index.shape or (1,))
        node = self.builder.select(self.node, torch.from_numpy(np.array(inner, dtype=np.int64)))
        return Value(self.builder, node, index.shape)

    def broadcast(self, shape: Shape) -> "Value":
        """The value repeated along its axes of length one to the given shape."""
        return self if self.shape == shape else self.rearrange(np.broadcast_to(self.positions(), shape))

    def affine(self, factor: ArrayLike = 1.0, bias: ArrayLike = 0.0) -> "Value":
        """`factor * x + bias`, all three broadcast against each other."""
        factor, bias = constant(factor), np.asarray(bias, np.float64)
        x = self.broadcast(np.broadcast_shapes(self.shape, factor.shape, bias.shape))
        inner = self.builder.shape(x.node)
        factor, bias = (tensor(np.broadcast_to(t, x.shape)).reshape(inner) for t in (factor, bias))
        return Value(self.builder, self.builder.scale(x.node, factor, bias), x.shape)

    def __add__(self, y: Any) -> "Value":
        if not isinstance(y, Value):
            return self.affine(1.0, y)
        shape = np.broadcast_shapes(self.shape, y.shape)
        a, b = self.broadcast(shape).node, y.broadcast(shape).node
        return Value(self.builder, self.builder.add(a, self.builder.reshape(b, self.builder.shape(a))), shape)

    __radd__ = __add__

    def __neg__(self) -> "Value":
        return self.affine(-1.0)

    def __sub__(self, y: Any) -> "Value":
        return self + (-y if isinstance(y, Value) else -constant(y))

    def __rsub__(self, y: Any) -> "Value":
        return self.affine(-1.0, y)

    def __mul__(self, y: Any) -> "Value":
        return self.affine(y)

    __rmul__ = __mul__

    def __truediv__(self, y: Any) -> "Value":
        if isinstance(y, Value):
            return y.__rtruediv__(self)
        divisor = constant(y)
        if not bool(divisor.all()):
            raise NetworkError("it divides by zero")
        own = np.asarray(y).dtype
        kind = own if own.kind == "f" else divisor.dtype
        least = float(np.abs(divisor).min(initial=np.inf))
        if least < float(np.finfo(kind).tiny):  # which has few digits, or none where a runtime takes it for 0
            raise NetworkError(
                f"it divides by {least:g}, next to nothing: {kind} holds no such number in full precision"
            )
        return self.affine(1.0 / divisor)

    def __rtruediv__(self, y: Any) -> "Value":
        raise UnsupportedOperator("a division by a computed value is not affine")

    def __matmul__(self, y: Any) -> "Value":
        weight = constant(y)
        if weight.ndim not in (1, 2) or not self.shape or self.shape[-1] != weight.shape[0]:
            raise NetworkError(
                f"a value of shape {self.shape} cannot be multiplied by a constant of shape {weight.shape}"
            )
        features = weight.shape[0]
        rows = math.prod(self.shape[:-1])
        node = self.builder.reshape(self.node, (features,) if rows == 1 else (rows, features))
        node = self.builder.linear(node, tensor(weight.reshape(features, -1).T))
        return Value(self.builder, node, self.shape[:-1] + weight.shape[1:])

    def __rmatmul__(self, y: Any) -> "Value":
        weight = constant(y)
        if len(self.shape) == 1:
            return self @ weight.T
        turned = self._turned() @ weight.T
        return turned if weight.ndim == 1 else turned._turned()

    def _turned(self) -> "Value":
        return self.rearrange(self.positions().swapaxes(-1, -2))

    def relu(self) -> "Value":
        """Add a ReLU, `max(x, 0)`."""
        return Value(self.builder, self.builder.relu(self.node), self.shape)

    def total(self, axes: Sequence[int], keep: bool, average: bool = False) -> "Value":
        """Sum or mean over some axes, which are kept with length one or dropped."""
        over = sorted({axis % len(self.shape) for axis in axes})
        rest = [axis for axis in range(len(self.shape)) if axis not in over]
        moved = self.positions().transpose(*rest, *over).reshape(*(self.shape[axis] for axis in rest), -1)
        summed = self.rearrange(moved) @ np.full(moved.shape[-1], 1.0 / moved.shape[-1] if average else 1.0)
        kept = tuple(1 if axis in over else n for axis, n in enumerate(self.shape))
        return Value(self.builder, summed.node, kept) if keep else summed

    def pad(self, widths: Sequence[tuple[int, int]], fill: float) -> "Value":
        """The value with a constant around it; widths are (before, after) for each axis."""
        small(tuple(n + before + after for n, (before, after) in zip(self.shape, widths, strict=True)))
        inside = np.pad(np.ones(self.shape), widths)
        return self.rearrange(np.pad(self.positions(), widths)).affine(inside, fill * (1 - inside))

    def conv(self, weight: Any, bias: Any, window: Window, groups: int) -> "Value":
        """Convolution of an image or a sequence; `window` is from `flat_window`."""
        weight = constant(weight)
        if len(self.shape) != weight.ndim:
            raise NetworkError(f"a kernel of shape {weight.shape} does not fit an input of shape {self.shape}")
        kernel = tensor(weight.reshape(*weight.shape[:2], *window.kernel))
        offset = None if bias is None else tensor(bias)
        return self.on_image(GraphBuilder.conv, kernel, offset, window.stride, window.padding, window.dilation, groups)

    def on_image(self, operation: Callable[..., int], *arguments: Any) -> "Value":
        """What the builder's operation on [channels, height, width] gives for a batch of one image or sequence."""
        if len(self.shape) not in (3, 4) or self.shape[0] != 1:
            raise UnsupportedOperator(f"an input of shape {self.shape} is no single image or sequence of channels")
        ones = (1,) * (4 - len(self.shape))  # a sequence has height one
        image = self.builder.reshape(self.node, (self.shape[1], *ones, *self.shape[2:]))
        node = operation(self.builder, image, *arguments)
        channels, *lengths = self.builder.shape(node)
        return Value(self.builder, node, (1, channels, *lengths[len(ones) :]))

    def batch_norm(self, statistics: Sequence[ArrayLike], epsilon: float) -> "Value":
        """Batch normalisation of axis 1 by fixed statistics: gamma, beta, mean and variance."""
        if len(self.shape) < 2 or self.shape[0] != 1:
            raise UnsupportedOperator(
                f"batch normalisation needs an input of shape (1, channels, ...), not {self.shape}"
            )
        gamma, beta, mean, variance = (tensor(t) for t in statistics)
        node = self.node
        # Where the node's own first axis is the channels, no reshape comes between it and what it is folded into.
        if self.builder.shape(node)[0] != self.shape[1]:
            node = self.builder.reshape(node, self.shape[1:])
        return Value(self.builder, self.builder.batch_norm(node, gamma, beta, mean, variance, epsilon), self.shape)


def network_input(builder: GraphBuilder, shape: Sequence[int]) -> Value:
    """The input of the network; its leading axis of length one is the batch axis."""
    inner = shape[1:] if len(shape) > 1 and shape[0] == 1 else shape
    return Value(builder, builder.input(inner or (1,)), tuple(shape))


def constant(x: Any) -> NDArray[np.float64]:
    """A factor that does not depend on the input, as float64."""
    if isinstance(x, Value):
        raise UnsupportedOperator("a product of two computed values is not affine")
    return np.asarray(x, np.float64)


def tensor(array: ArrayLike) -> Tensor:
    """A constant as a float64 tensor of its own."""
    return torch.from_numpy(np.array(array, dtype=np.float64))


def small(shape: tuple[int, ...]) -> tuple[int, ...]:
    """The shape of a tensor that is about to be made; raises where it would be too large."""
    if np.prod([float(n) for n in shape]) > LARGEST_NODE:
        raise NetworkError(f"a tensor of shape {shape} is too large; up to {LARGEST_NODE} elements are supported")
    return shape


def concatenate(parts: Sequence[Value | Array], axis: int) -> Value:
    """Values and constants joined along an axis, as a sum of the parts, each spread to the whole and masked."""
    size = sum(math.prod(p.shape) for p in parts)
    if size > LARGEST_NODE:
        raise NetworkError(f"{size} elements joined are too many; up to {LARGEST_NODE} are supported")
    owner = np.concatenate([np.full(p.shape, i) for i, p in enumerate(parts)], axis)
    places = [p.positions() if isinstance(p, Value) else np.zeros(p.shape, np.int64) for p in parts]
    index = np.concatenate(places, axis)
    fixed = np.concatenate([np.zeros(p.shape) if isinstance(p, Value) else constant(p) for p in parts], axis)
    total: Value | None = None
    for i, part in enumerate(parts):
        if isinstance(part, Value):
            mask = owner == i
            spread = part.rearrange(np.where(mask, index, 0)).affine(mask, fixed if total is None else 0.0)
            total = spread if total is None else total + spread
    if total is None:
        raise NetworkError("a concatenation of constants alone has no value to join")
    return total


def flat_window(
    kernel: Sequence[int],
    stride: Sequence[int],
    padding: Sequence[int],
    dilation: Sequence[int],
    ceil_mode: bool = False,
) -> Window:
    """A window over one or two axes as one over two; padding is (begin of each axis, end of each axis)."""
    axes = len(kernel)
    if axes not in (1, 2):
        raise UnsupportedOperator(f"a window over {axes} axes is given; 1 and 2 are supported")
    if not axes == len(stride) == len(dilation) == len(padding) / 2:
        raise NetworkError(f"strides, dilations or pads do not fit a window over {axes} axes")
    if axes == 1:
        return flat_window((1, *kernel), (1, *stride), (0, padding[0], 0, padding[1]), (1, *dilation), ceil_mode)
    k, s, d = ((int(pair[0]), int(pair[1])) for pair in (kernel, stride, dilation))
    top, left, bottom, right = (int(n) for n in padding)
    return Window(k, s, (top, left, bottom, right), d, ceil_mode)
