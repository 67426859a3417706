"""What worker processes are given to do in tests: every way in which a job can end."""

import ctypes
import os
import signal
import sys
import time
from pathlib import Path
from typing import Any


def pid(*_: object) -> int:
    return os.getpid()


def crash(*_: object) -> None:
    ctypes.string_at(0)


def abort_loudly() -> None:
    os.write(2, b"first words\n\nthe solver gave up\n")
    os.abort()


def eat(gigabytes: float = 64.0, *_: object) -> int:
    eaten = [bytearray(b"x" * 20_000_000) for _ in range(int(gigabytes * 50))]
    return len(eaten)


def hang(*_: object) -> None:
    """Neither Python nor a signal gets a word in."""
    signal.pthread_sigmask(signal.SIG_BLOCK, set(signal.Signals))
    ctypes.PyDLL(None).sleep(600)


def killed(*_: object) -> None:
    os.kill(os.getpid(), signal.SIGKILL)


def leave(*_: object) -> None:
    os._exit(7)


def fail() -> None:
    raise LookupError("not there")


def fail_with_advice() -> None:
    from bough.errors import OutputError

    raise OutputError("cannot write it; leave it")


class OddError(Exception):
    """One that cannot be unpacked."""

    def __init__(self, first: int, second: int) -> None:
        super().__init__(f"{first} of {second}")


def fail_oddly() -> None:
    raise OddError(1, 2)


def fail_locally() -> None:
    class LocalError(Exception):
        pass

    raise LocalError("here only")


def once(path: str) -> None:
    """The first process is well, later ones are not."""
    try:
        Path(path).touch(exist_ok=False)
    except FileExistsError:
        fail_to_start()


def fail_to_start() -> None:
    raise ImportError("no such library")


def environment(name: str) -> str | None:
    return os.environ.get(name)


def begin_late() -> str:
    from bough.jobs.worker import begun

    time.sleep(1.0)
    begun()
    time.sleep(1.0)
    return "fine"


def nap(seconds: float, value: Any) -> Any:
    time.sleep(seconds)
    return value


def note_and_nap(folder: str, seconds: float) -> None:
    """Leave a file that names this process."""
    (Path(folder) / str(os.getpid())).touch()
    time.sleep(seconds)


def loaded(name: str) -> bool:
    return name in sys.modules
