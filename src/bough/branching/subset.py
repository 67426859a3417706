"""Which ReLUs strong branching tries when it does not try them all: BaBSR's best, and a random part of every layer.

So the paper's authors chose when they made training data (section 6.2): "branching decisions that are estimated to be
of high quality by the BaBSR heuristic and randomly selected ones, which ensure a minimum 5% coverage on each layer".
"""

from dataclasses import dataclass

import torch
from torch import Tensor

from bough.domain.batch import DomainBatch

MIX = 0x2545F4914F6CDD1D  # an odd multiplier with bits all over, as generators of random numbers use
LOW_BITS = (1 << 31) - 1


@dataclass(frozen=True)
class Subset:
    """The `best` ReLUs by score over all layers; and where these are fewer than `share` of a layer's ambiguous ReLUs,
    random ones until they are that many.

    The paper does not say how many are the best ones. With 64, as many are tried as its appendix reports: about 140 of
    1,300 ambiguous ReLUs on CIFAR-10, about 80 of 480 on MNIST.
    """

    best: int = 64
    share: float = 0.05
    seed: int = 0

    def of(self, domains: DomainBatch, score: Tensor, parts: list[slice]) -> Tensor:
        """Which ReLUs to try, bool [domains, neurons]: ambiguous ones only."""
        ambiguous = domains.bounds.ambiguous()
        count = min(max(self.best, 1), ambiguous.shape[1])
        order = torch.where(ambiguous, score, -torch.inf).argsort(dim=1, descending=True, stable=True)
        chosen = torch.zeros_like(ambiguous).scatter(1, order[:, :count], value=True) & ambiguous
        luck = self._luck(domains)
        for part in parts:
            wanted = (self.share * ambiguous[:, part].sum(dim=1, keepdim=True)).ceil()
            # Those chosen by score count first, the luckiest of the others make up what is missing.
            merit = torch.where(ambiguous[:, part], luck[:, part] + chosen[:, part], -1.0)
            place = merit.argsort(dim=1, descending=True, stable=True).argsort(dim=1)
            chosen[:, part] |= ambiguous[:, part] & (place < wanted)
        return chosen

    def _luck(self, domains: DomainBatch) -> Tensor:
        """A random number from 0 to 1 for every ReLU, [domains, neurons], which depends on the domain (its clause and
        splits) and the seed only: neither on the batch it is in, nor on what was drawn before.
        """
        device = domains.signs.device
        generator = torch.Generator().manual_seed(self.seed)
        key = torch.randint(1 << 62, (domains.signs.shape[1] + 1,), generator=generator).to(device)
        # As in Zobrist's hashing of chess positions: a random number for each part, all of them summed; overflow wraps.
        name = (domains.signs * key[1:]).sum(dim=1) + (domains.clause + 1) * key[0]
        mixed = (name[:, None] ^ key[1:]) * MIX
        mixed = (mixed ^ (mixed >> 29)) * MIX
        return ((mixed >> 32) & LOW_BITS).double() / (LOW_BITS + 1)
