"""Online learning: when it steps, by how much, in which order, and that the trained weights stay as they are."""

import copy
from dataclasses import replace
from typing import Any

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from tests.learning.tiny import BOUNDERS, NEVER, Tiny, Told, open_domains
from tests.support import hard_case
from torch import Tensor

from bough.bounds.base import AbstractSession
from bough.branching.base import Decision
from bough.branching.improvement import improvements
from bough.branching.strong import Strong
from bough.domain.batch import DomainBatch, split
from bough.falsify.base import NoAttack
from bough.learning.brancher import FailSafe, Learnt
from bough.problem.problem import Problem
from bough.search.ahead import CountedLookAhead
from bough.search.loop import Search, search
from laboratory.online import Online, OnlineMemory, _earlier


@pytest.fixture(scope="module")
def small_problem() -> Problem:
    return hard_case("dense", 0, safe=True).problem


@pytest.fixture
def failing(small_problem) -> tuple[AbstractSession, DomainBatch]:
    """Domains in which the model below chooses a ReLU that strong branching beats."""
    session, domains = open_domains(small_problem, BOUNDERS["lp"], depth=3)
    rows = [d for d in range(len(domains)) if _fails(small_problem, session, domains, d)]
    return session, domains[torch.tensor(rows[:6])]


class Stubborn(Tiny):
    """Prefers one ReLU so much that small steps change nothing; its scores still depend on weights and features."""

    def __init__(self, favourite: int) -> None:
        super().__init__()
        self.favourite = favourite

    def forward(self, graph: Any, scene: Any) -> Tensor:
        scores: Tensor = super().forward(graph, scene) + 100.0 * (graph.neurons == self.favourite)
        return scores


FAVOURITE = 2


def model() -> Stubborn:
    torch.manual_seed(1)
    return Stubborn(FAVOURITE)


def _fails(problem: Problem, session: AbstractSession, domains: DomainBatch, d: int) -> bool:
    row = domains[torch.tensor([d])]
    if not bool(row.bounds.ambiguous()[0, FAVOURITE]):
        return False
    best = Strong().decide(Strong().prepare(problem), row, CountedLookAhead(session, NEVER, row)).neurons
    gains = []
    for neuron in (torch.tensor([FAVOURITE]), best):
        children = session.bound(split(row, neuron), 0.0, NEVER).domains.lower
        gains.append(float(improvements(row.lower, children.reshape(1, 1, 2))))
    return gains[1] > gains[0] + 1e-6


def rule(trained: Tiny, **more: Any) -> Online:
    return Online(Learnt(trained), Strong(), threshold=2.0, **{"rate": 1e-3, **more})


def weights_of(memory: OnlineMemory) -> list[Tensor]:
    return [p.detach().clone() for p in memory.safe.rule.model.parameters()]


def step(online: Online, memory: Any, session: AbstractSession, domains: DomainBatch) -> Decision[OnlineMemory]:
    return online.decide(memory, domains, CountedLookAhead(session, NEVER, domains))


def equal(first: list[Tensor], second: list[Tensor]) -> bool:
    return all(torch.equal(a, b) for a, b in zip(first, second, strict=True))


def test_the_second_failure_is_learnt_from_and_each_one_after_it(small_problem, failing):
    session, domains = failing
    one, trained = domains[torch.tensor([0])], model()
    online = rule(trained)
    memory = online.prepare(small_problem)
    first = weights_of(memory)
    for count in (1, 2, 3):
        before = weights_of(memory)
        memory = step(online, memory, session, one).memory
        assert int(memory.failed[FAVOURITE]) == count
        assert memory.steps == count - 1
        assert equal(before, weights_of(memory)) == (count == 1)
    assert online.notes(memory)["online_steps"] == 2
    assert online.notes(memory)["backup_decisions"] == 3
    assert equal(first, [p.detach() for p in trained.parameters()])  # what was trained stays as it is
    assert equal(first, weights_of(online.prepare(small_problem)))  # and the next property starts from it


def test_a_decision_that_did_not_fail_teaches_nothing(small_problem, failing):
    session, domains = failing
    online = replace(rule(model(), least=1), threshold=0.0)  # the backup is not asked
    memory = step(online, online.prepare(small_problem), session, domains).memory
    assert (memory.steps, int(memory.failed.sum())) == (0, 0)
    same = Online(Learnt(model()), Learnt(model()), 2.0, least=1)  # the backup says the same
    memory = step(same, same.prepare(small_problem), session, domains).memory
    assert (memory.steps, int(memory.failed.sum())) == (0, 0)


