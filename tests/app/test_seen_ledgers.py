"""Copies of a study's folder, each of which would spend the whole budget: one alone goes on."""

import json
import shutil
import sys
from hashlib import blake2b

import pytest

from siloweave.app import network
from siloweave.app.account import STATE_FOLDER
from siloweave.app.network import office_in, provision
from siloweave.app.run import execute
from siloweave.app.status_facts import status_of
from siloweave.errors import LedgerError
from siloweave.privacy.events import Gaussian
from siloweave.privacy.ledger import Ledger
from tests.app.processes import Ends, party_at, provisioned, small, told
from tests.synthesizers.networked import over_files

METHOD = 3
"""The question of TwoRound that begins another stage, which a new folder can answer."""
OLD = "lacks lines that this machine has seen"


@pytest.fixture
def study(folder, monkeypatch):
    """North's folder of a study, below the one with its key, and those of the other ends."""
    monkeypatch.setenv(STATE_FOLDER, str(folder.path / "state"))
    small(folder)
    ends = provision(folder.path, folder.path / "ends", trial=True)
    for name in ("north", "south"):
        (ends[name] / f"{name}.csv").write_bytes((folder.path / f"{name}.csv").read_bytes())
    home = folder.path / "home"
    home.mkdir()
    shutil.move(ends["north"], home / "flu")
    for name in ("party.key", "policy.toml", "account.jsonl"):
        shutil.move(home / "flu" / name, home / name)
    return home / "flu", ends


def opened(place):
    return network.party_in(place, place / "north.csv", noise="seeded")


def copied(place):
    return shutil.copytree(place, place.with_name("flu-copy"))


def pay(host, step):
    """Pay for a release, and give the answer."""
    host.ledger.charge(
        Gaussian(50.0, 1.0), run=host.job.run, step=step, what="counts", to="coordinator"
    )
    host._note_ledger(host.ledger.head)


def test_a_copy_of_a_study_that_went_on_is_refused(study):
    place, ends = study
    with opened(place):
        pass
    copy = copied(place)
    office = office_in(ends["coordinator"])
    with opened(place) as north, party_at(ends["south"], noise="seeded") as south:
        hosts = {"north": north, "south": south}
        with over_files(office.seals, hosts, ends["coordinator"].parent / "spool") as carrier:
            execute(office.study, carrier=office.carrier(carrier), noise="seeded")
    with pytest.raises(LedgerError, match=OLD) as caught, opened(copy):
        pass
    assert caught.value.declined == "its ledger does not allow this study"
    assert OLD in status_of(copy).why
    assert len(Ledger.read(copy / "ledger.jsonl").entries) == 0
    with opened(place) as (host, _):
        assert host.ledger.entries


def test_of_two_copies_that_answer_at_once_one_stops(study):
    """What the coordinator is sent of it names no folder."""
    place, _ = study
    with opened(place):
        pass
    with opened(place) as (host, _), opened(copied(place)) as (other, _):
        pay(host, "one")
        with pytest.raises(LedgerError, match="The answer was not sent") as caught:
            pay(other, "one")
        assert str(place.parent) not in str(caught.value)
        pay(host, "two")


def test_a_copy_from_before_there_was_a_ledger_is_refused(study, monkeypatch):
    place, _ = study
    with monkeypatch.context() as patch:
        patch.setattr(network, "study_party", None)
        with pytest.raises(TypeError), opened(place):
            pass
    copy = copied(place)
    with opened(place):
        pass
    with pytest.raises(LedgerError, match=OLD), opened(copy):
        pass
    assert not (copy / "ledger.jsonl").exists()


def test_a_party_that_was_killed_before_it_noted_a_line_goes_on(study):
    place, _ = study
    with opened(place) as (host, _):
        pay(host, "one")
        host.ledger.charge(
            Gaussian(50.0, 1.0), run=host.job.run, step="two", what="counts", to="all"
        )
    with opened(place) as (host, _):
        pay(host, "three")
        assert len(host.ledger.entries) == 3


def carried_out(study, place):
    """Run the study over a spool folder, from its beginning at the coordinator."""
    _, ends = study
    office = office_in(ends["coordinator"])
    shutil.rmtree(ends["coordinator"] / "run", ignore_errors=True)
    spool = ends["coordinator"].parent / "spool"
    shutil.rmtree(spool, ignore_errors=True)
    with opened(place) as north, party_at(ends["south"], noise="seeded") as south:
        hosts = {"north": north, "south": south}
        with over_files(office.seals, hosts, spool) as carrier:
            execute(office.study, carrier=office.carrier(carrier), noise="seeded")


