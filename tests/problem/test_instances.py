"""Lists of instances: the competition's files, `.gz` fallback, and errors that name file and line."""

import gzip
import os
from pathlib import Path

import pytest

from bough.errors import BadInput
from bough.problem.instances import Instance, read_instances


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    for name in ("onnx/a.onnx", "vnnlib/p.vnnlib", "odd, name.onnx"):
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_bytes(b"")
    (tmp_path / "vnnlib/q.vnnlib.gz").write_bytes(gzip.compress(b""))
    return tmp_path


def write(folder: Path, text: str | bytes) -> Path:
    path = folder / "instances.csv"
    path.write_bytes(text if isinstance(text, bytes) else text.encode())
    return path


def test_paths_are_relative_to_the_file_and_fall_back_to_gz(folder: Path) -> None:
    path = write(folder, "onnx/a.onnx,vnnlib/p.vnnlib,60\r\n\r\n./onnx/a.onnx, vnnlib/q.vnnlib ,1.5\r\n")
    assert read_instances(path) == (
        Instance(folder / "onnx/a.onnx", folder / "vnnlib/p.vnnlib", 60.0),
        Instance(folder / "onnx/a.onnx", folder / "vnnlib/q.vnnlib.gz", 1.5),
    )


def test_quotes_byte_order_mark_and_no_last_newline(folder: Path) -> None:
    path = write(folder, '\ufeff"odd, name.onnx",vnnlib/p.vnnlib,1e2')
    assert read_instances(str(path)) == (Instance(folder / "odd, name.onnx", folder / "vnnlib/p.vnnlib", 100.0),)


GOOD = "onnx/a.onnx,vnnlib/p.vnnlib,60\n"


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("", "lists no instance"),
        ("\n , ,\n", "lists no instance"),
        (GOOD + "onnx/a.onnx,vnnlib/p.vnnlib\n", "line 2: expected `network,property,timeout`"),
        (GOOD + "onnx/a.onnx,vnnlib/p.vnnlib,60,7\n", "line 2: expected"),
        ("onnx/a.onnx,,60\n", "line 1: expected"),
        (GOOD + "\nonnx/a.onnx,vnnlib/p.vnnlib,soon\n", "line 3: the timeout 'soon'"),
        ("onnx/a.onnx,vnnlib/p.vnnlib,nan\n", "the timeout 'nan'"),
        ("onnx/a.onnx,vnnlib/p.vnnlib,inf\n", "the timeout 'inf'"),
        ("onnx/a.onnx,vnnlib/p.vnnlib,0\n", "the timeout '0'"),
        ("onnx/a.onnx,vnnlib/p.vnnlib,-3\n", "the timeout '-3'"),
        (GOOD + "onnx/b.onnx,vnnlib/p.vnnlib,60\n", r"line 2: no network at .*b\.onnx"),
        (GOOD + "onnx/a.onnx,vnnlib/r.vnnlib,60\n", r"line 2: no property at .*r\.vnnlib"),
        (GOOD + '"onnx/a.onnx,vnnlib/p.vnnlib,60\n', "line 2: not a CSV line"),
        (b"\xff\xfe\x00", "is not text"),
    ],
)
def test_errors_name_file_and_line(folder: Path, text: str | bytes, words: str) -> None:
    with pytest.raises(BadInput, match=words) as caught:
        read_instances(write(folder, text))
    assert "instances.csv" in str(caught.value)


def test_missing_list(tmp_path: Path) -> None:
    with pytest.raises(BadInput, match="does not exist"):
        read_instances(tmp_path / "instances.csv")


def test_every_competition_list_reads() -> None:
    data = os.environ.get("BOUGH_DATA")
    if not data:
        pytest.skip("BOUGH_DATA is not set: no competition files here")
    lists = sorted(Path(data, "vnncomp").glob("*/instances.csv"))
    assert lists
    for path in lists:
        instances = read_instances(path)
        assert instances
        assert all(instance.network.is_file() and instance.property.is_file() for instance in instances)
