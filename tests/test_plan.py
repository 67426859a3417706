"""What does not fit together fails when options or a plan are made, by names and by objects; a plan says what it is."""

from dataclasses import dataclass, replace
from typing import Any

import pytest
from tests.support import dense, generator, hard_case, sequential
from tests.test_docs import shown_brancher

import bough
from bough.api import solve
from bough.bounds.base import KNOWN_BOUNDERS, AbstractBounder, BounderSettings, Capability
from bough.bounds.boxes import HalvedLP, LinearBounds
from bough.bounds.dual import DualAscent
from bough.bounds.intermediate import KNOWN_RELU_BOUNDS, AbstractIntermediate, PaperBounds, TightBounds
from bough.bounds.lp import PlanetLP
from bough.bounds.optimised import OptimisedBounds, by_trees
from bough.branching.babsr import BaBSR
from bough.branching.base import KNOWN_RULES, AbstractBrancher, RuleSettings
from bough.branching.inputs import BaBSB, Combined, Longest, Smear
from bough.branching.widest import Widest
from bough.errors import BadInput
from bough.network.graph import Network
from bough.options import Options
from bough.plan import USER_BOUNDER_BATCH, BaselinePlan, SearchPlan, make_plan, search_plan
from bough.verdict.result import Verdict

FIXED = TightBounds(refresh=False)


@dataclass(frozen=True)
class Needing(AbstractBrancher[None]):
    """Widest, with needs made up for a test."""

    needs: frozenset[Capability] = frozenset()  # type: ignore[misc]  # of the object here, not of the class

    def prepare(self, problem: Any) -> None:
        del problem

    def decide(self, memory: None, domains: Any, look: Any = None) -> Any:
        return Widest().decide(memory, domains, look)


def small_network(seed: int = 0) -> Network:
    """A dozen ReLUs at most: `auto` has the LP for so few."""
    return dense(generator(seed))


def wide_network(inputs: int = 20) -> Network:
    """Too many ReLUs and inputs for `auto` to have anything but ascent."""
    return sequential(([[1.0] * inputs] * 30, [0.5] * 30), ([[1.0] * 30], [0.0]))


def narrow_network() -> Network:
    """Few inputs and many ReLUs: `auto` halves inputs."""
    return wide_network(inputs=2)


NETWORKS = {"small": small_network(), "wide": wide_network(), "narrow": narrow_network()}


# Bounds and rules


def both_forms(name: str, *rules: AbstractBrancher[Any]) -> list[str | AbstractBrancher[Any]]:
    return [name, *rules, KNOWN_RULES.entry(name).make(RuleSettings())]


@pytest.mark.parametrize("bounds", ["dual", DualAscent(), PlanetLP()], ids=str)
@pytest.mark.parametrize("rule", [*both_forms("babsb"), *both_forms("combined"), Longest(), Smear()], ids=str)
def test_a_rule_that_halves_inputs_needs_bounds_that_do(rule, bounds):
    with pytest.raises(BadInput) as refused:
        Options(branching=rule, bounds=bounds)
    message = str(refused.value)
    assert message.startswith(f"'{rule}' needs inputs that can be halved, which {bounds} bounds do not have; ")
    assert message.endswith("use --bounds linear or lp")
    assert "\n" not in message


def test_the_interface_refuses_them_before_it_reads_a_file():
    with pytest.raises(bough.BadInput, match=r"'BaBSB\(few=40\)' needs .*, which dual bounds do not have") as refused:
        bough.verify("absent.onnx", "absent.vnnlib", branching=BaBSB(), bounds="dual")
    assert refused.value.__cause__ is None


@pytest.mark.parametrize("bounds", ["linear", LinearBounds(), HalvedLP()], ids=str)
def test_a_rule_object_that_needs_a_relaxation_is_refused_where_there_is_none(bounds):
    rule = shown_brancher()
    assert rule.needs == {Capability.RELAXATION}
    with pytest.raises(BadInput) as refused:
        Options(branching=rule, bounds=bounds)
    message = (
        f"'{rule}' needs the multipliers of a relaxation, which {bounds} bounds do not have; use --bounds lp or dual"
    )
    assert str(refused.value) == message


@pytest.mark.parametrize("rule", ["babsr", BaBSR(), Widest()], ids=str)
def test_linear_bounds_need_a_rule_that_halves_inputs(rule):
    with pytest.raises(BadInput, match="linear bounds need a rule that halves inputs: babsb, smear"):
        Options(branching=rule, bounds="linear")


