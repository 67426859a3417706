"""The random rule picks ambiguous ReLUs only, all of them alike, and the same ones for the same seed."""

from typing import Any

import torch
from tests.support import domains_of, hard_case, tensor

from bough.bounds.lp import PlanetLP
from bough.branching.base import BLIND, AbstractBrancher, AbstractLookAhead, Decision
from bough.branching.random import RandomChoice
from bough.budget import Deadline
from bough.domain.batch import Bounds, DomainBatch
from bough.falsify.base import NoAttack
from bough.problem.problem import Problem
from bough.search.loop import Search, search


class Recorded(AbstractBrancher[Any]):
    def __init__(self, seed: int) -> None:
        self.inner, self.chosen = RandomChoice(seed), list[int]()

    def prepare(self, problem: Problem) -> object:
        return self.inner.prepare(problem)

    def decide(self, memory: Any, domains: DomainBatch, look: AbstractLookAhead = BLIND) -> Decision[Any]:
        decision = self.inner.decide(memory, domains, look)
        assert decision.neurons.shape == (len(domains),)
        assert bool(domains.bounds.ambiguous().gather(1, decision.neurons[:, None]).all())
        self.chosen += decision.neurons.tolist()
        return decision


def test_the_same_seed_gives_the_same_tree_and_another_seed_another():
    trees = []
    for seed in (3, 3, 4):
        case, brancher = hard_case("dense", 1, safe=True), Recorded(seed)
        result = search(Search(case.problem, PlanetLP(), brancher, NoAttack(), Deadline.never(), batch=2))
        trees.append((brancher.chosen, result.branches, result.lower_bound))
    assert len(trees[0][0]) > 10
    assert trees[0] == trees[1]
    assert trees[0][0] != trees[2][0]


def test_every_ambiguous_relu_is_as_likely_and_no_other_is_chosen():
    count = 3000
    lower, upper = tensor([[-1.0, 0.0, -1.0, -2.0, -1e-9, 1.0]]), tensor([[1.0, 1.0, 0.0, 1.0, 1e-9, 2.0]])
    bounds = Bounds(lower.expand(count, -1), upper.expand(count, -1))
    domains = domains_of(bounds, torch.ones(1, 1).double())
    rule = RandomChoice(0)
    case = hard_case("dense", 4, safe=True)
    chosen = rule.decide(rule.prepare(case.problem), domains).neurons
    counts = torch.bincount(chosen, minlength=6)
    assert counts[[1, 2, 5]].tolist() == [0, 0, 0]
    assert all(abs(n - count / 3) < 5 * (count * 2 / 9) ** 0.5 for n in counts[[0, 3, 4]].tolist())
