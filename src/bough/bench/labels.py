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
from bough.learning.dataset import shard_path
from bough.making.labelling import Labelled, LabellingTask, LabelRecipe, Labels, Work, tried

GRACE = 600.0  # seconds after a search's time limit: a label that was begun is not left half done
Shipped = tuple[Labelled | BoughError, bytes | None]


def on_cluster(cluster: Cluster) -> Work:
    """The way to label properties on a cluster, for `labelling.make`."""

    def work(folder: Path, tasks: Sequence[LabellingTask], recipe: LabelRecipe, limit: Deadline, jobs: int) -> Labels:
        del jobs  # the cluster knows
        cuda = run.may_use_cuda(recipe.options)

        def parcel(task: LabellingTask) -> Parcel:
            seconds = math.inf if recipe.options.timeout is None else recipe.options.timeout
            return Parcel(label_shipped, (task, recipe), (task.network,), seconds, cuda)

        for task, ended in cluster.each(tasks, parcel, (run.prepare_shipped, (cuda,)), limit, lambda _: None):
            if ended.failure is not None:
                yield task, BoughError(ended.failure)
                continue
            labelled, shard = ended.answer
            if shard is not None:
                write_bytes(shard_path(folder, task.card.name), shard, parents=True)
            yield task, labelled

    return work


def label_shipped(task: LabellingTask, recipe: LabelRecipe, copies: Mapping[str, str]) -> tuple[Shipped, bool]:
    """Label a property on another machine, and take the shard along; the worker can be used again."""
    with tempfile.TemporaryDirectory(prefix="bough-") as folder:
        labelled = tried(Path(folder), replace(task, network=Path(copies[str(task.network)])), recipe)
        shard = shard_path(Path(folder), task.card.name)
        return (labelled, shard.read_bytes() if shard.exists() else None), False
