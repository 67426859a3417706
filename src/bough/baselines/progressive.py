"""Bounds tightened progressively (Tjeng et al. 2019): interval, linear, LP; each where the last left a ReLU undecided.

"How low can z_j be" is the Planet LP's own question, of the network cut off at z_j with the clause z_j <= 0; so
`PlanetLP` answers it, and every bound is proved from the LP's duals like any other.
"""

from dataclasses import dataclass, replace
from typing import Any, final

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from bough.bounds.intermediate import AbstractIntermediate, TightBounds, settled
from bough.bounds.linear import Region
from bough.bounds.lp import PlanetLP
from bough.bounds.relaxation import AbstractSlopes
from bough.bounds.witness import AbstractWitness
from bough.budget import Deadline
from bough.domain.batch import Bounds
from bough.network.graph import Network, Node
from bough.network.ops import Reshape, Select
from bough.problem.problem import Problem
from bough.problem.property import Box, Clause, Property

INITIAL = TightBounds(refresh=False)  # the bounds that are tightened
CHUNK = 256  # a LP model has at most this many ReLU inputs as its outputs: more take more memory


class AbstractRootBounds(AbstractIntermediate):
    """A policy that bounds at the root only."""

    @property
    def slopes(self) -> AbstractSlopes:
        """Slopes of the bounds that are tightened."""
        return INITIAL.slopes

    def after_split(self, network: Network, region: Region, neurons: Tensor, deadline: Deadline) -> Bounds:
        """Keep the parent's bounds as they are."""
        del network, neurons, deadline
        return region.bounds


@final
@dataclass(frozen=True)
class ProgressiveBounds(AbstractRootBounds):
    """Interval and linear bounds at the root, tightened by two LPs for each ReLU that they leave ambiguous."""

    def at_root(self, network: Network, box: Box, deadline: Deadline, witness: AbstractWitness | None = None) -> Region:
        """Tighten layer after layer; the first layer's intervals are exact already."""
        region = INITIAL.at_root(network, box, deadline, witness)
        for i in network.relus[1:]:
            region = replace(region, bounds=_tightened(network, box, region.bounds, i, deadline))
        return settled(network, region)


@final
@dataclass(frozen=True, eq=False)
class _Known(AbstractRootBounds):
    """Bounds that are known already."""

    bounds: Bounds

    def at_root(self, network: Network, box: Box, deadline: Deadline, witness: AbstractWitness | None = None) -> Region:
        del deadline, witness
        return settled(network, Region(box.lower[None], box.upper[None], self.bounds, [], 0.0, box.ball))


def _tightened(network: Network, box: Box, known: Bounds, relu: int, deadline: Deadline) -> Bounds:
    """The bounds with those of one layer tightened; a ReLU that its lower bound decides needs no upper one."""
    part = network.slices[relu]
    source = network.nodes[relu].inputs[0]
    lower, upper = known.lower.clone(), known.upper.clone()
    for elements in known.ambiguous()[0, part].nonzero()[:, 0].split(CHUNK):
        least = _least(network, box, known, source, elements, 1.0, deadline)
        neurons = part.start + elements
        lower[0, neurons] = torch.fmax(lower[0, neurons], least)
        undecided = elements[lower[0, neurons] < 0]
        greatest = -_least(network, box, known, source, undecided, -1.0, deadline)
        upper[0, part.start + undecided] = torch.fmin(upper[0, part.start + undecided], greatest)
    return Bounds(lower, upper)


def _least(
    network: Network, box: Box, known: Bounds, source: int, elements: Tensor, sign: float, deadline: Deadline
) -> Tensor:
    """Proved lower bounds of `sign` times some elements of a node; above 0 as far as that is known only."""
    if not len(elements):
        return known.lower.new_zeros(0)
    cut = _cut(network, source, elements)
    rows = sign * torch.eye(len(elements), dtype=torch.float64)
    clauses = tuple(Clause(0, row[None], torch.zeros(1, dtype=torch.float64), (False,)) for row in rows)
    bounds = Bounds(known.lower[:, : cut.neurons], known.upper[:, : cut.neurons])
    bounding = PlanetLP(_Known(bounds)).prepare(Problem(cut, Property((box,), clauses), _Nobody()))
    return bounding.root(0.0, deadline).domains.lower


def _cut(network: Network, source: int, elements: Tensor) -> Network:
    """The network whose outputs are some elements of a node."""
    nodes = network.nodes[: source + 1]
    flat = Node(Reshape(), (source,), (nodes[source].size,), "flat")
    return Network((*nodes, flat, Node(Select(elements), (source + 1,), (len(elements),), "bounded")))


class _Nobody:
    """No runtime at all, since a network cut off has none and no counterexample of it is looked for."""

    name = "nobody"
    dtype: np.dtype[np.floating[Any]] = np.dtype(np.float64)

    def run(self, x: NDArray[np.floating[Any]]) -> NDArray[np.floating[Any]]:
        raise NotImplementedError(x.shape)
