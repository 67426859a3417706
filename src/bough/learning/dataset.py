"""Data sets of samples: what was collected enters a folder, `Samples` leave it.

    samples.jsonl             the manifest: a first line that says what run it is, then one line per property
    networks/SHA.onnx         the networks, so that the folder is enough to train from
    shards/NAME.safetensors   the samples of one property, as named arrays, under their card

A shard is written whole or not at all, and its card tells all about it; a property whose search gave no sample has a
line in the manifest, and no shard. What is the same for all samples of a property is stored once. All numbers stay
float32, although most would do with half of it: bounds next to 0 decide what is ambiguous, multipliers span more orders
of magnitude than float16 has, and a set of the paper's size has less than a gigabyte as it is.
"""

import hashlib
import json
import os
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass, fields
from functools import lru_cache
from pathlib import Path
from typing import Any, Literal

import torch
from torch import Tensor

from bough.errors import BadInput, OutputError
from bough.learning.labels import MODES, Collected, Mode
from bough.learning.samples import OPTIONAL, Samples
from bough.learning.scene import Graph, Scene
from bough.network.graph import Network
from bough.problem.files import LINES_LIMIT, NETWORK_LIMIT, parsed_json, read_bytes
from bough.problem.onnx import read_network

SCHEMA = "bough.samples/1"
MANIFEST, SHARDS, NETWORKS = "samples.jsonl", "shards", "networks"
_DIGEST = re.compile("[0-9a-f]{0,64}")
TRAINING = 0.75  # share of the images
ONCE = ("input_lower", "input_upper", "functional", "children")  # often the same for all samples of a property
HEADER = "bough"  # one entry: several would be written in an order that changes from run to run

Part = Literal["training", "validation"]
Note = Callable[[str], None]


def split_of(dataset: str, split: str, image: int, seed: int = 0) -> Part:
    """Whether an image's samples are for training or for validation: all samples of an image are in one part."""
    drawn = hashlib.sha256(f"part {seed} {dataset} {split} {image}".encode()).digest()
    return "training" if int.from_bytes(drawn[:8], "big") < TRAINING * 2**64 else "validation"


@dataclass(frozen=True)
class Card:
    """Where the samples of a shard are from."""

    name: str  # of the property, and of the shard
    network: str
    sha256: str  # of the network's file, decompressed
    dataset: str
    split: str
    image: int
    label: int
    target: int
    eps: float
    normalised: bool
    clip: bool
    seed: int
    bounder: str
    rule: str  # that the search branched by
    mode: Mode
    samples: int
    revision: str | None  # of bough

    def __post_init__(self) -> None:
        for name, kinds in KINDS.items():
            if type(getattr(self, name)) not in kinds:  # True is an int to isinstance
                raise BadInput(f"{name} is {str(getattr(self, name))[:40]!r}")
        if Path(self.name).name != self.name or "\0" in self.name or _DIGEST.fullmatch(self.sha256) is None:
            raise BadInput("its name or checksum would lead out of the folder")  # both become names of files
        if self.mode not in MODES:
            raise BadInput(f"there is no mode '{self.mode}'; there are: {', '.join(MODES)}")

    def part(self, seed: int = 0) -> Part:
        """Which part its image belongs to."""
        return split_of(self.dataset, self.split, self.image, seed)

    @staticmethod
    def read(told: Mapping[str, Any]) -> "Card":
        """From what JSON makes of one, and whatever else is there."""
        return Card(**{name: told.get(name) for name in KINDS})  # type: ignore[arg-type] # checked there


KINDS: Mapping[str, tuple[type, ...]] = {
    **dict.fromkeys(("name", "network", "sha256", "dataset", "split", "bounder", "rule", "mode"), (str,)),
    **dict.fromkeys(("image", "label", "target", "seed", "samples"), (int,)),
    **dict.fromkeys(("normalised", "clip"), (bool,)),
    "eps": (float, int),
    "revision": (str, type(None)),
}


@dataclass(frozen=True, eq=False)
class Shard:
    """What one search gave, with its card."""

    card: Card
    collected: Collected


# One shard


def encode(card: Card, collected: Collected) -> bytes:
    """The file of a shard."""
    from safetensors.torch import save

    samples = collected.samples
    if card.samples != len(samples):
        raise ValueError(f"the card says {card.samples} samples, there are {len(samples)}")
    arrays = {
        "neurons": samples.graph.neurons,
        "passing": samples.graph.passing,
        "step": collected.step,
        "children": samples.children,
        **samples.scene.named(),
        **{name: array for name, array in samples.optional().items() if array is not None},
    }
    for name in ONCE:
        if torch.equal(arrays[name], arrays[name][:1].expand_as(arrays[name])):
            arrays[name] = arrays[name][:1]
    head = {HEADER: json.dumps({"schema": SCHEMA, **asdict(card)}, sort_keys=True, allow_nan=False)}
    return save({name: array.contiguous() for name, array in arrays.items()}, metadata=head)


