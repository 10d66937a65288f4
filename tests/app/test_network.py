"""The ends of a study between organisations: their folders, and what each is told that is wrong."""

import io
import json
import shutil
import signal
import subprocess
import sys
import time
from base64 import b64encode
from contextlib import ExitStack
from fnmatch import fnmatch
from pathlib import Path
from stat import S_IMODE

import pytest

from siloweave.app import network, status
from siloweave.app.network import (
    _REMEMBERED,
    keys_in,
    office_in,
    plan_in,
    provision,
    spelled_keys,
)
from siloweave.app.policy import Policy
from siloweave.app.run import execute
from siloweave.app.status_facts import status_of
from siloweave.app.study import Study
from siloweave.core.party import StageFacts
from siloweave.errors import (
    InputError,
    LedgerError,
    RosterError,
    SchemaError,
    SiloweaveError,
    StudyError,
    WireError,
)
from siloweave.federation import certificates, messages
from siloweave.federation.frames import keys_for
from siloweave.federation.messages import Envelope
from siloweave.federation.session import Part
from siloweave.federation.site import FolderStore
from siloweave.privacy.journal import Journal
from siloweave.privacy.ledger import Identity, Ledger
from tests.app.processes import Ends, party_at, small
from tests.app.studies import here
from tests.federation import connecting
from tests.federation.engines import SuperLink, free_port
from tests.synthesizers.networked import over_files

HOME = ("party.key", "policy.toml", "account.jsonl")
"""What lies in a party's own folder, beside or above that of a study."""


def run(ends, noise="seeded"):
    office = office_in(ends["coordinator"])
    with ExitStack() as stack:
        names = [name for name in ends if name != "coordinator"]
        hosts = {n: stack.enter_context(party_at(ends[n], noise="seeded")) for n in names}
        folder = ends["coordinator"].parent / "spool"
        carrier = stack.enter_context(over_files(office.seals, hosts, folder))
        return execute(office.study, carrier=office.carrier(carrier), noise=noise)


def test_a_party_with_noise_from_a_seed_is_in_no_run_that_is_called_private(ends):
    with pytest.raises(StudyError, match="report would say noise = 'os'"):
        run(ends, noise="os")
    assert Ledger.read(ends["north"] / "ledger.jsonl").entries == ()
    assert not run(ends)[0].private


def test_what_a_run_over_a_network_leaves_is_what_a_run_here_leaves(ends, folder):
    summary, before = run(ends)
    assert not before
    study = Study.load(ends["coordinator"])
    here, _ = execute(Study.load(folder.path), noise="seeded")
    assert summary.epsilon == here.epsilon
    assert summary.rows == here.rows
    rows = [(one / "synthetic.csv").read_text() for one in (study.folder, folder.path / "run")]
    assert rows[0] == rows[1]
    assert not (study.folder / "report-owner.html").exists()
    assert run(ends)[1]  # it had finished


def test_bytes_of_a_report_and_a_status_are_those_of_the_files_that_crossed(ends):
    """Sealed, and with the study's facts that come with the first question of a stage."""
    summary, _ = run(ends)
    shown, spool = status_of(ends["coordinator"]), ends["coordinator"].parent / "spool" / "spool"
    for one, line in zip(summary.parties, shown.parties, strict=True):
        to, back = (
            sum(file.stat().st_size for file in (spool / f"{way}-{one.name}" / "done").iterdir())
            for way in ("to", "from")
        )
        assert (one.bytes_received, one.bytes_sent) == (to, back)
        assert (line.bytes_received, line.bytes_sent) == (to, back)
        planned = plan_in(ends[one.name], ends[one.name] / f"{one.name}.csv").size
        assert 0.8 * (to + back) < planned < 1.2 * (to + back)


def test_a_party_says_when_nothing_more_will_come(ends, caplog):
    run(ends)
    said = [one.getMessage() for one in caplog.records if one.levelname == "WARNING"]
    over = [one for one in said if "has answered the study to its end" in one]
    assert sorted(one.split("'")[1] for one in over) == ["north", "south"]
    assert all("says that it has its result" in one for one in over)


