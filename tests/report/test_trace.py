"""Traces: they change nothing, the tree they tell is the tree that was searched, and broken files are said to be so."""

import gzip
import json
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.support import KINDS, generator, hard_case

from bough.api import load_network, load_problem, solve
from bough.bounds.ascent import Ascent
from bough.bounds.base import AbstractBounder
from bough.bounds.boxes import LinearBounds
from bough.bounds.dual import DualAscent
from bough.bounds.lp import PlanetLP
from bough.branching.babsr import BaBSR
from bough.branching.base import AbstractBrancher
from bough.branching.filtered import Filtered
from bough.branching.inputs import BaBSB, Combined
from bough.branching.random import RandomChoice
from bough.budget import Deadline
from bough.cli import main
from bough.errors import BadInput, OutputError
from bough.falsify.base import NoAttack
from bough.learning.brancher import FailSafe
from bough.options import Options
from bough.problem.problem import Problem
from bough.problem.property import image_property
from bough.report.trace import Trace, TraceWriter, centre_of, picture_shape, read_trace
from bough.search.loop import Goal, MemoryLimits, Search, search
from bough.search.observe import AbstractObserver, Family
from bough.verdict.result import Result
from bough.zoo import demo

ABOUT = {"method": "bab", "bounder": "lp", "branching": "babsr"}
SAFE = FailSafe(RandomChoice(0), BaBSR(), threshold=0.2)  # whose children come in another order than their parents


@dataclass
class Witness(AbstractObserver):
    """Remembers the signs and depths of all that is born."""

    signs: list[Any] = field(default_factory=list)
    depth: list[int] = field(default_factory=list)

    def seen(self, state: object, seconds: float) -> None:
        """Nothing."""

    def born(self, family: Family) -> None:
        self.signs.extend(family.children.signs.tolist())
        self.depth.extend(family.children.depth.tolist())


def run_of(problem: Problem, bounder: AbstractBounder, rule: AbstractBrancher[Any], **more: Any) -> Search:
    return Search(problem, bounder, rule, NoAttack(), Deadline.after(60), **more)


def traced(path: Path, run: Search, limit: int = 10**6) -> tuple[Result, Trace, Witness]:
    witness = Witness()
    with TraceWriter(path, run.problem, ABOUT, limit) as writer:
        result = search(replace(run, observers=(writer, witness)))
        writer.finish(result)
    assert writer.trouble is None
    return result, read_trace(path), witness


def figures(result: Result) -> tuple[object, ...]:
    return (
        *(result.verdict, result.reason, result.branches, result.bounds, result.depth, result.open_domains),
        *(result.lower_bound, result.upper_bound, dict(result.notes)),
    )


RULES: dict[str, tuple[AbstractBounder, AbstractBrancher[Any], int]] = {
    "lp": (PlanetLP(), BaBSR(), 1),
    "batch": (PlanetLP(), RandomChoice(1), 5),
    "kept children": (PlanetLP(), SAFE, 7),
    "dual": (DualAscent(Ascent(steps=3)), Filtered(), 6),
    "inputs": (LinearBounds(), BaBSB(), 4),
    "both": (LinearBounds(), Combined(), 4),
}


@pytest.mark.parametrize("name", RULES)
@pytest.mark.parametrize("safe", [True, False])
def test_a_trace_changes_nothing_and_tells_the_tree(tmp_path: Path, name: str, safe: bool) -> None:
    bounder, rule, batch = RULES[name]
    for seed in (6, 12):
        run = run_of(hard_case("dense", seed, safe=safe).problem, bounder, rule, batch=batch, most_bounds=120)
        plain = search(run)
        result, trace, witness = traced(tmp_path / "t.jsonl", run)
        assert figures(result)[:-1] == figures(plain)[:-1]
        assert trace.end is not None
        assert (trace.end["verdict"], trace.end["branches"]) == (result.verdict.value, result.branches)
        check_tree(run.problem, trace, result, witness)


