"""Building networks node by node, pooling and normalisation lowered exactly to the eight operators, and tidying them.

In go weights and window geometry; out comes a `Network` that computes the same function in real arithmetic.
"""

import math
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, replace

import torch
from torch import Tensor

from bough.errors import NetworkError
from bough.network.graph import Network, Node
from bough.network.ops import AbstractAffine, Add, Conv, Input, Linear, Operator, Relu, Reshape, Scale, Select, Shape

# A guard against damaged or hostile files: 128 MiB as float64, beyond what can be verified.
LARGEST_NODE = 1 << 24
MOST_ELEMENTS = 1 << 27  # of all nodes together
MOST_COMPARED = 1 << 28  # pairs of positions that a max pooling looks at to find those that are the same
MOST_FOLDED = 4  # each fold rounds the weights once more, and `Network.rounding` has slack for that many


@dataclass(frozen=True)
class Window:
    """A two-dimensional pooling window; padding is (top, left, bottom, right), as in `Conv`."""

    kernel: tuple[int, int]
    stride: tuple[int, int] = (1, 1)
    padding: tuple[int, int, int, int] = (0, 0, 0, 0)
    dilation: tuple[int, int] = (1, 1)
    ceil_mode: bool = False

    def positions(self, axis: int, length: int) -> Tensor:
        """Input coordinates [windows, kernel] along an axis of a given length; those outside are padding."""
        before = self.padding[axis]
        after = self.padding[axis + 2]
        kernel, stride, dilation = self.kernel[axis], self.stride[axis], self.dilation[axis]
        if min(kernel, stride, dilation) < 1 or min(before, after) < 0:
            raise NetworkError(f"a window needs positive sizes and no negative padding, not {self}")
        span = length + before + after - dilation * (kernel - 1) - 1
        if span < 0:
            raise NetworkError(
                f"a window of {kernel} (dilation {dilation}) is longer than its input of {length}, padding included"
            )
        count = (-(-span // stride) if self.ceil_mode else span // stride) + 1
        if self.ceil_mode and (count - 1) * stride >= length + before:
            count -= 1  # a window that starts beyond the input holds nothing
        _limit(count * kernel)
        return torch.arange(count)[:, None] * stride - before + dilation * torch.arange(kernel)


class GraphBuilder:
    """Appends nodes and infers their shapes; every method returns the number of the node that holds its result.

    Nodes are named after `label`, which a reader sets to the name of the file's node it is converting.
    """

    def __init__(self) -> None:
        self._nodes: list[Node] = []
        self._elements = 0
        self.label = ""

    def shape(self, x: int) -> Shape:
        """Shape of a node, without the batch axis."""
        return self._nodes[x].shape

    def build(self, output: int) -> Network:
        """The network that ends in `output`: nodes that do not lead there are left out, the input is kept."""
        return _prune(self._nodes, output)

    def _append(self, op: Operator, inputs: tuple[int, ...], shape: Sequence[int]) -> int:
        shape = tuple(int(n) for n in shape)
        size = math.prod(shape)
        if not 0 < size <= LARGEST_NODE:
            raise NetworkError(f"a tensor of shape {shape} has {size} elements; from 1 to {LARGEST_NODE} are supported")
        self._elements += size
        if self._elements > MOST_ELEMENTS:
            raise NetworkError(f"the network has more than {MOST_ELEMENTS:,} values in all, which are too many")
        name = self.label or f"{type(op).__name__.lower()}_{len(self._nodes)}"
        self._nodes.append(Node(op, inputs, shape, name))
        return len(self._nodes) - 1

    # The eight operators

    def input(self, shape: Sequence[int]) -> int:
        """The point under verification; comes first, once."""
        if self._nodes:
            raise NetworkError("a network has one input, which comes before every other node")
        return self._append(Input(), (), shape)

    def linear(self, x: int, weight: Tensor, bias: Tensor | None = None) -> int:
        """`weight @ x + bias` on the last axis."""
        shape = self.shape(x)
        if weight.ndim != 2 or not shape or shape[-1] != weight.shape[1]:
            raise NetworkError(f"a weight of shape {tuple(weight.shape)} does not fit an input of shape {shape}")
        weight, bias = _float64(weight), _bias(bias, weight.shape[0])
        return self._append(Linear(weight, bias, bias.abs()), (x,), (*shape[:-1], weight.shape[0]))

    def conv(
        self,
        x: int,
        weight: Tensor,
        bias: Tensor | None = None,
        stride: tuple[int, int] = (1, 1),
        padding: tuple[int, int, int, int] = (0, 0, 0, 0),
        dilation: tuple[int, int] = (1, 1),
        groups: int = 1,
    ) -> int:
        """Two-dimensional convolution of [channels, height, width]."""
        shape = self.shape(x)
        fits = weight.ndim == 4 and len(shape) == 3 and groups > 0
        if not fits or shape[0] != weight.shape[1] * groups or weight.shape[0] % groups:
            kernel = f"a kernel of shape {tuple(weight.shape)} in {groups} group(s)"
            raise NetworkError(f"{kernel} does not fit an input of shape {shape}")
        window = Window((weight.shape[2], weight.shape[3]), stride, padding, dilation)
        height, width = (len(window.positions(axis, shape[1 + axis])) for axis in (0, 1))
        _limit(shape[0] * (shape[1] + padding[0] + padding[2]) * (shape[2] + padding[1] + padding[3]))
        weight, bias = _float64(weight), _bias(bias, weight.shape[0])
        op = Conv(weight, bias, bias.abs(), stride, padding, dilation, groups)
        return self._append(op, (x,), (weight.shape[0], height, width))

    def scale(
        self, x: int, factor: Tensor | float = 1.0, bias: Tensor | float = 0.0, magnitude: Tensor | None = None
    ) -> int:
        """`factor * x + bias` element by element; all three are broadcast to the node's shape.

        `magnitude` bounds the numbers that the bias was computed from; the bias itself where left out.
        """
        shape = self.shape(x)
        factor, bias = (_spread(t, shape) for t in (factor, bias))
        magnitude = bias.abs() if magnitude is None else _spread(magnitude, shape)
        return self._append(Scale(factor, bias, magnitude), (x,), shape)

    def select(self, x: int, index: Tensor) -> int:
        """The elements of `x` at the flat positions `index`, in the shape of `index`."""
        size = self._nodes[x].size
        flat = index.reshape(-1).to(torch.int64)
        if len(flat) and not 0 <= int(flat.min()) <= int(flat.max()) < size:
            raise NetworkError(f"an index reaches outside a tensor of {size} elements")
        return self._append(Select(flat), (x,), index.shape)

    def reshape(self, x: int, shape: Sequence[int]) -> int:
        """The same elements in another shape; `x` itself where it has that shape already."""
        if tuple(shape) == self.shape(x):
            return x
        if torch.Size(shape).numel() != self._nodes[x].size:
            raise NetworkError(f"a tensor of shape {self.shape(x)} cannot take the shape {tuple(shape)}")
        return self._append(Reshape(), (x,), shape)

    def add(self, x: int, y: int) -> int:
        """The sum of two nodes of one shape."""
        if self.shape(x) != self.shape(y):
            raise NetworkError(f"tensors of shapes {self.shape(x)} and {self.shape(y)} cannot be added")
        return self._append(Add(), (x, y), self.shape(x))

    def relu(self, x: int) -> int:
        """Add a ReLU, `max(x, 0)`."""
        return self._append(Relu(), (x,), self.shape(x))

    # What is lowered to them

    def maximum(self, x: int, y: int, never: Tensor) -> int:
        """Element-wise maximum, as x + relu(y - x); `never` marks where y is known not to be the larger."""
        gain = self.add(y, self.scale(x, -1.0))
        if bool(never.any()):
            # An exact 0 decides the ReLU; the difference of equal numbers would leave it to rounding.
            gain = self.scale(gain, (~never).to(torch.float64))
        return self.add(x, self.relu(gain))

    def max_pool(self, x: int, window: Window) -> int:
        """Largest element of every window of [channels, height, width]; padding never wins."""
        channels, height, width = self._image(x)
        rows, columns = (_inside(window.positions(axis, length), length) for axis, length in enumerate((height, width)))
        _limit(rows.numel() * columns.numel())
        # [rows of the kernel, columns of the kernel, windows down, windows across]
        plane = rows.T[:, None, :, None] * width + columns.T[None, :, None, :]
        plane = plane.reshape(-1, 1, len(rows), len(columns))
        _limit(plane.numel() * channels)
        if len(plane) * plane.numel() * channels > 4 * MOST_COMPARED:
            raise NetworkError(f"a window of {len(plane)} elements is too large for max pooling here")
        return self._tournament(x, plane + torch.arange(channels)[:, None, None] * (height * width))

    def _tournament(self, x: int, index: Tensor) -> int:
        """Maximum over the first axis of `x` at the flat positions `index`, with one ReLU less than candidates.

        All pairs of a round are one node, so that the rounds, not the candidates, number the ReLU layers.
        """
        shape = index.shape[1:]
        waiting = []
        among = index[:, None]  # the positions that each candidate is the maximum of, [candidates, positions, *shape]
        while len(index) > 1:
            half, odd = divmod(len(index), 2)
            if odd:
                waiting.append((self.select(x, index[-1]), among[-1]))
            first = among[:half]
            second = among[half : 2 * half]
            never = _within(second, first)
            x = self.maximum(self.select(x, index[:half]), self.select(x, index[half : 2 * half]), never)
            among = torch.cat([first, second], dim=1)
            index = torch.arange(half * shape.numel()).reshape(half, *shape)
        best = self.select(x, index[0]) if self.shape(x) != (1, *shape) else self.reshape(x, shape)
        for candidate, positions in reversed(waiting):
            best = self.maximum(best, candidate, _within(positions[None], among[:1])[0])
            among = torch.cat([among, positions[None]], dim=1)
        return best

    def average_pool(self, x: int, window: Window, count_padding: bool = False) -> int:
        """Mean of every window of [channels, height, width], over its padding too where `count_padding`.

        What `ceil_mode` adds beyond the padding is never counted.
        """
        channels, height, width = self._image(x)
        counts = []
        padding = list(window.padding)
        for axis, length in enumerate((height, width)):
            at = window.positions(axis, length)
            before, after = (window.padding[axis], window.padding[axis + 2]) if count_padding else (0, 0)
            counts.append(((at >= -before) & (at < length + after)).sum(1))
            padding[axis + 2] = max(0, int(at[-1, -1]) + 1 - length)  # just enough for the last window
        count = (counts[0][:, None] * counts[1]).to(torch.float64)
        if not bool(count.all()):
            raise NetworkError("a pooling window lies wholly in the padding, where there is nothing to average")
        top, left, bottom, right = padding
        _limit(channels * window.kernel[0] * window.kernel[1])
        same = bool((count == count[0, 0]).all())
        kernel = torch.ones(channels, 1, *window.kernel, dtype=torch.float64) / (count[0, 0] if same else 1.0)
        sums = self.conv(x, kernel, None, window.stride, (top, left, bottom, right), window.dilation, channels)
        return sums if same else self.scale(sums, 1.0 / count)

    def global_average_pool(self, x: int) -> int:
        """Mean of every channel of [channels, height, width], as [channels, 1, 1]."""
        _, height, width = self._image(x)
        return self.average_pool(x, Window((height, width)))

    def batch_norm(self, x: int, gamma: Tensor, beta: Tensor, mean: Tensor, variance: Tensor, epsilon: float) -> int:
        """`gamma * (x - mean) / sqrt(variance + epsilon) + beta` per channel, the first axis of `x`."""
        shape = self.shape(x)
        gamma, beta, mean, variance = (_float64(t) for t in (gamma, beta, mean, variance))
        if any(t.shape != shape[:1] for t in (gamma, beta, mean, variance)):
            raise NetworkError(f"the statistics of a batch normalisation do not fit an input of shape {shape}")
        if not bool((variance + epsilon > 0).all()):
            raise NetworkError("a batch normalisation has a variance that is not positive")
        factor = gamma / torch.sqrt(variance + epsilon)
        shift = mean * factor
        parts = (factor, beta - shift, beta.abs() + shift.abs())
        return self.scale(x, *(t.reshape(-1, *(1,) * (len(shape) - 1)) for t in parts))

    def _image(self, x: int) -> tuple[int, int, int]:
        shape = self.shape(x)
        if len(shape) != 3:
            raise NetworkError(f"pooling needs an input of shape [channels, height, width], not {shape}")
        return shape[0], shape[1], shape[2]


def _limit(elements: int) -> None:
    if elements > LARGEST_NODE:
        raise NetworkError(f"a window over {elements} elements in all is too large; up to {LARGEST_NODE} are supported")


def _float64(t: Tensor) -> Tensor:
    return t.detach().to(torch.float64).contiguous()


def _bias(bias: Tensor | None, outputs: int) -> Tensor:
    if bias is None:
        return torch.zeros(outputs, dtype=torch.float64)
    if bias.shape != (outputs,):
        raise NetworkError(f"a bias of shape {tuple(bias.shape)} does not fit {outputs} output(s)")
    return _float64(bias)


def _spread(t: Tensor | float, shape: Shape) -> Tensor:
    t = torch.as_tensor(t, dtype=torch.float64).detach()
    try:
        return t.expand(shape).contiguous()
    except RuntimeError:
        raise NetworkError(f"a constant of shape {tuple(t.shape)} does not fit a tensor of shape {shape}") from None


def _inside(positions: Tensor, length: int) -> Tensor:
    """Positions [windows, kernel] with those in the padding replaced by one of the same window in the input."""
    valid = (positions >= 0) & (positions < length)
    if not bool(valid.any(1).all()):
        raise NetworkError("a pooling window lies wholly in the padding, where there is no largest element")
    first = positions.gather(1, valid.int().argmax(1, keepdim=True))
    return torch.where(valid, positions, first)


def _prune(nodes: Sequence[Node], output: int) -> Network:
    """Only what the output is computed from; then the output is last, since every node it needs comes before it."""
    needed = {0, output}
    for i in range(output, 0, -1):
        if i in needed:
            needed.update(nodes[i].inputs)
    number = {old: new for new, old in enumerate(sorted(needed))}
    return Network(tuple(replace(nodes[i], inputs=tuple(number[j] for j in nodes[i].inputs)) for i in sorted(needed)))


def _within(some: Tensor, others: Tensor) -> Tensor:
    """Where every one of `some` positions [n, k, *shape] is among `others` [n, m, *shape], bool [n, *shape]."""
    return (some[:, :, None] == others[:, None]).any(dim=2).all(dim=1)


def fold_scales(network: Network) -> Network:
    """The same function in fewer nodes: Scales folded into the affine operators before them, idle nodes left out.

    A node is folded into only where nothing else reads it. Linear operators are never multiplied together, which would
    lose the zeros and the magnitudes of both.
    """
    readers = Counter(i for node in network.nodes for i in node.inputs)
    nodes = [network.nodes[0]]
    place = [0]  # where the value of each old node is now
    left = [readers[0]]  # for each new node, how many read it
    folds = [0]  # for each new node, how often its weights were rounded
    for i, old in enumerate(network.nodes[1:], start=1):
        node = replace(old, inputs=tuple(place[j] for j in old.inputs))
        before = node.inputs[0]
        folded = None
        source = nodes[before]
        foldable = left[before] == 1 and folds[before] < MOST_FOLDED
        if foldable and isinstance(node.op, Scale) and isinstance(source.op, AbstractAffine):
            folded = source.op.scaled(node.op, node.shape)
        if isinstance(node.op, AbstractAffine) and node.op.idle(node.shape, source.shape):
            place.append(before)
            left[before] += readers[i] - 1
        elif folded is not None:
            nodes[before] = replace(source, op=folded)
            place.append(before)
            left[before] = readers[i]
            folds[before] += 1
        else:
            if isinstance(node.op, Reshape) and isinstance(source.op, Reshape):
                node = replace(node, inputs=source.inputs)
            nodes.append(node)
            left.append(readers[i])
            folds.append(0)
            place.append(len(nodes) - 1)
    return _prune(nodes, place[-1])
