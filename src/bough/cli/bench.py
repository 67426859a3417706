"""`bough bench` and `bough report`: a list of instances by several methods, and its records as one HTML page."""

import argparse
import sys
from contextlib import nullcontext
from pathlib import Path
from typing import TYPE_CHECKING, Any, final

from bough.budget import Deadline
from bough.cli.shared import DEFECT, UNFINISHED, Command, check_numbers, declare, images_of, limit_of, note, number, say
from bough.errors import BadInput
from bough.files.writing import check_writable, make_folder, write_text

if TYPE_CHECKING:
    from collections.abc import Sequence

    from rich.live import Live

    from bough.bench.engines import AbstractEngine
    from bough.bench.tally import Tally
    from bough.bench.tasks import Problems, Task

PAGE = "index.html"
TELL_FIRST, TELL_EVERY = 2.0, 20.0  # seconds without a line after which one says what is at work


def bench(command: Command) -> None:
    """Declare the options of `bough bench`."""
    words = "CSV: network, property, timeout; or a table of `bough properties`, of which mnist comes with bough"
    declare(command, "instances", "INSTANCES", words, Path)
    declare(command, "--out", "FILE", "one JSON record per run is added here", Path, required=True)
    words = (
        "auto (the default), lp-babsr, dual-babsr, dual-fsb, dual-kfsb, mip-planet, mip-tight, relu-bab, marabou, "
        "or key=value,...; may be given again"
    )
    declare(command, "--method", "NAME", words, action="append")
    declare(command, "--resume", None, "go on with FILE: what is in it without an error is kept")
    declare(command, "--dry-run", None, "print what would be run, and run nothing")
    declare(command, "--timeout", "S", "seconds per run, instead of the CSV's", float)
    declare(command, "--only", "TEXT", "instances with TEXT in their paths", default="")
    declare(command, "--every", "N", "every N-th of these instances, the first too", int, 1)
    declare(command, "--device", "NAME", "where methods run that do not say it themselves")
    declare(command, "--limit-seconds", "S", "start no run after S seconds in all", float)
    declare(command, "--trace", "DIR", "write what each search does there, for `bough report`", Path)
    declare(command, "--trace-limit", "N", "follow each tree for N nodes; 20,000", int)
    declare(command, "--known", "FILE", "CSV of verdicts that are known; another is a defect", Path)
    placement = command.add_argument_group("where runs happen")
    declare(placement, "--jobs", "N", "runs at once; 1, and with ray all that there is room for", int)
    words = "worker processes with hard limits (local), this process (here), or a Ray cluster (ray)"
    declare(placement, "--engine", ("local", "here", "ray"), words)
    declare(placement, "--grace", "S", "kill a run so long after its time limit; 60", number)
    declare(placement, "--memory-limit", "GB", "kill a run that takes more", number)
    declare(placement, "--fresh", None, "a new process for every run")
    declare(placement, "--gpu-share", "SHARE", "with ray: of a GPU, for each run on one; 1", number)
    declare(placement, "--ray-address", "ADDRESS", "with ray: of the cluster; else one that is found")
    table = command.add_argument_group("with a table of properties")
    declare(table, "--problems", "DIR", "folder for its files; else beside FILE", Path)
    declare(table, "--networks", "FOLDER", "where its networks are", Path)
    declare(table, "--data", "FOLDER", "where the data sets' files are", Path)
    command.set_defaults(run=_bench)


def report(command: Command) -> None:
    """Declare the options of `bough report`."""
    declare(command, "runs", "RUN.jsonl", "records of `bough bench` or `bough verify --json`", Path, nargs="*")
    declare(command, "--out", "DIR", f"the folder for {PAGE}", Path, required=True)
    words = "traces of `bough verify --trace`, or folders of `bough bench --trace`: bounds over time, and trees"
    declare(command, "--trace", "PATH", words, Path, [], nargs="+", action="extend")
    words = "a folder of .npz files that `bough verify --counterexample` wrote, named after their properties"
    declare(command, "--counterexamples", "DIR", words, Path)
    command.set_defaults(run=_report)


def _bench(options: argparse.Namespace) -> int:
    """Run what is not in the file yet, saying how each run ended; a table at the end."""
    deadline = limit_of(options)  # before the libraries are loaded, which takes a part of it
    import torch

    from bough.bench.engines import run_tasks
    from bough.bench.ledger import Ledger
    from bough.bench.methods import parse_method
    from bough.bench.tally import Tally, is_wrong, progress_line, table
    from bough.bench.tasks import Selection, plan, read_known
    from bough.report.console import shown_live

    engine = _engine(options)
    methods = [parse_method(text, options.device) for text in options.method or ["auto"]]
    selection = Selection(options.only, options.every, options.timeout)
    known = {} if options.known is None else read_known(options.known)
    problems = _problems(options)
    tasks = plan(options.instances, methods, selection, known, None if problems is None else problems.listed())
    if options.known is not None and all(task.known is None for task in tasks):
        note(f"{options.known} has no verdict for any of these instances")
    tasks = _traced(options, tasks)
    if options.dry_run:
        return _dry_run(options, tasks, engine)
    if options.trace is not None:
        make_folder(options.trace)
    with Ledger(options.out, resume=options.resume, note=note) as ledger:
        if problems is not None:
            problems.write()
        recorded = (task.trace for task in tasks if task.key in ledger.done)
        if lacking := sum(trace is not None and not trace.path.exists() for trace in recorded):
            note(f"{lacking} runs are in {options.out} without a trace in {options.trace}; they are not repeated")
        torch.set_num_threads(1)
        tally = Tally(tasks, ledger.done, engine.jobs)
        with shown_live(tally, sys.stderr, 2) or nullcontext() as live:
            view = _View(tally, len(tasks), live)
            entries = run_tasks(tasks, ledger.done, ledger, view.seen, deadline, engine, view.beat)
    say(table(entries))
    wrong = [entry for entry in entries if is_wrong(entry)]
    left = len(tasks) - len(entries)
    for entry in wrong:
        say(f"bough: WRONG VERDICT, known to be {entry['known']}: {progress_line(entry)}")
    if left:
        there = f"{len(entries)} are in {options.out}"
        say(f"bough: {left} of {len(tasks)} runs are left, {there}; go on by the same command with --resume")
    return DEFECT if wrong else UNFINISHED if left else 0


