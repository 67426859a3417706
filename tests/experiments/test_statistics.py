"""Averages, wins and groups on runs made up for the purpose; test_paper.py holds them against the paper."""

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.experiments.runs import failure, run, timeout

from bough.errors import BadInput
from laboratory.statistics import (
    Average,
    charged_seconds,
    compare,
    cost,
    dependence,
    geometric_mean,
    grouped,
    network_name,
    par2_seconds,
    rank_correlation,
    renamed,
    with_difficulty,
)

# One run


@pytest.mark.parametrize(
    ("made", "charged", "par2"),
    [
        (run("a", "p", 3.0), 3.0, 3.0),
        (run("a", "p", 3.0, verdict="falsified"), 3.0, 3.0),
        (timeout("a", "p", 100.2), 100.2, 200.0),  # overrun, as in the paper's files
        (timeout("a", "p", 99.9), 100.0, 200.0),
        (run("a", "p", 3.0, verdict="unknown"), 100.0, 200.0),  # giving up is not fast
        (failure("a", "p"), 100.0, 200.0),
        (run("a", "p", 3.0, error="crashed after its verdict"), 100.0, 200.0),
        (timeout("a", "p", 5.0, timeout=None), 5.0, 10.0),
        (failure("a", "p", timeout=None), 0.0, 0.0),
    ],
)
def test_seconds_without_an_answer_are_the_limit(made, charged, par2):
    assert (charged_seconds(made), par2_seconds(made)) == (charged, par2)


# Averages


@given(st.lists(st.floats(1e-3, 1e6), min_size=1, max_size=20))
def test_the_geometric_mean_is_between_the_least_and_the_arithmetic(values):
    average = Average.of(values)
    assert average is not None
    assert min(values) * (1 - 1e-9) <= average.geometric <= average.arithmetic * (1 + 1e-9)
    assert geometric_mean([3 * v for v in values]) == pytest.approx(3 * average.geometric)


def test_averages_of_little():
    assert Average.of([]) is None
    assert Average.of([1.0, None]) is None
    zero = Average.of([0.0, 2.0])
    assert zero is not None
    assert zero.geometric == 0
    shifted = Average.of([0.0, 3.0], shift=1.0)
    assert shifted is not None
    assert shifted.geometric == pytest.approx(1.0)  # sqrt(1 * 4) - 1
    with pytest.raises(BadInput, match="no geometric mean"):
        Average.of([-1.0])


# Methods side by side


def test_figures_of_every_end():
    runs = [
        *(run("a", f"p{k}", 2.0, branches=k) for k in range(1, 4)),
        run("a", "f", 2.0, verdict="falsified"),
        timeout("a", "t"),
        run("a", "u", verdict="unknown"),
        failure("a", "e"),
    ]
    figures = compare(runs).figures("a")
    assert (figures.runs, figures.verified, figures.falsified, figures.timeouts, figures.unknown, figures.errors) == (
        *(7, 3, 1),
        *(1, 1, 1),
    )
    assert figures.solved == 4
    assert figures.unsolved_share == pytest.approx(3 / 7)
    assert figures.seconds.arithmetic == pytest.approx((4 * 2 + 3 * 100) / 7)
    assert figures.par2 == pytest.approx((4 * 2 + 3 * 200) / 7)
    assert figures.branches is not None
    assert (figures.branches.count, figures.branches.arithmetic) == (4, 4.0)


def test_branches_are_averaged_over_what_every_search_solved():
    runs = [
        *(run("a", p, branches=n) for p, n in (("p", 2), ("q", 4), ("r", 1000))),
        *(run("b", p, branches=n) for p, n in (("p", 4), ("q", 4))),
        timeout("b", "r"),
    ]
    comparison = compare(runs)
    assert comparison.common == (("nets/net.onnx", "p"), ("nets/net.onnx", "q"))
    a, b = (comparison.figures(name).branches for name in "ab")
    assert a is not None
    assert b is not None
    assert (a.arithmetic, b.arithmetic) == (3.0, 4.0)
    assert (a.geometric, b.geometric) == pytest.approx((math.sqrt(8), 4.0))


def test_nodes_of_a_foreign_solver_are_no_branches():
    runs = [run("a", "p"), run("a", "q"), run("mip", "p", bounder="highs", branches=1), timeout("mip", "q")]
    comparison = compare(runs)
    assert comparison.common_to == ("a",)
    assert len(comparison.common) == 2  # MIPplanet does not decide what is common, as in the paper
    assert comparison.figures("mip").branches is None
    with pytest.raises(BadInput, match="mip does not count branches as a search does; compare seconds"):
        comparison.wins("a", "mip")
    assert comparison.wins("a", "mip", "seconds").only_first == 1
    named = compare(runs, common_to=["a", "mip"])
    assert len(named.common) == 1
    assert named.figures("mip").branches is not None


