"""MNIST and CIFAR-10: a name enters, images leave as bytes with their labels and numbers.

They are read from local files: `NAME.npz`, the files as published (MNIST's IDX, CIFAR-10's binary archive), or
`NAME_part.npz`, which holds only some of the images; where none is there, the published files are downloaded into the
cache. Every error names the file, no array takes more memory than its data set, and nothing is unpickled. Files as
published are read after their checksums were found right, so nothing else of them is checked.
"""

import math
import os
import tarfile
import zipfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from bough.errors import BadInput
from bough.files.reading import is_there, read_bytes
from bough.zoo.download import Progress, RemoteFile, fetch

Array = NDArray[Any]
SPLITS = ("train", "test")

_NPY_HEADER = 1 << 16  # more bytes than stand before the values
_BATCHES = {"train": [f"data_batch_{number}" for number in range(1, 6)], "test": ["test_batch"]}
_PLACES = ("", "images", "data/images")  # folders below a data folder that are searched for files, in this order


@dataclass(frozen=True)
class Dataset:
    """What is known of a data set without its images; networks see (pixel/255 - mean)/std, channel by channel."""

    name: str
    shape: tuple[int, int, int]
    classes: tuple[str, ...]
    mean: tuple[float, ...]
    std: tuple[float, ...]
    counts: Mapping[str, int]  # of images in each whole split
    files: tuple[RemoteFile, ...]
    mirrors: tuple[str, ...]

    def published(self, split: str) -> tuple[RemoteFile, ...]:
        """The published files that hold the split."""
        return tuple(file for file in self.files if split in file.splits)

    def normalise(self, pixels: NDArray[np.uint8] | Tensor) -> Tensor:
        """Pixels from 0 to 255 [..., C, H, W] as the networks see them, in float32 as in training."""
        # A copy of an array: sharing the memory of one that is read-only makes PyTorch warn.
        values = pixels if isinstance(pixels, Tensor) else torch.tensor(pixels)
        if tuple(values.shape[-3:]) != self.shape or values.is_floating_point():
            raise BadInput(
                f"{self.name} images are integers from 0 to 255 of shape {self.shape}, not {values.dtype} of shape "
                f"{tuple(values.shape)}; give the pixels as they were loaded"
            )
        values = values.to(torch.float32) / 255
        return (values - values.new_tensor(self.mean)[:, None, None]) / values.new_tensor(self.std)[:, None, None]


_MNIST = {  # of each split images, then labels
    "train": (
        ("train-images-idx3-ubyte.gz", 9_912_422, "440fcabf73cc546fa21475e81ea370265605f56be210a4024d2ca8f203523609"),
        ("train-labels-idx1-ubyte.gz", 28_881, "3552534a0a558bbed6aed32b30c495cca23d567ec52cac8be1a0730e8010255c"),
    ),
    "test": (
        ("t10k-images-idx3-ubyte.gz", 1_648_877, "8d422c7b0a1c1c79245a5bcf07fe86e33eeafee792b84584aec276f5a2dbc4e6"),
        ("t10k-labels-idx1-ubyte.gz", 4_542, "f7ae60f92e00ec6debd23a6088c31dbd2371eca3ffa0defaefb259924204aec6"),
    ),
}
_CIFAR10 = ("cifar-10-binary.tar.gz", 170_052_171, "c4a38c50a1bc5f3a1c5537f2155ab9d68f9f25eb1ed8d9ddda3db29a59bca1dd")
DATASETS: Mapping[str, Dataset] = {
    "mnist": Dataset(
        name="mnist",
        shape=(1, 28, 28),
        classes=tuple("0123456789"),
        mean=(0.0,),
        std=(1.0,),
        counts={"train": 60_000, "test": 10_000},
        files=tuple(RemoteFile(*file, (split,)) for split, files in _MNIST.items() for file in files),
        mirrors=(
            "https://ossci-datasets.s3.amazonaws.com/mnist/",
            "https://storage.googleapis.com/cvdf-datasets/mnist/",
        ),
    ),
    "cifar10": Dataset(
        name="cifar10",
        shape=(3, 32, 32),
        classes=("airplane", "automobile", "bird", "cat", "deer", "dog", "frog", "horse", "ship", "truck"),
        mean=(0.485, 0.456, 0.406),
        std=(0.225, 0.225, 0.225),
        counts={"train": 50_000, "test": 10_000},
        files=(RemoteFile(*_CIFAR10),),
        mirrors=("https://www.cs.toronto.edu/~kriz/",),
    ),
}


