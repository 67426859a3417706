"""The tables of properties that come with bough, tuned and timed: networks and images enter, one CSV leaves.

    BOUGH_DATA=... python experiments/09_published_sets.py cifar10 --out sets --device cuda --jobs 12
        [--tuning-seconds 900] [--timing-seconds 900]

First `bough properties` for each network, in bounds, which do not depend on how many processes share a GPU. Then every
property is solved once more, alone and in a warm process, and its seconds and bounds are those of that run. Everything
is kept in --out, and the same command goes on where it was cut off.
"""

import argparse
import math
import os
import sys
from dataclasses import replace
from pathlib import Path

from bough.api import LoadedNetwork, load_network, load_problem, solve
from bough.bench.methods import parse_method
from bough.budget import Deadline
from bough.cli import main as bough
from bough.options import Options
from bough.problem.problem import Problem
from bough.zoo import datasets, shipped
from bough.zoo.table import Row, as_property, as_text, read_table

SETS = {
    "cifar10": (
        ("cifar_base_kw", "cifar_wide_kw", "cifar_deep_kw"),
        ("--split", "train", "--seed", 1, "--edges", "100,300000,4000000,16000000"),
        ("--easy", 20, "--medium", 20, "--hard", 8, "--timeout-count", 2),
    ),
    "mnist": (
        ("mnist_base", "mnist_wide", "mnist_deep"),
        ("--split", "test", "--lean", 0.35, "--edges", "20,500,4000,16000"),
        ("--easy", 20, "--medium", 20, "--hard", 10),
    ),
}
UNFINISHED = 3


def main() -> int:
    """Tune, time, join."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("dataset", choices=tuple(SETS))
    parser.add_argument("--out", type=Path, required=True, help="a folder")
    parser.add_argument("--device", default="auto")
    parser.add_argument("--jobs", type=int, default=1)
    parser.add_argument("--tuning-seconds", type=float, default=math.inf, help="start no image after so many")
    parser.add_argument("--timing-seconds", type=float, default=math.inf, help="start no search after so many")
    options = parser.parse_args()
    deadline = Deadline.after(options.tuning_seconds)
    networks, images, difficulties = SETS[options.dataset]
    for name in networks:
        if tune(name, (*images, *difficulties), options, deadline) != 0:
            print(f"{name} is not whole yet; go on by the same command", file=sys.stderr)
            return UNFINISHED
    rows = [row for name in networks for row in read_table(options.out / name / "properties.csv")]
    return timed(rows, options.out, Deadline.after(options.timing_seconds))


def network_file(name: str) -> Path:
    """A network's file."""
    given = Path(os.environ.get("BOUGH_DATA", "../shared")) / "data" / "networks" / f"{name}.onnx"
    return given if given.exists() else shipped.network_path(Path(name))


def tune(name: str, how: tuple[object, ...], options: argparse.Namespace, deadline: Deadline) -> int:
    """The properties of one network."""
    left = ("--limit-seconds", f"{deadline.remaining():g}") if math.isfinite(deadline.remaining()) else ()
    words = ("properties", network_file(name), "--dataset", options.dataset, "--unit", "bounds", *how)
    words += ("--device", options.device, "--jobs", options.jobs, "--out", options.out / name, "--resume", *left)
    print("bough", *words, file=sys.stderr, flush=True)
    return bough([str(word) for word in words])


def timed(rows: list[Row], out: Path, deadline: Deadline) -> int:
    """Solve what has not been timed yet, and write the whole table once all of it is."""
    log = out / "timed.csv"
    known = {_key(row): row for row in read_table(log)} if log.exists() else {}
    images, loaded = datasets.load(rows[0].dataset, rows[0].split), dict[str, LoadedNetwork]()
    for k, row in enumerate(rows):
        name = Path(row.network).stem
        if _key(row) in known:
            continue
        if deadline.passed():
            print(f"{len(known)} of {len(rows)} are timed; go on by the same command", file=sys.stderr)
            return UNFINISHED
        cold = name not in loaded
        if cold:
            loaded[name] = load_network(network_file(name))
        problem = load_problem(loaded[name], as_property(row, images))
        how = parse_method(row.method).options
        if row.verdict == "timeout":
            how = replace(how, most_bounds=row.bounds)
        if cold:  # kernels are compiled once
            solve(problem, replace(how, attack=False, timeout=10.0))
        fresh = again(row, name, problem, how)
        print(f"{k + 1}/{len(rows)} {name} {row.image}: {row.difficulty}, {fresh.bounds} bounds, {fresh.seconds:.2f} s")
        sys.stdout.flush()
        known[_key(fresh)] = fresh
        log.write_text(as_text(list(known.values())))
    table = out / f"{Path(rows[0].dataset).name}.csv"
    table.write_text(as_text([known[_key(row)] for row in rows]))
    print(f"{len(rows)} properties are in {table}", file=sys.stderr)
    summary(list(known.values()))
    return 0


def again(row: Row, name: str, problem: Problem, how: Options) -> Row:
    """The row with what it costs alone; its difficulty stays what it was tuned to."""
    result = solve(problem, how)
    if result.verdict.value != row.verdict:
        sys.exit(f"{name}, image {row.image}: {result.verdict.value} alone, {row.verdict} when it was tuned")
    seconds = round(result.seconds, 6)
    return replace(row, network=name, bounds=result.bounds, branches=result.branches, seconds=seconds)


def _key(row: Row) -> tuple[str, int]:
    return Path(row.network).stem, row.image


def summary(rows: list[Row]) -> None:
    """Median and range of cost by network and difficulty, as Markdown."""
    print("| network | difficulty | properties | bounds: least, median, most | seconds: least, median, most |")
    print("|---|---|---|---|---|")
    for network in dict.fromkeys(row.network for row in rows):
        for difficulty in ("easy", "medium", "hard", "timeout"):
            part = [row for row in rows if (row.network, row.difficulty) == (network, difficulty)]
            if part:
                bounds, seconds = (sorted(getattr(row, name) for row in part) for name in ("bounds", "seconds"))
                middle = len(part) // 2
                print(
                    f"| {network} | {difficulty} | {len(part)} | {bounds[0]:,}, {bounds[middle]:,}, {bounds[-1]:,} | "
                    f"{seconds[0]:.2f}, {seconds[middle]:.2f}, {seconds[-1]:.2f} |"
                )


if __name__ == "__main__":
    sys.exit(main())