def test_a_method_that_solved_nothing_does_not_take_the_rest_with_it():
    comparison = compare([run("a", "p"), timeout("b", "p")])
    assert comparison.common_to == ("a",)
    assert any("solved nothing" in note and "b" in note for note in comparison.notes)
    assert comparison.figures("b").branches is None


def test_nothing_solved_by_every_search():
    comparison = compare([run("a", "p"), timeout("a", "q"), timeout("b", "p"), run("b", "q")])
    assert comparison.common == ()
    assert comparison.figures("a").branches is None


def test_proofs_at_the_root_shift_the_geometric_mean():
    comparison = compare([run("a", "p", branches=0), run("a", "q", branches=3)])
    branches = comparison.figures("a").branches
    assert branches is not None
    assert branches.geometric == pytest.approx(1.0)


def test_the_last_of_several_runs_counts():
    comparison = compare([failure("a", "p"), run("a", "p", 7.0)])
    assert comparison.figures("a").seconds.arithmetic == 7.0
    assert any("1 runs are there again" in note for note in comparison.notes)


def test_properties_that_not_all_were_asked_are_left_out():
    comparison = compare([run("a", "p", 1.0), run("a", "q", 50.0), run("b", "p")])
    assert comparison.figures("a").seconds.arithmetic == 1.0
    assert "1 of 2 properties are left out: not run by all" in comparison.notes


def test_methods_in_the_order_asked_for():
    assert compare([run("a", "p"), run("b", "p"), run("c", "p")], ["c", "a"]).methods == ("c", "a")


def test_errors_are_told():
    assert "errors, which count as not solved: 1 of b" in compare([run("a", "p"), failure("b", "p")]).notes


def test_contradictions_are_told():
    notes = compare([run("a", "p"), run("b", "p", verdict="falsified")]).notes
    assert any("contradict each other on 1 properties, such as p" in note for note in notes)


def test_runs_without_a_limit_are_told():
    assert any("no time limit" in note for note in compare([timeout("a", "p", timeout=None)]).notes)


# Wins


def test_wins_ties_and_losses():
    counts = {"p": (1, 2), "q": (2, 2), "r": (3, 2), "s": (4, 8)}
    runs = [run(name, p, branches=n) for p, both in counts.items() for name, n in zip("ab", both, strict=True)]
    runs += [run("a", "t"), timeout("b", "t"), timeout("a", "u"), run("b", "u")]
    runs += [timeout("a", "v", 100.1), timeout("b", "v", 100.2)]
    wins = compare(runs).wins("a", "b")
    assert (wins.wins, wins.ties, wins.losses, wins.only_first, wins.only_second, wins.neither, wins.close) == (
        *(2, 1, 1),
        *(1, 1, 1, 1),
    )
    assert (wins.instances, wins.both) == (7, 4)
    assert wins.share == pytest.approx(3 / 7)
    assert wins.paper_share == pytest.approx(2 / 7)
    assert wins.ratio is not None
    assert wins.ratio.geometric == pytest.approx((0.5 * 1 * 1.5 * 0.5) ** 0.25)
    assert compare(runs).median_ratio("a", "b") == pytest.approx(0.75)


@given(st.lists(st.tuples(st.integers(0, 3), st.integers(0, 3), st.booleans(), st.booleans()), min_size=1, max_size=12))
def test_wins_are_losses_seen_from_the_other_side(rows):
    runs = []
    for k, (m, n, first, second) in enumerate(rows):
        runs += [(run if first else timeout)("a", f"p{k}", 5.0, branches=m)]
        runs += [(run if second else timeout)("b", f"p{k}", 6.0, branches=n)]
    comparison = compare(runs)
    forth, back = comparison.wins("a", "b"), comparison.wins("b", "a")
    assert (forth.wins, forth.ties, forth.only_first) == (back.losses, back.ties, back.only_second)
    assert forth.both + forth.only_first + forth.only_second + forth.neither == forth.instances == len(rows)


# Bad input


@pytest.mark.parametrize(
    ("runs", "options", "says"),
    [
        ([], {}, "there are no runs to make a table of"),
        ([run("a", "p")], {"methods": []}, "there are no runs to make a table of"),
        ([run("a", "p")], {"methods": ["b"]}, "there are no runs of 'b'; there are runs of: a"),
        ([run("a", "p")], {"common_to": ["b"]}, "there are no runs of 'b'"),
        ([run("a", "p"), run("b", "q")], {}, "no property was given to every one of a, b"),
        (
            [run("a", "p"), run("b", "p", timeout=20.0)],
            {},
            r"1 properties have several time limits, such as p: 100 s \(a\), 20 s \(b\); make one table of each limit",
        ),
        ([run("a", "p"), run("b", "p", timeout=None)], {}, r"none \(b\)"),
        ([run("a", "p"), run("a", "p", timeout=20.0)], {}, "several time limits"),
        ([{"network": "n"}], {}, "a run has no field 'property'"),
        ([run("a", "p", None)], {}, "solved in no known time"),
    ],
)
def test_what_cannot_be_compared_is_refused(runs, options, says):
    with pytest.raises(BadInput, match=says):
        compare(runs, **options)


