"""A VNN-LIB file enters, a `Property` leaves: the unsafe set as input boxes and linear output rows, and back to text.

Version 1.0 is read here; version 2.0 is read by the package `vnnlib`, and its tree takes the same way from there:
text or tree -> formula of comparisons -> disjunctive normal form -> boxes and clauses. No step recurses, so that
nesting is limited by memory alone. A written number means the nearest float64; arithmetic on such numbers is exact,
and where its result is no float64, boxes and offsets are rounded outward and output coefficients to nearest.
"""

import importlib
import itertools
import json
import math
import re
from abc import ABC, abstractmethod
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field, replace
from fractions import Fraction
from pathlib import Path
from typing import Any, final

import numpy as np
import torch
from numpy.typing import NDArray

from bough.errors import PropertyError
from bough.problem.files import PROPERTY_LIMIT, read_bytes
from bough.problem.property import Box, Clause, Property

MAX_DISJUNCTS = 200_000
"""Most disjuncts a property may have in disjunctive normal form."""

MAX_LITERALS = 5_000_000
"""Most comparisons in all disjuncts together, those common to all counted once."""

MAX_NUMBERS = 50_000_000
"""Most numbers in all boxes, and in all rows, of a property."""

MAX_BITS = 5_000
"""Most bits of a product of constants: beyond, it is far outside float64."""

MAX_DEPTH_2 = 1_000
"""Deepest nesting handed to the VNN-LIB 2.0 parser, which recurses and would end the process."""


def read_property(path: str | Path) -> Property:
    """The property in a `.vnnlib` or `.vnnlib.gz` file, version 1.0 or 2.0."""
    raw = read_bytes(path, PROPERTY_LIMIT, PropertyError)
    try:
        text = raw.decode("utf-8-sig")
    except UnicodeDecodeError:
        raise PropertyError(f"{path} is not text; give a VNN-LIB file") from None
    return parse_property(text, str(path))


def parse_property(text: str, source: str = "property") -> Property:
    """The property that a VNN-LIB text describes; `source` is its name in error messages."""
    if "\0" in text:
        raise PropertyError(f"{source} is not text; give a VNN-LIB file")
    places = _Tokens(source, text)
    if places.count == 0:
        raise PropertyError(f"{source} is empty; give a VNN-LIB file with declarations and assertions")
    version = places.version()
    if version == 1:
        reading = _Reader(places)
        return _build(reading.read(), len(reading.inputs), len(reading.outputs), places, reading.inputs)
    return _read_version_2(text, places)


def write_property(prop: Property) -> str:
    """VNN-LIB 1.0 text that parses back to the same clauses and to the boxes they use, in the order of first use."""
    lines = [f"(declare-const X_{i} Real)" for i in range(prop.inputs)]
    lines += [f"(declare-const Y_{j} Real)" for j in range(prop.outputs)]
    groups = [(box, list(clauses)) for box, clauses in itertools.groupby(prop.clauses, key=lambda clause: clause.box)]
    boxes = {box: _written_box(prop.boxes[box]) for box, _ in groups}
    if len(boxes) == 1:
        lines += [f"(assert {bound})" for bound in boxes[groups[0][0]]]
        lines += ["(assert (or", *(f"  {_written_clause(clause)}" for clause in prop.clauses), "))"]
        return "\n".join(lines) + "\n"
    lines.append("(assert (or")
    for box, clauses in groups:
        lines += ["  (and", *(f"    {bound}" for bound in boxes[box])]
        lines += ["    (or", *(f"      {_written_clause(clause)}" for clause in clauses), "    )", "  )"]
    return "\n".join([*lines, "))"]) + "\n"


def _written_box(box: Box) -> list[str]:
    pairs = enumerate(zip(box.lower.tolist(), box.upper.tolist(), strict=True))
    return [text for i, (lower, upper) in pairs for text in (f"(>= X_{i} {lower!r})", f"(<= X_{i} {upper!r})")]


def _written_clause(clause: Clause) -> str:
    rows = zip(clause.coefficients.tolist(), clause.offsets.tolist(), clause.strict, strict=True)
    return f"(and {' '.join(_written_row(*row) for row in rows)})"


def _written_row(coefficients: list[float], offset: float, strict: bool) -> str:
    if not all(map(math.isfinite, [*coefficients, offset])):
        raise PropertyError("a row with a coefficient or offset that is not finite cannot be written as VNN-LIB")
    # A row of zeros still names an output: that is what makes it a row when it is read back.
    terms = [(j, c) for j, c in enumerate(coefficients) if c != 0] or [(0, 0.0)]
    written = [f"Y_{j}" if c == 1 else f"(* {c!r} Y_{j})" for j, c in terms]
    total = written[0] if len(written) == 1 else f"(+ {' '.join(written)})"
    return f"({'<' if strict else '<='} {total} {offset!r})"


# ---------------------------------------------------------------------------------------------------------------------
# Places: where in the file something stands, worked out only when an error is raised


