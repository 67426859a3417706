"""Dual ascent: the Planet relaxation from the dual side, for a whole batch of domains at once.

Glossary, at one ambiguous ReLU of a domain with root bounds [l, u]: `nu` is the coefficient on its output, `p` its one
dual variable. While the ReLU is not split, p is the slope alpha in [0, 1] of its lower line, used where nu >= 0 (where
nu < 0 the chord is used); once it is split, p is the multiplier beta >= 0 of its sign. Any such p gives a valid bound,
so ascent may stop at any step and run in float32: a domain is closed only by `linear.bound_clause`, in float64 with its
error bound, from p as stored.

One step is a pass back, which gives the bound and the vertex of the box that minimises, and a pass forward of that
vertex through the same linearised network, which gives z at every ReLU. The gradient needs no autograd:

    d bound / d alpha = max(nu, 0) z,    d bound / d beta = -z where passing, z where blocked
"""

from dataclasses import dataclass, field, replace
from typing import final

import torch
from torch import Tensor

from bough.bounds.base import AbstractBounder, AbstractBounding, Bounded
from bough.bounds.intermediate import AbstractIntermediate, TightBounds
from bough.bounds.linear import PassRelu, Region, bound_clause
from bough.bounds.lp import PlanetLP
from bough.bounds.reduced import Reduced, reduce
from bough.bounds.relaxation import chord
from bough.budget import Deadline
from bough.domain.batch import DomainBatch
from bough.problem.problem import Problem
from bough.problem.property import Clause


@dataclass(frozen=True, eq=False)
class Duals:
    """The dual variables of a batch: p of every ambiguous ReLU [domains, n], and logits of the rows' weights."""

    p: Tensor
    logits: Tensor  # [domains, rows]; -inf where a clause has fewer rows


@dataclass(frozen=True, eq=False)
class Question:
    """What is bounded from below: `weights . (rows @ y - offsets)` under the signs of split ReLUs."""

    rows: Tensor  # [domains, rows, outputs]
    offsets: Tensor  # [domains, rows]
    signs: Tensor  # [domains, n]: +1 passing, -1 blocked, 0 not split


@dataclass(frozen=True, eq=False)
class Ascended:
    """The duals, and what a pass back found for them; the value is computed, not proved."""

    duals: Duals
    value: Tensor  # [domains]
    vertex: Tensor  # [domains, inputs]: of the box, that minimises; in {-1, 0, 1} from the centre
    nu: Tensor  # [domains, n]


@final
@dataclass(frozen=True)
class Ascent:
    """Adam on all dual variables at once, keeping the best state of every domain."""

    steps: int = 20
    rate: float = 0.25
    decay: float = 0.95  # of the rate, per step

    def run(self, net: Reduced, asked: Question, start: Duals, fresh: Tensor | None = None) -> Ascended:
        """Maximise the bound. `fresh` [domains, n] marks splits (by sign) whose p still is the parent's slope.

        Their multiplier starts where the bound is the parent's: beta = nu (1 - alpha) if passing, nu alpha if blocked.
        """
        here = best = _back(net, asked, start, fresh)
        moments = [torch.zeros_like(t) for t in (start.p, start.p, start.logits, start.logits)]
        for step in range(self.steps):
            slope, tilt = _gradient(net, asked, here)
            # A multiplier is measured in coefficients, a slope in units: each moves on its own scale.
            scale = torch.where(asked.signs == 0, 1.0, here.nu.abs().mean(dim=1, keepdim=True))
            rate = self.rate * self.decay**step
            p = here.duals.p + rate * scale * _adam(slope * scale, moments, 0, step)
            p = torch.where(asked.signs == 0, p.clamp(0, 1), p.clamp(min=0))
            here = _back(net, asked, Duals(p, here.duals.logits + rate * _adam(tilt, moments, 2, step)), None)
            best = _better(best, here)
        return best