def test_mixed_limits_may_be_flagged_instead():
    comparison = compare([run("a", "p"), run("b", "p", timeout=20.0)], strict=False)
    assert any("several time limits" in note and "not comparable" in note for note in comparison.notes)


def test_another_limit_for_another_property_is_fine():
    assert compare([run(m, p, timeout=limit) for m in "ab" for p, limit in (("p", 10.0), ("q", 20.0))]).notes == ()


def test_limits_of_methods_left_out_do_not_matter():
    assert compare([run("a", "p"), run("b", "p", timeout=20.0)], ["a"]).methods == ("a",)


def test_a_comparison_has_no_other_methods():
    with pytest.raises(BadInput, match="no runs of 'c'"):
        compare([run("a", "p")]).figures("c")


# Groups


def test_the_difficulty_is_the_propertys():
    runs = [run("a", "p", difficulty="hard"), run("b", "p"), run("a", "q", difficulty="easy"), run("b", "r")]
    groups = grouped(runs, "difficulty")
    assert {name: len(part) for name, part in groups.items()} == {"easy": 1, "hard": 2, "unknown": 1}
    assert list(groups) == ["easy", "hard", "unknown"]


def test_networks_are_told_by_their_files_names():
    assert network_name({"network": "some/where/mnist_base.onnx.gz"}) == "mnist_base"
    assert list(grouped([run("a", "p")], "network")) == ["net"]
    assert list(grouped([run("a", "p"), run("a", "q")], lambda r: r["property"])) == ["p", "q"]


def test_difficulty_by_how_long_a_method_took():
    runs = [run("a", "p", 1.0), run("a", "q", 10.0), timeout("a", "r"), run("b", "q", 1.0), run("b", "s")]
    graded = with_difficulty(runs, "a", (5.0, 50.0))
    assert [(r["method"], r["property"], r["difficulty"]) for r in graded] == [
        ("a", "p", "easy"),
        ("a", "q", "medium"),
        ("a", "r", "hard"),
        ("b", "q", "medium"),
    ]
    for edges, says in (((3.0, 1.0), "growing order"), ((1.0,) * 4, "at most 3")):
        with pytest.raises(BadInput, match=says):
            with_difficulty(runs, "a", edges)
    with pytest.raises(BadInput, match="no runs of 'c' to judge difficulty by"):
        with_difficulty(runs, "c", (1.0,))


def test_other_names_for_methods():
    assert [r["method"] for r in renamed([run("a", "p"), run("b", "p")], {"b": "BaBSR"})] == ["BaBSR"]


# Decisions


def test_each_property_counts_the_same_for_dependence():
    runs = [
        run("g", "p", learnt_decisions=9, backup_decisions=1),
        run("g", "q", learnt_decisions=500, backup_decisions=500),
        run("g", "r"),  # proved at the root: nothing was decided
        failure("g", "s", learnt_decisions=1),
        run("h", "p"),
    ]
    shares = dependence(runs, "g")
    assert shares is not None
    assert (shares.runs, shares.backup, shares.least, shares.most) == pytest.approx((2, 0.3, 0.1, 0.5))
    assert shares.learnt == pytest.approx(0.7)
    assert dependence(runs, "h") is None


def test_costs_are_totals_over_totals():
    part = compare([run("a", "p", 1.0, branches=10, bounds=100), run("a", "q", 3.0, branches=30, bounds=100)])
    costs = cost(part, "a")
    assert (costs.per_branch, costs.per_decision, costs.per_bound) == pytest.approx((0.1, 0.2, 0.02))
    assert cost(compare([run("a", "p", branches=0)]), "a").per_branch is None


@given(st.lists(st.floats(0, 10), min_size=2, max_size=12, unique=True))
def test_ranks_only_see_the_order(values):
    assert rank_correlation([(v, math.exp(v)) for v in sorted(values)]) == pytest.approx(1) or len(
        {math.exp(v) for v in values}
    ) < len(values)
    assert rank_correlation([(v, -v) for v in values]) == pytest.approx(-1)


def test_ranks_of_little():
    assert rank_correlation([(1, 2)]) is None
    assert rank_correlation([(1, 2), (1, 3)]) is None
    assert rank_correlation([(1, 1), (1, 2), (2, 3)]) == pytest.approx(math.sqrt(3) / 2)
