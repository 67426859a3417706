"""A VNN-LIB file enters, a `Property` leaves: the unsafe set as input boxes and linear output rows, and back to text.

Version 1.0 is read here, in one pass over the tokens and without recursion; version 2.0 by `vnnlib2`. A written
number means the nearest float64.
"""

import itertools
import math
import re
from fractions import Fraction
from functools import partial
from pathlib import Path
from typing import final

from bough.errors import PropertyError
from bough.files.reading import PROPERTY_LIMIT, read_text
from bough.problem import vnnlib2
from bough.problem.formula import INEQUALITIES, ONE, Formula, Literal, Source, Step, build, comparison
from bough.problem.property import Box, Clause, Property

_TOKEN = re.compile(r"[()]|[^\s();]+|;[^\r\n]*", re.ASCII)
_NUMBER = re.compile(r"[+-]?(?:[0-9]+\.?[0-9]*|\.[0-9]+)(?:[eE][+-]?[0-9]+)?")
_VARIABLE = re.compile(r"[XY]_(0|[1-9][0-9]{0,8})")
MAX_TOKENS = 30_000_000  # a text has at most so many tokens: they take some two gigabytes while it is read
_LOOK_AHEAD = 8  # so many empty tokens stand at the end: reading ahead needs no question whether there is more

_NEGATED = {"<=": ">", ">=": "<", "<": ">=", ">": "<=", "=": "!="}
_COMMANDS = ("declare-const", "declare-fun", "assert")
_CONNECTIVES = ("and", "or", "not")
_FLIPPED = {"and": "or", "or": "and"}
_SINGLE = {"assert": "an assertion", "not": "not"}  # what takes one formula


def read_property(path: str | Path) -> Property:
    """The property in a `.vnnlib` or `.vnnlib.gz` file, version 1.0 or 2.0."""
    return parse_property(read_text(path, PROPERTY_LIMIT, PropertyError, "a VNN-LIB file"), str(path))


def parse_property(text: str, source: str = "property") -> Property:
    """The property that a VNN-LIB text describes; `source` is its name in error messages."""
    if "\0" in text:
        raise PropertyError(f"{source} is not text; give a VNN-LIB file")
    if len(text) > MAX_TOKENS and sum(1 for _ in itertools.islice(_TOKEN.finditer(text), MAX_TOKENS + 1)) > MAX_TOKENS:
        raise PropertyError(f"{source} has more than {MAX_TOKENS:,} words and parentheses; split it into several")
    tokens: list[str] = _TOKEN.findall(text)
    if ";" in text:
        tokens = [token for token in tokens if token[0] != ";"]
    if not tokens:
        raise PropertyError(f"{source} is empty; give a VNN-LIB file with declarations and assertions")
    head = tokens[2] if tokens[:2] == ["(", "vnnlib-version"] and len(tokens) > 2 else tokens[0]
    places = Source(source, partial(_line, text), partial(_shown, tokens))
    if head == tokens[0] and not head.startswith("<"):
        return _Reader(tokens, places).read()
    if head.strip("<>").split(".")[0] == "2":
        return vnnlib2.parse(text, tokens, source)
    supported = "bough reads <2.0>, and 1.0 without this line"
    raise places.error(0, f"VNN-LIB version {head[:40]!r} is not supported; {supported}")


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
    if box.ball is not None:
        raise PropertyError("VNN-LIB has boxes only; a property with a ball cannot be written")
    below, above = ([("", "=")[not strict] for strict in side.tolist()] for side in box.strict)
    sides = enumerate(zip(below, box.lower.tolist(), above, box.upper.tolist(), strict=True))
    return [
        text
        for i, (over, lower, under, upper) in sides
        for text in (f"(>{over} X_{i} {lower!r})", f"(<{under} X_{i} {upper!r})")
    ]


def _written_clause(clause: Clause) -> str:
    rows = zip(clause.coefficients.tolist(), clause.offsets.tolist(), clause.strict, strict=True)
    return f"(and {' '.join(_written_row(*row) for row in rows)})"


