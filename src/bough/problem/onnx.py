"""Reading ONNX files: in goes a `.onnx` or `.onnx.gz` file or its bytes, out comes a `Network` of the eight operators.

Every node whose inputs are constants is evaluated while reading, in the precision of the file as a runtime would; this
also resolves the shapes that exporters compute inside the graph. Supporting an operator means one row in a table at the
end of this module.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import onnx
from numpy.typing import NDArray
from onnx import AttributeProto, GraphProto, ModelProto, NodeProto, TensorProto, ValueInfoProto, numpy_helper

from bough.errors import NetworkError, UnsupportedOperator
from bough.files.reading import NETWORK_LIMIT, read_bytes
from bough.network.graph import Network
from bough.network.lowering import Array, Value, concatenate, constant, flat_window, network_input, small
from bough.network.rewrite import MOST_ELEMENTS, GraphBuilder, Window, fold_scales

OPSETS = range(7, 23)
MOST_NODES = 50_000  # a file may have at most so many nodes: networks that are verified anywhere have some hundreds
_STANDARD = ("", "ai.onnx")  # names of the domain whose operators are supported

_FLOATS: Mapping[int, type[np.generic]] = {
    TensorProto.FLOAT: np.float32,
    TensorProto.DOUBLE: np.float64,
    TensorProto.FLOAT16: np.float16,
}
_INTEGERS = [TensorProto.DataType.Value(f"{sign}INT{bits}") for sign in ("", "U") for bits in (8, 16, 32, 64)]
_TYPES = {**_FLOATS, **dict.fromkeys(_INTEGERS, np.int64), TensorProto.BOOL: np.bool_}

Result = Value | Array


def read_network(source: Path | bytes) -> Network:
    """The network in an ONNX file, or in the bytes of one."""
    data = source if isinstance(source, bytes) else read_bytes(source, NETWORK_LIMIT, NetworkError)
    name = "" if isinstance(source, bytes) else f"{source}: "
    try:
        return _convert(parse_model(data))
    except NetworkError as error:
        raise type(error)(f"{name}{error}") from error
    except Exception as error:  # damage outside any node, such as a name that is no text
        raise NetworkError(f"{name}the ONNX file is damaged: {sentence(error)}") from error


def parse_model(data: bytes) -> ModelProto:
    """The model in the bytes of an ONNX file, refused where it would make a reader open other files."""
    try:
        model = onnx.load_model_from_string(data)
    except Exception as error:  # a damaged file can break any assumption of the library
        raise NetworkError(f"this is no ONNX file, or a damaged one ({len(data)} bytes, {sentence(error)})") from error
    if not model.graph.node and not model.graph.output:
        raise NetworkError(f"this is no ONNX file, or a damaged one ({len(data)} bytes hold no graph)")
    if len(model.graph.node) > MOST_NODES:
        raise NetworkError(f"the network has {len(model.graph.node):,} nodes; up to {MOST_NODES:,} are supported")
    for function in model.functions:
        if function.domain in _STANDARD:  # or a runtime might compute something else by that name than bough reads
            raise NetworkError(f"the file defines the standard operator {function.name!r} anew, which is not supported")
    for tensor in _tensors(model):
        if tensor.data_location == TensorProto.EXTERNAL or tensor.external_data:
            raise NetworkError(
                f"tensor {tensor.name!r} is stored in another file; save the model with all weights inside"
            )
    return model


def _tensors(model: ModelProto) -> Iterator[TensorProto]:
    """Every tensor stored in a model, in subgraphs and functions too."""
    messages: list[Any] = [model]
    while messages:
        message = messages.pop()
        if isinstance(message, TensorProto):
            yield message
        for field, value in message.ListFields():
            if field.message_type is not None:
                messages.extend([value] if hasattr(value, "ListFields") else value)


def input_shape(model: ModelProto) -> tuple[str, tuple[int, ...]]:
    """Name and shape of the one input, batch axis included: there a symbolic or empty length counts as one."""
    info = _only("input", _real_inputs(model.graph))
    kind = info.type.tensor_type
    if kind.elem_type not in _FLOATS or not kind.HasField("shape"):
        raise NetworkError(f"input {info.name!r} is no floating-point tensor of known shape")
    shape = []
    for axis, dim in enumerate(kind.shape.dim):
        if axis and dim.dim_value <= 0:
            length = dim.dim_param or str(dim.dim_value)
            raise NetworkError(
                f"input {info.name!r} has length {length!r} on axis {axis}; only the batch axis may be left open"
            )
        shape.append(max(dim.dim_value, 1))
    return info.name, tuple(shape)


def open_batch_axis(model: ModelProto) -> bool:
    """Leave the batch axis open where the file gives it length zero, by which some exporters mean that; True if so."""
    dims = [dim for info in _real_inputs(model.graph) for dim in info.type.tensor_type.shape.dim[:1]]
    empty = [dim for dim in dims if dim.HasField("dim_value") and dim.dim_value < 1]
    for dim in empty:
        dim.dim_param = "batch"
    return bool(empty)


def without_dead_nodes(model: ModelProto) -> bool:
    """Leave out the nodes that the output is not computed from, which nobody has looked at; True if there were any."""
    live = _live(model.graph.node, *(info.name for info in model.graph.output))
    if len(live) == len(model.graph.node):
        return False
    copies = [NodeProto.FromString(node.SerializeToString()) for node in live]
    del model.graph.node[:]
    model.graph.node.extend(copies)
    return True


def _real_inputs(graph: GraphProto) -> list[ValueInfoProto]:
    stored = {tensor.name for tensor in graph.initializer} | {tensor.values.name for tensor in graph.sparse_initializer}
    return [info for info in graph.input if info.name not in stored]


def _only(what: str, infos: Sequence[ValueInfoProto]) -> ValueInfoProto:
    if len(infos) != 1:
        names = ", ".join(repr(info.name) for info in infos) or "none"
        raise NetworkError(f"the network has {len(infos)} {what}s ({names}); exactly one is supported")
    return infos[0]


def _check_opset(model: ModelProto) -> None:
    versions = [entry.version for entry in model.opset_import if entry.domain in _STANDARD]
    if len(versions) != 1:
        raise NetworkError("the file does not say which version of the ONNX operators it uses")
    if versions[0] not in OPSETS:
        raise NetworkError(
            f"the file uses ONNX opset {versions[0]}; {OPSETS[0]} to {OPSETS[-1]} are supported, "
            "so convert it with onnx.version_converter"
        )


def _convert(model: ModelProto) -> Network:
    _check_opset(model)
    builder = GraphBuilder()
    name, shape = input_shape(model)
    output = _only("output", model.graph.output).name
    builder.label = name
    values: dict[str, Result] = {name: network_input(builder, shape)}
    stored = {tensor.name: tensor for tensor in model.graph.initializer}
    kinds = {name: _real_inputs(model.graph)[0].type.tensor_type.elem_type}  # of the computed values' elements
    cast = None
    computed = 0  # elements of constants that are not stored in the file
    for node in _live(model.graph.node, output):
        inputs = tuple(_lookup(node, i, values, stored) for i in node.input)
        builder.label = node.name or node.output[0]
        values[node.output[0]] = value = _one(node, inputs)
        if isinstance(value, Value):
            before = next(kinds[x] for x in node.input if x in kinds)  # all alike, as ONNX has it
            kinds[node.output[0]] = after = _cast_to(node) if node.op_type == "Cast" else before
            if cast is None and (before, after) == (TensorProto.DOUBLE, TensorProto.FLOAT):
                cast = _title(node)
        computed += value.size if isinstance(value, np.ndarray) else 0
        if computed > MOST_ELEMENTS:
            raise NetworkError(f"the file computes more than {MOST_ELEMENTS:,} constants; store what it needs of them")
    if output not in values:
        raise NetworkError(f"output {output!r} is produced by no node, or not as the first output of one")
    result = values[output]
    if not isinstance(result, Value):
        raise NetworkError(f"output {output!r} does not depend on the input, so there is nothing to verify")
    return replace(fold_scales(builder.build(result.node)), cast=cast)


def _cast_to(node: NodeProto) -> int:
    return next(int(attribute.i) for attribute in node.attribute if attribute.name == "to")


def _live(nodes: Sequence[NodeProto], *outputs: str) -> list[NodeProto]:
    """The nodes that the outputs are computed from, in order."""
    needed = set(outputs)
    live = []
    for node in reversed(nodes):
        if needed.intersection(node.output):
            needed.update(node.input)
            live.append(node)
    return live[::-1]


def _lookup(node: NodeProto, name: str, values: dict[str, Result], stored: Mapping[str, TensorProto]) -> Result | None:
    if not name:
        return None  # an optional input that was left out
    if name not in values:
        if name not in stored:
            raise NetworkError(
                f"node {_title(node)!r} ({node.op_type!r}) reads tensor {name!r}, which nothing before it produces"
            )
        values[name] = _array(stored[name], name)
    return values[name]


def _title(node: NodeProto) -> str:
    return str(node.name or node.output[0])


def _array(tensor: TensorProto, name: str) -> Array:
    """A stored tensor; floating-point numbers in their own precision, integers as int64."""
    kind = tensor.data_type
    if kind not in _TYPES and kind != TensorProto.BFLOAT16:
        raise NetworkError(
            f"tensor {name!r} has elements of type {kind}, which are neither numbers of a network nor integers"
        )
    try:
        array: Array = numpy_helper.to_array(tensor).astype(_TYPES.get(kind, np.float32))
    except Exception as error:  # a damaged file can break any assumption of the library
        raise NetworkError(f"tensor {name!r} cannot be read: {sentence(error)}") from error
    if array.dtype.kind == "f" and not bool(np.isfinite(array).all()):
        raise NetworkError(f"tensor {name!r} holds a weight that is not finite (NaN or infinity)")
    return array


def sentence(error: Exception) -> str:
    """An error of a library as a part of one sentence."""
    return (" ".join(str(error).split())[:200] or type(error).__name__).rstrip(".")


@dataclass(frozen=True)
class Call:
    """One node of the file with its inputs resolved."""

    operator: str
    inputs: tuple[Result | None, ...]
    attributes: Mapping[str, Any]

    def given(self, i: int) -> bool:
        """Whether an optional input is there."""
        return i < len(self.inputs) and self.inputs[i] is not None

    def any(self, i: int) -> Result:
        """Input i, constant or not."""
        value = self.inputs[i] if i < len(self.inputs) else None
        if value is None:
            raise NetworkError(f"input {i} is missing")
        return value

    def value(self, i: int) -> Value:
        """Input i, which has to depend on the network's input."""
        x = self.any(i)
        if not isinstance(x, Value):
            raise UnsupportedOperator(f"input {i} is a constant, which is not supported")
        return x

    def constant(self, i: int) -> Array:
        """Input i, which has to be a constant."""
        x = self.any(i)
        if isinstance(x, Value):
            raise UnsupportedOperator(f"input {i} depends on the network's input; only a constant is supported there")
        return x

    def weight(self, i: int) -> NDArray[np.float64]:
        """Input i as constant floating-point numbers."""
        return np.asarray(self.constant(i), np.float64)

    def integers(self, i: int, attribute: str) -> list[int] | None:
        """Integers given as input i, or in older opsets as an attribute; None where they are left out."""
        if attribute in self.attributes:
            return [int(n) for n in self.attributes[attribute]]
        return [int(n) for n in self.constant(i).reshape(-1)] if self.given(i) else None


