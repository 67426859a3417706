"""The numbered experiments: what each makes of runs, what the suite chooses, and what it refuses.

Here the runs are made up; `make experiments` runs them all on stand-ins for data and networks, in a few minutes.
"""

import importlib.util
import json
import subprocess
import sys
from pathlib import Path
from types import ModuleType
from typing import Any, NoReturn

import pytest
from tests.experiments.runs import run, timeout

from bough.errors import BadInput
from bough.learning.dataset import split_of
from bough.report.record import SCHEMA
from bough.zoo.table import read_table

FOLDER = Path(__file__).parents[2] / "experiments"
SCRIPTS = sorted(path.name for path in FOLDER.glob("[12][0-9]_*.py"))


def load(name: str) -> ModuleType:
    spec = importlib.util.spec_from_file_location(f"experiment_{Path(name).stem}", FOLDER / name)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def experiment(name: str) -> Any:
    suite = sys.modules.get("suite") or load("suite.py")
    module = load(name)
    (chosen,) = [value for value in vars(module).values() if type(value).__name__ == "Experiment"]
    del suite
    return chosen


def made_up(chosen: Any) -> list[dict[str, Any]]:
    """Runs as `suite.records` hands them on: three properties of each network, the last of which is hard."""
    suite = sys.modules["suite"]
    runs = []
    for network in chosen.networks:
        for place, method in enumerate(chosen.methods):
            own = {"bounder": "highs"} if method in suite.BASELINES else {"learnt_decisions": 3, "backup_decisions": 1}
            about = {"network": f"{network}.onnx", "title": suite.SOURCES[network].title, "revision": "abc", **own}
            for k, word in enumerate(("easy", "medium", "hard")):
                make = timeout if (k == 2 and place == 1) else run
                runs.append(make(method, f"p{k}", 1.0 + k + place, branches=2 * k + place, **about, difficulty=word))
    return runs


@pytest.mark.parametrize("name", SCRIPTS)
def test_every_experiment_makes_its_tables_and_figures(name):
    chosen = experiment(name)
    assert chosen.name == Path(name).stem
    results = chosen.results(made_up(chosen))
    assert results.tables
    for table in (*results.tables, *chosen.beside):
        assert table.lines
        assert table.markdown()
        assert table.text()


@pytest.mark.parametrize("name", SCRIPTS)
def test_every_experiment_says_what_it_is(name):
    text = (FOLDER / name).read_text()
    assert f"experiments/{name} --scale" in text


def suite() -> Any:
    experiment(SCRIPTS[0])
    return sys.modules["suite"]


def setting(**more: Any) -> Any:
    known = {"scale": "small", "out": Path("out"), "device": "cpu", "resume": False}
    return suite().Setting(**{**known, "count": None, "timeout": None, "weights": {}, **more})


def test_methods_as_bench_takes_them():
    from bough.bench.methods import parse_method

    s = suite()
    files = dict.fromkeys(s.TRAINED, "w.safetensors")
    for scale in s.SCALES:
        for method in (*s.RULES, *s.BASELINES):
            described = s.describe(method, setting(scale=scale, weights=files))
            assert parse_method(described).name == described
    assert s.describe(s.GNN, setting()) == "bounds=dual,batch=8,branching=gnn,device=cpu"
    with pytest.raises(BadInput, match="--weights foreign=FILE"):
        s.describe(s.FOREIGN, setting())


def test_every_difficulty_gets_its_turn():
    s = suite()
    rows = [row for row in read_table(s.stand_in.TABLE) if row.network == "stand_in_base" and row.use == "test"]
    assert [row.difficulty for row in s.stratified(rows, 4)] == ["easy", "medium", "hard", "easy"]
    assert s.stratified(rows, None) == rows


def test_stand_ins_have_what_they_need():
    s = suite()
    rows = read_table(s.stand_in.TABLE)
    for source in s.SOURCES.values():
        own_rows = [row for row in rows if row.network == source.stand_in]
        assert {row.use for row in own_rows} == {"train", "test"}
        assert (s.stand_in.HERE / f"{source.stand_in}.onnx").is_file()
    images = s.stand_in.figures("test")
    assert images.pixels.shape == (s.stand_in.TEST, 1, 28, 28)
    assert all(images.at(row.image)[1] == row.label for row in rows)


