"""What the page knows, as plain values: runs by instance, traces as columns, counterexamples, and what to beware of."""

import zipfile
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np

from bough.errors import BadInput
from bough.problem.vnnlib import read_property
from bough.report.record import versions
from bough.report.runs import SOLVED, Entry, Note, counts_branches, instance_of, method_of, oddities, stem
from bough.report.trace import Nodes, Trace, centre_of, picture_shape, rounded

MOST_STEPS = 2000  # steps of a trace that the plot of bounds shows
COPIED = ("verdict", "reason", "error", "seconds", "timeout", "branches", "bounds", "depth", "seed", "known")
ABOUT = ("method", "bounder", "branching", "timeout", "seed", "weights")  # what a trace's first line says of its run
Instance = tuple[str, str]
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


def payload(
    entries: Sequence[Entry], traces: Sequence[Trace], points: Sequence[PagePoint] = (), notes: Sequence[str] = ()
) -> dict[str, Any]:
    """Everything the page shows. `notes` are what was odd about the files."""
    if not entries and not traces:
        raise BadInput("there is nothing to show: no run file holds a record, and no trace was given")
    entries = list(entries)
    instances = list(dict.fromkeys(map(instance_of, entries)))
    places = [_place(instances, entries, trace) for trace in traces]  # adds what only a trace knows of
    number = {instance: k for k, instance in enumerate(instances)}
    return {
        "version": versions()["bough"],
        "warnings": oddities(entries),
        "notes": list(notes),
        "instances": [
            {"network": net, "property": prop, "difficulty": level}
            for (net, prop), level in zip(instances, _difficulties(instances, entries), strict=True)
        ],
        "runs": [_run(entry, number) for entry in entries],
        "traces": [_trace(trace, number[place]) for trace, place in zip(traces, places, strict=True)],
        "points": [
            {**asdict(point), "instance": number[_same(instances, (point.network, point.property))]}
            for point in (*points, *filter(None, map(_traced, traces)))
        ],
    }


def _place(instances: list[Instance], entries: list[Entry], trace: Trace) -> Instance:
    """The instance that a trace is of; one without a record gets what the trace knows as its record."""
    named = str(trace.header["network"]), str(trace.header["property"])
    place = _same(instances, named)
    if place not in instances:
        instances.append(place)
    method = method_of(trace.header)
    if not any(instance_of(entry) == place and method_of(entry) == method for entry in entries):
        end = trace.end or {"verdict": "unknown", "reason": "the trace ends before its search did"}
        entry = {name: end.get(name) for name in COPIED}
        entry |= {name: trace.header.get(name) for name in ABOUT}
        entries.append(entry | {"network": place[0], "property": place[1], "lower_bound": end.get("lower")})
    return place


def _same(instances: Sequence[Instance], named: Instance) -> Instance:
    """The instance of these names, or the only one of these file names: folders may have moved."""
    if named in instances:
        return named
    bare = tuple(map(stem, named))
    alike = [instance for instance in instances if tuple(map(stem, instance)) == bare]
    return alike[0] if len(alike) == 1 else named


def _difficulties(instances: Sequence[Instance], entries: Sequence[Entry]) -> list[str]:
    """How hard each instance is, as records say; where none says anything, by how many methods it was solved."""
    said = {instance_of(entry): str(entry["difficulty"]) for entry in entries if entry.get("difficulty")}
    if said:
        return [said.get(instance, "not known") for instance in instances]
    tried: dict[Instance, list[bool]] = {}
    for entry in entries:
        tried.setdefault(instance_of(entry), []).append(entry["verdict"] in SOLVED)
    return [
        "solved by all" if all(tried[instance]) else "solved by some" if any(tried[instance]) else "solved by none"
        for instance in instances
    ]


def _run(entry: Entry, number: dict[Instance, int]) -> dict[str, Any]:
    return {
        "instance": number[instance_of(entry)],
        "method": method_of(entry),
        **{name: entry.get(name) for name in COPIED},
        "lower": entry.get("lower_bound"),
        "counted": counts_branches(entry),
        "learnt": entry.get("learnt_decisions") or 0,
        "backup": entry.get("backup_decisions") or 0,
    }


def _trace(trace: Trace, instance: int) -> dict[str, Any]:
    header = trace.header
    return {
        "instance": instance,
        "method": method_of(header),
        "rule": str(header.get("branching")),
        "neurons": header["neurons"],
        "input_shape": header["input_shape"],
        "layers": [{name: layer[name] for name in ("name", "shape", "first")} for layer in header["layers"]],
        "stopped": trace.stopped,
        "ended": None if trace.end is None else trace.end.get("verdict"),
        "steps": _steps(trace.steps),
        "nodes": _nodes(trace.nodes),
    }


def _steps(steps: Sequence[dict[str, Any]]) -> dict[str, list[Any]]:
    """The steps as columns; of more than `MOST_STEPS`, some at even distances, and the last."""
    every = -(-len(steps) // MOST_STEPS) or 1
    chosen = [*steps[:-1:every], *steps[-1:]]
    return {name: [step[name] for step in chosen] for name in ("seconds", "lower", "open", "branches", "bounds")}


def _nodes(nodes: Nodes) -> dict[str, Any]:
    """The nodes as columns; a split of one choice is that number."""
    splits = [split[0] if len(split) == 1 else list(split) for split in nodes.split]
    return {**vars(nodes), "split": splits, "by": "".join(by or "-" for by in nodes.by), "end": "".join(nodes.end)}


# Counterexamples beside the images they came from


def read_points(folder: Path, entries: Sequence[Entry], note: Note) -> list[PagePoint]:
    """The counterexamples in a folder's .npz files.

    A file is named after its run's property, with or without the network in front: `prop_3.npz`, `net-prop_3.npz`.
    """
    if not folder.is_dir():
        raise BadInput(f"{folder} is no folder; give the one with the counterexamples that bough verify wrote")
    falsified = {instance_of(entry): None for entry in entries if entry["verdict"] == "falsified"}
    names: dict[str, list[Instance]] = {}
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
    """The counterexample that a trace holds."""
    header = trace.header
    counterexample = (trace.end or {}).get("counterexample")
    shape = picture_shape(header["input_shape"])
    if counterexample is None or shape is None or not counterexample.get("x"):
        return None
    image = header.get("image") or {}
    missing = None if image.get("x") else "the trace holds no image"
    names = str(header["network"]), str(header["property"])
    return PagePoint(*names, shape, counterexample["x"], counterexample["y"], image.get("x"), image.get("y"), missing)


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