def _one(node: NodeProto, inputs: tuple[Result | None, ...]) -> Result:
    """The first output of a node; the others (masks, indices, statistics) count as not produced."""
    title = f"node {_title(node)!r}"
    supported = "supported are " + ", ".join(SUPPORTED)
    if node.domain not in _STANDARD or node.op_type not in SUPPORTED:
        operator = ".".join(filter(None, (node.domain, node.op_type)))
        raise UnsupportedOperator(f"{title}: operator {operator!r} is not supported; {supported}")
    try:
        result = _apply(Call(node.op_type, inputs, {a.name: _attribute(a) for a in node.attribute}))
    except UnsupportedOperator as error:
        raise UnsupportedOperator(f"{title}: operator {node.op_type}: {error}; {supported}") from error
    except NetworkError as error:
        raise NetworkError(f"{title} ({node.op_type}): {error}") from error
    except Exception as error:  # a damaged file can break any assumption made here
        raise NetworkError(f"{title} ({node.op_type}) cannot be read: {sentence(error)}") from error
    if not isinstance(result, Value) and result.dtype.kind == "f" and not bool(np.isfinite(result).all()):
        raise NetworkError(f"tensor {node.output[0]!r}, computed from constants, is not finite (NaN or infinity)")
    return result


def _apply(call: Call) -> Result:
    if call.operator in CONSTANT and not any(isinstance(x, Value) for x in call.inputs):
        _check_size(call)
        with np.errstate(all="ignore"):  # what is not finite is refused by name
            return np.asarray(CONSTANT[call.operator](call))
    if call.operator in MOVE:
        x = call.any(0)
        moved = np.asarray(MOVE[call.operator](call, x.positions() if isinstance(x, Value) else x))
        return x.rearrange(moved) if isinstance(x, Value) else moved
    if call.operator not in CONVERT:
        raise UnsupportedOperator("it is supported for constants only")
    return CONVERT[call.operator](call)


