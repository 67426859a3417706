"""What a branching rule is: a strategy that says, for each domain of a batch, which ReLU to split.

Rules have two clocks: `prepare` once per problem, `decide` at every step. A rule can only cost time: whatever it
answers, the search stays right, and a choice that cannot be split is replaced.
"""

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import Tensor

from bough.domain.batch import DomainBatch, Relaxed
from bough.problem.problem import Problem


@dataclass(frozen=True, eq=False)
class Decision:
    """The ReLUs to split, best first (flat numbers, int64 [domains] or [domains, levels]), and what the rule wants to
    remember for its next decision. `own` says where the rule decided itself and did not leave it to another, bool
    [domains]; None: everywhere.
    """

    neurons: Tensor
    memory: Any
    own: Tensor | None = None


def _blind(domains: DomainBatch, neurons: Tensor) -> Tensor:
    raise NotImplementedError("this search does not look ahead")


def _childless(rows: Tensor, neurons: Tensor) -> Tensor:
    raise NotImplementedError("this search does not look ahead")


def _anywhere(domains: DomainBatch) -> None:
    del domains


def _unseen(domains: DomainBatch) -> Relaxed | None:
    del domains
    return None


@dataclass(frozen=True)
class LookAhead:
    """What a rule may ask of the search before it decides.

    `estimate(domains, neurons [domains, candidates])` gives cheap bounds of both children, [domains, candidates, 2],
    minus infinity where a ReLU cannot be split; each counts as a bound. `levels` is how many ReLUs of every domain the
    search wants to split at once; a rule that names fewer is asked for no more. `unsafe_boxes(domains)` says in which
    input boxes, lower and upper [domains, inputs], unsafe points can be as far as the bounds tell; None: not known.
    `bound` is asked and answers as `estimate`, and its bounds are those that the children would have in the search, but
    for children above `cutoff`, which are closed; ReLUs that cannot be split cost nothing. `relaxed` is what the
    bounder's relaxation says of the domains; None: not known.

    `children(rows, neurons)` bounds both children of the domains with these numbers in the batch that is to be decided,
    one ReLU each, [rows, 2], as `bound` does, and keeps them: where the same ReLU is decided for, the search goes on
    with these children, and bounds them no second time.
    """

    estimate: Callable[[DomainBatch, Tensor], Tensor] = _blind
    levels: int = 1
    unsafe_boxes: Callable[[DomainBatch], tuple[Tensor, Tensor] | None] = _anywhere
    bound: Callable[[DomainBatch, Tensor], Tensor] = _blind
    cutoff: float = 0.0
    relaxed: Callable[[DomainBatch], Relaxed | None] = _unseen
    children: Callable[[Tensor, Tensor], Tensor] = _childless

    def of(self, rows: Tensor) -> "LookAhead":
        """What a rule is handed that decides for some of the domains only: their numbers, int64."""
        whole = self.children
        return replace(self, children=lambda some, neurons: whole(rows[some], neurons))


BLIND = LookAhead()


class AbstractBrancher(ABC):
    """A branching rule; its fields are its configuration, and what it remembers travels through the search's state."""

    @abstractmethod
    def prepare(self, problem: Problem) -> Any:
        """What the rule remembers before its first decision."""

    @abstractmethod
    def decide(self, memory: Any, domains: DomainBatch, look: LookAhead = BLIND) -> Decision:
        """Choose an ambiguous ReLU in every domain, or several; each domain has at least `look.levels`."""

    def notes(self, memory: Any) -> Mapping[str, float]:
        """Figures about its decisions, for the record."""
        del memory
        return {}

    def remarks(self, memory: Any) -> tuple[str, ...]:
        """What a person should know of its decisions, each said once."""
        del memory
        return ()


def highest(value: Tensor, allowed: Tensor, levels: int) -> Tensor:
    """The columns of highest value, best first, [domains, levels], of those allowed; of equals the first."""
    most = torch.finfo(value.dtype).max
    value = value.nan_to_num(-most, most, -most).masked_fill(~allowed, -torch.inf)
    if levels == 1:
        return value.argmax(dim=1, keepdim=True)
    return value.argsort(dim=1, descending=True, stable=True)[:, :levels]
