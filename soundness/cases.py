"""Random problems whose answer is known, from a seed and a number.

Four cases in a row share a network, and with it its enumeration: two safe ones, two unsafe ones. Offsets are moved so
that the least margin is small beside the relaxation's gap, which takes branching. A *twist* then rewrites the network
without changing its function in real arithmetic, so that what is known of the plain form stays true: neurons scaled by
powers of two up to 1e8, constants that cancel, neurons doubled.
"""

from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import lru_cache

import numpy as np
import torch
from tests.support import (
    KINDS,
    box_around,
    generator,
    integer,
    normal,
    problem,
    random_clause,
    tensor,
    with_ball,
)
from torch import Tensor

from bough.network.graph import Network, Node
from bough.network.ops import Conv, Linear, Relu
from bough.network.rewrite import GraphBuilder, Window
from bough.problem.problem import Problem
from bough.problem.property import Box, Clause
from soundness import hidden
from soundness.truth import Truth, enumerated, lowest, margin_at

OF_ONE_NETWORK = 4
AWAY = (1e-1, 1e-2, 1e-3, 1e-4, 1e-5)
LARGE = 27  # a power of two, about 1e8


@dataclass(frozen=True, eq=False)
class Case:
    """A problem with what is known of it; `kind` and `twist` are for people."""

    number: int
    kind: str
    twist: str
    problem: Problem
    truth: Truth


# Networks beyond those of the tests


def small(g: torch.Generator) -> Network:
    """One or two inputs, three to six ReLUs in one or two layers."""
    builder = GraphBuilder()
    x = builder.input((integer(g, 1, 2),))
    for _ in range(integer(g, 1, 2)):
        x = builder.relu(_layer(builder, g, x, 3))
    return builder.build(_layer(builder, g, x, integer(g, 1, 2)))


def on_input(g: torch.Generator) -> Network:
    """A ReLU right on the input, and one that nothing follows."""
    builder = GraphBuilder()
    x = builder.relu(builder.input((2,)))
    x = builder.relu(_layer(builder, g, x, 3))
    return builder.build(builder.relu(_layer(builder, g, x, 2)) if integer(g, 0, 1) else _layer(builder, g, x, 2))


def forked(g: torch.Generator) -> Network:
    """Two ReLUs of one node, each with a way of its own."""
    builder = GraphBuilder()
    z = _layer(builder, g, builder.input((2,)), 3)
    x = builder.add(*(builder.linear(builder.relu(z), normal(g, 2, 3)) for _ in range(2)))
    return builder.build(_layer(builder, g, builder.relu(x), 2))


def tiny_residual(g: torch.Generator) -> Network:
    """One block, around which its input goes."""
    builder = GraphBuilder()
    x = builder.relu(_layer(builder, g, builder.input((2,)), 2))
    x = builder.add(x, _layer(builder, g, builder.relu(_layer(builder, g, x, 2)), 2))
    return builder.build(_layer(builder, g, builder.relu(x), 2))


def tiny_conv(g: torch.Generator) -> Network:
    """A row of three inputs under a kernel of two, once or twice."""
    builder = GraphBuilder()
    x = builder.relu(builder.conv(builder.input((1, 1, 3)), normal(g, 1, 1, 1, 2), normal(g, 1) * 0.5))
    x = builder.relu(builder.conv(x, normal(g, 2, 1, 1, 2), normal(g, 2) * 0.5, padding=(0, 0, 0, integer(g, 0, 1))))
    x = builder.reshape(x, (int(np.prod(builder.shape(x))),))
    return builder.build(_layer(builder, g, x, 2))


def tiny_pool(g: torch.Generator) -> Network:
    """The larger of neighbours, of a layer or of the inputs themselves."""
    builder = GraphBuilder()
    x = builder.input((1, 1, 3))
    if integer(g, 0, 1):
        x = builder.conv(x, normal(g, 1, 1, 1, 1), normal(g, 1) * 0.5)
    x = builder.max_pool(x, Window((1, 2), padding=(0, 0, 0, integer(g, 0, 1))))
    x = builder.reshape(x, (int(np.prod(builder.shape(x))),))
    return builder.build(_layer(builder, g, builder.relu(_layer(builder, g, x, 2)), 2))


def _layer(builder: GraphBuilder, g: torch.Generator, x: int, outputs: int) -> int:
    inputs = builder.shape(x)[-1]
    return builder.linear(x, normal(g, outputs, inputs) / inputs**0.5, normal(g, outputs) * 0.5)


def sparse(g: torch.Generator) -> Network:
    """Zero weights: single ones, whole neurons, now and then a whole layer's biases."""
    network = (KINDS["dense"], tiny_residual, small)[integer(g, 0, 2)](g)
    return _each_weight(network, lambda w: w * (torch.rand(w.shape, generator=g) > 0.5), g)


