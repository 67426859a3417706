"""One image enters, with all that decides how it is tried; the radii that were tried leave, with their outcomes."""

import math
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import lru_cache, partial
from pathlib import Path
from weakref import WeakSet

from bough.api import LoadedNetwork, load_network, load_problem, solve
from bough.errors import BadInput
from bough.making.tuning import Bracket, CostScale, Probe, ProbeOutcome, survey, tune
from bough.options import Options
from bough.plan import make_plan
from bough.zoo.datasets import Dataset
from bough.zoo.shipped import network_path
from bough.zoo.table import Surroundings

WARM_UP_SECONDS = 10.0  # at most, for the search on a GPU that is not counted


@dataclass(frozen=True)
class TrialRecipe:
    """All that a row depends on, but for its image and the difficulty asked for."""

    network: str
    dataset: str
    split: str
    method: str
    options: Options
    scale: CostScale
    bracket: Bracket
    normalised: bool
    clip: bool
    probes: int
    seed: int
    lean: float | None = None  # share of the way from too cheap to too dear where the next radius lies; None: by growth

    def __post_init__(self) -> None:
        if self.probes < 1:
            raise BadInput(f"--probes is {self.probes}; give a whole number, 1 or more")
        if self.lean is not None and not 0 < self.lean < 1:
            raise BadInput(f"--lean is {self.lean:g}; give a share between 0 and 1")
        if self.options.gap is not None:
            raise BadInput(f"method '{self.method}' looks for a minimum; give one that looks for a verdict")

    def description(self) -> dict[str, object]:
        """What the log says of the recipe, to be recognised by; the method's name stands for its options."""
        named = ("network", "dataset", "split", "method", "normalised", "clip", "probes", "seed", "lean")
        return {
            **{name: getattr(self, name) for name in named},
            "unit": self.scale.unit,
            "edges": list(self.scale.edges),
            "eps": [self.bracket.low, self.bracket.high],
        }


# Whether eps is normalised, and the largest one, of each data set; for CIFAR-10 as in the paper.
USUAL = {"mnist": (False, 0.4), "cifar10": (True, 0.3)}


def usual_radii(dataset: Dataset, normalised: bool | None) -> tuple[bool, float]:
    """Whether eps is normalised, unless that is said, and the largest one that makes sense for a data set."""
    usual, largest = USUAL.get(dataset.name, (False, 0.4))
    if normalised is None or normalised == usual:
        return usual, largest
    return normalised, largest / dataset.std[0] if normalised else largest * dataset.std[0]


@dataclass(frozen=True)
class Trial:
    """What was tried around one image when some difficulty was asked for."""

    image: int
    asked: str
    target: int
    device: str
    probes: tuple[Probe, ...]
    edges: tuple[Probe, ...]  # the largest radius proved without a split, and the smallest refuted by an attack


Listener = Callable[[str], None]


def try_image(
    loaded: LoadedNetwork, recipe: TrialRecipe, listener: Listener, image: int, around: Surroundings, difficulty: str
) -> Trial:
    """Tune the radius around one image; `listener` hears of every radius before it is tried."""
    options = recipe.options
    limit = recipe.scale.limit(difficulty)
    if recipe.scale.unit == "seconds":
        _warm_up(loaded, options, around, recipe.bracket.high)
        options = replace(options, timeout=limit)
    else:
        options = replace(options, most_bounds=math.ceil(limit))

    def probe(eps: float, how: Options = options) -> ProbeOutcome:
        listener(f"image {image}: looking for {difficulty}, at eps {eps:g}")
        return _outcome(loaded, around, how, eps)

    known = survey(partial(probe, how=replace(options, most_bounds=1)), recipe.bracket)
    probes = tune(probe, recipe.bracket, recipe.scale, difficulty, recipe.probes, recipe.lean, known)
    device = make_plan(options, loaded.network).settings.device
    return Trial(image, difficulty, around.target, device, probes, known.edges)


def try_image_of(recipe: TrialRecipe, image: int, around: Surroundings, difficulty: str) -> Trial:
    """Tune the radius in a process of its own, which reads the network once."""
    return try_image(_network(network_path(Path(recipe.network))), recipe, lambda _: None, image, around, difficulty)


_network = lru_cache(maxsize=1)(load_network)
_warm: "WeakSet[LoadedNetwork]" = WeakSet()


def _warm_up(loaded: LoadedNetwork, options: Options, around: Surroundings, eps: float) -> None:
    """Make one search on a GPU that is not counted, with no attack in front: kernels are compiled only once."""
    if loaded not in _warm and make_plan(options, loaded.network).settings.device == "cuda":
        _warm.add(loaded)
        _outcome(loaded, around, replace(options, timeout=WARM_UP_SECONDS, attack=False), eps)


def _outcome(loaded: LoadedNetwork, around: Surroundings, options: Options, eps: float) -> ProbeOutcome:
    result = solve(load_problem(loaded, around.within(eps)), options)
    if result.reason == "interrupted":  # a search ends with what it knows; tuning ends
        raise KeyboardInterrupt
    return ProbeOutcome(result.verdict.value, result.bounds, result.branches, round(result.seconds, 6))
