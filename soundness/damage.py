"""Ways to spoil a certificate, each with the reason for which it is no proof any more; `corrupt.py` tries them.

Those about bounds by trees of splits are in `damage_trees.py`.

What is stored are multipliers, and any multipliers prove something: a change can leave a proof. So every change here
comes with evidence that does not come from the checker:

    bytes     the file was changed and its checksums were not
    hash      the question in the file is about another network or property than the one it is checked against
    form      the file says what no certificate may say
    gap       a sign pattern, or a point of the box, that no leaf of its clause holds, or no pattern of a bound
    unsafe    the problem has an unsafe point, so that nothing proves it
    point     the counterexample is none
    numbers   the second opinion (`second.py`) finds a leaf whose bound is not above 0

Of the last kind a change can turn out harmless: then nothing is expected of it, and it is counted as such.
"""

import hashlib
from collections.abc import Callable
from dataclasses import dataclass, field, fields, replace
from functools import cached_property
from typing import Any

import numpy as np
import torch

from bough.network import walk
from bough.network.ops import Conv, Linear, Scale
from bough.problem.problem import Problem
from bough.problem.property import Box, Property
from bough.search.leaves import take
from bough.verdict.certificate import (
    DIRECT,
    EMPTY,
    FINE,
    FRAME,
    MAGIC,
    VERDICTS,
    Chunk,
    End,
    Leaves,
    Lemma,
    Point,
    ProblemHashes,
    TreeLemma,
    framed,
)
from soundness.second import TOLERANCE, Opinion, entries

Random = np.random.Generator
TRIES = 200  # points looked at for one that is unsafe


@dataclass(frozen=True, eq=False)
class Subject:
    """A problem, and a certificate that proves its verdict: all chunks but the last."""

    name: str
    problem: Problem
    data: bytes
    chunks: tuple[Chunk, ...]
    verdict: str

    @cached_property
    def opinion(self) -> Opinion:
        """What a second opinion knows of the problem; the root's bounds are kept."""
        opinion = Opinion(self.problem)
        opinion.keep([chunk for chunk in self.chunks if isinstance(chunk, Lemma | TreeLemma)])
        return opinion

    @cached_property
    def leaves(self) -> tuple[tuple[int, int], ...]:
        """Chunk and number of every leaf."""
        return tuple(
            (c, k) for c, chunk in enumerate(self.chunks) if isinstance(chunk, Leaves) for k in range(len(chunk))
        )

    @cached_property
    def frames(self) -> tuple[bytes, ...]:
        """The chunks as they lie in the file, the last one, too."""
        contents, at = [], len(MAGIC)
        while at < len(self.data):
            size = FRAME.size + FRAME.unpack_from(self.data, at)[2]
            contents.append(self.data[at : at + size])
            at += size
        return tuple(contents)

    def of_kind(self, kind: type[Any]) -> list[int]:
        """Which chunks are of a kind."""
        return [c for c, chunk in enumerate(self.chunks) if isinstance(chunk, kind)]


@dataclass(frozen=True, eq=False)
class Damaged:
    """What is checked, and why it is no proof; `broken` is false where the second opinion still sees one."""

    data: bytes
    evidence: str
    problem: Problem
    broken: bool = True
    words: str = ""


@dataclass(frozen=True, eq=False)
class Kind:
    """A kind of damage: None where a certificate has nothing of the kind."""

    name: str
    make: Callable[[Subject, Random, list[Subject]], Damaged | None] = field(repr=False)


def sealed(chunks: list[Chunk] | tuple[Chunk, ...], verdict: str, *, count: int | None = None) -> bytes:
    """A certificate with sound checksums, whatever is in it."""
    data = MAGIC + b"".join(framed(k, chunk) for k, chunk in enumerate(chunks))
    leaves = sum(len(c) for c in chunks if isinstance(c, Leaves)) if count is None else count
    digest = np.frombuffer(hashlib.sha256(data).digest(), dtype=np.uint8)
    numbers = np.array([VERDICTS.index(verdict)]), np.array([leaves]), np.array([1.0])
    return data + framed(len(chunks), End(*numbers, digest))


