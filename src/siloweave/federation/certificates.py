"""Certificates for the link between coordinator and parties: an authority of the study's own.

The coordinator makes the authority and a certificate for its server; each party gets the
authority's certificate with the study's files, and trusts no other for this link. They hide who
sends when, and keep strangers out; what a frame holds is sealed apart from it.

**Guarantee**: TLS 1.2 or later, by Python's `ssl`; keys on the curve P-384 (`cryptography`). An
engine that has the server's key sees what any carrier of frames sees, see federation/frames.py.
"""

from __future__ import annotations

import logging
import ssl
from base64 import b64decode, b64encode
from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from ipaddress import ip_address
from pathlib import Path

from cryptography import x509
from cryptography.exceptions import InvalidSignature, UnsupportedAlgorithm
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.serialization import (
    Encoding,
    NoEncryption,
    PrivateFormat,
    PublicFormat,
    load_pem_private_key,
    load_ssh_private_key,
    load_ssh_public_key,
)
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

from siloweave.errors import InputError
from siloweave.federation.proxies import Proxy, connected
from siloweave.privacy.journal import write_whole

AUTHORITY = "ca.crt"
AUTHORITY_KEY = "ca.key"
SERVER = "server.crt"
SERVER_KEY = "server.key"
FILES = (SERVER, SERVER_KEY, AUTHORITY)
NODE_KEY = "node.key"

LOCAL = ("localhost", "127.0.0.1", "::1")
"""Names by which a server is reached from its own machine; every certificate has them."""

_OPENSSH = b"BEGIN OPENSSH PRIVATE KEY"
_EARLY = timedelta(days=30)  # before the end of a certificate, from when it is said
_CONNECT_S = 10.0  # until a server must answer
_SLACK = timedelta(hours=1)  # for clocks that are late
_log = logging.getLogger("siloweave")


def node_key(path: Path) -> str:
    """Return the public key of a party's engine node as a word; a missing key is made first.

    It admits the node to the coordinator's link, and nothing else: no frame is signed by it.
    """
    return _spelled(_key(path).public_key())


def public_node_key(path: Path) -> str:
    """Read the public key of a node as a word from OpenSSH's file, which its party made itself.

    Raises:
        InputError: It is no such file, or a key of another curve.
    """
    remedy = (
        "make one with: ssh-keygen -t ecdsa -b 384 -N '' -f node, and give node.pub"
    )
    try:
        public = load_ssh_public_key(path.read_bytes())
    except (OSError, ValueError, UnsupportedAlgorithm) as error:
        raise InputError(
            f"{path}: is no public key of OpenSSH ({error}); {remedy}"
        ) from error
    if (
        not isinstance(public, ec.EllipticCurvePublicKey)
        or public.curve.name != "secp384r1"
    ):
        raise InputError(f"{path}: is no key of the curve P-384; {remedy}")
    return _spelled(public)


def _spelled(public: ec.EllipticCurvePublicKey) -> str:
    """Write a public key as a word: its point, compressed, in base 64."""
    point = public.public_bytes(Encoding.X962, PublicFormat.CompressedPoint)
    return b64encode(point).decode()


def node_key_in(word: str) -> ec.EllipticCurvePublicKey:
    """Read the public key in a word that `node_key` gave; InputError for another word."""
    try:
        point = b64decode(word, validate=True)
        return ec.EllipticCurvePublicKey.from_encoded_point(ec.SECP384R1(), point)
    except ValueError as error:
        raise InputError(
            f"{word[:40]!r} is no public key of an engine node; ask the party for it again"
        ) from error


def make_certificates(folder: Path, names: Sequence[str], *, days: int = 365) -> None:
    """Make a new certificate of a study's server, and an authority unless its own is there.

    Args:
        folder: The coordinator's; `ca.crt` in it is what parties need.
        names: DNS names and IP addresses by which parties reach the server.
        days: For which the server's certificate holds; the authority's holds ten times as long.

    Raises:
        InputError: A name is neither, or a key file cannot be read.
    """
    folder.mkdir(mode=0o700, parents=True, exist_ok=True)

    # The authority signs its own certificate. One that is there stays, as parties trust it.
    authority = _key(folder / AUTHORITY_KEY)
    path = folder / AUTHORITY
    if not path.exists() or _read(path).public_key() != authority.public_key():
        name = x509.Name(
            [x509.NameAttribute(NameOID.COMMON_NAME, "siloweave authority")]
        )
        # path_length 0: it signs servers' certificates, and no further authority.
        limits = (
            x509.BasicConstraints(ca=True, path_length=0),
            _usage(sign_certificates=True),
        )
        _issue(
            path,
            name=name,
            issuer=name,
            key=authority.public_key(),
            signer=authority,
            days=10 * days,
            critical=limits,
        )

    # The server's, with which nobody can sign another one.
    issuer = _read(path)
    key = _key(folder / SERVER_KEY)
    name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "siloweave coordinator")])
    limits = (
        x509.BasicConstraints(ca=False, path_length=None),
        _usage(sign_certificates=False),
    )
    all_names = dict.fromkeys([*names, *LOCAL])
    alternatives = x509.SubjectAlternativeName(
        [_alternative(word) for word in all_names]
    )
    identifier = x509.AuthorityKeyIdentifier.from_issuer_public_key(
        authority.public_key()
    )
    _issue(
        folder / SERVER,
        name=name,
        issuer=issuer.subject,
        key=key.public_key(),
        signer=authority,
        days=days,
        critical=limits,
        others=(
            alternatives,
            x509.ExtendedKeyUsage([ExtendedKeyUsageOID.SERVER_AUTH]),
            identifier,
        ),
    )