class _Places(ABC):
    """Turns the number of a place into the line and text that an error message shows."""

    source: str

    @abstractmethod
    def line(self, where: int) -> int:
        """Line number, from 1."""

    @abstractmethod
    def text(self, where: int) -> str:
        """The expression that begins there, on one line and not too long."""

    @final
    def error(self, where: int, message: str) -> PropertyError:
        """An error at this place."""
        return PropertyError(f"{self.source}, line {self.line(where)}: {message}")


_TOKEN = re.compile(r"[()]|[^\s();]+|;[^\r\n]*", re.ASCII)
_NUMBER = re.compile(r"[+-]?(?:[0-9]+\.?[0-9]*|\.[0-9]+)(?:[eE][+-]?[0-9]+)?")
_VARIABLE = re.compile(r"([XY])_(0|[1-9][0-9]{0,8})")
_LOOK_AHEAD = 8


@final
class _Tokens(_Places):
    """A text cut into tokens, without the comments; a place is the index of a token."""

    def __init__(self, source: str, text: str) -> None:
        self.source = source
        self._characters = text
        tokens: list[str] = _TOKEN.findall(text)
        if ";" in text:
            tokens = [token for token in tokens if token[0] != ";"]
        self.count = len(tokens)
        # Empty tokens at the end let the readers look ahead without asking whether there is more.
        self.tokens = tokens + [""] * _LOOK_AHEAD

    def line(self, where: int) -> int:
        starts = (match.start() for match in _TOKEN.finditer(self._characters) if match[0][0] != ";")
        start = next(itertools.islice(starts, min(where, self.count - 1), None), 0)
        return self._characters.count("\n", 0, start) + 1

    def text(self, where: int) -> str:
        shown, depth = "", 0
        for token in self.tokens[where : self.count]:
            depth += (token == "(") - (token == ")")
            shown += token if token == ")" or not shown or shown[-1] == "(" else f" {token}"
            if depth <= 0:
                return shown
            if len(shown) > 100:
                return f"{shown[:100]} ..."
        return shown

    def version(self) -> int:
        """Major version the file says it is written in; 1 where it says nothing."""
        head = self.tokens[2] if self.tokens[:2] == ["(", "vnnlib-version"] else self.tokens[0]
        if head == self.tokens[0] and not head.startswith("<"):
            return 1
        if head.strip("<>").split(".")[0] == "2":
            return 2
        raise self.error(
            0, f"VNN-LIB version {head[:40]!r} is not supported; bough reads <2.0>, and 1.0 without this line"
        )

    def depth(self) -> int:
        """Deepest nesting of parentheses."""
        steps = np.fromiter((1 if t == "(" else -1 if t == ")" else 0 for t in self.tokens), dtype=np.int64)
        return int(steps.cumsum().max())

    def unfinished(self) -> PropertyError:
        """The error for a text that ends too early: it names the outermost parenthesis that is not closed."""
        opened = []
        for index, token in enumerate(self.tokens):
            if token == "(":
                opened.append(index)
            elif token == ")" and opened:
                opened.pop()
        return self.error(opened[0] if opened else self.count - 1, "the parenthesis opened here is never closed; add )")


# ---------------------------------------------------------------------------------------------------------------------
# Formulas: comparisons of linear expressions under and, or, not

_Variable = tuple[str, int]  # ("X", 3) is input number 3, ("Y", 0) output number 0
_Exact = Fraction | int

_NEGATED = {"<=": ">", ">=": "<", "<": ">=", ">": "<=", "=": "!=", "!=": "="}
_MIRRORED = {"<=": ">=", ">=": "<=", "<": ">", ">": "<", "=": "="}
_SPLIT = {"=": ("and", "<=", ">="), "!=": ("or", "<", ">")}
_FLIPPED = {"and": "or", "or": "and"}


@dataclass(slots=True, eq=False)
class _Comparison:
    """`sum of terms  operator  constant`, about an input ("X"), outputs ("Y"), or constants alone ("")."""

    about: str
    operator: str
    terms: tuple[tuple[int, _Exact], ...]
    constant: Fraction | float
    where: int


@dataclass(slots=True, eq=False)
class _Gate:
    """`and`, `or` or `not` of formulas."""

    name: str
    children: "list[_Formula]"


_Formula = _Comparison | _Gate


@dataclass(slots=True, eq=False)
class _Expression:
    """Arithmetic as a flat tree with parents before their children, so that one loop each way evaluates it."""

    operators: list[str] = field(default_factory=list)  # one of + - *, or "" at a leaf
    parents: list[int] = field(default_factory=list)
    leaves: list[_Variable | Fraction | None] = field(default_factory=list)
    positions: list[int] = field(default_factory=list)  # among its siblings
    arities: list[int] = field(default_factory=list)

    def add(self, parent: int, operator: str, leaf: _Variable | Fraction | None = None) -> int:
        """Append a node; returns its number."""
        self.operators.append(operator)
        self.parents.append(parent)
        self.leaves.append(leaf)
        self.arities.append(0)
        self.positions.append(self.arities[parent] if parent >= 0 else 0)
        if parent >= 0:
            self.arities[parent] += 1
        return len(self.operators) - 1

    def sign(self, node: int) -> int:
        """-1 where the parent subtracts this node: all but its first argument, or its only one."""
        parent = self.parents[node]
        return -1 if self.operators[parent] == "-" and (self.positions[node] > 0 or self.arities[parent] == 1) else 1


