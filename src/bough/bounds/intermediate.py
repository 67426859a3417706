"""Intermediate bounds: what is known of every ReLU's input, at the root and again after splits, as small strategies.

`PaperBounds` follows the authors' code step by step (facts 2.3 and 2.4), so that their branch counts can be reproduced;
`TightBounds` takes the better lower slopes of CROWN and only looks at ReLUs that are still ambiguous.
"""

from abc import ABC, abstractmethod
from dataclasses import dataclass, replace
from typing import final

import torch
from torch import Tensor

from bough.bounds.interval import Enclosure, enclose
from bough.bounds.linear import Region, bound_elements
from bough.bounds.relaxation import AbstractSlopes, AdaptiveSlopes, ParallelSlopes
from bough.budget import Deadline
from bough.domain.batch import Bounds
from bough.network.graph import Network
from bough.problem.property import Box

REBUILD_THRESHOLD = 1e-4  # facts 2.3: linear bounds are rebuilt when intervals improved some ReLU by more than this


class AbstractIntermediate(ABC):
    """A policy for the bounds that relaxations stand on."""

    @property
    @abstractmethod
    def slopes(self) -> AbstractSlopes:
        """The slopes this policy bounds with, for the output too."""

    @abstractmethod
    def at_root(self, network: Network, box: Box, deadline: Deadline) -> Region:
        """Bounds of every ReLU over the whole box, as a region of one domain."""

    @abstractmethod
    def after_split(self, network: Network, where: Region, layers: Tensor, deadline: Deadline) -> Bounds:
        """Bounds after each domain of `where` split a ReLU in layer `layers` [domains], whose own bounds are already set."""


@final
@dataclass(frozen=True)
class PaperBounds(AbstractIntermediate):
    """Wong-Kolter bounds intersected with interval bounds; after a split, only later layers again."""

    @property
    def slopes(self) -> AbstractSlopes:
        """The chord on both sides."""
        return ParallelSlopes()

    def at_root(self, network: Network, box: Box, deadline: Deadline) -> Region:
        """Facts 2.3: linear bounds for all layers, intervals intersected with them, and once more where that helped."""
        where = _start(network, box)
        unknown = torch.full_like(where.bounds.lower, torch.inf)
        where = replace(where, bounds=Bounds(-unknown, unknown))
        linear = _sweep(network, where, torch.zeros(1), ParallelSlopes(), deadline, only_ambiguous=False)
        where = replace(where, bounds=self._with_intervals(network, replace(where, bounds=linear), deadline))
        return _settled(network, where)

    def after_split(self, network: Network, where: Region, layers: Tensor, deadline: Deadline) -> Bounds:
        """Facts 2.4: linear bounds of the later layers, then intervals, and once more where that helped."""
        linear = _sweep(network, where, layers + 1, ParallelSlopes(), deadline, only_ambiguous=False)
        return self._with_intervals(network, replace(where, bounds=linear), deadline)

    @staticmethod
    def _with_intervals(network: Network, where: Region, deadline: Deadline) -> Bounds:
        linear = where.bounds
        both = enclose(network, where.lower, where.upper, linear).relu_inputs(network)
        gain = torch.maximum(both.lower - linear.lower, linear.upper - both.upper) > REBUILD_THRESHOLD
        improved = torch.stack([gain[:, s].any(dim=1) for s in network.slices.values()], dim=1)  # [domains, layers]
        first = torch.where(improved.any(dim=1), improved.int().argmax(dim=1), len(network.relus))
        return _sweep(network, replace(where, bounds=both), first + 1, ParallelSlopes(), deadline, only_ambiguous=False)


@final
@dataclass(frozen=True)
class TightBounds(AbstractIntermediate):
    """Interval, then CROWN and Wong-Kolter bounds where a ReLU is still ambiguous, layer after layer."""

    refresh: bool = True  # after a split, bound the later layers' ambiguous ReLUs again

    @property
    def slopes(self) -> AbstractSlopes:
        """Adaptive lower slopes."""
        return AdaptiveSlopes()

    def at_root(self, network: Network, box: Box, deadline: Deadline) -> Region:
        """Each layer stands on the tightest bounds of the layers before it."""
        where = _start(network, box)
        for slopes in (AdaptiveSlopes(), ParallelSlopes()):
            tight = _sweep(network, where, torch.zeros(1), slopes, deadline, only_ambiguous=True)
            where = _settled(network, replace(where, bounds=tight))
        return where

    def after_split(self, network: Network, where: Region, layers: Tensor, deadline: Deadline) -> Bounds:
        """CROWN again for later layers, or the parent's bounds as they are."""
        if not self.refresh:
            return where.bounds
        return _sweep(network, where, layers + 1, AdaptiveSlopes(), deadline, only_ambiguous=True)


def _start(network: Network, box: Box) -> Region:
    lower, upper = box.lower[None], box.upper[None]
    enclosure = enclose(network, lower, upper)
    return Region(lower, upper, enclosure.relu_inputs(network), _magnitudes(enclosure))


def _settled(network: Network, where: Region) -> Region:
    """The same region after one more interval pass, which also gives the smallest magnitudes for the error bounds."""
    enclosure = enclose(network, where.lower, where.upper, where.bounds)
    return replace(where, bounds=enclosure.relu_inputs(network), magnitude=_magnitudes(enclosure))


def _magnitudes(enclosure: Enclosure) -> list[Tensor]:
    return [m[0] for m in enclosure.magnitude]


def _sweep(
    network: Network, where: Region, first: Tensor, slopes: AbstractSlopes, deadline: Deadline, *, only_ambiguous: bool
) -> Bounds:
    """Linear bounds layer by layer, intersected with what is known; domain d starts at its own layer `first[d]`."""
    bounds = where.bounds
    for layer, i in enumerate(network.relus):
        active = (first <= layer).nonzero()[:, 0]
        part, source = network.slices[i], network.nodes[i].inputs[0]
        if not len(active):
            continue
        known = Bounds(bounds.lower[active], bounds.upper[active])
        wanted = known.ambiguous()[:, part].any(dim=0) if only_ambiguous else torch.ones(part.stop - part.start) > 0
        elements = wanted.nonzero()[:, 0]
        if not len(elements):
            continue
        here = Region(where.lower[active], where.upper[active], known, where.magnitude)
        fresh = bound_elements(network, here, source, elements, slopes, deadline)
        lower, upper = bounds.lower.clone(), bounds.upper.clone()
        at = (active[:, None], part.start + elements[None])
        lower[at] = torch.maximum(lower[at], fresh.lower)
        upper[at] = torch.minimum(upper[at], fresh.upper)
        bounds = Bounds(lower, upper)
    return bounds
