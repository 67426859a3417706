"""Times the batched dual ascent on the paper's networks: the data enter, tables, one JSON line and a picture leave.

    BOUGH_DATA=... python benchmarks/ascent.py [--device cuda] [--networks base,wide,deep] [--seconds 1]
                                               [--batches 64,1024] [--json ascent.jsonl] [--plot ascent.png]
    python benchmarks/ascent.py --from cpu.jsonl cuda.jsonl --plot ascent.png

For every network: domains per second of the bare ascent by batch size, none leaving early; how that compares with the
least time its operations and bytes take at the rates of this machine, measured by a large product and a large copy;
where the time goes; and how near the bounds come to the Planet LP's on the same domains. Domains lie on random
paths; the last split is by the search's own rule and they start from their parents' duals, as in a search; a batch
repeats them. Nothing is proved here, so
these are the figures of ascent alone: `benchmarks/search.py` has those of a whole search.

The floor counts the two products with the input's matrix and those between ReLUs, and each array that a pass over
memory reads or writes once (`PASSES`). Products and passes run one after the other, so their times are added.
"""

import argparse
import csv
import json
import math
import os
import platform
import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from statistics import median
from typing import Any, final

import numpy as np
import torch
from torch import Tensor
from torch.autograd import DeviceType  # type: ignore[attr-defined]  # public, but not marked so
from torch.profiler import ProfilerActivity, profile

from bough.api import load_network, load_problem
from bough.bounds import kernels
from bough.bounds.ascent import FUSED, Ascent, Climber, Duals, Functionals, fused_kernels
from bough.bounds.ascent import _load as load_buffers
from bough.bounds.dual import DualAscent
from bough.bounds.dual import _fresh as fresh_splits
from bough.bounds.intermediate import AbstractIntermediate
from bough.bounds.kernels import schedule
from bough.bounds.linear import Region
from bough.bounds.lp import BasisNumbers, PlanetLP
from bough.bounds.optimised import OptimisedBounds
from bough.bounds.reduced import Reduced
from bough.bounds.relaxation import AbstractSlopes, AdaptiveSlopes
from bough.bounds.witness import AbstractWitness
from bough.budget import Deadline, OutOfTime
from bough.domain.batch import Bounds, DomainBatch, split
from bough.network import walk
from bough.network.graph import Network
from bough.options import Options
from bough.plan import search_plan
from bough.problem.problem import Problem
from bough.problem.property import Box, robustness_property
from bough.report.record import revision
from bough.search.ahead import CountedLookAhead

MEAN, STD = np.array([0.485, 0.456, 0.406]).reshape(3, 1, 1), 0.225
IMAGES = {
    "base": 315,
    "deep": 30,
}  # else the first at hand; deep's first two are proved at the root and leave no domain
DOMAINS, DEPTH = 64, 8
STEPS = (20, 50)
BATCHES = {"cpu": (16, 64, 256, 1024), "cuda": (64, 1024, 4096, 16384)}
FEWER = (16, 64)  # on a CPU, for networks other than base
SECONDS = {"cpu": 0.5, "cuda": 2.0}  # of each measurement
RATES, LONGEST = (0.25, 0.1, 0.5), 100  # of the comparison with the LP: Adam's rates, and most steps
LP_DOMAINS, LP_SECONDS = 16, 12.0
REACHED = 0.9  # of the LP's gain over the start
# Arrays that each pass of a step reads or writes, once: per ReLU in float32, per ReLU in one byte (its sign).
PASSES = {
    "relax": (3, 1),  # nu, p; lam
    "follow": (4, 1),  # z, nu, p; x
    "climb": (9, 1),  # p, nu, z, both moments; p, both moments, the best p
}
PASSES_INPUT = 2  # per input, in the precision of the input's products: the functional, the corner
PASSES_HALF = (2, 2)  # per row, only where these are in float16: in float32 (lam, z), and in float16 (their copies)
PRODUCTS = (
    "gemm",
    "cutlass",
    "xmma",
    "convol",
    "gemv",
    "sm80",
    "sm90",
    "nvjet",
    "splitk",
    "::mm",
    "addmm",
    "bmm",
    "::mv",
    "addmv",
)


