"""Root bounds by ascent: they contain every sample, with `unsafe_only` every unsafe one, exactly so in rationals; and
verdicts that stand on them are enumeration's, however the weights are scaled.
"""

from collections import Counter
from dataclasses import replace
from fractions import Fraction
from functools import lru_cache
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.support import (
    KINDS,
    Array,
    Case,
    Judged,
    ascend_in_float64,
    ball_samples,
    box_around,
    clause,
    eager_trees,
    exact_margin,
    exact_values_at,
    generator,
    hard_case,
    integer,
    normal,
    problem,
    random_clause,
    relu_inputs_at,
    samples,
    sequential,
    tensor,
    values_at,
    with_ball,
)
from torch import Tensor

from bough.bounds import optimised
from bough.bounds.ascent import Ascended, Ascent, Climber, Duals, Functionals
from bough.bounds.dual import DualAscent
from bough.bounds.intermediate import ClauseBatch, TightBounds
from bough.bounds.linear import Region
from bough.bounds.optimised import OptimisedBounds
from bough.bounds.trees import Trees, TreeWork
from bough.branching.babsr import BaBSR
from bough.branching.filtered import Filtered
from bough.budget import Deadline, OutOfTime
from bough.domain.batch import Bounds
from bough.falsify.base import NoAttack
from bough.network.graph import Network, Node
from bough.network.ops import Add, Conv, Linear, Relu, Reshape, Scale, Select
from bough.problem.property import Box, Clause
from bough.search.loop import Goal, Search, search
from bough.verdict.result import Verdict

NEVER = Deadline.never()
ROUNDING = 1e-9  # of the samples' own evaluation
LONG = OptimisedBounds(ascent=Ascent(steps=40))
TREES = replace(LONG, trees=eager_trees(Trees(rounds=2, leaves=4), Trees(rounds=8, leaves=32)).trees)
kinds = st.sampled_from(tuple(KINDS))
seeds = st.integers(0, 2**31)


def levels_of(policy: OptimisedBounds) -> tuple[Trees, ...]:
    return () if policy.trees is None else policy.trees.cpu.levels


def root_of(policy: OptimisedBounds, network: Network, box: Box) -> Region:
    """The whole box as a region, after all levels of trees of the policy."""
    region = policy.at_root(network, box, NEVER)
    for trees in levels_of(policy):
        region = policy.by_trees(network, region, everywhere(trees, region), NEVER) or region
    return region


def everywhere(trees: Trees, region: Region, clauses: int = 1) -> TreeWork:
    """Trees for every ReLU."""
    return TreeWork(trees, torch.ones(clauses, region.bounds.lower.shape[1], dtype=torch.bool))


def for_clause(policy: OptimisedBounds, network: Network, box: Box, query_clause: Clause) -> Bounds:
    region = root_of(policy, network, box)
    return for_rows(policy, network, region, query_clause.coefficients[None], query_clause.offsets[None])


def for_rows(policy: OptimisedBounds, network: Network, region: Region, rows: Tensor, offsets: Tensor) -> Bounds:
    """Bounds at the unsafe points of several clauses, asked for until nothing more is gained."""
    bounds = Bounds(*(side.expand(len(offsets), -1) for side in (region.bounds.lower, region.bounds.upper)))
    clauses = ClauseBatch(torch.arange(len(offsets)), rows, offsets, bounds, NEVER)
    clause_bounds = policy.for_clauses(network, region)
    assert (clause_bounds is not None) == policy.conditional
    if clause_bounds is None:
        return bounds
    for _ in range(3):
        clauses = replace(clauses, bounds=clause_bounds.tightened(clauses))
    for trees in levels_of(policy):
        work = everywhere(trees, region, len(offsets))
        clauses = replace(clauses, bounds=clause_bounds.tightened(clauses, work))
    return clauses.bounds


def contains(bounds: Bounds, values: Array) -> None:
    scale = ROUNDING * (1 + np.abs(values))
    assert (bounds.lower.numpy() <= values + scale).all()
    assert (bounds.upper.numpy() >= values - scale).all()


@settings(max_examples=40)
@given(kinds, seeds, st.sampled_from((OptimisedBounds(), LONG, TREES)))
def test_root_bounds_contain_samples_and_are_no_wider_than_those_inside(kind, seed, policy):
    g = generator(seed)
    network = KINDS[kind](g)
    box = box_around(g, network.inputs)
    bounds = root_of(policy, network, box).bounds
    contains(bounds, relu_inputs_at(network, samples(box, 2000).numpy()))
    for looser in (TightBounds(refresh=False), replace(policy, trees=None)):
        inner = looser.at_root(network, box, NEVER).bounds
        assert bool((bounds.lower >= inner.lower).all())
        assert bool((bounds.upper <= inner.upper).all())


