"""The soundness campaign: problems with known answers, each decided by every kind of bounds, until time is up.

    python soundness/campaign.py --seconds 120 --seed 0 --jobs 2
    python soundness/campaign.py --seed 0 --case 1234        # one case again, with every engine's answer

A disagreement is shrunk and written to `soundness/regressions/`, which `tests/against_truth/test_campaign.py` replays.
Exit status 1 if there is any. Ctrl-C ends it with what was found so far.
"""

import argparse
import multiprocessing
import queue
import sys
import time
from collections import Counter
from dataclasses import dataclass, field
from multiprocessing.synchronize import Event
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parent.parent
if __name__ == "__main__":
    sys.path[:0] = [str(ROOT), str(ROOT / "experiments")]  # the laboratory's rules are tried, too

import torch

from soundness.cases import OF_ONE_NETWORK, Case, draw
from soundness.engines import Engine, engines
from soundness.judge import trial
from soundness.shrink import objects, shrunk
from soundness.store import problem_to_json, write
from soundness.truth import judged

REGRESSIONS = ROOT / "soundness" / "regressions"
PROGRESS = 10.0  # seconds between lines
LAST_SECONDS = 30.0  # for cases that are being tried or shrunk when the campaign is stopped
Found = dict[str, Any]


@dataclass
class Tally:
    """Figures of a campaign."""

    cases: int = 0
    kinds: Counter[str] = field(default_factory=Counter)
    verdicts: Counter[str] = field(default_factory=Counter)
    families: Counter[str] = field(default_factory=Counter)
    rules: set[str] = field(default_factory=set)
    disagreements: list[Found] = field(default_factory=list)

    def add(self, news: Found) -> None:
        """What is known of one case."""
        self.cases += 1
        self.kinds[news["kind"]] += 1
        for family, rule, word in news["trials"]:
            self.verdicts[word] += 1
            self.families[family] += 1
            self.rules.add(rule)
        self.disagreements += news["found"]

    def __str__(self) -> str:
        trials = sum(self.verdicts.values())
        return f"{self.cases:,} cases, {trials:,} verdicts, {len(self.disagreements)} disagreements"


def tried(case: Case) -> list[tuple[Engine, str, list[str]]]:
    """Every engine's verdict on a case, and what is wrong with it."""
    ball = any(box.ball is not None for box in case.problem.property.boxes)
    chosen = engines(case.number, case.problem.network.inputs, ball=ball)
    return [(engine, *trial(case.problem, case.truth, engine)) for engine in chosen]


def examined(seed: int, number: int) -> Found:
    """A case as plain values: its verdicts, and its disagreements, shrunk."""
    case = draw(seed, number)
    records, trials = [], []
    for engine, verdict, wrong in tried(case):
        trials.append((engine.family, engine.rule, f"{case.truth.word}: {verdict}"))
        if wrong:
            records.append(_record(seed, case, engine, wrong))
    return {"number": number, "kind": case.kind, "trials": trials, "found": records}


def _record(seed: int, case: Case, engine: Engine, wrong: list[str]) -> Found:
    """What is stored: the smallest problem on which the engine is still wrong, and what is true of it."""
    fails = objects(engine, case.truth.witness)
    small = shrunk(case.problem, fails) if fails(case.problem) else case.problem
    truth = judged(small, case.truth.witness)
    return {
        "found": wrong,
        "from": {"seed": seed, "case": case.number, "kind": case.kind, "twist": case.twist},
        "engine": engine.as_json(),
        "truth": {
            "word": truth.word if truth.word != "unsure" else case.truth.word,
            "below": truth.below if truth.below > -1e300 else None,
            "witness": None if truth.witness is None else list(truth.witness),
        },
        **problem_to_json(small),
    }


def _work(seed: int, first: int, jobs: int, until: float, stop: Event, news: "multiprocessing.Queue[Found]") -> None:
    """One process: every `jobs`-th network from `first` on."""
    torch.set_num_threads(1)
    group = first
    try:
        while not stop.is_set():
            for number in range(group * OF_ONE_NETWORK, (group + 1) * OF_ONE_NETWORK):
                if stop.is_set() or time.time() > until:
                    return
                news.put(examined(seed, number))
            group += jobs
    except KeyboardInterrupt:
        return


