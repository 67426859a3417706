"""VNN-LIB: what a text means, what is refused and where, and that reading and writing undo each other."""

import contextlib
import gzip
import math
import operator
import os
import sys
from fractions import Fraction
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from bough.errors import PropertyError
from bough.problem import formula
from bough.problem.property import Box, Clause, Property
from bough.problem.vnnlib import parse_property, read_property, write_property

HEAD = """(declare-const X_0 Real)
(declare-const X_1 Real)
(declare-const Y_0 Real)
(declare-const Y_1 Real)
(assert (>= X_0 -1))
(assert (<= X_0 1))
(assert (>= X_1 -2.5e-1))
(assert (<= X_1 0.5))
"""
HEAD_LINES = HEAD.count("\n")


def rows(prop: Property, clause: int = 0) -> list[tuple[list[float], float, bool]]:
    made = prop.clauses[clause]
    return list(zip(made.coefficients.tolist(), made.offsets.tolist(), made.strict, strict=True))


def box(prop: Property, number: int = 0) -> list[tuple[float, float]]:
    made = prop.boxes[number]
    return list(zip(made.lower.tolist(), made.upper.tolist(), strict=True))


def assert_same(left: Property, right: Property) -> None:
    assert len(left.boxes) == len(right.boxes)
    assert len(left.clauses) == len(right.clauses)
    for a, b in zip(left.boxes, right.boxes, strict=True):
        assert torch.equal(a.lower, b.lower)
        assert torch.equal(a.upper, b.upper)
        assert all(map(torch.equal, a.strict, b.strict))
    for c, d in zip(left.clauses, right.clauses, strict=True):
        assert (c.box, c.strict) == (d.box, d.strict)
        assert torch.equal(c.coefficients, d.coefficients)
        assert torch.equal(c.offsets, d.offsets)


# --- What a text means


def test_box_and_conjunction() -> None:
    prop = parse_property(HEAD + "(assert (<= Y_0 3))(assert (>= Y_1 Y_0)) ; the end")
    assert (prop.inputs, prop.outputs) == (2, 2)
    assert box(prop) == [(-1.0, 1.0), (-0.25, 0.5)]
    assert rows(prop) == [([1.0, 0.0], 3.0, False), ([1.0, -1.0], 0.0, False)]
    assert (
        prop.boxes[0].lower.dtype
        == prop.clauses[0].coefficients.dtype
        == prop.clauses[0].offsets.dtype
        == torch.float64
    )


def test_disjunction_shares_one_box() -> None:
    prop = parse_property(HEAD + "(assert (or (and (<= Y_0 Y_1)) (and (>= Y_0 4) (< Y_1 5))))")
    assert len(prop.boxes) == 1
    assert [clause.box for clause in prop.clauses] == [0, 0]
    assert rows(prop, 0) == [([1.0, -1.0], 0.0, False)]
    assert rows(prop, 1) == [([-1.0, 0.0], -4.0, False), ([0.0, 1.0], 5.0, True)]


def test_several_boxes_in_a_disjunction_are_merged_by_value() -> None:
    arms = "(and (<= X_0 0) (<= Y_0 1)) (and (>= X_0 0) (<= Y_0 2)) (and (<= X_0 0.0) (<= X_1 7) (<= Y_0 3))"
    prop = parse_property(HEAD + f"(assert (or {arms}))")
    assert [clause.box for clause in prop.clauses] == [0, 1, 0]
    assert box(prop, 0) == [(-1.0, 0.0), (-0.25, 0.5)]
    assert box(prop, 1) == [(0.0, 1.0), (-0.25, 0.5)]


def test_boxes_only_inside_the_disjunction() -> None:
    text = "(declare-fun X_0 () Real)(declare-fun Y_0 () Real)"
    prop = parse_property(text + "(assert (or (and (= X_0 1) (<= Y_0 0)) (and (>= X_0 2) (<= X_0 3) (>= Y_0 0))))")
    assert [box(prop, number) for number in (0, 1)] == [[(1.0, 1.0)], [(2.0, 3.0)]]


