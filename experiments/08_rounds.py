"""Weights that learn from their own trees, round after round: weights enter, better ones leave, one command.

    BOUGH_DATA=... python experiments/08_rounds.py --out rounds --weights cifar-local [--rounds 2] [--device cuda]
        [--jobs 14] [--labels-seconds 400] [--training-seconds 300]

A round grows the trees below the eight ReLUs that the weights rank first, at some domains of every property that the
weights of `cifar_base_kw` were trained on (`bough label --rollouts`, docs/learning.md), and trains the weights on what
it and the rounds before have grown. Everything is kept in --out, and the same command goes on where it was cut off.
"""

import argparse
import importlib
import sys
from pathlib import Path

from bough.learning.weights import load, named

learning = importlib.import_module("08_learning")
# The tables, and with which bounds of ReLUs they are searched.
TABLES = {name: learning.LABELS[name][1][len(learning.DEEP) :] for name in learning.CIFAR}
RULES = {"local": "learnt-local", "fast": "gnn"}


def main() -> int:
    """Run what is not there yet."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--out", type=Path, required=True, help="a folder")
    parser.add_argument("--weights", default="cifar-local", help="to begin with; cifar-local")
    parser.add_argument("--rounds", type=int, default=2)
    parser.add_argument("--samples", type=int, default=12, help="of a property; 12")
    parser.add_argument("--every", type=int, default=1, help="every N-th property only")
    parser.add_argument("--epochs", type=int, default=30)
    parser.add_argument("--device", default="auto")
    parser.add_argument("--jobs", type=int, default=2, help="processes that label; 2")
    parser.add_argument("--labels-seconds", type=float, default=2000, help="of a round, at most; 2000")
    parser.add_argument("--training-seconds", type=float, default=600, help="of a round, at most; 600")
    options = parser.parse_args()
    preset = load(named(options.weights))[0].preset
    weights, grown = options.weights, []
    for number in range(1, options.rounds + 1):
        folder = options.out / f"round-{number}"
        grow(options, folder, weights, RULES[preset])
        grown += [folder / name for name in TABLES]
        weights = teach(options, folder / "model", weights, preset, grown)
    print(weights)
    return 0


def grow(options: argparse.Namespace, folder: Path, weights: str, rule: str) -> None:
    """The trees of a round, unless it is being taught by them already."""
    if (folder / "model" / "checkpoint.pt").exists():
        return
    how = ("--rollouts", 8, "--rule", rule, "--weights", weights, "--samples", options.samples, "--timeout", 120)
    common = ("--device", options.device, "--jobs", max(1, options.jobs // len(TABLES)), "--every", options.every)
    limit = ("--resume", "--limit-seconds", options.labels_seconds)
    commands = []
    for name, bounds in TABLES.items():
        table = learning.LABELS[name][0]
        place = ("--out", folder / name, "--networks", learning.folder_of(table))
        commands.append(["label", learning.TABLES / table, *place, *how, *bounds, *common, *limit])
    learning.together(commands)


def teach(options: argparse.Namespace, out: Path, weights: str, preset: str, grown: list[Path]) -> str:
    """Better weights, which are the next round's."""
    better = out / "weights.safetensors"
    if better.exists():
        return str(better)
    how = ("--preset", preset, "--measure", "size", "--start", weights, "--epochs", options.epochs)
    again = ("--resume",) if (out / "checkpoint.pt").exists() else ()
    limit = ("--device", options.device, "--limit-seconds", options.training_seconds, *again)
    learning.together([["train", *grown, "--out", out, *how, *limit]])
    return str(better)


if __name__ == "__main__":
    sys.exit(main())
