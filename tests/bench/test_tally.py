"""What a person sees while a bench runs."""

import io
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from rich.console import Console
from tests.bench.test_bench import METHODS, Folder, bench  # noqa: F401 - the fixture

from bough.bench.methods import parse_method
from bough.bench.tally import Tally, clock, longest, span, told
from bough.bench.tasks import Task
from bough.problem.instances import Instance


def task(number: int, method: str = "auto", timeout: float = 100.0) -> Task:
    instance = Instance(Path("a/[bold]net.onnx"), Path(f"p{number}.vnnlib"), timeout)
    return Task(Path("list.csv"), instance, parse_method(method))


def entry(of: Task, verdict: str | None = "verified", seconds: float = 2.0) -> dict[str, Any]:
    error = None if verdict else "crashed"
    spent = seconds if verdict else None
    return {"method": of.method.name, "verdict": verdict, "error": error, "seconds": spent, "load_seconds": 0.0}


def shown(tally: Tally) -> list[str]:
    console = Console(file=io.StringIO(), width=200)
    console.print(tally)
    assert isinstance(console.file, io.StringIO)
    return [line.rstrip() for line in console.file.getvalue().splitlines()]


def test_counts_by_method_and_verdict() -> None:
    tasks = [task(number, method) for number in range(4) for method in ("auto", "lp-babsr")]
    tally = Tally(tasks, {tasks[0].key: entry(tasks[0])}, 1)
    tally.add(tasks[1].key, entry(tasks[1], "timeout", 8.0))
    tally.add(tasks[2].key, entry(tasks[2], None))
    tally.beat([(tasks[3], 61.0)])
    lines = shown(tally)
    assert lines[0].split() == ["method", "runs", "verified", "falsified", "timeout", "unknown", "errors", "mean", "s"]
    assert lines[1].split() == ["auto", "2/4", "1", "0", "0", "0", "1", "2.00"]
    assert lines[2].split() == ["lp-babsr", "1/4", "0", "0", "1", "0", "0", "8.00"]
    assert lines[3].startswith("3 of 8 runs, ")
    assert lines[4] == "at work: [bold]net p1 lp-babsr 0:01:01"  # names are no mark-up


def test_the_end_is_guessed_from_what_ended() -> None:
    tasks = [task(0), task(1), task(2, timeout=1.5), task(3, "lp-babsr")]
    tally = Tally(tasks, {}, 1)
    assert tally.seconds_left() is None
    assert tally.line() == "0 of 4 runs"
    tally.add(tasks[0].key, entry(tasks[0], seconds=4.0))
    assert tally.seconds_left() == 4.0 + 1.5 + 4.0
    assert replace_jobs(tasks, 2).seconds_left() == (4.0 + 1.5 + 4.0) / 2
    for of in tasks[1:]:
        tally.add(of.key, entry(of))
    assert tally.seconds_left() == 0
    assert " left" not in tally.line()


def replace_jobs(tasks: list[Task], jobs: int) -> Tally:
    tally = Tally(tasks, {}, jobs)
    tally.add(tasks[0].key, entry(tasks[0], seconds=4.0))
    return tally


def test_the_longest_it_can_take() -> None:
    tasks = [task(0, timeout=10), task(1, timeout=30)]
    assert longest(tasks, 1) == 40
    assert longest(tasks, 2) == 30  # a run is not cut in two
    assert longest([], 2) == 0
    assert told(tasks[0]) == "[bold]net p0 auto 10 s"


def test_times_for_people() -> None:
    assert [span(seconds) for seconds in (0.4, 59.4, 61, 90_000)] == ["0 s", "59 s", "0:01:01", "1 day, 1:00:00"]
    assert ":" in clock(10)
    assert clock(1e30) == "-"


def test_on_a_terminal_a_table_is_kept_up_to_date(
    bench: Folder,  # noqa: F811 - the fixture
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    class Terminal(io.StringIO):
        def isatty(self) -> bool:
            return True

    screen = Terminal()
    monkeypatch.setattr(sys, "stderr", screen)
    bench.csv.with_name("unsafe.vnnlib").write_text("(assert")  # an error is said above the table
    assert bench("--method", METHODS[0])[0] == 0
    text = screen.getvalue()
    assert "3 of 3 runs" in text
    assert "1/3  verified" not in text
    assert "2/3  error  net unsafe lp-babsr: PropertyError" in text.replace("\n", " ")
    assert text.rstrip().splitlines()[-1].split()[:4] == ["lp-babsr", "3", "2", "2"]
    assert replace(task(0)).key == task(0).key
