"""`bough bench --engine ray`: on a cluster of two machines, which are both this one, a worker of which is killed."""

import json
import os
import signal
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from tests.bench import work
from tests.bench.test_bench import LINES, PROPERTY, Folder, bench  # noqa: F401 - the fixture
from tests.bench.test_processes import outcomes
from tests.making.test_label_command import FAST, Shell, label  # noqa: F401 - the fixture

from bough.bench.engines import run_tasks
from bough.bench.methods import parse_method
from bough.bench.tasks import Selection, plan
from bough.budget import Deadline

pytestmark = pytest.mark.filterwarnings("ignore")  # Ray's own, which are not ours to mend


@pytest.fixture(scope="module")
def machines() -> Iterator[Any]:
    """A cluster of two machines with one CPU each."""
    pytest.importorskip("ray", reason="needs Ray: pip install 'bough[ray]'")
    from ray.cluster_utils import Cluster as Machines

    before = dict(os.environ)
    os.environ |= {"PYTHONPATH": os.pathsep.join(filter(None, sys.path)), "RAY_USAGE_STATS_ENABLED": "0"}
    cluster = Machines(initialize_head=True, head_node_args={"num_cpus": 1, "include_dashboard": False})
    cluster.add_node(num_cpus=1)
    cluster.wait_for_nodes()
    yield cluster
    cluster.shutdown()
    os.environ.clear()
    os.environ.update(before)


@pytest.fixture
def address(machines: Any) -> str:
    return str(machines.address)


class Killer(threading.Thread):
    """Kills the first process that Ray has at work."""

    def __init__(self, folder: Path) -> None:
        super().__init__(daemon=True)
        self.folder, self.name_of_killed = folder, ""

    def run(self) -> None:
        while not (started := list(self.folder.glob("*.json"))):
            time.sleep(0.02)
        self.name_of_killed = started[0].stem
        worker, supervisor = json.loads(started[0].read_text())
        assert worker != supervisor
        os.kill(supervisor, signal.SIGKILL)


def test_a_killed_worker_loses_nothing(bench: Folder, address: str) -> None:  # noqa: F811 - the fixture
    from bough.bench.cluster import Cluster

    for name in (*LINES, "crash"):
        bench.csv.with_name(f"{name}.vnnlib").write_text(PROPERTY.format(LINES.get(name, LINES["safe"])[0]))
    bench.csv.write_text("".join(f"net.onnx,{name}.vnnlib,60\n" for name in ("safe", "unsafe", "crash", "safer")))
    started = bench.csv.parent / "started"
    started.mkdir()
    tasks = plan(bench.csv, [parse_method("lp-babsr")], Selection(), {})
    killer, most = Killer(started), [0]
    killer.start()

    def beat(at_work: object) -> None:
        assert isinstance(at_work, list)
        most[0] = max(most[0], len(at_work))

    engine = Cluster(address=address, run=work.slow_once)
    entries = run_tasks(tasks, {}, bench.out, lambda *_: None, Deadline.after(100), engine, beat)
    killer.join(1)
    assert (started / f"{killer.name_of_killed}.again").exists()
    assert most[0] == 2
    assert [entry["verdict"] for entry in entries] == ["verified", "falsified", None, "verified"]
    assert [entry["error"] for entry in entries] == [None, None, "the process crashed (SIGSEGV)", None]
    assert len(bench.entries) == len(tasks)
    for entry, task in zip(entries, tasks, strict=True):  # files travel; records name those of this machine
        assert (entry["network"], entry["property"]) == (str(task.instance.network), str(task.instance.property))


@pytest.mark.slow
def test_a_lost_machine_loses_nothing(bench: Folder, machines: Any) -> None:  # noqa: F811 - the fixture
    from bough.bench.cluster import Cluster

    started = bench.csv.parent / "started"
    started.mkdir()
    tasks = plan(bench.csv, [parse_method("lp-babsr")], Selection(), {})

    def lose() -> None:
        while len(list(started.glob("*.json"))) < 2:
            time.sleep(0.02)
        machines.remove_node(next(iter(machines.worker_nodes)), allow_graceful=False)

    loser = threading.Thread(target=lose, daemon=True)
    loser.start()
    engine = Cluster(address=machines.address, run=work.slow_once)
    entries = run_tasks(tasks, {}, bench.out, lambda *_: None, Deadline.after(100), engine)
    loser.join(10)
    machines.add_node(num_cpus=1)
    machines.wait_for_nodes()
    assert list(started.glob("*.again"))
    assert [entry["verdict"] for entry in entries] == [verdict for _, verdict in LINES.values()]
    assert len(bench.entries) == len(tasks)


def test_the_same_records_as_in_one_process(bench: Folder, address: str) -> None:  # noqa: F811 - the fixture
    bench.csv.with_name("broken.vnnlib").write_text("(assert")
    bench.csv.write_text(bench.csv.read_text() + "net.onnx,broken.vnnlib,20\n")
    assert bench()[0] == 0
    alone = outcomes(bench.entries)
    bench.out.unlink()
    status, messages = bench("--engine", "ray", "--ray-address", address, "--memory-limit", 2, "--jobs", 2)
    assert status == 0
    assert outcomes(bench.entries) == alone
    assert "4/4  " in messages


def test_no_cluster_there(bench: Folder) -> None:  # noqa: F811 - the fixture
    pytest.importorskip("ray", reason="needs Ray: pip install 'bough[ray]'")
    status, messages = bench("--engine", "ray", "--ray-address", "nonsense:not-a-port")
    assert (status, bench.out.exists()) == (2, False)
    assert "there is no Ray cluster at nonsense:not-a-port to be reached" in messages


@pytest.mark.parametrize(("extra", "words"), [(("--jobs", 0), "--jobs is 0"), (("--gpu-share", 2), "--gpu-share is 2")])
def test_bad_input(bench: Folder, extra: tuple[object, ...], words: str) -> None:  # noqa: F811 - the fixture
    status, messages = bench("--engine", "ray", *extra)
    assert (status, len(messages.splitlines())) == (2, 1)
    assert words in messages


def test_without_ray(bench: Folder, monkeypatch: pytest.MonkeyPatch) -> None:  # noqa: F811 - the fixture
    monkeypatch.setitem(sys.modules, "ray", None)
    status, error = bench("--engine", "ray")
    assert (status, error) == (2, "bough: --engine ray needs Ray, which is not installed; pip install 'bough[ray]'\n")


# Labels


def test_labels_are_the_same_as_on_one_machine(label: Shell, address: str) -> None:  # noqa: F811 - the fixture
    assert label(*FAST)[0] == 0
    other = label.moved("there")
    status, messages = other(*FAST, "--engine", "ray", "--ray-address", address)
    assert status == 0
    assert other.shards == label.shards
    assert sorted(map(str, other.manifest)) == sorted(map(str, label.manifest))
    assert len(messages.splitlines()) == len(label.shards) + 2  # one property gives no samples


def test_labels_without_a_cluster(label: Shell) -> None:  # noqa: F811 - the fixture
    status, messages = label(*FAST, "--gpu-share", "0.5")
    assert (status, messages) == (2, "bough: --gpu-share says nothing without --engine ray; leave it out\n")
