"""What a door to a mixed-integer solver looks like: a program and a watch enter, a bound and a node count leave.

Nothing that leaves here is proved, and nothing here can prove it: a tree of a solver's own comes without multipliers.
"""

import importlib.util
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from enum import Enum

from bough.budget import Deadline
from bough.errors import BadInput
from bough.solvers.program import Array, MixedProgram

TOLERANCE = 1e-9  # how far rows, columns, reduced costs and whole numbers may be off: no solver takes less
SOLVERS = {"highs": "HiGHS", "gurobi": "Gurobi", "scip": "SCIP"}
PACKAGES = {"gurobi": "gurobipy", "scip": "pyscipopt"}  # HiGHS is always there


class Ending(Enum):
    """Why a solver stopped."""

    ABOVE = "the bound passed what was asked for"
    FOUND = "the watch was content with a point"
    OPTIMAL = "nothing is left to search"
    OUT_OF_TIME = "the deadline passed"


@dataclass(eq=False)
class Watch:
    """What the solver is asked in one run, who hears of its progress, and what came of that."""

    above: float  # stop once the minimum is known to be above this
    found: Callable[[Array], bool]  # takes the columns of every better point; true stops the solver
    seen: Callable[[float, int], None]  # takes the bound and the nodes so far, now and then
    content: bool = False  # whether a point was enough
    error: BaseException | None = None  # what was raised first inside of `keeping_errors`

    def show(self, columns: Array) -> None:
        """Pass on a point, unless one was enough already."""
        self.content = self.content or self.found(columns)

    def ending(self, bound: float) -> Ending | None:
        """What ended a run, where it was the watch."""
        if self.content:
            return Ending.FOUND
        return Ending.ABOVE if bound > self.above else None

    @contextmanager
    def keeping_errors(self) -> Iterator[None]:
        """Keep what is raised in a callback, which must not travel through the solver; the caller raises it."""
        try:
            yield
        except BaseException as error:  # noqa: BLE001 - as above
            self.error = self.error or error


@dataclass(frozen=True, eq=False)
class MixedSolution:
    """What the solver says: no solution is below `bound`."""

    ending: Ending
    bound: float
    nodes: int


@dataclass(frozen=True)
class AbstractMixedSolver(ABC):
    """A solver of mixed-integer programs, on one thread."""

    seed: int = 0

    @property
    @abstractmethod
    def title(self) -> str:
        """The solver's name and version."""

    @abstractmethod
    def minimise(self, program: MixedProgram, watch: Watch, deadline: Deadline) -> MixedSolution:
        """Search until the watch has what it wants; raises `SolverFailure` where the solver gives no usable answer."""


def check_installed(name: str) -> None:
    """Raise unless the solver's package is installed; whether it has a licence shows when it starts."""
    package = PACKAGES.get(name)
    if package is not None and importlib.util.find_spec(package) is None:
        raise BadInput(f"{SOLVERS[name]} is not installed; install {package}, or use solver=highs")


def mixed_solver(name: str, seed: int = 0) -> AbstractMixedSolver:
    """The solver of that name, loaded now."""
    check_installed(name)
    if name == "gurobi":
        from bough.solvers.gurobi import GurobiMixed

        return GurobiMixed(seed)
    if name == "scip":
        from bough.solvers.scip import ScipMixed

        return ScipMixed(seed)
    from bough.solvers.highs import HighsMixed

    return HighsMixed(seed)
