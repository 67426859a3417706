"""Architectures and robust training: the paper's ReLU counts, a training that learns, goes on and is exported."""

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from bough.api import load_network
from bough.budget import Deadline
from bough.errors import BadInput
from bough.problem.torch import read_module
from bough.zoo import datasets
from bough.zoo.datasets import Images
from laboratory.architectures import ARCHITECTURES, Architecture, ConvLayer, architecture
from laboratory.training import (
    CARD,
    CHECKPOINT,
    EPOCHS,
    RECIPES,
    Examples,
    NetworkRecipe,
    evaluate,
    finish,
    moved,
    recipe_for,
    train,
)
from train_network import main

CPU = torch.device("cpu")
QUICK = NetworkRecipe(
    eps=0.02, first_eps=0.0, growing=2, epochs=4, rate=5e-3, halve=2, batch=16, optimiser="adam", decay=0.0
)


@pytest.mark.parametrize(
    ("dataset", "name", "relus"),
    [
        ("cifar10", "base", 3172),
        ("cifar10", "wide", 6244),
        ("cifar10", "deep", 6756),
        ("mnist", "base", 1226),
        ("mnist", "wide", 4804),
        ("mnist", "deep", 5196),
    ],
)
def test_architectures_have_the_papers_relus(dataset, name, relus):
    built = architecture(dataset, name)
    network = read_module(built.build().eval(), built.dataset.shape)
    assert (network.neurons, network.outputs) == (relus, 10)
    assert len(ARCHITECTURES) == 6


def test_the_papers_networks_have_these_architectures(bough_data):
    for name in ("base", "wide", "deep"):
        published = load_network(bough_data / "data" / "networks" / f"cifar_{name}_kw.onnx").network
        built = read_module(architecture("cifar10", name).build().eval(), (3, 32, 32))
        assert [n.shape for n in built.nodes if n.op.__class__.__name__ == "Relu"] == [
            n.shape for n in published.nodes if n.op.__class__.__name__ == "Relu"
        ]


def test_an_unknown_architecture_is_said():
    with pytest.raises(BadInput, match="no architecture 'huge' for mnist; there are: base, wide, deep"):
        architecture("mnist", "huge")
    with pytest.raises(BadInput, match="imagenet"):
        architecture("imagenet", "base")


def squares(count: int, seed: int = 0) -> Images:
    """Bright upper or lower halves, two classes of three that anyone can learn."""
    dataset = replace(datasets.known("mnist"), shape=(1, 8, 8), classes=("up", "down", "none"))
    rng = np.random.default_rng(seed)
    labels = rng.integers(0, 2, count)
    pixels = rng.integers(0, 60, (count, 1, 8, 8))
    pixels[labels == 0, :, :4] += 150
    pixels[labels == 1, :, 4:] += 150
    return Images(dataset, "train", pixels.astype(np.uint8), labels, np.arange(count))


def tiny(images: Images) -> Architecture:
    return Architecture(images.dataset, "tiny", (ConvLayer(2, 4, 2, 1),), 6)


@pytest.fixture
def examples():
    return Examples.of(squares(96), CPU), Examples.of(squares(40, 1), CPU)


def quiet(words: str, done: int, total: int) -> None:
    assert 0 <= done < total, words


def run(folder: Path, examples, recipe: NetworkRecipe = QUICK, seconds: float | None = None, lines=None):
    folder.mkdir(exist_ok=True)
    report = (lambda line: None) if lines is None else lines.append
    built = tiny(examples[0].source)
    return train(built, recipe, examples, folder, report, quiet, evaluated=40, limit=Deadline.after(seconds))


def test_training_learns_and_is_exported(tmp_path, examples):
    lines: list[dict[str, float]] = []
    model = run(tmp_path, examples, lines=lines)
    assert [line["epoch"] for line in lines] == [1, 2, 3, 4]
    assert [line["eps"] for line in lines] == [0.0, 0.01, 0.02, 0.02]
    assert lines[-1]["loss"] < lines[0]["loss"]
    assert lines[-1]["uncertified"] <= 0.1
    path, errors = finish(model, tiny(examples[0].source), QUICK, examples[1], tmp_path)
    assert errors.clean <= errors.attacked <= errors.uncertified <= 0.1
    network = load_network(path).network
    assert (network.input_shape, network.outputs) == ((1, 8, 8), 3)
    card = json.loads((tmp_path / CARD).read_text())
    assert card["errors"]["uncertified"] == errors.uncertified
    assert card["recipe"]["eps"] == 0.02
    assert card["export_difference"] < 1e-5
    assert len((tmp_path / EPOCHS).read_text().splitlines()) == 4


