"""The log of a run: one JSON line per image as it ends, under a first line that says what run it is.

A line that a killed process left half written is dropped. The log of another run is refused: its answers would be to
other questions.
"""

import json
import os
from collections.abc import Callable, Mapping
from dataclasses import asdict
from pathlib import Path
from typing import Any

from bough.errors import BadInput, OutputError
from bough.problem.files import LINES_LIMIT, parsed_json, read_bytes
from bough.zoo.trial import Tried
from bough.zoo.tuning import Outcome, Probe

SCHEMA = "bough.probes/2"


class Log:
    """The answers so far, in memory and in the file."""

    def __init__(self, path: Path, recipe: Mapping[str, object], note: Callable[[str], None]) -> None:
        self.done: dict[tuple[int, str], Tried] = {}
        self._path, self._skipped = path, set[int]()
        head = {"schema": SCHEMA, "recipe": json.loads(json.dumps(dict(recipe)))}
        *lines, half = _contents(path).split(b"\n")
        if lines:
            self._check_head(_parsed(lines[0], f"{path}, line 1"), head)
        for k, line in enumerate(lines[1:], 2):
            self._read(_parsed(line, f"{path}, line {k}"), f"{path}, line {k}")
        if half:
            if not half.startswith(b'{"'[: len(half)]):
                raise BadInput(f"{path} does not end with a line of ours; give a folder that bough properties wrote")
            self._truncate(sum(len(line) + 1 for line in lines))
            note(f"{path} ended in the middle of a line, which was dropped; that image is tried again")
        if not lines:
            self._append(head)

    def add(self, tried: Tried) -> None:
        """One image has ended."""
        self.done[tried.image, tried.asked] = tried
        self._append(asdict(tried))

    def skip(self, image: int, why: str) -> None:
        """One image was not tried."""
        if image not in self._skipped:
            self._skipped.add(image)
            self._append({"image": image, "skipped": why})

    def _check_head(self, found: Any, head: dict[str, Any]) -> None:
        if not isinstance(found, dict) or found.get("schema") != SCHEMA or not isinstance(found.get("recipe"), dict):
            raise BadInput(f"{self._path}, line 1: not the log of a run; give a folder that bough properties wrote")
        old, new = found["recipe"], head["recipe"]
        for name in {**old, **new}:
            if old.get(name) != new.get(name):
                differs = f"{name} was {old.get(name)}, and is {new.get(name)} now"
                raise BadInput(f"{self._path} is of another run: {differs}; resume by the same command")

    def _read(self, entry: Any, where: str) -> None:
        try:
            if "skipped" in entry:
                self._skipped.add(entry["image"])
                return
            lists = {name: _probes(entry[name]) for name in ("probes", "edges")}
            tried = Tried(**{**entry, **lists})
            self.done[tried.image, tried.asked] = tried
        except (KeyError, TypeError):
            raise BadInput(f"{where}: not an image that was tried; remove the line") from None

    def _truncate(self, size: int) -> None:
        try:
            os.truncate(self._path, size)
        except OSError as error:
            raise OutputError(f"cannot go on with {self._path}: {error.strerror or error}") from error

    def _append(self, entry: dict[str, Any]) -> None:
        try:
            with self._path.open("a", encoding="ascii") as file:
                file.write(json.dumps(entry, allow_nan=False) + "\n")
        except OSError as error:
            raise OutputError(f"cannot write {self._path}: {error.strerror or error}") from error


def _probes(entries: Any) -> tuple[Probe, ...]:
    return tuple(Probe(p["eps"], Outcome(**p["outcome"])) for p in entries)


def _contents(path: Path) -> bytes:
    try:
        return read_bytes(path, LINES_LIMIT, BadInput) if path.exists() else b""
    except BadInput as error:
        raise OutputError(f"cannot go on with {path}: {error}") from error


def _parsed(line: bytes, where: str) -> Any:
    try:
        return parsed_json(line)
    except ValueError:
        raise BadInput(f"{where}: not JSON; give a folder that bough properties wrote") from None
