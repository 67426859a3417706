"""Intermediate bounds: what is known of every ReLU's input, at the root and again after splits, as small strategies.

`PaperBounds` follows the authors' code step by step (facts 2.3 and 2.4), so that their branch counts can be reproduced;
`TightBounds` takes the better lower slopes of CROWN and only looks at ReLUs that are still ambiguous.
"""

from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, ClassVar, final

import torch
from torch import Tensor
from typing_extensions import Self

from bough.bounds.interval import UNDERFLOW, Enclosure, enclose
from bough.bounds.linear import Region, bound_elements
from bough.bounds.relaxation import AbstractSlopes, AdaptiveSlopes, ParallelSlopes
from bough.budget import Deadline
from bough.domain.batch import Bounds
from bough.errors import NetworkError
from bough.network.graph import Network
from bough.network.ops import Relu
from bough.problem.property import Box
from bough.registry import Entry, Registry

if TYPE_CHECKING:
    from bough.bounds.deepening import TreePlans
    from bough.bounds.trees import TreeWork
    from bough.bounds.witness import AbstractWitness

REBUILD_THRESHOLD = 1e-4  # facts 2.3: linear bounds are rebuilt when intervals improved some ReLU by more than this


@dataclass(frozen=True, eq=False)
class ClauseBatch:
    """Clauses of one box, about whose unsafe points bounds are wanted: there `rows` @ y <= `offsets` holds."""

    numbers: Tensor  # int64 [clauses], ascending
    rows: Tensor  # [clauses, rows, outputs]; where a clause has fewer, they are 0
    offsets: Tensor  # [clauses, rows]
    bounds: Bounds  # [clauses, neurons], known so far
    deadline: Deadline


class AbstractClauseBounds(ABC):
    """Bounds of ReLUs over one box that need to hold at the unsafe points of a clause only."""

    @abstractmethod
    def tightened(self, clauses: ClauseBatch, work: "TreeWork | None" = None) -> Bounds:
        """Bounds [clauses, neurons] at the unsafe points of these clauses, at least as tight as those given."""


class AbstractIntermediate(ABC):
    """A policy for the bounds that relaxations stand on."""

    @property
    @abstractmethod
    def slopes(self) -> AbstractSlopes:
        """The slopes this policy bounds with, for the output too."""

    @abstractmethod
    def at_root(
        self, network: Network, box: Box, deadline: Deadline, witness: "AbstractWitness | None" = None
    ) -> Region:
        """Bounds of every ReLU over the whole box, as a region of one domain; a witness is told what proves them."""

    @property
    def trees(self) -> "TreePlans | None":
        """The small trees by which roots that stay open are bounded."""
        return None

    def by_trees(
        self,
        network: Network,
        region: Region,
        work: "TreeWork",
        deadline: Deadline,
        witness: "AbstractWitness | None" = None,
    ) -> Region | None:
        """The region with bounds by trees; None where that takes too long."""
        del network, region, work, deadline, witness
        return None

    @property
    def conditional(self) -> bool:
        """Whether the bounds of clauses may leave out safe points."""
        return False

    @property
    def refreshes(self) -> bool:
        """Whether bounds are renewed after splits, so that every domain has its own."""
        return False

    @property
    def uncertified(self) -> str | None:
        """What of these bounds a certificate cannot hold; None where it can hold all."""
        return "that are renewed after splits" if self.refreshes else None

    def unconditional(self) -> "Self":
        """The same policy with bounds that hold at safe points, too."""
        return self

    def for_clauses(
        self, network: Network, region: Region, witness: "AbstractWitness | None" = None
    ) -> AbstractClauseBounds | None:
        """What tightens bounds clause by clause over one box; None where the policy knows no better than the box."""
        del network, region, witness
        return None

    def refreshed(self, network: Network, region: Region, neurons: Tensor, clauses: ClauseBatch) -> Bounds:
        """Bounds after a split, of domains of these clauses (one each), which a policy may make use of."""
        return self.after_split(network, region, neurons, clauses.deadline)

    @abstractmethod
    def after_split(self, network: Network, region: Region, neurons: Tensor, deadline: Deadline) -> Bounds:
        """Bounds after the ReLUs `neurons` [domains, splits] were split; the region already has the bounds of these."""


