"""Hold two revisions of bough against each other by 60 runs: two source trees enter, a line a run leaves.

    BOUGH_DATA=... python tools/golden.py --old ../before/src --new src [--jobs 2] [--only acasxu] [--out golden.jsonl]

Each run is one `bough verify` of either tree, on one thread of the CPU, limited by bounds and never by seconds. Equal
have to be the exit status, the verdict on standard output, the counts and bounds of the record to the last bit, and
every record of the certificate, but for the seconds and the hash in its last one. The exit status is 1 where anything
differs, or where a run of the old tree writes no record. Problems are made here, come with the old tree, or lie in
BOUGH_DATA; runs on what is not there are skipped.
"""

# ruff: noqa: T201, INP001, S603 - a program, which starts bough

import argparse
import hashlib
import json
import os
import struct
import subprocess
import sys
import tempfile
import time
import zlib
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor, as_completed
from dataclasses import dataclass
from functools import partial
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import onnx
from numpy.typing import NDArray
from onnx import TensorProto, helper, numpy_helper
from onnxruntime import InferenceSession

Array = NDArray[Any]
Question = tuple[str, str]  # network and property, as the command line takes them
Figures = dict[str, Any]  # what is compared, by name
COMMON = ("--threads", "1", "--device", "cpu")
KEYS = ("branches", "bounds", "depth", "root_lower_bound", "lower_bound", "upper_bound")  # of the record
HANGING = 300  # seconds after which a run is broken off
IR_VERSION, OPSET = 8, 17  # old enough for every ONNX Runtime that bough supports
CIFAR_MEAN, CIFAR_STD = (0.485, 0.456, 0.406), 0.225  # of the networks in BOUGH_DATA


@dataclass(frozen=True)
class Run:
    """One line of the table: a problem's name, and options of `bough verify`."""

    problem: str
    options: str
    certificate: bool = False

    @property
    def name(self) -> str:
        """Its name, by which `--only` chooses."""
        return f"{self.problem} {self.options}{' --certificate' if self.certificate else ''}"


