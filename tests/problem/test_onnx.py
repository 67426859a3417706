"""Every operator is read as ONNX Runtime computes it, in every opset; what cannot is refused in one sentence."""

import gzip
import os
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
import torch
from onnx import NodeProto, TensorProto, helper, numpy_helper
from torch import Tensor

from bough.errors import NetworkError, PropertyError, UnsupportedOperator
from bough.files.reading import NETWORK_LIMIT, read_bytes
from bough.network import walk
from bough.network.graph import Network
from bough.network.ops import Conv, Linear
from bough.problem.onnx import SUPPORTED, read_network
from bough.problem.onnx_writer import write_network
from bough.problem.property import Box
from bough.problem.runtime import Reference, _points, compare

OPSETS = (7, 9, 11, 13, 17, 20, 22)
FLOAT = TensorProto.FLOAT


def rand(*shape: int, seed: int = 0) -> np.ndarray:
    return np.random.default_rng([seed, *shape]).standard_normal(shape).astype(np.float32)


def ints(*values: int) -> np.ndarray:
    return np.array(values, np.int64)


def node(operator: str, inputs: str, output: str = "y", **attributes: Any) -> NodeProto:
    """Names are separated by blanks; `_` is an input that is left out."""
    names, (first, *others) = inputs.split(), output.split()
    names = ["" if name == "_" else name for name in names]
    return helper.make_node(operator, names, [first, *others], name=f"{operator.lower()}_{first}", **attributes)


def model(nodes, weights, shape, opset=17, kind=FLOAT, listed=False, outputs=("y",), inputs=("x",)) -> bytes:
    tensors = [numpy_helper.from_array(array, name) for name, array in weights.items()]
    ins = [helper.make_tensor_value_info(name, kind, shape) for name in inputs]
    if listed:  # as exporters did when weights had to be inputs too
        ins += [helper.make_tensor_value_info(t.name, t.data_type, t.dims) for t in tensors]
    outs = [helper.make_tensor_value_info(name, kind, None) for name in outputs]
    graph = helper.make_graph(nodes, "test", ins, outs, tensors)
    proto = helper.make_model(graph, opset_imports=[helper.make_opsetid("", opset)])
    proto.ir_version = 8
    return bytes(proto.SerializeToString())


def check(data: bytes) -> Network:
    """Read, and compare with ONNX Runtime."""
    network = read_network(data)
    compare(network, Reference(data), points=12)
    return network


def kinds(network: Network) -> list[str]:
    return [type(n.op).__name__ for n in network.nodes]


IMAGE, FLAT = (1, 3, 7, 6), (1, 6)
W34 = {"w": rand(4, 3, 3, 3), "b": rand(4, seed=1)}
STATISTICS = {"s": rand(3), "t": rand(3, seed=1), "m": rand(3, seed=2), "v": np.abs(rand(3, seed=3))}

Case = tuple[list[NodeProto], dict[str, np.ndarray], tuple[int, ...]]  # nodes, weights, shape of the input