def test_a_study_goes_on_without_a_party_that_vanished_and_its_ledger_is_not_missed(folder):
    folder.replace("study.toml", 'name = "flaim"\nrounds = 2\nparticipation = 1.0',
                   'name = "two_round"\ndropouts = 1')  # fmt: skip
    text = (folder.path / "study.toml").read_text()
    for name in ("east", "west"):
        text += f'\n[[parties]]\nname = "{name}"\ndata = "{name}.csv"\n'
        (folder.path / f"{name}.csv").write_bytes((folder.path / "north.csv").read_bytes())
    folder.write("study.toml", text)
    names = ("north", "south", "east", "west")
    made = provision(folder.path, folder.path / "ends", trial=True)
    for name in names:
        (made[name] / f"{name}.csv").write_bytes((folder.path / f"{name}.csv").read_bytes())
    office, asked = office_in(made["coordinator"]), []
    with ExitStack() as stack:
        hosts = {n: stack.enter_context(party_at(made[n], noise="seeded")) for n in names}
        carrier = stack.enter_context(over_files(office.seals, hosts, folder.path / "ends"))
        send = carrier.send

        def vanishing(name, frame, facts=b""):
            asked.append(name)
            if name == "west" and asked.count(name) > 4:  # columns are counted, keys exchanged
                raise RosterError("party 'west' did not answer")
            return send(name, frame, facts)

        carrier.send = vanishing
        summary, _ = execute(office.study, carrier=office.carrier(carrier), noise="seeded")
    assert summary.vanished == ("west",)
    assert summary.epsilon == summary.epsilon_allowed  # what west spent is bounded by its limit
    report = (office.study.folder / "report.html").read_text()
    assert "their ledgers did not arrive: west" in report
    assert [party.name for party in summary.parties] == ["north", "south", "east"]
    assert execute(office.study, carrier=office.carrier(carrier))[1]  # it had finished
    code, out, err = folder.call("ledger", office.study.folder)
    assert code == 0, err
    assert "west" not in out


def test_a_party_makes_its_own_key_and_keeps_it(folder):
    folder.replace(
        "study.toml", 'name = "flaim"\nrounds = 2\nparticipation = 1.0', 'name = "two_round"'
    )
    own = Identity.load_or_create(folder.path / "home" / "party.key")
    word = spelled_keys(keys_for("small", own))
    ends = provision(folder.path, folder.path / "ends", {"north": word}, keys_made_here=True)
    assert not (ends["north"] / "party.key").exists()
    assert (ends["south"] / "party.key").exists()
    with pytest.raises(InputError, match=r"no party\.key"), party_at(ends["north"]):
        pass


@pytest.mark.parametrize("name", HOME)
def test_a_folder_that_brings_what_a_party_has_itself_is_refused(ends, name):
    """Else whoever made the folder decides what the party allows, or has spent."""
    home = ends["north"].parent
    for one in HOME:
        (ends["north"] / one).rename(home / one)
    (ends["north"] / name).write_bytes((home / name).read_bytes())
    with pytest.raises(InputError, match=rf"north.{name}: this party has"), party_at(ends["north"]):
        pass
    (ends["north"] / name).unlink()
    with party_at(ends["north"]):
        pass


def test_a_folder_that_brings_what_a_party_remembers_is_refused(ends):
    """Its secret for masks, for example, which whoever made the folder would know."""
    run = Study.load(ends["north"]).run_name
    FolderStore(ends["north"] / "store").put(f"secret/{run}", bytes(32))
    with (
        pytest.raises(InputError, match="has store, and this party never"),
        party_at(ends["north"]),
    ):
        pass
    shutil.rmtree(ends["north"] / "store")
    for _ in range(2):  # what it began itself continues
        with party_at(ends["north"]):
            assert (ends["north"] / "store").is_dir()


@pytest.mark.parametrize("what", ["secret/{run}", "sample", "stage/{run}", "stream/{run}/0"])
def test_what_somebody_else_puts_into_a_store_that_was_begun_is_refused(ends, what):
    """As where a new folder of the study, with such files, is copied over the party's own."""
    with party_at(ends["north"]) as (host, _):
        store, name = host.stores[1], what.format(run=host.job.run)
        FolderStore(ends["north"] / "store").put(name, bytes(32))
        with pytest.raises(WireError, match="or somebody else wrote it"):
            store.get(name)
        store.put(name, b"its own")
        assert store.get(name) == b"its own"
    with party_at(ends["north"]) as (host, _):
        assert host.stores[1].get(name) == b"its own"


def test_a_folder_that_is_copied_over_a_begun_one_with_a_known_secret_sends_nothing(ends):
    office = office_in(ends["coordinator"])
    for name in ("north", "south"):
        with party_at(ends[name], noise="seeded"):
            pass
    store = FolderStore(ends["north"] / "store")
    store.put(f"secret/{office.study.run_name}", bytes(range(32)))
    with pytest.raises(WireError, match="somebody else wrote it"):
        run(ends)
    assert Ledger.read(ends["north"] / "ledger.jsonl").entries == ()


def test_whatever_a_party_writes_is_refused_in_a_folder_that_it_did_not_begin(ends, folder):
    """Or it is signed, or does no harm where somebody else puts it; a new file is one of these."""
    brought = {one.name for one in ends["north"].iterdir()}
    run(ends)
    written = {one.name for one in ends["north"].iterdir()} - brought
    refused = {name for name in written if any(fnmatch(name, one) for one in _REMEMBERED)}
    signed = {"begun", "ledger.jsonl"}
    # Questions count as answered, the run as not private, and rows as those of the last start.
    harmless = {"nonces", "seeded", "rows.seen"}
    assert written - refused - signed <= harmless
    assert "store" in refused


