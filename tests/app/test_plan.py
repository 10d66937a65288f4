"""`siloweave party plan` and `approve`, and `check --network`: what a study sends, and a yes."""

import json
import re
import shlex
from pathlib import Path

import pytest

from siloweave.app.cli import main
from siloweave.app.network import party_in, plan_in, provision
from siloweave.app.plan import APPROVAL, approve, most_asked
from siloweave.app.policy import POLICY_FILE
from siloweave.app.status_facts import status_of
from siloweave.errors import InputError
from siloweave.privacy.ledger import Identity

E2E = """\
[study]
name = "small"
[schema]
file = "schema.json"
[method]
name = "e2e_distr"
[method.diffusion]
steps = 1000
[[parties]]
name = "north"
data = "left.csv"
columns = ["age", "sex"]
[[parties]]
name = "south"
data = "right.csv"
columns = ["job"]
"""


@pytest.fixture
def ends(folder):
    """Folders of a study of two parties."""
    return provision(folder.path, folder.path / "ends", keys_made_here=True)


def rows_of(end):
    """A party's rows, which lie outside its folder of the study."""
    return end.parent.parent / f"{end.name}.csv"


def printed(capsys, *words):
    assert main([str(word) for word in words]) == 0
    return capsys.readouterr().out


def started(end, data=None):
    """The refusal of a party that is started; empty if it takes part."""
    try:
        with party_in(end, data or rows_of(end)):
            return ""
    except InputError as error:
        return str(error)


def test_a_plan_lists_every_question_and_what_it_costs(ends, capsys):
    shown = printed(capsys, "party", "plan", ends["north"])
    for tag in ("sum/send_key", "bins/columns", "flaim/select", "flaim/measure", "run/close"):
        assert f"({tag})" in shown.replace("\n", " ")
    assert "approve" in shown
    found = json.loads(printed(capsys, "party", "plan", ends["north"], "--json"))
    assert found["party"] == "north"
    assert {one["tag"]: one["times"] for one in found["messages"]}["flaim/select"] == 2
    assert found["count"] == sum(one["times"] for one in found["messages"]) == 11
    assert found["epsilon"] == 1.0
    assert found["seconds_on_engine"] - found["seconds_on_sockets"] > 9
    assert set(found["facts"]["keys"]) == {"coordinator", "north", "south"}


def test_a_plan_lists_the_message_that_brings_the_results(ends, capsys):
    """Their approval is asked for it, too; it answers no question, so nothing is paid."""
    plan = plan_in(ends["north"])
    parting = plan.messages[-1]
    assert (parting.stage, parting.tag, parting.times) == ("parting", "run/part", 1)
    assert [field.name for field in parting.fields] == ["table", "report"]
    assert all(field.protected_by.startswith("public") for field in parting.fields)
    assert (parting.ledger, parting.pays) == ("nothing", 0)
    assert plan.questions == plan.count - 1
    assert "parting" not in most_asked(plan.messages)
    shown = " ".join(printed(capsys, "party", "plan", ends["north"]).split())
    assert "results = true" in shown
    assert "and the results" in shown


def test_a_party_takes_part_in_exactly_what_its_owner_approved(ends, capsys):
    north = ends["north"]
    assert "has not approved study 'small'" in started(north)
    digest = plan_in(north).digest
    assert main(["party", "approve", str(north), "0" * 24]) == 2
    assert "another plan" in capsys.readouterr().err
    assert not (north / APPROVAL).exists()
    assert "will take part" in printed(capsys, "party", "approve", north, digest)
    assert started(north) == ""
    assert plan_in(ends["south"]).digest != digest


@pytest.mark.parametrize(
    ("file", "old", "new", "said"),
    [
        ("study.toml", "rounds = 2", "rounds = 3", "facts.method.rounds = 2, and there 3"),
        ("study.toml", "epsilon = 1", "epsilon = 0.5", "facts.budget.epsilon = 1.0, and there 0.5"),
        ("schema.json", '"high": 99', '"high": 98', "schema.columns.0.high = 99, and there 98"),
    ],
)
def test_a_study_that_differs_needs_a_new_yes(ends, capsys, file, old, new, said):
    north = ends["north"]
    printed(capsys, "party", "approve", north, plan_in(north).digest)
    text = (north / file).read_text()
    assert old in text
    (north / file).write_text(text.replace(old, new))
    found = started(north)
    assert "is not as its owner approved it" in found
    assert said in found
    printed(capsys, "party", "approve", north, plan_in(north).digest)
    assert started(north) == ""


