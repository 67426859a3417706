"""Projected ascent on the duals of a batch of domains: a reduced network and a question enter, good duals leave.

At one ambiguous ReLU of a domain with root bounds [l, u], `nu` is the coefficient on its output and `p` its one dual
variable. While the ReLU is not split, p is the slope alpha in [0, 1] of its lower line, used where nu >= 0 (where
nu < 0 the chord is used); once it is split, p is the multiplier beta >= 0 of its sign. Any such p gives a valid bound,
so ascent may stop at any step, and runs in the fastest arithmetic there is: nothing here proves anything.

One step is a pass back, which gives the bound and the corner of the box that minimises, and a pass forward of that
corner through the same linearised network, which gives z at every ReLU. The gradient needs no autograd:

    d bound / d alpha = max(nu, 0) z,    d bound / d beta = -z where passing, z where blocked

Rows of a clause (every one must hold in an unsafe point) enter with weights on the simplex, as logits. Further linear
constraints enter the same way with weights of their own (`Functionals.cone`), one multiplier a row: cuts will.
"""

import logging
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from functools import cache
from typing import Any, Protocol, final

import torch
from torch import Tensor

from bough.bounds import kernels
from bough.bounds.capture import captured
from bough.bounds.inputs import least
from bough.bounds.kernels import Lines, Moments, Record, Signs
from bough.bounds.reduced import Reduced, Stem
from bough.bounds.relaxation import chord
from bough.budget import Clock, Deadline
from bough.domain.arrays import Arrays
from bough.network import walk

SMALLEST = 64  # the least batch for which a GPU's step is captured; others are powers of two
FUSED = 1024  # from this batch on, Triton's kernels pay for being compiled
_log = logging.getLogger(__name__)
# Multipliers move in units of the domain's largest coefficient. Measured on the paper's networks: with the mean instead
# 20 steps got half of what the LP gains, not 87%, and root bounds at unsafe points were far worse.
MULTIPLIER_UNIT, ROW_UNIT = 0.5, 8.0
SLACK = {"cpu": 1e-5, "cuda": 1e-3}  # of the input's part of a value: how far rounding in the loop may be off


@dataclass(frozen=True, eq=False)
class Duals(Arrays):
    """The dual variables of a batch: p of every ambiguous ReLU [domains, n], and logits of the rows' weights."""

    p: Tensor
    logits: Tensor  # [domains, rows]; -inf where a clause has fewer rows


@dataclass(frozen=True, eq=False)
class Chords:
    """Slopes and intercepts of chords, one row [kinds, n] for each kind of domain, and the kind of every domain."""

    slope: Tensor
    intercept: Tensor
    kind: Tensor  # int64 [domains]

    @staticmethod
    def of(lower: Tensor, upper: Tensor, kind: Tensor) -> "Chords":
        """The chords between ReLU bounds [kinds, n], in float32."""
        slope = chord(lower, upper)
        return Chords(slope.float(), (-lower.clamp(max=0) * slope).float(), kind)


@dataclass(frozen=True, eq=False)
class Functionals:
    """What is bounded from below in each domain: `seed . z + weights . (rows @ y - offsets)`, split ReLUs having signs.

    The weights are on the simplex; or, in a cone, any that are not negative, and then each row is a constraint
    `rows @ y <= offsets` that the points of interest satisfy.
    """

    rows: Tensor  # [domains, rows, outputs]
    offsets: Tensor  # [domains, rows]
    signs: Tensor  # int8 [domains, n]: +1 passing, -1 blocked, 0 not split
    chords: Chords | None = None  # None: those of the reduced network
    seed: Tensor | None = None  # [domains, n], on the inputs z of the ReLUs
    cone: bool = False

    def __getitem__(self, rows: Tensor) -> "Functionals":
        chords = None if self.chords is None else replace(self.chords, kind=self.chords.kind[rows])
        seed = None if self.seed is None else self.seed[rows]
        return Functionals(self.rows[rows], self.offsets[rows], self.signs[rows], chords, seed, self.cone)

    @property
    def kind(self) -> tuple[int, int, bool, bool]:
        """What the buffers of an ascent depend on."""
        kinds = 1 if self.chords is None else len(self.chords.slope)
        return self.offsets.shape[1], kinds, self.seed is not None, self.cone


@dataclass(frozen=True, eq=False)
class Ascended(Arrays):
    """The best duals met, and their value as computed in the loop: not proved."""

    duals: Duals
    value: Tensor  # [domains]