def _without_its_last_line(ledger):
    ledger.write_bytes(b"".join(ledger.read_bytes().splitlines(keepends=True)[:-1]))


def _with_its_store(ledger):
    ledger.unlink()
    shutil.rmtree(ledger.with_name("store"))


def _written_anew(ledger):
    ledger.unlink()
    Ledger("north", path=ledger, identity=Identity.load(ledger.with_name("party.key"))).close()


@pytest.mark.parametrize(
    ("lose", "said"),
    [
        (Path.unlink, r"ledger\.jsonl: is gone, .* Put the last copy of this file back"),
        (_with_its_store, "is gone"),
        (_written_anew, "is gone, or is another than this party began with"),
        (_without_its_last_line, "lacks lines that this machine has seen"),
    ],
)
def test_a_party_whose_ledger_is_gone_or_is_an_old_copy_does_not_start(ends, lose, said):
    run(ends)
    lose(ledger := ends["north"] / "ledger.jsonl")
    there = ledger.exists()
    for _ in range(2):
        with pytest.raises(LedgerError, match=said), party_at(ends["north"], noise="seeded"):
            pass
        assert ledger.exists() == there
    found = status_of(ends["north"])
    assert found.state == "its ledger cannot be used"
    assert "count the study as spent in full" in found.why


def test_an_old_copy_of_a_ledger_is_known_by_the_store_beside_it_elsewhere(ends, monkeypatch):
    run(ends)
    _without_its_last_line(ends["north"] / "ledger.jsonl")
    monkeypatch.setattr(network, "require_newest", lambda number, file: None)
    with (
        pytest.raises(LedgerError, match="lacks what paid for answers in the store beside"),
        party_at(ends["north"], noise="seeded"),
    ):
        pass


class Killed(BaseException):
    """The process is gone."""


@pytest.mark.parametrize("at", range(7))
def test_a_party_that_was_killed_while_it_began_starts_again(ends, monkeypatch, at):
    """Before or after each thing that it writes before it answers a question."""
    steps = []

    def step(*_):
        steps.append(1)
        if len(steps) == at + 1:
            raise Killed

    def around(place, name):
        real = getattr(place, name)

        def done(*args, **kwargs):
            step()
            found = real(*args, **kwargs)
            step()
            return found

        monkeypatch.setattr(place, name, done)

    around(network, "write_whole")  # begun, twice
    around(Journal, "append")  # the first line of the ledger
    monkeypatch.setattr(Policy, "check", step)
    with pytest.raises(Killed), party_at(ends["north"], noise="seeded"):
        pass
    monkeypatch.undo()
    monkeypatch.chdir(ends["north"].parent.parent)
    for _ in range(2):
        with party_at(ends["north"], noise="seeded"):
            pass
    assert run(ends)[0].rows


def test_a_party_that_its_policy_refuses_later_keeps_its_ledger(ends):
    run(ends)
    policy, ledger = ends["north"] / "policy.toml", ends["north"] / "ledger.jsonl"
    text, before = policy.read_text(), ledger.read_bytes()
    policy.write_text(text.replace("smallest_roster = 1", "smallest_roster = 3"))
    with (
        pytest.raises(InputError, match="smallest_roster"),
        party_at(ends["north"], noise="seeded"),
    ):
        pass
    policy.write_text(text)
    with party_at(ends["north"], noise="seeded"):
        assert ledger.read_bytes() == before


@pytest.mark.parametrize("word", ["", "x", b64encode(b"short").decode(), "%%%"])
def test_a_word_that_is_no_key_is_named(word):
    with pytest.raises(InputError, match=r"no pair of public keys|is cut off"):
        keys_in(word)


def test_two_parties_with_one_key_and_keys_of_strangers_are_refused(folder):
    word = spelled_keys(keys_for("small", Identity.create()))
    with pytest.raises(RosterError, match="have one key"):
        provision(folder.path, folder.path / "ends", {"north": word, "south": word})
    with pytest.raises(RosterError, match="the study has the parties north, south"):
        provision(folder.path, folder.path / "ends", {"west": word})


def test_what_was_seen_in_rows_stays_with_who_saw_it(folder):
    schema = json.loads((folder.path / "schema.json").read_text())
    schema["columns"][0]["why"] = "37 different whole numbers in 40 rows"
    folder.write("schema.json", json.dumps(schema))
    folder.replace(
        "study.toml", 'name = "flaim"\nrounds = 2\nparticipation = 1.0', 'name = "two_round"'
    )
    for end in provision(folder.path, folder.path / "ends", keys_made_here=True).values():
        assert "37 different" not in (end / "schema.json").read_text()


def test_rows_that_do_not_fit_are_moved_and_said_where_they_are(ends, caplog):
    (ends["north"] / "north.csv").write_text("age,sex,job\n200,f,x\n41,f,x\n")
    with party_at(ends["north"]):
        pass
    assert "cells that do not fit the schema" in caplog.text
    assert "1 in 'age'" in caplog.text


