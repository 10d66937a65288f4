"""Ledgers that were written anew, in a run's folder: what notices it, and what is printed."""

import json
import shutil

import pytest

from siloweave.app.ledgers import open_run
from siloweave.app.study import Study
from siloweave.federation.course import RECEIPTS
from siloweave.privacy.ledger import KEY_FILE, Identity, Ledger, fingerprint, spelled_key
from tests.privacy.rewritten import resealed


def ledger_of(done):
    return done.path / "run/parties/0000/ledger.jsonl"


def refused(done, *words):
    code, _, error = done.call(*words)
    assert code == 5
    return " ".join(error.split())


def nothing_kept(done):
    pass


def no_summary(done):
    (done.path / "run/run.json").unlink()


def no_receipts(done):
    (done.path / "run" / RECEIPTS).unlink()


WITNESSES = [nothing_kept, no_summary, no_receipts]


@pytest.mark.parametrize("gone", WITNESSES)
def test_one_that_was_edited_and_sealed_anew_is_refused(done, gone):
    gone(done)
    resealed(ledger_of(done))
    for words in (["ledger", "run"], ["ledger", str(ledger_of(done))], ["run"], ["check"]):
        assert "line 2: its signature is not of the key in line 1" in refused(done, *words)


@pytest.mark.parametrize("gone", WITNESSES)
def test_one_that_was_signed_with_another_key_is_refused_by_who_knows_the_partys(done, gone):
    gone(done)
    resealed(ledger_of(done), key=Identity.create())
    for words in (["ledger", "run"], ["ledger", str(ledger_of(done))]):
        message = refused(done, *words)
        assert "It was written anew with another key" in message
        assert "for party 'north'" in message


@pytest.mark.parametrize("gone", WITNESSES)
def test_one_that_its_owner_wrote_anew_is_refused_by_who_saw_the_entries(done, gone):
    gone(done)
    resealed(ledger_of(done), first=5, key=Identity.load(ledger_of(done).with_name(KEY_FILE)))
    assert Ledger.read(ledger_of(done)).entries  # the file alone cannot show it
    assert "another copy was put in its place" in refused(done, "ledger", "run")
    assert done.call("ledger", "run", "--party", "south")[0] == 0  # the other's is as it was


def cut(path):
    path.write_bytes(b"".join(path.read_bytes().splitlines(keepends=True)[:-1]))


@pytest.mark.parametrize(
    ("change", "words"),
    [
        (cut, "which paid for the reply to step 6 of run"),
        (lambda path: path.unlink(), "the coordinator saw 7 payments from it"),
        (lambda path: path.write_bytes(b""), "the coordinator saw 7 payments from it"),
        (lambda path: shutil.rmtree(path.parent), "the coordinator saw 7 payments from it"),
    ],
)
def test_a_run_that_did_not_finish_does_not_go_on_without_what_its_coordinator_saw(
    done, change, words
):
    no_summary(done)
    change(ledger_of(done))
    for command in (["run"], ["check"], ["ledger", "run"]):
        message = refused(done, *command)
        assert words in message
        assert "Put back the file" in message


def test_without_a_witness_a_cut_end_goes_unnoticed(done):
    """What the guide says is not detected."""
    no_summary(done)
    no_receipts(done)
    cut(ledger_of(done))
    assert done.call("ledger", "run")[0] == 0


def test_what_they_were_compared_with_is_printed(done):
    known = ["run.json (key, last line)", "coordinator/receipts.jsonl (key, payments seen)"]
    code, out, _ = done.call("ledger", "run")
    assert code == 0
    assert f"Compared with {' and '.join(known)}." in " ".join(out.split())
    trail = done.json("ledger", "run")
    assert [one["compared"] for one in trail["ledgers"]] == [known, known]
    no_summary(done)
    assert done.json("ledger", "run")["ledgers"][0]["compared"] == known[1:]
    no_receipts(done)
    out = done.call("ledger", "run")[1]
    assert "Compared with nothing: no key and no hash of it was kept here." in " ".join(out.split())


def test_a_copy_elsewhere_is_compared_with_nothing_and_its_key_is_printed(done):
    (done.path / "elsewhere").mkdir()
    copy = shutil.copy(ledger_of(done), done.path / "elsewhere" / "north.jsonl")
    code, out, _ = done.call("ledger", copy)
    assert code == 0
    assert "Compared with nothing" in out
    assert f"signed with the key {fingerprint(Ledger.read(copy).key)}" in " ".join(out.split())


def begin_ledger(folder, name, key_folder):
    """Write the first line of a party's ledger, by a key in some folder."""
    identity = Identity.load(key_folder / KEY_FILE)
    with Ledger(name, path=folder / "ledger.jsonl", identity=identity):
        pass


def test_a_party_reads_its_ledger_in_its_folder_of_a_study(ends, folder):
    north, south = ends["north"], ends["south"]
    begin_ledger(north, "north", north)
    budget = Study.load(north).terms()
    trail = folder.json("ledger", north)
    assert (trail["allowed"], trail["delta"]) == (budget.epsilon, budget.delta)
    assert [ledger["compared"] for ledger in trail["ledgers"]] == [["roster.json (key)"]]
    assert folder.json("ledger", north / "ledger.jsonl") == trail

    # Written anew with another key, the file alone is as good as before.
    (north / "ledger.jsonl").unlink()
    begin_ledger(north, "north", south)
    message = refused(folder, "ledger", north)
    assert "roster.json names" in message
    assert "written anew with another key" in message


@pytest.mark.parametrize("command", ["ledger", "report"])
def test_the_folder_above_a_run_leads_to_it(command, done):
    code, _, error = done.call(command, done.path)
    assert code == 2
    assert f"Finished runs below it: {done.path / 'run'}." in " ".join(error.split())


def test_the_summary_names_every_partys_key(done):
    found = open_run(done.path / "run")
    for number, party in enumerate(found.parties):
        home = done.path / f"run/parties/{number:04d}"
        assert Ledger.read(home / "ledger.jsonl", key=party.public_key).owner == party.name
        written = json.loads((home / "ledger.jsonl").read_text().splitlines()[0])
        assert written["key"] == spelled_key(party.public_key)
    secrets = [Identity.load(path)._key.private_bytes_raw() for path in done.path.rglob(KEY_FILE)]
    assert len(secrets) == 2
    pem = [path.read_text().splitlines()[1] for path in done.path.rglob(KEY_FILE)]
    for path in done.path.rglob("*"):
        if path.is_file() and path.name != KEY_FILE:
            data = path.read_bytes()
            assert not any(secret in data or secret.hex().encode() in data for secret in secrets)
            assert not any(text.encode() in data for text in pem)
