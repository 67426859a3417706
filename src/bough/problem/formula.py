"""A formula of linear comparisons enters, a `Property` leaves: its disjunctive normal form as boxes and output rows.

No step recurses, so that nesting is limited by memory alone. Arithmetic is exact; where its result is no float64,
boxes and offsets are rounded outward, so that no unsafe point is lost, and output coefficients to nearest.
"""

import itertools
import math
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from fractions import Fraction
from functools import partial
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from bough.errors import PropertyError
from bough.problem.property import Box, Clause, Property

MAX_DISJUNCTS = 200_000  # a property in disjunctive normal form has at most so many disjuncts
MAX_LITERALS = 5_000_000  # all disjuncts together have at most so many comparisons, those common to all counted once
MAX_NUMBERS = 50_000_000  # all boxes of a property have at most so many numbers, and so have all rows
MAX_BITS = 5_000  # a product of constants has at most so many bits: beyond, it is far outside float64

Place = Any  # whatever the reader's `line` and `text` understand: the index of a token, or a node of a tree
Step = Any  # of a tree in prefix order: a string opens a node, None closes it, anything else is a leaf
Linear = dict[tuple[str, int], Fraction | int]  # coefficients of inputs ("X", i), outputs ("Y", j), and of ONE
ONE = ("", 0)  # the variable that is always 1: its coefficient is the constant


@dataclass(frozen=True)
class Source:
    """Name of the file a formula comes from, and how to find the line and the text at a place in it, for errors."""

    name: str
    line: Callable[[Place], int]
    text: Callable[[Place], str]

    def error(self, place: Place | None, message: str) -> PropertyError:
        """An error at this place; None is the file as a whole."""
        prefix = self.name if place is None else f"{self.name}, line {self.line(place)}"
        return PropertyError(f"{prefix}: {message}")


@dataclass(slots=True, eq=False)
class Literal:
    """`terms <= offset`, `<` where strict: about outputs ("Y"), one input with factor 1 or -1 ("X"), or none ("")."""

    about: str
    terms: tuple[tuple[int, float], ...]
    offset: float
    strict: bool
    place: Place

    @property
    def order(self) -> tuple[float, bool]:
        """A key by which the tighter of two bounds of one side comes first."""
        return self.offset, not self.strict


Formula = Literal | tuple[str, list["Formula"]]  # ("and", ...) or ("or", ...); readers resolve `not`

INEQUALITIES = {"<=": (1, False), ">=": (-1, False), "<": (1, True), ">": (-1, True)}  # sign to give both sides; strict
_PAIRS = {"=": ("and", "<=", ">="), "!=": ("or", "<", ">")}


def fold(steps: Iterable[Step], combine: Callable[[str, list[Any]], Any]) -> Any:
    """The value of a tree in prefix order, where `combine` gives that of a node from its name and its parts."""
    opened: list[tuple[str, list[Any]]] = [("", [])]
    for step in steps:
        if step is None:
            value = combine(*opened.pop())
            opened[-1][1].append(value)
        elif isinstance(step, str):
            opened.append((step, []))
        else:
            opened[-1][1].append(step)
    return opened[0][1][0]


def comparison(sides: Iterable[Step], operator: str, place: Place, source: Source) -> Formula:
    """The formula `left operator right`; `sides` are both under "=", as trees of +, - and * over `Linear` leaves."""
    gate, *inequalities = _PAIRS.get(operator, ("and", operator))
    try:
        difference = fold(sides, _arithmetic)
        return gate, [_literal(difference, *INEQUALITIES[part], place) for part in inequalities]
    except PropertyError as error:
        reason = str(error)
    except OverflowError:
        reason = "comes to a number outside float64; scale it"
    raise source.error(place, f"the constraint {source.text(place)} {reason}")