@pytest.mark.parametrize(
    ("constraint", "row"),
    [
        ("(< Y_0 1)", ([1, 0], 1, True)),
        ("(> Y_0 1)", ([-1, 0], -1, True)),
        ("(<= 1 Y_0)", ([-1, 0], -1, False)),
        ("(> 1 Y_0)", ([1, 0], 1, True)),
        ("(<= Y_0 (- 3))", ([1, 0], -3, False)),
        ("(<= Y_0 (- 5 1 1))", ([1, 0], 3, False)),
        ("(<= (- Y_0) 1e1)", ([-1, 0], 10, False)),
        ("(<= (+ Y_0 Y_1 1) (* 2 Y_0))", ([-1, 1], -1, False)),
        ("(>= (* -2 (- Y_0 (* 3 Y_1 0.5) 4)) Y_0)", ([3, -3], 8, False)),
        ("(<= (* (+ 1 1) (* Y_1 (- 2 5))) +.5)", ([0, -6], 0.5, False)),
        ("(<= (- Y_0 Y_0) 1)", ([0, 0], 1, False)),
        ("(not (<= Y_0 1))", ([-1, 0], -1, True)),
        ("(not (not (< Y_0 1)))", ([1, 0], 1, True)),
    ],
)
def test_output_rows(constraint: str, row: Any) -> None:
    assert rows(parse_property(HEAD + f"(assert {constraint})")) == [row]


def test_equality_is_two_rows_and_its_negation_two_clauses() -> None:
    assert rows(parse_property(HEAD + "(assert (= Y_0 1))")) == [([1, 0], 1, False), ([-1, 0], -1, False)]
    prop = parse_property(HEAD + "(assert (not (= Y_0 1)))")
    assert [rows(prop, 0), rows(prop, 1)] == [[([1, 0], 1, True)], [([-1, 0], -1, True)]]


def test_no_output_row_means_every_point_is_unsafe() -> None:
    prop = parse_property(HEAD)
    assert rows(prop) == [([0.0, 0.0], 0.0, False)]
    assert prop.clauses[0].holds(np.array([5.0, -5.0]))
    prop = parse_property(HEAD + "(assert (or (<= X_0 0) (<= Y_0 1)))")
    assert [rows(prop, 0), rows(prop, 1)] == [[([0, 0], 0, False)], [([1, 0], 1, False)]]


def test_input_bounds_are_simplified_and_rounded_outward() -> None:
    head = "(declare-const X_0 Real)(declare-const Y_0 Real)(assert (<= Y_0 0))"
    prop = parse_property(head + "(assert (<= (* 2 X_0) 3))(assert (<= (- 1 X_0) (+ X_0 2)))")
    assert box(prop) == [(-0.5, 1.5)]
    ((lower, upper),) = box(parse_property(head + "(assert (= (* 3 X_0) 1))"))
    assert Fraction(lower) < Fraction(1, 3) < Fraction(upper)
    assert math.nextafter(lower, math.inf) == upper


SIDES = [
    ("(> X_0 0)", (0.0, 1.0), (True, False)),
    ("(< X_0 0)", (-1.0, 0.0), (False, True)),
    ("(< 0 X_0)", (0.0, 1.0), (True, False)),
    ("(> 0 X_0)", (-1.0, 0.0), (False, True)),
    ("(>= X_0 0)", (0.0, 1.0), (False, False)),
    ("(not (<= X_0 0))", (0.0, 1.0), (True, False)),
    ("(not (>= X_0 0))", (-1.0, 0.0), (False, True)),
    ("(not (< X_0 0))", (0.0, 1.0), (False, False)),
    ("(not (or (>= X_0 0.5) (<= X_0 0)))", (0.0, 0.5), (True, True)),
    ("(< (* -2 X_0) (- 1 1))", (0.0, 1.0), (True, False)),
    ("(> (- 1 X_0) (+ X_0 0))", (-1.0, 0.5), (False, True)),
    ("(and (< X_0 1) (<= X_0 1))", (-1.0, 1.0), (False, True)),
    ("(and (<= X_0 1) (> X_0 -1))", (-1.0, 1.0), (True, False)),
    ("(and (< X_0 2) (> X_0 -2))", (-1.0, 1.0), (False, False)),
    ("(and (< X_0 0.5) (<= X_0 0.25))", (-1.0, 0.25), (False, False)),
]


@pytest.mark.parametrize(("constraint", "limits", "strict"), SIDES)
def test_strict_sides(constraint: str, limits: tuple[float, float], strict: tuple[bool, bool]) -> None:
    for text in (constraint, f"(or (and {constraint} (<= Y_0 0)) (and {constraint} (<= Y_1 0)))"):
        prop = parse_property(HEAD + f"(assert {text})")
        (made,) = prop.boxes
        assert box(prop) == [limits, (-0.25, 0.5)]
        below, above = made.strict
        assert (below.tolist(), above.tolist()) == ([strict[0], False], [strict[1], False])
        assert made.is_closed == (not any(strict))
        assert_same(parse_property(write_property(prop)), prop)


