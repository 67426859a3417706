"""Trees below splits: as large as a search makes them, given up when they are to be, and what is learnt from them."""

import math
import random
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import Any

import pytest
import torch
from tests.learning.test_labels import long_problem
from tests.learning.tiny import BOUNDERS, NEVER
from tests.support import hard_case
from torch import Tensor

from bough.branching.base import AbstractBrancher
from bough.branching.filtered import Filtered
from bough.branching.widest import Widest
from bough.budget import Deadline
from bough.domain.batch import DomainBatch
from bough.errors import BadInput
from bough.falsify.base import NoAttack
from bough.learning.labels import LEAST, Plan
from bough.learning.rollouts import PATIENCE, Grower, Rolled, Tree, roll_out, spread
from bough.learning.samples import Samples
from bough.problem.problem import Problem
from bough.search.loop import Search, search
from bough.verdict.result import Verdict

# It says the same of a domain whenever it is asked, so that its trees do not depend on the order.
RULE: AbstractBrancher[Any] = Widest()


def grower(problem: Problem, bounds: str = "dual", batch: int = 5, rule: AbstractBrancher[Any] = RULE) -> Grower:
    return Grower(BOUNDERS[bounds].prepare(problem), rule, rule.prepare(problem), batch, NEVER)


def grown(problem: Problem, most: float = math.inf, **more: Any) -> tuple[Grower, Tree]:
    growing = grower(problem, **more)
    return growing, growing.tree(growing.session.root(0.0, NEVER).domains, most)


@lru_cache
def long_tree() -> tuple[Grower, Tree]:
    return grown(long_problem())


def by_hand(growing: Grower, domain: DomainBatch, neuron: int) -> int:
    """One domain at a time."""
    session, size = growing.session, 2
    children = session.bound(session.split(domain, torch.tensor([neuron])), 0.0, NEVER).domains
    for k in range(2):
        child = session.unpack(session.pack(children[torch.tensor([k])]))
        if not bool(child.lower > 0) and bool(session.splittable(child).any()):
            size += by_hand(growing, child, int(RULE.decide(RULE.prepare(long_problem()), child).neurons))
    return size


@pytest.mark.parametrize("bounds", BOUNDERS)
@pytest.mark.parametrize(("kind", "seed"), [("dense", 1), ("dense", 4), ("residual", 4), ("convolutional", 2)])
def test_a_tree_is_as_large_as_the_search_makes_it(kind, seed, bounds):
    problem = hard_case(kind, seed, safe=True).problem
    result = search(Search(problem, BOUNDERS[bounds], RULE, NoAttack(), NEVER))
    assert result.verdict is Verdict.VERIFIED
    for batch in (1, 7):
        _, tree = grown(problem, bounds=bounds, batch=batch)
        roots = tree.domains.depth == 0
        assert float(tree.sizes[roots].sum()) == result.branches
        assert bool(tree.whole.all())


