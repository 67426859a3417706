"""The models: what must hold of any of them, those of the experiments' library included."""

import gc
import sys
import weakref
from collections.abc import Callable
from dataclasses import asdict

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray
from tests.learning.scenes import seen
from tests.support import dense, generator, matrices
from torch import Tensor

from bough.errors import BadInput
from bough.learning.features import fit
from bough.learning.model import AbstractBuilt
from bough.learning.presets import KNOWN_MODELS, build
from bough.learning.scene import Graph, Scene
from bough.network.graph import Network
from bough.network.ops import Input, Linear, Relu
from bough.network.rewrite import GraphBuilder

Array = NDArray[np.float64]
PRESETS = KNOWN_MODELS.names()
CASES = [(kind, seed) for kind in ("dense", "convolutional", "residual", "pooled") for seed in (1, 4)]


def made(preset: str, *, reduced: bool = False, seed: int = 0, **settings: object) -> AbstractBuilt:
    """A model of random weights, the same at every call."""
    torch.manual_seed(seed)
    return build(preset, reduced, **settings).eval()


# The substituted network


@pytest.mark.parametrize(("kind", "seed"), CASES)
def test_between_is_the_network_with_decided_relus_substituted(kind, seed):
    problem, graph, _ = seen(kind, seed)
    network = problem.network
    outside = torch.ones(network.neurons, dtype=torch.bool)
    outside[graph.neurons] = False
    n = len(graph.neurons)
    matrix = np.zeros((n + network.outputs, n))
    for k, neuron in enumerate(graph.neurons.tolist()):  # 1 at one ReLU's output, and what follows from it
        values: list[Array] = []
        for i, node in enumerate(network.nodes):
            if isinstance(node.op, Input):
                values.append(np.zeros(node.size))
            elif isinstance(node.op, Relu):
                part = network.slices[i]
                through = (graph.passing & outside)[part].numpy() * values[node.inputs[0]]
                values.append(through + (np.arange(part.start, part.stop) == neuron))
            else:
                parts, _ = matrices(network, i)
                values.append(np.sum([m @ values[j] for m, j in zip(parts, node.inputs, strict=True)], axis=0))
        before = np.concatenate([values[network.nodes[i].inputs[0]] for i in network.relus])
        matrix[:, k] = np.concatenate([before[graph.neurons.numpy()], values[-1]])
    torch.testing.assert_close(graph.between.double(), torch.from_numpy(matrix), rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize(("kind", "seed"), CASES)
def test_the_fast_sweeps_are_those_of_a_bound(kind, seed):
    """With the multiplier of every ReLU added as it is, what comes back is nu: here through Wong-Kolter's slopes."""
    from bough.learning.features import View
    from bough.learning.gnn import _parallel

    _, graph, scene = seen(kind, seed)
    view = View(graph, scene)
    lam = _parallel(view)
    between, n = graph.between, len(graph.neurons)
    nu = view.seen("functional") @ between[n:] + lam @ between[:n]
    torch.testing.assert_close(lam, nu * view.slope, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize(("kind", "seed"), CASES)
def test_the_relaxations_multipliers_follow_the_same_edges(kind, seed):
    """The scene's own nu is what its `through` sends back along the substituted network."""
    _, graph, scene = seen(kind, seed)
    between, n = graph.between, len(graph.neurons)
    nu = scene.functional @ between[n:] + scene.through @ between[:n]
    own = scene.zero + scene.above - scene.below
    torch.testing.assert_close(torch.where(scene.ambiguous, nu, 0.0), own, rtol=1e-3, atol=1e-3)


def test_edges_go_with_their_graph():
    _, graph, _ = seen("dense", 1)
    own_graph = Graph(graph.network, graph.neurons, graph.passing)
    matrix = weakref.ref(own_graph.between)
    assert own_graph.between is matrix()
    del own_graph
    gc.collect()
    assert matrix() is None


# Every model


def of_every_kind(test: Callable[..., None]) -> Callable[..., None]:
    """Every preset, whole and reduced, on two networks."""
    kinds = [("convolutional", 4), ("residual", 1)]
    cases = [(*kind, preset, reduced) for kind in kinds for preset in PRESETS for reduced in (False, True)]
    marked: Callable[..., None] = pytest.mark.parametrize(("kind", "seed", "preset", "reduced"), cases)(test)
    return marked


@of_every_kind
def test_one_domain_at_a_time_is_the_batch(kind, seed, preset, reduced):
    _, graph, scene = seen(kind, seed)
    model = made(preset, reduced=reduced)
    fit(model, [(graph, scene)])
    with torch.no_grad():
        together = model(graph, scene)
        alone = torch.cat([model(graph, scene[d : d + 1]) for d in range(len(scene))])
        none = model(graph, scene[:0])
    assert together.dtype == torch.float32
    torch.testing.assert_close(alone, together, rtol=1e-4, atol=1e-5)
    assert none.shape == (0, len(graph.neurons))
    assert model.footprint(graph) > 4 * len(graph.neurons)


@of_every_kind
def test_a_graph_may_be_made_of_any_domains(kind, seed, preset, reduced):
    """In deep ones a ReLU may be passing that may still be split elsewhere."""
    _, graph, scene = seen(kind, seed)
    passing = graph.passing.clone()
    passing[graph.neurons] = True
    model = made(preset, reduced=reduced)
    with torch.no_grad():
        assert torch.equal(model(Graph(graph.network, graph.neurons, passing), scene), model(graph, scene))


def permuted(network: Network, orders: list[Tensor]) -> Network:
    """A dense network with the ReLUs of each layer in another order."""
    builder = GraphBuilder()
    x, inputs = builder.input(network.input_shape), torch.arange(network.inputs)
    linears = [node.op for node in network.nodes if isinstance(node.op, Linear)]
    for k, op in enumerate(linears):
        outputs = orders[k] if k < len(orders) else torch.arange(network.outputs)
        x = builder.linear(x, op.weight[outputs][:, inputs], op.bias[outputs])
        x = builder.relu(x) if k < len(orders) else x
        inputs = outputs
    return builder.build(x)


@pytest.mark.parametrize("preset", PRESETS)
@pytest.mark.parametrize("seed", [1, 4])
def test_permuting_neurons_permutes_scores(preset, seed):
    problem, graph, scene = seen("dense", seed)
    network, g = problem.network, generator(seed)
    assert len(network.nodes) == len(dense(generator(seed)).nodes)
    orders = [torch.randperm(network.nodes[i].size, generator=g) for i in network.relus]
    other = permuted(network, orders)
    flat = torch.cat([part.start + order for part, order in zip(network.slices.values(), orders, strict=True)])
    place = {int(neuron): k for k, neuron in enumerate(graph.neurons)}
    columns = torch.tensor([place[v] for v in flat.tolist() if v in place])
    neurons = torch.tensor([k for k, v in enumerate(flat.tolist()) if v in place])
    moved = {k: v[:, columns] if v.shape[1:] == scene.lower.shape[1:] else v for k, v in scene.named().items()}
    for name in ("point", "input_lower", "input_upper", "functional"):
        moved[name] = getattr(scene, name)
    again = Graph(other.on(torch.device("cpu"), torch.float32), neurons, graph.passing[flat])
    model = made(preset)
    with torch.no_grad():
        torch.testing.assert_close(model(again, Scene(**moved)), model(graph, scene)[:, columns], rtol=1e-4, atol=1e-5)


@of_every_kind
def test_gradients_reach_every_parameter(kind, seed, preset, reduced):
    """Norms are printed (run with -s).

    In the paper's models those of the input and of the forward sweep are so small, down to 1e-20, that any weight decay
    outweighs them: a way to a score that leads through the output only. It is how the authors' died (facts 4.6).
    """
    _, graph, scene = seen(kind, seed)
    model = made(preset, reduced=reduced, seed=3)
    fit(model, [(graph, scene)])
    scores = model(graph, scene)
    weights = torch.randn(scores.shape, generator=generator(0))
    (scores * weights)[scene.ambiguous].sum().backward()
    norms = {name: float(p.grad.norm()) if p.grad is not None else 0.0 for name, p in model.named_parameters()}
    sys.stdout.write(f"{kind} {preset}: " + ", ".join(f"{name} {norm:.1e}" for name, norm in norms.items()) + "\n")
    assert all(np.isfinite(norm) for norm in norms.values())
    assert min(norms.values()) > 0
    if preset in {"local", "fast"}:
        assert min(norms.values()) > 1e-5 * max(norms.values())


@of_every_kind
def test_messages_matter(kind, seed, preset, reduced):
    """What is known of one ReLU changes the scores of others, in all models but the local one."""
    _, graph, scene = seen(kind, seed)
    model, heard = made(preset, reduced=reduced, seed=3), 0
    with torch.no_grad():
        before = model(graph, scene)
        for row, column in scene.ambiguous.nonzero()[:12].tolist():
            lower = scene.lower.clone()
            lower[row, column] *= 1.5
            changed = model(graph, Scene(**{**scene.named(), "lower": lower})) != before
            assert bool(changed[row, column])
            assert not bool(changed[torch.arange(len(scene)) != row].any())
            heard += int(changed[row].sum()) - 1
    assert (heard > 0) == (preset != "local")


@pytest.mark.filterwarnings("ignore:TF32 acceleration")  # which is what setting the flags below says
def test_half_precision_changes_little():
    _, graph, scene = seen("convolutional", 4)
    model = made("fast")
    fit(model, [(graph, scene)])
    with torch.no_grad():
        whole = model(graph, scene)
        # Not every CPU has bfloat16 in its library of fast kernels.
        with torch.backends.mkldnn.flags(enabled=False), torch.autocast("cpu", torch.bfloat16):
            half = model(graph, scene)
            fresh = Graph(graph.network, graph.neurons, graph.passing)
            exact = fresh.between, fresh.bias, fresh.constants[-1]
    assert half.dtype == torch.float32
    torch.testing.assert_close(exact, (graph.between, graph.bias, graph.constants[-1]), rtol=1e-5, atol=1e-6)
    assert float((half - whole).abs().max()) < 0.05 * float(whole.abs().max())


@pytest.mark.gpu
@pytest.mark.parametrize("preset", PRESETS)
def test_a_gpu_scores_as_a_cpu(preset):
    _, graph, scene = seen("convolutional", 4)
    device = torch.device("cuda")
    gpu_graph = Graph(graph.network.on(device, torch.float32), graph.neurons.to(device), graph.passing.to(device))
    model = made(preset)
    fit(model, [(graph, scene)])
    with torch.no_grad():
        on_cpu = model(graph, scene)
        on_gpu = model.to(device)(gpu_graph, scene.to(device)).cpu()
    assert float((on_cpu - on_gpu).abs().max()) < 0.05 * float(on_cpu.abs().max())


extreme = st.sampled_from([0.0, 1.0, -1.0, 1e-30, 1e30, -1e30, float("inf"), float("-inf"), float("nan")])


@settings(max_examples=40, deadline=None)
@given(data=st.data(), preset=st.sampled_from(PRESETS), reduced=st.booleans())
def test_no_scene_makes_a_score_that_is_not_a_number(data, preset, reduced):
    """l = u, a bound of 0 or minus infinity, multipliers of 0, and worse."""
    _, graph, scene = seen("convolutional", 4)
    arrays = {name: array.clone() for name, array in scene[:2].named().items()}
    for name in data.draw(st.sets(st.sampled_from(sorted(arrays)), min_size=1)):
        kept = data.draw(st.booleans())
        array = arrays[name]
        array[:1] = torch.where(
            torch.rand(array[:1].shape, generator=generator(0)) < 0.5 * kept, array[:1], data.draw(extreme)
        )
    if data.draw(st.booleans()):
        arrays["upper"][:1] = arrays["lower"][:1]
    with torch.no_grad():
        assert bool(made(preset, reduced=reduced)(graph, Scene(**arrays)).isfinite().all())


def test_a_graph_of_no_relus_has_no_scores():
    _, graph, scene = seen("convolutional", 4)
    none = torch.zeros(0, dtype=torch.int64)
    wide = {k: v[:, :0] if v.shape == scene.lower.shape else v for k, v in scene.named().items()}
    for preset in PRESETS:
        assert made(preset)(Graph(graph.network, none, graph.passing), Scene(**wide)).shape == (len(scene), 0)


# Building


@pytest.mark.parametrize(
    ("preset", "settings", "says"),
    [
        ("slow", {}, "no preset 'slow'; there are: fast, local"),
        ("local", {"rounds": 2}, "no setting 'rounds'"),
        ("paper", {"width": 0}, "width is a whole number from 1"),
        ("paper", {"width": "8"}, "width is a whole number"),
        ("fast", {"mixed": 1}, "mixed is true or false"),
        ("local", {"columns": ["nonsense"]}, "no column 'nonsense': the columns of a ReLU are lower, upper"),
        ("local", {"columns": "lower"}, "columns is a list of names"),
        ("local", {"reduced": True, "columns": ["gap"]}, "at least one column"),
    ],
)
def test_what_cannot_be_built(preset, settings, says):
    with pytest.raises(BadInput, match=says):
        build(preset, **settings)


def test_columns_can_be_chosen():
    _, graph, scene = seen("dense", 1)
    chosen = ("slope", "share")
    model = build("fast", columns=list(chosen))
    assert model.columns["relu"] == chosen
    assert "lower" not in model.columns["relu"]
    again = build(model.preset, **asdict(model.settings))
    assert again.settings == model.settings
    again.load_state_dict(model.state_dict())
    with torch.no_grad():
        assert torch.equal(model(graph, scene), again(graph, scene))
