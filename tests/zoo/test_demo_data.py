"""The demo's shipped files: the network is right on every image, every verdict is covered, refuted means refuted."""

from collections import Counter

import numpy as np
import onnx
import onnxruntime
import pytest
import torch
from numpy.typing import NDArray
from onnx import numpy_helper
from torch import Tensor
from torch.nn import functional

from bough.zoo import demo
from bough.zoo.demo import DemoProblem
from laboratory import shapes

PATH, PROBLEMS = demo.load()
WEIGHTS = {w.name: torch.from_numpy(numpy_helper.to_array(w).copy()) for w in onnx.load(PATH).graph.initializer}


def each(*expected: str) -> pytest.MarkDecorator:
    """Run the test once for every problem expected to end so."""
    chosen = [problem for problem in PROBLEMS if problem.expected in expected]
    return pytest.mark.parametrize("problem", chosen, ids=[problem.name for problem in chosen])


EVERY = each("verified", "falsified", "timeout")


@pytest.fixture(scope="module")
def session() -> onnxruntime.InferenceSession:
    return onnxruntime.InferenceSession(PATH, providers=["CPUExecutionProvider"])


def logits(session: onnxruntime.InferenceSession, image: NDArray[np.float32]) -> NDArray[np.float32]:
    output: NDArray[np.float32] = np.asarray(session.run(None, {"image": image[None]})[0])[0]
    return output


def network(x: Tensor) -> Tensor:
    """The shipped network in PyTorch, weights from the file."""
    x = functional.conv2d(x, WEIGHTS["0.weight"], WEIGHTS["0.bias"], stride=2, padding=1).relu()
    x = functional.conv2d(x, WEIGHTS["2.weight"], WEIGHTS["2.bias"], stride=2, padding=1).relu()
    x = functional.linear(x.flatten(1), WEIGHTS["5.weight"], WEIGHTS["5.bias"]).relu()
    return functional.linear(x, WEIGHTS["7.weight"], WEIGHTS["7.bias"])


def attack(problem: DemoProblem, starts: int = 16, steps: int = 40) -> NDArray[np.float32]:
    """The last points of projected gradient descent on the margin, one per start, inside the box."""
    (box,) = problem.property.boxes
    shape = problem.image.shape
    lower, upper = box.lower.float().reshape(shape), box.upper.float().reshape(shape)
    point = lower + (upper - lower) * torch.rand(starts, *shape, generator=torch.Generator().manual_seed(0))
    for _ in range(steps):
        point.requires_grad_(True)
        margins = torch.stack([clause.margins(network(point).double()) for clause in problem.property.clauses])
        (gradient,) = torch.autograd.grad(margins.min(0).values.sum(), point)
        point = (point.detach() - 4 * problem.eps / steps * gradient.sign()).clamp(lower, upper)
    return point.numpy()


def test_files_are_small() -> None:
    assert PATH.stat().st_size < 300_000
    assert demo.PROPERTIES.stat().st_size < 10_000
    assert demo.IMAGES.stat().st_size < 10_000


@EVERY
def test_images_are_as_they_are_drawn(problem: DemoProblem) -> None:
    figure, seed = problem.name.split("-")[:2]
    assert demo.CLASS_NAMES == shapes.CLASS_NAMES
    assert figure == demo.CLASS_NAMES[problem.label]
    np.testing.assert_array_equal(problem.image, shapes.draw(int(seed), problem.label))


def test_a_dozen_problems_with_every_verdict() -> None:
    assert len(PROBLEMS) == 12
    assert len({problem.name for problem in PROBLEMS}) == 12
    counts = Counter(problem.expected for problem in PROBLEMS)
    assert counts["verified"] >= 6
    assert counts["falsified"] >= 3
    assert counts["timeout"] >= 2


@EVERY
def test_network_is_right_on_the_image(problem: DemoProblem, session: onnxruntime.InferenceSession) -> None:
    assert int(logits(session, problem.image).argmax()) == problem.label


@EVERY
def test_box_is_clipped_and_holds_the_image(problem: DemoProblem) -> None:
    (box,) = problem.property.boxes
    lower, upper, centre = box.lower.numpy(), box.upper.numpy(), problem.image.reshape(-1).astype(np.float64)
    assert lower.min() >= 0
    assert upper.max() <= 1
    assert (lower <= centre).all()
    assert (centre <= upper).all()
    assert (upper - lower).max() <= 2 * problem.eps + 1e-12


@EVERY
def test_property_fits_and_image_is_safe(problem: DemoProblem, session: onnxruntime.InferenceSession) -> None:
    problem.property.check_fits(shapes.SIDE**2, len(shapes.CLASS_NAMES))
    output = logits(session, problem.image).astype(np.float64)
    assert not any(clause.holds(output) for clause in problem.property.clauses)


@each("falsified")
def test_attack_refutes_what_is_called_refuted(problem: DemoProblem, session: onnxruntime.InferenceSession) -> None:
    outputs = [logits(session, point).astype(np.float64) for point in attack(problem)]
    assert any(clause.holds(output) for clause in problem.property.clauses for output in outputs)


@each("verified")
def test_random_corners_of_verified_boxes_are_safe(problem: DemoProblem, session: onnxruntime.InferenceSession) -> None:
    (box,) = problem.property.boxes
    rng = np.random.default_rng(0)
    for _ in range(50):
        corner = np.where(rng.random(len(box.lower)) < 0.5, box.lower.numpy(), box.upper.numpy())
        output = logits(session, corner.astype(np.float32).reshape(problem.image.shape)).astype(np.float64)
        assert not any(clause.holds(output) for clause in problem.property.clauses)