def _arithmetic(operator: str, parts: list[Linear]) -> Linear:
    """The value of a node, the left side minus the right side for "="; uses the parts up."""
    if not parts:
        raise PropertyError("has an operator without arguments; give each at least one")
    if operator == "=" and len(parts) != 2:
        raise PropertyError(f"compares two expressions, found {len(parts)}; give it two")
    if operator == "*":
        parts.sort(key=lambda part: len(part) > 1 or ONE not in part)  # constants first
        *constants, total = parts
        if any(len(part) > 1 or ONE not in part for part in constants):
            raise PropertyError("multiplies variables; only linear constraints are supported")
        for constant in constants:
            total = _scaled(total, constant[ONE])
        return total
    if operator != "+":
        positive = parts[: len(parts) > 1]  # (- a) is -a, (- a b c) is a - b - c
        parts = positive + [_scaled(part, -1) for part in parts[len(positive) :]]
    total = max(parts, key=len)  # takes the others up, so that a deep sum is not copied at every level
    for part in parts:
        if part is not total:
            for variable, coefficient in part.items():
                total[variable] = total.get(variable, 0) + coefficient
    return total


def _scaled(linear: Linear, factor: Fraction | int) -> Linear:
    scaled = {variable: coefficient * factor for variable, coefficient in linear.items()}
    if any(max(abs(c.numerator), c.denominator).bit_length() > MAX_BITS for c in scaled.values()):
        raise PropertyError("multiplies constants to a number far outside float64")
    return scaled


def _literal(linear: Linear, sign: int, strict: bool, place: Place) -> Literal:
    """`sign * linear <= 0`."""
    inputs = [(i, sign * c) for (kind, i), c in linear.items() if kind == "X" and c != 0]
    outputs = [(j, sign * c) for (kind, j), c in linear.items() if kind == "Y" and c != 0]
    offset = Fraction(-sign * linear.get(ONE, 0))
    if len(inputs) > 1 or (inputs and outputs):
        wrong = "mixes inputs and outputs" if outputs else "relates several inputs"
        raise PropertyError(f"{wrong}; only boxes (one input in a comparison) and rows of outputs are supported")
    if inputs:
        ((i, factor),) = inputs
        direction = 1 if factor > 0 else -1
        return Literal("X", ((i, direction),), _rounded_up(offset / (direction * factor)), strict, place)
    # Outputs that cancel still make a row, so that a row of zeros can be written and read back.
    if any(kind == "Y" for kind, _ in linear):
        terms = tuple((j, float(c)) for j, c in outputs)
        if any(coefficient == 0 for _, coefficient in terms):
            raise OverflowError
        return Literal("Y", terms, _rounded_up(offset), strict, place)
    holds = offset > 0 if strict else offset >= 0
    return Literal("", (), math.inf if holds else -math.inf, strict, place)


def _rounded_up(value: Fraction) -> float:
    nearest = float(value)
    if nearest < value:
        nearest = math.nextafter(nearest, math.inf)
    if math.isinf(nearest):
        raise OverflowError
    return nearest


_Disjunct = Any  # a literal, or a tuple of disjuncts, all of which hold: shared, so that a product copies no literal


def _merged(formula: Formula) -> tuple[list[Literal], list[Step]]:
    """The literals common to all disjuncts; and the rest, where no gate has one child or stands in one of its kind."""
    common: list[Literal] = []
    steps: list[Step] = ["and"]
    stack: list[tuple[Formula | None, str, bool]] = [(formula, "and", False)]  # and whether an `or` is around it
    while stack:
        top, within, chosen = stack.pop()
        if top is None:
            steps.append(None)
        elif isinstance(top, Literal):
            (steps if chosen else common).append(top)
        else:
            gate, children = top
            if len(children) == 1:
                gate = within
            elif gate != within:
                steps.append(gate)
                stack.append((None, "", False))
            stack += [(child, gate, chosen or gate == "or") for child in reversed(children)]
    return common, [*steps, None]