def with_chunk(subject: Subject, at: int, chunk: Chunk) -> list[Chunk]:
    """The chunks with one of them another."""
    return [*subject.chunks[:at], chunk, *subject.chunks[at + 1 :]]


# What is in the file, without new checksums


def _file(name: str, change: Callable[[Subject, Random], bytes | None]) -> Kind:
    def make(subject: Subject, random: Random, _: list[Subject]) -> Damaged | None:
        data = change(subject, random)
        return None if data is None or data == subject.data else Damaged(data, "bytes", subject.problem)

    return Kind(name, make)


def _flipped_byte(subject: Subject, random: Random) -> bytes:
    data = bytearray(subject.data)
    data[int(random.integers(len(data)))] ^= int(random.integers(1, 256))
    return bytes(data)


def _truncated(subject: Subject, random: Random) -> bytes:
    return subject.data[: int(random.integers(1, len(subject.data)))]


def _torn_after_chunk(subject: Subject, random: Random) -> bytes:
    return MAGIC + b"".join(subject.frames[: int(random.integers(1, len(subject.frames)))])


def _other_chunks(subject: Subject, random: Random) -> bytes:
    frames = list(subject.frames)
    a, b = (int(random.integers(len(frames))) for _ in range(2))
    match int(random.integers(3)):
        case 0:
            frames[a], frames[b] = frames[b], frames[a]
        case 1:
            del frames[a]
        case _:
            frames.insert(a, frames[b])
    return MAGIC + b"".join(frames)


def _longer(subject: Subject, random: Random) -> bytes:
    return subject.data + random.bytes(int(random.integers(1, 40)))


def _spliced(subject: Subject, random: Random) -> bytes:
    data, size = bytearray(subject.data), int(random.integers(1, 64))
    a, b = (int(random.integers(len(data))) for _ in range(2))
    data[a : a + size] = data[b : b + size]
    return bytes(data)


# Another question


def _another_network(subject: Subject, random: Random, others: list[Subject]) -> Damaged | None:
    hashes = ProblemHashes.of(subject.problem.network, subject.problem.property)
    fit = [o for o in others if not np.array_equal(_asked(o).network, hashes.network)]
    return Damaged(subject.data, "hash", fit[int(random.integers(len(fit)))].problem) if fit else None


def _another_property(subject: Subject, random: Random, others: list[Subject]) -> Damaged | None:
    hashes = ProblemHashes.of(subject.problem.network, subject.problem.property)
    fit = [
        o
        for o in others
        if np.array_equal(_asked(o).network, hashes.network) and not np.array_equal(_asked(o).property, hashes.property)
    ]
    if fit:
        return Damaged(subject.data, "hash", fit[int(random.integers(len(fit)))].problem)
    clauses = list(subject.problem.property.clauses)
    k = int(random.integers(len(clauses)))
    clauses[k] = replace(clauses[k], offsets=clauses[k].offsets + 10.0 ** random.uniform(-12, 0))
    moved = Property(subject.problem.property.boxes, tuple(clauses))
    return Damaged(subject.data, "hash", replace(subject.problem, property=moved))


def _asked(subject: Subject) -> ProblemHashes:
    first = subject.chunks[0]
    assert isinstance(first, ProblemHashes)
    return first


def _resealed(subject: Subject, problem: Problem, words: str) -> Damaged:
    """The same proof for another problem, which is unsafe."""
    question = ProblemHashes.of(problem.network, problem.property)
    return Damaged(sealed([question, *subject.chunks[1:]], subject.verdict), "unsafe", problem, words=words)


def _points(box: Box, random: Random) -> torch.Tensor:
    """Points of a box: some inside, some corners."""
    share = torch.from_numpy(random.random((TRIES, len(box.lower))))
    share[::2] = share[::2].round()
    return box.lower + share * (box.upper - box.lower)


