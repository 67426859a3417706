"""The two questions users ask, as functions: is this property true, and is this image robust. Thin over one search."""

import math
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from operator import index
from pathlib import Path
from typing import Any

import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from bough.baselines import BY_OTHERS, METHODS, MIXED, NAIVE_RULE
from bough.baselines.base import AbstractBaseline
from bough.baselines.marabou import Marabou
from bough.baselines.mip import MixedInteger
from bough.baselines.progressive import ProgressiveBounds
from bough.bounds.base import AbstractBounder
from bough.bounds.boxes import HalvedLP, LinearBounds
from bough.bounds.dual import DualAscent
from bough.bounds.execution import Execution
from bough.bounds.intermediate import AbstractIntermediate, PaperBounds, TightBounds
from bough.bounds.lp import PlanetLP
from bough.bounds.optimised import OptimisedBounds
from bough.bounds.witness import AbstractWitness
from bough.branching import INPUT_RULES, LEARNT_RULES, RULES
from bough.branching.babsr import BaBSR
from bough.branching.base import AbstractBrancher
from bough.branching.earliest import Earliest
from bough.branching.filtered import Filtered
from bough.branching.gradient import SteepestGradient
from bough.branching.inputs import BaBSB, Combined, Longest, Smear
from bough.branching.random import RandomChoice
from bough.branching.strong import Strong
from bough.branching.subset import Subset
from bough.branching.widest import Widest
from bough.budget import Deadline, free_memory
from bough.errors import BadInput, NetworkError
from bough.falsify.base import AbstractFalsifier, NoAttack
from bough.falsify.pgd import GradientAttack
from bough.files.reading import NETWORK_LIMIT, read_bytes
from bough.network.graph import Network
from bough.problem.images import as_pixels, fitted, read_image
from bough.problem.problem import Evaluator, Problem
from bough.problem.property import Property, image_property
from bough.problem.runtime import Reference, compare
from bough.problem.vnnlib import read_property
from bough.search.certify import Certifier
from bough.search.loop import Goal, Memory, Search, search
from bough.search.observe import AbstractObserver
from bough.solvers import marabou
from bough.solvers.mixed import SOLVERS, check_installed
from bough.verdict.result import Result

INTERMEDIATES = ("tight", "fixed", "paper", "optimised")
IMAGE_AXES = 3  # channels, height, width
COMPARED = 4  # random points, of each kind, at which a network is held against its runtime
BOUNDS, DEVICES = ("lp", "dual", "linear"), ("cpu", "cuda")
AUTO = "auto"
SEMANTICS = ("real", "float32")
FEW_RELUS = 16  # up to so many, the LP's exact bounds are as cheap as anything
FEW_INPUTS = 8  # up to so many, halving inputs decides more than splitting ReLUs
BATCH = {"lp": 8, "linear": 64, "cpu": 128, "cuda": 8192}  # domains split per step
CPU_RELUS = 1 << 17  # ReLUs of all domains of a step on the CPU
USUAL_RULE = {"lp": "babsr", "dual": "kfsb", "linear": "babsb"}
LEARNT_RULE = "learnt-local"  # instead of it, where weights are for such networks
USUAL_RELU_BOUNDS = {"lp": "tight", "dual": "optimised", "linear": "tight"}
DEVICE_SHARE = 0.4  # of a GPU's free memory, for open domains
ROOM_SHARE = 0.25  # of a GPU's free memory, for the domains that are being bounded


