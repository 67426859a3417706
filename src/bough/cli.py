"""The command line: options become objects, a run becomes a verdict on standard output; the only place that prints.

The last line on standard output of `verify` and `robustness` is the verdict alone; all else goes to standard error.
Exit status: 0 verified, 1 falsified, 2 bad input or usage, 3 timeout or unknown, 4 a defect in bough. `bench` ends with
0 when every run ended, whatever its verdict, with 3 when some are left, and with 4 when a verdict is known to be wrong;
`properties` with 0 when all that was asked for is there, and with 3 when some is missing.
"""

import argparse
import math
import os
import sys
import traceback
from collections.abc import Sequence
from contextlib import nullcontext
from pathlib import Path
from typing import TYPE_CHECKING, Any

from bough.errors import BadInput, BoughError, OutputError

if TYPE_CHECKING:
    import torch

    from bough.api import Options
    from bough.budget import Deadline
    from bough.problem.problem import Problem
    from bough.verdict.result import Result
    from bough.zoo.datasets import Images
    from bough.zoo.trial import Recipe

BAD_INPUT, UNFINISHED, DEFECT = 2, 3, 4
TINY = 1e-300  # above 0, by nothing to speak of
MOST_THREADS = 1024
DIFFICULTIES = {"easy": "--easy", "medium": "--medium", "hard": "--hard", "timeout": "--timeout-count"}
EDGES = {"seconds": "0.1,1,5,20", "bounds": "100,1000,5000,20000"}


def main(arguments: Sequence[str] | None = None) -> int:
    """Run one command; returns the exit status."""
    options = _parser().parse_args(arguments)
    try:
        return int(options.run(options))
    except BadInput as error:
        _say(f"bough: {error}")
        return BAD_INPUT
    except KeyboardInterrupt:  # outside the search, which ends with what it knows
        _say("bough: interrupted")
        if options.run in (_verify, _robustness):
            _print_verdict("unknown")
        return UNFINISHED
    except MemoryError:
        _say("bough: out of memory; nothing was decided")
        return DEFECT
    except BoughError as error:
        _say(f"bough: {error}; nothing was decided")
        return DEFECT
    except Exception as error:  # noqa: BLE001 - a defect must not look like a verdict
        _say(traceback.format_exc())
        _say(f"bough: a defect ({type(error).__name__}), nothing was decided; please report it with `bough doctor`")
        return DEFECT


def _say(line: str) -> None:
    if sys.stderr is None:  # it may be closed
        return
    try:
        print(line, file=sys.stderr, flush=True)
    except OSError:  # or lead nowhere, which must not change the answer
        sys.stderr = open(os.devnull, "w")  # noqa: SIM115, PTH123 - or the exit would fail on it once more


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="bough", description="A complete verifier for ReLU neural networks.", allow_abbrev=False
    )
    parser.add_argument("--version", action="store_true", help="print the version and exit")
    parser.set_defaults(run=_no_command)
    commands = parser.add_subparsers(title="commands", metavar="COMMAND")
    verify = commands.add_parser(
        "verify", help="prove a VNN-LIB property of an ONNX network, or refute it", allow_abbrev=False
    )
    verify.add_argument("network", metavar="NETWORK", type=Path, help=".onnx or .onnx.gz")
    verify.add_argument("property", metavar="PROPERTY", type=Path, help=".vnnlib or .vnnlib.gz")
    verify.set_defaults(run=_verify)
    robust = commands.add_parser(
        "robustness", help="prove that an image keeps its class within eps, or refute it", allow_abbrev=False
    )
    robust.add_argument("network", metavar="NETWORK", type=Path, help=".onnx or .onnx.gz")
    robust.add_argument(
        "image",
        metavar="IMAGE",
        type=Path,
        help=".npy, .npz (first array) or picture; pixels 0-255 as integers, else 0-1",
    )
    robust.add_argument("--label", type=int, required=True, help="the image's class, from 0")
    robust.add_argument("--eps", type=_number, required=True, help="radius in pixel values from 0 to 1, such as 2/255")
    robust.add_argument(
        "--norm",
        choices=("inf", "2", "1"),
        default="inf",
        help="what eps limits: every pixel's change (inf), the Euclidean distance (2), the sum of all changes (1)",
    )
    robust.add_argument("--target", type=int, help="ask about this class only; all others by default")
    robust.add_argument(
        "--mean", type=float, nargs="+", default=[0.0], help="normalisation, one number or one per channel"
    )
    robust.add_argument("--std", type=float, nargs="+", default=[1.0], help="as --mean")
    robust.add_argument("--no-clip", action="store_true", help="allow pixels outside 0 to 1")
    robust.set_defaults(run=_robustness)
    for command in (verify, robust):
        _add_search_options(command)
    _add_bench(commands.add_parser("bench", help="run a list of instances by several methods", allow_abbrev=False))
    _add_train_network(
        commands.add_parser(
            "train-network", help="train a robust network of the paper's (Wong & Kolter)", allow_abbrev=False
        )
    )
    _add_properties(
        commands.add_parser("properties", help="make properties of tuned difficulty from images", allow_abbrev=False)
    )
    demo = commands.add_parser("demo", help="a dozen small problems around an embedded network", allow_abbrev=False)
    demo.add_argument("--out", metavar="DIR", type=Path, default=Path("demo-out"), help="where the picture goes")
    demo.set_defaults(run=_demo)
    commands.add_parser("doctor", help="versions, devices and solvers found").set_defaults(run=_doctor)
    return parser