def test_a_strict_and_a_closed_box_are_two() -> None:
    prop = parse_property(HEAD + "(assert (or (and (< X_0 0) (<= Y_0 1)) (and (<= X_0 0) (<= Y_0 2))))")
    assert [clause.box for clause in prop.clauses] == [0, 1]
    assert [made.is_closed for made in prop.boxes] == [False, True]
    unequal = parse_property(HEAD + "(assert (not (= X_0 0)))")
    assert [box(unequal, number)[0] for number in range(2)] == [(-1.0, 0.0), (0.0, 1.0)]
    assert [[side[0].item() for side in made.strict] for made in unequal.boxes] == [[False, True], [True, False]]


@pytest.mark.parametrize(
    "constraint",
    [
        "(>= X_0 1.5)",
        "(> X_0 1)",
        "(< X_0 -1)",
        "(and (> X_0 0.5) (<= X_0 0.5))",
        "(and (not (<= X_0 0)) (<= X_0 0))",
        "(and (< X_0 0) (> X_0 0) (< X_1 0) (> X_1 0.25))",
        "(or (>= X_0 2) (>= X_0 3))",
        "(or (<= X_0 -2) (<= 2 1) (< X_0 -1))",
        "(or (and (>= X_0 0.5) (< X_0 0.5) (<= Y_0 1)) (and (> X_1 0) (<= X_1 0)))",
    ],
)
def test_an_empty_set_of_inputs(constraint: str) -> None:
    prop = parse_property(HEAD + f"(assert {constraint})")
    assert prop.is_empty
    assert parse_property(write_property(prop)).is_empty
    more = parse_property(HEAD + f"(assert (or {constraint} (<= Y_0 1)))")  # an empty box among others is dropped
    assert [rows(more, k) for k in range(len(more.clauses))] == [[([1, 0], 1, False)]]
    assert len(more.boxes) == 1
    assert not more.is_empty


def test_offsets_are_rounded_so_that_no_unsafe_point_is_lost() -> None:
    for relation, sign in (("<=", 1), (">=", -1)):
        ((_, offset, _),) = rows(parse_property(HEAD + f"(assert ({relation} Y_0 (+ 0.1 0.2)))"))
        assert Fraction(offset) >= sign * (Fraction(0.1) + Fraction(0.2))


def test_the_tightest_of_several_bounds_counts() -> None:
    prop = parse_property(HEAD + "(assert (<= X_0 0.75))(assert (<= X_0 0.875))(assert (<= Y_0 0))")
    assert box(prop)[0] == (-1.0, 0.75)


def test_comparisons_of_constants() -> None:
    prop = parse_property(HEAD + "(assert (or (and (<= 1 2) (<= Y_0 0)) (and (< 2 2) (<= Y_0 1))))")
    assert [rows(prop, k) for k in range(len(prop.clauses))] == [[([1, 0], 0, False)]]


def test_disjuncts_that_are_empty_only_when_multiplied_out_are_dropped() -> None:
    text = "(assert (or (<= X_0 0) (and (>= X_0 0.5) (<= Y_0 0))))(assert (or (>= X_0 0.25) (<= Y_0 1)))"
    prop = parse_property(HEAD + text)
    assert [box(prop, clause.box)[0] for clause in prop.clauses] == [(-1.0, 0.0), (0.5, 1.0), (0.5, 1.0)]
    prop = parse_property(HEAD + "(assert (or (>= X_0 2) (<= Y_0 1)))")
    assert [rows(prop, k) for k in range(len(prop.clauses))] == [[([1, 0], 1, False)]]


def test_comments_line_ends_and_spaces() -> None:
    text = (HEAD + "(assert(or(<=  Y_0\t1)(<= Y_1;(assert\n2)));)").replace("\n", "\r\n")
    assert len(parse_property(text).clauses) == 2


# --- Depth and size


