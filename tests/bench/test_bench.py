"""`bough bench` as a script sees it: what is in the file after every kind of end, and what a later call makes of it."""

import json
import os
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from tests.support import failing, sequential

from bough import api
from bough.bench import run
from bough.bench.engines import run_tasks
from bough.bench.ledger import Ledger
from bough.bench.methods import BUILT_IN, parse_method
from bough.bench.tally import progress_line, table
from bough.bench.tasks import Selection, known_verdict, plan, read_known
from bough.budget import Deadline
from bough.cli import main
from bough.errors import BadInput, OutputError
from bough.options import Options
from bough.plan import SearchPlan
from bough.problem.onnx_writer import write_network

METHODS = ("lp-babsr", "dual-babsr")
LINES = {  # the unsafe set of each property, and the verdict
    "safe": ("(<= Y_0 -0.5)", "verified"),
    "unsafe": ("(and (<= Y_0 0.5) (>= Y_1 0.25))", "falsified"),
    "safer": ("(<= Y_0 -1.5)", "verified"),
}
PROPERTY = """(declare-const X_0 Real)(declare-const X_1 Real)(declare-const Y_0 Real)(declare-const Y_1 Real)
(assert (>= X_0 -1))(assert (<= X_0 1))(assert (>= X_1 -1))(assert (<= X_1 1))(assert {})
"""


