"""Collecting changes nothing, a sample holds what splitting by hand gives, and Algorithm 2 counts as it says."""

import math
from dataclasses import fields, replace
from functools import lru_cache
from itertools import pairwise
from typing import Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.support import clause, generator, hard_case, normal, problem, relaxation_of, samples, sequential, tensor
from torch import Tensor

from bough.bounds.ascent import Ascent
from bough.bounds.base import AbstractBounder, AbstractSession
from bough.bounds.boxes import LinearBounds
from bough.bounds.dual import DualAscent
from bough.bounds.lp import PlanetLP
from bough.bounds.witness import AbstractWitness
from bough.branching.base import AbstractBrancher, AbstractLookAhead
from bough.branching.filtered import Filtered
from bough.branching.inputs import Longest
from bough.branching.random import RandomChoice
from bough.branching.strong import Strong
from bough.branching.subset import Subset
from bough.budget import Deadline
from bough.domain.batch import DomainBatch, split
from bough.errors import BadInput
from bough.falsify.base import NoAttack
from bough.learning.labels import Collector, Plan
from bough.learning.samples import Samples
from bough.learning.scene import see
from bough.network import walk
from bough.problem.problem import Problem
from bough.problem.property import Box
from bough.search.loop import Search, search
from bough.search.observe import AbstractObserver
from bough.verdict.result import Result, Verdict

NEVER = Deadline.never()
BOUNDERS: dict[str, AbstractBounder] = {
    "lp": PlanetLP(),
    "dual": DualAscent(Ascent(steps=8, pauses=(3,)), Ascent(steps=20)),
}
CHEAP = RandomChoice(3)  # makes long searches of small problems
PLANS = {
    "steps": Plan(samples=4, between=2, whole=0.0),
    "whole": Plan(whole=1.0),
    "deep": Plan(samples=4, deep=True),
    "subset": Plan(samples=4, between=2, whole=0.0, subset=Subset(best=2, share=0.1)),
}


@lru_cache
def long_problem() -> Problem:
    """One that takes some dozens of steps, and a few under strong branching."""
    g = generator(5)
    layers = (normal(g, 7, 3), normal(g, 7) * 0.3), (normal(g, 5, 7) / 3, normal(g, 5) * 0.3)
    network = sequential(*layers, (normal(g, 2, 5), [0, 0]))
    box, row = Box(tensor([-1.0] * 3), tensor([1.0] * 3)), tensor([1.0, -1.0])
    values = walk.evaluate(network, samples(box, 20_000)) @ row
    return problem(network, [box], [clause(row[None], [float(values.min()) - 0.1])])


def run(query: Problem, observers: tuple[AbstractObserver, ...] = (), *, bounder: str = "lp", **more: Any) -> Result:
    """Searches that are not strong end after some dozens of bounds: they are long enough for anything asked here."""
    rule: AbstractBrancher[Any] = more.pop("rule", CHEAP)
    limit = 48 if rule is CHEAP else math.inf
    return search(
        Search(query, BOUNDERS[bounder], rule, NoAttack(), NEVER, most_bounds=limit, observers=observers, **more)
    )


def collect(plan: Plan, name: str = "it", *, stop: bool = False, **more: Any) -> Collector:
    collector = Collector(long_problem(), plan, name, stop=stop)
    run(long_problem(), (collector,), rule=collector.rule(CHEAP), **more)
    return collector


def taken(collector: Collector) -> Samples:
    result = collector.collected()
    assert result is not None
    return result


def figures(result: Result) -> dict[str, Any]:
    """All of a result that does not depend on the clock."""
    values = {f.name: getattr(result, f.name) for f in fields(Result) if "seconds" not in f.name}
    point = values.pop("counterexample")
    notes = {name: value for name, value in values.pop("notes").items() if "seconds" not in name}
    return {**values, **notes, "point": None if point is None else point.x.tolist()}


def same(first: Samples, second: Samples) -> bool:
    return (
        torch.equal(first.step, second.step)
        and torch.equal(first.children, second.children)
        and torch.equal(first.graph.neurons, second.graph.neurons)
        and torch.equal(first.graph.passing, second.graph.passing)
        and all(torch.equal(column, second.scene.named()[name]) for name, column in first.scene.named().items())
    )


# It changes nothing


