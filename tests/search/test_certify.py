"""Whoever writes a certificate asks the bounder what a leaf's numbers prove, and is not fooled by a wrong answer."""

from pathlib import Path

import numpy as np
import pytest
import torch
from tests.support import hard_case
from tests.verdict.certificates import certified

from bough.bounds.dual import DualSession
from bough.search.certify import Certifier
from bough.verdict.check import Outcome, check

CASES = [("dense", 0), ("convolutional", 3), ("residual", 1), ("pooled", 3)]
HOW = {"intermediate": "fixed", "timeout": 20}  # so that there is something to split


@pytest.mark.parametrize(("kind", "seed"), CASES)
def test_the_bounder_and_the_checker_agree_on_what_is_written(kind, seed, tmp_path: Path, monkeypatch):
    usual, differences = Certifier._good, []

    def both(self, tried, rows, judge):
        if judge is not None and tried.evidence is not None:
            claimed = judge(rows, tried.evidence).numpy()
            derived = self._claims.bounds(tried.leaves(np.arange(len(rows))))
            assert (derived[claimed > 0] > 0).all()
            differences.extend(np.abs(claimed - derived)[np.isfinite(claimed) & np.isfinite(derived)].tolist())
        return usual(self, tried, rows, judge)

    monkeypatch.setattr(Certifier, "_good", both)
    problem = hard_case(kind, seed, safe=True).problem
    certified(problem, tmp_path / "proof", "dual", **HOW)
    assert len(differences) > 1
    assert max(differences) < 1e-9
    assert check(problem, tmp_path / "proof").outcome is Outcome.VALID


def test_a_bounder_that_is_wrong_is_not_asked_again(tmp_path: Path, monkeypatch):
    calls = []

    def anything(_, domains, evidence):
        calls.append(len(evidence.numbers))
        return torch.ones(len(domains))

    monkeypatch.setattr(DualSession, "supported", anything)
    problem = hard_case("residual", 1, safe=True).problem
    result = certified(problem, tmp_path / "proof", "dual", **HOW)
    assert len(calls) < result.notes["certificate_leaves"]
    assert check(problem, tmp_path / "proof").outcome is Outcome.VALID


def test_a_bounder_that_cannot_tell_costs_time_only(tmp_path: Path, monkeypatch):
    problem = hard_case("dense", 0, safe=True).problem
    certified(problem, tmp_path / "one", "dual", **HOW)
    monkeypatch.setattr(DualSession, "supported", lambda *_: None)
    certified(problem, tmp_path / "other", "dual", **HOW)
    assert check(problem, tmp_path / "other").leaves == check(problem, tmp_path / "one").leaves
