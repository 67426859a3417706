"""Dual ascent: never above the LP, close to it, and right in a search; the reduced network is the network.

Batches are bounded as their domains are alone, packed domains come back as they were, and running out of memory or of
time in mid-ascent loses nothing.
"""

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import pytest
import torch
from tests.support import (
    KINDS,
    Judged,
    ascend_in_float64,
    box_around,
    clause,
    generator,
    hard_case,
    integer,
    normal,
    piece_margins,
    pieces,
    problem,
    random_clause,
    samples,
    sequential,
    values_at,
)
from torch import Tensor

from bough.bounds import ascent as ascents
from bough.bounds import dual
from bough.bounds.ascent import Ascended, Ascent, Climber, Duals, Functionals, evaluate, first_values
from bough.bounds.base import deepest_root
from bough.bounds.dual import MOST_HALF, DualAscent, DualSession, PackedDuals, _fresh
from bough.bounds.intermediate import AbstractIntermediate, TightBounds
from bough.bounds.lp import BasisNumbers, PlanetLP
from bough.bounds.optimised import OptimisedBounds
from bough.bounds.reduced import reduce
from bough.branching.babsr import BaBSR
from bough.branching.base import AbstractBrancher
from bough.branching.filtered import Filtered
from bough.budget import Deadline, OutOfTime
from bough.domain.batch import DomainBatch, split
from bough.falsify.base import NoAttack
from bough.network import walk
from bough.problem.problem import Problem
from bough.search.loop import Search, SearchState, search
from bough.search.observe import AbstractObserver
from bough.verdict.result import Result, Verdict

NEVER = Deadline.never()
SMALL_KINDS = ("dense", "convolutional", "residual", "pooled")
FIXED = TightBounds(refresh=False)
LONG = DualAscent(ascent=Ascent(steps=200, decay=0.98), at_root=Ascent(steps=200, decay=0.98))


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("seed", range(3))
def test_the_reduced_network_is_the_network(kind, seed):
    g = generator(seed)
    network = KINDS[kind](g)
    box = box_around(g, network.inputs)
    root = FIXED.at_root(network, box, NEVER)
    net = reduce(network, root)
    points = samples(box, 20, seed)
    values = walk.forward(network, points.reshape(-1, *network.input_shape))
    flat = torch.cat([values[network.nodes[i].inputs[0]].reshape(len(points), -1) for i in network.relus], dim=1)
    z = flat[:, net.neurons]
    radius = (root.upper - root.lower)[0] / 2
    s = torch.where(radius > 0, (points - (root.upper + root.lower)[0] / 2) / radius.clamp(min=1e-300), 0.0)
    again = s @ net.inputs.T + z.relu() @ net.between.T + net.centre
    outputs = values[-1].reshape(len(points), -1)
    torch.testing.assert_close(again, torch.cat([z, outputs], dim=1), rtol=1e-9, atol=1e-9)


def tree(kind: str, seed: int, depth: int = 3) -> tuple[list[DomainBatch], Problem]:
    """Domains down one random path, with both children at every step, from the ascent's own search state."""
    g = generator(seed)
    network = KINDS[kind](g)
    query = problem(network, [box_around(g, network.inputs)], [random_clause(g, network.outputs, 1 + seed % 2)])
    bounding = LONG.prepare(query)
    domains = bounding.root(np.inf, NEVER).domains
    levels = [domains]
    for _ in range(depth):
        ambiguous = domains.bounds.ambiguous()
        if not bool(ambiguous.any(dim=1).all()):
            break
        children = split(domains, torch.multinomial(ambiguous.double(), 1, generator=g)[:, 0])
        children = bounding.bound(children, np.inf, NEVER).domains
        levels.append(children)
        domains = children[torch.tensor([seed % 2])]
    return levels, query


def no_basis(domains: DomainBatch) -> BasisNumbers:
    """What the LP takes as the start of domains that it has not met."""
    return BasisNumbers(torch.zeros(len(domains), dtype=torch.int64))


