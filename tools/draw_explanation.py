"""Draw the pictures of the documentation's explanations, from searches and bounds that are computed here.

    python tools/draw_explanation.py [--out docs/pictures]

Every figure is white with dark ink, so that it reads on light and dark pages and in print. The same code gives the
same files.
"""

# ruff: noqa: INP001, E402 - a program, which finds the tests' helpers beside it

import argparse
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

ROOT = Path(__file__).parents[1]
sys.path.insert(0, str(ROOT))

import numpy as np
import torch
from tests.support import clause, generator, normal, planet_optimum, problem, sequential, tensor

from bough import drawing
from bough.api import load_network, load_problem, solve
from bough.bounds.ascent import Ascent
from bough.bounds.base import AbstractSession
from bough.bounds.dual import DualAscent
from bough.bounds.intermediate import TightBounds
from bough.bounds.linear import Region, bound_clause, by_slopes
from bough.bounds.lp import PlanetLP
from bough.bounds.relaxation import AdaptiveSlopes, ParallelSlopes
from bough.branching.base import KNOWN_RULES, RuleSettings
from bough.branching.improvement import improvements
from bough.budget import Deadline
from bough.domain.batch import Bounds, DomainBatch
from bough.drawing import BLUE, FAINT, GREEN, INK, MUTED, ORANGE, SKY, VERMILION
from bough.network.graph import Network
from bough.network.ops import Linear
from bough.options import Options
from bough.problem.problem import Problem
from bough.problem.property import Box
from bough.search.ahead import CountedLookAhead
from bough.search.observe import AbstractObserver, Family
from bough.zoo import demo

if TYPE_CHECKING:
    from matplotlib.axes import Axes

    from bough.search.loop import SearchState

NEVER = Deadline.never()
FIXED = TightBounds(refresh=False)
STYLE = {"svg.fonttype": "none", "font.family": "sans-serif", "axes.grid": False, "path.simplify_threshold": 0.5}
LETTERS = "abcdefghij"
SOLID = {"boxstyle": "round,pad=0.35", "facecolor": "white", "edgecolor": MUTED}


