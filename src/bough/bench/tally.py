"""Records enter as runs end; how many there are of each kind, and how long the rest may take, leave."""

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from datetime import timedelta
from typing import TYPE_CHECKING

from bough.bench.tasks import Key, Task
from bough.budget import Clock, now
from bough.report.runs import SOLVED, Entry, stem

if TYPE_CHECKING:
    from rich.console import RenderableType

KINDS = (*SOLVED, "timeout", "unknown", "errors")
SHOWN = 4  # runs at work that are named; of more only the number is shown


class Tally:
    """Where a bench stands; what was recorded before counts, but not for the throughput."""

    def __init__(self, tasks: Sequence[Task], done: Mapping[Key, Entry], jobs: int) -> None:
        self._left = {task.key: task for task in tasks}
        self._total = Counter(task.method.name for task in tasks)
        self._counts = {name: Counter(dict.fromkeys(KINDS, 0)) for name in self._total}
        self._seconds = {name: [0.0, 0] for name in self._total}  # seconds in all, and of how many runs
        self._clock = Clock.start()
        self._ended = 0  # runs that ended since then
        self._jobs = jobs
        self._at_work: Sequence[tuple[Task, float]] = ()
        self._beaten = Clock.start()  # the moment at which these were at work
        for key in [key for key in self._left if key in done]:
            self._count(key, done[key])

    def add(self, key: Key, entry: Entry) -> None:
        """Count a run that ended now."""
        self._ended += 1
        self._count(key, entry)

    def beat(self, at_work: Sequence[tuple[Task, float]]) -> None:
        """Take note of what is at work."""
        self._at_work = at_work
        self._beaten = Clock.start()

    def _count(self, key: Key, entry: Entry) -> None:
        self._left.pop(key, None)
        self._counts[entry["method"]]["errors" if entry["error"] is not None else entry["verdict"]] += 1
        if entry["seconds"] is not None:
            spent = self._seconds[entry["method"]]
            spent[0] += entry["seconds"] + (entry.get("load_seconds") or 0.0)
            spent[1] += 1

    def seconds_left(self) -> float | None:
        """How long the runs left may take: as long as those of their method, or of any, and at most their limits."""
        known, count = (sum(spent[k] for spent in self._seconds.values()) for k in (0, 1))
        if not count:
            return None
        left = list(self._left.values())  # a copy: a terminal is drawn on by a thread of its own
        jobs = max(self._jobs, len(self._at_work))  # a cluster tells only by being at work
        means = {name: (s / n if n else known / count) for name, (s, n) in self._seconds.items()}
        return sum(min(means[t.method.name], t.instance.timeout) for t in left) / jobs

    def line(self) -> str:
        """Throughput, and the end if it can be guessed."""
        done = sum(self._total.values()) - len(self._left)
        total = sum(self._total.values())
        left = self.seconds_left()
        end = "" if left is None or not self._left else f", about {span(left)} left, until {clock(left)}"
        speed = f", {60 * self._ended / max(self._clock.seconds(), 1e-9):.1f} a minute" if self._ended else ""
        return f"{done} of {total} runs{speed}{end}"

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

        table = Table(box=None, pad_edge=False)
        table.add_column("method")
        for head in ("runs", *KINDS, "mean s"):
            table.add_column(head, justify="right")
        for name, counts in self._counts.items():
            seconds, ended = self._seconds[name]
            table.add_row(
                Text(name),
                f"{counts.total()}/{self._total[name]}",
                *(str(counts[kind]) for kind in KINDS),
                f"{seconds / ended:.2f}" if ended else "-",
            )
        return Group(table, Text(self.line()), Text(self.at_work(), overflow="ellipsis", no_wrap=True))


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
    if seconds < 60:
        return f"{seconds:.0f} s"
    return str(timedelta(seconds=round(seconds)))


def clock(seconds: float) -> str:
    """The time of day in so many seconds, with the date unless it is today."""
    current = now()
    try:
        then = current + timedelta(seconds=seconds)
    except OverflowError:
        return "-"
    return then.strftime("%H:%M" if then.date() == current.date() else "%Y-%m-%d %H:%M")
