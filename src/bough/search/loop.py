"""Branch and bound, the paper's Algorithm 1, as one loop for every bounder and brancher.

`init`, then `step` until `finished`, then `result`. Deciding the sign is the special case of the paper's Appendix A:
the global upper bound starts at 0 and the search stops at the first counterexample.
"""

import math
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
from bough.verdict.counterexample import Counterexample, replay
from bough.verdict.result import Result, Verdict

REPLAYS = 8  # most points of one batch handed to the runtime


@dataclass(frozen=True)
class MemoryLimits:
    """What the open domains may take, on the device and beyond it on the host."""

    device_bytes: float = float("inf")
    host_bytes: float = float("inf")


@dataclass(frozen=True)
class Goal:
    """What is searched for: the sign (`gap=None`), or the minimum to within a gap."""

    gap: float | None = None

    def cutoff(self, upper: float) -> float:
        """Domains with a lower bound above this need no further work."""
        return 0.0 if self.gap is None else upper - self.gap


@dataclass(frozen=True, eq=False)
class SearchState:
    """Everything a search knows between two steps."""

    frontier: Frontier
    memory: object  # the brancher's
    upper: float = float("inf")  # least margin seen at a point; at or below 0 is unsafe
    closed: float = float("inf")  # least lower bound of a closed domain
    stuck: float = float("inf")  # least lower bound of a domain that can be neither split nor closed
    stuck_domains: int = 0
    root_lower: float = float("-inf")
    counterexample: Counterexample | None = None
    branches: int = 0
    bounds: int = 0
    depth: int = 0
    attacked: int = 0  # how often the falsifier was run
    attack_seconds: float = 0.0
    started: bool = False  # whether the root was bounded
    error: float = 0.0  # most that execution was last found to be off by in a domain about to be closed
    deciding: Stopwatch = field(default_factory=Stopwatch)  # time for decisions, without the children they keep

    @property
    def lower(self) -> float:
        """The global lower bound."""
        return min(self.frontier.lowest, self.stuck, self.closed)


@dataclass(frozen=True, eq=False)
class Search:
    """The strategies of one search on one problem."""

    problem: Problem
    bounder: AbstractBounder
    brancher: AbstractBrancher[Any]
    falsifier: AbstractFalsifier
    deadline: Deadline
    goal: Goal = field(default_factory=Goal)
    batch: int = 1  # domains split in one step
    memory: MemoryLimits = field(default_factory=MemoryLimits)
    most_bounds: float = float("inf")  # no step begins after so many
    observers: tuple[AbstractObserver, ...] = ()
    witness: AbstractWitness | None = None  # writes down why domains are closed, and has the last word on it
    execution: Execution | None = None  # if given, `verified` has to hold for float32 execution, too

    @cached_property
    def boxes(self) -> Tensor:
        """The number of every clause's input box."""
        return torch.tensor([clause.box for clause in self.problem.clauses])


def search(run: Search) -> Result:
    """Run a whole search. Running out of time and Ctrl-C end it with what is known so far."""
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
        reason = Verdict.UNKNOWN, "the machine's memory is too small for this network, or used by others"
    notes = {**session.notes(), "decision_seconds": state.deciding.seconds(), **run.brancher.notes(state.memory)}
    return replace(result(run, state, reason), notes=notes, remarks=run.brancher.remarks(state.memory))


def _next(run: Search, session: AbstractSession, state: SearchState) -> SearchState:
    next_attack = 0 if state.attacked == 0 else 1000 * 100.0**state.attacked
    if state.bounds >= next_attack:
        return attack(run, state)
    return step(run, session, state) if state.started else init(run, session, state)


def attack(run: Search, state: SearchState) -> SearchState:
    """Try the falsifier: before anything is bounded, after 100,000 bounds, then at each hundredfold of these."""
    begun = run.deadline.elapsed()
    for box, points in run.falsifier.candidates(run.problem, run.deadline, state.attacked):
        run.deadline.check()
        state = _try_points(run, state, torch.full((len(points),), box), points)
        if finished(run, state):
            break
    spent = state.attack_seconds + run.deadline.elapsed() - begun
    return replace(state, attacked=state.attacked + 1, attack_seconds=spent)


