"""The door to ONNX Runtime: in go the bytes of an ONNX file, out come the network's outputs as its author sees them.

`compare` holds a `Network` against such a reference, so that a network that was read wrongly is refused, not verified.
"""

import math
from typing import Any

import numpy as np
import onnxruntime
import torch
from numpy.typing import NDArray
from torch import Tensor

from bough.errors import NetworkError, PropertyError
from bough.network import walk
from bough.network.graph import Network
from bough.problem.onnx import input_shape, open_batch_axis, parse_model, sentence, without_dead_nodes
from bough.problem.problem import Evaluator
from bough.problem.property import Box

_TYPES = {"tensor(float)": "float32", "tensor(double)": "float64", "tensor(float16)": "float16"}
_DEVIATIONS = 8  # a difference of so many standard deviations of rounding passes as rounding
_ROWS = 64  # the derivatives of so many outputs are held at a time: more take more memory


class Reference:
    """The original ONNX file, evaluated by ONNX Runtime on one thread."""

    name = "ONNX Runtime"

    def __init__(self, model: bytes) -> None:
        # Parsed here too, since a model with weights in other files would make ONNX Runtime open them.
        parsed = parse_model(model)
        self.input, self.shape = input_shape(parsed)
        options = onnxruntime.SessionOptions()
        options.intra_op_num_threads = options.inter_op_num_threads = 1
        options.log_severity_level = 4
        if open_batch_axis(parsed) | without_dead_nodes(parsed):
            model = parsed.SerializeToString()
        try:
            self._session = onnxruntime.InferenceSession(
                model, options, providers=["CPUExecutionProvider"], enable_fallback=0
            )
            (self._output,) = (output.name for output in self._session.get_outputs())
            (kind,) = (entry.type for entry in self._session.get_inputs())
            self.dtype: np.dtype[np.floating[Any]] = np.dtype(_TYPES[kind])
        except Exception as error:  # ONNX Runtime's own exceptions share no base
            raise NetworkError(f"ONNX Runtime refuses the network: {sentence(error)}") from error

    def run(self, x: NDArray[np.floating[Any]]) -> NDArray[np.floating[Any]]:
        """Outputs [outputs] at the point `x` [inputs], as the model's type."""
        try:
            (y,) = self._session.run([self._output], {self.input: x.astype(self.dtype).reshape(self.shape)})
        except Exception as error:  # ONNX Runtime's own exceptions share no base
            raise NetworkError(f"ONNX Runtime cannot evaluate the network: {sentence(error)}") from error
        return np.asarray(y).reshape(-1)


def compare(network: Network, reference: Evaluator, points: int = 8, box: Box | None = None) -> None:
    """Raise unless network and reference agree, up to rounding, at random points: in the box where one is given.

    Where numbers are too large for that, nobody knows whether the network was read wrongly, and the error says so.
    """
    x = _points(network.inputs, points, box, reference.dtype)
    outputs, allowed = rounding_bound(network, torch.from_numpy(x.astype(np.float64)), reference.dtype)
    for i, point in enumerate(x):
        expected = np.asarray(reference.run(point), np.float64)
        if expected.shape != (network.outputs,):
            raise NetworkError(
                f"the network was read wrongly: it has {network.outputs} outputs here and {expected.size} in "
                f"{reference.name}; please report this file"
            )
        beyond = ~np.isfinite(expected)
        if beyond.any():
            worst = int(beyond.argmax())
            raise NetworkError(
                f"output {worst} at a random point is {expected[worst]:g} in {reference.name}: the network's numbers "
                f"go beyond {reference.dtype}, so it cannot be compared; scale its weights or inputs"
            )
        if not bool((outputs[i].isfinite() & allowed[i].isfinite()).all()):
            raise NetworkError(
                f"the network's numbers, or their rounding errors, go beyond float64 at a random point, so it cannot "
                f"be compared with {reference.name}; scale its weights or inputs"
            )
        excess = np.abs(outputs[i].numpy() - expected) - allowed[i].numpy()
        worst = int(excess.argmax())
        if excess[worst] <= 0:
            continue
        values = (
            f"output {worst} at a random point is {float(outputs[i, worst]):.9g} here and {expected[worst]:.9g} in "
            f"{reference.name}"
        )
        largest = _largest(network, torch.from_numpy(point.astype(np.float64)))
        if not largest <= float(np.finfo(reference.dtype).max):
            raise NetworkError(
                f"{values}: on the way to it, numbers of up to {largest:.2g} go beyond {reference.dtype}; "
                "scale the network's weights or inputs"
            )
        raise NetworkError(
            f"the network was read wrongly: {values}, while rounding explains {float(allowed[i, worst]):.2g} "
            f"({len(network.nodes)} nodes were read); please report this file"
        )


