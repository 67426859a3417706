"""The loss against a double loop over pairs, classes and accuracy by hand."""

import math

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from tests.support import tensor
from torch import Tensor

from bough.learning.loss import (
    LEAST_SHARE,
    SHARPNESS,
    UNTRIED,
    choice_loss,
    classes,
    expected_loss,
    judge,
    pairs,
    rank_loss,
)

NOT = -math.inf


def slow_loss(scores: Tensor, labels: list[int]) -> Tensor:
    """Eq. 9 as it is printed."""
    total, count = scores.sum() * 0, 0
    for i, low in enumerate(labels):
        for j, high in enumerate(labels):
            if low >= 0 and high > low:
                total, count = total + (1 - (scores[j] - scores[i])).clamp(min=0), count + 1
    return total / max(1, count)


@given(st.integers(0, 10_000), st.integers(1, 4), st.integers(0, 30), st.sampled_from([0.1, 1.0, 30.0]))
def test_the_loss_is_the_double_loop(seed, samples, n, scale):
    g = torch.Generator().manual_seed(seed)
    labels = torch.randint(UNTRIED, 10, (samples, n), generator=g)
    scores = (torch.randn(samples, n, generator=g) * scale).requires_grad_()
    loss = rank_loss(scores, labels)
    slow = torch.stack([slow_loss(s.double(), y) for s, y in zip(scores, labels.tolist(), strict=True)])
    torch.testing.assert_close(loss, slow, rtol=1e-9, atol=1e-9)
    gradient, slow_gradient = (torch.autograd.grad(x.sum(), scores, retain_graph=True)[0] for x in (loss, slow))
    torch.testing.assert_close(gradient, slow_gradient, rtol=1e-5, atol=1e-6)


@given(st.integers(0, 10_000), st.integers(2, 30))
def test_scores_that_differ_by_the_margin_exactly(seed, n):
    """There a pair costs nothing, and has no part in the gradient on either side."""
    g = torch.Generator().manual_seed(seed)
    labels, scores = torch.randint(0, 4, (1, n), generator=g), torch.randint(-2, 3, (1, n), generator=g).float()
    scores.requires_grad_()
    loss = rank_loss(scores, labels, 4)
    assert loss.item() == pytest.approx(slow_loss(scores[0].double(), labels[0].tolist()).item())
    assert float(torch.autograd.grad(loss.sum(), scores)[0].sum()) == pytest.approx(0.0, abs=1e-6)


def test_the_loss_by_hand():
    # Y_1 > Y_0 and Y_1 > Y_2: hinges of 1 - 0.5 and 1 - (-1); the last was not tried
    scores = torch.tensor([[0.0, 0.5, 1.5, 9.0]], requires_grad=True)
    loss = rank_loss(scores, torch.tensor([[0, 3, 1, UNTRIED]]))
    # pairs (0,1), (2,1), (0,2): hinges 0.5, 2, and 0 since 1.5 - 0 > 1
    assert loss.tolist() == pytest.approx([2.5 / 3])
    (gradient,) = torch.autograd.grad(loss.sum(), scores)
    torch.testing.assert_close(gradient, torch.tensor([[1.0, -2.0, 1.0, 0.0]]) / 3)


def test_nothing_to_rank_costs_nothing():
    scores = torch.randn(3, 4, requires_grad=True)
    labels = torch.tensor([[2, 2, 2, 2], [UNTRIED] * 4, [5, UNTRIED, UNTRIED, UNTRIED]])
    loss = rank_loss(scores, labels)
    assert loss.tolist() == [0, 0, 0]
    assert torch.autograd.grad(loss.sum(), scores)[0].abs().max() == 0
    assert pairs(labels, 10).tolist() == [0, 0, 0]
    assert rank_loss(torch.zeros(2, 0), torch.zeros(2, 0, dtype=torch.int64)).tolist() == [0, 0]


def test_scores_that_were_not_tried_do_not_matter_and_others_that_are_no_numbers_are_seen():
    labels = torch.tensor([[0, 9, UNTRIED]])
    assert rank_loss(torch.tensor([[0.0, 0.0, math.nan]]), labels).tolist() == [1.0]
    assert math.isnan(float(rank_loss(torch.tensor([[0.0, math.nan, 0.0]]), labels)))


