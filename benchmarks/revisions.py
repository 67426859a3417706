"""Times two revisions of bough beside each other: two source trees enter, a table of ratios with their bars leaves.

    python benchmarks/revisions.py --old ../before/src --new src [--repeat 15] [--counted 3] [--only SUBSTRING]

Start-up is measured in processes of its own: `import bough`, `import bough.api`, `bough --help`, and `bough verify` of
one ReLU. Searches are `bough verify` on two small networks, limited by bounds; one process runs all of them, each after
a short one that loads what it needs. Measured are

    calls     of Python functions and of built-in ones, by cProfile
    bytes     the most that Python and NumPy hold at once, by tracemalloc; PyTorch's tensors are not in it
    resident  the most memory that the system gives the process, which has the tensors in it
    modules   that are imported; without a bar
    seconds   of a start-up from outside, of a search inside

Old and new alternate, in processes of one thread; medians count. Calls, bytes and modules are nearly the same every
time, and are measured less often. The exit status is 1 where a bar is not kept.
"""

import argparse
import ast
import math
import os
import subprocess
import sys
import tempfile
import time
from collections import defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from statistics import median

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper

BARS = {"calls": 1.05, "bytes": 1.05, "resident": 1.05, "modules": math.inf, "seconds": 1.10}
WIDTHS = (12, 24, 24, 24, 1)  # of a random network
BELOW = -2.5  # what its output never reaches, and bounds cannot prove soon
RADIUS = 0.15  # of a question about mnist_base, which comes with bough
IR_VERSION, OPSET = 8, 17  # old enough for every ONNX Runtime that bough supports
Figures = dict[tuple[str, str], list[float]]  # all that was measured, by case and measure

# What a process of its own does: a mode and the words of commands enter, a line of figures for each command leaves. It
# imports as little as it can, since start-ups are timed from outside.
CHILD = """
import sys

def act(words):
    if words[0] == "import":
        __import__(words[1])
        return
    import contextlib, io
    from bough.cli import main
    trouble = io.StringIO()
    with contextlib.redirect_stdout(io.StringIO()), contextlib.redirect_stderr(trouble):
        try:
            status = main(words)
        except SystemExit as end:
            status = end.code or 0
    if status not in (0, 1, 3):  # verified, falsified, timeout
        sys.exit(trouble.getvalue())

def calls(words):
    import cProfile
    profile = cProfile.Profile()
    profile.enable()
    act(words)
    profile.disable()
    return {"calls": sum(entry.callcount for entry in profile.getstats())}

def weights(words):
    import tracemalloc
    modules = len(sys.modules)
    tracemalloc.start()
    act(words)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    return {"bytes": peak, "modules": len(sys.modules) - modules}

def seconds(words):
    from time import perf_counter
    began = perf_counter()
    act(words)
    return {"seconds": perf_counter() - began}

tree, mode, record, *commands = sys.argv[1:]
for text in commands:
    words = text.split()
    if record in words:
        act([*words, "--max-bounds", "20"])  # the last one counts
    figures = {"calls": calls, "bytes": weights, "seconds": seconds}[mode](words)
    with open("/proc/self/status") as status:
        figures["resident"] = next(1024.0 * int(line.split()[1]) for line in status if line.startswith("VmHWM"))
    if record in words:
        import json
        with open(record) as file:
            figures["branches"] = json.load(file)["branches"]
    print(figures, flush=True)
if not sys.modules["bough"].__file__.startswith(tree):
    sys.exit("it holds no bough, or another one comes first: " + sys.modules["bough"].__file__)
"""


@dataclass(frozen=True)
class Case:
    """What is measured: a name, and the words of a command, or `import` and a module."""

    name: str
    words: str


@dataclass(frozen=True)
class Group:
    """Cases that one process measures: a start-up, timed from outside, or all searches."""

    name: str
    cases: tuple[Case, ...]
    searches: bool


