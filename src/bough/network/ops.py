"""The operators a verified network is made of: eight immutable values, each with all that other code asks of it.

Every file format is read into these. Six are affine, and `AbstractAffine` lists what an affine operator has to say.
What becomes of a bound at a ReLU, the only one that is not, is the business of whoever relaxes it.

All weights are float64 copies of what the file holds. Each operator with a bias also carries the *magnitude* of its
bias: a bound on the size of the numbers the bias was computed from (larger than the bias itself where batch
normalisation was folded in), so that rounding errors made while reading are covered by the error bounds.
"""

import math
from abc import ABCMeta, abstractmethod
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any, final

import torch
from torch import Tensor
from torch.nn import functional

Shape = tuple[int, ...]  # of a node's value, without the batch axis
Weights = Callable[[Tensor], Tensor]  # weights -> others of that shape
Biases = Callable[[Tensor, Tensor], tuple[Tensor, Tensor]]  # bias and its magnitude -> others


@dataclass(frozen=True, eq=False)
class Coordinates:
    """A sparse matrix by its entries: all that are not 0, each place once."""

    rows: Tensor  # int64
    columns: Tensor  # int64
    values: Tensor
    picks: bool = False  # whether each row has a single 1, and the rows are in order


class _Complete(ABCMeta):
    """Abstract classes of which no others are registered: `isinstance` is four times as fast, and walks ask often."""

    __instancecheck__ = type.__instancecheck__


@dataclass(frozen=True, eq=False)
class AbstractAffine(metaclass=_Complete):
    """An affine operator, by what is asked of one: a class that leaves out an abstract entry cannot be used.

    `shape` is that of the node, `shapes` are those of its inputs.
    """

    exact = False  # whether elements, and functionals of them, stay as they are, so that there is nothing to round

    @abstractmethod
    def apply(self, shape: Shape, *inputs: Tensor) -> Tensor:
        """The value [batch, *shape] from the values of the inputs."""

    @abstractmethod
    def transpose(self, shapes: Sequence[Shape], f: Tensor) -> tuple[Tensor, ...]:
        """What functionals `f` [batch, *shape] of the value are of each input, the constant left out."""

    @abstractmethod
    def bias_term(self, f: Tensor) -> Tensor | None:
        """What the constant adds to the values of functionals `f`, [batch]; None where the operator has none."""

    @abstractmethod
    def matrices(self, shape: Shape, shapes: Sequence[Shape]) -> tuple[Coordinates, ...]:
        """The float64 matrix of each input, on flat vectors."""

    @abstractmethod
    def changed(self, weights: Weights, biases: Biases) -> "AbstractAffine":
        """The same with other numbers."""

    @property
    @abstractmethod
    def products(self) -> int:
        """Products with a weight that are summed in an element of the value."""

    @property
    @abstractmethod
    def roundings(self) -> int:
        """Roundings, at most, that an element of the value goes through; 0 where elements are only moved."""

    @property
    @abstractmethod
    def terms(self) -> int:
        """Terms summed, at most, in an element of the value or of an input's functional."""

    @property
    @abstractmethod
    def gain(self) -> float:
        """How much larger than its inputs an element of the value can be, at most, the constant left out."""

    def idle(self, shape: Shape, before: Shape) -> bool:
        """Whether value and shape are known to be those `before` the node, so that it can be left out."""
        return False

    def scaled(self, scale: "Scale", shape: Shape) -> "AbstractAffine | None":
        """The operator and a `Scale` behind it as one; None where they remain two."""
        return None


class Unweighted:
    """The entries of operators that only move elements; those of the others say what differs."""

    products = 0
    roundings = 0
    terms = 2  # functionals of an element that is picked more often are counted with the elements of a node
    gain = 1.0

    def bias_term(self, f: Tensor) -> None:
        return None

    def changed(self, weights: Weights, biases: Biases) -> Any:
        return self