def test_words_of_another_version_need_a_new_yes_and_are_named_as_such(ends, capsys):
    north = ends["north"]
    printed(capsys, "party", "approve", north, plan_in(north).digest)
    approval = (north / APPROVAL).read_text()
    assert "no message carries them" in approval
    (north / APPROVAL).write_text(approval.replace("no message carries them", "nothing has them"))
    said = started(north)
    assert "The study is the same: it was approved with another version of siloweave" in said
    assert "siloweave party plan" in said

    # Who changes the study, too, is not excused by the version.
    file = north / "study.toml"
    file.write_text(file.read_text().replace("rounds = 2", "rounds = 3"))
    assert "another version" not in started(north)


def test_another_roster_needs_a_new_yes(folder, ends, capsys):
    north = ends["north"]
    printed(capsys, "party", "approve", north, plan_in(north).digest)
    for name in ("party.key", "account.jsonl"):
        (ends["south"] / name).unlink()
    provision(folder.path, folder.path / "ends", keys_made_here=True)
    assert "facts.keys.south" in started(north)


def test_more_rows_alone_need_no_new_yes(ends, capsys):
    north = ends["north"]
    printed(capsys, "party", "approve", north, plan_in(north).digest)
    rows = rows_of(north).read_text().splitlines()
    rows_of(north).write_text("\n".join([*rows, *rows[1:]]))
    assert started(north) == ""


def test_the_number_of_rows_is_no_part_of_an_approval_for_any_method(ends):
    """A critic of MD-TGAN judges as often as the rows of all parties say."""
    file = ends["north"] / "study.toml"
    text = file.read_text().replace("[budget]\nepsilon = 1\ndelta = 1e-5\n", "")
    text = text.replace('"flaim"\nrounds = 2\nparticipation = 1.0\nbins = 4', '"md_tgan"')
    file.write_text(text)
    file = rows_of(ends["north"])
    rows = file.read_text()
    few = plan_in(ends["north"], file)
    file.write_text(rows + 1000 * rows.split("\n", 1)[1])
    many = plan_in(ends["north"], file)
    assert many.rounds > few.rounds
    assert many.digest == few.digest == plan_in(ends["north"]).digest


def test_a_plan_shows_how_rows_are_read_and_an_approval_is_of_that(ends, capsys):
    north = ends["north"]
    shown = printed(capsys, "party", "plan", north)
    assert "columns of your rows that are counted: age, sex, job" in shown
    detected = "separator, encoding and header of your text file are detected, as the study"
    assert detected in shown
    printed(capsys, "party", "approve", north, plan_in(north).digest)
    study = (north / "study.toml").read_text()
    (north / "study.toml").write_text(
        study.replace('name = "north"', 'name = "north"\nmissing = ["none"]\nheader = true')
    )
    said = started(north)
    assert "is not as its owner approved it" in said
    assert "reading" in said
    shown = printed(capsys, "party", "plan", north)
    assert 'read with header = true, missing = ["none"], as study.toml in this folder says' in shown
    printed(capsys, "party", "approve", north, plan_in(north).digest)
    assert not started(north)


def test_a_partys_rows_are_compared_with_the_schema_where_they_are(ends, capsys, caplog):
    north = ends["north"]
    rows = rows_of(north)
    shown = printed(capsys, "party", "check", north, "--data", rows)
    assert "Rows were read here, and nothing is odd: north 40. Nothing was written." in shown
    first, _, others = rows.read_text().partition("\n")
    rows.write_text(f"{first}\n999{others[others.index(',') :]}")
    before = {path: path.read_bytes() for path in north.rglob("*") if path.is_file()}
    shown = " ".join(printed(capsys, "party", "check", north, "--data", rows).split())
    assert "north, line 2 (999): column 'age': 1 row is outside its bounds" in shown
    found = json.loads(printed(capsys, "party", "check", north, "--data", rows, "--json"))
    assert found["count"] == {"north": 40}
    assert {path: path.read_bytes() for path in north.rglob("*") if path.is_file()} == before
    # The note of a start names this command, since a party's folder has no study to check.
    printed(capsys, "party", "approve", north, plan_in(north).digest)
    assert started(north, rows) == ""
    command = f"`siloweave party check {north} --data ...` shows which rows"
    assert command in caplog.text


@pytest.mark.parametrize(
    ("names", "said"),
    [
        ("age,sex", "it lacks 'job'"),
        ("age,sex,station", "it lacks 'job', and has 'station'"),
        ("age,sex,job,ward", "it has 'ward'"),
    ],
)
def test_rows_of_other_columns_are_odd_where_they_are(ends, capsys, names, said):
    north = ends["north"]
    rows = rows_of(north)
    cells = [*rows.read_text().splitlines()[1].split(","), "x"]
    line = ",".join(cells[: names.count(",") + 1])
    rows.write_text("\n".join([names, *[line] * 40, ""]))
    shown = printed(capsys, "party", "check", north, "--data", rows)
    assert f"look at this first: {rows.name} does not fit: {said}. A start refuses it" in shown
    assert "nothing is odd" not in shown
    found = json.loads(printed(capsys, "party", "check", north, "--data", rows, "--json"))
    assert said in found["misfits"][0]