def main() -> None:
    """Draw all of them."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", type=Path, default=ROOT / "docs" / "pictures")
    folder = parser.parse_args().out
    folder.mkdir(parents=True, exist_ok=True)
    torch.set_num_threads(1)
    for draw in (draw_search, draw_relaxation, draw_splitting, draw_ascent, draw_graph, draw_decision):
        with drawing.style(**STYLE):
            draw(folder / f"{draw.__name__.removeprefix('draw_')}.svg")


def axes(count: int, width: float, height: float, **more: Any) -> tuple[Any, list["Axes"]]:
    """A figure of some panels side by side."""
    from matplotlib.figure import Figure

    figure = Figure(figsize=(width, height), layout="constrained")
    return figure, list(np.atleast_1d(figure.subplots(1, count, **more)))


def bare(panel: "Axes") -> None:
    """No frame: what is drawn has no axes."""
    panel.set_axis_off()


# Branch and bound: a search over two inputs


@dataclass(frozen=True, eq=False)
class Node:
    """One subproblem of a search: its bound, how it was made, and the inputs that belong to it."""

    signs: torch.Tensor
    bound: float
    closed: bool
    split: int | None  # the ReLU it is split at
    children: tuple["Node", ...]

    def leaves(self) -> Iterator["Node"]:
        """From left to right."""
        if not self.children:
            yield self
        for child in self.children:
            yield from child.leaves()


class Watched(AbstractObserver):
    """Keeps every family of a search."""

    def __init__(self) -> None:
        self.families: list[Family] = []

    def seen(self, state: "SearchState", seconds: float) -> None:
        """Nothing is looked at between steps."""

    def born(self, family: Family) -> None:
        """Keep it."""
        self.families.append(family)

    def tree(self) -> Node:
        """The whole search, of one domain a step."""
        root, *steps = self.families
        by_signs = {_key(f.split.domains.signs[0]): f for f in steps if f.split is not None}
        return self._node(root, 0, by_signs)

    def _node(self, family: Family, row: int, by_signs: dict[bytes, Family]) -> Node:
        signs = family.children.signs[row]
        below = by_signs.get(_key(signs))
        choice = None if below is None or below.split is None else int(below.split.choices[0])
        children = () if below is None else tuple(self._node(below, k, by_signs) for k in (0, 1))
        return Node(signs, float(family.children.lower[row]), bool(family.closed[row]), choice, children)


def _key(signs: torch.Tensor) -> bytes:
    return signs.numpy().tobytes()


def two_inputs() -> Problem:
    """Four and three ReLUs; the margin is above 0 everywhere, by little."""
    g = generator(77)  # whose leaves are all large enough to be seen
    first, second = (normal(g, 4, 2), normal(g, 4) * 0.4), (normal(g, 3, 4) / 2, normal(g, 3) * 0.3)
    network = sequential(first, second, (normal(g, 1, 3) / 1.7, normal(g, 1) * 0.1))
    box = Box(tensor([-1.0, -1.0]), tensor([1.0, 1.0]))
    exact = solve(problem(network, [box], [clause([[1.0]], [0.0])]), Options(gap=1e-6, bounds="lp", attack=False))
    return problem(network, [box], [clause([[1.0]], [exact.lower_bound - 0.04])])


def draw_search(path: Path) -> None:
    """The box cut into the leaves of a real tree, and the tree."""
    query, watched = two_inputs(), Watched()
    options = Options(bounds="lp", intermediate="fixed", branching="babsr", batch=1, attack=False)
    result = solve(query, options, (watched,))
    tree = watched.tree()
    leaves = list(tree.leaves())
    name = _relu_names(query.network)
    figure, (left, right) = axes(2, 8.4, 4.3, gridspec_kw={"width_ratios": [1, 1.35]})
    _draw_box(left, query, leaves)
    _draw_tree(right, tree, leaves, name)
    left.set_title("the inputs: every leaf is a part of the box")
    right.set_title(f"the search: {result.branches // 2} splits, every leaf above 0")
    drawing.save(figure, path)


def _relu_names(network: Network) -> list[str]:
    return [f"{layer}.{k + 1}" for layer, i in enumerate(network.relus, 1) for k in range(network.nodes[i].size)]


def _draw_box(panel: "Axes", query: Problem, leaves: list[Node]) -> None:
    side = np.linspace(-1, 1, 61)
    x, y = np.meshgrid(side, side)
    margin, before = _looked_at(query, np.stack([x.ravel(), y.ravel()], axis=1))
    for k, leaf in enumerate(leaves):
        signs = leaf.signs.numpy()
        inside = (signs * before)[:, signs != 0].min(axis=1).reshape(x.shape)  # above 0 in the leaf only
        if (inside > 0).any():
            panel.contourf(x, y, inside, levels=[0, np.inf], colors=[("#dcebf5", "#fbe6da")[k % 2]])
            panel.contour(x, y, inside, levels=[0], colors=[INK], linewidths=1.2)
            row, column = _deepest(inside > 0)
            panel.text(side[column], side[row], LETTERS[k], ha="center", va="center", fontweight="bold")
    levels = panel.contour(x, y, margin.reshape(x.shape), levels=7, colors=[BLUE], linewidths=0.7, linestyles="dashed")
    panel.clabel(levels, fmt="%.2g", fontsize=7)
    panel.set(xlabel="first input", ylabel="second input", aspect="equal", xticks=[-1, 0, 1], yticks=[-1, 0, 1])


def _looked_at(query: Problem, points: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """The margin at points, and the input of every ReLU there."""
    value, before = torch.from_numpy(points), []
    for node in query.network.nodes[1:]:
        if isinstance(node.op, Linear):
            value = value @ node.op.weight.T + node.op.bias
        else:
            before.append(value)
            value = value.relu()
    return query.clauses[0].margins(value).numpy(), torch.cat(before, dim=1).numpy()


def _deepest(inside: np.ndarray) -> tuple[int, int]:
    """A point far from the region's rim, for its name."""
    depth, left = np.zeros(inside.shape), np.pad(inside, 1)
    while left.any():
        depth += left[1:-1, 1:-1]
        inner = left[1:-1, 1:-1] & left[:-2, 1:-1] & left[2:, 1:-1] & left[1:-1, :-2] & left[1:-1, 2:]
        left = np.pad(inner, 1)
    row, column = np.unravel_index(int(depth.argmax()), depth.shape)
    return int(row), int(column)