def test_ascent_is_never_above_the_lp_and_nearly_reaches_it():
    """At least 95 in 100 domains come within 1% of what the LP gains over plain linear bounds; others are listed."""
    close, missed = 0, []
    for kind in SMALL_KINDS:
        for seed in range(4):
            levels, query = tree(kind, seed)
            exact = PlanetLP(FIXED, early_stop=False).prepare(query)
            start = DualAscent(ascent=Ascent(steps=0), at_root=Ascent(steps=0)).prepare(query).root(np.inf, NEVER)
            base = float(start.domains.lower.min())
            exact.root(np.inf, NEVER)
            for domains in levels[1:]:
                blank = replace(domains, start=no_basis(domains), lower=torch.full_like(domains.lower, -torch.inf))
                best = exact.bound(blank, np.inf, NEVER).domains.lower
                for ascent_bound, lp_bound in zip(domains.lower.tolist(), best.tolist(), strict=True):
                    assert ascent_bound <= lp_bound + 1e-6 * (1 + abs(lp_bound))
                    if not np.isfinite(lp_bound):
                        continue
                    gain = lp_bound - base
                    if gain <= 1e-9 or lp_bound - ascent_bound <= 0.01 * gain:
                        close += 1
                    else:
                        missed.append((kind, seed, round(ascent_bound, 4), round(lp_bound, 4)))
    print(f"{close} of {close + len(missed)} within 1%; missed: {missed}")  # noqa: T201 - pytest shows it on demand
    assert close >= 0.95 * (close + len(missed))


@pytest.mark.parametrize("kind", ["dense", "convolutional", "residual"])
def test_a_child_starts_at_its_parents_value(kind):
    for seed in range(4):
        g = generator(seed)
        network = KINDS[kind](g)
        query = problem(network, [box_around(g, network.inputs)], [random_clause(g, network.outputs, 1)])
        bounding = DualAscent(ascent=Ascent(steps=0), at_root=Ascent(steps=100, decay=0.97)).prepare(query)
        root = bounding.root(np.inf, NEVER).domains
        for neuron in root.bounds.ambiguous()[0].nonzero()[:, 0].tolist():
            blank = replace(root, lower=torch.full_like(root.lower, -torch.inf))
            children = bounding.bound(split(blank, torch.tensor([neuron])), np.inf, NEVER).domains
            # float32 duals, so up to its rounding; where the parent's nu is negative splitting alone gains.
            assert bool((children.lower >= root.lower - 1e-4 * (1 + root.lower.abs())).all())


@pytest.mark.parametrize("depth", [1, 2, 3])
@pytest.mark.parametrize("kind", ["dense", "convolutional", "residual"])
def test_descendants_start_at_the_roots_value(kind, depth):
    """Where the coefficients on the split ReLUs are not negative, multipliers make up for what splitting changes."""
    tried = 0
    for seed in range(6):
        g = generator(seed)
        network = KINDS[kind](g)
        query = problem(network, [box_around(g, network.inputs)], [random_clause(g, network.outputs, 1)])
        bounding = DualAscent(ascent=Ascent(steps=0)).prepare(query)
        root = bounding.root(np.inf, NEVER).domains
        (place,) = bounding._places.values()
        at_root = evaluate(place.climber, *bounding._functionals(place, root))
        value, nu = float(at_root.value[0]), at_root.nu[0].clone()
        good = place.net.neurons[nu > 1e-6]
        if len(good) < depth:
            continue
        for _ in range(5):
            domains = root
            for neuron in good[torch.randperm(len(good), generator=g)[:depth]]:
                children = split(domains, neuron.expand(len(domains)))
                children = replace(children, lower=torch.full_like(children.lower, -torch.inf))
                functionals, start = bounding._functionals(place, children)
                values = Ascent(steps=0).run(place.climber, functionals, start, _fresh(place.net, children)).value
                np.testing.assert_allclose(values.numpy(), value, rtol=1e-4, atol=1e-4 * (1 + abs(value)))
                domains = bounding.bound(children, np.inf, NEVER).domains
                assert bool((domains.lower >= float(root.lower) - 1e-4 * (1 + abs(value))).all())
            assert len(domains) == 2**depth
            tried += 1
    assert tried >= 10


