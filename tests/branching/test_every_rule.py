"""What holds of every rule that has a name: it splits what can be split, it sees each domain by itself, and the search
that it leads ends with enumeration's verdict.
"""

from functools import partial

import numpy as np
import pytest
import torch
from tests.support import Judged, ascend_in_float64, domains_of, hard_case, tensor

from bough.bounds.ascent import Ascent
from bough.bounds.base import AbstractBounder, AbstractSession
from bough.bounds.dual import DualAscent
from bough.bounds.lp import PlanetLP
from bough.branching import INPUT_RULES, LEARNT_RULES, RULES
from bough.branching.base import AbstractBrancher, LookAhead, highest
from bough.budget import Deadline
from bough.domain.batch import Bounds, DomainBatch, split
from bough.falsify.base import NoAttack
from bough.options import Options
from bough.problem.problem import Problem
from bough.search.ahead import Counted
from bough.search.loop import Goal, Search, search
from bough.verdict.result import Verdict

NEVER = Deadline.never()
KINDS = ("dense", "convolutional", "residual", "pooled")
BOUNDERS: dict[str, AbstractBounder] = {
    "lp": PlanetLP(),
    # Few steps, so that branching has something left to do.
    "dual": DualAscent(Ascent(steps=8, pauses=(3,)), Ascent(steps=20)),
}
GLANCING = ("fsb", "kfsb")  # by one step of ascent, which there is in float32 only
SEEDS = {"dense": (5,), "convolutional": (0, 2), "residual": (4,), "pooled": (3, 7)}


# Rules that halve inputs are tested beside the bounds they need, learnt ones beside their models.
RELU_RULES = [name for name in RULES if name not in (*INPUT_RULES, *LEARNT_RULES)]


def rule_named(name: str) -> AbstractBrancher:
    return Options(branching=name, seed=3).brancher()


def open_domains(asked: Problem, bounder: AbstractBounder, depth: int = 2) -> tuple[AbstractSession, DomainBatch]:
    """A bounder at work, and open domains of every depth up to one."""
    bounding = bounder.prepare(asked)
    levels = [_open(bounding.root(0.0, NEVER).domains)]
    for _ in range(depth):
        if len(levels[-1]):
            children = split(levels[-1], levels[-1].bounds.ambiguous().int().argmax(dim=1))
            levels.append(_open(bounding.bound(children, 0.0, NEVER).domains))
    domains = DomainBatch.concatenate([level for level in levels if len(level)] or levels[:1])
    return bounding, bounding.unpack(bounding.pack(domains))


def _open(domains: DomainBatch) -> DomainBatch:
    return domains[~(domains.lower > 0) & domains.bounds.ambiguous().any(dim=1)]


def look_at(bounding: AbstractSession, levels: int = 1) -> LookAhead:
    """With estimates of four digits, which are the same in every batch."""
    ahead = Counted(bounding, NEVER)

    def rounded(domains: DomainBatch, neurons: torch.Tensor) -> torch.Tensor:
        return (ahead.estimate(domains, neurons) * 1e4).round() / 1e4

    return LookAhead(rounded, levels, bounding.unsafe_boxes, ahead.bound)


def decisions(
    rule: AbstractBrancher, asked: Problem, bounding: AbstractSession, domains: DomainBatch, rows: torch.Tensor
) -> list[int]:
    """What a rule that remembers nothing yet chooses in some of the domains."""
    chosen: list[int] = rule.decide(rule.prepare(asked), domains[rows], look_at(bounding)).neurons[:, 0].tolist()
    return chosen


