"""Table 1: methods on Base, by difficulty of the property.

python experiments/10_table_1.py --scale smoke --out OUT
"""

import sys

from laboratory import paper, plots, tables
from laboratory.statistics import Run
from suite import BABSR, FSB, GNN, MIP, ONLINE, REDUCED, Experiment, Results, main


def results(runs: list[Run]) -> Results:
    """The table, who wins, and two methods point by point."""
    return Results(
        [
            tables.performance(runs, "Base by difficulty", by="difficulty", measures=tables.OURS),
            tables.wins(runs, BABSR, "Branches against BaBSR"),
            tables.wins(runs, GNN, "Time against GNN", figure="seconds"),
        ],
        {"": plots.scatter(runs, BABSR, GNN, "branches", by="difficulty")},
    )


TABLE_1 = Experiment(
    name="10_table_1",
    title="Base by difficulty (Table 1)",
    networks=("base",),
    methods=(BABSR, MIP, FSB, GNN, REDUCED, ONLINE),
    results=results,
    beside=(paper.TABLE_1,),
)

if __name__ == "__main__":
    sys.exit(main(TABLE_1))