@dataclass(frozen=True, kw_only=True)
class ReluBoundsEntry(Entry):
    """A policy of ReLU bounds by name."""

    make: Callable[[], AbstractIntermediate]


KNOWN_RELU_BOUNDS = Registry("intermediate bounds", "RELU_BOUNDS", ("bough.bounds",), ReluBoundsEntry)


@final
@dataclass(frozen=True)
class PaperBounds(AbstractIntermediate):
    """Wong-Kolter bounds intersected with interval bounds; after a split, only later layers again."""

    refreshes: ClassVar[bool] = True
    slopes: ClassVar[AbstractSlopes] = ParallelSlopes()

    def at_root(
        self, network: Network, box: Box, deadline: Deadline, witness: "AbstractWitness | None" = None
    ) -> Region:
        """Facts 2.3: linear bounds for all layers, intervals intersected with them, and once more where that helped."""
        del witness  # whoever reads a certificate derives these bounds, too
        region = region_by_intervals(network, box)
        unknown = torch.full_like(region.bounds.lower, torch.inf)
        region = replace(region, bounds=Bounds(-unknown, unknown))
        linear = _sweep(network, region, None, ParallelSlopes(), deadline, only_ambiguous=False)
        region = replace(region, bounds=self._with_intervals(network, replace(region, bounds=linear), deadline))
        return settled(network, region)

    def after_split(self, network: Network, region: Region, neurons: Tensor, deadline: Deadline) -> Bounds:
        """Facts 2.4: linear bounds of the later layers, then intervals, and once more where that helped."""
        linear = _sweep(
            network, region, _only(neurons, region.bounds), ParallelSlopes(), deadline, only_ambiguous=False
        )
        return self._with_intervals(network, replace(region, bounds=linear), deadline)

    @staticmethod
    def _with_intervals(network: Network, region: Region, deadline: Deadline) -> Bounds:
        linear = region.bounds
        both = enclose(network, region.lower, region.upper, linear).relu_inputs(network).intersect(linear)
        gain = torch.maximum(both.lower - linear.lower, linear.upper - both.upper)
        changed = (gain > 0) & (gain > REBUILD_THRESHOLD).any(dim=1, keepdim=True)
        return _sweep(network, replace(region, bounds=both), changed, ParallelSlopes(), deadline, only_ambiguous=False)


@final
@dataclass(frozen=True)
class TightBounds(AbstractIntermediate):
    """Interval, then CROWN and Wong-Kolter bounds where a ReLU is still ambiguous, layer after layer."""

    refresh: bool = True  # after a split, bound the later layers' ambiguous ReLUs again
    slopes: ClassVar[AbstractSlopes] = AdaptiveSlopes()

    @property
    def refreshes(self) -> bool:
        """Whether the policy was made to."""
        return self.refresh

    def at_root(
        self, network: Network, box: Box, deadline: Deadline, witness: "AbstractWitness | None" = None
    ) -> Region:
        """Each layer stands on the tightest bounds of the layers before it."""
        del witness  # whoever reads a certificate derives these bounds, too
        region = region_by_intervals(network, box)
        for slopes in (AdaptiveSlopes(), ParallelSlopes()):
            tight = _sweep(network, region, None, slopes, deadline, only_ambiguous=True)
            region = settled(network, replace(region, bounds=tight))
        return region

    def after_split(self, network: Network, region: Region, neurons: Tensor, deadline: Deadline) -> Bounds:
        """CROWN again for later layers, or the parent's bounds as they are."""
        if not self.refresh:
            return region.bounds
        return _sweep(network, region, _only(neurons, region.bounds), AdaptiveSlopes(), deadline, only_ambiguous=True)


RELU_BOUNDS = (
    ReluBoundsEntry(
        name="tight", words="CROWN for ambiguous ReLUs, renewed after splits", make=lambda: TightBounds(refresh=True)
    ),
    ReluBoundsEntry(
        name="fixed", words="CROWN for ambiguous ReLUs, at the root only", make=lambda: TightBounds(refresh=False)
    ),
    ReluBoundsEntry(
        name="paper", words="as in the code of the paper's authors, renewed after splits", make=PaperBounds
    ),
)


def region_by_intervals(network: Network, box: Box) -> Region:
    """The whole box as a region of one domain, with interval bounds of every ReLU's input."""
    lower, upper = box.lower[None], box.upper[None]
    enclosure = enclose(network, lower, upper)
    return Region(lower, upper, enclosure.relu_inputs(network), *_errors(enclosure), box.ball)


