"""`bough label` and `bough train`: samples of strong branching, and models that rank ReLUs, taught from these."""

import argparse
import math
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from bough.cli.shared import (
    DEVICES,
    UNFINISHED,
    Command,
    check_numbers,
    check_processes,
    check_resumed,
    declare,
    device_named,
    images_of,
    limit_of,
    note,
    picked,
    say,
)
from bough.cli.zoo import Ticks
from bough.errors import BadInput
from bough.files.writing import make_folder

if TYPE_CHECKING:
    import torch

    from bough.learning.dataset import Part, SampleCard
    from bough.learning.lessons import EpochFigures, Figures, Lessons
    from bough.learning.samples import Samples
    from bough.learning.train import SampleOrigin
    from bough.making.labelling import LabelRecipe, Work

RECIPE_OPTIONS = (
    *("reduced", "measure", "loss", "classes", "epochs", "rate", "decay", "decoupled", "batch", "group", "seed"),
    *("inputs", "start"),
)
MEASURES = ("mean", "min", "max", "product", "tree", "size")


def label(command: Command) -> None:
    """Declare the options of `bough label`."""
    declare(command, "table", "TABLE", "CSV of `bough properties`; mnist comes with bough", Path)
    declare(command, "--out", "DIR", "folder for the samples", Path, required=True)
    declare(command, "--networks", "FOLDER", "where the networks are", Path)
    declare(command, "--data", "FOLDER", "where the data sets' files are", Path)
    declare(command, "--every", "N", "every N-th of the rows, the first too", int, 1)
    declare(command, "--samples", "B", "samples per property; 20", int, 20)
    declare(command, "--between", "Q", "most steps between two samples; 10", int, 10)
    declare(command, "--whole", "SHARE", "of solved properties searched by strong; 0.25", float, 0.25)
    declare(command, "--deep", None, "spread the samples over the depths of the whole search")
    declare(command, "--growth", "G", "with --deep: of the search between samples; 1.05", float, 1.05)
    declare(command, "--subset", None, "try the ReLUs of `strong-subset` only, not all")
    declare(command, "--inputs", "N", "label N inputs of each sample, too: bound both halves; 0", int, 0)
    declare(command, "--rollouts", "K", "grow the trees below the K ReLUs that --rule ranks first", int, 0)
    declare(command, "--largest", "N", "with --rollouts: branches of the trees that are tried; 256", int, 256)
    declare(command, "--bounds", ("dual", "lp"), "that labels are made of; dual")
    declare(command, "--intermediate", "NAME", "bounds of ReLUs, as for `bough verify`; auto", default="auto")
    declare(command, "--rule", "RULE", "the cheap branching rule between samples; fsb", default="fsb")
    declare(command, "--weights", "FILE", "of a learnt rule; else what comes with bough")
    declare(command, "--timeout", "S", "seconds per property, or inf; 60", float, 60.0)
    words = "bounds per property, but for those of labels; with --rollouts, branches of the rule's own tree"
    declare(command, "--max-bounds", "N", words, int, dest="most_bounds")
    declare(command, "--batch", "N", "domains split per step; 1, and with --deep or --rollouts what memory allows", int)
    declare(command, "--seed", "N", "of everything random", int, 0)
    declare(command, "--device", DEVICES, "where bounds are computed")
    declare(command, "--jobs", "N", "processes, 1 by default, or runs at once on Ray; the samples are the same", int)
    declare(command, "--engine", ("local", "ray"), "this machine, or a Ray cluster")
    declare(command, "--gpu-share", "SHARE", "with ray: of a GPU, for each property; 1", float)
    declare(command, "--ray-address", "ADDRESS", "with ray: of the cluster; else one that is found")
    declare(command, "--limit-seconds", "S", "start no property after S seconds in all", float)
    declare(command, "--resume", None, "go on with DIR")
    command.set_defaults(run=_label)


