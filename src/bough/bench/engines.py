"""Where runs happen: in this process, or in worker processes of it. Tasks enter, records are written as runs end."""

import os
from abc import ABC, abstractmethod
from collections.abc import Callable, Generator, Mapping, Sequence
from contextlib import closing, nullcontext
from dataclasses import dataclass, field
from operator import itemgetter
from pathlib import Path
from typing import final

import torch

from bough.bench import run
from bough.bench.ledger import Ledger, key_of, read_records
from bough.bench.tasks import Key, Task
from bough.budget import Deadline, free_memory
from bough.errors import BadInput
from bough.jobs.base import Job
from bough.jobs.pool import Limits, Pool
from bough.report.runs import Entry

MOST_JOBS = 1024  # runs at once that may be asked for
Beat = Callable[[Sequence[tuple[Task, float]]], None]  # hears now and then what is at work, and for how many seconds
Answer = tuple[Entry, bool]


class AbstractEngine(ABC):
    """Runs tasks; a strategy, whose fields are its configuration."""

    @property
    @abstractmethod
    def jobs(self) -> int:
        """How many runs go on at once."""

    @abstractmethod
    def work(self, tasks: Sequence[Task], limit: Deadline, beat: Beat) -> Generator[Entry, None, None]:
        """A record for each task, in the order in which they end; none is started after `limit`."""


@final
@dataclass(frozen=True)
class ThisProcess(AbstractEngine):
    """This process, one run after another: nothing is loaded twice, and a crash is the end of it all."""

    jobs: int = 1

    def work(self, tasks: Sequence[Task], limit: Deadline, beat: Beat) -> Generator[Entry, None, None]:
        """Run one task after another, each when its record is asked for."""
        load = run.loader()
        for task in tasks:
            if limit.passed():
                return
            beat([(task, 0.0)])
            yield run.run_task(task, load)[0]


@final
@dataclass(frozen=True)
class Processes(AbstractEngine):
    """Worker processes, where a run that crashes, hangs or takes too much memory is a record with an error.

    A worker serves one run after another; with `fresh`, only one.
    """

    jobs: int = 1
    limits: Limits = field(default_factory=Limits)
    fresh: bool = False
    run: Callable[[Task], Answer] = run.run_in_worker

    def __post_init__(self) -> None:
        if not 1 <= self.jobs <= MOST_JOBS:
            raise BadInput(f"--jobs is {self.jobs}; give a whole number from 1 to {MOST_JOBS}")

    def work(self, tasks: Sequence[Task], limit: Deadline, beat: Beat) -> Generator[Entry, None, None]:
        """Keep all workers busy."""
        cuda = any(run.may_use_cuda(task.method.options) for task in tasks)
        share = memory_share(self.jobs, self.limits)
        spent = (lambda _: True) if self.fresh else itemgetter(1)

        def job(task: Task) -> Job:
            return Job(self.run, (run.with_share(task, share),), task.instance.timeout)

        with Pool(self.jobs, Job(run.prepare, (cuda,)), self.limits, spent, gpus() if cuda else ({},)) as pool:
            for task, ended in pool.each(tasks, job, limit, beat):
                yield run.record_of(task, ended)


def memory_share(jobs: int, limits: Limits) -> float:
    """GB for the open domains of each of several runs: half of what there is, or of what is allowed."""
    share = free_memory() / 1e9 / jobs
    return (share if limits.memory is None else min(share, limits.memory)) / 2


def gpus() -> Sequence[Mapping[str, str]]:
    """Variables that tell a worker which GPU is its own, for each GPU in turn; none where there is one GPU at most."""
    count = torch.cuda.device_count()
    if count < 2:
        return ({},)
    visible = os.environ.get("CUDA_VISIBLE_DEVICES")
    names = [str(k) for k in range(count)] if visible is None else visible.split(",")[:count]
    return tuple({"CUDA_VISIBLE_DEVICES": name} for name in names)


def run_tasks(
    tasks: Sequence[Task],
    done: Mapping[Key, Entry],
    out: Path | Ledger,
    seen: Callable[[int, Entry], None],
    limit: Deadline,
    engine: AbstractEngine | None = None,
    beat: Beat = lambda _: None,
) -> list[Entry]:
    """The records of all tasks, those done before included; `seen` is told how many there are as each run ends.

    Runs happen in this process unless an engine says otherwise. After `limit` no run is started, and Ctrl-C ends the
    runs at work without a record: then fewer records return.
    """
    entries = {task.key: {**done[task.key], "known": task.known} for task in tasks if task.key in done}
    left = [task for task in tasks if task.key not in done]
    opened = nullcontext(out) if isinstance(out, Ledger) else Ledger(out, resume=True, note=lambda _: None)
    work = (ThisProcess() if engine is None else engine).work(left, limit, beat)
    with opened as ledger, closing(work):  # whatever ends this ends the processes, too
        try:
            for entry in work:
                ledger.append(entry)
                entries[key_of(entry)] = entry
                seen(len(entries), entry)
        except KeyboardInterrupt:
            added = read_records(ledger.path)[len(ledger.entries) :]  # one may be written and not counted yet
            entries |= {key_of(entry): entry for entry in added}
    return [entries[task.key] for task in tasks if task.key in entries]
