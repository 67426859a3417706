"""The statistics, fed with what the authors published, give back what the paper prints."""

import math
from decimal import Decimal

import pytest

from bough.errors import BadInput
from laboratory import paper, tables
from laboratory.paper import BABSR, BASE, DEEP, GNN, MIP, ONLINE, WIDE
from laboratory.statistics import Comparison, Run, compare, cost
from laboratory.tables import Table


@pytest.fixture(scope="module")
def runs(bough_data) -> list[Run]:
    path = bough_data / "data" / "paper_results.csv"
    if not path.is_file():
        pytest.skip("the shared data folder has no data/paper_results.csv")
    return paper.read_results(path)


@pytest.fixture(scope="module")
def base(runs) -> list[Run]:
    return [run for run in runs if run["network"] == BASE]


@pytest.fixture(scope="module")
def large(runs) -> list[Run]:
    names = {WIDE: "Wide", DEEP: "Deep"}
    return [{**run, "network": names[run["network"]]} for run in runs if run["network"] in names]


def cells(table: Table) -> dict[tuple[str, str, str], float | None]:
    """By group, method and the column's last word."""
    return {
        (heading.group, line.name, heading.title.split()[-1]): None if cell is None else float(cell)
        for line in table.lines
        for heading, cell in zip(table.headings, line.cells, strict=True)
    }


def is_printed(value: float | None, printed: float | None) -> bool:
    """To the digit: the paper rounds some figures and cuts off others (208.82180 is printed 208.821)."""
    if value is None or printed is None:
        return value is printed
    return math.isclose(round(value, 3), printed) or math.isclose(math.floor(value * 1000) / 1000, printed)


def differences(computed: Table, printed: Table) -> dict[tuple[str, str, str], tuple[float, float]]:
    """Where a table of ours is not what the paper prints: our figure to three digits, and the paper's."""
    computed_cells, printed_cells = cells(computed), cells(printed)
    assert computed_cells.keys() == printed_cells.keys()
    return {
        key: (round(computed_cells[key] or math.nan, 3), printed_cells[key] or 0.0)
        for key in computed_cells
        if not is_printed(computed_cells[key], printed_cells[key])
    }


TIME, BRANCHES, UNSOLVED = "(s)", "branches", "unsolved"


def test_table_1(base):
    assert differences(tables.performance(base, by="difficulty"), paper.TABLE_1) == {
        # The mean over the 466 commonly solved rows; the only time that the paper took over those.
        ("Easy", BABSR, TIME): (545.721, 545.457),
        ("Hard", BABSR, BRANCHES): (2493.869, 2493.870),  # 2493.86939: neither rounded nor cut off
        ("Medium", MIP, UNSOLVED): (0.429, 0.430),  # 0.42950, that is 332 of 773, perhaps rounded twice
    }


def test_the_odd_time_of_table_1_is_over_what_was_commonly_solved(base):
    easy = compare([run for run in base if run["difficulty"] == "easy"])
    common = [easy.of(BABSR)[key]["seconds"] for key in easy.common]
    assert len(common) == 466
    assert is_printed(sum(common) / len(common), 545.457)


def test_table_2(large):
    mismatches = differences(tables.performance(large, by="network"), paper.TABLE_2)
    deep = {key: pair for key, pair in mismatches.items() if key[0] == "Deep"}
    assert deep == {
        ("Deep", BABSR, TIME): (4061.336, 4016.336),  # two digits of the paper's are swapped
        ("Deep", BABSR, UNSOLVED): (0.092, 0.0),  # 23 of 250 timed out, by the authors' own files
    }
    # Of 306 rows the paper used 300, and which ones cannot be found out: all of Wide is near, and not the same.
    assert mismatches.keys() - deep.keys() == {
        *(("Wide", name, TIME) for name in (BABSR, MIP, GNN, ONLINE)),
        *(("Wide", name, BRANCHES) for name in (BABSR, GNN, ONLINE)),
        *(("Wide", name, UNSOLVED) for name in (BABSR, MIP, GNN)),
    }
    for (group, _, what), (computed, printed) in mismatches.items():
        if group == "Wide" and what != UNSOLVED:
            assert computed == pytest.approx(printed, rel=0.01)
    assert mismatches["Wide", BABSR, UNSOLVED] == (0.199, 0.0)  # 61 of 306 timed out, by the authors' own files
    wide = {name: cells(tables.performance(large, by="network"))["Wide", name, TIME] for name in (BABSR, GNN)}
    assert wide == pytest.approx({BABSR: 4104.314, GNN: 2348.969}, abs=1e-3)  # facts 7.3