def test_rows_that_are_refused_by_choice_are_said_where_they_are(folder):
    folder.refuse_misfits()
    ends = provision(folder.path, folder.path / "strict", trial=True)
    (ends["north"] / "north.csv").write_text("age,sex,job\n200,f,x\n41,f,x\n")
    with pytest.raises(SchemaError, match=r"'age': 1 row is outside"), party_at(ends["north"]):
        pass
    assert not (ends["north"] / "ledger.jsonl").exists()


def with_jobs(folder):
    """Jobs that follow from sex, as the schema then says."""
    for name in ("north", "south"):
        rows = [row.split(",") for row in (folder.path / f"{name}.csv").read_text().split()]
        lines = [",".join([*row[:2], {"f": "x", "m": "y"}.get(row[1], row[2])]) for row in rows]
        folder.write(f"{name}.csv", "\n".join([*lines, ""]))
    schema = json.loads((folder.path / "schema.json").read_text())
    rule = {"constraint": "fixed_combinations", "columns": ["sex", "job"]}
    rule["rows"] = [["f", "x"], ["m", "y"]]
    folder.write("schema.json", json.dumps({**schema, "constraints": [rule]}))


def test_constraints_hold_over_a_network(folder):
    with_jobs(folder)
    folder.refuse_misfits()
    ends = provision(folder.path, folder.path / "ends", trial=True)
    for name in ("north", "south"):
        (ends[name] / f"{name}.csv").write_bytes((folder.path / f"{name}.csv").read_bytes())
    run(ends)
    execute(Study.load(folder.path), noise="seeded")
    study = Study.load(ends["coordinator"])
    rows = [(one / "synthetic.csv").read_text() for one in (study.folder, folder.path / "run")]
    assert rows[0] == rows[1]
    assert {tuple(row.split(",")[1:]) for row in rows[0].split()[1:]} == {("f", "x"), ("m", "y")}
    (ends["north"] / "north.csv").write_text("age,sex,job\n40,f,x\n41,f,y\n")
    with (
        pytest.raises(SchemaError, match=r"1 of 2 rows break it \(row 2,"),
        party_at(ends["north"]),
    ):
        pass


def with_columns(folder, halves, rules, *, shared=True, aligned=False):
    """A study whose parties hold these columns of the same people."""
    lines = [row.split(",") for row in (folder.path / "north.csv").read_text().split()]
    schema = json.loads((folder.path / "schema.json").read_text())
    schema["columns"].insert(0, {"name": "card", "kind": "id"})
    folder.write("schema.json", json.dumps({**schema, "constraints": rules}))
    text = '[study]\nname = "small"\n[schema]\nfile = "schema.json"\n[output]\nrows = 150\n'
    text += f'[method]\nname = "silofuse"\nshared = {str(shared).lower()}\n'
    text += "[method.diffusion]\nsteps = 3\nbatch = 16\nhidden = [8]\ntimesteps = 5\n"
    text += '[alignment]\non = ["card"]\n' if aligned else ""
    for name, own in halves.items():
        text += f'[[parties]]\nname = "{name}"\ndata = "{name}.csv"\n'
        text += f"columns = {['card', *own]}\n"
        places = [lines[0].index(column) for column in own]
        rows = [[str(i), *(row[j] for j in places)] for i, row in enumerate(lines[1:])]
        folder.write(f"{name}.csv", "\n".join(map(",".join, [["card", *own], *rows, []])))
    folder.write("study.toml", text)


RANGE = {"constraint": "category_ranges", "column": "age", "by": "sex", "ranges": [["f", 18, 89]]}
PAIRS = {"constraint": "fixed_combinations", "columns": ["sex", "job"]}
PAIRS["rows"] = [["f", "x"], ["m", "y"]]
HALVES = {"clinic": ["age", "sex"], "office": ["job"]}
OTHERS = {"clinic": ["age"], "office": ["sex", "job"]}


@pytest.mark.parametrize("aligned", [False, True], ids=["in order", "aligned"])
def test_constraints_of_split_columns_hold_over_a_network(folder, aligned):
    """One at a party, whose real rows are checked there, and one across both parties."""
    halves = OTHERS if aligned else HALVES
    with_jobs(folder)
    with_columns(folder, halves, [RANGE, PAIRS], aligned=aligned)
    ends = provision(folder.path, folder.path / "ends", trial=True)
    for name in halves:
        (ends[name] / f"{name}.csv").write_bytes((folder.path / f"{name}.csv").read_bytes())
    summary, _ = run(ends)
    text = (Study.load(ends["coordinator"]).folder / "synthetic.csv").read_text()
    if not aligned:  # an alignment shuffles rows with entropy of its own
        execute(Study.load(folder.path), noise="seeded")
        assert text == (folder.path / "run" / "synthetic.csv").read_text()
    assert summary.rows == 150
    drawn = [row.split(",") for row in text.split()[1:]]
    assert {tuple(row[2:]) for row in drawn} == {("f", "x"), ("m", "y")}
    assert all(int(row[1]) >= 18 for row in drawn if row[2] == "f")
    name, row, words = ("office", "f,y", "sex, job") if aligned else ("clinic", "7,f", "age by sex")
    (file := ends[name] / f"{name}.csv").write_text(file.read_text() + f"99,{row}\n")
    for one in ("ledger.jsonl", "begun"):
        (ends[name] / one).unlink()
    for one in ("store", "alignment"):
        shutil.rmtree(ends[name] / one, ignore_errors=True)
    for one in ends[name].glob("training-*"):
        shutil.rmtree(one)
    with (
        pytest.raises(SchemaError, match=rf"{words}: 1 of 41 rows break it \(row 41, counted"),
        party_at(ends[name]),
    ):
        pass
    assert not (ends[name] / "ledger.jsonl").exists()  # nothing is paid for


