"""`--semantics float32`: what execution can be off by, against executions in many orders, and networks made to fool."""

import itertools
import json
from collections.abc import Iterator
from fractions import Fraction
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray
from onnx import TensorProto, helper, numpy_helper
from tests.support import KINDS, Plain, box_around, clause, generator, integer, normal, problem, samples, sequential
from torch import nn

from bough.api import load_network, load_problem, solve
from bough.bounds.execution import row_errors
from bough.bounds.interval import enclose
from bough.cli import main
from bough.errors import BadInput
from bough.network import walk
from bough.network.graph import Network
from bough.options import Options
from bough.plan import make_plan
from bough.problem.onnx import read_network
from bough.problem.onnx_writer import write_network
from bough.problem.problem import Problem
from bough.problem.property import Box, Property
from bough.problem.runtime import Reference
from bough.problem.torch import read_module
from bough.verdict.result import Verdict

Layers = list[tuple[NDArray[np.float32], NDArray[np.float32]]]
FLOAT32 = np.dtype(np.float32)


def summed(terms: NDArray[np.float64], way: str) -> np.float32:
    """Products, each exact in float64, summed in float32 in some order; `fused` rounds once per step."""
    order = {"forth": terms, "back": terms[::-1], "small": terms[np.argsort(np.abs(terms))]}
    order["large"] = order["small"][::-1]
    if way == "pairs":
        values = terms.astype(np.float32)
        while len(values) > 1:
            values = (
                np.append(values, np.zeros(len(values) % 2, np.float32)).reshape(-1, 2).sum(axis=1, dtype=np.float32)
            )
        return np.float32(values[0])
    if way == "fused":
        total = np.float32(0)
        for term in terms:
            total = np.float32(np.float64(total) + term)
        return total
    total = np.float32(0)
    for term in order[way].astype(np.float32):
        total = np.float32(total + term)
    return total


WAYS = ("forth", "back", "small", "large", "pairs", "fused")


def executed(layers: Layers, x: NDArray[np.float32], way: str) -> NDArray[np.float32]:
    """A dense network in float32."""
    for k, (weight, bias) in enumerate(layers):
        products = weight.astype(np.float64) * x.astype(np.float64)
        x = np.array([summed(np.append(row, b), way) for row, b in zip(products, bias, strict=True)], np.float32)
        x = np.maximum(x, 0) if k < len(layers) - 1 else x
    return x


def exact(layers: Layers, x: list[Fraction]) -> list[Fraction]:
    """In rationals."""
    for k, (weight, bias) in enumerate(layers):
        rows = zip(weight.tolist(), bias.tolist(), strict=True)
        x = [sum((Fraction(w) * v for w, v in zip(row, x, strict=True)), Fraction(b)) for row, b in rows]
        x = [max(v, Fraction(0)) for v in x] if k < len(layers) - 1 else x
    return x


def wild(seed: int) -> Layers:
    """Weights of very different sizes, and constants that cancel."""
    g = generator(seed)
    sizes = [integer(g, 1, 3), *(integer(g, 2, 5) for _ in range(integer(g, 1, 3))), 2]
    layers = []
    for before, after in itertools.pairwise(sizes):
        spread = 10.0 ** (torch.randint(-8, 9, (after, before), generator=g).double() * (seed % 3) / 2)
        weight, bias = normal(g, after, before) * spread, normal(g, after) * 10.0 ** integer(g, -4, 8)
        layers.append((weight.float().numpy(), bias.float().numpy()))
    return layers


def network_of(layers: Layers) -> Network:
    return sequential(*((w.astype(np.float64), b.astype(np.float64)) for w, b in layers))


@settings(max_examples=60, deadline=None)
@given(seed=st.integers(0, 10**6))
def test_no_execution_is_further_off(seed: int) -> None:
    layers = wild(seed)
    network, g = network_of(layers), generator(seed)
    box = box_around(g, network.inputs, 0.5)
    rows = torch.eye(2, dtype=torch.float64)
    known = enclose(network, box.lower[None], box.upper[None]).relu_inputs(network)
    allowed = row_errors(network, (box.lower[None], box.upper[None]), rows, FLOAT32, known)[0]
    for x in samples(box, 4, seed).numpy():
        truth, point = exact(layers, [Fraction(v) for v in x.tolist()]), x.astype(np.float32)
        runs = [executed(layers, point, way) for way in WAYS] + [Reference(write_network(network)).run(point)]
        for y in runs:
            for k in range(2):
                assert abs(Fraction(float(y[k])) - truth[k]) <= Fraction(float(allowed[k]))


