"""What a model is: it scores the ReLUs of a scene, and the highest score of each domain is the split."""

from abc import ABC, abstractmethod

from torch import Tensor, nn

from bough.errors import BadInput
from bough.learning.scene import Graph, Scene


class AbstractModel(nn.Module, ABC):
    """Scores every ReLU of a scene; those that are not ambiguous may get any number."""

    preset: str  # its name, by which it is built again when weights are read

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
        raise BadInput(f"a {self.preset} model scores ReLUs only; of inputs, --preset paper does, and paper-code")
