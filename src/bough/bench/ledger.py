"""The file of records: one line for each run that ended, by which a bench goes on."""

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import final

from bough.bench.tasks import Key
from bough.errors import OutputError
from bough.files.log import AbstractLog
from bough.files.writing import check_writable
from bough.report.record import SCHEMA
from bough.report.runs import Entry

NEEDED = ("error", "verdict", "seconds", "branches", "bounds")


def key_of(entry: Entry) -> Key:
    """The fields by which a run in a file is the same as a task."""
    return tuple(entry[name] for name in ("network", "property", "method", "timeout", "seed"))


@final
class Ledger(AbstractLog):
    """A file of records; `done` are the runs that were in it when it was opened and had ended without an error."""

    schema = SCHEMA
    headed = False
    run = "bench"
    line = "record of a run"
    again, advice = "that run is repeated", "give a file that bough bench wrote"

    def __init__(self, out: Path, *, resume: bool, note: Callable[[str], None]) -> None:
        check_writable(out)
        if out.exists() and not out.is_file():
            raise OutputError(f"cannot write {out}: it is no plain file; name one")
        super().__init__(out, note, resume=resume)
        self.done: Mapping[Key, Entry] = {key_of(e): e for e in self.entries if e["error"] is None}

    @staticmethod
    def check(entry: Entry) -> None:
        """Raise unless an entry is a record."""
        hash((*key_of(entry), *(entry[name] for name in NEEDED)))


def read_records(out: Path) -> tuple[Entry, ...]:
    """All records of a file; none where it is absent."""
    return Ledger.read(out).entries if out.exists() else ()
