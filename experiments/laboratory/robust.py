"""Wong & Kolter's robust loss: a network and a batch of boxes enter, a differentiable upper bound of its loss leaves.

Any point of a box loses at most this (Wong & Kolter 2018, their theorems 1 and 2). The bounds are those of
`bounds/linear.py` with `ParallelSlopes`, written once more for this one purpose: in the working precision, with
gradients into the weights, and for convolutions, where a ReLU depends on a window of the layers before it, with
functionals on that window only. On MNIST Wide that is a twelfth of the memory and a hundredth of the operations of
functionals on whole layers, and makes exact bounds cheap enough for every layer: no random projections.
"""

import math
from collections.abc import Sequence
from typing import NamedTuple

import torch
from torch import Tensor, nn
from torch.nn import functional

from bough.bounds.relaxation import chord


class Relaxed(NamedTuple):
    """The ReLUs of a layer, [batch, *shape]: the slope of both lines, and how far the upper lies above the lower."""

    slope: Tensor
    gap: Tensor


class Boxes(NamedTuple):
    """`centre +- radius`, [batch, *input shape] each."""

    centre: Tensor
    radius: Tensor


class _Sides(NamedTuple):
    """Bounds of functionals from below and above while they are being added up."""

    lower: Tensor
    upper: Tensor

    def plus(self, lower: Tensor, upper: Tensor) -> "_Sides":
        return _Sides(self.lower + lower, self.upper + upper)


class Windows(NamedTuple):
    """The windows that outputs of convolutions look at, one for each place of the output.

    Each is `side` wide and lies `stride` beside the one before; the first one begins `padding` outside the image.
    """

    side: int
    stride: int
    padding: int

    def through(self, conv: nn.Conv2d) -> "Windows":
        """The same windows seen through one convolution more."""
        side = conv.kernel_size[0]
        stride = conv.stride[0]
        padding = _padding(conv)
        return Windows((self.side - 1) * stride + side, self.stride * stride, self.padding * stride + padding)

    def cut(self, values: Tensor) -> Tensor:
        """What lies in each window, [batch, places, n], of values [batch, channels, height, width]; 0 outside."""
        padded = functional.pad(values, (self.padding,) * 4)  # views: PyTorch's own unfold copies image by image
        windows = padded.unfold(2, self.side, self.stride).unfold(3, self.side, self.stride)
        return windows.permute(0, 2, 3, 1, 4, 5).reshape(len(values), windows.shape[2] * windows.shape[3], -1)


def bounds(model: nn.Sequential, boxes: Boxes, rows: Tensor) -> Tensor:
    """Lower bounds [batch, n] of `rows @ output` for rows [batch, n, outputs], over each of the boxes.

    ReLU layers are bounded in turn, each by the relaxations of those before it. The model is convolutions, then
    linear layers, a ReLU after each but the last.
    """
    layers = [layer for layer in model if isinstance(layer, nn.Conv2d | nn.Linear)]
    relaxed: list[Relaxed] = []
    for k, layer in enumerate(layers[:-1]):
        if isinstance(layer, nn.Conv2d):
            sides = _window_bounds(layers[:k], layer, relaxed, boxes)
        else:
            sides = _row_bounds(layers[:k], relaxed, boxes, layer.weight[None], _bias(layer))
        slope = chord(*sides)
        relaxed.append(Relaxed(slope, slope * -sides.lower.clamp(max=0)))
    last = layers[-1]
    return _row_bounds(layers[:-1], relaxed, boxes, rows @ last.weight, rows @ _bias(last)).lower


def _window_bounds(before: Sequence[nn.Module], layer: nn.Conv2d, relaxed: Sequence[Relaxed], boxes: Boxes) -> _Sides:
    """Bounds [batch, channels, height, width] of a convolution's outputs, functionals [.., places, channels, n]."""
    windows = Windows(1, 1, 0).through(layer)
    nu = layer.weight.flatten(1)[None, None]  # the same at every place of every image, until a ReLU comes
    sides = _Sides(_bias(layer), _bias(layer))
    for conv, relu in zip(reversed(before), reversed(relaxed), strict=True):
        assert isinstance(conv, nn.Conv2d)
        gap, slope = windows.cut(relu.gap), windows.cut(relu.slope)
        sides = sides.plus(_dot(nu.clamp(max=0), gap), _dot(nu.clamp(min=0), gap))
        nu = nu * slope[:, :, None]
        spread = _spread(conv, windows.side)
        constant = nu @ _bias(conv).repeat_interleave(windows.side**2)
        sides = sides.plus(constant, constant)
        nu = nu @ spread
        windows = windows.through(conv)
    sides = _at_input(sides, nu, Boxes(windows.cut(boxes.centre), windows.cut(boxes.radius)))
    places = (boxes.centre.shape[-1] + 2 * windows.padding - windows.side) // windows.stride + 1  # along a side
    return _Sides(*(side.transpose(1, 2).reshape(len(boxes.centre), -1, places, places) for side in sides))


