"""Whatever is handed in, bough answers with a verdict or with one sentence: exit status 2, no traceback, no verdict."""

import contextlib
import gzip
import io
import os
import stat
import time
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from onnx import TensorProto, helper, numpy_helper
from tests.support import OUTPUTS, sequential

from bough.cli import main
from bough.files.reading import PROPERTY_LIMIT
from bough.problem.onnx_writer import write_network
from bough.zoo import demo

NETWORK = write_network(sequential(([[1, 1], [1, -1]], [0, 0]), ([[1, 1], [1, -1]], [0, 0])))
PROPERTY = """; two inputs, two outputs
(declare-const X_0 Real)
(declare-const X_1 Real)
(declare-const Y_0 Real)
(declare-const Y_1 Real)
(assert (>= X_0 -1.0))
(assert (<= X_0 1.0))
(assert (>= X_1 -1.0))
(assert (<= X_1 1.0))
(assert (or (and (<= Y_0 -0.5)) (and (>= Y_1 2.5) (<= Y_0 0.25))))
"""


VERDICTS = {"verified": 0, "falsified": 1, "timeout": 3, "unknown": 3}


class Refusal:
    """Runs commands that must be refused; a network and a property that are fine lie beside whatever is broken."""

    def __init__(self, folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
        self.folder = folder
        self._capsys = capsys
        self.network = self.file("fine.onnx", NETWORK)
        self.property = self.file("fine.vnnlib", PROPERTY)

    def file(self, name: str, contents: bytes | str) -> Path:
        path = self.folder / name
        path.write_bytes(contents.encode() if isinstance(contents, str) else contents)
        return path

    def __call__(self, *arguments: object, words: str = "", command: str = "verify") -> str:
        """The one sentence, which has these words in it."""
        self._capsys.readouterr()
        status = main([command, *(str(a) for a in arguments)])
        printed = self._capsys.readouterr()
        assert (status, printed.out) == (2, "")
        (line,) = printed.err.splitlines()
        assert line.startswith("bough: ")
        assert words in line, line
        assert "Traceback" not in line
        assert line.isprintable()
        assert 20 < len(line) < 500 + len(str(self.folder))
        return line


@pytest.fixture
def refused(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> Refusal:
    return Refusal(tmp_path, capsys)


def test_what_is_broken_below_is_fine_here(refused: Refusal, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["verify", str(refused.network), str(refused.property), "--quiet"]) == 0
    assert capsys.readouterr().out == "verified\n"


# Files that are not what they should be


def test_missing_files(refused: Refusal) -> None:
    absent = refused.folder / "absent.onnx"
    assert str(absent) in refused(absent, refused.property, words="does not exist")
    absent = refused.folder / "absent.vnnlib"
    assert str(absent) in refused(refused.network, absent, words="does not exist")
    refused(refused.folder / "no folder" / "a.onnx", refused.property, words="does not exist")


def test_a_folder_instead_of_a_file(refused: Refusal) -> None:
    refused(refused.folder, refused.property, words="is a directory")
    refused(refused.network, refused.folder, words="is a directory")
    image = ("--label", 0, "--eps", 0.1)
    refused(demo.NETWORK, refused.folder, *image, words="is a folder", command="robustness")


@pytest.mark.parametrize("contents", [b"", b" \n", bytes(100), bytes(range(256)) * 8, PROPERTY.encode(), b"\x80" * 50])
def test_no_network(refused: Refusal, contents: bytes) -> None:
    path = refused.file("broken.onnx", contents)
    assert str(path) in refused(path, refused.property)


@pytest.mark.parametrize("contents", [b"", b" \n", b"; a comment\n", bytes(100), bytes(range(256)) * 8, NETWORK])
def test_no_property(refused: Refusal, contents: bytes) -> None:
    path = refused.file("broken.vnnlib", contents)
    assert str(path) in refused(refused.network, path)


def test_swapped_arguments(refused: Refusal) -> None:
    assert "fine.vnnlib" in refused(refused.property, refused.network)


@pytest.mark.parametrize("kept", [0.002, 0.02, 0.25, 0.5, 0.75, 0.95, 0.999])
def test_a_truncated_network(refused: Refusal, kept: float) -> None:
    path = refused.file("short.onnx", NETWORK[: int(kept * len(NETWORK))])
    assert str(path) in refused(path, refused.property)


def test_a_truncated_gzip(refused: Refusal) -> None:
    for name, contents in (("a.onnx.gz", NETWORK), ("a.vnnlib.gz", PROPERTY.encode())):
        path = refused.file(name, gzip.compress(contents)[:-20])
        pair = (path, refused.property) if "onnx" in name else (refused.network, path)
        refused(*pair, words="ends in the middle of its gzip data")


# Networks that cannot be verified


def model(nodes: list[Any], tensors: list[Any]) -> bytes:
    """An ONNX file from input `x` to output `y`, two numbers each."""
    ends = [helper.make_tensor_value_info(name, TensorProto.FLOAT, (1, 2)) for name in ("x", "y")]
    graph = helper.make_graph(nodes, "g", ends[:1], ends[1:], tensors)
    return bytes(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)]).SerializeToString())


