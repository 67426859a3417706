"""Strong branching against brute force, the paper's measure against its formula, and the subset against its promise."""

import math
from dataclasses import replace
from functools import cache, partial

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from scipy.optimize import brentq
from tests.support import Judged, ToldLookAhead, ascend_in_float64, domains_of, hard_case, tensor
from torch import Tensor

from bough.bounds.ascent import Ascent
from bough.bounds.base import AbstractBounder, AbstractSession
from bough.bounds.dual import DualAscent
from bough.bounds.intermediate import TightBounds
from bough.bounds.lp import PlanetLP
from bough.bounds.optimised import OptimisedBounds
from bough.branching.babsr import local_bias, scores
from bough.branching.improvement import LEAST_GAIN, Measure, as_large_a_tree, improvements
from bough.branching.strong import TIE, Strong, listed
from bough.branching.subset import Subset
from bough.budget import Deadline, OutOfTime
from bough.domain.batch import Bounds, DomainBatch, split
from bough.falsify.base import NoAttack
from bough.search import ahead
from bough.search.ahead import CountedLookAhead
from bough.search.loop import Search, search
from bough.verdict.result import Verdict

NEVER = Deadline.never()
MEASURES: tuple[Measure, ...] = ("mean", "min", "max", "product", "tree")
BOUNDERS: dict[str, AbstractBounder] = {
    "lp": PlanetLP(early_stop=False),
    "refreshed lp": PlanetLP(TightBounds(refresh=True)),
    "dual": DualAscent(Ascent(steps=8, pauses=(3,)), Ascent(steps=20)),
    "optimised dual": DualAscent(Ascent(steps=8), Ascent(steps=20), OptimisedBounds()),
}
SEEDS = {"dense": (1,), "convolutional": (0, 5), "residual": (1, 4), "pooled": (1, 4)}


def open_domains(kind: str, seed: int, bounder: AbstractBounder) -> tuple[AbstractSession, DomainBatch]:
    session = bounder.prepare(hard_case(kind, seed, safe=True).problem)
    domains = session.root(0.0, NEVER).domains
    domains = domains[~(domains.lower > 0) & domains.bounds.ambiguous().any(dim=1)]
    if len(domains):
        children = split(domains, domains.bounds.ambiguous().int().argmax(dim=1))
        domains = DomainBatch.concatenate([domains, session.bound(children, 0.0, NEVER).domains])
        domains = domains[~(domains.lower > 0) & domains.bounds.ambiguous().any(dim=1)]
    return session, session.unpack(session.pack(domains))


def slow_improvement(parent: float, children: tuple[float, float], measure: Measure) -> float:
    """Eq. 8 as it is printed, or its children one by one."""
    if measure == "mean":
        return (min(children[0], 0.0) + min(children[1], 0.0) - 2 * parent) / (-2 * parent)
    shares = [(min(c, 0.0) - parent) / -parent for c in children]
    if measure == "product":
        return math.sqrt(math.prod(max(share, LEAST_GAIN) for share in shares))
    if measure == "tree":
        low, high = (max(share, LEAST_GAIN) for share in shares)
        return math.log(2) / brentq(lambda x: math.exp(-low * x) + math.exp(-high * x) - 1, 0.1, 1e4, xtol=1e-13)
    return {"min": min, "max": max}[measure](shares)


# The measure


@given(
    st.floats(-1e6, -1e-6),
    st.lists(st.tuples(st.floats(0, 2), st.floats(0, 2)), min_size=1, max_size=5),
    st.sampled_from(MEASURES),
)
def test_the_improvement_is_the_papers_formula(parent, gains, measure):
    pairs = [(parent + a * -parent, parent + b * -parent) for a, b in gains]
    computed = improvements(tensor([parent]), tensor([pairs]), measure=measure)[0]
    assert computed.tolist() == pytest.approx([slow_improvement(parent, p, measure) for p in pairs], rel=1e-9, abs=1e-9)
    assert bool(((computed >= -1e-12) & (computed <= 1 + 1e-12)).all())


