"""Worker processes that may be lost: jobs enter, and answers leave, or the reason why there is none.

A worker does one job after another, since loading libraries, starting CUDA and reading a network may take longer
than a run. It is killed and replaced when a job overruns its time or its memory, and replaced when it crashes. Workers
are fresh interpreters, not copies of this one, which would not survive CUDA or threads; they have a session of their
own, so that Ctrl-C is heard here only, and end with this process however it ends.
"""

import math
import os
import signal
import socket
import subprocess
import sys
import tempfile
from collections.abc import Callable, Hashable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from multiprocessing import connection
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any, final

from bough.budget import Deadline
from bough.errors import BadInput
from bough.jobs.base import AbstractPool, Ended, Job
from bough.jobs.worker import ANSWER, BEGUN, FAILURE, READY, put, take

BOOT = (
    "import sys; sys.path[:] = sys.argv[3:]; "
    "from bough.jobs.worker import serve; serve(int(sys.argv[1]), int(sys.argv[2]))"
)
START_SECONDS = 300.0  # a worker that takes longer to load its libraries is killed
GRACE = 60.0  # seconds after a time limit before a worker is killed: a step of a search is not cut short
STUCK_SECONDS = 10.0  # for which a killed worker is waited for; one that is stuck in a driver is left
LOOK_EVERY = 0.05  # seconds between two looks at the memory of workers
WORDS = 300  # characters of a worker's last line that a failure quotes
PAGE_BYTES = os.sysconf("SC_PAGE_SIZE") if hasattr(os, "sysconf") else 4096


class NoWorker(BadInput):
    """Worker processes do not even start: the memory limit leaves no room, or the installation is broken."""


@dataclass(frozen=True)
class Limits:
    """What ends a job from outside: seconds beyond its own time limit, and GB of memory."""

    grace: float = GRACE
    memory: float | None = None

    def __post_init__(self) -> None:
        if not 0 <= self.grace < math.inf:
            raise BadInput(f"--grace is {self.grace}; give a finite number of seconds, 0 or more")
        if self.memory is not None:
            if not 0 < self.memory < math.inf:
                raise BadInput(f"--memory-limit is {self.memory}; give GB, a finite number above 0")
            if not Path("/proc/self/statm").exists():
                raise BadInput("--memory-limit needs /proc, which this system does not have; leave it out")


class _Worker:
    """One process, and the job it is at."""

    def __init__(self, slot: int, environment: Mapping[str, str], prepare: Job) -> None:
        self.slot = slot
        self.key: Hashable = None
        self.job: Job | None = None
        self.ready = False
        self.clock = Deadline.after(START_SECONDS)
        self._words = tempfile.TemporaryFile()  # noqa: SIM115 - lives as long as the worker
        near, far = socket.socketpair()
        with far:
            self.process = subprocess.Popen(  # noqa: S603 - this interpreter
                [sys.executable, "-c", BOOT, str(far.fileno()), str(os.getpid()), *sys.path],
                pass_fds=[far.fileno()],
                stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL,
                stderr=self._words,
                env={**os.environ, **environment},
                start_new_session=True,
            )
        self.door = Connection(near.detach())
        self.send(prepare)

    def send(self, job: Job) -> None:
        """Hand over a job; a worker that is gone is found out later."""
        with suppress(BrokenPipeError, ConnectionResetError):
            put(self.door, (job.function, job.arguments))

    def begin(self, grace: float) -> None:
        """Let the job run from now on."""
        if self.job is not None:
            self.wind(grace)
            self.send(self.job)

    def wind(self, grace: float) -> None:
        """Count the job's time from now on."""
        self.clock = Deadline.after(math.inf if self.job is None else self.job.seconds + grace)

    def resident(self) -> float:
        """GB of memory in use."""
        try:
            return int(Path(f"/proc/{self.process.pid}/statm").read_bytes().split()[1]) * PAGE_BYTES / 1e9
        except (OSError, IndexError, ValueError):  # gone meanwhile
            return 0.0

    def kill(self) -> None:
        """End the process and whatever it started."""
        try:
            os.killpg(self.process.pid, signal.SIGKILL)
        except (ProcessLookupError, PermissionError):
            self.process.kill()
        with suppress(subprocess.TimeoutExpired):  # stuck in a driver, say: nobody can help it
            self.process.wait(STUCK_SECONDS)
        self.door.close()
        self._words.close()

    def why_gone(self) -> str:
        """How the process ended, for people."""
        status = self.process.wait()
        end = f"the process ended with status {status}"
        if -status == signal.SIGKILL:
            end = "the process was killed (SIGKILL), as a rule by the system because memory ran out"
        elif status < 0:
            names = {number.value: number.name for number in signal.Signals}
            end = f"the process crashed ({names.get(-status, f'signal {-status}')})"
        words = self.last_words()
        return f"{end}; its last words: {words}" if words else end

    def last_words(self) -> str:
        """The last line on its standard error."""
        size = self._words.seek(0, os.SEEK_END)
        self._words.seek(max(0, size - 10 * WORDS))
        lines = [line.strip() for line in self._words.read().decode(errors="replace").splitlines()]
        return next((line[:WORDS] for line in reversed(lines) if line), "")


