"""How bough's figures look, and how they become files: one style for curves, plots and pictures.

Colours are Okabe and Ito's, told apart by every eye; lines differ in their dashes and markers, too, so that a print in
grey still reads. The same figure gives the same bytes: no date, no random names inside.
"""

import io
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from bough.errors import OutputError
from bough.files.writing import write_bytes

if TYPE_CHECKING:  # matplotlib is slow to import and only figures need it
    from matplotlib.figure import Figure

FORMATS = (".png", ".svg")
DPI = 150  # dots per inch of PNG files
INK, MUTED, FAINT = "#1a1a1a", "#666666", "#d9d9d9"
BLUE, VERMILION, GREEN, PURPLE, ORANGE, SKY = "#0072b2", "#d55e00", "#009e73", "#cc79a7", "#e69f00", "#56b4e9"

_COLOURS = (BLUE, VERMILION, GREEN, PURPLE, ORANGE, SKY, INK)  # yellow, the eighth, is lost on white
_DASHES: tuple[Any, ...] = ("-", (0, (5, 1.5)), (0, (1.2, 1.2)), (0, (6, 1.5, 1.2, 1.5)), (0, (3, 1, 1, 1, 1, 1)))
_MARKERS = ("o", "s", "^", "D", "v", "P", "X", "<", ">")


@dataclass(frozen=True)
class Pen:
    """What a line or a cloud of points is drawn with."""

    colour: str
    dashes: Any
    marker: str

    def line(self) -> Mapping[str, Any]:
        """Arguments of `Axes.plot` for a line."""
        hollow = {"markerfacecolor": "white", "markeredgewidth": 1.0, "markersize": 4.5}
        return {"color": self.colour, "linestyle": self.dashes, "marker": self.marker, "linewidth": 1.5, **hollow}


def pen(place: int) -> Pen:
    """The pen of the n-th thing in a figure; dashes and markers repeat at other places than colours do."""
    return Pen(_COLOURS[place % len(_COLOURS)], _DASHES[place % len(_DASHES)], _MARKERS[place % len(_MARKERS)])


@contextmanager
def style(**more: Any) -> Iterator[None]:
    """Draw inside of this, whatever the user's own settings say; save inside of it, too."""
    from matplotlib import rc_context, rcParamsDefault

    look = {
        "axes.spines.top": False,
        "axes.spines.right": False,
        "axes.edgecolor": MUTED,
        "axes.labelcolor": INK,
        "axes.titlesize": 10,
        "axes.grid": True,
        "axes.axisbelow": True,
        "font.size": 9,
        "grid.color": FAINT,
        "grid.linewidth": 0.6,
        "legend.frameon": False,
        "legend.handlelength": 3.0,
        "svg.hashsalt": "bough",  # names of clip paths: else random
        "text.color": INK,
        "text.parse_math": False,  # a method's name may hold dollar signs
        "xtick.color": MUTED,
        "ytick.color": MUTED,
    }
    settings: Any = {**rcParamsDefault, **look, **more}
    del settings["backend"]  # choosing one anew would close the user's windows
    with rc_context(settings):
        yield


def save(figure: "Figure", path: Path, dpi: int = DPI) -> None:
    """Write a figure; the file's ending chooses the format. Call it inside the block that the figure was drawn in."""
    ending = path.suffix.lower()
    if ending not in FORMATS:
        raise OutputError(f"picture '{path.name}' must end in {' or '.join(FORMATS)}; rename it")
    contents = io.BytesIO()
    figure.savefig(contents, format=ending[1:], dpi=dpi, metadata={"Date": None} if ending == ".svg" else {})
    write_bytes(path, contents.getvalue())
