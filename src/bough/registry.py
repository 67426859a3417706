"""Strategies by name: a module says what it holds in a constant, and a registry finds it there without importing it.

A module of a strategy has a constant such as `RULES = (RuleEntry(name="widest", words="...", ...),)` at its top level.
The registry of that kind reads names and words from the text of all modules of its folders; a module is imported when
one of its names is first used. Other packages add to a registry by an entry point whose name is the strategy's and
whose value is a module with the same constant (docs/howto-brancher.md).
"""

import ast
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property
from importlib import import_module
from importlib.metadata import EntryPoint, entry_points
from pathlib import Path
from typing import Any, Generic, TypeVar

from bough.errors import BadInput


@dataclass(frozen=True, kw_only=True)
class Entry:
    """One strategy by name; `words` describe it in a line. Both have to be plain strings, which are read as text."""

    name: str
    words: str
    comparison: bool = False  # whether it is there to compare with, and hardly of use by itself


Kind = TypeVar("Kind", bound=Entry)


@dataclass(frozen=True, kw_only=True)
class _Declared(Entry):
    """What the text of a module says of one of its entries."""

    module: str


class Registry(Generic[Kind]):
    """All strategies of one kind: those in bough's own folders, then those of other packages."""

    def __init__(
        self, kind: str, constant: str, folders: tuple[str, ...], entry: type[Kind], *, automatic: bool = True
    ) -> None:
        """With `automatic`, users may also say "auto", and whoever resolves that chooses a name."""
        self.kind = kind
        self._choices = ("auto",) if automatic else ()
        self._constant, self._folders, self._entry = constant, folders, entry

    def words(self, *, comparison: bool = False) -> Mapping[str, str]:
        """Names with a line about each, of those for use or of those for comparison."""
        own = {d.name: d.words for d in self._own.values() if d.comparison == comparison}
        return own if comparison else own | {name: f"from {point.module}" for name, point in self._foreign.items()}

    def names(self) -> tuple[str, ...]:
        """The names of all strategies."""
        return (*self._own, *self._foreign)

    def entries(self) -> tuple[Kind, ...]:
        """Every entry; all modules are imported."""
        return tuple(self.entry(name) for name in self.names())

    def check(self, name: str) -> None:
        """Refuse a name that no strategy has."""
        if name not in self._own and name not in self._foreign:
            raise BadInput(f"there is no {self.kind} '{name}'; there are: {', '.join((*self._choices, *self.names()))}")

    def entry(self, name: str) -> Kind:
        """The entry of that name; its module is imported now."""
        self.check(name)
        module = self._own[name].module if name in self._own else self._foreign[name].module
        try:
            entries: tuple[object, ...] = getattr(import_module(module), self._constant, ())
        except ImportError as error:
            if name in self._own:
                raise
            said = f"the {self.kind} '{name}' is said to be in {module}, which cannot be imported"
            raise BadInput(f"{said}: {error}") from error
        for entry in entries:
            if isinstance(entry, self._entry) and entry.name == name:
                return entry
        raise BadInput(f"{module} has no {self.kind} '{name}' in {self._constant}, though it is said to be there")

    @cached_property
    def _own(self) -> dict[str, _Declared]:
        own = {}
        for folder in self._folders:
            for path in sorted(Path(__file__).parents[1].joinpath(*folder.split(".")).glob("*.py")):
                for said in _literals(path.read_text(encoding="utf-8"), self._constant):
                    own[said["name"]] = _Declared(**said, module=f"{folder}.{path.stem}")
        return own

    @cached_property
    def _foreign(self) -> dict[str, EntryPoint]:
        points = entry_points(group=f"bough.{self._constant.lower()}")
        return {point.name: point for point in points if point.name not in self._own}


def _literals(text: str, constant: str) -> Iterator[dict[str, Any]]:
    """What a module's constant says in plain words of every entry."""
    start = text.find(f"\n{constant} = (\n")
    if start < 0:
        return
    assignment = ast.parse(text[start : text.index("\n)\n", start) + 2]).body[0]
    if isinstance(assignment, ast.Assign) and isinstance(assignment.value, ast.Tuple):
        for call in assignment.value.elts:
            if isinstance(call, ast.Call):
                plain = {word.arg: word.value.value for word in call.keywords if isinstance(word.value, ast.Constant)}
                yield {name: plain[name] for name in ("name", "words", "comparison") if name in plain}