def _unsafe_offset(subject: Subject, random: Random, _: list[Subject]) -> Damaged | None:
    """Offsets moved until a point of the box is unsafe, by a little."""
    if subject.verdict != "verified":
        return None
    prop = subject.problem.property
    k = int(random.integers(len(prop.clauses)))
    clause = prop.clauses[k]
    y = walk.evaluate(subject.problem.network, _points(prop.boxes[clause.box], random)[:16])
    rows = y @ clause.coefficients.T
    nearest = rows[int((rows - clause.offsets).max(dim=1).values.argmin())]
    more = 10.0 ** random.uniform(-6, -1) * (1 + nearest.abs())
    moved = replace(clause, offsets=torch.maximum(clause.offsets, nearest + more))
    changed = Property(prop.boxes, (*prop.clauses[:k], moved, *prop.clauses[k + 1 :]))
    return _resealed(subject, replace(subject.problem, property=changed), f"clause {k}")


def _unsafe_box(subject: Subject, random: Random, _: list[Subject]) -> Damaged | None:
    """A box made wider until it holds an unsafe point."""
    if subject.verdict != "verified":
        return None
    prop = subject.problem.property
    k = int(random.integers(len(prop.clauses)))
    clause = prop.clauses[k]
    box = prop.boxes[clause.box]
    for factor in (1.5, 3.0, 10.0, 30.0, 100.0, 1e3):
        radius = (box.upper - box.lower) / 2
        radius = (radius + 0.01 * float(radius.max())) * factor
        points = _points(Box(box.centre - radius, box.centre + radius), random)
        margins = clause.margins(walk.evaluate(subject.problem.network, points))
        unsafe = (margins < -1e-6).nonzero().flatten()
        if len(unsafe):
            x = points[int(unsafe[int(random.integers(len(unsafe)))])]
            wider = Box(torch.minimum(box.lower, x), torch.maximum(box.upper, x))
            boxes = (*prop.boxes[: clause.box], wider, *prop.boxes[clause.box + 1 :])
            changed = replace(subject.problem, property=Property(boxes, prop.clauses))
            return _resealed(subject, changed, f"box {clause.box}, wider by up to {factor:g}")
    return None


def _unsafe_network(subject: Subject, random: Random, _: list[Subject]) -> Damaged | None:
    """Weights or biases of one layer changed until a point of the box is unsafe."""
    if subject.verdict != "verified":
        return None
    network, prop = subject.problem.network, subject.problem.property
    places = [i for i, node in enumerate(network.nodes) if isinstance(node.op, Linear | Conv | Scale)]
    points = {k: _points(box, random)[:64] for k, box in enumerate(prop.boxes)}
    for scale in (0.03, 0.3, 3.0, 30.0):
        at = places[int(random.integers(len(places)))]
        op = network.nodes[at].op
        names = [f.name for f in fields(op) if isinstance(getattr(op, f.name), torch.Tensor) and f.name != "index"]
        name = names[int(random.integers(len(names)))]
        old = getattr(op, name)
        if not old.is_floating_point():
            continue
        size = scale * max(float(old.abs().mean()), 1e-3)
        new = old + size * torch.from_numpy(random.standard_normal(tuple(old.shape)))
        nodes = list(network.nodes)
        nodes[at] = replace(nodes[at], op=replace(op, **{name: new}))
        changed = type(network)(tuple(nodes))
        values = {k: walk.evaluate(changed, x) for k, x in points.items()}
        if any(bool((clause.margins(values[clause.box]) < -1e-6).any()) for clause in prop.clauses):
            return _resealed(subject, replace(subject.problem, network=changed), f"{name} of node {at}")
    return None


# Another tree, with new checksums


