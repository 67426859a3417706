"""Damaged and hostile files for every reader: a result or a `BoughError` may come out, within time and memory.

    python -m tests.security.fuzz [--seconds 60] [--seed 0] [--only onnx,...]

Every reader runs in a process of its own, whose memory is limited; an input that ends it, or takes it too long, is
found beside the report. Inputs are valid files with bits flipped, ends cut off, parts repeated or swapped between two,
numbers made huge; networks are also damaged as what they mean (lengths, attributes, operators, wires), and certificates
as the arrays that they are, with new checksums. The property that certificates are checked against is unsafe, so that
`valid` is always a finding.
"""

# ruff: noqa: T201, C901, PLR0912, PIE800 - a program, with one long list of kinds of damage

import argparse
import contextlib
import io
import json
import os
import random
import resource
import signal
import subprocess
import sys
import tempfile
import time
import traceback
import warnings
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, fields, replace
from pathlib import Path
from typing import Any

DEADLINE = 30.0  # seconds for one input; the slowest takes about one on an idle machine
MEMORY = 3 << 30  # bytes that a reader may take beyond what its libraries do
WORDS = ("Unable to allocate", "alloc_cpu", "MemoryError", "bad_alloc", "not enough memory")  # a bomb that was survived
HUGE = ("9" * 30, "-" + "9" * 400, "1e308", "1e999", "4294967296", "9223372036854775807", "-1", "0", "NaN", "1" * 5000)
NUMBERS = (-1, 0, 1, 2, 7, 1 << 16, 1 << 20, (1 << 31) - 1, 1 << 31, 1 << 40, (1 << 63) - 1, -(1 << 63))


def damage(data: bytes, other: bytes, chance: random.Random) -> bytes:
    """A file with a few things wrong."""
    mutated = bytearray(data)
    for _ in range(chance.randint(1, 4)):
        at = chance.randrange(len(mutated) + 1)
        kind = chance.randrange(8)
        if kind == 0 and mutated:
            mutated[at % len(mutated)] ^= 1 << chance.randrange(8)
        elif kind == 1 and mutated:
            mutated[at % len(mutated)] = chance.choice((0, 1, 127, 128, 255, 40, 41, 91, 123, 34))
        elif kind == 2:
            del mutated[at:]
        elif kind == 3:
            del mutated[at : at + chance.randint(1, 40)]
        elif kind == 4:
            mutated[at:at] = mutated[at : at + chance.randint(1, 60)] * chance.choice((1, 2, 50))
        elif kind == 5:
            start = chance.randrange(len(other) + 1)
            mutated[at : at + chance.randint(0, 60)] = other[start : start + chance.randint(1, 60)]
        elif kind == 6:
            digits = [k for k, byte in enumerate(mutated) if 48 <= byte < 58]
            if digits:
                first = last = chance.choice(digits)
                while last < len(mutated) and 48 <= mutated[last] < 58:
                    last += 1
                mutated[first:last] = chance.choice(HUGE).encode()
        else:
            mutated[at:at] = chance.choice(
                (b"(", b")", b"[" * 3000, b"{" * 3, b"(and " * 2000, b"\0", b"\xff\xfe", b'"')
            )
    return bytes(mutated)


