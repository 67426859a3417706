"""Trains the demo's network on drawn shapes: a seed enters, `shapes.onnx` and its accuracies leave.

Adversarial training (projected gradient descent) with a light interval-bound term: accurate, robust enough to be
verified by branch and bound on two cores, and not so tame that every property is decided at the root.

    python experiments/demo_network.py            about two minutes on one CPU core
"""

import argparse
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import onnxruntime
import torch
from numpy.typing import NDArray
from onnx import TensorProto, helper, numpy_helper
from torch import Tensor, nn
from torch.nn import functional

from laboratory import shapes

DESTINATION = Path(__file__).parent.parent / "src" / "bough" / "zoo" / "demo" / "shapes.onnx"
OPSET = 17
IR_VERSION = 8  # the one that came with opset 17: older runtimes read it too


@dataclass(frozen=True)
class Recipe:
    """Everything the trained weights depend on."""

    seed: int = 1
    images: int = 20_000
    epochs: int = 16
    batch: int = 128
    eps: float = 0.08
    interval_weight: float = 0.02
    learning_rate: float = 2e-3
    decay: float = 2e-4


def build() -> nn.Sequential:
    """conv-relu-conv-relu-linear-relu-linear: 512 + 256 + 64 = 832 ReLUs."""
    return nn.Sequential(
        nn.Conv2d(1, 8, 4, stride=2, padding=1),
        nn.ReLU(),
        nn.Conv2d(8, 16, 4, stride=2, padding=1),
        nn.ReLU(),
        nn.Flatten(),
        nn.Linear(16 * (shapes.SIDE // 4) ** 2, 64),
        nn.ReLU(),
        nn.Linear(64, len(shapes.CLASS_NAMES)),
    )


def attack(model: nn.Module, x: Tensor, label: Tensor, eps: float, steps: int) -> Tensor:
    """The last point of projected gradient ascent on the loss, started at random in the box (clipped to [0, 1])."""
    lower, upper = (x - eps).clamp(0, 1), (x + eps).clamp(0, 1)
    point = lower + (upper - lower) * torch.rand_like(x)
    for _ in range(steps):
        point.requires_grad_(True)
        loss = functional.cross_entropy(model(point), label, reduction="sum")
        (gradient,) = torch.autograd.grad(loss, point)
        point = point.detach() + 2.5 * eps / steps * gradient.sign()
        point = torch.minimum(torch.maximum(point, lower), upper)
    return point


def worst_logits(model: nn.Sequential, x: Tensor, label: Tensor, eps: float) -> Tensor:
    """Interval-bound logits: the label's lower bound, the others' upper bounds."""
    lower, upper = (x - eps).clamp(0, 1), (x + eps).clamp(0, 1)
    for layer in model:
        lower, upper = interval(layer, lower, upper)
    own = functional.one_hot(label, upper.shape[1]).bool()
    return torch.where(own, lower, upper)


def interval(layer: nn.Module, lower: Tensor, upper: Tensor) -> tuple[Tensor, Tensor]:
    """Interval arithmetic through one layer."""
    if not isinstance(layer, nn.Linear | nn.Conv2d):
        return layer(lower), layer(upper)
    centre, radius = (upper + lower) / 2, (upper - lower) / 2
    if isinstance(layer, nn.Linear):
        radius = functional.linear(radius, layer.weight.abs())
    else:
        radius = functional.conv2d(radius, layer.weight.abs(), None, layer.stride, layer.padding)
    middle = layer(centre)
    return middle - radius, middle + radius


def train(recipe: Recipe) -> nn.Sequential:
    """The trained network; perturbation and interval term grow over the first half of the epochs."""
    torch.manual_seed(recipe.seed)
    images, labels = (torch.from_numpy(part) for part in shapes.dataset(recipe.images, recipe.seed))
    model = build()
    optimiser = torch.optim.AdamW(model.parameters(), lr=recipe.learning_rate, weight_decay=recipe.decay)
    schedule = torch.optim.lr_scheduler.CosineAnnealingLR(optimiser, recipe.epochs)
    for epoch in range(recipe.epochs):
        started, total = time.perf_counter(), 0.0
        growth = min(1.0, epoch / (recipe.epochs / 2))
        for chosen in torch.randperm(recipe.images).split(recipe.batch):
            x, label = images[chosen], labels[chosen]
            loss = robust_loss(model, x, label, recipe, growth)
            optimiser.zero_grad()
            loss.backward()
            optimiser.step()
            total += float(loss.detach()) * len(chosen)
        schedule.step()
        seconds = time.perf_counter() - started
        print(f"epoch {epoch + 1:2d}/{recipe.epochs}  loss {total / recipe.images:.4f}  {seconds:.1f} s", flush=True)
    return model.eval()


def robust_loss(model: nn.Sequential, x: Tensor, label: Tensor, recipe: Recipe, growth: float) -> Tensor:
    """Cross-entropy at an attacked point, plus a little of the interval bound's."""
    eps, weight = recipe.eps * growth, recipe.interval_weight * growth
    loss = functional.cross_entropy(model(attack(model, x, label, eps, steps=5)), label)
    if weight:
        loss = (1 - weight) * loss + weight * functional.cross_entropy(worst_logits(model, x, label, eps), label)
    return loss


def export(model: nn.Sequential, path: Path) -> None:
    """Write the network as ONNX, one node per layer, float32."""
    nodes, weights, value = [], [], "image"
    for position, layer in enumerate(model):
        output = "logits" if position == len(model) - 1 else f"value_{position}"
        inputs = [value]
        for name, parameter in layer.named_parameters():
            inputs.append(f"{position}.{name}")
            weights.append(numpy_helper.from_array(parameter.detach().numpy(), inputs[-1]))
        operator, attributes = onnx_operator(layer)
        nodes.append(helper.make_node(operator, inputs, [output], name=f"{operator.lower()}_{position}", **attributes))
        value = output
    image = helper.make_tensor_value_info("image", TensorProto.FLOAT, [1, 1, shapes.SIDE, shapes.SIDE])
    logits = helper.make_tensor_value_info("logits", TensorProto.FLOAT, [1, len(shapes.CLASS_NAMES)])
    graph = helper.make_graph(nodes, "shapes", [image], [logits], weights)
    imports = [helper.make_opsetid("", OPSET)]
    file = helper.make_model(graph, opset_imports=imports, ir_version=IR_VERSION, producer_name="bough")
    onnx.checker.check_model(file, full_check=True)
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(file.SerializeToString(deterministic=True))


def onnx_operator(layer: nn.Module) -> tuple[str, dict[str, Any]]:
    """The ONNX operator that is this layer, and its attributes."""
    if isinstance(layer, nn.Conv2d):
        pads = [int(p) for p in layer.padding] * 2
        return "Conv", {"kernel_shape": list(layer.kernel_size), "strides": list(layer.stride), "pads": pads}
    if isinstance(layer, nn.Linear):
        return "Gemm", {"transB": 1}
    return ("Flatten", {"axis": 1}) if isinstance(layer, nn.Flatten) else ("Relu", {})


def check_export(model: nn.Sequential, path: Path, images: Tensor) -> float:
    """Largest difference between the file, run by ONNX Runtime, and the trained model."""
    session = onnxruntime.InferenceSession(path, providers=["CPUExecutionProvider"])
    outputs: list[NDArray[np.float32]] = [session.run(None, {"image": x[None].numpy()})[0] for x in images]
    with torch.no_grad():
        return float((torch.from_numpy(np.concatenate(outputs)) - model(images)).abs().max())


def accuracies(model: nn.Sequential, recipe: Recipe) -> dict[str, float]:
    """Accuracy on fresh images: clean, attacked at the training radius and half of it, proved by intervals."""
    x, label = (torch.from_numpy(part) for part in shapes.dataset(2000, recipe.seed + 10_000))
    results = {"clean": hits(model(x), label)}
    for eps in (recipe.eps / 2, recipe.eps):
        results[f"PGD, eps {eps:g}"] = hits(model(attack(model, x, label, eps, steps=40)), label)
        results[f"proved by intervals, eps {eps:g}"] = hits(worst_logits(model, x, label, eps), label)
    return results


def hits(logits: Tensor, label: Tensor) -> float:
    """Share of rows whose largest entry is the label's."""
    return float((logits.argmax(1) == label).double().mean())


def main() -> None:
    """Train, export, check, report."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", type=Path, default=DESTINATION, help="where the ONNX file goes (default: %(default)s)")
    parser.add_argument("--seed", type=int, default=Recipe.seed)
    parser.add_argument("--epochs", type=int, default=Recipe.epochs)
    parser.add_argument("--eps", type=float, default=Recipe.eps, help="radius trained for")
    parser.add_argument("--interval-weight", type=float, default=Recipe.interval_weight)
    options = parser.parse_args()
    torch.set_num_threads(1)  # the sums' order, and so the weights, do not depend on the machine's cores
    recipe = Recipe(options.seed, epochs=options.epochs, eps=options.eps, interval_weight=options.interval_weight)
    model = train(recipe)
    export(model, options.out)
    difference = check_export(model, options.out, torch.from_numpy(shapes.dataset(100, recipe.seed + 20_000)[0]))
    print(f"wrote {options.out.name}, {options.out.stat().st_size} bytes")
    print(f"largest difference from ONNX Runtime: {difference:.1e}")
    for name, share in accuracies(model, recipe).items():
        print(f"{name}: {100 * share:.1f} %")


if __name__ == "__main__":
    main()