def _back(net: Reduced, asked: Question, duals: Duals, fresh: Tensor | None) -> Ascended:
    """The functional goes back from the outputs to the input: the bound, and the vertex that attains it."""
    slope = chord(net.lower, net.upper)
    weights = duals.logits.softmax(dim=1)
    p, nu = duals.p.clone(), torch.empty_like(duals.p)
    lam = torch.cat([p, (weights[:, None] @ asked.rows)[:, 0]], dim=1)
    lost = -(weights * asked.offsets).sum(dim=1)
    for part in reversed(net.layers):
        here, sign = lam[:, part.stop :] @ net.between[part.stop :, part], asked.signs[:, part]
        if fresh is not None:
            new, gain = fresh[:, part], here.clamp(min=0)
            p[:, part] = torch.where(
                new > 0, gain * (1 - p[:, part]), torch.where(new < 0, gain * p[:, part], p[:, part])
            )
        bent = here * torch.where(here >= 0, p[:, part], slope[part])
        lam[:, part] = torch.where(sign == 0, bent, torch.where(sign > 0, here - p[:, part], p[:, part]))
        intercept = -net.lower[part] * slope[part]
        lost = lost + torch.where(sign == 0, here.clamp(max=0) * intercept, 0.0).sum(dim=1)
        nu[:, part] = here
    g = lam @ net.inputs
    return Ascended(Duals(p, duals.logits), lam @ net.centre - g.abs().sum(dim=1) + lost, -g.sign(), nu)


def _gradient(net: Reduced, asked: Question, here: Ascended) -> tuple[Tensor, Tensor]:
    """The vertex goes forward through the linearised network: z everywhere gives the gradient by p and by logits."""
    n, slope, p = len(net.neurons), chord(net.lower, net.upper), here.duals.p
    z = net.centre + here.vertex @ net.inputs.T
    for part in net.layers:
        at, sign = z[:, part], asked.signs[:, part]
        bent = torch.where(here.nu[:, part] >= 0, p[:, part] * at, slope[part] * (at - net.lower[part]))
        x = torch.where(sign == 0, bent, torch.where(sign > 0, at, 0.0))
        z[:, part.stop :] += x @ net.between[part.stop :, part].T
    before, weights = z[:, :n], here.duals.logits.softmax(dim=1)
    by_p = torch.where(asked.signs == 0, here.nu.clamp(min=0) * before, -asked.signs * before)
    rows = (asked.rows @ z[:, n:, None])[..., 0] - asked.offsets
    return by_p, weights * (rows - (weights * rows).sum(dim=1, keepdim=True))


def _adam(gradient: Tensor, moments: list[Tensor], k: int, step: int) -> Tensor:
    """Adam's direction of ascent (Kingma & Ba 2015); the moments at k and k + 1 are renewed."""
    moments[k] = 0.9 * moments[k] + 0.1 * gradient
    moments[k + 1] = 0.999 * moments[k + 1] + 0.001 * gradient**2
    first, second = moments[k] / (1 - 0.9 ** (step + 1)), moments[k + 1] / (1 - 0.999 ** (step + 1))
    return first / (second.sqrt() + 1e-12)


def _better(one: Ascended, other: Ascended) -> Ascended:
    """Of each domain the state with the higher value."""
    wins = other.value > one.value
    pick = [
        torch.where(wins.reshape(-1, *(1,) * (a.ndim - 1)), b, a)
        for a, b in zip(_tensors(one), _tensors(other), strict=True)
    ]
    return Ascended(Duals(pick[0], pick[1]), pick[2], pick[3], pick[4])


def _tensors(a: Ascended) -> tuple[Tensor, ...]:
    return a.duals.p, a.duals.logits, a.value, a.vertex, a.nu


def by_duals(net: Reduced, p: Tensor, signs: Tensor) -> PassRelu:
    """Pass the network's own ReLUs as the duals p [domains, n] say: what proves a bound that ascent found."""
    places = {int(net.neurons[part][0]): part for part in net.layers if part.stop > part.start}

    def pass_relu(part: slice, nu: Tensor, lower: Tensor, upper: Tensor) -> tuple[Tensor, Tensor]:
        lam = nu * (lower >= 0)
        mine = next((layer for first, layer in places.items() if part.start <= first < part.stop), slice(0, 0))
        columns = net.neurons[mine] - part.start
        n, q, sign = nu[..., columns], p[:, None, mine], signs[:, None, mine]
        bent = n * torch.where(n >= 0, q, chord(lower[..., columns], upper[..., columns]))
        lam[..., columns] = torch.where(sign == 0, bent, torch.where(sign > 0, n - q, q))
        return lam, columns

    return pass_relu


@final
@dataclass(frozen=True)
class DualAscent(AbstractBounder):
    """Root bounds once, then ascent for every batch; domains with every ReLU decided are left to the LP."""

    ascent: Ascent = field(default_factory=Ascent)
    at_root: Ascent = field(default_factory=lambda: Ascent(steps=100, decay=0.97))
    intermediate: AbstractIntermediate = field(default_factory=lambda: TightBounds(refresh=False))

    def prepare(self, problem: Problem) -> "DualBounding":
        """Start on a problem."""
        return DualBounding(problem, self)


