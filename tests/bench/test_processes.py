"""`bough bench` with worker processes: whatever becomes of a run is a record, and all else is as in one process."""

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest
from tests.bench import work
from tests.bench.test_bench import LINES, METHODS, PROPERTY, Folder, bench  # noqa: F401 - the fixture

from bough.bench import engines
from bough.bench.engines import Processes, run_tasks
from bough.bench.ledger import Ledger
from bough.bench.methods import parse_method
from bough.bench.run import with_share
from bough.bench.tasks import Selection, plan
from bough.budget import Deadline
from bough.jobs.pool import Limits

TORCH_AND_MORE = 1.2  # GB
LISTENING = """
import signal, sys
from bough.cli import main
signal.signal(signal.SIGINT, signal.default_int_handler)  # tests side by side are deaf to it, and so are their children
sys.exit(main())
"""


def outcomes(entries: list[dict[str, Any]]) -> dict[tuple[str, ...], tuple[Any, ...]]:
    fields = ("verdict", "branches", "bounds", "lower_bound", "bounder", "batch", "error", "known", "instances")
    return {(Path(e["property"]).stem, e["method"]): tuple(e[name] for name in fields) for e in entries}


def test_the_same_records_whatever_the_jobs(bench: Folder) -> None:  # noqa: F811 - the fixture
    methods = ("--method", METHODS[0], "--method", f"{METHODS[1]},branching=random,seed=3")
    assert bench(*methods)[0] == 0
    alone = outcomes(bench.entries)
    bench.out.unlink()
    status, messages = bench(*methods, "--engine", "local", "--jobs", 2, "--memory-limit", TORCH_AND_MORE)
    assert (status, outcomes(bench.entries)) == (0, alone)
    assert len(alone) == 2 * len(LINES)
    assert "6/6  " in messages
    assert messages.splitlines()[-2].split()[:4] == ["lp-babsr", "3", "3", "2"]


def test_every_bad_end_is_a_record(bench: Folder) -> None:  # noqa: F811 - the fixture
    names = ("crash", "hang", "safe", "eat", "unsafe")
    for name in names:
        bench.csv.with_name(f"{name}.vnnlib").write_text(PROPERTY.format(LINES.get(name, LINES["safe"])[0]))
    bench.csv.write_text("".join(f"net.onnx,{name}.vnnlib,{1 if name == 'hang' else 60}\n" for name in names))
    tasks = plan(bench.csv, [parse_method("lp-babsr")], Selection(), {})
    engine = Processes(2, Limits(grace=2.0, memory=TORCH_AND_MORE), run=work.by_name)
    entries = run_tasks(tasks, {}, bench.out, lambda *_: None, Deadline.never(), engine)
    assert [Path(entry["property"]).stem for entry in entries] == list(names)
    assert [entry["verdict"] for entry in entries] == [None, None, "verified", None, "falsified"]
    errors = [entry["error"] for entry in entries if entry["error"] is not None]
    assert errors[0] == "the process crashed (SIGSEGV)"
    assert errors[1] == "killed: no answer 2 s after its time limit of 1 s"
    assert errors[2].startswith("killed: it took 1.")
    assert entries[0]["instances"] == str(bench.csv)
    assert [entry["timeout"] for entry in entries[:2]] == [60, 1]
    assert len(bench.entries) == len(names)
    assert bench("--resume")[0] == 0  # what failed is run again, here without harm
    assert len(bench.entries) == len(names) + 3


def test_ctrl_c_says_how_to_go_on(bench: Folder) -> None:  # noqa: F811 - the fixture
    for number in range(200):
        bench.csv.with_name(f"more{number}.vnnlib").write_text(PROPERTY.format(LINES["safe"][0]))
    bench.csv.write_text("".join(f"net.onnx,more{number}.vnnlib,20\n" for number in range(200)))
    words = [sys.executable, "-c", LISTENING, "bench", str(bench.csv), "--out", str(bench.out), "--method", "lp-babsr"]
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, sys.path))}
    with subprocess.Popen(words, stderr=subprocess.PIPE, text=True, env=environment) as process:
        while not bench.out.exists() or not bench.out.stat().st_size:
            assert process.poll() is None
            time.sleep(0.02)
        process.send_signal(signal.SIGINT)
        messages = process.communicate(timeout=20)[1]
    assert process.returncode == 3
    done = len(bench.out.read_text().splitlines())
    assert 0 < done < 200
    left = (
        f"bough: {200 - done} of 200 runs are left, {done} are in {bench.out}; go on by the same command with --resume"
    )
    assert messages.splitlines()[-1] == left
    assert "Traceback" not in messages


def test_a_file_that_another_bench_is_at_work_on(bench: Folder) -> None:  # noqa: F811 - the fixture
    with Ledger(bench.out, resume=True, note=print):
        status, messages = bench("--resume")
    assert status == 2
    assert messages.startswith(f"bough: another bench is at work on {bench.out}; wait for its end")


def test_memory_is_shared_among_runs(bench: Folder) -> None:  # noqa: F811 - the fixture
    tasks = plan(bench.csv, [parse_method(m) for m in ("auto", "memory=3", "mip-planet")], Selection(), {})
    assert [with_share(task, 0.5).method.options.memory for task in tasks[:3]] == [0.5, 3.0, None]
    assert engines.memory_share(4, Limits(memory=0.1)) == 0.05
    assert engines.memory_share(4, Limits()) < engines.memory_share(1, Limits())


