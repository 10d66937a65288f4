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
6. Tables of three columns or more are opened in another way, by the first two parties of the
   study, which are i and j here, whoever has the columns: modulo 2^16, or 2^32 where that is too
   little. All parties have all m, and the dealer knows all b. Cell v has the rows where b is m - v,
   so it is enough that i and j have shares of (one-hot b) in every row. These are two keys of a
   point function (Gilboa & Ishai 2014, "Distributed point functions and their applications", with
   two levels). One column of a table is its root. For each of its codes i has a seed s, drawn from
   k_ei, and j has a seed s' from the dealer: the same, but at the root's shift, where it is the
   dealer's own and ends in the other bit. H(s) are words for all cells of the other columns, made
   of a seed and the table's name; t(s) is a seed's last bit. At the root's shift, both are sent

     C = ((one-hot b of the other columns) - H(s) + H(s')) (t(s) - t(s')).

   i adds up H(s) + t(s) C over the rows, and j takes away H(s') + t(s') C. Where s = s', that is 0
   together; at the root's shift it is the one-hot code.
7. Rows are proven to be codes. Before i shares, the dealer sends it, for every row and code c,
   k(c) = F(c) - t(c - b) + (sum of t U), with t and F drawn from a seed; and i sends, with its
   rows, the sum over rows of k(m). After that the others get the seed, and compare the sum with
   that of F(m) - (sum of t M). Where M = X - U, with X one-hot and m = x + b, they are equal.

**Guarantee**: who knows what (the streams taken for uniform):

* j receives M, m, Q and G. Each is a value plus numbers that j does not know (U, b, R, S), used
  once: all are uniform and independent of X. So are W and m for i. The sum of step 7 follows from
  these and the seed. k is uniform to i, who does not know F.
