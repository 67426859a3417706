"""The inside of a worker process: calls enter through a pipe, answers leave through it, until the other end is closed.

Nothing here loads a library: what a call needs is loaded when it is received.
"""

import ctypes
import os
import signal
import sys
import threading
from contextlib import suppress
from multiprocessing.connection import Connection
from pathlib import Path
from time import sleep

READY, BEGUN, ANSWER, FAILURE = "ready", "begun", "answer", "failure"
DIE_WITH_PARENT = 1  # PR_SET_PDEATHSIG of Linux's prctl
FIRST_TO_GO = "500"  # when memory runs out the system should take a run, not the process that keeps the records


_doors: list[Connection] = []  # of this process, if it is a worker


def begun() -> None:
    """Say, in a call, that its time limit counts from now on; elsewhere nothing."""
    for door in _doors:
        door.send((BEGUN, None))


def serve(descriptor: int, parent: int) -> None:
    """Answer calls; the first one makes ready, and its answer is not wanted."""
    _end_with(parent)
    _offer_as_victim()
    door, word = Connection(descriptor), READY
    _doors.append(door)
    while True:
        try:
            function, arguments = door.recv()
            answer = word, function(*arguments)
        except EOFError:
            return
        except BaseException as error:  # noqa: BLE001 - whatever it is, the other side has to know
            answer = FAILURE, f"{type(error).__name__}: {error}"
        try:
            door.send(answer)
        except (BrokenPipeError, ConnectionResetError):
            return
        except Exception as error:  # noqa: BLE001 - an answer that cannot be sent
            door.send((FAILURE, f"{type(error).__name__}: {error}"))
        word = ANSWER


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


def _offer_as_victim() -> None:
    with suppress(OSError):  # not on this system, or not allowed
        Path("/proc/self/oom_score_adj").write_text(FIRST_TO_GO, encoding="ascii")
