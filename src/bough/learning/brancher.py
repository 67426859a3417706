"""The rule that was learnt, and its safety net: scenes enter, the ReLU of highest score leaves, held against a backup.

Both are rules like any other: whatever a model says, it can only cost time. Where it says nothing that can be used, a
hand-made rule decides, and what was decided by whom is counted.
"""

import copy
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any, final

import torch
from torch import Tensor

from bough.branching.babsr import BaBSR
from bough.branching.base import BLIND, AbstractBrancher, AbstractLookAhead, Decision, highest
from bough.branching.improvement import Measure, improvements
from bough.budget import OutOfMemory, OutOfTime
from bough.domain.batch import DomainBatch
from bough.learning.model import AbstractModel
from bough.learning.scene import Graph, Scene, see
from bough.learning.scorer import Scorer
from bough.problem.problem import Problem

PASSED_ON = (OutOfTime, OutOfMemory, torch.OutOfMemoryError)  # what is no fault of a model
RECENT = 256  # decisions over which the usual improvement is taken


@dataclass(frozen=True, eq=False)
class LearntMemory:
    """What a learnt rule knows between decisions; the model is its own copy, on the search's device."""

    problem: Problem
    model: AbstractModel
    backup: Any  # the backup rule's own memory
    scorer: Scorer | None = None
    learnt: int = 0  # decisions by the model
    left: int = 0  # decisions left to the backup rule
    remarks: tuple[str, ...] = ()
    broken: bool = False  # whether the model failed, and is not asked again

    @property
    def graph(self) -> Graph | None:
        """What messages travel on; None before any domain was seen."""
        return None if self.scorer is None else self.scorer.graph

    def remarked(self, remark: str) -> "LearntMemory":
        """With a remark, which is made once."""
        return self if remark in self.remarks else replace(self, remarks=(*self.remarks, remark))


