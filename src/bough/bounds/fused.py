"""The element-wise work of dual ascent as Triton kernels: `bounds.kernels` with one pass over memory each.

One program per domain goes along its row. The products with the input's matrix, nearly all of the arithmetic, are
taken in float16 with float32 sums: rows are scaled to norm 1 and each domain's coefficients to largest element 1, so
nothing overflows whatever the network's scale, and ascent, which proves nothing, needs no more digits.

Imported only on a CUDA device, and only where a batch is large enough to pay for compiling.
"""

from typing import Any

import torch
import triton
import triton.language as tl
from torch import Tensor

from bough.bounds.kernels import BETA_1, BETA_2, Lines, Moments, Record, Signs

BLOCK = 1024
TINY = 1e-30
ALIGNED = 64  # sides of float16 matrices are padded to multiples of this, for which the library has its best kernels


@triton.jit(do_not_specialize=["n", "s_nu", "s_p", "s_sign", "s_line", "s_lam", "s_fresh"])
def _relax(
    nu,
    p,
    sign,
    slope,
    intercept,
    of,
    lam,
    lost,
    fresh,
    n,
    s_nu,
    s_p,
    s_sign,
    s_line,
    s_lam,
    s_fresh,
    seating: tl.constexpr,
    block: tl.constexpr,
):
    row = tl.program_id(0).to(tl.int64)
    line = tl.load(of + row) * s_line
    total = 0.0
    for start in range(0, n, block):
        at = start + tl.arange(0, block)
        inside = at < n
        v = tl.load(nu + row * s_nu + at, mask=inside, other=0.0)
        q = tl.load(p + row * s_p + at, mask=inside, other=0.0)
        side = tl.load(sign + row * s_sign + at, mask=inside, other=0)
        a = tl.load(slope + line + at, mask=inside, other=0.0)
        b = tl.load(intercept + line + at, mask=inside, other=0.0)
        below = tl.minimum(v, 0.0)
        if seating:
            new = tl.load(fresh + row * s_fresh + at, mask=inside, other=0)
            above = v - below
            q = tl.where(new > 0, above * (1 - q), tl.where(new < 0, above * q, q))
            tl.store(p + row * s_p + at, q, mask=inside)
        bent = (v - below) * q + below * a
        out = tl.where(side == 0, bent, tl.where(side > 0, v - q, q))
        tl.store(lam + row * s_lam + at, out, mask=inside)
        total += tl.sum(tl.where(side == 0, below * b, 0.0))
    tl.store(lost + row, tl.load(lost + row) + total)


@triton.jit(do_not_specialize=["n", "s_z", "s_nu", "s_p", "s_sign", "s_line", "s_x"])
def _follow(z, nu, p, sign, slope, intercept, of, x, n, s_z, s_nu, s_p, s_sign, s_line, s_x, block: tl.constexpr):
    row = tl.program_id(0).to(tl.int64)
    line = tl.load(of + row) * s_line
    for start in range(0, n, block):
        at = start + tl.arange(0, block)
        inside = at < n
        w = tl.load(z + row * s_z + at, mask=inside, other=0.0)
        v = tl.load(nu + row * s_nu + at, mask=inside, other=0.0)
        q = tl.load(p + row * s_p + at, mask=inside, other=0.0)
        side = tl.load(sign + row * s_sign + at, mask=inside, other=0)
        a = tl.load(slope + line + at, mask=inside, other=0.0)
        b = tl.load(intercept + line + at, mask=inside, other=0.0)
        bent = tl.where(v >= 0, q * w, a * w + b)
        out = tl.where(side == 0, bent, tl.where(side > 0, w, 0.0))
        tl.store(x + row * s_x + at, out, mask=inside)