class Kernels(Protocol):
    """What `bounds.kernels` and `bounds.fused` offer."""

    @property
    def relax(self) -> Callable[..., None]: ...  # noqa: D102 - described there
    @property
    def follow(self) -> Callable[..., None]: ...  # noqa: D102
    @property
    def climb(self) -> Callable[..., None]: ...  # noqa: D102
    @property
    def products(self) -> Callable[[Tensor, Tensor, int], Any]: ...  # noqa: D102


@cache
def fused_kernels() -> Kernels:
    """Triton's kernels where Triton works, else PyTorch's."""
    try:
        from bough.bounds import fused
    except Exception:  # noqa: BLE001 - a compiler that is missing or broken in any way is no reason to stop
        _log.info("Triton is not at hand; the steps of ascent run unfused")
        return kernels
    return fused


@final
class BallProducts:
    """The products with the matrix of the input where the input is in a ball, too."""

    def __init__(self, net: Reduced, size: int) -> None:
        self._net = net
        self.vertex = net.inputs.new_zeros(size, net.inputs.shape[1])

    def back(self, lam: Tensor, value: Tensor, reach: Tensor) -> None:
        """Bound functionals over box and ball; the point need not be a corner."""
        net = self._net
        minimum, point = least(lam @ net.inputs, net.middle, net.radius, net.ball)
        reach.copy_(-minimum)
        self.vertex.copy_(point)
        value.copy_(lam @ net.centre + minimum)

    def forth(self, z: Tensor) -> None:
        """Carry the point forwards to every row."""
        torch.addmm(self._net.centre, self.vertex, self._net.inputs.T, out=z)


@final
class StemProducts:
    """The products with the matrix of the input, taken apart at the first ReLU layer (`reduced.Stem`)."""

    def __init__(self, net: Reduced, stem: Stem, size: int) -> None:
        self._net = net
        self._stem = stem
        self._radius = net.radius.to(net.inputs.dtype)
        self._first = net.inputs.new_zeros(size, stem.network.nodes[-1].size)
        self.vertex = net.inputs.new_zeros(size, net.inputs.shape[1])

    def back(self, lam: Tensor, value: Tensor, reach: Tensor) -> None:
        """Carry functionals back through the first layer, then to the input."""
        stem = self._stem
        count = len(self._stem.ambiguous)
        self._first[:, stem.ambiguous] = lam[:, :count]
        self._first[:, stem.passing] = lam[:, count:] @ stem.through
        f = self._first.reshape(-1, *stem.network.nodes[-1].shape)
        g = walk.backward(stem.network, len(stem.network.nodes) - 1, f, _no_relu).reshape(len(lam), -1) * self._radius
        torch.sum(g.abs(), dim=1, out=reach)
        torch.neg(g.sign_(), out=self.vertex)
        torch.mv(lam, self._net.centre, out=value)
        value.sub_(reach)

    def forth(self, z: Tensor) -> None:
        """Carry the point forwards, through the first layer by itself."""
        stem = self._stem
        count = len(self._stem.ambiguous)
        centre = self._net.centre
        x = (self.vertex * self._radius).reshape(-1, *stem.network.input_shape)
        first = walk.forward(stem.network, x)[-1].reshape(len(z), -1)
        z[:, :count] = centre[:count] + first[:, stem.ambiguous]
        z[:, count:] = torch.addmm(centre[count:], first[:, stem.passing], stem.through.T)


def _no_relu(i: int, _: Tensor) -> Tensor:
    raise AssertionError(i)


def _products(net: Reduced, size: int, does: Kernels) -> Any:
    if net.ball is not None:
        return BallProducts(net, size)
    if net.stem is not None and not net.inputs.is_cuda:
        return StemProducts(net, net.stem, size)
    return does.products(net.inputs, net.centre, size)


