"""A list of instances, or a table of properties, and methods enter; the runs that are to be made leave."""

import csv
import hashlib
import io
import re
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from bough.bench.methods import Method
from bough.errors import BadInput
from bough.files.reading import read_bytes
from bough.files.writing import make_folder
from bough.making import export
from bough.options import AUTO
from bough.problem.instances import Instance, read_instances
from bough.report.runs import stem
from bough.zoo.table import COLUMNS, PAPER_COLUMNS, TABLE_LIMIT, Row, read_table

Key = tuple[object, ...]
Known = Mapping[tuple[str, str, str], str]  # verdicts on record, by benchmark, network and property
TIMEOUT = 300.0  # seconds per run of a table unless the user says how many; as `bough properties` writes it
INSTANCE_COLUMNS = 3  # columns of a list of instances; a table has more
KNOWN_LIMIT = 1 << 26  # most bytes that are read of a file of known verdicts
KNOWN_COLUMNS = ("benchmark", "network", "property", "verdict")
KNOWN_WORDS = {"unsat": "verified", "sat": "falsified"}  # words of the competition; any other means not known
TRACED = 20_000  # nodes of each tree unless the user says how many: a page of many trees has to be opened, too
_LONGEST = 60  # characters of each name that are taken over into a trace's file name
ABOUT = ("dataset", "split", "image", "label", "target", "eps", "difficulty")  # fields of a row that records repeat


@dataclass(frozen=True)
class Asked:
    """One instance of a list, and what a table of properties says about it."""

    instance: Instance
    about: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True)
class TraceFile:
    """Where a run's trace is written, how many nodes of it, and what it is called there, as in its record."""

    path: Path
    limit: int
    about: Mapping[str, str]


@dataclass(frozen=True)
class Task:
    """One run: an instance of a list, and a method; `known` is the verdict on record."""

    instances: Path
    instance: Instance
    method: Method
    known: str | None = None
    about: Mapping[str, Any] = field(default_factory=dict)
    trace: TraceFile | None = None

    @property
    def key(self) -> Key:
        """What makes this the same run as one in a file."""
        instance, method = self.instance, self.method
        return str(instance.network), str(instance.property), method.name, instance.timeout, method.options.seed

    def told(self) -> dict[str, Any]:
        """What the task's record says beside the run itself."""
        return {"instances": str(self.instances), "known": self.known, **{name: self.about.get(name) for name in ABOUT}}


@dataclass(frozen=True)
class Selection:
    """Which instances of a list are run, and for how long each; by default all, with the list's own timeouts."""

    only: str = ""
    every: int = 1
    timeout: float | None = None

    def __post_init__(self) -> None:
        if self.every < 1:
            raise BadInput(f"--every is {self.every}; give a whole number, 1 or more")
        if self.timeout is not None and not 0 <= self.timeout < float("inf"):
            raise BadInput(f"the timeout is {self.timeout}; give a finite number of seconds, 0 or more")


def plan(
    instances: Path,
    methods: Sequence[Method],
    selection: Selection,
    known: Known,
    listed: Sequence[Asked] | None = None,
) -> tuple[Task, ...]:
    """Every run, instance by instance, so that a bench cut short has compared all methods on what it saw.

    `listed` is what the list holds, where it was read already.
    """
    listed = read_list(instances) if listed is None else listed
    selected = [a for a in listed if selection.only in f"{a.instance.network} {a.instance.property}"]
    if not selected:
        raise BadInput(f"{instances} lists no instance with '{selection.only}' in its paths; check --only")
    tasks = [
        Task(
            instances,
            entry.instance if selection.timeout is None else replace(entry.instance, timeout=selection.timeout),
            method,
            known_verdict(known, entry.instance.network, entry.instance.property),
            entry.about,
        )
        for entry in selected[:: selection.every]
        for method in methods
    ]
    return tuple({task.key: task for task in tasks}.values())  # a line given twice is one run


def read_list(instances: Path) -> tuple[Asked, ...]:
    """A competition's list; if `bough properties` wrote it, its table lies beside it and knows more."""
    beside = instances.parent / export.TABLE
    known = {}
    if beside.is_file():
        with suppress(BadInput):  # a file of somebody else's that happens to have the name
            known = {export.file_name(row): about(row) for row in read_table(beside)}
    return tuple(Asked(listed, known.get(listed.property.name, {})) for listed in read_instances(instances))


