"""Every operator says everything that is asked of one, and all that it says is about the same affine function.

A new operator fails here until it has a network in `NETWORKS`, a row in the ONNX writer, and its cases in the checker.
"""

import inspect
import math
from collections.abc import Callable, Iterator, Mapping

import numpy as np
import pytest
import torch
from tests import support
from tests.support import generator, integer, normal
from torch import Tensor

from bough.network import walk
from bough.network.graph import Network
from bough.network.ops import AbstractAffine, Add, Conv, Coordinates, Linear, Relu, Reshape, Scale, Select
from bough.network.rewrite import GraphBuilder
from bough.problem.onnx_writer import WRITE, write_network
from bough.problem.runtime import Reference
from bough.verdict.check.layers import Layers

SEEDS = range(12)


def sparse(g: torch.Generator, *shape: int) -> Tensor:
    """Random numbers, a third of them 0."""
    return normal(g, *shape) * (torch.rand(*shape, generator=g) > 0.33)


def linear(g: torch.Generator, builder: GraphBuilder) -> int:
    features, outputs = integer(g, 1, 5), integer(g, 1, 5)
    x = builder.input((integer(g, 1, 3), features) if integer(g, 0, 1) else (features,))
    return builder.linear(x, sparse(g, outputs, features), sparse(g, outputs))


