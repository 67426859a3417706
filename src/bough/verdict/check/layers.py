"""The network once more, in plain numpy: every operator forward and transposed, in float64 or in rationals.

Shares nothing with `network.walk`, on which the search stands: a mistake there shows here. Arrays have a leading batch
axis. With `exact`, all numbers are `fractions.Fraction` in arrays of objects, and nothing rounds.
"""

import math
from collections import Counter
from fractions import Fraction
from typing import Any

import numpy as np
from numpy.typing import NDArray
from torch import Tensor

from bough.network.graph import Network, Node
from bough.network.ops import Add, Conv, Linear, Reshape, Scale, Select

Array = NDArray[Any]
KEPT = 64  # leading bits of a number beyond float64 that is rounded
UNIT = 2.0**-53  # one operation of float64 is off by at most this share of its result


def fractions(values: Any) -> Array:
    """An array of rationals, each of them the very float64 that is given."""
    return np.asarray(np.vectorize(Fraction, otypes=[object])(np.asarray(values, dtype=np.float64)))


def rounded_down(values: Array) -> Array:
    """Rationals of few bits, float64 numbers where these reach so far, none above what is given.

    So bounds stay bounds, and do not grow in length.
    """
    return np.asarray(np.vectorize(_down, otypes=[object])(values))


def _down(value: Fraction | float) -> Fraction | float:
    try:
        near = float(value)
    except OverflowError:
        whole = math.floor(value)
        dropped = whole.bit_length() - KEPT
        return Fraction(whole >> dropped << dropped)  # a shift to the right rounds down, whatever the sign
    if math.isinf(near):
        return near
    return Fraction(near if near <= value else math.nextafter(near, -math.inf))


def finite(network: Network) -> bool:
    """Whether every number of a network is one that rationals can be made of."""
    tensors = (t for node in network.nodes for t in vars(node.op).values() if isinstance(t, Tensor))
    return all(bool(t.isfinite().all()) for t in tensors)


