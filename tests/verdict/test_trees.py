"""Bounds by trees of splits in a certificate: true whatever the patterns hold, and refused where these leave a gap."""

import io
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from soundness.second import Opinion, covers
from tests.support import hard_case, relu_inputs_at, samples, sequential, simple_problem
from tests.verdict.certificates import chunks_of, judged, made
from torch import Tensor

from bough.errors import CertificateError
from bough.network import walk
from bough.problem.problem import Problem
from bough.problem.property import Property
from bough.verdict.certificate import MAGIC, Lemma, TreeLemma, framed, read
from bough.verdict.check import Outcome, check
from bough.verdict.check.claims import Claims

Pattern = dict[int, int]  # ReLU -> 1 where it passes, 0 where it is blocked
SEARCHES = [("dense", 0), ("dense", 5), ("convolutional", 20), ("residual", 12), ("pooled", 4), ("padded", 4)]


def lemma_of(
    sides: Sequence[int],
    patterns: Sequence[Pattern],
    neurons: int,
    head: tuple[int, int] = (0, 0),
    rows: int = 0,
    random: np.random.Generator | None = None,
) -> TreeLemma:
    """A chunk of these patterns, with numbers at random; or with slopes of 0, and no multipliers or weights."""
    splits = [split for pattern in patterns for split in sorted(pattern.items())]
    signs, weights = np.zeros(len(splits)), np.zeros((len(patterns), rows))
    slopes = np.zeros((len(patterns), neurons), np.uint8)
    if random is not None:
        signs = random.standard_normal(len(splits)) ** 3
        weights = random.random(weights.shape) ** 3
        slopes = random.integers(256, size=slopes.shape).astype(np.uint8)
    return TreeLemma(
        head=np.array(head),
        sides=np.array(sides, np.int64),
        vector=np.arange(len(patterns)),
        splits=np.array([len(pattern) for pattern in patterns], np.int64),
        literals=np.array([2 * neuron + side for neuron, side in splits], np.int64),
        signs=signs,
        weights=weights,
        slots=np.arange(neurons),
        slopes=slopes,
    )


def grown(random: np.random.Generator, neurons: int, pattern: Pattern) -> list[Pattern]:
    """The leaves of a tree at random: any ReLU may be split, in any layer, the one that is bounded, too."""
    left = np.setdiff1d(np.arange(neurons), list(pattern))
    if len(pattern) > 3 or random.random() < 0.3:
        return [pattern]
    neuron = int(random.choice(left))
    return [leaf for side in (0, 1) for leaf in grown(random, neurons, {**pattern, neuron: side})]


def often_unsafe(problem: Problem) -> Problem:
    """The problem with offsets for which a part of every box is unsafe, by each clause."""
    clauses = []
    for clause in problem.clauses:
        margins = clause.margins(outputs(problem, samples(problem.property.boxes[clause.box], 400)))
        clauses.append(replace(clause, offsets=clause.offsets + float(margins.quantile(0.3))))
    return replace(problem, property=Property(problem.property.boxes, tuple(clauses)))


def outputs(problem: Problem, x: Tensor) -> Tensor:
    return walk.evaluate(problem.network, x)


@given(st.sampled_from(["dense", "convolutional", "residual", "pooled"]), st.integers(0, 5), st.integers(0, 1 << 30))
@settings(max_examples=60)
def test_whatever_patterns_hold_their_bounds_are_true(kind, seed, noise):
    """Splits, slopes, multipliers and weights at random, one chunk upon another, over boxes and at unsafe points."""
    problem, random = often_unsafe(hard_case(kind, seed, safe=False).problem), np.random.default_rng(noise)
    claims, n = Claims(problem.network, problem.property), problem.network.neurons
    for _ in range(4):
        clause = int(random.integers(-1, len(problem.clauses)))
        box = problem.clauses[max(clause, 0)].box
        trees = {int(side): grown(random, n, {}) for side in random.choice(2 * n, size=n, replace=False)}
        named = [(side, pattern) for side, patterns in trees.items() for pattern in patterns]
        order = random.permutation(len(named)).tolist()
        sides, patterns = zip(*(named[k] for k in order), strict=True)
        claims.learn(lemma_of(sides, patterns, n, (box, clause + 1), claims.shape.rows * (clause >= 0), random))
    for k, whole in enumerate(problem.property.boxes):
        x = samples(whole, 400, seed)
        z = relu_inputs_at(problem.network, x.numpy())
        regions = {-1: claims.root(k)} | {c: claims.of_clause(c) for c, d in enumerate(problem.clauses) if d.box == k}
        for c, region in regions.items():
            held = z if c < 0 else z[(problem.clauses[c].margins(outputs(problem, x)) <= 0).numpy()]
            assert (held >= region.lower - 1e-9).all()
            assert (held <= region.upper + 1e-9).all()


