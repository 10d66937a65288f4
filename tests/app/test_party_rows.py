"""The rows that a party reads: its owner is told which, before a plan is approved and at starts."""

import json
import os
import shutil

import pytest

from siloweave.app.network import answers_in, party_in, plan_in, provision, refusal_in
from siloweave.app.seen_rows import SEEN_ROWS, RowsNote, compare_rows
from siloweave.app.status_facts import status_of
from siloweave.errors import InputError, LedgerError
from tests.app.processes import Ends, small, told

FIXED = "party 'north' does not take part: its rows do not fit this study. "
"""What the coordinator hears of rows, whatever is wrong with them."""


@pytest.fixture
def north(folder):
    small(folder)
    return provision(folder.path, folder.path / "ends", trial=True)["north"]


def opened(end, rows):
    """What a party says of its rows when it starts: the line, and what is odd."""
    lines = []
    with party_in(end, rows, noise="seeded", show_rows=lambda *line: lines.append(line)):
        pass
    (line,) = lines
    return line


def test_a_start_says_which_rows_are_read(folder, north):
    rows = folder.path / "north.csv"
    os.utime(rows, (1.7e9, 1.7e9))
    line, warning = opened(north, "ends/../north.csv")
    assert line.startswith(f"party 'north': reads {rows} (changed 2023-11-1")
    assert line.endswith("), 3 columns, 40 rows that take part")
    assert warning == ""
    assert opened(north, rows) == (line, "")
    assert (north / SEEN_ROWS).stat().st_mode & 0o777 == 0o600


def test_other_rows_than_those_of_the_last_start_are_pointed_out(folder, north):
    rows = folder.path / "north.csv"
    opened(north, rows)
    odd = "the rows are not those of the last start"
    assert opened(north, folder.path / "south.csv")[1] == f"{odd}, which were in {rows}"
    assert opened(north, folder.path / "south.csv")[1] == ""
    opened(north, rows)
    rows.write_text(rows.read_text() + "20,f,x\n")
    assert opened(north, rows)[1] == odd


def test_a_start_does_not_say_that_it_reads_what_cannot_be_read(tmp_path):
    note = compare_rows(tmp_path, tmp_path / "none.csv")
    assert note.line("north", None, None) == f"party 'north': cannot read {tmp_path / 'none.csv'}"


def test_rows_that_do_not_fit_are_not_those_of_a_start(folder, north):
    rows = folder.path / "north.csv"
    opened(north, rows)
    with answers_in(north, folder.path / "none.csv") as (_, _, reason):
        assert "there is no file" in reason
    assert opened(north, rows)[1] == ""


def test_what_is_remembered_of_rows_may_be_damaged(folder, north):
    (north / SEEN_ROWS).write_bytes(b"{")
    assert opened(north, folder.path / "north.csv")[1] == ""
    assert b"north.csv" in (north / SEEN_ROWS).read_bytes()


def test_the_command_prints_both_lines(folder, north):
    words = "party", "start", north, "--spool", "spool", "--until", "0.01s", "--data"
    folder.call(*words, "north.csv")
    code, out, said = folder.call(*words, "south.csv")
    assert (code, out) == (0, "")
    assert f"party 'north': reads {folder.path / 'south.csv'} (changed 2" in told(said)
    assert "look at this first: the rows are not those of the last start" in told(said)


def test_a_database_has_no_time(folder):
    note = RowsNote("sqlite:///ward.db#stays", "", "")
    assert note.line("north", None, None) == "party 'north': reads sqlite:///ward.db#stays"


# Rows that cannot be read


def missing(rows):
    rows.unlink()


def empty(rows):
    rows.write_bytes(b"")


def binary(rows):
    rows.write_bytes(bytes(range(200, 256)) * 20)


def renamed(rows):
    rows.write_text(rows.read_text().replace("job", "station", 1))


def shorter(rows):
    rows.write_text("age,sex\n20,f\n30,m\n")


def wider(rows):
    lines = rows.read_text().splitlines()
    rows.write_text("\n".join([f"{lines[0]},ward", *(f"{line},1" for line in lines[1:]), ""]))


BROKEN = {
    missing: "there is no file 'north.csv'",
    empty: "'north.csv' is empty",
    binary: "'north.csv'",
    renamed: "north.csv has 'station' and lacks 'job'. Rename it in the file, or ask the coord",
    shorter: "north.csv lacks 'job'. Add it to the file, or ask the coordinator",
    wider: "north.csv has 'ward', which the study does not know. Take it out of the file, or ask",
}


@pytest.mark.parametrize("spoil", BROKEN)
def test_rows_that_cannot_be_read_decline_the_study_in_one_sentence(folder, north, spoil):
    spoil(folder.path / "north.csv")
    with answers_in(north, "north.csv") as (_, reply, reason):
        assert BROKEN[spoil] in reason
        assert reason.count("party 'north'") <= 1
        with pytest.raises(InputError) as caught:
            reply(None)
    said = str(caught.value)
    assert said.startswith(FIXED)
    assert "start north and the coordinator again" in said
    assert not any(word in said for word in ("north.csv", "station", "job", "ward"))


@pytest.mark.parametrize("until", [(), ("--until", "1s")])
@pytest.mark.parametrize("spoil", [missing, renamed])
def test_a_party_whose_rows_do_not_fit_ends_with_3(folder, north, spoil, until):
    spoil(folder.path / "north.csv")
    words = "party", "start", north, "--data", "north.csv", "--spool", "spool", "--wait", "0.2"
    code, _, said = folder.call(*words, *until)
    assert code == 3
    assert BROKEN[spoil] in told(said)
    assert "takes no part" in told(said)


