"""The baseline `marabou` asks the Marabou verifier, where it is installed, for one clause after another.

Marabou reads the network's own ONNX file where there is one; else the network as bough read it is written for it.
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
        """Name and version of Marabou."""
        return marabou.title()

    def begin(self, run: BaselineRun) -> None:
        """Prepare nothing, since Marabou has bounds of its own."""

    def decide(self, run: BaselineRun, clause: int) -> None:
        """Ask Marabou about a clause, and try the point of its answer."""
        unsafe = run.problem.property.clauses[clause]
        source = Path(run.problem.network_name)
        box = run.problem.property.boxes[unsafe.box]
        limits = (box.lower.numpy(), box.upper.numpy())
        run.progress(clause, -torch.inf, 0)
        with tempfile.TemporaryDirectory() as folder:
            if source.suffix != ".onnx" or not source.is_file():
                source = Path(folder) / "network.onnx"
                write_network(run.problem.network, source)
            answer = marabou.ask(source, limits, unsafe.coefficients.numpy(), unsafe.offsets.numpy(), run.deadline)
        run.nodes += answer.nodes
        if answer.word == marabou.OUT_OF_TIME:
            raise OutOfTime
        if answer.word == marabou.UNSAT:
            run.safe.add(clause)
        elif answer.point is not None:
            run.try_point(clause, box.project(torch.from_numpy(answer.point)))
        else:
            raise SolverFailure(f"{self.title} ended with {answer.word}")


BASELINES = (
    BaselineEntry(
        name="marabou",
        words="the Marabou verifier on the same instance, where maraboupy is installed",
        make=lambda settings: Marabou(),
        check=marabou.check_installed,
    ),
)
