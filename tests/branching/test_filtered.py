"""FSB and kFSB: the candidates are the scores' best, the choice is the best of them by its worse child, all of it
counted.
"""

import numpy as np
import pytest
import torch
from tests.support import Judged, hard_case
from torch import Tensor

from bough.bounds.base import AbstractBounder, AbstractBounding
from bough.bounds.dual import DualAscent
from bough.bounds.lp import PlanetLP
from bough.branching.babsr import local_bias, scores
from bough.branching.base import LookAhead
from bough.branching.filtered import Filtered
from bough.budget import Deadline
from bough.domain.batch import DomainBatch, split
from bough.falsify.base import NoAttack
from bough.search.loop import Counted, Search, search
from bough.verdict.result import Verdict

NEVER = Deadline.never()
BOUNDERS = {"lp": PlanetLP(), "dual": DualAscent()}
RULES = [Filtered(), Filtered(best=1), Filtered(best=3)]


def some(kind: str, seed: int, bounder: AbstractBounder) -> tuple[AbstractBounding, DomainBatch]:
    """A bounder at work, and open domains at depth two."""
    case = hard_case(kind, seed, safe=True)
    bounding = bounder.prepare(case.problem)
    domains = bounding.root(np.inf, NEVER).domains
    for _ in range(2):
        domains = split(domains, domains.bounds.ambiguous().int().argmax(dim=1))
        domains = bounding.bound(domains, np.inf, NEVER).domains
        live = torch.isfinite(domains.lower) & domains.bounds.ambiguous().any(dim=1)
        domains = bounding.unpack(bounding.pack(domains[live]))
    return bounding, domains


def proposed(kind: str, seed: int, domains: DomainBatch, d: int, best: int | None) -> list[int]:
    """The candidates of one domain, by loops."""
    network = hard_case(kind, seed, safe=True).problem.network
    found = scores(network, local_bias(network), domains, worse_side=True)
    open_ = domains.bounds.ambiguous()[d].tolist()
    s, t = found.score[d].tolist(), found.intercept[d].tolist()
    chosen = []
    for by in (s, [-v for v in t]):
        parts = [range(p.start, p.stop) for p in network.slices.values()] if best is None else [range(len(s))]
        for part in parts:
            order = sorted((k for k in part if open_[k]), key=lambda k: -by[k])
            chosen += order[: best or 1]
    return chosen


@pytest.mark.parametrize("rule", RULES, ids=str)
@pytest.mark.parametrize("kind", ["dense", "residual"])
def test_the_choice_is_the_candidate_whose_worse_child_is_best(kind, rule):
    """Estimates are a fixed table here, so that the loop and the rule see the same numbers."""
    compared = 0
    for seed in (1, 5, 9):
        _, domains = some(kind, seed, BOUNDERS["lp"])
        memory = rule.prepare(hard_case(kind, seed, safe=True).problem)
        table = torch.rand(len(domains), domains.signs.shape[1], 2, generator=torch.Generator().manual_seed(seed))

        def estimate(asked: DomainBatch, neurons: Tensor, table: Tensor = table) -> Tensor:
            return table.gather(1, neurons[..., None].expand(-1, -1, 2))

        chosen = rule.decide(memory, domains, LookAhead(estimate)).neurons
        assert chosen.shape == (len(domains), 1)
        for d in range(len(domains)):
            candidates = proposed(kind, seed, domains, d, rule.best)
            best = max(float(table[d, k].min()) for k in candidates)
            assert float(table[d, int(chosen[d])].min()) == best
            assert int(chosen[d]) in candidates
            assert bool(domains.bounds.ambiguous()[d, int(chosen[d])])
            compared += len(set(candidates)) > 1
    assert compared >= 3


