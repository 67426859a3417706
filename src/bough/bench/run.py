"""A task enters, its record leaves: by a search in this process, or without one, saying why."""

import logging
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import replace
from functools import lru_cache
from pathlib import Path

import torch

from bough.api import LoadedNetwork, Options, load_network, load_problem, solve
from bough.baselines import BY_OTHERS
from bough.bench.summary import Entry
from bough.bench.tasks import Task
from bough.bench.worker import begun
from bough.budget import Clock
from bough.errors import BoughError
from bough.problem.problem import Problem
from bough.report.record import Run, record
from bough.report.trace import TraceWriter
from bough.verdict.result import Result

Loader = Callable[[Path, Path], tuple[Problem, float]]
_log = logging.getLogger(__name__)


def loader() -> Loader:
    """Reads problems and says how long it took; the last network and problem are kept for the runs that follow."""

    @lru_cache(maxsize=1)
    def network(path: Path) -> tuple[LoadedNetwork, float]:
        clock = Clock.start()
        return load_network(path), clock.seconds()

    @lru_cache(maxsize=1)
    def problem(path: Path, asked: Path) -> tuple[Problem, float]:
        loaded, seconds = network(path)
        clock = Clock.start()
        return load_problem(loaded, asked), seconds + clock.seconds()

    return problem


def run_task(task: Task, load: Loader) -> Entry:
    """Run it here; whatever goes wrong is part of the record."""
    return _run(task, load)[0]


def failed(task: Task, why: str) -> Entry:
    """The record of a run that came to nothing."""
    return _entry(task, replace(task.method.options, timeout=task.instance.timeout), None, why, None)


def _run(task: Task, load: Loader) -> tuple[Entry, bool]:
    """The record, and whether something happened that nobody foresaw."""
    asked = task.instance
    options = replace(task.method.options, timeout=asked.timeout)
    result, load_seconds, failure, foreseen = None, None, None, True
    try:
        problem, load_seconds = load(asked.network, asked.property)
        begun()
        result = _solved(task, problem, options)
        options = options.resolved(problem.network)
    except Exception as error:  # noqa: BLE001 - a crash is a row of the table
        failure, foreseen = f"{type(error).__name__}: {error}", isinstance(error, BoughError)
    if result is not None and result.reason == "interrupted":  # a search ends with what it knows; the bench ends
        raise KeyboardInterrupt
    return _entry(task, options, result, failure, load_seconds), not foreseen


def _solved(task: Task, problem: Problem, options: Options) -> Result:
    """Search, with a trace where one is asked for; one that cannot be written to its end does not end the search."""
    if task.trace is None:
        return solve(problem, options)
    about = {**options.resolved(problem.network).told(), **task.trace.about}
    with TraceWriter(task.trace.path, problem, about, task.trace.limit) as trace:
        result = solve(problem, options, (trace,))
        trace.finish(result)
    if trace.trouble is not None:
        _log.warning("the trace %s is not whole: %s", task.trace.path, trace.trouble)
    return result


def _entry(
    task: Task, options: Options, result: Result | None, failure: str | None, load_seconds: float | None
) -> Entry:
    run = Run(
        network=str(task.instance.network),
        property=str(task.instance.property),
        method=task.method.name,
        **options.told(),
    )
    return {**record(run, result, failure, load_seconds), **task.told()}


# In a worker process


def prepare(cuda: bool) -> None:
    """Make ready, so that no run has to pay for it."""
    torch.set_num_threads(1)
    if cuda and torch.cuda.is_available():
        with suppress(RuntimeError):  # a GPU that is full: the runs that need it will say so
            torch.zeros(1, device="cuda")


@lru_cache(maxsize=1)
def _loader_of_this_process() -> Loader:
    return loader()


def run_in_worker(task: Task) -> tuple[Entry, bool]:
    """As `run_task`, with whether the worker is spent: CUDA and native libraries may be left in any state."""
    entry, unforeseen = _run(task, _loader_of_this_process())
    if torch.cuda.is_initialized():
        torch.cuda.empty_cache()  # others may share the GPU
    return entry, unforeseen


def spent(answer: tuple[Entry, bool]) -> bool:
    """Whether a worker should be replaced after this."""
    return answer[1]


def may_use_cuda(options: Options) -> bool:
    """Whether a method could run on a GPU; which one is known when the network is."""
    return options.device != "cpu" and options.method not in BY_OTHERS and options.bounds not in ("lp", "linear")


def with_share(task: Task, gigabytes: float) -> Task:
    """The same with so much memory for open domains, unless the method says how much."""
    options = task.method.options
    if options.memory is not None or options.method in BY_OTHERS:
        return task
    return replace(task, method=replace(task.method, options=replace(options, memory=gigabytes)))


# On another machine


def prepare_shipped(cuda: bool) -> tuple[None, bool]:
    """As `prepare`."""
    prepare(cuda)
    return None, False


def run_shipped(
    run: Callable[[Task], tuple[Entry, bool]], fresh: bool, task: Task, copies: Mapping[str, str]
) -> tuple[tuple[Entry, bytes | None], bool]:
    """Run a task on copies of its files; the record speaks of the originals, and a trace leaves with it."""
    asked, options = task.instance, task.method.options
    here = replace(asked, network=Path(copies[str(asked.network)]), property=Path(copies[str(asked.property)]))
    weights = options.weights if options.weights is None else copies.get(options.weights, options.weights)
    method = replace(task.method, options=replace(options, weights=weights))
    trace = None if task.trace is None else replace(task.trace, path=here.network.with_name(task.trace.path.name))
    entry, unforeseen = run(replace(task, instance=here, method=method, trace=trace))
    for original, copy in copies.items():
        entry = {k: v.replace(copy, original) if isinstance(v, str) else v for k, v in entry.items()}
    return (entry, None if trace is None else _taken(trace.path)), fresh or unforeseen


def _taken(path: Path) -> bytes | None:
    """What a file holds, which is not needed here any more; None where nothing was written."""
    try:
        written = path.read_bytes()
        path.unlink()
    except OSError:
        return None
    return written
