"""Runs every instance by every method and writes a record as soon as each run ends.

Runs happen in this process, one after another: a crash of a native solver, or the system's hand when memory runs out,
ends the bench, which then goes on by `resume`. Processes of their own with hard limits come later.
"""

import json
import os
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from pathlib import Path

from bough.api import LoadedNetwork, load_network, load_problem, solve
from bough.bench.known import Known, known_verdict
from bough.bench.methods import Method
from bough.bench.summary import Entry
from bough.budget import Deadline
from bough.errors import BadInput, OutputError
from bough.problem.instances import Instance, read_instances
from bough.problem.problem import Problem
from bough.report.record import SCHEMA, Run, check_writable, record

BEGINNING = f'{{"schema": "{SCHEMA}"'.encode()  # of every line in a file of ours
Key = tuple[object, ...]
Loader = Callable[[Path, Path], tuple[Problem, float]]


@dataclass(frozen=True)
class Task:
    """One run: an instance of a list, and a method; `known` is the verdict on record."""

    instances: Path
    instance: Instance
    method: Method
    known: str | None = None

    @property
    def key(self) -> Key:
        """What makes it the same run as one in a file."""
        asked, method = self.instance, self.method
        return str(asked.network), str(asked.property), method.name, asked.timeout, method.options.seed


@dataclass(frozen=True)
class Selection:
    """Which instances of a list are run, and for how long each; by default all, with the list's own timeouts."""

    only: str = ""
    every: int = 1
    timeout: float | None = None

    def __post_init__(self) -> None:
        if self.every < 1:
            raise BadInput(f"--every is {self.every}; give a whole number, 1 or more")
        if self.timeout is not None and not 0 <= self.timeout < float("inf"):
            raise BadInput(f"the timeout is {self.timeout}; give a finite number of seconds, 0 or more")


def plan(instances: Path, methods: Sequence[Method], selection: Selection, known: Known) -> tuple[Task, ...]:
    """Every run, instance by instance, so that a bench cut short has compared all methods on what it saw."""
    listed = [i for i in read_instances(instances) if selection.only in f"{i.network} {i.property}"]
    if not listed:
        raise BadInput(f"{instances} lists no instance with '{selection.only}' in its paths; check --only")
    chosen = [i if selection.timeout is None else replace(i, timeout=selection.timeout) for i in listed]
    tasks = [
        Task(instances, instance, method, known_verdict(known, instance.network, instance.property))
        for instance in chosen[:: selection.every]
        for method in methods
    ]
    return tuple({task.key: task for task in tasks}.values())  # a line given twice is one run


def finished_runs(out: Path, *, resume: bool, note: Callable[[str], None]) -> dict[Key, Entry]:
    """The runs in the file that ended without an error; a line that a killed process left half written is removed."""
    check_writable(out)
    if not out.exists():
        return {}
    if not resume:
        raise OutputError(f"{out} is there already; go on with it by --resume, or give another name")
    try:
        *lines, half = out.read_bytes().split(b"\n")
        entries = [_entry(line, f"{out}, line {k}") for k, line in enumerate(lines, 1)]
        if half:
            if not (half.startswith(BEGINNING) or BEGINNING.startswith(half)):
                raise BadInput(f"{out} does not end with a record; give a file that bough bench wrote")
            os.truncate(out, sum(len(line) + 1 for line in lines))
            note(f"{out} ended in the middle of a record, which was dropped; that run is repeated")
    except OSError as error:
        raise OutputError(f"cannot go on with {out}: {error.strerror or error}") from error
    return {_key(entry): entry for entry in entries if entry["error"] is None}


def _entry(line: bytes, where: str) -> Entry:
    try:
        entry: Entry = json.loads(line)
        hash((*_key(entry), *(entry[name] for name in ("error", "verdict", "seconds", "branches", "bounds"))))
    except (ValueError, KeyError, TypeError):
        raise BadInput(f"{where}: not a record of a run; give a file that bough bench wrote") from None
    return entry


def _key(entry: Entry) -> Key:
    return tuple(entry[name] for name in ("network", "property", "method", "timeout", "seed"))


def run_tasks(
    tasks: Sequence[Task],
    done: Mapping[Key, Entry],
    out: Path,
    seen: Callable[[int, Entry], None],
    limit: Deadline,
) -> list[Entry]:
    """The records of all tasks, those done before included; `seen` is told how many there are as each run ends.

    After `limit` no run is started, and Ctrl-C ends the run at work without a record: then fewer records return.
    """
    entries = [{**done[task.key], "known": task.known} for task in tasks if task.key in done]
    load = _loader()
    try:
        for task in tasks:
            if task.key in done:
                continue
            if limit.passed():
                break
            entry = _run(task, load)
            _append(out, entry)
            entries.append(entry)
            seen(len(entries), entry)
    except KeyboardInterrupt:
        pass  # what is written stays; the caller sees that some are left
    return entries


def _run(task: Task, load: Loader) -> Entry:
    asked = task.instance
    options = replace(task.method.options, timeout=asked.timeout)
    result, load_seconds, failure = None, None, None
    try:
        problem, load_seconds = load(asked.network, asked.property)
        result = solve(problem, options)
        options = options.resolved(problem.network)
    except Exception as error:  # noqa: BLE001 - a crash is a row of the table
        failure = f"{type(error).__name__}: {error}"
    if result is not None and result.reason == "interrupted":  # a search ends with what it knows; the bench ends
        raise KeyboardInterrupt
    run = Run(
        network=str(asked.network),
        property=str(asked.property),
        method=task.method.name,
        **options.told(),
    )
    entry = record(run, result, failure, load_seconds)
    return {**entry, "instances": str(task.instances), "known": task.known}


def _loader() -> Loader:
    """Reads problems and says how long it took; the last network and problem are kept for the runs that follow."""

    @lru_cache(maxsize=1)
    def network(path: Path) -> tuple[LoadedNetwork, float]:
        clock = Deadline.never()
        return load_network(path), clock.elapsed()

    @lru_cache(maxsize=1)
    def problem(path: Path, asked: Path) -> tuple[Problem, float]:
        loaded, seconds = network(path)
        clock = Deadline.never()
        return load_problem(loaded, asked), seconds + clock.elapsed()

    return problem


def _append(out: Path, entry: Entry) -> None:
    try:
        with out.open("a", encoding="ascii") as file:
            file.write(json.dumps(entry, allow_nan=False) + "\n")
    except OSError as error:
        raise OutputError(f"cannot write {out}: {error.strerror or error}") from error
