"""Labels of input nodes: domains enter, bounds of both halves of their box leave, cut in the middle of one input each.

The paper lets its model score inputs, too; what a cut is worth is measured as that of a ReLU is, by the bounds of both
parts. A half is a problem of its own: its ReLUs are bounded anew over the smaller box, what is known of them in the
domain stays known, its splits included, and then it is bounded by the search's own kind of bounds. That is dear, and
most inputs of an image do nothing: only those are tried that the domain's bound depends on most.
"""

from dataclasses import dataclass, replace

import torch
from torch import Tensor

from bough.bounds.base import AbstractBounder
from bough.bounds.dual import DualAscent
from bough.bounds.intermediate import TightBounds
from bough.bounds.lp import PlanetLP
from bough.budget import Deadline
from bough.domain.batch import DomainBatch
from bough.errors import BadInput
from bough.learning.scene import HOST, Graph, Scene
from bough.network import walk
from bough.problem.problem import Problem
from bough.problem.property import Box, Property

WIDTH = 1e-3  # what the width of an input counts beside how much the bound depends on it


def slopes(graph: Graph, scene: Scene) -> Tensor:
    """How much the bound of each domain depends on each input, [domains, inputs]: the coefficients that its multipliers
    leave there.
    """
    network = graph.network
    count = len(scene)
    places = {i: (part, graph.layers[k]) for k, (i, part) in enumerate(network.slices.items())}

    def relu(i: int, functionals: Tensor) -> Tensor:
        part, layer = places[i]
        passed = functionals.flatten(1) * graph.passing[part]
        passed[:, graph.neurons[layer] - part.start] = scene.through[:, layer]
        return passed.reshape(functionals.shape)

    seed = scene.functional.reshape(count, *network.nodes[-1].shape)
    return walk.backward(network, len(network.nodes) - 1, seed, relu).flatten(1)


@dataclass(frozen=True, eq=False)
class Halves:
    """Bounds of halves, of the `most` inputs of each domain that its bound depends on most."""

    problem: Problem
    bounder: AbstractBounder
    most: int
    deadline: Deadline

    def __post_init__(self) -> None:
        if any(box.ball is not None for box in self.problem.property.boxes):
            raise BadInput("half a ball is no ball; inputs are labelled for boxes only")

    def bound(self, domains: DomainBatch, graph: Graph, scene: Scene) -> Tensor:
        """Bounds of the lower and the upper half, float32 [domains, inputs, 2], on the host; -inf: not tried."""
        width = scene.input_upper - scene.input_lower
        # An LP has its minimum between the sides of most inputs, and does not depend on them: width counts a little.
        value = _share(slopes(graph, scene).abs() * width) + WIDTH * _share(width)
        chosen = torch.where(width > 0, value, -torch.inf).topk(min(self.most, value.shape[1]), dim=1).indices
        bounds = torch.full((*value.shape, 2), -torch.inf)
        for d, inputs in enumerate(chosen.sort(dim=1).values):
            indices = inputs[width[d, inputs] > 0].to(HOST)
            if len(indices):
                bounds[d, indices] = self._halves(domains[torch.tensor([d], device=domains.lower.device)], indices)
        return bounds

    def _halves(self, domain: DomainBatch, inputs: Tensor) -> Tensor:
        """[inputs, 2], of one domain: all halves are roots of one problem, with what is known of the domain added."""
        clause = self.problem.property.clauses[int(domain.clause[0])]
        whole = self.problem.property.boxes[clause.box]
        boxes = tuple(half for k in inputs.tolist() for half in cut(whole, k))
        clauses = tuple(replace(clause, box=k) for k in range(len(boxes)))
        problem = replace(self.problem, property=Property(boxes, clauses))
        bounder = self.bounder
        if isinstance(bounder, DualAscent | PlanetLP):  # lines of every domain's own, and no ascent for each ReLU
            bounder = replace(bounder, intermediate=TightBounds(refresh=True))
        session = bounder.prepare(problem)
        roots = session.root(torch.inf, self.deadline).domains
        copies = domain.to(roots.lower.device)[torch.zeros_like(roots.clause)]
        known = roots.bounds.intersect(copies.bounds)
        # To a half all splits of the domain are new. Where none is, naming one that is not split changes nothing.
        splits = copies.signs[0].nonzero()[:, 0] if bool(copies.signs.any()) else torch.zeros_like(copies.clause[:1])
        halves = replace(roots, signs=copies.signs, bounds=known, last_split=splits.expand(len(roots), -1))
        bounded = session.bound(halves, torch.inf, self.deadline).domains.lower
        # A half is part of the domain, and what is not a number proves nothing.
        return torch.fmax(bounded, copies.lower).reshape(-1, 2).float().to(HOST)


def _share(x: Tensor) -> Tensor:
    """Each number as a share of the largest of its domain."""
    return x / x.amax(dim=1, keepdim=True).clamp(min=torch.finfo(x.dtype).tiny)


def cut(box: Box, number: int) -> tuple[Box, Box]:
    """The lower and the upper half of a box, by the middle of one input."""
    middle = box.lower[number] / 2 + box.upper[number] / 2
    upper, lower = box.upper.clone(), box.lower.clone()
    upper[number], lower[number] = middle, middle
    return replace(box, upper=upper), replace(box, lower=lower)
