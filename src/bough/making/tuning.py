"""Search for a property's radius: what a solver says at each radius enters, what was tried leaves, and what to keep.

    dearness    trivial < easy < medium < hard < timeout < beyond

A larger radius is never easier: where a property is false, or too dear, all larger radii are ruled out, and where it is
true, but too cheap, all smaller ones. Most radii are proved without a split or refuted by an attack, so those are found
first, by looks that cost next to nothing, and the dear probes lie between. Between them cost grows about exponentially,
so the next radius is where it should be what is asked for, by what was seen so far. Nothing here solves anything, or
looks at a clock.
"""

import math
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass
from itertools import pairwise

from bough.errors import BadInput
from bough.verdict.result import Verdict
from bough.zoo.table import DIFFICULTIES

UNITS = ("seconds", "bounds")
STEPS = 1000  # radii of the grid: fixed, so that a table can be made again
FINE = 0.03  # share of the lower edge that a survey may be off it: searches begin there
COARSE = 0.15  # share of the upper edge that a survey may be off it
LEAN = 0.35  # share at which a bracket is parted: a radius too dear costs all that a probe may, one too cheap little
FIRST = 0.025  # share at which the first probe by growth parts a bracket: it tells how fast cost grows, and no more
SHORT = 0.8  # share of the way to its aim that a probe by growth goes while nothing above is known
MOST = 0.6  # largest share of a bracket that a probe by growth goes up
ANY = "any"  # asks for any difficulty: the largest radius that is true, or timed out

_DEARNESS = ("trivial", *DIFFICULTIES, "beyond")


@dataclass(frozen=True)
class ProbeOutcome:
    """How a solver ended, and what it cost."""

    verdict: str
    bounds: int
    branches: int
    seconds: float


@dataclass(frozen=True)
class Probe:
    """One radius that was tried."""

    eps: float
    outcome: ProbeOutcome


@dataclass(frozen=True)
class CostScale:
    """Difficulties by cost: `edges` are the costs at which easy begins, and up to which easy, medium and hard reach."""

    unit: str
    edges: tuple[float, float, float, float]

    def __post_init__(self) -> None:
        if self.unit not in UNITS:
            raise BadInput(f"there is no unit '{self.unit}'; there are: {', '.join(UNITS)}")
        if not all(0 <= low < high < float("inf") for low, high in zip(self.edges, self.edges[1:], strict=False)):
            shown = ",".join(f"{edge:g}" for edge in self.edges)
            raise BadInput(f"the edges {shown} do not grow; give costs from 0 up, each above the one before")

    def limit(self, difficulty: str) -> float:
        """The cost at which a probe ends: more than the difficulty asked for would not help."""
        return self.edges[1 + min(DIFFICULTIES.index(difficulty), 2)] if difficulty in DIFFICULTIES else self.edges[-1]

    def aim(self, difficulty: str) -> float:
        """The cost to aim at: the middle of the difficulty on a logarithmic scale, or twice what is allowed."""
        k = DIFFICULTIES.index(difficulty)
        if k == len(DIFFICULTIES) - 1:
            return 2 * self.edges[-1]
        return math.sqrt(max(self.edges[k], self.edges[k + 1] / 1000) * self.edges[k + 1])

    def spent(self, outcome: ProbeOutcome) -> float:
        """What a probe cost, in the scale's unit."""
        return outcome.seconds if self.unit == "seconds" else outcome.bounds

    def cost(self, outcome: ProbeOutcome) -> str:
        """What a probe cost, in words."""
        return f"{outcome.seconds:.2f} s" if self.unit == "seconds" else f"{outcome.bounds} bounds"

    def dearness(self, outcome: ProbeOutcome) -> str:
        """How hard the property turned out; `beyond` where it is false, or was given up for another reason than cost.

        What is proved is hard at most, though its last step may have gone over the edge.
        """
        if outcome.verdict == Verdict.TIMEOUT.value:
            return "timeout"
        if outcome.verdict != Verdict.VERIFIED.value:
            return "beyond"
        return _DEARNESS[sum(self.spent(outcome) > edge for edge in self.edges[:3])]


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


