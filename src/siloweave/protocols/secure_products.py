"""Products of two parties' rows that nobody sees, opened once, with noise that nobody knows.

Party i holds X, one-hot codes of its columns, and party j holds Y, of the same people in the same
order. Their table of counts is X^T Y. A dealer, who holds no rows, hands out random words before
(Beaver 1997, "Commodity-based cryptography"); all arithmetic is modulo the prime P = 2^32 - 5, but
for the tables of step 6. k_ei is a secret of dealer and i, k_ij one of both parties, and every
stream is ChaCha20 under a key that is derived for one use.

1. i sends M = X - U to j, and j sends W = Y - V to i, with U drawn from k_ei and V from k_ej. Each
   also sends its shifted codes m = x + b modulo the number of codes, with b drawn from that secret.
2. The dealer sends j the words Q = U^T V - R, with R drawn from k_ei.
3. i holds A = X^T W + R, and j holds B = M^T V + Q. They add up to the table:
   X^T (Y - V) + R + (X - U)^T V + U^T V - R = X^T Y.
4. A coin is b = z xor r. Both parties know z, drawn from k_ij; the dealer alone knows r, and sends
   j G = r - S, with S drawn from k_ei. As z xor r = z + (1 - 2 z) r is linear in r, for a coin of
   weight w i adds w (z + (1 - 2 z) S) - w/2, and j adds w (1 - 2 z) G: together w (b - 1/2).
5. i adds a pad drawn from k_ij to what it sends, and j subtracts it. The sum of both is the table
   plus noise, signed, as long as rows and noise are below 2^31.
6. Tables of three columns or more, or of columns of more than two parties, are opened by two of the
   holders in another way, which takes more words a cell and none a code: modulo 2^16, or 2^32 where
   that is too little. The dealer knows the shifts b of all columns, and so the cell that they make;
   it sends j D = (one-hot b) - K, of (rows, cells), with K drawn from k_ei. Cell v has the rows
   where b is m - v: i adds up K there, and j D.
7. Rows are proven to be codes. Before i shares, the dealer sends it, for every row and code c,
   k(c) = F(c) - t(c - b) + (sum of t U), with t and F drawn from a seed; and i sends, with its
   rows, the sum over rows of k(m). After that the others get the seed, and compare the sum with
   that of F(m) - (sum of t M). Where M = X - U, with X one-hot and m = x + b, they are equal.

**Guarantee**: who knows what (the streams taken for uniform):

* j receives M, m, Q, G and D. Each is a value plus numbers that j does not know (U, b, R, S, K),
  used once: all are uniform and independent of X. So are W and m for i. The sum of step 7 follows
  from these and the seed. k is uniform to i, who does not know F.
* Whoever opens the sum receives A and B, under noise and pad. It does not know k_ij, so both are
  uniform but for their sum, which is the noisy table. This holds for a dealer, too, who knows U, V,
  R, S, r, b and K: without the pad it would have X^T (Y - V) with V known.
* A dealer knows r and not z; parties know z and not r. Either alone makes b a fair coin, so towards
  each of them the noise has exactly the distribution that is paid for (privacy/coins.py).
* A party that sends other rows, M = X + E - U, is found but for a probability of 1/P: the sums then
  differ by that of t E, and i knows nothing of t when it sends its own. Whatever codes a party
  makes up, they are codes, so a row counts once; what it adds to words that are opened, it knows.

So it holds towards the coordinator, who deals and opens, as long as it follows the protocol, and
towards any coalition of parties, whatever they send. It does not hold towards the coordinator
together with i or j: U and M give X. A dealer that hands out wrong words is not found: with r = 1/2
there is no noise, a large word in D shows a row, and a wrong one in k a code, by a refusal.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from siloweave.federation.masking import Words, stream
from siloweave.privacy.coins import Coins

P = 2**32 - 5
"""Modulus of rows, products and their noise; a prime."""

Codes = npt.NDArray[np.int64]
CellWords = npt.NDArray[np.uint16] | npt.NDArray[np.uint32]

_MOST_ROWS = 2**15  # of one product in 64-bit floats, which hold whole numbers below 2^53
_MOST_WORDS = 2**23  # of its factors, to save memory
_LIMB = 16  # bits of half a word


def uniform(secret: bytes, info: str, size: int, modulus: int = P) -> Words:
    """Words of a stream, uniform below a modulus (but for 2^-32 of it where it is P).

    `info` is used for one stream only.
    """
    if modulus in (2**16, 2**32):
        return stream(secret, info.encode(), size) & np.uint32(modulus - 1)
    return (stream(secret, info.encode(), 2 * size).view("<u8") % modulus).astype(np.uint32)


def added(left: npt.ArrayLike, right: npt.ArrayLike, modulus: int = P) -> Words:
    """The sum of words modulo a modulus."""
    return ((np.asarray(left, np.uint64) + np.asarray(right, np.uint64)) % modulus).astype("<u4")


def taken(left: npt.ArrayLike, right: npt.ArrayLike, modulus: int = P) -> Words:
    """The difference of words modulo a modulus."""
    return added(left, np.uint64(modulus) - np.asarray(right, np.uint64), modulus)


def masks(secret: bytes, context: str, rows: int, width: int) -> Words:
    """A mask of (rows, width) words; `context` is used for one mask only."""
    return uniform(secret, f"rows/{context}", rows * width).reshape(rows, width)


def one_hot(
    codes: Sequence[npt.NDArray[np.integer]], sizes: Sequence[int]
) -> npt.NDArray[np.bool_]:
    """Rows with a 1 for the code in every block of columns, (rows, sum of sizes)."""
    starts = np.cumsum([0, *sizes])
    made = np.zeros((len(codes[0]), int(starts[-1])), dtype=np.bool_)
    rows = np.arange(len(codes[0]))
    for code, start in zip(codes, starts, strict=False):
        made[rows, start + code] = True
    return made


def count_masked(X: npt.NDArray[np.bool_], masked: Words) -> Words:
    """X^T W, of one-hot rows and masked ones; exact, as sums stay below 2^53."""
    total = np.zeros((X.shape[1], masked.shape[1]), dtype=np.uint32)
    for some in _blocks(len(X), sum(total.shape)):
        exact = X[some].astype(np.float64).T @ masked[some].astype(np.float64)
        total = added(total, exact)
    return total


def product(left: Words, right: Words) -> Words:
    """left^T right, of any words: exact products of 16-bit halves."""
    total = np.zeros((left.shape[1], right.shape[1]), dtype=np.uint32)
    for some in _blocks(len(left), sum(total.shape)):
        low, high = _halves(left[some])
        lower, upper = _halves(right[some])
        middle = (high.T @ lower + low.T @ upper).astype(np.uint64) % P  # below 2^48 before
        highest = (high.T @ upper).astype(np.uint64) % P
        whole = (low.T @ lower).astype(np.uint64) + (middle << _LIMB) + highest * (2**32 % P)
        total = added(total, whole)
    return total


def _blocks(rows: int, width: int) -> Iterator[slice]:
    step = max(1, min(_MOST_ROWS, _MOST_WORDS // width))
    return (slice(start, start + step) for start in range(0, rows, step))


def _halves(words: Words) -> tuple[npt.NDArray[np.float64], npt.NDArray[np.float64]]:
    return (words & 0xFFFF).astype(np.float64), (words >> _LIMB).astype(np.float64)


# Proof that rows are codes


def proof_words(seed: bytes, U: Words, b: Codes, sizes: Sequence[int]) -> Words:
    """k of every row and code, (rows, codes), which the dealer sends a party before it shares."""
    t, found = _drawn(seed, "t", U.shape), _drawn(seed, "F", U.shape)
    rows = np.arange(len(U))[:, None]
    for start, stop, column in _columns(sizes):
        shifted = (np.arange(stop - start) - b[:, [column]]) % (stop - start)
        own = t[:, start:stop]
        inner = (own.astype(np.uint64) * U[:, start:stop] % P).sum(axis=1, keepdims=True)
        found[:, start:stop] = added(taken(found[:, start:stop], own[rows, shifted]), inner % P)
    return found


def proof_sum(words: Words, m: Codes, sizes: Sequence[int]) -> int:
    """What a party sends with its rows: the sum of k, or of F, at its shifted codes."""
    starts, rows = np.cumsum([0, *sizes[:-1]]), np.arange(len(m))[:, None]
    return int(words[rows, starts + m].sum(dtype=np.uint64) % P)


def are_codes(seed: bytes, masked: Words, m: Codes, sizes: Sequence[int], proof: int) -> bool:
    """Whether masked rows are one-hot under their masks, as far as a party's proof says."""
    t = _drawn(seed, "t", masked.shape)
    seen = int((t.astype(np.uint64) * masked % P).sum(dtype=np.uint64) % P)
    return (proof_sum(_drawn(seed, "F", masked.shape), m, sizes) - seen - proof) % P == 0


