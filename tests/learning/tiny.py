"""Stand-ins for tests of what is around a model: one that looks at each ReLU alone, some that misbehave, and samples of
tiny problems.
"""

from collections.abc import Callable

import torch
from tests.support import hard_case, relaxation_of
from torch import Tensor, nn

from bough.bounds.ascent import Ascent
from bough.bounds.base import AbstractBounder, AbstractSession
from bough.bounds.dual import DualAscent
from bough.bounds.intermediate import TightBounds
from bough.bounds.lp import PlanetLP
from bough.budget import Deadline
from bough.domain.batch import DomainBatch, split
from bough.learning.model import AbstractModel
from bough.learning.samples import Samples
from bough.learning.scene import Graph, Scene, see
from bough.problem.problem import Problem
from bough.search.ahead import CountedLookAhead

NEVER = Deadline.never()
FIXED = TightBounds(refresh=False)
BOUNDERS: dict[str, AbstractBounder] = {
    "lp": PlanetLP(FIXED),
    # Few steps, so that branching has something left to do.
    "dual": DualAscent(Ascent(steps=8, pauses=(3,)), Ascent(steps=20), FIXED),
}


class Tiny(AbstractModel):
    """A small network over what is known of each ReLU alone."""

    preset = "tiny"

    def __init__(self) -> None:
        super().__init__()
        self.hidden, self.out = nn.Linear(10, 32), nn.Linear(32, 1)

    def forward(self, graph: Graph, scene: Scene) -> Tensor:
        columns = (scene.lower, scene.upper, scene.zero, scene.above, scene.below, scene.before, scene.after)
        nu = scene.zero + scene.above - scene.below
        more = (nu * scene.lower, scene.through, graph.place.expand_as(scene.lower))
        features = torch.stack([*columns, *more], dim=-1)
        scores: Tensor = self.out(self.hidden(features).relu())[..., 0]
        return scores


class Told(AbstractModel):
    """Scores by a function, whatever it is."""

    preset = "told"

    def __init__(self, score: Callable[[Graph, Scene], Tensor]) -> None:
        super().__init__()
        self.score = score

    def forward(self, graph: Graph, scene: Scene) -> Tensor:
        return self.score(graph, scene)


def still_open(domains: DomainBatch) -> DomainBatch:
    return domains[~(domains.lower > 0) & domains.bounds.ambiguous().any(dim=1)]


def open_domains(problem: Problem, bounder: AbstractBounder, depth: int = 2) -> tuple[AbstractSession, DomainBatch]:
    """A bounder at work, and open domains of every depth up to one."""
    session = bounder.prepare(problem)
    depths = [still_open(session.root(0.0, NEVER).domains)]
    for _ in range(depth):
        if len(depths[-1]):
            children = split(depths[-1], depths[-1].bounds.ambiguous().int().argmax(dim=1))
            depths.append(still_open(session.bound(children, 0.0, NEVER).domains))
    domains = DomainBatch.concatenate([part for part in depths if len(part)] or depths[:1])
    return session, session.unpack(session.pack(domains))


def samples_of(kind: str, seed: int, bounds: str = "lp") -> Samples:
    """Both children of every ambiguous ReLU of some open domains; a domain may be left out, and so may a case."""
    problem = hard_case(kind, seed, safe=True).problem
    session, domains = open_domains(problem, BOUNDERS[bounds])
    relaxed = relaxation_of(session, domains)
    every = relaxed.neurons.expand(len(domains), -1)
    children = CountedLookAhead(session, NEVER, domains).bound(domains, every).float()
    step = torch.arange(len(domains))
    return Samples(Graph.of(problem, domains, relaxed), see(problem, domains, relaxed), children, step)