def test_a_store_that_is_older_than_its_ledger_draws_nothing_anew(study, folder):
    """It lacks the reply to the last count, which else a new draw would answer."""
    place, _ = study
    carried_out(study, place)
    last = Ledger.read(place / "ledger.jsonl").entries[-1]
    replies = list((place / "store").glob("*.reply"))
    lost = [file for file in replies if last.hash.encode() in file.read_bytes()[:200]]
    assert 0 < len(lost) < len(replies)
    for file in lost:
        file.unlink()
    with pytest.raises(LedgerError, match="lacks answers that this machine has seen"):
        carried_out(study, place)
    # Also where nobody counted: the last answer's own line was noted, too.
    noted(folder, answers=0)
    with pytest.raises(LedgerError, match="was answered, as this machine noted, and the reply"):
        carried_out(study, place)
    assert Ledger.read(place / "ledger.jsonl").entries[-1] == last


def noted(folder, **facts):
    """Change what the machine has noted of the ledgers."""
    for record in (folder.path / "state" / "ledgers").iterdir():
        before = json.loads(record.read_text())
        record.write_text(json.dumps(before | facts))


OPENING = 9
"""A step of the run after its last payment."""


def test_a_store_that_lacks_an_answer_that_nobody_paid_for_is_refused(study):
    """A sum from which parties vanished opens by such an answer: a second one takes other lists."""
    place, _ = study
    with opened(place):
        pass
    older = shutil.copytree(place / "store", place.parent / "older")
    with opened(place) as (host, _):
        host.stores[1].put(f"reply/{host.job.run}/{OPENING}", bytes(96))
        host._note_ledger("")
        assert not host.ledger.entries
    shutil.rmtree(place / "store")
    shutil.move(older, place / "store")
    with (
        pytest.raises(LedgerError, match="lacks answers that this machine has seen"),
        opened(place),
    ):
        pass


def test_of_two_copies_that_answer_without_payment_at_once_one_stops(study):
    place, _ = study
    with opened(place):
        pass
    with opened(place) as (host, _), opened(copied(place)) as (other, _):
        for party in (host, other):
            party.stores[1].put(f"reply/{party.job.run}/{OPENING}", bytes(96))
        host._note_ledger("")
        with pytest.raises(LedgerError, match="The answer was not sent"):
            other._note_ledger("")


def test_a_party_that_was_killed_before_it_answered_draws_once_more(study, folder):
    """Its ledger has the line of the last count, and nobody noted that an answer was given."""
    place, _ = study
    carried_out(study, place)
    last = Ledger.read(place / "ledger.jsonl").entries[-1]
    for file in (place / "store").glob("*.reply"):
        if last.hash.encode() in file.read_bytes()[:200]:
            file.unlink()
    # It was killed in its last question, which is counted once.
    asked = blake2b(f"asked/{last.run}".encode(), digest_size=20).hexdigest()
    (place / "store" / asked).unlink()
    noted(folder, answered="", answers=0)
    carried_out(study, place)
    assert Ledger.read(place / "ledger.jsonl").entries[-1] == last


def test_a_record_that_cannot_be_read_is_named(study, folder):
    place, _ = study
    with opened(place):
        pass
    (record,) = (folder.path / "state" / "ledgers").iterdir()
    assert record.stat().st_mode & 0o777 == 0o600
    record.write_text("{")
    with pytest.raises(LedgerError, match="what this machine has seen") as caught, opened(place):
        pass
    assert str(record) in str(caught.value)


@pytest.mark.skipif(sys.platform == "win32", reason="POSIX")
@pytest.mark.slow
def test_two_machines_with_one_partys_folder_do_not_finish_a_study(folder):
    """Neither sees what the other released; the coordinator saw both, and compares at the end."""
    small(folder)
    made = provisioned(folder)
    copy = folder.path / "copy" / "north"
    shutil.copytree(made["north"], copy)
    spool = ["--spool", str(folder.path / "spool")]
    with Ends(folder.path, made, lambda name: spool) as ends:
        ends.start_all()

        def go_on_elsewhere(number):
            if number == METHOD:
                ends.kill("north")
                ends.made = {**ends.made, "north": copy}
                # Another machine knows nothing of what this one has seen.
                state = folder.path / "state of the other machine"
                ends.within = {"north": ["env", f"SILOWEAVE_STATE={state}"]}
                ends.start("north")

        assert ends.ended(go_on_elsewhere) == 2
        said = told(ends.said("coordinator"))
    assert "party 'north' sent a ledger without the entry" in said
    assert "two copies of the party's folder" in said
    assert not (made["coordinator"] / "run" / "run.json").exists()
