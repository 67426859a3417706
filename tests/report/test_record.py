"""The record of a run: its fields, and strict JSON."""

import json
import subprocess
from dataclasses import fields, replace
from pathlib import Path
from typing import Any

import pytest

from bough.report import record as records
from bough.report.record import Run, Settings, record, revision, versions, write_record
from bough.verdict.result import Result, Verdict

SETTINGS = Settings("lp", "tight", "babsr", batch=4, seed=3, timeout=20.0)
RUN = Run("a.onnx", "a.vnnlib", "bab", SETTINGS)
RESULT = Result(
    verdict=Verdict.TIMEOUT,
    reason="the time limit was reached",
    counterexample=None,
    lower_bound=-0.5,
    upper_bound=0.25,
    root_lower_bound=-2.0,
    branches=10,
    bounds=11,
    depth=4,
    open_domains=3,
    seconds=2.0,
)


def strict(text: str) -> dict[str, Any]:
    """JSON as its standard has it."""

    def refuse(word: str) -> None:
        raise AssertionError(word)

    entry = json.loads(text, parse_constant=refuse)
    assert isinstance(entry, dict)
    return entry


def test_the_figures_of_a_result() -> None:
    entry = record(RUN, RESULT)
    for name in ("lower_bound", "upper_bound", "root_lower_bound", "branches", "bounds", "depth", "open_domains"):
        assert entry[name] == getattr(RESULT, name)
    assert (entry["verdict"], entry["reason"], entry["error"]) == ("timeout", "the time limit was reached", None)
    assert entry["domains_per_second"] == 5.5
    for name in ("network", "property", "method"):
        assert entry[name] == getattr(RUN, name)
    for field in fields(Settings):
        assert entry[field.name] == getattr(SETTINGS, field.name)


def test_an_error_has_the_same_fields_as_a_result() -> None:
    failed = record(RUN, None, "NetworkError: damaged")
    assert list(failed) == list(record(RUN, RESULT))
    assert failed["error"] == "NetworkError: damaged"
    assert (failed["verdict"], failed["seconds"], failed["lower_bound"]) == (None, None, None)


@pytest.mark.parametrize("number", [float("inf"), float("-inf"), float("nan")])
def test_no_number_is_null(tmp_path: Path, number: float) -> None:
    result = replace(RESULT, lower_bound=number, upper_bound=number, root_lower_bound=number, seconds=0.0)
    write_record(tmp_path / "run.json", record(replace(RUN, settings=replace(SETTINGS, timeout=number)), result))
    entry = strict((tmp_path / "run.json").read_text())
    for name in ("lower_bound", "upper_bound", "root_lower_bound", "timeout", "domains_per_second"):
        assert entry[name] is None


def test_names_in_any_alphabet(tmp_path: Path) -> None:
    network = "Zweig/ветка/\udcff.onnx"  # the last: a byte that is no UTF-8, as Python reads it from a command line
    write_record(tmp_path / "run.json", record(replace(RUN, network=network), RESULT))
    assert strict((tmp_path / "run.json").read_text())["network"] == network


def test_versions() -> None:
    assert {"python", "bough", "torch", "onnx", "onnxruntime", "highspy", "numpy"} == set(versions())
    assert all(number[0].isdigit() for number in versions().values())
    assert records._version("no-such-package-at-all") == "absent"


def test_revision_is_that_of_bough_and_not_of_the_callers_repository(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    own_revision = (revision() or "").rstrip("+")  # someone may be changing a file meanwhile
    subprocess.run(["git", "init", "-q", str(tmp_path)], check=True)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("GIT_DIR", str(tmp_path / ".git"))  # as git sets it for its hooks
    assert (revision() or "").rstrip("+") == own_revision
    assert bool(own_revision) == (Path(records.__file__).parents[3] / ".git").exists()


def test_without_git_there_is_no_revision(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", "")
    assert revision() is None
