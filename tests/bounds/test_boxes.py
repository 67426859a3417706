"""Linear bounds over halved boxes: below every sample, as tight as the general walk, verdicts as by enumeration."""

from dataclasses import replace

import pytest
import torch
from tests.support import (
    KINDS,
    ToldLookAhead,
    box_around,
    clause,
    generator,
    hard_case,
    in_ball,
    integer,
    normal,
    piece_margins,
    pieces,
    problem,
    random_clause,
    samples,
    sequential,
    tensor,
    with_ball,
)

from bough.bounds.base import Capability
from bough.bounds.boxes import HalvedLP, HalvedLPSession, LinearBounds, LinearSession, _outside
from bough.bounds.intermediate import TightBounds
from bough.bounds.linear import by_slopes, proved_rows
from bough.bounds.relaxation import AdaptiveSlopes
from bough.branching.base import KNOWN_RULES
from bough.branching.inputs import BaBSB, Combined, Longest, Smear
from bough.budget import Deadline, OutOfTime
from bough.domain.batch import DomainBatch, InputParts
from bough.errors import BadInput
from bough.falsify.base import NoAttack
from bough.network import walk
from bough.options import Options
from bough.plan import search_plan
from bough.problem.property import Ball, Box
from bough.search.loop import Goal, Search, search
from bough.verdict.result import Verdict

NEVER = Deadline.never()
AWAY = {"dense": 1e-3, "pooled": 5e-2}  # from 0; with kinks everywhere, halving to the last bit takes minutes
RULES = (Longest(), Smear(), BaBSB(few=0), BaBSB(few=4), Combined())


def mixed_problem(kind, seed, p=None):
    g = generator(seed)
    network = KINDS[kind](g)
    boxes = [box_around(g, network.inputs) for _ in range(2)]
    if p is not None:
        boxes = [with_ball(g, box, p) for box in boxes]
    clauses = [random_clause(g, network.outputs, rows, box) for rows, box in ((1, 0), (3, 1), (2, 0))]
    return problem(network, boxes, clauses)


def grown(query, seed=0, times=4) -> tuple[LinearSession, DomainBatch]:
    """Domains of several depths, halved and split at random."""
    bounding, g = LinearBounds().prepare(query), generator(seed)
    domains = bounding.root(0.0, NEVER).domains
    every = [domains]
    for _ in range(times):
        open_still = bounding.splittable(domains)
        domains, open_still = domains[open_still.any(dim=1)], open_still[open_still.any(dim=1)]
        if not len(domains):
            break
        chosen = torch.multinomial(open_still.double(), 1, generator=g)
        domains = bounding.bound(bounding.split(domains, chosen), 0.0, NEVER).domains
        every.append(domains)
    return bounding, DomainBatch.concatenate([replace(d, last_split=d.last_split[:, :1]) for d in every])


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("p", [None, 1, 2])
def test_bounds_hold_at_every_sample_of_the_domain(kind, p):
    query = mixed_problem(kind, 3, p)
    _, domains = grown(query)
    cut, tested = domains.carried(InputParts), 0
    for d in range(len(domains)):
        c = query.clauses[int(domains.clause[d])]
        ball = query.property.boxes[c.box].ball
        x = cut.lower[d] + torch.rand(300, len(cut.lower[d]), dtype=torch.float64) * cut.width[d]
        if ball is not None:
            x = ball.centre + 0.999 * (ball.project(x) - ball.centre)  # the rim is a matter of rounding
            x = x[((x >= cut.lower[d]) & (x <= cut.upper[d])).all(dim=1)]
        if not len(x):
            continue
        values = walk.forward(query.network, x.reshape(-1, *query.network.input_shape))
        z = torch.cat([values[query.network.nodes[i].inputs[0]].flatten(1) for i in query.network.relus], dim=1)
        signs = domains.signs[d].double()
        inside = ((z * signs) >= 0).all(dim=1)
        tested += int(inside.sum())
        if bool(inside.any()):
            assert float(domains.lower[d]) <= float(c.margins(values[-1].flatten(1)[inside]).min()) + 1e-12
            assert bool((z[inside] >= domains.bounds.lower[d] - 1e-12).all())
            assert bool((z[inside] <= domains.bounds.upper[d] + 1e-12).all())
    assert tested > (1000 if p is None else 100)


