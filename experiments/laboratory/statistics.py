"""Runs enter, figures leave: the paper's averages, and what it takes to trust a comparison of methods.

A run is a record (docs/record.md) as read from a file of `bough bench`; the paper's own results come in the same form
(`paper.py`). docs/statistics.md says what each figure means.
"""

import math
from collections.abc import Callable, Hashable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from statistics import fmean, median
from typing import Any, Literal

from bough.errors import BadInput
from bough.report.runs import SOLVED, counts_branches, is_search

Run = Mapping[str, Any]
Instance = tuple[str, str]  # network and property
Figure = Literal["seconds", "branches", "bounds"]
Grouping = Literal["difficulty", "network"] | Callable[[Run], str]

FIGURES: tuple[Figure, ...] = ("seconds", "branches", "bounds")
DIFFICULTIES = ("easy", "medium", "hard", "timeout")  # the order of columns
SHIFT = 1.0  # of geometric means, where something took no branch at all

_NEEDED = ("network", "property", "method", "timeout", "verdict", "seconds", "branches", "error")


# One run


def instance(run: Run) -> Instance:
    """What was asked."""
    return str(run["network"]), str(run["property"])


def is_solved(run: Run) -> bool:
    """Whether the question was answered; an error never is an answer."""
    return run["error"] is None and run["verdict"] in SOLVED


def charged_seconds(run: Run) -> float:
    """Seconds as the paper's averages take them: without an answer, the limit, or more if it was overrun.

    Whoever gave up early (`unknown`, an error) is charged the limit, too: giving up is not a way to be fast.
    """
    spent = float(run["seconds"] or 0.0)
    return spent if is_solved(run) else max(spent, float(run["timeout"] or 0.0))


def par2_seconds(run: Run) -> float:
    """Seconds of an answer, and twice the limit where there is none (the SAT competitions' PAR-2)."""
    return float(run["seconds"]) if is_solved(run) else 2 * float(run["timeout"] or run["seconds"] or 0.0)


def figure_of(run: Run, figure: Figure) -> float | None:
    """A figure of an answered run; None where it was not counted."""
    value = run.get(figure)
    return None if value is None or not is_solved(run) else float(value)


# Averages


def geometric_mean(values: Iterable[float], shift: float = 0.0) -> float:
    """Of values above `-shift`; each is moved up by it before, and the mean moved back."""
    moved = [value + shift for value in values]
    return math.exp(fmean(map(math.log, moved))) - shift


@dataclass(frozen=True)
class Average:
    """An arithmetic and a geometric mean over the same values."""

    arithmetic: float
    geometric: float
    count: int

    @classmethod
    def of(cls, values: Iterable[float | None], shift: float = 0.0) -> "Average | None":
        """None where there is nothing to average, or a value is missing."""
        known = [math.nan if value is None else value for value in values]
        if not known or any(map(math.isnan, known)):
            return None
        if any(value + shift < 0 for value in known):
            raise BadInput(f"{min(known):g} has no geometric mean; seconds and counts are 0 or more")
        zero = any(value + shift == 0 for value in known)
        return cls(fmean(known), 0.0 if zero else geometric_mean(known, shift), len(known))


@dataclass(frozen=True)
class Figures:
    """One method over one set of properties, in the paper's terms.

    Seconds are over all properties, `charged_seconds` each; branches and bounds over those that every search solved.
    """

    method: str
    runs: int
    verified: int
    falsified: int
    timeouts: int
    unknown: int
    errors: int
    seconds: Average
    par2: float
    branches: Average | None
    bounds: Average | None

    @property
    def solved(self) -> int:
        """How many questions were answered."""
        return self.verified + self.falsified

    @property
    def unsolved_share(self) -> float:
        """The paper's share of time-outs; whatever else has no answer counts as one."""
        return 1 - self.solved / self.runs