def test_several_gpus_go_round(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)
    for count, wanted in ((0, [None]), (1, [None]), (2, ["0", "1"])):
        monkeypatch.setattr("torch.cuda.device_count", lambda count=count: count)
        assert [given.get("CUDA_VISIBLE_DEVICES") for given in engines.gpus()] == wanted
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "GPU-a,GPU-b")
    assert [given["CUDA_VISIBLE_DEVICES"] for given in engines.gpus()] == ["GPU-a", "GPU-b"]


# Dry runs


def test_a_dry_run_runs_nothing(bench: Folder, capsys: pytest.CaptureFixture[str]) -> None:  # noqa: F811
    assert bench("--only", "unsafe")[0] == 0
    entries = bench.entries
    bench.out.write_text("".join(json.dumps(e) + "\n" for e in [*entries, {**entries[0], "seed": 1, "error": "no"}]))
    before = bench.out.read_bytes()
    words = ["bench", str(bench.csv), "--out", str(bench.out), "--dry-run", "--jobs", "2"]
    assert main_of([*words, "--method", "lp-babsr", "--method", "lp-babsr,seed=1"], capsys) == (
        0,
        [
            "net safe lp-babsr 20 s",
            "net safe lp-babsr,seed=1 20 s",
            "net unsafe lp-babsr,seed=1 20 s",
            "net safer lp-babsr 20 s",
            "net safer lp-babsr,seed=1 20 s",
        ],
        [
            f"5 of 6 runs are left, 1 are in {bench.out}; 2 at a time, 50 s if each takes its time limit",
            f"note: {bench.out} is there already; give --resume to go on with it",
        ],
    )
    assert bench.out.read_bytes() == before


def test_a_dry_run_creates_no_file(bench: Folder, capsys: pytest.CaptureFixture[str]) -> None:  # noqa: F811
    status, listed, messages = main_of(["bench", str(bench.csv), "--out", str(bench.out), "--dry-run"], capsys)
    assert (status, len(listed), len(messages)) == (0, 3, 1)
    assert "3 of 3 runs are left, 0 are in" in messages[0]
    assert "1:00" in messages[0]
    assert not bench.out.exists()


def main_of(words: list[str], capsys: pytest.CaptureFixture[str]) -> tuple[int, list[str], list[str]]:
    from bough.cli import main

    capsys.readouterr()
    status = main(words)
    printed = capsys.readouterr()
    return status, printed.out.splitlines(), printed.err.splitlines()


# Bad input


@pytest.mark.parametrize(
    ("extra", "words"),
    [
        (("--jobs", 0), "--jobs is 0; give a whole number from 1"),
        (("--jobs", -3), "--jobs is -3"),
        (("--grace", -1), "--grace is -1.0"),
        (("--memory-limit", 0), "--memory-limit is 0.0; give GB"),
        (("--gpu-share", "0.5"), "--gpu-share says nothing with --engine local"),
        (("--engine", "here", "--jobs", 2), "--jobs says nothing with --engine here"),
        (("--engine", "here", "--fresh"), "--fresh says nothing with --engine here"),
        (("--networks", "."), "--networks says nothing with a list of instances"),
    ],
)
def test_bad_input_is_said_before_anything_runs(
    bench: Folder,  # noqa: F811 - the fixture
    extra: tuple[object, ...],
    words: str,
) -> None:
    status, messages = bench(*extra, *(() if "--engine" in extra else ("--engine", "local")))
    assert (status, len(messages.splitlines())) == (2, 1)
    assert words in messages
    assert not bench.out.exists()


@pytest.mark.parametrize("flag", ["--memory-limit", "--grace", "--jobs", "--limit-seconds"])
def test_a_limit_that_is_no_number(bench: Folder, flag: str, capsys: pytest.CaptureFixture[str]) -> None:  # noqa: F811
    with pytest.raises(SystemExit) as ended:
        bench(flag, "lots")
    assert ended.value.code == 2
    assert f"argument {flag}: " in capsys.readouterr().err


@pytest.mark.gpu
def test_several_runs_share_a_gpu(bench: Folder) -> None:  # noqa: F811 - the fixture
    assert bench("--engine", "local", "--jobs", 3, "--device", "cuda", "--method", "bounds=dual,batch=8")[0] == 0
    together = outcomes(bench.entries)
    bench.out.unlink()
    assert bench("--engine", "local", "--fresh", "--device", "cuda", "--method", "bounds=dual,batch=8")[0] == 0
    assert outcomes(bench.entries) == together
    assert {entry["device"] for entry in bench.entries} == {"cuda"}
    assert bench.verdicts == [verdict for _, verdict in LINES.values()]


def test_a_memory_limit_that_leaves_no_room(bench: Folder) -> None:  # noqa: F811 - the fixture
    status, messages = bench("--engine", "local", "--memory-limit", 0.05)
    assert (status, bench.out.exists()) == (2, False)
    assert "worker processes do not start: killed: it took 0." in messages.splitlines()[-1]
    assert messages.splitlines()[-1].endswith("GB to load its libraries, and --memory-limit is 0.05 GB")
