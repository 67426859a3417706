"""Times the Planet LP on the paper's Base network: the root, and children warm-started from its basis beside the same
solved cold.

    BOUGH_DATA=... python benchmarks/lp_warm_start.py [--children 12]

Two kinds of child: one that changes a single ReLU, and one under the paper's policy, which renews the bounds of all
later layers. Without the data the demo network stands in. Times here are noisy; the ratios, taken in one run, are
what counts.
"""

import argparse
import os
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from statistics import median

import numpy as np
import torch

from bough.bounds.intermediate import PaperBounds
from bough.bounds.linear import Region
from bough.bounds.planet import Layout, build, limits
from bough.budget import Deadline
from bough.domain.batch import Bounds
from bough.network import walk
from bough.network.graph import Network
from bough.problem.onnx import read_network
from bough.problem.property import Box, Clause, robustness_property
from bough.solvers.highs import Highs
from bough.zoo import demo

IMAGE, TARGET, EPS = 257, 5, 0.239  # facts 10: 18 branches by BaBSR


def problem() -> tuple[str, Network, Box, Clause]:
    """Base with one of the paper's properties, or the demo's last problem."""
    data = os.environ.get("BOUGH_DATA")
    if data is None:
        path, problems = demo.load()
        prop = problems[-1].property
        return f"demo, {problems[-1].name}", read_network(path), prop.boxes[0], prop.clauses[0]
    network = read_network(Path(data) / "data" / "networks" / "cifar_base_kw.onnx")
    images = np.load(Path(data) / "data" / "images" / "cifar10_part.npz")
    image = images["test_images"][list(images["test_index"]).index(IMAGE)] / 255.0
    x = torch.tensor((image - np.array([0.485, 0.456, 0.406]).reshape(3, 1, 1)) / 0.225)
    label = int(walk.evaluate(network, x[None]).argmax())
    prop = robustness_property(x, EPS, label, [TARGET], 10)
    return f"Base, image {IMAGE}", network, prop.boxes[0], prop.clauses[0]


@dataclass(frozen=True, eq=False)
class Bench:
    """The model under measurement."""

    network: Network
    clause: Clause
    root: Region
    layout: Layout
    solver: Highs

    def solve(self, bounds: Bounds, start: object) -> tuple[float, object]:
        """Seconds of one solve, edits included, and its basis."""
        began = time.perf_counter()
        new = limits(self.layout, bounds.lower[0], bounds.upper[0], self.clause)
        self.solver.set_columns(new.columns, new.column_lower, new.column_upper)
        self.solver.set_rows(new.rows, new.row_lower, new.row_upper)
        self.solver.set_entries(new.entries)
        basis = self.solver.solve(start, float("inf"), Deadline.never()).basis
        return time.perf_counter() - began, basis

    def child(self, neuron: int, passing: bool) -> Bounds:
        """The root with one ReLU fixed."""
        lower, upper = self.root.bounds.lower.clone(), self.root.bounds.upper.clone()
        (lower if passing else upper)[0, neuron] = 0.0
        return Bounds(lower, upper)

    def renewed(self, child: Bounds, neuron: int) -> Bounds:
        """The same child with the later layers bounded again."""
        region = self.root.with_bounds(child)
        return PaperBounds().after_split(self.network, region, torch.tensor([[neuron]]), Deadline.never())


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--children", type=int, default=12)
    count = parser.parse_args().children
    torch.set_num_threads(1)
    name, network, box, clause = problem()
    root = PaperBounds().at_root(network, box, Deadline.never())
    program, layout = build(network, box, root.bounds, len(clause.offsets))
    bench = Bench(network, clause, root, layout, Highs(program))
    print(f"{name}: {program.matrix.shape[0]} rows, {program.matrix.shape[1]} columns, {program.matrix.nnz} entries")
    cold_root, basis = bench.solve(root.bounds, None)
    print(f"root, cold: {cold_root:.3f} s")
    ambiguous = root.bounds.ambiguous()[0].nonzero()[:, 0]
    chosen = ambiguous[torch.randperm(len(ambiguous), generator=torch.Generator().manual_seed(0))[:count]]
    kinds: dict[str, Callable[[Bounds, int], Bounds]] = {
        "one ReLU changed": lambda child, _: child,
        "paper's policy": bench.renewed,
    }
    for kind, change in kinds.items():
        warm, cold = [], []
        for k, neuron in enumerate(chosen.tolist()):
            bounds = change(bench.child(neuron, passing=k % 2 == 1), neuron)
            if bool(bounds.empty()):
                continue
            warm.append(bench.solve(bounds, basis)[0])
            cold.append(bench.solve(bounds, None)[0])
        print(
            f"child, {kind}: warm {median(warm):.3f} s (of {len(warm)}: {min(warm):.3f} to {max(warm):.3f}), "
            f"cold {median(cold):.3f} s; "
            f"cold/warm {median(cold) / median(warm):.1f}, root/warm {cold_root / median(warm):.1f}"
        )


if __name__ == "__main__":
    main()
