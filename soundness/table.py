"""Verdicts against those on record: a stratified choice of competition instances, by both bounders and three rules.

    BOUGH_DATA=... python soundness/table.py --out FILE.jsonl [--count 120] [--seed 0] [--timeout 5] [--jobs 1]
    [--resume] [--dry-run] [--limit-seconds S] [--table-only]

Instances are drawn with a seed: every benchmark has its share and at least a few, and within a benchmark so have the
verdicts on record and the networks. `--count 0` takes all. It runs on `bough bench`'s runner, so that a run that is
killed or cut off goes on with --resume. Wrong is a verdict that contradicts the one on record, or that of
another method on the same instance. Exit status 4 if any is wrong, 3 if runs are left or ended with an error.
"""

import argparse
import os
import sys
from collections import Counter, defaultdict
from collections.abc import Mapping, Sequence
from fractions import Fraction
from pathlib import Path
from random import Random

ROOT = Path(__file__).resolve().parent.parent
if __name__ == "__main__":
    sys.path.insert(0, str(ROOT))

from bough.bench.engines import Processes, run_tasks
from bough.bench.ledger import Ledger, read_records
from bough.bench.methods import parse_method
from bough.bench.tally import is_wrong, progress_line
from bough.bench.tasks import Asked, Known, Selection, Task, known_verdict, plan, read_known, read_list
from bough.budget import Deadline
from bough.errors import BadInput
from bough.jobs.pool import Limits
from bough.report.runs import SOLVED, Entry

BOUNDERS = ("dual", "lp")
RULES = ("babsr", "fsb", "gnn")
LEAST = 4  # of every benchmark, if it has so many


