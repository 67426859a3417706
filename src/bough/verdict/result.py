"""The answer to a problem: a verdict that explains itself, and the figures that go with it."""

import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import Enum

from bough.verdict.counterexample import Counterexample


class Verdict(Enum):
    """What is known of the property."""

    VERIFIED = "verified"
    FALSIFIED = "falsified"
    TIMEOUT = "timeout"
    UNKNOWN = "unknown"

    @property
    def exit_status(self) -> int:
        """The process's exit status."""
        return {"verified": 0, "falsified": 1}.get(self.value, 3)


EMPTY = "no point is unsafe, as the property's set of inputs is empty"
EXCLUDED = "unsafe points were found, but only on sides of the inputs that a strict < or > excludes"


@dataclass(frozen=True, eq=False)
class Result:
    """The outcome of a search. `lower_bound` holds for every point of the box: the property's margin is at least that.

    *branches* counts as in the paper, 2 per split; *bounds* counts every bound computed.
    """

    verdict: Verdict
    reason: str
    counterexample: Counterexample | None
    lower_bound: float
    upper_bound: float
    root_lower_bound: float
    branches: int
    bounds: int
    depth: int
    open_domains: int
    seconds: float
    attack_seconds: float = 0.0
    notes: Mapping[str, float] = field(default_factory=dict)  # what bounder and rule have to say of their own work
    proved: bool = True  # false where `verified` is the word of somebody else's solver
    remarks: tuple[str, ...] = ()  # what a person should know of how it was found

    @staticmethod
    def of_no_point(seconds: float) -> "Result":
        """The result where no box of the property has any point."""
        return Result(Verdict.VERIFIED, EMPTY, None, math.inf, math.inf, math.inf, 0, 0, 0, 0, seconds)

    def __str__(self) -> str:
        return f"{self.verdict.value}: {self.reason}"