class AbstractBiased(AbstractAffine):
    """The entries of operators with weights and a bias."""

    bias: Tensor
    bias_magnitude: Tensor

    @abstractmethod
    def positions(self, t: Tensor, shape: Shape) -> Tensor:
        """A tensor [*shape] as [positions, *shape of the bias], positions being all that share the same weights."""

    def bias_term(self, f: Tensor) -> Tensor:
        return (f * self.bias).reshape(f.shape[0], -1).sum(1)

    @property
    def roundings(self) -> int:
        return self.products + 1

    def scaled(self, scale: "Scale", shape: Shape) -> AbstractAffine | None:
        parts = [self.positions(t, shape) for t in (scale.factor, scale.bias, scale.bias_magnitude)]
        if any(not bool((t == t[:1]).all()) for t in parts):
            return None  # differs between positions
        factor, bias, magnitude = (t[0].contiguous() for t in parts)
        return self.changed(
            lambda w: w * factor.reshape(factor.shape + (1,) * (w.ndim - factor.ndim)),
            lambda b, m: (factor * b + bias, factor.abs() * m + magnitude),
        )


@dataclass(frozen=True, eq=False)
class AbstractWeighted(AbstractBiased):
    """The entries of operators with weights [outputs, inputs, *taps]."""

    weight: Tensor
    bias: Tensor
    bias_magnitude: Tensor

    def changed(self, weights: Weights, biases: Biases) -> "AbstractWeighted":
        bias, magnitude = biases(self.bias, self.bias_magnitude)
        return replace(self, weight=weights(self.weight), bias=bias, bias_magnitude=magnitude)

    @property
    def products(self) -> int:
        return math.prod(self.weight.shape[1:])

    @property
    def terms(self) -> int:
        return max(self.weight.shape[:2]) * math.prod(self.weight.shape[2:]) + 1

    @property
    def gain(self) -> float:
        return float(self.weight.abs().flatten(1).sum(dim=1).max())


@final
@dataclass(frozen=True, eq=False)
class Input(Unweighted):
    """The point under verification."""

    exact = True

    def apply(self, shape: Shape, *inputs: Tensor) -> Tensor:
        return inputs[0]


@final
@dataclass(frozen=True, eq=False)
class Linear(AbstractWeighted):
    """`weight @ x + bias` on the last axis; weight is [out, in]."""

    def apply(self, shape: Shape, *inputs: Tensor) -> Tensor:
        return functional.linear(inputs[0], self.weight, self.bias)

    def transpose(self, shapes: Sequence[Shape], f: Tensor) -> tuple[Tensor]:
        return (f @ self.weight,)

    def matrices(self, shape: Shape, shapes: Sequence[Shape]) -> tuple[Coordinates]:
        rows, columns = self.weight.nonzero(as_tuple=True)
        block = torch.arange(math.prod(shape[:-1]))[:, None]
        outputs, inputs = self.weight.shape
        values = self.weight[rows, columns].expand(len(block), -1)
        places = (block * outputs + rows).flatten(), (block * inputs + columns).flatten()
        return (Coordinates(*places, values.flatten()),)

    def positions(self, t: Tensor, shape: Shape) -> Tensor:
        return t.reshape(-1, shape[-1])