COVERED = [{0: 1}, {0: 0, 1: 1}, {0: 0, 1: 0, 2: 1}, {0: 0, 1: 0, 2: 0}]
WHOLE: list[Pattern] = [{}]
GAPS = {
    **{f"without pattern {k}": COVERED[:k] + COVERED[k + 1 :] for k in range(len(COVERED))},
    **{f"pattern {k} twice": [*COVERED[:k], COVERED[k - 1], *COVERED[k + 1 :]] for k in range(len(COVERED))},
    "a flipped sign": [{0: 1}, {0: 1, 1: 1}, *COVERED[2:]],
    "another ReLU": [{0: 1}, {0: 0, 3: 1}, *COVERED[2:]],
    "one half of a pattern": [{0: 1, 5: 1}, *COVERED[1:]],
    "a single pattern": [{4: 0}],
}


@pytest.mark.parametrize("patterns", GAPS.values(), ids=list(GAPS))
def test_patterns_that_leave_a_gap_are_refused(patterns, tmp_path: Path):
    case, data = made("dense", 0, "dual")
    n = case.problem.network.neurons
    claims = Claims(case.problem.network, case.problem.property)
    before = claims.root(0)
    for sides, others in (([], []), ([3] * len(COVERED), COVERED), ([2 * n - 1], WHOLE)):
        # Other sides may be covered, and lend nothing.
        lemma = lemma_of([*sides, *[2 * n - 2] * len(patterns)], [*others, *patterns], n)
        with pytest.raises(CertificateError, match=f"bound ReLU {n - 1} from one side leave a gap"):
            claims.learn(lemma)
        assert claims.root(0) is before
        first, *rest = chunks_of(data, tmp_path / "proof")
        assert judged(case.problem, tmp_path / "proof", [first, lemma, *rest]).outcome is Outcome.INVALID
    assert not covers(patterns)
    assert covers(COVERED)
    claims.learn(lemma_of([2 * n - 2] * len(COVERED), COVERED[::-1], n))


def test_a_pattern_that_contradicts_known_bounds_is_empty():
    """Where a ReLU always passes, what holds where it is blocked need not be bounded; and nothing follows from that."""
    network = sequential(([[1.0]], [2.0]), ([[1.0]], [-2.5]), ([[1.0]], [0.0]))  # x + 2, then x - 0.5
    problem = simple_problem(network, [-1.0], [1.0], [[1.0]], [0.0])
    claims = Claims(network, problem.property)
    lemma = lemma_of([2, 2, 3, 3], [{0: 0}, {0: 1}] * 2, 2)
    proved = claims.patterns(lemma)
    assert proved[[0, 2]].tolist() == [np.inf, np.inf]
    np.testing.assert_allclose(proved[[1, 3]], [-1.5, -0.5], atol=1e-9)
    learnt = claims.tried(lemma)
    np.testing.assert_allclose([learnt.lower[0, 1], learnt.upper[0, 1]], [-1.5, 0.5], atol=1e-9)
    assert not learnt.empty.any()


def test_a_tree_proves_what_one_relaxation_does_not():
    """max(x, 0) - max(x, 0) is 0, which slopes cannot show; splits with their multipliers do."""
    network = sequential(([[1.0], [1.0]], [0.0, 0.0]), ([[1.0, -1.0]], [0.0]), ([[1.0]], [0.0]))
    problem = simple_problem(network, [-1.0], [1.0], [[1.0]], [0.0])
    claims = Claims(network, problem.property)
    patterns: list[Pattern] = [{0: 0, 1: 0}, {0: 0, 1: 1}, {0: 1, 1: 0}, {0: 1, 1: 1}]
    lemma = lemma_of([4] * 4, patterns, 3)
    assert claims.root(0).lower[0, 2] == pytest.approx(-0.5)
    assert claims.patterns(lemma).min() == pytest.approx(-1.0)
    learnt = claims.tried(replace(lemma, signs=np.array([0.0, 0.0, 1.0, 0.0, 1.0, 0.0, 0.0, 0.0])))
    assert learnt.lower[0, 2] == pytest.approx(0.0, abs=1e-9)
    assert learnt.upper[0, 2] == claims.root(0).upper[0, 2]