@pytest.mark.parametrize("levels", [1_000, 50_000])
def test_deep_nesting(levels: int) -> None:
    leaf = "(<= Y_0 1)"
    single = parse_property(HEAD + f"(assert {'(and (or ' * (levels // 2)}{leaf}{'))' * (levels // 2)})")
    assert rows(single) == [([1, 0], 1, False)]
    ands = parse_property(HEAD + f"(assert {f'(and {leaf} ' * levels}{leaf}{')' * levels})")
    assert len(ands.clauses[0].offsets) == levels + 1
    ors = parse_property(HEAD + f"(assert {f'(or {leaf} ' * levels}{leaf}{')' * levels})")
    assert len(ors.clauses) == levels + 1
    nots = parse_property(HEAD + f"(assert {'(not ' * levels}{leaf}{')' * levels})")
    assert rows(nots) == rows(single)
    sums = parse_property(HEAD + f"(assert (<= {'(+ Y_1 (- ' * levels}Y_0{'))' * levels} 0))")
    assert rows(sums) == [([1, 0], 0, False)]


def test_deep_alternation_is_multiplied_out_or_refused() -> None:
    def nested(levels: int) -> str:
        return HEAD + f"(assert {'(and (<= Y_0 1) (or (<= Y_1 2) ' * levels}(<= Y_0 3){'))' * levels})"

    assert len(parse_property(nested(200)).clauses) == 201
    with pytest.raises(PropertyError, match="more than 200,000 disjuncts"):
        parse_property(nested(25_000))


def test_blow_up_is_refused_before_it_happens() -> None:
    with pytest.raises(PropertyError, match=r"p\.vnnlib comes to more than 200,000 disjuncts.*split it"):
        parse_property(HEAD + "(assert (or (<= Y_0 1) (<= Y_1 1)))\n" * 1_000, "p.vnnlib")


def test_too_many_numbers_are_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(formula, "MAX_NUMBERS", 5)
    arms = [f"(and (<= X_0 0.{k}) (<= Y_0 {k}))" for k in range(3)]
    with pytest.raises(PropertyError, match="3 boxes of 2 inputs"):
        parse_property(HEAD + f"(assert (or {' '.join(arms)}))")
    with pytest.raises(PropertyError, match="3 rows of 2 outputs"):
        parse_property(HEAD + "(assert (or (<= Y_0 1) (<= Y_0 2) (<= Y_0 3)))")


# --- What is refused