def _changed_leaf(
    leaves: Leaves, k: int, splits: list[tuple[int, float]], halvings: list[tuple[int, int, int]]
) -> Leaves:
    """One leaf with other splits and halvings, each in order."""
    s, h = int(leaves.splits[:k].sum(dtype=np.int64)), int(leaves.halvings[:k].sum(dtype=np.int64))
    n, m = int(leaves.splits[k]), int(leaves.halvings[k])

    def spliced(old: Any, first: int, count: int, new: list[Any]) -> Any:
        return np.concatenate([old[:first], np.array(new, dtype=old.dtype), old[first + count :]])

    counts, more = leaves.splits.copy(), leaves.halvings.copy()
    counts[k], more[k] = len(splits), len(halvings)
    return replace(
        leaves,
        splits=counts,
        literals=spliced(leaves.literals, s, n, [a for a, _ in splits]),
        signs=spliced(leaves.signs, s, n, [b for _, b in splits]),
        halvings=more,
        inputs=spliced(leaves.inputs, h, m, [i for i, _, _ in halvings]),
        times=spliced(leaves.times, h, m, [t for _, t, _ in halvings]),
        halves=spliced(leaves.halves, h, m, [x for _, _, x in halvings]),
    )


def gap(subject: Subject, chunks: list[Chunk], leaf: tuple[int, int], random: Random) -> bool:
    """Whether some sign pattern and point of a leaf, as it was, is in no leaf of its clause any more."""
    old = subject.chunks[leaf[0]]
    assert isinstance(old, Leaves)
    clause, (splits, halvings) = int(old.clause[leaf[1]]), entries(old, leaf[1])
    paths = [
        entries(chunk, k)
        for chunk in chunks
        if isinstance(chunk, Leaves)
        for k in range(len(chunk))
        if int(chunk.clause[k]) == clause
    ]
    for _ in range(8):
        side = random.integers(2, size=subject.problem.network.neurons)
        place = random.random(subject.problem.network.inputs)  # of every input, from 0 to 1 of its side
        for literal, _multiplier in splits:
            side[literal >> 1] = literal & 1
        for i, times, halves in halvings:
            place[i] = (halves + random.uniform(0.1, 0.9)) / 2.0**times
        if not any(
            all(side[a >> 1] == a & 1 for a, _multiplier in p) and all(x <= place[i] * 2.0**t <= x + 1 for i, t, x in q)
            for p, q in paths
        ):
            return True
    return False


def _tree(name: str, change: Callable[[Subject, tuple[int, int], Random], list[Chunk] | None]) -> Kind:
    """A change of one leaf after which its part should be in none."""

    def make(subject: Subject, random: Random, _: list[Subject]) -> Damaged | None:
        if not subject.leaves or subject.verdict != "verified":
            return None
        leaf = subject.leaves[int(random.integers(len(subject.leaves)))]
        chunks = change(subject, leaf, random)
        if chunks is None or not gap(subject, chunks, leaf, random):
            return None
        return Damaged(sealed(chunks, "verified"), "gap", subject.problem, words=f"leaf {leaf}")

    return Kind(name, make)


def _mine(subject: Subject, leaf: tuple[int, int]) -> Leaves:
    leaves = subject.chunks[leaf[0]]
    assert isinstance(leaves, Leaves)
    return leaves


def _flipped_split(subject: Subject, leaf: tuple[int, int], random: Random) -> list[Chunk] | None:
    leaves = _mine(subject, leaf)
    splits, halvings = entries(leaves, leaf[1])
    if splits:
        k = int(random.integers(len(splits)))
        splits[k] = splits[k][0] ^ 1, splits[k][1]
    elif halvings:
        k = int(random.integers(len(halvings)))
        i, times, halves = halvings[k]
        halvings[k] = i, times, halves ^ (1 << int(random.integers(times)))
    else:
        return None
    return with_chunk(subject, leaf[0], _changed_leaf(leaves, leaf[1], splits, halvings))


def _dropped_leaf(subject: Subject, leaf: tuple[int, int], _: Random) -> list[Chunk] | None:
    leaves = _mine(subject, leaf)
    return with_chunk(subject, leaf[0], take(leaves, np.delete(np.arange(len(leaves)), leaf[1])))


