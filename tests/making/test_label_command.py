"""`bough label` as a script sees it, over a tiny network and data set: every end, and every bad input."""

import json
from collections.abc import Callable
from dataclasses import asdict
from itertools import combinations
from pathlib import Path
from typing import Any

import pytest
import torch
from tests import dots
from tests.support import failing

from bough import api
from bough.cli import main
from bough.errors import SolverFailure
from bough.jobs.pool import Pool
from bough.learning import dataset as samples
from bough.learning.dataset import read, read_shards, split_of
from bough.learning.gnn import Local
from bough.learning.weights import load, shipped
from bough.making import labelling
from bough.making.labelling import allowed
from bough.problem.onnx_writer import write_network
from bough.zoo.table import Row, as_text, read_table, use_of

FAST = ("--timeout", "inf", "--bounds", "lp", "--rule", "random", "--samples", 3, "--between", 1)
NETWORK = dots.network(8, 0.8)
IMAGES = dots.images(NETWORK, "train")
EPS = {5: 0.22, 21: 0.14, 31: 0.14, 8: 0.22, 33: 0.1, 20: 0.06}  # these take branching, but for the last
FREE = list(EPS)
KEPT = [k for k in IMAGES.index.tolist() if use_of("dots", "train", k) == "test"]


def row(image: int, eps: float | None = None, **more: Any) -> Row:
    label = IMAGES.at(image)[1] if image in IMAGES.index else 0
    known: dict[str, Any] = {
        "dataset": "dots",
        "split": "train",
        "network": "tiny.onnx",
        "image": image,
        "label": label,
        "target": (label + 1) % 3,
        "eps": eps or EPS.get(image, 0.1),
        "normalised": False,
        "clip": True,
        "method": "lp-babsr",
        "verdict": "verified",
        "branches": 10,
        "bounds": 11,
        "seconds": 0.1,
        "device": "cpu",
        "difficulty": "easy",
        "use": use_of("dots", "train", image),
    }
    return Row(**{**known, **more})


