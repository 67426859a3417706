"""The table of verdicts against those on record: which instances are drawn, and that a wrong verdict is told."""

import sys
from collections import Counter
from pathlib import Path
from random import Random

import numpy as np
import pytest
from soundness.table import chosen, contradictions, main, shares, table, tasks_of
from tests.support import sequential

from bough.bench.tasks import known_verdict, read_known, read_list
from bough.problem.onnx_writer import write_network

SIZES = {"acasxu_2023": 186, "cersyve": 12, "mnist_fc": 90, "oval21": 30, "test": 5}


@pytest.fixture
def data(tmp_path: Path) -> Path:
    """Two benchmarks of a few tiny instances; one verdict on record is wrong."""
    rows = ["benchmark,network,property,verdict"]
    for name, count in (("small", 3), ("large", 9)):
        folder = tmp_path / "vnncomp" / name
        folder.mkdir(parents=True)
        write_network(sequential((np.eye(2), np.zeros(2)), (np.ones((1, 2)), np.zeros(1))), folder / "net.onnx")
        lines = []
        for k in range(count):
            box = "".join(f"(declare-const X_{i} Real)(assert (>= X_{i} 0))(assert (<= X_{i} 1))" for i in range(2))
            (folder / f"p{k}.vnnlib").write_text(f"{box}(declare-const Y_0 Real)(assert (<= Y_0 {-1 if k % 3 else 1}))")
            lines.append(f"net.onnx,p{k}.vnnlib,60")
            rows.append(f"{name},net,p{k},{'unsat' if k % 3 else 'sat'}")
        (folder / "instances.csv").write_text("\n".join(lines) + "\n")
    rows[1] = "small,net,p0,unsat"
    (tmp_path / "vnncomp" / "known_results.csv").write_text("\n".join(rows) + "\n")
    return tmp_path / "vnncomp"


def test_every_benchmark_has_its_share_and_at_least_a_few() -> None:
    counts = shares(SIZES, 60)
    assert sum(counts.values()) == 60
    assert all(4 <= counts[name] <= size for name, size in SIZES.items())
    assert counts["acasxu_2023"] > counts["mnist_fc"] > counts["oval21"]
    assert shares(SIZES, 10_000) == SIZES
    assert sum(shares(SIZES, 3).values()) == 3


def test_instances_are_drawn_from_all_verdicts_and_the_same_every_time(data: Path) -> None:
    known, listed = read_known(data / "known_results.csv"), read_list(data / "large" / "instances.csv")
    some = chosen(listed, known, 6, Random("0"))
    assert some == chosen(listed, known, 6, Random("0"))
    assert any(some != chosen(listed, known, 6, Random(str(seed))) for seed in range(1, 9))
    tally = Counter(known_verdict(known, a.instance.network, a.instance.property) for a in some)
    assert tally == {"verified": 3, "falsified": 3}  # a few of each come before the share
    tasks = tasks_of(data, 8, 0, 5.0)
    assert len(tasks) == 8 * 6
    assert len(tasks_of(data, 0, 0, 5.0)) == 12 * 6


def test_verdicts_that_contradict_are_told() -> None:
    def entry(method: str, verdict: str, known: str | None, prop: str = "p") -> dict[str, object]:
        of = {"network": "n", "property": prop, "instances": "a/instances.csv", "seconds": 1.0, "error": None}
        return {**of, "method": method, "verdict": verdict, "known": known}

    right = [entry("bounds=lp,branching=fsb", "verified", "verified"), entry("b", "timeout", "verified")]
    assert contradictions(right) == []
    assert "| a | 1 | 1 + 0 | 0 + 0 | 0 | 0 |" in table(right)
    assert len(contradictions([*right, entry("c", "falsified", "verified")])) == 2
    both = [entry("a", "verified", None, "q"), entry("b", "falsified", None, "q")]
    assert contradictions(both) == ["n q: methods contradict each other"]


def test_the_program_runs_goes_on_and_fails_on_a_wrong_verdict(
    data: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("BOUGH_DATA", str(data.parent))
    words = ["table.py", "--out", str(tmp_path / "out.jsonl"), "--count", "0", "--timeout", "20"]
    monkeypatch.setattr(sys, "argv", [*words, "--limit-seconds", "0"])
    assert main() == 3
    assert "72 runs are left" in capsys.readouterr().out
    monkeypatch.setattr(sys, "argv", [*words, "--resume"])
    assert main() == 4
    output = capsys.readouterr().out
    assert "| all | 12 | 8 + 4 | 8 + 4 | 8 + 4 | 8 + 4 | 8 + 4 | 8 + 4 | 6 | 0 |" in output
    assert output.count("on record is verified") == 6
    monkeypatch.setattr(sys, "argv", words)
    assert main() == 2  # a file that is there is not touched
