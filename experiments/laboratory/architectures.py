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


@dataclass(frozen=True)
class Architecture:
    """Convolutions, then one hidden layer, then the classes."""

    dataset: Dataset
    name: str
    convolutions: tuple[ConvLayer, ...]
    hidden: int

    @property
    def title(self) -> str:
        """The name that files of this network have."""
        return f"{self.dataset.name}_{self.name}"

    def build(self) -> nn.Sequential:
        """The network with PyTorch's own first weights, which `torch.manual_seed` decides."""
        channels, side, _ = self.dataset.shape
        layers: list[nn.Module] = []
        for conv in self.convolutions:
            layers += [nn.Conv2d(channels, conv.channels, conv.kernel, conv.stride, conv.padding), nn.ReLU()]
            channels = conv.channels
            side = (side + 2 * conv.padding - conv.kernel) // conv.stride + 1
        layers += [nn.Flatten(), nn.Linear(channels * side * side, self.hidden), nn.ReLU()]
        return nn.Sequential(*layers, nn.Linear(self.hidden, len(self.dataset.classes)))


def _halving(*channels: int) -> tuple[ConvLayer, ...]:
    """Convolutions of which each halves the image."""
    return tuple(ConvLayer(count, 4, 2, 1) for count in channels)


DEEP = (*_halving(8), ConvLayer(8, 3, 1, 1), ConvLayer(8, 3, 1, 1), *_halving(8))
ARCHITECTURES: Mapping[tuple[str, str], Architecture] = {
    (a.dataset.name, a.name): a
    for a in (
        Architecture(known("cifar10"), "base", _halving(8, 16), 100),
        Architecture(known("cifar10"), "wide", _halving(16, 32), 100),
        Architecture(known("cifar10"), "deep", DEEP, 100),
        Architecture(known("mnist"), "base", _halving(4, 8), 50),
        Architecture(known("mnist"), "wide", _halving(16, 32), 100),
        Architecture(known("mnist"), "deep", DEEP, 100),
    )
}


def architecture(dataset: str, name: str) -> Architecture:
    """The architecture of that name for a data set."""
    known(dataset)
    if (dataset, name) not in ARCHITECTURES:
        names = ", ".join(size for owner, size in ARCHITECTURES if owner == dataset)
        raise BadInput(f"there is no architecture '{name}' for {dataset}; there are: {names}")
    return ARCHITECTURES[dataset, name]
