"""CPU and GPU agree: root bounds, bounds of children, verdicts; large batches and small ones.

Each test is a plain function, since the machines with a GPU need not have pytest: from the repository's root,
`PYTHONPATH=src:. python tests/bounds/test_gpu.py` runs them all.
"""

import sys
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np
import torch
from tests.support import (
    KINDS,
    Judged,
    box_around,
    generator,
    hard_case,
    integer,
    normal,
    problem,
    random_clause,
    sequential,
    with_ball,
)
from torch import Tensor

from bough.api import solve
from bough.bounds.ascent import Ascent
from bough.bounds.dual import DualAscent, DualSession
from bough.bounds.intermediate import AbstractIntermediate, TightBounds
from bough.bounds.optimised import LEVELS, OptimisedBounds, by_trees
from bough.bounds.trees import TreeWork
from bough.branching.babsr import BaBSR
from bough.branching.base import AbstractBrancher
from bough.branching.filtered import Filtered
from bough.branching.random import RandomChoice
from bough.budget import Deadline
from bough.domain.batch import DomainBatch, split
from bough.falsify.base import NoAttack
from bough.falsify.pgd import GradientAttack
from bough.options import Options
from bough.problem.problem import Problem
from bough.search.loop import MemoryLimits, Search, search
from bough.verdict.check import Outcome, check
from bough.verdict.result import Verdict

try:
    import pytest

    gpu: Callable[[Callable[[], None]], Callable[[], None]] = pytest.mark.gpu
except ImportError:

    def gpu(test: Callable[[], None]) -> Callable[[], None]:
        """Nothing to mark without pytest."""
        return test


NEVER = Deadline.never()
CPU, CUDA = torch.device("cpu"), torch.device("cuda")
SMALL_KINDS = ("dense", "convolutional", "residual", "pooled")
POLICIES: tuple[AbstractIntermediate, ...] = (TightBounds(refresh=False), OptimisedBounds())


def mixed_problem(kind: str, seed: int, ball: int | None = None) -> Problem:
    """Four clauses of one to three rows on two boxes, the second with a ball where one is asked for."""
    g = generator(seed)
    network = KINDS[kind](g)
    boxes = [box_around(g, network.inputs) for _ in range(2)]
    if ball is not None:
        boxes[1] = with_ball(g, boxes[1], ball)
    return problem(network, boxes, [random_clause(g, network.outputs, integer(g, 1, 3), k % 2) for k in range(4)])


def wide_problem() -> Problem:
    """Enough ReLUs for thousands of different domains."""
    g = generator(0)
    network = sequential(
        (normal(g, 60, 12) / 12**0.5, normal(g, 60) * 0.1),
        (normal(g, 60, 60) / 60**0.5, normal(g, 60) * 0.1),
        (normal(g, 2, 60) / 60**0.5, normal(g, 2)),
    )
    return problem(network, [box_around(g, 12)], [random_clause(g, 2, 2)])


def children_of(bounding: DualSession, depth: int, seed: int = 0) -> DomainBatch:
    """All that random splits of so many ReLUs make of each root, on the CPU, as if they were made in one step."""
    domains, g = bounding.root(np.inf, NEVER).domains.to(CPU), generator(seed)
    domains = domains[domains.bounds.ambiguous().sum(dim=1) >= depth]
    chosen = torch.multinomial(domains.bounds.ambiguous().double(), depth, generator=g)
    for step in range(depth):
        domains = split(domains, chosen[:, step].repeat_interleave(2**step))
    return replace(domains, last_split=chosen.repeat_interleave(2**depth, dim=0))


def close(actual: Tensor, expected: Tensor, tolerance: float) -> None:
    """Equal up to a tolerance, relative to the values' size."""
    actual, expected = actual.cpu(), expected.cpu()
    assert torch.equal(torch.isinf(actual), torch.isinf(expected))
    finite = torch.isfinite(expected)
    size = 1 + expected[finite].abs()
    worst = float(((actual[finite] - expected[finite]).abs() / size).max()) if bool(finite.any()) else 0.0
    assert worst <= tolerance, worst


@gpu
def test_root_bounds_in_float64_are_the_same() -> None:
    for kind in SMALL_KINDS:
        for seed in range(3):
            g = generator(seed)
            network = KINDS[kind](g)
            box = box_around(g, network.inputs)
            on_cpu = TightBounds().at_root(network, box, NEVER).bounds
            on_gpu = TightBounds().at_root(network.on(CUDA), box.on(CUDA), NEVER).bounds
            close(on_gpu.lower, on_cpu.lower, 1e-9)
            close(on_gpu.upper, on_cpu.upper, 1e-9)