class _Unfit(Exception):
    """An expression outside linear arithmetic; the message says why, the caller knows the place."""


def _linear(expression: _Expression) -> tuple[dict[_Variable, _Exact], _Exact]:
    """Coefficients and constant of an expression."""
    operators, parents, leaves = expression.operators, expression.parents, expression.leaves
    # Upwards: what the constant children of every node come to, and whether any other child holds a variable.
    constants: list[_Exact] = [1 if operator == "*" else 0 for operator in operators]
    varying = [isinstance(leaf, tuple) for leaf in leaves]
    for node in range(len(operators) - 1, 0, -1):
        leaf, parent = leaves[node], parents[node]
        if isinstance(leaf, Fraction):
            constants[node] = leaf
        if varying[node]:
            if varying[parent] and operators[parent] == "*":
                raise _Unfit("multiplies variables; only linear constraints are supported")
            varying[parent] = True
        elif operators[parent] == "*":
            constants[parent] = _within_bits(constants[parent] * constants[node])
        else:
            constants[parent] += expression.sign(node) * constants[node]
    # Downwards: the factor in front of every node that holds a variable.
    factors: list[_Exact] = [1] * len(operators)
    terms: dict[_Variable, _Exact] = {}
    constant = constants[0]
    for node in range(1, len(operators)):
        if not varying[node]:
            continue
        parent, leaf = parents[node], leaves[node]
        scale = constants[parent] if operators[parent] == "*" else expression.sign(node)
        factors[node] = _within_bits(factors[parent] * scale)
        if isinstance(leaf, tuple):
            terms[leaf] = terms.get(leaf, 0) + factors[node]
        elif operators[node] != "*":
            constant += factors[node] * constants[node]
    return terms, constant


def _within_bits(value: _Exact) -> _Exact:
    if value.numerator.bit_length() > MAX_BITS or value.denominator.bit_length() > MAX_BITS:
        raise _Unfit("multiplies constants to a number far outside float64")
    return value


def _comparison(expression: _Expression, operator: str, where: int, places: _Places) -> _Comparison:
    """`expression operator 0`, sorted into what it speaks of; what is neither a box nor an output row is refused."""
    try:
        terms, constant = _linear(expression)
    except _Unfit as error:
        raise places.error(where, f"the constraint {places.text(where)} {error}") from None
    inputs = tuple((i, c) for (kind, i), c in terms.items() if kind == "X" and c != 0)
    outputs = tuple((j, c) for (kind, j), c in terms.items() if kind == "Y" and c != 0)
    if len(inputs) > 1 or (inputs and outputs):
        wrong = "mixes inputs and outputs" if outputs else "relates several inputs"
        advice = "only boxes (one input in a comparison) and rows of outputs are supported"
        raise places.error(where, f"the constraint {places.text(where)} {wrong}; {advice}")
    if inputs:
        return _Comparison("X", operator, inputs, Fraction(-constant), where)
    # Outputs that cancel still make a row, so that a row of zeros can be written and read back.
    about = "Y" if any(kind == "Y" for kind, _ in terms) else ""
    return _Comparison(about, operator, outputs, Fraction(-constant), where)


# ---------------------------------------------------------------------------------------------------------------------
# Reading version 1.0


