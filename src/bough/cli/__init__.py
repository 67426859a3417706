"""The command line: options become objects, a run becomes a verdict on standard output; the only place that prints.

The last line on standard output of `verify` and `robustness` is the verdict alone; all else goes to standard error.
Exit status: 0 verified, 1 falsified, 2 bad input or usage, 3 timeout or unknown, 4 a defect in bough. `bench` ends with
0 when every run ended, whatever its verdict, with 3 when some are left, and with 4 when a verdict is known to be wrong;
`check` with 0 for a valid certificate, 1 for an invalid one and 3 for an incomplete one;
`properties` and `label` with 0 when all that was asked for is there, and with 3 when some is missing.
"""

import argparse
import sys
import traceback
from collections.abc import Sequence
from pathlib import Path

import bough
from bough.budget import ran_out
from bough.cli import bench, check, learning, search, zoo
from bough.cli.shared import BAD_INPUT, DEFECT, UNFINISHED, Command, declare, print_verdict, say
from bough.errors import BadInput, BoughError


def main(arguments: Sequence[str] | None = None) -> int:
    """Run one command; returns the exit status."""
    options = _parser().parse_args(arguments)
    try:
        return int(options.run(options))
    except BadInput as error:
        say(f"bough: {error}")
        return BAD_INPUT
    except (KeyboardInterrupt, Exception) as error:  # noqa: BLE001 - a defect must not look like a verdict
        if _interrupted(error):  # outside the search, which ends with what it knows
            say("bough: interrupted")
            if options.answers:
                print_verdict("unknown")
            return UNFINISHED
        if isinstance(error, BoughError) or ran_out(error):
            say(f"bough: {error if isinstance(error, BoughError) else 'out of memory'}; nothing was decided")
        else:
            say(traceback.format_exc())
            say(f"bough: a defect ({type(error).__name__}), nothing was decided; please report it with `bough doctor`")
        return DEFECT


def _interrupted(error: BaseException | None) -> bool:
    """Whether Ctrl-C is behind an error: libraries that are being loaded turn it into one of their own."""
    while error is not None and not isinstance(error, KeyboardInterrupt):
        error = error.__cause__ or error.__context__
    return error is not None


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="bough",
        usage="bough [-h] [--version] COMMAND ...",
        description="A complete verifier for ReLU neural networks.",
        formatter_class=argparse.RawDescriptionHelpFormatter,
        allow_abbrev=False,
    )
    parser.add_argument("--version", action="store_true", help="print the version and exit")
    parser.set_defaults(run=_no_command, answers=False)
    made = parser.add_subparsers(prog="bough", metavar="COMMAND", help=argparse.SUPPRESS, parser_class=Command)
    listed = []
    for heading, commands in COMMANDS.items():
        listed.append(f"\n{heading}:\n")
        for name, (options, words) in commands.items():
            listed.append(f"  {name:14s} {words}\n")
            made.add_parser(name, declare=options, description=f"{words[0].upper()}{words[1:]}.")
    parser.epilog = "".join(listed)
    return parser


def _no_command(options: argparse.Namespace) -> int:
    if options.version:
        print(f"bough {bough.__version__}")
        return 0
    _parser().print_help(sys.stderr)
    return BAD_INPUT


def _declare_demo(command: Command) -> None:
    declare(command, "--out", "DIR", "where the picture goes", Path, Path("demo-out"))
    command.set_defaults(run=_demo)


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


COMMANDS = {  # what declares the options, and what the command does, by heading and name
    "commands": {
        "verify": (search.verify, "prove a VNN-LIB property of an ONNX network, or refute it"),
        "robustness": (search.robustness, "prove that an image keeps its class within eps, or refute it"),
        "check": (check.check, "check the certificate that `verify --certificate` wrote"),
        "bench": (bench.bench, "run a list of instances by several methods"),
        "report": (bench.report, "show runs and traces as one HTML page"),
        "demo": (_declare_demo, "run a dozen small problems on a network that comes with bough"),
        "doctor": (lambda command: command.set_defaults(run=_doctor), "versions, devices and solvers found"),
    },
    "to make problems, and to train branching rules": {
        "properties": (zoo.properties, "make properties from images, with radii tuned to a difficulty"),
        "label": (learning.label, "record strong branching as samples to train a rule from"),
        "train": (learning.train, "train a branching rule on samples of `bough label`"),
    },
}
