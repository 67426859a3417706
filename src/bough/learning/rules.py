"""Learnt rules by name: a name, weights and the bounds in use enter, a rule leaves.

What has to do with models is loaded only when such a rule is asked for.
"""

from functools import lru_cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

from bough.branching.babsr import BaBSR
from bough.branching.base import AbstractBrancher, RuleEntry, RuleSettings
from bough.errors import BadInput

if TYPE_CHECKING:
    from bough.learning.model import AbstractModel
    from bough.learning.weights import Card

USUAL_PRESET = {"gnn": "fast", "gnn-r": "fast", "gnn-online": "fast", "learnt-local": "local"}
RELATIVE = ("fast", "local")  # presets for large trees, where 0.2 of all that is possible is rarely gained
LEAST = 1 / 64  # of a step's decisions that have to fail before they ask the backup; at fewer than 64 domains, one


def weights_for(name: str, weights: str | None, bounder: str, inputs: int | None = None) -> str:
    """The weights for a rule: the file that was given, or the name of what comes with bough and fits best a network of
    so many inputs.
    """
    from bough.learning.weights import named, shipped_names

    if weights is not None:
        _check(name, named(weights))
        return weights
    fitting = _fitting(name)
    if not fitting:
        there = ", ".join(shipped_names()) or "none"
        raise BadInput(
            f"no weights for --branching {name} come with bough (there are: {there}); "
            f"train some by `bough train` and name them by --weights"
        )
    return min(fitting, key=lambda path: (*_strangeness(_read(path)[1], bounder, inputs), path.stem)).stem


def known(name: str, bounder: str, inputs: int) -> bool:
    """Whether weights that come with bough were trained with these bounds, on networks of so many inputs."""
    cards = [_read(path)[1] for path in _fitting(name)]
    return any(card.bounder == bounder and inputs in (card.data.get("inputs") or []) for card in cards)


def _learnt(name: str, settings: RuleSettings) -> AbstractBrancher[Any]:
    """The rule; what a person should know of its weights is among its remarks."""
    from bough.learning.brancher import FailSafe, Learnt
    from bough.learning.online import Online
    from bough.learning.weights import named

    path = named(weights_for(name, settings.weights, settings.bounder))
    model, card = _read(path)
    about: tuple[str, ...] = ()
    if card.bounder != settings.bounder:
        trained = f"trained with {card.bounder} bounds, these are {settings.bounder} bounds"
        about = (f"the weights {path.name} were {trained}",)
    rule = Learnt(model, BaBSR(), about=about)
    relative = model.preset in RELATIVE
    if name == "gnn-online":
        return Online(rule, relative=relative)
    return FailSafe(rule, relative=relative, least=LEAST if relative else 0.0)


RULES = (
    RuleEntry(
        name="gnn",
        words="a graph neural network that learnt from strong branching (Lu & Kumar 2020), with babsr as its fail-safe",
        make=lambda settings: _learnt("gnn", settings),
        learnt=True,
    ),
    RuleEntry(
        name="gnn-r",
        words="the same without primal and dual values (the paper's GNN-R)",
        make=lambda settings: _learnt("gnn-r", settings),
        learnt=True,
    ),
    RuleEntry(
        name="gnn-online",
        words="gnn, corrected during the search by the decisions that babsr beat",
        make=lambda settings: _learnt("gnn-online", settings),
        learnt=True,
    ),
    RuleEntry(
        name="learnt-local",
        words="learnt as gnn, but every ReLU is seen by itself: no messages",
        make=lambda settings: _learnt("learnt-local", settings),
        learnt=True,
    ),
)


def _strangeness(card: "Card", bounds: str, inputs: int | None) -> tuple[bool, bool, int]:
    """Least for what was trained with these bounds, on networks of as many inputs and on no others; where nothing was,
    for what was trained on most kinds.
    """
    kinds = card.data.get("inputs") or []
    return card.bounder != bounds, inputs not in kinds, len(kinds) if inputs in kinds else -len(kinds)


def _check(name: str, path: Path) -> None:
    model = _read(path)[0]
    if (name == "learnt-local") != (model.preset == "local"):
        needed = "learnt-local" if model.preset == "local" else "gnn"
        raise BadInput(f"{path} has weights of preset {model.preset}; use --branching {needed}")
    if (name == "gnn-r") != _reduced(model) and name != "learnt-local":
        needed = "gnn-r" if _reduced(model) else "gnn"
        raise BadInput(f"{path} {'lacks' if _reduced(model) else 'has'} primal and dual values; use {needed}")


def _fitting(name: str) -> list[Path]:
    """What comes with bough for a rule."""
    from bough.learning.weights import shipped, shipped_names

    models = {path: _read(path)[0] for path in map(shipped, shipped_names())}
    return [path for path, m in models.items() if m.preset == USUAL_PRESET[name] and _reduced(m) == (name == "gnn-r")]


def _reduced(model: "AbstractModel") -> bool:
    return bool(getattr(model, "settings", {}).get("reduced", False))


def _read(path: Path) -> "tuple[AbstractModel, Card]":
    """A file is read once, until it changes."""
    try:
        changed = path.stat().st_mtime_ns
    except OSError:
        changed = 0  # whoever reads it says what is wrong
    return _cached(path, changed)


@lru_cache(maxsize=16)
def _cached(path: Path, changed: int) -> "tuple[AbstractModel, Card]":
    from bough.learning.weights import load

    del changed
    return load(path)