class Layers:
    """A network's operators as numpy arrays."""

    def __init__(self, network: Network, *, exact: bool) -> None:
        self.nodes = network.nodes
        self.exact = exact
        self.dtype: Any = object if exact else np.float64
        self._weights = [self._numbers(node) for node in network.nodes]
        self.rounding = 0.0 if exact else _rounding(network)

    def number(self, values: Any) -> Array:
        """Numbers in the arithmetic of this check."""
        return fractions(values) if self.exact else np.asarray(values, dtype=np.float64)

    def zeros(self, *shape: int) -> Array:
        """Zeros in the arithmetic of this check."""
        return np.zeros(shape, dtype=self.dtype)

    def _numbers(self, node: Node) -> tuple[Array, Array, Array]:
        """Factor, bias and the bias's magnitude; nothing where an operator has none."""
        op = node.op
        if not isinstance(op, Linear | Conv | Scale):
            return np.zeros(0), np.zeros(0), np.zeros(0)
        factor = op.factor if isinstance(op, Scale) else op.weight
        return self.number(factor.numpy()), self.number(op.bias.numpy()), self.number(op.bias_magnitude.numpy())

    def apply(self, i: int, *inputs: Array, absolute: bool = False, bias: bool = True, ones: bool = False) -> Array:
        """Node i from its inputs [batch, *shape]; with `absolute`, by absolute weights and bias magnitudes; with
        `ones`, by 1 for all of these that are not 0.
        """
        node, (weight, plain, size) = self.nodes[i], self._weights[i]
        if absolute or ones:
            weight = np.abs(weight)
            plain = size
        if ones:
            weight, plain = (weight > 0) * 1.0, (plain > 0) * 1.0
        if not bias:
            plain = plain * 0
        x = inputs[0]
        match node.op:
            case Linear():
                return x @ weight.T + plain
            case Conv():
                return self._conv(node.op, node.shape, weight, x) + plain[:, None, None]
            case Scale():
                return x * weight + plain
            case Select():
                return x.reshape(len(x), -1)[:, node.op.index.numpy()].reshape(len(x), *node.shape)
            case Add():
                return x + inputs[1]
            case Reshape():
                return x.reshape(len(x), *node.shape)
            case _:
                raise AssertionError(node.op)  # the input has none, and a ReLU is no affine operator

    def transpose(self, i: int, f: Array) -> tuple[Array, ...]:
        """What a functional of node i's value [batch, *shape] is of each of its inputs, constants left out."""
        node, (weight, _, _) = self.nodes[i], self._weights[i]
        shape = self.nodes[node.inputs[0]].shape
        match node.op:
            case Linear():
                return (f @ weight,)
            case Conv():
                return (self._conv_transpose(node.op, shape, weight, f),)
            case Scale():
                return (f * weight,)
            case Select():
                return (self._spread(node.op.index.numpy(), shape, f),)
            case Add():
                return f, f
            case Reshape():
                return (f.reshape(len(f), *shape),)
            case _:
                raise AssertionError(node.op)

    def bias(self, i: int, f: Array) -> Array | None:
        """What node i's bias adds to functionals [batch, *shape] of it, [batch]; None where it has none."""
        op = self.nodes[i].op
        bias = self._weights[i][1]
        if isinstance(op, Conv):
            return np.asarray(f.sum(axis=(2, 3)) @ bias)
        if isinstance(op, Linear | Scale):
            return np.asarray((f * bias).reshape(len(f), -1).sum(axis=1))
        return None

    def _taps(self, op: Conv, rows: int, columns: int) -> list[tuple[slice, slice]]:
        """Where in the padded image each tap of the kernel looks, for all places of the window."""
        (down, across), (high, wide) = op.stride, op.dilation
        return [
            (
                slice(r * high, r * high + (rows - 1) * down + 1, down),
                slice(c * wide, c * wide + (columns - 1) * across + 1, across),
            )
            for r in range(op.weight.shape[2])
            for c in range(op.weight.shape[3])
        ]

    def _conv(self, op: Conv, shape: tuple[int, ...], weight: Array, x: Array) -> Array:
        outs, rows, columns = shape
        top, left, bottom, right = op.padding
        padded = np.pad(x, ((0, 0), (0, 0), (top, bottom), (left, right)))
        taps = self._taps(op, rows, columns)
        # [batch, channels, taps, places], then one product for each group of channels.
        windows = np.stack([padded[:, :, a, b].reshape(*x.shape[:2], -1) for a, b in taps], axis=2)
        windows = windows.reshape(len(x), op.groups, -1, rows * columns)
        products = weight.reshape(op.groups, outs // op.groups, -1) @ windows
        return np.asarray(products.reshape(len(x), outs, rows, columns))

    def _conv_transpose(self, op: Conv, shape: tuple[int, ...], weight: Array, f: Array) -> Array:
        (channels, height, width), (top, left, bottom, right) = shape, op.padding
        batch, outs, rows, columns = f.shape
        by_group = weight.reshape(op.groups, outs // op.groups, -1).transpose(0, 2, 1)
        windows = by_group @ f.reshape(batch, op.groups, outs // op.groups, -1)
        taps = self._taps(op, rows, columns)
        windows = windows.reshape(batch, channels, len(taps), rows, columns)
        padded = self.zeros(batch, channels, height + top + bottom, width + left + right)
        for k, (a, b) in enumerate(taps):
            padded[:, :, a, b] += windows[:, :, k]
        return padded[:, :, top : top + height, left : left + width]

    def _spread(self, index: Array, shape: tuple[int, ...], f: Array) -> Array:
        """Functionals of picked elements, added up where one element was picked more than once."""
        flat = self.zeros(len(f), int(np.prod(shape)))
        if len(index):
            order = np.argsort(index, kind="stable")
            places, starts = np.unique(index[order], return_index=True)
            flat[:, places] = np.add.reduceat(f.reshape(len(f), -1)[:, order], starts, axis=1)
        return flat.reshape(len(f), *shape)


def _rounding(network: Network) -> float:
    """Twice Higham's gamma_n = n u / (1 - n u), n the longest sum that a bound of this network is made of."""
    uses = Counter(j for node in network.nodes for j in node.inputs)
    longest = 1
    for node in network.nodes:
        terms = 2
        if isinstance(node.op, Linear | Conv):
            outs, ins, *taps = node.op.weight.shape
            terms = max(outs, ins) * int(np.prod(taps)) + 1
        if isinstance(node.op, Select) and len(node.op.index):
            terms = int(np.bincount(node.op.index.numpy()).max()) + 1
        longest = max(longest, terms, node.size)
    n = longest + max(uses.values(), default=0) + 4 * len(network.nodes) + 16
    return 2 * n * UNIT / (1 - n * UNIT)
