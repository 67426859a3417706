"""Reading bytes: plain, gzip, and everything that can be wrong with a path."""

import gzip
from pathlib import Path

import pytest

from bough.errors import NetworkError, PropertyError
from bough.files.reading import read_bytes, resolve

LIMIT = 1 << 20


def test_plain_file(tmp_path: Path) -> None:
    path = tmp_path / "a.vnnlib"
    path.write_bytes(b"\x00abc")
    assert read_bytes(path, LIMIT, PropertyError) == b"\x00abc"
    assert read_bytes(str(path), LIMIT, PropertyError) == b"\x00abc"


def test_gzip_by_name_and_as_fallback(tmp_path: Path) -> None:
    (tmp_path / "a.onnx.gz").write_bytes(gzip.compress(b"abc") + gzip.compress(b"def"))
    assert read_bytes(tmp_path / "a.onnx.gz", LIMIT, NetworkError) == b"abcdef"
    assert read_bytes(tmp_path / "a.onnx", LIMIT, NetworkError) == b"abcdef"
    assert resolve(tmp_path / "a.onnx") == tmp_path / "a.onnx.gz"


def test_the_plain_file_is_preferred(tmp_path: Path) -> None:
    (tmp_path / "a.onnx.gz").write_bytes(gzip.compress(b"zipped"))
    (tmp_path / "a.onnx").write_bytes(b"plain")
    assert read_bytes(tmp_path / "a.onnx", LIMIT, NetworkError) == b"plain"


def test_limit_is_inclusive(tmp_path: Path) -> None:
    path = tmp_path / "a"
    path.write_bytes(b"x" * 100)
    assert len(read_bytes(path, 100, PropertyError)) == 100
    with pytest.raises(PropertyError, match="more than 99 bytes"):
        read_bytes(path, 99, PropertyError)


def test_gzip_bomb_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "bomb.vnnlib.gz"
    with gzip.open(path, "wb") as file:
        for _ in range(64):
            file.write(bytes(1 << 20))
    assert path.stat().st_size < 1 << 20
    with pytest.raises(PropertyError, match=r"bomb\.vnnlib\.gz holds more than 1,048,576 bytes"):
        read_bytes(path, LIMIT, PropertyError)


@pytest.mark.parametrize(
    ("contents", "words"),
    [
        (gzip.compress(b"abc" * 1000, mtime=0)[:-9], "ends in the middle"),
        (gzip.compress(b"abc" * 1000, mtime=0)[:4], "ends in the middle"),
        (b"no gzip at all", "no sound gzip file"),
        (gzip.compress(b"abc", mtime=0) + b"rubbish", "no sound gzip file"),
        (gzip.compress(b"abc", mtime=0)[:-8] + bytes(8), "no sound gzip file"),
        (gzip.compress(b"abc" * 1000, mtime=0)[:12] + b"\xff" * 40, "no sound gzip file"),
    ],
    ids=["cut late", "cut early", "no gzip", "rubbish behind", "wrong checksum", "rubbish inside"],
)
def test_broken_gzip(tmp_path: Path, contents: bytes, words: str) -> None:
    path = tmp_path / "a.gz"
    path.write_bytes(contents)
    with pytest.raises(NetworkError, match=words) as caught:
        read_bytes(path, LIMIT, NetworkError)
    assert str(path) in str(caught.value)


def test_missing_directory_and_impossible_paths(tmp_path: Path) -> None:
    with pytest.raises(NetworkError, match="does not exist"):
        read_bytes(tmp_path / "absent.onnx", LIMIT, NetworkError)
    with pytest.raises(PropertyError, match="is a directory"):
        read_bytes(tmp_path, LIMIT, PropertyError)
    with pytest.raises(PropertyError, match="cannot be read"):
        read_bytes(tmp_path / ("a" * 5000), LIMIT, PropertyError)
    with pytest.raises(PropertyError, match="cannot be read"):
        read_bytes("a\0b", LIMIT, PropertyError)
    (tmp_path / "file").write_bytes(b"")
    with pytest.raises(PropertyError, match="cannot be read"):
        read_bytes(tmp_path / "file" / "inside", LIMIT, PropertyError)


def test_unreadable_file(tmp_path: Path) -> None:
    path = tmp_path / "secret"
    path.write_bytes(b"abc")
    path.chmod(0)
    try:
        path.read_bytes()
    except PermissionError:
        with pytest.raises(PropertyError, match=r"cannot be read: Permission denied"):
            read_bytes(path, LIMIT, PropertyError)
    else:
        pytest.skip("this user may read every file")
