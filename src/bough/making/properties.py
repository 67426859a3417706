"""A network and a data set enter, rows of tuned difficulty leave; what was tried lies in a log, by which a run goes on.

Images are taken in a shuffled order that only the seed decides. Each that the network classifies rightly is asked for
one of the difficulties that still have room, in turn, and what becomes of it depends on the seed, the image and the
difficulty asked for, and on nothing else. So the log is a memory of pure answers: replaying it gives the same rows, and
so do several processes, which work ahead on what will probably be asked next.
"""

import hashlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from functools import lru_cache, partial
from itertools import islice
from pathlib import Path
from typing import Any, final

import torch

from bough.api import LoadedNetwork
from bough.budget import Deadline
from bough.errors import BadInput
from bough.files.log import AbstractLog, LogEntry
from bough.jobs.base import AbstractPool, InProcess, Job, LostWorker
from bough.jobs.pool import Pool
from bough.making.trial import Listener, Trial, TrialRecipe, try_image, try_image_of
from bough.making.tuning import ANY, Probe, ProbeOutcome, choose
from bough.zoo.datasets import Images
from bough.zoo.table import Row, Surroundings, use_of

AHEAD = 2  # images per process to look ahead, so that a slow one does not leave the others without work


@dataclass(frozen=True, eq=False)
class Wish:
    """Which images to take, by number and use, and how many rows are wanted of each difficulty, or of any."""

    images: Images
    within: range
    wanted: Mapping[str, int]
    use: str | None = None  # as `use_of` says: only images for training a rule that branches, or only for testing it

    def __post_init__(self) -> None:
        dataset, split = self.images.dataset, self.images.split
        first = self.within.start
        end = self.within.stop
        size = dataset.counts[split]
        if not 0 <= first < end <= size:
            raise BadInput(f"--images is {first}:{end}; {dataset.name} has {split} images from 0 up to {size}")
        for name, count in self.wanted.items():
            if count < 0:
                raise BadInput(f"{count} properties are wanted ({name}); give a whole number, 0 or more")
        if not any(self.wanted.values()):
            raise BadInput("no property is wanted; give --count, or --easy, --medium, --hard and --timeout-count")

    def order(self, seed: int) -> list[int]:
        """The images' numbers, shuffled."""
        images = self.images
        numbers = shuffled(images, seed, self.within)
        return [n for n in numbers if self.use in (None, use_of(images.dataset.name, images.split, n))]


@dataclass(frozen=True)
class PropertyRows:
    """The rows in the order of their images, and whether all that was wanted is there; `why` says why not."""

    rows: tuple[Row, ...]
    wrong: int  # images that the network classifies wrongly
    unsuitable: int  # images that were tried and gave nothing there was room for
    why: str | None


def shuffled(images: Images, seed: int, within: range) -> list[int]:
    """The numbers of the images at hand, in an order that does not depend on which these are."""
    return sorted((n for n in images.index.tolist() if n in within), key=lambda n: (_hash(seed, n, "order"), n))


def drawn_target(seed: int, image: int, label: int, classes: int) -> int:
    """A random class other than the label."""
    return (label + 1 + _hash(seed, image, "target") % (classes - 1)) % classes


def _hash(seed: int, image: int, word: str) -> int:
    return int.from_bytes(hashlib.sha256(f"{seed} {image} {word}".encode()).digest()[:8], "big")


