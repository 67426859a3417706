"""`make corruptions` in small: certificates of two searches spoilt in every way, each rejected if it is no proof; and
that the campaign would notice a checker that believes too much.
"""

from collections import Counter
from pathlib import Path

import numpy as np
import pytest
from soundness.corrupt import REJECTED, corrupted, subject, table
from soundness.damage import KINDS, Subject
from soundness.damage_trees import TREE_KINDS
from soundness.second import TOLERANCE, Opinion
from tests.support import hard_case
from tests.verdict.certificates import certified, chunks_of, made

from bough.verdict.certificate import Leaves, Lemma
from bough.verdict.check.claims import Claims
from bough.verdict.check.proof import Prover

COUNT = 2 * len(KINDS)  # every kind twice


@pytest.fixture(scope="module")
def subjects(tmp_path_factory: pytest.TempPathFactory) -> list[Subject]:
    """By dual variables, by halved inputs, and a counterexample."""
    folder, proofs = tmp_path_factory.mktemp("proofs"), []
    for kind, seed, bounds in (("residual", 1, "dual"), ("dense", 2, "linear")):
        case, data = made(kind, seed, bounds)
        path = folder / f"{kind}.proof"
        path.write_bytes(data)
        proofs.append(subject(kind, case.problem, path))
    unsafe = hard_case("dense", 1, safe=False)
    certified(unsafe.problem, folder / "unsafe.proof", "dual")
    return [*proofs, subject("unsafe", unsafe.problem, folder / "unsafe.proof")]


def test_what_breaks_a_proof_is_rejected(subjects: list[Subject], tmp_path: Path) -> None:
    tried = [corrupted(n, 0, subjects, tmp_path / "proof", KINDS) for n in range(COUNT)]
    wrong = [entry for entry in tried if entry["outcome"] in ("ACCEPTED", "CRASHED")]
    assert wrong == []
    broken = [entry for entry in tried if entry.get("broken")]
    assert len(broken) > 0.8 * COUNT
    assert all(entry["outcome"] in REJECTED for entry in broken)
    evidence = Counter(entry["evidence"] for entry in broken)
    assert set(evidence) == {"bytes", "hash", "form", "gap", "unsafe", "point", "numbers"}
    assert f"{len(broken)} of {len(broken)} that break the proof are rejected" in table(tried)


def test_trees_that_are_spoilt_are_rejected(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Where patterns leave a gap there is no proof, whatever else the file holds; the leaves need some of the trees."""
    proofs = []
    for kind, seed in (("padded", 1), ("dense", 10)):
        case, data = made(kind, seed, "dual", relu_bounds="trees")
        (tmp_path / kind).write_bytes(data)
        proofs.append(subject(kind, case.problem, tmp_path / kind))
    tried = [corrupted(n, 1, proofs, tmp_path / "proof", TREE_KINDS) for n in range(6 * len(TREE_KINDS))]
    assert [entry for entry in tried if entry["outcome"] in ("ACCEPTED", "CRASHED", "none")] == []
    evidence = Counter(entry["evidence"] for entry in tried if entry["broken"])
    assert evidence["gap"] == 36
    assert evidence["form"] == 6
    assert evidence["numbers"] > 10
    monkeypatch.setattr(Claims, "_check_cover", lambda *_: None)  # a checker that does not look is noticed
    blind = [corrupted(n, 1, proofs, tmp_path / "proof", TREE_KINDS) for n in range(6)]
    assert "ACCEPTED" in {entry["outcome"] for entry in blind}


def test_a_corruption_is_the_same_every_time(subjects: list[Subject], tmp_path: Path) -> None:
    for number in (3, 11, 20, 31):
        one, two = (corrupted(number, 5, subjects, tmp_path / "proof", KINDS) for _ in range(2))
        assert {**one, "seconds": 0} == {**two, "seconds": 0}


@pytest.mark.parametrize(
    ("kind", "seed", "bounds"),
    [
        *(("dense", 3, bounds) for bounds in ("dual", "lp", "linear")),
        ("convolutional", 0, "dual"),
        ("residual", 3, "lp"),
        ("pooled", 3, "linear"),
    ],
)
def test_the_second_opinion_is_the_checkers_but_for_rounding(kind: str, seed: int, bounds: str, tmp_path: Path) -> None:
    """Leaf by leaf: a bound that one of them finds and the other does not would be a mistake of one of them."""
    case, data = made(kind, seed, bounds)
    chunks = chunks_of(data, tmp_path / "proof")
    claims, second = Claims(case.problem.network, case.problem.property), Opinion(case.problem).bounds(chunks)
    for at, chunk in enumerate(chunks):
        if isinstance(chunk, Lemma):
            claims.learn(chunk)
        elif isinstance(chunk, Leaves):
            for k, bound in enumerate(claims.bounds(chunk).tolist()):
                assert second[at, k] == pytest.approx(bound, abs=1e-6) or min(second[at, k], bound) == np.inf
                assert second[at, k] > TOLERANCE


def test_a_checker_that_believes_too_much_is_noticed(
    subjects: list[Subject], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """With bounds that are too good, and with gaps that nobody looks for."""

    def accepted(seed: int) -> set[str]:
        tried = [corrupted(n, seed, subjects, tmp_path / "proof", KINDS) for n in range(COUNT)]
        return {entry["evidence"] for entry in tried if entry["outcome"] == "ACCEPTED"}

    monkeypatch.setattr("bough.verdict.check.checker.find_gap", lambda *_: None)
    assert accepted(1) == {"gap"}
    monkeypatch.undo()
    exactly = Prover.least_of_rows
    monkeypatch.setattr(Prover, "least_of_rows", lambda *a, **b: exactly(*a, **b) + 10.0)
    assert {"unsafe", "numbers"} <= accepted(1)
