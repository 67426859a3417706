"""Labels: a search is watched, and samples leave; the paper's Algorithm 2 (its Appendix C), and a plan for deep trees.

A sample is a domain as a learnt rule would see it (`Scene`), with the bounds of both children of every ReLU tried. The
`Collector` is an observer, so the search goes where it goes without it. That holds for the sampled steps, too: the
search's own rule makes their decision, where Algorithm 2 has strong branching make it.

What is drawn at random depends on the seed and the property's name, and on nothing else: neither on the order of the
properties, nor on who works on them.
"""

import hashlib
import math
import random
from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Literal, TypeVar

import torch
from torch import Tensor

from bough.branching.base import AbstractLookAhead
from bough.branching.strong import Strong
from bough.branching.subset import Subset
from bough.budget import OutOfTime
from bough.domain.arrays import Arrays
from bough.domain.batch import DomainBatch
from bough.errors import BadInput
from bough.learning.halves import Halves
from bough.learning.samples import Samples
from bough.learning.scene import HOST, Graph, Scene, see
from bough.problem.problem import Problem
from bough.search.loop import SearchState
from bough.search.observe import AbstractObserver

Rule = TypeVar("Rule")  # a brancher, or the name of one
Mode = Literal["steps", "whole", "deep", "trees"]
MODES: tuple[Mode, ...] = ("steps", "whole", "deep", "trees")
LEAST = 6  # branches below a domain at which trees are grown: with fewer there is nothing to tell splits apart by


class Enough(OutOfTime):
    """Ends a search when no more samples are wanted of it; to the search, it is out of time."""


@dataclass(frozen=True)
class Plan:
    """Which domains become samples, and which of their ReLUs are tried.

    By Algorithm 2, a share `whole` of the properties known to be solved is searched under strong branching, and every
    decision is a sample; of the others, one domain is taken after each k steps, k drawn from 0 to `between` (q), until
    there are `samples` (B). With `deep`, domains are taken all along a search, whenever it has split as many more as
    make it `growth` times as large, on average, and of the depths that are still rare; of more than `samples`, those
    that lie most densely in depth give way.
    """

    samples: int = 20
    between: int = 10
    whole: float = 0.25
    deep: bool = False
    subset: Subset | None = None  # of the ambiguous ReLUs, with a seed of each property's own; None: all of them
    seed: int = 0
    growth: float = 1.05
    inputs: int = 0  # of each sample, that are labelled, too: both halves of the box are bounded
    rollouts: int = 0  # ReLUs of each sample below which trees are grown (`learning.rollouts`), instead of all of this
    largest: int = 256  # branches below a domain at which trees are grown: larger trees cost more than they tell

    def __post_init__(self) -> None:
        if self.samples < 1:
            raise BadInput(f"{self.samples} samples are wanted of a property; give a whole number, 1 or more")
        if self.between < 0:
            raise BadInput(f"{self.between} steps are wanted between samples; give a whole number, 0 or more")
        if self.inputs < 0:
            raise BadInput(f"{self.inputs} inputs are to be labelled; give a whole number, 0 or more")
        if self.rollouts < 0 or self.rollouts == 1:
            raise BadInput(f"trees are to be grown below {self.rollouts} ReLUs; give a whole number, 2 or more")
        if self.largest < LEAST:
            raise BadInput(
                f"trees of up to {self.largest} branches are to be grown; give a whole number, {LEAST} or more"
            )
        if self.rollouts and (self.deep or self.inputs or self.subset is not None):
            raise BadInput("trees are grown below the ReLUs that the rule itself ranks first; give no other plan")
        if not 0 <= self.whole <= 1:
            raise BadInput(f"a share of {self.whole} is to be searched whole; give a number from 0 to 1")
        if not 1 < self.growth < math.inf:
            raise BadInput(f"the growth is {self.growth}; give a number above 1")

    def mode(self, name: str, *, solved: bool) -> Mode:
        """How the property of this name is sampled; `solved` says that it is known not to take too long."""
        if self.rollouts:
            return "trees"
        if self.deep:
            return "deep"
        return "whole" if solved and self.luck(name, "mode").random() < self.whole else "steps"  # Algorithm 2, line 3

    def luck(self, name: str, what: str) -> random.Random:
        """The random numbers of one property, for one purpose."""
        return random.Random(int.from_bytes(hashlib.sha256(f"{self.seed} {what} {name}".encode()).digest(), "big"))


