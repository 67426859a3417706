"""The search for a radius: against thresholds that are known, by construction and by enumeration of a tiny network."""

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.support import Plain, piece_margins, pieces, sequential

from bough.api import LoadedNetwork
from bough.errors import BadInput
from bough.making.trial import _outcome
from bough.making.tuning import ANY, STEPS, Bracket, CostScale, Probe, ProbeOutcome, Survey, choose, survey, tune
from bough.options import Options
from bough.zoo import datasets
from bough.zoo.table import DIFFICULTIES, Surroundings

SCALE = CostScale("bounds", (10, 100, 1000, 10_000))
BRACKET = Bracket(0.0, 1.0)
ENOUGH = 18  # probes: STEPS * 0.65 ** 18 < 1


def solver(false_from: float, growth: float, limit: float, radii: list[float]):
    """A solver of properties that are false from some radius on, and cost more the larger the radius is."""

    def probe(eps: float) -> ProbeOutcome:
        radii.append(eps)
        cost = int(10 ** (growth * eps))
        if eps >= false_from:
            return ProbeOutcome("falsified", 1, 0, 0.0)
        return ProbeOutcome("timeout", int(limit), 0, 0.0) if cost > limit else ProbeOutcome("verified", cost, 0, 0.0)

    return probe


@given(
    st.floats(0, 1.1),
    st.floats(0, 8),
    st.sampled_from((*DIFFICULTIES, ANY)),
    st.integers(1, 14),
    st.none() | st.floats(0, 1, exclude_min=True, exclude_max=True),
)
def test_no_probe_is_in_vain_and_what_is_kept_is_right(false_from, growth, difficulty, probes, lean):
    radii: list[float] = []
    tried = tune(solver(false_from, growth, SCALE.limit(difficulty), radii), BRACKET, SCALE, difficulty, probes, lean)
    assert [probe.eps for probe in tried] == radii
    assert 1 <= len(tried) <= probes
    for k, probe in enumerate(tried):
        for before in tried[:k]:
            dearness = SCALE.dearness(before.outcome)
            assert dearness != difficulty  # then the search would have ended
            if dearness == "beyond" or (dearness == "timeout" and difficulty != ANY):
                assert probe.eps < before.eps
            if dearness == "trivial":
                assert probe.eps > before.eps
    choice = choose(tried, SCALE, difficulty, {*DIFFICULTIES, ANY})
    if choice is None:
        useless = {"beyond"} if difficulty == ANY else {"trivial", "timeout", "beyond"}
        assert {SCALE.dearness(probe.outcome) for probe in tried} <= useless
        return
    assert choice[0] in tried
    assert choice[0].eps < false_from
    assert choice[1] in DIFFICULTIES
    assert choice[0].outcome.verdict == ("timeout" if choice[1] == "timeout" else "verified")
    if any(SCALE.dearness(p.outcome) == difficulty for p in tried):
        assert choice[1] == difficulty


@given(st.integers(2, STEPS), st.floats(0, 8))
def test_with_enough_probes_the_largest_radius_of_all_is_found(step, growth):
    false_from = BRACKET.radius(step)
    tried = tune(solver(false_from, growth, SCALE.limit(ANY), []), BRACKET, SCALE, ANY, ENOUGH)
    choice = choose(tried, SCALE, ANY, {ANY})
    assert choice is not None
    assert choice[0].eps == BRACKET.radius(step - 1)


@given(st.floats(4.5, 8), st.sampled_from(DIFFICULTIES))
def test_with_enough_probes_every_difficulty_is_found(growth, difficulty):
    tried = tune(solver(2.0, growth, SCALE.limit(difficulty), []), BRACKET, SCALE, difficulty, ENOUGH)
    choice = choose(tried, SCALE, difficulty, ())
    assert choice is not None
    assert choice[1] == difficulty


@given(st.floats(10, 60), st.floats(0, 0.5), st.sampled_from(DIFFICULTIES[:3]))
def test_where_cost_grows_exponentially_five_probes_do_and_at_most_two_are_too_dear(growth, easy_to, difficulty):
    def probe(eps: float) -> ProbeOutcome:
        cost = int(10 ** (growth * max(0.0, eps - easy_to)))
        ending = ("timeout", limit) if cost > (limit := int(SCALE.limit(difficulty))) else ("verified", cost)
        return ProbeOutcome(*ending, 0, 0.0)

    edges = (Probe(BRACKET.radius(max(1, int(easy_to * STEPS))), ProbeOutcome("verified", 1, 0, 0.0)),)
    known = Survey(max(1, int(easy_to * STEPS)), STEPS + 1, edges)
    tried = tune(probe, BRACKET, SCALE, difficulty, 5, known=known)
    assert SCALE.dearness(tried[-1].outcome) == difficulty
    assert sum(SCALE.dearness(each.outcome) == "timeout" for each in tried) <= 2