def damage_model(data: bytes, chance: random.Random) -> bytes:
    """A network of which something is another: shapes, attributes, operators, wires, or where tensors are stored."""
    import onnx

    from bough.problem.onnx import SUPPORTED

    model = onnx.ModelProto.FromString(data)
    graph = model.graph
    for _ in range(chance.randint(1, 3)):
        kind = chance.randrange(8)
        node = chance.choice(graph.node) if graph.node else None
        names = [*(v for n in graph.node for v in n.output), *(t.name for t in graph.initializer), "x", ""]
        if kind == 0 and graph.initializer:
            tensor = chance.choice(graph.initializer)
            if tensor.dims:
                tensor.dims[chance.randrange(len(tensor.dims))] = chance.choice(NUMBERS)
        elif kind == 1 and graph.initializer:
            tensor = chance.choice(graph.initializer)
            tensor.data_type = chance.choice((1, 2, 3, 6, 7, 8, 9, 10, 11, 16, 17, 21, 22))
        elif kind == 2 and graph.initializer:
            tensor = chance.choice(graph.initializer)
            tensor.external_data.add(key="location", value=chance.choice(("/etc/passwd", "../a", "link", "a/../../b")))
            tensor.data_location = chance.choice((0, 1))
        elif kind == 3 and node is not None:
            node.op_type = chance.choice(SUPPORTED)
        elif kind == 4 and node is not None and node.input:
            node.input[chance.randrange(len(node.input))] = chance.choice(names)
        elif kind == 5 and node is not None:
            name = chance.choice(
                ("axis", "axes", "pads", "strides", "kernel_shape", "dilations", "group", "perm", "to")
            )
            value = [chance.choice(NUMBERS) for _ in range(chance.choice((1, 2, 4)))]
            attribute = onnx.helper.make_attribute(name, chance.choice((value, value[0])))
            node.attribute.append(attribute)
        elif kind == 6 and node is not None:
            for attribute in node.attribute:
                if attribute.ints:
                    attribute.ints[chance.randrange(len(attribute.ints))] = chance.choice(NUMBERS)
        elif kind == 7 and graph.input:
            dims = graph.input[0].type.tensor_type.shape.dim
            if dims:
                dims[chance.randrange(len(dims))].dim_value = chance.choice(NUMBERS)
    return bytes(model.SerializeToString())


def damage_certificate(data: bytes, chance: random.Random) -> bytes:
    """A certificate of which some arrays are others, in number, shape or size; with sound checksums."""
    import numpy as np
    from soundness.damage import sealed

    from bough.verdict.certificate import LAYOUT, VERDICTS, read

    chunks: list[Any] = list(read(io.BytesIO(data)))[:-1]
    for _ in range(chance.randint(1, 4)):
        at = chance.randrange(1, len(chunks))
        if chance.random() < 0.15:
            other = chance.randrange(1, len(chunks))
            chunks[at], chunks[other] = chunks[other], chunks[at]
            continue
        chunk = chunks[at]
        names = [field.name for field in fields(chunk)]
        name = chance.choice(names)
        dtype, _ = LAYOUT[type(chunk)][names.index(name)]
        array = np.array(getattr(chunk, name), dtype=dtype)
        if chance.random() < 0.4:
            sides = tuple(max(0, n + chance.choice((-1, 0, 0, 1, 2, 500))) for n in array.shape)
            array = np.resize(array, sides) if array.size else np.zeros(sides, dtype)
        if array.size:
            most = (1 << 8 * np.dtype(dtype).itemsize) - 1
            wild = (0.0, -1.0, 1e300, -1e300, 5e-324, np.nan, np.inf) if dtype == "f8" else (0, 1, 2, 4, 8, 63, most)
            flat = array.reshape(-1)
            for _ in range(chance.choice((1, 1, 3, flat.size))):
                flat[chance.randrange(flat.size)] = chance.choice(wild)
        chunks[at] = replace(chunk, **{name: array})
    verdict = chance.choice((VERDICTS[0], VERDICTS[0], VERDICTS[0], *VERDICTS))
    return sealed(chunks, verdict, count=chance.choice((None, None, None, 0, (1 << 64) - 1)))


@dataclass(frozen=True)
class Target:
    """A reader: what it is given, and how it reads it."""

    seeds: tuple[bytes, ...]
    read: Callable[[bytes, Path], object]
    deeper: Callable[[bytes, random.Random], bytes] | None = None  # damages what a file means

    def next(self, chance: random.Random) -> bytes:
        """One more input."""
        data, other = chance.choice(self.seeds), chance.choice(self.seeds)
        if self.deeper is not None and chance.random() < 0.6:
            with contextlib.suppress(Exception):  # damage that cannot be written down
                return self.deeper(data, chance)
        return damage(data, other, chance)


def _written(folder: Path, name: str, data: bytes) -> Path:
    path = folder / name
    path.write_bytes(data)
    return path


def _networks() -> tuple[bytes, ...]:
    import torch
    from tests.support import convolutional, dense, generator, pooled, residual

    from bough.problem.onnx_writer import write_network

    files = tuple(write_network(make(generator(k))) for k, make in enumerate((dense, convolutional, residual, pooled)))
    torch.manual_seed(0)
    return files + _file_operators()