def _drawn(seed: bytes, info: str, shape: tuple[int, ...]) -> Words:
    return uniform(seed, f"proof/{info}", int(np.prod(shape))).reshape(shape)


def _columns(sizes: Sequence[int]) -> Iterator[tuple[int, int, int]]:
    ends = np.cumsum([0, *sizes]).tolist()
    return zip(ends[:-1], ends[1:], range(len(sizes)), strict=True)


# Shifted codes, for tables of any columns


def shifts(secret: bytes, context: str, rows: int, sizes: Sequence[int]) -> Codes:
    """b: uniform numbers below the size of every column, but for 2^-64 of it; (rows, columns)."""
    drawn = stream(secret, f"shifts/{context}".encode(), 2 * rows * len(sizes)).view("<u8")
    found: Codes = (drawn.reshape(rows, len(sizes)) % np.array(sizes, "<u8")).astype(np.int64)
    return found


def modulus_for(rows: int, coins: Coins) -> int:
    """2^16 for a table of shifted codes, or 2^32 where rows and noise need more."""
    return 2**16 if rows + 2 * coins.half < 2**16 else 2**32


def cell_masks(secret: bytes, context: str, rows: int, cells: int, modulus: int) -> CellWords:
    """K: uniform words below 2^16 or 2^32, of so many bits each."""
    count, wide = rows * cells, modulus == 2**32
    drawn = stream(secret, f"cells/{context}".encode(), count if wide else -(-count // 2))
    words: CellWords = drawn.view("<u4" if wide else "<u2")[:count].reshape(rows, cells)
    return words


def dealt_cells(b: Codes, shape: Sequence[int], masks: CellWords) -> CellWords:
    """D: where the shifts of a row lead, under a mask."""
    made: Any = masks.dtype.type(0) - masks
    made[np.arange(len(b)), np.ravel_multi_index(tuple(b.T), tuple(shape))] += masks.dtype.type(1)
    found: CellWords = made
    return found


def count_shifted(m: Codes, shape: Sequence[int], words: CellWords) -> Words:
    """A party's share of every cell, from shifted codes and its own K or D."""
    rows, joint = np.arange(len(m)), np.ravel_multi_index(tuple(m.T), tuple(shape))
    every, sizes = np.indices(shape).reshape(len(shape), -1), np.array(shape)[:, None]
    found = np.empty(words.shape[1], dtype=np.uint32)
    for cell in range(len(found)):
        away = np.ravel_multi_index(tuple((every - every[:, [cell]]) % sizes), tuple(shape))
        found[cell] = words[rows, away[joint]].sum(dtype=np.uint32)
    return found


# Coins, of (cells, number of coins) each


def coin_bits(secret: bytes, context: str, cells: int, coins: Coins) -> npt.NDArray[np.bool_]:
    """Uniform bits: z under the parties' secret, or r under the dealer's own."""
    count = cells * coins.number
    drawn = stream(secret, f"bits/{context}".encode(), -(-count // 32)).view(np.uint8)
    return np.unpackbits(drawn, count=count).view(np.bool_).reshape(cells, coins.number)


def coin_masks(secret: bytes, context: str, cells: int, coins: Coins, modulus: int) -> Words:
    """S: words that dealer and first party share."""
    drawn = uniform(secret, f"coins/{context}", cells * coins.number, modulus)
    return drawn.reshape(cells, coins.number)


def noise_share(
    coins: Coins, z: npt.NDArray[np.bool_], words: Words, modulus: int, *, first: bool
) -> Words:
    """A party's part of the noise of every cell, from its words: S of the first, or G."""
    weights = np.repeat(np.array(coins.weights, dtype=np.int64), coins.copies)
    share = np.einsum("ck,ck->c", np.where(z, -weights, weights), words.astype(np.int64))
    whole = share + z @ weights - coins.half if first else share
    words_below: Words = (whole % modulus).astype(np.uint32)
    return words_below


def pad(secret: bytes, context: str, cells: int, modulus: int) -> Words:
    """What the first party adds to its words, and the second subtracts."""
    return uniform(secret, f"pad/{context}", cells, modulus)


def opened(parts: Iterable[Words], half: int, modulus: int) -> npt.NDArray[np.int64]:
    """The noisy table, from what both parties sent; noise is from -half to half."""
    first, second = parts
    counts: Codes = added(added(first, second, modulus), half, modulus).astype(np.int64) - half
    return counts
