"""BaBSR's scores against a plain loop over the formula, and its decision rule case by case."""

import numpy as np
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
    sequential,
    simple_problem,
    tensor,
)
from torch import Tensor

from bough.bounds.intermediate import PaperBounds
from bough.bounds.lp import PlanetLP
from bough.branching.babsr import BaBSR, BaBSRMemory, Scores, local_bias, scores
from bough.branching.base import BLIND
from bough.budget import Deadline
from bough.domain.batch import Bounds, DomainBatch, split
from bough.network.graph import Network
from bough.network.ops import Conv, Linear, Relu
from bough.problem.problem import Problem

NEVER = Deadline.never()


def slow_scores(
    network: Network, lower: Array, upper: Array, functional: Array, *, worse_side: bool = False
) -> tuple[Array, Array]:
    """Facts 3.1, neuron by neuron, for layers in one chain; with the lesser gain of both sides in the later form."""
    side = min if worse_side else max
    s, t = np.zeros(network.neurons), np.zeros(network.neurons)
    n = list(functional)
    for i in range(len(network.nodes) - 1, 0, -1):
        node = network.nodes[i]
        if not isinstance(node.op, Relu):
            (matrix,), _ = matrices(network, i)
            n = [sum(n[r] * matrix[r, k] for r in range(len(n))) for k in range(matrix.shape[1])]
            continue
        before = network.nodes[node.inputs[0]]
        assert isinstance(before.op, Linear | Conv)
        bias = matrices(network, node.inputs[0])[1]
        first = network.slices[i].start
        for k in range(node.size):
            l, u, b = lower[first + k], upper[first + k], bias[k]
            positive, negative = max(u, 0.0), min(l, 0.0)
            a = positive / (positive - negative) if positive > negative else 1.0
            intercept = -negative * a
            if l < 0 < u:
                s[first + k] = abs(side(b * n[k] * (a - 1), b * n[k] * a) + min(n[k], 0.0) * intercept)
                t[first + k] = min(n[k], 0.0) * intercept
            n[k] *= a
    return s, t


def some_domains(query: Problem, g: torch.Generator, splits: int) -> DomainBatch:
    bounding = PlanetLP(PaperBounds()).prepare(query)
    domains = bounding.root(np.inf, NEVER).domains
    for _ in range(splits):
        live = domains[domains.bounds.ambiguous().any(dim=1) & torch.isfinite(domains.lower)]
        if not len(live):
            break
        chosen = torch.multinomial(live.bounds.ambiguous().double(), 1, generator=g)[:, 0]
        domains = bounding.bound(split(live, chosen), np.inf, NEVER).domains
    return domains


@settings(max_examples=30)
@given(st.sampled_from(("dense", "convolutional")), st.integers(0, 2**31), st.integers(0, 3), st.booleans())
def test_scores_are_the_formula(kind, seed, splits, worse_side):
    g = generator(seed)
    network = KINDS[kind](g)
    clauses = [random_clause(g, network.outputs, 2) for _ in range(2)]
    query = problem(network, [box_around(g, network.inputs)], clauses)
    domains = some_domains(query, g, splits)
    computed = scores(network, local_bias(network), domains, worse_side=worse_side)
    for d in range(len(domains)):
        lower, upper = domains.bounds.lower[d].numpy(), domains.bounds.upper[d].numpy()
        s, t = slow_scores(network, lower, upper, domains.functional[d].numpy(), worse_side=worse_side)
        np.testing.assert_allclose(computed.score[d].numpy(), s, rtol=1e-9, atol=1e-12)
        np.testing.assert_allclose(computed.intercept[d].numpy(), t, rtol=1e-9, atol=1e-12)


@settings(max_examples=20)
@given(st.sampled_from(tuple(KINDS)), st.integers(0, 2**31))
def test_scores_of_a_batch_are_those_of_its_domains(kind, seed):
    g = generator(seed)
    network = KINDS[kind](g)
    clauses = [random_clause(g, network.outputs, 2) for _ in range(2)]
    domains = some_domains(problem(network, [box_around(g, network.inputs)], clauses), g, 2)
    bias = local_bias(network)
    together = scores(network, bias, domains)
    for d in range(len(domains)):
        alone = scores(network, bias, domains[torch.tensor([d])])
        torch.testing.assert_close(together.score[d], alone.score[0], rtol=1e-12, atol=1e-15)
        torch.testing.assert_close(together.intercept[d], alone.intercept[0], rtol=1e-12, atol=1e-15)
        assert bool((together.score[d][~domains.bounds.ambiguous()[d]] == 0).all())


