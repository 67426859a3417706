"""What a baseline is: something that decides one clause after another; a problem enters, a `Result` leaves.

Points are believed as everywhere, after the network's own runtime has replayed them. That there is none is the word of
somebody else's solver, and the result says so (`Result.proved`).
"""

import math
from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import dataclass, field

from torch import Tensor

from bough.bounds.linear import Region
from bough.budget import Deadline, OutOfTime
from bough.errors import PropertyError, SolverFailure
from bough.network import walk
from bough.problem.problem import Problem
from bough.registry import Entry, Registry
from bough.verdict.counterexample import Counterexample, is_excluded, replay
from bough.verdict.result import EXCLUDED, Result, Verdict

Say = Callable[[str, float], None]
"""Takes a line for people, and the seconds since the beginning."""


@dataclass(eq=False)
class BaselineRun:
    """What a baseline knows of one problem while it works."""

    problem: Problem
    deadline: Deadline
    say: Say
    proved: dict[int, float] = field(default_factory=dict)  # lower bounds of clauses, in float64
    claimed: dict[int, float] = field(default_factory=dict)  # lower bounds of clauses, by the solver's word
    safe: set[int] = field(default_factory=set)  # clauses without unsafe points, by the solver's word
    upper: float = math.inf
    counterexample: Counterexample | None = None
    excluded: bool = False  # whether a point was unsafe that only a strict side excludes
    nodes: int = 0  # nodes of the solver's trees, of the clauses that are done
    current_nodes: int = 0  # nodes of the tree of the clause at work
    bounds: int = 0
    regions: dict[int, Region] = field(default_factory=dict)  # ReLU bounds of boxes, where the baseline uses any

    def try_point(self, clause: int, point: Tensor) -> bool:
        """Whether a point of the clause's box is a counterexample, which is then kept."""
        box = self.problem.clauses[clause].box
        outputs = walk.evaluate(self.problem.network, point)
        margin = min(float(c.margins(outputs)) for c in self.problem.clauses if c.box == box)
        self.upper = min(self.upper, margin)
        if margin <= 0 and self.counterexample is None:
            self.counterexample = replay(self.problem, point.numpy(), box)
            self.excluded = self.excluded or is_excluded(self.problem, point.numpy(), box)
        return self.counterexample is not None

    def progress(self, clause: int, bound: float, nodes: int) -> None:
        """Keep what the solver says of the clause at work, for an interrupt, and say it in a line."""
        self.current_nodes = nodes
        self.claimed[clause] = bound
        shown = f"{bound:.4g}" if math.isfinite(bound) else "-"
        seconds = self.deadline.elapsed()
        place = f"clause {clause + 1} of {len(self.problem.clauses)}"
        self.say(f"{place}   bound {shown}   {self.nodes + nodes} nodes   {seconds:.0f} s", seconds)

    def is_proved(self, clause: int) -> bool:
        """Whether bough's own bounds prove a clause."""
        return self.proved.get(clause, -math.inf) > 0


class AbstractBaseline(ABC):
    """A frozen choice of solver and model."""

    @property
    @abstractmethod
    def title(self) -> str:
        """Name and version of the solver whose word the answer is."""

    @abstractmethod
    def begin(self, run: BaselineRun) -> None:
        """Work that precedes the first clause; proved bounds of clauses go into the run."""

    @abstractmethod
    def decide(self, run: BaselineRun, clause: int) -> None:
        """Work on a clause until it is safe, or a counterexample is found; raises `OutOfTime` at the deadline."""

    def solve(self, problem: Problem, deadline: Deadline, say: Say) -> Result:
        """Decide every clause. Running out of time and Ctrl-C end it with what is known so far."""
        if any(box.ball is not None for box in problem.property.boxes):
            raise PropertyError(f"{self.title} takes boxes only, not l1 or l2 balls; use --method auto, or --norm inf")
        if problem.property.is_empty:
            return Result.of_no_point(deadline.elapsed())
        run = BaselineRun(problem, deadline, say)
        interruption = None
        try:
            deadline.check()
            self.begin(run)
            for k in range(len(problem.clauses)):
                if run.counterexample is None and not run.is_proved(k):
                    deadline.check()
                    self.decide(run, k)
        except OutOfTime:
            interruption = Verdict.TIMEOUT, "the time limit was reached"
        except SolverFailure as failure:
            interruption = Verdict.UNKNOWN, str(failure)
        except KeyboardInterrupt:
            interruption = Verdict.UNKNOWN, "interrupted"
        return self._result(run, interruption)

    def _result(self, run: BaselineRun, interruption: tuple[Verdict, str] | None) -> Result:
        clauses = range(len(run.problem.clauses))
        undecided = sum(not run.is_proved(k) and k not in run.safe for k in clauses)
        if run.counterexample is not None:
            verdict = Verdict.FALSIFIED
            reason = "a counterexample was found and replayed"
        elif interruption is not None:
            verdict, reason = interruption
        elif undecided and run.excluded:
            verdict, reason = Verdict.UNKNOWN, EXCLUDED
        elif undecided:
            verdict = Verdict.UNKNOWN
            reason = f"{undecided} clauses are too close to zero to be decided by {self.title}"
        elif run.safe:
            verdict = Verdict.VERIFIED
            reason = f"no point of the box is unsafe, by {self.title}, to its tolerances, not proved by bough"
        else:
            verdict = Verdict.VERIFIED
            reason = "no point of the box is unsafe, proved without the solver"
        lower = min(run.proved.get(k, -math.inf) for k in clauses)
        nodes = run.nodes + run.current_nodes
        notes = {"nodes": float(nodes), "solver_bound": min(run.claimed.values(), default=math.inf)}
        return Result(
            verdict=verdict,
            reason=reason,
            counterexample=run.counterexample,
            lower_bound=lower,
            upper_bound=run.upper,
            root_lower_bound=lower,
            branches=nodes,
            bounds=run.bounds + nodes,
            depth=0,
            open_domains=0 if run.counterexample is not None else undecided,
            seconds=run.deadline.elapsed(),
            notes={name: value for name, value in notes.items() if math.isfinite(value)},
            proved=verdict is not Verdict.VERIFIED or not run.safe,
        )


@dataclass(frozen=True)
class BaselineSettings:
    """What an entry of the registry makes a baseline from."""

    solver: str = "highs"
    seed: int = 0


@dataclass(frozen=True, kw_only=True)
class BaselineEntry(Entry):
    """A baseline by name."""

    make: Callable[[BaselineSettings], AbstractBaseline]
    mixed: bool = False  # whether it is a mixed-integer program, for a solver that may be chosen
    relu_bounds: str = "own"  # what a record says of the ReLU bounds
    check: Callable[[], None] = lambda: None  # raises where something is not installed


KNOWN_BASELINES = Registry("method", "BASELINES", ("bough.baselines",), BaselineEntry)
