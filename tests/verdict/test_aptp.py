"""Trees as other tools read them: what is written says what the certificate proves, no more and no less."""

import itertools
import re
from pathlib import Path

import numpy as np
import onnx
import onnxruntime
import pytest
import torch
from tests.support import (
    convolutional,
    generator,
    piece_margins,
    pieces,
    relu_inputs_at,
    residual,
    sequential,
    simple_problem,
)
from tests.verdict.certificates import certified

from bough.cli import main
from bough.errors import BadInput
from bough.network.graph import Network
from bough.problem.onnx_writer import write_network
from bough.problem.problem import Problem
from bough.problem.property import Clause, Property
from bough.verdict.aptp import aptp_paths, as_aptp
from bough.verdict.result import Verdict


def network(seed: int = 5, outputs: int = 2) -> Network:
    """A chain of two layers of ReLUs."""
    random, sizes = np.random.default_rng(seed), [3, 6, 5, outputs]
    layers = [(random.standard_normal((b, a)), random.standard_normal(b)) for a, b in itertools.pairwise(sizes)]
    return sequential(*layers)


def problem_with(*clauses: tuple[list[float], float], seed: int = 5) -> Problem:
    """A safe problem that takes some splits: every row stays above what it reaches, less a little."""
    base = simple_problem(network(seed), -np.ones(3), np.ones(3), [list(clauses[0][0])], [0.0])
    box, converted = base.property.boxes[0], []
    for row, offset in clauses:
        coefficients = torch.tensor([row], dtype=torch.float64)
        converted.append(Clause(0, coefficients, torch.tensor([offset], dtype=torch.float64), (False,)))
    return Problem(base.network, Property((box,), tuple(converted)), base.reference)


def least(problem: Problem, row: list[float]) -> float:
    """Of a row, over all linear pieces."""
    zero = Clause(0, torch.tensor([row], dtype=torch.float64), torch.zeros(1, dtype=torch.float64), (False,))
    return float(
        piece_margins(pieces(problem.network, problem.property.boxes[0]), problem.property.boxes[0], zero).min()
    )


def hard(row: list[float], seed: int = 5) -> tuple[list[float], float]:
    """A row with an offset that needs splits."""
    bound = least(problem_with((row, 0.0), seed=seed), row)
    return row, bound - 1e-3


def read_aptp(text: str) -> tuple[dict[str, list[str]], list[list[tuple[str, int]]]]:
    """By the public description: declared names by kind, and the leaves as (comparison, neuron)."""
    plain = " ".join(re.sub(r";.*", "", text).split())
    names = {kind: re.findall(rf"\(declare-\w+ ({kind}_\d+) (?:Real|ReLU)\)", plain) for kind in "XYN"}
    (tree,) = re.findall(r"\(assert \(or (.*?)\)\s*\)$", plain)
    leaves = re.findall(r"\(and ((?:\((?:<|>=) N_\d+ 0\) ?)+)\)", tree)
    return names, [[(op, int(k)) for op, k in re.findall(r"\((<|>=) N_(\d+) 0\)", leaf)] for leaf in leaves]


@pytest.mark.parametrize("bounds", ["dual", "lp"])
def test_leaves_cover_every_pattern(bounds: str, tmp_path: Path) -> None:
    problem, path = problem_with(hard([1.0, 0.0])), tmp_path / "proof"
    assert certified(problem, path, bounds, timeout=20).verdict is Verdict.VERIFIED
    (text,) = as_aptp(problem, path)
    names, leaves = read_aptp(text)
    assert [len(names[kind]) for kind in "XYN"] == [3, 2, 11]
    assert len(leaves) > 2
    assert "(assert (<= Y_0 " in text
    patterns = [np.array(piece.signs) for piece in pieces(problem.network, problem.property.boxes[0])]
    for pattern in [*patterns, *np.random.default_rng(0).choice([-1, 1], size=(200, 11))]:
        held = sum(all((pattern[k - 1] >= 0) == (op == ">=") for op, k in leaf) for leaf in leaves)
        assert held >= 1


def test_a_file_for_every_clause(tmp_path: Path) -> None:
    problem, path = problem_with(hard([1.0, 0.0]), hard([-1.0, 0.0])), tmp_path / "proof"
    assert certified(problem, path, "dual", timeout=20).verdict is Verdict.VERIFIED
    first, second = as_aptp(problem, path)
    assert "(assert (<= Y_0 " in first
    assert "(assert (>= Y_0 " in second
    assert aptp_paths(tmp_path / "a.aptp", 2) == (tmp_path / "a_0.aptp", tmp_path / "a_1.aptp")


