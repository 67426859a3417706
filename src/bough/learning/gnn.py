"""The networks that score: a graph and a scene enter, a score for every ReLU that may be split leaves.

    paper       Lu & Kumar (2020), Eqs. 3-7 and Appendix B (Eqs. 14-31) to the letter: p = 64, T = 2
    paper-code  the same as its authors wrote it down (facts 4.3 to 4.5)
    local       every ReLU by itself: no messages; what a graph has to beat
    fast        one sweep on and one back between ambiguous ReLUs only; see `Fast`

The paper's notation: mu is a node's embedding, z its features, R the information from local features, E what arrives
from neighbours, N what the gate leaves of it, alpha and alpha' the gates, beta the chord's intercept, d the dual
values. Models look at all domains at once: whoever has many hands them in by the piece (`footprint` says what one
takes). What can be known of a graph's edges is kept while the graph is: whoever decides often keeps the graph.
"""

import math
from abc import abstractmethod
from collections.abc import Callable, Mapping
from contextlib import nullcontext
from dataclasses import asdict, dataclass, replace
from itertools import pairwise
from typing import Any, final

import torch
from torch import Tensor, nn

from bough.errors import BadInput
from bough.learning import features
from bough.learning.features import InputColumn, OutputColumn, ReluColumn, ScaledOutput, ScaledRelus, View, compressed
from bough.learning.model import AbstractModel
from bough.learning.scene import Graph, Scene
from bough.learning.wiring import Wiring, back, onward


class AbstractBuilt(AbstractModel):
    """A model that can be built again: `build(model.preset, **model.settings)` has arrays of the same shapes."""

    settings: Mapping[str, Any]
    columns: Mapping[str, tuple[str, ...]]  # the names of its features, by kind of node

    @abstractmethod
    def footprint(self, graph: Graph) -> int:
        """Bytes that scoring takes per domain, about (measured on Base); training takes several times that."""


def mlp(*widths: int) -> nn.Sequential:
    """Linear layers with ReLUs between them, and none after the last."""
    layers: list[nn.Module] = []
    for before, after in pairwise(widths):
        layers += [nn.Linear(before, after), nn.ReLU()]
    return nn.Sequential(*layers[:-1])


# The paper's model


@dataclass(frozen=True)
class PaperSettings:
    """Sizes, and which of the two forms."""

    reduced: bool = False  # without primal and dual values: the paper's GNN-R
    width: int = 64  # p
    rounds: int = 2  # T


@dataclass(frozen=True)
class Form:
    """Where the paper and its authors' code differ (facts 4.5)."""

    inputs: tuple[InputColumn, ...]  # of F_inp
    forward: tuple[ReluColumn, ...]  # of F_act
    backward: tuple[ReluColumn, ...]  # of B_act
    output: tuple[OutputColumn, ...] = tuple(OutputColumn)
    local_layers: int = 2  # of B_act-lf1
    local_first: bool = False  # [R, d R] instead of [d R, R] in B_act-lf2; d is (d2, d1) then
    live: bool = False  # whether blocked ReLUs have no embedding at all
    taps: bool = False  # whether shares count positions, not nodes, and the input has none

    def without_relaxation(self) -> "Form":
        """The same without primal and dual values."""
        kept = {*features.REDUCED_INPUT, *features.REDUCED_RELU, *features.REDUCED_OUTPUT}
        sides: dict[str, Any] = {name: tuple(c for c in getattr(self, name) if c in kept) for name in _COLUMNS}
        return replace(self, **sides)


