"""Small files that ask for much: refused before the memory is taken, and nothing outside the file is opened."""

import json
import time
import tracemalloc
import zipfile
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper
from soundness.damage import sealed
from tests.security.fuzz import CARD
from tests.support import sequential

from bough.api import load_network, load_problem
from bough.bench.ledger import read_records
from bough.cli import main
from bough.errors import BadInput, NetworkError, PropertyError
from bough.learning.dataset import SampleCard, read_shards
from bough.learning.labels import MODES
from bough.problem.images import read_image
from bough.problem.onnx_writer import write_network
from bough.problem.runtime import Reference
from bough.problem.vnnlib import parse_property
from bough.verdict.certificate import MOST_BYTES, MOST_LEAVES, SLOPES, Leaves, Lemma, ProblemHashes

node = helper.make_node


def model(
    nodes: list[Any], stored: dict[str, Any] | None = None, shape: tuple[int, ...] = (1, 2), **more: Any
) -> bytes:
    ends = [helper.make_tensor_value_info(n, TensorProto.FLOAT, s) for n, s in (("x", shape), ("y", None))]
    tensors = [numpy_helper.from_array(np.asarray(value), name) for name, value in (stored or {}).items()]
    graph = helper.make_graph(nodes, "g", ends[:1], ends[1:], tensors)
    proto = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8, **more)
    return bytes(proto.SerializeToString())


def doubling() -> bytes:
    nodes = [node("Concat", [f"c{i}", f"c{i}"], [f"c{i + 1}"], axis=0) for i in range(40)]
    return model([*nodes, node("Add", ["x", "c40"], ["y"])], {"c0": np.zeros(2, np.float32)})


def sums(n: int) -> dict[str, Any]:
    return {"a": np.zeros((n, 1), np.float32), "b": np.zeros((1, n), np.float32)}


BOMBS: dict[str, Callable[[], bytes]] = {
    "a sum of a row and a column": lambda: model(
        [node("Add", ["a", "b"], ["c"]), node("Add", ["x", "c"], ["y"])], sums(60_000)
    ),
    "a product of a column and a row": lambda: model(
        [node("MatMul", ["a", "b"], ["c"]), node("Add", ["x", "c"], ["y"])], sums(60_000)
    ),
    "constants doubled over and over": doubling,
    "an element taken many times": lambda: model(
        [node("Gather", ["x", "i"], ["y"], axis=0)], {"i": np.zeros(1 << 20, np.int64)}, (1, 1 << 12)
    ),
    "a pooling window as large as the image": lambda: model(
        [node("MaxPool", ["x"], ["y"], kernel_shape=[64, 64])], shape=(1, 1, 127, 127)
    ),
    "padding far beyond the image": lambda: model(
        [node("Conv", ["x", "w"], ["y"], strides=[1 << 17] * 2, pads=[1 << 17] * 4)],
        {"w": np.ones((1, 1, 1, 1), np.float32)},
        (1, 1, 2, 2),
    ),
    "an image without end": lambda: model([node("Relu", ["x"], ["y"])], shape=(1, 1 << 40)),
    "a constant without end": lambda: model(
        [node("ConstantOfShape", ["s"], ["c"]), node("Add", ["x", "c"], ["y"])], {"s": np.array([1 << 40], np.int64)}
    ),
    "nodes without end": lambda: model(
        [node("Identity", [f"v{i}" if i else "x"], [f"v{i + 1}"]) for i in range(60_000)] + [node("Relu", ["x"], ["y"])]
    ),
    "large values, many of them": lambda: model(
        [node("Expand", ["x", "s"], ["v0"])]
        + [node("Relu", [f"v{i}"], [f"v{i + 1}"]) for i in range(200)]
        + [node("ReduceSum", ["v200"], ["y"])],
        {"s": np.array([1 << 12, 1 << 11], np.int64)},
        (1, 1),
    ),
}


@pytest.mark.parametrize("what", BOMBS)
def test_networks_that_ask_for_much(what: str, tmp_path: Path) -> None:
    path = tmp_path / "a.onnx"
    path.write_bytes(BOMBS[what]())
    assert path.stat().st_size < 1 << 24
    began = time.monotonic()
    tracemalloc.start()  # NumPy's arrays count, PyTorch's do not: those are as large as their nodes
    try:
        with pytest.raises(NetworkError, match=r"too (large|many)|up to|elements|more than"):
            load_network(path)
        assert tracemalloc.get_traced_memory()[1] < 1 << 30
    finally:
        tracemalloc.stop()
    assert time.monotonic() - began < 60  # alone, about one