def test_a_study_is_approved_without_its_rows_as_the_plan_says(ends, capsys):
    north = ends["north"]
    rows = rows_of(north)
    shown = printed(capsys, "party", "plan", north, "--data", rows)
    digest = re.findall("[0-9a-f]{24}", shown)[-1]
    assert status_of(north).state == "not approved"
    printed(capsys, "party", "approve", north, digest)
    assert status_of(north).state == "never started"
    assert started(north, rows) == ""


def test_a_party_reads_no_rows_that_its_owner_did_not_name(ends, capsys):
    """The coordinator writes study.toml, and would choose which file of this machine is read."""
    north = ends["north"]
    rows = north / "north.csv"  # as study.toml names it
    rows.write_bytes(rows_of(north).read_bytes())
    printed(capsys, "party", "approve", north, plan_in(north).digest, "--data", rows)
    assert main(["party", "start", str(north), "--spool", str(north / "s")]) == 2
    said = capsys.readouterr().err
    assert "party 'north': say where its rows are: --data FILE" in said
    assert not (north / "begun").exists()
    rows.unlink()
    for command in (["party", "plan"], ["status"]):
        assert main([*command, str(north)]) == 0
    assert "--data gives those of yours" in capsys.readouterr().err


def test_commands_that_are_advised_quote_a_folder_with_spaces(folder, ends, capsys):
    """Each can be copied into a shell as it is."""
    place = ends["north"].rename(folder.path / "our it's flu")
    written = shlex.quote("our it's flu")
    assert main(["party", "approve", place.name, "0" * 24]) == 2
    said = [capsys.readouterr().err, started(Path(place.name), folder.path / "north.csv")]
    assert all(f"`siloweave party plan {written}`" in " ".join(one.split()) for one in said)
    shown = " ".join(printed(capsys, "party", "plan", place.name).split())
    assert f"siloweave party approve {written} {plan_in(place).digest}" in shown
    (place / "policy.toml").unlink()
    assert f"`siloweave party policy --folder {written}`" in started(Path(place.name), place / "x")
    (place / "party.key").chmod(0o644)
    assert f"chmod 600 {shlex.quote(place.name + '/party.key')}" in started(Path(place.name))
    shown = printed(
        capsys, "provision", folder.path, "--keys-made-here", "--out", "all ends"
    ).split("siloweave ")[-1]
    assert shlex.split(shown) == ["coordinator", "all ends/coordinator"]


def test_an_approval_that_comes_with_the_folder_is_none(ends):
    """Whoever made the folder can write all of it but the signature."""
    north, plan = ends["north"], plan_in(ends["north"])
    approve(north, plan, plan.digest, Identity.create())
    assert "was not signed by the key of party 'north'" in started(north)
    file = north / APPROVAL
    file.write_text(json.dumps(json.loads(file.read_text())["plan"]))
    assert "holds no approval" in started(north)


def test_a_damaged_approval_is_none(ends):
    (ends["north"] / APPROVAL).write_text("{")
    assert "holds no approval" in started(ends["north"])


def test_an_owner_may_leave_the_yes_to_the_policy(ends):
    file = ends["north"] / POLICY_FILE
    file.write_text(file.read_text().replace('approval = "by hand"', 'approval = "auto"'))
    assert started(ends["north"]) == ""
    file.write_text(file.read_text().replace("epsilon_per_study = 1.0", "epsilon_per_study = 0.1"))
    assert "epsilon_per_study = 0.1" in started(ends["north"])


def test_the_network_is_forecast_on_request(folder, capsys):
    plain, network = (printed(capsys, "check", folder.path, *more) for more in ([], ["--network"]))
    assert "messages to each party" not in plain
    assert re.search(r"messages to each party +at most 11\b", network)
    assert "an engine, at 1 s a message" in network
    assert "one machine room" not in network


def test_a_message_at_every_step_is_for_one_machine_room(folder, capsys):
    folder.filled(E2E)
    rows = [line.split(",") for line in (folder.path / "north.csv").read_text().split()]
    folder.write("left.csv", "\n".join(f"{age},{sex}" for age, sex, _ in rows) + "\n")
    folder.write("right.csv", "\n".join(job for _, _, job in rows) + "\n")
    shown = printed(capsys, "check", folder.path, "--network")
    assert "at most 2,004" in shown
    assert "for parties in one machine room" in shown
    assert json.loads(printed(capsys, "check", folder.path, "--json"))["seconds_on_engine"] > 2004