def _issue(
    path: Path,
    *,
    name: x509.Name,
    issuer: x509.Name,
    key: ec.EllipticCurvePublicKey,
    signer: ec.EllipticCurvePrivateKey,
    days: int,
    critical: Sequence[x509.ExtensionType],
    others: Sequence[x509.ExtensionType] = (),
) -> None:
    """Sign a certificate of a key, and write it to a file, whole or not at all.

    A reader that does not understand an extension of the `critical` ones must refuse it.
    """
    now = datetime.now(UTC)
    builder = x509.CertificateBuilder(
        issuer_name=issuer,
        subject_name=name,
        public_key=key,
        serial_number=x509.random_serial_number(),
    )
    builder = builder.not_valid_before(now - _SLACK)
    builder = builder.not_valid_after(now + timedelta(days=days))
    for extension in critical:
        builder = builder.add_extension(extension, critical=True)
    for extension in (x509.SubjectKeyIdentifier.from_public_key(key), *others):
        builder = builder.add_extension(extension, critical=False)
    certificate = builder.sign(signer, hashes.SHA384())
    write_whole(path, certificate.public_bytes(Encoding.PEM))


def _usage(*, sign_certificates: bool) -> x509.KeyUsage:
    """Return the permitted uses of a key: to sign certificates, or to sign in TLS, and no more."""
    return x509.KeyUsage(
        digital_signature=not sign_certificates,
        key_cert_sign=sign_certificates,
        crl_sign=sign_certificates,
        content_commitment=False,
        key_encipherment=False,
        data_encipherment=False,
        key_agreement=False,
        encipher_only=False,
        decipher_only=False,
    )


def _alternative(name: str) -> x509.GeneralName:
    """Return a server's name in the form of certificates; InputError for a bad name."""
    try:
        return x509.IPAddress(ip_address(name))
    except ValueError:
        pass
    try:
        return x509.DNSName(name)
    except ValueError as error:
        raise InputError(
            f"names={name!r} must be a DNS name in ASCII, or an IP address"
        ) from error


def _key(path: Path) -> ec.EllipticCurvePrivateKey:
    """Return the private key in a file that its owner alone can read; a missing one is made."""
    if not path.exists():
        path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        key = ec.generate_private_key(ec.SECP384R1())
        text = key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption())
        write_whole(path, text)
    return private_key(path)


def private_key(path: Path) -> ec.EllipticCurvePrivateKey:
    """Read a private key without a passphrase, from a file of ours or of OpenSSH's.

    Raises:
        InputError: The file has no such key.
    """
    try:
        text = path.read_bytes()
        load = load_ssh_private_key if _OPENSSH in text else load_pem_private_key
        key = load(text, None)
    except (OSError, ValueError, TypeError, UnsupportedAlgorithm) as error:
        raise InputError(f"{path}: cannot be read as a key ({error})") from error
    if not isinstance(key, ec.EllipticCurvePrivateKey):
        raise InputError(
            f"{path}: is not a key of an elliptic curve; move it away to get a new one"
        )
    return key


def _read(path: Path) -> x509.Certificate:
    """Read the first certificate in a file; InputError without one."""
    try:
        return x509.load_pem_x509_certificate(path.read_bytes())
    except (OSError, ValueError) as error:
        raise InputError(
            f"{path}: cannot be read as a certificate ({error})"
        ) from error


