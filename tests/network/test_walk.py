"""The walks: forward right against PyTorch, and backward the transpose of forward."""

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor
from torch.nn import functional

from bough.network import walk
from bough.network.graph import Network
from bough.network.rewrite import GraphBuilder

SIZES = st.integers(1, 3)


def rand(*shape: int) -> Tensor:
    return torch.randn(*shape, dtype=torch.float64)


def assert_transposed(network: Network, batch: int = 2) -> None:
    """<f, W x + b> = <W^T f, x> + <f, b>, with the bias from `bias_term`; no ReLUs in it."""
    x, f = rand(batch, *network.input_shape), rand(batch, *network.nodes[-1].shape)
    biases = torch.zeros(batch, dtype=torch.float64)

    def visit(i: int, g: Tensor) -> None:
        nonlocal biases
        term = network.nodes[i].op.bias_term(g)
        biases = biases if term is None else biases + term

    y = walk.forward(network, x)[-1]
    assert y.shape == (batch, *network.nodes[-1].shape)
    back = walk.backward(network, len(network.nodes) - 1, f, lambda _, g: g, visit)
    left = (f * y).reshape(batch, -1).sum(1)
    right = (back * x).reshape(batch, -1).sum(1) + biases
    torch.testing.assert_close(left, right, rtol=1e-10, atol=1e-10)


@st.composite
def convolutions(draw):
    groups = draw(SIZES)
    channels, filters = groups * draw(SIZES), groups * draw(SIZES)
    kernel = draw(st.tuples(SIZES, SIZES))
    dilation = draw(st.tuples(SIZES, SIZES))
    stride = draw(st.tuples(SIZES, SIZES))
    padding = draw(st.tuples(*[st.integers(0, 3)] * 4))
    reach = [d * (k - 1) + 1 for d, k in zip(dilation, kernel, strict=True)]
    height, width = (max(1, r - padding[i] - padding[i + 2]) + draw(st.integers(0, 4)) for i, r in enumerate(reach))
    builder = GraphBuilder()
    x = builder.input((channels, height, width))
    weight, bias = rand(filters, channels // groups, *kernel), rand(filters)
    return builder.build(builder.conv(x, weight, bias, stride, padding, dilation, groups))


@given(convolutions())
def test_convolution_is_pytorchs_and_its_transpose_is_exact(network):
    op = network.nodes[-1].op
    top, left, bottom, right = op.padding
    x = rand(3, *network.input_shape)
    padded = functional.pad(x, (left, right, top, bottom))
    expected = functional.conv2d(padded, op.weight, op.bias, op.stride, 0, op.dilation, op.groups)
    torch.testing.assert_close(walk.forward(network, x)[-1], expected)
    assert_transposed(network)


@given(st.lists(SIZES, max_size=2), SIZES, SIZES)
def test_linear(rows, features, outputs):
    builder = GraphBuilder()
    x = builder.input((*rows, features))
    assert_transposed(builder.build(builder.linear(x, rand(outputs, features), rand(outputs))))


@given(st.lists(SIZES, min_size=1, max_size=3))
def test_scale(shape):
    builder = GraphBuilder()
    assert_transposed(builder.build(builder.scale(builder.input(shape), rand(*shape), rand(*shape))))


@given(st.lists(SIZES, min_size=1, max_size=3), st.lists(SIZES, min_size=1, max_size=3))
def test_select_with_repeated_elements(shape, chosen):
    builder = GraphBuilder()
    x = builder.input(shape)
    index = torch.randint(torch.Size(shape).numel(), tuple(chosen))
    network = builder.build(builder.select(x, index))
    values = rand(2, *shape)
    assert torch.equal(walk.forward(network, values)[-1], values.reshape(2, -1)[:, index])
    assert_transposed(network)


def test_reshape_and_a_sum_of_branches():
    builder = GraphBuilder()
    x = builder.input((2, 3, 4))
    y = builder.linear(builder.reshape(x, (6, 4)), rand(4, 4), rand(4))
    z = builder.scale(builder.reshape(x, (6, 4)), -2.0)
    assert_transposed(builder.build(builder.add(builder.add(y, z), y)))


def test_an_output_that_is_the_input():
    builder = GraphBuilder()
    network = builder.build(builder.input((3,)))
    x = rand(2, 3)
    assert torch.equal(walk.evaluate(network, x), x)
    assert torch.equal(walk.backward(network, 0, x, lambda _, g: g), x)


def test_relus_are_passed_by_the_callers_rule():
    builder = GraphBuilder()
    x = builder.input((3,))
    network = builder.build(builder.relu(builder.scale(x, 2.0)))
    back = walk.backward(network, 2, torch.ones(1, 3, dtype=torch.float64), lambda i, g: g * 5 * i)
    assert torch.equal(back, torch.full((1, 3), 20.0, dtype=torch.float64))


@pytest.mark.parametrize("flat", [True, False])
def test_evaluate_takes_points_flat_or_shaped(flat):
    builder = GraphBuilder()
    network = builder.build(builder.relu(builder.input((2, 3))))
    x = rand(4, 6) if flat else rand(4, 2, 3)
    assert torch.equal(walk.evaluate(network, x), x.reshape(4, 6).relu())


def test_anything_can_be_carried_that_passes_affine_nodes_and_can_be_joined():
    """The ways from the output back to each node, as words."""
    builder = GraphBuilder()
    x = builder.input((2,))
    y = builder.relu(builder.scale(x, 2.0))
    network = builder.build(builder.add(builder.scale(y, 3.0), y))
    met: list[tuple[int, str]] = []

    def affine(i: int, word: str) -> list[str]:
        return [f"{word}{i}"] * len(network.nodes[i].inputs)

    def visit(i: int, word: str) -> None:
        met.append((i, word))

    words = walk.carry(
        network, 4, "", lambda i, word: f"({word})r{i}", affine, lambda a, b: f"{b}+{a}", visit, {1: "-"}
    )
    assert words == "(43+4)r2+-1"
    assert met == [(4, ""), (3, "4"), (2, "43+4"), (1, "(43+4)r2+-")]
    assert walk.carry(network, 0, "", lambda i, word: word, affine, lambda a, b: a) == ""


def test_relus_going_forward_are_the_callers_where_it_has_a_rule():
    builder = GraphBuilder()
    network = builder.build(builder.scale(builder.relu(builder.input((3,))), 2.0))
    x = rand(2, 3)
    assert torch.equal(walk.forward(network, x, lambda i, z: z + i)[-1], 2 * (x + 1))
