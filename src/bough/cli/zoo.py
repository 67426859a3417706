"""`bough properties`: problems of one's own."""

import argparse
import math
from pathlib import Path
from typing import TYPE_CHECKING

from bough.budget import Clock, Deadline
from bough.cli.shared import (
    DEVICES,
    NETWORK_HELP,
    UNFINISHED,
    Command,
    check_numbers,
    check_processes,
    declare,
    images_of,
    limit_of,
    note,
    numbered,
    numbers,
    picked,
    say,
)
from bough.errors import BadInput
from bough.files.writing import make_folder

if TYPE_CHECKING:
    from bough.making.trial import TrialRecipe

TELL_EVERY, TELL_PROBES = 10.0, 2.0  # seconds
DIFFICULTIES = {"easy": "--easy", "medium": "--medium", "hard": "--hard", "timeout": "--timeout-count"}
EDGES = {"seconds": "0.1,1,5,20", "bounds": "100,1000,5000,20000"}


def properties(command: Command) -> None:
    """Declare the options of `bough properties`."""
    declare(command, "network", "NETWORK", NETWORK_HELP, Path, nargs="?")
    declare(command, "--out", "DIR", "folder for all that is written", Path, required=True)
    declare(command, "--dataset", "NAME", "mnist or cifar10")
    command.add_argument("--split", choices=("train", "test"), default="test", help="which images; test by default")
    declare(command, "--images", "A:B", "only images with numbers from A up to B", numbered)
    command.add_argument("--use", choices=("train", "test"), help="only images for training a rule, or for testing it")
    declare(command, "--data", "FOLDER", "where the data set's files are", Path)
    declare(command, "--count", "N", "properties of any difficulty; 50 by default", int)
    for name, flag in DIFFICULTIES.items():
        declare(command, flag, "N", f"properties: {name}", int, dest=f"{name}_count")
    declare(command, "--method", "NAME", "reference method, as for `bough bench`", default="dual-fsb")
    declare(command, "--device", DEVICES, "where the method runs")
    declare(command, "--unit", tuple(EDGES), "of cost; bounds can be repeated")
    words = (
        f"cost up to which a property is easy, medium, hard; less than LEAST is too easy; by default "
        f"{EDGES['seconds']} seconds, or {EDGES['bounds']} bounds"
    )
    declare(command, "--edges", "[LEAST,]E,M,H", words, numbers)
    declare(command, "--eps-range", "LO,HI", "radii to choose from", numbers)
    words = "eps in the network's units, not in pixels of 0 to 1"
    declare(command, "--normalised", None, words, action=argparse.BooleanOptionalAction)
    declare(command, "--clip", None, "valid pixels only", action=argparse.BooleanOptionalAction)
    declare(command, "--probes", "N", "most radii tried per image; 5 by default", int, 5)
    lean = "part what is between too cheap and too dear there, instead of by how cost grows"
    declare(command, "--lean", "SHARE", lean, float)
    declare(command, "--seed", "N", "of the images' order and their targets", int, 0)
    declare(command, "--jobs", "N", "processes; the table is the same", int, 1)
    declare(command, "--limit-seconds", "S", "start no image after S seconds in all", float)
    declare(command, "--resume", None, "go on with DIR")
    declare(command, "--timeout", "S", "seconds in instances.csv; 300", float, 300)
    declare(command, "--from", "CSV", "write the files of a table there is; mnist comes with bough", Path, dest="table")
    declare(command, "--networks", "FOLDER", "with --from: where the networks are", Path)
    declare(command, "--only", "TEXT", "with --from: rows with TEXT in their files' names", default="")
    declare(command, "--every", "N", "with --from: every N-th of these rows", int, 1)
    command.set_defaults(run=_properties)


class Ticks:
    """A line now and then about something that takes long, where no other was said for a while."""

    def __init__(self, every: float = TELL_EVERY) -> None:
        self._said = Clock.start()
        self._every = every

    def __call__(self, words: str, done: int | None = None, total: int | None = None) -> None:
        """Say what is being done, and how much of it is, if no line was said for a while."""
        if self._said.seconds() > self._every:
            self.line(words if done is None else f"{words}: {done} of {total}")

    def line(self, words: str) -> None:
        """Say a line in any case."""
        self._said = Clock.start()
        say(words)


