"""Branch and bound, the paper's Algorithm 1, as one loop for every bounder and branching rule.

`attack` comes first, then `init`, then `step` until `finished`, then `result`; `attack` runs again between steps. To
decide the sign only (the paper's Appendix A), the cutoff is 0 and the search stops at the first counterexample.
"""

import math
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any

import torch
from torch import Tensor

from bough.bounds.base import AbstractBounder, AbstractSession, Bounded
from bough.bounds.execution import Execution
from bough.bounds.witness import AbstractWitness
from bough.branching.base import AbstractBrancher
from bough.budget import Deadline, OutOfMemory, OutOfTime, ran_out
from bough.domain.batch import DomainBatch
from bough.falsify.base import AbstractFalsifier
from bough.network import walk
from bough.problem.problem import Problem
from bough.search.ahead import CountedLookAhead
from bough.search.frontier import Frontier
from bough.search.observe import AbstractObserver, Family, Split
from bough.search.stopwatch import Stopwatch
from bough.verdict.counterexample import Counterexample, is_excluded, replay
from bough.verdict.result import EXCLUDED, Result, Verdict

REPLAYS = 8  # the runtime is asked about at most so many points of a batch


@dataclass(frozen=True)
class MemoryLimits:
    """The bytes that open domains may take: on the device first, then on the host."""

    device_bytes: float = float("inf")
    host_bytes: float = float("inf")


@dataclass(frozen=True)
class Goal:
    """A goal is the sign of the least margin (`gap=None`), or the least margin to within a gap."""

    gap: float | None = None

    def cutoff(self, upper: float) -> float:
        """The number above which a bound closes a domain, when `upper` is the least margin found."""
        return 0.0 if self.gap is None else upper - self.gap


@dataclass(frozen=True, eq=False)
class SearchState:
    """Everything a search knows between two steps."""

    frontier: Frontier
    memory: object  # of the branching rule
    upper: float = float("inf")  # least margin that was computed at a point, before any replay
    least_closed: float = float("inf")  # least bound of a closed domain
    least_stuck: float = float("inf")  # least bound of a domain that can be neither split nor closed
    stuck_domains: int = 0
    root_lower: float = float("-inf")
    counterexample: Counterexample | None = None
    branches: int = 0
    bounds: int = 0
    depth: int = 0
    attacked: int = 0  # how often the falsifier was run
    attack_seconds: float = 0.0
    roots: Bounded | None = None  # while there is more work on them
    deeper: Iterator[Bounded] = field(default_factory=lambda: iter(()))  # that work
    started: bool = False  # whether the roots are done
    float32_error: float = 0.0  # largest error of a float32 run in the last domains that were to be closed
    excluded: bool = False  # whether a point was unsafe that only a strict side excludes
    deciding: Stopwatch = field(default_factory=Stopwatch)  # the rule's time, without children that the search keeps

    @property
    def lower(self) -> float:
        """The lower bound on the least margin over all domains."""
        if self.roots is not None:
            return self.root_lower
        return min(self.frontier.lowest, self.least_stuck, self.least_closed) if self.started else -math.inf

    @property
    def open_domains(self) -> int:
        """How many domains are open."""
        return len(self.frontier) + (0 if self.roots is None else len(self.roots.domains))


@dataclass(frozen=True, eq=False)
class Search:
    """A search holds a problem, the strategies to decide it, and the limits of the run."""

    problem: Problem
    bounder: AbstractBounder
    brancher: AbstractBrancher[Any]
    falsifier: AbstractFalsifier
    deadline: Deadline
    goal: Goal = field(default_factory=Goal)
    batch: int = 1  # domains split in one step
    memory: MemoryLimits = field(default_factory=MemoryLimits)
    most_bounds: float = float("inf")  # once so many bounds are computed, no step begins
    observers: tuple[AbstractObserver, ...] = ()
    witness: AbstractWitness | None = None  # writes the certificate; what it can prove closes a domain
    execution: Execution | None = None  # if given, `verified` also holds for every float32 run of the network

    @cached_property
    def boxes(self) -> Tensor:
        """For every clause, the place of its box in the property."""
        return torch.tensor([clause.box for clause in self.problem.clauses])