@final
class DualBounding(AbstractBounding):
    """Dual ascent at work on one problem, on the CPU."""

    def __init__(self, problem: Problem, config: DualAscent) -> None:
        self._problem, self._config = problem, config
        self._boxes: dict[int, tuple[Region, Reduced]] = {}
        self._exact = PlanetLP(config.intermediate).prepare(problem)

    def _box(self, box: int, deadline: Deadline) -> tuple[Region, Reduced]:
        if box not in self._boxes:
            root = self._config.intermediate.at_root(self._problem.network, self._problem.property.boxes[box], deadline)
            self._boxes[box] = root, reduce(self._problem.network, root).to(torch.device("cpu"), torch.float32)
        return self._boxes[box]

    def root(self, cutoff: float, deadline: Deadline) -> Bounded:
        """One domain per clause, ascended for longer, since every other domain starts from there."""
        parts = []
        for k, clause in enumerate(self._problem.clauses):
            root, net = self._box(clause.box, deadline)
            start = Duals((net.upper > -net.lower).float()[None], torch.zeros(1, len(clause.offsets)))
            domain = DomainBatch.root(k, root.bounds, clause.coefficients[0], start)
            parts.append(self._bound_clause(clause, domain, self._config.at_root, cutoff, deadline))
        return Bounded.concatenate(parts)

    def bound(self, domains: DomainBatch, cutoff: float, deadline: Deadline) -> Bounded:
        """Ascend from the parents' duals, clause by clause, and prove what was found."""
        order, parts = [], []
        for c in domains.clause.unique().tolist():
            rows = (domains.clause == c).nonzero()[:, 0]
            clause = self._problem.clauses[c]
            parts.append(self._bound_clause(clause, domains[rows], self._config.ascent, cutoff, deadline))
            order.append(rows)
        back = torch.cat(order).argsort()
        joined = Bounded.concatenate(parts)
        return Bounded(joined.domains[back], joined.points[back])

    def _bound_clause(
        self, clause: Clause, domains: DomainBatch, ascent: Ascent, cutoff: float, deadline: Deadline
    ) -> Bounded:
        deadline.check()
        root, net = self._box(clause.box, deadline)
        count = len(domains)
        starts = [s for s in domains.start if isinstance(s, Duals)]
        duals = Duals(torch.cat([s.p for s in starts]), torch.cat([s.logits for s in starts]))
        signs = domains.signs[:, net.neurons].float()
        fresh = torch.where(net.neurons == domains.last_split[:, None], signs, 0.0)
        rows = clause.coefficients.float().expand(count, -1, -1)
        found = ascent.run(net, Question(rows, clause.offsets.float().expand(count, -1), signs), duals, fresh)
        weights = found.duals.logits.double().softmax(dim=1)
        rule = by_duals(net, found.duals.p.double(), signs)
        proved = bound_clause(self._problem.network, root.with_bounds(domains.bounds), clause, weights[:, None], rule)
        middle, radius = (root.lower + root.upper) / 2, (root.upper - root.lower) / 2
        lower = torch.fmax(domains.lower, proved[:, 0])
        lower[domains.bounds.empty()] = torch.inf
        start = tuple(Duals(found.duals.p[d : d + 1], found.duals.logits[d : d + 1]) for d in range(count))
        bounded = Bounded(
            replace(domains, lower=lower, functional=weights @ clause.coefficients, start=start),
            (middle + radius * found.vertex.double()).clamp(min=root.lower, max=root.upper),
        )
        return self._finish(bounded, cutoff, deadline)

    def _finish(self, bounded: Bounded, cutoff: float, deadline: Deadline) -> Bounded:
        """Where every ReLU is decided the relaxation is exact, and the LP over all rows settles what ascent left
        open.
        """
        domains = bounded.domains
        left = (~(domains.lower > cutoff) & ~domains.bounds.ambiguous().any(dim=1)).nonzero()[:, 0]
        if not len(left):
            return bounded
        exact = self._exact.bound(replace(domains[left], start=(None,) * len(left)), cutoff, deadline)
        lower, points = domains.lower.clone(), bounded.points.clone()
        lower[left], points[left] = torch.fmax(lower[left], exact.domains.lower), exact.points
        return Bounded(replace(domains, lower=lower), points)