def check_tree(problem: Problem, trace: Trace, result: Result, witness: Witness) -> None:
    """Every node's path names exactly the signs that the search's own domain had."""
    nodes, neurons = trace.nodes, problem.network.neurons
    assert len(nodes) == len(problem.clauses) + result.branches == len(witness.signs)
    assert nodes.depth == witness.depth
    assert max(nodes.depth) == result.depth
    for k in range(len(nodes)):
        signs, at = [0] * neurons, k
        while nodes.parent[at] >= 0:
            (choice,) = nodes.split[at]
            if choice < neurons:
                signs[choice] = 1 if nodes.side[at] else -1
            at = nodes.parent[at]
        assert signs == witness.signs[k], k
    parents = {p for p in nodes.parent if p >= 0}
    left = [k for k in range(len(nodes)) if nodes.end[k] == "o" and k not in parents]
    assert all(nodes.end[p] == "o" for p in parents)
    if result.counterexample is None:
        assert len(left) + nodes.end.count("s") == result.open_domains
    for k in parents:  # Eq. 8, written out
        children = [c for c in range(k, len(nodes)) if nodes.parent[c] == k]
        own = nodes.bound[k]
        assert len(children) == 2
        if own is not None and own < -1e-9:
            after = [0.0 if nodes.end[c] in "cx" else min(0.0, nodes.bound[c] or 0.0) for c in children]
            assert nodes.gain[children[0]] == pytest.approx((sum(after) - 2 * own) / (-2 * own), abs=1e-4)


def test_who_decided_adds_up_to_what_is_counted(tmp_path: Path) -> None:
    run = run_of(hard_case("residual", 4, safe=True).problem, PlanetLP(), SAFE, batch=3)
    result, trace, _ = traced(tmp_path / "t.jsonl", run)
    by = "".join(trace.nodes.by[k] for k in range(len(trace.nodes)) if trace.nodes.side[k] == 1)
    assert by.count("r") == result.notes["learnt_decisions"]
    assert by.count("b") == result.notes["backup_decisions"] > 0


@settings(max_examples=15)
@given(kind=st.sampled_from(sorted(KINDS)), seed=st.integers(0, 10**6), batch=st.integers(1, 9))
def test_any_search_gives_its_tree_back(tmp_path_factory: Any, kind: str, seed: int, batch: int) -> None:
    path = tmp_path_factory.mktemp("trace") / "t.jsonl.gz"
    run = run_of(hard_case(kind, seed, safe=bool(seed % 2)).problem, PlanetLP(), RandomChoice(seed), batch=batch)
    result, trace, witness = traced(path, run)
    check_tree(run.problem, trace, result, witness)


def test_domains_keep_their_place_in_the_tree_when_they_move_to_the_host(tmp_path: Path) -> None:
    few = run_of(hard_case("dense", 12, safe=True).problem, PlanetLP(), RandomChoice(2), batch=3, most_bounds=120)
    spilt = replace(few, memory=MemoryLimits(device_bytes=3000.0))  # a handful of domains
    result, trace, witness = traced(tmp_path / "t.jsonl", spilt)
    check_tree(spilt.problem, trace, result, witness)


def test_a_minimum_is_traced_too(tmp_path: Path) -> None:
    run = run_of(hard_case("dense", 5, safe=True).problem, PlanetLP(), BaBSR(), goal=Goal(1e-3))
    plain = search(run)
    result, trace, _ = traced(tmp_path / "t.jsonl", run)
    assert figures(result)[:-1] == figures(plain)[:-1]
    lower = [step["lower"] for step in trace.steps if step["lower"] is not None]
    assert lower == sorted(lower)


def test_the_tree_is_followed_up_to_the_limit_and_the_steps_beyond(tmp_path: Path) -> None:
    run = run_of(hard_case("dense", 12, safe=True).problem, PlanetLP(), BaBSR())
    whole, full, _ = traced(tmp_path / "whole.jsonl", run)
    result, cut, _ = traced(tmp_path / "cut.jsonl", run, limit=7)
    assert (full.stopped, cut.stopped) == (False, True)
    assert len(cut.nodes) <= 7 < len(full.nodes)
    assert len(cut.steps) == len(full.steps)
    assert figures(result)[:-1] == figures(whole)[:-1]
    assert cut.nodes.bound == full.nodes.bound[: len(cut.nodes)]
    none, empty, _ = traced(tmp_path / "none.jsonl", run, limit=0)
    assert len(empty.nodes) == 0
    assert none.branches == whole.branches


