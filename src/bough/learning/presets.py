"""Presets: kinds of models by name, each with what it is built from and the recipe that it is usually trained by."""

import math
from collections.abc import Callable
from dataclasses import asdict, dataclass, fields, replace
from pathlib import Path
from typing import Any, Literal, get_args

from bough.branching.improvement import Measure
from bough.errors import BadInput
from bough.files.reading import JsonObject
from bough.learning.model import AbstractBuilt, ModelSettings
from bough.learning.samples import Worth
from bough.registry import Entry, Registry

Loss = Literal["rank", "choice", "expected"]
MEASURES: tuple[str, ...] = (*get_args(Measure), "size")
MOST = 4096  # of any size in a model's settings: a file that asks for more is broken


@dataclass(frozen=True)
class TrainingRecipe:
    """What the weights depend on, beside the samples. The defaults are the paper's (Appendix D.1)."""

    preset: str
    reduced: bool = False
    measure: Worth = "mean"  # the improvement by which ReLUs are compared
    loss: Loss = "rank"  # what scores are to be: an order of classes (Eq. 9), or a choice, by what is best or by costs
    classes: int = 10
    relative: bool = True  # classes over the best improvement of a sample, or over all that is possible
    epochs: int = 100
    rate: float = 1e-4
    decay: float = 1e-4
    decoupled: bool = False  # decay apart from the gradient (AdamW): with it, parts of little gradient do not die
    batch: int = 2
    group: int = 1  # most samples of one property next to each other: these are scored together
    patience: int = 10  # epochs without a better validation loss, after which the rate is divided
    divisor: float = 5.0
    stop: int = 20  # epochs without a better validation loss, after which it ends
    anneal: bool = False  # the rate falls to 0 along half a cosine over all epochs, instead of by patience
    seed: int = 0
    inputs: bool = False  # whether inputs are compared with ReLUs, and with each other, too
    start: str | None = None  # weights to begin with, by name or file; their scales stay as they are

    def __post_init__(self) -> None:
        for name, least in (("epochs", 1), ("batch", 1), ("group", 1), ("patience", 1), ("stop", 1), ("seed", 0)):
            if getattr(self, name) < least:
                raise BadInput(f"{name} is {getattr(self, name)}; give a whole number, {least} or more")
        if not 2 <= self.classes <= 1000:
            raise BadInput(f"there are {self.classes} classes; give a whole number from 2 to 1000")
        if not 0 < self.rate < math.inf:
            raise BadInput(f"the learning rate is {self.rate}; give a number above 0")
        if not 0 <= self.decay < math.inf:
            raise BadInput(f"the weight decay is {self.decay}; give a number, 0 or more")
        for name, kinds in (("measure", MEASURES), ("loss", get_args(Loss))):
            if getattr(self, name) not in kinds:
                raise BadInput(f"there is no {name} '{getattr(self, name)}'; there are: {', '.join(kinds)}")

    def to_json(self) -> JsonObject:
        """All fields by name; those that came later only where they are set, as in recipes from before they were."""
        values = {**asdict(self), "start": self.start and Path(self.start).name}
        return {name: value for name, value in values.items() if name not in ("inputs", "start") or value}


@dataclass(frozen=True, kw_only=True)
class ModelEntry(Entry):
    """A kind of model by name."""

    settings: type[ModelSettings]
    make: Callable[[str, Any], AbstractBuilt]  # of the preset's name and such settings
    usual: TrainingRecipe


KNOWN_MODELS = Registry("preset", "MODELS", ("bough.learning",), ModelEntry, automatic=False)


def recipe_for(preset: str, **given: Any) -> TrainingRecipe:
    """The usual recipe of a preset and a measure, with what is given (and not None) instead."""
    recipe = KNOWN_MODELS.entry(preset).usual
    if given.get("measure") == "size":
        # Trees are grown below a few ReLUs of each sample only: a rule learns, gently, to choose among these.
        recipe = replace(recipe, loss="expected", rate=1e-3, decay=1e-2, decoupled=True, anneal=True)
    return replace(recipe, **{name: value for name, value in given.items() if value is not None})


def build(preset: str, /, reduced: bool = False, **sizes: object) -> AbstractBuilt:
    """A model of random weights; `reduced`: without primal and dual values; `sizes`: other fields of its settings."""
    entry = KNOWN_MODELS.entry(preset)
    known = {field.name: field.default for field in fields(entry.settings)}
    given: dict[str, Any] = {"reduced": reduced, **sizes}
    for name, value in given.items():
        if name not in known:
            raise BadInput(f"a {preset} model has no setting {name!r}; it has {', '.join(known)}")
        _check(name, value, known[name])
    if "columns" in given:
        given["columns"] = tuple(given["columns"])
    return entry.make(preset, entry.settings(**given))


def _check(name: str, value: object, default: object) -> None:
    """Refuse a setting of another kind than its default; settings come from files, too."""
    if isinstance(default, tuple):
        if not isinstance(value, list | tuple) or not all(isinstance(item, str) for item in value):
            raise BadInput(f"{name} is a list of names, and not {value!r}")
    elif isinstance(default, bool):
        if not isinstance(value, bool):
            raise BadInput(f"{name} is true or false, and not {value!r}")
    elif isinstance(value, bool) or not isinstance(value, int) or not 1 <= value <= MOST:
        raise BadInput(f"{name} is a whole number from 1 to {MOST}, and not {value!r}")
