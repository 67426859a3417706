"""Trees of splits below a functional: their leaves cover everything, and bounds by them are tighter and stay true."""

import itertools
import math
from collections import defaultdict
from collections.abc import Iterator
from typing import Any

import pytest
import torch
from tests.support import (
    KINDS,
    Judged,
    ascend_in_float64,
    box_around,
    clause,
    eager_trees,
    generator,
    hard_case,
    normal,
    problem,
    samples,
    sequential,
    tensor,
)

from bough.bounds import trees
from bough.bounds.ascent import Ascended, Ascent, Climber, Duals, Functionals
from bough.bounds.base import Bounded
from bough.bounds.deepening import Deepening, TreePlan, TreePlans
from bough.bounds.dual import DualAscent, DualSession
from bough.bounds.intermediate import TightBounds
from bough.bounds.optimised import OptimisedBounds
from bough.bounds.reduced import reduce
from bough.bounds.trees import TreeLeaves, Trees, TreeWork, by_pattern
from bough.branching.babsr import BaBSR
from bough.budget import Deadline, OutOfTime
from bough.domain.batch import Bounds
from bough.falsify.base import NoAttack
from bough.network.walk import evaluate
from bough.problem.property import Box
from bough.search.loop import Search, search
from bough.verdict.result import Verdict

NEVER = Deadline.never()
PLAIN = OptimisedBounds()
LEVELS = Trees(rounds=3, leaves=8), Trees(rounds=8, leaves=64)
DEEP = eager_trees(*LEVELS)


def grown(kind: str, seed: int, policy: Trees, which: slice = slice(None)) -> TreeLeaves:
    """The trees of some outputs of a random network, from below, with thresholds that no leaf reaches."""
    g = generator(seed)
    network = KINDS[kind](g)
    region = TightBounds(refresh=False).at_root(network, box_around(g, network.inputs), NEVER)
    net = reduce(network, region).to(torch.device("cpu"), torch.float64)
    n = len(net.neurons)
    rows = torch.cat([torch.eye(network.outputs), -torch.eye(network.outputs)]).double()[which, None]
    count = len(rows)
    offsets = torch.full((count, 1), 1e3).double()
    functionals = Functionals(rows, offsets, torch.zeros(count, n, dtype=torch.int8))
    start = Duals(torch.full((count, n), 0.5).double(), torch.zeros(count, 1).double())
    climber = Climber(net, capture=False)
    return policy.grown(climber, functionals, Ascent(steps=8).run(climber, functionals, start))


def patterns(leaves: TreeLeaves) -> dict[int, list[tuple[int, ...]]]:
    by_owner = defaultdict(list)
    for owner, signs in zip(leaves.owner.tolist(), leaves.signs.tolist(), strict=True):
        by_owner[owner].append(tuple(signs))
    return by_owner


@pytest.mark.parametrize("kind", list(KINDS))
@pytest.mark.parametrize("policy", [Trees(rounds=3, leaves=8), Trees(rounds=8, leaves=40)])
def test_the_leaves_of_every_tree_cover_everything_once(kind, policy, monkeypatch):
    """No two leaves agree wherever both have a sign, and the shares of all patterns, 2**-splits each, add up to 1."""
    ascend_in_float64(monkeypatch)
    for seed in range(4):
        leaves = grown(kind, seed, policy)
        for signs in patterns(leaves).values():
            assert len(signs) < 2 * policy.leaves
            assert sum(2.0 ** -sum(s != 0 for s in pattern) for pattern in signs) == 1.0
            for k, one in enumerate(signs):
                assert all(any(a * b < 0 for a, b in zip(one, other, strict=True)) for other in signs[:k])


