"""Masks that cancel in a sum: X25519 key agreement and a ChaCha20 stream per pair of parties.

Bonawitz et al. 2017 ("Practical secure aggregation for privacy-preserving machine learning"),
section 4.0.1, without the recovery of dropouts, which comes with the network: until then a party
that does not answer stops the round.

**Guarantee**: whoever sees every party's words but not the secret of two honest parties learns
only the sum over the cohort (computationally, under X25519 and ChaCha20, 256-bit keys). The masks
say nothing about what the *sum* reveals: that is the ledger's business. Public keys must reach
the parties unaltered; the coordinator is assumed honest but curious.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

import numpy as np
import numpy.typing as npt
from cryptography.hazmat.primitives.asymmetric.x25519 import X25519PrivateKey, X25519PublicKey
from cryptography.hazmat.primitives.ciphers import Cipher, algorithms
from cryptography.hazmat.primitives.hashes import SHA256
from cryptography.hazmat.primitives.kdf.hkdf import HKDF

from siloweave.errors import InputError, WireError

__all__ = ["KEY", "agree", "agree_with", "mask", "new_secret", "public_key", "unmask_sum"]

KEY = 32
"""Bytes of a public key."""

Words = npt.NDArray[np.uint32]


def new_secret() -> bytes:
    """A fresh X25519 secret of 32 bytes from the operating system's entropy."""
    return X25519PrivateKey.generate().private_bytes_raw()


def public_key(secret: bytes) -> bytes:
    """The public key that belongs to a secret."""
    return X25519PrivateKey.from_private_bytes(secret).public_key().public_bytes_raw()


def agree(secret: bytes, peer: bytes) -> bytes:
    """The secret that two parties share, from one's secret and the other's public key.

    Raises:
        WireError: if the public key is none, or a point of small order.
    """
    return agree_with(secret, {"peer": peer})["peer"]


def agree_with(secret: bytes, peers: Mapping[str, bytes]) -> dict[str, bytes]:
    """What `agree` gives for each peer's key; reading one's own secret is half the work of one.

    Raises:
        WireError: as `agree`, naming the peer.
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


def mask(name: str, shared: Mapping[str, bytes], context: bytes, size: int) -> Words:
    """The words to add to this party's counts.

    Args:
        name: This party.
        shared: Shared secret with every other party of the cohort.
        context: Run and step; a stream is never used for two messages.
        size: Number of words.

    Returns:
        uint32 words; over the whole cohort they add up to 0 modulo 2^32.
    """
    total = np.zeros(size, dtype=np.uint32)
    for peer, secret in shared.items():
        low, high = sorted((name, peer))
        info = b"siloweave mask\0" + b"\0".join((context, low.encode(), high.encode()))
        key = HKDF(SHA256(), length=32, salt=None, info=info).derive(secret)
        stream = Cipher(algorithms.ChaCha20(key, bytes(16)), mode=None).encryptor()
        words = np.frombuffer(stream.update(bytes(4 * size)), dtype="<u4")
        total = total + words if name == low else total - words
    return total


def masked(values: npt.NDArray[np.int64], parties: int, words: Words) -> Words:
    """Counts under a mask.

    Raises:
        InputError: if a sum over `parties` such counts could leave 32 bits.
    """
    bound = 2**31 // max(1, parties)
    largest = max(int(values.max()), -int(values.min())) if values.size else 0
    if largest >= bound:
        raise InputError(
            f"a noisy count is too large: a masked sum over {parties} parties holds counts below "
            f"{bound:,} each; split the party, or spend more budget"
        )
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
