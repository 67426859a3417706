"""Benches that are killed (SIGKILL) at random moments and resumed, over and over; run by test_kill.py.

Loading the libraries takes seconds, so they are loaded once, and every bench is a copy of this process, which has no
threads yet. Usage: python killing.py FOLDER KILLS SEED OPTION...
"""

import importlib
import json
import os
import random
import sys
import time
from pathlib import Path

import torch

from bough.cli import main

LOADED_ONCE = (
    *("highspy", "onnx", "onnxruntime", "scipy.sparse", "bough.bench.engines", "bough.bench.tasks"),
    *("bough.bench.tally", "bough.problem.onnx", "bough.solvers.highs"),
)


def bench(folder: Path, options: list[str]) -> int:
    """A bench as a process of its own; returns its number."""
    sys.stdout.flush()
    child = os.fork()
    if not child:
        status = 99
        try:
            words = ["bench", str(folder / "instances.csv"), "--out", str(folder / "run.jsonl"), "--resume", *options]
            status = main(words)
        finally:
            os._exit(status)
    return child


def check(path: Path, before: bytes) -> bytes:
    """What was recorded is still there, and only the last line may be half; the whole lines return."""
    now = path.read_bytes() if path.exists() else b""
    whole = now[: now.rfind(b"\n") + 1]
    assert whole.startswith(before), "a record was lost or changed"
    for line in whole.splitlines():
        json.loads(line)
    return whole


def kill_again_and_again(folder: Path, kills: int, seed: int, longest: float, options: list[str]) -> dict[str, int]:
    """Kill benches until there were enough kills that found one at work, then let it end."""
    chance, path, recorded, killed, more, ended = random.Random(seed), folder / "run.jsonl", b"", 0, 0, 0
    while killed < kills:
        child = bench(folder, options)
        time.sleep(chance.uniform(0, longest))
        os.kill(child, 9)
        by_us = os.WIFSIGNALED(os.waitpid(child, 0)[1])
        before, recorded = recorded, check(path, recorded)
        killed += by_us
        more += by_us and recorded != before
        if not by_us:  # it was faster: keep the records, and begin again
            finished(folder, recorded)
            path.rename(folder / f"run{ended}.jsonl")
            ended, recorded = ended + 1, b""
    assert os.waitstatus_to_exitcode(os.waitpid(bench(folder, options), 0)[1]) == 0
    finished(folder, check(path, recorded))
    return {"killed": killed, "got_further": more, "ended": ended}


def finished(folder: Path, lines: bytes) -> None:
    """Every run is there, once, with the verdict that its name tells."""
    entries = [json.loads(line) for line in lines.splitlines()]
    instances = (folder / "instances.csv").read_text().split()
    assert len(entries) == len(instances), (len(entries), len(instances))
    assert len({entry["property"] for entry in entries}) == len(instances)
    for entry in entries:
        assert entry["error"] is None, entry["error"]
        assert entry["verdict"] == ("falsified" if "unsafe" in entry["property"] else "verified")


if __name__ == "__main__":
    for name in LOADED_ONCE:
        importlib.import_module(name)
    torch.set_num_threads(1)
    given = sys.argv[1:]
    sys.stderr = open(os.devnull, "w")  # noqa: SIM115, PTH123 - what the benches say
    try:
        figures = kill_again_and_again(Path(given[0]), int(given[1]), int(given[2]), float(given[3]), given[4:])
    finally:
        sys.stderr = sys.__stderr__
    sys.stdout.write(json.dumps(figures) + "\n")
