"""What the world does to a run: no memory, no disk, no permission, signals, failing solvers, clocks that jump.

Whatever happens, no verdict is wrong, no result is torn, and what is said is one sentence.
"""

import errno
import json
import os
import random
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from tests.support import OUTPUTS, generator, hard_case, normal, sequential

from bough.bounds import ascent
from bough.bounds.dual import DualAscent
from bough.bounds.lp import PlanetLP
from bough.branching.babsr import BaBSR
from bough.budget import Deadline
from bough.cli import main
from bough.falsify.base import NoAttack
from bough.network.graph import Network
from bough.problem.onnx_writer import write_network
from bough.search.loop import Search, search
from bough.solvers.highs import Highs
from bough.verdict.result import Verdict

TRUTHS = [("dense", 3, True), ("residual", 5, True), ("dense", 7, False)]


def hard_network() -> Network:
    """120 ReLUs over a wide box: minutes of search."""
    g, layers, inputs = generator(0), [], 12
    for _ in range(3):
        layers.append((normal(g, 40, inputs) * (2 / inputs) ** 0.5, normal(g, 40) * 0.1))
        inputs = 40
    return sequential(*layers, (normal(g, 1, inputs) / inputs**0.5, normal(g, 1)))


@pytest.fixture
def hard(tmp_path: Path) -> tuple[str, str]:
    """The paths of a network and of a property that takes long."""
    paths = tmp_path / "a.onnx", tmp_path / "a.vnnlib"
    write_network(hard_network(), paths[0])
    lines = [f"(declare-const X_{i} Real)(assert (>= X_{i} -1))(assert (<= X_{i} 1))" for i in range(12)]
    paths[1].write_text("".join(lines) + "(declare-const Y_0 Real)(assert (<= Y_0 -5))")
    return str(paths[0]), str(paths[1])


@pytest.fixture
def easy(tmp_path: Path) -> tuple[str, str]:
    """As above, of a question that is answered at once: falsified."""
    paths = tmp_path / "e.onnx", tmp_path / "e.vnnlib"
    write_network(sequential(([[1, 1], [1, -1]], [0, 0]), ([[1, 1]], [0])), paths[0])
    box = "".join(f"(declare-const X_{i} Real)(assert (>= X_{i} -1))(assert (<= X_{i} 1))" for i in range(2))
    paths[1].write_text(box + "(declare-const Y_0 Real)(assert (<= Y_0 0.5))")
    return str(paths[0]), str(paths[1])


def one_sentence(text: str) -> str:
    (line,) = text.splitlines()
    assert line.startswith("bough: ")
    return line


def leftovers(folder: Path) -> list[Path]:
    return [path for path in folder.iterdir() if path.name.endswith(".part")]


# Memory


@pytest.mark.parametrize(
    ("error", "words"),
    [
        (torch.OutOfMemoryError("CUDA out of memory"), "the device's memory is too small"),
        (MemoryError(), "the machine has too little free memory"),
        (RuntimeError("[enforce fail at alloc_cpu.cpp] DefaultCPUAllocator: can't allocate"), "too little free memory"),
    ],
)
@pytest.mark.parametrize("after", [0, 1, 3])
def test_out_of_memory_ends_a_search_as_unknown(
    error: Exception, words: str, after: int, hard: tuple[str, str], monkeypatch: pytest.MonkeyPatch, capsys: Any
) -> None:
    calls, bound = [], Highs.solve

    def failing(self: Highs, *arguments: Any) -> Any:
        calls.append(1)
        if len(calls) > after:
            raise error
        return bound(self, *arguments)

    monkeypatch.setattr(Highs, "solve", failing)
    assert main(["verify", *hard, "--bounds", "lp", "--no-attack", "--quiet", "--timeout", "30"]) == 3
    assert capsys.readouterr() == ("unknown\n", "")
    assert main(["verify", *hard, "--bounds", "lp", "--no-attack", "--timeout", "30"]) == 3
    assert words in capsys.readouterr().err


