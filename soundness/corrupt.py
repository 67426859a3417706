"""Corruptions of real certificates: every one that breaks the proof has to be rejected by the checker.

    BOUGH_DATA=... python soundness/corrupt.py --certificates DIR --out FILE.jsonl [--count 1000] [--seed 0]
    [--seconds 100] [--only WORD]

Certificates of the instances below are made first, once (`--limit` seconds each), and must be valid. Corruption number
n depends on the seed, n and the certificates alone; what is in FILE is not repeated, so that the same command goes on
where it was stopped, by Ctrl-C or `--seconds`. Whether a changed certificate is still a proof is not the checker's to
say: see `damage.py`.
Exit status 1 if the checker accepts what is broken, or raises anything but a sentence; 3 if some are left.
"""

import argparse
import json
import os
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parent.parent
if __name__ == "__main__":
    sys.path.insert(0, str(ROOT))

import numpy as np
import torch

from bough.api import load_network, load_problem, solve
from bough.bench.tasks import read_list
from bough.errors import BoughError, CertificateError
from bough.options import Options
from bough.problem.problem import Problem
from bough.verdict.certificate import VERDICTS, End, read
from bough.verdict.check import Outcome, check
from soundness import damage
from soundness.damage import Damaged, Kind, Subject
from soundness.damage_trees import TREE_KINDS

SETS: dict[str, tuple[int, ...]] = {  # which lines of a list: solved in seconds, most of them verified
    "sat_relu": (1, 9, 13, 21, 35, 37, 55, 71),
    "collins_rul_cnn_2022": (1, 2, 5, 9, 13, 20),
    "acasxu_2023": (0, 20, 47, 60, 100, 110, 120, 140, 145, 150),
}
TREES: dict[str, tuple[int, ...]] = {"mnist_fc": (25, 39, 41, 56)}  # the same, by ReLU bounds over trees of splits
MNIST = ("mnist_base", "mnist_wide", "mnist_deep")  # of each the first few properties of the package's table
OF_MNIST = 3
REJECTED = ("invalid", "unreadable", "incomplete")
COLUMNS = ("tried", *REJECTED, "still a proof", "ACCEPTED", "CRASHED")
TRIES = 40  # draws of a certificate until one has what a kind of damage needs
KINDS = (*damage.KINDS, *TREE_KINDS)
Entry = dict[str, Any]


@dataclass(frozen=True)
class Question:
    """An instance, and the name of its certificate."""

    name: str
    network: Path
    property: Path
    relu_bounds: str = "auto"


def questions(data: Path, folder: Path) -> list[Question]:
    """The instances whose certificates are spoilt; properties of MNIST are written to a folder."""
    chosen = []
    for sets, relu_bounds in ((SETS, "auto"), (TREES, "trees")):
        for name, lines in sets.items():
            listed = read_list(data / "vnncomp" / name / "instances.csv")
            for line in lines:
                row = listed[line].instance
                chosen.append(Question(f"{name}-{line}", row.network, row.property, relu_bounds))
    return chosen + list(_of_mnist(folder))


def _of_mnist(folder: Path) -> Iterable[Question]:
    """A few properties of each network in the package; none where their images are not at hand."""
    from bough.cli import main
    from bough.cli.shared import BAD_INPUT

    for network in MNIST:
        to = folder / f"of-{network}"
        words = ["properties", "--from", "mnist", "--only", network, "--every", "7", "--out", str(to)]
        if not (to / "instances.csv").exists() and main(words) == BAD_INPUT:
            continue
        for k, row in enumerate(read_list(to / "instances.csv")[:OF_MNIST]):
            yield Question(f"{network}-{k}", row.instance.network, row.instance.property)


def made(question: Question, folder: Path, limit: float) -> Subject | None:
    """The certificate of an instance, which is made if it is not there; None where the search found no answer."""
    path = folder / f"{question.name}.proof"
    problem = load_problem(load_network(question.network), question.property)
    if not path.exists():
        partial = path.with_suffix(".partial")
        solve(problem, Options(timeout=limit, device="cpu", certificate=partial, intermediate=question.relu_bounds))
        report = check(problem, partial)
        if report.outcome is Outcome.INVALID:
            raise SystemExit(f"{partial}: {report}; a certificate as it was written must be valid")
        partial.replace(path)
    candidate = subject(question.name, problem, path)
    return candidate if candidate.verdict in ("verified", "falsified") else None


def subject(name: str, problem: Problem, path: Path) -> Subject:
    """A certificate, taken apart."""
    with path.open("rb") as file:
        *chunks, end = read(file)
    assert isinstance(end, End)
    return Subject(name, problem, path.read_bytes(), tuple(chunks), VERDICTS[int(end.verdict[0])])


def drawn(
    number: int, seed: int, subjects: Sequence[Subject], kinds: Sequence[Kind] = KINDS
) -> tuple[Subject, Kind, Damaged] | None:
    """Corruption number so and so; None where no certificate has what it takes."""
    random, kind = np.random.default_rng([seed, number]), kinds[number % len(kinds)]
    for _ in range(TRIES):
        victim = subjects[int(random.integers(len(subjects)))]
        damaged = kind.make(victim, random, [other for other in subjects if other is not victim])
        if damaged is not None:
            return victim, kind, damaged
    return None


