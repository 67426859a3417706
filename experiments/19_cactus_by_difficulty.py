"""E.6: the main figure for easy, medium and hard properties of Base.

python experiments/19_cactus_by_difficulty.py --scale smoke --out OUT
"""

import sys

from laboratory import plots, tables
from laboratory.statistics import FIGURES, Run
from suite import BABSR, FSB, GNN, MIP, ONLINE, Experiment, Results, main


def results(runs: list[Run]) -> Results:
    """A figure for each kind of cost."""
    return Results(
        [tables.performance(runs, "Solved", by="difficulty", measures=("solved", "par2", "errors"))],
        {f"_{figure}": plots.cactus(runs, figure, by="difficulty") for figure in FIGURES},
    )


CACTUS = Experiment(
    name="19_cactus_by_difficulty",
    title="Solved against time, by difficulty (E.6)",
    networks=("base",),
    methods=(BABSR, MIP, FSB, GNN, ONLINE),
    results=results,
)

if __name__ == "__main__":
    sys.exit(main(CACTUS))
