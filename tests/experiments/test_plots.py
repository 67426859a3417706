"""Plots: what is on them, that they are the same every time, and what is refused."""

import math
import warnings
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.experiments.runs import failure, run, timeout

from bough.drawing import pen
from bough.errors import BadInput, OutputError
from bough.learning import curves
from bough.learning.lessons import EpochFigures, Figures, FiguresByDepth
from laboratory import plots

RUNS = [
    *(run("babsr", f"p{k}", 2.0**k, branches=4**k, bounds=9**k, difficulty="easy") for k in range(6)),
    *(run("gnn", f"p{k}", 1.5**k, branches=3**k, bounds=8**k) for k in range(5)),
    timeout("gnn", "p5"),
    *(run("mip", f"p{k}", 3.0**k, branches=1, bounder="highs") for k in range(3)),
    *(timeout("mip", f"p{k}") for k in (3, 4)),
    failure("mip", "p5"),
]


def lines(drawing: Any, panel: int = 0) -> dict[str, tuple[list[float], list[float]]]:
    """The named lines of a panel."""
    by_label = {line.get_label(): line for line in drawing.axes[panel].get_lines()}
    return {n: (list(x.get_xdata()), list(x.get_ydata())) for n, x in by_label.items() if not n.startswith("_")}


# Cactus plots


def test_a_cactus_plot_climbs_to_the_share_solved():
    drawn = lines(plots.cactus(RUNS))
    assert list(drawn) == ["babsr", "gnn", "mip"]
    x, y = drawn["gnn"]
    assert x[1:-1] == [1.5**k for k in range(5)]
    assert y[-1] == pytest.approx(100 * 5 / 6)
    assert x[-1] == 100.0  # level up to the time limit
    assert drawn["mip"][1][-1] == pytest.approx(50.0)


@pytest.mark.parametrize("figure", ["branches", "bounds"])
def test_nodes_of_a_solver_are_not_drawn_among_branches(figure):
    assert list(lines(plots.cactus(RUNS, figure))) == ["babsr", "gnn"]


def test_nor_are_they_where_the_solver_solved_nothing():
    runs = [run("a", "p"), timeout("mip", "p", branches=3, bounder="highs")]
    assert list(lines(plots.cactus(runs, "branches"))) == ["a"]


@given(st.lists(st.tuples(st.floats(0, 99), st.integers(0, 10**6), st.booleans()), min_size=1, max_size=12))
@settings(max_examples=25)
def test_cactus_lines_only_climb(rows):
    runs = [(run if solved else timeout)("a", f"p{k}", s, branches=n) for k, (s, n, solved) in enumerate(rows)]
    for figure in ("seconds", "branches"):
        x, y = lines(plots.cactus(runs, figure))["a"]
        assert all(a <= b for a, b in pairwise(x))
        assert all(a <= b for a, b in pairwise(y))
        assert y[-1] == pytest.approx(100 * sum(solved for _, _, solved in rows) / len(rows))


def test_a_panel_for_each_group_and_the_same_pen_in_each():
    runs = [*RUNS, run("gnn", "q", difficulty="hard"), run("babsr", "q"), run("mip", "q", bounder="highs")]
    drawing = plots.cactus(runs, by="difficulty")
    assert [axes.get_title() for axes in drawing.axes] == ["Easy", "Hard"]
    colours = [{x.get_label(): x.get_color() for x in axes.get_lines()} for axes in drawing.axes]
    assert colours[0]["gnn"] == colours[1]["gnn"] == pen(1).colour


def test_lines_differ_without_colour():
    assert len({(str(pen(k).dashes), pen(k).marker) for k in range(12)}) == 12
    assert len({pen(k).colour for k in range(7)}) == 7


def test_everything_proved_at_the_root():
    runs = [run("a", f"p{k}", 0.0, branches=0) for k in range(3)]
    for figure in ("seconds", "branches"):
        assert lines(plots.cactus(runs, figure))["a"][1][-1] == 100.0


def test_nothing_solved():
    assert lines(plots.cactus([timeout("a", "p")]))["a"][1] == [0.0, 0.0]


# Two methods


def points(drawing: Any) -> list[tuple[float, float]]:
    return sorted((float(x), float(y)) for cloud in drawing.axes[0].collections for x, y in cloud.get_offsets())


def test_what_is_not_solved_lies_on_the_edge():
    drawing = plots.scatter(RUNS, "babsr", "gnn")
    drawn = points(drawing)
    assert drawn[:-1] == [(2.0**k, 1.5**k) for k in range(5)]
    x, edge = drawn[-1]
    assert x == 32.0
    assert 100.0 < edge < drawing.axes[0].get_ylim()[1]


def test_either_side_is_counted():
    words = [text.get_text() for text in plots.scatter(RUNS, "babsr", "gnn").axes[0].texts]
    assert "gnn better: 4" in words
    assert "babsr better: 1" in words


def test_no_branches_fit_on_a_logarithmic_axis():
    runs = [run("a", "p", branches=0), run("b", "p", branches=9)]
    drawing = plots.scatter(runs, "a", "b", "branches", by="network")
    assert points(drawing) == [(1.0, 10.0)]
    assert drawing.axes[0].get_xlabel() == "a: branches + 1"


def test_the_diagonal_and_factors_of_two():
    guides: list[Any] = list(plots.scatter(RUNS, "babsr", "gnn").axes[0].get_lines())
    slopes = {round(float(line.get_ydata()[0]) / float(line.get_xdata()[0]), 6) for line in guides[:3]}
    assert slopes == {1.0, 0.5, 2.0}


