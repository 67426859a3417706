"""Learnt rules and their safety net: no model changes a verdict, the better decision is kept, every bound counts."""

import math
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

import pytest
import torch
from tests.learning.tiny import BOUNDERS, NEVER, Tiny, Told, open_domains
from tests.support import Judged, ascend_in_float64, hard_case, relaxation_of
from torch import Tensor

from bough.bounds.base import AbstractSession, Capabilities
from bough.bounds.lp import PlanetSession
from bough.branching.babsr import BaBSR
from bough.branching.base import BLIND, AbstractBrancher, AbstractLookAhead, Decision
from bough.branching.improvement import improvements
from bough.branching.widest import Widest
from bough.budget import Deadline, OutOfTime
from bough.domain.batch import DomainBatch, split
from bough.falsify.base import NoAttack
from bough.learning.brancher import FailSafe, Learnt
from bough.learning.model import AbstractModel
from bough.learning.scene import Graph, Scene
from bough.problem.problem import Problem
from bough.search.ahead import CountedLookAhead
from bough.search.loop import Search, search
from bough.verdict.result import Result, Verdict
from laboratory.online import Online

KINDS = ("dense", "convolutional", "residual", "pooled")


def noise(graph: Graph, scene: Scene) -> Tensor:
    """Scores that depend on the domain, and on nothing that matters."""
    return torch.sin(1e3 * (scene.upper + scene.lower) + torch.arange(len(graph.neurons)) + scene.depth[:, None])


def partly(graph: Graph, scene: Scene) -> Tensor:
    """No numbers in every domain of even depth."""
    return noise(graph, scene).masked_fill((scene.depth % 2 == 0)[:, None], math.nan)


def raising(graph: Graph, scene: Scene) -> Tensor:
    raise KeyError(graph, len(scene))


MODELS: dict[str, Callable[[], AbstractModel]] = {
    "tiny": Tiny,
    "nan": lambda: Told(lambda _, scene: scene.lower * math.nan),
    "partly nan": lambda: Told(partly),
    "infinite": lambda: Told(lambda _, scene: scene.lower.new_full(scene.lower.shape, math.inf)),
    "constant": lambda: Told(lambda _, scene: scene.lower * 0),
    "worst": lambda: Told(lambda _, scene: -(scene.upper - scene.lower)),
    "wrong shape": lambda: Told(lambda _, scene: scene.lower[:, :-1]),
    "raising": lambda: Told(raising),
}
WRAPPED: dict[str, Callable[[Learnt], AbstractBrancher[Any]]] = {
    "alone": lambda rule: rule,
    "safe": FailSafe,
    "relative": lambda rule: FailSafe(rule, threshold=0.8, relative=True),
    "online": lambda rule: Online(rule, least=1, rate=0.1),
}


def solved(kind: str, seed: int, rule: AbstractBrancher[Any], bounds: str, *, safe: bool, batch: int) -> Result:
    """The search's result, every bound of which was held against the enumeration, and counted."""
    case = hard_case(kind, seed, safe=safe)
    judged = Judged(BOUNDERS[bounds], case)
    result = search(Search(case.problem, judged, rule, NoAttack(), NEVER, batch=batch))
    assert result.verdict is (Verdict.VERIFIED if case.least > 0 else Verdict.FALSIFIED)
    assert result.bounds == judged.seen["domains"] + judged.seen["estimates"]
    assert result.notes["learnt_decisions"] + result.notes["backup_decisions"] == result.branches / 2
    return result


CASES = {
    "lp": (("dense", 5, True, 4), ("pooled", 3, False, 2)),
    "dual": (("dense", 5, True, 64), ("dense", 2, False, 8)),
}
UNUSABLE = ("nan", "infinite", "wrong shape", "raising")


@pytest.mark.parametrize(
    ("wrapped", "bounds"), [*((name, "lp") for name in WRAPPED), ("alone", "dual"), ("online", "dual")]
)
@pytest.mark.parametrize("model", MODELS)
def test_no_model_changes_a_verdict(model, wrapped, bounds):
    rule, learnt = WRAPPED[wrapped](Learnt(MODELS[model](), chunk=3)), 0.0
    for kind, seed, safe, batch in CASES[bounds]:
        result = solved(kind, seed, rule, bounds, safe=safe, batch=batch)
        learnt += result.notes["learnt_decisions"]
        if result.branches:
            assert ("cannot score" in " ".join(result.remarks)) == (model in ("wrong shape", "raising"))
            assert len(result.remarks) == (model in (*UNUSABLE, "partly nan"))
    assert (learnt > 0) == (model not in UNUSABLE)


