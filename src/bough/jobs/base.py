"""Jobs enter, and what became of each leaves: what every pool promises, and the simplest pool, this process itself."""

import math
from abc import abstractmethod
from collections import deque
from collections.abc import Callable, Generator, Hashable, Iterable, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from typing import Any, TypeVar, final

from bough.budget import Deadline
from bough.errors import BoughError

BEAT = 0.5  # seconds between two words about what is at work
Item = TypeVar("Item")


class LostWorker(BoughError):
    """A process ended without an answer."""


@dataclass(frozen=True)
class Job:
    """One call of a function; a worker process that makes it is killed some time after so many seconds."""

    function: Callable[..., Any]
    arguments: tuple[Any, ...] = ()
    seconds: float = math.inf


@dataclass(frozen=True)
class Ended:
    """The answer of a job, or why there is none: in words, and by the error that its function raised.

    No error means that the process was lost.
    """

    answer: Any = None
    failure: str | None = None
    error: Exception | None = field(default=None, compare=False)

    def result(self) -> Any:
        """The answer; without one, raises what the function raised, or `LostWorker`."""
        if self.failure is None:
            return self.answer
        if self.error is not None:
            raise self.error
        raise LostWorker("a process was lost, as a rule because memory ran out; go on with fewer --jobs")


class AbstractPool(AbstractContextManager["AbstractPool"]):
    """Works on up to `jobs` jobs at once, each under a key; use it as a context, which ends what is still at work."""

    jobs: int

    @property
    @abstractmethod
    def at_work(self) -> Mapping[Any, float]:
        """The jobs that were started and not handed back, and for how many seconds each has run; 0: not yet."""

    @abstractmethod
    def start(self, key: Hashable, job: Job) -> None:
        """Begin with a job; there has to be room for it."""

    @abstractmethod
    def wait(self, seconds: float) -> Sequence[tuple[Hashable, Ended]]:
        """The jobs that have ended, as soon as there are any; none when so many seconds have passed."""

    @property
    def free(self) -> int:
        """How many jobs could be started now."""
        return self.jobs - len(self.at_work)

    def each(
        self,
        items: Iterable[Item],
        job_of: Callable[[Item], Job],
        limit: Deadline,
        beat: Callable[[Sequence[tuple[Item, float]]], None] = lambda _: None,
    ) -> Generator[tuple[Item, Ended], None, None]:
        """What became of each item, in the order in which they end; none is started after `limit`.

        `beat` hears now and then what is at work, and for how long.
        """
        waiting = deque(enumerate(items))
        started = dict[Hashable, Item]()
        while True:
            while waiting and self.free and not limit.passed():
                key, item = waiting.popleft()
                started[key] = item
                self.start(key, job_of(item))
            if not started:
                return
            for ended_key, ended in self.wait(BEAT):
                yield started.pop(ended_key), ended
            beat([(started[key], seconds) for key, seconds in self.at_work.items()])


@final
class InProcess(AbstractPool):
    """This process, which works while it is waited for; what a function raises is raised there."""

    jobs = 1

    def __init__(self) -> None:
        self._started: dict[Hashable, Job] = {}

    @property
    def at_work(self) -> Mapping[Hashable, float]:
        """The job that was started, if one was."""
        return dict.fromkeys(self._started, 0.0)

    def start(self, key: Hashable, job: Job) -> None:
        """Remember the job."""
        self._started[key] = job

    def wait(self, seconds: float) -> Sequence[tuple[Hashable, Ended]]:
        """Do the work, however long it takes."""
        del seconds
        started = self._started
        self._started = {}
        return [(key, Ended(job.function(*job.arguments))) for key, job in started.items()]

    def __exit__(self, *_: object) -> None:
        """Do nothing, since nothing goes on by itself."""