def _properties(options: argparse.Namespace) -> int:
    """Make properties, or write the files of a table of them; a note says what is missing."""
    deadline = limit_of(options)
    if not (math.isfinite(options.timeout) and options.timeout > 0):
        raise BadInput(f"--timeout is {options.timeout}; give a finite number of seconds above 0")
    if (options.network is None) == (options.table is None):
        raise BadInput("give either a NETWORK to make properties for, or a table of properties by --from")
    making = {f"--{name}": getattr(options, name) for name in ("count", "dataset", "images", "use")}
    making |= {flag: getattr(options, f"{name}_count") for name, flag in DIFFICULTIES.items()}
    writing = {"--networks": options.networks, "--only": options.only or None, "--every": options.every - 1 or None}
    unheeded = [flag for flag, value in (making if options.network is None else writing).items() if value is not None]
    if unheeded:
        raise BadInput(f"{unheeded[0]} says nothing {'with' if options.network is None else 'without'} --from")
    return _properties_from(options) if options.network is None else _properties_made(options, deadline)


def _properties_from(options: argparse.Namespace) -> int:
    from bough.making import export
    from bough.zoo import shipped, table

    check_numbers(options, every=1)
    at_hand = images_of(options)
    path = shipped.table_path(options.table)
    listed = [row for row in table.read_table(path) if options.only in export.file_name(row)]
    if not listed:
        raise BadInput(f"{options.table} lists no row with '{options.only}' in its file's name; check --only")
    rows = export.ready(listed, at_hand, note)[:: options.every]
    networks = export.check_networks(rows, at_hand, export.network_folders(path, options.networks))
    make_folder(options.out, resume=options.resume)
    export.check_same(options.out, rows)
    export.write_problems(options.out, rows, at_hand, networks, options.timeout)
    say(f"{len(rows)} properties are in {options.out / export.INSTANCES}")
    return 0 if rows else UNFINISHED


def _properties_made(options: argparse.Namespace, deadline: Deadline) -> int:
    import torch

    from bough.api import load_network
    from bough.making import export, properties
    from bough.zoo import datasets, shipped, table

    torch.set_num_threads(1)
    recipe, wanted = _recipe(options), _wanted(options)
    check_numbers(options, seed=0)
    check_processes(options, "jobs")
    path = shipped.network_path(options.network)
    loaded = load_network(path)
    try:
        table.check_fits(loaded.network, datasets.known(options.dataset))
    except BadInput as error:
        raise type(error)(f"{options.network}: {error}") from error
    images = images_of(options)(options.dataset, options.split)
    within = range(images.dataset.counts[images.split]) if options.images is None else options.images
    wish = properties.Wish(images, within, wanted, options.use)
    make_folder(options.out, resume=options.resume)
    tick = Ticks(TELL_PROBES)
    with properties.ProbeLog(options.out / export.LOG, recipe.description(), note) as known:
        made = properties.PropertyMaker(recipe, wish, loaded, options.jobs, known, tick.line, tick, deadline).make()
    export.write_problems(options.out, made.rows, lambda *_: images, {recipe.network: path}, options.timeout)
    say(
        f"{len(made.rows)} properties are in {options.out / export.INSTANCES}, "
        f"{sum(row.difficulty == 'timeout' for row in made.rows)} of them not solved; {made.wrong} images were "
        f"classified wrongly, {made.unsuitable} gave nothing that was wanted"
    )
    if made.why is not None:
        say(f"bough: {made.why}; go on by the same command with --resume")
    return 0 if made.why is None else UNFINISHED


def _recipe(options: argparse.Namespace) -> "TrialRecipe":
    from bough.bench.methods import parse_method
    from bough.making.trial import TrialRecipe, usual_radii
    from bough.making.tuning import Bracket, CostScale
    from bough.zoo import datasets

    if options.dataset is None:
        raise BadInput(f"which images? give --dataset, one of: {', '.join(datasets.DATASETS)}")
    method = parse_method(options.method, None if options.device == "auto" else options.device)
    normalised, largest = usual_radii(datasets.known(options.dataset), options.normalised)
    edges = options.edges or numbers(EDGES[options.unit])
    if len(edges) not in (3, 4):
        raise BadInput(f"--edges has {len(edges)} numbers; give 3, or 4 with the least cost first")
    radii = options.eps_range or (0.0, largest)
    if len(radii) != 2:
        raise BadInput(f"--eps-range has {len(radii)} numbers; give the least and the largest radius")
    least, easy, medium, hard = edges if len(edges) == 4 else (0.0, *edges)
    return TrialRecipe(
        **picked(options, "dataset", "split", "probes", "lean", "seed"),
        network=str(options.network),
        method=method.name,
        options=method.options,
        scale=CostScale(options.unit, (least, easy, medium, hard)),
        bracket=Bracket(*radii),
        normalised=normalised,
        clip=not normalised if options.clip is None else options.clip,
    )


def _wanted(options: argparse.Namespace) -> dict[str, int]:
    given = {name: count for name in DIFFICULTIES if (count := getattr(options, f"{name}_count")) is not None}
    if given and options.count is not None:
        raise BadInput("--count is of any difficulty; give either that, or --easy, --medium, --hard, --timeout-count")
    return given or {"any": 50 if options.count is None else options.count}
