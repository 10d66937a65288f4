"""Secure products: exact sums, the noise's distribution, every view, and mutants that are seen.

`Run` plays coordinator, first and second party of one pair with fresh keys. What one of them sees
is held against the uniform distribution by chi-square tests over many keys, whatever the rows are;
the keys are fixed, so a test that passes does so again.
"""

from dataclasses import dataclass, field
from functools import cached_property
from itertools import product
from math import prod

import numpy as np
import pytest
from scipy.stats import chisquare

from siloweave.privacy.coins import Coins, masses
from siloweave.protocols import secure_products as sp
from siloweave.protocols.secure_products import P

COINS = Coins((1, 2, 3), 4)
FEW = Coins((1,), 2)
UNLIKELY = 1e-4


def rows_of(seed, rows, sizes):
    rng = np.random.default_rng(seed)
    return [rng.integers(0, n, rows) for n in sizes]


def clear(X, Y):
    return X.astype(np.int64).T @ Y.astype(np.int64)


@dataclass(frozen=True)
class Run:
    """One product between two parties, and what everyone sees of it."""

    key: int
    codes: tuple = field(default_factory=lambda: (rows_of(0, 20, (3, 2)), rows_of(1, 20, (4,))))
    sizes: tuple = ((3, 2), (4,))
    coins: Coins = COINS
    pads: bool = True
    pad_of: str = ""  # of the measurement, mostly
    z_of: str = ""
    measurement: str = "look"

    def secret(self, who):
        return f"{self.key}/{who}".encode().ljust(32, b"\0")

    def hot(self, who):
        return sp.one_hot(self.codes[who], self.sizes[who])

    @cached_property
    def shape(self):
        return tuple(map(sum, self.sizes))

    @cached_property
    def dealt(self):
        """U, V, R, Q, r, S and G, all of which the coordinator knows."""
        rows = len(self.codes[0][0])
        U, V = (sp.masks(self.secret(f"e{k}"), "rows", rows, self.shape[k]) for k in (0, 1))
        R = sp.masks(self.secret("e0"), "R", *self.shape)
        cells = prod(self.shape)
        r = sp.coin_bits(self.secret("e"), self.measurement, cells, self.coins)
        S = sp.coin_masks(self.secret("e0"), self.measurement, cells, self.coins, P)
        return {"U": U, "V": V, "R": R, "Q": sp.taken(sp.product(U, V), R), "r": r, "S": S,
                "G": sp.taken(r, S, P)}  # fmt: skip

    @cached_property
    def sent(self):
        """M and W."""
        hidden = (self.dealt["U"], self.dealt["V"])
        return [sp.taken(self.hot(k), hidden[k]) for k in (0, 1)]

    @cached_property
    def z(self):
        context = self.z_of or self.measurement
        return sp.coin_bits(self.secret("01"), context, prod(self.shape), self.coins)

    @cached_property
    def shares(self):
        """A and B."""
        M, W = self.sent
        first = sp.added(sp.count_masked(self.hot(0), W), self.dealt["R"])
        return first, sp.added(sp.product(M, self.dealt["V"]), self.dealt["Q"])

    @cached_property
    def words(self):
        """What both parties send the coordinator."""
        pad = sp.pad(self.secret("01"), self.pad_of or self.measurement, prod(self.shape), P)
        pad = pad if self.pads else np.zeros_like(pad)
        noise = [
            sp.noise_share(self.coins, self.z, self.dealt["SG"[k]], P, first=not k) for k in (0, 1)
        ]
        both = [sp.added(self.shares[k].reshape(-1), noise[k]) for k in (0, 1)]
        return sp.added(both[0], pad), sp.taken(both[1], pad)

    @property
    def opened(self):
        return sp.opened(self.words, self.coins.half, P)

    @property
    def noise(self):
        return self.opened - clear(self.hot(0), self.hot(1)).reshape(-1)


def p_uniform(words, modulus=P, bins=32):
    """Of the places of words among as many equal parts of what they may be."""
    places = (np.asarray(words, dtype=np.float64) / modulus * bins).astype(int)
    return chisquare(np.bincount(places.reshape(-1), minlength=bins)).pvalue


def mixed(views, modulus):
    """One sum of all words of each view, with the same weights in all of them."""
    words = np.array([np.concatenate([part.reshape(-1) for part in view]) for view in views])
    weights = np.random.default_rng(7).integers(1, modulus, words.shape[1]) | 1
    each = words.astype(np.uint64) * weights.astype(np.uint64) % np.uint64(modulus)
    return each.sum(axis=1) % np.uint64(modulus)


