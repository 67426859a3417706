"""Labels by the trees that follow: a property enters; domains of its tree, and what splits are worth there, leave.

Strong branching judges a split by its two children. What counts is the tree that grows below it, and that depends on
all later splits. So here a split is tried and the search carried on by the rule that is to be taught, until nothing is
open below: the branches that took are the label. Only the few ReLUs that the rule itself ranks first are tried, so that
a sample costs less than one of strong branching; a rule that learns from them chooses better than it did, its trees are
others then, and it can be taught by these again: policy iteration.
"""

import math
import random
from collections.abc import Callable
from dataclasses import dataclass
from itertools import zip_longest
from typing import Any

import torch
from torch import Tensor

from bough.bounds.base import AbstractSession, deepest_root
from bough.branching.base import AbstractBrancher
from bough.budget import Deadline, OutOfTime
from bough.domain.batch import DomainBatch
from bough.learning.labels import LEAST, Plan
from bough.learning.samples import Samples
from bough.learning.scene import HOST, Graph, see
from bough.problem.problem import Problem
from bough.search.ahead import CountedLookAhead

BRANCHES = 3000  # of a property's own tree, unless another number is given: below that there are small ones enough
PATIENCE = 1.5  # a split is given up when its tree is so many times as large as that of the rule's own choice
BINS = 2  # of sizes, to a factor of two: samples are spread over them

Turn = Callable[[Tensor, DomainBatch, Tensor], tuple[Tensor, Tensor]]


@dataclass(frozen=True, eq=False)
class Rolled:
    """What became of a property: its samples, if there are any, and how its own tree ended."""

    samples: Samples | None
    steps: int  # in which all trees were grown
    ended: str  # `whole`, `enough` (the tree is larger than that), `timeout` or `memory`: there was too little of it


@dataclass(frozen=True, eq=False)
class Tree:
    """The open domains of a search, parents before children."""

    domains: DomainBatch
    sizes: Tensor  # float64 [domains]: branches below each
    whole: Tensor  # bool [domains]: whether nothing was left open below


@dataclass(eq=False)
class Grower:
    """Grows trees by a rule, many at once: a search without attacks, of which only sizes are wanted."""

    session: AbstractSession
    rule: AbstractBrancher[Any]
    memory: Any  # the rule's
    batch: int
    deadline: Deadline
    steps: int = 0

    def tree(self, roots: DomainBatch, most: float) -> Tree:
        """The rule's own tree, until it has more than `most` branches."""
        roots, _ = self._open(roots, roots.clause)
        parts = [roots]
        parents = [torch.full_like(roots.clause, -1)]
        split = 0
        unsplit = roots.clause[:0]

        def turn(split_tags: Tensor, new_domains: DomainBatch, tags: Tensor) -> tuple[Tensor, Tensor]:
            nonlocal split, unsplit
            known = sum(map(len, parts))
            old = len(tags) - len(new_domains)
            split += len(split_tags)
            parts.append(new_domains)
            parents.append(tags[old:])
            tags = torch.cat([tags[:old], torch.arange(known, known + len(new_domains), device=tags.device)])
            going = torch.full_like(tags, 2 * split <= most, dtype=torch.bool)
            unsplit = tags[~going]
            return tags, going

        self._grow(roots, torch.arange(len(roots), device=roots.clause.device), turn)
        return _counted(DomainBatch.concatenate(parts), torch.cat(parents), unsplit)

    def sizes(self, domains: DomainBatch, neurons: Tensor, allowed: Tensor) -> Tensor:
        """Branches of the tree below each domain that begins with a split of its ReLU `neurons`, float64 [domains];
        infinite for a tree that was given up, since it had more than `allowed`.
        """
        count = torch.full_like(allowed, 2.0)

        def turn(split_tags: Tensor, new_domains: DomainBatch, tags: Tensor) -> tuple[Tensor, Tensor]:
            del new_domains
            count.index_add_(0, split_tags, torch.full_like(split_tags, 2, dtype=count.dtype))
            return tags, count[tags] <= allowed[tags]

        for rows in torch.arange(len(domains), device=neurons.device).split(self.batch):
            self.deadline.check()
            children = self.session.split(domains[rows], neurons[rows])
            bounded = self.session.bound(children, 0.0, self.deadline).domains
            self._grow(*self._open(bounded, rows.repeat_interleave(2)), turn)
        return torch.where(count <= allowed, count, torch.inf)

    def ranked(self, domains: DomainBatch, count: int) -> Tensor:
        """The ReLUs that the rule would split, best first, [domains, count] or fewer columns."""
        return self.rule.rank(self.memory, domains, self._ahead(domains), count)

    def _ahead(self, domains: DomainBatch) -> CountedLookAhead:
        return CountedLookAhead(self.session, self.deadline, domains, batch=self.batch)

    def _grow(self, waiting: DomainBatch, tags: Tensor, turn: Turn) -> None:
        """Split, the last first so that trees end one after another, until nothing waits. A child has its parent's tag;
        after each step `turn` hears the tags of what was split, the new domains, and all tags, and says what the tags
        are from then on, and which domains still wait.
        """
        while len(waiting):
            self.deadline.check()
            at = torch.arange(len(waiting), device=tags.device)
            old, last = at[: -self.batch], at[-self.batch :]
            domains = waiting[last]
            ahead = self._ahead(domains)
            decision = self.rule.decide(self.memory, domains, ahead)
            self.memory = decision.memory
            self.steps += 1
            bounded, order = ahead.split(decision.neurons)
            new_domains, whose = self._open(bounded.domains, tags[last][order].repeat_interleave(2))
            waiting = DomainBatch.concatenate([waiting[old], new_domains])
            tags, going = turn(tags[last], new_domains, torch.cat([tags[old], whose]))
            waiting, tags = waiting[going], tags[going]

    def _open(self, domains: DomainBatch, tags: Tensor) -> tuple[DomainBatch, Tensor]:
        """The domains that are still to be split, as a search's frontier gives them back."""
        still = ~(domains.lower > 0) & self.session.splittable(domains).any(dim=1)
        return self.session.unpack(self.session.pack(domains[still])), tags[still]


