"""One JSON line per run: everything a table or a plot needs, and how to repeat it.

Described field by field in docs/record.md.
"""

import json
import math
import os
import platform
import subprocess
from dataclasses import asdict, dataclass
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

from bough.files.writing import write_text
from bough.verdict.result import Result

SCHEMA = "bough.record/1"
DECISIONS = ("learnt_decisions", "backup_decisions")  # notes of a result that count who chose the splits
COPIED = ("reason", "seconds", "branches", "bounds", "depth", "open_domains", "attack_seconds", "proved")
BOUNDS = ("lower_bound", "upper_bound", "root_lower_bound")
PACKAGES = ("bough", "torch", "onnx", "onnxruntime", "highspy", "numpy")


@dataclass(frozen=True)
class Settings:
    """How a run was made, in words, as records and traces say it."""

    bounder: str
    intermediate: str
    branching: str
    batch: int | None
    seed: int
    timeout: float | None
    device: str = "cpu"
    weights: str | None = None  # of a learnt rule
    semantics: str = "real"  # what `verified` is about


@dataclass(frozen=True)
class Run:
    """What was run, as far as the result does not say."""

    network: str
    property: str
    method: str
    settings: Settings


def versions() -> dict[str, str]:
    """Versions of what a result depends on."""
    return {"python": platform.python_version(), **{package: _version(package) for package in PACKAGES}}


def _version(package: str) -> str:
    try:
        return version(package)
    except PackageNotFoundError:
        return "absent"


def revision() -> str | None:
    """The commit of bough's own checkout, with `+` if it was changed; None when bough is installed from a package."""
    folder = Path(__file__).resolve().parents[3]
    if not (folder / ".git").exists():
        return None
    try:
        described = subprocess.run(  # noqa: S603 - fixed words
            ["git", "-C", str(folder), "describe", "--always", "--dirty=+", "--abbrev=12"],  # noqa: S607
            capture_output=True,
            text=True,
            check=True,
            timeout=5,
            env={name: value for name, value in os.environ.items() if not name.startswith("GIT_")},  # as inside a hook
        )
    except (OSError, subprocess.SubprocessError):
        return None
    return described.stdout.strip()


def record(
    run: Run, result: Result | None, error: str | None = None, load_seconds: float | None = None
) -> dict[str, Any]:
    """The record of a run that ended with a result, or (result None) with an error."""
    entry: dict[str, Any] = {"schema": SCHEMA, "network": run.network, "property": run.property, "method": run.method}
    entry.update(asdict(run.settings), timeout=finite(run.settings.timeout))
    entry.update(verdict=None, reason=None, seconds=None, load_seconds=load_seconds)
    entry.update(branches=None, bounds=None, domains_per_second=None, **dict.fromkeys(BOUNDS))
    entry.update(depth=None, open_domains=None, attack_seconds=None, engine=None, proved=None)
    if result is not None:
        entry.update({name: getattr(result, name) for name in COPIED})
        entry.update({name: finite(getattr(result, name)) for name in BOUNDS})
        entry.update(
            verdict=result.verdict.value,
            domains_per_second=result.bounds / result.seconds if result.seconds > 0 else None,
            engine={name: value for name, value in result.notes.items() if name not in DECISIONS},
        )
    entry.update({name: 0 if result is None else int(result.notes.get(name, 0)) for name in DECISIONS})
    entry.update(versions=versions(), revision=revision(), error=error)
    return entry


def finite(value: float | None) -> float | None:
    """The value, or None where there is none, or one that is infinite or no number, which JSON has no word for."""
    return value if value is not None and math.isfinite(value) else None


def write_record(path: Path, entry: dict[str, Any]) -> None:
    """Write one record as one JSON line."""
    write_text(path, json.dumps(entry, allow_nan=False) + "\n")
