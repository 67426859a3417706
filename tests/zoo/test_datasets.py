"""MNIST and CIFAR-10: every form they come in gives the same images, and a broken file a sentence that names it."""

import gzip
import hashlib
import io
import struct
import tarfile
import zipfile
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from numpy.typing import NDArray
from tests.zoo.mirror import Mirror, serving

from bough.errors import BadInput
from bough.zoo import datasets
from bough.zoo.datasets import DATASETS, Dataset, Images, known, load
from bough.zoo.download import RemoteFile

Arrays = dict[str, Any]  # NumPy arrays
Make = Callable[..., Dataset]

TRAIN, TEST = 10, 4


def arrays(dataset: Dataset) -> Arrays:
    """Images and labels of a tiny data set, in the layout of the `.npz` files."""
    rng = np.random.default_rng(0)
    data: Arrays = {}
    for split, count in (("train", TRAIN), ("test", TEST)):
        data[f"{split}_images"] = rng.integers(0, 256, (count, *dataset.shape), dtype=np.uint8)
        data[f"{split}_labels"] = rng.integers(0, 10, count, dtype=np.uint8)
    return data


def idx(values: NDArray[Any]) -> bytes:
    header = struct.pack(f">HBB{values.ndim}I", 0, 8, values.ndim, *values.shape)
    return gzip.compress(header + values.astype(np.uint8).tobytes(), mtime=0)


def mnist_files(data: Arrays) -> dict[str, bytes]:
    return {
        f"{prefix}-{what}": idx(data[f"{split}_{kind}"].squeeze(1) if kind == "images" else data[f"{split}_{kind}"])
        for split, prefix in (("train", "train"), ("test", "t10k"))
        for kind, what in (("images", "images-idx3-ubyte.gz"), ("labels", "labels-idx1-ubyte.gz"))
    }


def archive(members: dict[str, bytes]) -> bytes:
    contents = io.BytesIO()
    with tarfile.open(fileobj=contents, mode="w") as tar:
        for name, body in members.items():
            entry = tarfile.TarInfo(f"cifar-10-batches-bin/{name}")
            entry.size = len(body)
            tar.addfile(entry, io.BytesIO(body))
    return gzip.compress(contents.getvalue(), mtime=0)  # the same whenever it is made


def cifar_members(data: Arrays) -> dict[str, bytes]:
    def records(split: str) -> NDArray[np.uint8]:
        images, labels = data[f"{split}_images"], data[f"{split}_labels"]
        return np.concatenate([labels[:, None], images.reshape(len(images), -1)], axis=1)

    batches = np.split(records("train"), 5)
    # As in the real one: something else first, and the batches out of order.
    members = {"batches.meta.txt": b"airplane\n", "data_batch_5.bin": batches[4].tobytes()}
    members |= {f"data_batch_{number}.bin": batches[number - 1].tobytes() for number in (1, 2, 3, 4)}
    return {**members, "test_batch.bin": records("test").tobytes()}


