"""Many short queries: latency and memory in one process, and in as many processes as there are queries.

    python benchmarks/load.py [--queries 50] [--processes 3]          the full figures: --queries 2000 --processes 500

Each query reads a network and a property from files, attacks, bounds, and writes a record, as `bough verify` does. Half
of them are verified, half falsified; an answer that is wrong, or an error, gives status 1. Memory is compared
after a tenth of the queries and at the end.
"""

import argparse
import contextlib
import io
import json
import os
import resource
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import torch

from bough import Box, Clause, Property
from bough.cli import main as bough
from bough.network.rewrite import GraphBuilder
from bough.problem.onnx_writer import write_network
from bough.problem.vnnlib import write_property

KINDS = 20  # different problems, asked in turn
LEAK = 64e6  # bytes of growth that are no leak: caches, and what allocators keep


def resident() -> int:
    """Bytes of memory that this process holds now."""
    return int(Path("/proc/self/statm").read_text().split()[1]) * resource.getpagesize()


def write_problems(folder: Path) -> list[tuple[list[str], str]]:
    """Command lines with the verdicts that are true: the least value of relu(x + y) + relu(x - y) is 0."""
    queries = []
    for k in range(KINDS):
        builder, safe = GraphBuilder(), k % 2 == 0
        scale = torch.tensor([[1.0, 1.0], [1.0, -1.0]], dtype=torch.float64) * (k + 1)
        hidden = builder.relu(builder.linear(builder.input((2,)), scale))
        network = builder.build(builder.linear(hidden, torch.ones(1, 2, dtype=torch.float64)))
        ends = torch.ones(2, dtype=torch.float64)
        offset = torch.tensor([-0.5 if safe else 0.5], dtype=torch.float64)
        row = Clause(0, torch.ones(1, 1, dtype=torch.float64), offset, (False,))
        write_network(network, folder / f"{k}.onnx")
        (folder / f"{k}.vnnlib").write_text(write_property(Property((Box(-ends, ends),), (row,))))
        words = ["verify", str(folder / f"{k}.onnx"), str(folder / f"{k}.vnnlib"), "--threads", "1", "--quiet"]
        queries.append(([*words, "--json", str(folder / "record.json")], "verified" if safe else "falsified"))
    return queries


def latency(seconds: list[float]) -> str:
    """Median and tail."""
    ordered = sorted(seconds)
    tail = ordered[min(len(ordered) - 1, int(0.99 * len(ordered)))]
    return f"median {1e3 * statistics.median(ordered):.1f} ms, 99% within {1e3 * tail:.1f} ms"


def main() -> int:
    """Run both loads."""
    parser = argparse.ArgumentParser(description="latency and memory of many short queries")
    parser.add_argument("--queries", type=int, default=50)
    parser.add_argument("--processes", type=int, default=3)
    options = parser.parse_args()
    wrong, took, held = 0, [], []
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        queries = write_problems(folder)
        for k in range(options.queries):
            words, truth = queries[k % KINDS]
            out, began = io.StringIO(), time.perf_counter()
            with contextlib.redirect_stdout(out):
                bough(words)
            took.append(time.perf_counter() - began)
            held.append(resident())
            wrong += (
                out.getvalue() != f"{truth}\n" or json.loads((folder / "record.json").read_text())["verdict"] != truth
            )
        grown = held[-1] - held[len(held) // 10] if held else 0
        if held:
            print(f"one process: {len(took)} queries, {latency(took[1:] or took)}, first {1e3 * took[0]:.0f} ms")
            print(f"  memory {held[len(held) // 10] / 1e6:.0f} MB after a tenth, {held[-1] / 1e6:.0f} MB at the end")
        took = []
        for k in range(options.processes):
            words, truth = queries[k % KINDS]
            began = time.perf_counter()
            environment = {**os.environ, "OMP_NUM_THREADS": "1"}
            done = subprocess.run(
                [sys.executable, "-m", "bough", *words], capture_output=True, text=True, env=environment, check=False
            )
            took.append(time.perf_counter() - began)
            wrong += done.stdout != f"{truth}\n"
        if took:
            print(f"separate processes: {len(took)} queries, {latency(took)}")
    print(f"{wrong} wrong answers or errors; {'no leak' if grown < LEAK else f'grew by {grown / 1e6:.0f} MB'}")
    return int(wrong > 0 or grown >= LEAK)


if __name__ == "__main__":
    sys.exit(main())
