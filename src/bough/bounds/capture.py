"""One launch in place of hundreds: work on buffers that stay where they are enters, a CUDA graph of it leaves."""

import logging
from collections.abc import Callable

import torch

_log = logging.getLogger(__name__)


def captured(work: Callable[[], object], what: str) -> "torch.cuda.CUDAGraph | None":
    """The graph of what `work` does, which has to have run before; None where it cannot be captured."""
    graph = torch.cuda.CUDAGraph()
    try:
        with torch.cuda.graph(graph):
            work()
    except RuntimeError:
        _log.info("%s cannot be captured as a CUDA graph; it runs as it is", what)
        torch.cuda.synchronize()
        return None
    return graph
