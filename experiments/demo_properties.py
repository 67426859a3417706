"""Surveys the demo's questions: every listed image is asked about at growing radii; verdicts, branches and seconds
are printed.

    python experiments/demo_properties.py [--draw] [--limit 12]

With `--draw`, the images are first drawn again: `ring-0` is the ring of seed 0. The radii in
`src/bough/zoo/demo/properties.json` were chosen by hand from this output: proofs with none to about a hundred branches,
counterexamples, and questions that a minute does not settle, none near an edge between two answers.
"""

import argparse
import json
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from bough.api import load_network, load_problem, solve
from bough.options import Options
from bough.zoo import demo
from laboratory import shapes

STEPS = range(-2, 6)  # hundredths around the listed radius


def pixels(name: str) -> NDArray[np.uint8]:
    """The image of a question: the name is that of the figure, then the seed."""
    figure, seed = name.split("-")[:2]
    return np.round(shapes.draw(int(seed), shapes.CLASS_NAMES.index(figure)) * 255).astype(np.uint8)


def main() -> None:
    """Draw, ask and print."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--limit", type=float, default=12.0, help="seconds per question")
    parser.add_argument("--draw", action="store_true", help="write the images anew, after a change of the list")
    options = parser.parse_args()
    entries = json.loads(demo.PROPERTIES.read_text(encoding="utf-8"))
    if options.draw:
        drawn: dict[str, Any] = {entry["name"]: pixels(entry["name"]) for entry in entries}
        np.savez_compressed(demo.IMAGES, **drawn)
    torch.set_num_threads(1)
    loaded = load_network(demo.NETWORK)
    for entry in entries:
        for step in STEPS:
            problem = demo.problem(**(entry | {"eps": round(entry["eps"] + step / 100, 2)}))
            result = solve(load_problem(loaded, problem.property), Options(timeout=options.limit))
            listed = f"   listed as {problem.expected}" if step == 0 else ""
            print(
                f"{problem.name:18s} {problem.eps:.2f}  {result.verdict.value:9s} {result.branches:5d} branches "
                f"{result.seconds:6.1f} s{listed}",
                flush=True,
            )


if __name__ == "__main__":
    main()
