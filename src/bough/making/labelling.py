"""A table of properties and their images enter; a folder of samples (`learning.dataset`) leaves.

What becomes of a property depends on the recipe and that property only. So processes that share the work write the same
shards, and a run that goes on repeats nothing.
"""

from collections.abc import Callable, Generator, Mapping, Sequence
from contextlib import closing
from dataclasses import asdict, dataclass, replace
from functools import lru_cache, partial
from hashlib import sha256
from pathlib import Path

import torch

from bough.api import load_network, load_problem, solve
from bough.budget import Deadline
from bough.errors import BadInput, BoughError, OutputError
from bough.files.reading import NETWORK_LIMIT, read_bytes
from bough.files.writing import write_bytes
from bough.jobs.base import InProcess, Job, LostWorker
from bough.jobs.pool import Pool
from bough.learning import dataset
from bough.learning.dataset import Manifest, SampleCard, shard_path
from bough.learning.halves import Halves
from bough.learning.labels import Collector, Plan
from bough.learning.rollouts import BRANCHES, Grower, roll_out
from bough.learning.samples import Samples
from bough.making.export import ImagesOf, file_name
from bough.options import AUTO, Options
from bough.plan import search_plan
from bough.problem.property import Property
from bough.report.record import revision
from bough.report.runs import SOLVED, stem
from bough.zoo.table import Row, as_property, use_of

STRONG = ("strong", "strong-subset")
PAPER = "paper-babsr"  # the method of the paper's own table, which is a test set
PAPER_IMAGES = ("cifar10", "test")  # where its images are from: others of this split may be near them, or the same


@dataclass(frozen=True)
class LabelRecipe:
    """All that a shard depends on, but for its property."""

    plan: Plan
    options: Options

    def description(self) -> dict[str, object]:
        """What the manifest says of the recipe, to be recognised by; the device is free to change."""
        named = ("bounds", "branching", "batch", "timeout", "most_bounds", "weights", "intermediate")
        fields = {**asdict(self.plan), **{name: getattr(self.options, name) for name in named}}
        # Fields that came later are told only where they are set, so that older folders can be gone on with.
        later = {name: getattr(Plan, name) for name in ("inputs", "rollouts", "largest")}
        unset = {**later, "weights": None, "intermediate": AUTO}
        return {name: value for name, value in fields.items() if name not in unset or value != unset[name]}


@dataclass(frozen=True, eq=False)
class LabellingTask:
    """One property, and where its network is; `card` is complete but for what the search will tell."""

    network: Path
    property: Property
    card: SampleCard
    solved: bool


@dataclass(frozen=True)
class Labelled:
    """What became of one property."""

    card: SampleCard
    verdict: str  # of its search; `enough`: ended when there were enough samples
    steps: int
    seconds: float

    def __str__(self) -> str:
        card = self.card
        count = f"{card.name}: {card.samples} samples ({card.mode}, {card.part()})"
        return f"{count}, {self.verdict} after {self.steps} steps, {self.seconds:.1f} s"


@dataclass(frozen=True)
class LabelTotals:
    """How many properties, of how many, have their samples by now; `why` says why not all."""

    properties: int
    wanted: int
    samples: int
    why: str | None


def allowed(rows: Sequence[Row]) -> tuple[tuple[Row, ...], int]:
    """The rows that may be labelled, and how many may not: a rule is tested on their images."""
    permitted = tuple(
        row
        for row in rows
        if row.method != PAPER
        and (row.dataset, row.split) != PAPER_IMAGES
        and "test" not in (row.use, use_of(row.dataset, row.split, row.image))
    )
    return permitted, len(rows) - len(permitted)


def plan_tasks(
    rows: Sequence[Row], images_of: ImagesOf, networks: Mapping[str, Path], recipe: LabelRecipe
) -> tuple[LabellingTask, ...]:
    """What there is to do; a property listed twice is one task."""
    commit = revision()
    checksums = {n: sha256(read_bytes(path, NETWORK_LIMIT, BadInput)).hexdigest() for n, path in networks.items()}
    tasks = {}
    for row in rows:
        images = images_of(row.dataset, row.split)
        name = file_name(row).removesuffix(".vnnlib")
        card = SampleCard(
            name=name,
            network=stem(row.network),
            sha256=checksums[row.network],
            label=images.at(row.image)[1],
            **{n: getattr(row, n) for n in ("dataset", "split", "image", "target", "eps", "normalised", "clip")},
            seed=recipe.plan.seed,
            bounder=str(recipe.options.bounds),
            rule=str(recipe.options.branching),
            mode="steps",
            samples=0,
            revision=commit,
        )
        tasks[name] = LabellingTask(networks[row.network], as_property(row, images), card, row.verdict in SOLVED)
    return tuple(tasks.values())


