"""Named columns: a graph and a scene enter, features of ReLUs and of the output leave (Appendix B; facts 4.2).

Columns are raw; `ScaledRelus` and `ScaledOutput` are the view of our own models: what is measured in units of the
bound is divided by it, everything is compressed, then standardised by figures of the training data. Whatever a scene
holds, no column is ever NaN or infinite.

Glossary, at one ReLU with input z in [l, u] and output x: nu is the coefficient on x of what is bounded, `slope` and
`intercept` are those of the chord from (l, 0) to (u, u), `above`, `below` and `zero` the multipliers of x >= z,
x <= chord(z) and x >= 0. `d1` and `-d2` of facts 4.2 are `above` and `below`.
"""

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import ClassVar, final

import torch
from torch import Tensor, nn

from bough.bounds.relaxation import chord
from bough.learning.model import AbstractModel
from bough.learning.scene import Graph, Scene, in_full
from bough.network import walk

LARGEST = 1e6  # in size, of any raw column: what is larger or not known would only drown the others
LEAST_BOUND = 1e-6  # in size, that products are divided by
NEARLY = 1e-3  # of a domain's largest reach: what is nearer to a proof than that looks as if it were as far
OUTLIER = 10.0  # standard deviations: what lies beyond tells no more


@dataclass(frozen=True, eq=False)
class View:
    """A scene on its graph, and what columns share; arrays about ReLUs are [domains, n], all finite."""

    graph: Graph
    scene: Scene
    reduced: bool = False  # for a model that is to see no primal and dual values

    _seen: dict[str, Tensor] = field(default_factory=dict, init=False, repr=False)

    def seen(self, name: str) -> Tensor:
        """An array of the scene, without what is no number."""
        if name not in self._seen:
            self._seen[name] = finite(getattr(self.scene, name))
        return self._seen[name]

    @cached_property
    def ambiguous(self) -> Tensor:
        """Which ReLUs may be split, bool."""
        return (self.seen("lower") < 0) & (self.seen("upper") > 0)

    @cached_property
    def slope(self) -> Tensor:
        """Alpha of Appendix B.1.2: of the chord; 0 for blocked ReLUs, 1 for passing ones."""
        return chord(self.seen("lower"), self.seen("upper"))

    @cached_property
    def intercept(self) -> Tensor:
        """The chord's beta (Eq. 15): -l u / (u - l) where ambiguous, 0 elsewhere."""
        return torch.where(self.ambiguous, -self.seen("lower") * self.slope, 0.0)

    @cached_property
    def width(self) -> Tensor:
        """The length of [l, u], above 0."""
        return (self.seen("upper") - self.seen("lower")).clamp(min=1 / LARGEST)

    @cached_property
    def coefficient(self) -> Tensor:
        """nu, 0 where not ambiguous."""
        return self.seen("zero") + self.seen("above") - self.seen("below")

    @cached_property
    def lift(self) -> Tensor:
        """How far x is above relu(z), 0 where not ambiguous."""
        return torch.where(self.ambiguous, self.seen("after") - self.seen("before").relu(), 0.0)

    @cached_property
    def gap(self) -> Tensor:
        """The relaxation's part in the bound at the primal point: nu times the lift."""
        return self.coefficient * self.lift

    @cached_property
    def reach(self) -> Tensor:
        """What a ReLU's chord may cost the bound, or gain it: nu times the intercept."""
        return self.coefficient * self.intercept

    @cached_property
    def way(self) -> Tensor:
        """|bound|, above 0, [domains]: what has to be gained.

        Divided by next to nothing, the features of a domain that is all but proved would all be outliers, and the
        choice junk; so it counts as no less than a small share of what one ReLU can cost.
        """
        way = self.seen("bound").abs().clamp(min=LEAST_BOUND)
        if self.reduced or not self.reach.shape[1]:
            return way
        return torch.maximum(way, NEARLY * self.reach.abs().amax(dim=1))

    @cached_property
    def value(self) -> Tensor:
        """The functional at the network's own output for the primal point, [domains]."""
        with in_full(self.seen("point").device):
            outputs = walk.evaluate(self.graph.network, self.seen("point"))
        return (self.seen("functional") * finite(outputs)).sum(dim=1)

    def babsr(self, reduce: Callable[[Tensor, Tensor], Tensor]) -> Tensor:
        """|reduce(b nu (a - 1), b nu a) + min(nu, 0) beta| (facts 3.1)."""
        steep = self.graph.bias * self.coefficient
        gain = reduce(steep * (self.slope - 1), steep * self.slope) + self.coefficient.clamp(max=0) * self.intercept
        return torch.where(self.ambiguous, gain.abs(), 0.0)