def test_geometric_means_on_base(base):
    computed = tables.performance(base, by="difficulty", mean="geometric")
    assert differences(computed, paper.GEOMETRIC_1) == {
        ("Hard", BABSR, TIME): (3094.389, 3094.794),  # perhaps with the digits of MIPplanet's 1374.794, a line below
        ("Medium", MIP, UNSOLVED): (0.429, 0.430),  # as in Table 1
    }


def test_geometric_means_on_the_larger_networks(large):
    mismatches = differences(tables.performance(large, by="network", mean="geometric"), paper.GEOMETRIC_2)
    deep = {key: pair for key, pair in mismatches.items() if key[0] == "Deep"}
    assert deep == {
        ("Deep", BABSR, TIME): (3580.903, 3580.469),  # perhaps with the digits of MIPplanet's 4014.469, a line below
        ("Deep", BABSR, UNSOLVED): (0.092, 0.0),  # as in Table 2
    }
    for (_, _, what), (computed, printed) in mismatches.items():  # Wide: 306 rows, not 300
        if what != UNSOLVED:
            assert computed == pytest.approx(printed, rel=0.01)


def test_online_against_gnn(base):
    """61.52% and 60.20% (section 6.3)."""
    side_by_side = compare(base)
    branches, seconds = (side_by_side.wins(ONLINE, GNN, figure) for figure in ("branches", "seconds"))
    assert (branches.wins, branches.instances) == (1025, 1666)
    assert round(Decimal(branches.paper_share), 4) == Decimal("0.6152")
    assert round(Decimal(seconds.paper_share), 4) == Decimal("0.6020")
    assert (branches.paper_share, seconds.paper_share) == pytest.approx(
        (paper.FEWER_BRANCHES, paper.LESS_TIME), abs=5e-5
    )
    # 28 of the paper's 1003 are pairs of time-outs that the clock happened to stop some hundredths apart.
    assert (seconds.wins, seconds.only_first, seconds.close) == (959, 16, 28)
    assert seconds.share == pytest.approx(0.5852, abs=5e-5)


@pytest.mark.parametrize(
    ("difficulty", "method", "both", "won", "geometric", "middle"),
    [
        ("easy", GNN, 466, 0.908, 0.409, 0.477),
        ("medium", GNN, 770, 0.956, 0.338, 0.402),
        ("hard", GNN, 245, 0.967, 0.304, 0.377),
        ("easy", ONLINE, 466, 0.925, 0.386, None),
    ],
)
def test_wins_against_babsr(base, difficulty, method, both, won, geometric, middle):
    """The shares are those of facts 7.4."""
    part = compare([run for run in base if run["difficulty"] == difficulty])
    wins = part.wins(method, BABSR)
    assert wins.both == both
    assert wins.wins / wins.both == pytest.approx(won, abs=5e-4)
    assert wins.ratio is not None
    assert wins.ratio.geometric == pytest.approx(geometric, abs=5e-4)
    if middle is not None:
        assert part.median_ratio(method, BABSR) == pytest.approx(middle, abs=5e-4)