def _add_search_options(command: argparse.ArgumentParser) -> None:
    command.add_argument(
        "--timeout", type=float, metavar="S", help="seconds until the answer is `timeout`; none by default"
    )
    command.add_argument(
        "--max-bounds", type=int, metavar="N", help="bounds until the answer is `timeout`; no limit by default"
    )
    command.add_argument(
        "--branching",
        default="auto",
        metavar="RULE",
        action=_Branching,
        help="auto, fsb, kfsb, babsr, ...; `help` describes them",
    )
    command.add_argument(
        "--bounds",
        choices=("auto", "lp", "dual"),
        default="auto",
        help="dual ascent, batched; or the Planet LP by HiGHS, which is exact and slow (auto: for a handful of ReLUs)",
    )
    command.add_argument(
        "--intermediate",
        default="auto",
        choices=("auto", "tight", "fixed", "paper", "optimised"),
        help="ReLU bounds: CROWN, renewed after splits (tight) or not (fixed); ascended at the root (optimised); as in "
        "the authors' code (paper)",
    )
    command.add_argument(
        "--minimise", type=float, metavar="GAP", help="find the least margin to within GAP instead of a verdict only"
    )
    command.add_argument("--no-attack", action="store_true", help="skip the gradient attack that runs first")
    command.add_argument(
        "--batch",
        type=_count,
        metavar="N",
        help="domains split per step; 1 counts branches as the paper does; auto by default, from the memory there is",
    )
    command.add_argument(
        "--device", choices=("auto", "cpu", "cuda"), default="auto", help="auto takes a GPU when there is one"
    )
    command.add_argument("--memory", type=float, metavar="GB", help="most for open domains; half of what is free")
    command.add_argument("--seed", type=int, default=0, metavar="N", help="of everything random")
    command.add_argument(
        "--threads", type=int, metavar="N", help="threads for bounds; as many as there are idle CPUs by default"
    )
    command.add_argument("--json", type=Path, metavar="FILE", help="write the record of the run")
    command.add_argument(
        "--counterexample", type=Path, metavar="FILE", help="write it as .npz, or as text in the competition's form"
    )
    command.add_argument("--vnncomp", type=Path, metavar="FILE", help="write the result in the competition's form")
    command.add_argument("--quiet", action="store_true", help="print the verdict only")


def _add_bench(bench: argparse.ArgumentParser) -> None:
    bench.add_argument("instances", metavar="INSTANCES", type=Path, help="CSV: network, property, timeout")
    bench.add_argument("--out", type=Path, metavar="FILE", required=True, help="one JSON record per run is added here")
    bench.add_argument(
        "--method",
        action="append",
        metavar="NAME",
        help="auto (the default), lp-babsr, dual-babsr, dual-fsb, dual-kfsb, or key=value,...; may be given again",
    )
    bench.add_argument("--resume", action="store_true", help="go on with FILE: what is in it without an error is kept")
    bench.add_argument("--timeout", type=float, metavar="S", help="seconds per run, instead of the CSV's")
    bench.add_argument("--only", default="", metavar="TEXT", help="instances with TEXT in their paths")
    bench.add_argument("--every", type=int, default=1, metavar="N", help="every N-th of these instances, the first too")
    bench.add_argument("--device", metavar="NAME", help="where methods run that do not say it themselves")
    bench.add_argument("--limit-seconds", type=float, metavar="S", help="start no run after S seconds in all")
    bench.add_argument("--known", type=Path, metavar="FILE", help="CSV of verdicts that are known; another is a defect")
    bench.set_defaults(run=_bench)