@pytest.mark.parametrize("kind", KINDS)
def test_every_operator(kind: str) -> None:
    """Convolutions, residual connections and pooling, by two runtimes."""
    for seed in range(6):
        network = KINDS[kind](generator(seed))
        box = box_around(generator(seed), network.inputs, 1.0)
        rows = normal(generator(seed), 3, network.outputs)
        allowed = row_errors(network, (box.lower[None], box.upper[None]), rows, FLOAT32)[0]
        runtime, points = Reference(write_network(network)), samples(box, 20, seed)
        for x in points:
            truth = rows @ walk.evaluate(network, x[None])[0]
            runtime_output = torch.from_numpy(runtime.run(x.numpy()).astype(np.float64))
            float32_output = walk.evaluate(network.on(torch.device("cpu"), torch.float32), x[None].float())[0].double()
            for y in (runtime_output, float32_output):
                assert bool(((rows @ y - truth).abs() <= allowed + 1e-12).all())
        assert float(allowed.max()) < 1e-3  # small beside outputs around one: it is of use


def test_smaller_domains_are_off_by_less() -> None:
    network = KINDS["dense"](generator(1))
    rows = torch.eye(network.outputs, dtype=torch.float64)[:1]
    errors = []
    for radius in (4.0, 1.0, 0.1):
        box = Box(torch.full((network.inputs,), -radius).double(), torch.full((network.inputs,), radius).double())
        errors.append(float(row_errors(network, (box.lower[None], box.upper[None]), rows, FLOAT32)[0, 0]))
    assert errors[0] > errors[1] > errors[2] > 0


def test_overflow_is_infinite() -> None:
    network = sequential(([[3e38]], [0]), ([[1]], [0]))
    box = (torch.tensor([[0.0]]).double(), torch.tensor([[100.0]]).double())
    assert row_errors(network, box, torch.ones(1, 1).double(), FLOAT32).tolist() == [[float("inf")]]


# Networks made to fool verifiers: safe in real arithmetic by far, and not when run


def foolers() -> Iterator[tuple[str, Layers, float, float, float]]:
    """Name, layers, the box, and an offset: unsafe is y <= offset, which in real arithmetic never holds."""
    one = np.float32
    yield (
        "a constant that cancels",
        [(np.array([[1], [0]], one), np.array([1e8, 1e8], one)), (np.array([[1, -1]], one), np.array([0], one))],
        *(0.3, 0.7, 0.2),
    )
    yield (
        "scales that differ",
        [
            (np.array([[1e8], [1e8]], one), np.array([1, 0], one)),
            (np.array([[1, -1]], one), np.array([0], one)),
        ],
        *(0.9, 1.0, 0.5),
    )
    yield (
        "three layers",
        [
            (np.array([[1], [1]], one), np.array([3e7, 3e7], one)),
            (np.array([[1e3, 0], [0, 1e3]], one), np.array([7, 0], one)),
            (np.array([[1, -1]], one), np.array([0], one)),
        ],
        *(-1.0, 1.0, 5.0),
    )