@pytest.mark.parametrize("place", ["/etc/passwd", "../secret", "link", "inside"])
@pytest.mark.parametrize("part", ["initializer", "attribute", "training"])
def test_no_other_file_is_opened(place: str, part: str, tmp_path: Path) -> None:
    (tmp_path / "inside").write_bytes(np.eye(2, dtype=np.float32).tobytes())
    (tmp_path / "link").symlink_to("/etc/passwd")
    weight = numpy_helper.from_array(np.eye(2, dtype=np.float32), "w")
    weight.ClearField("raw_data")
    weight.data_location = TensorProto.EXTERNAL
    weight.external_data.add(key="location", value=place)
    proto = onnx.ModelProto.FromString(model([node("Relu", ["x"], ["y"])]))
    if part == "initializer":
        proto.graph.initializer.append(weight)
    elif part == "attribute":
        proto.graph.node.append(node("Constant", [], ["unused"], value=weight))
    else:
        proto.training_info.add().algorithm.initializer.append(weight)
    path = tmp_path / "a.onnx"
    path.write_bytes(proto.SerializeToString())
    with pytest.raises(NetworkError, match="another file"):
        load_network(path)
    with pytest.raises(NetworkError, match="another file"):
        Reference(path.read_bytes())


def test_a_standard_operator_cannot_be_given_another_meaning(tmp_path: Path) -> None:
    opsets = [helper.make_opsetid("", 17)]
    relu = helper.make_function("", "Relu", ["a"], ["b"], [node("Neg", ["a"], ["b"])], opsets)
    path = tmp_path / "a.onnx"
    path.write_bytes(model([node("Relu", ["x"], ["y"])], functions=[relu]))
    with pytest.raises(NetworkError, match="'Relu' anew"):
        load_network(path)


def test_what_nobody_reads_reaches_no_runtime() -> None:
    bomb = [node("ConstantOfShape", ["s"], ["c"]), node("ReduceSum", ["c"], ["d"], keepdims=0)]
    data = model([*bomb, node("Relu", ["x"], ["y"])], {"s": np.array([1 << 20, 1 << 20], np.int64)})
    assert Reference(data).run(np.array([1.0, -1.0])).tolist() == [1.0, 0.0]


BOX = "(declare-const X_0 Real)(declare-const Y_0 Real)(assert (<= X_0 1))(assert (>= X_0 0))"


