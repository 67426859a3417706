"""The paper's models: Lu & Kumar (2020), Eqs. 3-7 and Appendix B (Eqs. 14-31), p = 64, T = 2.

    paper       to the letter
    paper-code  as its authors wrote it down (facts 4.3 to 4.5)

The paper's notation: mu is a node's embedding, z its features, R the information from local features, E what arrives
from neighbours, N what the gate leaves of it, alpha and alpha' the gates, beta the chord's intercept, d the dual
values. Messages follow the network's own operators, and all ReLUs take part; embedding dimensions are
part of the batch. Once the folder `experiments` is on Python's path, `--preset paper` finds the model.
"""

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from functools import cached_property
from operator import add
from typing import final
from weakref import WeakKeyDictionary

import torch
from torch import Tensor, nn

from bough.learning import features
from bough.learning.features import Column, View
from bough.learning.gnn import mlp
from bough.learning.model import AbstractBuilt, ModelSettings
from bough.learning.presets import ModelEntry, TrainingRecipe
from bough.learning.scene import Graph, Scene, in_full
from bough.network import walk
from bough.network.graph import Network
from bough.network.ops import Conv, Relu

Update = Callable[[int, Tensor], Tensor]  # (ReLU node, what arrives [batch, *shape]) -> what it sends, of that shape


# What messages travel on


