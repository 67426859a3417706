"""Logs after every kind of end: cut anywhere, full disks, two writers, kills."""

import errno
import json
import os
import random
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any, final

import pytest

from bough.errors import BadInput, OutputError
from bough.files.log import AbstractLog, LogEntry


@final
class Plain(AbstractLog):
    """Every line names its schema."""

    schema, headed, run, line = "plain/1", False, "test", "number of ours"
    again, advice = "it is counted again", "give a file of numbers"

    @staticmethod
    def check(entry: LogEntry) -> None:
        hash(entry["number"])
        if entry["number"] == -13:
            raise BadInput("an unlucky number; remove the line")


@final
class Headed(AbstractLog):
    """A first line says what run it is."""

    schema, headed, run, line = "headed/1", True, "test", "number of ours"
    again, advice = "it is counted again", "give a folder of numbers"
    check = staticmethod(Plain.check)


def entry(number: int) -> dict[str, Any]:
    return {"schema": "plain/1", "number": number}


def opened(path: Path, kind: type[AbstractLog] = Plain, notes: list[str] | None = None, **more: Any) -> AbstractLog:
    return kind(path, ([] if notes is None else notes).append, **more)


def numbers(path: Path, kind: type[AbstractLog] = Plain) -> list[int]:
    return [line["number"] for line in kind.read(path).entries]


KINDS = pytest.mark.parametrize("kind", [Plain, Headed])


@KINDS
def test_an_entry_is_a_line_on_the_disk_when_it_was_added(
    tmp_path: Path, kind: type[AbstractLog], monkeypatch: pytest.MonkeyPatch
) -> None:
    path, synced = tmp_path / "log", list[bytes]()
    with opened(path, kind) as log:
        monkeypatch.setattr(os, "fsync", lambda _: synced.append(path.read_bytes()))
        for number in range(3):
            log.append(entry(number))
            assert synced[-1] == path.read_bytes()
            assert len(synced) == number + 1
            assert numbers(path, kind) == list(range(number + 1))
    with opened(path, kind) as log:
        assert [line["number"] for line in log.entries] == [0, 1, 2]
        log.append(entry(3))
        assert len(log.entries) == 3  # those that were there
    assert numbers(path, kind) == [0, 1, 2, 3]


@KINDS
def test_cut_at_any_byte(tmp_path: Path, kind: type[AbstractLog]) -> None:
    path = tmp_path / "log"
    with opened(path, kind) as log:
        for number in range(2):
            log.append(entry(number))
    whole = path.read_bytes()
    ends = [0, *(k + 1 for k, byte in enumerate(whole) if byte == ord("\n"))]
    for length in range(len(whole) + 1):
        notes: list[str] = []
        path.write_bytes(whole[:length])
        done = list(range(max(0, whole[:length].count(b"\n") - kind.headed)))
        assert numbers(path, kind) == done  # a reader leaves the rest out
        assert path.read_bytes() == whole[:length]
        with opened(path, kind, notes) as log:
            log.append(entry(2))
        assert numbers(path, kind) == [*done, 2]
        torn = f"{path} ended in the middle of a number of ours, which was dropped; it is counted again"
        assert notes == ([] if length in ends else [torn])


@KINDS
def test_a_tail_of_nothing_is_dropped(tmp_path: Path, kind: type[AbstractLog]) -> None:
    """Some file systems fill what was not written before the power went with zeros."""
    path = tmp_path / "log"
    with opened(path, kind) as log:
        log.append(entry(0))
    whole = path.read_bytes()
    for tail in (b"\0" * 100, b'{"sche' + b"\0" * 100):
        path.write_bytes(whole + tail)
        with opened(path, kind) as log:
            assert len(log.entries) == 1
        assert path.read_bytes() == whole


@KINDS
@pytest.mark.parametrize(
    "text", ["mine", '{"a": 1}', "mine\n", "{}\n", "[]\n", "\n", "[" * 100_000 + "\n", '{"schema": "other/1"}\n']
)
def test_a_file_of_another_kind_is_refused_and_left_alone(tmp_path: Path, kind: type[AbstractLog], text: str) -> None:
    path = tmp_path / "log"
    path.write_text(text)
    with pytest.raises(BadInput, match=kind.advice):
        opened(path, kind)
    with pytest.raises(
        BadInput, match="end with a number of ours" if "\n" not in text else r"log, line 1: (not|of schema) "
    ):
        kind.read(path)
    assert path.read_text() == text
    path.unlink()
    opened(path, kind).close()  # nobody owns it


def test_what_is_wrong_with_a_line_is_said_with_its_place(tmp_path: Path) -> None:
    path = tmp_path / "log"
    for kind in (Plain, Headed):
        with opened(path, kind) as log:
            log.append(entry(0))
        whole = path.read_bytes()
        place = len(whole.splitlines()) + 1
        for line, says in (
            ('{"number": -13}', f"line {place}: an unlucky number; remove the line"),
            ('{"numbers": 1}', f"line {place}: not a number of ours; {kind.advice}"),
            ('{"number": []}', f"line {place}: not a number of ours; {kind.advice}"),
        ):
            path.write_bytes(whole + line.encode() + b"\n")
            with pytest.raises(BadInput, match=says):
                opened(path, kind)
        path.unlink()
    with pytest.raises(BadInput, match=r"does not exist.*; give a file of numbers"):
        Plain.read(path)


