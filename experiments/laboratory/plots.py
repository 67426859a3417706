"""Runs enter, figures leave: cactus plots, two methods point by point, bounds over time.

Each function returns a matplotlib `Figure`; `write` makes files of it. What is refused is what `compare` refuses.
"""

import math
from bisect import bisect_left
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from bough.drawing import FAINT, INK, MUTED, pen, save, style
from bough.errors import BadInput
from laboratory.statistics import Comparison, Figure, Grouping, Instance, Run, figure_of, grouped, instance
from laboratory.tables import capital, compared

if TYPE_CHECKING:  # matplotlib is slow to import and only plots need it
    from matplotlib.axes import Axes
    from matplotlib.axis import Axis
    from matplotlib.figure import Figure as Drawing

Track = Sequence[tuple[float, float]]  # seconds, lower bound

UNITS: Mapping[Figure, str] = {"seconds": "time (s)", "branches": "branches", "bounds": "bounds computed"}
PANEL = (3.3, 2.7)  # inches of one
MARKS = 6  # on a line
_BEYOND = 1.35  # how far outside of everything solved the unsolved are drawn, as a factor
_WIDE = 30.0  # a figure that spans more is drawn on logarithmic axes


def write(figure: "Drawing", *paths: Path) -> None:
    """One file for each path; its ending, `.png` or `.svg`, chooses the format."""
    with style():
        for path in paths:
            save(figure, path)


# Cactus plots


def cactus(
    runs: Iterable[Run],
    figure: Figure = "seconds",
    *,
    by: Grouping | None = None,
    methods: Sequence[str] | None = None,
    title: str = "",
    strict: bool = True,
) -> "Drawing":
    """The share of properties solved within some time, or some branches or bounds; a panel for each group.

    Methods that do not count branches, as foreign solvers, are left out where these are on the axis.
    """
    from matplotlib.figure import Figure as Drawing

    parts = compared(runs, methods, by, strict=strict)
    names = methods or tuple(dict.fromkeys(name for part in parts.values() for name in part.methods))
    shown = [name for name in names if all(p.counts(name, figure) for p in parts.values() if name in p.methods)]
    with style():
        drawing = Drawing(figsize=(PANEL[0] * len(parts) + 0.5, PANEL[1] + 0.45), layout="constrained")
        panels = drawing.subplots(1, len(parts), sharey=True, squeeze=False)[0]
        for axes, (group, part) in zip(panels, parts.items(), strict=True):
            _climb(axes, part, figure, {name: k for k, name in enumerate(names) if name in shown})
            axes.set_title(capital(group), fontsize=9)
            axes.set_xlabel(UNITS[figure])
        panels[0].set_ylabel("solved (%)")
        panels[0].set_ylim(-2, 102)
        if title:
            drawing.suptitle(title, fontsize=10)
        _legend(drawing, panels)
    return drawing


def _climb(axes: "Axes", part: Comparison, figure: Figure, shown: Mapping[str, int]) -> None:
    """The lines of one panel; a method has the same pen in every panel and figure, by its place."""
    values = {name: _solved(part, name, figure) for name in shown if name in part.methods}
    positive = [value for figures in values.values() for value in figures if value > 0]
    limit = _limit(part) if figure == "seconds" else None
    top = max([*positive, limit or 0.0]) or 1.0
    low = min(positive, default=top)
    many = len(part.instances)
    logarithmic = top / low > _WIDE
    start = low / 1.3 if logarithmic else 0.0
    if logarithmic and any(0 in figures for figures in values.values()):
        start = 0.0  # proved at the root: on a scale that knows 0
        axes.set_xscale("symlog", linthresh=max(low, 1.0) if figure != "seconds" else low, linscale=0.35)
    elif logarithmic:
        axes.set_xscale("log")
    for name, figures in values.items():
        # A step up at every property solved, then level to the end of the plot.
        x = [start, *figures, top]
        y = [0.0, *(100 * k / many for k in range(1, len(figures) + 1)), 100 * len(figures) / many]
        look = {**pen(shown[name]).line(), "markevery": _marks(y, shown[name])}
        axes.plot(x, y, drawstyle="steps-post", label=_label(name), **look)
    axes.set_xlim(start, top * (1.06 if logarithmic else 1.02))
    if logarithmic:
        _plain_numbers(axes.xaxis, top / low)
    if limit is not None:
        axes.axvline(limit, color=MUTED, linewidth=0.8, linestyle=":")


