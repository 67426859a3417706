"""What the documentation shows can be done: its code runs, its commands are known, its reference is whole."""

import math
import re
import subprocess
import sys
import textwrap
from pathlib import Path
from typing import Any

import pytest
import torch
from tests.problem.test_onnx import check, model, node
from tests.support import Judged, hard_case
from tests.test_readme import blocks, commands, ran
from torch import nn

import bough
from bough.api import solve
from bough.bounds.base import BounderSettings
from bough.bounds.intermediate import TightBounds
from bough.bounds.linear import bound_clause, by_slopes
from bough.branching.babsr import BaBSR
from bough.branching.base import KNOWN_RULES, AbstractBrancher, RuleEntry, RuleSettings
from bough.budget import Deadline
from bough.cli import _parser
from bough.errors import BadInput, UnsupportedOperator
from bough.falsify.base import NoAttack
from bough.options import Options
from bough.problem import onnx
from bough.problem import torch as modules
from bough.problem.runtime import compare
from bough.problem.torch import ModuleReference, read_module
from bough.search.loop import Search, search

DOCS = Path(__file__).parents[1] / "docs"
PAGES = sorted(DOCS.glob("*.md"))  # without the notebook, whose commands were right when a note was written


def defined(page: str, *numbers: int) -> dict[str, Any]:
    """What some of a page's blocks of Python define."""
    space: dict[str, Any] = {"__name__": "page"}
    for number in numbers:
        exec(compile(blocks("python", DOCS / page)[number], page, "exec"), space)
    return space


def in_contributing(words: str) -> str:
    """The block of Python in CONTRIBUTING.md that has these words."""
    text = (DOCS.parent / "CONTRIBUTING.md").read_text(encoding="utf-8")
    blocks = re.findall(r"^   ```python\n(.*?)^   ```", text, flags=re.MULTILINE | re.DOTALL)
    (block,) = [textwrap.dedent(block) for block in blocks if words in block]
    return block


def shown_brancher(**fields: int) -> AbstractBrancher[Any]:
    """The rule of the page, made by the page's own code."""
    rule = defined("howto-brancher.md", 0)["DearestChord"](**fields)
    assert isinstance(rule, AbstractBrancher)
    return rule


def shown_rule() -> RuleEntry:
    """The entry of the page's rule."""
    (entry,) = defined("howto-brancher.md", 0)["RULES"]
    assert isinstance(entry, RuleEntry)
    return entry


@pytest.mark.parametrize(
    ("page", "numbers"), [("howto-brancher.md", (0,)), ("howto-bounder.md", (0, 3)), ("howto-bounder.md", (2,))]
)
def test_the_files_that_the_pages_show_pass_the_linter(page, numbers):
    shown = blocks("python", DOCS / page)
    words = [sys.executable, "-m", "ruff", "check", "--stdin-filename", "src/bough/branching/shown.py", "-"]
    text = "\n\n".join(shown[number] for number in numbers)
    done = subprocess.run(words, cwd=DOCS.parent, input=text, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr


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


@pytest.mark.parametrize(("kind", "seed", "safe"), [("dense", 5, True), ("residual", 4, True), ("pooled", 3, False)])
def test_the_bounder_of_the_page_proves_no_more_than_is_true_and_finds_what_enumeration_finds(kind, seed, safe):
    case = hard_case(kind, seed, safe=safe)
    judged = Judged(defined("howto-bounder.md", 0)["PlainBounds"](), case)
    result = search(Search(case.problem, judged, BaBSR(), NoAttack(), Deadline.never(), batch=16))
    assert result.verdict.value == ("verified" if case.least > 0 else "falsified")
    assert result.branches


def test_the_slopes_of_the_page_prove_what_is_true_and_are_zero_below():
    slopes = defined("howto-bounder.md", 2)["ZeroSlopes"]()
    assert slopes(torch.tensor([2.0, -2.0]), torch.tensor([-1.0, -1.0]), torch.tensor([3.0, 3.0])).tolist() == [0, -1.5]
    case = hard_case("dense", 5, safe=True)
    clause = case.problem.clauses[0]
    region = TightBounds().at_root(case.problem.network, case.problem.property.boxes[0], Deadline.never())
    weights = torch.eye(len(clause.offsets), dtype=torch.float64)[None]
    proved = bound_clause(case.problem.network, region, clause, weights, by_slopes(slopes))
    assert -math.inf < float(proved.max()) <= case.least


def test_the_bounder_of_the_page_takes_the_place_of_a_name():
    problem = hard_case("dense", 5, safe=True).problem
    bounder = defined("howto-bounder.md", 0)["PlainBounds"]()
    assert solve(problem, Options(bounds=bounder, branching="babsr", attack=False)).verdict.value == "verified"
    with pytest.raises(BadInput, match="needs"):
        Options(bounds=bounder, branching=shown_brancher())


def test_the_entries_of_the_pages_make_what_the_pages_show():
    assert repr(shown_rule().make(RuleSettings())) == repr(shown_brancher())
    (bounder,) = defined("howto-bounder.md", 0, 3)["BOUNDERS"]
    assert bounder.make(BounderSettings(TightBounds())).intermediate == TightBounds()
    assert bounder.usual_rule in KNOWN_RULES.names()


def test_the_operator_of_the_guide_is_read_as_the_runtime_computes_it(monkeypatch):
    space = dict(vars(onnx))
    exec(in_contributing("def _leaky_relu(call"), space)
    monkeypatch.setattr(onnx, "CONVERT", {**onnx.CONVERT, "LeakyRelu": space["_leaky_relu"]})
    monkeypatch.setattr(onnx, "SUPPORTED", [*onnx.SUPPORTED, "LeakyRelu"])
    for layer in (node("LeakyRelu", "x"), node("LeakyRelu", "x", alpha=0.1), node("LeakyRelu", "x", alpha=1.5)):
        check(model([layer], {}, (1, 3, 7, 6)))
    for alpha in (1e7, float("nan")):
        with pytest.raises(UnsupportedOperator, match="alpha"):
            check(model([node("LeakyRelu", "x", alpha=alpha)], {}, (1, 3, 7, 6)))


def test_the_operator_of_the_guide_is_read_as_pytorch_computes_it(monkeypatch):
    space = dict(vars(modules))
    exec(in_contributing("def _leaky_relu(x"), space)
    monkeypatch.setattr(modules, "CONVERT", {**modules.CONVERT, "leaky_relu": space["_leaky_relu"]})
    for module in (nn.LeakyReLU(), nn.LeakyReLU(0.1), nn.LeakyReLU(1.5)):
        compare(read_module(module, (6,)), ModuleReference(module, (6,)), points=12)


def test_the_test_by_hand_of_the_guide_passes():
    space: dict[str, Any] = {}
    exec(in_contributing("test_the_widest_by_hand"), space)
    space["test_the_widest_by_hand"]()


def test_the_test_of_the_guide_passes_for_a_rule_that_is_there():
    space: dict[str, Any] = {}
    exec(in_contributing("my-rule").replace("my-rule", "widest"), space)
    space["test_a_search_by_the_rule_ends"]()


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
