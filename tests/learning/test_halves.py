"""Labels of inputs: both halves of the box are bounded, and rightly; they are kept, and can be learnt from."""

from dataclasses import replace

import pytest
import torch
from tests.learning.scenes import seen
from tests.learning.tiny import BOUNDERS, NEVER, Tiny, open_domains
from tests.support import hard_case, relaxation_of, samples

from bough.bounds.lp import PlanetLP
from bough.branching.random import RandomChoice
from bough.domain.batch import DomainBatch
from bough.errors import BadInput
from bough.falsify.base import NoAttack
from bough.learning.halves import Halves, cut, slopes
from bough.learning.labels import Collector, Plan
from bough.learning.lessons import Lessons, LessonTally, losses
from bough.learning.loss import judge
from bough.learning.model import AbstractModel
from bough.learning.presets import TrainingRecipe, build
from bough.learning.samples import Samples
from bough.learning.scene import Graph, Scene, see
from bough.learning.train import train
from bough.network import walk
from bough.problem.problem import Problem
from bough.problem.property import Ball, Box, Property
from bough.search.loop import Search, search

CASES = [("dense", 5), ("convolutional", 2), ("residual", 5), ("pooled", 5)]
CPU = torch.device("cpu")


def looked_at(kind: str, seed: int, bounds: str) -> tuple[Problem, DomainBatch, Graph, Scene]:
    problem = hard_case(kind, seed, safe=True).problem
    session, domains = open_domains(problem, BOUNDERS[bounds])
    relaxed = relaxation_of(session, domains)
    return problem, domains, Graph.of(problem, domains, relaxed), see(problem, domains, relaxed)