@dataclass(frozen=True)
class Wins:
    """How often one method needs less than another, property by property.

    `wins`, `ties` and `losses` are where both have an answer and the figure was counted; `close` is how often neither
    has one and the first still ended earlier, which is a matter of how a clock stops a process.
    """

    first: str
    second: str
    figure: Figure
    instances: int
    wins: int
    ties: int
    losses: int
    only_first: int
    only_second: int
    neither: int
    close: int
    ratio: Average | None  # the first's figure over the second's, where both are above 0

    @property
    def both(self) -> int:
        """Where both have an answer."""
        return self.wins + self.ties + self.losses

    @property
    def share(self) -> float:
        """Of all properties, those that the first solved with less, or solved alone."""
        return (self.wins + self.only_first) / self.instances

    @property
    def paper_share(self) -> float:
        """As the paper counts (61.52% and 60.20% in its section 6.3).

        Branches of a time-out are not known to it, so they win nothing; seconds are compared as the clock gave them,
        time-outs included.
        """
        more = self.only_first + self.close if self.figure == "seconds" else 0
        return (self.wins + more) / self.instances


# Methods side by side


@dataclass(frozen=True)
class Comparison:
    """The runs of several methods on the same properties, each under the same time limit.

    Made by `compare`, which sees to that; `notes` say what had to be left out or is odd.
    """

    runs: Mapping[str, Mapping[Instance, Run]]  # by method
    common_to: tuple[str, ...]  # the methods that have to have solved what branches are averaged over
    notes: tuple[str, ...] = ()

    @property
    def methods(self) -> tuple[str, ...]:
        """Their names, in the order of rows."""
        return tuple(self.runs)

    @cached_property
    def instances(self) -> tuple[Instance, ...]:
        """What every method was asked."""
        return tuple(next(iter(self.runs.values())))

    @cached_property
    def common(self) -> tuple[Instance, ...]:
        """What every search solved."""
        return tuple(
            key
            for key in self.instances
            if self.common_to and all(is_solved(self.runs[name][key]) for name in self.common_to)
        )

    @cached_property
    def shift(self) -> float:
        """Of geometric means of counts: 0 as in the paper, unless some property took no branch."""
        counts = [self.runs[name][key].get("branches") for name in self.common_to for key in self.common]
        return SHIFT if 0 in counts else 0.0

    def of(self, method: str) -> Mapping[Instance, Run]:
        """A method's runs."""
        if method not in self.runs:
            raise BadInput(f"there are no runs of '{method}'; there are runs of: {', '.join(self.runs)}")
        return self.runs[method]

    def figures(self, method: str) -> Figures:
        """The method's line of a table."""
        runs = list(self.of(method).values())
        ended = [run for run in runs if run["error"] is None]
        count = {word: sum(run["verdict"] == word for run in ended) for word in (*SOLVED, "timeout")}
        return Figures(
            method=method,
            runs=len(runs),
            verified=count["verified"],
            falsified=count["falsified"],
            timeouts=count["timeout"],
            unknown=len(ended) - sum(count.values()),
            errors=len(runs) - len(ended),
            seconds=_known(Average.of(map(charged_seconds, runs))),
            par2=fmean(map(par2_seconds, runs)),
            branches=self._over_common(method, "branches"),
            bounds=self._over_common(method, "bounds"),
        )

    def _over_common(self, method: str, figure: Figure) -> Average | None:
        """A search's counts; a solver's nodes are only given where somebody asks for them by `common_to`."""
        runs = [self.runs[method][key] for key in self.common]
        if method not in self.common_to:
            return None
        return Average.of((figure_of(run, figure) for run in runs), self.shift)

    def counts(self, method: str, figure: Figure) -> bool:
        """Whether the method's figure can be held against others': a solver's nodes are not branches."""
        runs = self.of(method).values()
        counted = all(counts_branches(run) and run.get(figure) is not None for run in runs if is_solved(run))
        return figure == "seconds" or (counted and all(map(is_search, runs)))

    def wins(self, first: str, second: str, figure: Figure = "branches") -> Wins:
        """One method against another."""
        for name in (first, second):
            if not self.counts(name, figure):
                raise BadInput(f"{name} does not count {figure} as a search does; compare seconds")
        pairs = [(self.of(first)[key], self.of(second)[key]) for key in self.instances]
        values = [(figure_of(a, figure), figure_of(b, figure)) for a, b in pairs]
        both = [(a, b) for a, b in values if a is not None and b is not None]
        neither = [pair for pair, (a, b) in zip(pairs, values, strict=True) if a is None and b is None]
        return Wins(
            first=first,
            second=second,
            figure=figure,
            instances=len(pairs),
            wins=sum(a < b for a, b in both),
            ties=sum(a == b for a, b in both),
            losses=sum(a > b for a, b in both),
            only_first=sum(a is not None and b is None for a, b in values),
            only_second=sum(a is None and b is not None for a, b in values),
            neither=len(neither),
            close=sum(charged_seconds(a) < charged_seconds(b) for a, b in neither),
            ratio=Average.of(a / b for a, b in both if a > 0 and b > 0),
        )

    def median_ratio(self, first: str, second: str, figure: Figure = "branches") -> float | None:
        """The middle of the first's figure over the second's, where both have an answer."""
        pairs = [(figure_of(self.of(first)[k], figure), figure_of(self.of(second)[k], figure)) for k in self.instances]
        ratios = [a / b for a, b in pairs if a is not None and b]
        return median(ratios) if ratios else None