def conv(g: torch.Generator, builder: GraphBuilder) -> int:
    groups, kernel = integer(g, 1, 2), (integer(g, 1, 3), integer(g, 1, 3))
    x = builder.input((groups * integer(g, 1, 2), integer(g, 5, 7), integer(g, 5, 6)))
    weight = sparse(g, groups * integer(g, 1, 2), builder.shape(x)[0] // groups, *kernel)
    stride, dilation = (integer(g, 1, 3), integer(g, 1, 2)), (integer(g, 1, 2), integer(g, 1, 2))
    padding = (integer(g, 0, 2), integer(g, 0, 2), integer(g, 0, 2), integer(g, 0, 2))
    return builder.conv(x, weight, sparse(g, len(weight)), stride, padding, dilation, groups)


def scale(g: torch.Generator, builder: GraphBuilder) -> int:
    x = builder.input((integer(g, 1, 4), integer(g, 1, 3)))
    bias = sparse(g, *builder.shape(x))
    magnitude = bias.abs() + sparse(g, *builder.shape(x)).abs()
    factor = sparse(g, *builder.shape(x))
    match integer(g, 0, 3):
        case 0:
            return builder.scale(x, 1.0)
        case 1:
            return builder.scale(x, torch.where(factor > 0, 1.0, factor))
        case _:
            return builder.scale(x, factor, bias, magnitude)


def select(g: torch.Generator, builder: GraphBuilder) -> int:
    x = builder.input((integer(g, 1, 4), integer(g, 1, 3)))
    size = math.prod(builder.shape(x))
    match integer(g, 0, 3):
        case 0:
            return builder.select(x, torch.arange(size).reshape(builder.shape(x)))
        case 1:
            return builder.select(x, torch.randint(size, builder.shape(x), generator=g))
        case _:
            return builder.select(x, torch.randint(size, (integer(g, 1, 4), integer(g, 1, 3)), generator=g))


def reshape(g: torch.Generator, builder: GraphBuilder) -> int:
    x = builder.input((integer(g, 1, 4), 5))
    return builder.reshape(x, (5, *builder.shape(x)[:1]) if integer(g, 0, 1) else (math.prod(builder.shape(x)),))


def add(g: torch.Generator, builder: GraphBuilder) -> int:
    x = builder.input((integer(g, 1, 4), integer(g, 1, 3)))
    return builder.add(x, x)


NETWORKS: Mapping[type, Callable[[torch.Generator, GraphBuilder], int]] = {
    Linear: linear,
    Conv: conv,
    Scale: scale,
    Select: select,
    Reshape: reshape,
    Add: add,
}


def operators(base: type = AbstractAffine) -> Iterator[type]:
    """All classes that are no base of others by their names, and so have to be complete."""
    kinds: list[type] = base.__subclasses__()
    for kind in kinds:
        if kind.__name__.startswith("Abstract"):
            yield from operators(kind)
        else:
            yield kind


def test_every_affine_operator_is_complete_and_known_to_the_writer_and_to_this_test():
    assert set(operators()) == set(NETWORKS)
    assert set(WRITE) == {*NETWORKS, Relu}
    for kind in operators():
        assert not inspect.isabstract(kind), kind


class Subject:
    """A network whose last node is the operator, and that operator's function as a matrix and a constant."""

    def __init__(self, kind: type, seed: int) -> None:
        self.g, builder = generator(seed), GraphBuilder()
        self.network = builder.build(NETWORKS[kind](self.g, builder))
        self.last = len(self.network.nodes) - 1
        self.node = self.network.nodes[self.last]
        self.op, self.shapes = self.network.affine[self.last]
        self.sizes = [math.prod(shape) for shape in self.shapes]
        nothing = self.inputs([torch.zeros(1, size).double() for size in self.sizes])
        self.constant = self.op.apply(self.node.shape, *nothing).flatten()
        entries = self.op.matrices(self.node.shape, self.shapes)
        self.matrices = [dense(m, self.node.size, n) for m, n in zip(entries, self.sizes, strict=True)]

    def inputs(self, flat: list[Tensor]) -> list[Tensor]:
        return [x.reshape(-1, *shape) for x, shape in zip(flat, self.shapes, strict=True)]

    def points(self, count: int = 3) -> list[Tensor]:
        return [normal(self.g, count, size) for size in self.sizes]

    def applied(self, network: Network, flat: list[Tensor]) -> Tensor:
        return network.apply(self.last, *self.inputs(flat)).flatten(1)

    def product(self, matrices: list[Tensor], flat: list[Tensor]) -> Tensor:
        return sum((x @ m.T for x, m in zip(flat, matrices, strict=True)), torch.zeros(self.node.size).double())


def dense(entries: Coordinates, rows: int, columns: int) -> Tensor:
    assert bool((entries.values != 0).all())
    places = entries.rows * columns + entries.columns
    assert len(places.unique()) == len(places)
    if entries.picks:
        assert torch.equal(entries.rows, torch.arange(rows))
        assert bool((entries.values == 1).all())
    return torch.zeros(rows * columns).double().index_copy(0, places, entries.values).reshape(rows, columns)


def close(a: Tensor, b: Tensor) -> None:
    torch.testing.assert_close(a, b, rtol=1e-12, atol=1e-12)


@pytest.fixture(params=[(kind, seed) for kind in NETWORKS for seed in SEEDS], ids=lambda p: f"{p[0].__name__}-{p[1]}")
def subject(request) -> Subject:
    return Subject(*request.param)


def test_the_matrix_is_what_is_applied_and_what_is_written_down_by_loops(subject):
    x = subject.points()
    close(subject.applied(subject.network, x), subject.product(subject.matrices, x) + subject.constant)
    by_loops, bias = support.matrices(subject.network, subject.last)
    close(subject.constant, torch.as_tensor(bias))
    for matrix, expected in zip(subject.matrices, by_loops, strict=True):
        assert torch.equal(matrix, torch.as_tensor(expected).double())


def test_the_transpose_and_the_bias_term_are_the_matrix_and_the_constant(subject):
    f = normal(subject.g, 3, subject.node.size)
    passed = subject.network.transpose(subject.last, f.reshape(3, *subject.node.shape))
    for g, matrix, shape in zip(passed, subject.matrices, subject.shapes, strict=True):
        assert g.shape == (3, *shape)
        close(g.flatten(1), f @ matrix)
    term = subject.op.bias_term(f.reshape(3, *subject.node.shape))
    close(torch.zeros(3).double() if term is None else term, f @ subject.constant)


def test_magnitude_radius_and_pattern_are_the_matrix_by_size(subject):
    network, x = subject.network, [x.abs() for x in subject.points()]
    sizes = [m.abs() for m in subject.matrices]
    zeros = [torch.zeros(1, n).double() for n in subject.sizes]
    constant = subject.applied(network.magnitude, zeros)
    assert bool((constant >= subject.constant.abs()).all())
    close(subject.applied(network.magnitude, x), subject.product(sizes, x) + constant)
    close(subject.applied(network.radius, x), subject.product(sizes, x))
    ones = [(m > 0).double() for m in sizes]
    close(subject.applied(network.pattern, x), subject.product(ones, x) + (constant > 0))
    close(subject.applied(network.linear_part(subject.last), x), subject.product(subject.matrices, x))


def test_its_counts_are_not_less_than_those_of_the_matrix(subject):
    op, matrix = subject.op, torch.cat(subject.matrices, dim=1)
    entries = (matrix != 0).sum(dim=1)
    assert op.gain >= float(matrix.abs().sum(dim=1).max()) - 1e-12
    assert op.terms >= int(entries.max()) + (op.products > 0)
    assert max(op.terms, subject.node.size) >= max(int((m != 0).sum(dim=0).max()) for m in subject.matrices)
    if op.products:
        assert op.products >= int(entries.max())
        assert op.roundings >= op.products + 1  # each product, and each sum with what came before it
    else:
        assert bool(((matrix == 0) | (matrix == 1)).all())
        assert not bool(subject.constant.any())
        assert op.roundings >= int(entries.max()) - 1
    if op.exact:
        assert torch.equal(matrix, torch.eye(subject.node.size).double())


def test_a_scale_behind_it_becomes_a_part_of_it_and_what_is_idle_changes_nothing(subject):
    op, shape, x = subject.op, subject.node.shape, subject.points()
    value = subject.applied(subject.network, x)
    if op.idle(shape, subject.shapes[0]):
        assert shape == subject.shapes[0]
        assert torch.equal(value, x[0])
    uniform, uneven = (torch.tensor(t).double().expand(shape) for t in (-1.5, 0.5))
    other = Scale(uniform, uneven, uneven * 2)
    folded = op.scaled(other, shape)
    if folded is not None:
        close(folded.apply(shape, *subject.inputs(x)).flatten(1), -1.5 * value + 0.5)
        size = folded.changed(torch.abs, lambda _, magnitude: (magnitude, magnitude))
        whole = 1.5 * subject.applied(subject.network.magnitude, [t.abs() for t in x]) + 1
        close(size.apply(shape, *subject.inputs([t.abs() for t in x])).flatten(1), whole)
    uneven = normal(subject.g, *shape)
    folded = op.scaled(Scale(uneven, uneven, uneven.abs()), shape)
    if folded is not None:
        close(folded.apply(shape, *subject.inputs(x)).flatten(1), uneven.flatten() * (value + 1))


def test_other_precisions_have_all_of_its_numbers(subject):
    x = subject.points()
    single = subject.applied(subject.network.on(torch.device("cpu"), torch.float32), [t.float() for t in x])
    assert single.dtype == torch.float32
    torch.testing.assert_close(single.double(), subject.applied(subject.network, x), rtol=1e-4, atol=1e-4)


def test_the_written_file_computes_the_same(subject):
    reference = Reference(write_network(subject.network))
    x = normal(subject.g, 1, subject.network.inputs)
    computed = walk.evaluate(subject.network, x)[0].numpy()
    np.testing.assert_allclose(reference.run(x[0].numpy()), computed, rtol=1e-4, atol=1e-4)


def test_the_checker_knows_it_too(subject):
    layers, x = Layers(subject.network, exact=False), subject.points()
    given = [t.numpy() for t in subject.inputs(x)]
    checker_values = torch.as_tensor(layers.apply(subject.last, *given)).flatten(1)
    close(checker_values, subject.applied(subject.network, x))
    f = normal(subject.g, 3, *subject.node.shape)
    for g, h in zip(layers.transpose(subject.last, f.numpy()), subject.network.transpose(subject.last, f), strict=True):
        close(torch.as_tensor(g), h)
    terms = layers.bias(subject.last, f.numpy()), subject.op.bias_term(f)
    assert (terms[0] is None) == (terms[1] is None)
    if terms[0] is not None and terms[1] is not None:
        close(torch.as_tensor(terms[0]), terms[1])
