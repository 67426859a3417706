"""Times whole searches on hard properties of OVAL21: domains and bounds per second, everything included, in a table.

    BOUGH_DATA=... python benchmarks/search.py [--device cuda] [--networks base,wide,deep] [--seconds 6]
                                               [--ascent ascent.jsonl] [--json search.jsonl]

Children are what the search splits off and ascends on; bounds also count the glances by which a branching rule chooses.
With the lines of `benchmarks/ascent.py` for the same device, the last two columns say which share of the bare ascent's
speed, at its batch of 16,384 (or the largest there is) and 20 steps, children reach: over all of the time, and over
what attack, root and the capture of steps leave of it. That was measured on an easier property, of fewer ambiguous
ReLUs, so the share is a guide only.
"""

import argparse
import json
import os
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import torch

from bough.api import load_network, load_problem
from bough.options import Options
from bough.plan import make_plan
from bough.problem.instances import Instance, read_instances
from bough.report.record import Run, record

ROWS = {"base": 5, "wide": 11, "deep": 22}  # of OVAL21's list, from 0: among the hard ones
NETWORKS, SECONDS = {"cpu": "base", "cuda": "base,wide,deep"}, {"cpu": 4.0, "cuda": 6.0}
WARM_SECONDS = 3.0  # on a GPU, not counted: drivers, libraries, compiled kernels
BATCH, STEPS = 16384, 20  # of the bare ascent


def run(name: str, instance: Instance, how: Options) -> dict[str, Any]:
    """One search; its record, with what is worked out from it."""
    problem = load_problem(load_network(instance.network), instance.property)
    plan = make_plan(how, problem.network)
    result = plan.solve(problem)
    entry = record(Run(str(instance.network), instance.property.name, "bab", plan.settings), result)
    engine = entry["engine"]
    aside = entry["attack_seconds"] + engine.get("root_seconds", 0.0) + engine.get("capture_seconds", 0.0)
    left = max(1e-9, entry["seconds"] - aside)
    entry |= {"name": name, "branches_per_second": entry["branches"] / entry["seconds"], "load": os.getloadavg()[0]}
    return entry | {"branches_per_second_of_rest": entry["branches"] / left}


def bare_speeds(path: Path | None, device: str) -> dict[str, tuple[int, float]]:
    """By network: the batch, and domains per second of the bare ascent; the last line for the device counts."""
    by_network: dict[str, tuple[int, float]] = {}
    lines = [] if path is None else [json.loads(text) for text in path.read_text().splitlines()]
    for line in lines:
        if line["machine"]["device"] != device:
            continue
        for name, entry in line["networks"].items():
            speeds = {e["batch"]: e["domains_per_second"] for e in entry["speed"] if e["steps"] == STEPS}
            batch = BATCH if BATCH in speeds else max(speeds)
            by_network[name] = batch, speeds[batch]
    return by_network


def row(entry: dict[str, Any], bare: tuple[int, float] | None) -> str:
    """A line of the table."""
    engine, seconds = entry["engine"], entry["seconds"]
    cells = [
        entry["name"],
        entry["verdict"],
        f"{seconds:.1f}",
        f"{entry['branches']}",
        f"{entry['branches_per_second']:.0f}",
        f"{entry['domains_per_second']:.0f}",
        f"{entry['attack_seconds'] / seconds:.0%}",
        f"{engine.get('root_seconds', float('nan')):.2f}",
        f"{engine.get('capture_seconds', float('nan')):.2f}",
        f"{entry['depth']}",
        f"{entry['batch']}",
        f"{engine.get('root_ambiguous', float('nan')):.0f}",
    ]
    if bare is None:
        return " | ".join(["", *cells, "", "", ""]).strip()
    batch, speed = bare
    whole, rest = entry["branches_per_second"] / speed, entry["branches_per_second_of_rest"] / speed
    return " | ".join(["", *cells, f"{whole:.2f} (batch {batch})", f"{rest:.2f}", ""]).strip()


def main() -> int:
    """Search, print."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--device", choices=("cpu", "cuda"), default="cuda" if torch.cuda.is_available() else "cpu")
    parser.add_argument("--networks", help="of base,wide,deep; on a CPU base only, by default")
    parser.add_argument("--seconds", type=float, help=f"of each search; {SECONDS} by default")
    parser.add_argument("--ascent", type=Path, help="the JSON lines of benchmarks/ascent.py")
    parser.add_argument("--json", type=Path, help="the records are added to this file")
    options = parser.parse_args()
    torch.set_num_threads(1)
    listed = Path(os.environ.get("BOUGH_DATA", "../shared")) / "vnncomp" / "oval21" / "instances.csv"
    if not listed.exists():
        print(f"no list at {listed}; set BOUGH_DATA to the folder that holds vnncomp/")
        return 0
    instances, names = read_instances(listed), (options.networks or NETWORKS[options.device]).split(",")
    how = Options(branching="kfsb", device=options.device, timeout=options.seconds or SECONDS[options.device])
    if options.device == "cuda":
        run(names[0], instances[ROWS[names[0]]], replace(how, timeout=WARM_SECONDS))
    bare = bare_speeds(options.ascent, options.device)
    heads = "network | verdict | s | branches | branches/s | bounds/s | attack | root, s | capture, s | depth | batch"
    print(f"| {heads} | ambiguous | of bare ascent | after the root |")
    print("|---" * 14 + "|")
    for name in names:
        entry = run(name, instances[ROWS[name]], how)
        print(row(entry, bare.get(name)), flush=True)
        if options.json:
            with options.json.open("a") as out:
                out.write(json.dumps(entry) + "\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