class Choice:
    """What is wanted of each difficulty, and what is there so far; images come in order."""

    def __init__(self, recipe: TrialRecipe, wanted: Mapping[str, int]) -> None:
        self.rows: list[Row] = []
        self._recipe = recipe
        self._wanted = {name: count for name, count in wanted.items() if count > 0}
        self._room = dict(self._wanted)
        self._taken = 0  # images

    @property
    def complete(self) -> bool:
        """Whether nothing more is wanted."""
        return not any(self._room.values())

    def asked(self, ahead: int = 0) -> str:
        """What the next image is asked for, or one further ahead if none of those between fills anything up."""
        names = [name for name, room in self._room.items() if room]
        return names[(self._taken + ahead) % len(names)]

    def take(self, tried: Trial, label: int) -> Row | None:
        """The row that an image gives, if there is room for it."""
        recipe = self._recipe
        self._taken += 1
        room = [name for name, left in self._room.items() if left]
        chosen = choose(tried.probes + tried.edges, recipe.scale, tried.asked, room)
        if chosen is None:
            return None
        probe, difficulty = chosen
        self._room[ANY if tried.asked == ANY else difficulty] -= 1
        of_recipe = ("dataset", "split", "network", "normalised", "clip", "method")
        row = Row(
            **{name: getattr(recipe, name) for name in of_recipe},
            **{name: getattr(tried, name) for name in ("image", "target", "device")},
            **asdict(probe.outcome),
            label=label,
            eps=probe.eps,
            difficulty=difficulty,
            use=use_of(recipe.dataset, recipe.split, tried.image),
        )
        self.rows.append(row)
        return row

    def __str__(self) -> str:
        return ", ".join(f"{name} {count - self._room[name]}/{count}" for name, count in self._wanted.items())


@final
class ProbeLog(AbstractLog):
    """The answers so far, in memory and in the file; the line of an image tells all that was tried around it."""

    schema, headed, run, line = "bough.probes/2", True, "run", "line of ours"
    again, advice = "that image is tried again", "give a folder that bough properties wrote"

    def __init__(self, path: Path, recipe: Mapping[str, object], note: Callable[[str], None]) -> None:
        super().__init__(path, note, recipe=recipe)
        self._skipped = {entry["image"] for entry in self.entries if "skipped" in entry}
        trials = [_trial(entry) for entry in self.entries if "skipped" not in entry]
        self.done = {(trial.image, trial.asked): trial for trial in trials}

    @staticmethod
    def check(entry: LogEntry) -> None:
        """Raise unless an image was tried or skipped."""
        try:
            trial = None if "skipped" in entry else _trial(entry)
            hash(entry["image"] if trial is None else (trial.image, trial.asked))
        except (KeyError, TypeError):
            raise BadInput("not an image that was tried; remove the line") from None

    def add(self, tried: Trial) -> None:
        """Write down what was tried around an image."""
        self.done[tried.image, tried.asked] = tried
        self.append(asdict(tried))

    def skip(self, image: int, why: str) -> None:
        """Write down, once, that an image was not tried."""
        if image not in self._skipped:
            self._skipped.add(image)
            self.append({"image": image, "skipped": why})


def _trial(entry: LogEntry) -> Trial:
    return Trial(**{**entry, "probes": _probes(entry["probes"]), "edges": _probes(entry["edges"])})


def _probes(entries: Any) -> tuple[Probe, ...]:
    return tuple(Probe(p["eps"], ProbeOutcome(**p["outcome"])) for p in entries)


