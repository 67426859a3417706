"""Worker processes that crash, hang, grow and vanish: an answer or a reason comes back for every call."""

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from tests.bench import work

from bough.bench.pool import Ended, Limits, NoWorker, Pool
from bough.errors import BadInput


@pytest.fixture
def pools() -> Iterator[Callable[..., Pool]]:
    made: list[Pool] = []

    def make(*arguments: Any, **named: Any) -> Pool:
        made.append(Pool(*arguments, **named))
        return made[-1]

    yield make
    for pool in made:
        pool.stop()


def answers(pool: Pool, *calls: tuple[Any, ...], seconds: float = 30.0) -> list[Ended]:
    """What became of some calls, in their order."""
    found: dict[Any, Ended] = {}
    waiting = list(enumerate(calls))
    while waiting or pool.at_work:
        while waiting and pool.free:
            key, call = waiting.pop(0)
            pool.start(key, seconds, *call)
        found |= dict(pool.wait(1.0))
    return [found[key] for key in range(len(calls))]


def alive(process: int) -> bool:
    try:
        return "State:\tZ" not in Path(f"/proc/{process}/status").read_text()
    except (FileNotFoundError, ProcessLookupError):
        return False


def test_one_worker_serves_many_calls(pools: Callable[..., Pool]) -> None:
    pool = pools(1)
    ended = answers(pool, (work.pid,), (work.fail,), (work.pid,), (work.pid,))
    first, failed, second, third = ended
    assert failed == Ended(failure="LookupError: not there")
    assert first.answer != os.getpid()
    assert second.answer == third.answer != first.answer  # after a failure nobody knows what state it is in


def test_a_spent_worker_is_replaced(pools: Callable[..., Pool]) -> None:
    one, two = answers(pools(1, spent=lambda answer: True), (work.pid,), (work.pid,))
    assert one.answer != two.answer


def test_calls_run_side_by_side(pools: Callable[..., Pool]) -> None:
    pool = pools(2)
    for key in range(2):
        pool.start(key, 30, work.nap, 0.5, key)
    assert pool.free == 0
    assert set(pool.at_work) == {0, 1}
    found: dict[Any, Ended] = {}
    while pool.at_work:
        found |= dict(pool.wait(1.0))
    assert {key: ended.answer for key, ended in found.items()} == {0: 0, 1: 1}


@pytest.mark.parametrize(
    ("call", "words"),
    [
        ((work.crash,), "the process crashed (SIGSEGV)"),
        ((work.abort_loudly,), "the process crashed (SIGABRT); its last words: the solver gave up"),
        ((work.killed,), "the process was killed (SIGKILL), as a rule by the system because memory ran out"),
        ((work.leave,), "the process ended with status 7"),
        ((open, os.devnull), "TypeError: "),  # an answer that cannot be sent
    ],
)
def test_a_lost_worker_is_a_reason(pools: Callable[..., Pool], call: tuple[Any, ...], words: str) -> None:
    lost, after = answers(pools(1), call, (work.nap, 0, "fine"))
    assert (lost.answer, after) == (None, Ended(answer="fine"))
    assert lost.failure is not None
    assert lost.failure.startswith(words)


def test_a_hang_is_cut_short(pools: Callable[..., Pool]) -> None:
    pool, started = pools(1, limits=Limits(grace=0.3)), time.monotonic()
    hung, after = answers(pool, (work.hang,), (work.nap, 0, "fine"), seconds=0.2)
    assert hung.failure == "killed: no answer 0.3 s after its time limit of 0.2 s"
    assert after.answer == "fine"
    assert time.monotonic() - started < 20


def test_a_call_s_clock_may_start_late(pools: Callable[..., Pool]) -> None:
    assert answers(pools(1, limits=Limits(grace=0.5)), (work.begin_late,), seconds=1.0) == [Ended(answer="fine")]


