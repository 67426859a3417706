"""A search is watched, and a file of JSON lines leaves: where it stood after every step, and the tree it made.

Described line by line in docs/report.md. The writer is an observer, so the search goes where it goes without it; a
batch of domains is one line of columns, never one line each. `read_trace` gives the whole back.
"""

import gzip
import json
import math
import zlib
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, fields
from pathlib import Path
from typing import TYPE_CHECKING, Any, TextIO, final

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from bough.branching.improvement import improvements
from bough.errors import BadInput, OutputError
from bough.problem.problem import Problem
from bough.problem.property import Box
from bough.report.record import finite
from bough.report.runs import json_object
from bough.search.observe import AbstractObserver, Family, Split

if TYPE_CHECKING:
    from bough.search.loop import SearchState
    from bough.verdict.result import Result

SCHEMA = "bough.trace/1"
LIMIT = 200_000  # nodes that are followed unless the user says how many
LARGEST_INPUT = 1 << 16  # elements; a larger input is not written down
OPEN, CLOSED, EMPTY, STUCK = "ocxs"  # how a node ended when it was bounded; an open one may be split later
BY_RULE, BY_BACKUP, BY_NONE = "rbn"  # who chose a split; none: what the rule chose could not be split
ENDINGS = (".jsonl", ".jsonl.gz")
IMAGE_AXES = 3  # channels, height, width
STEP = ("seconds", "lower", "upper", "open", "branches", "bounds")


# Writing


@final
class TraceWriter(AbstractObserver):
    """Writes a trace while a search runs; use it as a context, and `finish` it with the result.

    A file that cannot be written any more ends the trace and not the search: `trouble` then says why. After `limit`
    nodes the tree is not followed further, and only the steps are.
    """

    def __init__(self, path: Path, problem: Problem, about: Mapping[str, Any], limit: int = LIMIT) -> None:
        self.trouble: str | None = None
        self.nodes = 0  # written so far
        self._path, self._limit = path, limit
        self._header = {"schema": SCHEMA, **_about(problem), **about, "limit": limit}
        self._ids: list[int] = []  # the node of every domain, by the number it was opened under
        self.stopped = False  # whether there were more nodes than are followed
        self._steps = 0
        self._waiting: str | None = None  # the nodes of the step at work
        self._file: TextIO | None = None

    def __enter__(self) -> "TraceWriter":
        try:
            if self._path.suffix == ".gz":
                self._file = gzip.open(self._path, "wt", compresslevel=4, encoding="ascii")
            else:
                self._file = self._path.open("w", encoding="ascii")
        except OSError as error:
            raise OutputError(f"cannot write {self._path}: {error.strerror or error}") from error
        self._write(json.dumps(self._header, allow_nan=False))
        return self

    def __exit__(self, *_: object) -> None:
        try:
            if self._file is not None:
                self._file.close()
        except OSError as error:
            self.trouble = self.trouble or str(error.strerror or error)

    def born(self, family: Family) -> None:
        """Note the nodes of a step, to be written with it."""
        count = len(family.children)
        if self.stopped or self._file is None:
            return
        if self.nodes + count > self._limit:
            self.stopped = True
            self._write(json.dumps({"stopped": self.nodes, "reason": f"--trace-limit {self._limit}"}))
            return
        if family.split is None:
            origin = f'"clause":{json.dumps(family.children.clause.tolist())}'
        else:
            origin = self._splits(family, family.split)
        bounds = _numbers(family.children.lower)
        self._waiting = f'{{"first":{self.nodes},{origin},"bound":{bounds},"end":"{_ends(family)}"}}'
        self._ids.extend(self.nodes + k for k in family.opened.nonzero()[:, 0].tolist())
        self.nodes += count

    def seen(self, state: "SearchState", seconds: float) -> None:
        """Write where the search stands, with the nodes that were born."""
        figures = {
            "step": self._steps,
            "seconds": round(seconds, 6),
            "lower": finite(state.lower),
            "upper": finite(state.upper),
            "open": state.open_domains,
            "branches": state.branches,
            "bounds": state.bounds,
        }
        line = json.dumps(figures, allow_nan=False)
        self._write(line if self._waiting is None else f'{line[:-1]}, "nodes": {self._waiting}}}')
        self._steps += 1
        self._waiting = None

    def finish(self, result: "Result") -> None:
        """Write the last line, which tells how the search ended."""
        end: dict[str, Any] = {
            "verdict": result.verdict.value,
            "reason": result.reason,
            "seconds": round(result.seconds, 6),
            "branches": result.branches,
            "bounds": result.bounds,
            "lower": finite(result.lower_bound),
            "upper": finite(result.upper_bound),
            "depth": result.depth,
            "counterexample": None,
        }
        if (found := result.counterexample) is not None:
            x = rounded(found.x) if found.x.size <= LARGEST_INPUT else None
            end["counterexample"] = {"x": x, "y": rounded(found.y), "clause": found.clause}
        self._write(json.dumps({"end": end}, allow_nan=False))

    def _splits(self, family: Family, split: Split) -> str:
        """Parents, what they were split at, who chose it, and what it gained; one of each for a pair of children."""
        order = split.order
        parents = [self._ids[number] for number in split.numbers[order].tolist()]
        before = split.domains.lower[order]
        gain = improvements(before, family.children.lower.reshape(-1, 1, 2), family.cutoff)[:, 0]
        columns = {"parent": parents, "split": split.choices[order].tolist()}
        text = json.dumps(columns, separators=(",", ":"))[1:-1]
        return f'{text},"by":"{_deciders(split)}","gain":{_numbers(gain)}'

    def _write(self, line: str) -> None:
        if self._file is None or self.trouble is not None:
            return
        try:
            self._file.write(line + "\n")
        except OSError as error:
            self.trouble = str(error.strerror or error)


