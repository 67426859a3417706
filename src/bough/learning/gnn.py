"""The networks that score: a graph and a scene enter, a score for every ReLU that may be split leaves.

    local  every ReLU by itself: no messages; what a graph has to beat
    fast   one sweep on and one back between ambiguous ReLUs only; see `Fast`

Models look at all domains at once: whoever has many hands them in by the piece (`footprint` says what one takes). What
can be known of a graph's edges is kept while the graph is: whoever decides often keeps the graph. The paper's own
models stand in the experiments' library (`laboratory.paper_gnn`).
"""

from contextlib import nullcontext
from dataclasses import dataclass, replace
from itertools import pairwise
from typing import final

import torch
from torch import Tensor, nn

from bough.errors import BadInput
from bough.learning import features
from bough.learning.features import ScaledOutput, ScaledRelus, View, compressed
from bough.learning.model import AbstractBuilt, ModelSettings
from bough.learning.presets import ModelEntry, TrainingRecipe
from bough.learning.scene import Graph, Scene


def mlp(*widths: int) -> nn.Sequential:
    """Linear layers with ReLUs between them, and none after the last."""
    layers: list[nn.Module] = []
    for before, after in pairwise(widths):
        layers += [nn.Linear(before, after), nn.ReLU()]
    return nn.Sequential(*layers[:-1])


@dataclass(frozen=True)
class LocalSettings(ModelSettings):
    """Sizes; `columns` names the features where it is not to be all of them."""

    width: int = 64
    hidden: int = 2  # layers
    columns: tuple[str, ...] = ()


@final
class Local(AbstractBuilt):
    """Every ReLU by itself, from scaled features: with good duals at hand, most of what matters is local."""

    settings: LocalSettings

    def __init__(self, preset: str, settings: LocalSettings) -> None:
        super().__init__()
        chosen = _chosen(settings.columns, reduced=settings.reduced)
        self.preset = preset
        self.settings = replace(settings, columns=chosen)
        self.columns = {"relu": chosen}
        self.relus = ScaledRelus(chosen)
        self.score = mlp(len(chosen), *[settings.width] * settings.hidden, 1)

    def forward(self, graph: Graph, scene: Scene) -> Tensor:
        """Scores, [domains, n]."""
        score: Tensor = self.score(self.relus(View(graph, scene, self.settings.reduced)))
        return score[..., 0].T

    def footprint(self, graph: Graph) -> int:
        """Bytes for all ReLUs that may be split, per domain."""
        return 4 * max(1, len(graph.neurons)) * (4 * len(self.columns["relu"]) + 2 * self.settings.width)