def _dropped_chunk(subject: Subject, leaf: tuple[int, int], _: Random) -> list[Chunk] | None:
    return [*subject.chunks[: leaf[0]], *subject.chunks[leaf[0] + 1 :]]


def _moved_leaf(subject: Subject, leaf: tuple[int, int], random: Random) -> list[Chunk] | None:
    """Another leaf twice instead of this one."""
    leaves = _mine(subject, leaf)
    if len(leaves) < 2:
        return None
    other = int(random.choice(np.delete(np.arange(len(leaves)), leaf[1])))
    clauses, kind, vector, weights = (a.copy() for a in (leaves.clause, leaves.kind, leaves.vector, leaves.weights))
    for array in (clauses, kind, vector, weights):
        array[leaf[1]] = array[other]
    copied = replace(leaves, clause=clauses, kind=kind, vector=vector, weights=weights)
    return with_chunk(subject, leaf[0], _changed_leaf(copied, leaf[1], *entries(leaves, other)))


def _another_relu(subject: Subject, leaf: tuple[int, int], random: Random) -> list[Chunk] | None:
    """A split by another ReLU, or a halving of another input."""
    leaves = _mine(subject, leaf)
    splits, halvings = entries(leaves, leaf[1])
    if splits:
        free = np.setdiff1d(np.arange(subject.problem.network.neurons), [a >> 1 for a, _ in splits])
        k, new = int(random.integers(len(splits))), int(random.choice(free))
        splits[k] = 2 * new + (splits[k][0] & 1), splits[k][1]
        splits.sort()
    elif halvings:
        left = np.setdiff1d(np.arange(subject.problem.network.inputs), [i for i, *_ in halvings])
        if not len(left):
            return None
        k = int(random.integers(len(halvings)))
        halvings[k] = int(random.choice(left)), *halvings[k][1:]
        halvings.sort()
    else:
        return None
    return with_chunk(subject, leaf[0], _changed_leaf(leaves, leaf[1], splits, halvings))


def _another_clause(subject: Subject, leaf: tuple[int, int], random: Random) -> list[Chunk] | None:
    leaves, count = _mine(subject, leaf), len(subject.problem.clauses)
    if count < 2:
        return None
    clause = leaves.clause.copy()
    clause[leaf[1]] = (int(clause[leaf[1]]) + 1 + int(random.integers(count - 1))) % count
    return with_chunk(subject, leaf[0], replace(leaves, clause=clause))


def _deeper(subject: Subject, leaf: tuple[int, int], random: Random) -> list[Chunk] | None:
    """A leaf that was split once more, with one of the halves."""
    leaves = _mine(subject, leaf)
    splits, halvings = entries(leaves, leaf[1])
    if halvings and not splits:
        k = int(random.integers(len(halvings)))
        i, times, halves = halvings[k]
        halvings[k] = i, times + 1, 2 * halves + int(random.integers(2))
    else:
        free = np.setdiff1d(np.arange(subject.problem.network.neurons), [a >> 1 for a, _ in splits])
        splits = sorted([*splits, (2 * int(random.choice(free)) + int(random.integers(2)), 0.0)])
    return with_chunk(subject, leaf[0], _changed_leaf(leaves, leaf[1], splits, halvings))


# Other numbers, with new checksums


def by_numbers(
    name: str, change: Callable[[Subject, Random], tuple[list[Chunk], list[tuple[int, int]]] | None]
) -> Kind:
    """A change of numbers in some leaves, or in a lemma: then all leaves count."""

    def make(subject: Subject, random: Random, _: list[Subject]) -> Damaged | None:
        if subject.verdict != "verified":
            return None
        changes = change(subject, random)
        if changes is None:
            return None
        chunks, changed = changes
        leaves: dict[int, list[int]] = {}
        for c, k in changed:
            leaves.setdefault(c, []).append(k)
        least = min(subject.opinion.bounds(chunks, leaves, above=TOLERANCE).values())
        broken = not least > TOLERANCE
        return Damaged(sealed(chunks, "verified"), "numbers", subject.problem, broken, f"least bound {least:.3g}")

    return Kind(name, make)