# Exact arithmetic


@pytest.mark.parametrize("block", [1, 7, 2**15])
def test_shares_add_up_to_the_counts(block, monkeypatch):
    monkeypatch.setattr(sp, "_MOST_WORDS", 20 * block)  # a few rows at once, or all
    rng = np.random.default_rng(block)
    for trial in range(6):
        sizes = tuple(tuple(rng.integers(1, 6, rng.integers(1, 4)).tolist()) for _ in "ij")
        rows = int(rng.integers(1, 40))
        codes = tuple(rows_of(10 * trial + k, rows, sizes[k]) for k in (0, 1))
        run = Run(trial, codes, sizes)
        first, second = run.shares
        np.testing.assert_array_equal(
            sp.added(first, second), clear(run.hot(0), run.hot(1)).astype(np.uint32)
        )
        assert np.abs(run.noise).max() <= run.coins.half


@pytest.mark.parametrize("fill", [P - 1, 0xFFFF, 0x10000, None])
def test_products_of_the_largest_words_are_exact(fill, monkeypatch):
    monkeypatch.setattr(sp, "_MOST_WORDS", 400)
    rng = np.random.default_rng(3)
    left, right = (rng.integers(0, P, (101, n)).astype(np.uint32) for n in (3, 5))
    if fill is not None:
        left[:], right[:] = fill, fill
    exact = left.astype(object).T @ right.astype(object) % P
    np.testing.assert_array_equal(sp.product(left, right), exact.astype(np.uint32))
    hot = rng.random((101, 4)) < 0.5
    exact = hot.astype(object).T @ right.astype(object) % P
    np.testing.assert_array_equal(sp.count_masked(hot, right), exact.astype(np.uint32))


def test_a_whole_block_stays_exact():
    """The bound on rows at once: sums of 2^15 products of 16-bit halves are below 2^53."""
    words = np.full((2**15 + 3, 1), P - 1, dtype=np.uint32)
    exact = len(words) * (P - 1) ** 2 % P
    assert sp.product(words, words)[0, 0] == exact
    assert sp.count_masked(np.ones((len(words), 1), bool), words)[0, 0] == len(words) * (P - 1) % P


@dataclass(frozen=True)
class Wide:
    """One table of shifted codes, and what both parties that open it receive."""

    key: int
    codes: np.ndarray
    shape: tuple = (3, 2, 4)
    root: int = 2
    modulus: int = 2**16

    def secret(self, who):
        return f"{self.key}/{who}".encode().ljust(32, b"\0")

    @cached_property
    def b(self):
        return sp.shifts(self.secret("b"), "s", len(self.codes), self.shape)

    @cached_property
    def m(self):
        return (self.codes + self.b) % np.array(self.shape)

    @cached_property
    def seeds(self):
        own = sp.root_seeds(self.secret("e0"), "c", len(self.codes), self.shape[self.root])
        return own, sp.other_seeds(self.secret("e"), "c", own, self.b[:, self.root])

    @cached_property
    def C(self):
        return sp.corrections(self.seeds, "t", self.b, self.shape, self.root, self.modulus)

    @cached_property
    def shares(self):
        facts = self.m, self.shape, self.root
        return [sp.count_shifted(*facts, seeds, "t", self.C) for seeds in self.seeds]

    @property
    def opened(self):
        return sp.taken(*self.shares, self.modulus)

    @property
    def counts(self):
        joint = np.ravel_multi_index(tuple(self.codes.T), self.shape)
        return np.bincount(joint, minlength=prod(self.shape))


@pytest.mark.parametrize(("modulus", "coins"), [(2**16, COINS), (2**32, Coins((2**14,), 4))])
@pytest.mark.parametrize("shape", [(3, 2, 4), (2, 2, 2), (5, 1, 2, 3)])
def test_shifted_codes_count_any_table(modulus, coins, shape, monkeypatch):
    assert sp.modulus_for(50, coins) == modulus
    for at_once in (1, 700, 2**19):
        monkeypatch.setattr(sp, "_MOST_BYTES", at_once)
        for root in range(len(shape)):
            codes = np.stack(rows_of(at_once, 50, shape), axis=1)
            table = Wide(root, codes, shape, root, modulus)
            np.testing.assert_array_equal(table.opened, table.counts)


# The noise


def noises(measured, **named):
    return np.concatenate([Run(key, coins=COINS, **named).noise for key in range(measured)])