@pytest.mark.parametrize(("kind", "seed"), CASES)
def test_the_relaxations_point_is_where_the_slopes_say(kind, seed):
    _, graph, scene = seen(kind, seed, "dual")
    slope = slopes(graph, scene)
    width = scene.input_upper - scene.input_lower
    matters = (slope.abs() * width > 1e-4 * (slope.abs() * width).amax(dim=1, keepdim=True)) & (width > 0)
    corner = torch.where(slope > 0, scene.input_lower, scene.input_upper)
    assert int(matters.sum()) > len(scene)
    torch.testing.assert_close(scene.point[matters], corner[matters], rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("bounds", BOUNDERS)
@pytest.mark.parametrize(("kind", "seed"), CASES)
def test_bounds_of_halves_hold_and_are_no_worse_than_the_domains(kind, seed, bounds):
    problem, domains, graph, scene = looked_at(kind, seed, bounds)
    some = torch.arange(len(domains))[:: max(1, len(domains) // 3)]
    halves = Halves(problem, BOUNDERS[bounds], problem.network.inputs, NEVER).bound(domains[some], graph, scene[some])
    assert halves.shape == (len(some), problem.network.inputs, 2)
    gained = 0
    for d, row in enumerate(some.tolist()):
        clause = problem.clauses[int(domains.clause[row])]
        box = problem.property.boxes[clause.box]
        for k in range(problem.network.inputs):
            for half, bound in zip(cut(box, k), halves[d, k].tolist(), strict=True):
                if half.lower[k] == half.upper[k]:
                    assert bound == -torch.inf
                    continue
                assert bound >= float(scene.bound[row]) - 1e-6
                gained += bound > float(scene.bound[row]) + 1e-4
                inside = least(problem, domains, row, half)
                assert bound <= inside + 1e-5
    assert gained > 0


def least(problem: Problem, domains: DomainBatch, row: int, box: Box) -> float:
    """The least margin seen at points of a domain in a box."""
    points = samples(box, 400)
    values = walk.forward(problem.network, points.reshape(-1, *problem.network.input_shape))
    flat = torch.cat(
        [values[problem.network.nodes[i].inputs[0]].reshape(len(points), -1) for i in problem.network.relus], 1
    )
    inside = ((flat * domains.signs[row]) >= 0).all(dim=1)
    margins = problem.clauses[int(domains.clause[row])].margins(values[-1].reshape(len(points), -1))
    return float(margins[inside].min()) if bool(inside.any()) else torch.inf


def test_at_the_root_a_half_is_a_problem_of_its_own():
    bounder = PlanetLP(early_stop=False)
    problem = hard_case("dense", 5, safe=True).problem
    session = bounder.prepare(problem)
    root = session.root(torch.inf, NEVER).domains[torch.tensor([0])]
    relaxed = session.relaxed(root, NEVER)
    assert relaxed is not None
    graph, scene = Graph.of(problem, root, relaxed), see(problem, root, relaxed)
    halves = Halves(problem, bounder, problem.network.inputs, NEVER).bound(root, graph, scene)
    clause = problem.property.clauses[0]
    for k in range(problem.network.inputs):
        for side, box in enumerate(cut(problem.property.boxes[clause.box], k)):
            alone = replace(problem, property=Property((box,), (replace(clause, box=0),)))
            by_hand = bounder.prepare(alone).root(torch.inf, NEVER).domains.lower
            assert float(halves[0, k, side]) == pytest.approx(float(by_hand[0]), rel=1e-3, abs=1e-4)


def test_only_the_inputs_that_matter_most_are_tried():
    problem, domains, graph, scene = looked_at("convolutional", 2, "dual")
    halves = Halves(problem, BOUNDERS["dual"], 2, NEVER).bound(domains[torch.arange(2)], graph, scene[:2])
    reach = slopes(graph, scene[:2]).abs() * (scene.input_upper - scene.input_lower)[:2]
    tried = (halves > -torch.inf).all(dim=2)
    assert tried.sum(dim=1).tolist() == [2, 2]
    for reaches, which in zip(reach, tried, strict=True):
        assert float(reaches[which].min()) >= 0.99 * float(reaches[~which].max()) > 0


def test_half_a_ball_is_refused():
    problem = hard_case("dense", 5, safe=True).problem
    box = problem.property.boxes[0]
    middle = (box.lower + box.upper) / 2
    round_one = replace(box, ball=Ball(middle, torch.ones_like(middle), 1.0, 2))
    other = replace(problem, property=replace(problem.property, boxes=(round_one, *problem.property.boxes[1:])))
    with pytest.raises(BadInput, match="half a ball is no ball"):
        Halves(other, BOUNDERS["lp"], 2, NEVER)


# In a search, and in training


def collected(kind: str, seed: int, plan: Plan, bounds: str = "lp") -> Samples:
    """Samples of a search, which ends as it would without."""
    problem, rule = hard_case(kind, seed, safe=True).problem, RandomChoice(1)
    collector = Collector(problem, plan, "it", stop=False, halves=Halves(problem, BOUNDERS[bounds], plan.inputs, NEVER))
    run = Search(problem, BOUNDERS[bounds], collector.rule(rule), NoAttack(), NEVER, most_bounds=24)
    watched, plain = search(replace(run, observers=(collector,))), search(run)
    assert (watched.verdict, watched.branches, watched.bounds) == (plain.verdict, plain.branches, plain.bounds)
    result = collector.collected()
    assert result is not None
    return result


@pytest.mark.parametrize(
    "plan",
    [Plan(samples=4, between=1, whole=0.0, inputs=2), Plan(whole=1.0, inputs=2), Plan(samples=3, deep=True, inputs=2)],
)
def test_a_collector_keeps_halves_with_their_samples(plan):
    for bounds in BOUNDERS:
        labelled = collected("dense", 5, plan, bounds)
        assert labelled.halves is not None
        assert labelled.halves.shape == (len(labelled), labelled.graph.network.inputs, 2)
        assert ((labelled.halves > -torch.inf).all(dim=2).sum(dim=1) == 2).all()
        gains = labelled.input_improvements()
        assert bool(((gains >= -1e-5) & (gains <= 1) | (gains == -torch.inf)).all())
        assert torch.equal(labelled[1:].input_improvements(), gains[1:])


@pytest.fixture(scope="module")
def lessons() -> tuple[Lessons, Lessons]:
    plan = Plan(samples=4, between=1, whole=0.0, inputs=3)
    return (
        Lessons.of([collected("dense", 5, plan), collected("residual", 4, plan)], CPU),
        Lessons.of([collected("dense", 1, plan)], CPU),
    )


def test_inputs_can_be_learnt_about(tmp_path, lessons):
    training, _ = lessons
    recipe = TrainingRecipe("paper", epochs=30, rate=5e-3, batch=4, group=4, inputs=True, seed=1)
    trained = train(
        recipe,
        training,
        training,
        tmp_path,
        lambda _: None,
        lambda *_: None,
        NEVER,
        lambda r: build(r.preset, width=16),
    )
    first, last = trained.history[0], trained.history[-1]
    assert last.training.loss < 0.8 * first.training.loss
    part = training.parts[0]
    scores = trained.model.score_all(part.graph, part.scene)
    assert scores.shape == (len(part), part.children.shape[1] + part.graph.network.inputs)
    assert torch.equal(scores[:, : part.children.shape[1]], trained.model(part.graph, part.scene))
    both = torch.cat([part.improvements(), part.input_improvements()], dim=1)
    tally = LessonTally(CPU)
    losses(trained.model, part, recipe, tally)
    assert tally.figures().accuracy == pytest.approx(float(judge(scores, both).relative.float().mean()))


def test_what_cannot_be_learnt_about_inputs_is_said(tmp_path, lessons):
    training, validation = lessons
    silent = Lessons(tuple(replace(part, halves=None) for part in validation.parts), CPU)

    def run(given: Lessons, model: AbstractModel) -> None:
        recipe = TrainingRecipe("paper", epochs=1, inputs=True)
        train(recipe, training, given, tmp_path, lambda _: None, lambda *_: None, NEVER, lambda _: model)

    with pytest.raises(BadInput, match=r"1 of 1 properties for validation say nothing about inputs; label them with"):
        run(silent, build("paper", width=4))
    for model in (build("fast"), build("local"), Tiny()):
        with pytest.raises(BadInput, match="scores ReLUs only"):
            run(validation, model)
    with pytest.raises(BadInput, match="say nothing about inputs; label with --inputs"):
        losses(Tiny(), silent.parts[0], TrainingRecipe("tiny", inputs=True), LessonTally(CPU))
