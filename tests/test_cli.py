"""The command line as a user and a script see it: exit statuses, what goes to which stream, and the files it writes."""

import json
import os
import re
import signal
import stat
import subprocess
import sys
from dataclasses import dataclass, replace
from importlib.metadata import version
from pathlib import Path
from typing import Any

import numpy as np
import onnxruntime
import pytest
from tests.support import box_around, dense, generator, normal, piece_margins, pieces, random_clause, sequential, tensor

from bough import api
from bough.bounds.base import KNOWN_BOUNDERS
from bough.bounds.intermediate import KNOWN_RELU_BOUNDS
from bough.branching.base import KNOWN_RULES
from bough.cli import main, search
from bough.errors import BadInput, SolverFailure
from bough.network.graph import Network
from bough.network.rewrite import GraphBuilder
from bough.problem.onnx_writer import write_network
from bough.zoo import demo

TWO_BY_TWO = sequential(([[1, 1], [1, -1]], [0, 0]), ([[1, 1], [1, -1]], [0, 0]))
"""Outputs |a + b|+ + |a - b|+ and |a + b|+ - |a - b|+."""

SAFE, UNSAFE = "(<= Y_0 -0.5)", "(and (<= Y_0 0.5) (>= Y_1 0.25))"
FIELDS = {
    *("schema", "network", "property", "method", "verdict", "seconds", "branches", "bounds", "domains_per_second"),
    *("lower_bound", "root_lower_bound", "depth", "learnt_decisions", "backup_decisions", "batch", "device", "seed"),
    *("versions", "revision", "error"),
}
IMAGES = {  # two of the demo's figures; at these radii the answers come at once
    p.name: p
    for p in (
        demo.problem("crescent-2", label=9, eps=0.1, targets=None, timeout=20, expected="verified"),
        demo.problem("ring-0", label=1, eps=0.08, targets=None, timeout=20, expected="falsified"),
    )
}
FALSIFIED_IMAGE, VERIFIED_IMAGE = "ring-0", "crescent-2"


@dataclass(frozen=True)
class Outcome:
    """What a command left behind."""

    status: int
    out: str
    err: str

    @property
    def verdict(self) -> str:
        """The last line of standard output."""
        return self.out.splitlines()[-1] if self.out else ""