@pytest.mark.parametrize("kind", KINDS)
def test_each_row_is_bounded_as_by_the_general_walk(kind):
    """With the same ReLU bounds and slopes the fast walk says the same, but for the error bound, which is larger."""
    query = mixed_problem(kind, 5)
    bounding, domains = grown(query, times=2)
    domains = domains[(domains.signs == 0).all(dim=1) & ~domains.bounds.empty()]
    for number, c in enumerate(query.clauses):
        own_domains = domains[domains.clause == number]
        if not len(own_domains):
            continue
        cut = own_domains.carried(InputParts)
        region = TightBounds().at_root(query.network, query.property.boxes[c.box], NEVER)
        region = replace(region, lower=cut.lower, upper=cut.upper, bounds=own_domains.bounds)
        weights = bounding._weights if len(c.offsets) == 3 else torch.eye(len(c.offsets), dtype=torch.float64)
        shape = (len(own_domains), *c.coefficients.shape)
        rows, offsets = c.coefficients.expand(shape), c.offsets.expand(len(own_domains), -1)
        walked = proved_rows(
            query.network, region, rows, offsets, weights.expand(len(own_domains), -1, -1), by_slopes(AdaptiveSlopes())
        )
        assert bool((own_domains.lower >= walked.lower.max(dim=1).values - 1e-9).all())


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("seed", [7, 11])
def test_a_batch_is_bounded_as_its_domains_alone(kind, seed):
    query = mixed_problem(kind, seed)
    bounding, domains = grown(query)
    domains = domains[bounding.splittable(domains).any(dim=1)]
    chosen = torch.multinomial(bounding.splittable(domains).double(), 1, generator=generator(seed))
    children = bounding.split(domains, chosen)
    domains = DomainBatch.concatenate([domains, replace(children, last_split=children.last_split[:, :1])])
    fresh = replace(domains, lower=torch.full_like(domains.lower, -torch.inf))
    together = bounding.bound(fresh, 0.0, NEVER)
    for d in range(len(domains)):
        alone = bounding.bound(fresh[torch.tensor([d])], 0.0, NEVER)
        torch.testing.assert_close(alone.domains.lower, together.domains.lower[d : d + 1], rtol=1e-9, atol=1e-9)
        for side in ("lower", "upper"):
            single, batched = (getattr(bounded.domains.bounds, side) for bounded in (alone, together))
            torch.testing.assert_close(single, batched[d : d + 1], rtol=1e-9, atol=1e-9)
        assert torch.equal(alone.domains.carried(InputParts).lower[0], together.domains.carried(InputParts).lower[d])
        assert alone.points.shape == (1, query.network.inputs)


def test_weights_of_widely_different_scale_prove_nothing_wrong():
    """Huge numbers that cancel: the margin is far below their rounding."""
    big = 2.0**60
    network = sequential(([[1.0], [1.0]], [big, big]), ([[1.0, -1.0]], [0.0]))
    query = problem(network, [Box(tensor([-1.0]), tensor([1.0]))], [clause([[1.0]], [-0.5])])
    lower = LinearBounds().prepare(query).root(0.0, NEVER).domains.lower
    assert float(lower[0]) <= 0.5
    unsafe = problem(network, [Box(tensor([-1.0]), tensor([1.0]))], [clause([[1.0]], [0.0])])
    assert not float(LinearBounds().prepare(unsafe).root(0.0, NEVER).domains.lower[0]) > 0


def test_coefficients_that_overflow_prove_nothing():
    """Where inputs are tiny, values stay finite while coefficients do not; at x_1 = 1 the output is about -1e235."""
    network = sequential(([[1e160, 0.0], [0.0, 1.0], [0.0, 1.0]], [0.0, 0.0, -1.0]), ([[1e160, -1e235, 2e235]], [0.0]))
    query = problem(network, [Box(tensor([1e-90, 0.0]), tensor([2e-90, 2.0]))], [clause([[1.0]], [0.0])])
    assert not float(LinearBounds().prepare(query).root(0.0, NEVER).domains.lower[0]) > 0
    for rule in RULES:
        result = search(Search(query, LinearBounds(), rule, NoAttack(), Deadline.after(20), batch=4))
        assert result.verdict is Verdict.FALSIFIED


