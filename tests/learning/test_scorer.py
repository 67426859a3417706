"""Scores by the piece, and on a GPU from buffers that are captured: always the model's own."""

import pytest
import torch
from tests.learning.tiny import BOUNDERS, Tiny, Told, open_domains
from tests.support import hard_case, relaxation_of

from bough.learning.presets import KNOWN_MODELS, build
from bough.learning.scene import Graph, Scene, see
from bough.learning.scorer import Scorer


def seen(seed: int = 5) -> tuple[Graph, Scene]:
    """A few domains, over and over with other bounds: eleven of them."""
    problem = hard_case("convolutional", seed, safe=True).problem
    session, domains = open_domains(problem, BOUNDERS["dual"])
    relaxed = relaxation_of(session, domains)
    graph, scene = Graph.of(problem, domains, relaxed), see(problem, domains, relaxed)
    many = Scene.concatenate([scene] * 11)[:11]
    return graph, Scene(**{**many.named(), "bound": many.bound - torch.arange(11.0)})


@pytest.mark.parametrize("chunk", [1, 4, 11, None])
def test_pieces_make_no_difference(chunk):
    graph, scene = seen()
    model = build("fast").eval()
    with torch.no_grad():
        whole = model(graph, scene)
    torch.testing.assert_close(Scorer(model, graph, chunk)(scene), whole)


class Replayed:
    """A stand-in for a CUDA graph: does again what was captured, on the same buffers."""

    made = 0

    def __init__(self, work) -> None:
        self.work, self.replays = work, 0
        Replayed.made += 1
        work()

    def replay(self) -> None:
        self.replays += 1
        self.work()


@pytest.fixture
def capturing(monkeypatch):
    """As on a GPU, with a stand-in for its graphs."""
    Replayed.made = 0
    monkeypatch.setattr("bough.learning.scorer._fits", lambda size, device: True)
    monkeypatch.setattr("bough.learning.scorer.captured", lambda work, what: Replayed(work))
    monkeypatch.setattr("bough.learning.scorer.ROOMS", (4, 8))


@pytest.mark.usefixtures("capturing")
def test_buffers_hold_what_was_asked_last():
    graph, scene = seen()
    model = build("fast").eval()
    scorer = Scorer(model, graph)
    with torch.no_grad():
        whole = model(graph, scene)
    answers = []
    for size in (3, 4, 11, 2, 7, 11, 1, 8):  # rooms of 4 and 8, with and without rows left over
        rows = torch.randperm(11)[:size]
        answers.append((rows, scorer(scene[rows])))
    for rows, scores in answers:  # at the end: an answer is not overwritten by the next
        torch.testing.assert_close(scores, whole[rows])
    assert Replayed.made == 2


@pytest.mark.usefixtures("capturing")
def test_weights_that_moved_are_seen():
    graph, scene = seen()
    model = Tiny().eval()
    scorer = Scorer(model, graph)
    for _ in range(3):
        before = scorer(scene[:4])
    with torch.no_grad():
        model.out.bias.add_(1.0)
    torch.testing.assert_close(scorer(scene[:4]), before + 1)


@pytest.mark.usefixtures("capturing")
def test_what_cannot_be_captured_runs_as_it_is(monkeypatch):
    monkeypatch.setattr("bough.learning.scorer.captured", lambda work, what: None)
    graph, scene = seen()
    scorer = Scorer(Told(lambda _, scene: scene.lower), graph)
    for _ in range(3):
        assert torch.equal(scorer(scene[:5]), scene.lower[:5])


@pytest.mark.gpu
@pytest.mark.parametrize("preset", KNOWN_MODELS.names())
def test_a_captured_model_scores_as_it_does_itself(preset):
    graph, scene = seen()
    device = torch.device("cuda")
    graph = Graph(graph.network.on(device, torch.float32), graph.neurons.to(device), graph.passing.to(device))
    scene, model = scene.to(device), build(preset).eval().to(device)
    scorer = Scorer(model, graph)
    with torch.no_grad():
        whole = model(graph, scene)
    for size in (3, 5, 11, 2, 11):
        torch.testing.assert_close(scorer(scene[:size]), whole[:size], rtol=0.05, atol=0.05 * float(whole.abs().max()))
    (seat,) = scorer._seats.values()
    assert seat._graph is not None
