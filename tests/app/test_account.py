"""A party's account: what it holds, and when it is not used."""

import errno
import json
import os
import shutil
import subprocess
import sys
from contextlib import ExitStack
from pathlib import Path

import pytest

from siloweave.app import account as accounts
from siloweave.app.account import (
    ACCOUNT_FILE,
    STATE_FOLDER,
    Charged,
    create_account,
    load_or_create_home,
    open_account,
    read_account,
    read_record,
    state_folder,
)
from siloweave.app.console import print_account
from siloweave.app.network import AccountView, party_in, provision, refusal_in, spelled_keys
from siloweave.app.policy import write_policy
from siloweave.app.status_facts import status_of
from siloweave.errors import InputError, LedgerError
from siloweave.federation.frames import keys_for
from siloweave.privacy.ledger import KEY_FILE, Identity, Ledger
from tests.app.processes import small

DELTA = 1e-5


class Home:
    """A party's folder with a key, an account and a policy, and studies that others provision."""

    def __init__(self, folder, *, epsilon_in_all=3.0):
        self.folder, self.path = folder, folder.path / "home"
        self.path.mkdir()
        self.identity = load_or_create_home(self.path)
        write_policy(self.path)
        text = (self.path / "policy.toml").read_text()
        text = text.replace("epsilon_in_all = 3.0", f"epsilon_in_all = {epsilon_in_all}")
        text = text.replace("delta = 1e-5 ", "delta = 1e-3 ")
        text = text.replace('approval = "by hand"', 'approval = "auto"')
        (self.path / "policy.toml").write_text(text)
        small(folder)
        self.word = spelled_keys(keys_for("small", self.identity))

    def study(self, place):
        """A study's folder in which the party is north."""
        made = provision(
            self.folder.path,
            self.folder.path / f"ends-{place}",
            {"north": self.word},
            keys_made_here=True,
        )
        shutil.move(made["north"], self.path / place)
        return self.path / place

    def swapped(self, place):
        """A study's folder in which the party's word stands under the other party's name."""
        made = provision(
            self.folder.path,
            self.folder.path / f"ends-{place}",
            {"south": self.word},
            keys_made_here=True,
        )
        shutil.move(made["south"], self.path / place)
        return self.path / place

    def start(self, study):
        with party_in(study, self.folder.path / "north.csv", noise="seeded") as (host, _):
            return host.ledger.header

    @property
    def account(self):
        return self.path / ACCOUNT_FILE

    @property
    def costs(self):
        return [one.cost for one in read_account(self.path, self.identity).entries]


@pytest.fixture
def home(folder):
    return Home(folder)


@pytest.fixture
def state(tmp_path, monkeypatch):
    """A state folder of a test's own."""
    monkeypatch.setenv(STATE_FOLDER, str(tmp_path / "state"))
    return tmp_path / "state"


def test_a_study_is_entered_whole_before_its_ledger_exists(home, monkeypatch):
    study = home.study("flu")
    append, seen = accounts.OpenAccount.append, []

    def appending(self, *args, **named):
        append(self, *args, **named)
        seen.append((study / "ledger.jsonl").exists())

    monkeypatch.setattr(accounts.OpenAccount, "append", appending)
    home.start(study)
    assert seen == [False]
    (entry,) = read_account(home.path, home.identity).entries
    assert (entry.study, entry.epsilon, entry.delta) == ("small", 1.0, DELTA)
    assert set(entry.parties) == {"north", "south"}
    assert entry.parties["north"] == home.identity.public
    assert len(entry.coordinator) == 32


def test_the_same_folder_is_entered_once_and_a_new_one_anew(home):
    first, second = home.study("flu"), home.study("flu-again")
    headers = {home.start(first) for _ in range(2)}
    assert len(headers) == 1
    assert home.costs == [(1.0, DELTA)]
    home.start(second)
    assert home.costs == [(1.0, DELTA)] * 2


@pytest.mark.parametrize("lose", ["moved", "removed", "deeper"])
def test_a_study_counts_wherever_its_folder_is(folder, lose):
    home = Home(folder, epsilon_in_all=1.5)
    first, second = home.study("flu"), home.study("asthma")
    home.start(first)
    if lose == "removed":
        shutil.rmtree(first)
    else:
        place = folder.path / "old" if lose == "moved" else home.path / "2026" / "flu"
        place.parent.mkdir(exist_ok=True)
        shutil.move(first, place)
    assert "1.0 of a row is spent before it, and 2.0 would be with it" in refusal_in(second)
    with pytest.raises(InputError, match="is spent before it"):
        home.start(second)
    assert home.costs == [(1.0, DELTA)]
    assert not (second / "ledger.jsonl").exists()


