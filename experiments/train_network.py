"""Trains one of the paper's networks robustly: a data set and an architecture enter, an ONNX network leaves.

    python experiments/train_network.py --dataset mnist --arch base --out mnist-base

Wong & Kolter's loss bounds the cross-entropy of any point within eps of an image; docs/training.md says more. Exit
status: 0 finished, 2 bad input, 3 not finished (go on by `--resume`).
"""

import argparse
import sys
from pathlib import Path
from typing import Any

from bough.cli.shared import (
    BAD_INPUT,
    DEVICES,
    UNFINISHED,
    check_numbers,
    check_resumed,
    declare,
    device_named,
    images_of,
    limit_of,
    number,
    picked,
    say,
)
from bough.cli.zoo import Ticks
from bough.errors import BadInput
from bough.files.writing import make_folder
from laboratory.architectures import architecture
from laboratory.training import CARD, CHECKPOINT, Examples, finish, finished_before, recipe_for, train


def main(arguments: list[str] | None = None) -> int:
    """Read the options, and train; what is wrong with them is one sentence."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0], allow_abbrev=False)
    declare(parser, "--dataset", "NAME", "mnist or cifar10", required=True)
    declare(parser, "--arch", "NAME", "base, wide or deep", required=True)
    declare(parser, "--out", "DIR", "the network, its card, and checkpoints to go on from", Path, required=True)
    declare(parser, "--data", "DIR", "where the images are; else BOUGH_DATA, or downloaded", Path)
    declare(parser, "--eps", "E", "radius trained for, in the units the network sees", number)
    declare(parser, "--epochs", "N", "passes over the training images", int)
    declare(parser, "--rate", "R", "learning rate at the start", float)
    declare(parser, "--batch", "N", "images per step", int)
    declare(parser, "--seed", "N", "of first weights and of the order of images", int)
    declare(parser, "--images", "N", "train on the first N only", int)
    declare(parser, "--evaluate", "N", "test images per epoch; all after the last", int, 1000)
    declare(parser, "--device", DEVICES, "auto takes a GPU when there is one")
    declare(parser, "--limit-seconds", "S", "start no epoch after S seconds", float)
    parser.add_argument("--resume", action="store_true", help="go on with what DIR holds")
    options = parser.parse_args(arguments)
    try:
        return train_network(options)
    except BadInput as error:
        say(f"{Path(__file__).name}: {error}")
        return BAD_INPUT


def train_network(options: argparse.Namespace) -> int:
    """Train, or go on; the folder then holds the network and its card."""
    check_numbers(options, images=1, evaluate=1, epochs=1, batch=1, seed=0)
    limit = limit_of(options)
    built = architecture(options.dataset, options.arch)
    recipe = recipe_for(options.dataset, **picked(options, "eps", "epochs", "rate", "batch", "seed"))
    check_resumed(options, CHECKPOINT)
    path: Path | None = finished_before(options.out, built, recipe)
    if path is not None:
        say(f"{path} is finished; {options.out / CARD} says how it was made")
        print(path)
        return 0
    device = device_named(options.device)
    images, test = (images_of(options)(options.dataset, split) for split in ("train", "test"))
    make_folder(options.out)
    examples = Examples.of(images, device, options.images), Examples.of(test, device)
    say(
        f"{built.title}: {len(examples[0].labels)} images, eps growing to {recipe.eps:g} over {recipe.growing} of "
        f"{recipe.epochs} epochs, on {device}; errors are those of {min(options.evaluate, len(test))} test images"
    )
    tick = Ticks()
    try:
        model = train(built, recipe, examples, options.out, say_epoch, tick, evaluated=options.evaluate, limit=limit)
        if model is None:
            say("the time is up; go on by --resume")
            return UNFINISHED
        path, errors = finish(model, built, recipe, examples[1], options.out, tick)
    except KeyboardInterrupt:
        say("interrupted; what ended is kept, go on by --resume")
        return UNFINISHED
    say(
        f"{path}: errors on {errors.images} test images at eps {recipe.eps:g}: clean {errors.clean:.2%}, PGD-20 "
        f"{errors.attacked:.2%}, not certified {errors.uncertified:.2%}; {options.out / CARD} says how it was made"
    )
    print(path)
    return 0


def say_epoch(line: dict[str, Any]) -> None:
    """One line about an epoch."""
    say(
        f"epoch {line['epoch']}/{line['of']}  eps {line['eps']:.4f}  loss {line['loss']:.4f}  "
        f"clean {line['clean']:.2%}  PGD-20 {line['attacked']:.2%}  not certified {line['uncertified']:.2%}  "
        f"{line['seconds']:.1f} s"
    )


if __name__ == "__main__":
    sys.exit(main())
