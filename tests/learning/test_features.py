"""Features: every column by its formula, one ReLU at a time; scaled views; and no scene that breaks them."""

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.learning.scenes import seen
from tests.support import domains_of, generator, relu_inputs_at, tensor, values_at

from bough.branching.babsr import local_bias, scores
from bough.domain.batch import Bounds
from bough.learning import features
from bough.learning.features import (
    OUTPUT,
    REDUCED_OUTPUT,
    REDUCED_RELU,
    RELU,
    ScaledOutput,
    ScaledRelus,
    View,
    compressed,
    fit,
)
from bough.learning.presets import KNOWN_MODELS, build
from bough.learning.scene import Scene

# Unchanged when layers of a network are rescaled against each other.
SCALE_FREE = (*ScaledRelus.products, "slope", "alpha", "position", "lift", "share", "place", "depth")

CASES = [("dense", 1, "lp"), ("convolutional", 4, "dual"), ("residual", 1, "dual"), ("pooled", 4, "lp")]


def test_every_group_of_columns_is_of_columns_that_there_are():
    for table, columns in (
        (RELU, ScaledRelus.products + REDUCED_RELU),
        (OUTPUT, ScaledOutput.products + REDUCED_OUTPUT),
    ):
        assert set(columns) < set(table)
    _, graph, scene = seen("dense", 1)
    view = View(graph, scene)
    assert features.stacked(view, RELU, list(RELU)).shape == (*scene.lower.shape, len(RELU))
    assert features.stacked(view, OUTPUT, list(OUTPUT)).shape == (len(scene), len(OUTPUT))


@pytest.mark.parametrize(("kind", "seed", "bounder"), CASES)
def test_columns_of_ambiguous_relus(kind, seed, bounder):
    problem, graph, scene = seen(kind, seed, bounder)
    columns = features.stacked(View(graph, scene), RELU, list(RELU)).double().numpy()
    bias = local_bias(problem.network).numpy()
    layers = [range(part.start, part.stop) for part in problem.network.slices.values()]
    s = {name: array.double().numpy() for name, array in scene.named().items()}
    checked = 0
    for d, k in scene.ambiguous.nonzero().tolist():
        neuron = int(graph.neurons[k])
        l, u, zero, above, below = (s[name][d, k] for name in ("lower", "upper", "zero", "above", "below"))
        z, x, nu, b = s["before"][d, k], s["after"][d, k], zero + above - below, bias[neuron]
        slope, beta = u / (u - l), -l * u / (u - l)
        gaps = [
            (s["zero"][d, j] + s["above"][d, j] - s["below"][d, j]) * (s["after"][d, j] - max(s["before"][d, j], 0))
            for j in range(len(graph.neurons))
            if scene.ambiguous[d, j]
        ]
        gap, total = nu * (x - max(z, 0.0)), sum(map(abs, gaps))
        sides = b * nu * (slope - 1), b * nu * slope
        want = {
            "lower": l,
            "upper": u,
            "intercept": beta,
            "bias": b,
            "before": z,
            "after": x,
            "dual": above + below,
            "above": above,
            "below": below,
            "coefficient": nu,
            "slope": slope,
            "alpha": above / nu if nu > 1e-6 else 0.0,
            "position": z / (u - l),
            "lift": (x - max(z, 0.0)) / beta,
            "drop": min(nu, 0.0) * beta,
            "reach": nu * beta,
            "gap": gap,
            "share": gap / total if total > 1e-6 else 0.0,
            "bias_term": b * nu,
            "score": abs(max(sides) + min(nu, 0.0) * beta),
            "worse_score": abs(min(sides) + min(nu, 0.0) * beta),
            "place": next(i for i, layer in enumerate(layers) if neuron in layer) / max(1, len(layers) - 1),
            "depth": s["depth"][d],
        }
        assert list(want) == list(RELU)
        np.testing.assert_allclose(columns[d, k], list(want.values()), rtol=2e-4, atol=2e-5)
        checked += 1
    assert checked > 20