def test_a_moved_folder_continues_its_study(home):
    first = home.study("flu")
    header = home.start(first)
    shutil.move(first, home.path / "influenza")
    assert home.start(home.path / "influenza") == header
    assert home.costs == [(1.0, DELTA)]


def test_a_study_that_asks_for_more_is_entered_with_the_difference(home):
    study = home.study("flu")
    home.start(study)
    with open_account(home.path, home.identity) as opened:
        number = opened.account.entries[0].ledger
        opened.require(number, Charged(1.75, 2 * DELTA), study="small")
        opened.require(number, Charged(1.0, DELTA), study="small")  # never less
        assert opened.account.charged(number) == (1.75, 2 * DELTA)
        opened.require(number, Charged(float("inf"), DELTA), study="small")
    entries = read_account(home.path, home.identity).entries
    assert [(one.kind, one.epsilon) for one in entries] == [
        ("study", 1.0),
        ("more", 0.75),
        ("more", None),
    ]


def test_a_ledger_that_the_account_does_not_know_is_refused(home):
    study = home.study("flu")
    identity = home.identity
    Ledger("north", path=study / "ledger.jsonl", identity=identity).close()
    with pytest.raises(LedgerError, match="does not know it"):
        home.start(study)
    assert home.costs == []
    assert "does not know it" in status_of(study).why


def test_a_killed_party_has_its_study_entered_once(home, monkeypatch):
    """After the account has the study, and before there is a ledger."""
    study = home.study("flu")
    with monkeypatch.context() as patch:
        patch.setattr("siloweave.app.network.study_party", None)
        with pytest.raises(TypeError):
            home.start(study)
    assert not (study / "ledger.jsonl").exists()
    assert home.costs == [(1.0, DELTA)]
    home.start(study)
    assert home.costs == [(1.0, DELTA)]


def edited(file):
    file.write_text(file.read_text().replace('"epsilon":1.0', '"epsilon":0.1'))


def of_another_key(file):
    other = file.parent.parent / "other"
    other.mkdir()
    create_account(other, Identity.load_or_create(other / KEY_FILE))
    shutil.copy(other / ACCOUNT_FILE, file)


def without_its_first_study(file):
    lines = file.read_bytes().splitlines(keepends=True)
    file.write_bytes(b"".join([lines[0], *lines[2:]]))


def shortened(file):
    file.write_bytes(b"".join(file.read_bytes().splitlines(keepends=True)[:-1]))


def emptied(file):
    file.write_bytes(b"")


WRONG = {
    "gone": (Path.unlink, "is gone"),
    "edited": (edited, "line 2: was edited"),
    "another key": (of_another_key, "is the account of the key"),
    "a line removed": (without_its_first_study, "line 2: was edited, or lines before it"),
    "shortened": (shortened, "is from a backup"),
    "emptied": (emptied, "is empty"),
}


@pytest.mark.parametrize("what", WRONG)
def test_an_account_that_is_wrong_is_named_and_nothing_is_released(home, what):
    first, second = home.study("flu"), home.study("asthma")
    home.start(first)
    home.start(home.study("measles"))
    spoil, said = WRONG[what]
    spoil(home.account)
    left = home.account.read_bytes() if home.account.exists() else None
    for study in (first, second):
        with pytest.raises(LedgerError, match=said) as caught:
            home.start(study)
        assert "Nothing was released" in str(caught.value)
        assert "siloweave party account" in str(caught.value) or what == "another key"
        assert caught.value.declined == ""  # its coordinator learns nothing of it
        assert said in status_of(study).why
    assert not (second / "ledger.jsonl").exists()
    assert (home.account.read_bytes() if home.account.exists() else None) == left