# Batches


def mixed(kind: str, seed: int, config: DualAscent, most: int = 40) -> tuple[DualSession, DomainBatch]:
    """A bounder after its root, and a shuffled batch of children of several clauses and boxes, at two depths."""
    g = generator(seed)
    network = KINDS[kind](g)
    boxes = [box_around(g, network.inputs) for _ in range(2)]
    drawn = [random_clause(g, network.outputs, integer(g, 1, 3), k % 2) for k in range(4)]
    clauses = [clause(c.coefficients, c.offsets + 0.3, box=c.box) for c in drawn]  # so that many bounds are negative
    bounding = config.prepare(problem(network, boxes, clauses))
    domains = deepest_root(bounding, np.inf, NEVER).domains
    levels = []
    for _ in range(3):
        domains = domains[(domains.bounds.ambiguous().sum(dim=1) > 0) & torch.isfinite(domains.lower)]
        children = split(domains, torch.multinomial(domains.bounds.ambiguous().double(), 1, generator=g))
        levels.append(children)
        domains = bounding.bound(children, np.inf, NEVER).domains
    joined = DomainBatch.concatenate(levels)
    return bounding, joined[torch.randperm(len(joined), generator=g)[:most]]


def close(a: Tensor, b: Tensor, tolerance: float = 1e-6) -> None:
    """Equal up to the rounding of float32 duals, everywhere."""
    torch.testing.assert_close(a, b, rtol=tolerance, atol=tolerance)


INTERMEDIATES: dict[str, AbstractIntermediate] = {
    "fixed": FIXED,
    "optimised": OptimisedBounds(unsafe_only=False),
    "by clause": OptimisedBounds(),  # whose ReLU bounds, and so the chords, differ from clause to clause
}


@pytest.mark.parametrize("intermediate", INTERMEDIATES)
@pytest.mark.parametrize("kind", SMALL_KINDS)
def test_a_batch_is_bounded_as_its_domains_alone(kind, intermediate, monkeypatch):
    """Clauses and boxes mixed, in one batch, in pieces of three, and one at a time."""
    ascend_in_float64(monkeypatch)
    bounding, children = mixed(kind, 1, DualAscent(intermediate=INTERMEDIATES[intermediate]))
    assert bounding._own_lines == (intermediate == "by clause") or kind == "convolutional"  # where clauses gain nothing
    children = replace(children, lower=torch.full_like(children.lower, -torch.inf))  # not to hide behind the parent's
    together = bounding.bound(children, np.inf, NEVER).domains
    for name in ("clause", "signs", "depth", "last_split"):
        assert torch.equal(getattr(together, name), getattr(children, name))
    bounding._batch = 3
    in_pieces = bounding.bound(children, np.inf, NEVER)
    close(in_pieces.domains.lower, together.lower)
    # By clause, positive bounds are all reported as one number, duals as they are.
    close(in_pieces.domains.carried(Duals).p, together.carried(Duals).p)
    assert torch.equal(in_pieces.domains.signs, children.signs)
    assert in_pieces.owners().unique().tolist() == list(range(len(children)))
    alone = DomainBatch.concatenate(
        [bounding.bound(children[torch.tensor([d])], np.inf, NEVER).domains for d in range(len(children))]
    )
    close(alone.lower, together.lower)
    close(alone.carried(Duals).p, together.carried(Duals).p)
    close(alone.carried(Duals).logits, together.carried(Duals).logits)
    assert len(alone.lower.unique()) >= (2 if bounding._own_lines else 5)  # they do differ