@pytest.mark.parametrize("loss", ["published", "hinge"])
def test_a_batch_is_learnt_from_in_the_order_of_its_domains(small_problem, failing, loss):
    """One step per repeated decision; the weights end up as if the domains had come one by one."""
    session, domains = failing
    assert len(domains) >= 3
    ends = []
    for order in (torch.arange(len(domains)), torch.arange(len(domains)).flip(0)):
        online = rule(model(), loss=loss)
        together = step(online, online.prepare(small_problem), session, domains[order]).memory
        one_by_one = online.prepare(small_problem)
        for d in order.tolist():
            one_by_one = step(online, one_by_one, session, domains[torch.tensor([d])]).memory
        assert together.steps == one_by_one.steps == len(domains) - 1
        for batched, single in zip(weights_of(together), weights_of(one_by_one), strict=True):
            torch.testing.assert_close(batched, single, rtol=1e-5, atol=1e-7)
        ends.append(weights_of(together))
    largest = max(float((a - b).abs().max()) for a, b in zip(*ends, strict=True))
    assert largest > 1e-5  # so the order can be told from the weights


def test_steps_of_one_decision_are_limited(small_problem, failing):
    session, domains = failing
    online = rule(model(), most=1)
    memory = step(online, online.prepare(small_problem), session, domains).memory
    assert (memory.steps, int(memory.failed[FAVOURITE])) == (1, len(domains))


def test_decisions_are_those_of_the_fail_safe(small_problem, failing):
    session, domains = failing
    online, safe = rule(model()), FailSafe(Learnt(model()), Strong(), 2.0)
    decision = step(online, online.prepare(small_problem), session, domains)
    look = CountedLookAhead(session, NEVER, domains)
    assert torch.equal(decision.neurons, safe.decide(safe.prepare(small_problem), domains, look).neurons)


def test_one_step_is_adams(small_problem, failing):
    """The paper's optimiser and Eq. 12 by hand, on the model's own scores."""
    session, domains = failing
    one, trained = domains[torch.tensor([0])], model()
    online = rule(trained, least=1, rate=1e-4, decay=1e-4)
    decision = step(online, online.prepare(small_problem), session, one)
    byhand = copy.deepcopy(trained)
    optimiser = torch.optim.Adam(byhand.parameters(), 1e-4, weight_decay=1e-4)
    learnt = online.rule
    memory, scene = learnt.scene(learnt.prepare(small_problem), one, CountedLookAhead(session, NEVER, one))
    assert memory.graph is not None
    assert scene is not None
    scores, numbers = byhand(memory.graph, scene)[0], memory.graph.neurons.tolist()
    (scores[numbers.index(FAVOURITE)] - scores[numbers.index(int(decision.neurons[0]))]).backward()
    optimiser.step()
    for computed, expected in zip(weights_of(decision.memory), byhand.parameters(), strict=True):
        torch.testing.assert_close(computed, expected.detach(), rtol=1e-6, atol=1e-8)


# The loss


@given(st.floats(-3, 3), st.floats(-3, 3), st.floats(-0.5, 0.9))
def test_the_losses_by_hand(chosen, better, ahead):
    beyond = 1.0 if ahead > 0.1 else 0.0
    s = torch.tensor([chosen, better], dtype=torch.float64)
    published = rule(Tiny()).penalty(s[0], s[1], torch.tensor(ahead, dtype=torch.float64))
    assert float(published) == pytest.approx(chosen - better + beyond)
    hinge = rule(Tiny(), loss="hinge").penalty(s[0], s[1], torch.tensor(ahead, dtype=torch.float64))
    assert float(hinge) == pytest.approx(max(0.0, chosen - better + beyond) ** 2 / 2)


def test_the_margin_moves_the_variant_only():
    """What the scores are told to do does not depend on the published margin; on the variant's it does."""

    def gradients(loss: Any, margin: float) -> list[float]:
        s = torch.tensor([1.0, 0.5], requires_grad=True)
        rule(Tiny(), loss=loss, margin=margin).penalty(s[0], s[1], torch.tensor(0.3)).backward()
        assert s.grad is not None
        return s.grad.tolist()

    assert gradients("published", 1.0) == gradients("published", 5.0) == [1.0, -1.0]
    assert gradients("hinge", 1.0) == [1.5, -1.5]
    assert gradients("hinge", 5.0) == [5.5, -5.5]
    s = torch.tensor([0.0, 9.0], requires_grad=True)  # right by more than its margin
    rule(Tiny(), loss="hinge").penalty(s[0], s[1], torch.tensor(0.3)).backward()
    assert s.grad is not None
    assert s.grad.tolist() == [0.0, 0.0]


@given(st.lists(st.integers(0, 4), max_size=30))
def test_earlier_ones_are_counted(numbers):
    counts = _earlier(torch.tensor(numbers, dtype=torch.int64)).tolist()
    assert counts == [numbers[:k].count(n) for k, n in enumerate(numbers)]


def test_models_that_cannot_learn_change_nothing():
    problem = hard_case("dense", 5, safe=True).problem
    for trained in (Told(lambda _, scene: -scene.upper), Told(lambda _, scene: scene.upper.requires_grad_())):
        online = Online(Learnt(trained), Strong(), threshold=2.0, least=1)
        result = search(Search(problem, BOUNDERS["lp"], online, NoAttack(), NEVER, batch=4))
        assert result.verdict.value == "verified"
        assert result.notes["online_steps"] == 0