def _plain_numbers(axis: "Axis", span: float) -> None:
    """Numbers as people write them on a logarithmic axis; 2 and 5 between the tens, too, where there are few."""
    from matplotlib.ticker import FuncFormatter, LogLocator, NullFormatter, SymmetricalLogLocator

    if not isinstance(axis.get_major_locator(), SymmetricalLogLocator):
        axis.set_major_locator(LogLocator(subs=(1.0,) if span > _WIDE else (1.0, 2.0, 5.0)))
    axis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:,.0f}" if value >= 1 else f"{value:g}"))
    axis.set_minor_formatter(NullFormatter())


def _solved(part: Comparison, method: str, figure: Figure) -> list[float]:
    figures = [figure_of(run, figure) for run in part.of(method).values()]
    return sorted(value for value in figures if value is not None)


def _marks(y: Sequence[float], place: int) -> list[int]:
    """Points that carry a marker: at even heights, which differ from method to method, so that lines stay apart."""
    if len(y) <= MARKS + 2:
        return list(range(1, len(y) - 1))
    top = y[-1]
    heights = [top * (k + 0.25 + 0.5 * (place % 2)) / MARKS for k in range(MARKS)]
    return sorted({bisect_left(y, height) for height in heights})


def _limit(part: Comparison) -> float | None:
    """The time limit, where all runs share one."""
    limits = {run["timeout"] for runs in part.runs.values() for run in runs.values()}
    return float(limits.pop()) if len(limits) == 1 and None not in limits else None


def _label(name: str) -> str:
    """A name as a legend shows it: matplotlib hides what begins with an underscore."""
    return f" {name}" if name.startswith("_") else name


def _legend(drawing: "Drawing", panels: Sequence["Axes"]) -> None:
    """One for all panels, below them."""
    handles = {}
    for axes in panels:
        lines, names = axes.get_legend_handles_labels()
        handles.update({name: line for name, line in zip(names, lines, strict=True) if name not in handles})
    longest = max(map(len, handles), default=1)
    columns = max(1, min(len(handles), int(drawing.get_figwidth() * 15 / (longest + 9))))
    drawing.legend(list(handles.values()), list(handles), loc="outside lower center", ncols=columns, fontsize=8)


# Two methods


def scatter(
    runs: Iterable[Run],
    first: str,
    second: str,
    figure: Figure = "seconds",
    *,
    by: Grouping | None = None,
    title: str = "",
    strict: bool = True,
) -> "Drawing":
    """A point for each property: what it took one method across, the other upwards; by group in colour and shape.

    What a method did not solve lies on the edge. Below the diagonal the second is better; the faint lines are a factor
    of two.
    """
    from matplotlib.figure import Figure as Drawing

    listed = list(runs)
    part = compared(listed, [first, second], strict=strict)[""]
    for name in (first, second):
        if not part.counts(name, figure):
            raise BadInput(f"{name} does not count {figure} as a search does; draw seconds")
    group_of = {instance(run): name for name, members in grouped(listed, by).items() for run in members}
    points = {k: (figure_of(part.of(first)[k], figure), figure_of(part.of(second)[k], figure)) for k in part.instances}
    offset = 1.0 if any(0 in pair for pair in points.values()) else 0.0  # a logarithm of nothing there is not
    known = [value + offset for pair in points.values() for value in pair if value is not None]
    limit = _limit(part) if figure == "seconds" else None
    top = max([*known, limit or 0.0]) or 1.0
    edge, low = top * _BEYOND, min(known, default=top / 10) / 1.3
    with style():
        drawing = Drawing(figsize=(4.0, 4.1 + 0.25 * (by is not None)), layout="constrained")
        axes = drawing.subplots()
        _guides(axes, low, edge)
        _points(axes, points, group_of, offset, edge)
        more = " + 1" if offset else ""
        axes.set_xlabel(f"{first}: {UNITS[figure]}{more}")
        axes.set_ylabel(f"{second}: {UNITS[figure]}{more}")
        _tell(axes, points, first, second)
        if title:
            axes.set_title(title)
        if by is not None:
            _legend(drawing, [axes])
    return drawing


def _guides(axes: "Axes", low: float, edge: float) -> None:
    """Logarithmic axes of the same length, the diagonal, a factor of two, and the edge of the unsolved."""
    high = edge * 1.15
    axes.set_xscale("log")
    axes.set_yscale("log")
    axes.set_xlim(low, high)
    axes.set_ylim(low, high)
    axes.set_aspect("equal")
    for axis in (axes.xaxis, axes.yaxis):
        _plain_numbers(axis, high / low)
    axes.plot([low, high], [low, high], color=MUTED, linewidth=1.0, zorder=1)
    for factor in (0.5, 2.0):
        axes.plot([low, high], [low * factor, high * factor], color=MUTED, linewidth=0.7, dashes=(4, 3), zorder=1)
    axes.axvline(edge, color=FAINT, linewidth=5, zorder=0)
    axes.axhline(edge, color=FAINT, linewidth=5, zorder=0)
    small: dict[str, Any] = {"color": MUTED, "fontsize": 7, "transform": axes.transAxes}
    axes.text(1.015, 0.5, "not solved", rotation=270, va="center", **small)
    axes.text(0.5, 1.015, "not solved", ha="center", **small)