# On a problem, by some options, with or without a certificate.
RUNS = (
    # Dual ascent
    Run("rows", "--bounds dual --branching kfsb --batch 8 --max-bounds 4000", certificate=True),
    Run("rows", "--bounds dual --branching kfsb --batch 1 --max-bounds 4000"),
    Run("rows", "--bounds dual --branching fsb --batch 64 --max-bounds 10000"),
    Run("rows", "--bounds dual --branching babsr --batch 8 --max-bounds 1000", certificate=True),
    Run("mnist-fc-refuted", "--no-attack --max-bounds 1000", certificate=True),
    Run("rows", "--bounds dual --branching strong --batch 8 --max-bounds 12000"),
    Run("rows", "--bounds dual --branching strong-product --batch 1 --max-bounds 4000"),
    Run("rows", "--bounds dual --branching strong-subset --seed 1 --batch 64 --max-bounds 12000"),
    Run("rows", "--bounds dual --branching gradient --batch 8 --max-bounds 1000"),
    Run("rows", "--bounds dual --branching earliest --batch 64 --max-bounds 2000"),
    Run("rows", "--bounds dual --branching widest --batch 1 --max-bounds 150"),
    Run("rows", "--bounds dual --branching random --seed 3 --batch 64 --max-bounds 2000", certificate=True),
    Run("dense", "--bounds dual --branching kfsb --intermediate fixed --batch 64 --max-bounds 4000", certificate=True),
    Run("dense", "--bounds dual --branching babsr --intermediate paper --batch 8 --max-bounds 1000"),
    Run("dense", "--bounds dual --branching babsr --intermediate tight --batch 64 --max-bounds 1000"),
    Run("clauses", "--bounds dual --seed 5 --max-bounds 4000"),
    Run("pooled", "--bounds dual --branching kfsb --batch 8 --max-bounds 2000", certificate=True),
    Run("pooled", "--bounds dual --branching babsr --semantics float32 --batch 64 --max-bounds 1000"),
    Run("pooled", "--bounds dual --branching kfsb --minimise 0.02 --batch 8 --max-bounds 2000"),
    Run("figure-refuted", "--bounds dual --branching kfsb --no-attack --batch 8 --max-bounds 2000", certificate=True),
    Run("touching", "--bounds dual --max-bounds 100"),
    Run("digit", "--bounds dual --branching gnn --batch 64 --max-bounds 500"),
    Run("acasxu-3", "--bounds dual --branching gnn-online --weights joint --batch 8 --max-bounds 500"),
    Run("digit-deep", "--bounds dual --branching kfsb --batch 64 --max-bounds 1000"),
    Run("photograph", "--max-bounds 1000"),
    Run("photograph", "--bounds dual --branching learnt-local --batch 64 --max-bounds 1000", certificate=True),
    Run("photograph", "--bounds dual --branching gnn --batch 8 --max-bounds 500"),
    Run("photograph", "--bounds dual --branching gnn-r --batch 64 --max-bounds 500"),
    Run("oval21", "--bounds dual --branching kfsb --batch 1 --max-bounds 300"),
    Run("acasxu-3", "--bounds dual --branching babsr --batch 64 --max-bounds 2000"),
    Run("sat-relu", "--bounds dual --max-bounds 2000", certificate=True),
    Run("tll", "--bounds dual --branching fsb --batch 64 --max-bounds 3000"),
    # The Planet LP
    Run("rows", "--bounds lp --branching babsr --batch 8 --max-bounds 400", certificate=True),
    Run("rows", "--bounds lp --branching kfsb --intermediate fixed --batch 64 --max-bounds 1500", certificate=True),
    Run("rows", "--bounds lp --branching strong-product --batch 1 --max-bounds 1500"),
    Run("dense", "--bounds lp --branching babsr --intermediate paper --batch 1 --max-bounds 300"),
    Run("dense", "--bounds lp --branching fsb --intermediate optimised --batch 8 --max-bounds 400"),
    Run("dense", "--bounds lp --branching kfsb --batch 1 --max-bounds 1000"),
    Run("dense", "--bounds lp --branching babsr --minimise 0.05 --batch 8 --max-bounds 400"),
    Run("clauses-refuted", "--bounds lp --branching babsr --no-attack --batch 8 --max-bounds 400", certificate=True),
    Run("pooled", "--bounds lp --branching random --seed 7 --batch 8 --max-bounds 200"),
    Run("pooled", "--bounds lp --branching gradient --semantics float32 --batch 64 --max-bounds 200"),
    Run("figure", "--bounds lp --branching gnn --batch 8 --max-bounds 100"),
    Run("touching", "--max-bounds 100"),
    Run("acasxu-6", "--bounds lp --branching widest --batch 8 --max-bounds 50"),
    Run("mnist-fc", "--bounds lp --branching kfsb --intermediate tight --batch 8 --max-bounds 200"),
    # The LP over halved inputs
    Run("rows", "--bounds lp --branching shadow --batch 64 --max-bounds 400"),
    Run("pendulum", "--branching shadow --batch 8 --max-bounds 300"),
    Run("dense", "--bounds lp --branching smear --batch 1 --max-bounds 300"),
    # Linear bounds over halved inputs
    Run("dense", "--bounds linear --branching babsb --batch 8 --max-bounds 2000", certificate=True),
    Run("rows", "--bounds linear --branching combined --batch 64 --max-bounds 20000", certificate=True),
    Run("rows", "--bounds linear --branching smear --semantics float32 --batch 64 --max-bounds 3000"),
    Run("dense", "--bounds linear --branching longest --minimise 0.1 --batch 8 --max-bounds 2000"),
    Run("acasxu-3", "--max-bounds 6000"),
    Run("acasxu-3", "--bounds linear --branching smear --batch 64 --max-bounds 3000", certificate=True),
    Run("acasxu-6", "--bounds linear --branching longest --batch 64 --max-bounds 2000"),
    Run(
        "acasxu-refuted", "--bounds linear --branching smear --no-attack --batch 64 --max-bounds 4000", certificate=True
    ),
    Run("pendulum", "--bounds linear --branching combined --batch 1 --max-bounds 500"),
    Run("tll", "--bounds linear --branching babsb --batch 64 --max-bounds 2000"),
    Run("tll", "--bounds linear --branching smear --batch 8 --max-bounds 2000", certificate=True),
)


# Problems


