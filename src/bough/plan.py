"""Make the plan of a run, once: every object that the run needs, from its options and its network.

API, command line, bench and labelling run a plan and record its settings, so a record says what was used.
"""

import math
from abc import ABC, abstractmethod
from collections.abc import Sequence
from contextlib import closing
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, final

import torch

from bough.baselines.base import KNOWN_BASELINES, AbstractBaseline, BaselineSettings
from bough.bounds.base import KNOWN_BOUNDERS, AbstractBounder, BounderEntry, BounderSettings, Capability
from bough.bounds.intermediate import KNOWN_RELU_BOUNDS
from bough.branching.base import KNOWN_RULES, AbstractBrancher, RuleSettings
from bough.budget import Deadline, free_memory
from bough.errors import BadInput
from bough.falsify.base import AbstractFalsifier, NoAttack
from bough.network.graph import Network
from bough.options import AUTO, Options
from bough.problem.problem import Problem
from bough.report.record import Settings
from bough.search.loop import Goal, MemoryLimits, Search, search
from bough.search.observe import AbstractObserver
from bough.solvers.mixed import SOLVERS
from bough.verdict.result import Result

FEW_RELUS = 16  # with at most so many, the LP costs no more than other bounders
FEW_INPUTS = 8  # with at most so many, halving inputs closes more domains than splitting ReLUs
GPU_MEMORY_SHARE = 0.4  # the part of a GPU's free memory that open domains may take
USER_BOUNDER_BATCH = 128  # domains in a step, where the bounder is an object that the user made
OWN = "own"  # what records say of the ReLU bounds where the bounder makes them itself


@dataclass(frozen=True, eq=False)
class AbstractPlan(ABC):
    """A plan holds what a run consists of; `settings` go into the record, and `words` are shown to the user."""

    settings: Settings
    words: str

    @abstractmethod
    def solve(self, problem: Problem, observers: Sequence[AbstractObserver] = ()) -> Result:
        """Decide a problem, within a time limit that starts at this call."""


@final
@dataclass(frozen=True, eq=False)
class BaselinePlan(AbstractPlan):
    """A baseline plan asks a third-party solver, and does not search."""

    baseline: AbstractBaseline

    def solve(self, problem: Problem, observers: Sequence[AbstractObserver] = ()) -> Result:
        """Ask the solver about each clause in turn."""

        def say(line: str, seconds: float) -> None:
            for observer in observers:
                observer.told(line, seconds)

        return self.baseline.solve(problem, Deadline.after(self.settings.timeout), say)


@final
@dataclass(frozen=True, eq=False)
class SearchPlan(AbstractPlan):
    """A search, with all its strategies."""

    bounder: AbstractBounder
    brancher: AbstractBrancher[Any]
    falsifier: AbstractFalsifier
    goal: Goal
    batch: int
    memory: MemoryLimits
    most_bounds: float
    certificate: Path | None

    def solve(self, problem: Problem, observers: Sequence[AbstractObserver] = ()) -> Result:
        """Search; if a certificate is asked for, write it during the search."""
        run = Search(
            problem=problem,
            bounder=self.bounder,
            brancher=self.brancher,
            falsifier=self.falsifier,
            deadline=Deadline.after(self.settings.timeout),
            goal=self.goal,
            batch=self.batch,
            memory=self.memory,
            most_bounds=self.most_bounds,
            observers=tuple(observers),
        )
        if self.settings.semantics == "float32":
            from bough.bounds.execution import Execution

            run = replace(run, execution=Execution(problem))
        if self.certificate is None:
            return search(run)
        from bough.search.certify import Certifier

        with closing(Certifier(problem, self.certificate)) as witness:
            result = search(replace(run, witness=witness))
            witness.finish(result)
            return replace(result, notes={**result.notes, **witness.notes()})


def make_plan(options: Options, network: Network) -> AbstractPlan:
    """Make the plan of a run on this network; each option that is `auto` gets a value."""
    return search_plan(options, network) if options.method == AUTO else _baseline_plan(options)


def settings_of(options: Options) -> Settings:
    """The options as settings for a record, where there is no search plan: `auto` stays `auto`."""
    said = {name: getattr(options, name) for name in ("batch", "seed", "timeout", "device", "weights", "semantics")}
    return Settings(str(options.bounds), str(options.intermediate), str(options.branching), **said)


def _baseline_plan(options: Options) -> BaselinePlan:
    entry = KNOWN_BASELINES.entry(options.method)
    solver = "highs" if options.solver == AUTO else options.solver
    name = solver if entry.mixed else entry.name
    by = f", by {SOLVERS[solver]}" if entry.mixed else ""
    # A baseline has no bounder and no rule: records name the solver in both places.
    return BaselinePlan(
        settings=replace(
            settings_of(options), bounder=name, intermediate=entry.relu_bounds, branching=name, device="cpu"
        ),
        words=f"{entry.name}: {entry.words}{by}",
        baseline=entry.make(BaselineSettings(solver, options.seed)),
    )