@pytest.mark.parametrize(
    ("rest", "line", "words"),
    [
        ("(assert (<= Y_0 1)", 1, "never closed"),
        ("(assert\n(<= Y_0\n1)\n", 1, "never closed"),
        ("(assert (or (<= Y_0 1)\n(<= Y_1", 1, "never closed"),
        ("(assert (<= Y_0 (+ 1", 1, "never closed"),
        ("\n(", 2, "never closed"),
        ("(declare-const Y_2", 1, "never closed"),
        ("(assert (<= Y_0 1)\n(assert (<= Y_1 1))", 2, "missing|expected \\)"),
        ("(assert (or (<= Y_0 1)\n(assert (<= Y_1 1))", 2, "a \\) is missing before it"),
        ("(assert (<= Y_0 1)))", 1, "closes nothing"),
        ("assert", 1, "expected \\( and a command"),
        ("\n\n(check-sat)", 3, "unknown command 'check-sat'"),
        ("(assert (=> (<= Y_0 1) (<= Y_1 1)))", 1, "unknown operator '=>' in a formula"),
        ("(assert (<= Y_0 (/ 1 2)))", 1, "unknown operator '/' in an expression"),
        ("(assert true)", 1, "expected a formula, found 'true'"),
        ("(assert)", 1, "needs a formula"),
        ("(assert (and))", 1, "\\(and ...\\) needs a formula"),
        ("(assert (or (and) (<= Y_0 1)))", 1, "\\(and ...\\) needs a formula"),
        ("(assert (not (<= Y_0 1) (<= Y_1 1)))", 1, "not takes one formula"),
        ("(assert (<= Y_0 1) (<= Y_1 1))", 1, "an assertion takes one formula"),
        ("(assert (<= Y_0))", 1, "compares two expressions, found 1"),
        ("(assert (<= Y_0 1 2))", 1, "compares two expressions, found 3"),
        ("(assert (<=))", 1, "without arguments"),
        ("(assert (<= Y_0 (+)))", 1, "without arguments"),
        ("(assert (<= Y_7 1))", 1, "Y_7 is not declared"),
        ("\n(assert (<= Y_0 Y_7))", 2, "Y_7 is not declared"),
        ("(assert (<= Z_0 1))", 1, "found 'Z_0'"),
        ("(assert (<= Y_0 nan))", 1, "found 'nan'"),
        ("(assert (<= Y_0 -inf))", 1, "found '-inf'"),
        ("(assert (<= Y_0 1_000))", 1, "found '1_000'"),
        ("(assert (<= Y_0 0x10))", 1, "found '0x10'"),
        ("(assert (<= Y_0 1e999))", 1, "1e999 is outside float64"),
        ("(assert (<= (* 1e300 1e300 Y_0) 1))", 1, "outside float64"),
        ("(assert (<= (* 1e-300 1e-300 Y_0) 1))", 1, "outside float64"),
        (f"(assert (<= (* {'1e300 ' * 30} Y_0) 1))", 1, "far outside float64"),
        ("(assert (<= (* 1e-300 X_0) 1e300))", 1, "outside float64"),
        ("(assert (<= (* Y_0 Y_1) 1))", 1, "\\(<= \\(\\* Y_0 Y_1\\) 1\\) multiplies variables"),
        ("(assert (<= (* Y_0 (+ 1 Y_1)) 1))", 1, "multiplies variables"),
        ("(declare-const Y_0 Real)", 1, "Y_0 is declared twice"),
        ("(declare-const Y_2 Int)", 1, "expected the sort Real of Y_2, found 'Int'"),
        ("(declare-const W_0 Real)", 1, "unknown variable name 'W_0'"),
        ("(declare-const Y_02 Real)", 1, "unknown variable name 'Y_02'"),
        ("(declare-fun Y_2 (Real) Real)", 1, "a function with arguments"),
        ("(declare-const Y_2 Real Real)", 1, "a declaration ends after its sort"),
        ("\n(declare-const Y_3 Real)", 2, "Y_3 is declared but Y_2 is not"),
        ("(declare-const X_5 Real)", 1, "X_5 is declared but X_2 is not"),
        ("(declare-const X_2 Real)", 1, "input X_2 has no lower bound; give it both"),
        ("(declare-const X_2 Real)(assert (>= X_2 0))", 1, "input X_2 has no upper bound; give it both"),
        ("(declare-const X_2 Real)(assert (or (= X_2 0) (<= Y_0 1)))", 1, "X_2 has no lower bound in some disjunct"),
        ("(assert (<= X_0 X_1))", 1, "\\(<= X_0 X_1\\) relates several inputs"),
        ("(assert (or (<= Y_0 1)\n(<= (+ X_0 X_1) 2)))", 2, "\\(<= \\(\\+ X_0 X_1\\) 2\\) relates several inputs"),
        ("(assert (<= Y_0 X_0))", 1, "\\(<= Y_0 X_0\\) mixes inputs and outputs"),
        ("(assert (<= 2 1))", 1, "\\(<= 2 1\\) never holds"),
        ("(assert (or (<= 2 1) (< 1 1)))", 1, "never holds"),
    ],
)
def test_refusals_name_file_line_and_reason(rest: str, line: int, words: str) -> None:
    with pytest.raises(PropertyError, match=words) as caught:
        parse_property(HEAD + rest, "folder/prop.vnnlib")
    assert str(caught.value).startswith(f"folder/prop.vnnlib, line {HEAD_LINES + line}: ")


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("", "is empty"),
        (" ; only a comment\n", "is empty"),
        ("\0\1", "is not text"),
        ("(declare-const Y_0 Real)(assert (<= Y_0 1))", "declares no input"),
        ("(declare-const X_0 Real)(assert (<= X_0 1))", "declares no output"),
        ("(declare-const X_0 Real)(declare-const Y_0 Real)", "asserts nothing"),
        ("(vnnlib-version <3.0>)", "version '<3.0>' is not supported"),
    ],
)
def test_refusals_of_a_whole_file(text: str, words: str) -> None:
    with pytest.raises(PropertyError, match=words):
        parse_property(text)


def test_long_constraints_are_cut_in_messages() -> None:
    with pytest.raises(PropertyError, match=r" \.\.\. relates several inputs") as caught:
        parse_property(HEAD + f"(assert (<= (+ X_0 X_1 {'1 ' * 10_000}) 0))")
    assert len(str(caught.value)) < 400


