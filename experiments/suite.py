"""What the experiments share: options, problems, methods and weights enter, tables and figures of the runs leave.

A numbered script names networks and methods, and says what tables and figures to make of their runs; all else is here.
Three scales run the same code:

    smoke   stand-ins for data and networks (stand_in.py), seconds; needs nothing, and says nothing about the paper
    small   the paper's networks and properties as far as their images are at hand, dual bounds; about an hour
    paper   all properties, LP bounds, one domain at a time, the paper's time limits; months of one core

Runs are records of `bough bench`, kept per network under OUT/records: scripts given the same --out share them.
"""

import argparse
import json
import math
import os
import platform
import shlex
import sys
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cache
from itertools import chain, zip_longest
from pathlib import Path
from typing import TYPE_CHECKING

import torch

import stand_in
from bough.budget import Deadline
from bough.cli import main as bough
from bough.errors import BadInput, BoughError
from bough.files.writing import make_folder, write_text
from bough.learning.dataset import MANIFEST
from bough.learning.labels import Plan
from bough.making import export, labelling
from bough.options import Options
from bough.report.record import revision
from bough.zoo import datasets, shipped
from bough.zoo.datasets import Images
from bough.zoo.table import DIFFICULTIES, Row, read_table
from laboratory import plots
from laboratory.statistics import Run
from laboratory.tables import Table

if TYPE_CHECKING:
    from matplotlib.figure import Figure

SCALES = ("smoke", "small", "paper")
BABSR, FSB, GNN, REDUCED, ONLINE = "BaBSR", "FSB", "GNN", "GNN-R", "GNN-online"
FOREIGN, LOCAL, NEURIFY, MIP, TIGHT = (
    "GNN of other data",
    "learnt-local",
    "Neurify's rule",
    "MIPplanet",
    "MIP tightened",
)

RULES = {
    BABSR: "babsr",
    FSB: "fsb",
    NEURIFY: "gradient",
    GNN: "gnn",
    REDUCED: "gnn-r",
    ONLINE: "gnn-online",
    FOREIGN: "gnn",
    LOCAL: "learnt-local",
}
BASELINES = {MIP: "mip-planet", TIGHT: "mip-tight"}
WEIGHTS = {GNN: "gnn", ONLINE: "gnn", REDUCED: "gnn-r", LOCAL: "local", FOREIGN: "foreign"}  # kinds, by method
TRAINED: Mapping[str, tuple[tuple[str, ...], tuple[str, ...]]] = {  # at smoke: labels of what, and how to train
    "gnn": (("base", "wide"), ()),
    "gnn-r": (("base", "wide"), ("--reduced",)),
    "local": (("base", "wide"), ("--preset", "local")),
    "foreign": (("deep",), ()),
}
CPU_THREADS = 1
UNFINISHED = 3  # exit status of `bough`


@dataclass(frozen=True)
class Source:
    """Where the properties of a network are at each scale but smoke, and for how long each is tried."""

    title: str
    network: str
    stand_in: str
    table: str  # one of bough's own, or a file under the shared data
    small: int  # properties
    limit: float  # seconds, in the paper


PAPER_TABLE, PAPERS = "data/paper_results.csv", "paper-babsr"  # whose properties are for testing, all of them
SOURCES: Mapping[str, Source] = {
    "base": Source("Base", "cifar_base_kw", "stand_in_base", PAPER_TABLE, 30, 3600.0),
    "wide": Source("Wide", "cifar_wide_kw", "stand_in_wide", PAPER_TABLE, 21, 7200.0),
    "deep": Source("Deep", "cifar_deep_kw", "stand_in_deep", PAPER_TABLE, 14, 7200.0),
    "mnist_base": Source("MNIST Base", "mnist_base", "stand_in_base", "mnist", 30, 1800.0),
    "mnist_wide": Source("MNIST Wide", "mnist_wide", "stand_in_wide", "mnist", 20, 3600.0),
    "mnist_deep": Source("MNIST Deep", "mnist_deep", "stand_in_deep", "mnist", 20, 3600.0),
}
LIMITS = {"smoke": 2.5, "small": 60.0}
SMOKE = {"base": 3, "mnist_base": 3}  # properties, one of each difficulty; of other networks 2
SEARCH = {  # few domains a step: branches are counted, and not to be inflated by splitting many at once
    "smoke": "bounds=dual,batch=8,intermediate=fixed",
    "small": "bounds=dual,batch=8",
    "paper": "bounds=lp,intermediate=paper,attack=false,batch=1",
}


