"""D.3: how strong the baselines are: Neurify's rule against BaBSR, the tightened MIP against MIPplanet.

    python experiments/13_baselines.py --scale smoke --out OUT

The paper ran Neurify itself; here its branching rule runs in bough's search, so that only the rule differs. It found
that Neurify timed out on 183 of 200 properties that BaBSR solves within a minute; that MIPplanet took 1732.18 seconds
on average where the tightened MIP took 2736.60, and that it was faster on 78 of 100.
"""

import sys

from laboratory import plots, tables
from laboratory.statistics import Run, renamed
from suite import BABSR, MIP, NEURIFY, TIGHT, Experiment, Results, main


def results(runs: list[Run]) -> Results:
    """Two pairs."""
    searches, programs = (renamed(runs, {name: name for name in pair}) for pair in ((BABSR, NEURIFY), (MIP, TIGHT)))
    return Results(
        [
            tables.performance(searches, "Neurify's rule against BaBSR", measures=tables.OURS),
            tables.wins(searches, NEURIFY, "Branches against Neurify's rule"),
            tables.performance(
                programs, "The tightened MIP against MIPplanet", measures=("seconds", "unsolved", "par2")
            ),
            tables.wins(programs, TIGHT, "Time against the tightened MIP", figure="seconds"),
        ],
        {"_rules": plots.scatter(searches, NEURIFY, BABSR), "_mip": plots.scatter(programs, TIGHT, MIP)},
    )


BASELINES = Experiment(
    name="13_baselines",
    title="Baselines (D.3)",
    networks=("base",),
    methods=(BABSR, NEURIFY, MIP, TIGHT),
    results=results,
)

if __name__ == "__main__":
    sys.exit(main(BASELINES))
