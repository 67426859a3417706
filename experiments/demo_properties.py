"""Chooses the demo's properties: the demo network and bough itself enter, `properties.json` leaves.

Every candidate image is asked about at growing radii, until an attack succeeds. What the verifier says at each radius
fills the roles the demo wants to show; nothing is placed near a role's edge, so that a slower or faster machine sees
the same verdicts: proofs take at most a quarter of their time limit, and what shall time out resists for far longer.

    python experiments/demo_properties.py             survey, choose, write: most of an hour on two cores
    python experiments/demo_properties.py --check     run the shipped list and compare with what it expects
"""

import argparse
import json
from collections.abc import Iterator
from dataclasses import asdict, dataclass

import numpy as np
import onnx
import torch
from demo_network import attack, build
from onnx import numpy_helper
from torch import nn

import bough
from bough.zoo import demo, shapes

RADII = tuple(round(0.01 * step, 2) for step in range(4, 17))
PROOF_LIMIT, HARD_LIMIT, HARD_SHOWN = 20.0, 60.0, 5.0
ROLES = {"root": 3, "split": 4, "falsified": 3, "timeout": 2}  # how many of each, in the order shown


@dataclass(frozen=True)
class Entry:
    """One line of the list, with the names `demo.problem` takes."""

    name: str
    label: int
    seed: int
    eps: float
    targets: list[int] | None
    timeout: float
    expected: demo.Expected


@dataclass(frozen=True)
class Finding:
    """What a candidate turned out to be good for."""

    role: str
    entry: Entry
    branches: int


def read_model() -> nn.Sequential:
    """The shipped network in PyTorch."""
    model = build()
    weights = {w.name: numpy_helper.to_array(w).copy() for w in onnx.load(demo.NETWORK).graph.initializer}
    model.load_state_dict({name: torch.from_numpy(weight) for name, weight in weights.items()})
    return model.eval()


def attacked(model: nn.Sequential, label: int, seed: int, eps: float) -> bool:
    """Whether projected gradient descent finds another class, from 64 starts."""
    image, labels = torch.from_numpy(shapes.draw(seed, label)).expand(64, -1, -1, -1), torch.full((64,), label)
    return bool((model(attack(model, image, labels, eps, steps=40)).argmax(1) != label).any())


def survey(model: nn.Sequential, label: int, seed: int) -> Iterator[Finding]:
    """The roles one image can fill, from the smallest radius up."""
    name = f"{shapes.CLASS_NAMES[label]}-{seed}"
    for eps in RADII:
        if attacked(model, label, seed, eps):
            if eps > RADII[0]:  # one step further, where the attack needs no luck
                yield Finding(
                    "falsified", Entry(name, label, seed, round(eps + 0.01, 2), None, PROOF_LIMIT, "falsified"), 0
                )
            return
        entry = Entry(name, label, seed, eps, None, PROOF_LIMIT, "verified")
        result = bough.verify(demo.NETWORK, demo.problem(**asdict(entry)).property, timeout=HARD_LIMIT)
        print(
            f"{name:12s} eps {eps:.2f}  {result.verdict.value:9s} {result.branches:5d} branches {result.seconds:6.1f} s"
        )
        if result.verdict is bough.Verdict.VERIFIED and result.seconds < PROOF_LIMIT / 4:
            yield Finding("split" if result.branches >= 10 else "root", entry, result.branches)
        elif result.verdict is bough.Verdict.TIMEOUT:
            yield Finding("timeout", Entry(name, label, seed, eps, None, HARD_SHOWN, "timeout"), result.branches)
            return


def choose(findings: list[Finding]) -> list[Entry]:
    """Fill the roles, the scarce ones first, with as many different classes as there are; largest radius first."""
    chosen: dict[str, list[Entry]] = {}
    taken: dict[int, int] = {}
    for role in ("timeout", "split", "falsified", "root"):
        pool = sorted((f.entry for f in findings if f.role == role), key=lambda entry: -entry.eps)
        chosen[role] = []
        while pool and len(chosen[role]) < ROLES[role]:
            entry = min(pool, key=lambda entry: taken.get(entry.label, 0))
            chosen[role].append(entry)
            taken[entry.label] = taken.get(entry.label, 0) + 1
            pool = [other for other in pool if other.name != entry.name]
    return [entry for role in ROLES for entry in chosen[role]]


def write(entries: list[Entry]) -> None:
    """One line per property, so that changes can be read."""
    lines = ",\n  ".join(json.dumps(asdict(entry)) for entry in entries)
    demo.PROPERTIES.write_text(f"[\n  {lines}\n]\n", encoding="utf-8")


def check() -> bool:
    """Whether every shipped property ends as expected."""
    path, problems = demo.load()
    fine = True
    for problem in problems:
        result = bough.verify(path, problem.property, timeout=problem.timeout)
        agrees = result.verdict.value == problem.expected
        fine &= agrees
        verdict = result.verdict.value + ("" if agrees else f" (expected {problem.expected})")
        print(
            f"{problem.name:18s} eps {problem.eps:.2f} {result.branches:6d} branches {result.seconds:6.1f} s  {verdict}"
        )
    return fine


def main() -> None:
    """Choose the list, or check it."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--check", action="store_true", help="run the shipped list instead")
    parser.add_argument("--seeds", type=int, default=3, help="images per class to look at (default: %(default)s)")
    options = parser.parse_args()
    if options.check:
        raise SystemExit(not check())
    torch.manual_seed(0)
    model = read_model()
    candidates = [(label, seed) for seed in range(options.seeds) for label in range(len(shapes.CLASS_NAMES))]
    entries = choose([finding for label, seed in candidates for finding in survey(model, label, seed)])
    write(entries)
    sizes = np.unique([entry.expected for entry in entries], return_counts=True)
    print(f"wrote {demo.PROPERTIES.name}: " + ", ".join(f"{n} {kind}" for kind, n in zip(*sizes, strict=True)))


if __name__ == "__main__":
    main()
