"""Surveys the demo's questions: every listed image is asked about at growing radii; verdicts, branches and seconds
are printed.

    python experiments/demo_properties.py [--limit 12]

The radii in `src/bough/zoo/demo/properties.json` were chosen by hand from this output: proofs with none to about a
hundred branches, counterexamples, and questions that a minute does not settle, none near an edge between two answers.
"""

import argparse
import json

import torch

from bough.api import load_network, load_problem, solve
from bough.options import Options
from bough.zoo import demo

STEPS = range(-2, 6)  # hundredths around the listed radius


def main() -> None:
    """Ask and print."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--limit", type=float, default=12.0, help="seconds per question")
    options = parser.parse_args()
    torch.set_num_threads(1)
    loaded = load_network(demo.NETWORK)
    for entry in json.loads(demo.PROPERTIES.read_text(encoding="utf-8")):
        for step in STEPS:
            asked = demo.problem(**(entry | {"eps": round(entry["eps"] + step / 100, 2)}))
            result = solve(load_problem(loaded, asked.property), Options(timeout=options.limit))
            listed = f"   listed as {asked.expected}" if step == 0 else ""
            print(
                f"{asked.name:18s} {asked.eps:.2f}  {result.verdict.value:9s} {result.branches:5d} branches "
                f"{result.seconds:6.1f} s{listed}",
                flush=True,
            )


if __name__ == "__main__":
    main()
