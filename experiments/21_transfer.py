"""F.6: a GNN that learnt on another data set, against one that learnt on this one and against BaBSR.

    python experiments/21_transfer.py --scale small --out OUT --weights foreign=FILE

The paper's GNN of CIFAR lost to BaBSR on all 20 MNIST properties tried. At smoke, the other data are another network.
"""

import sys

from laboratory import plots, tables
from laboratory.statistics import Run
from suite import BABSR, FOREIGN, GNN, Experiment, Results, main


def results(runs: list[Run]) -> Results:
    """All together, and point by point."""
    return Results(
        [
            tables.performance(runs, "MNIST Base", measures=tables.OURS),
            tables.wins(runs, BABSR, "Branches against BaBSR"),
        ],
        {"": plots.scatter(runs, BABSR, FOREIGN, "branches")},
    )


TRANSFER = Experiment(
    name="21_transfer",
    title="Transfer between data sets (F.6)",
    networks=("mnist_base",),
    methods=(BABSR, GNN, FOREIGN),
    results=results,
)

if __name__ == "__main__":
    sys.exit(main(TRANSFER))