def test_numbers_read_back_as_they_were(tmp_path: Path) -> None:
    problem, path = problem_with(([1.0, 0.0], -100.1)), tmp_path / "proof"
    certified(problem, path, "dual")
    (text,) = as_aptp(problem, path)
    assert float(re.findall(r"\(<= Y_0 (\S+?)\)", text)[0]) == -100.1
    assert read_aptp(text)[1] == [[("<", 1)], [(">=", 1)]]  # closed at the root


@pytest.mark.parametrize(
    ("row", "bias", "words"), [([2.0, -2.0], 50.0, "(<= Y_0 Y_1)"), ([-1.0, 1.0], -50.0, "(<= Y_1 Y_0)")]
)
def test_outputs_are_compared(row: list[float], bias: float, words: str, tmp_path: Path) -> None:
    apart = sequential((np.eye(3), np.zeros(3)), (np.ones((2, 3)), np.array([bias, 0.0])))
    problem, path = simple_problem(apart, -np.ones(3), np.ones(3), [row], [0.0]), tmp_path / "proof"
    assert certified(problem, path, "dual").verdict is Verdict.VERIFIED
    assert f"(assert {words})" in as_aptp(problem, path)[0]


def test_relus_are_numbered_as_in_the_file(tmp_path: Path) -> None:
    """Against ONNX Runtime: layer after layer, and in a layer as its tensor is stored."""
    small_network, x = convolutional(generator(1)), np.random.default_rng(0).standard_normal(4)
    model = onnx.ModelProto.FromString(write_network(small_network))
    relu_names = [node.output[0] for node in model.graph.node if node.op_type == "Relu"]
    for name in relu_names:
        model.graph.output.append(onnx.ValueInfoProto(name=name))
    session = onnxruntime.InferenceSession(model.SerializeToString())
    given = session.get_inputs()[0]
    values = session.run(relu_names, {given.name: x.astype(np.float32).reshape(1, 1, 2, 2)})
    outputs = np.concatenate([value.reshape(-1) for value in values])
    np.testing.assert_allclose(outputs, relu_inputs_at(small_network, x).clip(min=0), atol=1e-5)
    assert len(np.unique(outputs)) > 3  # an order can be told from them


def test_what_the_form_cannot_say_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "proof"
    halved = problem_with(hard([1.0, 0.0]))
    assert certified(halved, path, "linear", timeout=20).verdict is Verdict.VERIFIED
    with pytest.raises(BadInput, match="halved"):
        as_aptp(halved, path)
    sums = problem_with(([1.0, 3.0], -1000.0))
    certified(sums, path, "dual")
    with pytest.raises(BadInput, match="no comparison"):
        as_aptp(sums, path)
    several = simple_problem(network(), -np.ones(3), np.ones(3), [[1.0, 0.0], [0.0, 1.0]], [-100.0, -100.0])
    certified(several, path, "dual")
    with pytest.raises(BadInput, match="2 rows"):
        as_aptp(several, path)
    branches = residual(generator(0))
    row = [1.0, *[0.0] * (branches.outputs - 1)]
    skips = simple_problem(branches, -np.ones(branches.inputs), np.ones(branches.inputs), [row], [-1e4])
    certified(skips, path, "dual")
    with pytest.raises(BadInput, match="no chain"):
        as_aptp(skips, path)
    unsafe = problem_with(([1.0, 0.0], 1e3))
    assert certified(unsafe, path, "dual").verdict is Verdict.FALSIFIED
    with pytest.raises(BadInput, match="only a proof"):
        as_aptp(unsafe, path)


def test_the_command_writes_what_it_found_valid(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    write_network(network(), tmp_path / "net.onnx")
    names = "".join(f"(declare-const X_{i} Real)(assert (>= X_{i} -1))(assert (<= X_{i} 1))" for i in range(3))
    outputs = "(declare-const Y_0 Real)(declare-const Y_1 Real)"
    (tmp_path / "a.vnnlib").write_text(f"{names}{outputs}(assert (<= Y_0 -500))")
    files = [str(tmp_path / name) for name in ("net.onnx", "a.vnnlib")]
    proof, tree = str(tmp_path / "proof"), tmp_path / "tree.aptp"
    options = ["--bounds", "dual", "--threads", "1", "--quiet"]
    assert main(["verify", *files, "--certificate", proof, *options]) == 0
    assert main(["check", *files, proof, "--aptp", str(tree)]) == 0
    assert f"wrote {tree}" in capsys.readouterr().err
    assert read_aptp(tree.read_text())[1]
    tree.unlink()
    Path(proof).write_bytes(Path(proof).read_bytes()[:-5])
    assert main(["check", *files, proof, "--aptp", str(tree)]) == 3
    assert not tree.exists()
    assert main(["check", *files, proof, "--aptp", str(tmp_path / "no" / "tree.aptp")]) == 2
