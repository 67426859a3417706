"""Images of two by two pixels, and a small network that sees classes in them: for commands over tables."""

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from tests.support import generator, normal, sequential, values_at

from bough.errors import BadInput
from bough.network.graph import Network
from bough.zoo import datasets
from bough.zoo.datasets import Images

SIZE = 40
DATASET = replace(
    datasets.DATASETS["mnist"],
    name="dots",
    shape=(1, 2, 2),
    classes=("none", "some", "all"),
    mean=(0.5,),
    std=(0.25,),
    counts={"train": SIZE, "test": SIZE},
)


def network(wide: int, bias: float) -> Network:
    """Its classes are nothing to speak of, but its properties take branching."""
    g = generator(2)
    first = normal(g, wide, 4), normal(g, wide) * 0.3
    second = normal(g, wide, wide) / wide**0.5 * 1.5, normal(g, wide) * 0.3
    return sequential(first, second, (normal(g, 3, wide) / wide**0.5, [bias, 0, 0]))


def images(seen_by: Network, split: str, wrong: tuple[int, ...] = ()) -> Images:
    """Every image but number 7, labelled as the network sees it, but for the wrong ones."""
    numbers = torch.tensor([k for k in range(SIZE) if k != 7])
    pixels = torch.randint(0, 256, (len(numbers), 1, 2, 2), generator=generator(5), dtype=torch.uint8)
    inputs = (pixels.reshape(len(numbers), 4).double() / 255 - 0.5) / 0.25
    labels = torch.from_numpy(values_at(seen_by, inputs.numpy())[-1].argmax(axis=1))
    for k in wrong:
        labels[k] = (labels[k] + 1) % 3
    return Images(DATASET, split, pixels.numpy(), labels.numpy(), numbers.numpy())


def install(monkeypatch: pytest.MonkeyPatch, at_hand: Images) -> None:
    """Have it found under its name, beside the real ones; whatever is loaded are these images."""
    known = {**datasets.DATASETS, "dots": DATASET}

    def look_up(name: str) -> datasets.Dataset:
        if name not in known:
            raise BadInput(f"there is no data set '{name}'")
        return known[name]

    def load(name: str, split: str, folder: Path | None = None, **_: Any) -> Images:
        del folder
        return replace(at_hand, dataset=look_up(name), split=split)

    monkeypatch.setattr(datasets, "DATASETS", known)
    monkeypatch.setattr(datasets, "known", look_up)
    monkeypatch.setattr(datasets, "load", load)
