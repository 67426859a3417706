"""Tables of properties: a CSV enters, rows leave, and back; a row and its image make the `Property`.

A row names its image by number instead of holding it. The table of the paper's results is read as one, too: its
radii are in the units that the network sees, not clipped, and its labels are those of the data set.
"""

import csv
import hashlib
import io
import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import astuple, dataclass, fields, replace
from pathlib import Path
from types import NoneType
from typing import Any, get_args

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from bough.errors import BadInput
from bough.files.reading import read_csv
from bough.network.graph import Network
from bough.problem.images import as_pixels, fitted
from bough.problem.property import Property, robustness_property
from bough.verdict.result import Verdict
from bough.zoo import datasets
from bough.zoo.datasets import Dataset, Images

TABLE_LIMIT = 1 << 26  # most bytes that are read of a table

DIFFICULTIES = ("easy", "medium", "hard", "timeout")
VALID = (0.0, 1.0)  # values of a pixel, from the least to the largest


def use_of(dataset: str, split: str, image: int) -> str:
    """Whether an image is for training a network that branches or for testing it: the same for ever, whoever asks."""
    return datasets.SPLITS[hashlib.sha256(f"{dataset} {split} {image}".encode()).digest()[0] & 1]


@dataclass(frozen=True)
class Row:
    """One property, and what it cost a reference method to solve it; a cost that is None was not counted."""

    dataset: str
    split: str
    network: str  # as the user gave it: a path, or a name without ending
    image: int  # its number in the whole split
    label: int | None  # None: what the data set says
    target: int
    eps: float
    normalised: bool  # eps is in the units that the network sees; otherwise in pixels from 0 to 1
    clip: bool  # only valid pixels are meant
    method: str
    verdict: str
    branches: int | None
    bounds: int | None
    seconds: float | None
    device: str
    difficulty: str
    use: str  # the half of the images it belongs to: `train` or `test`

    def __post_init__(self) -> None:
        dataset = datasets.known(self.dataset)
        _one_of("split", self.split, datasets.SPLITS)
        size = dataset.counts[self.split]
        classes = len(dataset.classes)
        if not 0 <= self.image < size:
            raise BadInput(f"{self.dataset} has no {self.split} image {self.image}; give a number from 0 to {size - 1}")
        for what, number in (("label", self.label), ("target", self.target)):
            if number is not None and not 0 <= number < classes:
                raise BadInput(f"{what} {number} is no class of {self.dataset}; give a number from 0 to {classes - 1}")
        if self.label == self.target:
            raise BadInput(f"label and target are both {self.label}; give another class as the target")
        if not 0 < self.eps < math.inf:
            raise BadInput(f"eps is {self.eps}; give a finite radius above 0")
        _one_of("verdict", self.verdict, tuple(v.value for v in Verdict))
        _one_of("difficulty", self.difficulty, DIFFICULTIES)
        _one_of("use", self.use, datasets.SPLITS)


COLUMNS: Mapping[str, Any] = {field.name: field.type for field in fields(Row)}


def _one_of(what: str, word: str, words: tuple[str, ...]) -> None:
    if word not in words:
        raise BadInput(f"there is no {what} '{word}'; there are: {', '.join(words)}")


@dataclass(frozen=True, eq=False)
class Surroundings:
    """An image, its label and a target: every radius around it is a property."""

    dataset: Dataset
    pixels: NDArray[np.uint8]  # [channels, height, width]
    label: int
    target: int
    normalised: bool
    clip: bool

    @property
    def inputs(self) -> Tensor:
        """What the network sees, flat float64."""
        return self._seen(as_pixels(self.pixels))

    def within(self, eps: float) -> Property:
        """No image within `eps` has the target's output reach the label's.

        The limits are those of `bough robustness`, to the last bit, where eps is in pixels; otherwise the network's
        inputs and eps are added and subtracted in float64. A file in VNN-LIB holds them exactly.
        """
        low, high = (self._seen(torch.full(self.pixels.shape, v, dtype=torch.float64)) for v in VALID)
        spread = self._each(self.dataset.std).expand(self.pixels.shape).reshape(-1)
        radius = torch.full_like(spread, eps) if self.normalised else eps / spread
        clip = (low, high) if self.clip else None
        robust = robustness_property(self.inputs, radius, self.label, [self.target], len(self.dataset.classes), clip)
        if torch.equal(robust.boxes[0].lower.float(), robust.boxes[0].upper.float()):  # networks compute in float32
            raise BadInput(f"eps {eps:g} leaves nothing but the image itself in float32; give a larger one")
        return robust

    def _seen(self, pixels: Tensor) -> Tensor:
        return ((pixels - self._each(self.dataset.mean)) / self._each(self.dataset.std)).reshape(-1)

    def _each(self, numbers: tuple[float, ...]) -> Tensor:
        return torch.tensor(numbers, dtype=torch.float64).reshape(-1, 1, 1)


