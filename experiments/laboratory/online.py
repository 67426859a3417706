"""Learning while a property is searched (the paper's Appendix D.2): decisions that the backup beat correct the model.

The model is the search's own copy, so every property starts from the weights as they were trained. Once the folder
`experiments` is on Python's path, `--branching gnn-online` finds the rule.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any, Literal, final

import torch
from torch import Tensor

from bough.branching.babsr import BaBSR
from bough.branching.base import BLIND, AbstractBrancher, AbstractLookAhead, Decision, RuleSettings
from bough.branching.improvement import Measure
from bough.domain.batch import DomainBatch
from bough.learning.brancher import PASSED_ON, Compared, FailSafe, Learnt, LearntMemory, SafeMemory, settle
from bough.learning.model import AbstractModel
from bough.learning.rules import RELATIVE, LearntEntry, learnt_rule
from bough.learning.scene import Graph, Scene
from bough.problem.problem import Problem

Loss = Literal["published", "hinge"]


@dataclass(frozen=True, eq=False)
class OnlineMemory:
    """What is known between decisions; the optimiser works on the model in the fail-safe's memory."""

    safe: SafeMemory
    optimiser: torch.optim.Optimizer
    failed: Tensor  # int64 [neurons of the network]: how often each ReLU was a failed decision
    steps: int = 0


@final
@dataclass(frozen=True)
class Online(AbstractBrancher[OnlineMemory]):
    """A learnt rule with its fail-safe, corrected as the search goes on.

    A decision has failed where the backup's gains more. From the second time that the same ReLU fails on, each failure
    gives one step of Adam, in the order of the domains. `published` is the paper's loss (Eq. 12), in which the term for
    large differences is a constant and moves nothing (facts 5.2); `hinge` is the square of what the difference of the
    scores lacks to that margin: there a large difference pulls harder, and what is right by its margin is left alone.
    """

    rule: Learnt
    backup: AbstractBrancher[Any] = field(default_factory=BaBSR)
    threshold: float = 0.2
    relative: bool = False
    measure: Measure = "mean"
    loss: Loss = "published"
    rate: float = 1e-4
    decay: float = 1e-4  # lambda
    margin: float = 1.0  # gamma
    difference: float = 0.1  # t: of improvements, from which on the margin counts
    least: int = 2  # failures of one ReLU, from which on it is learnt from
    most: int = 32  # steps per decision of a batch; what fails beyond that is only counted

    def prepare(self, problem: Problem) -> OnlineMemory:
        """A copy of the model whose weights may move, and its optimiser."""
        safe = self._safe.prepare(problem)
        learnt: LearntMemory = safe.rule
        weights = [p.requires_grad_() for p in learnt.model.parameters()]
        if not weights:  # nothing to learn; an optimiser wants something all the same
            weights = [torch.zeros(1, requires_grad=True)]
        optimiser = torch.optim.Adam(weights, self.rate, weight_decay=self.decay)
        return OnlineMemory(safe, optimiser, torch.zeros(problem.network.neurons, dtype=torch.int64))

    def decide(
        self, memory: OnlineMemory, domains: DomainBatch, look: AbstractLookAhead = BLIND
    ) -> Decision[OnlineMemory]:
        """As the fail-safe does, learning from what failed."""
        compared, safe = self._safe.compare(memory.safe, domains, look)
        failed = memory.failed.to(compared.first.device)
        wrong = (compared.better & compared.own[compared.rows]).nonzero()[:, 0]  # in the order of the domains
        nodes = compared.first[compared.rows[wrong]]
        again = wrong[failed[nodes] + _earlier(nodes) + 1 >= self.least][: self.most]
        failed = failed.index_add(0, nodes, torch.ones_like(nodes))
        steps = self._learn(memory.optimiser, safe.rule, compared, again, domains, look) if len(again) else 0
        decision = settle(compared, safe)
        after = replace(memory, safe=decision.memory, failed=failed, steps=memory.steps + steps)
        return Decision(decision.neurons, after, decision.own)

    def rank(self, memory: OnlineMemory, domains: DomainBatch, look: AbstractLookAhead, count: int) -> Tensor:
        """The ReLUs that the rule inside ranks first."""
        return self._safe.rank(memory.safe, domains, look, count)

    def notes(self, memory: OnlineMemory) -> Mapping[str, float]:
        """The fail-safe's, and how often weights were changed."""
        return {**self._safe.notes(memory.safe), "online_steps": memory.steps}

    def remarks(self, memory: OnlineMemory) -> tuple[str, ...]:
        """The fail-safe's."""
        return self._safe.remarks(memory.safe)

    @property
    def _safe(self) -> FailSafe:
        return FailSafe(self.rule, self.backup, self.threshold, self.relative, self.measure)

    def _learn(
        self,
        optimiser: torch.optim.Optimizer,
        memory: LearntMemory,
        compared: Compared,
        again: Tensor,
        domains: DomainBatch,
        look: AbstractLookAhead,
    ) -> int:
        """One step for each of these failures (numbers among the domains that the backup was asked about)."""
        rows = compared.rows[again]
        memory, scene = self.rule.scene(memory, domains[rows], look.among(rows))
        graph, steps = memory.graph, 0
        if scene is None or graph is None:
            return 0
        places = torch.searchsorted(graph.neurons, torch.stack([compared.first[rows], compared.other[again]], dim=1))
        ahead = compared.other_gain[again] - compared.gain[rows]
        for k in range(len(rows)):  # one after another: each step sees what those before it changed
            loss = self._loss(memory.model, graph, scene[k : k + 1], places[k], ahead[k])
            if loss is not None:
                optimiser.zero_grad()
                loss.backward()
                if _finite(optimiser):
                    optimiser.step()
                    steps += 1
        return steps

    def _loss(self, model: AbstractModel, graph: Graph, scene: Scene, places: Tensor, ahead: Tensor) -> Tensor | None:
        """Of one failure; None where the model has nothing to learn."""
        try:
            chosen, better = model(graph, scene)[0, places]
        except PASSED_ON:
            raise
        except Exception:  # noqa: BLE001 - whatever a model does, a rule can only cost time
            return None
        loss = self.penalty(chosen, better, ahead)
        return loss if loss.requires_grad else None

    def penalty(self, chosen: Tensor, better: Tensor, ahead: Tensor) -> Tensor:
        """What is made smaller, of the scores of the failed choice and of the backup's, which gains so much more."""
        margin = self.margin * (ahead > self.difference)
        if self.loss == "published":
            return chosen - better + margin  # Eq. 12
        return (chosen - better + margin).clamp(min=0).square() / 2


def _earlier(nodes: Tensor) -> Tensor:
    """How often each number stands in front of itself, [count]."""
    ordered, order = nodes.sort(stable=True)
    place = torch.arange(len(nodes), device=nodes.device) - torch.searchsorted(ordered, ordered)
    return torch.empty_like(place).index_copy(0, order, place)


def _finite(optimiser: torch.optim.Optimizer) -> bool:
    """Whether a step would leave numbers."""
    gradients = [p.grad for group in optimiser.param_groups for p in group["params"] if p.grad is not None]
    return bool(torch.stack([g.isfinite().all() for g in gradients]).all()) if gradients else False


def _make(settings: RuleSettings) -> Online:
    """The rule by its name, with the weights that `gnn` has."""
    rule = learnt_rule("gnn-online", settings)
    return Online(rule, relative=rule.model.preset in RELATIVE)


RULES = (
    LearntEntry(
        name="gnn-online",
        words="gnn, corrected during the search by the decisions that babsr beat",
        make=_make,
    ),
)
