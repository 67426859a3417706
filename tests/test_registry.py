"""Strategies by name: reading names imports nothing, what a module holds is found, and other packages may add to it."""

import json
import os
import re
import subprocess
import sys
from collections.abc import Mapping
from importlib import import_module
from pathlib import Path
from typing import Any

import pytest
from tests.support import hard_case
from tests.test_readme import blocks

from bough.baselines.base import KNOWN_BASELINES
from bough.bounds.base import KNOWN_BOUNDERS
from bough.bounds.intermediate import KNOWN_RELU_BOUNDS
from bough.branching.base import KNOWN_RULES
from bough.errors import BadInput
from bough.learning.presets import KNOWN_MODELS
from bough.problem.onnx_writer import write_network
from bough.problem.vnnlib import write_property
from bough.registry import Entry, Registry

SOURCE = Path(__file__).parents[1] / "src"
DOCS = Path(__file__).parents[1] / "docs"
REGISTRIES: dict[str, tuple[Registry[Any], str, tuple[str, ...]]] = {
    # Each registry with its constant and its folders.
    "rules": (KNOWN_RULES, "RULES", ("branching", "learning")),
    "bounders": (KNOWN_BOUNDERS, "BOUNDERS", ("bounds",)),
    "relu bounds": (KNOWN_RELU_BOUNDS, "RELU_BOUNDS", ("bounds",)),
    "baselines": (KNOWN_BASELINES, "BASELINES", ("baselines",)),
    "models": (KNOWN_MODELS, "MODELS", ("learning",)),
}


def python(code: str, *folders: Path) -> str:
    """What code prints in a process of its own, with bough and more folders on its path."""
    path = os.pathsep.join(map(str, (SOURCE, *folders)))
    environment = {**os.environ, "PYTHONPATH": path, "OMP_NUM_THREADS": "1"}
    words = [sys.executable, "-c", code]
    done = subprocess.run(words, env=environment, capture_output=True, text=True, timeout=120, check=False)
    assert done.returncode == 0, done.stderr
    return done.stdout


def imported_after(code: str) -> set[str]:
    """The modules of bough that a process holds after some code."""
    return {name for name in python(f"{code}\nimport sys\nprint(*sys.modules)").split() if name.startswith("bough")}


def constants(constant: str, folders: tuple[str, ...]) -> dict[str, tuple[Entry, ...]]:
    """The entries of every module of these folders that has the constant."""
    by_module = {}
    for folder in folders:
        for path in sorted((SOURCE / "bough" / folder).glob("*.py")):
            if path.stem != "fused":  # which needs Triton
                name = f"bough.{folder}.{path.stem}".removesuffix(".__init__")
                entries = getattr(import_module(name), constant, None)
                if entries is not None:
                    by_module[name] = entries
    return by_module


# What is found


@pytest.mark.parametrize("name", REGISTRIES)
def test_every_entry_of_every_module_is_found_by_its_name(name):
    """The text is read as the module means it, whatever its layout; and no name is there twice."""
    registry, constant, folders = REGISTRIES[name]
    entries = [entry for held in constants(constant, folders).values() for entry in held]
    assert entries
    assert len({entry.name for entry in entries}) == len(entries)
    assert {entry.name for entry in entries} <= set(registry.names())
    for entry in entries:
        assert registry.entry(entry.name) is entry
        assert registry.words(comparison=entry.comparison)[entry.name] == entry.words
        assert entry.name not in registry.words(comparison=not entry.comparison)
    assert {entry.name for entry in registry.entries()} == set(registry.names())


@pytest.mark.parametrize("name", REGISTRIES)
def test_an_unknown_name_is_refused_with_all_that_are_known(name):
    registry, _, _ = REGISTRIES[name]
    for refuse in (registry.check, registry.entry):
        with pytest.raises(BadInput) as refused:
            refuse("oracle")
        message = str(refused.value)
        assert message.startswith(f"there is no {registry.kind} 'oracle'; there are: ")
        listed = message.partition("there are: ")[2].split(", ")
        assert [word for word in listed if word != "auto"] == list(registry.names())
    assert ("auto" in message) == (name != "models")


# What is imported


def test_names_and_words_of_rules_are_read_without_importing_a_rule():
    listed = "from bough.branching.base import KNOWN_RULES\nassert 'widest' in KNOWN_RULES.names()\n"
    modules = imported_after(f"{listed}KNOWN_RULES.words()\nKNOWN_RULES.words(comparison=True)")
    assert {name for name in modules if name.startswith("bough.branching.")} == {"bough.branching.base"}
    assert not any(name.startswith("bough.learning") for name in modules)
    with_rules = set(constants("RULES", ("branching", "learning")))
    assert len(with_rules) > 5
    assert not modules & with_rules
    one = imported_after(f"{listed}KNOWN_RULES.entry('widest')")
    assert one & with_rules == {"bough.branching.widest"}


def test_names_and_words_of_bounds_and_baselines_are_read_without_importing_them():
    modules = imported_after(
        "from bough.bounds.base import KNOWN_BOUNDERS\n"
        "from bough.baselines.base import KNOWN_BASELINES\n"
        "KNOWN_BOUNDERS.words()\nKNOWN_BASELINES.words()\n"
    )
    of_bounders, of_baselines = constants("BOUNDERS", ("bounds",)), constants("BASELINES", ("baselines",))
    assert not modules & {*of_bounders, *of_baselines}
    assert len(of_bounders) >= 2
    assert len(of_baselines) == 2


