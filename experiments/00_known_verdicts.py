"""Runs bough on competition instances with known verdicts: instance lists enter, records and a table leave.

    BOUGH_DATA=... python experiments/00_known_verdicts.py --out results.jsonl [--intermediate NAME] [--timeout 20]
    [--jobs 2]

The sets are those of docs/results.md. A run that is already in the output file is not repeated. Exit status 1 if any
verdict is wrong.
"""

import argparse
import csv
import json
import os
import sys
from collections.abc import Iterator
from concurrent.futures import ProcessPoolExecutor, as_completed
from pathlib import Path
from statistics import mean, median
from typing import Any

SETS = {  # name: (benchmark, which rows of its list)
    "test": ("test", slice(None)),
    "collins_rul_cnn_2022": ("collins_rul_cnn_2022", slice(None)),
    "sat_relu (every third)": ("sat_relu", slice(None, None, 3)),
    "mnist_fc 256x2": ("mnist_fc", slice(0, 30)),
    "cersyve": ("cersyve", slice(None)),
}
WORD = {"sat": "falsified", "unsat": "verified"}


def known(data: Path) -> dict[tuple[str, str, str], str]:
    """Verdicts on record, by benchmark, network and property."""
    with (data / "vnncomp" / "known_results.csv").open() as rows:
        return {(r["benchmark"], r["network"], r["property"]): r["verdict"] for r in csv.DictReader(rows)}


def one(name: str, network: str, prop: str, options: dict[str, Any]) -> dict[str, Any]:
    """One run, in a process of its own pool; an error is a row."""
    import torch

    from bough.api import load_network, load_problem
    from bough.options import Options
    from bough.plan import make_plan, settings_of
    from bough.report.record import Run, record

    torch.set_num_threads(1)
    how = Options(**options)
    settings = settings_of(how)
    try:
        problem = load_problem(load_network(network), prop)
        plan = make_plan(how, problem.network)
        settings = plan.settings
        return {"set": name, **record(Run(network, prop, "bab", settings), plan.solve(problem))}
    except Exception as error:  # noqa: BLE001 - a crash is a row of the table
        return {"set": name, **record(Run(network, prop, "bab", settings), None, f"{type(error).__name__}: {error}")}


def tasks(data: Path, sets: list[str]) -> Iterator[tuple[str, str, str]]:
    """Set name, network and property of every run."""
    from bough.problem.instances import read_instances

    for name in sets:
        folder, rows = SETS[name]
        for instance in read_instances(data / "vnncomp" / folder / "instances.csv")[rows]:
            yield name, str(instance.network), str(instance.property)


def stem(path: str) -> str:
    """The name that known_results.csv uses."""
    return Path(path).name.split(".onnx")[0].split(".vnnlib")[0]


def expected(entry: dict[str, Any], verdicts: dict[tuple[str, str, str], str]) -> str | None:
    """The verdict on record for a run, in bough's words."""
    key = (SETS[entry["set"]][0], stem(entry["network"]), stem(entry["property"]))
    return WORD.get(verdicts.get(key, ""))


def table(entries: list[dict[str, Any]], verdicts: dict[tuple[str, str, str], str]) -> tuple[str, int]:
    """The summary as Markdown, and the number of wrong verdicts."""
    lines = [
        (
            "| set | instances | verified | falsified | solved | wrong | errors | median s (solved) | mean s (all) | "
            "branches, median |"
        )
    ]
    lines.append("|---|---|---|---|---|---|---|---|---|---|")
    wrong_in_all = 0
    for name in SETS:
        rows = [e for e in entries if e["set"] == name]
        if not rows:
            continue
        solved = [e for e in rows if e["verdict"] in WORD.values()]
        wrong = [e for e in solved if (truth := expected(e, verdicts)) is not None and truth != e["verdict"]]
        wrong_in_all += len(wrong)
        count = {v: sum(e["verdict"] == v for e in rows) for v in WORD.values()}
        cells = [name, len(rows), count["verified"], count["falsified"], len(solved), len(wrong)]
        cells.append(sum(e["error"] is not None for e in rows))
        cells.append(f"{median(e['seconds'] for e in solved):.2f}" if solved else "-")
        cells.append(f"{mean(e['seconds'] or 0.0 for e in rows):.2f}")
        cells.append(f"{median(e['branches'] for e in solved):.0f}" if solved else "-")
        lines.append("| " + " | ".join(map(str, cells)) + " |")
        lines += [f"WRONG: {e['network']} {e['property']} said {e['verdict']}" for e in wrong]
    return "\n".join(lines), wrong_in_all


def main() -> int:
    """Run what is missing, then print the table."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--out", type=Path, default=Path("known-verdicts.jsonl"))
    parser.add_argument("--timeout", type=float, default=20.0)
    parser.add_argument("--intermediate", default="tight")
    parser.add_argument("--branching", default="babsr")
    parser.add_argument("--jobs", type=int, default=2)
    parser.add_argument("--sets", nargs="+", default=list(SETS), choices=list(SETS))
    options = parser.parse_args()
    data = Path(os.environ.get("BOUGH_DATA", "../shared"))
    done = [json.loads(line) for line in options.out.read_text().splitlines()] if options.out.exists() else []
    finished = {(e["set"], e["network"], e["property"]) for e in done}
    missing = [t for t in tasks(data, options.sets) if t not in finished]
    print(
        f"{len(missing)} runs of at most {options.timeout:g} s, {options.jobs} at a time, {len(finished)} are done",
        flush=True,
    )
    chosen = {"timeout": options.timeout, "intermediate": options.intermediate, "branching": options.branching}
    verdicts = known(data)
    with ProcessPoolExecutor(options.jobs) as pool, options.out.open("a") as out:
        for future in as_completed([pool.submit(one, *t, chosen) for t in missing]):
            entry = future.result()
            out.write(json.dumps(entry) + "\n")
            out.flush()
            done.append(entry)
            answer, truth = entry["verdict"] or entry["error"], expected(entry, verdicts)
            print(
                f"{len(done):4d} {stem(entry['network'])} {stem(entry['property'])}: "
                f"{answer} (known: {truth}) {entry['seconds'] or 0:.1f} s",
                flush=True,
            )
    text, wrong = table(done, verdicts)
    print(text)
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