def on_a_grid(g: torch.Generator) -> Network:
    """Weights of quarters, biases of 0: ReLUs whose bounds touch 0, pieces that share edges, equal neurons."""
    # Of larger ones, most pieces have no inside, and there are so many of them that enumeration takes seconds.
    network = (small, on_input, forked)[integer(g, 0, 2)](g)
    return _each_weight(network, lambda w: (w * 2).round() / 4, g, no_bias=True)


def _each_weight(
    network: Network, change: Callable[[Tensor], Tensor], g: torch.Generator, *, no_bias: bool = False
) -> Network:
    def altered(node: Node) -> Node:
        if not isinstance(node.op, Linear | Conv):
            return node
        bias = node.op.bias * (0.0 if no_bias or not integer(g, 0, 2) else 1.0)
        return replace(node, op=replace(node.op, weight=change(node.op.weight), bias=bias, bias_magnitude=bias.abs()))

    return Network(tuple(altered(node) for node in network.nodes))


NETWORKS: dict[str, Callable[[torch.Generator], Network]] = {
    **KINDS,
    "small": small,
    "on input": on_input,
    "forked": forked,
    "tiny residual": tiny_residual,
    "tiny conv": tiny_conv,
    "tiny pool": tiny_pool,
    "sparse": sparse,
    "grid": on_a_grid,
}
# Tiny ones first: of these, thousands are searched in two minutes. Every fifth network is one of the tests' own.
TINY = ("small", "on input", "tiny residual", "forked", "sparse", "tiny conv", "grid", "tiny pool")


# Twists


def rescaled(g: torch.Generator, network: Network) -> Network:
    """`relu(z)` as `relu(s z) / s`, s a power of two of its own for every ReLU."""

    def around(builder: GraphBuilder, z: int) -> int:
        s = 2.0 ** torch.randint(-LARGE, LARGE + 1, builder.shape(z), generator=g).double()
        return builder.scale(builder.relu(builder.scale(z, s)), 1 / s)

    return _with_relus(network, around)


def cancelled(g: torch.Generator, network: Network) -> Network:
    """A huge constant added before every ReLU, and taken away again."""

    def around(builder: GraphBuilder, z: int) -> int:
        huge = 2.0 ** torch.randint(10, LARGE + 1, builder.shape(z), generator=g).double()
        return builder.relu(builder.scale(builder.scale(z, 1.0, huge), 1.0, -huge))

    return _with_relus(network, around)


def doubled(g: torch.Generator, network: Network) -> Network:
    """Some ReLUs twice, half of each: neurons whose bounds move together, though nothing says so."""

    def around(builder: GraphBuilder, z: int) -> int:
        some = (torch.rand(builder.shape(z), generator=g) < 0.4).double()
        again = builder.relu(builder.scale(z, some))
        return builder.add(builder.scale(builder.relu(z), 1 - some / 2), builder.scale(again, some / 2))

    return _with_relus(network, around)


def _with_relus(network: Network, around: Callable[[GraphBuilder, int], int]) -> Network:
    """The network with every layer of ReLUs rewritten; the other operators as they are."""
    builder = GraphBuilder()
    at: dict[int, int] = {}
    for i, node in enumerate(network.nodes):
        if isinstance(node.op, Relu):
            at[i] = around(builder, at[node.inputs[0]])
        else:
            at[i] = builder._append(node.op, tuple(at[j] for j in node.inputs), node.shape)  # noqa: SLF001 - as it is
    return builder.build(at[len(network.nodes) - 1])


def _as_it_is(g: torch.Generator, network: Network) -> Network:
    del g
    return network


TWISTS: dict[str, Callable[[torch.Generator, Network], Network]] = {
    "plain": _as_it_is,
    "rescaled": rescaled,
    "cancelled": cancelled,
    "doubled": doubled,
}


# Boxes and clauses


def _box(g: torch.Generator, network: Network) -> Box:
    radius = (0.3, 1.0, 1.0, 2.0)[integer(g, 0, 3)]
    box = box_around(g, network.inputs, radius)
    form = integer(g, 0, 11)
    if form == 0:  # around 0, so that ReLUs without bias have l = -u, and sides on which they are 0
        return Box(torch.full_like(box.lower, -1.0), torch.ones_like(box.upper))
    if form == 1:  # a corner at 0: l = 0 or u = 0, or both
        return Box(torch.zeros_like(box.lower), torch.ones_like(box.upper))
    if form == 2:  # some inputs, or all of them, are fixed
        fixed = torch.rand(network.inputs, generator=g) < 0.6
        point = box.lower.float().double()
        return Box(torch.where(fixed, point, box.lower), torch.where(fixed, point, box.upper))
    if form in (3, 4, 5):
        return with_ball(g, box, 1 + form % 2)
    return box


