"""A task enters, its record leaves: by a search in this process, or without one, saying why."""

import logging
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import asdict, replace
from functools import lru_cache
from pathlib import Path

import torch

from bough.api import LoadedNetwork, load_network, load_problem
from bough.bench.tasks import Task
from bough.bounds.base import KNOWN_BOUNDERS
from bough.budget import Clock
from bough.errors import BoughError
from bough.jobs.base import Ended
from bough.jobs.worker import begun
from bough.options import AUTO, Options
from bough.plan import AbstractPlan, make_plan, settings_of
from bough.problem.problem import Problem
from bough.report.record import Run, Settings, record
from bough.report.runs import Entry
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
    def problem(path: Path, prop: Path) -> tuple[Problem, float]:
        loaded, seconds = network(path)
        clock = Clock.start()
        return load_problem(loaded, prop), seconds + clock.seconds()

    return problem


def record_of(task: Task, ended: Ended) -> Entry:
    """The record of a run in a worker, whatever became of it."""
    if ended.failure is not None:
        settings = settings_of(replace(task.method.options, timeout=task.instance.timeout))
        return _entry(task, settings, None, ended.failure, None)
    entry, _ = ended.answer
    return {**entry, **task.told()}


def run_task(task: Task, load: Loader) -> tuple[Entry, bool]:
    """The record of a run in this process, and whether something happened that nobody foresaw."""
    options = replace(task.method.options, timeout=task.instance.timeout)
    result = load_seconds = failure = None
    foreseen = True
    settings = settings_of(options)
    try:
        problem, load_seconds = load(task.instance.network, task.instance.property)
        begun()
        plan = make_plan(options, problem.network)
        result = _solved(task, problem, plan)
        settings = plan.settings
    except Exception as error:  # noqa: BLE001 - a crash is a row of the table
        failure = f"{type(error).__name__}: {error}"
        foreseen = isinstance(error, BoughError)
    if result is not None and result.reason == "interrupted":  # a search ends with what it knows; the bench ends
        raise KeyboardInterrupt
    return _entry(task, settings, result, failure, load_seconds), not foreseen


def _solved(task: Task, problem: Problem, plan: AbstractPlan) -> Result:
    """Search, with a trace where one is asked for; one that cannot be written to its end does not end the search."""
    if task.trace is None:
        return plan.solve(problem)
    about = {**asdict(plan.settings), **task.trace.about}
    with TraceWriter(task.trace.path, problem, about, task.trace.limit) as trace:
        result = plan.solve(problem, (trace,))
        trace.finish(result)
    if trace.trouble is not None:
        _log.warning("the trace %s is not whole: %s", task.trace.path, trace.trouble)
    return result


def _entry(
    task: Task, settings: Settings, result: Result | None, failure: str | None, load_seconds: float | None
) -> Entry:
    run = Run(str(task.instance.network), str(task.instance.property), task.method.name, settings)
    return {**record(run, result, failure, load_seconds), **task.told()}


# In a worker process


def prepare(cuda: bool) -> None:
    """Make ready, so that no run has to pay for it."""
    torch.set_num_threads(1)
    if cuda and torch.cuda.is_available():
        with suppress(RuntimeError):  # a GPU that is full: the runs that need it will say so
            torch.zeros(1, device="cuda")


_loader_of_this_process = lru_cache(maxsize=1)(loader)


def run_in_worker(task: Task) -> tuple[Entry, bool]:
    """The record of a task, and whether the worker is spent: CUDA and native libraries may be left in any state."""
    entry, unforeseen = run_task(task, _loader_of_this_process())
    if torch.cuda.is_initialized():
        torch.cuda.empty_cache()  # others may share the GPU
    return entry, unforeseen


def may_use_cuda(options: Options) -> bool:
    """Whether a method could run on a GPU; which one is known when the network is."""
    if options.device == "cpu" or options.method != AUTO:
        return False
    return not isinstance(options.bounds, str) or options.bounds == AUTO or KNOWN_BOUNDERS.entry(options.bounds).gpu


def with_share(task: Task, gigabytes: float) -> Task:
    """A task with so much memory for its open domains, unless the method says how much."""
    options = task.method.options
    if options.memory is not None or options.method != AUTO:
        return task
    return replace(task, method=replace(task.method, options=replace(options, memory=gigabytes)))


# On another machine


def prepare_shipped(cuda: bool) -> tuple[None, bool]:
    """Make a worker on another machine ready, as `prepare` does here."""
    prepare(cuda)
    return None, False


def run_shipped(
    run: Callable[[Task], tuple[Entry, bool]], fresh: bool, task: Task, copies: Mapping[str, str]
) -> tuple[tuple[Entry, bytes | None], bool]:
    """Run a task on copies of its files; the record speaks of the originals, and a trace leaves with it."""
    network, prop = (Path(copies[str(path)]) for path in (task.instance.network, task.instance.property))
    instance = replace(task.instance, network=network, property=prop)
    options = task.method.options
    weights = options.weights if options.weights is None else copies.get(options.weights, options.weights)
    method = replace(task.method, options=replace(options, weights=weights))
    trace = None if task.trace is None else replace(task.trace, path=network.with_name(task.trace.path.name))
    entry, unforeseen = run(replace(task, instance=instance, method=method, trace=trace))
    for original, copy in copies.items():
        entry = {k: v.replace(copy, original) if isinstance(v, str) else v for k, v in entry.items()}
    return (entry, None if trace is None else _taken(trace.path)), fresh or unforeseen


def _taken(path: Path) -> bytes | None:
    """What a file holds, which is then removed; None where nothing was written."""
    try:
        written = path.read_bytes()
        path.unlink()
    except OSError:
        return None
    return written
