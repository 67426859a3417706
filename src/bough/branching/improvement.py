"""How much a split gains: bounds of a parent and of its children enter, the paper's relative improvement leaves."""

import math
from typing import Literal

import torch
from torch import Tensor

Measure = Literal["mean", "min", "max", "product", "tree"]
LEAST_GAIN = 1e-4  # of the way, in a product or a tree: a child that gains nothing must not hide what the other gains
NEWTON_STEPS = 16  # enough for gains of LEAST_GAIN and 1


def improvements(parent: Tensor, children: Tensor, cutoff: float = 0.0, measure: Measure = "mean") -> Tensor:
    """m_v of every split, [domains, candidates], from bounds `parent` [domains] and `children` [domains, candidates,
    2]: 0 where neither child is above its parent, 1 where both are closed.

    The paper's m_v (Eq. 8), the mean over both children, is for a cutoff of 0; another takes the place of 0. `min` and
    `max` take the worse or the better child instead, as the footnote in its Appendix D.1 does: the order is that of the
    children's bounds, cut off where a child is closed. `product` is the geometric mean, as MIP solvers weigh children:
    one that gains much does not make up for one that gains nothing. `tree` looks further: see `as_large_a_tree`.

    At the cutoff itself there is no way left to be relative to: there m is made of 0 and 1, a child still open or
    closed. Of an unbounded parent every split is worth 0. A split whose children are at minus infinity was not tried,
    and is worth that.
    """
    way = (parent - cutoff)[:, None, None]  # l_D, below 0
    left = children.clamp(max=cutoff) - cutoff  # min(l_s, 0): a closed or an empty child is at its best with 0
    # Eq. 8: (min(l_s1, 0) + min(l_s2, 0) - 2 l_D) / (-2 l_D), here with both children apart
    share = ((left - way) / -way).nan_to_num(0.0).where(way < 0, (children > cutoff).to(left.dtype))
    share = share.masked_fill(children == -torch.inf, -torch.inf)
    if measure == "mean":
        return share.mean(dim=2)
    if measure in ("product", "tree"):
        least = share.clamp(min=LEAST_GAIN)
        both = least.prod(dim=2).sqrt() if measure == "product" else as_large_a_tree(least)
        return both.where((share > -torch.inf).all(dim=2), -torch.inf)
    return share.min(dim=2).values if measure == "min" else share.max(dim=2).values


def as_large_a_tree(gains: Tensor) -> Tensor:
    """The g, [...], for which a tree whose every split gains g on both sides is as large as one whose every split gains
    `gains` [..., 2]: between their geometric and their arithmetic mean.

    The size t of such a tree over a way of w solves t(w) = 1 + t(w - l) + t(w - r), so it grows as exp(x w) with
    exp(-l x) + exp(-r x) = 1 (Le Bodic and Nemhauser 2017), where l = r = g has x = ln 2 / g.
    """
    low, high = gains.unbind(dim=-1)
    x = math.log(4) / (low + high)  # not above the root, as the sum is convex: so Newton's steps go up to it
    for _ in range(NEWTON_STEPS):
        left, right = (-low * x).exp(), (-high * x).exp()
        x = x + (left + right - 1) / (low * left + high * right)
    return math.log(2) / x