def init(run: Search, session: AbstractSession, state: SearchState) -> SearchState:
    """Bound the root of every clause (Algorithm 1, lines 2-4)."""
    bounded = session.root(_aim(run, state), run.deadline)
    state = _absorb(run, session, replace(state, started=True), bounded)
    return replace(state, root_lower=float(bounded.domains.lower.min()))


def step(run: Search, session: AbstractSession, state: SearchState) -> SearchState:
    """Split the worst domains and bound their children (Algorithm 1, lines 6-18)."""
    domains = state.frontier.pick(run.batch)
    numbers = state.frontier.picked
    try:
        cutoff = _aim(run, state)
        ahead = CountedLookAhead(session, run.deadline, domains, cutoff, run.batch, state.deciding)
        for observer in run.observers:
            observer.deciding(domains, ahead.uncounted())
        with state.deciding.on(domains.lower.device):
            decision = run.brancher.decide(state.memory, domains, ahead)
        neurons = _possible(session.splittable(domains), decision.neurons)
        bounded, order = ahead.split(neurons)
        branches = state.branches + 2 * len(domains)
        spent = replace(state, memory=decision.memory, branches=branches, bounds=state.bounds + ahead.count)
        return _absorb(run, session, spent, bounded, Split(domains, numbers, neurons, order, decision))
    except BaseException:
        state.frontier.push(domains)  # an unfinished step leaves its domains open
        raise


def finished(run: Search, state: SearchState) -> bool:
    """Whether there is nothing left to do; a minimum is searched beyond the first counterexample."""
    refuted = state.counterexample is not None and run.goal.gap is None
    return refuted or (state.started and len(state.frontier) == 0)


def result(run: Search, state: SearchState, stopped: tuple[Verdict, str] | None) -> Result:
    """What the state amounts to."""
    if state.counterexample is not None:
        verdict = Verdict.FALSIFIED
        why = "a counterexample was found and replayed"
    elif stopped is not None:
        verdict, why = stopped
    elif state.stuck_domains:
        verdict = Verdict.UNKNOWN
        why = f"{state.stuck_domains} domains are too close to zero to be decided in floating point"
        if run.execution is not None:
            why += ", or safe only in real arithmetic (--semantics real)"
    elif not state.lower > 0:  # only when a minimum was asked for: it is known, its sign is not
        verdict = Verdict.UNKNOWN
        why = "the least margin is closer to 0 than the gap, or could not be replayed"
    else:
        sense = "in real arithmetic" if run.execution is None else "in any float32 execution"
        verdict = Verdict.VERIFIED
        why = f"no point of the box is unsafe, {sense}"
    return Result(
        verdict=verdict,
        reason=why,
        counterexample=state.counterexample,
        lower_bound=state.lower if state.started else float("-inf"),
        upper_bound=state.upper,
        root_lower_bound=state.root_lower,
        branches=state.branches,
        bounds=state.bounds,
        depth=state.depth,
        open_domains=len(state.frontier) + state.stuck_domains,
        seconds=run.deadline.elapsed(),
        attack_seconds=state.attack_seconds,
    )


