"""Every mutant still applies to the source, and names tests that are there; `make mutants` shows who catches it."""

import shutil
from pathlib import Path

import pytest
from soundness.mutants import ROOT, Mutant, apply, mutants

FEWEST = 10


@pytest.fixture(scope="module")
def source(tmp_path_factory: pytest.TempPathFactory) -> Path:
    if shutil.which("git") is None:
        pytest.skip("git is not installed")
    folder = tmp_path_factory.mktemp("source")
    shutil.copytree(ROOT / "src", folder / "src", ignore=shutil.ignore_patterns("__pycache__", "*.safetensors"))
    return folder


def test_there_are_enough_of_them():
    assert len(mutants()) >= FEWEST
    assert [m.name for m in mutants(["01"])] == [mutants()[0].name]


@pytest.mark.parametrize("mutant", mutants(), ids=lambda mutant: mutant.name)
def test_a_patch_applies_and_its_tests_are_there(mutant: Mutant, source: Path) -> None:
    assert apply(mutant, source, check=True) == ""
    assert mutant.title.endswith(".")
    assert mutant.tests
    for test in mutant.tests:
        assert (ROOT / test.split("::")[0]).is_file()


def test_a_patch_that_does_not_fit_is_noticed(source: Path, tmp_path: Path) -> None:
    text = mutants()[0].path.read_text()
    broken = tmp_path / "99_broken.patch"
    broken.write_text(text.replace("-    at", "-    that"))
    assert apply(Mutant(broken, "Broken.", ()), source, check=True) != ""
