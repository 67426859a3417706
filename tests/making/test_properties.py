"""`bough properties` as a script sees it, over a tiny network and data set: every end, and every bad input."""

import csv
import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from tests import dots
from tests.support import failing, sequential

from bough import api
from bough.cli import main
from bough.jobs.pool import Pool
from bough.making import trial
from bough.making.export import INSTANCES, LOG, TABLE
from bough.making.properties import drawn_target, shuffled
from bough.problem.onnx_writer import write_network
from bough.zoo.table import Row, as_property, read_table

BASIC = ("--dataset", "dots", "--method", "lp-babsr,batch=1", "--unit", "bounds", "--edges", "1,10,30,60")
RANGE = ("--eps-range", "0,0.6")
NETWORK = dots.network(14, 1.5)
IMAGES = dots.images(NETWORK, "test", wrong=(3,))


class Shell:
    """The command line over a folder of its own."""

    def __init__(self, folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
        self.folder, self.out, self._capsys = folder, folder / "out", capsys
        self.network = folder / "tiny.onnx"
        write_network(NETWORK, self.network)

    def __call__(self, *words: object) -> tuple[int, str]:
        """Exit status and standard error; nothing goes to standard output."""
        self._capsys.readouterr()
        status = main([str(word) for word in ["properties", "--out", self.out, *words]])
        printed = self._capsys.readouterr()
        assert printed.out == ""
        assert "Traceback" not in printed.err
        return status, printed.err

    @property
    def rows(self) -> tuple[Row, ...]:
        return read_table(self.out / TABLE)

    @property
    def log(self) -> list[dict[str, Any]]:
        return [json.loads(line) for line in (self.out / LOG).read_text().splitlines()]

    def moved(self, name: str) -> "Shell":
        """The same with another output folder."""
        other = Shell(self.folder, self._capsys)
        other.out = self.folder / name
        return other


@pytest.fixture
def make(tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> Shell:
    dots.install(monkeypatch, IMAGES)
    return Shell(tmp_path, capsys)


def timeless(rows: tuple[Row, ...]) -> list[Row]:
    return [replace(row, seconds=None) for row in rows]


# From start to end

WANTED = ("--easy", 2, "--medium", 1, "--timeout-count", 1)


def test_properties_of_every_difficulty_and_a_bench_on_them(make, capsys):
    status, messages = make(make.network, *BASIC, *RANGE, *WANTED)
    assert status == 0
    assert sorted(row.difficulty for row in make.rows) == ["easy", "easy", "medium", "timeout"]
    for row in make.rows:
        assert row.bounds is not None
        assert row.seconds is not None
        assert (row.verdict == "timeout") == (row.difficulty == "timeout")
        low, high = {"easy": (1, 10), "medium": (10, 30), "timeout": (59, 62)}[row.difficulty]
        assert low < row.bounds <= high
        assert (row.dataset, row.split, row.normalised, row.clip, row.device) == ("dots", "test", False, True, "cpu")
        assert row.label == IMAGES.at(row.image)[1] != row.target
        assert row.eps <= 0.6
    assert "easy 2/2, medium 1/1, timeout 1/1" in messages
    assert f"4 properties are in {make.out / INSTANCES}" in messages
    run = make.folder / "run.jsonl"
    assert (
        main(["bench", str(make.out / INSTANCES), "--out", str(run), "--method", "lp-babsr,batch=1", "--timeout", "20"])
        == 0
    )
    verdicts = [json.loads(line)["verdict"] for line in run.read_text().splitlines()]
    assert all(row.verdict in (verdict, "timeout") for row, verdict in zip(make.rows, verdicts, strict=True))
    bounds = [json.loads(line)["bounds"] for line in run.read_text().splitlines()]
    assert all(row.bounds == n for row, n in zip(make.rows, bounds, strict=True) if row.verdict == "verified")
    capsys.readouterr()


def test_properties_of_any_difficulty(make):
    assert make(make.network, *BASIC, *RANGE, "--count", 3)[0] == 0
    assert len(make.rows) == 3
    assert all(row.verdict in ("verified", "timeout") for row in make.rows)
    tried = [entry for entry in make.log[1:] if "skipped" not in entry]
    assert {entry["asked"] for entry in tried} == {"any"}
    assert max(len(entry["probes"]) for entry in tried) == 5


def test_properties_of_images_for_one_use(make):
    for use in ("train", "test"):
        assert make(make.network, *BASIC, *RANGE, "--count", 3, "--use", use, "--resume")[0] == 0
        assert {row.use for row in make.rows} == {use}


def test_the_same_seed_gives_the_same_table_whoever_works(make):
    make(make.network, *BASIC, *RANGE, *WANTED)
    first = timeless(make.rows)
    for name, extra in (("again", ()), ("jobs", ("--jobs", 2))):
        other = make.moved(name)
        assert other(other.network, *BASIC, *RANGE, *WANTED, *extra)[0] == 0
        assert timeless(other.rows) == first
    other = make.moved("seed")
    other(other.network, *BASIC, *RANGE, *WANTED, "--seed", 1)
    assert timeless(other.rows) != first


def test_units_of_the_network_and_unclipped(make):
    assert (
        make(make.network, *BASIC, *RANGE, "--count", 1, "--normalised", "--split", "train", "--images", "10:20")[0]
        == 0
    )
    row = make.rows[0]
    assert (row.normalised, row.clip, row.split) == (True, False, "train")
    assert 10 <= row.image < 20
    box = as_property(row, IMAGES).boxes[0]
    assert float((box.upper - box.lower).sum()) == pytest.approx(8 * row.eps)


# Going on


@pytest.mark.parametrize("after", [0, 4])
def test_an_interrupted_run_goes_on_to_the_same_table(make, monkeypatch, after):
    make(make.network, *BASIC, *RANGE, *WANTED)
    other = make.moved("other")
    monkeypatch.setattr(trial, "solve", failing(KeyboardInterrupt(), after))
    status, messages = other(other.network, *BASIC, *RANGE, *WANTED)
    assert status == 3
    assert "bough: interrupted; go on by the same command with --resume" in messages
    assert (other.out / TABLE).read_text().startswith("dataset,")  # what there is
    monkeypatch.setattr(trial, "solve", api.solve)
    assert other(other.network, *BASIC, *RANGE, *WANTED, "--resume")[0] == 0
    assert timeless(other.rows) == timeless(make.rows)


@pytest.mark.parametrize("share", [0.1, 0.5, 0.9])
def test_a_killed_run_goes_on_to_the_same_table(make, share):
    make(make.network, *BASIC, *RANGE, *WANTED)
    whole, table = (make.out / LOG).read_bytes(), timeless(make.rows)
    other = make.moved("other")
    other.out.mkdir()
    (other.out / LOG).write_bytes(whole[: int(len(whole) * share)])
    status, messages = other(other.network, *BASIC, *RANGE, *WANTED, "--resume")
    assert status == 0
    assert "ended in the middle of a line" in messages
    assert timeless(other.rows) == table
    before = (other.out / LOG).read_bytes()
    assert other(other.network, *BASIC, *RANGE, *WANTED, "--resume")[0] == 0  # nothing is left to do
    assert (other.out / LOG).read_bytes() == before


def test_no_image_is_started_after_the_limit(make):
    status, messages = make(make.network, *BASIC, *RANGE, "--count", 2, "--limit-seconds", 0)
    assert status == 3
    assert "the time limit was reached" in messages
    assert make(make.network, *BASIC, *RANGE, "--count", 2, "--resume")[0] == 0
    assert make(make.network, *BASIC, *RANGE, "--count", 3, "--resume")[0] == 0  # and for more
    assert len(make.rows) == 3


def test_a_lost_process_is_said_and_what_is_there_kept(make, monkeypatch):
    wait = Pool.wait

    def kill(pool: Pool, seconds: float) -> Any:
        for worker in pool._workers:
            if worker.ready:
                worker.process.kill()
        return wait(pool, seconds)

    monkeypatch.setattr(Pool, "wait", kill)
    status, messages = make(make.network, *BASIC, *RANGE, "--count", 2, "--jobs", 2)
    assert status == 3
    assert "a process was lost, as a rule because memory ran out; go on with fewer --jobs" in messages
    assert len(make.log) >= 1


def test_a_folder_with_something_in_it_is_left_alone(make):
    make.out.mkdir()
    (make.out / "mine").write_text("mine")
    status, messages = make(make.network, *BASIC, "--count", 1)
    assert (status, len(messages.splitlines())) == (2, 1)
    assert "is not empty; go on with it by --resume" in messages
    assert [path.name for path in make.out.iterdir()] == ["mine"]


@pytest.mark.parametrize(
    ("extra", "words"),
    [
        (("--seed", 1), "seed was 0, and is 1 now"),
        (("--probes", 4), "probes was 5, and is 4 now"),
        (("--lean", 0.1), "lean was None, and is 0.1 now"),
        (("--clip",), None),
        (("--no-clip",), "clip was True, and is False now"),
    ],
)
def test_another_run_is_not_gone_on_with(make, extra, words):
    make(make.network, *BASIC, *RANGE, "--count", 1)
    status, messages = make(make.network, *BASIC, *RANGE, "--count", 1, "--resume", *extra)
    assert status == (0 if words is None else 2)
    assert words is None or words in messages


@pytest.mark.parametrize("text", ["mine\n", "mine", "{}\n", "[]\n", '{"schema": "bough.probes/2"}\n'])
def test_a_log_of_another_kind_is_refused_and_left_alone(make, text):
    make.out.mkdir()
    (make.out / LOG).write_text(text)
    status, messages = make(make.network, *BASIC, "--count", 1, "--resume")
    assert (status, len(messages.splitlines())) == (2, 1)
    assert (make.out / LOG).read_text() == text


# Images


def test_images_that_are_classified_wrongly_are_said_skipped_and_counted(make):
    status, messages = make(make.network, *BASIC, *RANGE, "--count", 1, "--images", "3:4")
    assert status == 3
    lines = messages.splitlines()
    assert lines[0] == "image 3: skipped, the network gives it class 0, its label is 1"
    assert "0 properties are in" in lines[1]
    assert "1 images were classified wrongly" in lines[1]
    assert "all 1 images are used up" in lines[2]
    assert make.log[1] == {"image": 3, "skipped": "the network gives it class 0, its label is 1"}


def test_the_order_and_the_targets_are_drawn_from_the_seed():
    order = shuffled(IMAGES, 0, range(dots.SIZE))
    assert sorted(order) == IMAGES.index.tolist()
    assert order != shuffled(IMAGES, 1, range(dots.SIZE))
    part = replace(IMAGES, pixels=IMAGES.pixels[::2], labels=IMAGES.labels[::2], index=IMAGES.index[::2])
    assert shuffled(part, 0, range(dots.SIZE)) == [n for n in order if n in part.index.tolist()]
    drawn_ones = {drawn_target(0, image, 3, 10) for image in range(200)}
    assert drawn_ones == set(range(10)) - {3}


# From a table


def test_the_files_of_a_table(make):
    make(make.network, *BASIC, *RANGE, "--count", 2)
    other = make.moved("again")
    status, messages = other("--from", make.out / TABLE)
    assert status == 0
    assert "2 properties are in" in messages
    names = sorted(path.name for path in (make.out / "vnnlib").iterdir())
    assert sorted(path.name for path in (other.out / "vnnlib").iterdir()) == names
    for name in (TABLE, INSTANCES, *(f"vnnlib/{name}" for name in names)):
        assert (other.out / name).read_bytes() == (make.out / name).read_bytes()
    third = make.moved("third")
    assert third("--from", make.out / TABLE, "--networks", make.folder, "--every", 2)[0] == 0
    assert third.rows == make.rows[:1]
    assert third("--from", make.out / TABLE, "--networks", make.folder, "--every", 2, "--resume")[0] == 0
    status, messages = third("--from", make.out / TABLE, "--resume")
    assert status == 2
    assert "holds another table" in messages
    assert third.rows == make.rows[:1]
    status, messages = third("--from", make.out / TABLE, "--count", 3)
    assert status == 2
    assert "--count says nothing with --from" in messages


def test_rows_without_an_image_are_counted(make):
    make(make.network, *BASIC, *RANGE, "--count", 1)
    table, row = make.folder / "table.csv", make.rows[0]
    lines = (make.out / TABLE).read_text().splitlines()
    table.write_text("\n".join([*lines, lines[1].replace(f",{row.image},", ",7,", 1), ""]))
    status, messages = make.moved("again")("--from", table)
    assert status == 0
    assert messages.splitlines()[0] == "note: 1 of 2 rows are left out: their images are not at hand"


def test_the_papers_table_becomes_problems(bough_data, tmp_path, capsys):
    data = bough_data / "data"
    words = ("--from", data / "paper_results.csv", "--networks", data / "networks", "--data", data / "images")
    shell = Shell(tmp_path, capsys)
    status, messages = shell(*words, "--only", "cifar_wide_kw", "--every", 10)
    assert (status, len(shell.rows)) == (0, 3)
    assert "note: 285 of 306 rows are left out" in messages
    assert all(row.label is not None for row in shell.rows)
    assert len((shell.out / INSTANCES).read_text().splitlines()) == 3


@pytest.mark.parametrize(
    ("change", "words"),
    [
        (("target", "label"), "line 2: label and target are both"),
        (("eps", "1e-12"), "leaves nothing but the image itself"),
        (("image", "40"), "line 2: dots has no test image 40"),
        (("network", "absent"), "there is no network absent in "),
        (("dataset", "mnist"), "the network takes 4"),
    ],
)
def test_a_bad_table_writes_nothing(make, change, words):
    make(make.network, *BASIC, *RANGE, "--count", 1)
    table, (name, value) = make.folder / "table.csv", change
    with (make.out / TABLE).open(newline="") as file:
        cells = next(csv.DictReader(file))
    with table.open("w", newline="") as file:
        writer = csv.DictWriter(file, cells.keys())
        writer.writeheader()
        writer.writerow({**cells, name: cells.get(value, value)})
    other = make.moved("again")
    status, messages = other("--from", table)
    assert (status, len(messages.splitlines())) == (2, 1)
    assert words in messages
    assert not other.out.exists()


# Bad input


@pytest.mark.parametrize(
    ("extra", "words"),
    [
        (("--dataset", "imagenet"), "there is no data set 'imagenet'"),
        (("--dataset", "cifar10"), "the image is 3 x 32 x 32, the network takes 4"),
        (("--method", "oracle"), "there is no method 'oracle'"),
        (("--method", "gap=0.1"), "method 'gap=0.1' looks for a minimum"),
        (("--edges", "1,2"), "--edges has 2 numbers"),
        (("--edges", "3,2,1"), "the edges 0,3,2,1 do not grow"),
        (("--eps-range", "0.2,0.1"), "the range of eps is 0.2 to 0.1"),
        (("--eps-range", "0.2"), "--eps-range has 1 numbers"),
        (("--images", "30:41"), "--images is 30:41; dots has test images from 0 up to 40"),
        (("--images", "5:5"), "--images is 5:5"),
        (("--count", 0), "no property is wanted"),
        (("--count", -1), "-1 properties are wanted"),
        (("--count", 1, "--easy", 1), "give either that, or --easy"),
        (("--probes", 0), "--probes is 0"),
        (("--lean", 1), "--lean is 1"),
        (("--jobs", 0), "--jobs is 0"),
        (("--timeout", 0), "--timeout is 0.0"),
        (("--limit-seconds", "nan"), "--limit-seconds is nan"),
        (("--from", "table.csv"), "give either a NETWORK"),
        (("--only", "deep"), "--only says nothing without --from"),
    ],
)
def test_bad_input_is_said_before_anything_is_written(make, extra, words):
    status, messages = make(make.network, *BASIC, *extra)
    assert (status, len(messages.splitlines())) == (2, 1)
    assert words in messages
    assert not make.out.exists()


def test_an_image_that_is_not_at_hand(make):
    status, messages = make(make.network, *BASIC, "--count", 1, "--images", "7:8")
    assert (status, len(messages.splitlines())) == (2, 1)
    assert "no image 7:8 of dots (test) is at hand" in messages


def test_a_radius_that_leaves_nothing(make):
    status, messages = make(make.network, *BASIC, "--count", 1, "--eps-range", "0,1e-12")
    assert status == 2
    assert "leaves nothing but the image itself" in messages


def test_a_network_of_other_classes(make):
    path = make.folder / "two.onnx"
    write_network(sequential(([[0.1] * 4] * 4, [0.0] * 4), ([[1.0] * 4] * 2, [0.0] * 2)), path)
    assert "the network has 2 outputs, dots has 3 classes" in make(path, *BASIC)[1]
    assert not make.out.exists()


def test_neither_a_network_nor_a_table(make):
    status, messages = make(*BASIC)
    assert (status, len(messages.splitlines())) == (2, 1)
    assert make(make.network)[1].startswith("bough: which images? give --dataset")