def _file_operators() -> tuple[bytes, ...]:
    """Networks of the operators that bough's own writer does not use."""
    import numpy as np
    from onnx import TensorProto, helper, numpy_helper

    def tensor(name: str, values: object, kind: type = np.float32) -> TensorProto:
        return numpy_helper.from_array(np.asarray(values, kind), name)

    def model(nodes: list[Any], tensors: list[TensorProto], shape: tuple[int, ...]) -> bytes:
        ends = [helper.make_tensor_value_info(n, TensorProto.FLOAT, s) for n, s in (("x", shape), ("y", (1, 2)))]
        graph = helper.make_graph(nodes, "g", ends[:1], ends[1:], tensors)
        proto = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)
        return bytes(proto.SerializeToString())

    node = helper.make_node
    pooling = [
        node("Pad", ["x", "pads"], ["p"]),
        node("Conv", ["p", "w"], ["c"], strides=[1, 1], pads=[1, 1, 1, 1], dilations=[1, 1], group=1),
        node("BatchNormalization", ["c", "v", "v", "v", "v"], ["n"], epsilon=1e-5),
        node("Relu", ["n"], ["r"]),
        node("MaxPool", ["r"], ["m"], kernel_shape=[2, 2], strides=[2, 2]),
        node("AveragePool", ["m"], ["a"], kernel_shape=[2, 2], strides=[1, 1]),
        node("GlobalAveragePool", ["a"], ["g"]),
        node("Flatten", ["g"], ["f"], axis=1),
        node("Gemm", ["f", "u"], ["y"], alpha=0.5, transB=1),
    ]
    shapes = [
        node("Shape", ["x"], ["s"]),
        node("Gather", ["s", "zero"], ["b"], axis=0),
        node("Unsqueeze", ["b", "zeros"], ["b1"]),
        node("Concat", ["b1", "minus"], ["to"], axis=0),
        node("Reshape", ["x", "to"], ["f"]),
        node("ConstantOfShape", ["two"], ["fill"]),
        node("Expand", ["one", "two"], ["e"]),
        node("Add", ["fill", "e"], ["k"]),
        node("Transpose", ["f"], ["t"], perm=[1, 0]),
        node("Slice", ["t", "zeros", "twos"], ["sl"]),
        node("Transpose", ["sl"], ["st"], perm=[1, 0]),
        node("Mul", ["st", "k"], ["mu"]),
        node("ReduceSum", ["mu", "ones"], ["su"], keepdims=1),
        node("Sub", ["mu", "su"], ["d"]),
        node("Relu", ["d"], ["y"]),
    ]
    numbers = {"zero": 0, "zeros": [0], "minus": [-1], "two": [1, 2], "twos": [2], "ones": [1]}
    stored = [tensor(name, value, np.int64) for name, value in numbers.items()]
    return (
        model(
            pooling,
            [
                tensor("pads", [0, 0, 0, 1, 0, 0, 1, 0], np.int64),
                tensor("w", np.ones((3, 1, 2, 2))),
                tensor("v", np.ones(3)),
                tensor("u", np.ones((2, 3))),
            ],
            (1, 1, 4, 4),
        ),
        model(shapes, [*stored, tensor("one", [1.0])], (1, 2, 2)),
    )


PROPERTY = b"""; two inputs, two outputs
(declare-const X_0 Real)
(declare-fun X_1 () Real)
(declare-const Y_0 Real)
(declare-const Y_1 Real)
(assert (and (>= X_0 -1.0) (<= X_0 1.0)))
(assert (or (and (>= X_1 -1.0) (<= X_1 0.25)) (and (not (< X_1 0.5)) (<= X_1 1.0))))
(assert (or (and (<= Y_0 -0.5)) (and (>= (+ (* 2.0 Y_1) Y_0) 2.5) (<= (- Y_0 3.5e-1) 0.25))))
"""
PROPERTY2 = b"""(vnnlib-version <2.0>)
(declare-network f (declare-input X float32 [1,2]) (declare-output Y float32 [2]))
(assert (and (>= X[0,0] -1.0) (<= X[0,0] 1.0) (>= X[0,1] -1.0) (<= X[0,1] 1.0)))
(assert (or (<= Y[0] -0.5) (and (>= Y[1] 2.5) (<= (+ (* 2.0 Y[0]) Y[1]) 0.25))))
"""


