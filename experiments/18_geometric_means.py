"""E.5: tables 1 and 2 with geometric means, which single properties sway less.

python experiments/18_geometric_means.py --scale smoke --out OUT
"""

import sys
from typing import Any

from laboratory import paper, tables
from laboratory.statistics import Run
from suite import BABSR, FSB, GNN, MIP, ONLINE, Experiment, Results, by_title, main


def results(runs: list[Run]) -> Results:
    """Base by difficulty, and the larger networks."""
    base = [run for run in runs if by_title(run) == "Base"]
    larger = [run for run in runs if by_title(run) != "Base"]
    how: dict[str, Any] = {"mean": "geometric", "measures": tables.OURS}
    made = [tables.performance(base, "Base", by="difficulty", **how)] if base else []
    return Results([*made, *([tables.performance(larger, "Wide and Deep", by=by_title, **how)] if larger else [])])


GEOMETRIC = Experiment(
    name="18_geometric_means",
    title="Geometric means (E.5)",
    networks=("base", "wide", "deep"),
    methods=(BABSR, MIP, FSB, GNN, ONLINE),
    results=results,
    beside=(paper.GEOMETRIC_1, paper.GEOMETRIC_2),
)

if __name__ == "__main__":
    sys.exit(main(GEOMETRIC))