def test_an_old_copy_is_used_again_once_its_owner_has_said_what_was_spent_since(home, folder):
    home.start(home.study("flu"))
    copy = folder.path / "copy.jsonl"
    call = "party", "account", "--folder", home.path
    assert folder.json(*call, "--backup", copy)["trouble"] == ""
    later = home.study("asthma")
    home.start(later)
    home.account.unlink()
    shown = folder.json(*call, "--restore", copy)
    assert "is from a backup" in shown["trouble"]
    assert shown["proposal"] == [1.0, DELTA]
    with pytest.raises(LedgerError, match="is from a backup"):
        home.start(home.path / "flu")
    shown = folder.json(*call, "--spent-since", "1.25", "--delta", "1e-5")
    assert (shown["trouble"], shown["epsilon"], shown["proposal"]) == ("", 2.25, None)
    assert shown["epsilon_left"] == 0.75
    home.start(home.path / "flu")
    with pytest.raises(LedgerError, match="does not know it"):
        home.start(later)


def test_a_copy_that_lacks_nothing_is_used_at_once(home, folder):
    home.start(home.study("flu"))
    copy = folder.path / "copy.jsonl"
    call = "party", "account", "--folder", home.path
    folder.json(*call, "--backup", copy)
    home.account.unlink()
    assert folder.json(*call, "--restore", copy)["trouble"] == ""
    home.start(home.path / "flu")


def test_a_backup_replaces_older_copies_alone_and_a_newer_account_stays(home, folder):
    call = "party", "account", "--folder", home.path
    copy = folder.path / "copy.jsonl"
    folder.json(*call, "--backup", copy)
    old = copy.read_bytes()
    home.start(home.study("flu"))
    folder.json(*call, "--backup", copy)
    assert copy.read_bytes() == home.account.read_bytes() != old
    copy.write_bytes(old)
    code, _, said = folder.call(*call, "--restore", copy)
    assert (code, "it is newer, or has other lines" in said.replace("\n", " ")) == (5, True)
    notes = folder.path / "notes.txt"
    notes.write_text("mine")
    code, _, said = folder.call(*call, "--backup", notes)
    assert (code, notes.read_text()) == (2, "mine")
    of_another_key(copy)
    code, _, said = folder.call(*call, "--restore", copy)
    assert (code, "is the account of the key" in said) == (5, True)
    assert str(copy) in said.replace("\n", "")
    code, _, said = folder.call(*call, "--restore", copy, "--spent-since", "0")
    assert (code, "one at a time" in said) == (2, True)


def test_what_was_copied_is_named_and_a_backup_is_another_file(home, folder):
    call = "party", "account", "--folder", home.path
    copy = folder.path / "copy.jsonl"
    _, _, said = folder.call(*call, "--backup", copy)
    assert f"Wrote {copy}: a copy of the account" in said.replace("\n", " ").replace("  ", " ")
    _, _, said = folder.call(*call, "--restore", copy)
    assert "account.jsonl: as in" in said.replace("\n", " ")
    before = home.account.read_bytes()
    for place, problem in ((home.account, "is the account itself"), (home.path, "is a folder")):
        code, _, said = folder.call(*call, "--backup", place)
        assert (code, problem in said.replace("\n", " ")) == (2, True), said
    assert home.account.read_bytes() == before


def test_a_file_that_is_no_backup_is_named_and_not_the_account(home, folder):
    notes = folder.path / "notes.txt"
    notes.write_text("mine")
    for content in ("mine\n", ""):
        notes.write_text(content)
        words = "party", "account", "--folder", home.path, "--restore", notes
        code, _, said = folder.call(*words)
        said = said.replace("\n", " ")
        assert code == 5
        assert "Give another backup with --restore" in said
        assert str(home.account) not in said


def test_an_old_account_leaves_nothing_for_other_studies(home, folder):
    call = "party", "account", "--folder", home.path
    copy = folder.path / "copy.jsonl"
    folder.json(*call, "--backup", copy)
    home.start(home.study("flu"))
    home.account.write_bytes(copy.read_bytes())
    shown = folder.json(*call)
    assert "it has 1 line, and this machine knows of 2" in shown["trouble"]
    assert (shown["epsilon_left"], shown["delta_left"]) == (0, 0)
    _, shown, _ = folder.call(*call)
    assert "leaves nothing for other studies, until its owner" in shown.replace("\n", " ")


