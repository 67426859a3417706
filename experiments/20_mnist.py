"""F.1 to F.5: the same on MNIST: table, figure, fail-safe, geometric means.

    python experiments/20_mnist.py --scale smoke --out OUT

Networks and properties are those that come with bough; the paper's own were not published.
"""

import sys

from laboratory import paper, plots, tables
from laboratory.statistics import Run, renamed
from suite import BABSR, FSB, GNN, MIP, ONLINE, REDUCED, Experiment, Results, by_title, main


def results(runs: list[Run]) -> Results:
    """F.3, F.4 and F.5."""
    learnt = renamed(runs, {name: name for name in (GNN, ONLINE)})
    return Results(
        [
            tables.performance(runs, "MNIST (F.3)", by=by_title, measures=tables.OURS),
            tables.fail_safe(learnt, "Who decides (F.4)", by=by_title),
            tables.performance(runs, "Geometric means (F.5)", by=by_title, mean="geometric", measures=tables.OURS),
        ],
        {"": plots.cactus(runs, by=by_title)},
    )


MNIST = Experiment(
    name="20_mnist",
    title="MNIST (F.1 to F.5)",
    networks=("mnist_base", "mnist_wide", "mnist_deep"),
    methods=(BABSR, MIP, FSB, GNN, REDUCED, ONLINE),
    results=results,
    beside=(paper.MNIST, paper.MNIST_FAIL_SAFE, paper.MNIST_GEOMETRIC),
)

if __name__ == "__main__":
    sys.exit(main(MNIST))
