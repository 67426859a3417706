"""A model at work in a search: scenes of any number of domains enter, scores leave, a piece at a time.

A model is hundreds of small kernels. On a GPU each takes longer to launch than to run, for one domain as for a
thousand; so there a model is captured as a CUDA graph for every size of piece, and is one launch from then on.
"""

from collections.abc import Callable
from typing import final

import torch
from torch import Tensor

from bough.bounds.capture import captured
from bough.learning.model import AbstractModel
from bough.learning.scene import Graph, Scene

PIECE = {"cpu": 1 << 25, "cuda": 1 << 32}  # bytes that scoring may take at once; on a CPU, what caches hold is fastest
ROOMS = (64, 1024)  # domains of a piece that is captured: every further size would cost its own capture
ROOM_SHARE = 0.05  # of a GPU's free memory, for what is captured of one size


@final
class Scorer:
    """Scores of one search's domains, which share a graph."""

    def __init__(self, model: AbstractModel, graph: Graph, chunk: int | None = None) -> None:
        device = graph.neurons.device
        each = model.footprint(graph)
        self.graph = graph
        self._score: Callable[[Scene], Tensor] = lambda scene: model(graph, scene)
        self._seats = dict[int, _Seat]()
        self._captures = chunk is None and _fits(ROOMS[-1] * each, device)
        usual = max(1, PIECE[device.type] // each) if each else None
        self._size = ROOMS[-1] if self._captures else chunk or usual

    def __call__(self, scene: Scene) -> Tensor:
        """Scores of all domains, [domains, n]."""
        size = self._size or len(scene)
        with torch.no_grad():
            return torch.cat([self._piece(scene[k : k + size]) for k in range(0, len(scene), size)])

    def _piece(self, scene: Scene) -> Tensor:
        if not self._captures:
            return self._score(scene)
        room = next(room for room in ROOMS if room >= len(scene))
        if room not in self._seats:
            self._seats[room] = _Seat(self._score, scene, room)
        return self._seats[room](scene)


def _fits(size: int, device: torch.device) -> bool:
    """Whether so many bytes can be kept on a GPU beside everything else."""
    return device.type == "cuda" and 0 < size <= ROOM_SHARE * torch.cuda.mem_get_info(device)[0]


class _Seat:
    """Buffers for a number of domains, and what the model makes of them: as it is the first time, which compiles what
    needs it, captured the second time. Rows are each other's strangers, so what earlier domains left in rows that
    are not taken does not matter.
    """

    def __init__(self, score: Callable[[Scene], Tensor], like: Scene, room: int) -> None:
        self._scene = like.map(lambda array: array.new_zeros(room, *array.shape[1:]))
        self._score = score
        self._found = torch.empty(0)
        self._graph: torch.cuda.CUDAGraph | None = None
        self._uses = 0

    def __call__(self, scene: Scene) -> Tensor:
        for seat, array in zip(self._scene.tensors(), scene.tensors(), strict=True):
            seat[: len(array)] = array
        self._uses += 1
        if self._uses == 2:
            self._graph = captured(self._run, "a model")
        if self._graph is None:
            self._run()
        else:
            self._graph.replay()
        return self._found[: len(scene)].clone()

    def _run(self) -> None:
        self._found = self._score(self._scene)
