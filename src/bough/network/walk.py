"""Going through a network, apart from what one does there: one walk forward and one back.

`forward` evaluates every node. `backward` carries linear functionals from a node to the input, and `carry` whatever
else passes an affine operator. What happens at a ReLU is the caller's, since that is where relaxations differ.
"""

from collections.abc import Callable, Mapping, Sequence
from operator import add
from typing import TypeVar

from torch import Tensor

from bough.network.graph import Network
from bough.network.ops import Relu

ReluRule = Callable[[int, Tensor], Tensor]
"""(ReLU node, its input) -> its value; on the way back, (ReLU node, functionals of its value) -> those of its input."""


def forward(network: Network, x: Tensor, relu: ReluRule | None = None) -> list[Tensor]:
    """The value of every node at the points `x` [batch, *input shape]; a rule may replace the ReLUs."""
    values = [x]
    for i, node in enumerate(network.nodes[1:], start=1):
        if relu is not None and isinstance(node.op, Relu):
            values.append(relu(i, values[node.inputs[0]]))
        else:
            values.append(node.op.apply(node.shape, *(values[j] for j in node.inputs)))
    return values


def evaluate(network: Network, x: Tensor) -> Tensor:
    """Outputs [batch, outputs] at the points `x` [batch, *input shape] (or flat)."""
    return forward(network, x.reshape(-1, *network.input_shape))[-1].reshape(-1, network.outputs)


Carried = TypeVar("Carried")
Interval = tuple[Tensor, Tensor]  # middle and radius of functionals that are known only so far


def carry(
    network: Network,
    start: int,
    f: Carried,
    relu: Callable[[int, Carried], Carried],
    affine: Callable[[int, Carried], Sequence[Carried]],
    total: Callable[[Carried, Carried], Carried],
    visit: Callable[[int, Carried], None] | None = None,
    also: Mapping[int, Carried] | None = None,
) -> Carried | None:
    """Carry `f` from node `start` back to the input; None where nothing arrives there.

    `relu` and `affine` say what becomes of it at a ReLU, and for each input of an affine node; `total` joins what meets
    at a node. `visit` sees what arrives at every node but the input, before it is passed on; `also` arrives there, too.
    """
    pending: dict[int, Carried] = {start: f, **(also or {})}
    for i in range(start, 0, -1):
        if i not in pending:
            continue
        carried = pending.pop(i)
        node = network.nodes[i]
        if visit is not None:
            visit(i, carried)
        passed = (relu(i, carried),) if isinstance(node.op, Relu) else affine(i, carried)
        for j, g in zip(node.inputs, passed, strict=True):
            pending[j] = total(pending[j], g) if j in pending else g
    return pending.get(0)


def backward(
    network: Network,
    start: int,
    f: Tensor,
    relu: ReluRule,
    visit: Callable[[int, Tensor], None] | None = None,
    also: Mapping[int, Tensor] | None = None,
) -> Tensor:
    """Carry the functionals `f` [batch, *shape of start] back to the input, [batch, *input shape].

    `visit` is where constants and error bounds are gathered; the rest is as for `carry`.
    """
    g = carry(network, start, f, relu, network.transpose, add, visit, also)
    return f.new_zeros(f.shape[0], *network.input_shape) if g is None else g
