"""What is asked of a network: input boxes, with or without a ball, and the unsafe set in disjunctive form.

A property holds when no point is unsafe. Unsafe means: for some clause, the point lies in the clause's box and every
row of `coefficients @ y <= offsets` holds at its output y. The ends of a box belong to it, and equality is unsafe,
unless the side or the row is strict.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from fractions import Fraction

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from bough.errors import PropertyError

EXPONENTS: dict[str | float, int | None] = {"inf": None, math.inf: None, "2": 2, 2: 2, "1": 1, 1: 1}
"""The p of a ball, or None for a box, by what `eps` measures: the largest difference of one input, the Euclidean
distance, or the sum of all differences."""


@dataclass(frozen=True, eq=False)
class Ball:
    """All x with `|| scale * (x - centre) ||_p <= radius`, p = 1 or 2; vectors are flat [inputs]."""

    centre: Tensor
    scale: Tensor  # above 0: what turns a difference of network inputs into the unit of the radius
    radius: float
    p: int

    def __post_init__(self) -> None:
        if self.p not in (1, 2):
            raise PropertyError(f"a ball of norm {self.p} is not supported; there are 1 and 2, and boxes for inf")
        if self.centre.shape != self.scale.shape or self.centre.ndim != 1:
            shapes = f"{tuple(self.centre.shape)} and {tuple(self.scale.shape)}"
            raise PropertyError(f"a ball needs a centre and a scale, flat and of one length, not {shapes}")
        if not (math.isfinite(self.radius) and self.radius >= 0):
            raise PropertyError(f"the radius of a ball is {self.radius}; give a finite number, 0 or more")
        if not bool((self.centre.isfinite() & self.scale.isfinite() & (self.scale > 0)).all()):
            raise PropertyError("a ball needs a finite centre, and finite scales above 0")

    def to(self, device: torch.device, dtype: torch.dtype) -> "Ball":
        """The same on a device, in a precision."""
        return Ball(self.centre.to(device, dtype), self.scale.to(device, dtype), self.radius, self.p)

    def distance(self, points: Tensor) -> Tensor:
        """How far points [..., inputs] are from the centre, in the unit of the radius."""
        return stable_norm(self.scale * (points - self.centre), self.p)

    def holds(self, point: Tensor) -> bool:
        """Whether a point is in the ball in real arithmetic; float64 must show it, so not the very rim of it."""
        # Relative error of the distance: Higham's gamma of one sum and a few operations, doubled.
        slack = 2 * (len(self.centre) + 8) * torch.finfo(torch.float64).eps
        return float(self.distance(point)) * (1 + slack) <= self.radius

    def project(self, points: Tensor) -> Tensor:
        """The points [..., inputs], those outside brought to the rim; no input moves away from the centre's."""
        away = self.scale * (points - self.centre)
        if self.p == 2:
            factor = (self.radius / self.distance(points).clamp(min=torch.finfo(away.dtype).tiny)).clamp(max=1.0)
            return torch.lerp(self.centre.expand_as(points), points, factor[..., None])
        # Onto the l1 ball (Duchi et al. 2008): every coordinate shrinks by one threshold, which sorting finds.
        sizes = away.abs().sort(dim=-1, descending=True).values
        excess = sizes.cumsum(dim=-1) - self.radius
        thresholds = excess / torch.arange(1, sizes.shape[-1] + 1, device=sizes.device, dtype=sizes.dtype)
        count = (sizes > thresholds).sum(dim=-1, keepdim=True).clamp(min=1)  # of coordinates that do not vanish
        threshold = thresholds.gather(-1, count - 1).clamp(min=0)
        shrunk = self.centre + away.sign() * (away.abs() - threshold).clamp(min=0) / self.scale
        return torch.where(threshold > 0, shrunk, points)