ANY_OPSET: dict[str, Case] = {
    "gemm": ([node("Gemm", "x w b")], {"w": rand(6, 4), "b": rand(4)}, FLAT),
    "gemm scaled": ([node("Gemm", "x w b", alpha=0.5, beta=-2.0, transB=1)], {"w": rand(4, 6), "b": rand(1, 4)}, FLAT),
    "gemm transposed": ([node("Gemm", "x w b", transA=1)], {"w": rand(1, 4), "b": rand(6, 4)}, FLAT),
    "gemm constant left": ([node("Gemm", "w x b", transB=1)], {"w": rand(4, 6), "b": rand(4, 1)}, FLAT),
    "matmul": ([node("MatMul", "x w")], {"w": rand(6, 4)}, FLAT),
    "matmul rows": ([node("MatMul", "x w")], {"w": rand(6, 4)}, (1, 5, 6)),
    "matmul vector": ([node("MatMul", "x w")], {"w": rand(6)}, (1, 5, 6)),
    "matmul constant left": ([node("MatMul", "w x")], {"w": rand(4, 5)}, (1, 5, 6)),
    "matmul column": ([node("MatMul", "w x")], {"w": rand(4, 6)}, (6, 1)),
    "matmul one axis": ([node("MatMul", "x w")], {"w": rand(6, 4)}, (6,)),
    "matmul constant left, one axis": ([node("MatMul", "w x")], {"w": rand(4, 6)}, (6,)),
    "conv": ([node("Conv", "x w b")], W34, IMAGE),
    "conv no bias": ([node("Conv", "x w", kernel_shape=[3, 3])], W34, IMAGE),
    "conv asymmetric": ([node("Conv", "x w b", pads=[0, 2, 1, 3], strides=[2, 1], dilations=[1, 2])], W34, IMAGE),
    "conv groups": ([node("Conv", "x w", group=3, pads=[1, 1, 1, 1])], {"w": rand(6, 1, 3, 3)}, IMAGE),
    "conv same upper": ([node("Conv", "x w", auto_pad="SAME_UPPER", strides=[2, 2])], {"w": rand(2, 3, 4, 4)}, IMAGE),
    "conv same lower": ([node("Conv", "x w", auto_pad="SAME_LOWER", strides=[2, 3])], {"w": rand(2, 3, 4, 4)}, IMAGE),
    "conv valid": ([node("Conv", "x w", auto_pad="VALID")], W34, IMAGE),
    "conv 1d": ([node("Conv", "x w b", pads=[2, 0], strides=[2])], {"w": rand(4, 3, 3), "b": rand(4)}, (1, 3, 9)),
    "relu": ([node("Relu", "x")], {}, IMAGE),
    "add": ([node("Add", "x c")], {"c": rand(3, 1, 1)}, IMAGE),
    "add constant first": ([node("Add", "c x")], {"c": rand(1)}, IMAGE),
    "add that broadcasts the input": ([node("Add", "x c")], {"c": rand(4, 1)}, (1, 6)),
    "sub": ([node("Sub", "x c")], {"c": rand(6)}, FLAT),
    "sub constant first": ([node("Sub", "c x")], {"c": rand(6)}, FLAT),
    "mul": ([node("Mul", "x c")], {"c": rand(7, 6)}, IMAGE),
    "mul constant first": ([node("Mul", "c x")], {"c": rand(1, 3, 1, 1)}, IMAGE),
    "div": ([node("Div", "x c")], {"c": 1 + np.abs(rand(3, 1, 1))}, IMAGE),
    "neg": ([node("Neg", "x")], {}, FLAT),
    "batch norm": ([node("BatchNormalization", "x s t m v", epsilon=1e-3)], STATISTICS, IMAGE),
    "batch norm 1d": (
        [node("Conv", "x w", "z"), node("BatchNormalization", "z s t m v")],
        {"w": rand(3, 2, 2), **STATISTICS},
        (1, 2, 5),
    ),
    "flatten": ([node("Flatten", "x", "z"), node("Gemm", "z w b")], {"w": rand(126, 2), "b": rand(2)}, IMAGE),
    "flatten axis": ([node("Flatten", "x", axis=2)], {}, IMAGE),
    "reshape": ([node("Reshape", "x n", "z"), node("MatMul", "z w")], {"n": ints(0, -1, 2), "w": rand(2, 3)}, IMAGE),
    "transpose": ([node("Transpose", "x", perm=[0, 2, 3, 1])], {}, IMAGE),
    "transpose reversed": ([node("Transpose", "x")], {}, (1, 2, 3)),
    "gather": ([node("Gather", "x i", axis=2)], {"i": np.array([[0, 3], [3, 1]])}, IMAGE),
    "gather one": ([node("Gather", "x i", axis=1)], {"i": np.array(2)}, IMAGE),
    "concat": ([node("Relu", "x", "z"), node("Concat", "x c z", axis=1)], {"c": rand(1, 2, 7, 6)}, IMAGE),
    "max pool": ([node("MaxPool", "x", kernel_shape=[3, 2], strides=[2, 1], pads=[1, 0, 1, 1])], {}, IMAGE),
    "max pool 1d": ([node("MaxPool", "x", kernel_shape=[3], auto_pad="SAME_UPPER")], {}, (1, 3, 7)),
    "average pool": ([node("AveragePool", "x", kernel_shape=[3, 2], strides=[2, 2], pads=[1, 0, 1, 1])], {}, IMAGE),
    "average pool padded": (
        [node("AveragePool", "x", kernel_shape=[3, 2], pads=[1, 1, 0, 1], count_include_pad=1)],
        {},
        IMAGE,
    ),
    "average pool same": ([node("AveragePool", "x", kernel_shape=[2, 2], auto_pad="SAME_LOWER")], {}, IMAGE),
    "global average pool": ([node("GlobalAveragePool", "x")], {}, IMAGE),
    "residual": (
        [
            node("Relu", "x", "a"),
            node("Conv", "a w", "z", pads=[1, 1, 1, 1]),
            node("Add", "z x", "s"),
            node("Relu", "s"),
        ],
        {"w": rand(3, 3, 3, 3)},
        IMAGE,
    ),
    "difference": ([node("Relu", "x", "z"), node("MatMul", "z w", "u"), node("Sub", "x u")], {"w": rand(6, 6)}, FLAT),
    "identity": ([node("Identity", "x", "z"), node("Relu", "z")], {}, FLAT),
    "input as output": ([node("Identity", "x")], {}, FLAT),
    "dropout": ([node("Dropout", "x", "z"), node("Relu", "z")], {}, FLAT),
    "cast": ([node("Cast", "x", to=FLOAT)], {}, FLAT),
    "dead nodes": ([node("Softmax", "x", "dead"), node("Relu", "x")], {}, FLAT),
    "constant": (
        [helper.make_node("Constant", [], ["c"], value=numpy_helper.from_array(rand(6))), node("Mul", "x c")],
        {},
        FLAT,
    ),
    "weights computed": (
        [node("Transpose", "w", "v"), node("Div", "v c", "u"), node("MatMul", "x u")],
        {"w": rand(4, 6), "c": rand(1)},
        FLAT,
    ),
}