def _add_train_network(command: argparse.ArgumentParser) -> None:
    command.add_argument("--dataset", required=True, metavar="NAME", help="mnist or cifar10")
    command.add_argument("--arch", required=True, metavar="NAME", help="base, wide or deep")
    command.add_argument(
        "--out", type=Path, metavar="DIR", required=True, help="the network, its card, and checkpoints to go on from"
    )
    command.add_argument(
        "--data", type=Path, metavar="DIR", help="where the images are; else BOUGH_DATA, or downloaded"
    )
    command.add_argument("--eps", type=_number, metavar="E", help="radius trained for, in the units the network sees")
    command.add_argument("--epochs", type=int, metavar="N", help="passes over the training images")
    command.add_argument("--rate", type=float, metavar="R", help="learning rate at the start")
    command.add_argument("--batch", type=int, metavar="N", help="images per step")
    command.add_argument("--seed", type=int, metavar="N", help="of first weights and of the order of images")
    command.add_argument("--images", type=int, metavar="N", help="train on the first N only")
    command.add_argument(
        "--evaluate", type=int, default=1000, metavar="N", help="test images per epoch; all after the last"
    )
    command.add_argument("--device", choices=("auto", "cpu", "cuda"), default="auto")
    command.add_argument("--limit-seconds", type=float, metavar="S", help="start no epoch after S seconds")
    command.add_argument("--resume", action="store_true", help="go on with what DIR holds")
    command.set_defaults(run=_train_network)


def _add_properties(command: argparse.ArgumentParser) -> None:
    command.add_argument("network", metavar="NETWORK", type=Path, nargs="?", help=".onnx or .onnx.gz")
    command.add_argument("--out", type=Path, metavar="DIR", required=True, help="folder for all that is written")
    command.add_argument("--dataset", metavar="NAME", help="mnist or cifar10")
    command.add_argument("--split", choices=("train", "test"), default="test", help="which images; test by default")
    command.add_argument("--images", type=_range, metavar="A:B", help="only images with numbers from A up to B")
    command.add_argument("--data", type=Path, metavar="FOLDER", help="where the data set's files are")
    command.add_argument("--count", type=int, metavar="N", help="properties of any difficulty; 50 by default")
    for name, flag in DIFFICULTIES.items():
        command.add_argument(flag, dest=f"{name}_count", type=int, metavar="N", help=f"properties: {name}")
    command.add_argument("--method", default="dual-fsb", metavar="NAME", help="reference method, as for `bough bench`")
    command.add_argument("--device", choices=("auto", "cpu", "cuda"), default="auto", help="where the method runs")
    command.add_argument("--unit", choices=tuple(EDGES), default="seconds", help="of cost; bounds can be repeated")
    command.add_argument(
        "--edges",
        type=_numbers,
        metavar="[LEAST,]E,M,H",
        help=f"cost up to which a property is easy, medium, hard; less than LEAST is too easy ({EDGES})",
    )
    command.add_argument("--eps-range", type=_numbers, metavar="LO,HI", help="radii to choose from")
    command.add_argument(
        "--normalised",
        action=argparse.BooleanOptionalAction,
        help="eps in the network's units, not in pixels of 0 to 1",
    )
    command.add_argument("--clip", action=argparse.BooleanOptionalAction, help="valid pixels only")
    command.add_argument("--probes", type=int, default=5, metavar="N", help="most radii tried per image; 5 by default")
    command.add_argument("--seed", type=int, default=0, metavar="N", help="of the images' order and their targets")
    command.add_argument("--jobs", type=int, default=1, metavar="N", help="processes; the table is the same")
    command.add_argument("--limit-seconds", type=float, metavar="S", help="start no image after S seconds in all")
    command.add_argument("--resume", action="store_true", help="go on with DIR")
    command.add_argument("--timeout", type=float, default=300, metavar="S", help="seconds in instances.csv; 300")
    command.add_argument("--from", dest="table", type=Path, metavar="CSV", help="write the files of a table there is")
    command.add_argument("--networks", type=Path, metavar="FOLDER", help="with --from: where the networks are")
    command.add_argument("--only", default="", metavar="TEXT", help="with --from: rows with TEXT in their files' names")
    command.add_argument("--every", type=int, default=1, metavar="N", help="with --from: every N-th of these rows")
    command.set_defaults(run=_properties)