def shares(sizes: Mapping[str, int], count: int) -> dict[str, int]:
    """How many of each: in proportion to its size, by largest remainders, and a few of each where there is room."""
    least = min(LEAST, count // len(sizes))
    given = {name: min(size, least) for name, size in sizes.items()}
    total = sum(sizes.values())
    while sum(given.values()) < min(count, total):
        room = [name for name in sizes if given[name] < sizes[name]]
        lacking = {name: Fraction(sizes[name] * count, total) - given[name] for name in room}
        given[max(room, key=lambda name: (lacking[name], name))] += 1
    return given


def chosen(listed: Sequence[Asked], known: Known, count: int, random: Random) -> list[Asked]:
    """So many of a benchmark's instances, from each verdict on record and each network in turn."""
    strata: dict[tuple[str, str], list[Asked]] = defaultdict(list)
    for row in listed:
        verdict = known_verdict(known, row.instance.network, row.instance.property)
        strata[verdict or "", row.instance.network.name].append(row)
    by_verdict: dict[str, list[list[Asked]]] = defaultdict(list)
    for key in sorted(strata):
        random.shuffle(strata[key])
        by_verdict[key[0]].append(strata[key])
    sizes = {verdict: sum(map(len, lists)) for verdict, lists in by_verdict.items()}
    picked: list[Asked] = []
    for verdict, n in shares(sizes, count).items():
        lists = by_verdict[verdict]
        random.shuffle(lists)
        in_turn = [
            lists[k][depth] for depth in range(max(map(len, lists))) for k in range(len(lists)) if depth < len(lists[k])
        ]
        picked += in_turn[:n]
    order = {id(row): k for k, row in enumerate(listed)}
    return sorted(picked, key=lambda row: order[id(row)])


def tasks_of(data: Path, count: int, seed: int, timeout: float) -> tuple[Task, ...]:
    """The runs: instances of all benchmarks by all methods."""
    known = read_known(data / "known_results.csv")
    lists = {path.parent.name: path for path in sorted(data.glob("*/instances.csv"))}
    if not lists:
        raise BadInput(f"there are no benchmarks in {data}; set BOUGH_DATA to the folder above vnncomp")
    listed = {name: read_list(path) for name, path in lists.items()}
    sizes = {name: len(instances) for name, instances in listed.items()}
    methods = [parse_method(f"bounds={bounds},branching={rule}") for bounds in BOUNDERS for rule in RULES]
    tasks: list[Task] = []
    for name, n in shares(sizes, count or sum(sizes.values())).items():
        if not n:
            continue
        some = chosen(listed[name], known, n, Random(f"{seed} {name}"))
        tasks += plan(lists[name], methods, Selection(timeout=timeout), known, some)
    return tuple(tasks)


def contradictions(entries: Sequence[Entry]) -> list[str]:
    """Verdicts that contradict what is on record, or each other."""
    verdicts: dict[tuple[str, str], set[str]] = defaultdict(set)
    lines = []
    for entry in entries:
        if is_wrong(entry):
            lines.append(f"{progress_line(entry)}: on record is {entry['known']}")
        if entry["verdict"] in SOLVED:
            verdicts[entry["network"], entry["property"]].add(entry["verdict"])
    both = [f"{network} {prop}: methods contradict each other" for (network, prop), v in verdicts.items() if len(v) > 1]
    return lines + both


def table(entries: Sequence[Entry]) -> str:
    """As Markdown: for each benchmark, and all, what every method solved and got wrong."""
    methods = list(dict.fromkeys(entry["method"] for entry in entries))
    names = [method.replace("bounds=", "").replace(",branching=", " ") for method in methods]
    lines = [
        "| benchmark | instances | " + " | ".join(names) + " | wrong | errors |",
        "|" + "---|" * (len(names) + 4),
    ]
    places: dict[str, list[Entry]] = defaultdict(list)
    for entry in entries:
        places[Path(entry["instances"]).parent.name].append(entry)
    for place, part in [*places.items(), ("all", list(entries))]:
        cells = [place, str(len({(e["network"], e["property"]) for e in part}))]
        for method in methods:
            tally = Counter(e["verdict"] for e in part if e["method"] == method)
            cells.append(" + ".join(str(tally[verdict]) for verdict in SOLVED))
        cells += [str(len(contradictions(part))), str(sum(e["error"] is not None for e in part))]
        lines.append("| " + " | ".join(cells) + " |")
    return "\n".join([*lines, "", "In every cell: verified + falsified."])


def main() -> int:
    """Run what is missing, and print the table."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--count", type=int, default=120, help="instances; 0 for all")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--timeout", type=float, default=5.0)
    parser.add_argument("--jobs", type=int, default=1)
    parser.add_argument("--grace", type=float, default=60.0, help="a run is killed so long after its timeout")
    parser.add_argument("--limit-seconds", type=float, default=float("inf"), help="no run is started after so many")
    parser.add_argument("--resume", action="store_true")
    parser.add_argument("--dry-run", action="store_true", help="say what would be run, and run nothing")
    parser.add_argument("--table-only", action="store_true", help="print the table of what is in --out")
    options = parser.parse_args()
    try:
        if options.table_only:
            return report(read_records(options.out), 0)
        data = Path(os.environ.get("BOUGH_DATA", ROOT.parent / "shared")) / "vnncomp"
        tasks = tasks_of(data, options.count, options.seed, options.timeout)
        instances = len({(task.instance.network, task.instance.property) for task in tasks})
        worst = len(tasks) * options.timeout / options.jobs
        print(
            f"{instances} instances, {len(tasks)} runs of {options.timeout:g} s, {worst:.0f} s at most and loading",
            flush=True,
        )
        if options.dry_run:
            for task in tasks:
                print(task.instance.network, task.instance.property, task.method.name, task.known or "not known")
            return 0
        with Ledger(options.out, resume=options.resume, note=lambda line: print(line, flush=True)) as ledger:
            done = ledger.done
        engine = Processes(options.jobs, Limits(grace=options.grace))
        limit = Deadline.after(options.limit_seconds) if options.limit_seconds < float("inf") else Deadline.never()

        def progress(count: int, entry: Entry) -> None:
            print(f"{count}/{len(tasks)}  {progress_line(entry)}", flush=True)

        entries = run_tasks(tasks, done, options.out, progress, limit, engine)
    except BadInput as error:
        print(f"table: {error}", file=sys.stderr)
        return 2
    return report(entries, len(tasks) - len(entries))


def report(entries: Sequence[Entry], left: int) -> int:
    """Print the table, and what is wrong; the exit status."""
    wrong = contradictions(entries)
    print(table(entries))
    for line in wrong:
        print(f"WRONG: {line}")
    if left:
        print(f"{left} runs are left; go on with --resume")
    return 4 if wrong else 3 if left or any(entry["error"] is not None for entry in entries) else 0


if __name__ == "__main__":
    sys.exit(main())
