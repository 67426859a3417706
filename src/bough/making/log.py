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
        trials = [_trial(entry) for entry in self.entries if "skipped" not in entry]
        self.done = {(trial.image, trial.asked): trial for trial in trials}

    @staticmethod
    def check(entry: LogEntry) -> None:
        """Raise unless an image was tried or skipped."""
        try:
            trial = None if "skipped" in entry else _trial(entry)
            hash(entry["image"] if trial is None else (trial.image, trial.asked))
        except (KeyError, TypeError):
            raise BadInput("not an image that was tried; remove the line") from None

    def add(self, tried: Trial) -> None:
        """Write down what was tried around an image."""
        self.done[tried.image, tried.asked] = tried
        self.append(asdict(tried))

    def skip(self, image: int, why: str) -> None:
        """Write down, once, that an image was not tried."""
        if image not in self._skipped:
            self._skipped.add(image)
            self.append({"image": image, "skipped": why})


def _trial(entry: LogEntry) -> Trial:
    return Trial(**{**entry, "probes": _probes(entry["probes"]), "edges": _probes(entry["edges"])})


def _probes(entries: Any) -> tuple[Probe, ...]:
    return tuple(Probe(p["eps"], ProbeOutcome(**p["outcome"])) for p in entries)