@final
class _Reader:
    """One pass over the tokens of a VNN-LIB 1.0 text."""

    def __init__(self, places: _Tokens) -> None:
        self._places = places
        self._tokens = places.tokens
        self._names: dict[str, _Variable] = {}
        self.inputs: dict[int, int] = {}  # number of the input -> where it is declared
        self.outputs: dict[int, int] = {}

    def read(self) -> list[_Formula]:
        """Every assertion, in order."""
        tokens, assertions, at = self._tokens, [], 0
        while at < self._places.count:
            command = tokens[at + 1]
            if tokens[at] == "(" and command == "assert":
                formula, end = self._formula(at + 2)
                assertions.append(formula)
                at = self._closed(end, "an assertion takes one formula")
            elif tokens[at] == "(" and command in ("declare-const", "declare-fun"):
                at = self._declare(at)
            else:
                raise self._not_a_command(at)
        self._check_numbering("X", "input", self.inputs)
        self._check_numbering("Y", "output", self.outputs)
        if not assertions:
            raise PropertyError(
                f"{self._places.source} asserts nothing; give the inputs' bounds and the unsafe outputs"
            )
        return assertions

    def _not_a_command(self, at: int) -> PropertyError:
        token = self._tokens[at]
        if token == ")":
            return self._places.error(at, "this ) closes nothing; remove it")
        if token != "(":
            return self._places.error(at, f"expected ( and a command, found {token[:40]!r}")
        command = self._tokens[at + 1]
        if command == "":
            return self._places.unfinished()
        supported = "declare-const, declare-fun, assert"
        return self._places.error(at, f"unknown command {command[:40]!r}; supported: {supported}")

    def _declare(self, at: int) -> int:
        tokens = self._tokens
        name, sort = tokens[at + 2], at + 3
        if tokens[at + 1] == "declare-fun":
            if tokens[at + 3] != "(" or tokens[at + 4] != ")":
                raise self._unexpected(at + 3, "a function with arguments cannot be declared; expected ()")
            sort = at + 5
        if tokens[sort] != "Real":
            raise self._unexpected(sort, f"expected the sort Real of {name[:40]}, found {tokens[sort][:40]!r}")
        matched = _VARIABLE.fullmatch(name)
        if matched is None:
            naming = "inputs are X_0, X_1, ... and outputs Y_0, Y_1, ..."
            raise self._unexpected(at + 2, f"unknown variable name {name[:40]!r}; {naming}")
        kind, index = matched[1], int(matched[2])
        if name in self._names:
            raise self._places.error(at, f"{name} is declared twice; remove one")
        self._names[name] = (kind, index)
        (self.inputs if kind == "X" else self.outputs)[index] = at
        return self._closed(sort + 1, "a declaration ends after its sort")

    def _check_numbering(self, kind: str, noun: str, declared: dict[int, int]) -> None:
        if not declared:
            raise PropertyError(f"{self._places.source} declares no {noun}; add (declare-const {kind}_0 Real)")
        missing = next(i for i in itertools.count() if i not in declared)
        if missing != len(declared):
            beyond = min(i for i in declared if i > missing)
            message = f"{kind}_{beyond} is declared but {kind}_{missing} is not; number the {noun}s without gaps"
            raise self._places.error(declared[beyond], message)

    def _unexpected(self, at: int, message: str) -> PropertyError:
        return self._places.unfinished() if self._tokens[at] == "" else self._places.error(at, message)

    def _closed(self, at: int, message: str) -> int:
        if self._tokens[at] != ")":
            raise self._unexpected(at, f"expected ), found {self._tokens[at][:40]!r}: {message}")
        return at + 1

    def _formula(self, at: int) -> tuple[_Formula, int]:
        """The formula that begins at a token, and where the next token after it is."""
        tokens = self._tokens
        opened: list[_Gate] = []
        while True:
            operator = tokens[at + 1] if tokens[at] == "(" else ""
            if operator in _FLIPPED or operator == "not":
                opened.append(_Gate(operator, []))
                at += 2
                continue
            if operator not in _NEGATED or operator == "!=":
                raise self._not_a_formula(at, opened)
            formula: _Formula
            formula, at = self._compare(at)
            while opened:
                gate = opened[-1]
                gate.children.append(formula)
                if tokens[at] != ")":
                    if gate.name == "not":
                        raise self._unexpected(at, "not takes one formula")
                    break
                # A gate around one formula is that formula: chains of them cost nothing later.
                formula = gate if gate.name == "not" or len(gate.children) > 1 else gate.children[0]
                opened.pop()
                at += 1
            else:
                return formula, at

    def _not_a_formula(self, at: int, opened: list[_Gate]) -> PropertyError:
        token = self._tokens[at]
        if token == ")":
            gate = opened[-1].name if opened else "assert"
            return self._places.error(at, f"({gate} ...) needs a formula, found none")
        if token != "(":
            return self._unexpected(at, f"expected a formula, found {token[:40]!r}")
        operator = self._tokens[at + 1]
        if operator in ("assert", "declare-const", "declare-fun"):
            return self._places.error(at, f"{operator} inside a formula: a ) is missing before it")
        supported = "and, or, not, <=, >=, <, >, ="
        return self._unexpected(at + 1, f"unknown operator {operator[:40]!r} in a formula; supported: {supported}")

    def _compare(self, at: int) -> tuple[_Comparison, int]:
        """The comparison that begins at a token; variable against number, nearly all of a file, needs no arithmetic."""
        _, operator, left, right, end = self._tokens[at : at + 5]
        if end == ")" and (left in self._names) != (right in self._names) and left not in "()" and right not in "()":
            if left in self._names:
                (about, index), number = self._names[left], self._number(right, at + 3)
            else:
                (about, index), number = self._names[right], self._number(left, at + 2)
                operator = _MIRRORED[operator]
            return _Comparison(about, operator, ((index, 1),), number, at), at + 5
        expression, end_at = self._expression(at)
        if expression.arities[0] != 2:
            raise self._places.error(at, f"{operator} compares two expressions, found {expression.arities[0]}")
        return _comparison(expression, operator, at, self._places), end_at

    def _expression(self, at: int) -> tuple[_Expression, int]:
        """The two sides of the comparison that begins at a token, as a difference."""
        tokens, expression = self._tokens, _Expression()
        node, at = expression.add(-1, "-"), at + 2
        while node >= 0:
            token = tokens[at]
            if token == ")":
                if expression.arities[node] == 0:
                    raise self._places.error(at, "an operator without arguments; give it at least one")
                node = expression.parents[node]
            elif token == "(":
                operator = tokens[at + 1]
                if operator not in ("+", "-", "*"):
                    message = f"unknown operator {operator[:40]!r} in an expression; supported: +, -, *"
                    raise self._unexpected(at + 1, message)
                node = expression.add(node, operator)
                at += 1
            elif token in self._names:
                expression.add(node, "", self._names[token])
            else:
                expression.add(node, "", Fraction(self._number(token, at)))
            at += 1
        return expression, at

    def _number(self, token: str, at: int) -> float:
        if _NUMBER.fullmatch(token) is None:
            if _VARIABLE.fullmatch(token):
                raise self._places.error(at, f"{token} is not declared; add (declare-const {token} Real) before this")
            raise self._unexpected(at, f"expected a number or a declared variable X_i or Y_j, found {token[:40]!r}")
        value = float(token)
        if math.isinf(value):
            raise self._places.error(at, f"the number {token[:40]} is outside float64; give a finite one")
        return value


