"""`bough verify` and `bough robustness`: one question, one verdict as the last line of standard output."""

import argparse
import math
import sys
from contextlib import nullcontext
from dataclasses import asdict, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from bough.budget import idle_cpus
from bough.cli.shared import (
    DEVICES,
    NETWORK_HELP,
    Command,
    RareOptions,
    check_numbers,
    check_processes,
    count_or_auto,
    declare,
    note,
    number,
    picked,
    print_verdict,
    say,
)
from bough.errors import BadInput
from bough.files.writing import check_writable, write_bytes, write_text
from bough.zoo.shipped import network_path

if TYPE_CHECKING:
    from bough.options import Options
    from bough.plan import AbstractPlan
    from bough.problem.problem import Problem
    from bough.registry import Registry
    from bough.search.observe import AbstractObserver
    from bough.verdict.result import Result

TINY = 1e-300  # above 0, by nothing to speak of


def verify(command: Command) -> None:
    """Declare the options of `bough verify`."""
    declare(command, "network", "NETWORK", NETWORK_HELP, Path)
    declare(command, "property", "PROPERTY", ".vnnlib or .vnnlib.gz", Path)
    declare(command, "--certificate", "FILE", "write the proof, which `bough check` reads; takes longer", Path)
    command.set_defaults(run=_verify, answers=True)
    _add_search_options(command)


def robustness(command: Command) -> None:
    """Declare the options of `bough robustness`."""
    declare(command, "network", "NETWORK", NETWORK_HELP, Path)
    declare(command, "image", "IMAGE", ".npy, .npz (first array) or picture; pixels 0-255 as integers, else 0-1", Path)
    command.add_argument("--label", type=int, required=True, help="the image's class, from 0")
    command.add_argument("--eps", type=number, required=True, help="radius in pixel values from 0 to 1, such as 2/255")
    words = "what eps limits: every pixel's change (inf), the Euclidean distance (2), the sum of all changes (1)"
    declare(command, "--norm", ("inf", "2", "1"), words)
    command.add_argument("--target", type=int, help="ask about this class only; all others by default")
    declare(command, "--mean", "MEAN", "normalisation, one number or one per channel", float, [0.0], nargs="+")
    declare(command, "--std", "STD", "as --mean", float, [1.0], nargs="+")
    declare(command, "--no-clip", None, "allow pixels outside 0 to 1")
    command.set_defaults(run=_robustness, answers=True, certificate=None)
    _add_search_options(command)


def _add_search_options(command: Command) -> None:
    """Some ten options that most people want, then all others, which `--help-all` shows."""
    declare(command, "--timeout", "S", "seconds until the answer is `timeout`; none by default", float)
    declare(command, "--device", DEVICES, "auto takes a GPU when there is one")
    words = "auto, fsb, kfsb, babsr, ...; `help` describes them"
    declare(command, "--branching", "RULE", words, default="auto", action=_Named)
    words = (
        "auto (default); dual: batched dual ascent; linear: CROWN with input splitting (auto: up to 8 inputs); "
        "lp: the Planet LP by HiGHS, slow (auto: up to 16 ReLUs); `help` lists all"
    )
    declare(command, "--bounds", "NAME", words, default="auto", action=_Named)
    declare(command, "--minimise", "GAP", "find the least margin to within GAP, too", float, dest="gap")
    words = "write the counterexample as .npz, or else as text in VNN-COMP's form"
    declare(command, "--counterexample", "FILE", words, Path)
    declare(command, "--json", "FILE", "write the record of the run", Path)
    words = "write every step and the search's tree as it grows, for `bough report` (.jsonl, or .jsonl.gz)"
    declare(command, "--trace", "FILE", words, Path)
    declare(command, "--quiet", None, "print the verdict only")
    rare = RareOptions(command)
    words = "bounds until the answer is `timeout`; no limit by default"
    declare(rare, "--max-bounds", "N", words, int, dest="most_bounds")
    declare(rare, "--weights", "FILE", "of a learnt rule (gnn, ...): a file, or the name of one that comes with bough")
    words = (
        "ReLU bounds: CROWN, renewed after splits (tight) or not (fixed); ascended at the root (optimised), "
        "and over trees of splits (trees); as in the authors' code (paper); `help` lists them"
    )
    declare(rare, "--intermediate", "NAME", words, default="auto", action=_Named)
    words = (
        "what `verified` is about: the file's weights in real arithmetic, or every execution in float32, too, in "
        "any order of summation, which takes longer to prove"
    )
    declare(rare, "--semantics", ("real", "float32"), words)
    declare(rare, "--no-attack", None, "skip the gradient attack that runs first", action="store_false", dest="attack")
    words = "domains split per step; 1 counts branches as the paper does; auto by default, from the memory there is"
    declare(rare, "--batch", "N", words, count_or_auto)
    declare(rare, "--memory", "GB", "most for open domains; half of what is free", float)
    declare(rare, "--seed", "N", "of everything random", int, 0)
    declare(rare, "--threads", "N", "threads for bounds; as many as there are idle CPUs by default", int)
    declare(rare, "--trace-limit", "N", "follow the tree for N nodes, then steps only; 200,000 by default", int)
    declare(rare, "--vnncomp", "FILE", "write the result in VNN-COMP's form", Path)


