"""The only door to Marabou, an optional verifier (`pip install maraboupy`): an ONNX file, a box and the rows of one
clause enter, Marabou's answer leaves. It reads the file by itself.
"""

import contextlib
import importlib.util
import io
import math
import warnings
from dataclasses import dataclass
from importlib.metadata import version
from pathlib import Path

import numpy as np

from bough.budget import Deadline
from bough.errors import BadInput, SolverFailure
from bough.solvers.program import Array

SAT, UNSAT, OUT_OF_TIME = "sat", "unsat", "TIMEOUT"


@dataclass(frozen=True, eq=False)
class Answer:
    """Marabou's word, its point where there is one, and the number of states of its search."""

    word: str
    point: Array | None
    nodes: int


def check_installed() -> None:
    """Raise unless Marabou's package is installed."""
    if importlib.util.find_spec("maraboupy") is None:
        raise BadInput("Marabou is not installed; install maraboupy, or use another --method")


def title() -> str:
    """Name and version of Marabou."""
    return f"Marabou {version('maraboupy')}"


def ask(network: Path, limits: tuple[Array, Array], rows: Array, offsets: Array, deadline: Deadline) -> Answer:
    """Whether some point of the box has `rows @ y <= offsets`; on one thread, and deaf to Ctrl-C until it ends."""
    check_installed()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # about readers of other formats that are not installed
        from maraboupy import Marabou, MarabouCore
    deadline.check()
    seconds = 0 if math.isinf(deadline.remaining()) else max(1, math.ceil(deadline.remaining()))  # 0: no limit
    with contextlib.redirect_stdout(io.StringIO()):  # standard output is for the verdict
        try:
            query = Marabou.read_onnx(str(network))
            inputs, outputs = (np.asarray(v).reshape(-1) for v in (query.inputVars[0], query.outputVars[0]))
            for variable, low, high in zip(inputs.tolist(), *(v.tolist() for v in limits), strict=True):
                query.setLowerBound(variable, low)
                query.setUpperBound(variable, high)
            for row, offset in zip(rows, offsets.tolist(), strict=True):
                used = np.flatnonzero(row)
                query.addInequality(outputs[used].tolist(), row[used].tolist(), offset)
            options = Marabou.createOptions(verbosity=0, timeoutInSeconds=seconds, numWorkers=1)
            # No log file: having written a second one, Marabou 2.0 leaves the process without standard output.
            word, values, statistics = query.solve(verbose=False, options=options)
        except Exception as error:  # whatever Marabou's reader makes of a file
            reason = (str(error) or type(error).__name__).splitlines()[0]
            raise SolverFailure(f"Marabou cannot take this network: {reason}") from error
    point = np.array([values[variable] for variable in inputs.tolist()]) if word == SAT else None
    states = MarabouCore.StatisticsUnsignedAttribute.NUM_VISITED_TREE_STATES
    return Answer(word, point, int(statistics.getUnsignedAttribute(states)))