BEFORE_13: dict[str, Case] = {
    "squeeze": ([node("Squeeze", "x", axes=[0, 2])], {}, (1, 3, 1, 2)),
    "squeeze all": ([node("Squeeze", "x")], {}, (1, 3, 1, 2)),
    "unsqueeze": ([node("Unsqueeze", "x", axes=[1, 3])], {}, (1, 3)),
    "reduce sum": ([node("ReduceSum", "x", axes=[1, 3])], {}, IMAGE),
    "reduce mean": ([node("ReduceMean", "x", axes=[2, 3], keepdims=0)], {}, IMAGE),
}

SINCE_13: dict[str, Case] = {
    "squeeze": ([node("Squeeze", "x a")], {"a": ints(0, -2)}, (1, 3, 1, 2)),
    "unsqueeze": ([node("Unsqueeze", "x a")], {"a": ints(1, -1)}, (1, 3)),
    "reduce sum": ([node("ReduceSum", "x a", keepdims=0)], {"a": ints(1, -1)}, IMAGE),
    "pad": ([node("Pad", "x a c")], {"a": ints(0, 0, 1, 2, 0, 0, 0, 1), "c": np.array(0.5, np.float32)}, IMAGE),
    "expand": ([node("Expand", "x a")], {"a": ints(4, 1)}, (1, 3)),
}

SINCE_11: dict[str, Case] = {
    "slice": (
        [node("Slice", "x a e i s")],
        {"a": ints(5, -3), "e": ints(-99, 9999), "i": ints(2, 3), "s": ints(-2, 1)},
        IMAGE,
    ),
    "slice no axes": ([node("Slice", "x a e")], {"a": ints(0, 1), "e": ints(1, 3)}, IMAGE),
    "gather negative": ([node("Gather", "x i", axis=-1)], {"i": ints(-1, 0, -1)}, IMAGE),
    "flatten negative": ([node("Flatten", "x", axis=-1)], {}, IMAGE),
    "max pool ceil": (
        [node("MaxPool", "x", kernel_shape=[2, 3], strides=[2, 2], ceil_mode=1, dilations=[2, 1])],
        {},
        IMAGE,
    ),
    "max pool indices": ([node("MaxPool", "x", "y indices", kernel_shape=[2, 2])], {}, IMAGE),
    "average pool ceil": ([node("AveragePool", "x", kernel_shape=[2, 2], strides=[2, 2], ceil_mode=1)], {}, IMAGE),
    "constant of shape": ([node("ConstantOfShape", "n", "c"), node("Add", "x c")], {"n": ints(6)}, FLAT),
}


@pytest.mark.parametrize("opset", OPSETS)
@pytest.mark.parametrize("name", ANY_OPSET)
def test_operator_in_every_opset(name, opset):
    nodes, weights, shape = ANY_OPSET[name]
    check(model(nodes, weights, shape, opset))


@pytest.mark.parametrize("opset", [7, 9, 11])
@pytest.mark.parametrize("name", BEFORE_13)
def test_operator_with_attributes_that_became_inputs(name, opset):
    nodes, weights, shape = BEFORE_13[name]
    check(model(nodes, weights, shape, opset))


@pytest.mark.parametrize("opset", [13, 17, 20, 22])
@pytest.mark.parametrize("name", SINCE_13)
def test_operator_of_later_opsets(name, opset):
    nodes, weights, shape = SINCE_13[name]
    check(model(nodes, weights, shape, opset))


@pytest.mark.parametrize("opset", [11, 13, 17, 20, 22])
@pytest.mark.parametrize("name", SINCE_11)
def test_operator_since_opset_11(name, opset):
    nodes, weights, shape = SINCE_11[name]
    check(model(nodes, weights, shape, opset))


def test_slice_and_dropout_by_attributes_and_inputs():
    check(model([node("Slice", "x", starts=[1, -2], ends=[3, 9999], axes=[1, 3])], {}, IMAGE, 9))
    check(
        model(
            [node("Dropout", "x r t", "z mask"), node("Relu", "z")],
            {"r": np.float32(0.5), "t": np.array(False)},
            FLAT,
            13,
        )
    )
    with pytest.raises(UnsupportedOperator, match="training mode"):
        read_network(model([node("Dropout", "x r t")], {"r": np.float32(0.5), "t": np.array(True)}, FLAT, 13))


