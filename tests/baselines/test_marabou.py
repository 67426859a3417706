"""Marabou as a peer: refused in one sentence where it is not installed; else what it says is tried and attributed."""

import importlib.util
import sys
from importlib import metadata
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np
import pytest
from tests.support import hard_case

from bough import api
from bough.cli import main
from bough.errors import BadInput
from bough.options import Options
from bough.verdict.result import Verdict

INSTALLED = importlib.util.find_spec("maraboupy") is not None


def test_without_it_there_is_one_sentence(monkeypatch, capsys, tmp_path):
    monkeypatch.setattr(importlib.util, "find_spec", lambda _: None)
    with pytest.raises(BadInput, match="Marabou is not installed; install maraboupy, or use another --method"):
        Options(method="marabou")
    (tmp_path / "instances.csv").write_text("a.onnx,a.vnnlib,20\n")
    bench = ["bench", str(tmp_path / "instances.csv"), "--out", str(tmp_path / "run.jsonl"), "--method", "marabou"]
    assert main(bench) == 2
    output = capsys.readouterr()
    assert (output.out, output.err) == (
        "",
        "bough: method 'marabou': Marabou is not installed; install maraboupy, or use another --method\n",
    )


class Statistics:
    def getUnsignedAttribute(self, _: object) -> int:  # noqa: N802 - Marabou's name
        return 7


class Query:
    """Answers what it is told to, and remembers what it was asked."""

    answer: str = "unsat"
    point: tuple[float, ...] = ()
    queries: list["Query"] = []  # noqa: RUF012 - a test empties it

    def __init__(self, file: str) -> None:
        assert Path(file).is_file()
        self.inputVars, self.outputVars = [np.arange(len(self.point))], [np.arange(100, 110)]
        self.lower: dict[int, float] = {}
        self.upper: dict[int, float] = {}
        self.rows: list[tuple[list[int], list[float], float]] = []
        self.queries.append(self)

    def setLowerBound(self, variable: int, value: float) -> None:  # noqa: N802
        self.lower[variable] = value

    def setUpperBound(self, variable: int, value: float) -> None:  # noqa: N802
        self.upper[variable] = value

    def addInequality(self, *row: Any) -> None:  # noqa: N802
        self.rows.append(row)

    def solve(self, **_: object) -> tuple[str, dict[int, float], Statistics]:
        print("noise on standard output")  # noqa: T201 - as Marabou's
        return self.answer, dict(enumerate(self.point)), Statistics()


@pytest.fixture
def fake(monkeypatch):
    """A package of that name."""
    package, front, core = (ModuleType(f"maraboupy{end}") for end in ("", ".Marabou", ".MarabouCore"))
    front.read_onnx, front.createOptions = Query, dict  # type: ignore[attr-defined]
    core.StatisticsUnsignedAttribute = type("Names", (), {"NUM_VISITED_TREE_STATES": 0})  # type: ignore[attr-defined]
    package.Marabou, package.MarabouCore = front, core  # type: ignore[attr-defined]
    find_spec, version = importlib.util.find_spec, metadata.version
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: name == "maraboupy" or find_spec(name))
    monkeypatch.setattr("bough.solvers.marabou.version", lambda name: "0" if name == "maraboupy" else version(name))
    for module in (package, front, core):
        monkeypatch.setitem(sys.modules, module.__name__, module)
    monkeypatch.setattr(Query, "queries", [])
    return Query


@pytest.mark.parametrize("answer", ["unsat", "sat", "TIMEOUT", "ERROR"])
def test_what_it_says_is_tried_and_attributed(fake, answer, monkeypatch, capsys):
    case = hard_case("dense", 0, safe=False, away=0.1)
    inside = api.solve(case.problem, Options(method="mip-planet")).counterexample
    assert inside is not None
    monkeypatch.setattr(fake, "answer", answer)
    monkeypatch.setattr(fake, "point", tuple(inside.x.tolist()))
    result = api.solve(case.problem, Options(method="marabou"))
    verdicts = {"unsat": Verdict.VERIFIED, "sat": Verdict.FALSIFIED, "TIMEOUT": Verdict.TIMEOUT}
    assert result.verdict is verdicts.get(answer, Verdict.UNKNOWN)
    assert result.branches == 7 * len(fake.queries)
    assert capsys.readouterr().out == ""
    first, prop = fake.queries[0], case.problem.property
    assert list(first.lower.values()) == prop.boxes[prop.clauses[0].box].lower.tolist()
    assert len(first.rows) == len(prop.clauses[0].offsets)
    if answer == "unsat":  # believed, wrong as it is, but under its name
        assert not result.proved
        assert "by Marabou 0, to its tolerances, not proved by bough" in result.reason


def test_a_point_that_is_none_leaves_it_unknown(fake, monkeypatch):
    case = hard_case("dense", 0, safe=True)
    monkeypatch.setattr(fake, "answer", "sat")
    monkeypatch.setattr(fake, "point", (0.0,) * case.problem.network.inputs)
    result = api.solve(case.problem, Options(method="marabou"))
    assert (result.verdict, result.counterexample) == (Verdict.UNKNOWN, None)


@pytest.mark.skipif(not INSTALLED, reason="maraboupy is not installed")
@pytest.mark.parametrize("kind", ["dense", "convolutional"])
def test_where_it_is_installed_it_agrees_with_enumeration(kind):
    for seed in range(4):
        case = hard_case(kind, seed, safe=seed % 2 == 0, away=1e-2)
        result = api.solve(case.problem, Options(method="marabou", timeout=20.0))
        # Its points lie on the rim of the unsafe set, which the runtime may not confirm.
        allowed = (Verdict.VERIFIED,) if case.least > 0 else (Verdict.FALSIFIED, Verdict.UNKNOWN)
        assert result.verdict in allowed, result.reason