@pytest.fixture(autouse=True)
def alone(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """No data folder, no cache but an empty one, no proxy."""
    monkeypatch.delenv("BOUGH_DATA", raising=False)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.setenv("no_proxy", "*")


@pytest.fixture(params=["mnist", "cifar10"])
def tiny(request: pytest.FixtureRequest) -> Dataset:
    """A data set with tiny images and few of them, not yet published."""
    shape = {"mnist": (1, 3, 2), "cifar10": (3, 2, 2)}[request.param]
    return replace(
        DATASETS[request.param], shape=shape, counts={"train": TRAIN, "test": TEST}, mirrors=("http://127.0.0.1:9/",)
    )


@pytest.fixture
def publish(monkeypatch: pytest.MonkeyPatch, tiny: Dataset) -> Make:
    """Make the tiny data set known, with these files as the published ones."""

    def make(contents: dict[str, bytes], mirror: str = tiny.mirrors[0]) -> Dataset:
        splits = {file.name: file.splits for file in DATASETS[tiny.name].files}
        files = [RemoteFile(n, len(c), hashlib.sha256(c).hexdigest(), splits[n]) for n, c in contents.items()]
        dataset = replace(tiny, files=tuple(files), mirrors=(mirror,))
        monkeypatch.setattr(datasets, "DATASETS", {tiny.name: dataset})
        return dataset

    return make


def published(tiny: Dataset) -> dict[str, bytes]:
    data = arrays(tiny)
    return mnist_files(data) if tiny.name == "mnist" else {"cifar-10-binary.tar.gz": archive(cifar_members(data))}


def write(folder: Path, files: dict[str, bytes]) -> Path:
    folder.mkdir(parents=True, exist_ok=True)
    for name, contents in files.items():
        (folder / name).write_bytes(contents)
    return folder


def check_same(images: Images, data: Arrays, split: str) -> None:
    np.testing.assert_array_equal(images.pixels, data[f"{split}_images"])
    np.testing.assert_array_equal(images.labels, data[f"{split}_labels"])
    assert images.split == split
    assert images.index.tolist() == list(range(len(images)))
    assert [values.dtype.name for values in (images.pixels, images.labels, images.index)] == ["uint8", "int64", "int64"]
    assert images.pixels.flags.writeable
    assert images.pixels.flags.c_contiguous


@pytest.mark.parametrize("split", ["train", "test"])
@pytest.mark.parametrize("place", ["", "images", "data/images"])
def test_published_files_in_a_folder(tmp_path: Path, tiny: Dataset, publish: Make, place: str, split: str) -> None:
    publish(published(tiny))
    write(tmp_path / "here" / place, published(tiny))
    check_same(load(tiny.name, split, tmp_path / "here", download=False), arrays(tiny), split)


@pytest.mark.parametrize("split", ["train", "test"])
def test_whole_npz(tmp_path: Path, tiny: Dataset, publish: Make, split: str) -> None:
    publish(published(tiny))
    np.savez_compressed(tmp_path / f"{tiny.name}.npz", **arrays(tiny))
    check_same(load(tiny.name, split, tmp_path), arrays(tiny), split)


def test_grey_images_without_a_channel(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    dataset = replace(DATASETS["mnist"], shape=(1, 3, 2), counts={"train": TRAIN, "test": TEST})
    monkeypatch.setattr(datasets, "DATASETS", {"mnist": dataset})
    data = arrays(dataset)
    np.savez(tmp_path / "mnist.npz", **{**data, "test_images": data["test_images"][:, 0]})
    check_same(load("mnist", "test", tmp_path), data, "test")


def test_part_by_number(tmp_path: Path, tiny: Dataset, publish: Make) -> None:
    publish(published(tiny))
    whole = arrays(tiny)
    chosen = [3, 0]
    part = {f"test_{what}": whole[f"test_{what}"][chosen] for what in ("images", "labels")}
    np.savez(tmp_path / f"{tiny.name}_part.npz", **part, test_index=np.array(chosen, np.int32))
    images = load(tiny.name, "test", tmp_path)
    assert len(images) == 2
    assert images.index.tolist() == chosen
    pixels, label = images.at(3)
    np.testing.assert_array_equal(pixels, whole["test_images"][3])
    assert label == whole["test_labels"][3]
    with pytest.raises(BadInput, match=r"test image 1 of \w+ is not among the 2 of 4 images in the local part; put "):
        images.at(1)
    for number in (-1, TEST):
        with pytest.raises(BadInput, match=rf"has no test image {number}; its 4 are numbered 0 to 3"):
            images.at(number)
    # The whole beside it is preferred.
    write(tmp_path, published(tiny))
    assert len(load(tiny.name, "test", tmp_path)) == TEST


def test_the_folder_comes_before_the_variable(
    tmp_path: Path, tiny: Dataset, publish: Make, monkeypatch: pytest.MonkeyPatch
) -> None:
    publish(published(tiny))
    whole = arrays(tiny)
    for name, first in (("mine", 1), ("common", 2)):
        (tmp_path / name).mkdir()
        changed = {**whole, "test_labels": np.full(TEST, first)}
        np.savez(tmp_path / name / f"{tiny.name}.npz", **changed)
    monkeypatch.setenv("BOUGH_DATA", str(tmp_path / "common"))
    assert load(tiny.name, "test").labels[0] == 2
    assert load(tiny.name, "test", tmp_path / "mine").labels[0] == 1
    (tmp_path / "mine" / f"{tiny.name}.npz").unlink()
    with pytest.raises(BadInput, match=f"{tiny.name} is not in .*mine.*or name no folder"):  # never others unasked
        load(tiny.name, "test", tmp_path / "mine")


@pytest.mark.parametrize("variable", [True, False])
def test_download_into_the_cache(
    tmp_path: Path, tiny: Dataset, publish: Make, monkeypatch: pytest.MonkeyPatch, variable: bool
) -> None:
    cache = tmp_path / "data" if variable else tmp_path / "cache" / "bough"
    if variable:
        monkeypatch.setenv("BOUGH_DATA", str(cache))
    reports: list[tuple[str, int, int]] = []
    with serving(Mirror(published(tiny))) as mirror:
        dataset = publish(published(tiny), mirror.url)
        check_same(load(tiny.name, "test", progress=lambda *news: reports.append(news)), arrays(tiny), "test")
        count = len(mirror.requests)
        check_same(load(tiny.name, "test", download=False), arrays(tiny), "test")
        assert len(mirror.requests) == count
    names = sorted(file.name for file in dataset.published("test"))
    assert sorted(path.name for path in cache.iterdir()) == names
    assert sorted(name for name, done, total in reports if done == total) == names


def test_no_connection(tmp_path: Path, tiny: Dataset, publish: Make) -> None:
    dataset = publish(published(tiny))
    cache = tmp_path / "cache" / "bough"
    first = dataset.published("test")[0].name
    with pytest.raises(BadInput, match=rf"cannot download .*{first} \(Connection refused\).* put {first} into {cache}"):
        load(tiny.name, "test")
    with pytest.raises(BadInput, match=rf"{tiny.name} is not in {cache}; put {tiny.name}\.npz or .*{first}"):
        load(tiny.name, "test", download=False)


def test_no_home(monkeypatch: pytest.MonkeyPatch) -> None:
    def nobody() -> Path:
        raise RuntimeError("Could not determine home directory.")

    monkeypatch.setattr(Path, "home", nobody)
    monkeypatch.setenv("XDG_CACHE_HOME", "relative")
    with pytest.raises(BadInput, match="no home folder"):
        load("mnist", "test")


def test_names_splits_and_folders_that_are_none(tmp_path: Path) -> None:
    with pytest.raises(BadInput, match=r"no data set 'imagenet'; give one of cifar10, mnist"):
        known("imagenet")
    with pytest.raises(BadInput, match=r"no split 'valid' of mnist; give one of train, test"):
        load("mnist", "valid")
    for folder in (tmp_path / "absent", tmp_path / ("a" * 5000)):
        with pytest.raises(BadInput, match="is no folder"):
            load("mnist", "test", folder)


def test_published_files_are_checked(tmp_path: Path, tiny: Dataset, publish: Make) -> None:
    dataset = publish(published(tiny))
    write(tmp_path, published(tiny))
    path = tmp_path / dataset.published("test")[-1].name
    path.write_bytes(path.read_bytes()[:-1])
    with pytest.raises(BadInput, match=rf"{path} is not the published file"):
        load(tiny.name, "test", tmp_path)
    path.unlink()
    path.mkdir()
    with pytest.raises(BadInput, match=rf"{path} cannot be read: .*Is a directory"):
        load(tiny.name, "test", tmp_path)


def broken_mnist(how: str) -> dict[str, bytes]:
    data = arrays(replace(DATASETS["mnist"], shape=(1, 3, 2)))
    files = mnist_files(data)
    images, labels = "t10k-images-idx3-ubyte.gz", "t10k-labels-idx1-ubyte.gz"
    raw = gzip.decompress(files[images])
    return (
        files
        | {
            "cut": {images: files[images][:-5]},
            "short": {images: gzip.compress(raw[:-1])},
            "long": {images: gzip.compress(raw + b"x")},
            "empty": {images: b""},
            "fewer labels": {labels: idx(np.zeros(TEST - 1))},
            "labels": {labels: idx(np.array([0, 9, 10, 0]))},
        }[how]
    )


@pytest.mark.parametrize("tiny", ["mnist"], indirect=True)
@pytest.mark.parametrize(
    ("how", "words"),
    [
        ("cut", "ends in the middle of its gzip data"),
        ("short", "cannot be read: cannot reshape"),
        ("long", "holds more than 40 bytes"),
        ("empty", "cannot be read: "),
        ("fewer labels", "labels-idx1-ubyte.gz cannot be read: cannot reshape"),
        ("labels", "test_labels from 0 to 10; give 0 to 9"),
    ],
)
def test_broken_idx(tmp_path: Path, tiny: Dataset, publish: Make, how: str, words: str) -> None:
    publish(broken_mnist(how))
    with pytest.raises(BadInput, match=words) as caught:
        load("mnist", "test", write(tmp_path, broken_mnist(how)))
    assert str(tmp_path) in str(caught.value)


def broken_cifar(how: str) -> bytes:
    members = cifar_members(arrays(replace(DATASETS["cifar10"], shape=(3, 2, 2))))
    test = members["test_batch.bin"]
    if how == "cut":
        noise = np.random.default_rng(0).bytes(100_000)  # in front, and larger than what gzip reads ahead
        return archive({"noise": noise, **members})[:60_000]
    return {
        "short": lambda: archive({**members, "test_batch.bin": test[:-1]}),
        "absent": lambda: archive({name: body for name, body in members.items() if name != "test_batch.bin"}),
        "labels": lambda: archive({**members, "test_batch.bin": b"\xff" + test[1:]}),
        "no archive": lambda: b"no archive at all",
        "no tar": lambda: gzip.compress(b"x" * 2000),
    }[how]()


@pytest.mark.parametrize("tiny", ["cifar10"], indirect=True)
@pytest.mark.parametrize(
    ("how", "words"),
    [
        ("cut", "cannot be read"),
        ("short", "cannot be read: cannot reshape"),
        ("absent", "cannot be read: .*cifar-10-batches-bin/test_batch.bin"),
        ("labels", "test_labels from [0-9] to 255; give 0 to 9"),
        ("no archive", "cannot be read"),
        ("no tar", "cannot be read"),
    ],
)
def test_broken_archive(tmp_path: Path, tiny: Dataset, publish: Make, how: str, words: str) -> None:
    files = {"cifar-10-binary.tar.gz": broken_cifar(how)}
    publish(files)
    with pytest.raises(BadInput, match=words) as caught:
        load("cifar10", "test", write(tmp_path, files))
    assert str(tmp_path / "cifar-10-binary.tar.gz") in str(caught.value)


def change(data: Arrays, how: str) -> Arrays:
    images, labels = data["test_images"], data["test_labels"].astype(np.int64)
    return (
        data
        | {
            "float images": {"test_images": images.astype(np.float32)},
            "other images": {"test_images": images[..., :1]},
            "no images": {"test_images": images[:0], "test_labels": labels[:0], "test_index": labels[:0]},
            "a number": {"test_images": np.array(3)},
            "fewer": {"test_images": images[:2], "test_labels": labels[:2]},
            "fewer labels": {"test_labels": labels[:2]},
            "float labels": {"test_labels": labels.astype(np.float32)},
            "label 10": {"test_labels": np.array([0, 1, 10, 3])},
            "label -1": {"test_labels": np.array([0, 1, -1, 3])},
            "index 4": {"test_index": np.array([0, 1, 2, 4])},
            "twice": {"test_index": np.array([0, 1, 2, 2])},
            "huge": {"test_labels": np.zeros(100_000)},
            "objects": {"test_labels": np.array([{}] * TEST)},
        }[how]
    )


@pytest.mark.parametrize(
    ("how", "words"),
    [
        ("float images", "test images of float32"),
        ("other images", "test images of uint8"),
        ("no images", "test images of uint8"),
        ("a number", r"test images of int64 \(\)"),
        ("fewer", "2 of 4 test images; say by test_index which"),
        ("fewer labels", r"test_labels of int64 \(2,\); give 4 integers"),
        ("float labels", "test_labels of float32"),
        ("label 10", "test_labels from 0 to 10; give 0 to 9"),
        ("label -1", "test_labels from -1 to 3; give 0 to 9"),
        ("index 4", "test_index from 0 to 4; give 0 to 3"),
        ("twice", "the same number twice in test_index"),
        ("huge", "more values in test_labels than the data set"),
        ("objects", "cannot be read: Object arrays cannot be loaded"),
    ],
)
def test_arrays_that_do_not_fit(tmp_path: Path, tiny: Dataset, publish: Make, how: str, words: str) -> None:
    publish(published(tiny))
    path = tmp_path / f"{tiny.name}.npz"
    np.savez(path, **change(arrays(tiny), how))
    with pytest.raises(BadInput, match=words) as caught:
        load(tiny.name, "test", tmp_path)
    assert str(path) in str(caught.value)


def test_broken_npz(tmp_path: Path, tiny: Dataset, publish: Make) -> None:
    publish(published(tiny))
    path = tmp_path / f"{tiny.name}.npz"
    np.savez_compressed(path, **arrays(tiny))
    sound = path.read_bytes()
    np.savez(path, test_images=np.zeros(3))
    no_labels = path.read_bytes()
    np.save(tmp_path / "a.npy", np.zeros(3))
    rotten = bytearray(sound)
    rotten[sound.index(b"test_images.npy") + 40] ^= 0xFF
    for contents, words in (
        (sound[: len(sound) // 2], "is no .npz file, or not all of one"),
        (b"", "is no .npz file"),
        ((tmp_path / "a.npy").read_bytes(), "is no .npz file"),
        (bytes(rotten), "cannot be read"),
        (no_labels, "has no array test_labels"),
    ):
        path.write_bytes(contents)
        with pytest.raises(BadInput, match=words) as caught:
            load(tiny.name, "test", tmp_path)
        assert str(path) in str(caught.value)


def test_an_entry_that_is_no_array(tmp_path: Path, tiny: Dataset, publish: Make) -> None:
    publish(published(tiny))
    with zipfile.ZipFile(tmp_path / f"{tiny.name}.npz", "w") as file:
        for name in arrays(tiny):
            file.writestr(f"{name}.npy", b"no array")
    with pytest.raises(BadInput, match="test images of"):
        load(tiny.name, "test", tmp_path)


def test_normalise_follows_the_paper() -> None:
    cifar, mnist = known("cifar10"), known("mnist")
    pixels = np.random.default_rng(0).integers(0, 256, (2, 3, 32, 32), dtype=np.uint8)
    mean = np.array([0.485, 0.456, 0.406]).reshape(3, 1, 1)
    normalised = cifar.normalise(pixels)
    assert normalised.dtype == torch.float32
    np.testing.assert_allclose(normalised.numpy(), (pixels / 255 - mean) / 0.225, atol=1e-6)
    assert torch.equal(cifar.normalise(torch.from_numpy(pixels)), normalised)
    grey = np.arange(784, dtype=np.uint8).reshape(1, 28, 28)
    grey.flags.writeable = False
    assert torch.equal(mnist.normalise(grey), torch.tensor(grey / np.float32(255)))


@pytest.mark.parametrize("wrong", [torch.zeros(3, 32, 32), torch.zeros(1, 28, 28, dtype=torch.uint8)])
def test_normalise_refuses_what_are_no_pixels(wrong: torch.Tensor) -> None:
    with pytest.raises(BadInput, match="cifar10 images are integers from 0 to 255 of shape"):
        known("cifar10").normalise(wrong)


@pytest.mark.parametrize(
    ("name", "split", "count"),
    [("mnist", "train", 60_000), ("mnist", "test", 10_000), ("cifar10", "train", 4_660), ("cifar10", "test", 508)],
)
def test_the_shared_images(bough_data: Path, name: str, split: str, count: int) -> None:
    if not (bough_data / "data" / "images" / "mnist.npz").exists():
        pytest.skip("no images in BOUGH_DATA")
    images = load(name, split, bough_data, download=False)
    assert len(images) == count
    assert images.pixels.shape == (count, *known(name).shape)
    number = int(images.index[-1])
    pixels, label = images.at(number)
    np.testing.assert_array_equal(pixels, images.pixels[-1])
    assert label == images.labels[-1]
