"""The paper's networks by name: a data set and a size enter, an untrained `nn.Sequential` leaves.

Three sizes for CIFAR-10 (the paper's table 3) and the same three, thinner, for MNIST (its appendix F). Every layer but
the last is followed by a ReLU.
"""

from collections.abc import Mapping
from dataclasses import dataclass

from torch import nn

from bough.errors import BadInput
from bough.zoo.datasets import Dataset, known


@dataclass(frozen=True)
class ConvLayer:
    """A convolution: output channels, kernel, stride, padding."""

    channels: int
    kernel: int
    stride: int
    padding: int


HALVE = (4, 2, 1)  # kernel, stride and padding that halve an image
KEEP = (3, 1, 1)  # and that keep its size


@dataclass(frozen=True)
class Architecture:
    """Convolutions, then one hidden layer, then the classes."""

    dataset: Dataset
    name: str
    windows: tuple[ConvLayer, ...]
    hidden: int

    @property
    def title(self) -> str:
        """How files are called."""
        return f"{self.dataset.name}_{self.name}"

    def build(self) -> nn.Sequential:
        """The network with PyTorch's own first weights, which `torch.manual_seed` decides."""
        channels, side, _ = self.dataset.shape
        layers: list[nn.Module] = []
        for window in self.windows:
            layers += [nn.Conv2d(channels, window.channels, window.kernel, window.stride, window.padding), nn.ReLU()]
            channels, side = window.channels, (side + 2 * window.padding - window.kernel) // window.stride + 1
        layers += [nn.Flatten(), nn.Linear(channels * side * side, self.hidden), nn.ReLU()]
        return nn.Sequential(*layers, nn.Linear(self.hidden, len(self.dataset.classes)))


def _deep(dataset: str) -> Architecture:
    windows = (ConvLayer(8, *HALVE), ConvLayer(8, *KEEP), ConvLayer(8, *KEEP), ConvLayer(8, *HALVE))
    return Architecture(known(dataset), "deep", windows, 100)


def _two(dataset: str, name: str, channels: tuple[int, int], hidden: int) -> Architecture:
    return Architecture(known(dataset), name, tuple(ConvLayer(c, *HALVE) for c in channels), hidden)


ARCHITECTURES: Mapping[tuple[str, str], Architecture] = {
    (a.dataset.name, a.name): a
    for a in (
        _two("cifar10", "base", (8, 16), 100),
        _two("cifar10", "wide", (16, 32), 100),
        _deep("cifar10"),
        _two("mnist", "base", (4, 8), 50),
        _two("mnist", "wide", (16, 32), 100),
        _deep("mnist"),
    )
}


def architecture(dataset: str, name: str) -> Architecture:
    """The architecture of that name for a data set."""
    known(dataset)
    if (dataset, name) not in ARCHITECTURES:
        names = ", ".join(size for owner, size in ARCHITECTURES if owner == dataset)
        raise BadInput(f"there is no architecture '{name}' for {dataset}; there are: {names}")
    return ARCHITECTURES[dataset, name]
