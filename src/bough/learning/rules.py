"""Learnt rules by name: a name, weights and the bounds in use enter, a rule leaves.

What has to do with models is loaded only when such a rule is asked for.
"""

from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

from bough.branching.babsr import BaBSR
from bough.branching.base import KNOWN_RULES, AbstractBrancher, RuleEntry, RuleSettings
from bough.errors import BadInput

if TYPE_CHECKING:
    from bough.learning.brancher import Learnt
    from bough.learning.model import AbstractModel
    from bough.learning.weights import WeightsCard

RELATIVE = ("fast", "local")  # presets for large trees, where 0.2 of all that is possible is rarely gained
LEAST = 1 / 64  # of a step's decisions that have to fail before they ask the backup; at fewer than 64 domains, one


@dataclass(frozen=True, kw_only=True)
class LearntEntry(RuleEntry):
    """A learnt rule by name, and the models whose weights it takes from those that come with bough."""

    learnt: bool = True
    preset: str = "fast"
    reduced: bool = False


def weights_for(name: str, weights: str | None, bounder: str, inputs: int | None = None) -> str:
    """The weights for a rule: the file that was given, or the name of what comes with bough and fits best a network of
    so many inputs.
    """
    from bough.learning.weights import named, shipped_names

    entry = _entry(name)
    if weights is not None:
        _check(entry, named(weights))
        return weights
    fitting = _fitting(entry)
    if not fitting:
        there = ", ".join(shipped_names()) or "none"
        raise BadInput(
            f"no weights for --branching {name} come with bough (there are: {there}); "
            f"train some by `bough train` and name them by --weights"
        )
    return min(fitting, key=lambda path: (*_strangeness(_read(path)[1], bounder, inputs), path.stem)).stem


def known(name: str, bounder: str, inputs: int) -> bool:
    """Whether weights that come with bough were trained with these bounds, on networks of so many inputs."""
    return any(card.bounder == bounder and inputs in card.inputs for _, card in map(_read, _fitting(_entry(name))))


def learnt_rule(name: str, settings: RuleSettings) -> "Learnt":
    """The rule by its weights alone; what a person should know of them is among its remarks."""
    from bough.learning.brancher import Learnt
    from bough.learning.weights import named

    path = named(weights_for(name, settings.weights, settings.bounder))
    model, card = _read(path)
    about: tuple[str, ...] = ()
    if card.bounder != settings.bounder:
        trained = f"trained with {card.bounder} bounds, these are {settings.bounder} bounds"
        about = (f"the weights {path.name} were {trained}",)
    return Learnt(model, BaBSR(), about=about)


def _safe(name: str, settings: RuleSettings) -> AbstractBrancher[Any]:
    """The rule with its fail-safe."""
    from bough.learning.brancher import FailSafe

    rule = learnt_rule(name, settings)
    relative = rule.model.preset in RELATIVE
    return FailSafe(rule, relative=relative, least=LEAST if relative else 0.0)


RULES = (
    LearntEntry(
        name="gnn",
        words="a graph neural network that learnt from strong branching (Lu & Kumar 2020), with babsr as its fail-safe",
        make=lambda settings: _safe("gnn", settings),
    ),
    LearntEntry(
        name="gnn-r",
        words="the same without primal and dual values (the paper's GNN-R)",
        make=lambda settings: _safe("gnn-r", settings),
        reduced=True,
    ),
    LearntEntry(
        name="learnt-local",
        words="learnt as gnn, but every ReLU is seen by itself: no messages",
        make=lambda settings: _safe("learnt-local", settings),
        preset="local",
    ),
)


def _entry(name: str) -> LearntEntry:
    entry = KNOWN_RULES.entry(name)
    if not isinstance(entry, LearntEntry):
        raise BadInput(f"--branching {name} is not learnt; only learnt rules have weights")
    return entry


def _strangeness(card: "WeightsCard", bounds: str, inputs: int | None) -> tuple[bool, bool, int]:
    """Least for what was trained with these bounds, on networks of as many inputs and on no others; where nothing was,
    for what was trained on most kinds.
    """
    kinds = card.inputs
    return card.bounder != bounds, inputs not in kinds, len(kinds) if inputs in kinds else -len(kinds)


def _check(entry: LearntEntry, path: Path) -> None:
    """Refuse weights of a model that is not for the rule."""
    model = _read(path)[0]
    local = model.preset == "local"
    reduced = model.settings.reduced
    if (entry.preset == "local") != local:
        needed = "learnt-local" if local else "gnn"
        raise BadInput(f"{path} has weights of preset {model.preset}; use --branching {needed}")
    if entry.reduced != reduced and not local:
        needed = "gnn-r" if reduced else "gnn"
        raise BadInput(f"{path} {'lacks' if reduced else 'has'} primal and dual values; use {needed}")


def _fitting(entry: LearntEntry) -> list[Path]:
    """What comes with bough for a rule."""
    from bough.learning.weights import shipped, shipped_names

    models = {path: _read(path)[0] for path in map(shipped, shipped_names())}
    wanted = entry.preset, entry.reduced
    return [path for path, model in models.items() if (model.preset, model.settings.reduced) == wanted]


def _read(path: Path) -> "tuple[AbstractModel, WeightsCard]":
    """A file is read once, until it changes."""
    try:
        changed = path.stat().st_mtime_ns
    except OSError:
        changed = 0  # whoever reads it says what is wrong
    return _cached(path, changed)


@lru_cache(maxsize=16)
def _cached(path: Path, changed: int) -> "tuple[AbstractModel, WeightsCard]":
    from bough.learning.weights import load

    del changed
    return load(path)