def p_noise(found, coins=COINS):
    expected = masses(coins) * len(found)
    seen = np.bincount(found + coins.half, minlength=len(expected))
    low = int(np.searchsorted(np.cumsum(expected), 10.0)) + 1  # ends hold too few to compare
    merged = [np.concatenate([[x[:low].sum()], x[low:-low], [x[-low:].sum()]])
              for x in (seen, expected)]  # fmt: skip
    return chisquare(*merged).pvalue


def test_the_noise_has_the_distribution_that_is_paid_for():
    assert p_noise(noises(900)) > UNLIKELY


@pytest.mark.parametrize("fixed", ["r", "z"])
def test_either_half_of_the_coins_makes_the_noise_fair(fixed, monkeypatch):
    """A dealer knows r, both parties z: what one knows is fixed here at its worst."""
    real, drawn = sp.coin_bits, {}

    def bits(secret, context, cells, coins):
        known = (b"/e\0" in secret) if fixed == "r" else (b"/01" in secret)
        if not known:
            return real(secret, context, cells, coins)
        return drawn.setdefault(cells, real(b"same".ljust(32), context, cells, coins))

    monkeypatch.setattr(sp, "coin_bits", bits)
    found = noises(900)
    assert len(drawn) == 1
    assert p_noise(found) > UNLIKELY


def test_a_wrong_weight_is_seen(monkeypatch):
    real = sp.noise_share

    def wrong(coins, *words, first):
        heavier = Coins((1, 2, 4), 4)
        return real(heavier, *words, first=first)

    monkeypatch.setattr(sp, "noise_share", wrong)
    assert p_noise(np.clip(noises(300), -COINS.half, COINS.half)) < 1e-9


def test_noise_of_cells_is_independent():
    found = np.array([Run(key).noise[:2] for key in range(1500)])
    assert abs(np.corrcoef(found.T)[0, 1]) < 4 / np.sqrt(1500)


# Views

_ALIKE = rows_of(0, 20, (3, 2)), rows_of(1, 20, (4,))
_OTHERS = [np.zeros(20, int), np.ones(20, int)], [np.full(20, 3)]
tables = pytest.mark.parametrize("codes", [_ALIKE, _OTHERS], ids=["mixed", "all alike"])


def seen_by(who, run):
    """All words that one of them receives of the others."""
    if who == "first":
        return [run.sent[1]]
    if who == "second":
        return [run.sent[0], run.dealt["Q"], run.dealt["G"]]
    return [run.words[0]]  # the other one is the noisy table less this


@tables
@pytest.mark.parametrize("who", ["first", "second", "coordinator"])
def test_what_each_receives_is_uniform_whatever_the_rows(who, codes):
    runs = [Run(key, codes) for key in range(1200)]
    for part in range(len(seen_by(who, runs[0]))):
        words = np.array([seen_by(who, run)[part].reshape(-1)[[0, -1]] for run in runs])
        assert p_uniform(words[:, 0]) > UNLIKELY
        assert p_uniform(words[:, 1]) > UNLIKELY
    assert p_uniform(mixed([seen_by(who, run) for run in runs], P)) > UNLIKELY


@tables
@pytest.mark.parametrize("modulus", [2**16, 2**32])
def test_what_the_openers_of_a_wide_table_receive_is_uniform(codes, modulus):
    """m and C of both, and the second one's seeds, whose last bits say nothing of where b is."""
    three = np.stack((codes[0][0], codes[0][1], codes[1][0]), axis=1)[:2]
    runs = [Wide(key, three, modulus=modulus) for key in range(1500)]
    for column, size in enumerate(runs[0].shape):
        seen = np.bincount([run.m[0, column] for run in runs], minlength=size)
        assert chisquare(seen).pvalue > UNLIKELY
    assert p_uniform([run.C for run in runs], modulus) > UNLIKELY
    seeds = np.array([run.seeds[1] for run in runs])
    assert p_uniform(seeds, 2**64) > UNLIKELY
    bits = seeds[:, 0, :, 0] & np.uint64(1)  # of the first row, together and with m
    where = bits @ (1 << np.arange(4, dtype=np.uint64)) + 16 * np.array(
        [run.m[0, 2] for run in runs], np.uint64
    )
    assert chisquare(np.bincount(where.astype(int), minlength=64)).pvalue > UNLIKELY
    for who in (0, 1):  # C together with words that one of them has: no sum shows a code
        words = [(sp._words_of(run.seeds[who][0], "t", np.array([3, 2]), modulus), run.C)
                 for run in runs]  # fmt: skip
        assert p_uniform(mixed(words, modulus), modulus) > UNLIKELY