_COLUMNS = ("inputs", "forward", "backward", "output")
_I, _R = InputColumn, ReluColumn
# Appendix B.1: "l, u, beta, bias, primal values (before and after) and dual values". Of the triangle's three sides the
# authors take the duals of the two that depend on z, and so does this.
_LOCAL = (_R.LOWER, _R.UPPER, _R.INTERCEPT, _R.BIAS, _R.BEFORE, _R.AFTER, _R.ABOVE, _R.BELOW)
PAPER = Form((_I.LOWER, _I.UPPER, _I.POINT), _LOCAL, _LOCAL)
CODE = Form(
    (_I.LOWER, _I.POINT, _I.UPPER),
    (_R.INTERCEPT, _R.LOWER, _R.UPPER, _R.DUAL, _R.BEFORE, _R.AFTER, _R.BIAS),
    (_R.LOWER, _R.UPPER, _R.INTERCEPT, _R.DUAL, _R.AFTER, _R.BEFORE, _R.BIAS),
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
        wires, count = view.wires, len(view.scene)
        alpha = wires.passing.float().repeat(count, 1)
        alpha[:, wires.neurons] = view.slope
        other = alpha.clone()
        other[:, wires.neurons] = torch.where(view.ambiguous, 1 - view.slope, view.slope)
        parts = wires.network.slices
        return Gates({i: alpha[:, p, None] for i, p in parts.items()}, {i: other[:, p, None] for i, p in parts.items()})


@final
class PaperGNN(AbstractBuilt):
    """Eqs. 3-7: T rounds of a forward and a backward sweep through the network's own weights.

    The first forward sweep starts from the features of inputs, every later one from what came back to them.
    """

    def __init__(self, preset: str, settings: PaperSettings) -> None:
        super().__init__()
        self.preset, self.settings, self.form = preset, asdict(settings), CODE if preset == "paper-code" else PAPER
        if settings.reduced:
            self.form = self.form.without_relaxation()
        form, p, self.rounds, self.width = self.form, settings.width, settings.rounds, settings.width
        self.columns = {name: tuple(c.value for c in getattr(form, name)) for name in _COLUMNS}
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
        return self._scored_relus(self._embedded(view, inputs=False)[0], view.wires)

    def footprint(self, graph: Graph) -> int:
        """Of every node of the network."""
        return 40 * self.width * (graph.network.neurons + graph.network.inputs)

    def score_all(self, graph: Graph, scene: Scene) -> Tensor:
        """Scores of the ReLUs and of the input nodes, which the paper lets be split, too, [domains, n + inputs]."""
        view = View(graph, scene)
        mu, mu_0 = self._embedded(view, inputs=True)
        return torch.cat([self._scored_relus(mu, view.wires), self.score(mu_0)[..., 0]], dim=1)

    def _scored_relus(self, mu: Mapping[int, Tensor], wires: Wiring) -> Tensor:
        among = torch.cat([mu[i][:, elements] for i, elements in wires.elements.items()], dim=1)
        score: Tensor = self.score(among)
        return score[..., 0]

    def _embedded(self, view: View, *, inputs: bool) -> tuple[Mapping[int, Tensor], Tensor]:
        """Embeddings of the ReLUs, by the node of their layer, and of the input.

        The last update of the input matters to nobody unless `inputs` are scored.
        """
        gates = Gates.of(view)
        ambiguous = view.ambiguous[..., None]
        local = self.forward_local(features.relus(view, self.form.forward)) * ambiguous  # R, Eq. 16
        local_back = self._backward_local(view) * ambiguous  # R^b', Eq. 25
        mu_0 = self.input_forward(features.inputs(view, self.form.inputs))  # Eqs. 3 and 14, once
        mu: dict[int, Tensor] = {}
        for k in range(self.rounds):
            mu_L = self._forward_sweep(view, gates, self._layers(view, local), mu_0)
            mu, arrived = self._backward_sweep(view, gates, self._layers(view, local_back), mu_L)
            if inputs or k < self.rounds - 1:
                sides = features.inputs(view, features.REDUCED_INPUT)
                mu_0 = self.input_combined(torch.cat([self.input_backward(sides), arrived], dim=-1))  # Eqs. 7 and 31
        return mu, mu_0

    def _backward_local(self, view: View) -> Tensor:
        """R^b', [domains, n, p]: local features, then once more with the duals."""
        R = self.backward_local(features.relus(view, self.form.backward))  # R^b, Eq. 24
        if not self.settings["reduced"]:
            d1, d2 = view.above[..., None], view.below[..., None]
            R = torch.cat([R, d2 * R, d1 * R] if self.form.local_first else [d1 * R, d2 * R, R], dim=-1)
        found: Tensor = self.backward_duals(R)
        return found

    def _layers(self, view: View, local: Tensor) -> dict[int, Tensor]:
        """Information [domains, n, p] about ReLUs that may be split, on whole layers, 0 elsewhere."""
        wires, found = view.wires, {}
        for part, (i, elements) in zip(wires.layers, wires.elements.items(), strict=True):
            blank = local.new_zeros(len(local), wires.network.nodes[i].size, self.width)
            found[i] = blank.index_copy(1, elements, local[:, part])
        return found

    def _forward_sweep(self, view: View, gates: Gates, local: Mapping[int, Tensor], mu_0: Tensor) -> Tensor:
        """Eqs. 4 and 5; the output's embedding mu_L, [domains, p]."""
        wires = view.wires

        def act(i: int, arrived: Tensor) -> Tensor:  # Eq. 4
            E = _as_nodes(arrived, self.width)  # Eq. 17: sum of W mu_{i-1}
            N = self.forward_neighbours(torch.cat([gates.alpha[i] * E, gates.other[i] * E], dim=-1))  # Eq. 19
            mu = self.forward_combined(torch.cat([local[i], N], dim=-1))  # Eq. 20
            return _as_messages(self._living(mu, gates.alpha[i]), arrived.shape[1:])

        last = onward(wires, _as_messages(mu_0, wires.network.input_shape), act)
        # The functional is merged into the last layer, as the paper's property is.
        E = torch.einsum("dkp,dk->dp", _as_nodes(last, self.width), view.functional)  # Eq. 22
        R = self.output_local(features.output(view, self.form.output))  # Eq. 21
        found: Tensor = self.output_combined(torch.cat([R, E], dim=-1))  # Eq. 23
        return found

    def _backward_sweep(
        self, view: View, gates: Gates, local: Mapping[int, Tensor], mu_L: Tensor
    ) -> tuple[dict[int, Tensor], Tensor]:
        """Eq. 6: the ReLUs' embeddings, and what arrives at the input, [domains, inputs, p]."""
        wires = view.wires
        found: dict[int, Tensor] = {}

        def act(i: int, arrived: Tensor) -> Tensor:  # Eq. 6
            E = _as_nodes(arrived, self.width)  # Eqs. 26 and 27: convolutions have divided it
            N = self.backward_neighbours(torch.cat([gates.alpha[i] * E, gates.other[i] * E], dim=-1))  # Eq. 28
            mu = self.backward_combined(torch.cat([local[i], N], dim=-1))  # Eq. 29
            found[i] = self._living(mu, gates.alpha[i])
            return _as_messages(found[i], arrived.shape[1:])

        seed = _as_messages(view.functional[..., None] * mu_L[:, None], wires.network.nodes[-1].shape)
        shares = wires.taps if self.form.taps else wires.connections
        return found, _as_nodes(back(wires, seed, act, shares), self.width)

    def _living(self, mu: Tensor, alpha: Tensor) -> Tensor:
        """In the code, a blocked ReLU has no embedding; by the paper it has that of hearing nothing."""
        return mu * (alpha != 0) if self.form.live else mu


def _as_messages(mu: Tensor, shape: torch.Size | tuple[int, ...]) -> Tensor:
    """[domains, nodes, p] as [domains * p, *shape]: an operator sees every embedding dimension as a point."""
    return mu.transpose(1, 2).reshape(-1, *shape)


def _as_nodes(messages: Tensor, p: int) -> Tensor:
    """The way back, [domains, nodes, p]."""
    return messages.reshape(messages.shape[0] // p, p, math.prod(messages.shape[1:])).transpose(1, 2)


# Our own models


@dataclass(frozen=True)
class LocalSettings:
    """Sizes; `columns` names the features where it is not to be all of them."""

    reduced: bool = False
    width: int = 64
    hidden: int = 2  # layers
    columns: tuple[str, ...] = ()


@final
class Local(AbstractBuilt):
    """Every ReLU by itself, from scaled features: with good duals at hand, most of what matters is local."""

    def __init__(self, preset: str, settings: LocalSettings) -> None:
        super().__init__()
        chosen = _chosen(settings.columns, reduced=settings.reduced)
        self.preset, self.settings = preset, {**asdict(settings), "columns": [c.value for c in chosen]}
        self.columns = {"relu": tuple(c.value for c in chosen)}
        self.relus = ScaledRelus(chosen)
        self.score = mlp(len(chosen), *[settings.width] * settings.hidden, 1)

    def forward(self, graph: Graph, scene: Scene) -> Tensor:
        """Scores, [domains, n]."""
        score: Tensor = self.score(self.relus(View(graph, scene, self.settings["reduced"])))
        return score[..., 0].T

    def footprint(self, graph: Graph) -> int:
        """Of every ReLU that may be split."""
        numbers: int = 4 * len(self.columns["relu"]) + 2 * self.settings["width"]
        return 4 * max(1, len(graph.neurons)) * numbers


@dataclass(frozen=True)
class FastSettings:
    """Sizes; `columns` names the features where it is not to be all of them."""

    reduced: bool = False
    width: int = 16  # p
    hidden: int = 64  # of the encoder and of the score
    mixed: bool = True  # products in bfloat16 on a GPU
    columns: tuple[str, ...] = ()


@final
class Fast(AbstractBuilt):
    """One sweep on and one back, in p learnt channels of a linear relaxation; meant to cost less than two children.

    - *Ambiguous ReLUs only*: the others are substituted (`Wiring.between`), as they are for ascent, so that a message
      is one product of dense matrices, of a few hundred rows in place of thousands, for any network.
    - *Channels are linear bounds.* Going on, a ReLU passes alpha of what arrives and adds its own intercept times a
      learnt vector; going back, it passes the share of nu that its lines pass, and adds its own multiplier times a
      learnt vector. So blocked ReLUs pass nothing, passing ones pass everything, and where all vectors are 1 the sweeps
      are those of a bound.
    - *Normalised by what the domain itself says*: what arrives is read in units of the ReLU's own width going on, and
      as a share of the bound going back. Rescaling a layer changes neither, so nothing has to be learnt about a
      network's scale, and a message has the size of a share however deep the network is.
    - *Residual*: what a node reads is added to an encoding of its own features, so both sweeps reach every score by
      a short way (the paper's forward sweep reaches it through the output only, and died in training: facts 4.6). The
      score also sees the encoder's hidden layer: with messages of no use, this is `Local`.
    - *Nodes first*, [n, domains, p]: a layer is a piece of memory, and its products need no transposition.
    - *Mixed precision*: matrix products in bfloat16 on a GPU, which has float32's range; units are applied in float32.
    """

    def __init__(self, preset: str, settings: FastSettings) -> None:
        super().__init__()
        chosen = _chosen(settings.columns, reduced=settings.reduced)
        output = features.REDUCED_OUTPUT if settings.reduced else (*features.REDUCED_OUTPUT, OutputColumn.VALUE)
        self.preset, self.settings = preset, {**asdict(settings), "columns": [c.value for c in chosen]}
        self.columns = {"relu": tuple(c.value for c in chosen), "output": tuple(c.value for c in output)}
        p, hidden = settings.width, settings.hidden
        self.relus, self.output = ScaledRelus(chosen), ScaledOutput(output)
        self.encoder = nn.Linear(len(chosen), hidden)
        self.own = nn.Linear(hidden, p)
        self.forward_send, self.forward_read = nn.Linear(p, p), mlp(p, p, p)
        self.output_read = mlp(len(output) + p, 2 * p, p)
        self.backward_send, self.backward_read = nn.Linear(p, p), mlp(p, p, p)
        self.score = mlp(hidden + p, hidden, 1)

    def forward(self, graph: Graph, scene: Scene) -> Tensor:
        """Scores, [domains, n]."""
        mixed = scene.bound.is_cuda and self.settings["mixed"]
        with torch.autocast("cuda", torch.bfloat16) if mixed else nullcontext():
            return self._scores(View(graph, scene, self.settings["reduced"])).T.float()

    def footprint(self, graph: Graph) -> int:
        """Of every ReLU that may be split."""
        numbers: int = 4 * len(self.columns["relu"]) + 2 * self.settings["hidden"] + 12 * self.settings["width"]
        return 4 * max(1, len(graph.neurons)) * numbers

    def _scores(self, view: View) -> Tensor:
        wide = self.encoder(self.relus(view)).relu()  # [n, domains, hidden]
        mu, g = self._forward_sweep(view, self.own(wide))
        mu = self._backward_sweep(view, mu, g)
        score: Tensor = self.score(torch.cat([wide, mu.to(wide)], dim=-1))
        return score[..., 0]

    def _forward_sweep(self, view: View, own: Tensor) -> tuple[Tensor, Tensor]:
        """Embeddings [n, domains, p], and the output's, [domains, p]."""
        wires, matrix, n = view.wires, view.wires.between, len(view.wires.neurons)
        slope, intercept, width = (_column(x) for x in (view.slope, view.intercept, view.width))
        embedded, sent = [], own.new_zeros(0, *own.shape[1:], dtype=torch.float32)
        for part in wires.layers:
            # Nothing arrives at the first layer, often the largest: one node's reading of that serves them all.
            here = part if part.start else slice(0, 1)
            arrived = _product(matrix[here, : part.start], sent)
            mu = own[part] + self.forward_read(compressed(arrived / width[here]))
            vector = self.forward_send(mu.relu())
            sent = torch.cat([sent, slope[part] * arrived + intercept[part] * vector])
            embedded.append(mu)
        arrived = torch.einsum("kdp,dk->dp", _product(matrix[n:], sent), view.functional) / view.way[:, None]
        g: Tensor = self.output_read(torch.cat([self.output(view), compressed(arrived)], dim=-1))
        return torch.cat([own[:0], *embedded]), g

    def _backward_sweep(self, view: View, own: Tensor, g: Tensor) -> Tensor:
        """Embeddings, [n, domains, p]."""
        wires, matrix, n = view.wires, view.wires.between, len(view.wires.neurons)
        direct = _column(view.functional @ matrix[n:])
        through, passed = self._multipliers(view)
        unit = _column(view.intercept / view.way[:, None])
        embedded, sent, start = [], own.new_zeros(0, *own.shape[1:], dtype=torch.float32), n
        for part in reversed(wires.layers):
            arrived = direct[part] * g + _product(matrix[start:n, part].T, sent)
            mu = own[part] + self.backward_read(compressed(arrived * unit[part]))
            vector = self.backward_send(mu.relu())
            sent, start = torch.cat([passed[part] * arrived + through[part] * vector, sent]), part.start
            embedded.append(mu)
        return torch.cat([*reversed(embedded), own[:0]])

    def _multipliers(self, view: View) -> tuple[Tensor, Tensor]:
        """Of each ambiguous ReLU the coefficient on z, and of each ReLU what it passes of a coefficient on x, both
        [n, domains, 1]; without duals, those of Wong-Kolter slopes.
        """
        if self.settings["reduced"]:
            return _column(_parallel(view) * view.ambiguous), _column(view.slope)
        nu = view.coefficient
        some = nu.abs() > 1 / features.LARGEST
        ratio = (view.through / torch.where(some, nu, 1.0)).clamp(0, 1)
        passed = torch.where(view.ambiguous & some, ratio, view.slope)
        return _column(view.through * view.ambiguous), _column(passed)


def _column(x: Tensor) -> Tensor:
    """[domains, n] as [n, domains, 1]."""
    return x.T[..., None]


def _product(matrix: Tensor, sent: Tensor) -> Tensor:
    """Messages [from, domains, p] along a matrix [to, from]; float32, whatever the product is made in."""
    return (matrix @ sent.flatten(1)).reshape(len(matrix), *sent.shape[1:]).float()


def _parallel(view: View) -> Tensor:
    """The coefficients on z, [domains, n], that Wong-Kolter slopes give the functional."""
    wires, n = view.wires, len(view.wires.neurons)
    direct, found, start = view.functional @ wires.between[n:], view.slope[:, :0], n
    for part in reversed(wires.layers):
        nu = direct[:, part] + found @ wires.between[start:n, part]
        found, start = torch.cat([nu * view.slope[:, part], found], dim=1), part.start
    return found


def _chosen(names: tuple[str, ...], *, reduced: bool) -> tuple[ReluColumn, ...]:
    wanted = features.named(names) if names else tuple(ReluColumn)
    kept = tuple(column for column in wanted if not reduced or column in features.REDUCED_RELU)
    if not kept:
        raise BadInput("a model needs at least one column of features")
    return kept


# All of them, by name

_PRESETS: Mapping[str, tuple[type[Any], Callable[[str, Any], AbstractBuilt]]] = {
    "paper": (PaperSettings, PaperGNN),
    "paper-code": (PaperSettings, PaperGNN),
    "local": (LocalSettings, Local),
    "fast": (FastSettings, Fast),
}
PRESETS = tuple(_PRESETS)
MOST = 4096  # of any size: a file that asks for more is broken


def build(preset: str, /, reduced: bool = False, **overrides: Any) -> AbstractBuilt:
    """A model of random weights; `reduced`: without primal and dual values; `overrides`: fields of its settings."""
    if preset not in _PRESETS:
        raise BadInput(f"there is no model {preset!r}; the presets are {', '.join(_PRESETS)}")
    settings, make = _PRESETS[preset]
    given = {"reduced": reduced, **overrides}
    for name, value in given.items():
        if name not in settings.__dataclass_fields__:
            known = ", ".join(settings.__dataclass_fields__)
            raise BadInput(f"a {preset} model has no setting {name!r}; it has {known}")
        _check(name, value, settings.__dataclass_fields__[name].default)
    if "columns" in given:
        given["columns"] = tuple(given["columns"])
    return make(preset, settings(**given))


def _check(name: str, value: Any, default: Any) -> None:
    """Settings come from files, too."""
    if isinstance(default, tuple):
        if not isinstance(value, list | tuple) or not all(isinstance(item, str) for item in value):
            raise BadInput(f"{name} is a list of names, and not {value!r}")
    elif isinstance(default, bool):
        if not isinstance(value, bool):
            raise BadInput(f"{name} is true or false, and not {value!r}")
    elif isinstance(value, bool) or not isinstance(value, int) or not 1 <= value <= MOST:
        raise BadInput(f"{name} is a whole number from 1 to {MOST}, and not {value!r}")
