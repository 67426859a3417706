"""Training: it learns what can be learnt, goes on as if it had never stopped, and says what is wrong."""

import hashlib
import json
import math
import sys
from contextlib import suppress
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

import pytest
import torch
from tests.learning.tiny import Tiny, Told, samples_of
from tests.support import hard_case
from torch import Tensor

from bough.api import solve
from bough.budget import Deadline
from bough.cli import main
from bough.errors import BadInput
from bough.learning.curves import draw
from bough.learning.features import fit
from bough.learning.lessons import BINS, EpochFigures, Lessons, LessonTally, evaluate, losses
from bough.learning.presets import KNOWN_MODELS, TrainingRecipe, build, recipe_for
from bough.learning.samples import Samples
from bough.learning.train import (
    CHECKPOINT,
    CURVES,
    EPOCHS,
    REPORT,
    WEIGHTS,
    Trained,
    first_model,
    gradient_norms,
    train,
)
from bough.options import Options
from bough.plan import make_plan
from bough.problem.onnx_writer import write_network

CPU = torch.device("cpu")
NEVER = Deadline.never()
QUICK = TrainingRecipe(preset="tiny", epochs=4, rate=1e-2, decay=0.0, batch=4, group=2, seed=3)


@pytest.fixture(scope="module")
def lessons() -> tuple[Lessons, Lessons]:
    some = [samples_of(kind, seed) for kind, seed in (("dense", 1), ("dense", 5), ("residual", 4), ("pooled", 1))]
    return Lessons.of(some, CPU), Lessons.of([samples_of("dense", 2), samples_of("residual", 5)], CPU)


def run(
    folder: Path, lessons, recipe: TrainingRecipe = QUICK, *, seconds=None, lines=None, make=lambda _: Tiny()
) -> Trained:
    folder.mkdir(exist_ok=True)
    report = (lambda _: None) if lines is None else lines.append
    training, validation = lessons
    return train(recipe, training, validation, folder, report, lambda *_: None, Deadline.after(seconds), make)


class Stopping(list[EpochFigures]):
    """Hears of epochs, and interrupts after that of a number."""

    def __init__(self, last: int) -> None:
        super().__init__()
        self._last = last

    def append(self, line: EpochFigures) -> None:
        if line.epoch == self._last < line.of:
            raise KeyboardInterrupt


def first_weight(trained: Trained) -> Tensor:
    return next(trained.model.parameters())


def test_a_tiny_set_is_learnt_by_heart(tmp_path, lessons):
    lines: list[EpochFigures] = []
    recipe = replace(QUICK, epochs=80, stop=100)
    few = Lessons.of([part[:6] for part in lessons[0].parts[:2]], CPU)
    trained = run(tmp_path, (few, few), recipe, lines=lines)
    assert trained.finished
    assert len(lines) == 80
    assert lines[-1].validation.loss < 0.3 * lines[0].training.loss
    assert lines[-1].validation.accuracy >= 0.9
    written = (tmp_path / EPOCHS).read_text().splitlines()
    assert [json.loads(line) for line in written] == [asdict(line) for line in lines]
    least = min(lines, key=lambda line: line.validation.loss)
    again = evaluate(trained.model, few, recipe)
    assert again.loss == pytest.approx(least.validation.loss, rel=1e-5)  # the best weights are kept
    assert again.samples == len(few)
    norms = gradient_norms(trained.model, recipe, few)
    assert set(norms) == {"hidden.weight", "hidden.bias", "out.weight", "out.bias"}
    assert norms["hidden.weight"].gradient > 0
    draw(tmp_path / "curves.png", trained.history)
    assert (tmp_path / "curves.png").read_bytes().startswith(b"\x89PNG")


@pytest.mark.parametrize("preset", KNOWN_MODELS.names())
def test_nothing_is_dead_after_training(tmp_path, lessons, preset):
    """Gradients reach every parameter; their norms are printed (run with -s). `paper` and `paper-code` are trained by
    their own recipe but for its rate, with the weight decay under which the authors' forward pass died (facts 4.6).
    """
    quick = {"rate": 1e-3, "batch": 8, "group": 4} if preset.startswith("paper") else {}
    recipe = recipe_for(preset, epochs=3, seed=1, **quick)
    few = Lessons.of([part[:8] for part in lessons[0].parts], CPU)
    trained = run(tmp_path, (few, few), recipe, make=first_model)
    assert trained.history[-1].training.loss < trained.history[0].training.loss
    norms = gradient_norms(trained.model, recipe, few)
    assert set(norms) == {name for name, _ in trained.model.named_parameters()}
    summary = ", ".join(f"{name} {n.gradient:.1e} of {n.weights:.1e}" for name, n in norms.items())
    sys.stdout.write(f"{preset}: {summary}\n")
    del norms[list(norms)[-1]]  # added to every score: no comparison of scores feels it
    assert all(0 < n.gradient < math.inf and 0 < n.weights < math.inf for n in norms.values())
    if not preset.startswith("paper"):
        largest = max(n.gradient for n in norms.values())
        assert min(n.gradient for n in norms.values()) > 1e-5 * largest