def test_several_needs_are_all_said():
    needs = frozenset({Capability.RELAXATION, Capability.UNSAFE_BOXES})
    with pytest.raises(BadInput, match="needs boxes around unsafe points and the multipliers of a relaxation"):
        Options(branching=Needing(needs), bounds="lp")


def test_what_only_another_form_of_the_bounds_has_is_refused():
    """The LP offers a relaxation, and halved inputs, but not both at once."""
    needs = frozenset({Capability.RELAXATION, Capability.INPUT_PARTS})
    with pytest.raises(BadInput, match=r"and the multipliers of a relaxation.*; no bounds have all that"):
        Options(branching=Needing(needs), bounds="lp")


@pytest.mark.parametrize("weights", ["some", "cifar"])
def test_weights_are_for_learnt_rules_only(weights):
    for rule in ("babsr", BaBSR(), "auto"):
        with pytest.raises(BadInput, match="only learnt rules have weights: give --branching gnn"):
            Options(branching=rule, weights=weights)


# Certificates, minima, executions


@pytest.mark.parametrize(
    "policy", ["tight", "paper", TightBounds(), PaperBounds(), OptimisedBounds(TightBounds())], ids=str
)
def test_renewed_relu_bounds_cannot_be_certified(policy, tmp_path):
    relu_bounds = KNOWN_RELU_BOUNDS.entry(policy).make() if isinstance(policy, str) else policy
    assert relu_bounds.refreshes
    with pytest.raises(BadInput) as refused:
        Options(certificate=tmp_path / "proof", intermediate=policy)
    message = f"ReLU bounds that are renewed after splits ({policy}) cannot be certified yet; "
    assert str(refused.value) == f"{message}use --intermediate fixed or optimised, or no --certificate"
    for bounder in (PlanetLP(relu_bounds), DualAscent(intermediate=relu_bounds)):
        with pytest.raises(BadInput, match=r"renewed after splits \(.*\) cannot be certified yet"):
            Options(certificate=tmp_path / "proof", bounds=bounder)


@pytest.mark.parametrize("bounder", [PlanetLP(FIXED), DualAscent(), LinearBounds()], ids=str)
def test_other_objects_can_be_certified(bounder, tmp_path):
    case = hard_case("dense", 2, safe=True)
    result = solve(case.problem, Options(certificate=tmp_path / "proof", bounds=bounder, attack=False))
    assert result.verdict is Verdict.VERIFIED
    from bough.verdict.check import Outcome, check

    assert check(case.problem, tmp_path / "proof").outcome is Outcome.VALID


@pytest.mark.parametrize(
    ("bounds", "rule"), [("lp", "babsb"), ("lp", BaBSB()), ("auto", "shadow"), (HalvedLP(), BaBSB())]
)
def test_lps_over_halved_inputs_cannot_be_certified(bounds, rule, tmp_path):
    with pytest.raises(BadInput, match=r"cannot be (certified yet|written down)"):
        Options(certificate=tmp_path / "proof", bounds=bounds, branching=rule)


@pytest.mark.parametrize("question", [{"gap": 1e-3}, {"semantics": "float32"}])
def test_bounds_at_unsafe_points_only_do_not_do_for_what_is_about_safe_points_too(question):
    """By name the policy gives way; a bounder that is an object is taken as it is, or not at all."""
    policy = OptimisedBounds()
    for bounder in (DualAscent(intermediate=policy), PlanetLP(policy)):
        assert Options(bounds=bounder).bounds is bounder
        with pytest.raises(BadInput, match=r"about safe points, too; OptimisedBounds\(.*\) in (Dual|Planet).* is not"):
            Options(bounds=bounder, **question)
    for named in ("optimised", policy):
        plan = search_plan(Options(bounds="dual", intermediate=named, **question), wide_network())
        assert plan.bounder.intermediate is not None
        assert not plan.bounder.intermediate.conditional