@final
class Climb:
    """The buffers of one batch size, and the moves on them: `weigh`, `seat`, `step`, `settle`, `look`."""

    def __init__(self, net: Reduced, size: int, kind: tuple[int, int, bool, bool], does: Kernels = kernels) -> None:
        rows, kinds, seeded, cone = kind
        n = len(net.neurons)
        all_rows = net.inputs.shape[0]
        like = net.inputs
        self.net, self.size, self.cone = net, size, cone
        self.weighing = rows > 1 or cone  # a single row's weight is 1
        self.rows = like.new_zeros(size, rows, all_rows - n)
        self.offsets = like.new_zeros(size, rows)
        split, self.fresh = (torch.zeros(size, n, dtype=torch.int8, device=like.device) for _ in range(2))
        self.signs = Signs(split, split == 0, split > 0)
        self.lines = Lines.buffers(kinds, size, net.slope)
        self.seed = like.new_zeros(size, n) if seeded else None
        self.p, self.best_p, self.nu, self.x = (like.new_zeros(size, n) for _ in range(4))
        self.logits, self.best_logits = (like.new_zeros(size, rows) for _ in range(2))
        self.moments = Moments(*(like.new_zeros(size, n) for _ in range(2)))
        self.row_moments = Moments(*(like.new_zeros(size, rows) for _ in range(2)))
        self.lam, self.z = (like.new_zeros(size, all_rows) for _ in range(2))
        self.does = does
        self.products = _products(net, size, does)
        self.lost, self.reach, self.value, self.best, self.scale = (like.new_zeros(size) for _ in range(5))
        self.now = like.new_zeros(3)  # the schedule's row of this step
        self.record = Record(self.value, self.best, self.best_p)

    def state(self) -> list[Tensor]:
        """Everything that a domain takes along when the batch shrinks, with what its last pass back left."""
        own = (self.rows, self.offsets, *vars(self.signs).values(), self.p, self.best_p, self.logits, self.best_logits)
        moments = (*vars(self.moments).values(), *vars(self.row_moments).values())
        seed = () if self.seed is None else (self.seed,)
        left = (self.value, self.reach, self.nu, self.products.vertex)
        return [*own, *moments, self.best, self.scale, *left, *seed, self.lines.of]

    def weights(self) -> Tensor:
        """The weights of the rows, [domains, rows]."""
        return self.logits if self.cone else self.logits.softmax(dim=1)

    def weigh(self) -> None:
        """The value at which ascent would start."""
        self.renew()
        self._back(seating=True)

    def seat(self) -> None:
        """Start at p; a fresh split's multiplier starts where the bound is the parent's, its p still being the
        parent's slope: beta = nu (1 - alpha) if passing, nu alpha if blocked, where nu is positive.
        """
        self.weigh()
        if self.nu.shape[1]:
            torch.mul(self.nu.abs().amax(dim=1), MULTIPLIER_UNIT, out=self.scale)
        self.best.copy_(self.value)
        self.best_p.copy_(self.p)
        self.best_logits.copy_(self.logits)
        for moments in (self.moments, self.row_moments):
            moments.reset()

    def renew(self) -> None:
        """Bring what is derived from the signs and lines up to date."""
        self.signs.renew()
        if self.does is kernels:
            self.lines.renew()

    def step(self) -> None:
        """One step of ascent from p, whose pass back is done; then the pass back of the new p."""
        self._forward()
        n = self.p.shape[1]
        self._keep_logits()
        self.does.climb(self.p, self.moments, self.nu, self.z[:, :n], self.signs, self.scale, self.now, self.record)
        self._tilt(self.z[:, n:])
        self._back(seating=False)

    def settle(self) -> None:
        """Keep the last p, too, if it is the best."""
        self._keep_logits()
        kernels.keep(self.record, self.p)

    def _keep_logits(self) -> None:
        if self.weighing:
            torch.where((self.value > self.best)[:, None], self.logits, self.best_logits, out=self.best_logits)

    def look(self) -> None:
        """The pass back and forward at the best duals."""
        self.p.copy_(self.best_p)
        self.logits.copy_(self.best_logits)
        self.renew()
        self._back(seating=False)
        self._forward()

    def _tilt(self, outputs: Tensor) -> None:
        """The step of the rows' weights."""
        if not self.weighing:
            return
        weights = self.weights()
        rows = (self.rows @ outputs[:, :, None])[..., 0] - self.offsets
        if self.cone:
            unit = ROW_UNIT * self.scale[:, None]
            self.logits += self.now[0] * unit * kernels.direction(rows * unit, self.row_moments, self.now)
            self.logits.clamp_(min=0)
        else:
            gradient = weights * (rows - (weights * rows).sum(dim=1, keepdim=True))
            self.logits += self.now[0] * kernels.direction(gradient, self.row_moments, self.now)

    def _back(self, *, seating: bool) -> None:
        """The functional goes back from the outputs to the input: the bound, and the corner that attains it."""
        net = self.net
        n = self.p.shape[1]
        weights = self.weights()
        self.lam[:, n:] = (weights[:, None] @ self.rows)[:, 0]
        torch.sum(weights * -self.offsets, dim=1, out=self.lost)
        for part in reversed(net.layers):
            if part.start == part.stop:
                continue
            nu = self.nu[:, part]
            torch.mm(self.lam[:, part.stop :], net.between[part.stop :, part], out=nu)
            fresh = self.fresh[:, part] if seating else None
            self.does.relax(
                nu, self.p[:, part], self.signs[part], self.lines[part], self.lam[:, part], self.lost, fresh
            )
            if self.seed is not None:
                self.lam[:, part] += self.seed[:, part]
        self.products.back(self.lam, self.value, self.reach)
        self.value.add_(self.lost)

    def _forward(self) -> None:
        """The corner goes forward through the linearised network: z at every ReLU, and the outputs."""
        net = self.net
        self.products.forth(self.z)
        for part in net.layers:
            if part.start == part.stop:
                continue
            x = self.x[:, part]
            signs = self.signs[part]
            self.does.follow(self.z[:, part], self.nu[:, part], self.p[:, part], signs, self.lines[part], x)
            self.z[:, part.stop :].addmm_(x, net.between_t[part, part.stop :])