def test_a_home_on_a_new_machine_waits_for_its_owner(home, state, folder):
    """The state folder of this test knows nothing of the account, which has a study."""
    with open_account(home.path, home.identity) as opened:  # as yet without a study: taken up
        opened.append("study", Charged(1.0, DELTA), study="flu", ledger="1")
    shutil.rmtree(state)
    with pytest.raises(LedgerError, match="this machine has no record of it"):
        read_account(home.path, home.identity)
    shown = folder.json("party", "account", "--folder", home.path, "--spent-since", "0")
    assert (shown["trouble"], shown["epsilon"]) == ("", 1.0)
    assert read_account(home.path, home.identity).total == (1.0, DELTA)


def test_a_home_that_moved_on_one_machine_is_known(home, folder):
    home.start(home.study("flu"))
    shutil.move(home.path, folder.path / "moved")
    home.path = folder.path / "moved"
    home.start(home.path / "flu")
    home.start(home.study("asthma"))
    assert Path(read_record(home.identity.public).folder) == home.path


def test_a_second_home_of_one_party_is_refused(home, folder):
    home.start(home.study("flu"))
    shutil.copytree(home.path, folder.path / "twin")
    twin = folder.path / "twin"
    with (
        pytest.raises(LedgerError, match="is a second home of one party"),
        party_in(twin / "flu", folder.path / "north.csv"),
    ):
        pass
    code, _, said = folder.call("party", "account", "--folder", twin, "--spent-since", "0")
    assert (code, "is a second home" in said) == (5, True)
    home.start(home.path / "flu")
    shutil.rmtree(home.path)
    read_account(twin, home.identity)  # now it is the only one


def test_an_old_home_without_an_account_is_taken_over(home, folder):
    """Its studies below are proposed, and what its owner says is entered."""
    home.start(home.study("flu"))
    home.account.unlink()
    (state_folder() / "accounts").joinpath(
        accounts.fingerprint(home.identity.public).replace(" ", "") + ".json"
    ).unlink()
    call = "party", "account", "--folder", home.path
    shown = folder.json(*call)
    assert "is gone, or its key is older than accounts are" in shown["trouble"]
    assert shown["proposal"] == [1.0, DELTA]
    code, out, _ = folder.call(*call)
    assert code == 0
    assert "--spent-since 1 --delta 1e-05" in out
    assert folder.json(*call, "--spent-since", "1", "--delta", "1e-5")["epsilon"] == 1.0
    home.start(home.study("asthma"))
    assert home.costs == [(1.0, DELTA)] * 2


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (("--spent-since", "-1"), "--spent-since=-1.0 must be a number"),
        (("--spent-since", "nan"), "--spent-since=nan must be a number"),
        (("--spent-since", "1", "--delta", "1"), "--delta=1.0 must be a number in [0, 1)"),
        (("--restore", "nowhere"), "--restore nowhere: there is no such file"),
    ],
)
def test_what_cannot_be_stated_is_named(home, folder, words, said):
    before = home.account.read_bytes()
    code, _, told = folder.call("party", "account", "--folder", home.path, *words)
    assert (code, said in told.replace("\n", " ")) == (2, True), told
    assert home.account.read_bytes() == before


def test_infinity_can_be_stated(home, folder):
    call = "party", "account", "--folder", home.path
    shown = folder.json(*call, "--spent-since", "inf")
    assert shown["epsilon_left"] == 0.0
    study = home.study("flu")
    with pytest.raises(InputError, match="inf of a row is spent before it"):
        home.start(study)


