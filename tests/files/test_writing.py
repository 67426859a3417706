"""Files that are written whole or not at all, whatever happens meanwhile."""

import errno
import os
import random
import resource
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path

import pytest

from bough.errors import OutputError
from bough.files.writing import check_writable, make_folder, own, replace, write_bytes, write_text

ENVIRONMENT = {**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, sys.path))}


def names(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.iterdir())


def test_text_replaces_a_file_whole(tmp_path: Path) -> None:
    path = tmp_path / "result.txt"
    path.write_text("older " * 1000)
    write_text(path, "new ε\n")
    assert path.read_bytes() == "new ε\n".encode()
    assert names(tmp_path) == ["result.txt"]


def test_text_may_name_a_file_whose_name_is_no_utf_8(tmp_path: Path) -> None:
    write_text(tmp_path / "result.txt", os.fsdecode(b"net\xff.onnx"))
    assert (tmp_path / "result.txt").read_bytes() == b"net\xff.onnx"


@pytest.mark.parametrize("call", ["write", "fsync"])
@pytest.mark.parametrize("code", [errno.ENOSPC, errno.EIO, errno.EDQUOT, errno.EROFS])
def test_a_failed_write_leaves_the_older_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, call: str, code: int
) -> None:
    path = tmp_path / "result.txt"
    path.write_text("older")

    def full(*_: object) -> None:
        raise OSError(code, os.strerror(code))

    with monkeypatch.context() as patched:
        patched.setattr(os, call, full)
        with pytest.raises(OutputError, match=rf"cannot write .*result\.txt: {os.strerror(code)}$"):
            write_text(path, "new")
    assert path.read_text() == "older"
    assert names(tmp_path) == ["result.txt"]


def test_ctrl_c_leaves_the_older_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "result.txt"
    path.write_text("older")

    def interrupted(_: int) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(os, "fsync", interrupted)
    with pytest.raises(KeyboardInterrupt):
        write_text(path, "new")
    assert path.read_text() == "older"
    assert names(tmp_path) == ["result.txt"]


def test_all_is_written_however_little_the_system_takes_at_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write = os.write
    monkeypatch.setattr(os, "write", lambda file, data: write(file, data[:7]))
    write_bytes(tmp_path / "a", bytes(range(100)))
    assert (tmp_path / "a").read_bytes() == bytes(range(100))


def test_a_quota(tmp_path: Path) -> None:
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    (tmp_path / "a").write_text("before")
    resource.setrlimit(resource.RLIMIT_FSIZE, (1000, before[1]))
    try:
        with pytest.raises(OutputError, match="File too large"):
            write_bytes(tmp_path / "a", bytes(5000))
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)
    assert (tmp_path / "a").read_text() == "before"
    assert names(tmp_path) == ["a"]


def test_a_link_is_followed(tmp_path: Path) -> None:
    (tmp_path / "there").mkdir()
    link = tmp_path / "link"
    link.symlink_to(tmp_path / "there" / "real")
    write_text(link, "a")
    write_text(link, "b")
    assert link.is_symlink()
    assert (tmp_path / "there" / "real").read_text() == "b"
    ring = tmp_path / "ring"
    ring.symlink_to(ring)
    with pytest.raises(OutputError, match="cannot write"):
        write_text(ring, "a")


def test_a_device_stays_a_device(tmp_path: Path) -> None:
    link = tmp_path / "null"
    link.symlink_to("/dev/null")
    write_text(link, "gone")
    assert link.is_symlink()
    assert Path("/dev/null").is_char_device()


