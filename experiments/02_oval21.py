"""OVAL21 beside alpha-beta-CROWN on the same kind of GPU: the competition's 30 instances enter, a table leaves.

    BOUGH_DATA=... python experiments/02_oval21.py --out oval21.jsonl [--timeout 20] [--device cuda] [--resume]

Seconds count as in alpha-beta-CROWN's own list, from a loaded process: one instance is solved first and not counted, so
that kernels are compiled. Runs through `bough bench`'s runner, so a run that is cut off goes on with --resume.
"""

import argparse
import csv
import json
import os
import sys
from pathlib import Path
from statistics import median
from typing import Any

SOLVED = ("verified", "falsified")
SHARE, FLOOR = 0.2, 0.5  # of alpha-beta-CROWN's time, or seconds, whichever is larger


def main() -> int:
    """Run, compare, print."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--timeout", type=float, default=20.0)
    parser.add_argument("--device", default="auto")
    parser.add_argument("--resume", action="store_true")
    parser.add_argument("--table-only", action="store_true", help="only print the table of what is in --out")
    options = parser.parse_args()
    data = Path(os.environ.get("BOUGH_DATA", "../shared")) / "vnncomp" / "oval21"
    if not options.table_only:
        run(data / "instances.csv", options)
    with options.out.open() as lines:
        records = [json.loads(line) for line in lines]
    return table(data, records)


def run(instances: Path, options: argparse.Namespace) -> None:
    """Warm up on one instance, then bench them all."""
    from bough.api import load_network, load_problem, solve
    from bough.cli import main as bough
    from bough.options import Options
    from bough.problem.instances import read_instances

    first = read_instances(instances)[2]
    warm = solve(load_problem(load_network(first.network), first.property), Options(timeout=30, device=options.device))
    print(f"warm-up: {warm.seconds:.1f} s, not counted", file=sys.stderr)
    words = ["bench", str(instances), "--out", str(options.out), "--timeout", str(options.timeout)]
    words += ["--device", options.device, *(["--resume"] if options.resume else [])]
    words += ["--engine", "here"]  # in this process, which is warm
    bough(words)


def table(data: Path, records: list[dict[str, Any]]) -> int:
    """Markdown, one row per instance; exit status 1 where the bar is missed."""
    with (data / "abcrown_h200_20s.csv").open() as lines:
        peer = list(csv.DictReader(lines))
    with (data / "instances.csv").open() as lines:
        names = [Path(row[1]).name.removesuffix(".gz").removesuffix(".vnnlib") for row in csv.reader(lines)]
    own_runs = {Path(r["property"]).name.removesuffix(".gz").removesuffix(".vnnlib"): r for r in records}
    print("| # | instance | bough | seconds | branches | bounds | branches/s | alpha-beta-CROWN | seconds | ratio |")
    print("|---|---|---|---|---|---|---|---|---|---|")
    ratios, missed = [], []
    for k, (name, other) in enumerate(zip(names, peer, strict=True)):
        if name not in own_runs:
            continue
        r, peer_seconds = own_runs[name], float(other["seconds"])
        solved = other["result"] != "unknown"
        ratio = r["seconds"] / peer_seconds if solved else None
        if ratio is not None:
            ratios.append(ratio)
            if r["verdict"] not in SOLVED or r["seconds"] > max(FLOOR, SHARE * peer_seconds):
                missed.append(k)
        print(
            f"| {k} | {name} | {r['verdict']} | {r['seconds']:.2f} | {r['branches']} | {r['bounds']} | "
            f"{r['branches'] / r['seconds']:.0f} | {other['result']} | {peer_seconds:.2f} | "
            f"{'' if ratio is None else f'{ratio:.3f}'} |"
        )
    count = sum(r["verdict"] in SOLVED for r in own_runs.values())
    print(f"\nsolved {count} of {len(own_runs)}; alpha-beta-CROWN {len(ratios)}; median ratio {median(ratios):.3f}")
    print(f"instances of alpha-beta-CROWN not within the bar: {missed or 'none'}")
    return 1 if missed else 0


if __name__ == "__main__":
    sys.exit(main())
