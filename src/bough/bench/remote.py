"""What happens on another machine: a call in a pickle enters, together with the files it needs; its answer leaves.

The process that Ray places there only supervises: the call runs in a worker of its own with the same hard limits as
elsewhere, so that a crash, a hang or too much memory is an answer as well, and only what is lost with the machine, or
with this process, has to be repeated. Nothing here loads a library.
"""

import atexit
import hashlib
import math
import os
import pickle
import shutil
import tempfile
from collections.abc import Sequence
from functools import lru_cache
from operator import itemgetter
from pathlib import Path

from bough.files.writing import write_bytes
from bough.jobs.base import Ended, Job
from bough.jobs.pool import Limits, NoWorker, Pool

_warm: dict[tuple[bytes, Limits, str | None], Pool] = {}  # holds the one pool that is kept for later calls


def supervise(
    prepare: bytes, call: bytes, seconds: float, limits: Limits, names: Sequence[str], *contents: bytes
) -> Ended:
    """Run a call on this machine; its last argument says where copies of the named files are.

    A call is a pickled function and its arguments, and returns a value and whether its worker is spent.
    """
    copies = {name: str(_copy(Path(name).name, content)) for name, content in zip(names, contents, strict=True)}
    key = prepare, limits, os.environ.get("CUDA_VISIBLE_DEVICES")
    if key not in _warm:  # Ray may give this process another GPU, and the worker is then replaced
        for pool in _warm.values():
            pool.stop()
        _warm.clear()
        _warm[key] = Pool(1, Job(called, (prepare,)), limits, itemgetter(1))
    _warm[key].start("call", Job(called, (call, copies), seconds))
    try:
        [(_, end)] = _warm[key].wait(math.inf)
    except NoWorker as error:
        return Ended(failure=str(error))
    return end if end.failure is not None else Ended(answer=end.answer[0])


def called(call: bytes, *more: object) -> tuple[bytes, bool]:
    """Unpack a call in the worker, run it, and pack its value."""
    function, arguments = pickle.loads(call)  # noqa: S301 - from the driver that started this process
    value, spent = function(*arguments, *more)
    return pickle.dumps(value), spent


@lru_cache(maxsize=1)
def _folder() -> Path:
    folder = Path(tempfile.mkdtemp(prefix="bough-"))
    atexit.register(shutil.rmtree, folder, ignore_errors=True)
    return folder


def _copy(name: str, content: bytes) -> Path:
    """A file's copy, under a path that tells its contents, so that what was read of it can be kept."""
    path = _folder() / hashlib.sha256(content).hexdigest() / name
    if not path.exists():
        write_bytes(path, content, parents=True)
    return path
