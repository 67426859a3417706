"""`bough bench --trace`: a file for each run, whatever runs it, under a name of its own; and a report of them."""

import json
import re
from dataclasses import replace
from pathlib import Path

import pytest
from tests.bench import work
from tests.bench.test_bench import METHODS, Folder, bench  # noqa: F401 - the fixture
from tests.bench.test_cluster import address, machines  # noqa: F401 - the fixtures
from tests.bench.test_processes import outcomes

from bough.bench.engines import Processes, run_tasks
from bough.bench.methods import parse_method
from bough.bench.tasks import Selection, plan, trace_name, with_traces
from bough.budget import Deadline
from bough.cli import main
from bough.errors import BadInput
from bough.problem.instances import Instance
from bough.report.trace import Trace, read_trace

Shown = dict[tuple[str, str, str], Trace]


def traces(folder: Path) -> Shown:
    """By network, property and method, as the header says."""
    read = [read_trace(path) for path in sorted(folder.iterdir())]
    return {(str(t.header["network"]), str(t.header["property"]), str(t.header["method"])): t for t in read}


def check(bench: Folder, folder: Path) -> None:  # noqa: F811 - the fixture
    """Every record has its trace, which ends as the record says."""
    shown = traces(folder)
    assert len(shown) == len(list(folder.iterdir())) == len(bench.entries)
    for entry in bench.entries:
        trace = shown[entry["network"], entry["property"], entry["method"]]
        assert trace.end is not None
        for name in ("verdict", "branches", "bounds", "depth"):
            assert trace.end[name] == entry[name]
        for name in ("bounder", "branching", "timeout", "seed"):
            assert trace.header[name] == entry[name]


@pytest.mark.parametrize("engine", [("here",), ("local", "--jobs", 2)], ids=("here", "local"))
def test_a_file_for_each_run(bench: Folder, engine: tuple[object, ...]) -> None:  # noqa: F811 - the fixture
    folder = bench.csv.parent / "traces"
    methods = [word for name in METHODS for word in ("--method", name)]
    assert bench("--engine", *engine, *methods, "--trace", folder)[0] == 0
    assert len(bench.entries) == 6
    check(bench, folder)


def test_on_a_cluster(bench: Folder, address: str) -> None:  # noqa: F811 - the fixtures
    folder = bench.csv.parent / "traces"
    assert bench("--engine", "ray", "--ray-address", address, "--jobs", 2, "--trace", folder)[0] == 0
    assert len(bench.entries) == 3
    check(bench, folder)


def test_a_trace_changes_nothing(bench: Folder) -> None:  # noqa: F811 - the fixture
    assert bench()[0] == 0
    alone = outcomes(bench.entries)
    bench.out.unlink()
    assert bench("--trace", bench.csv.parent / "traces")[0] == 0
    assert outcomes(bench.entries) == alone


def test_going_on(bench: Folder) -> None:  # noqa: F811 - the fixture
    folder = bench.csv.parent / "traces"
    assert bench("--only", "unsafe")[0] == 0
    assert bench("--only", "safer", "--resume", "--trace", folder)[0] == 0
    (first,) = folder.iterdir()
    written = first.read_bytes()
    status, messages = bench("--resume", "--trace", folder)
    assert status == 0
    assert f"note: 1 runs are in {bench.out} without a trace in {folder}; they are not repeated" in messages
    assert first.read_bytes() == written
    verdicts = sorted(str(trace.end["verdict"]) for trace in traces(folder).values() if trace.end is not None)
    assert verdicts == ["verified", "verified"]
    assert len(bench.entries) == 3


def test_a_run_that_failed_is_traced_anew(bench: Folder) -> None:  # noqa: F811 - the fixture
    folder = bench.csv.parent / "traces"
    whole = bench.csv.with_name("safe.vnnlib").read_text()
    bench.csv.with_name("safe.vnnlib").write_text("(assert")
    assert bench("--trace", folder)[0] == 0
    assert [entry["error"] is None for entry in bench.entries] == [False, True, True]
    assert len(traces(folder)) == 2
    bench.csv.with_name("safe.vnnlib").write_text(whole)
    assert bench("--resume", "--trace", folder)[0] == 0
    assert len(traces(folder)) == 3


def test_what_a_killed_run_leaves_is_no_hindrance(bench: Folder, capsys) -> None:  # noqa: F811 - the fixture
    folder, page = bench.csv.parent / "traces", bench.csv.parent / "page"
    bench.csv.with_name("crash.vnnlib").write_text(bench.csv.with_name("safe.vnnlib").read_text())
    bench.csv.write_text("net.onnx,crash.vnnlib,20\nnet.onnx,safe.vnnlib,20\n")
    folder.mkdir()
    tasks = with_traces(plan(bench.csv, [parse_method("lp-babsr")], Selection(), {}), folder)
    assert tasks[0].trace is not None
    tasks[0].trace.path.write_bytes(b"\x1f\x8b")  # what is on the disk when a process is killed
    run_tasks(tasks, {}, bench.out, lambda *_: None, Deadline.after(60), Processes(run=work.by_name))
    assert [entry["error"] for entry in bench.entries] == ["the process crashed (SIGSEGV)", None]
    assert main(["report", str(bench.out), "--out", str(page), "--trace", str(folder)]) == 0
    messages = capsys.readouterr().err
    assert "note: left out: " in messages
    assert "2 runs of 2 instances, 1 traces" in messages