@final
@dataclass(frozen=True, eq=False)
class Conv(AbstractWeighted):
    """Two-dimensional convolution of [channels, height, width]; padding is (top, left, bottom, right)."""

    stride: tuple[int, int]
    padding: tuple[int, int, int, int]
    dilation: tuple[int, int]
    groups: int

    def apply(self, shape: Shape, *inputs: Tensor) -> Tensor:
        x, (top, left, bottom, right) = inputs[0], self.padding
        if _plain_products(x):
            patches = functional.unfold(self._padded(x), self._kernel, self.dilation, 0, self.stride)
            patches = patches.reshape(x.shape[0], self.groups, -1, patches.shape[-1])
            return (self._flat_weight @ patches).reshape(x.shape[0], *shape) + self.bias[:, None, None]
        if (top, left) == (bottom, right):
            return functional.conv2d(x, self.weight, self.bias, self.stride, (top, left), self.dilation, self.groups)
        return functional.conv2d(self._padded(x), self.weight, self.bias, self.stride, 0, self.dilation, self.groups)

    def transpose(self, shapes: Sequence[Shape], f: Tensor) -> tuple[Tensor]:
        _, height, width = shapes[0]
        top, left, bottom, right = self.padding
        full = (height + top + bottom, width + left + right)
        # Build the padded input's functional, then drop the padding: exact for every stride, dilation and padding.
        taps = self.weight.shape[2:]
        reached = [(f.shape[d - 2] - 1) * self.stride[d] + self.dilation[d] * (taps[d] - 1) + 1 for d in (0, 1)]
        if _plain_products(f):
            weight = self._flat_weight
            patches = weight.transpose(1, 2) @ f.reshape(f.shape[0], self.groups, weight.shape[1], -1)
            patches = patches.reshape(f.shape[0], -1, patches.shape[-1])
            spread = functional.fold(patches, (reached[0], reached[1]), self._kernel, self.dilation, 0, self.stride)
        elif f.dtype == torch.float32 and not f.is_cuda and self.groups == 1 and self.dilation == (1, 1):
            spread = self._by_phases(f)[..., : reached[0], : reached[1]]
        else:
            spread = functional.conv_transpose2d(f, self.weight, None, self.stride, 0, 0, self.groups, self.dilation)
        spread = functional.pad(spread, (0, full[1] - reached[1], 0, full[0] - reached[0]))
        return (spread[..., top : top + height, left : left + width],)

    def _by_phases(self, f: Tensor) -> Tensor:
        """A transposed convolution as a plain one, which CPUs do more than twice as fast: output positions that leave
        the same remainder by the stride see the same part of the kernel, so each remainder is a channel of its own.
        """
        outs, ins, height, width = self.weight.shape
        (down, across), taps = self.stride, (-(-height // self.stride[0]), -(-width // self.stride[1]))
        kernel = functional.pad(self.weight, (0, taps[1] * across - width, 0, taps[0] * down - height))
        kernel = kernel.reshape(outs, ins, taps[0], down, taps[1], across).permute(1, 3, 5, 0, 2, 4).flip(4, 5)
        parts = functional.conv2d(f, kernel.reshape(-1, outs, *taps), padding=(taps[0] - 1, taps[1] - 1))
        batch, _, rows, columns = parts.shape
        parts = parts.reshape(batch, ins, down, across, rows, columns).permute(0, 1, 4, 2, 5, 3)
        return parts.reshape(batch, ins, rows * down, columns * across)

    def bias_term(self, f: Tensor) -> Tensor:
        return f.sum((-2, -1)) @ self.bias

    def matrices(self, shape: Shape, shapes: Sequence[Shape]) -> tuple[Coordinates]:
        # Windows of input numbers give the columns.
        numbers = torch.arange(1, math.prod(shapes[0]) + 1, dtype=torch.float64).reshape(1, *shapes[0])
        windows = functional.unfold(self._padded(numbers), self._kernel, self.dilation, 0, self.stride)[0].long() - 1
        weights = self._flat_weight[..., None]  # [groups, outputs, inputs and taps, positions], as the windows are
        windows = windows.reshape(self.groups, 1, weights.shape[2], -1).expand(-1, weights.shape[1], -1, -1)
        weights = weights.expand_as(windows)
        positions = windows.shape[-1]
        rows = torch.arange(math.prod(shape)).reshape(*windows.shape[:2], 1, positions).expand_as(windows)
        inside = (windows >= 0) & (weights != 0)
        return (Coordinates(rows[inside], windows[inside], weights[inside]),)

    def positions(self, t: Tensor, shape: Shape) -> Tensor:
        return t.reshape(shape[0], -1).T

    def _padded(self, x: Tensor) -> Tensor:
        top, left, bottom, right = self.padding
        return functional.pad(x, (left, right, top, bottom))

    @property
    def _kernel(self) -> tuple[int, int]:
        return self.weight.shape[2], self.weight.shape[3]

    @property
    def _flat_weight(self) -> Tensor:
        """The weight by groups, [groups, outputs, inputs and taps]."""
        return self.weight.reshape(self.groups, self.weight.shape[0] // self.groups, -1)


@final
@dataclass(frozen=True, eq=False)
class Scale(AbstractBiased):
    """Element-wise `factor * x + bias`, both of the node's own shape."""

    factor: Tensor
    bias: Tensor
    bias_magnitude: Tensor

    products = 1
    terms = 2

    def apply(self, shape: Shape, *inputs: Tensor) -> Tensor:
        return inputs[0] * self.factor + self.bias

    def transpose(self, shapes: Sequence[Shape], f: Tensor) -> tuple[Tensor]:
        return (f * self.factor,)

    def matrices(self, shape: Shape, shapes: Sequence[Shape]) -> tuple[Coordinates]:
        at = self.factor.reshape(-1).nonzero()[:, 0]
        return (Coordinates(at, at, self.factor.reshape(-1)[at]),)

    def changed(self, weights: Weights, biases: Biases) -> "Scale":
        return Scale(weights(self.factor), *biases(self.bias, self.bias_magnitude))

    def positions(self, t: Tensor, shape: Shape) -> Tensor:
        return t[None]

    def idle(self, shape: Shape, before: Shape) -> bool:
        return bool((self.factor == 1).all()) and not bool(self.bias_magnitude.any())

    @property
    def gain(self) -> float:
        return float(self.factor.abs().max())


@final
@dataclass(frozen=True, eq=False)
class Select(Unweighted, AbstractAffine):
    """Picks elements by flat index (slices, transposes, pooling windows); the index has the node's shape, flattened."""

    index: Tensor

    def apply(self, shape: Shape, *inputs: Tensor) -> Tensor:
        return inputs[0].reshape(inputs[0].shape[0], -1)[:, self.index].reshape(-1, *shape)

    def transpose(self, shapes: Sequence[Shape], f: Tensor) -> tuple[Tensor]:
        batch = f.shape[0]
        flat = f.new_zeros(batch, math.prod(shapes[0]))
        return (flat.index_add(1, self.index, f.reshape(batch, -1)).reshape(batch, *shapes[0]),)

    def matrices(self, shape: Shape, shapes: Sequence[Shape]) -> tuple[Coordinates]:
        return (replace(_identity(shape), columns=self.index),)

    def idle(self, shape: Shape, before: Shape) -> bool:
        return shape == before and torch.equal(self.index, torch.arange(math.prod(before)))


@final
@dataclass(frozen=True, eq=False)
class Reshape(Unweighted, AbstractAffine):
    """The same elements in another shape."""

    exact = True

    def apply(self, shape: Shape, *inputs: Tensor) -> Tensor:
        return inputs[0].reshape(inputs[0].shape[0], *shape)

    def transpose(self, shapes: Sequence[Shape], f: Tensor) -> tuple[Tensor]:
        return (f.reshape(f.shape[0], *shapes[0]),)

    def matrices(self, shape: Shape, shapes: Sequence[Shape]) -> tuple[Coordinates]:
        return (_identity(shape),)

    def idle(self, shape: Shape, before: Shape) -> bool:
        return shape == before


@final
@dataclass(frozen=True, eq=False)
class Add(Unweighted, AbstractAffine):
    """The sum of two nodes of one shape (residual connections)."""

    roundings = 1
    gain = 2.0

    def apply(self, shape: Shape, *inputs: Tensor) -> Tensor:
        return inputs[0] + inputs[1]

    def transpose(self, shapes: Sequence[Shape], f: Tensor) -> tuple[Tensor, Tensor]:
        return f, f

    def matrices(self, shape: Shape, shapes: Sequence[Shape]) -> tuple[Coordinates, Coordinates]:
        return _identity(shape), _identity(shape)


@final
@dataclass(frozen=True, eq=False)
class Relu(Unweighted):
    """`max(x, 0)`, the only operator that is not affine."""

    exact = True  # for functionals, whoever relaxes it says otherwise

    def apply(self, shape: Shape, *inputs: Tensor) -> Tensor:
        return inputs[0].relu()


Operator = Input | AbstractAffine | Relu


def _identity(shape: Shape) -> Coordinates:
    at = torch.arange(math.prod(shape))
    return Coordinates(at, at, torch.ones(len(at), dtype=torch.float64), picks=True)


def _plain_products(x: Tensor) -> bool:
    """Whether to convolve by matrix products: proofs (float64) rest on error bounds of plain sums, and a GPU's library
    may choose a transform instead.
    """
    return x.is_cuda and x.dtype == torch.float64