def _draw_tree(panel: "Axes", tree: Node, leaves: list[Node], name: list[str]) -> None:
    bare(panel)
    place = {id(leaf): float(k) for k, leaf in enumerate(leaves)}
    deepest = 0

    def put(node: Node, depth: int) -> float:
        nonlocal deepest
        deepest = max(deepest, depth)
        if node.children:
            positions = [put(child, depth + 1) for child in node.children]
            place[id(node)] = sum(positions) / 2
            for at, word in zip(positions, ("blocked", "passing"), strict=True):
                panel.plot([place[id(node)], at], [-depth, -depth - 1], color=MUTED, lw=1.1, zorder=1)
                middle = (place[id(node)] + at) / 2
                panel.text(middle, -depth - 0.5, word, fontsize=7, color=MUTED, ha="center", bbox=SOLID | {"lw": 0})
        x = place[id(node)]
        words = f"bound {_told(node.bound)}"
        if node.split is not None:
            words += f"\nsplit ReLU {name[node.split]}"
        else:
            words = f"{LETTERS[leaves.index(node)]}:  {_told(node.bound)}"
        edge = VERMILION if node.split is not None else GREEN
        box = SOLID | {"edgecolor": edge, "lw": 1.4}
        panel.text(x, -depth, words, ha="center", va="center", fontsize=8, bbox=box, zorder=2)
        return x

    put(tree, 0)
    panel.set(xlim=(-0.6, len(leaves) - 0.4), ylim=(-deepest - 0.5, 0.45))


def _told(bound: float) -> str:
    return "empty" if bound == float("inf") else f"{bound:.2f}".replace("-", "−")


# Relaxations


def draw_relaxation(path: Path) -> None:
    """One ReLU: its graph, the triangle, and lines below."""
    figure, panels = axes(3, 8.4, 2.9, sharey=True)
    l, u = -1.2, 1.6
    z = np.array([-1.6, 0, 2.0])
    titles = ("what the network does", "Planet: the triangle", "linear: one line above, one below")
    for panel, title in zip(panels, titles, strict=True):
        panel.plot(z, np.maximum(z, 0), color=INK, lw=1.8, zorder=3)
        panel.set(
            xticks=[l, 0, u], xticklabels=["l", "0", "u"], yticks=[0, u], yticklabels=["0", "u"], xlabel="input z"
        )
        panel.set_title(title)
        for side in (l, u):
            panel.axvline(side, color=FAINT, lw=1, zorder=0)
    panels[0].set_ylabel("output x")
    panels[0].annotate("x = max(z, 0)", (1.0, 1.0), (-1.4, 1.3), arrowprops={"arrowstyle": "-", "color": MUTED})
    panels[1].fill([l, 0, u], [0, 0, u], color=SKY, alpha=0.45, lw=0)
    panels[1].plot([l, u], [0, u], color=BLUE, lw=1.5, ls=(0, (5, 1.5)))
    panels[1].annotate(
        "chord", (-0.2, (u / (u - l)) * (-0.2 - l)), (-1.4, 1.3), arrowprops={"arrowstyle": "-", "color": MUTED}
    )
    panels[2].plot([l, u], [0, u], color=BLUE, lw=1.5, ls=(0, (5, 1.5)))
    for slope, dashes in ((0.0, ":"), (0.35, "-"), (0.7, "--"), (1.0, "-.")):
        panels[2].plot([l, u], [slope * l, slope * u], color=VERMILION, lw=1.3, ls=dashes)
    panels[2].text(-0.95, -1.2, "slope 1", color=VERMILION)
    panels[2].text(0.75, -0.28, "slope 0", color=VERMILION)
    panels[2].set_ylim(-1.4, 2.1)
    drawing.save(figure, path)