def test_files(tmp_path: Path) -> None:
    path = tmp_path / "p.vnnlib"
    (tmp_path / "p.vnnlib.gz").write_bytes(gzip.compress(HEAD.encode()))
    assert read_property(path).inputs == 2
    path.write_bytes(b"\xef\xbb\xbf" + HEAD.encode())
    assert read_property(str(path)).inputs == 2
    path.write_bytes(b"\xff\xfe(\x00")
    with pytest.raises(PropertyError, match=r"p\.vnnlib is not text"):
        read_property(path)
    path.write_text(HEAD + "(assert (<= Y_0", encoding="utf-8")
    with pytest.raises(PropertyError, match=rf"p\.vnnlib, line {HEAD_LINES + 1}: "):
        read_property(path)


def test_every_competition_property_reads() -> None:
    data = os.environ.get("BOUGH_DATA")
    if not data:
        pytest.skip("BOUGH_DATA is not set: no competition files here")
    paths = sorted(Path(data, "vnncomp").glob("*/vnnlib/*"))
    assert paths
    for path in paths:
        prop = read_property(path)
        assert prop.clauses
        assert_same(parse_property(write_property(prop)), prop)


@settings(max_examples=300, deadline=None)
@given(st.text(alphabet="()<=>+-*; \n01.eXY_andortsclr", max_size=60), st.booleans())
def test_whatever_the_text_only_property_errors_escape(text: str, headed: bool) -> None:
    with contextlib.suppress(PropertyError):
        parse_property(HEAD * headed + text)


# --- Reading undoes writing

finite = st.floats(allow_nan=False, allow_infinity=False)


@st.composite
def properties(draw: st.DrawFn) -> Property:
    inputs, outputs = draw(st.integers(1, 4)), draw(st.integers(1, 4))
    ends = st.lists(st.tuples(finite, finite).map(sorted), min_size=inputs, max_size=inputs)
    drawn = draw(st.lists(ends, min_size=1, max_size=3, unique_by=lambda box: tuple(map(tuple, box))))
    boxes = []
    for pairs in drawn:
        lower, upper = torch.tensor(pairs, dtype=torch.float64).T.contiguous()
        sides = [torch.tensor(draw(st.lists(st.booleans(), min_size=inputs, max_size=inputs))) for _ in range(2)]
        boxes.append(Box(lower, upper, None, *(side & (lower < upper) for side in sides)))
    # Boxes in the order of their first use, each used: the form that reading gives.
    order = draw(st.permutations([*range(len(boxes)), *draw(st.lists(st.integers(0, len(boxes) - 1), max_size=4))]))
    numbers = {used: number for number, used in enumerate(dict.fromkeys(order))}
    clauses = []
    for used in order:
        count = draw(st.integers(1, 3))
        values = draw(
            st.lists(finite | st.sampled_from([0.0, 1.0, -1.0]), min_size=count * outputs, max_size=count * outputs)
        )
        offsets = draw(st.lists(finite, min_size=count, max_size=count))
        strict = tuple(draw(st.lists(st.booleans(), min_size=count, max_size=count)))
        matrix = torch.tensor(values, dtype=torch.float64).reshape(count, outputs)
        clauses.append(Clause(numbers[used], matrix, torch.tensor(offsets, dtype=torch.float64), strict))
    return Property(tuple(boxes[used] for used in numbers), tuple(clauses))


@settings(deadline=None)
@given(properties())
def test_parsing_undoes_writing(prop: Property) -> None:
    assert_same(parse_property(write_property(prop)), prop)


def test_a_row_that_is_not_finite_is_refused() -> None:
    one = torch.ones(1, dtype=torch.float64)
    with pytest.raises(PropertyError, match="finite"):
        Clause(0, one[None], one * math.inf, (False,))


# --- The normal form against the formula itself

COMPARE = {"<=": operator.le, ">=": operator.ge, "<": operator.lt, ">": operator.gt, "=": operator.eq}
halves = st.integers(-6, 6).map(lambda k: k / 2)


def linear_expressions(names: list[str]) -> st.SearchStrategy[Any]:
    constants = st.recursive(halves, lambda inner: st.tuples(st.sampled_from("+-*"), inner, inner), max_leaves=2)
    return st.recursive(
        st.sampled_from(names) | constants,
        lambda inner: st.one_of(
            st.tuples(st.sampled_from("+-"), inner),
            st.tuples(st.sampled_from("+-"), inner, inner, inner),
            st.tuples(st.just("*"), constants, inner),
            st.tuples(st.just("*"), inner, constants),
        ),
        max_leaves=4,
    )


