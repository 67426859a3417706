"""Run files enter, records leave: checked, each run once, whatever is odd about them said in a note."""

from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from types import NoneType
from typing import Any

from bough.errors import BadInput
from bough.files.reading import parsed_json
from bough.report.record import SCHEMA

Entry = dict[str, Any]
Note = Callable[[str], None]
SOLVED = ("verified", "falsified")
WORDS = ("network", "property", "method", "bounder", "branching")
NUMBERS = ("seconds", "timeout", "branches", "bounds", "lower_bound", "depth")  # each may be null
VERDICTS = (*SOLVED, "timeout", "unknown", None)
SEARCHES = ("lp", "dual", "linear")  # bounders; a baseline's record has its solver there, whose nodes are no branches


def read_runs(paths: Iterable[Path], note: Note = lambda _: None) -> list[Entry]:
    """The records of several run files, in order; of two of the same run the later one, unless only it is an error.

    A last line that a killed process left half written is left out. Raises `BadInput` for files that hold anything
    else than records of this schema.
    """
    records: dict[tuple[object, ...], Entry] = {}
    twice = 0
    for path in paths:
        entries = _read(path, note)
        if not entries:
            note(f"{path} holds no record")
        for entry in entries:
            key = *instance_of(entry), method_of(entry), entry.get("seed")  # equal in two records of one run
            twice += key in records
            if key not in records or entry["error"] is None or records[key]["error"] is not None:
                records[key] = entry
    if twice:
        note(f"{twice} records repeat a run (same network, property, method and seed); the latest of each counts")
    return list(records.values())


def method_of(entry: Entry) -> str:
    """The method's name in tables: as the bench says, or bounds and rule for a single run, whose method is `bab`."""
    name = str(entry["method"])
    if name != "bab":
        return name
    weights = entry.get("weights")
    file = "" if weights is None else f" ({Path(str(weights)).name})"
    device = "" if entry.get("device") in (None, "cpu") else f",device={entry['device']}"
    return f"{entry['bounder']}-{entry['branching']}{file}{device}"


def instance_of(entry: Entry) -> tuple[str, str]:
    """The question that was asked."""
    return str(entry["network"]), str(entry["property"])


def stem(name: str) -> str:
    """The name of a network's or a property's file, without folder and endings; other dots, as in `eps0.03`, stay."""
    last = name.replace("\\", "/").rsplit("/", 1)[-1]
    return last.removesuffix(".gz").removesuffix(".vnnlib").removesuffix(".onnx")


def is_search(entry: Mapping[str, Any]) -> bool:
    """Whether branches and bounds are a search's own, and not the nodes of a foreign solver."""
    return entry.get("bounder", SEARCHES[0]) in SEARCHES


def counts_branches(entry: Mapping[str, Any]) -> bool:
    """Whether the branches were counted, and may be held against those of other searches."""
    return entry["branches"] is not None and is_search(entry)


def oddities(entries: Sequence[Entry]) -> list[str]:
    """What a reader must know before comparing methods: limits, instances or verdicts that do not agree."""
    groups: dict[tuple[str, str], list[Entry]] = defaultdict(list)
    methods: dict[str, set[tuple[str, str]]] = defaultdict(set)
    for entry in entries:
        groups[instance_of(entry)].append(entry)
        methods[method_of(entry)].add(instance_of(entry))
    return [*_limits(groups.values()), *_coverage(list(methods.values())), *_contradictions(groups.values())]


def _limits(groups: Iterable[Sequence[Entry]]) -> list[str]:
    mixed = [group for group in groups if len({entry["timeout"] for entry in group}) > 1]
    if not mixed:
        return []
    limits = {entry["timeout"] for group in mixed for entry in group}
    shown = [f"{limit:g} s" for limit in sorted(limits - {None})] + ["none"] * (None in limits)
    finding = f"{_many(len(mixed))} ran under different limits by method ({', '.join(shown[:6])})"
    return [f"Mixed time limits: {finding}; times and solved counts do not compare."]


def _coverage(sets: Sequence[set[tuple[str, str]]]) -> list[str]:
    common = set.intersection(*sets) if sets else set()
    if all(one == common for one in sets):
        return []
    if not common:
        return ["No instance was run by every method; compare methods on the instances that they share, if any."]
    total = len(set.union(*sets))
    return [f"Methods ran on different instances: {_many(len(common))} of {total} common to all."]


def _contradictions(groups: Iterable[Sequence[Entry]]) -> list[str]:
    lines = []
    for group in groups:
        said = {entry["verdict"] for entry in group} | {entry.get("known") for entry in group}
        if set(SOLVED) <= said:
            name = " ".join(instance_of(group[0]))
            lines.append(f"Contradictory verdicts: {name} is said to be both verified and falsified; one is wrong.")
    return lines


def _many(instances: int) -> str:
    return "1 instance" if instances == 1 else f"{instances} instances"


def _read(path: Path, note: Note) -> list[Entry]:
    try:
        *lines, half = path.read_bytes().decode("utf-8", errors="replace").split("\n")
    except OSError as error:
        raise BadInput(f"cannot read {path}: {error.strerror or error}") from error
    entries = [_entry(line, f"{path}, line {k}") for k, line in enumerate(lines, 1) if line.strip()]
    if half.strip():
        try:  # a whole record without its newline counts
            entries.append(_entry(half, f"{path}, line {len(lines) + 1}"))
        except BadInput:
            if not lines and not half.startswith("{"):
                raise
            note(f"{path} ends in the middle of a record, which was left out")
    return entries


def json_object(text: str, failure: str) -> dict[str, Any]:
    """The object that a line of JSON holds; a `BadInput` by `failure` where it holds none."""
    with suppress(ValueError):
        if isinstance(value := parsed_json(text), dict):
            return value
    raise BadInput(failure)


def _entry(line: str, place: str) -> Entry:
    advice = "give files that `bough bench` or `bough verify --json` wrote"
    entry = json_object(line, f"{place}: not a record of a run; {advice}")
    if (schema := entry.get("schema")) != SCHEMA:
        raise BadInput(f"{place}: the schema is {schema!r}, and this bough reads {SCHEMA!r}; give a file it wrote")
    sound = all(isinstance(entry.get(name), str) for name in WORDS) and entry.get("verdict") in VERDICTS
    sound = sound and all(type(entry.get(name)) in (int, float, NoneType) for name in NUMBERS)
    if not sound or ("verdict" in entry and (entry["verdict"] is None) == (entry.get("error") is None)):
        raise BadInput(f"{place}: a field of the record is missing or of another type; was the file changed?")
    return {**dict.fromkeys((*NUMBERS, "verdict", "error")), **entry}
