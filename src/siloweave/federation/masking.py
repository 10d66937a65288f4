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
from cryptography.hazmat.primitives.asymmetric.x25519 import (
    X25519PrivateKey,
    X25519PublicKey,
)
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
    """Draw an X25519 secret of 32 bytes, from the operating system's entropy or a party's own."""
    source = entropy or OSEntropy()
    return source.bytes(KEY)


def public_key(secret: bytes) -> bytes:
    """Compute the public key of a secret."""
    private_key = X25519PrivateKey.from_private_bytes(secret)
    return private_key.public_key().public_bytes_raw()


def agree_with(secret: bytes, peers: Mapping[str, bytes]) -> dict[str, bytes]:
    """Compute the secret shared with each peer, from an own secret and the peers' public keys.

    WireError, which names the peer, if a key has another length or is a point of small order.
    """
    private_key = X25519PrivateKey.from_private_bytes(secret)
    shared = {}
    for name, key in peers.items():
        try:
            # A point of small order raises: the secret would be zero, and known to everyone.
            shared[name] = private_key.exchange(X25519PublicKey.from_public_bytes(key))
        except ValueError as error:
            raise WireError(
                f"party {name!r}: its public key {key[:KEY].hex() or 'of no bytes'} is not usable; "
                "ask it for a new one"
            ) from error
    return shared


def stream(secret: bytes, info: bytes, size: int) -> Words:
    """Derive pseudorandom uint32 words from a secret; `info` is for one stream only."""
    key = HKDF(SHA256(), length=32, salt=None, info=info).derive(secret)
    # The nonce may be zero, as `info` gives every stream a key of its own.
    cipher = Cipher(algorithms.ChaCha20(key, bytes(16)), mode=None).encryptor()
    words: Words = np.empty(size, dtype="<u4")
    data = words.view(np.uint8).data
    # What encrypts zeros is the key stream. Written in place, piece by piece: a model's masks
    # would else take several times their own memory.
    for start in range(0, len(data), len(_ZEROS)):
        part = data[start : start + len(_ZEROS)]
        cipher.update_into(_ZEROS[: len(part)], part)
    return words


