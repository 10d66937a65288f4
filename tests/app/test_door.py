"""A party's command: several studies at once, when it ends, and what its terminal says."""

from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime
from shutil import copyfile

import pytest
from typer import Exit

from siloweave.app import door
from siloweave.app.door import Door, ends_at, open_doors
from siloweave.app.network import RESULTS, office_in, plan_in, provision
from siloweave.app.run import execute
from siloweave.app.status import LOG, known_status, log_into, logging_for
from siloweave.errors import InputError, SchemaError
from siloweave.federation.exchanges import NONCES, exchanges_in
from siloweave.federation.spool import Spool
from tests.app.conftest import STUDY, Folder

NOW = datetime(2026, 12, 1, 18, 0)  # noqa: DTZ001 - an owner's clock


@pytest.mark.parametrize(
    ("text", "seconds"),
    [
        ("90s", 90.0),
        ("45min", 2700.0),
        ("1.5 h", 5400.0),
        ("2d", 172_800.0),
        ("18:30", 1800.0),
        ("17:30", 84_600.0),  # tomorrow
        ("2026-12-01T18:05", 300.0),
        ("2026-12-02", 21_600.0),
    ],
)
def test_when_a_party_ends(text, seconds):
    assert ends_at(text, NOW) == seconds


def test_a_time_of_a_zone_is_that_moment():
    soon = datetime.now(UTC).timestamp() + 100
    assert 90 < ends_at(datetime.fromtimestamp(soon, UTC).isoformat()) <= 100


@pytest.mark.parametrize("text", ["soon", "25:00", "8", "8 hours", "", "-3h"])
def test_a_time_that_cannot_be_read_is_refused(text):
    with pytest.raises(InputError, match=r"--until .* must be a duration"):
        ends_at(text, NOW)


def test_a_time_that_is_over_is_refused():
    with pytest.raises(InputError, match="is over"):
        ends_at("2026-12-01T17:59", NOW)


def of(folder, data, spool, **named):
    named = {"proxy": None, "plaintext": False, "wait": 60.0, "noise": "seeded"} | named
    named |= {"socket": None, "node_user": None}
    return Door(folder, str(data), spool, None, **named)


@pytest.fixture
def home(tmp_path, monkeypatch):
    """A party's home with two studies, `flu` and `stroke`, whose other party is `south`."""
    monkeypatch.setattr(door, "_FACTS_S", 0.05)
    made = {}
    for name in ("flu", "stroke"):
        place = tmp_path / name
        place.mkdir()
        folder = Folder(place).filled(STUDY.replace('"small"', f'"{name}"'))
        folder.replace(
            "study.toml", 'name = "flaim"\nrounds = 2\nparticipation = 1.0', 'name = "two_round"'
        )
        made[name] = provision(place, place / "ends", trial=True)
    return tmp_path, made


def test_one_process_answers_for_several_studies_and_leaves_each_when_it_has_ended(home, capfd):
    """Whose results a party gets if its policy says so; another one does not."""
    path, made = home
    policy = made["flu"]["north"] / "policy.toml"
    policy.write_text(policy.read_text() + "results = true\n")
    doors = [
        of(made[study][party], path / study / f"{party}.csv", path / study / "spool")
        for study in made
        for party in ("north", "south")
    ]
    for one in doors:
        log_into(one.folder)
    with ThreadPoolExecutor(1) as pool:
        answering = pool.submit(open_doors, doors, 120.0)
        for name in made:
            office = office_in(made[name]["coordinator"])
            with (
                logging_for(made[name]["coordinator"]),
                Spool(path / name / "spool", office.seals, seconds=60.0) as carrier,
            ):
                execute(office.study, carrier=office.carrier(carrier), noise="seeded")
                assert office.part_from(carrier, 20.0) == ["north", "south"]
        answering.result(60)
    run = made["flu"]["coordinator"] / "run"
    for name in ("synthetic.csv", "report.html"):
        assert (made["flu"]["north"] / RESULTS / name).read_bytes() == (run / name).read_bytes()
    assert not (made["flu"]["south"] / RESULTS).exists()
    assert not (made["stroke"]["north"] / RESULTS).exists()
    lines = capfd.readouterr().err.splitlines()
    for name in made:
        ended = f"ended (study '{name}': the coordinator has its result)"
        assert sum(ended in line for line in lines) == 2
        log = (made[name]["north"] / LOG).read_text().splitlines()
        answered = [line for line in log if "a question of" in line]  # others are the coordinator's
        assert len(answered) == 4
        assert all(f"run {name}-" in line for line in answered)
        found = known_status(made[name]["north"])
        assert (found.state, found.answered, found.at_most) == ("finished", 4, 4)
        crossed = exchanges_in(made[name]["north"] / NONCES)
        assert len(crossed) == plan_in(made[name]["north"]).count == 5  # and the last word
    said = [line for line in lines if line.startswith("party 'north': ")]
    assert all(len(line) <= 80 for line in said if " reads " not in line)


def test_a_study_that_cannot_begin_ends_no_other(home, capfd):
    path, made = home
    copyfile(path / "flu" / "schema.json", path / "wrong.csv")
    ends = [made[name]["north"] for name in made]
    doors = [
        of(ends[0], path / "nowhere.csv", path / "one"),
        of(ends[1], path / "stroke" / "north.csv", path / "two"),
    ]
    with pytest.raises(Exit) as ended:
        open_doors(doors, 0.5)
    assert ended.value.exit_code == 3
    said = capfd.readouterr().err
    assert f"{ends[0]}: " in said.replace("\n", "")
    assert "waiting for the first question in" in said
    assert "party 'north': ended (the time that --until names has come)" in said


def test_the_only_study_ends_with_its_own_error(home):
    path, made = home
    with pytest.raises((InputError, SchemaError), match="nowhere"):
        open_doors([of(made["flu"]["north"], path / "nowhere.csv", path / "one")], 5.0)


@pytest.mark.parametrize("studies", [1, 2])
def test_an_error_of_the_program_is_no_quiet_end(home, studies, monkeypatch, capfd):
    path, made = home

    def broken(door, until, running):
        raise ZeroDivisionError("a flaw")

    monkeypatch.setattr(Door, "_answer", broken)
    doors = [of(made[name]["north"], path / "x.csv", path / name) for name in made][:studies]
    with pytest.raises(ZeroDivisionError if studies == 1 else Exit):
        open_doors(doors, 5.0)
    printed = capfd.readouterr().err.replace("\n", " ")
    assert ("ended with ZeroDivisionError, an error of this program" in printed) == (studies == 2)