def _points(
    axes: "Axes",
    points: Mapping[Instance, tuple[float | None, float | None]],
    group_of: Mapping[Instance, str],
    offset: float,
    edge: float,
) -> None:
    clear = 0.45 if len(points) > 300 else 0.85
    for place, group in enumerate(dict.fromkeys(group_of.values())):  # in the order of groups, as in a table
        look = pen(place)
        pairs = [pair for key, pair in points.items() if group_of[key] == group]
        for whole in (True, False):  # without an answer, the point is hollow
            chosen = [pair for pair in pairs if (None not in pair) == whole]
            x, y = ([_placed(pair[k], offset, edge) for pair in chosen] for k in (0, 1))
            label = _label(capital(group)) if whole or all(None in pair for pair in pairs) else None
            inside = look.colour if whole else "none"
            style_of: dict[str, Any] = {"marker": look.marker, "facecolors": inside, "edgecolors": look.colour}
            axes.scatter(x, y, s=14, linewidths=0.8, alpha=clear, label=label, clip_on=False, zorder=3, **style_of)


def _placed(value: float | None, offset: float, edge: float) -> float:
    return edge if value is None else value + offset


def _tell(axes: "Axes", points: Mapping[Instance, tuple[float | None, float | None]], first: str, second: str) -> None:
    """How many points lie on either side, in the corners."""
    values = [tuple(math.inf if value is None else value for value in pair) for pair in points.values()]
    below, above = sum(b < a for a, b in values), sum(a < b for a, b in values)
    box = {"facecolor": "white", "edgecolor": "none", "alpha": 0.8, "pad": 1.5}
    for x, y, count, name in ((0.92, 0.03, below, second), (0.03, 0.85, above, first)):
        side = "right" if x > 0.5 else "left"
        words = f"{name} better: {count}"
        axes.text(x, y, words, ha=side, va="bottom", color=INK, fontsize=8, transform=axes.transAxes, bbox=box)


# Over time


def anytime(tracks: Mapping[str, Track], *, limit: float | None = None, title: str = "") -> "Drawing":
    """The lower bound proved so far against time, a line for each name; a property is proved above 0."""
    from matplotlib.figure import Figure as Drawing

    for name, track in tracks.items():
        if any(not (math.isfinite(seconds) and seconds >= 0) or math.isnan(bound) for seconds, bound in track):
            raise BadInput(f"the bounds of {name} are at no known time; give pairs of seconds and lower bound")
    known = {name: [(s, b) for s, b in sorted(track) if math.isfinite(b)] for name, track in tracks.items()}
    known = {name: track for name, track in known.items() if track}
    if not known:
        raise BadInput("there are no bounds to draw; give runs with a trace of bounds over time")
    end = max([limit or 0.0, *(seconds for track in known.values() for seconds, _ in track)]) or 1.0
    first = min((seconds for track in known.values() for seconds, _ in track if seconds > 0), default=end)
    with style():
        drawing = Drawing(figsize=(5.2, 3.2), layout="constrained")
        axes = drawing.subplots()
        if end / first > _WIDE:
            axes.set_xscale("log")
            axes.set_xlim(first / 1.2, end * 1.06)
            _plain_numbers(axes.xaxis, end / first)
        else:
            axes.set_xlim(0, end * 1.02)
        axes.axhline(0, color=INK, linewidth=0.9)
        for place, (name, track) in enumerate(known.items()):
            x, y = zip(*track, strict=True)
            done = y[-1] > 0  # proved: the line ends there; otherwise what is known stays known
            look = {**pen(place).line(), "markevery": max(1, len(x) // MARKS)}
            axes.plot([*x, x[-1] if done else end], [*y, y[-1]], drawstyle="steps-post", label=_label(name), **look)
        if limit is not None:
            axes.axvline(limit, color=MUTED, linewidth=0.8, linestyle=":")
        axes.set_xlabel(UNITS["seconds"])
        axes.set_ylabel("lower bound")
        if title:
            axes.set_title(title)
        _legend(drawing, [axes])
    return drawing