class _Named(argparse.Action):
    """A strategy by name; `help` lists all of its kind, whatever else is missing on the command line."""

    def __call__(self, parser: argparse.ArgumentParser, space: argparse.Namespace, value: Any, _: Any = None) -> None:
        if value == "help":
            from bough.bounds.base import KNOWN_BOUNDERS
            from bough.bounds.intermediate import KNOWN_RELU_BOUNDS
            from bough.branching.base import KNOWN_RULES

            kinds: dict[str, tuple[str, Registry[Any]]] = {
                "branching": ("rules", KNOWN_RULES),
                "bounds": ("bounds", KNOWN_BOUNDERS),
                "intermediate": ("ReLU bounds", KNOWN_RELU_BOUNDS),
            }
            kind, known = kinds[self.dest]
            width = max(map(len, known.names()))
            for title, comparison in ((kind, False), ("for comparison", True)):
                if words := known.words(comparison=comparison):
                    print(f"{title}:", *(f"  {name:{width}}  {said}" for name, said in words.items()), sep="\n")
            parser.exit(0)
        setattr(space, self.dest, value)


def _verify(options: argparse.Namespace) -> int:
    chosen = _search_options(options)
    from bough.api import load_network, load_problem

    return _answer(options, load_problem(load_network(network_path(options.network)), options.property), chosen)


def _robustness(options: argparse.Namespace) -> int:
    chosen = _search_options(options)
    from bough.api import load_network, load_problem
    from bough.problem.images import fitted, read_image
    from bough.problem.property import image_property, normalised

    loaded = load_network(network_path(options.network))
    pixels = fitted(read_image(options.image), loaded.network.input_shape)
    clip = None if options.no_clip else (0.0, 1.0)
    how = picked(options, "target", "mean", "std", "norm")
    prop = image_property(pixels, options.label, options.eps, loaded.network.outputs, clip=clip, **how)
    image = normalised(pixels, options.mean, options.std)
    problem = load_problem(loaded, prop)
    seen = int(loaded.reference.run(image.numpy()).argmax())
    if seen != options.label and not options.quiet:
        note(f"the network gives the image itself class {seen}, not {options.label}")
    name = f"{options.image} within {options.eps}" + ("" if options.norm == "inf" else f" (l{options.norm})")
    return _answer(options, replace(problem, property_name=name, image=image), chosen)


def _search_options(options: argparse.Namespace) -> "Options":
    """Check what can be checked before any file is read."""
    from bough.options import Options

    for path in (options.json, options.counterexample, options.vnncomp, options.trace, options.certificate):
        if path is not None:
            check_writable(path)
    if options.trace is None and options.trace_limit is not None:
        raise BadInput("--trace-limit limits a trace; give --trace FILE, too")
    check_numbers(options, trace_limit=0)
    check_processes(options, "threads")
    import torch

    torch.set_num_threads(options.threads or idle_cpus())
    strategy = ("bounds", "branching", "intermediate", "attack", "batch", "seed", "device", "weights")
    more = ("gap", "semantics", "certificate", "timeout", "memory", "most_bounds")
    return Options(**picked(options, *strategy, *more))


