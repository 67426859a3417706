"""Ways to spoil bounds by trees of splits in a certificate, with evidence of the kinds that `damage.py` names."""

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np

from bough.verdict.certificate import Chunk, Lemma, TreeLemma
from soundness.damage import Damaged, Kind, Random, Subject, by_form, by_numbers, put, sealed, with_chunk
from soundness.second import splits_of

Splits = list[tuple[int, float]]
Changed = tuple[list[Chunk], list[tuple[int, int]]]


def _drawn(subject: Subject, random: Random) -> tuple[int, TreeLemma] | None:
    """One chunk of trees and its place, if there is one."""
    places = subject.of_kind(TreeLemma)
    if not places:
        return None
    at = int(random.choice(places))
    lemma = subject.chunks[at]
    assert isinstance(lemma, TreeLemma)
    return at, lemma


def _pieces(lemma: TreeLemma) -> list[tuple[int, int, Splits, Any]]:
    """Every pattern by itself: side, vector, splits, weights."""
    columns = zip(lemma.sides.tolist(), lemma.vector.tolist(), lemma.weights, strict=True)
    return [(side, vector, splits_of(lemma, k), weights) for k, (side, vector, weights) in enumerate(columns)]


def _made(lemma: TreeLemma, pieces: list[tuple[int, int, Splits, Any]]) -> TreeLemma:
    """A chunk of these patterns."""
    splits = [split for piece in pieces for split in piece[2]]
    return replace(
        lemma,
        sides=np.array([side for side, *_ in pieces], np.int64),
        vector=np.array([vector for _, vector, *_ in pieces], np.int64),
        splits=np.array([len(own) for _, _, own, _ in pieces], np.int64),
        literals=np.array([a for a, _ in splits], np.int64),
        signs=np.array([b for _, b in splits], np.float64),
        weights=np.array([weights for *_, weights in pieces]).reshape(len(pieces), lemma.weights.shape[1]),
    )


# Patterns that leave a gap


def _uncovered(subject: Subject, side: int, splits: Splits, lemma: TreeLemma, random: Random) -> bool:
    """Whether some combination of signs with these splits is in no pattern of the side any more."""
    patterns = [splits_of(lemma, int(k)) for k in np.flatnonzero(lemma.sides == side)]
    for _ in range(8):
        signs = random.integers(2, size=subject.problem.network.neurons)
        for literal, _multiplier in splits:
            signs[literal >> 1] = literal & 1
        if not any(all(signs[a >> 1] == a & 1 for a, _multiplier in pattern) for pattern in patterns):
            return True
    return False


def _gap(name: str, change: Callable[[Subject, TreeLemma, int, Random], TreeLemma | None]) -> Kind:
    """A change of one pattern, beside which its side has others."""

    def make(subject: Subject, random: Random, _: list[Subject]) -> Damaged | None:
        drawn = _drawn(subject, random)
        if drawn is None:
            return None
        at, lemma = drawn
        k = int(random.integers(len(lemma)))
        splits, side = splits_of(lemma, k), int(lemma.sides[k])
        changed = change(subject, lemma, k, random) if splits else None
        if changed is None or not _uncovered(subject, side, splits, changed, random):
            return None
        data = sealed(with_chunk(subject, at, changed), subject.verdict)
        return Damaged(data, "gap", subject.problem, words=f"pattern {k} of chunk {at}")

    return Kind(name, make)


def _left_out(_: Subject, lemma: TreeLemma, k: int, __: Random) -> TreeLemma:
    pieces = _pieces(lemma)
    return _made(lemma, pieces[:k] + pieces[k + 1 :])


def _onto_another(_: Subject, lemma: TreeLemma, k: int, random: Random) -> TreeLemma:
    """Another pattern of the side twice instead of this one."""
    pieces = _pieces(lemma)
    others = np.setdiff1d(np.flatnonzero(lemma.sides == lemma.sides[k]), [k])
    pieces[k] = pieces[int(random.choice(others))]
    return _made(lemma, pieces)


def _flipped(_: Subject, lemma: TreeLemma, k: int, random: Random) -> TreeLemma:
    pieces = _pieces(lemma)
    splits = pieces[k][2]
    j = int(random.integers(len(splits)))
    splits[j] = splits[j][0] ^ 1, splits[j][1]
    return _made(lemma, pieces)