def read_card(path: Path) -> Card:
    """The card of a shard; `BadInput` says what is wrong with one that is truncated, or is none of ours."""
    from safetensors import SafetensorError, safe_open

    try:
        with safe_open(path, framework="pt") as file:
            told = parsed_json((file.metadata() or {}).get(HEADER, "null"))
    except FileNotFoundError:
        raise BadInput(f"{path} is not there") from None
    except SafetensorError as error:
        raise BadInput(f"{path} is truncated, or no shard ({error})") from None
    except (OSError, ValueError) as error:
        raise BadInput(f"{path} cannot be read ({error})") from None
    if not isinstance(told, dict) or told.get("schema") != SCHEMA:
        raise BadInput(f"{path} is no shard of {SCHEMA}")
    try:
        return Card.read(told)
    except BadInput as error:
        raise BadInput(f"{path} has a card that says nothing ({error})") from None


def read_shard(path: Path, network: Network) -> Shard:
    """A shard; the network (float32) is the one that its card names."""
    from safetensors import SafetensorError
    from safetensors.torch import load_file

    card = read_card(path)
    try:
        arrays = load_file(path)
    except (OSError, SafetensorError) as error:
        raise BadInput(f"{path} cannot be read ({error})") from None
    wrong = _misfit(arrays, card, network)
    if wrong is not None:
        raise BadInput(f"{path} has {wrong}")
    whole = {name: array.expand(card.samples, *array.shape[1:]) for name, array in arrays.items() if name in ONCE}
    scene = Scene(**{each.name: whole.get(each.name, arrays[each.name]) for each in fields(Scene)})
    graph = Graph(network, arrays["neurons"], arrays["passing"])
    samples = Samples(graph, scene, whole["children"], **{name: arrays.get(name) for name in OPTIONAL})
    return Shard(card, Collected(samples, arrays["step"]))


def _misfit(arrays: Mapping[str, Tensor], card: Card, network: Network) -> str | None:
    """What is wrong with the arrays of a shard, if anything."""
    neurons = arrays.get("neurons")
    count, n = card.samples, 0 if neurons is None else neurons.numel()
    wide, of_inputs = (torch.float32, (count, n)), (torch.float32, (count, network.inputs))
    wanted: dict[str, tuple[torch.dtype, tuple[int, ...]]] = {
        "neurons": (torch.int64, (n,)),
        "passing": (torch.bool, (network.neurons,)),
        "step": (torch.int64, (count,)),
        "children": (torch.float32, (count, n, 2)),
        **dict.fromkeys(("lower", "upper", "zero", "above", "below", "through", "before", "after"), wide),
        **dict.fromkeys(("point", "input_lower", "input_upper"), of_inputs),
        "functional": (torch.float32, (count, network.outputs)),
        **dict.fromkeys(("bound", "depth"), (torch.float32, (count,))),
    }
    if "halves" in arrays:  # of inputs, where they were asked for
        wanted["halves"] = torch.float32, (count, network.inputs, 2)
    if "sizes" in arrays:  # of trees
        wanted |= {"sizes": wide, "allowed": (torch.float32, (count,))}
    if set(arrays) != set(wanted):
        return f"other arrays than a shard has: {', '.join(sorted(set(arrays) ^ set(wanted)))}"
    for name, (dtype, shape) in wanted.items():
        once = name in ONCE and arrays[name].shape == (1, *shape[1:])
        if arrays[name].dtype != dtype or not (once or arrays[name].shape == shape):
            return f"an array '{name}' of {arrays[name].dtype} {tuple(arrays[name].shape)}, not {dtype} {shape}"
    neurons = arrays["neurons"]
    if n and not (int(neurons[0]) >= 0 and int(neurons[-1]) < network.neurons and bool((neurons.diff() > 0).all())):
        return "ReLUs that its network does not have"
    return None


# A folder of them


def shard_path(folder: Path, name: str) -> Path:
    """Where the samples of a property are."""
    return folder / SHARDS / f"{name}.safetensors"


def network_path(folder: Path, sha256: str) -> Path:
    """Where a network is."""
    return folder / NETWORKS / f"{sha256[:16]}.onnx"


def read(folder: Path, part: Part | None = None, *, seed: int = 0, note: Note | None = None) -> Iterator[Samples]:
    """The samples of a folder, property by property, read as they are asked for; `part` is of the images, by `seed`.

    What cannot be read is named in a `note`, and skipped; the last note counts it. No sample at all is `BadInput`.
    """
    return (shard.collected.samples for shard in read_shards(folder, part, seed=seed, note=note))


def read_shards(folder: Path, part: Part | None = None, *, seed: int = 0, note: Note | None = None) -> Iterator[Shard]:
    """As `read`, with the cards."""
    note = note or (lambda _: None)
    _, entries, _ = _read_manifest(folder / MANIFEST)
    listed = {shard_path(folder, name) for name, entry in entries.items() if entry["samples"]}
    paths = sorted(listed | set((folder / SHARDS).glob("*.safetensors")))
    chosen, skipped = [], []
    for path in paths:
        try:
            card = read_card(path)
        except BadInput as error:
            skipped.append(str(error))
            continue
        if card.samples and part in (None, card.part(seed)):
            chosen.append((path, card))
    if not chosen:
        count = f"; {len(skipped)} of {len(paths)} shards cannot be read" if skipped else ""
        what = "" if part is None else f" for {part}"
        raise BadInput(f"{folder} holds no samples{what}{count}; make some by `bough label`")
    return _lazily(folder, chosen, skipped, len(paths), note)