def search(run: Search) -> Result:
    """Run a search to its end; a limit or Ctrl-C ends it early, with what is known by then."""
    if run.problem.property.is_empty:
        return Result.of_no_point(run.deadline.elapsed())
    return _searched(run)


def _searched(run: Search) -> Result:
    session = run.bounder.prepare(run.problem, run.witness)
    reason = None
    frontier = Frontier(session, run.memory.device_bytes, run.memory.host_bytes)
    state = SearchState(frontier, run.brancher.prepare(run.problem))
    try:
        while not finished(run, state):
            run.deadline.check()
            if state.bounds >= run.most_bounds:
                reason = Verdict.TIMEOUT, f"the limit of {run.most_bounds:,} bounds was reached"
                break
            state = _next(run, session, state)
            for observer in run.observers:
                observer.seen(state, run.deadline.elapsed())
    except OutOfTime:
        reason = Verdict.TIMEOUT, "the time limit was reached"
    except OutOfMemory as full:
        reason = Verdict.UNKNOWN, f"{full}; allow more with --memory"
    except torch.OutOfMemoryError:
        reason = Verdict.UNKNOWN, "the device's memory is too small for this network; try --device cpu"
    except KeyboardInterrupt:
        reason = Verdict.UNKNOWN, "interrupted"
    except (MemoryError, RuntimeError) as error:
        if not ran_out(error):
            raise
        reason = Verdict.UNKNOWN, "the machine has too little free memory for this network"
    notes = {**session.notes(), "decision_seconds": state.deciding.seconds(), **run.brancher.notes(state.memory)}
    return replace(result(run, state, reason), notes=notes, remarks=run.brancher.remarks(state.memory))


def _next(run: Search, session: AbstractSession, state: SearchState) -> SearchState:
    next_attack = 0 if state.attacked == 0 else 1000 * 100.0**state.attacked
    if state.bounds >= next_attack:
        return attack(run, state)
    if state.started:
        work = session.capabilities.deeper_roots
        if work is not None:
            work.tighten(state.branches, _aim(run, state), run.deadline)
        return step(run, session, state)
    return init(run, session, state) if state.roots is None else deepen(run, session, state, state.roots)


def attack(run: Search, state: SearchState) -> SearchState:
    """Run the attack once: before anything is bounded, after 100,000 bounds, after 10 million, and so on."""
    start_seconds = run.deadline.elapsed()
    for box, points in run.falsifier.candidates(run.problem, run.deadline, state.attacked):
        run.deadline.check()
        state = _try_points(run, state, torch.full((len(points),), box), points)
        if finished(run, state):
            break
    seconds = state.attack_seconds + run.deadline.elapsed() - start_seconds
    return replace(state, attacked=state.attacked + 1, attack_seconds=seconds)


def init(run: Search, session: AbstractSession, state: SearchState) -> SearchState:
    """Bound the root of every clause (Algorithm 1, lines 2-4)."""
    cutoff = _aim(run, state)
    roots = session.root(cutoff, run.deadline)
    work = session.capabilities.deeper_roots
    state = _try_roots(run, state, roots)
    if work is None or finished(run, state):
        return _begin(run, session, state, roots)
    return replace(state, roots=roots, deeper=work.deepened(roots, cutoff, run.deadline))


def deepen(run: Search, session: AbstractSession, state: SearchState, roots: Bounded) -> SearchState:
    """Bound the roots again, by more work, as long as the session says that this pays."""
    better = next(state.deeper, None)
    if better is None:
        return _begin(run, session, state, roots)
    state = _try_roots(run, state, better)
    return _begin(run, session, state, better) if finished(run, state) else replace(state, roots=better)


def _try_roots(run: Search, state: SearchState, roots: Bounded) -> SearchState:
    """The state after the roots' points were tried."""
    state = _try_points(run, state, run.boxes[roots.domains.clause[roots.owners()].cpu()], roots.points)
    return replace(state, root_lower=float(roots.domains.lower.min()))


def _begin(run: Search, session: AbstractSession, state: SearchState, roots: Bounded) -> SearchState:
    """Close or open the roots, whose points have been tried; what is open may be split from now on."""
    tried = Bounded(roots.domains, roots.points[:0], roots.owners()[:0])
    return _absorb(run, session, replace(state, roots=None, started=True), tried)