def _another_relu(subject: Subject, lemma: TreeLemma, k: int, random: Random) -> TreeLemma:
    """A split of another ReLU, which may be of a later layer, or the one that is bounded."""
    pieces = _pieces(lemma)
    splits = pieces[k][2]
    j = int(random.integers(len(splits)))
    free = np.setdiff1d(np.arange(subject.problem.network.neurons), [a >> 1 for a, _ in splits])
    own = int(lemma.sides[k]) >> 1
    later = free[free >= own]
    chosen = random.choice(later if len(later) and random.random() < 0.5 else free)
    splits[j] = 2 * int(chosen) + (splits[j][0] & 1), splits[j][1]
    splits.sort()
    return _made(lemma, pieces)


def _one_half(subject: Subject, lemma: TreeLemma, k: int, random: Random) -> TreeLemma:
    """A pattern that was split once more, with one of the halves."""
    pieces = _pieces(lemma)
    free = np.setdiff1d(np.arange(subject.problem.network.neurons), [a >> 1 for a, _ in pieces[k][2]])
    pieces[k][2].append((2 * int(random.choice(free)) + int(random.integers(2)), 0.0))
    pieces[k][2].sort()
    return _made(lemma, pieces)


def _another_side(_: Subject, lemma: TreeLemma, k: int, random: Random) -> TreeLemma:
    """A pattern that says to be of another side: of the same ReLU, or of another."""
    sides = np.setdiff1d(lemma.sides, lemma.sides[k])
    new = int(random.choice(sides)) if len(sides) and random.random() < 0.5 else int(lemma.sides[k]) ^ 1
    return replace(lemma, sides=put(lemma.sides, k, new))


# Other numbers


def _chunk(change: Callable[[TreeLemma, Random], TreeLemma]) -> Callable[[Subject, Random], Changed | None]:
    """A change of one chunk, or of all: then every leaf counts."""

    def changed(subject: Subject, random: Random) -> Changed | None:
        places = subject.of_kind(TreeLemma)
        if not places:
            return None
        chunks = list(subject.chunks)
        for at in places if random.random() < 0.5 else [int(random.choice(places))]:
            lemma = subject.chunks[at]
            assert isinstance(lemma, TreeLemma)
            chunks[at] = change(lemma, random)
        return chunks, list(subject.leaves)

    return changed


def _other_multipliers(lemma: TreeLemma, random: Random) -> TreeLemma:
    """None, the other way round, or far too large."""
    return replace(lemma, signs=lemma.signs * float(random.choice([0.0, -1.0, -3.0, 10.0, 1e3])))


def _other_slopes(lemma: TreeLemma, random: Random) -> TreeLemma:
    slopes = random.choice(np.array([0, 128, 255], np.uint8), size=lemma.slopes.shape)
    return replace(lemma, slopes=slopes.astype(lemma.slopes.dtype))


def _other_vectors(lemma: TreeLemma, random: Random) -> TreeLemma:
    """Slopes of other patterns, or of other sides."""
    return replace(lemma, vector=random.permutation(lemma.vector))


def _other_direction(lemma: TreeLemma, _: Random) -> TreeLemma:
    """A change to the other side of every ReLU."""
    return replace(lemma, sides=lemma.sides ^ 1)


def _one_pattern(lemma: TreeLemma, random: Random) -> TreeLemma:
    """A change that leaves every side one pattern and forgets its splits: a cover, and another relaxation."""
    pieces = _pieces(lemma)
    order = random.permutation(len(pieces)).tolist()
    none: Splits = []
    chosen = {pieces[k][0]: (pieces[k][0], pieces[k][1], none, pieces[k][3]) for k in order}
    return _made(lemma, [chosen[side] for side in sorted(chosen)])


def _of_clauses(change: Callable[[TreeLemma, Random], TreeLemma]) -> Callable[[Subject, Random], Changed | None]:
    """A change of one chunk about a clause's unsafe points, or of all of these."""

    def changed(subject: Subject, random: Random) -> Changed | None:
        own = {at: c for at, c in enumerate(subject.chunks) if isinstance(c, TreeLemma) and c.head[1]}
        if not own:
            return None
        chosen = list(own) if random.random() < 0.5 else [int(random.choice(list(own)))]
        chunks = [change(own[at], random) if at in chosen else chunk for at, chunk in enumerate(subject.chunks)]
        return chunks, list(subject.leaves)

    return changed


def _other_weights(lemma: TreeLemma, random: Random) -> TreeLemma:
    return replace(lemma, weights=lemma.weights * float(random.choice([0.0, 100.0, 1e4])))


def _for_all_points(lemma: TreeLemma, _: Random) -> TreeLemma:
    """What holds at a clause's unsafe points, said to hold over the box."""
    return replace(lemma, head=put(lemma.head, 1, 0), weights=np.zeros((len(lemma), 0)))