@dataclass(frozen=True)
class Worst(AbstractBrancher[None]):
    """Whatever gains least, by strong branching's own account."""

    def prepare(self, problem: Problem) -> None:
        del problem

    def decide(self, memory: None, domains: DomainBatch, look: AbstractLookAhead = BLIND) -> Decision[None]:
        every = torch.arange(domains.signs.shape[1]).expand(len(domains), -1)
        gains = improvements(domains.lower, look.bound(domains, every), look.cutoff)
        least = torch.where(domains.bounds.ambiguous(), gains, torch.inf).argmin(dim=1)
        return Decision(least, memory)


@pytest.mark.parametrize("threshold", [0.0, 2.0], ids=["never safe", "always safe"])
@pytest.mark.parametrize("bounds", CASES)
def test_the_worst_choices_of_all_change_no_verdict(bounds, threshold):
    for kind, seed, safe, batch in CASES[bounds]:
        solved(kind, seed, FailSafe(Worst(), threshold=threshold), bounds, safe=safe, batch=batch)


def test_a_bounder_without_a_relaxation_leaves_it_to_the_backup(monkeypatch):
    monkeypatch.setattr(PlanetSession, "capabilities", Capabilities())
    result = solved("dense", 5, Learnt(Tiny()), "lp", safe=True, batch=4)
    assert result.notes["learnt_decisions"] == 0
    assert result.remarks == ("these bounds have no relaxation to look at; the backup rule decides",)


def test_running_out_of_time_is_no_fault_of_the_model():
    def late(graph: Graph, scene: Scene) -> Tensor:
        raise OutOfTime(graph, scene)

    problem = hard_case("dense", 5, safe=True).problem
    result = search(Search(problem, BOUNDERS["lp"], Learnt(Told(late)), NoAttack(), NEVER))
    assert result.verdict is Verdict.TIMEOUT
    assert result.remarks == ()


def look_at(session: AbstractSession, domains: DomainBatch) -> CountedLookAhead:
    return CountedLookAhead(session, NEVER, domains)


def decided(rule: AbstractBrancher[Any], problem: Problem, session: AbstractSession, domains: DomainBatch) -> list[int]:
    """What a rule that remembers nothing yet chooses."""
    look = look_at(session, domains)
    chosen: list[int] = rule.decide(rule.prepare(problem), domains, look).neurons.tolist()
    return chosen


@pytest.mark.parametrize("bounds", BOUNDERS)
def test_the_highest_score_of_the_ambiguous_is_chosen(bounds):
    for kind in KINDS:
        problem = hard_case(kind, 5, safe=True).problem
        session, domains = open_domains(problem, BOUNDERS[bounds])
        relaxed = relaxation_of(session, domains)
        # the highest score of all is that of the ReLU with the highest number, ambiguous or not
        rule = Learnt(Told(lambda graph, scene: graph.neurons.float().expand(len(scene), -1)), chunk=2)
        for row, chosen in enumerate(decided(rule, problem, session, domains)):
            ambiguous = domains.bounds.ambiguous()[row].nonzero()[:, 0]
            assert chosen == max(n for n in ambiguous.tolist() if n in relaxed.neurons.tolist())
        many = rule.rank(rule.prepare(problem), domains, look_at(session, domains), 2)
        some = domains.bounds.ambiguous().sum(dim=1) >= 2
        assert all(a > b for a, b in many[some].tolist())


@pytest.mark.parametrize("bounds", BOUNDERS)
@pytest.mark.parametrize("kind", KINDS)
def test_a_domain_is_decided_by_itself(kind, bounds, monkeypatch):
    """Those that fall back and those that do not, in one batch or one at a time."""
    ascend_in_float64(monkeypatch)
    problem = hard_case(kind, 5, safe=True).problem
    session, domains = open_domains(problem, BOUNDERS[bounds])
    for rule in (
        Learnt(Told(noise), Widest(), chunk=4),
        Learnt(Told(partly), Widest()),
        FailSafe(Learnt(Told(noise)), Widest(), 0.3),
        FailSafe(Learnt(Told(partly), FailSafe(Widest(), BaBSR(), 0.5)), Widest(), 0.3),
    ):
        together = decided(rule, problem, session, domains)
        alone = [decided(rule, problem, session, domains[torch.tensor([d])])[0] for d in range(len(domains))]
        assert together == alone