def finite(x: Tensor) -> Tensor:
    """The same without what is no number or beyond `LARGEST`."""
    return x.nan_to_num(0.0, LARGEST, -LARGEST).clamp(-LARGEST, LARGEST)


def _ratio(part: Tensor, whole: Tensor) -> Tensor:
    """0 where there is no whole."""
    some = whole.abs() > 1 / LARGEST
    return torch.where(some, part / torch.where(some, whole, 1.0), 0.0)


Column = Callable[[View], Tensor]

RELU: Mapping[str, Column] = {
    "lower": lambda v: v.seen("lower"),
    "upper": lambda v: v.seen("upper"),
    "intercept": lambda v: v.intercept,  # beta (Appendix B.1.2)
    "bias": lambda v: v.graph.bias.expand_as(v.slope),
    "before": lambda v: v.seen("before"),  # primal value of z
    "after": lambda v: v.seen("after"),  # primal value of x
    "dual": lambda v: v.seen("above") + v.seen("below"),  # the one dual feature that the authors' code has
    "above": lambda v: v.seen("above"),
    "below": lambda v: v.seen("below"),
    "coefficient": lambda v: v.coefficient,  # nu
    "slope": lambda v: v.slope,  # alpha of Appendix B.1.2
    # The share of nu > 0 that x >= z takes: the lower line's slope.
    "alpha": lambda v: _ratio(v.seen("above"), v.coefficient.clamp(min=0)),
    "position": lambda v: v.seen("before") / v.width,  # z in units of u - l
    "lift": lambda v: _ratio(v.lift, v.intercept),  # how far x is above the ReLU at z, in units of the intercept
    # The relaxation's loss (BaBSR's intercept score t).
    "drop": lambda v: v.coefficient.clamp(max=0) * v.intercept,
    "reach": lambda v: v.reach,  # nu intercept
    "gap": lambda v: v.gap,  # nu (x - relu(z))
    # The gap in units of all gaps of the domain.
    "share": lambda v: _ratio(v.gap, v.gap.abs().sum(dim=1, keepdim=True)),
    "bias_term": lambda v: v.coefficient * v.graph.bias,
    "score": lambda v: v.babsr(torch.maximum),  # BaBSR's s (facts 3.1), by the nu that the relaxation has
    "worse_score": lambda v: v.babsr(torch.minimum),  # the same by the worse child
    "place": lambda v: v.graph.place.expand_as(v.slope),  # of the layer, 0 to 1
    "depth": lambda v: v.seen("depth")[:, None].expand_as(v.slope),  # of the domain
}
"""Features of an activation node: a ReLU with its input."""

OUTPUT: Mapping[str, Column] = {
    "bound": lambda v: v.seen("bound"),
    # The functional at the network's own output for the primal point: the paper's upper bound.
    "value": lambda v: v.value,
    "relaxed": lambda v: v.seen("bound"),  # the relaxation's minimum, which is the bound
    "bias": lambda v: v.seen("functional") @ v.graph.constants[-1],  # of the last layer, merged with the functional
}
"""Features of the output node; the clause's offset is in the bound, and not in the functional's own values."""

# What stays without primal and dual values (the paper's GNN-R) is bounds, biases, and what is made of these.
REDUCED_RELU = ("lower", "upper", "intercept", "bias", "slope", "place", "depth")
REDUCED_OUTPUT = ("bound", "bias")


def stacked(view: View, table: Mapping[str, Column], columns: Iterable[str]) -> Tensor:
    """Raw features by a table, [domains, columns] of the output node and [domains, n, columns] of ReLUs."""
    return finite(torch.stack([table[column](view) for column in columns], dim=-1))


