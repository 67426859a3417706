"""The loop against strategies that misbehave: nonsense choices, bounds that are no numbers, interruptions."""

import sys
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from types import FrameType
from typing import Any

import numpy as np
import pytest
import torch
from tests.support import (
    Array,
    Judged,
    Plain,
    Points,
    generator,
    hard_case,
    normal,
    samples,
    sequential,
    simple_problem,
    values_at,
)
from torch import Tensor

from bough.bounds.ascent import Ascent
from bough.bounds.base import AbstractBounder, AbstractSession, Bounded
from bough.bounds.dual import DualAscent
from bough.bounds.lp import PlanetLP
from bough.bounds.witness import AbstractWitness
from bough.branching.babsr import BaBSR
from bough.branching.base import BLIND, AbstractBrancher, AbstractLookAhead, Decision
from bough.branching.earliest import Earliest
from bough.branching.filtered import Filtered
from bough.branching.gradient import SteepestGradient
from bough.branching.random import RandomChoice
from bough.branching.widest import Widest
from bough.budget import Deadline, OutOfTime
from bough.domain.batch import DomainBatch
from bough.falsify.base import NoAttack
from bough.problem.problem import Problem
from bough.search.frontier import Frontier
from bough.search.loop import Goal, MemoryLimits, Search, SearchState, deepen, init, search, step
from bough.search.observe import AbstractObserver
from bough.verdict.result import Result, Verdict

NEVER = Deadline.never()
NONSENSE: dict[str, Callable[[DomainBatch], Tensor]] = {
    "minus one": lambda d: torch.full((len(d),), -1),
    "far beyond": lambda d: torch.full((len(d),), 10**6),
    "just beyond": lambda d: torch.full((len(d),), d.signs.shape[1]),
    "far below": lambda d: torch.full((len(d),), -(10**9)),
    "the first": lambda d: torch.zeros(len(d), dtype=torch.int64),
    "decided": lambda d: (~d.bounds.ambiguous()).int().argmax(dim=1),
    "split already": lambda d: d.last_split[:, 0],
    "any number": lambda d: torch.randint(-5, 30, (len(d),)),
}


@dataclass(frozen=True, eq=False)
class Nonsense(AbstractBrancher[None]):
    """Answers whatever it likes."""

    answer: Callable[[DomainBatch], Tensor]

    def prepare(self, problem: Problem) -> None:
        """Remember nothing."""

    def decide(self, memory: None, domains: DomainBatch, look: AbstractLookAhead = BLIND) -> Decision[None]:
        del memory, look
        return Decision(self.answer(domains), None)


@pytest.mark.parametrize("name", NONSENSE)
@pytest.mark.parametrize("batch", [1, 3])
def test_a_nonsense_brancher_changes_no_verdict(name, batch):
    for kind, seed, safe in (("dense", 5, True), ("residual", 4, True), ("dense", 6, False), ("residual", 3, False)):
        case = hard_case(kind, seed, safe=safe)
        judged = Judged(PlanetLP(), case)
        limit = Deadline.after(30)  # a split that splits nothing would go on for ever
        result = search(Search(case.problem, judged, Nonsense(NONSENSE[name]), NoAttack(), limit, batch=batch))
        assert result.verdict is (Verdict.VERIFIED if safe else Verdict.FALSIFIED)
        assert result.depth <= case.problem.network.neurons


@dataclass(frozen=True, eq=False)
class Spoilt(AbstractBounder):
    """The LP, with its answers spoilt from some call on."""

    spoil: Callable[[Bounded], Bounded]
    after: int = 0

    def prepare(self, problem: Problem, witness: AbstractWitness | None = None) -> "_Spoiling":
        return _Spoiling(self, PlanetLP().prepare(problem, witness))


class _Spoiling(AbstractSession):
    def __init__(self, config: Spoilt, inner: AbstractSession) -> None:
        self._config, self._inner, self._calls = config, inner, 0

    def _spoilt(self, bounded: Bounded) -> Bounded:
        self._calls += 1
        return self._config.spoil(bounded) if self._calls > self._config.after else bounded

    def root(self, cutoff: float, deadline: Deadline) -> Bounded:
        return self._spoilt(self._inner.root(cutoff, deadline))

    def bound(self, domains: DomainBatch, cutoff: float, deadline: Deadline) -> Bounded:
        return self._spoilt(self._inner.bound(domains, cutoff, deadline))