def _range(text: str) -> range:
    """Two whole numbers."""
    first, colon, last = text.partition(":")
    try:
        return range(int(first), int(last if colon else ""))
    except ValueError as error:
        raise argparse.ArgumentTypeError(f"'{text}' is no range; give two whole numbers, such as 0:100") from error


def _numbers(text: str) -> tuple[float, ...]:
    """Numbers with commas between them."""
    return tuple(_number(part) for part in text.split(","))


def _count(text: str) -> int | None:
    """A whole number, or None for `auto`."""
    try:
        return None if text == "auto" else int(text)
    except ValueError as error:
        raise argparse.ArgumentTypeError(f"'{text}' is neither a whole number nor auto") from error


def _number(text: str) -> float:
    """A decimal, or a fraction of two."""
    top, slash, bottom = text.partition("/")
    try:
        return float(top) / float(bottom) if slash else float(top)
    except (ValueError, ZeroDivisionError) as error:
        raise argparse.ArgumentTypeError(f"'{text}' is no number") from error


class _Branching(argparse.Action):
    """A branching rule; `help` lists them, whatever else is missing on the command line."""

    def __call__(self, parser: argparse.ArgumentParser, space: argparse.Namespace, value: Any, _: Any = None) -> None:
        if value == "help":
            from bough.branching import RULES

            for name, words in RULES.items():
                print(f"{name:12s} {words}")
            parser.exit(0)
        setattr(space, self.dest, value)


def _no_command(options: argparse.Namespace) -> int:
    if options.version:
        from importlib.metadata import version

        print(f"bough {version('bough')}")
        return 0
    _parser().print_help(sys.stderr)
    return BAD_INPUT


def _verify(options: argparse.Namespace) -> int:
    chosen = _search_options(options)
    from bough.api import load_network, load_problem

    return _answer(options, load_problem(load_network(options.network), options.property), chosen)


def _robustness(options: argparse.Namespace) -> int:
    chosen = _search_options(options)
    from dataclasses import replace

    from bough.api import load_network, load_problem
    from bough.problem.images import fitted, read_image
    from bough.problem.property import centre, image_property

    loaded = load_network(options.network)
    pixels = fitted(read_image(options.image), loaded.network.input_shape)
    clip = None if options.no_clip else (0.0, 1.0)
    asked = image_property(
        pixels,
        options.label,
        options.eps,
        loaded.network.outputs,
        target=options.target,
        mean=options.mean,
        std=options.std,
        clip=clip,
        norm=options.norm,
    )
    problem = load_problem(loaded, asked)
    seen = int(loaded.reference.run(centre(asked)).argmax())
    if seen != options.label and not options.quiet:
        _say(f"note: the network gives the image itself class {seen}, not {options.label}")
    name = f"{options.image} within {options.eps}" + ("" if options.norm == "inf" else f" (l{options.norm})")
    return _answer(options, replace(problem, property_name=name), chosen)


def _train_network(options: argparse.Namespace) -> int:
    from dataclasses import replace

    from bough.budget import Deadline
    from bough.zoo.architectures import architecture
    from bough.zoo.training import CARD, CHECKPOINT, RECIPES, Examples, finish, train

    built = architecture(options.dataset, options.arch)
    given = {name: getattr(options, name) for name in ("eps", "epochs", "rate", "batch", "seed")}
    recipe = RECIPES[options.dataset]
    if options.eps is not None:  # the schedule keeps its shape
        given["first_eps"] = recipe.first_eps * options.eps / recipe.eps
    recipe = replace(recipe, **{name: value for name, value in given.items() if value is not None})
    options.out.mkdir(parents=True, exist_ok=True)
    if (options.out / CHECKPOINT).exists() and not options.resume:
        raise BadInput(f"{options.out} holds a training already; go on with it by --resume, or give another --out")
    device = _device(options.device)
    images, test = _images(options, options.dataset, "train"), _images(options, options.dataset, "test")
    examples = Examples.of(images, device, options.images), Examples.of(test, device)
    _say(
        f"{built.title}: {len(examples[0].labels)} images, eps {recipe.eps:g}, {recipe.epochs} epochs on {device}; "
        f"errors are those of {min(options.evaluate, len(test))} test images at eps {recipe.eps:g}"
    )
    limit = Deadline.after(options.limit_seconds)
    model = train(built, recipe, examples, options.out, _say_epoch, evaluated=options.evaluate, limit=limit)
    if model is None:
        _say("the time is up; go on by --resume")
        return UNFINISHED
    path, errors = finish(model, built, recipe, examples[1], options.out)
    _say(
        f"{path}: errors on {errors.images} test images at eps {recipe.eps:g}: clean {errors.clean:.2%}, PGD-20 "
        f"{errors.attacked:.2%}, not certified {errors.uncertified:.2%}; {options.out / CARD} says how it was made"
    )
    print(path)
    return 0