def test_the_score_is_babsrs_where_slopes_are_its_own():
    """With nu as Wong-Kolter slopes give it, the columns are the hand-made rule's scores."""
    problem, graph, scene = seen("convolutional", 4)
    bounds = Bounds(torch.zeros(1, problem.network.neurons).double(), torch.ones(1, problem.network.neurons).double())
    bounds.lower[:, graph.neurons], bounds.upper[:, graph.neurons] = scene.lower[:1].double(), scene.upper[:1].double()
    outside = torch.ones(problem.network.neurons, dtype=torch.bool)
    outside[graph.neurons] = False
    bounds.upper[:, outside & ~graph.passing], bounds.lower[:, outside & ~graph.passing] = 0.0, -1.0
    by_hand = scores(
        problem.network, local_bias(problem.network), domains_of(bounds, scene.functional[:1].double()), worse_side=True
    )
    from bough.learning.gnn import _parallel

    view = View(graph, scene[:1])
    nu = torch.where(view.ambiguous, _parallel(view) / view.slope, 0.0)
    zero = torch.zeros_like(nu)
    swapped = Scene(**{**scene[:1].named(), "zero": nu.clamp(min=0), "above": zero, "below": (-nu).clamp(min=0)})
    computed = features.stacked(View(graph, swapped), RELU, ["worse_score", "drop"])[0].double()
    torch.testing.assert_close(computed[:, 0], by_hand.score[0, graph.neurons], rtol=1e-4, atol=1e-5)
    torch.testing.assert_close(computed[:, 1], by_hand.intercept[0, graph.neurons], rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize(("kind", "seed", "bounder"), CASES)
def test_columns_of_the_output(kind, seed, bounder):
    problem, graph, scene = seen(kind, seed, bounder)
    view = View(graph, scene)
    columns = features.stacked(view, OUTPUT, list(OUTPUT)).double().numpy()
    for d in range(len(scene)):
        c = scene.functional[d].double().numpy()
        values = values_at(problem.network, scene.point[d].double().numpy())
        last = problem.network.nodes[-1]
        op = last.op
        bound, value = float(scene.bound[d]), float(c @ values[-1])
        assert hasattr(op, "bias")
        np.testing.assert_allclose(columns[d], [bound, value, bound, float(c @ op.bias.numpy())], rtol=1e-4, atol=1e-5)
    assert relu_inputs_at(problem.network, scene.point[0].double().numpy()).shape == (problem.network.neurons,)


def test_reduced_columns_need_no_relaxation():
    _, graph, scene = seen("convolutional", 4)
    blind = {"zero", "above", "below", "through", "before", "after", "point"}
    other = Scene(**{k: torch.rand_like(v) if k in blind else v for k, v in scene.named().items()})
    for preset in KNOWN_MODELS.names():
        torch.manual_seed(0)
        model = build(preset, reduced=True)
        with torch.no_grad():
            assert torch.equal(model(graph, scene), model(graph, other))


def test_scale_free_columns_do_not_feel_a_layers_scale():
    """A ReLU's input times 8, and what looks at its output divided by 8: the same network, the same features."""
    _, graph, scene = seen("dense", 1)
    first = torch.arange(len(graph.neurons)) < graph.layers[0].stop
    times = torch.where(first, 8.0, 1.0)
    large = {name: getattr(scene, name) * times for name in ("lower", "upper", "before", "after")}
    small = {name: getattr(scene, name) / times for name in ("zero", "above", "below", "through")}
    view = View(graph, Scene(**{**scene.named(), **large, **small}))
    graph.__dict__["bias"] = graph.bias * times
    try:
        scaled = features.stacked(view, RELU, SCALE_FREE)
    finally:
        graph.__dict__["bias"] = graph.bias / times
    torch.testing.assert_close(scaled, features.stacked(View(graph, scene), RELU, SCALE_FREE), rtol=1e-4, atol=1e-5)


# The scaled view


def test_fitted_columns_have_mean_0_and_spread_1():
    scaled = ScaledRelus(list(RELU))
    parts = [seen(kind, seed, bounder)[1:] for kind, seed, bounder in CASES]
    fit(scaled, iter(parts))  # seen once only
    raw = torch.cat([scaled.rows(View(*part)) for part in parts])
    rows = (raw - scaled.standard.mean) / scaled.standard.spread
    torch.testing.assert_close(rows.mean(dim=0), torch.zeros(len(RELU)), atol=1e-3, rtol=0)
    changing = raw.std(dim=0) > 1e-5
    assert int(changing.sum()) > 20
    spread = rows.std(dim=0, correction=0)[changing]
    torch.testing.assert_close(spread, torch.ones_like(spread), atol=1e-3, rtol=0)
    shown = torch.cat([scaled(View(*part))[part[1].ambiguous.T] for part in parts])
    assert torch.equal(shown, rows.clamp(-10, 10))


def test_products_are_in_units_of_the_bound():
    _, graph, scene = seen("convolutional", 4)
    columns = ["reach", "lower"]
    scaled = ScaledRelus(columns)
    raw = features.stacked(View(graph, scene), RELU, columns)
    assert float(raw[..., 0].abs().max()) > 0.01
    want = torch.stack([raw[..., 0] / scene.bound.abs()[:, None], raw[..., 1]], dim=-1)
    want = (want.sign() * want.abs().log1p()).clamp(-10, 10)
    torch.testing.assert_close(scaled(View(graph, scene)).transpose(0, 1), want, rtol=1e-4, atol=1e-5)
    assert compressed(tensor([0.0, np.e - 1, 1 - np.e])).tolist() == pytest.approx([0.0, 1.0, -1.0])


def test_what_is_all_but_proved_looks_nearly_proved():
    """In units of a bound of next to nothing, every ReLU would be an outlier, and all of them alike."""
    _, graph, scene = seen("dense", 1)
    view = View(graph, Scene(**{**scene.named(), "bound": torch.full_like(scene.bound, -1e-7)}))
    raw = features.stacked(view, RELU, ["reach"])[..., 0].abs()
    assert torch.equal(view.way, 1e-3 * raw.amax(dim=1))
    assert float(view.way.min()) > 1e-5
    shown = ScaledRelus(["reach"])(view)[..., 0].T
    assert torch.equal(shown.abs().argmax(dim=1), raw.argmax(dim=1))
    assert float(shown.abs().max()) < 10
    assert torch.equal(View(graph, view.scene, reduced=True).way, torch.full_like(view.way, 1e-6))


def test_fitting_on_nothing_changes_nothing():
    model = build("local")
    fit(model, [])
    assert bool((model.state_dict()["relus.standard.spread"] == 1).all())


extreme = st.sampled_from([0.0, 1.0, -1.0, 1e-30, 1e30, -1e30, float("inf"), float("-inf"), float("nan")])


@settings(max_examples=60)
@given(data=st.data())
def test_no_scene_makes_a_feature_that_is_not_a_number(data):
    _, graph, scene = seen("convolutional", 4)
    arrays = {name: array.clone() for name, array in scene[:2].named().items()}
    for name in data.draw(st.sets(st.sampled_from(sorted(arrays)), min_size=1)):
        mask = torch.rand(arrays[name].shape, generator=generator(0)) < data.draw(st.sampled_from([0.0, 0.5]))
        arrays[name] = torch.where(mask, arrays[name], data.draw(extreme))
    if data.draw(st.booleans()):
        arrays["upper"] = arrays["lower"].clone()
    view = View(graph, Scene(**arrays))
    for columns in (
        features.stacked(view, RELU, list(RELU)),
        features.stacked(view, OUTPUT, list(OUTPUT)),
        ScaledRelus(list(RELU))(view),
        features.ScaledOutput(list(OUTPUT))(view),
    ):
        assert bool(columns.isfinite().all())
