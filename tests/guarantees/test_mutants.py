"""Every check of the noise fails on an implementation with a known fault."""

import math
from decimal import localcontext

import numpy as np
import pytest

from siloweave.privacy import mechanisms
from siloweave.privacy.events import Gaussian, SharedGaussian
from siloweave.privacy.mechanisms import SeededEntropy
from tests.guarantees.exact import (
    DEEP,
    N,
    fits,
    float_masses,
    gaussian_masses,
    noise_is_independent,
    selection_loss,
    selection_masses,
    sum_of_shares,
    worst_rho,
)


@pytest.fixture(autouse=True)
def _digits():
    """Operators on decimals round to 70 digits here, not to 28."""
    with localcontext(DEEP):
        yield


def half_noise(values, sigma, *, entropy):
    return np.asarray(values) + mechanisms.discrete_gaussian(
        sigma / 2, np.size(values), entropy=entropy
    )


def variance_as_deviation(values, sigma, *, entropy):
    noise = mechanisms.discrete_gaussian(math.sqrt(sigma), np.size(values), entropy=entropy)
    return np.asarray(values) + noise


def one_sided(values, sigma, *, entropy):
    noise = mechanisms.discrete_gaussian(sigma, np.size(values), entropy=entropy)
    return np.asarray(values) + np.abs(noise)


def never_zero(values, sigma, *, entropy):
    noise = mechanisms.discrete_gaussian(sigma, np.size(values), entropy=entropy)
    return np.asarray(values) + np.where(noise == 0, 1, noise)


def rounded_floats(values, sigma, *, entropy):
    """Close to the discrete Gaussian for wide noise, clearly not for narrow noise."""
    key = int.from_bytes(entropy.bytes(8), "little")
    return np.asarray(values) + np.rint(
        np.random.default_rng(key).normal(0, sigma, np.size(values))
    )


@pytest.mark.parametrize(
    "mutant", [half_noise, variance_as_deviation, one_sided, never_zero, rounded_floats]
)
def test_mutants_of_the_noise_do_not_fit(mutant):
    sigma = 0.5 if mutant is rounded_floats else 3.0
    zeros = np.zeros(N, dtype=int)
    assert fits(
        mechanisms.add_gaussian(zeros, sigma, entropy=SeededEntropy(16)), gaussian_masses(sigma)
    )
    assert not fits(mutant(zeros, sigma, entropy=SeededEntropy(16)), gaussian_masses(sigma))


def test_the_mutant_with_half_the_noise_costs_four_times_the_price():
    price = Gaussian(sigma=4.0, sensitivity=1.0).rho
    assert worst_rho(float_masses(2.0, 60)) > 3.9 * price


def shared_by_cells(values, sigma, *, entropy):
    array = np.asarray(values)
    noise = mechanisms.discrete_gaussian(sigma, len(array), entropy=entropy)
    return array + noise.reshape(-1, *[1] * (array.ndim - 1))


def one_number(values, sigma, *, entropy):
    return np.asarray(values) + mechanisms.discrete_gaussian(sigma, 1, entropy=entropy)[0]


def same_stream(values, sigma, *, entropy):
    fixed = SeededEntropy(99)
    return mechanisms.add_gaussian(values, sigma, entropy=fixed)


@pytest.mark.parametrize("mutant", [shared_by_cells, one_number, same_stream])
def test_mutants_that_share_noise_are_noticed(mutant):
    assert not noise_is_independent(mutant)


def test_the_mutant_with_half_the_shares_missing_is_noticed():
    """Four shares claimed, two there: neighbours are twice as far apart as was paid for."""
    price = SharedGaussian(share_sigma=2.0, shares=4, tolerated=0, sensitivity=1.0, dimension=1).rho
    assert worst_rho(sum_of_shares(2.0, 4)) <= price * (1 + 1e-9)
    assert worst_rho(sum_of_shares(2.0, 2)) > 1.9 * price
    tolerant = SharedGaussian(share_sigma=2.0, shares=4, tolerated=2, sensitivity=1.0, dimension=1)
    assert worst_rho(sum_of_shares(2.0, 2)) <= tolerant.rho * (1 + 1e-9)


def test_the_mutants_of_selection_are_noticed():
    def halved(scores, sensitivity, epsilon):
        return selection_masses(scores, sensitivity / 2, epsilon)

    def without_two(scores, sensitivity, epsilon):
        return selection_masses(scores, sensitivity, 2 * epsilon)

    def by_rank(scores, sensitivity, epsilon):  # a score that a neighbour can turn around
        order = np.argsort(np.argsort(scores)).astype(float)
        return selection_masses(list(order), sensitivity, epsilon)

    for mutant in (halved, without_two, by_rank):
        assert selection_loss(mutant) > 1.5
