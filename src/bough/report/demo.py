"""The demo: a dozen small problems around an embedded network; a table and a picture of one counterexample leave.

`bough demo` shows each kind of answer, and is the first thing that runs on a new machine: it fails if an answer is not the expected one.
"""

from collections.abc import Callable
from pathlib import Path

from bough.api import Options, load_network, load_problem, solve
from bough.errors import OutputError
from bough.report.picture import Caption, counterexample_picture
from bough.verdict.result import Result, Verdict
from bough.zoo import demo, shapes


def run_demo(folder: Path, say: Callable[[str], None]) -> int:
    """Solve the embedded problems; returns 0 if every answer is the expected one."""
    path, problems = demo.load()
    loaded = load_network(path)
    network = loaded.network
    say(f"The network: {network.inputs} pixels, {network.neurons} ReLUs, {network.outputs} classes of little figures.")
    say("Each line asks: can any change of at most eps per pixel make it see another class?\n")
    say(f"{'image':18s} {'eps':>5s}  {'answer':10s} {'branches':>8s} {'seconds':>8s}")
    surprises, drawn = 0, False
    for problem in problems:
        result = solve(load_problem(loaded, problem.property), Options(timeout=problem.timeout))
        mark = "" if result.verdict.value == problem.expected else f"   expected {problem.expected}"
        surprises += bool(mark)
        say(f"{problem.name:18s} {problem.eps:5.2f}  {result.verdict.value:10s} {result.branches:8d} {result.seconds:8.2f}{mark}")
        if result.verdict is Verdict.FALSIFIED and not drawn:
            picture = _draw(folder, problem, result)
            drawn = True
    if drawn:
        say(f"\nThe first counterexample, replayed by ONNX Runtime, is drawn in {picture}")
    return 1 if surprises else 0


def _draw(folder: Path, problem: demo.DemoProblem, result: Result) -> Path:
    assert result.counterexample is not None
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise OutputError(f"cannot create the folder {folder}: {error.strerror or error}") from error
    found = result.counterexample
    names = shapes.CLASS_NAMES
    caption = Caption(names[problem.label], names[int(found.y.argmax())], problem.eps)
    path = folder / f"{problem.name}.png"
    counterexample_picture(path, problem.image, found.x.reshape(problem.image.shape), caption)
    return path
