"""Table 2: what was learnt on Base, on the larger networks.

python experiments/11_table_2.py --scale smoke --out OUT
"""

import sys

from laboratory import paper, tables
from laboratory.statistics import Run
from suite import BABSR, FSB, GNN, MIP, ONLINE, REDUCED, Experiment, Results, by_title, main


def results(runs: list[Run]) -> Results:
    """The table, and who wins."""
    return Results(
        [
            tables.performance(runs, "Wide and Deep", by=by_title, measures=tables.OURS),
            tables.wins(runs, BABSR, "Branches against BaBSR", by=by_title),
        ]
    )


TABLE_2 = Experiment(
    name="11_table_2",
    title="Wide and Deep (Table 2)",
    networks=("wide", "deep"),
    methods=(BABSR, MIP, FSB, GNN, REDUCED, ONLINE),
    results=results,
    beside=(paper.TABLE_2,),
)

if __name__ == "__main__":
    sys.exit(main(TABLE_2))
