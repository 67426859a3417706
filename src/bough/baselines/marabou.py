"""Baseline `marabou`: the Marabou verifier on the same instance, clause by clause, where it is installed.

It reads the network's own ONNX file where there is one; else the network as bough read it is written for it.
"""

import tempfile
from dataclasses import dataclass
from pathlib import Path
from typing import final

import torch

from bough.baselines.base import AbstractBaseline, BaselineEntry, BaselineRun
from bough.budget import OutOfTime
from bough.errors import SolverFailure
from bough.problem.onnx_writer import write_network
from bough.solvers import marabou


@final
@dataclass(frozen=True)
class Marabou(AbstractBaseline):
    """Marabou with its own options, on one thread."""

    @property
    def title(self) -> str:
        """Its name and version."""
        return marabou.title()

    def begin(self, run: BaselineRun) -> None:
        """Nothing: Marabou has bounds of its own."""

    def decide(self, run: BaselineRun, clause: int) -> None:
        """Ask, and try the point that comes back."""
        asked, source = run.problem.property.clauses[clause], Path(run.problem.network_name)
        box = run.problem.property.boxes[asked.box]
        limits, rows = (box.lower.numpy(), box.upper.numpy()), asked.coefficients.numpy()
        run.progress(clause, -torch.inf, 0)
        with tempfile.TemporaryDirectory() as folder:
            if source.suffix != ".onnx" or not source.is_file():
                source = Path(folder) / "network.onnx"
                write_network(run.problem.network, source)
            said = marabou.ask(source, limits, rows, asked.offsets.numpy(), run.deadline)
        run.nodes += said.nodes
        if said.answer == marabou.OUT_OF_TIME:
            raise OutOfTime
        if said.answer == marabou.UNSAT:
            run.safe.add(clause)
        elif said.point is not None:
            run.try_point(clause, box.project(torch.from_numpy(said.point)))
        else:
            raise SolverFailure(f"{self.title} ended with {said.answer}")


BASELINES = (
    BaselineEntry(
        name="marabou",
        words="the Marabou verifier on the same instance, where maraboupy is installed",
        make=lambda settings: Marabou(),
        check=marabou.check_installed,
    ),
)
