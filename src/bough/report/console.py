"""What a person sees while something runs: a line or a bar, kept up to date on a terminal, repeated in a log."""

import math
from contextlib import AbstractContextManager
from typing import TYPE_CHECKING, TextIO, final

from bough.budget import Clock
from bough.search.observe import AbstractObserver

if TYPE_CHECKING:
    from rich.console import RenderableType
    from rich.live import Live
    from rich.progress import Progress, TaskID

    from bough.search.loop import SearchState

LOG_EVERY = 10.0  # seconds between lines where there is no terminal
REFRESH = 0.2  # seconds between updates on a terminal


def shown_live(what: "RenderableType", stream: TextIO | None, per_second: int) -> "Live | None":
    """Show something on a terminal and keep it up to date until that is stopped; None where there is no terminal."""
    if stream is None or not stream.isatty():
        return None
    from rich.console import Console
    from rich.live import Live

    live = Live(what, console=Console(file=stream), refresh_per_second=per_second, transient=True)
    live.start()
    return live


@final
class ProgressLine(AbstractObserver):
    """Open domains, global bound, branches and seconds, on standard error; nothing where that is closed (None)."""

    def __init__(self, stream: TextIO | None) -> None:
        self._stream = stream
        self._live: Live | None = None
        self._last = 0.0  # seconds into the search at the last line

    def __enter__(self) -> "ProgressLine":
        self._live = shown_live("attacking and bounding the root ...", self._stream, 5)
        return self

    def __exit__(self, *_: object) -> None:
        if self._live is not None:
            self._live.stop()

    def seen(self, state: "SearchState", seconds: float) -> None:
        """Say where the search stands, if it is time to."""
        if self._due(seconds):  # asking the frontier makes the host wait for a GPU
            self._show(progress_text(state, seconds), seconds)

    def told(self, line: str, seconds: float) -> None:
        """Say this, if it is time to."""
        if self._due(seconds):
            self._show(line, seconds)

    def _due(self, seconds: float) -> bool:
        every = REFRESH if self._live is not None else LOG_EVERY
        return self._stream is not None and seconds - self._last >= every

    def _show(self, line: str, seconds: float) -> None:
        self._last = seconds
        if self._live is not None:
            self._live.update(line)
        elif self._stream is not None:
            self._stream.write(line + "\n")
            self._stream.flush()


def progress_text(state: "SearchState", seconds: float) -> str:
    """The line for one state."""
    if not state.started:
        known = "" if state.roots is None else f"   bound {state.root_lower:.4g}"
        return f"bounding the root{known}   {seconds:.0f} s"
    bound = f"{state.lower:.4g}" if math.isfinite(state.lower) else "-"
    return (
        f"{len(state.frontier)} open domains   bound {bound} (root {state.root_lower:.4g})   "
        f"{state.branches} branches   depth {state.depth}   {seconds:.0f} s"
    )


@final
class DownloadBar(AbstractContextManager["DownloadBar"]):
    """Bytes of one file after another, as a bar on a terminal and as a line now and then in a log."""

    def __init__(self, stream: TextIO | None) -> None:
        self._stream = stream
        self._bar: Progress | None = None
        self._tasks: dict[str, TaskID] = {}
        self._last: Clock | None = None  # since the last line

    def __exit__(self, *_: object) -> None:
        if self._bar is not None:
            self._bar.stop()

    def update(self, name: str, done: int, total: int) -> None:
        """So many bytes of a file are there."""
        if self._stream is None:
            return
        if not self._stream.isatty():
            if self._last is None or self._last.seconds() > LOG_EVERY or done == total:
                self._last = Clock.start()
                self._stream.write(f"{name}: {done / 1e6:.1f} of {total / 1e6:.1f} MB\n")
                self._stream.flush()
            return
        if self._bar is None:
            from rich.console import Console
            from rich.progress import BarColumn, DownloadColumn, Progress, TextColumn, TimeRemainingColumn

            columns = (TextColumn("{task.description}"), BarColumn(), DownloadColumn(), TimeRemainingColumn())
            self._bar = Progress(*columns, console=Console(file=self._stream), transient=True)
            self._bar.start()
        if name not in self._tasks:
            self._tasks[name] = self._bar.add_task(name, total=total)
        self._bar.update(self._tasks[name], completed=done)
