"""What the page knows, as plain values: runs by instance, traces as columns, counterexamples, and what to beware of."""

from collections.abc import Sequence
from dataclasses import asdict
from typing import Any

from bough.errors import BadInput
from bough.report.page.points import PagePoint, points_of
from bough.report.record import versions
from bough.report.runs import SOLVED, Entry, counts_branches, instance_of, method_of, oddities, stem
from bough.report.trace import Nodes, Trace

MOST_STEPS = 2000  # steps of a trace that the plot of bounds shows
COPIED = ("verdict", "reason", "error", "seconds", "timeout", "branches", "bounds", "depth", "seed", "known")
Instance = tuple[str, str]


def payload(
    entries: Sequence[Entry], traces: Sequence[Trace], points: Sequence[PagePoint] = (), notes: Sequence[str] = ()
) -> dict[str, Any]:
    """Everything the page shows. `notes` are what was odd about the files."""
    if not entries and not traces:
        raise BadInput("there is nothing to show: no run file holds a record, and no trace was given")
    entries = list(entries)
    asked = list(dict.fromkeys(map(instance_of, entries)))
    places = [_place(asked, entries, trace) for trace in traces]  # adds what only a trace knows of
    number = {instance: k for k, instance in enumerate(asked)}
    all_points = [*points, *points_of(traces)]
    return {
        "version": versions()["bough"],
        "warnings": oddities(entries),
        "notes": list(notes),
        "instances": [
            {"network": net, "property": prop, "difficulty": level}
            for (net, prop), level in zip(asked, _difficulties(asked, entries), strict=True)
        ],
        "runs": [_run(entry, number) for entry in entries],
        "traces": [_trace(trace, number[place]) for trace, place in zip(traces, places, strict=True)],
        "points": [
            {**asdict(point), "instance": number[_same(asked, (point.network, point.property))]} for point in all_points
        ],
    }


def _place(asked: list[Instance], entries: list[Entry], trace: Trace) -> Instance:
    """The instance that a trace is of; one without a record gets what the trace knows as its record."""
    named = str(trace.header["network"]), str(trace.header["property"])
    place = _same(asked, named)
    if place not in asked:
        asked.append(place)
    method = method_of(trace.header)
    if not any(instance_of(entry) == place and method_of(entry) == method for entry in entries):
        end = trace.end or {"verdict": "unknown", "reason": "the trace ends before its search did"}
        fields = {name: end.get(name) for name in COPIED}
        about = {
            name: trace.header.get(name) for name in ("method", "bounder", "branching", "timeout", "seed", "weights")
        }
        entries.append({**fields, **about, "network": place[0], "property": place[1], "lower_bound": end.get("lower")})
    return place


def _same(asked: Sequence[Instance], named: Instance) -> Instance:
    """The instance of these names, or the only one of these file names: folders may have moved."""
    if named in asked:
        return named
    bare = tuple(map(stem, named))
    alike = [instance for instance in asked if tuple(map(stem, instance)) == bare]
    return alike[0] if len(alike) == 1 else named


def _difficulties(asked: Sequence[Instance], entries: Sequence[Entry]) -> list[str]:
    """How hard each instance is, as records say; where none says anything, by how many methods it was solved."""
    said = {instance_of(entry): str(entry["difficulty"]) for entry in entries if entry.get("difficulty")}
    if said:
        return [said.get(instance, "not known") for instance in asked]
    tried: dict[Instance, list[bool]] = {}
    for entry in entries:
        tried.setdefault(instance_of(entry), []).append(entry["verdict"] in SOLVED)
    return [
        "solved by all" if all(tried[instance]) else "solved by some" if any(tried[instance]) else "solved by none"
        for instance in asked
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
