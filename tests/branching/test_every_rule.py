"""What holds of every rule that has a name: it splits what can be split, it sees each domain by itself, and the search
that it leads ends with enumeration's verdict.
"""

from dataclasses import replace
from functools import cache, partial
from typing import Any

import numpy as np
import pytest
import torch
from tests.support import Judged, ToldLookAhead, ascend_in_float64, domains_of, hard_case, relaxation_of, tensor
from tests.test_docs import shown_brancher, shown_rule
from torch import Tensor

from bough.bounds.ascent import Ascent
from bough.bounds.base import AbstractBounder, AbstractSession, Capability
from bough.bounds.boxes import HalvedLP, LinearBounds
from bough.bounds.dual import DualAscent
from bough.bounds.lp import PlanetLP
from bough.branching.base import BLIND, KNOWN_RULES, AbstractBrancher, RuleSettings, highest
from bough.budget import Deadline
from bough.domain.batch import Bounds, DomainBatch, Relaxation, split
from bough.falsify.base import NoAttack
from bough.problem.problem import Problem
from bough.search.ahead import CountedLookAhead
from bough.search.loop import Goal, Search, search
from bough.verdict.result import Verdict

NEVER = Deadline.never()
KINDS = ("dense", "convolutional", "residual", "pooled")
BOUNDERS: dict[str, AbstractBounder] = {
    "lp": PlanetLP(),
    # Few steps, so that branching has something left to do.
    "dual": DualAscent(Ascent(steps=8, pauses=(3,)), Ascent(steps=20)),
}
SEEDS = {"dense": (5,), "convolutional": (0, 2), "residual": (4,), "pooled": (3, 7)}

# Rules that halve inputs are tested beside the bounds they need, learnt ones beside their models.
# Beside bough's own there is the rule of docs/howto-brancher.md, which says that all tests here hold of it.
ENTRIES = {entry.name: entry for entry in (shown_rule(), *KNOWN_RULES.entries())}
RELU_RULES = [e.name for e in ENTRIES.values() if not (e.learnt or Capability.INPUT_PARTS in e.needs)]


def rule_named(name: str) -> AbstractBrancher[Any]:
    return ENTRIES[name].make(RuleSettings(seed=3))


def open_domains(problem: Problem, bounder: AbstractBounder, depth: int = 2) -> tuple[AbstractSession, DomainBatch]:
    """A bounder at work, and open domains of every depth up to one."""
    session = bounder.prepare(problem)
    depths = [_open(session.root(0.0, NEVER).domains)]
    for _ in range(depth):
        if len(depths[-1]):
            children = split(depths[-1], depths[-1].bounds.ambiguous().int().argmax(dim=1))
            depths.append(_open(session.bound(children, 0.0, NEVER).domains))
    domains = DomainBatch.concatenate([level for level in depths if len(level)] or depths[:1])
    return session, session.unpack(session.pack(domains))


def _open(domains: DomainBatch) -> DomainBatch:
    return domains[~(domains.lower > 0) & domains.bounds.ambiguous().any(dim=1)]


def look_at(session: AbstractSession, domains: DomainBatch) -> ToldLookAhead:
    """With estimates of four digits, which are the same in every batch."""
    ahead = CountedLookAhead(session, NEVER, domains)

    def rounded(domains: DomainBatch, neurons: Tensor) -> Tensor:
        return (ahead.estimate(domains, neurons) * 1e4).round() / 1e4

    return ToldLookAhead(rounded, ahead.bound, ahead.unsafe_boxes, ahead.relaxed)


def decisions(
    rule: AbstractBrancher[Any], problem: Problem, session: AbstractSession, domains: DomainBatch, rows: Tensor
) -> list[int]:
    """What a rule that remembers nothing yet chooses in some of the domains."""
    some = domains[rows]
    chosen: list[int] = rule.decide(rule.prepare(problem), some, look_at(session, some)).neurons.tolist()
    return chosen


@cache
def asks_for_estimates(name: str) -> bool:
    """Whether a rule asks for cheap bounds of children."""
    rule, problem, counts = rule_named(name), hard_case("dense", 5, safe=True).problem, list[int]()
    session, domains = open_domains(problem, BOUNDERS["lp"])
    look = look_at(session, domains)

    def counted(domains: DomainBatch, neurons: Tensor) -> Tensor:
        counts.append(len(domains))
        return look.estimate(domains, neurons)

    rule.decide(rule.prepare(problem), domains, replace(look, estimates=counted))
    return bool(counts)


@pytest.mark.parametrize("bounds", BOUNDERS)
@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("name", RELU_RULES)
def test_what_is_chosen_can_be_split(name, kind, bounds):
    rule, checked = rule_named(name), 0
    for seed in SEEDS[kind]:
        problem = hard_case(kind, seed, safe=True).problem
        session, domains = open_domains(problem, BOUNDERS[bounds])
        if len(domains):
            chosen = rule.decide(rule.prepare(problem), domains, look_at(session, domains)).neurons
            assert chosen.shape == (len(domains),)
            assert bool(domains.bounds.ambiguous().gather(1, chosen[:, None]).all())
            checked += len(domains)
    assert checked >= 3


