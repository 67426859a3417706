"""What a checker may conclude: enclosures of every node, and proved lower bounds of linear functionals of them.

One identity carries everything. Take any numbers h as multipliers of the network's equations; then a functional of a
node is a sum of constants, of a linear function of the input, and at every ReLU of `nu max(z, 0) - lam z`, where nu is
the multiplier of its output and lam that of its input z. With z between l and u that term is least at z = l, 0 or u.
So whatever slopes and multipliers a certificate holds, what is computed from them is a bound: bad ones only prove less.

Rounding. Computed multipliers count as the numbers that they are. What float64 may be off by, where they pass an
operator and where the sum is formed, is at most gamma_n times the sum of |multiplier| times the size of what it
multiplies; twice that is subtracted (docs/certificates.md). With `exact`, numbers are rationals and nothing is.
"""

from dataclasses import dataclass, replace

import numpy as np

from bough.network.graph import Network
from bough.network.ops import Relu, Reshape
from bough.problem.property import Box, Clause
from bough.verdict.check.layers import Array, Layers, fractions, rounded_down

UNDERFLOW = 1e-300  # more than products too small for float64 can lose, at values up to 1
ELEMENTS = 1 << 19  # functionals held at once have at most so many elements at the widest node, to fit a cache
ADAPTIVE, CHORD, FLAT, IDENTITY = range(4)  # lower lines of an ambiguous ReLU: 0 or 1, the chord's slope, 0, 1


@dataclass(frozen=True, eq=False)
class Where:
    """Input boxes [domains, inputs], bounds of all ReLU inputs [domains, neurons], and the sizes of all values."""

    low: Array
    high: Array
    lower: Array
    upper: Array
    sizes: list[Array]  # of every node, [its elements]: of the sums that form it, over boxes that hold these
    underflow: float = 0.0  # most that functionals can lose by coefficients too small for float64

    def with_bounds(self, lower: Array, upper: Array) -> "Where":
        """The same boxes with other ReLU bounds."""
        return replace(self, lower=lower, upper=upper)

    @property
    def ambiguous(self) -> Array:
        """Which ReLUs may be on either side of 0."""
        return np.asarray((self.lower < 0) & (self.upper > 0))

    @property
    def empty(self) -> Array:
        """Which domains hold no point, since bounds contradict each other."""
        return np.asarray((self.lower > self.upper).any(axis=1))


@dataclass(frozen=True, eq=False)
class Passing:
    """How functionals pass ReLUs; arrays broadcast to [domains, rows, neurons].

    `slope` is that of the lower line, used where nu >= 0 at an ambiguous ReLU; `sign` is the multiplier of a decided
    ReLU's sign, 0 as a rule; `given` (where `is_given`) is lam itself.
    """

    slope: Array
    sign: Array | None = None
    given: Array | None = None
    is_given: Array | None = None


