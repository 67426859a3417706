"""Shards come back as they went in; what is truncated, foreign or half written is named, skipped and counted."""

import hashlib
import json
from dataclasses import asdict, replace
from functools import lru_cache
from pathlib import Path
from typing import Any

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from safetensors.torch import load_file, save
from tests.support import generator, normal, sequential

from bough.errors import BadInput, OutputError
from bough.files.writing import write_bytes
from bough.learning import dataset
from bough.learning.dataset import (
    Manifest,
    Part,
    SampleCard,
    encode,
    read,
    read_card,
    read_shard,
    read_shards,
    split_of,
)
from bough.learning.samples import Samples
from bough.learning.scene import Graph, Scene
from bough.network.graph import Network
from bough.problem.onnx import read_network
from bough.problem.onnx_writer import write_network

WIDE = ("lower", "upper", "zero", "above", "below", "through", "before", "after")
CARD = SampleCard(
    name="tiny-dots-train0",
    network="tiny",
    sha256="",
    dataset="dots",
    split="train",
    image=0,
    label=1,
    target=2,
    eps=0.1,
    normalised=False,
    clip=True,
    seed=0,
    bounder="dual",
    rule="fsb",
    mode="steps",
    samples=3,
    revision=None,
)


@lru_cache
def network() -> Network:
    g = generator(1)
    return sequential((normal(g, 5, 4), normal(g, 5)), (normal(g, 6, 5), normal(g, 6)), (normal(g, 3, 6), [0, 0, 0]))


def collected(count: int = 3, seed: int = 0) -> Samples:
    """Random numbers of the right shapes, with a few that are hard to keep."""
    g, neurons = generator(seed), torch.tensor([0, 2, 3, 7, 10])
    arrays = {name: torch.randn(count, 5, generator=g) for name in WIDE}
    arrays["zero"][0, 0], arrays["above"][0, 0] = 1e-42, -0.0
    arrays |= {name: torch.randn(count, 4, generator=g) for name in ("point",)}
    arrays |= {name: torch.randn(1, 4, generator=g).expand(count, 4) for name in ("input_lower", "input_upper")}
    arrays |= {"functional": torch.randn(count, 3, generator=g), "bound": torch.randn(count, generator=g)}
    arrays["depth"] = torch.arange(count).float()
    children = torch.randn(count, 5, 2, generator=g)
    children[0, 1], children[0, 2, 0] = -torch.inf, torch.inf
    graph = Graph(network().on(torch.device("cpu"), torch.float32), neurons, torch.rand(11, generator=g) > 0.5)
    return Samples(graph, Scene(**arrays), children, torch.arange(count) * 3)


def arrays_of(samples: Samples) -> dict[str, torch.Tensor]:
    shared = {"neurons": samples.graph.neurons, "passing": samples.graph.passing, "step": samples.step}
    return {**shared, **samples.optional(), "children": samples.children, **samples.scene.named()}


def assert_same(a: Samples, b: Samples) -> None:
    """To the last bit."""
    expected = arrays_of(b)
    for name, array in arrays_of(a).items():
        assert array.dtype == expected[name].dtype, name
        assert array.contiguous().numpy().tobytes() == expected[name].contiguous().numpy().tobytes(), name


class Folder:
    """A data set with a shard for each of a few images."""

    def __init__(self, path: Path, images: int = 12) -> None:
        self.path, self.notes = path, list[str]()
        write_network(network(), path / "net.onnx")
        data = (path / "net.onnx").read_bytes()
        self.sha256 = hashlib.sha256(data).hexdigest()
        write_bytes(dataset.network_path(path, self.sha256), data, parents=True)
        self.cards = [
            replace(CARD, name=f"tiny-dots-train{k:02}", image=k, sha256=self.sha256, samples=k % 3 + 1)
            for k in range(images)
        ]
        with self.manifest() as manifest:
            for card in self.cards:
                self.write(card, encode(card, collected(card.samples, card.image)))
                manifest.add(card, seconds=1.0)

    def manifest(self) -> Manifest:
        return Manifest(self.path, {"samples": 20}, self.notes.append)

    def write(self, card: SampleCard, data: bytes) -> Path:
        path = dataset.shard_path(self.path, card.name)
        write_bytes(path, data, parents=True)
        return path

    def shard(self, k: int) -> Path:
        return dataset.shard_path(self.path, self.cards[k].name)

    def read(self, part: Part | None = None) -> list[int]:
        """The images read."""
        return [shard.card.image for shard in read_shards(self.path, part, note=self.notes.append)]


