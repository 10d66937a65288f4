"""Fit a Markov random field to noisy marginals.

Private-PGM (McKenna, Sheldon & Miklau 2019) minimises the weighted squared residual over the
marginal polytope by mirror descent, about a thousand passes over the tree a fit. Here the same
problem gets a small entropic penalty, and its dual is climbed one clique at a time, each step
solved exactly (regularised maximum entropy, Dudik, Phillips & Schapire 2007; without noise this
is iterative proportional fitting). Ten to twenty sweeps give the residual of a thousand steps of
mirror descent, and cells whose count drowns in noise are shrunk towards the rest of the model
instead of being fitted.

The block of clique q minimises, over the table m of its counts,

    sum (m - y)^2 / 2 + s * KL(m || model without q's potential),        s = shrinkage * sigma_q,

so a cell solves  m + s log m = y - s theta + s log(k mu),  which is the Wright omega function;
k makes the table sum to the total. Before the sweeps the measurements are made consistent with
each other by generalised least squares in closed form: within one marginal, interactions of
different attribute sets are orthogonal and independently noisy, so each is averaged over the
marginals that hold it, weighted by precision.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import chain, combinations
from typing import NamedTuple

import numpy as np

from siloweave.models.junction_tree import Array, Link, Propagation
from siloweave.models.mrf import MRF
from siloweave.models.threads import single_blas
from siloweave.tables.arrays import Floats
from siloweave.tables.codes import Clique, Domain

# The smallest count of a cell, so that every cell of a fitted model is possible.
_FLOOR = 1e-9
# A count below is an underflow: such a cell does not answer its potential, which would run away.
_LOST = 1e-280
_NEWTON_STEPS = 30


@dataclass(frozen=True)
class Measurement:
    """A noisy marginal."""

    clique: Clique  # attributes in domain order
    counts: Array  # noisy counts, axes in the order of the clique
    sigma: float  # standard deviation of the noise of each cell, in counts; 0 if exact

    def onto(self, part: Clique) -> Measurement:
        """Sum the measurement to fewer attributes."""
        counts = self._sum_to(part)
        # Noise of all cells that are added up is independent.
        cells_per_sum = self.counts.size / counts.size
        return Measurement(part, counts, self.sigma * cells_per_sum**0.5)

    def _sum_to(self, part: Clique) -> Array:
        axes = tuple(i for i, a in enumerate(self.clique) if a not in part)
        sums: Array = self.counts.sum(axis=axes)
        return sums


def combine(measurements: Iterable[Measurement]) -> list[Measurement]:
    """Average repeated measurements of one clique, weighted by inverse variance."""
    sums: dict[Clique, _WeightedSum] = {}
    for measurement in measurements:
        weight = 1.0 / _variance(measurement)
        counts = measurement.counts
        before = sums.get(measurement.clique, _WeightedSum(np.zeros(counts.shape), 0.0))
        sums[measurement.clique] = before.plus(weight, counts)
    return [
        Measurement(clique, weighted.mean, weighted.precision**-0.5)
        for clique, weighted in sums.items()
    ]


def _variance(measurement: Measurement) -> float:
    """Return the variance of a cell's noise; just above 0 where a measurement is exact."""
    variance: float = max(measurement.sigma, 1e-9) ** 2
    return variance


class _WeightedSum(NamedTuple):
    """A sum of estimates of one table, weighted by their precisions."""

    total: Array
    precision: float  # the sum of the weights: an inverse variance

    def plus(self, weight: float, values: Array) -> _WeightedSum:
        return _WeightedSum(self.total + weight * values, self.precision + weight)

    @property
    def mean(self) -> Array:
        return self.total / self.precision


def estimate_total(measurements: Sequence[Measurement]) -> float:
    """Estimate the number of rows from sums of noisy marginals, weighted by inverse variance."""
    weights = [1.0 / (_variance(m) * m.counts.size) for m in measurements]
    sums = [float(m.counts.sum()) for m in measurements]
    return max(1.0, float(np.average(sums, weights=weights)))


def consistent(measurements: Sequence[Measurement]) -> list[Array]:
    """Return tables that agree on all shared subsets: the generalised least squares estimate.

    There is one per measurement, at most one of which is of each clique; cells may be negative.
    """
    interactions = _interactions(measurements)
    means = {part: weighted.mean for part, weighted in interactions.items()}
    return [assemble(measurement, means) for measurement in measurements]


