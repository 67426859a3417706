"""The answer to a problem: a verdict that explains itself, and the figures that go with it."""

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

    def __str__(self) -> str:
        return f"{self.verdict.value}: {self.reason}"
