"""PyTorch modules are read as PyTorch evaluates them, and are left as they were."""

import copy

import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional

from bough.errors import NetworkError, UnsupportedOperator
from bough.network.ops import Linear
from bough.problem.onnx import read_network
from bough.problem.onnx_writer import write_network
from bough.problem.runtime import Reference, compare
from bough.problem.torch import ModuleReference, read_module


class Function(nn.Module):
    """A function of the input as a module, with a few parameters to use."""

    def __init__(self, function, *parameters: Tensor):
        super().__init__()
        self.function = function
        self.p = nn.ParameterList(parameters)

    def forward(self, x):
        return self.function(x, *self.p)


class Residual(nn.Module):
    def __init__(self):
        super().__init__()
        self.first = nn.Conv2d(3, 3, 3, padding=1)
        self.norm = nn.BatchNorm2d(3)
        self.relu = nn.ReLU(inplace=True)

    def forward(self, x):
        return self.relu(self.norm(self.first(x)) + x) - self.first(x)


def used(module):
    """The module with parameters and statistics as training leaves them."""
    generator = torch.Generator().manual_seed(1)
    with torch.no_grad():
        for part in module.modules():
            if isinstance(part, nn.BatchNorm1d | nn.BatchNorm2d):
                assert part.running_mean is not None
                assert part.running_var is not None
                part.running_mean.normal_(generator=generator)
                part.running_var.uniform_(0.5, 2, generator=generator)
                if part.affine:
                    part.weight.normal_(generator=generator)
                    part.bias.normal_(generator=generator)
    return module


IMAGE, FLAT = (3, 8, 6), (6,)

MODULES = {
    "linear": (lambda: nn.Sequential(nn.Linear(6, 5), nn.ReLU(), nn.Linear(5, 2, bias=False)), FLAT),
    "linear on rows": (lambda: nn.Sequential(nn.Linear(6, 5), nn.ReLU(), nn.Flatten(), nn.Linear(20, 2)), (4, 6)),
    "convolutions": (
        lambda: nn.Sequential(
            nn.Conv2d(3, 4, 4, 2, 1),
            nn.ReLU(),
            nn.Conv2d(4, 6, 3, dilation=2, padding=2, groups=2, bias=False),
            nn.Flatten(),
            nn.Linear(72, 2),
        ),
        IMAGE,
    ),
    "convolution 1d": (
        lambda: nn.Sequential(
            nn.Conv1d(2, 4, 3, 2, 1), nn.BatchNorm1d(4), nn.ReLU(), nn.Conv1d(4, 1, 2, padding="same")
        ),
        (2, 9),
    ),
    "batch norm": (
        lambda: nn.Sequential(nn.Linear(6, 5), nn.BatchNorm1d(5), nn.ReLU(), nn.BatchNorm1d(5, affine=False)),
        FLAT,
    ),
    "pooling": (
        lambda: nn.Sequential(
            nn.MaxPool2d(3, 2, 1, ceil_mode=True),
            nn.AvgPool2d(2, 1, 1, count_include_pad=False),
            nn.AdaptiveAvgPool2d(1),
            nn.Flatten(),
        ),
        IMAGE,
    ),
    "pooling 1d": (lambda: nn.Sequential(nn.MaxPool1d(2), nn.AvgPool1d(2, ceil_mode=True)), (2, 9)),
    "average over padding": (lambda: nn.AvgPool2d(3, 2, 1, ceil_mode=True), IMAGE),
    "dropout and identity": (lambda: nn.Sequential(nn.Dropout(), nn.Identity(), nn.Linear(6, 2), nn.Dropout()), FLAT),
    "residual": (lambda: nn.Sequential(Residual(), Residual()), IMAGE),
    "no relu": (nn.Identity, FLAT),
    "relu by function and method": (
        lambda: Function(lambda x: functional.relu(x - 0.3).sub(0.2).relu().add(-0.1).clamp(min=0)),
        FLAT,
    ),
    "arithmetic": (lambda: Function(lambda x, p: (1 - x) * p / 3 - (p - 2 * x) + 1 / p - -x, torch.rand(6) + 1), FLAT),
    "matrices": (
        lambda: Function(
            lambda x, p, q, r: torch.addmm(p, x, q, beta=0.5, alpha=2.0) @ r,
            torch.randn(4),
            torch.randn(6, 4),
            torch.randn(4),
        ),
        FLAT,
    ),
    "matrix on the left": (lambda: Function(lambda x, p: p @ x, torch.randn(2, 3)), (3, 5)),
    "shapes": (
        lambda: Function(
            lambda x: x.permute(0, 2, 3, 1).reshape(1, 4, -1).transpose(1, 2).unsqueeze(1).squeeze(0).flatten()[None]
        ),
        IMAGE,
    ),
    "slices": (
        lambda: Function(
            lambda x: torch.cat([x[:, 1:, ::2], x[:, [2, 0]].flip(-1)[:, :, 4:], torch.ones(1, 1, 4, 6)], 1).relu()
        ),
        IMAGE,
    ),
    "parts": (lambda: Function(lambda x: x.split(2, 2)[1] + x.chunk(4, 2)[3].relu()), IMAGE),
    "means": (lambda: Function(lambda x: x.mean((2, 3)) + x.mean() + x.mean(1, keepdim=True).flatten(1)[:, :3]), IMAGE),
    "normalised input": (
        lambda: Function(lambda x, m, s: ((x - m) / s).flatten(1), torch.rand(3, 1, 1), torch.rand(3, 1, 1) + 0.1),
        IMAGE,
    ),
    "double": (lambda: nn.Sequential(nn.Linear(6, 5), nn.ReLU()).double(), FLAT),
}