def _lazily(
    folder: Path, chosen: list[tuple[Path, Card]], skipped: list[str], count: int, note: Note
) -> Iterator[Shard]:
    networks, lost = lru_cache(maxsize=4)(_network), len(skipped)

    def shard(path: Path, card: Card) -> Shard | None:
        try:
            return read_shard(path, networks(network_path(folder, card.sha256), card.sha256))
        except BadInput as error:
            note(f"{error}; it is skipped")
            return None

    for line in skipped:
        note(f"{line}; it is skipped")
    for path, card in chosen:
        found = shard(path, card)
        lost += found is None
        if found is not None:
            yield found
    if lost:
        note(f"{lost} of {count} shards in {folder} were skipped")
    if lost == len(skipped) + len(chosen):
        raise BadInput(f"none of the {count} shards in {folder} can be read; make them again by `bough label`")


def _network(path: Path, sha256: str) -> Network:
    data = read_bytes(path, NETWORK_LIMIT, BadInput)
    if hashlib.sha256(data).hexdigest() != sha256:
        raise BadInput(f"{path} is another network than the samples are of")
    return read_network(data).on(torch.device("cpu"), torch.float32)


# The manifest

Entry = dict[str, Any]


class Manifest:
    """What there is of a data set that is being made: one line per property, added as each ends."""

    def __init__(self, folder: Path, recipe: Mapping[str, Any], note: Note) -> None:
        self._path = folder / MANIFEST
        self._head: Entry = {"schema": SCHEMA, "recipe": json.loads(json.dumps(dict(recipe)))}
        self.entries: dict[str, Entry] = {}
        if not self._path.exists():
            self._write()
            return
        head, self.entries, half = _read_manifest(self._path)
        old, new = head["recipe"], self._head["recipe"]
        for name in {**old, **new}:
            if old.get(name) != new.get(name):
                differs = f"{name} was {old.get(name)}, and is {new.get(name)} now"
                raise BadInput(f"{self._path} is of another run: {differs}; resume by the same command")
        if half:
            self._write()
            note(f"{self._path} ended in the middle of a line, which was dropped; that property is taken again")

    def add(self, card: Card, **more: Any) -> None:
        """One property has ended."""
        entry = {**asdict(card), **more}
        self.entries[card.name] = entry
        try:
            with self._path.open("a", encoding="ascii") as file:
                file.write(_line(entry))
        except OSError as error:
            raise OutputError(f"cannot write {self._path}: {error.strerror or error}") from error

    def settle(self, order: Sequence[str]) -> None:
        """Write the lines in this order, whoever was done first; others come last."""
        place = {name: k for k, name in enumerate(order)}
        names = sorted(self.entries, key=lambda name: (place.get(name, len(place)), name))
        self.entries = {name: self.entries[name] for name in names}
        self._write()

    def _write(self) -> None:
        write_whole(self._path, "".join(map(_line, (self._head, *self.entries.values()))).encode())


def _line(entry: Entry) -> str:
    return json.dumps(entry, allow_nan=False) + "\n"


def _read_manifest(path: Path) -> tuple[Entry, dict[str, Entry], bool]:
    """The first line, the others by the property's name, and whether half a line was left at the end."""
    try:
        *lines, half = read_bytes(path, LINES_LIMIT, BadInput).split(b"\n")
    except BadInput as error:
        raise BadInput(f"{error}; give a folder that bough label wrote") from None
    head, entries = _parsed(lines[0] if lines else half, f"{path}, line 1"), {}
    if head.get("schema") != SCHEMA or not isinstance(head.get("recipe"), dict):
        raise BadInput(f"{path}, line 1: no manifest of {SCHEMA}; give a folder that bough label wrote")
    for k, line in enumerate(lines[1:], 2):
        entry = _parsed(line, f"{path}, line {k}")
        try:
            entries[Card.read(entry).name] = entry
        except BadInput as error:
            raise BadInput(f"{path}, line {k}: not the card of a property ({error}); remove the line") from None
    return head, entries, bool(half)


def _parsed(line: bytes, where: str) -> Entry:
    try:
        entry = parsed_json(line)
    except ValueError:
        entry = None
    if not isinstance(entry, dict):
        raise BadInput(f"{where}: not a line of ours; give a folder that bough label wrote")
    return entry


def write_whole(path: Path, data: bytes) -> None:
    """Write a file whole or not at all, with the folder around it."""
    part = path.with_name(f".{path.name[:64]}-{os.getpid()}.part")
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        part.write_bytes(data)
        part.replace(path)
    except OSError as error:
        with suppress(OSError):
            part.unlink()
        raise OutputError(f"cannot write {path}: {error.strerror or error}") from error
