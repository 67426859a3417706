"""The element-wise work of dual ascent between its matrix products: one function per pass over memory.

Written for PyTorch, which serves every device; `bounds.fused` does the same in one Triton kernel each. All of them
write into buffers that exist, so that a step can be captured as a CUDA graph.

Glossary of `dual` and `ascent`: `nu` [domains, n] the coefficient on a ReLU's output, `lam` on its input, `p` the
ReLU's dual variable (slope, or multiplier once it is split), `slope` and `intercept` [n] of
the chord.
"""

from dataclasses import dataclass

import torch
from torch import Tensor


@dataclass(frozen=True, eq=False)
class Moments:
    """Adam's running means of the gradient and of its square."""

    first: Tensor
    second: Tensor

    def reset(self) -> None:
        """Begin anew; the squares not at 0, around which numbers without full precision make a CPU crawl."""
        self.first.zero_()
        self.second.fill_(1e-30)


@dataclass(frozen=True, eq=False)
class Signs:
    """The splits of a batch [domains, n]: int8 +1 passing, -1 blocked, 0 not split; and the same as masks."""

    sign: Tensor
    free: Tensor
    passing: Tensor

    def __getitem__(self, part: slice) -> "Signs":
        return Signs(self.sign[:, part], self.free[:, part], self.passing[:, part])

    def renew(self) -> None:
        """Set the masks from the signs."""
        torch.eq(self.sign, 0, out=self.free)
        torch.gt(self.sign, 0, out=self.passing)


@dataclass(frozen=True, eq=False)
class Record:
    """The value of the present p, the best so far [domains], and the p that had it [domains, n]."""

    value: Tensor
    best: Tensor
    best_p: Tensor


@dataclass(frozen=True, eq=False)
class Lines:
    """The chords' slopes and intercepts, one row [n] per kind of domain; `of` [domains] says which a domain has."""

    slope: Tensor
    intercept: Tensor
    of: Tensor
    wide: tuple[Tensor, Tensor]  # the same for every domain, or as they are where there is one kind only

    @staticmethod
    def buffers(kinds: int, size: int, like: Tensor) -> "Lines":
        """Room for the lines of a batch; `like` is a row."""
        slope, intercept = (like.new_zeros(kinds, len(like)) for _ in range(2))
        of = torch.zeros(size, dtype=torch.int64, device=like.device)
        if kinds == 1:
            return Lines(slope, intercept, of, (slope, intercept))
        return Lines(slope, intercept, of, (like.new_zeros(size, len(like)), like.new_zeros(size, len(like))))

    def __getitem__(self, part: slice) -> "Lines":
        slope, intercept = self.wide
        return Lines(self.slope[:, part], self.intercept[:, part], self.of, (slope[:, part], intercept[:, part]))

    def renew(self) -> None:
        """Spread the rows over the domains."""
        if len(self.slope) > 1:
            torch.index_select(self.slope, 0, self.of, out=self.wide[0])
            torch.index_select(self.intercept, 0, self.of, out=self.wide[1])


def relax(
    nu: Tensor, p: Tensor, signs: Signs, lines: Lines, lam: Tensor, lost: Tensor, fresh: Tensor | None = None
) -> None:
    """Pass ReLUs backwards: `lam` from `nu`, and what the chords lose is added to `lost` [domains].

    Where `fresh` is the sign of a new split, p still is the parent's slope and becomes the multiplier that keeps the
    parent's value.
    """
    if fresh is not None:
        gain = nu.clamp(min=0)
        p.copy_(torch.where(fresh > 0, gain * (1 - p), torch.where(fresh < 0, gain * p, p)))
    (slope, intercept), below = lines.wide, nu.clamp(max=0)
    bent = (nu - below).mul_(p).addcmul_(below, slope)
    torch.where(signs.free, bent, torch.where(signs.passing, nu - p, p), out=lam)
    lost += (below * intercept).mul_(signs.free).sum(dim=1)


def follow(z: Tensor, nu: Tensor, p: Tensor, signs: Signs, lines: Lines, x: Tensor) -> None:
    """Pass ReLUs forwards: the outputs `x` that attain the bound for inputs `z`."""
    slope, intercept = lines.wide
    bent = torch.where(nu >= 0, p * z, torch.addcmul(intercept, slope, z))
    torch.where(signs.free, bent, z * signs.passing, out=x)


def climb(
    p: Tensor,
    moments: Moments,
    nu: Tensor,
    z: Tensor,
    signs: Signs,
    scale: Tensor,
    schedule: Tensor,
    record: Record,
) -> None:
    """One Adam step of ascent (Kingma & Ba 2015) on p, of which it first keeps the best.

    `scale` [domains] is the size of a coefficient, the unit in which multipliers move; `schedule` holds the rate and
    the corrections of both moments at this step.
    """
    keep(record, p)
    unit = torch.where(signs.free, 1.0, scale[:, None])
    gradient = torch.where(signs.free, nu.clamp(min=0), -signs.sign).mul_(z).mul_(unit)
    p.add_(unit.mul_(schedule[0]).mul_(direction(gradient, moments, schedule))).clamp_(min=0)
    torch.where(signs.free, p.clamp(max=1), p, out=p)


def direction(gradient: Tensor, moments: Moments, schedule: Tensor) -> Tensor:
    """Adam's direction; renews the moments."""
    moments.first.mul_(BETA_1).add_(gradient, alpha=1 - BETA_1)
    moments.second.mul_(BETA_2).addcmul_(gradient, gradient, value=1 - BETA_2)
    return moments.first * schedule[1] / ((moments.second * schedule[2]).sqrt() + 1e-12)


def keep(record: Record, p: Tensor) -> None:
    """Put p into the record where its value is the best so far."""
    torch.where((record.value > record.best)[:, None], p, record.best_p, out=record.best_p)
    torch.maximum(record.best, record.value, out=record.best)


class PlainProducts:
    """The products with the matrix of the input, nearly all of the arithmetic, in the matrix's own precision."""

    def __init__(self, inputs: Tensor, centre: Tensor, size: int) -> None:
        self._matrix, self._centre = inputs, centre
        self._matrix_t = inputs.T.contiguous()
        self._g, self.vertex = (inputs.new_zeros(size, inputs.shape[1]) for _ in range(2))

    def back(self, lam: Tensor, value: Tensor, reach: Tensor) -> None:
        """The least values over the unit box of the functionals `lam` [domains, rows], but for what ReLUs lose; what
        the input makes of them is minus `reach`, at the corner `vertex`.
        """
        torch.mm(lam, self._matrix, out=self._g)
        torch.sum(self._g.abs(), dim=1, out=reach)
        torch.sign(self._g, out=self.vertex)
        self.vertex.neg_()
        torch.mv(lam, self._centre, out=value)
        value.sub_(reach)

    def forth(self, z: Tensor) -> None:
        """The rows' values at that corner, with every ambiguous ReLU's output 0."""
        torch.addmm(self._centre, self.vertex, self._matrix_t, out=z)


BETA_1, BETA_2 = 0.9, 0.999


products = PlainProducts


def schedule(steps: int, rate: float, decay: float) -> Tensor:
    """Rate and corrections of the moments, [steps, 3], as `climb` wants them."""
    rows = [(rate * decay**k, 1 / (1 - BETA_1 ** (k + 1)), 1 / (1 - BETA_2 ** (k + 1))) for k in range(steps)]
    return torch.tensor(rows, dtype=torch.float32).reshape(steps, 3)
