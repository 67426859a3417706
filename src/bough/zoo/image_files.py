"""A file enters, its arrays leave, not yet checked against each other: `.npz`, MNIST's IDX, CIFAR-10's binary archive.

Every error names the file, no array takes more memory than its data set, and nothing is unpickled. Files as published
are read after their checksums were found right, so nothing else of them is checked.
"""

import math
import tarfile
import zipfile
from collections.abc import Iterator
from contextlib import contextmanager
from itertools import islice
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from bough.errors import BadInput
from bough.files.reading import read_bytes

Array = NDArray[Any]

_NPY_HEADER = 1 << 16  # more bytes than stand before the values
_BATCHES = {"train": [f"data_batch_{number}" for number in range(1, 6)], "test": ["test_batch"]}


@contextmanager
def reading(path: Path) -> Iterator[None]:
    """Whatever goes wrong inside, a `BadInput` that names the file comes out."""
    try:
        yield
    except BadInput:
        raise
    except Exception as error:  # whatever a broken file makes its reader raise
        why = " ".join(str(error).split()) or type(error).__name__
        raise BadInput(f"{path} cannot be read: {why}; fetch the file again") from error


def read_npz(path: Path, split: str, most: int) -> dict[str, Array]:
    """The split's `images`, `labels` and, where there is one, `index`, none of them of more than `most` values."""
    held = {}
    with reading(path), path.open("rb") as file:
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


def read_idx(path: Path, shape: tuple[int, ...]) -> Array:
    """The bytes of one gzipped IDX file, an array of this shape."""
    # Before the values stand two zeros, 8 for "unsigned bytes", the number of axes, and their lengths.
    header = 4 + 4 * len(shape)
    with reading(path):
        contents = read_bytes(path, header + math.prod(shape), BadInput)
        return np.frombuffer(contents, np.uint8, offset=header).reshape(shape)


def read_cifar(path: Path, split: str, count: int, shape: tuple[int, ...]) -> tuple[Array, Array]:
    """Images and labels from the archive, read in place: records of one label byte and an image, in equal batches."""
    names = [f"cifar-10-batches-bin/{name}.bin" for name in _BATCHES[split]]
    found: dict[str, bytes] = {}
    with reading(path), tarfile.open(path, mode="r:gz") as archive:
        for member in islice((member for member in archive if member.name in names), len(names)):
            contents = archive.extractfile(member)
            found[member.name] = contents.read() if contents else b""
        records = np.frombuffer(b"".join(found[name] for name in names), np.uint8).reshape(count, -1)
        return records[:, 1:].reshape(count, *shape), records[:, 0]
