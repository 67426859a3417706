"""The paper's main figure: share of properties solved against time, on Base, Wide and Deep.

    python experiments/12_cactus.py --scale smoke --out OUT

The runs are those of tables 1 and 2. Beside time, branches and bounds are on the axis: bounds count every bound that a
rule had computed in order to decide, and are the honest cost.
"""

import sys

from laboratory import plots, tables
from laboratory.statistics import FIGURES, Run
from suite import BABSR, FSB, GNN, MIP, ONLINE, Experiment, Results, by_title, main


def results(runs: list[Run]) -> Results:
    """A figure for each kind of cost."""
    measures: tuple[tables.Measure, ...] = ("solved", "par2", "errors")
    return Results(
        [tables.performance(runs, "Solved", by=by_title, measures=measures)],
        {f"_{figure}": plots.cactus(runs, figure, by=by_title) for figure in FIGURES},
    )


CACTUS = Experiment(
    name="12_cactus",
    title="Solved against time (the main figure)",
    networks=("base", "wide", "deep"),
    methods=(BABSR, MIP, FSB, GNN, ONLINE),
    results=results,
)

if __name__ == "__main__":
    sys.exit(main(CACTUS))
