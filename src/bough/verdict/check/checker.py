"""A certificate and the problem it is about enter; `valid`, `invalid` or `incomplete` leaves, with the reason.

Everything is derived from the network and the property as they are read here; of the certificate only splits, slopes,
multipliers and weights are used, and these cannot make a bound wrong. The hashes inside only give a better sentence.
"""

import math
from dataclasses import dataclass, field, replace
from enum import Enum
from fractions import Fraction
from pathlib import Path
from typing import BinaryIO

import numpy as np
import torch

from bough.budget import Clock
from bough.errors import CertificateError, UnreadableCertificate
from bough.problem.problem import Problem
from bough.verdict.certificate import VERDICTS, End, Leaves, Lemma, Point, ProblemHashes, Torn, TreeLemma, read
from bough.verdict.check.claims import Claims
from bough.verdict.check.layers import Array, finite
from bough.verdict.check.tree import Gap, Paths, find_gap
from bough.verdict.counterexample import replay, representable

MOST_ENTRIES = 1 << 30  # the leaves of a clause have at most so many splits and halvings: their numbers have 32 bits
MOST_EXACT = 2000  # so many ReLUs, inputs and outputs may a network checked in rationals have: more take too long


class Outcome(Enum):
    """What a check ends with."""

    VALID = "valid"
    INVALID = "invalid"
    INCOMPLETE = "incomplete"

    @property
    def exit_status(self) -> int:
        """The process's exit status."""
        return {"valid": 0, "invalid": 1}.get(self.value, 3)


@dataclass(frozen=True)
class Report:
    """The outcome, why, and figures: leaves proved, and what the search and this check took."""

    outcome: Outcome
    reason: str
    verdict: str | None = None  # what the certificate claims
    leaves: int = 0
    seconds: float = 0.0
    search_seconds: float | None = None

    def __str__(self) -> str:
        return f"{self.outcome.value}: {self.reason}"


@dataclass
class _Seen:
    """What a check has read so far; of the leaves, their splits."""

    leaves: int = 0
    parts: list[tuple[int, Leaves]] = field(default_factory=list)
    point: Point | None = None
    verdict: str | None = None
    search_seconds: float | None = None
    clock: Clock = field(default_factory=Clock.start)


def check(problem: Problem, path: Path, *, exact: bool = False) -> Report:
    """Check a certificate, with `exact` in rational arithmetic; raises `CertificateError` if it cannot be read."""
    size = problem.network.neurons + problem.network.inputs + problem.network.outputs
    if exact and size > MOST_EXACT:
        raise CertificateError(f"--exact takes too long for {size} numbers; up to {MOST_EXACT} are checked exactly")
    if exact and not finite(problem.network):
        raise CertificateError("the network has a weight beyond float64, of which --exact can make no rational")
    seen = _Seen()
    try:
        with path.open("rb") as file, np.errstate(all="ignore"):  # what is no number proves nothing
            outcome, reason = _judged(problem, file, seen, exact=exact)
    except Torn:
        outcome = Outcome.INCOMPLETE
        reason = f"the file ends before its last chunk; {seen.leaves} leaves are proved"
    except UnreadableCertificate as error:
        raise CertificateError(f"{path}: {error}; write it again with `bough verify --certificate`") from error
    except CertificateError as wrong:
        outcome = Outcome.INVALID
        reason = str(wrong)
    except OSError as error:
        raise CertificateError(f"cannot read {path}: {error.strerror or error}; check the path") from error
    return Report(outcome, reason, seen.verdict, seen.leaves, seen.clock.seconds(), seen.search_seconds)


def _judged(problem: Problem, file: BinaryIO, seen: _Seen, *, exact: bool) -> tuple[Outcome, str]:
    claims = Claims(problem.network, problem.property, exact=exact)
    for chunk in read(file):
        match chunk:
            case ProblemHashes():
                _check_hashes(problem, chunk)
            case Lemma() | TreeLemma():
                claims.learn(chunk)
            case Leaves():
                _prove(claims, chunk, seen)
            case Point():
                seen.point = chunk
            case End():
                _ended(chunk, seen)
    if seen.verdict == "falsified":
        return Outcome.VALID, _replayed(problem, seen.point)
    if seen.verdict != "verified":
        return Outcome.INCOMPLETE, f"the search ended with {seen.verdict}; {seen.leaves} leaves are proved"
    if problem.property.is_empty:
        return Outcome.VALID, "verified: the set of inputs is empty"
    _covered(claims, seen)
    how = "rational arithmetic" if exact else "float64, rounded outward"
    return Outcome.VALID, f"verified: {seen.leaves} leaves cover every clause, each proved in {how}"


def _check_hashes(problem: Problem, hashes: ProblemHashes) -> None:
    expected = ProblemHashes.of(problem.network, problem.property)
    if not np.array_equal(hashes.network, expected.network):
        raise CertificateError("it was written for another network")
    if not np.array_equal(hashes.property, expected.property):
        raise CertificateError("it was written for another property")
    if any(box.ball is not None for box in problem.property.boxes):
        raise CertificateError("certificates are about boxes, and the property has a ball")


def _ended(end: End, seen: _Seen) -> None:
    if len(end.verdict) != 1 or len(end.leaves) != 1 or len(end.seconds) != 1 or end.verdict[0] >= len(VERDICTS):
        raise CertificateError("its last chunk names no verdict")
    if int(end.leaves[0]) != seen.leaves:
        raise CertificateError(f"it has {seen.leaves} leaves and says that it has {int(end.leaves[0])}")
    seen.verdict = VERDICTS[int(end.verdict[0])]
    seen.search_seconds = float(end.seconds[0])


