"""Reading PyTorch modules: in goes an `nn.Module` and the shape of its input, out comes a `Network`.

The module is exported to PyTorch's core operators. Those whose inputs are constants are carried out while reading, in
the module's precision; those that only move elements are carried out on the positions of the elements; the others have
a row in a table.
"""

import io
import logging
import operator
import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, redirect_stderr
from dataclasses import replace
from functools import partial
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, fx, nn

from bough.errors import NetworkError, UnsupportedOperator
from bough.network.graph import Network
from bough.network.lowering import Value, concatenate, constant, flat_window, network_input
from bough.network.rewrite import GraphBuilder, Window, fold_scales


class ModuleReference:
    """A PyTorch module, evaluated by PyTorch in evaluation mode; has the `run` of an ONNX file's reference."""

    name = "PyTorch"

    def __init__(self, module: nn.Module, input_shape: Sequence[int]) -> None:
        self._module = module
        self._shape = tuple(input_shape)
        self._like = _example(module, input_shape)
        self.dtype: np.dtype[np.floating[Any]] = np.dtype(str(self._like.dtype).removeprefix("torch."))

    def run(self, x: NDArray[np.floating[Any]]) -> NDArray[np.floating[Any]]:
        """Outputs [outputs] at the point `x` [inputs], as the module's type."""
        try:
            with _evaluating(self._module), torch.no_grad():
                y = self._module(torch.from_numpy(np.array(x)).to(self._like).reshape(1, *self._shape))
            return np.asarray(y.cpu().numpy()).reshape(-1)
        except Exception as error:  # whatever the user's code raises
            raise NetworkError(f"the module cannot be evaluated: {_sentence(error)}") from error


def read_module(module: nn.Module, input_shape: Sequence[int]) -> Network:
    """The network that a module computes in evaluation mode at one input of the given shape, without a batch axis."""
    try:
        with _evaluating(module), warnings.catch_warnings(), _silenced():
            warnings.simplefilter("ignore")  # of PyTorch's exporter about itself
            program = torch.export.export(module, (_example(module, input_shape),), strict=False).run_decompositions()
    except Exception as error:  # whatever the user's code or the exporter raises
        raise NetworkError(f"PyTorch cannot export the module: {_sentence(error)}") from error
    signature = program.graph_signature
    if signature.buffers_to_mutate:
        changed = ", ".join(sorted(signature.buffers_to_mutate.values()))
        raise NetworkError(f"the module changes its own state ({changed}) when it is evaluated")
    if len(signature.user_inputs) != 1 or len(signature.user_outputs) != 1:
        counts = f"{len(signature.user_inputs)} inputs and {len(signature.user_outputs)} outputs"
        raise NetworkError(f"the module has {counts}; exactly one of each is supported")
    builder = GraphBuilder()
    builder.label = "input"
    cast = None
    values: dict[str, Any] = dict(_constants(program))
    values[str(signature.user_inputs[0])] = network_input(builder, (1, *input_shape))
    for node in program.graph.nodes:
        if node.op == "call_function" and node.users:
            builder.label = node.name
            values[node.name] = _one(node, values)
            if cast is None and isinstance(values[node.name], Value) and _rounds_to_float(node):
                cast = node.name
    result = values[str(signature.user_outputs[0])]
    if not isinstance(result, Value):
        raise NetworkError("the module's output does not depend on its input, so there is nothing to verify")
    return replace(fold_scales(builder.build(result.node)), cast=cast)


def _rounds_to_float(node: fx.Node) -> bool:
    """Whether a node turns a double into a float."""
    after, *before = (getattr(n.meta.get("val"), "dtype", None) for n in (node, *node.all_input_nodes))
    return torch.float64 in before and after == torch.float32


@contextmanager
def _silenced() -> Iterator[None]:
    """Keep what the exporter logs, and writes straight to standard error, to itself: what matters is its exception."""
    before = logging.root.manager.disable
    logging.disable(logging.CRITICAL)
    try:
        with redirect_stderr(io.StringIO()):
            yield
    finally:
        logging.disable(before)


def _example(module: nn.Module, input_shape: Sequence[int]) -> Tensor:
    """An input of the module's own type, on its device."""
    weight = next((p for p in (*module.parameters(), *module.buffers()) if p.is_floating_point()), torch.zeros(()))
    return torch.zeros(1, *input_shape, dtype=weight.dtype, device=weight.device)