@pytest.fixture
def folder(tmp_path: Path) -> Folder:
    return Folder(tmp_path)


# Shards


@pytest.mark.parametrize("more", [(), ("halves",), ("sizes", "allowed")], ids=["relus", "inputs", "trees"])
@pytest.mark.parametrize("count", [1, 2, 7])
def test_a_shard_comes_back_as_it_went_in(tmp_path, count, more):
    card, original, path = replace(CARD, samples=count, sha256="ab"), collected(count), tmp_path / "one.safetensors"
    shapes = {"halves": (count, 4, 2), "sizes": (count, 5), "allowed": (count,)}
    arrays: dict[str, Any] = {name: torch.randn(shapes[name], generator=generator(9)) for name in more}
    if "sizes" in more:  # strong branching tried nothing then
        arrays["children"] = torch.full_like(original.children, -torch.inf)
    original = replace(original, **arrays)
    path.write_bytes(encode(card, original))
    assert read_card(path) == card
    shard = read_shard(path, network().on(torch.device("cpu"), torch.float32))
    assert shard.card == card
    assert_same(shard.samples, original)
    assert set(shard.samples.optional()) == set(more)
    assert encode(card, original) == encode(card, shard.samples)  # and gives the same file again


def test_what_all_samples_share_is_stored_once(tmp_path):
    path, original = tmp_path / "one.safetensors", collected(3)
    path.write_bytes(encode(CARD, original))
    stored = load_file(path)
    assert {name for name, array in stored.items() if array.shape[0] == 1} == {"input_lower", "input_upper"}
    scene = replace(original.scene, input_lower=torch.randn(3, 4, generator=generator(9)))
    other = replace(original, scene=scene)
    path.write_bytes(encode(CARD, other))
    assert_same(read_shard(path, network()).samples, other)


def test_a_card_that_lies_about_its_samples_is_a_defect():
    with pytest.raises(ValueError, match="4 samples, there are 3"):
        encode(replace(CARD, samples=4), collected(3))


@pytest.mark.parametrize("wrong", [{"mode": "deepest"}, {"image": "1"}, {"image": True}, {"clip": 1}, {"eps": "0.1"}])
def test_a_card_holds_what_it_should(wrong):
    with pytest.raises(BadInput):
        SampleCard.read({**asdict(CARD), **wrong})
    assert SampleCard.read({**asdict(CARD), "else": 1}) == CARD


# Folders


def test_all_shards_are_read_in_order_and_the_network_once(folder, monkeypatch):
    reads: list[bytes] = []

    def counted(data: bytes) -> Network:
        reads.append(data)
        return read_network(data)

    monkeypatch.setattr(dataset, "read_network", counted)
    shards = list(read_shards(folder.path))
    assert [shard.card for shard in shards] == folder.cards
    assert len(reads) == 1
    for shard in shards:
        assert_same(shard.samples, collected(shard.card.samples, shard.card.image))
        assert shard.samples.graph.network is shards[0].samples.graph.network
    assert [len(samples) for samples in read(folder.path)] == [card.samples for card in folder.cards]


def test_shards_are_read_when_they_are_asked_for(folder, monkeypatch):
    opened: list[Path] = []

    def counted(path: Path, net: Network) -> dataset.Shard:
        opened.append(path)
        return read_shard(path, net)

    monkeypatch.setattr(dataset, "read_shard", counted)
    samples = read(folder.path)
    assert opened == []
    next(samples)
    assert opened == [folder.shard(0)]


