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
import torch
from tests.jobs import work

from bough.budget import Deadline
from bough.errors import BadInput, OutputError
from bough.jobs.base import AbstractPool, Ended, InProcess, Job, LostWorker
from bough.jobs.pool import Limits, NoWorker, Pool


@pytest.fixture
def pools() -> Iterator[Callable[..., Pool]]:
    all_pools: list[Pool] = []

    def make(*arguments: Any, **named: Any) -> Pool:
        all_pools.append(Pool(*arguments, **named))
        return all_pools[-1]

    yield make
    for pool in all_pools:
        pool.stop()


def answers(pool: Pool, *calls: tuple[Any, ...], seconds: float = 30.0) -> list[Ended]:
    """What became of some calls, in their order."""
    results: dict[Any, Ended] = {}
    waiting = list(enumerate(calls))
    while waiting or pool.at_work:
        while waiting and pool.free:
            key, call = waiting.pop(0)
            pool.start(key, Job(call[0], call[1:], seconds))
        results |= dict(pool.wait(1.0))
    return [results[key] for key in range(len(calls))]


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
        pool.start(key, Job(work.nap, (0.5, key), 30))
    assert pool.free == 0
    assert set(pool.at_work) == {0, 1}
    results: dict[Any, Ended] = {}
    while pool.at_work:
        results |= dict(pool.wait(1.0))
    assert {key: ended.answer for key, ended in results.items()} == {0: 0, 1: 1}


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


def test_what_a_job_raised_is_raised_here(pools: Callable[..., Pool]) -> None:
    bad, odd, local, lost, fine = answers(
        pools(1), (work.fail_with_advice,), (work.fail_oddly,), (work.fail_locally,), (work.leave,), (work.nap, 0, 3)
    )
    with pytest.raises(OutputError, match="cannot write it; leave it") as caught:
        bad.result()
    assert str(caught.value) == "cannot write it; leave it"
    if sys.version_info >= (3, 11):
        assert "in fail_with_advice" in caught.value.__notes__[0]  # where it happened
    for ended, words in ((odd, "OddError: 1 of 2"), (local, "LocalError: here only")):  # not to be unpacked, or packed
        assert ended.failure == words
        with pytest.raises(RuntimeError, match=words):
            ended.result()
    with pytest.raises(LostWorker, match="a process was lost, as a rule because memory ran out; go on with fewer"):
        lost.result()
    assert fine.result() == 3


@pytest.mark.parametrize("make", [InProcess, lambda: Pool(2)])
def test_all_of_a_list(make: Callable[[], AbstractPool]) -> None:
    heard: list[tuple[int, float]] = []
    with make() as pool:
        each = pool.each(range(5), lambda n: Job(work.nap, (0.1, -n)), Deadline.never(), heard.extend)
        assert sorted((item, ended.result()) for item, ended in each) == [(n, -n) for n in range(5)]
        assert pool.free == pool.jobs
    assert {item for item, _ in heard} <= set(range(5))
    with make() as pool:
        assert not list(pool.each(range(5), lambda _: Job(work.fail), Deadline.after(0)))


def test_nothing_is_started_after_the_limit(pools: Callable[..., Pool]) -> None:
    limit = Deadline.after(1000)
    ended = pools(2).each(range(5), lambda n: Job(work.nap, (0, n)), limit)
    items = [next(ended)[0]]
    object.__setattr__(limit, "ends", limit.started)
    items += [item for item, _ in ended]
    assert sorted(items) == [0, 1]  # the second was at work already