def _say_epoch(line: dict[str, Any]) -> None:
    _say(
        f"epoch {line['epoch']}/{line['of']}  eps {line['eps']:.4f}  loss {line['loss']:.4f}  clean {line['clean']:.2%}  "
        f"PGD-20 {line['attacked']:.2%}  not certified {line['uncertified']:.2%}  {line['seconds']:.1f} s"
    )


def _device(name: str) -> "torch.device":
    import torch

    found = torch.cuda.is_available()
    if name == "cuda" and not found:
        raise BadInput("PyTorch finds no CUDA device here; use --device cpu, or see what `bough doctor` says")
    return torch.device("cuda" if found and name != "cpu" else "cpu")


def _images(options: argparse.Namespace, dataset: str, split: str) -> "Images":
    """A split of a data set, downloaded where it is not at hand, with a bar."""
    from bough.report.console import DownloadBar
    from bough.zoo.datasets import load

    with DownloadBar(sys.stderr) as bar:
        return load(dataset, split, options.data, progress=bar.update)


def _search_options(options: argparse.Namespace) -> "Options":
    """Check what can be checked before any file is read."""
    from bough.api import Options
    from bough.report.record import check_writable

    for path in (options.json, options.counterexample, options.vnncomp):
        if path is not None:
            check_writable(path)
    if options.threads is not None and not 1 <= options.threads <= MOST_THREADS:
        raise BadInput(f"--threads is {options.threads}; give 1 to {MOST_THREADS}")
    import torch

    from bough.budget import idle_cpus

    torch.set_num_threads(options.threads or idle_cpus())
    return Options(
        timeout=options.timeout,
        bounds=options.bounds,
        branching=options.branching,
        intermediate=options.intermediate,
        attack=not options.no_attack,
        gap=options.minimise,
        batch=options.batch,
        seed=options.seed,
        device=options.device,
        memory=options.memory,
        most_bounds=options.max_bounds,
    )


def _answer(options: argparse.Namespace, problem: "Problem", chosen: "Options") -> int:
    """Search, write what was asked for, print the verdict."""
    from bough.api import solve
    from bough.report.console import ProgressLine

    network = problem.network
    if not options.quiet:
        _say(
            f"{problem.network_name}: {network.inputs} inputs, {network.neurons} ReLUs, {network.outputs} outputs; "
            f"{len(problem.clauses)} unsafe clause(s) over {len(problem.property.boxes)} box(es); "
            f"{chosen.why(network)}"
        )
    with nullcontext() if options.quiet else ProgressLine(sys.stderr) as progress:
        result = solve(problem, chosen, () if progress is None else (progress,))
    if not options.quiet:
        _say(_summary(result, minimised=chosen.gap is not None))
    _write(options, problem, chosen, result)
    _print_verdict(result.verdict.value)
    return result.verdict.exit_status


def _print_verdict(word: str) -> None:
    try:
        print(word, flush=True)
    except OSError as error:
        sys.stdout = open(os.devnull, "w")  # noqa: SIM115, PTH123 - or the exit would fail on it once more
        raise OutputError(f"cannot write the verdict ({word}) to standard output: {error.strerror or error}") from error


def _summary(result: "Result", *, minimised: bool) -> str:
    figures = [
        f"{result.branches} branches",
        f"{result.bounds} bounds",
        f"depth {result.depth}",
        f"{result.seconds:.2f} s",
    ]
    if minimised:
        figures.insert(0, f"least margin between {result.lower_bound:.6g} and {result.upper_bound:.6g}")
    elif result.counterexample is None and math.isfinite(result.lower_bound):
        above = 0 < result.lower_bound < TINY  # bounds that only look at unsafe points say no more
        figures.insert(0, "margin above 0" if above else f"margin at least {result.lower_bound:.6g}")
    return f"{result.reason}; " + ", ".join(figures)


