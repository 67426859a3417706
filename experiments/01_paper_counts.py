"""Counts BaBSR's branches on properties of the paper, beside the counts its authors published: a table leaves.

    BOUGH_DATA=... python experiments/01_paper_counts.py [--most 8] [--network cifar_base_kw] [--timeout 900]

LP bounds, the paper's intermediate bounds, one domain at a time, no attack. The properties are those whose images are
at hand, the ones with fewest published branches first, and image 129. Exit status 1 if a count differs.
"""

import argparse
import csv
import os
import sys
from pathlib import Path

import numpy as np
import torch

from bough.api import Options, load_network, load_problem, solve
from bough.network import walk
from bough.problem.property import robustness_property

MEAN, STD = np.array([0.485, 0.456, 0.406]).reshape(3, 1, 1), 0.225
ALWAYS = 129


def main() -> int:
    """Run, compare, print."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--most", type=int, default=8)
    parser.add_argument("--network", default="cifar_base_kw")
    parser.add_argument("--timeout", type=float, default=900.0)
    options = parser.parse_args()
    torch.set_num_threads(1)
    data = Path(os.environ.get("BOUGH_DATA", "../shared")) / "data"
    images = np.load(data / "images" / "cifar10_part.npz")
    place = {int(index): k for k, index in enumerate(images["test_index"])}
    with (data / "paper_results.csv").open() as file:
        rows = [r for r in csv.DictReader(file) if r["network"] == options.network and int(r["image"]) in place]
    rows = sorted((r for r in rows if r["babsr_branches"]), key=lambda r: float(r["babsr_branches"]))
    chosen = rows[: options.most] + [r for r in rows[options.most :] if int(r["image"]) == ALWAYS]
    loaded = load_network(data / "networks" / f"{options.network}.onnx")
    print("| image | target | eps | authors: branches | seconds | bough: verdict | branches | seconds | root bound |")
    print("|---|---|---|---|---|---|---|---|---|")
    different = 0
    for row in chosen:
        k, eps = place[int(row["image"])], float(row["eps"])
        x = torch.tensor((images["test_images"][k] / 255.0 - MEAN) / STD)
        label = int(walk.evaluate(loaded.network, x[None]).argmax())
        asked = robustness_property(x, eps, label, [int(row["target"])], loaded.network.outputs)
        how = Options(timeout=options.timeout, intermediate="paper", attack=False, batch=1)
        result = solve(load_problem(loaded, asked), how)
        published = int(float(row["babsr_branches"]))
        different += result.branches != published
        print(
            f"| {row['image']} | {row['target']} | {eps:g} | {published} | {float(row['babsr_time']):.0f} | "
            f"{result.verdict.value} | {result.branches} | {result.seconds:.1f} | {result.root_lower_bound:.4f} |",
            flush=True,
        )
    return 1 if different else 0


if __name__ == "__main__":
    sys.exit(main())
