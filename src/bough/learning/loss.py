"""What a model is taught by, and judged by: scores and improvements enter, losses and shares of good choices leave.

Improvements m (`Samples.improvements`) are [samples, n], minus infinity at ReLUs that were not tried; these have no
class, no part in the loss, and cannot be chosen.
"""

from dataclasses import dataclass

import torch
from torch import Tensor

from bough.branching.base import highest

UNTRIED = -1  # the class of a ReLU without a label
SHARPNESS = 20.0  # in `choice_loss`: a ReLU of 0.9 of the best m is wanted an eighth as much as the best
LEAST_SHARE = 0.05  # in `expected_loss`: of the best m, below which all ReLUs cost the same
TOGETHER = 16  # classes that are worked on at once
GOOD = 0.9  # of the best improvement, or of all that is possible: the paper does not say which (Appendix D.1)


def classes(gains: Tensor, count: int = 10, *, relative: bool = True) -> Tensor:
    """Y: the class of each ReLU, int64 [samples, n], 0 (least) to `count` - 1, by its improvement.

    Classes are of equal width in m over the best m of the sample, or (not `relative`) in m itself. Where no split gains
    anything, all are of class 0.
    """
    tried = gains > -torch.inf
    share = gains.where(tried, 0.0).clamp(min=0)
    if relative:
        best = share.amax(dim=1, keepdim=True) if gains.shape[1] else share
        share = (share / best).nan_to_num(0.0)
    return (share * count).floor().long().clamp(max=count - 1).masked_fill(~tried, UNTRIED)


def pairs(labels: Tensor, count: int) -> Tensor:
    """K of Eq. 9: how many pairs of ReLUs have Y_j > Y_i, [samples]."""
    sizes = torch.stack([(labels == c).sum(dim=1) for c in range(count)], dim=1)
    return (sizes * (sizes.flip(1).cumsum(1).flip(1) - sizes)).sum(dim=1)


def rank_loss(scores: Tensor, labels: Tensor, count: int = 10) -> Tensor:
    """The hinge (1 - (s_j - s_i))+ of Eq. 9, averaged over all pairs with Y_j > Y_i, [samples]; 0 without a pair.

    A pair costs something where s_i + 1 > s_j. As long as no pair changes sides the loss is linear in the scores: each
    enters as often as it is too high, less as often as it is too low. These counts need sorted scores, not pairs.
    """
    labelled = labels != UNTRIED
    value = torch.where(labelled, scores, 0.0).double()
    with torch.no_grad():
        slope, constant = _slopes(value.detach(), labels, count)
    return ((slope * value).sum(dim=1) + constant) / pairs(labels, count).clamp(min=1)


def _slopes(value: Tensor, labels: Tensor, count: int) -> tuple[Tensor, Tensor]:
    """How often each score enters the sum over pairs, with its sign, [samples, n], and what is added to it."""
    slope = torch.zeros_like(value)
    constant = value.new_zeros(len(value))
    raised = value + 1  # as one number, so that both counts below are of the same pairs
    for some in torch.arange(count - 1, device=value.device).split(TOGETHER):
        # [classes, samples, n]
        lesser = labels == some[:, None, None]
        greater = labels > some[:, None, None]
        too_high = _below(raised, value, greater, at_most=False).where(lesser, 0)
        too_low = (lesser.sum(dim=2, keepdim=True) - _below(value, raised, lesser, at_most=True)).where(greater, 0)
        slope += (too_high - too_low).sum(dim=0)
        constant += too_high.sum(dim=(0, 2))
    return slope, constant


def _below(numbers: Tensor, values: Tensor, which: Tensor, *, at_most: bool) -> Tensor:
    """How many of some (`which`) of a row's values are below (or at most) each number of the same row."""
    ordered = values.where(which, torch.inf).sort(dim=2).values
    return torch.searchsorted(ordered, numbers.expand_as(ordered).contiguous(), right=at_most)


def choice_loss(scores: Tensor, gains: Tensor) -> Tensor:
    """Cross-entropy of the scores' softmax against one of m over the best m, [samples]; 0 where nothing can be gained.

    Only the ReLU of highest score is ever split, and this loss looks at little else, while Eq. 9 spends most of its
    pairs on telling bad ReLUs from worse.
    """
    tried = gains > -torch.inf
    best = gains.amax(dim=1, keepdim=True)
    share = gains.clamp(min=0) / torch.where(best > 0, best, 1.0)
    wanted = (SHARPNESS * share).masked_fill(~tried, -torch.inf).softmax(dim=1)
    chosen = torch.where(tried, scores, -torch.inf).log_softmax(dim=1).masked_fill(~tried, 0.0)
    return -torch.where(best > 0, wanted * chosen, 0.0).sum(dim=1)


def expected_loss(scores: Tensor, gains: Tensor) -> Tensor:
    """What a choice drawn from the scores' softmax would cost in the mean, [samples]: the logarithm of the best m over
    the chosen one. Where m is the inverse of a tree's size, this is the size that is to be made small.
    """
    tried = gains > -torch.inf
    best = gains.amax(dim=1, keepdim=True)
    share = gains.clamp(min=0) / torch.where(best > 0, best, 1.0)
    cost = torch.where(tried & (best > 0), -share.clamp(min=LEAST_SHARE).log(), 0.0)
    return (torch.where(tried, scores, -torch.inf).softmax(dim=1) * cost).sum(dim=1)


@dataclass(frozen=True, eq=False)
class Judged:
    """How good the chosen ReLUs are, one entry per sample."""

    relative: Tensor  # bool: m at least 0.9 of the best m
    absolute: Tensor  # bool: m at least 0.9
    share: Tensor  # float: m over the best m; 1 where nothing can be gained


def judge(scores: Tensor, gains: Tensor) -> Judged:
    """The ReLU of highest score among those tried, beside the best (both readings of the paper's Appendix D.1)."""
    chosen = gains.gather(1, highest(scores, gains > -torch.inf, 1))[:, 0]
    best = gains.amax(dim=1)
    share = torch.where(best > 0, chosen / best, 1.0)
    return Judged(share >= GOOD, chosen >= GOOD, share)
