"""Searches one hard problem for minutes, and prints resident memory over time: flat within the budget for open domains.

    python benchmarks/endurance.py [--minutes 0.25] [--memory 0.5] [--bounds dual] [--lines 12] [NETWORK PROPERTY]

Without files the problem is a random network over a wide box, which no method decides. The last line says how much was
taken beyond the libraries, and how much of that open domains may take; the exit status is 1 where it is more. Expect
open domains (kept as compact rows) to fill their budget, and then the verdict `unknown`; for an hour, use a slow rule
(--bounds lp) or a large budget.
"""

import argparse
import resource
import sys
from pathlib import Path

import torch
from torch import nn

from bough import Box, Clause, Property
from bough.api import load_network, load_problem, solve
from bough.options import Options
from bough.search.loop import SearchState
from bough.search.observe import AbstractObserver

WORKING = 1e9  # bytes that bounding itself may take beside open domains: models, batches, caches


def resident() -> int:
    """Bytes of memory that this process holds now."""
    return int(Path("/proc/self/statm").read_text().split()[1]) * resource.getpagesize()


class Watch(AbstractObserver):
    """Keeps memory and open domains, a few times a second."""

    def __init__(self) -> None:
        self.seen_at: list[tuple[float, int, int, int]] = []

    def seen(self, state: SearchState, seconds: float) -> None:
        """After each step."""
        if not self.seen_at or seconds - self.seen_at[-1][0] > 0.2:
            self.seen_at.append((seconds, resident(), len(state.frontier), state.branches))


def random_problem() -> tuple[nn.Module, Property]:
    """Three layers of 60 ReLUs and a margin that no bound reaches for a long time."""
    torch.manual_seed(0)
    module = nn.Sequential(
        *(nn.Linear(20, 60), nn.ReLU(), nn.Linear(60, 60), nn.ReLU(), nn.Linear(60, 60), nn.ReLU(), nn.Linear(60, 1))
    )
    for layer in module:
        if isinstance(layer, nn.Linear):
            nn.init.kaiming_normal_(layer.weight)
    ends = torch.ones(20, dtype=torch.float64)
    row = Clause(0, torch.ones(1, 1, dtype=torch.float64), torch.tensor([-12.0], dtype=torch.float64), (False,))
    return module, Property((Box(-ends, ends),), (row,))


def main() -> int:
    """Search and report."""
    parser = argparse.ArgumentParser(description="memory of one long search")
    parser.add_argument("files", nargs="*", type=Path, metavar="FILE", help="a network and a property")
    parser.add_argument("--minutes", type=float, default=0.25)
    parser.add_argument("--memory", type=float, default=0.5, help="GB for open domains")
    parser.add_argument("--bounds", default="dual")
    parser.add_argument("--lines", type=int, default=12)
    options = parser.parse_args()
    torch.set_num_threads(1)
    if options.files:
        problem = load_problem(load_network(options.files[0]), options.files[1])
    else:
        module, prop = random_problem()
        problem = load_problem(load_network(module, (20,)), prop)
    watch, before = Watch(), resident()
    chosen = Options(timeout=60 * options.minutes, bounds=options.bounds, memory=options.memory, device="cpu")
    result = solve(problem, chosen, (watch,))
    print(" seconds  resident MB  open domains  branches")
    every = max(1, len(watch.seen_at) // options.lines)
    for seconds, held, count, branches in [*watch.seen_at[::every], *watch.seen_at[-1:]]:
        print(f"{seconds:8.1f} {held / 1e6:12.0f} {count:13d} {branches:9d}")
    most = max((held for _, held, _, _ in watch.seen_at), default=before) - before
    budget = options.memory * 1e9 + WORKING
    print(f"{result}; at most {most / 1e6:.0f} MB more than at the start, of {budget / 1e6:.0f} MB allowed")
    return int(most > budget)


if __name__ == "__main__":
    sys.exit(main())