@pytest.mark.parametrize("change", [{}, {"decoupled": True}, {"anneal": True, "loss": "choice"}])
def test_an_interrupted_training_goes_on_as_if_it_had_not_been(tmp_path, lessons, change):
    recipe = replace(QUICK, decay=1e-2, epochs=5, patience=1, stop=9, **change)
    whole, parts = run(tmp_path / "whole", lessons, recipe), None
    for epochs in (1, 3, 5):
        lines = Stopping(epochs)
        with suppress(KeyboardInterrupt):
            parts = run(tmp_path / "parts", lessons, recipe, lines=lines)
    assert parts is not None
    for resumed, uninterrupted in zip(parts.model.parameters(), whole.model.parameters(), strict=True):
        assert torch.equal(resumed, uninterrupted)
    assert [replace(line, seconds=0.0, of=0) for line in parts.history] == [
        replace(line, seconds=0.0, of=0) for line in whole.history
    ]


def test_the_rate_anneals_over_all_epochs(tmp_path, lessons):
    recipe = replace(QUICK, loss="choice", anneal=True, epochs=3, patience=1, stop=1)
    whole = run(tmp_path / "whole", lessons, recipe)
    rates = [line.rate for line in whole.history]
    assert rates == pytest.approx([QUICK.rate, 0.75 * QUICK.rate, 0.25 * QUICK.rate])  # at the start of each epoch


def test_the_seed_decides(tmp_path, lessons):
    first, same, other = (run(tmp_path / n, lessons, replace(QUICK, seed=s)) for n, s in (("a", 3), ("b", 3), ("c", 4)))
    assert torch.equal(first_weight(first), first_weight(same))
    assert not torch.equal(first_weight(first), first_weight(other))


def test_the_rate_falls_and_the_training_ends_without_improvement(tmp_path, lessons):
    """A model that cannot learn is at its best after the first epoch."""

    def stubborn(_: TrainingRecipe) -> Told:
        weight = torch.nn.Parameter(torch.ones(1))
        model = Told(lambda _, scene: scene.lower * 0 + weight.sum() * 0)
        model.register_parameter("weight", weight)
        return model

    recipe = replace(QUICK, epochs=100, patience=2, stop=5)
    trained = run(tmp_path, lessons, recipe, make=stubborn)
    assert len(trained.history) == 6
    assert trained.finished
    rates = [line.rate for line in trained.history]
    assert rates == pytest.approx([1e-2, 1e-2, 1e-2, 2e-3, 2e-3, 4e-4])
    assert len(run(tmp_path, lessons, recipe, make=stubborn).history) == 6  # and it stays at its end


def test_the_time_limit_keeps_what_ended(tmp_path, lessons):
    trained = run(tmp_path, lessons, seconds=0.0)
    assert not trained.finished
    assert trained.history == ()
    assert not (tmp_path / CHECKPOINT).exists()
    run(tmp_path, lessons, replace(QUICK, epochs=2))
    assert len(run(tmp_path, lessons, seconds=0.0).history) == 2


def test_an_epoch_that_was_cut_short_did_not_happen(tmp_path, lessons):
    class Short(Deadline):
        def check(self) -> None:
            calls.append(1)
            if len(calls) == 9:
                super().check()

    calls: list[int] = []
    tmp_path.mkdir(exist_ok=True)
    late = Short(0.0, 0.0)
    training, validation = lessons
    trained = train(QUICK, training, validation, tmp_path, lambda _: None, lambda *_: None, late, lambda _: Tiny())
    assert not trained.finished
    whole = run(tmp_path / "whole", lessons, replace(QUICK, epochs=max(1, len(trained.history))))
    if trained.history:
        assert torch.equal(first_weight(trained), first_weight(whole))
    resumed, through = run(tmp_path, lessons), run(tmp_path / "through", lessons)
    assert torch.equal(first_weight(resumed), first_weight(through))


