"""Enough parties join a shared seed, and a sum opens for one pair of lists alone."""

from itertools import combinations, product

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from siloweave.errors import InputError, WireError
from siloweave.federation import dropouts
from siloweave.federation.dropouts import PRIME, SEED, MaskPlan, joined, split
from siloweave.privacy import mechanisms
from tests.federation.rosters import terms_of

SIZES = [(n, c, d) for n in range(1, 13) for c in (1, 2, 3) for d in range(7)]


class Fixed:
    """Entropy whose bytes are given."""

    private = False

    def __init__(self, *numbers):
        self.data = b"".join(n.to_bytes(SEED, "big") for n in numbers)

    def bytes(self, number):
        assert number == len(self.data)
        return self.data


def seed(number):
    return (number % PRIME).to_bytes(SEED, "big")


def solved(points, threshold):
    """The polynomial through points by elimination: another way to the same secret."""
    rows = [[pow(x, j, PRIME) for j in range(threshold)] + [y] for x, y in points[:threshold]]
    for i in range(threshold):
        inverse = pow(rows[i][i], -1, PRIME)  # minors of a Vandermonde matrix are not 0
        rows[i] = [v * inverse % PRIME for v in rows[i]]
        for k in range(threshold):
            if k != i:
                rows[k] = [
                    (v - rows[k][i] * w) % PRIME for v, w in zip(rows[k], rows[i], strict=True)
                ]
    return [row[-1] for row in rows]


def is_prime(number):
    odd, twos = number - 1, 0
    while odd % 2 == 0:
        odd, twos = odd // 2, twos + 1
    for base in (2, 3, 5, 7, 11, 13, 17, 19, 23, 29, 31, 37, 41):
        x = pow(base, odd, number)
        if x not in (1, number - 1) and not any(
            pow(x, 2**i, number) == number - 1 for i in range(1, twos)
        ):
            return False
    return True


# Shamir's secret sharing


def test_shares_of_a_known_polynomial():
    shares = split([seed(7)], 4, 3, Fixed(5, 3))  # 5 x^2 + 3 x + 7, or the other way round
    values = [int.from_bytes(s, "big") for s in shares]
    assert values in ([15, 33, 61, 99], [15, 29, 49, 75])
    assert solved(list(enumerate(values, start=1)), 3)[0] == 7


def test_the_field_is_that_of_the_largest_prime_of_256_bits():
    assert is_prime(PRIME)
    assert not any(is_prime(n) for n in range(PRIME + 2, 2**256, 2))


@given(st.lists(st.integers(0, PRIME - 1), min_size=1, max_size=3), st.data())
def test_enough_holders_join_what_was_split_and_an_elimination_finds_the_same(numbers, data):
    holders = data.draw(st.integers(1, 7))
    threshold = data.draw(st.integers(1, holders))
    shares = split([seed(n) for n in numbers], holders, threshold, mechanisms.OSEntropy())
    assert {len(s) for s in shares} == {SEED * len(numbers)}
    some = data.draw(
        st.lists(st.integers(1, holders), min_size=threshold, max_size=holders, unique=True)
    )
    for i, number in enumerate(numbers):
        held = [shares[place - 1][SEED * i : SEED * (i + 1)] for place in some]
        assert joined(some)(held) == seed(number)
        points = [(p, int.from_bytes(h, "big")) for p, h in zip(some, held, strict=True)]
        assert solved(points, threshold)[0] == number


def test_one_holder_too_few_may_hold_the_same_shares_of_any_secret():
    shares = split([seed(7)], 5, 3, mechanisms.OSEntropy())
    held = [(2, int.from_bytes(shares[1], "big")), (5, int.from_bytes(shares[4], "big"))]
    for other in (0, 8, PRIME - 1):
        other_way = solved([(0, other), *held], 3)
        assert other_way[0] == other
        drawn = other_way[1:]
        for order in (drawn, drawn[::-1]):
            again = split([seed(other)], 5, 3, Fixed(*order))
            if [again[1], again[4]] == [shares[1], shares[4]]:
                break
        else:
            pytest.fail(f"no polynomial has the secret {other}")


# Who may vanish, and who is a neighbour


def test_so_many_parties_may_vanish_that_the_others_outnumber_them_and_those_who_help():
    for n, c, d in SIZES:
        plan = MaskPlan.for_size(n, c, d)
        honest = n - min(c, n - 1)
        assert plan.vanish == max(v for v in range(d + 1) if v == 0 or 2 * v < honest)
        assert plan.threshold == n - plan.vanish
        assert plan.colluders + plan.vanish <= plan.missing < max(n, 2)