@final
class Pool(AbstractPool):
    """Up to `jobs` workers, started when they are first needed; each begins with the job `prepare`.

    After an answer that is `spent` the worker is replaced. `environments` go round among the workers.
    """

    def __init__(
        self,
        jobs: int,
        prepare: Job = Job(tuple),  # noqa: B008 - it never changes, and does nothing
        limits: Limits | None = None,
        spent: Callable[[Any], bool] = lambda _: False,
        environments: Sequence[Mapping[str, str]] = ({},),
    ) -> None:
        self.jobs = jobs
        self._limits = Limits() if limits is None else limits
        self._prepare, self._spent, self._environments = prepare, spent, environments
        self._workers: list[_Worker] = []
        self._started_well = False

    @property
    def at_work(self) -> dict[Hashable, float]:
        """The jobs that were started and not handed back, and for how many seconds each has run; 0: not yet."""
        busy = (worker for worker in self._workers if worker.job is not None)
        return {worker.key: worker.clock.elapsed() if worker.ready else 0.0 for worker in busy}

    def start(self, key: Hashable, job: Job) -> None:
        """Begin with a job; there has to be room for it."""
        for dead in [w for w in self._workers if w.job is None and w.process.poll() is not None]:
            self._drop(dead)  # it died while idle
        worker = next((w for w in self._workers if w.job is None), None)
        if worker is None:
            slot = min({*range(self.jobs)} - {w.slot for w in self._workers})
            worker = _Worker(slot, self._environments[slot % len(self._environments)], self._prepare)
            self._workers.append(worker)
        worker.key, worker.job = key, job
        if worker.ready:
            worker.begin(self._limits.grace)

    def wait(self, seconds: float) -> list[tuple[Hashable, Ended]]:
        """The jobs that have ended, as soon as there are any; none when so many seconds have passed."""
        until = Deadline.after(seconds)
        while True:
            ended = [(worker.key, end) for worker in list(self._workers) if (end := self._look(worker)) is not None]
            if ended or until.passed():
                return ended
            every = math.inf if self._limits.memory is None else LOOK_EVERY
            clocks = (worker.clock.remaining() for worker in self._workers if worker.job is not None)
            pause = min(until.remaining(), every, 1.0, *clocks)
            connection.wait([worker.door for worker in self._workers if worker.job is not None], pause)

    def __exit__(self, *_: object) -> None:
        self.stop()

    def stop(self) -> None:
        """End all processes, at work or not."""
        for worker in list(self._workers):
            self._drop(worker)

    def _drop(self, worker: _Worker) -> None:
        self._workers.remove(worker)
        worker.kill()

    def _look(self, worker: _Worker) -> Ended | None:
        """What has become of a worker's job; a worker that is of no more use is dropped."""
        if worker.job is None:
            return None
        try:
            heard = take(worker.door) if worker.door.poll() else None
        except Exception:  # noqa: BLE001 - half an answer: it died while it spoke
            heard = None
            worker.process.kill()
        if heard is not None:
            return self._heard(worker, *heard)
        gone = worker.process.poll() is not None
        why = worker.why_gone() if gone else self._why_not(worker, worker.job)
        if why is None:
            return None
        words = "" if gone else worker.last_words()
        self._drop(worker)
        if not worker.ready:
            return self._not_started(f"{why}{f' ({words})' if words else ''}")
        return Ended(failure=why)

    def _not_started(self, why: str) -> Ended:
        """One worker that does not start is a job that failed; if none ever did, it is of no use to go on."""
        if not self._started_well:
            raise NoWorker(f"worker processes do not start: {why}")
        return Ended(failure=f"its process did not start: {why}")

    def _heard(self, worker: _Worker, word: str, value: Any) -> Ended | None:
        if word == READY:
            worker.ready = self._started_well = True
            worker.begin(self._limits.grace)
            return None
        if word == BEGUN:
            worker.wind(self._limits.grace)
            return None
        if not worker.ready:
            self._drop(worker)
            return self._not_started(value[0])
        worker.job = None
        ended = Ended(answer=value) if word == ANSWER else Ended(None, *value)
        if word == FAILURE or self._spent(value):
            self._drop(worker)
        return ended

    def _why_not(self, worker: _Worker, job: Job) -> str | None:
        """Why a worker may not go on with its job, if so."""
        limit = self._limits
        if worker.clock.passed():
            if not worker.ready:
                return f"killed: it did not start within {START_SECONDS:g} s"
            return f"killed: no answer {limit.grace:g} s after its time limit of {job.seconds:g} s"
        if limit.memory is not None and (used := worker.resident()) > limit.memory:
            doing = "" if worker.ready else " to load its libraries"
            return f"killed: it took {used:.2f} GB{doing}, and --memory-limit is {limit.memory:g} GB"
        return None
