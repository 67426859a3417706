"""A bounder that was used before gives what a fresh one gives (the paper's authors' code does not, facts 2.5)."""

from collections import Counter
from dataclasses import replace

import numpy as np
import pytest
import torch
from tests.support import KINDS, box_around, generator, integer, problem, random_clause

from bough.bounds.base import AbstractSession
from bough.bounds.intermediate import AbstractIntermediate, PaperBounds, TightBounds
from bough.bounds.lp import BasisNumbers, PlanetLP
from bough.budget import Deadline
from bough.domain.batch import DomainBatch, split

NEVER = Deadline.never()
POLICIES: tuple[AbstractIntermediate, ...] = (PaperBounds(), TightBounds(refresh=True), TightBounds(refresh=False))


def children(g: torch.Generator, domain: DomainBatch) -> DomainBatch:
    return split(domain, torch.multinomial(domain.bounds.ambiguous().double(), 1, generator=g)[:, 0])


def same(a: DomainBatch, b: DomainBatch) -> None:
    assert a.lower.shape == b.lower.shape
    for x, y in zip(a.lower.tolist(), b.lower.tolist(), strict=True):
        assert x == y or abs(x - y) <= 1e-7 * (1 + abs(x)), (x, y)
    torch.testing.assert_close(a.bounds.lower, b.bounds.lower, rtol=1e-9, atol=1e-9)
    torch.testing.assert_close(a.bounds.upper, b.bounds.upper, rtol=1e-9, atol=1e-9)


@pytest.mark.parametrize("policy", POLICIES, ids=str)
@pytest.mark.parametrize(("kind", "seed"), [("dense", 0), ("convolutional", 0), ("residual", 0), ("pooled", 1)])
def test_jumping_between_domains_changes_no_bound(kind, seed, policy):
    """One model hops between distant domains of two clauses and two boxes; a fresh model bounds each of them alone."""
    tally: Counter[str] = Counter()
    g = generator(seed)
    network = KINDS[kind](g)
    boxes = [box_around(g, network.inputs) for _ in range(2)]
    clauses = [random_clause(g, network.outputs, integer(g, 1, 3), k % 2) for k in range(3)]
    query = problem(network, boxes, clauses)
    used = PlanetLP(policy).prepare(query)
    root = used.root(np.inf, NEVER).domains
    open_ = [root[torch.tensor([k])] for k in range(len(root))]
    for step in range(16):
        able = [d for d in open_ if bool(d.bounds.ambiguous().any()) and bool(torch.isfinite(d.lower))]
        if not able:
            break
        # In turn one of the deepest, where domains get empty, and any one.
        batch = children(g, able[integer(g, 0, len(able) - 1) if step % 2 else -1])
        bounded = used.bound(batch, np.inf, NEVER).domains
        fresh: AbstractSession = PlanetLP(policy).prepare(query)
        same(bounded, fresh.bound(batch, np.inf, NEVER).domains)
        # One child alone, without the parent's basis, on the used model: nothing depends on the way there.
        alone = torch.tensor([step % 2])
        cold = replace(batch[alone], start=BasisNumbers(torch.zeros(1, dtype=torch.int64)))
        same(bounded[alone], used.bound(cold, np.inf, NEVER).domains)
        open_ += [bounded[torch.tensor([k])] for k in range(2)]
        tally["children"] += 2
        tally["empty"] += int(torch.isinf(bounded.lower).sum())
    # At the end, the first domains again: nothing of the later ones may linger.
    same(root, used.root(np.inf, NEVER).domains)
    print(kind, policy, dict(tally))  # noqa: T201 - pytest shows it on demand
    assert tally["children"] >= 24
    assert tally["empty"] > 0


@pytest.mark.parametrize("policy", POLICIES, ids=str)
def test_a_batch_is_bounded_as_its_domains_are_alone(policy):
    for kind in KINDS:
        g = generator(7)
        network = KINDS[kind](g)
        boxes = [box_around(g, network.inputs) for _ in range(2)]
        query = problem(network, boxes, [random_clause(g, network.outputs, 2, k) for k in range(2)])
        bounding = PlanetLP(policy).prepare(query)
        domains = bounding.root(np.inf, NEVER).domains
        for _ in range(3):
            domains = domains[domains.bounds.ambiguous().any(dim=1) & torch.isfinite(domains.lower)]
            if not len(domains):
                break
            batch = children(g, domains)
            together = bounding.bound(batch, np.inf, NEVER).domains
            each = [bounding.bound(batch[torch.tensor([k])], np.inf, NEVER).domains for k in range(len(batch))]
            same(together, DomainBatch.concatenate(each))
            domains = together
