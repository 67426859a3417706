"""What a learnt rule sees: domains and what their relaxation says enter, plain arrays leave.

A `Graph` is what stays the same during a search: the network as the graph that messages travel on, and which of its
ReLUs may be split. A `Scene` is a batch of domains on it, raw and unscaled: what a model makes of it (`features`) is
its own affair, so samples that were stored for one model serve every other. Everything is float32, on the device of
the search, and nothing here is per domain in Python.
"""

from contextlib import AbstractContextManager
from dataclasses import dataclass
from functools import cached_property
from itertools import pairwise

import torch
from torch import Tensor

from bough.domain.arrays import Arrays
from bough.domain.batch import DomainBatch, Relaxation
from bough.network import walk
from bough.network.graph import Network
from bough.problem.problem import Problem

HOST = torch.device("cpu")
CHUNK_ROWS = 256  # of the matrix `Graph.between`, found together


def in_full(device: torch.device) -> AbstractContextManager[object]:
    """Not in mixed precision, whoever asks: for what is worked out once, or is a feature."""
    return torch.autocast(device.type, enabled=False)


@dataclass(frozen=True, eq=False)
class Graph:
    """A network (float32, on the device), and the ReLUs that messages and scores are about.

    What can be known of the edges before any domain is seen is worked out once: whoever decides often keeps the graph.
    """

    network: Network
    neurons: Tensor  # int64 [n]: flat numbers, ascending, of the ReLUs that some domain may split
    passing: Tensor  # bool [neurons of the network]: which of the others are the identity; the rest of them are zero

    @cached_property
    def layers(self) -> tuple[slice, ...]:
        """The part of 0..n-1 that each ReLU layer of the network has; a part may be empty."""
        edges = [part.start for part in self.network.slices.values()] + [self.network.neurons]
        at = torch.searchsorted(self.neurons.cpu(), torch.tensor(edges)).tolist()
        return tuple(slice(a, b) for a, b in pairwise(at))

    @cached_property
    def place(self) -> Tensor:
        """How far towards the output each of the n ReLUs is: 0 in the first ReLU layer, 1 in the last, [n]."""
        last = max(1, len(self.layers) - 1)
        places = [k / last for k, part in enumerate(self.layers) for _ in range(part.start, part.stop)]
        return torch.tensor(places, device=self.neurons.device)

    @cached_property
    def constants(self) -> list[Tensor]:
        """The constant part of every node, given the outputs of the ReLUs before it, each [elements]."""
        nothing = torch.zeros(1, *self.network.input_shape, device=self.neurons.device)
        with in_full(nothing.device):
            values = walk.forward(self.network, nothing, lambda _i, z: torch.zeros_like(z))
        return [value.reshape(-1) for value in values]

    @cached_property
    def bias(self) -> Tensor:
        """The bias of the affine layer in front of each of the n ReLUs, [n]."""
        parts = [self.constants[self.network.nodes[i].inputs[0]] for i in self.network.relus]
        return torch.cat(parts)[self.neurons] if parts else torch.zeros(0, device=self.neurons.device)

    @cached_property
    def elements(self) -> dict[int, Tensor]:
        """The elements of each ReLU node that are among the n, int64, in their order."""
        starts = self.network.slices
        return {i: self.neurons[part] - starts[i].start for i, part in zip(starts, self.layers, strict=True)}

    @cached_property
    def between(self) -> Tensor:
        """[n + outputs, n]: how the input of each of the n ReLUs, then each output, depends on the outputs of earlier
        ones.

        Every other ReLU is substituted, as dual ascent has it (`bounds.reduced`). So whatever the network looked like,
        a message is a product of dense matrices.
        """
        network = self.network
        device = self.neurons.device
        matrix = torch.zeros(len(self.neurons) + network.outputs, len(self.neurons), device=device)
        wanted = [(network.nodes[i].inputs[0], elements) for i, elements in self.elements.items()]
        wanted.append((len(network.nodes) - 1, torch.arange(network.outputs, device=device)))
        chunks = [(node, rows) for node, elements in wanted for rows in elements.split(CHUNK_ROWS) if len(rows)]
        with torch.no_grad(), in_full(device):
            for (node, rows), part in zip(chunks, matrix.split([len(rows) for _, rows in chunks]), strict=True):
                self._fill(part, node, rows)
        return matrix

    def _fill(self, matrix: Tensor, node: int, rows: Tensor) -> None:
        """The rows of some elements of a node."""
        network = self.network
        seed = matrix.new_zeros(len(rows), network.nodes[node].size).scatter_(1, rows[:, None], 1.0)
        places = dict(zip(network.relus, self.layers, strict=True))
        passing = self.passing.index_fill(0, self.neurons, value=False)  # the n are gates of their own, in every domain

        def through(i: int, functionals: Tensor) -> Tensor:
            flat = functionals.flatten(1)
            matrix[:, places[i]] = flat[:, self.elements[i]]
            return (flat * passing[network.slices[i]]).reshape(functionals.shape)

        walk.backward(network, node, seed.reshape(-1, *network.nodes[node].shape), through)

    @staticmethod
    def of(problem: Problem, domains: DomainBatch, relaxed: Relaxation) -> "Graph":
        """The graph of a search, from any of its domains."""
        device = relaxed.neurons.device
        network = problem.network.on(device, torch.float32)
        return Graph(network, relaxed.neurons, (domains.bounds.lower >= 0).all(dim=0).to(device))

    def to(self, device: torch.device) -> "Graph":
        """Move the network and the numbers of ReLUs to a device."""
        return Graph(self.network.on(device, torch.float32), self.neurons.to(device), self.passing.to(device))


