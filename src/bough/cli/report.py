"""`bough report`: run files and traces become one HTML page."""

import argparse
from pathlib import Path

from bough.cli.shared import Command, declare, note, say
from bough.files.writing import make_folder, write_text

PAGE = "index.html"


def report(command: Command) -> None:
    """Declare the options of `bough report`."""
    declare(command, "runs", "RUN.jsonl", "records of `bough bench` or `bough verify --json`", Path, nargs="*")
    declare(command, "--out", "DIR", f"the folder for {PAGE}", Path, required=True)
    words = "traces of `bough verify --trace`, or folders of `bough bench --trace`: bounds over time, and trees"
    declare(command, "--trace", "PATH", words, Path, [], nargs="+", action="extend")
    words = "a folder of .npz files that `bough verify --counterexample` wrote, named after their properties"
    declare(command, "--counterexamples", "DIR", words, Path)
    command.set_defaults(run=_report)


def _report(options: argparse.Namespace) -> int:
    """Read all, complain about what is odd, write the page."""
    from bough.report.page.document import document
    from bough.report.page.payload import payload
    from bough.report.page.points import read_points
    from bough.report.runs import read_runs
    from bough.report.trace import read_traces

    notes: list[str] = []
    entries = read_runs(options.runs, notes.append)
    traces = read_traces(options.trace, notes.append)
    points = [] if options.counterexamples is None else read_points(options.counterexamples, entries, notes.append)
    data = payload(entries, traces, points, notes)
    for line in notes:
        note(line)
    for warning in data["warnings"]:
        say(f"warning: {warning}")
    make_folder(options.out)
    path = options.out / PAGE
    write_text(path, document(data))
    say(f"{len(data['runs'])} runs of {len(data['instances'])} instances, {len(traces)} traces")
    print(path)
    return 0