@dataclass(frozen=True)
class Options:
    """How to search; `auto` is decided when the problem is known. `gap` asks for the minimum to within it instead of a
    verdict.
    """

    timeout: float | None = None
    bounds: str = AUTO
    branching: str | AbstractBrancher = AUTO
    intermediate: str | AbstractIntermediate = AUTO
    attack: bool = True
    gap: float | None = None
    batch: int | None = None  # domains split per step; 1 gives the paper's branch counts
    levels: int = 1  # most ReLUs of a domain split in one step, while there are too few domains to fill it
    seed: int = 0
    device: str = AUTO
    memory: float | None = None  # GB of host memory for open domains
    most_bounds: int | None = None  # the search ends, as by a timeout, with the step that reaches so many
    method: str = AUTO  # the search, or the name of a baseline
    solver: str = AUTO  # of a baseline that is a mixed-integer program
    weights: str | None = None  # of a learnt rule: a file, or the name of one that comes with bough
    preset: str | None = None  # of a learnt rule: the kind of model, where bough is to find the weights
    certificate: str | Path | None = None  # a file for the proof, which `bough check` reads
    semantics: str = "real"  # what `verified` is about: the weights in real arithmetic, or every float32 execution, too

    def __post_init__(self) -> None:
        if self.timeout is not None and not self.timeout >= 0:
            raise BadInput(f"the timeout is {self.timeout}; give seconds, 0 or more")
        if self.gap is not None and not 0 < self.gap < math.inf:
            raise BadInput(f"the gap is {self.gap}; give a finite number above 0")
        if not 0 <= self.seed < 1 << 63:
            raise BadInput(f"the seed is {self.seed}; give a whole number from 0 to 2^63 - 1")
        if self.batch is not None and self.batch < 1:
            raise BadInput(f"the batch is {self.batch}; give a whole number, 1 or more")
        if self.levels < 1:
            raise BadInput(f"the levels are {self.levels}; give a whole number, 1 or more")
        if self.memory is not None and not self.memory > 0:
            raise BadInput(f"the memory is {self.memory}; give GB, more than 0")
        if self.most_bounds is not None and self.most_bounds < 0:
            raise BadInput(f"the most bounds are {self.most_bounds}; give a whole number, 0 or more")
        _known("branching rule", self.branching, RULES)
        _known("bounds", self.bounds, BOUNDS)
        _known("intermediate bounds", self.intermediate, INTERMEDIATES)
        _known("device", self.device, DEVICES)
        _known("method", self.method, METHODS)
        _known("solver", self.solver, SOLVERS)
        if self.semantics not in SEMANTICS:
            raise BadInput(f"there are no semantics '{self.semantics}'; there are: {', '.join(SEMANTICS)}")
        if self.semantics == "float32" and self.gap is not None:
            raise BadInput("a minimum is one of real arithmetic; leave out --semantics float32, or --minimise")
        self._check_method()
        self._check_certificate()
        self._check_together()

    def _check_together(self) -> None:
        """Bounds, rule and device have to fit."""
        if self.device == "cuda" and not torch.cuda.is_available():
            raise BadInput("PyTorch finds no CUDA device here; use --device cpu, or see what `bough doctor` says")
        if self.device == "cuda" and self.bounds in ("lp", "linear"):
            raise BadInput(f"{self.bounds} bounds run on the CPU only; use --bounds dual with --device cuda")
        for name in ("weights", "preset"):
            if getattr(self, name) is not None and self.branching not in LEARNT_RULES:
                raise BadInput(f"only learnt rules have {name}: give --branching {', '.join(LEARNT_RULES)}")
        halving = self.branching in INPUT_RULES
        fitting = ("lp",) if self.branching == "shadow" else ("linear", "lp")
        if halving and (self.bounds not in (AUTO, *fitting) or self.device == "cuda"):
            raise BadInput(f"'{self.branching}' halves inputs, which needs --bounds {' or '.join(fitting)}, on the CPU")
        if self.bounds == "linear" and isinstance(self.branching, str) and not halving and self.branching != AUTO:
            raise BadInput(f"linear bounds need a rule that halves inputs: {', '.join(INPUT_RULES)}")

    def _check_certificate(self) -> None:
        """What cannot be written down is refused before anything is searched."""
        if self.certificate is None:
            return
        if self.method != AUTO:
            raise BadInput(f"method {self.method} gives no proof; leave out --certificate, or give no --method")
        if self.gap is not None:
            raise BadInput("a certificate proves a sign, not a minimum; leave out --minimise or --certificate")
        if self.semantics != "real":
            raise BadInput("a certificate is about real arithmetic; leave out --semantics float32, or --certificate")
        if self.branching == "shadow" or (self.branching in INPUT_RULES and self.bounds == "lp"):
            raise BadInput("LPs over halved inputs cannot be certified yet; use --bounds linear, or no --certificate")
        if self.intermediate in ("tight", "paper") and self.bounds != "linear":
            raise BadInput(
                f"ReLU bounds that are renewed after splits ({self.intermediate}) cannot be certified yet; use "
                "--intermediate fixed or optimised, or no --certificate"
            )
        if isinstance(self.intermediate, AbstractIntermediate) and self.intermediate.refreshes:
            raise BadInput("ReLU bounds that are renewed after splits cannot be certified yet; give no certificate")

    def _check_method(self) -> None:
        """A baseline takes few options; one that it would not heed is refused, and so is a solver that is not there."""
        if self.solver != AUTO:
            if self.method not in MIXED:
                raise BadInput(
                    f"only {' and '.join(MIXED)} take a solver; give one of them by --method, or no --solver"
                )
            check_installed(self.solver)
        if self.method == "relu-bab" and self.bounds not in (AUTO, "lp"):
            raise BadInput(f"method relu-bab has LP bounds; leave out --bounds {self.bounds}, or give no --method")
        if self.method not in BY_OTHERS:
            return
        plain = Options()
        for name in (
            "bounds",
            "branching",
            "intermediate",
            "gap",
            "batch",
            "levels",
            "memory",
            "most_bounds",
            "semantics",
        ):
            if getattr(self, name) != getattr(plain, name):
                raise BadInput(f"method {self.method} takes no option '{name}'; leave it out, or give no --method")
        if self.device == "cuda":
            raise BadInput(f"method {self.method} runs on the CPU only; leave out --device cuda")
        if self.method == "marabou":
            marabou.check_installed()

    def resolved(self, network: Network) -> "Options":
        """The same with everything that is `auto` decided for a network."""
        if self.method in BY_OTHERS:
            solver = "highs" if self.method in MIXED and self.solver == AUTO else self.solver
            return replace(self, solver=solver, device="cpu")
        if self.method == "relu-bab":
            rule = NAIVE_RULE if self.branching == AUTO else self.branching
            decided = replace(self, method=AUTO, bounds="lp", branching=rule).resolved(network)
            return replace(decided, method=self.method)
        bounds = self._bounds(network)
        device = self.device
        if device == AUTO:
            device = "cuda" if bounds == "dual" and torch.cuda.is_available() else "cpu"
        rule = self._rule(network, bounds) if self.branching == AUTO else self.branching
        weights = self.weights
        if rule in LEARNT_RULES:
            from bough.learning.rules import found

            weights = found(str(rule), self.weights, self.preset, bounds, network.inputs)
        return replace(
            self,
            weights=weights,
            bounds=bounds,
            device=device,
            branching=rule,
            intermediate=self._intermediate(bounds) if self.intermediate == AUTO else self.intermediate,
            batch=self.batch or _batch(network, bounds, device),
        )

    def _rule(self, network: Network, bounds: str) -> str:
        """A learnt rule where there are weights for such networks, and a sign is asked for, which they learnt about."""
        if bounds == "dual" and self.gap is None:
            from bough.learning.rules import known

            if known(LEARNT_RULE, bounds, network.inputs):
                return LEARNT_RULE
        return USUAL_RULE[bounds]

    def _intermediate(self, bounds: str) -> str:
        if self.certificate is not None and bounds == "lp":  # renewed bounds would need a proof in every leaf
            return "fixed"
        return USUAL_RELU_BOUNDS[bounds]

    def _bounds(self, network: Network) -> str:
        if self.bounds != AUTO:
            return self.bounds
        if self.branching in INPUT_RULES:
            return "lp" if self.branching == "shadow" else "linear"
        small = network.neurons <= FEW_RELUS and self.device != "cuda"
        if small or self.intermediate == "paper":
            return "lp"
        few = network.inputs <= FEW_INPUTS and self.device != "cuda" and self.branching == AUTO
        return "linear" if few and self.intermediate == AUTO else "dual"

    def why(self, network: Network) -> str:
        """What `auto` chose, in words."""
        chosen = self.resolved(network)
        if self.method in MIXED:
            return f"{self.method}: {METHODS[self.method]}, by {SOLVERS[chosen.solver]}"
        if self.method in BY_OTHERS:
            return f"{self.method}: {METHODS[self.method]}"
        reasons = {"dual": f"{network.neurons} ReLUs", "lp": f"only {network.neurons} ReLUs"}
        reason = reasons.get(chosen.bounds, f"only {network.inputs} inputs, which are halved")
        said = f" (auto: {reason})" if self.bounds == AUTO and self.method == AUTO else ""
        by = "" if chosen.weights is None else f" by {Path(chosen.weights).name}"
        return (
            f"{chosen.bounds} bounds{said} on {chosen.device} over {chosen.intermediate} ReLU bounds, "
            f"{chosen.branching} branching{by}, {chosen.batch} domains a step"
        )

    def told(self) -> dict[str, Any]:
        """What a record says of these options, by the names it gives them."""
        by = self.method if self.method not in MIXED else self.solver
        known = {"mip-planet": "paper", "mip-tight": "progressive"}.get(self.method, "own")
        others = self.method in BY_OTHERS
        return {
            "bounder": by if others else self.bounds,
            "intermediate": known if others else str(self.intermediate),
            "branching": by if others else str(self.branching),
            "batch": self.batch,
            "levels": self.levels,
            "seed": self.seed,
            "timeout": self.timeout,
            "device": self.device,
            "weights": self.weights,
            "semantics": self.semantics,
        }

    def baseline(self) -> AbstractBaseline:
        """The solver that is asked instead of searching."""
        if self.method == "marabou":
            return Marabou()
        tight = self.method == "mip-tight"
        return MixedInteger(ProgressiveBounds() if tight else PaperBounds(), self.solver, self.seed)

    def brancher(self) -> AbstractBrancher:
        """The branching rule."""
        if isinstance(self.branching, AbstractBrancher):
            return self.branching
        if self.branching in LEARNT_RULES:
            from bough.learning.rules import learnt

            return learnt(self.branching, self.weights, self.preset, self.bounds)
        rules: Mapping[str, AbstractBrancher] = {
            "babsr": BaBSR(),
            "babsr-min": BaBSR(worse_side=True),
            "fsb": Filtered(product=False),
            "kfsb": Filtered(best=8),
            "strong": Strong(),
            "strong-min": Strong("min"),
            "strong-max": Strong("max"),
            "strong-product": Strong("product"),
            "strong-tree": Strong("tree"),
            "strong-subset": Strong(subset=Subset(seed=self.seed)),
            "gradient": SteepestGradient(),
            "earliest": Earliest(),
            "widest": Widest(),
            "random": RandomChoice(self.seed),
            "babsb": BaBSB(),
            "smear": Smear(),
            "shadow": Smear(),
            "longest": Longest(),
            "combined": Combined(),
        }
        return rules[self.branching]

    def bounder(self, witness: AbstractWitness | None = None) -> AbstractBounder:
        """The bounds."""
        chosen = self.intermediate
        if isinstance(chosen, str):
            policies: Mapping[str, AbstractIntermediate] = {
                "tight": TightBounds(refresh=True),
                "fixed": TightBounds(refresh=False),
                "paper": PaperBounds(),
                "optimised": OptimisedBounds(),
            }
            chosen = policies[chosen]
        if (self.gap is not None or self.semantics == "float32") and isinstance(chosen, OptimisedBounds):
            # A minimum is about safe points, too, and so is what execution makes of them.
            chosen = replace(chosen, unsafe_only=False)
        if isinstance(chosen, OptimisedBounds):
            chosen = replace(chosen, witness=witness)
        if self.bounds == "linear":
            return LinearBounds()
        if self.bounds == "lp":
            return HalvedLP() if self.branching in INPUT_RULES else PlanetLP(chosen)
        return DualAscent(intermediate=chosen, device=self.device, witness=witness)

    def falsifier(self) -> AbstractFalsifier:
        """The attack that goes first."""
        if not self.attack:
            return NoAttack()
        if self.device == "cuda":  # where points are free and steps are not
            return GradientAttack(restarts=64, steps=15, seed=self.seed, device=self.device)
        return GradientAttack(seed=self.seed)

    def budget(self) -> Memory:
        """What open domains may take."""
        host = free_memory() / 2 if self.memory is None else self.memory * 1e9
        if self.device == "cuda":
            return Memory(DEVICE_SHARE * torch.cuda.mem_get_info()[0], host)
        return Memory(host, 0.0)