def test_the_ledger_of_an_alignment_is_missed_too(folder):
    with_columns(folder, HALVES, [], aligned=True)
    ends = provision(folder.path, folder.path / "ends", trial=True)
    for name in HALVES:
        (ends[name] / f"{name}.csv").write_bytes((folder.path / f"{name}.csv").read_bytes())
    run(ends)
    (ends["clinic"] / "alignment/ledger.jsonl").unlink()
    with party_at(ends["clinic"], noise="seeded") as (host, _):
        facts = StageFacts(host.prepare.study, "alignment", "", "", "seeded")
        with pytest.raises(LedgerError, match=r"alignment/ledger\.jsonl: is gone"):
            host.begin(host.job.named("alignment"), messages.encode(facts))

    # Its answers are missed before anything is asked.
    shutil.rmtree(ends["clinic"] / "alignment")
    opening = party_at(ends["clinic"], noise="seeded")
    with pytest.raises(LedgerError, match="lacks answers"), opening:
        pass


def test_what_cannot_be_kept_over_a_network_is_refused_when_a_study_is_provisioned(folder):
    with_columns(folder, HALVES, [PAIRS], shared=False)
    with pytest.raises(InputError, match=r"fixed combinations of sex, job: .* stay apart"):
        provision(folder.path, folder.path / "ends", keys_made_here=True)
    folder.write("schema.json", (folder.path / "schema.json").read_text().replace(
        json.dumps(PAIRS), json.dumps(RANGE)
    ))  # fmt: skip
    with pytest.raises(InputError, match=r"range of age by sex: .* cannot be drawn again"):
        provision(folder.path, folder.path / "ends", keys_made_here=True)


def test_an_owner_reads_why_times_of_day_are_cut(folder, caplog):
    """As with rows on this machine: of columns whose bounds are dates."""
    schema = json.loads((folder.path / "schema.json").read_text())
    seen = {"name": "seen", "kind": "datetime", "low": "2026-01-01", "high": "2026-12-31"}
    schema["columns"].append({**seen, "fallback": "2026-01-01"})
    folder.write("schema.json", json.dumps(schema))
    header, *rows = (folder.path / "north.csv").read_text().split()
    lines = [f"{header},seen", *(f"{row},2026-03-01T10:30" for row in rows), ""]
    ends = provision(folder.path, folder.path / "ends", trial=True)
    (ends["north"] / "north.csv").write_text("\n".join(lines))
    with party_at(ends["north"], noise="seeded"):
        pass
    assert "A time of day in seen becomes midnight" in caplog.text


class Told:
    """A carrier that answers nothing and remembers the last words that parties were sent."""

    def __init__(self):
        self.words = {}

    def await_for(self, seconds):
        pass

    def send(self, name, frame, facts=b""):
        self.words[name] = messages.decode(messages.decode(frame, Envelope).body, Part)


def columns_apart(folder):
    """Ends of a study whose two parties keep their own synthetic columns."""
    lines = [row.split(",") for row in (folder.path / "north.csv").read_text().split()]
    cards = ["card", *(f"C{i:03d}" for i in range(len(lines) - 1))]
    halves = {"clinic": [row[:2] for row in lines], "office": [[row[2]] for row in lines]}
    halves["clinic"] = [[*row, card] for row, card in zip(halves["clinic"], cards, strict=True)]
    schema = json.loads((folder.path / "schema.json").read_text())
    schema["columns"].append({"name": "card", "kind": "id", "format": "C[0-9]{3}"})
    folder.write("schema.json", json.dumps(schema))
    text = '[study]\nname = "small"\n[schema]\nfile = "schema.json"\n[output]\nrows = 30\n'
    text += '[method]\nname = "silofuse"\nshared = false\n'
    text += "[method.diffusion]\nsteps = 3\nbatch = 16\nhidden = [8]\ntimesteps = 5\n"
    for name, rows in halves.items():
        text += f'[[parties]]\nname = "{name}"\ndata = "{name}.csv"\ncolumns = {rows[0]}\n'
        folder.write(f"{name}.csv", "\n".join([*map(",".join, rows), ""]))
    folder.write("study.toml", text)
    ends = provision(folder.path, folder.path / "ends", trial=True)
    for name in halves:
        (ends[name] / f"{name}.csv").write_bytes((folder.path / f"{name}.csv").read_bytes())
    return ends