@contextmanager
def _fast_products() -> Iterator[None]:
    """Matrix products in TF32 on GPUs that have it: ascent proves nothing, so it need not be exact."""
    before = torch.backends.cuda.matmul.allow_tf32
    torch.backends.cuda.matmul.allow_tf32 = True
    try:
        yield
    finally:
        torch.backends.cuda.matmul.allow_tf32 = before


@final
class Climber:
    """Ascent on one reduced network: keeps, on a GPU, buffers and the captured step for every batch size met.

    A network that is ascended on only once is not worth the capture.
    """

    def __init__(self, net: Reduced, *, capture: bool = True) -> None:
        self.net, self.capture = net, capture
        self._moves: dict[tuple[int, int, int, bool, bool], Moves] = {}

    def forget(self) -> None:
        """Give back the memory of captured steps."""
        self._moves.clear()
        torch.cuda.empty_cache()

    @property
    def _captures(self) -> bool:
        return self.capture and self.net.inputs.is_cuda

    def room(self, size: int) -> int:
        """The batch that `size` domains are worked on in."""
        return max(SMALLEST, 1 << (size - 1).bit_length()) if self._captures else size

    def at(self, size: int, functionals: Functionals) -> "Moves":
        """Moves for at least `size` domains; on the CPU exactly as many."""
        if not self._captures:
            return Moves(Climb(self.net, size, functionals.kind), capture=False)
        room = self.room(size)
        key = (room, *functionals.kind)
        if key not in self._moves:
            does = fused_kernels() if room >= FUSED else kernels
            self._moves[key] = Moves(Climb(self.net, room, functionals.kind, does), capture=True)
        return self._moves[key]

    @property
    def capture_seconds(self) -> float:
        """Spent on first runs and on capturing them."""
        return sum(moves.capture_seconds for moves in self._moves.values())


@final
class Moves:
    """The moves of a `Climb`. Each runs as it is the first time, which compiles what needs it, is captured as a CUDA
    graph the second time, and is one launch from then on; where capture fails, they go on as they are.
    """

    def __init__(self, climb: Climb, *, capture: bool) -> None:
        self.climb, self._capture = climb, capture
        self._graphs: dict[str, torch.cuda.CUDAGraph | None] = {}
        self.capture_seconds = 0.0

    def move(self, name: str) -> None:
        """Run `weigh`, `seat`, `step`, `settle` or `look`."""
        clock = Clock.start()
        work = getattr(self.climb, name)
        if name not in self._graphs:
            work()
            self._graphs[name] = None
            self.capture_seconds += clock.seconds()
            return
        if self._capture and self._graphs[name] is None:
            self._graphs[name] = captured(work, "a step of ascent")
            self._capture = self._graphs[name] is not None
            self.capture_seconds += clock.seconds()
        graph = self._graphs[name]
        if graph is None:
            work()
        else:
            graph.replay()


