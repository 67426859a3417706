"""Tables of properties as what `bough bench` runs: found out, written, resumed, and told in the records."""

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch
from tests.bench.test_bench import Folder
from tests.support import generator, normal

from bough.bench.tasks import is_table
from bough.making import export
from bough.network.rewrite import GraphBuilder
from bough.problem.onnx_writer import write_network
from bough.zoo import datasets
from bough.zoo.datasets import Images
from bough.zoo.table import Row, as_text

ROW = Row(
    "mnist", "test", "small", 3, 0, 1, 0.001, False, True, "dual-fsb", "verified", 1, 2, 0.1, "cpu", "easy", "test"
)


@pytest.fixture
def bench(tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> Folder:
    """Three properties of a small network, of two difficulties, about images that are made up; one is not at hand."""
    folder, g, builder = Folder(tmp_path, capsys), generator(0), GraphBuilder()
    x = builder.reshape(builder.input((1, 28, 28)), (784,))
    x = builder.relu(builder.linear(x, normal(g, 4, 784) / 28, normal(g, 4)))
    write_network(builder.build(builder.linear(x, normal(g, 10, 4), normal(g, 10))), tmp_path / "small.onnx")
    pixels = torch.randint(0, 256, (2, 1, 28, 28), generator=g, dtype=torch.uint8).numpy()
    images = Images(datasets.known("mnist"), "test", pixels, np.array([0, 0]), np.array([3, 5]))
    monkeypatch.setattr(datasets, "load", lambda *_, **__: images)
    rows = [ROW, replace(ROW, target=2), replace(ROW, image=5, difficulty="hard"), replace(ROW, image=7)]
    folder.csv.write_text(as_text(rows))
    return folder


def test_a_table_is_told_from_a_list(bench: Folder) -> None:
    assert is_table(bench.csv)
    for text in ("net.onnx,safe.vnnlib,20\n", "", "\n", "network,property,timeout\n", "a,b,c,d\n", "\0"):
        bench.csv.write_text(text)
        assert not is_table(bench.csv)


def test_a_table_from_start_to_end(bench: Folder) -> None:
    status, messages = bench("--timeout", 20, "--method", "auto", "--method", "lp-babsr")
    assert status == 0
    assert messages.startswith("note: 1 of 4 rows are left out: their images are not at hand")
    runs = [(e["dataset"], e["split"], e["image"], e["label"], e["target"], e["difficulty"]) for e in bench.entries]
    expected = [(3, 1, "easy"), (3, 2, "easy"), (5, 1, "hard")]
    assert runs == [("mnist", "test", image, 0, target, kind) for image, target, kind in expected for _ in range(2)]
    assert {(e["eps"], e["timeout"], e["error"]) for e in bench.entries} == {(0.001, 20, None)}
    assert all(Path(e["property"]).is_file() for e in bench.entries)
    folder = bench.out.with_name("run-problems")
    assert (folder / export.INSTANCES).is_file()
    before = bench.out.read_bytes()
    assert bench("--timeout", 20, "--resume", "--method", "auto", "--method", "lp-babsr")[0] == 0
    assert bench.out.read_bytes() == before
    # the list in the folder is one of the same instances, which knows as much by the table beside it
    bench.csv, bench.out = folder / export.INSTANCES, bench.out.with_name("again.jsonl")
    assert bench()[0] == 0
    assert [(e["image"], e["difficulty"]) for e in bench.entries] == [(3, "easy"), (3, "easy"), (5, "hard")]


def test_a_selection_of_a_table(bench: Folder) -> None:
    assert bench("--only", "test5-", "--problems", bench.out.with_name("files"))[0] == 0
    assert [(e["image"], e["timeout"]) for e in bench.entries] == [(5, 300.0)]
    assert len(list((bench.out.with_name("files") / "vnnlib").iterdir())) == 3


def test_a_dry_run_of_a_table_writes_nothing(bench: Folder, capsys: pytest.CaptureFixture[str]) -> None:
    from bough.cli import main

    before = set(bench.csv.parent.iterdir())
    assert main(["bench", str(bench.csv), "--out", str(bench.out), "--dry-run"]) == 0
    listed = capsys.readouterr().out.splitlines()
    assert len(listed) == 3
    assert all(line.startswith("small small-mnist-test") for line in listed)
    assert set(bench.csv.parent.iterdir()) == before


def test_a_list_has_no_difficulty(bench: Folder) -> None:
    bench.csv.write_text("net.onnx,safe.vnnlib,20\n")
    assert bench()[0] == 0
    assert [bench.entries[0][name] for name in ("dataset", "image", "difficulty", "eps")] == [None] * 4


def test_a_table_of_another_schema(bench: Folder) -> None:
    bench.csv.write_text("network,image,epsilon,target\nsmall,3,0.1,2\n")
    status, messages = bench()
    assert (status, len(messages.splitlines())) == (2, 1)
    assert "line 1: unknown column 'epsilon'; a table of properties has: dataset, " in messages


def test_bad_tables(bench: Folder) -> None:
    text = bench.csv.read_text()
    bench.csv.write_text(text.replace("small", "absent"))
    assert "there is no network absent" in bench()[1]
    bench.csv.write_text("\n".join([text.splitlines()[0], text.splitlines()[-1]]))
    status, messages = bench()
    assert (status, "none of the images of" in messages) == (2, True)
    bench.csv.write_text(text)
    bench.out.with_name("run-problems").mkdir()
    (bench.out.with_name("run-problems") / export.TABLE).write_text("other")
    status, messages = bench()
    assert (status, "holds another table" in messages) == (2, True)
    assert not bench.out.exists()
