"""The summary that the page computes, whatever is filtered, is that of `laboratory/tables.py` for the same records."""

from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from statistics import median
from typing import Any

import numpy as np
import pytest
from tests.report.browser import Browser
from tests.report.pages import entry, write_runs
from tests.report.test_page_browser import choose, column

from bough.cli import main
from bough.report.runs import method_of
from laboratory import tables
from laboratory.statistics import charged_seconds, is_solved

pytestmark = pytest.mark.browser
Entry = dict[str, Any]
# The page's columns, and those of the table.
SAME = {"runs": "runs", "solved": "solved", "verified": "verified", "falsified": "falsified", "timeout": "timeout"}
SAME |= {"unknown": "unknown", "error": "errors", "mean": "mean s", "par2": "PAR-2", "branches": "branches"}
SAME |= {"bounds": "bounds"}
METHODS = ("gnn", "babsr", "bab", "mip", "idle", "part")


def records(seed: int) -> list[Entry]:
    """Every way to end, by searches, another solver, a search that solves nothing, and one that was run on a part."""
    luck = np.random.default_rng(seed)
    entries = []
    for k in range(24):
        about: Entry = {"network": f"nets/{'ab'[k % 2]}.onnx", "difficulty": ("easy", "medium", "hard")[k % 3]}
        limit = None if seed == 2 and k == 0 else 10.0 if k % 4 else 20.0
        truth = "falsified" if k % 5 == 0 else "verified"
        for j, method in enumerate(METHODS):
            if method == "part" and k % 3 == 0:
                continue
            took = float(np.exp(luck.normal(0, 1.6)) * (1 + j))
            chance, late = luck.random(), limit is not None and took > limit
            verdict = "timeout" if late else "unknown" if chance < 0.1 else None if chance < 0.2 else truth
            if method == "idle":
                verdict = ("timeout", "unknown", None)[k % 3]
            seconds = limit + luck.random() if limit is not None and verdict == "timeout" else took  # overrun a little
            figures = {"branches": int(80 * took) * 2, "bounds": int(170 * took) + 1, "timeout": limit}
            one = entry(f"p{k}.vnnlib", method, verdict, seconds, **figures, **about)
            entries.append({**one, "bounder": "highs", "branching": "highs"} if method == "mip" else one)
    return entries


@dataclass(frozen=True)
class Chosen:
    """What a reader chose to see."""

    hidden: tuple[str, ...] = ()
    filters: dict[str, str] = field(default_factory=dict)  # select and value
    text: str = ""

    def apply(self, browser: Browser) -> None:
        for name in self.hidden:
            browser.run(
                f"[...document.querySelectorAll('.chip')].find((chip) => chip.textContent === {name!r}).click()"
            )
        for select, value in self.filters.items():
            choose(browser, f"filter-{select}", value)
        if self.text:
            browser.run(f"""(() => {{ const e = document.getElementById('search'); e.value = {self.text!r};
                e.dispatchEvent(new Event('input')); }})()""")
        browser.run("document.getElementById('common').click()")  # as tables do: what every method was given

    def kept(self, entries: list[Entry]) -> list[Entry]:
        """The same records, chosen here."""
        truth = {e["property"]: e["verdict"] for e in entries if is_solved(e)}
        columns: dict[str, Callable[[Entry], Any]] = {
            "network": lambda e: e["network"],
            "difficulty": lambda e: e["difficulty"],
            "verdict": lambda e: truth.get(e["property"], "undecided"),
        }
        shown = [e for e in entries if all(columns[name](e) == value for name, value in self.filters.items())]
        return [
            {**e, "method": method_of(e)}
            for e in shown
            if method_of(e) not in self.hidden and self.text in f"{e['network']} {e['property']}"
        ]


CHOICES = {
    "all": Chosen(),
    "searches only": Chosen(hidden=("mip", "idle", "part")),
    "two methods": Chosen(hidden=("mip", "idle", "part", "gnn")),
    "another solver": Chosen(hidden=("gnn", "babsr", "dual-kfsb", "idle", "part")),
    "nothing solved": Chosen(hidden=("gnn", "babsr", "dual-kfsb", "mip", "part")),
    "a network": Chosen(filters={"network": "nets/a.onnx"}),
    "a verdict": Chosen(filters={"verdict": "falsified"}, hidden=("part",)),
    "a difficulty": Chosen(filters={"difficulty": "medium"}, hidden=("idle",)),
    "a search": Chosen(text="p1", hidden=("part",)),
    "all at once": Chosen(("mip",), {"network": "nets/b.onnx", "difficulty": "hard", "verdict": "verified"}, "p"),
}


@pytest.fixture(scope="module", params=[0, 2])
def made_page(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, list[Entry]]:
    folder, entries = tmp_path_factory.mktemp("page"), records(request.param)
    runs = write_runs(folder / "r.jsonl", entries)
    assert main(["report", str(runs), "--out", str(folder / "out")]) == 0
    return folder / "out" / "index.html", entries


@pytest.mark.parametrize("name", CHOICES)
def test_the_numbers_are_those_of_the_tables(browser: Browser, made_page: tuple[Path, list[Entry]], name: str) -> None:
    path, entries = made_page
    chosen = CHOICES[name]
    browser.errors.clear()
    browser.open(path)
    chosen.apply(browser)
    visible = chosen.kept(entries)
    table = tables.summary(visible)
    titles = [heading.title for heading in table.headings]
    shown = {line["method"]: line for line in browser.run("boughSummary")}
    assert set(shown) == {line.name for line in table.lines}
    for line in table.lines:
        for key, title in SAME.items():
            value = line.cells[titles.index(title)]
            assert shown[line.name][key] == (None if value is None else pytest.approx(value, rel=1e-12)), (line, key)
        props = {e["property"] for e in visible if e["method"] == line.name}
        both = {p for p in props if all(any(e["property"] == p and e["method"] == m for e in visible) for m in shown)}
        times = [charged_seconds(e) for e in visible if e["method"] == line.name and e["property"] in both]
        assert shown[line.name]["median"] == pytest.approx(median(times), rel=1e-12)
    assert browser.errors == []


def test_what_is_written_is_what_was_computed(browser: Browser, made_page: tuple[Path, list[Entry]]) -> None:
    browser.open(made_page[0])
    lines = {line["method"]: line for line in browser.run("boughSummary")}
    for key in (*SAME, "median"):
        for method, text in zip(column(browser, "summary", "method"), column(browser, "summary", key), strict=True):
            value = lines[method][key]
            if value is None:
                assert text == "–"
            else:
                assert float(text.replace(",", "")) == pytest.approx(value, rel=0.005)