def test_the_pool_goes_on_when_workers_are_lost(pools: Callable[..., Pool]) -> None:
    ways = [work.leave, work.killed, work.crash, work.hang]
    jobs = [Job(ways[k // 2], seconds=0.2) if k % 2 else Job(work.nap, (0, k)) for k in range(8)]
    ended = dict(pools(2, limits=Limits(grace=0.5)).each(range(8), lambda k: jobs[k], Deadline.never()))
    assert [ended[k].answer for k in range(0, 8, 2)] == [0, 2, 4, 6]
    assert [ended[k].failure for k in range(1, 8, 2)] == [
        "the process ended with status 7",
        "the process was killed (SIGKILL), as a rule by the system because memory ran out",
        "the process crashed (SIGSEGV)",
        "killed: no answer 0.5 s after its time limit of 0.2 s",
    ]


def test_this_process_works_while_it_is_waited_for() -> None:
    with InProcess() as pool:
        assert pool.wait(0) == []
        pool.start("key", Job(work.pid))
        assert (pool.free, list(pool.at_work)) == (0, ["key"])
        assert pool.wait(0) == [("key", Ended(os.getpid()))]
        pool.start("key", Job(work.fail))
        with pytest.raises(LookupError):
            pool.wait(0)
        assert pool.free == 1


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
    pool = pools(1, Job(work.fail_to_start))
    pool.start(0, Job(work.pid))
    with pytest.raises(NoWorker, match="do not start: ImportError: no such library"):
        pool.wait(60.0)
    pool = pools(1, Job(work.eat, (0.3,)), Limits(memory=0.1))
    pool.start(0, Job(work.pid))
    with pytest.raises(NoWorker, match=r"GB to load its libraries, and --memory-limit is 0\.1 GB"):
        pool.wait(60.0)


def test_a_later_worker_that_does_not_start_is_a_reason(pools: Callable[..., Pool], tmp_path: Path) -> None:
    pool = pools(1, Job(work.once, (str(tmp_path / "first"),)))
    fine, _, lost = answers(pool, (work.nap, 0, "fine"), (work.leave,), (work.pid,))
    assert fine.answer == "fine"
    assert lost.failure == "its process did not start: ImportError: no such library"


def test_tensors_travel(pools: Callable[..., Pool]) -> None:
    numbers = torch.arange(100_000.0)
    (ended,) = answers(pools(1), (work.nap, 0, {"numbers": numbers}))
    assert torch.equal(ended.answer["numbers"], numbers)


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
from tests.jobs import work
from bough.jobs.base import Job
from bough.jobs.pool import Pool
pool = Pool(2)
for key in range(2):
    pool.start(key, Job(work.note_and_nap, (sys.argv[1], 600)))
while True:
    pool.wait(1.0)
"""


ENVIRONMENT = {**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, sys.path))}


def workers_in(folder: Path) -> list[int]:
    """The two processes that have left a note, once they have."""
    started = time.monotonic()
    while len(list(folder.iterdir())) < 2:
        assert time.monotonic() - started < 30
        time.sleep(0.02)
    workers = [int(path.name) for path in folder.iterdir()]
    assert all(map(alive, workers))
    return workers


@pytest.mark.parametrize("how", [signal.SIGKILL, signal.SIGTERM])
def test_workers_end_with_their_parent(tmp_path: Path, how: signal.Signals) -> None:
    parent = subprocess.Popen([sys.executable, "-c", PARENT, str(tmp_path)], env=ENVIRONMENT)
    workers, started = workers_in(tmp_path), time.monotonic()
    parent.send_signal(how)
    parent.wait()
    while any(map(alive, workers)):
        assert time.monotonic() - started < 30
        time.sleep(0.02)


INTERRUPTED = """
import signal, sys
from tests.jobs import work
from bough.budget import Deadline
from bough.jobs.base import Job
from bough.jobs.pool import Pool
signal.signal(signal.SIGINT, signal.default_int_handler)
try:
    with Pool(2) as pool:
        for _ in pool.each(range(9), lambda _: Job(work.note_and_nap, (sys.argv[1], 600)), Deadline.never()):
            pass
except KeyboardInterrupt:
    print("ended", flush=True)
    sys.stdin.read()
"""


def test_ctrl_c_ends_all_workers(tmp_path: Path) -> None:
    """It reaches the whole group of a terminal's processes; only the parent hears it, and it ends the others."""
    words = [sys.executable, "-c", INTERRUPTED, str(tmp_path)]
    pipes: Any = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "stderr": subprocess.PIPE, "text": True}
    with subprocess.Popen(words, env=ENVIRONMENT, start_new_session=True, **pipes) as parent:
        workers = workers_in(tmp_path)
        os.killpg(parent.pid, signal.SIGINT)
        assert parent.stdout is not None
        assert parent.stdout.readline() == "ended\n"
        assert not any(map(alive, workers))  # while their parent is there
        assert parent.communicate("") == ("", "")