def test_a_network_without_relus_is_halved_where_rows_cross():
    query = problem(
        sequential(([[1.0]], [0.0])), [Box(tensor([-100.0]), tensor([100.0]))], [clause([[1.0], [-3.0]], [-0.1, -0.1])]
    )
    for rule in (Longest(), Smear(), BaBSB(few=0)):
        result = search(Search(query, LinearBounds(), rule, NoAttack(), Deadline.after(20), batch=4))
        assert result.verdict is Verdict.VERIFIED


@pytest.mark.parametrize("p", [1, 2])
def test_boxes_are_outside_a_ball_only_if_no_point_of_them_is_in_it(p):
    """Against exact rationals, at the box's nearest point; many boxes touch the rim to the last bits."""
    g, count = generator(p), 0
    for _ in range(300):
        centre, scale = normal(g, 3), normal(g, 3).exp()
        ball = Ball(centre, scale, float(normal(g, 1).exp()), p)
        way = normal(g, 3)
        rim = centre + way * ball.radius / ball.distance(centre + way)
        near = rim * (1 + float(normal(g, 1)) * 10.0 ** -integer(g, 0, 17))
        far = near + (near - centre).sign() * normal(g, 3).abs()
        low, high = torch.minimum(near, far), torch.maximum(near, far)
        outside = bool(_outside(ball, InputParts(low[None], high[None], low[None]))[0])
        count += outside
        nearest = torch.minimum(torch.maximum(centre, low), high)
        assert not (outside and in_ball(ball, nearest.tolist()))
    assert count > 30


@pytest.mark.parametrize("seed", [104, 113, 167])
def test_parts_of_a_box_outside_its_ball_do_not_stay_open(seed):
    g = generator(seed)
    network = KINDS["dense"](g)
    box = with_ball(g, box_around(g, network.inputs), 2)
    drawn = random_clause(g, network.outputs, 1)
    margins = drawn.margins(walk.evaluate(network, box.project(samples(box, 4000))))
    query = problem(network, [box], [clause(drawn.coefficients, drawn.offsets + float(margins.min()) - 0.05)])
    result = search(Search(query, LinearBounds(), BaBSB(few=0), NoAttack(), Deadline.after(20), batch=16))
    assert result.verdict is not Verdict.UNKNOWN


def test_children_cover_their_parent():
    query = mixed_problem("dense", 2)
    bounding = LinearBounds().prepare(query)
    root = bounding.root(0.0, NEVER).domains
    neurons, inputs = query.network.neurons, query.network.inputs
    for k in range(inputs):
        cut = bounding.split(root, torch.full((len(root),), neurons + k)).carried(InputParts)
        whole = root.carried(InputParts)
        assert torch.equal(cut.lower[::2], whole.lower)
        assert torch.equal(cut.upper[1::2], whole.upper)
        assert torch.equal(cut.upper[::2, k], cut.lower[1::2, k])
        others = torch.arange(inputs) != k
        assert torch.equal(cut.upper[::2, others], whole.upper[:, others])
    relu = root.bounds.ambiguous().int().argmax(dim=1)
    mixed = torch.where(torch.arange(len(root)) % 2 == 0, relu, neurons)
    children = bounding.split(root, mixed)
    assert children.signs.abs().sum(dim=1).tolist() == [1, 1, 0, 0, 1, 1]
    assert torch.equal(children.bounds.lower[2:4], root.bounds.lower[[1, 1]])


@pytest.mark.parametrize("rule", RULES, ids=repr)
@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("safe", [True, False])
def test_verdicts_are_those_of_enumeration(kind, rule, safe):
    case = hard_case(kind, 4, safe=safe, away=AWAY.get(kind, 1e-2))
    result = search(Search(case.problem, LinearBounds(), rule, NoAttack(), Deadline.after(60), batch=4))
    assert result.verdict == (Verdict.VERIFIED if safe else Verdict.FALSIFIED), result.reason


