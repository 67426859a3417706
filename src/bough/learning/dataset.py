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
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, fields
from functools import lru_cache
from pathlib import Path
from typing import Literal, final

import torch
from torch import Tensor

from bough.errors import BadInput
from bough.files.log import AbstractLog, LogEntry
from bough.files.reading import NETWORK_LIMIT, JsonObject, parsed_json, read_bytes
from bough.learning.labels import MODES, Mode
from bough.learning.samples import OPTIONAL, Samples
from bough.learning.scene import Graph, Scene
from bough.network.graph import Network
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
class SampleCard:
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
    def read(entry: JsonObject) -> "SampleCard":
        """From what JSON makes of one, and whatever else is there."""
        return SampleCard(**{name: entry.get(name) for name in KINDS})  # type: ignore[arg-type] # checked there


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

    card: SampleCard
    samples: Samples


# One shard


def encode(card: SampleCard, samples: Samples) -> bytes:
    """The file of a shard."""
    from safetensors.torch import save

    if card.samples != len(samples):
        raise ValueError(f"the card says {card.samples} samples, there are {len(samples)}")
    arrays = {"step": samples.step, "children": samples.children, **samples.scene.named(), **samples.optional()}
    arrays |= {"neurons": samples.graph.neurons, "passing": samples.graph.passing}
    for name in ONCE:
        if torch.equal(arrays[name], arrays[name][:1].expand_as(arrays[name])):
            arrays[name] = arrays[name][:1]
    head = {HEADER: json.dumps({"schema": SCHEMA, **asdict(card)}, sort_keys=True, allow_nan=False)}
    return save({name: array.contiguous() for name, array in arrays.items()}, metadata=head)


def read_card(path: Path) -> SampleCard:
    """The card of a shard; `BadInput` says what is wrong with one that is truncated, or is none of ours."""
    from safetensors import SafetensorError, safe_open

    try:
        with safe_open(path, framework="pt") as file:
            header = parsed_json((file.metadata() or {}).get(HEADER, "null"))
    except FileNotFoundError:
        raise BadInput(f"{path} is not there") from None
    except SafetensorError as error:
        raise BadInput(f"{path} is truncated, or no shard ({error})") from None
    except (OSError, ValueError) as error:
        raise BadInput(f"{path} cannot be read ({error})") from None
    if not isinstance(header, dict) or header.get("schema") != SCHEMA:
        raise BadInput(f"{path} is no shard of {SCHEMA}")
    try:
        return SampleCard.read(header)
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
    _check_arrays(path, arrays, card, network)
    whole = {name: array.expand(card.samples, *array.shape[1:]) for name, array in arrays.items() if name in ONCE}
    scene = Scene(**{each.name: whole.get(each.name, arrays[each.name]) for each in fields(Scene)})
    graph = Graph(network, arrays["neurons"], arrays["passing"])
    more = {name: arrays.get(name) for name in OPTIONAL}
    return Shard(card, Samples(graph, scene, whole["children"], arrays["step"], **more))


def _check_arrays(path: Path, arrays: Mapping[str, Tensor], card: SampleCard, network: Network) -> None:
    """Raise unless a shard has the arrays that its card and the network ask for."""
    count = card.samples
    n = arrays["neurons"].numel() if "neurons" in arrays else 0
    wide = (torch.float32, (count, n))
    of_inputs = (torch.float32, (count, network.inputs))
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
        raise BadInput(f"{path} has other arrays than a shard has: {', '.join(sorted(set(arrays) ^ set(wanted)))}")
    for name, (dtype, shape) in wanted.items():
        once = name in ONCE and arrays[name].shape == (1, *shape[1:])
        if arrays[name].dtype != dtype or not (once or arrays[name].shape == shape):
            layout = f"{arrays[name].dtype} {tuple(arrays[name].shape)}"
            raise BadInput(f"{path} has an array '{name}' of {layout}, not {dtype} {shape}")
    neurons = arrays["neurons"]
    if n and not (int(neurons[0]) >= 0 and int(neurons[-1]) < network.neurons and bool((neurons.diff() > 0).all())):
        raise BadInput(f"{path} has ReLUs that its network does not have")


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
    return (shard.samples for shard in read_shards(folder, part, seed=seed, note=note))


def read_shards(folder: Path, part: Part | None = None, *, seed: int = 0, note: Note | None = None) -> Iterator[Shard]:
    """The shards of a folder, with their cards, chosen and read as `read` does."""
    note = note or (lambda _: None)
    entries = Manifest.read(folder / MANIFEST).entries
    samples = {entry["name"]: entry["samples"] for entry in entries}  # a property may have been taken twice
    listed = {shard_path(folder, name) for name, count in samples.items() if count}
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
    folder: Path, chosen: list[tuple[Path, SampleCard]], skipped: list[str], count: int, note: Note
) -> Iterator[Shard]:
    networks = lru_cache(maxsize=4)(_network)
    lost = len(skipped)
    for line in skipped:
        note(f"{line}; it is skipped")
    for path, card in chosen:
        try:
            shard = read_shard(path, networks(network_path(folder, card.sha256), card.sha256))
        except BadInput as error:
            note(f"{error}; it is skipped")
            lost += 1
            continue
        yield shard
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


@final
class Manifest(AbstractLog):
    """What there is of a data set that is being made: one line per property, added as each ends."""

    schema = SCHEMA
    headed = True
    run = "run"
    line = "line of ours"
    again, advice = "that property is taken again", "give a folder that bough label wrote"

    def __init__(self, folder: Path, recipe: JsonObject, note: Note) -> None:
        super().__init__(folder / MANIFEST, note, recipe=recipe)
        self.by_name: dict[str, LogEntry] = {entry["name"]: entry for entry in self.entries}

    @staticmethod
    def check(entry: LogEntry) -> None:
        """Raise unless an entry is the card of a property."""
        try:
            SampleCard.read(entry)
        except BadInput as error:
            raise BadInput(f"not the card of a property ({error}); remove the line") from None

    def add(self, card: SampleCard, **more: object) -> None:
        """One property has ended."""
        self.by_name[card.name] = {**asdict(card), **more}
        self.append(self.by_name[card.name])

    def settle(self, order: Sequence[str]) -> None:
        """Write the lines in this order, whoever was done first; others come last."""
        ordered = {name: self.by_name[name] for name in order if name in self.by_name}
        self.by_name = ordered | dict(sorted(self.by_name.items()))
        self.rewrite(self.by_name.values())
