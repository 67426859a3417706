"""Readers on damaged files: a result or one sentence, within time and memory; `make fuzz` does the same for longer."""

import os
from pathlib import Path
from random import Random

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from tests.security.fuzz import TARGETS, execute, fuzz, target

SECONDS = float(os.environ.get("BOUGH_FUZZ_SECONDS", "60" if os.environ.get("CI") else "24"))


def test_readers_survive_for_a_while(tmp_path: Path) -> None:
    tallies, findings = fuzz(list(TARGETS), SECONDS, int(os.environ.get("BOUGH_FUZZ_SEED", "0")), tmp_path)
    assert not findings, "\n".join(findings)
    assert all(tally["refused"] > 10 for tally in tallies.values()), tallies
    assert tallies["onnx"]["read"]  # some damage does no harm


@pytest.mark.parametrize("name", TARGETS)
def test_seeds_are_read_or_refused(name: str, tmp_path: Path) -> None:
    reader = target(name)
    assert {execute(reader, data, tmp_path) for data in reader.seeds} <= {"read", "refused"}


@pytest.mark.parametrize("name", ["onnx", "vnnlib", "records", "manifest", "table", "certificate"])
def test_readers_by_hypothesis(name: str, tmp_path: Path) -> None:
    """As above, with inputs that are made small once one of them finds something."""
    reader = target(name)

    @settings(max_examples=12, deadline=None, suppress_health_check=list(HealthCheck))
    @given(chance=st.randoms(use_true_random=False))
    def holds(chance: Random) -> None:
        assert execute(reader, reader.next(chance), tmp_path) in ("read", "refused")

    holds()
