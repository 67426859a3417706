"""Reading one image: a file enters, pixel values from 0 to 1 leave, [channels, height, width]."""

import zipfile
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from bough.errors import PropertyError

LARGEST = 1 << 24  # elements
_NPY, _ZIP = b"\x93NUMPY", b"PK"


def read_image(path: Path) -> Tensor:
    """An `.npy` or `.npz` array (the first one) as it is, or a picture with its channels first; integers over 255."""
    if path.is_dir():
        raise PropertyError(f"{path} is a folder; give the image in it")
    if not path.is_file():
        raise PropertyError(f"there is no image {path}")
    try:
        pixels = _array(path) if path.suffix.lower() in (".npy", ".npz") else _picture(path)
    except PropertyError:
        raise
    except Exception as error:  # whatever a broken file makes its reader raise
        why = " ".join(str(error).split()) or type(error).__name__
        raise PropertyError(f"{path} cannot be read as an image: {why}") from error
    if pixels.size == 0 or pixels.size > LARGEST:
        raise PropertyError(f"{path} holds {pixels.size} values; an image has between 1 and {LARGEST}")
    if np.issubdtype(pixels.dtype, np.integer):
        pixels = pixels.astype(np.float64) / 255
    if not np.issubdtype(pixels.dtype, np.floating):
        raise PropertyError(f"{path} holds {pixels.dtype} values; give integers from 0 to 255 or decimals from 0 to 1")
    pixels = pixels.astype(np.float64)
    if not np.isfinite(pixels).all():
        raise PropertyError(f"{path} holds values that are not finite numbers")
    return torch.from_numpy(pixels)


def _array(path: Path) -> NDArray[Any]:
    with path.open("rb") as file:
        start = file.read(len(_NPY))
    if start == _NPY:
        # Mapped, not read: a header may promise more than there is memory for.
        return np.asarray(np.load(path, mmap_mode="r", allow_pickle=False))
    if not start.startswith(_ZIP):
        raise PropertyError(f"{path} is no NumPy array; write it with numpy.save")
    with zipfile.ZipFile(path) as archive:
        entries = archive.infolist()
        if not entries:
            raise PropertyError(f"{path} holds no array")
        if entries[0].file_size > 16 * LARGEST:
            raise PropertyError(f"{path} holds {entries[0].file_size} bytes; an image has at most {LARGEST} values")
        with archive.open(entries[0]) as entry:
            return np.asarray(np.lib.format.read_array(entry, allow_pickle=False))


def _picture(path: Path) -> NDArray[Any]:
    from matplotlib.image import imread

    picture = np.asarray(imread(path))
    return picture[None] if picture.ndim == 2 else np.moveaxis(picture[..., :3], -1, 0)
