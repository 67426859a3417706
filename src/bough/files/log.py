"""A log of JSON lines: one line for each piece of work that ended, so that a run that was cut off can go on."""

import json
import os
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Mapping
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar, TypeVar

from bough.errors import BadInput, OutputError
from bough.files.reading import LINES_LIMIT, parsed_json, read_bytes
from bough.files.writing import own, replace, write_all

LogEntry = dict[str, Any]
Opened = TypeVar("Opened", bound="AbstractLog")


@dataclass(frozen=True)
class LogContents:
    """What the whole lines of a log say, and how many bytes they take; half a line may follow."""

    recipe: LogEntry | None  # None: there is no head, yet
    entries: tuple[LogEntry, ...]
    size: int


class AbstractLog(ABC):
    """A log that is this process's alone until it is closed; use it as a context.

    `entries` are those that were there when it was opened. Every entry is one line, and is on the disk when `append`
    returns; the half line that a killed process may leave is removed by the next.
    """

    schema: ClassVar[str]
    headed: ClassVar[bool]  # whether the first line names schema and recipe of the run; else each line names its schema
    run: ClassVar[str]  # what writes such a log, in words: "bench"
    line: ClassVar[str]  # what a line is, in words: "record of a run"
    again: ClassVar[str]  # what becomes of the work whose line was torn: "that run is repeated"
    advice: ClassVar[str]  # what to do about a file of another kind: "give a file that bough bench wrote"

    @staticmethod
    @abstractmethod
    def check(entry: LogEntry) -> None:
        """Raise `BadInput`, or a `KeyError` or `TypeError`, at what is no entry of this kind of log."""

    @classmethod
    def read(cls, path: Path) -> LogContents:
        """What a log holds by now; another process may be at work on it."""
        try:
            *lines, half = read_bytes(path, LINES_LIMIT, BadInput).split(b"\n")
        except BadInput as error:
            raise BadInput(f"{error}; {cls.advice}") from None
        heads = [cls._parsed(line, f"{path}, line 1", head=True) for line in lines[: cls.headed]]
        rest = enumerate(lines[len(heads) :], 1 + len(heads))
        entries = tuple(cls._parsed(line, f"{path}, line {k}", head=False) for k, line in rest)
        beginning = b'{"' if heads else f'{{"schema": "{cls.schema}"'.encode()
        half = half.rstrip(b"\0")  # some file systems fill with zeros what was not written before the power went
        if not (half.startswith(beginning) or beginning.startswith(half)):
            raise BadInput(f"{path} does not end with a {cls.line}; {cls.advice}")
        return LogContents(heads[0]["recipe"] if heads else None, entries, sum(len(line) + 1 for line in lines))

    @classmethod
    def _parsed(cls, line: bytes, place: str, *, head: bool) -> LogEntry:
        """The entry that a line holds, checked."""
        try:
            entry: LogEntry = parsed_json(line)
            named = entry.get("schema")
            if not head:
                cls.check(entry)
            if (head or not cls.headed) and named != cls.schema:
                raise BadInput(f"of schema {str(named)[:40]!r}, not {cls.schema}; {cls.advice}")
            if head and not isinstance(entry.get("recipe"), dict):
                raise TypeError
        except BadInput as error:
            raise BadInput(f"{place}: {error}") from None
        except (ValueError, AttributeError, KeyError, TypeError):
            raise BadInput(f"{place}: not a {cls.line}; {cls.advice}") from None
        return entry

    def __init__(
        self,
        path: Path,
        note: Callable[[str], None],
        *,
        resume: bool = True,
        recipe: Mapping[str, object] | None = None,
    ) -> None:
        self.path = path
        self._head: LogEntry = {"schema": self.schema, "recipe": json.loads(json.dumps(dict(recipe or {})))}
        self._file = own(path, f"another {self.run} is at work on {path}; wait for its end, or give another name")
        try:
            size = os.fstat(self._file).st_size
            if size and not resume:
                raise OutputError(f"{path} is there already; go on with it by --resume, or give another name")
            contents = self.read(path)
            self.entries, self._size = contents.entries, contents.size
            new = self._head["recipe"]
            old = new if contents.recipe is None else contents.recipe
            for name in {**old, **new}:
                if old.get(name) != new.get(name):
                    change = f"{name} was {old.get(name)}, and is {new.get(name)} now"
                    raise BadInput(f"{path} is of another run: {change}; resume by the same command")
            if contents.size < size:
                os.ftruncate(self._file, contents.size)
                note(f"{path} ended in the middle of a {self.line}, which was dropped; {self.again}")
            if self.headed and contents.recipe is None:
                self.append(self._head)
        except BaseException as error:
            self.close()
            if isinstance(error, OSError):
                raise OutputError(f"cannot go on with {path}: {error.strerror or error}") from error
            raise

    def __enter__(self: Opened) -> Opened:  # noqa: PYI019 - `Self` came with Python 3.11
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def append(self, entry: LogEntry) -> None:
        """Add one line."""
        line = _as_line(entry)
        try:
            write_all(self._file, line)
            os.fsync(self._file)
        except OSError as error:
            with suppress(OSError):  # else whoever opens it next removes what was written of the line
                os.ftruncate(self._file, self._size)
            raise OutputError(f"cannot write {self.path}: {error.strerror or error}") from error
        self._size += len(line)

    def rewrite(self, entries: Iterable[LogEntry]) -> None:
        """Put these entries in the place of all there are, at once."""
        data = b"".join(map(_as_line, [*([self._head] if self.headed else []), *entries]))
        try:
            new = replace(self.path.resolve(), data)
        except OSError as error:
            raise OutputError(f"cannot write {self.path}: {error.strerror or error}") from error
        os.close(self._file)
        self._file = new
        self._size = len(data)

    def close(self) -> None:
        """Let others have the file; one with nothing in it is removed."""
        if self._file < 0:
            return
        with suppress(OSError):  # an empty file does no harm
            if self.path.is_file() and os.fstat(self._file).st_size == 0:
                self.path.unlink()
        os.close(self._file)
        self._file = -1


def _as_line(entry: LogEntry) -> bytes:
    return (json.dumps(entry, allow_nan=False) + "\n").encode("ascii")