def test_a_bounder_by_name_may_take_no_relu_bounds(monkeypatch):
    """Then they are no option, no part of the sentence, and the bounder's own in the record."""
    entry = replace(KNOWN_BOUNDERS.entry("lp"), usual_relu_bounds=None, certified_relu_bounds=None)
    monkeypatch.setattr(KNOWN_BOUNDERS, "entry", lambda name: entry)
    for policy in ("paper", FIXED):
        with pytest.raises(BadInput, match=r"^lp has ReLU bounds of its own; leave out --intermediate$"):
            Options(bounds="lp", intermediate=policy)
    plan = search_plan(Options(bounds="lp"), small_network())
    assert plan.words == "lp bounds on cpu, babsr branching, 8 domains a step"
    assert plan.settings.intermediate == "own"


# A bounder that is an object


def test_a_bounder_object_is_used_and_recorded():
    case = hard_case("residual", 4, safe=True)
    bounder = PlanetLP()
    plan = make_plan(Options(bounds=bounder, attack=False), case.problem.network)
    assert isinstance(plan, SearchPlan)
    assert plan.bounder is bounder
    assert plan.settings.bounder == str(bounder)
    assert (plan.settings.intermediate, plan.settings.branching, plan.settings.device) == ("own", "babsr", "cpu")
    assert plan.settings.batch == plan.batch == USER_BOUNDER_BATCH
    assert str(bounder) in plan.words
    assert plan.solve(case.problem).verdict is Verdict.VERIFIED


def test_the_interface_takes_a_bounder_object(tmp_path):
    from bough.problem.onnx_writer import write_network
    from bough.problem.vnnlib import write_property

    case = hard_case("dense", 5, safe=True)
    write_network(case.problem.network, tmp_path / "net.onnx")
    (tmp_path / "prop.vnnlib").write_text(write_property(case.problem.property))
    result = bough.verify(tmp_path / "net.onnx", tmp_path / "prop.vnnlib", bounds=PlanetLP(), attack=False)
    assert result.verdict is Verdict.VERIFIED
    assert result.branches > 2


def test_an_object_has_relu_bounds_and_a_device_already():
    with pytest.raises(BadInput, match=r"PlanetLP\(.*\) has ReLU bounds of its own; leave out --intermediate"):
        Options(bounds=PlanetLP(), intermediate="fixed")
    with pytest.raises(BadInput, match=r"has ReLU bounds of its own"):
        Options(bounds=PlanetLP(), intermediate=FIXED)
    with pytest.raises(BadInput, match=r"DualAscent\(.*\) is made for the device cuda; leave out --device"):
        Options(bounds=DualAscent(device="cuda"), device="cpu")
    assert Options(bounds=PlanetLP(), device="cpu").device == "cpu"


def test_trees_are_refused_where_nothing_grows_them():
    refusal = r"grows no trees; use --bounds dual, or --intermediate optimised$"
    for name in ("lp", "linear"):
        with pytest.raises(BadInput, match=refusal):
            Options(bounds=name, intermediate="trees")
    with pytest.raises(BadInput, match=refusal):
        Options(bounds=PlanetLP(by_trees()))
    assert Options(bounds="dual", intermediate="trees").intermediate == "trees"


@pytest.mark.parametrize(
    "bounder",
    [PlanetLP(), PlanetLP(FIXED), DualAscent(), LinearBounds(), HalvedLP(), DualAscent(intermediate=OptimisedBounds())],
    ids=str,
)
def test_a_session_is_capable_of_what_its_bounder_offers(bounder: AbstractBounder):
    capabilities = bounder.prepare(hard_case("dense", 1, safe=True).problem).capabilities
    held = {
        Capability.ESTIMATES: capabilities.estimates,
        Capability.RELAXATION: capabilities.relaxations,
        Capability.EVIDENCE: capabilities.evidence,
        Capability.INPUT_PARTS: capabilities.input_parts,
        Capability.UNSAFE_BOXES: capabilities.unsafe_boxes,
        Capability.DEEPER_ROOTS: capabilities.deeper_roots,
    }
    able = {capability for capability, thing in held.items() if thing is not None}
    assert able == bounder.offers - {Capability.SHADOW_PRICES}  # which are among the slopes of input parts


def test_an_entry_offers_what_its_bounders_offer():
    for entry in KNOWN_BOUNDERS.entries():
        assert entry.offers <= entry.make(BounderSettings(FIXED)).offers
        if entry.halved:
            assert entry.halved == entry.make(BounderSettings(FIXED, halves=True)).offers


# What `auto` becomes


def chosen(network: Network, **options: Any) -> tuple[str, str, str]:
    """Bounds, ReLU bounds and rule."""
    settings = search_plan(Options(device="cpu", **options), network).settings
    return settings.bounder, settings.intermediate, settings.branching


