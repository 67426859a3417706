"""What a user says of a run, in words and numbers: checked by itself and together, before anything is read or searched.

A question, a strategy and a budget; `bough.plan` makes objects of them for a network.
"""

import math
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch

from bough.baselines.base import KNOWN_BASELINES
from bough.bounds.base import KNOWN_BOUNDERS, AbstractBounder, Capability
from bough.bounds.intermediate import KNOWN_RELU_BOUNDS, AbstractIntermediate
from bough.branching.base import KNOWN_RULES, AbstractBrancher
from bough.errors import BadInput
from bough.solvers.mixed import SOLVERS, check_installed

AUTO = "auto"
DEVICES = ("cpu", "cuda")
SEMANTICS = ("real", "float32")


@dataclass(frozen=True, kw_only=True)
class Question:
    """What is asked of a problem; `gap` asks for the minimum to within it instead of a verdict."""

    gap: float | None = None
    semantics: str = "real"  # what `verified` is about: the weights in real arithmetic, or every float32 execution, too
    certificate: str | Path | None = None  # a file for the proof, which `bough check` reads

    def __post_init__(self) -> None:
        if self.gap is not None and not 0 < self.gap < math.inf:
            raise BadInput(f"the gap is {self.gap}; give a finite number above 0")
        if self.semantics not in SEMANTICS:
            raise BadInput(f"there are no semantics '{self.semantics}'; there are: {', '.join(SEMANTICS)}")
        if self.semantics == "float32" and self.gap is not None:
            raise BadInput("a minimum is one of real arithmetic; leave out --semantics float32, or --minimise")
        if self.certificate is not None and self.gap is not None:
            raise BadInput("a certificate proves a sign, not a minimum; leave out --minimise or --certificate")
        if self.certificate is not None and self.semantics != "real":
            raise BadInput("a certificate is about real arithmetic; leave out --semantics float32, or --certificate")


@dataclass(frozen=True, kw_only=True)
class Budget:
    """What a search may take."""

    timeout: float | None = None  # seconds
    memory: float | None = None  # GB of host memory for open domains
    most_bounds: int | None = None  # the search ends, as by a timeout, with the step that reaches so many

    def __post_init__(self) -> None:
        if self.timeout is not None and not self.timeout >= 0:
            raise BadInput(f"the timeout is {self.timeout}; give seconds, 0 or more")
        if self.memory is not None and not self.memory > 0:
            raise BadInput(f"the memory is {self.memory}; give GB, more than 0")
        if self.most_bounds is not None and self.most_bounds < 0:
            raise BadInput(f"the most bounds are {self.most_bounds}; give a whole number, 0 or more")