def test_the_report_links_every_instance(bench: Folder, capsys) -> None:  # noqa: F811 - the fixture
    folder, page = bench.csv.parent / "traces", bench.csv.parent / "page"
    methods = [word for name in METHODS for word in ("--method", name)]
    assert bench(*methods, "--trace", folder)[0] == 0
    assert main(["report", str(bench.out), "--out", str(page), "--trace", str(folder)]) == 0
    printed = capsys.readouterr()
    assert "6 runs of 3 instances, 6 traces" in printed.err  # none brought a record of its own
    assert "warning" not in printed.err
    text = (page / "index.html").read_text(encoding="utf-8")
    (data,) = re.findall(r'<script[^>]*id="data"[^>]*>(.*?)</script>', text, flags=re.DOTALL)
    shown = json.loads(data)
    pairs = {(trace["instance"], trace["method"]) for trace in shown["traces"]}
    assert pairs == {(run["instance"], run["method"]) for run in shown["runs"]}


def test_names_are_safe_and_no_other_runs(bench: Folder) -> None:  # noqa: F811 - the fixture
    (task, *_) = plan(bench.csv, [parse_method("lp-babsr")], Selection(), {})
    odd = {
        "../../up/net.onnx": "../x/..vnnlib",
        "a b/nét.onnx.gz": "p:1?*.vnnlib.gz",
        "other/net.onnx": "..vnnlib",
        "n" * 300 + ".onnx": "p" * 300 + ".vnnlib",
        "/net.onnx": "CON.vnnlib",
    }
    tasks = [replace(task, instance=Instance(Path(n), Path(p), 20.0)) for n, p in odd.items()]
    tasks += [replace(tasks[0], instance=replace(tasks[0].instance, timeout=t)) for t in (1.0, 2.0)]
    tasks += [replace(tasks[0], method=parse_method("bounds=lp, batch=1"))]
    names = [trace_name(one) for one in tasks]
    assert len({name.lower() for name in names}) == len(tasks)
    for name in names:
        assert re.fullmatch(r"[A-Za-z0-9_=,+][A-Za-z0-9._=,+-]*\.jsonl\.gz", name)
        assert len(name) < 255
    assert re.fullmatch(r"net-safe-lp-babsr-[0-9a-f]{8}\.jsonl\.gz", trace_name(task))


def test_only_what_searches_is_traced(bench: Folder) -> None:  # noqa: F811 - the fixture
    folder = bench.csv.parent / "traces"
    status, messages = bench("--method", "mip-planet", "--method", "lp-babsr", "--only", "safer", "--trace", folder)
    assert status == 0
    assert "note: no trace of mip-planet: other solvers leave none" in messages
    assert [method for _, _, method in traces(folder)] == ["lp-babsr"]


def test_few_nodes(bench: Folder) -> None:  # noqa: F811 - the fixture
    folder = bench.csv.parent / "traces"
    assert bench("--trace", folder, "--trace-limit", 0)[0] == 0
    assert all(trace.stopped and not len(trace.nodes) for trace in traces(folder).values() if trace.steps)


@pytest.mark.parametrize(
    ("extra", "words"),
    [
        (("--trace-limit", 5), "--trace-limit limits traces; give --trace DIR, too"),
        (("--trace", "{}/traces", "--trace-limit", -1), "--trace-limit is -1"),
        (("--trace", "{}/net.onnx"), "is a file; name a folder"),
        (("--trace", "{}/net.onnx/traces"), "cannot create the folder"),
        (("--method", "mip-planet", "--trace", "{}/traces"), "no method here has one"),
    ],
)
def test_bad_input(bench: Folder, extra: tuple[object, ...], words: str) -> None:  # noqa: F811 - the fixture
    status, messages = bench(*(str(word).format(bench.csv.parent) for word in extra))
    assert (status, len(messages.splitlines())) == (2, 1)
    assert words in messages
    assert not bench.out.exists()


def test_a_dry_run_writes_nothing(bench: Folder, capsys) -> None:  # noqa: F811 - the fixture
    folder = bench.csv.parent / "traces"
    assert main(["bench", str(bench.csv), "--out", str(bench.out), "--trace", str(folder), "--dry-run"]) == 0
    assert not folder.exists()


def test_no_traces_in_a_folder(tmp_path: Path, capsys) -> None:
    assert main(["report", "--out", str(tmp_path / "page"), "--trace", str(tmp_path)]) == 2
    assert "holds no trace; give a folder of `bough bench --trace`" in capsys.readouterr().err


def test_no_task_searches(bench: Folder) -> None:  # noqa: F811 - the fixture
    tasks = plan(bench.csv, [parse_method("mip-tight")], Selection(), {})
    with pytest.raises(BadInput, match="no method here has one"):
        with_traces(tasks, bench.csv.parent)