def test_no_table_is_sent_at_the_end_where_columns_stay_with_their_parties(folder):
    """Not even one that lies there, and a party stores none."""
    ends = columns_apart(folder)
    office, told = office_in(ends["coordinator"]), Told()
    office.study.folder.mkdir()
    for name in ("synthetic.csv", "report.html"):
        (office.study.folder / name).write_bytes(b"left over")
    assert office.part_from(told, 1.0) == ["clinic", "office"]
    assert told.words == dict.fromkeys(("clinic", "office"), Part())
    assert not plan_in(ends["clinic"]).brings_results
    policy = ends["clinic"] / "policy.toml"
    policy.write_text(policy.read_text() + "results = true\n")
    with party_at(ends["clinic"], noise="seeded") as (host, _):
        host.owner.part(Part(b"a table", b"a report"))
    assert not (ends["clinic"] / network.RESULTS).exists()


@pytest.mark.parametrize("lacks", ["nothing", "synthetic.csv", "report.html", "room"])
def test_table_and_report_are_sent_together_or_not_at_all(ends, monkeypatch, lacks):
    office, told = office_in(ends["coordinator"]), Told()
    office.study.folder.mkdir()
    for name in ("synthetic.csv", "report.html"):
        if name != lacks:
            (office.study.folder / name).write_bytes(name.encode())
    monkeypatch.setattr(network, "MOST_SENT", 23 if lacks == "room" else 24)
    office.part_from(told, 1.0)
    sent = Part(b"synthetic.csv", b"report.html") if lacks == "nothing" else Part()
    assert told.words == dict.fromkeys(("north", "south"), sent)


def test_columns_that_stay_apart_are_at_their_parties_alone(folder):
    """Each has what it has in one process, drawn ids among it; the coordinator has no column."""
    ends = columns_apart(folder)
    summary, _ = run(ends)
    execute(Study.load(folder.path), noise="seeded")
    for name in ("clinic", "office"):
        file = ends[name] / "synthetic.csv"
        assert file.read_text() == (folder.path / "run" / f"synthetic-{name}.csv").read_text()
        assert S_IMODE(file.stat().st_mode) == 0o600
    assert summary.rows == 30
    office = Study.load(ends["coordinator"]).folder
    assert not list(office.glob("synthetic*"))
    assert not (office / "model").exists()
    assert "no synthetic column is shown here" in (office / "report.html").read_text()
    assert run(ends)[1]  # it had finished


def test_a_study_that_differs_is_shown_at_both_ends(ends, caplog):
    study = ends["north"] / "study.toml"
    study.write_text(study.read_text().replace("epsilon = 1", "epsilon = 0.5"))
    with pytest.raises(InputError, match=r"budget.epsilon = 0.5, and there 1.0"):
        run(ends)
    assert "budget.epsilon = 0.5, and there 1.0" in caplog.text
    assert not (ends["coordinator"] / "run" / "run.json").exists()


def test_versions_that_differ_are_named(ends, monkeypatch):
    office = office_in(ends["coordinator"])
    facts = office.study.facts()
    assert facts["siloweave"]
    monkeypatch.setattr(type(office.study), "facts", lambda self: facts | {"siloweave": "0.0.1"})
    with ExitStack() as stack:
        hosts = {n: stack.enter_context(party_at(ends[n])) for n in ("north", "south")}
        monkeypatch.setattr(type(office.study), "facts", lambda self: facts)
        carrier = stack.enter_context(over_files(office.seals, hosts, ends["north"] / ".." / "s"))
        with pytest.raises(InputError, match=r"siloweave = '0.0.1', and there"):
            execute(office.study, carrier=office.carrier(carrier))


def test_a_roster_of_another_coordinator_or_study_is_refused(ends, folder):
    other = provision(folder.path, folder.path / "others", keys_made_here=True)
    (ends["north"] / "roster.json").write_bytes((other["north"] / "roster.json").read_bytes())
    with (
        pytest.raises(RosterError, match="not signed by the coordinator's key"),
        party_at(ends["north"]),
    ):
        pass
    for name in ("north", "coordinator"):
        study = ends[name] / "study.toml"
        study.write_text(study.read_text().replace('name = "small"', 'name = "large"'))
    with pytest.raises(RosterError, match="is of study 'small'"):
        office_in(ends["coordinator"])


def test_a_key_that_the_roster_does_not_name_is_refused(ends):
    (ends["north"] / "party.key").unlink()
    Identity.load_or_create(ends["north"] / "party.key")
    with (
        pytest.raises(RosterError, match="which the roster does not name"),
        party_at(ends["north"]),
    ):
        pass