def test_the_threshold_of_a_tiny_network_by_enumeration():
    network = sequential(([[1, 2], [-1, 1], [2, -1]], [0, 0.2, -0.3]), ([[1, 1, -1], [-1, 1, 1]], [0.1, 0]))
    loaded = LoadedNetwork(network, Plain(network), "tiny")
    pixels = np.array([[[150, 90]]], dtype=np.uint8)
    dataset = replace(datasets.known("mnist"), mean=(0.1,), std=(0.5,), classes=("one", "other"))
    around = Surroundings(dataset, pixels, 0, 1, normalised=False, clip=True)
    if Plain(network).run(around.inputs.numpy()).argmax() == 1:
        around = replace(around, label=1, target=0)

    def truth(eps: float) -> float:
        prop = around.within(eps)
        return float(piece_margins(pieces(network, prop.boxes[0]), prop.boxes[0], prop.clauses[0]).min())

    def probe(eps: float) -> ProbeOutcome:
        return _outcome(loaded, around, Options(bounds="lp"), eps)

    tried = tune(probe, Bracket(0, 1), SCALE, ANY, ENOUGH)
    choice = choose(tried, SCALE, ANY, {ANY})
    assert choice is not None
    assert {probe.outcome.verdict for probe in tried} == {"verified", "falsified"}
    assert truth(choice[0].eps) > 0
    assert truth(choice[0].eps + 1 / STEPS) <= 0


@given(st.floats(0, 1.1), st.floats(0, 1.1), st.sampled_from((*DIFFICULTIES, ANY)))
def test_a_survey_rules_out_only_what_is_decided_without_a_search(proved_to, false_from, difficulty):
    radii: list[float] = []

    def look(eps: float) -> ProbeOutcome:
        radii.append(eps)
        return ProbeOutcome(
            "falsified" if eps >= false_from else "verified" if eps <= proved_to else "timeout", 1, 0, 0.0
        )

    known = survey(look, BRACKET)
    assert len(radii) <= 18
    assert known.below == 0 or look(BRACKET.radius(known.below)).verdict == "verified"
    assert known.above == STEPS + 1 or look(BRACKET.radius(known.above)).verdict == "falsified"
    undecided = [k for k in range(1, STEPS + 1) if proved_to < BRACKET.radius(k) < false_from]
    assert all(known.below < k < known.above for k in undecided)
    first = undecided[0] if undecided else known.above
    assert first - known.below <= max(2, 0.04 * first)  # the lower edge is known well
    assert [probe.eps for probe in known.edges] == [
        BRACKET.radius(k) for k in (known.below, known.above) if 0 < k <= STEPS
    ]
    tried = tune(solver(false_from, 3.0, SCALE.limit(difficulty), []), BRACKET, SCALE, difficulty, ENOUGH, known=known)
    assert all(BRACKET.radius(known.below) < probe.eps for probe in tried if known.below)
    assert all(known.above > STEPS or probe.eps < BRACKET.radius(known.above) for probe in tried)


# What is kept


def probe(eps: float, verdict: str, bounds: int) -> Probe:
    return Probe(eps, ProbeOutcome(verdict, bounds, 0, 0.5))


TRIED = (probe(0.5, "timeout", 10_000), probe(0.25, "verified", 50), probe(0.3, "timeout", 10_000))


@pytest.mark.parametrize(
    ("difficulty", "room", "expected"),
    [
        ("hard", ("hard", "easy"), (0.25, "easy")),  # offered to what its cost is
        ("hard", ("hard",), None),
        ("hard", ("hard", "timeout"), (0.3, "timeout")),
        ("easy", ("easy",), (0.25, "easy")),
        ("medium", ("medium", "timeout"), None),  # more was not allowed, so this was no real timeout
        ("timeout", ("timeout",), (0.5, "timeout")),
        (ANY, (ANY,), (0.5, "timeout")),
    ],
)
def test_what_is_kept(difficulty, room, expected):
    choice = choose(TRIED, SCALE, difficulty, room)
    assert expected == (None if choice is None else (choice[0].eps, choice[1]))


def test_costs_and_limits():
    assert [SCALE.limit(name) for name in (*DIFFICULTIES, ANY)] == [100, 1000, 10_000, 10_000, 10_000]
    costs = (10, 11, 100, 101, 1000, 1001, 10_000, 99_999)
    expected = ["trivial", "easy", "easy", "medium", "medium", "hard", "hard", "hard"]
    assert [SCALE.dearness(ProbeOutcome("verified", cost, 0, 0.0)) for cost in costs] == expected
    assert CostScale("seconds", (0, 1, 2, 3)).dearness(ProbeOutcome("verified", 99, 0, 1.5)) == "medium"
    for verdict in ("falsified", "unknown"):
        assert SCALE.dearness(ProbeOutcome(verdict, 50, 0, 0.0)) == "beyond"


def test_radii_are_short_decimals():
    assert [Bracket(0, 0.3).radius(k) for k in (1, 3, 500, STEPS)] == [0.0003, 0.0009, 0.15, 0.3]


@pytest.mark.parametrize("numbers", [(0.2, 0.1), (0.1, 0.1), (-0.1, 1), (0, float("inf")), (float("nan"), 1)])
def test_bad_brackets(numbers):
    with pytest.raises(BadInput, match="the range of eps is"):
        Bracket(*numbers)


@pytest.mark.parametrize("edges", [(0, 1, 1, 2), (-1, 1, 2, 3), (0, 3, 2, 4), (0, 1, 2, float("inf"))])
def test_bad_edges(edges):
    with pytest.raises(BadInput, match="do not grow"):
        CostScale("bounds", edges)
