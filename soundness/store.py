"""Problems as JSON and back: what is stored of a disagreement, so that a test can replay it for ever.

Numbers are written as Python writes them, which reads back to the same float64; nothing in a file is ever executed.
"""

import json
from pathlib import Path
from typing import Any

import torch
from tests.support import Plain, tensor

from bough.network.graph import Network
from bough.network.ops import Operator
from bough.network.rewrite import GraphBuilder
from bough.problem.problem import Problem
from bough.problem.property import Ball, Box, Clause, Property

Plainly = dict[str, Any]


def network_to_json(network: Network) -> list[Plainly]:
    """One entry per node, in order."""
    return [{"inputs": list(node.inputs), "shape": list(node.shape), **_operator(node.op)} for node in network.nodes]


def _operator(op: Operator) -> Plainly:
    named: Plainly = {"op": type(op).__name__.lower()}
    for name, value in vars(op).items():
        named[name] = value.tolist() if isinstance(value, torch.Tensor) else value
    return named


def network_from_json(nodes: list[Plainly]) -> Network:
    """The network again."""
    builder = GraphBuilder()
    at = 0
    for node in nodes:
        at = _appended(builder, node)
    return builder.build(at)


def _appended(builder: GraphBuilder, node: Plainly) -> int:
    shape, x = node["shape"], node["inputs"]
    match node["op"]:
        case "input":
            at = builder.input(shape)
        case "linear":
            at = builder.linear(x[0], tensor(node["weight"]), tensor(node["bias"]))
        case "conv":
            ways: Plainly = {name: tuple(node[name]) for name in ("stride", "padding", "dilation")}
            at = builder.conv(x[0], tensor(node["weight"]), tensor(node["bias"]), groups=node["groups"], **ways)
        case "scale":
            factor, bias, size = (tensor(node[name]) for name in ("factor", "bias", "bias_magnitude"))
            at = builder.scale(x[0], factor, bias, size)
        case "select":
            at = builder.select(x[0], torch.tensor(node["index"], dtype=torch.int64).reshape(shape))
        case "add":
            at = builder.add(*x)
        case "relu":
            at = builder.relu(x[0])
        case "reshape":
            at = builder.reshape(x[0], shape)
        case other:
            raise ValueError(f"there is no operator '{other}'")
    return at


def problem_to_json(problem: Problem) -> Plainly:
    """Network, boxes and clauses."""
    return {
        "network": network_to_json(problem.network),
        "boxes": [_box(box) for box in problem.property.boxes],
        "clauses": [
            {
                "box": c.box,
                "coefficients": c.coefficients.tolist(),
                "offsets": c.offsets.tolist(),
                "strict": list(c.strict),
            }
            for c in problem.property.clauses
        ],
    }


def _box(box: Box) -> Plainly:
    sides: Plainly = {"lower": box.lower.tolist(), "upper": box.upper.tolist()}
    if box.ball is not None:
        ball = box.ball
        sides["ball"] = {
            "centre": ball.centre.tolist(),
            "scale": ball.scale.tolist(),
            "radius": ball.radius,
            "p": ball.p,
        }
    return sides


def problem_from_json(stored: Plainly) -> Problem:
    """The problem again; counterexamples are replayed by plain matrices."""
    network = network_from_json(stored["network"])
    boxes = []
    for side in stored["boxes"]:
        about = side.get("ball")
        ball = (
            None
            if about is None
            else Ball(tensor(about["centre"]), tensor(about["scale"]), float(about["radius"]), int(about["p"]))
        )
        boxes.append(Box(tensor(side["lower"]), tensor(side["upper"]), ball))
    clauses = [
        Clause(int(c["box"]), tensor(c["coefficients"]), tensor(c["offsets"]), tuple(bool(s) for s in c["strict"]))
        for c in stored["clauses"]
    ]
    return Problem(network, Property(tuple(boxes), tuple(clauses)), Plain(network))


def write(path: Path, record: Plainly) -> None:
    """One file; readable, and without NaN, which JSON does not have."""
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps(record, indent=1, allow_nan=False) + "\n")


def read(path: Path) -> Plainly:
    """What `write` wrote."""
    record: Plainly = json.loads(path.read_text())
    return record
