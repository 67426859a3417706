"""An image and its counterexample enter, a figure leaves: both as the network sees them, and their difference.

The file's suffix chooses the format: `.png` or `.svg`.
"""

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from bough.drawing import BLUE, INK, MUTED, VERMILION, save
from bough.errors import BadInput

if TYPE_CHECKING:  # matplotlib is slow to import and only pictures need it
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

Pixels = NDArray[np.floating]


@dataclass(frozen=True)
class Caption:
    """What the figure says in words: the image's class, the class the network gives the counterexample, the radius."""

    label: str
    answer: str
    eps: float


def counterexample_picture(path: Path, image: Pixels, counterexample: Pixels, caption: Caption) -> None:
    """Draw image, counterexample and their difference to `path`; both [channels, height, width], 1 or 3 channels.

    The user's own settings play no part, so the same counterexample gives the same picture.
    """
    from matplotlib import rc_context, rcParamsDefault

    before, after = _pixels(image), _pixels(counterexample)
    if before.shape != after.shape:
        raise BadInput(
            f"the image has shape {before.shape}, the counterexample {after.shape}; they do not belong together"
        )
    with rc_context({**rcParamsDefault, "svg.hashsalt": "bough"}):
        save(_figure(before, after, caption), path, dpi=160)


def _pixels(image: Pixels) -> NDArray[np.float64]:
    """An image of [channels, height, width] as [height, width, channels]."""
    if image.ndim != 3 or image.shape[0] not in (1, 3):
        raise BadInput(
            f"a picture needs [channels, height, width] with 1 or 3 channels, not {tuple(image.shape)}; reshape it"
        )
    return np.moveaxis(image.astype(np.float64), 0, -1)


def _figure(before: NDArray[np.float64], after: NDArray[np.float64], caption: Caption) -> "Figure":
    """The three panels; a bare Figure, so that no window system or global state of pyplot is touched."""
    from matplotlib.figure import Figure
    from matplotlib.layout_engine import ConstrainedLayoutEngine

    figure = Figure(figsize=(10, 3.9), layout=ConstrainedLayoutEngine(w_pad=0.12, h_pad=0.1))
    left, middle, right = figure.subplots(1, 3)
    # Dollar signs would start a formula, so class names keep theirs as they are.
    title = f"Refuted: within ε = {caption.eps:g}, “{caption.label}” becomes “{caption.answer}”"
    figure.suptitle(title, fontsize=14, fontweight="bold", color=INK, parse_math=False)
    _panel(left, before, "image", caption.label, BLUE)
    _panel(middle, after, "counterexample", caption.answer, VERMILION)
    _difference_panel(figure, right, after - before, caption.eps)
    return figure


def _panel(axes: "Axes", pixels: NDArray[np.float64], heading: str, seen_as: str, colour: str) -> None:
    """One image on the fixed scale [0, 1], so that both panels can be compared by eye."""
    shown = np.clip(pixels, 0, 1)
    axes.imshow(shown[..., 0] if shown.shape[-1] == 1 else shown, cmap="gray", vmin=0, vmax=1, interpolation="nearest")
    axes.set_title(heading, fontsize=11, color=MUTED)
    axes.set_xlabel(f"seen as “{seen_as}”", fontsize=12, fontweight="bold", color=colour, labelpad=8, parse_math=False)
    _bare(axes, colour)


def _difference_panel(figure: "Figure", axes: "Axes", difference: NDArray[np.float64], eps: float) -> None:
    """The change per pixel, its scale stretched to the largest one; of several channels, the one that changed most."""
    from matplotlib.colors import LinearSegmentedColormap

    strongest = np.abs(difference).argmax(axis=-1, keepdims=True)
    change = np.take_along_axis(difference, strongest, axis=-1)[..., 0]
    largest = float(np.abs(change).max())
    scale = largest or eps or 1.0
    colours = LinearSegmentedColormap.from_list("change", [BLUE, "#ffffff", VERMILION])
    drawn = axes.imshow(change, cmap=colours, vmin=-scale, vmax=scale, interpolation="nearest")
    # The colours' meaning, as tall as the panel; inside its own inset, so that the three panels stay of one size.
    ticks = [-scale, -scale / 2, 0, scale / 2, scale]
    bar = figure.colorbar(drawn, cax=axes.inset_axes((1.05, 0, 0.05, 1)), ticks=ticks)
    bar.ax.set_yticklabels([f"{tick:+.2g}".replace("-", "−") if tick else "0" for tick in ticks])
    bar.ax.tick_params(labelsize=9, colors=MUTED, length=0, pad=4)
    bar.outline.set_visible(False)
    axes.set_title(f"difference, amplified {1 / scale:.2g} times", fontsize=11, color=MUTED)
    channel = "" if difference.shape[-1] == 1 else " (strongest channel)"
    axes.set_xlabel(f"at most {largest:.3g}{channel}", fontsize=12, color=INK, labelpad=8)
    _bare(axes, MUTED)


def _bare(axes: "Axes", colour: str) -> None:
    """Leave a thin coloured edge around a panel, and no ticks."""
    axes.set(xticks=[], yticks=[])
    axes.spines[:].set(edgecolor=colour, linewidth=1.5)
