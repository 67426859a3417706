"""Counterexamples that hide from attacks, in the style of SoundnessBench, each with a repaired twin.

Most are constructed: the margin is a plateau, plus decoys that lead gradients to the other end of the box, minus a
spike of ReLUs around a hidden point, so narrow that random starts miss it and so steep that nothing outside of it feels
it. All numbers are short binary fractions, so files and float32 hold them exactly, and both truths are plain
arithmetic: at the hidden point the margin is at most 0; in the twin the spike is lower than the plateau. The last is
trained, by Adam from a seed, to be unsafe at a hidden point and safe under attack around it.

`python soundness/hidden.py` prints the set, and how many of the points a gradient attack finds.
"""

import sys
from collections.abc import Callable
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path

import torch
from torch import Tensor, nn

if __name__ == "__main__":
    sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

from tests.support import clause, generator, integer, problem, tensor

from bough.network.rewrite import GraphBuilder
from bough.problem.problem import Problem
from bough.problem.property import Box

PLATEAU = 1.0  # the margin where neither spike nor decoy is
DEPTH = 1 / 16  # of a spike below 0
UNIT = 64  # points are multiples of its inverse


@dataclass(frozen=True, eq=False)
class Hidden:
    """An unsafe problem, a point that shows it, and the same with the spike cut off, which is safe."""

    planted: Problem
    witness: tuple[float, ...]
    repaired: Problem


@dataclass(frozen=True, eq=False)
class _Parts:
    """What a constructed network is made of."""

    point: Tensor
    steep: float  # one over the spike's half-width
    decoys: Tensor  # [decoys, inputs]
    starts: Tensor  # [decoys]: each is relu(decoy @ x - start)


def spike(seed: int) -> Hidden:
    """One layer of hats, and a ReLU that is above 0 in the spike only: relu(1 - sum |x - c| / w)."""
    g = generator(seed)
    return _both(_parts(g, integer(g, 2, 4)), _spike)


def deep(seed: int) -> Hidden:
    """A ReLU per input that tells whether it is near, and one that tells whether all of them are."""
    g = generator(seed)
    return _both(_parts(g, integer(g, 2, 3)), _deep)


def woven(seed: int) -> Hidden:
    """The spike's neurons doubled, scaled by powers of two and shuffled among the decoys: no ReLU looks special."""
    g = generator(seed)
    parts = _parts(g, integer(g, 2, 3))
    order = torch.randperm(2 * (2 * len(parts.point) + len(parts.decoys)), generator=g)
    scales = 2.0 ** torch.randint(-6, 7, (len(order),), generator=g).double()
    return _both(parts, lambda p, height: _woven(p, height, order, scales))


