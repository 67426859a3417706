"""Going through a network, apart from what one does there: operator -> function tables, one forward and one backward
walk.

`forward` evaluates every node; `backward` carries linear functionals from a node to the input. What happens at a ReLU
is the caller's, since that is where relaxations differ. Supporting an operator means one row in each table.
"""

from collections.abc import Callable, Mapping, Sequence

import torch
from torch import Tensor
from torch.nn import functional

from bough.network.graph import Network, Node, Shape
from bough.network.ops import Add, Conv, Input, Linear, Operator, Relu, Reshape, Scale, Select

Apply = Callable[..., Tensor]  # (op, node shape, *inputs [batch, *shape]) -> [batch, *node shape]
Transpose = Callable[..., tuple[Tensor, ...]]  # (op, input shapes, functional [batch, *node shape]) -> one per input


def _plain_products(x: Tensor) -> bool:
    """Whether to convolve by matrix products: proofs (float64) rest on error bounds of plain sums, and a GPU's library
    may choose a transform instead.
    """
    return x.is_cuda and x.dtype == torch.float64


def _conv(op: Conv, shape: Shape, x: Tensor) -> Tensor:
    top, left, bottom, right = op.padding
    if _plain_products(x):
        padded = functional.pad(x, (left, right, top, bottom))
        patches = functional.unfold(padded, (op.weight.shape[2], op.weight.shape[3]), op.dilation, 0, op.stride)
        patches = patches.reshape(x.shape[0], op.groups, -1, patches.shape[-1])
        weight = op.weight.reshape(op.groups, op.weight.shape[0] // op.groups, -1)
        return (weight @ patches).reshape(x.shape[0], *shape) + op.bias[:, None, None]
    if (top, left) == (bottom, right):
        return functional.conv2d(x, op.weight, op.bias, op.stride, (top, left), op.dilation, op.groups)
    padded = functional.pad(x, (left, right, top, bottom))
    return functional.conv2d(padded, op.weight, op.bias, op.stride, 0, op.dilation, op.groups)


def _by_phases(op: Conv, f: Tensor) -> Tensor:
    """A transposed convolution as a plain one, which CPUs do more than twice as fast: output positions that leave the
    same remainder by the stride see the same part of the kernel, so each remainder is a channel of its own.
    """
    outs, ins, height, width = op.weight.shape
    (down, across), taps = op.stride, (-(-height // op.stride[0]), -(-width // op.stride[1]))
    kernel = functional.pad(op.weight, (0, taps[1] * across - width, 0, taps[0] * down - height))
    kernel = kernel.reshape(outs, ins, taps[0], down, taps[1], across).permute(1, 3, 5, 0, 2, 4).flip(4, 5)
    parts = functional.conv2d(f, kernel.reshape(-1, outs, *taps), padding=(taps[0] - 1, taps[1] - 1))
    batch, _, rows, columns = parts.shape
    parts = parts.reshape(batch, ins, down, across, rows, columns).permute(0, 1, 4, 2, 5, 3)
    return parts.reshape(batch, ins, rows * down, columns * across)


def _conv_transpose(op: Conv, shapes: Sequence[Shape], f: Tensor) -> tuple[Tensor]:
    _, height, width = shapes[0]
    top, left, bottom, right = op.padding
    # Build the padded input's functional, then drop the padding: exact for every stride, dilation and padding.
    full = (height + top + bottom, width + left + right)
    reached = [
        (f.shape[-2 + d] - 1) * op.stride[d] + op.dilation[d] * (op.weight.shape[-2 + d] - 1) + 1 for d in (0, 1)
    ]
    if _plain_products(f):
        weight = op.weight.reshape(op.groups, op.weight.shape[0] // op.groups, -1)
        patches = weight.transpose(1, 2) @ f.reshape(f.shape[0], op.groups, weight.shape[1], -1)
        patches = patches.reshape(f.shape[0], -1, patches.shape[-1])
        kernel = (op.weight.shape[2], op.weight.shape[3])
        spread = functional.fold(patches, (reached[0], reached[1]), kernel, op.dilation, 0, op.stride)
    elif f.dtype == torch.float32 and not f.is_cuda and op.groups == 1 and op.dilation == (1, 1):
        spread = _by_phases(op, f)[..., : reached[0], : reached[1]]
    else:
        spread = functional.conv_transpose2d(f, op.weight, None, op.stride, 0, 0, op.groups, op.dilation)
    spread = functional.pad(spread, (0, full[1] - reached[1], 0, full[0] - reached[0]))
    return (spread[..., top : top + height, left : left + width],)


def _select_transpose(op: Select, shapes: Sequence[Shape], f: Tensor) -> tuple[Tensor]:
    batch = f.shape[0]
    flat = f.new_zeros(batch, int(torch.tensor(shapes[0]).prod()))
    return (flat.index_add(1, op.index, f.reshape(batch, -1)).reshape(batch, *shapes[0]),)


APPLY: Mapping[type, Apply] = {
    Input: lambda op, shape, x: x,
    Linear: lambda op, shape, x: functional.linear(x, op.weight, op.bias),
    Conv: _conv,
    Scale: lambda op, shape, x: x * op.factor + op.bias,
    Select: lambda op, shape, x: x.reshape(x.shape[0], -1)[:, op.index].reshape(-1, *shape),
    Reshape: lambda op, shape, x: x.reshape(x.shape[0], *shape),
    Add: lambda op, shape, x, y: x + y,
    Relu: lambda op, shape, x: x.relu(),
}

TRANSPOSE: Mapping[type, Transpose] = {
    Linear: lambda op, shapes, f: (f @ op.weight,),
    Conv: _conv_transpose,
    Scale: lambda op, shapes, f: (f * op.factor,),
    Select: _select_transpose,
    Reshape: lambda op, shapes, f: (f.reshape(f.shape[0], *shapes[0]),),
    Add: lambda op, shapes, f: (f, f),
}


def apply(node: Node, *inputs: Tensor) -> Tensor:
    """One node's value from the values of its inputs, all with a leading batch axis."""
    return APPLY[type(node.op)](node.op, node.shape, *inputs)


def forward(network: Network, x: Tensor) -> list[Tensor]:
    """The value of every node at the points `x` [batch, *input shape]."""
    values: list[Tensor] = []
    for node in network.nodes:
        values.append(apply(node, *(values[i] for i in node.inputs)) if node.inputs else x)
    return values


def evaluate(network: Network, x: Tensor) -> Tensor:
    """Outputs [batch, outputs] at the points `x` [batch, *input shape] (or flat)."""
    return forward(network, x.reshape(-1, *network.input_shape))[-1].reshape(-1, network.outputs)


def bias_term(op: Operator, f: Tensor) -> Tensor | None:
    """What the operator's bias adds to the functional's value, [batch]; None where there is no bias."""
    if isinstance(op, Linear | Scale):
        return (f * op.bias).reshape(f.shape[0], -1).sum(1)
    if isinstance(op, Conv):
        return f.sum((-2, -1)) @ op.bias
    return None


ReluRule = Callable[[int, Tensor], Tensor]  # (ReLU node, functional on its output) -> functional on its input
Visitor = Callable[[int, Tensor], None]


def backward(
    network: Network,
    start: int,
    f: Tensor,
    relu: ReluRule,
    visit: Visitor,
    also: Mapping[int, Tensor] | None = None,
) -> Tensor:
    """Carry the functionals `f` [batch, *shape of start] back to the input, [batch, *input shape].

    `also` adds functionals of earlier nodes to them. `relu` says how a functional passes a ReLU; `visit` sees every
    node that a functional reaches, before it is passed on, and is where constants and error bounds are gathered.
    """
    pending: dict[int, Tensor] = {start: f, **(also or {})}
    for i in range(start, 0, -1):
        if i not in pending:
            continue
        here, node = pending.pop(i), network.nodes[i]
        visit(i, here)
        if isinstance(node.op, Relu):
            passed: tuple[Tensor, ...] = (relu(i, here),)
        else:
            passed = TRANSPOSE[type(node.op)](node.op, [network.nodes[j].shape for j in node.inputs], here)
        for j, g in zip(node.inputs, passed, strict=True):
            pending[j] = pending[j] + g if j in pending else g
    return pending[0] if 0 in pending else f.new_zeros(f.shape[0], *network.input_shape)
