"""Time for decisions is told apart from the time for bounds."""

import time

import pytest
import torch
from tests.support import hard_case

from bough.api import solve
from bough.bounds.dual import DualSession
from bough.branching.babsr import BaBSR
from bough.options import Options
from bough.search.stopwatch import KEPT, Stopwatch

CPU = torch.device("cpu")


def ticking(monkeypatch, *times: float) -> Stopwatch:
    """A watch that reads these times off its clock."""
    monkeypatch.setattr("bough.budget.time.monotonic", iter(times).__next__)
    return Stopwatch()


def test_it_counts_while_it_is_on_and_not_off_again(monkeypatch):
    watch = ticking(monkeypatch, 1, 2, 6, 7)
    with watch.off(CPU):  # nothing to take away from, and no look at the clock
        pass
    with watch.on(CPU), watch.off(CPU):
        pass
    assert watch.seconds() == 2


def test_a_span_that_breaks_off_ends_it(monkeypatch):
    watch = ticking(monkeypatch, 1, 4)
    with pytest.raises(KeyboardInterrupt), watch.on(CPU):
        raise KeyboardInterrupt
    with watch.off(CPU):
        pass
    assert watch.seconds() == 3


class FakeEvent:
    """An event of a GPU whose clock ticks a second for every event; only what has ended may be read."""

    ticks = 0

    def __init__(self, *, enable_timing: bool) -> None:
        assert enable_timing
        self.at, self.waited = 0, False

    def record(self) -> None:
        FakeEvent.ticks += 1
        self.at = FakeEvent.ticks

    def synchronize(self) -> None:
        assert self.at
        self.waited = True

    def elapsed_time(self, later: "FakeEvent") -> float:
        assert later.waited
        return 1000.0 * (later.at - self.at)


def test_on_a_gpu_events_are_read_when_they_are_over(monkeypatch):
    monkeypatch.setattr(torch.cuda, "Event", FakeEvent)
    watch, gpu, count = Stopwatch(), torch.device("cuda"), 3 * KEPT
    for _ in range(count):
        with watch.on(gpu), watch.off(gpu):  # four events: three seconds, less the one between the middle two
            pass
    assert len(watch._spans) < 2 * KEPT
    assert watch.seconds() == 2 * count
    with pytest.raises(KeyboardInterrupt), watch.on(gpu):
        raise KeyboardInterrupt
    assert watch.seconds() == 2 * count


def test_decisions_are_timed(monkeypatch):
    problem, usual, count = hard_case("dense", 1, safe=True).problem, BaBSR.decide, []

    def slow(self, memory, domains, look):
        count.append(len(domains))
        time.sleep(0.01)
        return usual(self, memory, domains, look)

    monkeypatch.setattr(BaBSR, "decide", slow)
    result = solve(problem, Options(bounds="dual", branching="babsr", attack=False, batch=4))
    assert len(count) > 2
    assert 0.01 * len(count) <= result.notes["decision_seconds"] < result.seconds


def test_children_that_a_decision_keeps_are_bounds(monkeypatch):
    problem, usual, waited = hard_case("dense", 1, safe=True).problem, DualSession.bound, []

    def slow(self, domains, cutoff, deadline):
        waited.append(0.03)
        time.sleep(0.03)
        return usual(self, domains, cutoff, deadline)

    monkeypatch.setattr(DualSession, "bound", slow)
    how = Options(bounds="dual", intermediate="fixed", branching="learnt-local", attack=False, batch=64)
    result = solve(problem, how)
    assert len(waited) > 2
    assert result.notes["decision_seconds"] < result.seconds - sum(waited)