@pytest.mark.parametrize("intermediate", INTERMEDIATES)
@pytest.mark.parametrize("kind", SMALL_KINDS)
def test_a_batch_starts_as_its_domains_alone(kind, intermediate):
    """In float32: up to the first step, after which a rounding error may lead another way."""
    bounding, children = mixed(kind, 1, DualAscent(ascent=Ascent(steps=0), intermediate=INTERMEDIATES[intermediate]))
    children = replace(children, lower=torch.full_like(children.lower, -torch.inf))
    together = bounding.bound(children, np.inf, NEVER).domains
    bounding._batch = 1
    alone = bounding.bound(children, np.inf, NEVER).domains
    close(alone.lower, together.lower)
    close(alone.carried(Duals).p, together.carried(Duals).p)


def test_the_size_of_a_piece_is_the_configurations():
    sizes: list[int] = []
    bounding, children = mixed("dense", 2, DualAscent(batch=3))
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Ascent, "run", spy(sizes))
        bounding.bound(children, np.inf, NEVER)
    assert max(sizes) == 3
    assert sum(sizes) == len(children)


def count_of(functionals: Functionals, named: dict[str, object]) -> int:
    """How many rows an ascent works on: `each` names the domain of every row where there are more rows than domains."""
    each = named.get("each")
    return len(each) if isinstance(each, Tensor) else len(functionals.offsets)


def spy(sizes: list[int]) -> Callable[..., Ascended]:
    """Ascent that writes down how many domains it is asked about."""
    honest = Ascent.run

    def run(self: Ascent, climber: Climber, functionals: Functionals, *more: object, **named: object) -> Ascended:
        sizes.append(count_of(functionals, named))
        return honest(self, climber, functionals, *more, **named)  # type: ignore[arg-type]

    return run


@pytest.mark.parametrize("kind", SMALL_KINDS)
def test_domains_that_leave_early_change_nothing_for_the_others(kind, monkeypatch):
    """The cutoff is in the midst: many domains leave at the pauses, the others go on as they would."""
    ascend_in_float64(monkeypatch)
    shrunk, compared = list[int](), 0
    honest = ascents._shrunk

    def shrink(climber: Climber, functionals: Functionals, climb: object, rows: Tensor) -> object:
        shrunk.append(len(rows))
        return honest(climber, functionals, climb, rows)  # type: ignore[arg-type]

    monkeypatch.setattr(ascents, "_shrunk", shrink)
    for seed in range(3, 6):
        bounding, children = mixed(kind, seed, DualAscent(ascent=Ascent(steps=20, pauses=(2, 4, 7, 11))))
        children = children[children.bounds.ambiguous().any(dim=1)]  # the others are the LP's
        children = replace(children, lower=torch.full_like(children.lower, -torch.inf))
        whole = bounding.bound(children, np.inf, NEVER).domains.lower
        cutoff = float(whole[torch.isfinite(whole)].quantile(0.35))
        lower = bounding.bound(children, cutoff, NEVER).domains.lower
        near = (whole - cutoff).abs() < 1e-4 * (1 + abs(cutoff))  # SLACK is 1e-5 of the input's part
        assert torch.equal((lower > cutoff)[~near], (whole > cutoff)[~near])
        below = ~near & (whole < cutoff)
        compared += int(below.sum())
        close(lower[below], whole[below])
    assert shrunk
    assert compared >= 8


# Open domains, packed


