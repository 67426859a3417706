"""The demo: a dozen small problems around an embedded network; a table and a picture of one counterexample leave.

`bough demo` shows each kind of answer, and is the first thing that runs on a new machine: it fails if an answer is
wrong, or if one that is due does not come in time.
"""

from collections.abc import Callable
from pathlib import Path

from bough.api import load_network, load_problem, solve
from bough.files.writing import make_folder
from bough.options import Options
from bough.report.picture import Caption, counterexample_picture
from bough.verdict.result import Verdict
from bough.zoo import demo

RIGHT, WRONG, LATE = 0, 4, 3  # exit statuses: a wrong answer is a defect of bough, a missing one is a timeout


def run_demo(folder: Path, say: Callable[[str], None]) -> int:
    """Solve the embedded problems and say so line by line; returns the exit status."""
    make_folder(folder)
    path, problems = demo.load()
    loaded = load_network(path)
    network = loaded.network
    say(f"The network: {network.inputs} pixels, {network.neurons} ReLUs, {network.outputs} classes of little figures.")
    say("Each line asks: can any change of at most eps per pixel make it see another class?\n")
    say(f"{'image':18s} {'eps':>5s}  {'answer':10s} {'branches':>8s} {'seconds':>8s}")
    status = RIGHT
    picture = None
    for problem in problems:
        result = solve(load_problem(loaded, problem.property), Options(timeout=problem.timeout))
        if result.reason == "interrupted":  # a search ends with what it knows; the demo ends
            raise KeyboardInterrupt
        answer = result.verdict.value
        mark = "" if answer == problem.expected else f"   expected {problem.expected}"
        say(f"{problem.name:18s} {problem.eps:5.2f}  {answer:10s} {result.branches:8d} {result.seconds:8.2f}{mark}")
        status = max(status, judge(result.verdict, problem.expected))
        if result.counterexample is not None and picture is None:
            point = result.counterexample
            caption = Caption(demo.CLASS_NAMES[problem.label], demo.CLASS_NAMES[int(point.y.argmax())], problem.eps)
            picture = folder / f"{problem.name}.png"
            counterexample_picture(picture, problem.image, point.x.reshape(problem.image.shape), caption)
    if picture is not None:
        say(f"\nThe first counterexample, replayed by ONNX Runtime, is drawn in {picture}")
    return status


def judge(verdict: Verdict, expected: demo.Expected) -> int:
    """The exit status that one answer deserves: where a timeout is expected, any answer is as good."""
    if expected in ("timeout", verdict.value):
        return RIGHT
    return WRONG if verdict in (Verdict.VERIFIED, Verdict.FALSIFIED) else LATE