def _label(options: argparse.Namespace) -> int:
    """Label the rows of a table; notes say which are left out."""
    limit = limit_of(options)
    check_numbers(options, every=1)
    check_processes(options, "jobs")
    work = _work(options)
    if not options.timeout > 0:
        raise BadInput(f"--timeout is {options.timeout}; give seconds, more than 0, or inf for no limit")
    import torch

    from bough.making import export, labelling
    from bough.zoo import shipped, table

    torch.set_num_threads(1)
    recipe = _recipe(options)
    path = shipped.table_path(options.table)
    at_hand = images_of(options)
    listed = table.read_table(path)
    rows, refused = labelling.allowed(listed)
    if refused:
        note(f"{refused} of {len(listed)} rows are refused: their images are kept for testing")
    if not rows:
        raise BadInput(f"no row of {options.table} may be labelled; give a table of images that are for training")
    rows = export.ready(rows[:: options.every], at_hand, note)
    if not rows:
        raise BadInput(f"none of the images of {options.table} is at hand; say by --data where they are")
    networks = export.check_networks(rows, at_hand, export.network_folders(path, options.networks))
    make_folder(options.out, resume=options.resume)
    tasks = labelling.plan_tasks(rows, at_hand, networks, recipe)
    made = labelling.make(options.out, tasks, recipe, say, limit, options.jobs or 1, work)
    say(f"{made.samples} samples of {made.properties} properties are in {options.out}")
    if made.why is not None:
        left = made.wanted - made.properties
        say(f"bough: {made.why}, {left} properties are left; go on by the same command with --resume")
    return 0 if made.why is None else UNFINISHED


def _work(options: argparse.Namespace) -> "Work | None":
    """Who labels, if not this machine."""
    if options.engine == "local":
        for flag in ("gpu_share", "ray_address"):
            if getattr(options, flag) is not None:
                raise BadInput(f"--{flag.replace('_', '-')} says nothing without --engine ray; leave it out")
        return None
    from bough.bench.cluster import Cluster
    from bough.bench.labels import GRACE, on_cluster
    from bough.jobs.pool import Limits

    share = 1.0 if options.gpu_share is None else options.gpu_share
    return partial(on_cluster, Cluster(options.jobs, Limits(GRACE), gpu_share=share, address=options.ray_address))


def _recipe(options: argparse.Namespace) -> "LabelRecipe":
    from bough.bounds.base import Capability
    from bough.branching.subset import Subset
    from bough.learning.labels import Plan
    from bough.making.labelling import LabelRecipe
    from bough.options import Options

    fields = ("samples", "between", "whole", "deep", "growth", "seed", "inputs", "rollouts", "largest")
    plan = Plan(**picked(options, *fields), subset=Subset() if options.subset else None)
    chosen = Options(
        **picked(options, "bounds", "intermediate", "weights", "seed", "device", "most_bounds"),
        timeout=options.timeout if math.isfinite(options.timeout) else None,
        branching=options.rule,
        batch=1 if options.batch is None and not (options.deep or options.rollouts) else options.batch,
    )
    if Capability.INPUT_PARTS in chosen.needs:
        raise BadInput(f"'{options.rule}' halves inputs, and labels are about ReLUs; give another --rule")
    return LabelRecipe(plan, chosen)


def train(command: Command) -> None:
    """Declare the options of `bough train`."""
    declare(command, "samples", "SAMPLES", "folders that `bough label` wrote", Path, nargs="+")
    declare(command, "--out", "DIR", "weights, report, curves, and checkpoints to go on from", Path, required=True)
    words = "kind of model: fast (the default), local, or another package's"
    declare(command, "--preset", "NAME", words, default="fast")
    declare(command, "--reduced", None, "without primal and dual values (the paper's GNN-R)")
    declare(command, "--inputs", None, "score inputs, too, of samples by `label --inputs`; not fast, nor local")
    words = "how a split is judged: by its children (mean is the paper's), or, size, by trees of `label --rollouts`"
    declare(command, "--measure", MEASURES, words)
    command.add_argument(
        "--loss",
        choices=("rank", "choice", "expected"),
        help="rank all ReLUs (the paper's), learn the best one, or what each costs; by preset and measure",
    )
    declare(command, "--classes", "N", "classes of ReLUs that are ranked; 10 by default", int)
    declare(command, "--absolute", None, "classes of equal width in m itself, not over the best m of a sample")
    declare(command, "--start", "WEIGHTS", "begin with these: a file, or what comes with bough")
    declare(command, "--epochs", "N", "most passes over the samples", int)
    declare(command, "--rate", "R", "learning rate at the start", float)
    declare(command, "--decay", "D", "weight decay", float)
    words = "weight decay apart from the gradient (AdamW)"
    declare(command, "--decoupled", None, words, action=argparse.BooleanOptionalAction)
    declare(command, "--batch", "N", "samples per step", int)
    declare(command, "--group", "N", "most samples of one property in a row, scored together", int)
    declare(command, "--seed", "N", "of first weights and of the order of samples", int)
    declare(command, "--device", DEVICES, "auto takes a GPU when there is one")
    declare(command, "--limit-seconds", "S", "end after S seconds with the best so far", float)
    declare(command, "--resume", None, "go on with what DIR holds")
    command.set_defaults(run=_train)