@pytest.mark.parametrize("operator", ["Sigmoid", "Softmax", "Tanh", "Erf", "NoSuchOperator"])
def test_an_unsupported_operator_is_named(refused: Refusal, operator: str) -> None:
    path = refused.file("a.onnx", model([helper.make_node(operator, ["x"], ["y"])], []))
    assert str(path) in refused(path, refused.property, words=operator)


@pytest.mark.parametrize("number", [np.nan, np.inf, -np.inf])
def test_weights_that_are_no_numbers(refused: Refusal, number: float) -> None:
    weight = numpy_helper.from_array(np.array([[1, 0], [number, 1]], np.float32), "W")
    path = refused.file("a.onnx", model([helper.make_node("MatMul", ["x", "W"], ["y"])], [weight]))
    assert str(path) in refused(path, refused.property, words="finite")


def test_a_missing_weight(refused: Refusal) -> None:
    path = refused.file("a.onnx", model([helper.make_node("MatMul", ["x", "W"], ["y"])], []))
    assert str(path) in refused(path, refused.property, words="W")


def test_weights_in_another_file(refused: Refusal) -> None:
    weight = numpy_helper.from_array(np.eye(2, dtype=np.float32), "W")
    loaded = onnx.load_model_from_string(model([helper.make_node("MatMul", ["x", "W"], ["y"])], [weight]))
    (tensor,) = loaded.graph.initializer
    tensor.ClearField("raw_data")
    tensor.data_location = TensorProto.EXTERNAL
    tensor.external_data.add(key="location", value="../../etc/passwd")
    path = refused.file("a.onnx", loaded.SerializeToString())
    refused(path, refused.property, words="another file")


def test_a_name_that_is_no_text(refused: Refusal) -> None:
    path = refused.file("a.onnx", NETWORK.replace(b"transB", b"\x80ransB"))
    refused(path, refused.property)


# Properties that do not fit or mean nothing


def test_a_property_of_another_network(refused: Refusal) -> None:
    refused(demo.NETWORK, refused.property, words="the property has 2 inputs, the network 256")
    three = PROPERTY.replace("(declare-const Y_1 Real)", "(declare-const Y_1 Real)\n(declare-const Y_2 Real)")
    refused(refused.network, refused.file("a.vnnlib", three), words="3 outputs, the network has 2")


