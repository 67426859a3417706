"""Making a disagreement small: greedy, one change after another, each kept if the same engine still objects.

Changes are made to the stored form (`store.py`): clauses, rows, boxes and balls go, neurons and single weights become
0, numbers become short, inputs are fixed. The truth of every smaller problem is found from scratch (`truth.judged`).
"""

import copy
import time
from collections.abc import Callable, Iterator
from typing import Any

from bough.errors import BadInput
from bough.problem.problem import Problem
from soundness.engines import Engine
from soundness.judge import trial
from soundness.store import problem_from_json, problem_to_json
from soundness.truth import judged

Plainly = dict[str, Any]
SECONDS = 20.0
DIGITS = (0, 1, 2, 3, 4, 6)
Fails = Callable[[Problem], list[str]]


def objects(engine: Engine, witness: tuple[float, ...] | None) -> Fails:
    """What an engine gets wrong about a problem."""

    def fails(problem: Problem) -> list[str]:
        return trial(problem, judged(problem, witness), engine, 2.0)[1]

    return fails


def shrunk(problem: Problem, fails: Fails, seconds: float = SECONDS) -> Problem:
    """A smaller problem that still fails; the problem itself where none is found in time."""
    until, stored = time.monotonic() + seconds, problem_to_json(problem)
    gaining = True
    while gaining and time.monotonic() < until:
        gaining = False
        for smaller in _changes(stored):
            if time.monotonic() > until:
                break
            if smaller != stored and _still(smaller, fails):
                stored, gaining = smaller, True
                break  # the places that changes are named by have moved
    return problem_from_json(stored)


def _still(stored: Plainly, fails: Fails) -> bool:
    try:
        return bool(fails(problem_from_json(stored)))
    except (BadInput, AssertionError, ValueError, IndexError, RuntimeError):
        return False  # no problem any more


def _changes(stored: Plainly) -> Iterator[Plainly]:
    """Smaller forms, the most hopeful first."""
    for change in (_fewer_clauses, _fewer_rows, _no_ball, _fewer_neurons, _silent, _fixed, _short, _zeros):
        yield from change(stored)


def _fewer_clauses(stored: Plainly) -> Iterator[Plainly]:
    for k in range(len(stored["clauses"]) if len(stored["clauses"]) > 1 else 0):
        new = copy.deepcopy(stored)
        del new["clauses"][k]
        used = sorted({c["box"] for c in new["clauses"]})
        new["boxes"] = [new["boxes"][b] for b in used]
        for c in new["clauses"]:
            c["box"] = used.index(c["box"])
        yield new


def _fewer_rows(stored: Plainly) -> Iterator[Plainly]:
    for k, c in enumerate(stored["clauses"]):
        for row in range(len(c["offsets"]) if len(c["offsets"]) > 1 else 0):
            new = copy.deepcopy(stored)
            for name in ("coefficients", "offsets", "strict"):
                del new["clauses"][k][name][row]
            yield new


def _no_ball(stored: Plainly) -> Iterator[Plainly]:
    for k, box in enumerate(stored["boxes"]):
        if "ball" in box:
            new = copy.deepcopy(stored)
            del new["boxes"][k]["ball"]
            yield new


def _fewer_neurons(stored: Plainly) -> Iterator[Plainly]:
    """A row of a linear node leaves with its column of the next, where only ReLUs and scalings are between."""
    nodes = stored["network"]
    readers: dict[int, list[int]] = {}
    for i, node in enumerate(nodes):
        for j in node["inputs"]:
            readers.setdefault(j, []).append(i)
    for i, node in enumerate(nodes):
        if node["op"] != "linear" or len(node["shape"]) != 1 or node["shape"][0] < 2:
            continue
        between, at = [], i
        while len(readers.get(at, [])) == 1 and nodes[readers[at][0]]["op"] in ("relu", "scale"):
            at = readers[at][0]
            between.append(at)
        if not between or len(readers.get(at, [])) != 1 or nodes[readers[at][0]]["op"] != "linear":
            continue
        for k in range(node["shape"][0]):
            new = copy.deepcopy(stored)
            changed = new["network"]
            _without(changed[i], k)
            for j in between:
                _without(changed[j], k)
            for row in changed[readers[at][0]]["weight"]:
                del row[k]
            yield new


def _without(node: Plainly, k: int) -> None:
    node["shape"][0] -= 1
    for name in ("weight", "bias", "bias_magnitude", "factor"):
        if name in node:
            del node[name][k]


def _silent(stored: Plainly) -> Iterator[Plainly]:
    """All that one neuron or channel is made of becomes 0."""
    for i, node in enumerate(stored["network"]):
        if node["op"] in ("linear", "conv"):
            for k in range(len(node["bias"])):
                new = copy.deepcopy(stored)
                changed = new["network"][i]
                changed["weight"][k] = _map(changed["weight"][k], lambda _: 0.0)
                changed["bias"][k] = 0.0
                yield new


def _fixed(stored: Plainly) -> Iterator[Plainly]:
    """An input held at its lower or upper end, which is made a short number."""
    for k, box in enumerate(stored["boxes"]):
        for i, (low, high) in enumerate(zip(box["lower"], box["upper"], strict=True)):
            for end in (low, high) if low < high else ():
                new = copy.deepcopy(stored)
                new["boxes"][k]["lower"][i] = new["boxes"][k]["upper"][i] = end
                yield new


def _short(stored: Plainly) -> Iterator[Plainly]:
    """Numbers of few digits: everything at once, then part after part."""
    for digits in DIGITS:
        new = copy.deepcopy(stored)
        new["network"] = [_rounded(node, digits) for node in new["network"]]
        yield new
    for digits in DIGITS:
        for part in ("boxes", "clauses"):
            new = copy.deepcopy(stored)
            new[part] = [_rounded(item, digits) for item in new[part]]
            yield new
        for i in range(len(stored["network"])):
            new = copy.deepcopy(stored)
            new["network"][i] = _rounded(new["network"][i], digits)
            yield new


def _rounded(item: Plainly, digits: int) -> Plainly:
    """The same with rounded weights, sides and offsets; powers of two, which keep a network's function, stay."""
    names = ("weight", "bias", "lower", "upper", "coefficients", "offsets")
    changed = {name: _map(item[name], lambda v: round(v, digits)) for name in names if name in item}
    if item.get("op") == "scale":
        return item
    if "bias" in changed:
        changed["bias_magnitude"] = _map(changed["bias"], abs)
    return {**item, **changed}


def _zeros(stored: Plainly) -> Iterator[Plainly]:
    """One weight after another becomes 0."""
    for i, node in enumerate(stored["network"]):
        for k in range(_count(node["weight"]) if node["op"] in ("linear", "conv") else 0):
            new = copy.deepcopy(stored)
            _zero(new["network"][i]["weight"], k)
            yield new


def _zero(values: list[Any], k: int) -> None:
    """Element `k` of nested lists, counted flat, becomes 0."""
    for i, value in enumerate(values):
        inside = _count(value)
        if k < inside:
            if isinstance(value, list):
                _zero(value, k)
            else:
                values[i] = 0.0
            return
        k -= inside


def _count(values: Any) -> int:
    return sum(map(_count, values)) if isinstance(values, list) else 1


def _map(values: Any, change: Callable[..., float]) -> Any:
    return [_map(v, change) for v in values] if isinstance(values, list) else change(values)