@pytest.mark.parametrize("where", ["account", "state"])
def test_a_full_disk_leaves_no_part_of_a_line_and_nothing_is_released(home, monkeypatch, where):
    study = home.study("flu")
    before = home.account.read_bytes()
    write = os.write

    def full(descriptor, data):
        if where == "account" and b'"kind":"study"' in bytes(data):
            write(descriptor, data[: len(data) // 2])
            raise OSError(errno.ENOSPC, "No space left on device")
        return write(descriptor, data)

    def no_record(*args, **named):
        raise OSError(errno.ENOSPC, "No space left on device")

    with monkeypatch.context() as patch:
        patch.setattr(os, "write", full)
        if where == "state":
            patch.setattr(accounts, "write_whole", no_record)
        with pytest.raises(LedgerError, match=r"No space left on device.*Nothing was released"):
            home.start(study)
    assert not (study / "ledger.jsonl").exists()
    if where == "account":
        assert home.account.read_bytes() == before
    home.start(study)
    assert home.costs == [(1.0, DELTA)]


def test_several_processes_enter_studies_at_once(home):
    """Each waits for the others, and no line is lost."""
    code = (
        "import sys; from pathlib import Path\n"
        "from siloweave.app.account import Charged, open_account\n"
        "from siloweave.privacy.ledger import Identity\n"
        "home = Path(sys.argv[1]); identity = Identity.load(home / 'party.key')\n"
        "for place in range(5):\n"
        "    with open_account(home, identity) as opened:\n"
        "        opened.require(sys.argv[2] + str(place), Charged(0.5, 0.0), study='s')\n"
    )
    with ExitStack() as stack:
        running = [
            stack.enter_context(
                subprocess.Popen([sys.executable, "-c", code, str(home.path), str(name)])
            )
            for name in range(3)
        ]
        assert [one.wait(100) for one in running] == [0, 0, 0]
    assert read_account(home.path, home.identity).total == (7.5, 0.0)


def test_two_studies_that_only_one_budget_is_left_for_do_not_both_start(folder):
    """The policy is asked again while the account is locked."""
    home = Home(folder, epsilon_in_all=1.0)
    first, second = home.study("flu"), home.study("asthma")
    with ExitStack() as stack:
        stack.enter_context(party_in(first, folder.path / "north.csv", noise="seeded"))
        with pytest.raises(InputError, match="epsilon_in_all"):
            home.start(second)
    assert home.costs == [(1.0, DELTA)]


def test_a_key_is_not_made_anew_beside_the_account_of_a_lost_one(home, folder):
    (home.path / KEY_FILE).unlink()
    code, _, said = folder.call("party", "key", "flu", "--folder", home.path)
    assert code == 5
    assert "party.key is gone" in said.replace("\n", " ")
    assert not (home.path / KEY_FILE).exists()


def test_a_key_comes_with_an_account_and_a_fingerprint_to_read_aloud(folder):
    found = folder.json("party", "key", "flu", "--folder", folder.path / "new")
    groups = found["fingerprint"].split(" ")
    assert [len(one) for one in groups] == [4] * 8
    assert (folder.path / "new" / ACCOUNT_FILE).stat().st_mode & 0o777 == 0o600
    shown = folder.json("party", "account", "--folder", folder.path / "new")
    assert (shown["fingerprint"], shown["entries"]) == (found["fingerprint"], [])
    _, out, said = folder.call("party", "key", "flu", "--folder", folder.path / "new")
    assert out.strip() == found["key"]  # the word alone, for a script
    assert found["fingerprint"] in said


def test_where_state_lies_follows_the_systems_variables(monkeypatch, tmp_path):
    monkeypatch.delenv(STATE_FOLDER)
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path))
    monkeypatch.setenv("LOCALAPPDATA", str(tmp_path))
    assert state_folder().is_relative_to(tmp_path)
    monkeypatch.setenv(STATE_FOLDER, str(tmp_path / "named"))
    assert state_folder() == tmp_path / "named"


def test_a_record_that_cannot_be_read_is_named(home):
    home.start(home.study("flu"))
    (file,) = (
        one
        for one in (state_folder() / "accounts").iterdir()
        if accounts.fingerprint(home.identity.public).replace(" ", "") in one.name
    )
    file.write_text("{")
    with pytest.raises(LedgerError, match=r"cannot be read.*Nothing was released"):
        read_account(home.path, home.identity)


def test_the_account_is_shown_with_dates_and_what_is_left(home, folder):
    home.start(home.study("flu"))
    code, out, said = folder.call("party", "account", "--folder", home.path)
    assert (code, said) == (0, "")
    assert "small" in out
    assert "policy.toml leaves ε = 2 of a row" in out
    assert json.loads(json.dumps(folder.json("party", "account", "--folder", home.path)))


def test_what_is_proposed_to_state_and_what_is_left_understate_no_cost(capsys):
    """Six digits may be less than was spent, and three that are rounded up more than is left."""
    view = AccountView(
        folder="home",
        fingerprint="",
        entries=(),
        epsilon=1.2345678,
        delta=1.2345678e-6,
        epsilon_left=0.1239,
        delta_left=1.239e-6,
        trouble="its account is gone",
        proposal=Charged(1.2345678, 1.2345678e-6),
    )
    print_account(view, json=False)
    out = capsys.readouterr().out
    assert "--spent-since 1.2345678 --delta 1.2345678e-06" in out
    assert "policy.toml leaves ε = 0.123 of a row at δ = 1.23e-6 for other studies" in out
