"""Weights of models as files: a model and its card enter, a safetensors file leaves, and the other way round.

The file's own header says what the arrays are for: which preset with which settings, what the columns of features are
called, the bounder whose duals it was trained on, and the card: data, settings and accuracy of the training. Nothing
in a file is ever run.
"""

import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any, Final

import torch
from torch import Tensor

from bough.errors import BadInput
from bough.files.reading import JsonObject
from bough.files.writing import write_bytes
from bough.learning.model import AbstractBuilt, AbstractModel
from bough.learning.presets import KNOWN_MODELS, build

SCHEMA: Final = "bough.weights/1"
ENDING: Final = ".safetensors"
BOUNDERS: Final = ("dual", "lp")
SHIPPED = Path(__file__).with_name("weights_files")
KEYS: Final = ("schema", "preset", "settings", "columns", "bounder", "card")


@dataclass(frozen=True)
class WeightsCard:
    """What weights were trained on, how, and how well they did; whatever JSON can hold."""

    bounder: str  # "dual" or "lp": whose multipliers and primal values the model has learnt to read
    data: JsonObject = field(default_factory=dict)
    settings: JsonObject = field(default_factory=dict)  # of the training
    accuracy: JsonObject = field(default_factory=dict)

    @property
    def inputs(self) -> tuple[int, ...]:
        """The numbers of inputs that the networks of the training had."""
        counts = self.data.get("inputs")
        return tuple(counts) if isinstance(counts, list | tuple) else ()


def save(path: Path, model: AbstractModel, card: WeightsCard) -> None:
    """Write a model made by `presets.build`, wherever it is."""
    from safetensors.torch import save as as_bytes

    if not isinstance(model, AbstractBuilt):
        raise TypeError(f"only models made by presets.build can be written, and not a {type(model).__name__}")
    if card.bounder not in BOUNDERS:
        raise BadInput(f"a card's bounder is one of {', '.join(BOUNDERS)}, and not {card.bounder!r}")
    header = {
        "schema": SCHEMA,
        "preset": model.preset,
        "settings": json.dumps(asdict(model.settings), sort_keys=True),
        "columns": json.dumps(model.columns, sort_keys=True),
        "bounder": card.bounder,
        "card": json.dumps({"data": card.data, "settings": card.settings, "accuracy": card.accuracy}, sort_keys=True),
    }
    arrays = {name: array.detach().cpu().contiguous() for name, array in model.state_dict().items()}
    write_bytes(path, as_bytes(arrays, header))


def load(path: Path) -> tuple[AbstractBuilt, WeightsCard]:
    """The model and its card, on the CPU; whatever is wrong with the file is said in one sentence."""
    header, arrays = _read(path)
    if header.get("schema") != SCHEMA:
        schema = f"of schema {header['schema']!r}" if "schema" in header else "without a schema"
        raise BadInput(f"{path}: a file {schema}; this version of bough reads weights of schema {SCHEMA!r}")
    if missing := [key for key in KEYS if key not in header]:
        raise BadInput(f"{path}: the header has no {', '.join(missing)}; write the file again with bough")
    if header["preset"] not in KNOWN_MODELS.names():
        known = ", ".join(KNOWN_MODELS.names())
        raise BadInput(f"{path}: weights of an unknown model {header['preset']!r}; the presets are {known}")
    card = _card(path, header)
    settings = _parsed(path, header, "settings")
    try:
        model = build(header["preset"], **settings)
    except BadInput as error:
        raise BadInput(f"{path}: {error}") from None
    if _parsed(path, header, "columns") != {name: list(names) for name, names in model.columns.items()}:
        raise BadInput(f"{path}: the model was trained on other features than this version of bough has; train it anew")
    _fill(path, model, arrays)
    return model.eval(), card


def shipped(name: str) -> Path:
    """The file of weights that come with the package."""
    path = SHIPPED / f"{name.removesuffix(ENDING)}{ENDING}"
    if path.parent != SHIPPED or not path.is_file():
        raise BadInput(f"no weights {name!r} come with bough; there are {', '.join(shipped_names()) or 'none'}")
    return path


def named(weights: str) -> Path:
    """A file, or what comes with the package under a plain name."""
    path = Path(weights)
    return path if path.exists() or path.suffix or len(path.parts) > 1 else shipped(weights)


def shipped_names() -> list[str]:
    """What comes with the package."""
    return sorted(path.stem for path in SHIPPED.glob(f"*{ENDING}"))


def _read(path: Path) -> tuple[dict[str, str], dict[str, Tensor]]:
    from safetensors import SafetensorError, safe_open

    if not path.is_file():
        raise BadInput(f"{path}: there is no such file of weights")
    try:
        with safe_open(path, framework="pt") as file:
            return dict(file.metadata() or {}), {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118
    except OSError as error:
        raise BadInput(f"{path}: the weights cannot be read: {error.strerror or error}") from None
    except SafetensorError as error:
        raise BadInput(f"{path}: not a whole safetensors file: {error}") from None


def _card(path: Path, header: Mapping[str, str]) -> WeightsCard:
    if header["bounder"] not in BOUNDERS:
        raise BadInput(
            f"{path}: trained with an unknown bounder {header['bounder']!r}; there are {', '.join(BOUNDERS)}"
        )
    card = _parsed(path, header, "card")
    parts: dict[str, Any] = {name: card.get(name) for name in ("data", "settings", "accuracy")}
    if set(card) != set(parts) or not all(isinstance(part, dict) for part in parts.values()):
        raise BadInput(f"{path}: a card has data, settings and accuracy, and this one {', '.join(card) or 'nothing'}")
    return WeightsCard(header["bounder"], **parts)


def _parsed(path: Path, header: Mapping[str, str], key: str) -> dict[str, Any]:
    try:
        value = json.loads(header[key])
    except (ValueError, RecursionError) as error:
        raise BadInput(f"{path}: {key} in the header is no JSON: {error}") from None
    if not isinstance(value, dict):
        raise BadInput(f"{path}: {key} in the header is {value!r}, and not names with values")
    return value


def _fill(path: Path, model: AbstractBuilt, arrays: Mapping[str, Tensor]) -> None:
    wanted = model.state_dict()
    for what, names in (("lacks", wanted.keys() - arrays.keys()), ("has too much:", arrays.keys() - wanted.keys())):
        if names:
            raise BadInput(f"{path}: a {model.preset} model {what} {', '.join(sorted(names))}")
    for name, array in arrays.items():
        if array.shape != wanted[name].shape or array.dtype != wanted[name].dtype:
            actual, expected = (f"{list(a.shape)} of {a.dtype}" for a in (array, wanted[name]))
            raise BadInput(f"{path}: {name} is {actual}, and should be {expected}")
        if not bool(torch.isfinite(array).all()):
            raise BadInput(f"{path}: {name} holds what is not a finite number")
    model.load_state_dict(dict(arrays))