def _train(options: argparse.Namespace) -> int:
    limit = limit_of(options)
    import torch

    from bough.budget import idle_cpus
    from bough.learning.presets import recipe_for
    from bough.learning.train import CHECKPOINT, CURVES, REPORT, WEIGHTS, finish, train

    recipe = recipe_for(options.preset, relative=not options.absolute, **picked(options, *RECIPE_OPTIONS))
    check_resumed(options, CHECKPOINT)
    device = device_named(options.device)
    torch.set_num_threads(idle_cpus())  # threads that wait for each other's cores are many times slower than one
    training, validation, origin = _lessons(options.samples, device)
    make_folder(options.out)
    say(
        f"{recipe.preset}{', reduced' if recipe.reduced else ''}: {len(training)} samples of {len(training.parts)} "
        f"properties to learn from, {len(validation)} of {len(validation.parts)} to judge by, up to {recipe.epochs} "
        f"epochs, on {device}"
    )
    try:
        trained = train(recipe, training, validation, options.out, _say_epoch, Ticks(), limit)
        if not trained.history:
            say("the time was up before the first epoch ended; go on with more time")
            return UNFINISHED
        report = finish(trained, recipe, training, validation, origin, options.out)
    except KeyboardInterrupt:
        say("bough: interrupted; what ended is kept, go on by --resume")
        return UNFINISHED
    say("accuracy: m of the chosen ReLU is at least 0.9 of the best m; in brackets, at least 0.9 itself")
    for part, figures in report.figures.items():
        say(_figures(f"{part}, {figures.samples} samples", figures))
    for depth, at_depth in report.figures["validation"].by_depth.items():
        say(_figures(f"validation at depth {depth}, {at_depth.samples} samples", at_depth))
    dead = [name for name, norms in report.gradients.items() if not norms.gradient > 0]
    say(f"gradients of {len(report.gradients)} parameters, dead: {', '.join(dead) or 'none'}")
    path = options.out / WEIGHTS
    say(f"{path}: {report.parameters} parameters; {options.out / REPORT} says how, {options.out / CURVES} shows it")
    if not trained.finished:
        say("the time is up; these are the best weights so far, go on by --resume")
    print(path)
    return 0 if trained.finished else UNFINISHED


def _lessons(folders: list[Path], device: "torch.device") -> "tuple[Lessons, Lessons, SampleOrigin]":
    """Samples to learn from and to judge by, of all folders, and where they are from."""
    from bough.learning.dataset import read_shards
    from bough.learning.lessons import Lessons
    from bough.learning.train import SampleOrigin

    cards: list[SampleCard] = []

    def samples(part: "Part") -> "Iterator[Samples]":
        for folder in folders:
            for shard in read_shards(folder, part, note=note):
                cards.append(shard.card)
                yield shard.samples

    training, validation = Lessons.of(samples("training"), device), Lessons.of(samples("validation"), device)
    bounders = sorted({card.bounder for card in cards})
    if len(bounders) > 1:
        raise BadInput(f"the samples are by several bounders ({', '.join(bounders)}); train on those of one")
    networks, datasets = {card.network for card in cards}, {card.dataset for card in cards}
    return training, validation, SampleOrigin(bounders[0], tuple(sorted(networks)), tuple(sorted(datasets)))


def _say_epoch(line: "EpochFigures") -> None:
    name = f"epoch {line.epoch}/{line.of}  rate {line.rate:.1e}  training loss {line.training.loss:.4f}, validation"
    say(f"{_figures(name, line.validation)}  {line.seconds:.1f} s{'  best' if line.best else ''}")


def _figures(name: str, figures: "Figures") -> str:
    return (
        f"{name}: loss {figures.loss:.4f}  accuracy {figures.accuracy:.1%} (m at least 0.9: "
        f"{figures.absolute:.1%})  m over the best {figures.share:.3f}"
    )
