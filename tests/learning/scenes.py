"""Scenes for tests of what is learnt: open domains of small random problems, as a bounder's relaxation has them."""

from functools import lru_cache

import torch
from tests.support import hard_case, relaxation_of

from bough.bounds.ascent import Ascent
from bough.bounds.base import AbstractBounder
from bough.bounds.dual import DualAscent
from bough.bounds.intermediate import TightBounds
from bough.bounds.lp import PlanetLP
from bough.budget import Deadline
from bough.domain.batch import DomainBatch, split
from bough.learning.scene import Graph, Scene, see
from bough.problem.problem import Problem

NEVER = Deadline.never()
FIXED = TightBounds(refresh=False)
BOUNDERS: dict[str, AbstractBounder] = {
    "dual": DualAscent(Ascent(steps=20), Ascent(steps=20), FIXED),
    "lp": PlanetLP(FIXED, early_stop=False),
}


@lru_cache(maxsize=64)
def seen(kind: str, seed: int, bounder: str = "dual") -> tuple[Problem, Graph, Scene]:
    """The roots of a problem, their children and grandchildren, and the graph that they are on."""
    problem = hard_case(kind, seed, safe=True).problem
    session = BOUNDERS[bounder].prepare(problem)
    parts = [session.root(-torch.inf, NEVER).domains]
    for _ in range(2):
        last = parts[-1][parts[-1].bounds.ambiguous().any(dim=1)]
        children = split(last, last.bounds.ambiguous().int().argmax(dim=1))
        children = session.bound(children, torch.inf, NEVER).domains
        parts.append(children[torch.isfinite(children.lower)])
    domains = DomainBatch.concatenate(parts)
    relaxed = relaxation_of(session, domains)
    return problem, Graph.of(problem, parts[0], relaxed), see(problem, domains, relaxed)