# ---------------------------------------------------------------------------------------------------------------------
# Disjunctive normal form


@dataclass(slots=True, eq=False)
class _Bound:
    """`X_input <= value` (upper) or `X_input >= value`. An arm is one child of an `or`; arm 0 is outside of all."""

    input: int
    upper: bool
    value: float
    arm: int
    where: int


@dataclass(slots=True, eq=False)
class _Row:
    """`coefficients . Y <= offset`, `<` where strict."""

    coefficients: tuple[tuple[int, float], ...]
    offset: float
    strict: bool
    where: int


@dataclass(slots=True, eq=False)
class _Truth:
    """A comparison of constants."""

    holds: bool
    where: int


_Literal = _Bound | _Row | _Truth
_Step = _Literal | str | None  # a literal; "and" or "or" opens a gate; None closes it
_Disjunct = Any  # a literal, or a tuple of disjuncts, all of which hold: shared, so that a product copies no literal


def _program(assertions: list[_Formula], places: _Places) -> tuple[list[_Literal], list[_Step]]:
    """The literals common to all disjuncts; and the rest, `not` pushed to the comparisons and nested gates merged."""
    common: list[_Literal] = []
    program: list[_Step] = []
    arms = itertools.count(1)
    stack: list[tuple[_Formula | None, bool, str, int]] = [(root, False, "and", 0) for root in reversed(assertions)]
    while stack:
        formula, negated, within, arm = stack.pop()
        if formula is None:
            program.append(None)
            continue
        if isinstance(formula, _Comparison):
            operator = _NEGATED[formula.operator] if negated else formula.operator
            if operator not in _SPLIT:
                (program if arm else common).append(_literal(formula, operator, arm, places))
                continue
            gate, *parts = _SPLIT[operator]
            children: list[_Formula] = [replace(formula, operator=part) for part in parts]
            negated = False
        elif formula.name == "not":
            stack.append((formula.children[0], not negated, within, arm))
            continue
        else:
            gate, children = _FLIPPED[formula.name] if negated else formula.name, formula.children
        if gate != within:
            program.append(gate)
            stack.append((None, False, "", 0))
        stack += [(child, negated, gate, next(arms) if gate == "or" else arm) for child in reversed(children)]
    return common, program


def _literal(comparison: _Comparison, operator: str, arm: int, places: _Places) -> _Literal:
    """An inequality as a bound or a row, rounded so that no unsafe point is lost."""
    constant, where = comparison.constant, comparison.where
    below = operator in ("<=", "<")
    strict = operator in ("<", ">")
    if comparison.about == "":
        difference = constant if below else -constant
        return _Truth(difference > 0 if strict else difference >= 0, where)
    try:
        if comparison.about == "X":
            ((index, coefficient),) = comparison.terms
            upper = below == (coefficient > 0)
            quotient = constant if coefficient == 1 else Fraction(constant) / coefficient
            return _Bound(index, upper, _rounded(quotient, up=upper), arm, where)
        sign = 1 if below else -1
        coefficients = tuple((j, _nearest(sign * c)) for j, c in comparison.terms)
        return _Row(coefficients, _rounded(sign * constant, up=True), strict, where)
    except OverflowError:
        message = f"the constraint {places.text(where)} comes to a number outside float64; scale it"
        raise places.error(where, message) from None


def _nearest(value: _Exact) -> float:
    nearest = float(value)
    if nearest == 0 and value != 0:
        raise OverflowError
    return nearest


def _rounded(value: Fraction | float, up: bool) -> float:
    if isinstance(value, float):
        return value
    nearest = float(value)
    if up and nearest < value:
        nearest = math.nextafter(nearest, math.inf)
    elif not up and nearest > value:
        nearest = math.nextafter(nearest, -math.inf)
    if math.isinf(nearest):
        raise OverflowError
    return nearest


