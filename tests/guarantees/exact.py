"""Mass functions, divergences and fits that the tests of noise share; none of them samples."""

import math
from decimal import Context, Decimal
from itertools import accumulate

import numpy as np
from scipy.stats import chi2

from siloweave.privacy import mechanisms
from siloweave.privacy.mechanisms import SeededEntropy

DEEP = Context(prec=70)
N = 40_000


def masses_of(table):
    """P(abs(X) = k) as exact integers of 2^-127."""
    high, low = table.high.tolist(), table.low.tolist()
    sums = [(h << 64) + l for h, l in zip(high, low, strict=True)]
    return [after - before for before, after in zip([0, *sums], sums, strict=False)]


def gaussian_weight(k, sigma):
    square = DEEP.multiply(Decimal(sigma), Decimal(sigma))
    return DEEP.exp(DEEP.divide(Decimal(-k * k), 2 * square))


def laplace_weight(k, scale):
    return DEEP.exp(DEEP.divide(Decimal(-k), Decimal(scale)))


def distance(masses, weight):
    """Total variation between a table and the distribution with these weights, tails included."""
    weights = [weight(k) for k in range(len(masses) + 40)]
    total = 2 * sum(weights) - weights[0]
    exact = [(1 if k == 0 else 2) * w / total for k, w in enumerate(weights)]
    given = [Decimal(m) / 2**127 for m in masses] + [Decimal(0)] * 40
    return float(sum(abs(p - q) for p, q in zip(exact, given, strict=True)) / 2)


def renyi(p, q, alpha):
    """Divergence of order alpha of two mass functions on the same points, in nats."""
    both = (p > 0) & (q > 0)
    log_p, log_q = np.log(p[both]), np.log(q[both])
    terms = alpha * log_p + (1 - alpha) * log_q
    top = terms.max()
    return (top + math.log(np.exp(terms - top).sum())) / (alpha - 1)


def float_masses(sigma, reach):
    x = np.arange(-reach, reach + 1)
    p = np.exp(-(x.astype(float) ** 2) / (2 * sigma**2))
    return p / p.sum()


def sum_of_shares(sigma, shares):
    """Mass function of the sum of independent discrete Gaussians."""
    one = float_masses(sigma, math.ceil(25 * sigma))
    return list(accumulate([one] * shares, np.convolve))[-1]


def worst_rho(p, shift=1):
    """The least rho for which neighbours ``shift`` apart are rho-zCDP, at many orders."""
    p = np.pad(p, shift)
    q = np.roll(p, shift)
    alphas = (1.01, 1.1, 1.5, 2.0, 3.0, 5.0, 9.0, 17.0, 33.0)
    return max(renyi(p, q, alpha) / alpha for alpha in alphas)


def selection_masses(scores, sensitivity, epsilon):
    sums = mechanisms._sums(np.array(scores), sensitivity=sensitivity, epsilon=epsilon)
    return [Decimal(b - a) / sums[-1] for a, b in zip([0, *sums], sums, strict=False)]


def selection_loss(select, k=100, epsilon=1.0, sensitivity=1.0):
    """Worst neighbours: one score rises by the sensitivity, all others fall by it."""
    p = select([0.0] * k, sensitivity, epsilon)
    q = select([sensitivity] + [-sensitivity] * (k - 1), sensitivity, epsilon)
    return max(abs(float(DEEP.ln(a / b))) for a, b in zip(p, q, strict=True))


def gaussian_masses(sigma):
    p = float_masses(sigma, math.ceil(13 * sigma))
    half = p[p.size // 2 :] * 2
    half[0] /= 2
    return half


def laplace_masses(scale):
    p = 2 * np.exp(-np.arange(math.ceil(60 * scale)) / scale) * math.tanh(0.5 / scale)
    p[0] /= 2
    return p


def fits(draws, masses, level=1e-6):
    """Whether signed draws fit P(abs(X) = k) = masses[k] with a fair sign (chi-squared test)."""
    n = draws.size
    expected, observed = [], []
    rest_expected, rest_observed = float(n), n
    for k, mass in enumerate(masses):
        for sign in (0,) if k == 0 else (-1, 1):
            mean = n * mass if k == 0 else n * mass / 2
            if mean >= 8:
                expected.append(mean)
                observed.append(int(np.count_nonzero(draws == (k * sign if k else 0))))
                rest_expected -= mean
                rest_observed -= observed[-1]
    expected.append(max(rest_expected, 1e-9))
    observed.append(rest_observed)
    e, o = np.array(expected), np.array(observed)
    if e[-1] < 5:
        e, o = np.append(e[:-2], e[-2:].sum()), np.append(o[:-2], o[-2:].sum())
    return bool(chi2.sf(((o - e) ** 2 / e).sum(), e.size - 1) > level)


def noise_is_independent(add):
    """Whether the cells of one call, and two calls, get noise of their own."""
    cells = add(np.zeros((2000, 2), dtype=int), 5.0, entropy=SeededEntropy(14))
    again = add(np.zeros((2000, 2), dtype=int), 5.0, entropy=SeededEntropy(15))
    pairs = [(cells[:, 0], cells[:, 1]), (cells[:-1, 0], cells[1:, 0]), (cells[:, 0], again[:, 0])]
    variances = [float(np.var(a - b)) / (2 * 25) for a, b in pairs]
    return all(0.85 < v < 1.15 for v in variances)