def test_trees_of_a_clause_serve_that_clause_only():
    case, data = made("dense", 5, "dual", relu_bounds="trees")
    problem = case.problem
    claims = Claims(problem.network, problem.property)
    for chunk in chunks_of_kind(data):
        clause = int(chunk.head[1]) - 1
        box = int(chunk.head[0])
        others = [c for c in range(len(problem.clauses)) if c != clause]
        before = [claims.root(box).lower, *(claims.of_clause(c).upper for c in others)]
        claims.learn(chunk)
        if clause >= 0 and isinstance(chunk, TreeLemma):
            after = [claims.root(box).lower, *(claims.of_clause(c).upper for c in others)]
            assert all(np.array_equal(a, b) for a, b in zip(before, after, strict=True))


def chunks_of_kind(data: bytes) -> list[Lemma | TreeLemma]:
    """The chunks that bound ReLUs, in order."""
    return [chunk for chunk in read(io.BytesIO(data)) if isinstance(chunk, Lemma | TreeLemma)]


@pytest.mark.parametrize(("kind", "seed"), SEARCHES)
def test_certificates_by_trees_are_accepted(kind, seed, tmp_path: Path):
    case, data = made(kind, seed, "dual", relu_bounds="trees")
    path = tmp_path / "proof"
    chunks = chunks_of(data, path)
    trees = [chunk for chunk in chunks if isinstance(chunk, TreeLemma)]
    assert max(int(chunk.splits.max()) for chunk in trees) >= 2
    report = check(case.problem, path)
    assert report.outcome is Outcome.VALID, report
    assert check(case.problem, path, exact=True).outcome is Outcome.VALID
    # The second opinion finds the same bounds: those that the leaves stand on.
    claims, second = Claims(case.problem.network, case.problem.property), Opinion(case.problem)
    for chunk in chunks:
        if isinstance(chunk, Lemma | TreeLemma):
            claims.learn(chunk)
    for k, region in second.learnt([c for c in chunks if isinstance(c, Lemma | TreeLemma)]).items():
        np.testing.assert_allclose(claims.of_clause(k).lower, region.lower.numpy(), atol=1e-6)
        np.testing.assert_allclose(claims.of_clause(k).upper, region.upper.numpy(), atol=1e-6)
    # A file that ends in the middle of a tree is incomplete.
    at = len(MAGIC) + sum(len(framed(k, chunk)) for k, chunk in enumerate(chunks[: chunks.index(trees[0])]))
    for more in (1, 20, 40):
        path.write_bytes(data[: at + more])
        assert check(case.problem, path).outcome is Outcome.INCOMPLETE


SHAPES = {
    "a side of no ReLU": lambda t, n: replace(t, sides=t.sides * 0 + 2 * n),
    "more sides than patterns": lambda t, _: replace(t, sides=np.append(t.sides, 0)),
    "slopes in no row": lambda t, _: replace(t, vector=t.vector + len(t.slopes)),
    "more splits than it counts": lambda t, _: replace(t, literals=np.append(t.literals, 0)),
    "a split of no ReLU": lambda t, n: replace(t, literals=np.where(t.literals >= 0, 2 * n, 0)),
    "two splits of one ReLU": lambda t, _: replace(t, literals=t.literals * 0),
    "a multiplier that is no number": lambda t, _: replace(t, signs=t.signs * np.nan),
    "a weight below 0": lambda t, _: replace(t, weights=t.weights - 1),
    "weights of no clause": lambda t, _: replace(t, head=np.array([0, 0])),
    "no such box": lambda t, _: replace(t, head=np.array([7, 0])),
    "no such clause": lambda t, _: replace(t, head=np.array([0, 7])),
    "no head": lambda t, _: replace(t, head=np.zeros(0, np.int64)),
    "slots in no order": lambda t, _: replace(t, slots=t.slots[::-1]),
    "fewer slopes than slots": lambda t, _: replace(t, slopes=t.slopes[:, 1:]),
}


@pytest.mark.parametrize("change", SHAPES.values(), ids=list(SHAPES))
def test_trees_that_do_not_fit_are_refused(change):
    problem = hard_case("dense", 0, safe=True).problem
    claims, n = Claims(problem.network, problem.property), problem.network.neurons
    head = (problem.clauses[0].box, 1)
    patterns: list[Pattern] = [{0: 0, 1: 0}, {0: 0, 1: 1}, {0: 1, 1: 0}, {0: 1, 1: 1}]
    lemma = lemma_of([2 * n - 1] * 4, patterns, n, head, claims.shape.rows)
    claims.learn(lemma)
    with pytest.raises(CertificateError, match="do not fit the network"):
        claims.learn(change(lemma, n))