def test_the_improvement_by_hand():
    children = tensor([[[-4.0, -4.0], [-2.0, -4.0], [0.0, -2.0], [3.0, -4.0], [math.inf, 1e-9]]])
    gains = {m: improvements(tensor([-4.0]), children, measure=m)[0].tolist() for m in MEASURES}
    assert gains["mean"] == [0.0, 0.25, 0.75, 0.5, 1.0]
    assert gains["min"] == [0.0, 0.0, 0.5, 0.0, 1.0]
    assert gains["max"] == [0.0, 0.5, 1.0, 1.0, 1.0]
    assert gains["tree"][::4] == pytest.approx([LEAST_GAIN, 1.0])
    assert gains["tree"][2] == pytest.approx(math.log(2) / (-2 * math.log((math.sqrt(5) - 1) / 2)))  # the golden ratio
    assert gains["product"] == pytest.approx([LEAST_GAIN, math.sqrt(0.5 * LEAST_GAIN), math.sqrt(0.5), 0.01, 1.0])


def test_another_cutoff_moves_everything():
    children = tensor([[[-4.0, -2.0], [1.0, -4.0]]])
    moved = improvements(tensor([-4.0]) + 7, children + 7, cutoff=7.0)
    torch.testing.assert_close(moved, improvements(tensor([-4.0]), children))


def test_edges_of_the_improvement():
    """At the cutoff closed children count; of an unbounded parent nothing is known; what was not tried is worth
    nothing.
    """
    children = tensor([[0.0, 0.0], [1.0, 0.0], [1.0, math.inf], [-math.inf, -math.inf]])
    parents = tensor([0.0, -math.inf])
    computed = improvements(parents, children.expand(2, -1, -1))
    assert computed.tolist() == [[0.0, 0.5, 1.0, -math.inf], [0.0, 0.0, 0.0, -math.inf]]
    assert improvements(parents, children.expand(2, -1, -1), measure="product")[:, -1].tolist() == [-math.inf] * 2
    assert improvements(parents, children.expand(2, -1, -1), measure="tree")[:, -1].tolist() == [-math.inf] * 2


@given(st.floats(LEAST_GAIN, 1), st.floats(LEAST_GAIN, 1))
def test_trees_in_single_precision(low, high):
    """What a GPU works with; the measure lies between two means."""
    size = float(as_large_a_tree(tensor([[low, high]]).float()))
    assert size == pytest.approx(float(as_large_a_tree(tensor([[low, high]]))), rel=1e-4)
    assert math.sqrt(low * high) * (1 - 1e-4) <= size <= (low + high) / 2 * (1 + 1e-4)


@pytest.mark.parametrize(("low", "high"), [(0.1, 0.1), (0.05, 0.2), (0.02, 0.5)])
def test_trees_are_as_large_as_the_measure_says(low, high):
    """Splits counted one by one: ten more ways to go multiply them as a tree of equal gains does."""

    @cache
    def splits(way: int) -> int:  # in hundredths
        return 0 if way <= 0 else 1 + splits(way - round(100 * low)) + splits(way - round(100 * high))

    gain = float(as_large_a_tree(tensor([[low, high]])))
    assert math.log2(splits(600) / splits(300)) == pytest.approx(3 / gain, rel=0.02)


# The choice


@pytest.mark.parametrize(
    ("name", "measure"),
    [
        *((name, "mean") for name in BOUNDERS),
        ("lp", "min"),
        ("lp", "max"),
        ("dual", "min"),
        ("lp", "product"),
        ("lp", "tree"),
    ],
)
@pytest.mark.parametrize("kind", ["dense", "convolutional", "residual", "pooled"])
def test_the_choice_is_brute_forces(kind, name, measure, monkeypatch):
    """Every ambiguous ReLU of every domain by hand: split alone, both children bounded alone."""
    ascend_in_float64(monkeypatch)
    rule, several = Strong(measure), 0
    for seed in SEEDS[kind]:
        problem = hard_case(kind, seed, safe=True).problem
        session, domains = open_domains(kind, seed, BOUNDERS[name])
        if not len(domains):
            continue
        counted = CountedLookAhead(session, NEVER, domains)
        chosen = rule.decide(rule.prepare(problem), domains, ToldLookAhead(bounds=counted.bound)).neurons.tolist()
        assert counted.count == 2 * int(domains.bounds.ambiguous().sum())
        for d in range(len(domains)):
            alone, gains = domains[torch.tensor([d])], {}
            for n in alone.bounds.ambiguous()[0].nonzero()[:, 0].tolist():
                both = session.bound(split(alone, torch.tensor([n])), 0.0, NEVER).domains.lower.tolist()
                gains[n] = slow_improvement(float(alone.lower), (both[0], both[1]), measure)
            assert gains[chosen[d]] >= max(gains.values()) - 2e-5
            several += len(set(gains.values())) > 1
    assert several >= 1


