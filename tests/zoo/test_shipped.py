"""What comes with the package: networks that are what their cards say, and tables that fit them."""

import json
from pathlib import Path

import pytest

from bough.api import load_network
from bough.cli import main
from bough.zoo import shipped
from bough.zoo.table import read_table

NAMES = {"mnist_base": 1226, "mnist_wide": 4804, "mnist_deep": 5196}


def test_all_that_is_named_is_there():
    assert {path.stem for path in shipped.NETWORKS.glob("*.onnx")} == set(NAMES)
    assert {path.stem for path in shipped.NETWORKS.glob("*.json")} == set(NAMES)


@pytest.mark.parametrize("name", NAMES)
def test_networks_are_what_their_cards_say(name):
    path = shipped.network_path(Path(name))
    card = json.loads(path.with_suffix(".json").read_text())
    network = load_network(path).network
    assert network.neurons == card["relus"] == NAMES[name]
    assert network.inputs == 28 * 28
    assert card["network"] == path.name
    errors = card["errors"]
    assert errors["images"] == 10_000
    assert 0 < errors["clean"] < errors["attacked"] < errors["uncertified"] < 0.2


def test_a_file_of_ones_own_comes_first(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    assert shipped.network_path(Path("mnist_base")).parent == shipped.NETWORKS
    assert shipped.network_path(Path("mnist_base.onnx")).parent == shipped.NETWORKS
    (tmp_path / "mnist_base.onnx").write_bytes(b"mine")
    assert shipped.network_path(Path("mnist_base.onnx")) == Path("mnist_base.onnx")
    assert shipped.network_path(Path("elsewhere/mnist_base")) == Path("elsewhere/mnist_base")
    assert shipped.network_path(Path("nothing")) == Path("nothing")


def test_a_shipped_network_is_verified_by_name(tmp_path, capsys):
    """Nothing is asked of the outputs that they could not give, so one unsafe point is enough."""
    lines = [f"(declare-const X_{k} Real)" for k in range(784)] + [f"(declare-const Y_{k} Real)" for k in range(10)]
    lines += [f"(assert (>= X_{k} 0.0))\n(assert (<= X_{k} 0.001))" for k in range(784)]
    lines.append("(assert (or (and (>= Y_0 Y_1)) (and (<= Y_0 Y_1))))")
    (tmp_path / "asked.vnnlib").write_text("\n".join(lines))
    assert main(["verify", "mnist_base", str(tmp_path / "asked.vnnlib"), "--timeout", "60", "--quiet"]) == 1
    assert capsys.readouterr().out.splitlines()[-1] == "falsified"


@pytest.mark.parametrize("name", sorted(path.stem for path in shipped.TABLES.glob("*.csv")))
def test_tables_are_balanced_and_fit(name):
    rows = read_table(shipped.table_path(Path(name)))
    for network in {row.network for row in rows}:
        listed = [row for row in rows if row.network == network]
        assert len({(row.image, row.target) for row in listed}) == len(listed) == 50
        counts = {kind: sum(row.difficulty == kind for row in listed) for kind in ("easy", "medium", "hard", "timeout")}
        assert counts["easy"] == counts["medium"] == 20
        assert counts["hard"] + counts["timeout"] == 10
        assert {row.use for row in listed} == {"train", "test"}
        assert all(row.verdict == ("timeout" if row.difficulty == "timeout" else "verified") for row in listed)
        assert network not in NAMES or shipped.network_path(Path(network)).is_file()