def search_plan(options: Options, network: Network) -> SearchPlan:
    """The search on this network; options that name a baseline as their method are refused."""
    if options.method != AUTO:
        raise BadInput(f"method {options.method} is a baseline, and here bough's own search is needed; give no method")
    if options.semantics == "float32" and network.cast is not None:
        raise BadInput(
            f"node {network.cast!r} casts a computed double to float, whose rounding --semantics float32 does not "
            "count; leave the option out, or export the network in one type"
        )
    name, entry, reason = _chosen_bounder(options, network)
    rule, brancher, weights = _rule(options, network, name, entry)
    policy_name = OWN if entry is None else str(options.intermediate)
    if options.intermediate == AUTO and entry is not None:
        policy_name = (entry.usual_relu_bounds if options.certificate is None else entry.certified_relu_bounds) or OWN
    if isinstance(options.bounds, AbstractBounder):
        bounder = options.bounds
        device = bounder.device
    else:
        device = options.device
        if device == AUTO:
            device = "cuda" if entry is not None and entry.gpu and torch.cuda.is_available() else "cpu"
        # The settings of a bounder hold ReLU bounds, even of a bounder that ignores them.
        policy = options.relu_bounds() or KNOWN_RELU_BOUNDS.entry("fixed" if policy_name == OWN else policy_name).make()
        if options.gap is not None or options.semantics == "float32":
            # A least margin is about safe points, too, and so is the error of a float32 run.
            policy = policy.unconditional()
        halves_inputs = Capability.INPUT_PARTS in brancher.needs
        bounder = KNOWN_BOUNDERS.entry(name).make(BounderSettings(policy, device, halves_inputs))
    if not brancher.needs <= bounder.offers:
        needed = " and ".join(sorted(need.value for need in brancher.needs - bounder.offers))
        raise BadInput(f"'{rule}' needs {needed}, which {bounder} does not have; use another rule or bounder")
    batch = options.batch or (USER_BOUNDER_BATCH if entry is None else entry.batch(network, device))
    auto = f" (auto: {reason})" if options.bounds == AUTO else ""
    over = "" if policy_name == OWN else f" over {policy_name} ReLU bounds"
    by = "" if weights is None else f" by {Path(weights).name}"
    return SearchPlan(
        settings=Settings(
            name, policy_name, rule, batch, options.seed, options.timeout, device, weights, options.semantics
        ),
        words=f"{name} bounds{auto} on {device}{over}, {rule} branching{by}, {batch} domains a step",
        bounder=bounder,
        brancher=brancher,
        falsifier=_falsifier(options, device),
        goal=Goal(options.gap),
        batch=batch,
        memory=_memory(options, device),
        most_bounds=math.inf if options.most_bounds is None else options.most_bounds,
        certificate=None if options.certificate is None else Path(options.certificate),
    )


def _chosen_bounder(options: Options, network: Network) -> tuple[str, BounderEntry | None, str]:
    """The bounder's name, its entry (None if the user made the object), and why `auto` takes it."""
    if isinstance(options.bounds, AbstractBounder):
        return str(options.bounds), None, ""
    name = options.bounds
    reason = f"{network.neurons} ReLUs"
    if name == AUTO:
        few_inputs = network.inputs <= FEW_INPUTS and options.device != "cuda" and options.branching == AUTO
        if network.neurons <= FEW_RELUS and options.device != "cuda":
            name, reason = "lp", f"only {network.neurons} ReLUs"
        elif options.intermediate == "paper":
            name, reason = "lp", "the bounder of the paper"
        elif few_inputs and options.intermediate == AUTO:
            name, reason = "linear", f"only {network.inputs} inputs, which are halved"
        else:
            name = "dual"
        halves_inputs = Capability.INPUT_PARTS in options.needs
        if halves_inputs or not options.needs <= KNOWN_BOUNDERS.entry(name).offered(options.needs):
            name, reason = options.fitting()[0], "it has what the rule needs"
    return name, KNOWN_BOUNDERS.entry(name), reason


def _rule(
    options: Options, network: Network, bounder: str, entry: BounderEntry | None
) -> tuple[str, AbstractBrancher[Any], str | None]:
    """The rule's name, the rule, and the path of its weights if it is learnt."""
    if isinstance(options.branching, AbstractBrancher):
        return str(options.branching), options.branching, None
    name = options.branching
    if name == AUTO:
        halves_inputs = Capability.INPUT_PARTS in (options.offers or frozenset())
        users_rule = "babsb" if halves_inputs else "babsr"  # beside a bounder that the user made
        name = users_rule if entry is None else entry.usual_rule
        # A learnt rule, if there are weights for such networks, and only the sign is asked for, as in training.
        if entry is not None and entry.learnt_rule is not None and options.gap is None:
            from bough.learning.rules import known

            name = entry.learnt_rule if known(entry.learnt_rule, bounder, network.inputs) else name
    rule = KNOWN_RULES.entry(name)
    weights = options.weights
    if rule.learnt:
        from bough.learning.rules import weights_for

        weights = weights_for(name, weights, bounder, network.inputs)
    return name, rule.make(RuleSettings(options.seed, weights, bounder)), weights


def _falsifier(options: Options, device: str) -> AbstractFalsifier:
    """The falsifier, which runs before the search and during it."""
    if not options.attack:
        return NoAttack()
    from bough.falsify.pgd import GradientAttack

    if device == "cuda":  # there, more restarts cost almost no time, and more steps do
        return GradientAttack(restarts=64, steps=15, seed=options.seed, device=device)
    return GradientAttack(seed=options.seed)


def _memory(options: Options, device: str) -> MemoryLimits:
    """How many bytes open domains may take; without a GPU, the device's memory is the host's."""
    host = free_memory() / 2 if options.memory is None else options.memory * 1e9
    if device == "cuda":
        return MemoryLimits(GPU_MEMORY_SHARE * torch.cuda.mem_get_info()[0], host)
    return MemoryLimits(host, 0.0)