class Shell:
    """Runs commands in this process, inside a folder of their own."""

    def __init__(self, folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
        self.folder = folder
        self._capsys = capsys

    def __call__(self, *arguments: object) -> Outcome:
        self._capsys.readouterr()
        try:
            status = main([str(a) for a in arguments])
        except SystemExit as left:  # argparse's way out
            status = left.code if isinstance(left.code, int) else -1
        printed = self._capsys.readouterr()
        return Outcome(status, printed.out, printed.err)

    def problem(self, unsafe: str, network: Network = TWO_BY_TWO, sides: str = "") -> tuple[Path, Path]:
        """Paths of a network and of a property over the box [-1, 1] in every input, or with sides of its own."""
        paths = self.folder / "network.onnx", self.folder / "property.vnnlib"
        write_network(network, paths[0])
        paths[1].write_text(vnnlib(network.inputs, network.outputs, unsafe, sides), encoding="ascii")
        return paths


def vnnlib(inputs: int, outputs: int, unsafe: str, sides: str = "") -> str:
    """A property as text."""
    lines = [f"(declare-const X_{i} Real)" for i in range(inputs)]
    lines += [f"(declare-const Y_{i} Real)" for i in range(outputs)]
    lines += [sides] if sides else [f"(assert (>= X_{i} -1)) (assert (<= X_{i} 1))" for i in range(inputs)]
    return "\n".join([*lines, f"(assert {unsafe})", ""])


@pytest.fixture
def bough(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> Shell:
    """The command line."""
    return Shell(tmp_path, capsys)


def started(*arguments: object, **options: Any) -> "subprocess.Popen[str]":
    """The command line as a process of its own."""
    environment = {**os.environ, "OMP_NUM_THREADS": "1"}
    pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, **options}
    words = [sys.executable, *(("-m", "bough") if arguments[0] != "-c" else ()), *(str(a) for a in arguments)]
    return subprocess.Popen(words, text=True, env=environment, **pipes)


def ended(process: "subprocess.Popen[str]", seconds: float = 60.0) -> Outcome:
    """Its outcome; it is not left running."""
    try:
        out, err = process.communicate(timeout=seconds)
    finally:
        process.kill()
    return Outcome(process.returncode, out, err)


def strict_json(path: Path) -> dict[str, Any]:
    """The one record in a file; NaN and Infinity, which Python would let pass, are no JSON."""

    def refuse(word: str) -> None:
        raise AssertionError(word)

    text = path.read_text(encoding="utf-8")
    assert text.endswith("}\n")
    assert text.count("\n") == 1
    entry = json.loads(text, parse_constant=refuse)
    assert isinstance(entry, dict)
    return entry


def outputs_by_runtime(network: Path, x: Any) -> Any:
    """What ONNX Runtime itself says."""
    session = onnxruntime.InferenceSession(network.read_bytes(), providers=["CPUExecutionProvider"])
    entry = session.get_inputs()[0]
    return session.run(None, {entry.name: np.asarray(x, np.float32).reshape(entry.shape)})[0].reshape(-1)


# Verdicts, exit statuses and streams


@pytest.mark.parametrize(
    ("unsafe", "extra", "verdict", "status"),
    [
        (SAFE, (), "verified", 0),
        (UNSAFE, (), "falsified", 1),
        (UNSAFE, ("--no-attack",), "falsified", 1),
        (SAFE, ("--timeout", 0), "timeout", 3),
        (UNSAFE, ("--timeout", 0), "timeout", 3),
        (SAFE, ("--max-bounds", 0), "timeout", 3),
        (SAFE, ("--max-bounds", 1000), "verified", 0),
        (SAFE, ("--branching", "random", "--seed", 7, "--batch", 4, "--threads", 1), "verified", 0),
        (SAFE, ("--intermediate", "paper", "--bounds", "lp"), "verified", 0),
        (SAFE, ("--intermediate", "fixed"), "verified", 0),
    ],
)
def test_the_verdict_stands_alone_on_standard_output(
    bough: Shell, unsafe: str, extra: tuple[object, ...], verdict: str, status: int
) -> None:
    outcome = bough("verify", *bough.problem(unsafe), *extra)
    assert (outcome.status, outcome.out) == (status, f"{verdict}\n")
    assert "2 inputs, 2 ReLUs, 2 outputs" in outcome.err
    quiet = bough("verify", *bough.problem(unsafe), *extra, "--quiet")
    assert (quiet.status, quiet.out, quiet.err) == (status, f"{verdict}\n", "")


@pytest.mark.parametrize(("unsafe", "verdict", "status"), [(SAFE, "verified", 0), (UNSAFE, "falsified", 1)])
def test_as_a_process(bough: Shell, unsafe: str, verdict: str, status: int) -> None:
    outcome = ended(started("verify", *bough.problem(unsafe), "--quiet"))
    assert (outcome.status, outcome.out, outcome.err) == (status, f"{verdict}\n", "")


def test_a_defect_is_never_a_verdict(bough: Shell, monkeypatch: pytest.MonkeyPatch) -> None:
    problem = bough.problem(SAFE)
    for error in (ZeroDivisionError("half way"), SolverFailure("no answer"), MemoryError(), RecursionError()):

        def broken(*_: object, error: BaseException = error) -> None:
            raise error

        monkeypatch.setattr("bough.plan.SearchPlan.solve", broken)
        outcome = bough("verify", *problem, "--json", bough.folder / "run.json")
        assert (outcome.status, outcome.out) == (4, ""), error
        assert "nothing was decided" in outcome.err


def test_an_unexpected_error_shows_where_it_happened(bough: Shell, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("bough.plan.SearchPlan.solve", lambda *_: 1 // 0)
    outcome = bough("verify", *bough.problem(SAFE))
    assert "Traceback" in outcome.err
    assert "defect" in outcome.err.splitlines()[-1]
    assert "ZeroDivisionError" in outcome.err.splitlines()[-1]


def test_an_interrupt_while_reading_says_unknown_status(bough: Shell, monkeypatch: pytest.MonkeyPatch) -> None:
    def interrupted(*_: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr("bough.api.load_network", interrupted)
    outcome = bough("verify", *bough.problem(SAFE))
    assert outcome.status == 3
    assert outcome.err.splitlines()[-1] == "bough: interrupted"
    assert outcome.verdict in ("", "unknown")


def hard_network() -> Network:
    """120 ReLUs over a wide box: the root's bound is far from the truth."""
    g = generator(0)
    layers, inputs = [], 12
    for _ in range(3):
        layers.append((normal(g, 40, inputs) * (2 / inputs) ** 0.5, normal(g, 40) * 0.1))
        inputs = 40
    return sequential(*layers, (normal(g, 1, inputs) / inputs**0.5, normal(g, 1)))


@pytest.mark.skipif(os.name == "nt", reason="Ctrl-C is a signal on POSIX only")
def test_ctrl_c_ends_with_what_is_known(bough: Shell) -> None:
    problem = bough.problem("(<= Y_0 -5)", hard_network())
    files = [bough.folder / name for name in ("run.json", "run.txt", "point.npz")]
    options = [f"{o}={f}" for o, f in zip(("--json", "--vnncomp", "--counterexample"), files, strict=True)]
    # The usual command, but it says at every step how far it is: so that the interrupt comes in the middle.
    # A shell that runs the tests in the background has made them, and so their children, deaf to Ctrl-C.
    script = "import signal; signal.signal(signal.SIGINT, signal.default_int_handler); "
    script += "import bough.report.console as c, bough.cli as m; c.LOG_EVERY = 0; raise SystemExit(m.main())"
    process = started("-c", script, "verify", *problem, *options)
    assert process.stderr is not None
    lines = iter(process.stderr.readline, "")
    assert any(re.search(r" [1-9][0-9]+ branches ", line) for line in lines), "the search ended, or never began"
    process.send_signal(signal.SIGINT)
    outcome = ended(process, seconds=15)
    assert (outcome.status, outcome.out) == (3, "unknown\n")
    assert "Traceback" not in outcome.err
    assert "interrupted; margin at least -" in outcome.err.splitlines()[-1]
    entry = strict_json(files[0])
    assert (entry["verdict"], entry["reason"]) == ("unknown", "interrupted")
    assert entry["branches"] >= 10
    assert entry["bounds"] > entry["branches"]
    assert entry["root_lower_bound"] < entry["lower_bound"] < 0 < entry["upper_bound"]
    assert entry["open_domains"] > 0
    assert files[1].read_text() == "unknown\n"
    assert not files[2].exists()


# The record


def test_the_record_of_a_run(bough: Shell) -> None:
    network, prop = bough.problem(SAFE)
    path = bough.folder / "run.json"
    bough("verify", network, prop, "--json", path, "--batch", 2, "--seed", 5, "--timeout", 50)
    entry = strict_json(path)
    assert set(entry) >= FIELDS
    assert entry["schema"] == "bough.record/1"
    assert (entry["network"], entry["property"]) == (str(network), str(prop))
    assert (entry["method"], entry["verdict"], entry["error"]) == ("bab", "verified", None)
    assert (entry["batch"], entry["seed"], entry["timeout"], entry["device"]) == (2, 5, 50, "cpu")
    assert entry["seconds"] > 0
    assert entry["bounds"] >= 1
    assert entry["domains_per_second"] == pytest.approx(entry["bounds"] / entry["seconds"])
    assert entry["lower_bound"] == pytest.approx(0.5, abs=1e-6)
    assert entry["root_lower_bound"] <= entry["lower_bound"]
    assert (entry["learnt_decisions"], entry["backup_decisions"]) == (0, 0)
    assert entry["versions"]["bough"] == version("bough")
    assert {"python", "torch", "onnx", "onnxruntime", "highspy"} <= set(entry["versions"])


@pytest.mark.parametrize("extra", [("--timeout", 0), ("--timeout", "inf"), ("--timeout", "1e999")])
def test_what_is_infinite_is_null_in_the_record(bough: Shell, extra: tuple[object, ...]) -> None:
    path = bough.folder / "run.json"
    outcome = bough("verify", *bough.problem(SAFE), "--json", path, *extra)
    entry = strict_json(path)
    assert entry["verdict"] == outcome.verdict
    if outcome.verdict == "timeout":
        assert (entry["lower_bound"], entry["upper_bound"], entry["root_lower_bound"]) == (None, None, None)
    else:
        assert entry["timeout"] is None


def test_branches_are_counted_two_per_split(bough: Shell) -> None:
    network, sides, unsafe, _ = branching_problem(margin=0.01)
    path = bough.folder / "run.json"
    outcome = bough("verify", *bough.problem(unsafe, network, sides), "--json", path)
    entry = strict_json(path)
    assert outcome.verdict == "verified"
    assert entry["branches"] > 0
    assert entry["branches"] % 2 == 0
    assert entry["bounds"] == entry["branches"] + 1
    assert 1 <= entry["depth"] <= entry["branches"] // 2
    assert entry["root_lower_bound"] < 0 < entry["lower_bound"]


# Minimising


def branching_problem(margin: float) -> tuple[Network, str, str, float]:
    """A network that needs splits, sides and unsafe set as text, and its margin as the linear pieces give it."""
    g = generator(5)
    network = dense(g)
    box = box_around(g, network.inputs)
    drawn = random_clause(g, network.outputs, rows=1)
    offset = float(drawn.offsets[0]) + float(piece_margins(pieces(network, box), box, drawn).min()) - margin
    limits = enumerate(zip(box.lower.tolist(), box.upper.tolist(), strict=True))
    sides = "\n".join(f"(assert (>= X_{i} {low!r})) (assert (<= X_{i} {high!r}))" for i, (low, high) in limits)
    terms = " ".join(f"(* {c!r} Y_{j})" for j, c in enumerate(drawn.coefficients[0].tolist()))
    return network, sides, f"(<= (+ {terms}) {offset!r})", margin


@pytest.mark.parametrize("margin", [0.3, 0.002])
def test_minimise_encloses_the_least_margin(bough: Shell, margin: float) -> None:
    network, sides, unsafe, least = branching_problem(margin)
    path = bough.folder / "run.json"
    outcome = bough("verify", *bough.problem(unsafe, network, sides), "--minimise", 1e-3, "--json", path)
    entry = strict_json(path)
    assert outcome.verdict == "verified"
    assert entry["branches"] > 0
    assert entry["lower_bound"] - 1e-6 <= least <= entry["upper_bound"] + 1e-6
    assert entry["upper_bound"] - entry["lower_bound"] <= 1e-3 + 1e-9


@pytest.mark.parametrize("margin", [-0.3, -0.002])
def test_minimise_never_calls_an_unsafe_property_verified(bough: Shell, margin: float) -> None:
    network, sides, unsafe, least = branching_problem(margin)
    path = bough.folder / "run.json"
    outcome = bough("verify", *bough.problem(unsafe, network, sides), "--minimise", 1e-3, "--json", path)
    entry = strict_json(path)
    assert entry["lower_bound"] - 1e-6 <= least <= entry["upper_bound"] + 1e-6
    assert (outcome.verdict, outcome.status) == ("falsified", 1)


# Counterexamples


@pytest.mark.parametrize("attack", [(), ("--no-attack",)])
def test_the_counterexample_replays_from_its_files(bough: Shell, attack: tuple[str, ...]) -> None:
    network, prop = bough.problem(UNSAFE)
    paths = {o: bough.folder / name for o, name in (("--counterexample", "point.npz"), ("--vnncomp", "result.txt"))}
    outcome = bough("verify", network, prop, *attack, *(w for item in paths.items() for w in item), "--quiet")
    assert outcome.verdict == "falsified"
    with np.load(paths["--counterexample"]) as stored:
        x, y = stored["x"], stored["y"]
    assert x.dtype == np.float32
    assert x.shape == (2,)
    assert (np.abs(x) <= 1).all()
    assert y == pytest.approx(outputs_by_runtime(network, x), rel=1e-6)
    assert y[0] <= 0.5
    assert y[1] >= 0.25
    values = competition_point(paths["--vnncomp"].read_text())
    assert np.array_equal(np.asarray(values["X"], np.float32), x)
    assert np.array_equal(np.asarray(values["Y"], np.float32), y)


def competition_point(text: str) -> dict[str, list[float]]:
    """Inputs and outputs in the competition's result file, whose form is checked on the way."""
    assert re.fullmatch(r"sat\n\((\([XY]_[0-9]+ [-+.e0-9]+\)\n?)+\)\n", text)
    values: dict[str, list[float]] = {"X": [], "Y": []}
    for kind, index, number in re.findall(r"\(([XY])_([0-9]+) ([-+.e0-9]+)\)", text):
        assert int(index) == len(values[kind])
        values[kind].append(float(number))
    return values


def test_a_counterexample_as_text(bough: Shell) -> None:
    network, prop = bough.problem(UNSAFE)
    path = bough.folder / "point.counterexample"
    assert bough("verify", network, prop, "--counterexample", path).verdict == "falsified"
    values = competition_point(path.read_text())
    assert outputs_by_runtime(network, values["X"]) == pytest.approx(values["Y"], rel=1e-6)


def test_without_a_counterexample_no_file(bough: Shell) -> None:
    path = bough.folder / "point.npz"
    bough("verify", *bough.problem(SAFE), "--counterexample", path)
    assert not path.exists()


@pytest.mark.parametrize(
    ("unsafe", "extra", "word"), [(SAFE, (), "unsat"), (UNSAFE, (), "sat"), (SAFE, ("--timeout", 0), "timeout")]
)
def test_vnncomp_output(bough: Shell, unsafe: str, extra: tuple[object, ...], word: str) -> None:
    path = bough.folder / "result.txt"
    bough("verify", *bough.problem(unsafe), *extra, "--vnncomp", path)
    assert path.read_text().splitlines()[0] == word
    assert (path.read_text() == f"{word}\n") == (word != "sat")


def test_results_replace_older_ones(bough: Shell) -> None:
    path = bough.folder / "result.txt"
    path.write_text("an older and much longer result\n" * 100)
    link = bough.folder / "link.json"
    link.symlink_to(bough.folder / "real.json")
    bough("verify", *bough.problem(SAFE), "--vnncomp", path, "--json", link)
    assert path.read_text() == "unsat\n"
    assert link.is_symlink()
    assert strict_json(bough.folder / "real.json")["verdict"] == "verified"
    assert not list(bough.folder.glob(".*"))


def test_a_result_can_go_to_a_pipe(bough: Shell) -> None:
    path = bough.folder / "pipe"
    os.mkfifo(path)
    reader = subprocess.Popen(["cat", str(path)], stdout=subprocess.PIPE, text=True)
    try:
        bough("verify", *bough.problem(SAFE), "--vnncomp", path)
        assert reader.communicate(timeout=20)[0] == "unsat\n"
    finally:
        reader.kill()
    assert stat.S_ISFIFO(path.stat().st_mode)


# Robustness of images


def image(bough: Shell, name: str, pixels: Any = None) -> tuple[demo.DemoProblem, Path]:
    """A problem around the demo's network, and its image in a file."""
    problem = IMAGES[name]
    path = bough.folder / "image.npy"
    np.save(path, problem.image if pixels is None else pixels(problem.image))
    return problem, path


def to_bytes(pixels: Any) -> Any:
    return np.round(pixels * 255).astype(np.uint8)


@pytest.mark.parametrize("pixels", [None, np.float32, to_bytes, np.squeeze, np.ravel])
def test_robustness_of_an_image(bough: Shell, pixels: Any) -> None:
    problem, path = image(bough, VERIFIED_IMAGE, pixels)
    outcome = bough("robustness", demo.NETWORK, path, "--label", problem.label, "--eps", problem.eps, "--quiet")
    assert (outcome.status, outcome.out, outcome.err) == (0, "verified\n", "")


def test_robustness_refuted(bough: Shell) -> None:
    problem, path = image(bough, FALSIFIED_IMAGE)
    point_path = bough.folder / "point.npz"
    arguments = ("--label", problem.label, "--eps", problem.eps, "--counterexample", point_path)
    outcome = bough("robustness", demo.NETWORK, path, *arguments)
    assert (outcome.status, outcome.out) == (1, "falsified\n")
    with np.load(point_path) as stored:
        x = stored["x"].astype(np.float64)
    assert x.shape == problem.image.shape
    assert (np.abs(x - problem.image) <= problem.eps + 1e-12).all()
    assert x.min() >= 0
    assert x.max() <= 1
    y = outputs_by_runtime(demo.NETWORK, x)
    assert np.delete(y, problem.label).max() >= y[problem.label]
    # One target that is not the one: as good as no counterexample.
    other = int(y.argmin())
    assert bough("robustness", demo.NETWORK, path, *arguments[:4], "--target", other, "--quiet").verdict == "verified"


@pytest.mark.parametrize(("norm", "small", "large"), [(2, 0.2, 1.5), (1, 0.5, 10)])
def test_robustness_in_other_norms(bough: Shell, norm: int, small: float, large: float) -> None:
    problem, path = image(bough, VERIFIED_IMAGE)
    point_path, record = bough.folder / "point.npz", bough.folder / "run.json"
    arguments = ("robustness", demo.NETWORK, path, "--label", problem.label, "--norm", norm, "--timeout", 60)
    outcome = bough(*arguments, "--eps", small, "--json", record)
    assert (outcome.status, outcome.out) == (0, "verified\n")
    assert strict_json(record)["property"] == f"{path} within {small} (l{norm})"
    outcome = bough(*arguments, "--eps", large, "--counterexample", point_path)
    assert (outcome.status, outcome.out) == (1, "falsified\n")
    with np.load(point_path) as stored:
        x = stored["x"].astype(np.float64)
    away = np.linalg.norm((x - problem.image.astype(np.float64)).reshape(-1), ord=norm)
    assert 0 < away <= large * (1 + 1e-12)  # the sum rounds, the point is inside
    assert x.min() >= 0
    assert x.max() <= 1
    y = outputs_by_runtime(demo.NETWORK, x)
    assert np.delete(y, problem.label).max() >= y[problem.label]


def test_the_norms_there_are(bough: Shell) -> None:
    _, path = image(bough, VERIFIED_IMAGE)
    arguments = ("robustness", demo.NETWORK, path, "--label", 9, "--eps", 0.1, "--norm")
    outcome = bough(*arguments, 3)
    assert (outcome.status, outcome.out) == (2, "")
    assert re.search(r"--norm: invalid choice: '3' \(choose from '?inf'?, '?2'?, '?1'?\)", outcome.err)
    assert bough(*arguments, "inf", "--quiet").out == "verified\n"
    outcome = bough("verify", *bough.problem(SAFE), "--norm", 2)
    assert (outcome.status, outcome.out) == (2, "")


def test_a_norm_in_python() -> None:
    from bough import BadInput, Verdict, robustness

    problem = IMAGES[VERIFIED_IMAGE]
    for norm in ("2", 2, "1", 1, float("inf")):
        result = robustness(demo.NETWORK, problem.image, problem.label, 0.05, norm=norm, timeout=60)
        assert result.verdict is Verdict.VERIFIED
    with pytest.raises(BadInput, match="there is no norm '3'; there are: inf, 2, 1"):
        robustness(demo.NETWORK, problem.image, problem.label, 0.05, norm=3)


def test_an_image_in_other_containers(bough: Shell) -> None:
    from matplotlib.image import imsave

    problem, _ = image(bough, VERIFIED_IMAGE)
    np.savez(bough.folder / "image.npz", first=problem.image, second=np.zeros(3))
    # A picture with its three channels goes to a network that takes one only after someone has made it grey.
    imsave(bough.folder / "image.png", problem.image[0], cmap="gray", vmin=0, vmax=1)
    arguments = ("--label", problem.label, "--eps", 0.05, "--quiet")
    assert bough("robustness", demo.NETWORK, bough.folder / "image.npz", *arguments).verdict == "verified"
    refused = bough("robustness", demo.NETWORK, bough.folder / "image.png", *arguments)
    assert (refused.status, refused.out) == (2, "")
    assert "the image is 3 x 16 x 16, the network takes 1 x 16 x 16" in refused.err


def test_mean_and_std_describe_the_same_network_input(bough: Shell) -> None:
    path = bough.folder / "run.json"
    to_file = ("--no-attack", "--bounds", "lp", "--json", path)  # the LP says how high a bound above 0 is
    bounds = []
    for pixels, scale, extra in (
        (None, 1.0, ()),
        (lambda p: p * 0.5 + 0.25, 0.5, ("--mean", 0.25, "--std", 0.5)),
    ):
        problem, saved = image(bough, VERIFIED_IMAGE, pixels)
        arguments = ("--label", problem.label, "--eps", 0.03 * scale, "--no-clip", *to_file)
        assert bough("robustness", demo.NETWORK, saved, *arguments, *extra).verdict == "verified"
        bounds.append(strict_json(path)["root_lower_bound"])
    assert bounds[0] == pytest.approx(bounds[1], rel=1e-6)
    problem, saved = image(bough, VERIFIED_IMAGE)
    bough("robustness", demo.NETWORK, saved, "--label", problem.label, "--eps", 0.03, *to_file)
    assert strict_json(path)["root_lower_bound"] > bounds[0] * (1 + 1e-6)  # clipping makes the box smaller


@pytest.mark.parametrize(
    ("extra", "words"),
    [
        (("--label", 10, "--eps", 0.1), "label 10 is not a class: the network has 10 outputs, numbered from 0"),
        (("--label", -1, "--eps", 0.1), "label -1 is not a class"),
        (("--label", 9, "--eps", 0.1, "--target", 10), "target 10 is no class other than the label 9"),
        (("--label", 9, "--eps", 0.1, "--target", 9), "target 9 is no class other than the label 9"),
        (("--label", 9, "--eps", -0.1), "eps is -0.1"),
        (("--label", 9, "--eps", "nan"), "eps is nan"),
        (("--label", 9, "--eps", "inf"), "eps is inf"),
        (("--label", 9, "--eps", 0.1, "--std", 0), "std is [0.0]"),
        (("--label", 9, "--eps", 0.1, "--std", -1), "std is [-1.0]"),
        (("--label", 9, "--eps", 0.1, "--mean", 0.5, 0.5), "mean has 2 numbers for an image of 1 channels"),
        (("--label", 9, "--eps", 0.1, "--mean", "nan"), "no finite lower and upper bound"),
    ],
)
def test_robustness_asked_wrongly(bough: Shell, extra: tuple[object, ...], words: str) -> None:
    _, path = image(bough, VERIFIED_IMAGE)
    outcome = bough("robustness", demo.NETWORK, path, *extra)
    assert (outcome.status, outcome.out) == (2, "")
    assert words in outcome.err
    assert len(outcome.err.splitlines()) == 1


# Usage


def test_no_arguments_show_the_help(bough: Shell) -> None:
    outcome = bough()
    assert (outcome.status, outcome.out) == (2, "")
    assert all(word in outcome.err for word in ("usage: bough", "verify", "robustness", "demo", "doctor"))


def test_help_and_version(bough: Shell) -> None:
    assert (bough("--version").out, bough("--version").status) == (f"bough {version('bough')}\n", 0)
    for command in ((), ("verify",), ("robustness",), ("demo",), ("doctor",)):
        outcome = bough(*command, "--help")
        assert outcome.status == 0
        assert "usage: bough" in outcome.out


@pytest.mark.parametrize("command", ["verify", "robustness"])
def test_help_shows_what_most_people_want_and_help_all_the_rest(bough: Shell, command: str) -> None:
    few, every = (bough(command, flag) for flag in ("--help", "--help-all"))
    assert (few.status, few.err, every.status, every.err) == (0, "", 0, "")
    shown, all_ = (set(re.findall(r"^  (--[\w-]+)", outcome.out, flags=re.MULTILINE)) for outcome in (few, every))
    own = {"--label", "--eps", "--target", "--mean", "--std", "--no-clip", "--norm"}  # the question's
    assert {"--timeout", "--device", "--branching", "--bounds", "--json", "--quiet", "--help-all"} <= shown
    assert 8 <= len(shown - own) <= 12
    rare = set(re.findall(r'\brare(?:, |\.add_argument\()"(--[\w-]+)"', Path(search.__file__).read_text()))
    assert {"--intermediate", "--seed", "--vnncomp"} <= rare
    assert all_ - shown == rare
    assert shown < all_
    assert "==SUPPRESS==" not in every.out


def test_version_as_a_process() -> None:
    outcome = ended(started("--version"))
    assert (outcome.status, outcome.out, outcome.err) == (0, f"bough {version('bough')}\n", "")


@pytest.mark.parametrize(
    "words",
    [
        ("frobnicate",),
        ("verify",),
        ("verify", "a.onnx"),
        ("verify", "a.onnx", "b.vnnlib", "--no-such-option"),
        ("verify", "a.onnx", "b.vnnlib", "--time", "3"),  # no abbreviations: a later option could change their meaning
        ("verify", "a.onnx", "b.vnnlib", "--timeout", "soon"),
        ("verify", "a.onnx", "b.vnnlib", "--semantics", "none"),
        ("verify", "a.onnx", "b.vnnlib", "--method", "auto"),  # the bench has methods, and solvers
        ("verify", "a.onnx", "b.vnnlib", "--solver", "highs"),
        ("verify", "a.onnx", "b.vnnlib", "--preset", "fast"),
        ("verify", "a.onnx", "b.vnnlib", "--levels", "1"),
        ("verify", "a.onnx", "b.vnnlib", "c.vnnlib"),
        ("robustness", "a.onnx", "b.npy", "--eps", "0.1"),
        ("robustness", "a.onnx", "b.npy", "--label", "1"),
        ("robustness", "a.onnx", "b.npy", "--label", "one", "--eps", "0.1"),
    ],
)
def test_wrong_usage(bough: Shell, words: tuple[str, ...]) -> None:
    outcome = bough(*words)
    assert (outcome.status, outcome.out) == (2, "")
    assert "usage: bough" in outcome.err


@pytest.mark.parametrize(
    ("extra", "words"),
    [
        (("--branching", "oracle"), "there is no branching rule 'oracle'; there are: "),
        (("--timeout", -1), "the timeout is -1.0"),
        (("--timeout", "nan"), "the timeout is nan"),
        (("--minimise", 0), "the gap is 0.0"),
        (("--minimise", "nan"), "the gap is nan"),
        (("--batch", 0), "the batch is 0"),
        (("--bounds", "none"), "there is no bounds 'none'; there are: auto, "),
        (("--intermediate", "none"), "there is no intermediate bounds 'none'; there are: auto, "),
        (("--threads", 0), "--threads is 0"),
    ],
)
def test_options_are_checked_before_any_file_is_read(bough: Shell, extra: tuple[object, ...], words: str) -> None:
    outcome = bough("verify", "absent.onnx", "absent.vnnlib", *extra)
    assert (outcome.status, outcome.out) == (2, "")
    assert outcome.err.startswith(f"bough: {words}")
    assert len(outcome.err.splitlines()) == 1


@pytest.mark.parametrize("extra", [("--seed", 1 << 80), ("--threads", 1 << 40), ("--minimise", "inf")])
def test_numbers_too_large_to_mean_anything(bough: Shell, extra: tuple[object, ...]) -> None:
    outcome = bough("verify", *bough.problem(SAFE), *extra)
    assert (outcome.status, outcome.out) == (2, "")
    assert len(outcome.err.splitlines()) == 1


@pytest.mark.parametrize("command", ["verify", "robustness"])
def test_names_can_be_listed_without_a_problem(bough: Shell, command: str) -> None:
    assert bough(command, "--branching", "help").status == 0
    for option, known in (("--bounds", KNOWN_BOUNDERS), ("--intermediate", KNOWN_RELU_BOUNDS)):
        outcome = bough(command, option, "help")
        assert (outcome.status, outcome.err) == (0, "")
        lines = [line.split(maxsplit=1) for line in outcome.out.splitlines() if line.startswith("  ")]
        assert dict(lines) == {**known.words(), **known.words(comparison=True)}


def test_branching_help_describes_every_rule(bough: Shell) -> None:
    outcome = bough("verify", "absent.onnx", "absent.vnnlib", "--branching", "help")
    assert (outcome.status, outcome.err) == (0, "")
    lines = outcome.out.splitlines()
    split = lines.index("for comparison:")
    assert lines[0] == "rules:"
    rules, naive = lines[1:split], lines[split + 1 :]
    assert sorted(line.split()[0] for line in (*rules, *naive)) == sorted(KNOWN_RULES.names())
    assert {"babsr", "kfsb", "learnt-local"} <= {line.split()[0] for line in rules}
    assert {"random", "widest", "strong", "strong-tree"} <= {line.split()[0] for line in naive}
    assert all(len(line.split()) > 3 for line in (*rules, *naive) if " from " not in line)
    assert len({len(line) - len(line[2:].split(maxsplit=1)[1]) for line in (*rules, *naive)}) == 1  # words in a column


def test_doctor_names_versions_and_nothing_private(bough: Shell) -> None:
    outcome = bough("doctor")
    assert (outcome.status, outcome.err) == (0, "")
    versions = dict(line.split(maxsplit=1) for line in outcome.out.splitlines())
    for package in ("bough", "torch", "onnx", "onnxruntime", "highspy", "numpy"):
        assert versions[package] == version(package)
    assert versions["python"] == ".".join(map(str, sys.version_info[:3]))
    assert "GPU" in versions
    assert str(Path.home()) not in outcome.out
    assert os.sep + "src" not in outcome.out


# The demo


def test_the_demo_draws_and_judges(bough: Shell, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(demo, "load", lambda: (demo.NETWORK, list(IMAGES.values())))
    outcome = bough("demo", "--out", bough.folder / "new" / "folder")
    assert (outcome.status, outcome.err) == (0, "")
    assert (bough.folder / "new" / "folder" / f"{FALSIFIED_IMAGE}.png").stat().st_size > 1000
    assert "expected" not in outcome.out
    rows = {line.split()[0]: line.split()[2] for line in outcome.out.splitlines() if line.startswith(("ring", "cresc"))}
    assert rows == {FALSIFIED_IMAGE: "falsified", VERIFIED_IMAGE: "verified"}


def test_the_demo_fails_where_an_answer_is_wrong_or_missing(bough: Shell, monkeypatch: pytest.MonkeyPatch) -> None:
    easy = IMAGES[FALSIFIED_IMAGE]
    cases: list[tuple[float, demo.Expected, int]] = [
        (20, "verified", 4),
        (0, "falsified", 3),
        (20, "timeout", 0),
        (0, "timeout", 0),
    ]
    for timeout, expected, status in cases:
        problem = replace(easy, timeout=timeout, expected=expected)
        monkeypatch.setattr(demo, "load", lambda problem=problem: (demo.NETWORK, [problem]))
        outcome = bough("demo", "--out", bough.folder)
        assert outcome.status == status, (timeout, expected)
        assert ("expected" in outcome.out) == (not outcome.out.count(f" {expected} ") or status != 0)


def test_ctrl_c_ends_the_demo(bough: Shell, monkeypatch: pytest.MonkeyPatch) -> None:
    def interrupt(*_: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr("bough.search.loop.attack", interrupt)
    outcome = bough("demo", "--out", bough.folder)
    assert outcome.status == 3
    assert outcome.err == "bough: interrupted\n"


def test_the_demo_asks_for_a_folder_first(bough: Shell) -> None:
    (bough.folder / "file").write_text("")
    outcome = bough("demo", "--out", bough.folder / "file")
    assert (outcome.status, outcome.out) == (2, "")
    assert len(outcome.err.splitlines()) == 1


# Streams that are not there


def test_without_standard_error(bough: Shell) -> None:
    outcome = ended(started("verify", *bough.problem(SAFE), stderr=None, preexec_fn=lambda: os.close(2)))
    assert outcome.status == 0
    assert outcome.verdict == "verified"


# What newcomers tripped over


def test_a_standard_error_that_leads_nowhere_changes_no_answer(bough: Shell) -> None:
    reading, writing = os.pipe()
    os.close(reading)
    command = [sys.executable, "-m", "bough", "verify", *map(str, bough.problem(SAFE))]
    ended = subprocess.run(command, stdout=subprocess.PIPE, stderr=writing, check=False, timeout=120)
    os.close(writing)
    assert (ended.returncode, ended.stdout) == (0, b"verified\n")


def test_an_image_in_another_layout_is_refused(bough: Shell) -> None:
    problem, _ = image(bough, VERIFIED_IMAGE)
    path = bough.folder / "last.npy"
    np.save(path, np.moveaxis(problem.image, 0, -1))
    outcome = bough("robustness", demo.NETWORK, path, "--label", problem.label, "--eps", "1/255")
    assert (outcome.status, outcome.out) == (2, "")
    assert "16 x 16 x 1" in outcome.err


def test_a_wrong_label_is_noted(bough: Shell) -> None:
    problem, path = image(bough, VERIFIED_IMAGE)
    other = (problem.label + 1) % 10
    outcome = bough("robustness", demo.NETWORK, path, "--label", other, "--eps", 0.001)
    assert outcome.verdict == "falsified"
    assert f"gives the image itself class {problem.label}, not {other}" in outcome.err


def test_the_image_is_run_and_not_the_middle_of_its_clipped_box(bough: Shell) -> None:
    """Every pixel is cut off at 0, so the middles are 0.15, where the network sees class 1; the image is of class 0."""
    builder = GraphBuilder()
    pixels = builder.reshape(builder.input((1, 2, 2)), (4,))
    weight, bias = tensor([[-1, 0, 0, 0], [0, 0, 0, 0]]), tensor([0.1, 0.05])
    write_network(builder.build(builder.relu(builder.linear(pixels, weight, bias))), bough.folder / "network.onnx")
    path, trace = bough.folder / "black.npy", bough.folder / "trace.jsonl"
    np.save(path, np.zeros((1, 2, 2), np.float32))
    asked = ("robustness", bough.folder / "network.onnx", path, "--eps", 0.3)
    assert "gives the image itself class 0, not 1" in bough(*asked, "--label", 1).err
    outcome = bough(*asked, "--label", 0, "--trace", trace)
    assert outcome.verdict == "falsified"
    assert "image itself" not in outcome.err
    image = json.loads(trace.read_text().splitlines()[0])["image"]
    assert image["x"] == [0, 0, 0, 0]
    assert image["y"] == pytest.approx([0.1, 0.05])


# Baselines


def benched(bough: Shell, paths: tuple[Path, Path], method: str) -> dict[str, Any]:
    """The record of a bench of one instance by one method."""
    instances, runs = bough.folder / "instances.csv", bough.folder / "runs.jsonl"
    instances.write_text(f"{paths[0].name},{paths[1].name},20\n")
    runs.unlink(missing_ok=True)
    outcome = bough("bench", instances, "--out", runs, "--engine", "here", "--method", method)
    assert (outcome.status, outcome.out) == (0, ""), outcome.err
    return strict_json(runs)


@pytest.mark.parametrize("method", ["mip-planet", "mip-tight", "relu-bab"])
def test_a_baseline_answers_like_any_method_and_says_whose_word_it_is(bough, method):
    for unsafe, verdict in (("(<= Y_0 0.01)", "falsified"), ("(<= Y_1 -2.5)", "verified")):
        entry = benched(bough, bough.problem(unsafe), f"{method},attack=false")
        assert entry["verdict"] == verdict
        assert entry["method"] == f"{method},attack=false"
        assert entry["branches"] >= 0
        assert ("nodes" in entry["engine"]) == (method != "relu-bab")
        if method != "relu-bab":
            assert (entry["bounder"], entry["batch"]) == ("highs", None)


def test_a_solver_s_word_is_not_a_proof(bough):
    problem = bough.problem("(and (<= Y_0 0.9) (>= Y_1 0.95))")  # safe, but not by linear bounds
    entry = benched(bough, problem, "mip-planet")
    assert entry["verdict"] == "verified"
    assert re.search(r"by HiGHS [0-9.]+, to its tolerances, not proved by bough", entry["reason"])
    assert entry["proved"] is False
    assert entry["lower_bound"] < 0 < entry["engine"]["solver_bound"]
    assert entry["branches"] == entry["engine"]["nodes"]
    record = bough.folder / "record.json"
    assert bough("verify", *problem, "--json", record).verdict == "verified"
    assert strict_json(record)["proved"] is True


def test_a_missing_solver_is_one_sentence(bough, monkeypatch):
    monkeypatch.setattr("importlib.util.find_spec", lambda _: None)
    for solver, title, package in (("gurobi", "Gurobi", "gurobipy"), ("scip", "SCIP", "pyscipopt")):
        method = f"mip-planet,solver={solver}"
        outcome = bough("bench", "absent.csv", "--out", bough.folder / "runs.jsonl", "--method", method)
        assert (outcome.status, outcome.out) == (2, "")
        advice = f"{title} is not installed; install {package}, or use solver=highs"
        assert outcome.err == f"bough: method '{method}': {advice}\n"


def test_balls_and_minima_are_not_for_mixed_integer_programs(bough):
    outcome = bough("bench", "absent.csv", "--out", bough.folder / "runs.jsonl", "--method", "mip-planet,gap=0.1")
    assert (outcome.status, outcome.out) == (2, "")
    assert "method mip-planet takes no option 'gap'; leave it out, or give no --method" in outcome.err
    network, _ = bough.problem(SAFE)
    image = np.array([0.5, 0.5], dtype=np.float32)
    with pytest.raises(BadInput, match="takes boxes only, not l1 or l2 balls"):
        api.robustness(network, image, 0, 0.1, norm=2, method="mip-tight")
