"""Runs every instance by every method and writes a record as soon as each run ends."""

from collections.abc import Callable, Mapping, Sequence
from contextlib import closing, nullcontext
from pathlib import Path

from bough.bench.engines import AbstractEngine, Beat, ThisProcess
from bough.bench.ledger import Ledger, key_of
from bough.bench.tasks import Key, Task
from bough.budget import Deadline
from bough.report.runs import Entry


def run_tasks(
    tasks: Sequence[Task],
    done: Mapping[Key, Entry],
    out: Path | Ledger,
    seen: Callable[[int, Entry], None],
    limit: Deadline,
    engine: AbstractEngine | None = None,
    beat: Beat = lambda _: None,
) -> list[Entry]:
    """The records of all tasks, those done before included; `seen` is told how many there are as each run ends.

    Runs happen in this process unless an engine says otherwise. After `limit` no run is started, and Ctrl-C ends the
    runs at work without a record: then fewer records return.
    """
    entries = {task.key: {**done[task.key], "known": task.known} for task in tasks if task.key in done}
    left = [task for task in tasks if task.key not in done]
    opened = nullcontext(out) if isinstance(out, Ledger) else Ledger(out, resume=True, note=lambda _: None)
    work = (ThisProcess() if engine is None else engine).work(left, limit, beat)
    with opened as ledger, closing(work):  # whatever ends this ends the processes, too
        try:
            for entry in work:
                ledger.append(entry)
                entries[key_of(entry)] = entry
                seen(len(entries), entry)
        except KeyboardInterrupt:
            entries |= {key_of(entry): entry for entry in ledger.added()}  # one may be written and not counted yet
    return [entries[task.key] for task in tasks if task.key in entries]
