"""All branching rules on the same properties and bounds: tables of properties enter, records and one table leave.

    BOUGH_DATA=... python experiments/06_branching_rules.py --out rules --timeout 30
        --rows mnist mnist_base/easy 20 --rows $BOUGH_DATA/data/paper_results.csv cifar_base_kw/easy 10
        [--rule kfsb ...] [--seed 0] [--cheapest 6] [--fields bounds=dual,intermediate=fixed] [--once] [--resume]

`--rows TABLE NETWORK COUNT` takes the first COUNT properties from a table that `bough properties` wrote, or from the
paper's, whose network has NETWORK in its name and whose image is at hand; NETWORK/easy means those of one difficulty,
and with `--seed` they are drawn. Every rule is run twice: eight domains a step, where branches and bounds are counted,
and with as many as bough takes by itself, where seconds are. Means are over what all rules that solved anything solved;
since one weak rule can leave little of that, each is also held against --against on what both solved. The files lie
under --out, and `--resume` goes on with what is there.
"""

import argparse
import math
import os
import random
import sys
from collections.abc import Sequence
from functools import lru_cache
from pathlib import Path
from statistics import fmean
from typing import Any

import torch

from bough.bench.engines import run_tasks
from bough.bench.ledger import Ledger
from bough.bench.methods import parse_method
from bough.bench.tally import progress_line
from bough.bench.tasks import Selection, plan
from bough.bounds.base import Capability
from bough.branching.base import KNOWN_RULES
from bough.budget import Deadline
from bough.files.writing import make_folder
from bough.making import export
from bough.report.runs import SOLVED
from bough.zoo import datasets, shipped
from bough.zoo.datasets import Images
from bough.zoo.table import Row, read_table

SMALL_BATCH = 8
Entry = dict[str, Any]
Runs = dict[tuple[str, str], Entry]  # by network and property


