"""What the documentation shows can be done: its code runs, its commands are known, its reference is whole."""

import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from tests.support import hard_case
from tests.test_readme import blocks, commands, ran

import bough
from bough.api import solve
from bough.branching.base import AbstractBrancher
from bough.cli import _parser
from bough.options import Options

DOCS = Path(__file__).parents[1] / "docs"
PAGES = sorted(DOCS.glob("*.md"))  # without the notebook, whose commands were right when a note was written


def shown_brancher(**fields: int) -> AbstractBrancher[Any]:
    """The rule of the page, made by the page's own code."""
    space: dict[str, Any] = {"__name__": "page"}
    exec(compile(blocks("python", DOCS / "howto-brancher.md")[0], "howto-brancher.md", "exec"), space)
    rule = space["DearestChord"](**fields)
    assert isinstance(rule, AbstractBrancher)
    return rule


@pytest.mark.parametrize("bounds", ["dual", "lp"])
@pytest.mark.parametrize(("kind", "seed", "safe"), [("dense", 5, True), ("residual", 4, True), ("pooled", 3, False)])
def test_the_brancher_of_the_page_finds_what_enumeration_finds(kind, seed, safe, bounds):
    case = hard_case(kind, seed, safe=safe)
    result = solve(case.problem, Options(bounds=bounds, branching=shown_brancher(), intermediate="fixed", attack=False))
    assert result.verdict.value == ("verified" if case.least > 0 else "falsified")
    if result.branches:
        assert 0 < result.notes["chord_decisions"] <= result.branches


def test_the_brancher_of_the_page_decides_in_searches():
    problem = hard_case("dense", 5, safe=True).problem
    result = solve(problem, Options(bounds="lp", branching=shown_brancher(), intermediate="fixed", attack=False))
    assert result.branches > 2
    assert result.notes["chord_decisions"] == result.branches / 2


@pytest.mark.parametrize("page", ["howto-property.md"])
def test_the_python_of_a_page_runs(page, tmp_path):
    snippets = blocks("python", DOCS / page)
    said = [words for snippet in snippets for words in re.findall(r"print\(.*\)  # (.*)", snippet)]
    assert ran(snippets, tmp_path).splitlines() == said  # as the comments say


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_the_commands_of_a_page_are_known(page):
    unknown = [words for words in commands(page) if not known(words)]
    assert not unknown


def known(words: list[str]) -> bool:
    """Whether bough takes these words."""
    try:
        _parser().parse_args(words)
    except SystemExit as left:
        return not left.code
    return True


def test_every_page_is_in_the_navigation():
    text = (DOCS.parent / "mkdocs.yml").read_text(encoding="utf-8")
    pages = sorted(page.relative_to(DOCS).as_posix() for page in DOCS.rglob("*.md"))
    assert sorted(re.findall(r"[\w/-]+\.md$", text, flags=re.MULTILINE)) == pages


def test_the_reference_has_every_public_name():
    text = (DOCS / "reference-python.md").read_text(encoding="utf-8")
    named = re.findall(r"^::: bough\.(\w+)$", text, flags=re.MULTILINE)
    assert sorted(named) == sorted(set(bough.__all__) - {"__version__"})


@pytest.mark.slow
def test_the_pictures_can_be_drawn_anew(tmp_path):
    script = DOCS.parent / "tools" / "draw_explanation.py"
    done = subprocess.run([sys.executable, script, "--out", tmp_path], capture_output=True, timeout=300, check=False)
    assert done.returncode == 0, done.stderr.decode()
    assert {path.name for path in tmp_path.iterdir()} == {path.name for path in (DOCS / "pictures").iterdir()}


@pytest.mark.parametrize("picture", sorted((DOCS / "pictures").glob("*")), ids=lambda path: path.name)
def test_pictures_are_small_and_white(picture):
    assert picture.suffix == ".svg"
    assert picture.stat().st_size < 100_000
    assert "fill: #ffffff" in picture.read_text(encoding="utf-8")[:3000]  # so they read on a dark page, too