def _with_lower(value: float) -> Callable[[Bounded], Bounded]:
    return lambda b: replace(b, domains=replace(b.domains, lower=torch.full_like(b.domains.lower, value)))


def _with_points(value: float) -> Callable[[Bounded], Bounded]:
    return lambda b: replace(b, points=torch.full_like(b.points, value))


@pytest.mark.parametrize("after", [0, 1, 2])
@pytest.mark.parametrize("value", [float("nan"), -float("inf")])
def test_bounds_that_are_no_numbers_close_nothing(after, value):
    case = hard_case("dense", 7, safe=True)
    result = search(Search(case.problem, Spoilt(_with_lower(value), after), BaBSR(), NoAttack(), NEVER))
    assert result.verdict is Verdict.UNKNOWN
    assert result.lower_bound == -np.inf
    assert result.open_domains > 0


@pytest.mark.parametrize("after", [0, 3])
def test_points_that_are_no_numbers_refute_nothing(after):
    for safe in (True, False):
        case = hard_case("dense", 5, safe=safe)
        result = search(Search(case.problem, Spoilt(_with_points(np.nan), after), BaBSR(), NoAttack(), NEVER))
        assert result.verdict is not (Verdict.FALSIFIED if safe else Verdict.VERIFIED)


def test_a_deadline_of_zero_is_a_timeout():
    for safe in (True, False):
        case = hard_case("dense", 5, safe=safe)
        result = search(Search(case.problem, PlanetLP(), BaBSR(), NoAttack(), Deadline.after(0)))
        assert result.verdict is Verdict.TIMEOUT
        assert result.lower_bound == -np.inf
        assert result.bounds == 0


@dataclass(eq=False)
class Interrupting(AbstractObserver):
    """Raises at its n-th sight of the search."""

    error: BaseException
    at: int
    sights: list[SearchState] = field(default_factory=list)
    lowers: list[float] = field(default_factory=list)  # written down at once: the frontier changes

    def seen(self, state: SearchState, seconds: float) -> None:
        del seconds
        self.sights.append(state)
        self.lowers += [state.lower] if state.started else []
        if len(self.sights) == self.at:
            raise self.error


def full_run(**changes: Any) -> Result:
    case = hard_case("dense", 1, safe=True)
    run = Search(case.problem, Judged(PlanetLP(), case), RandomChoice(0), NoAttack(), NEVER)
    return search(replace(run, **changes))


@pytest.mark.parametrize("at", [1, 2, 3, 10, 30])
@pytest.mark.parametrize(
    ("error", "verdict"),
    [(KeyboardInterrupt(), Verdict.UNKNOWN), (OutOfTime(), Verdict.TIMEOUT)],
    ids=["ctrl-c", "time"],
)
def test_an_interruption_in_an_observer_keeps_what_is_known(at, error, verdict):
    watch = Interrupting(error, at)
    result = full_run(observers=(watch,))
    case = hard_case("dense", 1, safe=True)
    last = watch.sights[-1]
    assert len(watch.sights) == at
    assert result.verdict is verdict
    assert result.open_domains == last.open_domains
    assert result.branches == last.branches
    assert result.lower_bound <= case.least + 1e-6
    if last.started:
        assert result.open_domains > 0
        assert result.lower_bound == last.frontier.lowest


@pytest.mark.parametrize("calls", [0, 1, 2, 9])
def test_an_interruption_in_mid_step_keeps_its_domains_open(calls):
    """Bounding is interrupted: the domains that were being split are counted, and the lower bound covers them."""

    def interrupt(_: Bounded) -> Bounded:
        raise KeyboardInterrupt

    watch = Interrupting(KeyboardInterrupt(), 10**9)
    result = full_run(bounder=Spoilt(interrupt, calls), observers=(watch,))
    assert result.verdict is Verdict.UNKNOWN
    assert result.branches == max(0, 2 * (calls - 1))
    if calls:
        # What is open is what the last whole step left open.
        before = Interrupting(KeyboardInterrupt(), len(watch.sights))
        whole = full_run(bounder=PlanetLP(), observers=(before,))
        assert result.open_domains == whole.open_domains > 0
        assert result.lower_bound == whole.lower_bound <= hard_case("dense", 1, safe=True).least
    else:
        assert result.lower_bound == -np.inf


class _Pressed(Plain):
    """Ctrl-C while a counterexample is replayed."""

    name = "a test"
    dtype: np.dtype[np.floating[Any]] = np.dtype(np.float32)

    def run(self, x: Points) -> Array:
        del x
        raise KeyboardInterrupt


