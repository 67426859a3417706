"""The log of a run of `bough properties`: one line for each image, which tells all that was tried around it."""

from collections.abc import Callable, Mapping
from dataclasses import asdict
from pathlib import Path
from typing import Any, final

from bough.errors import BadInput
from bough.files.log import AbstractLog, LogEntry
from bough.making.trial import Trial
from bough.making.tuning import Probe, ProbeOutcome


@final
class ProbeLog(AbstractLog):
    """The answers so far, in memory and in the file."""

    schema, headed, run, line = "bough.probes/2", True, "run", "line of ours"
    again, advice = "that image is tried again", "give a folder that bough properties wrote"

    def __init__(self, path: Path, recipe: Mapping[str, object], note: Callable[[str], None]) -> None:
        super().__init__(path, note, recipe=recipe)
        self._skipped = {entry["image"] for entry in self.entries if "skipped" in entry}
        tried = [_tried(entry) for entry in self.entries if "skipped" not in entry]
        self.done = {(each.image, each.asked): each for each in tried}

    @staticmethod
    def check(entry: LogEntry) -> None:
        """Raise unless an image was tried or skipped."""
        try:
            hash(entry["image"] if "skipped" in entry else (_tried(entry).image, _tried(entry).asked))
        except (KeyError, TypeError):
            raise BadInput("not an image that was tried; remove the line") from None

    def add(self, tried: Trial) -> None:
        """One image has ended."""
        self.done[tried.image, tried.asked] = tried
        self.append(asdict(tried))

    def skip(self, image: int, why: str) -> None:
        """One image was not tried."""
        if image not in self._skipped:
            self._skipped.add(image)
            self.append({"image": image, "skipped": why})


def _tried(entry: LogEntry) -> Trial:
    return Trial(**{**entry, "probes": _probes(entry["probes"]), "edges": _probes(entry["edges"])})


def _probes(entries: Any) -> tuple[Probe, ...]:
    return tuple(Probe(p["eps"], ProbeOutcome(**p["outcome"])) for p in entries)