def test_bad_input_is_said(tmp_path, lessons):
    empty = Lessons.of([], CPU)
    with pytest.raises(BadInput, match="no samples for training"):
        run(tmp_path, (empty, lessons[1]))
    with pytest.raises(BadInput, match="no samples for validation"):
        run(tmp_path, (lessons[0], empty))
    run(tmp_path, lessons, replace(QUICK, epochs=1))
    with pytest.raises(BadInput, match=r"another training \(rate 0.01 there, 0.5 now\)"):
        run(tmp_path, lessons, replace(QUICK, rate=0.5))
    with pytest.raises(BadInput, match="another training \\(training"):
        run(tmp_path, (lessons[1], lessons[1]))
    run(tmp_path / "started", lessons, replace(QUICK, epochs=1, start="cifar-local"))
    with pytest.raises(BadInput, match=r"another training \(start cifar-local there, None now\)"):
        run(tmp_path / "started", lessons)
    (tmp_path / CHECKPOINT).write_bytes(b"rubbish")
    with pytest.raises(BadInput, match="no checkpoint of bough"):
        run(tmp_path, lessons)
    with pytest.raises(BadInput, match="smaller --rate"):
        run(tmp_path / "nan", lessons, make=lambda _: _broken())
    for wrong in ({"epochs": 0}, {"classes": 1}, {"rate": 0.0}, {"decay": -1.0}, {"measure": "median"}, {"batch": 0}):
        with pytest.raises(BadInput):
            recipe_for("fast", **wrong)
    with pytest.raises(BadInput, match="no preset 'huge'; there are: fast, local"):
        recipe_for("huge")


def _broken() -> Tiny:
    model = Tiny()
    torch.nn.init.constant_(model.out.bias, math.nan)
    return model


def test_usual_recipes():
    assert recipe_for("fast", rate=None).decoupled
    assert recipe_for("fast", rate=0.5).rate == 0.5


def test_features_are_fitted_before_training_and_kept_when_it_goes_on(tmp_path, lessons):
    def scales(epochs: int) -> Tensor:
        recipe = replace(QUICK, preset="local", epochs=epochs)
        trained = run(tmp_path, lessons, recipe, make=lambda _: build("local", width=4))
        spread: Tensor = trained.model.state_dict()["relus.standard.spread"]
        return spread

    first = scales(1)
    fresh = build("local", width=4)
    fit(fresh, ((part.graph, part.scene) for part in lessons[0].parts))
    assert not torch.equal(first, torch.ones_like(first))
    assert torch.equal(first, fresh.state_dict()["relus.standard.spread"])
    assert torch.equal(scales(2), first)


# Batches and figures


def test_batches_hold_every_sample_once_and_mix_properties(lessons):
    train_set = lessons[0]
    for size, group in ((4, 2), (1, 1), (5, 9), (1000, 3)):
        drawn, mixed = [], 0
        for batch in train_set.batches(size, group, torch.Generator().manual_seed(0)):
            assert sum(len(rows) for _, rows in batch) <= size
            assert all(len(rows) <= group for _, rows in batch)
            drawn += [(k, r) for k, rows in batch for r in rows.tolist()]
            mixed += len({k for k, _ in batch}) > 1
        assert sorted(drawn) == [(k, r) for k, part in enumerate(train_set.parts) for r in range(len(part))]
        assert mixed or size == 1


def test_samples_that_teach_nothing_are_left_out():
    some = samples_of("dense", 5)
    blank = Samples(some.graph, some.scene, torch.full_like(some.children, -torch.inf), some.step)
    half = Samples(some.graph, some.scene, some.children.clone(), some.step)
    half.children[0] = -torch.inf
    assert len(Lessons.of([blank], CPU).parts) == 0
    assert len(Lessons.of([half, blank], CPU)) == len(some) - 1


def test_figures_by_depth():
    tally = LessonTally(CPU)
    gains = torch.tensor([[1.0, 0.0]]).expand(6, -1)
    scores = torch.tensor([[1.0, 0.0], [0.0, 1.0]]).repeat(3, 1)
    tally.add(torch.arange(6.0), scores, gains, torch.tensor([0.0, 4.0, 5.0, 19.0, 40.0, 400.0]))
    figures = tally.figures()
    assert (figures.samples, figures.loss, figures.accuracy) == (6, 2.5, 0.5)
    assert {name: f.samples for name, f in figures.by_depth.items()} == {"0-4": 2, "5-9": 1, "10-19": 1, "40+": 2}
    assert figures.by_depth["5-9"].accuracy == 1.0
    assert BINS == ("0-4", "5-9", "10-19", "20-39", "40+")