def comparisons(names: list[str]) -> st.SearchStrategy[Any]:
    sides = linear_expressions(names)
    return st.tuples(
        st.sampled_from(sorted(COMPARE)), st.one_of(st.sampled_from(names), sides), st.one_of(halves, sides)
    )


leaves = st.one_of(comparisons(["Y_0", "Y_1"]), comparisons(["Y_0", "Y_1"]), comparisons(["X_0"]), comparisons(["X_1"]))
formulas = st.recursive(
    leaves,
    lambda inner: st.one_of(
        st.tuples(st.just("not"), inner),
        st.lists(inner, min_size=1, max_size=3).map(lambda parts: ("and", *parts)),
        st.lists(inner, min_size=1, max_size=3).map(lambda parts: ("or", *parts)),
    ),
    max_leaves=10,
)


def written(tree: Any) -> str:
    return f"({' '.join(map(written, tree))})" if isinstance(tree, tuple) else str(tree)


def value(tree: Any, point: dict[str, Fraction]) -> Fraction:
    if isinstance(tree, str):
        return point[tree]
    if isinstance(tree, float):
        return Fraction(tree)
    first, *rest = (value(part, point) for part in tree[1:])
    if tree[0] == "*":
        return first * math.prod(rest)
    if tree[0] == "-" and not rest:
        return -first
    return first + sum(rest) if tree[0] == "+" else first - sum(rest)


def truth(tree: Any, point: dict[str, Fraction]) -> bool:
    """Whether the formula holds."""
    if tree[0] == "not":
        return not truth(tree[1], point)
    if tree[0] in ("and", "or"):
        parts = [truth(part, point) for part in tree[1:]]
        return all(parts) if tree[0] == "and" else any(parts)
    relation, left, right = tree
    return bool(COMPARE[relation](value(left, point), value(right, point)))


def inside(limits: Box, at: torch.Tensor) -> bool:
    return bool(((limits.lower <= at) & (at <= limits.upper)).all()) and limits.admits(at)


def unsafe(prop: Property, x: list[float], y: list[float]) -> bool:
    at = torch.tensor(x, dtype=torch.float64)
    return any(inside(prop.boxes[clause.box], at) and clause.holds(np.array(y)) for clause in prop.clauses)


points = st.lists(st.tuples(halves, halves, halves, halves), min_size=1, max_size=20)


@settings(max_examples=400, deadline=None)
@given(st.lists(formulas, min_size=1, max_size=3), points)
def test_normal_form_agrees_with_the_formula(asserted: list[Any], sampled: list[tuple[float, ...]]) -> None:
    head = "".join(f"(declare-const {name} Real)\n" for name in ("X_0", "X_1", "Y_0", "Y_1"))
    head += "(assert (and (>= X_0 -4) (<= X_0 4) (>= X_1 -4) (<= X_1 4)))\n"
    prop, refused = None, ""
    try:
        prop = parse_property(head + "\n".join(f"(assert {written(tree)})" for tree in asserted))
    except PropertyError as error:
        refused = str(error)
    assert prop is not None or "never holds" in refused
    for sample in sampled:
        named = dict(zip(("X_0", "X_1", "Y_0", "Y_1"), map(Fraction, sample), strict=True))
        expected = all(truth(tree, named) for tree in asserted)
        assert expected == (prop is not None and unsafe(prop, list(sample[:2]), list(sample[2:])))


# --- Version 2.0

HEAD_2 = """(vnnlib-version <2.0>)
(declare-network f
  (declare-input X float32 [1,2,2])
  (declare-output Y float32 [1,2])
)
(assert (and (>= X[0,0,0] -1.0) (<= X[0,0,0] 1.0) (>= X[0,0,1] -1.0) (<= X[0,0,1] 2.0)))
(assert (and (>= X[0,1,0] -1.0) (<= X[0,1,0] 3.0) (>= X[0,1,1] -1.0) (<= (* 2.0 X[0,1,1]) 8.0)))
"""


@pytest.fixture
def version_2() -> None:
    pytest.importorskip("vnnlib", reason="VNN-LIB 2.0 is an optional extra")