class Fixed(AbstractBrancher[None]):
    """One ReLU for each domain, by its number among those that are ambiguous."""

    def __init__(self, place: int) -> None:
        self.place = place
        self.asked = 0

    def prepare(self, problem: Problem) -> None:
        del problem

    def decide(self, memory: None, domains: DomainBatch, look: AbstractLookAhead = BLIND) -> Decision[None]:
        del memory, look
        self.asked += len(domains)
        ambiguous = domains.bounds.ambiguous()
        place = torch.minimum(torch.tensor(self.place), ambiguous.sum(dim=1) - 1)
        return Decision((ambiguous.cumsum(dim=1) == place[:, None] + 1).int().argmax(dim=1), None)


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("threshold", [0.0, 0.2, 0.5, 2.0])
def test_the_better_of_both_is_kept(kind, threshold):
    """Against brute force; and the backup is only asked, and bounded, where the rule's choice gains too little."""
    problem = hard_case(kind, 5, safe=True).problem
    session, domains = open_domains(problem, BOUNDERS["lp"])
    first, second = Fixed(0), Fixed(1)
    rule, ahead = FailSafe(first, second, threshold), look_at(session, domains)
    decision = rule.decide(rule.prepare(problem), domains, ahead)
    choices = [Fixed(place).decide(None, domains).neurons for place in (0, 1)]
    gains = []
    for chosen in choices:
        children = session.bound(split(domains, chosen), 0.0, NEVER).domains.lower
        gains.append(improvements(domains.lower, children.reshape(-1, 1, 2))[:, 0])
    low = gains[0] < threshold
    expected = torch.where(low & (gains[1] > gains[0]), choices[1], choices[0])
    assert decision.neurons.tolist() == expected.tolist()
    assert second.asked == int(low.sum())
    differ = low & (choices[0] != choices[1])
    assert ahead.count == 2 * len(domains) + 2 * int(differ.sum())
    assert decision.own is not None
    assert decision.own.tolist() == (expected == choices[0]).tolist()
    notes = rule.notes(decision.memory)
    assert notes["learnt_decisions"] == int(decision.own.sum())
    assert notes["learnt_decisions"] + notes["backup_decisions"] == len(domains)
    assert notes["backup_trials"] == int(low.sum())


@pytest.mark.parametrize("bounds", BOUNDERS)
def test_the_same_choice_costs_nothing_more(bounds):
    """Children that were bounded to decide are the search's own: as many bounds as without the fail-safe."""
    for kind, batch in (("dense", 64),) if bounds == "dual" else (("dense", 16), ("pooled", 16)):
        case = hard_case(kind, 5, safe=True)
        results = []
        for rule in (Widest(), FailSafe(Widest(), Widest(), 2.0), FailSafe(Widest(), Fixed(0), 0.0)):
            judged = Judged(BOUNDERS[bounds], case)
            results.append(search(Search(case.problem, judged, rule, NoAttack(), NEVER, batch=batch)))
            assert results[-1].bounds == judged.seen["domains"]
        assert len({(r.verdict, r.branches, r.bounds) for r in results}) == 1


@pytest.mark.parametrize("bounds", BOUNDERS)
def test_children_that_were_looked_at_are_those_of_the_step(bounds, monkeypatch):
    ascend_in_float64(monkeypatch)
    for kind in KINDS:
        problem = hard_case(kind, 5, safe=True).problem
        session, domains = open_domains(problem, BOUNDERS[bounds])
        chosen = Fixed(1).decide(None, domains).neurons
        ahead, half = look_at(session, domains), torch.arange(0, len(domains), 2)
        ahead.children(half, chosen[half])
        ahead.children(torch.arange(len(domains)), Fixed(0).decide(None, domains).neurons)
        before = ahead.count
        bounded, _ = ahead.split(chosen)
        fresh = session.bound(session.split(domains, chosen), 0.0, NEVER)
        order, other = _order(bounded.domains), _order(fresh.domains)
        assert torch.equal(bounded.domains.signs[order], fresh.domains.signs[other])
        assert torch.equal(bounded.domains.clause[order], fresh.domains.clause[other])
        computed, expected = bounded.domains.lower[order].clamp(max=0), fresh.domains.lower[other].clamp(max=0)
        torch.testing.assert_close(computed, expected, rtol=1e-6, atol=1e-9)  # above the cutoff any bound will do
        spared = before - ahead.count
        assert spared >= 2 * len(half)  # those of the other half that happen to be the first ReLU, too
        assert len(bounded.points) == len(bounded.owners())
        boxes = torch.tensor([c.box for c in problem.clauses])[bounded.domains.clause[bounded.owners()]]
        for point, box in zip(bounded.points, boxes.tolist(), strict=True):
            within = problem.property.boxes[box]
            assert bool(((point >= within.lower) & (point <= within.upper)).all())


