"""The paper's models: against a version that goes from node to node, and how they are found."""

import gc
import os
import subprocess
import sys
import weakref
from pathlib import Path

import numpy as np
import pytest
import torch
from numpy.typing import NDArray
from tests.learning.scenes import seen
from tests.support import matrices, values_at

import bough
from bough.learning.features import View, fit, stacked
from bough.learning.presets import build, recipe_for
from bough.learning.scene import Graph, Scene
from bough.network.graph import Network
from bough.network.ops import Conv, Input, Relu
from laboratory.paper_gnn import INPUT, PaperGNN, edges

Array = NDArray[np.float64]
CASES = [(kind, seed) for kind in ("dense", "convolutional", "residual", "pooled") for seed in (1, 4)]
EXPERIMENTS = Path(__file__).parents[2] / "experiments"


# The paper's model, from node to node: Appendix B, and facts 4.2 to 4.5 for the code. One domain, plain numbers.


class Slow:
    """The embeddings of one domain by Appendix B, every node by itself and every edge by its number."""

    def __init__(self, model: PaperGNN, graph: Graph, network: Network, scene: Scene) -> None:
        assert len(scene) == 1
        self.network = network  # float64, as it was read
        self.code, self.reduced = model.preset == "paper-code", model.settings.reduced
        self.p, self.rounds = model.settings.width, model.settings.rounds
        self.model, self.scene, self.graph = model, {k: v[0].double().numpy() for k, v in scene.named().items()}, graph
        self.at = {int(v): k for k, v in enumerate(graph.neurons)}
        self.constant = self._constants()

    def mlp(self, name: str, x: Array) -> Array:
        """Layers with ReLUs between them, or behind the only one."""
        layers = [m for m in getattr(self.model, name) if isinstance(m, torch.nn.Linear)]
        for k, layer in enumerate(layers):
            x = layer.weight.detach().double().numpy() @ x + layer.bias.detach().double().numpy()
            if k < len(layers) - 1 or len(layers) == 1:
                x = np.maximum(x, 0.0)
        return x

    def _constants(self) -> list[Array]:
        values: list[Array] = []
        for i, node in enumerate(self.network.nodes):
            if isinstance(node.op, Relu | Input):
                values.append(np.zeros(node.size))
            else:
                parts, bias = matrices(self.network, i)
                values.append(sum((m @ values[j] for m, j in zip(parts, node.inputs, strict=True)), bias))
        return values

    def gate(self, flat: int) -> tuple[float, float, bool]:
        """alpha, alpha', and whether the ReLU is ambiguous."""
        if flat not in self.at:
            a = 1.0 if bool(self.graph.passing[flat]) else 0.0
            return a, a, False
        l, u = float(self.scene["lower"][self.at[flat]]), float(self.scene["upper"][self.at[flat]])
        if u <= 0 and l < 0:
            return 0.0, 0.0, False
        if l >= 0:
            return 1.0, 1.0, False
        return u / (u - l), 1 - u / (u - l), True

    def features(self, flat: int, node: int, element: int, *, backward: bool) -> Array:
        k, s = self.at[flat], self.scene
        l, u, pre, post, d1, d2 = (float(s[n][k]) for n in ("lower", "upper", "before", "after", "above", "below"))
        beta, bias = -l * u / (u - l), float(self.constant[self.network.nodes[node].inputs[0]][element])
        if self.reduced and not self.code:
            return np.array([l, u, beta, bias])
        if self.reduced:
            return np.array([l, u, beta, bias] if backward else [beta, l, u, bias])
        if not self.code:
            return np.array([l, u, beta, bias, pre, post, d1, d2])
        # In the authors' code d2 is not positive: d1 - d2 there is d1 + d2 here.
        return np.array([l, u, beta, d1 + d2, post, pre, bias] if backward else [beta, l, u, d1 + d2, pre, post, bias])

    def local(self, flat: int, node: int, element: int, *, backward: bool) -> Array:
        if not self.gate(flat)[2]:
            return np.zeros(self.p)
        z = self.features(flat, node, element, backward=backward)
        if not backward:
            return self.mlp("forward_local", z)
        R = self.mlp("backward_local", z)
        d1, d2 = (float(self.scene[n][self.at[flat]]) for n in ("above", "below"))
        if self.reduced:
            return self.mlp("backward_duals", R)
        parts = [R, d2 * R, d1 * R] if self.code else [d1 * R, d2 * R, R]
        return self.mlp("backward_duals", np.concatenate(parts))

    def activation(self, node: int, arrived: Array, way: str) -> Array:
        """Eq. 4 or Eq. 6 for every node of a layer."""
        embeddings = np.zeros_like(arrived)
        for element in range(len(arrived)):
            flat = self.network.slices[node].start + element
            a, b, _ = self.gate(flat)
            R = self.local(flat, node, element, backward=way == "backward")
            N = self.mlp(f"{way}_neighbours", np.concatenate([a * arrived[element], b * arrived[element]]))
            mu = self.mlp(f"{way}_combined", np.concatenate([R, N]))
            embeddings[element] = 0.0 if self.code and a == 0 else mu
        return embeddings

    def share(self, node: int, element: int) -> float:
        """By how much E is divided that comes back through a convolution."""
        op, matrix = self.network.nodes[node].op, self.structure(node)
        if not isinstance(op, Conv):
            return 1.0
        count = float(matrix[:, element].sum())
        if self.code:
            if not self.behind_relu(node):
                return 1.0
            count = len({k % (matrix.shape[0] // op.weight.shape[0]) for k in np.flatnonzero(matrix[:, element])})
        return max(1.0, count)

    def behind_relu(self, node: int) -> bool:
        return any(
            isinstance(self.network.nodes[j].op, Relu) or self.behind_relu(j) for j in self.network.nodes[node].inputs
        )

    def structure(self, node: int) -> Array:
        return np.asarray(matrices(self.network, node)[0][0] != 0, dtype=np.float64)

    def run(self) -> tuple[Array, Array]:
        """Scores of the n ReLUs and of the inputs."""
        nodes, s, c = self.network.nodes, self.scene, self.scene["functional"]
        names = ("input_lower", "input_upper") if self.reduced else ("input_lower", "input_upper", "point")
        if self.code and not self.reduced:
            names = ("input_lower", "point", "input_upper")
        mu_0 = np.stack(
            [self.mlp("input_forward", np.array([s[n][j] for n in names])) for j in range(self.network.inputs)]
        )
        upper = float(c @ values_at(self.network, s["point"])[-1])
        bound, bias = float(s["bound"]), float(c @ self.constant[-1])
        z_L = np.array([bound, bias] if self.reduced else [bound, upper, bound, bias])
        relus: dict[int, Array] = {}
        for _ in range(self.rounds):
            values: list[Array] = []
            for i, node in enumerate(nodes):
                if not node.inputs:
                    values.append(mu_0)
                elif isinstance(node.op, Relu):
                    values.append(self.activation(i, values[node.inputs[0]], "forward"))
                else:
                    parts, _ = matrices(self.network, i)
                    values.append(np.sum([m @ values[j] for m, j in zip(parts, node.inputs, strict=True)], axis=0))
            E = c @ values[-1]
            mu_L = self.mlp("output_combined", np.concatenate([self.mlp("output_local", z_L), E]))
            arriving = [np.zeros((node.size, self.p)) for node in nodes]
            arriving[-1] += np.outer(c, mu_L)
            for i in range(len(nodes) - 1, 0, -1):
                if isinstance(nodes[i].op, Relu):
                    relus[i] = self.activation(i, arriving[i], "backward")
                    arriving[nodes[i].inputs[0]] += relus[i]
                    continue
                for m, j in zip(matrices(self.network, i)[0], nodes[i].inputs, strict=True):
                    for element in range(nodes[j].size):
                        arriving[j][element] += m[:, element] @ arriving[i] / self.share(i, element)
            mu_0 = np.stack([self._input(j, arriving[0][j]) for j in range(self.network.inputs)])
        flat = np.concatenate([relus[i] for i in self.network.relus])
        scores = np.array([self.mlp("score", flat[v])[0] for v in self.graph.neurons.tolist()])
        return scores, np.array([self.mlp("score", mu)[0] for mu in mu_0])

    def _input(self, j: int, arrived: Array) -> Array:
        sides = np.array([self.scene["input_lower"][j], self.scene["input_upper"][j]])
        return self.mlp("input_combined", np.concatenate([self.mlp("input_backward", sides), arrived]))


@pytest.mark.parametrize("reduced", [False, True], ids=["whole", "reduced"])
@pytest.mark.parametrize("preset", ["paper", "paper-code"])
@pytest.mark.parametrize(("kind", "seed"), CASES)
def test_the_papers_model_is_that_of_its_appendix(kind, seed, preset, reduced):
    problem, graph, scene = seen(kind, seed, "lp" if seed == 1 else "dual")
    torch.manual_seed(seed)
    model = build(preset, reduced, width=6).eval()
    assert isinstance(model, PaperGNN)
    with torch.no_grad():
        scores, inputs = model(graph, scene), model.score_all(graph, scene)[:, len(graph.neurons) :]
    assert (scores.shape, inputs.shape) == (scene.lower.shape, scene.point.shape)
    for d in range(0, len(scene), 3):
        by_hand, by_hand_inputs = Slow(model, graph, problem.network, scene[d : d + 1]).run()
        torch.testing.assert_close(scores[d].double(), torch.from_numpy(by_hand), rtol=1e-4, atol=1e-5)
        torch.testing.assert_close(inputs[d].double(), torch.from_numpy(by_hand_inputs), rtol=1e-4, atol=1e-5)


def test_the_scenes_have_all_kinds_of_relus():
    """Otherwise the comparison above would prove little."""
    kinds, convolutions = set(), 0
    for kind, seed in CASES:
        problem, graph, scene = seen(kind, seed)
        ambiguous, few = scene.ambiguous, graph.neurons
        outside = torch.ones(problem.network.neurons, dtype=torch.bool)
        outside[few] = False
        kinds |= {"ambiguous"} if bool(ambiguous.any()) else set()
        kinds |= {"split passing"} if bool((scene.lower >= 0).any()) else set()
        kinds |= {"split blocked"} if bool((scene.upper <= 0).any()) else set()
        kinds |= {"passing"} if bool((graph.passing & outside).any()) else set()
        kinds |= {"blocked"} if bool((~graph.passing & outside).any()) else set()
        counts = edges(graph).connections.values()
        convolutions += sum(len(count.unique()) > 1 for count in counts)
    assert kinds == {"ambiguous", "split passing", "split blocked", "passing", "blocked"}
    assert convolutions >= 2  # whose elements have different numbers of connections


def test_the_sizes_are_the_authors():
    assert sum(p.numel() for p in build("paper-code").parameters()) == 117_825  # facts 4.3


@pytest.mark.parametrize(("kind", "seed", "bounder"), [("dense", 1, "lp"), ("convolutional", 4, "dual")])
def test_columns_of_inputs(kind, seed, bounder):
    _, graph, scene = seen(kind, seed, bounder)
    assert list(INPUT) == ["lower", "upper", "point"]
    sides = torch.stack([scene.input_lower, scene.input_upper, scene.point], dim=-1)
    assert torch.equal(stacked(View(graph, scene), INPUT, INPUT), sides)
    broken = Scene(**{**scene.named(), "point": torch.full_like(scene.point, torch.nan)})
    assert bool(stacked(View(graph, broken), INPUT, INPUT).isfinite().all())


def test_edges_go_with_their_graph():
    _, graph, _ = seen("dense", 1)
    own_graph = Graph(graph.network, graph.neurons, graph.passing)
    along = weakref.ref(edges(own_graph))
    assert edges(own_graph) is along()
    del own_graph
    gc.collect()
    assert along() is None


def test_the_papers_recipe():
    paper = recipe_for("paper")
    assert (paper.rate, paper.decay, paper.batch, paper.classes) == (1e-4, 1e-4, 2, 10)
    assert (paper.patience, paper.divisor, paper.stop, paper.decoupled) == (10, 5.0, 20, False)


def test_fitting_leaves_models_without_figures_alone():
    fit(build("paper", width=4), iter(lambda: pytest.fail("nothing has to be seen"), None))


def test_names_are_found_on_the_path_only(tmp_path):
    """Without the folder `experiments` on the path, the names are unknown as any other."""
    package = str(Path(bough.__file__).parents[1])
    for path, known in ((package, False), (os.pathsep.join((package, str(EXPERIMENTS))), True)):
        for words in (("train", "--preset", "paper", "none", "--out", "new"), ("verify", "--branching", "gnn-online")):
            more = () if words[0] == "train" else ("none.onnx", "none.vnnlib")
            run = subprocess.run(
                [sys.executable, "-m", "bough", *words, *more],
                env={**os.environ, "PYTHONPATH": path},
                cwd=tmp_path,
                capture_output=True,
                text=True,
                check=False,
            )
            assert run.returncode == 2
            kind = "preset 'paper'; there are: fast, local" if words[0] == "train" else "branching rule 'gnn-online'"
            assert (f"there is no {kind}" in run.stderr) != known