def _write(options: argparse.Namespace, problem: "Problem", chosen: "Options", result: "Result") -> None:
    from bough.report import record as records
    from bough.report.vnncomp import as_text

    try:
        if options.counterexample is not None:
            _write_counterexample(options.counterexample, problem, result)
        if options.vnncomp is not None:
            records.write_text(options.vnncomp, as_text(result))
        if options.json is not None:
            chosen = chosen.resolved(problem.network)
            run = records.Run(
                network=problem.network_name,
                property=problem.property_name,
                method="bab",
                **chosen.told(),
            )
            records.write_record(options.json, records.record(run, result))
    except BadInput as error:
        # The path was fine when the run began; what was found must not be lost with the file.
        raise type(error)(f"{error} (the run ended {result.verdict.value}: {result.reason})") from error


def _write_counterexample(path: Path, problem: "Problem", result: "Result") -> None:
    """Write what was found; an older counterexample must not be taken for this run's."""
    from bough.report.record import write_bytes
    from bough.report.vnncomp import as_text
    from bough.verdict.counterexample import as_npz

    if result.counterexample is None:
        if path.is_file():
            path.unlink()
    elif path.suffix == ".npz":
        write_bytes(path, as_npz(result.counterexample, problem.network.input_shape, problem.reference.dtype))
    else:
        write_bytes(path, as_text(result).encode())


def _bench(options: argparse.Namespace) -> int:
    """Run what is not in the file yet, saying how each run ended; a table at the end."""
    deadline = _limit(options)  # before the libraries are loaded, which takes a part of it
    import torch

    from bough.bench.known import read_known
    from bough.bench.methods import parse_method
    from bough.bench.runner import Selection, finished_runs, plan, run_tasks
    from bough.bench.summary import is_wrong, progress_line, table

    methods = [parse_method(text, options.device) for text in options.method or ["auto"]]
    selection = Selection(options.only, options.every, options.timeout)
    known = {} if options.known is None else read_known(options.known)
    tasks = plan(options.instances, methods, selection, known)
    done = finished_runs(options.out, resume=options.resume, note=lambda line: _say(f"note: {line}"))
    if options.known is not None and all(task.known is None for task in tasks):
        _say(f"note: {options.known} has no verdict for any of these instances")
    torch.set_num_threads(1)

    def seen(count: int, entry: dict[str, Any]) -> None:
        _say(f"{count}/{len(tasks)}  {progress_line(entry)}")

    entries = run_tasks(tasks, done, options.out, seen, deadline)
    _say(table(entries))
    wrong, left = [entry for entry in entries if is_wrong(entry)], len(tasks) - len(entries)
    for entry in wrong:
        _say(f"bough: WRONG VERDICT, known to be {entry['known']}: {progress_line(entry)}")
    if left:
        _say(f"bough: {left} of {len(tasks)} runs are left; go on by the same command with --resume")
    return DEFECT if wrong else UNFINISHED if left else 0


def _properties(options: argparse.Namespace) -> int:
    """Make properties, or write the files of a table of them; a note says what is missing."""
    deadline = _limit(options)
    if not (math.isfinite(options.timeout) and options.timeout > 0):
        raise BadInput(f"--timeout is {options.timeout}; give a finite number of seconds above 0")
    if (options.network is None) == (options.table is None):
        raise BadInput("give either a NETWORK to make properties for, or a table of properties by --from")
    return _properties_from(options) if options.network is None else _properties_made(options, deadline)


def _properties_from(options: argparse.Namespace) -> int:
    from functools import lru_cache

    from bough.zoo import datasets, export, table

    if options.every < 1:
        raise BadInput(f"--every is {options.every}; give a whole number, 1 or more")

    @lru_cache
    def images_of(name: str, split: str) -> datasets.Images:
        return datasets.load(name, split, options.data, progress=_say)

    listed = [row for row in table.read_table(options.table) if options.only in export.file_name(row)]
    if not listed:
        raise BadInput(f"{options.table} lists no row with '{options.only}' in its file's name; check --only")
    found = export.ready(listed, images_of)
    if found.absent:
        _say(f"note: {found.absent} of {len(listed)} rows are left out: their images are not at hand")
    rows = found.rows[:: options.every]
    folders = (Path(), options.table.parent) if options.networks is None else (options.networks,)
    networks = export.check_networks(rows, images_of, folders)
    export.open_folder(options.out, resume=options.resume)
    export.write_problems(options.out, rows, images_of, networks, options.timeout)
    _say(f"{len(rows)} properties are in {options.out / export.INSTANCES}")
    return 0 if rows else UNFINISHED


