"""The shipped networks' certified error, three ways: test images enter, shares that are verified without a split leave.

    BOUGH_DATA=... python experiments/07_certified_error.py [--images 500] [--networks base,wide,deep] [--eps 0.1]

By the bound that training minimises (`laboratory/robust.py`, float64 here), by the proofs that searches rest on with
the same slopes (`bounds/linear.py`, float64 with its rounding error subtracted), and by what bough does by itself
before its first split.
"""

import argparse
import json
import sys
from dataclasses import replace
from pathlib import Path

import torch
from torch import Tensor, nn

from bough.api import LoadedNetwork, load_network, load_problem, solve
from bough.bounds.intermediate import PaperBounds
from bough.bounds.linear import bound_clause, bound_elements, by_slopes
from bough.bounds.relaxation import ParallelSlopes
from bough.budget import Deadline
from bough.domain.batch import Bounds
from bough.network.ops import Conv, Linear
from bough.options import Options
from bough.problem.property import Property, robustness_property
from bough.zoo import datasets, shipped
from laboratory.architectures import architecture
from laboratory.robust import robust_loss

NEVER = Deadline.never()


def main() -> None:
    """Print a line per network."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--images", type=int, default=500)
    parser.add_argument("--networks", default="base,wide,deep")
    parser.add_argument("--eps", type=float, default=0.1)
    parser.add_argument("--searches", type=int, default=50, help="images that bough itself is asked about")
    options = parser.parse_args()
    torch.set_num_threads(1)
    test = datasets.load("mnist", "test")
    print("| network | images | training's bound | proved, same slopes | differ | images | without a split | card |")
    print("|---|---|---|---|---|---|---|---|")
    for name in options.networks.split(","):
        path = shipped.network_path(Path(f"mnist_{name}"))
        loaded, model = load_network(path), rebuilt(load_network(path), name)
        inputs = test.dataset.normalise(torch.from_numpy(test.pixels[: options.images])).double()
        labels = torch.from_numpy(test.labels[: options.images]).long()
        by_training = torch.cat([certified(model, *part, options.eps) for part in chunks(inputs, labels)])
        by_proof = torch.tensor([proved(loaded, x, int(y), options.eps) for x, y in zip(inputs, labels, strict=True)])
        few = min(options.searches, len(inputs))
        at_once = [rooted(loaded, x, int(y), options.eps) for x, y in zip(inputs[:few], labels[:few], strict=True)]
        card = json.loads(path.with_suffix(".json").read_text())["errors"]
        print(
            f"| {name} | {len(inputs)} | {int(by_training.sum())} | {int(by_proof.sum())} | "
            f"{int((by_training != by_proof).sum())} | {few} | {sum(at_once)} | {1 - card['uncertified']:.2%} |"
        )
        sys.stdout.flush()


def chunks(inputs: Tensor, labels: Tensor) -> list[tuple[Tensor, Tensor]]:
    """Few images at a time."""
    return list(zip(inputs.split(10), labels.split(10), strict=True))


def rebuilt(loaded: LoadedNetwork, name: str) -> nn.Sequential:
    """The network's file as the model that it was trained as."""
    model = architecture("mnist", name).build().double()
    weights = [node.op for node in loaded.network.nodes if isinstance(node.op, Conv | Linear)]
    layers = [layer for layer in model if isinstance(layer, nn.Conv2d | nn.Linear)]
    for layer, op in zip(layers, weights, strict=True):
        layer.weight = nn.Parameter(op.weight.clone())
        layer.bias = nn.Parameter(op.bias.clone())
    return model


def certified(model: nn.Sequential, inputs: Tensor, labels: Tensor, eps: float) -> Tensor:
    """By training's own bound."""
    with torch.no_grad():
        return robust_loss(model, inputs, labels, eps)[1]


def question_of(image: Tensor, label: int, eps: float) -> Property:
    """No class reaches the label's output within eps; not cut off at black and white, as in training."""
    return robustness_property(image, eps, label, [k for k in range(10) if k != label], 10)


def proved(loaded: LoadedNetwork, image: Tensor, label: int, eps: float) -> bool:
    """By proved linear bounds with the slopes of Wong & Kolter and nothing else, layer after layer."""
    network, question, slopes = loaded.network, question_of(image, label, eps), ParallelSlopes()
    region = PaperBounds().at_root(network, question.boxes[0], NEVER)  # for what errors can amount to
    lower, upper = (torch.full_like(region.bounds.lower, side) for side in (-torch.inf, torch.inf))
    region = replace(region, bounds=Bounds(lower, upper))
    for i in network.relus:
        source, part = network.nodes[i].inputs[0], network.slices[i]
        bounds = bound_elements(network, region, source, torch.arange(network.nodes[source].size), slopes, NEVER)
        lower[:, part], upper[:, part] = bounds.lower, bounds.upper
    one, rule = torch.ones(1, 1, 1, dtype=torch.float64), by_slopes(slopes)
    return all(bool(bound_clause(network, region, clause, one, rule) > 0) for clause in question.clauses)


def rooted(loaded: LoadedNetwork, image: Tensor, label: int, eps: float) -> bool:
    """By bough itself, without a split."""
    result = solve(load_problem(loaded, question_of(image, label, eps)), Options(most_bounds=1, timeout=60))
    return result.verdict.value == "verified"


if __name__ == "__main__":
    main()