@dataclass(frozen=True)
class Setting:
    """The options of an experiment."""

    scale: str
    out: Path
    device: str
    resume: bool
    count: int | None
    timeout: float | None
    weights: Mapping[str, str]
    mip: bool = True
    jobs: int = 1  # runs at once

    def limit(self, name: str) -> float:
        """Seconds for each run on a network."""
        return self.timeout or LIMITS.get(self.scale) or SOURCES[name].limit

    def amount(self, name: str) -> int | None:
        """Properties of a network; None: all there are."""
        if self.count is not None:
            return self.count
        return {"smoke": SMOKE.get(name, 2), "small": SOURCES[name].small}.get(self.scale)


@dataclass(frozen=True)
class Results:
    """What an experiment makes of its runs."""

    tables: Sequence[Table]
    figures: Mapping[str, "Figure"] = field(default_factory=dict)


@dataclass(frozen=True)
class Experiment:
    """Networks times methods, and what becomes of their runs."""

    name: str
    title: str
    networks: tuple[str, ...]
    methods: tuple[str, ...]
    results: Callable[[list[Run]], Results]
    beside: Sequence[Table] = ()  # what the paper prints
    measured: Callable[[Setting], Sequence[Table]] | None = None  # what runs do not tell


class Missing(BadInput):
    """A network without properties that can be run here."""


# From start to end


def main(experiment: Experiment) -> int:
    """Say what is to come, run what is not there yet, write tables and figures."""
    try:
        setting = options(experiment)
        if not setting.mip:
            methods = tuple(method for method in experiment.methods if method not in BASELINES)
            experiment = replace(experiment, methods=methods)
        torch.set_num_threads(CPU_THREADS)
        started = time.monotonic()
        runs = records(experiment, setting)
        results = experiment.results(runs)
        if experiment.measured is not None:
            results = replace(results, tables=[*results.tables, *experiment.measured(setting)])
        for path in write(experiment, setting, results, runs):
            print(path)
        print(f"{experiment.title}: done in {time.monotonic() - started:.0f} s", file=sys.stderr)
    except BoughError as error:
        print(f"{Path(sys.argv[0]).name}: {error}", file=sys.stderr)
        return 2
    except KeyboardInterrupt:
        print("interrupted; what ended is kept, go on by --resume", file=sys.stderr)
        return UNFINISHED
    return 0


def options(experiment: Experiment) -> Setting:
    """The command line."""
    parser = argparse.ArgumentParser(description=experiment.title, allow_abbrev=False)
    parser.add_argument("--scale", choices=SCALES, default="smoke")
    parser.add_argument("--out", type=Path, required=True, help="a folder; scripts that share it share runs")
    parser.add_argument("--resume", action="store_true", help="go on with what the folder holds")
    parser.add_argument("--device", choices=("cpu", "cuda"), default="cpu", help="where searches run")
    parser.add_argument("--count", type=int, metavar="N", help="properties of each network")
    parser.add_argument("--timeout", type=float, metavar="S", help="seconds for each run")
    parser.add_argument(
        "--weights",
        action="append",
        default=[],
        metavar="KIND=FILE",
        help=f"of a learnt rule, {', '.join(TRAINED)}; at smoke trained in seconds, else those that come with bough",
    )
    parser.add_argument("--no-mip", dest="mip", action="store_false", help="leave out mixed-integer programs")
    parser.add_argument("--jobs", type=int, default=1, metavar="N", help="runs at once; 1 by default; not at smoke")
    given = parser.parse_args()
    if given.count is not None and given.count < 1:
        raise BadInput(f"--count is {given.count}; give a whole number, 1 or more")
    if given.jobs < 1:
        raise BadInput(f"--jobs is {given.jobs}; give a whole number, 1 or more")
    if given.timeout is not None and not 0 < given.timeout < math.inf:
        raise BadInput(f"--timeout is {given.timeout}; give seconds, more than 0")
    weights = dict(text.partition("=")[::2] for text in given.weights)
    for kind, path in weights.items():
        if kind not in TRAINED or not path:
            raise BadInput(f"--weights takes KIND=FILE, and KIND is one of {', '.join(TRAINED)}")
    folder = given.out / "tables"
    if folder.exists() and not given.resume:
        raise BadInput(f"{given.out} holds experiments already; go on by --resume, or give another folder")
    for name in ("tables", "figures", "records"):
        (given.out / name).mkdir(parents=True, exist_ok=True)
    how = given.resume, given.count, given.timeout, weights, given.mip, given.jobs
    return Setting(given.scale, given.out, given.device, *how)


