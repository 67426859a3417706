"""The lines of a training enter, a picture leaves: losses and accuracies by epoch, and the last ones by depth."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from bough.errors import OutputError

_COLOURS = {"training": "#0072b2", "validation": "#d55e00"}  # Okabe and Ito's, told apart by every eye
_MUTED = "#666666"


def draw(path: Path, history: Sequence[Mapping[str, Any]]) -> None:
    """A PNG; nothing where no epoch has ended."""
    if not history:
        return
    from matplotlib import rc_context, rcParamsDefault
    from matplotlib.figure import Figure

    with rc_context({**rcParamsDefault, "axes.spines.top": False, "axes.spines.right": False, "font.size": 9}):
        figure = Figure(figsize=(10, 3.2), layout="constrained")
        loss, accuracy, by_depth = figure.subplots(1, 3)
        epochs = [line["epoch"] for line in history]
        for name, colour in _COLOURS.items():
            loss.plot(epochs, [line[name]["loss"] for line in history], color=colour, label=name)
            accuracy.plot(epochs, [line[name]["accuracy"] for line in history], color=colour)
        best = min(history, key=lambda line: line["validation"]["loss"])
        for axes in (loss, accuracy):
            axes.axvline(best["epoch"], color=_MUTED, linewidth=0.7, linestyle=":")
            axes.set_xlabel("epoch")
        loss.set_title("hinge rank loss")
        loss.legend(frameon=False)
        accuracy.set_title("m at least 0.9 of the best")
        accuracy.set_ylim(top=1)
        bins = list(best["validation"]["by_depth"].items())
        by_depth.bar([name for name, _ in bins], [f["accuracy"] for _, f in bins], color=_COLOURS["validation"])
        for k, (_, figures) in enumerate(bins):
            by_depth.annotate(str(figures["samples"]), (k, 0.01), ha="center", color="white", fontsize=7)
        by_depth.set_ylim(0, 1)
        by_depth.set_title(f"validation by depth, epoch {best['epoch']}")
        try:
            figure.savefig(path, dpi=130)
        except OSError as error:
            raise OutputError(f"cannot write {path}: {error.strerror or error}") from error
