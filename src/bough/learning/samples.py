"""Samples: scenes with the bounds of the children that strong branching looked at; what a model is taught from."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal

import torch
from torch import Tensor

from bough.branching.improvement import Measure, improvements
from bough.errors import BadInput
from bough.learning.scene import Graph, Scene

Worth = Measure | Literal["size"]  # how splits are compared: by bounds of their children, or by the trees below them
OPTIONAL = ("halves", "sizes", "allowed")  # arrays that not all samples have


@dataclass(frozen=True, eq=False)
class Samples:
    """Domains of one property, each with both children of every ReLU that was tried."""

    graph: Graph
    scene: Scene
    children: Tensor  # float32 [samples, n, 2]: the blocked and the passing child's bound; minus infinity: not tried
    step: Tensor  # int64 [samples]: of the search, at which it was taken; or its place in the tree
    halves: Tensor | None = None  # [samples, inputs, 2]: bounds of both halves of the box, cut at each input
    sizes: Tensor | None = None  # [samples, n]: branches of the tree below a split; infinite: not known
    allowed: Tensor | None = None  # [samples]: branches that such a tree was allowed

    def __len__(self) -> int:
        return len(self.scene)

    def __getitem__(self, rows: Tensor | slice) -> "Samples":
        return self.changed(self.graph, lambda array: array[rows])

    def to(self, device: torch.device) -> "Samples":
        """The same on a device."""
        return self.changed(self.graph.to(device), lambda array: array.to(device))

    def changed(self, graph: Graph, change: Callable[[Tensor], Tensor]) -> "Samples":
        """With something done to every array that has a row for each sample."""
        more = {name: change(array) for name, array in self.optional().items()}
        return Samples(graph, self.scene.map(change), change(self.children), change(self.step), **more)

    def optional(self) -> dict[str, Tensor]:
        """The arrays that not all samples have, by name, where these have them."""
        return {name: array for name in OPTIONAL if (array := getattr(self, name)) is not None}

    @property
    def tried(self) -> Tensor:
        """Which ReLUs have a label, bool [samples, n]."""
        strong = (self.children > -torch.inf).all(dim=2)
        return strong if self.sizes is None else strong | self.sizes.isfinite()

    def improvements(self, measure: Worth = "mean") -> Tensor:
        """The improvement m of every ReLU (Eq. 8, or another measure), [samples, n]; minus infinity if not tried.

        By `size`, it is the size of the least tree over that of each split. One that was not tried, since the rule
        ranked it low, or was given up, counts as if its tree had what was allowed.
        """
        if measure != "size":
            return improvements(self.scene.bound, self.children, measure=measure)
        if self.sizes is None or self.allowed is None:
            raise BadInput("these samples say nothing about the trees below splits; label with --rollouts")
        size = torch.minimum(self.sizes, self.allowed[:, None])
        return (size.amin(dim=1, keepdim=True) / size).masked_fill(~self.scene.ambiguous, -torch.inf)

    def input_improvements(self, measure: Worth = "mean") -> Tensor:
        """The same of a cut at every input, [samples, inputs]."""
        if measure == "size":
            raise BadInput("no trees are grown below cuts of inputs; give another --measure")
        if self.halves is None:
            raise BadInput("these samples say nothing about inputs; label with --inputs")
        return improvements(self.scene.bound, self.halves, measure=measure)