def _read_property(data: bytes, folder: Path) -> object:
    from bough.problem.vnnlib import read_property

    return read_property(_written(folder, "a.vnnlib", data))


def _read_zipped(data: bytes, folder: Path) -> object:
    from bough.problem.vnnlib import read_property

    return read_property(_written(folder, "a.vnnlib.gz", data))


def _read_network(data: bytes, folder: Path) -> object:
    from bough.api import load_network

    return load_network(_written(folder, "a.onnx", data))


def _read_records(data: bytes, folder: Path) -> object:
    from bough.bench.ledger import read_records

    return read_records(_written(folder, "a.jsonl", data))


def _read_instances(data: bytes, folder: Path) -> object:
    from bough.problem.instances import read_instances

    for name in ("a.onnx", "a.vnnlib"):
        _written(folder, name, b"")
    return read_instances(_written(folder, "a.csv", data))


def _read_table(data: bytes, folder: Path) -> object:
    from bough.zoo.table import read_table

    return read_table(_written(folder, "a.csv", data))


def _read_manifest(data: bytes, folder: Path) -> object:
    from bough.learning.dataset import read_shards

    _written(folder, "samples.jsonl", data)
    return list(read_shards(folder))


def _read_shard(data: bytes, folder: Path) -> object:
    from tests.support import dense, generator

    from bough.learning.dataset import read_shard

    return read_shard(_written(folder, "a.safetensors", data), dense(generator(0)))


def _read_weights(data: bytes, folder: Path) -> object:
    from bough.learning.weights import load

    return load(_written(folder, "a.safetensors", data))


def _read_image(data: bytes, folder: Path) -> object:
    from bough.problem.images import read_image

    suffix = ".npy" if data[:2] == b"\x93N" else ".npz" if data[:2] == b"PK" else ".png"
    return read_image(_written(folder, f"a{suffix}", data))


def _read_log(data: bytes, folder: Path) -> object:
    from bough.making.properties import ProbeLog

    return ProbeLog(_written(folder, "a.log", data), RECIPE, lambda _: None)


def _unsafe() -> Any:
    """A problem that nothing proves, small, with two clauses."""
    from tests.verdict.certificates import made, unsafe_twin

    return unsafe_twin(made("dense", 3, "dual")[0].problem)


def _read_certificate(data: bytes, folder: Path) -> object:
    from bough.errors import CertificateError
    from bough.verdict.check import Outcome, check

    report = check(_unsafe(), _written(folder, "a.proof", data))
    if report.outcome is not Outcome.VALID:
        raise CertificateError(report.reason)
    if report.verdict == "verified":
        raise AssertionError(f"an unsafe property is called proved: {report}")
    return report


def _certificates() -> tuple[bytes, ...]:
    """Proofs by every kind of bounds, said to be about an unsafe property."""
    from soundness.damage import sealed
    from tests.verdict.certificates import made, question

    from bough.verdict.certificate import read

    problem, certificates = _unsafe(), []
    for bounds, relu_bounds in (("dual", "auto"), ("dual", "trees"), ("lp", "auto"), ("linear", "auto")):
        chunks = list(read(io.BytesIO(made("dense", 3, bounds, relu_bounds=relu_bounds)[1])))
        certificates.append(sealed([question(problem), *chunks[1:-1]], "verified"))
    return tuple(certificates)


RECIPE = {"dataset": "dots", "seed": 0}


def _records() -> tuple[bytes, ...]:
    from bough.report.record import Run, Settings, record

    run = Run("a.onnx", "a.vnnlib", "bab", Settings("lp", "tight", "babsr", 8, 0, 60.0))
    entry = record(run, None, "broken")
    return tuple((json.dumps({**entry, "seed": k}) + "\n").encode() * (k + 1) for k in range(3))


def _table() -> tuple[bytes, ...]:
    from bough.zoo.table import Row, as_text

    row = Row("cifar10", "test", "n", 3, 1, 2, 0.01, True, False, "bab", "verified", 4, 9, 1.5, "cpu", "easy", "test")
    return (as_text([row, row]).encode(), as_text([row]).encode())


