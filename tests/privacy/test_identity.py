"""A party's key: where it lies, who may read it, and what its signatures are for."""

import stat
import threading

import pytest
from cryptography.hazmat.primitives.asymmetric.x25519 import X25519PrivateKey
from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat

from siloweave.errors import InputError
from siloweave.privacy.ledger import Identity, verify

MASK, LINE = b"siloweave mask key", b"siloweave ledger line"


def test_a_signature_holds_for_its_key_purpose_and_message_alone():
    clinic, lab = Identity.create(), Identity.create()
    signature = clinic.sign(MASK, b"message")
    assert (len(clinic.public), len(signature)) == (32, 64)
    assert verify(clinic.public, MASK, b"message", signature)
    assert not verify(lab.public, MASK, b"message", signature)
    assert not verify(clinic.public, LINE, b"message", signature)
    assert not verify(clinic.public, MASK, b"messagf", signature)
    assert not verify(clinic.public, MASK, b"message", signature[:-1] + bytes([signature[-1] ^ 1]))


def test_no_part_of_a_purpose_can_be_taken_for_a_part_of_the_message():
    clinic = Identity.create()
    signature = clinic.sign(b"ab", b"cd")
    for purpose, message in ((b"a", b"bcd"), (b"abc", b"d"), (b"abcd", b"")):
        assert not verify(clinic.public, purpose, message, signature)


@pytest.mark.parametrize(("public", "signature"), [(b"", b""), (bytes(31), bytes(64)), (None, b"")])
def test_malformed_keys_and_signatures_verify_nothing(public, signature):
    clinic = Identity.create()
    assert not verify(clinic.public if public is None else public, LINE, b"m", signature)


@pytest.mark.parametrize("purpose", [b"", b"x" * 256])
def test_a_purpose_has_1_to_255_bytes(purpose):
    with pytest.raises(InputError, match="1 to 255"):
        Identity.create().sign(purpose, b"")


def test_a_key_is_made_once_for_its_owner_only_and_read_again(tmp_path):
    path = tmp_path / "new" / "party.key"
    made = Identity.load_or_create(path)
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    text = path.read_bytes()
    assert Identity.load_or_create(path).public == Identity.load(path).public == made.public
    assert path.read_bytes() == text
    assert list(path.parent.iterdir()) == [path]
    assert Identity.create().public != made.public
    assert repr(made).startswith("Identity(public=")


def test_all_who_make_a_key_at_the_same_time_get_the_same_one(tmp_path):
    found, start = [], threading.Barrier(8)

    def make():
        start.wait()
        found.append(Identity.load_or_create(tmp_path / "party.key").public)

    threads = [threading.Thread(target=make) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(found) == 8
    assert len(set(found)) == 1


def other_kind():
    key = X25519PrivateKey.generate()
    return key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption())


@pytest.mark.parametrize(
    ("text", "words"),
    [
        (b"", "holds no private key"),
        (b"-----BEGIN PRIVATE KEY-----\nMC4CAQAw", "holds no private key"),
        (other_kind(), "must be Ed25519"),
    ],
)
def test_what_is_no_key_of_a_party_is_refused_and_kept(tmp_path, text, words):
    path = tmp_path / "party.key"
    path.write_bytes(text)
    path.chmod(0o600)
    with pytest.raises(InputError, match=words):
        Identity.load_or_create(path)
    assert path.read_bytes() == text


def test_a_key_that_others_may_read_is_refused(tmp_path):
    path = tmp_path / "party.key"
    Identity.load_or_create(path)
    path.chmod(0o640)
    with pytest.raises(InputError, match=r"mode 0640, must be 0600.*chmod 600"):
        Identity.load(path)


def test_a_key_that_is_not_there_or_cannot_be_made_is_named(tmp_path):
    with pytest.raises(InputError, match=r"party\.key: the party's key cannot be read"):
        Identity.load(tmp_path / "party.key")
    (tmp_path / "file").write_bytes(b"")
    with pytest.raises(InputError, match="cannot be written"):
        Identity.load_or_create(tmp_path / "file" / "party.key")
