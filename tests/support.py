"""Helpers of many tests: makers of tiny networks and properties, and a plain second opinion on them.

The second opinion shares no code with what it judges: every operator as a dense matrix written down by loops, networks
evaluated in float64 or exactly in rationals, all linear pieces of a network enumerated, and the Planet LP
written out for SciPy.
"""

import itertools
import math
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from fractions import Fraction
from functools import lru_cache
from typing import TYPE_CHECKING, Any

import highspy
import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from bough import api
from bough.bounds import kernels
from bough.bounds.ascent import Ascended, Ascent, Climber, Duals, Functionals
from bough.bounds.base import AbstractBounder, AbstractEstimates, AbstractSession, Bounded, Capabilities
from bough.bounds.deepening import TreePlan, TreePlans
from bough.bounds.lp import BasisNumbers
from bough.bounds.optimised import OptimisedBounds
from bough.bounds.reduced import Reduced
from bough.bounds.trees import Trees
from bough.bounds.witness import AbstractWitness
from bough.branching.base import AbstractLookAhead
from bough.budget import Deadline
from bough.domain.arrays import Arrays
from bough.domain.batch import Bounds, DomainBatch, InputParts, Relaxation
from bough.network.graph import Network, Node
from bough.network.ops import Add, Conv, Linear, Relu, Reshape, Scale, Select
from bough.network.rewrite import GraphBuilder, Window
from bough.problem.problem import Problem
from bough.problem.property import Ball, Box, Clause, Property
from bough.search.ahead import CountedLookAhead

if TYPE_CHECKING:
    import pytest  # which machines with a GPU need not have

Array = NDArray[np.float64]
Points = NDArray[np.floating[Any]]  # as the runtimes take them
OUTPUTS = ("--json", "--vnncomp", "--counterexample")  # options that write a file about a result
FEASIBLE = 1e-6  # a piece whose constraints can all be met with this much to spare surely is not empty

# Networks


def generator(seed: int) -> torch.Generator:
    """A seeded source of random tensors."""
    return torch.Generator().manual_seed(seed)


def normal(g: torch.Generator, *shape: int) -> Tensor:
    """Normal numbers that are float32 values, so that files and runtimes hold them exactly."""
    return torch.randn(*shape, generator=g).double()


def integer(g: torch.Generator, low: int, high: int) -> int:
    """A random integer from `low` to `high`, both included."""
    return int(torch.randint(low, high + 1, (1,), generator=g))


def _linear(builder: GraphBuilder, g: torch.Generator, x: int, outputs: int) -> int:
    inputs = builder.shape(x)[-1]
    return builder.linear(x, normal(g, outputs, inputs) / inputs**0.5, normal(g, outputs) * 0.5)


def dense(g: torch.Generator) -> Network:
    """Two or three inputs, two or three layers of four ReLUs, two or three outputs."""
    builder = GraphBuilder()
    x = builder.input((integer(g, 2, 3),))
    for _ in range(integer(g, 2, 3)):
        x = builder.relu(_linear(builder, g, x, 4))
    return builder.build(_linear(builder, g, x, integer(g, 2, 3)))


def convolutional(g: torch.Generator) -> Network:
    """A 2x2 image, two convolutions with strides and uneven padding, a dense output."""
    builder = GraphBuilder()
    x = builder.input((1, 2, 2))
    left = integer(g, 0, 1)
    x = builder.relu(builder.conv(x, normal(g, 2, 1, 2, 2), normal(g, 2) * 0.5, (2, 1), (1, left, 1, 1 - left)))
    x = builder.relu(builder.conv(x, normal(g, 1, 2, 1, 2) * 0.7, normal(g, 1) * 0.5, (1, 2), (0, 1, 0, 1)))
    x = builder.reshape(x, (int(np.prod(builder.shape(x))),))
    return builder.build(_linear(builder, g, x, 2))


def residual(g: torch.Generator) -> Network:
    """A block around which its input is added, once or twice."""
    builder = GraphBuilder()
    x = builder.relu(_linear(builder, g, builder.input((integer(g, 2, 3),)), 4))
    for _ in range(integer(g, 1, 2)):
        inside = builder.relu(_linear(builder, g, x, 3))
        x = builder.add(x, _linear(builder, g, inside, 4))
    x = builder.relu(builder.scale(x, normal(g, 4), normal(g, 4) * 0.3))
    return builder.build(_linear(builder, g, x, 2))


