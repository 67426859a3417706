"""`bough check` on certificates of whole searches: sound ones are accepted, in float64 and in rational arithmetic; what
is changed is refused, or is still a proof, and of an unsafe property nothing ever is.
"""

import contextlib
import io
import math
import os
import signal
import subprocess
import sys
import time
from collections import Counter
from dataclasses import replace
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as arrays
from tests.support import generator, hard_case, problem, sequential, simple_problem, with_ball
from tests.verdict.certificates import certified, chunks_of, judged, made, question, unsafe_twin, write

from bough.api import solve
from bough.cli import main
from bough.errors import BadInput, CertificateError
from bough.options import Options
from bough.problem.onnx_writer import write_network
from bough.problem.problem import Problem
from bough.problem.property import Box, Clause, Property
from bough.search.leaves import take
from bough.verdict.aptp import as_aptp
from bough.verdict.certificate import (
    DIRECT,
    FINE,
    LOCAL,
    MAGIC,
    SLOPES,
    Chunk,
    Leaves,
    Lemma,
    Point,
    ProblemHashes,
    Torn,
    TreeLemma,
    read,
)
from bough.verdict.check import Outcome, check
from bough.verdict.check.claims import Claims
from bough.verdict.result import Verdict

CASES = [(kind, seed) for kind in ("dense", "convolutional", "residual") for seed in (0, 3)]
CASES += [("pooled", 1), ("pooled", 3), ("padded", 1)]


@pytest.mark.parametrize("bounds", ["dual", "lp", "linear"])
@pytest.mark.parametrize(("kind", "seed"), CASES)
def test_certificates_of_searches_are_accepted(kind, seed, bounds, tmp_path: Path):
    case, data = made(kind, seed, bounds)
    path = tmp_path / "proof"
    path.write_bytes(data)
    report = check(case.problem, path)
    assert report.outcome is Outcome.VALID, report
    assert report.verdict == "verified"
    if report.leaves < 100:
        exact = check(case.problem, path, exact=True)
        assert exact.outcome is Outcome.VALID, exact
        assert exact.leaves == report.leaves


def test_a_certificate_costs_few_branches(tmp_path: Path):
    case = hard_case("residual", 1, safe=True)
    plain = solve(case.problem, Options(bounds="dual", attack=False))
    proved = certified(case.problem, tmp_path / "proof", "dual")
    assert proved.branches <= 2 * plain.branches
    assert proved.notes["certificate_leaves"] >= 1
    assert proved.notes["certificate_bytes"] == (tmp_path / "proof").stat().st_size


@pytest.mark.parametrize("bounds", ["dual", "lp", "linear"])
def test_a_counterexample_is_replayed(bounds, tmp_path: Path):
    case, path = hard_case("dense", 1, safe=False), tmp_path / "proof"
    result = certified(case.problem, path, bounds)
    assert result.verdict is Verdict.FALSIFIED
    report = check(case.problem, path)
    assert report.outcome is Outcome.VALID
    assert "falsified" in report.reason
    chunks = chunks_of(path.read_bytes(), path)
    assert isinstance(chunks[-1], Point)
    box = case.problem.property.boxes[int(chunks[-1].box[0])]
    for x in (box.upper.numpy() + 1, (box.lower + box.upper).numpy() * np.nan, np.zeros(99)):
        write(path, [*chunks[:-1], replace(chunks[-1], x=x)], "falsified")
        assert check(case.problem, path).outcome is Outcome.INVALID
    write(path, chunks[:-1], "falsified")
    assert check(case.problem, path).outcome is Outcome.INVALID
    safe = hard_case("dense", 1, safe=True)
    write(path, [question(safe.problem), chunks[-1]], "falsified")
    assert check(safe.problem, path).outcome is Outcome.INVALID


