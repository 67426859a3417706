"""Projected gradient descent: a problem enters, points that may be counterexamples leave; the search replays them.

A short attack: sign steps on the clause's margin (its largest row), from the centre and random points of the box, all
clauses of a box at once; in a ball, steps along the gradient, since the sign would spread them over all inputs alike.
Its points are also rounded the way a float32 network sees them.
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
from bough.problem.property import Box, Clause, stable_norm

MOST_ATTACKED = 2048  # points attacked at once: with many clauses each gets fewer restarts, but at least one


@final
@dataclass(frozen=True)
class GradientAttack(AbstractFalsifier):
    """Gradient descent with a step that shrinks from a quarter of the box, or of the ball, to a hundredth."""

    restarts: int = 10
    steps: int = 25
    seed: int = 0
    device: str = "cpu"

    def candidates(self, problem: Problem, deadline: Deadline, turn: int = 0) -> Iterator[tuple[int, Tensor]]:
        """The best point of every clause, box after box; stops a box as soon as one of its points looks unsafe."""
        # Random numbers are made where they are used: those of a few hundred images take longer than the attack.
        generator = torch.Generator(self.device).manual_seed(self.seed + turn)
        for box in range(len(problem.property.boxes)):
            deadline.check()
            clauses = [c for c in problem.clauses if c.box == box]
            if clauses:
                yield box, self._attack(problem, box, clauses, generator, deadline)

    def _attack(
        self, problem: Problem, box: int, clauses: list[Clause], generator: torch.Generator, deadline: Deadline
    ) -> Tensor:
        device = generator.device
        dtype = torch.float32 if device.type == "cuda" else torch.float64  # which is slow on a GPU
        network = problem.network.on(device, dtype)
        limits = problem.property.boxes[box].on(device)
        clauses = [c.on(device) for c in clauses]
        starts = max(1, min(self.restarts, MOST_ATTACKED // len(clauses)))
        count = starts * len(clauses)
        which = torch.arange(len(clauses), device=device).repeat(starts)  # start 0 of every clause first: the centre
        noise = torch.rand(count, len(limits.lower), generator=generator, dtype=torch.float64, device=device)
        points = limits.lower + noise * (limits.upper - limits.lower)
        points[: len(clauses)] = limits.centre
        points = limits.project(points)
        best = points
        best_margin = points.new_full((count,), torch.inf)
        for k in range(self.steps + 1):
            points = points.detach().requires_grad_()
            outputs = walk.evaluate(network, points.to(dtype)).double()
            # The margin of each point by its own clause.
            margins = torch.stack([c.margins(outputs) for c in clauses], dim=1).gather(1, which[:, None])[:, 0]
            better = margins.detach() < best_margin
            best = torch.where(better[:, None], points.detach(), best)
            best_margin = torch.where(better, margins.detach(), best_margin)
            if bool((best_margin < 0).any()) or k == self.steps or deadline.passed():
                break
            (gradient,) = torch.autograd.grad(margins.sum(), points)
            step = 0.25 * 0.04 ** (k / self.steps)
            points = limits.project(points.detach() - step * _downhill(gradient, limits))
        return best[best_margin.argsort()]


def _downhill(gradient: Tensor, box: Box) -> Tensor:
    """The direction of a step, as long as the box or the ball is wide: a corner, or the gradient in the ball's unit."""
    if box.ball is None:
        return (box.upper - box.lower) * gradient.sign()
    slope = gradient / box.ball.scale
    # Of length 1 for l2. For l1 the largest element is 1: projecting then leaves the few steepest inputs.
    size = stable_norm(slope, 2 if box.ball.p == 2 else torch.inf)
    return 2 * box.ball.radius * slope / size.clamp(min=torch.finfo(size.dtype).tiny)[:, None] / box.ball.scale