CARD = {
    **{"name": "p-3", "network": "n", "sha256": "ab" * 32, "dataset": "cifar10", "split": "test", "image": 3},
    **{"label": 1, "target": 2, "eps": 0.01, "normalised": True, "clip": False, "seed": 0, "bounder": "dual"},
    **{"rule": "strong", "mode": "full", "samples": 1, "revision": None},
}


def _manifest() -> tuple[bytes, ...]:
    from bough.learning.labels import MODES

    head = {"schema": "bough.samples/1", "recipe": {"seed": 0}}
    lines = [head, {**CARD, "mode": MODES[0]}, {**CARD, "mode": MODES[0], "name": "../../q", "samples": 2}]
    return tuple("".join(json.dumps(line) + "\n" for line in lines[:k]).encode() for k in (1, 2, 3))


def _shards() -> tuple[bytes, ...]:
    import torch
    from safetensors.torch import save

    from bough.learning.labels import MODES

    head = {"bough": json.dumps({"schema": "bough.samples/1", **CARD, "mode": MODES[0]})}
    wide = ("lower", "upper", "zero", "above", "below", "through", "before", "after", "children", "point")
    arrays = {name: torch.zeros(1, 2) for name in (*wide, "input_lower", "input_upper", "functional")}
    counts = {"neurons": torch.arange(2), "passing": torch.zeros(12).bool(), "step": torch.zeros(1).long()}
    return tuple(
        save({**arrays, **counts, **more}, metadata=head)
        for more in ({}, {"neurons": torch.tensor(3)}, {"lower": torch.zeros(0)})
    )


def _weights() -> tuple[bytes, ...]:
    from bough.learning.presets import build
    from bough.learning.weights import WeightsCard, save

    with tempfile.TemporaryDirectory() as folder:
        paths = []
        for preset in ("local", "fast"):
            paths.append(Path(folder) / f"{preset}.safetensors")
            save(paths[-1], build(preset), WeightsCard("dual"))
        return tuple(path.read_bytes() for path in paths)


def _images() -> tuple[bytes, ...]:
    import numpy as np
    from matplotlib.image import imsave

    images = []
    for write in (np.save, np.savez, np.savez_compressed):
        stream = io.BytesIO()
        write(stream, np.arange(48, dtype=np.uint8).reshape(3, 4, 4))
        images.append(stream.getvalue())
    for kind in ("png", "jpeg", "tiff"):
        stream = io.BytesIO()
        imsave(stream, np.zeros((4, 4, 3)), format=kind)
        images.append(stream.getvalue())
    return tuple(images)


def _logs() -> tuple[bytes, ...]:
    head = {"schema": "bough.properties/1", "recipe": RECIPE}
    with tempfile.TemporaryDirectory() as folder:
        from bough.making.properties import ProbeLog

        path = Path(folder) / "a.log"
        log = ProbeLog(path, RECIPE, lambda _: None)
        log.skip(3, "wrong label")
        return (path.read_bytes(), (json.dumps(head) + '\n{"image": 1}\n').encode())


def target(name: str) -> Target:
    """The reader of that name, with its seeds, which are made when they are needed."""
    import gzip

    makers: dict[str, Callable[[], Target]] = {
        "onnx": lambda: Target(_networks(), _read_network, damage_model),
        "vnnlib": lambda: Target((PROPERTY,), _read_property),
        "vnnlib2": lambda: Target((PROPERTY2,), _read_property),
        "gzip": lambda: Target((gzip.compress(PROPERTY),), _read_zipped),
        "records": lambda: Target(_records(), _read_records),
        "instances": lambda: Target((b"a.onnx,a.vnnlib,60\n" * 3,), _read_instances),
        "table": lambda: Target(_table(), _read_table),
        "manifest": lambda: Target(_manifest(), _read_manifest),
        "shard": lambda: Target(_shards(), _read_shard),
        "weights": lambda: Target(_weights(), _read_weights),
        "image": lambda: Target(_images(), _read_image),
        "log": lambda: Target(_logs(), _read_log),
        "certificate": lambda: Target(_certificates(), _read_certificate, damage_certificate),
    }
    return makers[name]()


TARGETS = (
    *("onnx", "vnnlib", "vnnlib2", "gzip", "records", "instances", "table", "manifest", "shard", "weights", "image"),
    *("log", "certificate"),
)


