"""The competition's scripts, as its organisers call them."""

import os
import re
import stat
import subprocess
import sys
from pathlib import Path

import pytest
from tests.bench.test_bench import LINES, PROPERTY
from tests.support import sequential

from bough.problem.onnx_writer import write_network

FOLDER = Path(__file__).parents[1] / "vnncomp"
BOUGH = f"#!{sys.executable}\nimport sys\nfrom bough.cli import main\nsys.exit(main())\n"
SPEED = 60  # seconds, on a busy machine


class Competition:
    """A small network, its properties, and bough as a program, in a folder."""

    def __init__(self, folder: Path) -> None:
        self.folder, self.results = folder, folder / "results.txt"
        write_network(sequential(([[1, 1], [1, -1]], [0, 0]), ([[1, 1], [1, -1]], [0, 0])), folder / "net.onnx")
        for name, (unsafe, _) in LINES.items():
            (folder / f"{name}.vnnlib").write_text(PROPERTY.format(unsafe))
        self.program(BOUGH)

    def program(self, text: str) -> None:
        (self.folder / "bough").write_text(text)
        (self.folder / "bough").chmod(0o755)

    def __call__(self, script: str, *words: object) -> subprocess.CompletedProcess[str]:
        search = os.pathsep.join(filter(None, sys.path))
        environment = {**os.environ, "BOUGH": str(self.folder / "bough"), "PYTHONPATH": search}
        environment |= {"TMPDIR": str(self.folder), "OMP_NUM_THREADS": "1"}
        command = [str(FOLDER / script), *map(str, words)]
        return subprocess.run(
            command, env=environment, cwd=self.folder, capture_output=True, text=True, check=False, timeout=100
        )

    def run(self, name: str, timeout: object = SPEED) -> tuple[int, list[str]]:
        done = self("run_instance.sh", "v1", "tiny", "net.onnx", f"{name}.vnnlib", self.results, timeout)
        return done.returncode, self.results.read_text().splitlines()


@pytest.fixture
def competition(tmp_path: Path) -> Competition:
    return Competition(tmp_path)


def test_scripts_are_programs() -> None:
    for script in FOLDER.glob("*.sh"):
        assert script.stat().st_mode & stat.S_IXUSR
        assert subprocess.run(["bash", "-n", str(script)], check=False).returncode == 0
    assert len(list(FOLDER.glob("*.sh"))) == 3


def test_an_instance_from_start_to_end(competition: Competition) -> None:
    prepared = competition("prepare_instance.sh", "v1", "tiny", "net.onnx", "unsafe.vnnlib")
    assert prepared.returncode == 0, prepared.stderr
    assert competition.run("safe") == (0, ["unsat"])
    status, lines = competition.run("unsafe")  # replaces the older result
    assert (status, lines[0]) == (0, "sat")
    point = dict(re.findall(r"\((\w_\d) (\S+?)\)", "\n".join(lines[1:])))
    assert list(point) == ["X_0", "X_1", "Y_0", "Y_1"]
    assert all(-1 <= float(point[name]) <= 1 for name in ("X_0", "X_1"))
    assert float(point["Y_0"]) <= 0.5
    assert float(point["Y_1"]) >= 0.25
    assert lines[1].startswith("((X_0 ")
    assert lines[-1].endswith("))")


@pytest.mark.parametrize(
    ("program", "word"),
    [
        ("#!/bin/sh\nsleep 60\n", "timeout"),  # hangs
        ("#!/bin/sh\nexit 1\n", "error"),  # falsified, by its status, but there is no point
        ("#!/bin/sh\nexit 0\n", "error"),
        ("#!/bin/sh\nkill -11 $$\n", "error"),
        ("#!/bin/sh\nwhile [ $1 != --vnncomp ]; do shift; done; echo Traceback > $2\n", "error"),
        ("#!/bin/sh\nwhile [ $1 != --vnncomp ]; do shift; done; echo unknown > $2; exit 3\n", "unknown"),
    ],
)
def test_whatever_goes_wrong_is_no_answer(competition: Competition, program: str, word: str) -> None:
    competition.program(program)
    assert competition.run("safe", 1 if word == "timeout" else SPEED) == (0, [word])


def test_bad_input_is_an_error(competition: Competition) -> None:
    assert competition.run("absent") == (0, ["error"])


@pytest.mark.parametrize(
    ("script", "words"),
    [
        ("install_tool.sh", ("v2",)),
        ("install_tool.sh", ()),
        ("prepare_instance.sh", ("v2", "tiny", "net.onnx", "safe.vnnlib")),
        ("prepare_instance.sh", ("v1", "tiny", "absent.onnx", "safe.vnnlib")),
        ("run_instance.sh", ("v1", "tiny", "net.onnx", "safe.vnnlib")),
        ("run_instance.sh", ("v1", "tiny", "net.onnx", "safe.vnnlib", "results.txt", "soon")),
    ],
)
def test_wrong_words_are_said(competition: Competition, script: str, words: tuple[str, ...]) -> None:
    done = competition(script, *words)
    assert done.returncode == 1
    assert script in done.stderr
    assert not competition.results.exists()


def test_what_an_earlier_run_left_is_ended(competition: Competition) -> None:
    sleeper = "import time; time.sleep(60)"
    with (
        subprocess.Popen([sys.executable, "-c", sleeper, "bough verify"]) as left,
        subprocess.Popen([sys.executable, "-c", sleeper]) as other,
    ):
        competition.program("#!/bin/sh\n")
        for process in (other, left):
            (competition.folder / f"bough-vnncomp-{os.getuid()}.pid").write_text(str(process.pid))
            assert competition("prepare_instance.sh", "v1", "t", "net.onnx", "safe.vnnlib").returncode == 0
        assert left.wait(10) == -9
        assert other.poll() is None  # a number that is somebody else's by now
        other.kill()


def test_the_installation(competition: Competition, monkeypatch: pytest.MonkeyPatch) -> None:
    """With an interpreter that only says what it is asked to do: nothing is fetched."""
    copy = competition.folder / "copy" / "vnncomp"
    copy.mkdir(parents=True)
    (copy / "install_tool.sh").write_bytes((FOLDER / "install_tool.sh").read_bytes())
    log = competition.folder / "said"
    (competition.folder / "python").write_text(
        f'#!/bin/sh\necho "$@" >> {log}\nmkdir -p "$3/bin"\n'
        f'for name in python bough; do printf \'#!/bin/sh\\necho "$@" >> {log}\\n\' > "$3/bin/$name"; '
        'chmod +x "$3/bin/$name"; done\n'
    )
    (competition.folder / "python").chmod(0o755)
    monkeypatch.setenv("PYTHON", str(competition.folder / "python"))
    subprocess.run(["bash", str(copy / "install_tool.sh"), "v1"], check=True, timeout=60)
    root = copy.parent
    lines = log.read_text().splitlines()
    assert lines[0] == f"-m venv {root}/.venv"
    assert lines[1] == f"-m pip install --disable-pip-version-check -c {root}/constraints.txt {root}[vnnlib2]"
    assert lines[2] == "doctor"
