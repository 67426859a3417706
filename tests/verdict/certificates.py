"""Helpers of the tests of certificates: one made by a search, taken apart into chunks, and put together again."""

from collections.abc import Sequence
from functools import lru_cache
from pathlib import Path
from tempfile import TemporaryDirectory

import numpy as np
from tests.support import Case, Plain, eager_trees, hard_case

from bough.api import solve
from bough.bounds.trees import Trees
from bough.options import Options
from bough.problem.problem import Problem
from bough.problem.property import Clause, Property
from bough.verdict.certificate import (
    Chunk,
    End,
    ProblemHashes,
    Writer,
    read,
)
from bough.verdict.check import Report, check
from bough.verdict.result import Result, Verdict


def certified(problem: Problem, path: Path, bounds: str, **options: object) -> Result:
    """Search with a certificate, without an attack."""
    return solve(problem, Options(bounds=bounds, certificate=path, attack=False, **options))  # type: ignore[arg-type]


EAGER = eager_trees(Trees(6, 32), Trees(10, 128), later=8)  # though so small a search does not need them


@lru_cache(maxsize=32)
def made(kind: str, seed: int, bounds: str, *, away: float = 1e-3, relu_bounds: str = "auto") -> tuple[Case, bytes]:
    """A safe case, and its certificate."""
    case = hard_case(kind, seed, safe=True, away=away)
    with TemporaryDirectory() as folder:
        path = Path(folder) / "proof"
        result = certified(
            case.problem, path, bounds, timeout=20, intermediate=EAGER if relu_bounds == "trees" else relu_bounds
        )
        assert result.verdict is Verdict.VERIFIED
        return case, path.read_bytes()


def chunks_of(data: bytes, path: Path) -> list[Chunk]:
    """All chunks but the last."""
    path.write_bytes(data)
    with path.open("rb") as file:
        return [chunk for chunk in read(file) if not isinstance(chunk, End)]


def write(path: Path, chunks: Sequence[Chunk], verdict: str = "verified") -> None:
    """A certificate with sound checksums, whatever is in it."""
    first, *rest = chunks
    assert isinstance(first, ProblemHashes)
    writer = Writer(path, first)
    for chunk in rest:
        writer.write(chunk)
    writer.end(verdict, 1.0)


def question(problem: Problem) -> ProblemHashes:
    """The first chunk of a certificate about this problem."""
    return ProblemHashes.of(problem.network, problem.property)


def judged(problem: Problem, path: Path, chunks: Sequence[Chunk], *, exact: bool = False) -> Report:
    """Write, and check."""
    write(path, chunks)
    return check(problem, path, exact=exact)


def same(one: Chunk, other: Chunk) -> bool:
    """Whether two chunks hold the same numbers."""
    pairs = zip(vars(one).values(), vars(other).values(), strict=True)
    return type(one) is type(other) and all(np.array_equal(a, b, equal_nan=True) for a, b in pairs)


def unsafe_twin(case_problem: Problem) -> Problem:
    """The same network and boxes with offsets that make the clauses unsafe, by as little as they were safe."""
    clauses = tuple(
        Clause(c.box, c.coefficients, c.offsets + 2e-3 * (1 + k), c.strict)
        for k, c in enumerate(case_problem.property.clauses)
    )
    return Problem(case_problem.network, Property(case_problem.property.boxes, clauses), Plain(case_problem.network))