def _absorb(
    run: Search, session: AbstractSession, state: SearchState, bounded: Bounded, split: Split | None = None
) -> SearchState:
    """Prune, keep open, and try the points that the bounder offers."""
    domains = bounded.domains
    boxes = run.boxes[domains.clause[bounded.owners()].cpu()]
    state = replace(
        _try_points(run, state, boxes, bounded.points),
        bounds=state.bounds + len(domains),
        depth=max(state.depth, int(domains.depth.max())),
    )
    cutoff = run.goal.cutoff(state.upper)
    # What is not a number proves nothing.
    lower = torch.where(domains.lower.isnan(), -torch.inf, domains.lower)
    if run.witness is not None:
        lower = run.witness.proved(session, replace(domains, lower=lower), cutoff, run.deadline)
    domains = replace(domains, lower=lower)
    closed = (lower > cutoff) | (lower == torch.inf)
    if run.execution is not None and bool(closed.any()):
        closed, state = _executed(run, run.execution, session, state, domains, closed)
    splittable = session.splittable(domains).any(dim=1)
    opened = ~closed & splittable
    first = state.frontier.pushed
    state.frontier.push(domains[opened])
    for observer in run.observers:
        observer.born(Family(domains, closed, opened, first, cutoff, split))
    stuck = lower[~closed & ~splittable]
    # Without a gap the cutoff is always 0.
    dropped = torch.inf if run.goal.gap is None else state.frontier.prune(cutoff)
    return replace(
        state,
        closed=min(state.closed, dropped, _least(lower[closed])),
        stuck=min(state.stuck, _least(stuck)),
        stuck_domains=state.stuck_domains + len(stuck),
    )


def _aim(run: Search, state: SearchState) -> float:
    """The bound to reach: the cutoff, and what execution was last found to be off by."""
    return run.goal.cutoff(state.upper) + (state.error if math.isfinite(state.error) else 0.0)


def _executed(
    run: Search,
    execution: Execution,
    session: AbstractSession,
    state: SearchState,
    domains: DomainBatch,
    closed: Tensor,
) -> tuple[Tensor, SearchState]:
    """Which of the domains to be closed stay so under float32 execution: their bound exceeds all it can be off by."""
    run.deadline.check()
    numbers = closed.nonzero()[:, 0]
    errors = execution.errors(domains[numbers], session)
    lower = domains.lower[numbers]
    safe = (lower > run.goal.cutoff(state.upper) + errors) | (lower == torch.inf)
    finite = errors[errors.isfinite()]
    worst = float(finite.max()) if len(finite) else state.error
    return closed.index_put((numbers,), safe), replace(state, error=worst)


def _possible(splittable: Tensor, choices: Tensor) -> Tensor:
    """The choices [domains], replaced by the first possible one wherever a rule chose one that cannot be split."""
    valid = (choices >= 0) & (choices < splittable.shape[1])
    safe = torch.where(valid, choices, 0)
    good = valid & splittable.gather(1, safe[:, None])[:, 0]
    return torch.where(good, safe, splittable.int().argmax(dim=1))


def _least(values: Tensor) -> float:
    return float(values.min()) if len(values) else float("inf")


def _try_points(run: Search, state: SearchState, boxes: Tensor, points: Tensor) -> SearchState:
    """Evaluate points by every clause of their box; unsafe ones are replayed (best first) before they count.

    Before anything is split, the best so far is replayed even if it is safe here: the runtime rounds, and may find it
    unsafe.
    """
    if not len(points):
        return state
    present = boxes.unique().tolist()
    for box in present:
        limits = run.problem.property.boxes[box]
        if limits.ball is not None:
            in_box = (boxes == box).to(points.device)[:, None]
            points = torch.where(in_box, limits.on(points.device).project(points), points)
    # On a GPU float64 is slow, and a verdict needs no more than what is worth replaying.
    dtype = torch.float32 if points.is_cuda and run.goal.gap is None else torch.float64
    outputs = walk.evaluate(run.problem.network.on(points.device, dtype), points.to(dtype)).double().cpu()
    margins = torch.full((len(points),), torch.inf, dtype=torch.float64)
    for clause in run.problem.clauses:
        if clause.box in present:
            margins = torch.where(boxes == clause.box, torch.fmin(margins, clause.margins(outputs)), margins)
    best = state.upper
    state = replace(state, upper=min(best, float(margins.min())))
    if state.counterexample is not None and not state.upper < best:
        return state  # a minimum is asked for, and the counterexample at hand is the least so far
    for rank, k in enumerate(margins.argsort()[:REPLAYS].tolist()):
        if float(margins[k]) > 0 and not (rank == 0 and state.branches == 0 and state.upper < best):
            break
        counterexample = replay(run.problem, points[k].cpu().numpy(), int(boxes[k]))
        if counterexample is not None:
            return replace(state, counterexample=counterexample)
    return state
