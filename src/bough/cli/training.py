"""`bough train`: a model that ranks ReLUs, from samples of strong branching."""

import argparse
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

from bough.cli.shared import (
    DEVICES,
    UNFINISHED,
    Command,
    check_resumed,
    declare,
    device_named,
    limit_of,
    note,
    picked,
    say,
)
from bough.cli.zoo import Ticks
from bough.errors import BadInput
from bough.files.writing import make_folder

if TYPE_CHECKING:
    import torch

    from bough.learning.dataset import Part, SampleCard
    from bough.learning.lessons import EpochFigures, Figures, Lessons
    from bough.learning.samples import Samples
    from bough.learning.train import SampleOrigin

RECIPE_OPTIONS = (
    *("reduced", "measure", "loss", "classes", "epochs", "rate", "decay", "decoupled", "batch", "group", "seed"),
    *("inputs", "start"),
)
MEASURES = ("mean", "min", "max", "product", "tree", "size")


def train(command: Command) -> None:
    """Declare the options of `bough train`."""
    declare(command, "samples", "SAMPLES", "folders that `bough label` wrote", Path, nargs="+")
    declare(command, "--out", "DIR", "weights, report, curves, and checkpoints to go on from", Path, required=True)
    words = "kind of model: fast (the default), local, or another package's"
    declare(command, "--preset", "NAME", words, default="fast")
    command.add_argument("--reduced", action="store_true", help="without primal and dual values (the paper's GNN-R)")
    command.add_argument(
        "--inputs", action="store_true", help="score inputs, too, of samples by `label --inputs`; not fast, nor local"
    )
    words = "how a split is judged: by its children (mean is the paper's), or, size, by trees of `label --rollouts`"
    declare(command, "--measure", MEASURES, words)
    command.add_argument(
        "--loss",
        choices=("rank", "choice", "expected"),
        help="rank all ReLUs (the paper's), learn the best one, or what each costs; by preset and measure",
    )
    declare(command, "--classes", "N", "classes of ReLUs that are ranked; 10 by default", int)
    command.add_argument(
        "--absolute", action="store_true", help="classes of equal width in m itself, not over the best m of a sample"
    )
    declare(command, "--start", "WEIGHTS", "begin with these: a file, or what comes with bough")
    declare(command, "--epochs", "N", "most passes over the samples", int)
    declare(command, "--rate", "R", "learning rate at the start", float)
    declare(command, "--decay", "D", "weight decay", float)
    command.add_argument(
        "--decoupled", action=argparse.BooleanOptionalAction, help="weight decay apart from the gradient (AdamW)"
    )
    declare(command, "--batch", "N", "samples per step", int)
    declare(command, "--group", "N", "most samples of one property in a row, scored together", int)
    declare(command, "--seed", "N", "of first weights and of the order of samples", int)
    declare(command, "--device", DEVICES, "auto takes a GPU when there is one")
    declare(command, "--limit-seconds", "S", "end after S seconds with the best so far", float)
    command.add_argument("--resume", action="store_true", help="go on with what DIR holds")
    command.set_defaults(run=_train)


def _train(options: argparse.Namespace) -> int:
    limit = limit_of(options)
    import torch

    from bough.budget import idle_cpus
    from bough.learning.presets import recipe_for
    from bough.learning.train import CHECKPOINT, CURVES, REPORT, WEIGHTS, finish, train

    recipe = recipe_for(options.preset, relative=not options.absolute, **picked(options, *RECIPE_OPTIONS))
    check_resumed(options, CHECKPOINT)
    device = device_named(options.device)
    torch.set_num_threads(idle_cpus())  # threads that wait for each other's cores are many times slower than one
    training, validation, origin = _lessons(options.samples, device)
    make_folder(options.out)
    say(
        f"{recipe.preset}{', reduced' if recipe.reduced else ''}: {len(training)} samples of {len(training.parts)} "
        f"properties to learn from, {len(validation)} of {len(validation.parts)} to judge by, up to {recipe.epochs} "
        f"epochs, on {device}"
    )
    try:
        trained = train(recipe, training, validation, options.out, _say_epoch, Ticks(), limit)
        if not trained.history:
            say("the time was up before the first epoch ended; go on with more time")
            return UNFINISHED
        report = finish(trained, recipe, training, validation, origin, options.out)
    except KeyboardInterrupt:
        say("bough: interrupted; what ended is kept, go on by --resume")
        return UNFINISHED
    say("accuracy: m of the chosen ReLU is at least 0.9 of the best m; in brackets, at least 0.9 itself")
    for part, figures in report.figures.items():
        say(_figures(f"{part}, {figures.samples} samples", figures))
    for depth, at_depth in report.figures["validation"].by_depth.items():
        say(_figures(f"validation at depth {depth}, {at_depth.samples} samples", at_depth))
    dead = [name for name, norms in report.gradients.items() if not norms.gradient > 0]
    say(f"gradients of {len(report.gradients)} parameters, dead: {', '.join(dead) or 'none'}")
    path = options.out / WEIGHTS
    say(f"{path}: {report.parameters} parameters; {options.out / REPORT} says how, {options.out / CURVES} shows it")
    if not trained.finished:
        say("the time is up; these are the best weights so far, go on by --resume")
    print(path)
    return 0 if trained.finished else UNFINISHED


def _lessons(folders: list[Path], device: "torch.device") -> "tuple[Lessons, Lessons, SampleOrigin]":
    """Samples to learn from and to judge by, of all folders, and where they are from."""
    from bough.learning.dataset import read_shards
    from bough.learning.lessons import Lessons
    from bough.learning.train import SampleOrigin

    cards: list[SampleCard] = []

    def samples(part: "Part") -> "Iterator[Samples]":
        for folder in folders:
            for shard in read_shards(folder, part, note=note):
                cards.append(shard.card)
                yield shard.collected.samples

    training, validation = Lessons.of(samples("training"), device), Lessons.of(samples("validation"), device)
    bounders = sorted({card.bounder for card in cards})
    if len(bounders) > 1:
        raise BadInput(f"the samples are by several bounders ({', '.join(bounders)}); train on those of one")
    networks, datasets = {card.network for card in cards}, {card.dataset for card in cards}
    return training, validation, SampleOrigin(bounders[0], tuple(sorted(networks)), tuple(sorted(datasets)))


def _say_epoch(line: "EpochFigures") -> None:
    name = f"epoch {line.epoch}/{line.of}  rate {line.rate:.1e}  training loss {line.training.loss:.4f}, validation"
    say(f"{_figures(name, line.validation)}  {line.seconds:.1f} s{'  best' if line.best else ''}")


def _figures(name: str, figures: "Figures") -> str:
    return (
        f"{name}: loss {figures.loss:.4f}  accuracy {figures.accuracy:.1%} (m at least 0.9: "
        f"{figures.absolute:.1%})  m over the best {figures.share:.3f}"
    )
