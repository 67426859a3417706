"""Rules of the house that the source shows: typed seams, one class per name, docstrings that are sentences."""

import ast
import re
from collections import Counter, defaultdict
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1] / "src" / "bough"
SEAMS = ("bounds", "search", "branching", "domain", "learning")
STRATEGIES = ("bounds", "bounder", "branching", "brancher", "rule", "intermediate", "method", "policy", "slopes")
"""Words by which a parameter names a strategy; a public signature takes the strategy itself."""
NAMES_BY_TRADE = (
    # What turns names into objects has to take names.
    "bough.branching.base.RuleSettings.bounder",
    "bough.learning.rules.weights_for.bounder",
    "bough.learning.rules.known.bounder",
    # What is written to files and read from them are words.
    "bough.learning.dataset.SampleCard.bounder",
    "bough.learning.dataset.SampleCard.rule",
    "bough.learning.weights.WeightsCard.bounder",
)


def sources() -> Iterator[tuple[str, ast.Module]]:
    for path in sorted(ROOT.rglob("*.py")):
        name = ".".join(("bough", *path.relative_to(ROOT).with_suffix("").parts)).removesuffix(".__init__")
        yield name, ast.parse(path.read_text(encoding="utf-8"))


def public(body: list[ast.stmt], prefix: str) -> Iterator[tuple[str, ast.expr]]:
    """Every annotation of a public signature: parameters, results and fields, by a dotted name."""
    for node in body:
        if isinstance(node, ast.ClassDef) and not node.name.startswith("_"):
            yield from public(node.body, f"{prefix}.{node.name}")
        elif isinstance(node, ast.AnnAssign) and isinstance(node.target, ast.Name):
            if not node.target.id.startswith("_"):
                yield f"{prefix}.{node.target.id}", node.annotation
        elif isinstance(node, ast.FunctionDef) and (not node.name.startswith("_") or node.name == "__init__"):
            arguments = node.args
            for given in (*arguments.posonlyargs, *arguments.args, *arguments.kwonlyargs):
                if given.annotation is not None:
                    yield f"{prefix}.{node.name}.{given.arg}", given.annotation
            if node.returns is not None:
                yield f"{prefix}.{node.name}.return", node.returns


def seams() -> dict[str, str]:
    """Annotations of the public signatures of the seams, as text."""
    annotations = {}
    for module, tree in sources():
        if module.split(".")[1:2] and module.split(".")[1] in SEAMS:
            annotations.update({name: ast.unparse(annotation) for name, annotation in public(tree.body, module)})
    return annotations


def tuples_of_tensors(annotation: str) -> list[str]:
    """Tuples of tensors of variable length, or of more than two."""
    plain = annotation.replace("'", "").replace('"', "")
    return [
        inside
        for inside in re.findall(r"tuple\[([^\[\]]*)\]", plain)
        if len(re.findall(r"\bTensor\b", inside)) > 2 or re.search(r"\bTensor, \.\.\.", inside)
    ]


SIGNATURES = seams()


def test_the_seams_have_signatures():
    assert len(SIGNATURES) > 1000
    assert SIGNATURES["bough.bounds.base.AbstractSession.root.return"] == "Bounded"


def test_no_dictionary_of_anything_crosses_a_seam():
    assert not [name for name, text in SIGNATURES.items() if re.search(r"dict\[str, Any\]|Mapping\[str, Any\]", text)]


def test_no_long_tuple_of_tensors_crosses_a_seam():
    assert not [name for name, text in SIGNATURES.items() if tuples_of_tensors(text)]


def test_strategies_are_objects_not_words():
    words = [
        name
        for name, text in SIGNATURES.items()
        if name.rpartition(".")[2] in STRATEGIES and re.search(r"\bstr\b", text) and name not in NAMES_BY_TRADE
    ]
    assert not words


def test_exceptions_are_still_there():
    assert set(NAMES_BY_TRADE) <= set(SIGNATURES)


def classes() -> dict[str, list[str]]:
    modules = defaultdict(list)
    for module, tree in sources():
        for node in ast.walk(tree):
            if isinstance(node, ast.ClassDef):
                modules[node.name].append(module)
    return modules


def test_no_class_name_twice():
    assert not {name: modules for name, modules in classes().items() if len(modules) > 1}


FRAGMENT = re.compile(
    r"^(As |Of |If |Likewise|The same\.|Also|Both\.|Those |That |This\.|It |They |Its |And |Or |Nothing\.|None\.|See )"
)


def docstrings() -> dict[str, str]:
    """The first sentence of every docstring."""
    sentences = {}
    for module, tree in sources():
        for node in ast.walk(tree):
            if isinstance(node, ast.Module | ast.ClassDef | ast.FunctionDef):
                text = ast.get_docstring(node)
                name = module if isinstance(node, ast.Module) else f"{module}.{node.name}"
                if text:
                    sentences[f"{name}:{getattr(node, 'lineno', 0)}"] = re.split(r"(?<=[.!?])\s", text)[0]
    return sentences


def test_a_docstring_stands_alone():
    """It begins with its subject or verb, not with a word that leans on another one, and has three words or more."""
    leaning = {name: text for name, text in docstrings().items() if FRAGMENT.match(text) or len(text.split()) < 3}
    assert not leaning


@pytest.mark.parametrize("text", ["As above.", "Of z.", "If asked to.", "Both commands.", "Nothing."])
def test_what_a_fragment_is(text):
    assert FRAGMENT.match(text) or len(text.split()) < 3


@pytest.mark.parametrize(
    ("annotation", "count"),
    [
        ("tuple[Tensor, ...]", 1),
        ("tuple[Tensor, Tensor]", 0),
        ("Callable[[int], tuple[Tensor, Tensor, Tensor]]", 1),
        ("tuple[Bounded, Tensor] | None", 0),
    ],
)
def test_what_a_long_tuple_is(annotation, count):
    assert len(tuples_of_tensors(annotation)) == count


def test_names_are_counted_once():
    assert Counter(len(modules) for modules in classes().values())[1] > 200