def test_what_is_learnt_follows_the_measure(lessons):
    samples = lessons[0].parts[0]
    model = Told(lambda _, scene: scene.upper)
    sums = {
        float(losses(model, samples, replace(QUICK, measure=m), LessonTally(CPU)).sum()) for m in ("mean", "min", "max")
    }
    assert len(sums) > 1


# The command


@pytest.fixture
def folder(tmp_path) -> Path:
    """A folder of samples as `bough label` writes them."""
    dataset = pytest.importorskip("bough.learning.dataset")
    pytest.importorskip("bough.learning.weights")
    root: Path = tmp_path / "samples"
    for name in (dataset.SHARDS, dataset.NETWORKS):
        (root / name).mkdir(parents=True)
    lines = [{"schema": dataset.SCHEMA, "recipe": {}}]
    parts = {"training": 0, "validation": 0}
    for image in range(40):
        part = dataset.split_of("mnist", "train", image)
        if parts[part] == 2:
            continue
        parts[part] += 1
        kind, seed = (("dense", 1), ("residual", 4), ("dense", 5), ("dense", 0))[sum(parts.values()) - 1]
        samples = samples_of(kind, seed)
        data = write_network(hard_case(kind, seed, safe=True).problem.network)
        sha = hashlib.sha256(data).hexdigest()
        dataset.network_path(root, sha).write_bytes(data)
        about = {"dataset": "mnist", "split": "train", "image": image, "label": 0, "target": 1, "eps": 0.1}
        more = {"normalised": False, "clip": True, "seed": 0, "bounder": "lp", "rule": "babsr"}
        more["mode"] = next(iter(dataset.MODES))
        card = dataset.SampleCard(
            name=f"p{image}", network=kind, sha256=sha, samples=len(samples), revision=None, **about, **more
        )
        dataset.shard_path(root, card.name).write_bytes(dataset.encode(card, samples))
        lines.append(asdict(card))
    (root / dataset.MANIFEST).write_text("".join(json.dumps(line) + "\n" for line in lines))
    return root


def test_the_command_trains_what_a_search_can_use(folder, tmp_path, capsys):
    out = tmp_path / "out"
    command = ["train", str(folder), "--out", str(out), "--preset", "local", "--device", "cpu", "--batch", "8"]
    assert main([*command, "--epochs", "1"]) == 0
    assert main([*command, "--epochs", "2"]) == 2  # it is there already
    assert "go on with it by --resume" in capsys.readouterr().err
    assert main([*command, "--epochs", "2", "--resume"]) == 0
    printed = capsys.readouterr()
    assert printed.out == f"{out / WEIGHTS}\n"
    assert "dead: none" in printed.err
    assert "epoch 2/2" in printed.err
    report = json.loads((out / REPORT).read_text())
    assert report["recipe"]["preset"] == "local"
    assert report["data"]["bounder"] == "lp"
    assert report["figures"]["validation"]["by_depth"]["0-4"]["samples"] > 0
    assert (out / CURVES).is_file()
    problem = hard_case("dense", 5, safe=True).problem
    for bounds, warned in (("lp", False), ("dual", True)):
        options = Options(branching="learnt-local", weights=str(out / WEIGHTS), bounds=bounds, attack=False, batch=8)
        assert f"learnt-local branching by {WEIGHTS}" in make_plan(options, problem.network).words
        result = solve(problem, options)
        assert result.verdict.value == "verified"
        assert result.notes["learnt_decisions"] > 0
        assert any("trained with lp bounds" in remark for remark in result.remarks) == warned
    wrongs: tuple[tuple[dict[str, Any], str], ...] = (
        ({"branching": "gnn", "weights": str(out / WEIGHTS)}, "use --branching learnt-local"),
        ({"branching": "learnt-local", "weights": str(out / "none.safetensors")}, "none.safetensors"),
    )
    for wrong, message in wrongs:
        with pytest.raises(BadInput, match=message):
            solve(problem, Options(**wrong))
    with pytest.raises(BadInput, match="only learnt rules have weights"):
        Options(branching="babsr", weights="some")


def test_the_command_says_what_is_missing(folder, tmp_path, capsys):
    out = ["--out", str(tmp_path / "out"), "--device", "cpu"]
    assert main(["train", str(folder), *out, "--resume"]) == 2
    assert "holds no training to go on with" in capsys.readouterr().err
    assert main(["train", str(tmp_path), *out]) == 2
    assert "bough label" in capsys.readouterr().err
    assert main(["train", str(folder), *out, "--limit-seconds", "0"]) == 3
    assert "before the first epoch" in capsys.readouterr().err
    assert main(["train", str(folder), *out, "--rate", "-1"]) == 2