def test_a_file_in_a_folder_that_takes_no_new_ones(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "result.txt"
    path.write_text("older")
    monkeypatch.setattr(os, "access", lambda place, _: Path(place) == path)
    check_writable(path)
    write_text(path, "new")
    assert path.read_text() == "new"
    with pytest.raises(OutputError, match="permission denied"):
        check_writable(tmp_path / "other.txt")


def test_a_name_as_long_as_names_get(tmp_path: Path) -> None:
    path = tmp_path / ("x" * 255)
    check_writable(path)
    write_text(path, "a")
    assert path.read_text() == "a"
    with pytest.raises(OutputError, match="File name too long"):
        check_writable(tmp_path / ("x" * 256))
    with pytest.raises(OutputError, match="File name too long"):
        write_text(tmp_path / ("x" * 256), "a")


def test_folders_are_made_where_that_is_asked_for(tmp_path: Path) -> None:
    with pytest.raises(OutputError, match=r"cannot write .*one/two/a: No such file"):
        write_bytes(tmp_path / "one" / "two" / "a", b"1")
    write_bytes(tmp_path / "one" / "two" / "a", b"1", parents=True)
    assert (tmp_path / "one" / "two" / "a").read_bytes() == b"1"
    with pytest.raises(OutputError, match=r"cannot write .*a/b: File exists"):
        write_bytes(tmp_path / "one" / "two" / "a" / "b", b"1", parents=True)


def test_a_folder_that_takes_nothing(tmp_path: Path) -> None:
    (tmp_path / "closed").mkdir(mode=0o500)
    if os.access(tmp_path / "closed", os.W_OK):
        pytest.skip("this user may write everywhere")
    with pytest.raises(OutputError, match=r"cannot write .*: Permission denied"):
        write_bytes(tmp_path / "closed" / "a", b"1")
    with pytest.raises(OutputError, match=r"cannot create the folder .*: Permission denied"):
        make_folder(tmp_path / "closed" / "more")


def test_folders_for_results(tmp_path: Path) -> None:
    make_folder(tmp_path / "one" / "two", resume=False)
    make_folder(tmp_path / "one" / "two", resume=False)  # it is empty
    make_folder(tmp_path / "one")
    with pytest.raises(OutputError, match=r"one is not empty; go on with it by --resume, or give another folder"):
        make_folder(tmp_path / "one", resume=False)
    (tmp_path / "file").touch()
    with pytest.raises(OutputError, match=r"cannot create the folder .*file/more: Not a directory"):
        make_folder(tmp_path / "file" / "more")


# Several writers, and kills


def test_two_runs_that_write_one_file(tmp_path: Path) -> None:
    """A reader sees the whole of one or of the other, at every moment."""
    path, stop, letters = tmp_path / "out", threading.Event(), set()
    write_bytes(path, b"a" * 50_000)

    def write(letter: bytes) -> None:
        while not stop.is_set():
            write_bytes(path, letter * 50_000)

    writers = [threading.Thread(target=write, args=(letter,)) for letter in (b"a", b"b", b"c")]
    for writer in writers:
        writer.start()
    try:
        for _ in range(200):
            text = path.read_bytes()
            assert len(text) == 50_000
            assert len(set(text)) == 1
            letters.add(text[0])
    finally:
        stop.set()
        for writer in writers:
            writer.join()
    assert len(letters) > 1
    assert names(tmp_path) == ["out"]


WRITER = """
import sys
from pathlib import Path
from bough.files.writing import write_bytes
path, size, number = Path(sys.argv[1]), 300_000, int(sys.argv[2])
print(flush=True)
while True:
    number += 1
    write_bytes(path, b"%09d\\n" % number * (size // 10))
    print(number, flush=True)
"""


def test_killed_in_the_middle_of_a_write(tmp_path: Path) -> None:
    """The file is whole, and no older than what was acknowledged."""
    path, chance, last = tmp_path / "out", random.Random(0), 0
    write_bytes(path, b"%09d\n" % 0 * 30_000)
    for _ in range(25):
        words = [sys.executable, "-c", WRITER, str(path), str(last)]
        with subprocess.Popen(words, env=ENVIRONMENT, stdout=subprocess.PIPE) as process:
            assert process.stdout is not None
            process.stdout.readline()  # it begins
            time.sleep(chance.uniform(0, 0.03))
            process.send_signal(signal.SIGKILL)
            acknowledged = [int(line) for line in process.stdout.read().split()]
        content = path.read_bytes()
        assert len(content) == 300_000
        lines = set(content.split())
        assert len(lines) == 1
        number = int(lines.pop())
        assert max([last, *acknowledged]) <= number
        last = number
    assert last > 25
    assert all(name == "out" or name.endswith(".part") for name in names(tmp_path))


# Files of one's own


def test_a_file_is_one_process_s_own(tmp_path: Path) -> None:
    path = tmp_path / "log"
    file = own(path, "somebody has it")
    os.write(file, b"mine")
    with pytest.raises(OutputError, match=r"^somebody has it$"):
        own(path, "somebody has it")
    assert path.read_bytes() == b"mine"
    os.close(file)
    os.close(own(path, "somebody has it"))
    with pytest.raises(OutputError, match=r"cannot write .*: No such file"):
        own(tmp_path / "no" / "log", "")


def test_the_file_that_comes_into_its_place_is_its_owner_s(tmp_path: Path) -> None:
    path = tmp_path / "log"
    first = own(path, "somebody has it")
    second = replace(path, b"new")
    os.close(first)
    with pytest.raises(OutputError, match="somebody has it"):
        own(path, "somebody has it")
    os.write(second, b"er")
    os.close(second)
    assert path.read_bytes() == b"newer"


def test_a_file_that_was_replaced_while_one_waited_is_opened_anew(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path, stat, calls = tmp_path / "log", Path.stat, [0]
    path.write_bytes(b"old")

    def late(self: Path, **options: bool) -> os.stat_result:
        calls[0] += 1
        if calls[0] == 1:
            os.close(replace(path, b"new"))
        if calls[0] == 2:
            path.unlink()
        return stat(self, **options)

    monkeypatch.setattr(Path, "stat", late)
    file = own(path, "somebody has it")
    monkeypatch.undo()
    os.write(file, b"mine")
    os.close(file)
    assert path.read_bytes() == b"mine"