class Folder:
    """A benchmark of three properties of one small network, and the command line over it."""

    def __init__(self, folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
        self.csv, self.out, self._capsys = folder / "instances.csv", folder / "run.jsonl", capsys
        write_network(sequential(([[1, 1], [1, -1]], [0, 0]), ([[1, 1], [1, -1]], [0, 0])), folder / "net.onnx")
        for name, (unsafe, _) in LINES.items():
            (folder / f"{name}.vnnlib").write_text(PROPERTY.format(unsafe))
        self.csv.write_text("".join(f"net.onnx,{name}.vnnlib,20\n" for name in LINES))

    def __call__(self, *extra: object) -> tuple[int, str]:
        """Exit status and standard error of a bench by the linear program; nothing goes to standard output."""
        words = [
            "bench",
            self.csv,
            "--out",
            self.out,
            *([] if "--method" in extra else ["--method", METHODS[0]]),
            *([] if "--engine" in extra else ["--engine", "here"]),  # loads nothing twice
            *extra,
        ]
        self._capsys.readouterr()
        status = main([str(word) for word in words])
        printed = self._capsys.readouterr()
        assert printed.out == ""
        assert "Traceback" not in printed.err
        return status, printed.err

    @property
    def entries(self) -> list[dict[str, Any]]:
        return [json.loads(line) for line in self.out.read_text().splitlines()]

    @property
    def verdicts(self) -> list[str]:
        return [entry["verdict"] for entry in self.entries]


@pytest.fixture
def bench(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> Folder:
    """The benchmark lies in a folder of its own, which names it."""
    (tmp_path / "tiny").mkdir()
    return Folder(tmp_path / "tiny", capsys)


# A bench from start to end


def test_every_instance_by_every_method(bench: Folder) -> None:
    status, messages = bench("--method", METHODS[0], "--method", METHODS[1])
    assert status == 0
    runs = [(Path(e["property"]).stem, e["method"], e["verdict"]) for e in bench.entries]
    assert runs == [(name, method, verdict) for name, (_, verdict) in LINES.items() for method in METHODS]
    for entry in bench.entries:
        assert Path(entry["network"]).is_file()
        assert (entry["instances"], entry["timeout"], entry["known"]) == (str(bench.csv), 20, None)
        assert (entry["bounder"], entry["branching"]) == tuple(entry["method"].split("-"))
        assert entry["seconds"] > 0
        assert entry["load_seconds"] > 0
    lines = messages.splitlines()
    assert lines[0].startswith("1/6  verified ")
    assert lines[2].startswith("3/6  falsified ")
    assert lines[2].endswith(" s  net unsafe lp-babsr")
    assert [line.split()[:8] for line in lines[7:]] == [[m, "3", "3", "2", "1", "0", "0", "0"] for m in METHODS]


def test_a_selection(bench: Folder) -> None:
    assert bench("--only", "safe.vnnlib", "--every", 2, "--timeout", 7)[0] == 0  # safe and unsafe, then every other
    assert [(Path(e["property"]).stem, e["timeout"]) for e in bench.entries] == [("safe", 7)]


def test_a_timeout_is_a_verdict_like_others(bench: Folder) -> None:
    status, messages = bench("--timeout", 0)
    assert (status, bench.verdicts) == (0, ["timeout"] * 3)
    assert messages.splitlines()[-1].split()[:8] == ["lp-babsr", "3", "0", "0", "0", "3", "0", "0"]


def test_a_network_is_read_once_for_all_its_instances(bench: Folder, monkeypatch: pytest.MonkeyPatch) -> None:
    read: list[Path] = []

    def noting(function: Callable[..., Any]) -> Callable[..., Any]:
        def noted(*arguments: Any) -> Any:
            read.append(arguments[-1])
            return function(*arguments)

        return noted

    monkeypatch.setattr(run, "load_network", noting(api.load_network))
    monkeypatch.setattr(run, "load_problem", noting(api.load_problem))
    bench("--method", METHODS[0], "--method", METHODS[1])
    assert [path.stem for path in read] == ["net", *LINES]


# Going on


def test_resume_runs_what_is_missing(bench: Folder) -> None:
    assert bench("--limit-seconds", 0)[0] == 3
    assert bench("--only", "unsafe")[0] == 0
    first = bench.out.read_text()
    status, messages = bench("--resume")
    assert status == 0
    assert bench.out.read_text().startswith(first)
    assert bench.verdicts == ["falsified", "verified", "verified"]
    assert [line.split()[0] for line in messages.splitlines()] == ["2/3", "3/3", "method", "lp-babsr"]
    assert messages.splitlines()[-1].split()[1:5] == ["3", "3", "2", "1"]  # the table counts what was there, too
    whole = bench.out.read_text()
    assert bench("--resume")[0] == 0
    assert bench.out.read_text() == whole


@pytest.mark.parametrize(
    "extra", [("--timeout", 7), ("--method", "dual-babsr"), ("--method", "lp-babsr,seed=3"), ("--method", "batch=1")]
)
def test_other_runs_are_not_taken_for_done(bench: Folder, extra: tuple[object, ...]) -> None:
    bench()
    assert bench("--resume", *extra)[0] == 0
    assert len(bench.entries) == 6


def test_an_existing_file_is_not_touched_without_resume(bench: Folder) -> None:
    bench.out.write_text("mine")
    status, messages = bench()
    assert (status, len(messages.splitlines())) == (2, 1)
    assert "--resume" in messages
    assert bench.out.read_text() == "mine"


@pytest.mark.parametrize("kept", [1, 12, 100, -1])
def test_a_half_line_is_dropped(bench: Folder, kept: int) -> None:
    bench()
    lines = bench.out.read_text().splitlines(keepends=True)
    bench.out.write_text(lines[0] + lines[1] + lines[2][:kept])
    status, messages = bench("--resume")
    assert status == 0
    assert messages.startswith(f"note: {bench.out} ended in the middle of a record")
    assert bench.verdicts == [verdict for _, verdict in LINES.values()]


@pytest.mark.parametrize(
    "text", ["mine", "mine\n", "{}\n", "[]\n", "\n", "1\n", '{"schema": "bough.record/1"}\n', "é\n{"]
)
def test_a_file_of_another_kind_is_refused_and_left_alone(bench: Folder, text: str) -> None:
    bench.out.write_text(text)
    status, messages = bench("--resume")
    assert (status, len(messages.splitlines())) == (2, 1)
    assert "give a file that bough bench wrote" in messages
    assert bench.out.read_text() == text


# Ends before the end


@pytest.mark.parametrize("error", [ZeroDivisionError("half way"), MemoryError(), RecursionError(), BadInput("a\nb")])
def test_a_crash_is_a_record(bench: Folder, monkeypatch: pytest.MonkeyPatch, error: Exception) -> None:
    monkeypatch.setattr(SearchPlan, "solve", failing(error, 1, SearchPlan.solve))
    status, messages = bench()
    assert (status, bench.verdicts) == (0, ["verified", None, None])
    assert bench.entries[1]["error"] == f"{type(error).__name__}: {error}"
    assert bench.entries[1]["load_seconds"] > 0
    assert messages.splitlines()[1].startswith(f"2/3  error  net unsafe lp-babsr: {type(error).__name__}: ")
    assert messages.splitlines()[-1].split()[1:8] == ["3", "1", "1", "0", "0", "0", "2"]
    monkeypatch.undo()
    assert bench("--resume")[0] == 0  # what failed is run again, and counts once
    assert bench.verdicts == ["verified", None, None, "falsified", "verified"]


def test_a_problem_that_cannot_be_read_is_a_record(bench: Folder) -> None:
    bench.csv.with_name("unsafe.vnnlib").write_text("(assert")
    assert bench()[0] == 0
    assert bench.verdicts == ["verified", None, "verified"]
    assert bench.entries[1]["error"].startswith("PropertyError: ")
    assert bench.entries[1]["load_seconds"] is None


@pytest.mark.parametrize(
    ("target", "after"),
    [((SearchPlan, "solve"), 1), ((os, "fsync"), 0)],
    ids=["in the second run", "as a record is written"],
)
def test_an_interrupt_keeps_what_is_there(
    bench: Folder, monkeypatch: pytest.MonkeyPatch, target: tuple[Any, str], after: int
) -> None:
    monkeypatch.setattr(*target, failing(KeyboardInterrupt(), after, SearchPlan.solve))
    status, messages = bench()
    assert (status, bench.verdicts) == (3, ["verified"])
    assert (
        messages.splitlines()[-1]
        == f"bough: 2 of 3 runs are left, 1 are in {bench.out}; go on by the same command with --resume"
    )


def test_an_interrupted_search_is_not_a_run(bench: Folder, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("bough.search.loop._next", failing(KeyboardInterrupt()))  # the search itself returns `unknown`
    status, messages = bench()
    assert (status, bench.out.exists()) == (3, False)
    assert "3 of 3 runs are left" in messages


def test_no_run_starts_after_the_limit(bench: Folder, monkeypatch: pytest.MonkeyPatch) -> None:
    def slow(*arguments: Any) -> Any:
        time.sleep(0.6)
        return solve(*arguments)

    solve = SearchPlan.solve
    monkeypatch.setattr(SearchPlan, "solve", slow)
    tasks = plan(bench.csv, [parse_method("auto")], Selection(), {})
    counts: list[int] = []
    entries = run_tasks(tasks, {}, bench.out, lambda count, _: counts.append(count), Deadline.after(0.5))
    assert (len(entries), counts, bench.verdicts) == (1, [1], ["verified"])


def test_a_full_disk_is_said(bench: Folder) -> None:
    tasks = plan(bench.csv, [parse_method("auto")], Selection(), {})
    with pytest.raises(OutputError, match="cannot write"):
        run_tasks(tasks, {}, bench.out.parent, lambda *_: None, Deadline.never())


# Known verdicts


def known(bench: Folder, **verdicts: str) -> Path:
    path = bench.out.with_name("known.csv")
    rows = [f"tiny,net,{name},{verdict},some_tool" for name, verdict in verdicts.items()]
    path.write_text("\n".join(["benchmark,network,property,verdict,best_tool", "huge,net,safe,sat,x", *rows, ""]))
    return path


def test_agreement_with_known_verdicts(bench: Folder) -> None:
    status, messages = bench("--known", known(bench, safe="unsat", unsafe="sat", safer="unknown"))
    assert (status, [e["known"] for e in bench.entries]) == (0, ["verified", "falsified", None])
    assert "WRONG" not in messages


def test_a_wrong_verdict_is_a_defect(bench: Folder) -> None:
    wrong = known(bench, safe="sat", unsafe="sat", safer="sat")
    status, messages = bench("--known", wrong)
    assert status == 4
    assert bench.entries[0]["known"] == "falsified"
    loud = [line for line in messages.splitlines() if "WRONG VERDICT, known to be falsified: verified " in line]
    assert [line.split()[-2] for line in loud] == ["safe", "safer"]
    assert bench("--known", wrong, "--resume")[0] == 4  # and stays one
    assert bench("--known", wrong, "--timeout", 0, "--resume")[0] == 0  # no verdict is not a wrong one


def test_a_wrong_verdict_outweighs_missing_runs(bench: Folder) -> None:
    bench("--only", "safe.vnnlib", "--every", 2)
    status, messages = bench("--known", known(bench, safe="sat"), "--resume", "--limit-seconds", 0)
    assert status == 4
    assert "2 of 3 runs are left" in messages


def test_known_verdicts_of_other_instances(bench: Folder) -> None:
    status, messages = bench("--known", known(bench))
    assert status == 0
    assert messages.splitlines()[0].endswith("known.csv has no verdict for any of these instances")


def test_the_benchmark_is_the_nearest_folder_with_a_row(tmp_path: Path) -> None:
    rows = "benchmark,network,property,verdict\nold,net,prop_0.03,sat\nnew,net,prop_0.03,unsat\n"
    (tmp_path / "known.csv").write_text(rows)
    verdicts = read_known(tmp_path / "known.csv")
    prop = Path("anywhere/prop_0.03.vnnlib.gz")
    assert known_verdict(verdicts, Path("/new/old/onnx/net.onnx"), prop) == "falsified"
    assert known_verdict(verdicts, Path("/old/new/onnx/net.onnx.gz"), prop) == "verified"
    assert known_verdict(verdicts, Path("/older/onnx/net.onnx"), prop) is None


# Bad input


@pytest.mark.parametrize(
    ("extra", "words"),
    [
        (("--method", "oracle"), "there is no method 'oracle'; there are: auto, lp-babsr, "),
        (("--method", ""), "there is no method ''"),
        (("--method", "lp-babsr,"), "there is no method ''"),
        (("--method", "lp-babsr", "--method", "oracle"), "there is no method 'oracle'"),
        (("--method", "colour=red"), "a method has no field 'colour'; there are: bounds, branching, "),
        (("--method", "timeout=3"), "a method has no field 'timeout'"),
        (("--method", "batch=many"), "'many' is no value for the method's field batch"),
        (("--method", "attack=maybe"), "'maybe' is no value for the method's field attack"),
        (("--method", "batch=0"), "method 'batch=0': the batch is 0"),
        (("--method", "branching=oracle"), "method 'branching=oracle': there is no branching rule 'oracle'"),
        (("--method", "bounds=oracle"), "method 'bounds=oracle': there is no bounds 'oracle'"),
        (("--device", "abacus"), ""),
        (("--only", "elsewhere"), "lists no instance with 'elsewhere'"),
        (("--every", 0), "--every is 0"),
        (("--timeout", -1), "the timeout is -1.0"),
        (("--timeout", "nan"), "the timeout is nan"),
        (("--limit-seconds", "nan"), "--limit-seconds is nan"),
        (("--known", "absent.csv"), "absent.csv does not exist"),
        (("--known", __file__), "the first line must name the columns benchmark, network, property, verdict"),
        (("--out", "absent/run.jsonl"), "the folder absent does not exist"),
    ],
)
def test_bad_input_is_said_before_anything_runs(bench: Folder, extra: tuple[object, ...], words: str) -> None:
    status, messages = bench(*extra)
    assert (status, len(messages.splitlines())) == (2, 1)
    assert words in messages
    assert not bench.out.exists()


def test_a_known_file_that_is_no_text(bench: Folder) -> None:
    path = bench.out.with_name("known.csv")
    path.write_bytes(b"\xff\xfe\x00")
    assert "is no CSV" in bench("--known", path)[1]


# Methods and tables


@pytest.mark.parametrize("name", ["auto", "lp-babsr", "dual-babsr"])
def test_built_in_methods(name: str) -> None:
    method = parse_method(name)
    assert method.name == name
    assert name in BUILT_IN
    if name == "auto":
        assert method.options == Options()


def test_a_method_by_its_fields() -> None:
    method = parse_method("lp-babsr, bounds=dual,batch=1,attack=false,gap=none,seed=7,intermediate=fixed")
    expected = Options(bounds="dual", branching="babsr", batch=1, attack=False, seed=7, intermediate="fixed")
    assert method.options == expected
    assert method.name == "lp-babsr,bounds=dual,batch=1,attack=false,gap=none,seed=7,intermediate=fixed"
    assert parse_method("gap=0.5").options.gap == 0.5


def test_the_table_of_nothing_but_errors() -> None:
    entry = {"method": "auto", "verdict": None, "error": "E: why\nmore", "network": "a/n.onnx", "property": "p.vnnlib"}
    assert table([entry]).splitlines()[1].split() == ["auto", *"1000001", "-", "-", "0", "0"]
    assert table([]).split()[0] == "method"
    assert progress_line(entry) == "error  n p auto: E: why"


def test_a_line_given_twice_is_one_run(bench: Folder) -> None:
    bench.csv.write_text(bench.csv.read_text() * 2)
    assert len(plan(bench.csv, [parse_method("auto")] * 2, Selection(), {})) == 3


def test_nothing_is_finished_where_there_is_no_file(tmp_path: Path) -> None:
    notes: list[str] = []
    with Ledger(tmp_path / "run.jsonl", resume=True, note=notes.append) as ledger:
        assert ledger.done == {}
    assert not notes


# Baselines


def test_baselines_are_methods_like_others(bench: Folder) -> None:
    methods = ("mip-planet", "mip-tight,seed=1", "relu-bab,attack=false")
    assert bench(*(word for method in methods for word in ("--method", method)))[0] == 0
    runs = [(Path(e["property"]).stem, e["method"], e["verdict"]) for e in bench.entries]
    assert runs == [(name, method, verdict) for name, (_, verdict) in LINES.items() for method in methods]
    for entry in bench.entries:
        assert entry["error"] is None
        assert entry["bounder"] == ("lp" if entry["method"].startswith("relu-bab") else "highs")
        assert ("nodes" in entry["engine"]) == (entry["bounder"] == "highs")
        assert entry["proved"] in (True, False)


def test_a_baseline_takes_the_bench_s_device(bench: Folder) -> None:
    assert bench("--method", "mip-planet", "--device", "cpu", "--only", "safer")[0] == 0
    assert [entry["method"] for entry in bench.entries] == ["mip-planet,device=cpu"]
    with pytest.raises(BadInput, match="method 'mip-planet,batch=2': method mip-planet takes no option 'batch'"):
        parse_method("mip-planet,batch=2")
