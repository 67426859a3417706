"""What messages travel on: a graph enters; what can be known of its edges before any domain is seen leaves, kept for
as long as the graph is.

In `Wiring.between` every ReLU that the root decides is substituted, as dual ascent has it (`bounds.reduced`): what is
left is a matrix from ambiguous ReLU to ambiguous ReLU, whatever the network looked like, and a message is a product of
dense matrices.
"""

from contextlib import AbstractContextManager
from dataclasses import dataclass
from functools import cached_property
from weakref import WeakKeyDictionary

import torch
from torch import Tensor

from bough.learning.scene import Graph
from bough.network import walk
from bough.network.graph import Network

CHUNK_ROWS = 256  # of the matrix, found together


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
    def constants(self) -> list[Tensor]:
        """The constant part of every node, given the outputs of the ReLUs before it, each [elements]."""
        nothing = self._like.new_zeros(1, *self.network.input_shape)
        with in_full(self.neurons.device):
            values = walk.forward(self.network, nothing, lambda _i, z: torch.zeros_like(z))
        return [value.reshape(-1) for value in values]

    @cached_property
    def bias(self) -> Tensor:
        """The bias of the affine layer in front of each of the n ReLUs, [n]."""
        parts = [self.constants[self.network.nodes[i].inputs[0]] for i in self.network.relus]
        return torch.cat(parts)[self.neurons] if parts else self._like.new_zeros(0)

    @property
    def output_bias(self) -> Tensor:
        """The outputs' own constants, [outputs]."""
        return self.constants[-1]

    @cached_property
    def elements(self) -> dict[int, Tensor]:
        """The elements of each ReLU node that are among the n, int64, in their order."""
        starts = self.network.slices
        return {i: self.neurons[part] - starts[i].start for i, part in zip(starts, self.layers, strict=True)}

    @cached_property
    def between(self) -> Tensor:
        """[n + outputs, n]: how the input of each ReLU, then each output, depends on the outputs of earlier ones."""
        network = self.network
        n = len(self.neurons)
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
