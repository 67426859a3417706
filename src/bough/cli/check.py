"""`bough check`: whether a certificate proves what it says; the last line of standard output is the answer alone."""

import argparse
from pathlib import Path
from typing import Any

from bough.cli.shared import NETWORK_HELP, print_verdict, say

Commands = Any  # what argparse gives for sub-commands, which has no public name


def add(commands: Commands) -> None:
    """The command."""
    check = commands.add_parser(
        "check", help="check the certificate that `verify --certificate` wrote", allow_abbrev=False
    )
    check.add_argument("network", metavar="NETWORK", type=Path, help=NETWORK_HELP)
    check.add_argument("property", metavar="PROPERTY", type=Path, help=".vnnlib or .vnnlib.gz")
    check.add_argument("certificate", metavar="CERTIFICATE", type=Path)
    check.add_argument("--exact", action="store_true", help="in rational arithmetic, for small networks")
    check.add_argument("--quiet", action="store_true", help="print the answer only")
    check.set_defaults(run=_check)


def _check(options: argparse.Namespace) -> int:
    import torch

    from bough.api import load_network, load_problem
    from bough.verdict.check import check
    from bough.zoo.shipped import network_path

    torch.set_num_threads(1)
    problem = load_problem(load_network(network_path(options.network)), options.property)
    report = check(problem, options.certificate, exact=options.exact)
    if not options.quiet:
        say(str(report))
        spent = f"{report.leaves} leaves, {report.seconds:.2f} s"
        if report.search_seconds:
            spent += f", {report.seconds / report.search_seconds:.2f} times the search's {report.search_seconds:.2f} s"
        say(spent)
    print_verdict(report.outcome.value)
    return report.outcome.exit_status