@contextmanager
def _evaluating(module: nn.Module) -> Iterator[None]:
    """Evaluation mode for a while; afterwards each part is in the mode it was in."""
    modes = [(part, part.training) for part in module.modules()]
    module.eval()
    try:
        yield
    finally:
        for part, training in modes:
            part.training = training


def _sentence(error: Exception) -> str:
    """The first line of a library's error, as a part of one sentence."""
    lines = str(error).strip().splitlines()
    return (lines[0][:200] if lines else type(error).__name__).rstrip(".")


def _constants(program: "torch.export.ExportedProgram") -> Iterator[tuple[str, Tensor]]:
    """Parameters, buffers and constants by the name of their placeholder, on the host."""
    signature = program.graph_signature
    names = {**signature.inputs_to_parameters, **signature.inputs_to_buffers}
    for placeholder, name in {**names, **signature.inputs_to_lifted_tensor_constants}.items():
        tensor = program.state_dict.get(name, program.constants.get(name))
        if not isinstance(tensor, Tensor):
            raise NetworkError(f"the module's constant {name!r} is no tensor")
        tensor = tensor.detach().cpu()
        if not bool(torch.isfinite(tensor).all()):
            raise NetworkError(f"tensor {name!r} holds a weight that is not finite (NaN or infinity)")
        yield placeholder, tensor


def _one(node: fx.Node, values: Mapping[str, Any]) -> Any:
    """The value of one node of the exported graph."""
    target: Any = node.target
    name = "getitem" if target is operator.getitem else str(target).removeprefix("aten.").split(".")[0]
    args, kwargs = fx.node.map_arg((node.args, node.kwargs), lambda n: values.get(n.name))
    title = f"node {node.name!r}: operator {name}"
    try:
        if not any(isinstance(values.get(n.name), Value | tuple) for n in node.all_input_nodes):
            return fx.node.map_aggregate(target(*args, **kwargs), lambda x: x.cpu() if isinstance(x, Tensor) else x)
        if name in MOVE:
            return _moved(target, args, kwargs)
        if name in CONVERT:
            args, kwargs = fx.node.map_aggregate((args, kwargs), _array)
            return CONVERT[name](*args, **kwargs)
    except UnsupportedOperator as error:
        raise UnsupportedOperator(f"{title}: {error}; supported are {', '.join(SUPPORTED)}") from error
    except NetworkError as error:
        raise NetworkError(f"{title}: {error}") from error
    except Exception as error:  # an argument in a form that no row of the table expects
        raise NetworkError(f"{title} cannot be read: {_sentence(error)}") from error
    raise UnsupportedOperator(f"{title} is not supported; supported are {', '.join(SUPPORTED)}")


def _moved(target: Any, args: Sequence[Any], kwargs: Mapping[str, Any]) -> Any:
    x = args[0]
    index = target(torch.from_numpy(x.positions()), *args[1:], **kwargs)
    if isinstance(index, tuple | list):
        return tuple(x.rearrange(part.numpy()) for part in index)
    return x.rearrange(index.numpy())


def _array(x: Any) -> Any:
    """A constant tensor as float64 numbers; anything else as it is."""
    return x.to(torch.float64).numpy() if isinstance(x, Tensor) else x


def _add(x: Any, y: Any, *, alpha: float = 1) -> Value:
    """`x + alpha * y`."""
    if isinstance(y, Value) and not isinstance(x, Value):
        return y.affine(alpha, x)
    total: Value = x + (y if alpha == 1 else alpha * y)
    return total


def _addmm(c: Any, x: Any, y: Any, *, beta: float = 1, alpha: float = 1) -> Value:
    """`beta * c + alpha * x @ y`."""
    product = x @ y
    return _add(product if alpha == 1 else alpha * product, c, alpha=beta)


def _linear(x: Value, weight: Any, bias: Any = None) -> Value:
    product = x @ constant(weight).T
    return product if bias is None else _add(product, bias)


def _convolution(x: Value, weight: Any, bias: Any, stride: Sequence[int], padding: Sequence[int], *rest: Any) -> Value:
    dilation, transposed, _, groups = rest
    if transposed:
        raise UnsupportedOperator("a transposed convolution is not supported")
    return x.conv(weight, bias, flat_window(weight.shape[2:], stride, (*padding, *padding), dilation), groups)