def _points(inputs: int, count: int, box: Box | None, dtype: np.dtype[np.floating[Any]]) -> NDArray[np.floating[Any]]:
    """Points in the box, or without one, in turn from [-1, 1], from [0, 1] and normally distributed."""
    random = np.random.default_rng(0)
    size = (count, inputs)
    if box is None:
        samples = (random.uniform(-1, 1, size), random.random(size), random.standard_normal(size))
        return np.stack([samples[i % 3][i] for i in range(count)]).astype(dtype)
    lower, upper = box.lower.numpy(), box.upper.numpy()
    with np.errstate(over="ignore", invalid="ignore"):
        points = np.asarray(lower + (upper - lower) * random.random(size)).astype(dtype)
    beyond = ~np.isfinite(points).all(axis=0)
    if beyond.any():
        i = int(beyond.argmax())
        raise PropertyError(
            f"the box of input X_{i}, from {lower[i]:g} to {upper[i]:g}, goes beyond {dtype}, the type of the "
            "network's inputs; make it smaller"
        )
    return points


def _largest(network: Network, point: Tensor) -> float:
    """The largest number that evaluating the network at a point meets, sums of absolute products included."""
    values = walk.forward(network, point.reshape(1, *network.input_shape))
    sums = (
        network.magnitude.apply(i, *(values[j].abs() for j in node.inputs))
        for i, node in enumerate(network.nodes)
        if node.op.roundings
    )
    return max(float(t.abs().max()) for t in (*values, *sums))


def rounding_bound(network: Network, x: Tensor, dtype: np.dtype[np.floating[Any]]) -> tuple[Tensor, Tensor]:
    """Outputs [batch, outputs] in float64, and how far an evaluation in `dtype` can be expected to lie from them.

    A sum of n products is off by about sqrt(n) u (|W| |x| + |b|), u the unit roundoff, since rounding errors are as
    good as independent (Higham and Mary, 2019). Each such error reaches the outputs through the derivative of the
    network at the point; there they add up in quadrature, and `_DEVIATIONS` times their size is allowed. The worst case
    instead, n u and |W| |W| ... |W|, allows hundreds for a deep network with outputs around one, and notices nothing.
    """
    values = walk.forward(network, x.reshape(-1, *network.input_shape))
    sources = {i: s for i in range(1, len(values)) if (s := _rounding(network, i, values, dtype)) is not None}
    points = len(x)
    outputs = network.outputs
    squares = torch.zeros(points, outputs, dtype=torch.float64)
    for rows in torch.arange(outputs).split(_ROWS):
        sums = torch.zeros(points * len(rows), dtype=torch.float64)

        def per_point(t: Tensor, count: int = len(rows)) -> Tensor:
            return t.repeat_interleave(count, 0)  # functionals are ordered point after point

        def relu(i: int, f: Tensor) -> Tensor:
            return f * per_point(_passes(values[network.nodes[i].inputs[0]], dtype))

        def visit(i: int, f: Tensor, sums: Tensor = sums) -> None:
            if i in sources:
                sums += (f * per_point(sources[i])).square().reshape(len(f), -1).sum(1)

        unit = torch.eye(outputs, dtype=torch.float64)[rows].repeat(points, 1).reshape(-1, *network.nodes[-1].shape)
        walk.backward(network, len(values) - 1, unit, relu, visit)
        squares[:, rows] = sums.reshape(points, -1)
    return values[-1].reshape(points, -1), _DEVIATIONS * squares.sqrt() + float(np.finfo(dtype).tiny)


def _passes(z: Tensor, dtype: np.dtype[np.floating[Any]]) -> Tensor:
    """Which ReLUs pass an error on: those that are on, or so near to zero that rounding may switch them on."""
    largest = z.abs().reshape(len(z), -1).amax(1).reshape(-1, *(1,) * (z.ndim - 1))
    return z >= -256 * float(np.finfo(dtype).eps) * largest


def _rounding(network: Network, i: int, values: list[Tensor], dtype: np.dtype[np.floating[Any]]) -> Tensor | None:
    """Expected rounding error of a node by itself; None where it only moves elements or cuts them off."""
    node = network.nodes[i]
    if not node.op.roundings:
        return None
    # 16 more for what was folded into the weights. ONNX Runtime computes in float32 what is stored in float16.
    unit = float(np.finfo(np.promote_types(dtype, np.float32)).eps) / 2 * math.sqrt(max(1, node.op.products) + 16)
    stored = 2 * float(np.finfo(dtype).eps) if dtype == np.float16 else 0.0
    sizes = network.magnitude.apply(i, *(values[j].abs() for j in node.inputs))
    return (unit + stored) * sizes