def test_pad_by_attributes_and_with_axes():
    check(model([node("Pad", "x", pads=[0, 0, 1, 2, 0, 1, 0, 0], value=-1.0)], {}, IMAGE, 9))
    check(model([node("Pad", "x a _ i")], {"a": ints(2, 1, 0, 3), "i": ints(-1, 2)}, IMAGE, 18))
    with pytest.raises(UnsupportedOperator, match="by a constant"):
        read_network(model([node("Pad", "x a", mode="reflect")], {"a": ints(0, 0, 1, 1, 0, 0, 1, 1)}, IMAGE, 13))


def test_reduce_mean_with_axes_as_input_and_average_pool_with_dilation():
    check(model([node("ReduceMean", "x a")], {"a": ints(1, -1)}, IMAGE, 18))
    check(model([node("ReduceMean", "x")], {}, IMAGE, 18))
    check(model([node("AveragePool", "x", kernel_shape=[2, 2], dilations=[2, 3], pads=[1, 0, 0, 1])], {}, IMAGE, 19))
    ceil: dict[str, Any] = {"kernel_shape": [3, 3], "strides": [2, 2], "pads": [1, 1, 1, 1], "ceil_mode": 1}
    for include in (0, 1):
        check(model([node("AveragePool", "x", count_include_pad=include, **ceil)], {}, (1, 2, 6, 8), 19))


@pytest.mark.parametrize("opset", [9, 11, 13, 17])
def test_flatten_by_a_chain_of_shapes(opset):
    """As PyTorch exported `x.view(x.size(0), -1)`."""
    axes = {} if opset >= 13 else {"axes": [0]}
    more = "a" if opset >= 13 else ""
    nodes = [
        node("Conv", "x w b", "c"),
        node("Shape", "c", "shape"),
        helper.make_node("Constant", [], ["zero"], value=numpy_helper.from_array(np.array(0))),
        node("Gather", "shape zero", "batch", axis=0),
        node("Unsqueeze", f"batch {more}", "first", **axes),
        node("Concat", "first rest", "target", axis=0),
        node("Reshape", "c target", "flat"),
        node("Gemm", "flat g h"),
    ]
    network = check(model(nodes, {**W34, "rest": ints(-1), "a": ints(0), "g": rand(80, 2), "h": rand(2)}, IMAGE, opset))
    assert kinds(network) == ["Input", "Conv", "Reshape", "Linear"]


def test_flatten_by_arithmetic_on_shapes():
    nodes = [
        node("Shape", "x", "shape"),
        node("Slice", "shape one four", "tail"),
        node("Gather", "tail i0", "c"),
        node("Gather", "tail i1", "h"),
        node("Mul", "c h", "ch"),
        node("Div", "ch i1", "whole"),
        node("Cast", "whole", "cast", to=TensorProto.INT64),
        node("Concat", "one cast minus", "target", axis=0),
        node("Reshape", "x target"),
    ]
    weights = {"one": ints(1), "four": ints(4), "i0": ints(0), "i1": ints(1), "minus": ints(-1)}
    assert check(model(nodes, weights, IMAGE)).nodes[-1].shape == (3, 7, 6)


def test_constants_given_as_numbers():
    numbers = [
        helper.make_node("Constant", [], ["a"], value_float=0.1),
        helper.make_node("Constant", [], ["b"], value_floats=[0.1, 0.2, 0.3]),
        helper.make_node("Constant", [], ["n"], value_ints=[2, 3]),
        helper.make_node("Constant", [], ["i"], value_int=1),
    ]
    nodes = [node("Reshape", "x n", "z"), node("Gather", "z i", "g"), node("Mul", "g a", "m"), node("Add", "b m")]
    check(model([*numbers, *nodes], {}, FLAT, 13))


def test_constants_are_computed_in_the_precision_of_the_file():
    """The difference of two large constants is what a runtime makes of it, not what more digits would give."""
    large, near = np.full(1, 1e7, np.float32), np.full(1, 0.1, np.float32)
    data = model([node("Add", "a b", "c"), node("Sub", "c a", "d"), node("Mul", "x d")], {"a": large, "b": near}, FLAT)
    check(data)


def test_batch_norm_and_bias_are_folded():
    nodes = [
        node("Conv", "x w", "c"),
        node("BatchNormalization", "c s t m v", "n"),
        node("Relu", "n", "r"),
        node("Flatten", "r", "f"),
        node("MatMul", "f g", "p"),
        node("Add", "p h"),
    ]
    weights = {"w": rand(3, 3, 3, 3), **STATISTICS, "g": rand(60, 2), "h": rand(2)}
    assert kinds(check(model(nodes, weights, IMAGE))) == ["Input", "Conv", "Relu", "Reshape", "Linear"]


@pytest.mark.parametrize("batch", ["N", 0, 1, None])
def test_an_open_batch_axis_counts_as_one(batch):
    data = model([node("Gemm", "x w")], {"w": rand(6, 4)}, (batch, 6))
    assert check(data).input_shape == (6,)