@dataclass(frozen=True, eq=False)
class _Taken(Arrays):
    """Samples of one step, as in `Samples`; where they are taken by a schedule, one."""

    scene: Scene
    children: Tensor
    step: Tensor
    halves: Tensor | None


# When to take which domain


class _AbstractSchedule(ABC):
    """Is shown the domains of every step, and says which to take."""

    enough = False

    @abstractmethod
    def rows(self, depth: Tensor) -> list[int]:
        """Which of a step's domains are taken, by their depths; of most steps, none."""

    @abstractmethod
    def sort(self, kept: list[_Taken]) -> list[_Taken]:
        """What is still kept, now that more is there."""


class _Steps(_AbstractSchedule):
    """Algorithm 2, lines 7 to 17."""

    def __init__(self, plan: Plan, luck: random.Random) -> None:
        self._plan, self._luck = plan, luck
        self._left = luck.randint(0, plan.between)  # k

    def rows(self, depth: Tensor) -> list[int]:
        self._left -= 1
        return [self._luck.randrange(len(depth))] if self._left < 0 else []

    def sort(self, kept: list[_Taken]) -> list[_Taken]:
        self._left = self._luck.randint(0, self._plan.between)
        # The pseudo-code says `while b <= B`, which makes one more; the text says B.
        self.enough = len(kept) >= self._plan.samples
        return kept


class _Deep(_AbstractSchedule):
    """Domains that lie ever further apart, and the depths of which there is least.

    What lies between is counted in domains: a step may split one or thousands.
    """

    def __init__(self, plan: Plan, luck: random.Random) -> None:
        self._plan, self._luck = plan, luck
        self._seen, self._next, self._deepest = 0, 0, 0
        self._depths: list[int] = []  # of what is kept

    def rows(self, depth: Tensor) -> list[int]:
        wanted = 0
        self._seen = self._seen + len(depth)
        while self._next < self._seen:
            self._next += 1 + int(2 * self._luck.random() * (self._plan.growth - 1) * (self._next + 1))
            wanted += 1
        return self._rare(depth.to(HOST), min(wanted, self._plan.samples)) if wanted else []

    def _rare(self, depth: Tensor, wanted: int) -> list[int]:
        self._deepest = max(self._deepest, int(depth.max()))
        held = torch.bincount(self._bin(torch.tensor(self._depths, dtype=torch.int64)), minlength=self._plan.samples)
        bins = self._bin(depth)
        free = torch.ones_like(depth, dtype=torch.bool)
        for _ in range(wanted):
            crowd = held[bins].masked_fill(~free, len(depth) + self._plan.samples)
            least = (crowd == crowd.min()).nonzero()[:, 0]
            row = least[self._luck.randrange(len(least))]
            free[row] = False
            held[bins[row]] += 1
        return (~free).nonzero()[:, 0].tolist()

    def sort(self, kept: list[_Taken]) -> list[_Taken]:
        self._depths = [int(taken.scene.depth[0]) for taken in kept]
        if len(kept) <= self._plan.samples:
            return kept
        bins = self._bin(torch.tensor(self._depths)).tolist()
        fullest = max(bins, key=lambda b: (bins.count(b), -b))
        out = self._luck.choice([k for k, b in enumerate(bins) if b == fullest])
        return self.sort(kept[:out] + kept[out + 1 :])

    def _bin(self, depth: Tensor) -> Tensor:
        """The bin of each depth, of as many bins of equal width over the depths seen so far as samples are wanted."""
        return depth * self._plan.samples // (self._deepest + 1)


SCHEDULES: dict[Mode, Callable[[Plan, random.Random], _AbstractSchedule]] = {"steps": _Steps, "deep": _Deep}


# Taking it