# Over time

TRACKS = {"babsr": [(0.1, -3.0), (1.0, -2.0), (9.0, -1.0)], "gnn": [(0.1, -3.0), (2.0, 1e-9)]}


def test_what_is_known_stays_known_until_the_end():
    drawn = lines(plots.anytime(TRACKS, limit=10.0))
    assert (drawn["babsr"][0][-1], drawn["babsr"][1][-1]) == (10.0, -1.0)
    assert drawn["gnn"][0][-1] == 2.0  # proved


def test_bounds_that_are_not_known_yet_are_left_out():
    assert lines(plots.anytime({"a": [(0.0, -math.inf), (1.0, -1.0)]}))["a"][0] == [1.0, 1.0]


@pytest.mark.parametrize(
    ("tracks", "says"),
    [
        ({}, "no bounds to draw"),
        ({"a": []}, "no bounds to draw"),
        ({"a": [(math.nan, 1.0)]}, "bounds of a are at no known time"),
        ({"a": [(-1.0, 1.0)]}, "no known time"),
        ({"a": [(1.0, math.nan)]}, "no known time"),
    ],
)
def test_bad_tracks(tracks, says):
    with pytest.raises(BadInput, match=says):
        plots.anytime(tracks)


# Files

HISTORY = [
    EpochFigures(
        epoch=k,
        of=3,
        rate=1e-3,
        training=FiguresByDepth(3, 1 / k, 1 - 1 / k, 0.0, 0.0, {}),
        validation=FiguresByDepth(3, 2 / k, 0.5, 0.0, 0.0, {"0-3": Figures(3, 2 / k, 0.5, 0.0, 0.0)}),
        best=True,
        seconds=1.0,
    )
    for k in range(1, 4)
]
DRAWN = {
    "cactus": lambda: plots.cactus(RUNS, by="network", title="all"),
    "scatter": lambda: plots.scatter(RUNS, "babsr", "gnn", by="difficulty"),
    "anytime": lambda: plots.anytime(TRACKS, title="one"),
}


@pytest.mark.parametrize("name", DRAWN)
@pytest.mark.parametrize("ending", ["svg", "png"])
def test_the_same_input_gives_the_same_bytes(tmp_path, name, ending):
    files = [tmp_path / f"{k}.{ending}" for k in range(2)]
    for file in files:
        plots.write(DRAWN[name](), file)
    first, second = (file.read_bytes() for file in files)
    assert first == second
    assert b"<dc:date>" not in first


@pytest.mark.parametrize("ending", ["svg", "png"])
def test_training_curves_share_the_style(tmp_path, ending):
    files = [tmp_path / f"{k}.{ending}" for k in range(2)]
    for file in files:
        curves.draw(file, HISTORY)
    assert files[0].read_bytes() == files[1].read_bytes()
    curves.draw(tmp_path / "none.png", [])
    assert not (tmp_path / "none.png").exists()


def test_several_files_of_one_figure(tmp_path):
    plots.write(DRAWN["cactus"](), tmp_path / "a.png", tmp_path / "a.svg")
    assert (tmp_path / "a.png").read_bytes()[:4] == b"\x89PNG"
    assert (tmp_path / "a.svg").read_bytes()[:5] == b"<?xml"


def test_any_name_can_be_drawn(tmp_path):
    """Dollar signs are no mathematics, angle brackets no elements, an underscore in front hides nothing."""
    names = ["$x$_1", "<script>alert(1)</script>", "_hidden", "a & b"]
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        plots.write(plots.cactus([run(name, "p") for name in names]), tmp_path / "a.svg")
    text = (tmp_path / "a.svg").read_text()
    assert "<script" not in text
    drawing = plots.cactus([run(name, "p") for name in names])
    assert [words.get_text().strip() for words in drawing.legends[0].get_texts()] == names


def test_the_users_own_settings_do_not_matter(tmp_path):
    import matplotlib as mpl

    plots.write(DRAWN["cactus"](), tmp_path / "a.svg")
    with mpl.rc_context({"font.size": 30, "axes.facecolor": "red"}):
        plots.write(DRAWN["cactus"](), tmp_path / "b.svg")
        assert mpl.rcParams["font.size"] == 30
    assert (tmp_path / "a.svg").read_bytes() == (tmp_path / "b.svg").read_bytes()


@pytest.mark.parametrize(("name", "says"), [("a.jpg", "must end in .png or .svg"), ("no/a.png", "cannot write")])
def test_files_that_cannot_be_written(tmp_path, name, says):
    with pytest.raises(OutputError, match=says):
        plots.write(DRAWN["anytime"](), Path(tmp_path / name))


@pytest.mark.parametrize(
    ("draw", "says"),
    [
        (lambda: plots.cactus([]), "there are no runs"),
        (lambda: plots.cactus([run("a", "p"), run("b", "p", timeout=1.0)]), "several time limits"),
        (lambda: plots.scatter(RUNS, "babsr", "fsb"), "no runs of 'fsb'"),
        (lambda: plots.scatter(RUNS, "babsr", "mip", "branches"), "mip does not count branches"),
        (lambda: plots.scatter([run("a", "p"), run("b", "q")], "a", "b"), "no property was given to every one"),
    ],
)
def test_what_is_refused(draw, says):
    with pytest.raises(BadInput, match=says):
        draw()