@settings(max_examples=20)
@given(kinds, seeds, st.sampled_from((1, 2)), st.sampled_from((OptimisedBounds(), TREES)))
def test_root_bounds_contain_samples_of_balls(kind, seed, p, policy):
    g = generator(seed)
    network = KINDS[kind](g)
    box = with_ball(g, box_around(g, network.inputs), p)
    bounds = root_of(policy, network, box).bounds
    contains(bounds, relu_inputs_at(network, ball_samples(box, 2000).numpy()))


@pytest.mark.parametrize(("policy", "looser", "share"), [(LONG, LONG.inner, 0.99), (TREES, LONG, 0.9)])
def test_ascent_and_trees_tighten(policy, looser, share):
    """Half of the networks with a second layer have some bound that is tighter, by a hundredth or a tenth and more."""
    better = 0
    for kind in ("dense", "convolutional", "residual", "pooled"):
        for seed in range(5):
            g = generator(seed)
            network = KINDS[kind](g)
            box = box_around(g, network.inputs)
            bounds, inner = root_of(policy, network, box).bounds, looser.at_root(network, box, NEVER).bounds
            better += bool(((bounds.upper - bounds.lower) < share * (inner.upper - inner.lower)).any())
    assert better >= 10


@settings(max_examples=60)
@given(kinds, seeds, st.integers(1, 3), st.floats(0.02, 0.5), st.sampled_from((LONG, TREES)))
def test_bounds_at_unsafe_points_contain_every_unsafe_sample(kind, seed, rows, share, policy):
    """The offsets are such that a share of all samples is unsafe."""
    g = generator(seed)
    network = KINDS[kind](g)
    box = box_around(g, network.inputs)
    drawn = random_clause(g, network.outputs, rows)
    points = samples(box, 3000).numpy()
    margins = drawn.margins(torch.from_numpy(values_at(network, points)[-1]))
    shifted = clause(drawn.coefficients, drawn.offsets + float(margins.quantile(share)))
    bounds = for_clause(policy, network, box, shifted)
    unsafe = (margins - margins.quantile(share) <= 0).numpy()
    assert unsafe.any()
    contains(bounds, relu_inputs_at(network, points[unsafe]))
    whole = root_of(policy, network, box).bounds
    assert bool((bounds.lower >= whole.lower).all())
    assert bool((bounds.upper <= whole.upper).all())


def test_unsafe_points_are_fewer():
    """Leaving out safe points tightens: in most networks some bound by a tenth; and not when it is not asked for."""
    tighter = 0
    for kind in ("dense", "convolutional", "residual", "pooled"):
        for seed in range(5):
            case = hard_case(kind, seed, safe=False, away=1e-2)
            query_clause = case.problem.clauses[0]
            box = case.problem.property.boxes[0]
            whole = LONG.at_root(case.problem.network, box, NEVER).bounds
            bounds = for_clause(LONG, case.problem.network, box, query_clause)
            tighter += bool(((bounds.upper - bounds.lower) < 0.9 * (whole.upper - whole.lower)).any())
            same = for_clause(replace(LONG, unsafe_only=False), case.problem.network, box, query_clause)
            assert torch.equal(same.lower, whole.lower)
            assert torch.equal(same.upper, whole.upper)
    assert tighter >= 10


@pytest.mark.parametrize("policy", [LONG, TREES], ids=["plain", "trees"])
@pytest.mark.parametrize("kind", ["dense", "convolutional", "residual", "pooled"])
def test_bounds_at_unsafe_points_contain_every_unsafe_piece(kind, policy):
    """By enumeration: in every piece with an unsafe point, the least one of it has ReLU inputs within the bounds."""
    count = 0
    for seed in range(6):
        case = hard_case(kind, seed, safe=False, away=3e-2)
        network = case.problem.network
        for number, query_clause in enumerate(case.problem.clauses):
            box = case.problem.property.boxes[query_clause.box]
            bounds = for_clause(policy, network, box, query_clause)
            for piece, margin in zip(case.pieces[query_clause.box], case.margins[number], strict=True):
                if margin > -1e-6 or piece.slack < 1e-6:
                    continue
                count += 1
                signs = np.array(piece.signs)
                # A sign that the bounds rule out would say that this piece has no unsafe point.
                assert not ((signs > 0) & (bounds.upper[0].numpy() < -1e-6)).any()
                assert not ((signs < 0) & (bounds.lower[0].numpy() > 1e-6)).any()
    assert count >= 5


