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
from dataclasses import dataclass
from enum import Enum
from functools import cached_property
from typing import final

import torch
from torch import Tensor, nn

from bough.bounds.relaxation import chord
from bough.errors import BadInput
from bough.learning.model import AbstractModel
from bough.learning.scene import Graph, Scene
from bough.learning.wiring import Wiring, in_full, wiring
from bough.network import walk

LARGEST = 1e6  # in size, of any raw column: what is larger or not known would only drown the others
LEAST_BOUND = 1e-6  # in size, that products are divided by
NEARLY = 1e-3  # of a domain's largest reach: what is nearer to a proof than that looks as if it were as far
OUTLIER = 10.0  # standard deviations: what lies beyond tells no more


class ReluColumn(Enum):
    """A feature of an activation node: a ReLU with its input."""

    LOWER = "lower"
    UPPER = "upper"
    INTERCEPT = "intercept"  # beta (Appendix B.1.2)
    BIAS = "bias"
    BEFORE = "before"  # primal value of z
    AFTER = "after"  # primal value of x
    DUAL = "dual"  # above + below, the one dual feature that the authors' code has
    ABOVE = "above"
    BELOW = "below"
    COEFFICIENT = "coefficient"  # nu
    SLOPE = "slope"  # alpha of Appendix B.1.2
    ALPHA = "alpha"  # the share of nu > 0 that x >= z takes: the lower line's slope
    POSITION = "position"  # z in units of u - l
    LIFT = "lift"  # how far x is above the ReLU at z, in units of the intercept
    DROP = "drop"  # min(nu, 0) intercept: the relaxation's loss (BaBSR's intercept score t)
    REACH = "reach"  # nu intercept
    GAP = "gap"  # nu (x - relu(z)): the relaxation's part in the bound at the primal point
    SHARE = "share"  # the gap in units of all gaps of the domain
    BIAS_TERM = "bias_term"  # bias nu
    SCORE = "score"  # BaBSR's s (facts 3.1), by the nu that the relaxation has
    WORSE_SCORE = "worse_score"  # the same by the worse child
    PLACE = "place"  # of the layer, 0 to 1
    DEPTH = "depth"  # of the domain


class OutputColumn(Enum):
    """A feature of the output node; the clause's offset is in the bound, and not in the functional's own values."""

    BOUND = "bound"
    VALUE = "value"  # the functional at the network's own output for the primal point: the paper's upper bound
    RELAXED = "relaxed"  # the relaxation's minimum, which is the bound
    BIAS = "bias"  # of the last layer, merged with the functional


# What stays without primal and dual values (the paper's GNN-R) is bounds, biases, and what is made of these.
REDUCED_RELU = (
    ReluColumn.LOWER,
    ReluColumn.UPPER,
    ReluColumn.INTERCEPT,
    ReluColumn.BIAS,
    ReluColumn.SLOPE,
    ReluColumn.PLACE,
    ReluColumn.DEPTH,
)
REDUCED_OUTPUT = (OutputColumn.BOUND, OutputColumn.BIAS)

IN_UNITS_OF_THE_BOUND = frozenset(
    {
        ReluColumn.DROP,
        ReluColumn.REACH,
        ReluColumn.GAP,
        ReluColumn.BIAS_TERM,
        ReluColumn.SCORE,
        ReluColumn.WORSE_SCORE,
        OutputColumn.VALUE,
        OutputColumn.BIAS,
    }
)


