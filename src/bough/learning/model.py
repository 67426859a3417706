"""What a model is: it scores the ReLUs of a scene, and the highest score of each domain is the split."""

from abc import ABC, abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass

from torch import Tensor, nn

from bough.errors import BadInput
from bough.learning.scene import Graph, Scene


@dataclass(frozen=True)
class ModelSettings:
    """What a model is built from, beside its name; each kind of model adds its sizes."""

    reduced: bool = False  # without primal and dual values: the paper's GNN-R


class AbstractModel(nn.Module, ABC):
    """Scores every ReLU of a scene; those that are not ambiguous may get any number."""

    preset: str  # its name, by which it is built again when weights are read
    settings: ModelSettings = ModelSettings()

    @abstractmethod
    def forward(self, graph: Graph, scene: Scene) -> Tensor:
        """Scores, float32 [domains, n]; a domain's depend on that domain only."""

    def footprint(self, graph: Graph) -> int:
        """Bytes that scoring takes per domain, about; 0 where that is not known."""
        del graph
        return 0

    def score_all(self, graph: Graph, scene: Scene) -> Tensor:
        """Scores of the ReLUs, then of the inputs, [domains, n + inputs]."""
        del graph, scene
        raise BadInput(f"a {self.preset} model scores ReLUs only, and no inputs; leave out --inputs")


class AbstractBuilt(AbstractModel):
    """A model that can be built again: one of the same preset and settings has arrays of the same shapes."""

    columns: Mapping[str, tuple[str, ...]]  # the names of its features, by kind of node

    @abstractmethod
    def footprint(self, graph: Graph) -> int:
        """Bytes that scoring takes per domain, about (measured on Base); training takes several times that."""
