"""Branch and bound, the paper's Algorithm 1, as one loop for every bounder and brancher.

`init`, then `step` until `finished`, then `result`. Deciding the sign is the special case of the paper's Appendix A:
the global upper bound starts at 0 and the search stops at the first counterexample.
"""

from dataclasses import dataclass, field, replace

import torch
from torch import Tensor

from bough.bounds.base import AbstractBounder, AbstractBounding, Bounded
from bough.branching.base import AbstractBrancher
from bough.budget import Deadline, OutOfTime
from bough.domain.batch import DomainBatch, split
from bough.falsify.base import AbstractFalsifier
from bough.network import walk
from bough.problem.problem import Problem
from bough.search.frontier import Frontier
from bough.search.observe import AbstractObserver
from bough.verdict.counterexample import Counterexample, replay
from bough.verdict.result import Result, Verdict

REPLAYS = 8  # most points of one batch handed to the runtime


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
    upper: float = float("inf")  # least margin seen at a point
    closed: float = float("inf")  # least lower bound of a closed domain
    stuck: float = float("inf")  # least lower bound of a domain that can be neither split nor closed
    stuck_domains: int = 0
    root_lower: float = float("-inf")
    counterexample: Counterexample | None = None
    branches: int = 0
    bounds: int = 0
    depth: int = 0
    attacked: bool = False
    started: bool = False  # whether the root was bounded

    @property
    def lower(self) -> float:
        """The global lower bound."""
        return min(self.frontier.lowest, self.stuck, self.closed)


@dataclass(frozen=True, eq=False)
class Search:
    """The strategies of one search on one problem."""

    problem: Problem
    bounder: AbstractBounder
    brancher: AbstractBrancher
    falsifier: AbstractFalsifier
    deadline: Deadline
    goal: Goal = field(default_factory=Goal)
    batch: int = 1
    observers: tuple[AbstractObserver, ...] = ()


def search(run: Search) -> Result:
    """Run a whole search. Running out of time and Ctrl-C end it with what is known so far."""
    state, reason = SearchState(Frontier(), run.brancher.prepare(run.problem)), None
    bounding = run.bounder.prepare(run.problem)
    try:
        while not finished(run, state):
            run.deadline.check()
            state = _next(run, bounding, state)
            for observer in run.observers:
                observer.seen(state, run.deadline.elapsed())
    except OutOfTime:
        reason = Verdict.TIMEOUT, "the time limit was reached"
    except KeyboardInterrupt:
        reason = Verdict.UNKNOWN, "interrupted"
    return result(run, state, reason)


def _next(run: Search, bounding: AbstractBounding, state: SearchState) -> SearchState:
    if not state.attacked:
        return attack(run, state)
    return step(run, bounding, state) if state.started else init(run, bounding, state)


def attack(run: Search, state: SearchState) -> SearchState:
    """Try the falsifier's points before anything is bounded."""
    state = replace(state, attacked=True)
    for box, points in run.falsifier.candidates(run.problem, run.deadline):
        run.deadline.check()
        state = _try_points(run, state, torch.full((len(points),), box), points)
        if finished(run, state):
            break
    return state


def init(run: Search, bounding: AbstractBounding, state: SearchState) -> SearchState:
    """Bound the root of every clause (Algorithm 1, lines 2-4)."""
    bounded = bounding.root(run.goal.cutoff(state.upper), run.deadline)
    state = _absorb(run, replace(state, started=True), bounded)
    return replace(state, root_lower=float(bounded.domains.lower.min()))


def step(run: Search, bounding: AbstractBounding, state: SearchState) -> SearchState:
    """Split the worst domains and bound their children (Algorithm 1, lines 6-18)."""
    domains = state.frontier.pick(run.batch)
    try:
        decision = run.brancher.decide(state.memory, domains)
        children = split(domains, _splittable(domains, decision.neurons))
        bounded = bounding.bound(children, run.goal.cutoff(state.upper), run.deadline)
        return _absorb(run, replace(state, memory=decision.memory, branches=state.branches + len(children)), bounded)
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
        verdict, why = Verdict.FALSIFIED, "a counterexample was found and replayed"
    elif stopped is not None:
        verdict, why = stopped
    elif state.stuck_domains:
        verdict = Verdict.UNKNOWN
        why = f"{state.stuck_domains} domains are too close to zero to be decided in floating point"
    elif not state.lower > 0:  # only when a minimum was asked for: it is known, its sign is not
        verdict, why = Verdict.UNKNOWN, "the least margin is closer to 0 than the gap, or could not be replayed"
    else:
        verdict, why = Verdict.VERIFIED, "no point of the box is unsafe"
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
    )


def _absorb(run: Search, state: SearchState, bounded: Bounded) -> SearchState:
    """Prune, keep open, and try the points that the bounder offers."""
    domains = bounded.domains
    boxes = torch.tensor([run.problem.clauses[int(c)].box for c in domains.clause])
    state = replace(
        _try_points(run, state, boxes, bounded.points),
        bounds=state.bounds + len(domains),
        depth=max(state.depth, int(domains.depth.max())),
    )
    cutoff = run.goal.cutoff(state.upper)
    # What is not a number proves nothing.
    lower = torch.where(domains.lower.isnan(), -torch.inf, domains.lower)
    domains = replace(domains, lower=lower)
    closed = lower > cutoff
    splittable = domains.bounds.ambiguous().any(dim=1)
    state.frontier.push(domains[~closed & splittable])
    stuck = lower[~closed & ~splittable]
    dropped = torch.inf if run.goal.gap is None else state.frontier.prune(cutoff)  # a sign's cutoff stays where it is
    return replace(
        state,
        closed=min(state.closed, dropped, *lower[closed].tolist()),
        stuck=min([state.stuck, *stuck.tolist()]),
        stuck_domains=state.stuck_domains + len(stuck),
    )


def _splittable(domains: DomainBatch, neurons: Tensor) -> Tensor:
    """The chosen ReLUs, replaced by the first ambiguous one wherever a rule chose one that cannot be split."""
    ambiguous = domains.bounds.ambiguous()
    valid = (neurons >= 0) & (neurons < ambiguous.shape[1])
    safe = torch.where(valid, neurons, 0)
    good = valid & ambiguous[torch.arange(len(domains)), safe]
    return torch.where(good, safe, ambiguous.int().argmax(dim=1))


def _try_points(run: Search, state: SearchState, boxes: Tensor, points: Tensor) -> SearchState:
    """Evaluate points by every clause of their box; unsafe ones are replayed (best first) before they count."""
    outputs = walk.evaluate(run.problem.network, points)
    present = set(boxes.tolist())
    margins = torch.full((len(points),), torch.inf, dtype=torch.float64)
    for clause in run.problem.clauses:
        if clause.box in present:
            margins = torch.where(boxes == clause.box, torch.fmin(margins, clause.margins(outputs)), margins)
    best = state.upper
    state = replace(state, upper=min(best, float(margins.min())))
    if state.counterexample is not None and not state.upper < best:
        return state  # a minimum is asked for, and the counterexample at hand is the least so far
    for k in margins.argsort()[:REPLAYS].tolist():
        if float(margins[k]) > 0:
            break
        found = replay(run.problem, points[k].numpy(), int(boxes[k]))
        if found is not None:
            return replace(state, counterexample=found)
    return state