@triton.jit(do_not_specialize=["n", "s_z"])
def _climb(
    p, first, second, nu, z, sign, scale, schedule, value, best, best_p, n, s_z,
    beta_1: tl.constexpr, beta_2: tl.constexpr, block: tl.constexpr,
):  # fmt: skip
    row = tl.program_id(0).to(tl.int64)
    rate = tl.load(schedule)
    c_1 = tl.load(schedule + 1)
    c_2 = tl.load(schedule + 2)
    size = tl.load(scale + row)
    wins = tl.load(value + row) > tl.load(best + row)
    for start in range(0, n, block):
        at = start + tl.arange(0, block)
        inside = at < n
        q = tl.load(p + row * n + at, mask=inside, other=0.0)
        v = tl.load(nu + row * n + at, mask=inside, other=0.0)
        w = tl.load(z + row * s_z + at, mask=inside, other=0.0)
        side = tl.load(sign + row * n + at, mask=inside, other=0).to(tl.float32)
        m = tl.load(first + row * n + at, mask=inside, other=0.0)
        s = tl.load(second + row * n + at, mask=inside, other=0.0)
        if wins:
            tl.store(best_p + row * n + at, q, mask=inside)
        free = side == 0
        unit = tl.where(free, 1.0, size)
        gradient = tl.where(free, tl.maximum(v, 0.0) * w, -side * w) * unit
        m = beta_1 * m + (1 - beta_1) * gradient
        s = beta_2 * s + (1 - beta_2) * gradient * gradient
        q = q + rate * unit * (m * c_1) / (tl.sqrt(s * c_2) + 1e-12)
        q = tl.maximum(q, 0.0)
        q = tl.where(free, tl.minimum(q, 1.0), q)
        tl.store(p + row * n + at, q, mask=inside)
        tl.store(first + row * n + at, m, mask=inside)
        tl.store(second + row * n + at, s, mask=inside)


@triton.jit(do_not_specialize=["n", "s_small"])
def _shrink(lam, weight, centre, small, factor, constant, n, s_small, block: tl.constexpr):
    row = tl.program_id(0).to(tl.int64)
    largest = 0.0
    total = 0.0
    for start in range(0, n, block):
        at = start + tl.arange(0, block)
        inside = at < n
        v = tl.load(lam + row * n + at, mask=inside, other=0.0)
        w = tl.load(weight + at, mask=inside, other=0.0)
        c = tl.load(centre + at, mask=inside, other=0.0)
        largest = tl.maximum(largest, tl.max(tl.abs(v * w)))
        total += tl.sum(v * c)
    unit = tl.maximum(largest, 1e-30)
    for start in range(0, n, block):
        at = start + tl.arange(0, block)
        inside = at < n
        v = tl.load(lam + row * n + at, mask=inside, other=0.0)
        w = tl.load(weight + at, mask=inside, other=0.0)
        tl.store(small + row * s_small + at, (v * w / unit).to(tl.float16), mask=inside)
    tl.store(factor + row, unit)
    tl.store(constant + row, total)


@triton.jit(do_not_specialize=["n"])
def _corner(g, vertex, reach, factor, n, block: tl.constexpr):
    row = tl.program_id(0).to(tl.int64)
    total = 0.0
    for start in range(0, n, block):
        at = start + tl.arange(0, block)
        inside = at < n
        v = tl.load(g + row * n + at, mask=inside, other=0.0).to(tl.float32)
        total += tl.sum(tl.abs(v))
        corner = tl.where(v > 0, -1.0, tl.where(v < 0, 1.0, 0.0))
        tl.store(vertex + row * n + at, corner.to(tl.float16), mask=inside)
    tl.store(reach + row, total * tl.load(factor + row))


@triton.jit(do_not_specialize=["n", "s_small"])
def _unfold(small, weight, centre, z, n, s_small, block: tl.constexpr):
    row = tl.program_id(0).to(tl.int64)
    for start in range(0, n, block):
        at = start + tl.arange(0, block)
        inside = at < n
        v = tl.load(small + row * s_small + at, mask=inside, other=0.0).to(tl.float32)
        w = tl.load(weight + at, mask=inside, other=0.0)
        c = tl.load(centre + at, mask=inside, other=0.0)
        tl.store(z + row * n + at, v * w + c, mask=inside)