def _spread(conv: nn.Conv2d, side: int) -> Tensor:
    """What a convolution does to functionals on windows of its output, as a matrix to those on windows of its input."""
    size = conv.out_channels * side * side
    unit = torch.eye(size, dtype=conv.weight.dtype, device=conv.weight.device).reshape(size, -1, side, side)
    return functional.conv_transpose2d(unit, conv.weight, stride=conv.stride).flatten(1)


def _convolved(conv: nn.Conv2d, shape: Sequence[int], nu: Tensor) -> Tensor:
    """Functionals on a convolution's whole output, [..., n], become those on its input."""
    images = nu.reshape(-1, *shape)
    spread = functional.conv_transpose2d(images, conv.weight, None, conv.stride, _padding(conv))
    return spread.reshape(*nu.shape[:-1], -1)


def _whole(conv: nn.Conv2d, shape: Sequence[int]) -> Tensor:
    """A convolution as a matrix, by which a GPU multiplies faster than it convolves many images of a few channels."""
    size = math.prod(shape)
    return _convolved(conv, shape, torch.eye(size, dtype=conv.weight.dtype, device=conv.weight.device))


def _row_bounds(
    before: Sequence[nn.Module], relaxed: Sequence[Relaxed], boxes: Boxes, nu: Tensor, constant: Tensor
) -> _Sides:
    """Bounds [batch, rows] of functionals `nu` [batch or 1, rows, n] of the last of the layers before."""
    sides = _Sides(constant, constant)
    for layer, relu in zip(reversed(before), reversed(relaxed), strict=True):
        gap, slope = relu.gap.flatten(1), relu.slope.flatten(1)
        # The upper line lies `gap` above the lower one: that is lost below where nu < 0, and above where nu > 0.
        sides = sides.plus(_dot(nu.clamp(max=0), gap), _dot(nu.clamp(min=0), gap))
        nu = nu * slope[:, None]
        shape = relu.slope.shape[1:]
        if isinstance(layer, nn.Linear):
            constant = nu @ _bias(layer)
            nu = nu @ layer.weight
        else:
            assert isinstance(layer, nn.Conv2d)
            constant = nu @ _bias(layer).repeat_interleave(shape[1] * shape[2])
            nu = nu @ _whole(layer, shape) if nu.is_cuda else _convolved(layer, shape, nu)
        sides = sides.plus(constant, constant)
    return _at_input(sides, nu, Boxes(*(part.flatten(1) for part in boxes)))


def _bias(layer: nn.Conv2d | nn.Linear) -> Tensor:
    return layer.weight.new_zeros(len(layer.weight)) if layer.bias is None else layer.bias


def _padding(conv: nn.Conv2d) -> int:
    return int(conv.padding[0])


def _at_input(sides: _Sides, nu: Tensor, boxes: Boxes) -> _Sides:
    middle = _dot(nu, boxes.centre)
    spread = _dot(nu.abs(), boxes.radius)
    return sides.plus(middle - spread, middle + spread)


def _dot(functionals: Tensor, values: Tensor) -> Tensor:
    """Functionals [.., rows, n] of values [.., n]; those that a whole batch shares, [1, .., 1, rows, n], just once."""
    if functionals[..., 0, 0].numel() == 1:
        return values @ functionals.reshape(functionals.shape[-2:]).T
    return (functionals @ values[..., None])[..., 0]


def worst_margins(model: nn.Sequential, x: Tensor, labels: Tensor, eps: float) -> Tensor:
    """Lower bounds [batch, classes] of the label's output minus each class's over the box of radius `eps` around x."""
    last = model[-1]
    assert isinstance(last, nn.Linear)
    classes = torch.eye(last.out_features, dtype=x.dtype, device=x.device)
    return bounds(model, Boxes(x, torch.full_like(x, eps)), classes[labels][:, None] - classes)


def robust_loss(model: nn.Sequential, x: Tensor, labels: Tensor, eps: float) -> tuple[Tensor, Tensor]:
    """An upper bound of the mean cross-entropy of any points of the boxes, and which images are certified."""
    margins = worst_margins(model, x, labels, eps)
    own = functional.one_hot(labels, margins.shape[1]).bool()
    return functional.cross_entropy(-margins, labels), ((margins > 0) | own).all(1)


def attack(
    model: nn.Module, x: Tensor, labels: Tensor, eps: float, steps: int, generator: torch.Generator | None = None
) -> Tensor:
    """Points of the boxes with a large loss: projected gradient ascent, `steps` sign steps from a random point."""
    lower = x - eps
    upper = x + eps
    noise = torch.rand(x.shape, generator=generator, device="cpu" if generator is None else generator.device)
    point = lower + (upper - lower) * noise.to(x)
    for _ in range(steps):
        point.requires_grad_(True)
        (gradient,) = torch.autograd.grad(functional.cross_entropy(model(point), labels, reduction="sum"), point)
        point = (point.detach() + 2.5 * eps / steps * gradient.sign()).clamp(lower, upper)
    return point.detach()
