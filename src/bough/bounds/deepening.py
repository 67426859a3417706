"""How much work goes into the roots of a search, and in what order: rounds of single relaxations, and small trees.

What trees may take is in proportion to the branches that a search is foreseen to take, so that little is spent where a
search is short, and much where it is long. No clock decides, unless the time limit is near.
"""

import math
from abc import ABC, abstractmethod
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import final

import torch
from torch import Tensor

from bough.bounds.base import Bounded
from bough.bounds.trees import Trees, TreeWork
from bough.budget import Clock, Deadline, OutOfTime, ran_out

MOST_REPEATS = 12  # of one kind of work, each time its bound gains
LEAST_GAIN = 0.01  # of a root's bound, for which its clause's own ReLU bounds are tightened again
LEAST_TREE_GAIN = 0.1  # of that, for which the same trees, and larger ones, are tried
LEAST_TREE = 16  # bounds that there have to be for each side of a ReLU
FEWEST_SIDES = 8
ROOT_SHARE = 0.5  # of the time that is left, for all work on roots
LATER_SHARE = 0.25  # of the time that is left, for trees in the middle of a search


@final
@dataclass(frozen=True)
class TreePlan:
    """How many bounds small trees take on a device, and when."""

    levels: tuple[Trees, ...]  # each larger than the last
    share: float  # bounds for each branch that is foreseen
    free: float  # bounds whatever is foreseen
    first: float  # most bounds the first time; after that, twice as many as before in all
    most: float  # bounds in all
    trial: float  # share of the ReLUs that cost a root something, by which trees of a level are tried first
    later: float  # branches of a search, after which more trees are tried
    fewest: float  # branches foreseen, for which trees are worth their overhead
    many_clauses: int = 4  # open at the root, for which trees over the whole box are worth their time

    def budget(self, branches: float, spent: float) -> float:
        """How many bounds the next trees may take, after so many."""
        if branches < self.fewest:
            return 0.0
        return min(min(self.most, self.free + self.share * branches) - spent, self.first + 2 * spent)


@final
@dataclass(frozen=True)
class TreePlans:
    """A plan for each kind of device."""

    cpu: TreePlan
    cuda: TreePlan

    def on(self, device: torch.device) -> TreePlan:
        """The plan for a device."""
        return self.cuda if device.type == "cuda" else self.cpu


class AbstractRootWork(ABC):
    """Bounds roots again, over ReLU bounds that it tightens first."""

    @abstractmethod
    def foreseen(self, roots: Bounded, rows: Tensor, cutoff: float) -> float:
        """About how many branches a search from these roots takes."""

    @abstractmethod
    def costs(self, roots: Bounded, rows: Tensor) -> Tensor:
        """What each ReLU costs each of these roots, [rows, neurons]; below 0 for ReLUs that trees leave alone."""

    @abstractmethod
    def over_boxes(self, roots: Bounded, rows: Tensor, work: TreeWork, cutoff: float, deadline: Deadline) -> Bounded:
        """The roots, some of them bounded again over bounds by trees that hold in their whole boxes."""

    @abstractmethod
    def over_clauses(
        self, roots: Bounded, rows: Tensor, work: TreeWork | None, cutoff: float, deadline: Deadline
    ) -> Bounded:
        """The roots, some of them bounded again over bounds that hold at their clauses' unsafe points."""