def shown(table, seeds):
    """Whose words add up to one in the first row, by the code of the root, with these seeds."""
    words = sp._words_of(seeds[0], "t", np.array([3, 2]), table.modulus)
    return words + table.C[0] * (seeds[0, :, :1] & np.uint64(1)).astype(words.dtype)


def test_both_openers_together_read_all_codes_of_a_wide_table():
    """Which the guarantee leaves out where there are more parties than two."""
    table = Wide(3, np.stack(rows_of(0, 20, (3, 2, 4)), axis=1))
    gap = (shown(table, table.seeds[0]) - shown(table, table.seeds[1])).reshape(4, 3, 2)
    at = np.argwhere(gap)
    np.testing.assert_array_equal((table.m[0] - at[0, [1, 2, 0]]) % table.shape, table.codes[0])
    assert len(at) == 1


@pytest.mark.parametrize("who", [0, 1])
def test_a_seed_that_is_not_changed_at_the_shift_would_show_it(who, monkeypatch):
    """With both seeds known there, C less their words is the one-hot code; with one, it is not."""
    table = Wide(4, np.stack(rows_of(0, 20, (3, 2, 4)), axis=1))
    own = table.seeds[who][0]

    def fits(other):
        found = set()
        for code, sign in product(range(4), (1, -1)):
            words = [sp._words_of(s[None], "t", np.array([3, 2]), 2**16)[0].astype(np.int64)
                     for s in (own[code], other[code])]  # fmt: skip
            gap = (sign * table.C[0].astype(np.int64) + words[0] - words[1]) % 2**16
            if sorted(gap) in ([0] * 5 + [1], [0] * 5 + [2**16 - 1]):
                found.add(code)
        return found

    assert fits(table.seeds[1 - who][0]) == {int(table.b[0, 2])}
    assert fits(own) == set()


def test_words_that_are_not_masked_are_seen():
    """Else the tests above could not fail."""
    runs = [Run(key, pads=False) for key in range(1200)]
    assert p_uniform([run.hot(0)[0, 0] for run in runs]) < 1e-9
    assert p_uniform(mixed([[run.hot(0), run.hot(1)] for run in runs], P)) < 1e-9
    assert p_uniform(mixed([[run.sent[0], run.dealt["U"]] for run in runs], P)) > UNLIKELY
    own = [run.dealt["r"][0, 0] for run in runs]
    assert p_uniform(own) < 1e-9


def test_a_coordinator_with_a_party_reads_the_other_ones_rows():
    """The coalition that the guarantee leaves out, and why."""
    run = Run(5)
    np.testing.assert_array_equal(sp.added(run.sent[0], run.dealt["U"]), run.hot(0))  # with j
    np.testing.assert_array_equal(sp.added(run.sent[1], run.dealt["V"]), run.hot(1))  # with i
    b = sp.shifts(run.secret("e0"), "s", 20, (3, 2))
    m = (np.stack(run.codes[0], axis=1) + b) % [3, 2]
    np.testing.assert_array_equal((m - b) % [3, 2], np.stack(run.codes[0], axis=1))


# Mutants


def guesses(run, words):
    """Codes of the first row that fit what the first party sent, where all else is known."""
    hot, known = run.hot(0).copy(), run.dealt
    found = set()
    for code in range(3):
        hot[0, :3] = np.eye(3)[code]
        share = sp.added(sp.count_masked(hot, run.sent[1]), known["R"]).reshape(-1)
        for coins in product((0, 1), repeat=run.coins.number):
            z = np.array([coins], dtype=bool)
            noise = sp.noise_share(run.coins, z, known["S"][:1], P, first=True)
            if sp.added(share[:1], noise)[0] == words[0]:
                found.add(code)
    return found


def test_without_a_pad_a_dealer_reads_rows():
    """The first cell shows whether the first row's code is 0, to one who knows all other rows."""
    seen = set()
    for seed in range(8):
        codes = rows_of(seed, 20, (3, 2)), rows_of(99, 20, (4,))
        run = Run(seed, codes, coins=FEW, pads=False)
        true = int(codes[0][0][0])
        assert guesses(run, run.words[0]) == ({0} if true == 0 else {1, 2})
        assert not guesses(run, Run(seed, codes, coins=FEW).words[0])
        seen.add(true)
    assert len(seen) > 1