def test_auto_by_the_network():
    assert chosen(small_network()) == ("lp", "tight", "babsr")
    assert chosen(wide_network()) == ("dual", "trees", "kfsb")
    assert chosen(narrow_network()) == ("linear", "tight", "babsb")
    assert chosen(narrow_network(), branching="widest") == ("dual", "trees", "widest")
    assert chosen(wide_network(), intermediate="paper") == ("lp", "paper", "babsr")


@pytest.mark.parametrize("network", NETWORKS.values(), ids=NETWORKS)
@pytest.mark.parametrize("capability", list(Capability))
def test_auto_fits_what_a_rule_needs(network, capability):
    needs = {capability, *([Capability.INPUT_PARTS] if capability is Capability.SHADOW_PRICES else [])}
    plan = search_plan(Options(branching=Needing(frozenset(needs)), device="cpu"), network)
    assert capability in plan.bounder.offers
    assert plan.settings.branching == str(plan.brancher)


def test_auto_halves_inputs_for_rules_that_do():
    for rule in ("babsb", BaBSB(), "smear", Smear(), "longest", Longest(), "combined", Combined()):
        assert chosen(small_network(), branching=rule)[0] == "linear"
        assert chosen(wide_network(), branching=rule)[0] == "linear"
    assert chosen(wide_network(), branching="shadow")[0] == "lp"
    assert isinstance(search_plan(Options(branching="shadow"), wide_network()).bounder, HalvedLP)
    for rule in ("babsb", BaBSB()):
        assert isinstance(search_plan(Options(branching=rule, bounds="lp"), wide_network()).bounder, HalvedLP)


def test_a_certificate_chooses_relu_bounds_that_are_not_renewed(tmp_path):
    for bounds, policy in (("lp", "fixed"), ("dual", "trees")):
        plan = search_plan(Options(bounds=bounds, certificate=tmp_path / "proof"), wide_network())
        assert plan.settings.intermediate == policy
        assert plan.bounder.intermediate is not None
        assert not plan.bounder.intermediate.refreshes


# What is recorded


@pytest.mark.parametrize("network", NETWORKS.values(), ids=NETWORKS)
@pytest.mark.parametrize("batch", [None, 1, 37])
def test_the_settings_are_those_in_use(network, batch):
    plan = search_plan(Options(batch=batch, seed=3, timeout=7.0, device="cpu"), network)
    settings = plan.settings
    assert settings.batch == plan.batch == (batch or plan.batch) >= 1
    assert f"{plan.batch} domains a step" in plan.words
    assert (settings.seed, settings.timeout, settings.device) == (3, 7.0, plan.bounder.device)
    assert "auto" not in (settings.bounder, settings.intermediate, settings.branching, settings.device)
    policy: AbstractIntermediate | None = plan.bounder.intermediate
    if policy is not None:
        assert policy == KNOWN_RELU_BOUNDS.entry(settings.intermediate).make()


def test_objects_are_recorded_by_what_they_are():
    rule = Widest()
    plan = search_plan(Options(bounds="dual", branching=rule, intermediate=FIXED), wide_network())
    assert plan.brancher is rule
    assert plan.bounder.intermediate is FIXED
    assert (plan.settings.branching, plan.settings.intermediate) == (str(rule), str(FIXED))


def test_a_plan_is_made_once_and_can_be_used_again():
    """A free memory or a file that changes meanwhile changes nothing of it."""
    case = hard_case("dense", 5, safe=True)
    plan = make_plan(Options(bounds="lp", branching="random", seed=5, attack=False, batch=3), case.problem.network)
    first, second = (plan.solve(case.problem) for _ in range(2))
    assert (first.branches, first.bounds, first.lower_bound) == (second.branches, second.bounds, second.lower_bound)
    assert plan.settings.batch == 3


def test_a_baseline_is_a_plan_too():
    plan = make_plan(Options(method="mip-planet", timeout=5.0), small_network())
    assert isinstance(plan, BaselinePlan)
    assert (plan.settings.bounder, plan.settings.intermediate, plan.settings.device) == ("highs", "paper", "cpu")
    assert plan.settings.batch is None
    assert plan.words.endswith(", by HiGHS")
    with pytest.raises(BadInput, match="method mip-planet is a baseline"):
        search_plan(Options(method="mip-planet"), small_network())