def _prove(claims: Claims, leaves: Leaves, seen: _Seen) -> None:
    """Derive the bound of every leaf, and keep the splits for the end."""
    bounds = claims.bounds(leaves)
    unproved = np.flatnonzero(~np.asarray(bounds > 0, dtype=bool))
    if len(unproved):
        k = int(unproved[0])
        raise CertificateError(
            f"leaf {seen.leaves + k} (clause {int(leaves.clause[k])}, {int(leaves.splits[k])} splits): "
            f"{_in_words(bounds[k])}"
        )
    none = np.zeros((0, 0))
    seen.parts.append((seen.leaves, replace(leaves, signs=none, weights=none, coarse=none, fine=none)))
    seen.leaves += len(leaves)


def _in_words(bound: Fraction | float) -> str:
    """Why a bound does not prove a leaf."""
    try:
        value = float(bound)
    except OverflowError:
        return "its bound is below 0, beyond float64"
    return f"its bound is {value:.6g}, which is not above 0" if math.isfinite(value) else "nothing bounds it"


def _covered(claims: Claims, seen: _Seen) -> None:
    """Raise unless the leaves of every clause cover its whole box."""
    neurons = claims.network.neurons
    for clause in range(len(claims.clauses)):
        columns: list[list[Array]] = [[np.zeros(0, np.int32)] for _ in range(4)]
        numbers = [np.zeros(0, np.int64)]
        count = entries = 0
        for first, leaves in seen.parts:
            paths, rows = _paths(leaves, clause, neurons, (count, entries))
            for column, more in zip(columns, paths, strict=True):
                column.append(more.astype(np.int32))  # a million leaves have tens of millions of splits
            numbers.append(first + rows)
            count += len(rows)
            entries += len(paths[0])
        gap = find_gap(Paths(count, *(np.concatenate(column) for column in columns)), neurons + claims.network.inputs)
        if gap is not None:
            beside = np.concatenate(numbers)[gap.leaf] if gap.leaf >= 0 else None
            raise CertificateError(_gap_in_words(gap, clause, neurons, beside))


def _paths(leaves: Leaves, clause: int, neurons: int, before: tuple[int, int]) -> tuple[tuple[Array, ...], Array]:
    """The splits of a chunk's leaves of one clause, as (leaf, variable, side, after), and the numbers of these leaves.

    An input halved t times is t entries. `before` counts leaves and entries that went before.
    """
    rows = np.flatnonzero(leaves.clause == clause)
    number_of = np.full(len(leaves), -1)
    number_of[rows] = before[0] + np.arange(len(rows))
    of_split = number_of[np.repeat(np.arange(len(leaves)), leaves.splits)]
    entries = np.flatnonzero(of_split >= 0)
    of_halving = number_of[np.repeat(np.arange(len(leaves)), leaves.halvings)]
    halvings = np.flatnonzero(of_halving >= 0)
    times = leaves.times[halvings].astype(np.int64)
    total = int(times.sum())
    if before[1] + len(entries) + total > MOST_ENTRIES:
        raise CertificateError(f"the leaves of clause {clause} have more than {MOST_ENTRIES} splits")
    halving = np.repeat(np.arange(len(halvings)), times)
    level = np.arange(total) - np.repeat(np.cumsum(times) - times, times)
    shift = (times[halving] - 1 - level).astype(np.uint64)
    bit = ((leaves.halves[halvings][halving] >> shift) & np.uint64(1)).astype(np.int64)
    literals = leaves.literals[entries].astype(np.int64)
    after = np.where(level > 0, before[1] + len(entries) + np.arange(total) - 1, -1)
    return (
        np.concatenate([of_split[entries], of_halving[halvings][halving]]),
        np.concatenate([literals >> 1, neurons + leaves.inputs[halvings].astype(np.int64)[halving]]),
        np.concatenate([literals & 1, bit]),
        np.concatenate([np.full(len(entries), -1), after]),
    ), rows


def _gap_in_words(gap: Gap, clause: int, neurons: int, beside: int | None) -> str:
    if beside is None:
        return f"clause {clause} has no leaf at all"
    words = [
        f"ReLU {v} {'passing' if side else 'blocked'}"
        if v < neurons
        else f"{'upper' if side else 'lower'} half of input {v - neurons}"
        for v, side in gap.path
    ]
    place = ", ".join(words[-8:]) or "the whole box"
    return f"the leaves of clause {clause} leave a gap beside leaf {beside}: {place}"


def _replayed(problem: Problem, point: Point | None) -> str:
    """How a counterexample was confirmed; raises unless it is one."""
    if point is None or len(point.box) != 1 or len(point.x) != problem.network.inputs:
        raise CertificateError("it says falsified, and holds no point of the network's input")
    box = int(point.box[0])
    if box >= len(problem.property.boxes) or not np.isfinite(point.x).all():
        raise CertificateError("its counterexample lies in no box of the property")
    if not problem.property.boxes[box].admits(torch.from_numpy(point.x)):
        raise CertificateError(f"its counterexample lies on or beyond a strict side of box {box}, which is excluded")
    if not np.array_equal(representable(point.x, problem.property.boxes[box], problem.reference.dtype), point.x):
        raise CertificateError(f"its counterexample is no point of box {box} that the network can be given")
    replayed = replay(problem, point.x, box)
    if replayed is None:
        raise CertificateError("its counterexample, replayed, is not unsafe")
    return f"falsified: {problem.reference.name} gives an unsafe output at the point, by clause {replayed.clause}"