def test_steps_say_what_the_states_were(tmp_path: Path) -> None:
    result, trace, _ = traced(
        tmp_path / "t.jsonl", run_of(hard_case("dense", 12, safe=True).problem, PlanetLP(), BaBSR())
    )
    seconds = [step["seconds"] for step in trace.steps]
    assert seconds == sorted(seconds)
    assert trace.steps[-1]["branches"] == result.branches
    assert trace.steps[-1]["bounds"] == result.bounds
    assert trace.steps[-1]["open"] == 0
    assert trace.header["layers"][0]["first"] == 0


def test_a_full_disk_ends_the_trace_and_not_the_search() -> None:
    if not Path("/dev/full").exists():
        pytest.skip("needs /dev/full")
    run = run_of(hard_case("dense", 12, safe=True).problem, PlanetLP(), BaBSR())
    with TraceWriter(Path("/dev/full"), run.problem, ABOUT) as writer:
        result = search(replace(run, observers=(writer,)))
        for _ in range(1000):  # more than the buffer holds
            writer.finish(result)
    assert figures(result)[:-1] == figures(search(run))[:-1]
    assert writer.trouble is not None
    assert "space" in writer.trouble


# Images


def test_the_image_is_what_the_clipped_box_lies_around() -> None:
    pixels = torch.rand(3, 5, 4, generator=generator(0), dtype=torch.float64)
    pixels[0, 0, 0], pixels[1, 1, 1] = 0.0, 1.0
    prop = image_property(pixels, 0, 0.1, 2, mean=[0.1, 0.2, 0.3], std=[0.5, 0.6, 0.7])
    expected = (pixels - torch.tensor([0.1, 0.2, 0.3])[:, None, None]) / torch.tensor([0.5, 0.6, 0.7])[:, None, None]
    assert np.allclose(centre_of(prop.boxes[0], (3, 5, 4)), expected.reshape(-1).numpy())


@pytest.mark.parametrize(
    ("shape", "expected"),
    [
        ((1, 16, 16), (1, 16, 16)),
        ((1, 3, 8, 9), (3, 8, 9)),
        ((784,), (1, 28, 28)),
        ((5,), None),
        ((2, 4, 4), None),
        ((3, 1, 1), None),
    ],
)
def test_which_inputs_are_pictures(shape: tuple[int, ...], expected: tuple[int, ...] | None) -> None:
    assert picture_shape(shape) == expected


def test_the_counterexample_and_its_image_are_in_the_trace(tmp_path: Path) -> None:
    path, problems = demo.load()
    example = next(one for one in problems if one.expected == "falsified")
    problem = load_problem(load_network(path), example.property)
    with TraceWriter(tmp_path / "t.jsonl", problem, ABOUT) as writer:
        result = solve(problem, Options(timeout=20), (writer,))
        writer.finish(result)
    trace = read_trace(tmp_path / "t.jsonl")
    assert trace.end is not None
    assert result.counterexample is not None
    assert np.allclose(trace.end["counterexample"]["x"], result.counterexample.x, atol=1e-6)
    assert np.allclose(trace.header["image"]["x"], example.image.reshape(-1), atol=1e-6)
    assert int(np.argmax(trace.header["image"]["y"])) == example.label


# Files


def lines_of(tmp_path: Path) -> list[str]:
    path = tmp_path / "good.jsonl"
    traced(path, run_of(hard_case("dense", 12, safe=True).problem, PlanetLP(), BaBSR()))
    return path.read_text().splitlines(keepends=True)


