"""ARCHITECTURE.md and the folders' READMEs are true maps: folders, files, layers, claims and citations are checked."""

import ast
import re
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
PACKAGE = ROOT / "src" / "bough"
MAP = (ROOT / "ARCHITECTURE.md").read_text(encoding="utf-8")
PAGES = ("ARCHITECTURE.md", "CONTRIBUTING.md")
WITH_README = ("experiments", "benchmarks", "soundness", "tools", "vnncomp")
WITH_CODE = ("src", "tests", "experiments", "benchmarks", "soundness", "tools")

NAMED_PATH = re.compile(r"`([\w./-]+(?:\.py|\.sh|\.md|/))`")
FOLDER_ROW = re.compile(r"\| `([\w/]+)/` \|(.*)\|(.*)\|$", re.MULTILINE)
CITATION = re.compile(r"\b[Ff]acts\s+(\d+(?:\.\d+)?(?:(?:,|\s+and|\s+to)\s+\d+\.\d+)*)")
FEWEST_CITATIONS = 20  # with fewer, the expression above does not find them any more
NATIVE_SOLVERS = {"highspy", "gurobipy", "pyscipopt", "maraboupy"}


def named_paths(text: str) -> list[str]:
    return NAMED_PATH.findall(text)


# Folders and files


def folders_below(top: Path) -> set[str]:
    """Folders that hold files, from the top on; what running the code leaves behind is none."""
    files = (path.relative_to(top) for path in top.rglob("*") if path.is_file())
    return {f"{path.parent}/" for path in files if path.parent.name not in {"", "__pycache__"}}


def test_the_map_names_every_folder_of_the_package() -> None:
    assert sorted(folders_below(PACKAGE) - set(named_paths(MAP))) == []


def test_the_map_names_every_folder_beside_the_package() -> None:
    """What lies there untracked is the reader's own."""
    if shutil.which("git") is None:
        pytest.skip("git is not installed")
    listed = subprocess.run(["git", "ls-files"], cwd=ROOT, capture_output=True, text=True, check=False)
    if listed.returncode:
        pytest.skip("this is no repository of git's")
    folders = {f"{name.split('/')[0]}/" for name in listed.stdout.splitlines() if "/" in name and name[0] != "."}
    assert sorted(folders - set(named_paths(MAP))) == []


def test_the_map_names_every_module_without_a_folder() -> None:
    alone = {path.name for path in PACKAGE.glob("[!_]*.py")}
    assert sorted(alone - set(named_paths(MAP))) == []


def test_where_to_start_is_in_the_folder_of_the_row() -> None:
    rows = [(PACKAGE / folder, named_paths(last)) for folder, _, last in FOLDER_ROW.findall(MAP)]
    assert len(rows) > 10
    assert [f"{folder}/{name}" for folder, names in rows for name in names if not (folder / name).exists()] == []


@pytest.mark.parametrize("page", PAGES)
def test_every_path_on_the_page_exists(page: str) -> None:
    """Paths start at the repository or at the package; a bare file name in prose is that of any file of the package."""
    ignored = (ROOT / ".gitignore").read_text(encoding="utf-8").split()
    missing = [
        name
        for name in named_paths((ROOT / page).read_text(encoding="utf-8"))
        if not (ROOT / name).exists()
        and not (PACKAGE / name).exists()
        and not ("/" not in name and any(PACKAGE.rglob(name)))
        and name not in ignored
    ]
    assert missing == []


@pytest.mark.parametrize("folder", WITH_README)
def test_a_readme_names_what_is_in_its_folder_and_nothing_else(folder: str) -> None:
    named = set(named_paths((ROOT / folder / "README.md").read_text(encoding="utf-8")))
    scripts = {path.name for ending in ("py", "sh") for path in (ROOT / folder).glob(f"[!_]*.{ending}")}
    assert sorted((scripts | folders_below(ROOT / folder)) - named) == []
    assert [name for name in named if not (ROOT / folder / name).exists() and not (ROOT / name).exists()] == []


# Layers and claims


def test_the_layers_are_those_that_imports_are_held_to() -> None:
    settings = (ROOT / "pyproject.toml").read_text(encoding="utf-8")
    held = re.findall(r'^    "(.+)",$', settings.split("\nlayers = [\n")[1].split("\n]")[0], flags=re.MULTILINE)
    drawn = re.findall(r"^    (.+)$", MAP.split("\n## Layers\n")[1].split("\n## ")[0], flags=re.MULTILINE)
    assert drawn == [layer.replace("(", "").replace(")", "") for layer in held]


def modules_outside(folder: str) -> Iterator[tuple[str, ast.Module]]:
    """Every module of the package but those of one folder."""
    for path in sorted(PACKAGE.rglob("*.py")):
        if not path.is_relative_to(PACKAGE / folder):
            yield str(path.relative_to(PACKAGE)), ast.parse(path.read_text(encoding="utf-8"))


def prints(node: ast.AST) -> bool:
    """Whether this is `print`, or a stream of `sys` that leads to the console."""
    if isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name):
        return node.value.id == "sys" and node.attr in {"stdout", "stderr"}
    return isinstance(node, ast.Name) and node.id == "print"


def test_only_the_command_line_prints() -> None:
    assert "Only `cli/` prints" in MAP
    assert [name for name, module in modules_outside("cli") if any(map(prints, ast.walk(module)))] == []


def imported(node: ast.AST) -> set[str]:
    """The packages that a statement imports."""
    if isinstance(node, ast.ImportFrom):
        return {(node.module or "").split(".")[0]}
    return {alias.name.split(".")[0] for alias in node.names} if isinstance(node, ast.Import) else set()


def test_only_the_doors_import_native_solvers() -> None:
    assert "only `solvers/` imports a native solver" in MAP
    wrong = [
        name
        for name, module in modules_outside("solvers")
        if any(imported(node) & NATIVE_SOLVERS for node in ast.walk(module))
    ]
    assert wrong == []


# Citations


def test_facts_that_are_cited_are_sections() -> None:
    text = (ROOT / "docs" / "paper-facts.md").read_text(encoding="utf-8")
    sections = set(re.findall(r"^#+ (\d+(?:\.\d+)?)\.? ", text, flags=re.MULTILINE))
    files = [path for folder in WITH_CODE for path in sorted((ROOT / folder).rglob("*.py"))]
    cited = [
        (path.relative_to(ROOT).as_posix(), number)
        for path in [*files, *sorted(ROOT.glob("docs/**/*.md")), *sorted(ROOT.glob("*.md"))]
        for numbers in CITATION.findall(path.read_text(encoding="utf-8"))
        for number in re.findall(r"\d+(?:\.\d+)?", numbers)
    ]
    assert len(cited) >= FEWEST_CITATIONS
    assert [(path, number) for path, number in cited if number not in sections] == []