@dataclass(frozen=True, eq=False)
class Case:
    """A network under measurement: the problem, ascent on it, and domains with what they start from."""

    name: str
    image: int
    problem: Problem
    root: Region
    climber: Climber
    domains: DomainBatch
    functionals: Functionals
    start: Duals
    fresh: Tensor
    root_seconds: float

    def batch(self, size: int) -> tuple[Functionals, Duals, Tensor]:
        """The domains, repeated until there are `size`."""
        rows = torch.arange(size, device=self.start.p.device) % len(self.domains)
        return self.functionals[rows], self.start[rows], self.fresh[rows]


@dataclass(frozen=True)
class Machine:
    """What was measured of this machine: operations per second by precision, bytes per second of a copy."""

    name: str
    device: str
    single: float  # float32, or TF32 where the ascent uses it
    half: float | None
    copy: float


def paper_problem(data: Path, name: str) -> tuple[int, Problem]:
    """A property of the paper whose image is at hand, and the image's number."""
    images = np.load(data / "images" / "cifar10_part.npz")
    place = {int(index): k for k, index in enumerate(images["test_index"])}
    with (data / "paper_results.csv").open() as file:
        rows = [r for r in csv.DictReader(file) if r["network"] == f"cifar_{name}_kw" and int(r["image"]) in place]
    row = next(r for r in rows if int(r["image"]) == IMAGES.get(name, int(r["image"])))
    loaded = load_network(data / "networks" / f"cifar_{name}_kw.onnx")
    x = torch.tensor((images["test_images"][place[int(row["image"])]] / 255.0 - MEAN) / STD)
    label = int(walk.evaluate(loaded.network, x[None]).argmax())
    prop = robustness_property(x, float(row["eps"]), label, [int(row["target"])], loaded.network.outputs)
    return int(row["image"]), load_problem(loaded, prop)


