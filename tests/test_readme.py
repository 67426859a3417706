"""What README.md shows can be done: its Python runs and prints what it says, and bough knows its commands.

The text that a package index shows is made of it, without pictures and links that lead nowhere there.
"""

import os
import re
import shlex
import subprocess
import sys
from pathlib import Path

import pytest

from bough.cli import _parser

ROOT = Path(__file__).parents[1]
README = ROOT / "README.md"
_ENDS = {"|", ">", ">>", "2>", "&&", ";", "&"}  # from here on it is the shell's


def blocks(language: str, page: Path = README) -> list[str]:
    """The fenced blocks in one language."""
    text = page.read_text(encoding="utf-8")
    return re.findall(rf"^```{language}\b[^\n]*\n(.*?)^```", text, flags=re.MULTILINE | re.DOTALL)


def commands(page: Path = README) -> list[list[str]]:
    """The words after `bough` of every command shown at a prompt."""
    listed = []
    for block in blocks("console", page):
        joined = re.sub(r"\\\n\s*>?", " ", block)
        for line in joined.splitlines():
            if re.match(r"\$ (\S+/)?bough\b", line):
                words = shlex.split(line, comments=True)[2:]
                listed.append(words[: next((k for k, word in enumerate(words) if word in _ENDS), len(words))])
    return listed


def ran(snippets: list[str], tmp_path: Path) -> str:
    """What snippets print, run as one script that nothing warns about."""
    script = tmp_path / "page.py"
    script.write_text("\n\n".join(snippets), encoding="utf-8")
    run = subprocess.run(
        [sys.executable, "-W", "error", str(script)],
        cwd=tmp_path,
        env={**os.environ, "OMP_NUM_THREADS": "1"},
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert run.returncode == 0, run.stderr
    return run.stdout


def test_the_python_runs_and_prints_what_is_shown(tmp_path: Path) -> None:
    snippets, shown = blocks("python"), blocks("text")
    assert snippets, "README.md shows no Python"
    assert shown, "README.md does not show what its Python prints"
    assert ran(snippets, tmp_path) == "".join(shown)


def test_there_are_commands() -> None:
    assert commands(), "README.md shows no `$ bough` command in a console block"


@pytest.mark.parametrize("words", commands(), ids=" ".join)
def test_the_commands_are_known(words: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    try:
        _parser().parse_args(words)
    except SystemExit as left:
        if left.code:
            pytest.fail(capsys.readouterr().err)


LINK = re.compile(r"\[[^\]]+\]\(([^)]*)\)")


@pytest.fixture(scope="module")
def index_text() -> str:
    """What a build of bough would make of README.md."""
    completed = subprocess.run(
        [sys.executable, "-m", "hatch_fancy_pypi_readme"],
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert completed.returncode == 0, completed.stderr
    return completed.stdout


def test_the_index_text_has_no_pictures_and_no_relative_links(index_text: str) -> None:
    assert "](docs/" not in index_text
    assert "![" not in index_text
    assert [link for link in LINK.findall(index_text) if not link.startswith("https://")] == []


def test_the_index_text_has_all_else(index_text: str) -> None:
    readme = README.read_text(encoding="utf-8")
    assert "![" in readme
    for kept in (r"^#+ [^\n]*", r"^```.*?^```", r"\[[^\]]+\]\(https://[^)]*\)"):  # headings, code, links to the web
        parts = re.findall(kept, readme, flags=re.MULTILINE | re.DOTALL)
        assert parts
        assert re.findall(kept, index_text, flags=re.MULTILINE | re.DOTALL) == parts
    assert index_text.count("|") == readme.count("|")  # of tables
