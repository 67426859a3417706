"""Learnt rules beside hand-made ones, pair by pair: records of `bough bench` enter, tables per network leave.

    bough bench INSTANCES --out small.jsonl --timeout 20 --jobs 8
        --method bounds=dual,batch=8,branching=gnn,weights=FILE --method bounds=dual,batch=8,branching=fsb ...
    python experiments/compare_rules.py small.jsonl [MORE.jsonl ...] [--against babsr --against fsb]

Branches and bounds are geometric means over what both of a pair solved, divided by the other's: so a rule that solves
little does not hide what others do. Only the rule may differ: runs of several batches or bounds are refused. Seconds,
and what share of them went into decisions, are over what all rules solved.
"""

import argparse
import json
import sys
from collections.abc import Iterable, Mapping, Sequence
from itertools import chain
from pathlib import Path
from statistics import fmean

from bough.errors import BadInput
from bough.report.statistics import SHIFT, Figure, Run, dependence, figure_of, geometric_mean, is_solved, network_name
from bough.report.tables import Heading, Line, Table

AGAINST = ("babsr", "fsb", "kfsb", "strong")
Runs = Mapping[tuple[str, str], Run]  # of one rule, by network and property


def main() -> int:
    """Read, check, print."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("runs", nargs="+", type=Path)
    parser.add_argument("--against", action="append", help=f"rules to be held against; {', '.join(AGAINST)}")
    options = parser.parse_args()
    try:
        rules = by_rule(chain.from_iterable(map(records, options.runs)))
        against = [name for name in options.against or AGAINST if name in rules]
        for table in (ratios(rules, against, "branches"), ratios(rules, against, "bounds"), costs(rules)):
            print(table.markdown())
    except BadInput as error:
        print(f"{Path(sys.argv[0]).name}: {error}", file=sys.stderr)
        return 2
    return 0


def records(path: Path) -> list[Run]:
    """The runs in a file."""
    try:
        return [json.loads(line) for line in path.read_text().splitlines()]
    except (OSError, ValueError) as error:
        raise BadInput(f"{path} holds no records of `bough bench`: {error}") from error


def by_rule(runs: Iterable[Run]) -> dict[str, dict[tuple[str, str], Run]]:
    """The runs of each rule, which has the folder of its weights in its name."""
    found: dict[str, dict[tuple[str, str], Run]] = {}
    seen: set[tuple[object, ...]] = set()
    for run in runs:
        weights = run.get("weights")
        folder = Path(weights).parent.name if weights else ""
        name = f"{run['branching']} ({folder})" if folder else str(run["branching"])
        found.setdefault(name, {})[network_name(run), Path(run["property"]).name] = run
        seen.add(tuple(run[key] for key in ("bounder", "intermediate", "device", "timeout", "semantics")))
        seen.add(("batch of the method", "batch=" in run["method"] and run["batch"]))
    if len(seen) != 2:
        raise BadInput(f"only the rule may differ, and there are {sorted(map(str, seen))}")
    return found


def ratios(rules: Mapping[str, Runs], against: Sequence[str], figure: Figure) -> Table:
    """A line for each rule; for each of `against` a column per network, and one for all of them."""
    networks = sorted({network for runs in rules.values() for network, _ in runs})
    headings, columns = [], []
    for other in against:
        for network in [*networks, "all"]:
            headings.append(Heading(f"of {other}'s", network.removeprefix("cifar_").removesuffix("_kw"), ".2f"))
            columns.append((other, network))
    lines = []
    for name, runs in rules.items():
        cells = [_ratio(runs, rules[other], network, figure) for other, network in columns]
        lines.append(Line(name, tuple(cells)))
    return Table(f"{figure}, geometric means over what both solved", "rule", tuple(headings), tuple(lines))


def _ratio(mine: Runs, theirs: Runs, network: str, figure: Figure) -> float | None:
    both = [
        key
        for key in mine.keys() & theirs.keys()
        if network in (key[0], "all") and is_solved(mine[key]) and is_solved(theirs[key])
    ]
    if not both:
        return None
    one, other = (
        geometric_mean([figure_of(runs[key], figure) or 0.0 for key in both], SHIFT) for runs in (mine, theirs)
    )
    return (one + SHIFT) / (other + SHIFT)


def costs(rules: Mapping[str, Runs]) -> Table:
    """Solved, seconds and what of them is decisions, and how many of these are the rule's own."""
    common = set.intersection(*({key for key, run in runs.items() if is_solved(run)} for runs in rules.values()))
    headings = (
        Heading("", "solved", "d"),
        Heading("", "of", "d"),
        Heading("", "seconds, mean", ".2f"),
        Heading("", "geometric mean", ".2f"),
        Heading("", "for decisions", ".1%"),
        Heading("", "decided itself, mean", ".1%"),
        Heading("", "least", ".1%"),
    )
    lines = []
    for name, runs in rules.items():
        mine = [runs[key] for key in common]
        seconds = [float(run["seconds"]) for run in mine]
        deciding = sum(float(run["engine"].get("decision_seconds", 0.0)) for run in mine)
        own = dependence(runs.values(), next(iter(runs.values()))["method"])
        cells = (
            sum(map(is_solved, runs.values())),
            len(runs),
            fmean(seconds) if seconds else None,
            geometric_mean(seconds) if seconds else None,
            deciding / sum(seconds) if seconds else None,
            own.learnt if own else None,
            1 - own.most if own else None,
        )
        lines.append(Line(name, cells))
    return Table(f"Seconds over the {len(common)} that all solved", "rule", headings, tuple(lines))


if __name__ == "__main__":
    sys.exit(main())