def _size(name: str, gate: str, parts: list[Literal | tuple[int, int]]) -> tuple[int, int]:
    """Number of disjuncts and of the literals in them; both only rise, so that the first excess ends it."""
    disjuncts = int(gate == "and")
    literals = 0
    for part in parts:
        more, held = (1, 1) if isinstance(part, Literal) else part
        if gate == "and":
            disjuncts, literals = disjuncts * more, literals * more + disjuncts * held
        else:
            disjuncts, literals = disjuncts + more, literals + held
        if disjuncts > MAX_DISJUNCTS or literals > MAX_LITERALS:
            raise PropertyError(
                f"{name} comes to more than {MAX_DISJUNCTS:,} disjuncts, or {MAX_LITERALS:,} comparisons in them, "
                "when its and/or are multiplied out; split it into several properties"
            )
    return disjuncts, literals


def _multiplied(gate: str, parts: list[Literal | list[_Disjunct]]) -> list[_Disjunct]:
    lists = [[part] if isinstance(part, Literal) else part for part in parts]
    return list(itertools.product(*lists) if gate == "and" else itertools.chain.from_iterable(lists))


def _literals(disjunct: _Disjunct) -> Iterator[Literal]:
    stack = [disjunct]
    while stack:
        top = stack.pop()
        if isinstance(top, tuple):
            stack.extend(reversed(top))
        else:
            yield top


_Side = tuple[int, float]  # of a box: the number of the input, and 1 for its upper or -1 for its lower end
_Bounds = dict[_Side, Literal]  # the tightest on every side that has any
_Narrower = frozenset[tuple[_Side, float, bool]]  # where a box lies inside of the frame, the box around all; if strict


def build(formula: Formula, inputs: Sequence[Place | None], outputs: int, source: Source) -> Property:
    """The property whose unsafe set the formula describes; `inputs` are the places where the inputs are declared.

    Disjuncts whose box is empty are dropped. If none is left, the property has one empty box.
    """
    common, steps = _merged(formula)
    fold(steps, partial(_size, source.name))
    frame, shared, wrong = _conjunction(common, {})
    if wrong:
        return _empty(frame, {}, wrong, inputs, outputs, source)
    empty: tuple[_Bounds, tuple[Literal, ...]] = {}, ()
    boxes: dict[_Narrower, int] = {}
    clauses: list[tuple[int, list[Literal]]] = []
    for disjunct in fold(steps, _multiplied):
        bounds, rows, wrong = _conjunction(_literals(disjunct), frame)
        if not wrong:
            clauses.append((boxes.setdefault(_narrower(bounds, frame), len(boxes)), shared + rows))
        elif not empty[1] or empty[1][0].about == "":
            empty = bounds, wrong
    if not clauses:
        return _empty(frame, *empty, inputs, outputs, source)
    _check_numbers(len(boxes), len(inputs), "boxes", "inputs", source.name)
    _check_numbers(sum(max(len(rows), 1) for _, rows in clauses), outputs, "rows", "outputs", source.name)
    unsafe = tuple(_clause(box, rows, outputs) for box, rows in clauses)
    return Property(_boxes(frame, list(boxes), inputs, source), unsafe)


def _conjunction(literals: Iterable[Literal], frame: _Bounds) -> tuple[_Bounds, list[Literal], tuple[Literal, ...]]:
    """Bounds and rows of a conjunction, and the literals for which no point within the frame can be in it."""
    bounds: _Bounds = {}
    rows: list[Literal] = []
    never: tuple[Literal, ...] = ()
    for literal in literals:
        if literal.about == "X":
            side = literal.terms[0]
            if literal.order < bounds.setdefault(side, literal).order:
                bounds[side] = literal
        elif literal.about == "Y":
            rows.append(literal)
        elif literal.offset < 0:
            never = (literal,)
    return bounds, rows, never or _contradiction(bounds, frame)


def _contradiction(bounds: _Bounds, frame: _Bounds) -> tuple[Literal, ...]:
    """Two bounds that leave an input no value, one of them possibly the frame's; empty if there are none."""
    for i in sorted({i for i, _ in bounds}):
        below = bounds.get((i, -1))
        above = bounds.get((i, 1))
        if below and above and _apart(below, above):
            return below, above
        for bound, opposite in ((below, frame.get((i, 1))), (above, frame.get((i, -1)))):
            if bound and opposite and _apart(bound, opposite):
                return bound, opposite
    return ()


