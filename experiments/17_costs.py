"""E.4: what a branch, a decision and a bound cost with each rule.

    python experiments/17_costs.py --scale smoke --out OUT

The paper gives seconds of one LP and of one evaluation of the GNN. The first table has seconds over counts, of whole
runs. The second is measured with a stopwatch around the rule, one property of each network, one domain at a time as in
the paper and several: what it takes to decide, less the bounds of children that the fail-safe asks for.
"""

import sys
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor

from bough.api import load_network, load_problem, solve
from bough.branching.babsr import BaBSR
from bough.branching.base import BLIND, KNOWN_RULES, AbstractBrancher, AbstractLookAhead, Decision, RuleSettings
from bough.budget import Deadline
from bough.domain.batch import DomainBatch, InputParts, Relaxation
from bough.making.export import INSTANCES
from bough.options import Options
from bough.problem.instances import read_instances
from laboratory import paper, tables
from laboratory.statistics import Run
from laboratory.tables import Heading, Line, Table
from suite import BABSR, FSB, GNN, ONLINE, SOURCES, Experiment, Results, Setting, available, by_title, main, weights

NETWORKS = ("base", "wide", "deep")
BATCHES = (1, 128)  # domains a step


@dataclass
class Clock:
    """Seconds of a rule's own work and of what it asked the search for, and how many decisions it made."""

    own: float = 0.0
    search: float = 0.0
    decisions: int = 0
    clock: Deadline = field(default_factory=Deadline.never)

    def now(self) -> float:
        """Seconds, once the GPU has done what it was told."""
        if torch.cuda.is_available():
            torch.cuda.synchronize()
        return self.clock.elapsed()


class Asking:
    """Adds the time of a block to what was asked of the search."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._begun = 0.0

    def __enter__(self) -> None:
        self._begun = self._clock.now()

    def __exit__(self, *_: object) -> None:
        self._clock.search += self._clock.now() - self._begun


@dataclass(frozen=True)
class TimedLookAhead(AbstractLookAhead):
    """Answers as another look-ahead does, and takes the time."""

    inner: AbstractLookAhead
    clock: Clock
    cutoff: float

    def estimate(self, domains: DomainBatch, neurons: Tensor) -> Tensor:
        """The other's estimates."""
        with Asking(self.clock):
            return self.inner.estimate(domains, neurons)

    def bound(self, domains: DomainBatch, neurons: Tensor) -> Tensor:
        """The other's bounds."""
        with Asking(self.clock):
            return self.inner.bound(domains, neurons)

    def children(self, rows: Tensor, neurons: Tensor) -> Tensor:
        """The other's bounds, which it keeps."""
        with Asking(self.clock):
            return self.inner.children(rows, neurons)

    def relaxed(self, domains: DomainBatch) -> Relaxation | None:
        """The other's relaxation."""
        with Asking(self.clock):
            return self.inner.relaxed(domains)

    def unsafe_boxes(self, domains: DomainBatch) -> tuple[Tensor, Tensor] | None:
        """The other's boxes."""
        with Asking(self.clock):
            return self.inner.unsafe_boxes(domains)

    def input_parts(self, domains: DomainBatch) -> InputParts:
        """What the domains carry, which takes no time."""
        return self.inner.input_parts(domains)

    def among(self, rows: Tensor) -> "TimedLookAhead":
        """The same for some of the domains."""
        return TimedLookAhead(self.inner.among(rows), self.clock, self.cutoff)


@dataclass(frozen=True)
class Stopwatch(AbstractBrancher[Any]):
    """Decides as another rule does, and takes the time."""

    rule: AbstractBrancher[Any]
    clock: Clock

    def prepare(self, problem: Any) -> Any:
        """What the rule remembers."""
        return self.rule.prepare(problem)

    def decide(self, memory: Any, domains: DomainBatch, look: AbstractLookAhead = BLIND) -> Decision[Any]:
        """The rule's decision."""
        clock, before = self.clock, self.clock.search
        begun = clock.now()
        decision = self.rule.decide(memory, domains, TimedLookAhead(look, clock, look.cutoff))
        clock.own += clock.now() - begun - (clock.search - before)
        clock.decisions += len(domains)
        return decision


def measured(setting: Setting) -> list[Table]:
    """A line for each network, rule and number of domains a step."""
    lines = []
    for name, folder in available(NETWORKS, setting).items():
        instance = read_instances(folder / INSTANCES)[0]
        problem = load_problem(load_network(instance.network), instance.property)
        for batch in BATCHES:
            gnn = KNOWN_RULES.entry("gnn").make(RuleSettings(weights=weights("gnn", setting), bounder="dual"))
            rules: dict[str, AbstractBrancher[Any]] = {BABSR: BaBSR(), GNN: gnn}
            for title, rule in rules.items():
                clock = Clock()
                how = Options(
                    timeout=setting.limit(name),
                    bounds="dual",
                    branching=Stopwatch(rule, clock),
                    batch=batch,
                    intermediate="fixed",
                    attack=False,
                    device=setting.device,
                )
                result = solve(problem, how)
                rest = result.seconds - clock.own
                cells = (batch, clock.decisions, *_per(clock, rest, result.bounds))
                lines.append(Line(f"{SOURCES[name].title}, {title}", cells))
    titles = ("ms to decide", "ms asked of the search", "ms of all else per bound")
    headings = (Heading("", "batch", "d"), Heading("", "decisions", "d"), *(Heading("", t, ".3f") for t in titles))
    return [Table("Time of one decision, measured", "network and rule", headings, tuple(lines))]


def _per(clock: Clock, rest: float, bounds: int) -> tuple[float | None, float | None, float | None]:
    """Milliseconds for each decision, and for each bound."""
    if not clock.decisions:
        return None, None, None
    return 1e3 * clock.own / clock.decisions, 1e3 * clock.search / clock.decisions, 1e3 * rest / max(bounds, 1)


def results(runs: list[Run]) -> Results:
    """Seconds over counts."""
    return Results([tables.costs(runs, "Seconds over counts, on what every search solved", by=by_title)])


COSTS = Experiment(
    name="17_costs",
    title="Time per decision (E.4)",
    networks=NETWORKS,
    methods=(BABSR, FSB, GNN, ONLINE),
    results=results,
    beside=(paper.COSTS,),
    measured=measured,
)

if __name__ == "__main__":
    sys.exit(main(COSTS))