def test_properties_that_ask_for_much(monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(PropertyError, match="disjuncts"):
        parse_property(BOX + "(assert (and " + "(or (<= Y_0 1)(<= Y_0 2))" * 100 + "))")
    monkeypatch.setattr("bough.problem.vnnlib.MAX_TOKENS", 1000)
    with pytest.raises(PropertyError, match="words and parentheses"):
        parse_property(BOX + "(assert (and " + "(<= Y_0 1)" * 500 + "))")
    assert parse_property(BOX + "(assert (<= Y_0 1))" + " " * 2000).outputs == 1
    huge = "(declare-input X float32 [1000000,1000000])(declare-output Y float32 [1])"
    with pytest.raises(PropertyError, match="has no elements, or more than"):
        parse_property(f"(vnnlib-version <2.0>)(declare-network f {huge})(assert (<= Y[0] 0.0))")
    digits = "1" * 1_000_000
    assert float(parse_property(BOX + f"(assert (<= Y_0 {digits}e-1000000))").clauses[0].offsets[0]) < 1


def test_lines_that_nest_too_deep(tmp_path: Path) -> None:
    deep = b'{"schema": ' + b"[" * 100_000 + b"\n"
    path = tmp_path / "samples.jsonl"
    path.write_bytes(deep)
    with pytest.raises(BadInput, match="not a record"):
        read_records(path)
    with pytest.raises(BadInput, match="not a line of ours"):
        read_shards(tmp_path)


@pytest.mark.parametrize("wrong", [{"name": "../../x"}, {"name": "/x"}, {"sha256": "../../x"}, {"name": "a\0"}])
def test_cards_do_not_lead_out_of_their_folder(wrong: dict[str, str], tmp_path: Path) -> None:
    card = {**CARD, "mode": MODES[0]}
    assert SampleCard.read(card).image == 3
    with pytest.raises(BadInput, match="lead out of the folder"):
        SampleCard.read({**card, **wrong})
    head = {"schema": "bough.samples/1", "recipe": {}}
    (tmp_path / "samples.jsonl").write_text(f"{json.dumps(head)}\n{json.dumps({**card, **wrong})}\n")
    with pytest.raises(BadInput, match="line 2: not the card"):
        read_shards(tmp_path)


def test_arrays_that_promise_more_than_is_there(tmp_path: Path) -> None:
    header = b"{'descr': '<f8', 'fortran_order': False, 'shape': (1000000, 1000000), }".ljust(117) + b"\n"
    with zipfile.ZipFile(tmp_path / "a.npz", "w") as archive:
        archive.writestr("a.npy", b"\x93NUMPY\x01\x00" + len(header).to_bytes(2, "little") + header + bytes(80))
    with pytest.raises(PropertyError, match="does not fit into"):
        read_image(tmp_path / "a.npz")
    np.save(tmp_path / "b.npy", np.array([{"a": 1}], dtype=object), allow_pickle=True)
    with pytest.raises(PropertyError, match="cannot be read"):
        read_image(tmp_path / "b.npy")


def test_pictures_are_of_few_kinds(tmp_path: Path) -> None:
    script = tmp_path / "a.eps"  # which Pillow would hand to another program
    script.write_bytes(b"%!PS-Adobe-3.0 EPSF-3.0\n%%BoundingBox: 0 0 10 10\n%%EndComments\n")
    with pytest.raises(PropertyError, match="cannot be read as an image"):
        read_image(script)
    wide = tmp_path / "a.ppm"
    wide.write_bytes(b"P6 5000 5000 255\n")
    with pytest.raises(PropertyError, match="5000 x 5000 pixels"):
        read_image(wide)


def certificate(tmp_path: Path, chunks: list[Any], leaves: int | None = None) -> list[str]:
    """A network of 400 ReLUs, an easy property, and a file that says to be its certificate: the words of a check."""
    wide = sequential((np.ones((400, 1)), np.zeros(400)), (np.ones((1, 400)), np.zeros(1)))
    write_network(wide, tmp_path / "net.onnx")
    (tmp_path / "a.vnnlib").write_text(BOX + "(assert (<= Y_0 -5))")
    problem = load_problem(load_network(tmp_path / "net.onnx"), tmp_path / "a.vnnlib")
    question = ProblemHashes.of(problem.network, problem.property)
    (tmp_path / "proof").write_bytes(sealed([question, *chunks], "verified", count=leaves))
    return ["check", *(str(tmp_path / name) for name in ("net.onnx", "a.vnnlib", "proof"))]


def leaves_of(paths: list[list[int]], **changes: Any) -> Leaves:
    """Leaves by their literals."""
    count, none = len(paths), np.zeros(0, np.int64)
    leaves = Leaves(
        clause=np.zeros(count, np.int64),
        kind=np.full(count, SLOPES),
        vector=np.zeros(count, np.int64),
        splits=np.array([len(one) for one in paths], np.int64),
        literals=np.array([a for one in paths for a in one], np.int64),
        signs=np.zeros(sum(map(len, paths))),
        halvings=np.zeros(count, np.int64),
        inputs=none,
        times=none,
        halves=none,
        weights=np.ones((count, 1)),
        slots=none,
        coarse=np.zeros((0, 0), np.uint8),
        fine=np.zeros((0, 0)),
    )
    return replace(leaves, **changes)


def test_a_tree_as_deep_as_the_network(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Every leaf beside the way down to the last one: read without recursion, and what is missing is named shortly."""
    deep = [[*(2 * k + 1 for k in range(depth)), 2 * depth] for depth in range(399)]
    deep.append([2 * k + 1 for k in range(399)])
    began = time.monotonic()
    assert main(certificate(tmp_path, [leaves_of(deep)])) == 0
    assert time.monotonic() - began < 30
    assert main(certificate(tmp_path, [leaves_of(deep[:200] + deep[201:])])) == 1
    message = capsys.readouterr().err
    assert "leave a gap" in message
    assert len(message) < 2000


def test_certificates_that_ask_for_much(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Refused in one sentence, and before the memory is taken."""
    huge = np.array([(1 << 32) - 1])
    for status, changes in (
        (1, {"splits": huge}),
        (1, {"halvings": huge}),
        (1, {"clause": huge}),
        (1, {"vector": huge}),
        (1, {"literals": huge, "splits": np.array([1]), "signs": np.zeros(1)}),
        (1, {"times": np.array([255]), "inputs": np.array([0]), "halves": huge, "halvings": np.array([1])}),
        (1, {"slots": huge, "coarse": np.zeros((0, 1), np.uint8), "fine": np.zeros((0, 1))}),
    ):
        words = certificate(tmp_path, [leaves_of([[]], **changes)])
        tracemalloc.start()
        assert main(words) == status
        assert tracemalloc.get_traced_memory()[1] < 200 << 20
        tracemalloc.stop()
    many = leaves_of([[]] * (MOST_LEAVES + 1))
    assert main(certificate(tmp_path, [many])) == 1
    assert main(certificate(tmp_path, [leaves_of([[]])], leaves=(1 << 64) - 1)) == 1
    lemma = Lemma(np.zeros(2), np.zeros(0), np.zeros(0), np.zeros((0, 0)), np.zeros((0, 0)))
    zeros = replace(lemma, neurons=np.zeros(MOST_BYTES // 2 + 1, np.uint8))  # a quarter of a megabyte in the file
    tracemalloc.start()
    assert main(certificate(tmp_path, [zeros])) == 2
    assert tracemalloc.get_traced_memory()[1] < 4 * MOST_BYTES
    tracemalloc.stop()
    output = capsys.readouterr()
    assert "Traceback" not in output.err
    assert "valid" not in output.out.split()
