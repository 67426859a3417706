"""The campaign itself: a few of its cases, what it stored before, and that it would notice, shrink and keep a lie."""

import json

import pytest
from soundness import campaign, judge
from soundness.cases import TINY, draw
from soundness.engines import ADVERSARIAL, RULES_OF, SHIPPED, Engine, engines
from soundness.judge import objections, trial
from soundness.shrink import objects, shrunk
from soundness.store import problem_from_json, problem_to_json, read
from soundness.truth import Truth, judged, margin_at

from bough.api import solve
from bough.bounds.base import Capability
from bough.branching.base import KNOWN_RULES
from bough.network import walk
from bough.options import Options
from bough.problem.problem import Problem
from bough.verdict.result import Result, Verdict

STORED = sorted(campaign.REGRESSIONS.glob("*.json"))
FEW = (0, 5, 6, 9, 14, 21, 28, 29, 31, 42, 49)  # small networks of every kind, and hidden spikes


@pytest.mark.parametrize("number", FEW)
def test_cases_of_the_campaign(number):
    """`make soundness` runs many more."""
    assert [wrong for *_, wrong in campaign.tried(draw(0, number)) if wrong] == []


@pytest.mark.parametrize("path", STORED, ids=lambda path: path.stem)
def test_what_a_campaign_found_stays_right(path):
    """Every file that was ever stored: the engine that was wrong is right now."""
    stored = read(path)
    problem, witness = problem_from_json(stored), stored["truth"]["witness"]
    truth = judged(problem, witness)
    assert truth.word == stored["truth"]["word"]
    assert trial(problem, truth, Engine(**stored["engine"]))[1] == []


def test_a_case_is_the_same_every_time():
    for number in (5, 28, 77):
        one, two = draw(3, number), draw(3, number)
        assert problem_to_json(one.problem) == problem_to_json(two.problem)
        assert one.truth == two.truth
        assert problem_to_json(draw(4, number).problem) != problem_to_json(one.problem)


def test_what_is_said_of_cases_is_true():
    """Half of them have an unsafe point, which exact arithmetic confirms; of the others enumeration has the word."""
    cases = [draw(1, number) for number in range(40)]
    unsafe = [case for case in cases if case.truth.word == "unsafe"]
    assert len(unsafe) >= 20
    assert sum(case.truth.word == "safe" for case in cases) >= 20
    for case in unsafe:
        assert case.truth.witness is not None
        margin = margin_at(case.problem, case.truth.witness)
        assert margin is not None
        assert margin <= 0
    assert {case.twist for case in cases} >= {"plain", "rescaled", "cancelled", "doubled"}
    assert len({case.kind for case in cases}) >= len(TINY)


def test_twists_do_not_change_what_a_network_computes():
    """So what was enumerated of the plain form holds: the twin's truth is found again from scratch."""
    for number in (0, 4, 9):
        case = draw(0, number)
        if case.twist in ("doubled", "plain"):  # of the others, numbers are too far apart for the enumeration's LPs
            assert judged(case.problem, None).word == case.truth.word


def test_every_rule_and_every_kind_of_bounds_has_its_turn():
    met = {(e.family, e.rule) for number in range(600) for e in engines(number, 2, ball=False)}
    assert met == {(family, rule) for family, rules in RULES_OF.items() for rule in rules}
    named = {rule for rules in RULES_OF.values() for rule in rules}
    assert named >= {rule.name for rule in KNOWN_RULES.entries() if not rule.learnt}
    assert named >= {*SHIPPED, *ADVERSARIAL}
    halving = {rule.name for rule in KNOWN_RULES.entries() if Capability.INPUT_PARTS in rule.needs}
    assert set(RULES_OF["halved"]) == halving == {*RULES_OF["linear"], "shadow"}


def said(verdict: Verdict, lower: float = -1.0, upper: float = 1.0) -> Result:
    return Result(verdict, "", None, lower, upper, lower, 0, 1, 0, 0, 0.0)


