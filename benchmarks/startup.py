"""Times `bough verify` on a trivial problem beside `import torch, onnxruntime`, and lists the heavy packages it loads.

    python benchmarks/startup.py [--repeat 5]

The bar: at most 1.5 times, and neither matplotlib, rich, scipy nor a solver, which a trivial problem does not need.
"""

import argparse
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from statistics import median

from bough.network.rewrite import GraphBuilder
from bough.problem.onnx_writer import write_network

HEAVY = ("torch", "onnx", "onnxruntime", "numpy", "scipy", "highspy", "matplotlib", "rich", "ray")
PROPERTY = "(declare-const X_0 Real)(declare-const Y_0 Real)(assert (>= X_0 -1))(assert (<= X_0 1))(assert (<= Y_0 -1))"


def seconds(arguments: list[str]) -> float:
    """Wall time of one Python process."""
    began = time.perf_counter()
    subprocess.run([sys.executable, *arguments], check=True, capture_output=True)
    return time.perf_counter() - began


def main() -> None:
    """Measure in turn, so that a busy machine slows both."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--repeat", type=int, default=5)
    repeat = parser.parse_args().repeat
    with tempfile.TemporaryDirectory() as folder:
        network, prop = Path(folder) / "relu.onnx", Path(folder) / "positive.vnnlib"
        builder = GraphBuilder()
        write_network(builder.build(builder.relu(builder.input((1,)))), network)
        prop.write_text(PROPERTY)
        verify = ["-m", "bough", "verify", str(network), str(prop), "--quiet"]
        pairs = [(seconds(["-c", "import torch, onnxruntime"]), seconds(verify)) for _ in range(repeat)]
        base, whole = (median(column) for column in zip(*pairs, strict=True))
        timed = subprocess.run(
            [sys.executable, "-X", "importtime", *verify], check=True, capture_output=True, text=True
        )
    loaded = {line.rsplit("|", 1)[-1].strip() for line in timed.stderr.splitlines()}
    print(f"import torch, onnxruntime: {base:.2f} s; bough verify on a trivial problem: {whole:.2f} s")
    print(f"ratio {whole / base:.2f} (median of {repeat}, taken in turn)")
    print("loaded: " + ", ".join(p for p in HEAVY if p in loaded))
    print("not loaded: " + ", ".join(p for p in HEAVY if p not in loaded))


if __name__ == "__main__":
    main()
