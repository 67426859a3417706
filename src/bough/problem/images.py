"""Reading one image: a file enters, pixel values from 0 to 1 leave, [channels, height, width]."""

from pathlib import Path

import numpy as np
import torch
from torch import Tensor

from bough.errors import PropertyError

LARGEST = 1 << 24  # elements


def read_image(path: Path) -> Tensor:
    """An `.npy` or `.npz` array (the first one) as it is, or a picture file with its channels first; integers are divided by 255."""
    if not path.is_file():
        raise PropertyError(f"there is no image {path}")
    try:
        pixels = _array(path) if path.suffix in (".npy", ".npz") else _picture(path)
    except PropertyError:
        raise
    except Exception as error:  # noqa: BLE001 - whatever a broken file makes its reader raise
        raise PropertyError(f"{path} cannot be read as an image: {error}") from error
    if pixels.size == 0 or pixels.size > LARGEST:
        raise PropertyError(f"{path} holds {pixels.size} values; an image has between 1 and {LARGEST}")
    if np.issubdtype(pixels.dtype, np.integer):
        pixels = pixels.astype(np.float64) / 255
    if not np.issubdtype(pixels.dtype, np.floating) or not np.isfinite(pixels).all():
        raise PropertyError(f"{path} holds values that are not finite numbers")
    return torch.from_numpy(pixels.astype(np.float64))


def _array(path: Path) -> np.ndarray:  # type: ignore[type-arg]
    loaded = np.load(path, allow_pickle=False)
    if isinstance(loaded, np.ndarray):
        return loaded
    with loaded:
        return np.asarray(loaded[loaded.files[0]])


def _picture(path: Path) -> np.ndarray:  # type: ignore[type-arg]
    from matplotlib.image import imread

    picture = np.asarray(imread(path))
    return picture[None] if picture.ndim == 2 else np.moveaxis(picture[..., :3], -1, 0)