def test_wrong_answers_are_objected_to():
    unsafe, safe = draw(0, 5), draw(0, 4)
    assert objections(unsafe.problem, unsafe.truth, said(Verdict.VERIFIED))
    assert objections(unsafe.problem, unsafe.truth, said(Verdict.TIMEOUT, lower=1.0))
    assert objections(safe.problem, safe.truth, said(Verdict.FALSIFIED))
    assert objections(safe.problem, safe.truth, said(Verdict.TIMEOUT, upper=-1.0))
    for word in (Verdict.TIMEOUT, Verdict.UNKNOWN):
        assert not objections(unsafe.problem, unsafe.truth, said(word))
        assert not objections(safe.problem, safe.truth, said(word))


def liar(problem: Problem, truth: Truth, engine: Engine, seconds: float = 0.0) -> tuple[str, list[str]]:
    """Calls every problem verified that has ReLUs and an input that can move."""
    del engine, seconds
    moves = any(bool((box.lower < box.upper).any()) for box in problem.property.boxes)
    word = Verdict.VERIFIED if moves and problem.network.neurons else Verdict.UNKNOWN
    return word.value, objections(problem, truth, said(word))


def test_a_lie_is_found_shrunk_and_stored(monkeypatch, tmp_path):
    monkeypatch.setattr(campaign, "trial", liar)
    monkeypatch.setattr("soundness.shrink.trial", liar)
    findings = campaign.examined(0, 5)["found"]
    assert findings
    campaign._keep(findings[0], tmp_path)
    (path,) = tmp_path.glob("*.json")
    stored = json.loads(path.read_text())
    big, small = draw(0, 5).problem, problem_from_json(stored)
    assert small.network.neurons <= big.network.neurons
    assert len(path.read_text()) < len(json.dumps({**stored, **problem_to_json(big)}, indent=1))
    truth = judged(small, stored["truth"]["witness"])
    assert liar(small, truth, Engine(**stored["engine"]))[1]
    monkeypatch.undo()
    assert trial(small, truth, Engine(**stored["engine"]))[1] == []


def test_shrinking_keeps_what_is_wrong():
    """Here: a problem is wrong as long as its witness is unsafe and it has two ReLUs."""
    case = draw(0, 9)
    assert case.truth.witness is not None

    def fails(problem: Problem) -> list[str]:
        word = judged(problem, case.truth.witness).word
        return ["wrong"] * (word == "unsafe" and problem.network.neurons >= 2)

    small = shrunk(case.problem, fails, seconds=3)
    assert fails(small)
    before, after = (sum(len(c.offsets) for c in p.clauses) for p in (case.problem, small))
    assert after <= before
    assert len(json.dumps(problem_to_json(small))) < len(json.dumps(problem_to_json(case.problem)))


def test_crashes_are_findings(monkeypatch):
    def crash(*_):
        raise ZeroDivisionError("somewhere")

    monkeypatch.setattr(Engine, "solve", crash)
    case = draw(0, 4)
    verdict, wrong = judge.trial(case.problem, case.truth, Engine("lp", "babsr"))
    assert verdict == "crashed"
    assert "ZeroDivisionError" in wrong[0]
    assert objects(Engine("lp", "babsr"), None)(case.problem)


def test_networks_with_balls_and_convolutions_survive_being_stored():
    for number in range(0, 96, 4):
        problem = draw(2, number).problem
        stored = json.loads(json.dumps(problem_to_json(problem)))
        again = problem_from_json(stored)
        assert problem_to_json(again) == problem_to_json(problem)
        x = problem.property.boxes[0].centre
        assert walk.evaluate(problem.network, x[None]).equal(walk.evaluate(again.network, x[None]))


def test_a_mixed_integer_solver_is_not_believed_about_scales_that_are_far_apart():
    """Found by the campaign in case 93 of seed 0: a rescaled network that HiGHS, under `mip-tight`, calls safe."""
    answers = []
    for path in sorted((campaign.ROOT / "soundness" / "known").glob("*.json")):
        stored = read(path)
        problem = problem_from_json(stored)
        result = solve(problem, Options(method=stored["engine"]["rule"], timeout=60))
        assert result.verdict.value in ("falsified", "unknown")
        answers += objections(problem, judged(problem, stored["truth"]["witness"]), result)
    assert answers == []
