"""Labels by a cluster: properties enter, their samples come back to this machine as shards."""

import math
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path

from bough.bench import run
from bough.bench.cluster import Cluster, Parcel
from bough.budget import Deadline
from bough.errors import BoughError
from bough.files.writing import write_bytes
from bough.jobs.base import Job
from bough.learning.dataset import shard_path
from bough.making.labelling import Labelled, LabellingTask, LabelRecipe, Labels, tried

GRACE = 600.0  # seconds after a search's time limit: a label that was begun is not left half done
Shipped = tuple[Labelled | BoughError, bytes | None]


def on_cluster(
    cluster: Cluster, folder: Path, tasks: Sequence[LabellingTask], recipe: LabelRecipe, limit: Deadline
) -> Labels:
    """Label properties on a cluster; with the cluster given, it is the work of `labelling.make`."""
    cuda = run.may_use_cuda(recipe.options)
    seconds = math.inf if recipe.options.timeout is None else recipe.options.timeout

    def parcel(task: LabellingTask) -> Parcel:
        return Parcel(Job(label_shipped, (task, recipe), seconds), (task.network,), cuda)

    for task, ended in cluster.each(tasks, parcel, cuda, limit):
        if ended.failure is not None:
            yield task, BoughError(ended.failure)
            continue
        labelled, shard = ended.answer
        if shard is not None:
            write_bytes(shard_path(folder, task.card.name), shard, parents=True)
        yield task, labelled


def label_shipped(task: LabellingTask, recipe: LabelRecipe, copies: Mapping[str, str]) -> tuple[Shipped, bool]:
    """Label a property on another machine, and take the shard along; the worker can be used again."""
    with tempfile.TemporaryDirectory(prefix="bough-") as folder:
        labelled = tried(Path(folder), replace(task, network=Path(copies[str(task.network)])), recipe)
        shard = shard_path(Path(folder), task.card.name)
        return (labelled, shard.read_bytes() if shard.exists() else None), False