@final
class _View:
    """What a person sees meanwhile: a table that is kept up to date on a terminal, a line for each run in a log."""

    def __init__(self, tally: "Tally", total: int, live: "Live | None") -> None:
        self._tally, self._total, self._live = tally, total, live
        self._next = Deadline.after(TELL_FIRST)  # when a line is due

    def seen(self, count: int, entry: dict[str, Any]) -> None:
        """Count a run that has ended, and say so."""
        from bough.bench.ledger import key_of
        from bough.bench.tally import progress_line

        self._tally.add(key_of(entry), entry)
        line = f"{count}/{self._total}  {progress_line(entry)}"
        if self._live is None:
            say(line)
            self._next = Deadline.after(TELL_EVERY)
        elif entry["error"] is not None:
            from rich.text import Text

            self._live.console.print(Text(line))

    def beat(self, at_work: "Sequence[tuple[Task, float]]") -> None:
        """Take note of the runs at work, and name them now and then."""
        self._tally.beat(at_work)
        if self._live is None and at_work and self._next.passed():
            say(f"{self._tally.line()}; {self._tally.at_work()}")
            self._next = Deadline.after(TELL_EVERY)


def _engine(options: argparse.Namespace) -> "AbstractEngine":
    from bough.bench.engines import Processes, ThisProcess
    from bough.jobs.pool import GRACE, Limits

    limits = Limits(GRACE if options.grace is None else options.grace, options.memory_limit)
    for_ray = ("--gpu-share", "--ray-address")
    for_workers = ("--jobs", "--grace", "--memory-limit", "--fresh")
    for flag in {"here": (*for_workers, *for_ray), "local": for_ray}.get(options.engine, ()):
        value = getattr(options, flag[2:].replace("-", "_"))
        if value is not None and value is not False:
            raise BadInput(f"{flag} says nothing with --engine {options.engine}; leave it out, or give another engine")
    if options.engine == "here":
        return ThisProcess()
    if options.engine == "local":
        return Processes(1 if options.jobs is None else options.jobs, limits, options.fresh)
    from bough.bench.cluster import Cluster

    share = 1.0 if options.gpu_share is None else options.gpu_share
    return Cluster(options.jobs, limits, options.fresh, share, options.ray_address)


def _traced(options: argparse.Namespace, tasks: "tuple[Task, ...]") -> "tuple[Task, ...]":
    """The tasks with files for their traces, if these are asked for."""
    from bough.bench.tasks import TRACED, with_traces

    if options.trace is None:
        if options.trace_limit is not None:
            raise BadInput("--trace-limit limits traces; give --trace DIR, too")
        return tasks
    if options.trace.exists() and not options.trace.is_dir():
        raise BadInput(f"--trace {options.trace} is a file; name a folder, which gets a file for each run")
    check_numbers(options, trace_limit=0)
    followed = with_traces(tasks, options.trace, TRACED if options.trace_limit is None else options.trace_limit)
    others = sorted({task.method.name for task in followed if task.trace is None})
    if others:
        note(f"no trace of {', '.join(others)}: other solvers leave none")
    return followed


def _problems(options: argparse.Namespace) -> "Problems | None":
    """What a table of properties asks; None for a list of instances."""
    from bough.bench.tasks import is_table, read_problems
    from bough.zoo.shipped import table_path

    path = table_path(options.instances)
    if not is_table(path):
        for flag in ("problems", "networks", "data"):
            if getattr(options, flag) is not None:
                raise BadInput(f"--{flag} says nothing with a list of instances; leave it out, or give a table")
        return None
    check_writable(options.out)
    folder = options.problems or options.out.with_name(f"{options.out.stem}-problems")
    return read_problems(path, folder, options.networks, images_of(options), note)


def _dry_run(options: argparse.Namespace, tasks: "Sequence[Task]", engine: "AbstractEngine") -> int:
    from bough.bench.ledger import key_of, read_records
    from bough.bench.tally import longest, span, told

    check_writable(options.out)
    entries = read_records(options.out)
    done = {key_of(entry) for entry in entries if entry["error"] is None}
    failed = {key_of(entry) for entry in entries} - done
    left = [task for task in tasks if task.key not in done]
    for task in left:
        print(told(task))
    again = sum(task.key in failed for task in left)
    say(
        f"{len(left)} of {len(tasks)} runs are left, {len(tasks) - len(left)} are in {options.out}"
        f"{f' and {again} failed there and are repeated' if again else ''}; {engine.jobs} at a time, "
        f"{span(longest(left, engine.jobs))} if each takes its time limit"
    )
    if entries and not options.resume:
        note(f"{options.out} is there already; give --resume to go on with it")
    return 0


def _report(options: argparse.Namespace) -> int:
    """Read all, complain about what is odd, write the page."""
    from bough.report.page.document import document
    from bough.report.page.payload import payload, read_points
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