def _answer(options: argparse.Namespace, problem: "Problem", chosen: "Options") -> int:
    """Search, write what was asked for, print the verdict."""
    from bough.plan import make_plan
    from bough.report.console import ProgressLine

    network = problem.network
    plan = make_plan(chosen, problem.network)
    if not options.quiet:
        say(
            f"{problem.network_name}: {network.inputs} inputs, {network.neurons} ReLUs, {network.outputs} outputs; "
            f"{len(problem.clauses)} unsafe clause(s) over {len(problem.property.boxes)} box(es); {plan.words}"
        )
    with nullcontext() if options.quiet else ProgressLine(sys.stderr) as progress:
        result = _solved(options, problem, plan, () if progress is None else (progress,))
    if not options.quiet:
        say(_summary(result, minimised=chosen.gap is not None))
        for remark in result.remarks:
            note(remark)
        if options.certificate is not None:
            say(_certified(options.certificate, result))
    _write(options, problem, plan, result)
    print_verdict(result.verdict.value)
    return result.verdict.exit_status


def _solved(
    options: argparse.Namespace, problem: "Problem", plan: "AbstractPlan", observers: "tuple[AbstractObserver, ...]"
) -> "Result":
    """Search, with a trace where one is asked for."""
    if options.trace is None:
        return plan.solve(problem, observers)
    from bough.report.trace import LIMIT, TraceWriter

    limit = LIMIT if options.trace_limit is None else options.trace_limit
    with TraceWriter(options.trace, problem, {"method": "bab", **asdict(plan.settings)}, limit) as trace:
        result = plan.solve(problem, (*observers, trace))
        trace.finish(result)
    if trace.trouble is not None:
        note(f"the trace {options.trace} is not whole: {trace.trouble}")
    elif trace.stopped and not options.quiet:
        note(f"the trace follows the tree's first {trace.nodes} nodes only; more by --trace-limit")
    return result


def _summary(result: "Result", *, minimised: bool) -> str:
    margin = ""
    if minimised:
        margin = f"least margin between {result.lower_bound:.6g} and {result.upper_bound:.6g}, "
    elif result.counterexample is None and result.proved and math.isfinite(result.lower_bound):
        above = 0 < result.lower_bound < TINY  # bounds that only look at unsafe points say no more
        margin = "margin above 0, " if above else f"margin at least {result.lower_bound:.6g}, "
    figures = f"{result.branches} branches, {result.bounds} bounds, depth {result.depth}, {result.seconds:.2f} s"
    return f"{result.reason}; {margin}{figures}"


def _certified(path: Path, result: "Result") -> str:
    """What the certificate took."""
    size, root, leaves = (int(result.notes[f"certificate_{name}"]) for name in ("bytes", "root_bytes", "leaves"))
    each = f", {(size - root) / leaves:.0f} bytes a leaf after {root} for the root" if leaves else ""
    spent = result.notes["certificate_seconds"]
    return f"{path}: {leaves} leaves in {size} bytes{each}; {spent:.2f} s of {result.seconds:.2f} s went into it"


def _write(options: argparse.Namespace, problem: "Problem", plan: "AbstractPlan", result: "Result") -> None:
    from bough.report import record, vnncomp

    try:
        if options.counterexample is not None:
            _write_counterexample(options.counterexample, problem, result)
        if options.vnncomp is not None:
            write_text(options.vnncomp, vnncomp.as_text(result))
        if options.json is not None:
            run = record.Run(problem.network_name, problem.property_name, "bab", plan.settings)
            record.write_record(options.json, record.record(run, result))
    except BadInput as error:
        # The path was fine when the run began; what was found must not be lost with the file.
        raise type(error)(f"{error} (the run ended {result.verdict.value}: {result.reason})") from error


def _write_counterexample(path: Path, problem: "Problem", result: "Result") -> None:
    """Write what was found; an older counterexample must not be taken for this run's."""
    from bough.report.vnncomp import as_text
    from bough.verdict.counterexample import as_npz

    if result.counterexample is None:
        if path.is_file():
            path.unlink()
    elif path.suffix == ".npz":
        write_bytes(path, as_npz(result.counterexample, problem.network.input_shape, problem.reference.dtype))
    else:
        write_bytes(path, as_text(result).encode())