def test_scores_by_hand():
    """One layer: z in [-1, 3], bias 2, coefficient -1: a = 3/4, B = 3/4."""
    network = sequential(([[2.0]], [2.0]), ([[-1.0]], [0.0]))
    domain = domains_of(Bounds(tensor([[-1.0]]), tensor([[3.0]])), tensor([[1.0]]))
    computed = scores(network, local_bias(network), domain)
    # max(2 * -1 * (3/4 - 1), 2 * -1 * 3/4) + min(-1, 0) * 3/4 = 1/2 - 3/4
    assert float(computed.score) == pytest.approx(0.25)
    assert float(computed.intercept) == pytest.approx(-0.75)
    # min(2 * -1 * (3/4 - 1), 2 * -1 * 3/4) + min(-1, 0) * 3/4 = -3/2 - 3/4
    assert float(scores(network, local_bias(network), domain, worse_side=True).score) == pytest.approx(2.25)


# The decision rule (facts 3.2), with scores put in its way


def three_layers() -> Problem:
    """Two ReLUs in each of three layers: numbers 0, 1; 2, 3; 4, 5."""
    square = ([[1.0, 1.0], [1.0, -1.0]], [0.0, 0.0])
    network = sequential(square, square, square, ([[1.0, 1.0]], [0.0]))
    return simple_problem(network, [-1, -1], [1, 1], [[1.0]], [0.0])


def decide(
    monkeypatch: pytest.MonkeyPatch,
    s: Tensor,
    t: Tensor,
    memory: BaBSRMemory | None = None,
    ambiguous: Tensor | None = None,
) -> tuple[list[int], BaBSRMemory]:
    """What the rule chooses in one batch, where the scores are `s` and `t` [domains, 6]."""
    monkeypatch.setattr("bough.branching.babsr.scores", lambda network, bias, domains, worse_side: Scores(s, t))
    query = three_layers()
    wide = torch.ones_like(s) if ambiguous is None else ambiguous.double()
    domains = domains_of(Bounds(-torch.ones_like(s), wide), torch.ones(1, 1).double())
    decision = BaBSR().decide(memory or BaBSR().prepare(query), domains)
    assert decision.neurons.shape == (len(domains),)
    assert isinstance(decision.memory, BaBSRMemory)
    return decision.neurons.tolist(), decision.memory


def one_by_one(
    monkeypatch: pytest.MonkeyPatch, s: Tensor, t: Tensor, ambiguous: Tensor | None = None
) -> tuple[list[int], BaBSRMemory]:
    """As `decide`, in batches of one domain, as the authors decide."""
    chosen, memory = list[int](), BaBSR().prepare(three_layers())
    for d in range(len(s)):
        own_ambiguous = None if ambiguous is None else ambiguous[d : d + 1]
        more, memory = decide(monkeypatch, s[d : d + 1], t[d : d + 1], memory, own_ambiguous)
        chosen += more
    return chosen, memory


def test_the_best_score_is_chosen_outside_the_first_layer(monkeypatch):
    s = tensor([[0.1, 0.2, 0.3, 0.5, 0.4, 0.1]])
    assert decide(monkeypatch, s, -torch.ones_like(s))[0] == [3]


def test_the_best_score_is_never_taken_in_the_first_layer(monkeypatch):
    """The best is ReLU 1 in layer 0: the last layer with an intercept below the threshold has its lowest one taken."""
    s = tensor([[0.1, 9.0, 0.3, 0.5, 0.4, 0.1]])
    t = tensor([[-5.0, -4.0, -3.0, -2.0, -0.1, -0.2]])
    assert decide(monkeypatch, s, t)[0] == [5]
    t[0, 4:] = -0.9e-4  # above the threshold: the layer before
    assert decide(monkeypatch, s, t)[0] == [2]


def test_a_score_at_the_threshold_is_too_small(monkeypatch):
    s = tensor([[0.0, 0.0, 0.0, 1e-3, 0.0, 0.0], [0.0, 0.0, 0.0, 1.001e-3, 0.0, 0.0]])
    t = tensor([[0.0, 0.0, 0.0, 0.0, -1.0, 0.0]] * 2)
    assert decide(monkeypatch, s, t)[0] == [4, 3]


def test_the_first_layer_is_picked_twice_in_a_row_at_most(monkeypatch):
    """Then the last layer's first ambiguous ReLU, and the count begins anew."""
    s = torch.zeros(7, 6).double()
    t = tensor([[-1.0, -2.0, 0.0, 0.0, 0.0, 0.0]] * 7)
    ambiguous = tensor([[1, 1, 1, 1, 0, 1]] * 7) > 0
    chosen, memory = one_by_one(monkeypatch, s, t, ambiguous)
    assert chosen == [1, 1, 5, 1, 1, 5, 1]
    assert memory.first_layer_picks == 1