def _written_row(coefficients: list[float], offset: float, strict: bool) -> str:
    # A row of zeros still names an output: that is what makes it a row when it is read back.
    terms = [(j, c) for j, c in enumerate(coefficients) if c != 0] or [(0, 0.0)]
    written = [f"Y_{j}" if c == 1 else f"(* {c!r} Y_{j})" for j, c in terms]
    total = written[0] if len(written) == 1 else f"(+ {' '.join(written)})"
    return f"({'<' if strict else '<='} {total} {offset!r})"


def _line(text: str, number: int) -> int:
    """Line of a token by its number, from 1."""
    starts = (match.start() for match in _TOKEN.finditer(text) if match[0][0] != ";")
    return text.count("\n", 0, next(itertools.islice(starts, number, None))) + 1


def _shown(tokens: list[str], start: int) -> str:
    """The expression that begins at a token, on one line and not too long."""
    shown, depth = "", 0
    for token in itertools.islice(tokens, start, None):
        depth += (token == "(") - (token == ")")
        shown += token if token == ")" or not shown or shown[-1] == "(" else f" {token}"
        if depth <= 0:
            break
        if len(shown) > 100:
            return f"{shown[:100]} ..."
    return shown


@final
class _Reader:
    """One pass over the tokens of a VNN-LIB 1.0 text."""

    def __init__(self, tokens: list[str], source: Source) -> None:
        self._tokens = tokens + [""] * _LOOK_AHEAD
        self._source = source
        self._declared: dict[str, int] = {}  # name of the variable -> where it is declared

    def read(self) -> Property:
        """The property, from the first token to the last."""
        tokens = self._tokens
        at = 0
        asserted: list[Formula] = []
        # What is open: its name, whether an odd number of `not` is around it, where its formulas go, and from where on.
        opened = [("", False, asserted, 0)]
        while tokens[at] or len(opened) > 1:
            name, negated, formulas, start = opened[-1]
            operator = tokens[at + 1] if tokens[at] == "(" else ""
            if tokens[at] == ")" and name and len(formulas) > start:
                opened.pop()
                at += 1
            elif name in _SINGLE and len(formulas) > start:
                raise self._error(at, f"expected ), found {tokens[at][:40]!r}: {_SINGLE[name]} takes one formula")
            elif name and operator in _NEGATED:
                formula, at = self._comparison(at, _NEGATED[operator] if negated else operator)
                formulas.append(formula)
            elif operator in (_CONNECTIVES if name else ("assert",)):
                if operator in _FLIPPED:
                    gate: tuple[str, list[Formula]] = (_FLIPPED[operator] if negated else operator, [])
                    formulas.append(gate)
                    formulas = gate[1]
                opened.append((operator, negated != (operator == "not"), formulas, len(formulas)))
                at += 2
            elif operator in _COMMANDS and not name:
                at = self._declaration(at)
            else:
                raise self._misplaced(at, name)
        inputs, outputs = self._numbered("X", "input"), self._numbered("Y", "output")
        if not asserted:
            raise PropertyError(f"{self._source.name} asserts nothing; give the inputs' bounds and the unsafe outputs")
        return build(("and", asserted), inputs, len(outputs), self._source)

    def _error(self, at: int, message: str) -> PropertyError:
        """An error at this token; where the text has ended, at the outermost parenthesis that is not closed."""
        if self._tokens[at]:
            return self._source.error(at, message)
        opened = []
        for index, token in enumerate(self._tokens):
            if token == "(":
                opened.append(index)
            elif token == ")":
                opened.pop()
        return self._source.error(opened[0], "the parenthesis opened here is never closed; add )")

    def _misplaced(self, at: int, within: str) -> PropertyError:
        token, operator = self._tokens[at : at + 2]
        if token == ")":
            empty = f"({within} ...) needs a formula, found none"
            return self._error(at, empty if within else "this ) closes nothing; remove it")
        if token != "(":
            return self._error(at, f"expected {'a formula' if within else '( and a command'}, found {token[:40]!r}")
        if not within:
            return self._error(at + 1, f"unknown command {operator[:40]!r}; supported: {', '.join(_COMMANDS)}")
        if operator in _COMMANDS:
            return self._error(at, f"{operator} inside a formula: a ) is missing before it")
        supported = ", ".join([*_CONNECTIVES, *_NEGATED])
        return self._error(at + 1, f"unknown operator {operator[:40]!r} in a formula; supported: {supported}")

    def _declaration(self, at: int) -> int:
        """Read a declaration; returns the place after it."""
        name, *rest = self._tokens[at + 2 : at + 7]
        sort = at + 3
        if self._tokens[at + 1] == "declare-fun":
            if rest[:2] != ["(", ")"]:
                raise self._error(sort, "a function with arguments cannot be declared; expected ()")
            sort = sort + 2
            rest = rest[2:]
        if rest[0] != "Real":
            raise self._error(sort, f"expected the sort Real of {name[:40]}, found {rest[0][:40]!r}")
        if _VARIABLE.fullmatch(name) is None:
            naming = "inputs are X_0, X_1, ... and outputs Y_0, Y_1, ..."
            raise self._error(at + 2, f"unknown variable name {name[:40]!r}; {naming}")
        if rest[1] != ")":
            raise self._error(sort + 1, f"expected ), found {rest[1][:40]!r}: a declaration ends after its sort")
        if self._declared.setdefault(name, at) != at:
            raise self._error(at, f"{name} is declared twice; remove one")
        return sort + 2

    def _numbered(self, kind: str, noun: str) -> list[int]:
        """Places of the declarations of a kind of variables, which have to be numbered without gaps."""
        declared = sorted((int(name[2:]), at) for name, at in self._declared.items() if name[0] == kind)
        if not declared:
            raise PropertyError(f"{self._source.name} declares no {noun}; add (declare-const {kind}_0 Real)")
        for expected, (index, at) in enumerate(declared):
            if index != expected:
                message = f"{kind}_{index} is declared but {kind}_{expected} is not; number the {noun}s without gaps"
                raise self._error(at, message)
        return [at for _, at in declared]

    def _comparison(self, at: int, operator: str) -> tuple[Formula, int]:
        """The comparison that begins at a token, and the place after it."""
        left, right, end = self._tokens[at + 2 : at + 5]
        declared = left in self._declared
        if end != ")" or declared == (right in self._declared) or left in "()" or right in "()":
            sides, after = self._sides(at + 2)
            return comparison(sides, operator, at, self._source), after
        name, number = (left, self._number(right, at + 3)) if declared else (right, self._number(left, at + 2))
        kind = name[0]
        index = int(name[2:])
        if operator not in INEQUALITIES:
            sides = ["=", {(kind, index): 1}, {ONE: Fraction(number)}, None]
            return comparison(sides, operator, at, self._source), at + 5
        # Variable against number, nearly all of a file, needs no arithmetic.
        sign, strict = INEQUALITIES[operator]
        sign = sign if declared else -sign
        return Literal(kind, ((index, sign),), sign * number, strict, at), at + 5

    def _sides(self, at: int) -> tuple[list[Step], int]:
        """The two sides of a comparison, of which the first begins at a token, and the place after it."""
        steps: list[Step] = ["="]
        depth = 1
        while depth:
            token = self._tokens[at]
            if token == "(":
                at += 1
                token = self._tokens[at]
                if token not in ("+", "-", "*"):
                    raise self._error(at, f"unknown operator {token[:40]!r} in an expression; supported: +, -, *")
                steps.append(token)
                depth += 1
            elif token == ")":
                steps.append(None)
                depth -= 1
            elif token in self._declared:
                steps.append({(token[0], int(token[2:])): 1})
            else:
                steps.append({ONE: Fraction(self._number(token, at))})
            at += 1
        return steps, at

    def _number(self, token: str, at: int) -> float:
        if _NUMBER.fullmatch(token) is None:
            if _VARIABLE.fullmatch(token):
                raise self._error(at, f"{token} is not declared; add (declare-const {token} Real) before this")
            raise self._error(at, f"expected a number or a declared variable X_i or Y_j, found {token[:40]!r}")
        value = float(token)
        if math.isinf(value):
            raise self._error(at, f"the number {token[:40]} is outside float64; give a finite one")
        return value