def step(run: Search, session: AbstractSession, state: SearchState) -> SearchState:
    """Split the domains with the lowest bounds, and bound their children (Algorithm 1, lines 6-18)."""
    domains = state.frontier.pick(run.batch)
    try:
        numbers = state.frontier.picked
        cutoff = _aim(run, state)
        ahead = CountedLookAhead(session, run.deadline, domains, cutoff, run.batch, state.deciding)
        for observer in run.observers:
            observer.deciding(domains, ahead.uncounted())
        with state.deciding.on(domains.lower.device):
            decision = run.brancher.decide(state.memory, domains, ahead)
        neurons = _possible(session.splittable(domains), decision.neurons)
        bounded, order = ahead.split(neurons)
        branches = state.branches + 2 * len(domains)
        # The bounds that the rule asked for; those of the children are counted with the children.
        counted = replace(state, memory=decision.memory, branches=branches, bounds=state.bounds + ahead.count)
        return _absorb(run, session, counted, bounded, Split(domains, numbers, neurons, order, decision))
    except BaseException:
        state.frontier.push(domains)  # an unfinished step leaves its domains open
        raise


def finished(run: Search, state: SearchState) -> bool:
    """Whether the search is over; a search for the least margin goes on after a counterexample."""
    refuted = state.counterexample is not None and run.goal.gap is None
    return refuted or (state.started and len(state.frontier) == 0)


def result(run: Search, state: SearchState, stopped: tuple[Verdict, str] | None) -> Result:
    """The result that a state stands for; `stopped` says why the search ended early, if it did."""
    if state.counterexample is not None:
        verdict = Verdict.FALSIFIED
        why = "a counterexample was found and replayed"
    elif stopped is not None:
        verdict, why = stopped
        why += f"; {EXCLUDED}" if state.excluded else ""
    elif state.excluded and (state.stuck_domains or not state.lower > 0):
        verdict = Verdict.UNKNOWN
        why = EXCLUDED
    elif state.stuck_domains:
        verdict = Verdict.UNKNOWN
        why = f"the bounds of {state.stuck_domains} domains are too close to the cutoff for floating point"
        if run.execution is not None:
            why += ", or safe only in real arithmetic (--semantics real)"
    elif not state.lower > 0:  # only if the least margin was asked for
        verdict = Verdict.UNKNOWN
        why = "the least margin is within the gap of 0, or no replay confirmed its point"
    else:
        sense = "in real arithmetic" if run.execution is None else "in any float32 execution"
        verdict = Verdict.VERIFIED
        why = f"no point of the box is unsafe, {sense}"
    return Result(
        verdict=verdict,
        reason=why,
        counterexample=state.counterexample,
        lower_bound=state.lower,
        upper_bound=state.upper,
        root_lower_bound=state.root_lower,
        branches=state.branches,
        bounds=state.bounds,
        depth=state.depth,
        open_domains=state.open_domains + state.stuck_domains,
        seconds=run.deadline.elapsed(),
        attack_seconds=state.attack_seconds,
    )


def _absorb(
    run: Search, session: AbstractSession, state: SearchState, bounded: Bounded, split: Split | None = None
) -> SearchState:
    """Try the bounder's points, close domains above the cutoff, and keep the others open or stuck."""
    domains = bounded.domains
    state = replace(
        _try_points(run, state, run.boxes[domains.clause[bounded.owners()].cpu()], bounded.points),
        bounds=state.bounds + len(domains),
        depth=max(state.depth, int(domains.depth.max())),
    )
    cutoff = run.goal.cutoff(state.upper)
    # What is not a number proves nothing.
    lower = torch.where(domains.lower.isnan(), -torch.inf, domains.lower)
    if run.witness is not None:
        lower = run.witness.proved(session, replace(domains, lower=lower), cutoff, run.deadline)
    domains = replace(domains, lower=lower)
    closed = (lower > cutoff) | (lower == torch.inf)  # the cutoff is infinite, too, until a margin is known
    if run.execution is not None and bool(closed.any()):
        closed, state = _executed(run, run.execution, session, state, domains, closed)
    splittable = session.splittable(domains).any(dim=1)
    opened = ~closed & splittable
    first = state.frontier.pushed
    state.frontier.push(domains[opened])
    for observer in run.observers:
        observer.born(Family(domains, closed, opened, first, cutoff, split))
    stuck = lower[~closed & ~splittable]
    # A cutoff that sinks closes open domains, too; without a gap it is always 0.
    least_dropped = torch.inf if run.goal.gap is None else state.frontier.prune(cutoff)
    return replace(
        state,
        least_closed=min(state.least_closed, least_dropped, _least(lower[closed])),
        least_stuck=min(state.least_stuck, _least(stuck)),
        stuck_domains=state.stuck_domains + len(stuck),
    )


