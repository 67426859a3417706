"""What the page is made of: records read and checked, a payload, and a document in which names stay names."""

import base64
import hashlib
import io
import json
import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.report.pages import EVIL, entry, write_runs, write_trace

from bough.cli import main
from bough.errors import BadInput
from bough.problem.vnnlib import write_property
from bough.report.page.document import document, embedded
from bough.report.page.payload import payload, read_points
from bough.report.runs import method_of, oddities, read_runs
from bough.report.trace import read_trace
from bough.zoo import demo

# Run files


def test_records_are_read_in_order_and_once(tmp_path: Path) -> None:
    first = write_runs(tmp_path / "a.jsonl", [entry("p", "m"), entry("q", "m")])
    second = write_runs(tmp_path / "b.jsonl", [entry("p", "m", "falsified"), entry("q", "m", None), entry("p", "n")])
    notes: list[str] = []
    records = read_runs([first, second], notes.append)
    assert [(one["property"], one["method"], one["verdict"]) for one in records] == [
        *(("p", "m", "falsified"), ("q", "m", "verified"), ("p", "n", "verified"))
    ]
    assert "2 records repeat" in notes[0]


def test_an_error_gives_way_to_what_was_run_again(tmp_path: Path) -> None:
    path = write_runs(tmp_path / "a.jsonl", [entry("p", "m", None), entry("p", "m")])
    assert [one["verdict"] for one in read_runs([path])] == ["verified"]


@given(cut=st.integers(1, 400))
def test_a_torn_last_line_is_left_out_with_a_note(tmp_path_factory: Any, cut: int) -> None:
    path, notes = tmp_path_factory.mktemp("runs") / "a.jsonl", list[str]()
    line = json.dumps(entry("q", "m"))
    path.write_text(json.dumps(entry("p", "m")) + "\n" + line[:cut])
    records = read_runs([path], notes.append)
    assert [one["property"] for one in records] == ["p"]
    assert "middle of a record" in notes[0]


def test_a_last_line_without_its_end_of_line_counts(tmp_path: Path) -> None:
    path = tmp_path / "a.jsonl"
    path.write_text(json.dumps(entry("p", "m")))
    assert len(read_runs([path])) == 1


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ('{"schema": "bough.record/9"}\n', "bough.record/9"),
        ('{"schema": "bough.trace/1"}\n', "bough.trace/1"),
        ("method,seconds\n", "line 1: not a record"),
        ("hello", "not a record"),
        ("[1]\n", "not a record"),
        (json.dumps({**entry("p", "m"), "seconds": "long"}) + "\n", "another type"),
        (json.dumps({**entry("p", "m"), "verdict": "maybe"}) + "\n", "another type"),
        (json.dumps({**entry("p", "m"), "verdict": None}) + "\n", "another type"),
        (json.dumps({k: v for k, v in entry("p", "m").items() if k != "network"}) + "\n", "missing"),
    ],
)
def test_other_files_are_refused(tmp_path: Path, text: str, words: str) -> None:
    path = tmp_path / "a.jsonl"
    path.write_text(text)
    with pytest.raises(BadInput, match=words):
        read_runs([path])


def test_the_methods_of_single_runs_are_told_apart() -> None:
    assert method_of(entry("p", "bab")) == "dual-kfsb"
    assert method_of(entry("p", "bab", weights="a/w.safetensors", device="cuda")) == (
        "dual-kfsb (w.safetensors),device=cuda"
    )
    assert method_of(entry("p", "dual-fsb")) == "dual-fsb"


# What to beware of


def test_like_methods_give_no_warning() -> None:
    assert (
        oddities([entry("p", "m"), entry("p", "n"), entry("q", "m", timeout=5.0), entry("q", "n", timeout=5.0)]) == []
    )


def test_mixed_limits_are_flagged() -> None:
    (line,) = oddities([entry("p", "m", timeout=10.0), entry("p", "n", timeout=None)])
    assert line.startswith("Mixed time limits: 1 instance ")
    assert "10 s, none" in line


def test_methods_on_other_instances_are_flagged() -> None:
    assert "No instance" in oddities([entry("p", "m"), entry("q", "n")])[0]
    assert "1 instance of 2 common" in oddities([entry("p", "m"), entry("q", "m"), entry("q", "n")])[0]


def test_contradictions_are_flagged() -> None:
    assert "one is wrong" in oddities([entry("p", "m"), entry("p", "n", "falsified")])[0]
    assert "one is wrong" in oddities([entry("p", "m", known="falsified")])[0]
    assert oddities([entry("p", "m", known="verified")]) == []


# The payload


def test_runs_are_grouped_by_instance_and_difficulty_is_derived() -> None:
    data = payload([entry("p", "m"), entry("p", "n", "timeout"), entry("q", "m", None)], [])
    assert [one["property"] for one in data["instances"]] == ["p", "q"]
    assert [one["difficulty"] for one in data["instances"]] == ["solved by some", "solved by none"]
    assert [run["instance"] for run in data["runs"]] == [0, 0, 1]
    assert data["runs"][2]["error"] == "RuntimeError: out of memory"
    other = payload([entry("p", "m", difficulty="hard"), entry("q", "m")], [])
    assert [one["difficulty"] for one in other["instances"]] == ["hard", "not known"]


def test_a_trace_finds_its_run_by_name_or_makes_one(tmp_path: Path) -> None:
    trace = read_trace(write_trace(tmp_path / "t.jsonl", 40))
    alone = payload([], [trace])
    assert alone["runs"][0]["method"] == "dual-gnn"
    assert alone["runs"][0]["verdict"] == "timeout"
    moved = payload([entry("elsewhere/big.vnnlib.gz", "m", network="old/net.onnx")], [trace])
    assert len(moved["instances"]) == 1
    assert [run["method"] for run in moved["runs"]] == ["m", "dual-gnn"]
    assert moved["traces"][0]["instance"] == 0


