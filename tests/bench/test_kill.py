"""Benches killed at random moments: nothing that was recorded is lost, nothing runs twice, nothing is left running.

Dozens of kills; `make kill-test` asks for hundreds by BOUGH_KILLS.
"""

import json
import os
import subprocess
import sys
from contextlib import suppress
from pathlib import Path

import pytest
from tests.bench import killing
from tests.bench.test_bench import LINES, PROPERTY
from tests.support import sequential

from bough.problem.onnx_writer import write_network

KILLS = int(os.environ.get("BOUGH_KILLS", "30"))
BY_PROCESSES = 1 if KILLS <= 100 else KILLS // 10  # their workers load the libraries each time
RUNS = 12
ENVIRONMENT = {**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, sys.path)), "OMP_NUM_THREADS": "1"}


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    write_network(sequential(([[1, 1], [1, -1]], [0, 0]), ([[1, 1], [1, -1]], [0, 0])), tmp_path / "net.onnx")
    names = [f"{name}{number}.vnnlib" for number in range(RUNS // len(LINES)) for name in LINES]
    for name in names:
        unsafe, _ = LINES[name.rstrip(".vnlib0123456789")]
        (tmp_path / name).write_text(PROPERTY.format(unsafe))
    (tmp_path / "instances.csv").write_text("".join(f"net.onnx,{name},20\n" for name in names))
    return tmp_path


def killed(folder: Path, kills: int, longest: float, *options: str) -> dict[str, int]:
    words = [sys.executable, killing.__file__, str(folder), str(kills), "1", str(longest), "--method", "lp-babsr"]
    done = subprocess.run([*words, *options], env=ENVIRONMENT, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    figures: dict[str, int] = json.loads(done.stdout.splitlines()[-1])
    return figures


def processes_of(folder: Path) -> list[str]:
    """Command lines of workers that belong to benches of this folder."""
    commands = []
    for process in Path("/proc").glob("[0-9]*"):
        with suppress(OSError):  # gone, or not ours
            if f"BOUGH_TEST={folder}".encode() in (process / "environ").read_bytes():
                commands.append((process / "cmdline").read_text())
    return commands


def test_killed_at_random_moments(folder: Path) -> None:
    figures = killed(folder, KILLS, 0.4, "--engine", "here")
    assert figures["killed"] == KILLS
    assert figures["got_further"] > 0  # they were killed at work, too, not only while they began


def test_killed_with_workers_at_work(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(ENVIRONMENT, "BOUGH_TEST", str(folder))
    figures = killed(folder, BY_PROCESSES, 6.0, "--jobs", "2")
    assert figures["killed"] == BY_PROCESSES
    assert processes_of(folder) == []