def write_network(path: Path) -> str:
    """A random network as an ONNX file; the file's name."""
    random, nodes, weights, last = np.random.default_rng(2), [], [], "X"
    for place, (before, after) in enumerate(pairwise(WIDTHS)):
        matrix = (random.standard_normal((after, before)) / before**0.5).astype(np.float32)
        weights.append(numpy_helper.from_array(matrix, f"matrix_{place}"))
        weights.append(numpy_helper.from_array(np.full(after, 0.1, np.float32), f"bias_{place}"))
        nodes.append(helper.make_node("Gemm", [last, f"matrix_{place}", f"bias_{place}"], [f"z_{place}"], transB=1))
        last = f"z_{place}"
        if after > 1:
            nodes.append(helper.make_node("Relu", [last], [f"x_{place}"]))
            last = f"x_{place}"
    return write_graph(path, nodes, weights, WIDTHS[0])


def write_graph(path: Path, nodes: Sequence[onnx.NodeProto], weights: Sequence[onnx.TensorProto], inputs: int) -> str:
    """Nodes with one output as an ONNX file; the file's name."""
    first = helper.make_tensor_value_info("X", TensorProto.FLOAT, [1, inputs])
    last = helper.make_tensor_value_info(nodes[-1].output[0], TensorProto.FLOAT, [1, 1])
    graph = helper.make_graph(list(nodes), "revisions", [first], [last], list(weights))
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", OPSET)], ir_version=IR_VERSION)
    path.write_bytes(model.SerializeToString())
    return str(path)


def write_property(path: Path, lower: Sequence[float], upper: Sequence[float], outputs: int, unsafe: str) -> str:
    """A VNN-LIB file about one box; its name."""
    lines = [f"(declare-const X_{k} Real)" for k in range(len(lower))]
    lines += [f"(declare-const Y_{k} Real)" for k in range(outputs)]
    for k, (low, high) in enumerate(zip(lower, upper, strict=True)):
        lines += [f"(assert (>= X_{k} {low:.17f}))", f"(assert (<= X_{k} {high:.17f}))"]
    path.write_text("\n".join([*lines, f"(assert {unsafe})", ""]), encoding="utf-8")
    return str(path)


def start_ups(folder: Path) -> Iterator[Group]:
    """Imports, help, and a trivial problem."""
    network = write_graph(folder / "relu.onnx", [helper.make_node("Relu", ["X"], ["Y"])], [], 1)
    safe = write_property(folder / "relu.vnnlib", [-1.0], [1.0], 1, "(<= Y_0 -1.0)")
    for name, words in (
        ("import bough", "import bough"),
        ("import bough.api", "import bough.api"),
        ("bough --help", "--help"),
        ("bough verify, one ReLU", f"verify {network} {safe} --quiet --threads 1 --device cpu"),
    ):
        yield Group(name, (Case(name, words),), searches=False)


def searches(folder: Path, record: str) -> Group:
    """Searches of less than a second by the three kinds of bounds."""
    corner = [1.0] * WIDTHS[0]
    below = write_property(folder / "random.vnnlib", [-x for x in corner], corner, 1, f"(<= Y_0 {BELOW})")
    random = f"{write_network(folder / 'random.onnx')} {below}"
    bar = np.zeros((28, 28))
    bar[4:24, 13:15] = 1
    lower, upper = ((bar.ravel() + change).clip(0, 1).tolist() for change in (-RADIUS, RADIUS))
    digit = f"mnist_base {write_property(folder / 'bar.vnnlib', lower, upper, 10, '(>= Y_7 Y_1)')}"
    rules = (
        (random, "--bounds dual --branching kfsb --batch 64 --max-bounds 6000"),
        (digit, "--bounds dual --branching learnt-local --batch 64 --max-bounds 200"),
        (random, "--bounds lp --branching babsr --batch 8 --max-bounds 250"),
        (random, "--bounds linear --branching smear --batch 64 --max-bounds 2500"),
    )
    common = f"--no-attack --quiet --threads 1 --device cpu --json {record}"
    cases = (Case(f"search {options}", f"verify {problem} {options} {common}") for problem, options in rules)
    return Group("all searches", tuple(cases), searches=True)


