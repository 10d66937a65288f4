"""Masks that cancel in a sum: X25519 key agreement and a ChaCha20 stream per pair of parties.

Bonawitz et al. 2017 ("Practical secure aggregation for privacy-preserving machine learning"),
section 4.0.1. Where a study allows that parties vanish, dropouts.py adds to these masks; elsewhere
a party that does not answer stops the round.

**Guarantee**: whoever sees every party's words but not the secret of two honest parties learns
only the sum over the cohort (computationally, under X25519 and ChaCha20, 256-bit keys). The masks
say nothing about what the *sum* reveals: that is the ledger's business. Every party signs its
public key for masks, and refuses one that was not signed by a party of the study's roster. In all
else the coordinator is assumed to be honest but curious.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable, Mapping
from math import ceil

import numpy as np
import numpy.typing as npt
from cryptography.exceptions import InvalidTag
from cryptography.hazmat.primitives.asymmetric.x25519 import X25519PrivateKey, X25519PublicKey
from cryptography.hazmat.primitives.ciphers import Cipher, algorithms, modes
from cryptography.hazmat.primitives.ciphers.aead import ChaCha20Poly1305
from cryptography.hazmat.primitives.hashes import SHA256
from cryptography.hazmat.primitives.kdf.hkdf import HKDF

from siloweave.errors import WireError
from siloweave.privacy.mechanisms import Entropy, OSEntropy

_log = logging.getLogger("siloweave")

KEY = 32
"""Bytes of a public key."""

SIGNED = KEY + 64
"""Bytes of a public key and its party's signature."""

PURPOSE = b"siloweave mask key"
"""What that signature is for."""

_TAIL = 16  # widths of noise beyond which none is drawn, but for once in e^128 draws
_ZEROS = memoryview(bytes(2**16))  # what a stream encrypts, piece by piece

Words = npt.NDArray[np.uint32]
Seeds = npt.NDArray[np.uint64]


def new_secret(entropy: Entropy | None = None) -> bytes:
    """A fresh X25519 secret of 32 bytes, from the operating system's entropy or a party's own."""
    return (entropy or OSEntropy()).bytes(KEY)


def public_key(secret: bytes) -> bytes:
    """The public key that belongs to a secret."""
    return X25519PrivateKey.from_private_bytes(secret).public_key().public_bytes_raw()


def agree_with(secret: bytes, peers: Mapping[str, bytes]) -> dict[str, bytes]:
    """The secret shared with each peer, from one's own secret and the peers' public keys.

    WireError, which names the peer, if a key has another length or is a point of small order.
    """
    mine, shared = X25519PrivateKey.from_private_bytes(secret), {}
    for name, key in peers.items():
        try:
            shared[name] = mine.exchange(X25519PublicKey.from_public_bytes(key))
        except ValueError as error:
            raise WireError(
                f"party {name!r}: its public key {key[:KEY].hex() or 'of no bytes'} is not usable; "
                "ask it for a new one"
            ) from error
    return shared


def stream(secret: bytes, info: bytes, size: int) -> Words:
    """Pseudorandom uint32 words of a secret; `info` is used for one stream only."""
    key = HKDF(SHA256(), length=32, salt=None, info=info).derive(secret)
    cipher = Cipher(algorithms.ChaCha20(key, bytes(16)), mode=None).encryptor()
    words: Words = np.empty(size, dtype="<u4")
    data = words.view(np.uint8).data
    for start in range(0, len(data), len(_ZEROS)):
        part = data[start : start + len(_ZEROS)]
        cipher.update_into(_ZEROS[: len(part)], part)
    return words


