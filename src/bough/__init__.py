"""bough: a complete verifier for ReLU networks. `verify` proves a property or returns a counterexample."""

from importlib.metadata import version

from bough.api import Options, minimum, robustness, verify
from bough.bounds.intermediate import PaperBounds, TightBounds
from bough.bounds.lp import PlanetLP
from bough.branching.babsr import BaBSR
from bough.branching.random import RandomChoice
from bough.errors import (
    BadInput,
    BoughError,
    NetworkError,
    OutputError,
    PropertyError,
    SolverFailure,
    UnsupportedOperator,
)
from bough.network.graph import Network
from bough.problem.problem import Problem
from bough.problem.property import Box, Clause, Property
from bough.verdict.counterexample import Counterexample
from bough.verdict.result import Result, Verdict

__version__ = version("bough")

__all__ = [
    "BaBSR",
    "BadInput",
    "BoughError",
    "Box",
    "Clause",
    "Counterexample",
    "Network",
    "NetworkError",
    "Options",
    "OutputError",
    "PaperBounds",
    "PlanetLP",
    "Problem",
    "Property",
    "PropertyError",
    "RandomChoice",
    "Result",
    "SolverFailure",
    "TightBounds",
    "UnsupportedOperator",
    "Verdict",
    "__version__",
    "minimum",
    "robustness",
    "verify",
]