def test_too_little_memory_for_the_process(hard: tuple[str, str], tmp_path: Path) -> None:
    """A limit of the operating system, at several sizes: loading fails, or the search, or nothing does."""
    statuses = set()
    for extra in (16, 400):
        script = f"""
import resource, sys, torch, onnx, onnxruntime, highspy
import bough.cli, bough.api, bough.zoo.shipped, bough.problem.onnx, bough.bounds.planet, bough.report.record
used = int(open("/proc/self/statm").read().split()[0]) * resource.getpagesize()
resource.setrlimit(resource.RLIMIT_AS, (used + ({extra} << 20),) * 2)
sys.exit(bough.cli.main(sys.argv[1:]))
"""
        words = ["verify", *hard, "--timeout", "3", "--quiet", "--json", str(tmp_path / "a.json")]
        done = subprocess.run([sys.executable, "-c", script, *words], capture_output=True, text=True, check=False)
        statuses.add(done.returncode)
        assert done.returncode in (3, 4), done.stderr
        assert done.stdout in ("unknown\n", "timeout\n") if done.returncode == 3 else done.stdout == ""
        if done.returncode == 4:
            assert "Traceback" not in done.stderr, done.stderr
    assert not leftovers(tmp_path)
    assert 3 in statuses


# Disks


@pytest.mark.parametrize("code", [errno.ENOSPC, errno.EIO, errno.EDQUOT, errno.EROFS])
@pytest.mark.parametrize("option", OUTPUTS)
def test_a_disk_that_fails_leaves_the_old_file(
    option: str, code: int, easy: tuple[str, str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: Any
) -> None:
    out = tmp_path / "out"
    out.write_text("before")

    def full(_: int) -> None:
        raise OSError(code, os.strerror(code))

    monkeypatch.setattr(os, "fsync", full)
    assert main(["verify", *easy, option, str(out), "--quiet"]) == 2
    printed = capsys.readouterr()
    assert printed.out == ""
    assert os.strerror(code) in one_sentence(printed.err)
    assert "the run ended falsified" in printed.err
    assert out.read_text() == "before"
    assert not leftovers(tmp_path)


# Signals


def runs(hard: tuple[str, str], tmp_path: Path) -> Callable[[], int]:
    """Forks of this process that search, write, and end: to be hit by signals; returns their numbers."""
    words = ["verify", *hard, "--timeout", "0.3", "--quiet", "--no-attack", "--bounds", "lp"]
    outputs = ["--json", str(tmp_path / "a.json"), "--vnncomp", str(tmp_path / "a.txt")]

    def start() -> int:
        child = os.fork()
        if not child:
            status = 99
            try:
                signal.signal(signal.SIGINT, signal.default_int_handler)
                silent = os.open(os.devnull, os.O_WRONLY)
                os.dup2(silent, 1)
                os.dup2(silent, 2)
                status = main([*words, *outputs])
            except KeyboardInterrupt:
                status = 130
            finally:
                os._exit(status)
        return child

    return start


def whole(tmp_path: Path) -> None:
    """What is there can be read."""
    if (tmp_path / "a.json").exists():
        assert json.loads((tmp_path / "a.json").read_text())["verdict"] in ("timeout", "unknown")
    if (tmp_path / "a.txt").exists():
        assert (tmp_path / "a.txt").read_text() in ("timeout\n", "unknown\n")


@pytest.mark.skipif(sys.platform != "linux", reason="forks after threads elsewhere are asking for trouble")
def test_kill_9_at_random_moments(hard: tuple[str, str], tmp_path: Path) -> None:
    start, chance, killed = runs(hard, tmp_path), random.Random(0), 0
    main(["verify", *hard, "--timeout", "0", "--quiet", "--bounds", "lp"])  # loads the libraries
    for _ in range(25):
        child = start()
        time.sleep(chance.uniform(0, 0.7))
        os.kill(child, signal.SIGKILL)
        killed += os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == -signal.SIGKILL
        whole(tmp_path)
    assert killed > 5


@pytest.mark.skipif(sys.platform != "linux", reason="as above")
@pytest.mark.parametrize("times", [1, 2])
def test_ctrl_c_at_random_moments(times: int, hard: tuple[str, str], tmp_path: Path) -> None:
    start, chance, statuses = runs(hard, tmp_path), random.Random(times), []
    main(["verify", *hard, "--timeout", "0", "--quiet", "--bounds", "lp"])
    for _ in range(10):
        child = start()
        time.sleep(chance.uniform(0.1, 0.5))
        for _ in range(times):
            os.kill(child, signal.SIGINT)
            time.sleep(chance.uniform(0, 0.02))
        began = time.monotonic()
        statuses.append(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]))
        assert time.monotonic() - began < 20
        whole(tmp_path)
        assert not leftovers(tmp_path)
    assert set(statuses) <= {3, 130}, statuses  # 130: it came before or after `main` was at work
    assert 3 in statuses