def test_weights_listed_as_inputs():
    check(model([node("Conv", "x w b")], W34, IMAGE, 9, listed=True))


def test_double_and_half_precision():
    weights = {"w": rand(6, 4).astype(np.float64)}
    check(model([node("Gemm", "x w")], weights, FLAT, kind=TensorProto.DOUBLE))
    weights = {"w": rand(6, 4).astype(np.float16)}
    network = check(model([node("Gemm", "x w")], weights, FLAT, kind=TensorProto.FLOAT16))
    op = network.nodes[1].op
    assert isinstance(op, Linear)
    assert op.weight.dtype == torch.float64


def test_thousands_of_nodes():
    depth = 3000
    nodes = [node("Relu", f"h{i}", f"h{i + 1}") for i in range(depth)]
    network = read_network(model([node("Identity", "x", "h0"), *nodes, node("Neg", f"h{depth}")], {}, FLAT))
    assert len(network.nodes) == depth + 2


def test_gz_and_plain_files(tmp_path):
    data = model([node("Relu", "x")], {}, FLAT)
    (tmp_path / "a.onnx").write_bytes(data)
    (tmp_path / "b.onnx.gz").write_bytes(gzip.compress(data))
    for name in ("a.onnx", "b.onnx.gz"):
        assert read_network(tmp_path / name).neurons == 6


# What is refused


def refused(data: bytes, *words: str, error: type[NetworkError] = NetworkError) -> None:
    with pytest.raises(error) as caught:
        read_network(data)
    message = str(caught.value)
    assert "\n" not in message
    for word in words:
        assert word in message


GOOD = model([node("Gemm", "x w")], {"w": rand(6, 4)}, FLAT)


def read_or_one_sentence(data: bytes) -> Network | None:
    """The network, or None if it is refused as a damaged file should be; any other error is one of the test."""
    try:
        return read_network(data)
    except NetworkError as error:
        if "\n" in str(error):
            raise
        return None


def test_every_truncation_is_refused_or_still_whole():
    for length in range(len(GOOD)):
        network = read_or_one_sentence(GOOD[:length])
        if network is not None:  # what was cut off said nothing about the function
            compare(network, Reference(GOOD))


@pytest.mark.parametrize("data", [b"", b"no network", b"\x00" * 100, bytes(range(256)), GOOD + b"\xff\xff"])
def test_garbage(data):
    refused(data, "no ONNX file")


def test_random_damage_gives_a_network_or_one_sentence():
    nodes, weights, shape = ANY_OPSET["conv asymmetric"]
    data = model(
        [*nodes[:-1], node("Conv", "x w b", "z", pads=[1, 1, 1, 1]), node("MaxPool", "z", kernel_shape=[2, 2])],
        weights,
        shape,
    )
    random = np.random.default_rng(0)
    for _ in range(300):
        damaged = bytearray(data)
        for at in random.integers(0, len(data), 3):
            damaged[at] = random.integers(256)
        read_or_one_sentence(bytes(damaged))


def test_a_damaged_file_is_named(tmp_path):
    (tmp_path / "broken.onnx").write_bytes(GOOD[:50])
    with pytest.raises(NetworkError, match=r"broken\.onnx"):
        read_network(tmp_path / "broken.onnx")
    with pytest.raises(NetworkError, match=r"missing\.onnx"):
        read_network(tmp_path / "missing.onnx")


@pytest.mark.parametrize("operator", ["Softmax", "Sigmoid", "LeakyRelu", "Tanh"])
def test_unsupported_operators_are_named(operator):
    data = model([node("Relu", "x", "z"), node(operator, "z")], {}, FLAT)
    refused(data, f"{operator.lower()}_y", operator, *SUPPORTED, error=UnsupportedOperator)


def test_a_refusal_is_one_line_whatever_the_operator_is_called():
    proto = onnx.load_model_from_string(model([node("Relu", "missing", "z"), node("Relu", "z")], {}, FLAT))
    proto.graph.node[0].op_type = "Gemm*\n"
    refused(proto.SerializeToString(), "'Gemm*\\n'", "missing")


def test_an_operator_of_another_domain():
    proto = onnx.load_model_from_string(GOOD)
    proto.graph.node[0].domain = "com.example"
    refused(proto.SerializeToString(), "com.example.Gemm", error=UnsupportedOperator)