def test_training_and_validation_share_no_image_and_leave_none_out(folder):
    training, validation = folder.read("training"), folder.read("validation")
    assert sorted(training + validation) == [card.image for card in folder.cards]
    assert training
    assert validation
    assert all(split_of("dots", "train", image) == "training" for image in training)


@given(st.integers(0, 10**6), st.integers(0, 100))
def test_an_image_is_in_one_part_for_ever(image, seed):
    assert split_of("mnist", "train", image, seed) in ("training", "validation")
    assert split_of("mnist", "train", image, seed) == split_of("mnist", "train", image, seed)
    card = replace(CARD, dataset="mnist", image=image)
    parts = {replace(card, name=f"other {k}", target=k, eps=0.1 * k + 0.1, seed=k).part(seed) for k in range(3, 6)}
    assert parts == {split_of("mnist", "train", image, seed)}  # whatever else is asked about it


def test_three_quarters_are_for_training():
    for seed in (0, 1):
        parts = [split_of("mnist", "train", image, seed) for image in range(8000)]
        assert abs(parts.count("training") / 8000 - 0.75) < 0.02
    assert parts != [split_of("mnist", "train", image, 0) for image in range(8000)]
    assert parts != [split_of("mnist", "test", image, 1) for image in range(8000)]
    # Another answer would move images between sets that were published.
    assert "".join(split_of("mnist", "train", image)[0] for image in range(16)) == "tttttttvtttvtttt"


# What is not as it should be


