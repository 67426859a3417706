"""The element-wise work of dual ascent between its matrix products: one function per pass over memory.

Written for PyTorch, which serves every device; `bounds.fused` does the same in one Triton kernel each. All of them write into buffers that exist, so that a step can be captured as a CUDA graph.

Glossary of `dual` and `ascent`: `nu` [domains, n] the coefficient on a ReLU's output, `lam` on its input, `p` the
ReLU's dual variable (slope, or multiplier once it is split), `sign` int8 of the split, `slope` and `intercept` [n] of
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


def relax(nu: Tensor, p: Tensor, sign: Tensor, slope: Tensor, intercept: Tensor, lam: Tensor, lost: Tensor) -> None:
    """Pass ReLUs backwards: `lam` from `nu`, and what the chords lose is added to `lost` [domains]."""
    below = nu.clamp(max=0)
    bent = (nu - below) * p + below * slope
    free = sign == 0
    lam.copy_(torch.where(free, bent, torch.where(sign > 0, nu - p, p)))
    lost += torch.where(free, below * intercept, 0.0).sum(dim=1)


def follow(z: Tensor, nu: Tensor, p: Tensor, sign: Tensor, slope: Tensor, intercept: Tensor, x: Tensor) -> None:
    """Pass ReLUs forwards: the outputs `x` that attain the bound for inputs `z`."""
    bent = torch.where(nu >= 0, p * z, torch.addcmul(intercept, slope, z))
    x.copy_(torch.where(sign == 0, bent, torch.where(sign > 0, z, 0.0)))


def climb(
    p: Tensor,
    moments: Moments,
    nu: Tensor,
    z: Tensor,
    sign: Tensor,
    scale: Tensor,
    schedule: Tensor,
    record: tuple[Tensor, Tensor, Tensor],
) -> None:
    """One Adam step of ascent (Kingma & Ba 2015) on p, of which it first keeps the best.

    `scale` [domains] is the size of a coefficient, the unit in which multipliers move; `schedule` holds the rate and
    the corrections of both moments at this step; `record` is p's value, the best so far, and the p that had it.
    """
    keep(*record, p)
    free = sign == 0
    unit = torch.where(free, 1.0, scale[:, None])
    gradient = torch.where(free, nu.clamp(min=0) * z, -sign * z) * unit
    p += schedule[0] * unit * direction(gradient, moments, schedule)
    p.clamp_(min=0)
    torch.where(free, p.clamp(max=1), p, out=p)


def direction(gradient: Tensor, moments: Moments, schedule: Tensor) -> Tensor:
    """Adam's direction; renews the moments."""
    moments.first.mul_(BETA_1).add_(gradient, alpha=1 - BETA_1)
    moments.second.mul_(BETA_2).addcmul_(gradient, gradient, value=1 - BETA_2)
    return moments.first * schedule[1] / ((moments.second * schedule[2]).sqrt() + 1e-12)


def keep(value: Tensor, best: Tensor, best_p: Tensor, p: Tensor) -> None:
    """Where `value` [domains] is the best so far, p is."""
    torch.where((value > best)[:, None], p, best_p, out=best_p)
    torch.maximum(best, value, out=best)


class Products:
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


def schedule(steps: int, rate: float, decay: float) -> Tensor:
    """Rate and corrections of the moments, [steps, 3], as `climb` wants them."""
    rows = [(rate * decay**k, 1 / (1 - BETA_1 ** (k + 1)), 1 / (1 - BETA_2 ** (k + 1))) for k in range(steps)]
    return torch.tensor(rows, dtype=torch.float32).reshape(steps, 3)
