"""Stand-ins for data set and networks, so that every experiment runs in seconds on any machine: figures and three
small networks leave.

    python experiments/stand_in.py        about two minutes on one CPU core

The figures of `bough demo`, drawn on 28 by 28 pixels, take the place of MNIST; networks called Base, Wide and Deep,
hundreds of times cheaper than the paper's, are trained on them against attacks. Networks and a table of their
properties lie in `experiments/stand_in/`, made by this script; figures are drawn again whenever they are wanted, the
same ones by their numbers. Nothing of this says anything about the paper: it shows that the code runs.
"""

import argparse
from pathlib import Path

import numpy as np
import torch
from numpy.typing import NDArray
from torch import nn

from bough.api import load_network, load_problem, solve
from bough.network import walk
from bough.options import Options
from bough.problem.onnx_writer import write_network
from bough.problem.torch import read_module
from bough.verdict.result import Result, Verdict
from bough.zoo.datasets import DATASETS, Images
from bough.zoo.table import DIFFICULTIES, Row, Surroundings, as_text, read_table, use_of
from demo_network import Recipe, robust_loss
from laboratory import shapes

HERE = Path(__file__).with_name("stand_in")
TABLE = HERE / "table.csv"
DATASET = DATASETS["mnist"]
SIDE = DATASET.shape[1]
TRAIN, TEST = 3000, 300  # figures
TEST_SEED = 1_000_000
EDGES = (7, 14, 30)  # bounds: too easy below, then easy, medium, hard
METHOD = Options(bounds="dual", branching="babsr", batch=8, intermediate="fixed", device="cpu", most_bounds=300)
RADII, PROBES = (0.01, 0.3), 7
WANTED = {"stand_in_base": 12, "stand_in_wide": 6, "stand_in_deep": 6}  # properties
USES = ("test", "train")  # in turn
RECIPE = Recipe(images=TRAIN, epochs=12, batch=64, eps=0.06, interval_weight=0.01, learning_rate=4e-3)


def networks() -> dict[str, nn.Sequential]:
    """One window or two over the figure, then one hidden layer: 218, 422 and 404 ReLUs."""
    return {
        "stand_in_base": nn.Sequential(nn.Conv2d(1, 4, 4, 4), nn.ReLU(), *_head(4, 22)),
        "stand_in_wide": nn.Sequential(nn.Conv2d(1, 8, 4, 4), nn.ReLU(), *_head(8, 30)),
        "stand_in_deep": nn.Sequential(
            nn.Conv2d(1, 4, 4, 4), nn.ReLU(), nn.Conv2d(4, 4, 3, 1, 1), nn.ReLU(), *_head(4, 12)
        ),
    }


def _head(channels: int, hidden: int) -> tuple[nn.Module, ...]:
    return nn.Flatten(), nn.Linear(channels * 49, hidden), nn.ReLU(), nn.Linear(hidden, len(DATASET.classes))


def figures(split: str) -> Images:
    """The stand-in for a split of MNIST: its first images are figures, of the ten classes in turn."""
    count = TRAIN if split == "train" else TEST
    labels = np.arange(count) % len(DATASET.classes)
    pixels = np.stack([_drawn(k + (TEST_SEED if split == "test" else 0), int(label)) for k, label in enumerate(labels)])
    return Images(DATASET, split, pixels, labels.astype(np.int64), np.arange(count))


def _drawn(seed: int, label: int) -> NDArray[np.uint8]:
    """A figure in the middle of a larger sheet."""
    small = np.round(shapes.draw(seed, label)[0] * 255).astype(np.uint8)
    border = (SIDE - shapes.SIDE) // 2
    return np.pad(small, border, constant_values=int(np.median(small[0])))[None]


def train(model: nn.Sequential) -> float:
    """Train against attacks; the accuracy on figures not seen."""
    torch.manual_seed(RECIPE.seed)
    learnt, held_out = figures("train"), figures("test")
    x, labels = torch.tensor(learnt.pixels) / 255, torch.tensor(learnt.labels)
    for layer in model:
        if isinstance(layer, nn.Conv2d | nn.Linear):
            layer.reset_parameters()
    optimiser = torch.optim.AdamW(model.parameters(), lr=RECIPE.learning_rate, weight_decay=RECIPE.decay)
    for epoch in range(RECIPE.epochs):
        for chosen in torch.randperm(TRAIN).split(RECIPE.batch):
            growth = min(1.0, epoch / (RECIPE.epochs / 2))
            loss = robust_loss(model, x[chosen], labels[chosen], RECIPE, growth)
            optimiser.zero_grad()
            loss.backward()
            optimiser.step()
    predicted = model.eval()(torch.tensor(held_out.pixels) / 255).argmax(1)
    return float((predicted == torch.tensor(held_out.labels)).double().mean())


def properties(name: str, count: int) -> list[Row]:
    """For each figure the largest radius that BaBSR still proves, as in the paper, in so many bounds; by bisection."""
    loaded, images = load_network(HERE / f"{name}.onnx"), figures("test")
    rows: list[Row] = []
    for number in range(TEST):
        pixels, label = images.at(number)
        outputs = walk.evaluate(loaded.network, torch.tensor(pixels)[None].double() / 255)[0]
        target = int(outputs.topk(2).indices[1])
        if int(outputs.argmax()) != label or use_of("mnist", "test", number) != USES[len(rows) % 2]:
            continue
        around = Surroundings(images.dataset, *images.at(number), target, normalised=False, clip=True)
        low, high, best = *RADII, None
        for _ in range(PROBES):
            eps = round((low + high) / 2, 4)
            result = solve(load_problem(loaded, around.within(eps)), METHOD)
            proved = result.verdict is Verdict.VERIFIED
            low, high = (eps, high) if proved else (low, eps)
            best = (eps, result) if proved and result.bounds >= EDGES[0] else best
        if best is not None:
            rows.append(_row(name, number, (label, target), *best))
            print(f"  figure {number}: eps {best[0]:g}, {best[1].bounds} bounds", flush=True)
        if len(rows) == count:
            break
    return rows


def _row(name: str, number: int, classes: tuple[int, int], eps: float, result: Result) -> Row:
    return Row(
        dataset="mnist",
        split="test",
        network=name,
        image=number,
        label=classes[0],
        target=classes[1],
        eps=eps,
        normalised=False,
        clip=True,
        method="dual-babsr",
        verdict=result.verdict.value,
        branches=result.branches,
        bounds=result.bounds,
        seconds=round(result.seconds, 3),
        device="cpu",
        difficulty=DIFFICULTIES[sum(result.bounds >= edge for edge in EDGES[1:])],
        use=use_of("mnist", "test", number),
    )


def main() -> None:
    """Train the networks, look for properties, and put both where the experiments find them."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--network", choices=WANTED, action="append", help="may be given again; all by default")
    chosen = parser.parse_args().network or list(WANTED)
    torch.set_num_threads(1)  # the sums' order, and so the weights, do not depend on the machine's cores
    HERE.mkdir(exist_ok=True)
    rows = [row for row in read_table(TABLE) if row.network not in chosen] if TABLE.exists() else []
    for name in chosen:
        model = networks()[name]
        accuracy = train(model)
        write_network(read_module(model, DATASET.shape), HERE / f"{name}.onnx")
        print(f"{name}: {accuracy:.1%} of figures not seen", flush=True)
        rows += properties(name, WANTED[name])
    TABLE.write_text(as_text(rows))


if __name__ == "__main__":
    main()
