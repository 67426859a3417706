"""A path and what is to be written enter; a reader finds the old file or the new one, whatever happens meanwhile."""

import fcntl
import os
from contextlib import suppress
from pathlib import Path

from bough.errors import OutputError

_APPEND = os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC


def write_text(path: Path, text: str, *, parents: bool = False) -> None:
    """Write a text file whole or not at all, as `write_bytes` does; a file name in it may have any bytes."""
    write_bytes(path, text.encode(errors="surrogateescape"), parents=parents)


def write_bytes(path: Path, data: bytes, *, parents: bool = False) -> None:
    """Write a file whole or not at all; with `parents`, folders that are missing above it are made.

    What a link leads to is replaced, not the link. A device or pipe (`/dev/stdout`) is written to as it is, and so is a
    file in a folder that takes no new ones.
    """
    try:
        if parents:
            path.parent.mkdir(parents=True, exist_ok=True)
        target = path.resolve()
        if (path.is_file() or not path.exists()) and os.access(target.parent, os.W_OK):
            os.close(replace(target, data))
        else:
            path.write_bytes(data)
    except (OSError, RuntimeError, ValueError) as error:  # a ring of links; a name that no file can have
        raise OutputError(f"cannot write {path}: {getattr(error, 'strerror', None) or error}") from error


def replace(target: Path, data: bytes) -> int:
    """Put a new file in the place of another; returns its descriptor, which is locked, and open to append to."""
    # A name that no other run has, on whatever machine: processes of two may have one number and one folder.
    part = target.with_name(f".bough-{os.getpid()}-{os.urandom(4).hex()}.part")
    file = os.open(part, _APPEND | os.O_EXCL, 0o666)
    try:
        with suppress(OSError):  # a file system without locks
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        write_all(file, data)
        os.fsync(file)  # or a power cut may leave the new name with nothing in it
        part.replace(target)
    except BaseException:  # Ctrl-C, too
        os.close(file)
        part.unlink(missing_ok=True)
        raise
    return file


def write_all(file: int, data: bytes) -> None:
    """Hand all bytes to the system, however few it takes at once."""
    left = memoryview(data)
    while left:
        left = left[os.write(file, left) :]


def own(path: Path, refusal: str) -> int:
    """Open a file, or create one, to append to; an `OutputError` by `refusal` where another process has it.

    The file is this process's alone until it ends, however it does.
    """
    while True:
        try:
            file = os.open(path, _APPEND, 0o666)
        except OSError as error:
            raise OutputError(f"cannot write {path}: {error.strerror or error}") from error
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            os.close(file)
            raise OutputError(refusal) from None
        except OSError:
            return file  # a file system without locks
        with suppress(FileNotFoundError):
            if os.path.samestat(os.fstat(file), path.stat()):
                return file
        os.close(file)  # its owner replaced or removed it just before


def check_writable(path: Path) -> None:
    """Raise now, before any work is done, if a result could not be written to this path later."""
    try:
        if str(path) == "-":
            raise OutputError("standard output is for the verdict; name a file")
        if path.is_dir():
            raise OutputError(f"cannot write {path}: it is a folder; name a file")
        if not path.parent.is_dir():
            raise OutputError(f"cannot write {path}: the folder {path.parent} does not exist; create it first")
        if not os.access(path if path.exists() else path.parent, os.W_OK):
            raise OutputError(f"cannot write {path}: permission denied")
    except OSError as error:  # such as a name that is too long
        raise OutputError(f"cannot write {path}: {error.strerror or error}") from error


def make_folder(folder: Path, *, resume: bool = True) -> None:
    """Create a folder for results, with those around it; unless this is to resume, it has to be empty."""
    try:
        folder.mkdir(parents=True, exist_ok=True)
        filled = not resume and any(folder.iterdir())
    except OSError as error:
        raise OutputError(f"cannot create the folder {folder}: {error.strerror or error}") from error
    if filled:
        raise OutputError(f"{folder} is not empty; go on with it by --resume, or give another folder")
