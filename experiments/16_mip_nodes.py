"""E.3: how many nodes MIPplanet's solver visits, and that they say little about its time.

python experiments/16_mip_nodes.py --scale smoke --out OUT
"""

import sys

from laboratory import paper, tables
from laboratory.statistics import Run
from suite import BABSR, GNN, MIP, ONLINE, Experiment, Results, by_title, main


def results(runs: list[Run]) -> Results:
    """Counts over all runs, time-outs included, and their rank correlation with seconds."""
    return Results(
        [
            tables.nodes(runs, "Nodes and branches over all runs", by=by_title),
            tables.performance(runs, "The same properties", by=by_title),
        ]
    )


NODES = Experiment(
    name="16_mip_nodes",
    title="MIPplanet's nodes (E.3)",
    networks=("base", "wide", "deep"),
    methods=(BABSR, MIP, GNN, ONLINE),
    results=results,
    beside=(paper.NODES,),
)

if __name__ == "__main__":
    sys.exit(main(NODES))