def _aim(run: Search, state: SearchState) -> float:
    """The bound to reach: the cutoff plus the last error of a float32 run."""
    return run.goal.cutoff(state.upper) + (state.float32_error if math.isfinite(state.float32_error) else 0.0)


def _executed(
    run: Search,
    execution: Execution,
    session: AbstractSession,
    state: SearchState,
    domains: DomainBatch,
    closed: Tensor,
) -> tuple[Tensor, SearchState]:
    """Which of the closed domains stay closed: their bound exceeds the cutoff by more than a float32 run's error."""
    run.deadline.check()
    numbers = closed.nonzero()[:, 0]
    errors = execution.errors(domains[numbers], session)
    lower = domains.lower[numbers]
    proved = (lower > run.goal.cutoff(state.upper) + errors) | (lower == torch.inf)
    finite = errors[errors.isfinite()]
    worst = float(finite.max()) if len(finite) else state.float32_error
    return closed.index_put((numbers,), proved), replace(state, float32_error=worst)


def _possible(splittable: Tensor, choices: Tensor) -> Tensor:
    """The rule's choices [domains]; for one that cannot be split, the first ReLU or input that can."""
    valid = (choices >= 0) & (choices < splittable.shape[1])
    known = torch.where(valid, choices, 0)
    return torch.where(valid & splittable.gather(1, known[:, None])[:, 0], known, splittable.int().argmax(dim=1))


def _least(values: Tensor) -> float:
    return float(values.min()) if len(values) else float("inf")


def _try_points(run: Search, state: SearchState, boxes: Tensor, points: Tensor) -> SearchState:
    """Compute the margins of points, and replay unsafe points, those of least margin first.

    The least margin lowers `upper` at once; only a replayed point is a counterexample. Before anything is split, the
    point of least margin is replayed even if its margin is above 0: the runtime rounds, and may find it unsafe.
    """
    if not len(points):
        return state
    present = boxes.unique().tolist()
    for box in present:
        limits = run.problem.property.boxes[box]
        if limits.ball is not None:
            in_box = (boxes == box).to(points.device)[:, None]
            points = torch.where(in_box, limits.on(points.device).project(points), points)
    # On a GPU float64 is slow, and float32 is enough to choose points for a replay.
    dtype = torch.float32 if points.is_cuda and run.goal.gap is None else torch.float64
    outputs = walk.evaluate(run.problem.network.on(points.device, dtype), points.to(dtype)).double().cpu()
    margins = torch.full((len(points),), torch.inf, dtype=torch.float64)
    for clause in run.problem.clauses:
        if clause.box in present:
            margins = torch.where(boxes == clause.box, torch.fmin(margins, clause.margins(outputs)), margins)
    best = state.upper
    state = replace(state, upper=min(best, float(margins.min())))
    if state.counterexample is not None and not state.upper < best:
        return state  # the counterexample already has the least margin
    first_look = state.branches == 0 and state.upper < best
    return _replayed(run, state, boxes, points, margins, first_look=first_look)


def _replayed(
    run: Search, state: SearchState, boxes: Tensor, points: Tensor, margins: Tensor, *, first_look: bool
) -> SearchState:
    """Replay the points of least margin, until one is a counterexample; with `first_look` the first in any case."""
    for rank, k in enumerate(margins.argsort()[:REPLAYS].tolist()):
        if float(margins[k]) > 0 and not (rank == 0 and first_look):
            break
        counterexample = replay(run.problem, points[k].cpu().numpy(), int(boxes[k]))
        if counterexample is not None:
            return replace(state, counterexample=counterexample)
        if not state.excluded and is_excluded(run.problem, points[k].cpu().numpy(), int(boxes[k])):
            state = replace(state, excluded=True)
    return state