def _known(what: str, name: object, names: Collection[str]) -> None:
    if isinstance(name, str) and name != AUTO and name not in names:
        raise BadInput(f"there is no {what} '{name}'; there are: {', '.join((AUTO, *names))}")


def _batch(network: Network, bounds: str, device: str) -> int:
    """Domains split per step, from what two children of each take while they are bounded."""
    if bounds in BATCH:
        return BATCH[bounds]
    if device == "cpu":  # small networks are all overhead, and want more at once
        return min(1024, max(BATCH["cpu"], CPU_RELUS // max(1, network.neurons)))
    # Bounds and coefficients of every ReLU in float64, and some dozen arrays over ambiguous ReLUs and inputs.
    each = 2 * 8 * (8 * network.neurons + 4 * network.inputs)
    fits = int(ROOM_SHARE * torch.cuda.mem_get_info()[0] / each)
    return max(1, min(BATCH["cuda"], 1 << max(0, fits.bit_length() - 1)))


@dataclass(frozen=True, eq=False)
class LoadedNetwork:
    """A network as bough reads it, beside the runtime that answers for the original."""

    network: Network
    reference: Evaluator
    name: str


def load_network(network: str | Path | nn.Module, input_shape: Sequence[int] | None = None) -> LoadedNetwork:
    """Read an ONNX file, or a PyTorch module (whose input shape, without a batch axis, must be given)."""
    if isinstance(network, nn.Module):
        from bough.problem.torch import ModuleReference, read_module

        if input_shape is None:
            raise NetworkError("a PyTorch module does not tell its input shape; give input_shape, without a batch axis")
        read = read_module(network, input_shape)
        return LoadedNetwork(read, ModuleReference(network, input_shape), type(network).__name__)
    from bough.problem.onnx import read_network

    data = read_bytes(network, NETWORK_LIMIT, NetworkError)
    try:
        return LoadedNetwork(read_network(data), Reference(data), str(network))
    except NetworkError as error:
        raise type(error)(f"{network}: {error}") from error


def load_problem(loaded: LoadedNetwork, asked: str | Path | Property) -> Problem:
    """Join a network and a property; the network is held against its runtime at random points, and in the first box."""
    prop = asked if isinstance(asked, Property) else read_property(asked)
    name = "property" if isinstance(asked, Property) else str(asked)
    problem = Problem(loaded.network, prop, loaded.reference, loaded.name, name)
    compare(loaded.network, loaded.reference, points=COMPARED)
    compare(loaded.network, loaded.reference, points=COMPARED, lower=prop.boxes[0].lower, upper=prop.boxes[0].upper)
    return problem


def solve(problem: Problem, options: Options, observers: Sequence[AbstractObserver] = ()) -> Result:
    """Search a problem that is already loaded; the time limit starts now."""
    deadline, chosen = Deadline.after(options.timeout), options.resolved(problem.network)
    if chosen.method in BY_OTHERS:

        def say(line: str, seconds: float) -> None:
            for observer in observers:
                observer.told(line, seconds)

        return chosen.baseline().solve(problem, deadline, say)
    witness = None if chosen.certificate is None else Certifier(problem, Path(chosen.certificate))
    run = Search(
        problem,
        chosen.bounder(witness),
        chosen.brancher(),
        chosen.falsifier(),
        deadline,
        Goal(chosen.gap),
        chosen.batch or 1,
        chosen.levels,
        chosen.budget(),
        math.inf if chosen.most_bounds is None else chosen.most_bounds,
        tuple(observers),
        witness,
        Execution(problem) if chosen.semantics == "float32" else None,
    )
    if witness is None:
        return search(run)
    try:
        result = search(run)
        witness.finish(result)
        return replace(result, notes={**result.notes, **witness.notes()})
    finally:
        witness.close()


def verify(
    network: str | Path | nn.Module,
    property: str | Path | Property,  # noqa: A002 - the word users know
    *,
    input_shape: Sequence[int] | None = None,
    **options: Any,
) -> Result:
    """Prove the property or find a counterexample.

    `network` is an ONNX file or a PyTorch module (then give `input_shape`), `property` a VNN-LIB file or a
    `Property`; `options` are the fields of `Options`, such as `timeout=60`. Bad input raises `bough.BadInput`;
    running out of time is a verdict.
    """
    chosen = Options(**options)
    return solve(load_problem(load_network(network, input_shape), property), chosen)


def minimum(
    network: str | Path | nn.Module,
    property: str | Path | Property,  # noqa: A002 - as above
    *,
    gap: float = 1e-4,
    input_shape: Sequence[int] | None = None,
    **options: Any,
) -> Result:
    """The least margin over the property's boxes: `lower_bound` is proved, `upper_bound` attained, at most `gap` apart.

    The margin of a point is the largest row `coefficients @ y - offset` of a clause, least over the clauses (rows of
    a clause with several are scaled to about unit norm); at or below 0 is unsafe.
    """
    return verify(network, property, input_shape=input_shape, gap=gap, **options)


def robustness(  # noqa: PLR0913 - the words in which the question is asked
    network: str | Path | nn.Module,
    image: Tensor | NDArray[Any] | str | Path,
    label: int,
    eps: float,
    *,
    target: int | None = None,
    mean: float | Sequence[float] = 0.0,
    std: float | Sequence[float] = 1.0,
    clip: tuple[float, float] | None = (0.0, 1.0),
    norm: str | float = "inf",
    **options: Any,
) -> Result:
    """Prove that no image within `eps` of `image` is given another class than `label`, or find one.

    `image`, [channels, height, width] as a rule, or a file; `eps` and `clip` are in pixel values from 0 to 1 (integers
    are divided by 255). The network sees `(pixel - mean) / std`, per channel. `target` asks about one other class only.
    `norm` is what `eps` limits: the change of every pixel ("inf"), the Euclidean distance of the images ("2"), or the
    sum of all changes ("1").
    """
    chosen = Options(**options)
    pixels = read_image(Path(image)) if isinstance(image, str | Path) else as_pixels(image)
    alone = tuple(pixels.shape[1:]) if pixels.ndim == IMAGE_AXES + 1 and len(pixels) == 1 else tuple(pixels.shape)
    loaded = load_network(network, alone)
    pixels = fitted(pixels, loaded.network.input_shape)
    asked = image_property(
        pixels, index(label), eps, loaded.network.outputs, target=target, mean=mean, std=std, clip=clip, norm=norm
    )
    return solve(load_problem(loaded, asked), chosen)