class Layers:
    """A network under construction: layers enter one by one, an ONNX file leaves."""

    def __init__(self, shape: Sequence[int], seed: int) -> None:
        self._shape, self._random = [1, *shape], np.random.default_rng(seed)
        self._nodes: list[onnx.NodeProto] = []
        self._weights: list[onnx.TensorProto] = []
        self.last = "X"

    def random(self, *shape: int) -> Array:
        """Weights for as many inputs as there are on the axes after the first."""
        spread = np.prod(shape[1:]) ** -0.5 if len(shape) > 1 else 0.1
        return (spread * self._random.standard_normal(shape)).astype(np.float32)

    def add(self, kind: str, *weights: Array, beside: str | None = None, **attributes: Any) -> str:
        """Put a layer behind the last one; a second input may stand beside that."""
        name = f"{kind}_{len(self._nodes)}"
        inputs = [self.last] if beside is None else [self.last, beside]
        for place, weight in enumerate(weights):
            inputs.append(f"{name}_{place}")
            self._weights.append(numpy_helper.from_array(weight, inputs[-1]))
        self._nodes.append(helper.make_node(kind, inputs, [name], name, **attributes))
        self.last = name
        return name

    def write(self, path: Path, outputs: int) -> str:
        """The file's name."""
        first = helper.make_tensor_value_info("X", TensorProto.FLOAT, self._shape)
        last = helper.make_tensor_value_info(self.last, TensorProto.FLOAT, [1, outputs])
        graph = helper.make_graph(self._nodes, "golden", [first], [last], self._weights)
        model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", OPSET)], ir_version=IR_VERSION)
        path.write_bytes(model.SerializeToString())
        return str(path)


def write_property(path: Path, lower: Array, upper: Array, outputs: int, unsafe: str) -> str:
    """A VNN-LIB file about one box; its name."""
    lines = [f"(declare-const X_{k} Real)" for k in range(lower.size)]
    lines += [f"(declare-const Y_{k} Real)" for k in range(outputs)]
    for k, (low, high) in enumerate(zip(lower.ravel().tolist(), upper.ravel().tolist(), strict=True)):
        lines += [f"(assert (>= X_{k} {low:.17f}))", f"(assert (<= X_{k} {high:.17f}))"]
    path.write_text("\n".join([*lines, unsafe, ""]), encoding="utf-8")
    return str(path)


def outputs_of(network: str, points: Array) -> Array:
    """What ONNX Runtime computes for points of any shape, [points, outputs]."""
    session = InferenceSession(network, providers=["CPUExecutionProvider"])
    first = session.get_inputs()[0]
    shape = [side if isinstance(side, int) else 1 for side in first.shape]
    rows = [session.run(None, {first.name: point.reshape(shape).astype(np.float32)})[0] for point in points]
    return np.stack([row.ravel() for row in rows])


def dense(seed: int, widths: tuple[int, ...], slack: float, unsafe: str, folder: Path) -> Question:
    """A random network over [-1, 1], and outputs beyond what samples reach by a share of their spread."""
    layers = Layers(widths[:1], seed)
    for before, after in pairwise(widths[:-1]):
        layers.add("Gemm", layers.random(after, before), layers.random(after), transB=1)
        layers.add("Relu")
    layers.add("Gemm", layers.random(widths[-1], widths[-2]), layers.random(widths[-1]), transB=1)
    network = layers.write(folder / "dense.onnx", widths[-1])
    samples = outputs_of(network, np.random.default_rng(seed).uniform(-1, 1, (1000, widths[0])))
    limits = samples.min(axis=0) - slack * np.ptp(samples, axis=0)
    box = np.ones(widths[0])
    condition = unsafe.format(*(f"{limit:.17f}" for limit in limits))
    return network, write_property(folder / "dense.vnnlib", -box, box, widths[-1], condition)


def pooled(radius: float, folder: Path) -> Question:
    """A small random network with most kinds of layers, and an image that is to keep its class."""
    layers = Layers((1, 8, 8), 5)
    layers.add("Conv", layers.random(4, 1, 3, 3), layers.random(4), pads=[1] * 4)
    one, some = np.ones(4, np.float32), np.abs(layers.random(4))
    layers.add("BatchNormalization", one + some, some, some, one + some)
    layers.add("Relu")
    before = layers.add("MaxPool", kernel_shape=[2, 2], strides=[2, 2])
    layers.add("Conv", layers.random(4, 4, 3, 3), layers.random(4), pads=[1] * 4)
    layers.add("Relu")
    layers.add("Add", beside=before)
    layers.add("AveragePool", kernel_shape=[2, 2], strides=[2, 2])
    layers.add("Flatten")
    layers.add("Gemm", layers.random(12, 16), layers.random(12), transB=1)
    layers.add("Relu")
    layers.add("Gemm", layers.random(4, 12), layers.random(4), transB=1)
    network = layers.write(folder / "pooled.onnx", 4)
    return network, surroundings(folder, network, np.random.default_rng(5).uniform(0, 1, (8, 8)), radius, clip=True)


