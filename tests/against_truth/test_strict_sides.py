"""Strict sides of inputs: no counterexample on an excluded side, and verdicts against exact rational arithmetic."""

import itertools
import random
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from fractions import Fraction
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from tests.support import Plain, exact_values_at, sequential

import bough
from bough.api import solve
from bough.network.graph import Network
from bough.options import Options
from bough.problem.onnx_writer import write_network
from bough.problem.problem import Problem
from bough.problem.vnnlib import parse_property
from bough.verdict.check import Outcome, check
from bough.verdict.result import EXCLUDED, Verdict

ONE_EACH = "(declare-const X_0 Real)\n(declare-const Y_0 Real)\n"
BELOW_ONE = float(np.nextafter(np.float32(1), np.float32(0)))
CASES = {
    "least upper bound": ("(and (>= X_0 0) (< X_0 1) (>= Y_0 1))", "unknown", "strict"),
    "no value": ("(and (> X_0 0.5) (<= X_0 0.5) (>= Y_0 0))", "verified", "empty"),
    "negated": ("(and (not (<= X_0 0)) (<= X_0 0) (>= Y_0 0))", "verified", "empty"),
    "lower above upper": ("(and (>= X_0 2) (<= X_0 1) (>= Y_0 0))", "verified", "empty"),
    "one float inside": (f"(and (>= X_0 0) (< X_0 1) (>= Y_0 {BELOW_ONE!r}))", "falsified", "replayed"),
    "closed": ("(and (>= X_0 0) (<= X_0 1) (>= Y_0 1))", "falsified", "replayed"),
    "proved": ("(and (> X_0 0) (< X_0 1) (> Y_0 1))", "unknown", ""),
    "far from unsafe": ("(and (> X_0 0) (< X_0 1) (> Y_0 1.125))", "verified", "no point of the box"),
    "negated or": ("(and (not (or (<= X_0 -1) (>= X_0 1))) (>= Y_0 1))", "unknown", "strict"),
    "empty box among two": (
        "(or (and (> X_0 0) (< X_0 0) (>= Y_0 0)) (and (>= X_0 0) (<= X_0 0.5) (>= Y_0 1)))",
        "verified",
        "no point of the box",
    ),
    "strict beside closed": (
        "(or (and (>= X_0 0) (< X_0 1) (>= Y_0 1)) (and (>= X_0 1) (<= X_0 2) (>= Y_0 1)))",
        "falsified",
        "replayed",
    ),
}