@final
@dataclass(frozen=True)
class Learnt(AbstractBrancher[LearntMemory]):
    """The ambiguous ReLU of highest score. Where the scores of a domain are no numbers, the bounder has no relaxation,
    or the model has no rule for the network, `backup` decides. `about` is what a person should know of the model.
    """

    model: AbstractModel = field(repr=False)
    backup: AbstractBrancher[Any] = field(default_factory=BaBSR)
    chunk: int | None = None  # domains scored together; by default as many as fit
    about: tuple[str, ...] = ()

    def prepare(self, problem: Problem) -> LearntMemory:
        """A copy of the model: what a search does to it ends with the search."""
        model = copy.deepcopy(self.model).eval().requires_grad_(requires_grad=False)
        return LearntMemory(problem, model, self.backup.prepare(problem))

    def decide(self, memory: LearntMemory, domains: DomainBatch, look: AbstractLookAhead = BLIND) -> Decision[Any]:
        """Score all domains, a chunk at a time."""
        memory, scores = self._scores(memory, domains, look)
        if scores is None or memory.scorer is None:
            return self._left(memory, domains, look)
        neurons = memory.scorer.graph.neurons
        allowed = domains.bounds.ambiguous()[:, neurons]
        own = (scores.isfinite() | ~allowed).all(dim=1) & allowed.any(dim=1)
        chosen = neurons[highest(scores, allowed, 1)[:, 0]]
        rows = (~own).nonzero()[:, 0]
        memory = replace(memory, learnt=memory.learnt + len(domains) - len(rows))
        if not len(rows):
            return Decision(chosen, memory, own)
        memory = memory.remarked("the model's scores are not numbers everywhere; there the backup rule decides")
        theirs = self._left(memory, domains[rows], look.among(rows))
        return Decision(chosen.index_copy(0, rows, theirs.neurons), theirs.memory, own)

    def rank(self, memory: LearntMemory, domains: DomainBatch, look: AbstractLookAhead, count: int) -> Tensor:
        """The ReLUs of highest score; one for each domain where some domain has no scores."""
        memory, scores = self._scores(memory, domains, look)
        if scores is not None and memory.scorer is not None:
            neurons = memory.scorer.graph.neurons
            allowed = domains.bounds.ambiguous()[:, neurons]
            if bool((scores.isfinite() | ~allowed).all()):
                return neurons[highest(scores, allowed, count)]
        return self.decide(memory, domains, look).neurons[:, None]

    def notes(self, memory: LearntMemory) -> Mapping[str, float]:
        """Who decided how often."""
        return {"learnt_decisions": memory.learnt, "backup_decisions": memory.left}

    def remarks(self, memory: LearntMemory) -> tuple[str, ...]:
        """What the model's card, and the model, gave reason to say."""
        return (*self.about, *memory.remarks)

    def scene(
        self, memory: LearntMemory, domains: DomainBatch, look: AbstractLookAhead
    ) -> tuple[LearntMemory, Scene | None]:
        """What there is to see, with the memory that has the graph it is on; None without a relaxation."""
        relaxed = look.relaxed(domains)
        if relaxed is None:
            return memory.remarked("these bounds have no relaxation to look at; the backup rule decides"), None
        ours = None if memory.graph is None else memory.graph.neurons
        if ours is None or not (ours is relaxed.neurons or torch.equal(ours, relaxed.neurons)):
            graph = Graph.of(memory.problem, domains, relaxed)
            memory = replace(memory, scorer=Scorer(memory.model.to(graph.neurons.device), graph, self.chunk))
        return memory, see(memory.problem, domains, relaxed)

    def _scores(
        self, memory: LearntMemory, domains: DomainBatch, look: AbstractLookAhead
    ) -> tuple[LearntMemory, Tensor | None]:
        """Scores of the graph's ReLUs, [domains, n]; None where there are none to be had."""
        if memory.broken:
            return memory, None
        memory, scene = self.scene(memory, domains, look)
        if scene is None or memory.scorer is None:
            return memory, None
        try:
            scores = memory.scorer(scene)
            if scores.shape != scene.lower.shape:
                raise ValueError(f"scores of shape {tuple(scores.shape)} for {tuple(scene.lower.shape)}")
        except PASSED_ON:
            raise
        except Exception as error:  # noqa: BLE001 - whatever a model does, a rule can only cost time
            why = f"the model cannot score this network ({type(error).__name__}: {error}); the backup rule decides"
            return replace(memory.remarked(why), broken=True), None
        return memory, scores

    def _left(self, memory: LearntMemory, domains: DomainBatch, look: AbstractLookAhead) -> Decision[Any]:
        """The backup's decision."""
        theirs = self.backup.decide(memory.backup, domains, look)
        left = replace(memory, backup=theirs.memory, left=memory.left + len(domains))
        return Decision(theirs.neurons, left, torch.zeros_like(theirs.neurons, dtype=torch.bool))


@dataclass(frozen=True, eq=False)
class SafeMemory:
    """What the fail-safe knows between decisions."""

    rule: Any
    backup: Any
    learnt: int = 0  # decisions by the rule itself
    left: int = 0  # all others
    tried: int = 0  # decisions that the backup was asked about
    usual: float = 1.0  # mean improvement of the last decisions
    weight: float = 1.0  # how many these are


@dataclass(frozen=True, eq=False)
class Compared:
    """The decisions of a rule and, where they gain too little, those of its backup."""

    first: Tensor  # int64 [domains]: the rule's
    gain: Tensor  # [domains]: its m
    own: Tensor  # bool [domains]: where the rule decided itself
    rows: Tensor  # int64 [asked]: the domains for which the backup was asked
    other: Tensor  # int64 [asked]: its choice
    other_gain: Tensor  # [asked]: its m
    better: Tensor  # bool [asked]: whether it gains more