@pytest.mark.parametrize("optimiser", ["adam", "sgd"])
def test_an_interrupted_training_goes_on_as_if_it_had_not_been(tmp_path, examples, optimiser):
    recipe = replace(QUICK, optimiser=optimiser, augment=True)
    whole = run(tmp_path / "whole", examples, recipe)
    for epochs in (1, 3, 4):
        parts = run(tmp_path / "parts", examples, replace(recipe, epochs=epochs))
    for resumed, uninterrupted in zip(parts.parameters(), whole.parameters(), strict=True):
        assert torch.equal(resumed, uninterrupted)


def test_a_training_killed_while_it_wrote_has_one_line_for_each_epoch(tmp_path, examples):
    run(tmp_path, examples, replace(QUICK, epochs=2))
    whole = (tmp_path / EPOCHS).read_text()
    for more in ('{"epoch": 3, "of": 4, "eps"', whole.splitlines(keepends=True)[-1].replace(": 2,", ": 3,", 1)):
        (tmp_path / EPOCHS).write_text(whole + more)  # and the checkpoint is of the epoch before
        run(tmp_path, examples, replace(QUICK, epochs=3))
        lines = [json.loads(line) for line in (tmp_path / EPOCHS).read_text().splitlines()]
        assert [line["epoch"] for line in lines] == [1, 2, 3]
        (tmp_path / CHECKPOINT).unlink()
        run(tmp_path, examples, replace(QUICK, epochs=2))
    (tmp_path / EPOCHS).unlink()
    assert run(tmp_path, examples, replace(QUICK, epochs=3)) is not None


def test_no_epoch_starts_after_the_time_limit(tmp_path, examples):
    assert run(tmp_path, examples, seconds=0.0) is None
    assert not (tmp_path / CHECKPOINT).exists()


def test_a_checkpoint_of_another_training_is_refused(tmp_path, examples):
    run(tmp_path, examples, replace(QUICK, epochs=1))
    with pytest.raises(BadInput, match=r"another training \(eps 0.02 there, 0.03 now\)"):
        run(tmp_path, examples, replace(QUICK, eps=0.03))
    other = Architecture(examples[0].source.dataset, "other", (ConvLayer(3, 4, 2, 1),), 6)
    with pytest.raises(BadInput, match="architecture mnist_tiny there, mnist_other now"):
        train(other, QUICK, examples, tmp_path, lambda _: None, quiet, evaluated=1, limit=Deadline.never())
    data = (tmp_path / CHECKPOINT).read_bytes()
    for broken in (b"", b"rubbish", data[: len(data) // 2]):
        (tmp_path / CHECKPOINT).write_bytes(broken)
        with pytest.raises(BadInput, match="no checkpoint of bough"):
            run(tmp_path, examples)


def test_a_loss_that_is_no_number_is_said(tmp_path, examples):
    with pytest.raises(BadInput, match=r"no number in epoch .*; lower the learning rate"):
        run(tmp_path, examples, replace(QUICK, rate=1e30, clip=1e30, optimiser="sgd"))


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"eps": 0.0}, "eps is 0.0; give a number above 0"),
        ({"eps": float("nan")}, "eps is nan"),
        ({"first_eps": 0.5}, "eps grows from 0.5 to 0.02"),
        ({"epochs": 0}, "epochs is 0; give a whole number, 1 or more"),
        ({"batch": 0}, "batch is 0"),
        ({"rate": 0.0}, "learning rate"),
        ({"optimiser": "magic"}, "sgd, adam"),
    ],
)
def test_bad_recipes_are_refused(change, words):
    with pytest.raises(BadInput, match=words):
        replace(QUICK, **change)


def test_the_authors_recipe_is_the_default_for_cifar():
    recipe = RECIPES["cifar10"]
    assert (recipe.eps, recipe.first_eps, recipe.rate, recipe.momentum) == (0.0347, 0.001, 0.05, 0.9)
    assert (recipe.decay, recipe.batch, recipe.clip, recipe.halve, recipe.augment) == (5e-4, 50, 1.0, 10, True)