@pytest.mark.parametrize(
    ("nodes", "words"),
    [
        ([node("Mul", "x x")], "not affine"),
        ([node("Div", "c x")], "not affine"),
        ([node("Relu", "x", "z"), node("MatMul", "x z")], "not affine"),
        ([node("Gemm", "x x", transB=1)], "not affine"),
        ([node("Conv", "w x")], "constant"),
        ([node("Reshape", "x x")], "constant"),
        ([node("Cast", "x", to=TensorProto.INT64)], "float or double"),
        ([node("Sqrt", "x")], "constants only"),
        ([node("Conv", "x w", auto_pad="SAME")], "auto_pad"),
        ([node("BatchNormalization", "x c c c c", training_mode=1)], "inference"),
    ],
)
def test_forms_that_are_not_verified(nodes, words):
    shape = IMAGE if "w" in str(nodes[0].input) or nodes[0].op_type == "BatchNormalization" else (1, 1)
    refused(
        model(nodes, {"w": rand(4, 3, 3, 3), "c": rand(1)}, shape), words, nodes[-1].name, error=UnsupportedOperator
    )


@pytest.mark.parametrize("bad", [np.nan, np.inf, -np.inf])
def test_weights_that_are_not_finite(bad):
    weight = rand(6, 4)
    weight[2, 1] = bad
    refused(model([node("Gemm", "x kernel")], {"kernel": weight}, FLAT), "kernel", "not finite")


def test_constants_that_become_infinite():
    data = model([node("Div", "a b", "c"), node("Add", "x c")], {"a": rand(1), "b": np.zeros(1, np.float32)}, FLAT)
    refused(data, "'c'", "not finite")


def test_more_inputs_or_outputs_than_one_are_named():
    refused(model([node("Add", "left right")], {}, FLAT, inputs=("left", "right")), "'left', 'right'")
    refused(model([node("Relu", "x"), node("Neg", "x", "z")], {}, FLAT, outputs=("y", "z")), "'y', 'z'")
    refused(model([node("Relu", "c")], {"c": rand(1)}, FLAT, inputs=()), "0 inputs")


def test_external_data_is_never_followed(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "weights.bin").write_bytes(rand(6, 4).tobytes())
    proto = onnx.load_model_from_string(GOOD)
    tensor = proto.graph.initializer[0]
    tensor.ClearField("raw_data")
    tensor.data_location = TensorProto.EXTERNAL
    tensor.external_data.add(key="location", value="weights.bin")
    data = proto.SerializeToString()
    refused(data, "'w'", "another file")
    with pytest.raises(NetworkError, match="another file"):
        Reference(data)


@pytest.mark.parametrize(
    ("nodes", "weights", "shape", "words"),
    [
        ([node("Gemm", "x w")], {"w": rand(5, 4)}, FLAT, "gemm_y"),
        ([node("Conv", "x w")], {"w": rand(4, 2, 3, 3)}, IMAGE, "does not fit"),
        ([node("Conv", "x w")], {"w": rand(4, 3, 9, 9)}, IMAGE, "longer"),
        ([node("Conv", "x w", strides=[0, 1])], W34, IMAGE, "conv_y"),
        ([node("Conv", "x w", pads=[1, 1])], W34, IMAGE, "conv_y"),
        ([node("Conv", "x w", group=0)], W34, IMAGE, "conv_y"),
        ([node("Conv", "x w", kernel_shape=[2, 2])], W34, IMAGE, "contradicts"),
        ([node("Conv", "x w", strides="two")], W34, IMAGE, "conv_y"),
        ([node("Conv", "x w")], W34, (2, 3, 7, 6), "conv_y"),
        ([node("Conv", "x")], {}, IMAGE, "missing"),
        ([node("MaxPool", "x")], {}, IMAGE, "maxpool_y"),
        ([node("Reshape", "x n")], {"n": ints(5, 5)}, FLAT, "reshape_y"),
        ([node("Add", "x c")], {"c": rand(4)}, FLAT, "add_y"),
        ([node("Add", "x nowhere")], {}, FLAT, "'nowhere'"),
        ([node("Gather", "x i")], {"i": ints(9)}, FLAT, "gather_y"),
        ([node("Div", "x c")], {"c": np.zeros(1, np.float32)}, FLAT, "zero"),
        ([node("Transpose", "x", perm=[0, 0])], {}, FLAT, "transpose_y"),
        ([node("Slice", "x a a")], {"a": ints(0)}, FLAT, "elements"),
        ([node("ConstantOfShape", "n", "c"), node("Add", "x c")], {"n": ints(1 << 40)}, FLAT, "too large"),
        ([node("Expand", "x n")], {"n": ints(1 << 40, 1)}, FLAT, "too large"),
        ([node("MaxPool", "x", kernel_shape=[1, 1], pads=[1 << 40, 0, 0, 0])], {}, IMAGE, "too large"),
        ([node("AveragePool", "x", kernel_shape=[1 << 40, 1], pads=[1 << 40, 0, 0, 0])], {}, IMAGE, "too large"),
        ([node("Conv", "x w", pads=[1 << 40, 0, 0, 0])], W34, IMAGE, "too large"),
        ([node("Relu", "x")], {}, (1, 1 << 40), "elements"),
        ([node("Relu", "c")], {"c": rand(6)}, FLAT, ""),
        ([node("Identity", "c")], {"c": rand(6)}, FLAT, "does not depend"),
        ([node("Relu", "x", "z")], {}, FLAT, "no node"),
        ([node("Relu", "x")], {}, (1, "width"), "width"),
    ],
)
def test_inconsistent_graphs(nodes, weights, shape, words):
    refused(model(nodes, weights, shape), words)