def _properties_made(options: argparse.Namespace, deadline: "Deadline") -> int:
    import torch

    from bough.api import load_network
    from bough.zoo import datasets, export, log, properties, table, workers

    torch.set_num_threads(1)
    recipe, wanted = _recipe(options), _wanted(options)
    if not 1 <= options.jobs <= MOST_THREADS:
        raise BadInput(f"--jobs is {options.jobs}; give 1 to {MOST_THREADS}")
    loaded = load_network(options.network)
    try:
        table.check_fits(loaded.network, datasets.known(options.dataset))
    except BadInput as error:
        raise type(error)(f"{options.network}: {error}") from error
    images = datasets.load(options.dataset, options.split, options.data, progress=_say)
    within = range(table.size_of(images.dataset, images.split)) if options.images is None else options.images
    wish = properties.Wish(images, within, wanted)
    export.open_folder(options.out, resume=options.resume)
    known = log.Log(options.out / export.LOG, recipe.told(), lambda line: _say(f"note: {line}"))
    crew = workers.Here(loaded, recipe) if options.jobs == 1 else workers.Processes(options.jobs, recipe)
    made = properties.make(recipe, wish, loaded, crew, known, _say, deadline)
    networks = {recipe.network: options.network}
    export.write_problems(options.out, made.rows, lambda *_: images, networks, options.timeout)
    _say(
        f"{len(made.rows)} properties are in {options.out / export.INSTANCES}; {made.wrong} images were classified "
        f"wrongly, {made.unsuitable} gave nothing that was wanted"
    )
    if made.why is not None:
        _say(f"bough: {made.why}; go on by the same command with --resume")
    return 0 if made.why is None else UNFINISHED


def _recipe(options: argparse.Namespace) -> "Recipe":
    from bough.bench.methods import parse_method
    from bough.zoo import datasets
    from bough.zoo.trial import Recipe, usual_radii
    from bough.zoo.tuning import Bracket, Scale

    if options.dataset is None:
        raise BadInput(f"which images? give --dataset, one of: {', '.join(datasets.DATASETS)}")
    method = parse_method(options.method, None if options.device == "auto" else options.device)
    normalised, low, high = usual_radii(datasets.known(options.dataset), options.normalised)
    edges = options.edges or _numbers(EDGES[options.unit])
    if len(edges) not in (3, 4):
        raise BadInput(f"--edges has {len(edges)} numbers; give 3, or 4 with the least cost first")
    radii = options.eps_range or (low, high)
    if len(radii) != 2:
        raise BadInput(f"--eps-range has {len(radii)} numbers; give the least and the largest radius")
    least, easy, medium, hard = edges if len(edges) == 4 else (0.0, *edges)
    return Recipe(
        network=str(options.network),
        dataset=options.dataset,
        split=options.split,
        method=method.name,
        options=method.options,
        scale=Scale(options.unit, (least, easy, medium, hard)),
        bracket=Bracket(*radii),
        normalised=normalised,
        clip=not normalised if options.clip is None else options.clip,
        probes=options.probes,
        seed=options.seed,
    )


def _wanted(options: argparse.Namespace) -> dict[str, int]:
    by_name = {name: getattr(options, f"{name}_count") for name in DIFFICULTIES}
    given = {name: count for name, count in by_name.items() if count is not None}
    if given and options.count is not None:
        raise BadInput("--count is of any difficulty; give either that, or --easy, --medium, --hard, --timeout-count")
    return given or {"any": 50 if options.count is None else options.count}


def _limit(options: argparse.Namespace) -> "Deadline":
    from bough.budget import Deadline

    limit = options.limit_seconds
    if limit is not None and not limit >= 0:
        raise BadInput(f"--limit-seconds is {limit}; give seconds, 0 or more")
    return Deadline.after(limit)


def _demo(options: argparse.Namespace) -> int:
    import torch

    from bough.demo import run_demo

    torch.set_num_threads(1)
    return run_demo(options.out, print)


def _doctor(options: argparse.Namespace) -> int:
    del options
    from bough.doctor import describe

    print(describe())
    return 0
