"""The file of records after every kind of end: cut anywhere, full disks, two writers."""

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from bough.bench.ledger import Ledger, key_of, read_records
from bough.errors import BadInput, OutputError
from bough.report.record import SCHEMA


def entry(number: int, error: str | None = None) -> dict[str, Any]:
    asked = {"network": "net.onnx", "property": f"{number}.vnnlib", "method": "auto", "timeout": 1.0, "seed": 0}
    return {"schema": SCHEMA, **asked, "error": error, "verdict": "verified", "seconds": 1, "branches": 0, "bounds": 1}


def opened(path: Path, notes: list[str] | None = None) -> Ledger:
    return Ledger(path, resume=True, note=([] if notes is None else notes).append)


def test_records_are_whole_lines(tmp_path: Path) -> None:
    path = tmp_path / "run.jsonl"
    with opened(path) as ledger:
        for number in range(3):
            ledger.append(entry(number))
            assert path.read_text().count("\n") == number + 1  # and on the disk at once
    assert read_records(path)[0] == tuple(entry(number) for number in range(3))


def test_a_failed_run_is_not_done(tmp_path: Path) -> None:
    path = tmp_path / "run.jsonl"
    with opened(path) as ledger:
        ledger.append(entry(0))
        ledger.append(entry(1, "crashed"))
    with opened(path) as ledger:
        assert list(ledger.done) == [key_of(entry(0))]
        assert len(ledger.entries) == 2


def test_cut_at_any_byte(tmp_path: Path) -> None:
    path = tmp_path / "run.jsonl"
    with opened(path) as ledger:
        for number in range(2):
            ledger.append(entry(number))
    whole = path.read_bytes()
    first = whole.index(b"\n") + 1
    for kept in range(first, len(whole) + 1):
        notes: list[str] = []
        path.write_bytes(whole[:kept])
        with opened(path, notes) as ledger:
            ledger.append(entry(2))
        done = {0, 1, 2} if kept == len(whole) else {0, 2}
        assert {int(e["property"].split(".")[0]) for e in read_records(path)[0]} == done
        assert bool(notes) == (kept not in (first, len(whole)))


def test_a_tail_of_nothing_is_dropped(tmp_path: Path) -> None:
    """Some file systems fill what was not written before the power went with zeros."""
    path = tmp_path / "run.jsonl"
    with opened(path) as ledger:
        ledger.append(entry(0))
    whole = path.read_bytes()
    path.write_bytes(whole + b"\0" * 100)
    with opened(path) as ledger:
        assert len(ledger.done) == 1
    assert path.read_bytes() == whole


def test_two_benches_on_one_file(tmp_path: Path) -> None:
    path = tmp_path / "run.jsonl"
    with opened(path) as ledger:
        with pytest.raises(OutputError, match=r"another bench is at work on .*run\.jsonl; wait for its end"):
            opened(path)
        ledger.append(entry(0))
    with opened(path) as ledger:
        assert len(ledger.done) == 1


def test_the_lock_goes_with_a_killed_process(tmp_path: Path) -> None:
    path = tmp_path / "run.jsonl"
    code = (
        "import os, sys; from pathlib import Path; from bough.bench.ledger import Ledger\n"
        "Ledger(Path(sys.argv[1]), resume=True, note=print); os.kill(os.getpid(), 9)"
    )
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, sys.path))}
    assert subprocess.run([sys.executable, "-c", code, str(path)], env=environment, check=False).returncode == -9
    assert path.read_bytes() == b""
    with Ledger(path, resume=False, note=print) as ledger:  # an empty file is as good as none
        ledger.append(entry(0))


def test_an_empty_file_does_not_stay(tmp_path: Path) -> None:
    with opened(tmp_path / "run.jsonl"):
        assert (tmp_path / "run.jsonl").exists()
    assert not (tmp_path / "run.jsonl").exists()


def test_a_line_that_does_not_fit_leaves_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path, write = tmp_path / "run.jsonl", os.write
    with opened(path) as ledger:
        ledger.append(entry(0))
        whole = path.read_bytes()
        monkeypatch.setattr(os, "write", lambda file, data: write(file, data[:40]))
        with pytest.raises(OutputError, match="no room left"):
            ledger.append(entry(1))
        monkeypatch.undo()
        assert path.read_bytes() == whole
        ledger.append(entry(1))
    assert len(read_records(path)[0]) == 2


def test_another_schema_is_refused_and_left_alone(tmp_path: Path) -> None:
    path = tmp_path / "run.jsonl"
    path.write_text(json.dumps({**entry(0), "schema": "bough.record/2"}) + "\n")
    with pytest.raises(BadInput, match=r"line 1: of schema 'bough\.record/2', not bough\.record/1"):
        opened(path)
    assert "bough.record/2" in path.read_text()


def test_places_that_cannot_be_written(tmp_path: Path) -> None:
    with pytest.raises(OutputError, match="it is a folder"):
        opened(tmp_path)
    with pytest.raises(OutputError, match="it is no plain file"):
        opened(Path(os.devnull))
    with pytest.raises(OutputError, match="does not exist"):
        opened(tmp_path / "absent" / "run.jsonl")