@dataclass(frozen=True, eq=False)
class Box:
    """Lower and upper limit of every input, flat float64 [inputs]; both ends belong to it, unless they are strict.

    Bounds are proved over the closed box, which encloses a strict one; only counterexamples look at strict sides.
    With a ball, whose centre must be in the box, only what lies in both is meant. The box alone encloses that, so
    whatever holds over the box holds there.
    """

    lower: Tensor
    upper: Tensor
    ball: Ball | None = None
    strict_lower: Tensor | None = None  # bool [inputs]: which lower limits the box itself lacks; None: it has all
    strict_upper: Tensor | None = None

    def __post_init__(self) -> None:
        if self.lower.shape != self.upper.shape or self.lower.ndim != 1:
            shapes = f"{tuple(self.lower.shape)} and {tuple(self.upper.shape)}"
            raise PropertyError(f"a box needs two flat vectors of one length, not {shapes}")
        if self.lower.dtype != torch.float64 or self.upper.dtype != torch.float64:
            raise PropertyError("a box needs float64 limits")
        bad = ~(torch.isfinite(self.lower) & torch.isfinite(self.upper))
        if bool(bad.any()):
            raise PropertyError(f"input X_{int(bad.nonzero()[0])} has no finite lower and upper bound; give it both")
        inverted = self.lower > self.upper
        if bool(inverted.any()):
            i = int(inverted.nonzero()[0])
            raise PropertyError(
                f"the box of input X_{i} is empty: lower bound {self.lower[i]:g} is above upper bound {self.upper[i]:g}"
            )
        self._check_strict()
        if self.ball is None:
            return
        if self.ball.centre.shape != self.lower.shape or self.ball.centre.dtype != torch.float64:
            raise PropertyError(f"the ball has {len(self.ball.centre)} inputs, the box {len(self.lower)}, all float64")
        if bool(((self.ball.centre < self.lower) | (self.ball.centre > self.upper)).any()):
            raise PropertyError("the centre of the ball lies outside its box")

    def _check_strict(self) -> None:
        for side in ("strict_lower", "strict_upper"):
            strict = getattr(self, side)
            if strict is not None and (strict.shape != self.lower.shape or strict.dtype != torch.bool):
                raise PropertyError("strict sides need one bool per input, or None where all limits belong to the box")
            if strict is not None and not bool(strict.any()):
                object.__setattr__(self, side, None)  # one form for one set

    def on(self, device: torch.device) -> "Box":
        """The same on a device."""
        ball = None if self.ball is None else self.ball.to(device, torch.float64)
        strict = (None if side is None else side.to(device) for side in (self.strict_lower, self.strict_upper))
        return Box(self.lower.to(device), self.upper.to(device), ball, *strict)

    @property
    def strict(self) -> tuple[Tensor, Tensor]:
        """Which lower and which upper limits do not belong to the box."""
        none = torch.zeros_like(self.lower, dtype=torch.bool)
        below, above = (none if side is None else side for side in (self.strict_lower, self.strict_upper))
        return below, above

    @property
    def is_closed(self) -> bool:
        """Whether no side is strict."""
        return self.strict_lower is None and self.strict_upper is None

    @property
    def without_value(self) -> int | None:
        """The first input that has no value, its two limits being one excluded value; None where there are points."""
        below, above = self.strict
        empty = (below | above) & (self.lower == self.upper)
        return int(empty.nonzero()[0]) if bool(empty.any()) else None

    def admits(self, point: Tensor) -> bool:
        """Whether every input with a strict side lies within its limits; inputs without one are not looked at."""
        below, above = self.strict
        low = torch.where(below, point > self.lower, point >= self.lower)
        high = torch.where(above, point < self.upper, point <= self.upper)
        return bool((low & high)[below | above].all())

    @property
    def centre(self) -> Tensor:
        """The ball's centre, or the middle of the box."""
        return (self.lower + self.upper) / 2 if self.ball is None else self.ball.centre

    def project(self, points: Tensor) -> Tensor:
        """The points [..., inputs], those outside brought into the box and, up to rounding, into the ball."""
        points = points.clamp(min=self.lower, max=self.upper)
        if self.ball is None:
            return points
        # On its way into the ball an input only moves towards the centre, which is in the box: it stays there.
        return self.ball.project(points).clamp(min=self.lower, max=self.upper)


