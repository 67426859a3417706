"""What is put on trial: one way to search, as plain values that a file can hold, and the search made of them."""

import math
from collections.abc import Callable
from dataclasses import asdict, dataclass
from typing import Any

import torch
from torch import Tensor

from bough.api import solve
from bough.bounds.ascent import Ascent
from bough.bounds.base import AbstractBounder, Capability
from bough.bounds.deepening import TreePlan, TreePlans
from bough.bounds.dual import DualAscent
from bough.bounds.optimised import OptimisedBounds
from bough.bounds.trees import Trees
from bough.branching.base import KNOWN_RULES, AbstractBrancher
from bough.budget import Deadline
from bough.falsify.base import NoAttack
from bough.falsify.pgd import GradientAttack
from bough.learning.brancher import FailSafe, Learnt
from bough.learning.model import AbstractModel
from bough.learning.scene import Graph, Scene
from bough.options import Options
from bough.plan import search_plan
from bough.problem.problem import Problem
from bough.search.loop import MemoryLimits, Search, search
from bough.verdict.result import Result
from laboratory.online import Online

SECONDS = 5.0  # of one search, which ends long before by the next two
# Bounds of one search: what is not decided by then is no disagreement. A count, so that a case repeats.
USUAL, LONG = 40, 600
MIXED_SECONDS = 0.5
GAP = 1e-3
FAMILIES = ("lp", "dual", "linear", "halved", "mip")
INTERMEDIATE = {"lp": ("tight", "fixed", "paper"), "dual": ("optimised", "trees", "tight", "fixed", "paper")}
BATCHES = (1, 2, 7, 64)
STEPS = (1, 6, 20)
INPUT_RULES = tuple(rule.name for rule in KNOWN_RULES.entries() if Capability.INPUT_PARTS in rule.needs)
LEARNT_RULES = tuple(rule.name for rule in KNOWN_RULES.entries() if rule.learnt)
RELU_RULES = tuple(name for name in KNOWN_RULES.names() if name not in (*INPUT_RULES, *LEARNT_RULES))
SHIPPED = ("gnn", "gnn-online", "learnt-local")  # those whose weights come with bough


# Models that mean harm


def _noise(graph: Graph, scene: Scene) -> Tensor:
    """Scores that depend on the domain, and on nothing that matters."""
    return torch.sin(1e3 * (scene.upper + scene.lower) + torch.arange(len(graph.neurons)) + scene.depth[:, None])


def _raising(graph: Graph, scene: Scene) -> Tensor:
    raise KeyError(graph, len(scene))


SCORES: dict[str, Callable[[Graph, Scene], Tensor]] = {
    "noise": _noise,
    "partly-nan": lambda graph, scene: _noise(graph, scene).masked_fill((scene.depth % 2 == 0)[:, None], math.nan),
    "nan": lambda _, scene: scene.lower * math.nan,
    "infinite": lambda _, scene: scene.lower.new_full(scene.lower.shape, math.inf),
    "worst": lambda _, scene: -(scene.upper - scene.lower),
    "decided-first": lambda _, scene: ((scene.lower >= 0) | (scene.upper <= 0)).float() * 1e30,
    "wrong-shape": lambda _, scene: scene.lower[:, :-1],
    "raising": _raising,
}
ADVERSARIAL = tuple(f"adversary:{name}:{way}" for name in SCORES for way in ("alone", "safe", "online"))


class Adversary(AbstractModel):
    """Scores by a function, whatever it is."""

    preset = "adversary"

    def __init__(self, name: str) -> None:
        super().__init__()
        self.name = name

    def forward(self, graph: Graph, scene: Scene) -> Tensor:
        """As told."""
        return SCORES[self.name](graph, scene)


# Small searches are foreseen to be short; here trees grow all the same, at the root and after some bounds.
_PLAN = TreePlan((Trees(4, 16), Trees(8, 64)), 1.0, 2000.0, 2000.0, 1e5, 0.5, later=30.0, fewest=0.0, many_clauses=2)
EAGER = OptimisedBounds(trees=TreePlans(_PLAN, _PLAN))