def test_a_tree_stops_where_its_sign_is_decided(monkeypatch):
    ascend_in_float64(monkeypatch)
    leaves = grown("dense", 1, Trees(rounds=4))
    assert len(leaves.owner) > 2 * int(leaves.owner.max()) + 2
    functional = Functionals(torch.ones(1, 1, 2), torch.full((1, 1), -1e3), torch.zeros(1, 3, dtype=torch.int8))
    decided = Ascended(Duals(torch.zeros(1, 3), torch.zeros(1, 1)), torch.ones(1))
    nothing = torch.zeros(1, dtype=torch.int64)
    root = TreeLeaves(nothing, functional.signs, decided.duals, decided.value, nothing.bool())
    assert not bool(Trees()._lowest(root, 1).any())


@pytest.mark.parametrize("kind", ["dense", "residual"])
def test_a_batch_of_trees_is_each_tree_alone(kind, monkeypatch):
    ascend_in_float64(monkeypatch)
    policy = Trees(rounds=4, leaves=12)
    together = grown(kind, 3, policy)
    for k in range(int(together.owner.max()) + 1):
        alone = grown(kind, 3, policy, slice(k, k + 1))
        own = together[together.owner == k]
        assert sorted(patterns(own)[k]) == sorted(patterns(alone)[0])
        torch.testing.assert_close(own.value.sort().values, alone.value.sort().values)


def test_in_pieces_the_trees_are_the_same(monkeypatch):
    ascend_in_float64(monkeypatch)
    whole = grown("dense", 5, Trees(rounds=4))
    monkeypatch.setattr(trees, "CHUNK", 3)
    parts = grown("dense", 5, Trees(rounds=4))
    assert {k: sorted(v) for k, v in patterns(whole).items()} == {k: sorted(v) for k, v in patterns(parts).items()}


def test_trees_stop_before_they_fill_the_memory(monkeypatch):
    ascend_in_float64(monkeypatch)
    whole = grown("dense", 5, Trees(rounds=4))
    most = len(whole.owner) // 2
    monkeypatch.setitem(trees.LEAF_BYTES, "cpu", 8 * whole.signs.shape[1] * most)
    fewer = grown("dense", 5, Trees(rounds=4))
    assert int(whole.owner.max()) < len(fewer.owner) <= most
    assert set(fewer.owner.tolist()) == set(whole.owner.tolist())


def test_bounds_of_a_pattern_are_cut_at_zero():
    bounds = Bounds(torch.tensor([[-9.0, -9.0, -9.0], [-1.0, -2.0, -3.0]]), torch.tensor([[9.0] * 3, [1.0, 2.0, 3.0]]))
    signs = torch.tensor([[1, 0], [-1, 1]], dtype=torch.int8)
    cut = by_pattern(bounds, torch.tensor([1, 1]), torch.tensor([0, 2]), signs)
    assert cut.lower.tolist() == [[0, -2, -3], [-1, -2, 0]]
    assert cut.upper.tolist() == [[1, 2, 3], [0, 2, 3]]
    assert bounds.lower[1, 0] == -1


@pytest.mark.parametrize("kind", ["dense", "convolutional", "residual", "pooled"])
@pytest.mark.parametrize(("budget", "later"), [(1e6, math.inf), (0.0, 12.0)])
def test_verdicts_over_trees_are_enumerations(kind, budget, later):
    """Whether trees are grown at the root, or for the first time after some bounds of a search."""
    plan = TreePlan(LEVELS, 20.0, budget, 1e6, 1e6, 1.0, later, 0.0 if budget else 12.0, many_clauses=1)
    policy = OptimisedBounds(trees=TreePlans(plan, plan))
    for seed in range(4):
        for safe in (True, False):
            case = hard_case(kind, seed, safe=safe)
            judged = Judged(DualAscent(intermediate=policy), case, conditional=True)
            result = search(Search(case.problem, judged, BaBSR(), NoAttack(), NEVER, batch=8))
            assert result.verdict is (Verdict.VERIFIED if safe else Verdict.FALSIFIED)