@pytest.mark.parametrize("kind", SMALL_KINDS)
def test_packed_domains_come_back(kind):
    bounding, children = mixed(kind, 4, DualAscent(intermediate=OptimisedBounds(unsafe_only=False)))
    bounded = bounding.bound(children, np.inf, NEVER).domains
    packed = bounding.pack(bounded)
    assert all(len(column) == len(bounded) for column in packed.tensors())
    again = bounding.unpack(packed)
    for name in ("clause", "signs", "lower", "depth"):
        assert torch.equal(getattr(again, name), getattr(bounded, name)), name
        assert getattr(again, name).dtype == getattr(bounded, name).dtype
    assert torch.equal(again.bounds.lower, bounded.bounds.lower)
    assert torch.equal(again.bounds.upper, bounded.bounds.upper)
    assert again.last_split.tolist() == [[-1]] * len(bounded)
    before, after = bounded.carried(Duals), again.carried(Duals)
    torch.testing.assert_close(after.p, before.p, rtol=2**-10, atol=2**-14 * bounding._unit + 2**-14)
    assert torch.equal(torch.isinf(after.logits), torch.isinf(before.logits))
    torch.testing.assert_close(after.logits, before.logits, rtol=2**-10, atol=2**-14)
    torch.testing.assert_close(again.functional, bounded.functional, rtol=1e-2, atol=1e-2)
    # What comes back is bounded (almost) as before, by no step at all.
    still = replace(again, lower=torch.full_like(again.lower, -torch.inf))
    none = DualAscent(ascent=Ascent(steps=0))
    value = bounding._bound(still, none.ascent, np.inf, NEVER).domains.lower
    as_it_was = replace(bounded, lower=still.lower, last_split=again.last_split)
    close(value, bounding._bound(as_it_was, none.ascent, np.inf, NEVER).domains.lower, 5e-3)


@pytest.mark.parametrize("value", [float("nan"), float("inf"), -float("inf"), MOST_HALF])
def test_spoilt_duals_still_give_valid_bounds(value):
    """Whatever 16-bit numbers come back, what is no finite number reads as 0, and bounds stay below the truth."""
    case = hard_case("dense", 5, safe=True)
    judged = Judged(DualAscent(), case)
    bounding = judged.prepare(case.problem)
    root = bounding.root(np.inf, NEVER).domains
    children = bounding.bound(split(root, root.bounds.ambiguous().int().argmax(dim=1)), np.inf, NEVER).domains
    packed = bounding.pack(children)
    assert isinstance(packed, PackedDuals)
    small = packed.p
    for spoilt in (torch.full_like(small, value), torch.where(torch.arange(small.shape[1]) % 2 == 0, value, small)):
        again = bounding.unpack(replace(packed, p=spoilt.half(), logits=torch.full_like(packed.logits, value)))
        duals = again.carried(Duals)
        assert bool(torch.isfinite(duals.p).all())
        assert not bool(duals.logits.isnan().any())
        if not np.isfinite(value):
            assert bool((duals.p[torch.isinf(spoilt) | spoilt.isnan()] == 0).all())
        blank = replace(again, lower=torch.full_like(again.lower, -torch.inf))
        open_ = blank[blank.bounds.ambiguous().any(dim=1)]
        grown = split(open_, open_.bounds.ambiguous().int().argmax(dim=1))
        for domains in (blank, grown):
            assert not bool(bounding.bound(domains, np.inf, NEVER).domains.lower.isnan().any())  # and judged on the way