def _check_size(call: Call) -> None:
    """Raise where an operator on constants would make more of them than is allowed, before it does."""
    shapes = [np.shape(x) for x in call.inputs if isinstance(x, np.ndarray)]
    if call.operator == "Concat":
        small((sum(int(np.prod(shape, dtype=np.int64)) for shape in shapes),))
    elif call.operator == "MatMul" and all(shapes):
        small(sum((shape[:-2] for shape in shapes), ()) + shapes[0][-2:-1] + shapes[-1][-1:])
    elif call.operator in ("Add", "Div", "Mul", "Sub"):
        small(np.broadcast_shapes(*shapes))


def _attribute(attribute: AttributeProto) -> Any:
    value = onnx.helper.get_attribute_value(attribute)
    if isinstance(value, bytes):
        return value.decode("utf-8", "replace")
    return _array(value, attribute.name) if isinstance(value, TensorProto) else value


# Operators that only move elements: applied to a constant, or to the positions of a value's elements.


def _reshape(call: Call, x: Array) -> Array:
    shape = call.integers(1, "shape")
    if shape is None:
        raise NetworkError("the new shape is missing")
    if not call.attributes.get("allowzero", 0):
        shape = [x.shape[axis] if n == 0 else n for axis, n in enumerate(shape)]
    return x.reshape(shape)