@pytest.mark.parametrize("name", MODULES)
def test_module_is_read_as_pytorch_evaluates_it(name):
    build, shape = MODULES[name]
    module = used(build())
    network = read_module(module, shape)
    assert network.input_shape == shape
    compare(network, ModuleReference(module, shape), points=12)
    data = write_network(network)
    compare(network, Reference(data), points=12)
    compare(read_network(data), Reference(data), points=12)


def test_batch_norm_is_folded():
    network = read_module(used(nn.Sequential(nn.Conv2d(3, 4, 3), nn.BatchNorm2d(4), nn.ReLU())), IMAGE)
    assert [type(node.op).__name__ for node in network.nodes] == ["Input", "Conv", "Relu"]


def test_the_module_is_left_as_it_was():
    module = nn.Sequential(nn.Linear(6, 5), nn.BatchNorm1d(5), nn.Dropout(), nn.ReLU(inplace=True))
    used(module)[2].eval()
    before = copy.deepcopy(module.state_dict())
    network = read_module(module, FLAT)
    compare(network, ModuleReference(module, FLAT))
    assert [part.training for part in module] == [True, True, False, True]
    assert module.training
    for name, tensor in module.state_dict().items():
        assert torch.equal(tensor, before[name])
    assert all(p.requires_grad for p in module.parameters())


def test_weights_are_copies():
    module = nn.Linear(6, 2).double()
    op = read_module(module, FLAT).nodes[1].op
    assert isinstance(op, Linear)
    before = op.weight.clone()
    with torch.no_grad():
        module.weight.zero_()
    assert torch.equal(op.weight, before)


@pytest.mark.parametrize(
    ("module", "words"),
    [
        (nn.Sequential(nn.Linear(6, 2), nn.Sigmoid()), "sigmoid"),
        (nn.LeakyReLU(), "leaky_relu"),
        (Function(lambda x: x * x), "not affine"),
        (Function(lambda x: 1 / x), "reciprocal"),
        (Function(lambda x: x.clamp(0, 6)), "clamp"),
        (Function(lambda x: functional.dropout(x, 0.5, training=True)), "dropout"),
    ],
)
def test_unsupported_operators_are_named(module, words):
    with pytest.raises(UnsupportedOperator, match=words) as caught:
        read_module(module, FLAT)
    assert "supported are" in str(caught.value)
    assert "node '" in str(caught.value)
    assert "\n" not in str(caught.value)


class Two(nn.Module):
    def forward(self, x):
        return x, x.relu()


class Counting(nn.Module):
    calls: Tensor

    def __init__(self):
        super().__init__()
        self.register_buffer("calls", torch.zeros(1))

    def forward(self, x):
        self.calls += 1
        return x + 1


@pytest.mark.parametrize(
    ("module", "words"),
    [
        (nn.Linear(5, 2), "cannot export"),
        (Two(), "exactly one"),
        (Counting(), "calls"),
        (Function(lambda x, p: x * p, torch.full((6,), torch.nan)), "not finite"),
        (Function(lambda x: torch.ones(1, 2)), "does not depend"),
        (Function(lambda x: x / 0), "zero"),
    ],
)
def test_modules_that_cannot_be_read(module, words):
    with pytest.raises(NetworkError, match=words) as caught:
        read_module(module, FLAT)
    assert "\n" not in str(caught.value)


def test_a_module_that_cannot_be_evaluated():
    with pytest.raises(NetworkError, match="cannot be evaluated"):
        ModuleReference(nn.Linear(5, 2), FLAT).run(torch.zeros(6).numpy())


def test_a_difference_to_the_module_is_refused():
    module = nn.Linear(6, 2)
    network = read_module(module, FLAT)
    with torch.no_grad():
        module.weight[0, 0] *= 1.01
    with pytest.raises(NetworkError, match="PyTorch"):
        compare(network, ModuleReference(module, FLAT))


@pytest.mark.gpu
def test_a_module_on_the_gpu():
    module = used(nn.Sequential(nn.Linear(6, 5), nn.BatchNorm1d(5), nn.ReLU())).cuda()
    network = read_module(module, FLAT)
    op = network.nodes[1].op
    assert isinstance(op, Linear)
    assert op.weight.device.type == "cpu"
    compare(network, ModuleReference(module, FLAT))
