"""Learnt rules beside hand-made ones, pair by pair: records of `bough bench` enter, tables per network leave.

    bough bench INSTANCES --out small.jsonl --timeout 20 --jobs 8
        --method bounds=dual,batch=8,branching=gnn,weights=FILE --method bounds=dual,batch=8,branching=fsb ...
    python experiments/compare_rules.py small.jsonl [MORE.jsonl ...] [--against babsr --against fsb]

Branches and bounds are geometric means over what both of a pair solved, divided by the other's: so a rule that solves
little does not hide what others do. Only the rule may differ: runs of several batches or bounds are refused. Seconds,
what share of them went into decisions, and depths are over what all rules solved that solved any.
"""

import argparse
import sys
from collections.abc import Iterable, Sequence
from pathlib import Path
from statistics import fmean

from bough.errors import BadInput
from bough.report.runs import read_runs
from laboratory.statistics import (
    Figure,
    Run,
    compare,
    dependence,
    geometric_mean,
    grouped,
    instance,
    is_solved,
    network_name,
)
from laboratory.tables import Heading, Line, Table

AGAINST = ("babsr", "fsb", "kfsb", "strong")
FIGURES: tuple[Figure, ...] = ("branches", "bounds")


def main() -> int:
    """Read, check, print."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("runs", nargs="+", type=Path)
    parser.add_argument("--against", action="append", help=f"rules to be held against; {', '.join(AGAINST)}")
    options = parser.parse_args()
    try:
        runs = named(read_runs(options.runs, note=lambda line: print(line, file=sys.stderr)))
        rules = list(dict.fromkeys(run["method"] for run in runs))
        against = [name for name in options.against or AGAINST if name in rules]
        for figure in FIGURES:
            print(ratios(runs, rules, against, figure).markdown())
        print(costs(runs, rules).markdown())
    except BadInput as error:
        print(f"{Path(sys.argv[0]).name}: {error}", file=sys.stderr)
        return 2
    return 0


def named(runs: Iterable[Run]) -> list[Run]:
    """The runs with their rules for methods, a learnt one with the folder or name of its weights."""
    renamed: list[Run] = []
    conditions: set[tuple[object, ...]] = set()
    for run in runs:
        weights = Path(run.get("weights") or "")
        learnt = weights.parent.name or weights.name
        name = f"{run['branching']} ({learnt})" if learnt else str(run["branching"])
        renamed.append({**run, "method": name, "network": network_name(run), "property": Path(run["property"]).name})
        settings = [run[key] for key in ("bounder", "intermediate", "device", "timeout", "semantics")]
        conditions.add((*settings, run.get("levels", 1)))
        conditions.add(("batch of the method", "batch=" in run["method"] and run["batch"]))
    if len(conditions) != 2:
        raise BadInput(f"only the rule may differ, and there are {sorted(map(str, conditions))}")
    return renamed


def ratios(runs: Sequence[Run], rules: Sequence[str], against: Sequence[str], figure: Figure) -> Table:
    """A line for each rule; for each of `against` a column per network, and one for all of them."""
    groups = {**grouped(runs, "network"), "all": runs}
    columns = [(other, network) for other in against for network in groups]
    headings = [
        Heading(f"of {other}'s", name.removeprefix("cifar_").removesuffix("_kw"), ".2f") for other, name in columns
    ]
    lines = []
    for rule in rules:
        cells = [_ratio(groups[network], rule, other, figure) for other, network in columns]
        lines.append(Line(rule, tuple(cells)))
    return Table(f"{figure}, geometric means over what both solved", "rule", tuple(headings), tuple(lines))


def _ratio(runs: Sequence[Run], rule: str, other: str, figure: Figure) -> float | None:
    if not {rule, other} <= {run["method"] for run in runs}:
        return None
    ratio = compare(runs, (rule, other)).wins(rule, other, figure).ratio
    return None if ratio is None else ratio.geometric


def costs(runs: Sequence[Run], rules: Sequence[str]) -> Table:
    """Solved, seconds and what of them is decisions, and how many of these are the rule's own."""
    every = {rule: [run for run in runs if run["method"] == rule] for rule in rules}
    solved = [{instance(run) for run in own_runs if is_solved(run)} for own_runs in every.values()]
    common = set.intersection(*([some for some in solved if some] or [set()]))
    headings = (
        Heading("", "solved", "d"),
        Heading("", "of", "d"),
        Heading("", "depth, mean", ".1f"),
        Heading("", "seconds, mean", ".2f"),
        Heading("", "geometric mean", ".2f"),
        Heading("", "for decisions", ".1%"),
        Heading("", "decided itself, mean", ".1%"),
        Heading("", "least", ".1%"),
    )
    lines = []
    for rule, own_runs in every.items():
        shared = [run for run in own_runs if is_solved(run) and instance(run) in common]
        seconds = [float(run["seconds"]) for run in shared]
        deciding = sum(float(run["engine"].get("decision_seconds", 0.0)) for run in shared)
        own = dependence(own_runs, rule)
        cells = (
            sum(map(is_solved, own_runs)),
            len(own_runs),
            fmean(run["depth"] for run in shared) if shared else None,
            fmean(seconds) if seconds else None,
            geometric_mean(seconds) if seconds else None,
            deciding / sum(seconds) if seconds else None,
            own.learnt if own else None,
            1 - own.most if own else None,
        )
        lines.append(Line(rule, cells))
    return Table(f"Seconds over the {len(common)} that all solved that solved any", "rule", headings, tuple(lines))


if __name__ == "__main__":
    sys.exit(main())