def test_the_interface_imports_no_baseline_no_writer_of_certificates_and_no_learning():
    modules = imported_after("import bough.api")
    assert "bough.plan" in modules
    assert {name for name in modules if name.startswith("bough.baselines.")} == {"bough.baselines.base"}
    assert not {"bough.search.certify", "bough.search.leaves", "bough.verdict.certificate"} & modules
    for folder in ("learning", "zoo", "bench", "verdict.check"):
        assert not any(name.startswith(f"bough.{folder}") for name in modules), folder


# Other packages


def install(folder: Path, name: str, points: str, files: Mapping[str, str]) -> Path:
    """A package as an installation leaves it: its modules, and beside them what it says of itself."""
    about = folder / f"{name}-1.0.dist-info"
    about.mkdir(parents=True)
    (about / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {name}\nVersion: 1.0\n")
    (about / "entry_points.txt").write_text(points)
    for file, text in files.items():
        path = folder / name / file
        path.parent.mkdir(exist_ok=True)
        path.write_text(text)
    return folder


@pytest.fixture
def chords(tmp_path: Path) -> Path:
    """The package of the how-to, made of the page's own blocks."""
    page = DOCS / "howto-brancher.md"
    code = next(block for block in blocks("python", page) if "class DearestChord" in block)
    (project,) = blocks("toml", page)
    group, point = re.findall(r'^\[project\.entry-points\."(.+)"\]\n(.+)$', project, flags=re.MULTILINE)[0]
    points = f"[{group}]\n{point.replace(chr(34), '')}\nbabsr = chords.rule\nother = chords.rule\ngone = chords.none\n"
    return install(tmp_path / "site", "chords", points, {"__init__.py": "", "rule.py": code})


def verify(folder: Path, *words: str) -> "subprocess.CompletedProcess[str]":
    """`bough verify` of a small problem, in a process that finds packages in a folder."""
    problem = hard_case("dense", 5, safe=True).problem
    write_network(problem.network, folder / "net.onnx")
    (folder / "prop.vnnlib").write_text(write_property(problem.property))
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join([str(SOURCE), str(folder)]), "OMP_NUM_THREADS": "1"}
    command = [sys.executable, "-m", "bough", "verify", "net.onnx", "prop.vnnlib", "--timeout", "60", *words]
    return subprocess.run(
        command, cwd=folder, env=environment, capture_output=True, text=True, timeout=120, check=False
    )


def test_a_package_adds_a_rule_by_an_entry_point(chords):
    done = verify(chords, "--branching", "dearest-chord", "--bounds", "lp", "--no-attack", "--json", "run.json")
    assert (done.returncode, done.stdout) == (0, "verified\n"), done.stderr
    assert "dearest-chord branching" in done.stderr
    record = json.loads((chords / "run.json").read_text())
    assert record["branching"] == "dearest-chord"
    assert record["engine"]["chord_decisions"] == record["branches"] / 2 > 1


def test_what_the_rule_of_a_package_needs_is_checked_before_the_search(chords):
    done = verify(chords, "--branching", "dearest-chord", "--bounds", "linear")
    assert (done.returncode, done.stdout) == (2, "")
    needs = "'dearest-chord' needs the multipliers of a relaxation, which linear bounds do not have"
    assert done.stderr == f"bough: {needs}; use --bounds lp or dual\n"


def test_the_rule_of_a_package_is_listed_with_its_module_which_is_not_imported(chords):
    code = "from bough.branching.base import KNOWN_RULES\nprint(KNOWN_RULES.words()['dearest-chord'])\n"
    printed = python(f"{code}import sys\nprint('chords' in sys.modules)", chords)
    assert printed.splitlines() == ["from chords.rule", "False"]
    listed = verify(chords, "--branching", "help")
    assert listed.returncode == 0
    assert re.search(r"^  dearest-chord\s+from chords.rule$", listed.stdout, flags=re.MULTILINE)


def test_a_package_cannot_take_a_name_of_boughs_own(chords):
    code = "from bough.branching.base import KNOWN_RULES\nprint(type(KNOWN_RULES.entry('babsr').make(None)).__module__)"
    counted = "print(KNOWN_RULES.names().count('babsr'), KNOWN_RULES.words()['babsr'])"
    module, words = python(f"{code}\n{counted}", chords).splitlines()
    assert module == "bough.branching.babsr"
    assert words == f"1 {KNOWN_RULES.words()['babsr']}"


@pytest.mark.parametrize(
    ("name", "words"),
    [
        ("other", "chords.rule has no branching rule 'other' in RULES, though it is said to be there"),
        ("gone", "the branching rule 'gone' is said to be in chords.none, which cannot be imported: "),
    ],
)
def test_a_name_that_its_module_does_not_define_is_bad_input(chords, name, words):
    done = verify(chords, "--branching", name)
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr.startswith(f"bough: {words}")
    assert len(done.stderr.splitlines()) == 1


def test_a_package_adds_a_bounder_by_an_entry_point(tmp_path):
    """The how-to's own, too."""
    page = DOCS / "howto-bounder.md"
    code = next(block for block in blocks("python", page) if "class PlainBounds" in block)
    bounders = next(block for block in blocks("python", page) if block.startswith("BOUNDERS = ("))
    folder = install(
        tmp_path, "plain", "[bough.bounders]\nplain = plain.bounds\n", {"bounds.py": f"{code}\n{bounders}"}
    )
    done = verify(folder, "--bounds", "plain", "--no-attack", "--json", "run.json")
    assert (done.returncode, done.stdout) == (0, "verified\n"), done.stderr
    record = json.loads((folder / "run.json").read_text())
    assert (record["bounder"], record["branching"], record["batch"]) == ("plain", "babsr", 64)
