"""Runs enter, tables leave, as values: the paper's kinds of table, and text or Markdown made of any.

A `Table` says what stands where and which figure of a column is best; how it looks is for whoever prints it.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Literal

from bough.errors import BadInput
from laboratory.statistics import (
    DIFFICULTIES,
    Average,
    Comparison,
    Figure,
    Figures,
    Grouping,
    Run,
    compare,
    cost,
    dependence,
    grouped,
    rank_correlation,
)

Cell = float | int | str | None
Mean = Literal["arithmetic", "geometric"]
Measure = Literal["seconds", "branches", "bounds", "unsolved", "par2", "solved", "errors"]

PAPER: tuple[Measure, ...] = ("seconds", "branches", "unsolved")
OURS: tuple[Measure, ...] = ("seconds", "branches", "bounds", "unsolved")


@dataclass(frozen=True)
class Heading:
    """A column: the group it stands under, what it is, how its numbers are written, and which of them is best."""

    group: str
    title: str
    form: str = ".3f"
    best: Literal["least", "most"] | None = None

    def written(self, cell: Cell) -> str:
        """A cell as people read it; what is not known is empty."""
        if cell is None:
            return ""
        return cell if isinstance(cell, str) else f"{cell:{self.form}}"


@dataclass(frozen=True)
class Line:
    """A row: its name and a cell for every column."""

    name: str
    cells: tuple[Cell, ...]


@dataclass(frozen=True)
class Table:
    """What a table says."""

    title: str
    corner: str  # the heading over the names
    headings: tuple[Heading, ...]
    lines: tuple[Line, ...]
    notes: tuple[str, ...] = ()

    def best(self) -> frozenset[tuple[int, int]]:
        """Row and column of every cell that no other beats as written; nothing where all are alike."""
        winning = set()
        for column, heading in enumerate(self.headings):
            cells = [line.cells[column] for line in self.lines]
            numbers = {k: c for k, c in enumerate(cells) if c is not None and not isinstance(c, str)}
            if heading.best is None or not numbers:
                continue
            top = (min if heading.best == "least" else max)(numbers.values())
            winners = {k for k, c in numbers.items() if heading.written(c) == heading.written(top)}
            if len(winners) < len(numbers):
                winning |= {(k, column) for k in winners}
        return frozenset(winning)

    def markdown(self) -> str:
        """The best figures are in bold, the notes below."""
        best = self.best()
        titles = [f"{h.group}: {h.title}" if h.group else h.title for h in self.headings]
        rows = [[_plain(title) for title in (self.corner, *titles)]]
        for k, line in enumerate(self.lines):
            cells = [h.written(c) for h, c in zip(self.headings, line.cells, strict=True)]
            marked = [f"**{_plain(c)}**" if (k, j) in best else _plain(c) for j, c in enumerate(cells)]
            rows.append([_plain(line.name), *marked])
        head, *body = ["| " + " | ".join(row) + " |" for row in rows]
        rule = "|---|" + "".join("---:|" for _ in self.headings)
        title = [f"**{_plain(self.title)}**", ""] if self.title else []
        notes = ["", *(f"- {_plain(note)}" for note in self.notes)] if self.notes else []
        return "\n".join([*title, head, rule, *body, *notes]) + "\n"

    def text(self) -> str:
        """Columns under each other, a group's name over its first, the best figures with a star."""
        best, groups = self.best(), [h.group for h in self.headings]
        first = [g if k == 0 or groups[k - 1] != g else "" for k, g in enumerate(groups)]
        rows = [["", *(f"{g} " for g in first)]] if any(first) else []
        rows.append([self.corner, *(f"{h.title} " for h in self.headings)])
        for k, line in enumerate(self.lines):
            cells = [h.written(c) for h, c in zip(self.headings, line.cells, strict=True)]
            rows.append([line.name, *(c + ("*" if (k, j) in best else " ") for j, c in enumerate(cells))])
        widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
        lines = ["  ".join(c.rjust(w) if k else c.ljust(w) for k, (c, w) in _sized(row, widths)) for row in rows]
        title = [self.title] if self.title else []
        return "\n".join([*title, *(line.rstrip() for line in lines), *(f"  {note}" for note in self.notes)]) + "\n"

    def beside(self, name: str, other: "Table", title: str) -> "Table":
        """Both tables in one, this one's lines first; the other's names are followed by `name` in brackets."""
        if [h.title for h in self.headings] != [h.title for h in other.headings]:
            raise AssertionError("tables of different columns")
        more = tuple(replace(line, name=f"{line.name} ({name})") for line in other.lines)
        plain = tuple(replace(h, best=None) for h in self.headings)  # other machines, other properties
        return Table(title, self.corner, plain, self.lines + more, self.notes + other.notes)


def _sized(row: Sequence[str], widths: Sequence[int]) -> Iterable[tuple[int, tuple[str, int]]]:
    return enumerate(zip(row, widths, strict=True))


def _plain(text: str) -> str:
    """Text that means itself in a cell of Markdown."""
    for sign in ("\\", "|", "*", "_", "`", "<", "["):
        text = text.replace(sign, f"\\{sign}")
    return " ".join(text.split())


