"""A method's name enters, the search options it stands for leave.

`auto` is a name, `bounds=dual,batch=1` describes a method, and `lp-babsr,batch=1` begins with a name and changes it.
Which fields there are, and of what type, is read off `Options`; whether a value makes sense is for `Options` to say.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, get_type_hints

from bough.baselines.base import KNOWN_BASELINES
from bough.errors import BadInput
from bough.options import Options
from bough.zoo.table import parsed

BUILT_IN: Mapping[str, tuple[str, ...]] = {
    "auto": (),
    "lp-babsr": ("bounds=lp", "branching=babsr"),
    "dual-babsr": ("bounds=dual", "branching=babsr"),
    "dual-fsb": ("bounds=dual", "branching=fsb"),
    "dual-kfsb": ("bounds=dual", "branching=kfsb"),
    "relu-bab": ("bounds=lp", "branching=widest"),  # as Planet and ReluBaB search
    **{name: (f"method={name}",) for name in KNOWN_BASELINES.names()},
}
# An instance has its own timeout.
SETTABLE = {name: hint for name, hint in get_type_hints(Options).items() if name != "timeout"}


@dataclass(frozen=True)
class Method:
    """A way to search, under the name that records and tables give it."""

    name: str
    options: Options


def parse_method(text: str, device: str | None = None) -> Method:
    """The method that a name or a description stands for, run on `device` unless it says where itself.

    The device becomes part of the name: the same method on two machines must not count as one when a bench is resumed.
    """
    words = [word.strip() for word in text.split(",")]
    if device is not None and not any(word.startswith("device=") for word in words):
        words.append(f"device={device}")
    fields: dict[str, Any] = dict(_field(pair) for word in words for pair in BUILT_IN.get(word, (word,)))
    try:
        options = Options(**fields)
    except BadInput as error:
        raise BadInput(f"method '{text}': {error}") from error
    return Method(",".join(words), options)


def _field(pair: str) -> tuple[str, Any]:
    name, equals, text = (part.strip() for part in pair.partition("="))
    if not equals:
        advice = "or give fields and values, such as bounds=dual,batch=1"
        raise BadInput(f"there is no method '{name}'; there are: {', '.join(BUILT_IN)}; {advice}")
    if name not in SETTABLE:
        raise BadInput(f"a method has no field '{name}'; there are: {', '.join(SETTABLE)}")
    try:
        return name, parsed(text, SETTABLE[name], none="none")
    except ValueError:
        raise BadInput(f"'{text}' is no value for the method's field {name}; check its type") from None