def test_nobody_learns_of_rows_before_the_owner_has_approved(folder, north):
    policy = (north / "policy.toml").read_text()
    (north / "policy.toml").write_text(policy.replace('"auto"', '"by hand"'))
    missing(folder.path / "north.csv")
    with (
        pytest.raises(InputError, match="has not approved") as caught,
        party_in(north, "north.csv"),
    ):
        pass
    assert caught.value.declined == ""


def test_a_file_of_a_header_alone_is_one_of_no_rows_and_takes_part(folder, north):
    """Whether a party takes part must not show that somebody has the first row."""
    file = folder.path / "north.csv"
    file.write_text(file.read_text().splitlines()[0] + "\n")
    with answers_in(north, "north.csv") as (_, _, reason):
        assert reason == ""


@pytest.mark.slow
def test_a_coordinator_hears_of_an_empty_file_at_once(folder, north):
    empty(folder.path / "north.csv")
    made = {"coordinator": north.parent / "coordinator", "north": north}
    made["south"] = north.parent / "south"
    files = lambda name: ["--spool", str(folder.path / "spool")]  # noqa: E731
    with Ends(folder.path, made, files) as ends:
        ends.start("north")
        ends.start("south")
        ends.start("coordinator")
        assert ends.ended() == 3
        assert ends.over("north") == 3
        assert FIXED in told(ends.said("coordinator"))
        assert "empty" not in told(ends.said("coordinator"))
    assert "is empty" in told((folder.path / "north.log").read_text())


# A plan


@pytest.mark.parametrize(
    ("spoil", "sentence"),
    [
        (None, "north.csv: first line read: 3 of 3 columns found"),
        (renamed, "north.csv does not fit: it lacks 'job', and has 'station'. Approve when it"),
        (shorter, "north.csv does not fit: it lacks 'job'. Approve when it does."),
        (wider, "north.csv does not fit: it has 'ward'. Approve when it does."),
        (empty, "north.csv cannot be read: 'north.csv' is empty; it needs a first line of"),
    ],
)
def test_a_plan_reads_the_header_and_an_approval_does_not_depend_on_it(
    folder, north, spoil, sentence
):
    if spoil is not None:
        spoil(folder.path / "north.csv")
    code, out, _ = folder.call("party", "plan", north, "--data", "north.csv")
    assert code == 0
    assert sentence in told(out)
    assert ("look at this first" in told(out)) == (spoil is not None)
    assert plan_in(north, "north.csv").digest == plan_in(north).digest
    _, out, _ = folder.call("party", "plan", north, "--data", "north.csv", "--json")
    assert json.loads(out)["fits"] == (spoil is None)


def test_a_plan_says_who_would_take_part_last_before_the_yes(folder, north):
    _, out, _ = folder.call("party", "plan", north, "--data", "north.csv")
    shown = told(out)
    who = "You would take part as 'north'. If you are not north, do not approve."
    before, _, after = shown.partition(who)
    assert after.startswith(" The policy here allows it. To approve exactly this:")
    assert "separator, encoding and header of north.csv are detected, as the study" in before


def test_a_plan_says_of_ids_that_they_are_not_counted(folder, north):
    for path in (folder.path, *north.parent.iterdir()):
        schema = json.loads((path / "schema.json").read_text())
        schema["columns"].insert(0, {"name": "patient_no", "kind": "id"})
        (path / "schema.json").write_text(json.dumps(schema))
    _, out, _ = folder.call("party", "plan", north)
    assert "counted: age, sex, job; read, and never counted or sent: patient_no" in told(out)


# Old copies of a study's folder


@pytest.fixture
def home(folder, north):
    """A party's folder, with its study's below, and a policy for one such study."""
    home = folder.path / "home"
    home.mkdir()
    shutil.move(north, home / "third")
    for name in ("party.key", "policy.toml", "account.jsonl"):
        shutil.move(home / "third" / name, home / name)
    return home


def test_an_old_copy_of_a_folder_is_no_reason_to_raise_the_policy(folder, home):
    shutil.copytree(home / "third", folder.path / "backup")
    opened(home / "third", "north.csv")
    shutil.rmtree(home / "third")
    shutil.copytree(folder.path / "backup", home / "third")
    sentence = (
        f"{home / 'account.jsonl'} counts study 'small' already, with another ledger: this folder "
        f"is an old or second copy. Put the newest copy of {home / 'third'} back; do not raise "
        "policy.toml for this"
    )
    assert refusal_in(home / "third").startswith(sentence)
    with pytest.raises(LedgerError) as caught:
        opened(home / "third", "north.csv")
    assert sentence in str(caught.value)
    assert caught.value.declined == "its ledger does not allow this study"
    status = status_of(home / "third")
    assert (status.state, sentence in status.why) == ("an old or second copy", True)


def test_a_plan_of_a_copy_that_the_policy_allows_says_that_it_counts_twice(folder, home):
    policy = (home / "policy.toml").read_text()
    policy = policy.replace("epsilon_in_all = 1.0", "epsilon_in_all = 9.0")
    (home / "policy.toml").write_text(policy.replace("delta = 1e-05", "delta = 1e-03"))
    shutil.copytree(home / "third", home / "copy")
    opened(home / "third", "north.csv")
    said = "counts study 'small' already, with another ledger. If"
    for name in ("third", "copy"):
        code, _, err = folder.call("party", "plan", home / name, "--data", "north.csv")
        assert (code, said in told(err)) == (0, name == "copy")


def test_a_policy_that_forbids_more_than_that_is_named(home):
    shutil.copytree(home / "third", home / "copy")
    opened(home / "third", "north.csv")
    policy = (home / "policy.toml").read_text()
    changed = policy.replace("smallest_roster = 1", "smallest_roster = 7")
    (home / "policy.toml").write_text(changed)
    assert "smallest_roster = 7" in refusal_in(home / "copy")