def pooled(g: torch.Generator, padding: int = 0) -> Network:
    """A convolution, max-pooling lowered to ReLUs, a dense layer."""
    builder = GraphBuilder()
    x = builder.input((1, 2, 2))
    x = builder.conv(x, normal(g, 1, 1, 2, 2), normal(g, 1) * 0.5, (1, 1), (1, 1, 0, 0))
    if integer(g, 0, 1):
        x = builder.relu(x)
    x = builder.max_pool(x, Window((2, 2), (2, 2), (padding, padding, padding, padding)))
    x = builder.reshape(x, (int(np.prod(builder.shape(x))),))
    x = builder.relu(_linear(builder, g, x, 3))
    return builder.build(_linear(builder, g, x, 2))


def padded(g: torch.Generator) -> Network:
    """Max-pooling with padding, whose windows at the rim hold copies of one element: ReLUs that are always at 0."""
    return pooled(g, padding=1)


KINDS: dict[str, Callable[[torch.Generator], Network]] = {
    "dense": dense,
    "convolutional": convolutional,
    "residual": residual,
    "pooled": pooled,
    "padded": padded,
}


def sequential(*layers: tuple[Any, Any]) -> Network:
    """Linear layers (weight, bias) with ReLUs between them."""
    builder = GraphBuilder()
    x = builder.input((len(layers[0][0][0]),))
    for k, (weight, bias) in enumerate(layers):
        x = builder.linear(x, tensor(weight), tensor(bias))
        if k < len(layers) - 1:
            x = builder.relu(x)
    return builder.build(x)


def tensor(values: Any) -> Tensor:
    """A float64 tensor."""
    return torch.as_tensor(values, dtype=torch.float64)


# Properties and problems


def box_around(g: torch.Generator, inputs: int, radius: float = 1.0) -> Box:
    """A box of random centre and uneven sides."""
    centre = normal(g, inputs) * 0.3
    half = radius * (0.5 + torch.rand(inputs, generator=g).double())
    return Box(centre - half, centre + half)


def with_ball(g: torch.Generator, box: Box, p: int) -> Box:
    """The box with a ball of random centre in it, now and then on its faces, of uneven scale and any size."""
    share = (torch.rand(len(box.lower), generator=g).double() * 1.6 - 0.3).clamp(0, 1)
    centre = torch.minimum(torch.maximum(box.lower + share * (box.upper - box.lower), box.lower), box.upper)
    scale = 10 ** (torch.rand(len(box.lower), generator=g).double() - 0.5)
    radius = float((scale * (box.upper - box.lower)).mean()) * 10 ** (float(torch.rand(1, generator=g)) * 2 - 1.5)
    return Box(box.lower, box.upper, Ball(centre, scale, radius, p))


def clause(coefficients: Any, offsets: Any, strict: Sequence[bool] | None = None, box: int = 0) -> Clause:
    """A clause from plain numbers."""
    rows = tensor(coefficients)
    return Clause(box, rows, tensor(offsets), tuple(strict or (False,) * len(rows)))


def random_clause(g: torch.Generator, outputs: int, rows: int, box: int = 0) -> Clause:
    """Rows of norm 3/4, which scaling leaves alone, so that margins read the same before and after."""
    coefficients = normal(g, rows, outputs)
    coefficients = 0.75 * coefficients / coefficients.norm(dim=1, keepdim=True)
    return clause(coefficients, normal(g, rows) * 0.2, box=box)


class Plain:
    """The network evaluated by the matrices of this module, in float64."""

    name = "a test"
    dtype: np.dtype[np.floating[Any]] = np.dtype(np.float32)

    def __init__(self, network: Network) -> None:
        self._network = network

    def run(self, x: Points) -> Array:
        """Flat output of a flat point."""
        return values_at(self._network, x.astype(np.float64))[-1]


def problem(network: Network, boxes: Sequence[Box], clauses: Sequence[Clause]) -> Problem:
    """A problem whose counterexamples are replayed by plain matrices."""
    return Problem(network, Property(tuple(boxes), tuple(clauses)), Plain(network))


def simple_problem(network: Network, lower: Any, upper: Any, coefficients: Any, offsets: Any) -> Problem:
    """One box, one clause."""
    return problem(network, [Box(tensor(lower), tensor(upper))], [clause(coefficients, offsets)])