def single_columns(measurements: Sequence[Measurement]) -> list[Measurement]:
    """Return every single column, averaged without bias over all measurements that hold it."""
    interactions = _interactions(measurements)
    # The interaction of no attributes is the number of rows.
    rows = interactions[()]
    num_rows = float(rows.total.sum()) / rows.precision
    singles = []
    for part, weighted in interactions.items():
        if len(part) == 1:
            effect = weighted.total.reshape(-1) / weighted.precision
            counts = effect + num_rows / effect.size
            singles.append(Measurement(part, counts, weighted.precision**-0.5))
    return singles


def interaction(table: Array) -> Array:
    """Return the interaction of all of a table's attributes: the table, centred along each axis."""
    for axis in range(table.ndim):
        table = table - table.mean(axis=axis, keepdims=True)
    return table


def _interactions(measurements: Sequence[Measurement]) -> dict[Clique, _WeightedSum]:
    """Return every interaction, averaged by precision over all measurements that hold it."""
    interactions: dict[Clique, _WeightedSum] = {}
    for measurement in measurements:
        for part in subsets(measurement.clique):
            values = effect(measurement, part)
            # Each value is a sum of counts.size / values.size cells.
            num_cells = measurement.counts.size
            precision = values.size / (_variance(measurement) * num_cells)
            before = interactions.get(part, _WeightedSum(np.zeros(values.shape), 0.0))
            interactions[part] = before.plus(precision, values)
    return interactions


def subsets(clique: Clique) -> Iterable[Clique]:
    """Return all subsets of a clique, the empty one first."""
    sizes = range(len(clique) + 1)
    return chain.from_iterable(combinations(clique, size) for size in sizes)


def effect(m: Measurement, part: Clique) -> Array:
    """Return the interaction of the attributes in `part`, after summing over all others."""
    sums = m._sum_to(part)
    return interaction(np.asarray(sums, dtype=np.float64))


def assemble(m: Measurement, effects: Mapping[Clique, Array]) -> Array:
    """Build the table of a measurement's clique from its interactions."""
    table = np.zeros(m.counts.shape)
    for part in subsets(m.clique):
        # An effect is a sum over the other attributes: it is spread evenly over their cells.
        values = effects[part]
        per_cell = values * (values.size / m.counts.size)
        shape = [1] * table.ndim
        for axis, a in enumerate(m.clique):
            if a in part:
                shape[axis] = table.shape[axis]
        table += per_cell.reshape(shape)
    return table


class _Ascent:
    """A fit in progress: potentials and beliefs; a sweep visits every clique of the tree."""

    def __init__(
        self,
        domain: Domain,
        measured: Sequence[Measurement],
        total: float,
        shrinkage: float,
    ) -> None:
        self.plan = Propagation.over(domain, tuple(m.clique for m in measured))
        self.total = total
        tables = consistent(measured)
        # Of each measured clique: y, s and theta of the module's formulas, in inner order.
        self.targets = [self.plan.inner(i, table) for i, table in enumerate(tables)]
        self.slack = [max(shrinkage * m.sigma, 1e-6) for m in measured]
        self.thetas = [np.zeros(m.counts.size) for m in measured]

    def start(self, warm: MRF | None) -> None:
        """Start from the potentials that an earlier model has for the same cliques."""
        if warm is not None:
            for i, clique in enumerate(self.plan.scopes):
                if clique in warm.potentials:
                    theta = self.plan.inner(i, warm.potentials[clique])
                    self.thetas[i] = theta.copy()
        self.beliefs = self.plan.run(self.thetas)
        links = zip(self.plan.up, self.beliefs, strict=True)
        self._messages = [link.reduce(belief) for link, belief in links]

    def sweep(self) -> float:
        """Update every potential once; return the share of rows that moved."""
        return self._visit(0) / self.total

    def _visit(self, i: int) -> float:
        """Update the potentials of a clique and of all below it, and return how many rows moved."""
        moved = sum(self._update(q, i) for q in self.plan.homed[i])
        for child in self.plan.children[i]:
            down = self.plan.down[child]
            up = self.plan.up[child]
            # A child must know all updates before its own, and its parent those of the child.
            self._pass(child, down.reduce(self.beliefs[i]), up, child)
            moved += self._visit(child)
            self._pass(child, up.reduce(self.beliefs[child]), down, i)
        return moved

    def _pass(self, edge: int, message: Array, link: Link, receiver: int) -> None:
        """Multiply a clique's belief by how a message changed since it was last passed."""
        before = self._messages[edge]
        ratio = np.zeros_like(message)
        np.divide(message, before, out=ratio, where=before > 0)
        link.multiply(self.beliefs[receiver], ratio)
        self._messages[edge] = message

    def _update(self, q: int, home: int) -> float:
        """Solve the block of one potential, and return how many rows moved."""
        link = self.plan.links[q]
        s = self.slack[q]
        mu = link.reduce(self.beliefs[home])
        mu = mu * (self.total / mu.sum())
        positive = np.maximum(mu, _LOST)
        base = self.targets[q] / s - self.thetas[q] + np.log(positive / s)
        m = solve_block(base, s, self.total)

        factor = np.where(mu > _LOST, np.maximum(m, _FLOOR) / positive, 1.0)
        link.multiply(self.beliefs[home], factor)
        self.thetas[q] = self.thetas[q] + np.log(factor)
        return float(np.abs(m - mu).sum())


