"""E.4: what a branch, a decision and a bound cost with each rule.

    python experiments/17_costs.py --scale smoke --out OUT

The paper gives seconds of one LP and of one evaluation of the GNN. The first table has seconds over counts, of whole
runs. The second is measured with a stopwatch around the rule, one property of each network, one domain at a time as in
the paper and several: what it takes to decide, less the bounds of children that the fail-safe asks for.
"""

import sys
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from functools import wraps
from typing import Any

import torch

from bough.api import load_network, load_problem, solve
from bough.branching.babsr import BaBSR
from bough.branching.base import BLIND, AbstractBrancher, Decision, LookAhead
from bough.budget import Deadline
from bough.domain.batch import DomainBatch
from bough.learning.rules import learnt
from bough.making.export import INSTANCES
from bough.options import Options
from bough.problem.instances import read_instances
from laboratory import paper, tables
from laboratory.statistics import Run
from laboratory.tables import Heading, Line, Table
from suite import BABSR, FSB, GNN, ONLINE, SOURCES, Experiment, Results, Setting, available, by_title, main, weights

NETWORKS = ("base", "wide", "deep")
BATCHES = (1, 128)  # domains a step
ASKED = ("estimate", "unsafe_boxes", "bound", "relaxed", "children")  # of the search, by a rule


@dataclass
class Clock:
    """Seconds of a rule's own work and of what it asked the search for, and how many decisions it made."""

    own: float = 0.0
    asked: float = 0.0
    decisions: int = 0
    clock: Deadline = field(default_factory=Deadline.never)

    def now(self) -> float:
        """Seconds, once the GPU has done what it was told."""
        if torch.cuda.is_available():
            torch.cuda.synchronize()
        return self.clock.elapsed()


@dataclass(frozen=True)
class Stopwatch(AbstractBrancher):
    """Decides as another rule does, and takes the time."""

    rule: AbstractBrancher
    clock: Clock

    def prepare(self, problem: Any) -> Any:
        """What the rule remembers."""
        return self.rule.prepare(problem)

    def decide(self, memory: Any, domains: DomainBatch, look: LookAhead = BLIND) -> Decision:
        """The rule's decision."""
        clock, before = self.clock, self.clock.asked
        begun = clock.now()
        timed: Mapping[str, Any] = {name: self._timed(getattr(look, name)) for name in ASKED}
        decision = self.rule.decide(memory, domains, replace(look, **timed))
        clock.own += clock.now() - begun - (clock.asked - before)
        clock.decisions += len(domains)
        return decision

    def _timed(self, ask: Callable[..., Any]) -> Callable[..., Any]:
        @wraps(ask)
        def asked(*arguments: Any) -> Any:
            begun = self.clock.now()
            answer = ask(*arguments)
            self.clock.asked += self.clock.now() - begun
            return answer

        return asked


def measured(setting: Setting) -> list[Table]:
    """A line for each network, rule and number of domains a step."""
    lines = []
    for name, folder in available(NETWORKS, setting).items():
        asked = read_instances(folder / INSTANCES)[0]
        problem = load_problem(load_network(asked.network), asked.property)
        for batch in BATCHES:
            rules = {BABSR: BaBSR(), GNN: learnt("gnn", weights("gnn", setting), None, "dual")}
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
    return 1e3 * clock.own / clock.decisions, 1e3 * clock.asked / clock.decisions, 1e3 * rest / max(bounds, 1)


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