@dataclass(frozen=True, eq=False)
class Clause:
    """One way to be unsafe: the point is in a box, and `coefficients @ y <= offsets` row by row (`<` where strict)."""

    box: int  # number of the box
    coefficients: Tensor  # [rows, outputs], float64
    offsets: Tensor  # [rows], float64
    strict: tuple[bool, ...]

    def __post_init__(self) -> None:
        rows = self.offsets.shape[0] if self.offsets.ndim == 1 else 0
        if rows == 0 or self.coefficients.ndim != 2 or self.coefficients.shape[0] != rows or len(self.strict) != rows:
            raise PropertyError(
                f"a clause needs one offset and one strictness per row and at least one row, not coefficients "
                f"{tuple(self.coefficients.shape)}, offsets {tuple(self.offsets.shape)}, strict {len(self.strict)}"
            )
        for numbers in (self.coefficients, self.offsets):
            if numbers.dtype != torch.float64 or not bool(torch.isfinite(numbers).all()):
                raise PropertyError("a clause needs finite float64 coefficients and offsets")

    def on(self, device: torch.device) -> "Clause":
        """The same clause on a device."""
        return Clause(self.box, self.coefficients.to(device), self.offsets.to(device), self.strict)

    def scaled(self) -> "Clause":
        """Rows scaled to a norm in [1/2, 1) by powers of two, which is exact; a single row is left as it is."""
        if len(self.offsets) == 1:
            return self
        norms = self.coefficients.norm(dim=1)
        factors = torch.tensor(
            [math.ldexp(1.0, -max(-1000, min(1000, math.frexp(float(n))[1]))) if n > 0 else 1.0 for n in norms],
            dtype=torch.float64,
        )
        return Clause(self.box, self.coefficients * factors[:, None], self.offsets * factors, self.strict)

    def margins(self, y: Tensor) -> Tensor:
        """Largest row value of `coefficients @ y - offsets` per output [batch, outputs]: at or below 0 is unsafe."""
        return (y @ self.coefficients.T - self.offsets).max(dim=1).values

    def holds(self, y: NDArray[np.float64]) -> bool:
        """Whether one output is unsafe by this clause, strict rows strictly."""
        # Exactly: a sum that rounds to the offset is not below it.
        point = [Fraction(v) for v in y.tolist()]
        for row, offset, strict in zip(self.coefficients.tolist(), self.offsets.tolist(), self.strict, strict=True):
            value = sum((Fraction(a) * v for a, v in zip(row, point, strict=True) if a), -Fraction(offset))
            if value > 0 or (strict and value == 0):
                return False
        return True


@dataclass(frozen=True, eq=False)
class Property:
    """The unsafe set: clauses over a few boxes."""

    boxes: tuple[Box, ...]
    clauses: tuple[Clause, ...]

    def __post_init__(self) -> None:
        if not self.clauses:
            raise PropertyError("the property has no unsafe clause; nothing is to be verified")
        if {c.box for c in self.clauses} - set(range(len(self.boxes))):
            raise PropertyError(f"a clause names a box that is not there; there are {len(self.boxes)}")
        sizes = {len(b.lower) for b in self.boxes} | {-c.coefficients.shape[1] for c in self.clauses}
        if len(sizes) != 2:
            raise PropertyError("the boxes must agree in the number of inputs, the clauses in that of outputs")

    @property
    def is_empty(self) -> bool:
        """Whether no clause has a box with any point."""
        return all(self.boxes[box].without_value is not None for box in {clause.box for clause in self.clauses})

    @property
    def inputs(self) -> int:
        """Number of inputs the boxes speak of."""
        return len(self.boxes[0].lower)

    @property
    def outputs(self) -> int:
        """Number of outputs the clauses speak of."""
        return self.clauses[0].coefficients.shape[1]

    def check_fits(self, inputs: int, outputs: int) -> None:
        """Raise unless the property speaks of a network with these sizes."""
        if self.inputs != inputs:
            raise PropertyError(
                f"the property has {self.inputs} inputs, the network {inputs}; they do not belong together"
            )
        if self.outputs != outputs:
            raise PropertyError(f"the property speaks of {self.outputs} outputs, the network has {outputs}")


def robustness_property(
    center: Tensor,
    eps: Tensor | float,
    label: int,
    targets: list[int],
    classes: int,
    clip: tuple[Tensor, Tensor] | None = None,
    ball: Ball | None = None,
) -> Property:
    """No point within `eps` (per input) of `center` has a target class's output reach the label's.

    `clip` limits the box to the valid inputs, `ball` to what is in it, too.
    """
    if not 0 <= label < classes:
        raise PropertyError(f"label {label} is not a class: the network has {classes} outputs, numbered from 0")
    center = center.reshape(-1).to(torch.float64)
    lower = center - eps
    upper = center + eps
    if clip is not None:
        lower, upper = torch.maximum(lower, clip[0]), torch.minimum(upper, clip[1])
    clauses = []
    for target in targets:
        if not 0 <= target < classes or target == label:
            raise PropertyError(
                f"target {target} is no class other than the label {label}: the network has {classes} outputs, from 0"
            )
        row = torch.zeros(1, classes, dtype=torch.float64)
        row[0, label] = 1.0
        row[0, target] = -1.0
        clauses.append(Clause(0, row, torch.zeros(1, dtype=torch.float64), (False,)))
    return Property((Box(lower, upper, ball),), tuple(clauses))