def _flatten(call: Call, x: Array) -> Array:
    axis = call.attributes.get("axis", 1)
    return x.reshape(int(np.prod(x.shape[: axis + x.ndim if axis < 0 else axis], dtype=np.int64)), -1)


def _squeeze(call: Call, x: Array) -> Array:
    axes = call.integers(1, "axes")
    return np.squeeze(x, None if axes is None else tuple(axes))


def _unsqueeze(call: Call, x: Array) -> Array:
    axes = call.integers(1, "axes")
    if axes is None:
        raise NetworkError("the axes are missing")
    return np.expand_dims(x, tuple(axes))


def _slice(call: Call, x: Array) -> Array:
    starts, ends, axes, steps = (call.integers(i, a) for i, a in enumerate(("starts", "ends", "axes", "steps"), 1))
    if starts is None or ends is None:
        raise NetworkError("the starts or ends are missing")
    axes = list(range(len(starts))) if axes is None else axes
    steps = [1] * len(starts) if steps is None else steps
    cut = [slice(None)] * x.ndim
    for axis, start, end, step in zip(axes, starts, ends, steps, strict=True):
        cut[axis] = slice(start, end, step)
    return x[tuple(cut)]


def _gather(call: Call, x: Array) -> Array:
    index = call.constant(1).astype(np.int64)
    axis = int(call.attributes.get("axis", 0))
    small(x.shape[:axis] + index.shape + x.shape[axis % x.ndim + 1 :])
    return np.take(x, index, axis)


def _expand(call: Call, x: Array) -> Array:
    shape = np.broadcast_shapes(x.shape, tuple(int(n) for n in call.constant(1)))
    return np.broadcast_to(x, small(shape))


def _dropout(call: Call, x: Array) -> Array:
    if call.given(2) and bool(np.any(call.constant(2))):
        raise UnsupportedOperator("it is set to training mode; export the network in inference mode")
    return x


# Operators on constants alone.


def _cast(call: Call) -> Array:
    x = call.constant(0)
    kind = call.attributes["to"]
    if kind not in _TYPES:
        raise UnsupportedOperator(f"a cast to elements of type {kind} is not supported")
    return x.astype(_TYPES[kind])