def records(experiment: Experiment, setting: Setting) -> list[Run]:
    """The runs of every network by every method, with the network's title, its difficulty and the method's name."""
    folders = available(experiment.networks, setting)
    rows = {name: read_table(folder / export.TABLE) for name, folder in folders.items()}
    announce(experiment, setting, {name: len(listed) for name, listed in rows.items()})
    runs: list[Run] = []
    for name, folder in folders.items():
        described = {method: describe(method, setting) for method in experiment.methods}
        out = setting.out / "records" / f"{folder.name}.jsonl"
        words = ["bench", str(folder / export.INSTANCES), "--out", str(out), "--resume"]
        if setting.scale == "smoke":  # runs of a tenth of a second are not worth a process
            words += ["--engine", "here"]
        else:
            words += ["--jobs", str(setting.jobs)]
        status = bough([*words, *chain.from_iterable(("--method", text) for text in described.values())])
        if status == UNFINISHED:
            raise KeyboardInterrupt
        if status:
            raise BadInput(f"`bough bench` ended with status {status}; what is there is kept, go on by --resume")
        runs += _named(out, folder, SOURCES[name], described)
    return sorted(runs, key=lambda run: experiment.methods.index(run["method"]))  # lines and colours in their order


def _named(out: Path, folder: Path, source: Source, described: Mapping[str, str]) -> list[Run]:
    names = {text: method for method, text in described.items()}
    difficulty = {export.file_name(row): row.difficulty for row in read_table(folder / export.TABLE)}
    listed = [json.loads(line) for line in out.read_text().splitlines()]
    return [
        {**run, "method": names[run["method"]], "title": source.title, "difficulty": difficulty[name]}
        for run in listed
        if run["method"] in names and (name := Path(run["property"]).name) in difficulty
    ]


def by_title(run: Run) -> str:
    """Groups for tables: the network's name in the paper."""
    return str(run["title"])


def announce(experiment: Experiment, setting: Setting, counts: Mapping[str, int]) -> None:
    """What is to come, and for how long."""
    lines = [f"{experiment.title}, scale {setting.scale}, on {setting.device}"]
    most = 0.0
    for name, count in counts.items():
        seconds = count * len(experiment.methods) * setting.limit(name)
        most += seconds
        lines.append(
            f"  {SOURCES[name].title}: {count} properties, {len(experiment.methods)} methods, "
            f"{setting.limit(name):g} s each: at most {_duration(seconds)}"
        )
    lines.append(f"  in all at most {_duration(most)}, probably a third of it; runs that are there are not repeated")
    print("\n".join(lines), file=sys.stderr, flush=True)


def _duration(seconds: float) -> str:
    for size, word in ((86_400, "days"), (3600, "hours"), (60, "minutes")):
        if seconds >= 2 * size:
            return f"{seconds / size:.0f} {word}"
    return f"{seconds:.0f} seconds"


def write(experiment: Experiment, setting: Setting, results: Results, runs: Sequence[Run]) -> list[Path]:
    """Tables as Markdown in one file, with the command that made them, and figures as SVG and PNG."""
    page = setting.out / "tables" / f"{experiment.name}.md"
    command = shlex.join(["python", f"experiments/{Path(sys.argv[0]).name}", *sys.argv[1:]])
    versions = {run["revision"] or "of a package" for run in runs} or {revision()}
    machine = f"{platform.machine()}, {os.cpu_count()} CPUs, on {setting.device}"
    parts = [f"# {experiment.title}\n", f"`{command}`, revision {', '.join(map(str, versions))}, {machine}.\n"]
    if setting.scale == "smoke":
        parts.append("Stand-ins for networks and data: this shows that the code runs, and nothing else.\n")
    parts += [table.markdown() for table in results.tables]
    if experiment.beside:
        parts += ["## The paper\n", *(table.markdown() for table in experiment.beside)]
    paths = [page]
    for name, figure in results.figures.items():
        files = [setting.out / "figures" / f"{experiment.name}{name}{ending}" for ending in (".svg", ".png")]
        plots.write(figure, *files)
        parts.append(f"![{experiment.title}](../figures/{files[0].name})\n")
        paths += files
    write_text(page, "\n".join(parts))
    for table in results.tables:
        print(table.text())
    return paths


# Problems


def problems(name: str, setting: Setting) -> Path:
    """The folder with a network's properties as files, written once; another choice of them is another folder."""
    source = SOURCES[name]
    network = source.stand_in if setting.scale == "smoke" else source.network
    folder = setting.out / "problems" / f"{network}-{setting.amount(name) or 'all'}-{setting.limit(name):g}s"
    if (folder / export.INSTANCES).exists():
        return folder
    rows, networks = _rows(source, setting)
    images_of = _images(setting)
    chosen = stratified(export.ready(rows, images_of, lambda _: None), setting.amount(name))
    if not chosen:
        raise Missing(f"of {source.title} there is no property for testing whose image is at hand; set BOUGH_DATA")
    make_folder(folder)
    paths = export.check_networks(chosen, images_of, networks)
    export.write_problems(folder, chosen, images_of, paths, setting.limit(name))
    return folder