@pytest.mark.parametrize("bounds", ["auto", "dual", "lp", "linear"])
@pytest.mark.parametrize("case", list(foolers()), ids=lambda case: case[0])
def test_networks_that_fool_verifiers(
    case: tuple[str, Layers, float, float, float], bounds: str, tmp_path: Path
) -> None:
    _, layers, low, high, offset = case
    network = network_of(layers)
    write_network(network, tmp_path / "a.onnx")
    box = Box(torch.tensor([low]).double(), torch.tensor([high]).double())
    prop = Property((box,), (clause([[1.0]], [offset]),))
    loaded = load_problem(load_network(tmp_path / "a.onnx"), prop)
    points = np.linspace(low, high, 9, dtype=np.float32)
    assert all(exact(layers, [Fraction(float(x))])[0] > offset for x in points)
    wrong = [way for way in WAYS if any(executed(layers, x[None], way)[0] <= offset for x in points)]
    assert wrong  # some execution is unsafe
    result = solve(loaded, Options(timeout=5, semantics="float32", bounds=bounds, batch=8))
    assert result.verdict is not Verdict.VERIFIED
    # In real arithmetic it is safe; but the runtime is asked, too, and has the last word.
    real = solve(loaded, Options(timeout=5, bounds=bounds, batch=8))
    by_runtime = any(loaded.reference.run(np.array([x]))[0] <= offset for x in points)
    assert real.verdict is (Verdict.FALSIFIED if by_runtime else Verdict.VERIFIED)
    unattacked = solve(problem_without_runtime(network, prop), Options(timeout=5, bounds=bounds, batch=8))
    assert unattacked.verdict is Verdict.VERIFIED
    assert "in real arithmetic" in unattacked.reason


def problem_without_runtime(network: Network, prop: Property) -> Any:
    """Counterexamples are replayed in float64, where there are none."""
    return problem(network, prop.boxes, prop.clauses)


@settings(max_examples=25, deadline=None)
@given(seed=st.integers(0, 10**6))
def test_what_is_verified_holds_in_every_order(seed: int) -> None:
    layers, g = wild(seed), generator(seed)
    network = network_of(layers)
    box = box_around(g, network.inputs, 0.3)
    points = samples(box, 6, seed)
    # An offset a little below the least value seen, by anything from nothing to a lot.
    least = min(exact(layers, [Fraction(v) for v in x.tolist()])[0] for x in points.numpy())
    size = float(walk.forward(network.magnitude, points.abs())[-1].max())
    offset = float(least) - size * 10.0 ** -integer(g, 1, 9)
    query = problem(network, [box], [clause([[1.0, 0.0]], [offset])])
    result = solve(query, Options(timeout=2, semantics="float32", seed=seed))
    if result.verdict is Verdict.VERIFIED:
        for x in points.numpy().astype(np.float32):
            assert all(float(executed(layers, x, way)[0]) > offset for way in WAYS)
            assert Reference(write_network(network)).run(x)[0] > offset


def test_ordinary_problems_are_still_proved() -> None:
    """The allowance is no excuse: a margin of a thousandth is enough."""
    network = sequential(([[1, 1], [1, -1]], [0, 0]), ([[1, 1], [1, -1]], [0, 0]))
    box = Box(torch.tensor([-1.0, -1.0]).double(), torch.tensor([1.0, 1.0]).double())
    for bounds in ("dual", "lp", "linear"):
        query = problem(network, [box], [clause([[1.0, 0.0]], [-0.001])])
        result = solve(query, Options(timeout=20, semantics="float32", bounds=bounds))
        assert result.verdict is Verdict.VERIFIED, (bounds, result.reason)
        assert "float32" in result.reason
        assert isinstance(query.reference, Plain)