def test_the_log_of_another_run_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "log"
    with opened(path, Headed, recipe={"seed": 0, "sides": (1, 2)}) as log:
        log.append(entry(0))
    whole = path.read_bytes()
    path.write_bytes(whole[:-3])
    for recipe, says in (
        ({"seed": 1, "sides": [1, 2]}, "seed was 0, and is 1 now; resume by the same command"),
        ({"seed": 0}, r"sides was \[1, 2\], and is None now"),
        ({"seed": 0, "sides": [1, 2], "more": 3}, "more was None, and is 3 now"),
    ):
        with pytest.raises(BadInput, match=rf"log is of another run: {says}"):
            opened(path, Headed, recipe=recipe)
        assert path.read_bytes() == whole[:-3]
    with opened(path, Headed, recipe={"sides": (1, 2), "seed": 0}) as log:
        log.append(entry(0))
    assert path.read_bytes() == whole


def test_a_log_that_is_there_is_only_gone_on_with_if_that_is_meant(tmp_path: Path) -> None:
    path = tmp_path / "log"
    opened(path, resume=False).close()
    path.touch()
    with opened(path, resume=False) as log:  # an empty file is as good as none
        log.append(entry(0))
    with pytest.raises(OutputError, match="log is there already; go on with it by --resume, or give another name"):
        opened(path, resume=False)
    assert numbers(path) == [0]


def test_an_empty_file_does_not_stay(tmp_path: Path) -> None:
    with opened(tmp_path / "log"):
        assert (tmp_path / "log").exists()
    assert not (tmp_path / "log").exists()


@KINDS
def test_other_lines_in_the_place_of_all(tmp_path: Path, kind: type[AbstractLog]) -> None:
    path = tmp_path / "real"
    (tmp_path / "log").symlink_to(path)
    with opened(tmp_path / "log", kind, recipe={"a": 1}) as log:
        for number in range(4):
            log.append(entry(number))
        log.rewrite([entry(number) for number in (3, 1)])
        log.append(entry(5))
        assert numbers(path, kind) == [3, 1, 5]
    assert (tmp_path / "log").is_symlink()
    with opened(path, kind, recipe={"a": 1}) as log:
        assert len(log.entries) == 3


# Disks


def test_a_line_that_does_not_fit_leaves_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path, write = tmp_path / "log", os.write

    def full(file: int, data: bytes) -> int:
        if len(data) < 20:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        return write(file, data[:20])

    with opened(path) as log:
        log.append(entry(0))
        whole = path.read_bytes()
        monkeypatch.setattr(os, "write", full)
        with pytest.raises(OutputError, match=r"cannot write .*log: No space left on device"):
            log.append(entry(1))
        with pytest.raises(OutputError, match=r"cannot write .*log: No space left on device"):
            log.rewrite([entry(1)])
        monkeypatch.undo()
        assert path.read_bytes() == whole
        log.append(entry(1))
    assert numbers(path) == [0, 1]
    assert [each.name for each in tmp_path.iterdir()] == ["log"]


def test_places_where_no_log_can_be(tmp_path: Path) -> None:
    with pytest.raises(OutputError, match=r"cannot write .*: Is a directory"):
        opened(tmp_path)
    with pytest.raises(OutputError, match=r"cannot write .*: No such file or directory"):
        opened(tmp_path / "absent" / "log")


# Several writers, and kills


def test_two_writers_at_once(tmp_path: Path) -> None:
    path = tmp_path / "log"
    with opened(path) as log:
        with pytest.raises(OutputError, match=r"another test is at work on .*log; wait for its end, or give another"):
            opened(path)
        log.append(entry(0))
        log.rewrite([entry(1)])
        with pytest.raises(OutputError, match="another test is at work"):
            opened(path)
        log.append(entry(2))
    with opened(path) as log:
        assert len(log.entries) == 2


WRITER = """
import sys
from pathlib import Path
from tests.files.test_log import Headed, entry
with Headed(Path(sys.argv[1]), lambda _: None) as log:
    print(flush=True)
    numbers = [line["number"] for line in log.entries]
    while True:
        numbers.append(len(numbers))
        log.append(entry(numbers[-1]))
        if len(numbers) % 7 == 0:
            log.rewrite(map(entry, numbers))
        print(len(numbers), flush=True)
"""


def test_killed_at_random_moments(tmp_path: Path) -> None:
    """Nothing that was acknowledged is lost or twice there, and the next writer goes on at once."""
    path, chance, count = tmp_path / "log", random.Random(0), 0
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, sys.path))}
    for _ in range(15):
        words = [sys.executable, "-c", WRITER, str(path)]
        with subprocess.Popen(words, env=environment, stdout=subprocess.PIPE) as process:
            assert process.stdout is not None
            assert process.stdout.readline() == b"\n"  # the lock of the one before went with it
            time.sleep(chance.uniform(0, 0.05))
            process.send_signal(signal.SIGKILL)
            acknowledged = [int(line) for line in process.stdout.read().split()]
        stored = numbers(path, Headed)
        assert stored == list(range(len(stored)))
        assert max([count, *acknowledged]) <= len(stored) <= max([count, *acknowledged]) + 1
        count = len(stored)
    assert count > 15
    assert json.loads(path.read_text().splitlines()[0]) == {"schema": "headed/1", "recipe": {}}