def _check_size(program: list[_Step], source: str) -> None:
    """Count disjuncts and their literals before any is made; the counts only rise, so that the first excess ends it."""
    disjuncts, literals = 1, 0  # of the gate so far
    outer: list[tuple[str, int, int]] = []
    gate = "and"
    for step in program:
        if isinstance(step, str):
            outer.append((gate, disjuncts, literals))
            gate, disjuncts, literals = step, int(step == "and"), 0
            continue
        more, held = 1, 1
        if step is None:
            more, held = disjuncts, literals
            gate, disjuncts, literals = outer.pop()
        if gate == "and":
            disjuncts, literals = disjuncts * more, literals * more + disjuncts * held
        else:
            disjuncts, literals = disjuncts + more, literals + held
        if disjuncts > MAX_DISJUNCTS or literals > MAX_LITERALS:
            raise PropertyError(
                f"{source} comes to more than {MAX_DISJUNCTS:,} disjuncts, or {MAX_LITERALS:,} comparisons in them, "
                "when its and/or are multiplied out; split it into several properties"
            )


def _disjuncts(program: list[_Step]) -> list[_Disjunct]:
    """Multiply out; the number of disjuncts was checked before."""
    outer: list[tuple[str, list[list[_Disjunct]]]] = []
    gate: str = "and"
    children: list[list[_Disjunct]] = []
    for step in program:
        if isinstance(step, str):
            outer.append((gate, children))
            gate, children = step, []
        elif step is None:
            made = _combined(gate, children)
            gate, children = outer.pop()
            children.append(made)
        else:
            children.append([step])
    return _combined("and", children)


def _combined(gate: str, children: list[list[_Disjunct]]) -> list[_Disjunct]:
    return list(itertools.product(*children) if gate == "and" else itertools.chain.from_iterable(children))


def _literals(disjunct: _Disjunct) -> Iterator[_Literal]:
    stack = [disjunct]
    while stack:
        top = stack.pop()
        if isinstance(top, tuple):
            stack.extend(reversed(top))
        else:
            yield top


# ---------------------------------------------------------------------------------------------------------------------
# Boxes and clauses

_Changes = tuple[tuple[int, float, float], ...]  # (input, lower, upper) where a box differs from the common one


def _build(
    assertions: list[_Formula], inputs: int, outputs: int, places: _Places, declared: dict[int, int] | None = None
) -> Property:
    common, program = _program(assertions, places)
    _check_size(program, places.source)
    frame = _Frame(inputs, places)
    shared = frame.narrow(common)
    boxes: dict[_Changes, int] = {}
    clauses: list[tuple[int, list[_Row]]] = []
    for disjunct in _disjuncts(program):
        narrowed = frame.narrowed(_literals(disjunct))
        if narrowed is not None:
            changes, rows = narrowed
            clauses.append((boxes.setdefault(changes, len(boxes)), shared + rows))
    if not clauses:
        raise frame.nothing_left()
    return Property(frame.boxes(list(boxes), declared), _clauses(clauses, outputs, places.source))


@final
class _Frame:
    """The box that all disjuncts share; each says only where its own differs."""

    def __init__(self, inputs: int, places: _Places) -> None:
        self._places = places
        self._lower = [-math.inf] * inputs
        self._upper = [math.inf] * inputs
        self._dropped: tuple[_Bound | _Truth, ...] = ()  # why the last disjunct was dropped

    def narrow(self, literals: list[_Literal]) -> list[_Row]:
        """Narrow the shared box; returns the shared rows."""
        sorted_out = _sorted_out(literals)
        if sorted_out.never:
            raise self._impossible(sorted_out.never)
        for i, below in sorted_out.lower.items():
            self._lower[i] = below.value
        for i, above in sorted_out.upper.items():
            self._upper[i] = above.value
            if self._lower[i] > above.value:
                raise self._impossible(sorted_out.lower[i], above)
        return sorted_out.rows

    def narrowed(self, literals: Iterable[_Literal]) -> tuple[_Changes, list[_Row]] | None:
        """The box and rows of a disjunct, or None if no point can be in it."""
        sorted_out = _sorted_out(literals)
        if sorted_out.never:
            self._dropped = (sorted_out.never,)
            return None
        changes = []
        for i in sorted(sorted_out.lower.keys() | sorted_out.upper.keys()):
            below, above = sorted_out.lower.get(i), sorted_out.upper.get(i)
            lower = max(self._lower[i], below.value) if below else self._lower[i]
            upper = min(self._upper[i], above.value) if above else self._upper[i]
            if lower > upper:
                self._drop(below, above)
                return None
            if lower != self._lower[i] or upper != self._upper[i]:
                changes.append((i, lower, upper))
        return tuple(changes), sorted_out.rows

    def _drop(self, below: _Bound | None, above: _Bound | None) -> None:
        """Note why a disjunct is empty; an error where its own bounds can only contradict each other by mistake."""
        if below and above and below.value > above.value:
            self._dropped = (below, above)
            # Bounds that stand in different arms only met when the formula was multiplied out: no mistake.
            if below.arm == above.arm:
                raise self._impossible(below, above)
        elif below and below.value > self._upper[below.input]:
            self._dropped = (below,)
        elif above:
            self._dropped = (above,)

    def nothing_left(self) -> PropertyError:
        """The error for a property none of whose disjuncts can hold."""
        return self._impossible(*self._dropped)

    def _impossible(self, *literals: _Bound | _Truth) -> PropertyError:
        """The error for literals that no point meets; one bound alone lies outside the shared box."""
        if not literals:
            return PropertyError(f"{self._places.source}: no disjunct is left, so no point is unsafe; correct it")
        first, last = literals[0], literals[-1]
        text = self._places.text(first.where)
        if isinstance(first, _Truth):
            return self._places.error(first.where, f"{text} never holds, so no point is unsafe; correct it")
        i = first.input
        against = f"{self._places.text(last.where)} on line {self._places.line(last.where)}"
        if last is first:
            against = f"the bounds {self._lower[i]!r} and {self._upper[i]!r} that hold everywhere"
        return self._places.error(
            first.where, f"the box of input X_{i} is empty: {text} contradicts {against}; correct it"
        )

    def boxes(self, changes: list[_Changes], declared: dict[int, int] | None) -> tuple[Box, ...]:
        """The boxes, each limited on every side."""
        _check_numbers(len(changes), len(self._lower), "boxes", "inputs", self._places.source)
        lower = np.tile(np.array(self._lower, dtype=np.float64), (len(changes), 1))
        upper = np.tile(np.array(self._upper, dtype=np.float64), (len(changes), 1))
        for box, changed in enumerate(changes):
            for i, below, above in changed:
                lower[box, i], upper[box, i] = below, above
        for limits, word in ((lower, "lower"), (upper, "upper")):
            unlimited = np.isinf(limits).any(axis=0)
            if unlimited.any():
                i = int(unlimited.argmax())
                message = f"input X_{i} has no {word} bound{' in some disjunct' * (len(changes) > 1)}; give it both"
                named = PropertyError(f"{self._places.source}: {message}")
                raise self._places.error(declared[i], message) if declared else named
        return tuple(Box(*ends) for ends in zip(torch.from_numpy(lower), torch.from_numpy(upper), strict=True))