@pytest.fixture(scope="module")
def network(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """y = relu(x)."""
    path = tmp_path_factory.mktemp("network") / "relu.onnx"
    write_network(sequential(([[1.0]], [0.0]), ([[1.0]], [0.0])), path)
    return path


@pytest.mark.parametrize("name", CASES)
def test_files(name: str, network: Path, tmp_path: Path) -> None:
    assertion, verdict, words = CASES[name]
    path, proof = tmp_path / "question.vnnlib", tmp_path / "proof"
    path.write_text(f"{ONE_EACH}(assert {assertion})\n")
    for options in ({}, {"bounds": "linear"}, {"bounds": "dual"}, {"gap": 1e-3}, {"certificate": proof}):
        result = bough.verify(network, path, timeout=20, **options)
        assert result.verdict.value == verdict, (options, result)
        assert words in result.reason
        if result.counterexample is not None and name == "one float inside":
            assert result.counterexample.x.tolist() == [BELOW_ONE]
    problem = bough.api.load_problem(bough.api.load_network(network), path)
    assert check(problem, proof).outcome is (Outcome.INCOMPLETE if verdict == "unknown" else Outcome.VALID)


@pytest.mark.parametrize(("side", "verdict"), [("<", "unknown"), ("<=", "falsified")])
def test_baselines_replay_no_excluded_point(side: str, verdict: str, network: Path, tmp_path: Path) -> None:
    path = tmp_path / "question.vnnlib"
    path.write_text(f"{ONE_EACH}(assert (and (>= X_0 0) ({side} X_0 1) (>= Y_0 1)))\n")
    result = bough.verify(network, path, method="mip-tight", timeout=20)
    assert result.verdict.value == verdict
    assert (result.reason == EXCLUDED) == (side == "<")
    path.write_text(f"{ONE_EACH}(assert (and (> X_0 1) ({side} X_0 1) (>= Y_0 1)))\n")
    assert "empty" in bough.verify(network, path, method="mip-tight").reason


@pytest.mark.parametrize(
    ("assertion", "verdict"),
    [
        ("(and (>= X[0] 0.0) (< X[0] 1.0) (>= Y[0] 1.0))", "unknown"),
        ("(and (>= X[0] 0.0) (<= X[0] 1.0) (>= Y[0] 1.0))", "falsified"),
        ("(and (> X[0] 0.5) (<= X[0] 0.5) (>= Y[0] 0.0))", "verified"),
        ("(and (>= X[0] 0.0) (<= X[0] 1.0) (!= X[0] 1.0) (>= Y[0] 1.0))", "unknown"),
    ],
)
def test_files_of_version_2(assertion: str, verdict: str, network: Path, tmp_path: Path) -> None:
    pytest.importorskip("vnnlib", reason="VNN-LIB 2.0 is an optional extra")
    head = "(vnnlib-version <2.0>)\n(declare-network f (declare-input X Real [1]) (declare-output Y Real [1]))\n"
    path = tmp_path / "question.vnnlib"
    path.write_text(f"{head}(assert {assertion})\n")
    assert bough.verify(network, path, timeout=20).verdict.value == verdict


# --- Random questions, decided by elimination in rational numbers


@dataclass(frozen=True)
class Inequality:
    """`terms @ x <= limit`, or `<` where strict."""

    terms: tuple[Fraction, ...]
    limit: Fraction
    strict: bool

    def holds(self, x: Sequence[float]) -> bool:
        value = sum((a * Fraction(v) for a, v in zip(self.terms, x, strict=True)), Fraction(0))
        return value < self.limit or (value == self.limit and not self.strict)


def feasible(system: list[Inequality]) -> bool:
    """Whether any rational point satisfies all: Fourier-Motzkin elimination, exact for strict ones, too."""
    while system and system[0].terms:
        scaled = [
            Inequality(tuple(a / abs(s.terms[-1]) for a in s.terms), s.limit / abs(s.terms[-1]), s.strict)
            for s in system
            if s.terms[-1]
        ]
        above, below = ([s for s in scaled if s.terms[-1] * sign > 0] for sign in (1, -1))
        system = [Inequality(s.terms[:-1], s.limit, s.strict) for s in system if not s.terms[-1]]
        for a, b in itertools.product(above, below):
            terms = tuple(p + q for p, q in zip(a.terms[:-1], b.terms[:-1], strict=True))
            system.append(Inequality(terms, a.limit + b.limit, a.strict or b.strict))
    return all(s.holds(()) for s in system)


@dataclass(frozen=True)
class Question:
    """One hidden layer of small whole numbers, limits and offsets of halves: float64 makes no error at float16."""

    weights: list[list[int]]
    biases: list[int]
    last: list[list[int]]
    sides: list[Inequality]  # lower and upper side of every input in turn
    rows: list[tuple[int, Fraction, bool]]  # the output, which is at most (or below) the limit

    @staticmethod
    def drawn(seed: int) -> "Question":
        r = random.Random(seed)
        inputs, hidden, outputs = r.choice([1, 2]), r.randint(1, 3), r.choice([1, 1, 2])

        def whole(most: int) -> int:
            return r.randint(-most, most)

        sides = []
        for i in range(inputs):
            lower = Fraction(whole(4), 2)
            upper = lower + Fraction(r.choice([-1, 0, 0, 1, 1, 2, 2, 3, 4, 4]), 2)
            for sign, end in ((-1, lower), (1, upper)):
                terms = tuple(Fraction(sign * (k == i)) for k in range(inputs))
                sides.append(Inequality(terms, sign * end, r.random() < 0.6))
        weights = [[whole(2) for _ in range(inputs)] for _ in range(hidden)]
        last = [[whole(2) for _ in range(hidden)] for _ in range(outputs)]
        rows = [(r.randrange(outputs), Fraction(whole(6), 2), r.random() < 0.3) for _ in range(r.choice([1, 1, 2]))]
        return Question(weights, [whole(2) for _ in range(hidden)], last, sides, rows)

    @property
    def network(self) -> Network:
        return sequential((self.weights, self.biases), (self.last, [0] * len(self.last)))

    def text(self, r: random.Random) -> str:
        """VNN-LIB, where some comparisons are written as the negation of the opposite one, or with sides swapped."""
        names = [f"X_{i}" for i in range(len(self.weights[0]))] + [f"Y_{j}" for j in range(len(self.last))]
        lines = [f"(declare-const {name} Real)" for name in names]
        for k, side in enumerate(self.sides):
            sign = (-1, 1)[k % 2]
            lines.append(f"(assert {written(f'X_{k // 2}', sign, float(sign * side.limit), side.strict, r)})")
        lines += [f"(assert {written(f'Y_{j}', 1, float(limit), strict, r)})" for j, limit, strict in self.rows]
        return "\n".join(lines)

    def unsafe_points(self, *, closed: bool = False) -> bool:
        """Whether any real point is unsafe, piece by piece; `closed` takes strict sides and rows for closed ones."""
        inputs = len(self.weights[0])
        for pattern in itertools.product((0, 1), repeat=len(self.weights)):
            system = list(self.sides)
            for weights, bias, on in zip(self.weights, self.biases, pattern, strict=True):
                sign = -1 if on else 1  # on: -(w x + b) <= 0
                system.append(Inequality(tuple(Fraction(sign * w) for w in weights), Fraction(-sign * bias), False))
            for output, limit, strict in self.rows:
                parts = zip(self.last[output], pattern, self.weights, self.biases, strict=True)
                passing = [(c * on, w, b) for c, on, w, b in parts]
                terms = tuple(Fraction(sum(c * w[i] for c, w, _ in passing)) for i in range(inputs))
                system.append(Inequality(terms, limit - sum(c * b for c, _, b in passing), strict))
            if feasible([Inequality(s.terms, s.limit, s.strict and not closed) for s in system]):
                return True
        return False

    def is_unsafe(self, x: list[float]) -> bool:
        """Whether one point is unsafe, exactly."""
        y = exact_values_at(self.network, x)[-1]
        inside = all(side.holds(x) for side in self.sides)
        return inside and all(y[j] < limit or (y[j] == limit and not strict) for j, limit, strict in self.rows)


def written(name: str, sign: int, number: float, strict: bool, r: random.Random) -> str:
    """`name` at most (sign 1) or at least (-1) a number, strictly or not."""
    operator = ("<" if sign > 0 else ">") + ("" if strict else "=")
    mirrored = operator.translate(str.maketrans("<>", "><"))
    opposite = {"<": ">=", "<=": ">", ">": "<=", ">=": "<"}[operator]
    return r.choice(
        [f"({operator} {name} {number})", f"({mirrored} {number} {name})", f"(not ({opposite} {name} {number}))"]
    )


class Coarse(Plain):
    """A runtime whose inputs are float16: what it computes in float64 is exact, even one step away from 0."""

    dtype: np.dtype[np.floating[Any]] = np.dtype(np.float16)


@pytest.mark.parametrize("bounds", ["lp", "linear", "dual"])
def test_random_questions_against_rational_arithmetic(bounds: str) -> None:
    seen: Counter[tuple[str, bool]] = Counter()
    for seed in range(120):
        question = Question.drawn(seed)
        prop = parse_property(question.text(random.Random(seed)))
        network = question.network
        result = solve(Problem(network, prop, Coarse(network)), Options(bounds=bounds, timeout=2, attack=seed % 2 == 0))
        truth = question.unsafe_points()
        seen[result.verdict.value, truth] += 1
        if result.counterexample is not None:
            assert question.is_unsafe(result.counterexample.x.tolist()), seed
        assert result.verdict is not Verdict.VERIFIED or not truth, seed
        assert result.verdict is not Verdict.FALSIFIED or truth, seed
        if not question.unsafe_points(closed=True):
            assert result.verdict is Verdict.VERIFIED, seed
        elif not truth and not prop.is_empty:  # halving inputs along an excluded side may take all of the time
            assert result.verdict in (Verdict.UNKNOWN, Verdict.TIMEOUT), seed
            assert EXCLUDED in result.reason or any(strict for _, _, strict in question.rows), seed
        assert prop.is_empty == (not feasible(question.sides)), seed
        assert not prop.is_empty or result.verdict is Verdict.VERIFIED, seed
    print(seen)  # noqa: T201 - pytest shows it on demand
    assert seen["falsified", True] >= 20
    assert seen["verified", False] >= 20
    assert seen["unknown", False] + seen["timeout", False] >= 3
