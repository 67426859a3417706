"""How long a part of a search takes: parts that are switched on and off enter, seconds leave.

On a GPU by events in its own queue, so that nobody waits for anybody; on the CPU by the clock.
"""

from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from typing import Any

import torch

from bough.budget import Clock

KEPT = 512  # spans on a GPU that may not have ended yet


class Stopwatch:
    """Adds up the spans in which it is on, without those in which it is off again."""

    def __init__(self) -> None:
        self._seconds = 0.0
        self._spans: list[tuple[Any, Any, float]] = []  # on a GPU: first and last event, and the sign
        self._running = False

    @contextmanager
    def on(self, device: torch.device) -> Iterator[None]:
        """Count what happens inside."""
        self._running = True
        try:
            with self._span(device, 1.0):
                yield
        finally:
            self._running = False

    @contextmanager
    def off(self, device: torch.device) -> Iterator[None]:
        """Do not count what happens inside, where that would be counted."""
        with self._span(device, -1.0) if self._running else nullcontext():
            yield

    @contextmanager
    def _span(self, device: torch.device, sign: float) -> Iterator[None]:
        if device.type != "cuda":
            clock = Clock.start()
            try:
                yield
            finally:
                self._seconds += sign * clock.seconds()
            return
        first, last = (torch.cuda.Event(enable_timing=True) for _ in range(2))
        first.record()
        yield  # a span that is broken off does not count
        last.record()
        self._spans.append((first, last, sign))
        if len(self._spans) >= 2 * KEPT:
            self._settle(KEPT)

    def _settle(self, count: int) -> None:
        done, self._spans = self._spans[:count], self._spans[count:]
        for first, last, sign in done:
            last.synchronize()
            self._seconds += sign * first.elapsed_time(last) / 1000

    def seconds(self) -> float:
        """All of it so far."""
        self._settle(len(self._spans))
        return self._seconds