def solve_block(base: Array, s: float, total: float) -> Array:
    """Return the table s * omega(base + log k) whose sum is `total`, by Newton steps on log k.

    The sum grows with log k and is convex, so that steps between the bounds cannot fail: one cell
    alone would hold `total` at the upper bound, and at the lower all would share it equally.
    """
    from scipy.special import wrightomega  # late: it costs a third of a second

    # omega(x) = w where w + log w = x.
    equal_share = total / s / base.size
    whole = total / s
    top = float(base.max())
    low = equal_share + np.log(equal_share) - top
    high = whole + np.log(whole) - top

    log_k = min(max(0.0, low), high)
    for _ in range(_NEWTON_STEPS):
        omega: Array = wrightomega(base + log_k)
        excess = s * float(omega.sum()) - total
        if abs(excess) <= 1e-6 * total:
            break
        slope = s * float((omega / (1.0 + omega)).sum())
        log_k = min(max(log_k - excess / max(slope, 1e-300), low), high)
    return s * omega


def fit(
    domain: Domain,
    measurements: Sequence[Measurement],
    *,
    total: float | None = None,
    warm_start: MRF | None = None,
    sweeps: int = 15,
    shrinkage: float = 0.5,
    tolerance: float = 1e-4,
) -> MRF:
    """Return the maximum-entropy model that best explains noisy marginals.

    Args:
        domain: Attributes and sizes.
        measurements: Noisy marginals; repeated cliques are averaged. May be empty.
        total: Rows the model stands for; estimated from the measurements if None.
        warm_start: A model whose potentials on the same cliques are the starting point.
        sweeps: Most sweeps over the tree.
        shrinkage: Weight of entropy against residual, per unit of noise. 0.5 to 1 suits noise of
            any size; towards 0 the noise is fitted.
        tolerance: Stop when a sweep moves less than this share of the rows.

    Returns:
        A model with one potential per measured clique.

    Example:
        >>> import numpy as np
        >>> domain = Domain(("a", "b"), (2, 2))
        >>> data = np.array([[3.0, 1.0], [0.0, 4.0]])
        >>> model = fit(domain, [Measurement(("a", "b"), data, 1e-3)])
        >>> bool(np.abs(model.marginal(("a", "b")) - data).max() < 0.01)
        True
    """
    # Sorted, so that the order of measurements does not matter.
    measured = sorted(combine(measurements), key=lambda m: (-len(m.clique), m.clique))
    if not measured:
        rows = 1.0 if total is None else total
        return MRF.uniform(domain, rows)
    rows = estimate_total(measured) if total is None else max(1.0, total)

    with single_blas():
        ascent = _Ascent(domain, measured, rows, shrinkage)
        ascent.start(warm_start)
        for _ in range(sweeps):
            if ascent.sweep() < tolerance:
                break

    plan = ascent.plan
    potentials = {}
    for clique, theta in zip(plan.scopes, ascent.thetas, strict=True):
        potentials[clique] = np.ascontiguousarray(plan.table(clique, theta))
    return MRF(domain, potentials, rows)


def block_step(
    model: MRF, measurement: Measurement, *, shrinkage: float = 0.5
) -> Floats:
    """Return the marginal after one exact block step on a measurement of it, all else unchanged.

    The measurement is in the model's own total, to which the result sums, with the same axes.
    `shrinkage` is the weight of entropy against residual, per unit of noise.
    """
    mu = np.maximum(model.marginal(measurement.clique), 1e-300)
    slack = max(shrinkage * measurement.sigma, 1e-6)
    base = measurement.counts / slack + np.log(mu / slack)
    m = solve_block(base.reshape(-1), slack, model.total)
    return np.asarray(m.reshape(mu.shape))


def moved_towards(model: MRF, measurement: Measurement) -> MRF:
    """Return the model after `block_step`, which adds or changes the measured potential."""
    clique = measurement.clique
    mu = np.maximum(model.marginal(clique), 1e-300)
    m = np.maximum(block_step(model, measurement), _FLOOR)
    theta = np.log(m / mu)
    if clique in model.potentials:
        theta = model.potentials[clique] + theta
    return MRF(model.domain, model.potentials | {clique: theta}, model.total)
