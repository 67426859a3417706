"""Bisection on a property's radius: what a solver says at each radius enters, what was tried leaves, and what to keep.

    dearness    trivial < easy < medium < hard < timeout < beyond

A larger radius is never easier: where a property is false, or too dear, all larger radii are ruled out, and where it is
true, but too cheap, all smaller ones. Most radii are proved without a split or refuted by an attack, so those are found
first, by looks that cost next to nothing, and the dear probes lie between. Nothing here solves anything, or looks at a
clock.
"""

from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass

from bough.errors import BadInput
from bough.verdict.result import Verdict
from bough.zoo.table import DIFFICULTIES

UNITS = ("seconds", "bounds")
STEPS = 1000  # of the grid of radii: fixed, so that a table can be made again
FINE, COARSE = 0.03, 0.15  # how well a survey knows its edges: searches begin at the lower one
LEAN = 0.35  # where a bracket is parted: what is too dear costs all that a probe may, what is too cheap very little
ANY = "any"
"""What is asked for when the difficulty does not matter: the largest radius that is true, or timed out."""

_DEARNESS = ("trivial", *DIFFICULTIES, "beyond")


@dataclass(frozen=True)
class Outcome:
    """How a solver ended, and what it cost."""

    verdict: str
    bounds: int
    branches: int
    seconds: float


@dataclass(frozen=True)
class Probe:
    """One radius that was tried."""

    eps: float
    outcome: Outcome


@dataclass(frozen=True)
class Scale:
    """Difficulties by cost: `edges` are the costs at which easy begins, and up to which easy, medium and hard reach."""

    unit: str
    edges: tuple[float, float, float, float]

    def __post_init__(self) -> None:
        if self.unit not in UNITS:
            raise BadInput(f"there is no unit '{self.unit}'; there are: {', '.join(UNITS)}")
        if not all(0 <= low < high < float("inf") for low, high in zip(self.edges, self.edges[1:], strict=False)):
            shown = ",".join(f"{edge:g}" for edge in self.edges)
            raise BadInput(f"the edges {shown} do not grow; give costs from 0 up, each above the one before")

    def limit(self, asked: str) -> float:
        """The cost at which a probe ends: more than the difficulty asked for would not help."""
        return self.edges[1 + min(DIFFICULTIES.index(asked), 2)] if asked in DIFFICULTIES else self.edges[-1]

    def cost(self, outcome: Outcome) -> str:
        """What it cost, in the unit that counts here."""
        return f"{outcome.seconds:.2f} s" if self.unit == "seconds" else f"{outcome.bounds} bounds"

    def dearness(self, outcome: Outcome) -> str:
        """How hard the property turned out; `beyond` where it is false, or was given up for another reason than cost.

        What is proved is hard at most, though its last step may have gone over the edge.
        """
        if outcome.verdict == Verdict.TIMEOUT.value:
            return "timeout"
        if outcome.verdict != Verdict.VERIFIED.value:
            return "beyond"
        cost = outcome.seconds if self.unit == "seconds" else outcome.bounds
        return _DEARNESS[sum(cost > edge for edge in self.edges[:3])]


@dataclass(frozen=True)
class Bracket:
    """The radii to choose from: a grid above `low`, up to `high`."""

    low: float
    high: float

    def __post_init__(self) -> None:
        if not 0 <= self.low < self.high < float("inf"):
            raise BadInput(f"the range of eps is {self.low:g} to {self.high:g}; give two numbers from 0 up that grow")

    def radius(self, step: int) -> float:
        """Radius number `step`, from 1 to `STEPS`, as short a decimal as the grid allows."""
        return float(f"{self.low + (self.high - self.low) * step / STEPS:.12g}")


@dataclass(frozen=True)
class Survey:
    """The steps between which a search is needed, and the two looks that show it, as far as there are such."""

    below: int = 0
    above: int = STEPS + 1
    edges: tuple[Probe, ...] = ()


def survey(look: Callable[[float], Outcome], bracket: Bracket) -> Survey:
    """Where neither the bounds of the root nor an attack decide; `look` ends before the first split."""
    seen: dict[int, Outcome] = {}
    below, above = 0, STEPS + 1  # proved, and refuted
    first = last = 0  # steps that are neither, as far as known

    def at(step: int) -> str:
        seen[step] = look(bracket.radius(step))
        return seen[step].verdict

    while not first and above - below > 1:
        middle = (below + above) // 2
        match at(middle):
            case Verdict.VERIFIED.value:
                below = middle
            case Verdict.FALSIFIED.value:
                above = middle
            case _:
                first = last = middle
    while first - below > max(1, FINE * first):
        middle = (below + first) // 2
        below, first = (middle, first) if at(middle) == Verdict.VERIFIED.value else (below, middle)
    while last and above - last > max(1, COARSE * last):
        middle = (last + above) // 2
        above, last = (middle, last) if at(middle) == Verdict.FALSIFIED.value else (above, middle)
    edges = tuple(Probe(bracket.radius(step), seen[step]) for step in (below, above) if step in seen)
    return Survey(below, above, edges)


def tune(
    probe: Callable[[float], Outcome],
    bracket: Bracket,
    scale: Scale,
    asked: str,
    probes: int = 5,
    lean: float = LEAN,
    known: Survey = Survey(),  # noqa: B008 (a frozen value)
) -> tuple[Probe, ...]:
    """Try radii until one is as hard as asked for, or the probes are used up, or no radius is left."""
    tried: list[Probe] = []
    below, above = known.below, known.above  # steps known to be too cheap, and too dear
    while len(tried) < probes and above - below > 1:
        middle = below + max(1, int(lean * (above - below)))
        tried.append(Probe(bracket.radius(middle), probe(bracket.radius(middle))))
        found = scale.dearness(tried[-1].outcome)
        if found == asked:
            break
        if _too_cheap(found, asked):
            below = middle
        else:
            above = middle
    return tuple(tried)


def _too_cheap(found: str, asked: str) -> bool:
    return _DEARNESS.index(found) < _DEARNESS.index("beyond" if asked == ANY else asked)


def choose(tried: Sequence[Probe], scale: Scale, asked: str, room: Collection[str]) -> tuple[Probe, str] | None:
    """The probe to keep, and its difficulty: as asked for, or else what some other difficulty still has room for.

    That is the largest radius that was proved, or else the smallest that timed out at the highest limit.
    """
    found = [(probe, scale.dearness(probe.outcome)) for probe in tried]
    if asked == ANY:
        kept = [(probe, "easy" if name == "trivial" else name) for probe, name in found if name != "beyond"]
        return max(kept, key=lambda pair: pair[0].eps, default=None)
    for pair in found:
        if pair[1] == asked:
            return pair
    proved = [pair for pair in found if pair[1] not in ("timeout", "beyond")]
    largest = max(proved, key=lambda pair: pair[0].eps, default=None)
    if largest is not None and largest[1] in room:
        return largest
    timed_out = [pair for pair in found if pair[1] == "timeout" and scale.limit(asked) == scale.edges[-1]]
    return min(timed_out, key=lambda pair: pair[0].eps, default=None) if "timeout" in room else None