def about(row: Row) -> dict[str, Any]:
    """What a record says of a row."""
    return {name: getattr(row, name) for name in ABOUT}


def is_table(path: Path) -> bool:
    """Whether a file is meant as a table of properties: many columns, and their names in the first line."""
    try:
        lines = csv.reader(io.StringIO(read_bytes(path, TABLE_LIMIT, BadInput).decode("utf-8-sig"), newline=""))
        first = next((cells for cells in lines if any(cells)), [])
    except (UnicodeDecodeError, csv.Error):
        return False
    return len(first) > INSTANCE_COLUMNS and bool({*COLUMNS, *PAPER_COLUMNS} & set(first))


@dataclass(frozen=True, eq=False)
class Problems:
    """The rows of a table whose images are at hand, and the folder where their files are, or will be."""

    folder: Path
    rows: Sequence[Row]
    networks: Mapping[str, Path]
    images_of: export.ImagesOf

    def listed(self) -> tuple[Asked, ...]:
        """An instance for each row."""
        folder = self.folder / export.VNNLIB
        return tuple(
            Asked(Instance(self.networks[row.network], folder / export.file_name(row), TIMEOUT), about(row))
            for row in self.rows
        )

    def write(self) -> None:
        """Write the files, unless they are there; a folder of another table is refused."""
        make_folder(self.folder)
        export.check_same(self.folder, self.rows)
        if not (self.folder / export.INSTANCES).exists():  # it is written last
            export.write_problems(self.folder, self.rows, self.images_of, dict(self.networks), TIMEOUT)


def read_problems(
    table: Path, folder: Path, networks: Path | None, images_of: export.ImagesOf, note: Callable[[str], None]
) -> Problems:
    """The problems of a table, with their files in `folder`."""
    rows = export.ready(read_table(table), images_of, note)
    if not rows:
        raise BadInput(f"none of the images of {table} is at hand; say by --data where they are")
    paths = export.check_networks(rows, images_of, export.network_folders(table, networks))
    return Problems(folder, rows, paths, images_of)


def read_known(path: Path) -> Known:
    """Verdicts by benchmark, network and property (file names without endings), in bough's words."""
    try:
        text = read_bytes(path, KNOWN_LIMIT, BadInput).decode("utf-8-sig")
        rows = csv.DictReader(io.StringIO(text, newline=""), strict=True)
        if not set(KNOWN_COLUMNS) <= set(rows.fieldnames or ()):
            raise BadInput(f"{path}: the first line must name the columns {', '.join(KNOWN_COLUMNS)}")
        return {
            (r["benchmark"], r["network"], r["property"]): KNOWN_WORDS[r["verdict"]]
            for r in rows
            if r["verdict"] in KNOWN_WORDS
        }
    except (UnicodeDecodeError, csv.Error) as error:
        raise BadInput(f"{path} is no CSV ({error}); give one with the columns {', '.join(KNOWN_COLUMNS)}") from None


def known_verdict(known: Known, network: Path, property_file: Path) -> str | None:
    """What is known of an instance; its benchmark is the nearest folder above the network that has a row for it."""
    keys = ((folder.name, stem(network.name), stem(property_file.name)) for folder in network.resolve().parents)
    return next((known[key] for key in keys if key in known), None)


def with_traces(tasks: Sequence[Task], folder: Path, limit: int = TRACED) -> tuple[Task, ...]:
    """The same tasks with a file for the trace of each that searches, as other solvers do not; at least one has to."""
    traced = tuple(
        replace(task, trace=_trace_file(task, folder, limit)) if task.method.options.method == AUTO else task
        for task in tasks
    )
    if all(task.trace is None for task in traced):
        raise BadInput("--trace follows bough's own search, and no method here has one; leave it out")
    return traced


def trace_name(task: Task) -> str:
    """A file's name for a run: readable, safe on any system, and no other run's."""
    names = (stem(task.instance.network.name), stem(task.instance.property.name), task.method.name)
    words = "-".join(re.sub(r"[^A-Za-z0-9._=,+-]+", "_", name)[:_LONGEST] for name in names).lstrip(".-")
    return f"{words}-{hashlib.sha256(repr(task.key).encode()).hexdigest()[:8]}.jsonl.gz"


def _trace_file(task: Task, folder: Path, limit: int) -> TraceFile:
    instance = task.instance
    about = {"network": str(instance.network), "property": str(instance.property), "method": task.method.name}
    return TraceFile(folder / trace_name(task), limit, about)