@pytest.mark.parametrize("rule", [Smear(), Longest(), BaBSB(few=0), Combined()], ids=repr)
@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("safe", [True, False])
def test_with_the_lp_verdicts_are_those_of_enumeration_too(kind, rule, safe):
    # Shadow prices say nothing of what a narrower input does to ReLU bounds: on padded windows that is nearly all.
    case = hard_case(kind, 4, safe=safe, away={**AWAY, "padded": 0.1}.get(kind, 1e-2))
    result = search(Search(case.problem, HalvedLP(), rule, NoAttack(), Deadline.after(60), batch=4))
    assert result.verdict == (Verdict.VERIFIED if safe else Verdict.FALSIFIED), result.reason


@pytest.mark.parametrize("kind", KINDS)
def test_the_lp_sharpens_and_its_slopes_are_shadow_prices(kind):
    """Never below the linear bound nor above samples; and the slope is how the optimum moves with a side of the box."""
    query = mixed_problem(kind, 3)
    linear, domains = grown(query, times=2)
    domains = domains[(domains.signs == 0).all(dim=1)]
    fresh = replace(domains, lower=torch.full_like(domains.lower, -torch.inf))
    plain = linear.bound(fresh, torch.inf, NEVER).domains
    bounding = HalvedLP().prepare(query)
    bounding._linear = linear
    sharp = bounding.bound(fresh, torch.inf, NEVER)
    assert bool((sharp.domains.lower >= plain.lower - 1e-12).all())
    cut = sharp.domains.carried(InputParts)
    assert bool(((sharp.points >= cut.lower) & (sharp.points <= cut.upper)).all())
    for d in range(len(domains)):
        c = query.clauses[int(domains.clause[d])]
        x = cut.lower[d] + torch.rand(200, cut.lower.shape[1], dtype=torch.float64) * cut.width[d]
        assert float(sharp.domains.lower[d]) <= float(c.margins(walk.evaluate(query.network, x)).min()) + 1e-9
    again = optimum(bounding, sharp.domains, 0)
    assert again == pytest.approx(float(sharp.domains.lower[0]), abs=1e-7)
    for k in range(query.network.inputs):  # a price holds until the basis changes; then moving a side gains more
        gain = optimum(bounding, sharp.domains, 0, k, 1e-3) - again
        assert gain >= 1e-3 * float(cut.width[0, k]) * max(0.0, float(cut.slope[0, k])) - 1e-9


def optimum(bounding: HalvedLPSession, domains: DomainBatch, d: int, k: int | None = None, by: float = 0.0) -> float:
    """The LP's proved value over a domain's box, one side moved inwards."""
    cut, one = domains.carried(InputParts), slice(d, d + 1)
    lower = cut.lower[one].clone()
    if k is not None:
        lower[0, k] += by * float(cut.width[d, k])
    c = bounding._problem.clauses[int(domains.clause[d])]
    proved, _ = bounding._lp.over_part(c, (lower, cut.upper[one]), domains.bounds[one], torch.inf, NEVER)
    return float(proved.lower[0, 0])


@pytest.mark.parametrize("kind", ["dense", "residual"])
def test_the_minimum_is_that_of_enumeration(kind):
    g = generator(9)
    network = KINDS[kind](g)
    box, c = box_around(g, network.inputs), random_clause(g, network.outputs, 1)
    exact = float(piece_margins(pieces(network, box), box, c).min())
    query = problem(network, [box], [c])
    result = search(Search(query, LinearBounds(), BaBSB(), NoAttack(), Deadline.after(60), Goal(1e-3), batch=16))
    assert result.lower_bound - 1e-9 <= exact <= result.lower_bound + 1e-3 + 1e-9


@pytest.mark.parametrize("rule", RULES, ids=repr)
def test_rules_choose_what_can_be_split_whatever_the_order(rule):
    query = mixed_problem("dense", 11)
    bounding, domains = grown(query, times=3)
    domains = domains[bounding.splittable(domains).any(dim=1)]
    look = ToldLookAhead(lambda d, n: bounding.estimate(d, n, NEVER))
    memory = rule.prepare(query)
    chosen = rule.decide(memory, domains, look).neurons
    possible = bounding.splittable(domains)
    some_input = possible[:, query.network.neurons :].any(dim=1)
    assert bool(possible.gather(1, chosen[:, None])[some_input].all())
    order = torch.randperm(len(domains), generator=generator(1))
    assert torch.equal(rule.decide(memory, domains[order], look).neurons, chosen[order])
    alone = [rule.decide(memory, domains[torch.tensor([d])], look).neurons for d in range(len(domains))]
    assert torch.equal(torch.cat(alone), chosen)