def test_of_a_batch_all_see_the_count_as_it_stands_before_them(monkeypatch):
    s = torch.zeros(3, 6).double()
    t = tensor([[-1.0, -2.0, 0.0, 0.0, 0.0, 0.0]] * 3)
    ambiguous = tensor([[1, 1, 1, 1, 0, 1]] * 3) > 0
    chosen, memory = decide(monkeypatch, s[:1], t[:1], ambiguous=ambiguous[:1])
    assert (chosen, memory.first_layer_picks) == ([1], 1)
    chosen, memory = decide(monkeypatch, s, t, memory, ambiguous)
    assert (chosen, memory.first_layer_picks) == ([1, 1, 1], 4)
    s[1, 4] = 1.0  # chosen by its score: the count is none of its business
    chosen, memory = decide(monkeypatch, s, t, memory, ambiguous)
    assert (chosen, memory.first_layer_picks) == ([5, 4, 5], 0)


def test_a_pick_in_a_later_layer_resets_the_count(monkeypatch):
    s = torch.zeros(5, 6).double()
    first, second = [-1.0, 0.0, 0.0, 0.0, 0.0, 0.0], [-1.0, 0.0, -0.5, 0.0, 0.0, 0.0]
    assert one_by_one(monkeypatch, s, tensor([first, second, first, first, first]))[0] == [0, 2, 0, 0, 4]


def test_a_choice_by_score_leaves_the_count_alone(monkeypatch):
    """As in the authors' code: only the fallbacks touch the counter."""
    s = torch.zeros(4, 6).double()
    s[1, 4] = 1.0
    t = tensor([[-1.0, 0.0, 0.0, 0.0, 0.0, 0.0]] * 4)
    assert one_by_one(monkeypatch, s, t)[0] == [0, 4, 0, 4]


def test_ties_go_to_the_later_layer_and_to_the_first_relu_in_it(monkeypatch):
    s = tensor([[0.5, 0.5, 0.5, 0.5, 0.5, 0.5], [0.5, 0.0, 0.5, 0.5, 0.0, 0.0]])
    assert decide(monkeypatch, s, torch.zeros_like(s))[0] == [4, 2]


def test_without_scores_the_last_layers_first_ambiguous_relu_is_taken(monkeypatch):
    zero = torch.zeros(3, 6).double()
    ambiguous = tensor([[1, 1, 1, 1, 0, 1], [1, 1, 0, 1, 0, 0], [0, 1, 0, 0, 0, 0]]) > 0
    assert decide(monkeypatch, zero, zero, ambiguous=ambiguous)[0] == [5, 3, 1]


@settings(max_examples=25)
@given(st.sampled_from(tuple(KINDS)), st.integers(0, 2**31), st.integers(0, 3), st.booleans(), st.integers(1, 3))
def test_what_is_chosen_is_ambiguous(kind, seed, splits, worse_side, count):
    """And of several that are ranked, no two are one; the first is what is chosen."""
    g = generator(seed)
    network = KINDS[kind](g)
    query = problem(network, [box_around(g, network.inputs)], [random_clause(g, network.outputs, 1)])
    domains = some_domains(query, g, splits)
    domains = domains[domains.bounds.ambiguous().sum(dim=1) >= count]
    if len(domains):
        rule = BaBSR(worse_side=worse_side)
        chosen = rule.rank(rule.prepare(query), domains, BLIND, count)
        assert chosen.shape == (len(domains), count)
        assert bool(domains.bounds.ambiguous().gather(1, chosen).all())
        assert all(len(set(row)) == count for row in chosen.tolist())
        assert torch.equal(chosen[:, 0], rule.decide(rule.prepare(query), domains).neurons)


def test_the_bias_is_the_constant_part_of_every_relus_input():
    g = generator(0)
    weight, bias = normal(g, 2, 1, 2, 2), normal(g, 2)
    from bough.network.rewrite import GraphBuilder

    builder = GraphBuilder()
    x = builder.relu(builder.conv(builder.input((1, 3, 3)), weight, bias))
    y = builder.relu(builder.linear(builder.reshape(x, (8,)), normal(g, 2, 8), tensor([3.0, 4.0])))
    biases = local_bias(builder.build(y))
    assert biases.tolist() == [*[float(bias[0])] * 4, *[float(bias[1])] * 4, 3.0, 4.0]
