"""The only reader of the clock: deadlines, passed explicitly to whatever may take long, seconds since, and dates."""

import math
import os
import time
from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from datetime import datetime

MOST_IDLE = 8  # threads at most, however many CPUs idle: a guess, measured on two CPUs only


def free_memory() -> float:
    """Bytes of host memory that are free for use, as far as the system tells."""
    try:
        with open("/proc/meminfo") as file:  # noqa: PTH123 - not a file one would name
            figures = dict(line.split(":") for line in file)
        return float(figures["MemAvailable"].split()[0]) * 1024
    except (OSError, KeyError, ValueError):
        return 8e9


def idle_cpus() -> int:
    """How many threads make sense: two on a CPU that is busy already are far slower than one."""
    try:
        count = len(os.sched_getaffinity(0))
        load = os.getloadavg()[0]
    except (AttributeError, OSError):  # not on this system
        return 1
    return max(1, min(count, round(count - load), MOST_IDLE))


class OutOfTime(Exception):
    """Raised inside a long computation when its deadline passes; caught by the search, never by the user."""


class OutOfMemory(Exception):
    """Raised when the open domains no longer fit the memory budget; caught by the search, never by the user."""


def ran_out(error: BaseException) -> bool:
    """Whether an error means that the host had no memory left; PyTorch's own is a plain RuntimeError."""
    return isinstance(error, MemoryError) or (isinstance(error, RuntimeError) and "DefaultCPUAllocator" in str(error))


@dataclass(frozen=True)
class Deadline:
    """A moment on the monotonic clock; `Deadline.after(20)` ends in 20 seconds, `Deadline.never()` does not."""

    started: float
    ends: float

    @classmethod
    def after(cls, seconds: float | None) -> "Deadline":
        """Deadline `seconds` from now; `None` means no limit."""
        now = time.monotonic()
        return cls(now, math.inf if seconds is None else now + seconds)

    @classmethod
    def never(cls) -> "Deadline":
        """Deadline that is never reached."""
        return cls.after(None)

    def part(self, share: float) -> "Deadline":
        """A deadline at a share of the time that is left, which began when this one did."""
        return Deadline(
            self.started, self.ends if math.isinf(self.ends) else time.monotonic() + share * self.remaining()
        )

    def elapsed(self) -> float:
        """Seconds since this deadline was set."""
        return time.monotonic() - self.started

    def remaining(self) -> float:
        """Seconds left, never negative."""
        return max(0.0, self.ends - time.monotonic())

    def passed(self) -> bool:
        """Whether no time is left."""
        return time.monotonic() >= self.ends

    def check(self) -> None:
        """Raise `OutOfTime` if no time is left."""
        if self.passed():
            raise OutOfTime


@dataclass(frozen=True)
class Clock:
    """A moment on the monotonic clock from which seconds are counted."""

    started: float

    @classmethod
    def start(cls) -> "Clock":
        """The moment now."""
        return cls(time.monotonic())

    def seconds(self) -> float:
        """Seconds since that moment."""
        return time.monotonic() - self.started


def now() -> "datetime":
    """Date and time of day, with the time zone of the machine."""
    from datetime import datetime

    return datetime.now().astimezone()
