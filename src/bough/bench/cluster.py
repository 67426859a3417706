"""Runs on a Ray cluster: tasks enter, records leave here, whichever machine the runs were on.

Ray places the runs, on GPUs those that may use one, and starts those again that were lost with a process or a machine.
"""

import logging
import os
import pickle
from collections import deque
from collections.abc import Callable, Generator, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from typing import Any, TypeVar, final

from bough.bench import run
from bough.bench.engines import MOST_JOBS, AbstractEngine, Answer, Beat
from bough.bench.remote import supervise
from bough.bench.tasks import Task
from bough.budget import Clock, Deadline
from bough.errors import BadInput, OutputError
from bough.files.writing import write_bytes
from bough.jobs.base import BEAT, Ended, Job
from bough.jobs.pool import Limits
from bough.report.runs import Entry

_log = logging.getLogger(__name__)
RETRIES = 8  # of a run whose process or machine was lost
Item = TypeVar("Item")


@dataclass(frozen=True)
class Parcel:
    """One call for the cluster, the files it reads, and whether it may use a GPU.

    The function is given a mapping from the files to their copies, and returns a value and whether its worker is spent.
    """

    job: Job
    files: tuple[Path, ...]
    gpu: bool


@final
@dataclass(frozen=True)
class Cluster(AbstractEngine):
    """A Ray cluster: the one at `address`, or one that Ray finds, or one that is started on this machine.

    `most` runs at once, or as many as there are CPUs; a run that may use a GPU is given `gpu_share` of one.
    """

    most: int | None = None
    limits: Limits = field(default_factory=Limits)
    fresh: bool = False
    gpu_share: float = 1.0
    address: str | None = None
    run: Callable[[Task], Answer] = run.run_in_worker

    def __post_init__(self) -> None:
        if self.most is not None and not 1 <= self.most <= MOST_JOBS:
            raise BadInput(f"--jobs is {self.most}; give a whole number from 1 to {MOST_JOBS}")
        if not 0 < self.gpu_share <= 1:
            raise BadInput(f"--gpu-share is {self.gpu_share}; give a number above 0, 1 at most")
        _ray()

    @property
    def jobs(self) -> int:
        """How many were asked for; how many the cluster has room for is known when it is reached."""
        return self.most or 1

    def work(self, tasks: Sequence[Task], limit: Deadline, beat: Beat) -> Generator[Entry, None, None]:
        """Keep the cluster busy."""
        cuda = any(run.may_use_cuda(task.method.options) for task in tasks)
        for task, ended in self.each(tasks, self._parcel, cuda, limit, beat):
            if task.trace is not None and ended.failure is None and ended.answer[1] is not None:
                try:
                    write_bytes(task.trace.path, ended.answer[1])
                except OutputError as error:  # the record is worth more: it is not lost with its trace
                    _log.warning("a trace is lost: %s", error)
            yield run.record_of(task, ended)

    def _parcel(self, task: Task) -> Parcel:
        options = task.method.options
        files = [task.instance.network, task.instance.property]
        if options.weights is not None and Path(options.weights).is_file():
            files.append(Path(options.weights))
        memory = self.limits.memory
        arguments = (self.run, self.fresh, task if memory is None else run.with_share(task, memory / 2))
        return Parcel(Job(run.run_shipped, arguments, task.instance.timeout), tuple(files), run.may_use_cuda(options))

    def each(
        self,
        items: Sequence[Item],
        packed: Callable[[Item], Parcel],
        cuda: bool,
        limit: Deadline,
        beat: Callable[[Sequence[tuple[Item, float]]], None] = lambda _: None,
    ) -> Generator[tuple[Item, Ended], None, None]:
        """The answer to each item, in the order in which they end; none is handed out after `limit`."""
        ray = _ray()
        with _connected(ray, self.address):
            remote = ray.remote(num_cpus=1, max_retries=RETRIES)(supervise)
            stored = cache(lambda path: ray.put(_contents(path)))  # each file is put into Ray's store once
            resources = ray.cluster_resources()
            room = self.most or max(1, int(resources.get("CPU", 1)))
            share = self.gpu_share if resources.get("GPU") else 0
            prepare = pickle.dumps((run.prepare_shipped, (cuda,)))
            waiting = deque(items)
            at_work: dict[Any, tuple[Item, Clock]] = {}
            try:
                while True:
                    while waiting and len(at_work) < room and not limit.passed():
                        item = waiting.popleft()
                        parcel = packed(item)
                        on = remote.options(num_gpus=share if parcel.gpu else 0)
                        call = pickle.dumps((parcel.job.function, parcel.job.arguments))
                        names = [str(path) for path in parcel.files]
                        contents = map(stored, parcel.files)
                        started = on.remote(prepare, call, parcel.job.seconds, self.limits, names, *contents)
                        at_work[started] = item, Clock.start()
                    if not at_work:
                        return
                    for ended in ray.wait(list(at_work), timeout=BEAT)[0]:
                        yield at_work.pop(ended)[0], _answer(ray, ended)
                    beat([(item, clock.seconds()) for item, clock in at_work.values()])
            finally:
                for left in at_work:
                    ray.cancel(left, force=True)


def _contents(path: Path) -> bytes:
    """A file's contents; one that cannot be read is empty, which the call will find out."""
    try:
        return path.read_bytes()
    except OSError:
        return b""


def _answer(ray: Any, ended: Any) -> Ended:
    try:
        end: Ended = ray.get(ended)
    except ray.exceptions.RayError as error:
        lines = str(error).strip().splitlines() or [""]  # a traceback's last line says what, else the first
        said = lines[-1] if isinstance(error, ray.exceptions.RayTaskError) else lines[0]
        return Ended(failure=f"lost by the cluster, {type(error).__name__}: {said}")
    return end if end.failure is not None else Ended(answer=pickle.loads(end.answer))  # noqa: S301 - our own workers


def _ray() -> Any:
    """Ray, which is loaded when it is asked for."""
    os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")
    try:
        import ray
    except ImportError:
        raise BadInput("--engine ray needs Ray, which is not installed; pip install 'bough[ray]'") from None
    return ray


@contextmanager
def _connected(ray: Any, address: str | None) -> Iterator[None]:
    """A cluster to work on, left as it was found."""
    if ray.is_initialized():
        yield
        return
    try:
        ray.init(address=address, include_dashboard=False, log_to_driver=False, logging_level=logging.ERROR)
    except (ConnectionError, OSError, RuntimeError, ValueError) as error:
        lines = str(error).strip().splitlines() or [str(error)]
        place = "" if address is None else f" at {address}"
        raise BadInput(f"there is no Ray cluster{place} to be reached: {lines[0]}") from error
    try:
        yield
    finally:
        ray.shutdown()
