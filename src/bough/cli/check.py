"""`bough check`: whether a certificate proves what it says; the last line of standard output is the answer alone."""

import argparse
from pathlib import Path

from bough.cli.shared import NETWORK_HELP, Command, declare, print_verdict, say
from bough.files.writing import check_writable, write_text


def check(command: Command) -> None:
    """Declare the options of `bough check`."""
    declare(command, "network", "NETWORK", NETWORK_HELP, Path)
    declare(command, "property", "PROPERTY", ".vnnlib or .vnnlib.gz", Path)
    command.add_argument("certificate", metavar="CERTIFICATE", type=Path)
    declare(command, "--exact", None, "in rational arithmetic, for small networks")
    words = "write the tree of a valid proof as an activation-pattern tree for APTPchecker; one file a clause"
    declare(command, "--aptp", "FILE", words, Path)
    declare(command, "--quiet", None, "print the answer only")
    command.set_defaults(run=_check)


def _check(options: argparse.Namespace) -> int:
    import torch

    from bough.api import load_network, load_problem
    from bough.verdict.check import Outcome, check
    from bough.zoo.shipped import network_path

    torch.set_num_threads(1)
    if options.aptp is not None:
        check_writable(options.aptp)
    problem = load_problem(load_network(network_path(options.network)), options.property)
    report = check(problem, options.certificate, exact=options.exact)
    if not options.quiet:
        say(str(report))
        spent = f"{report.leaves} leaves, {report.seconds:.2f} s"
        if report.search_seconds:
            spent += f", {report.seconds / report.search_seconds:.2f} times the search's {report.search_seconds:.2f} s"
        say(spent)
    if options.aptp is not None and report.outcome is Outcome.VALID:
        from bough.verdict.aptp import aptp_paths, as_aptp

        texts = as_aptp(problem, options.certificate)
        paths = aptp_paths(options.aptp, len(texts))
        for path, text in zip(paths, texts, strict=True):
            write_text(path, text)
        if not options.quiet:
            say(f"wrote {', '.join(map(str, paths))}")
    print_verdict(report.outcome.value)
    return report.outcome.exit_status