def test_records_are_joined_with_their_properties(tmp_path):
    s = suite()
    row = read_table(s.stand_in.TABLE)[0]
    name = s.export.file_name(row)
    (tmp_path / s.export.TABLE).write_text(s.stand_in.TABLE.read_text())
    entry = {**run("bounds=dual", f"some/where/{name}"), "schema": SCHEMA}
    other = {**entry, "method": "another"}
    out = tmp_path / "records.jsonl"
    out.write_text(json.dumps(entry) + "\n" + json.dumps(other) + "\n")
    (record,) = s._named(out, tmp_path, s.SOURCES["base"], {"BaBSR": "bounds=dual"})
    assert (record["method"], record["title"], record["difficulty"]) == ("BaBSR", "Base", row.difficulty)


@pytest.mark.parametrize(
    ("words", "says"),
    [
        (("--count", "0"), "--count is 0"),
        (("--timeout", "nan"), "--timeout is nan"),
        (("--weights", "gnn"), "--weights takes KIND=FILE"),
        (("--weights", "best=file"), "KIND is one of gnn, gnn-r, local, foreign"),
    ],
)
def test_bad_options(tmp_path, monkeypatch, capsys, words, says):
    monkeypatch.setattr(sys, "argv", ["10_table_1.py", "--out", str(tmp_path / "out"), *words])
    assert suite().main(experiment(SCRIPTS[0])) == 2
    assert says in capsys.readouterr().err


def test_mixed_integer_programs_can_be_left_out(tmp_path, monkeypatch):
    s, methods = suite(), []

    def records(chosen: Any, _: Any) -> NoReturn:
        methods.append(chosen.methods)
        raise KeyboardInterrupt

    monkeypatch.setattr(s, "records", records)
    for more in ((), ("--no-mip",)):
        monkeypatch.setattr(sys, "argv", ["10_table_1.py", "--out", str(tmp_path), "--resume", *more])
        assert s.main(experiment(SCRIPTS[0])) == s.UNFINISHED
    assert methods == [
        ("BaBSR", "MIPplanet", "FSB", "GNN", "GNN-R", "GNN-online"),
        ("BaBSR", "FSB", "GNN", "GNN-R", "GNN-online"),
    ]


def test_a_folder_with_experiments_is_not_taken_unasked(tmp_path, monkeypatch, capsys):
    (tmp_path / "tables").mkdir()
    monkeypatch.setattr(sys, "argv", ["10_table_1.py", "--out", str(tmp_path)])
    assert suite().main(experiment(SCRIPTS[0])) == 2
    assert "go on by --resume" in capsys.readouterr().err


def test_without_the_shared_data_only_smoke_runs(tmp_path, monkeypatch, capsys):
    monkeypatch.delenv("BOUGH_DATA", raising=False)
    monkeypatch.setattr(sys, "argv", ["10_table_1.py", "--out", str(tmp_path / "out"), "--scale", "small"])
    assert suite().main(experiment(SCRIPTS[0])) == 2
    assert (
        "set BOUGH_DATA to the folder that has data/paper_results.csv, or use --scale smoke" in capsys.readouterr().err
    )


def test_properties_are_those_for_testing(tmp_path):
    s = suite()
    folder = s.problems("base", setting(scale="smoke", out=tmp_path))
    rows = read_table(folder / s.export.TABLE)
    assert [row.difficulty for row in rows] == ["easy", "medium", "hard"]
    assert {row.use for row in rows} == {"test"}
    assert s.problems("mnist_base", setting(scale="smoke", out=tmp_path)) == folder  # stand-ins are shared
    assert s.problems("base", setting(scale="smoke", out=tmp_path, count=1)) != folder


def test_the_papers_properties_are_all_for_testing(bough_data, tmp_path, monkeypatch):
    if not (bough_data / "data" / "paper_results.csv").is_file():
        pytest.skip("the shared data folder has no data/paper_results.csv")
    s = suite()
    monkeypatch.setenv("BOUGH_DATA", str(bough_data))
    rows, _ = s._rows(s.SOURCES["base"], setting())
    assert len(rows) == 1666


