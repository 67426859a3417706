"""The robust loss: an upper bound of what any point of the box loses, equal to the proved linear bounds, with right
gradients.
"""

import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional

from bough.bounds.intermediate import _sweep, region_by_intervals, settled
from bough.bounds.linear import bound_functionals, by_slopes
from bough.bounds.relaxation import ParallelSlopes
from bough.budget import Deadline
from bough.domain.batch import Bounds
from bough.problem.property import Box
from bough.problem.torch import read_module
from laboratory.robust import attack, robust_loss, worst_margins

SHAPE = (2, 6, 6)


def small_network(seed: int = 0) -> nn.Sequential:
    torch.manual_seed(seed)
    layers = [
        *(nn.Conv2d(2, 3, 4, 2, 1), nn.ReLU()),
        *(nn.Conv2d(3, 4, 3, 1, 1), nn.ReLU()),
        *(nn.Flatten(), nn.Linear(36, 7), nn.ReLU(), nn.Linear(7, 4)),
    ]
    return nn.Sequential(*layers).double()


def batch(seed: int = 0, count: int = 5) -> tuple[Tensor, Tensor]:
    g = torch.Generator().manual_seed(seed)
    x = torch.randn(count, *SHAPE, generator=g, dtype=torch.float64)
    return x, torch.randint(0, 4, (count,), generator=g)


@pytest.mark.parametrize("eps", [0.01, 0.1, 0.5])
def test_margins_are_those_of_the_proved_linear_bounds(eps: float) -> None:
    model, (x, labels) = small_network(), batch()
    network, deadline = read_module(model, SHAPE), Deadline.after(None)
    margins = worst_margins(model, x, labels, eps)
    for point, label, margin in zip(x.flatten(1), labels, margins, strict=True):
        region = region_by_intervals(network, Box(point - eps, point + eps))
        unknown = torch.full_like(region.bounds.lower, torch.inf)
        alone = Bounds(-unknown, unknown)
        swept = _sweep(network, settled_with(region, alone), None, ParallelSlopes(), deadline, only_ambiguous=False)
        rows = torch.eye(4, dtype=torch.float64)[label] - torch.eye(4, dtype=torch.float64)
        region = settled_with(settled(network, region), swept)
        proved = bound_functionals(network, region, len(network.nodes) - 1, rows[None], by_slopes(ParallelSlopes()))
        torch.testing.assert_close(margin.detach(), proved.lower[0], rtol=1e-9, atol=1e-9)


def settled_with(region, bounds: Bounds):
    """The region with other ReLU bounds, and nothing else changed."""
    from dataclasses import replace

    return replace(region, bounds=bounds)


@pytest.mark.parametrize("seed", range(4))
@pytest.mark.parametrize("eps", [0.02, 0.2])
def test_no_point_of_the_box_loses_more(seed: int, eps: float) -> None:
    model, (x, labels) = small_network(seed), batch(seed)
    with torch.no_grad():
        bound, certified = robust_loss(model, x, labels, eps)
    g = torch.Generator().manual_seed(seed)
    tried = [x, attack(model, x, labels, eps, 20, g)]
    tried += [x + eps * (2 * torch.rand(x.shape, generator=g, dtype=x.dtype) - 1) for _ in range(50)]
    for points in tried:
        assert float((points - x).abs().max()) <= eps * (1 + 1e-12)
        logits = model(points).detach()
        assert float(functional.cross_entropy(logits, labels)) <= float(bound) + 1e-9
        assert bool((logits.argmax(1) == labels)[certified].all())
    losses = [functional.cross_entropy(model(points).detach(), labels) for points in tried[:2]]
    assert losses[1] > losses[0]  # or the attack would test nothing


def test_a_point_box_loses_what_its_point_loses() -> None:
    model, (x, labels) = small_network(), batch()
    bound, certified = robust_loss(model, x, labels, 0.0)
    torch.testing.assert_close(bound, functional.cross_entropy(model(x), labels))
    assert certified.tolist() == (model(x).argmax(1) == labels).tolist()


def test_gradient_is_that_of_finite_differences() -> None:
    model, (x, labels) = small_network(3), batch(3)
    loss, _ = robust_loss(model, x, labels, 0.1)
    loss.backward()
    step = 1e-6
    for parameter in model.parameters():
        flat, gradient = parameter.data.view(-1), parameter.grad
        assert gradient is not None
        for i in range(0, len(flat), max(1, len(flat) // 5)):
            sides = []
            for sign in (1, -1):
                flat[i] += sign * step
                sides.append(float(robust_loss(model, x, labels, 0.1)[0].detach()))
                flat[i] -= sign * step
            assert float(gradient.view(-1)[i]) == pytest.approx((sides[0] - sides[1]) / (2 * step), rel=1e-4, abs=1e-7)
