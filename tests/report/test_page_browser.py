"""The page in a real browser: it loads without an error, sorts, filters, zooms, and opens the nodes of a tree.

Screenshots are kept in pytest's temporary folder, or in BOUGH_SCREENSHOTS where that names a folder.
"""

import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from tests.report.browser import Browser
from tests.report.pages import EVIL, entry, write_runs, write_trace

from bough.api import load_network, load_problem, solve
from bough.cli import main
from bough.options import Options
from bough.report.trace import TraceWriter
from bough.zoo import demo

pytestmark = pytest.mark.browser
TREE_NODES = 10_000
FRAME_MS = 50.0


@pytest.fixture(scope="module")
def page(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Thirty instances by three methods, one of them evil, a large made-up tree and a falsified search of the demo."""
    folder = tmp_path_factory.mktemp("page")
    luck = np.random.default_rng(0)
    entries = []
    for k in range(30):
        net = "nets/a.onnx" if k % 2 else "nets/b.onnx"
        for method, speed in (("gnn", 1.0), ("babsr", 3.0), ("fsb", 2.0)):
            seconds = float(np.exp(luck.normal(0, 1.5)) * speed)
            verdict = "timeout" if seconds > 10 else "falsified" if k % 5 == 0 else "verified"
            figures = {"branches": int(100 * seconds), "bounds": int(150 * seconds)}
            entries.append(entry(f"p{k}.vnnlib", method, verdict, min(seconds, 10.0), network=net, **figures))
    entries.append(entry(EVIL, EVIL, network=EVIL))
    entries.append(entry("p3.vnnlib", "broken", None, network="nets/a.onnx"))
    runs = write_runs(folder / "r.jsonl", entries)
    big = write_trace(folder / "big.jsonl", TREE_NODES)
    small = _falsified(folder / "small.jsonl")
    assert main(["report", str(runs), "--out", str(folder / "out"), "--trace", str(big), str(small)]) == 0
    return folder / "out" / "index.html"


def _falsified(path: Path) -> Path:
    network, problems = demo.load()
    example = next(one for one in problems if one.expected == "falsified")
    problem = load_problem(load_network(network), example.property)
    with TraceWriter(path, problem, {"method": "bab", "bounder": "dual", "branching": "kfsb"}) as writer:
        writer.finish(solve(problem, Options(timeout=20), (writer,)))
    return path


@pytest.fixture
def opened(browser: Browser, page: Path, request: pytest.FixtureRequest) -> Iterator[Browser]:
    """The page, fresh; afterwards nothing has gone wrong, and nothing was asked of the network."""
    browser.resize(1200, 900)
    browser.errors.clear()
    browser.requests.clear()
    browser.open(page, getattr(request, "param", ""))
    yield browser
    browser.run("1")  # whatever was still to be said has been said
    assert browser.errors == []
    assert [url for url in browser.requests if not url.startswith(("file:", "about:"))] == []


def keep(browser: Browser, tmp_path: Path, name: str) -> None:
    folder = Path(os.environ.get("BOUGH_SCREENSHOTS") or tmp_path)
    folder.mkdir(parents=True, exist_ok=True)
    browser.screenshot(folder / name)
    assert (folder / name).stat().st_size > 5_000


def column(browser: Browser, table: str, key: str) -> list[Any]:
    script = f"""(() => {{
      const at = [...document.querySelectorAll('#{table} th')].findIndex((th) => th.dataset.key === '{key}');
      return [...document.querySelectorAll('#{table} tbody tr')].map((tr) => tr.children[at].textContent);
    }})()"""
    texts: list[Any] = browser.run(script)
    return texts


def centre(browser: Browser, selector: str) -> tuple[float, float]:
    """The middle of an element, scrolled into sight."""
    box = browser.run(f"""(() => {{ const e = document.querySelector({selector!r});
        e.scrollIntoView({{block: 'center'}}); const b = e.getBoundingClientRect();
        return [b.left + b.width / 2, b.top + b.height / 2]; }})()""")
    return box[0], box[1]


def choose(browser: Browser, select: str, value: str) -> None:
    browser.run(f"""(() => {{ const e = document.getElementById('{select}'); e.value = {value!r};
        e.dispatchEvent(new Event('change')); }})()""")


# The overview


def test_it_loads_and_says_what_is_to_be_seen(opened: Browser, tmp_path: Path) -> None:
    assert "solves" in opened.run("document.querySelector('.headline').textContent")
    assert opened.run("document.querySelectorAll('svg.plot').length") == 2
    assert opened.run("document.querySelectorAll('.warning').length") > 0
    assert set(column(opened, "summary", "method")) >= {"gnn", "babsr", "fsb", "broken"}
    keep(opened, tmp_path, "overview.png")


def test_names_are_text(opened: Browser) -> None:
    assert EVIL in column(opened, "summary", "method")
    assert opened.run("document.scripts.length") == 2
    opened.run("document.getElementById('search').value = '<script>'")
    opened.run("document.getElementById('search').dispatchEvent(new Event('input'))")
    assert len(column(opened, "runs", "method")) == 1
    opened.run("document.querySelector('#runs tbody a').click()")
    opened.wait("!!document.querySelector('.crumbs')")
    assert EVIL in opened.run("document.querySelector('header .muted').textContent")


def test_tables_sort_by_mouse_and_keyboard(opened: Browser) -> None:
    opened.click(*centre(opened, "#runs th[data-key=seconds] button"))
    rising = [float(text) for text in column(opened, "runs", "seconds") if text != "–"]
    assert rising == sorted(rising)
    assert opened.run("document.querySelector('#runs th[data-key=seconds]').getAttribute('aria-sort')") == "ascending"
    opened.key("Enter")  # the heading has kept the focus
    falling = [float(text) for text in column(opened, "runs", "seconds") if text != "–"]
    assert falling == sorted(falling, reverse=True) != rising
    opened.click(*centre(opened, "#summary th[data-key=mean] button"))
    means = [float(text) for text in column(opened, "summary", "mean") if text != "–"]
    assert means == sorted(means)


def test_filters_narrow_every_part(opened: Browser) -> None:
    before = column(opened, "summary", "runs")
    choose(opened, "filter-network", "nets/a.onnx")
    assert set(column(opened, "runs", "network")) == {"a"}
    assert column(opened, "summary", "runs") != before
    choose(opened, "filter-network", "")
    choose(opened, "filter-verdict", "falsified")
    assert "verified" not in column(opened, "runs", "outcome")
    choose(opened, "filter-verdict", "")
    choose(opened, "filter-outcome", "error")
    assert column(opened, "runs", "method") == ["broken"]


def test_a_method_is_toggled(opened: Browser) -> None:
    curves = "document.querySelectorAll('#cactus .curve').length"
    before = opened.run(curves)
    opened.click(*centre(opened, ".chip"))
    assert opened.run(curves) == before - 1
    assert "gnn" not in column(opened, "summary", "method")
    opened.key("Enter")
    assert opened.run(curves) == before


def test_plots_zoom_read_and_open(opened: Browser) -> None:
    ticks = "[...document.querySelectorAll('#cactus .tick')].map((t) => t.textContent).join()"
    x, y = centre(opened, "#cactus svg.plot")
    whole = opened.run(ticks)
    opened.drag((x - 80, y - 60), (x + 80, y + 60))
    assert opened.run(ticks) != whole
    opened.click(x, y + 150, count=2)
    assert opened.run(ticks) == whole
    mark = opened.run("""(() => { const b = document.querySelectorAll('#scatter .mark')[3].getBoundingClientRect();
        return [b.left + b.width / 2, b.top + b.height / 2]; })()""")
    opened.mouse("mouseMoved", *mark)
    assert opened.run("!document.getElementById('tip').hidden")
    opened.click(*mark)
    opened.wait("location.hash.startsWith('#instance/')")
    opened.wait("document.querySelectorAll('#instance-runs tbody tr').length >= 3")


@pytest.mark.parametrize("width", [1200, 1024, 700])
def test_the_page_is_not_wider_than_its_window(opened: Browser, width: int) -> None:
    opened.resize(width, 800)
    for place in ("#", "#instance/0", "#instance/32"):
        opened.run(f"location.hash = '{place}'")
        opened.run("new Promise((done) => setTimeout(done, 60))")
        assert opened.run("document.documentElement.scrollWidth <= innerWidth"), place


# An instance


def instance_with(browser: Browser, name: str) -> None:
    script = "JSON.parse(document.getElementById('data').textContent).instances.findIndex((one) => one.property === %r)"
    number = browser.run(script % name)
    assert number >= 0
    browser.run(f"location.hash = '#instance/{number}'")
    browser.wait("!!document.querySelector('.crumbs')")


def test_the_counterexample_stands_beside_its_image(opened: Browser, tmp_path: Path) -> None:
    instance_with(opened, "property")
    titles = "[...document.querySelectorAll('#counterexample figcaption')].map((e) => e.textContent).join()"
    assert opened.run(titles) == "image,counterexample,difference"
    darkest, lightest = opened.run("""(() => { const c = document.querySelector('#counterexample canvas');
        const data = c.getContext('2d').getImageData(0, 0, c.width, c.height).data;
        return [Math.min(...data), Math.max(...data.filter((_, k) => k % 4 < 3))]; })()""")
    assert darkest < 60
    assert lightest > 180
    keep(opened, tmp_path, "counterexample.png")


def open_tree(browser: Browser) -> None:
    instance_with(browser, "big.vnnlib")
    browser.wait("window.boughReport && boughReport.view.kx && boughReport.view.frames.length > 0")


def node_place(browser: Browser, node: int) -> tuple[float, float]:
    """Where a node is drawn, in the window."""
    browser.run("document.querySelector('canvas.tree').scrollIntoView({block: 'center'})")
    x, y = browser.run(f"""(() => {{ const v = boughReport.view, b = v.canvas.getBoundingClientRect();
        return [b.left + v.px({node}), b.top + v.py({node})]; }})()""")
    return x, y


def test_a_node_of_the_tree_is_opened(opened: Browser, tmp_path: Path) -> None:
    open_tree(opened)
    at = node_place(opened, 0)
    opened.mouse("mouseMoved", *at)
    tip = opened.run("document.getElementById('tip').textContent")
    assert all(word in tip for word in ("node 0", "depth 0", "m ="))
    opened.click(*at)
    details = opened.run("document.querySelector('.details').textContent")
    assert all(word in details for word in ("Node 0", "split at", "chosen by", "gain m", "layer"))
    opened.run("boughReport.view.canvas.focus()")
    opened.key("ArrowDown")
    assert "Node 1" in opened.run("document.querySelector('.details h3').textContent")
    assert opened.run("boughReport.heat.marked.size") == 1
    keep(opened, tmp_path, "tree.png")


def test_branches_fold_and_the_tree_zooms_and_moves(opened: Browser) -> None:
    open_tree(opened)
    shown = "boughReport.tree.shown"
    before = opened.run(shown)
    opened.click(*node_place(opened, 0), count=2)
    assert opened.run(shown) == 1
    opened.click(*node_place(opened, 0), count=2)
    assert opened.run(shown) == before
    opened.run("[...document.querySelectorAll('#explorer button')].find((b) => b.textContent === 'expand all').click()")
    assert opened.run(shown) == opened.run("boughReport.tree.count") >= TREE_NODES
    scale, left = opened.run("[boughReport.view.kx, boughReport.view.ox]")
    x, y = centre(opened, "canvas.tree")
    opened.mouse("mouseWheel", x, y, deltaX=0, deltaY=-400)
    opened.wait(f"boughReport.view.kx > {scale * 1.5}")
    left = opened.run("boughReport.view.ox")
    opened.drag((x, y), (x + 90, y + 10))
    assert opened.run("boughReport.view.ox") == pytest.approx(left + 90, abs=2)


def test_the_heat_map_finds_splits_in_the_tree(opened: Browser) -> None:
    open_tree(opened)
    counts = opened.run("[...boughReport.heat.counts.values()].reduce((a, b) => a + b, 0)")
    assert counts == opened.run("boughReport.tree.ends.split")
    most, times = opened.run("[...boughReport.heat.counts].sort((a, b) => b[1] - a[1])[0]")
    place = opened.run(f"""(() => {{
      const map = boughReport.heat.maps.find((one) => {most} >= one.layer.first && {most} < one.layer.first + one.size);
      map.canvas.scrollIntoView({{block: 'center'}});
      const box = map.canvas.getBoundingClientRect(), [x, y] = map.corner({most} - map.layer.first);
      return [box.left + x + 2, box.top + y + 2];
    }})()""")
    opened.click(*place)
    assert opened.run("boughReport.view.found.size") == times
    assert opened.run("boughReport.view.visible(boughReport.view.selected)")


def test_ten_thousand_nodes_stay_fluent(opened: Browser, tmp_path: Path) -> None:
    open_tree(opened)
    times = opened.run("""(() => {
      const { tree, view } = boughReport, times = {};
      const began = performance.now();
      tree.expandAll(); view.fit();
      times.layout = performance.now() - began;
      for (const zoom of [1, 4, 20]) {
        view.fit(); view.zoom(zoom);
        const frames = Array.from({ length: 15 }, () => {
          view.ox -= 3;
          const from = performance.now();
          view.draw();
          view.pen.getImageData(0, 0, 1, 1); // until it is drawn, and not only asked for
          return performance.now() - from;
        });
        times[zoom] = frames.sort((a, b) => a - b)[7];
      }
      view.fit();
      return times;
    })()""")
    assert opened.run("boughReport.tree.count") >= TREE_NODES
    assert max(times.values()) < FRAME_MS, times
    opened.run("new Promise((done) => requestAnimationFrame(() => requestAnimationFrame(done)))")
    node_place(opened, 0)
    keep(opened, tmp_path, "tree-all.png")


def test_dark_and_light_are_both_drawn(opened: Browser, tmp_path: Path) -> None:
    open_tree(opened)
    paper = "getComputedStyle(document.body).backgroundColor"
    light = opened.run(paper)
    opened.dark()
    try:
        assert opened.run(paper) != light
        keep(opened, tmp_path, "dark.png")
    finally:
        opened.dark(on=False)
