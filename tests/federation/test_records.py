"""What a coordinator keeps of the payments that it saw."""

import stat

import msgspec
import pytest

from siloweave.errors import LedgerError, WireError
from siloweave.federation.course import Receipt, read_receipts
from siloweave.federation.records import Receipts, RunRecords
from siloweave.federation.session import Session
from siloweave.privacy.ledger import Ledger, fingerprint
from tests.federation.sites import Sites
from tests.federation.small import (
    HANDLERS,
    Ask,
    Hello,
    Size,
    masked_sum,
    reply_in,
    session_of,
    site_of,
    with_reply,
)


@pytest.fixture
def path(tmp_path):
    return tmp_path / "coordinator" / "receipts.jsonl"


def sites_of(*names):
    return [site_of(name) for name in names]


def kept(path, sites):
    return Receipts(path, {site.name: site.ledger.key for site in sites})


def test_every_payment_in_a_reply_is_kept_with_the_partys_key(path):
    sites = sites_of("a", "b")
    session = session_of(sites, stored=RunRecords(receipts=kept(path, sites)))
    session.ask(Hello())
    session.ask(Ask(500.0))
    masked_sum(session)
    found = read_receipts(path)
    for site in sites:
        mine = [one for one in found if one.party == site.name]
        assert {one.key for one in mine} == {site.ledger.key}
        assert [one.entry for one in mine] == ["", *(e.hash for e in site.ledger.entries)]
        assert [(one.run, one.step) for one in mine] == [("", 0), ("r1", 1), ("r1", 3)]
    assert stat.S_IMODE(path.stat().st_mode) == 0o600


def test_a_payment_that_is_seen_again_is_kept_once(path):
    sites = sites_of("a")
    for _ in range(2):  # a run that is started again
        session = session_of(sites, stored=RunRecords(receipts=kept(path, sites)))
        session.ask(Ask(500.0))
    assert len(read_receipts(path)) == 2


def test_a_party_whose_key_is_another_is_refused(path):
    sites = sites_of("a", "b")
    kept(path, sites)
    before = path.read_bytes()
    other = Ledger("b")
    keys = [fingerprint(ledger.key) for ledger in (other, sites[1].ledger)]
    said = f"party 'b' has the key {keys[0]}; before, it had {keys[1]} .* replaced"
    with pytest.raises(LedgerError, match=said):
        kept(path, [sites[0], site_of("b", ledger=other)])
    assert path.read_bytes() == before


def test_a_line_cut_short_by_a_crash_is_left_out_and_written_over(path):
    sites = sites_of("a")
    session_of(sites, stored=RunRecords(receipts=kept(path, sites))).ask(Ask(500.0))
    whole, length = read_receipts(path), len(path.read_bytes().splitlines(keepends=True)[0])
    for end in (length + 1, length + 30, len(path.read_bytes()) - 1):
        path.write_bytes(path.read_bytes()[:end])
        assert read_receipts(path) == whole[:1]
        session_of(sites, stored=RunRecords(receipts=kept(path, sites)), run=f"r{end}").ask(
            Ask(500.0)
        )
        assert len(read_receipts(path)) == 2


@pytest.mark.parametrize("line", [b"{}", b"\xff", b'{"party":"a","key":"AA==","more":1}'])
def test_a_damaged_file_is_refused(path, line):
    sites = sites_of("a")
    kept(path, sites)
    path.write_bytes(path.read_bytes() + line + b"\n")
    with pytest.raises(LedgerError, match="line 2: is no receipt"):
        kept(path, sites)


def test_two_keys_of_one_party_are_refused(path):
    kept(path, sites_of("a"))
    path.write_bytes(path.read_bytes() + msgspec.json.encode(Receipt("a", bytes(32))) + b"\n")
    with pytest.raises(LedgerError, match="two keys of party 'a'"):
        read_receipts(path)


@pytest.mark.parametrize("entry", ["", "x" * 64, "A" * 64, "a" * 63, "a" * 65, "a" * 64 + "\n"])
def test_a_payment_that_is_no_hash_names_the_party_and_is_not_kept(path, entry):
    sites = sites_of("a")

    class Lying:
        sizes = {}
        line = Sites({site.name: site for site in sites}, HANDLERS)

        def send(self, name, frame):
            answer = self.line.send(name, frame)
            value = msgspec.structs.replace(reply_in(answer, Size).value, entry=entry)
            return with_reply(answer, msgspec.structs.replace(reply_in(answer, Size), value=value))

    session = Session(["a"], Lying(), run="r1", stored=RunRecords(receipts=kept(path, sites)))
    with pytest.raises(WireError, match=r"party 'a', step 0: value names .* that is no hash"):
        session.ask(Ask(500.0))
    assert len(read_receipts(path)) == 1