@pytest.mark.parametrize("name", ["roster.json", "coordinator.pub", "policy.toml", "schema.json"])
def test_a_file_that_is_missing_is_named(ends, name):
    (ends["north"] / name).unlink()
    with pytest.raises(SiloweaveError, match=name.replace(".", r"\.")), party_at(ends["north"]):
        pass
    assert not (ends["north"] / "ledger.jsonl").exists()


def test_a_policy_that_forbids_the_study_is_named_before_anything_is_answered(ends):
    policy = ends["north"] / "policy.toml"
    policy.write_text(policy.read_text().replace("smallest_roster = 1", "smallest_roster = 3"))
    with pytest.raises(InputError, match="smallest_roster = 3"), party_at(ends["north"]):
        pass
    assert not (ends["north"] / "ledger.jsonl").exists()


# Processes


def started(folder, *words):
    command = [sys.executable, "-m", "siloweave", *words]
    return subprocess.Popen(
        command, cwd=folder, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    )


def children_of(number):
    found = subprocess.run(
        ["pgrep", "-P", str(number)], capture_output=True, text=True, check=False
    )
    return [int(one) for one in found.stdout.split()]


def test_an_end_is_asked_how_questions_travel(ends, folder):
    for words in (["party", "start"], ["coordinator"]):
        name = "north" if words[0] == "party" else "coordinator"
        for more in ([], ["--spool", "s", "--superlink", "127.0.0.1:9092"]):
            code, _, said = folder.call(*words, str(ends[name]), *more)
            assert code == 2
            assert "--spool FOLDER" in said
        for wait in ("0", "-5", "nan"):
            code, _, said = folder.call(*words, ends[name], "--spool", "s", "--wait", wait)
            assert (code, "must be a number in (0, 1e+09]" in said) == (2, True), said


@pytest.mark.parametrize("where", ["gone", "ends", "ends/coordinator"])
def test_a_folder_that_is_not_a_partys_is_named_and_nothing_is_written_there(ends, folder, where):
    before = folder.files()
    code, _, said = folder.call("party", "start", where, "--spool", "s")
    assert code == 2
    assert where in said
    assert "Errno" not in said
    assert folder.files() == before


def _no_file(place, _):
    place.unlink(missing_ok=True)
    place.mkdir(parents=True)


def _no_folder(place, _):
    place.parent.mkdir(exist_ok=True)
    place.write_text("")


def _not_allowed(place, monkeypatch):
    """A file that this user may not open; whoever runs the tests may open all of them."""
    real = io.open

    def opened(path, *args, **kwargs):
        if not isinstance(path, int) and Path(path).absolute() == place.absolute():
            raise PermissionError(13, "Permission denied", str(path))
        return real(path, *args, **kwargs)

    for one in ("io.open", "builtins.open"):
        monkeypatch.setattr(one, opened)


@pytest.mark.parametrize(
    ("name", "place", "spoil"),
    [
        ("north", "nonces", _no_file),
        ("north", "ledger.jsonl", _no_file),
        ("north", "roster.json", _not_allowed),
        ("north", "coordinator.pub", _not_allowed),
        ("north", "study.toml", _not_allowed),
        ("north", "schema.json", _not_allowed),
        ("north", "policy.toml", _not_allowed),
        ("coordinator", "study.toml", _not_allowed),
        ("coordinator", "coordinator.key", _not_allowed),
        ("coordinator", "run/coordinator", _no_folder),
    ],
)
def test_a_file_that_cannot_be_used_is_named_with_what_to_do(
    ends, folder, monkeypatch, name, place, spoil
):
    spoil(ends[name] / place, monkeypatch)
    words = ["party", "start", ends[name], "--data", ends["north"] / "north.csv"]
    words = ["coordinator", ends[name], "--wait", "1"] if name == "coordinator" else words
    monkeypatch.setattr(status, "log_into", lambda end: (end / "log.txt").touch())
    code, _, said = folder.call(*words, "--spool", folder.path / "s")
    assert code == 2
    said = "".join(said.split("\n"))
    assert f"{name}/{place}: " in said
    assert "Errno" not in said
    assert any(advice in said for advice in ("See that", "Put the file", "sk the coordinator"))


@pytest.mark.parametrize(
    "network", [[], pytest.param(["--network"], marks=pytest.mark.engine)], ids=["files", "engine"]
)
def test_every_end_is_a_process_of_its_own(network, ends, folder):
    running = started(folder.path, "poc", "--out", "poc", "--seeded-noise", "--json", *network)
    out, said = running.communicate(timeout=240)
    assert running.returncode == 0, said
    assert '"party": "north"' in out or '"name": "north"' in out
    assert "waiting for the first question" in said
    rows = (folder.path / "poc" / "coordinator" / "run" / "synthetic.csv").read_text()
    execute(Study.load(folder.path), noise="seeded")
    assert rows == (folder.path / "run" / "synthetic.csv").read_text()


