"""What messages travel on: a graph enters; what can be known of its edges before any domain is seen leaves, kept for
as long as the graph is.

There are two ways along the edges. `onward` and `back` follow the network's own operators, all ReLUs taking part, as
the paper's messages do: embedding dimensions are part of the batch. `Wiring.between` has every ReLU that the root
decides substituted, as dual ascent has it (`bounds.reduced`): what is left is a matrix from ambiguous ReLU to
ambiguous ReLU, whatever the network looked like, and a message is a product of dense matrices.
"""

from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager
from dataclasses import dataclass
from functools import cached_property
from operator import add
from weakref import WeakKeyDictionary

import torch
from torch import Tensor

from bough.learning.scene import Graph
from bough.network import walk
from bough.network.graph import Network
from bough.network.ops import Conv, Relu

CHUNK_ROWS = 256  # of the matrix, found together

Update = Callable[[int, Tensor], Tensor]  # (ReLU node, what arrives [batch, *shape]) -> what it sends, of that shape


def in_full(device: torch.device) -> AbstractContextManager[object]:
    """Not in mixed precision, whoever asks: for what is worked out once, or is a feature."""
    return torch.autocast(device.type, enabled=False)


@dataclass(frozen=True, eq=False)
class Wiring:
    """The edges of a graph. It holds parts of the graph and not the graph, so that it goes when the graph goes."""

    network: Network
    neurons: Tensor
    passing: Tensor  # bool [neurons of the network]: ReLUs outside `neurons` that are the identity
    layers: tuple[slice, ...]

    @cached_property
    def linear(self) -> Network:
        """The network without its biases: they are features of nodes, and no part of a message."""
        return self.network.linear_part(len(self.network.nodes) - 1)

    @cached_property
    def constants(self) -> tuple[Tensor, ...]:
        """The constant part of every node, given the outputs of the ReLUs before it, each [elements]."""
        nothing = self._like.new_zeros(1, *self.network.input_shape)
        with in_full(self.neurons.device):
            values = walk.forward(self.network, nothing, lambda _i, z: torch.zeros_like(z))
        return tuple(value.reshape(-1) for value in values)

    @cached_property
    def bias(self) -> Tensor:
        """Of the affine layer in front of each of the n ReLUs, [n]."""
        parts = [self.constants[self.network.nodes[i].inputs[0]] for i in self.network.relus]
        return torch.cat(parts)[self.neurons] if parts else self._like.new_zeros(0)

    @property
    def output_bias(self) -> Tensor:
        """The outputs' own constants, [outputs]."""
        return self.constants[-1]

    @cached_property
    def elements(self) -> dict[int, Tensor]:
        """Of each ReLU node, which of its elements are among the n, int64; in their order."""
        starts = self.network.slices
        return {i: self.neurons[part] - starts[i].start for i, part in zip(starts, self.layers, strict=True)}

    @cached_property
    def connections(self) -> dict[int, Tensor]:
        """Of each convolution, to how many of its outputs each element of its input is connected; 1 where to none."""
        found = {}
        for i, node in enumerate(self.network.nodes):
            if isinstance(node.op, Conv):
                ones = node.op.changed(torch.ones_like, lambda *biases: biases)
                with in_full(self.neurons.device):
                    (count,) = ones.transpose(self.network.affine[i][1], self._like.new_ones(1, *node.shape))
                found[i] = count.round().clamp(min=1)
        return found

    @cached_property
    def taps(self) -> dict[int, Tensor]:
        """As `connections`, but an output position counts once for all of its channels, and convolutions that look at
        the input are left out: what the authors' code divides by (facts 4.5).
        """
        after = self._after_relu
        found = {}
        for i, count in self.connections.items():
            op = self.network.nodes[i].op
            if after[i] and isinstance(op, Conv):
                found[i] = (count / (op.weight.shape[0] // op.groups)).clamp(min=1)
        return found

    @cached_property
    def between(self) -> Tensor:
        """[n + outputs, n]: how the input of each ReLU, then each output, depends on the outputs of earlier ones."""
        network, n = self.network, len(self.neurons)
        matrix = self._like.new_zeros(n + network.outputs, n)
        sources = [(network.nodes[i].inputs[0], self.elements[i], self.layers[k].start) for k, i in self._numbered]
        last = len(network.nodes) - 1
        with torch.no_grad(), in_full(matrix.device):
            for node, elements, start in [*sources, (last, torch.arange(network.outputs, device=matrix.device), n)]:
                for k, rows in enumerate(elements.split(CHUNK_ROWS) if len(elements) else ()):
                    first = start + k * CHUNK_ROWS
                    self._fill(matrix[first : first + len(rows)], node, rows)
        return matrix

    def _fill(self, matrix: Tensor, node: int, rows: Tensor) -> None:
        """The rows of some elements of a node."""
        seed = matrix.new_zeros(len(rows), self.network.nodes[node].size).scatter_(1, rows[:, None], 1.0)
        numbered = {i: k for k, i in self._numbered}

        def through(i: int, here: Tensor) -> Tensor:
            flat = here.reshape(len(rows), -1)
            matrix[:, self.layers[numbered[i]]] = flat[:, self.elements[i]]
            return (flat * self.passing[self.network.slices[i]]).reshape(here.shape)

        shape = self.network.nodes[node].shape
        walk.backward(self.network, node, seed.reshape(-1, *shape), through)

    @property
    def _numbered(self) -> list[tuple[int, int]]:
        return list(enumerate(self.network.relus))

    @property
    def _after_relu(self) -> list[bool]:
        """Of each node, whether a ReLU stands between it and the input."""
        found: list[bool] = []
        for node in self.network.nodes:
            found.append(any(found[j] or isinstance(self.network.nodes[j].op, Relu) for j in node.inputs))
        return found

    @property
    def _like(self) -> Tensor:
        """A tensor of the device."""
        return torch.zeros(0, dtype=torch.float32, device=self.neurons.device)


_KEPT: "WeakKeyDictionary[Graph, Wiring]" = WeakKeyDictionary()


def wiring(graph: Graph) -> Wiring:
    """The graph's edges, worked out once: whoever decides often keeps the graph."""
    if graph not in _KEPT:
        passing = graph.passing.clone()
        passing[graph.neurons] = False  # these are gates of their own, in every domain
        _KEPT[graph] = Wiring(graph.network, graph.neurons, passing, graph.layers)
    return _KEPT[graph]


def onward(wires: Wiring, at_input: Tensor, relu: Update) -> Tensor:
    """Carry messages [batch, *input shape] to the output, [batch, *output shape]; ReLUs send what `relu` says."""
    return walk.forward(wires.linear, at_input, relu)[-1]


def back(wires: Wiring, at_output: Tensor, relu: Update, shares: Mapping[int, Tensor]) -> Tensor:
    """Carry messages [batch, *output shape] to the input, along transposed operators; ReLUs send what `relu` says.

    What comes back through a node in `shares` is divided by what stands there.
    """
    network = wires.linear
    last = len(network.nodes) - 1

    def affine(i: int, here: Tensor) -> tuple[Tensor, ...]:
        passed = network.transpose(i, here)
        return tuple(g / shares[i] for g in passed) if i in shares else passed

    # A ReLU that nothing looks at hears nothing, and still has an embedding.
    unread = set(range(1, last)).difference(*(node.inputs for node in network.nodes))
    silent = {i: at_output.new_zeros(at_output.shape[0], *network.nodes[i].shape) for i in unread}
    arrived = walk.carry(network, last, at_output, relu, affine, add, also=silent)
    return at_output.new_zeros(at_output.shape[0], *network.input_shape) if arrived is None else arrived