def _counted(domains: DomainBatch, parents: Tensor, unsplit: Tensor) -> Tree:
    sizes, whole = [2.0] * len(parents), [True] * len(parents)
    for k in unsplit.tolist():
        sizes[k], whole[k] = 0.0, False
    for k, parent in reversed(list(enumerate(parents.tolist()))):  # children come after their parents
        if parent >= 0:
            sizes[parent] += sizes[k]
            whole[parent] &= whole[k]
    return Tree(domains, torch.tensor(sizes, dtype=torch.float64), torch.tensor(whole))


def roll_out(problem: Problem, name: str, plan: Plan, grower: Grower, most: float) -> Rolled:
    """The samples of one property, as many as `plan` says, from its own tree of up to `most` branches.

    What time does not suffice for is left out.
    """
    try:
        tree = grower.tree(deepest_root(grower.session, 0.0, grower.deadline).domains, most)
        rows = spread(tree, plan.samples, plan.largest, plan.luck(name, "trees"))
        samples = _samples(problem, grower, tree, rows, plan.rollouts) if len(rows) else None
    except OutOfTime:
        return Rolled(None, grower.steps, "timeout")
    except torch.OutOfMemoryError:
        return Rolled(None, grower.steps, "memory")
    return Rolled(samples, grower.steps, "whole" if bool(tree.whole.all()) else "enough")


def _samples(problem: Problem, grower: Grower, tree: Tree, rows: Tensor, count: int) -> Samples | None:
    """The samples of some domains of a tree, with the trees below `count` splits of each."""
    device = tree.domains.lower.device
    domains = tree.domains[rows.to(device)]
    relaxations = grower.session.capabilities.relaxations
    if relaxations is None:
        return None
    relaxed = relaxations.relaxed(domains, grower.deadline)
    allowed = PATIENCE * tree.sizes[rows].to(device)
    tried = grower.ranked(domains, count)
    at, column = grower.session.splittable(domains).gather(1, tried).nonzero(as_tuple=True)
    sizes = torch.full_like(domains.bounds.lower, torch.inf)
    sizes[at, tried[at, column]] = grower.sizes(domains[at], tried[at, column], allowed[at])
    graph = Graph.of(problem, domains, relaxed)
    scene = see(problem, domains, relaxed)
    return Samples(
        graph,
        scene,
        children=torch.full((*scene.lower.shape, 2), -torch.inf, device=device),
        step=rows,
        sizes=sizes[:, graph.neurons].float(),
        allowed=allowed.float(),
    ).to(HOST)


def spread(tree: Tree, count: int, largest: int, luck: random.Random) -> Tensor:
    """Rows of the tree, at most `count`, of domains with something below them, spread over the sizes of that."""
    bins: dict[int, list[int]] = {}
    for k, (size, whole) in enumerate(zip(tree.sizes.tolist(), tree.whole.tolist(), strict=True)):
        if whole and LEAST <= size <= largest:
            bins.setdefault(int(BINS * math.log2(size)), []).append(k)
    for rows in bins.values():
        luck.shuffle(rows)
    # The first of every bin, then the second: of the large ones, which are few, most are taken.
    turns = zip_longest(*(bins[b] for b in sorted(bins, reverse=True)))
    return torch.tensor([k for turn in turns for k in turn if k is not None][:count], dtype=torch.int64)
