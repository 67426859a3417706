"""What a relaxation says of a domain: its multipliers prove the domain's bound, and its point attains it."""

import sys

import pytest
import torch
from scipy.optimize import linprog
from tests.support import (
    ascend_in_float64,
    box_around,
    clause,
    convolutional,
    dense,
    generator,
    normal,
    pooled,
    problem,
    relaxation_of,
    residual,
    samples,
    values_at,
)
from torch import Tensor

from bough.bounds.ascent import Ascent
from bough.bounds.base import AbstractBounder, AbstractSession
from bough.bounds.boxes import LinearBounds
from bough.bounds.dual import DualAscent
from bough.bounds.intermediate import TightBounds
from bough.bounds.linear import PassRelu, bound_functionals
from bough.bounds.lp import PlanetLP
from bough.bounds.reduced import reduce
from bough.bounds.relaxation import chord
from bough.budget import Deadline
from bough.domain.batch import DomainBatch, Relaxation, split
from bough.problem.problem import Problem
from bough.search.ahead import CountedLookAhead

NEVER = Deadline.never()
FIXED = TightBounds(refresh=False)
BOUNDERS: dict[str, AbstractBounder] = {
    "lp": PlanetLP(FIXED, early_stop=False),
    "dual": DualAscent(Ascent(steps=400, decay=0.99), Ascent(steps=400, decay=0.99), FIXED),
}
NETWORKS = {"dense": dense, "convolutional": convolutional, "residual": residual, "pooled": pooled}
KINDS = [(kind, seed) for kind in ("dense", "convolutional", "residual", "pooled") for seed in (1, 4)]


def half_unsafe_problem(kind: str, seed: int) -> Problem:
    """One clause of one row, unsafe at about half of the points, so that all domains stay open."""
    g = generator(seed)
    network = NETWORKS[kind](g)
    box = box_around(g, network.inputs)
    row = normal(g, network.outputs)
    margins = torch.stack([torch.from_numpy(values_at(network, x.numpy())[-1]) for x in samples(box, 40)]) @ row
    return problem(network, [box], [clause([row.tolist()], [float(margins.median())])])


def open_domains(bounding: AbstractSession) -> DomainBatch:
    """The roots and the children of their children, as far as they are open."""
    domains = bounding.root(0.0, NEVER).domains
    parts = [domains[~(domains.lower > 0)]]
    for _ in range(2):
        last = parts[-1][parts[-1].bounds.ambiguous().any(dim=1)]
        if not len(last):
            break
        children = split(last, last.bounds.ambiguous().int().argmax(dim=1))
        children = bounding.bound(children, torch.inf, NEVER).domains
        parts.append(children[torch.isfinite(children.lower) & ~(children.lower > 0)])
    return DomainBatch.concatenate(parts)


@pytest.mark.parametrize("name", BOUNDERS)
@pytest.mark.parametrize(("kind", "seed"), KINDS)
def test_the_multipliers_prove_the_bound(name, kind, seed, monkeypatch):
    """Passed as the multipliers say, the functional proves the domain's bound; and what comes back from later layers
    to a ReLU is what its own multipliers add up to.
    """
    ascend_in_float64(monkeypatch)
    query = half_unsafe_problem(kind, seed)
    bounding = BOUNDERS[name].prepare(query)
    domains = open_domains(bounding)
    relaxation = relaxation_of(bounding, domains)
    assert all(bool((part >= 0).all()) for part in (relaxation.zero, relaxation.above, relaxation.below))
    passed = checked_passing(domains, relaxation)
    network = query.network
    region = FIXED.at_root(network, query.property.boxes[0], NEVER).with_bounds(domains.bounds)
    proved = bound_functionals(network, region, len(network.nodes) - 1, domains.functional[:, None], passed)
    torch.testing.assert_close(proved.lower[:, 0] - query.clauses[0].offsets[0], domains.lower, rtol=1e-4, atol=1e-4)
    torch.testing.assert_close(relaxation.value.double(), domains.lower, rtol=1e-4, atol=1e-4)


def checked_passing(domains: DomainBatch, relaxation: Relaxation) -> PassRelu:
    """Every ReLU passed as the relaxation's multipliers say, compared with what arrives at it."""
    ambiguous = domains.bounds.ambiguous()[:, relaxation.neurons]

    def pass_relu(part: slice, nu: Tensor, lower: Tensor, upper: Tensor) -> tuple[Tensor, Tensor]:
        del upper
        lam = nu * (lower >= 0)
        in_part = ((relaxation.neurons >= part.start) & (relaxation.neurons < part.stop)).nonzero()[:, 0]
        columns = relaxation.neurons[in_part] - part.start
        total = (relaxation.zero + relaxation.above - relaxation.below)[:, in_part].double()
        arrived = torch.where(ambiguous[:, in_part], nu[:, 0, columns], 0.0)
        torch.testing.assert_close(arrived, total, rtol=1e-4, atol=1e-4)
        lam[:, 0, columns] = relaxation.through[:, in_part].double()
        return lam, torch.arange(nu.shape[-1])

    return pass_relu