def _of_leaf(
    change: Callable[[Leaves, int, Random], Leaves | None],
) -> Callable[[Subject, Random], tuple[list[Chunk], list[tuple[int, int]]] | None]:
    """A change of one leaf."""

    def changed(subject: Subject, random: Random) -> tuple[list[Chunk], list[tuple[int, int]]] | None:
        leaf = subject.leaves[int(random.integers(len(subject.leaves)))]
        new = change(_mine(subject, leaf), leaf[1], random)
        return None if new is None else (with_chunk(subject, leaf[0], new), [leaf])

    return changed


def _other_multipliers(leaves: Leaves, k: int, random: Random) -> Leaves | None:
    """Those of the splits' signs: none, the other way round, or far too large."""
    splits, halvings = entries(leaves, k)
    if not any(b for _, b in splits):
        return None
    factor = float(random.choice([0.0, -1.0, -3.0, 10.0, 1e3, 1e6]))
    return _changed_leaf(leaves, k, [(a, b * factor) for a, b in splits], halvings)


def _one_multiplier(leaves: Leaves, k: int, random: Random) -> Leaves | None:
    splits, halvings = entries(leaves, k)
    if not splits:
        return None
    j = int(random.integers(len(splits)))
    size = max((abs(b) for _, b in splits), default=0.0) or 1.0
    splits[j] = splits[j][0], size * float(random.choice([-10.0, -1.0, 10.0, 100.0, 1e4]))
    return _changed_leaf(leaves, k, splits, halvings)


def _no_weights(leaves: Leaves, k: int, _: Random) -> Leaves | None:
    """Nothing is asked of the clause's rows: 0 is no positive bound."""
    weights = leaves.weights.copy()
    weights[k] = 0.0
    splits, halvings = entries(leaves, k)
    return _changed_leaf(replace(leaves, weights=weights), k, [(a, 0.0) for a, _ in splits], halvings)


def _other_row(leaves: Leaves, k: int, _: Random) -> Leaves | None:
    """The whole weight on one row of the clause that had less."""
    if leaves.weights.shape[1] < 2:
        return None
    weights = leaves.weights.copy()
    row = int(leaves.weights[k].argmin())
    weights[k] = 0.0
    weights[k, row] = 1.0
    return replace(leaves, weights=weights)


def _other_slopes(leaves: Leaves, k: int, random: Random) -> Leaves | None:
    """A vector of the leaf's own: slopes far outside of 0 to 1, or direct multipliers at random."""
    if not len(leaves.slots) or leaves.fine.shape[1] != len(leaves.slots):
        return None
    kind, vector = leaves.kind.copy(), leaves.vector.copy()
    size = 10.0 ** random.uniform(0, 4)
    own = size * random.standard_normal((1, len(leaves.slots)))
    kind[k], vector[k] = int(random.choice([FINE, DIRECT])), len(leaves.fine)
    return replace(leaves, kind=kind, vector=vector, fine=np.concatenate([leaves.fine, own]))


def _said_empty(leaves: Leaves, k: int, _: Random) -> Leaves | None:
    """Said to hold no point at all."""
    kind, vector = leaves.kind.copy(), leaves.vector.copy()
    kind[k], vector[k] = EMPTY, 0
    return replace(leaves, kind=kind, vector=vector)


def _forgotten_split(leaves: Leaves, k: int, random: Random) -> Leaves | None:
    """A leaf that says to prove more: without some of its splits, or halvings."""
    splits, halvings = entries(leaves, k)
    if not splits and not halvings:
        return None
    if splits:
        keep = random.random(len(splits)) < random.choice([0.0, 0.3, 0.7])
        splits = [s for s, kept in zip(splits, keep, strict=True) if kept]
    else:
        keep = random.random(len(halvings)) < random.choice([0.0, 0.3, 0.7])
        halvings = [h for h, kept in zip(halvings, keep, strict=True) if kept]
    return _changed_leaf(leaves, k, splits, halvings)


