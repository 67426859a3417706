"""A certificate keeps a few patterns of the trees that grew: they cover what the trees do, and hardly prove less."""

import itertools
from collections import defaultdict
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from soundness.second import covers, splits_of
from tests.support import KINDS, ascend_in_float64, box_around, generator, hard_case
from tests.verdict.certificates import EAGER, certified

from bough.bounds.ascent import Ascent, Climber, Duals, Functionals
from bough.bounds.base import deepest_root
from bough.bounds.dual import DualAscent, DualSession
from bough.bounds.intermediate import TightBounds
from bough.bounds.reduced import reduce
from bough.bounds.trees import TreeLeaves, Trees
from bough.budget import Deadline, OutOfTime
from bough.search.certify import Certifier
from bough.search.patterns import Patterns, patterns_of
from bough.verdict.certificate import Chunk, Lemma, Torn, TreeLemma, read
from bough.verdict.check import Outcome, check
from bough.verdict.check.claims import Claims
from bough.verdict.result import Verdict

NEVER = Deadline.never()


def trees_of(kind: str, seed: int, threshold: float) -> tuple[TreeLeaves, TreeLeaves, Patterns]:
    """Trees of the outputs of a random network, from below: leaves, what was split, and what is kept of both.

    Known before is a little less than the trees' roots.
    """
    g = generator(seed)
    network = KINDS[kind](g)
    region = TightBounds(refresh=False).at_root(network, box_around(g, network.inputs), NEVER)
    net = reduce(network, region).to(torch.device("cpu"), torch.float64)
    n, count = len(net.neurons), 2 * network.outputs
    rows = torch.cat([torch.eye(network.outputs), -torch.eye(network.outputs)]).double()[:, None]
    none = torch.zeros(count, n, dtype=torch.int8)
    functionals = Functionals(rows, torch.full((count, 1), threshold).double(), none)
    climber = Climber(net, capture=False)
    start = Duals(torch.full((count, n), 0.5).double(), torch.zeros(count, 1).double())
    split: list[TreeLeaves] = []
    ascended = Ascent(steps=8).run(climber, functionals, start)
    leaves = Trees(rounds=6, leaves=24).grown(climber, functionals, ascended, split=split)
    whole = TreeLeaves.concatenate([leaves, *split])
    known = (ascended.value - 0.1).numpy()
    bounds = known[::2], np.maximum(-known[1::2], known[::2] + 0.1)
    return leaves, whole, patterns_of((0, 0), np.arange(count), net.neurons, none, whole, bounds)


def least(values: Any, owners: Any) -> dict[int, float]:
    by_owner = defaultdict(list)
    for value, owner in zip(values.tolist(), owners.tolist(), strict=True):
        by_owner[owner].append(value)
    return {owner: min(some) for owner, some in by_owner.items()}


@pytest.mark.parametrize("threshold", [1e3, 2.0, 0.0])
@pytest.mark.parametrize("kind", list(KINDS))
def test_few_patterns_cover_what_trees_do(kind, threshold, monkeypatch):
    """Where patterns cost nothing, their bound is the trees' own; where they cost something, fewer are kept."""
    ascend_in_float64(monkeypatch)
    sizes = []
    for cost in (0.0, 1e-3, 1e-1):
        monkeypatch.setattr("bough.search.patterns.PATTERN_GAIN", cost)
        count = 0
        for seed in range(3):
            leaves, whole, patterns = trees_of(kind, seed, threshold)
            lemma = patterns.lemma
            count += len(lemma)
            assert len(lemma) <= len(leaves.owner)
            grown, kept = least(leaves.value, leaves.owner), least(patterns.value, lemma.sides)
            for side, bound in kept.items():
                members = np.flatnonzero(lemma.sides == side).tolist()
                assert covers([{a >> 1: a & 1 for a, _ in splits_of(lemma, k)} for k in members])
                assert bound >= float(whole.value[whole.owner == side].min())
                assert (bound > 0) >= (grown[side] > 0)
                assert cost or bound >= min(grown[side], abs(grown[side]) / 2)
            assert set(kept) >= {side for side, bound in grown.items() if bound > 0 or not cost}
        sizes.append(count)
    assert sizes[0] >= sizes[1] >= sizes[2]
    assert sizes[0] > sizes[2] or threshold == 0.0