def _known(average: Average | None) -> Average:
    if average is None:  # `compare` refuses a comparison of nothing
        raise AssertionError("a comparison without runs")
    return average


def compare(
    runs: Iterable[Run],
    methods: Sequence[str] | None = None,
    common_to: Sequence[str] | None = None,
    *,
    strict: bool = True,
) -> Comparison:
    """Methods (all by default) on what every one of them was asked.

    Of a run that is there several times, as after `--resume`, the last counts. `common_to` names the methods whose
    common answers branches are averaged over: by default every search that solved anything, and no foreign solver, as
    in the paper. Several time limits for one property are refused, or with `strict=False` noted.
    """
    listed = [_checked(run) for run in runs]
    by_method: dict[str, dict[Instance, Run]] = {}
    for run in listed:
        by_method.setdefault(str(run["method"]), {})[instance(run)] = run
    chosen = tuple(by_method) if methods is None else tuple(dict.fromkeys(methods))
    if not listed or not chosen:
        raise BadInput("there are no runs to make a table of; give a file that `bough bench` wrote, not an empty one")
    for name in (*chosen, *(common_to or ())):
        if name not in by_method:
            raise BadInput(f"there are no runs of '{name}'; there are runs of: {', '.join(by_method)}")
    notes = _limits(listed, chosen, strict=strict)
    shared = [key for key in by_method[chosen[0]] if all(key in by_method[name] for name in chosen)]
    if not shared:
        raise BadInput(
            f"no property was given to every one of {', '.join(chosen)}; compare methods that ran on the same instances"
        )
    everything = {key for name in chosen for key in by_method[name]}
    if len(everything) > len(shared):
        notes.append(f"{len(everything) - len(shared)} of {len(everything)} properties are left out: not run by all")
    selected = {name: {key: by_method[name][key] for key in shared} for name in chosen}
    notes += _repeated(listed, selected)
    if common_to is None:
        common_to, more = _searches(selected)
        notes += more
    return Comparison(selected, tuple(name for name in chosen if name in common_to), tuple(notes + _odd(selected)))


def _checked(run: Run) -> Run:
    missing = [name for name in _NEEDED if name not in run]
    if missing:
        raise BadInput(f"a run has no field '{missing[0]}'; give records as `bough bench` writes them")
    if is_solved(run) and run["seconds"] is None:
        raise BadInput(f"a run of {run['method']} was solved in no known time; give records of `bough bench`")
    return run