@dataclass(frozen=True, kw_only=True)
class Strategy:
    """How to search; `auto` is decided when the network is known."""

    bounds: str | AbstractBounder = AUTO
    branching: str | AbstractBrancher[Any] = AUTO
    intermediate: str | AbstractIntermediate = AUTO
    attack: bool = True
    batch: int | None = None  # domains split per step; 1 gives the paper's branch counts
    seed: int = 0
    device: str = AUTO
    weights: str | None = None  # of a learnt rule: a file, or the name of one that comes with bough
    method: str = AUTO  # the search, or the name of a baseline
    solver: str = AUTO  # of a baseline that is a mixed-integer program

    def __post_init__(self) -> None:
        if not 0 <= self.seed < 1 << 63:
            raise BadInput(f"the seed is {self.seed}; give a whole number from 0 to 2^63 - 1")
        if self.batch is not None and self.batch < 1:
            raise BadInput(f"the batch is {self.batch}; give a whole number, 1 or more")
        for name, known in (
            (self.branching, KNOWN_RULES),
            (self.bounds, KNOWN_BOUNDERS),
            (self.intermediate, KNOWN_RELU_BOUNDS),
            (self.method, KNOWN_BASELINES),
        ):
            if isinstance(name, str) and name != AUTO:
                known.check(name)
        for kind, name, names in (("device", self.device, DEVICES), ("solver", self.solver, tuple(SOLVERS))):
            if name not in (AUTO, *names):
                raise BadInput(f"there is no {kind} '{name}'; there are: {', '.join((AUTO, *names))}")
        self._check_device()
        self._check_bounder()
        self._check_rule()
        self._check_trees()

    @property
    def needs(self) -> frozenset[Capability]:
        """What the branching rule needs of the bounds."""
        if isinstance(self.branching, AbstractBrancher):
            return self.branching.needs
        return frozenset() if self.branching == AUTO else KNOWN_RULES.entry(self.branching).needs

    @property
    def learnt(self) -> bool:
        """Whether the branching rule is asked for by name and needs weights."""
        named = isinstance(self.branching, str) and self.branching != AUTO
        return named and KNOWN_RULES.entry(str(self.branching)).learnt

    @property
    def offers(self) -> frozenset[Capability] | None:
        """What the bounds offer, at most; None where they are not chosen yet."""
        if isinstance(self.bounds, AbstractBounder):
            return self.bounds.offers
        if self.bounds == AUTO:
            return None
        entry = KNOWN_BOUNDERS.entry(self.bounds)
        return entry.offers | entry.halved if self.branching == AUTO else entry.offered(self.needs)

    def fitting(self) -> tuple[str, ...]:
        """The names of the bounds that offer what the rule needs, on the device asked for."""
        fits = (e for e in KNOWN_BOUNDERS.entries() if self.needs <= e.offered(self.needs))
        return tuple(entry.name for entry in fits if entry.gpu or self.device != "cuda")

    def relu_bounds(self) -> AbstractIntermediate | None:
        """The policy of ReLU bounds that is asked for, by itself or within a bounder."""
        if isinstance(self.bounds, AbstractBounder):
            return self.bounds.intermediate
        if isinstance(self.intermediate, AbstractIntermediate):
            return self.intermediate
        return None if self.intermediate == AUTO else KNOWN_RELU_BOUNDS.entry(self.intermediate).make()

    def _check_device(self) -> None:
        if self.device != "cuda":
            return
        if not torch.cuda.is_available():
            raise BadInput("PyTorch finds no CUDA device here; use --device cpu, or see what `bough doctor` says")
        if isinstance(self.bounds, str) and self.bounds != AUTO and not KNOWN_BOUNDERS.entry(self.bounds).gpu:
            raise BadInput(f"{self.bounds} bounds run on the CPU only; use --bounds dual with --device cuda")

    def _check_bounder(self) -> None:
        """A bounder that is an object was made with ReLU bounds and for a device; one by name may have its own, too."""
        if isinstance(self.bounds, AbstractBounder):
            own = True
            if self.device not in (AUTO, self.bounds.device):
                raise BadInput(f"{self.bounds} is made for the device {self.bounds.device}; leave out --device")
        else:
            own = self.bounds != AUTO and KNOWN_BOUNDERS.entry(self.bounds).usual_relu_bounds is None
        if own and self.intermediate != AUTO:
            raise BadInput(f"{self.bounds} has ReLU bounds of its own; leave out --intermediate")

    def _check_trees(self) -> None:
        """Trees that nothing would grow are refused."""
        policy = self.relu_bounds()
        grows = self.offers is None or Capability.DEEPER_ROOTS in self.offers
        if policy is not None and policy.trees is not None and not grows:
            raise BadInput(f"{self.bounds} grows no trees; use --bounds dual, or --intermediate optimised")

    def _check_rule(self) -> None:
        """Bounds, rule and weights have to fit, named or not."""
        if self.weights is not None and not self.learnt:
            learnt = [entry.name for entry in KNOWN_RULES.entries() if entry.learnt]
            raise BadInput(f"only learnt rules have weights: give --branching {', '.join(learnt)}")
        fitting = self.fitting() if self.needs else ()
        offers = self.needs if self.offers is None else self.offers
        if self.needs and (self.needs - offers or not fitting):
            needed = " and ".join(sorted(need.value for need in self.needs))
            advice = "no bounds have all that"
            if fitting:
                advice = f"use --bounds {' or '.join(fitting)}"
            elif self.device == "cuda":
                advice = "no bounds have that on a GPU, use --device cpu"
            lacking = "" if self.bounds == AUTO else f", which {self.bounds} bounds do not have"
            raise BadInput(f"'{self.branching}' needs {needed}{lacking}; {advice}")
        if self.bounds == "linear" and self.branching != AUTO and Capability.INPUT_PARTS not in self.needs:
            halving = [entry.name for entry in KNOWN_RULES.entries() if Capability.INPUT_PARTS in entry.needs]
            raise BadInput(f"linear bounds need a rule that halves inputs: {', '.join(halving)}")


@dataclass(frozen=True, kw_only=True)
class Options(Budget, Question, Strategy):
    """All that a user can say of a run: a question, a strategy and a budget."""

    def __post_init__(self) -> None:
        Question.__post_init__(self)
        Strategy.__post_init__(self)
        Budget.__post_init__(self)
        self._check_method()
        if self.certificate is not None:
            self._check_certificate()
        policy = self.relu_bounds()
        everywhere = self.gap is not None or self.semantics == "float32"
        if everywhere and policy is not None and policy.conditional and isinstance(self.bounds, AbstractBounder):
            raise BadInput(f"a minimum and float32 are about safe points, too; {policy} in {self.bounds} is not")

    def _check_certificate(self) -> None:
        """What cannot be written down is refused before anything is searched."""
        if self.method != AUTO:
            raise BadInput(f"method {self.method} gives no proof; leave out --certificate, or give no --method")
        lp = self.bounds == "lp" or Capability.SHADOW_PRICES in self.needs
        if lp and Capability.INPUT_PARTS in self.needs:
            raise BadInput("LPs over halved inputs cannot be certified yet; use --bounds linear, or no --certificate")
        if self.offers is not None and Capability.EVIDENCE not in self.offers:
            raise BadInput(f"proofs by {self.bounds} cannot be written down; use other bounds, or no --certificate")
        policy = self.relu_bounds()
        if policy is not None and policy.uncertified is not None and self.bounds != "linear":
            name = policy if self.intermediate == AUTO else self.intermediate
            raise BadInput(
                f"ReLU bounds {policy.uncertified} ({name}) cannot be certified yet; use "
                "--intermediate fixed or optimised, or no --certificate"
            )

    def _check_method(self) -> None:
        """A baseline takes few options; one that it would not heed is refused, and so is a solver that is not there."""
        if self.solver != AUTO:
            mixed = [entry.name for entry in KNOWN_BASELINES.entries() if entry.mixed]
            if self.method not in mixed:
                raise BadInput(f"only {' and '.join(mixed)} take a solver; give one of them as method, or no solver")
            check_installed(self.solver)
        if self.method == AUTO:
            return
        plain = Options()
        for name in ("bounds", "branching", "intermediate", "gap", "batch", "memory", "most_bounds", "semantics"):
            if getattr(self, name) != getattr(plain, name):
                raise BadInput(f"method {self.method} takes no option '{name}'; leave it out, or give no --method")
        if self.device == "cuda":
            raise BadInput(f"method {self.method} runs on the CPU only; leave out --device cuda")
        KNOWN_BASELINES.entry(self.method).check()