@final
@dataclass(frozen=True)
class Ascent:
    """Adam on all dual variables at once, keeping the best state of every domain."""

    steps: int = 20
    rate: float = 0.25
    decay: float = 0.95  # of the rate, per step
    pauses: tuple[int, ...] = (5, 10)  # after so many steps, domains that are done leave the batch
    deadline: Deadline = field(default_factory=Deadline.never, compare=False, repr=False)

    @_fast_products()
    def run(
        self,
        climber: Climber,
        functionals: Functionals,
        start: Duals,
        fresh: Tensor | None = None,
        cutoff: float = float("inf"),
        each: Tensor | None = None,
    ) -> Ascended:
        """Maximise the bound. `fresh` int8 [domains, n] marks splits (by sign) whose p still is the parent's slope.

        With `each` [rows] there is a row for every domain named in it, as often as it is, with the signs that `fresh`
        [rows, n] adds to its own. Domains whose value passes `cutoff` by more than rounding leave at the next pause.
        """
        count = len(functionals.offsets) if each is None else len(each)
        moves = climber.at(count, functionals)
        _load(moves.climb, functionals, start, fresh, each)
        moves.move("seat")
        duals = Duals(start.p.new_empty(count, start.p.shape[1]), start.logits.new_empty(count, start.logits.shape[1]))
        ascended = Ascended(duals, functionals.offsets.new_empty(count))
        remaining = torch.arange(count, device=start.p.device)  # the domain in each row of the batch
        table = kernels.schedule(self.steps, self.rate, self.decay).to(start.p.device)
        slack = SLACK[start.p.device.type]
        for k in range(self.steps):
            self.deadline.check()
            if k in self.pauses:
                moves.move("settle")
                climb = moves.climb
                done = climb.best[: len(remaining)] > cutoff + slack * climb.reach[: len(remaining)]
                rows = (~done).nonzero()[:, 0]
                if not len(rows):
                    break
                if climber.room(len(rows)) <= 0.75 * climb.size:
                    _store(ascended, climb, remaining)
                    moves = _shrunk(climber, functionals, climb, rows)
                    remaining = remaining[rows]
            moves.climb.now.copy_(table[k])
            moves.move("step")
        moves.move("settle")
        _store(ascended, moves.climb, remaining)
        return ascended


def _load(
    climb: Climb, functionals: Functionals, start: Duals, fresh: Tensor | None, each: Tensor | None = None
) -> None:
    """Fill the buffers."""
    count = len(functionals.offsets) if each is None else len(each)
    pairs = [
        (climb.rows, functionals.rows),
        (climb.offsets, functionals.offsets),
        (climb.signs.sign, functionals.signs),
        (climb.p, start.p),
        (climb.logits, start.logits),
    ]
    if climb.seed is not None and functionals.seed is not None:
        pairs.append((climb.seed, functionals.seed))
    chords = functionals.chords
    climb.lines.slope.copy_(climb.net.slope[None] if chords is None else chords.slope)
    climb.lines.intercept.copy_(climb.net.intercept[None] if chords is None else chords.intercept)
    if chords is not None:
        pairs.append((climb.lines.of, chords.kind))
    for buffer, value in pairs:
        if each is None:
            buffer[:count] = value
        else:
            torch.index_select(value, 0, each, out=buffer[:count])
    climb.fresh.zero_()
    if fresh is not None:
        climb.fresh[:count] = fresh
        if each is not None:
            torch.where(climb.fresh != 0, climb.fresh, climb.signs.sign, out=climb.signs.sign)


def _store(ascended: Ascended, climb: Climb, rows: Tensor) -> None:
    """The best of the domains in the batch so far."""
    count = len(rows)
    ascended.duals.p[rows] = climb.best_p[:count]
    ascended.duals.logits[rows] = climb.best_logits[:count]
    ascended.value[rows] = climb.best[:count]


def _shrunk(climber: Climber, functionals: Functionals, climb: Climb, rows: Tensor) -> Moves:
    """A smaller batch with these rows of the old one, and what its last pass back left for the next step."""
    moves = climber.at(len(rows), functionals)
    smaller = moves.climb
    for new, old in zip(smaller.state(), climb.state(), strict=True):
        new[: len(rows)] = old[rows]
    smaller.lines.slope.copy_(climb.lines.slope)
    smaller.lines.intercept.copy_(climb.lines.intercept)
    smaller.renew()
    return moves


@_fast_products()
def evaluate(climber: Climber, functionals: Functionals, duals: Duals) -> Climb:
    """The pass back and forward at given duals: `value`, `nu`, `z` and `vertex` of the first rows are theirs."""
    moves = climber.at(len(functionals.offsets), functionals)
    _load(moves.climb, functionals, duals, None)
    moves.climb.best_p.copy_(moves.climb.p)
    moves.climb.best_logits.copy_(moves.climb.logits)
    moves.move("look")
    return moves.climb


@_fast_products()
def first_values(climber: Climber, functionals: Functionals, start: Duals, fresh: Tensor, each: Tensor) -> Tensor:
    """The values at which ascent would start (see `Ascent.run`), without one."""
    moves = climber.at(len(each), functionals)
    _load(moves.climb, functionals, start, fresh, each)
    moves.move("weigh")
    return moves.climb.value[: len(each)].clone()


def row_weights(logits: Tensor) -> Tensor:
    """The weights on the simplex that logits stand for, in float64."""
    return logits.double().softmax(dim=1)
