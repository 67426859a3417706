"""`bough bench`: a list of instances by several methods."""

import argparse
from pathlib import Path
from typing import Any

from bough.cli.shared import DEFECT, UNFINISHED, limit_of, say


def add(commands: Any) -> None:
    """The command."""
    bench = commands.add_parser("bench", help="run a list of instances by several methods", allow_abbrev=False)
    bench.add_argument("instances", metavar="INSTANCES", type=Path, help="CSV: network, property, timeout")
    bench.add_argument("--out", type=Path, metavar="FILE", required=True, help="one JSON record per run is added here")
    bench.add_argument(
        "--method",
        action="append",
        metavar="NAME",
        help="auto (the default), lp-babsr, dual-babsr, dual-fsb, dual-kfsb, mip-planet, mip-tight, relu-bab, marabou, "
        "or key=value,...; may be given again",
    )
    bench.add_argument("--resume", action="store_true", help="go on with FILE: what is in it without an error is kept")
    bench.add_argument("--timeout", type=float, metavar="S", help="seconds per run, instead of the CSV's")
    bench.add_argument("--only", default="", metavar="TEXT", help="instances with TEXT in their paths")
    bench.add_argument("--every", type=int, default=1, metavar="N", help="every N-th of these instances, the first too")
    bench.add_argument("--device", metavar="NAME", help="where methods run that do not say it themselves")
    bench.add_argument("--limit-seconds", type=float, metavar="S", help="start no run after S seconds in all")
    bench.add_argument("--known", type=Path, metavar="FILE", help="CSV of verdicts that are known; another is a defect")
    bench.set_defaults(run=_bench)


def _bench(options: argparse.Namespace) -> int:
    """Run what is not in the file yet, saying how each run ended; a table at the end."""
    deadline = limit_of(options)  # before the libraries are loaded, which takes a part of it
    import torch

    from bough.bench.known import read_known
    from bough.bench.methods import parse_method
    from bough.bench.runner import Selection, finished_runs, plan, run_tasks
    from bough.bench.summary import is_wrong, progress_line, table

    methods = [parse_method(text, options.device) for text in options.method or ["auto"]]
    selection = Selection(options.only, options.every, options.timeout)
    known = {} if options.known is None else read_known(options.known)
    tasks = plan(options.instances, methods, selection, known)
    done = finished_runs(options.out, resume=options.resume, note=lambda line: say(f"note: {line}"))
    if options.known is not None and all(task.known is None for task in tasks):
        say(f"note: {options.known} has no verdict for any of these instances")
    torch.set_num_threads(1)

    def seen(count: int, entry: dict[str, Any]) -> None:
        say(f"{count}/{len(tasks)}  {progress_line(entry)}")

    entries = run_tasks(tasks, done, options.out, seen, deadline)
    say(table(entries))
    wrong, left = [entry for entry in entries if is_wrong(entry)], len(tasks) - len(entries)
    for entry in wrong:
        say(f"bough: WRONG VERDICT, known to be {entry['known']}: {progress_line(entry)}")
    if left:
        say(f"bough: {left} of {len(tasks)} runs are left; go on by the same command with --resume")
    return DEFECT if wrong else UNFINISHED if left else 0