def _clause(g: torch.Generator, outputs: int, box: int) -> Clause:
    """Rows scaled alike; now and then one twice, or one that always holds."""
    drawn = random_clause(g, outputs, integer(g, 1, 3), box)
    rows, offsets = drawn.coefficients, drawn.offsets
    form = integer(g, 0, 9)
    if form == 0:
        rows, offsets = torch.cat([rows, rows[:1]]), torch.cat([offsets, offsets[:1]])
    if form == 1:
        rows, offsets = torch.cat([rows, torch.zeros_like(rows[:1])]), torch.cat([offsets, tensor([100.0])])
    return Clause(box, rows, offsets, (False,) * len(offsets)).scaled()


def _moved(c: Clause, shift: float) -> Clause:
    return replace(c, offsets=c.offsets + shift)


def _resized(g: torch.Generator, c: Clause) -> Clause:
    """Rows of other sizes, which `Problem.clauses` brings back exactly; a single row is left as it is by both."""
    if len(c.offsets) == 1:
        return c
    sizes = 2.0 ** torch.randint(-12, 13, (len(c.offsets),), generator=g).double()
    sizes = torch.where((c.coefficients != 0).any(dim=1), sizes, 1.0)
    return replace(c, coefficients=c.coefficients * sizes[:, None], offsets=c.offsets * sizes)


# Cases


@dataclass(frozen=True, eq=False)
class _Asked:
    """A network in its plain form, with clauses and what enumeration knows of each: its least margin, and a point."""

    kind: str
    network: Network
    boxes: tuple[Box, ...]
    clauses: tuple[Clause, ...]
    lowest: tuple[tuple[float, tuple[float, ...]], ...]


@lru_cache(maxsize=2)
def _asked(seed: int, group: int) -> _Asked:
    g = _source(seed, group)
    kind = list(KINDS)[group // 5 % len(KINDS)] if group % 5 == 4 else TINY[group % len(TINY)]
    network = NETWORKS[kind](g)
    boxes = tuple(_box(g, network) for _ in range(integer(g, 1, 4) // 4 + 1))
    pieces_of_boxes = [enumerated(network, box) for box in boxes]
    clauses = tuple(_clause(g, network.outputs, k % len(boxes)) for k in range(integer(g, len(boxes), 3)))
    least = []
    for c in clauses:
        value, point = lowest(network, boxes[c.box], pieces_of_boxes[c.box], c)
        least.append((value, tuple(point.tolist())))
    return _Asked(kind, network, boxes, clauses, tuple(least))


def _source(seed: int, number: int) -> torch.Generator:
    mixed = np.random.SeedSequence([seed, number]).generate_state(1, np.uint64)[0]
    return generator(int(mixed >> np.uint64(1)))


def draw(seed: int, number: int) -> Case:
    """Case `number` of a campaign."""
    group, which = divmod(number, OF_ONE_NETWORK)
    if group % 12 == 7:
        return _hidden(seed, number)
    question = _asked(seed, group)
    g = _source(seed, 1_000_000_007 + number)
    away = AWAY[integer(g, 0, len(AWAY) - 1)] if which > 1 else 1e-3
    twist = list(TWISTS)[integer(g, 0, len(TWISTS) - 1)]
    if away < 1e-3 and twist == "cancelled":
        away = 1e-3  # what the constants round off is no disagreement
    safe = which % 2 == 0
    return _placed(question, number, twist, g, safe=safe, away=away)


def _placed(question: _Asked, number: int, twist: str, g: torch.Generator, *, safe: bool, away: float) -> Case:
    """Offsets moved to the side asked for: all clauses for a safe problem, one of them for an unsafe one."""
    network = TWISTS[twist](g, question.network)
    guilty = integer(g, 0, len(question.clauses) - 1)
    clauses, witness = [], None
    for k, (c, (value, point)) in enumerate(zip(question.clauses, question.lowest, strict=True)):
        if safe or k != guilty:
            clauses.append(_moved(c, (value if np.isfinite(value) else 0.0) - away * (1 + k)))
            continue
        alone = margin_at(problem(question.network, question.boxes, [c]), point)
        witness = None if alone is None else point
        clauses.append(_moved(c, float(alone or 0) + away))
    put = problem(network, question.boxes, [_resized(g, c) for c in clauses])
    if witness is not None:
        at = margin_at(put, witness)
        if at is not None and at <= 0:
            return Case(number, question.kind, twist, put, Truth(witness=witness, at_witness=float(at)))
        return Case(number, question.kind, twist, put, Truth())
    known = all(np.isfinite(value) for value, _ in question.lowest)
    return Case(number, question.kind, twist, put, Truth(below=away if safe and known else -np.inf))


def _hidden(seed: int, number: int) -> Case:
    group, which = divmod(number, OF_ONE_NETWORK)
    style = ("spike", "deep", "woven")[group // 12 % 3]
    planted = hidden.STYLES[style](int(_source(seed, number // 2).initial_seed() % 2**31))
    if which % 2 == 0:
        return Case(number, "hidden", style, planted.repaired, Truth(below=hidden.DEPTH))
    at = margin_at(planted.planted, planted.witness)
    return Case(number, "hidden", style, planted.planted, Truth(-np.inf, planted.witness, float(at or 0.0)))
