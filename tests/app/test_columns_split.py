"""A study whose parties hold different columns: checked, run, reported, drawn from, refused."""

import csv
import json
import re
import stat

import pytest

import siloweave
from siloweave.app import plan
from siloweave.app.plan import statements_of
from siloweave.app.study import Study
from siloweave.report import words
from siloweave.report.record import Record
from siloweave.tables import Column, Schema
from siloweave.tables.read import read
from tests.app.studies import secure_two_round

STUDY = """\
[study]
name = "columns"

[schema]
file = "schema.json"

[method]
name = "silofuse"
target = "sex"
[method.diffusion]
steps = 3
batch = 16
hidden = [8]
embed = 8
timesteps = 5

[[parties]]
name = "clinic"
data = "clinic.csv"

[[parties]]
name = "office"
data = "office.csv"
"""


@pytest.fixture
def study(folder):
    """Two parties with different columns of the same forty people."""
    with (folder.path / "north.csv").open(newline="") as file:
        rows = list(csv.DictReader(file))
    lines = [f"{row['age']},{row['sex']}" for row in rows]
    folder.write("clinic.csv", "\n".join(["age,sex", *lines, ""]))
    folder.write("office.csv", "\n".join(["job", *(row["job"] for row in rows), ""]))
    folder.write("study.toml", STUDY)
    return folder


def test_check_forecasts_without_reading_rows(study):
    before = study.files()
    found = study.json("check")
    assert study.files() == before
    assert found["guarantee"] == "none"
    assert found["epsilon_per_party"] == "inf"
    assert found["rounds"] == 3
    last = plan._AROUND  # of the message that the study has ended
    assert 0 < found["bytes_per_party"] - last < 10_000  # the ledger, at the end, and frames


def test_check_says_that_rows_of_files_are_paired_by_their_order(study):
    said = "row i of one party's file is taken to be the same person as row i of the others'"
    assert any(said in sentence for sentence in study.json("check")["warnings"])
    both = (study.path / "clinic.csv").read_text().splitlines()
    jobs = (study.path / "office.csv").read_text().splitlines()
    study.write("both.csv", "\n".join(map(",".join, zip(both, jobs, strict=True))) + "\n")
    parts = {"clinic": '["age", "sex"]', "office": '["job"]'}
    text = STUDY
    for party, names in parts.items():
        text = text.replace(f'"{party}.csv"', f'"both.csv"\ncolumns = {names}')
    study.write("study.toml", text)
    assert not any(said in sentence for sentence in study.json("check")["warnings"])


def marginals_of(study, codes, clinic, office):
    """The study by SecureTwoRound, over columns of so many categories each."""
    columns = [
        Column(name, "categorical", categories=tuple(f"v{k}" for k in range(codes)))
        for name in (*clinic, *office)
    ]
    study.write("schema.json", Schema(tuple(columns)).with_fallbacks().to_json())
    for party, own in (("clinic", clinic), ("office", office)):
        rows = [",".join("v0" for _ in own)] * 40
        study.write(f"{party}.csv", "\n".join([",".join(own), *rows, ""]))
    head, rest = STUDY[: STUDY.index("[method]")], STUDY[STUDY.index("[[parties]]") :]
    method = '[method]\nname = "secure_two_round"\nmax_model_mb = 4000.0\n\n'
    budget = "[budget]\nepsilon = 1.0\ndelta = 1e-5\n\n"
    study.write("study.toml", head + method + budget + rest)


def test_check_refuses_pairs_of_two_parties_whose_coins_no_message_holds(study):
    """By the columns in the parties' files: a pair within a party has no coins."""
    marginals_of(study, 700, ["a", "b"], ["c", "d"])
    code, _, err = study.call("check")
    words = " ".join(err.split())
    assert code == 2
    assert "the noise of 4 pairs of columns of two parties, 1,960,000 cells" in words
    assert "a×c of clinic and office alone has 490,000 cells" in words


def test_check_foresees_memory_by_pairs_of_two_parties(study):
    """Four columns have four such pairs in halves, and three if a party has one of them."""
    found = []
    for split in (["a", "b"], ["c", "d"]), (["a"], ["b", "c", "d"]):
        marginals_of(study, 100, *split)
        found.append(study.json("check")["memory_mb"])
    assert found[0] > found[1] + 50


def test_a_run_is_reported_and_drawn_from(study):
    code, out, _ = study.call("run")
    assert code == 0
    assert "3 questions to the parties" in out
    table = read(study.path / "run" / "synthetic.csv")
    assert table.names == ("age", "sex", "job")
    assert table.num_rows == 40
    ledger = study.json("ledger", "run")
    assert json.dumps(ledger).count("clinic") >= 1
    assert (ledger["split"], ledger["whole_row"]) == ("columns", "inf")
    assert "A row lies at every party: ε = ∞ in all" in study.call("ledger", "run")[1]
    record = Record.from_json((study.path / "run" / "record-owner.json").read_bytes())
    scores = record.owner.scores
    ways = [name for name in scores if "clinic that the coordinator recovers" in name]
    assert ways
    assert all(0 <= scores[name] <= 1 for name in ways)
    sights = {sight.who: sight for sight in record.visibility}
    assert "can be computed" in sights["the coordinator"].protected_by
    public = (study.path / "run" / "report.html").read_text()
    assert "recovers" not in public
    assert "of all parties together" in public  # a row lies at each of them
    assert study.call("sample", "run", "--out", "more.csv", "--rows", "7")[0] == 0
    assert read(study.path / "more.csv").num_rows == 7
    code, out, _ = study.call("run")  # a finished run is left alone
    assert code == 0


