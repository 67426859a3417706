"""Dual ascent: never above the LP, close to it, and right in a search; the reduced network is the network."""

from dataclasses import replace

import numpy as np
import pytest
import torch
from tests.support import KINDS, Judged, box_around, generator, hard_case, problem, random_clause, samples

from bough.bounds.dual import Ascent, DualAscent
from bough.bounds.intermediate import TightBounds
from bough.bounds.lp import PlanetLP
from bough.bounds.reduced import reduce
from bough.branching.babsr import BaBSR
from bough.budget import Deadline
from bough.domain.batch import DomainBatch, split
from bough.falsify.base import NoAttack
from bough.network import walk
from bough.problem.problem import Problem
from bough.search.loop import Search, search
from bough.verdict.result import Verdict

NEVER = Deadline.never()
FIXED = TightBounds(refresh=False)
LONG = DualAscent(ascent=Ascent(steps=200, decay=0.98), at_root=Ascent(steps=200, decay=0.98))


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("seed", range(3))
def test_the_reduced_network_is_the_network(kind, seed):
    g = generator(seed)
    network = KINDS[kind](g)
    box = box_around(g, network.inputs)
    root = FIXED.at_root(network, box, NEVER)
    net = reduce(network, root)
    points = samples(box, 20, seed)
    values = walk.forward(network, points.reshape(-1, *network.input_shape))
    flat = torch.cat([values[network.nodes[i].inputs[0]].reshape(len(points), -1) for i in network.relus], dim=1)
    z = flat[:, net.neurons]
    radius = (root.upper - root.lower)[0] / 2
    s = torch.where(radius > 0, (points - (root.upper + root.lower)[0] / 2) / radius.clamp(min=1e-300), 0.0)
    again = s @ net.inputs.T + z.relu() @ net.between.T + net.centre
    outputs = values[-1].reshape(len(points), -1)
    torch.testing.assert_close(again, torch.cat([z, outputs], dim=1), rtol=1e-9, atol=1e-9)


def tree(kind: str, seed: int, depth: int = 3) -> tuple[list[DomainBatch], Problem]:
    """Domains down one random path, with both children at every step, from the ascent's own search state."""
    g = generator(seed)
    network = KINDS[kind](g)
    asked = problem(network, [box_around(g, network.inputs)], [random_clause(g, network.outputs, 1 + seed % 2)])
    bounding = LONG.prepare(asked)
    domains = bounding.root(np.inf, NEVER).domains
    found = [domains]
    for _ in range(depth):
        ambiguous = domains.bounds.ambiguous()
        if not bool(ambiguous.any(dim=1).all()):
            break
        children = split(domains, torch.multinomial(ambiguous.double(), 1, generator=g)[:, 0])
        children = bounding.bound(children, np.inf, NEVER).domains
        found.append(children)
        domains = children[torch.tensor([seed % 2])]
    return found, asked


def test_ascent_is_never_above_the_lp_and_nearly_reaches_it():
    """At least 95 in 100 domains come within 1% of what the LP gains over plain linear bounds; others are listed."""
    close, missed = 0, []
    for kind in ("dense", "convolutional", "residual", "pooled"):
        for seed in range(5):
            found, asked = tree(kind, seed)
            exact = PlanetLP(FIXED, early_stop=False).prepare(asked)
            start = DualAscent(ascent=Ascent(steps=0), at_root=Ascent(steps=0)).prepare(asked).root(np.inf, NEVER)
            base = float(start.domains.lower.min())
            exact.root(np.inf, NEVER)
            for domains in found[1:]:
                blank = replace(domains, start=(None,) * len(domains), lower=torch.full_like(domains.lower, -torch.inf))
                best = exact.bound(blank, np.inf, NEVER).domains.lower
                for ours, theirs in zip(domains.lower.tolist(), best.tolist(), strict=True):
                    assert ours <= theirs + 1e-6 * (1 + abs(theirs))
                    if not np.isfinite(theirs):
                        continue
                    gain = theirs - base
                    if gain <= 1e-9 or theirs - ours <= 0.01 * gain:
                        close += 1
                    else:
                        missed.append((kind, seed, round(ours, 4), round(theirs, 4)))
    print(f"{close} of {close + len(missed)} within 1%; missed: {missed}")  # noqa: T201 - pytest shows it on demand
    assert close >= 0.95 * (close + len(missed))


@pytest.mark.parametrize("kind", ["dense", "convolutional", "residual"])
def test_a_child_starts_at_its_parents_value(kind):
    for seed in range(4):
        g = generator(seed)
        network = KINDS[kind](g)
        asked = problem(network, [box_around(g, network.inputs)], [random_clause(g, network.outputs, 1)])
        bounding = DualAscent(ascent=Ascent(steps=0)).prepare(asked)
        root = bounding.root(np.inf, NEVER).domains
        for neuron in root.bounds.ambiguous()[0].nonzero()[:, 0].tolist():
            blank = replace(root, lower=torch.full_like(root.lower, -torch.inf))
            children = bounding.bound(split(blank, torch.tensor([neuron])), np.inf, NEVER).domains
            # float32 duals, so up to its rounding; where the parent's nu is negative splitting alone gains.
            assert bool((children.lower >= root.lower - 1e-4 * (1 + root.lower.abs())).all())


def test_a_batch_is_bounded_as_its_domains_alone():
    found, asked = tree("convolutional", 1)
    bounding = LONG.prepare(asked)
    parents = found[1]
    neurons = parents.bounds.ambiguous().int().argmax(dim=1)
    children = split(parents, neurons)
    together = bounding.bound(children, np.inf, NEVER).domains.lower
    alone = [bounding.bound(children[torch.tensor([d])], np.inf, NEVER).domains.lower for d in range(len(children))]
    torch.testing.assert_close(together, torch.cat(alone), rtol=1e-3, atol=1e-3)


@pytest.mark.parametrize("kind", ["dense", "convolutional", "residual", "pooled"])
def test_search_with_ascent_finds_what_enumeration_finds(kind):
    for seed in (0, 3, 5, 11):
        case = hard_case(kind, seed, safe=seed % 2 == 1)
        bounder = Judged(DualAscent(), case)
        result = search(Search(case.problem, bounder, BaBSR(), NoAttack(), NEVER, batch=4))
        assert result.verdict is (Verdict.VERIFIED if case.least > 0 else Verdict.FALSIFIED)
        assert result.lower_bound <= case.least + 1e-6