def touching(folder: Path) -> Question:
    """A ReLU whose least value, 0, is reached, and unsafe below it: neither refuted nor provably safe."""
    layers = Layers((1,), 0)
    layers.add("Relu")
    network, one = layers.write(folder / "relu.onnx", 1), np.ones(1)
    return network, write_property(folder / "relu.vnnlib", -one, one, 1, "(assert (< Y_0 0.0))")


def surroundings(
    folder: Path, network: str, centre: Array, radius: float, target: int | None = None, *, clip: bool
) -> str:
    """The property that no point around one is given another class, or the target's."""
    scores = outputs_of(network, centre[None])[0]
    label = int(scores.argmax())
    limits = (0, 1) if clip else (-np.inf, np.inf)
    lower, upper = (np.clip(centre + change, *limits) for change in (-radius, radius))
    others = [k for k in range(len(scores)) if k != label] if target is None else [target]
    rows = " ".join(f"(and (>= Y_{k} Y_{label}))" for k in others)
    return write_property(folder / "around.vnnlib", lower, upper, len(scores), f"(assert (or {rows}))")


def shipped(old: Path, name: str) -> Path:
    """A network that comes with bough, wherever it lies in the tree."""
    path = next(old.rglob(f"{name}.onnx"), None)
    if path is None:
        raise FileNotFoundError(f"{name}.onnx in {old}")
    return path


def figure(radius: float, old: Path, folder: Path) -> Question:
    """The demo's network, and a cross drawn here."""
    network = str(shipped(old, "shapes"))
    image = np.full((16, 16), 0.2)
    image[7:9, 3:13] = 0.9
    image[3:13, 7:9] = 0.9
    return network, surroundings(folder, network, image, radius, clip=True)


def digit(network: str, image: int, target: int, radius: float, old: Path, data: Path, folder: Path) -> Question:
    """A network that comes with bough, and a test image of MNIST."""
    with np.load(data / "data/images/mnist.npz") as images:
        pixels = images["test_images"][image].astype(np.float64) / 255
    return network, surroundings(folder, str(shipped(old, network)), pixels, radius, target, clip=True)


def photograph(image: int, target: int, radius: float, data: Path, folder: Path) -> Question:
    """The paper's smallest network, and a training image of CIFAR-10; the radius is in the network's own units."""
    with np.load(data / "data/images/cifar10_part.npz") as images:
        place = int(np.flatnonzero(images["train_index"] == image)[0])
        pixels = images["train_images"][place].astype(np.float64) / 255
    centre = (pixels - np.array(CIFAR_MEAN)[:, None, None]) / CIFAR_STD
    path = str(data / "data/networks/cifar_base_kw.onnx")
    return path, surroundings(folder, path, centre, radius, target, clip=False)


def listed(benchmark: str, network: str, property_name: str, data: Path, _: Path) -> Question:
    """An instance of a competition, which lies where it is."""
    folder = data / "vnncomp" / benchmark
    question = folder / "onnx" / f"{network}.onnx", folder / "vnnlib" / f"{property_name}.vnnlib"
    for path in question:
        if not any(path.with_name(path.name + ending).exists() for ending in ("", ".gz")):
            raise FileNotFoundError(path)
    return str(question[0]), str(question[1])