* Seeds are uniform to j: those of i, which it does not know, or the dealer's, and the one last bit
  that is set is the opposite of a uniform one. C is a value plus or minus H(s), of an s that j does
  not have, or H(s') for i, which lacks s'. H of a uniform seed is uniform (federation/masking.py,
  `expanded`), for every table anew, so neither learns b. Both together do.
* Whoever opens the sum receives A and B, under noise and pad. It does not know k_ij, so both are
  uniform but for their sum, which is the noisy table. This holds for a dealer, too, who knows U, V,
  R, S, r, b, s and s': without the pad it would have X^T (Y - V) with V known.
* A dealer knows r and not z; parties know z and not r. Either alone makes b a fair coin, so towards
  each of them the noise has exactly the distribution that is paid for (privacy/coins.py).
* A party that sends other rows, M = X + E - U, is found but for a probability of 1/P: the sums then
  differ by that of t E, and i knows nothing of t when it sends its own. Whatever codes a party
  makes up, they are codes, so a row counts once; what it adds to words that are opened, it knows.

So it holds towards the coordinator, who deals and opens, as long as it follows the protocol, and
towards parties, whatever they send, together with any others: with two parties always, with more
unless both of the first two are among them. These learn from step 6 all rows of the others in the
tables' columns, and from steps 1 to 5 nothing. It does not hold towards the coordinator together
with i or j: U and M give X. A dealer that hands out wrong words is not found: with r = 1/2 there is
no noise, a large word in C shows a row, and a wrong one in k a code, by a refusal.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from siloweave.federation.masking import Seeds, Words, expanded, stream
from siloweave.privacy.coins import Coins

P = 2**32 - 5
"""Modulus of rows, products and their noise; a prime."""

SEED = 16
"""Bytes of a seed."""

Codes = npt.NDArray[np.int64]
CellWords = npt.NDArray[np.uint16] | npt.NDArray[np.uint32]

_MOST_ROWS = 2**15  # of one product in 64-bit floats, which hold whole numbers below 2^53
_MOST_WORDS = 2**23  # of its factors, to save memory
_MOST_COINS = 2**18  # whose words are widened at once
_LIMB = 16  # bits of half a word
_MOST_BYTES = 2**19  # of words at once, for tables of shifted codes


def uniform(secret: bytes, info: str, size: int, modulus: int = P) -> Words:
    """Words of a stream, uniform below a modulus (but for 2^-32 of it where it is P).

    `info` is used for one stream only.
    """
    if modulus in (2**16, 2**32):
        return stream(secret, info.encode(), size) & np.uint32(modulus - 1)
    drawn = stream(secret, info.encode(), 2 * size).view("<u8")
    return _below(drawn, modulus)


def added(left: npt.ArrayLike, right: npt.ArrayLike, modulus: int = P) -> Words:
    """The sum of words modulo a modulus."""
    return _below(np.add(left, right, dtype=np.uint64, casting="unsafe"), modulus)


def _below(numbers: npt.NDArray[np.uint64], modulus: int) -> Words:
    """Numbers modulo a modulus, as words; without a copy that is twice as large."""
    words = np.empty(numbers.shape, "<u4")
    return np.remainder(numbers, np.uint64(modulus), out=words, casting="unsafe")


def taken(left: npt.ArrayLike, right: npt.ArrayLike, modulus: int = P) -> Words:
    """The difference of words modulo a modulus."""
    less = np.subtract(np.uint64(modulus), right, dtype=np.uint64, casting="unsafe")
    return added(left, less, modulus)


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


def proof_words(
    seed: bytes, U: Words, b: Codes, sizes: Sequence[int], some: slice = slice(None)
) -> Words:
    """k of some rows and every code, (rows, codes), which the dealer sends before they are shared.

    Args:
        seed: Of t and F.
        U: Masks of all rows of one message, (rows, codes).
        b: Shifts of their codes, (rows, columns).
        sizes: Codes of every column.
        some: Which of the rows.
    """
    t, found = _drawn(seed, "t", U.shape)[some], _drawn(seed, "F", U.shape)[some]
    U, b = U[some], b[some]
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


def root_seeds(secret: bytes, context: str, rows: int, codes: int) -> Seeds:
    """The first party's seeds of a column, (rows, codes, 2); `context` is used for one of them."""
    drawn = stream(secret, f"seeds/{context}".encode(), 4 * rows * codes)
    return drawn.view("<u8").reshape(rows, codes, 2)


def other_seeds(secret: bytes, context: str, seeds: Seeds, b: npt.NDArray[np.int64]) -> Seeds:
    """The second party's: of the dealer's own secret at the shift b, with the other last bit."""
    made, at = seeds.copy(), (np.arange(len(b)), b)
    fresh = root_seeds(secret, context, len(b), 1)[:, 0].copy()
    fresh[:, 0] ^= (fresh[:, 0] ^ seeds[at][:, 0] ^ np.uint64(1)) & np.uint64(1)
    made[at] = fresh
    return made


def corrections(
    seeds: Sequence[Seeds], info: str, b: Codes, shape: Sequence[int], root: int, modulus: int
) -> CellWords:
    """C, (rows, cells of the columns but the root): what makes both parties' words add up to 1.

    Args:
        seeds: Both parties', of the root.
        info: Name of the table; it is used for one table only.
        b: Shifts of its columns, (rows, columns).
        shape: Their codes.
        root: Which column is the root.
        modulus: 2^16 or 2^32.
    """
    rest, rows = np.delete(np.array(shape), root), np.arange(len(b))
    own, other = (each[rows, b[:, root]] for each in seeds)
    made: Any = _words_of(other, info, rest, modulus) - _words_of(own, info, rest, modulus)
    made[rows, _joint(np.delete(b, root, axis=1), rest)] += made.dtype.type(1)
    found: CellWords = np.where(_last_bit(own) == 1, made, made.dtype.type(0) - made)
    return found


def count_shifted(
    m: Codes, shape: Sequence[int], root: int, seeds: Seeds, info: str, C: CellWords
) -> Words:
    """The sum over rows of all cells, in the first party's words, or less that of the second's."""
    size, rest, kind = shape[root], np.delete(np.array(shape), root), C.dtype
    joint, cells = _joint(np.delete(m, root, axis=1), rest), C.shape[1]
    order = np.argsort(joint, kind="stable")  # so that rows of the same codes are added up at once
    sums, flat = np.zeros((size, cells, cells), dtype=np.uint32), seeds.reshape(-1, 2)
    padded = np.zeros((len(m), -(-cells * kind.itemsize // SEED) * SEED // kind.itemsize), kind)
    padded[:, :cells] = C  # as many words as a cipher gives
    step = max(1, _MOST_BYTES // (size * padded[0].nbytes))
    for some in np.split(order, range(step, len(order), step)):
        own = joint[some]
        starts = np.flatnonzero(np.diff(own, prepend=-1))
        places = some[:, None] * size + (m[some, root][:, None] - np.arange(size)) % size
        chosen = flat.take(places.reshape(-1), axis=0)
        words: Any = expanded(chosen, info.encode(), padded[0].nbytes).view(kind)
        words = words.reshape(len(some), size, -1)
        words += padded[some][:, None] * _last_bit(chosen).astype(kind).reshape(-1, size, 1)
        added_up = np.add.reduceat(words.reshape(len(some), -1), starts, axis=0, dtype=kind)
        of_codes = added_up.reshape(len(starts), size, -1)[..., :cells]
        sums[:, own[starts]] += of_codes.transpose(1, 0, 2)
    every = np.indices(rest.tolist()).reshape(len(rest), -1)
    away = _joint(((every[:, :, None] - every[:, None]) % rest[:, None, None]).T, rest).T
    found = np.take_along_axis(sums, away[None], axis=2).sum(axis=1, dtype=np.uint32)
    counts: Words = np.moveaxis(found.reshape(size, *rest), 0, root).reshape(-1)
    return counts


def _joint(codes: npt.NDArray[np.int64], sizes: npt.NDArray[np.int64]) -> npt.NDArray[np.int64]:
    """Which of all cells some codes are, whose columns lie along the last axis."""
    found: npt.NDArray[np.int64] = codes @ np.append(np.cumprod(sizes[:0:-1])[::-1], 1)
    return found


def _words_of(seeds: Seeds, info: str, rest: npt.NDArray[np.int64], modulus: int) -> CellWords:
    """H: words below a modulus for the cells of the columns but the root, of every seed."""
    kind = np.dtype("<u4" if modulus == 2**32 else "<u2")
    words: CellWords = expanded(seeds, info.encode(), int(rest.prod()) * kind.itemsize).view(kind)
    return words


def _last_bit(seeds: Seeds) -> Seeds:
    return seeds[:, :1] & np.uint64(1)


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
    found = np.empty(len(z), dtype=np.uint32)
    step = max(1, _MOST_COINS // len(weights))
    for some in (slice(start, start + step) for start in range(0, len(z), step)):
        share = np.einsum("ck,ck->c", np.where(z[some], -weights, weights), words[some])
        whole = share + z[some] @ weights - coins.half if first else share
        found[some] = whole % modulus
    return found


def pad(secret: bytes, context: str, cells: int, modulus: int) -> Words:
    """What the first party adds to its words, and the second subtracts."""
    return uniform(secret, f"pad/{context}", cells, modulus)


def opened(parts: Iterable[Words], half: int, modulus: int) -> npt.NDArray[np.int64]:
    """The noisy table, from what both parties sent; noise is from -half to half."""
    first, second = parts
    counts: Codes = added(added(first, second, modulus), half, modulus).astype(np.int64) - half
    return counts
