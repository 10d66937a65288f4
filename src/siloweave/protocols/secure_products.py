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

# Of one product in 64-bit floats, which hold whole numbers below 2^53.
_MOST_ROWS = 2**15
_MOST_WORDS = 2**23  # of its factors, to save memory
_MOST_COINS = 2**18  # whose words are widened at once
_LIMB = 16  # bits of half a word
_MOST_BYTES = 2**19  # of words at once, for tables of shifted codes


def uniform(secret: bytes, info: str, size: int, modulus: int = P) -> Words:
    """Return words that are uniform below a modulus, from a stream.

    If it is the prime P, that holds but for a share of 2^-32 of them.

    `info` is used for one stream only.
    """
    if modulus in (2**16, 2**32):
        return stream(secret, info.encode(), size) & np.uint32(modulus - 1)
    numbers = stream(secret, info.encode(), 2 * size).view("<u8")
    return _below(numbers, modulus)


def added(left: npt.ArrayLike, right: npt.ArrayLike, modulus: int = P) -> Words:
    """Return the sum of words modulo a modulus."""
    return _below(np.add(left, right, dtype=np.uint64, casting="unsafe"), modulus)


def _below(numbers: npt.NDArray[np.uint64], modulus: int) -> Words:
    """Reduce numbers modulo a modulus, as words, without a copy that is twice as large."""
    words = np.empty(numbers.shape, "<u4")
    return np.remainder(numbers, np.uint64(modulus), out=words, casting="unsafe")


def taken(left: npt.ArrayLike, right: npt.ArrayLike, modulus: int = P) -> Words:
    """Return the difference of words modulo a modulus."""
    negative = np.subtract(np.uint64(modulus), right, dtype=np.uint64, casting="unsafe")
    return added(left, negative, modulus)


def masks(secret: bytes, context: str, rows: int, width: int) -> Words:
    """Return a mask of (rows, width) words; a `context` is for one mask only."""
    return uniform(secret, f"rows/{context}", rows * width).reshape(rows, width)


def one_hot(
    codes: Sequence[npt.NDArray[np.integer]], sizes: Sequence[int]
) -> npt.NDArray[np.bool_]:
    """Encode rows one-hot: a 1 for each code in its column's block, (rows, sum of sizes)."""
    starts = np.cumsum([0, *sizes])
    X = np.zeros((len(codes[0]), int(starts[-1])), dtype=np.bool_)
    rows = np.arange(len(codes[0]))
    for column, start in zip(codes, starts, strict=False):
        X[rows, start + column] = True
    return X


def count_masked(X: npt.NDArray[np.bool_], masked: Words) -> Words:
    """Compute X^T W of one-hot rows X and masked rows W, exactly, as sums stay below 2^53."""
    total = np.zeros((X.shape[1], masked.shape[1]), dtype=np.uint32)
    for block in _blocks(len(X), sum(total.shape)):
        exact = X[block].astype(np.float64).T @ masked[block].astype(np.float64)
        total = added(total, exact)
    return total


def product(left: Words, right: Words) -> Words:
    """Compute left^T right of any words, by exact products of 16-bit halves."""
    total = np.zeros((left.shape[1], right.shape[1]), dtype=np.uint32)
    for block in _blocks(len(left), sum(total.shape)):
        # (high 2^16 + low)^T (upper 2^16 + lower): each product of halves is exact in a float.
        low, high = _halves(left[block])
        lower, upper = _halves(right[block])
        # Below 2^48 before.
        middle = (high.T @ lower + low.T @ upper).astype(np.uint64) % P
        highest = (high.T @ upper).astype(np.uint64) % P
        whole = (
            (low.T @ lower).astype(np.uint64)
            + (middle << _LIMB)
            + highest * (2**32 % P)
        )
        total = added(total, whole)
    return total