def as_property(row: Row, images: Images) -> Property:
    """The property that a row stands for."""
    around = Surroundings(images.dataset, *images.at(row.image), row.target, row.normalised, row.clip)
    place = f"{row.dataset}, {row.split} image {row.image}"
    if row.label not in (None, around.label):
        raise BadInput(f"{place}: the table says label {row.label}, the data set {around.label}; correct the table")
    try:
        replace(row, label=around.label)  # checks the label against the target
        return around.within(row.eps)
    except BadInput as error:
        raise type(error)(f"{place}: {error}") from error


def check_fits(network: Network, dataset: Dataset) -> None:
    """Raise unless the network takes the data set's images and knows its classes."""
    fitted(torch.zeros(dataset.shape), network.input_shape)
    if network.outputs != len(dataset.classes):
        raise BadInput(f"the network has {network.outputs} outputs, {dataset.name} has {len(dataset.classes)} classes")


# Files


def as_text(rows: Sequence[Row]) -> str:
    """The table as CSV."""
    file = io.StringIO(newline="")
    writer = csv.writer(file, lineterminator="\n")
    writer.writerow(COLUMNS)
    for row in rows:
        writer.writerow(str(value).lower() if isinstance(value, bool) else value for value in astuple(row))
    return file.getvalue()


def read_table(path: Path) -> tuple[Row, ...]:
    """The rows of a table that bough wrote, or of the paper's results."""
    lines = read_csv(path, TABLE_LIMIT, "a table of properties as CSV", "correct it")
    _, header = next(lines, ("", []))
    read = _reader(header, path)
    rows = []
    for place, cells in lines:
        if not cells:
            continue
        if len(cells) != len(header):
            raise BadInput(f"{place}: {len(cells)} cells under {len(header)} columns; give one for each")
        try:
            rows.append(read(dict(zip(header, cells, strict=True))))
        except BadInput as error:
            raise type(error)(f"{place}: {error}") from error
    if not rows:
        raise BadInput(f"{path} lists no property; give a table with one line for each")
    return tuple(rows)


def _reader(header: list[str], path: Path) -> Callable[[Mapping[str, str]], Row]:
    if tuple(header) == PAPER_COLUMNS:
        return _paper_row
    for wrong, word in ((set(header) - set(COLUMNS), "unknown"), (set(COLUMNS) - set(header), "missing")):
        if wrong:
            advice = f"a table of properties has: {', '.join(COLUMNS)}"
            raise BadInput(f"{path}, line 1: {word} column {min(wrong)[:40]!r}; {advice}")
    if len(header) != len(COLUMNS):
        raise BadInput(f"{path}, line 1: a column is named twice; remove one")
    return lambda cells: Row(**{name: _value(name, cells[name], hint) for name, hint in COLUMNS.items()})


def parsed(text: str, hint: Any, none: str) -> Any:
    """The text as one of a field's types, `none` for None; ValueError where it is none of them."""
    kinds = get_args(hint) or (hint,)
    if NoneType in kinds and text == none:
        return None
    if bool in kinds:
        return bool(("false", "true").index(text))
    return next((kind for kind in (int, float) if kind in kinds), str)(text)


def _value(name: str, text: str, hint: Any) -> Any:
    try:
        return parsed(text, hint, none="")
    except ValueError:
        raise BadInput(f"{text[:40]!r} is no {name}; correct the cell") from None


# The paper's results

PAPER_COLUMNS = (
    *("network", "source_file", "image", "target", "eps", "babsr_status", "babsr_branches", "babsr_time"),
    *("mip_status", "mip_time", "gnn_status", "gnn_branches", "gnn_time"),
    *("online_status", "online_branches", "online_time"),
)
PAPER_EDGES = (800.0, 2400.0)  # seconds of BaBSR between easy, medium and hard, as in the paper's Table 1


def _paper_row(cells: Mapping[str, str]) -> Row:
    image, seconds = _value("image", cells["image"], int), _value("babsr_time", cells["babsr_time"], float)
    return Row(
        dataset="cifar10",
        split="test",
        network=cells["network"],
        image=image,
        label=None,
        target=_value("target", cells["target"], int),
        eps=_value("eps", cells["eps"], float),
        normalised=True,
        clip=False,
        method="paper-babsr",
        verdict=cells["babsr_status"],
        branches=_value("babsr_branches", cells["babsr_branches"], int | None),
        bounds=None,
        seconds=seconds,
        device="cpu",
        difficulty=DIFFICULTIES[sum(seconds >= edge for edge in PAPER_EDGES)],
        use=use_of("cifar10", "test", image),
    )