@dataclass(frozen=True, eq=False)
class Edges:
    """The edges of a graph, all ReLUs included; the graph itself is no part of it, so that both go together."""

    network: Network
    device: torch.device

    @cached_property
    def linear(self) -> Network:
        """The network without its biases: they are features of nodes, and no part of a message."""
        return self.network.linear_part(len(self.network.nodes) - 1)

    @cached_property
    def connections(self) -> dict[int, Tensor]:
        """To how many outputs of each convolution each element of its input is connected; 1 where to none."""
        counts = {}
        for i, node in enumerate(self.network.nodes):
            if isinstance(node.op, Conv):
                op = node.op.changed(torch.ones_like, lambda *biases: biases)
                ones = torch.ones(1, *node.shape, device=self.device)
                with in_full(ones.device):
                    (count,) = op.transpose(self.network.affine[i][1], ones)
                counts[i] = count.round().clamp(min=1)
        return counts

    @cached_property
    def taps(self) -> dict[int, Tensor]:
        """What the authors' code divides by (facts 4.5): connections, but an output position counts once for all of its
        channels, and convolutions that look at the input are left out.
        """
        counts = {}
        for i, count in self.connections.items():
            op = self.network.nodes[i].op
            if self._after_relu[i] and isinstance(op, Conv):
                counts[i] = (count / (op.weight.shape[0] // op.groups)).clamp(min=1)
        return counts

    @cached_property
    def _after_relu(self) -> list[bool]:
        """Whether a ReLU stands between each node and the input."""
        nodes, after = self.network.nodes, list[bool]()
        for node in nodes:
            after.append(any(after[j] or isinstance(nodes[j].op, Relu) for j in node.inputs))
        return after

    def onward(self, at_input: Tensor, relu: Update) -> Tensor:
        """Carry messages [batch, *input shape] to the output, [batch, *output shape]; ReLUs send what `relu` says."""
        return walk.forward(self.linear, at_input, relu)[-1]

    def back(self, at_output: Tensor, relu: Update, shares: Mapping[int, Tensor]) -> Tensor:
        """Carry messages [batch, *output shape] to the input, along transposed operators; ReLUs send what `relu` says.

        What comes back through a node in `shares` is divided by what stands there.
        """
        network = self.linear
        last = len(network.nodes) - 1

        def affine(i: int, arrived: Tensor) -> tuple[Tensor, ...]:
            passed = network.transpose(i, arrived)
            return tuple(g / shares[i] for g in passed) if i in shares else passed

        # A ReLU that nothing looks at hears nothing, and still has an embedding.
        unread = set(range(1, last)).difference(*(node.inputs for node in network.nodes))
        silent = {i: at_output.new_zeros(at_output.shape[0], *network.nodes[i].shape) for i in unread}
        arrived = walk.carry(network, last, at_output, relu, affine, add, also=silent)
        return at_output.new_zeros(at_output.shape[0], *network.input_shape) if arrived is None else arrived


_EDGES: "WeakKeyDictionary[Graph, Edges]" = WeakKeyDictionary()


def edges(graph: Graph) -> Edges:
    """The graph's edges, worked out once for as long as the graph is there."""
    if graph not in _EDGES:
        _EDGES[graph] = Edges(graph.network, graph.neurons.device)
    return _EDGES[graph]


# Features of input nodes


INPUT: Mapping[str, Column] = {
    "lower": lambda v: v.scene.input_lower,
    "upper": lambda v: v.scene.input_upper,
    "point": lambda v: v.scene.point,  # the relaxation's minimiser
}
"""Features of an input node."""

REDUCED_INPUT = ("lower", "upper")


# The paper's model


@dataclass(frozen=True)
class PaperSettings(ModelSettings):
    """Sizes of the paper's models."""

    width: int = 64  # p
    rounds: int = 2  # T


@dataclass(frozen=True)
class Form:
    """Where the paper and its authors' code differ (facts 4.5)."""

    inputs: tuple[str, ...]  # of F_inp
    forward: tuple[str, ...]  # of F_act
    backward: tuple[str, ...]  # of B_act
    output: tuple[str, ...] = tuple(features.OUTPUT)
    local_layers: int = 2  # of B_act-lf1
    local_first: bool = False  # [R, d R] instead of [d R, R] in B_act-lf2; d is (d2, d1) then
    live: bool = False  # whether blocked ReLUs have no embedding at all
    taps: bool = False  # whether shares count positions, not nodes, and the input has none

    def without_relaxation(self) -> "Form":
        """The same without primal and dual values."""
        return replace(
            self,
            inputs=tuple(column for column in self.inputs if column in REDUCED_INPUT),
            forward=tuple(column for column in self.forward if column in features.REDUCED_RELU),
            backward=tuple(column for column in self.backward if column in features.REDUCED_RELU),
            output=tuple(column for column in self.output if column in features.REDUCED_OUTPUT),
        )


_COLUMNS = ("inputs", "forward", "backward", "output")
# Appendix B.1: "l, u, beta, bias, primal values (before and after) and dual values". Of the triangle's three sides the
# authors take the duals of the two that depend on z, and so does this.
_LOCAL = ("lower", "upper", "intercept", "bias", "before", "after", "above", "below")
PAPER = Form(("lower", "upper", "point"), _LOCAL, _LOCAL)
CODE = Form(
    ("lower", "point", "upper"),
    ("intercept", "lower", "upper", "dual", "before", "after", "bias"),
    ("lower", "upper", "intercept", "dual", "after", "before", "bias"),
    local_layers=3,
    local_first=True,
    live=True,
    taps=True,
)


@dataclass(frozen=True, eq=False)
class Gates:
    """Of every ReLU of the network, [domains, nodes, 1], by the node of its layer (Appendix B.1.2)."""

    alpha: Mapping[int, Tensor]  # u / (u - l); 0 if blocked, 1 if passing
    other: Mapping[int, Tensor]  # alpha': 1 - alpha where ambiguous, alpha elsewhere

    @staticmethod
    def of(view: View) -> "Gates":
        """Where ReLUs are no part of the scene, they are decided for all domains."""
        graph = view.graph
        alpha = graph.passing.float().repeat(len(view.scene), 1)
        alpha[:, graph.neurons] = view.slope
        other = alpha.clone()
        other[:, graph.neurons] = torch.where(view.ambiguous, 1 - view.slope, view.slope)
        parts = graph.network.slices
        return Gates({i: alpha[:, p, None] for i, p in parts.items()}, {i: other[:, p, None] for i, p in parts.items()})


@final
class PaperGNN(AbstractBuilt):
    """Eqs. 3-7: T rounds of a forward and a backward sweep through the network's own weights.

    The first forward sweep starts from the features of inputs, every later one from what came back to them.
    """

    settings: PaperSettings

    def __init__(self, preset: str, settings: PaperSettings) -> None:
        super().__init__()
        self.preset = preset
        self.settings = settings
        self.form = CODE if preset == "paper-code" else PAPER
        if settings.reduced:
            self.form = self.form.without_relaxation()
        form, p, self.rounds, self.width = self.form, settings.width, settings.rounds, settings.width
        self.columns = {name: getattr(form, name) for name in _COLUMNS}
        self.input_forward = mlp(len(form.inputs), p, p)  # F_inp, Eq. 14, theta_0
        self.forward_local = mlp(len(form.forward), p, p)  # F_act-lf, Eq. 16, theta_1^0
        self.forward_neighbours = mlp(2 * p, p, p)  # F_act-nb, Eq. 19, theta_1^1
        self.forward_combined = mlp(2 * p, p, p)  # F_act-com, Eq. 20, theta_1^2
        self.output_local = nn.Sequential(nn.Linear(len(form.output), p), nn.ReLU())  # F_out-lf, Eq. 21, theta_2^0
        self.output_combined = mlp(2 * p, p, p)  # F_out-com, Eq. 23, theta_2^1
        self.backward_local = mlp(len(form.backward), *[p] * form.local_layers)  # B_act-lf1, Eq. 24, theta_3^0
        self.backward_duals = mlp(p if settings.reduced else 3 * p, p, p)  # B_act-lf2, Eq. 25, theta_3^1
        self.backward_neighbours = mlp(2 * p, p, p)  # B_act-nb, Eq. 28, theta_3^2
        self.backward_combined = mlp(2 * p, p, p)  # B_act-com, Eq. 29, theta_3^3
        self.input_backward = mlp(2, p, p)  # B_inp-lf, Eq. 30, theta_4^0
        self.input_combined = mlp(2 * p, p, p)  # B_inp-com, Eq. 31, theta_4^1
        self.score = mlp(p, p, 1)  # g_s, theta_5

    def forward(self, graph: Graph, scene: Scene) -> Tensor:
        """Scores of the ReLUs, [domains, n]."""
        view = View(graph, scene)
        return self._scored_relus(self._embedded(view, with_inputs=False)[0], graph)

    def footprint(self, graph: Graph) -> int:
        """Of every node of the network."""
        return 40 * self.width * (graph.network.neurons + graph.network.inputs)

    def score_all(self, graph: Graph, scene: Scene) -> Tensor:
        """Scores of the ReLUs and of the input nodes, which the paper lets be split, too, [domains, n + inputs]."""
        view = View(graph, scene)
        mu, mu_0 = self._embedded(view, with_inputs=True)
        return torch.cat([self._scored_relus(mu, graph), self.score(mu_0)[..., 0]], dim=1)

    def _scored_relus(self, mu: Mapping[int, Tensor], graph: Graph) -> Tensor:
        among = torch.cat([mu[i][:, elements] for i, elements in graph.elements.items()], dim=1)
        score: Tensor = self.score(among)
        return score[..., 0]

    def _embedded(self, view: View, *, with_inputs: bool) -> tuple[Mapping[int, Tensor], Tensor]:
        """Embeddings of the ReLUs, by the node of their layer, and of the input.

        The last update of the input matters to nobody unless inputs are scored.
        """
        gates = Gates.of(view)
        ambiguous = view.ambiguous[..., None]
        local = self.forward_local(features.stacked(view, features.RELU, self.form.forward)) * ambiguous  # R, Eq. 16
        local_back = self._backward_local(view) * ambiguous  # R^b', Eq. 25
        mu_0 = self.input_forward(features.stacked(view, INPUT, self.form.inputs))  # Eqs. 3 and 14, once
        mu: dict[int, Tensor] = {}
        for k in range(self.rounds):
            mu_L = self._forward_sweep(view, gates, self._layers(view, local), mu_0)
            mu, arrived = self._backward_sweep(view, gates, self._layers(view, local_back), mu_L)
            if with_inputs or k < self.rounds - 1:
                sides = features.stacked(view, INPUT, REDUCED_INPUT)
                mu_0 = self.input_combined(torch.cat([self.input_backward(sides), arrived], dim=-1))  # Eqs. 7 and 31
        return mu, mu_0

    def _backward_local(self, view: View) -> Tensor:
        """R^b', [domains, n, p]: local features, then once more with the duals."""
        R = self.backward_local(features.stacked(view, features.RELU, self.form.backward))  # R^b, Eq. 24
        if not self.settings.reduced:
            d1, d2 = view.seen("above")[..., None], view.seen("below")[..., None]
            R = torch.cat([R, d2 * R, d1 * R] if self.form.local_first else [d1 * R, d2 * R, R], dim=-1)
        embedding: Tensor = self.backward_duals(R)
        return embedding

    def _layers(self, view: View, local: Tensor) -> dict[int, Tensor]:
        """Information [domains, n, p] about ReLUs that may be split, on whole layers, 0 elsewhere."""
        graph, by_layer = view.graph, {}
        for part, (i, elements) in zip(graph.layers, graph.elements.items(), strict=True):
            blank = local.new_zeros(len(local), graph.network.nodes[i].size, self.width)
            by_layer[i] = blank.index_copy(1, elements, local[:, part])
        return by_layer

    def _forward_sweep(self, view: View, gates: Gates, local: Mapping[int, Tensor], mu_0: Tensor) -> Tensor:
        """Eqs. 4 and 5; the output's embedding mu_L, [domains, p]."""

        def act(i: int, arrived: Tensor) -> Tensor:  # Eq. 4
            E = _as_nodes(arrived, self.width)  # Eq. 17: sum of W mu_{i-1}
            N = self.forward_neighbours(torch.cat([gates.alpha[i] * E, gates.other[i] * E], dim=-1))  # Eq. 19
            mu = self.forward_combined(torch.cat([local[i], N], dim=-1))  # Eq. 20
            return _as_messages(self._living(mu, gates.alpha[i]), arrived.shape[1:])

        last = edges(view.graph).onward(_as_messages(mu_0, view.graph.network.input_shape), act)
        # The functional is merged into the last layer, as the paper's property is.
        E = torch.einsum("dkp,dk->dp", _as_nodes(last, self.width), view.seen("functional"))  # Eq. 22
        R = self.output_local(features.stacked(view, features.OUTPUT, self.form.output))  # Eq. 21
        embedding: Tensor = self.output_combined(torch.cat([R, E], dim=-1))  # Eq. 23
        return embedding

    def _backward_sweep(
        self, view: View, gates: Gates, local: Mapping[int, Tensor], mu_L: Tensor
    ) -> tuple[dict[int, Tensor], Tensor]:
        """Eq. 6: the ReLUs' embeddings, and what arrives at the input, [domains, inputs, p]."""
        embeddings: dict[int, Tensor] = {}

        def act(i: int, arrived: Tensor) -> Tensor:  # Eq. 6
            E = _as_nodes(arrived, self.width)  # Eqs. 26 and 27: convolutions have divided it
            N = self.backward_neighbours(torch.cat([gates.alpha[i] * E, gates.other[i] * E], dim=-1))  # Eq. 28
            mu = self.backward_combined(torch.cat([local[i], N], dim=-1))  # Eq. 29
            embeddings[i] = self._living(mu, gates.alpha[i])
            return _as_messages(embeddings[i], arrived.shape[1:])

        seed = _as_messages(view.seen("functional")[..., None] * mu_L[:, None], view.graph.network.nodes[-1].shape)
        along = edges(view.graph)
        shares = along.taps if self.form.taps else along.connections
        return embeddings, _as_nodes(along.back(seed, act, shares), self.width)

    def _living(self, mu: Tensor, alpha: Tensor) -> Tensor:
        """In the code, a blocked ReLU has no embedding; by the paper it has that of hearing nothing."""
        return mu * (alpha != 0) if self.form.live else mu


def _as_messages(mu: Tensor, shape: torch.Size | tuple[int, ...]) -> Tensor:
    """[domains, nodes, p] as [domains * p, *shape]: an operator sees every embedding dimension as a point."""
    return mu.transpose(1, 2).reshape(-1, *shape)


def _as_nodes(messages: Tensor, p: int) -> Tensor:
    """The way back, [domains, nodes, p]."""
    return messages.reshape(messages.shape[0] // p, p, math.prod(messages.shape[1:])).transpose(1, 2)


MODELS = (
    ModelEntry(
        name="paper",
        words="the model of Lu & Kumar (2020) to the letter",
        settings=PaperSettings,
        make=PaperGNN,
        usual=TrainingRecipe("paper"),
    ),
    ModelEntry(
        name="paper-code",
        words="the same as its authors wrote it down",
        settings=PaperSettings,
        make=PaperGNN,
        usual=TrainingRecipe("paper-code"),
    ),
)
