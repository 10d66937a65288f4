"""Names that others wrote never reach a terminal as they are."""

import json
import logging

import pytest

from siloweave.app import console
from siloweave.app.network import known_keys, plan_in, provision, refusal_in
from siloweave.app.status import OneLine
from siloweave.errors import StudyError, printable
from siloweave.federation.watch import WIDTH, line_of
from tests.app.processes import small

NASTY = "age\x1b[2J\x1b]0;owned\x07\u202egnp\x9b1m"
SHOWN = r"age\u001b[2J\u001b]0;owned\u0007\u202egnp\u009b1m"
BAD = ("\x1b", "\x07", "\u202e", "\x9b")


@pytest.fixture
def ends(folder):
    small(folder)
    for name in ("schema.json", "north.csv", "south.csv"):
        text = (folder.path / name).read_text()
        as_json = json.dumps(NASTY)[1:-1]
        old, new = ("age", NASTY) if name.endswith("csv") else ('"age"', f'"{as_json}"')
        folder.write(name, text.replace(old, new, 1))
    return provision(folder.path, folder.path / "ends", trial=True)


def is_clean(*texts):
    return not any(bad in text for text in texts for bad in BAD)


def test_a_plan_a_refusal_and_a_status_show_a_columns_name_escaped(ends, folder):
    north = ends["north"]
    for words in (["party", "plan", north], ["status", north], ["party", "plan", north, "--json"]):
        code, out, said = folder.call(*words)
        assert code == 0, said
        assert is_clean(out, said)
    policy = north / "policy.toml"
    policy.write_text(policy.read_text() + 'columns = ["sex"]\n')
    code, out, said = folder.call("party", "plan", north)
    assert is_clean(out, said)
    assert SHOWN in out.replace("\n", "")
    found = json.loads(folder.call("party", "plan", north, "--json")[1])
    assert NASTY in found["columns"]  # a program gets the name itself


def test_an_error_names_it_escaped(ends, folder):
    north = ends["north"]
    (folder.path / "north.csv").write_text("sex,job\nf,x\n")
    words = "party", "start", north, "--data", "north.csv", "--spool", "spool", "--wait", "0.1"
    code, out, said = folder.call(*words)
    assert code == 3  # the party takes no part in the study
    assert is_clean(out, said, (north / "log.txt").read_text())
    assert r"\x1b[2J" in said  # as Python quotes it


def test_a_log_shows_it_escaped_and_in_one_line():
    record = logging.LogRecord("siloweave", logging.INFO, "", 1, "%s", (f"{NASTY}\nmore",), None)
    assert OneLine().format(record) == SHOWN + r"\nmore"


def test_a_table_and_a_result_show_it_escaped(capsys):
    console.print_result({}, f"wrote {NASTY}", json=False)
    console.print_methods({NASTY: FakeInfo()}, json=False)
    console.print_warning(NASTY)
    out, err = capsys.readouterr()
    assert is_clean(out, err)
    assert SHOWN in out
    assert SHOWN in err


class FakeInfo:
    split = family = guarantee = trust = paper = title = NASTY


@pytest.mark.parametrize("text", ["Größe, 年齢, é", "two\nlines\tand a tab", "", "plain [ok]"])
def test_what_is_printable_stays(text):
    assert printable(text) == text


# Keys


def test_a_plan_shows_keys_to_read_aloud_and_which_are_new_or_changed(folder):
    from tests.app.test_account import Home

    home = Home(folder)
    first = home.study("flu")
    said = known_keys(first)
    assert said["north"] == "this party's own: the study knows it as 'north'"
    assert said["south"] == said["coordinator"] == "new here: compare it by telephone"
    home.start(first)
    assert known_keys(first)["south"].startswith("new")  # this study is no earlier one
    second = home.study("asthma")  # of another coordinator, and south has a new key
    assert known_keys(second)["south"].startswith("CHANGED: in study 'small' of 20")
    home.start(second)
    (folder.path / "ends-asthma").rename(folder.path / "ends-third")
    again = home.study("third")  # made by the coordinator of asthma, with south's key
    for name in ("south", "coordinator"):
        assert known_keys(again)[name].startswith("known from study 'small'")
    swapped = home.swapped("swapped")  # the coordinator took each party's word for the other's
    notes = known_keys(swapped)
    assert notes["south"].startswith("this party's own: the study knows it as 'south'. CHANGED: in")
    assert "it was the key of 'north'" in notes["south"]
    assert "It lists this party as 'south', and another one as 'north'" in refusal_in(swapped)
    with pytest.raises(StudyError, match="If keys were swapped, ask the coordinator"):
        home.start(swapped)
    assert refusal_in(again) == ""
    policy = home.path / "policy.toml"
    text = policy.read_text()
    policy.write_text(text.replace("names = [] ", 'names = ["south"] '))
    assert refusal_in(swapped) == ""
    assert "names = ['south']: it lists this party as 'north'" in refusal_in(again)
    policy.write_text(text)
    code, out, _ = folder.call("party", "plan", again)
    assert code == 0
    assert plan_in(again).facts["keys"]["south"] not in out
    line = next(line for line in out.splitlines() if line.startswith("key of south: "))
    groups = line.removeprefix("key of south: ").partition(" (")[0].split()
    assert [len(group) for group in groups] == [4] * 8


def test_a_plan_prints_what_the_yes_is_for(ends, folder):
    _, out, _ = folder.call("party", "plan", ends["north"])
    lines = {tuple(line.split()) for line in out.splitlines()}
    for line in (
        ("trust", "secure-sum"), ("relation", '"add_remove"'), ("unit", '"row"'),
        ("rows_per_unit", "1"), ("parties_per_unit", "1"), ("tolerated", "1"),
        ("dropouts", "0"), ("smallest_cohort:", "parties", "of", "a", "sum,", "at", "least", "2"),
        ("epsilon", "1.0"), ("seed", "0"),
    ):  # fmt: skip
        assert line in lines, line


def test_a_line_of_a_terminal_is_one_line_without_control_characters():
    line = line_of(f"party {NASTY!s}\nparty 'south': connected{'x' * 100}")
    assert line.startswith(f"party {SHOWN}")
    assert not any(character in line for character in (*BAD, "\n"))
    assert len(line) == WIDTH