def test_an_interruption_while_replaying_keeps_its_domains_open():
    case = hard_case("dense", 12, safe=False)
    problem = replace(case.problem, reference=_Pressed(case.problem.network))
    result = search(Search(problem, PlanetLP(), RandomChoice(0), NoAttack(), NEVER))
    assert result.verdict is Verdict.UNKNOWN
    assert result.lower_bound <= case.least
    assert result.open_domains > 0 or result.lower_bound == -np.inf


class _Disagrees(Plain):
    """A runtime by which nothing is unsafe."""

    name = "a test"
    dtype: np.dtype[np.floating[Any]] = np.dtype(np.float32)

    def run(self, x: Points) -> Array:
        del x
        return np.full(1, 1e9)


def test_what_the_runtime_does_not_confirm_is_not_falsified():
    network = sequential(([[1.0, 1.0], [1.0, -1.0]], [0.0, 0.0]), ([[1.0, 1.0]], [-1.0]))
    problem = simple_problem(network, [-1, -1], [1, 1], [[1.0]], [0.0])
    believed = search(Search(problem, PlanetLP(), BaBSR(), NoAttack(), NEVER))
    assert believed.verdict is Verdict.FALSIFIED
    result = search(Search(replace(problem, reference=_Disagrees(network)), PlanetLP(), BaBSR(), NoAttack(), NEVER))
    assert result.verdict is Verdict.UNKNOWN
    assert result.open_domains > 0


def test_a_margin_of_exactly_zero_is_unsafe():
    """The unsafe set is closed: relu(x) >= 0 everywhere, and 0 is reached."""
    network = sequential(([[1.0]], [0.0]), ([[1.0]], [0.0]))
    result = search(Search(simple_problem(network, [-1], [1], [[1.0]], [0.0]), PlanetLP(), BaBSR(), NoAttack(), NEVER))
    assert result.verdict is Verdict.FALSIFIED


def test_batches_and_observers_change_no_verdict_and_branches_count_two_per_split():
    for kind in ("dense", "residual"):
        case = hard_case(kind, 5, safe=True)
        for batch in (1, 2, 7):
            watch = Interrupting(KeyboardInterrupt(), 10**9)
            judged = Judged(PlanetLP(), case)
            run = Search(case.problem, judged, BaBSR(), NoAttack(), NEVER, batch=batch, observers=(watch,))
            result = search(run)
            assert result.verdict is Verdict.VERIFIED
            assert result.branches % 2 == 0
            assert result.bounds == judged.seen["domains"] == result.branches + len(case.problem.clauses)
            assert watch.lowers == sorted(watch.lowers)


def test_the_minimum_is_known_whatever_its_sign():
    for safe in (True, False):
        case = hard_case("dense", 6, safe=safe)
        result = search(Search(case.problem, PlanetLP(), BaBSR(), NoAttack(), NEVER, goal=Goal(1e-4)))
        assert result.lower_bound == pytest.approx(case.least, abs=1.1e-4)
        assert result.upper_bound == pytest.approx(case.least, abs=1.1e-4)
        assert result.verdict is (Verdict.VERIFIED if safe else Verdict.FALSIFIED)


# Memory


BOUNDERS: dict[str, AbstractBounder] = {"lp": PlanetLP(), "dual": DualAscent(Ascent(steps=8))}


@dataclass(eq=False)
class Spilling(AbstractObserver):
    """The most domains that were ever on the host, and whether some came back."""

    most: int = 0
    back: bool = False

    def seen(self, state: SearchState, seconds: float) -> None:
        del seconds
        far = 0 if state.frontier._far is None else state.frontier._far.used
        self.back |= far < self.most
        self.most = max(self.most, far)


@pytest.mark.parametrize("name", BOUNDERS)
@pytest.mark.parametrize("device_bytes", [0.0, 1000.0])
def test_a_search_through_the_host_loses_nothing(name, device_bytes):
    for kind, seed, safe in (("dense", 1, True), ("residual", 4, True), ("dense", 5, False)):
        case, watch = hard_case(kind, seed, safe=safe), Spilling()
        judged = Judged(BOUNDERS[name], case)
        run = Search(case.problem, judged, RandomChoice(seed), NoAttack(), NEVER, batch=4, observers=(watch,))
        result = search(replace(run, memory=MemoryLimits(device_bytes)))
        assert result.verdict is (Verdict.VERIFIED if safe else Verdict.FALSIFIED)
        assert result.lower_bound <= case.least + 1e-6
        if safe:
            assert watch.most > 0
            assert watch.back
            assert result.open_domains == 0


