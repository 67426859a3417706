"""Counts branches on properties of the paper, beside the counts its authors published: a table leaves.

    BOUGH_DATA=... python experiments/01_paper_counts.py [--most 8] [--network cifar_base_kw] [--timeout 900]
                                                         [--rule gnn --rule gnn-online]

LP bounds, the paper's intermediate bounds, one domain at a time, no attack. The properties are those whose images are
at hand, the ones with fewest published branches first, and image 129. Exit status 1 if a count of BaBSR's differs; a
learnt rule has other weights than the authors', so its counts are only shown beside theirs.
"""

import argparse
import csv
import os
import sys
from pathlib import Path

import numpy as np
import torch

from bough.api import load_network, load_problem, solve
from bough.network import walk
from bough.options import Options
from bough.problem.property import robustness_property

MEAN, STD = np.array([0.485, 0.456, 0.406]).reshape(3, 1, 1), 0.225
ALWAYS = 129


def main() -> int:
    """Run, compare, print."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--most", type=int, default=8)
    parser.add_argument("--network", default="cifar_base_kw")
    parser.add_argument("--timeout", type=float, default=900.0)
    parser.add_argument("--rule", action="append", default=[], choices=("gnn", "gnn-online"), help="beside babsr")
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
    rules = ("babsr", *options.rule)
    columns = [f"{rule}, authors: branches | seconds | {rule}, bough: branches | seconds" for rule in rules]
    print(f"| image | target | eps | root bound | {' | '.join(columns)} |")
    print("|---" * (4 + 4 * len(rules)) + "|")
    different = 0
    for row in chosen:
        k, eps = place[int(row["image"])], float(row["eps"])
        x = torch.tensor((images["test_images"][k] / 255.0 - MEAN) / STD)
        label = int(walk.evaluate(loaded.network, x[None]).argmax())
        prop = robustness_property(x, eps, label, [int(row["target"])], loaded.network.outputs)
        cells, root = [], ""
        for rule in rules:
            how = Options(
                timeout=options.timeout, bounds="lp", branching=rule, intermediate="paper", attack=False, batch=1
            )
            result = solve(load_problem(loaded, prop), how)
            texts = [row[f"{rule.removeprefix('gnn-')}_{figure}"] for figure in ("branches", "time")]
            published, seconds = (float(text) if text else None for text in texts)
            root = f"{result.root_lower_bound:.4f}"
            solved = result.verdict.value == "verified"
            different += rule == "babsr" and (not solved or result.branches != published)
            cells += ["-" if published is None else f"{published:.0f}", "-" if seconds is None else f"{seconds:.0f}"]
            cells += [f"{result.branches}" if solved else result.verdict.value, f"{result.seconds:.1f}"]
        print(f"| {row['image']} | {row['target']} | {eps:g} | {root} | {' | '.join(cells)} |", flush=True)
    return 1 if different else 0


if __name__ == "__main__":
    sys.exit(main())
