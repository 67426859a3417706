"""The file of records: what is in it, which runs are done, and places where none can be."""

import json
import os
from pathlib import Path
from typing import Any

import pytest

from bough.bench.ledger import Ledger, key_of, read_records
from bough.errors import BadInput, OutputError
from bough.report.record import SCHEMA


def entry(number: int, error: str | None = None) -> dict[str, Any]:
    fields = {"network": "net.onnx", "property": f"{number}.vnnlib", "method": "auto", "timeout": 1.0, "seed": 0}
    return {"schema": SCHEMA, **fields, "error": error, "verdict": "verified", "seconds": 1, "branches": 0, "bounds": 1}


def opened(path: Path, notes: list[str] | None = None) -> Ledger:
    return Ledger(path, resume=True, note=([] if notes is None else notes).append)


def test_records_are_whole_lines(tmp_path: Path) -> None:
    path = tmp_path / "run.jsonl"
    with opened(path) as ledger:
        for number in range(3):
            ledger.append(entry(number))
            assert path.read_text().count("\n") == number + 1  # and on the disk at once
    assert read_records(path) == tuple(entry(number) for number in range(3))


def test_a_failed_run_is_not_done(tmp_path: Path) -> None:
    path = tmp_path / "run.jsonl"
    with opened(path) as ledger:
        ledger.append(entry(0))
        ledger.append(entry(1, "crashed"))
    with opened(path) as ledger:
        assert list(ledger.done) == [key_of(entry(0))]
        assert len(ledger.entries) == 2


def test_two_benches_on_one_file(tmp_path: Path) -> None:
    path = tmp_path / "run.jsonl"
    with opened(path) as ledger:
        with pytest.raises(OutputError, match=r"another bench is at work on .*run\.jsonl; wait for its end"):
            opened(path)
        ledger.append(entry(0))
    with opened(path) as ledger:
        assert len(ledger.done) == 1


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
