"""What certificates cost: time in the search, bytes a leaf, and the time of a check beside that of the search.

    python benchmarks/certificate.py [--instances vnncomp/sat_relu/instances.csv] [--every 4] [--limit 20]
    python benchmarks/certificate.py --leaves 1000000

Without instances, random dense networks whose properties take some branching. `--leaves` checks a made-up tree of so
many leaves (a power of two) over a small network instead. The bars: about 200 bytes a leaf, a million leaves under
500 MB, and checks that take a fraction of their search.
"""

import argparse
import csv
import math
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import torch

from bough.api import load_network, load_problem, solve
from bough.network.rewrite import GraphBuilder
from bough.options import Options
from bough.problem.onnx_writer import write_network
from bough.problem.problem import Problem
from bough.problem.property import Box, Clause, Property
from bough.verdict.certificate import SLOPES, Leaves, ProblemHashes, Writer
from bough.verdict.check import check

CHUNK = 4096
SIZES = ((5, (20, 20)), (6, (24, 24)), (10, (30, 20)), (12, (24, 24, 24)))


def dense(folder: Path, inputs: int, widths: tuple[int, ...], seed: int) -> Problem:
    """A random network, and the property that its output stays above what samples reach, less a little."""
    g, builder = torch.Generator().manual_seed(seed), GraphBuilder()
    x, before = builder.input((inputs,)), inputs
    for width in (*widths, 1):
        weight = torch.randn(width, before, generator=g) / before**0.5
        x = builder.linear(x, weight.double(), 0.1 * torch.randn(width, generator=g).double())
        x, before = (builder.relu(x), width) if width > 1 else (x, width)
    network = builder.build(x)
    write_network(network, folder / "net.onnx")
    loaded = load_network(folder / "net.onnx")
    points = torch.rand(20_000, inputs, generator=g).double() * 2 - 1
    least = min(float(loaded.reference.run(p.numpy())[0]) for p in points[:2000])
    one = torch.ones(inputs, dtype=torch.float64)
    row, offset = torch.ones(1, 1, dtype=torch.float64), torch.tensor([least - 0.35 * abs(least) - 0.3]).double()
    return load_problem(loaded, Property((Box(-one, one),), (Clause(0, row, offset, (False,)),)))


def problems(options: argparse.Namespace, folder: Path) -> Iterator[tuple[str, Problem]]:
    """What is measured."""
    if options.instances is None:
        for seed, (inputs, widths) in enumerate(SIZES):
            yield f"dense {inputs}-{'-'.join(map(str, widths))}", dense(folder, inputs, widths, seed)
        return
    with options.instances.open() as file:
        for network, prop, *_ in list(csv.reader(file))[:: options.every]:
            parent = options.instances.parent
            yield f"{Path(network).stem} {Path(prop).stem}", load_problem(load_network(parent / network), parent / prop)


def measure(name: str, problem: Problem, limit: float, path: Path) -> tuple[float, ...] | None:
    """Seconds without, with, of these in the certificate, of the check; leaves, bytes of leaves, of all."""
    plain = solve(problem, Options(timeout=limit, device="cpu"))
    proved = solve(problem, Options(timeout=limit, device="cpu", certificate=path))
    report, notes = check(problem, path), proved.notes
    leaves, size, root = (notes[f"certificate_{k}"] for k in ("leaves", "bytes", "root_bytes"))
    print(
        f"{name[:44]:44s} {proved.verdict.value:9s} {plain.branches:6d} -> {proved.branches:6d} branches, "
        f"{plain.seconds:6.2f} -> {proved.seconds:6.2f} s ({notes['certificate_seconds']:.2f} s for it), "
        f"{leaves:6.0f} leaves, {(size - root) / max(leaves, 1):5.0f} bytes each + {root:.0f}; "
        f"{report.outcome.value} in {report.seconds:.2f} s, {report.seconds / proved.seconds:.2f} of the search",
        flush=True,
    )
    if proved.verdict.value != "verified":
        return None
    return plain.seconds, proved.seconds, notes["certificate_seconds"], report.seconds, leaves, size - root, size


def made_up(leaves: int, path: Path) -> tuple[Problem, int]:
    """A certificate of a full tree over the first ReLUs of a small network, written in an order of its own."""
    depth = max(1, math.ceil(math.log2(leaves)))
    g, builder = torch.Generator().manual_seed(0), GraphBuilder()
    x = builder.relu(builder.linear(builder.input((8,)), torch.randn(depth + 8, 8, generator=g).double(), None))
    network = builder.build(builder.linear(x, torch.rand(1, depth + 8, generator=g).double(), None))
    write_network(network, path.with_suffix(".onnx"))
    one = torch.ones(8, dtype=torch.float64)
    clause = Clause(0, one[:1, None], torch.tensor([-1e3]).double(), (False,))
    problem = load_problem(load_network(path.with_suffix(".onnx")), Property((Box(-one, one),), (clause,)))
    writer = Writer(path, ProblemHashes.of(problem.network, problem.property))
    order = np.random.default_rng(0).permutation(1 << depth)
    for first in range(0, len(order), CHUNK):
        part = order[first : first + CHUNK]
        count, none = len(part), np.zeros(0, np.int64)
        literals = 2 * np.arange(depth)[None] + ((part[:, None] >> np.arange(depth)) & 1)
        writer.write(
            Leaves(
                clause=np.zeros(count, np.int64),
                kind=np.full(count, SLOPES),
                vector=np.zeros(count, np.int64),
                splits=np.full(count, depth),
                literals=literals.reshape(-1),
                signs=np.zeros(count * depth),
                halvings=np.zeros(count, np.int64),
                inputs=none,
                times=none,
                halves=none,
                weights=np.ones((count, 1)),
                slots=none,
                coarse=np.zeros((0, 0), np.uint8),
                fine=np.zeros((0, 0)),
            )
        )
    writer.end("verified", 1.0)
    return problem, len(order)


def main() -> int:
    """Measure, and print a line each and one for all."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--instances", type=Path)
    parser.add_argument("--every", type=int, default=1)
    parser.add_argument("--limit", type=float, default=20.0, help="seconds a search")
    parser.add_argument("--leaves", type=int, help="check a made-up tree of so many leaves instead")
    options = parser.parse_args()
    torch.set_num_threads(1)
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "proof"
        if options.leaves:
            problem, count = made_up(options.leaves, path)
            began, size = time.perf_counter(), path.stat().st_size
            report = check(problem, path)
            spent = time.perf_counter() - began
            print(
                f"{report}; {count} leaves, {size / count:.1f} bytes each, {spent:.1f} s, {count / spent:.0f} a second"
            )
            return 0
        rows = [measure(name, problem, options.limit, path) for name, problem in problems(options, Path(folder))]
    measured = np.array([row for row in rows if row is not None])
    if len(measured):
        plain, proved, spent, checked, leaves, tree, size = measured.sum(axis=0)
        print(
            f"all {len(measured)} verified: {plain:.1f} -> {proved:.1f} s, {spent / proved:.0%} of it in certificates; "
            f"{leaves:.0f} leaves, {tree / leaves:.0f} bytes each ({size / leaves:.0f} with the root); check / search "
            f"{checked / proved:.2f}"
        )
    return 0


if __name__ == "__main__":
    sys.exit(main())