# Solvers and devices


def failing_solver(kind: str) -> Callable[..., Any]:
    truth, random_ = Highs._solution, np.random.default_rng(0)

    def solution(self: Highs, status: Any) -> Any:
        if kind == "raises":
            raise ValueError("a defect of the library")
        answer = truth(self, status)
        if random_.random() < 0.3:
            return answer
        if kind == "no numbers":
            return replace(answer, row_dual=answer.row_dual * np.nan)
        return replace(answer, objective=1e30, row_dual=random_.normal(size=len(answer.row_dual)) * 10)

    return solution


@pytest.mark.parametrize("kind", ["raises", "no numbers", "lies"])
@pytest.mark.parametrize(("network", "seed", "safe"), TRUTHS)
def test_a_solver_that_fails_decides_nothing(
    kind: str, network: str, seed: int, safe: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    case = hard_case(network, seed, safe=safe)
    monkeypatch.setattr(Highs, "_solution", failing_solver(kind))
    result = search(Search(case.problem, PlanetLP(), BaBSR(), NoAttack(), Deadline.after(5), batch=8))
    assert result.verdict != (Verdict.FALSIFIED if safe else Verdict.VERIFIED)


@pytest.mark.parametrize("garbage", [float("nan"), float("inf"), -float("inf"), 1e30])
@pytest.mark.parametrize(("network", "seed", "safe"), TRUTHS)
def test_garbage_from_the_device(
    garbage: float, network: str, seed: int, safe: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Ascent's duals, a third of them something else: they are evaluated anew, and prove what they prove."""
    case, run = hard_case(network, seed, safe=safe), ascent.Ascent.run
    g, calls = generator(seed), []

    def broken(self: Any, *arguments: Any, **more: Any) -> Any:
        ascended = run(self, *arguments, **more)

        def spoilt(value: Any) -> Any:
            if isinstance(value, torch.Tensor) and value.is_floating_point():
                return torch.where(torch.rand(value.shape, generator=g) < 0.3, garbage, value)
            return value

        def each(whole: Any) -> Any:
            parts = {name: spoilt(getattr(whole, name)) for name in whole.__dataclass_fields__}
            return replace(whole, **parts)

        calls.append(1)
        return replace(each(ascended), duals=each(ascended.duals))

    monkeypatch.setattr(ascent.Ascent, "run", broken)
    result = search(Search(case.problem, DualAscent(device="cpu"), BaBSR(), NoAttack(), Deadline.after(5), batch=8))
    assert calls
    assert result.verdict != (Verdict.FALSIFIED if safe else Verdict.VERIFIED)


# Clocks


@pytest.fixture
def jumping(monkeypatch: pytest.MonkeyPatch) -> None:
    """The clock on the wall goes back an hour at every look."""
    ticks = iter(range(10**9))
    monkeypatch.setattr(time, "time", lambda: 1e9 - 3600.0 * next(ticks))


@pytest.mark.usefixtures("jumping")
def test_the_clock_on_the_wall_does_not_matter(hard: tuple[str, str], tmp_path: Path, capsys: Any) -> None:
    words = ["--timeout", "1", "--quiet", "--json", str(tmp_path / "a.json")]
    assert main(["verify", *hard, *words]) == 3
    assert capsys.readouterr().out == "timeout\n"
    assert 0.9 < json.loads((tmp_path / "a.json").read_text())["seconds"] < 30


def test_no_deadline_is_read_from_the_wall() -> None:
    """`time.time` goes back when clocks are set."""
    for path in Path(main.__code__.co_filename).parents[1].rglob("*.py"):
        assert "time.time()" not in path.read_text(encoding="utf-8"), path
