"""Verdicts that others are on record with: a CSV enters, what a verdict is held against leaves."""

import csv
import io
from collections.abc import Mapping
from pathlib import Path

from bough.errors import BadInput
from bough.files.reading import read_bytes
from bough.report.runs import stem

KNOWN_LIMIT = 1 << 26  # most bytes that are read of a file of verdicts
COLUMNS = ("benchmark", "network", "property", "verdict")
WORDS = {"unsat": "verified", "sat": "falsified"}  # words of the competition; any other means not known

Known = Mapping[tuple[str, str, str], str]


def read_known(path: Path) -> Known:
    """Verdicts by benchmark, network and property (file names without endings), in bough's words."""
    try:
        text = read_bytes(path, KNOWN_LIMIT, BadInput).decode("utf-8-sig")
        rows = csv.DictReader(io.StringIO(text, newline=""), strict=True)
        if not set(COLUMNS) <= set(rows.fieldnames or ()):
            raise BadInput(f"{path}: the first line must name the columns {', '.join(COLUMNS)}")
        return {
            (r["benchmark"], r["network"], r["property"]): WORDS[r["verdict"]] for r in rows if r["verdict"] in WORDS
        }
    except (UnicodeDecodeError, csv.Error) as error:
        raise BadInput(f"{path} is no CSV ({error}); give one with the columns {', '.join(COLUMNS)}") from None


def known_verdict(known: Known, network: Path, property_file: Path) -> str | None:
    """What is known of an instance; its benchmark is the nearest folder above the network that has a row for it."""
    keys = ((folder.name, stem(network.name), stem(property_file.name)) for folder in network.resolve().parents)
    return next((known[key] for key in keys if key in known), None)
