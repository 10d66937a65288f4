"""A party's signing key: who wrote a ledger, and who vouches for a mask key.

Ed25519 (Bernstein, Duif, Lange, Schwabe & Yang 2012) from the ``cryptography`` package. Every
signature covers a purpose as well as a message, so that a signature for one purpose is never valid
for another.

**Guarantee**: without the private key nobody can make a signature that :func:`verify` accepts under
the public key (EUF-CMA of Ed25519). Whoever can read the key file can sign as the party. A
signature says nothing about the time when it was made, nor about what else was signed.
"""

import os
import stat
from base64 import b64encode
from contextlib import suppress
from hashlib import sha256
from pathlib import Path
from typing import Self

from cryptography.exceptions import InvalidSignature
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey, Ed25519PublicKey
from cryptography.hazmat.primitives.serialization import (
    Encoding,
    NoEncryption,
    PrivateFormat,
    load_pem_private_key,
)

from siloweave.errors import InputError
from siloweave.privacy.journal import for_its_owner, sync_folder

KEY_FILE = "party.key"
"""What the file with a party's private key is called."""


class Identity:
    """A party's private key, which never leaves the party.

    Args:
        key: The private key; see `create` and `load_or_create`.

    Example:
        >>> clinic = Identity.create()
        >>> signature = clinic.sign(b"siloweave ledger line", b"...")
        >>> verify(clinic.public, b"siloweave ledger line", b"...", signature)
        True
        >>> verify(clinic.public, b"siloweave mask key", b"...", signature)
        False
    """

    def __init__(self, key: Ed25519PrivateKey) -> None:
        self._key = key
        self.public = key.public_key().public_bytes_raw()
        """The public key, 32 bytes."""

    def __repr__(self) -> str:
        return f"Identity(public={spelled_key(self.public)})"

    @classmethod
    def create(cls) -> Self:
        """A fresh key from the operating system's entropy."""
        return cls(Ed25519PrivateKey.generate())

    @classmethod
    def seeded(cls, seed: bytes) -> Self:
        """A key that whoever knows the seed has, too: for tests with seeded noise alone."""
        return cls(Ed25519PrivateKey.from_private_bytes(sha256(seed).digest()))

    @classmethod
    def load(cls, path: str | os.PathLike[str]) -> Self:
        """The key in a file.

        Raises:
            InputError: The file is missing, is damaged, or can be read by other users.
        """
        place = Path(path)
        try:
            with place.open("rb") as file:
                mode, text = os.fstat(file.fileno()).st_mode, file.read()
        except OSError as error:
            raise InputError(
                f"{place}: the party's key cannot be read ({error.strerror}). Put the file back "
                "from a backup."
            ) from error
        if os.name == "posix" and stat.S_IMODE(mode) & 0o077:
            raise InputError(
                f"{place}: other users may read the party's key (mode {stat.S_IMODE(mode):04o}, "
                f"must be 0600). If nobody else has read it, run: chmod 600 {place}"
            )
        try:
            key = load_pem_private_key(text, password=None)
        except (ValueError, TypeError) as error:
            raise InputError(
                f"{place}: holds no private key in PEM. Put the file back from a backup."
            ) from error
        if not isinstance(key, Ed25519PrivateKey):
            raise InputError(
                f"{place}: holds a {type(key).__name__}; a party's key must be Ed25519. Put the "
                "file back from a backup."
            )
        return cls(key)

    @classmethod
    def load_or_create(cls, path: str | os.PathLike[str]) -> Self:
        """The key in a file, which is made with mode 0600 if it is not there.

        Where two processes make the file at the same time, both get the key that is in it.
        InputError as of `load`, or if it cannot be written.
        """
        place = Path(path)
        if not place.exists():
            cls.create()._store(place)
        return cls.load(place)

    def _store(self, path: Path) -> None:
        """Write the key beside its place, then link it there, unless a key is there by then."""
        text = self._key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption())
        temporary = path.with_name(f".{path.name}.{os.getpid()}.{os.urandom(4).hex()}.new")
        try:
            path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
            with open(temporary, "xb", opener=for_its_owner) as file:
                file.write(text)
                file.flush()
                os.fsync(file.fileno())
            with suppress(FileExistsError):  # another process was first, and its key is the one
                os.link(temporary, path)
            sync_folder(path.parent)
        except OSError as error:
            raise InputError(
                f"{path}: the party's key cannot be written ({error.strerror}). Make the folder "
                "writable, or use another."
            ) from error
        finally:
            with suppress(OSError):
                temporary.unlink()

    def sign(self, purpose: bytes, message: bytes) -> bytes:
        """Sign a message for one purpose, such as ``b"siloweave mask key"``, of 1 to 255 bytes.

        The 64 bytes are always the same for the same arguments; InputError for another purpose.
        """
        return self._key.sign(_bound(purpose, message))


def verify(public: bytes, purpose: bytes, message: bytes, signature: bytes) -> bool:
    """Whether a signature of 64 bytes, for this purpose, was made with the private key of `public`.

    False also where the key or the signature is malformed; InputError for a purpose that `sign`
    refuses.
    """
    signed = _bound(purpose, message)
    try:
        Ed25519PublicKey.from_public_bytes(public).verify(signature, signed)
    except (InvalidSignature, ValueError):
        return False
    return True


def spelled_key(public: bytes) -> str:
    """A public key as people compare it, and as JSON holds it: base64."""
    return b64encode(public).decode()


def _bound(purpose: bytes, message: bytes) -> bytes:
    """Purpose and message as one text, from which both can be read in one way only."""
    if not 1 <= len(purpose) <= 255:
        raise InputError(
            f"purpose = {purpose!r} has {len(purpose)} bytes; a signature's purpose has 1 to 255."
        )
    return len(purpose).to_bytes(1, "big") + purpose + message