def test_all_of_base(base):
    """The figures are those at the end of facts 7.2."""
    whole = compare(base)
    assert (len(whole.instances), len(whole.common)) == (1666, 1481)
    assert whole.common_to == (BABSR, GNN, ONLINE)  # MIPplanet's branches are not known
    figures = [whole.figures(name) for name in (BABSR, MIP, GNN, ONLINE)]
    assert [round(f.seconds.arithmetic, 1) for f in figures] == [1588.7, 2035.6, 754.5, 666.7]
    assert [round(f.unsolved_share, 3) for f in figures] == [0.106, 0.364, 0.058, 0.048]
    assert [None if f.branches is None else round(f.branches.arithmetic, 1) for f in figures] == [
        1325.3,
        None,
        557.8,
        474.9,
    ]
    assert [round(f.branches.geometric, 1) for f in figures if f.branches] == [1007.3, 355.4, 325.0]
    # PAR-2 by hand: a time-out costs 7200 instead of its 3600 and a little.
    late = [run for run in base if run["method"] == GNN and run["verdict"] == "timeout"]
    more = sum(7200 - run["seconds"] for run in late) / 1666
    assert figures[2].par2 == pytest.approx(figures[2].seconds.arithmetic + more)


@pytest.mark.parametrize(("network", "seconds"), [(BASE, (1.02, 0.98, 1.02)), (WIDE, (3.92, 4.25, 4.33))])
def test_seconds_per_branch(runs, network, seconds):
    """E.4, as far as the published results tell: seconds per branch, most of it in the LP (facts 7.4)."""
    part = compare([run for run in runs if run["network"] == network])
    assert [cost(part, name).per_branch for name in (BABSR, GNN, ONLINE)] == pytest.approx(list(seconds), abs=0.006)


def test_the_buckets_of_the_paper(base):
    sizes = {word: len({r["property"] for r in base if r["difficulty"] == word}) for word in ("easy", "medium", "hard")}
    assert sizes == {"easy": 467, "medium": 773, "hard": 426}


def test_the_only_property_known_to_be_false(runs):
    assert [(run["network"], run["method"]) for run in runs if run["verdict"] == "falsified"] == [(WIDE, MIP)]


def test_what_the_paper_prints_in_bold_is_best(base):
    """GNN-online in every column but BaBSR's own share of time-outs, by which the properties were chosen."""
    table = tables.performance(base, by="difficulty")
    bold = {(table.lines[k].name, table.headings[j].group, table.headings[j].title) for k, j in table.best()}
    assert {name for name, _, title in bold if title != "unsolved"} == {ONLINE}
    assert (ONLINE, "Hard", "unsolved") in bold


# Bad input

HEAD = (
    "network,source_file,image,target,eps,babsr_status,babsr_branches,babsr_time,mip_status,mip_time,"
    "gnn_status,gnn_branches,gnn_time,online_status,online_branches,online_time"
)
LINE = "cifar_wide_kw,wide,1,2,0.1,verified,10,1,timeout,7200.1,verified,4,1,timeout,,7200.2"


def test_a_line_is_four_runs(tmp_path):
    path = tmp_path / "results.csv"
    path.write_text(f"{HEAD}\n{LINE}\n")
    listed = paper.read_results(path)
    assert [(r["method"], r["verdict"], r["branches"], r["timeout"]) for r in listed] == [
        (BABSR, "verified", 10, 7200.0),
        (MIP, "timeout", None, 7200.0),
        (GNN, "verified", 4, 7200.0),
        (ONLINE, "timeout", None, 7200.0),
    ]
    assert isinstance(compare(listed), Comparison)


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("", "missing column 'babsr_branches'"),
        (HEAD.replace("eps,", "") + "\n", "missing column 'eps'"),
        (f"{HEAD}\n{LINE.replace('wide_kw', 'tall_kw')}\n", "line 2: the paper has no network 'cifar_tall_kw'"),
        (f"{HEAD}\n{LINE.replace(',1,timeout', ',soon,timeout')}\n", "line 2: could not convert"),
        (b"\xff\xfe\xff", "is no CSV"),
    ],
)
def test_another_file(tmp_path, text, says):
    path = tmp_path / "results.csv"
    path.write_bytes(text if isinstance(text, bytes) else text.encode())
    with pytest.raises(BadInput, match=says):
        paper.read_results(path)