def _limits(runs: Sequence[Run], methods: Sequence[str], *, strict: bool) -> list[str]:
    """A table with several limits says nothing; which limit is whose is all there is to know."""
    limits: dict[Instance, dict[float | None, str]] = {}
    for run in runs:
        if run["method"] in methods:
            limits.setdefault(instance(run), {})[run["timeout"]] = str(run["method"])
    mixed = {key: by_limit for key, by_limit in limits.items() if len(by_limit) > 1}
    if not mixed:
        return []
    key, by_limit = next(iter(mixed.items()))
    listed = ", ".join(f"{_seconds(limit)} ({name})" for limit, name in by_limit.items())
    message = f"{len(mixed)} properties have several time limits, such as {key[1]}: {listed}"
    if strict:
        raise BadInput(f"{message}; make one table of each limit")
    return [f"{message}; their times are not comparable"]


def _seconds(limit: float | None) -> str:
    return "none" if limit is None else f"{limit:g} s"


def _repeated(runs: Sequence[Run], selected: Mapping[str, Mapping[Instance, Run]]) -> list[str]:
    count = sum(run["method"] in selected and instance(run) in selected[str(run["method"])] for run in runs)
    more = count - sum(map(len, selected.values()))
    return [f"{more} runs are there again later in the files, and the last one counts"] if more else []


def _searches(selected: Mapping[str, Mapping[Instance, Run]]) -> tuple[tuple[str, ...], list[str]]:
    """The methods with branches to compare, and which of them are left out for having solved nothing."""
    answers = {name: [run for run in runs.values() if is_solved(run)] for name, runs in selected.items()}
    own = {name for name, runs in selected.items() if all(is_search(run) for run in runs.values())}
    idle = [name for name, solved in answers.items() if not solved and name in own]
    notes = [f"solved nothing, and does not decide what was commonly solved: {', '.join(idle)}"] if idle else []
    return tuple(name for name, solved in answers.items() if solved and all(map(counts_branches, solved))), notes


def _odd(selected: Mapping[str, Mapping[Instance, Run]]) -> list[str]:
    notes = []
    errors = {name: sum(run["error"] is not None for run in runs.values()) for name, runs in selected.items()}
    if any(errors.values()):
        listed = ", ".join(f"{count} of {name}" for name, count in errors.items() if count)
        notes.append(f"errors, which count as not solved: {listed}")
    endless = [r for runs in selected.values() for r in runs.values() if not is_solved(r) and r["timeout"] is None]
    if endless:
        notes.append(f"{len(endless)} runs without an answer had no time limit; they count with the time they took")
    answers: dict[Instance, set[str]] = {}
    for runs in selected.values():
        for key, run in runs.items():
            if is_solved(run):
                answers.setdefault(key, set()).add(run["verdict"])
    torn = [key for key, words in answers.items() if len(words) > 1]
    if torn:
        notes.append(f"methods contradict each other on {len(torn)} properties, such as {torn[0][1]}: a defect")
    return notes


# Groups


def grouped(runs: Iterable[Run], by: Grouping | None) -> dict[str, list[Run]]:
    """The runs by difficulty, by network (its file's name) or by what a function says; None: all in one group.

    The difficulty is the property's: one run that tells it is enough for all runs of the same property.
    """
    listed = list(runs)
    if by is None:
        return {"": listed}
    known = {instance(run): str(run["difficulty"]) for run in listed if run.get("difficulty")}
    groups: dict[str, list[Run]] = {}
    for run in listed:
        if callable(by):
            name = by(run)
        else:
            name = known.get(instance(run), "unknown") if by == "difficulty" else network_name(run)
        groups.setdefault(name, []).append(run)
    if by == "difficulty":
        order = {name: k for k, name in enumerate(DIFFICULTIES)}
        return dict(sorted(groups.items(), key=lambda item: order.get(item[0], len(order))))
    return groups