def known(name: str) -> Dataset:
    """The data set of this name."""
    if name not in DATASETS:
        raise BadInput(f"there is no data set {name!r}; give one of {', '.join(sorted(DATASETS))}")
    return DATASETS[name]


@dataclass(frozen=True, eq=False)
class Images:
    """Images of one split, all or a part: `index` holds their numbers in the whole split."""

    dataset: Dataset
    split: str
    pixels: NDArray[np.uint8]
    labels: NDArray[np.int64]
    index: NDArray[np.int64]

    def __len__(self) -> int:
        return len(self.labels)

    def at(self, number: int) -> tuple[NDArray[np.uint8], int]:
        """The image [C, H, W] of this number in the whole split, and its label."""
        name = self.dataset.name
        count = self.dataset.counts[self.split]
        if not 0 <= number < count:
            raise BadInput(f"{name} has no {self.split} image {number}; its {count:,} are numbered 0 to {count - 1}")
        (place,) = np.nonzero(self.index == number)
        if not len(place):
            files = " and ".join(file.name for file in self.dataset.published(self.split))
            raise BadInput(
                f"{self.split} image {number} of {name} is not among the {len(self):,} of {count:,} images in the "
                f"local part; put {files} from {self.dataset.mirrors[0]} beside it to have all"
            )
        return self.pixels[place[0]], int(self.labels[place[0]])


def load(
    name: str, split: str, folder: Path | None = None, *, download: bool = True, progress: Progress | None = None
) -> Images:
    """Images of the split `train` or `test`.

    They are those of the folder, if one is given; else those of the cache, into which they are downloaded. The cache is
    the folder that BOUGH_DATA names, else `bough` among the user's cached files.
    """
    dataset = known(name)
    if split not in SPLITS:
        raise BadInput(f"there is no split {split!r} of {name}; give one of {', '.join(SPLITS)}")
    if folder is not None and not (is_there(folder) and folder.is_dir()):
        raise BadInput(f"{folder} is no folder; give the one with {name}, or none")
    root = folder or _cache()
    wanted = {file: _first(file.name, root) for file in dataset.published(split)}
    absent = [file.name for file, path in wanted.items() if path is None]
    # All of the split, in one file or as published, goes before a part of it.
    own = _first(f"{name}.npz", root) or (_first(f"{name}_part.npz", root) if absent else None)
    if own is not None:
        held = _read_npz(own, split, dataset.counts[split] * math.prod(dataset.shape))
        return _checked(dataset, split, own, held["images"], held["labels"], held.get("index"))
    if absent and (folder is not None or not download):
        files = " and ".join(absent)
        otherwise = "allow the download" if folder is None else "name no folder"
        raise BadInput(f"{name} is not in {root}; put {name}.npz or {files} there, or {otherwise}")
    paths = [path or fetch(file, dataset.mirrors, root, progress) for file, path in wanted.items()]
    return _read_published(dataset, split, paths)


def _cache() -> Path:
    if folder := os.environ.get("BOUGH_DATA"):
        return Path(folder)
    base = Path(os.environ.get("XDG_CACHE_HOME", ""))
    try:
        return (base if base.is_absolute() else Path.home() / ".cache") / "bough"
    except RuntimeError:  # a user without a home, as in some containers
        raise BadInput("this user has no home folder to keep images in; set BOUGH_DATA to a folder") from None


def _first(name: str, root: Path) -> Path | None:
    return next((path for place in _PLACES if is_there(path := root / place / name)), None)


@contextmanager
def _reading(path: Path) -> Iterator[None]:
    """Whatever goes wrong inside, a `BadInput` that names the file comes out."""
    try:
        yield
    except BadInput:
        raise
    except Exception as error:  # whatever a broken file makes its reader raise
        why = " ".join(str(error).split()) or type(error).__name__
        raise BadInput(f"{path} cannot be read: {why}; fetch the file again") from error