@pytest.mark.parametrize("rounds", [1, 3])
@pytest.mark.parametrize("kind", ["dense", "convolutional", "residual", "pooled"])
def test_several_clauses_at_once_are_bounded_as_each_alone(kind, rounds, monkeypatch):
    """But for how long layers go on: as long as any clause gains there, which here is always."""
    ascend_in_float64(monkeypatch)
    monkeypatch.setattr(optimised, "LEAST_GAIN", -1.0)
    for seed in range(3, 6):
        g = generator(seed)
        network = KINDS[kind](g)
        box = box_around(g, network.inputs)
        clauses = [random_clause(g, network.outputs, 2) for _ in range(3)]
        region = LONG.at_root(network, box, NEVER)
        rows, offsets = torch.stack([c.coefficients for c in clauses]), torch.stack([c.offsets for c in clauses])
        policy = replace(LONG, rounds=rounds)
        together = for_rows(policy, network, region, rows, offsets)
        for k, one in enumerate(clauses):
            alone = for_clause(policy, network, box, one)
            assert bool(together.empty()[k]) == bool(alone.empty())
            if bool(alone.empty()):  # nothing unsafe there; a clause alone stops, among others it goes on
                continue
            torch.testing.assert_close(together.lower[k], alone.lower[0], rtol=1e-6, atol=1e-6)
            torch.testing.assert_close(together.upper[k], alone.upper[0], rtol=1e-6, atol=1e-6)


def test_in_pieces_the_bounds_are_the_same(monkeypatch):
    ascend_in_float64(monkeypatch)
    g = generator(1)
    network = KINDS["dense"](g)
    box = box_around(g, network.inputs)
    drawn = random_clause(g, network.outputs, 2)
    whole = for_clause(LONG, network, box, drawn)
    monkeypatch.setattr(optimised, "CHUNK", 2)
    parts = for_clause(LONG, network, box, drawn)
    torch.testing.assert_close(parts.lower, whole.lower, rtol=1e-6, atol=1e-6)
    torch.testing.assert_close(parts.upper, whole.upper, rtol=1e-6, atol=1e-6)


def test_what_cannot_be_afforded_is_left_out(monkeypatch):
    monkeypatch.setitem(optimised.MOST_WORK, "cpu", 1.0)
    g = generator(1)
    network = KINDS["dense"](g)
    box = box_around(g, network.inputs)
    bounds, inner = (p.at_root(network, box, NEVER).bounds for p in (LONG, LONG.inner))
    assert torch.equal(bounds.lower, inner.lower)
    assert torch.equal(for_clause(LONG, network, box, random_clause(g, network.outputs, 1)).upper, inner.upper)


def test_the_deadline_is_heard():
    g = generator(1)
    network = KINDS["dense"](g)
    with pytest.raises(OutOfTime):
        OptimisedBounds().at_root(network, box_around(g, network.inputs), Deadline.after(0))


# Exactly, in rationals


def wild(g: torch.Generator, *shape: int) -> Tensor:
    """Numbers of sizes from 1e-6 to 1e6."""
    size = 10 ** (torch.rand(*shape, generator=g).double() * 12 - 6)
    return torch.randn(*shape, generator=g).double().sign() * size


@settings(max_examples=60)
@given(seeds, st.booleans(), st.integers(1, 3), st.sampled_from((LONG, TREES)))
def test_bounds_of_wildly_scaled_networks_hold_exactly(seed, thin, rows, policy):
    """Root bounds at every sample, the clause's at every one that is unsafe, and the margin, without any rounding."""
    g = generator(seed)
    network = sequential((wild(g, 4, 2), wild(g, 4)), (wild(g, 4, 4), wild(g, 4)), (wild(g, 2, 4), wild(g, 2)))
    centre, width = normal(g, 2), 10.0 ** (-integer(g, 4, 12)) if thin else 1.0
    box = Box(centre, centre + width * torch.rand(2, generator=g).double())
    drawn = random_clause(g, 2, rows)
    points = samples(box, 12)
    exact = [exact_values_at(network, x) for x in points.tolist()]
    middle = sorted(float(exact_margin(drawn, v[-1])) for v in exact)[6]
    query = problem(network, [box], [clause(drawn.coefficients, drawn.offsets + middle + 1e-6 * abs(middle))])
    root = root_of(policy, network, box).bounds
    at_unsafe = for_clause(policy, network, box, query.clauses[0])
    lower = float(DualAscent(intermediate=policy).prepare(query).root(0.0, NEVER).domains.lower)
    unsafe = 0
    for v in exact:
        inside = [z for i in network.relus for z in v[network.nodes[i].inputs[0]]]
        margin = exact_margin(query.clauses[0], v[-1])
        for bounds in (root, at_unsafe) if margin <= 0 else (root,):
            for l, u, z in zip(bounds.lower[0].tolist(), bounds.upper[0].tolist(), inside, strict=True):
                assert not np.isfinite(l) or Fraction(l) <= z
                assert not np.isfinite(u) or z <= Fraction(u)
        unsafe += margin <= 0
        assert margin > 0 if lower > 0 else lower == -np.inf or Fraction(lower) <= margin
    assert unsafe


