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

import numpy as np

from siloweave.models.junction_tree import Array, Link, Propagation
from siloweave.models.mrf import MRF
from siloweave.models.threads import single_blas
from siloweave.tables.arrays import Floats
from siloweave.tables.codes import Clique, Domain

_FLOOR = 1e-9  # counts; keeps every cell of a fitted model possible
_LOST = 1e-280  # counts; an underflowed cell does not answer its potential, which would run away
_NEWTON_STEPS = 30


@dataclass(frozen=True)
class Measurement:
    """A noisy marginal."""

    clique: Clique  # attributes in domain order
    counts: Array  # noisy counts, axes in the order of the clique
    sigma: float  # standard deviation of the noise of each cell, in counts; 0 if exact

    def onto(self, part: Clique) -> Measurement:
        """What it measures of fewer attributes."""
        gone = tuple(i for i, a in enumerate(self.clique) if a not in part)
        counts: Array = self.counts.sum(axis=gone)
        return Measurement(part, counts, self.sigma * (self.counts.size / counts.size) ** 0.5)


def combine(measurements: Iterable[Measurement]) -> list[Measurement]:
    """Average repeated measurements of one clique, weighted by inverse variance."""
    sums: dict[Clique, tuple[Array, float]] = {}
    for m in measurements:
        weight = 1.0 / max(m.sigma, 1e-9) ** 2
        counts, precision = sums.get(m.clique, (np.zeros(m.counts.shape), 0.0))
        sums[m.clique] = (counts + weight * m.counts, precision + weight)
    return [Measurement(c, y / p, p**-0.5) for c, (y, p) in sums.items()]


def estimate_total(measurements: Sequence[Measurement]) -> float:
    """Number of rows, from the sums of the noisy marginals, weighted by inverse variance."""
    weights = [1.0 / (max(m.sigma, 1e-9) ** 2 * m.counts.size) for m in measurements]
    sums = [float(m.counts.sum()) for m in measurements]
    return max(1.0, float(np.average(sums, weights=weights)))


def consistent(measurements: Sequence[Measurement]) -> list[Array]:
    """Tables that agree on every shared subset: the generalised least squares estimate.

    There is one per measurement, at most one of which is of each clique; cells may be negative.
    """
    known = _interactions(measurements)
    means = {part: total / precision for part, (total, precision) in known.items()}
    return [assemble(m, means) for m in measurements]


def single_columns(measurements: Sequence[Measurement]) -> list[Measurement]:
    """Return every single column, averaged over all measurements that hold it; unbiased."""
    known = _interactions(measurements)
    total, weight = known[()]
    rows = float(total.sum()) / weight
    singles = []
    for part, (effect, precision) in known.items():
        if len(part) == 1:
            counts = effect.reshape(-1) / precision + rows / effect.size
            singles.append(Measurement(part, counts, precision**-0.5))
    return singles


def interaction(table: Array) -> Array:
    """Return what a table has beyond fewer of its attributes: it is centred along every axis."""
    for axis in range(table.ndim):
        table = table - table.mean(axis=axis, keepdims=True)
    return table


def _interactions(measurements: Sequence[Measurement]) -> dict[Clique, tuple[Array, float]]:
    """Every interaction's sum weighted by precision, and its precision."""
    known: dict[Clique, tuple[Array, float]] = {}
    for m in measurements:
        for part in subsets(m.clique):
            values = effect(m, part)
            precision = values.size / (max(m.sigma, 1e-9) ** 2 * m.counts.size)
            mean, total = known.get(part, (np.zeros(values.shape), 0.0))
            known[part] = (mean + precision * values, total + precision)
    return known


def subsets(clique: Clique) -> Iterable[Clique]:
    """Return all subsets of a clique, the empty one first."""
    return chain.from_iterable(combinations(clique, r) for r in range(len(clique) + 1))


def effect(m: Measurement, part: Clique) -> Array:
    """Return the interaction of the attributes in `part`, summed over the others."""
    gone = tuple(i for i, a in enumerate(m.clique) if a not in part)
    return interaction(np.asarray(m.counts.sum(axis=gone), dtype=np.float64))


def assemble(m: Measurement, effects: Mapping[Clique, Array]) -> Array:
    """Return the table of a measurement's clique that has these interactions."""
    table = np.zeros(m.counts.shape)
    for part in subsets(m.clique):
        values = effects[part]
        shape = [n if a in part else 1 for a, n in zip(m.clique, m.counts.shape, strict=True)]
        table += (values * (values.size / m.counts.size)).reshape(shape)
    return table


