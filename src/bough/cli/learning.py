"""`bough label`: what a learnt branching rule is taught from."""

import argparse
import math
from pathlib import Path
from typing import TYPE_CHECKING

from bough.cli.shared import MOST_THREADS, UNFINISHED, Commands, images_of, limit_of, say
from bough.errors import BadInput
from bough.files.writing import make_folder

if TYPE_CHECKING:
    from bough.making.labelling import LabelRecipe, Work


def add(commands: Commands) -> None:
    """Add `bough label` to the commands."""
    label = commands.add("label", help="record strong branching as samples to train a rule from")
    label.add_argument("table", metavar="TABLE", type=Path, help="CSV of `bough properties`; mnist comes with bough")
    label.add_argument("--out", type=Path, metavar="DIR", required=True, help="folder for the samples")
    label.add_argument("--networks", type=Path, metavar="FOLDER", help="where the networks are")
    label.add_argument("--data", type=Path, metavar="FOLDER", help="where the data sets' files are")
    label.add_argument("--every", type=int, default=1, metavar="N", help="every N-th of the rows, the first too")
    label.add_argument("--samples", type=int, default=20, metavar="B", help="samples per property; 20")
    label.add_argument("--between", type=int, default=10, metavar="Q", help="most steps between two samples; 10")
    label.add_argument(
        "--whole", type=float, default=0.25, metavar="SHARE", help="of solved properties searched by strong; 0.25"
    )
    label.add_argument("--deep", action="store_true", help="spread the samples over the depths of the whole search")
    label.add_argument(
        "--growth", type=float, default=1.05, metavar="G", help="with --deep: of the search between samples; 1.05"
    )
    label.add_argument("--subset", action="store_true", help="try the ReLUs of `strong-subset` only, not all")
    label.add_argument(
        "--inputs", type=int, default=0, metavar="N", help="label N inputs of each sample, too: bound both halves; 0"
    )
    label.add_argument(
        "--rollouts", type=int, default=0, metavar="K", help="grow the trees below the K ReLUs that --rule ranks first"
    )
    label.add_argument(
        "--largest",
        type=int,
        default=256,
        metavar="N",
        help="with --rollouts: branches of the trees that are tried; 256",
    )
    label.add_argument("--bounds", choices=("dual", "lp"), default="dual", help="that labels are made of; dual")
    label.add_argument(
        "--intermediate", default="auto", metavar="NAME", help="bounds of ReLUs, as for `bough verify`; auto"
    )
    label.add_argument("--rule", default="fsb", metavar="RULE", help="the cheap branching rule between samples; fsb")
    label.add_argument("--weights", metavar="FILE", help="of a learnt rule; else what comes with bough")
    label.add_argument("--timeout", type=float, default=60.0, metavar="S", help="seconds per property, or inf; 60")
    label.add_argument(
        "--max-bounds",
        type=int,
        metavar="N",
        help="bounds per property, but for those of labels; with --rollouts, branches of the rule's own tree",
    )
    label.add_argument(
        "--batch",
        type=int,
        metavar="N",
        help="domains split per step; 1, and with --deep or --rollouts what memory allows",
    )
    label.add_argument("--seed", type=int, default=0, metavar="N", help="of everything random")
    label.add_argument("--device", choices=("auto", "cpu", "cuda"), default="auto", help="where bounds are computed")
    label.add_argument(
        "--jobs",
        type=int,
        metavar="N",
        help="processes, 1 by default, or runs at once on Ray; the samples are the same",
    )
    label.add_argument("--engine", choices=("local", "ray"), default="local", help="this machine, or a Ray cluster")
    label.add_argument("--gpu-share", type=float, metavar="SHARE", help="with ray: of a GPU, for each property; 1")
    label.add_argument("--ray-address", metavar="ADDRESS", help="with ray: of the cluster; else one that is found")
    label.add_argument("--limit-seconds", type=float, metavar="S", help="start no property after S seconds in all")
    label.add_argument("--resume", action="store_true", help="go on with DIR")
    label.set_defaults(run=_label)


def _label(options: argparse.Namespace) -> int:
    """Label the rows of a table; notes say which are left out."""
    limit = limit_of(options)
    if options.every < 1:
        raise BadInput(f"--every is {options.every}; give a whole number, 1 or more")
    if options.jobs is not None and not 1 <= options.jobs <= MOST_THREADS:
        raise BadInput(f"--jobs is {options.jobs}; give 1 to {MOST_THREADS}")
    work = _work(options)
    if not options.timeout > 0:
        raise BadInput(f"--timeout is {options.timeout}; give seconds, more than 0, or inf for no limit")
    from functools import lru_cache

    import torch

    from bough.making import export, labelling
    from bough.zoo import shipped, table

    torch.set_num_threads(1)
    recipe = _recipe(options)
    path = shipped.table_path(options.table)
    at_hand = lru_cache(lambda name, split: images_of(options, name, split))
    listed = table.read_table(path)
    rows, refused = labelling.allowed(listed)
    if refused:
        say(f"note: {refused} of {len(listed)} rows are refused: their images are kept for testing")
    if not rows:
        raise BadInput(f"no row of {options.table} may be labelled; give a table of images that are for training")
    found = export.ready(rows[:: options.every], at_hand)
    if found.absent:
        say(f"note: {found.absent} rows are left out: their images are not at hand")
    if not found.rows:
        raise BadInput(f"none of the images of {options.table} is at hand; say by --data where they are")
    folders = (Path(), path.parent) if options.networks is None else (options.networks,)
    networks = export.check_networks(found.rows, at_hand, (*folders, shipped.NETWORKS))
    make_folder(options.out, resume=options.resume)
    tasks = labelling.plan_tasks(found.rows, at_hand, networks, recipe)
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

    plan = Plan(
        samples=options.samples,
        between=options.between,
        whole=options.whole,
        deep=options.deep,
        growth=options.growth,
        subset=Subset() if options.subset else None,
        seed=options.seed,
        inputs=options.inputs,
        rollouts=options.rollouts,
        largest=options.largest,
    )
    chosen = Options(
        timeout=options.timeout if math.isfinite(options.timeout) else None,
        bounds=options.bounds,
        intermediate=options.intermediate,
        branching=options.rule,
        batch=1 if options.batch is None and not (options.deep or options.rollouts) else options.batch,
        weights=options.weights,
        seed=options.seed,
        device=options.device,
        most_bounds=options.max_bounds,
    )
    if Capability.INPUT_PARTS in chosen.needs:
        raise BadInput(f"'{options.rule}' halves inputs, and labels are about ReLUs; give another --rule")
    return LabelRecipe(plan, chosen)
