"""What worker processes are given to do in tests: every way in which a run can end."""

import ctypes
import json
import os
import signal
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from bough.bench.tasks import Task


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
    from bough.bench.worker import begun

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


def by_name(task: "Task") -> Any:
    """A run that ends as its property's name says."""
    from bough.bench.run import run_in_worker

    ways: dict[str, Callable[[], Any]] = {"crash": crash, "hang": hang, "eat": eat}
    way = ways.get(task.instance.property.name.partition(".")[0])
    return run_in_worker(task) if way is None else way()


def slow_once(task: "Task") -> Any:
    """A run that tells, in the folder of its list, which process runs it and which one waits for it."""
    from bough.bench.run import run_in_worker

    if task.instance.property.name.startswith("crash"):
        crash()
    started = task.instances.parent / "started" / f"{task.instance.property.name}.json"
    if not started.exists():
        half = started.with_suffix(".part")
        half.write_text(json.dumps([os.getpid(), os.getppid()]))
        half.replace(started)
        time.sleep(3.0)
    else:
        started.with_suffix(".again").touch()
    return run_in_worker(task)