class _Ascent:
    """Potentials and beliefs of a fit in progress; a sweep visits every clique of the tree."""

    def __init__(
        self, domain: Domain, measured: Sequence[Measurement], total: float, shrinkage: float
    ) -> None:
        self.plan = Propagation.over(domain, tuple(m.clique for m in measured))
        self.total = total
        self.targets = [self.plan.inner(i, y) for i, y in enumerate(consistent(measured))]
        self.slack = [max(shrinkage * m.sigma, 1e-6) for m in measured]
        self.thetas = [np.zeros(m.counts.size) for m in measured]

    def start(self, warm: MRF | None) -> None:
        """Start from the potentials that an earlier model has for the same cliques."""
        if warm is not None:
            for i, clique in enumerate(self.plan.scopes):
                if clique in warm.potentials:
                    self.thetas[i] = self.plan.inner(i, warm.potentials[clique]).copy()
        self.beliefs = self.plan.run(self.thetas)
        self._messages = [
            link.reduce(b) for link, b in zip(self.plan.up, self.beliefs, strict=True)
        ]

    def sweep(self) -> float:
        """Update every potential once; returns the share of rows that moved."""
        return self._visit(0) / self.total

    def _visit(self, i: int) -> float:
        moved = sum(self._update(q, i) for q in self.plan.homed[i])
        for child in self.plan.children[i]:
            down, up = self.plan.down[child], self.plan.up[child]
            self._pass(child, down.reduce(self.beliefs[i]), up, child)
            moved += self._visit(child)
            self._pass(child, up.reduce(self.beliefs[child]), down, i)
        return moved

    def _pass(self, edge: int, message: Array, link: Link, to: int) -> None:
        old = self._messages[edge]
        ratio = np.divide(message, old, out=np.zeros_like(message), where=old > 0)
        link.multiply(self.beliefs[to], ratio)
        self._messages[edge] = message

    def _update(self, q: int, home: int) -> float:
        link, s = self.plan.links[q], self.slack[q]
        mu = link.reduce(self.beliefs[home])
        mu = mu * (self.total / mu.sum())
        seen = np.maximum(mu, _LOST)
        m = solve_block(self.targets[q] / s - self.thetas[q] + np.log(seen / s), s, self.total)
        factor = np.where(mu > _LOST, np.maximum(m, _FLOOR) / seen, 1.0)
        link.multiply(self.beliefs[home], factor)
        self.thetas[q] = self.thetas[q] + np.log(factor)
        return float(np.abs(m - mu).sum())


def solve_block(base: Array, s: float, total: float) -> Array:
    """The table s * omega(base + log k) whose sum is `total`, by Newton steps on log k.

    The sum grows with log k and is convex, so that steps between the bounds cannot fail: one cell
    alone would hold `total` at the upper bound, and at the lower all would share it equally.
    """
    from scipy.special import wrightomega  # late: it costs a third of a second

    low, high = (
        share + np.log(share) - float(base.max()) for share in (total / s / base.size, total / s)
    )
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
    """The maximum-entropy model that best explains noisy marginals.

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
    measured = sorted(combine(measurements), key=lambda m: (-len(m.clique), m.clique))
    if not measured:
        return MRF.uniform(domain, 1.0 if total is None else total)
    rows = estimate_total(measured) if total is None else max(1.0, total)
    with single_blas():
        ascent = _Ascent(domain, measured, rows, shrinkage)
        ascent.start(warm_start)
        for _ in range(sweeps):
            if ascent.sweep() < tolerance:
                break
    potentials = {
        c: np.ascontiguousarray(ascent.plan.table(c, t))
        for c, t in zip(ascent.plan.scopes, ascent.thetas, strict=True)
    }
    return MRF(domain, potentials, rows)


def block_step(model: MRF, measurement: Measurement, *, shrinkage: float = 0.5) -> Floats:
    """The marginal after one exact block step on a measurement of it; all else does not change.

    The measurement is in the model's own total, to which the result sums, with the same axes.
    `shrinkage` is the weight of entropy against residual, per unit of noise.
    """
    mu = np.maximum(model.marginal(measurement.clique), 1e-300)
    slack = max(shrinkage * measurement.sigma, 1e-6)
    base = measurement.counts / slack + np.log(mu / slack)
    return np.asarray(solve_block(base.reshape(-1), slack, model.total).reshape(mu.shape))


def moved_towards(model: MRF, measurement: Measurement) -> MRF:
    """The model after `block_step`: with one more potential, or one changed if it had one."""
    mu = np.maximum(model.marginal(measurement.clique), 1e-300)
    table = np.maximum(block_step(model, measurement), 1e-9)
    step = np.log(table / mu)
    before = model.potentials.get(measurement.clique)
    potentials = model.potentials | {measurement.clique: step if before is None else before + step}
    return MRF(model.domain, potentials, model.total)