RULES_OF = {
    "lp": (*RELU_RULES, *SHIPPED, *ADVERSARIAL),
    "dual": (*RELU_RULES, *SHIPPED, *ADVERSARIAL),
    "linear": tuple(rule for rule in INPUT_RULES if rule != "shadow"),
    "halved": INPUT_RULES,
    "mip": ("mip-planet", "mip-tight"),
}


@dataclass(frozen=True)
class Engine:
    """Bounds, rule and the rest, by name."""

    family: str
    rule: str
    intermediate: str = "auto"
    batch: int = 8
    steps: int = 20  # of ascent, per domain
    attack: bool = False
    tiny_memory: bool = False  # the frontier spills all the time
    most: int = LONG  # bounds
    minimum: bool = False  # the minimum, to within `GAP`, instead of the sign

    def __str__(self) -> str:
        parts = [self.family, self.rule, self.intermediate, f"batch {self.batch}"]
        parts += [f"{self.steps} steps"] * (self.family == "dual")
        named = {"attack": self.attack, "tiny memory": self.tiny_memory, "minimum": self.minimum}
        return ", ".join(parts + [name for name, is_on in named.items() if is_on])

    def as_json(self) -> dict[str, Any]:
        """Plain values."""
        return asdict(self)

    def solve(self, problem: Problem, seconds: float = SECONDS) -> Result:
        """The verdict on trial."""
        if self.family == "mip":
            return solve(problem, Options(timeout=min(seconds, MIXED_SECONDS), method=self.rule))
        bounds, gap = "lp" if self.family == "halved" else self.family, GAP if self.minimum else None
        relu_bounds = EAGER if self.intermediate == "trees" else self.intermediate
        options = Options(
            bounds=bounds, branching=self._rule(), intermediate=relu_bounds, gap=gap, device="cpu", seed=1
        )
        plan = search_plan(options, problem.network)
        run = Search(
            problem=problem,
            bounder=self._bounder(plan.bounder),
            brancher=plan.brancher,
            falsifier=GradientAttack(seed=1) if self.attack else NoAttack(),
            deadline=Deadline.after(seconds),
            goal=plan.goal,
            batch=self.batch,
            memory=MemoryLimits(2048.0, math.inf) if self.tiny_memory else MemoryLimits(),
            most_bounds=self.most,
        )
        return search(run)

    def _bounder(self, usual: AbstractBounder) -> AbstractBounder:
        if not isinstance(usual, DualAscent):
            return usual
        ascent, root = Ascent(steps=self.steps, pauses=(3,)), Ascent(steps=2 * self.steps)
        return DualAscent(ascent, root, usual.intermediate, batch=max(2, self.batch))

    def _rule(self) -> str | AbstractBrancher[Any]:
        if not self.rule.startswith("adversary"):
            return self.rule
        _, name, way = self.rule.split(":")
        learnt = Learnt(Adversary(name))
        ways: dict[str, AbstractBrancher[Any]] = {
            "alone": learnt,
            "safe": FailSafe(learnt),
            "online": Online(learnt, least=1, rate=0.1),
        }
        return ways[way]


def engines(number: int, inputs: int, *, ball: bool) -> list[Engine]:
    """Who tries case `number`: every family, its other options turning at different speeds, so that all pairs meet.

    Mixed-integer solvers take no balls.
    """
    chosen = []
    for family in FAMILIES:
        if (family == "mip" and (ball or number % 3)) or (family in ("linear", "halved") and inputs > 4):
            continue
        if family == ("linear", "halved")[number // 2 % 2]:  # each has a safe and an unsafe one
            continue
        rules = RULES_OF[family]
        turn = 7 * number + number // 4 + FAMILIES.index(family)
        kinds = INTERMEDIATE.get(family, ("auto",))
        relu = family in ("lp", "dual")
        chosen.append(
            Engine(
                family,
                rules[turn % len(rules)],
                kinds[number // 3 % len(kinds)],
                BATCHES[number // 2 % len(BATCHES)] if relu else 16,
                STEPS[number // 4 % len(STEPS)],
                attack=number % 5 == 0,
                tiny_memory=number % 4 == 1,
                most=USUAL if number % 32 else LONG,
                minimum=family != "mip" and number % 9 == 4,
            )
        )
    return chosen