def check_own(folder: Path, host: str) -> None:
    """Check the server's certificate before it is used.

    Raises:
        InputError: It cannot be read, has expired, is of another authority, or lacks the host.
    """
    # All that a party would refuse is found here, before parties wait in vain.
    server = _read(folder / SERVER)
    authority = _read(folder / AUTHORITY)
    try:
        server.verify_directly_issued_by(authority)
    except (ValueError, TypeError, InvalidSignature) as error:
        raise InputError(
            f"{folder / SERVER}: was not issued by {folder / AUTHORITY}; make both anew"
        ) from error
    _check_time(str(folder / SERVER), server.not_valid_after_utc)
    _check_time(str(folder / AUTHORITY), authority.not_valid_after_utc)
    names = server.extensions.get_extension_for_class(x509.SubjectAlternativeName).value
    if _alternative(host) not in list(names):
        raise InputError(
            f"{folder / SERVER}: is not for {host!r}; parties would refuse it. Make it anew with "
            "this name"
        )


def _check_time(subject: str, end: datetime) -> None:
    """Raise InputError for a certificate that has expired, and warn of one that soon will."""
    remaining = end - datetime.now(UTC)
    if remaining <= timedelta():
        raise InputError(f"{subject}: expired on {end:%Y-%m-%d}; make a new one")
    if remaining < _EARLY:
        date = f"{end:%Y-%m-%d}"
        _log.warning("%s: expires on %s, in %d days", subject, date, remaining.days)


def trust(folder: Path, authority: Path) -> None:
    """Store an authority of others as the one that a folder's end trusts, without its key."""
    _check_time(str(authority), _read(authority).not_valid_after_utc)
    certificates = x509.load_pem_x509_certificates(authority.read_bytes())
    # Written anew, not copied: the file may hold the authority's private key as well.
    text = b"".join(
        certificate.public_bytes(Encoding.PEM) for certificate in certificates
    )
    folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    write_whole(folder / AUTHORITY, text)


def check_server(
    host: str, port: int, authority: Path, proxy: Proxy | None = None
) -> None:
    """Check that a server answers, and that the authority vouches for it.

    With a proxy, TLS is begun in a tunnel that the proxy opens.

    Raises:
        ConnectionError: Nobody answers there, yet.
        InputError: Someone else answers, or with a certificate that does not hold; or it speaks no
            TLS; or the proxy refuses.
    """
    _check_time(str(authority), _read(authority).not_valid_after_utc)
    # This authority alone, and none of the system's: one of those, or a proxy's own, could issue a
    # certificate for the coordinator's name. PROTOCOL_TLS_CLIENT verifies chain and name.
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    context.load_verify_locations(authority)
    where = f"{host}:{port}"
    try:
        with (
            connected(host, port, _CONNECT_S, proxy) as plain,
            context.wrap_socket(plain, server_hostname=host) as end,
        ):
            server = x509.load_der_x509_certificate(
                end.getpeercert(binary_form=True) or b""
            )
    except ssl.SSLCertVerificationError as error:
        opened = (
            f" (the proxy {proxy.address} may open TLS, which it must not)"
            if proxy
            else ""
        )
        raise InputError(f"{where}: {_why(error, host, authority)}{opened}") from error
    except ssl.SSLError as error:
        raise InputError(
            f"{where}: speaks no TLS ({error.reason}); see that this is the SuperLink's port, "
            "and that it was not started in plaintext"
        ) from error
    except OSError as error:
        raise ConnectionError(f"{where}: {error.strerror or error}") from error
    _check_time(f"the certificate of {where}", server.not_valid_after_utc)


# OpenSSL's numbers (x509_vfy.h), for which Python has no names.
_EXPIRED = 10  # X509_V_ERR_CERT_HAS_EXPIRED
_NOT_YET = 9  # X509_V_ERR_CERT_NOT_YET_VALID
_NAMES = (62, 64)  # X509_V_ERR_HOSTNAME_MISMATCH, X509_V_ERR_IP_ADDRESS_MISMATCH


def _why(error: ssl.SSLCertVerificationError, host: str, authority: Path) -> str:
    """Explain why a server's certificate was refused, and what to do."""
    clock = f"by this machine's clock, {datetime.now(UTC):%Y-%m-%d %H:%M} UTC"
    if error.verify_code == _EXPIRED:
        return (
            f"its certificate has expired ({clock}); ask the coordinator for a new one"
        )
    if error.verify_code == _NOT_YET:
        return f"its certificate is not valid yet ({clock}); compare that with the time"
    if error.verify_code in _NAMES:
        return (
            f"its certificate is not for {host!r}; use a name that it has, or ask the coordinator "
            "to make it anew with this one"
        )
    return (
        f"its certificate was not issued by {authority}, so another server answers, or the file "
        f"is of another study ({error.verify_message}). Ask the coordinator for its ca.crt"
    )
