"""What a branching rule is: a strategy that says, for each domain of a batch, which ReLU to split.

A rule is called at two times: `prepare` once per problem, `decide` at every step. A rule can only cost time: whatever
it answers, the search stays right, and a choice that cannot be split is replaced.
"""

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, ClassVar, Generic, NoReturn, TypeVar, final

import torch
from torch import Tensor

from bough.bounds.base import Capability
from bough.domain.batch import DomainBatch, InputParts, Relaxation
from bough.problem.problem import Problem
from bough.registry import Entry, Registry

Memory = TypeVar("Memory")


@dataclass(frozen=True, eq=False)
class Decision(Generic[Memory]):
    """What to split in each domain (int64 [domains]): a ReLU by its flat number or, where the bounder halves inputs,
    input k as `neurons + k`; and what the rule wants to remember for its next decision. `own` is false where the rule
    left the decision to another rule, bool [domains]; None: nowhere.
    """

    neurons: Tensor
    memory: Memory
    own: Tensor | None = None


class AbstractLookAhead(ABC):
    """What a rule may ask of the search before it decides. Children above `cutoff` are closed."""

    cutoff: float = 0.0

    @abstractmethod
    def estimate(self, domains: DomainBatch, neurons: Tensor) -> Tensor:
        """Cheap bounds of both children of every candidate [domains, candidates], as [domains, candidates, 2]; minus
        infinity where a candidate cannot be split. Each child counts as one bound.
        """

    @abstractmethod
    def bound(self, domains: DomainBatch, neurons: Tensor) -> Tensor:
        """The bounds that both children of every candidate would have in the search; of a child above the cutoff, some
        number above it. Minus infinity where a candidate cannot be split, which costs nothing.
        """

    @abstractmethod
    def children(self, rows: Tensor, neurons: Tensor) -> Tensor:
        """Bounds as by `bound` for one candidate per row, [rows, 2]; `rows` are numbers in the batch that `decide` was
        given. If the rule decides for that candidate, the search takes these children over without bounding them again.
        """

    @abstractmethod
    def relaxed(self, domains: DomainBatch) -> Relaxation | None:
        """What the bounder's relaxation says of the domains; None: it keeps no such thing."""

    @abstractmethod
    def unsafe_boxes(self, domains: DomainBatch) -> tuple[Tensor, Tensor] | None:
        """Input boxes, lower and upper [domains, inputs], around all unsafe points; None: not known."""

    @abstractmethod
    def input_parts(self, domains: DomainBatch) -> InputParts:
        """The boxes that the domains carry, where the bounder halves inputs."""

    @abstractmethod
    def among(self, rows: Tensor) -> "AbstractLookAhead":
        """The look-ahead for these rows (int64) only, to be handed to another rule."""


@final
class NoLookAhead(AbstractLookAhead):
    """For rules that look at the domains alone."""

    def _refuse(self, *_: object, **__: object) -> NoReturn:
        raise NotImplementedError("this search does not look ahead")

    estimate = bound = children = _refuse

    def relaxed(self, domains: DomainBatch) -> None:
        """Nothing is known."""

    def unsafe_boxes(self, domains: DomainBatch) -> None:
        """Nothing is known."""

    def input_parts(self, domains: DomainBatch) -> InputParts:
        """What the domains carry."""
        return domains.carried(InputParts)

    def among(self, rows: Tensor) -> "NoLookAhead":
        """The same for any domains."""
        del rows
        return self


BLIND = NoLookAhead()


class AbstractBrancher(ABC, Generic[Memory]):
    """A branching rule; its fields are its configuration, and what it remembers travels through the search's state."""

    needs: ClassVar[frozenset[Capability]] = frozenset()
    """What the bounder has to be capable of."""

    @abstractmethod
    def prepare(self, problem: Problem) -> Memory:
        """What the rule remembers before its first decision."""

    @abstractmethod
    def decide(self, memory: Memory, domains: DomainBatch, look: AbstractLookAhead = BLIND) -> Decision[Memory]:
        """Choose an ambiguous ReLU in every domain; each domain has at least one."""

    def rank(self, memory: Memory, domains: DomainBatch, look: AbstractLookAhead, count: int) -> Tensor:
        """The ReLUs that the rule would split, best first: from 1 to `count` columns, the first being its choice."""
        del count
        return self.decide(memory, domains, look).neurons[:, None]

    def notes(self, memory: Memory) -> Mapping[str, float]:
        """Figures about its decisions, for the record."""
        del memory
        return {}

    def remarks(self, memory: Memory) -> tuple[str, ...]:
        """What a person should know of its decisions, each said once."""
        del memory
        return ()


class AbstractScoring(AbstractBrancher[Memory]):
    """A rule that is a score for every ReLU: the ambiguous one with the highest is split, of equals the first."""

    @abstractmethod
    def scores(self, memory: Memory, domains: DomainBatch) -> Tensor:
        """A score for every ReLU, [domains, neurons]; those that cannot be split may have any."""

    @final
    def decide(self, memory: Memory, domains: DomainBatch, look: AbstractLookAhead = BLIND) -> Decision[Memory]:
        """The ReLU with the highest score."""
        return Decision(self.rank(memory, domains, look, 1)[:, 0], memory)

    @final
    def rank(self, memory: Memory, domains: DomainBatch, look: AbstractLookAhead, count: int) -> Tensor:
        """The ReLUs with the highest scores."""
        del look
        return highest(self.scores(memory, domains), domains.bounds.ambiguous(), count)


def highest(value: Tensor, allowed: Tensor, count: int) -> Tensor:
    """The allowed columns of highest value, best first, [domains, count]; of equals the first, others come last."""
    most = torch.finfo(value.dtype).max
    value = value.nan_to_num(-most, most, -most).masked_fill(~allowed, -torch.inf)
    if count == 1:
        return value.argmax(dim=1, keepdim=True)
    return value.argsort(dim=1, descending=True, stable=True)[:, :count]


@dataclass(frozen=True)
class RuleSettings:
    """What a rule is made from when it is asked for by name."""

    seed: int = 0
    weights: str | None = None  # of a learnt rule: a file, or the name of one that comes with bough
    bounder: str = "dual"  # the name of the bounds in use, which weights were learnt with


@dataclass(frozen=True, kw_only=True)
class RuleEntry(Entry):
    """A branching rule by name."""

    make: Callable[[RuleSettings], AbstractBrancher[Any]]
    needs: frozenset[Capability] = frozenset()
    learnt: bool = False  # whether it needs weights
    draws: bool = False  # whether it draws at random, so that its choice depends on what else is in a batch


KNOWN_RULES = Registry("branching rule", "RULES", ("bough.branching", "bough.learning"), RuleEntry)