@pytest.mark.parametrize("bounds", BOUNDERS)
@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("name", RELU_RULES)
def test_the_choice_is_ranked_first(name, kind, bounds):
    """What is ranked beside it are other ReLUs that can be split; but FSB may propose no second one."""
    rule, checked = rule_named(name), 0
    for seed in SEEDS[kind]:
        problem = hard_case(kind, seed, safe=True).problem
        session, domains = open_domains(problem, BOUNDERS[bounds])
        for count in (1, 2):
            some = domains[domains.bounds.ambiguous().sum(dim=1) >= count]
            if len(some):
                memory, look = rule.prepare(problem), look_at(session, some)
                ranked = rule.rank(memory, some, look, count)
                assert ranked.shape[0] == len(some)
                assert 1 <= ranked.shape[1] <= count
                assert ranked.shape[1] == count or type(rule).rank is AbstractBrancher.rank
                assert ranked[:, 0].tolist() == rule.decide(memory, some, look).neurons.tolist()
                if name != "fsb":
                    assert bool(some.bounds.ambiguous().gather(1, ranked).all())
                    assert all(len(set(row)) == len(row) for row in ranked.tolist())
                checked += len(some)
    assert checked >= 3


@pytest.mark.parametrize("bounds", BOUNDERS)
@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("name", [name for name in RELU_RULES if not ENTRIES[name].draws])
def test_a_domain_is_decided_by_itself(name, kind, bounds, monkeypatch):
    """Neither the order of a batch nor what else is in it matters."""
    if not asks_for_estimates(name):  # which are a step of ascent, and that is there in float32 only
        ascend_in_float64(monkeypatch)
    rule, checked = rule_named(name), 0
    for seed in SEEDS[kind]:
        problem = hard_case(kind, seed, safe=True).problem
        session, domains = open_domains(problem, BOUNDERS[bounds])
        if not len(domains):
            continue

        decided = partial(decisions, rule, problem, session, domains)
        together = decided(torch.arange(len(domains)))
        order = torch.randperm(len(domains), generator=torch.Generator().manual_seed(seed))
        assert decided(order) == [together[k] for k in order.tolist()]
        assert [decided(torch.tensor([d]))[0] for d in range(len(domains))] == together
        checked += len(domains)
    assert checked >= 2


@pytest.mark.parametrize("bounds", BOUNDERS)
@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("name", RELU_RULES)
def test_the_search_ends_with_enumerations_verdict(name, kind, bounds):
    for number, safe, batch in ((0, True, 4), (2, False, 64)):
        case = hard_case(kind, number, safe=safe)
        judged = Judged(BOUNDERS[bounds], case)
        result = search(Search(case.problem, judged, rule_named(name), NoAttack(), NEVER, batch=batch))
        assert result.verdict is (Verdict.VERIFIED if case.least > 0 else Verdict.FALSIFIED)
        assert result.lower_bound <= case.least + 1e-6
        assert result.bounds == judged.seen["domains"] + judged.seen["estimates"]


@pytest.mark.parametrize("name", ["strong", "gradient", "widest"])
def test_a_minimum_is_found_as_well(name):
    """Where the cutoff is not 0."""
    case = hard_case("dense", 5, safe=True, away=0.3)
    result = search(Search(case.problem, PlanetLP(), rule_named(name), NoAttack(), NEVER, Goal(1e-3), batch=4))
    assert result.lower_bound <= case.least + 1e-6
    assert result.upper_bound >= case.least - 1e-6
    assert result.upper_bound - result.lower_bound <= 1e-3 + 1e-9


def test_every_name_is_a_rule_of_its_own():
    """But for `shadow`, which is `smear` with the LP's coefficients."""
    names = [entry.name for entry in KNOWN_RULES.entries() if entry.name != "shadow" and not entry.learnt]
    assert len({repr(rule_named(name)) for name in names}) == len(names)


def test_a_rule_needs_what_its_entry_says():
    """What is said of it before it is made; but for `shadow`, which is `smear` where there are shadow prices."""
    for entry in KNOWN_RULES.entries():
        if not entry.learnt:
            said = entry.needs - {Capability.SHADOW_PRICES}
            assert entry.make(RuleSettings()).needs == said


@pytest.mark.parametrize("name", ["gradient", "earliest", "widest"])
def test_rules_without_look_ahead_ask_nothing(name):
    problem = hard_case("residual", 4, safe=True).problem
    _, domains = open_domains(problem, PlanetLP())
    rule = rule_named(name)
    rule.decide(rule.prepare(problem), domains)  # a blind look-ahead raises