class Collector(AbstractObserver):
    """Takes the samples of one search by a plan; `name` is the property's.

    The search has to run under `rule(...)`: where all of it is sampled, that is strong branching, and what it bounds is
    overheard instead of being bounded twice; otherwise it is the rule given. With `stop`, the search is ended when
    there is nothing more to take, which is the only thing that a collector ever changes. `halves` bounds those of the
    inputs, where the plan wants them.
    """

    def __init__(
        self,
        problem: Problem,
        plan: Plan,
        name: str,
        *,
        solved: bool = True,
        stop: bool = True,
        halves: Halves | None = None,
    ) -> None:
        self.mode: Mode = plan.mode(name, solved=solved)
        self.steps = 0  # that were seen
        self.unseen = 0  # domains that could not be taken: the bounder has no relaxation, or one of other ReLUs
        self._problem, self._stop, self._halves = problem, stop, halves
        self._schedule = SCHEDULES[self.mode](plan, plan.luck(name, "steps")) if self.mode in SCHEDULES else None
        subset = plan.subset and replace(plan.subset, seed=plan.luck(name, "subset").getrandbits(62))
        self._strong = Strong(subset=subset, heard=self._heard)
        self._memory = self._strong.prepare(problem)
        self._graph: Graph | None = None
        self._kept: list[_Taken] = []
        self._waiting: tuple[DomainBatch, Scene] | None = None  # whose children are about to be bounded

    @property
    def enough(self) -> bool:
        """Whether nothing more is wanted."""
        return self._schedule is not None and self._schedule.enough

    def rule(self, usual: Rule) -> "Rule | Strong":
        """What the search has to branch by, where it would usually branch by that."""
        return self._strong if self.mode == "whole" else usual

    def seen(self, state: SearchState, seconds: float) -> None:
        """Nothing: all is known before a step."""

    def deciding(self, domains: DomainBatch, look: AbstractLookAhead) -> None:
        """Take what the plan wants of these domains."""
        if self.enough:
            if self._stop:
                raise Enough
            return
        if self._schedule is None:
            self._see(domains, look)
        elif rows := self._schedule.rows(domains.depth):
            domains = domains[torch.tensor(rows, device=domains.depth.device)]
            self._see(domains, look)
            if self._waiting is not None:
                self._strong.decide(self._memory, domains, look)  # Algorithm 2, line 16, but for the decision
        self.steps += 1

    def collected(self) -> Samples | None:
        """All that was taken, in that order, on the host; None where that is nothing."""
        if self._graph is None or not self._kept:
            return None
        return Samples(self._graph, **vars(_Taken.concatenate(self._kept)))

    def _see(self, domains: DomainBatch, look: AbstractLookAhead) -> None:
        """Make a scene of domains, which waits for the bounds of their children."""
        self._waiting = None
        relaxed = look.relaxed(domains)
        if relaxed is not None and self._graph is None:
            self._graph = Graph.of(self._problem, domains, relaxed).to(HOST)
        # Where boxes differ in the ReLUs that they leave open, samples are of the box that came first.
        if relaxed is None or self._graph is None or not torch.equal(relaxed.neurons.to(HOST), self._graph.neurons):
            self.unseen += len(domains)
        else:
            self._waiting = domains, see(self._problem, domains, relaxed)

    def _heard(self, domains: DomainBatch, candidates: Tensor, bounds: Tensor) -> None:
        """Strong branching has bounded children: keep the domains that wait for them."""
        if self._graph is None or self._waiting is None or self._waiting[0] is not domains:
            return
        scene = self._waiting[1].to(HOST)
        self._waiting = None
        children = bounds.new_full((*domains.signs.shape, 2), -torch.inf)
        children.scatter_(1, candidates[:, :, None].expand(-1, -1, 2), bounds)
        own_children = children[:, self._graph.neurons.to(children.device)].float().to(HOST)
        halves = None if self._halves is None else self._halves.bound(domains, self._graph, scene)
        step = self.steps - (self._schedule is None)  # without a schedule, the step was counted before its decision
        taken = _Taken(scene, own_children, torch.full((len(scene),), step), halves)
        if self._schedule is None:
            self._kept.append(taken)
        else:  # one by one, as they may have to give way
            self._kept += [taken[k : k + 1] for k in range(len(scene))]
            self._kept = self._schedule.sort(self._kept)
