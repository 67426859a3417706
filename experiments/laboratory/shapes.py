"""A seeded number and a class enter, a small grey drawing of that class leaves: the data set of the demo.

Ten figures are drawn from signed distances, anti-aliased, with random place, size, tilt, stroke, contrast and noise.
Pixels are rounded to 256 grey levels, so that the last bit of a platform's sine does not make another image.
"""

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from bough.errors import BadInput

SIDE = 16
"""Height and width of every image."""

_LEVELS = 255
_SIN_60 = 3**0.5 / 2
_COS_60 = 0.5

Image = NDArray[np.float32]
_Field = NDArray[np.float64]


@dataclass(frozen=True)
class _Style:
    """What a figure is drawn with, in pixels: half its extent, and half the width of its lines."""

    radius: float
    stroke: float


def _disc(x: _Field, y: _Field, style: _Style) -> _Field:
    return np.hypot(x, y) - style.radius


def _ring(x: _Field, y: _Field, style: _Style) -> _Field:
    return np.abs(_disc(x, y, style)) - style.stroke


def _box(x: _Field, y: _Field, half_width: float, half_height: float) -> _Field:
    dx, dy = np.abs(x) - half_width, np.abs(y) - half_height
    return np.hypot(np.maximum(dx, 0), np.maximum(dy, 0)) + np.minimum(np.maximum(dx, dy), 0)


def _square(x: _Field, y: _Field, style: _Style) -> _Field:
    return _box(x, y, style.radius, style.radius)


def _frame(x: _Field, y: _Field, style: _Style) -> _Field:
    return np.abs(_square(x, y, style)) - style.stroke


def _triangle(x: _Field, y: _Field, style: _Style) -> _Field:
    # Three half-planes at 120 degrees, point upwards (rows grow downwards); moved up to the middle of its extent.
    y = y - style.radius / 4
    sides: _Field = np.maximum(np.abs(x) * _SIN_60 - y * _COS_60, y)
    return sides - style.radius * 0.75


def _plus(x: _Field, y: _Field, style: _Style) -> _Field:
    return np.minimum(_box(x, y, style.radius, style.stroke), _box(x, y, style.stroke, style.radius))


def _cross(x: _Field, y: _Field, style: _Style) -> _Field:
    return _plus((x + y) / np.sqrt(2), (x - y) / np.sqrt(2), style)


def _stripes(x: _Field, y: _Field, style: _Style) -> _Field:
    gap = style.radius - style.stroke / 2
    return _box(x, np.abs(np.abs(y) - gap / 2) - gap / 2, style.radius, style.stroke)


def _columns(x: _Field, y: _Field, style: _Style) -> _Field:
    return _stripes(y, x, style)


def _crescent(x: _Field, y: _Field, style: _Style) -> _Field:
    bite = np.hypot(x - style.radius * 0.6, y) - style.radius * 0.9
    return np.maximum(_disc(x, y, style), -bite)


_FIGURES: dict[str, Callable[[_Field, _Field, _Style], _Field]] = {
    "disc": _disc,
    "ring": _ring,
    "square": _square,
    "frame": _frame,
    "triangle": _triangle,
    "plus": _plus,
    "cross": _cross,
    "stripes": _stripes,
    "columns": _columns,
    "crescent": _crescent,
}

CLASS_NAMES = tuple(_FIGURES)
"""The figures; a label is a position in this tuple."""


def draw(seed: int | np.random.Generator, label: int) -> Image:
    """One image [1, SIDE, SIDE] of class `label`, values in [0, 1]; the same seed and label give the same image."""
    if not 0 <= label < len(CLASS_NAMES):
        raise BadInput(f"label {label} is no figure; give one of 0 to {len(CLASS_NAMES) - 1}")
    # Only uniform numbers are taken: numpy keeps their stream between versions, not that of its other distributions.
    rng = seed if isinstance(seed, np.random.Generator) else np.random.default_rng([seed, label])
    style = _Style(radius=rng.uniform(4.2, 6.2), stroke=rng.uniform(0.7, 1.2))
    x, y = _grid(rng, style.radius)
    ink = np.clip(0.5 - _FIGURES[CLASS_NAMES[label]](x, y, style), 0, 1)
    paper, contrast = rng.uniform(0.0, 0.2), rng.uniform(0.55, 0.8)
    noise = rng.uniform(-0.06, 0.06, size=ink.shape)
    grey = np.clip(paper + contrast * ink + noise, 0, 1)
    return (np.round(grey * _LEVELS) / _LEVELS).astype(np.float32)[None]


def dataset(n: int, seed: int) -> tuple[Image, NDArray[np.int64]]:
    """`n` images [n, 1, SIDE, SIDE] and their labels [n], the classes in turn."""
    rng = np.random.default_rng(seed)
    labels = np.arange(n, dtype=np.int64) % len(CLASS_NAMES)
    images = np.stack([draw(rng, int(label)) for label in labels]) if n else np.empty((0, 1, SIDE, SIDE), np.float32)
    return images, labels


def _grid(rng: np.random.Generator, radius: float) -> tuple[_Field, _Field]:
    """Pixel centres in the figure's own coordinates: moved as far as the image allows, and tilted a little."""
    room = max((SIDE - 1) / 2 - radius, 0.0)
    shift_x = rng.uniform(-room, room)
    shift_y = rng.uniform(-room, room)
    tilt = rng.uniform(-0.2, 0.2)
    rows, columns = np.meshgrid(np.arange(SIDE), np.arange(SIDE), indexing="ij")
    x, y = columns - (SIDE - 1) / 2 - shift_x, rows - (SIDE - 1) / 2 - shift_y
    return np.cos(tilt) * x + np.sin(tilt) * y, np.cos(tilt) * y - np.sin(tilt) * x