def samples(box: Box, count: int, seed: int = 0) -> Tensor:
    """Points of a box: uniform ones, and some of its corners and faces."""
    g = generator(seed)
    share = torch.rand(count, len(box.lower), generator=g).double()
    share[: count // 3] = share[: count // 3].round()
    share[count // 3 : count // 2] = (share[count // 3 : count // 2] * 3 - 1).clamp(0, 1)
    return torch.minimum(torch.maximum(box.lower + share * (box.upper - box.lower), box.lower), box.upper)


def ball_samples(box: Box, count: int, seed: int = 0) -> Tensor:
    """Points of box and ball: random directions from the centre to the rim or less far, cut off at the box.

    Cutting an input off moves it towards the centre, so nothing leaves the ball, but for rounding.
    """
    assert box.ball is not None
    g = generator(seed)
    ball, inputs = box.ball, len(box.lower)
    away = torch.randn(count, inputs, generator=g).double()
    away[: count // 3] *= torch.rand(count // 3, inputs, generator=g) ** 4  # near the axes
    away = away / away.abs().pow(ball.p).sum(dim=1, keepdim=True).pow(1 / ball.p)
    if count >= 2 * inputs:
        away[: 2 * inputs] = torch.cat([torch.eye(inputs), -torch.eye(inputs)])
    away[count // 2 :] *= torch.rand(count - count // 2, 1, generator=g)
    points = ball.centre + ball.radius * (1 - 1e-12) * away / ball.scale
    return torch.minimum(torch.maximum(points, box.lower), box.upper)


def in_ball(ball: Ball, x: Sequence[float]) -> bool:
    """Whether a point is in the ball, without any rounding."""
    vectors = (map(Fraction, v) for v in (ball.scale.tolist(), x, ball.centre.tolist()))
    total = sum((abs(s * (v - c)) ** ball.p for s, v, c in zip(*vectors, strict=True)), Fraction(0))
    return bool(total <= Fraction(ball.radius) ** ball.p)


@dataclass(frozen=True, eq=False)
class Case:
    """A problem with the answer found by enumeration."""

    problem: Problem
    pieces: tuple[tuple["Piece", ...], ...]  # of each box
    margins: tuple[Array, ...]  # of each clause, in every piece of its box

    @property
    def least(self) -> float:
        """The least margin over all clauses."""
        return min(float(m.min()) for m in self.margins)

    def least_in(self, clause: int, signs: Sequence[int]) -> float:
        """The least margin of a clause where ReLUs have these signs (0: either), over pieces surely not empty."""
        linear_pieces = self.pieces[self.problem.clauses[clause].box]
        agree = np.array([p.slack > FEASIBLE and all(np.multiply(signs, p.signs) >= 0) for p in linear_pieces])
        return float(np.min(self.margins[clause], initial=np.inf, where=agree))


@lru_cache(maxsize=64)
def hard_case(kind: str, seed: int, *, safe: bool, away: float = 1e-3, radius: float = 1.0) -> Case:
    """A random problem of one to three clauses and rows whose least margin is `away` from zero, on the side asked for.

    Offsets are moved so that the margin of every clause is small beside the relaxation's gap: that takes branching.
    """
    g = generator(seed)
    network = KINDS[kind](g)
    boxes = [box_around(g, network.inputs, radius) for _ in range(integer(g, 1, 4) // 4 + 1)]
    count = integer(g, len(boxes), 3)
    pieces_of_boxes = [pieces(network, box) for box in boxes]
    clauses, margins = [], []
    for k in range(count):
        box = k % len(boxes)
        drawn = random_clause(g, network.outputs, integer(g, 1, 3), box)
        values = piece_margins(pieces_of_boxes[box], boxes[box], drawn)
        shift = float(values.min()) - (away * (1 + k) if safe or k else -away)
        clauses.append(clause(drawn.coefficients, drawn.offsets + shift, box=box))
        margins.append(values - shift)
    return Case(problem(network, boxes, clauses), tuple(tuple(f) for f in pieces_of_boxes), tuple(margins))


@dataclass(frozen=True, eq=False)
class Judged(AbstractBounder):
    """Another bounder, every bound of which is held against the enumeration.

    Bounds over ReLU bounds that hold at unsafe points only (`conditional`) say no more than that where they are
    positive: there, the truth has to be positive, too.
    """

    bounder: AbstractBounder
    case: Case
    tolerance: float = 1e-6
    conditional: bool = False
    seen: Counter[str] = field(default_factory=Counter)

    def prepare(self, problem: Problem, witness: AbstractWitness | None = None) -> "_Judging":
        """Start both."""
        return _Judging(self, self.bounder.prepare(problem, witness))


class _Judging(AbstractSession, AbstractEstimates):
    def __init__(self, judge: Judged, inner: AbstractSession) -> None:
        self._judge = judge
        self._inner = inner

    @property
    def capabilities(self) -> Capabilities:
        return replace(self._inner.capabilities, estimates=self)

    def root(self, cutoff: float, deadline: Deadline) -> Bounded:
        return self._judged(self._inner.root(cutoff, deadline))

    def bound(self, domains: DomainBatch, cutoff: float, deadline: Deadline) -> Bounded:
        return self._judged(self._inner.bound(domains, cutoff, deadline))

    def estimate(self, domains: DomainBatch, choices: Tensor, deadline: Deadline) -> Tensor:
        self._judge.seen["estimates"] += 2 * choices.numel()
        return CountedLookAhead(self._inner, deadline, domains).estimate(domains, choices)

    def splittable(self, domains: DomainBatch) -> Tensor:
        return self._inner.splittable(domains)

    def split(self, domains: DomainBatch, choices: Tensor) -> DomainBatch:
        return self._inner.split(domains, choices)

    def notes(self) -> Mapping[str, float]:
        return self._inner.notes()

    def pack(self, domains: DomainBatch) -> Arrays:
        return self._inner.pack(domains)

    def unpack(self, packed: Arrays) -> DomainBatch:
        return self._inner.unpack(packed)

    def _judged(self, bounded: Bounded) -> Bounded:
        judge, domains = self._judge, bounded.domains
        boxes = [judge.case.problem.property.boxes[c.box] for c in judge.case.problem.clauses]
        for d in range(len(domains)):
            number, lower = int(domains.clause[d]), float(domains.lower[d])
            truth = judge.case.least_in(number, domains.signs[d].tolist())
            promised = 0.0 if judge.conditional and lower > 0 else lower
            assert not promised > truth + judge.tolerance, (lower, truth, number, domains.signs[d].tolist())
            judge.seen["domains"] += 1
            judge.seen["empty" if lower == np.inf else "open"] += 1
        assert len(bounded.points)
        for point, d in zip(bounded.points.cpu(), bounded.owners().tolist(), strict=True):
            box = boxes[int(domains.clause[d])]
            assert bool(((point >= box.lower) & (point <= box.upper)).all())
        return bounded


class Packing(AbstractSession):
    """A session that bounds nothing: it only packs domains, as sessions do unless they know better."""

    def root(self, cutoff: float, deadline: Deadline) -> Bounded:
        raise NotImplementedError

    def bound(self, domains: DomainBatch, cutoff: float, deadline: Deadline) -> Bounded:
        raise NotImplementedError


def relaxation_of(session: AbstractSession, domains: DomainBatch) -> Relaxation:
    """What a session says of domains, which has to keep that."""
    relaxations = session.capabilities.relaxations
    assert relaxations is not None
    return relaxations.relaxed(domains, Deadline.never())


@dataclass
class ToldLookAhead(AbstractLookAhead):
    """A look-ahead that answers as it is told; what it is not told of is an error."""

    estimates: Callable[[DomainBatch, Tensor], Tensor] | None = None
    bounds: Callable[[DomainBatch, Tensor], Tensor] | None = None
    boxes: Callable[[DomainBatch], tuple[Tensor, Tensor] | None] | None = None
    relaxation: Callable[[DomainBatch], Relaxation | None] | None = None

    def estimate(self, domains: DomainBatch, neurons: Tensor) -> Tensor:
        assert self.estimates is not None
        return self.estimates(domains, neurons)

    def bound(self, domains: DomainBatch, neurons: Tensor) -> Tensor:
        assert self.bounds is not None
        return self.bounds(domains, neurons)

    def children(self, rows: Tensor, neurons: Tensor) -> Tensor:
        raise NotImplementedError

    def relaxed(self, domains: DomainBatch) -> Relaxation | None:
        return None if self.relaxation is None else self.relaxation(domains)

    def unsafe_boxes(self, domains: DomainBatch) -> tuple[Tensor, Tensor] | None:
        return None if self.boxes is None else self.boxes(domains)

    def input_parts(self, domains: DomainBatch) -> InputParts:
        return domains.carried(InputParts)

    def among(self, rows: Tensor) -> "ToldLookAhead":
        del rows
        return self


# Operators as matrices


@lru_cache(maxsize=1024)
def matrices(network: Network, i: int) -> tuple[list[Array], Array]:
    """A node's value as `sum of matrix @ input + bias`, on flat vectors, for any operator but ReLU and input."""
    node = network.nodes[i]
    before = [network.nodes[j] for j in node.inputs]
    match node.op:
        case Linear():
            return [_linear_matrix(node.op, before[0])], np.tile(node.op.bias.numpy(), node.size // len(node.op.bias))
        case Conv():
            return [_conv_matrix(node.op, before[0], node)], np.repeat(
                node.op.bias.numpy(), node.size // len(node.op.bias)
            )
        case Scale():
            return [np.diag(node.op.factor.numpy().reshape(-1))], node.op.bias.numpy().reshape(-1).copy()
        case Select():
            return [np.eye(before[0].size)[node.op.index.numpy()]], np.zeros(node.size)
        case Reshape():
            return [np.eye(node.size)], np.zeros(node.size)
        case Add():
            return [np.eye(node.size), np.eye(node.size)], np.zeros(node.size)
        case _:
            raise AssertionError(node.op)


def _linear_matrix(op: Linear, before: Node) -> Array:
    return np.kron(np.eye(before.size // op.weight.shape[1]), op.weight.numpy())


def _conv_matrix(op: Conv, before: Node, node: Node) -> Array:
    (_, height, width), (outs, down, across) = before.shape, node.shape
    matrix = np.zeros((node.size, before.size))
    per_group, kernel = op.weight.shape[1], op.weight.shape[2:]
    for o, r, c in itertools.product(range(outs), range(down), range(across)):
        for k, a, b in itertools.product(range(per_group), range(kernel[0]), range(kernel[1])):
            row = r * op.stride[0] + a * op.dilation[0] - op.padding[0]
            column = c * op.stride[1] + b * op.dilation[1] - op.padding[1]
            channel = o // (outs // op.groups) * per_group + k
            if 0 <= row < height and 0 <= column < width:
                at = (channel * height + row) * width + column
                matrix[(o * down + r) * across + c, at] += float(op.weight[o, k, a, b])
    return matrix


def values_at(network: Network, x: Array) -> list[Array]:
    """Every node's flat value at a flat point, or [points, elements] at points [points, inputs]."""
    values: list[Array] = []
    for i, node in enumerate(network.nodes):
        if not node.inputs:
            values.append(np.asarray(x, dtype=np.float64))
        elif isinstance(node.op, Relu):
            values.append(np.maximum(values[node.inputs[0]], 0.0))
        else:
            parts, bias = matrices(network, i)
            values.append(sum((values[j] @ m.T for m, j in zip(parts, node.inputs, strict=True)), bias))
    return values


def relu_inputs_at(network: Network, x: Array) -> Array:
    """The input of every ReLU at one point, flat, or at several points."""
    values = values_at(network, x)
    return np.concatenate([values[network.nodes[i].inputs[0]] for i in network.relus], axis=-1)


def exact_values_at(network: Network, x: Sequence[float]) -> list[list[Fraction]]:
    """Every node's flat value at one point, without any rounding."""
    values: list[list[Fraction]] = []
    for i, node in enumerate(network.nodes):
        if not node.inputs:
            values.append([Fraction(float(v)) for v in x])
        elif isinstance(node.op, Relu):
            values.append([max(v, Fraction(0)) for v in values[node.inputs[0]]])
        else:
            parts, bias = matrices(network, i)
            total = [Fraction(float(b)) for b in bias]
            for m, j in zip(parts, node.inputs, strict=True):
                for r, k in zip(*np.nonzero(m), strict=True):
                    total[r] += Fraction(float(m[r, k])) * values[j][k]
            values.append(total)
    return values


def exact_margin(c: Clause, y: Sequence[Fraction]) -> Fraction:
    """The clause's largest row at an output, without any rounding."""
    rows = zip(c.coefficients.tolist(), c.offsets.tolist(), strict=True)
    return max(sum((Fraction(a) * v for a, v in zip(row, y, strict=True)), -Fraction(b)) for row, b in rows)


# All linear pieces of a network


@dataclass(frozen=True, eq=False)
class Piece:
    """A part of the box, `rows @ x <= limits`, in which every ReLU keeps its sign and the output is affine."""

    signs: tuple[int, ...]  # +1 passing, -1 blocked, 0 where the input is always 0, per ReLU
    rows: Array
    limits: Array
    matrix: Array
    constant: Array
    slack: float  # some point of it is at least this far inside all its constraints


def pieces(network: Network, box: Box) -> list[Piece]:
    """Every non-empty piece, found by splitting ReLU after ReLU and dropping what an LP shows empty."""
    lower, upper = box.lower.numpy(), box.upper.numpy()
    known = relu_inputs_at(network, samples(box, 4000).numpy())
    return list(_grow(network, (lower, upper), known, (), np.zeros((0, len(lower))), np.zeros(0)))


def _grow(
    network: Network, box: tuple[Array, Array], known: Array, signs: tuple[int, ...], rows: Array, limits: Array
) -> Iterator[Piece]:
    maps = _affine_maps(network, signs)
    if len(signs) == network.neurons:
        free = known[:, [s != 0 for s in signs]]
        slack = float(np.abs(free).min(axis=1).max()) if free.size else _slack(rows, limits, box)
        if slack >= 0:
            yield Piece(signs, rows, limits, *maps[-1], slack)
        return
    i = next(node for node in network.relus if len(signs) < network.slices[node].stop)
    matrix, constant = maps[network.nodes[i].inputs[0]]
    at = len(signs) - network.slices[i].start
    row, least = matrix[at], constant[at] + np.minimum(matrix[at] * box[0], matrix[at] * box[1]).sum()
    most = constant[at] + np.maximum(row * box[0], row * box[1]).sum()
    if least >= 0 or most <= 0 or max(-least, most) < 1e-12:  # the same sign in the whole box
        sign = 0 if max(-least, most) < 1e-12 else 1 if least >= 0 else -1
        yield from _grow(network, box, known, (*signs, sign), rows, limits)
        return
    for sign in (-1, 1):
        on_side = known[known[:, len(signs)] * sign > 0]
        more, limit = np.vstack([rows, -sign * matrix[at]]), np.append(limits, sign * constant[at])
        if len(on_side) or _slack(more, limit, box) >= 0:
            yield from _grow(network, box, on_side, (*signs, sign), more, limit)


def _affine_maps(network: Network, signs: tuple[int, ...]) -> list[tuple[Array, Array]]:
    """Every node as an affine function of the input, up to the first ReLU layer whose signs are not all given."""
    maps: list[tuple[Array, Array]] = [(np.eye(network.inputs), np.zeros(network.inputs))]
    for i, node in enumerate(network.nodes[1:], start=1):
        if isinstance(node.op, Relu):
            part = network.slices[i]
            if len(signs) < part.stop:
                break
            keep = np.array(signs[part]) > 0
            matrix, constant = maps[node.inputs[0]]
            maps.append((matrix * keep[:, None], constant * keep))
        else:
            parts, bias = matrices(network, i)
            both = list(zip(parts, node.inputs, strict=True))
            matrix = sum((m @ maps[j][0] for m, j in both), np.zeros((node.size, network.inputs)))
            maps.append((matrix, sum((m @ maps[j][1] for m, j in both), bias)))
    return maps


def _slack(rows: Array, limits: Array, box: tuple[Array, Array]) -> float:
    """The most by which all rows can be met at one point of the box; negative where they cannot."""
    sides = np.append(box[0], -np.inf), np.append(box[1], 1.0)
    answer = _last_least(np.hstack([-rows, -np.ones((len(rows), 1))]), -limits, *sides, sign=-1.0)
    assert answer is not None
    return -answer


def _last_least(rows: Array, at_least: Array, lower: Array, upper: Array, sign: float) -> float | None:
    """Least value of `sign` times the last variable, with `rows @ x >= at_least` and x between limits; None: no point.

    HiGHS directly, since thousands of these are solved and SciPy's wrapping costs ten times the solving.
    """
    count, width = rows.shape
    lp = highspy.HighsLp()
    lp.num_col_, lp.num_row_ = width, count
    lp.col_cost_ = np.append(np.zeros(width - 1), sign)
    lp.col_lower_, lp.col_upper_ = lower, upper
    lp.row_lower_, lp.row_upper_ = at_least, np.full(count, np.inf)
    lp.a_matrix_.format_ = highspy.MatrixFormat.kRowwise
    lp.a_matrix_.start_ = np.arange(count + 1) * width
    lp.a_matrix_.index_ = np.tile(np.arange(width), count)
    lp.a_matrix_.value_ = rows.reshape(-1)
    solver = _solver()
    solver.passModel(lp)
    solver.run()
    status = solver.getModelStatus()
    if status == highspy.HighsModelStatus.kInfeasible:
        return None
    assert status == highspy.HighsModelStatus.kOptimal, status
    return float(solver.getInfo().objective_function_value)


@lru_cache(maxsize=1)
def _solver() -> Any:
    solver = highspy.Highs()
    solver.setOptionValue("output_flag", False)
    solver.setOptionValue("presolve", "off")
    return solver


def piece_margins(linear_pieces: Sequence[Piece], box: Box, c: Clause) -> Array:
    """The least margin of a clause over every piece, by one LP each over all rows of the clause."""
    coefficients, offsets = c.coefficients.numpy(), c.offsets.numpy()
    sides = np.append(box.lower.numpy(), -np.inf), np.append(box.upper.numpy(), np.inf)
    least = np.full(len(linear_pieces), np.inf)
    for k, piece in enumerate(linear_pieces):
        margin = np.hstack([-coefficients @ piece.matrix, np.ones((len(offsets), 1))])
        inside = np.hstack([-piece.rows, np.zeros((len(piece.rows), 1))])
        limits = np.concatenate([-piece.limits - 1e-9, coefficients @ piece.constant - offsets])
        answer = _last_least(np.vstack([inside, margin]), limits, *sides, sign=1.0)
        # A piece without inside may be empty: one LP's tolerance is not another's.
        assert answer is not None or piece.slack < FEASIBLE
        least[k] = np.inf if answer is None else answer
    return least


# The Planet LP, written out


def planet_optimum(network: Network, box: Box, lower: Tensor, upper: Tensor, c: Clause) -> float:
    """Least margin over the Planet relaxation with ReLU bounds [neurons]; infinity where it is empty.

    One variable per element of every node, and one for the margin: nothing is substituted.
    """
    from scipy.optimize import linprog  # not on every machine that runs other helpers

    starts = np.cumsum([0, *(node.size for node in network.nodes)])
    width = int(starts[-1]) + 1
    sides: list[tuple[float | None, float | None]] = [(None, None)] * width
    sides[: network.inputs] = list(zip(box.lower.tolist(), box.upper.tolist(), strict=True))
    equal: list[tuple[Array, float]] = []
    below: list[tuple[Array, float]] = []
    for i, node in enumerate(network.nodes[1:], start=1):
        if isinstance(node.op, Relu):
            first = int(network.slices[i].start)
            for k in range(node.size):
                l, u = float(lower[first + k]), float(upper[first + k])
                _planet_relu(sides, equal, below, int(starts[node.inputs[0]]) + k, int(starts[i]) + k, l, u)
            continue
        parts, bias = matrices(network, i)
        for k in range(node.size):
            row = np.zeros(width)
            row[starts[i] + k] = 1.0
            for m, j in zip(parts, node.inputs, strict=True):
                row[starts[j] : starts[j + 1]] -= m[k]
            equal.append((row, float(bias[k])))
    for coefficients, offset in zip(c.coefficients.numpy(), c.offsets.tolist(), strict=True):
        row = np.zeros(width)
        row[starts[-2] : starts[-1]], row[-1] = coefficients, -1.0
        below.append((row, offset))
    cost = np.zeros(width)
    cost[-1] = 1.0
    if any(l is not None and u is not None and l > u for l, u in sides):
        return np.inf
    answer = linprog(
        cost,
        A_ub=np.stack([r for r, _ in below]),
        b_ub=[b for _, b in below],
        A_eq=np.stack([r for r, _ in equal]),
        b_eq=[b for _, b in equal],
        bounds=sides,
    )
    assert answer.status in (0, 2), answer.message
    return float(answer.fun) if answer.fun is not None else np.inf


def _planet_relu(
    sides: list[tuple[float | None, float | None]],
    equal: list[tuple[Array, float]],
    below: list[tuple[Array, float]],
    z: int,
    x: int,
    l: float,
    u: float,
) -> None:
    """One ReLU's rows: the triangle where it is ambiguous, a line where it is not."""
    width = len(sides)
    old_l, old_u = sides[z]
    sides[z] = (l if old_l is None else max(l, old_l), u if old_u is None else min(u, old_u))
    line = np.zeros(width)
    line[x] = 1.0
    if u <= 0:
        equal.append((line, 0.0))
    elif l >= 0:
        line[z] = -1.0
        equal.append((line, 0.0))
    else:
        sides[x] = (0.0, None)
        line[z] = -1.0
        below.append((-line, 0.0))  # z - x <= 0
        slope = u / (u - l)
        chord = np.zeros(width)
        chord[x], chord[z] = 1.0, -slope
        below.append((chord, -slope * l))


# Domains


def domains_of(bounds: Bounds, functional: Tensor, signs: Tensor | None = None) -> DomainBatch:
    """Domains with given bounds and functionals, as if they were roots."""
    count, neurons = bounds.lower.shape
    return DomainBatch(
        clause=torch.zeros(count, dtype=torch.int64),
        signs=torch.zeros(count, neurons, dtype=torch.int8) if signs is None else signs,
        bounds=bounds,
        lower=torch.full((count,), -torch.inf, dtype=torch.float64),
        functional=functional.expand(count, -1),
        depth=torch.zeros(count, dtype=torch.int64),
        last_split=torch.full((count, 1), -1),
        start=BasisNumbers(torch.zeros(count, dtype=torch.int64)),
    )


# Ascent


def ascend_in_float64(patch: "pytest.MonkeyPatch") -> None:
    """Every ascent in float64, from and to the float32 duals that are stored, and with coefficients that cancel at 0.

    Ascent is discontinuous: duals that are optimal make coefficients cancel, on the input and on ReLUs, and the sign of
    the rounding error that is left of one says which corner is least, or which line is used; Adam then makes a whole
    step of any gradient. So the order of float32 sums, which changes with the size of a batch, decides where some
    domains go, and no tolerance is right for all. Here ties are ties: what still differs is a bug.
    """
    to, run, relax = Reduced.to, Ascent.run, kernels.relax

    def exact(
        self: Ascent, climber: Climber, functionals: Functionals, start: Duals, *more: Any, **named: Any
    ) -> Ascended:
        chords = functionals.chords
        if chords is not None:
            chords = replace(chords, slope=chords.slope.double(), intercept=chords.intercept.double())
        seed = None if functionals.seed is None else functionals.seed.double()
        rows, offsets = functionals.rows.double(), functionals.offsets.double()
        functionals = replace(functionals, rows=rows, offsets=offsets, chords=chords, seed=seed)
        ascended = run(self, climber, functionals, start.map(Tensor.double), *more, **named)
        return Ascended(ascended.duals.map(Tensor.float), ascended.value)

    def tied(nu: Tensor, *more: Any) -> None:
        assert nu.dtype == torch.float64
        relax(nu.masked_fill_(nu.abs() < 1e-12, 0.0), *more)

    patch.setattr(Reduced, "to", lambda net, device, _: to(net, device, torch.float64))
    patch.setattr(Ascent, "run", exact)
    patch.setattr(kernels, "relax", tied)


def failing(error: BaseException, after: int = 0, otherwise: Callable[..., Any] = api.solve) -> Callable[..., Any]:
    """A `solve` that fails from some call on."""
    calls: list[int] = []

    def solve(*arguments: Any) -> Any:
        calls.append(0)
        if len(calls) > after:
            raise error
        return otherwise(*arguments)

    return solve


def eager_trees(*levels: Trees, budget: float = 1e6, later: float = math.inf) -> OptimisedBounds:
    """Bounds by trees wherever something is open, and again after `later` branches of a search."""
    plan = TreePlan(levels, 0.0, budget, budget, budget, 1.0, later, 0.0, many_clauses=1)
    return OptimisedBounds(trees=TreePlans(plan, plan))