@pytest.mark.parametrize("size", [1e6, 1e8])
@pytest.mark.parametrize("seed", range(3))
def test_huge_multipliers_do_not_overflow(size, seed):
    """Weights so large that float16 could not hold a multiplier in the network's own units."""
    g = generator(seed)
    network = sequential(
        (normal(g, 4, 2), normal(g, 4) * 0.5),
        (normal(g, 4, 4) * size, normal(g, 4) * size * 0.5),
        (normal(g, 2, 4), normal(g, 2) * size * 0.5),
    )
    box = box_around(g, 2)
    drawn = random_clause(g, 2, 1)
    all_pieces = pieces(network, box)
    least = float(piece_margins(all_pieces, box, drawn).min())
    for away, verdict in ((1e-3, Verdict.VERIFIED), (-1e-3, Verdict.FALSIFIED)):
        query = problem(network, [box], [clause(drawn.coefficients, drawn.offsets + least - away * size)])
        bounding = DualAscent().prepare(query)
        domains = bounding.root(0.0, NEVER).domains
        if bool(domains.bounds.ambiguous().any()):
            children = bounding.bound(split(domains, domains.bounds.ambiguous().int().argmax(dim=1)), 0.0, NEVER)
            packed, given = bounding.pack(children.domains), children.domains.carried(Duals).p
            assert bool(torch.isfinite(packed.p).all())
            assert bool(torch.isfinite(packed.logits).all())
            back = bounding.unpack(packed).carried(Duals).p
            torch.testing.assert_close(back, given, rtol=2**-10, atol=2**-13 * bounding._unit)
        result = search(Search(query, DualAscent(), BaBSR(), NoAttack(), NEVER, batch=4))
        # At 1e8 the LP's proofs that a domain is empty drown in its tolerances, and some searches end open.
        assert result.verdict is verdict or (size > 1e6 and result.verdict is Verdict.UNKNOWN)


# Whole searches


@pytest.mark.parametrize("kind", SMALL_KINDS)
def test_search_with_ascent_finds_what_enumeration_finds(kind):
    for seed in (0, 3, 5, 11):
        case = hard_case(kind, seed, safe=seed % 2 == 1)
        bounder = Judged(DualAscent(), case)
        result = search(Search(case.problem, bounder, BaBSR(), NoAttack(), NEVER, batch=4))
        assert result.verdict is (Verdict.VERIFIED if case.least > 0 else Verdict.FALSIFIED)
        assert result.lower_bound <= case.least + 1e-6


def test_what_is_open_says_how_far_a_conditional_bound_reaches():
    """Over bounds that hold at unsafe points only, a root without such points is closed; no margin is claimed."""
    case = hard_case("dense", 1, safe=True, away=0.05)
    result = search(Search(case.problem, DualAscent(intermediate=OptimisedBounds()), BaBSR(), NoAttack(), NEVER))
    assert result.verdict is Verdict.VERIFIED
    assert 0 < result.lower_bound <= case.least


def test_contradicting_bounds_at_unsafe_points_claim_no_margin():
    """There is no unsafe point, so ReLU bounds that need to hold there may be empty; the box itself is not."""
    g = generator(5)
    network = KINDS["pooled"](g)
    box = box_around(g, network.inputs)
    drawn = random_clause(g, network.outputs, 3)
    query = problem(network, [box], [clause(drawn.coefficients, drawn.offsets - 0.3615)])
    y = values_at(network, samples(box, 1000).numpy())[-1]
    sampled = float(query.clauses[0].margins(torch.from_numpy(y)).min())
    result = search(Search(query, DualAscent(intermediate=OptimisedBounds()), BaBSR(), NoAttack(), NEVER))
    assert result.verdict is Verdict.VERIFIED
    assert result.lower_bound <= sampled


# Out of memory, out of time, interrupted


def hard_run(**changes: object) -> tuple[Search, float]:
    """A search of several steps."""
    case = hard_case("dense", 1, safe=True)
    run = Search(case.problem, DualAscent(), BaBSR(), NoAttack(), NEVER, batch=8)
    return replace(run, **changes), case.least  # type: ignore[arg-type]


def full(run: Callable[..., Ascended], most: int, failed: list[int]) -> Callable[..., Ascended]:
    """Ascent on a device that holds `most` domains."""

    def limited(self: Ascent, climber: Climber, functionals: Functionals, *more: object, **named: object) -> Ascended:
        if count_of(functionals, named) > most:
            failed.append(count_of(functionals, named))
            raise torch.OutOfMemoryError("no room")
        return run(self, climber, functionals, *more, **named)

    return limited