def _other_root(subject: Subject, random: Random) -> tuple[list[Chunk], list[tuple[int, int]]] | None:
    """Slopes that prove the root's bounds, at random."""
    lemmas = subject.of_kind(Lemma)
    if not lemmas:
        return None
    chunks = list(subject.chunks)
    for at in lemmas if random.random() < 0.5 else [int(random.choice(lemmas))]:
        lemma = subject.chunks[at]
        assert isinstance(lemma, Lemma)
        slopes = random.choice(np.array([0, 128, 255], np.uint8), size=lemma.slopes.shape)
        chunks[at] = replace(
            lemma, slopes=slopes.astype(lemma.slopes.dtype), weights=lemma.weights * random.choice([0.0, 1e3])
        )
    return chunks, list(subject.leaves)


def _no_root(subject: Subject, random: Random) -> tuple[list[Chunk], list[tuple[int, int]]] | None:
    """Without what proves the root's bounds, or some of it."""
    lemmas = subject.of_kind(Lemma)
    if not lemmas:
        return None
    gone = set(lemmas) if random.random() < 0.5 else {int(random.choice(lemmas))}
    left = [c for c in range(len(subject.chunks)) if c not in gone]
    place = {old: new for new, old in enumerate(left)}
    return [subject.chunks[c] for c in left], [(place[c], k) for c, k in subject.leaves]


# What no certificate may say


def by_form(name: str, change: Callable[[Subject, Random], bytes | None]) -> Kind:
    """A change after which the file says what it may not."""

    def make(subject: Subject, random: Random, _: list[Subject]) -> Damaged | None:
        data = change(subject, random)
        return None if data is None else Damaged(data, "form", subject.problem)

    return Kind(name, make)


def _impossible(subject: Subject, random: Random) -> bytes | None:
    """A number in a leaf that there cannot be."""
    if not subject.leaves:
        return None
    at, k = subject.leaves[int(random.integers(len(subject.leaves)))]
    leaves, problem = _mine(subject, (at, k)), subject.problem
    changes: list[dict[str, Any]] = [
        {"weights": put(leaves.weights, k, float(random.choice([-1.0, -1e-9, np.nan, np.inf])))},
        {"kind": put(leaves.kind, k, int(random.integers(5, 256)))},
        {"clause": put(leaves.clause, k, len(problem.clauses) + int(random.integers(1000)))},
        {"vector": put(leaves.vector, k, 1_000_000)},
        {"splits": put(leaves.splits, k, int(leaves.splits[k]) + 1 + int(random.integers(1 << 20)))},
        {"halvings": put(leaves.halvings, k, int(leaves.halvings[k]) + 1)},
    ]
    if len(leaves.literals):
        j = int(random.integers(len(leaves.literals)))
        changes += [
            {"literals": put(leaves.literals, j, 2 * problem.network.neurons + int(random.integers(1 << 20)))},
            {"signs": put(leaves.signs, j, float(random.choice([np.nan, np.inf, -np.inf])))},
        ]
    if len(leaves.inputs):
        j = int(random.integers(len(leaves.inputs)))
        changes += [
            {"inputs": put(leaves.inputs, j, problem.network.inputs + int(random.integers(99)))},
            {"times": put(leaves.times, j, int(random.choice([0, 65, 255])))},
        ]
    new = replace(leaves, **changes[int(random.integers(len(changes)))])
    return sealed(with_chunk(subject, at, new), subject.verdict)


def put(array: Any, k: int | tuple[int, ...], value: float) -> Any:
    """The array with one number changed."""
    new = array.copy()
    new[k] = value
    return new


def _other_count(subject: Subject, random: Random) -> bytes | None:
    """Another number of leaves than there are."""
    return sealed(subject.chunks, subject.verdict, count=len(subject.leaves) + 1 + int(random.integers(100)))


