"""The paper's CIFAR networks on test images: how often they are right, beside what is published, as a table.

BOUGH_DATA=... python experiments/04_networks.py
"""

import os
import sys
from pathlib import Path

from bough.api import load_network
from bough.network import walk
from bough.zoo.datasets import load

PUBLISHED = {"base": 0.73, "wide": 0.71, "deep": 0.58}  # on the first 100 test images


def main() -> None:
    """Print the table: the first 100 test images, as far as they are at hand, and all that are."""
    data = os.environ.get("BOUGH_DATA")
    if data is None:
        sys.exit("set BOUGH_DATA to the folder with data/networks and data/images")
    images = load("cifar10", "test")
    first = images.index < 100
    print(f"| network | of the first 100, {first.sum()} at hand | all {len(images)} at hand | published |")
    print("|---|---|---|---|")
    for name, published in PUBLISHED.items():
        network = load_network(Path(data) / "data" / "networks" / f"cifar_{name}_kw.onnx").network
        predicted = walk.evaluate(network, images.dataset.normalise(images.pixels).double()).argmax(1).numpy()
        right = predicted == images.labels
        print(f"| {name} | {right[first].mean():.2f} | {right.mean():.3f} | {published} |")


if __name__ == "__main__":
    main()