def sided(upper: float, strict: bool | None) -> Problem:
    """y = relu(x) from 0 to `upper`, unsafe from 1 on; `strict` says whether the upper limit is excluded."""
    sides = () if strict is None else (None, torch.tensor([False]), torch.tensor([strict]))
    box = Box(torch.zeros(1).double(), torch.tensor([upper]).double(), *sides)
    unsafe = Clause(0, -torch.ones(1, 1).double(), -torch.ones(1).double(), (False,))
    return problem(sequential(([[1.0]], [0.0]), ([[1.0]], [0.0])), [box], [unsafe])


def test_a_counterexample_on_a_strict_side_is_refused(tmp_path: Path):
    path = tmp_path / "proof"
    closed, strict = sided(1.0, strict=None), sided(1.0, strict=True)
    assert certified(closed, path, "dual").verdict is Verdict.FALSIFIED
    assert check(closed, path).outcome is Outcome.VALID
    assert "another property" in check(strict, path).reason
    chunks = chunks_of(path.read_bytes(), path)
    write(path, [question(strict), chunks[-1]], "falsified")
    report = check(strict, path)
    assert report.outcome is Outcome.INVALID
    assert "strict side" in report.reason
    result = certified(strict, path, "dual")
    assert result.verdict is Verdict.UNKNOWN
    assert "strict" in result.reason
    assert check(strict, path).outcome is Outcome.INCOMPLETE
    assert certified(sided(2.0, strict=True), path, "dual").verdict is Verdict.FALSIFIED
    assert check(sided(2.0, strict=True), path).outcome is Outcome.VALID
    assert certified(sided(0.5, strict=True), path, "dual").verdict is Verdict.VERIFIED
    assert check(sided(0.5, strict=True), path).outcome is Outcome.VALID


def test_the_hash_of_a_question_tells_strict_from_closed():
    questions = [sided(1.0, strict) for strict in (None, False, True)]
    hashes = [ProblemHashes.of(p.network, p.property).property.tobytes() for p in questions]
    assert hashes[0] == hashes[1] != hashes[2]
    # Of before boxes could be strict: certificates of then are still about the same question.
    assert hashes[0].hex() == "f100e34097ae3dd662375effcf73a8200e62bfacf88ad7954f5514f3a87976c5"


def test_an_empty_set_is_proved_without_leaves(tmp_path: Path):
    path = tmp_path / "proof"
    box = Box(torch.ones(1).double(), torch.ones(1).double(), None, torch.tensor([True]))
    empty = replace(sided(1.0, strict=None), property=Property((box,), sided(1.0, strict=None).property.clauses))
    result = certified(empty, path, "dual")
    assert result.verdict is Verdict.VERIFIED
    assert "empty" in result.reason
    report = check(empty, path)
    assert report.outcome is Outcome.VALID
    assert "empty" in report.reason
    with pytest.raises(BadInput, match="empty"):
        as_aptp(empty, path)
    closed = replace(empty, property=Property((Box(box.lower, box.upper),), empty.property.clauses))
    write(path, [question(closed)])
    assert check(closed, path).outcome is Outcome.INVALID
    write(path, [question(empty), Point(np.ones(1), np.zeros(1))], "falsified")
    assert check(empty, path).outcome is Outcome.INVALID


def test_another_network_and_another_property_are_named(tmp_path: Path):
    case, data = made("dense", 0, "dual")
    path = tmp_path / "proof"
    path.write_bytes(data)
    other = made("dense", 2, "dual")[0].problem
    assert "another network" in check(other, path).reason
    clauses = tuple(Clause(c.box, c.coefficients, c.offsets + 1e-9, c.strict) for c in case.problem.property.clauses)
    moved = replace(case.problem, property=Property(case.problem.property.boxes, clauses))
    report = check(moved, path)
    assert report.outcome is Outcome.INVALID
    assert "another property" in report.reason


def test_a_search_that_ends_early_leaves_an_incomplete_certificate(tmp_path: Path):
    case, path = hard_case("dense", 1, safe=True), tmp_path / "proof"
    result = certified(case.problem, path, "linear", most_bounds=200)
    assert result.verdict is Verdict.TIMEOUT
    report = check(case.problem, path)
    assert report.outcome is Outcome.INCOMPLETE
    assert report.leaves > 0
    assert report.outcome.exit_status == 3