def _apart(bound: Literal, opposite: Literal) -> bool:
    """Whether no value satisfies a lower and an upper bound of one input."""
    ends = bound.offset, -opposite.offset
    return ends[0] < ends[1] or (ends[0] == ends[1] and (bound.strict or opposite.strict))


def _narrower(bounds: _Bounds, frame: _Bounds) -> _Narrower:
    tighter = (at for at in bounds if at not in frame or bounds[at].order < frame[at].order)
    return frozenset((at, bounds[at].offset, bounds[at].strict) for at in tighter)


def _empty(
    frame: _Bounds,
    bounds: _Bounds,
    wrong: tuple[Literal, ...],
    inputs: Sequence[Place | None],
    outputs: int,
    source: Source,
) -> Property:
    """The property without any point, because of what `_conjunction` found wrong."""
    first = wrong[0]
    if first.about == "":
        raise source.error(first.place, f"{source.text(first.place)} never holds, so no point is unsafe; correct it")
    limits = {**frame, **bounds, **{literal.terms[0]: literal for literal in wrong}}
    for i in {i for i, _ in limits}:
        below, above = limits.get((i, -1)), limits.get((i, 1))
        if below and above and above.offset < -below.offset:
            # No box has its lower limit above the upper one: the lower one stands for both, which are strict.
            for sign in (-1, 1):
                limits[i, sign] = Literal("X", ((i, sign),), -sign * below.offset, strict=True, place=below.place)
    return Property(_boxes(limits, [frozenset()], inputs, source), (_clause(0, [], outputs),))


def _boxes(
    frame: _Bounds, boxes: Sequence[_Narrower], inputs: Sequence[Place | None], source: Source
) -> tuple[Box, ...]:
    common = np.full((2, len(inputs)), np.inf)  # -lower and upper, as in the literals
    common_strict = np.zeros((2, len(inputs)), dtype=bool)
    for (i, sign), bound in frame.items():
        common[int(sign > 0), i] = bound.offset
        common_strict[int(sign > 0), i] = bound.strict
    ends, strict = (np.tile(side, (len(boxes), 1, 1)) for side in (common, common_strict))
    for box, narrower in enumerate(boxes):
        for (i, sign), offset, excluded in narrower:
            ends[box, int(sign > 0), i] = offset
            strict[box, int(sign > 0), i] = excluded
    unlimited = np.isinf(ends).any(axis=0)
    if unlimited.any():
        upper, i = divmod(int(unlimited.argmax()), len(inputs))
        which = " in some disjunct" if len(boxes) > 1 else ""
        raise source.error(inputs[i], f"input X_{i} has no {('lower', 'upper')[upper]} bound{which}; give it both")
    low, high = torch.from_numpy(-ends[:, 0]), torch.from_numpy(ends[:, 1])
    if not strict.any():
        return tuple(map(Box, low, high))
    below, above = torch.from_numpy(strict[:, 0]), torch.from_numpy(strict[:, 1])
    return tuple(Box(low[k], high[k], None, below[k], above[k]) for k in range(len(boxes)))


def _clause(box: int, rows: list[Literal], outputs: int) -> Clause:
    rows = rows or [Literal("Y", (), 0.0, strict=False, place=None)]  # 0 <= 0: every point of the box is unsafe
    coefficients: NDArray[np.float64] = np.zeros((len(rows), outputs))
    for number, row in enumerate(rows):
        for j, coefficient in row.terms:
            coefficients[number, j] = coefficient
    offsets = np.array([row.offset for row in rows])
    return Clause(box, torch.from_numpy(coefficients), torch.from_numpy(offsets), tuple(row.strict for row in rows))


def _check_numbers(count: int, size: int, many: str, each: str, name: str) -> None:
    if count * size > MAX_NUMBERS:
        raise PropertyError(
            f"{name} comes to {count:,} {many} of {size:,} {each} when its and/or are multiplied out, more than "
            f"{MAX_NUMBERS:,} numbers; split it into several properties"
        )