@dataclass(frozen=True)
class FastSettings(ModelSettings):
    """Sizes; `columns` names the features where it is not to be all of them."""

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

    settings: FastSettings

    def __init__(self, preset: str, settings: FastSettings) -> None:
        super().__init__()
        chosen = _chosen(settings.columns, reduced=settings.reduced)
        output = features.REDUCED_OUTPUT if settings.reduced else (*features.REDUCED_OUTPUT, "value")
        self.preset = preset
        self.settings = replace(settings, columns=chosen)
        self.columns = {"relu": chosen, "output": output}
        p, hidden = settings.width, settings.hidden
        self.relus, self.output = ScaledRelus(chosen), ScaledOutput(output)
        self.encoder = nn.Linear(len(chosen), hidden)
        self.own = nn.Linear(hidden, p)
        self.forward_send = nn.Linear(p, p)
        self.forward_read = mlp(p, p, p)
        self.output_read = mlp(len(output) + p, 2 * p, p)
        self.backward_send = nn.Linear(p, p)
        self.backward_read = mlp(p, p, p)
        self.score = mlp(hidden + p, hidden, 1)

    def forward(self, graph: Graph, scene: Scene) -> Tensor:
        """Scores, [domains, n]."""
        mixed = scene.bound.is_cuda and self.settings.mixed
        with torch.autocast("cuda", torch.bfloat16) if mixed else nullcontext():
            view = View(graph, scene, self.settings.reduced)
            wide = self.encoder(self.relus(view)).relu()  # [n, domains, hidden]
            mu = self._backward_sweep(view, *self._forward_sweep(view, self.own(wide)))
            score: Tensor = self.score(torch.cat([wide, mu.to(wide)], dim=-1))
            return score[..., 0].T.float()

    def footprint(self, graph: Graph) -> int:
        """Bytes for all ReLUs that may be split, per domain."""
        numbers = 4 * len(self.columns["relu"]) + 2 * self.settings.hidden + 12 * self.settings.width
        return 4 * max(1, len(graph.neurons)) * numbers

    def _forward_sweep(self, view: View, own: Tensor) -> tuple[Tensor, Tensor]:
        """Embeddings [n, domains, p], and the output's, [domains, p]."""
        matrix = view.graph.between
        n = matrix.shape[1]
        slope, intercept, width = (_column(x) for x in (view.slope, view.intercept, view.width))
        embedded = []
        sent = own.new_zeros(0, *own.shape[1:], dtype=torch.float32)
        for part in view.graph.layers:
            # Nothing arrives at the first layer, often the largest: one node's reading of that serves them all.
            rows = part if part.start else slice(0, 1)
            arrived = _product(matrix[rows, : part.start], sent)
            mu = own[part] + self.forward_read(compressed(arrived / width[rows]))
            sent = torch.cat([sent, slope[part] * arrived + intercept[part] * self.forward_send(mu.relu())])
            embedded.append(mu)
        arrived = torch.einsum("kdp,dk->dp", _product(matrix[n:], sent), view.seen("functional")) / view.way[:, None]
        g: Tensor = self.output_read(torch.cat([self.output(view), compressed(arrived)], dim=-1))
        return torch.cat([own[:0], *embedded]), g

    def _backward_sweep(self, view: View, own: Tensor, g: Tensor) -> Tensor:
        """Embeddings, [n, domains, p]."""
        matrix = view.graph.between
        n = matrix.shape[1]
        direct = _column(view.seen("functional") @ matrix[n:])
        through, passed = self._multipliers(view)
        unit = _column(view.intercept / view.way[:, None])
        embedded = []
        sent = own.new_zeros(0, *own.shape[1:], dtype=torch.float32)
        for part in reversed(view.graph.layers):
            arrived = direct[part] * g + _product(matrix[part.stop : n, part].T, sent)
            mu = own[part] + self.backward_read(compressed(arrived * unit[part]))
            sent = torch.cat([passed[part] * arrived + through[part] * self.backward_send(mu.relu()), sent])
            embedded.append(mu)
        return torch.cat([*reversed(embedded), own[:0]])

    def _multipliers(self, view: View) -> tuple[Tensor, Tensor]:
        """The coefficient on z of each ambiguous ReLU, and what each ReLU passes of a coefficient on x, both
        [n, domains, 1]; without duals, as Wong-Kolter slopes have them.
        """
        if self.settings.reduced:
            return _column(_parallel(view) * view.ambiguous), _column(view.slope)
        nu = view.coefficient
        some = nu.abs() > 1 / features.LARGEST
        ratio = (view.seen("through") / torch.where(some, nu, 1.0)).clamp(0, 1)
        passed = torch.where(view.ambiguous & some, ratio, view.slope)
        return _column(view.seen("through") * view.ambiguous), _column(passed)


def _column(x: Tensor) -> Tensor:
    """[domains, n] as [n, domains, 1]."""
    return x.T[..., None]


def _product(matrix: Tensor, sent: Tensor) -> Tensor:
    """Messages [from, domains, p] along a matrix [to, from]; float32, whatever the product is made in."""
    return (matrix @ sent.flatten(1)).reshape(len(matrix), *sent.shape[1:]).float()


def _parallel(view: View) -> Tensor:
    """The coefficients on z, [domains, n], that Wong-Kolter slopes give the functional."""
    matrix = view.graph.between
    n = matrix.shape[1]
    direct = view.seen("functional") @ matrix[n:]
    coefficients = view.slope[:, :0]
    for part in reversed(view.graph.layers):
        nu = direct[:, part] + coefficients @ matrix[part.stop : n, part]
        coefficients = torch.cat([nu * view.slope[:, part], coefficients], dim=1)
    return coefficients


def _chosen(names: tuple[str, ...], *, reduced: bool) -> tuple[str, ...]:
    for name in names:
        if name not in features.RELU:
            raise BadInput(f"there is no column {name!r}: the columns of a ReLU are {', '.join(features.RELU)}")
    kept = tuple(name for name in names or features.RELU if not reduced or name in features.REDUCED_RELU)
    if not kept:
        raise BadInput("a model needs at least one column of features")
    return kept


# A small rate and tiny batches are the paper's; with scaled features larger ones get there in a tenth of the time.
_USUAL = TrainingRecipe("fast", loss="choice", epochs=30, rate=4e-3, batch=64, group=16, decoupled=True, anneal=True)

MODELS = (
    ModelEntry(
        name="fast",
        words="a graph neural network of two sweeps between ambiguous ReLUs",
        settings=FastSettings,
        make=Fast,
        usual=_USUAL,
    ),
    ModelEntry(
        name="local",
        words="every ReLU by itself: no messages",
        settings=LocalSettings,
        make=Local,
        usual=replace(_USUAL, preset="local"),
    ),
)
