"""Records and traces made up for the page's tests."""

import json
import random
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from bough.report.record import Run, Settings, record
from bough.verdict.result import Result, Verdict

EVIL = "<script>alert(1)</script><!-- \u2028 ]]>&amp;'\""


def entry(
    prop: str, method: str, verdict: str | None = "verified", seconds: float = 1.0, **more: Any
) -> dict[str, Any]:
    """A record as the bench writes it; verdict None is an error."""
    run = Run(
        network=more.pop("network", "net.onnx"),
        property=prop,
        method=method,
        settings=Settings("dual", "optimised", "kfsb", batch=8, seed=0, timeout=more.pop("timeout", 10.0)),
    )
    if verdict is None:
        return {**record(run, None, "RuntimeError: out of memory"), **more}
    figures = {"branches": more.pop("branches", 10), "bounds": more.pop("bounds", 30)}
    result = Result(
        Verdict(verdict), "because", None, -1.0, 1.0, -2.0, depth=3, open_domains=0, seconds=seconds, **figures
    )
    return {**record(run, result), **more}


def write_runs(path: Path, entries: Sequence[dict[str, Any]]) -> Path:
    """A run file."""
    path.write_text("".join(json.dumps(one) + "\n" for one in entries))
    return path


def write_trace(path: Path, nodes: int, network: str = "net.onnx", prop: str = "big.vnnlib") -> Path:
    """The trace of a made-up search by a learnt rule, about as large as asked for."""
    luck, layers = random.Random(0), [{"name": "relu_1", "shape": [8, 16, 16], "first": 0}]
    layers.append({"name": "relu_2", "shape": [100], "first": 2048})
    header: dict[str, Any] = {
        "schema": "bough.trace/1",
        "network": network,
        "property": prop,
        "input_shape": [3, 32, 32],
    }
    header |= {"neurons": 2148, "layers": layers, "clauses": 1, "image": None, "method": "bab", "bounder": "dual"}
    header |= {"branching": "gnn", "timeout": 10.0, "seed": 0, "limit": nodes}
    lines: list[dict[str, Any]] = [header]
    count, waiting = 1, [(0, -5.0)]

    def step(added: dict[str, Any]) -> None:
        figures = {"seconds": count / 1e4, "lower": -5 + 5 * count / nodes, "upper": None, "open": len(waiting)}
        lines.append({"step": len(lines), **figures, "branches": count - 1, "bounds": count, "nodes": added})

    step({"first": 0, "clause": [0], "bound": [-5.0], "end": "o"})
    while count < nodes:
        batch = [waiting.pop(luck.randrange(len(waiting))) for _ in range(min(32, len(waiting)))]
        added: dict[str, Any] = {"first": count, "parent": [k for k, _ in batch], "by": "", "gain": [], "bound": []}
        added |= {"split": [luck.randrange(2148) for _ in batch], "end": ""}
        for _, bound in batch:
            added["by"] += luck.choice("rrrb")
            added["gain"].append(round(luck.random(), 4))
            for _ in range(2):
                added["bound"].append(round(bound + abs(luck.gauss(0, 0.4)), 4))
                closed = added["bound"][-1] > 0 or (len(waiting) > 60 and luck.random() < 0.1)
                added["end"] += "c" if closed else "o"
                if not closed:
                    waiting.append((count, added["bound"][-1]))
                count += 1
        step(added)
    end = {"verdict": "timeout", "reason": "the time limit was reached", "seconds": count / 1e4, "branches": count - 1}
    lines.append({"end": {**end, "bounds": count, "lower": -0.1, "upper": None, "depth": 20, "counterexample": None}})
    path.write_text("".join(json.dumps(line) + "\n" for line in lines))
    return path
