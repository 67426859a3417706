"""Times strong branching: samples per second, a sample being every ambiguous ReLU of a domain with both children.

    BOUGH_DATA=... python benchmarks/strong.py [--device cuda] [--networks base,wide,deep] [--domains 4] [--repeat 3]
                                               [--json strong.jsonl]

Domains are open ones of a search on a hard property of OVAL21, some splits below the root; all of them are decided as
one batch, with the bounds that the search itself would find. The paper's authors report about 200 s for a sample of
140 ReLUs of the Base network on a CPU (Appendix D.1), that is 1.4 children per second.
"""

import argparse
import json
import os
import sys
import time
from pathlib import Path
from typing import Any

import torch

from bough.api import load_network, load_problem
from bough.bounds.base import AbstractSession
from bough.branching.base import AbstractBrancher
from bough.branching.strong import Strong
from bough.budget import Deadline
from bough.domain.batch import DomainBatch, split
from bough.options import Options
from bough.plan import search_plan
from bough.problem.instances import Instance, read_instances
from bough.problem.problem import Problem
from bough.search.ahead import CountedLookAhead

ROWS = {"base": 5, "wide": 11, "deep": 22}  # of OVAL21's list, from 0: among the hard ones
NETWORKS, DOMAINS = {"cpu": "base", "cuda": "base,wide,deep"}, {"cpu": 1, "cuda": 64}
NEVER = Deadline.never()


def open_domains(session: AbstractSession, rule: AbstractBrancher[Any], problem: Problem, count: int) -> DomainBatch:
    """So many open domains, found by bough's own rule."""
    memory, domains = rule.prepare(problem), session.root(0.0, NEVER).domains
    domains = domains[~(domains.lower > 0)]
    while 0 < len(domains) < count:
        decision = rule.decide(memory, domains, CountedLookAhead(session, NEVER, domains))
        bounded = session.bound(split(domains, decision.neurons), 0.0, NEVER).domains
        domains, memory = bounded[~(bounded.lower > 0)], decision.memory
    return domains[torch.arange(min(count, len(domains)), device=domains.lower.device)]


def run(name: str, instance: Instance, device: str, count: int, repeat: int) -> dict[str, Any]:
    """The fastest of some repetitions, and what was decided."""
    problem = load_problem(load_network(instance.network), instance.property)
    plan = search_plan(Options(branching="kfsb", device=device), problem.network)
    session = plan.bounder.prepare(problem)
    domains, rule = open_domains(session, plan.brancher, problem, count), Strong()
    if not len(domains):
        return {"name": name, "device": device, "samples": 0}
    seconds, children = [], 0
    for _ in range(repeat + (device == "cuda")):  # on a GPU the first is not counted: steps are captured
        ahead, began = CountedLookAhead(session, NEVER, domains, batch=plan.batch), time.perf_counter()
        rule.decide(rule.prepare(problem), domains, ahead).neurons.cpu()
        seconds.append(time.perf_counter() - began)
        children = ahead.count
    best = min(seconds[-repeat:])
    figures = {"samples": len(domains), "children": children, "seconds": best, "load": os.getloadavg()[0]}
    rates = {"samples_per_second": len(domains) / best, "children_per_second": children / best}
    return {"name": name, "device": device, **figures, **rates}


def main() -> int:
    """Measure, print."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--device", choices=("cpu", "cuda"), default="cuda" if torch.cuda.is_available() else "cpu")
    parser.add_argument("--networks", help="of base,wide,deep; on a CPU base only, by default")
    parser.add_argument("--domains", type=int, help=f"decided together; {DOMAINS} by default")
    parser.add_argument("--repeat", type=int, default=2)
    parser.add_argument("--json", type=Path, help="the figures are added to this file")
    options = parser.parse_args()
    torch.set_num_threads(1)
    listed = Path(os.environ.get("BOUGH_DATA", "../shared")) / "vnncomp" / "oval21" / "instances.csv"
    if not listed.exists():
        print(f"no list at {listed}; set BOUGH_DATA to the folder that holds vnncomp/")
        return 0
    instances, count = read_instances(listed), options.domains or DOMAINS[options.device]
    print("| network | device | domains | children of each | s | samples/s | children/s |")
    print("|---|---|---|---|---|---|---|")
    for name in (options.networks or NETWORKS[options.device]).split(","):
        entry = run(name, instances[ROWS[name]], options.device, count, options.repeat)
        if not entry["samples"]:
            print(f"| {name} | {options.device} | none is open | | | | |")
            continue
        each = entry["children"] / entry["samples"]
        print(
            f"| {name} | {entry['device']} | {entry['samples']} | {each:.0f} | {entry['seconds']:.2f} | "
            f"{entry['samples_per_second']:.2f} | {entry['children_per_second']:.0f} |",
            flush=True,
        )
        if options.json:
            with options.json.open("a") as out:
                out.write(json.dumps(entry) + "\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
