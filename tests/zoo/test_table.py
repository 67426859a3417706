"""Tables of properties: through a file and back, through VNN-LIB and back, and the paper's own."""

import csv
import io
from collections import Counter
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from bough.errors import BadInput
from bough.making.export import file_name
from bough.problem.images import as_pixels
from bough.problem.property import Property, image_property
from bough.problem.vnnlib import parse_property, write_property
from bough.zoo import datasets
from bough.zoo.datasets import Images
from bough.zoo.table import COLUMNS, DIFFICULTIES, Row, as_property, as_text, read_table, use_of

ROW = Row(
    dataset="cifar10",
    split="test",
    network="nets/a,b.onnx",
    image=17,
    label=3,
    target=5,
    eps=0.1,
    normalised=True,
    clip=False,
    method="dual-fsb,batch=8",
    verdict="verified",
    branches=12,
    bounds=345,
    seconds=0.1 + 0.2,
    device="cpu",
    difficulty="easy",
    use="train",
)


def images(name: str, split: str = "test", numbers: tuple[int, ...] = (17, 4)) -> Images:
    dataset, g = datasets.known(name), torch.Generator().manual_seed(0)
    pixels = torch.randint(0, 256, (len(numbers), *dataset.shape), generator=g, dtype=torch.uint8)
    return Images(dataset, split, pixels.numpy(), np.full(len(numbers), 3), np.array(numbers))


ROWS = st.builds(
    Row,
    dataset=st.just("mnist"),
    split=st.sampled_from(("train", "test")),
    network=st.text(st.characters(codec="utf-8", exclude_characters="\r\x00"), max_size=8),
    image=st.integers(0, 9999),
    label=st.none() | st.integers(0, 4),
    target=st.integers(5, 9),
    eps=st.floats(1e-9, 1e9),
    normalised=st.booleans(),
    clip=st.booleans(),
    method=st.sampled_from(("auto", "lp-babsr,batch=1")),
    verdict=st.sampled_from(("verified", "timeout")),
    branches=st.none() | st.integers(0, 10**12),
    bounds=st.none() | st.integers(0, 10**12),
    seconds=st.none() | st.floats(0, 1e9),
    device=st.sampled_from(("cpu", "cuda")),
    difficulty=st.sampled_from(DIFFICULTIES),
    use=st.sampled_from(("train", "test")),
)


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("tables")


@given(rows=st.lists(ROWS, min_size=1, max_size=3))
def test_a_table_through_a_file(folder, rows):
    path = folder / "table.csv"
    path.write_bytes(as_text(rows).encode())
    assert read_table(path) == tuple(rows)


# Properties


def limits(prop: Property) -> tuple[list[float], list[float]]:
    return prop.boxes[0].lower.tolist(), prop.boxes[0].upper.tolist()


@pytest.mark.parametrize("name", ["mnist", "cifar10"])
@pytest.mark.parametrize("normalised", [False, True])
@pytest.mark.parametrize("clip", [False, True])
def test_a_row_through_vnnlib(name, normalised, clip):
    row = replace(ROW, dataset=name, normalised=normalised, clip=clip)
    prop = as_property(row, images(name))
    read = parse_property(write_property(prop))
    assert limits(read) == limits(prop)  # to the last bit: decimals are written in full
    assert len(read.clauses) == 1
    assert torch.equal(read.clauses[0].coefficients, prop.clauses[0].coefficients)
    assert torch.equal(read.clauses[0].offsets, prop.clauses[0].offsets)
    assert read.clauses[0].strict == prop.clauses[0].strict
    row_of_y = read.clauses[0].coefficients[0]
    assert (float(row_of_y[3]), float(row_of_y[5]), float(row_of_y.abs().sum())) == (1, -1, 2)


@pytest.mark.parametrize("clip", [False, True])
def test_pixels_are_asked_about_as_by_the_robustness_command(clip):
    at_hand = images("cifar10")
    dataset, pixels = at_hand.dataset, as_pixels(at_hand.pixels[1])
    valid = (0.0, 1.0) if clip else None
    expected = image_property(pixels, 3, 0.1, 10, target=5, mean=dataset.mean, std=dataset.std, clip=valid)
    row = replace(ROW, image=4, normalised=False, clip=clip)
    assert limits(as_property(row, at_hand)) == limits(expected)


def test_a_normalised_radius_is_the_same_on_every_channel():
    at_hand = images("cifar10")
    dataset = replace(at_hand.dataset, std=(0.1, 0.2, 0.4))
    at_hand = replace(at_hand, dataset=dataset)
    mean, std = (torch.tensor(v, dtype=torch.float64).reshape(3, 1, 1) for v in (dataset.mean, dataset.std))
    x = ((torch.from_numpy(at_hand.pixels[0]).double() / 255 - mean) / std).reshape(-1)
    free = as_property(replace(ROW, eps=0.125), at_hand).boxes[0]
    assert torch.equal(free.lower, x - 0.125)
    assert torch.equal(free.upper, x + 0.125)
    clipped = as_property(replace(ROW, eps=0.125, clip=True), at_hand).boxes[0]
    assert torch.equal(clipped.lower, torch.maximum(free.lower, ((0 - mean) / std).expand(3, 32, 32).reshape(-1)))
    assert torch.equal(clipped.upper, torch.minimum(free.upper, ((1 - mean) / std).expand(3, 32, 32).reshape(-1)))