def image_property(  # noqa: PLR0913 - the words in which the question is asked
    pixels: Tensor,
    label: int,
    eps: float,
    classes: int,
    *,
    target: int | None = None,
    mean: float | Sequence[float] = 0.0,
    std: float | Sequence[float] = 1.0,
    clip: tuple[float, float] | None = (0.0, 1.0),
    norm: str | float = "inf",
) -> Property:
    """Robustness of an image of pixel values, in the normalised inputs `(pixel - mean) / std` that the network sees.

    `mean` and `std` are one number or one per channel (the first axis); `clip` is the range of valid pixels; `norm`
    (inf, 2 or 1) is what `eps` measures, over all pixels and channels, in pixel values.
    """
    if norm not in EXPONENTS:
        raise PropertyError(f"there is no norm '{norm}'; there are: inf, 2, 1")
    p = EXPONENTS[norm]
    if not (math.isfinite(eps) and eps >= 0):
        raise PropertyError(f"eps is {eps}; give a finite radius, 0 or more")
    centre, spread = _statistics(pixels, mean, std)
    limits = None
    if clip is not None:
        if bool((pixels < clip[0]).any()) or bool((pixels > clip[1]).any()):
            raise PropertyError(
                f"the image has values from {pixels.min():g} to {pixels.max():g}, outside the valid pixels "
                f"{clip[0]:g} to {clip[1]:g}; scale it, or change the valid range"
            )
        limits = ((clip[0] - centre) / spread).reshape(-1), ((clip[1] - centre) / spread).reshape(-1)
    targets = [k for k in range(classes) if k != label] if target is None else [target]
    inputs = normalised(pixels, mean, std)
    ball = None if p is None else Ball(inputs, spread.reshape(-1).contiguous(), eps, p)
    return robustness_property(inputs, (eps / spread).reshape(-1), label, targets, classes, limits, ball)


def normalised(pixels: Tensor, mean: float | Sequence[float] = 0.0, std: float | Sequence[float] = 1.0) -> Tensor:
    """An image of pixel values as the flat inputs that the network sees, `(pixel - mean) / std`."""
    centre, spread = _statistics(pixels, mean, std)
    return ((pixels - centre) / spread).reshape(-1)


def stable_norm(v: Tensor, p: float) -> Tensor:
    """The norm of each row, scaled by its largest element, so that no square overflows or vanishes."""
    largest = v.abs().amax(dim=-1, keepdim=True)
    if p == math.inf:
        return largest[..., 0]
    share = v.abs() / torch.where(largest > 0, largest, 1.0)
    if p == 1:
        return share.sum(dim=-1) * largest[..., 0]
    return share.square().sum(dim=-1).sqrt() * largest[..., 0]


def _statistics(pixels: Tensor, mean: float | Sequence[float], std: float | Sequence[float]) -> tuple[Tensor, Tensor]:
    """Mean and deviation for every pixel."""
    centre, spread = (_per_channel(v, pixels, name) for v, name in ((mean, "mean"), (std, "std")))
    if not bool((spread > 0).all()):
        raise PropertyError(f"std is {std}; every channel needs a number above 0")
    return centre, spread


def _per_channel(value: float | Sequence[float], pixels: Tensor, name: str) -> Tensor:
    """One number for every pixel, from one number or one per channel."""
    numbers = torch.as_tensor(value, dtype=torch.float64).reshape(-1)
    channels = pixels.shape[0] if pixels.ndim > 1 else 1
    if len(numbers) not in (1, channels):
        raise PropertyError(
            f"{name} has {len(numbers)} numbers for an image of {channels} channels; give 1 or {channels}"
        )
    shape = (-1,) + (1,) * (pixels.ndim - 1)
    return numbers.reshape(shape).expand(pixels.shape) if pixels.ndim else numbers[0]