def lists_of(others, most):
    return [frozenset(one) for k in range(most + 1) for one in combinations(others, k)]


@pytest.mark.parametrize(
    ("size", "colluders", "gone"), [(4, 1, 1), (5, 1, 1), (5, 2, 1), (6, 1, 2)]
)
def test_whatever_lists_a_coordinator_shows_no_party_opens_twice_and_few_are_dead(
    size, colluders, gone
):
    """All lists that honest parties accept; those who help the coordinator answer anything."""
    plan = MaskPlan.for_size(size, colluders, gone)
    assert plan.vanish == gone
    honest = plan.names[colluders:]
    shown = [lists_of([q for q in honest if q != p], gone) for p in honest]
    most = 0
    for chosen in product(*shown):
        votes = {p: sum(p in dead for dead in chosen) for p in honest}
        need = plan.threshold - colluders
        as_dead = {p for p, said in votes.items() if said >= need}
        as_active = {p for p, said in votes.items() if len(honest) - said >= need}
        assert not as_dead & as_active
        most = max(most, len(as_dead))
    assert most <= plan.missing - colluders


def connected(neighbours, names):
    found, open_ = set(), [next(iter(names))]
    while open_:
        one = open_.pop()
        if one not in found:
            found.add(one)
            open_ += [n for n in neighbours[one] if n in names]
    return found == set(names)


def test_masks_join_all_others_whoever_helps_or_is_dead():
    for n, c, d in SIZES:
        if n <= 10 and n > 1:
            plan = MaskPlan.for_size(n, c, d)
            for without in combinations(plan.names, plan.missing):
                assert connected(plan.neighbours, set(plan.names) - set(without))
    rng = np.random.default_rng(0)
    for n, d in ((100, 10), (99, 10), (60, 20), (31, 3)):
        plan = MaskPlan.for_size(n, 1, d)
        assert connected(plan.neighbours, set(plan.names) - set(plan.names[: plan.missing]))
        for _ in range(30):
            start = plan.names[rng.integers(n)]
            around = [*plan.neighbours[start], *rng.permutation(plan.names)]
            without = list(dict.fromkeys(around))[: plan.missing]
            assert connected(plan.neighbours, set(plan.names) - set(without))


def test_neighbours_are_mutual_and_few():
    for n, c, d in SIZES:
        plan = MaskPlan.for_size(n, c, d)
        for name, near in plan.neighbours.items():
            assert name not in near
            assert len(set(near)) == len(near)
            assert all(name in plan.neighbours[other] for other in near)
    assert {len(near) for near in MaskPlan.for_size(100, 1, 10).neighbours.values()} == {14}


def test_more_than_a_roster_allows_cannot_vanish():
    with pytest.raises(
        InputError, match=r"dropouts=1 of 2 parties.* 0 may vanish.* Take 4 parties"
    ):
        terms_of("ab", dropouts=1)
    with pytest.raises(InputError, match="dropouts=2"):
        terms_of("abcde", dropouts=2)
    assert terms_of("abcdef", dropouts=2).plan("abc").vanish == 0


# Lists


@pytest.mark.parametrize(
    ("active", "dead"),
    [
        ("abcdef", "f"),  # on both lists
        ("abcde", ""),  # somebody is left out
        ("abcdeeg", ""),
        ("abcddd", ""),
        ("abcdeg", "f"),  # a stranger
        ("bcdef", "a"),  # itself
        ("abc", "def"),  # too many
    ],
)
def test_lists_that_are_not_of_the_cohort_are_refused(active, dead):
    with pytest.raises(WireError, match="Nothing was opened"):
        MaskPlan.of("abcdef", 1, 2).check_lists("a", tuple(active), tuple(dead))


def test_only_ones_own_mask_and_those_with_the_dead_open():
    plan = MaskPlan.of("abcdef", 1, 2)
    plan.check_lists("a", tuple("abcd"), tuple("ef"))
    assert plan.opened("a", "ef") == (0, *(1 + plan.neighbours["a"].index(n) for n in "ef"))
    assert plan.opened("a", "") == (0,)


def test_seeds_of_other_sums_and_pairs_are_unrelated():
    secrets = {dropouts.pair_seed(s, i) for s in (bytes(32), b"1" * 32) for i in (b"1", b"2")}
    assert len(secrets) == 4
    assert len({dropouts.new_seed(mechanisms.OSEntropy()) for _ in range(100)}) == 100