def test_long_traces_are_thinned_with_their_end(tmp_path: Path) -> None:
    trace = read_trace(write_trace(tmp_path / "t.jsonl", 40))
    trace.steps.extend({**trace.steps[-1], "seconds": 10.0 + k} for k in range(9001))
    seconds = payload([], [trace])["traces"][0]["steps"]["seconds"]
    assert 1000 < len(seconds) <= 2002
    assert seconds[-1] == 9010.0


def test_nothing_to_show_is_refused() -> None:
    with pytest.raises(BadInput, match="nothing to show"):
        payload([], [])


# Counterexamples


def saved(folder: Path, name: str, x: Any) -> None:
    stream = io.BytesIO()
    np.savez(stream, x=x, y=np.array([0.0, 1.0]), clause=0)
    folder.mkdir(exist_ok=True)
    (folder / name).write_bytes(stream.getvalue())


def test_counterexamples_are_matched_by_name(tmp_path: Path) -> None:
    problem = demo.load()[1][7]
    (tmp_path / "ring.vnnlib").write_text(write_property(problem.property))
    entries = [entry(str(tmp_path / "ring.vnnlib"), "m", "falsified"), entry("gone.vnnlib", "m", "falsified")]
    cx, notes = tmp_path / "cx", list[str]()
    saved(cx, "ring.npz", problem.image.astype(np.float32))
    saved(cx, "net-gone.npz", problem.image)
    saved(cx, "other.npz", problem.image)
    points = {point.property: point for point in read_points(cx, entries, notes.append)}
    assert len(points) == 2
    ring, gone = points[entries[0]["property"]], points["gone.vnnlib"]
    assert ring.shape == (1, 16, 16)
    assert ring.image is not None
    assert np.allclose(ring.image, problem.image.reshape(-1), atol=1e-6)
    assert gone.image is None
    assert gone.missing is not None
    assert "gone.vnnlib" in gone.missing
    assert any("no image beside" in note for note in notes)
    assert any("other.npz is left out" in note for note in notes)
    assert payload(entries, [], list(points.values()))["points"][0]["y"] == [0.0, 1.0]


def test_files_that_are_no_counterexamples_are_noted(tmp_path: Path) -> None:
    cx, notes = tmp_path / "cx", list[str]()
    cx.mkdir()
    (cx / "p.npz").write_bytes(b"PK no")
    saved(cx, "q.npz", np.zeros(5))
    entries = [entry("p.vnnlib", "m", "falsified"), entry("q.vnnlib", "m", "falsified")]
    assert read_points(cx, entries, notes.append) == []
    assert ["no counterexample" in notes[0], "no picture" in notes[1]] == [True, True]
    with pytest.raises(BadInput, match="no folder"):
        read_points(tmp_path / "none", entries, notes.append)


# The document


@given(st.recursive(st.text() | st.integers() | st.none(), st.lists))
def test_embedded_data_is_the_same_data_and_no_markup(value: Any) -> None:
    text = embedded({"it": value})
    assert json.loads(text) == {"it": value}
    assert text.isascii()
    assert not set("<>&") & set(text)


def test_names_stay_data_and_the_policy_knows_our_own_scripts() -> None:
    text = document(payload([entry(EVIL, EVIL, network=EVIL), entry("@script@ @data@", "m")], []))
    assert "alert(1)</script>" not in text
    assert text.count("<script") == text.count("</script>") == 2
    assert "http://" not in text.replace("http://www.w3.org/2000/svg", "")
    assert "https://" not in text
    (script,) = re.findall(r"<script>(.*?)</script>", text, re.DOTALL)
    (policy,) = re.findall(r'Security-Policy" content="([^"]*)"', text)
    assert "default-src 'none'" in policy
    assert base64.b64encode(hashlib.sha256(script.encode()).digest()).decode() in policy


def test_no_script_writes_markup() -> None:
    text = document(payload([entry("p", "m")], []))
    for word in ("innerHTML", "outerHTML", "insertAdjacentHTML", "document.write", "eval(", "fetch(", "XMLHttp"):
        assert word not in text, word


# The command


def test_the_command_writes_one_page(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    runs = write_runs(tmp_path / "r.jsonl", [entry("p", "m"), entry("p", "n", timeout=3.0)])
    trace = write_trace(tmp_path / "t.jsonl", 40)
    assert main(["report", str(runs), "--out", str(tmp_path / "out"), "--trace", str(trace)]) == 0
    printed = capsys.readouterr()
    assert [path.name for path in (tmp_path / "out").iterdir()] == ["index.html"]
    assert printed.out.strip() == str(tmp_path / "out" / "index.html")
    assert "warning: Mixed time limits" in printed.err
    assert "bough report" in (tmp_path / "out" / "index.html").read_text()


@pytest.mark.parametrize(
    ("text", "words"), [("", "nothing to show"), ('{"schema": "x/1"}\n', "x/1"), ("{", "nothing to show")]
)
def test_what_cannot_be_shown_ends_with_2(tmp_path: Path, text: str, words: str, capsys: Any) -> None:
    path = tmp_path / "r.jsonl"
    path.write_text(text)
    assert main(["report", str(path), "--out", str(tmp_path / "out")]) == 2
    assert words in capsys.readouterr().err
    assert not (tmp_path / "out").exists()


def test_no_files_at_all_and_a_missing_one(tmp_path: Path, capsys: Any) -> None:
    assert main(["report", "--out", str(tmp_path / "out")]) == 2
    assert main(["report", str(tmp_path / "none.jsonl"), "--out", str(tmp_path / "out")]) == 2
    assert "cannot read" in capsys.readouterr().err
