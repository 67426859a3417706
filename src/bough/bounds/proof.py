"""From dual variables to a proof: how the network's own ReLUs are passed so that `linear` proves what ascent found."""

import torch
from torch import Tensor

from bough.bounds.linear import PassRelu
from bough.bounds.reduced import Reduced
from bough.bounds.relaxation import chord

PROOF_BYTES = {"cpu": 1 << 26, "cuda": 1 << 32}  # of the widest arrays of one float64 proof


def by_duals(net: Reduced, p: Tensor, signs: Tensor, passing: Tensor | None = None) -> PassRelu:
    """Pass the network's own ReLUs as the duals p [domains, rows, n] say: what proves a bound that ascent found.

    `passing` [neurons] says of ReLUs outside `net` which are; the bounds say the same, a domain at a time.
    """
    places = {int(net.neurons[part][0]): part for part in net.layers if part.stop > part.start}

    def pass_relu(part: slice, nu: Tensor, lower: Tensor, upper: Tensor) -> tuple[Tensor, Tensor]:
        lam = nu * ((lower >= 0) if passing is None else passing[part])
        slots = next((layer for first, layer in places.items() if part.start <= first < part.stop), slice(0, 0))
        columns = net.neurons[slots] - part.start
        n, q, sign = nu[..., columns], p[..., slots], signs[..., slots]
        bent = n * torch.where(n >= 0, q, chord(lower[..., columns], upper[..., columns]))
        lam[..., columns] = torch.where(sign == 0, bent, torch.where(sign > 0, n - q, q))
        return lam, columns

    return pass_relu
