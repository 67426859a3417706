"""Projected gradient descent: a problem enters, points that may be counterexamples leave; the search replays them.

A short attack: sign steps on the clause's margin (its largest row), from the centre and random points of the box, all
clauses of a box at once. Its points are also rounded the way a float32 network sees them.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import final

import torch
from torch import Tensor

from bough.budget import Deadline
from bough.falsify.base import AbstractFalsifier
from bough.network import walk
from bough.problem.problem import Problem
from bough.problem.property import Clause

MOST_ATTACKED = 2048  # points in flight; with more clauses than that, each gets one


@final
@dataclass(frozen=True)
class GradientAttack(AbstractFalsifier):
    """Sign-gradient descent with a step that shrinks from a quarter of the box to a hundredth."""

    restarts: int = 10
    steps: int = 40
    seed: int = 0
    device: str = "cpu"

    def candidates(self, problem: Problem, deadline: Deadline, turn: int = 0) -> Iterator[tuple[int, Tensor]]:
        """The best point of every clause, box after box; stops a box as soon as one of its points looks unsafe."""
        generator = torch.Generator().manual_seed(self.seed + turn)
        for box in range(len(problem.property.boxes)):
            deadline.check()
            clauses = [c for c in problem.clauses if c.box == box]
            if clauses:
                yield box, self._attack(problem, box, clauses, generator, deadline)

    def _attack(
        self, problem: Problem, box: int, clauses: list[Clause], generator: torch.Generator, deadline: Deadline
    ) -> Tensor:
        device = torch.device(self.device)
        network, clauses = problem.network.on(device), [c.on(device) for c in clauses]
        lower, upper = problem.property.boxes[box].lower.to(device), problem.property.boxes[box].upper.to(device)
        starts = max(1, min(self.restarts, MOST_ATTACKED // len(clauses)))
        count = starts * len(clauses)
        which = torch.arange(len(clauses), device=device).repeat(starts)  # start 0 of every clause first: the centre
        noise = torch.rand(count, len(lower), generator=generator, dtype=torch.float64).to(device)
        noise[: len(clauses)] = 0.5
        points = lower + noise * (upper - lower)
        best, best_margin = points, lower.new_full((count,), torch.inf)
        for k in range(self.steps + 1):
            points = points.detach().requires_grad_()
            margins = _margins(walk.evaluate(network, points), clauses, which)
            better = margins.detach() < best_margin
            best = torch.where(better[:, None], points.detach(), best)
            best_margin = torch.where(better, margins.detach(), best_margin)
            if bool((best_margin < 0).any()) or k == self.steps or deadline.passed():
                break
            (gradient,) = torch.autograd.grad(margins.sum(), points)
            step = (upper - lower) * 0.25 * 0.04 ** (k / self.steps)
            points = torch.minimum(torch.maximum(points.detach() - step * gradient.sign(), lower), upper)
        return best[best_margin.argsort()]


def _margins(outputs: Tensor, clauses: list[Clause], which: Tensor) -> Tensor:
    """The margin of each point by its own clause."""
    margins = torch.stack([c.margins(outputs) for c in clauses], dim=1)
    return margins.gather(1, which[:, None])[:, 0]