def survey(look: Callable[[float], ProbeOutcome], bracket: Bracket) -> Survey:
    """The radii that neither the bounds of the root nor an attack decide; `look` ends before the first split."""
    seen: dict[int, ProbeOutcome] = {}
    below = 0  # the last step that is known to be proved
    above = STEPS + 1  # the first step that is known to be refuted
    first = last = 0  # the first and last steps that are known to be neither

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
    return Survey(below, above, tuple(Probe(bracket.radius(k), seen[k]) for k in (below, above) if k in seen))


def tune(
    probe: Callable[[float], ProbeOutcome],
    bracket: Bracket,
    scale: CostScale,
    difficulty: str,
    probes: int = 5,
    lean: float | None = None,
    known: Survey = Survey(),  # noqa: B008 (a frozen value)
) -> tuple[Probe, ...]:
    """Try radii until one is as hard as asked for, or the probes are used up, or no radius is left.

    With `lean`, brackets are parted at that share of them, whatever was seen.
    """
    tried: list[Probe] = []
    below = known.below  # the last step that is known to be too cheap
    above = known.above  # the first step that is known to be too dear
    cheap = [(below, known.edges[0].outcome)] if below else []
    dear: tuple[int, ProbeOutcome] | None = None
    if lean is None and difficulty == ANY:
        lean = LEAN
    while len(tried) < probes and above - below > 1:
        share = _share(scale, difficulty, cheap, dear, above - below) if lean is None else lean
        middle = below + max(1, int(share * (above - below)))
        tried.append(Probe(bracket.radius(middle), probe(bracket.radius(middle))))
        dearness = scale.dearness(tried[-1].outcome)
        if dearness == difficulty:
            break
        if _DEARNESS.index(dearness) < _DEARNESS.index("beyond" if difficulty == ANY else difficulty):
            below = middle
            cheap.append((middle, tried[-1].outcome))
        else:
            above = middle
            if dearness != "beyond":
                dear = middle, tried[-1].outcome
    return tuple(tried)


def _share(
    scale: CostScale,
    difficulty: str,
    cheap: list[tuple[int, ProbeOutcome]],
    dear: tuple[int, ProbeOutcome] | None,
    left: int,
) -> float:
    """The share of a bracket at which the cost should be what is aimed at.

    Growth is that of bounds: seconds hardly grow while the root takes most of them.
    """
    seen = [*cheap[-2:], *([dear] if dear else [])]
    rates = [
        math.log(max(1, after.bounds) / max(1, before.bounds)) / (high - low)
        for (low, before), (high, after) in pairwise(seen)
    ]
    rate = max(rates, default=0.0)  # what was stopped would have cost more
    if rate <= 0:
        return min(FIRST * 2.0 ** len(cheap), MOST)
    far = math.log(scale.aim(difficulty) / max(scale.spent(cheap[-1][1]), scale.edges[-1] * 1e-9)) / rate
    return min(far * (1 if dear else SHORT) / left, MOST)


def choose(
    tried: Sequence[Probe], scale: CostScale, difficulty: str, room: Collection[str]
) -> tuple[Probe, str] | None:
    """The probe to keep, and its difficulty: as asked for, or else one that some other difficulty has room for.

    That is the largest radius that was proved, or else the smallest that timed out at the highest limit.
    """
    judged = [(probe, scale.dearness(probe.outcome)) for probe in tried]
    if difficulty == ANY:
        possible = [(probe, "easy" if name == "trivial" else name) for probe, name in judged if name != "beyond"]
        return max(possible, key=lambda pair: pair[0].eps, default=None)
    for pair in judged:
        if pair[1] == difficulty:
            return pair
    proved = [pair for pair in judged if pair[1] not in ("timeout", "beyond")]
    largest = max(proved, key=lambda pair: pair[0].eps, default=None)
    if largest is not None and largest[1] in room:
        return largest
    timed_out = [pair for pair in judged if pair[1] == "timeout" and scale.limit(difficulty) == scale.edges[-1]]
    return min(timed_out, key=lambda pair: pair[0].eps, default=None) if "timeout" in room else None
