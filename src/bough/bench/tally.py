"""Records enter as runs end; what people are told leaves: a line for each, how it stands, and a table at the end."""

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from datetime import timedelta
from statistics import fmean, mean, median
from typing import TYPE_CHECKING

from bough.bench.tasks import Key, Task
from bough.budget import Clock, now
from bough.report.runs import SOLVED, Entry, stem

if TYPE_CHECKING:
    from rich.console import RenderableType

KINDS = (*SOLVED, "timeout", "unknown", "errors")
HEAD = ("method", "runs", "solved", *KINDS, "median s", "mean s", "branches", "bounds")
SHOWN = 4  # runs at work that are named; of more only the number is shown


class Tally:
    """Where a bench stands; what was recorded before counts, but not for the throughput."""

    def __init__(self, tasks: Sequence[Task], done: Mapping[Key, Entry], jobs: int) -> None:
        self._left = {task.key: task for task in tasks}
        self._total = Counter(task.method.name for task in tasks)
        self._counts = {name: Counter[str]() for name in self._total}
        self._seconds: dict[str, list[float]] = {name: [] for name in self._total}  # of each run that ended
        self._clock = Clock.start()
        self._jobs = jobs
        self.beat(())
        self._before = self._left.keys() & done.keys()
        for key in self._before:
            self.add(key, done[key])

    def add(self, key: Key, entry: Entry) -> None:
        """Count a run that ended."""
        self._left.pop(key, None)
        self._counts[entry["method"]][_kind(entry)] += 1
        if entry["seconds"] is not None:
            self._seconds[entry["method"]].append(entry["seconds"] + (entry.get("load_seconds") or 0.0))

    def beat(self, at_work: Sequence[tuple[Task, float]]) -> None:
        """Take note of what is at work."""
        self._at_work = at_work
        self._beaten = Clock.start()  # the moment at which these were at work

    def seconds_left(self) -> float | None:
        """How long the runs left may take: as long as those of their method, or of any, and at most their limits."""
        known = [seconds for spent in self._seconds.values() for seconds in spent]
        if not known:
            return None
        left = list(self._left.values())  # a copy: a terminal is drawn on by a thread of its own
        jobs = max(self._jobs, len(self._at_work))  # a cluster tells only by being at work
        means = {name: fmean(spent or known) for name, spent in self._seconds.items()}
        return sum(min(means[t.method.name], t.instance.timeout) for t in left) / jobs

    def line(self) -> str:
        """Throughput, and the end if it can be guessed."""
        total = self._total.total()
        ended = total - len(self._left)
        left = self.seconds_left()
        end = "" if left is None or not self._left else f", about {span(left)} left, until {clock(left)}"
        new = ended - len(self._before)
        speed = f", {60 * new / max(self._clock.seconds(), 1e-9):.1f} a minute" if new else ""
        return f"{ended} of {total} runs{speed}{end}"

    def at_work(self) -> str:
        """The runs that go on now, in words."""
        if not self._at_work:
            return ""
        since = self._beaten.seconds()
        named = [f"{_name(task)} {span(seconds + since)}" for task, seconds in self._at_work[:SHOWN]]
        more = len(self._at_work) - SHOWN
        return f"at work: {', '.join(named)}{f' and {more} more' if more > 0 else ''}"

    def __rich__(self) -> "RenderableType":
        from rich.console import Group
        from rich.table import Table
        from rich.text import Text

        shown = Table(box=None, pad_edge=False)
        shown.add_column("method")
        for head in ("runs", *KINDS, "mean s"):
            shown.add_column(head, justify="right")
        for name, counts in self._counts.items():
            seconds = f"{fmean(self._seconds[name]):.2f}" if self._seconds[name] else "-"
            runs = f"{counts.total()}/{self._total[name]}"
            shown.add_row(Text(name), runs, *(str(counts[kind]) for kind in KINDS), seconds)
        return Group(shown, Text(self.line()), Text(self.at_work(), overflow="ellipsis", no_wrap=True))


def _name(task: Task) -> str:
    return f"{stem(task.instance.network.name)} {stem(task.instance.property.name)} {task.method.name}"


def told(task: Task) -> str:
    """One line about a run that is still to be made."""
    return f"{_name(task)} {task.instance.timeout:g} s"


def longest(tasks: Iterable[Task], jobs: int) -> float:
    """How many seconds the runs take if each takes its time limit."""
    limits = [task.instance.timeout for task in tasks]
    return max(sum(limits) / jobs, *limits, 0.0)


def span(seconds: float) -> str:
    """Seconds as people read them."""
    return f"{seconds:.0f} s" if seconds < 60 else str(timedelta(seconds=round(seconds)))


def clock(seconds: float) -> str:
    """The time of day in so many seconds, with the date unless it is today."""
    current = now()
    try:
        then = current + timedelta(seconds=seconds)
    except OverflowError:
        return "-"
    return then.strftime("%H:%M" if then.date() == current.date() else "%Y-%m-%d %H:%M")


def _kind(entry: Entry) -> str:
    return "errors" if entry["error"] is not None else str(entry["verdict"])


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
    rows = [HEAD, *(_row(name, runs) for name, runs in by_method.items())]
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    lines = ([name.ljust(widths[0]), *map(str.rjust, figures, widths[1:])] for name, *figures in rows)
    return "\n".join(map("  ".join, lines))


def _row(name: str, runs: Sequence[Entry]) -> tuple[str, ...]:
    count = Counter(map(_kind, runs))
    ended = [run for run in runs if run["error"] is None]
    seconds = [run["seconds"] for run in ended]
    return (
        name,
        *map(str, (len(runs), sum(count[kind] for kind in SOLVED), *(count[kind] for kind in KINDS))),
        *(f"{f(seconds):.2f}" if seconds else "-" for f in (median, mean)),
        *(str(sum(run[figure] for run in ended)) for figure in ("branches", "bounds")),
    )
