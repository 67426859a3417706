"""The demo's problems: the shipped network and property list enter, ready `Property` values leave.

`shapes.onnx` is trained by `experiments/demo_network.py`; the radii in `properties.json` were chosen from what
`experiments/demo_properties.py` prints. Images are drawn again from class and seed, so no image is stored.
"""

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

import torch

from bough.problem.property import Property, robustness_property
from bough.zoo import shapes

NETWORK = Path(__file__).with_name("shapes.onnx")
PROPERTIES = Path(__file__).with_name("properties.json")

Expected = Literal["verified", "falsified", "timeout"]


@dataclass(frozen=True, eq=False)
class DemoProblem:
    """One robustness question: may a pixel change of at most `eps` make the network see another figure?"""

    name: str
    image: shapes.Image  # [1, SIDE, SIDE], values in [0, 1]
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
    name: str, label: int, seed: int, eps: float, targets: list[int] | None, timeout: float, expected: Expected
) -> DemoProblem:
    """One entry of the list as a problem; no targets means every other class."""
    image = shapes.draw(seed, label)
    classes = len(shapes.CLASS_NAMES)
    others = [k for k in range(classes) if k != label] if targets is None else targets
    centre = torch.from_numpy(image)
    clip = (torch.zeros(image.size, dtype=torch.float64), torch.ones(image.size, dtype=torch.float64))
    asked = robustness_property(centre, eps, label, others, classes, clip)
    return DemoProblem(name, image, label, eps, asked, timeout, expected)