def settled(network: Network, region: Region) -> Region:
    """The same region after one more interval pass, which also gives the smallest magnitudes for the error bounds."""
    enclosure = enclose(network, region.lower, region.upper, region.bounds)
    for node, size in zip(network.nodes, enclosure.magnitude, strict=True):
        # Comparisons with NaN are false, which would make a ReLU look decided: refuse before anything stands on it.
        if not bool(torch.isfinite(size).all()):
            raise NetworkError(f"the values of node '{node.name}' overflow float64 in the box; nothing can be proved")
    bounds = enclosure.relu_inputs(network).intersect(region.bounds)
    magnitude, underflow = _errors(enclosure)
    return replace(region, bounds=bounds, magnitude=magnitude, underflow=underflow)


def _errors(enclosure: Enclosure) -> tuple[list[Tensor], float]:
    """What error bounds are made of: magnitudes, and what underflow can cost at values of that size."""
    magnitude = [m[0] for m in enclosure.magnitude]
    return magnitude, UNDERFLOW * sum(float((m + 1).sum()) for m in magnitude)


def _only(neurons: Tensor, like: Bounds) -> Tensor:
    """A mask [domains, neurons] of a few ReLUs per domain."""
    return torch.zeros_like(like.lower, dtype=torch.bool).scatter(1, neurons, value=True)


def _sweep(
    network: Network,
    region: Region,
    changed: Tensor | None,
    slopes: AbstractSlopes,
    deadline: Deadline,
    *,
    only_ambiguous: bool,
) -> Bounds:
    """Linear bounds layer by layer, intersected with what is known.

    `changed` [domains, neurons] marks ReLUs whose bounds are new; only ReLUs that depend on one of them are bounded
    again, since nothing else can change. `None` bounds them all.
    """
    bounds = region.bounds
    fresh = changed
    reached: dict[int, Tensor] = {0: region.lower.new_zeros(region.lower.shape[0], *network.input_shape)}
    for i, node in enumerate(network.nodes[1:], start=1):
        if not isinstance(node.op, Relu):
            if fresh is not None:  # which elements depend on a ReLU with new bounds: weights' absolute values tell
                reached[i] = (network.radius.apply(i, *(reached[j] for j in node.inputs)) > 0).double()
            continue
        part = network.slices[i]
        source = node.inputs[0]
        wanted = bounds.ambiguous()[:, part] if only_ambiguous else torch.ones_like(bounds.lower[:, part]) > 0
        if fresh is not None:
            wanted = wanted & (reached[source].reshape(wanted.shape) > 0)
        tighter = _bound_layer(network, replace(region, bounds=bounds), i, wanted, slopes, deadline)
        if fresh is not None:
            news = (tighter.lower != bounds.lower) | (tighter.upper != bounds.upper)
            fresh = fresh | news
            reached[i] = ((reached[source] > 0) | fresh[:, part].reshape(reached[source].shape)).double()
        bounds = tighter
    return bounds


def _bound_layer(
    network: Network,
    region: Region,
    relu: int,
    wanted: Tensor,
    slopes: AbstractSlopes,
    deadline: Deadline,
) -> Bounds:
    """One layer's bounds, renewed for the ReLUs that some domain wants."""
    active, elements = wanted.any(dim=1).nonzero()[:, 0], wanted.any(dim=0).nonzero()[:, 0]
    if not len(elements):
        return region.bounds
    active_region = replace(
        region, lower=region.lower[active], upper=region.upper[active], bounds=region.bounds[active]
    )
    new = bound_elements(network, active_region, network.nodes[relu].inputs[0], elements, slopes, deadline)
    lower, upper = region.bounds.lower.clone(), region.bounds.upper.clone()
    at = (active[:, None], network.slices[relu].start + elements[None])
    # A domain that did not want an element keeps what it had: a domain's bounds must not depend on its batch.
    wanted_there = wanted[active][:, elements]
    lower[at] = torch.where(wanted_there, torch.fmax(lower[at], new.lower), lower[at])
    upper[at] = torch.where(wanted_there, torch.fmin(upper[at], new.upper), upper[at])
    return Bounds(lower, upper)