def test_the_choice_by_hand():
    gains = tensor([[0.5, 0.25, NOT, -1.0]])
    scores = torch.tensor([[1.0, 2.0, 9.0, 0.0]], requires_grad=True)
    weights = [math.exp(SHARPNESS), math.exp(SHARPNESS / 2), 1.0]  # m over the best; what loses is as good as nothing
    total = math.log(sum(map(math.exp, (1.0, 2.0, 0.0))))
    expected = sum(w * (total - s) for w, s in zip(weights, (1.0, 2.0, 0.0), strict=True)) / sum(weights)
    loss = choice_loss(scores, gains)
    assert loss.tolist() == pytest.approx([expected])
    (gradient,) = torch.autograd.grad(loss.sum(), scores)
    assert gradient[0, 0] < 0 < gradient[0, 1]
    assert gradient[0, 2] == 0


def test_where_nothing_gains_there_is_no_choice():
    scores = torch.randn(2, 3, requires_grad=True)
    loss = choice_loss(scores, tensor([[0.0, 0.0, NOT], [-1.0, NOT, NOT]]))
    assert loss.tolist() == [0.0, 0.0]
    assert torch.autograd.grad(loss.sum(), scores)[0].abs().max() == 0


def test_pairs_are_counted():
    labels = torch.tensor([[0, 0, 1, 9, UNTRIED]])
    assert pairs(labels, 10).tolist() == [5]


def test_many_relus_are_ranked_quickly():
    """Where all pairs of all samples at once would be 256 million numbers."""
    scores, labels = torch.randn(64, 2000), torch.randint(0, 10, (64, 2000))
    some = rank_loss(scores, labels)[3]
    higher = labels[3][None] > labels[3][:, None]
    slow = (1 - (scores[3][None] - scores[3][:, None]).double()).clamp(min=0)[higher].mean()
    assert float(some) == pytest.approx(float(slow), rel=1e-6)


def test_classes_by_hand():
    gains = tensor([[0.0, 0.05, 0.1, 0.5, 0.951, 1.0, NOT], [0.0, 0.01, 0.021, 0.101, 0.199, 0.21, NOT]])
    assert classes(gains).tolist() == [[0, 0, 1, 5, 9, 9, UNTRIED], [0, 0, 1, 4, 9, 9, UNTRIED]]
    assert classes(gains, relative=False).tolist() == [[0, 0, 1, 5, 9, 9, UNTRIED], [0, 0, 0, 1, 1, 2, UNTRIED]]
    assert classes(gains[:1], 2).tolist() == [[0, 0, 0, 1, 1, 1, UNTRIED]]


def test_classes_where_nothing_gains():
    assert classes(tensor([[0.0, -1e-9, 0.0, NOT], [NOT] * 4])).tolist() == [[0, 0, 0, UNTRIED], [UNTRIED] * 4]
    assert classes(torch.zeros(2, 0)).shape == (2, 0)


@given(st.lists(st.floats(0, 1), min_size=2, max_size=20), st.integers(2, 12), st.booleans())
def test_classes_follow_the_improvement(gains, count, relative):
    computed = classes(tensor([gains]), count, relative=relative)[0].tolist()
    for a, m in zip(computed, gains, strict=True):
        for b, other in zip(computed, gains, strict=True):
            assert 0 <= a < count
            assert not (m > other and a < b)


def test_accuracy_by_hand():
    gains = tensor([[0.5, 0.46, 0.4, NOT], [1.0, 0.95, 0.0, NOT], [0.0, 0.0, 0.0, NOT], [0.95, 0.3, 0.2, NOT]])
    scores = tensor([[0, 1, 0, 9], [0, 1, 0, 9], [0, 1, 0, 9], [0, math.nan, 1, 9]])
    judged = judge(scores, gains)
    assert judged.relative.tolist() == [True, True, True, False]
    assert judged.absolute.tolist() == [False, True, False, False]
    assert judged.share.tolist() == pytest.approx([0.92, 0.95, 1.0, 0.2 / 0.95])


def test_the_expected_cost_by_hand():
    gains = torch.tensor([[0.5, 0.25, NOT, 0.0], [NOT, 0.0, 0.0, NOT]])
    scores = torch.tensor([[1.0, 2.0, 50.0, -1.0], [3.0, 2.0, 1.0, 0.0]], requires_grad=True)
    loss = expected_loss(scores, gains)
    weights = [math.exp(1.0), math.exp(2.0), math.exp(-1.0)]
    costs = [0.0, math.log(2), -math.log(LEAST_SHARE)]
    by_hand = sum(w * c for w, c in zip(weights, costs, strict=True)) / sum(weights)
    assert loss.tolist() == pytest.approx([by_hand, 0.0])  # where nothing can be gained, nothing is lost
    (gradient,) = torch.autograd.grad(loss.sum(), scores)
    assert gradient[0, 0] < 0 < gradient[0, 3]  # up with the best, down with what costs most
    assert gradient[0, 2] == 0
    assert not bool(gradient[1].any())
