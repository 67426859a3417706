"""The weights that come with bough, from tables of properties: samples and trained models leave, one command.

    BOUGH_DATA=... python experiments/08_learning.py --out learning --device cuda --jobs 14
        [--only local ...] [--labels-seconds 400] [--training-seconds 300]

The tables in experiments/training are properties of training images that are for training, of all difficulties up to
about a second of one H200; for CIFAR-10 there is one for searches over bough's own root bounds, and one for searches
over CROWN's, where more is left to split. What is labelled at the same time shares the device, and so do models
that are trained. Everything is kept in --out, and the same command goes on where it was cut off.
"""

import argparse
import os
import subprocess
import sys
from collections.abc import Iterable
from pathlib import Path

from bough.zoo import shipped

TABLES = Path(__file__).parent / "training"
DEEP = ("--deep", "--samples", 96, "--timeout", 15)
LETTER = ("--subset", "--rule", "babsr", "--timeout", 30)  # the paper's Algorithm 2, some ReLUs of each domain tried
LABELS = {  # the table, and how its properties are labelled
    "cifar": ("cifar_base_kw.csv", DEEP),
    "cifar-fixed": ("cifar_base_kw_fixed.csv", (*DEEP, "--intermediate", "fixed")),
    "mnist": ("mnist_base.csv", (*DEEP, "--growth", 1.01)),
    "letter": ("cifar_base_kw.csv", LETTER),
    "letter-fixed": ("cifar_base_kw_fixed.csv", (*LETTER, "--intermediate", "fixed")),
}
CIFAR, MNIST, BOTH = ("cifar", "cifar-fixed"), ("mnist",), ("cifar", "cifar-fixed", "mnist")
BY_LETTER = ("letter", "letter-fixed")
OURS = ("--batch", 128, "--group", 64)
TREE = (*OURS, "--measure", "tree", "--epochs", 14)
PAPER = ("--batch", 32, "--group", 16, "--rate", 4e-4, "--epochs", 12)  # larger batches than the paper's, for time
MODELS = {
    "fast": (CIFAR, ("--preset", "fast", *TREE)),
    "mean": (CIFAR, ("--preset", "fast", *OURS, "--epochs", 28)),  # the paper's measure
    "local": (CIFAR, ("--preset", "local", *TREE)),
    "reduced": (CIFAR, ("--preset", "fast", "--reduced", *TREE)),
    "mnist": (MNIST, ("--preset", "fast", *TREE)),
    "joint": (BOTH, ("--preset", "fast", *TREE)),
    "paper": (CIFAR, ("--preset", "paper", *PAPER)),
    "paper-code": (CIFAR, ("--preset", "paper-code", *PAPER)),
    # All by the paper's Algorithm 2 and measure, its own presets by its own recipe, too (batches of 2, a rate of 1e-4).
    "letter-paper": (BY_LETTER, ("--preset", "paper")),
    "letter-paper-code": (BY_LETTER, ("--preset", "paper-code")),
    "letter-fast": (BY_LETTER, ("--preset", "fast")),
    "letter-local": (BY_LETTER, ("--preset", "local")),
}
USUAL = ("fast", "mean", "local", "reduced", "mnist", "joint")
UNFINISHED = 3


def main() -> int:
    """Run what is not there yet."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--out", type=Path, required=True, help="a folder")
    parser.add_argument("--only", action="append", choices=tuple(MODELS), help=f"models; {', '.join(USUAL)}")
    parser.add_argument("--device", default="auto")
    parser.add_argument("--jobs", type=int, default=1, help="processes that label")
    parser.add_argument("--every", type=int, default=1, help="every N-th property only")
    parser.add_argument("--epochs", type=int, help="of every model, instead of its own number")
    parser.add_argument("--seed", type=int, default=0, help="of training")
    parser.add_argument("--labels-seconds", type=float, default=400, help="at most; 400")
    parser.add_argument("--training-seconds", type=float, default=300, help="at most; 300")
    options = parser.parse_args()
    models = {name: MODELS[name] for name in options.only or USUAL}
    needed = list(dict.fromkeys(samples for sets, _ in models.values() for samples in sets))
    device = ("--device", options.device)
    jobs = ("--jobs", max(1, options.jobs // len(needed)))
    common = (*device, *jobs, "--every", options.every, "--resume", "--limit-seconds", options.labels_seconds)
    together(
        ["label", TABLES / table, "--out", options.out / name, "--networks", folder_of(table), *how, *common]
        for name, (table, how) in LABELS.items()
        if name in needed
    )
    epochs = () if options.epochs is None else ("--epochs", options.epochs)
    limit = ("--seed", options.seed, "--limit-seconds", options.training_seconds, *epochs)
    trainings = []
    for name, (sets, how) in models.items():
        out = options.out / f"model-{name}"
        again = ("--resume",) if (out / "checkpoint.pt").exists() else ()
        trainings.append(["train", *(options.out / s for s in sets), "--out", out, *how, *device, *limit, *again])
    together(trainings)
    return 0


def folder_of(table: str) -> Path:
    """Where the network of a table is."""
    shared = Path(os.environ.get("BOUGH_DATA", "../shared")) / "data" / "networks"
    return shared if table.startswith("cifar") else shipped.NETWORKS


def together(commands: Iterable[list[object]]) -> None:
    """Commands of bough's, at the same time; one that its time limit ended has left something to go on with."""
    path = os.pathsep.join(filter(None, (str(TABLES.parent), os.environ.get("PYTHONPATH"))))
    environment, running = {**os.environ, "PYTHONPATH": path}, []  # with the laboratory's models
    for words in commands:
        print("bough", *words, file=sys.stderr, flush=True)
        running.append(subprocess.Popen([sys.executable, "-m", "bough", *map(str, words)], env=environment))
    if failed := [process.returncode for process in running if process.wait() not in (0, UNFINISHED)]:
        sys.exit(failed[0])


if __name__ == "__main__":
    sys.exit(main())