def test_a_torn_trace_is_read_as_far_as_it_goes(tmp_path: Path) -> None:
    lines, notes = lines_of(tmp_path), list[str]()
    torn = tmp_path / "torn.jsonl"
    torn.write_text("".join(lines[:-2]) + lines[-2][: len(lines[-2]) // 2])
    trace = read_trace(torn, notes.append)
    assert trace.end is None
    assert len(trace.steps) == len(lines) - 3
    assert [word in " ".join(notes) for word in ("middle of a line", "before its search")] == [True, True]


def test_a_torn_gzip_is_read_as_far_as_it_goes(tmp_path: Path) -> None:
    data = gzip.compress("".join(lines_of(tmp_path)).encode(), mtime=0)
    torn = tmp_path / "torn.jsonl.gz"
    torn.write_bytes(data[: 2 * len(data) // 3])
    assert len(read_trace(torn).steps) > 0


@pytest.mark.parametrize(
    ("change", "words"),
    [
        (lambda lines: [], "empty"),
        (lambda lines: ["[]\n"], "line 1"),
        (lambda lines: ['{"schema": "bough.record/1"}\n'], "bough.record/1"),
        (lambda lines: ['{"schema": "bough.trace/1"}\n'], "first line"),
        (lambda lines: [lines[0].replace('"first": 0', '"first": 3'), *lines[1:]], "first line"),
        (lambda lines: [*lines[:2], *lines[3:]], "line 3"),
        (lambda lines: [*lines[:2], "what\n", *lines[2:]], "line 3"),
        (lambda lines: [*lines[:3], lines[3].replace('"parent":[', '"parent":[99'), *lines[4:]], "line 4"),
        (lambda lines: [*lines[:2], lines[2].replace('"end":"', '"end":"q'), *lines[3:]], "line 3"),
    ],
)
def test_what_is_no_trace_is_refused(tmp_path: Path, change: Any, words: str) -> None:
    path = tmp_path / "bad.jsonl"
    path.write_text("".join(change(lines_of(tmp_path))))
    with pytest.raises(BadInput, match=words):
        read_trace(path)


def test_a_trace_of_an_older_bough_may_split_several_relus_at_once(tmp_path: Path) -> None:
    """One child for each of their signs, the last ReLU's in the lowest bit of its side."""
    header, *steps = lines_of(tmp_path)
    first, second = [json.loads(line) for line in steps if "nodes" in json.loads(line)][:2]
    roots = len(first["nodes"]["clause"])
    second["nodes"] = {"first": roots, "parent": [0], "split": [[2, 0]], "by": "r", "gain": [None]}
    second["nodes"] |= {"bound": [1, 2, 3, 4], "end": "cccc"}
    (tmp_path / "old.jsonl").write_text("".join([header, *(json.dumps(line) + "\n" for line in (first, second))]))
    nodes = read_trace(tmp_path / "old.jsonl").nodes
    assert nodes.split[roots:] == [(2, 0)] * 4
    assert (nodes.parent[roots:], nodes.side[roots:], nodes.depth[roots:]) == ([0] * 4, [0, 1, 2, 3], [2] * 4)


def test_a_missing_trace_and_folder(tmp_path: Path) -> None:
    with pytest.raises(BadInput, match="cannot read"):
        read_trace(tmp_path / "none.jsonl")
    problem = hard_case("dense", 5, safe=True).problem
    with pytest.raises(OutputError, match="cannot write"), TraceWriter(tmp_path / "no" / "t", problem, ABOUT):
        pass


# The command line


@pytest.fixture
def instance(tmp_path: Path) -> list[str]:
    from bough.problem.vnnlib import write_property

    path, problems = demo.load()
    (tmp_path / "p.vnnlib").write_text(write_property(problems[1].property))
    return ["verify", str(path), str(tmp_path / "p.vnnlib"), "--timeout", "20", "--threads", "1"]


def test_verify_writes_a_trace(tmp_path: Path, instance: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    assert main([*instance, "--trace", str(tmp_path / "t.jsonl.gz"), "--trace-limit", "3"]) == 0
    assert "--trace-limit" in capsys.readouterr().err
    trace = read_trace(tmp_path / "t.jsonl.gz")
    assert trace.stopped
    assert (trace.header["bounder"], trace.header["branching"]) == ("dual", "kfsb")
    assert trace.end is not None
    assert trace.end["verdict"] == "verified"
    with gzip.open(tmp_path / "t.jsonl.gz", "rt") as file:
        assert json.loads(file.readline())["schema"] == "bough.trace/1"


@pytest.mark.parametrize(
    ("extra", "words"),
    [
        (["--trace-limit", "5"], "give --trace"),
        (["--trace", "t.jsonl", "--trace-limit", "-1"], "0 or more"),
        (["--trace", "no/such/t.jsonl"], "does not exist"),
    ],
)
def test_traces_that_cannot_be(
    tmp_path: Path, instance: list[str], extra: list[str], words: str, capsys: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    assert main([*instance, *extra]) == 2
    assert words in capsys.readouterr().err