# The contract of a look-ahead

SESSIONS: dict[str, AbstractBounder] = {**BOUNDERS, "linear": LinearBounds(), "halved lp": HalvedLP()}


@pytest.mark.parametrize("name", SESSIONS)
def test_what_cannot_be_split_is_estimated_at_minus_infinity(name):
    """Whether it was split already, or is decided in the domain anyway; what can be split has other estimates."""
    split_already = decided = 0
    for kind, seed in ((k, seed) for k in KINDS for seed in SEEDS[k]):
        session, domains = open_domains(hard_case(kind, seed, safe=True).problem, SESSIONS[name])
        if not len(domains):
            continue
        possible = session.splittable(domains)
        choices = torch.arange(possible.shape[1]).expand(len(domains), -1)
        ahead = CountedLookAhead(session, NEVER, domains)
        for children in (ahead.estimate(domains, choices), ahead.bound(domains, choices)):
            assert not bool(children.isnan().any())
            assert torch.equal(children == -torch.inf, ~possible[..., None].expand(-1, -1, 2))
        split_already += int((domains.signs != 0).sum())
        decided += int(((domains.signs == 0) & ~domains.bounds.ambiguous()).sum())
    assert split_already >= 1
    assert decided >= 1


def always(relaxation: Relaxation, _: DomainBatch) -> Relaxation:
    return relaxation


@pytest.mark.parametrize("tried", [1, 3, 100])
@pytest.mark.parametrize("count", [0, 1, 10_000])
def test_the_how_tos_rule_takes_a_relaxation_about_few_relus_or_all(count, tried):
    """Also with fewer ambiguous ReLUs in a domain than it tries."""
    ambiguous_counts = set[int]()
    for kind in KINDS:
        problem = hard_case(kind, SEEDS[kind][0], safe=True).problem
        session, domains = open_domains(problem, BOUNDERS["lp"], depth=5)
        look, relaxation = look_at(session, domains), relaxation_of(session, domains)
        everything = torch.zeros(6, len(domains), problem.network.neurons, dtype=torch.float64)
        columns = ("zero", "above", "below", "through", "before", "after")
        everything[:, :, relaxation.neurons] = torch.stack([getattr(relaxation, name) for name in columns])
        neurons = torch.arange(problem.network.neurons)[-count:] if count else torch.zeros(0, dtype=torch.int64)
        given_relaxation = Relaxation.of(neurons, everything[:, :, neurons], relaxation.point, relaxation.value)
        rule = shown_brancher(candidate_count=tried)
        given_look = replace(look, relaxation=partial(always, given_relaxation))
        chosen = rule.decide(rule.prepare(problem), domains, given_look).neurons
        assert bool(domains.bounds.ambiguous().gather(1, chosen[:, None]).all())
        ambiguous_counts |= set(domains.bounds.ambiguous().sum(dim=1).tolist())
    assert min(ambiguous_counts) < 3 < max(ambiguous_counts)


def test_the_highest_are_allowed_ones_whatever_their_values():
    value = tensor([[np.inf, -np.inf, 2.0, 2.0], [np.nan, -np.inf, 0.0, 1.0], [5.0, np.nan, 3.0, 4.0]])
    allowed = tensor([[0, 1, 1, 1], [1, 1, 0, 0], [0, 1, 0, 0]]) > 0
    assert highest(value, allowed, 1)[:, 0].tolist() == [2, 0, 1]
    assert highest(value, allowed, 2)[:2].tolist() == [[2, 3], [0, 1]]


# The naive references, by loops


def test_earliest_and_widest_by_loops():
    for kind in KINDS:
        problem = hard_case(kind, 1, safe=True).problem
        _, domains = open_domains(problem, PlanetLP())
        rules = rule_named("earliest"), rule_named("widest")
        first, widest = (r.decide(r.prepare(problem), domains).neurons.tolist() for r in rules)
        for d in range(len(domains)):
            sides = zip(domains.bounds.lower[d].tolist(), domains.bounds.upper[d].tolist(), strict=True)
            widths = {n: u - l for n, (l, u) in enumerate(sides) if l < 0 < u}
            assert first[d] == min(widths)
            assert widest[d] == min(n for n, width in widths.items() if width == max(widths.values()))


def test_the_widest_by_hand():
    bounds = Bounds(tensor([[-1.0, 1.0, -2.0, -2.0]]), tensor([[1.0, 9.0, 1.0, 1.0]]))
    domains = domains_of(bounds, tensor([[1.0]]))
    widest, earliest = rule_named("widest"), rule_named("earliest")
    assert widest.decide(None, domains).neurons.tolist() == [2]
    assert widest.rank(None, domains, BLIND, 3).tolist() == [[2, 3, 0]]
    assert earliest.rank(None, domains, BLIND, 2).tolist() == [[0, 2]]