def _other_verdict(subject: Subject, random: Random) -> bytes | None:
    """`verified` becomes a counterexample without a point, a counterexample a proof without a tree; or undecided."""
    other = "falsified" if subject.verdict == "verified" else "verified"
    word = str(random.choice([other, other, "timeout", "unknown"]))
    return sealed(
        [c for c in subject.chunks if not isinstance(c, Leaves)] if other == "verified" else subject.chunks, word
    )


def _two_questions(subject: Subject, random: Random) -> bytes | None:
    at = int(random.integers(1, len(subject.chunks) + 1))
    return sealed([*subject.chunks[:at], subject.chunks[0], *subject.chunks[at:]], subject.verdict)


def _other_point(subject: Subject, random: Random, _: list[Subject]) -> Damaged | None:
    """A counterexample that lies outside, or is safe, or no point at all."""
    if subject.verdict != "falsified":
        return None
    at = subject.of_kind(Point)[-1]
    point = subject.chunks[at]
    assert isinstance(point, Point)
    prop, number = subject.problem.property, int(point.box[0])
    box, x = prop.boxes[number], point.x.copy()
    match int(random.integers(5)):
        case 0:
            i = int(random.integers(len(x)))
            x[i] = float(box.upper[i] + (box.upper - box.lower).max() + 1)
        case 1:
            x[int(random.integers(len(x)))] = float(random.choice([np.nan, np.inf]))
        case 2:
            x = x[:-1]
        case 3:
            number = len(prop.boxes) + int(random.integers(9))
        case _:
            clauses = [c for c in prop.clauses if c.box == number]
            for candidate in _points(box, random).numpy():
                x = candidate.astype(subject.problem.reference.dtype).astype(np.float64)
                y = np.asarray(subject.problem.reference.run(x), dtype=np.float64).reshape(-1)
                if not any(c.holds(y) for c in clauses):
                    break
            else:
                return None
    chunks = with_chunk(subject, at, Point(x, np.array([number])))
    return Damaged(sealed(chunks, "falsified"), "point", subject.problem)


KINDS: tuple[Kind, ...] = (
    _file("flipped byte", _flipped_byte),
    _file("truncated file", _truncated),
    _file("cut after a chunk", _torn_after_chunk),
    _file("chunks dropped, swapped or doubled", _other_chunks),
    _file("bytes after the end", _longer),
    _file("bytes copied elsewhere", _spliced),
    Kind("another network", _another_network),
    Kind("another property", _another_property),
    Kind("offset moved, resealed", _unsafe_offset),
    Kind("wider box, resealed", _unsafe_box),
    Kind("changed weights, resealed", _unsafe_network),
    _tree("flipped sign of a split", _flipped_split),
    _tree("dropped leaf", _dropped_leaf),
    _tree("dropped chunk of leaves", _dropped_chunk),
    _tree("leaf moved onto another", _moved_leaf),
    _tree("split by another ReLU or input", _another_relu),
    _tree("leaf of another clause", _another_clause),
    _tree("one half of a leaf", _deeper),
    by_numbers("all multipliers of splits", _of_leaf(_other_multipliers)),
    by_numbers("one multiplier of a split", _of_leaf(_one_multiplier)),
    by_numbers("no weights", _of_leaf(_no_weights)),
    by_numbers("weight on another row", _of_leaf(_other_row)),
    by_numbers("slopes or multipliers of a leaf", _of_leaf(_other_slopes)),
    by_numbers("leaf said to be empty", _of_leaf(_said_empty)),
    by_numbers("splits forgotten", _of_leaf(_forgotten_split)),
    by_numbers("root slopes at random", _other_root),
    by_numbers("root bounds left out", _no_root),
    by_form("impossible number", _impossible),
    by_form("wrong count of leaves", _other_count),
    by_form("another verdict", _other_verdict),
    by_form("a second question", _two_questions),
    Kind("another counterexample", _other_point),
)