def test_without_the_rounding_error_that_test_fails(monkeypatch):
    """In boxes of almost no width the bounds are as tight as rounding lets them be: leaving it out is seen."""
    monkeypatch.setattr(Network, "rounding", 0.0)
    broken = 0
    for seed in range(20):
        g = generator(seed)
        network = sequential((wild(g, 4, 2), wild(g, 4)), (wild(g, 4, 4), wild(g, 4)), (wild(g, 2, 4), wild(g, 2)))
        centre = normal(g, 2)
        box = Box(centre, centre + 1e-12 * torch.rand(2, generator=g).double())
        bounds = LONG.at_root(network, box, NEVER).bounds
        for x in samples(box, 6).tolist():
            v = exact_values_at(network, x)
            inside = [z for i in network.relus for z in v[network.nodes[i].inputs[0]]]
            sides = zip(bounds.lower[0].tolist(), bounds.upper[0].tolist(), inside, strict=True)
            broken += any(Fraction(l) > z or z > Fraction(u) for l, u, z in sides)
    assert broken >= 3


# Verdicts


def rescaled(network: Network, g: torch.Generator, exponent: int) -> Network:
    """The same function (powers of two commute with ReLUs and round nothing) by weights from 2**-exponent up.

    Every node's values are multiplied by powers of two, one per element behind linear layers and one per node behind
    convolutions; the operators undo what their inputs were multiplied by.
    """
    scales: list[Tensor] = []
    nodes = list[Node]()

    def drawn(count: int) -> Tensor:
        return 2.0 ** torch.randint(-exponent, exponent + 1, (count,), generator=g).double()

    for i, node in enumerate(network.nodes):
        last = i == len(network.nodes) - 1
        before = [scales[j] for j in node.inputs]
        op, own = node.op, torch.ones(node.size).double()
        match op:
            case Linear() if len(node.shape) == 1:
                own = own if last else drawn(node.size)
                bias = own * op.bias
                op = Linear(own[:, None] * op.weight / before[0][None], bias, bias.abs())
            case Conv():
                assert bool((before[0] == before[0][0]).all())
                own = own if last else drawn(1).expand(node.size)
                bias = own[0] * op.bias
                op = replace(op, weight=op.weight * own[0] / before[0][0], bias=bias, bias_magnitude=bias.abs())
            case Scale():
                own = own if last else drawn(node.size)
                shaped, old = own.reshape(op.factor.shape), before[0].reshape(op.factor.shape)
                op = Scale(op.factor * shaped / old, op.bias * shaped, (op.bias * shaped).abs())
            case Relu() | Reshape():
                own = before[0]
            case Select():
                own = before[0][op.index.reshape(-1)]
            case Add():
                own = before[0]
                if not torch.equal(before[0], before[1]):
                    return network  # sums of nodes that were scaled apart: left as it is
            case _:
                pass
        nodes.append(replace(node, op=op))
        scales.append(own)
    return Network(tuple(nodes))


@lru_cache(maxsize=64)
def scaled_case(kind: str, seed: int, *, safe: bool) -> Case:
    """A hard case by other weights: from a millionth to a million times as large."""
    case = hard_case(kind, seed, safe=safe)
    network = rescaled(case.problem.network, generator(seed), 10)
    same = problem(network, case.problem.property.boxes, case.problem.property.clauses)
    return replace(case, problem=same)


def test_rescaling_changes_the_weights_and_not_the_function():
    for kind in ("dense", "convolutional"):
        for seed in range(3):
            scaled, plain = (c.problem for c in (scaled_case(kind, seed, safe=True), hard_case(kind, seed, safe=True)))
            points = samples(scaled.property.boxes[0], 50).numpy()
            np.testing.assert_allclose(values_at(scaled.network, points)[-1], values_at(plain.network, points)[-1])
            assert (relu_inputs_at(scaled.network, points) != relu_inputs_at(plain.network, points)).any()


