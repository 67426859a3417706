"""The paper's properties by dual bounds: the rows whose images are at hand enter, records and a summary leave.

    BOUGH_DATA=... python experiments/03_paper_properties.py --out paper.jsonl [--branching fsb] [--timeout 20]
        [--device cuda] [--limit-seconds 500]

Seconds count from a loaded process; one property is solved first and not counted. A property already in --out is not
repeated, so a run that is cut off goes on.
"""

import argparse
import csv
import json
import os
import sys
from collections.abc import Iterator
from pathlib import Path
from statistics import mean, median
from typing import Any

import numpy as np

MEAN, STD = np.array([0.485, 0.456, 0.406]).reshape(3, 1, 1), 0.225
SOLVED = ("verified", "falsified")


def main() -> int:
    """Run what is left, print the summary."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--branching", default="fsb")
    parser.add_argument("--timeout", type=float, default=20.0)
    parser.add_argument("--device", default="auto")
    parser.add_argument("--limit-seconds", type=float, default=float("inf"), help="start no run after so many")
    options = parser.parse_args()
    data = Path(os.environ.get("BOUGH_DATA", "../shared")) / "data"
    done = _read(options.out)
    by_key = {_key(r): r for r in done}
    for row in run(data, options, set(by_key)):
        by_key[_key(row)] = row
    summary(list(by_key.values()))
    return 0


def _read(path: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in path.read_text().splitlines()] if path.exists() else []


def _key(row: dict[str, Any]) -> tuple[str, str, str]:
    return row["paper"]["network"], row["paper"]["image"], row["paper"]["target"]


def run(data: Path, options: argparse.Namespace, done: set[tuple[str, str, str]]) -> Iterator[dict[str, Any]]:
    """Solve the properties that are not done, one record each."""
    import torch

    from bough.api import load_network, load_problem
    from bough.budget import Deadline
    from bough.network import walk
    from bough.options import Options
    from bough.plan import make_plan
    from bough.problem.property import robustness_property
    from bough.report.record import Run, record

    images = np.load(data / "images" / "cifar10_part.npz")
    place = {int(index): k for k, index in enumerate(images["test_index"])}
    with (data / "paper_results.csv").open() as file:
        rows = [r for r in csv.DictReader(file) if int(r["image"]) in place]
    networks = {name: load_network(data / "networks" / f"{name}.onnx") for name in {r["network"] for r in rows}}
    how = Options(timeout=options.timeout, bounds="dual", branching=options.branching, device=options.device)
    limit, warm = Deadline.after(options.limit_seconds), False
    for row in rows:
        if (row["network"], row["image"], row["target"]) in done:
            continue
        if limit.passed():
            break
        loaded = networks[row["network"]]
        x = torch.tensor((images["test_images"][place[int(row["image"])]] / 255.0 - MEAN) / STD)
        label = int(walk.evaluate(loaded.network, x[None]).argmax())
        prop = robustness_property(x, float(row["eps"]), label, [int(row["target"])], loaded.network.outputs)
        problem = load_problem(loaded, prop)
        plan = make_plan(how, loaded.network)
        if not warm:
            plan.solve(problem)
            warm = True
        result = plan.solve(problem)
        description = Run(
            network=row["network"],
            property=f"image {row['image']} target {row['target']} eps {row['eps']}",
            method="bab",
            settings=plan.settings,
        )
        entry = {**record(description, result), "paper": row}
        with options.out.open("a") as out:
            out.write(json.dumps(entry) + "\n")
        print(
            f"{description.network} {description.property}: {result.verdict.value} {result.seconds:.2f} s",
            file=sys.stderr,
        )
        yield entry


def summary(entries: list[dict[str, Any]]) -> None:
    """Solved, seconds, branches and bounds, beside the authors' seconds; per table of the paper and in all."""
    print(
        "| set | properties | solved | median s | mean s | branches: median | bounds: median "
        "| BaBSR: solved, mean s | GNN: solved, mean s |"
    )
    print("|---|---|---|---|---|---|---|---|---|")
    for name in [*dict.fromkeys(e["paper"]["source_file"] for e in entries), "all"]:
        part = [e for e in entries if name in (e["paper"]["source_file"], "all")]
        seconds, branches, bounds = ([e[field] for e in part] for field in ("seconds", "branches", "bounds"))
        print(
            f"| {name} | {len(part)} | {sum(e['verdict'] in SOLVED for e in part)} | {median(seconds):.2f} | "
            f"{mean(seconds):.2f} | {median(branches):.0f} | {median(bounds):.0f} | "
            f"{_peer(part, 'babsr')} | {_peer(part, 'gnn')} |"
        )


def _peer(entries: list[dict[str, Any]], who: str) -> str:
    rows = [e["paper"] for e in entries if e["paper"][f"{who}_time"]]
    solved = sum(r[f"{who}_status"] == "verified" for r in rows)
    return f"{solved} of {len(rows)}, {mean(float(r[f'{who}_time']) for r in rows):.0f}" if rows else "-"


if __name__ == "__main__":
    sys.exit(main())