def test_sizes_add_up():
    growing, tree = long_tree()
    assert len(tree.sizes) > 20
    assert float(tree.sizes[0]) == 2 * len(tree.sizes)  # every domain of it was split once
    for row in (0, 3, len(tree.sizes) // 2):
        domain = tree.domains[torch.tensor([row])]
        neuron = int(RULE.decide(RULE.prepare(long_problem()), domain).neurons)
        assert float(tree.sizes[row]) == by_hand(growing, domain, neuron)


def test_trees_below_other_splits():
    """All at once, and in pieces."""
    growing, tree = long_tree()
    rows = torch.tensor([1, 2, 2, 5, 9])
    domains = tree.domains[rows]
    splittable = growing.session.splittable(domains)
    neurons = torch.stack([may.nonzero()[:, 0][-1 - k % 2] for k, may in enumerate(splittable)])
    expected = [by_hand(growing, domains[torch.tensor([k])], int(n)) for k, n in enumerate(neurons)]
    plenty = torch.full((5,), 1e9, dtype=torch.float64)
    for batch in (2, 100):
        assert replace(growing, batch=batch).sizes(domains, neurons, plenty).tolist() == expected
    exactly = torch.tensor(expected, dtype=torch.float64)
    assert growing.sizes(domains, neurons, exactly).tolist() == expected
    given_up = growing.sizes(domains, neurons, exactly - 1).tolist()
    assert given_up == [math.inf] * 5


def test_a_tree_that_is_too_large_says_what_is_whole():
    _, tree = grown(long_problem(), most=20, batch=2)
    assert not bool(tree.whole[0])
    assert float(tree.sizes[0]) <= 24
    whole, part = long_tree()[1], tree
    assert len(part.sizes) < len(whole.sizes)
    assert bool(part.whole.any())  # the last come first, so small trees are finished


def test_nothing_to_split_is_an_empty_tree():
    problem = hard_case("dense", 1, safe=True).problem
    growing = grower(problem)
    root = growing.session.root(0.0, NEVER).domains
    tree = growing.tree(replace(root, lower=torch.ones_like(root.lower)), 100)
    assert len(tree.sizes) == 0
    assert len(spread(tree, 4, 256, random.Random(0))) == 0


def test_samples_are_spread_over_sizes():
    domains = long_tree()[1].domains
    sizes = torch.tensor([2.0, 300, 8, 8, 8, 8, 8, 40, 200, 9, 6])
    whole = torch.ones(11, dtype=torch.bool)
    whole[8] = False
    rows = spread(Tree(domains, sizes, whole), 4, 256, random.Random(1)).tolist()
    assert len(set(rows)) == 4
    assert {7, 10} <= set(rows)  # each alone of its size
    assert not {0, 1, 8} & set(rows)  # too small, too large, not finished
    assert rows == spread(Tree(domains, sizes, whole), 4, 256, random.Random(1)).tolist()
    assert len(spread(Tree(domains, sizes, whole), 99, 256, random.Random(1))) == 8
    assert len(spread(Tree(domains, sizes, whole), 99, 20, random.Random(1))) == 7  # without that of 40


def rolled_out(rule: AbstractBrancher[Any], deadline: Deadline = NEVER) -> Rolled:
    growing = replace(grower(long_problem(), batch=8, rule=rule), deadline=deadline)
    return roll_out(long_problem(), "it", Plan(samples=6, rollouts=3), growing, 1000)


@dataclass(frozen=True, eq=False)
class Found:
    """What was collected, known to be there."""

    samples: Samples
    sizes: Tensor
    allowed: Tensor
    rows: list[int]


@lru_cache
def collected(rule: AbstractBrancher[Any]) -> Found:
    rolled = rolled_out(rule)
    assert rolled.ended == "whole"
    samples = rolled.samples
    assert samples is not None
    assert samples.sizes is not None
    assert samples.allowed is not None
    return Found(samples, samples.sizes, samples.allowed, samples.step.tolist())


@pytest.mark.parametrize("rule", [RULE, Filtered(product=False)], ids=["widest", "fsb"])
def test_a_sample_holds_the_trees_below_what_the_rule_ranks_first(rule):
    result = collected(rule)
    assert 1 <= len(result.samples) <= 6
    assert not bool((result.samples.children > -torch.inf).any())
    known = result.sizes.isfinite()
    assert torch.equal(known, result.samples.tried)
    assert int(known.sum(dim=1).max()) <= 3
    assert bool((known <= result.samples.scene.ambiguous).all())
    assert bool((result.sizes[known] >= 2).all())
    assert bool((result.sizes <= result.allowed[:, None])[known].all())
    assert PATIENCE * LEAST <= float(result.allowed.min()) <= float(result.allowed.max()) <= PATIENCE * 256


def test_the_rules_own_choice_has_its_own_tree():
    result, (growing, tree) = collected(RULE), grown(long_problem(), batch=8)
    for sample, row in enumerate(result.rows):
        first = int(growing.ranked(tree.domains[torch.tensor([row])], 1))
        at = result.samples.graph.neurons.tolist().index(first)
        assert float(result.sizes[sample, at]) == float(tree.sizes[row])
        assert float(result.allowed[sample]) == PATIENCE * float(tree.sizes[row])


def test_worth_is_the_least_tree_over_each():
    some = collected(RULE).samples[:1]
    ambiguous = some.scene.ambiguous[0].nonzero()[:, 0].tolist()
    sizes = torch.full_like(some.scene.lower, math.inf)
    sizes[0, ambiguous[0]], sizes[0, ambiguous[1]] = 10.0, 25.0
    worth = replace(some, sizes=sizes, allowed=torch.tensor([40.0])).improvements("size")[0]
    assert worth[ambiguous[:3]].tolist() == pytest.approx([1.0, 0.4, 0.25])  # the third was not tried
    assert bool((worth[~some.scene.ambiguous[0]] == -torch.inf).all())
    with pytest.raises(BadInput, match="--rollouts"):
        Samples(some.graph, some.scene, some.children, some.step).improvements("size")


def test_out_of_time_gives_no_samples():
    rolled = rolled_out(RULE, Deadline.after(0.0))
    assert rolled.samples is None
    assert rolled.ended == "timeout"


@pytest.mark.parametrize(
    ("wrong", "why"),
    [
        ({"rollouts": 1}, "below 1 ReLUs"),
        ({"rollouts": -2}, "below -2 ReLUs"),
        ({"rollouts": 4, "largest": 5}, "of up to 5 branches"),
        ({"rollouts": 4, "deep": True}, "give no other plan"),
    ],
)
def test_plans_that_make_no_sense(wrong, why):
    with pytest.raises(BadInput, match=why):
        Plan(**wrong)