def test_slopes_are_shared_by_a_side_or_each_patterns_own(monkeypatch):
    ascend_in_float64(monkeypatch)
    monkeypatch.setattr("bough.search.patterns.PATTERN_GAIN", 0.0)
    _, _, patterns = trees_of("dense", 1, 1e3)
    lemma = patterns.lemma
    assert len(lemma.slopes) == len(patterns.sides) < len(lemma)
    first = int(patterns.sides[0])
    mixed = patterns.with_own_slopes(np.array([0]))
    own = patterns.of == 0
    assert np.array_equal(mixed.lemma.slopes[mixed.lemma.vector[own]], patterns.own[own])
    assert np.array_equal(mixed.lemma.slopes[mixed.lemma.vector[~own]], lemma.slopes[lemma.vector[~own]])
    alone = patterns.of_sides(np.array([0])).with_own_slopes().of_sides(np.array([0]))
    assert set(alone.lemma.sides.tolist()) == {first}
    assert len(alone.lemma.slopes) <= own.sum()
    monkeypatch.setattr("bough.search.patterns.MOST_LEAVES", int(own.sum()))
    parts = list(patterns.parts())
    assert len(parts) > 1
    assert sum(len(part.lemma) for part in parts) <= len(lemma)
    assert all(len(part.lemma) <= own.sum() for part in parts)


@pytest.mark.parametrize(("kind", "seed"), [("dense", 5), ("residual", 12), ("pooled", 4), ("padded", 4)])
def test_the_search_stands_on_no_more_than_the_certificate_proves(kind, seed, tmp_path: Path):
    """What a session takes for known after its root, against what a reader of the file derives."""
    problem, path = hard_case(kind, seed, safe=True).problem, tmp_path / "proof"
    certifier = Certifier(problem, path)
    session = DualAscent(intermediate=EAGER).prepare(problem, certifier)
    bounds = deepest_root(session, 0.0, NEVER).domains.bounds
    certifier.close()
    chunks: list[Chunk] = []
    with path.open("rb") as file, pytest.raises(Torn):
        chunks.extend(read(file))
    claims, trees = Claims(problem.network, problem.property), 0
    for chunk in chunks:
        if isinstance(chunk, Lemma | TreeLemma):
            claims.learn(chunk)
            trees += isinstance(chunk, TreeLemma)
    assert trees
    for k in range(len(problem.clauses)):
        known = claims.of_clause(k)
        assert (bounds.lower[k].numpy() <= known.lower[0] + 1e-12).all()
        assert (bounds.upper[k].numpy() >= known.upper[0] - 1e-12).all()


@pytest.mark.parametrize(("owner", "method"), [(Trees, "_children"), (DualSession, "_bound")])
@pytest.mark.parametrize("call", [1, 2, 4, 7])
def test_a_deadline_in_the_middle_of_a_stage_leaves_a_sound_certificate(
    owner, method, call, tmp_path: Path, monkeypatch
):
    problem, calls, original = hard_case("dense", 5, safe=True).problem, itertools.count(1), getattr(owner, method)

    def out_of_time(*arguments: Any) -> Any:
        if next(calls) == call + (method == "_bound"):
            raise OutOfTime
        return original(*arguments)

    monkeypatch.setattr(owner, method, out_of_time)
    result = certified(problem, tmp_path / "proof", "dual", intermediate=EAGER, timeout=60)
    report = check(problem, tmp_path / "proof")
    if method == "_children":
        assert result.verdict is Verdict.VERIFIED
    assert report.outcome is (Outcome.VALID if result.verdict is Verdict.VERIFIED else Outcome.INCOMPLETE)
