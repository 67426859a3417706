"""Which ReLUs the open questions hang on: for domains whose bound tells nothing about where to split.

Where a bound is 0 and stays there until nearly everything is decided (rows that encode a formula, say), no split gains
anything at once, and a rule that looks for gains chooses blindly. What still tells ReLUs apart is how much of the rest
they take part in. Seen from a box, every ambiguous ReLU is an open question; it is the more pressing the likelier it is
to pass something on and the fewer inputs it is left with. A ReLU that looks at inputs of many pressing questions
goes first, as a solver of formulas takes the variable that the shortest clauses have most in common.
"""

import torch
from torch import Tensor

from bough.bounds.interval import enclose
from bough.bounds.relaxation import chord
from bough.network import walk
from bough.network.graph import Network

MOST_ELEMENTS = 1 << 22  # of all nodes of all boxes looked at together


def influence(network: Network, lower: Tensor, upper: Tensor) -> Tensor:
    """The influence of every ReLU, [domains, neurons], over boxes [domains, inputs], in no unit of its input."""
    many = max(1, MOST_ELEMENTS // sum(node.size for node in network.nodes))
    parts = zip(lower.split(many), upper.split(many), strict=True)
    return torch.cat([_influence(network, low, high) for low, high in parts])


def _influence(network: Network, lower: Tensor, upper: Tensor) -> Tensor:
    domains = len(lower)
    graph = network.radius
    sources = [network.nodes[i].inputs[0] for i in network.relus]
    if not sources:
        return lower.new_zeros(domains, 0)
    seen = enclose(network, lower, upper).relu_inputs(network)
    # An input's part in an interval's width, weighed by the chord's slope: the part of the interval that passes.
    width = torch.where(seen.ambiguous(), seen.upper - seen.lower, torch.inf)
    pressing = chord(seen.lower, seen.upper) / width
    live = seen.upper > 0
    seeds: dict[int, Tensor] = {}
    for source, part in zip(sources, network.slices.values(), strict=True):
        seed = pressing[:, part].reshape(domains, *network.nodes[source].shape)
        seeds[source] = seeds[source] + seed if source in seeds else seed

    def relu(i: int, functionals: Tensor) -> Tensor:
        return functionals * live[:, network.slices[i]].reshape(functionals.shape)

    last = max(seeds)
    radius = ((upper - lower) / 2).reshape(domains, *network.input_shape)
    weight = radius * walk.backward(graph, last, seeds.pop(last), relu, also=seeds)
    # The mean weight of a ReLU's inputs, each counted by what it can do to the ReLU.
    weighed, plain = (walk.forward(graph, x) for x in (radius * weight, radius))
    total, share = (torch.cat([v[s].reshape(domains, -1) for s in sources], dim=1) for v in (weighed, plain))
    return torch.where(share > 0, total / torch.where(share > 0, share, 1.0), 0.0)