@pytest.mark.parametrize("most", [2, 7])
@pytest.mark.parametrize("safe", [True, False])
def test_pieces_that_do_not_fit_the_memory_are_halved(most, safe, monkeypatch):
    failed = list[int]()
    case = hard_case("dense", 5, safe=safe)
    whole = search(Search(case.problem, Judged(DualAscent(), case), BaBSR(), NoAttack(), NEVER, batch=16))
    monkeypatch.setattr(Ascent, "run", full(Ascent.run, most, failed))
    result = search(Search(case.problem, Judged(DualAscent(), case), BaBSR(), NoAttack(), NEVER, batch=16))
    assert failed
    assert failed == sorted(failed, reverse=True)  # what was learnt once is not tried again
    assert result.verdict is whole.verdict is (Verdict.VERIFIED if safe else Verdict.FALSIFIED)
    assert result.lower_bound <= case.least + 1e-6


@pytest.mark.parametrize("brancher", [Filtered(), Filtered(best=3)], ids=str)
def test_estimates_that_do_not_fit_the_memory_are_halved(brancher, monkeypatch):
    case = hard_case("dense", 1, safe=True)
    sizes: list[int] = []

    def small_memory(climber: Climber, functionals: Functionals, start: Duals, fresh: Tensor, each: Tensor) -> Tensor:
        if len(each) > 40:
            raise torch.OutOfMemoryError
        sizes.append(len(each))
        return first_values(climber, functionals, start, fresh, each)

    monkeypatch.setattr(dual, "first_values", small_memory)
    result = search(Search(case.problem, Judged(DualAscent(), case), brancher, NoAttack(), NEVER, batch=16))
    assert result.verdict is Verdict.VERIFIED
    assert max(sizes) <= 40


@dataclass(frozen=True)
class Countdown(Deadline):
    """Raises at its n-th check."""

    error: type[BaseException] = OutOfTime
    left: tuple[int, ...] = ()  # how often it is heard before

    def check(self) -> None:
        heard = HEARD.setdefault(id(self), [0])
        heard[0] += 1
        if heard[0] > self.left[0]:
            raise self.error


HEARD: dict[int, list[int]] = {}


@dataclass(eq=False)
class Sights(AbstractObserver):
    """What was open after every step."""

    states: list[tuple[int, float, int]]

    def seen(self, state: SearchState, seconds: float) -> None:
        del seconds
        if state.started:
            self.states.append((len(state.frontier), state.lower, state.branches))


def interrupted(
    error: type[BaseException], checks: int, brancher: AbstractBrancher[Any]
) -> tuple[Result, Sights, float]:
    HEARD.clear()
    sights = Sights([])
    bounder = DualAscent(ascent=Ascent(steps=6, pauses=(1, 2, 3, 4, 5)))
    limit = Countdown(0.0, np.inf, error, (checks,))
    run, least = hard_run(deadline=limit, observers=(sights,), brancher=brancher, bounder=bounder)
    return search(run), sights, least


@pytest.mark.parametrize("brancher", [BaBSR(), Filtered()], ids=str)
@pytest.mark.parametrize(
    ("error", "verdict"), [(OutOfTime, Verdict.TIMEOUT), (KeyboardInterrupt, Verdict.UNKNOWN)], ids=["time", "ctrl-c"]
)
def test_an_interruption_in_mid_ascent_keeps_what_is_known(error, verdict, brancher):
    """At every check of the deadline in turn, most of them in an ascent's pauses."""
    ended = set()
    for checks in (*range(6), *range(6, 260, 12)):
        result, sights, least = interrupted(error, checks, brancher)
        if result.verdict is Verdict.VERIFIED:
            break
        assert result.verdict is verdict
        assert result.lower_bound <= least + 1e-6
        if not sights.states:
            assert (result.open_domains, result.lower_bound) == (0, -np.inf)
            continue
        # What is open is what the last whole step left open.
        open_domains, lower, branches = sights.states[-1]
        assert result.open_domains == open_domains > 0
        assert result.lower_bound == lower
        assert result.branches == branches
        ended.add(len(sights.states))
    assert len(ended) >= 3
