"""The inside of a worker process: calls enter through a pipe, answers leave through it, until the other end is closed.

Nothing here loads a library: what a call needs is loaded when it is received.
"""

import ctypes
import os
import pickle
import signal
import sys
import threading
import traceback
from contextlib import suppress
from multiprocessing.connection import Connection
from pathlib import Path
from time import sleep
from typing import Any

READY, BEGUN, ANSWER, FAILURE = "ready", "begun", "answer", "failure"
DIE_WITH_PARENT = 1  # PR_SET_PDEATHSIG of Linux's prctl
FIRST_TO_GO = "500"  # when memory runs out the system should take a run, not the process that keeps the records

_doors: list[Connection] = []  # the way to the other side, if this process is a worker


def put(door: Connection, value: object) -> None:
    """Send a value, packed by plain pickle: by the connection's own way, tensors would be shared and not sent."""
    door.send_bytes(pickle.dumps(value))


def take(door: Connection) -> Any:
    """The value that was sent next."""
    return pickle.loads(door.recv_bytes())  # noqa: S301 - from our own process


def begun() -> None:
    """Say that the time limit of the call at work counts from now on; outside of workers, nothing happens."""
    for door in _doors:
        put(door, (BEGUN, None))


def serve(descriptor: int, parent: int) -> None:
    """Answer calls; the first one makes ready, and its answer is not wanted."""
    _end_with(parent)
    with suppress(OSError):  # not on this system, or not allowed
        Path("/proc/self/oom_score_adj").write_text(FIRST_TO_GO, encoding="ascii")
    door = Connection(descriptor)
    word = READY
    _doors.append(door)
    while True:
        try:
            function, arguments = take(door)
            answer = word, function(*arguments)
        except EOFError:
            return
        except BaseException as error:  # noqa: BLE001 - whatever it is, the other side has to know
            answer = FAILURE, _told(error)
        try:
            put(door, answer)
        except (BrokenPipeError, ConnectionResetError):
            return
        except Exception as error:  # noqa: BLE001 - an answer that cannot be sent
            put(door, (FAILURE, _told(error)))
        word = ANSWER


def _told(error: BaseException) -> tuple[str, Exception]:
    """An error in words, and the error itself, with where it happened; or another one, where it cannot travel."""
    words = f"{type(error).__name__}: {error}"
    if hasattr(error, "add_note"):  # from Python 3.11 on
        error.add_note(f"In a worker process:\n{traceback.format_exc()}")
    with suppress(Exception):  # whatever packing and unpacking run into
        pickle.loads(pickle.dumps(error))  # noqa: S301 - packed here
        if isinstance(error, Exception):
            return words, error
    return words, RuntimeError(words)


def _end_with(parent: int) -> None:
    """End when the parent does, even if it is killed while native code is at work here."""
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(DIE_WITH_PARENT, signal.SIGKILL)
        if os.getppid() != parent:  # it was faster
            os._exit(1)
    else:
        threading.Thread(target=_watch, args=(parent,), daemon=True).start()


def _watch(parent: int) -> None:
    while os.getppid() == parent:
        sleep(0.5)
    os._exit(1)
