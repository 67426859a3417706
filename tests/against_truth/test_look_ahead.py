"""Children that a rule had bounded before it decided replace none but their own: together they still cover the step."""

from collections import Counter

import pytest
import torch
from tests.learning.tiny import BOUNDERS, NEVER, open_domains
from tests.support import hard_case

from bough.domain.batch import DomainBatch, split
from bough.search.ahead import CountedLookAhead


def named(domains: DomainBatch) -> Counter[tuple[int, ...]]:
    """Domains by clause and signs, which say what part of the box each is."""
    return Counter((int(c), *s) for c, s in zip(domains.clause, domains.signs.tolist(), strict=True))


@pytest.mark.parametrize("bounds", BOUNDERS)
def test_kept_children_are_those_of_their_own_parents(bounds):
    """Some parents take the ReLU that was looked at, some another: none may be handed its neighbour's children."""
    mixed = 0
    for kind, seed in (("dense", 5), ("dense", 0), ("residual", 4)):
        problem = hard_case(kind, seed, safe=True).problem
        bounding, domains = open_domains(problem, BOUNDERS[bounds], depth=3)
        ambiguous, count = domains.bounds.ambiguous(), len(domains)
        first = ambiguous.int().argmax(dim=1)
        last = ambiguous.shape[1] - 1 - ambiguous.flip(1).int().argmax(dim=1)
        for takes in (torch.arange(count) % 2 == 1, torch.arange(count) > 0, torch.arange(count) == count - 1):
            ahead = CountedLookAhead(bounding, NEVER, domains)
            every = torch.arange(count)
            ahead.children(every, first)
            ahead.children(every[1:], last[1:])
            chosen = torch.where(takes, first, last)
            bounded, order = ahead.split(chosen)
            assert named(bounded.domains) == named(split(domains[order], chosen[order]))
            mixed += int(bool(takes.any()) and bool((first != last).any()))
    assert mixed >= 3


@pytest.mark.parametrize("bounds", BOUNDERS)
def test_children_that_are_all_kept_stay_with_their_parents(bounds):
    problem = hard_case("dense", 5, safe=True).problem
    bounding, domains = open_domains(problem, BOUNDERS[bounds], depth=3)
    first, rows = domains.bounds.ambiguous().int().argmax(dim=1), torch.arange(len(domains)).flip(0)
    ahead = CountedLookAhead(bounding, NEVER, domains)
    ahead.children(rows, first[rows])
    bounded, order = ahead.split(first)
    assert torch.equal(bounded.domains.signs, split(domains[order], first[order]).signs)
    assert sorted(order.tolist()) == list(range(len(domains)))