@pytest.mark.parametrize("bounder", BOUNDERS)
@pytest.mark.parametrize(("plan", "batch"), [("steps", 1), ("steps", 4), ("deep", 4), ("subset", 1)])
def test_a_search_that_is_watched_ends_as_one_that_is_not(bounder, batch, plan):
    for query in (hard_case("dense", 1, safe=False).problem, long_problem()):
        collector = Collector(query, PLANS[plan], "it", stop=False)
        assert collector.rule(CHEAP) is CHEAP
        watched = run(query, (collector,), bounder=bounder, batch=batch)
        assert figures(watched) == figures(run(query, bounder=bounder, batch=batch))
    assert len(taken(collector)) >= 2


@pytest.mark.parametrize("bounder", BOUNDERS)
@pytest.mark.parametrize("batch", [1, 4])
def test_a_whole_search_is_strong_branchings_own_and_bounds_no_child_twice(bounder, batch):
    query = long_problem()
    collector = Collector(query, PLANS["whole"], "it")
    watched = run(query, (collector,), rule=collector.rule(CHEAP), bounder=bounder, batch=batch)
    plain = run(query, rule=Strong(), bounder=bounder, batch=batch)
    assert figures(watched) == figures(plain)
    assert watched.branches > 4
    samples = taken(collector)
    assert len(samples) == watched.branches // 2  # every decision is a sample
    # Every bound of the search is that of a root, of a child it made, or of a label.
    assert watched.bounds == 1 + watched.branches + 2 * int(samples.tried.sum())


@pytest.mark.parametrize(("kind", "seed"), [("dense", 1), ("convolutional", 5), ("residual", 1), ("pooled", 4)])
def test_any_network_gives_samples(kind, seed):
    query = hard_case(kind, seed, safe=True).problem
    collector = Collector(query, PLANS["steps"], "it")
    run(query, (collector,), bounder="dual")
    samples = taken(collector)
    assert torch.equal(samples.tried, samples.scene.ambiguous)
    assert bool(samples.tried.any(dim=1).all())


# What a sample holds


class Seen(AbstractObserver):
    """Keeps the domains, and asks everything of each on its own."""

    def __init__(self, problem: Problem, bounder: AbstractBounder) -> None:
        self.problem, self.session = problem, bounder.prepare(problem)
        self.domains: list[DomainBatch] = []
        self.looks: list[AbstractLookAhead] = []
        self.session.root(0.0, NEVER)

    def seen(self, state: Any, seconds: float) -> None:
        pass

    def deciding(self, domains: DomainBatch, look: AbstractLookAhead) -> None:
        self.domains.append(domains)
        self.looks.append(look)

    def children(self, step: int, row: int, neuron: int, bound: Any) -> Tensor:
        both = split(self.domains[step][torch.tensor([row])], torch.tensor([neuron]))
        lower: Tensor = bound(both, 0.0, NEVER).domains.lower
        return torch.maximum(lower, self.domains[step].lower[row])


@pytest.mark.parametrize(
    ("plan", "bounder"), [("steps", "lp"), ("whole", "lp"), ("deep", "dual"), ("subset", "dual"), ("whole", "dual")]
)
def test_the_bounds_of_a_samples_children_are_those_found_by_splitting_by_hand(bounder, plan):
    query = long_problem()
    eyes = Seen(query, BOUNDERS[bounder])
    collector = Collector(query, PLANS[plan], "it", stop=False)
    sessions: list[AbstractSession] = []
    bounder_ = _Kept(BOUNDERS[bounder], sessions)
    search(
        Search(query, bounder_, collector.rule(CHEAP), NoAttack(), NEVER, most_bounds=600, observers=(eyes, collector))
    )
    samples, checked = taken(collector), 0
    for k, step in enumerate(samples.step.tolist()):
        domain = eyes.domains[step]
        scene = see(query, domain, relaxation_of(sessions[0], domain))
        for name, column in samples.scene[slice(k, k + 1)].named().items():
            torch.testing.assert_close(column, scene.named()[name], rtol=1e-5, atol=1e-6)
        for place, neuron in enumerate(samples.graph.neurons.tolist()):
            if not samples.tried[k, place]:
                assert plan == "subset" or not domain.bounds.ambiguous()[0, neuron]
                continue
            stored = samples.children[k, place].double()
            by_hand = eyes.children(step, 0, neuron, sessions[0].bound)
            closed = by_hand > 0
            assert torch.equal(stored > 0, closed)
            torch.testing.assert_close(stored[~closed], by_hand[~closed], rtol=1e-4, atol=1e-5)
            checked += 1
    assert checked >= 8
    assert torch.equal(
        samples.scene.depth, torch.tensor([float(eyes.domains[s].depth[0]) for s in samples.step.tolist()])
    )