def problems(old: Path, data: Path) -> dict[str, Callable[[Path], Question]]:
    """By name: what makes a problem in a folder, or raises `FileNotFoundError` where its data are not there."""
    both = "(assert (<= Y_0 {0}))(assert (<= Y_1 {1}))"
    either = "(assert (or (and (<= Y_0 {0})) (and (<= Y_1 {1}) (<= Y_2 {2}))))"
    acasxu = "ACASXU_run2a_{}_batch_2000".format
    return {
        "dense": partial(dense, 1, (5, 20, 20, 1), 0.2, "(assert (<= Y_0 {0}))"),
        "rows": partial(dense, 2, (6, 24, 24, 2), 0.3, both),
        "clauses": partial(dense, 2, (8, 24, 24, 3), 0.8, either),
        "clauses-refuted": partial(dense, 1, (8, 24, 24, 3), 0.4, either),
        "pooled": partial(pooled, 0.17),
        "touching": touching,
        "figure": partial(figure, 0.09, old),
        "figure-refuted": partial(figure, 0.1, old),
        "digit": partial(digit, "mnist_base", 494, 2, 0.1444, old, data),
        "digit-deep": partial(digit, "mnist_deep", 1004, 6, 0.1908, old, data),
        "photograph": partial(photograph, 10181, 2, 0.1128, data),
        "oval21": partial(listed, "oval21", "cifar_base_kw", "cifar_base_kw-img4631-eps0.016339869281045753", data),
        "acasxu-3": partial(listed, "acasxu_2023", acasxu("1_1"), "prop_3", data),
        "acasxu-6": partial(listed, "acasxu_2023", acasxu("1_1"), "prop_6", data),
        "acasxu-refuted": partial(listed, "acasxu_2023", acasxu("1_2"), "prop_2", data),
        "mnist-fc-refuted": partial(listed, "mnist_fc", "mnist-net_256x2", "prop_2_0.03", data),
        "mnist-fc": partial(listed, "mnist_fc", "mnist-net_256x2", "prop_6_0.03", data),
        "sat-relu": partial(listed, "sat_relu", "unsat_v30_c44", "unsat_v30_c44", data),
        "tll": partial(listed, "tllverifybench_2023", "tllBench_n=2_N=M=8_m=1_instance_0_0", "property_N=8_0", data),
        "pendulum": partial(listed, "cersyve", "pendulum_finetune_con", "prop_pendulum", data),
    }


# Runs


def answer(tree: Path, run: Run, question: Question, folder: Path) -> Figures:
    """What one tree says: the figures that are compared, `seconds`, and `trouble` where there is no record."""
    record, proof = folder / "record.json", folder / "proof"
    for path in (record, proof):
        path.unlink(missing_ok=True)
    words = [*question, *COMMON, "--quiet", "--json", str(record), *run.options.split()]
    if run.certificate:
        words += ["--certificate", str(proof)]
    began = time.perf_counter()
    try:
        process = bough(tree, ["-m", "bough", "verify", *words], folder)
    except subprocess.TimeoutExpired:
        return {"trouble": f"no end within {HANGING} s", "seconds": float(HANGING)}
    figures: Figures = {"status": process.returncode, "verdict": process.stdout.strip()}
    if record.exists():
        entry = json.loads(record.read_text(encoding="utf-8"))
        figures |= {key: entry.get(key) for key in KEYS}
    else:
        figures["trouble"] = (process.stderr.strip().splitlines() or ["no record"])[-1]
    if proof.exists():
        try:
            figures["certificate"] = [f"{tag} {hashlib.sha256(part).hexdigest()}" for tag, part in chunks(proof)]
        except (struct.error, zlib.error) as error:
            figures["trouble"] = f"unreadable certificate: {error}"
    return figures | {"seconds": time.perf_counter() - began}


def bough(tree: Path, arguments: Sequence[str], folder: Path) -> "subprocess.CompletedProcess[str]":
    """A Python process that finds bough in a tree."""
    # What has left the package for the experiments' library is found beside the tree.
    path = os.pathsep.join((str(tree), str(tree.parent / "experiments")))
    environment = {**os.environ, "PYTHONPATH": path, "OMP_NUM_THREADS": "1"}
    return subprocess.run(
        [sys.executable, *arguments],
        cwd=folder,
        env=environment,
        capture_output=True,
        text=True,
        timeout=HANGING,
        check=False,
    )


FRAME = struct.Struct(">4sIIII")  # of a chunk: tag, number, bytes, bytes when decompressed, checksum
ARRAY = struct.Struct(">BI")  # of an array with one axis: its type's place in WIDTHS, and its length
WIDTHS = (1, 2, 4, 8, 8)  # bytes
MAGIC = 8  # bytes before the first chunk


def chunks(path: Path) -> Iterator[tuple[str, bytes]]:
    """Tag and contents of every chunk of a certificate; of the last one, verdict and number of leaves only."""
    data, place = path.read_bytes(), MAGIC
    while place < len(data):
        tag, _, length, _, _ = FRAME.unpack_from(data, place)
        place += FRAME.size
        contents = zlib.decompress(data[place : place + length])
        place += length
        if tag == b"END ":
            arrays = [ARRAY.unpack_from(contents, k * ARRAY.size) for k in range(4)]
            first = 4 * ARRAY.size
            size = sum(WIDTHS[kind] * count for kind, count in arrays[:2])
            contents = repr(arrays[:2]).encode() + contents[first : first + size]
        yield tag.decode().strip(), contents