class Prover:
    """Bounds for one network, in one arithmetic."""

    def __init__(self, network: Network, *, exact: bool = False) -> None:
        self.layers = Layers(network, exact=exact)
        self.network, self.exact = network, exact
        self.widest = max(network.neurons, *(node.size for node in network.nodes))

    def root(self, box: Box) -> Where:
        """All ReLUs over a whole box: intervals, and linear bounds by two kinds of slopes for what stays ambiguous."""
        low, high = (self.layers.number(side.numpy())[None] for side in (box.lower, box.upper))
        unknown = np.full((1, self.network.neurons), np.inf)
        regions = self.settled(Where(low, high, -unknown, unknown, []))
        for kind in (ADAPTIVE, CHORD):
            for i in self.network.relus:
                regions = self.renewed(regions, i, kind)
            regions = self.settled(regions)
        return regions

    def settled(self, regions: Where) -> Where:
        """The same after one more pass of intervals, which also tells the sizes of all values."""
        lowers, uppers, sizes = self.enclose(regions)
        sizes = [size[0].reshape(-1) for size in sizes]
        underflow = 0.0 if self.exact else UNDERFLOW * sum(float((size + 1).sum()) for size in sizes)
        return Where(regions.low, regions.high, *self._met(regions, lowers, uppers), sizes, underflow)

    def _met(self, regions: Where, lowers: list[Array], uppers: list[Array]) -> tuple[Array, Array]:
        sources = [self.network.nodes[i].inputs[0] for i in self.network.relus]
        lower, upper = regions.lower, regions.upper
        if sources:
            lower = _greater(lower, np.concatenate([lowers[j].reshape(len(lower), -1) for j in sources], axis=1))
            upper = -_greater(-upper, -np.concatenate([uppers[j].reshape(len(upper), -1) for j in sources], axis=1))
        return lower, upper

    def enclose(self, regions: Where) -> tuple[list[Array], list[Array], list[Array]]:
        """Every node's least and greatest values, and the sizes of its sums, [domains, *shape]."""
        shape = (len(regions.low), *self.network.input_shape)
        lowers, uppers = [regions.low.reshape(shape)], [regions.high.reshape(shape)]
        sizes = [np.maximum(np.abs(lowers[0]), np.abs(uppers[0]))]
        for i, node in enumerate(self.network.nodes[1:], start=1):
            ends = [(lowers[j], uppers[j]) for j in node.inputs]
            if isinstance(node.op, Relu):
                part, (least, most) = self.network.slices[i], ends[0]
                lower = _greater(regions.lower[:, part].reshape(least.shape), least)
                upper = -_greater(-regions.upper[:, part].reshape(most.shape), -most)
                sizes.append(sizes[node.inputs[0]])
                lowers.append(np.maximum(lower, 0))
                uppers.append(np.maximum(upper, 0))
                continue
            middles = [(a + b) * self.layers.number(0.5) for a, b in ends]  # half of an integer 0 would be a float
            # 2^-50 is more than the subtractions round; where bounds contradict each other, both are still covered.
            more = 0 if self.exact else 2.0**-50
            radii = [
                np.maximum(np.abs(b - m), np.abs(m - a)) * (1 + more) for m, (a, b) in zip(middles, ends, strict=True)
            ]
            middle = self.layers.apply(i, *middles)
            radius = self.layers.apply(i, *radii, absolute=True, bias=False)
            if self.exact:
                sizes.append(radius)  # which nothing asks for
                lowers.append(rounded_down(middle - radius))
                uppers.append(-rounded_down(-middle - radius))
                continue
            reach = [np.abs(m) + r for m, r in zip(middles, radii, strict=True)]
            sizes.append(self.layers.apply(i, *reach, absolute=True))
            radius = radius + self._error(i, sizes[-1], [(a != 0) | (b != 0) for a, b in ends])
            lowers.append(middle - radius)
            uppers.append(middle + radius)
        return lowers, uppers, sizes

    def _error(self, i: int, size: Array, not_zero: list[Array]) -> Array:
        """What rounding can change in node i: nothing where all that it is made of is exactly 0."""
        error = self.layers.rounding * size + UNDERFLOW
        if not bool((size == 0).any()):
            return np.asarray(error)
        terms = self.layers.apply(i, *(m * 1.0 for m in not_zero), ones=True)
        return np.where(terms > 0, error, 0.0)

    def renewed(self, regions: Where, relu: int, kind: int) -> Where:
        """The bounds with those of one layer's ambiguous ReLUs derived again by a kind of slopes, in every domain."""
        part = self.network.slices[relu]
        source = self.network.nodes[relu].inputs[0]
        ambiguous = regions.ambiguous[:, part]
        count = int(ambiguous.sum(axis=1).max(initial=0))
        if not count:
            return regions
        # A domain that has fewer than others adds some, of which nothing is kept: others must not matter to a leaf.
        chosen = np.argsort(~ambiguous, axis=1, kind="stable")[:, :count]
        lower, upper = regions.lower.copy(), regions.upper.copy()
        passing = Passing(self.slopes(regions, kind))
        domains = np.arange(len(chosen))[:, None]
        step = max(1, ELEMENTS // (2 * self.widest * len(chosen)))
        for first in range(0, count, step):
            elements = chosen[:, first : first + step]
            f = self.layers.zeros(len(elements), 2 * elements.shape[1], self.network.nodes[source].size)
            rows = np.arange(elements.shape[1])[None]
            f[domains, rows, elements] = 1
            f[domains, elements.shape[1] + rows, elements] = -1
            wanted = np.take_along_axis(ambiguous, elements, axis=1)
            least = self.least(regions, {source: f}, passing)
            low, minus_high = (np.where(wanted, side, -np.inf) for side in np.split(least, 2, axis=1))
            neurons = part.start + elements
            lower[domains, neurons] = _greater(lower[domains, neurons], low)
            upper[domains, neurons] = -_greater(-upper[domains, neurons], minus_high)
        return regions.with_bounds(lower, upper)

    def slopes(self, regions: Where, kind: int) -> Array:
        """Lower slopes [domains, 1, neurons] of a kind."""
        if kind == ADAPTIVE:
            # A little off the middle, where bounds that are symmetric up to rounding would fall to either side.
            slope = (regions.upper * self.layers.number(1 - 2.0**-20) > -regions.lower) * self.layers.number(1.0)
        elif kind == CHORD:
            slope = chord(regions.lower, regions.upper)
        else:
            slope = self.layers.zeros(*regions.lower.shape) + int(kind == IDENTITY)
        return np.asarray(slope)[:, None]

    def least(self, regions: Where, f: dict[int, Array], passing: Passing) -> Array:
        """Lower bounds [domains, rows] of sums of functionals, f[i] [domains, rows, n] of node i, that surely hold."""
        domains, rows = next(iter(f.values())).shape[:2]
        pending = {i: t.reshape(domains * rows, *self.network.nodes[i].shape) for i, t in f.items()}
        total, size = self.layers.zeros(domains, rows), self.layers.zeros(domains, rows)
        for i in range(max(pending), 0, -1):
            if i not in pending:
                continue
            functional = pending.pop(i)
            node = self.network.nodes[i]
            bias = self.layers.bias(i, functional)
            if bias is not None:
                total += bias.reshape(domains, rows)
            if not (self.exact or isinstance(node.op, Relu | Reshape)):
                size += np.abs(functional).reshape(domains, rows, -1) @ regions.sizes[i]
            if isinstance(node.op, Relu):
                nu = functional.reshape(domains, rows, -1)
                lam, lost, lost_size = self._pass(regions, self.network.slices[i], nu, passing)
                total, size = total + lost, size + lost_size
                passed: tuple[Array, ...] = (lam.reshape(functional.shape),)
            else:
                passed = self.layers.transpose(i, functional)
            for j, g in zip(node.inputs, passed, strict=True):
                pending[j] = pending[j] + g if j in pending else g
        if 0 in pending:
            g = pending[0].reshape(domains, rows, -1)
            low, high = regions.low[:, :, None], regions.high[:, :, None]
            total += (np.maximum(g, 0) @ low + np.minimum(g, 0) @ high)[..., 0]
            if not self.exact:
                size += (np.abs(g) @ np.maximum(np.abs(low), np.abs(high)))[..., 0]
        return self._less_error(total, size, regions)

    def _less_error(self, value: Array, size: Array, regions: Where) -> Array:
        """The value less what rounding may have added to it; what is no finite number is no bound."""
        if self.exact:
            return rounded_down(np.asarray(value))
        bound = value - self.layers.rounding * size - regions.underflow
        return np.where(np.isfinite(bound), bound, -np.inf)

    def _pass(self, regions: Where, part: slice, nu: Array, passing: Passing) -> tuple[Array, Array, Array]:
        """Functionals on the outputs of a layer become ones on its inputs; what that loses, and its size."""
        lower, upper = regions.lower[:, None, part], regions.upper[:, None, part]
        lam = nu * (lower >= 0)
        used = ((lower < 0) & (upper > 0)).any(axis=(0, 1))
        for more in (passing.sign, passing.is_given):
            if more is not None:
                used = used | (more[..., part] != 0).any(axis=(0, 1))
        columns = np.flatnonzero(used)
        if not len(columns):
            return lam, self.layers.zeros(*nu.shape[:2]), self.layers.zeros(*nu.shape[:2])
        n, l, u = nu[..., columns], lower[..., columns], upper[..., columns]
        on = l >= 0
        off = u <= 0
        bent = n * np.where(n >= 0, passing.slope[..., part][..., columns], chord(l, u))
        if self.exact:
            bent = rounded_down(bent)  # any number will do, and a short one is faster
        m = np.where(on, n, np.where(off, 0, bent))
        if passing.sign is not None:
            sign = passing.sign[..., part][..., columns]
            m = m + np.where(on, -sign, np.where(off, sign, 0))
        if passing.given is not None and passing.is_given is not None:
            m = np.where(passing.is_given[..., part][..., columns], passing.given[..., part][..., columns], m)
        lam[..., columns] = m
        most = np.maximum(u, 0)
        least = np.minimum(n * np.maximum(l, 0) - m * l, n * most - m * u)
        least = np.where((l <= 0) & (u >= 0), np.minimum(least, 0), least)
        if self.exact:
            return lam, least.sum(axis=-1), self.layers.zeros(*nu.shape[:2])
        free = (on & (m == n)) | (off & (m == 0))  # these lose nothing, without any rounding
        size = np.where(free, 0.0, np.abs(m) * np.maximum(np.abs(l), np.abs(u)) + np.abs(n) * most)
        return lam, least.sum(axis=-1), size.sum(axis=-1)

    def least_of_rows(
        self, regions: Where, clause: Clause, weights: Array, passing: Passing, also: dict[int, Array] | None = None
    ) -> Array:
        """Lower bounds [domains, rows] of `weights . (coefficients @ y - offsets)`, weights [domains, rows, k] >= 0,
        plus the functionals `also` of earlier nodes.
        """
        rows, offsets = (self.layers.number(t.numpy()) for t in (clause.coefficients, clause.offsets))
        last = len(self.network.nodes) - 1
        least = self.least(regions, {**(also or {}), last: weights @ rows}, passing)
        value = np.asarray(least - weights @ offsets)
        if self.exact:
            return value
        # Combining rows rounds too, by so much of what outputs, offsets and the value itself can be.
        size = weights @ (np.abs(rows) @ regions.sizes[last] + np.abs(offsets)) + np.abs(least)
        value = value - self.layers.rounding * len(offsets) * size
        return np.where(np.isfinite(value), value, -np.inf)

    def local(self, regions: Where) -> Where:
        """Bounds derived again over each domain's own box and signs: intervals, then linear ones, layer after layer."""
        lowers, uppers, _ = self.enclose(regions)
        regions = regions.with_bounds(*self._met(regions, lowers, uppers))
        for i in self.network.relus:
            for kind in (ADAPTIVE, CHORD):
                regions = self.renewed(regions, i, kind)
        return regions

    def step_by_step(self, regions: Where, low: Array, high: Array) -> Where:
        """Bounds derived again by `local` in ever smaller boxes, from low, high [inputs] on.

        What holds in a box holds in its halves. The widest input that is still to be halved is halved first, whatever
        the search did.
        """
        rows = np.arange(len(regions.low))
        now = replace(regions, low=low[None].repeat(len(rows), axis=0), high=high[None].repeat(len(rows), axis=0))
        while True:
            unequal = (now.low != regions.low) | (now.high != regions.high)
            if not unequal.any():
                return now
            widest = np.where(unequal, now.high - now.low, -1).argmax(axis=1)
            old_low = now.low[rows, widest]
            old_high = now.high[rows, widest]
            active = unequal.any(axis=1)
            middle = self.layers.number(np.asarray(old_low / 2, np.float64) + np.asarray(old_high / 2, np.float64))
            last_low, last_high = regions.low[rows, widest], regions.high[rows, widest]
            second = last_low >= middle
            new_low, new_high = now.low.copy(), now.high.copy()
            thin = (middle == old_low) | (middle == old_high)  # two neighbouring numbers: the rest is one step
            new_low[rows, widest] = np.where(thin, last_low, np.where(active & second, middle, old_low))
            new_high[rows, widest] = np.where(thin, last_high, np.where(active & ~second, middle, old_high))
            new = self.local(replace(now, low=new_low, high=new_high))
            done = ~active[:, None]
            now = new.with_bounds(np.where(done, now.lower, new.lower), np.where(done, now.upper, new.upper))


def chord(lower: Array, upper: Array) -> Array:
    """Slope of the line from (l, 0) to (u, u) of ambiguous ReLUs; of others 1, which nothing stands on."""
    ambiguous = (lower < 0) & (upper > 0)
    one = np.ones(upper.shape)
    if upper.dtype == object:  # of the same kind of numbers
        one = fractions(one)
    return np.asarray(np.where(ambiguous, upper, one) / np.where(ambiguous, upper - lower, one))


def _greater(known: Array, new: Array) -> Array:
    """The greater of two bounds, where the second is a number at all."""
    return np.where(new > known, new, known)