@pytest.mark.usefixtures("version_2")
def test_version_2() -> None:
    prop = parse_property(HEAD_2 + "(assert (or (<= (+ Y[0,0] (* -2.5 Y[0,1])) (- Y[0,0] 0.1)) (> Y[0,1] (- 3.0))))")
    assert box(prop) == [(-1.0, 1.0), (-1.0, 2.0), (-1.0, 3.0), (-1.0, 4.0)]
    assert [rows(prop, 0), rows(prop, 1)] == [[([0.0, -2.5], -0.1, False)], [([0.0, -1.0], 3.0, True)]]


@pytest.mark.usefixtures("version_2")
def test_version_2_equality_and_scalars() -> None:
    head = "(vnnlib-version <2.0>)(declare-network f (declare-input X real []) (declare-output Y Real []))"
    prop = parse_property(head + "(assert (== X 1.0))(assert (!= Y 2.0))")
    assert box(prop) == [(1.0, 1.0)]
    assert [rows(prop, 0), rows(prop, 1)] == [[([1.0], 2.0, True)], [([-1.0], -2.0, True)]]


@pytest.mark.usefixtures("version_2")
def test_version_2_strict_sides() -> None:
    prop = parse_property(HEAD_2 + "(assert (and (> X[0,0,0] -1.0) (< X[0,1,0] 3.0) (< 0.5 X[0,1,1])))")
    assert box(prop) == [(-1.0, 1.0), (-1.0, 2.0), (-1.0, 3.0), (0.5, 4.0)]
    below, above = prop.boxes[0].strict
    assert (below.tolist(), above.tolist()) == ([True, False, False, True], [False, False, True, False])
    for empty in ("(>= X[0,0,0] 5.0)", "(> X[0,0,0] 1.0)", "(and (!= X[0,0,0] 1.0) (== X[0,0,0] 1.0))"):
        assert parse_property(HEAD_2 + f"(assert {empty})").is_empty


SECOND = "(declare-network g (declare-input U float32 [1]) (declare-output V float32 [1]))\n"
NETWORK = "(vnnlib-version <2.0>)\n(declare-network f {} (declare-output Y {} [1]))\n(assert (<= Y[0] {}))"


@pytest.mark.usefixtures("version_2")
@pytest.mark.parametrize(
    ("text", "words"),
    [
        (HEAD_2 + "(assert (<= Y[0,0] Y[0,2]))", "p, line 8: .*out of bounds"),
        (HEAD_2 + "(assert (<= Y[0,0] 1.0)", "p, line 8: .*syntax error"),
        (HEAD_2 + "(assert (<= Y[0,0] X[0,0,0]))", "p, line 8: .*mixes inputs and outputs"),
        (HEAD_2 + "(assert (<= X[0,1,1] X[0,0,0]))", "p, line 8: .*relates several inputs"),
        (HEAD_2 + "(assert (<= (* Y[0,0] Y[0,1]) 1.0))", "p, line 8: .*multiplies variables"),
        (HEAD_2.replace("(>= X[0,0,0] -1.0)", ""), "p: input X_0 has no lower bound"),
        (HEAD_2.replace("(assert", SECOND + "(assert", 1), r"2 networks \(f, g\)"),
        (
            NETWORK.format("(declare-input X Real [1]) (declare-input Z Real [1])", "Real", "1.0"),
            r"2 input tensors \(X, Z\)",
        ),
        (NETWORK.format("(declare-input X int8 [1])", "int8", "1"), "input X has elements of type int8"),
        (NETWORK.format('(declare-input X Real [1]) (declare-hidden H Real [1] "h")', "Real", "1.0"), "hidden node H"),
        (HEAD_2 + f"(assert {'(and ' * 2000}(<= Y[0,0] 1.0){')' * 2000})", "nests deeper than 1,000 levels"),
        (HEAD_2 + "(assert (<= Y[0,0] 99999999999999999999999))", "cannot read this as VNN-LIB 2.0|line 8"),
        ("(vnnlib-version 2.0)", "line 1: .*syntax error"),
        ("<2.0>", "line 1: .*syntax error"),
    ],
)
def test_version_2_refusals(text: str, words: str) -> None:
    with pytest.raises(PropertyError, match=words) as caught:
        parse_property(text, "p")
    assert str(caught.value).startswith("p")


def test_version_2_without_the_package(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "vnnlib", None)
    with pytest.raises(PropertyError, match=r"pip install bough\[vnnlib2\]"):
        parse_property(HEAD_2)
    assert parse_property(HEAD).inputs == 2