@pytest.mark.parametrize("bounds", BOUNDERS)
@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("name", RELU_RULES)
def test_what_is_chosen_can_be_split(name, kind, bounds):
    """And where two are wanted at once, they differ; but FSB may propose one only, and the search takes another."""
    rule, seen = rule_named(name), 0
    for seed in SEEDS[kind]:
        asked = hard_case(kind, seed, safe=True).problem
        bounding, domains = open_domains(asked, BOUNDERS[bounds])
        for levels in (1, 2):
            some = domains[domains.bounds.ambiguous().sum(dim=1) >= levels]
            if len(some):
                chosen = rule.decide(rule.prepare(asked), some, look_at(bounding, levels)).neurons
                assert chosen.shape == (len(some), levels)
                assert bool(some.bounds.ambiguous().gather(1, chosen[:, :1]).all())
                if name != "fsb":
                    assert bool(some.bounds.ambiguous().gather(1, chosen).all())
                    assert all(len(set(row)) == levels for row in chosen.tolist())
                seen += len(some)
    assert seen >= 3


@pytest.mark.parametrize("bounds", BOUNDERS)
@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("name", [name for name in RELU_RULES if name != "random"])  # which draws from one stream
def test_a_domain_is_decided_by_itself(name, kind, bounds, monkeypatch):
    """Neither the order of a batch nor what else is in it matters."""
    if name not in GLANCING:
        ascend_in_float64(monkeypatch)
    rule, seen = rule_named(name), 0
    for seed in SEEDS[kind]:
        asked = hard_case(kind, seed, safe=True).problem
        bounding, domains = open_domains(asked, BOUNDERS[bounds])
        if not len(domains):
            continue

        decided = partial(decisions, rule, asked, bounding, domains)
        together = decided(torch.arange(len(domains)))
        order = torch.randperm(len(domains), generator=torch.Generator().manual_seed(seed))
        assert decided(order) == [together[k] for k in order.tolist()]
        assert [decided(torch.tensor([d]))[0] for d in range(len(domains))] == together
        seen += len(domains)
    assert seen >= 2


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
    rules = [rule_named(name) for name in RULES if name not in ("shadow", *LEARNT_RULES)]
    assert len(set(map(repr, rules))) == len(RULES) - 1 - len(LEARNT_RULES)


@pytest.mark.parametrize("name", ["gradient", "earliest", "widest"])
def test_rules_without_look_ahead_ask_nothing(name):
    asked = hard_case("residual", 4, safe=True).problem
    _, domains = open_domains(asked, PlanetLP())
    rule = rule_named(name)
    rule.decide(rule.prepare(asked), domains)  # a blind look-ahead raises


def test_the_highest_are_allowed_ones_whatever_their_values():
    value = tensor([[np.inf, -np.inf, 2.0, 2.0], [np.nan, -np.inf, 0.0, 1.0], [5.0, np.nan, 3.0, 4.0]])
    allowed = tensor([[0, 1, 1, 1], [1, 1, 0, 0], [0, 1, 0, 0]]) > 0
    assert highest(value, allowed, 1)[:, 0].tolist() == [2, 0, 1]
    assert highest(value, allowed, 2)[:2].tolist() == [[2, 3], [0, 1]]


# The naive references, by loops


def test_earliest_and_widest_by_loops():
    for kind in KINDS:
        asked = hard_case(kind, 1, safe=True).problem
        _, domains = open_domains(asked, PlanetLP())
        rules = rule_named("earliest"), rule_named("widest")
        first, widest = (r.decide(r.prepare(asked), domains).neurons[:, 0].tolist() for r in rules)
        for d in range(len(domains)):
            sides = zip(domains.bounds.lower[d].tolist(), domains.bounds.upper[d].tolist(), strict=True)
            widths = {n: u - l for n, (l, u) in enumerate(sides) if l < 0 < u}
            assert first[d] == min(widths)
            assert widest[d] == min(n for n, width in widths.items() if width == max(widths.values()))


def test_the_widest_by_hand():
    bounds = Bounds(tensor([[-1.0, 1.0, -2.0, -2.0]]), tensor([[1.0, 9.0, 1.0, 1.0]]))
    domains = domains_of(bounds, tensor([[1.0]]))
    widest, earliest = rule_named("widest"), rule_named("earliest")
    assert widest.decide(None, domains).neurons.tolist() == [[2]]
    assert widest.decide(None, domains, BLIND).neurons.tolist() == [[2, 3, 0]]
    assert earliest.decide(None, domains, BLIND).neurons.tolist() == [[0, 2]]
