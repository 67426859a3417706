"""Time for decisions is told apart from the time for bounds."""

import time

import pytest
import torch
from tests.support import hard_case

from bough.api import Options, solve
from bough.bounds.dual import DualBounding
from bough.branching.babsr import BaBSR
from bough.search.stopwatch import Stopwatch

CPU = torch.device("cpu")


def ticking(monkeypatch, *times: float) -> Stopwatch:
    """A watch that reads these times off its clock."""
    monkeypatch.setattr("bough.search.stopwatch.time.perf_counter", iter(times).__next__)
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
    problem, usual, waited = hard_case("dense", 1, safe=True).problem, DualBounding.bound, []

    def slow(self, domains, cutoff, deadline):
        waited.append(0.03)
        time.sleep(0.03)
        return usual(self, domains, cutoff, deadline)

    monkeypatch.setattr(DualBounding, "bound", slow)
    how = Options(bounds="dual", intermediate="fixed", branching="learnt-local", attack=False, batch=64)
    result = solve(problem, how)
    assert len(waited) > 2
    assert result.notes["decision_seconds"] < result.seconds - sum(waited)