def _other_order(subject: Subject, random: Random) -> Changed | None:
    """What a bound stands on comes after it: bounds in another order, leaves where they were."""
    if not subject.of_kind(TreeLemma):
        return None
    places = [at for at, chunk in enumerate(subject.chunks) if isinstance(chunk, Lemma | TreeLemma)]
    if len(places) < 2:
        return None
    chunks = list(subject.chunks)
    order = places[::-1] if random.random() < 0.5 else random.permutation(places).tolist()
    for at, other in zip(places, order, strict=True):
        chunks[at] = subject.chunks[other]
    return chunks, list(subject.leaves)


def _no_chunk(subject: Subject, random: Random) -> Changed | None:
    """Without one chunk of trees, or all of them."""
    places = subject.of_kind(TreeLemma)
    if not places:
        return None
    gone = set(places) if random.random() < 0.5 else {int(random.choice(places))}
    left = [c for c in range(len(subject.chunks)) if c not in gone]
    place = {old: new for new, old in enumerate(left)}
    return [subject.chunks[c] for c in left], [(place[c], k) for c, k in subject.leaves]


# What no certificate may say


def _impossible(subject: Subject, random: Random) -> bytes | None:
    """A number, or a length, that there cannot be."""
    drawn = _drawn(subject, random)
    if drawn is None:
        return None
    at, lemma = drawn
    problem, k = subject.problem, int(random.integers(len(lemma)))
    neurons = problem.network.neurons
    changes: list[dict[str, Any]] = [
        {"sides": put(lemma.sides, k, 2 * neurons + int(random.integers(1 << 20)))},
        {"sides": lemma.sides[:-1]},
        {"vector": put(lemma.vector, k, len(lemma.slopes) + int(random.integers(1000)))},
        {"splits": put(lemma.splits, k, int(lemma.splits[k]) + 1 + int(random.integers(1 << 20)))},
        {"head": put(lemma.head, 0, len(problem.property.boxes))},
        {"head": put(lemma.head, 1, len(problem.clauses) + 1)},
        {"head": lemma.head[:1]},
        {"weights": np.full((len(lemma), 1 + lemma.weights.shape[1]), 1.0)},
        {"slopes": lemma.slopes[:, :-1]},
        {"slots": put(lemma.slots, len(lemma.slots) - 1, neurons)},
        {"slots": lemma.slots[::-1]} if len(lemma.slots) > 1 else {"slots": lemma.slots[:-1]},
    ]
    if lemma.weights.size:
        changes.append({"weights": put(lemma.weights, (k, 0), float(random.choice([-1.0, -1e-9, np.nan, np.inf])))})
    if len(lemma.literals):
        j = int(random.integers(len(lemma.literals)))
        first = int(random.choice(np.flatnonzero(lemma.splits)))
        start = int(lemma.splits[:first].sum(dtype=np.int64))
        twice = np.insert(lemma.literals, start, lemma.literals[start] ^ 1)
        changes += [
            {"literals": put(lemma.literals, j, 2 * neurons + int(random.integers(1 << 20)))},
            {"literals": lemma.literals[:-1]},
            {"signs": put(lemma.signs, j, float(random.choice([np.nan, np.inf, -np.inf])))},
            {
                "literals": twice,
                "signs": np.insert(lemma.signs, start, 0.0),
                "splits": put(lemma.splits, first, int(lemma.splits[first]) + 1),
            },
        ]
    new = replace(lemma, **changes[int(random.integers(len(changes)))])
    return sealed(with_chunk(subject, at, new), subject.verdict)


TREE_KINDS: tuple[Kind, ...] = (
    _gap("trees: pattern left out", _left_out),
    _gap("trees: pattern twice, another gone", _onto_another),
    _gap("trees: flipped sign of a split", _flipped),
    _gap("trees: split of another ReLU", _another_relu),
    _gap("trees: one half of a pattern", _one_half),
    _gap("trees: pattern of another side", _another_side),
    by_numbers("trees: multipliers of splits", _chunk(_other_multipliers)),
    by_numbers("trees: slopes at random", _chunk(_other_slopes)),
    by_numbers("trees: slopes of others", _chunk(_other_vectors)),
    by_numbers("trees: weights of rows", _of_clauses(_other_weights)),
    by_numbers("trees: the other side of each ReLU", _chunk(_other_direction)),
    by_numbers("trees: splits forgotten", _chunk(_one_pattern)),
    by_numbers("trees: for all points", _of_clauses(_for_all_points)),
    by_numbers("trees: chunks in another order", _other_order),
    by_numbers("trees: chunks left out", _no_chunk),
    by_form("trees: impossible number or length", _impossible),
)
