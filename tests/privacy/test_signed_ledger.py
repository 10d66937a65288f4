"""Whoever rewrites a whole ledger: noticed without its key, and with another one."""

import pytest

from siloweave.errors import InputError, LedgerError
from siloweave.privacy import ledger as module
from siloweave.privacy.events import Gaussian
from siloweave.privacy.ledger import KEY_FILE, Identity, Ledger, verify
from tests.privacy.rewritten import resealed

DELTA = 1e-6


@pytest.fixture
def path(tmp_path):
    """A ledger of three entries."""
    file = tmp_path / "clinic" / "ledger.jsonl"
    with Ledger("clinic", path=file) as ledger:
        for number in range(3):
            charge(ledger, number)
    return file


def charge(ledger, number, sigma=2.0):
    event = Gaussian(sigma=sigma, sensitivity=1.0)
    return ledger.charge(event, run="r1", step=str(number), what="a marginal", to="coordinator")


@pytest.mark.parametrize("first", [1, 2, 3])
def test_lines_edited_and_resealed_to_the_end_are_noticed_without_any_witness(path, first):
    before = Ledger.read(path).epsilon(DELTA)
    assert before > 4
    resealed(path, first=first)
    for open_it in (Ledger.read, lambda p: Ledger("clinic", path=p)):
        with pytest.raises(LedgerError, match=rf"line {first + 1}: its signature is not of the"):
            open_it(path)


def test_a_signature_taken_away_or_of_another_line_is_noticed(path):
    lines = path.read_bytes().splitlines()
    header, entries = module._headers.decode(lines[0]), [*map(module._entries.decode, lines[1:])]
    replace = module.msgspec.structs.replace
    for number, line in [
        (0, replace(header, signature=b"")),
        (0, replace(header, signature=entries[0].signature)),
        (3, replace(entries[2], signature=b"")),
        (3, replace(entries[2], signature=entries[1].signature)),
    ]:
        changed = [*lines]
        changed[number] = module._encoder.encode(line)
        path.write_bytes(b"\n".join(changed) + b"\n")
        with pytest.raises(LedgerError, match=f"line {number + 1}: its signature"):
            Ledger.read(path)


def test_a_ledger_signed_with_another_key_is_noticed_by_all_who_know_the_partys(path):
    known = Ledger.read(path).key
    resealed(path, key=Identity.create())
    assert Ledger.read(path).epsilon(DELTA) < 0.01  # the file alone cannot show it
    with pytest.raises(LedgerError, match=r"line 1: is signed with the key .* and the key of"):
        Ledger.read(path, key=known)
    with pytest.raises(LedgerError, match="line 1: is signed with the key"):
        Ledger("clinic", path=path)


def test_what_the_owner_rewrites_is_noticed_by_receivers_only(path):
    entries = Ledger.read(path).entries
    resealed(path, first=3, key=Identity.load(path.with_name(KEY_FILE)))
    with Ledger("clinic", path=path) as ledger:
        ledger.verify(entry.hash for entry in entries[:2])
        with pytest.raises(LedgerError, match="is gone"):
            ledger.verify(entry.hash for entry in entries)


def test_the_key_lies_beside_the_ledger_and_not_in_it(path):
    key = Identity.load(path.with_name(KEY_FILE))
    read = Ledger.read(path)
    assert read.key == key.public
    assert read.identity is None
    secret = key._key.private_bytes_raw()
    assert secret not in path.read_bytes()
    assert secret.hex() not in path.read_text()
    assert module._encoder.encode(secret)[1:-1] not in path.read_bytes()


def test_every_line_is_signed_for_ledgers_alone(path):
    header, *entries = path.read_bytes().splitlines()
    key = Ledger.read(path).key
    for entry in map(module._entries.decode, entries):
        assert verify(key, b"siloweave ledger line", entry.hash.encode(), entry.signature)
        assert not verify(key, b"siloweave mask key", entry.hash.encode(), entry.signature)
    assert module._is_signed(module._headers.decode(header), key)


def test_a_ledger_is_not_continued_when_its_key_is_gone_or_another(path):
    before, key = path.read_bytes(), path.with_name(KEY_FILE)
    key.rename(path.with_name("elsewhere"))
    with pytest.raises(InputError, match=r"the party's key cannot be read.*from a backup"):
        Ledger("clinic", path=path)
    assert not key.exists()
    with pytest.raises(LedgerError, match="or the key was replaced"):
        Ledger("clinic", path=path, identity=Identity.create())
    with Ledger("clinic", path=path, identity=Identity.load(path.with_name("elsewhere"))) as ledger:
        charge(ledger, 3)
    assert path.read_bytes().startswith(before)
    assert not key.exists()


def test_a_ledger_in_memory_has_a_fresh_key_or_the_one_that_is_given():
    one, other = Ledger("clinic"), Ledger("clinic")
    assert one.key != other.key
    entry = charge(one, 0)
    assert verify(one.key, b"siloweave ledger line", entry.hash.encode(), entry.signature)
    key = Identity.create()
    assert Ledger("clinic", identity=key).key == key.public


OLD = (
    b'{"siloweave_ledger":1,"owner":"clinic","created":"2026-11-21T16:39:58.823+00:00"}\n'
    b'{"index":0,"time":"2026-11-21T16:39:58.823+00:00","run":"r1","step":"0","what":"a count",'
    b'"to":"coordinator","event":{"type":"exponential","epsilon":0.05,"count":1},'
    b'"previous":"00","hash":"00"}'
)


@pytest.mark.parametrize("end", [b"\n", b""])
def test_a_ledger_of_the_version_before_is_refused_by_name_and_not_touched(path, end):
    path.write_bytes(OLD + end)
    for open_it in (Ledger.read, lambda p: Ledger("clinic", path=p)):
        with pytest.raises(LedgerError, match=r"line 1: version 1 .*0\.1\.0 .*start a new run"):
            open_it(path)
    assert path.read_bytes() == OLD + end