@pytest.mark.parametrize(
    ("old", "new", "line", "words"),
    [
        ("(assert (<= X_0 1.0))", "(assert (<= X_0 1.0)", 8, "expected ), found '('"),
        ("(<= Y_0 0.25))))", "(<= Y_0 0.25)))", 10, "never closed"),
        ("(assert (<= X_0 1.0))", "(assert (<= X_0 1.0)))", 7, "closes nothing"),
        ("(assert (<= X_0 1.0))", "(assert (<= X_0 one))", 7, "one"),
        ("(assert (<= X_1 1.0))", "(asert (<= X_1 1.0))", 9, "asert"),
        ("(assert (<= X_1 1.0))", "(assert (<> X_1 1.0))", 9, "<>"),
        ("(assert (<= X_1 1.0))", "(assert (<= X_2 1.0))", 9, "X_2"),
        ("(<= Y_0 0.25)", "(<= Y_2 0.25)", 10, "Y_2"),
        ("(<= Y_0 0.25)", "(<= (* Y_0 Y_1) 0.25)", 10, "multiplies variables"),
        ("(<= Y_0 0.25)", "(<= (+ Y_0 X_0) 0.25)", 10, "mixes inputs and outputs"),
        ("(<= Y_0 0.25)", "(<= (+ X_1 X_0) 0.25)", 10, "relates several inputs"),
        ("(declare-const Y_1 Real)", "(declare-const Y_1 Int)", 5, "Int"),
        ("(declare-const Y_1 Real)", "(declare-const Y_0 Real)", 5, "declared twice"),
    ],
)
def test_a_property_that_does_not_parse(refused: Refusal, old: str, new: str, line: int, words: str) -> None:
    assert PROPERTY.count(old) == 1
    path = refused.file("a.vnnlib", PROPERTY.replace(old, new))
    message = refused(refused.network, path, words=words)
    assert f"{path}, line {line}: " in message


@pytest.mark.parametrize(
    ("old", "new", "words"),
    [
        ("(assert (<= X_0 1.0))", "", "X_0 has no"),
        ("(assert (<= X_0 1.0))", "(assert (<= X_0 1e999))", "1e999"),
        ("(or (and (<= Y_0 -0.5)) (and (>= Y_1 2.5) (<= Y_0 0.25)))", "(or)", "line 10"),
    ],
)
def test_an_open_box_and_nothing_unsafe(refused: Refusal, old: str, new: str, words: str) -> None:
    assert PROPERTY.count(old) == 1
    refused(refused.network, refused.file("a.vnnlib", PROPERTY.replace(old, new)), words=words)