# The paper's tables


def performance(
    runs: Iterable[Run],
    title: str = "",
    *,
    methods: Sequence[str] | None = None,
    by: Grouping | None = None,
    mean: Mean = "arithmetic",
    measures: Sequence[Measure] = PAPER,
    common_to: Sequence[str] | None = None,
    strict: bool = True,
) -> Table:
    """Time, branches and share unsolved of each method, in each group: the paper's Tables 1 and 2, E.2, E.5, F.3, F.5.

    `mean` says which; `compare` tells what is averaged over.
    """
    parts = compared(runs, methods, by, common_to, strict=strict)
    names = methods or tuple(dict.fromkeys(name for part in parts.values() for name in part.methods))
    headings = tuple(replace(_heading(m, mean), group=capital(name)) for name in parts for m in measures)
    lines = [
        Line(name, tuple(_measured(part, name, m, mean) for part in parts.values() for m in measures)) for name in names
    ]
    notes = tuple(note for name, part in parts.items() for note in _notes(name, part, measures, mean))
    return Table(title, "method", headings, tuple(lines), notes)


def compared(
    runs: Iterable[Run],
    methods: Sequence[str] | None = None,
    by: Grouping | None = None,
    common_to: Sequence[str] | None = None,
    *,
    strict: bool = True,
) -> dict[str, Comparison]:
    """A comparison for each group, of those methods that were run there at all."""
    listed = list(runs)
    known = {str(run["method"]) for run in listed}
    unknown = [name for name in (*(methods or ()), *(common_to or ())) if name not in known]
    if unknown or not listed:
        compare(listed, methods, common_to)  # says what is wrong
    parts = {}
    for group, part in grouped(listed, by).items():
        present = {str(run["method"]): None for run in part}
        chosen = [name for name in present if methods is None] or [name for name in methods or () if name in present]
        if not chosen:
            continue
        common = None if common_to is None else [name for name in common_to if name in present]
        try:
            parts[group] = compare(part, chosen, common, strict=strict)
        except BadInput as error:
            raise BadInput(f"{group}: {error}" if group else str(error)) from error
    return parts


def capital(name: str) -> str:
    """A difficulty as a heading; names of networks stay as they are."""
    return name.capitalize() if name in DIFFICULTIES else name


def _heading(measure: Measure, mean: Mean) -> Heading:
    average = "" if mean == "arithmetic" else "geometric "
    known: Mapping[Measure, Heading] = {
        "seconds": Heading("", f"{average}time (s)", ".3f", "least"),
        "branches": Heading("", f"{average}branches", ".3f", "least"),
        "bounds": Heading("", f"{average}bounds", ".3f", "least"),
        "unsolved": Heading("", "unsolved", ".3f", "least"),
        "par2": Heading("", "PAR-2 (s)", ".3f", "least"),
        "solved": Heading("", "solved", "d", "most"),
        "errors": Heading("", "errors", "d"),
    }
    return known[measure]


def _measured(part: Comparison, method: str, measure: Measure, mean: Mean) -> Cell:
    if method not in part.methods:
        return None
    figures = part.figures(method)
    read: Mapping[Measure, Callable[[Figures], Cell]] = {
        "seconds": lambda f: _mean(f.seconds, mean),
        "branches": lambda f: _mean(f.branches, mean),
        "bounds": lambda f: _mean(f.bounds, mean),
        "unsolved": lambda f: f.unsolved_share,
        "par2": lambda f: f.par2,
        "solved": lambda f: f.solved,
        "errors": lambda f: f.errors,
    }
    return read[measure](figures)


def _mean(average: Average | None, mean: Mean) -> float | None:
    if average is None:
        return None
    return average.arithmetic if mean == "arithmetic" else average.geometric


def _notes(name: str, part: Comparison, measures: Sequence[Measure], mean: Mean) -> list[str]:
    before = f"{capital(name)}: " if name else ""
    many = len(part.instances)
    notes = [f"{before}{many} {'property' if many == 1 else 'properties'}"]
    if {"branches", "bounds"} & {*measures}:
        whom = "every search" if len(part.common_to) > 1 else "the only search"
        notes[0] += f", of which {len(part.common)} were solved by {whom}, where branches and bounds are averaged"
        if not part.common:
            notes.append(f"{before}nothing was solved by every search, so there is no average of branches")
        elif part.shift and mean == "geometric":
            notes.append(f"{before}some took no branch, so geometric means of counts are of 1 more, less 1")
    return [*notes, *(f"{before}{note}" for note in part.notes)]


