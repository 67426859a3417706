"""Networks that encode Boolean formulas, whose bound is 0 until nearly everything is decided: verdicts against all
assignments, and trees that stay small since splits follow what is still open.
"""

import itertools
from dataclasses import dataclass
from functools import cached_property

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.support import generator, integer, sequential, simple_problem, tensor
from torch import Tensor

from bough.bounds.dual import DualAscent
from bough.bounds.optimised import OptimisedBounds
from bough.branching.filtered import Filtered
from bough.budget import Deadline
from bough.domain.batch import split
from bough.falsify.base import NoAttack
from bough.network import walk
from bough.problem.problem import Problem
from bough.search.loop import Search, search
from bough.verdict.result import Result, Verdict

NEVER = Deadline.never()
BOUNDER = DualAscent(intermediate=OptimisedBounds())
RULE = Filtered(best=8)


@dataclass(frozen=True, eq=False)
class Formula:
    """A disjunction in each row [clauses, variables]: +1 for a variable, -1 for its negation, 0 for neither."""

    literals: Tensor

    @staticmethod
    def random(seed: int, variables: int, clauses: int) -> "Formula":
        """Three or four literals in each clause."""
        g = generator(seed)
        rows = torch.zeros(clauses, variables, dtype=torch.float64)
        for row in rows:
            chosen = torch.randperm(variables, generator=g)[: integer(g, 3, 4)]
            row[chosen] = torch.randint(2, (len(chosen),), generator=g).double() * 2 - 1
        return Formula(rows)

    @staticmethod
    def planted(seed: int, variables: int, clauses: int) -> "Formula":
        """Without a model: a clause for every leaf of a random decision tree, which says that it is not reached."""
        g, leaves = generator(seed), [[0.0] * variables]
        while len(leaves) < clauses:
            leaf = leaves.pop(integer(g, 0, len(leaves) // 2))
            free = [k for k in range(variables) if leaf[k] == 0]
            chosen = free[integer(g, 0, len(free) - 1)]
            leaves += [[side if k == chosen else leaf[k] for k in range(variables)] for side in (-1.0, 1.0)]
        return Formula(tensor(leaves))

    @property
    def variables(self) -> int:
        return self.literals.shape[1]

    @cached_property
    def models(self) -> list[tuple[int, ...]]:
        """All satisfying assignments, of -1 and 1."""
        return [
            values
            for values in itertools.product((-1, 1), repeat=self.variables)
            if bool((self.literals * tensor(values) > 0).any(dim=1).all())
        ]

    def halves(self, scale: float = 1.0) -> Problem:
        """As the competition has it: inputs from 0 to 1; a ReLU for what each clause lacks, and x and 2x - 1, whose
        difference is 0 at 0 and 1 only.
        """
        eye, n, count = torch.eye(self.variables).double(), self.variables, len(self.literals)
        lacking = 1 - (self.literals < 0).sum(dim=1).double()
        first = torch.cat([-self.literals, eye, 2 * eye]) * scale
        bias = torch.cat([lacking, torch.zeros(n).double(), -torch.ones(n).double()]) * scale
        second = torch.zeros(2, count + 2 * n).double()
        second[0, :count], second[1, count : count + n], second[1, count + n :] = 1, 1, -1
        network = sequential((first, bias), (second / scale, [0.0, 0.0]))
        return simple_problem(network, [0.0] * n, [1.0] * n, [[1.0, 0.0], [0.0, 1.0]], [0.0, 0.0])

    def signs(self) -> Problem:
        """Inputs from -1 to 1 and 1 - |x|, and the clauses a layer later, on the positive parts."""
        eye, n, count = torch.eye(self.variables).double(), self.variables, len(self.literals)
        lacking = 1 - (self.literals < 0).sum(dim=1).double()
        first = torch.cat([eye, -eye])
        second = torch.cat([torch.cat([-self.literals, 0 * self.literals], dim=1), torch.ones(1, 2 * n).double()])
        third = torch.zeros(2, count + 1).double()
        third[0, :count], third[1, count] = 1, -1
        bias = torch.cat([lacking, torch.zeros(1).double()])
        network = sequential((first, [0.0] * (2 * n)), (second, bias), (third, [0.0, float(n)]))
        return simple_problem(network, [-1.0] * n, [1.0] * n, [[1.0, 0.0], [0.0, 1.0]], [0.0, 0.0])


ENCODINGS = {"halves": Formula.halves, "signs": Formula.signs}


def solved(problem: Problem, batch: int = 64) -> Result:
    """A search by the default rule, without an attack."""
    return search(Search(problem, BOUNDER, RULE, NoAttack(), Deadline.after(60.0), batch=batch))


@settings(max_examples=20)
@given(st.integers(0, 2**31), st.integers(4, 7), st.integers(3, 60), st.sampled_from(tuple(ENCODINGS)))
def test_verdicts_are_those_of_all_assignments(seed, variables, clauses, encoding):
    formula = Formula.random(seed, variables, clauses)
    result = solved(ENCODINGS[encoding](formula), batch=(1, 64)[seed % 2])
    assert result.verdict is (Verdict.FALSIFIED if formula.models else Verdict.VERIFIED)


@pytest.mark.parametrize("encoding", ENCODINGS)
def test_trees_stay_small(encoding):
    """Not much larger than the tree that was planted; splits that do not look for it take hundreds of times as many."""
    results = [solved(ENCODINGS[encoding](Formula.planted(seed, variables=16, clauses=24))) for seed in range(3)]
    assert all(result.verdict is Verdict.VERIFIED for result in results)
    print([result.branches for result in results])  # noqa: T201 - pytest shows it on demand
    assert max(result.branches for result in results) <= 100


@pytest.mark.parametrize("scale", [2.0**-20, 2.0**20])
def test_the_size_of_weights_changes_nothing(scale):
    for formula in (Formula.planted(seed, variables=10, clauses=16) for seed in range(3)):
        plain, scaled = solved(formula.halves(), batch=1), solved(formula.halves(scale), batch=1)
        assert plain.verdict is scaled.verdict is Verdict.VERIFIED
        assert scaled.branches <= 2 * plain.branches


@pytest.mark.parametrize("encoding", ENCODINGS)
def test_no_model_is_outside_the_boxes_of_unsafe_points(encoding):
    """In all domains of a few random splits, and what is pinned down by then is seen to be."""
    inside = pinned = 0
    for seed in range(4):
        formula = Formula.random(seed, 6, 8)
        problem = ENCODINGS[encoding](formula)
        bounding, g = BOUNDER.prepare(problem), generator(seed)
        domains = bounding.root(0.0, NEVER).domains
        for _ in range(4):
            ambiguous = domains.bounds.ambiguous()
            domains = split(domains, torch.rand(ambiguous.shape, generator=g).mul(ambiguous).argmax(dim=1))
            domains = bounding.bound(domains, 0.0, NEVER).domains
            open_ = ~(domains.lower > 0) & domains.bounds.ambiguous().any(dim=1)
            domains = bounding.unpack(bounding.pack(domains[open_]))
        boxes = bounding.unsafe_boxes(domains)
        assert boxes is not None
        lower, upper = boxes
        root = problem.property.boxes[0]
        assert bool(((lower >= root.lower) & (upper <= root.upper) & (lower <= upper)).all())
        pinned += int((upper - lower < 1e-2).sum())
        models = tensor(formula.models)
        points = models if encoding == "signs" else (models + 1) / 2
        values = walk.forward(problem.network, points)
        relus = torch.cat([values[problem.network.nodes[i].inputs[0]] for i in problem.network.relus], dim=1)
        for d in range(len(domains)):
            own_points = points[(relus * domains.signs[d] >= 0).all(dim=1)]
            assert bool(((own_points >= lower[d] - 1e-6) & (own_points <= upper[d] + 1e-6)).all())
            inside += len(own_points)
    assert inside > 100
    assert pinned > 10
