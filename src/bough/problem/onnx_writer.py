"""Writing ONNX files: in goes a `Network`, out come the bytes of an ONNX model with float32 weights.

The model's input is named "input", with a batch axis of one before the network's input shape, and its output "output".
"""

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import ArrayLike
from onnx import NodeProto, TensorProto, helper, numpy_helper
from torch import Tensor

from bough.errors import NetworkError
from bough.files.writing import write_bytes
from bough.network.graph import Network
from bough.network.ops import Add, Conv, Linear, Relu, Reshape, Scale, Select, Shape

OPSET = 17
IR_VERSION = 8  # version of the file's container, which came with this opset


def write_network(network: Network, path: Path | None = None) -> bytes:
    """The network as an ONNX model, also written to `path` where one is given."""
    writer = _Writer()
    last = len(network.nodes) - 1
    names: list[str] = []
    for i, node in enumerate(network.nodes):
        name = "output" if i == last and i else "input" if i == 0 else f"{i}"
        if node.inputs:
            WRITE[type(node.op)](writer, node.op, node.shape, name, [names[j] for j in node.inputs])
        names.append(name)
    if last == 0:
        writer.append("Identity", ["input"], "output")
    ends = [
        helper.make_tensor_value_info(name, TensorProto.FLOAT, (1, *shape))
        for name, shape in (("input", network.input_shape), ("output", network.nodes[-1].shape))
    ]
    graph = helper.make_graph(writer.nodes, "bough", ends[:1], ends[1:], writer.tensors)
    model = helper.make_model(graph, producer_name="bough", opset_imports=[helper.make_opsetid("", OPSET)])
    model.ir_version = IR_VERSION
    data = bytes(model.SerializeToString(deterministic=True))
    if path is not None:
        write_bytes(Path(path), data)
    return data


class _Writer:
    """Collects the model's nodes and tensors."""

    def __init__(self) -> None:
        self.nodes: list[NodeProto] = []
        self.tensors: list[TensorProto] = []

    def append(self, operator: str, inputs: Sequence[str], output: str, **attributes: Any) -> str:
        self.nodes.append(helper.make_node(operator, list(inputs), [output], name=output, **attributes))
        return output

    def weights(self, name: str, values: Tensor) -> str:
        with np.errstate(over="ignore"):
            array = values.detach().cpu().numpy().astype(np.float32)
        if not bool(np.isfinite(array).all()):
            raise NetworkError(
                f"tensor {name!r} holds a number that float32 cannot hold, so the network cannot be written"
            )
        self.tensors.append(numpy_helper.from_array(array, name))
        return name

    def integers(self, name: str, values: ArrayLike) -> str:
        self.tensors.append(numpy_helper.from_array(np.asarray(values, np.int64), name))
        return name

    def reshape(self, x: str, shape: Shape, name: str) -> str:
        return self.append("Reshape", [x, self.integers(f"{name}.shape", (1, *shape))], name)


def _linear(writer: _Writer, op: Linear, shape: Shape, name: str, inputs: list[str]) -> None:
    bias = writer.weights(f"{name}.bias", op.bias)
    if len(shape) == 1:
        writer.append("Gemm", [*inputs, writer.weights(f"{name}.weight", op.weight), bias], name, transB=1)
    else:
        weight = writer.weights(f"{name}.weight", op.weight.T)
        writer.append("Add", [writer.append("MatMul", [*inputs, weight], f"{name}.product"), bias], name)


def _conv(writer: _Writer, op: Conv, _: Shape, name: str, inputs: list[str]) -> None:
    weights = [writer.weights(f"{name}.weight", op.weight), writer.weights(f"{name}.bias", op.bias)]
    window = {"strides": op.stride, "pads": op.padding, "dilations": op.dilation, "group": op.groups}
    writer.append("Conv", [*inputs, *weights], name, **window)


def _scale(writer: _Writer, op: Scale, _: Shape, name: str, inputs: list[str]) -> None:
    product = writer.append("Mul", [*inputs, writer.weights(f"{name}.factor", op.factor[None])], f"{name}.product")
    writer.append("Add", [product, writer.weights(f"{name}.bias", op.bias[None])], name)


def _select(writer: _Writer, op: Select, shape: Shape, name: str, inputs: list[str]) -> None:
    flat = writer.reshape(inputs[0], (-1,), f"{name}.flat")
    index = writer.integers(f"{name}.index", op.index.cpu().numpy())
    writer.reshape(writer.append("Gather", [flat, index], f"{name}.elements", axis=1), shape, name)


WRITE: Mapping[type, Callable[..., Any]] = {
    Linear: _linear,
    Conv: _conv,
    Scale: _scale,
    Select: _select,
    Reshape: lambda writer, op, shape, name, inputs: writer.reshape(inputs[0], shape, name),
    Add: lambda writer, op, shape, name, inputs: writer.append("Add", inputs, name),
    Relu: lambda writer, op, shape, name, inputs: writer.append("Relu", inputs, name),
}
