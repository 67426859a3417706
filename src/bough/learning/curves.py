"""The lines of a training enter, a picture leaves: losses and accuracies by epoch, and the last ones by depth."""

from collections.abc import Mapping, Sequence
from pathlib import Path

from bough.drawing import MUTED, Pen, pen, save, style
from bough.learning.lessons import EpochFigures

_PENS: Mapping[str, Pen] = {"training": pen(0), "validation": pen(1)}


def draw(path: Path, history: Sequence[EpochFigures]) -> None:
    """A PNG or SVG; nothing where no epoch has ended."""
    if not history:
        return
    from matplotlib.figure import Figure

    with style():
        figure = Figure(figsize=(10, 3.2), layout="constrained")
        loss, accuracy, by_depth = figure.subplots(1, 3)
        epochs = [line.epoch for line in history]
        sparse = max(1, len(epochs) // 8)
        for k, (name, pen_of) in enumerate(_PENS.items()):
            look = {**pen_of.line(), "markevery": (k * sparse // 2 % sparse, sparse)}
            figures = [line.training if name == "training" else line.validation for line in history]
            loss.plot(epochs, [line.loss for line in figures], label=name, **look)
            accuracy.plot(epochs, [line.accuracy for line in figures], **look)
        best = min(history, key=lambda line: line.validation.loss)
        for axes in (loss, accuracy):
            axes.axvline(best.epoch, color=MUTED, linewidth=0.8, linestyle=":")
            axes.set_xlabel("epoch")
            axes.xaxis.get_major_locator().set_params(integer=True)
        loss.set_title("hinge rank loss")
        loss.legend()
        accuracy.set_title("m at least 0.9 of the best")
        accuracy.set_ylim(top=1)
        bins = best.validation.by_depth
        by_depth.bar(list(bins), [one.accuracy for one in bins.values()], color=_PENS["validation"].colour)
        for k, one in enumerate(bins.values()):
            by_depth.annotate(str(one.samples), (k, 0.01), ha="center", color="white", fontsize=7)
        by_depth.set_ylim(0, 1)
        by_depth.grid(visible=False, axis="x")
        by_depth.set_title(f"validation by depth, epoch {best.epoch}")
        by_depth.set_xlabel("depth")
        save(figure, path)