def test_too_much_memory_is_a_reason(pools: Callable[..., Pool]) -> None:
    eaten, little = answers(pools(1, limits=Limits(memory=0.2)), (work.eat, 0.4), (work.eat, 0.04))
    assert eaten.failure is not None
    assert eaten.failure.startswith("killed: it took 0.")
    assert eaten.failure.endswith(" GB, and --memory-limit is 0.2 GB")
    assert little.answer == 2


def test_a_worker_that_dies_while_idle_is_replaced(pools: Callable[..., Pool]) -> None:
    pool = pools(1)
    (first,) = answers(pool, (work.pid,))
    os.kill(first.answer, signal.SIGKILL)
    while alive(first.answer):
        time.sleep(0.01)
    (second,) = answers(pool, (work.pid,))
    assert second.failure is None


def test_workers_that_do_not_start(pools: Callable[..., Pool]) -> None:
    pool = pools(1, (work.fail_to_start, ()))
    pool.start(0, 1, work.pid)
    with pytest.raises(NoWorker, match="do not start: ImportError: no such library"):
        pool.wait(60.0)
    pool = pools(1, (work.eat, (0.3,)), Limits(memory=0.1))
    pool.start(0, 1, work.pid)
    with pytest.raises(NoWorker, match=r"GB to load its libraries, and --memory-limit is 0\.1 GB"):
        pool.wait(60.0)


def test_a_later_worker_that_does_not_start_is_a_reason(pools: Callable[..., Pool], tmp_path: Path) -> None:
    pool = pools(1, (work.once, (str(tmp_path / "first"),)))
    fine, _, lost = answers(pool, (work.nap, 0, "fine"), (work.leave,), (work.pid,))
    assert fine.answer == "fine"
    assert lost.failure == "its process did not start: ImportError: no such library"


def test_environments_go_round(pools: Callable[..., Pool]) -> None:
    pool = pools(2, environments=[{"BOUGH_SLOT": "one"}, {"BOUGH_SLOT": "two"}])
    ended = answers(pool, (work.environment, "BOUGH_SLOT"), (work.environment, "BOUGH_SLOT"))
    assert sorted(end.answer for end in ended) == ["one", "two"]


def test_nothing_heavy_is_loaded_unasked(pools: Callable[..., Pool]) -> None:
    assert answers(pools(1), (work.loaded, "torch")) == [Ended(answer=False)]


@pytest.mark.parametrize(
    ("limits", "words"),
    [
        ((-1.0, None), "--grace is -1.0"),
        ((float("nan"), None), "--grace is nan"),
        ((1.0, 0.0), "--memory-limit is 0.0"),
        ((1.0, float("inf")), "--memory-limit is inf"),
    ],
)
def test_limits_that_are_none(limits: tuple[float, float | None], words: str) -> None:
    with pytest.raises(BadInput, match=words):
        Limits(*limits)


PARENT = """
import sys
from tests.bench import work
from bough.bench.pool import Pool
pool = Pool(2)
for key in range(2):
    pool.start(key, 600, work.note_and_nap, sys.argv[1], 600)
while True:
    pool.wait(1.0)
"""


@pytest.mark.parametrize("how", [signal.SIGKILL, signal.SIGTERM])
def test_workers_end_with_their_parent(tmp_path: Path, how: signal.Signals) -> None:
    search = os.pathsep.join(filter(None, sys.path))
    parent = subprocess.Popen([sys.executable, "-c", PARENT, str(tmp_path)], env={**os.environ, "PYTHONPATH": search})
    started = time.monotonic()
    while len(list(tmp_path.iterdir())) < 2:
        assert time.monotonic() - started < 30
        time.sleep(0.02)
    workers = [int(path.name) for path in tmp_path.iterdir()]
    assert all(map(alive, workers))
    parent.send_signal(how)
    parent.wait()
    while any(map(alive, workers)):
        assert time.monotonic() - started < 30
        time.sleep(0.02)