@dataclass(eq=False)
class PropertyMaker:
    """Makes rows as wished for, by this process or several others; says a line per image; `listener` hears of more."""

    recipe: TrialRecipe
    wish: Wish
    loaded: LoadedNetwork
    jobs: int
    log: ProbeLog
    say: Callable[[str], None]
    listener: Listener
    deadline: Deadline

    def __post_init__(self) -> None:
        self._choice = Choice(self.recipe, self.wish.wanted)
        self._wrong = self._unsuitable = 0
        self._around = lru_cache(maxsize=256)(self._surroundings)
        self._class = lru_cache(maxsize=4096)(self._seen_class)
        self._pool: AbstractPool = InProcess()
        self._attempt: Callable[..., Trial] = partial(try_image, self.loaded, self.recipe, self.listener)
        if self.jobs > 1:
            self._pool = Pool(self.jobs, Job(torch.set_num_threads, (1,)))
            self._attempt = partial(try_image_of, self.recipe)

    def make(self) -> PropertyRows:
        """The rows; Ctrl-C, a lost process and the deadline end the work with the rows so far."""
        order = self.wish.order(self.recipe.seed)
        if not order:
            images = f"{self.wish.within.start}:{self.wish.within.stop} of {self.recipe.dataset}"
            raise BadInput(f"no image {images} ({self.recipe.split}) is at hand; ask for others by --images or --split")
        with self._pool:
            try:
                why = self._take_all(order)
            except KeyboardInterrupt:
                why = "interrupted"
            except LostWorker as error:
                why = str(error)
        return PropertyRows(tuple(self._choice.rows), self._wrong, self._unsuitable, why)

    def _take_all(self, order: Sequence[int]) -> str | None:
        """Take images until all that is wanted is there; otherwise, why it is not."""
        for place, image in enumerate(order):
            if self._choice.complete:
                return None
            if not self._right(image):
                self._wrong += 1
                why = f"the network gives it class {self._class(image)}, its label is {self._around(image).label}"
                self.log.skip(image, why)
                self.say(f"image {image}: skipped, {why}")
                continue
            if not self._answered(order[place:]):
                return "the time limit was reached"
            tried = self.log.done[image, self._choice.asked()]
            self._tell(tried, self._choice.take(tried, self._around(image).label))
        return None if self._choice.complete else f"all {len(order)} images are used up"

    def _answered(self, left: Sequence[int]) -> bool:
        """Work until the first image left is answered; False when there is no time for it."""
        key = left[0], self._choice.asked()
        while key not in self.log.done:
            if not self.deadline.passed():
                for image, difficulty in self._ahead(left):
                    self._pool.start((image, difficulty), Job(self._attempt, (image, self._around(image), difficulty)))
            if not self._pool.at_work:
                return False
            while not (ended := self._pool.wait(1.0)):
                self.listener(f"at work on images {', '.join(str(image) for image, _ in self._pool.at_work)}")
            for _, end in ended:
                self.log.add(end.result())
        return True

    def _ahead(self, left: Sequence[int]) -> Iterator[tuple[int, str]]:
        """What is to be started now: the next images, as far as processes are free for them."""
        pool = self._pool
        coming = islice(filter(self._right, left), 1 if pool.jobs == 1 else AHEAD * pool.jobs)
        for ahead, image in enumerate(coming):
            if not pool.free:
                return
            key = image, self._choice.asked(ahead)
            if key not in self.log.done and key not in pool.at_work:
                yield key

    def _right(self, image: int) -> bool:
        return self._class(image) == self._around(image).label

    def _seen_class(self, image: int) -> int:
        return int(self.loaded.reference.run(self._around(image).inputs.numpy()).argmax())

    def _surroundings(self, image: int) -> Surroundings:
        recipe = self.recipe
        dataset = self.wish.images.dataset
        pixels, label = self.wish.images.at(image)
        target = drawn_target(recipe.seed, image, label, len(dataset.classes))
        return Surroundings(dataset, pixels, label, target, recipe.normalised, recipe.clip)

    def _tell(self, tried: Trial, row: Row | None) -> None:
        count = f"{len(tried.probes)} probe{'' if len(tried.probes) == 1 else 's'}"
        if row is None:
            self._unsuitable += 1
            cost_of = self.recipe.scale.cost
            ends = ", ".join(f"{p.eps:g}: {p.outcome.verdict} {cost_of(p.outcome)}" for p in tried.probes + tried.edges)
            words = f"nothing {tried.asked} in {count} ({ends})"
        else:
            cost = f"{row.bounds} bounds, {row.seconds:.2f} s"
            words = f"{row.difficulty}, {row.verdict} at eps {row.eps:g} ({cost}, {count})"
        self.say(f"image {tried.image}: {words}; {self._choice}")
