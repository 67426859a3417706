"""The weights that come with bough, from images to rules: properties, labels and trained models leave, one command.

    BOUGH_DATA=... python experiments/08_learning.py --network cifar_base_kw --out learning --device cuda --jobs 12
        [--only local ...] [--properties-seconds 400] [--labels-seconds 250] [--training-seconds 300]

Properties of training images that are for training, of all difficulties up to about a second of one H200; samples from
all depths of their searches; then one model after another. Everything is kept in --out, and the same command goes on
where it was cut off.
"""

import argparse
import os
import sys
from pathlib import Path

from bough.cli import main as bough
from bough.zoo import shipped

PROPERTIES = {
    "cifar_base_kw": ("cifar10", ("--edges", "50,1000,8000,60000", "--easy", 200, "--medium", 150, "--hard", 100)),
    "mnist_base": ("mnist", ("--edges", "20,300,1500,4000", "--easy", 250, "--medium", 130, "--hard", 40)),
}
LABELS = ("--deep", "--samples", 96, "--timeout", 15)
MODELS = {
    "fast": ("--preset", "fast"),
    "local": ("--preset", "local"),
    "reduced": ("--preset", "fast", "--reduced"),
    "product": ("--preset", "fast", "--measure", "product"),
    "paper": ("--preset", "paper", "--epochs", 10),
    "paper-code": ("--preset", "paper-code", "--epochs", 10),
}
OURS = ("--batch", 128, "--group", 64, "--epochs", 20)
UNFINISHED = 3


def main() -> int:
    """Run what is not there yet."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--network", choices=tuple(PROPERTIES), default="cifar_base_kw")
    parser.add_argument("--out", type=Path, required=True, help="a folder")
    parser.add_argument("--only", action="append", choices=tuple(MODELS), help="models; fast, local and reduced")
    parser.add_argument("--device", default="auto")
    parser.add_argument("--jobs", type=int, default=1)
    for step, usual in (("properties", 400), ("labels", 250), ("training", 300)):
        parser.add_argument(f"--{step}-seconds", type=float, default=usual, help=f"at most; {usual}")
    options = parser.parse_args()
    folder = options.out / options.network
    device = ("--device", options.device)
    dataset, difficulties = PROPERTIES[options.network]
    networks = Path(os.environ.get("BOUGH_DATA", "../shared")) / "data" / "networks"
    network = networks / f"{options.network}.onnx" if dataset == "cifar10" else options.network
    where = networks if dataset == "cifar10" else shipped.NETWORKS
    parallel = (*device, "--jobs", options.jobs, "--resume")
    images = ("--dataset", dataset, "--split", "train", "--use", "train", "--unit", "bounds")
    limit = ("--limit-seconds", options.properties_seconds)
    run("properties", network, "--out", folder / "properties", *images, *difficulties, *parallel, *limit)
    table, limit = folder / "properties" / "properties.csv", ("--limit-seconds", options.labels_seconds)
    run("label", table, "--networks", where, "--out", folder / "samples", *LABELS, *parallel, *limit)
    for name in options.only or ("fast", "local", "reduced"):
        out = folder / name
        ours = () if name.startswith("paper") else OURS
        again = ("--resume",) if (out / "checkpoint.pt").exists() else ()
        limit = ("--limit-seconds", options.training_seconds)
        run("train", folder / "samples", *MODELS[name], *ours, "--out", out, *device, *limit, *again)
    return 0


def run(*words: object) -> None:
    """A command of bough's; one that its time limit ended has left something to go on with."""
    print("bough", *words, file=sys.stderr, flush=True)
    status = bough([str(word) for word in words])
    if status not in (0, UNFINISHED):
        sys.exit(status)


if __name__ == "__main__":
    sys.exit(main())