def _about(problem: Problem) -> dict[str, Any]:
    """What was searched: names, and where in the network the ReLU of a flat number is."""
    network = problem.network
    return {
        "network": problem.network_name,
        "property": problem.property_name,
        "input_shape": list(network.input_shape),
        "neurons": network.neurons,
        "layers": [
            {"name": network.nodes[i].name, "shape": list(network.nodes[i].shape), "first": part.start}
            for i, part in network.slices.items()
        ],
        "clauses": len(problem.clauses),
        "image": _image(problem),
    }


def _image(problem: Problem) -> dict[str, Any] | None:
    """The image that the first box lies around, and the network's outputs for it; None where inputs are no image.

    Where nobody said which image it is, the box has to tell.
    """
    if picture_shape(problem.network.input_shape) is None or problem.network.inputs > LARGEST_INPUT:
        return None
    known = problem.image
    image = centre_of(problem.property.boxes[0], problem.network.input_shape) if known is None else known.numpy()
    outputs = np.asarray(problem.reference.run(image), dtype=np.float64).reshape(-1)
    return {"x": rounded(image), "y": rounded(outputs)}


def picture_shape(shape: Sequence[int]) -> tuple[int, int, int] | None:
    """The input as channels, height and width, if that is what it is; flat inputs of well-known sizes are, too."""
    sizes = tuple(n for n in shape[:-IMAGE_AXES] if n != 1) + tuple(shape[-IMAGE_AXES:])
    if len(sizes) == IMAGE_AXES and sizes[0] in (1, 3) and min(sizes[1:]) > 1:
        return sizes[0], sizes[1], sizes[2]
    return {784: (1, 28, 28), 3072: (3, 32, 32)}.get(math.prod(shape))


def centre_of(box: Box, shape: Sequence[int]) -> NDArray[np.float64]:
    """The middle of a box; a side that was cut off where pixels end is first made as long as the others."""
    picture = picture_shape(shape)
    if box.ball is not None or picture is None:
        return np.asarray(box.centre.numpy(), dtype=np.float64)
    lower, upper = (side.numpy().reshape(picture[0], -1) for side in (box.lower, box.upper))
    side = upper - lower
    whole = side.max(axis=1, keepdims=True)
    short = side < whole * (1 - 1e-6)
    at_bottom = short & (lower <= lower.min(axis=1, keepdims=True))
    at_top = short & ~at_bottom & (upper >= upper.max(axis=1, keepdims=True))
    middle = np.where(at_bottom, upper - whole / 2, np.where(at_top, lower + whole / 2, (lower + upper) / 2))
    return np.asarray(np.clip(middle, lower, upper), dtype=np.float64).reshape(-1)


