"""Holding a result against what is known: a problem, its truth and an engine enter, objections leave."""

from collections.abc import Sequence

import numpy as np

from bough.errors import BadInput
from bough.problem.problem import Problem
from bough.verdict.result import Result, Verdict
from soundness.engines import GAP, SECONDS, Engine
from soundness.truth import TOLERANCE, Truth, inside_box, margin_at

ROUNDED = 1e-5  # what the runtime's float64 may round off, in networks with constants up to 1e8 that cancel


def trial(problem: Problem, truth: Truth, engine: Engine, seconds: float = SECONDS) -> tuple[str, list[str]]:
    """The verdict, and what is wrong with it: nothing, as a rule. A crash is wrong, too."""
    try:
        result = engine.solve(problem, seconds)
    except BadInput as refused:
        return "refused", [f"refused: {refused}"]
    except Exception as crash:  # noqa: BLE001 - whatever it is, it is a finding
        return "crashed", [f"crashed: {type(crash).__name__}: {crash}"]
    return result.verdict.value, objections(problem, truth, result, minimum=engine.minimum)


def objections(problem: Problem, truth: Truth, result: Result, *, minimum: bool = False) -> list[str]:
    """Every way in which a result contradicts the truth."""
    messages = []
    if result.verdict is Verdict.VERIFIED and truth.word == "unsafe":
        messages.append(f"verified, but the margin is {truth.at_witness:g} at {list(truth.witness or ())}")
    if result.verdict is Verdict.FALSIFIED and truth.word == "safe":
        messages.append(f"falsified, but the least margin is {truth.below:g}")
    attained = truth.at_witness  # of the least margin, an upper limit that is exact
    if result.lower_bound > attained + 1e-12 * abs(attained) and np.isfinite(attained):
        messages.append(f"a lower bound of {result.lower_bound:g}, but the margin is {attained:g} at the witness")
    if result.upper_bound < truth.below - ROUNDED:
        messages.append(f"a point of margin {result.upper_bound:g}, but the least margin is {truth.below:g}")
    if minimum and result.verdict in (Verdict.VERIFIED, Verdict.FALSIFIED):
        messages += _minimum(truth, result)
    if result.verdict is Verdict.FALSIFIED:
        messages += _counterexample(problem, result)
    return messages


def _minimum(truth: Truth, result: Result) -> list[str]:
    if result.open_domains or result.reason == "the time limit was reached":
        return []
    if result.lower_bound < truth.below - GAP - TOLERANCE and result.upper_bound < truth.below - ROUNDED:
        return [f"a minimum below {result.upper_bound:g}, but it is at least {truth.below:g}"]
    return []


def _counterexample(problem: Problem, result: Result) -> list[str]:
    """It lies in its box, and its exact margin is at most what the runtime rounds off."""
    point = result.counterexample
    if point is None:
        return ["falsified, without a counterexample"]
    box = problem.property.boxes[problem.property.clauses[point.clause].box]
    x: Sequence[float] = point.x.tolist()
    if not inside_box(box, x):
        thin = bool((box.upper - box.lower <= 1e-6 * box.upper.abs()).any()) or box.ball is not None
        return [] if thin and _nearly(problem, point.clause, x) else [f"a counterexample outside its box: {x}"]
    margin = margin_at(problem, x)
    if margin is None or margin > ROUNDED:
        return [f"a counterexample of margin {float(margin or 0):g}: {x}"]
    return []


def _nearly(problem: Problem, clause: int, x: Sequence[float]) -> bool:
    """Within what float32 makes of a point: an input fixed to 0.1 can only be fed as the float32 next to it."""
    box = problem.property.boxes[problem.property.clauses[clause].box]
    point = np.asarray(x)
    nearest = np.clip(point, box.lower.numpy(), box.upper.numpy())
    near = bool((np.abs(nearest - point) <= 1e-6 * np.maximum(1.0, np.abs(point))).all())
    return near and (box.ball is None or float(box.ball.distance(box.lower.new_tensor(x))) <= box.ball.radius + 1e-5)