def measure(tree: Path, mode: str, group: Group, record: str, figures: Figures) -> None:
    """Add what a group costs in a process that finds bough in a tree."""
    environment = {**os.environ, "PYTHONPATH": str(tree), "OMP_NUM_THREADS": "1", "PYTHONHASHSEED": "0"}
    words = [case.words for case in group.cases]
    began = time.perf_counter()
    child = subprocess.run(
        [sys.executable, "-c", CHILD, str(tree), mode, record, *words],
        env=environment,
        capture_output=True,
        text=True,
        check=False,
    )
    seconds = time.perf_counter() - began
    if child.returncode:
        raise SystemExit(f"{tree}: {group.name} ended with {child.returncode}: {child.stderr}")
    for case, text in zip(group.cases, child.stdout.splitlines(), strict=True):
        costs = ast.literal_eval(text)
        resident = costs.pop("resident")
        if mode == "seconds" and not group.searches:
            costs["seconds"] = seconds
        for name, cost in costs.items():
            figures[case.name, name].append(cost)
    if mode == "seconds":
        figures[group.name, "resident"].append(resident)


def table(old: Figures, new: Figures) -> tuple[list[str], bool]:
    """Medians side by side, as lines in Markdown, and whether every bar is kept."""
    lines, all_kept = ["| case | measure | old | new | ratio | bar | kept |", "|---|---|---|---|---|---|---|"], True
    for case, measure in old:
        before, after = (median(figures[case, measure]) for figures in (old, new))
        if measure not in BARS or not before:  # a search imports nothing: the short one before it did
            continue
        ratio, bar = after / before, BARS[measure]
        kept = ratio <= bar
        all_kept = all_kept and kept
        limit, word = ("", "") if bar == math.inf else (f"{bar}", "yes" if kept else "NO")
        lines.append(f"| {case} | {measure} | {before:,.6g} | {after:,.6g} | {ratio:.3f} | {limit} | {word} |")
    return lines, all_kept


def main() -> int:
    """Measure in turn, so that a busy machine slows both, and print the table."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--old", type=Path, help="the source tree to compare with; nothing is measured without")
    parser.add_argument("--new", type=Path, default=Path("src"), help="the source tree that is measured")
    parser.add_argument("--repeat", type=int, default=15, help="runs of each for seconds and resident memory")
    parser.add_argument("--counted", type=int, default=3, help="runs of each for calls, bytes and modules")
    parser.add_argument("--only", default="", metavar="SUBSTRING", help="start-ups, or all searches, by name")
    options = parser.parse_args()
    if options.old is None:
        print("two revisions are compared; give --old, the source tree of the other one")
        return 0
    old: Figures = defaultdict(list)
    new: Figures = defaultdict(list)
    sides = ((options.old.resolve(), old), (options.new.resolve(), new))
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        record = str(folder / "record.json")
        groups = [group for group in (*start_ups(folder), searches(folder, record)) if options.only in group.name]
        for tree, _ in sides:  # so that both are compiled
            measure(tree, "seconds", groups[-1], record, defaultdict(list))
        began = time.perf_counter()
        for mode, repeat in (("calls", options.counted), ("bytes", options.counted), ("seconds", options.repeat)):
            for place in range(repeat):
                for group in groups:
                    for tree, figures in sides[:: -1 if place % 2 else 1]:
                        measure(tree, mode, group, record, figures)
                print(f"{mode} {place + 1}/{repeat}, {time.perf_counter() - began:.0f} s", file=sys.stderr, flush=True)
    lines, kept = table(old, new)
    print("\n".join(lines))
    for case, name in old:
        if name == "branches" and set(old[case, name]) != set(new[case, name]):
            print(f"{case}: the branches differ, {old[case, name][0]} and {new[case, name][0]}: not the same search")
    return 0 if kept else 1


if __name__ == "__main__":
    sys.exit(main())