def test_opsets_outside_the_supported_range():
    refused(model([node("Relu", "x")], {}, FLAT, 6), "opset 6", "7 to 22")
    refused(model([node("Relu", "x")], {}, FLAT, 23), "opset 23")


def test_an_input_of_integers():
    refused(model([node("Relu", "x")], {}, FLAT, kind=TensorProto.INT64), "'x'")


# Comparison with ONNX Runtime


def mutated(network: Network, i: int, factor: Tensor | float = 1.01) -> Network:
    """The same network with the weights of one node off by a factor."""
    at = network.nodes[i]
    assert isinstance(at.op, Linear | Conv)
    wrong = replace(at, op=replace(at.op, weight=at.op.weight * factor))
    return Network((*network.nodes[:i], wrong, *network.nodes[i + 1 :]))


def test_onnx_runtime_refuses_in_one_sentence():
    with pytest.raises(NetworkError, match="ONNX Runtime refuses") as caught:
        Reference(model([node("Gemm", "x w")], {"w": rand(5, 4)}, FLAT))
    assert "\n" not in str(caught.value)
    with pytest.raises(NetworkError, match="cannot evaluate"):
        Reference(GOOD).run(np.zeros(7))


def test_reference_runs_points():
    reference = Reference(GOOD)
    x = rand(6)
    assert reference.run(x).shape == (4,)
    assert reference.run(x).dtype == np.float32
    np.testing.assert_allclose(reference.run(x), x @ rand(6, 4), rtol=1e-5, atol=1e-5)


def test_a_difference_is_told_with_both_values():
    network = read_network(GOOD)
    with pytest.raises(NetworkError, match=r"output \d .* here and .* in ONNX Runtime.*2 nodes"):
        compare(mutated(network, 1), Reference(GOOD))
    with pytest.raises(NetworkError, match="outputs"):
        compare(network, Reference(model([node("Relu", "x")], {}, FLAT)))


LARGE, HUGE = np.full(1, 1e30, np.float32), np.full(1, 1e200)
TWICE = [node("Mul", "x c", "z"), node("Relu", "z", "r"), node("Mul", "r c")]


def test_numbers_too_large_to_be_compared_are_no_mistake_of_reading():
    """Nothing tells whether such a network was read wrongly, so nobody is asked to report it."""
    double = TensorProto.DOUBLE
    cases = (
        (model(TWICE, {"c": LARGE}, FLAT), "is inf in ONNX Runtime: the network's numbers go beyond float32"),
        (
            model(TWICE, {"c": HUGE}, FLAT, kind=double),
            "is inf in ONNX Runtime: the network's numbers go beyond float64",
        ),
        (model([node("Mul", "x c")], {"c": HUGE}, FLAT, kind=double), "or their rounding errors, go beyond float64"),
    )
    for data, words in cases:
        with pytest.raises(NetworkError, match=words) as caught:
            check(data)
        assert "report" not in str(caught.value)
        assert "scale its weights" in str(caught.value)


def test_what_overflows_on_the_way_only_is_told_from_a_mistake_of_reading():
    """-1e60 |x| before a ReLU: -inf in float32 is as good. Another bias behind it may be anybody's mistake."""
    nodes = [node("Mul", "x c", "z"), node("Relu", "z", "r"), node("Mul", "r n", "u"), node("Relu", "u", "v")]
    data = model([*nodes, node("Add", "v o")], {"c": LARGE, "n": -LARGE, "o": rand(6)}, FLAT)
    network = check(data)
    shifted = read_network(model([*nodes, node("Add", "v o")], {"c": LARGE, "n": -LARGE, "o": 2 + rand(6)}, FLAT))
    with pytest.raises(NetworkError, match=r"on the way to it, numbers of up to .*e\+(59|60) go beyond float32"):
        compare(shifted, Reference(data))
    compare(network, Reference(data))


def test_a_box_beyond_the_type_of_the_inputs_is_refused():
    box = Box(torch.zeros(6, dtype=torch.float64), torch.tensor([1, 1, 1e39, 1, 1, 1], dtype=torch.float64))
    with pytest.raises(PropertyError, match=r"the box of input X_2, from 0 to 1e\+39, goes beyond float32"):
        compare(read_network(GOOD), Reference(GOOD), box=box)


