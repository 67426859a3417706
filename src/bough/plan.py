"""Options become objects, once: from options and a network to every object that a run needs.

API, command line, bench and labelling all hold the plan that was made, so what is recorded is what was used.
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

FEW_RELUS = 16  # up to so many, the LP's exact bounds are as cheap as anything
FEW_INPUTS = 8  # up to so many, halving inputs decides more than splitting ReLUs
DEVICE_SHARE = 0.4  # of a GPU's free memory, for open domains
FOREIGN_BATCH = 128  # domains split per step with bounds of a user's own
OWN = "own"  # what records say of the ReLU bounds of a bounder that takes no policy by name


@dataclass(frozen=True, eq=False)
class AbstractPlan(ABC):
    """What a run consists of; `settings` are what records say of it, `words` what people are told."""

    settings: Settings
    words: str

    @abstractmethod
    def solve(self, problem: Problem, observers: Sequence[AbstractObserver] = ()) -> Result:
        """Decide a problem; the time limit starts now."""


@final
@dataclass(frozen=True, eq=False)
class BaselinePlan(AbstractPlan):
    """A third-party solver is asked instead of searching."""

    baseline: AbstractBaseline

    def solve(self, problem: Problem, observers: Sequence[AbstractObserver] = ()) -> Result:
        """Ask the solver about clause after clause."""

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
        """Search; where a certificate is asked for, it is written meanwhile."""
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
    """What a run on this network consists of, with everything that is `auto` decided."""
    return search_plan(options, network) if options.method == AUTO else _baseline_plan(options)


def said_of(options: Options) -> Settings:
    """What a record says of options that no plan was made of, since the network could not be read."""
    said = {name: getattr(options, name) for name in ("batch", "seed", "timeout", "device", "weights", "semantics")}
    return Settings(str(options.bounds), str(options.intermediate), str(options.branching), **said)


def _baseline_plan(options: Options) -> BaselinePlan:
    entry = KNOWN_BASELINES.entry(options.method)
    solver = "highs" if options.solver == AUTO else options.solver
    name = solver if entry.mixed else entry.name
    by = f", by {SOLVERS[solver]}" if entry.mixed else ""
    return BaselinePlan(
        settings=replace(said_of(options), bounder=name, intermediate=entry.relu_bounds, branching=name, device="cpu"),
        words=f"{entry.name}: {entry.words}{by}",
        baseline=entry.make(BaselineSettings(solver, options.seed)),
    )


def search_plan(options: Options, network: Network) -> SearchPlan:
    """The search on this network; options that name a baseline as their method are refused."""
    if options.method != AUTO:
        raise BadInput(f"method {options.method} is a baseline, and here bough's own search is needed; give no method")
    name, entry = _bounds(options, network)
    device = options.device
    if isinstance(options.bounds, AbstractBounder):
        device = options.bounds.device
    elif device == AUTO:
        device = "cuda" if entry is not None and entry.gpu and torch.cuda.is_available() else "cpu"
    rule, brancher, weights = _rule(options, network, name, entry)
    policy_name = OWN if entry is None else str(options.intermediate)
    if options.intermediate == AUTO and entry is not None:
        policy_name = (entry.usual_relu_bounds if options.certificate is None else entry.certified_relu_bounds) or OWN
    if isinstance(options.bounds, AbstractBounder):
        bounder = options.bounds
    else:
        made = "fixed" if policy_name == OWN else policy_name  # a bounder with its own gets some all the same
        policy = options.relu_bounds() or KNOWN_RELU_BOUNDS.entry(made).make()
        if options.gap is not None or options.semantics == "float32":
            policy = policy.unconditional()  # a minimum is about safe points, too, and so is what execution makes of it
        halves = Capability.INPUT_PARTS in brancher.needs
        bounder = KNOWN_BOUNDERS.entry(name).make(BounderSettings(policy, device, halves))
    if not brancher.needs <= bounder.offers:
        needed = " and ".join(sorted(need.value for need in brancher.needs - bounder.offers))
        raise BadInput(f"'{rule}' needs {needed}, which {bounder} does not have; use others")
    batch = options.batch or (FOREIGN_BATCH if entry is None else entry.batch(network, device))
    settings = Settings(
        name, policy_name, rule, batch, options.seed, options.timeout, device, weights, options.semantics
    )
    reasons = {"dual": f"{network.neurons} ReLUs", "lp": f"only {network.neurons} ReLUs"}
    reason = reasons.get(name, f"only {network.inputs} inputs, which are halved")
    auto = f" (auto: {reason})" if options.bounds == AUTO else ""
    over = "" if policy_name == OWN else f" over {policy_name} ReLU bounds"
    by = "" if weights is None else f" by {Path(weights).name}"
    return SearchPlan(
        settings=settings,
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


def _bounds(options: Options, network: Network) -> tuple[str, BounderEntry | None]:
    """The name of the bounds, and their entry; None where they are a user's own object."""
    if isinstance(options.bounds, AbstractBounder):
        return str(options.bounds), None
    name = options.bounds
    if name == AUTO:
        small = network.neurons <= FEW_RELUS and options.device != "cuda"
        few = network.inputs <= FEW_INPUTS and options.device != "cuda" and options.branching == AUTO
        if Capability.INPUT_PARTS in options.needs:
            name = options.fitting()[0]
        elif small or options.intermediate == "paper":
            name = "lp"
        else:
            name = "linear" if few and options.intermediate == AUTO else "dual"
        if not options.needs <= KNOWN_BOUNDERS.entry(name).offered(options.needs):
            name = options.fitting()[0]
    return name, KNOWN_BOUNDERS.entry(name)


def _rule(
    options: Options, network: Network, bounder: str, entry: BounderEntry | None
) -> tuple[str, AbstractBrancher[Any], str | None]:
    """The rule's name, the rule, and the weights it has if it is learnt."""
    if isinstance(options.branching, AbstractBrancher):
        return str(options.branching), options.branching, None
    name = options.branching
    if name == AUTO:
        halves = Capability.INPUT_PARTS in (options.offers or frozenset())
        own_rule = "babsb" if halves else "babsr"  # for bounds of a user's own
        name = own_rule if entry is None else entry.usual_rule
        # A learnt rule, where weights are for such networks and a sign is asked for: that is what weights learnt from.
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

    if device == "cuda":  # on a GPU more restarts cost nearly nothing, more steps do
        return GradientAttack(restarts=64, steps=15, seed=options.seed, device=device)
    return GradientAttack(seed=options.seed)


def _memory(options: Options, device: str) -> MemoryLimits:
    """What open domains may take."""
    host = free_memory() / 2 if options.memory is None else options.memory * 1e9
    if device == "cuda":
        return MemoryLimits(DEVICE_SHARE * torch.cuda.mem_get_info()[0], host)
    return MemoryLimits(host, 0.0)
