"""A network, the question asked of it, and the runtime that has the last word on counterexamples."""

from dataclasses import dataclass
from functools import cached_property
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray
from torch import Tensor

from bough.network.graph import Network
from bough.problem.property import Clause, Property


class Evaluator(Protocol):
    """Runs the network as its owner would, not as bough read it."""

    name: str  # who evaluates, for messages
    dtype: np.dtype[np.floating[Any]]  # of the original's inputs and arithmetic

    def run(self, x: NDArray[np.floating[Any]]) -> NDArray[np.floating[Any]]:
        """Outputs, flat, at the flat point `x`, computed in the network's own precision."""


@dataclass(frozen=True, eq=False)
class Problem:
    """What is verified: raises on construction unless property and network fit together."""

    network: Network
    property: Property
    reference: Evaluator
    network_name: str = "network"
    property_name: str = "property"
    image: Tensor | None = None  # as the network sees it, flat; what the first box lies around, where that is known

    def __post_init__(self) -> None:
        self.property.check_fits(self.network.inputs, self.network.outputs)

    @cached_property
    def clauses(self) -> tuple[Clause, ...]:
        """The clauses with rows scaled alike, which is what is bounded."""
        return tuple(clause.scaled() for clause in self.property.clauses)