def test_a_label_that_is_not_given_is_the_data_sets():
    assert limits(as_property(replace(ROW, label=None), images("cifar10"))) == limits(
        as_property(ROW, images("cifar10"))
    )


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"image": 18}, "18"),
        ({"label": 4}, "the table says label 4, the data set 3"),
        ({"eps": 1e-12}, "test image 17: eps 1e-12 leaves nothing but the image itself"),
    ],
)
def test_rows_that_do_not_fit_the_images(change, words):
    with pytest.raises(BadInput, match=words):
        as_property(replace(ROW, **change), images("cifar10"))


def test_a_half_of_the_images_is_for_training():
    uses = [use_of("cifar10", "test", k) for k in range(10_000)]
    assert abs(uses.count("train") - 5000) < 200
    assert uses[:8] == [use_of("cifar10", "test", k) for k in range(8)]
    assert uses[:50] != [use_of("cifar10", "train", k) for k in range(50)]


def test_a_files_name_tells_rows_apart():
    changes: tuple[dict[str, Any], ...] = (
        {},
        {"image": 4},
        {"target": 6},
        {"eps": 0.2},
        {"normalised": False},
        {"clip": True},
        {"split": "train"},
    )
    assert len({file_name(replace(ROW, **change)) for change in changes}) == len(changes)
    assert file_name(ROW) == "a,b-cifar10-test17-to5-eps0.1-normalised.vnnlib"


# Bad tables


def text_with(name: str, cell: str) -> str:
    header, cells = list(csv.reader(io.StringIO(as_text([ROW]))))
    cells[header.index(name)] = cell
    file = io.StringIO()
    csv.writer(file, lineterminator="\n").writerows([header, cells])
    return file.getvalue()


@pytest.mark.parametrize(
    ("name", "cell", "words"),
    [
        ("dataset", "imagenet", "imagenet"),
        ("split", "both", "there is no split 'both'"),
        ("image", "10000", "has no test image 10000; give a number from 0 to 9999"),
        ("image", "-1", "has no test image -1"),
        ("image", "x", "'x' is no image"),
        ("label", "10", "label 10 is no class of cifar10"),
        ("target", "-1", "target -1 is no class"),
        ("target", "", "'' is no target"),
        ("target", "3", "label and target are both 3"),
        ("eps", "0", "eps is 0.0; give a finite radius above 0"),
        ("eps", "inf", "eps is inf"),
        ("eps", "nan", "eps is nan"),
        ("normalised", "yes", "'yes' is no normalised"),
        ("verdict", "sat", "there is no verdict 'sat'"),
        ("bounds", "1.5", "'1.5' is no bounds"),
        ("difficulty", "harder", "there is no difficulty 'harder'"),
        ("use", "both", "there is no use 'both'"),
    ],
)
def test_bad_cells_are_said_with_their_line(tmp_path, name, cell, words):
    path = tmp_path / "table.csv"
    path.write_text(text_with(name, cell))
    with pytest.raises(BadInput) as caught:
        read_table(path)
    assert f"{path}, line 2: " in str(caught.value)
    assert words in str(caught.value)


@pytest.mark.parametrize(
    ("text", "words"),
    [
        (b"\xff\xfe", "is not text"),
        (b"", "line 1: missing column"),
        (b"a,b\n1,2\n", "line 1: unknown column 'a'"),
        (as_text([ROW]).replace("target", "label").encode(), "line 1: missing column 'target'"),
        (as_text([ROW]).replace("dataset", "dataset,dataset", 1).encode(), "line 1: a column is named twice"),
        (as_text([]).encode(), "lists no property"),
        (as_text([ROW]).encode() + b"cifar10,test\n", "line 3: 2 cells under 17 columns"),
        (as_text([ROW]).encode() + b'"half', "line 3: not a CSV line"),
    ],
)
def test_bad_tables(tmp_path, text, words):
    path = tmp_path / "table.csv"
    path.write_bytes(text)
    with pytest.raises(BadInput) as caught:
        read_table(path)
    assert words in str(caught.value)
    assert str(path) in str(caught.value)


# The paper's table


def test_the_papers_table(bough_data):
    rows = read_table(bough_data / "data" / "paper_results.csv")
    assert Counter(row.network for row in rows) == {"cifar_base_kw": 1666, "cifar_wide_kw": 306, "cifar_deep_kw": 250}
    assert {(row.normalised, row.clip, row.label, row.method) for row in rows} == {(True, False, None, "paper-babsr")}
    assert {name: count > 400 for name, count in Counter(row.difficulty for row in rows).items()} == dict.fromkeys(
        ("easy", "medium", "hard"), True
    )
    at_hand = datasets.load("cifar10", "test", bough_data / "data" / "images", download=False)
    available = set(at_hand.index.tolist())
    usable = [row for row in rows if row.image in available]
    assert Counter(row.network for row in usable) == {"cifar_base_kw": 110, "cifar_wide_kw": 21, "cifar_deep_kw": 14}
    mean = torch.tensor([0.485, 0.456, 0.406], dtype=torch.float64).reshape(3, 1, 1)
    for row in usable:
        pixels, label = at_hand.at(row.image)
        x = ((torch.from_numpy(pixels).double() / 255 - mean) / 0.225).reshape(-1)
        prop = as_property(row, at_hand)
        assert torch.equal(prop.boxes[0].lower, x - row.eps)
        assert torch.equal(prop.boxes[0].upper, x + row.eps)
        assert int(prop.clauses[0].coefficients[0].argmax()) == label
        assert int(prop.clauses[0].coefficients[0].argmin()) == row.target


def test_columns_are_those_of_the_issue():
    assert tuple(COLUMNS)[:7] == ("dataset", "split", "network", "image", "label", "target", "eps")