@final
@dataclass(frozen=True)
class FailSafe(AbstractBrancher[SafeMemory]):
    """The paper's safety net around a rule (Appendix D.2): both children of its decision are bounded, and where m
    (Eq. 8) is below `threshold` those of the backup's, too; the better of both is kept.

    Children of the decision that is kept are bounded once, so a rule that does not fail costs no bound more. In large
    trees m is rarely above 0.2: `relative` takes the threshold as a share of the usual m of recent decisions. Bounding
    children of one domain takes a GPU as long as of hundreds: where fewer than a share `least` of a step's decisions
    fail, they stand.
    """

    rule: AbstractBrancher[Any]
    backup: AbstractBrancher[Any] = field(default_factory=BaBSR)
    threshold: float = 0.2
    relative: bool = False
    measure: Measure = "mean"
    least: float = 0.0

    def prepare(self, problem: Problem) -> SafeMemory:
        """What both rules remember before the first decision."""
        return SafeMemory(self.rule.prepare(problem), self.backup.prepare(problem))

    def decide(self, memory: SafeMemory, domains: DomainBatch, look: AbstractLookAhead = BLIND) -> Decision[Any]:
        """One ReLU per domain, held against the backup's."""
        comparison, memory = self.compare(memory, domains, look)
        return settle(comparison, memory)

    def rank(self, memory: SafeMemory, domains: DomainBatch, look: AbstractLookAhead, count: int) -> Tensor:
        """The ReLUs that the rule inside ranks first."""
        return self.rule.rank(memory.rule, domains, look, count)

    def notes(self, memory: SafeMemory) -> Mapping[str, float]:
        """Who decided how often, and how often the backup was asked."""
        figures = {"learnt_decisions": memory.learnt, "backup_decisions": memory.left, "backup_trials": memory.tried}
        return {**self.rule.notes(memory.rule), **figures}

    def remarks(self, memory: SafeMemory) -> tuple[str, ...]:
        """What a person should know of either rule."""
        return (*self.rule.remarks(memory.rule), *self.backup.remarks(memory.backup))

    def compare(self, memory: SafeMemory, domains: DomainBatch, look: AbstractLookAhead) -> tuple[Compared, SafeMemory]:
        """Ask the rule, and the backup where that is needed."""
        decision = self.rule.decide(memory.rule, domains, look)
        first = decision.neurons
        gain = self._gains(domains, torch.arange(len(domains), device=domains.lower.device), first, look)
        enough = self.threshold * (memory.usual if self.relative else 1.0)
        rows = (~(gain >= enough)).nonzero()[:, 0]
        if len(rows) < self.least * len(domains):
            rows = rows[:0]
        memory = replace(memory, rule=decision.memory, tried=memory.tried + len(rows))
        other, other_gain = first[rows], gain[rows]
        if len(rows):
            theirs = self.backup.decide(memory.backup, domains[rows], look.among(rows))
            memory = replace(memory, backup=theirs.memory)
            other = theirs.neurons
            new = (other != first[rows]).nonzero()[:, 0]  # the same ReLU is not bounded twice
            if len(new):
                other_gain = other_gain.index_copy(0, new, self._gains(domains, rows[new], other[new], look))
        own = torch.ones_like(first, dtype=torch.bool) if decision.own is None else decision.own
        return Compared(first, gain, own, rows, other, other_gain, other_gain > gain[rows]), memory

    def _gains(self, domains: DomainBatch, rows: Tensor, neurons: Tensor, look: AbstractLookAhead) -> Tensor:
        children = look.children(rows, neurons)[:, None]
        return improvements(domains.lower[rows], children, look.cutoff, self.measure)[:, 0]


def settle(comparison: Compared, memory: SafeMemory) -> Decision[Any]:
    """The better of both, counted."""
    rows = comparison.rows[comparison.better]
    own = comparison.own.index_fill(0, rows, value=False)
    neurons = comparison.first.index_copy(0, rows, comparison.other[comparison.better])
    gain = comparison.gain.index_copy(0, rows, comparison.other_gain[comparison.better])
    count = len(neurons)
    learnt = int(own.sum())
    weight = min(memory.weight + count, RECENT + count)
    usual = memory.usual + (float(gain.clamp(min=0).nan_to_num(0.0).mean()) - memory.usual) * count / weight
    memory = replace(memory, learnt=memory.learnt + learnt, left=memory.left + count - learnt)
    return Decision(neurons, replace(memory, usual=usual, weight=weight), own)
