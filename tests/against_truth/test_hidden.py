"""Counterexamples that hide from attacks: never `verified`; their repaired twins are. And an instance on which tools
disagreed.
"""

import gzip
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from soundness.hidden import SET, STYLES
from soundness.truth import judged, margin_at

import bough
from bough.api import solve
from bough.budget import Deadline
from bough.falsify.pgd import GradientAttack
from bough.options import Options
from bough.problem.onnx_writer import write_network
from bough.problem.runtime import Reference
from bough.problem.vnnlib import read_property
from bough.verdict.result import Verdict

WAYS = {
    "lp": Options(bounds="lp", attack=False, timeout=60),
    "dual": Options(bounds="dual", timeout=60, device="cpu"),
    "linear": Options(bounds="linear", timeout=60),
}
# One of each style, and of the rest whoever has the time.
MARKED = [pytest.param(*one, marks=[pytest.mark.slow] if one[1] else []) for one in SET]
CONSTRUCTED = [(style, seed) for style, seed in SET if style != "trained"]


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize(("style", "seed"), MARKED)
def test_planted_points_are_never_verified_away_and_repaired_twins_are_proved(style, seed, way):
    """By ONNX Runtime's word, on files that hold every number exactly."""
    hidden = STYLES[style](seed)
    verdicts = []
    for problem in (hidden.planted, hidden.repaired):
        reference = Reference(write_network(problem.network))
        verdicts.append(solve(replace(problem, reference=reference), WAYS[way]).verdict)
    assert verdicts == [Verdict.FALSIFIED, Verdict.VERIFIED]


@pytest.mark.parametrize(("style", "seed"), MARKED)
def test_what_is_planted_is_there(style, seed):
    hidden = STYLES[style](seed)
    margin = margin_at(hidden.planted, hidden.witness)
    assert margin is not None
    assert margin < 0
    assert np.array(hidden.witness, dtype=np.float32).tolist() == list(hidden.witness)
    if style != "woven":  # which computes what a spike does, with so many ReLUs that enumeration takes its time
        assert judged(hidden.repaired, hidden.witness).word == "safe"


def test_attacks_do_not_find_what_was_constructed():
    """Else it would not be hidden; the trained ones are found, and test the other half of the verifier."""
    for style, seed in CONSTRUCTED:
        planted = STYLES[style](seed).planted
        ((_, points),) = GradientAttack().candidates(planted, Deadline.never())
        assert all((margin_at(planted, x) or 0) > 0 for x in points.tolist())


def test_the_set_is_the_same_every_time():
    for style, seed in CONSTRUCTED:
        one, two = STYLES[style](seed), STYLES[style](seed)
        assert one.witness == two.witness
        assert write_network(one.planted.network) == write_network(two.planted.network)


NAME = "cifar_wide_kw-img4386-eps0.00026143790849673205"


def test_oval21_image_4386_on_which_tools_disagreed(bough_data: Path, tmp_path: Path) -> None:
    """In the competition of 2021, two against five; the counterexample is there, by ONNX Runtime's word."""
    folder = bough_data / "vnncomp" / "oval21"
    stored = [folder / "vnnlib" / f"{NAME}.vnnlib.gz", folder / "vnnlib" / f"{NAME}.vnnlib"]
    existing = [path for path in stored if path.exists()]
    network = folder / "onnx" / "cifar_wide_kw.onnx"
    if not existing or not network.exists():
        pytest.skip("OVAL21 is not in the data folder")
    property_path = tmp_path / f"{NAME}.vnnlib"
    data = existing[0].read_bytes()
    property_path.write_bytes(gzip.decompress(data) if existing[0].suffix == ".gz" else data)
    result = bough.verify(network, property_path, timeout=20, device="cpu")
    assert result.verdict is Verdict.FALSIFIED
    assert result.counterexample is not None
    reference, prop = Reference(network.read_bytes()), read_property(property_path)
    clause = prop.clauses[result.counterexample.clause]
    box = prop.boxes[clause.box]
    assert clause.holds(np.asarray(reference.run(result.counterexample.x), dtype=np.float64).reshape(-1))
    assert (box.lower.numpy() <= result.counterexample.x).all()
    assert (result.counterexample.x <= box.upper.numpy()).all()
    for bounds in ("dual", "lp"):  # without the attack it may take too long, but it is never verified
        blind = bough.verify(network, property_path, timeout=2, device="cpu", bounds=bounds, attack=False)
        assert blind.verdict is not Verdict.VERIFIED
