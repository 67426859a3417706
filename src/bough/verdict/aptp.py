"""A certificate's tree in the form of other tools: APTP, the activation-pattern tree proofs of NeuralSAT's authors.

An APTP file is like VNN-LIB: inputs `X_i` in a box, one unsafe row of the outputs `Y_i`, the ReLUs `N_k` declared as
`declare-pwl`, numbered from 1 layer by layer, and the leaves as one disjunction of conjunctions of `(>= N_k 0)` and
`(< N_k 0)`. It holds no multipliers: its checker solves a program for every leaf. So there is a file for every clause,
and what the form cannot say is refused: halved inputs, clauses with several rows, and layers without one order.
"""

from collections.abc import Iterator
from pathlib import Path

import numpy as np

from bough.errors import BadInput
from bough.problem.problem import Problem
from bough.problem.property import Clause
from bough.verdict.certificate import VERDICTS, End, Leaves, read

Leaf = tuple[int, ...]  # its literals: twice a ReLU's number, plus one where the ReLU passes


def as_aptp(problem: Problem, certificate: Path) -> tuple[str, ...]:
    """The text of a file for every clause, from a certificate that was found valid."""
    if any(len(node.inputs) > 1 for node in problem.network.nodes):
        raise BadInput(
            "--aptp numbers ReLUs layer by layer, and this network is no chain of layers (it branches, or pools maxima)"
        )
    if not problem.network.neurons:
        raise BadInput("--aptp writes a tree over ReLUs, and this network has none")
    if any(problem.property.boxes[clause.box].without_value is not None for clause in problem.property.clauses):
        raise BadInput("--aptp writes closed boxes, and this property has an empty one, which needs no tree")
    trees: list[list[Leaf]] = [[] for _ in problem.property.clauses]
    with certificate.open("rb") as file:
        for chunk in read(file):
            if isinstance(chunk, Leaves):
                for clause, leaf in _leaves(chunk):
                    trees[clause].append(leaf)
            elif isinstance(chunk, End) and VERDICTS[int(chunk.verdict[0])] != "verified":
                raise BadInput("only a proof has a tree, and this certificate says otherwise; see --counterexample")
    return tuple(_text(problem, k, tree) for k, tree in enumerate(trees))


def aptp_paths(path: Path, clauses: int) -> tuple[Path, ...]:
    """Where the files of all clauses go: numbered before the ending, where there are several."""
    if clauses == 1:
        return (path,)
    return tuple(path.with_name(f"{path.stem}_{k}{path.suffix}") for k in range(clauses))


def _leaves(chunk: Leaves) -> Iterator[tuple[int, Leaf]]:
    if chunk.halvings.any():
        raise BadInput("APTP knows no halved inputs; write the certificate with `--bounds dual` or `--bounds lp`")
    ends = np.cumsum(chunk.splits, dtype=np.int64)
    for clause, first, last in zip(chunk.clause.tolist(), (ends - chunk.splits).tolist(), ends.tolist(), strict=True):
        yield clause, tuple(chunk.literals[first:last].tolist())


def _text(problem: Problem, number: int, tree: list[Leaf]) -> str:
    clause = problem.property.clauses[number]
    network = problem.network
    box = problem.property.boxes[clause.box]
    # A tree without a split is no tree to other readers: the first ReLU's two sides are the same.
    leaves = [(0,), (1,)] if () in tree else tree
    lines = [f"; activation-pattern tree of clause {number}, written by bough"]
    lines += [f"(declare-const X_{i} Real)" for i in range(network.inputs)]
    lines += [f"(declare-const Y_{i} Real)" for i in range(network.outputs)]
    lines += [f"(declare-pwl N_{k + 1} ReLU)" for k in range(network.neurons)]
    for i, (low, high) in enumerate(zip(box.lower.tolist(), box.upper.tolist(), strict=True)):
        lines += [f"(assert (>= X_{i} {low!r}))", f"(assert (<= X_{i} {high!r}))"]
    lines += [f"(assert {_row(clause, number)})", "(assert (or"]
    lines += [f"  (and {' '.join(map(_literal, leaf))})" for leaf in leaves]
    return "\n".join([*lines, "))", ""])


def _literal(literal: int) -> str:
    return f"({'>=' if literal & 1 else '<'} N_{(literal >> 1) + 1} 0)"


def _row(clause: Clause, number: int) -> str:
    """The one row of a clause, if it compares an output with another or with a number."""
    if len(clause.offsets) != 1:
        raise BadInput(f"clause {number} has {len(clause.offsets)} rows, and APTP takes one")
    offset = float(clause.offsets[0])
    match [(i, a) for i, a in enumerate(clause.coefficients[0].tolist()) if a]:
        case [(i, 1.0)]:
            return f"(<= Y_{i} {offset!r})"
        case [(i, -1.0)]:
            return f"(>= Y_{i} {-offset!r})"
        case [(i, a), (j, b)] if a == -b and offset == 0:
            return f"(<= Y_{i} Y_{j})" if a > 0 else f"(<= Y_{j} Y_{i})"
    raise BadInput(f"clause {number} is no comparison of an output with another or with a number, as APTP wants it")
