"""The mutation check: the code is broken on purpose, in places that matter, and the tests have to notice.

    python soundness/mutants.py                 # all of `soundness/mutants/*.patch`, as a table
    python soundness/mutants.py 03 10           # some of them
    python soundness/mutants.py --campaign 30   # and what a campaign of so many seconds says of each

A patch says in its first line what it breaks, and under `Tests:` which tests are run. They run on a copy of the source
in a temporary folder. Exit status 1 if a mutant survives, or a patch does not apply any more.
"""

import argparse
import os
import re
import shutil
import subprocess
import sys
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
PATCHES = ROOT / "soundness" / "mutants"
COPIED = ("src", "tests", "soundness", "pyproject.toml", "README.md")
SECONDS = 240.0  # of one mutant's tests; longer means that a search does not end any more, which is noticed, too
MISSING = "no such test"


@dataclass(frozen=True)
class Mutant:
    """A patch with what it says of itself."""

    path: Path
    title: str
    tests: tuple[str, ...]

    @property
    def name(self) -> str:
        """The file's."""
        return self.path.stem

    @staticmethod
    def read(path: Path) -> "Mutant":
        """The lines before the first difference."""
        head = path.read_text().split("diff --git", 1)[0].splitlines()
        named = [line.removeprefix("Tests:").split() for line in head if line.startswith("Tests:")]
        return Mutant(path, head[0], tuple(test for tests in named for test in tests))


def mutants(only: list[str] | None = None) -> list[Mutant]:
    """All of them, or those whose names begin so."""
    known = [Mutant.read(path) for path in sorted(PATCHES.glob("*.patch"))]
    return [m for m in known if not only or m.name.startswith(tuple(only))]


def copied(to: Path) -> Path:
    """The source as it is, without what running it left behind."""
    for name in COPIED:
        source, goal = ROOT / name, to / name
        if source.is_dir():
            shutil.copytree(source, goal, ignore=shutil.ignore_patterns("__pycache__", "*.pyc"))
        elif source.exists():
            shutil.copy(source, goal)
    return to


def apply(mutant: Mutant, folder: Path, *, check: bool = False) -> str:
    """Patch a copy, or only look whether that is possible; what went wrong, or nothing."""
    command = ["git", "apply", "--check" if check else "--verbose", str(mutant.path)]
    # Above a temporary folder there may be a repository, inside of which git would skip the files without a word.
    environment = {**os.environ, "GIT_CEILING_DIRECTORIES": str(folder.parent), "GIT_DIR": str(folder / "none")}
    done = subprocess.run(command, cwd=folder, env=environment, capture_output=True, text=True, check=False)
    return "" if done.returncode == 0 else done.stderr.strip()


def _run(folder: Path, command: list[str], seconds: float) -> tuple[int, str]:
    environment = {
        **os.environ,
        "PYTHONPATH": f"{folder / 'src'}{os.pathsep}{folder}",
        "OMP_NUM_THREADS": "1",
        "PYTHONDONTWRITEBYTECODE": "1",
    }
    try:
        done = subprocess.run(
            command, cwd=folder, env=environment, capture_output=True, text=True, check=False, timeout=seconds
        )
    except subprocess.TimeoutExpired:
        return -1, ""
    return done.returncode, done.stdout + done.stderr


def by_tests(mutant: Mutant, folder: Path) -> str:
    """Which test fails first; nothing if all of them pass."""
    command = [sys.executable, "-m", "pytest", "-x", "-q", "-p", "no:cacheprovider", "-m", "not slow", *mutant.tests]
    status, printed = _run(folder, command, SECONDS)
    if status == 0:
        return ""
    if status == -1:
        return f"no end within {SECONDS:.0f} s"
    failed = re.search(r"^(?:FAILED|ERROR) (\S+)", printed, re.MULTILINE)
    return failed[1].removeprefix("tests/") if failed and status == 1 else MISSING


def by_campaign(folder: Path, seconds: float) -> str:
    """What a short campaign says first."""
    command = [sys.executable, "soundness/campaign.py", "--seconds", str(seconds), "--jobs", "1", "--out", "found"]
    status, printed = _run(folder, command, seconds + 120)
    first = re.search(r"DISAGREEMENT in case (\d+) .*? by (\w+)", printed)
    return "" if status == 0 else f"case {first[1]}, {first[2]}" if first else "a crash"


def main(arguments: list[str] | None = None) -> int:
    """The command."""
    parser = argparse.ArgumentParser(description="mutation check")
    parser.add_argument("only", nargs="*", help="the beginnings of names")
    parser.add_argument("--campaign", type=float, default=0.0, help="seconds of a campaign for each")
    chosen = parser.parse_args(arguments)
    survived, begun = [], time.monotonic()
    print("| mutant | what it breaks | caught by | campaign | seconds |\n|---|---|---|---|---|", flush=True)
    for mutant in mutants(chosen.only):
        with tempfile.TemporaryDirectory() as name:
            folder, clock = copied(Path(name)), time.monotonic()
            refused = apply(mutant, folder)
            test = "" if refused else by_tests(mutant, folder)
            disagreement = by_campaign(folder, chosen.campaign) if chosen.campaign and not refused else "-"
        if refused or test in ("", MISSING):
            survived.append(mutant.name)
        caught_by = f"does not apply: {refused}" if refused else test or "NOTHING"
        took = time.monotonic() - clock
        print(
            f"| {mutant.name} | {mutant.title} | `{caught_by}` | {disagreement or 'nothing'} | {took:.0f} |", flush=True
        )
    count = len(mutants(chosen.only))
    print(f"\n{count - len(survived)} of {count} caught, in {time.monotonic() - begun:.0f} s")
    return 1 if survived else 0


if __name__ == "__main__":
    sys.exit(main())