@pytest.mark.parametrize("name", BOUNDERS)
@pytest.mark.parametrize(("kind", "seed"), KINDS)
def test_the_point_attains_the_bound(name, kind, seed, monkeypatch):
    """z and x lie on the lines that are used, and in the domain's bounds where the LP has them."""
    ascend_in_float64(monkeypatch)
    query = half_unsafe_problem(kind, seed)
    bounding = BOUNDERS[name].prepare(query)
    domains = open_domains(bounding)
    relaxation = relaxation_of(bounding, domains)
    box = query.property.boxes[0]
    assert bool(((relaxation.point >= box.lower) & (relaxation.point <= box.upper)).all())
    low, high = (side[:, relaxation.neurons] for side in (domains.bounds.lower, domains.bounds.upper))
    slope = chord(low, high)
    top = slope * (relaxation.before - low)
    ambiguous = (low < 0) & (high > 0)
    on_chord = ambiguous & (relaxation.below > 1e-3)
    torch.testing.assert_close(relaxation.after.double()[on_chord], top[on_chord].double(), rtol=1e-4, atol=1e-4)
    if name == "lp":
        for used, line in (
            (relaxation.zero, torch.zeros_like(relaxation.before)),
            (relaxation.above, relaxation.before),
        ):
            at = ambiguous & (used > 1e-6)
            torch.testing.assert_close(relaxation.after[at], line[at], rtol=1e-6, atol=1e-6)


def test_both_bounders_agree(monkeypatch):
    """Converged ascent has the LP's bounds, within 1%, and its multipliers where these are unique; how far the primal
    values differ is printed (run with -s): they need not agree.
    """
    ascend_in_float64(monkeypatch)
    agree, count = 0, 0
    for kind, seed in KINDS:
        query = half_unsafe_problem(kind, seed)
        both = {}
        for name, bounder in BOUNDERS.items():
            bounding = bounder.prepare(query)
            root = bounding.root(torch.inf, NEVER).domains
            both[name] = root, relaxation_of(bounding, root)
        (exact, lp), (near, dual) = both["lp"], both["dual"]
        torch.testing.assert_close(near.lower, exact.lower, rtol=0.01, atol=1e-3)
        assert torch.equal(lp.neurons, dual.neurons)
        gap = max(float((getattr(lp, n) - getattr(dual, n)).abs().max()) for n in ("zero", "above", "below"))
        size = float((lp.zero + lp.above + lp.below).abs().max())
        far = [float((getattr(lp, n) - getattr(dual, n)).abs().max()) for n in ("before", "after")]
        sys.stdout.write(f"{kind} {seed}: duals {gap:.2g} of {size:.2g} apart, z {far[0]:.2g}, x {far[1]:.2g}\n")
        agree, count = agree + (gap <= 0.05 * size), count + 1
    assert agree >= count - 2  # elsewhere several multipliers are as good


def unique(query: Problem, relaxation: Relaxation) -> Tensor:
    """Which multipliers [3, n] of the root's LP (`zero`, `above`, `below`) are the only ones possible.

    The least value is a piecewise linear function of how far a constraint is moved, and its slopes to both sides are
    the least and the largest multiplier that the constraint can have. The LP is written down here once more.
    """
    net = reduce(query.network, FIXED.at_root(query.network, query.property.boxes[0], NEVER), NEVER)
    n, inputs = len(net.neurons), net.inputs.shape[1]
    assert torch.equal(net.neurons, relaxation.neurons)
    side = torch.cat([net.inputs, net.between], dim=1)  # z, then y, of (s, x)
    z, own = side[:n], torch.cat([torch.zeros(n, inputs, dtype=torch.float64), torch.eye(n, dtype=torch.float64)], 1)
    slope, centre = chord(net.lower, net.upper), net.centre[:n]
    above, below = z - own, own - slope[:, None] * z
    limits = torch.cat([torch.zeros(n), -centre, slope * (centre - net.lower)])
    cost = query.clauses[0].coefficients[0] @ side[n:]
    sides = [(-1, 1)] * inputs + [(None, None)] * n

    def least(moved: Tensor) -> float:
        rows = torch.cat([-own, above, below]).numpy()
        solved = linprog(cost.numpy(), rows, (limits + moved).numpy(), bounds=sides)
        assert solved.fun is not None
        return float(solved.fun)

    far, start = 1e-4, least(torch.zeros(3 * n))
    moves = torch.eye(3 * n, dtype=torch.float64) * far
    slopes = [((start - least(move)) / far, (least(-move) - start) / far) for move in moves]
    low, high = torch.tensor(slopes, dtype=torch.float64).T.reshape(2, 3, n)
    size = float(high.abs().max())
    exact = torch.stack([relaxation.zero, relaxation.above, relaxation.below])[:, 0].double()
    assert bool(((exact >= low - 1e-2 * size) & (exact <= high + 1e-2 * size)).all())  # what the bounder's LP found
    only: Tensor = high - low <= 1e-2 * size + 1e-9
    return only


def test_multipliers_agree_where_the_lps_are_unique(monkeypatch):
    """How many are is printed (run with -s)."""
    ascend_in_float64(monkeypatch)
    alone, count = 0, 0
    for kind, seed in KINDS:
        query, relaxations = half_unsafe_problem(kind, seed), {}
        for name, bounder in BOUNDERS.items():
            bounding = bounder.prepare(query)
            relaxations[name] = relaxation_of(bounding, bounding.root(torch.inf, NEVER).domains)
        lp, dual = (
            torch.stack([relaxations[name].zero, relaxations[name].above, relaxations[name].below])[:, 0]
            for name in relaxations
        )
        only = unique(query, relaxations["lp"])
        torch.testing.assert_close(dual[only].double(), lp[only].double(), rtol=0, atol=0.05 * float(lp.abs().max()))
        alone, count = alone + int(only.sum()), count + only.numel()
        sys.stdout.write(f"{kind} {seed}: {int(only.sum())} of {only.numel()} multipliers are unique\n")
    assert alone > 0.6 * count


def test_bounders_without_duals_say_so():
    bounding = LinearBounds().prepare(half_unsafe_problem("dense", 1))
    domains = bounding.root(0.0, NEVER).domains
    assert bounding.capabilities.relaxations is None
    assert CountedLookAhead(bounding, NEVER, domains).relaxed(domains) is None