def one_input() -> Problem:
    """A function of one input, by four and three ReLUs."""
    g = generator(11)
    first, second = (normal(g, 4, 1) * 1.4, normal(g, 4) * 0.5), (normal(g, 3, 4) / 1.5, normal(g, 3) * 0.3)
    network = sequential(first, second, (normal(g, 1, 3), normal(g, 1) * 0.1))
    return problem(network, [Box(tensor([-1.0]), tensor([1.0]))], [clause([[1.0]], [0.0])])


def draw_splitting(path: Path) -> None:
    """A function of one input and the least value that the Planet relaxation allows, before and after a split."""
    query = one_input()
    planet = PlanetLP(FIXED).prepare(query)
    root = planet.root(float("inf"), NEVER).domains
    best = _best_split(planet, root)
    children = planet.bound(planet.split(root, best), float("inf"), NEVER).domains
    xs = np.linspace(-1, 1, 161)
    exact, _ = _looked_at(query, xs[:, None])
    figure, panels = axes(3, 8.4, 2.9, sharey=True)
    name = _relu_names(query.network)[int(best)]
    titles = ("no split", f"ReLU {name} blocked", f"ReLU {name} passing")
    for panel, title, domains in zip(panels, titles, (root, children[_row(0)], children[_row(1)]), strict=True):
        allowed = _allowed(query, domains, xs)
        panel.plot(xs, exact, color=INK, lw=1.6)
        panel.plot(xs, allowed, color=BLUE, lw=1.5, ls=(0, (5, 1.5)))
        panel.fill_between(xs, allowed, exact, where=np.isfinite(allowed), color=SKY, alpha=0.3, lw=0)
        bound = float(domains.lower[0])
        panel.axhline(bound, color=VERMILION, lw=1.2, ls=":")
        panel.set_title(f"{title}: bound {bound:.2f}".replace("-", "−"))
        panel.set_xlabel("input")
    panels[0].set_ylabel("margin")
    low, high = min(float(root.lower[0]), exact.min()), exact.max()
    panels[0].set_ylim(low - 0.15 * (high - low), high + 0.1 * (high - low))
    drawing.save(figure, path)


def _best_split(planet: AbstractSession, root: DomainBatch) -> torch.Tensor:
    candidates = root.bounds.ambiguous()[0].nonzero()[:, 0]
    worst = CountedLookAhead(planet, NEVER, root).estimate(root, candidates[None])[0].min(dim=1).values
    return candidates[worst.argmax()][None]


def _row(k: int) -> torch.Tensor:
    return torch.tensor([k])


def _allowed(query: Problem, domains: DomainBatch, xs: np.ndarray) -> np.ndarray:
    """The relaxation's least margin with the input held at x; NaN where x is no point of the domain."""
    low, high = domains.bounds.lower[0], domains.bounds.upper[0]
    values = [planet_optimum(query.network, Box(tensor([x]), tensor([x])), low, high, query.clauses[0]) for x in xs]
    return np.where(np.isfinite(values), values, np.nan)


def demo_problem() -> Problem:
    """The first question of the demo that is true and that its root's relaxation does not answer."""
    path, problems = demo.load()
    loaded = load_network(path)
    for one in problems:
        query = load_problem(loaded, one.property)
        if one.expected == "verified" and float(_planet(query).min()) < 0:
            return query
    raise SystemExit("every problem of the demo is proved at the root")


def _planet(query: Problem) -> torch.Tensor:
    return PlanetLP(FIXED, early_stop=False).prepare(query).root(float("inf"), NEVER).domains.lower