def tried(damaged: Damaged, path: Path) -> tuple[str, str]:
    """What the checker makes of it, in one of the words of `COLUMNS`, and its sentence."""
    path.write_bytes(damaged.data)
    try:
        report = check(damaged.problem, path)
    except CertificateError as error:
        return "unreadable", str(error)
    except (Exception, BoughError) as error:  # noqa: BLE001 - the checker has no other way to end
        return "CRASHED", f"{type(error).__name__}: {error}"
    if report.outcome is not Outcome.VALID:
        return report.outcome.value, report.reason
    return ("ACCEPTED" if damaged.broken else "still a proof"), report.reason


def corrupted(number: int, seed: int, subjects: Sequence[Subject], path: Path, kinds: Sequence[Kind] = KINDS) -> Entry:
    """One corruption, as a record."""
    began = time.perf_counter()
    choice = drawn(number, seed, subjects, kinds)
    if choice is None:
        return {"number": number, "seed": seed, "kind": kinds[number % len(kinds)].name, "outcome": "none"}
    victim, kind, damaged = choice
    outcome, reason = tried(damaged, path)
    details = {"evidence": damaged.evidence, "broken": damaged.broken, "words": damaged.words, "reason": reason}
    details["seconds"] = round(time.perf_counter() - began, 3)
    return {"number": number, "seed": seed, "kind": kind.name, "subject": victim.name, "outcome": outcome, **details}


def table(entries: Sequence[Entry]) -> str:
    """As Markdown: a line for each kind, and one for all."""
    lines = ["| corruption | evidence | " + " | ".join(COLUMNS) + " |", "|---|---|" + "---|" * len(COLUMNS)]
    for kind in [*dict.fromkeys(kind.name for kind in KINDS), "all"]:
        part = [e for e in entries if (kind in ("all", e["kind"])) and e["outcome"] != "none"]
        if not part:
            continue
        tally = Counter(e["outcome"] for e in part)
        evidence = "" if kind == "all" else part[0]["evidence"]
        cells = [kind, evidence, len(part), *(tally[column] for column in COLUMNS[1:])]
        lines.append("| " + " | ".join(map(str, cells)) + " |")
    broken = [e for e in entries if e["outcome"] != "none" and e["broken"]]
    others = [e for e in entries if e["outcome"] != "none" and not e["broken"]]
    rejected, careful = (sum(e["outcome"] in REJECTED for e in some) for some in (broken, others))
    lines.append(
        f"\n{rejected} of {len(broken)} that break the proof are rejected. In {len(others)} others the second opinion "
        f"still sees a proof; {careful} of these are rejected, too."
    )
    return "\n".join(lines)


def main() -> int:
    """Make certificates, spoil them, and print the table."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--certificates", type=Path, required=True, help="where certificates are, or will be")
    parser.add_argument("--out", type=Path, required=True, help="a line for each corruption")
    parser.add_argument("--count", type=int, default=1000)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--seconds", type=float, default=float("inf"), help="no corruption is begun after so many")
    parser.add_argument("--limit", type=float, default=10.0, help="seconds for the search of a certificate")
    parser.add_argument("--only", default="", help="kinds of damage whose names begin so")
    options = parser.parse_args()
    kinds = [kind for kind in KINDS if kind.name.startswith(options.only)]
    torch.set_num_threads(1)
    began, done = time.monotonic(), []
    if options.out.exists():
        done = [json.loads(line) for line in options.out.read_text().splitlines()]
    finished = {(e["seed"], e["number"]) for e in done}
    options.certificates.mkdir(parents=True, exist_ok=True)
    data = Path(os.environ.get("BOUGH_DATA", ROOT.parent / "shared"))
    instances = questions(data, options.certificates)
    subjects = [s for q in instances if (s := made(q, options.certificates, options.limit)) is not None]
    words = Counter(s.verdict for s in subjects)
    print(f"{len(subjects)} certificates ({dict(words)}), {sum(len(s.leaves) for s in subjects)} leaves", flush=True)
    left = [n for n in range(options.count) if (options.seed, n) not in finished]
    with tempfile.TemporaryDirectory() as folder, options.out.open("a") as out:
        while left and time.monotonic() - began < options.seconds:
            entry = corrupted(left.pop(0), options.seed, subjects, Path(folder) / "proof", kinds)
            done.append(entry)
            out.write(json.dumps(entry) + "\n")
            out.flush()
            if entry["outcome"] in ("ACCEPTED", "CRASHED"):
                print(f"WRONG: {entry}", flush=True)
    print(table(done))
    wrong = any(e["outcome"] in ("ACCEPTED", "CRASHED") for e in done)
    if left:
        print(f"{len(left)} are left; the same command goes on")
    return 1 if wrong else 3 if left else 0


if __name__ == "__main__":
    sys.exit(main())
