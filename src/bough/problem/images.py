"""Reading one image: a file enters, pixel values from 0 to 1 leave, [channels, height, width]."""

import io
import math
import zipfile
from itertools import dropwhile
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from bough.errors import PropertyError

LARGEST = 1 << 24  # an image may have at most so many elements
PICTURES = ("PNG", "JPEG", "BMP", "GIF", "PPM", "TIFF", "WEBP")
_NPY = b"\x93NUMPY"  # the first bytes of an `.npy` file
_ZIP = b"PK"  # the first bytes of an `.npz` file


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
        reason = " ".join(str(error).split()) or type(error).__name__
        raise PropertyError(f"{path} cannot be read as an image: {reason}") from error
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


def fitted(pixels: Tensor, shape: tuple[int, ...]) -> Tensor:
    """The image in the shape of a network's input: axes of length 1 in front may be missing or too many.

    Where either is a plain vector, the image goes row by row; any other difference of shape is an error, since the
    numbers would fit and the image would be another one.
    """
    bare, wanted = (list(dropwhile((1).__eq__, s)) for s in (pixels.shape, shape))
    vector = (pixels.ndim == 1 or sum(n != 1 for n in shape) <= 1) and pixels.numel() == math.prod(shape)
    if bare != wanted and not vector:
        sizes = [" x ".join(map(str, s)) or "one number" for s in (pixels.shape, shape)]
        raise PropertyError(f"the image is {sizes[0]}, the network takes {sizes[1]} (channels first)")
    return pixels.reshape(shape)


def as_pixels(image: Tensor | NDArray[Any]) -> Tensor:
    """Pixel values as float64; integers are divided by 255."""
    pixels = torch.as_tensor(np.asarray(image))
    return pixels.to(torch.float64) if pixels.is_floating_point() else pixels.to(torch.float64) / 255


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
            return _array_in(entry.read(16 * LARGEST + 1))


def _array_in(data: bytes) -> NDArray[Any]:
    """The array in the bytes of an `.npy` file; memory is taken for what is there, not for what a header promises."""
    stream = io.BytesIO(data)
    major, _ = np.lib.format.read_magic(stream)
    read = np.lib.format.read_array_header_1_0 if major == 1 else np.lib.format.read_array_header_2_0
    shape, _, dtype = read(stream)
    if math.prod(shape) * max(dtype.itemsize, 1) > len(data):
        raise ValueError(f"an array of shape {shape} does not fit into {len(data)} bytes")
    stream.seek(0)
    return np.asarray(np.lib.format.read_array(stream, allow_pickle=False))


def _picture(path: Path) -> NDArray[Any]:
    from matplotlib.image import imread, pil_to_array
    from PIL import Image

    # By name, since Pillow starts other programs for some formats; and nothing is decoded before its size is known.
    with Image.open(path, formats=PICTURES) as opened:
        if opened.width * opened.height > LARGEST:
            raise PropertyError(f"{path} has {opened.width} x {opened.height} pixels; up to {LARGEST} are supported")
        picture = np.asarray(imread(path, format="png") if opened.format == "PNG" else pil_to_array(opened))
    return picture[None] if picture.ndim == 2 else np.moveaxis(picture[..., :3], -1, 0)
