"""What `import bough` promises: these names and no others, and a start that does not load what it does not need."""

import inspect
import subprocess
import sys

import bough

NAMES = [
    "BaBSR",
    "BadInput",
    "Ball",
    "BoughError",
    "Box",
    "Clause",
    "Counterexample",
    "DualAscent",
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


def test_the_public_names() -> None:
    assert sorted(bough.__all__) == NAMES


def test_every_name_is_there_and_described() -> None:
    for name in NAMES:
        value = getattr(bough, name)
        if name != "__version__":
            assert inspect.getdoc(value), name
    assert len(set(bough.__all__)) == len(bough.__all__)


def test_what_is_not_needed_is_not_loaded() -> None:
    heavy = ("matplotlib", "ray", "gurobipy", "pyscipopt", "highspy", "rich", "vnnlib")
    script = f"import sys, bough, bough.cli; print([name for name in {heavy!r} if name in sys.modules])"
    run = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True, timeout=120)
    assert (run.stdout, run.stderr) == ("[]\n", "")