def network_name(run: Run) -> str:
    """The network's file name without endings."""
    return str(run["network"]).replace("\\", "/").rsplit("/", 1)[-1].removesuffix(".gz").removesuffix(".onnx")


def with_difficulty(runs: Iterable[Run], reference: str, edges: Sequence[float]) -> list[Run]:
    """The runs with a difficulty each, by how long a method took: below the first edge easy, and so on (section 6.3).

    Two edges make easy, medium and hard; what the method timed out on is hard.
    """
    if len(edges) >= len(DIFFICULTIES) or list(edges) != sorted(edges):
        raise BadInput(f"the edges are {list(edges)}; give at most {len(DIFFICULTIES) - 1} in growing order")
    listed = list(runs)
    took = {instance(run): charged_seconds(run) for run in listed if run["method"] == reference}
    if not took:
        raise BadInput(f"there are no runs of '{reference}' to judge difficulty by; give those, too")
    return [
        {**run, "difficulty": DIFFICULTIES[sum(took[instance(run)] >= edge for edge in edges)]}
        for run in listed
        if instance(run) in took
    ]


# Decisions


@dataclass(frozen=True)
class Dependence:
    """How much a learnt rule leans on its fail-safe: shares of decisions, each property counting the same (E.1)."""

    method: str
    runs: int
    learnt: float
    backup: float
    least: float
    most: float


def dependence(runs: Iterable[Run], method: str) -> Dependence | None:
    """Over the runs of a method with any decision; None where there is none."""
    shares = []
    for run in runs:
        learnt, backup = (int(run.get(f"{who}_decisions") or 0) for who in ("learnt", "backup"))
        if run["method"] == method and run["error"] is None and learnt + backup:
            shares.append(backup / (learnt + backup))
    if not shares:
        return None
    return Dependence(method, len(shares), 1 - fmean(shares), fmean(shares), min(shares), max(shares))


@dataclass(frozen=True)
class Cost:
    """Seconds for each thing done, in all: total seconds over total counts, on what every search solved (E.4)."""

    method: str
    runs: int
    per_branch: float | None
    per_bound: float | None

    @property
    def per_decision(self) -> float | None:
        """A decision makes two branches."""
        return None if self.per_branch is None else 2 * self.per_branch


def cost(comparison: Comparison, method: str) -> Cost:
    """What a branch and a bound of a method cost."""
    runs = [comparison.of(method)[key] for key in comparison.common]
    spent = sum(float(run["seconds"]) for run in runs if is_solved(run))

    def per(figure: Figure) -> float | None:
        counts = [figure_of(run, figure) for run in runs]
        total = sum(count or 0.0 for count in counts)
        return spent / total if total and None not in counts else None

    return Cost(method, len(runs), per("branches"), per("bounds"))


def rank_correlation(pairs: Sequence[tuple[Hashable, Hashable]]) -> float | None:
    """Spearman's, ties sharing their ranks: whether one thing grows with the other (E.3); None if it cannot be said."""
    if len(pairs) < 2:
        return None
    first, second = (_ranks([pair[k] for pair in pairs]) for k in (0, 1))
    a, b = (fmean(ranks) for ranks in (first, second))
    spread = math.sqrt(sum((x - a) ** 2 for x in first) * sum((y - b) ** 2 for y in second))
    return sum((x - a) * (y - b) for x, y in zip(first, second, strict=True)) / spread if spread else None


def _ranks(values: Sequence[Any]) -> list[float]:
    places: dict[Any, list[int]] = {}
    for place, value in enumerate(sorted(values)):
        places.setdefault(value, []).append(place)
    return [fmean(places[value]) for value in values]


def renamed(runs: Iterable[Run], names: Mapping[str, str]) -> list[Run]:
    """The runs of the methods named, each under the name that a table gives it."""
    return [{**run, "method": names[run["method"]]} for run in runs if run["method"] in names]