def looked_up(table: Tensor, _domains: DomainBatch, neurons: Tensor) -> Tensor:
    """Bounds of children from a table [domains, neurons, 2]."""
    return table.gather(1, neurons[..., None].expand(-1, -1, 2))


def test_equal_improvements_are_decided_by_babsr_and_then_by_number(monkeypatch):
    problem = hard_case("dense", 1, safe=True).problem
    _, domains = open_domains("dense", 1, BOUNDERS["lp"])
    domains = replace(domains, lower=torch.full_like(domains.lower, -1.0))
    ambiguous, rule = domains.bounds.ambiguous(), Strong()
    nothing = -torch.ones(*ambiguous.shape, 2).double()
    rounding = 0.1 * TIE * torch.rand(nothing.shape, generator=torch.Generator().manual_seed(0)).double()
    score = torch.where(ambiguous, scores(problem.network, local_bias(problem.network), domains).score, -1.0)
    for table in (nothing, nothing + rounding):
        chosen = rule.decide(rule.prepare(problem), domains, ToldLookAhead(bounds=partial(looked_up, table))).neurons
        assert chosen.tolist() == score.argmax(dim=1).tolist()
    better = nothing.clone()
    last = ambiguous.shape[1] - 1 - ambiguous.flip(1).int().argmax(dim=1)
    better[torch.arange(len(domains)), last] += 10 * TIE
    chosen = rule.decide(rule.prepare(problem), domains, ToldLookAhead(bounds=partial(looked_up, better))).neurons
    assert chosen.tolist() == last.tolist()
    blank = scores(problem.network, local_bias(problem.network), domains)
    monkeypatch.setattr("bough.branching.strong.scores", lambda *_: replace(blank, score=0 * blank.score))
    chosen = rule.decide(rule.prepare(problem), domains, ToldLookAhead(bounds=partial(looked_up, nothing))).neurons
    assert chosen.tolist() == ambiguous.int().argmax(dim=1).tolist()


def test_what_is_listed_is_what_is_tried():
    tried = tensor([[0, 1, 0, 1], [0, 0, 0, 0], [1, 0, 0, 0]]) > 0
    indices = listed(tried)
    assert indices.shape == (3, 2)
    assert indices[0].tolist() == [1, 3]
    assert indices[2, 0] == 0
    assert listed(tried[1:2]).shape == (1, 0)


# What it costs


@pytest.mark.parametrize("name", ["lp", "dual"])
def test_pieces_are_put_together_in_order(name, monkeypatch):
    ascend_in_float64(monkeypatch)
    session, domains = open_domains("dense", 1, BOUNDERS[name])
    candidates = torch.arange(domains.signs.shape[1]).expand(len(domains), -1)
    whole = CountedLookAhead(session, NEVER, domains).bound(domains, candidates)
    monkeypatch.setattr(ahead, "MOST_RELUS", 1)
    for batch in (1, 3):
        again = CountedLookAhead(session, NEVER, domains, batch=batch).bound(domains, candidates)
        # How far above the cutoff a closed child is depends on when the others let it go.
        torch.testing.assert_close(again.clamp(max=0), whole.clamp(max=0))
    assert torch.equal((whole != -torch.inf).all(dim=2), domains.bounds.ambiguous())
    assert bool((whole[domains.bounds.ambiguous()].min(dim=1).values >= -1e9).all())


def test_the_deadline_is_heard():
    session, domains = open_domains("dense", 1, BOUNDERS["dual"])
    candidates = torch.arange(domains.signs.shape[1]).expand(len(domains), -1)
    with pytest.raises(OutOfTime):
        CountedLookAhead(session, Deadline.after(0), domains).bound(domains, candidates)