def _block(n: int) -> int:
    return min(BLOCK, max(64, 1 << (n - 1).bit_length()))


def relax(
    nu: Tensor, p: Tensor, signs: Signs, lines: Lines, lam: Tensor, lost: Tensor, fresh: Tensor | None = None
) -> None:
    """Do what `kernels.relax` does, in one kernel."""
    n = nu.shape[1]
    sign = signs.sign
    table = (lines.slope, lines.intercept, lines.of)
    new = sign if fresh is None else fresh
    strides = nu.stride(0), p.stride(0), sign.stride(0), lines.slope.stride(0), lam.stride(0), new.stride(0)
    seating = fresh is not None
    _relax[(nu.shape[0],)](nu, p, sign, *table, lam, lost, new, n, *strides, seating=seating, block=_block(n))


def follow(z: Tensor, nu: Tensor, p: Tensor, signs: Signs, lines: Lines, x: Tensor) -> None:
    """Do what `kernels.follow` does, in one kernel."""
    n = nu.shape[1]
    sign = signs.sign
    table = (lines.slope, lines.intercept, lines.of)
    strides = z.stride(0), nu.stride(0), p.stride(0), sign.stride(0), lines.slope.stride(0), x.stride(0)
    _follow[(nu.shape[0],)](z, nu, p, sign, *table, x, n, *strides, block=_block(n))


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
    """Do what `kernels.climb` does, in one kernel; z may be part of a wider array."""
    n = p.shape[1]
    state: tuple[Any, ...] = (p, moments.first, moments.second, nu, z, signs.sign, scale, schedule)
    _climb[(p.shape[0],)](
        *state, record.value, record.best, record.best_p, n, z.stride(0), beta_1=BETA_1, beta_2=BETA_2, block=_block(n)
    )
    torch.maximum(record.best, record.value, out=record.best)


class HalfProducts:
    """The products with the input's matrix, in float16; as `kernels.PlainProducts`."""

    def __init__(self, inputs: Tensor, centre: Tensor, size: int) -> None:
        rows, columns = inputs.shape
        wide, long = (-(-count // ALIGNED) * ALIGNED for count in (columns, rows))
        self._weight = inputs.abs().sum(dim=1).clamp(min=TINY)
        self._matrix = torch.zeros(long, wide, dtype=torch.float16, device=inputs.device)
        self._matrix[:rows, :columns] = inputs / self._weight[:, None]
        self._matrix_t = self._matrix.T.contiguous()
        self._centre, self._columns = centre, columns
        self._small, self._g, self._vertex = (
            torch.zeros(size, count, dtype=torch.float16, device=inputs.device) for count in (long, wide, wide)
        )
        self._factor, self._constant = inputs.new_zeros(size), inputs.new_zeros(size)

    @property
    def vertex(self) -> Tensor:
        """The corner of the unit box at which the last functionals were least, [domains, inputs]."""
        return self._vertex[:, : self._columns]

    def back(self, lam: Tensor, value: Tensor, reach: Tensor) -> None:
        """The least values over the box of the functionals `lam` [domains, rows], but for what ReLUs lose."""
        size, rows = lam.shape
        wide, long = self._g.shape[1], self._small.shape[1]
        _shrink[(size,)](
            lam, self._weight, self._centre, self._small, self._factor, self._constant, rows, long, block=_block(rows)
        )
        torch.mm(self._small, self._matrix, out=self._g)
        _corner[(size,)](self._g, self._vertex, reach, self._factor, wide, block=_block(wide))
        torch.sub(self._constant, reach, out=value)

    def forth(self, z: Tensor) -> None:
        """The rows' values at that corner, with every ambiguous ReLU's output 0."""
        size, rows = z.shape
        torch.mm(self._vertex, self._matrix_t, out=self._small)
        _unfold[(size,)](self._small, self._weight, self._centre, z, rows, self._small.shape[1], block=_block(rows))


products = HalfProducts
