"""FSB and kFSB: the candidates are the scores' best, the choice is the best by its children, all of it counted."""

import math
from collections.abc import Callable
from dataclasses import replace
from functools import partial

import numpy as np
import pytest
import torch
from tests.support import Judged, ToldLookAhead, hard_case
from torch import Tensor

from bough.bounds.base import AbstractBounder, AbstractSession
from bough.bounds.dual import DualAscent
from bough.bounds.lp import PlanetLP
from bough.branching.babsr import local_bias, scores
from bough.branching.filtered import Filtered
from bough.budget import Deadline
from bough.domain.batch import DomainBatch, split
from bough.falsify.base import NoAttack
from bough.problem.problem import Problem
from bough.search.ahead import CountedLookAhead
from bough.search.loop import Search, search
from bough.verdict.result import Verdict

NEVER = Deadline.never()
BOUNDERS = {"lp": PlanetLP(), "dual": DualAscent()}
RULES = [Filtered(best, product) for best in (None, 1, 3) for product in (False, True)]


def some(kind: str, seed: int, bounder: AbstractBounder) -> tuple[AbstractSession, DomainBatch]:
    """A bounder at work, and open domains at depth two."""
    case = hard_case(kind, seed, safe=True)
    session = bounder.prepare(case.problem)
    domains = session.root(np.inf, NEVER).domains
    for _ in range(2):
        domains = split(domains, domains.bounds.ambiguous().int().argmax(dim=1))
        domains = session.bound(domains, np.inf, NEVER).domains
        live = torch.isfinite(domains.lower) & domains.bounds.ambiguous().any(dim=1)
        domains = session.unpack(session.pack(domains[live]))
    return session, domains


class Noted:
    """A look-ahead that remembers which candidates it was asked about."""

    def __init__(self, inner: Callable[[DomainBatch, Tensor], Tensor]) -> None:
        self._inner, self.candidates = inner, torch.zeros(0)

    def __call__(self, domains: DomainBatch, neurons: Tensor) -> Tensor:
        self.candidates = neurons
        return self._inner(domains, neurons)


def check_candidates(problem: Problem, domains: DomainBatch, candidates: Tensor, best: int | None) -> None:
    """By loops: of each layer (or of all, k of them) those with the highest score, then those with the lowest
    intercept; which of equals does not matter.
    """
    network = problem.network
    computed = scores(network, local_bias(network), domains, worse_side=True)
    parts = [range(p.start, p.stop) for p in network.slices.values()] if best is None else [range(network.neurons)]
    count = 1 if best is None else min(best, network.neurons)
    assert candidates.shape == (len(domains), 2 * count * len(parts))
    for d, row in enumerate(candidates.tolist()):
        open_ = domains.bounds.ambiguous()[d].tolist()
        for by in (computed.score[d].tolist(), (-computed.intercept[d]).tolist()):
            for part in parts:
                candidate_scores = sorted((by[n] for n in set(row) if open_[n] and n in part), reverse=True)
                assert candidate_scores[:count] == sorted((by[n] for n in part if open_[n]), reverse=True)[:count]


def looked_up(table: Tensor, domains: DomainBatch, neurons: Tensor) -> Tensor:
    """Estimates from a table [domains, neurons, 2], of ReLUs that can be split."""
    possible = domains.bounds.ambiguous()[..., None].expand(-1, -1, 2)
    return table.masked_fill(~possible, -torch.inf).gather(1, neurons[..., None].expand(-1, -1, 2))


def merit(rule: Filtered, children: Tensor, parent: float) -> float:
    """The worse child's value; or the product of what both gain of the way to 0, each at least a ten thousandth."""
    if not rule.product:
        return float(children.min())
    way = max(-parent, 1e-12)
    return sum(math.log(max((min(float(c), 0.0) + way) / way, 1e-4)) for c in children)


def check_choice(
    rule: Filtered,
    domains: DomainBatch,
    candidates: Tensor,
    children: Callable[[tuple[int, int]], Tensor],
    chosen: Tensor,
) -> int:
    """By loops: the candidate of most merit; how often there was a choice."""
    choices = 0
    for d, row in enumerate(candidates.tolist()):
        open_ = [n for n in row if bool(domains.bounds.ambiguous()[d, n])]
        values = {n: merit(rule, children((d, n)), float(domains.lower[d])) for n in open_}
        best, picked = max(values.values()), values[int(chosen[d])]
        assert picked == best or picked >= best - 1e-3 * (1 + abs(best))
        choices += len(set(values.values())) > 1
    return choices