def test_what_cannot_be_certified_is_refused_with_a_sentence(tmp_path: Path):
    path = str(tmp_path / "proof")
    for options in (
        {"method": "mip-planet"},
        {"gap": 0.1},
        {"branching": "shadow"},
        {"bounds": "lp", "intermediate": "tight"},
        {"bounds": "dual", "intermediate": "paper"},
    ):
        with pytest.raises(BadInput, match=r"certif|proof"):
            Options(certificate=path, **options)
    case = hard_case("dense", 0, safe=True)
    ball = with_ball(generator(0), case.problem.property.boxes[0], 2)
    balled = problem(case.problem.network, [ball], [replace(c, box=0) for c in case.problem.property.clauses])
    with pytest.raises(BadInput, match="ball"):
        solve(balled, Options(certificate=path))


def test_exact_arithmetic_is_for_small_networks(tmp_path: Path):
    wide = sequential((np.eye(2100), np.zeros(2100)), (np.ones((1, 2100)), [1.0]))
    with pytest.raises(CertificateError, match="--exact"):
        check(simple_problem(wide, np.zeros(2100), np.ones(2100), [[1.0]], [0.0]), tmp_path / "proof", exact=True)


def test_exact_arithmetic_goes_beyond_float64(tmp_path: Path):
    """Weights of 1e200 twice give numbers of 1e400, as right as any; float64 rounded outward has none."""
    network = sequential(([[1e200], [-1e200]], [0, 0]), ([[1e200, 1e200]], [1.0]))
    above, below = (simple_problem(network, [-1.0], [1.0], [[sign]], [0.0]) for sign in (1.0, -1.0))
    for effort in range(3):
        leaves = local_leaves([0, 0], [1, 1], [0, 1], effort)
        report = judged(above, tmp_path / "proof", [question(above), leaves], exact=True)
        assert report.outcome is Outcome.VALID, report
        assert judged(above, tmp_path / "proof", [question(above), leaves]).outcome is Outcome.INVALID
        report = judged(below, tmp_path / "proof", [question(below), leaves], exact=True)
        assert report.outcome is Outcome.INVALID
        assert report.reason.endswith("its bound is below 0, beyond float64")


def test_exact_arithmetic_needs_finite_weights(tmp_path: Path):
    network = sequential(([[math.inf]], [0.0]), ([[1.0]], [1.0]))
    with pytest.raises(CertificateError, match="weight beyond float64"):
        check(simple_problem(network, [0.0], [1.0], [[1.0]], [0.0]), tmp_path / "proof", exact=True)


# Changed certificates


def mutated(chunks: list[Chunk], random: np.random.Generator) -> tuple[str, list[Chunk]]:
    """One change in one chunk that keeps all checksums sound; its name."""
    kind = random.choice(["leaves", "leaves", "leaves", "lemma", "chunks"])
    places = [k for k, c in enumerate(chunks) if isinstance(c, Leaves if kind == "leaves" else Lemma | TreeLemma)]
    if kind == "chunks" or not places:
        return _other_chunks(chunks, random)
    at = int(random.choice(places))
    chunk = chunks[at]
    if isinstance(chunk, Leaves):
        name, new = _other_leaves(chunk, random)
    else:
        assert isinstance(chunk, Lemma | TreeLemma)
        name, new = _other_lemma(chunk, random)
    return name, [*chunks[:at], new, *chunks[at + 1 :]]


def _other_chunks(chunks: list[Chunk], random: np.random.Generator) -> tuple[str, list[Chunk]]:
    at = 1 + int(random.integers(len(chunks) - 1))
    if random.random() < 0.5:
        return "dropped chunk", chunks[:at] + chunks[at + 1 :]
    other = 1 + int(random.integers(len(chunks) - 1))
    swapped = list(chunks)
    swapped[at], swapped[other] = chunks[other], chunks[at]
    return "swapped chunks", swapped


