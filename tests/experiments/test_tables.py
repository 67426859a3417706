"""Tables as values, as Markdown and as text."""

import pytest
from tests.experiments.runs import failure, run, timeout

from bough.errors import BadInput
from laboratory import tables
from laboratory.tables import Heading, Line, Table

SMALL = Table(
    "A small one",
    "method",
    (Heading("Easy", "time", ".1f", "least"), Heading("Easy", "solved", "d", "most"), Heading("Hard", "note")),
    (Line("a|b", (1.24, 3, "x_y")), Line("c", (1.21, 4, None)), Line("d", (None, 4, "*"))),
    ("one note",),
)


def test_the_best_are_told_by_what_is_written():
    assert SMALL.best() == {(1, 1), (2, 1)}  # 1.24 and 1.21 are both 1.2: no winner there


def test_markdown():
    assert SMALL.markdown() == (
        "**A small one**\n\n"
        "| method | Easy: time | Easy: solved | Hard: note |\n"
        "|---|---:|---:|---:|\n"
        "| a\\|b | 1.2 | 3 | x\\_y |\n"
        "| c | 1.2 | **4** |  |\n"
        "| d |  | **4** | \\* |\n"
        "\n- one note\n"
    )


def test_text():
    assert SMALL.text() == (
        "A small one\n"
        "        Easy            Hard\n"
        "method  time   solved   note\n"
        "a|b      1.2        3    x_y\n"
        "c        1.2        4*\n"
        "d                   4*     *\n"
        "  one note\n"
    )


def test_names_cannot_break_a_table():
    table = Table("", "m", (Heading("", "t"),), (Line("<script>\n| x | `y`", (1.0,)),))
    line = table.markdown().splitlines()[2]
    assert line == "| \\<script> \\| x \\| \\`y\\` | 1.000 |"


RUNS = [
    *(run("babsr", p, 4.0, branches=8, difficulty="easy") for p in ("p", "q")),
    *(run("gnn", p, 2.0, branches=4, learnt_decisions=3, backup_decisions=1) for p in ("p", "q")),
    run("babsr", "r", 50.0, branches=100, difficulty="hard"),
    timeout("gnn", "r"),
]


def test_performance_by_difficulty():
    table = tables.performance(RUNS, by="difficulty", measures=tables.OURS)
    assert [(h.group, h.title) for h in table.headings] == [
        *(("Easy", title) for title in ("time (s)", "branches", "bounds", "unsolved")),
        *(("Hard", title) for title in ("time (s)", "branches", "bounds", "unsolved")),
    ]
    assert table.lines == (
        Line("babsr", (4.0, 8.0, 21.0, 0.0, 50.0, 100.0, 21.0, 0.0)),
        Line("gnn", (2.0, 4.0, 21.0, 0.0, 100.0, None, None, 1.0)),
    )
    assert "Easy: 2 properties, of which 2 were solved by every search" in table.markdown()
    assert "Hard: solved nothing, and does not decide what was commonly solved: gnn" in table.notes


def test_a_method_that_a_group_lacks_has_empty_cells_there():
    runs = [*RUNS, run("mip", "p", 3.0, branches=1, bounder="highs")]
    table = tables.performance(runs, by="difficulty", measures=("seconds",))
    assert table.lines[-1] == Line("mip", (3.0, None))
    assert any("1 of 2 properties are left out" in note for note in table.notes)


def test_every_measure_has_a_heading():
    table = tables.performance(RUNS, measures=(*tables.OURS, "par2", "solved", "errors"))
    assert list(table.lines[1].cells[-3:]) == [pytest.approx((2 + 2 + 200) / 3), 2, 0]
    assert "PAR-2 (s)" in table.text()


def test_geometric_means_say_so():
    runs = [run("a", "p", 1.0, branches=0), run("a", "q", 4.0, branches=8)]
    table = tables.performance(runs, mean="geometric")
    assert table.lines[0].cells == pytest.approx((2.0, 2.0, 0.0))
    assert table.headings[0].title == "geometric time (s)"
    assert any("geometric means of counts are of 1 more" in note for note in table.notes)


@pytest.mark.parametrize(
    ("runs", "options", "says"),
    [
        ([], {}, "there are no runs"),
        (RUNS, {"methods": ["fsb"]}, "no runs of 'fsb'"),
        ([run("a", "p"), run("b", "p", timeout=1.0)], {"by": "network"}, "^net: 1 properties have several time limits"),
        ([run("a", "p"), run("b", "q")], {}, "no property was given to every one"),
    ],
)
def test_bad_input(runs, options, says):
    with pytest.raises(BadInput, match=says):
        tables.performance(runs, **options)


def test_summary_counts_errors_apart():
    table = tables.summary([*RUNS, failure("gnn", "s"), run("babsr", "s")])
    cells = dict(zip([h.title for h in table.headings], table.lines[1].cells, strict=True))
    assert (cells["runs"], cells["solved"], cells["timeout"], cells["errors"]) == (4, 2, 1, 1)
    assert cells["PAR-2"] == pytest.approx((2 + 2 + 200 + 200) / 4)
    assert "errors, which count as not solved: 1 of gnn" in table.notes


def test_wins_against_one():
    table = tables.wins([*RUNS, *(run("mip", p, bounder="scip") for p in "pqr")], "babsr")
    assert [line.name for line in table.lines] == ["gnn"]  # a solver's nodes are no branches
    cells = dict(zip([h.title for h in table.headings], table.lines[0].cells, strict=True))
    assert (cells["less"], cells["babsr alone"]) == (2, 1)
    assert cells["geometric ratio"] == pytest.approx(0.5)
    assert "66.67%" in table.text()


def test_who_decided():
    table = tables.fail_safe(RUNS)
    assert table.lines == (Line("net, gnn", (2, 0.75, 0.25, 0.25, 0.25)),)
    assert table.notes == ("no decision by a learnt rule: net, babsr",)


def test_what_a_branch_costs():
    table = tables.costs(RUNS)
    assert [line.name for line in table.lines] == ["net, babsr", "net, gnn"]
    assert table.lines[0].cells[:3] == (2, 0.5, 1.0)


def test_nodes_and_seconds():
    runs = [run("mip", f"p{k}", float(k), branches=100 - k, bounder="highs") for k in range(1, 6)]
    table = tables.nodes(runs)
    assert [line.name for line in table.lines] == ["net, mip"]
    assert list(table.lines[0].cells) == [5, 97.0, 95, 99, pytest.approx(-1)]


def test_two_tables_in_one():
    one = tables.performance(RUNS, measures=("seconds",))
    both = one.beside("paper", one, "both")
    assert [line.name for line in both.lines] == ["babsr", "gnn", "babsr (paper)", "gnn (paper)"]
    assert both.best() == frozenset()