def _parts(g: torch.Generator, inputs: int) -> _Parts:
    point = torch.randint(-UNIT // 2, UNIT // 2 + 1, (inputs,), generator=g).double() / UNIT
    towards = torch.where(point >= 0, 1.0, -1.0).double()  # decoys rise towards the point: gradients lead away
    shares = torch.randint(1, 5, (2, inputs), generator=g).double() / 8
    starts = torch.tensor([-float(inputs), -float(inputs) / 2], dtype=torch.float64)
    return _Parts(point, 2.0 ** integer(g, 5, 8), shares * towards, starts)


def _both(parts: _Parts, build: Callable[[_Parts, float], Problem]) -> Hidden:
    raised = (parts.decoys @ parts.point - parts.starts).clamp(min=0).sum()
    return Hidden(
        build(parts, PLATEAU + float(raised) + DEPTH),
        tuple(parts.point.tolist()),
        build(parts, PLATEAU - DEPTH),
    )


def _hats(parts: _Parts) -> tuple[Tensor, Tensor]:
    """Rows and biases of relu((x - c) / w) and relu((c - x) / w), then of the decoys."""
    eye = torch.eye(len(parts.point), dtype=torch.float64) * parts.steep
    rows = torch.cat([eye, -eye, parts.decoys])
    return rows, torch.cat([-eye @ parts.point, eye @ parts.point, -parts.starts])


def _ends(x: GraphBuilder, node: int, inputs: int) -> Problem:
    box = Box(-torch.ones(inputs).double(), torch.ones(inputs).double())
    return problem(x.build(node), [box], [clause([[1.0, -1.0]], [0.0])])


def _spike(parts: _Parts, height: float) -> Problem:
    """Outputs (plateau + decoys, height * spike): the first must stay above the second."""
    inputs, decoys = len(parts.point), len(parts.decoys)
    b = GraphBuilder()
    x = b.relu(b.linear(b.input((inputs,)), *_hats(parts)))
    rows = torch.zeros(1 + decoys, 2 * inputs + decoys, dtype=torch.float64)
    rows[0, : 2 * inputs] = -1.0
    rows[1:, 2 * inputs :] = torch.eye(decoys)
    x = b.relu(b.linear(x, rows, tensor([1.0] + [0.0] * decoys)))
    return _ends(b, _output(b, x, decoys, height), inputs)


def _output(b: GraphBuilder, x: int, decoys: int, height: float) -> int:
    return b.linear(x, tensor([[0.0] + [1.0] * decoys, [height] + [0.0] * decoys]), tensor([PLATEAU, 0.0]))


def _deep(parts: _Parts, height: float) -> Problem:
    """As above, the spike as relu(sum of near_k - (inputs - 1)) with near_k = relu(1 - |x_k - c_k| / w)."""
    inputs, decoys = len(parts.point), len(parts.decoys)
    b = GraphBuilder()
    x = b.relu(b.linear(b.input((inputs,)), *_hats(parts)))
    near = torch.zeros(inputs + decoys, 2 * inputs + decoys, dtype=torch.float64)
    near[:inputs, :inputs] = near[:inputs, inputs : 2 * inputs] = -torch.eye(inputs).double()
    near[inputs:, 2 * inputs :] = torch.eye(decoys)
    x = b.relu(b.linear(x, near, tensor([1.0] * inputs + [0.0] * decoys)))
    every = torch.zeros(1 + decoys, inputs + decoys, dtype=torch.float64)
    every[0, :inputs], every[1:, inputs:] = 1.0, torch.eye(decoys)
    x = b.relu(b.linear(x, every, tensor([1.0 - inputs] + [0.0] * decoys)))
    return _ends(b, _output(b, x, decoys, height), inputs)


def _woven(parts: _Parts, height: float, order: Tensor, scales: Tensor) -> Problem:
    """Every first ReLU twice, each half of what it was to the next layer, at another scale and place."""
    inputs, decoys = len(parts.point), len(parts.decoys)
    rows, bias = (torch.cat([t, t])[order] for t in _hats(parts))
    b = GraphBuilder()
    x = b.relu(b.linear(b.input((inputs,)), rows * scales[:, None], bias * scales))
    mix = torch.zeros(1 + decoys, 2 * inputs + decoys, dtype=torch.float64)
    mix[0, : 2 * inputs], mix[1:, 2 * inputs :] = -1.0, torch.eye(decoys)
    mix = torch.cat([mix, mix], dim=1)[:, order] / 2 / scales
    x = b.relu(b.linear(x, mix, tensor([1.0] + [0.0] * decoys)))
    return _ends(b, _output(b, x, decoys, height), inputs)


@lru_cache(maxsize=4)
def trained(seed: int) -> Hidden:
    """Two inputs, two layers of eight ReLUs: trained to have margin -1/4 at one point and 1 elsewhere.

    The offsets are moved afterwards, by what the network has become: below the hidden point's margin for the planted
    problem, below every linear piece's for its twin.
    """
    from soundness.truth import enumerated, lowest

    g = generator(seed)
    point = torch.randint(-UNIT // 2, UNIT // 2 + 1, (2,), generator=g).float() / UNIT
    layers = [(torch.randn(o, i, generator=g) / i**0.5, torch.randn(o, generator=g) / 2) for i, o in _SIZES]
    modules = [nn.Linear(i, o) for i, o in _SIZES]
    network = nn.Sequential(modules[0], nn.ReLU(), modules[1], nn.ReLU(), modules[2])
    for module, (weight, bias) in zip(modules, layers, strict=True):
        with torch.no_grad():
            module.weight.copy_(weight)
            module.bias.copy_(bias)
    optimiser = torch.optim.Adam(network.parameters(), lr=0.02)
    for _ in range(300):
        x = torch.rand(64, 2, generator=g) * 2 - 1
        far = (x - point).abs().amax(dim=1) > 0.2
        loss = (1 - network(x[far])).clamp(min=0).square().mean() + 2 * (network(point[None]) + 0.25).square().mean()
        optimiser.zero_grad()
        loss.backward()
        optimiser.step()
    b = GraphBuilder()
    node, box = b.input((2,)), Box(-torch.ones(2).double(), torch.ones(2).double())
    for module in modules:
        node = node if module is modules[0] else b.relu(node)
        node = b.linear(node, module.weight.detach().double(), module.bias.detach().double())
    built, row = b.build(node), clause([[1.0]], [0.0])
    least, lowest_point = lowest(built, box, enumerated(built, box), row)
    at = tuple(float(v) for v in lowest_point)
    planted = problem(built, [box], [clause([[1.0]], [least + 1e-3])])
    return Hidden(planted, at, problem(built, [box], [clause([[1.0]], [least - 1e-3])]))


_SIZES = ((2, 8), (8, 8), (8, 1))
STYLES: dict[str, Callable[[int], Hidden]] = {"spike": spike, "deep": deep, "woven": woven, "trained": trained}
SET = [(style, seed) for style in ("spike", "deep", "woven") for seed in range(4)] + [("trained", 0), ("trained", 1)]


def main() -> None:
    """The set, and what an attack makes of it."""
    from bough.budget import Deadline
    from bough.falsify.pgd import GradientAttack
    from soundness.truth import margin_at

    hits = 0
    for style, seed in SET:
        hidden = STYLES[style](seed)
        points = next(iter(GradientAttack().candidates(hidden.planted, Deadline.never())))[1]
        margins = [margin_at(hidden.planted, x) for x in points[:1].tolist()]
        hit = any(m is not None and m <= 0 for m in margins)
        hits += hit
        at = margin_at(hidden.planted, hidden.witness)
        relus = hidden.planted.network.neurons
        print(f"{style} {seed}: {len(hidden.witness)} inputs, {relus} ReLUs, margin {float(at or 0):.3g}, found: {hit}")
    print(f"{len(SET)} problems; the attack finds {hits}")


if __name__ == "__main__":
    main()
