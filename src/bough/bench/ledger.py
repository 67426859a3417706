"""The file of records: whole lines, written by one process at a time, readable after a kill at any moment."""

import fcntl
import json
import os
from collections.abc import Callable, Mapping
from contextlib import suppress
from pathlib import Path
from typing import final

from bough.bench.summary import Entry
from bough.bench.tasks import Key
from bough.errors import BadInput, OutputError
from bough.problem.files import LINES_LIMIT, parsed_json, read_bytes
from bough.report.record import SCHEMA, check_writable

BEGINNING = f'{{"schema": "{SCHEMA}"'.encode()  # of every line in a file of ours
NEEDED = ("error", "verdict", "seconds", "branches", "bounds")


def key_of(entry: Entry) -> Key:
    """What makes a run in a file the same as a task."""
    return tuple(entry[name] for name in ("network", "property", "method", "timeout", "seed"))


@final
class Ledger:
    """A file of records, which is this process's alone until it is closed.

    `done` are the runs in it that ended without an error. Every record is one line, added by one call to the system
    and on the disk when `append` returns; the half line that a killed process may leave is removed by the next.
    """

    def __init__(self, out: Path, *, resume: bool, note: Callable[[str], None]) -> None:
        check_writable(out)
        there = out.exists()
        if there and not out.is_file():
            raise OutputError(f"cannot write {out}: it is no plain file; name one")
        if there and not resume and out.stat().st_size:
            raise OutputError(f"{out} is there already; go on with it by --resume, or give another name")
        self.out = out
        self._file = _own(out)
        try:
            self.entries, self._size = read_records(out)
            if self._size < os.fstat(self._file).st_size:
                os.ftruncate(self._file, self._size)
                note(f"{out} ended in the middle of a record, which was dropped; that run is repeated")
            if self.entries and not resume:  # of a bench that ended just now
                raise OutputError(f"{out} is there already; go on with it by --resume, or give another name")
        except OSError as error:
            self.close()
            raise OutputError(f"cannot go on with {out}: {error.strerror or error}") from error
        except BadInput:
            self.close()
            raise
        self.done: Mapping[Key, Entry] = {key_of(e): e for e in self.entries if e["error"] is None}

    def __enter__(self) -> "Ledger":
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def append(self, entry: Entry) -> None:
        """Add one record."""
        line = (json.dumps(entry, allow_nan=False) + "\n").encode("ascii")
        try:
            written = os.write(self._file, line)
            if written < len(line):
                raise OSError(0, "there is no room left on the device")
            os.fsync(self._file)
        except OSError as error:
            self._undo()
            raise OutputError(f"cannot write {self.out}: {error.strerror or error}") from error
        self._size += len(line)

    def added(self) -> tuple[Entry, ...]:
        """What was written since the file was opened, as the file has it."""
        return read_records(self.out)[0][len(self.entries) :]

    def close(self) -> None:
        """Let others have the file; one with nothing in it is removed."""
        if self._file < 0:
            return
        try:
            if os.fstat(self._file).st_size == 0:
                self.out.unlink(missing_ok=True)
        except OSError:
            pass  # an empty file does no harm
        os.close(self._file)
        self._file = -1

    def _undo(self) -> None:
        """Remove what was written of a line that did not fit."""
        with suppress(OSError):  # the next one to open the file will
            os.ftruncate(self._file, self._size)


def _own(out: Path) -> int:
    """The opened file, locked; the system lets go of it when this process ends, however it does."""
    while True:
        try:
            file = os.open(out, os.O_RDWR | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC, 0o666)
        except OSError as error:
            raise OutputError(f"cannot write {out}: {error.strerror or error}") from error
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            os.close(file)
            raise OutputError(f"another bench is at work on {out}; wait for its end, or give another name") from None
        except OSError:
            return file  # a file system without locks
        try:
            if os.path.samestat(os.fstat(file), out.stat()):
                return file
        except FileNotFoundError:
            pass
        os.close(file)  # its owner removed it, empty, just before


def read_records(out: Path) -> tuple[tuple[Entry, ...], int]:
    """All records of a file, and how many bytes they take; half a line may follow."""
    *lines, half = read_bytes(out, LINES_LIMIT, BadInput).split(b"\n") if out.exists() else [b""]
    entries = tuple(_entry(line, f"{out}, line {k}") for k, line in enumerate(lines, 1))
    if half.strip(b"\0") and not (half.startswith(BEGINNING) or BEGINNING.startswith(half)):
        raise BadInput(f"{out} does not end with a record; give a file that bough bench wrote")
    return entries, sum(len(line) + 1 for line in lines)


def _entry(line: bytes, where: str) -> Entry:
    try:
        entry: Entry = parsed_json(line)
        hash((*key_of(entry), *(entry[name] for name in NEEDED)))
    except (ValueError, KeyError, TypeError):
        raise BadInput(f"{where}: not a record of a run; give a file that bough bench wrote") from None
    if entry.get("schema") != SCHEMA:
        raise BadInput(f"{where}: of schema {str(entry.get('schema'))[:40]!r}, not {SCHEMA}; give another file")
    return entry