def differences(old: Figures, new: Figures) -> list[str]:
    """What is not equal, in words."""
    changes = []
    for key in sorted({*old, *new} - {"seconds"}):
        before, after = old.get(key), new.get(key)
        if before == after:
            continue
        if key == "certificate" and before and after:
            pairs = enumerate(zip(before, after, strict=False))
            place = next((k for k, pair in pairs if pair[0] != pair[1]), min(len(before), len(after)))
            changes.append(f"certificate from chunk {place} on ({len(before)} -> {len(after)} chunks)")
        else:
            changes.append(f"{key} {before} -> {after}")
    return changes


def compare(run: Run, make: Callable[[Path], Question], trees: tuple[Path, Path]) -> dict[str, Any]:
    """Both trees' answers to a run, and the differences; `skipped` instead where the problem's data are not there."""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        try:
            question = make(folder)
        except FileNotFoundError as error:
            return {"run": run.name, "skipped": f"no {error.filename or error}"}
        old, new = (answer(tree, run, question, folder) for tree in trees)
    return {"run": run.name, "old": old, "new": new, "differences": differences(old, new)}


def line(entry: dict[str, Any]) -> str:
    """An entry as a line, and one more for each difference."""
    if "skipped" in entry:
        return f"skipped    {entry['run']}: {entry['skipped']}"
    old, new = entry["old"], entry["new"]
    figures = [old["trouble"]] if "trouble" in old else [old["verdict"], *(f"{key} {old[key]}" for key in KEYS)]
    if "certificate" in old:
        figures.append(f"{len(old['certificate'])} chunks")
    seconds = f"{old['seconds']:.1f} s, {new['seconds']:.1f} s"
    word = "DIFFERENT" if entry["differences"] else "FAILED" if "trouble" in old else "same"
    more = "".join(f"\n                 {difference}" for difference in entry["differences"])
    return f"{word:10s} {entry['run']}: {', '.join(figures)}; {seconds}{more}"


def check_tree(tree: Path) -> None:
    """End the program unless Python finds bough in this tree."""
    with tempfile.TemporaryDirectory() as folder:
        process = bough(tree, ["-c", "import bough; print(bough.__file__)"], Path(folder))
    if not Path(process.stdout.strip()).is_relative_to(tree):
        raise SystemExit(f"{tree} holds no bough, or another one comes first: {process.stdout or process.stderr}")


def main() -> int:
    """Run all, print a line each and a summary."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--old", type=Path, required=True, help="the source tree that is right")
    parser.add_argument("--new", type=Path, default=Path("src"), help="the source tree to compare with it")
    parser.add_argument("--jobs", type=int, default=1, help="runs at a time")
    parser.add_argument("--only", default="", metavar="SUBSTRING", help="runs whose line holds this")
    parser.add_argument("--out", type=Path, metavar="FILE", help="the figures as JSON lines")
    options = parser.parse_args()
    trees = options.old.resolve(), options.new.resolve()
    for tree in trees:
        check_tree(tree)
    makers = problems(trees[0], Path(os.environ.get("BOUGH_DATA", "../shared")).resolve())
    chosen = [run for run in RUNS if options.only in run.name]
    began, entries = time.perf_counter(), []
    if options.out:
        options.out.write_text("", encoding="utf-8")
    with ThreadPoolExecutor(options.jobs) as pool:
        waiting = [pool.submit(compare, run, makers[run.problem], trees) for run in chosen]
        for finished in as_completed(waiting):
            entry = finished.result()
            entries.append(entry)
            print(f"{len(entries):2d}/{len(chosen)} {line(entry)}", flush=True)
            if options.out:
                with options.out.open("a", encoding="utf-8") as file:
                    file.write(json.dumps(entry) + "\n")
    compared = [entry for entry in entries if "skipped" not in entry]
    different = sum(bool(entry["differences"]) for entry in compared)
    failed = sum("trouble" in entry["old"] for entry in compared)
    verdicts = Counter(entry["old"].get("verdict", "") for entry in compared)
    print(
        f"{len(compared)} runs: {len(compared) - different} same, {different} different, {failed} failed, "
        f"{len(entries) - len(compared)} skipped; {time.perf_counter() - began:.0f} s; of old: "
        + ", ".join(f"{count} {verdict or 'nothing'}" for verdict, count in verdicts.most_common())
    )
    return 1 if different or failed or not compared else 0


if __name__ == "__main__":
    sys.exit(main())
