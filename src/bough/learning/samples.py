"""Samples: scenes with the bounds of the children that strong branching looked at; what a model is taught from."""

from dataclasses import dataclass

import torch
from torch import Tensor

from bough.branching.improvement import Measure, improvements
from bough.errors import BadInput
from bough.learning.scene import Graph, Scene


@dataclass(frozen=True, eq=False)
class Samples:
    """Domains of one property, each with both children of every ReLU that was tried."""

    graph: Graph
    scene: Scene
    children: Tensor  # float32 [samples, n, 2]: the blocked and the passing child's bound; minus infinity: not tried
    halves: Tensor | None = None  # [samples, inputs, 2]: bounds of both halves of the box, cut at each input

    def __len__(self) -> int:
        return len(self.scene)

    def __getitem__(self, rows: Tensor | slice) -> "Samples":
        halves = None if self.halves is None else self.halves[rows]
        return Samples(self.graph, self.scene[rows], self.children[rows], halves)

    def to(self, device: torch.device) -> "Samples":
        """The same on a device."""
        graph = Graph(
            self.graph.network.on(device, torch.float32), self.graph.neurons.to(device), self.graph.passing.to(device)
        )
        halves = None if self.halves is None else self.halves.to(device)
        return Samples(graph, self.scene.to(device), self.children.to(device), halves)

    @property
    def tried(self) -> Tensor:
        """Which ReLUs have a label, bool [samples, n]."""
        return (self.children > -torch.inf).all(dim=2)

    def improvements(self, measure: Measure = "mean") -> Tensor:
        """The improvement m of every ReLU (Eq. 8, or another measure), [samples, n]; minus infinity if not tried."""
        return improvements(self.scene.bound, self.children, measure=measure)

    def input_improvements(self, measure: Measure = "mean") -> Tensor:
        """The same of a cut at every input, [samples, inputs]."""
        if self.halves is None:
            raise BadInput("these samples say nothing about inputs; label with --inputs")
        return improvements(self.scene.bound, self.halves, measure=measure)
