"""The paper's MIPplanet by bough's baseline: the Base properties that were cheapest for the authors enter, records and
a table leave.

    BOUGH_DATA=... python experiments/05_mip_planet.py --out mip.jsonl [--count 4] [--timeout 150]
        [--method mip-planet] [--solver highs]

The authors' seconds are those of Gurobi on their machine. A property already in --out is not repeated.
"""

import argparse
import csv
import json
import os
import sys
from pathlib import Path
from typing import Any

import numpy as np

MEAN, STD = np.array([0.485, 0.456, 0.406]).reshape(3, 1, 1), 0.225
NETWORK = "cifar_base_kw"


def main() -> int:
    """Run what is left, print the table."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--count", type=int, default=4)
    parser.add_argument("--timeout", type=float, default=150.0)
    parser.add_argument("--method", default="mip-planet")
    parser.add_argument("--solver", default="auto")
    options = parser.parse_args()
    data = Path(os.environ.get("BOUGH_DATA", "../shared")) / "data"
    entries = [json.loads(line) for line in options.out.read_text().splitlines()] if options.out.exists() else []
    entries += run(data, options, {_key(entry) for entry in entries})
    print("| image | target | eps | authors: seconds | method | verdict | seconds | nodes | solver's bound |")
    print("|---|---|---|---|---|---|---|---|---|")
    for entry in entries:
        row, bound = entry["paper"], entry["engine"].get("solver_bound")
        print(
            f"| {row['image']} | {row['target']} | {float(row['eps']):g} | {float(row['mip_time']):.1f} | "
            f"{entry['method']}, {entry['bounder']} | {entry['verdict']} | {entry['seconds']:.1f} | "
            f"{entry['branches']} | {'-' if bound is None else f'{bound:.3g}'} |"
        )
    return 0


def _key(entry: dict[str, Any]) -> tuple[str, ...]:
    row = entry["paper"]
    return row["image"], row["target"], entry["method"], str(entry["timeout"])


def run(data: Path, options: argparse.Namespace, done: set[tuple[str, ...]]) -> list[dict[str, Any]]:
    """Solve the properties that are not done, one record each."""
    import torch

    from bough.api import load_network, load_problem
    from bough.network import walk
    from bough.options import Options
    from bough.plan import make_plan
    from bough.problem.property import robustness_property
    from bough.report.record import Run, record

    torch.set_num_threads(1)
    images = np.load(data / "images" / "cifar10_part.npz")
    place = {int(index): k for k, index in enumerate(images["test_index"])}
    with (data / "paper_results.csv").open() as file:
        rows = [
            r for r in csv.DictReader(file) if r["network"] == NETWORK and r["mip_time"] and int(r["image"]) in place
        ]
    rows.sort(key=lambda r: float(r["mip_time"]))
    loaded = load_network(data / "networks" / f"{NETWORK}.onnx")
    how = Options(timeout=options.timeout, method=options.method, solver=options.solver)
    plan, entries = make_plan(how, loaded.network), []
    for row in rows[: options.count]:
        if (row["image"], row["target"], options.method, str(options.timeout)) in done:
            continue
        x = torch.tensor((images["test_images"][place[int(row["image"])]] / 255.0 - MEAN) / STD)
        label = int(walk.evaluate(loaded.network, x[None]).argmax())
        prop = robustness_property(x, float(row["eps"]), label, [int(row["target"])], loaded.network.outputs)
        result = plan.solve(load_problem(loaded, prop))
        description = Run(
            network=NETWORK,
            property=f"image {row['image']} target {row['target']} eps {row['eps']}",
            method=options.method,
            settings=plan.settings,
        )
        entry = {**record(description, result), "paper": row}
        with options.out.open("a") as out:
            out.write(json.dumps(entry) + "\n")
        print(f"{description.property}: {result} {result.seconds:.1f} s", file=sys.stderr)
        entries.append(entry)
    return entries


if __name__ == "__main__":
    sys.exit(main())