@pytest.mark.engine
def test_parties_reach_their_coordinator_by_the_proxy_of_the_environment_alone(folder):
    """The coordinator's name is one that only the proxy can resolve, as behind a firewall."""
    pytest.importorskip("flwr", reason="needs the flower extra: make engine")
    small(folder)
    office, port = "office.invalid", free_port()
    made = provision(folder.path, folder.path / "ends", trial=True, addresses=[office, "127.0.0.1"])
    with connecting.proxy(hosts={office: "127.0.0.1"}) as proxy:

        def way(name):
            return ["--superlink", f"{'127.0.0.1' if name == 'coordinator' else office}:{port}"]

        behind = ["env", f"HTTPS_PROXY=http://127.0.0.1:{proxy.port}", "NO_PROXY=localhost"]
        within = dict.fromkeys(made, behind)
        with Ends(folder.path, made, way, within=within) as running:
            running.start_all()
            assert running.ended() == 0, running.said("coordinator")
            assert running.rows() == here(folder)
            through = f"connecting to {office}:{port} through 127.0.0.1:{proxy.port}"
            assert all(through in running.said(name) for name in running.parties)
            assert "through" not in running.said("coordinator")
        # The party looks once before, and then its node connects; each went by the proxy.
        assert len(proxy.heads) >= 2 * len(running.parties)
        assert all(head.startswith(f"CONNECT {office}:{port} ".encode()) for head in proxy.heads)


@pytest.mark.engine
def test_a_study_joins_a_superlink_that_others_run(folder, tmp_path):
    pytest.importorskip("flwr", reason="needs the flower extra: make engine")
    small(folder)
    word = tmp_path / "tasks.secret"
    word.write_text("of those who may take tasks")
    with SuperLink(tmp_path / "others", "--superexec-auth-secret-file", str(word)) as link:
        made = provision(
            folder.path, folder.path / "ends", trial=True, authority=link.folder / "ca.crt"
        )

        def way(name):
            joining = ["--join", "--join-secret", str(word)] if name == "coordinator" else []
            return ["--superlink", f"localhost:{link.port}", *joining]

        with Ends(folder.path, made, way) as running:
            running.start_all()
            assert running.ended() == 0, running.said("coordinator")
            rows = running.rows()
    execute(Study.load(folder.path), noise="seeded")
    assert rows == (folder.path / "run" / "synthetic.csv").read_text()


def test_ends_of_a_study_trust_the_authority_of_others_and_get_no_key(folder):
    home = folder.path / "others"
    certificates.make_certificates(home, [])
    whole = (home / "ca.crt").read_bytes()
    both = home / "both.pem"
    both.write_bytes((home / "ca.key").read_bytes() + whole)
    words = ["provision", "study.toml", "--keys-made-here", "--authority", str(both)]
    assert folder.call(*words)[0] == 0
    for name in ("coordinator", "north", "south"):
        engine = folder.path / "ends" / name / "engine"
        assert (engine / "ca.crt").read_bytes() == whole
        assert {one.name for one in engine.iterdir()} - {"node.key", "nodes.json"} == {"ca.crt"}
    code, _, said = folder.call(*words, "--address", "office.example.org")
    assert (code, "not both" in said) == (2, True)
    (home / "ca.crt").write_text("no certificate")
    code, _, said = folder.call(*words[:-1], str(home / "ca.crt"))
    assert (code, "cannot be read as a certificate" in said) == (2, True)
    assert folder.call(*words[:3], "--address", "office.example.org")[0] == 0
    office = folder.path / "ends" / "coordinator" / "engine"
    certificates.check_own(office, "office.example.org")  # by an authority of its own again
    north = folder.path / "ends" / "north" / "engine" / "ca.crt"
    assert north.read_bytes() == (office / "ca.crt").read_bytes() != whole


@pytest.mark.slow
def test_a_party_that_ends_ends_the_trial_at_once_and_nothing_stays(ends, folder):
    folder.refuse_misfits()
    (folder.path / "north.csv").write_text("age,sex,job\n200,f,x\n")
    running = started(folder.path, "poc", "--out", "poc", "--wait", "120")
    began = time.monotonic()
    _, said = running.communicate(timeout=100)
    assert time.monotonic() - began < 100
    assert running.returncode == 3
    assert "age" in said


def lives(number):
    state = Path(f"/proc/{number}/stat")
    return state.exists() and state.read_text().rpartition(")")[2].split()[0] != "Z"


@pytest.mark.skipif(sys.platform == "win32", reason="signals of POSIX")
def test_what_a_killed_trial_started_ends_too(ends, folder):
    running = started(folder.path, "poc", "--out", "poc", "--wait", "300")
    until = time.monotonic() + 60
    while len(found := children_of(running.pid)) < 3 and time.monotonic() < until:
        time.sleep(0.05)
    assert len(found) == 3
    running.send_signal(signal.SIGKILL)
    running.communicate(timeout=30)
    until = time.monotonic() + 30
    while any(map(lives, found)) and time.monotonic() < until:
        time.sleep(0.1)
    assert not any(map(lives, found))