def expanded(seeds: Seeds, info: bytes, size: int) -> npt.NDArray[np.uint8]:
    """Expand 128-bit seeds, (seeds, 2) numbers, to pseudorandom bytes, (seeds, size).

    AES(x) + x for x = seed + 0, 1, ... (all bitwise), under a public key that `info` gives: what
    Matyas, Meyer & Oseas made of a block cipher. Where AES is an ideal cipher, and at least 127
    bits of each seed are uniform, it is uniform to who has no seed, and the same seeds may be used
    under other `info` (Guo, Katz, Wang & Yu 2020, "Efficient and secure multiparty computation from
    fixed-key block ciphers").
    """
    key = HKDF(SHA256(), length=16, salt=None, info=b"siloweave seeds\0" + info).derive(
        b""
    )

    # Each block of 16 bytes is x: the seed with the block's number, from 0, in its first half.
    blocks_each = -(-size // 16)
    blocks = np.empty((len(seeds), blocks_each, 2), dtype="<u8")
    blocks[:] = seeds[:, None]
    blocks[:, 1:, 0] ^= np.arange(1, blocks_each, dtype=np.uint64)

    # AES(x) + x. Without the sum, whoever knows the public key could decrypt a block to its seed.
    cipher = Cipher(algorithms.AES(key), modes.ECB()).encryptor()  # noqa: S305 - one block each
    encrypted = cipher.update(blocks.data.cast("B"))
    blocks ^= np.frombuffer(encrypted, "<u8").reshape(blocks.shape)
    return blocks.view(np.uint8).reshape(len(seeds), -1)[:, :size]


def mask(name: str, shared: Mapping[str, bytes], context: bytes, size: int) -> Words:
    """Return the uint32 words that mask a party's counts; those of a whole cohort sum to 0.

    Sums are modulo 2^32.

    `shared` holds the secret with every other party. The context is of run and step: a stream is
    never used for two messages.
    """
    total = np.zeros(size, dtype=np.uint32)
    for peer, secret in shared.items():
        # Both ends of a pair derive one stream; the first by name adds it, the other subtracts it
        # (Bonawitz et al. 2017, section 4.0.1).
        low, high = sorted((name, peer))
        info = b"siloweave mask\0" + b"\0".join((context, low.encode(), high.encode()))
        words = stream(secret, info, size)
        total = total + words if name == low else total - words
    return total


def sealed(data: bytes, secret: bytes, info: bytes) -> bytes:
    """Encrypt data under a secret (ChaCha20-Poly1305); `info` is for one message only."""
    # A nonce of zeros is used once per key, as `info` gives every message a key of its own.
    return _cipher(secret, info).encrypt(bytes(12), data, info)


def unsealed(data: bytes, secret: bytes, info: bytes) -> bytes:
    """Decrypt data that `sealed` encrypted; WireError if it is another's, or was changed."""
    try:
        return _cipher(secret, info).decrypt(bytes(12), data, info)
    except InvalidTag as error:
        raise WireError(
            "a sealed message was changed, or is meant for someone else"
        ) from error


def _cipher(secret: bytes, info: bytes) -> ChaCha20Poly1305:
    """Return the cipher of one message, under a key that is derived for it alone."""
    key = HKDF(SHA256(), length=32, salt=None, info=b"siloweave seal\0" + info).derive(
        secret
    )
    return ChaCha20Poly1305(key)


def room(parties: int, sigma: float) -> int:
    """Return the largest count that a masked sum over `parties` can hold beside its noise.

    WireError if noise would fill more than half of what a party may add.
    """
    # A sum is read as a signed number of 32 bits: beyond 2^31 it would turn into one below 0.
    bound = 2**31 // max(1, parties)
    # One less, as 2^31 itself is no such number. A width that is not below the bound may be
    # infinite, of which there is no ceiling.
    most = bound - ceil(_TAIL * sigma) - 1 if sigma < bound else 0
    if most < bound // 2:
        raise WireError(
            f"noise of width {sigma:g} is too wide for a masked sum over {parties} parties, where "
            f"each adds at most {bound:,}; spend more budget, or take fewer parties"
        )
    return most


def cut(values: npt.NDArray[np.int64], most: int) -> npt.NDArray[np.int64]:
    """Clip counts to plus and minus `most`; the party's own log notes that any were cut.

    **Guarantee**: brings no two vectors further apart.
    """
    inside = np.clip(values, -most, most)
    if not np.array_equal(inside, values):
        # Without the count or its place: they are of rows.
        _log.warning(
            "a count is beyond the %s that a masked sum holds, and was cut", f"{most:,}"
        )
    return inside


def masked(values: npt.NDArray[np.int64], words: Words) -> Words:
    """Add a mask to noisy counts, modulo 2^32; a true sum within 32 bits stays readable."""
    return values.astype(np.uint32) + words


def unmask_sum(parts: Iterable[Words]) -> npt.NDArray[np.int64]:
    """Add up the masked words of a whole cohort, and return the sum of its counts."""
    total: Words | None = None
    for part in parts:
        if total is None:
            # A part is a view of its message's bytes, which are read-only.
            total = part.copy()
            continue
        # numpy would add a part of one word to every word, and the masks would not cancel.
        if part.shape != total.shape:
            raise WireError(
                f"masked sums of shapes {total.shape} and {part.shape} cannot be added"
            )
        total = total + part
    if total is None:
        raise WireError("no party answered; a sum over nobody is not a release")
    # First as signed numbers of 32 bits: masks cancel modulo 2^32, and noise may be below 0.
    return total.astype(np.int32).astype(np.int64)
