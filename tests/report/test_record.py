"""The record of a run: its fields, strict JSON, and files that are written whole or not at all."""

import json
import os
import subprocess
from dataclasses import fields, replace
from pathlib import Path
from typing import Any

import pytest

from bough.errors import OutputError
from bough.report import record as records
from bough.report.record import Run, Settings, check_writable, record, revision, versions, write_record, write_text
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
    here = (revision() or "").rstrip("+")  # someone may be changing a file meanwhile
    subprocess.run(["git", "init", "-q", str(tmp_path)], check=True)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("GIT_DIR", str(tmp_path / ".git"))  # as git sets it for its hooks
    assert (revision() or "").rstrip("+") == here
    assert bool(here) == (Path(records.__file__).parents[3] / ".git").exists()


def test_without_git_there_is_no_revision(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", "")
    assert revision() is None


def test_text_replaces_a_file_whole(tmp_path: Path) -> None:
    path = tmp_path / "result.txt"
    path.write_text("older " * 1000)
    write_text(path, "new ε\n")
    assert path.read_bytes() == "new ε\n".encode()
    assert list(tmp_path.iterdir()) == [path]


def test_a_failed_write_leaves_the_older_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "result.txt"
    path.write_text("older")

    def full(self: Path, *_: object, **__: object) -> None:
        raise OSError(28, "No space left on device")

    for method in ("write_bytes", "replace"):
        with monkeypatch.context() as patched:
            patched.setattr(Path, method, full)
            with pytest.raises(OutputError, match=r"result\.txt: No space left on device$"):
                write_text(path, "new")
        assert path.read_text() == "older"
        assert list(tmp_path.iterdir()) == [path]


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
    monkeypatch.setattr(os, "access", lambda where, _: Path(where) == path)
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