def execute(reader: Target, data: bytes, folder: Path) -> str:
    """What came out: `read`, `refused`, or what is wrong with bough."""
    from bough.errors import BoughError

    began = time.monotonic()
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            reader.read(data, folder)
        outcome = "read"
    except BoughError as error:
        bomb = next((word for word in WORDS if word in str(error)), None)
        outcome = "refused" if bomb is None else f"takes memory before it refuses ({str(error)[-200:]})"
    except BaseException as error:  # noqa: BLE001 - all others are findings
        outcome = (
            f"{type(error).__name__}: {str(error)[:200]}\n{''.join(traceback.format_tb(error.__traceback__)[-3:])}"
        )
    if time.monotonic() - began > DEADLINE:
        outcome = f"took {time.monotonic() - began:.0f} s"
    return outcome


def work(names: list[str], seconds: float, seed: int, folder: Path) -> None:
    """In a process of its own: read inputs until the time is over, and print the tally of each reader."""
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    for name in names:
        reader, chance, tally = target(name), random.Random(seed), Counter[str]()
        resource.setrlimit(resource.RLIMIT_AS, (resource.RLIM_INFINITY, resource.RLIM_INFINITY))
        with contextlib.suppress(BaseException):
            reader.read(reader.seeds[0], folder)  # loads the libraries
        used = int(Path("/proc/self/statm").read_text().split()[0]) * resource.getpagesize()
        resource.setrlimit(resource.RLIMIT_AS, (used + MEMORY, resource.RLIM_INFINITY))
        ends = time.monotonic() + seconds / len(names)
        while time.monotonic() < ends:
            data = reader.next(chance)
            _written(folder, "current", data)
            signal.alarm(int(2 * DEADLINE))  # ends this process if not even Python can be reached
            outcome = execute(reader, data, folder)
            signal.alarm(0)
            if outcome not in ("read", "refused"):
                _written(folder, f"finding-{name}-{tally['wrong']}", data)
                print(json.dumps({"finding": f"{name}: {outcome}"}), flush=True)
                outcome = "wrong"
            tally[outcome] += 1
        print(json.dumps({"name": name, "tally": tally}), flush=True)


def fuzz(names: list[str], seconds: float, seed: int, folder: Path) -> tuple[dict[str, Counter[str]], list[str]]:
    """The tally of each reader, and what was found, all in one process."""
    folder.mkdir(parents=True, exist_ok=True)
    words = [",".join(names), str(seconds), str(seed), str(folder)]
    ended = subprocess.run(
        [sys.executable, "-m", "tests.security.fuzz", "--worker", *words],
        capture_output=True,
        text=True,
        env={**os.environ, "OMP_NUM_THREADS": "1", "PYTHONPATH": os.pathsep.join(sys.path)},
        check=False,
    )
    lines = [json.loads(line) for line in ended.stdout.splitlines() if line.startswith('{"')]
    findings = [line["finding"] for line in lines if "finding" in line]
    tallies = {line["name"]: Counter(line["tally"]) for line in lines if "tally" in line}
    if ended.returncode != 0 or set(tallies) != set(names):
        findings.append(f"the process ended with {ended.returncode} on {folder / 'current'}: {ended.stderr[-400:]}")
    return tallies, findings


def main() -> int:
    """Fuzz all readers in turn, and say how often and what was found."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--seconds", type=float, default=60.0, help="for all readers together")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--only", default=",".join(TARGETS))
    parser.add_argument("--out", type=Path, help="where inputs that found something are kept")
    parser.add_argument("--worker", nargs=4, metavar="WORD", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.worker:
        given, seconds, seed, folder = options.worker
        work(given.split(","), float(seconds), int(seed), Path(folder))
        return 0
    names, wrong = options.only.split(","), 0
    with tempfile.TemporaryDirectory() as temporary:
        for name in names:
            folder = (options.out or Path(temporary)) / name
            tallies, findings = fuzz([name], options.seconds / len(names), options.seed, folder)
            wrong += len(findings)
            for tally in tallies.values():
                print(
                    f"{name:10s} {tally.total():7d} runs, {tally['read']:7d} read, {len(findings)} findings", flush=True
                )
            for line in Counter(findings):
                print(f"    {line}", flush=True)
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