@gpu
def test_optimised_root_bounds_are_close() -> None:
    """Ascent takes other steps in TF32; what it finds is hardly worse, and neither side is ever wrong."""
    for kind in SMALL_KINDS:
        for seed in range(3):
            g = generator(seed)
            network = KINDS[kind](g)
            box = box_around(g, network.inputs)
            on_cpu = OptimisedBounds().at_root(network, box, NEVER).bounds
            on_gpu = OptimisedBounds().at_root(network.on(CUDA), box.on(CUDA), NEVER).bounds
            close(on_gpu.lower, on_cpu.lower, 2e-3)
            close(on_gpu.upper, on_cpu.upper, 2e-3)


@gpu
def test_bounds_by_trees_are_close() -> None:
    """Most bounds agree: a tree may grow another way where rounding decides what is split, and gains about as much."""
    policy = by_trees()
    differences = []
    for kind in SMALL_KINDS:
        for seed in range(3):
            g = generator(seed)
            network = KINDS[kind](g)
            box = box_around(g, network.inputs)
            found = []
            for device in (torch.device("cpu"), CUDA):
                net = network.on(device)
                region = policy.at_root(net, box.on(device), NEVER)
                every = torch.ones(1, network.neurons, dtype=torch.bool, device=device)
                deeper = policy.by_trees(net, region, TreeWork(LEVELS[0], every), NEVER)
                assert deeper is not None
                found.append(torch.cat([deeper.bounds.lower, deeper.bounds.upper]).cpu())
            width = (found[0][1] - found[0][0]).clamp(min=1e-3)
            differences.append(((found[0] - found[1]).abs() / width).flatten())
    assert float(torch.cat(differences).quantile(0.9)) < 2e-3
    assert float(torch.cat(differences).max()) < 0.2


@gpu
def test_proofs_of_the_same_duals_are_the_same() -> None:
    """No step of ascent at all: what is left is the float64 proof, which must not depend on the device."""
    still = Ascent(steps=0)
    for kind in SMALL_KINDS:
        query = mixed_problem(kind, 1)
        bounders = [DualAscent(still, still, device=device).prepare(query) for device in ("cpu", "cuda")]
        children = children_of(bounders[0], 1)
        bounders[1].root(np.inf, NEVER)
        # Already multipliers, not a parent's slopes, so that no float32 number is computed on the way.
        plain = replace(children, last_split=torch.full_like(children.last_split[:, :1], -1))
        on_cpu = bounders[0].bound(plain, np.inf, NEVER).domains
        on_gpu = bounders[1].bound(plain.to(CUDA), np.inf, NEVER).domains
        close(on_gpu.lower, on_cpu.lower, 1e-9)