def compressed(x: Tensor) -> Tensor:
    """sign(x) log(1 + |x|): products span many powers of ten."""
    return x.sign() * x.abs().log1p()


@final
class Standard(nn.Module):
    """Mean 0 and spread 1 on the training data; until that was seen, as it comes."""

    mean: Tensor
    spread: Tensor

    def __init__(self, columns: int) -> None:
        super().__init__()
        self.register_buffer("mean", torch.zeros(columns))
        self.register_buffer("spread", torch.ones(columns))
        self._sums = torch.zeros(3, columns, dtype=torch.float64)

    def forward(self, x: Tensor) -> Tensor:
        """Standardise features [..., columns]."""
        return ((x - self.mean) / self.spread).clamp(-OUTLIER, OUTLIER)

    def add(self, x: Tensor) -> None:
        """Take note of rows [rows, columns]."""
        x = x.double()
        self._sums = self._sums + torch.stack([torch.full_like(x[:1].sum(0), len(x)), x.sum(0), (x * x).sum(0)]).cpu()

    def settle(self) -> None:
        """Make figures of what was noted, and forget it; a column that never changes stays as it is, at 0."""
        count, total, squares = self._sums
        self._sums = torch.zeros_like(self._sums)
        if count.sum() == 0:
            return
        mean = total / count
        spread = (squares / count - mean * mean).clamp(min=0).sqrt()
        self.mean.copy_(mean)
        self.spread.copy_(torch.where(spread > 1e-6, spread, 1.0))


class AbstractScaled(nn.Module, ABC):
    """A scaled view of some nodes, with figures that are fitted."""

    products: ClassVar[tuple[str, ...]]  # columns in units of the bound, by which they are divided
    in_units: Tensor  # bool [columns]: which of them are

    def __init__(self, columns: Sequence[str]) -> None:
        super().__init__()
        self.columns = tuple(columns)
        self.standard = Standard(len(columns))
        self.register_buffer("in_units", torch.tensor([name in self.products for name in columns]), persistent=False)

    def forward(self, view: View) -> Tensor:
        """Scaled features, [..., domains, columns]."""
        standard: Tensor = self.standard(self.compressed(view))
        return standard

    def compressed(self, view: View) -> Tensor:
        """What is to be standardised: raw features, what is in units of the bound divided by it, compressed."""
        raw = self.raw(view)
        return compressed(torch.where(self.in_units, raw / view.way[:, None], raw))

    def rows(self, view: View) -> Tensor:
        """What figures are fitted to, [rows, columns]."""
        return self.compressed(view)

    @abstractmethod
    def raw(self, view: View) -> Tensor:
        """Raw features [..., domains, columns]."""


@final
class ScaledRelus(AbstractScaled):
    """The ReLUs of a scene for our own models."""

    products = ("drop", "reach", "gap", "bias_term", "score", "worse_score")

    def rows(self, view: View) -> Tensor:
        """Features of ambiguous ReLUs only: nothing else is scored."""
        return self.compressed(view)[view.ambiguous.T]

    def raw(self, view: View) -> Tensor:
        """Raw features [n, domains, columns].

        Nodes come first, so that a layer is a piece of memory, and a message one product.
        """
        return torch.stack([RELU[column](view).T for column in self.columns], dim=-1)


@final
class ScaledOutput(AbstractScaled):
    """The output node of a scene for our own models."""

    products = ("value", "bias")

    def raw(self, view: View) -> Tensor:
        """Raw features [domains, columns]."""
        return stacked(view, OUTPUT, self.columns)


def fit(model: nn.Module, seen: Iterable[tuple[Graph, Scene]]) -> None:
    """Fit the figures of every scaled view inside a model, in one pass; a model without any is left alone."""
    scaled = [module for module in model.modules() if isinstance(module, AbstractScaled)]
    if not scaled:
        return
    reduced = isinstance(model, AbstractModel) and model.settings.reduced
    with torch.no_grad():
        for graph, scene in seen:
            view = View(graph, scene, reduced)
            for module in scaled:
                module.standard.add(module.rows(view))
        for module in scaled:
            module.standard.settle()