def test_a_network_without_properties_is_left_out(tmp_path, monkeypatch):
    s = suite()
    monkeypatch.setattr(s, "read_table", lambda path: [])
    with pytest.raises(s.Missing, match="of Base there is no property for testing"):
        s.problems("base", setting(scale="smoke", out=tmp_path))


@pytest.mark.slow
def test_all_of_them_at_smoke_scale(tmp_path):
    """Under four minutes on two cores, without the shared data."""
    words = [sys.executable, str(FOLDER / "all.py"), "--scale", "smoke", "--out", str(tmp_path / "out")]
    ended = subprocess.run(words, capture_output=True, text=True, check=False, timeout=900)
    assert ended.returncode == 0, ended.stdout + ended.stderr
    pages = sorted(path.name for path in (tmp_path / "out" / "tables").iterdir())
    assert pages == [f"{Path(name).stem}.md" for name in SCRIPTS]


def test_rules_are_compared_on_what_both_solved(tmp_path, capsys, monkeypatch):
    """A rule that solves the easy one only is held against others there, and nowhere else."""
    usual = {
        "bounder": "dual",
        "intermediate": "fixed",
        "device": "cpu",
        "timeout": 9.0,
        "semantics": "real",
        "error": None,
    }
    usual |= {
        "schema": SCHEMA,
        "depth": 1,
        "lower_bound": 0.5,
        "engine": {"decision_seconds": 0.5},
        "batch": 8,
        "verdict": "verified",
        "seconds": 2.0,
    }

    def record_of(rule: str, prop: str, branches: int, **more: object) -> str:
        named = {"network": "net.onnx", "property": prop, "branching": rule, "method": f"branching={rule},batch=8"}
        return json.dumps({**usual, **named, "branches": branches, "bounds": 2 * branches, **more})

    records = [
        record_of("fsb", "easy", 40),
        record_of("fsb", "hard", 1000),
        record_of("gnn", "easy", 20, weights="w/fast/weights.safetensors"),
    ]
    records += [record_of("gnn", "hard", 100, weights="w/fast/weights.safetensors"), record_of("babsr", "easy", 80)]
    records.append(record_of("babsr", "hard", 5000, verdict="timeout"))
    records.append(record_of("strong", "easy", 9, verdict="timeout"))  # solves nothing, and hides nothing
    records.append(record_of("gnn", "easy", 30, weights="joint", method="gnn joint,batch=8"))  # as it comes with bough
    (tmp_path / "runs.jsonl").write_text("\n".join(records))
    script = load("compare_rules.py")
    monkeypatch.setattr(sys, "argv", ["compare_rules.py", str(tmp_path / "runs.jsonl")])
    assert script.main() == 0
    printed = capsys.readouterr().out.splitlines()
    lines = [line for line in printed if line.startswith("| gnn (fast)")]
    assert lines[0].split("|")[2:6] == [" 0.25 ", " 0.25 ", " 0.22 ", " 0.22 "]
    assert lines[2].split("|")[2:8] == [" 2 ", " 2 ", " 1.0 ", " 2.00 ", " 2.00 ", " 25.0% "]
    assert any(line.startswith("| gnn (joint)") for line in printed)
    assert [line for line in printed if line.startswith("| strong")][2].split("|")[2:6] == [" 0 ", " 1 ", "  ", "  "]
    (tmp_path / "runs.jsonl").write_text("\n".join([*records, record_of("fsb", "other", 1, timeout=5.0)]))
    assert script.main() == 2
    assert "only the rule may differ" in capsys.readouterr().err


def test_models_are_judged_by_properties_of_images_that_teach_nothing(capsys, monkeypatch, tmp_path):
    table, judged = FOLDER / "training" / "mnist_base.csv", tmp_path / "judged.csv"
    script = load("validation_rows.py")
    monkeypatch.setattr(sys, "argv", ["validation_rows.py", str(table)])
    assert script.main() == 0
    judged.write_text(capsys.readouterr().out)
    rows, chosen = read_table(table), read_table(judged)
    assert chosen == tuple(row for row in rows if split_of(row.dataset, row.split, row.image) == "validation")
    assert 0.15 * len(rows) < len(chosen) < 0.35 * len(rows)
    monkeypatch.setattr(sys, "argv", ["validation_rows.py", str(tmp_path / "nothing.csv")])
    assert script.main() == 2
    assert "does not exist" in capsys.readouterr().err