def test_moved_images_are_moved_and_mirrored():
    pixels = torch.arange(1, 65, dtype=torch.uint8).reshape(1, 1, 8, 8).expand(200, 1, 8, 8)
    augmented = moved(pixels, torch.Generator().manual_seed(0), by=2)
    candidates = set()
    for image in (pixels[0, 0], pixels[0, 0].flip(1)):
        padded = torch.nn.functional.pad(image[None], (2, 2, 2, 2))[0]
        candidates |= {tuple(padded[i : i + 8, j : j + 8].reshape(-1).tolist()) for i in range(5) for j in range(5)}
    distinct = {tuple(image.reshape(-1).tolist()) for image in augmented}
    assert distinct <= candidates
    assert len(distinct) > 40  # of 50


def test_evaluation_counts_what_it_says(examples):
    torch.manual_seed(0)
    model = tiny(examples[0].source).build()
    errors = evaluate(model, examples[1], 0.01, 25)
    x, labels = examples[1].seen(examples[1].pixels[:25]), examples[1].labels[:25]
    assert errors.images == 25
    assert errors.clean == float((model(x).argmax(1) != labels).double().mean())
    assert errors.clean <= errors.attacked <= errors.uncertified


def data_folder(tmp_path: Path) -> Path:
    """A folder with a few random images under MNIST's name."""
    rng, folder = np.random.default_rng(0), tmp_path / "data"
    folder.mkdir()
    parts: dict[str, Any] = {}
    for split, count in (("train", 20), ("test", 10)):
        parts |= {
            f"{split}_images": rng.integers(0, 256, (count, 28, 28), dtype=np.uint8),
            f"{split}_labels": rng.integers(0, 10, count),
            f"{split}_index": np.arange(count),
        }
    np.savez(folder / "mnist_part.npz", allow_pickle=False, **parts)
    return folder


def test_the_command_trains_goes_on_and_refuses(tmp_path, capsys):
    words = ["--dataset", "mnist", "--arch", "base", "--data", str(data_folder(tmp_path))]
    words += ["--out", str(tmp_path / "out"), "--batch", "10", "--evaluate", "5", "--device", "cpu", "--epochs", "2"]
    assert main([*words, "--limit-seconds", "0"]) == 3
    assert main([*words, "--resume"]) == 2
    assert "no training to go on with" in capsys.readouterr().err
    assert main(words) == 0
    printed = capsys.readouterr()
    assert printed.out.strip() == str(tmp_path / "out" / "mnist_base.onnx")
    assert "epoch 2/2" in printed.err
    assert "not certified" in printed.err
    assert main(words) == 2
    assert "--resume" in capsys.readouterr().err
    assert main([*words, "--resume"]) == 0
    assert "is finished" in capsys.readouterr().err
    assert main([*words, "--resume", "--eps", "0.2"]) == 2
    assert "belongs to another training" in capsys.readouterr().err
    words[3] = "wide"
    assert main([*words, "--resume"]) == 2
    assert "belongs to another training" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["--images", "-5"], "--images is -5"),
        (["--images", "0"], "--images is 0"),
        (["--evaluate", "-1"], "--evaluate is -1"),
        (["--epochs", "0"], "--epochs is 0"),
        (["--seed", "-1"], "--seed is -1"),
        (["--limit-seconds", "nan"], "--limit-seconds is nan"),
        (["--eps", "0"], "eps is 0.0; give a number above 0"),
        (["--arch", "huge"], "no architecture 'huge'"),
        (["--data", "nowhere"], "nowhere"),
    ],
)
def test_bad_options_are_refused_before_anything_is_written(tmp_path, capsys, words, said):
    arguments = ["--dataset", "mnist", "--arch", "base", "--out", str(tmp_path / "out"), *words]
    assert main(arguments) == 2
    assert said in capsys.readouterr().err
    assert not (tmp_path / "out").exists()


def test_a_folder_that_cannot_be_made_is_said(tmp_path, capsys):
    (tmp_path / "file").write_text("")
    words = ["--dataset", "mnist", "--arch", "base", "--data", str(data_folder(tmp_path))]
    assert main([*words, "--out", str(tmp_path / "file" / "out")]) == 2
    assert "cannot create the folder" in capsys.readouterr().err


def test_schedules_keep_their_shape():
    usual, short = RECIPES["mnist"], recipe_for("mnist", epochs=6, eps=0.2, rate=None)
    assert recipe_for("mnist") == usual
    assert (short.epochs, short.growing, short.halve) == (6, 2, 1)
    assert short.first_eps == pytest.approx(2 * usual.first_eps)
    assert short.radius(5) == 0.2
