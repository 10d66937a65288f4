"""Products of two parties' rows that nobody sees, opened once, with noise that nobody knows.

Party i holds X, one-hot codes of its columns, and party j holds Y, of the same people in the same
order. Their table of counts is X^T Y. A dealer, who holds no rows, hands out random words before
(Beaver 1997, "Commodity-based cryptography"); all arithmetic is modulo 2^32. k_ei is a secret of
dealer and i, k_ij one of both parties, and every stream is ChaCha20 under a key that is derived
for one use.

1. i sends M = X - U to j, and j sends W = Y - V to i, with U drawn from k_ei and V from k_ej.
2. The dealer sends j the words Q = U^T V - R, with R drawn from k_ei.
3. i holds A = X^T W + R, and j holds B = M^T V + Q. They add up to the table:
   X^T (Y - V) + R + (X - U)^T V + U^T V - R = X^T Y.
4. A coin is b = z xor r. Both parties know z, drawn from k_ij; the dealer alone knows r, and sends
   j G = r - S, with S drawn from k_ei. As z xor r = z + (1 - 2 z) r is linear in r, for a coin of
   weight w i adds w (z + (1 - 2 z) S) - w/2, and j adds w (1 - 2 z) G: together w (b - 1/2).
5. Tables of three columns or more, or of columns of more than two parties, are opened by two of the
   holders in another way, which sends more words a cell and none a code. Every holder sends the
   others m = x + b modulo the number of codes, for each row, with the shift b drawn from its secret
   with the dealer. The dealer knows all b, and so the cell that they make; it sends j
   D = (one-hot b) - K, of (rows, cells), with K drawn from k_ei. Cell v has the rows where b is
   m - v: i adds up K there, and j D. Where words have 16 bits, all they send is cut to as many.
6. i adds a pad drawn from k_ij to what it sends, and j subtracts it. The sum of both is the table
   plus noise, signed, as long as rows and noise are below 2^31.

**Guarantee**: who knows what, where everyone follows the protocol (the streams taken for uniform):

* j receives M, Q, G, m and D. Each is a value plus numbers that j does not know (U, R, S, b, K),
  used once: all are uniform and independent of X. So are W and m for i.
* Whoever opens the sum receives A and B, under noise and pad. It does not know k_ij, so both are
  uniform but for their sum, which is the noisy table. This holds for a dealer, too, who knows U, V,
  R, S, r, b and K: without the pad it would have X^T (Y - V) with V known.
* A dealer knows r and not z; parties know z and not r. Either alone makes b a fair coin, so towards
  each of them the noise has exactly the distribution that is paid for (privacy/coins.py).

So it holds towards the coordinator, who deals and opens, and towards any coalition of parties, who
learn noisy tables alone. It does not hold towards the coordinator together with i or j: U and M
give X. It is proven for those who follow the protocol. Of a party that does not, `row_sum_digest`
finds rows whose numbers do not add up to 1 in every column, but not a row of 1 + c and -c: such a
party can let one person count more than once, and so beat the noise for people whom it picks. A
dealer that hands out wrong words makes tables wrong; words r that are no bits make noise that it
knows in part.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from hashlib import sha256

import numpy as np
import numpy.typing as npt

from siloweave.federation.masking import Words, stream
from siloweave.privacy.coins import Coins

Codes = npt.NDArray[np.int64]
CellWords = npt.NDArray[np.uint16] | npt.NDArray[np.uint32]

_MOST_ROWS = 2**15  # of one product in 64-bit floats, which hold whole numbers below 2^53
_MOST_WORDS = 2**23  # of its factors, to save memory
_LIMB = 16  # bits of half a word


def masks(secret: bytes, context: str, rows: int, width: int) -> Words:
    """A mask of (rows, width) words; `context` is used for one mask only."""
    return stream(secret, f"rows/{context}".encode(), rows * width).reshape(rows, width)


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
    """X^T W modulo 2^32, of one-hot rows and masked ones; exact, as sums stay below 2^53."""
    total = np.zeros((X.shape[1], masked.shape[1]), dtype=np.uint32)
    for some in _blocks(len(X), sum(total.shape)):
        exact = X[some].astype(np.float64).T @ masked[some].astype(np.float64)
        total += exact.astype(np.int64).astype(np.uint32)
    return total


def product(left: Words, right: Words) -> Words:
    """left^T right modulo 2^32, of any words: three exact products of 16-bit halves."""
    total = np.zeros((left.shape[1], right.shape[1]), dtype=np.uint32)
    for some in _blocks(len(left), sum(total.shape)):
        low, high = _halves(left[some])
        lower, upper = _halves(right[some])
        middle = (high.T @ lower + low.T @ upper).astype(np.int64)  # below 2^48
        whole = (low.T @ lower).astype(np.int64) + (middle << _LIMB)
        total += whole.astype(np.uint32)
    return total


def _blocks(rows: int, width: int) -> Iterator[slice]:
    step = max(1, min(_MOST_ROWS, _MOST_WORDS // width))
    return (slice(start, start + step) for start in range(0, rows, step))


def _halves(words: Words) -> tuple[npt.NDArray[np.float64], npt.NDArray[np.float64]]:
    return (words & 0xFFFF).astype(np.float64), (words >> _LIMB).astype(np.float64)


def row_sum_digest(words: Words, sizes: Sequence[int], *, mask: bool) -> bytes:
    """Digest of what each row adds up to in every block: of masked rows, or of 1 minus a mask's.

    Both are equal where the rows add up to 1 in every block.
    """
    starts = np.cumsum([0, *sizes[:-1]])
    sums = np.add.reduceat(words, starts, axis=1, dtype=np.uint32)
    return sha256(np.ascontiguousarray(1 - sums if mask else sums, dtype="<u4").tobytes()).digest()


# Shifted codes, for tables of any columns


def shifts(secret: bytes, context: str, rows: int, sizes: Sequence[int]) -> Codes:
    """b: uniform numbers below the size of every column, but for 2^-64 of it; (rows, columns)."""
    drawn = stream(secret, f"shifts/{context}".encode(), 2 * rows * len(sizes)).view("<u8")
    found: Codes = (drawn.reshape(rows, len(sizes)) % np.array(sizes, "<u8")).astype(np.int64)
    return found


def word_bits(rows: int, coins: Coins) -> int:
    """Bits of the words in which a table of shifted codes is added up: 16 where that is enough."""
    return 16 if rows + 2 * coins.half < 2**16 else 32


def cell_masks(secret: bytes, context: str, rows: int, cells: int, bits: int) -> CellWords:
    """K: uniform words of 16 or 32 bits."""
    count = rows * cells
    drawn = stream(secret, f"cells/{context}".encode(), -(-count * bits // 32))
    return drawn.view(f"<u{bits // 8}")[:count].reshape(rows, cells)


def dealt_cells(b: Codes, shape: Sequence[int], masks: CellWords) -> CellWords:
    """D: where the shifts of a row lead, under a mask."""
    made: CellWords = masks.dtype.type(0) - masks
    made[np.arange(len(b)), np.ravel_multi_index(tuple(b.T), tuple(shape))] += masks.dtype.type(1)
    return made


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


def coin_masks(secret: bytes, context: str, cells: int, coins: Coins) -> Words:
    """S: words that dealer and first party share."""
    drawn = stream(secret, f"coins/{context}".encode(), cells * coins.number)
    return drawn.reshape(cells, coins.number)


def dealt_coins(bits: npt.NDArray[np.bool_], masks: Words) -> Words:
    """G = r - S, which the dealer sends the second party."""
    return bits.astype(np.uint32) - masks


def noise_share(coins: Coins, z: npt.NDArray[np.bool_], words: Words, *, first: bool) -> Words:
    """A party's part of the noise of every cell, from its words: S of the first, or G."""
    weights = np.repeat(np.array(coins.weights, dtype=np.uint32), coins.copies)
    signed = np.where(z, np.uint32(0) - weights, weights)
    share: Words = np.einsum("ck,ck->c", signed, words)
    return share + z @ weights - np.uint32(coins.half) if first else share


def pad(secret: bytes, context: str, cells: int) -> Words:
    """What the first party adds to its words, and the second subtracts."""
    return stream(secret, f"pad/{context}".encode(), cells)


def opened(parts: Iterable[Words], half: int, bits: int) -> npt.NDArray[np.int64]:
    """The noisy table, from what both parties sent; noise is from -half to half."""
    first, second = parts
    words = (first + second + np.uint32(half)).astype(np.int64)
    counts: Codes = (words & (2**bits - 1)) - half
    return counts