def summary(runs: Iterable[Run], title: str = "", *, strict: bool = True) -> Table:
    """A line per method: what became of its runs, and its averages."""
    part = compare(runs, strict=strict)
    headings = (
        *(Heading("", word, "d") for word in ("runs", "solved", "verified", "falsified")),
        *(Heading("", word, "d") for word in ("timeout", "unknown", "errors")),
        Heading("", "mean s", ".2f", "least"),
        Heading("", "geometric s", ".2f", "least"),
        Heading("", "PAR-2", ".2f", "least"),
        Heading("", "branches", ".1f", "least"),
        Heading("", "bounds", ".1f", "least"),
    )
    headings = (headings[0], replace(headings[1], best="most"), *headings[2:])
    lines = []
    for name in part.methods:
        f = part.figures(name)
        counts = (f.runs, f.solved, f.verified, f.falsified, f.timeouts, f.unknown, f.errors)
        means = (f.seconds.arithmetic, f.seconds.geometric, f.par2)
        lines.append(Line(name, (*counts, *means, _mean(f.branches, "arithmetic"), _mean(f.bounds, "arithmetic"))))
    return Table(title, "method", headings, tuple(lines), tuple(_notes("", part, PAPER, "arithmetic")))


def wins(
    runs: Iterable[Run],
    against: str,
    title: str = "",
    *,
    by: Grouping | None = None,
    figure: Figure = "branches",
    strict: bool = True,
) -> Table:
    """How often each method needs less than one of them, and by what factor (the text of section 6.3)."""
    lines, notes = [], []
    for group, part in compared(runs, by=by, strict=strict).items():
        before = f"{capital(group)}, " if group else ""
        for name in part.methods:
            if name == against or not part.counts(name, figure):
                continue
            w = part.wins(name, against, figure)
            ratio = None if w.ratio is None else w.ratio.geometric
            shares = (w.share, w.paper_share, w.wins / w.both if w.both else None)
            cells = (w.instances, w.wins, w.ties, w.losses, w.only_first, w.only_second, *shares, ratio)
            lines.append(Line(f"{before}{name}", (*cells, part.median_ratio(name, against, figure))))
            if w.close and figure == "seconds":
                notes.append(f"{before}{name}: its share as in the paper has {w.close} pairs of runs without an answer")
    counts = ("properties", "less", "as much", "more", "alone", f"{against} alone")
    headings = (
        *(Heading("", word, "d") for word in counts),
        Heading("", "share", ".2%"),
        Heading("", "share as in the paper", ".2%"),
        Heading("", "share of both solved", ".2%"),
        Heading("", "geometric ratio", ".3f"),
        Heading("", "median ratio", ".3f"),
    )
    return Table(title, f"{figure} against {against}", headings, tuple(lines), tuple(notes))


def fail_safe(runs: Iterable[Run], title: str = "", *, by: Grouping = "network") -> Table:
    """Who decided: the learnt rule or its fail-safe, property by property, then averaged (E.1 and F.4)."""
    lines, without = [], []
    for group, part in grouped(runs, by).items():
        for method in dict.fromkeys(str(run["method"]) for run in part):
            shares = dependence(part, method)
            if shares is None:
                without.append(f"{capital(group)}, {method}")
                continue
            cells = (shares.runs, shares.learnt, shares.backup, shares.least, shares.most)
            lines.append(Line(f"{capital(group)}, {method}", cells))
    headings = (
        Heading("", "properties", "d"),
        *(Heading("", word) for word in ("learnt (avg)", "fail-safe (avg)", "fail-safe (min)", "fail-safe (max)")),
    )
    notes = (f"no decision by a learnt rule: {', '.join(without)}",) if without else ()
    return Table(title, "network and method", headings, tuple(lines), notes)


def costs(runs: Iterable[Run], title: str = "", *, by: Grouping = "network", strict: bool = True) -> Table:
    """Seconds per branch, per decision (two branches) and per bound, on what every search solved (E.4)."""
    lines = []
    for group, part in compared(runs, by=by, strict=strict).items():
        for method in part.common_to:
            c = cost(part, method)
            lines.append(Line(f"{capital(group)}, {method}", (c.runs, c.per_branch, c.per_decision, c.per_bound)))
    headings = (
        Heading("", "properties", "d"),
        *(Heading("", f"s per {word}", ".3g") for word in ("branch", "decision", "bound")),
    )
    return Table(title, "network and method", headings, tuple(lines))


def nodes(runs: Iterable[Run], title: str = "", *, by: Grouping = "network") -> Table:
    """Nodes or branches of each method over all of its runs, and whether they grow with time (E.3)."""
    lines = []
    for group, part in grouped(runs, by).items():
        for method in dict.fromkeys(str(run["method"]) for run in part):
            counted = [r for r in part if r["method"] == method and r["branches"] is not None and r["error"] is None]
            if not counted:
                continue
            branches = [int(run["branches"]) for run in counted]
            rank = rank_correlation([(r["branches"], r["seconds"]) for r in counted])
            cells = (len(counted), sum(branches) / len(branches), min(branches), max(branches), rank)
            lines.append(Line(f"{capital(group)}, {method}", cells))
    headings = (
        Heading("", "runs", "d"),
        Heading("", "mean", ".1f"),
        Heading("", "least", "d"),
        Heading("", "most", "d"),
        Heading("", "rank correlation with seconds", ".2f"),
    )
    return Table(title, "network and method", headings, tuple(lines))
