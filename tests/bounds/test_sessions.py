"""What a bounder says that it offers is what its sessions are capable of; and sessions refuse what is not theirs."""

from dataclasses import dataclass, fields

import pytest
import torch
from tests.support import hard_case
from torch import Tensor

from bough.bounds.base import (
    KNOWN_BOUNDERS,
    AbstractBounder,
    AbstractDeeperRoots,
    AbstractEstimates,
    AbstractEvidence,
    AbstractInputParts,
    AbstractRelaxations,
    AbstractUnsafeBoxes,
    BounderSettings,
    Capabilities,
    Capability,
)
from bough.bounds.boxes import LinearBounds
from bough.bounds.dual import DualAscent
from bough.bounds.intermediate import KNOWN_RELU_BOUNDS
from bough.bounds.lp import PlanetLP
from bough.branching.base import KNOWN_RULES
from bough.budget import Deadline
from bough.domain.arrays import Arrays
from bough.domain.batch import split
from bough.options import Options
from bough.plan import search_plan

NEVER = Deadline.never()
OBJECTS: dict[Capability, tuple[str, type]] = {
    Capability.ESTIMATES: ("estimates", AbstractEstimates),
    Capability.RELAXATION: ("relaxations", AbstractRelaxations),
    Capability.EVIDENCE: ("evidence", AbstractEvidence),
    Capability.INPUT_PARTS: ("input_parts", AbstractInputParts),
    Capability.UNSAFE_BOXES: ("unsafe_boxes", AbstractUnsafeBoxes),
    Capability.DEEPER_ROOTS: ("deeper_roots", AbstractDeeperRoots),
}
WAYS = [(name, halves) for name in KNOWN_BOUNDERS.names() for halves in (True, False)]


def made(name: str, *, halves: bool, relu_bounds: str | None = None) -> AbstractBounder:
    entry = KNOWN_BOUNDERS.entry(name)
    policy = KNOWN_RELU_BOUNDS.entry(relu_bounds or entry.usual_relu_bounds or "fixed").make()
    return entry.make(BounderSettings(policy, "cpu", halves))


def test_every_object_of_a_session_has_its_capability():
    """Shadow prices are numbers that a domain carries, and need no object."""
    assert {name for name, _ in OBJECTS.values()} == {field.name for field in fields(Capabilities)}
    assert set(Capability) - set(OBJECTS) == {Capability.SHADOW_PRICES}


@pytest.mark.parametrize(("name", "halves"), WAYS)
@pytest.mark.parametrize("relu_bounds", [None, *KNOWN_RELU_BOUNDS.names()])
def test_sessions_are_capable_of_what_their_bounder_offers(name, halves, relu_bounds):
    bounder = made(name, halves=halves, relu_bounds=relu_bounds)
    capabilities = bounder.prepare(hard_case("dense", 5, safe=True).problem).capabilities
    offered = {need for need, (field, _) in OBJECTS.items() if getattr(capabilities, field) is not None}
    assert offered == bounder.offers - {Capability.SHADOW_PRICES}
    for need in offered:
        field, kind = OBJECTS[need]
        assert isinstance(getattr(capabilities, field), kind)


@pytest.mark.parametrize("name", KNOWN_BOUNDERS.names())
def test_an_entry_offers_nothing_that_its_bounder_lacks(name):
    entry = KNOWN_BOUNDERS.entry(name)
    assert entry.offers <= made(name, halves=False).offers
    assert entry.halved <= made(name, halves=True).offers
    assert not entry.halved or Capability.INPUT_PARTS in entry.halved


@pytest.mark.parametrize("rule", [entry.name for entry in KNOWN_RULES.entries() if entry.needs])
def test_a_rule_meets_bounds_that_offer_what_it_needs(rule):
    """All bounds that are let through by name, and those that are chosen where none are named."""
    network, entry = hard_case("dense", 5, safe=True).problem.network, KNOWN_RULES.entry(rule)
    fitting = Options(branching=rule).fitting()
    assert fitting
    for bounds in ("auto", *fitting):
        plan = search_plan(Options(branching=rule, bounds=bounds), network)
        assert plan.brancher.needs <= entry.needs <= plan.bounder.offers


@pytest.mark.parametrize(("name", "halves"), WAYS)
def test_capabilities_answer_about_every_domain(name, halves):
    problem = hard_case("dense", 5, safe=True).problem
    session = made(name, halves=halves).prepare(problem)
    domains = session.root(0.0, NEVER).domains
    capabilities, count = session.capabilities, len(domains)
    boxes = [problem.property.boxes[c.box] for c in problem.clauses]
    low, high = torch.stack([box.lower for box in boxes]), torch.stack([box.upper for box in boxes])
    if capabilities.estimates is not None:
        choices = session.splittable(domains).int().topk(2, dim=1).indices
        assert capabilities.estimates.estimate(domains, choices, NEVER).shape == (count, 2, 2)
    if capabilities.relaxations is not None:
        relaxation = capabilities.relaxations.relaxed(domains, NEVER)
        assert relaxation.zero.shape == (count, len(relaxation.neurons))
        assert relaxation.value.shape == (count,)
    if capabilities.evidence is not None:
        stored = capabilities.evidence.stored(domains)
        resort = capabilities.evidence.last_resort(domains, NEVER)
        for evidence in (stored, resort):
            assert evidence is None or evidence.numbers.shape == (count, len(evidence.slots))
    if capabilities.input_parts is not None:
        parts = capabilities.input_parts.parts(domains)
        assert torch.equal(parts.lower, low)
        assert torch.equal(parts.upper, high)
        assert session.splittable(domains).shape == (count, problem.network.neurons + problem.network.inputs)
    else:
        assert session.splittable(domains).shape == (count, problem.network.neurons)
    if capabilities.deeper_roots is not None:
        for better in capabilities.deeper_roots.deepened(session.root(0.0, NEVER), 0.0, NEVER):
            assert bool((better.domains.lower >= domains.lower).all())
            assert torch.equal(better.domains.clause, domains.clause)
    if capabilities.unsafe_boxes is not None:
        lower, upper = capabilities.unsafe_boxes.unsafe_boxes(domains)
        assert bool(((lower >= low - 1e-9) & (upper <= high + 1e-9)).all())


@dataclass(frozen=True, eq=False)
class Foreign(Arrays):
    """What no session of bough's packs."""

    rows: Tensor


@pytest.mark.parametrize(("name", "halves"), WAYS)
def test_sessions_refuse_what_another_packed(name, halves):
    session = made(name, halves=halves).prepare(hard_case("dense", 5, safe=True).problem)
    domains = session.root(0.0, NEVER).domains
    again = session.unpack(session.pack(domains))
    assert torch.equal(again.lower, domains.lower)
    with pytest.raises(TypeError, match="packed by another bounder"):
        session.unpack(Foreign(torch.zeros(2)))


def test_domains_of_one_bounder_are_not_anothers():
    problem = hard_case("dense", 5, safe=True).problem
    sessions = [bounder.prepare(problem) for bounder in (PlanetLP(), LinearBounds(), DualAscent())]
    roots = [session.root(0.0, NEVER).domains for session in sessions]
    children = [split(root, root.bounds.ambiguous().int().argmax(dim=1)) for root in roots]
    for k, session in enumerate(sessions):
        with pytest.raises(TypeError, match="these domains carry"):
            session.bound(children[k - 1], 0.0, NEVER)