def make_case(data: Path, name: str, device: str) -> Case:
    """Bound the root, and go down random paths."""
    image, problem = paper_problem(data, name)
    bounding = DualAscent(intermediate=OptimisedBounds(), device=device).prepare(problem)
    clock, generator = Deadline.never(), torch.Generator().manual_seed(0)
    domains = bounding.root(0.0, clock).domains
    root_seconds = clock.elapsed()
    for _ in range(DEPTH - 1):
        bounded = bounding.bound(split(domains, random_relus(domains, generator)), 0.0, clock).domains
        left = (bounded.lower <= 0).nonzero()[:, 0].cpu()
        left = left if len(left) else torch.arange(len(bounded))
        chosen = left[torch.randperm(len(left), generator=generator)[: DOMAINS // 2]]
        domains = bounded[chosen.to(bounded.lower.device)]
    rule = search_plan(Options(branching="kfsb", device=device), problem.network).brancher
    look = CountedLookAhead(bounding, clock, domains)
    domains = split(domains, rule.decide(rule.prepare(problem), domains, look).neurons)
    place = next(iter(bounding._places.values()))  # noqa: SLF001 - no one but a benchmark wants it
    functionals, start = bounding._functionals(place, domains)  # noqa: SLF001 - as above
    fresh = fresh_splits(place.net, domains)
    return Case(name, image, problem, place.root, place.climber, domains, functionals, start, fresh, root_seconds)


def random_relus(domains: DomainBatch, generator: torch.Generator) -> Tensor:
    """One ambiguous ReLU of each domain."""
    ambiguous = domains.bounds.ambiguous()
    luck = torch.rand(ambiguous.shape, generator=generator).to(ambiguous.device)
    return torch.where(ambiguous, luck, -1.0).argmax(dim=1)


def timed(call: Callable[[], object], device: str) -> float:
    """Seconds of one call, until the device has ended."""
    began = time.perf_counter()
    call()
    if device == "cuda":
        torch.cuda.synchronize()
    return time.perf_counter() - began


def per_call(call: Callable[[], object], seconds: float, device: str) -> float:
    """Mean seconds of a call, repeated for so long; the caller has warmed up."""
    calls, spent = 0, 0.0
    while calls == 0 or spent < seconds:
        spent += timed(call, device)
        calls += 1
    return spent / calls


def measure_machine(device: str) -> Machine:
    """A large product in each precision that is used, and a large copy."""
    side, length, seconds = (8192, 1 << 28, 0.5) if device == "cuda" else (1024, 1 << 25, 0.3)
    single = product_rate(side, torch.float32, seconds, device)
    half = product_rate(side, torch.float16, seconds, device) if device == "cuda" else None
    source, target = (torch.ones(length, device=device) for _ in range(2))
    timed(lambda: target.copy_(source), device)
    copy = 2 * 4 * length / per_call(lambda: target.copy_(source), seconds, device)
    name = (
        torch.cuda.get_device_name() if device == "cuda" else f"{platform.machine()}, {torch.get_num_threads()} thread"
    )
    return Machine(name, device, single, half, copy)


def product_rate(side: int, dtype: torch.dtype, seconds: float, device: str) -> float:
    """Operations per second of a square product, in TF32 where float32 is asked for, as the ascent does."""
    before, torch.backends.cuda.matmul.allow_tf32 = torch.backends.cuda.matmul.allow_tf32, True
    a, b = (torch.randn(side, side, device=device).to(dtype) for _ in range(2))
    out = torch.empty_like(a)
    timed(lambda: torch.mm(a, b, out=out), device)
    rate = 2 * side**3 / per_call(lambda: torch.mm(a, b, out=out), seconds, device)
    torch.backends.cuda.matmul.allow_tf32 = before
    return rate


def step_work(net: Reduced, *, half: bool, stem: bool) -> dict[str, float]:
    """Operations and bytes of one step of one domain."""
    (rows, inputs), n = net.inputs.shape, len(net.neurons)
    width = 2 if half else 4
    per_relu = sum(4 * floats + small for floats, small in PASSES.values())
    per_row = 4 * PASSES_HALF[0] + 2 * PASSES_HALF[1] if half else 0
    return {
        "operations_input": 4.0 * (net.stem.work if stem and net.stem is not None else rows * inputs),
        "operations_between": 4.0 * sum((p.stop - p.start) * (rows - p.stop) for p in net.layers),
        "bytes": float(per_relu * n + per_row * rows + width * PASSES_INPUT * inputs),
        "bytes_per_relu": float(per_relu + per_row),
        "bytes_per_input": float(width * PASSES_INPUT),
    }


def floor_of(net: Reduced, machine: Machine, batch: int) -> dict[str, Any]:
    """Least seconds of one step of one domain in a batch, by operations and by bytes."""
    cuda = machine.device == "cuda"
    half = cuda and batch >= FUSED and fused_kernels() is not kernels
    work = step_work(net, half=half, stem=not cuda and net.stem is not None)
    fast = machine.half if half and machine.half is not None else machine.single
    operations = work["operations_input"] / fast + work["operations_between"] / machine.single
    moved = work["bytes"] / machine.copy
    return {**work, "half": half, "operations_s": operations, "bytes_s": moved, "floor_s": operations + moved}


def measure_speed(case: Case, batch: int, seconds: float, machine: Machine) -> list[dict[str, Any]]:
    """The bare ascent at one batch size, for every number of steps."""
    functionals, start, fresh = case.batch(batch)
    least = floor_of(case.climber.net, machine, batch)
    entries: list[dict[str, Any]] = []
    first = timed(
        lambda: Ascent(steps=STEPS[0], pauses=()).run(case.climber, functionals, start, fresh), machine.device
    )
    for steps in STEPS:
        ascent = Ascent(steps=steps, pauses=())
        if machine.device == "cuda":
            ascent.run(case.climber, functionals, start, fresh)
        each = per_call(partial(ascent.run, case.climber, functionals, start, fresh), seconds, machine.device)
        share = least["floor_s"] * batch * steps / each
        entries.append({"batch": batch, "steps": steps, "seconds": each, "domains_per_second": batch / each})
        entries[-1] |= {"first_call_s": first, "share_of_floor": share, "floor": least}
    return entries


def measure_shares(case: Case, batch: int, device: str) -> dict[str, Any]:
    """Where the time of an ascent goes, by the names of kernels (on a CPU, of operators)."""
    functionals, start, fresh = case.batch(batch)
    ascent, cuda = Ascent(steps=STEPS[0], pauses=()), device == "cuda"
    ascent.run(case.climber, functionals, start, fresh)
    kinds = [ProfilerActivity.CPU, *([ProfilerActivity.CUDA] if cuda else [])]
    with profile(activities=kinds) as profiled:
        wall = timed(lambda: ascent.run(case.climber, functionals, start, fresh), device)
    spent: dict[str, float] = {}
    for event in profiled.key_averages():
        if not cuda:
            spent[event.key] = event.self_cpu_time_total / 1e6
        elif event.device_type == DeviceType.CUDA:
            spent[event.key] = event.self_device_time_total / 1e6
    total = sum(spent.values())
    if not total:
        return {"batch": batch, "products": None, "busy": None, "largest": []}
    products = sum(s for name, s in spent.items() if any(word in name.lower() for word in PRODUCTS))
    largest = sorted(spent.items(), key=lambda pair: -pair[1])[:6]
    shares = [(name[:60], s / total) for name, s in largest]
    return {"batch": batch, "products": products / total, "busy": total / wall, "largest": shares}


@final
@dataclass(frozen=True, eq=False)
class Given(AbstractIntermediate):
    """Root bounds that are known already, so that the LP stands on the same as ascent."""

    root: Region

    @property
    def slopes(self) -> AbstractSlopes:
        """Of the linear bounds before the LP; they decide nothing here."""
        return AdaptiveSlopes()

    def at_root(self, network: Network, box: Box, deadline: Deadline, witness: AbstractWitness | None = None) -> Region:
        """The region as given."""
        del network, box, deadline, witness
        return self.root

    def after_split(self, network: Network, region: Region, neurons: Tensor, deadline: Deadline) -> Bounds:
        """As they are."""
        del network, neurons, deadline
        return region.bounds


def lp_bounds(case: Case, seconds: float) -> list[float]:
    """The Planet LP's bounds of the first domains, as many as there is time for."""
    cpu = torch.device("cpu")
    bounds = Bounds(case.root.bounds.lower.cpu(), case.root.bounds.upper.cpu())
    sides, magnitude = (case.root.lower.cpu(), case.root.upper.cpu()), [m.cpu() for m in case.root.magnitude]
    root = replace(case.root, lower=sides[0], upper=sides[1], bounds=bounds, magnitude=magnitude)
    bounding = PlanetLP(Given(root), early_stop=False).prepare(case.problem)
    deadline, lower_bounds, basis = Deadline.after(seconds), [], BasisNumbers(torch.zeros(1, dtype=torch.int64))
    for k in range(min(LP_DOMAINS, len(case.domains))):
        one = case.domains[torch.tensor([k], device=case.domains.lower.device)].to(cpu)
        one = replace(one, lower=torch.full_like(one.lower, -torch.inf), start=basis)
        try:
            solved = bounding.bound(one, math.inf, deadline).domains
        except OutOfTime:
            break
        basis = solved.carried(BasisNumbers)
        lower_bounds.append(float(solved.lower))
    return lower_bounds


def trajectory(case: Case, count: int, rate: float) -> Tensor:
    """The best value of the first domains after 0, 1, ... steps, [steps + 1, domains]."""
    rows = torch.arange(count, device=case.start.p.device)
    functionals, table = case.functionals[rows], schedule(LONGEST, rate, Ascent().decay).to(case.start.p.device)
    moves = case.climber.at(count, functionals)
    load_buffers(moves.climb, functionals, case.start[rows], case.fresh[rows])
    moves.move("seat")
    values = [moves.climb.value[:count].clone()]
    for now in table:
        moves.climb.now.copy_(now)
        moves.move("step")
        values.append(moves.climb.value[:count].clone())
    return torch.stack(values).cummax(dim=0).values.cpu()


def measure_bounds(case: Case) -> dict[str, Any]:
    """Mean bounds of all domains at the start and after each number of steps."""
    runs = {
        k: Ascent(steps=k, pauses=()).run(case.climber, case.functionals, case.start, case.fresh) for k in (0, *STEPS)
    }
    return {"domains": len(case.domains), "mean": {k: float(run.value.mean()) for k, run in runs.items()}}


def measure_gap(case: Case, seconds: float) -> dict[str, Any]:
    """The same beside the LP, and how many steps most of the LP's gain takes, by Adam's rate."""
    began = time.perf_counter()
    exact = torch.tensor(lp_bounds(case, seconds))
    spent, use = time.perf_counter() - began, exact.isfinite()
    if not use.any():
        return {"why": f"no LP was solved to the end within {seconds:g} s"}
    paths = {rate: trajectory(case, len(exact), rate)[:, use] for rate in RATES}
    exact = exact[use]
    start, default = next(iter(paths.values()))[0], paths[RATES[0]]
    gains = {rate: (path - start) / (exact - start).clamp(min=1e-9) for rate, path in paths.items()}
    return {
        "domains": len(exact),
        "lp_seconds_each": spent / len(use),
        "lp": float(exact.mean()),
        "start": float(start.mean()),
        "mean": {k: float(default[k].mean()) for k in STEPS},
        "closed": {**{k: int((default[k] > 0).sum()) for k in STEPS}, "lp": int((exact > 0).sum())},
        "share_of_gain": {str(r): {k: median(g[k].tolist()) for k in STEPS} for r, g in gains.items()},
        "share_of_all": {str(r): shares_of_sum(path - start, exact - start) for r, path in paths.items()},
        "steps_to_gain": {str(r): median_steps(g) for r, g in gains.items()},
    }


def shares_of_sum(gained: Tensor, exact: Tensor) -> dict[int, float]:
    """What the domains gain together, as a share of what the LP gains."""
    return {k: float(gained[k].sum() / exact.sum()) for k in STEPS}


def median_steps(gain: Tensor) -> float | None:
    """Steps until enough is gained [steps, domains], in the median; None where that is not reached."""
    middle = median(steps_to(column) for column in gain.unbind(dim=1))
    return middle if math.isfinite(middle) else None


def steps_to(gain: Tensor) -> float:
    """The first step at which enough is gained; infinite if none."""
    at = (gain >= REACHED).nonzero()
    return float(at[0, 0]) if len(at) else math.inf


def why_no_lp() -> str | None:
    """What keeps the LP from running here."""
    try:
        import highspy  # noqa: F401 - only to see whether it is there
        import scipy  # noqa: F401 - as above
    except ImportError as missing:
        return f"{missing.name} is not installed"
    return None


def measure(case: Case, machine: Machine, options: argparse.Namespace) -> dict[str, Any]:
    """Everything about one network, printed as it comes."""
    net, device = case.climber.net, machine.device
    seconds = options.seconds or SECONDS[device]
    usual = FEWER if device == "cpu" and case.name != "base" else BATCHES[device]
    batches = tuple(map(int, options.batches.split(","))) if options.batches else usual
    rows, inputs = net.inputs.shape
    print(
        f"\n{case.name}, image {case.image}: {len(net.neurons)} ambiguous ReLUs, {rows} rows, {inputs} inputs; ", end=""
    )
    print(f"root {case.root_seconds:.1f} s; {len(case.domains)} domains of depth {int(case.domains.depth[0])}")
    speed = [entry for batch in batches for entry in measure_speed(case, batch, seconds, machine)]
    print_speed(speed)
    shares = measure_shares(case, batches[-1], device)
    print_shares(shares)
    reached = measure_bounds(case)
    means = ", ".join(f"{k} steps {value:.4f}" for k, value in reached["mean"].items())
    print(f"mean value of {reached['domains']} domains: {means}")
    absent = why_no_lp()
    gap = {"why": absent} if absent else measure_gap(case, options.lp_seconds)
    print_gap(gap)
    case.climber.forget()
    about = {"image": case.image, "ambiguous": len(net.neurons), "rows": rows, "inputs": inputs}
    return {**about, "root_s": case.root_seconds, "speed": speed, "shares": shares, "bounds": reached, "lp": gap}


def print_speed(speed: Sequence[dict[str, Any]]) -> None:
    """A table."""
    for least in {entry["floor"]["half"]: entry["floor"] for entry in speed}.values():
        print(
            f"a step of a domain{', products with the input in float16' if least['half'] else ''}: "
            f"{(least['operations_input'] + least['operations_between']) / 1e6:.2f} M operations "
            f"({least['operations_between'] / 1e6:.2f} between ReLUs), {least['operations_s'] * 1e6:.3g} us; "
            f"{least['bytes'] / 1e3:.1f} kB ({least['bytes_per_relu']:g} a ReLU, {least['bytes_per_input']:g} an "
            f"input), {least['bytes_s'] * 1e6:.3g} us"
        )
    print("| batch | steps | domains/s | us per domain and step | floor, us | floor/ours | first call, s |")
    print("|---|---|---|---|---|---|---|")
    for e in speed:
        step = e["seconds"] / e["batch"] / e["steps"]
        print(
            f"| {e['batch']} | {e['steps']} | {e['domains_per_second']:.0f} | {step * 1e6:.3g} | "
            f"{e['floor']['floor_s'] * 1e6:.3g} | {e['share_of_floor']:.2f} | {e['first_call_s']:.2f} |"
        )


def print_shares(shares: dict[str, Any]) -> None:
    """One line, and the largest."""
    if shares["products"] is None:
        print("the profiler saw no kernels; the shares are not known")
        return
    print(
        f"time at batch {shares['batch']}: {shares['products']:.0%} products, {1 - shares['products']:.0%} "
        f"element by element; {shares['busy']:.0%} of the wall clock is accounted for; largest: "
        + ", ".join(f"{name} {share:.0%}" for name, share in shares["largest"])
    )


def print_gap(gap: dict[str, Any]) -> None:
    """A line for the bounds, one for each rate."""
    if "why" in gap:
        print(f"no comparison with the LP: {gap['why']}")
        return
    means = ", ".join(f"{k} steps {value:.4f}" for k, value in gap["mean"].items())
    print(
        f"{gap['domains']} domains beside the LP ({gap['lp_seconds_each']:.2f} s each): start {gap['start']:.4f}, "
        f"{means}, LP {gap['lp']:.4f}"
    )
    print(f"closed: {', '.join(f'{count} by {who}' for who, count in told_closed(gap).items())}")
    print(f"| Adam's rate | share of the LP's gain, median | of all gains together | steps to {REACHED:.0%}, median |")
    print("|---|---|---|---|")
    for rate, steps in gap["steps_to_gain"].items():
        each, together = (
            ", ".join(f"{share:.0%} after {k}" for k, share in gap[what][rate].items())
            for what in ("share_of_gain", "share_of_all")
        )
        print(f"| {rate} | {each} | {together} | {f'over {LONGEST}' if steps is None else f'{steps:g}'} |")


def told_closed(gap: dict[str, Any]) -> dict[str, int]:
    """How many domains are closed, by whom."""
    return {"the LP" if k == "lp" else f"{k} steps": count for k, count in gap["closed"].items()}


def plot(lines: Sequence[dict[str, Any]], path: Path) -> None:
    """Seconds per domain by batch size, and by network size at the largest batch that all networks have."""
    import matplotlib as mpl

    mpl.use("Agg")
    import matplotlib.pyplot as plt

    figure, (left, right) = plt.subplots(1, 2, figsize=(11, 4.2), layout="constrained")
    for line in lines:
        machine, sizes = line["machine"]["name"], {}
        for name, entry in line["networks"].items():
            points = {e["batch"]: e["seconds"] / e["batch"] for e in entry["speed"] if e["steps"] == STEPS[0]}
            left.plot(list(points), list(points.values()), marker="o", label=f"{name}, {machine}")
            sizes[entry["ambiguous"]] = points
        shared = max(set.intersection(*(set(points) for points in sizes.values())))
        across = sorted((n, points[shared]) for n, points in sizes.items())
        right.plot([n for n, _ in across], [s for _, s in across], marker="o", label=f"{machine}, batch {shared}")
    left.set(xscale="log", yscale="log", xlabel="batch", ylabel=f"seconds per domain, {STEPS[0]} steps")
    right.set(yscale="log", xlabel="ambiguous ReLUs", ylabel=f"seconds per domain, {STEPS[0]} steps")
    for axes in (left, right):
        axes.grid(alpha=0.3)
        axes.legend(fontsize="small")
    figure.savefig(path, dpi=150)
    print(f"wrote {path}")


def run(options: argparse.Namespace) -> list[dict[str, Any]]:
    """Measure; a list of one line, or of none without the data."""
    data = Path(os.environ.get("BOUGH_DATA", "../shared")) / "data"
    if not data.is_dir():
        print(f"no data at {data}; set BOUGH_DATA to the folder that holds data/")
        return []
    torch.set_num_threads(options.threads)
    machine = measure_machine(options.device)
    load = os.getloadavg()[0]
    half = "" if machine.half is None else f"{machine.half / 1e12:.3g} T in float16, "
    print(
        f"{machine.name}: {machine.single / 1e12:.3g} T operations/s, {half}copies {machine.copy / 1e9:.3g} GB/s; ",
        end="",
    )
    print(f"load {load:.1f}")
    networks = {}
    for name in options.networks.split(","):
        networks[name] = measure(make_case(data, name, options.device), machine, options)
    about = {"schema": "bough.ascent/1", "machine": vars(machine), "load": load, "torch": torch.__version__}
    line = {**about, "revision": revision(), "networks": networks}
    if options.json:
        with options.json.open("a") as out:
            out.write(json.dumps(line) + "\n")
    return [json.loads(json.dumps(line))]


def main() -> int:
    """Measure or read, print, draw."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--device", choices=("cpu", "cuda"), default="cuda" if torch.cuda.is_available() else "cpu")
    parser.add_argument("--networks", default="base,wide,deep")
    parser.add_argument("--seconds", type=float, help=f"of each measurement; {SECONDS} by default")
    parser.add_argument("--batches", help="such as 64,1024,4096,16384")
    parser.add_argument("--threads", type=int, default=1, help="on the CPU; more only on an idle machine")
    parser.add_argument("--lp-seconds", type=float, default=LP_SECONDS, help="most for the LPs of a network")
    parser.add_argument("--json", type=Path, help="a line is added to this file")
    parser.add_argument("--plot", type=Path, help="a picture is drawn to this file")
    parser.add_argument("--from", dest="read", type=Path, nargs="+", help="draw these lines; measure nothing")
    options = parser.parse_args()
    if options.read:
        lines = [json.loads(text) for path in options.read for text in path.read_text().splitlines()]
    else:
        lines = run(options)
    if options.plot and lines:
        plot(lines, options.plot)
    return 0


if __name__ == "__main__":
    sys.exit(main())