def test_a_pad_for_two_measurements_shows_their_noise():
    """The difference of two words of a cell is that of two shares of noise: with few coins, one."""
    for pad, fits in (("same", 1), ("", 0)):
        one, two = (Run(9, coins=FEW, pad_of=pad, measurement=name) for name in ("look", "second"))
        gap = sp.taken(one.words[0], two.words[0])[0]
        every = list(product((0, 1), repeat=FEW.number))
        shares = [
            [sp.noise_share(FEW, np.array([z], bool), run.dealt["S"][:1], P, first=True)[0]
             for z in every] for run in (one, two)
        ]  # fmt: skip
        known = [(a, b) for a, b in product(*map(range, map(len, shares)))
                 if sp.taken(shares[0][a], shares[1][b]) == gap]  # fmt: skip
        assert len(known) == fits
        if known:
            assert every[known[0][0]] == tuple(one.z[0].astype(int))


def read_noise(z_of):
    """A coordinator's guess of the exact table, from its own r and many measurements of it."""
    runs = [Run(11, z_of=z_of, measurement=f"m{k}") for k in range(60)]
    weights = np.repeat(COINS.weights, COINS.copies)
    lines = np.array([weights * (1 - 2 * run.dealt["r"][0].astype(int)) for run in runs])
    known = np.array([run.opened[0] - (weights * run.dealt["r"][0]).sum() for run in runs])
    unknown = np.hstack([lines, np.ones((len(runs), 1))])  # z of every coin, and the count
    solved, *_ = np.linalg.lstsq(unknown, known + COINS.half, rcond=None)
    return solved[-1], clear(runs[0].hot(0), runs[0].hot(1))[0, 0]


def test_coins_of_two_measurements_are_never_the_same():
    guess, exact = read_noise("one")
    assert guess == pytest.approx(exact, abs=1e-6)
    guess, exact = read_noise("")
    assert abs(guess - exact) > 1e-3


def test_the_second_party_must_not_have_the_first_ones_words():
    """With S it has r, and so all of the noise; G alone is uniform, as tested above."""
    run = Run(13)
    r = sp.added(run.dealt["G"], run.dealt["S"])
    weights = np.repeat(COINS.weights, COINS.copies)
    noise = (run.z ^ r.astype(bool)) @ weights - COINS.half
    np.testing.assert_array_equal(run.opened - noise, clear(run.hot(0), run.hot(1)).reshape(-1))


# Rows are codes


def proven(seed, own, sizes, change=None, m_change=None):
    """Whether rows pass that a party changed after it was dealt its words."""
    U = sp.masks(b"u" * 32, "rows", len(own[0]), sum(sizes))
    b = sp.shifts(b"u" * 32, "s", len(own[0]), sizes)
    k = sp.proof_words(seed, U, b, sizes)
    m = (np.stack(own, axis=1) + b) % np.array(sizes)
    if m_change is not None:
        m[m_change] = (m[m_change] + 1) % sizes[m_change[1]]
    masked = sp.taken(sp.one_hot(own, sizes), U)
    for place, by in change or ():
        masked[place] = sp.added(masked[place], by)
    return sp.are_codes(seed, masked, m, sizes, sp.proof_sum(k, m, sizes))


def test_rows_of_codes_are_proven():
    for seed in range(30):
        assert proven(bytes([seed]) * 32, rows_of(seed, 15, (3, 2)), (3, 2))
        assert proven(bytes([seed]) * 32, rows_of(seed, 1, (1, 4)), (1, 4))


@pytest.mark.parametrize(
    "change",
    [
        [((0, 0), 1)],
        [((2, 1), 10**6)],
        [((4, 0), 7), ((4, 1), P - 7)],  # adds up to 1, and counts a person 8 times or -7
        [((1, 0), 1), ((2, 0), P - 1)],
        [((3, 0), 5), ((3, 4), P - 5)],
    ],
)
def test_other_rows_are_found(change):
    assert not any(
        proven(bytes([s]) * 32, rows_of(s, 15, (3, 2)), (3, 2), change) for s in range(99)
    )


def test_shifted_codes_of_another_row_are_found():
    found = [
        proven(bytes([s]) * 32, rows_of(s, 15, (3, 2)), (3, 2), None, (2, 0)) for s in range(99)
    ]
    assert not any(found)


def test_what_a_proof_is_made_of_says_nothing():
    words = []
    for key in range(1200):
        secret = f"{key}".encode().ljust(32)
        U, b = sp.masks(secret, "rows", 3, 3), sp.shifts(secret, "s", 3, (3,))
        words.append(sp.proof_words(secret, U, b, (3,))[0])
    assert p_uniform(np.array(words)) > UNLIKELY