def test_the_option_and_the_record(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    write_network(sequential(([[1, 1], [1, -1]], [0, 0]), ([[1, 1], [1, -1]], [0, 0])), tmp_path / "a.onnx")
    box = "".join(f"(declare-const X_{i} Real)(assert (>= X_{i} -1))(assert (<= X_{i} 1))" for i in range(2))
    outputs = "(declare-const Y_0 Real)(declare-const Y_1 Real)"
    (tmp_path / "a.vnnlib").write_text(f"{box}{outputs}(assert (<= Y_0 -0.5))")
    words = ["verify", str(tmp_path / "a.onnx"), str(tmp_path / "a.vnnlib"), "--json", str(tmp_path / "a.json")]
    for semantics, phrase in (("float32", "in any float32 execution"), ("real", "in real arithmetic")):
        assert main([*words, "--semantics", semantics]) == 0
        assert phrase in capsys.readouterr().err
        assert json.loads((tmp_path / "a.json").read_text())["semantics"] == semantics
    assert Options().semantics == "real"
    wrong: list[dict[str, Any]] = [{"semantics": "float16"}, {"gap": 0.1}, {"method": "mip-planet"}]
    for fields in wrong:
        with pytest.raises(BadInput):
            Options(**{"semantics": "float32", **fields})


# Casts

DOUBLE, FLOAT = int(TensorProto.DOUBLE), int(TensorProto.FLOAT)


def casting(kind: int, *casts: int) -> bytes:
    """The ReLU of x + 64, computed as x + 1e9, cast one way and another, less 1e9 - 64."""
    types: dict[int, type[np.floating[Any]]] = {DOUBLE: np.float64, FLOAT: np.float32}
    last = casts[-1] if casts else kind
    weights = {"large": np.array([1e9], types[kind]), "less": np.array([64 - 1e9], types[last])}
    nodes, x = [helper.make_node("Add", ["x", "large"], ["c0"])], "c0"
    for k, to in enumerate(casts):
        x = f"c{k + 1}"
        nodes.append(helper.make_node("Cast", [f"c{k}"], [x], name=f"cast {k}", to=to))
    nodes += [helper.make_node("Add", [x, "less"], ["z"]), helper.make_node("Relu", ["z"], ["y"])]
    graph = helper.make_graph(
        nodes,
        "casts",
        [helper.make_tensor_value_info("x", kind, [1, 1])],
        [helper.make_tensor_value_info("y", last, [1, 1])],
        [numpy_helper.from_array(array, name) for name, array in weights.items()],
    )
    proto = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)])
    proto.ir_version = 8
    return bytes(proto.SerializeToString())


@pytest.mark.parametrize(
    ("kind", "casts", "named"),
    [
        (DOUBLE, (), None),
        (DOUBLE, (DOUBLE,), None),
        (DOUBLE, (FLOAT,), "cast 0"),
        (DOUBLE, (DOUBLE, FLOAT, DOUBLE), "cast 1"),
        (FLOAT, (FLOAT,), None),
        (FLOAT, (DOUBLE,), None),
        (FLOAT, (DOUBLE, FLOAT), "cast 1"),
    ],
)
def test_a_cast_that_rounds_is_refused_by_name(kind: int, casts: tuple[int, ...], named: str | None) -> None:
    network = read_network(casting(kind, *casts))
    assert network.cast == named
    make_plan(Options(), network)
    if named is None:
        make_plan(Options(semantics="float32"), network)
    else:
        with pytest.raises(BadInput, match=f"node '{named}' casts a computed double to float"):
            make_plan(Options(semantics="float32"), network)


def test_what_a_cast_rounds_is_not_proved_away(tmp_path: Path) -> None:
    """In real arithmetic y is x + 64, at least 24; float32 holds 1e9 - 64 and 1e9, and nothing between them."""
    (tmp_path / "a.onnx").write_bytes(casting(DOUBLE, FLOAT))
    loaded = load_network(tmp_path / "a.onnx")
    prop = Property((Box(torch.tensor([-40.0]).double(), torch.tensor([40.0]).double()),), (clause([[1.0]], [0.5]),))
    assert loaded.reference.run(np.array([-40.0]))[0] <= 0.5
    question = Problem(loaded.network, prop, loaded.reference)
    with pytest.raises(BadInput, match="cast"):
        solve(question, Options(semantics="float32"))
    assert solve(Problem(loaded.network, prop, Plain(loaded.network)), Options()).verdict is Verdict.VERIFIED


class Casts(nn.Module):
    """Double weights, then float."""

    def __init__(self) -> None:
        super().__init__()
        self.first = nn.Linear(2, 3, dtype=torch.float64)
        self.second = nn.Linear(3, 1)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        y: torch.Tensor = self.second(self.first(x).relu().to(torch.float32))
        return y


def test_a_cast_in_a_module_is_refused() -> None:
    network = read_module(Casts(), (2,))
    with pytest.raises(BadInput, match="casts a computed double to float"):
        make_plan(Options(semantics="float32"), network)
    assert read_module(nn.Linear(2, 3, dtype=torch.float64), (2,)).cast is None