def label(folder: Path, task: LabellingTask, recipe: LabelRecipe) -> Labelled:
    """Label one property, and write its shard if there are samples."""
    problem = load_problem(_network(task.network), task.property)
    options, plan = recipe.options, recipe.plan
    deadline = Deadline.after(options.timeout)
    search = search_plan(options, problem.network)
    card = replace(task.card, bounder=search.settings.bounder)
    if plan.rollouts:  # by the trees that grow below splits
        most = BRANCHES if options.most_bounds is None else options.most_bounds
        session = search.bounder.prepare(problem)
        grower = Grower(session, search.brancher, search.brancher.prepare(problem), search.batch, deadline)
        rolled = roll_out(problem, card.name, plan, grower, most)
        card = _write_shard(folder, replace(card, mode="trees"), rolled.samples)
        return Labelled(card, rolled.ended, rolled.steps, deadline.elapsed())
    halves = Halves(problem, search.bounder, plan.inputs, deadline) if plan.inputs else None
    collector = Collector(problem, plan, card.name, solved=task.solved, halves=halves)
    result = solve(problem, replace(options, branching=collector.rule(options.branching)), [collector])
    if result.reason == "interrupted":  # a search ends with what it knows; a half-made shard is none
        raise KeyboardInterrupt
    rule = str(options.branching) if collector.mode != "whole" else STRONG[plan.subset is not None]
    card = _write_shard(folder, replace(card, rule=rule, mode=collector.mode), collector.collected())
    ended = "enough" if collector.enough and result.verdict.value == "timeout" else result.verdict.value
    return Labelled(card, ended, collector.steps, result.seconds)


def _write_shard(folder: Path, card: SampleCard, samples: Samples | None) -> SampleCard:
    """Write the samples, if there are any; the card says how many."""
    card = replace(card, samples=0 if samples is None else len(samples))
    if samples is not None:
        write_bytes(shard_path(folder, card.name), dataset.encode(card, samples), parents=True)
    return card


# All of them

_network = lru_cache(maxsize=1)(load_network)
Labels = Generator[tuple[LabellingTask, Labelled | BoughError], None, None]
Work = Callable[[Path, Sequence[LabellingTask], LabelRecipe, Deadline], Labels]  # who labels them


def make(
    folder: Path,
    tasks: Sequence[LabellingTask],
    recipe: LabelRecipe,
    say: Callable[[str], None],
    limit: Deadline,
    jobs: int = 1,
    work: Work | None = None,
) -> LabelTotals:
    """Label what has no shard yet, by `jobs` processes unless `work` is given, with one line for each property.

    Ctrl-C, a lost process and the limit end the work with the shards so far.
    """
    with Manifest(folder, recipe.description(), lambda line: say(f"note: {line}")) as manifest:
        for path, checksum in {(task.network, task.card.sha256) for task in tasks}:
            copy = dataset.network_path(folder, checksum)
            if not copy.exists():
                write_bytes(copy, read_bytes(path, NETWORK_LIMIT, BadInput), parents=True)
        left = [task for task in tasks if not _done(folder, task, manifest, say)]
        total = len(tasks)
        failed = 0
        done = total - len(left)
        why = None
        if done:
            say(f"{done} of {total} properties are there already")
        try:
            with closing((work or partial(_on_this_machine, jobs))(folder, left, recipe, limit)) as labels:
                for task, ended in labels:
                    if isinstance(ended, BoughError):
                        failed += 1
                        say(f"{done}/{total}  {task.card.name}: failed, {ended}")
                        continue
                    manifest.add(ended.card, verdict=ended.verdict, steps=ended.steps, seconds=round(ended.seconds, 3))
                    done += 1
                    say(f"{done}/{total}  {ended}")
        except KeyboardInterrupt:
            why = "interrupted"
        except LostWorker as error:
            why = str(error)
        if why is None and done + failed < total:
            why = "the time limit was reached"
        if why is None and failed:
            why = f"{failed} properties failed"
        manifest.settle([task.card.name for task in tasks])
    names = {task.card.name for task in tasks}
    samples = sum(entry["samples"] for name, entry in manifest.by_name.items() if name in names)
    return LabelTotals(done, total, samples, why)


def _done(folder: Path, task: LabellingTask, manifest: Manifest, say: Callable[[str], None]) -> bool:
    """Whether a property has its shard, or is known to give no samples; one that no line tells of gets its line."""
    path = shard_path(folder, task.card.name)
    entry = manifest.by_name.get(task.card.name)
    if entry is not None and entry["sha256"] == task.card.sha256 and not entry["samples"]:
        return True
    if entry is None and not path.exists():
        return False
    try:
        card = dataset.read_card(path)
    except BadInput as error:
        say(f"note: {error}; the property is taken again")
        return False
    told_by_search = ("rule", "bounder", "mode", "samples", "revision")
    if replace(task.card, **{name: getattr(card, name) for name in told_by_search}) != card:
        say(f"note: {path} is of another run; the property is taken again")
        return False
    if entry is None:
        manifest.add(card, verdict=None, steps=None, seconds=None)
    return True


def tried(folder: Path, task: LabellingTask, recipe: LabelRecipe) -> Labelled | BoughError:
    """Label one property: one that cannot be searched is missing, a folder that cannot be written is the end."""
    try:
        return label(folder, task, recipe)
    except OutputError:
        raise
    except BoughError as error:
        return error


def _on_this_machine(
    jobs: int, folder: Path, tasks: Sequence[LabellingTask], recipe: LabelRecipe, limit: Deadline
) -> Labels:
    """Label in this process, or in several others."""
    with InProcess() if jobs == 1 else Pool(jobs, Job(torch.set_num_threads, (1,))) as pool:
        for task, ended in pool.each(tasks, lambda task: Job(tried, (folder, task, recipe)), limit):
            yield task, ended.result()