@pytest.mark.parametrize("name", BOUNDERS)
@pytest.mark.parametrize("host_bytes", [0.0, 2000.0])
def test_a_full_memory_ends_a_search_that_keeps_what_it_knows(name, host_bytes):
    case, watch = hard_case("dense", 1, safe=True), Interrupting(KeyboardInterrupt(), 10**9)
    run = Search(case.problem, Judged(BOUNDERS[name], case), RandomChoice(0), NoAttack(), NEVER, batch=4)
    result = search(replace(run, memory=MemoryLimits(1000.0, host_bytes), observers=(watch,)))
    assert result.verdict is Verdict.UNKNOWN
    assert "--memory" in result.reason
    assert "open domains fill the memory budget" in result.reason
    assert result.open_domains > 0
    assert result.lower_bound <= case.least + 1e-6
    if watch.lowers:  # the step that did not fit takes nothing away
        assert result.lower_bound == watch.lowers[-1]


@pytest.mark.parametrize("limit", [1, 20, 21, 100])
def test_a_limit_of_bounds_ends_the_search_with_the_step_that_reaches_it(limit):
    def ended(batch):
        run = Search(wide_problem(), DualAscent(Ascent(steps=4)), BaBSR(), NoAttack(), NEVER, batch=batch)
        return search(replace(run, most_bounds=limit))

    for batch in (1, 8):
        result = ended(batch)
        assert (result.verdict, result.reason) == (Verdict.TIMEOUT, f"the limit of {limit} bounds was reached")
        assert limit <= result.bounds < limit + 2 * batch
        assert result.bounds == ended(batch).bounds


# The cost of a step


RULES: tuple[AbstractBrancher[Any], ...] = (
    BaBSR(),
    BaBSR(worse_side=True),
    Filtered(),
    Filtered(best=3),
    SteepestGradient(),
    Earliest(),
    Widest(),
    RandomChoice(0),
)


def wide_problem() -> Problem:
    """Seventy ReLUs, safe, but far from proved at the root: many domains, none of them with every sign known."""
    g = generator(0)
    network = sequential(
        (normal(g, 24, 10) / 10**0.5, normal(g, 24) * 0.1),
        (normal(g, 24, 24) / 24**0.5, normal(g, 24) * 0.1),
        (normal(g, 24, 24) / 24**0.5, normal(g, 24) * 0.1),
        (normal(g, 1, 24) / 24**0.5, [0.0]),
    )
    problem = simple_problem(network, [-1.0] * 10, [1.0] * 10, [[0.75]], [0.0])
    y = values_at(network, samples(problem.property.boxes[0], 20000).numpy())[-1]
    return simple_problem(network, [-1.0] * 10, [1.0] * 10, [[0.75]], [0.75 * float(y.min()) - 0.2])


def lines_of(run: Search, session: AbstractSession, state: SearchState) -> tuple[SearchState, int]:
    """A step, and how many lines of bough's own files it executes."""
    lines = 0

    def trace(frame: FrameType, event: str, _: object) -> Any:
        nonlocal lines
        if "/bough/" not in frame.f_code.co_filename:
            return None
        lines += event == "line"
        return trace

    before = sys.gettrace()
    sys.settrace(trace)
    try:
        return step(run, session, state), lines
    finally:
        sys.settrace(before)


@pytest.mark.parametrize("rule", RULES, ids=str)
def test_a_step_takes_as_many_lines_whatever_the_batch(rule):
    """Nothing in a step loops over domains in Python: 256 of them take what 16 do, but for a few lines."""
    problem = wide_problem()
    run = Search(problem, DualAscent(Ascent(steps=4)), rule, NoAttack(), NEVER, batch=64)
    session = run.bounder.prepare(problem)
    state = SearchState(Frontier(session), rule.prepare(problem))
    state = init(run, session, state)
    while state.roots is not None:
        state = deepen(run, session, state, state.roots)
    while len(state.frontier) < 600:
        assert len(state.frontier)
        state = step(run, session, state)
    counts = {}
    for batch in (16, 256):
        state, counts[batch] = lines_of(replace(run, batch=batch), session, state)
    print(counts)  # noqa: T201 - pytest shows it on demand
    assert counts[16] > 100
    assert abs(counts[256] - counts[16]) <= 24
