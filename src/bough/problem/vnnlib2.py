"""A VNN-LIB 2.0 text enters, a `Property` leaves, by way of the tree that the optional package `vnnlib` makes of it."""

import importlib
import itertools
import json
import math
import re
from collections.abc import Callable, Iterator
from fractions import Fraction
from typing import Any

from bough.errors import PropertyError
from bough.problem.formula import MAX_NUMBERS, ONE, Formula, Linear, Source, Step, build, comparison, fold
from bough.problem.property import Property

MAX_DEPTH = 1_000  # formulas nest at most so deep: the package's parser recurses, and would end the process

_GATES = {"And": "and", "Or": "or"}
_INEQUALITIES = {"LessEqual": "<=", "GreaterEqual": ">=", "LessThan": "<", "GreaterThan": ">"}
_OPERATORS = {**_INEQUALITIES, "Equal": "=", "NotEqual": "!="}
_ARITHMETIC = {"Plus": "+", "Minus": "-", "Negate": "-", "Multiply": "*"}
_SORTS = ("real", "Real", "float16", "bfloat16", "float32", "float64")


def parse(text: str, tokens: list[str], name: str) -> Property:
    """The property that a text describes; `tokens` are its own, without comments, and `name` is that of its file."""
    try:
        package: Any = importlib.import_module("vnnlib")
    except ImportError:
        message = f"{name} is VNN-LIB 2.0, which needs the package vnnlib; run pip install bough[vnnlib2]"
        raise PropertyError(message) from None
    if max(itertools.accumulate((token == "(") - (token == ")") for token in tokens)) > MAX_DEPTH:
        limit = f"{MAX_DEPTH:,} levels, the most that is read of VNN-LIB 2.0"
        raise PropertyError(f"{name} nests deeper than {limit}; flatten it, or write it as VNN-LIB 1.0")
    try:
        query = package.parse_query_string(text)
    except Exception as error:  # noqa: BLE001 - it also lets exceptions of the C++ library through, such as IndexError
        raise _refused(error, name) from None
    shapes = _shapes(query, name)
    source = Source(name, _line, _shown)
    formula = "and", [_formula(assertion.expr, shapes, source) for assertion in query.assertions]
    return build(formula, [None] * math.prod(shapes["X"]), math.prod(shapes["Y"]), source)


def _refused(error: Exception, name: str) -> PropertyError:
    """The package's own refusal, in bough's form."""
    try:
        first = json.loads(str(error))["errors"][0]
        line, symbol = first["line"], first["offendingSymbol"]
        return PropertyError(f"{name}, line {line}: {first['message']} at {symbol!r}: {first['hint']}")
    except (ValueError, KeyError, IndexError, TypeError):
        line = re.search(r"at line (\d+)", str(error))
        place = f"{name}, line {line[1]}" if line else name
        return PropertyError(f"{place}: the package vnnlib cannot read this as VNN-LIB 2.0: {error}")


def _shapes(query: Any, name: str) -> dict[str, list[int]]:
    """Shapes of the one input ("X") and the one output ("Y"); everything beyond these is refused by name."""
    if len(query.networks) != 1:
        names = ", ".join(network.name for network in query.networks)
        raise PropertyError(f"{name} declares {len(query.networks)} networks ({names}); only one is supported")
    network = query.networks[0]
    if network.hidden:
        hidden = network.hidden[0].name
        raise PropertyError(f"{name} declares the hidden node {hidden}; only inputs and outputs are supported")
    shapes = {}
    for letter, noun, tensors in (("X", "input", network.inputs), ("Y", "output", network.outputs)):
        if len(tensors) != 1:
            names = ", ".join(tensor.name for tensor in tensors)
            raise PropertyError(f"{name} declares {len(tensors)} {noun} tensors ({names}); only one is supported")
        # As written: the package knows `real`, but takes `Real`, which files also have, for an unknown type.
        tensor, sort = str(tensors[0]).split()[1:3]
        if sort not in _SORTS:
            raise PropertyError(f"{name}: {noun} {tensor} has elements of type {sort}; only real ones are supported")
        shapes[letter] = shape = list(tensors[0].shape)
        if not 0 < math.prod(shape) <= MAX_NUMBERS or min(shape, default=1) < 1:
            raise PropertyError(f"{name}: an {noun} of shape {shape} has no elements, or more than {MAX_NUMBERS:,}")
    return shapes


def _formula(root: Any, shapes: dict[str, list[int]], source: Source) -> Formula:
    def number_or_variable(node: Any) -> Linear:
        if type(node).__name__ != "Var":
            return {ONE: Fraction(float(node.lexeme))}
        letter = "X" if node.kind.name == "Input" else "Y"
        index = 0
        for position, size in zip(node.indices, shapes[letter], strict=True):
            index = index * size + position
        return {(letter, index): 1}

    def compared(node: Any) -> Formula:
        kind = type(node).__name__
        if kind not in _OPERATORS:
            raise PropertyError(f"{source.name}: {kind} is not supported in a formula: {str(node)[:100]}")
        sides = (_steps(side, _ARITHMETIC, number_or_variable) for side in (node.lhs, node.rhs))
        return comparison(["=", *itertools.chain(*sides), None], _OPERATORS[kind], node, source)

    formula: Formula = fold(_steps(root, _GATES, compared), lambda gate, parts: (gate, parts))
    return formula


def _steps(root: Any, names: dict[str, str], leaf: Callable[[Any], Any]) -> Iterator[Step]:
    """A tree of the package in prefix order; a node whose kind has no name is a leaf."""
    stack = [root]
    while stack:
        node = stack.pop()
        kind = type(node).__name__
        if node is None:
            yield None
        elif kind in names:
            yield names[kind]
            stack += [None, *reversed(node.children())]
        else:
            yield leaf(node)


def _line(node: Any) -> int:
    leaves = _steps(node, {**_OPERATORS, **_ARITHMETIC}, lambda leaf: leaf)
    return next((int(leaf.line) for leaf in leaves if hasattr(leaf, "line")), 1)


def _shown(node: Any) -> str:
    text = str(node).strip()
    return text if len(text) <= 100 else f"{text[:100]} ..."
