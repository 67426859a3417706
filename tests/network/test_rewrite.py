"""Lowerings and folding compute the same function, and the magnitudes of biases are kept."""

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor
from torch.nn import functional

from bough.errors import NetworkError
from bough.network import walk
from bough.network.graph import Network
from bough.network.ops import Conv, Linear, Reshape, Scale, Select
from bough.network.rewrite import GraphBuilder, Window, fold_scales


def rand(*shape: int) -> Tensor:
    return torch.randn(*shape, dtype=torch.float64)


def output(network: Network, x: Tensor) -> Tensor:
    return walk.forward(network, x)[-1]


@st.composite
def windows(draw, dilated: bool):
    """A window as PyTorch has them: the same padding at both ends, at most half the kernel."""
    kernel = draw(st.tuples(*[st.integers(1, 4)] * 2))
    stride = draw(st.tuples(*[st.integers(1, 4)] * 2))
    pads = tuple(draw(st.integers(0, k // 2)) for k in kernel)
    dilation = draw(st.tuples(*[st.integers(1, 2 if dilated else 1)] * 2))
    lengths = [d * (k - 1) + 1 + draw(st.integers(0, 6)) for k, d in zip(kernel, dilation, strict=True)]
    return Window(kernel, stride, (*pads, *pads), dilation, draw(st.booleans())), lengths


@given(windows(dilated=True), st.integers(1, 3))
def test_max_pool_is_pytorchs(drawn, channels):
    window, lengths = drawn
    builder = GraphBuilder()
    network = builder.build(builder.max_pool(builder.input((channels, *lengths)), window))
    x = rand(2, channels, *lengths)
    expected = functional.max_pool2d(
        x, window.kernel, window.stride, window.padding[:2], window.dilation, window.ceil_mode
    )
    torch.testing.assert_close(output(network, x), expected)
    assert network.neurons == expected[0].numel() * (window.kernel[0] * window.kernel[1] - 1)


@given(windows(dilated=False), st.integers(1, 3), st.booleans())
def test_average_pool_is_pytorchs(drawn, channels, count_padding):
    window, lengths = drawn
    builder = GraphBuilder()
    network = builder.build(builder.average_pool(builder.input((channels, *lengths)), window, count_padding))
    x = rand(2, channels, *lengths)
    expected = functional.avg_pool2d(
        x, window.kernel, window.stride, window.padding[:2], window.ceil_mode, count_padding
    )
    torch.testing.assert_close(output(network, x), expected)
    torch.testing.assert_close(output(fold_scales(network), x), expected)


def test_max_pool_of_negative_values_ignores_asymmetric_padding():
    builder = GraphBuilder()
    x = builder.input((1, 3, 3))
    network = builder.build(builder.max_pool(x, Window((3, 2), (2, 2), (0, 1, 2, 0))))
    point = -1 - torch.rand(2, 1, 3, 3, dtype=torch.float64)
    padded = functional.pad(point, (1, 0, 0, 2), value=-torch.inf)
    torch.testing.assert_close(output(network, point), functional.max_pool2d(padded, (3, 2), 2))


def test_a_window_without_valid_elements_is_refused():
    builder = GraphBuilder()
    x = builder.input((1, 2, 2))
    with pytest.raises(NetworkError, match="wholly in the padding"):
        builder.max_pool(x, Window((2, 2), (2, 2), (2, 0, 0, 0)))
    with pytest.raises(NetworkError, match="wholly in the padding"):
        builder.average_pool(x, Window((2, 2), (2, 2), (2, 0, 0, 0)))
    with pytest.raises(NetworkError, match="longer than its input"):
        builder.max_pool(x, Window((3, 1)))


def test_global_average_pool():
    builder = GraphBuilder()
    network = builder.build(builder.global_average_pool(builder.input((3, 4, 5))))
    x = rand(2, 3, 4, 5)
    torch.testing.assert_close(output(network, x), x.mean((2, 3), keepdim=True))


def test_batch_norm_folds_into_a_convolution_and_keeps_its_magnitude():
    gamma, beta, mean, variance = rand(4), rand(4), 100 * rand(4), rand(4).abs()
    weight, bias = rand(4, 3, 2, 2), rand(4)
    builder = GraphBuilder()
    conv = builder.conv(builder.input((3, 5, 5)), weight, bias)
    network = builder.build(builder.batch_norm(conv, gamma, beta, mean, variance, 1e-3))
    folded = fold_scales(network)
    x = rand(2, 3, 5, 5)
    inner = functional.conv2d(x, weight, bias)
    expected = functional.batch_norm(inner, mean, variance, gamma, beta, eps=1e-3)
    torch.testing.assert_close(output(network, x), expected)
    torch.testing.assert_close(output(folded, x), expected)
    assert [type(node.op) for node in folded.nodes[1:]] == [Conv]
    op = folded.nodes[1].op
    assert isinstance(op, Conv)
    factor = gamma / (variance + 1e-3).sqrt()
    torch.testing.assert_close(op.bias_magnitude, factor.abs() * bias.abs() + beta.abs() + (mean * factor).abs())


def test_batch_norm_refuses_what_it_cannot_divide_by():
    builder = GraphBuilder()
    x = builder.input((2,))
    one = torch.ones(2, dtype=torch.float64)
    with pytest.raises(NetworkError, match="not positive"):
        builder.batch_norm(x, one, one, one, -one, 1e-5)
    with pytest.raises(NetworkError, match="do not fit"):
        builder.batch_norm(x, one[:1], one, one, one, 1e-5)


def test_scales_fold_into_what_is_right_before_them():
    builder = GraphBuilder()
    x = builder.input((2, 3))
    y = builder.linear(x, rand(4, 3))
    y = builder.scale(builder.scale(y, rand(4), rand(4)), 1.0, rand(4))
    y = builder.scale(builder.scale(builder.relu(y), -1.0), rand(2, 4), rand(2, 4))
    network = builder.build(y)
    folded = fold_scales(network)
    assert [type(node.op).__name__ for node in folded.nodes] == ["Input", "Linear", "Relu", "Scale"]
    points = rand(5, 2, 3)
    torch.testing.assert_close(output(folded, points), output(network, points))


def test_a_scale_that_differs_between_rows_or_positions_stays():
    builder = GraphBuilder()
    x = builder.input((1, 4, 4))
    conv = builder.conv(x, rand(2, 1, 3, 3))
    network = builder.build(builder.scale(conv, 1.0, rand(2, 2, 2)))
    assert [type(node.op) for node in fold_scales(network).nodes[1:]] == [Conv, Scale]
    builder = GraphBuilder()
    linear = builder.linear(builder.input((2, 3)), rand(4, 3))
    network = builder.build(builder.scale(linear, rand(2, 4)))
    assert [type(node.op) for node in fold_scales(network).nodes[1:]] == [Linear, Scale]


def test_an_operator_with_another_reader_is_not_changed():
    builder = GraphBuilder()
    linear = builder.linear(builder.input((3,)), rand(3, 3), rand(3))
    network = builder.build(builder.add(linear, builder.scale(linear, -0.5, 1.0)))
    folded = fold_scales(network)
    assert len(folded.nodes) == len(network.nodes)
    points = rand(5, 3)
    torch.testing.assert_close(output(folded, points), 0.5 * output_of(network, 1, points) + 1)


def output_of(network: Network, i: int, x: Tensor) -> Tensor:
    return walk.forward(network, x)[i]


def test_linear_operators_are_not_multiplied():
    builder = GraphBuilder()
    network = builder.build(builder.linear(builder.linear(builder.input((3,)), rand(3, 3)), rand(3, 3)))
    assert len(fold_scales(network).nodes) == 3


def test_nodes_that_change_nothing_are_left_out():
    builder = GraphBuilder()
    x = builder.input((2, 3))
    y = builder.scale(builder.select(x, torch.arange(6).reshape(2, 3)), 1.0, 0.0)
    y = builder.reshape(builder.reshape(builder.reshape(y, (6,)), (3, 2)), (2, 3))
    network = fold_scales(builder.build(builder.relu(y)))
    kinds = {type(node.op) for node in network.nodes}
    assert not kinds & {Select, Scale}
    assert sum(isinstance(node.op, Reshape) for node in network.nodes) <= 1
    assert len(fold_scales(builder.build(builder.scale(x, 1.0))).nodes) == 1


@given(st.data())
def test_folding_keeps_the_function_of_random_graphs(data):
    builder = GraphBuilder()
    nodes = [builder.input((4,))]
    for _ in range(data.draw(st.integers(1, 12))):
        x, y = data.draw(st.sampled_from(nodes)), data.draw(st.sampled_from(nodes))
        kind = data.draw(st.sampled_from(["linear", "scale", "unit", "add", "relu", "select", "reshape"]))
        make = {
            "linear": lambda x, y: builder.linear(x, rand(4, 4), rand(4)),
            "scale": lambda x, y: builder.scale(x, rand(4), rand(4)),
            "unit": lambda x, y: builder.scale(x, 1.0),
            "add": builder.add,
            "relu": lambda x, y: builder.relu(x),
            "select": lambda x, y: builder.select(x, torch.arange(4).flip(0)),
            "reshape": lambda x, y: builder.reshape(builder.reshape(x, (2, 2)), (4,)),
        }[kind]
        nodes.append(make(x, y))
    network = builder.build(nodes[-1])
    folded = fold_scales(network)
    x = rand(3, 4)
    torch.testing.assert_close(walk.evaluate(folded, x), walk.evaluate(network, x))
    # The magnitude network bounds what it did before folding: rounding of either is covered.
    before, after = (walk.evaluate(n.magnitude, x.abs()) for n in (network, folded))
    torch.testing.assert_close(after, before)


@pytest.mark.parametrize(
    ("build", "message"),
    [
        (lambda b, x: b.linear(x, rand(2, 5)), "does not fit"),
        (lambda b, x: b.linear(x, rand(2, 4), rand(3)), "bias"),
        (lambda b, x: b.conv(x, rand(1, 3, 1, 1)), "does not fit"),
        (lambda b, x: b.conv(x, rand(1, 2, 1, 1), groups=0), "does not fit"),
        (lambda b, x: b.scale(x, rand(3)), "constant"),
        (lambda b, x: b.select(x, torch.tensor([24])), "outside"),
        (lambda b, x: b.reshape(x, (5, 5)), "cannot take"),
        (lambda b, x: b.add(x, b.reshape(x, (24,))), "cannot be added"),
        (lambda b, x: b.input((3,)), "one input"),
        (lambda b, x: b.max_pool(b.reshape(x, (24,)), Window((1, 1))), "pooling needs"),
        (lambda b, x: b.select(x, torch.zeros(0, dtype=torch.int64)), "elements"),
    ],
)
def test_what_does_not_fit_is_refused(build, message):
    builder = GraphBuilder()
    x = builder.input((2, 3, 4))
    with pytest.raises(NetworkError, match=message):
        build(builder, x)