def _order(domains: DomainBatch) -> Tensor:
    """By clause, depth and signs."""
    columns = domains.clause.tolist(), domains.depth.tolist(), domains.signs.tolist()
    keys = [(c, d, *s) for c, d, s in zip(*columns, strict=True)]
    return torch.tensor(sorted(range(len(keys)), key=keys.__getitem__))


def test_a_relative_threshold_follows_what_is_usual():
    problem = hard_case("dense", 0, safe=True).problem
    session, domains = open_domains(problem, BOUNDERS["lp"])
    rule = FailSafe(Fixed(0), Fixed(1), threshold=0.5, relative=True)
    memory = rule.prepare(problem)
    assert memory.usual == 1.0  # the threshold is the published one at first
    for _ in range(3):
        memory = rule.decide(memory, domains, look_at(session, domains)).memory
    ahead = look_at(session, domains)
    decision = rule.decide(memory, domains, ahead)
    children = session.bound(split(domains, decision.neurons), 0.0, NEVER).domains.lower
    mean = float(improvements(domains.lower, children.reshape(-1, 1, 2)).mean())
    assert memory.usual == pytest.approx(mean, abs=0.1)
    assert memory.usual < 1.0


@pytest.mark.parametrize(("least", "calls"), [(0.0, 1), (0.2, 1), (1.0, 0)])
def test_a_few_failures_may_stand(least, calls):
    case = hard_case("dense", 0, safe=True).problem
    session, domains = open_domains(case, BOUNDERS["lp"])
    domains, backup = domains[torch.arange(3)], Fixed(1)
    rule = FailSafe(Fixed(0), backup, least=least)
    compared, _ = FailSafe(Fixed(0), Fixed(1), threshold=2.0).compare(
        rule.prepare(case), domains, look_at(session, domains)
    )
    between = float(compared.gain.sort().values[:2].mean())  # one of three is below it
    rule = replace(rule, threshold=between)
    memory = rule.decide(rule.prepare(case), domains, look_at(session, domains)).memory
    assert (backup.asked, memory.tried) == (calls, calls)


def test_what_is_ranked_is_the_rules_own():
    """Nothing is bounded for it."""
    case = hard_case("dense", 0, safe=True).problem
    session, domains = open_domains(case, BOUNDERS["lp"])
    domains = domains[domains.bounds.ambiguous().sum(dim=1) >= 2]
    rule, ahead = Learnt(Told(noise)), look_at(session, domains)
    ranked = rule.rank(rule.prepare(case), domains, ahead, 2)
    assert ranked.shape == (len(domains), 2)
    wrapped: tuple[AbstractBrancher[Any], ...] = (FailSafe(rule, threshold=2.0), Online(rule, threshold=2.0))
    for safe in wrapped:
        assert torch.equal(safe.rank(safe.prepare(case), domains, ahead, 2), ranked)
    assert ahead.count == 0


def test_the_model_is_not_changed_by_a_search():
    model = Tiny()
    before = {name: value.clone() for name, value in model.state_dict().items()}
    for rule in (Learnt(model), FailSafe(Learnt(model)), Online(Learnt(model), least=1, rate=1.0)):
        solved("dense", 5, rule, "lp", safe=True, batch=16)
        assert all(torch.equal(value, before[name]) for name, value in model.state_dict().items())
        assert all(p.requires_grad for p in model.parameters())


def test_a_deadline_stops_the_look_ahead():
    problem = hard_case("dense", 0, safe=True).problem
    session, domains = open_domains(problem, BOUNDERS["dual"])
    ahead = CountedLookAhead(session, Deadline.after(0.0), domains)
    with pytest.raises(OutOfTime):
        ahead.children(torch.arange(len(domains)), Fixed(0).decide(None, domains).neurons)