def _batch_norm(x: Value, gamma: Any, beta: Any, mean: Any, variance: Any, *rest: Any) -> Value:
    scale = np.ones_like(mean) if gamma is None else gamma
    shift = np.zeros_like(mean) if beta is None else beta
    return x.batch_norm((scale, shift, mean, variance), float(rest[-1]))


def _pair(sizes: Sequence[int] | int) -> tuple[int, int]:
    return (sizes, sizes) if isinstance(sizes, int) else (sizes[0], sizes[-1])


def _window(
    kernel: Sequence[int],
    stride: Sequence[int] = (),
    padding: Sequence[int] = (0,),
    dilation: Sequence[int] = (1,),
    ceil_mode: bool = False,
) -> Window:
    return flat_window(_pair(kernel), _pair(stride or kernel), _pair(padding) * 2, _pair(dilation), ceil_mode)


def _average_pool(
    x: Value,
    kernel: Sequence[int],
    stride: Sequence[int] = (),
    padding: Sequence[int] = (0,),
    ceil_mode: bool = False,
    count_padding: bool = True,
    divisor: int | None = None,
) -> Value:
    if divisor is not None:
        raise UnsupportedOperator("a divisor of its own (divisor_override) is not supported")
    return x.on_image(GraphBuilder.average_pool, _window(kernel, stride, padding, ceil_mode=ceil_mode), count_padding)


def _total(x: Value, axes: Sequence[int] | None = None, keep: bool = False, *, average: bool, **_: Any) -> Value:
    return x.total(axes or range(len(x.shape)), keep, average)


def _pad(x: Value, pads: Sequence[int], fill: float = 0.0) -> Value:
    """Pads are (before, after) of the last axis, then of the one before it, and so on."""
    widths = list(zip(pads[::2], pads[1::2], strict=True))
    return x.pad([(0, 0)] * (len(x.shape) - len(widths)) + widths[::-1], fill)


def _clamp(x: Value, low: float | None = None, high: float | None = None) -> Value:
    if low != 0 or high is not None:
        raise UnsupportedOperator("a clamp is supported from 0 upwards only, where it is a ReLU")
    return x.relu()


def _item(x: Any, i: int) -> Any:
    """A part of a result: batch normalisation and pooling give theirs first, then what training needs."""
    if isinstance(x, tuple):
        return x[i]
    if i != 0:
        raise UnsupportedOperator("only the values of batch normalisation and pooling are supported, no indices")
    return x


def _to_copy(x: Value, *, dtype: torch.dtype = torch.float32, **_: Any) -> Value:
    if dtype not in (torch.float32, torch.float64):
        raise UnsupportedOperator(f"a computed value can be cast to float or double only, not to {dtype}")
    return x


MOVE = frozenset(
    {
        *("_unsafe_view", "alias", "clone", "detach", "expand", "flatten", "flip", "index", "index_select", "permute"),
        *("repeat", "reshape", "select", "slice", "split", "split_with_sizes", "squeeze", "t", "transpose"),
        *("unsqueeze", "view"),
    }
)

CONVERT: Mapping[str, Callable[..., Any]] = {
    "_native_batch_norm_legit_no_training": _batch_norm,
    "_to_copy": _to_copy,
    "add": _add,
    "addmm": _addmm,
    "avg_pool2d": _average_pool,
    "cat": lambda parts, axis=0: concatenate(parts, axis),
    "clamp": _clamp,
    "clamp_min": _clamp,
    "constant_pad_nd": _pad,
    "convolution": _convolution,
    "div": operator.truediv,
    "getitem": _item,
    "linear": _linear,
    "matmul": operator.matmul,
    "max_pool2d_with_indices": lambda x, *window: x.on_image(GraphBuilder.max_pool, _window(*window)),
    "mean": partial(_total, average=True),
    "mm": operator.matmul,
    "mul": operator.mul,
    "mv": operator.matmul,
    "neg": operator.neg,
    "relu": Value.relu,
    "sub": lambda x, y, *, alpha=1: _add(x, y, alpha=-alpha),
    "sum": partial(_total, average=False),
}

SUPPORTED = sorted({*MOVE, *CONVERT})
