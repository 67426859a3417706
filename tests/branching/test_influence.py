"""Influence against a plain loop over its formula."""

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from tests.support import KINDS, box_around, generator, integer, normal, sequential
from torch import Tensor

from bough.branching import influence as module
from bough.branching.influence import influence

Rows = list[list[float]]


def by_loops(weight: Rows, bias: list[float], lower: list[float], upper: list[float]) -> list[float]:
    """Of the ReLUs of one layer: each weighs every input by its part in the interval's width, times the chord's slope;
    the influence of a ReLU is the mean weight of its inputs, by what each can do to it.
    """
    radius = [(h - l) / 2 for l, h in zip(lower, upper, strict=True)]
    weights = [0.0] * len(radius)
    for row, b in zip(weight, bias, strict=True):
        centre = b + sum(w * (l + h) / 2 for w, l, h in zip(row, lower, upper, strict=True))
        reach = sum(abs(w) * r for w, r in zip(row, radius, strict=True))
        low, high = centre - reach, centre + reach
        if low < 0 < high:
            for k, w in enumerate(row):
                weights[k] += high / (high - low) * abs(w) * radius[k] / (high - low)
    influences = []
    for row in weight:
        parts = [abs(w) * r for w, r in zip(row, radius, strict=True)]
        total = sum(p * v for p, v in zip(parts, weights, strict=True))
        influences.append(total / sum(parts) if sum(parts) > 0 else 0.0)
    return influences


def boxes(seed: int, inputs: int, count: int = 3) -> tuple[Tensor, Tensor]:
    """Some boxes, each with an input that is fixed."""
    g = generator(seed)
    regions = [box_around(g, inputs) for _ in range(count)]
    lower, upper = torch.stack([b.lower for b in regions]), torch.stack([b.upper for b in regions])
    upper[:, 0] = lower[:, 0]
    return lower, upper


@given(st.integers(0, 2**31), st.integers(1, 5), st.integers(1, 6))
def test_the_formula(seed, inputs, relus):
    g = generator(seed)
    weight = normal(g, relus, inputs) * (torch.rand(relus, inputs, generator=g) < 0.6)
    bias = normal(g, relus) * 0.3
    network = sequential((weight, bias), (normal(g, 2, relus), normal(g, 2)))
    lower, upper = boxes(seed, inputs)
    computed = influence(network, lower, upper)
    for d in range(len(lower)):
        expected = by_loops(weight.tolist(), bias.tolist(), lower[d].tolist(), upper[d].tolist())
        assert computed[d].tolist() == pytest.approx(expected, rel=1e-6, abs=1e-9)


@given(st.sampled_from(tuple(KINDS)), st.integers(0, 2**31))
def test_any_network_has_finite_ones_whatever_is_looked_at_together(kind, seed):
    network = KINDS[kind](generator(seed))
    lower, upper = boxes(seed, network.inputs)
    computed = influence(network, lower, upper)
    assert computed.shape == (3, network.neurons)
    assert bool(((computed >= 0) & computed.isfinite()).all())
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(module, "MOST_ELEMENTS", 1)
        assert torch.allclose(influence(network, lower, upper), computed)


def test_scaled_relus_are_the_same():
    g = generator(5)
    first, second = (normal(g, 6, 4), normal(g, 6) * 0.2), (normal(g, 5, 6), normal(g, 5) * 0.2)
    last, factor = (normal(g, 2, 5), normal(g, 2)), 2.0 ** torch.tensor([integer(g, -20, 20) for _ in range(6)])
    lower, upper = boxes(5, 4)
    plain = influence(sequential(first, second, last), lower, upper)
    scaled = (first[0] * factor[:, None], first[1] * factor), (second[0] / factor, second[1])
    assert torch.allclose(influence(sequential(*scaled, last), lower, upper), plain)


def test_a_network_without_relus_has_none():
    network = sequential(([[1.0, 2.0]], [0.0]))
    assert influence(network, torch.zeros(3, 2).double(), torch.ones(3, 2).double()).shape == (3, 0)
