"""Where the trace of each run goes: tasks and a folder enter, tasks that name a file of their own leave."""

import hashlib
import re
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from bough.bench.tasks import Task, TraceFile
from bough.errors import BadInput
from bough.options import AUTO
from bough.report.runs import stem

NODES = 20_000  # nodes of each tree unless the user says how many: a page of many trees has to be opened, too
ENDING = ".jsonl.gz"
_LONGEST = 60  # characters of each name that are taken over into the file's name


def with_traces(tasks: Sequence[Task], folder: Path, limit: int = NODES) -> tuple[Task, ...]:
    """The same tasks, those that search with a file for their trace; at least one has to."""
    if limit < 0:
        raise BadInput(f"--trace-limit is {limit}; give a whole number of nodes, 0 or more")
    if not any(map(searches, tasks)):
        raise BadInput("--trace follows bough's own search, and no method here has one; leave it out")
    return tuple(replace(task, trace=_file(task, folder, limit)) if searches(task) else task for task in tasks)


def searches(task: Task) -> bool:
    """Whether there is a search to follow: other solvers have none."""
    return task.method.options.method == AUTO


def trace_name(task: Task) -> str:
    """A file's name for a run: readable, safe on any system, and no other run's."""
    instance = task.instance
    names = (stem(instance.network.name), stem(instance.property.name), task.method.name)
    words = "-".join(re.sub(r"[^A-Za-z0-9._=,+-]+", "_", name)[:_LONGEST] for name in names).lstrip(".-")
    return f"{words}-{hashlib.sha256(repr(task.key).encode()).hexdigest()[:8]}{ENDING}"


def _file(task: Task, folder: Path, limit: int) -> TraceFile:
    instance = task.instance
    about = {"network": str(instance.network), "property": str(instance.property), "method": task.method.name}
    return TraceFile(folder / trace_name(task), limit, about)
