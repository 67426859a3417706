"""E.2: what primal and dual values are worth: GNN against GNN-R, which does without, and a rule without messages.

python experiments/15_features.py --scale smoke --out OUT
"""

import sys

from laboratory import paper, plots, tables
from laboratory.statistics import Run
from suite import BABSR, GNN, LOCAL, REDUCED, Experiment, Results, main


def results(runs: list[Run]) -> Results:
    """By difficulty, and point by point."""
    return Results(
        [
            tables.performance(runs, "Features", by="difficulty", measures=tables.OURS),
            tables.wins(runs, REDUCED, "Branches against GNN-R"),
        ],
        {"": plots.scatter(runs, REDUCED, GNN, "branches", by="difficulty")},
    )


FEATURES = Experiment(
    name="15_features",
    title="Features: GNN against GNN-R (E.2)",
    networks=("base",),
    methods=(BABSR, GNN, REDUCED, LOCAL),
    results=results,
    beside=(paper.FEATURES,),
)

if __name__ == "__main__":
    sys.exit(main(FEATURES))
