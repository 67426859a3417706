"""Only `budget.py` reads the clock: all else is handed a deadline, or starts a `Clock`."""

import ast
from datetime import datetime, timezone
from pathlib import Path

import pytest

import bough
from bough.budget import Clock, now

SOURCE = Path(bough.__file__).parent
TREES = {
    path.relative_to(SOURCE).as_posix(): ast.parse(path.read_text(encoding="utf-8")) for path in SOURCE.rglob("*.py")
}
ALLOWED = {"time": {"sleep"}, "datetime": {"timedelta"}, "timeit": set[str]()}  # names that read no clock
READERS = {"os.times", "resource.getrusage", "uuid.uuid1"}  # clocks of other modules


def clocks(tree: ast.AST) -> list[str]:
    """What a module imports or calls that reads a clock."""
    readers = []
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            readers += [alias.name for alias in node.names if alias.name in ALLOWED]
        elif isinstance(node, ast.ImportFrom) and node.module in ALLOWED:
            names = (alias.name for alias in node.names)
            readers += [f"{node.module}.{name}" for name in names if name not in ALLOWED[node.module]]
        elif isinstance(node, ast.Call) and ast.unparse(node.func) in READERS:
            readers.append(ast.unparse(node.func))
    return readers


def test_no_other_module_reads_the_clock() -> None:
    readers = {module: clocks(tree) for module, tree in TREES.items() if module != "budget.py"}
    assert {module: names for module, names in readers.items() if names} == {}


def stopwatches(tree: ast.AST) -> set[str]:
    """Names that hold a deadline without an end, and are asked how long ago that was set."""
    nodes = list(ast.walk(tree))
    endless = {
        ast.unparse(target)
        for node in nodes
        if isinstance(node, ast.Assign) and "Deadline.never()" in ast.unparse(node.value)
        for target in node.targets
    }
    timed = {ast.unparse(node.value) for node in nodes if isinstance(node, ast.Attribute) and node.attr == "elapsed"}
    return endless & timed


def test_a_deadline_without_end_is_no_stopwatch() -> None:
    assert {module: stopwatches(tree) for module, tree in TREES.items() if stopwatches(tree)} == {}
    assert stopwatches(ast.parse("clock = Deadline.never()\nwork()\nprint(clock.elapsed())")) == {"clock"}


@pytest.mark.parametrize(
    "text",
    [
        "import time",
        "import datetime as dt",
        "def f():\n    from time import monotonic",
        "from time import sleep, time",
        "from datetime import datetime",
        "import os\nos.times()",
    ],
)
def test_a_reader_is_noticed(text: str) -> None:
    assert clocks(ast.parse(text))


def test_sleeping_and_spans_are_not_reading() -> None:
    assert not clocks(ast.parse("from time import sleep\nfrom datetime import timedelta\nfrom os import stat"))


def test_a_clock_counts_from_its_start(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("bough.budget.time.monotonic", iter((3.0, 5.5, 10.0)).__next__)
    clock = Clock.start()
    assert (clock.seconds(), clock.seconds()) == (2.5, 7.0)


def test_the_date_has_a_time_zone() -> None:
    assert abs((now() - datetime.now(timezone.utc)).total_seconds()) < 60