@dataclass(slots=True, eq=False)
class _SortedOut:
    """A conjunction of literals: the tightest bound of every input on each side, the rows, and what never holds."""

    lower: dict[int, _Bound] = field(default_factory=dict)
    upper: dict[int, _Bound] = field(default_factory=dict)
    rows: list[_Row] = field(default_factory=list)
    never: _Truth | None = None


def _sorted_out(literals: Iterable[_Literal]) -> _SortedOut:
    made = _SortedOut()
    for literal in literals:
        if isinstance(literal, _Bound):
            side = made.upper if literal.upper else made.lower
            held = side.get(literal.input)
            if held is None or (literal.value < held.value if literal.upper else literal.value > held.value):
                side[literal.input] = literal
        elif isinstance(literal, _Row):
            made.rows.append(literal)
        elif not literal.holds:
            made.never = literal
    return made


def _clauses(clauses: list[tuple[int, list[_Row]]], outputs: int, source: str) -> tuple[Clause, ...]:
    always = _Row((), 0.0, False, 0)  # 0 <= 0: every point of the box is unsafe
    clauses = [(box, rows or [always]) for box, rows in clauses]
    _check_numbers(sum(len(rows) for _, rows in clauses), outputs, "rows", "outputs", source)
    numbers: dict[_Row, int] = {}
    used = [numbers.setdefault(row, len(numbers)) for _, rows in clauses for row in rows]
    distinct: NDArray[np.float64] = np.zeros((len(numbers), outputs))
    for row, number in numbers.items():
        for j, coefficient in row.coefficients:
            distinct[number, j] = coefficient
    lengths = [len(rows) for _, rows in clauses]
    coefficients = torch.split(torch.from_numpy(distinct[used]), lengths)
    offsets = torch.split(torch.from_numpy(np.array([row.offset for row in numbers])[used]), lengths)
    return tuple(
        Clause(box, matrix, vector, tuple(row.strict for row in rows))
        for (box, rows), matrix, vector in zip(clauses, coefficients, offsets, strict=True)
    )


def _check_numbers(count: int, size: int, many: str, each: str, source: str) -> None:
    if count * size > MAX_NUMBERS:
        raise PropertyError(
            f"{source} comes to {count:,} {many} of {size:,} {each} when its and/or are multiplied out, more than "
            f"{MAX_NUMBERS:,} numbers; split it into several properties"
        )


# ---------------------------------------------------------------------------------------------------------------------
# Reading version 2.0, through the package vnnlib

_GATES_2 = {"And": "and", "Or": "or"}
_INEQUALITIES_2 = {"LessEqual": "<=", "GreaterEqual": ">=", "LessThan": "<", "GreaterThan": ">"}
_OPERATORS_2 = {**_INEQUALITIES_2, "Equal": "=", "NotEqual": "!="}
_ARITHMETIC_2 = {"Plus": "+", "Minus": "-", "Negate": "-", "Multiply": "*"}
_SORTS_2 = ("real", "Real", "float16", "bfloat16", "float32", "float64")