@pytest.mark.parametrize("name", BOUNDERS)
@pytest.mark.parametrize("rule", RULES, ids=str)
def test_the_choice_by_a_bounders_own_estimates(name, rule):
    """The same with one candidate at a time asked of the bounder: the LP's bounds, or a step of ascent."""
    for kind, seed in (("dense", 5), ("residual", 4)):
        bounding, domains = some(kind, seed, BOUNDERS[name])
        counted = Counted(bounding, NEVER)
        chosen = rule.decide(rule.prepare(hard_case(kind, seed, safe=True).problem), domains, LookAhead(counted))
        assert counted.count > 0
        for d in range(len(domains)):
            alone = domains[torch.tensor([d])]
            worse = {
                k: float(bounding.estimate(alone, torch.tensor([[k]]), NEVER).min())
                for k in proposed(kind, seed, domains, d, rule.best)
            }
            best = max(worse.values())
            picked = worse[int(chosen.neurons[d])]
            assert picked == best or picked >= best - 1e-3 * (1 + abs(best))


def test_estimates_of_the_lp_are_the_childrens_bounds():
    bounding, domains = some("dense", 5, PlanetLP(early_stop=False))
    candidates = domains.bounds.ambiguous().int().topk(2, dim=1).indices
    found = bounding.estimate(domains, candidates, NEVER)
    assert found.shape == (len(domains), 2, 2)
    for c in range(2):
        children = bounding.bound(split(domains, candidates[:, c]), np.inf, NEVER).domains.lower.reshape(-1, 2)
        close = (found[:, c] - children).abs() <= 1e-6 * (1 + children.abs())
        assert bool((close | (found[:, c] == children)).all())


def test_estimates_of_ascent_are_no_higher_than_the_childrens_exact_bounds():
    """One step of ascent is a bound, but for its rounding."""
    bounding, domains = some("dense", 5, DualAscent())
    ambiguous = domains.bounds.ambiguous()
    candidates = ambiguous.int().topk(2, dim=1).indices
    found = bounding.estimate(domains, candidates, NEVER)
    case = hard_case("dense", 5, safe=True)
    for d in range(len(domains)):
        for c, (side, sign) in ((c, s) for c in range(2) for s in enumerate((-1, 1))):
            if not bool(ambiguous[d, candidates[d, c]]):
                continue
            signs = domains.signs[d].clone()
            signs[candidates[d, c]] = sign
            truth = case.least_in(int(domains.clause[d]), signs.tolist())
            assert float(found[d, c, side]) <= truth + 1e-3 * (1 + abs(truth))


@pytest.mark.parametrize("rule", [Filtered(), Filtered(best=3)], ids=str)
@pytest.mark.parametrize("name", BOUNDERS)
def test_look_ahead_is_counted_as_bounds(name, rule):
    for seed, batch in ((5, 1), (1, 4)):
        case = hard_case("dense", seed, safe=True)
        judged = Judged(BOUNDERS[name], case)
        result = search(Search(case.problem, judged, rule, NoAttack(), NEVER, batch=batch))
        assert result.verdict is Verdict.VERIFIED
        assert judged.seen["estimates"] > 0
        assert result.bounds == judged.seen["domains"] + judged.seen["estimates"]
        assert judged.seen["domains"] == result.branches + len(case.problem.clauses)


def test_several_levels_are_several_relus():
    _, domains = some("dense", 1, BOUNDERS["lp"])
    domains = domains[domains.bounds.ambiguous().sum(dim=1) >= 3]
    assert len(domains)
    rule = Filtered(best=3)
    values = torch.rand(len(domains), domains.signs.shape[1], 2)
    look = LookAhead(lambda _, n: values.gather(1, n[..., None].expand(-1, -1, 2)), levels=3)
    chosen = rule.decide(rule.prepare(hard_case("dense", 1, safe=True).problem), domains, look).neurons
    assert chosen.shape == (len(domains), 3)
    assert bool(domains.bounds.ambiguous().gather(1, chosen).all())
    assert all(len(set(row)) == 3 for row in chosen.tolist())
    worse = values.min(dim=2).values.gather(1, chosen)
    assert bool((worse.diff(dim=1) <= 0).all())  # best first