@final
class Deepening:
    """The work on the roots of one search: what was done, and what is next."""

    def __init__(self, work: AbstractRootWork, plan: TreePlan | None, *, conditional: bool) -> None:
        self._work, self._plan = work, plan
        self._conditional = conditional  # whether bounds may leave out safe points
        self._deepest: Bounded | None = None
        self._level = 0  # of trees at unsafe points
        self._searched: float | None = None  # branches of the search when trees were tried last
        self._clauses: Tensor | None = None  # that were at work then; None: all
        self._next = math.inf if plan is None else plan.later
        self.bounds = 0  # by trees
        self.seconds = 0.0
        self.before: dict[str, float] = {}  # what was known before the first trees

    def run(self, roots: Bounded, cutoff: float, deadline: Deadline) -> Iterator[Bounded]:
        """Roots over ReLU bounds by trees, then over the clauses' own, then over these by trees, as long as each pays.

        Time or memory that runs out ends this: what the roots have is a result.
        """
        part = deadline.part(ROOT_SHARE)
        self._deepest = roots
        with _while_there_is_room():
            for way in (self._trees_over_boxes, self._rounds, self._trees_at_unsafe):
                for better in way(self._deepest, cutoff, part):
                    self._deepest = better
                    yield better

    def resumed(self, branches: int, clauses: Tensor, cutoff: float, deadline: Deadline) -> bool:
        """More trees for some clauses, once a search took many branches; whether it was time to try."""
        before = self._deepest
        if branches < self._next or before is None:
            return False
        self._next = math.inf  # unless these gain
        self._searched, self._clauses = float(branches), clauses
        with _while_there_is_room():
            for better in self._trees_at_unsafe(before, cutoff, deadline.part(LATER_SHARE)):
                self._deepest = better
                if _gain(before, better, _open(before, cutoff)) > LEAST_TREE_GAIN:
                    self._next = 4 * branches
        return True

    def _rounds(self, roots: Bounded, cutoff: float, deadline: Deadline) -> Iterator[Bounded]:
        """Single relaxations at the clauses' unsafe points."""
        for _ in range(MOST_REPEATS):
            rows = _open(roots, cutoff)
            if not len(rows):
                return
            before = roots
            roots = self._work.over_clauses(before, rows, None, cutoff, deadline)
            yield roots
            if _gain(before, roots, rows) <= LEAST_GAIN:
                return

    def _trees_over_boxes(self, roots: Bounded, cutoff: float, deadline: Deadline) -> Iterator[Bounded]:
        """Trees over whole boxes, larger from level to level, as long as they serve many clauses and gain much."""
        if self._plan is None:
            return
        fewest = self._plan.many_clauses if self._conditional else 1
        levels = self._plan.levels
        for trees in (*levels, *levels[-1:] * MOST_REPEATS):
            rows = _open(roots, cutoff)
            ordered = self._ordered(trees, roots, rows, cutoff, 1.0, shared=True) if len(rows) >= fewest else None
            if ordered is None:
                return
            before = roots
            with self._counted(ordered):
                roots = self._work.over_boxes(before, rows, ordered, cutoff, deadline)
            yield roots
            if _gain(before, roots, rows) <= LEAST_TREE_GAIN:
                return

    def _trees_at_unsafe(self, roots: Bounded, cutoff: float, deadline: Deadline) -> Iterator[Bounded]:
        """Trees at unsafe points, larger from level to level, each level again and again while it gains."""
        if self._plan is None or not self._conditional:
            return
        last = len(self._plan.levels) - 1
        while last >= 0 and self._level <= last + MOST_REPEATS:
            trees = self._plan.levels[min(self._level, last)]
            gained = False
            for _ in range(MOST_REPEATS):
                rows = _open(roots, cutoff)
                if self._clauses is not None:
                    rows = rows[torch.isin(roots.domains.clause[rows], self._clauses)]
                share = 1.0 if gained else self._plan.trial
                ordered = self._ordered(trees, roots, rows, cutoff, share, shared=False)
                if ordered is None:
                    return
                before = roots
                with self._counted(ordered):
                    roots = self._work.over_clauses(before, rows, ordered, cutoff, deadline)
                yield roots
                if _gain(before, roots, rows) <= LEAST_TREE_GAIN:
                    break
                gained = True
            self._level += 1
            if not gained:
                return

    def _ordered(
        self, trees: Trees, roots: Bounded, rows: Tensor, cutoff: float, share: float, *, shared: bool
    ) -> TreeWork | None:
        """Trees for a share of the ReLUs, those that cost the roots most; None where that is not likely to pay."""
        if self._plan is None or not len(rows) or not math.isfinite(cutoff):
            return None
        branches = self._work.foreseen(roots, rows, cutoff) if self._searched is None else self._searched
        budget = self._plan.budget(branches, self.bounds)
        sides = int(budget / LEAST_TREE)
        if sides < FEWEST_SIDES:
            return None
        costs = self._work.costs(roots, rows)
        costs = costs.amax(dim=0, keepdim=True) if shared else costs
        wanted = math.ceil(share * int((costs >= 0).sum()))
        if not wanted:  # with one layer of ReLUs, say
            return None
        if not self.before:
            self.before = {
                "foreseen_branches": branches,
                "tree_budget": self._plan.budget(branches, 0.0),
                "root_lower_before_trees": float(roots.domains.lower.min()),
                "root_ambiguous_before_trees": float(roots.domains.bounds.ambiguous().sum(dim=1).max()),
            }
        return TreeWork(trees, _largest(costs, min(sides // 2, wanted)), budget)

    @contextmanager
    def _counted(self, work: TreeWork) -> Iterator[None]:
        """Add what trees take to what was spent on trees, even if they do not come to an end."""
        clock = Clock.start()
        try:
            yield
        finally:
            self.bounds += work.bounds
            self.seconds += clock.seconds()


@contextmanager
def _while_there_is_room() -> Iterator[None]:
    """Work that may run out of time or memory, and then just ends."""
    try:
        yield
    except OutOfTime:
        pass
    except (MemoryError, RuntimeError) as error:
        if not (isinstance(error, torch.OutOfMemoryError) or ran_out(error)):
            raise


def _open(roots: Bounded, cutoff: float) -> Tensor:
    """The numbers of the roots that are open."""
    return (~(roots.domains.lower > cutoff)).nonzero()[:, 0]


def _gain(before: Bounded, after: Bounded, rows: Tensor) -> float:
    """The largest rise of some roots' bounds, relative to what they were."""
    if not len(rows):
        return 0.0
    old, new = before.domains.lower[rows], after.domains.lower[rows]
    return float(((new - old) / old.abs()).nan_to_num(0.0, posinf=torch.inf).max())


def _largest(values: Tensor, count: int) -> Tensor:
    """A mask of the so many largest values that are not below 0; ties by their order."""
    mask = torch.zeros_like(values, dtype=torch.bool).flatten()
    mask[values.flatten().argsort(descending=True, stable=True)[:count]] = True
    return mask.reshape(values.shape) & (values >= 0)