def main() -> int:
    """Write the problems, run what is not there yet, print the table."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--out", type=Path, required=True, help="a folder")
    parser.add_argument("--rows", nargs=3, action="append", required=True, metavar=("TABLE", "NETWORK", "COUNT"))
    parser.add_argument("--rule", action="append", help="may be given again; by default all that split ReLUs")
    parser.add_argument("--against", default="babsr", help="the rule whose branches others are divided by")
    parser.add_argument("--seed", type=int, help="draw the rows")
    parser.add_argument("--cheapest", type=int, help="of these rows, so many that took the reference method least")
    parser.add_argument("--networks", type=Path, help="where the tables' networks are")
    parser.add_argument("--data", type=Path, help="where the images are")
    parser.add_argument("--fields", default="bounds=dual", help="of every method, as for `bough bench --method`")
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--once", action="store_true", help="eight domains a step only; seconds are of that run, too")
    parser.add_argument("--timeout", type=float, default=30.0)
    parser.add_argument("--limit-seconds", type=float, default=math.inf, help="start no run after so many")
    parser.add_argument("--resume", action="store_true")
    options = parser.parse_args()
    torch.set_num_threads(1)
    splitting = [rule.name for rule in KNOWN_RULES.entries() if Capability.INPUT_PARTS not in rule.needs]
    rules = options.rule or splitting
    make_folder(options.out, resume=options.resume)
    if not (options.out / export.INSTANCES).exists():
        write_problems(options)
    batches = (SMALL_BATCH,) if options.once else (SMALL_BATCH, None)
    described = {(rule, batch): method(options.fields, rule, batch) for rule in rules for batch in batches}
    methods = {key: parse_method(text, options.device) for key, text in described.items()}
    instances, records = options.out / export.INSTANCES, options.out / "records.jsonl"
    tasks = plan(instances, list(methods.values()), Selection(timeout=options.timeout), {})
    with Ledger(records, resume=True, note=print) as ledger:
        done = ledger.done

    def progress(count: int, entry: Entry) -> None:
        print(f"{count}/{len(tasks)}  {progress_line(entry)}", file=sys.stderr, flush=True)

    entries = run_tasks(tasks, done, records, progress, Deadline.after(min(options.limit_seconds, 1e9)))
    runs = {key: {_asked(e): e for e in entries if e["method"] == methods[key].name} for key in methods}
    if options.once:
        runs |= {(rule, None): runs[rule, SMALL_BATCH] for rule in rules}
    print(table(rules, runs, options.against))
    return 0 if len(entries) == len(tasks) else 3


def method(fields: str, rule: str, batch: int | None) -> str:
    """A method as `bough bench` is given one."""
    return f"{fields},branching={rule}" + ("" if batch is None else f",batch={batch}")


def write_problems(options: argparse.Namespace) -> None:
    """The chosen rows as files; the shared data is where they are looked for."""
    shared = Path(os.environ.get("BOUGH_DATA", "../shared")) / "data"
    folder = options.data or shared / "images"

    @lru_cache
    def images_of(name: str, split: str) -> Images:
        return datasets.load(name, split, folder)

    rows: list[Row] = []
    for path, named, count in options.rows:
        network, _, difficulty = named.partition("/")
        listed = read_table(shipped.table_path(Path(path)))
        fitting = [r for r in listed if network in r.network and difficulty in ("", r.difficulty)]
        usable = list(export.ready(fitting, images_of, lambda _: None))
        if options.seed is not None:
            random.Random(options.seed).shuffle(usable)
        rows += usable[: int(count)]
    if options.cheapest is not None:
        rows = sorted(rows, key=lambda row: row.seconds or 0.0)[: options.cheapest]
    folders = [Path(), shared / "networks", *(Path(path).parent for path, _, _ in options.rows), shipped.NETWORKS]
    networks = export.check_networks(rows, images_of, folders if options.networks is None else [options.networks])
    export.write_problems(options.out, rows, images_of, networks, options.timeout)


def _asked(entry: Entry) -> tuple[str, str]:
    return entry["network"], entry["property"]


def table(rules: Sequence[str], runs: dict[tuple[str, int | None], Runs], against: str) -> str:
    """Markdown: a line per rule."""
    common = {batch: _common([runs[rule, batch] for rule in rules]) for batch in (SMALL_BATCH, None)}
    few, all_ = len(common[SMALL_BATCH]), len(common[None])
    over = f"over {few} properties solved by all rules that solved any; seconds at the default batch, over {all_}"
    lines = [f"Branches and bounds at a batch of {SMALL_BATCH}, {over}. Mean / geometric mean.", ""]
    lines.append(f"| rule | solved | branches | bounds | branches / {against}'s | solved | seconds |")
    lines.append("|---|---|---|---|---|---|---|")
    for rule in rules:
        small, large = runs[rule, SMALL_BATCH], runs[rule, None]
        cells = [rule, f"{_solved(small)} of {len(small)}"]
        cells += [_means(small, common[SMALL_BATCH], figure, ".1f") for figure in ("branches", "bounds")]
        cells.append(_ratio(small, runs.get((against, SMALL_BATCH), {})))
        cells += [f"{_solved(large)} of {len(large)}", _means(large, common[None], "seconds", ".2f")]
        lines.append("| " + " | ".join(cells) + " |")
    return "\n".join(lines)


def _solved(runs: Runs) -> int:
    return sum(e["verdict"] in SOLVED for e in runs.values())


def _common(every: Sequence[Runs]) -> set[tuple[str, str]]:
    solved = [{key for key, e in runs.items() if e["verdict"] in SOLVED} for runs in every]
    return set.intersection(*([s for s in solved if s] or [set()]))


def _means(runs: Runs, common: set[tuple[str, str]], figure: str, form: str) -> str:
    values = [float(runs[key][figure]) for key in common if key in runs and runs[key]["verdict"] in SOLVED]
    if not values:
        return "-"
    return f"{fmean(values):{form}} / {_geometric(values) - 1:{form}}"


def _ratio(runs: Runs, others: Runs) -> str:
    """Geometric mean over what both solved, and how many that is."""
    both = [key for key in runs.keys() & others.keys() if {runs[key]["verdict"], others[key]["verdict"]} <= {*SOLVED}]
    if not both:
        return "-"
    mean, other_mean = (_geometric([of[key]["branches"] for key in both]) for of in (runs, others))
    return f"{mean / other_mean:.2f} ({len(both)})"


def _geometric(values: Sequence[float]) -> float:
    """Of values shifted by 1, since a property proved at the root takes no branch."""
    return math.exp(fmean(math.log1p(v) for v in values))


if __name__ == "__main__":
    sys.exit(main())