def test_a_budget_binds():
    """Trees take no more bounds than they may; with none, the search is what it is without them."""
    problem = hard_case("dense", 5, safe=True).problem
    results = {}
    for most in (1e6, 0, 140):
        bounder = DualAscent(intermediate=eager_trees(*LEVELS, budget=most))
        results[most] = search(Search(problem, bounder, BaBSR(), NoAttack(), NEVER, batch=8))
    plain = search(Search(problem, DualAscent(intermediate=PLAIN), BaBSR(), NoAttack(), NEVER, batch=8))
    assert results[1e6].notes["tree_bounds"] > 140 >= results[140].notes["tree_bounds"] > 0
    assert "tree_bounds" not in results[0].notes
    assert (results[0].branches, results[0].lower_bound) == (plain.branches, plain.lower_bound)
    assert results[1e6].notes["root_lower_before_trees"] < results[1e6].root_lower_bound


def test_one_layer_of_relus_has_no_trees():
    """Bounds of the first layer are exact, so there is nothing to bound again."""
    g = generator(3)
    network = sequential((normal(g, 24, 3), normal(g, 24)), (normal(g, 2, 24), normal(g, 2)))
    box = Box(tensor([-1.0] * 3), tensor([1.0] * 3))
    row = normal(g, 1, 2)
    least = float((evaluate(network, samples(box, 2000)) @ row.T).min())
    case = problem(network, [box], [clause(row, tensor([least - 0.05]))])  # hardly safe, or hardly not
    result = search(Search(case, DualAscent(intermediate=DEEP), BaBSR(), NoAttack(), NEVER, batch=8, most_bounds=200))
    assert result.branches > 0
    assert "tree_bounds" not in result.notes


def test_every_side_may_take_as_much():
    work = TreeWork(Trees(), torch.ones(2, 3, dtype=torch.bool), budget=120.0)
    assert work.allowance(4) == 40
    work.bounds = 10
    assert work.allowance(4) == 55
    assert work.allowance(4) == 110


def test_trees_save_branches():
    saved = 0
    for seed in range(8):
        problem = hard_case("dense", seed, safe=True).problem
        plain, deep = (
            search(Search(problem, DualAscent(intermediate=p), BaBSR(), NoAttack(), NEVER, batch=8))
            for p in (PLAIN, DEEP)
        )
        saved += plain.branches - deep.branches
    assert saved > 0


@pytest.mark.parametrize(
    "end",
    [OutOfTime(), torch.OutOfMemoryError(), MemoryError(), KeyboardInterrupt()],
    ids=["time", "GPU", "CPU", "ctrl-c"],
)
@pytest.mark.parametrize("call", [0, 3])
@pytest.mark.parametrize(
    ("owner", "method"), [(Trees, "foreseen"), (Trees, "_children"), (DualSession, "_made"), (DualSession, "_bound")]
)
def test_trees_that_are_ended_leave_what_is_known(owner, method, call, end, monkeypatch):
    """Out of time or memory, the search goes on over what the roots have; interrupted, their bound is reported."""
    problem = hard_case("dense", 5, safe=True).problem
    known = float(DualAscent(intermediate=PLAIN).prepare(problem).root(0.0, NEVER).domains.lower.min())
    assert known < 0
    calls = itertools.count()
    run, original = Deepening.run, getattr(owner, method)

    def ending(*arguments: Any) -> Any:
        if next(calls) == call:
            raise end
        return original(*arguments)

    def in_roots(*arguments: Any) -> Iterator[Bounded]:
        works = run(*arguments)
        while True:
            with monkeypatch.context() as patch:
                patch.setattr(owner, method, ending)
                better = next(works, None)
            if better is None:
                return
            yield better

    monkeypatch.setattr(Deepening, "run", in_roots)
    result = search(Search(problem, DualAscent(intermediate=DEEP), BaBSR(), NoAttack(), NEVER, batch=8))
    reached = next(calls) > call
    interrupted = reached and isinstance(end, KeyboardInterrupt)
    assert result.verdict is (Verdict.UNKNOWN if interrupted else Verdict.VERIFIED)
    assert result.root_lower_bound >= known
    assert result.lower_bound >= known
    assert reached or call