def _ends(family: Family) -> str:
    empty = family.children.lower == torch.inf
    code = torch.where(family.opened, 0, torch.where(empty, 2, torch.where(family.closed, 1, 3)))
    return "".join((OPEN + CLOSED + EMPTY + STUCK)[k] for k in code.tolist())


def _deciders(split: Split) -> str:
    """Who chose, in the order of the children."""
    kept = split.decision.neurons == split.choices
    own = torch.ones_like(kept) if split.decision.own is None else split.decision.own
    code = torch.where(kept, torch.where(own, 0, 1), 2)[split.order]
    return "".join((BY_RULE + BY_BACKUP + BY_NONE)[k] for k in code.tolist())


def _numbers(values: Tensor) -> str:
    """A JSON list, to seven digits: what is not finite is null."""
    return "[" + ",".join(f"{v:.7g}" if math.isfinite(v) else "null" for v in values.tolist()) + "]"


def rounded(values: NDArray[np.float64]) -> list[float]:
    """All values, to seven digits."""
    return [float(f"{v:.7g}") for v in values.reshape(-1).tolist()]


# Reading


@dataclass(frozen=True)
class Nodes:
    """The tree as columns, one entry per node, in the order they were made."""

    parent: list[int] = field(default_factory=list)  # -1: a root
    clause: list[int] = field(default_factory=list)
    depth: list[int] = field(default_factory=list)
    split: list[tuple[int, ...]] = field(default_factory=list)  # what its parent was split at; () at a root
    side: list[int] = field(default_factory=list)  # which of its parent's children: 0 blocked or lower half, 1 ...
    by: list[str] = field(default_factory=list)  # who chose that; "" at a root
    gain: list[float | None] = field(default_factory=list)  # m of that split
    bound: list[float | None] = field(default_factory=list)  # of the node; its parent's is the one before
    end: list[str] = field(default_factory=list)  # as it was bounded: open, closed, empty, stuck

    def __len__(self) -> int:
        return len(self.parent)


@dataclass(frozen=True)
class Trace:
    """A trace as it was written: header, steps, tree, and how it ended (None: it was cut off)."""

    header: dict[str, Any]
    steps: list[dict[str, Any]]
    nodes: Nodes
    end: dict[str, Any] | None
    stopped: bool  # whether nodes were left out


def read_trace(path: Path, note: Callable[[str], None] = lambda _: None) -> Trace:
    """Read a trace; one whose end is missing is read as far as it goes, with a note."""
    lines = _lines(path, note)
    advice = "give a file that `bough verify --trace` wrote"
    if not lines:
        raise BadInput(f"{path} is empty; {advice}")
    read = (json_object(text, f"{path}, line {k}: not a line of a trace; {advice}") for k, text in enumerate(lines, 1))
    header = next(read)
    if header.get("schema") != SCHEMA:
        raise BadInput(f"{path} is no trace: its schema is {header.get('schema')!r}, not {SCHEMA!r}")
    _check_header(header, path)
    steps: list[dict[str, Any]] = []
    nodes = Nodes()
    end = None
    stopped = False
    try:
        for place, line in enumerate(read, 2):  # noqa: B007 - the error names it
            if "end" in line:
                end = dict(line["end"])
            elif "stopped" in line:
                stopped = True
            else:
                if line.get("nodes") is not None:
                    _add(nodes, line["nodes"])
                steps.append({name: line[name] for name in STEP})
    except (KeyError, TypeError, ValueError, IndexError):
        raise BadInput(f"{path}, line {place}: not a line of a trace; was the file changed?") from None
    if end is None:
        note(f"{path} ends before its search did")
    return Trace(header, steps, nodes, end, stopped)