def check_children(query: Problem, policy: AbstractIntermediate, depth: int, tolerance: float) -> None:
    """A batch of children bounded on both devices, each from its own root; in pieces, too."""
    cpu_session = DualAscent(intermediate=policy).prepare(query)
    gpu_session = DualAscent(intermediate=policy, device="cuda").prepare(query)
    children = children_of(cpu_session, depth)
    gpu_session.root(np.inf, NEVER)
    cpu_lower = cpu_session.bound(children, np.inf, NEVER).domains.lower
    moved = children.to(CUDA)
    gpu_bounded = gpu_session.bound(moved, np.inf, NEVER)
    assert gpu_bounded.domains.lower.is_cuda
    close(gpu_bounded.domains.lower, cpu_lower, tolerance)
    gpu_session._batch = max(1, len(children) // 3)
    close(gpu_session.bound(moved, np.inf, NEVER).domains.lower, gpu_bounded.domains.lower, tolerance)


@gpu
def test_children_are_bounded_alike() -> None:
    for kind in SMALL_KINDS:
        for policy in (TightBounds(refresh=False), OptimisedBounds(unsafe_only=False)):
            check_children(mixed_problem(kind, 2), policy, 2, 2e-2)


@gpu
def test_children_in_balls_are_bounded_alike() -> None:
    for p in (1, 2):
        check_children(mixed_problem("dense", 3, p), TightBounds(refresh=False), 2, 2e-2)


@gpu
def test_large_batches_are_bounded_as_small_ones() -> None:
    """Thousands of children, with and without whatever is used for large batches only."""
    check_children(wide_problem(), TightBounds(refresh=False), 12, 2e-2)


@gpu
def test_domains_that_leave_early_change_nothing_for_the_others() -> None:
    query = wide_problem()
    bounding = DualAscent(Ascent(steps=20, pauses=(3, 7, 12)), device="cuda").prepare(query)
    children = children_of(bounding, 10).to(CUDA)
    children = replace(children, lower=torch.full_like(children.lower, -torch.inf))
    whole = bounding.bound(children, np.inf, NEVER).domains.lower
    cutoff = float(whole[torch.isfinite(whole)].quantile(0.4))
    lower = bounding.bound(children, cutoff, NEVER).domains.lower
    near = (whole - cutoff).abs() < 5e-3 * (1 + abs(cutoff))
    assert torch.equal((lower > cutoff)[~near], (whole > cutoff)[~near])
    below = ~near & (whole < cutoff)
    assert int(below.sum()) > 100
    close(lower[below], whole[below], 5e-3)


@gpu
def test_packed_domains_come_back() -> None:
    bounding = DualAscent(device="cuda").prepare(mixed_problem("dense", 4))
    bounded = bounding.bound(children_of(bounding, 2).to(CUDA), np.inf, NEVER).domains
    again = bounding.unpack(bounding.pack(bounded))
    for name in ("clause", "signs", "lower", "depth"):
        assert torch.equal(getattr(again, name), getattr(bounded, name)), name
    assert torch.equal(again.bounds.lower, bounded.bounds.lower)
    assert torch.equal(again.bounds.upper, bounded.bounds.upper)


@gpu
def test_estimates_are_alike() -> None:
    query = mixed_problem("dense", 5)
    cpu_session, gpu_session = (DualAscent(device=device).prepare(query) for device in ("cpu", "cuda"))
    root = cpu_session.root(np.inf, NEVER).domains
    gpu_session.root(np.inf, NEVER)
    candidates = root.bounds.ambiguous().int().topk(3, dim=1).indices
    cpu_estimates = cpu_session.estimate(root, candidates, NEVER)
    close(gpu_session.estimate(root.to(CUDA), candidates.to(CUDA), NEVER), cpu_estimates, 3e-3)


@gpu
def test_verdicts_are_the_same() -> None:
    """Every bound on the way is judged by enumeration; all rules, several batches, a small frontier."""
    rules: tuple[AbstractBrancher[Any], ...] = (
        BaBSR(),
        BaBSR(worse_side=True),
        Filtered(),
        Filtered(best=3),
        RandomChoice(0),
    )
    for kind in SMALL_KINDS:
        for seed in (0, 2, 5, 7):
            for safe in (True, False):
                case = hard_case(kind, seed, safe=safe)
                policy, batch = POLICIES[seed % 2], (1, 4, 64)[seed % 3]
                bounder = DualAscent(intermediate=policy, device="cuda")
                judged = Judged(bounder, case, conditional=policy.conditional)
                run = Search(case.problem, judged, rules[seed % 5], NoAttack(), NEVER, batch=batch)
                result = search(replace(run, memory=MemoryLimits(2000.0 if seed == 5 else np.inf)))
                assert result.verdict is (Verdict.VERIFIED if safe else Verdict.FALSIFIED), (kind, seed, safe, result)
                assert result.lower_bound <= case.least + 1e-6


@gpu
def test_the_attack_finds_what_it_finds_on_the_cpu() -> None:
    hits = {"cpu": 0, "cuda": 0}
    for device in hits:
        for seed in range(6):
            case = hard_case("dense", seed, safe=False, away=0.05)
            attack = GradientAttack(device=device)
            result = search(Search(case.problem, DualAscent(device=device), BaBSR(), attack, NEVER, batch=16))
            assert result.verdict is Verdict.FALSIFIED
            hits[device] += result.bounds == 0
    assert abs(hits["cuda"] - hits["cpu"]) <= 2, hits


@gpu
def test_certificates_are_valid() -> None:
    """What the GPU takes for proved, the checker derives."""
    for kind in SMALL_KINDS:
        for intermediate in ("fixed", "optimised", "trees"):
            case = hard_case(kind, 1, safe=True)
            with TemporaryDirectory() as folder:
                path = Path(folder) / "proof"
                how = Options(bounds="dual", device="cuda", attack=False, intermediate=intermediate, certificate=path)
                assert solve(case.problem, how).verdict is Verdict.VERIFIED
                report = check(case.problem, path)
                assert report.outcome is Outcome.VALID, (kind, intermediate, report)


def main() -> int:
    """Run every test; the number of those that fail."""
    tests = [test for name, test in list(globals().items()) if name.startswith("test_")]
    failed = 0
    for test in tests:
        clock = Deadline.never()
        try:
            test()
            outcome = "ok"
        except Exception as error:  # noqa: BLE001 - the next one still has to run
            import traceback

            traceback.print_exc()
            failed, outcome = failed + 1, f"FAILED {type(error).__name__}"
        print(f"{test.__name__}: {outcome}, {clock.elapsed():.1f} s", flush=True)  # noqa: T201 - a script's report
    print(f"{len(tests) - failed} of {len(tests)} ok")  # noqa: T201 - as above
    return failed


if __name__ == "__main__":
    sys.exit(main())
