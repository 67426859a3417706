"""`bough label`: what a learnt branching rule is taught from."""

import argparse
import math
from pathlib import Path
from typing import TYPE_CHECKING

from bough.cli.shared import (
    DEVICES,
    UNFINISHED,
    Command,
    check_numbers,
    check_processes,
    declare,
    images_of,
    limit_of,
    note,
    picked,
    say,
)
from bough.errors import BadInput
from bough.files.writing import make_folder

if TYPE_CHECKING:
    from bough.making.labelling import LabelRecipe, Work


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
    command.add_argument("--deep", action="store_true", help="spread the samples over the depths of the whole search")
    declare(command, "--growth", "G", "with --deep: of the search between samples; 1.05", float, 1.05)
    command.add_argument("--subset", action="store_true", help="try the ReLUs of `strong-subset` only, not all")
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
    command.add_argument("--resume", action="store_true", help="go on with DIR")
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
    return on_cluster(Cluster(options.jobs, Limits(GRACE), gpu_share=share, address=options.ray_address))


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
