"""The two questions users ask, as functions: is this property true, and is this image robust. Thin over one search."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from operator import index
from pathlib import Path
from typing import Any

from numpy.typing import NDArray
from torch import Tensor, nn

from bough.errors import NetworkError
from bough.files.reading import NETWORK_LIMIT, read_bytes
from bough.network.graph import Network
from bough.options import Options
from bough.plan import make_plan
from bough.problem.images import as_pixels, fitted, read_image
from bough.problem.problem import Evaluator, Problem
from bough.problem.property import Property, image_property, normalised
from bough.problem.runtime import Reference, compare
from bough.problem.vnnlib import read_property
from bough.search.observe import AbstractObserver
from bough.verdict.result import Result

COMPARED = 4  # random points, of each kind, at which a network is held against its runtime


@dataclass(frozen=True, eq=False)
class LoadedNetwork:
    """A network as bough reads it, beside the runtime that answers for the original."""

    network: Network
    reference: Evaluator
    name: str


def load_network(network: str | Path | nn.Module, input_shape: Sequence[int] | None = None) -> LoadedNetwork:
    """Read an ONNX file, or a PyTorch module (whose input shape, without a batch axis, must be given)."""
    if isinstance(network, nn.Module):
        from bough.problem.torch import ModuleReference, read_module

        if input_shape is None:
            raise NetworkError("a PyTorch module does not tell its input shape; give input_shape, without a batch axis")
        read = read_module(network, input_shape)
        return LoadedNetwork(read, ModuleReference(network, input_shape), type(network).__name__)
    from bough.problem.onnx import read_network

    data = read_bytes(network, NETWORK_LIMIT, NetworkError)
    try:
        return LoadedNetwork(read_network(data), Reference(data), str(network))
    except NetworkError as error:
        raise type(error)(f"{network}: {error}") from error


def load_problem(loaded: LoadedNetwork, source: str | Path | Property) -> Problem:
    """Join a network and a property; the network is held against its runtime at random points, and in the first box."""
    prop = source if isinstance(source, Property) else read_property(source)
    name = "property" if isinstance(source, Property) else str(source)
    problem = Problem(loaded.network, prop, loaded.reference, loaded.name, name)
    compare(loaded.network, loaded.reference, points=COMPARED)
    compare(loaded.network, loaded.reference, points=COMPARED, box=prop.boxes[0])
    return problem


def solve(problem: Problem, options: Options, observers: Sequence[AbstractObserver] = ()) -> Result:
    """Decide a problem that is already loaded; the time limit starts now."""
    return make_plan(options, problem.network).solve(problem, observers)


def verify(
    network: str | Path | nn.Module,
    property: str | Path | Property,  # noqa: A002 - the word users know
    *,
    input_shape: Sequence[int] | None = None,
    **options: Any,
) -> Result:
    """Prove the property or find a counterexample.

    `network` is an ONNX file or a PyTorch module (then give `input_shape`), `property` a VNN-LIB file or a
    `Property`; `options` are the fields of `Options`, such as `timeout=60`. Bad input raises `bough.BadInput`;
    running out of time is a verdict.
    """
    chosen = Options(**options)
    return solve(load_problem(load_network(network, input_shape), property), chosen)


def minimum(
    network: str | Path | nn.Module,
    property: str | Path | Property,  # noqa: A002 - as above
    *,
    gap: float = 1e-4,
    input_shape: Sequence[int] | None = None,
    **options: Any,
) -> Result:
    """The least margin over the property's boxes: `lower_bound` is proved, `upper_bound` attained, at most `gap` apart.

    The margin of a point is the largest row `coefficients @ y - offset` of a clause, least over the clauses (rows of
    a clause with several are scaled to about unit norm); at or below 0 is unsafe.
    """
    return verify(network, property, input_shape=input_shape, gap=gap, **options)


def robustness(  # noqa: PLR0913 - the words in which the question is asked
    network: str | Path | nn.Module,
    image: Tensor | NDArray[Any] | str | Path,
    label: int,
    eps: float,
    *,
    target: int | None = None,
    mean: float | Sequence[float] = 0.0,
    std: float | Sequence[float] = 1.0,
    clip: tuple[float, float] | None = (0.0, 1.0),
    norm: str | float = "inf",
    **options: Any,
) -> Result:
    """Prove that no image within `eps` of `image` is given another class than `label`, or find one.

    `image`, [channels, height, width] as a rule, or a file; `eps` and `clip` are in pixel values from 0 to 1 (integers
    are divided by 255). The network sees `(pixel - mean) / std`, per channel. `target` asks about one other class only.
    `norm` is what `eps` limits: the change of every pixel ("inf"), the Euclidean distance of the images ("2"), or the
    sum of all changes ("1").
    """
    chosen = Options(**options)
    pixels = read_image(Path(image)) if isinstance(image, str | Path) else as_pixels(image)
    batched = pixels.ndim == 4 and len(pixels) == 1
    loaded = load_network(network, tuple(pixels.shape[1:] if batched else pixels.shape))
    pixels = fitted(pixels, loaded.network.input_shape)
    prop = image_property(
        pixels, index(label), eps, loaded.network.outputs, target=target, mean=mean, std=std, clip=clip, norm=norm
    )
    return solve(replace(load_problem(loaded, prop), image=normalised(pixels, mean, std)), chosen)