def read_traces(paths: Iterable[Path], note: Callable[[str], None] = lambda _: None) -> list[Trace]:
    """The traces in files, and all of folders; what a run that was killed at once left in a folder is left out."""
    traces: list[Trace] = []
    for path in paths:
        if not path.is_dir():
            traces.append(read_trace(path, note))
            continue
        files = sorted(file for file in path.iterdir() if file.name.endswith(ENDINGS))
        if not files:
            raise BadInput(f"{path} holds no trace; give a folder of `bough bench --trace`")
        traces.extend(trace for file in files if (trace := _whole_enough(file, note)) is not None)
    return traces


def _whole_enough(path: Path, note: Callable[[str], None]) -> Trace | None:
    try:
        return read_trace(path, note)
    except BadInput as error:
        note(f"left out: {error}")
        return None


def _lines(path: Path, note: Callable[[str], None]) -> list[str]:
    """The whole lines of a file, unpacked; the last one is dropped where it was torn off."""
    try:
        data = path.read_bytes()
        if data[:2] == b"\x1f\x8b":  # of a gzip file, whose end may be missing
            data = zlib.decompressobj(wbits=16 + zlib.MAX_WBITS).decompress(data)
    except OSError as error:
        raise BadInput(f"cannot read {path}: {error.strerror or error}") from error
    except zlib.error as error:
        raise BadInput(f"{path} is no gzip file that can be read: {error}") from error
    *lines, half = data.decode("utf-8", errors="replace").split("\n")
    if half:
        note(f"{path} ends in the middle of a line, which was left out")
    return lines


def _check_header(header: Mapping[str, Any], path: Path) -> None:
    try:
        str(header["network"]), str(header["property"]), int(header["neurons"])
        sizes = [math.prod(_whole(layer["shape"])) for layer in header["layers"]]
        firsts = _whole([layer["first"] for layer in header["layers"]])
        _whole(header["input_shape"])
        if firsts != [sum(sizes[:k]) for k in range(len(sizes))] or sum(sizes) != header["neurons"]:
            raise ValueError
    except (KeyError, TypeError, ValueError):
        raise BadInput(f"{path}: its first line does not describe a network; was the file changed?") from None


def _whole(values: Iterable[Any]) -> list[int]:
    numbers = list(values)
    if not all(isinstance(v, int) and v >= 0 for v in numbers):
        raise ValueError
    return numbers


def _add(nodes: Nodes, made: Mapping[str, Any]) -> None:
    """Take in the nodes of one line."""
    bounds, ends = made["bound"], made["end"]
    if made["first"] != len(nodes) or len(ends) != len(bounds) or not set(ends) <= {OPEN, CLOSED, EMPTY, STUCK}:
        raise ValueError
    if "clause" in made:
        rows: list[tuple[Any, ...]] = [(-1, clause, 0, (), 0, "", None) for clause in _whole(made["clause"])]
    else:
        rows = _children(nodes, made)
    if len(rows) != len(bounds):
        raise ValueError
    columns = *zip(*rows, strict=True), [None if b is None else float(b) for b in bounds], ends
    for column, values in zip(fields(nodes), columns, strict=False):  # of no rows there are no columns
        getattr(nodes, column.name).extend(values)


def _children(nodes: Nodes, made: Mapping[str, Any]) -> list[tuple[Any, ...]]:
    """What is known of the children of a step before they are bounded, in the order of the columns."""
    parents = _whole(made["parent"])
    if not parents or any(p >= made["first"] for p in parents):
        raise ValueError
    splits = [(s,) if isinstance(s, int) else tuple(_whole(s)) for s in made["split"]]
    gains = [None if g is None else float(g) for g in made["gain"]]
    return [
        (parent, nodes.clause[parent], nodes.depth[parent] + len(split), split, side, by, gain)
        for parent, split, by, gain in zip(parents, splits, made["by"], gains, strict=True)
        for side in range(2 ** len(splits[0]))
    ]