def _constant(call: Call) -> Array:
    if "value" in call.attributes:
        return np.asarray(call.attributes["value"])
    for name, kind in (("float", np.float32), ("floats", np.float32), ("int", np.int64), ("ints", np.int64)):
        if f"value_{name}" in call.attributes:
            return np.asarray(call.attributes[f"value_{name}"], kind)
    raise UnsupportedOperator("the constant holds neither a tensor nor numbers")


def _constant_of_shape(call: Call) -> Array:
    fill = np.asarray(call.attributes.get("value", np.zeros(1, np.float32))).reshape(())
    return np.full(small(tuple(int(n) for n in call.constant(0))), fill)


# Operators on constants or values.


def _divide(call: Call) -> Any:
    x, y = call.any(0), call.any(1)
    if isinstance(x, Value) or isinstance(y, Value) or x.dtype.kind != "i" or y.dtype.kind != "i":
        return x / y
    if not bool(y.all()):
        raise NetworkError("it divides an integer by zero")
    return np.sign(x) * np.sign(y) * (np.abs(x) // np.abs(y))  # ONNX rounds towards zero


def _concat(call: Call) -> Result:
    parts: list[Any] = [call.any(i) for i in range(len(call.inputs))]
    join = concatenate if any(isinstance(part, Value) for part in parts) else np.concatenate
    return join(parts, call.attributes["axis"])


# Operators on values.


def _gemm(call: Call) -> Value:
    """`alpha * A @ B + beta * C`, with one of A and B constant."""
    a, b = (_turned(call, i, name) for i, name in enumerate(("transA", "transB")))
    alpha, beta = (float(call.attributes.get(name, 1.0)) for name in ("alpha", "beta"))
    if not isinstance(a, Value) and not isinstance(b, Value):
        raise UnsupportedOperator("a product of constants alone is supported as MatMul only")
    product: Value = a @ (alpha * constant(b)) if isinstance(a, Value) else (alpha * constant(a)) @ b
    if not call.given(2) or beta == 0:
        return product
    c = call.any(2)
    c = c if isinstance(c, Value) else constant(c)
    return product + (c if beta == 1 else beta * c)


def _turned(call: Call, i: int, attribute: str) -> Any:
    x = call.any(i)
    if len(x.shape) != 2:
        raise NetworkError(f"input {i} is no matrix but of shape {x.shape}")
    if not call.attributes.get(attribute, 0):
        return x
    return x.rearrange(x.positions().T) if isinstance(x, Value) else x.T


def _window(call: Call, kernel: Sequence[int]) -> Window:
    """The geometry that convolution and pooling share, over input 0."""
    shape = call.value(0).shape
    stated = call.attributes.get("kernel_shape", kernel)
    if list(stated) != list(kernel):
        raise NetworkError(f"kernel_shape {list(stated)} contradicts the weight, which has {list(kernel)}")
    if len(shape) != len(kernel) + 2:
        raise NetworkError(f"a window over {len(kernel)} axes does not fit an input of shape {shape}")
    stride = list(call.attributes.get("strides", [1] * len(kernel)))
    dilation = list(call.attributes.get("dilations", [1] * len(kernel)))
    pads = list(call.attributes.get("pads", [0] * 2 * len(kernel)))
    auto = call.attributes.get("auto_pad", "NOTSET")
    if auto == "VALID":
        pads = [0] * 2 * len(kernel)
    elif auto in ("SAME_UPPER", "SAME_LOWER"):
        pads = _same(shape[2:], kernel, stride, dilation, upper=auto == "SAME_UPPER")
    elif auto != "NOTSET":
        raise UnsupportedOperator(f"auto_pad {auto!r} is not supported; NOTSET, VALID, SAME_UPPER and SAME_LOWER are")
    return flat_window(kernel, stride, pads, dilation, bool(call.attributes.get("ceil_mode", 0)))


def _same(
    lengths: Sequence[int], kernel: Sequence[int], stride: Sequence[int], dilation: Sequence[int], *, upper: bool
) -> list[int]:
    """Pads that give one output per stride; an odd one goes to the end (upper) or to the beginning."""
    axes = zip(lengths, kernel, stride, dilation, strict=True)
    total = [max(0, (-(-n // s) - 1) * s + d * (k - 1) + 1 - n) for n, k, s, d in axes]
    begin = [t // 2 if upper else t - t // 2 for t in total]
    return begin + [t - b for t, b in zip(total, begin, strict=True)]


def _conv(call: Call) -> Value:
    x, weight = call.value(0), call.weight(1)
    bias = call.weight(2) if call.given(2) else None
    return x.conv(weight, bias, _window(call, weight.shape[2:]), call.attributes.get("group", 1))


def _average_pool(call: Call) -> Value:
    x = call.value(0)
    window = _window(call, call.attributes["kernel_shape"])
    return x.on_image(GraphBuilder.average_pool, window, bool(call.attributes.get("count_include_pad", 0)))


def _batch_norm(call: Call) -> Value:
    if call.attributes.get("training_mode", 0) or not call.attributes.get("spatial", 1):
        raise UnsupportedOperator("it normalises by the batch or by element; export the network in inference mode")
    statistics = [call.weight(i) for i in range(1, 5)]
    return call.value(0).batch_norm(statistics, call.attributes.get("epsilon", 1e-5))


def _reduce(call: Call, average: bool) -> Value:
    x = call.value(0)
    axes = call.integers(1, "axes")
    if not axes and call.attributes.get("noop_with_empty_axes", 0):
        return x
    return x.total(axes or range(len(x.shape)), bool(call.attributes.get("keepdims", 1)), average)


def _pad(call: Call) -> Value:
    x = call.value(0)
    pads = call.integers(1, "pads")
    if call.attributes.get("mode", "constant") != "constant" or pads is None:
        raise UnsupportedOperator("only padding by a constant is supported")
    fill = float(call.weight(2).reshape(())) if call.given(2) else float(call.attributes.get("value", 0.0))
    axes = call.integers(3, "axes") or list(range(len(x.shape)))
    widths = [(0, 0)] * len(x.shape)
    for axis, before, after in zip(axes, pads[: len(axes)], pads[len(axes) :], strict=True):
        widths[axis] = (before, after)
    return x.pad(widths, fill)


def _cast_value(call: Call) -> Value:
    if call.attributes["to"] not in (TensorProto.FLOAT, TensorProto.DOUBLE):
        raise UnsupportedOperator("a computed value can be cast to float or double only")
    return call.value(0)


_EITHER: Mapping[str, Callable[[Call], Any]] = {
    "Add": lambda call: call.any(0) + call.any(1),
    "Concat": _concat,
    "Div": _divide,
    "Mul": lambda call: call.any(0) * call.any(1),
    "Neg": lambda call: -call.any(0),
    "Sub": lambda call: call.any(0) - call.any(1),
}

MOVE: Mapping[str, Callable[[Call, Array], Any]] = {
    "Dropout": _dropout,
    "Expand": _expand,
    "Flatten": _flatten,
    "Gather": _gather,
    "Identity": lambda call, x: x,
    "Reshape": _reshape,
    "Slice": _slice,
    "Squeeze": _squeeze,
    "Transpose": lambda call, x: np.transpose(x, call.attributes.get("perm")),
    "Unsqueeze": _unsqueeze,
}

CONSTANT: Mapping[str, Callable[[Call], Any]] = {
    **_EITHER,
    "Cast": _cast,
    "Constant": _constant,
    "ConstantOfShape": _constant_of_shape,
    "MatMul": lambda call: np.matmul(call.weight(0), call.weight(1)),
    "Reciprocal": lambda call: 1.0 / call.constant(0),
    "Sqrt": lambda call: np.sqrt(call.constant(0)),
}

CONVERT: Mapping[str, Callable[[Call], Result]] = {
    **_EITHER,
    "AveragePool": _average_pool,
    "BatchNormalization": _batch_norm,
    "Cast": _cast_value,
    "Conv": _conv,
    "Gemm": _gemm,
    "GlobalAveragePool": lambda call: call.value(0).on_image(GraphBuilder.global_average_pool),
    "MatMul": lambda call: call.any(0) @ call.any(1),
    "MaxPool": lambda call: call.value(0).on_image(
        GraphBuilder.max_pool, _window(call, call.attributes["kernel_shape"])
    ),
    "Pad": _pad,
    "ReduceMean": lambda call: _reduce(call, average=True),
    "ReduceSum": lambda call: _reduce(call, average=False),
    "Relu": lambda call: call.value(0).relu(),
    "Shape": lambda call: np.array(
        call.any(0).shape[call.attributes.get("start") : call.attributes.get("end")], np.int64
    ),
}

SUPPORTED = sorted({*MOVE, *CONSTANT, *CONVERT})