def _read_npz(path: Path, split: str, most: int) -> dict[str, Array]:
    """The split's `images`, `labels` and, where there is one, `index`, none of them of more than `most` values."""
    held = {}
    with _reading(path), path.open("rb") as file:
        if not zipfile.is_zipfile(file):
            raise BadInput(f"{path} is no .npz file, or not all of one; fetch the file again")
        file.seek(0)
        with np.load(file, allow_pickle=False) as archive:
            for what in ("images", "labels", "index"):
                name = f"{split}_{what}"
                if name in archive:
                    if archive.zip.getinfo(f"{name}.npy").file_size > 8 * most + _NPY_HEADER:
                        raise BadInput(f"{path} has more values in {name} than the data set; fetch the file again")
                    # An entry that is no array comes as bytes, of which `asarray` makes one that fits nothing.
                    held[what] = np.asarray(archive[name])
                elif what != "index":
                    raise BadInput(f"{path} has no array {name}; it needs {split}_images and {split}_labels")
    return held


def _read_idx(path: Path, shape: tuple[int, ...]) -> Array:
    """The bytes of one gzipped IDX file, an array of this shape."""
    # Before the values stand two zeros, 8 for "unsigned bytes", the number of axes, and their lengths.
    header = 4 + 4 * len(shape)
    with _reading(path):
        contents = read_bytes(path, header + math.prod(shape), BadInput)
        return np.frombuffer(contents, np.uint8, offset=header).reshape(shape)


def _read_cifar(path: Path, split: str, count: int, shape: tuple[int, ...]) -> tuple[Array, Array]:
    """Images and labels from the archive, read in place: records of one label byte and an image, in equal batches."""
    names = [f"cifar-10-batches-bin/{name}.bin" for name in _BATCHES[split]]
    batches: dict[str, bytes] = {}
    with _reading(path), tarfile.open(path, mode="r:gz") as archive:
        for member in islice((member for member in archive if member.name in names), len(names)):
            contents = archive.extractfile(member)
            batches[member.name] = contents.read() if contents else b""
        records = np.frombuffer(b"".join(batches[name] for name in names), np.uint8).reshape(count, -1)
        return records[:, 1:].reshape(count, *shape), records[:, 0]


def _read_published(dataset: Dataset, split: str, paths: list[Path]) -> Images:
    for path, file in zip(paths, dataset.published(split), strict=True):
        with _reading(path):
            if not file.is_at(path):
                raise BadInput(f"{path} is not the published file, by its checksum; delete it to have it downloaded")
    count = dataset.counts[split]
    if len(paths) == 1:  # CIFAR-10 is one archive, MNIST has its images and labels apart
        return _checked(dataset, split, paths[0], *_read_cifar(paths[0], split, count, dataset.shape))
    pixels = _read_idx(paths[0], (count, *dataset.shape[1:]))
    return _checked(dataset, split, paths[0], pixels, _read_idx(paths[1], (count,)))


def _checked(
    dataset: Dataset, split: str, path: Path, pixels: Array, labels: Array, index: Array | None = None
) -> Images:
    """The arrays, once they fit the data set and each other; `path` is where they are from."""
    n = len(pixels) if pixels.ndim else 0
    count = dataset.counts[split]
    shape = dataset.shape
    flat = pixels.shape[1:] == shape[1:] and shape[0] == 1  # grey images may lack the axis of the only channel
    if pixels.dtype != np.uint8 or not n or not (flat or pixels.shape[1:] == shape):
        raise BadInput(f"{path} has {split} images of {pixels.dtype} {pixels.shape}; give uint8, (number, *{shape})")
    if index is None and n != count:
        raise BadInput(f"{path} has {n:,} of {count:,} {split} images; say by {split}_index which ones they are")
    index = np.arange(n) if index is None else index
    for what, values, limit in (("labels", labels, len(dataset.classes)), ("index", index, count)):
        if values.shape != (n,) or not np.issubdtype(values.dtype, np.integer):
            raise BadInput(f"{path} has {split}_{what} of {values.dtype} {values.shape}; give {n} integers")
        if values.min() < 0 or values.max() >= limit:
            raise BadInput(f"{path} has {split}_{what} from {values.min()} to {values.max()}; give 0 to {limit - 1}")
    if len(np.unique(index)) != n:
        raise BadInput(f"{path} has the same number twice in {split}_index; give every image its own")
    # Writable whatever they were read from, so that PyTorch can share them.
    pixels = np.require(pixels.reshape(n, *shape), requirements=("C", "W"))
    return Images(dataset, split, pixels, labels.astype(np.int64), index.astype(np.int64))