def test_babsb_takes_the_input_whose_worse_half_is_best():
    """Against a loop over inputs and halves, each bounded by hand."""
    query = mixed_problem("dense", 13)
    bounding = LinearBounds().prepare(query)
    root = bounding.root(0.0, NEVER).domains
    look = ToldLookAhead(lambda d, n: bounding.estimate(d, n, NEVER))
    chosen = BaBSB(few=0).decide(BaBSB().prepare(query), root, look).neurons
    for d in range(len(root)):
        one = replace(root[torch.tensor([d])], lower=tensor([-torch.inf]))
        values = []
        for k in range(query.network.inputs):
            halves = bounding.bound(bounding.split(one, torch.tensor([query.network.neurons + k])), 0.0, NEVER)
            below = halves.domains.lower.clamp(max=0)
            values.append(float(below.min() + 0.1 * below.max()))
        assert int(chosen[d]) - query.network.neurons == max(range(len(values)), key=values.__getitem__)


def test_smear_and_longest_are_their_formulas():
    query = mixed_problem("dense", 17)
    _, domains = grown(query, times=2)
    cut, neurons = domains.carried(InputParts), query.network.neurons
    smear = Smear().decide(Smear().prepare(query), domains).neurons - neurons
    longest = Longest().decide(Longest().prepare(query), domains).neurons - neurons
    for d in range(len(domains)):
        box = query.property.boxes[query.clauses[int(domains.clause[d])].box]
        products = [abs(float(g)) * float(w) for g, w in zip(cut.slope[d], cut.width[d], strict=True)]
        parts = [float(w / v) for w, v in zip(cut.width[d], box.upper - box.lower, strict=True)]
        assert parts[int(longest[d])] == pytest.approx(max(parts))
        worth = [p / max(*products, 1e-300) + 0.1 * q / max(parts) for p, q in zip(products, parts, strict=True)]
        allowed = [w for w, q in zip(worth, parts, strict=True) if q >= max(parts) / 32]
        assert worth[int(smear[d])] == pytest.approx(max(allowed))


def test_a_deadline_is_heard():
    query = mixed_problem("dense", 1)
    bounding = LinearBounds().prepare(query)
    root = bounding.root(0.0, NEVER).domains
    with pytest.raises(OutOfTime):
        bounding.bound(root, 0.0, Deadline.after(0))


def test_auto_halves_inputs_where_there_are_few():
    g = generator(0)
    few = sequential(*[(torch.randn(20, n, generator=g).tolist(), [0.0] * 20) for n in (5, 20)], ([[1.0] * 20], [0.0]))
    chosen = search_plan(Options(), few)
    assert (chosen.settings.bounder, chosen.settings.branching, chosen.settings.device) == ("linear", "babsb", "cpu")
    assert isinstance(chosen.bounder, LinearBounds)
    assert isinstance(chosen.brancher, BaBSB)
    assert "only 5 inputs, which are halved" in chosen.words
    for rule, bounds in [("kfsb", "dual"), ("longest", "linear"), ("shadow", "lp")]:
        assert search_plan(Options(branching=rule), few).settings.bounder == bounds
    for rule, bounds, word in [
        ("babsb", "dual", "halved"),
        ("shadow", "linear", "shadow prices"),
        ("kfsb", "linear", "halves"),
    ]:
        with pytest.raises(BadInput, match=word):
            Options(branching=rule, bounds=bounds)
    halving = {rule.name for rule in KNOWN_RULES.entries() if Capability.INPUT_PARTS in rule.needs}
    assert halving == {"babsb", "smear", "shadow", "longest", "combined"}


def test_the_domains_of_this_file_differ():
    """That the helper draws several depths, and so several sizes of box."""
    _, domains = grown(mixed_problem("dense", 3))
    assert len(domains.depth.unique()) >= 3