def _blocks(rows: int, width: int) -> Iterator[slice]:
    step = max(1, min(_MOST_ROWS, _MOST_WORDS // width))
    return (slice(start, start + step) for start in range(0, rows, step))


def _halves(words: Words) -> tuple[npt.NDArray[np.float64], npt.NDArray[np.float64]]:
    low = words & 0xFFFF
    high = words >> _LIMB
    return low.astype(np.float64), high.astype(np.float64)


# Proof that rows are codes


def proof_words(
    seed: bytes, U: Words, b: Codes, sizes: Sequence[int], some: slice = slice(None)
) -> Words:
    """Return k for some rows and every code, (rows, codes), which the dealer sends beforehand.

    Args:
        seed: Of t and F.
        U: Masks of all rows of one message, (rows, codes).
        b: Shifts of their codes, (rows, columns).
        sizes: Codes of every column.
        some: Which of the rows.
    """
    t = _proof_stream(seed, "t", U.shape)[some]
    k = _proof_stream(seed, "F", U.shape)[some]
    U = U[some]
    b = b[some]

    # Step 7: k(c) = F(c) - t(c - b) + (sum of t U), column by column.
    rows = np.arange(len(U))[:, None]
    for start, stop, column in _columns(sizes):
        size = stop - start
        shifted = (np.arange(size) - b[:, [column]]) % size
        column_t = t[:, start:stop]
        terms = column_t.astype(np.uint64) * U[:, start:stop] % P
        inner = terms.sum(axis=1, keepdims=True) % P
        k[:, start:stop] = added(
            taken(k[:, start:stop], column_t[rows, shifted]), inner
        )
    return k


def proof_sum(words: Words, m: Codes, sizes: Sequence[int]) -> int:
    """Return the proof that a party sends with its rows: the sum of k, or F, at shifted codes."""
    starts = np.cumsum([0, *sizes[:-1]])
    rows = np.arange(len(m))[:, None]
    return int(words[rows, starts + m].sum(dtype=np.uint64) % P)


def are_codes(
    seed: bytes, masked: Words, m: Codes, sizes: Sequence[int], proof: int
) -> bool:
    """Return whether masked rows are one-hot under their masks, as far as the proof shows."""
    # Step 7: the sum of k(m) is that of F(m) - (sum of t M).
    t = _proof_stream(seed, "t", masked.shape)
    masked_sum = int((t.astype(np.uint64) * masked % P).sum(dtype=np.uint64) % P)
    F = _proof_stream(seed, "F", masked.shape)
    return (proof_sum(F, m, sizes) - masked_sum - proof) % P == 0


def _proof_stream(seed: bytes, info: str, shape: tuple[int, ...]) -> Words:
    return uniform(seed, f"proof/{info}", int(np.prod(shape))).reshape(shape)


def _columns(sizes: Sequence[int]) -> Iterator[tuple[int, int, int]]:
    """Yield the start, the end and the number of each column in a one-hot row."""
    ends = np.cumsum([0, *sizes]).tolist()
    return zip(ends[:-1], ends[1:], range(len(sizes)), strict=True)


# Shifted codes, for tables of any columns


def shifts(secret: bytes, context: str, rows: int, sizes: Sequence[int]) -> Codes:
    """Return the shifts b: random numbers below the size of every column, (rows, columns).

    They are uniform but for 2^-64 of the size.
    """
    words = stream(secret, f"shifts/{context}".encode(), 2 * rows * len(sizes))
    numbers = words.view("<u8").reshape(rows, len(sizes))
    b: Codes = (numbers % np.array(sizes, "<u8")).astype(np.int64)
    return b


def modulus_for(rows: int, coins: Coins) -> int:
    """Return the modulus of a table of shifted codes: 2^16, or 2^32 for many rows or much noise."""
    return 2**16 if rows + 2 * coins.half < 2**16 else 2**32


def root_seeds(secret: bytes, context: str, rows: int, codes: int) -> Seeds:
    """Return the first party's seeds of a column, (rows, codes, 2).

    `context` is used for one column only.
    """
    words = stream(secret, f"seeds/{context}".encode(), 4 * rows * codes)
    return words.view("<u8").reshape(rows, codes, 2)


def other_seeds(
    secret: bytes, context: str, seeds: Seeds, b: npt.NDArray[np.int64]
) -> Seeds:
    """Return the second party's seeds: those of the dealer's own secret, at the shift b.

    There they have the other last bit.
    """
    second = seeds.copy()
    at = (np.arange(len(b)), b)
    fresh = root_seeds(secret, context, len(b), 1)[:, 0].copy()

    # The last bit becomes the opposite of the first party's, all others stay.
    fresh[:, 0] ^= (fresh[:, 0] ^ seeds[at][:, 0] ^ np.uint64(1)) & np.uint64(1)
    second[at] = fresh
    return second


def corrections(
    seeds: Sequence[Seeds],
    info: str,
    b: Codes,
    shape: Sequence[int],
    root: int,
    modulus: int,
) -> CellWords:
    """Return the corrections C, (rows, cells without the root's), by which both words sum to 1.

    Args:
        seeds: Both parties', of the root.
        info: Name of the table; it is used for one table only.
        b: Shifts of its columns, (rows, columns).
        shape: Their codes.
        root: Which column is the root.
        modulus: 2^16 or 2^32.
    """
    rest = np.delete(np.array(shape), root)
    rows = np.arange(len(b))
    first_seeds, second_seeds = seeds
    first = first_seeds[rows, b[:, root]]
    second = second_seeds[rows, b[:, root]]

    # Step 6: C = ((one-hot b of the other columns) - H(s) + H(s')) (t(s) - t(s')).
    words: Any = _words_of(second, info, rest, modulus) - _words_of(
        first, info, rest, modulus
    )
    words[rows, _joint(np.delete(b, root, axis=1), rest)] += words.dtype.type(1)
    negative = words.dtype.type(0) - words
    C: CellWords = np.where(_last_bit(first) == 1, words, negative)
    return C


def count_shifted(
    m: Codes, shape: Sequence[int], root: int, seeds: Seeds, info: str, C: CellWords
) -> Words:
    """Sum the first party's words of every cell over the rows.

    Those of the second party are the same with the other sign.
    """
    size = shape[root]
    rest = np.delete(np.array(shape), root)
    kind = C.dtype
    cells = C.shape[1]
    joint = _joint(np.delete(m, root, axis=1), rest)
    # So that rows of the same codes are added up at once.
    order = np.argsort(joint, kind="stable")
    sums = np.zeros((size, cells, cells), dtype=np.uint32)
    flat = seeds.reshape(-1, 2)

    # C with as many words a row as a cipher gives.
    width = -(-cells * kind.itemsize // SEED) * SEED // kind.itemsize
    padded = np.zeros((len(m), width), kind)
    padded[:, :cells] = C
    row_bytes = padded[0].nbytes
    step = max(1, _MOST_BYTES // (size * row_bytes))
    for rows in np.split(order, range(step, len(order), step)):
        rows_joint = joint[rows]
        starts = np.flatnonzero(np.diff(rows_joint, prepend=-1))

        # Step 6: H(s) + t(s) C of every row and root code, whose seed is at the shift m - code.
        places = (
            rows[:, None] * size + (m[rows, root][:, None] - np.arange(size)) % size
        )
        row_seeds = flat.take(places.reshape(-1), axis=0)
        words: Any = expanded(row_seeds, info.encode(), row_bytes).view(kind)
        words = words.reshape(len(rows), size, -1)
        words += padded[rows][:, None] * _last_bit(row_seeds).astype(kind).reshape(
            -1, size, 1
        )

        # Rows whose other columns have the same shifted codes are shifted alike, so add up first.
        added_up = np.add.reduceat(
            words.reshape(len(rows), -1), starts, axis=0, dtype=kind
        )
        of_codes = added_up.reshape(len(starts), size, -1)[..., :cells]
        sums[:, rows_joint[starts]] += of_codes.transpose(1, 0, 2)

    # Cell v of the other columns has the words at m - v.
    every = np.indices(rest.tolist()).reshape(len(rest), -1)
    differences = (every[:, :, None] - every[:, None]) % rest[:, None, None]
    away = _joint(differences.T, rest).T
    shifted_back = np.take_along_axis(sums, away[None], axis=2).sum(
        axis=1, dtype=np.uint32
    )
    counts: Words = np.moveaxis(shifted_back.reshape(size, *rest), 0, root).reshape(-1)
    return counts


def _joint(
    codes: npt.NDArray[np.int64], sizes: npt.NDArray[np.int64]
) -> npt.NDArray[np.int64]:
    """Return the joint cell that each row's codes are in; the last axis is that of the columns."""
    strides = np.append(np.cumprod(sizes[:0:-1])[::-1], 1)
    cells: npt.NDArray[np.int64] = codes @ strides
    return cells


def _words_of(
    seeds: Seeds, info: str, rest: npt.NDArray[np.int64], modulus: int
) -> CellWords:
    """Return the words H of each seed below a modulus, for the cells of all columns but root."""
    dtype = "<u4" if modulus == 2**32 else "<u2"
    kind = np.dtype(dtype)
    size = int(rest.prod()) * kind.itemsize
    words: CellWords = expanded(seeds, info.encode(), size).view(kind)
    return words


def _last_bit(seeds: Seeds) -> Seeds:
    return seeds[:, :1] & np.uint64(1)


# Coins, of (cells, number of coins) each


def coin_bits(
    secret: bytes, context: str, cells: int, coins: Coins
) -> npt.NDArray[np.bool_]:
    """Return uniform bits: z from the secret of both parties, or r from the dealer's own."""
    count = cells * coins.number
    words = stream(secret, f"bits/{context}".encode(), -(-count // 32)).view(np.uint8)
    return np.unpackbits(words, count=count).view(np.bool_).reshape(cells, coins.number)


def coin_masks(
    secret: bytes, context: str, cells: int, coins: Coins, modulus: int
) -> Words:
    """Return the words S that mask coins, which the dealer and the first party share."""
    words = uniform(secret, f"coins/{context}", cells * coins.number, modulus)
    return words.reshape(cells, coins.number)


def noise_share(
    coins: Coins, z: npt.NDArray[np.bool_], words: Words, modulus: int, *, first: bool
) -> Words:
    """Return a party's share of the noise of every cell, from its words (the first's S, or G)."""
    weights = np.repeat(np.array(coins.weights, dtype=np.int64), coins.copies)
    noise = np.empty(len(z), dtype=np.uint32)
    step = max(1, _MOST_COINS // len(weights))
    for start in range(0, len(z), step):
        block = slice(start, start + step)

        # Step 4: of weight w, i adds w (z + (1 - 2 z) S) - w/2, and j adds w (1 - 2 z) G.
        share = np.einsum(
            "ck,ck->c", np.where(z[block], -weights, weights), words[block]
        )
        if first:
            share = share + z[block] @ weights - coins.half
        noise[block] = share % modulus
    return noise


def pad(secret: bytes, context: str, cells: int, modulus: int) -> Words:
    """Return the words that the first party adds to its own, and the second subtracts."""
    return uniform(secret, f"pad/{context}", cells, modulus)


def opened(parts: Iterable[Words], half: int, modulus: int) -> npt.NDArray[np.int64]:
    """Combine both parties' words into the noisy table; noise is from -half to half."""
    first, second = parts

    # With half added no number is below 0, where the modulus would make it large.
    shifted = added(added(first, second, modulus), half, modulus)
    counts: Codes = shifted.astype(np.int64) - half
    return counts
