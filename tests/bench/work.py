"""Runs that worker processes are given in tests: some that come to no good end, and some that tell who runs them."""

import json
import os
import time
from collections.abc import Callable
from typing import Any

from tests.jobs.work import crash, eat, hang

from bough.bench.run import run_in_worker
from bough.bench.tasks import Task


def by_name(task: Task) -> Any:
    """A run that ends as its property's name says."""
    ways: dict[str, Callable[[], Any]] = {"crash": crash, "hang": hang, "eat": eat}
    way = ways.get(task.instance.property.name.partition(".")[0])
    return run_in_worker(task) if way is None else way()


def slow_once(task: Task) -> Any:
    """A run that tells, in the folder of its list, which process runs it and which one waits for it."""
    if task.instance.property.name.startswith("crash"):
        crash()
    started = task.instances.parent / "started" / f"{task.instance.property.name}.json"
    if not started.exists():
        half = started.with_suffix(".part")
        half.write_text(json.dumps([os.getpid(), os.getppid()]))
        half.replace(started)
        time.sleep(3.0)
    else:
        started.with_suffix(".again").touch()
    return run_in_worker(task)