def expanded(seeds: Seeds, info: bytes, size: int) -> npt.NDArray[np.uint8]:
    """Pseudorandom bytes of many seeds, (seeds, size), of 128-bit seeds as (seeds, 2) numbers.

    AES(x) + x for x = seed + 0, 1, ... (all bitwise), under a public key that `info` gives: what
    Matyas, Meyer & Oseas made of a block cipher. Where AES is an ideal cipher, and at least 127
    bits of each seed are uniform, it is uniform to who has no seed, and the same seeds may be used
    under other `info` (Guo, Katz, Wang & Yu 2020, "Efficient and secure multiparty computation from
    fixed-key block ciphers").
    """
    key = HKDF(SHA256(), length=16, salt=None, info=b"siloweave seeds\0" + info).derive(b"")
    blocks = np.empty((len(seeds), -(-size // 16), 2), dtype="<u8")
    blocks[:] = seeds[:, None]
    blocks[:, 1:, 0] ^= np.arange(1, blocks.shape[1], dtype=np.uint64)
    cipher = Cipher(algorithms.AES(key), modes.ECB()).encryptor()  # noqa: S305 - one block each
    blocks ^= np.frombuffer(cipher.update(blocks.data.cast("B")), "<u8").reshape(blocks.shape)
    return blocks.view(np.uint8).reshape(len(seeds), -1)[:, :size]


def mask(name: str, shared: Mapping[str, bytes], context: bytes, size: int) -> Words:
    """The uint32 words to add to this party's counts; the whole cohort's are 0 modulo 2^32.

    `shared` holds the secret with every other party. The context is of run and step: a stream is
    never used for two messages.
    """
    total = np.zeros(size, dtype=np.uint32)
    for peer, secret in shared.items():
        low, high = sorted((name, peer))
        info = b"siloweave mask\0" + b"\0".join((context, low.encode(), high.encode()))
        words = stream(secret, info, size)
        total = total + words if name == low else total - words
    return total


def sealed(data: bytes, secret: bytes, info: bytes) -> bytes:
    """Data encrypted under a secret (ChaCha20-Poly1305); `info` is used for one message only."""
    return _cipher(secret, info).encrypt(bytes(12), data, info)


def unsealed(data: bytes, secret: bytes, info: bytes) -> bytes:
    """What `sealed` made; WireError if it was made otherwise, or changed."""
    try:
        return _cipher(secret, info).decrypt(bytes(12), data, info)
    except InvalidTag as error:
        raise WireError("a sealed message was changed, or is meant for someone else") from error


def _cipher(secret: bytes, info: bytes) -> ChaCha20Poly1305:
    key = HKDF(SHA256(), length=32, salt=None, info=b"siloweave seal\0" + info).derive(secret)
    return ChaCha20Poly1305(key)


def room(parties: int, sigma: float) -> int:
    """The largest count that a masked sum over `parties` holds beside noise of this width.

    WireError if noise would fill more than half of what a party may add.
    """
    bound = 2**31 // max(1, parties)
    left = bound - ceil(_TAIL * sigma) - 1 if sigma < bound else 0
    if left < bound // 2:
        raise WireError(
            f"noise of width {sigma:g} is too wide for a masked sum over {parties} parties, where "
            f"each adds at most {bound:,}; spend more budget, or take fewer parties"
        )
    return left


def cut(values: npt.NDArray[np.int64], most: int) -> npt.NDArray[np.int64]:
    """Counts within plus and minus `most`; a cut is noted in the party's own log.

    **Guarantee**: brings no two vectors further apart.
    """
    inside = np.clip(values, -most, most)
    if not np.array_equal(inside, values):
        _log.warning("a count is beyond the %s that a masked sum holds, and was cut", f"{most:,}")
    return inside


def masked(values: npt.NDArray[np.int64], words: Words) -> Words:
    """Noisy counts under a mask, modulo 2^32: a sum of them is right if it is within 32 bits."""
    return values.astype(np.uint32) + words


def unmask_sum(parts: Iterable[Words]) -> npt.NDArray[np.int64]:
    """The sum of the cohort's counts, from everyone's masked words."""
    total: Words | None = None
    for part in parts:
        if total is not None and part.shape != total.shape:
            raise WireError(f"masked sums of shapes {total.shape} and {part.shape} cannot be added")
        total = part.copy() if total is None else total + part
    if total is None:
        raise WireError("no party answered; a sum over nobody is not a release")
    return total.astype(np.int32).astype(np.int64)