def draw_ascent(path: Path) -> None:
    """The root's bound by each method, over the same ReLU bounds."""
    query = demo_problem()
    box = query.property.boxes[0]
    region = FIXED.at_root(query.network, box, NEVER)
    exact = _planet(query)
    worst = int(exact.argmin())
    steps = (0, 1, 2, 3, 5, 8, 12, 20, 30, 50, 80, 120, 200)
    bounds = [_ascended(query, count)[worst] for count in steps]
    lines = [
        ("Wong-Kolter", _by(query, region, ParallelSlopes(), worst), ORANGE, (0, (3, 1, 1, 1))),
        ("CROWN", _by(query, region, AdaptiveSlopes(), worst), VERMILION, (0, (6, 1.5, 1.2, 1.5))),
        ("Planet LP", float(exact[worst]), BLUE, (0, (5, 1.5))),
    ]
    figure, (panel,) = axes(1, 6.4, 3.2)
    for name, value, colour, dashes in lines:
        panel.axhline(value, color=colour, lw=1.4, ls=dashes)
        panel.text(steps[-1], value + 0.07, f"{name}: −{-value:.3g}", ha="right")
    panel.plot(steps, bounds, color=GREEN, marker="o", ms=4, mfc="white", lw=1.6)
    panel.text(3.4, float(bounds[3]) - 0.1, "dual ascent", va="top")
    panel.set_xscale("symlog", linthresh=1)
    panel.set_ylim(top=-1.2)
    panel.set(xlabel="steps of ascent", ylabel="proved lower bound", xticks=[0, 1, 2, 5, 10, 20, 50, 100, 200])
    panel.set_xticklabels([str(k) for k in (0, 1, 2, 5, 10, 20, 50, 100, 200)])
    drawing.save(figure, path)


def _ascended(query: Problem, steps: int) -> torch.Tensor:
    ascent = Ascent(steps=steps)
    return DualAscent(ascent, ascent, FIXED).prepare(query).root(float("inf"), NEVER).domains.lower


def _by(query: Problem, region: Region, slopes: Any, row: int) -> float:
    target = query.clauses[row]
    return float(
        bound_clause(query.network, region, target, torch.ones(1, 1, 1, dtype=torch.float64), by_slopes(slopes))
    )


# The GNN


@dataclass(frozen=True, eq=False)
class Scored:
    """What the shipped weights say of a problem's root, and what each split really gains; ReLUs by their number."""

    bounds: Bounds
    scores: dict[int, float]
    gains: dict[int, float]  # m, Eq. 8


def scored(query: Problem) -> Scored:
    """By dual ascent, as the weights were trained."""
    from bough.learning.scene import Graph, see

    rule: Any = KNOWN_RULES.entry("gnn").make(RuleSettings(bounder="dual"))
    bounding = DualAscent(intermediate=FIXED).prepare(query)
    root = bounding.root(0.0, NEVER).domains
    relaxed = bounding.relaxed(root, NEVER)
    with torch.no_grad():
        predicted = rule.rule.model(Graph.of(query, root, relaxed), see(query, root, relaxed))[0]
    candidates = root.bounds.ambiguous()[0].nonzero()[:, 0]
    many = root[torch.zeros(len(candidates), dtype=torch.int64)]
    children = bounding.bound(bounding.split(many, candidates), 0.0, NEVER).domains.lower
    gains = improvements(root.lower, children.reshape(1, -1, 2), 0.0)[0]
    scores = dict(zip(relaxed.neurons.tolist(), predicted.tolist(), strict=True))
    candidate_scores = {k: scores[k] for k in candidates.tolist()}
    return Scored(root.bounds, candidate_scores, dict(zip(candidates.tolist(), gains.tolist(), strict=True)))


