"""E.1: how much the learnt rules lean on their fail-safe.

python experiments/14_fail_safe.py --scale smoke --out OUT
"""

import sys

from laboratory import paper, tables
from laboratory.statistics import Run
from suite import GNN, ONLINE, Experiment, Results, by_title, main


def results(runs: list[Run]) -> Results:
    """Shares of decisions."""
    return Results([tables.fail_safe(runs, "Who decides", by=by_title)])


FAIL_SAFE = Experiment(
    name="14_fail_safe",
    title="Dependence on the fail-safe (E.1)",
    networks=("base", "wide", "deep"),
    methods=(GNN, ONLINE),
    results=results,
    beside=(paper.FAIL_SAFE,),
)

if __name__ == "__main__":
    sys.exit(main(FAIL_SAFE))