def _changed(array: np.ndarray, random: np.random.Generator, values: list[float]) -> np.ndarray:
    new = np.array(array, dtype=array.dtype)
    if new.size:
        flat = new.reshape(-1)
        at = int(random.integers(flat.size))
        with np.errstate(all="ignore"):
            flat[at] = np.array(random.choice(values)).astype(array.dtype)
    return new


def _other_leaves(leaves: Leaves, random: np.random.Generator) -> tuple[str, Chunk]:
    numbers = [0.0, -1.0, 0.5, 1.0, 1e3, -1e3, 1e300, np.nan, np.inf]
    name = str(
        random.choice(
            [
                "flipped sign",
                "dropped leaf",
                "literal",
                "weights",
                "signs",
                "coarse",
                "fine",
                "kind",
                "vector",
                "clause",
                "halves",
                "times",
            ]
        )
    )
    if name == "flipped sign" and len(leaves.literals):
        literals = leaves.literals.copy()
        literals[int(random.integers(len(literals)))] ^= 1
        return name, replace(leaves, literals=literals)
    if name == "flipped sign":
        if not len(leaves.halves):
            return "nothing to flip", leaves
        halves = leaves.halves.copy()
        halves[int(random.integers(len(halves)))] ^= np.uint64(1)
        return name, replace(leaves, halves=halves)
    if name == "dropped leaf":
        left = np.delete(np.arange(len(leaves)), int(random.integers(len(leaves))))
        return name, take(leaves, left)
    if name in ("weights", "signs", "fine"):
        return name, replace(leaves, **{name: _changed(getattr(leaves, name), random, numbers)})
    whole = [float(v) for v in (0, 1, 2, 3, 4, 5, 7, 12, 255)]
    field = {"literal": "literals", "flipped sign": "literals", "dropped leaf": "kind"}.get(name, name)
    return name, replace(leaves, **{field: _changed(getattr(leaves, field), random, whole)})


def _other_lemma(lemma: Lemma | TreeLemma, random: np.random.Generator) -> tuple[str, Chunk]:
    name = str(random.choice(list(vars(lemma))))
    real = name in ("weights", "signs")
    values = [-1.0, 0.0, 1e3, np.nan, 1e300] if real else [0.0, 1.0, 2.0, 3.0, 200.0, 255.0]
    change: dict[str, Any] = {name: _changed(getattr(lemma, name), random, values)}
    return f"lemma {name}", replace(lemma, **change)


# Kind, seed, bounds, ReLU bounds, and how many changes: a thousand in all.
SMALL = [
    ("convolutional", 0, "dual", "auto", 250),
    ("residual", 1, "dual", "auto", 100),
    ("dense", 5, "dual", "trees", 60),
    ("dense", 3, "lp", "auto", 440),
    ("dense", 2, "linear", "auto", 150),
    ("pooled", 3, "linear", "auto", 60),
]


@pytest.mark.parametrize(("kind", "seed", "bounds", "relu_bounds", "count"), SMALL)
def test_changed_certificates_are_refused_or_still_proofs(kind, seed, bounds, relu_bounds, count, tmp_path: Path):
    case, data = made(kind, seed, bounds, relu_bounds=relu_bounds)
    path, random, tally = tmp_path / "proof", np.random.default_rng(seed), Counter[str]()
    chunks = chunks_of(data, path)
    for _ in range(count):
        name, changed = mutated(chunks, random)
        report = judged(case.problem, path, changed)
        assert report.outcome is not Outcome.INCOMPLETE
        tally[f"{name}: {report.outcome.value}"] += 1
        if name in ("flipped sign", "dropped leaf"):
            assert report.outcome is Outcome.INVALID, name
        if report.outcome is Outcome.VALID:
            # Another proof, then: every linear piece has to be in a leaf, and rational arithmetic says the same.
            assert every_piece_is_in_a_leaf(case, changed)
            if random.random() < 0.05:
                assert judged(case.problem, path, changed, exact=True).outcome is Outcome.VALID
    assert sum(times for name, times in tally.items() if name.endswith(": invalid")) > count / 3, tally


