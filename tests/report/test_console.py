"""The progress line: what it says, how often, and where it keeps quiet."""

import io
import re
from typing import Any

import pytest
import torch
from tests.support import Packing, domains_of

from bough.domain.batch import Bounds
from bough.report import console
from bough.report.console import ProgressLine, progress_text
from bough.search.frontier import Frontier
from bough.search.loop import SearchState


class Terminal(io.StringIO):
    """A stream that claims to be a terminal."""

    def isatty(self) -> bool:
        return True


def state(**changes: Any) -> SearchState:
    """A search with two open domains."""
    frontier = Frontier(Packing())
    ones = torch.ones(2, 3, dtype=torch.float64)
    frontier.push(domains_of(Bounds(-ones, ones), ones[:, :1]))
    known = {"frontier": frontier, "started": True, "root_lower": -2.5, "branches": 6, "depth": 3}
    return SearchState(memory=None, **{**known, **changes})


def test_before_and_after_the_root() -> None:
    assert progress_text(state(started=False), 3.4) == "bounding the root   3 s"
    text = progress_text(state(), 12.3)
    assert text == "2 open domains   bound - (root -2.5)   6 branches   depth 3   12 s"
    assert "bound 1.25 (" in progress_text(state(frontier=Frontier(Packing()), least_closed=1.25), 0.0)


def test_a_log_gets_a_line_now_and_then() -> None:
    stream = io.StringIO()
    with ProgressLine(stream) as line:
        for second in range(36):
            line.seen(state(), float(second))
    lines = stream.getvalue().splitlines()
    assert [text.split("   ")[-1] for text in lines] == ["10 s", "20 s", "30 s"]
    assert "\x1b" not in stream.getvalue()


def test_a_short_search_says_nothing_in_a_log() -> None:
    stream = io.StringIO()
    with ProgressLine(stream) as line:
        line.seen(state(), 0.1)
    assert stream.getvalue() == ""


def test_a_terminal_is_left_as_it_was(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TERM", "xterm")
    monkeypatch.setattr(console, "REFRESH", 0.0)
    stream = Terminal()
    with ProgressLine(stream) as line:
        line.seen(state(), 1.0)
    assert "2 open domains" in re.sub(r"\x1b\[[0-9;]*m", "", stream.getvalue())
    hidden, shown = "\x1b[?25l", "\x1b[?25h"
    assert stream.getvalue().rfind(hidden) < stream.getvalue().rfind(shown)


def test_a_terminal_is_left_as_it_was_after_an_interrupt(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TERM", "xterm")
    stream = Terminal()

    def interrupted() -> None:
        with ProgressLine(stream):
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        interrupted()
    assert stream.getvalue().rfind("\x1b[?25l") < stream.getvalue().rfind("\x1b[?25h")


def test_a_closed_stream_hears_nothing() -> None:
    with ProgressLine(None) as line:
        line.seen(state(), 100.0)