@pytest.mark.parametrize(
    ("spoil", "says"),
    [
        (lambda data: data[:-1], "truncated"),
        (lambda data: data[: len(data) // 2], "truncated"),
        (lambda data: data[:9], "truncated"),
        (lambda data: b"", "truncated"),
        (lambda data: b"\x89PNG\r\n" + bytes(100), "no shard"),
        (lambda data: data.replace(b"bough.samples/1", b"bough.samples/2"), "no shard of bough.samples/1"),
        (lambda data: save({"a": torch.zeros(1)}), "no shard of bough.samples/1"),
        (lambda data: save({"a": torch.zeros(1)}, metadata={"bough": "[1]"}), "no shard of bough.samples/1"),
        (lambda data: save({"a": torch.zeros(1)}, metadata={"bough": "{"}), "cannot be read"),
        (lambda data: data.replace(b'\\"image\\": 1', b'\\"image\\": x'), "cannot be read"),
        (lambda data: data.replace(b'\\"image\\"', b'\\"umage\\"'), "image is 'None'"),
    ],
)
def test_a_shard_that_cannot_be_read_is_named_skipped_and_counted(folder, spoil, says):
    path = folder.shard(1)
    data = path.read_bytes()
    path.write_bytes(spoil(data))
    assert path.read_bytes() != data
    assert folder.read() == [k for k in range(12) if k != 1]
    assert len(folder.notes) == 2
    assert path.name in folder.notes[0]
    assert says in folder.notes[0]
    assert "1 of 12 shards" in folder.notes[1]
    assert "were skipped" in folder.notes[1]


@pytest.mark.parametrize(
    ("change", "says"),
    [
        (lambda a: a.pop("zero"), "zero"),
        (lambda a: a.update(more=torch.zeros(2)), "more"),
        (lambda a: a.update(halves=torch.zeros(2, 5, 2)), "'halves'"),
        (lambda a: a.update(sizes=torch.zeros(2, 5)), "allowed"),
        (lambda a: a.update(allowed=torch.zeros(2)), "allowed"),
        (lambda a: a.update(sizes=torch.zeros(2, 4), allowed=torch.zeros(2)), "'sizes'"),
        (lambda a: a.update(bound=a["bound"].double()), "'bound' of torch.float64"),
        (lambda a: a.update(children=a["children"][:, :4].contiguous()), "'children'"),
        (lambda a: a.update(passing=torch.ones(12, dtype=torch.bool)), "'passing'"),
        (lambda a: a.update(neurons=torch.tensor([0, 2, 3, 7, 11])), "ReLUs that its network does not have"),
        (lambda a: a.update(neurons=torch.tensor([0, 3, 2, 7, 10])), "ReLUs that its network does not have"),
        (lambda a: a.update(neurons=torch.tensor([-1, 3, 4, 7, 10])), "ReLUs that its network does not have"),
    ],
)
def test_arrays_that_do_not_fit_their_network_are_skipped(folder, change, says):
    card = replace(folder.cards[1], samples=2)
    arrays = {name: array.contiguous() for name, array in arrays_of(collected(2, 1)).items()}
    change(arrays)
    folder.write(card, save(arrays, metadata={"bough": json.dumps({"schema": dataset.SCHEMA, **asdict(card)})}))
    assert folder.read() == [k for k in range(12) if k != 1]
    assert says in folder.notes[0]
    assert "1 of 12" in folder.notes[-1]


def test_a_shard_that_is_gone_is_missed(folder):
    folder.shard(5).unlink()
    assert 5 not in folder.read()
    assert "is not there" in folder.notes[0]


def test_what_a_killed_process_left_is_no_shard(folder):
    (folder.path / dataset.SHARDS / ".tiny.safetensors-17.part").write_bytes(b"half")
    assert folder.read() == list(range(12))
    assert folder.notes == []


def test_a_network_that_is_gone_or_another_one_leaves_nothing(folder):
    path = dataset.network_path(folder.path, folder.sha256)
    path.write_bytes(path.read_bytes() + b"\0")
    with pytest.raises(BadInput, match="none of the 12 shards"):
        folder.read()
    assert "another network" in folder.notes[0]
    path.unlink()
    with pytest.raises(BadInput, match="none of the 12 shards"):
        folder.read()


def test_a_folder_without_samples_is_bad_input(tmp_path):
    with pytest.raises(BadInput, match="give a folder that bough label wrote"):
        read(tmp_path)
    Manifest(tmp_path, {}, print).close()
    with pytest.raises(BadInput, match="holds no samples; make some"):
        read(tmp_path)
    with pytest.raises(BadInput, match="holds no samples for validation"):
        read(tmp_path, "validation")


# The manifest


def test_a_manifest_goes_on_where_it_was(folder):
    with folder.manifest() as again:
        assert [SampleCard.read(entry) for entry in again.by_name.values()] == folder.cards
        again.settle([card.name for card in reversed(folder.cards)])
    with folder.manifest() as once_more:
        assert list(once_more.by_name) == [card.name for card in reversed(folder.cards)]
    assert folder.notes == []


def test_two_runs_on_one_manifest(folder):
    with folder.manifest() as first:
        for _ in range(2):
            with pytest.raises(OutputError, match=r"another run is at work on .*samples\.jsonl; wait for its end"):
                folder.manifest()
            first.settle([card.name for card in reversed(folder.cards)])  # which puts another file in its place


def test_the_manifest_of_another_run_is_refused(folder):
    with pytest.raises(BadInput, match="samples was 20, and is 5 now"):
        Manifest(folder.path, {"samples": 5}, print)


def test_half_a_line_is_dropped_with_a_note(folder):
    path = folder.path / dataset.MANIFEST
    whole = path.read_bytes()
    path.write_bytes(whole[:-20])
    assert len(list(read(folder.path))) == 12  # the shard is there and tells all
    with folder.manifest() as again:
        assert len(again.entries) == 11
        assert "middle of a line" in folder.notes[0]
        again.add(folder.cards[-1], seconds=1.0)
    assert path.read_bytes() == whole


@pytest.mark.parametrize(
    ("line", "place"), [(b"nonsense\n", 2), (b"[]\n", 2), (b"{}\n", 2), (b'{"schema": "bough.record/1"}\n', 1)]
)
def test_a_manifest_of_something_else_is_bad_input(folder, line, place):
    path = folder.path / dataset.MANIFEST
    lines = path.read_bytes().splitlines(keepends=True)
    path.write_bytes(b"".join([*lines[: place - 1], line, *lines[place:]]))
    with pytest.raises(BadInput, match=f"line {place}"):
        read(folder.path)
