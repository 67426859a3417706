"""Neurify's priority against plain loops over its definition, and against gradients at points."""

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.support import (
    KINDS,
    Array,
    box_around,
    domains_of,
    generator,
    matrices,
    normal,
    problem,
    random_clause,
    relu_inputs_at,
    samples,
    sequential,
    tensor,
)

from bough.bounds.lp import PlanetLP
from bough.branching.gradient import SteepestGradient, steepest_gradients
from bough.budget import Deadline
from bough.domain.batch import Bounds
from bough.network.graph import Network
from bough.network.ops import Relu


def slow_steepest(network: Network, lower: Array, upper: Array, functional: Array) -> list[float]:
    """Element by element: the interval of gradients by every node's value, from the output back."""
    low = [[0.0] * node.size for node in network.nodes]
    high = [[0.0] * node.size for node in network.nodes]
    low[-1], high[-1] = list(functional), list(functional)
    steepest = [0.0] * network.neurons
    for i in range(len(network.nodes) - 1, 0, -1):
        node = network.nodes[i]
        if isinstance(node.op, Relu):
            for k in range(node.size):
                n, g, h = network.slices[i].start + k, low[i][k], high[i][k]
                steepest[n] = max(abs(g), abs(h))
                if upper[n] <= 0:
                    g = h = 0.0
                elif lower[n] < 0:
                    g, h = min(g, 0.0), max(h, 0.0)
                low[node.inputs[0]][k] += g
                high[node.inputs[0]][k] += h
            continue
        for matrix, j in zip(matrices(network, i)[0], node.inputs, strict=True):
            for r in range(matrix.shape[0]):
                for k in range(matrix.shape[1]):
                    both = matrix[r, k] * low[i][r], matrix[r, k] * high[i][r]
                    low[j][k] += min(both)
                    high[j][k] += max(both)
    return steepest


@settings(max_examples=25)
@given(st.sampled_from(tuple(KINDS)), st.integers(0, 2**31))
def test_the_choice_is_by_the_definition(kind, seed):
    g = generator(seed)
    network = KINDS[kind](g)
    query = problem(network, [box_around(g, network.inputs)], [random_clause(g, network.outputs, 2) for _ in range(3)])
    domains = PlanetLP().prepare(query).root(0.0, Deadline.never()).domains
    gradients = steepest_gradients(network, domains, torch.float64)
    chosen = SteepestGradient().decide(network, domains).neurons.tolist()
    for d in range(len(domains)):
        bounds = domains.bounds.lower[d].numpy(), domains.bounds.upper[d].numpy()
        expected = slow_steepest(network, *bounds, domains.functional[d].numpy())
        assert gradients[d].tolist() == pytest.approx(expected, rel=1e-9, abs=1e-12)
        ambiguous = [n for n, (l, u) in enumerate(zip(*bounds, strict=True)) if l < 0 < u]
        if ambiguous:
            assert chosen[d] in ambiguous
            assert expected[chosen[d]] == pytest.approx(max(expected[n] for n in ambiguous), rel=1e-9, abs=1e-12)


def test_no_point_has_a_steeper_gradient():
    """The network's own slopes at points: by the first layer's ReLUs, of a network with two."""
    g = generator(2)
    first, second, last = ((normal(g, n, m), normal(g, n) * 0.3) for n, m in ((4, 3), (5, 4), (1, 5)))
    network, box = sequential(first, second, last), box_around(g, 3)
    points = samples(box, 2000)
    z = torch.as_tensor(relu_inputs_at(network, points.numpy()))
    bounds = Bounds(z.min(dim=0, keepdim=True).values, z.max(dim=0, keepdim=True).values)
    gradients = steepest_gradients(network, domains_of(bounds, tensor([[1.0]])), torch.float64)[0]
    slopes = ((last[0] * (z[:, 4:] > 0)) @ second[0]).abs().max(dim=0).values
    assert bool((slopes <= gradients[:4] + 1e-12).all())
    assert gradients[4:].tolist() == last[0][0].abs().tolist()


def test_by_hand():
    """Behind ReLU 0 lies one that is ambiguous, with weight 3: from 0 to 3; behind ReLU 1 two, 1 and -2: -2 to 1."""
    network = sequential(([[1.0], [1.0]], [0.0, 0.0]), ([[3.0, 1.0], [0.0, -2.0]], [0.0, 0.0]), ([[1.0, 1.0]], [0.0]))
    wide = Bounds(-torch.ones(1, 4).double(), torch.ones(1, 4).double())
    domains = domains_of(wide, tensor([[1.0]]))
    assert steepest_gradients(network, domains, torch.float64).tolist() == [[3.0, 2.0, 1.0, 1.0]]
    assert SteepestGradient().decide(network, domains).neurons.tolist() == [0]