@pytest.mark.parametrize("rule", RULES, ids=str)
@pytest.mark.parametrize("kind", ["dense", "residual"])
def test_the_choice_is_the_candidate_whose_children_are_best(kind, rule):
    """Estimates are a fixed table here, so that the loop and the rule see the same numbers."""
    choices = 0
    for seed in (1, 5, 9):
        problem = hard_case(kind, seed, safe=True).problem
        _, domains = some(kind, seed, BOUNDERS["lp"])
        domains = replace(domains, lower=torch.full_like(domains.lower, -1.0))
        table = torch.rand(len(domains), domains.signs.shape[1], 2, generator=torch.Generator().manual_seed(seed)) - 1.1
        look = Noted(partial(looked_up, table))
        chosen = rule.decide(rule.prepare(problem), domains, ToldLookAhead(look)).neurons
        assert chosen.shape == (len(domains),)
        check_candidates(problem, domains, look.candidates, rule.best)
        choices += check_choice(rule, domains, look.candidates, table.__getitem__, chosen)
    assert choices >= 3


@pytest.mark.parametrize("name", BOUNDERS)
@pytest.mark.parametrize("rule", RULES, ids=str)
def test_the_choice_by_a_bounders_own_estimates(name, rule):
    """The same with one candidate at a time asked of the bounder: the LP's bounds, or a step of ascent."""
    choices = 0
    for kind, seed in (("dense", 5), ("residual", 4)):
        problem = hard_case(kind, seed, safe=True).problem
        session, domains = some(kind, seed, BOUNDERS[name])
        ahead = CountedLookAhead(session, NEVER, domains)
        look = Noted(ahead.estimate)
        chosen = rule.decide(rule.prepare(problem), domains, ToldLookAhead(look)).neurons

        def children(at: tuple[int, int], ahead: CountedLookAhead = ahead) -> Tensor:
            return ahead.estimate(ahead.domains[torch.tensor(at[:1])], torch.tensor([at[1:]]))[0, 0]

        choices += check_choice(rule, domains, look.candidates, children, chosen)
    assert choices >= 2


def test_estimates_of_the_lp_are_the_childrens_bounds():
    session, domains = some("dense", 5, PlanetLP(early_stop=False))
    candidates = domains.bounds.ambiguous().int().topk(2, dim=1).indices
    estimates = CountedLookAhead(session, NEVER, domains).estimate(domains, candidates)
    assert estimates.shape == (len(domains), 2, 2)
    for c in range(2):
        children = session.bound(split(domains, candidates[:, c]), np.inf, NEVER).domains.lower.reshape(-1, 2)
        close = (estimates[:, c] - children).abs() <= 1e-6 * (1 + children.abs())
        assert bool((close | (estimates[:, c] == children)).all())


def test_estimates_of_ascent_are_no_higher_than_the_childrens_exact_bounds():
    """One step of ascent is a bound, but for its rounding."""
    session, domains = some("dense", 5, DualAscent())
    ambiguous = domains.bounds.ambiguous()
    candidates = ambiguous.int().topk(2, dim=1).indices
    estimates = CountedLookAhead(session, NEVER, domains).estimate(domains, candidates)
    case = hard_case("dense", 5, safe=True)
    for d in range(len(domains)):
        for c, (side, sign) in ((c, s) for c in range(2) for s in enumerate((-1, 1))):
            if not bool(ambiguous[d, candidates[d, c]]):
                continue
            signs = domains.signs[d].clone()
            signs[candidates[d, c]] = sign
            truth = case.least_in(int(domains.clause[d]), signs.tolist())
            assert float(estimates[d, c, side]) <= truth + 1e-3 * (1 + abs(truth))


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


def test_several_that_are_ranked_are_several_relus():
    _, domains = some("dense", 1, BOUNDERS["lp"])
    domains = domains[domains.bounds.ambiguous().sum(dim=1) >= 3]
    assert len(domains)
    rule = Filtered(best=3, product=False)
    values = torch.rand(len(domains), domains.signs.shape[1], 2)
    look = ToldLookAhead(partial(looked_up, values))
    chosen = rule.rank(rule.prepare(hard_case("dense", 1, safe=True).problem), domains, look, 3)
    assert chosen.shape == (len(domains), 3)
    assert bool(domains.bounds.ambiguous().gather(1, chosen).all())
    assert all(len(set(row)) == 3 for row in chosen.tolist())
    worse = values.min(dim=2).values.gather(1, chosen)
    assert bool((worse.diff(dim=1) <= 0).all())  # best first