class _Kept(AbstractBounder):
    """Hands out the bounder at work."""

    def __init__(self, inner: AbstractBounder, made: list[AbstractSession]) -> None:
        self._inner, self._made = inner, made

    def prepare(self, problem: Problem, witness: AbstractWitness | None = None) -> AbstractSession:
        self._made.append(self._inner.prepare(problem, witness))
        return self._made[-1]


def test_a_subset_is_tried_and_no_more():
    some = taken(collect(PLANS["subset"]))
    every = taken(collect(replace(PLANS["subset"], subset=None)))
    assert torch.equal(every.tried, every.scene.ambiguous)
    assert bool((some.tried & ~some.scene.ambiguous).logical_not().all())
    assert int(some.tried.sum()) < int(every.tried.sum())
    assert bool((some.tried.sum(dim=1) >= 2).all())
    torch.testing.assert_close(some.children[some.tried], every.children[some.tried])


def test_bounds_without_a_relaxation_give_nothing_and_say_so():
    query = long_problem()
    collector = Collector(query, Plan(whole=0.0, between=0), "it")
    search(Search(query, LinearBounds(), Longest(), NoAttack(), NEVER, observers=(collector,)))
    assert collector.collected() is None
    assert collector.unseen > 0


# Algorithm 2


@settings(deadline=None, max_examples=8)
@given(st.integers(0, 6), st.integers(1, 9), st.integers(0, 10_000))
def test_between_two_samples_lie_up_to_q_steps_and_there_are_b_of_them_at_most(between, count, seed):
    plan = Plan(samples=count, between=between, whole=0.0, seed=seed)
    collector = collect(plan)
    steps = taken(collector).step.tolist() if collector.collected() else []
    assert all(0 <= s - before - 1 <= between for before, s in pairwise([-1, *steps]))
    assert len(steps) <= count
    if len(steps) < count:  # then the search ended before the next one was due
        last = steps[-1] if steps else -1
        assert collector.steps - last - 1 <= between
        assert collector.steps == run(long_problem()).branches // 2
    assert collector.mode == "steps"


def test_every_k_from_0_to_q_is_drawn():
    gaps = set()
    for seed in range(10):
        steps = taken(collect(Plan(samples=4, between=3, whole=0.0, seed=seed), stop=True)).step.tolist()
        gaps |= {s - before - 1 for before, s in pairwise([-1, *steps])}
    assert gaps == {0, 1, 2, 3}


def test_the_search_ends_when_there_are_enough_samples():
    query, plan = long_problem(), Plan(samples=3, between=1, whole=0.0)
    collector = Collector(query, plan, "it")
    result = run(query, (collector,))
    assert (len(taken(collector)), collector.enough) == (3, True)
    assert result.verdict is Verdict.TIMEOUT
    assert result.branches == 2 * collector.steps
    assert collector.steps <= 6
    assert result.open_domains > 0  # nothing was lost by the way it ended
    assert same(taken(collector), taken(collect(plan)))


def test_a_quarter_of_the_solved_properties_is_searched_whole():
    plan = Plan()
    whole = sum(plan.mode(f"property {k}", solved=True) == "whole" for k in range(4000))
    assert abs(whole / 4000 - 0.25) < 0.03
    assert all(plan.mode(f"property {k}", solved=False) == "steps" for k in range(200))
    by_seed = sum(Plan(seed=k).mode("it", solved=True) == "whole" for k in range(4000))
    assert abs(by_seed / 4000 - 0.25) < 0.03
    assert {Plan(whole=1.0).mode(str(k), solved=True) for k in range(200)} == {"whole"}
    assert {Plan(whole=0.0).mode(str(k), solved=True) for k in range(200)} == {"steps"}
    assert {Plan(deep=True).mode(str(k), solved=True) for k in range(200)} == {"deep"}