def draw_graph(path: Path) -> None:
    """The network as a graph, which way messages go, and what the shipped weights say of it."""
    query = two_inputs()
    ratings, network = scored(query), query.network
    names = _relu_names(network)
    layers = [network.inputs, *(network.nodes[i].size for i in network.relus), 1]
    at = [[(2.1 * k, (n - 1) / 2 - j) for j in range(n)] for k, n in enumerate(layers)]
    weights = [node.op.weight for node in network.nodes[1:] if isinstance(node.op, Linear)]
    figure, (panel,) = axes(1, 7.4, 4.1)
    bare(panel)
    for k, weight in enumerate(weights):
        for j, i in np.ndindex(*weight.shape):
            (x0, y0), (x1, y1) = at[k][i], at[k + 1][j]
            panel.plot([x0, x1], [y0, y1], color="#bbbbbb", lw=0.4 + 1.6 * abs(float(weight[j, i])), zorder=1)
    for k, (places, word) in enumerate(zip(at, ("inputs", "ReLUs 1", "ReLUs 2", "output"), strict=True)):
        panel.text(places[0][0], -2.55, word, ha="center", color=MUTED)
        for j, (x, y) in enumerate(places):
            number = sum(layers[1:k]) + j
            if 0 < k < len(layers) - 1:
                _draw_relu(panel, (x, y), ratings, number, names[number])
            else:
                panel.plot(x, y, "s", ms=13, mfc="white", mec=INK, zorder=2)
    far = at[-1][0][0]
    for y, start, end, colour, words in (
        (2.35, 0, far, BLUE, "forward pass: features of bounds, multipliers, primal values"),
        (2.95, far, 0, VERMILION, "backward pass: how much the output's bound depends on each ReLU"),
    ):
        panel.annotate("", (end, y), (start, y), arrowprops={"arrowstyle": "-|>", "color": colour, "lw": 1.6})
        panel.text(far / 2, y + 0.1, words, ha="center", fontsize=8, color=colour)
    panel.set(xlim=(-0.5, far + 0.6), ylim=(-2.75, 3.4))
    drawing.save(figure, path)


def _draw_relu(panel: "Axes", place: tuple[float, float], ratings: Scored, number: int, name: str) -> None:
    x, y = place
    best = number in ratings.scores and ratings.scores[number] == max(ratings.scores.values())
    ambiguous = number in ratings.scores
    face = ORANGE if best else SKY if ambiguous else "white"
    panel.plot(x, y, "o", ms=19, mfc=face, mec=INK, mew=1.0, zorder=2)
    panel.text(x, y, name, ha="center", va="center", fontsize=8, zorder=3)
    if not ambiguous:
        word = "passing" if float(ratings.bounds.lower[0, number]) >= 0 else "blocked"
        panel.text(x + 0.24, y - 0.24, word, fontsize=7, color=MUTED, bbox=PLAIN, zorder=3)
        return
    words = f"score {ratings.scores[number]:.2f}\nm {ratings.gains[number]:.2f}".replace("-", "−")
    panel.text(x + 0.24, y - 0.34, words, fontsize=7, bbox=PLAIN, zorder=3)


PLAIN = {"boxstyle": "round,pad=0.1", "facecolor": "white", "edgecolor": "none", "alpha": 0.85}


def draw_decision(path: Path) -> None:
    """From scores to a split: the fail-safe."""
    figure, (panel,) = axes(1, 8.4, 2.5)
    bare(panel)
    boxes = {
        "scores": (0.0, 0.0, "scores of all\nambiguous ReLUs", BLUE),
        "best": (2.0, 0.0, "the best one:\nbound both children", BLUE),
        "enough": (4.1, 0.0, "is the gain m\nlarge enough?", INK),
        "split": (6.4, 0.9, "split it", GREEN),
        "backup": (6.4, -0.9, "bound both children\nof BaBSR's choice", VERMILION),
        "better": (8.6, -0.9, "split the better\nof the two", GREEN),
    }
    for x, y, words, colour in boxes.values():
        box = SOLID | {"edgecolor": colour, "lw": 1.4}
        panel.text(x, y, words, ha="center", va="center", fontsize=9, bbox=box, zorder=2)
    arrows = (
        ((0.75, 0), (1.15, 0), ""),
        ((2.85, 0), (3.4, 0), ""),
        ((4.75, 0.2), (6.0, 0.85), "yes"),
        ((4.75, -0.2), (5.5, -0.7), "no"),
        ((7.3, -0.9), (7.85, -0.9), ""),
    )
    for start, end, word in arrows:
        panel.annotate("", end, start, arrowprops={"arrowstyle": "-|>", "color": MUTED, "lw": 1.4}, zorder=1)
        panel.text(
            (start[0] + end[0]) / 2 - 0.12, (start[1] + end[1]) / 2 + (0.16 if end[1] > 0 else -0.3), word, color=MUTED
        )
    panel.set(xlim=(-0.8, 9.5), ylim=(-1.45, 1.35))
    drawing.save(figure, path)


if __name__ == "__main__":
    main()