def available(names: Sequence[str], setting: Setting) -> dict[str, Path]:
    """The folders of those networks that have properties here; which have none is said."""
    tried = {name: _tried(name, setting) for name in names}
    folders = {name: folder for name, folder in tried.items() if folder is not None}
    if not folders:
        raise BadInput("there is no property to run; set BOUGH_DATA to the folder with the images")
    return folders


def _tried(name: str, setting: Setting) -> Path | None:
    try:
        return problems(name, setting)
    except Missing as error:
        print(f"note: {error}; left out", file=sys.stderr)
        return None


def _rows(source: Source, setting: Setting) -> tuple[list[Row], list[Path]]:
    """All properties of a network, and the folders where it may lie."""
    if setting.scale == "smoke":
        network, table, folders = source.stand_in, stand_in.TABLE, [stand_in.HERE]
    elif source.table == PAPER_TABLE:
        network, table, folders = source.network, shared() / PAPER_TABLE, [shared() / "data" / "networks"]
    else:
        network, table, folders = source.network, shipped.table_path(Path(source.table)), [shipped.NETWORKS]
    listed = [row for row in read_table(table) if row.network == network]
    return [row for row in listed if row.use == "test" or row.method == PAPERS], folders


def shared() -> Path:
    """The folder of the paper's networks and results."""
    folder = os.environ.get("BOUGH_DATA")
    if not folder or not Path(folder, PAPER_TABLE).is_file():
        raise BadInput(f"set BOUGH_DATA to the folder that has {PAPER_TABLE}, or use --scale smoke")
    return Path(folder)


def _images(setting: Setting) -> Callable[[str, str], Images]:
    if setting.scale == "smoke":
        return cache(lambda _, split: stand_in.figures(split))
    return cache(datasets.load)


def stratified(rows: Iterable[Row], count: int | None) -> list[Row]:
    """So many rows, of each difficulty in turn, in the order of the table."""
    listed = list(rows)
    if count is None:
        return listed
    parts = [[row for row in listed if row.difficulty == word] for word in DIFFICULTIES]
    return [row for row in chain.from_iterable(zip_longest(*parts)) if row is not None][:count]


# Methods


def describe(method: str, setting: Setting) -> str:
    """A method as `bough bench` takes it."""
    if method in BASELINES:
        return BASELINES[method]
    words = [SEARCH[setting.scale], f"branching={RULES[method]}", f"device={setting.device}"]
    if method in WEIGHTS and (path := weights(WEIGHTS[method], setting)):
        words.append(f"weights={path}")
    return ",".join(words)


def weights(kind: str, setting: Setting) -> str | None:
    """The file of a learnt rule: as given, at smoke trained on the spot; None: bough's own."""
    if kind in setting.weights:
        return setting.weights[kind]
    if setting.scale != "smoke":
        if kind == "foreign":
            raise BadInput("say by --weights foreign=FILE which weights, of another data set, are to be tried")
        return None
    networks, how = TRAINED[kind]
    folder = setting.out / "weights" / kind
    file = folder / "weights.safetensors"
    if not file.exists():
        labels = _labels(networks, setting)
        words = ["train", str(labels), "--out", str(folder), "--epochs", "6", "--device", "cpu", "--rate", "1e-3", *how]
        if (folder / "checkpoint.pt").exists():
            words.append("--resume")
        if bough(words):
            raise BadInput(f"the weights for {kind} could not be trained; see above")
    return str(file)


def _labels(names: Sequence[str], setting: Setting) -> Path:
    """Samples of stand-in networks, on figures that are for training; with the bounds of the runs, as in `SEARCH`."""
    folder = setting.out / "labels" / "-".join(names)
    if (folder / MANIFEST).exists():
        return folder
    stand_ins = [SOURCES[name].stand_in for name in names]
    rows, _ = labelling.allowed([row for row in read_table(stand_in.TABLE) if row.network in stand_ins])
    images_of = _images(setting)
    networks = export.check_networks(rows, images_of, [stand_in.HERE])
    how = Options(bounds="dual", branching="babsr", batch=1, intermediate="fixed", device="cpu")
    recipe = labelling.LabelRecipe(Plan(samples=3, between=2, whole=0.0), how)
    make_folder(folder, resume=False)
    tasks = labelling.plan_tasks(rows, images_of, networks, recipe)
    totals = labelling.make(folder, tasks, recipe, lambda line: print(line, file=sys.stderr), Deadline.never(), 1)
    if totals.why is not None:
        raise BadInput(f"labels could not be made: {totals.why}")
    return folder