def test_of_a_batch_one_domain_is_taken_and_not_always_the_first():
    rows = set()
    for seed in range(4):
        plan = Plan(samples=6, between=0, whole=0.0, seed=seed)
        eyes = Seen(long_problem(), BOUNDERS["lp"])
        collector = Collector(long_problem(), plan, "it", stop=False)
        run(long_problem(), (eyes, collector), batch=4)
        collected = taken(collector)
        assert collected.step.tolist() == list(range(len(collected.step)))
        for bound, step in zip(collected.scene.bound.tolist(), collected.step.tolist(), strict=True):
            all_bounds = eyes.domains[step].lower.float().tolist()
            assert bound in all_bounds
            rows.add(all_bounds.index(bound))
    assert rows == {0, 1, 2, 3}


# Deep trees


def test_deep_samples_are_spread_over_the_depths():
    shallow, deep = collect(Plan(samples=8, between=0, whole=0.0)), collect(Plan(samples=8, deep=True, growth=1.05))
    at = taken(deep).scene.depth
    assert (len(at), deep.mode, deep.enough) == (8, "deep", False)
    assert deep.steps == run(long_problem()).branches // 2  # to the very end
    assert float(at.max()) > float(taken(shallow).scene.depth.max())
    assert len(at.unique()) >= 5
    step = taken(deep).step
    assert bool((step.diff() > 0).all())
    assert int(step[-1]) > deep.steps / 2


def test_deep_samples_lie_ever_further_apart():
    step = taken(collect(Plan(samples=1000, deep=True, growth=1.5))).step.tolist()
    gaps = [b - a for a, b in pairwise(step)]
    assert step[0] == 0
    assert max(gaps) > 3 * gaps[0]
    assert len(step) < collect(Plan(samples=1000, deep=True)).steps / 2


def test_a_deep_plan_takes_as_much_of_large_steps_as_of_small_ones():
    one, eight = (taken(collect(Plan(samples=1000, deep=True, growth=1.2), batch=batch)) for batch in (1, 8))
    assert 0.6 < len(eight.step) / len(one.step) < 1.6
    assert len(eight.step.unique()) < len(eight.step)
    eyes = Seen(long_problem(), BOUNDERS["lp"])
    run(long_problem(), (eyes,), batch=8)
    for step in eight.step.unique().tolist():  # no domain is taken twice
        chosen_bounds = eight.scene.bound[eight.step == step]
        all_bounds = eyes.domains[step].lower.float()
        assert all(int((chosen_bounds == bound).sum()) <= int((all_bounds == bound).sum()) for bound in chosen_bounds)


# It can be repeated


@pytest.mark.parametrize(
    ("plan", "bounder"), [("steps", "dual"), ("whole", "lp"), ("whole", "dual"), ("deep", "lp"), ("subset", "lp")]
)
def test_the_same_seed_and_name_give_the_same_samples(plan, bounder):
    again = taken(collect(PLANS[plan], bounder=bounder))
    assert same(taken(collect(PLANS[plan], bounder=bounder)), again)
    if plan != "whole":  # in which nothing is drawn but the mode
        others = [taken(collect(replace(PLANS[plan], seed=seed), bounder=bounder, stop=True)) for seed in (1, 2)]
        assert not all(same(other, again) for other in others)
        others = [taken(collect(PLANS[plan], name, bounder=bounder, stop=True)) for name in "ab"]
        assert not all(same(other, again) for other in others)


def test_the_order_of_the_properties_does_not_matter():
    plan, names = Plan(samples=3, between=4, whole=0.5), [f"property {k}" for k in range(4)]
    forth = {name: taken(collect(plan, name, stop=True)) for name in names}
    back = {name: taken(collect(plan, name, stop=True)) for name in reversed(names)}
    assert all(same(forth[name], back[name]) for name in names)


@pytest.mark.parametrize(
    "wrong", [{"samples": 0}, {"between": -1}, {"whole": 1.5}, {"whole": float("nan")}, {"growth": 1.0}]
)
def test_a_plan_that_makes_no_sense_is_refused(wrong):
    with pytest.raises(BadInput, match="give a"):
        Plan(**wrong)


def test_the_usual_plan_is_the_papers():
    assert (Plan().samples, Plan().between, Plan().whole) == (20, 10, 0.25)
    assert isinstance(Collector(long_problem(), Plan(whole=0.0), "it").rule(Filtered()), Filtered)