@pytest.mark.parametrize("policy", [OptimisedBounds(), TREES], ids=["plain", "trees"])
@pytest.mark.parametrize("kind", ["dense", "convolutional"])
def test_verdicts_on_badly_scaled_networks_are_enumerations(kind, policy):
    """Ascent in float32 finds little there; the proof in float64 closes nothing that is not safe."""
    tally: Counter[str] = Counter()
    for seed in range(6):
        for safe in (True, False):
            case = scaled_case(kind, seed, safe=safe)
            judged = Judged(DualAscent(intermediate=policy), case, conditional=True)
            result = search(Search(case.problem, judged, BaBSR(), NoAttack(), NEVER, batch=16))
            assert result.verdict is (Verdict.VERIFIED if safe else Verdict.FALSIFIED)
            tally[result.verdict.value] += 1
    assert tally["verified"] == tally["falsified"] == 6


@pytest.mark.parametrize("policy", [OptimisedBounds(), TREES], ids=["plain", "trees"])
def test_the_minimum_over_optimised_bounds(policy):
    for kind in ("dense", "convolutional", "residual", "pooled"):
        for seed, safe in ((1, True), (5, False)):
            case = hard_case(kind, seed, safe=safe)
            bounder = Judged(DualAscent(intermediate=policy.unconditional()), case)
            result = search(Search(case.problem, bounder, Filtered(), NoAttack(), NEVER, goal=Goal(1e-3), batch=16))
            assert result.lower_bound - 1e-6 <= case.least <= result.upper_bound + 1e-6
            assert result.upper_bound - result.lower_bound <= 1e-3 + 1e-9


def test_a_network_of_one_layer_or_none():
    """Nothing to ascend on before the last layer; and without ReLUs nothing at all."""
    one = sequential(([[1.0, 1.0], [1.0, -1.0]], [0.1, 0.0]), ([[1.0, 1.0]], [-0.05]))
    none = sequential(([[1.0, 1.0]], [0.0]))
    for network in (one, none):
        box = Box(tensor([-1.0, -1.0]), tensor([1.0, 1.0]))
        bounds = for_clause(TREES, network, box, clause([[1.0]], [0.0]))
        assert bounds.lower.shape == (1, network.neurons)
        query = problem(network, [box], [clause([[1.0]], [-3.0])])
        result = search(Search(query, DualAscent(intermediate=TREES), BaBSR(), NoAttack(), NEVER))
        assert result.verdict is Verdict.VERIFIED


def test_clauses_that_close_between_two_calls_do_not_disturb_the_others(monkeypatch):
    """With fewer clauses larger pieces of the layer are bounded at once, for which there are no duals to start from."""
    monkeypatch.setattr(optimised, "CHUNK", 12)
    g = generator(2)
    network = KINDS["dense"](g)
    box = box_around(g, network.inputs)
    region = LONG.at_root(network, box, NEVER)
    clauses = [random_clause(g, network.outputs, 1) for _ in range(3)]
    rows, offsets = torch.stack([c.coefficients for c in clauses]), torch.stack([c.offsets for c in clauses])
    bounds = Bounds(region.bounds.lower.expand(3, -1), region.bounds.upper.expand(3, -1))
    clause_bounds = LONG.for_clauses(network, region)
    assert clause_bounds is not None
    first = clause_bounds.tightened(ClauseBatch(torch.arange(3), rows, offsets, bounds, NEVER))
    left = torch.tensor([0, 2])
    again = clause_bounds.tightened(ClauseBatch(left, rows[left], offsets[left], first[left], NEVER))
    assert bool((again.lower >= first.lower[left]).all())
    assert bool((again.upper <= first.upper[left]).all())


def test_weights_that_ascent_should_never_find_prove_nothing_wrong(monkeypatch):
    """A negative weight of a constraint would make the bound wrong: the proof does not take ascent's word for it."""
    run = Ascent.run

    def spoilt(self: Ascent, climber: Climber, functionals: Functionals, *others: Any, **named: Any) -> Ascended:
        ascended = run(self, climber, functionals, *others, **named)
        if not functionals.cone:
            return ascended
        logits = torch.where(torch.rand(ascended.duals.logits.shape) < 0.5, -1.0, ascended.duals.logits)
        return replace(ascended, duals=Duals(ascended.duals.p, logits))

    monkeypatch.setattr(Ascent, "run", spoilt)
    for kind in ("dense", "residual"):
        for seed in range(6):
            case = hard_case(kind, seed, safe=False)
            judged = Judged(DualAscent(intermediate=TREES), case, conditional=True)
            result = search(Search(case.problem, judged, BaBSR(), NoAttack(), NEVER, batch=4))
            assert result.verdict is Verdict.FALSIFIED