def campaign(seed: int, seconds: float, jobs: int, most: float, folder: Path) -> Tally:
    """Run until time is up, or so many cases are done; disagreements are written as they come."""
    spawn = multiprocessing.get_context("spawn")
    stop, news, tally = spawn.Event(), spawn.Queue(), Tally()
    begun, until = time.monotonic(), time.time() + seconds
    workers = [spawn.Process(target=_work, args=(seed, k, jobs, until, stop, news), daemon=True) for k in range(jobs)]
    for worker in workers:
        worker.start()
    last_report, patience = 0.0, float("inf")
    while any(w.is_alive() for w in workers) or not news.empty():
        _hear(news, tally, stop, folder)
        elapsed = time.monotonic() - begun
        if elapsed - last_report > PROGRESS:
            last_report = elapsed
            print(f"{elapsed:4.0f} s   {tally}", flush=True)
        if tally.cases >= most:
            stop.set()
        if stop.is_set():
            patience = min(patience, elapsed + LAST_SECONDS)
        if elapsed > patience:
            break
    for worker in workers:
        worker.kill()
    return tally


def _hear(news: "multiprocessing.Queue[Found]", tally: Tally, stop: Event, folder: Path) -> None:
    """Take in one case, if there is one; Ctrl-C stops the campaign, and what the others are at is waited for."""
    try:
        heard = news.get(timeout=0.5)
        tally.add(heard)
        for record in heard["found"]:
            _keep(record, folder)
    except queue.Empty:
        pass
    except KeyboardInterrupt:
        print("interrupted", flush=True)
        stop.set()


def _keep(record: Found, folder: Path) -> None:
    source, engine = record["from"], record["engine"]
    path = folder / f"seed{source['seed']}_case{source['case']}_{engine['family']}.json"
    write(path, record)
    about = ", ".join(str(value) for value in engine.values())
    print(f"DISAGREEMENT in case {source['case']} ({source['kind']}, {source['twist']}) by {about}:")
    for line in record["found"]:
        print(f"    {line}")
    print(f"    shrunk to {path}", flush=True)


def one(seed: int, number: int) -> bool:
    """A case once more, in words; whether all is well."""
    case = draw(seed, number)
    network = case.problem.network
    print(f"case {number} of seed {seed}: {case.kind}, {case.twist}; {network.inputs} inputs, {network.neurons} ReLUs")
    print(f"{len(case.problem.clauses)} clauses; {case.truth}")
    good = True
    for engine, verdict, wrong in tried(case):
        print(f"  {verdict:10} {engine}" + "".join(f"\n      {line}" for line in wrong))
        good &= not wrong
    return good


def main(arguments: list[str] | None = None) -> int:
    """The command."""
    parser = argparse.ArgumentParser(description="soundness campaign")
    parser.add_argument("--seconds", type=float, default=120.0)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--jobs", type=int, default=multiprocessing.cpu_count())
    parser.add_argument("--cases", type=int, help="stop after so many")
    parser.add_argument("--case", type=int, help="only this one, in words")
    parser.add_argument("--out", type=Path, default=REGRESSIONS, help="folder for what is found")
    chosen = parser.parse_args(arguments)
    torch.set_num_threads(1)
    if chosen.case is not None:
        return 0 if one(chosen.seed, chosen.case) else 1
    begun = time.monotonic()
    most = float("inf") if chosen.cases is None else chosen.cases
    tally = campaign(chosen.seed, chosen.seconds, max(1, chosen.jobs), most, chosen.out)
    print(f"\nseed {chosen.seed}, {chosen.jobs} processes, {time.monotonic() - begun:.0f} s: {tally}")
    print(f"by {', '.join(f'{name} {n:,}' for name, n in sorted(tally.families.items()))}; {len(tally.rules)} rules")
    print(f"networks: {', '.join(f'{name} {n:,}' for name, n in sorted(tally.kinds.items()))}")
    for word, count in sorted(tally.verdicts.items()):
        print(f"  {count:6,}  {word}")
    return 1 if tally.disagreements else 0


if __name__ == "__main__":
    sys.exit(main())
