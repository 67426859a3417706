"""Counterexamples beside the images they came from: what `bough verify --counterexample` saved, matched by name."""

import zipfile
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from bough.errors import BadInput
from bough.problem.vnnlib import read_property
from bough.report.runs import Entry, Note, instance_of, stem
from bough.report.trace import Trace, centre_of, picture_shape, rounded

LARGEST = 1 << 20  # elements; a larger input is not drawn


@dataclass(frozen=True)
class PagePoint:
    """A counterexample, flat, with what the network makes of it, and the image it lies near, where that is known."""

    network: str
    property: str
    shape: tuple[int, int, int]
    x: list[float]
    y: list[float]
    image: list[float] | None
    image_y: list[float] | None = None
    missing: str | None = None  # why there is no image


def points_of(traces: Sequence[Trace]) -> list[PagePoint]:
    """The counterexamples that traces hold."""
    return [point for trace in traces if (point := _traced(trace)) is not None]


def read_points(folder: Path, entries: Sequence[Entry], note: Note) -> list[PagePoint]:
    """The counterexamples in a folder's .npz files.

    A file is named after its run's property, with or without the network in front: `prop_3.npz`, `net-prop_3.npz`.
    """
    if not folder.is_dir():
        raise BadInput(f"{folder} is no folder; give the one with the counterexamples that bough verify wrote")
    falsified = {instance_of(entry): None for entry in entries if entry["verdict"] == "falsified"}
    names: dict[str, list[tuple[str, str]]] = {}
    for network, prop in falsified:
        for name in (stem(prop), f"{stem(network)}-{stem(prop)}"):
            names.setdefault(name, []).append((network, prop))
    points = []
    for path in sorted(folder.glob("*.npz")):
        instances = names.get(path.stem, [])
        if len(instances) != 1:
            ambiguous = "two networks were asked this; put NETWORK- before the name"
            note(f"{path} is left out: {ambiguous if instances else 'no falsified run is called so'}")
            continue
        if (point := _saved(path, *instances[0], note)) is not None:
            points.append(point)
    return points


def _traced(trace: Trace) -> PagePoint | None:
    header = trace.header
    found = (trace.end or {}).get("counterexample")
    shape = picture_shape(header["input_shape"])
    if found is None or shape is None or not found.get("x"):
        return None
    image = header.get("image") or {}
    missing = None if image.get("x") else "the trace holds no image"
    names = str(header["network"]), str(header["property"])
    return PagePoint(*names, shape, found["x"], found["y"], image.get("x"), image.get("y"), missing)


def _saved(path: Path, network: str, prop: str, note: Note) -> PagePoint | None:
    try:
        with np.load(path, allow_pickle=False) as archive:
            x, y = np.asarray(archive["x"], dtype=np.float64), np.asarray(archive["y"], dtype=np.float64)
    except (OSError, KeyError, ValueError, zipfile.BadZipFile) as error:
        note(f"{path} is left out: it is no counterexample of bough's ({error})")
        return None
    shape = picture_shape(x.shape)
    if shape is None or x.size > LARGEST:
        note(f"{path} is left out: its input has shape {tuple(x.shape)}, which is no picture")
        return None
    image, missing = _image(prop, x.shape)
    if missing is not None:
        note(f"no image beside {path}: {missing}")
    return PagePoint(network, prop, shape, rounded(np.nan_to_num(x)), rounded(np.nan_to_num(y)), image, None, missing)


def _image(prop: str, shape: tuple[int, ...]) -> tuple[list[float] | None, str | None]:
    """The middle of the property's first box; or why it is not known."""
    try:
        box = read_property(prop).boxes[0]
    except BadInput as error:
        return None, f"the property cannot be read: {error}"
    if len(box.lower) != int(np.prod(shape)):
        return None, f"{prop} is about {len(box.lower)} inputs, the counterexample has {int(np.prod(shape))}"
    return rounded(np.nan_to_num(centre_of(box, shape))), None
