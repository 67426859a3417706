"""Times a decision: microseconds per domain of each model, of random weights, beside session the domain's children.

    BOUGH_DATA=... python benchmarks/decision.py [--device cuda] [--networks base,wide,deep] [--domains 1,64]
                                                 [--presets paper,fast] [--repeat 5] [--json decision.jsonl]

Domains are open ones of a search on a hard property of OVAL21, some splits below the root. A decision is what a learnt
rule does at every step: ask the relaxation, make a scene of it, score it, and take the highest; its parts are timed
apart, too. Domains are scored by the piece, on a GPU by a captured model (`learning/scorer.py`). `first` is what the
first decision of a search costs more than later ones, in milliseconds.
"""

import argparse
import json
import os
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from bough.api import load_network, load_problem
from bough.bounds.base import AbstractSession
from bough.branching.babsr import BaBSR
from bough.branching.base import highest
from bough.branching.filtered import Filtered
from bough.budget import Deadline
from bough.domain.batch import DomainBatch, Relaxation, split
from bough.learning.presets import KNOWN_MODELS, build
from bough.learning.scene import Graph, see
from bough.learning.scorer import Scorer
from bough.options import Options
from bough.plan import search_plan
from bough.problem.instances import Instance, read_instances
from bough.problem.problem import Problem
from bough.search.ahead import CountedLookAhead

ROWS = {"base": 5, "wide": 11, "deep": 22}  # of OVAL21's list, from 0: among the hard ones
NETWORKS, DOMAINS = {"cpu": "base", "cuda": "base,wide,deep"}, {"cpu": "1,64", "cuda": "64,4096"}
NEVER = Deadline.never()


def open_domains(session: AbstractSession, problem: Problem, count: int) -> DomainBatch:
    """So many open domains, found by a quick rule; where a search ends before, they are repeated."""
    rule, domains = Filtered(best=3), session.root(0.0, NEVER).domains
    memory = rule.prepare(problem)
    latest = domains = domains[~(domains.lower > 0)]
    while 0 < len(domains) < count:
        decision = rule.decide(memory, domains, CountedLookAhead(session, NEVER, domains))
        bounded = session.bound(split(domains, decision.neurons), 0.0, NEVER).domains
        domains, memory = bounded[~(bounded.lower > 0)], decision.memory
        latest = domains if len(domains) else latest
    if not len(latest):
        return latest
    return latest[torch.arange(count, device=latest.lower.device) % len(latest)]


def fastest(work: Callable[[], object], device: str, repeat: int) -> float:
    """Seconds of the fastest repetition; one more goes before, uncounted."""
    seconds = []
    for _ in range(repeat + 1):
        began = time.perf_counter()
        work()
        if device == "cuda":
            torch.cuda.synchronize()
        seconds.append(time.perf_counter() - began)
    return min(seconds[1:])


def run(instance: Instance, options: argparse.Namespace, count: int) -> list[dict[str, Any]]:
    """One entry for the children, for each part of a decision and for each model."""
    problem, device = load_problem(load_network(instance.network), instance.property), options.device
    session = search_plan(Options(device=device), problem.network).bounder.prepare(problem)
    domains, relaxations = open_domains(session, problem, count), session.capabilities.relaxations
    if not len(domains):
        return []
    if relaxations is None:
        raise SystemExit("these bounds keep no relaxation for models to look at")

    def relaxed() -> Relaxation:
        return relaxations.relaxed(domains, NEVER)

    facts = relaxed()
    graph, scene = Graph.of(problem, domains, facts), see(problem, domains, facts)
    babsr = BaBSR()
    memory = babsr.prepare(problem).on(domains.lower.device)
    chosen = babsr.decide(memory, domains).neurons
    timed = {
        "two children": lambda: session.bound(split(domains, chosen), 0.0, NEVER),
        "`babsr`": lambda: babsr.decide(memory, domains),
        "relaxation": relaxed,
        "scene": lambda: see(problem, domains, facts),
    }
    entries = [
        {"what": what, "seconds": fastest(work, device, options.repeat), "first": 0.0} for what, work in timed.items()
    ]
    for preset in options.presets.split(","):
        model = build(preset).to(domains.lower.device).eval()
        fresh = Graph(graph.network, graph.neurons, graph.passing)  # whose edges are still to be worked out

        scorer = Scorer(model, fresh)

        def decide(scorer: Scorer = scorer) -> Tensor:
            return highest(scorer(scene), scene.ambiguous, 1)

        began = time.perf_counter()
        decide().cpu()
        first = time.perf_counter() - began
        later = fastest(decide, device, options.repeat)
        entries.append({"what": f"`{preset}`", "seconds": later, "first": first - later})
    for entry in entries:
        entry |= {"domains": len(domains), "relus": len(graph.neurons), "device": device}
    return entries


def main() -> int:
    """Measure, print."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--device", choices=("cpu", "cuda"), default="cuda" if torch.cuda.is_available() else "cpu")
    parser.add_argument("--networks", help="of base,wide,deep; on a CPU base only, by default")
    parser.add_argument("--domains", help=f"decided together; {DOMAINS} by default")
    parser.add_argument("--presets", default=",".join(KNOWN_MODELS.names()))
    parser.add_argument("--repeat", type=int, default=3)
    parser.add_argument("--json", type=Path, help="the figures are added to this file")
    options = parser.parse_args()
    torch.set_num_threads(1)
    listed = Path(os.environ.get("BOUGH_DATA", "../shared")) / "vnncomp" / "oval21" / "instances.csv"
    if not listed.exists():
        print(f"no list at {listed}; set BOUGH_DATA to the folder that holds vnncomp/")
        return 0
    instances = read_instances(listed)
    print("| network | device | domains | ReLUs | what | us per domain | of the children's | first, ms |")
    print("|---|---|---|---|---|---|---|---|")
    for name in (options.networks or NETWORKS[options.device]).split(","):
        for count in (options.domains or DOMAINS[options.device]).split(","):
            entries = run(instances[ROWS[name]], options, int(count))
            if not entries:
                print(f"| {name} | {options.device} | none is open | | | | | |")
            for entry in entries:
                share = entry["seconds"] / entries[0]["seconds"]
                print(
                    f"| {name} | {entry['device']} | {entry['domains']} | {entry['relus']} | {entry['what']} | "
                    f"{1e6 * entry['seconds'] / entry['domains']:.1f} | {share:.3f} | {1e3 * entry['first']:.0f} |",
                    flush=True,
                )
                if options.json:
                    with options.json.open("a") as out:
                        out.write(json.dumps({"network": name, **entry}) + "\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
