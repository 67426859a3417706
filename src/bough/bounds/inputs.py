"""The least value of linear functions over the input set: coefficients enter, values and points that attain them leave.

The set is a box, or a box and a ball. Over both, any split of the coefficients gives a bound: the least value of
`g - h` over the box plus that of `h` over the ball, each in closed form. h = 0 is the box alone, h = g the ball alone;
the best h solves the problem over both, and `_share` finds it, or almost, since any will do. That matters for images:
with most pixels black, half of the ball lies outside the valid pixels.
"""

import math
from typing import NamedTuple

import torch
from torch import Tensor

from bough.bounds.interval import UNDERFLOW
from bough.problem.property import Ball, stable_norm

ROUNDS = 4  # of the active set: the first is the ball alone or better, each improves on the last, more hardly ever help


def least(g: Tensor, centre: Tensor, box_radius: Tensor, ball: Ball | None) -> tuple[Tensor, Tensor]:
    """The least values [rows] of `g . s`, g [rows, inputs], and points s [rows, inputs] that (almost) attain them.

    A point of the input set is `centre + box_radius * s` with s in [-1, 1], centre and radius [inputs] those of the
    box; so g counts in units of s, as `reduced.Reduced.inputs` does. Any precision and device; rounding is not
    bounded here. The values are bounds from below, the points are in box and ball, but for vertices of the box where
    the box alone gives the better value.
    """
    value = -g.abs().sum(dim=-1)
    vertex = -g.sign()
    if ball is None:
        return value, vertex
    offset, axes = (t.to(g) for t in _seen_from_box(centre, box_radius, ball))
    share, steps = _share(g, offset, axes, ball.p)
    h = g * share
    both = (h * offset).sum(dim=-1) - _dual_norm(h * axes, ball.p) - (g - h).abs().sum(dim=-1)
    point = (offset - g.sign() * axes * steps).clamp(-1, 1)
    return torch.maximum(value, both), torch.where((value > both)[..., None], vertex, point)


class InputRange(NamedTuple):
    """Least and greatest values of linear functions, and the magnitude that their rounding errors are proportional to,
    [domains, rows] each.
    """

    least: Tensor
    greatest: Tensor
    magnitude: Tensor


def proved_range(g: Tensor, lower: Tensor, upper: Tensor, ball: Ball | None, rounding: float) -> InputRange:
    """The range of `g . x` over boxes [domains, inputs]; g [domains, rows, inputs] is float64, and counts as exact.

    The caller widens by `rounding * magnitude`; what the ball adds to the errors is already counted here.
    """
    low, high = lower[..., None], upper[..., None]  # [domains, inputs, 1]
    if lower.stride(0) == 0 or len(lower) == 1:  # one box for all: products with one vector
        low, high = low[0], high[0]
    positive, negative = g.clamp(min=0), g.clamp(max=0)
    least_value = (positive @ low + negative @ high)[..., 0]
    greatest_value = (positive @ high + negative @ low)[..., 0]
    magnitude = ((positive - negative) @ torch.maximum(low.abs(), high.abs()))[..., 0]
    if ball is not None:
        # fmax and fmin: where the ball's arithmetic overflows, the box still counts.
        least_value = torch.fmax(least_value, _proved_least(g, lower, upper, ball, rounding))
        greatest_value = torch.fmin(greatest_value, -_proved_least(-g, lower, upper, ball, rounding))
    return InputRange(least_value, greatest_value, magnitude)


def _proved_least(g: Tensor, lower: Tensor, upper: Tensor, ball: Ball, rounding: float) -> Tensor:
    """A lower bound [domains, rows] of g over box and ball that holds in real arithmetic, whatever h is chosen.

    Errors: h is what it is, a number. `g - h`, the dot products with sides and centre, the quotients h / scale and
    their norm are each off by at most gamma_n of the sizes added up in `magnitude`, n the number of inputs and a few.
    """
    radius = (upper - lower) / 2
    offset, axes = _seen_from_box((lower + upper) / 2, radius, ball)
    share, _ = _share(g * radius[:, None], offset[:, None], axes[:, None], ball.p)
    h = g * torch.where(radius[:, None] > 0, share.nan_to_num(0.0), 0.0)
    rest = g - h
    low = lower[..., None]
    high = upper[..., None]
    centre = ball.centre[:, None]
    depth = ball.radius * _dual_norm(h / ball.scale, ball.p)
    over_box = (rest.clamp(min=0) @ low + rest.clamp(max=0) @ high)[..., 0]
    value = over_box + (h @ centre)[..., 0] - depth
    sizes = rest.abs() @ torch.maximum(low.abs(), high.abs()) + h.abs() @ centre.abs()
    return value - rounding * (sizes[..., 0] + depth) - UNDERFLOW * len(ball.centre) * (1 + ball.radius)


def _seen_from_box(centre: Tensor, box_radius: Tensor, ball: Ball) -> tuple[Tensor, Tensor]:
    """The ball in the coordinates s of the box: its centre and its half-axes; a fixed input is at 0, with axis 1."""
    free = box_radius > 0
    width = torch.where(free, box_radius, 1.0)
    offset = torch.where(free, (ball.centre - centre) / width, 0.0)
    return offset, torch.where(free, ball.radius / (ball.scale * width), 1.0)


def _share(g: Tensor, offset: Tensor, axes: Tensor, p: int) -> tuple[Tensor, Tensor]:
    """What part of each coefficient is left to the ball (h / g, from 0 to 1), and the least point's steps [rows,
    inputs].

    Seen from the ball's centre and in its half-axes, the least point steps against the sign of g, at most as far as
    there is room in the box, and the norm of all steps is at most 1.
    """
    tiny = torch.finfo(g.dtype).tiny
    gain = g.abs() * axes  # per step
    room = ((1 + g.sign() * offset).clamp(min=0) / axes.clamp(min=tiny)).clamp(max=1)
    if p == 1:
        # A knapsack: the best gains first, each to the end of its room, until the norm is spent.
        gains, order = gain.sort(dim=-1, descending=True)
        rooms = room.gather(-1, order)
        spent = rooms.cumsum(dim=-1)
        steps = torch.zeros_like(gain).scatter(-1, order, (1 - spent + rooms).clamp(min=0).minimum(rooms))
        last = (spent < 1).sum(dim=-1, keepdim=True).clamp(max=gain.shape[-1] - 1)
        price = torch.where(spent[..., -1:] < 1, 0.0, gains.gather(-1, last))
        return torch.where(gain > price, price / gain.clamp(min=tiny), 1.0), steps
    # Steps t * gain up to the room, with t as large as the norm allows. Rooms that are full stay full as t grows, so
    # t rises to its place from below, and the steps stay in the ball.
    t = torch.zeros_like(gain[..., :1])
    for _ in range(ROUNDS):
        full = t * gain >= room
        left = 1 - torch.where(full, room, 0.0).square().sum(dim=-1, keepdim=True)
        free = torch.where(full, 0.0, gain).square().sum(dim=-1, keepdim=True)
        t = torch.maximum(t, (left.clamp(min=0) / free.clamp(min=tiny)).sqrt())
    wanted = t * gain
    return (room / wanted.clamp(min=tiny)).clamp(max=1), torch.minimum(wanted, room)


def _dual_norm(v: Tensor, p: int) -> Tensor:
    """The greatest value over the unit ball of the p-norm: the 2-norm for p = 2, the largest element for p = 1."""
    return stable_norm(v, math.inf if p == 1 else 2)
