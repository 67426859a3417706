"""Tensor operations as file formats know them, with batch axes and broadcasting, lowered to nodes of a `GraphBuilder`.

In go values whose shape includes the batch axis, and numpy constants; out come values. The readers of ONNX files and of
PyTorch modules share this, so that an operator is lowered once.
"""

from collections.abc import Sequence
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

    A change of shape alone is thus free; nodes are reshaped where an operator needs it.
    """

    node: int
    shape: Shape


def network_input(builder: GraphBuilder, shape: Sequence[int]) -> Value:
    """The input of the network; its leading axis of length one is the batch axis."""
    inner = shape[1:] if len(shape) > 1 and shape[0] == 1 else shape
    return Value(builder.input(inner or (1,)), tuple(shape))


def tensor(array: ArrayLike) -> Tensor:
    """A constant as a float64 tensor of its own."""
    return torch.from_numpy(np.array(array, dtype=np.float64))


def positions(x: Value) -> NDArray[np.int64]:
    """The flat position of every element: what an operation that only moves elements is applied to."""
    return np.arange(int(np.prod(x.shape, dtype=np.int64)), dtype=np.int64).reshape(x.shape)


def rearrange(builder: GraphBuilder, x: Value, index: NDArray[np.int64]) -> Value:
    """The elements of `x` at `index`, in its shape: every slice, transposition and repetition is one of these."""
    if index.size > LARGEST_NODE:
        raise NetworkError(f"a tensor of shape {index.shape} is too large; up to {LARGEST_NODE} elements are supported")
    flat = index.reshape(-1)
    size = int(np.prod(x.shape, dtype=np.int64))
    if flat.size == size and bool((flat == np.arange(size)).all()):
        return Value(x.node, index.shape)
    inner = index[0] if index.ndim > 1 and index.shape[0] == 1 else index.reshape(index.shape or (1,))
    return Value(builder.select(x.node, torch.from_numpy(np.array(inner, dtype=np.int64))), index.shape)


def broadcast(builder: GraphBuilder, x: Value, shape: Shape) -> Value:
    """`x` repeated along its axes of length one to the given shape."""
    return x if x.shape == shape else rearrange(builder, x, np.broadcast_to(positions(x), shape))


def relu(builder: GraphBuilder, x: Value) -> Value:
    """Add a ReLU, `max(x, 0)`."""
    return Value(builder.relu(x.node), x.shape)


def affine(builder: GraphBuilder, x: Value, factor: ArrayLike = 1.0, bias: ArrayLike = 0.0) -> Value:
    """`factor * x + bias`, all three broadcast against each other."""
    factor, bias = np.asarray(factor, np.float64), np.asarray(bias, np.float64)
    x = broadcast(builder, x, np.broadcast_shapes(x.shape, factor.shape, bias.shape))
    inner = builder.shape(x.node)
    factor, bias = (tensor(np.broadcast_to(t, x.shape)).reshape(inner) for t in (factor, bias))
    return Value(builder.scale(x.node, factor, bias), x.shape)


def add(builder: GraphBuilder, x: Value, y: Value) -> Value:
    """The sum of two values, broadcast against each other."""
    shape = np.broadcast_shapes(x.shape, y.shape)
    x, y = broadcast(builder, x, shape), broadcast(builder, y, shape)
    return Value(builder.add(x.node, builder.reshape(y.node, builder.shape(x.node))), shape)


def matmul(builder: GraphBuilder, x: Value, weight: NDArray[np.float64]) -> Value:
    """`x @ weight`, with a constant matrix or vector."""
    if weight.ndim not in (1, 2) or not x.shape or x.shape[-1] != weight.shape[0]:
        raise NetworkError(f"a value of shape {x.shape} cannot be multiplied by a constant of shape {weight.shape}")
    features = weight.shape[0]
    rows = int(np.prod(x.shape[:-1], dtype=np.int64))
    node = builder.reshape(x.node, (features,) if rows == 1 else (rows, features))
    node = builder.linear(node, tensor(weight.reshape(features, -1).T))
    return Value(node, x.shape[:-1] + weight.shape[1:])


def matmul_left(builder: GraphBuilder, weight: NDArray[np.float64], x: Value) -> Value:
    """`weight @ x`, with a constant matrix or vector: the transpose of `x^T @ weight^T`."""
    if len(x.shape) == 1:
        return matmul(builder, x, weight.T)
    turned = matmul(builder, rearrange(builder, x, positions(x).swapaxes(-1, -2)), weight.T)
    if weight.ndim == 1:
        return turned
    return rearrange(builder, turned, positions(turned).swapaxes(-1, -2))


def total(builder: GraphBuilder, x: Value, axes: Sequence[int], keep: bool, average: bool = False) -> Value:
    """Sum or mean over some axes, which are kept with length one or dropped."""
    over = sorted({axis % len(x.shape) for axis in axes})
    rest = [axis for axis in range(len(x.shape)) if axis not in over]
    moved = positions(x).transpose(*rest, *over).reshape(*(x.shape[axis] for axis in rest), -1)
    weight = np.full(moved.shape[-1], 1.0 / moved.shape[-1] if average else 1.0)
    summed = matmul(builder, rearrange(builder, x, moved), weight)
    kept = tuple(1 if axis in over else n for axis, n in enumerate(x.shape))
    return Value(summed.node, kept if keep else summed.shape)


def pad(builder: GraphBuilder, x: Value, widths: Sequence[tuple[int, int]], fill: float) -> Value:
    """`x` with a constant around it; widths are (before, after) for each axis."""
    shape = tuple(n + before + after for n, (before, after) in zip(x.shape, widths, strict=True))
    if np.prod([float(n) for n in shape]) > LARGEST_NODE:
        raise NetworkError(f"a tensor of shape {shape} is too large; up to {LARGEST_NODE} elements are supported")
    inside = np.pad(np.ones(x.shape), widths)
    return affine(builder, rearrange(builder, x, np.pad(positions(x), widths)), inside, fill * (1 - inside))


def concatenate(builder: GraphBuilder, parts: Sequence[Value | Array], axis: int) -> Value:
    """Values and constants joined along an axis, as a sum of the parts, each spread to the whole and masked."""
    parts = [p if isinstance(p, Value) else np.asarray(p, np.float64) for p in parts]
    size = sum(int(np.prod(p.shape, dtype=np.int64)) for p in parts)
    if size > LARGEST_NODE:
        raise NetworkError(f"{size} elements joined are too many; up to {LARGEST_NODE} are supported")
    owner = np.concatenate([np.full(p.shape, i) for i, p in enumerate(parts)], axis)
    places = [positions(p) if isinstance(p, Value) else np.zeros(p.shape, np.int64) for p in parts]
    index = np.concatenate(places, axis)
    constant = np.concatenate([np.zeros(p.shape) if isinstance(p, Value) else p for p in parts], axis)
    total: Value | None = None
    for i, part in enumerate(parts):
        if not isinstance(part, Value):
            continue
        mine = owner == i
        spread = rearrange(builder, part, np.where(mine, index, 0))
        spread = affine(builder, spread, mine, constant if total is None else 0.0)
        total = spread if total is None else add(builder, total, spread)
    if total is None:
        raise NetworkError("a concatenation of constants alone has no value to join")
    return total


def _as_image(builder: GraphBuilder, x: Value) -> int:
    """The node of a batch of one image or sequence, as [channels, height, width]; a sequence has height one."""
    if len(x.shape) not in (3, 4) or x.shape[0] != 1:
        raise UnsupportedOperator(f"an input of shape {x.shape} is no single image or sequence of channels")
    return builder.reshape(x.node, (x.shape[1], *(1,) * (4 - len(x.shape)), *x.shape[2:]))


def _like(builder: GraphBuilder, x: Value, node: int) -> Value:
    channels, height, width = builder.shape(node)
    return Value(node, (1, channels, width) if len(x.shape) == 3 else (1, channels, height, width))


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
        kernel = (1, *kernel)
        stride = (1, *stride)
        dilation = (1, *dilation)
        padding = (0, padding[0], 0, padding[1])
    k, s, d = ((int(pair[0]), int(pair[1])) for pair in (kernel, stride, dilation))
    top, left, bottom, right = (int(n) for n in padding)
    return Window(k, s, (top, left, bottom, right), d, ceil_mode)


def conv(builder: GraphBuilder, x: Value, weight: Array, bias: Array | None, window: Window, groups: int) -> Value:
    """Convolution of an image or a sequence; `window` is from `flat_window`."""
    if len(x.shape) != weight.ndim:
        raise NetworkError(f"a kernel of shape {weight.shape} does not fit an input of shape {x.shape}")
    image = _as_image(builder, x)
    kernel = tensor(weight.reshape(*weight.shape[:2], *window.kernel))
    offset = None if bias is None else tensor(bias)
    node = builder.conv(image, kernel, offset, window.stride, window.padding, window.dilation, groups)
    return _like(builder, x, node)


def max_pool(builder: GraphBuilder, x: Value, window: Window) -> Value:
    """Largest element of every window."""
    return _like(builder, x, builder.max_pool(_as_image(builder, x), window))


def average_pool(builder: GraphBuilder, x: Value, window: Window, count_padding: bool) -> Value:
    """Mean of every window."""
    return _like(builder, x, builder.average_pool(_as_image(builder, x), window, count_padding))


def global_average_pool(builder: GraphBuilder, x: Value) -> Value:
    """Mean of every channel, its other axes kept with length one."""
    return _like(builder, x, builder.global_average_pool(_as_image(builder, x)))


def batch_norm(builder: GraphBuilder, x: Value, statistics: Sequence[ArrayLike], epsilon: float) -> Value:
    """Batch normalisation of axis 1 by fixed statistics: gamma, beta, mean and variance."""
    if len(x.shape) < 2 or x.shape[0] != 1:
        raise UnsupportedOperator(f"batch normalisation needs an input of shape (1, channels, ...), not {x.shape}")
    gamma, beta, mean, variance = (tensor(t) for t in statistics)
    # Where the node's own first axis is the channels, no reshape comes between it and the operator it is folded into.
    shaped = x.node if builder.shape(x.node)[0] == x.shape[1] else builder.reshape(x.node, x.shape[1:])
    return Value(builder.batch_norm(shaped, gamma, beta, mean, variance, epsilon), x.shape)
