"""bough: a complete verifier for ReLU networks. `verify` proves a property or returns a counterexample.

Public names are listed here and loaded when first used, so that `import bough` and `bough --help` are instant.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from bough.api import minimum as minimum
    from bough.api import robustness as robustness
    from bough.api import verify as verify
    from bough.bounds.dual import DualAscent as DualAscent
    from bough.bounds.intermediate import PaperBounds as PaperBounds
    from bough.bounds.intermediate import TightBounds as TightBounds
    from bough.bounds.lp import PlanetLP as PlanetLP
    from bough.branching.babsr import BaBSR as BaBSR
    from bough.branching.random import RandomChoice as RandomChoice
    from bough.errors import BadInput as BadInput
    from bough.errors import BoughError as BoughError
    from bough.errors import NetworkError as NetworkError
    from bough.errors import OutputError as OutputError
    from bough.errors import PropertyError as PropertyError
    from bough.errors import SolverFailure as SolverFailure
    from bough.errors import UnsupportedOperator as UnsupportedOperator
    from bough.network.graph import Network as Network
    from bough.options import Options as Options
    from bough.problem.problem import Problem as Problem
    from bough.problem.property import Ball as Ball
    from bough.problem.property import Box as Box
    from bough.problem.property import Clause as Clause
    from bough.problem.property import Property as Property
    from bough.verdict.counterexample import Counterexample as Counterexample
    from bough.verdict.result import Result as Result
    from bough.verdict.result import Verdict as Verdict

    __version__: str

_HOMES = {
    "bough.api": "minimum robustness verify",
    "bough.bounds.dual": "DualAscent",
    "bough.bounds.intermediate": "PaperBounds TightBounds",
    "bough.bounds.lp": "PlanetLP",
    "bough.branching.babsr": "BaBSR",
    "bough.branching.random": "RandomChoice",
    "bough.errors": "BadInput BoughError NetworkError OutputError PropertyError SolverFailure UnsupportedOperator",
    "bough.network.graph": "Network",
    "bough.options": "Options",
    "bough.problem.problem": "Problem",
    "bough.problem.property": "Ball Box Clause Property",
    "bough.verdict.counterexample": "Counterexample",
    "bough.verdict.result": "Result Verdict",
}
_HOME = {name: module for module, names in _HOMES.items() for name in names.split()}

__all__ = ["__version__", *_HOME]  # noqa: PLE0604 - strings, all of them


def __getattr__(name: str) -> Any:
    """Load a public name."""
    if name == "__version__":
        from importlib.metadata import version

        return version("bough")
    if name not in _HOME:
        raise AttributeError(f"module 'bough' has no attribute '{name}'")
    return getattr(import_module(_HOME[name]), name)


def __dir__() -> list[str]:
    return sorted(__all__)