class Shell:
    """The command line over a folder of its own."""

    def __init__(self, folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
        self.folder, self.out, self._capsys = folder, folder / "out", capsys
        self.table = folder / "table.csv"
        write_network(NETWORK, folder / "tiny.onnx")
        self.write([row(k) for k in FREE[:6]])

    def write(self, rows: list[Row]) -> None:
        self.table.write_text(as_text(rows))

    def __call__(self, *words: object, table: Path | None = None) -> tuple[int, str]:
        """Exit status and standard error; nothing goes to standard output."""
        self._capsys.readouterr()
        status = main([str(word) for word in ["label", table or self.table, "--out", self.out, *words]])
        printed = self._capsys.readouterr()
        assert printed.out == ""
        assert "Traceback" not in printed.err
        return status, printed.err

    @property
    def shards(self) -> dict[str, bytes]:
        return {path.name: path.read_bytes() for path in (self.out / samples.SHARDS).iterdir()}

    @property
    def manifest(self) -> list[dict[str, Any]]:
        lines = (self.out / samples.MANIFEST).read_text().splitlines()
        return [{**json.loads(line), "seconds": None} for line in lines]

    def moved(self, name: str) -> "Shell":
        """The same with another output folder."""
        other = object.__new__(Shell)
        other.__dict__ |= self.__dict__ | {"out": self.folder / name}
        return other


@pytest.fixture
def label(tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> Shell:
    dots.install(monkeypatch, IMAGES)
    return Shell(tmp_path, capsys)


class Calls:
    """Counts the calls of a function."""

    def __init__(self, function: Callable[..., Any]) -> None:
        self.count, self._function = 0, function

    def __call__(self, *arguments: Any) -> Any:
        self.count += 1
        return self._function(*arguments)


# From start to end


def test_the_images_are_for_training():
    assert {use_of("dots", "train", k) for k in FREE} == {"train"}


def test_a_table_becomes_samples(label):
    status, messages = label(*FAST)
    assert status == 0
    cards = label.manifest[1:]
    assert [entry["image"] for entry in cards] == FREE[:6]
    assert sum(entry["samples"] > 0 for entry in cards) >= 3
    assert {entry["mode"] for entry in cards} == {"steps", "whole"}
    shards = list(read_shards(label.out))
    assert [shard.card.samples for shard in shards] == [len(shard.samples) for shard in shards]
    assert sum(len(shard.samples) for shard in shards) == sum(entry["samples"] for entry in cards)
    for shard in shards:
        card = shard.card
        assert (card.network, card.dataset, card.split, card.bounder) == ("tiny", "dots", "train", "lp")
        assert card.label == IMAGES.at(card.image)[1]
        assert card.rule == ("strong" if card.mode == "whole" else "random")
        assert card.mode == "whole" or card.samples <= 3
        assert torch.equal(shard.samples.tried, shard.samples.scene.ambiguous)
        assert f"{card.name}: {card.samples} samples ({card.mode}, {card.part()})" in messages
    assert f"samples of 6 properties are in {label.out}" in messages
    parts = {part: sum(len(s) for s in read(label.out, part)) for part in ("training", "validation")}
    assert sum(parts.values()) == sum(entry["samples"] for entry in cards)


@pytest.mark.parametrize(
    "more", [("--deep",), ("--subset", "--whole", 1), ("--bounds", "dual", "--whole", 0, "--between", 0)]
)
def test_other_ways_to_label(label, more):
    label.write([row(k) for k in FREE[:2]])
    assert label(*FAST, "--max-bounds", 60, *more)[0] == 0
    entries = label.manifest[1:]
    assert {entry["mode"] for entry in entries} == {{"--deep": "deep", "--subset": "whole"}.get(more[0], "steps")}
    assert sum(entry["samples"] for entry in entries) > 0
    assert "dual" not in more or {entry["bounder"] for entry in entries} == {"dual"}
    if "--subset" in more:
        assert {entry["rule"] for entry in entries} == {"strong-subset"}


def test_bounds_of_relus_are_part_of_the_recipe(label):
    label.write([row(FREE[0])])
    assert label(*FAST)[0] == 0
    first, shards = label.manifest[0], label.shards
    other = label.moved("other")
    assert other(*FAST, "--intermediate", "paper")[0] == 0
    assert other.manifest[0] != first
    assert other.shards != shards
    status, messages = label(*FAST, "--intermediate", "paper", "--resume")
    assert status == 2
    assert "intermediate" in messages


def test_inputs_are_labelled_and_learnt_about(label, capsys):
    """A shard without them is one as ever, and samples without them teach nothing about inputs."""
    assert {split_of("dots", "train", k) for k in FREE[:6]} == {"training", "validation"}
    assert label(*FAST, "--inputs", 2)[0] == 0
    assert label.manifest[0]["recipe"]["inputs"] == 2
    plain = label.moved("plain")
    assert plain(*FAST)[0] == 0
    assert "inputs" not in plain.manifest[0]["recipe"]
    for shard, plain_shard in zip(read_shards(label.out), read_shards(plain.out), strict=True):
        with_inputs, without_inputs = shard.samples, plain_shard.samples
        assert without_inputs.halves is None
        assert with_inputs.halves is not None
        assert ((with_inputs.halves > -torch.inf).all(dim=2).sum(dim=1) == 2).all()
        assert torch.equal(with_inputs.children, without_inputs.children)
    train = ["--preset", "paper", "--inputs", "--epochs", "1", "--batch", "8", "--group", "8", "--device", "cpu"]
    trained = label.folder / "trained"
    assert main(["train", str(label.out), "--out", str(trained), *train]) == 0
    assert json.loads((trained / "training.json").read_text())["recipe"]["inputs"] is True
    capsys.readouterr()
    assert main(["train", str(plain.out), "--out", str(label.folder / "other"), *train]) == 2
    assert "say nothing about inputs; label them with --inputs" in capsys.readouterr().err
    assert main(["train", str(label.out), "--out", str(label.folder / "fast"), *train, "--preset", "fast"]) == 2
    assert "a fast model scores ReLUs only" in capsys.readouterr().err


def test_trees_are_grown_and_learnt_from(label, capsys):
    """Weights learn from the trees that they make, and start from themselves; samples of another kind are refused."""
    grow = ("--timeout", "inf", "--bounds", "dual", "--rule", "learnt-local", "--rollouts", 3, "--samples", 4)
    assert label(*grow, "--weights", "cifar-local", "--intermediate", "fixed")[0] == 0
    recipe = label.manifest[0]["recipe"]
    assert (recipe["rollouts"], recipe["weights"]) == (3, "cifar-local")
    cards = [entry for entry in label.manifest[1:] if entry["samples"]]
    assert {entry["mode"] for entry in cards} == {"trees"}
    assert {entry["verdict"] for entry in cards} <= {"whole", "enough"}
    assert {split_of("dots", "train", entry["image"]) for entry in cards} == {"training", "validation"}
    jobs = label.moved("jobs")
    assert jobs(*grow, "--weights", "cifar-local", "--intermediate", "fixed", "--jobs", 2)[0] == 0
    assert jobs.shards == label.shards

    def train(out: str, *words: str) -> tuple[int, str]:
        capsys.readouterr()
        common = ["--preset", "local", "--epochs", "2", "--device", "cpu", "--out", str(label.folder / out)]
        return main(["train", *common, *words]), capsys.readouterr().err

    status, messages = train("better", str(label.out), "--measure", "size", "--start", "cifar-local")
    assert status == 0
    settings = json.loads((label.folder / "better" / "training.json").read_text())["recipe"]
    assert (settings["measure"], settings["loss"], settings["start"]) == ("size", "expected", "cifar-local")
    (old, was), (new, card) = load(shipped("cifar-local")), load(label.folder / "better" / "weights.safetensors")
    assert asdict(card)["data"]["start"]["settings"] == was.settings  # where they are from is not lost
    assert isinstance(old, Local)
    assert isinstance(new, Local)
    assert torch.equal(old.relus.standard.mean, new.relus.standard.mean)  # scales stay
    changed = [not torch.equal(a, b) for a, b in zip(old.score.parameters(), new.score.parameters(), strict=True)]
    assert all(changed)
    status, messages = train("strong", str(label.out), "--measure", "tree")
    assert (status, "tell of nothing but trees" in messages) == (2, True)
    status, messages = train("other", str(label.out), "--measure", "size", "--start", "cifar")
    assert (status, "cifar has weights of preset fast" in messages) == (2, True)
    plain = label.moved("plain")
    assert plain(*FAST)[0] == 0
    status, messages = train("treeless", str(plain.out), "--measure", "size")
    assert (status, "tell of no trees, which --measure size is about" in messages) == (2, True)


def test_properties_not_solved_are_never_searched_whole(label):
    label.write([row(k, verdict="timeout", difficulty="timeout") for k in FREE[:2]])
    assert label(*FAST, "--whole", 1)[0] == 0
    assert {entry["mode"] for entry in label.manifest[1:]} == {"steps"}


def test_whoever_works_in_whatever_order_the_shards_are_the_same(label):
    label.write([row(k) for k in FREE[1:5]])
    label(*FAST)
    again, jobs, back = label.moved("again"), label.moved("jobs"), label.moved("back")
    assert again(*FAST)[0] == 0
    assert jobs(*FAST, "--jobs", 2)[0] == 0
    assert label.shards == again.shards == jobs.shards
    assert label.manifest == again.manifest == jobs.manifest
    label.write([row(k) for k in reversed(FREE[1:5])])
    back(*FAST)
    assert back.shards == label.shards
    other = label.moved("seed")
    other(*FAST, "--seed", 1)
    assert other.shards != label.shards


def test_every_second_row_and_a_row_given_twice(label):
    label.write([row(k) for k in (FREE[0], FREE[1], FREE[2], FREE[3], FREE[0], FREE[5])])
    assert label(*FAST, "--every", 2)[0] == 0
    assert [entry["image"] for entry in label.manifest[1:]] == [FREE[0], FREE[2]]


# Images for testing


def test_rows_of_images_for_testing_are_refused_and_counted(label):
    label.write([row(FREE[0]), row(KEPT[0]), row(KEPT[1]), row(FREE[1], use="test"), row(KEPT[2], use="train")])
    status, messages = label(*FAST)
    assert status == 0
    assert "note: 4 of 5 rows are refused: their images are kept for testing" in messages
    assert [entry["image"] for entry in label.manifest[1:]] == [FREE[0]]


def test_the_papers_own_properties_are_for_testing(label):
    label.write([row(FREE[0]), row(FREE[1], method="paper-babsr")])
    assert "1 of 2 rows are refused" in label(*FAST)[1]


def test_no_image_is_shared_with_whatever_a_rule_is_tested_on(bough_data):
    """Training, validation, the half of our own properties that is published for tests, and the paper's properties."""
    paper = {("cifar10", "test", r.image) for r in read_table(bough_data / "data" / "paper_results.csv")}
    assert len(paper) > 1500
    images = [(name, split, k) for name in ("cifar10", "mnist") for split in ("train", "test") for k in range(2000)]
    images += sorted(paper)
    rows = [row(k, 0.1, dataset=name, split=split, use=use_of(name, split, k)) for name, split, k in images]
    usable, refused = allowed(rows)
    assert len(usable) + refused == len(rows)
    labelled = {(r.dataset, r.split, r.image) for r in usable}
    published = {image for image in images if use_of(*image) == "test"}
    parts = {part: {image for image in labelled if split_of(*image) == part} for part in ("training", "validation")}
    assert min(map(len, parts.values())) > 500
    for one, other in combinations((*parts.values(), published, paper), 2):
        if (one, other) != (published, paper):  # both are for tests
            assert not one & other


def test_a_table_of_nothing_else_is_bad_input(label):
    label.write([row(KEPT[0])])
    status, messages = label(*FAST)
    assert (status, len(messages.splitlines())) == (2, 2)
    assert "may be labelled; give a table of images that are for training" in messages
    assert not label.out.exists()


def test_no_image_is_in_both_parts(label):
    label.write([row(k, eps) for k in FREE[:3] for eps in (0.13, None)])
    assert label(*FAST, "--max-bounds", 40)[0] == 0
    for part in ("training", "validation"):
        expected = {k for k in FREE[:3] if split_of("dots", "train", k) == part}
        images = {e["image"] for e in label.manifest[1:] if e["samples"] and e["image"] in expected}
        if images:
            assert {shard.card.image for shard in read_shards(label.out, part)} == images


# Going on


@pytest.mark.parametrize("after", [0, 3])
def test_an_interrupted_run_goes_on_to_the_same_samples(label, monkeypatch, after):
    label(*FAST)
    other = label.moved("other")
    monkeypatch.setattr(labelling, "solve", failing(KeyboardInterrupt(), after))
    status, messages = other(*FAST)
    assert status == 3
    assert f"bough: interrupted, {6 - after} properties are left; go on by the same command with --resume" in messages
    monkeypatch.setattr(labelling, "solve", api.solve)
    status, messages = other(*FAST, "--resume")
    assert status == 0
    assert (f"{after} of 6 properties are there already" in messages) == (after > 0)
    assert (other.shards, other.manifest) == (label.shards, label.manifest)


def test_what_is_there_is_not_repeated_and_what_is_spoilt_is(label, monkeypatch):
    label(*FAST)
    shards, manifest = label.shards, label.manifest
    solved = Calls(api.solve)
    monkeypatch.setattr(labelling, "solve", solved)
    assert label(*FAST, "--resume")[0] == 0
    assert solved.count == 0
    names = sorted(shards)
    (label.out / samples.SHARDS / names[0]).write_bytes(shards[names[0]][:-7])
    (label.out / samples.SHARDS / names[1]).write_bytes(shards[names[2]])
    status, messages = label(*FAST, "--resume")
    assert (status, solved.count) == (0, 2)
    assert "truncated" in messages
    assert f"{names[1]} is of another run" in messages
    assert (label.shards, label.manifest) == (shards, manifest)


def test_a_killed_run_goes_on(label, monkeypatch):
    """A shard was written and the manifest did not get its line, or half of it."""
    label(*FAST)
    shards = label.shards
    path = label.out / samples.MANIFEST
    lines = path.read_bytes().splitlines(keepends=True)
    path.write_bytes(b"".join(lines[:-2]) + lines[-2][:30])
    solved = Calls(api.solve)
    monkeypatch.setattr(labelling, "solve", solved)
    status, messages = label(*FAST, "--resume")
    assert status == 0
    assert "ended in the middle of a line" in messages
    empty = sum(not json.loads(line)["samples"] for line in lines[-2:])
    assert solved.count == empty  # their shards tell all of the others
    assert label.shards == shards
    assert len(label.manifest) == 7


def test_no_property_is_started_after_the_limit(label):
    status, messages = label(*FAST, "--limit-seconds", 0)
    assert status == 3
    assert "the time limit was reached, 6 properties are left" in messages
    assert label(*FAST, "--resume", "--jobs", 2, "--limit-seconds", 0)[0] == 3
    assert label(*FAST, "--resume")[0] == 0


def test_another_run_is_not_gone_on_with(label):
    label.write([row(FREE[0])])
    label(*FAST)
    for more, words in ((("--seed", 1), "seed was 0, and is 1"), (("--samples", 4), "samples was 3, and is 4")):
        status, messages = label(*FAST, "--resume", *more)
        assert (status, len(messages.splitlines())) == (2, 1)
        assert words in messages
    status, messages = label(*FAST)
    assert status == 2
    assert "is not empty; go on with it by --resume" in messages
    label.write([row(k) for k in FREE[:2]])  # but more may be asked for
    assert label(*FAST, "--resume")[0] == 0
    assert [entry["image"] for entry in label.manifest[1:]] == FREE[:2]


def test_a_property_that_fails_is_missing(label, monkeypatch):
    monkeypatch.setattr(labelling, "solve", failing(SolverFailure("out of luck"), 5))
    status, messages = label(*FAST)
    assert status == 3
    assert "failed, out of luck" in messages
    assert "1 properties failed, 1 properties are left" in messages
    monkeypatch.setattr(labelling, "solve", api.solve)
    assert label(*FAST, "--resume")[0] == 0


def test_a_lost_process_is_said_and_what_is_there_kept(label, monkeypatch):
    wait = Pool.wait

    def kill(pool: Pool, seconds: float) -> Any:
        for worker in pool._workers:
            if worker.ready:
                worker.process.kill()
        return wait(pool, seconds)

    monkeypatch.setattr(Pool, "wait", kill)
    status, messages = label(*FAST, "--jobs", 2)
    assert status == 3
    assert "a process was lost, as a rule because memory ran out; go on with fewer --jobs" in messages


@pytest.mark.parametrize("jobs", [1, 2])
def test_a_folder_that_cannot_be_written_is_the_end(label, jobs):
    label.out.mkdir()
    (label.out / samples.SHARDS).touch()
    status, messages = label(*FAST, "--resume", "--jobs", jobs)
    assert status == 2
    assert messages.splitlines()[-1].startswith(f"bough: cannot write {label.out / samples.SHARDS}/")
    assert "failed" not in messages


# Bad input


@pytest.mark.parametrize(
    ("words", "says"),
    [
        (("--samples", 0), "0 samples are wanted"),
        (("--between", -1), "-1 steps are wanted"),
        (("--whole", 2), "a share of 2.0"),
        (("--inputs", -1), "-1 inputs are to be labelled"),
        (("--rollouts", 1), "trees are to be grown below 1 ReLUs"),
        (("--rollouts", 4, "--deep"), "give no other plan"),
        (("--weights", "cifar"), "only learnt rules have weights"),
        (("--rule", "best"), "there is no branching rule 'best'"),
        (("--intermediate", "loose"), "there is no intermediate bounds 'loose'"),
        (("--rule", "babsb"), "halves inputs"),
        (("--batch", 0), "the batch is 0"),
        (("--every", 0), "--every is 0"),
        (("--jobs", 0), "--jobs is 0"),
        (("--timeout", 0), "--timeout is 0"),
        (("--timeout", "nan"), "--timeout is nan"),
        (("--seed", -1), "the seed is -1"),
        (("--max-bounds", -1), "the most bounds are -1"),
        (("--growth", 1), "the growth is 1.0"),
        (("--limit-seconds", -1), "--limit-seconds is -1"),
        (("--networks", "nowhere"), "there is no network tiny.onnx in nowhere"),
        (("--device", "cuda"), "CUDA" if not torch.cuda.is_available() else "lp bounds run on the CPU only"),
    ],
)
def test_options_that_make_no_sense(label, words, says):
    status, messages = label(*FAST, *words)
    assert (status, len(messages.splitlines())) == (2, 1)
    assert says in messages
    assert not label.out.exists()


def test_tables_that_make_no_sense(label):
    status, messages = label(*FAST, table=label.folder / "none.csv")
    assert (status, len(messages.splitlines())) == (2, 1)
    label.write([])
    status, messages = label(*FAST)
    assert status == 2
    assert "lists no property" in messages
    label.table.write_text("a,b\n1,2\n")
    assert label(*FAST)[0] == 2
    if use_of("dots", "train", 7) == "train":
        label.write([row(7)])
        status, messages = label(*FAST)
        assert status == 2
        assert "none of the images" in messages


def test_a_folder_that_cannot_be_made(label):
    label.out.write_text("mine")
    status, messages = label(*FAST)
    assert (status, len(messages.splitlines())) == (2, 1)
    assert "cannot create the folder" in messages
