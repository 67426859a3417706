"""Records enter; lines for people leave: one as a run ends, a table at the end."""

from collections.abc import Iterable, Sequence
from statistics import mean, median

from bough.report.runs import SOLVED, Entry, stem

HEAD = ("method", "runs", "solved", *SOLVED, "timeout", "unknown", "errors")
FIGURES = ("median s", "mean s", "branches", "bounds")


def progress_line(entry: Entry) -> str:
    """One run in one line."""
    names = f"{stem(entry['network'])} {stem(entry['property'])} {entry['method']}"
    if entry["error"] is not None:
        return f"error  {names}: {entry['error'].splitlines()[0]}"
    return f"{entry['verdict']} {entry['seconds']:.2f} s  {names}"


def is_wrong(entry: Entry) -> bool:
    """Whether a verdict contradicts the one on record: one of the two is a defect."""
    return entry["verdict"] in SOLVED and entry.get("known") not in (None, entry["verdict"])


def table(entries: Iterable[Entry]) -> str:
    """A line per method; seconds are those of every run that ended with a verdict, timeouts included."""
    by_method: dict[str, list[Entry]] = {}
    for entry in entries:
        by_method.setdefault(entry["method"], []).append(entry)
    rows = [(*HEAD, *FIGURES), *(_row(name, runs) for name, runs in by_method.items())]
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    lines = ([name.ljust(widths[0]), *map(str.rjust, figures, widths[1:])] for name, *figures in rows)
    return "\n".join(map("  ".join, lines))


def _row(name: str, runs: Sequence[Entry]) -> tuple[str, ...]:
    count = {verdict: sum(run["verdict"] == verdict for run in runs) for verdict in (*SOLVED, "timeout", "unknown")}
    ended = [run for run in runs if run["error"] is None]
    seconds = [run["seconds"] for run in ended]
    return (
        name,
        *map(str, (len(runs), sum(count[verdict] for verdict in SOLVED), *count.values(), len(runs) - len(ended))),
        *(f"{f(seconds):.2f}" if seconds else "-" for f in (median, mean)),
        *(str(sum(run[figure] for run in ended)) for figure in ("branches", "bounds")),
    )