def every_piece_is_in_a_leaf(case, chunks: list[Chunk]) -> bool:
    """By enumeration: each sign pattern that occurs in a clause's box agrees with a leaf, of those not halved."""
    leaves = [c for c in chunks if isinstance(c, Leaves)]
    if any(len(c.halvings) and c.halvings.any() for c in leaves):
        return True
    for number, clause in enumerate(case.problem.property.clauses):
        paths = []
        for c in leaves:
            starts = np.cumsum(c.splits.astype(int)) - c.splits
            paths += [c.literals[s : s + n] for s, n, k in zip(starts, c.splits, c.clause, strict=True) if k == number]
        for piece in case.pieces[clause.box]:
            signs = np.array(piece.signs)
            if not any((signs[p >> 1] * np.where(p & 1, 1, -1) >= 0).all() for p in (q.astype(int) for q in paths)):
                return False
    return True


@pytest.mark.parametrize(("kind", "seed", "bounds", "relu_bounds", "count"), SMALL)
def test_no_certificate_of_an_unsafe_property_is_accepted(kind, seed, bounds, relu_bounds, count, tmp_path: Path):
    case, data = made(kind, seed, bounds, relu_bounds=relu_bounds)
    twin, path, random = unsafe_twin(case.problem), tmp_path / "proof", np.random.default_rng(seed)
    chunks = [question(twin), *chunks_of(data, path)[1:]]
    assert judged(twin, path, chunks).outcome is Outcome.INVALID
    for _ in range(count // 4):
        name, changed = mutated(chunks, random)
        assert judged(twin, path, changed).outcome is Outcome.INVALID, name


@given(st.data())
@settings(max_examples=150)
def test_arrays_of_any_size_and_contents_are_refused_with_a_sentence(data):
    """What a stranger may put into a chunk: never worse than `CertificateError`."""
    how = [("dual", "auto"), ("dual", "trees"), ("lp", "auto"), ("linear", "auto")]
    bounds, relu_bounds = data.draw(st.sampled_from(how))
    case, stored = made("dense", 3, bounds, relu_bounds=relu_bounds)
    claims = Claims(case.problem.network, case.problem.property)
    chunks = [c for c in read(io.BytesIO(stored)) if isinstance(c, Leaves | Lemma | TreeLemma)]
    chunk = data.draw(st.sampled_from(chunks))
    for name in data.draw(st.lists(st.sampled_from(sorted(vars(chunk))), min_size=1, max_size=3)):
        old = getattr(chunk, name)
        shape = tuple(max(0, n + data.draw(st.integers(-2, 2))) for n in old.shape)
        values = data.draw(arrays.arrays(old.dtype, shape)) if data.draw(st.booleans()) else np.resize(old, shape)
        chunk = replace(chunk, **{name: values})
    with contextlib.suppress(CertificateError), np.errstate(all="ignore"):
        if isinstance(chunk, Lemma | TreeLemma):
            claims.learn(chunk)
        else:
            assert len(claims.bounds(chunk)) == len(chunk)


@given(st.integers(0, 40), st.integers(0, 1 << 30), st.sampled_from([SLOPES, FINE, DIRECT]))
@settings(max_examples=80)
def test_whatever_a_leaf_holds_its_bound_is_below_the_truth(seed, noise, kind):
    """Splits, slopes, multipliers of any sign and weights at random, against the enumeration of all linear pieces."""
    case, random, count = hard_case("dense", seed % 8, safe=False), np.random.default_rng(noise), 12
    network = case.problem.network
    claims, n = Claims(network, case.problem.property), network.neurons
    signs = random.choice([-1, 0, 0, 1], size=(count, n))
    row, neuron = np.nonzero(signs)
    clause = random.integers(len(case.problem.clauses), size=count)
    weights = random.random((count, claims.shape.rows)) ** 3
    for k, number in enumerate(clause):
        weights[k, len(case.problem.clauses[number].offsets) :] = 0
    leaves = Leaves(
        clause=clause,
        kind=np.full(count, kind),
        vector=np.arange(count) + (kind == SLOPES),
        splits=np.bincount(row, minlength=count),
        literals=2 * neuron + (signs[row, neuron] > 0),
        signs=random.standard_normal(len(row)),
        halvings=np.zeros(count, np.int64),
        inputs=np.zeros(0, np.int64),
        times=np.zeros(0, np.int64),
        halves=np.zeros(0, np.uint64),
        weights=weights / weights.sum(axis=1, keepdims=True),
        slots=np.arange(n),
        coarse=random.integers(256, size=(count, n)).astype(np.uint8),
        fine=random.standard_normal((count, n)),
    )
    for k, bound in enumerate(claims.bounds(leaves).tolist()):
        assert bound <= case.least_in(int(clause[k]), signs[k].tolist()) + 1e-6


def test_weights_below_zero_are_refused(tmp_path: Path):
    """Times -1, a row that always holds would look like one that never does."""
    network = sequential(([[1.0]], [0.0]), ([[1.0]], [-3.0]))
    unsafe, none = simple_problem(network, [-1.0], [1.0], [[1.0]], [0.0]), np.zeros(0, np.int64)
    leaf = Leaves(
        clause=np.zeros(1, np.int64),
        kind=np.array([SLOPES]),
        vector=np.zeros(1, np.int64),
        splits=np.zeros(1, np.int64),
        literals=none,
        signs=np.zeros(0),
        halvings=np.zeros(1, np.int64),
        inputs=none,
        times=none,
        halves=np.zeros(0, np.uint64),
        weights=np.array([[-1.0]]),
        slots=none,
        coarse=np.zeros((0, 0), np.uint8),
        fine=np.zeros((0, 0)),
    )
    report = judged(unsafe, tmp_path / "proof", [question(unsafe), leaf])
    assert report.outcome is Outcome.INVALID
    assert "weight" in report.reason


def test_leaves_have_to_cover_every_clause(tmp_path: Path):
    case, data = made("dense", 3, "dual")
    assert len(case.problem.clauses) > 1
    path = tmp_path / "proof"
    chunks = chunks_of(data, path)
    only = [c for c in chunks if not isinstance(c, Leaves)]
    report = judged(case.problem, path, only)
    assert report.outcome is Outcome.INVALID
    assert "no leaf" in report.reason


def test_the_leaf_that_fails_is_named(tmp_path: Path):
    case, data = made("residual", 1, "dual")
    path = tmp_path / "proof"
    chunks = chunks_of(data, path)
    at = next(k for k, c in enumerate(chunks) if isinstance(c, Leaves) and len(c) > 1)
    leaves, before = chunks[at], sum(len(c) for c in chunks[:at] if isinstance(c, Leaves))
    assert isinstance(leaves, Leaves)
    weights = leaves.weights.copy()
    weights[1] = 0.0
    signs = np.zeros_like(leaves.signs)
    chunks[at] = replace(leaves, weights=weights, signs=signs)
    report = judged(case.problem, path, chunks)
    assert report.outcome is Outcome.INVALID
    assert report.reason.startswith("leaf ")
    assert int(report.reason.split()[1]) >= before


def test_bounds_at_unsafe_points_serve_their_own_clause_only(tmp_path: Path):
    """A lemma of one clause must not tighten another's bounds."""
    case, data = made("dense", 3, "dual")
    claims = Claims(case.problem.network, case.problem.property)
    lemmas = [c for c in chunks_of(data, tmp_path / "proof") if isinstance(c, Lemma) and c.head[1]]
    assert lemmas
    number = int(lemmas[0].head[1]) - 1
    box, other = case.problem.clauses[number].box, 1 - min(number, 1)
    before = claims.root(box), claims.of_clause(other)
    claims.learn(lemmas[0])
    assert np.array_equal(claims.root(box).lower, before[0].lower)
    assert np.array_equal(claims.of_clause(other).lower, before[1].lower)
    after = claims.of_clause(number)
    assert (after.lower != before[0].lower).any() or (after.upper != before[0].upper).any()


def local_leaves(inputs: list[int], times: list[int], halves: list[int], effort: int) -> Leaves:
    """A leaf for each halving of an input, with bounds derived again."""
    count, none = len(inputs), np.zeros(0, np.int64)
    return Leaves(
        clause=np.zeros(count, np.int64),
        kind=np.full(count, LOCAL),
        vector=np.full(count, 4 * effort),
        splits=np.zeros(count, np.int64),
        literals=none,
        signs=np.zeros(0),
        halvings=np.ones(count, np.int64),
        inputs=np.array(inputs),
        times=np.array(times),
        halves=np.array(halves, np.uint64),
        weights=np.ones((count, 1)),
        slots=none,
        coarse=np.zeros((0, 0), np.uint8),
        fine=np.zeros((0, 0)),
    )


@pytest.mark.parametrize("low", [1.0, 1.0 + 2**-52])
def test_a_side_without_a_middle_is_halved_in_finite_time(low, tmp_path: Path):
    """Between two neighbouring numbers there is none: the checker once looked for it for ever."""
    network = sequential(([[1.0]], [0.0]), ([[1.0]], [3.0]))
    thin = simple_problem(network, [low], [float(np.nextafter(low, 2))], [[1.0]], [0.0])
    for effort in range(3):
        for exact in (False, True):
            leaves = [local_leaves([0, 0], [1, 1], [0, 1], effort), local_leaves([0, 0], [64, 2], [5, 3], effort)]
            report = judged(thin, tmp_path / "proof", [question(thin), leaves[0]], exact=exact)
            assert report.outcome is Outcome.VALID
            assert judged(thin, tmp_path / "proof", [question(thin), leaves[1]]).outcome is Outcome.INVALID


@pytest.mark.parametrize("effort", range(3))
def test_what_a_leaf_proves_does_not_depend_on_others(effort):
    """Leaves are looked at together, in pieces that differ from machine to machine and from search to checker."""
    random, sizes = np.random.default_rng(0), [3, 12, 12, 12, 1]
    layers = [(random.standard_normal((b, a)), random.standard_normal(b)) for a, b in pairwise(sizes)]
    query = simple_problem(sequential(*layers), -np.ones(3), np.ones(3), [[1.0]], [0.0])
    claims = Claims(query.network, query.property)
    parts = [(i, t, h) for i in range(3) for t, h in ((1, 0), (1, 1), (3, 5), (6, 9))]
    leaves = local_leaves([i for i, _, _ in parts], [t for _, t, _ in parts], [h for _, _, h in parts], effort)
    together = claims.bounds(leaves)
    alone = [claims.bounds(take(leaves, np.array([k])))[0] for k in range(len(leaves))]
    np.testing.assert_allclose(alone, together, rtol=1e-9)


def test_leaves_are_written_in_chunks_that_are_read(tmp_path: Path, monkeypatch):
    """Of a large batch on a GPU, all leaves at once would be more than a reader takes."""
    case, path = hard_case("residual", 1, safe=True), tmp_path / "proof"
    for name, most, largest in (("MOST_LEAVES", 2, 2), ("MOST_BYTES", 1, 1)):
        with monkeypatch.context() as patch:
            patch.setattr(f"bough.search.leaves.{name}", most)
            assert certified(case.problem, path, "dual").verdict is Verdict.VERIFIED
        sizes = [len(c) for c in chunks_of(path.read_bytes(), path) if isinstance(c, Leaves)]
        assert max(sizes) == largest
        assert check(case.problem, path).leaves == sum(sizes) > 4
    monkeypatch.setattr("bough.verdict.shape.MOST_LEAVES", 0)
    assert "more than 0 leaves" in check(case.problem, path).reason
    monkeypatch.undo()
    monkeypatch.setattr("bough.search.certify.MOST_BYTES", 100)  # then no lemma is written, nor believed
    assert certified(hard_case("residual", 1, safe=True).problem, path, "dual").verdict is Verdict.VERIFIED
    assert not any(isinstance(c, Lemma) for c in chunks_of(path.read_bytes(), path))


def test_more_splits_than_can_be_numbered_are_refused(tmp_path: Path, monkeypatch):
    case, data = made("dense", 2, "linear")
    monkeypatch.setattr("bough.verdict.check.checker.MOST_ENTRIES", 10)
    report = judged(case.problem, tmp_path / "proof", chunks_of(data, tmp_path / "proof"))
    assert report.outcome is Outcome.INVALID
    assert "more than 10 splits" in report.reason


# The command line, and processes that die


@pytest.fixture(scope="module")
def files(tmp_path_factory):
    """A network and a property whose search takes a while, as files."""
    folder = tmp_path_factory.mktemp("files")
    random = np.random.default_rng(4)
    sizes, layers = [6, 24, 24, 1], []
    for a, b in pairwise(sizes):
        layers.append(
            (
                random.standard_normal((b, a)).astype(np.float32) / a**0.5,
                random.standard_normal(b).astype(np.float32) * 0.1,
            )
        )
    write_network(sequential(*layers), folder / "net.onnx")
    names = [f"(declare-const X_{i} Real)(assert (>= X_{i} -1))(assert (<= X_{i} 1))" for i in range(6)]
    for name, offset in (("hard", -1.2), ("easy", -9.0), ("unsafe", 9.0)):
        text = "".join(names) + f"(declare-const Y_0 Real)(assert (<= Y_0 {offset}))"
        (folder / f"{name}.vnnlib").write_text(text)
    return folder


def test_the_commands_work_together(files: Path, capsys, tmp_path: Path):
    proof, network = str(tmp_path / "proof"), str(files / "net.onnx")
    for name, status, word in (("easy", 0, "verified"), ("unsafe", 1, "falsified")):
        prop = str(files / f"{name}.vnnlib")
        assert main(["verify", network, prop, "--certificate", proof, "--threads", "1"]) == status
        output = capsys.readouterr()
        assert output.out == f"{word}\n"
        assert "went into it" in output.err
        assert main(["check", network, prop, proof]) == 0
        output = capsys.readouterr()
        assert output.out == "valid\n"
        assert word in output.err
    assert main(["check", network, str(files / "easy.vnnlib"), proof, "--quiet"]) == 1
    assert capsys.readouterr().out == "invalid\n"
    damaged = tmp_path / "damaged"
    for content in (b"", b"no certificate", (tmp_path / "proof").read_bytes()[:-9] + b"x" * 9, MAGIC + b"\xff" * 99):
        damaged.write_bytes(content)
        assert main(["check", network, str(files / "unsafe.vnnlib"), str(damaged)]) == 2
        output = capsys.readouterr()
        assert output.out == ""
        assert "damaged: " in output.err
    assert main(["check", network, str(files / "easy.vnnlib"), str(tmp_path / "missing")]) == 2
    assert "missing" in capsys.readouterr().err


def test_a_killed_search_leaves_its_finished_leaves(files: Path, tmp_path: Path):
    proof, network, prop = tmp_path / "proof", files / "net.onnx", files / "hard.vnnlib"
    command = [sys.executable, "-m", "bough", "verify", network, prop, "--certificate", proof, "--threads", "1"]
    options = ["--bounds", "dual", "--no-attack", "--batch", "4", "--quiet"]
    running = subprocess.Popen([*map(str, command), *options], env={**os.environ, "OMP_NUM_THREADS": "1"})
    began = time.monotonic()
    while running.poll() is None and time.monotonic() - began < 40:
        if proof.exists() and proof.stat().st_size > 6000:
            break
        time.sleep(0.01)
    running.send_signal(signal.SIGKILL)
    assert running.wait() == -signal.SIGKILL, "the search ended by itself"
    chunks: list[Chunk] = []
    with proof.open("rb") as file, pytest.raises(Torn):
        chunks.extend(read(file))
    assert sum(len(chunk) for chunk in chunks if isinstance(chunk, Leaves)) > 0
    assert main(["check", str(network), str(prop), str(proof), "--quiet"]) == 3