@final
class _Nodes(_Places):
    """Comparisons of a VNN-LIB 2.0 tree; a place is the number of a comparison."""

    def __init__(self, source: str) -> None:
        self.source = source
        self.nodes: list[Any] = []

    def line(self, where: int) -> int:
        stack = [self.nodes[where]]
        while stack:
            node = stack.pop()
            if hasattr(node, "line"):
                return int(node.line)
            stack.extend(reversed(node.children()))
        return 1

    def text(self, where: int) -> str:
        text = str(self.nodes[where]).strip()
        return text if len(text) <= 100 else f"{text[:100]} ..."


def _read_version_2(text: str, tokens: _Tokens) -> Property:
    try:
        package: Any = importlib.import_module("vnnlib")
    except ImportError:
        message = f"{tokens.source} is VNN-LIB 2.0, which needs the package vnnlib; run pip install bough[vnnlib2]"
        raise PropertyError(message) from None
    if tokens.depth() > MAX_DEPTH_2:
        limit = f"{MAX_DEPTH_2:,} levels, the most that is read of VNN-LIB 2.0"
        raise PropertyError(f"{tokens.source} nests deeper than {limit}; flatten it, or write it as VNN-LIB 1.0")
    try:
        query = package.parse_query_string(text)
    except Exception as error:  # noqa: BLE001 - it also lets exceptions of the C++ library through, such as IndexError
        raise _refused_2(error, tokens.source) from None
    shapes = _shapes_2(query, tokens.source)
    places = _Nodes(tokens.source)
    assertions = [_formula_2(assertion.expr, shapes, places) for assertion in query.assertions]
    return _build(assertions, math.prod(shapes["X"]), math.prod(shapes["Y"]), places)


def _refused_2(error: Exception, source: str) -> PropertyError:
    """The package's own refusal, in bough's form."""
    try:
        first = json.loads(str(error))["errors"][0]
        line, symbol = first["line"], first["offendingSymbol"]
        return PropertyError(f"{source}, line {line}: {first['message']} at {symbol!r}: {first['hint']}")
    except (ValueError, KeyError, IndexError, TypeError):
        found = re.search(r"at line (\d+)", str(error))
        place = f"{source}, line {found[1]}" if found else source
        return PropertyError(f"{place}: the package vnnlib cannot read this as VNN-LIB 2.0: {error}")


def _shapes_2(query: Any, source: str) -> dict[str, list[int]]:
    """Shapes of the one input ("X") and the one output ("Y"); everything beyond these is refused by name."""
    if len(query.networks) != 1:
        names = ", ".join(network.name for network in query.networks)
        raise PropertyError(f"{source} declares {len(query.networks)} networks ({names}); only one is supported")
    network = query.networks[0]
    if network.hidden:
        name = network.hidden[0].name
        raise PropertyError(f"{source} declares the hidden node {name}; only inputs and outputs are supported")
    for noun, tensors in (("input", network.inputs), ("output", network.outputs)):
        if len(tensors) != 1:
            names = ", ".join(tensor.name for tensor in tensors)
            raise PropertyError(f"{source} declares {len(tensors)} {noun} tensors ({names}); only one is supported")
        # As written: the package knows `real`, but takes `Real`, which files also have, for an unknown type.
        name, sort = str(tensors[0]).split()[1:3]
        if sort not in _SORTS_2:
            raise PropertyError(f"{source}: {noun} {name} has elements of type {sort}; only real ones are supported")
    return {"X": list(network.inputs[0].shape), "Y": list(network.outputs[0].shape)}


def _formula_2(root: Any, shapes: dict[str, list[int]], places: _Nodes) -> _Formula:
    top = _Gate("and", [])
    stack: list[tuple[Any, _Gate]] = [(root, top)]
    while stack:
        node, gate = stack.pop()
        kind = type(node).__name__
        if kind in _GATES_2:
            inner = _Gate(_GATES_2[kind], [])
            gate.children.append(inner)
            stack += [(child, inner) for child in reversed(node.args)]
        elif kind in _OPERATORS_2:
            places.nodes.append(node)
            where = len(places.nodes) - 1
            gate.children.append(_comparison(_expression_2(node, shapes), _OPERATORS_2[kind], where, places))
        else:
            raise PropertyError(f"{places.source}: {kind} is not supported in a formula: {str(node)[:100]}")
    return top


def _expression_2(comparison: Any, shapes: dict[str, list[int]]) -> _Expression:
    expression = _Expression()
    root = expression.add(-1, "-")
    stack = [(comparison.rhs, root), (comparison.lhs, root)]
    while stack:
        node, parent = stack.pop()
        kind = type(node).__name__
        if kind in _ARITHMETIC_2:
            inner = expression.add(parent, _ARITHMETIC_2[kind])
            stack += [(child, inner) for child in reversed(node.children())]
        elif kind == "Var":
            letter = "X" if node.kind.name == "Input" else "Y"
            index = 0
            for position, size in zip(node.indices, shapes[letter], strict=True):
                index = index * size + position
            expression.add(parent, "", (letter, index))
        else:
            expression.add(parent, "", Fraction(float(node.lexeme)))
    return expression
