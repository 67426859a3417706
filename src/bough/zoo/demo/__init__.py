"""The demo's problems: the shipped network, images and property list enter, ready `Property` values leave.

`experiments/demo_network.py` trains `shapes.onnx`, and `experiments/demo_properties.py --draw` draws the images. The
radii in `properties.json` were chosen from what the latter prints.
"""

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

import numpy as np
import torch
from numpy.typing import NDArray

from bough.problem.property import Property, robustness_property

NETWORK, IMAGES, PROPERTIES = map(Path(__file__).with_name, ("shapes.onnx", "images.npz", "properties.json"))
CLASS_NAMES = ("disc", "ring", "square", "frame", "triangle", "plus", "cross", "stripes", "columns", "crescent")

Expected = Literal["verified", "falsified", "timeout"]


@dataclass(frozen=True, eq=False)
class DemoProblem:
    """One robustness question: may a pixel change of at most `eps` make the network see another figure?"""

    name: str
    image: NDArray[np.float32]  # [1, height, width], values in [0, 1]
    label: int
    eps: float
    property: Property
    timeout: float
    expected: Expected


def load() -> tuple[Path, list[DemoProblem]]:
    """The network's file and the problems, in the order to show them."""
    entries = json.loads(PROPERTIES.read_text(encoding="utf-8"))
    return NETWORK, [problem(**entry) for entry in entries]


def problem(
    name: str, label: int, eps: float, targets: list[int] | None, timeout: float, expected: Expected
) -> DemoProblem:
    """One entry of the list as a problem, around the image of its name; no targets means every other class."""
    with np.load(IMAGES, allow_pickle=False) as pixels:
        image = (pixels[name] / 255).astype(np.float32)
    classes = len(CLASS_NAMES)
    others = [k for k in range(classes) if k != label] if targets is None else targets
    clip = (torch.zeros(image.size, dtype=torch.float64), torch.ones(image.size, dtype=torch.float64))
    prop = robustness_property(torch.from_numpy(image), eps, label, others, classes, clip)
    return DemoProblem(name, image, label, eps, prop, timeout, expected)