@pytest.mark.parametrize("rule", [Strong(), Strong("max", Subset(best=2))], ids=str)
@pytest.mark.parametrize("name", BOUNDERS)
def test_every_child_that_is_tried_counts_as_a_bound(name, rule):
    for kind, seed, batch in (("dense", 5, 4), ("residual", 4, 1)):
        case = hard_case(kind, seed, safe=True)
        judged = Judged(BOUNDERS[name], case, conditional=name == "optimised dual")
        result = search(Search(case.problem, judged, rule, NoAttack(), NEVER, batch=batch))
        assert result.verdict is Verdict.VERIFIED
        assert result.bounds == judged.seen["domains"]
        assert result.branches == 0 or result.bounds > result.branches + len(case.problem.clauses)


def test_strong_branching_needs_fewest_branches():
    """Over some problems, one domain at a time: fewer than by the naive references."""
    from bough.branching.earliest import Earliest
    from bough.branching.random import RandomChoice

    def branches(rule: Strong | Earliest | RandomChoice) -> int:
        cases = [hard_case("dense", seed, safe=True).problem for seed in (1, 4, 5, 6)]
        return sum(search(Search(p, PlanetLP(), rule, NoAttack(), NEVER)).branches for p in cases)

    best = branches(Strong())
    assert best < branches(Earliest())
    assert best < branches(RandomChoice(0))


# The subset


PARTS = [slice(0, 100), slice(100, 140), slice(140, 143)]


def many_domains(count: int) -> tuple[DomainBatch, Tensor]:
    """Domains of three layers with some ReLUs decided and some splits, and scores."""
    g = torch.Generator().manual_seed(1)
    upper = (torch.rand(count, 143, generator=g) - 0.3).double()
    signs = torch.randint(-1, 2, (count, 143), generator=g).to(torch.int8)
    domains = domains_of(Bounds(-torch.ones_like(upper), upper), tensor([[1.0]]), signs)
    return domains, torch.rand(count, 143, generator=g).double()


def test_the_subset_has_the_best_and_a_part_of_every_layer():
    domains, score = many_domains(20)
    ambiguous = domains.bounds.ambiguous()
    for best, share in ((0, 0.05), (4, 0.05), (10, 0.3), (500, 0.05), (0, 1.0)):
        tried = Subset(best, share).of(domains, score, PARTS)
        assert not bool((tried & ~ambiguous).any())
        for d in range(len(domains)):
            open_ = ambiguous[d].nonzero()[:, 0].tolist()
            top = {n for _, n in sorted((-float(score[d, n]), n) for n in open_)[: max(best, 1)]}
            chosen = set(tried[d].nonzero()[:, 0].tolist())
            assert top <= chosen
            for part in PARTS:
                layer = range(part.start, part.stop)
                expected = math.ceil(share * sum(n in layer for n in open_) - 1e-9)
                assert sum(n in layer for n in chosen) == max(expected, sum(n in layer for n in top))


def test_the_random_part_depends_on_domain_and_seed_only():
    domains, score = many_domains(30)
    subset = Subset(best=1, share=0.2, seed=5)
    tried = subset.of(domains, score, PARTS)
    order = torch.randperm(30, generator=torch.Generator().manual_seed(2))
    assert torch.equal(subset.of(domains[order], score[order], PARTS), tried[order])
    assert not torch.equal(replace(subset, seed=6).of(domains, score, PARTS), tried)
    same = replace(domains, bounds=domains.bounds[torch.zeros(30, dtype=torch.int64)])
    rows = {tuple(row) for row in subset.of(same, score[:1].expand(30, -1), PARTS).tolist()}
    assert len(rows) == 30  # each domain draws its own


def test_luck_is_even():
    domains, _ = many_domains(300)
    luck = Subset()._luck(domains)
    assert bool(((luck >= 0) & (luck < 1)).all())
    assert float(luck.mean()) == pytest.approx(0.5, abs=0.01)
    for axis in (0, 1):
        assert float((luck.mean(dim=axis) - 0.5).abs().max()) < 0.15
    both = torch.corrcoef(luck[:50])
    assert float((both - torch.eye(50)).abs().max()) < 0.5
