"""The writer of certificates: a witness of the search that puts down every closed domain with what proves it.

A leaf is stored as coarsely as its proof survives: with slopes that many leaves share and multipliers of 8 significant
bits, then with slopes of its own, then finer, then with the multipliers of an LP. A form is tried by the bounder that
found the proof, on its device, with several times what rounding could change, or else by the checker's own arithmetic
(`verdict.check`), so what is written is what the checker will find. Of the former, some leaves of every chunk are held
against the checker's arithmetic, and should one of them fail, that alone is believed from then on. A domain for which
no form proves anything stays open, and the search goes on splitting it.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any, final

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from bough.bounds.base import AbstractSession, Evidence
from bough.bounds.trees import TreeLeaves
from bough.bounds.witness import AbstractWitness
from bough.budget import Clock, Deadline
from bough.domain.batch import Bounds, DomainBatch
from bough.errors import BadInput
from bough.problem.problem import Problem
from bough.search.leaves import (
    Attempt,
    Tried,
    as_numpy,
    by_duals,
    by_multipliers,
    in_parts,
    joined,
    lemma_of,
    take,
    unproved,
)
from bough.search.patterns import Patterns, patterns_of
from bough.verdict.certificate import LOCAL, MOST_BYTES, SLOPES, Leaves, Lemma, Point, ProblemHashes, Writer
from bough.verdict.check.claims import ONCE, STEP_BY_STEP, TWICE, Claims
from bough.verdict.check.proof import Passing, Where
from bough.verdict.result import Result
from bough.verdict.shape import KINDS, Entries

Array = NDArray[Any]
Judge = Callable[[Array, Evidence], Tensor | None]  # of what is told of some rows: how far above 0 it proves them
LEAST_GAIN = 1e-3  # of a ReLU's width, for which its slopes are worth their bytes
OWN_GAIN = 1.05  # times what slopes in common gain a side, for which each pattern has its own
SAMPLE = 16  # leaves of a chunk that are derived again before it is written


@final
class Certifier(AbstractWitness):
    """Writes the certificate of one search to a file."""

    def __init__(self, problem: Problem, path: Path) -> None:
        if any(box.ball is not None for box in problem.property.boxes):
            raise BadInput("certificates are about boxes; a ball cannot be certified yet, leave out --certificate")
        self._problem = problem
        self._claims = Claims(problem.network, problem.property, writing=True)
        self._writer = Writer(path, ProblemHashes.of(problem.network, problem.property))
        self._box = 0  # at hand
        self._seconds = 0.0
        self._reopened = 0
        self._relu_bytes = self._writer.bytes
        self._forms: dict[str, int] = {}
        self._doubted = False  # whether a bounder's word was found wanting

    # Bounds of ReLUs

    def begin(self, box: int) -> None:
        """Chunks say which box they are about."""
        self._box = box

    @np.errstate(all="ignore")  # what is no number proves nothing
    def ascended(self, neurons: Tensor, slots: Tensor, slopes: Tensor, proved: Tensor) -> None:
        """Write what helps."""
        clock = Clock.start()
        none = np.zeros((len(slopes), 0))
        lemma = lemma_of((self._box, 0), as_numpy(neurons), as_numpy(slots), as_numpy(slopes), none)
        self._learn(lemma, as_numpy(proved))
        self._seconds += clock.seconds()

    @np.errstate(all="ignore")  # what is no number proves nothing
    def by_trees(
        self, sides: Tensor, slots: Tensor, known: Tensor, trees: TreeLeaves, clauses: Tensor | None = None
    ) -> None:
        """Write the patterns that help, clause by clause."""
        clock = Clock.start()
        of = np.full(len(sides), -1) if clauses is None else as_numpy(clauses)
        for clause in np.unique(of).tolist():
            own = torch.from_numpy(of == clause).to(trees.owner.device)
            some = trees[own[trees.owner]]
            some = replace(some, owner=(own.cumsum(0) - 1)[some.owner])
            head = (self._box, 0) if clause < 0 else (self._claims.clauses[clause].box, clause + 1)
            region = self._known(head)
            bounds = region.lower[0], region.upper[0]
            patterns = patterns_of(head, as_numpy(sides[own]), slots, known[own], some, bounds)
            for part in patterns.parts():
                self._learn_trees(part)
        self._seconds += clock.seconds()

    @np.errstate(all="ignore")  # what is no number proves nothing
    def root(self, box: int) -> Bounds:
        """What is known of it by now."""
        clock = Clock.start()
        region = self._claims.root(box)
        self._seconds += clock.seconds()
        return Bounds(torch.from_numpy(region.lower), torch.from_numpy(region.upper))

    @np.errstate(all="ignore")  # what is no number proves nothing
    def at_unsafe(
        self, clauses: Tensor, neurons: Tensor, slots: Tensor, duals: tuple[Tensor, Tensor], proved: Tensor
    ) -> None:
        """Write what helps, clause by clause: each stands on what was written before."""
        clock = Clock.start()
        slopes, weights, values = (as_numpy(t) for t in (*duals, proved))
        for k, clause in enumerate(as_numpy(clauses).tolist()):
            head = (self._claims.clauses[clause].box, clause + 1)
            self._learn(lemma_of(head, as_numpy(neurons), as_numpy(slots), slopes[k], weights[k]), values[k])
        self._seconds += clock.seconds()

    def for_clauses(self, clauses: Tensor) -> Bounds:
        """What is known of them by now."""
        known = [self._claims.of_clause(clause) for clause in as_numpy(clauses).tolist()]
        lower, upper = (np.concatenate([getattr(where, side) for where in known]) for side in ("lower", "upper"))
        return Bounds(torch.from_numpy(lower), torch.from_numpy(upper))

    def _learn(self, lemma: Lemma, proved: Array) -> None:
        """Write a lemma about one layer, as far as it is about ReLUs that gain by it; `proved` is what to expect."""
        before = self._known(lemma.head.tolist())
        low, minus_high = np.split(proved, 2)
        kept = _gaining(before.lower[0, lemma.neurons], before.upper[0, lemma.neurons], low, -minus_high)
        if not len(kept):
            return
        lemma = _about(lemma, kept)
        if 2 * sum(np.asarray(array).nbytes for array in vars(lemma).values()) > MOST_BYTES:
            return  # no reader would take it; the bounds stay what they are without it
        after = self._claims.tried(lemma)
        at = lemma.neurons
        sides = [side[0, at] for side in (before.lower, before.upper, after.lower, after.upper)]
        kept = _gaining(*sides)
        if not len(kept):
            return
        lower, upper = before.lower.copy(), before.upper.copy()
        lower[0, at[kept]], upper[0, at[kept]] = sides[2][kept], sides[3][kept]
        lemma = _about(lemma, kept)
        self._claims.believe(lemma, before.with_bounds(lower, upper))
        self._writer.write(lemma)
        self._relu_bytes = self._writer.bytes

    def _learn_trees(self, patterns: Patterns) -> None:
        """Write the sides that gain by their patterns; slopes are shared where each pattern's own gain little more."""
        before = self._known(patterns.lemma.head.tolist())
        bounds = before.lower[0], before.upper[0]
        proved = self._claims.patterns(patterns.lemma)
        # Ascent stood on other bounds, and rounds: what it promised is a hint.
        hopeful = patterns.better(patterns.value, proved, bounds, OWN_GAIN)
        own = patterns.of_sides(hopeful).with_own_slopes()
        proved_own = np.full(len(proved), -np.inf, dtype=proved.dtype)
        proved_own[np.isin(patterns.of, hopeful)] = self._claims.patterns(own.lemma)
        better = patterns.better(proved_own, proved, bounds, OWN_GAIN)
        proved = np.where(np.isin(patterns.of, better), proved_own, proved)
        kept = patterns.worth(proved, bounds, LEAST_GAIN)
        if len(kept):
            lemma = patterns.with_own_slopes(better).of_sides(kept).lemma
            regions = self._claims.by_patterns(before, lemma, proved[np.isin(patterns.of, kept)])
            self._claims.believe(lemma, regions)
            self._writer.write(lemma)
            self._relu_bytes = self._writer.bytes

    def _known(self, head: Sequence[int]) -> Where:
        """What a lemma with this head stands on."""
        box, clause = head
        return self._claims.of_clause(clause - 1) if clause else self._claims.root(box)

    # Leaves

    @np.errstate(all="ignore")  # what is no number proves nothing
    def proved(self, session: AbstractSession, domains: DomainBatch, cutoff: float, deadline: Deadline) -> Tensor:
        """Write the domains above the cutoff as leaves; those without a proof come back at the cutoff."""
        closed = (domains.lower > cutoff).nonzero()[:, 0]
        if not len(closed):
            return domains.lower
        clock = Clock.start()
        members = domains[closed]
        leaves = unproved(self._claims, session, members)
        left = np.ones(len(leaves), dtype=bool)
        for name, chunk in self._forms_of(session, members, leaves, left, deadline):
            if not len(chunk):
                continue
            for part in in_parts(chunk):
                self._writer.write(part)
            self._forms[name] = self._forms.get(name, 0) + len(chunk)
        self._seconds += clock.seconds()
        if not left.any():
            return domains.lower
        self._reopened += int(left.sum())
        return domains.lower.index_fill(0, closed[torch.from_numpy(left).to(closed.device)], cutoff)

    def _forms_of(
        self, session: AbstractSession, domains: DomainBatch, leaves: Leaves, left: Array, deadline: Deadline
    ) -> Iterator[tuple[str, Leaves]]:
        """Chunks of leaves that are proved, by one form after the other; `left` says which are not, yet."""
        empty = as_numpy(domains.lower) == np.inf
        yield "empty", self._first_of(leaves, left, [lambda rows: Tried(partial(take, take(leaves, rows)))], empty)
        if session.capabilities.input_parts is not None:
            yield from self._in_place(leaves, left, deadline)
            return
        source = session.capabilities.evidence
        evidence = None if source is None else source.stored(domains)

        def among(rows: Array) -> DomainBatch:
            return domains[torch.from_numpy(rows).to(domains.lower.device)]

        def judge(rows: Array, row_evidence: Evidence) -> Tensor | None:
            return None if source is None else source.supported(among(rows), row_evidence)

        tries = self._plain(leaves) if evidence is None else by_duals(leaves, evidence)
        yield "linear" if evidence is None else "duals", self._first_of(leaves, left, tries, judge=judge)
        rows = np.flatnonzero(left)
        if len(rows) and source is not None:
            direct = source.last_resort(among(rows), deadline)
            if direct is not None:
                yield "multipliers", self._first_of(leaves, left, by_multipliers(leaves, direct, rows))

    def _first_of(
        self,
        leaves: Leaves,
        left: Array,
        tries: Iterable[Attempt],
        among: Array | None = None,
        judge: Judge | None = None,
    ) -> Leaves:
        """The leaves that some attempt proves, each by the first that does."""
        parts = []
        for attempt in tries:
            rows = np.flatnonzero(left if among is None else left & among)
            if not len(rows):
                break
            tried = attempt(rows)
            good = self._good(tried, rows, judge)
            left[rows[good]] = False
            parts.append(tried.leaves(good))
        return joined(parts or [take(leaves, np.zeros(0, np.int64))])

    def _good(self, tried: Tried, rows: Array, judge: Judge | None) -> Array:
        """Which of these leaves are proved, by their places."""
        if judge is not None and tried.evidence is not None and not self._doubted:
            support = judge(rows, tried.evidence)
            if support is not None:
                good = np.flatnonzero(as_numpy(support) > 0)
                sample = self._claims.bounds(tried.leaves(good[:: max(1, len(good) // SAMPLE)]))
                self._doubted = not bool((sample > 0).all())
                if not self._doubted:
                    return good
        return np.flatnonzero(self._claims.bounds(tried.leaves(np.arange(len(rows)))) > 0)

    def _plain(self, leaves: Leaves) -> Iterator[Attempt]:
        """Each row of the clause by itself, with the slopes that follow from the bounds."""
        for k in range(self._claims.shape.rows):

            def attempt(rows: Array, k: int = k) -> Tried:
                weights = np.zeros((len(rows), self._claims.shape.rows))
                weights[:, k] = 1.0
                made = replace(take(leaves, rows), kind=np.full(len(rows), SLOPES), weights=weights)
                return Tried(partial(take, made))

            yield attempt

    def _in_place(self, leaves: Leaves, left: Array, deadline: Deadline) -> Iterator[tuple[str, Leaves]]:
        """Bounds of all ReLUs derived again in every leaf, with more effort where less does not do."""
        for effort in (ONCE, TWICE, STEP_BY_STEP):
            rows = np.flatnonzero(left)
            if len(rows):
                deadline.check()
                tried, good = self._derived(take(leaves, rows), effort)
                left[rows[good]] = False
                yield f"local_{effort}", take(tried, good)

    def _derived(self, leaves: Leaves, effort: int) -> tuple[Leaves, Array]:
        """The leaves with the best kind of slopes and weights over bounds derived again; and which that proves.

        What is computed here is what `Claims.bounds` computes for the leaves returned.
        """
        prover = self._claims.prover
        entries = Entries.of(leaves)
        vector = np.zeros(len(leaves), dtype=np.int64)
        weights = leaves.weights.copy()
        best = np.full(len(leaves), -np.inf)
        for number in np.unique(leaves.clause).tolist():
            clause = self._claims.clauses[number]
            count = len(clause.offsets)
            choices = np.concatenate([np.eye(count), np.full((1, count), 1 / count)])[: count + (count > 1)]
            for piece in self._claims.pieces(np.flatnonzero(leaves.clause == number), local=True):
                region = self._claims.inside(self._claims.part(leaves, entries, piece)[0], number, effort)
                best[piece[region.empty]] = np.inf
                each = np.broadcast_to(choices, (len(piece), *choices.shape))
                for kind in range(KINDS):
                    values = prover.least_of_rows(region, clause, each, Passing(prover.slopes(region, kind)))
                    row = values.argmax(axis=1)
                    value = values[np.arange(len(piece)), row]
                    better = value > best[piece]
                    best[piece[better]] = value[better]
                    vector[piece[better]] = kind
                    weights[piece[better], :count] = choices[row[better]]
        made = replace(leaves, kind=np.full(len(leaves), LOCAL), vector=vector + KINDS * effort, weights=weights)
        return made, np.flatnonzero(best > 0)

    # The end

    def finish(self, result: Result) -> None:
        """Write the verdict."""
        if result.counterexample is not None:
            box = self._problem.clauses[result.counterexample.clause].box
            self._writer.write(Point(result.counterexample.x, np.array([box])))
        self._writer.end(result.verdict.value, result.seconds)

    def close(self) -> None:
        """Leave the certificate incomplete."""
        self._writer.close()

    def notes(self) -> Mapping[str, float]:
        """Figures for the record."""
        forms = {f"certificate_by_{name}": float(count) for name, count in self._forms.items()}
        return {
            "certificate_bytes": float(self._writer.bytes),
            "certificate_root_bytes": float(self._relu_bytes),
            "certificate_leaves": float(self._writer.leaves),
            "certificate_seconds": self._seconds,
            "certificate_reopened": float(self._reopened),
            **forms,
        }


def _gaining(lower: Array, upper: Array, new_lower: Array, new_upper: Array) -> Array:
    """Which ReLUs have bounds that are better by a share of their width."""
    gain = np.maximum(new_lower - lower, 0) + np.maximum(upper - new_upper, 0)
    return np.flatnonzero(gain > LEAST_GAIN * np.maximum(upper - lower, 1e-300))


def _about(lemma: Lemma, kept: Array) -> Lemma:
    """The part of a lemma that is about some of its ReLUs."""
    both = np.concatenate([kept, len(lemma.neurons) + kept])
    return replace(lemma, neurons=lemma.neurons[kept], slopes=lemma.slopes[both], weights=lemma.weights[both])
