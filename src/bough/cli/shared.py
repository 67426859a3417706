"""What all commands share: exit statuses, words on standard error, numbers as people write them, images at hand."""

import argparse
import os
import sys
from functools import lru_cache
from typing import TYPE_CHECKING, Any

from bough.budget import Deadline
from bough.errors import BadInput, OutputError

if TYPE_CHECKING:
    from collections.abc import Callable

    import torch

    from bough.zoo.datasets import Images

BAD_INPUT, UNFINISHED, DEFECT = 2, 3, 4
MOST_THREADS = 1024
DEVICES = ("auto", "cpu", "cuda")
Values = str | tuple[str, ...] | None
NETWORK_HELP = ".onnx or .onnx.gz, or the name of a network that comes with bough: mnist_base, mnist_wide, mnist_deep"


class Command(argparse.ArgumentParser):
    """A command; its options are declared when it is called, so that start-up pays for no other's."""

    def __init__(self, *, declare: "Callable[[Command], None]", **settings: Any) -> None:
        super().__init__(allow_abbrev=False, **settings)
        self._declare = declare

    def parse_known_args(self, args: Any = None, namespace: Any = None) -> Any:
        """Declare the options, and read them."""
        self._declare(self)
        return super().parse_known_args(args, namespace)


class RareOptions:
    """Options of a command that `--help` leaves out and `--help-all` shows."""

    def __init__(self, command: argparse.ArgumentParser) -> None:
        self._command = command
        self._help: list[tuple[argparse.Action, str]] = []
        rare = self

        class _HelpAll(argparse.Action):
            def __call__(self, parser: argparse.ArgumentParser, *_: Any) -> None:
                for action, words in rare._help:
                    action.help = words
                parser.print_help()
                parser.exit(0)

        command.add_argument("--help-all", action=_HelpAll, nargs=0, help="show all options, also those of rare use")

    def add_argument(self, flag: str, *, help: str, **settings: Any) -> None:  # noqa: A002 - as argparse calls it
        """Add an option."""
        self._help.append((self._command.add_argument(flag, help=argparse.SUPPRESS, **settings), help))


def declare(to: Any, name: str, values: Values, words: str, kind: Any = str, default: Any = None, **more: Any) -> None:
    """Declare an argument or an option; `to` is a command, or a group of its options.

    `values` is a word for what it takes, or all that it may take, the default first; None: it is there or not.
    """
    if values is None:
        to.add_argument(name, help=words, **{"action": "store_true", **more})
    elif isinstance(values, str):
        to.add_argument(name, metavar=values, help=words, type=kind, default=default, **more)
    else:
        to.add_argument(name, choices=values, help=words, default=values[0], **more)


def say(line: str) -> None:
    """A line on standard error."""
    if sys.stderr is None:  # it may be closed
        return
    try:
        print(line, file=sys.stderr, flush=True)
    except OSError:  # or lead nowhere, which must not change the answer
        sys.stderr = open(os.devnull, "w")  # noqa: SIM115, PTH123 - or the exit would fail on it once more


def print_verdict(word: str) -> None:
    """The answer, on standard output."""
    try:
        print(word, flush=True)
    except OSError as error:
        sys.stdout = open(os.devnull, "w")  # noqa: SIM115, PTH123 - or the exit would fail on it once more
        raise OutputError(f"cannot write the verdict ({word}) to standard output: {error.strerror or error}") from error


def numbered(text: str) -> range:
    """Two whole numbers."""
    first, colon, last = text.partition(":")
    try:
        return range(int(first), int(last if colon else ""))
    except ValueError as error:
        raise argparse.ArgumentTypeError(f"'{text}' is no range; give two whole numbers, such as 0:100") from error


def numbers(text: str) -> tuple[float, ...]:
    """Numbers with commas between them."""
    return tuple(number(part) for part in text.split(","))


def count_or_auto(text: str) -> int | None:
    """A whole number, or None for `auto`."""
    try:
        return None if text == "auto" else int(text)
    except ValueError as error:
        raise argparse.ArgumentTypeError(f"'{text}' is neither a whole number nor auto") from error


def number(text: str) -> float:
    """A decimal, or a fraction of two."""
    top, slash, bottom = text.partition("/")
    try:
        return float(top) / float(bottom) if slash else float(top)
    except (ValueError, ZeroDivisionError) as error:
        raise argparse.ArgumentTypeError(f"'{text}' is no number") from error


def picked(options: argparse.Namespace, *names: str) -> dict[str, Any]:
    """Some of the options, as arguments of the same names."""
    return {name: getattr(options, name) for name in names}


def check_numbers(options: argparse.Namespace, **least: int) -> None:
    """Refuse whole numbers below the least that makes sense, by the names of their options."""
    for name, lowest in least.items():
        value = getattr(options, name)
        if value is not None and value < lowest:
            raise BadInput(f"--{name.replace('_', '-')} is {value}; give a whole number, {lowest} or more")


def check_processes(options: argparse.Namespace, name: str) -> None:
    """Refuse a number of threads or of processes that no machine has."""
    value = getattr(options, name)
    if value is not None and not 1 <= value <= MOST_THREADS:
        raise BadInput(f"--{name} is {value}; give 1 to {MOST_THREADS}")


def check_resumed(options: argparse.Namespace, checkpoint: str) -> None:
    """Refuse to begin a training where there is one, and to go on where there is none."""
    there = (options.out / checkpoint).exists()
    if there != options.resume:
        problem = "holds a training already; go on with it by --resume" if there else "holds no training to go on with"
        raise BadInput(f"{options.out} {problem}, or give another --out")


def device_named(name: str) -> "torch.device":
    """The device of that name; `auto` takes a GPU when there is one."""
    import torch

    gpu = torch.cuda.is_available()
    if name == "cuda" and not gpu:
        raise BadInput("PyTorch finds no CUDA device here; use --device cpu, or see what `bough doctor` says")
    return torch.device("cuda" if gpu and name != "cpu" else "cpu")


def images_of(options: argparse.Namespace) -> "Callable[[str, str], Images]":
    """What reads a split of a data set, once; it is downloaded where it is not at hand, with a bar."""
    from bough.report.console import DownloadBar
    from bough.zoo.datasets import load

    @lru_cache
    def images(dataset: str, split: str) -> "Images":
        with DownloadBar(sys.stderr) as bar:
            return load(dataset, split, options.data, progress=bar.update)

    return images


def note(line: str) -> None:
    """A remark on standard error."""
    say(f"note: {line}")


def limit_of(options: argparse.Namespace) -> Deadline:
    """What `--limit-seconds` says, from now on."""
    limit = options.limit_seconds
    if limit is not None and not limit >= 0:
        raise BadInput(f"--limit-seconds is {limit}; give seconds, 0 or more")
    return Deadline.after(limit)