@dataclass(frozen=True, eq=False)
class View:
    """A scene on its graph, and what columns share; arrays about ReLUs are [domains, n], all finite."""

    graph: Graph
    scene: Scene
    reduced: bool = False  # for a model that is to see no primal and dual values

    @cached_property
    def wires(self) -> Wiring:
        """The graph's edges."""
        return wiring(self.graph)

    @cached_property
    def lower(self) -> Tensor:
        """The lower bound l of z."""
        return finite(self.scene.lower)

    @cached_property
    def upper(self) -> Tensor:
        """The upper bound u of z."""
        return finite(self.scene.upper)

    @cached_property
    def ambiguous(self) -> Tensor:
        """Which ReLUs may be split, bool."""
        return (self.lower < 0) & (self.upper > 0)

    @cached_property
    def slope(self) -> Tensor:
        """Alpha of Appendix B.1.2: of the chord; 0 for blocked ReLUs, 1 for passing ones."""
        return chord(self.lower, self.upper)

    @cached_property
    def intercept(self) -> Tensor:
        """The chord's beta (Eq. 15): -l u / (u - l) where ambiguous, 0 elsewhere."""
        return torch.where(self.ambiguous, -self.lower * self.slope, 0.0)

    @cached_property
    def width(self) -> Tensor:
        """The length of [l, u], above 0."""
        return (self.upper - self.lower).clamp(min=1 / LARGEST)

    @cached_property
    def above(self) -> Tensor:
        """The multiplier d1 of x >= z."""
        return finite(self.scene.above)

    @cached_property
    def below(self) -> Tensor:
        """The multiplier of x <= chord(z), not negative: -d2."""
        return finite(self.scene.below)

    @cached_property
    def coefficient(self) -> Tensor:
        """nu, 0 where not ambiguous."""
        return finite(self.scene.zero) + self.above - self.below

    @cached_property
    def through(self) -> Tensor:
        """The coefficient on z."""
        return finite(self.scene.through)

    @cached_property
    def before(self) -> Tensor:
        """The primal value of z."""
        return finite(self.scene.before)

    @cached_property
    def after(self) -> Tensor:
        """The primal value of x."""
        return finite(self.scene.after)

    @cached_property
    def lift(self) -> Tensor:
        """How far x is above relu(z), 0 where not ambiguous."""
        return torch.where(self.ambiguous, self.after - self.before.relu(), 0.0)

    @cached_property
    def bound(self) -> Tensor:
        """The lower bound of each domain, [domains]."""
        return finite(self.scene.bound)

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
        way = self.bound.abs().clamp(min=LEAST_BOUND)
        if self.reduced or not self.reach.shape[1]:
            return way
        return torch.maximum(way, NEARLY * self.reach.abs().amax(dim=1))

    @cached_property
    def functional(self) -> Tensor:
        """The functional that is bounded, [domains, outputs]."""
        return finite(self.scene.functional)

    @cached_property
    def value(self) -> Tensor:
        """The functional at the network's own output for the primal point, [domains]."""
        with in_full(self.scene.point.device):
            outputs = walk.evaluate(self.graph.network, finite(self.scene.point))
        return (self.functional * finite(outputs)).sum(dim=1)

    def babsr(self, reduce: Callable[[Tensor, Tensor], Tensor]) -> Tensor:
        """|reduce(b nu (a - 1), b nu a) + min(nu, 0) beta| (facts 3.1)."""
        steep = self.wires.bias * self.coefficient
        gain = reduce(steep * (self.slope - 1), steep * self.slope) + self.coefficient.clamp(max=0) * self.intercept
        return torch.where(self.ambiguous, gain.abs(), 0.0)


def finite(x: Tensor) -> Tensor:
    """The same without what is no number or beyond `LARGEST`."""
    return x.nan_to_num(0.0, LARGEST, -LARGEST).clamp(-LARGEST, LARGEST)


def _ratio(part: Tensor, whole: Tensor) -> Tensor:
    """0 where there is no whole."""
    some = whole.abs() > 1 / LARGEST
    return torch.where(some, part / torch.where(some, whole, 1.0), 0.0)


RELU: Mapping[ReluColumn, Callable[[View], Tensor]] = {
    ReluColumn.LOWER: lambda v: v.lower,
    ReluColumn.UPPER: lambda v: v.upper,
    ReluColumn.INTERCEPT: lambda v: v.intercept,
    ReluColumn.BIAS: lambda v: v.wires.bias.expand_as(v.lower),
    ReluColumn.BEFORE: lambda v: v.before,
    ReluColumn.AFTER: lambda v: v.after,
    ReluColumn.DUAL: lambda v: v.above + v.below,
    ReluColumn.ABOVE: lambda v: v.above,
    ReluColumn.BELOW: lambda v: v.below,
    ReluColumn.COEFFICIENT: lambda v: v.coefficient,
    ReluColumn.SLOPE: lambda v: v.slope,
    ReluColumn.ALPHA: lambda v: _ratio(v.above, v.coefficient.clamp(min=0)),
    ReluColumn.POSITION: lambda v: v.before / v.width,
    ReluColumn.LIFT: lambda v: _ratio(v.lift, v.intercept),
    ReluColumn.DROP: lambda v: v.coefficient.clamp(max=0) * v.intercept,
    ReluColumn.REACH: lambda v: v.reach,
    ReluColumn.GAP: lambda v: v.coefficient * v.lift,
    ReluColumn.SHARE: lambda v: _share(v.coefficient * v.lift),
    ReluColumn.BIAS_TERM: lambda v: v.coefficient * v.wires.bias,
    ReluColumn.SCORE: lambda v: v.babsr(torch.maximum),
    ReluColumn.WORSE_SCORE: lambda v: v.babsr(torch.minimum),
    ReluColumn.PLACE: lambda v: v.graph.place.expand_as(v.lower),
    ReluColumn.DEPTH: lambda v: finite(v.scene.depth)[:, None].expand_as(v.lower),
}

