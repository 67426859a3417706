"""Answers known from elsewhere: the competition's verdicts, and the branch counts of the paper's authors."""

import csv
from collections.abc import Iterable
from pathlib import Path

import numpy as np
import pytest
import torch

import bough
from bough.cli import main
from bough.problem.property import Property, robustness_property

WORDS = {"sat": "falsified", "unsat": "verified"}
TIMEOUT = 20  # seconds; alone, each of these takes one or two


def known(data: Path) -> dict[tuple[str, str, str], str]:
    """The verdict of every instance, by benchmark, network and property."""
    with (data / "vnncomp" / "known_results.csv").open() as rows:
        return {
            (r["benchmark"], r["network"], r["property"]): WORDS.get(r["verdict"], "") for r in csv.DictReader(rows)
        }


def answers(
    data: Path, benchmark: str, pairs: Iterable[tuple[str, str]], capsys: pytest.CaptureFixture[str]
) -> list[tuple[str, str, str]]:
    """Property, verdict and known verdict of each pair of network and property."""
    verdicts, folder, rows = known(data), data / "vnncomp" / benchmark, []
    for network, prop in pairs:
        expected = verdicts[benchmark, network, prop]
        assert expected, f"nothing is known of {network} {prop}"
        paths = str(folder / "onnx" / f"{network}.onnx"), str(folder / "vnnlib" / f"{prop}.vnnlib")
        status = main(["verify", *paths, "--timeout", str(TIMEOUT), "--quiet"])
        output = capsys.readouterr()
        assert output.err == ""
        verdict = output.out.strip()
        assert status == {"verified": 0, "falsified": 1, "timeout": 3}[verdict]
        rows.append((prop, verdict, expected))
    return rows


MNIST, SMALL, FULL = "mnist-net_256x2", "NN_rul_small_window_20", "NN_rul_full_window_20"
INSTANCES = {
    "test": [
        *((f"test_{size}", f"test_{size}") for size in ("nano", "tiny", "small")),
        *((f"test_{word}", "test_prop") for word in ("sat", "unsat")),
    ],
    "collins_rul_cnn_2022": [
        (SMALL, "robustness_2perturbations_delta5_epsilon10_w20"),
        (SMALL, "robustness_2perturbations_delta10_epsilon10_w20"),
        (SMALL, "monotonicity_CI_shift5_w20"),
        (SMALL, "if_then_5levels_w20"),
        (FULL, "robustness_4perturbations_delta5_epsilon10_w20"),
        (FULL, "robustness_16perturbations_delta5_epsilon10_w20"),
        ("NN_rul_full_window_40", "robustness_4perturbations_delta20_epsilon10_w40"),
    ],
    "mnist_fc": [
        (MNIST, f"prop_{k}") for k in ("1_0.03", "4_0.03", "8_0.03", "12_0.03", "13_0.03", "3_0.05", "14_0.05")
    ],
    "sat_relu": [
        (name, name)
        for name in (
            *("sat_v30_c38", "sat_v6_c27", "sat_v56_c239", "sat_v90_c449", "sat_v85_c207"),
            *("unsat_v16_c39", "unsat_v30_c44", "unsat_v58_c75", "unsat_v92_c117"),
        )
    ],
    "cersyve": [(f"{name}_pretrain_con", f"prop_{name}") for name in ("lane_keep", "pendulum", "point_mass")],
}


@pytest.mark.parametrize("benchmark", INSTANCES)
def test_the_competitions_verdicts(bough_data: Path, benchmark: str, capsys: pytest.CaptureFixture[str]) -> None:
    rows = answers(bough_data, benchmark, INSTANCES[benchmark], capsys)
    assert [row for row in rows if row[1] != "timeout" and row[1] != row[2]] == []
    solved = [row for row in rows if row[1] == row[2]]
    assert len(solved) >= len(rows) - 1, rows  # one timeout, on a machine that is very slow or very busy


def question(data: Path, image: int, target: int, eps: float) -> Property:
    """The paper's question about a CIFAR-10 test image: the box in normalised pixels, unclipped."""
    with np.load(data / "data" / "images" / "cifar10_part.npz") as stored:
        (k,) = np.flatnonzero(stored["test_index"] == image)
        pixels, label = torch.from_numpy(stored["test_images"][k]), int(stored["test_labels"][k])
    mean = torch.tensor([0.485, 0.456, 0.406], dtype=torch.float64)[:, None, None]
    return robustness_property((pixels.double() / 255 - mean) / 0.225, eps, label, [target], 10)


@pytest.mark.parametrize(
    ("image", "target", "eps", "branches"),
    [
        (257, 5, 0.239, 18),
        pytest.param(290, 0, 0.16, 46, marks=pytest.mark.slow),
        pytest.param(105, 4, 0.239, 62, marks=pytest.mark.slow),
        pytest.param(230, 2, 0.239, 62, marks=pytest.mark.slow),
        pytest.param(129, 4, 0.091, 392, marks=pytest.mark.slow),
    ],
)
def test_the_papers_branch_counts(bough_data: Path, image: int, target: int, eps: float, branches: int) -> None:
    """The authors' code, with BaBSR and their bounds, needs exactly as many."""
    network = bough_data / "data" / "networks" / "cifar_base_kw.onnx"
    prop = question(bough_data, image, target, eps)
    result = bough.verify(network, prop, intermediate="paper", branching="babsr", attack=False, batch=1)
    assert (result.verdict, result.branches) == (bough.Verdict.VERIFIED, branches)