@pytest.mark.parametrize("depth", [1_000, 100_000])
@pytest.mark.parametrize("gate", ["and", "or", "not"])
def test_deep_nesting_neither_crashes_nor_hangs(
    refused: Refusal, capsys: pytest.CaptureFixture[str], gate: str, depth: int
) -> None:
    deep = f"(assert {f'({gate} ' * depth}(<= Y_0 -0.5){')' * depth})"
    path = refused.file("deep.vnnlib", PROPERTY.replace(PROPERTY.splitlines()[-1], deep))
    began = time.monotonic()
    status = main(["verify", str(refused.network), str(path), "--quiet"])
    assert (status, capsys.readouterr()) == (0, ("verified\n", ""))
    assert time.monotonic() - began < 60  # alone, about one
    cut = refused.file("cut.vnnlib", path.read_text()[: -depth // 2])
    refused(refused.network, cut, words="line 10: the parenthesis opened here is never closed")


def test_deep_arithmetic(refused: Refusal, capsys: pytest.CaptureFixture[str]) -> None:
    deep = f"(assert (<= {'(+ 0.0 ' * 5000}Y_0{')' * 5000} -0.5))"
    path = refused.file("deep.vnnlib", PROPERTY.replace(PROPERTY.splitlines()[-1], deep))
    assert main(["verify", str(refused.network), str(path), "--quiet"]) == 0
    assert capsys.readouterr() == ("verified\n", "")


# Files too large to read


def test_a_bomb_is_refused_at_the_stated_size(refused: Refusal, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("bough.api.NETWORK_LIMIT", 100_000)
    monkeypatch.setattr("bough.problem.vnnlib.PROPERTY_LIMIT", 50_000)
    bomb = gzip.compress(bytes(1 << 20))
    refused(refused.file("a.onnx.gz", bomb), refused.property, words="more than 100,000 bytes")
    refused(refused.network, refused.file("a.vnnlib.gz", bomb), words="more than 50,000 bytes")
    refused(refused.file("a.onnx", bytes(100_001)), refused.property, words="more than 100,000 bytes")
    at_the_limit = PROPERTY + " " * (50_000 - len(PROPERTY))
    assert main(["verify", str(refused.network), str(refused.file("b.vnnlib", at_the_limit)), "--quiet"]) == 0


def test_two_gibibytes_of_nothing(refused: Refusal) -> None:
    member = gzip.compress(bytes(1 << 24))
    path = refused.file("bomb.vnnlib.gz", member * 128)
    assert path.stat().st_size < 1 << 22
    began = time.monotonic()
    refused(refused.network, path, words=f"more than {PROPERTY_LIMIT:,} bytes")
    assert time.monotonic() - began < 60  # alone, about one


# Places where nothing can be written

EVERY_OUTPUT = pytest.mark.parametrize("option", OUTPUTS)
FALSE = PROPERTY.replace("(<= Y_0 -0.5)", "(<= Y_0 0.5)")  # so that there is a counterexample to write


@EVERY_OUTPUT
def test_outputs_are_checked_before_the_search(refused: Refusal, monkeypatch: pytest.MonkeyPatch, option: str) -> None:
    monkeypatch.setattr("bough.api.solve", lambda *_: pytest.fail("searched"))
    pair = (refused.network, refused.property)
    refused(*pair, option, refused.folder / "no" / "run", words=f"the folder {refused.folder / 'no'} does not exist")
    refused(*pair, option, refused.folder, words="it is a folder")
    refused(*pair, option, refused.network / "run", words="does not exist")
    refused(*pair, option, refused.folder / ("x" * 300), words="File name too long")


@EVERY_OUTPUT
def test_no_permission_to_write(refused: Refusal, monkeypatch: pytest.MonkeyPatch, option: str) -> None:
    monkeypatch.setattr("bough.api.solve", lambda *_: pytest.fail("searched"))
    monkeypatch.setattr(os, "access", lambda path, mode: mode != os.W_OK)  # root may write everywhere
    refused(refused.network, refused.property, option, refused.folder / "run", words="permission denied")
    refused(refused.network, refused.property, option, refused.property, words="permission denied")


@EVERY_OUTPUT
def test_a_full_disk(refused: Refusal, option: str) -> None:
    if not Path("/dev/full").exists():
        pytest.skip("there is no /dev/full")
    full = refused.folder / "full"
    full.symlink_to("/dev/full")  # so that a program that replaces what it writes to replaces the link
    prop = refused.file("false.vnnlib", FALSE)
    message = refused(refused.network, prop, option, full, "--quiet", words="No space left on device")
    assert "the run ended falsified" in message
    assert full.is_symlink()
    assert stat.S_ISCHR(full.stat().st_mode)
    assert not list(refused.folder.glob(".*"))


# Images


@pytest.mark.parametrize(
    ("name", "contents", "words"),
    [
        ("a.npy", b"", "no NumPy array"),
        ("a.npy", b"rubbish" * 40, "no NumPy array"),
        ("a.npy", b"\x93NUMPY" + bytes(40), "cannot be read"),
        ("a.npz", b"PK" + bytes(40), "cannot be read"),
        ("a.png", b"rubbish" * 40, "cannot be read"),
        ("a.jpeg", b"", "cannot be read"),
        ("a", b"rubbish", "cannot be read"),
    ],
)
def test_no_image(refused: Refusal, name: str, contents: bytes, words: str) -> None:
    path = refused.file(name, contents)
    message = refused(demo.NETWORK, path, "--label", 0, "--eps", 0.1, words=words, command="robustness")
    assert str(path) in message


def _values(shape: tuple[int, ...], fill: Any, dtype: Any = np.float64) -> Callable[[], Any]:
    return lambda: np.full(shape, fill, dtype)


@pytest.mark.parametrize(
    ("array", "words"),
    [
        (_values((1, 16, 16), np.nan), "not finite"),
        (_values((1, 16, 16), np.inf), "not finite"),
        (_values((1, 16, 16), 200.0), "values from 200 to 200, outside the valid pixels 0 to 1"),
        (_values((1, 16, 16), -3, np.int16), "outside the valid pixels"),
        (_values((1, 16, 16), 0.5 + 1j, np.complex64), "complex64"),
        (_values((1, 16, 16), 1, np.bool_), "bool"),
        (_values((1, 16, 16), "pixel", np.str_), "values"),
        (_values((1, 16, 15), 0.5), "the image is 1 x 16 x 15, the network takes 1 x 16 x 16"),
        (_values((), 0.5), "the network takes 1 x 16 x 16"),
        (_values((0, 3), 0.5), "holds 0 values"),
        (lambda: np.array([None, {}], dtype=object), "cannot be read"),
    ],
)
def test_values_that_are_no_pixels(refused: Refusal, array: Callable[[], Any], words: str) -> None:
    path = refused.folder / "a.npy"
    np.save(path, array())
    refused(demo.NETWORK, path, "--label", 0, "--eps", 0.1, words=words, command="robustness")
    path = refused.folder / "a.npz"
    np.savez(path, a=array())
    refused(demo.NETWORK, path, "--label", 0, "--eps", 0.1, words=words, command="robustness")


def test_images_that_promise_too_much(refused: Refusal, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("bough.problem.images.LARGEST", 1000)
    header = b"{'descr': '<f8', 'fortran_order': False, 'shape': (1000000, 1000000), }".ljust(117) + b"\n"
    path = refused.file("a.npy", b"\x93NUMPY\x01\x00" + len(header).to_bytes(2, "little") + header + bytes(80))
    refused(demo.NETWORK, path, "--label", 0, "--eps", 0.1, words="cannot be read", command="robustness")
    np.save(path, np.zeros(1001))
    refused(demo.NETWORK, path, "--label", 0, "--eps", 0.1, words="holds 1001 values", command="robustness")
    path = refused.folder / "a.npz"
    np.savez_compressed(path, a=np.zeros(100_000))
    refused(demo.NETWORK, path, "--label", 0, "--eps", 0.1, words="an image has at most", command="robustness")
    np.savez(path)
    refused(demo.NETWORK, path, "--label", 0, "--eps", 0.1, words="holds no array", command="robustness")
    refused(demo.NETWORK, "absent.npy", "--label", 0, "--eps", 0.1, words="there is no image", command="robustness")


# Damage of any kind


@st.composite
def damaged(draw: st.DrawFn, whole: bytes) -> bytes:
    """A file with a few bytes changed, removed or put in, or its end missing."""
    data = bytearray(whole)
    for _ in range(draw(st.integers(1, 4))):
        at = draw(st.integers(0, max(len(data) - 1, 0)))
        kind = draw(st.sampled_from(["flip", "set", "remove", "insert", "cut", "copy"]))
        if kind == "cut":
            del data[at:]
        elif kind == "insert":
            data[at:at] = draw(st.binary(min_size=1, max_size=8))
        elif kind == "copy":
            data[at:at] = data[at : at + draw(st.integers(1, 30))]
        elif data and kind == "flip":
            data[at] ^= 1 << draw(st.integers(0, 7))
        elif data and kind == "set":
            data[at] = draw(st.integers(0, 255))
        elif data:
            del data[at]
    return bytes(data)


def run_on(folder: Path, network: bytes, prop: bytes) -> None:
    """Any verdict or a refusal will do."""
    (folder / "a.onnx").write_bytes(network)
    (folder / "a.vnnlib").write_bytes(prop)
    out, err = io.StringIO(), io.StringIO()
    with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err), warnings.catch_warnings():
        warnings.simplefilter("ignore")  # damaged weights may overflow; the verdict is what counts
        status = main(["verify", str(folder / "a.onnx"), str(folder / "a.vnnlib"), "--timeout", "2", "--quiet"])
    verdicts = [line for line in out.getvalue().splitlines() if line in VERDICTS]
    assert "Traceback" not in err.getvalue(), err.getvalue()
    assert status in (0, 1, 2, 3), err.getvalue()
    assert verdicts == [] if status == 2 else len(verdicts) == 1 and VERDICTS[verdicts[0]] == status
    assert len(err.getvalue().splitlines()) == (status == 2)


@settings(max_examples=200)
@given(data=damaged(NETWORK))
def test_a_damaged_network(tmp_path_factory: pytest.TempPathFactory, data: bytes) -> None:
    run_on(_folder(tmp_path_factory), data, PROPERTY.encode())


@settings(max_examples=200)
@given(data=damaged(PROPERTY.encode()))
def test_a_damaged_property(tmp_path_factory: pytest.TempPathFactory, data: bytes) -> None:
    run_on(_folder(tmp_path_factory), NETWORK, data)


def _folder(factory: pytest.TempPathFactory) -> Path:
    """One folder for all examples, overwritten each time."""
    path = factory.getbasetemp() / "damaged"
    path.mkdir(exist_ok=True)
    return path