@pytest.mark.parametrize("kind", [np.float32, np.float64])
def test_a_division_by_next_to_nothing_is_refused(kind):
    tiny = float(np.finfo(kind).tiny)
    nodes = [node("Mul", "x c", "z"), node("Div", "z c")]
    onnx_kind = TensorProto.FLOAT if kind is np.float32 else TensorProto.DOUBLE
    check(model(nodes, {"c": np.full(1, tiny * 1024, kind)}, FLAT, kind=onnx_kind))
    with pytest.raises(NetworkError, match="next to nothing"):
        read_network(model(nodes, {"c": np.full(1, tiny / 1024, kind)}, FLAT, kind=onnx_kind))


def test_points_come_from_the_box_where_one_is_given():
    class Recorder:
        name, dtype = "recorder", np.dtype(np.float32)

        def __init__(self):
            self.points = []

        def run(self, x):
            self.points.append(x)
            return Reference(GOOD).run(x)

    recorder, lower = Recorder(), np.arange(6.0)
    compare(read_network(GOOD), recorder, box=Box(torch.from_numpy(lower), torch.from_numpy(lower + 0.5)))
    points = np.stack(recorder.points)
    assert len(points) == 8
    assert (points >= lower).all()
    assert (points <= lower + 0.5).all()


# Networks of others


REFUSED = (
    # What bough does not read yet: each is refused in a sentence, and never read wrongly.
    "cgan_2023/",
    "dist_shift_2023/",
    "lsnc_relu/",
    "ml4acopf_2024/",
    "nn4sys/onnx/mscn_128d_dual",
    "nn4sys/onnx/pensieve_small_parallel",
    "traffic_signs_recognition_2023/",
    "vit_2023/",
)
TOO_DEAR = ("yolo_2023/",)  # the comparison works with the derivatives of its thousands of outputs


def shared_networks() -> list[Path]:
    folder = os.environ.get("BOUGH_DATA")
    if not folder:
        pytest.skip("set BOUGH_DATA to the shared data folder")
    return sorted(p for p in Path(folder).rglob("*.onnx*") if p.name.endswith((".onnx", ".onnx.gz")))


@pytest.fixture(scope="module")
def networks() -> list[Path]:
    return [p for p in shared_networks() if not any(name in str(p) for name in (*REFUSED, *TOO_DEAR))]


def test_what_is_not_read_is_refused():
    refused = [path for path in shared_networks() if any(name in str(path) for name in REFUSED)]
    assert refused
    for path in refused:
        with pytest.raises(NetworkError):
            read_network(path)


def test_networks_of_others_are_read_right(networks):
    assert networks
    for path in networks:
        data = read_bytes(path, NETWORK_LIMIT, NetworkError)
        compare(read_network(path), Reference(data))


def test_one_per_cent_in_any_layer_is_noticed(networks):
    """Of every kind of network here, the first; in it, each layer that matters at the points of the comparison."""
    first = {path.parent: path for path in reversed(networks)}
    noticed = idle = 0
    for path in first.values():
        data = read_bytes(path, NETWORK_LIMIT, NetworkError)
        network, reference = read_network(data), Reference(data)
        x = torch.from_numpy(_points(network.inputs, 8, None, np.dtype(np.float64)))
        for i, at in enumerate(network.nodes):
            if not isinstance(at.op, Linear | Conv):
                continue
            wrong = mutated(network, i)
            if torch.equal(walk.evaluate(wrong, x), walk.evaluate(network, x)):
                idle += 1  # behind ReLUs that are off
                continue
            with pytest.raises(NetworkError, match="read wrongly"):
                compare(wrong, reference)
            noticed += 1
    assert noticed > 10 * idle


def test_one_per_cent_in_one_weight_is_noticed(bough_data):
    data = read_bytes(bough_data / "vnncomp/oval21/onnx/cifar_base_kw.onnx", NETWORK_LIMIT, NetworkError)
    network, reference = read_network(data), Reference(data)
    for i, at in enumerate(network.nodes[:-1]):
        if isinstance(at.op, Linear | Conv):
            factor = torch.ones_like(at.op.weight)
            factor.view(-1)[at.op.weight.abs().argmax()] = 1.01
            with pytest.raises(NetworkError, match="read wrongly"):
                compare(mutated(network, i, factor), reference)


def test_networks_of_others_are_written_and_read_again(networks):
    first = {path.parent: path for path in networks}
    for path in first.values():
        network = read_network(path)
        data = write_network(network)
        again = read_network(data)
        compare(network, Reference(data))
        compare(again, Reference(data))
        assert [n.shape for n in again.nodes] == [n.shape for n in network.nodes]


@pytest.mark.parametrize("name", ANY_OPSET)
def test_what_is_written_is_what_was_read(name, tmp_path):
    nodes, weights, shape = ANY_OPSET[name]
    network = read_network(model(nodes, weights, shape))
    data = write_network(network, tmp_path / "written.onnx")
    assert (tmp_path / "written.onnx").read_bytes() == data
    onnx.checker.check_model(onnx.load_model_from_string(data), full_check=True)
    compare(network, Reference(data))
    compare(check(data), Reference(model(nodes, weights, shape)))