OUTPUT: Mapping[OutputColumn, Callable[[View], Tensor]] = {
    OutputColumn.BOUND: lambda v: v.bound,
    OutputColumn.VALUE: lambda v: v.value,
    OutputColumn.RELAXED: lambda v: v.bound,
    OutputColumn.BIAS: lambda v: v.functional @ v.wires.output_bias,
}


def _share(part: Tensor) -> Tensor:
    return _ratio(part, part.abs().sum(dim=1, keepdim=True))


def relus(view: View, columns: Sequence[ReluColumn]) -> Tensor:
    """Raw features of the ReLUs that may be split, [domains, n, columns]."""
    return finite(torch.stack([RELU[column](view) for column in columns], dim=-1))


def output(view: View, columns: Sequence[OutputColumn]) -> Tensor:
    """Raw features of the output node, [domains, columns]."""
    return finite(torch.stack([OUTPUT[column](view) for column in columns], dim=-1))


def compressed(x: Tensor) -> Tensor:
    """sign(x) log(1 + |x|): products span many powers of ten."""
    return x.sign() * x.abs().log1p()


def named(names: Iterable[str]) -> tuple[ReluColumn, ...]:
    """Columns by their names."""
    try:
        return tuple(ReluColumn(name) for name in names)
    except ValueError as error:
        known = ", ".join(column.value for column in ReluColumn)
        raise BadInput(f"{error}: the columns of a ReLU are {known}") from None


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

    products: Tensor

    def __init__(self, columns: Sequence[ReluColumn | OutputColumn]) -> None:
        super().__init__()
        self.standard = Standard(len(columns))
        products = torch.tensor([column in IN_UNITS_OF_THE_BOUND for column in columns])
        self.register_buffer("products", products, persistent=False)

    @abstractmethod
    def rows(self, view: View) -> Tensor:
        """What is to be standardised, [rows, columns]."""

    def compressed(self, view: View, raw: Tensor) -> Tensor:
        """Raw features [..., domains, columns], what is in units of the bound divided by it."""
        return compressed(torch.where(self.products, raw / view.way[:, None], raw))


@final
class ScaledRelus(AbstractScaled):
    """The ReLUs of a scene for our own models."""

    def __init__(self, columns: Sequence[ReluColumn]) -> None:
        super().__init__(columns)
        self.columns = tuple(columns)

    def forward(self, view: View) -> Tensor:
        """[n, domains, columns]: nodes first, so that a layer is a piece of memory, and a message one product."""
        standard: Tensor = self.standard(self._nodes(view))
        return standard

    def rows(self, view: View) -> Tensor:
        """Features of ambiguous ReLUs only: nothing else is scored."""
        return self._nodes(view)[view.ambiguous.T]

    def _nodes(self, view: View) -> Tensor:
        return self.compressed(view, torch.stack([RELU[column](view).T for column in self.columns], dim=-1))


@final
class ScaledOutput(AbstractScaled):
    """The output node of a scene for our own models."""

    def __init__(self, columns: Sequence[OutputColumn]) -> None:
        super().__init__(columns)
        self.columns = tuple(columns)

    def forward(self, view: View) -> Tensor:
        """Scaled features of the output node, [domains, columns]."""
        standard: Tensor = self.standard(self.rows(view))
        return standard

    def rows(self, view: View) -> Tensor:
        """All of them."""
        return self.compressed(view, output(view, self.columns))


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