@dataclass(frozen=True, eq=False)
class Scene(Arrays):
    """A batch of domains of one search. Arrays about ReLUs are [domains, n], in the order of `Graph.neurons`.

    A ReLU is `ambiguous` where lower < 0 < upper; only such may be chosen. `zero`, `above`, `below`, `through`,
    `before` and `after` are those of `domain.Relaxation`; without a relaxation they are 0.
    """

    lower: Tensor
    upper: Tensor
    zero: Tensor
    above: Tensor
    below: Tensor
    through: Tensor
    before: Tensor
    after: Tensor
    point: Tensor  # [domains, inputs]: where the relaxation has its minimum
    input_lower: Tensor  # [domains, inputs]
    input_upper: Tensor
    functional: Tensor  # [domains, outputs]: what is bounded, but for a constant
    bound: Tensor  # [domains]: the domain's lower bound
    depth: Tensor  # [domains]

    def __len__(self) -> int:
        return len(self.bound)

    @property
    def ambiguous(self) -> Tensor:
        """Which ReLUs may be split, bool [domains, n]."""
        return (self.lower < 0) & (self.upper > 0)

    def named(self) -> dict[str, Tensor]:
        """The arrays by name; `Scene(**arrays)` reads them back."""
        return dict(vars(self))


def see(problem: Problem, domains: DomainBatch, relaxed: Relaxation) -> Scene:
    """What there is to see of the domains."""
    device = relaxed.neurons.device
    neurons = relaxed.neurons
    boxes = torch.tensor([clause.box for clause in problem.clauses], device=device)[domains.clause]
    low, high = (torch.stack([getattr(b, side) for b in problem.property.boxes]) for side in ("lower", "upper"))
    arrays = {
        "lower": domains.bounds.lower[:, neurons],
        "upper": domains.bounds.upper[:, neurons],
        **{name: getattr(relaxed, name) for name in ("zero", "above", "below", "through", "before", "after", "point")},
        "input_lower": low.to(device)[boxes],
        "input_upper": high.to(device)[boxes],
        "functional": domains.functional,
        "bound": domains.lower,
        "depth": domains.depth,
    }
    return Scene(**{name: array.float() for name, array in arrays.items()})