def test_what_it_costs_towards_another_party_is_stated_wherever_the_bound_is(folder):
    secure_two_round(folder)
    study = (folder.path / "study.toml").read_text()
    replaced = study.replace("delta = 1e-5", "delta = 1e-5\nrelation = 'replace_one'")
    folder.write("study.toml", replaced)
    assert "towards another party" not in folder.call("check")[1]  # it is the same
    folder.write("study.toml", study)
    said = "towards another party, which knows whose rows these are, epsilon is at most"
    (foreseen,) = re.findall(rf"{said} ([0-9.]+)", " ".join(folder.json("check")["notes"]))
    code, out, _ = folder.call("run")
    assert code == 0
    summary = json.loads((folder.path / "run" / "run.json").read_text())
    towards = summary["epsilon_to_parties"]
    assert towards > summary["epsilon"]
    assert towards < float(foreseen) < 1.3 * towards  # without a party's own tables
    # What a policy is held against, before a row is read, covers what the run then states.
    assert max(statements_of(Study.load(folder.path)).values()) >= towards
    said = f"Towards another party, which knows whose rows these are: ε = {words.epsilon(towards)}"
    assert said in out
    assert said in folder.call("ledger", "run")[1]
    assert folder.json("ledger", "run")["to_parties"] == towards
    # Below a thousandth of the budget's delta, which noise of coins leaves out, nothing is bounded.
    assert folder.json("ledger", "run", "--delta", "1e-7")["to_parties"] > towards
    assert f"ε = {words.epsilon(towards)}: it" in (folder.path / "run/report.html").read_text()


@pytest.mark.slow
def test_columns_that_stay_are_written_per_party(study):
    study.write("study.toml", STUDY.replace('target = "sex"', "shared = false"))
    code, out, _ = study.call("run")
    assert code == 0
    assert "siloweave sample" not in out
    (advice,) = re.findall(r"at no cost: (siloweave\.load.*) in Python", out)
    drawn = eval(advice, {"siloweave": siloweave})
    assert {name: len(part) for name, part in drawn.items()} == {"clinic": 1000, "office": 1000}
    assert not (study.path / "run" / "synthetic.csv").exists()
    assert stat.S_IMODE((study.path / "run" / "model").stat().st_mode) == 0o700
    files = {n: study.path / "run" / f"synthetic-{n}.csv" for n in ("clinic", "office")}
    assert {stat.S_IMODE(path.stat().st_mode) for path in files.values()} == {0o600}
    parts = {n: read(path) for n, path in files.items()}
    assert {n: part.names for n, part in parts.items()} == {
        "clinic": ("age", "sex"),
        "office": ("job",),
    }
    record = Record.from_json((study.path / "run" / "record.json").read_bytes())
    assert any("stay with their parties" in text for text in record.warnings)
    assert record.synthetic.num_rows == 40
    assert record.synthetic.marginals == ()
    assert record.synthetic.association is None
    owners = Record.from_json((study.path / "run" / "record-owner.json").read_bytes())
    assert {one.column for one in owners.synthetic.marginals} == {"age", "sex", "job"}
    assert owners.digest() == record.digest()
    page = (study.path / "run" / "report.html").read_text()
    assert "no synthetic column is shown here" in page
    code, _, error = study.call("sample", "run", "--out", "more.csv")
    assert code == 2
    assert "sample_parts" in error


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (("job\n", "age\n"), "parties 'clinic' and 'office' both hold column 'age'"),
        (("job\n", "shoes\n"), "party 'office': the schema lacks its column 'shoes'"),
    ],
)
def test_columns_that_do_not_go_together_are_refused(study, change, message):
    path = study.path / "office.csv"
    path.write_text(path.read_text().replace(*change, 1))
    for command in ("check", "run"):
        code, _, error = study.call(command)
        assert code == 2
        assert message in " ".join(error.split())
    assert not (study.path / "run").exists()


def test_another_number_of_rows_is_refused_before_anything_is_released(study):
    path = study.path / "office.csv"
    path.write_text("\n".join(path.read_text().splitlines()[:-3]) + "\n")
    code, _, error = study.call("run")
    assert code == 2
    assert "'office' has 37 rows" in " ".join(error.split())
    assert not (study.path / "run").exists()


def test_a_bound_is_refused(study):
    study.write("study.toml", STUDY + "\n[budget]\nepsilon = 1\ndelta = 1e-5\n")
    code, _, error = study.call("check")
    assert code == 4
    assert "keeps no bound" in " ".join(error.split())
