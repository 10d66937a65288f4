"""A study whose unit is a person: proposed, checked, run here and over a network, and reported."""

import json
import shutil
from collections import Counter
from contextlib import ExitStack

import pytest

from siloweave.app.init import propose, write_proposal
from siloweave.app.network import office_in, plan_in, provision
from siloweave.app.run import execute
from siloweave.app.study import Study
from siloweave.core import party as runs
from siloweave.errors import BudgetError, InputError, SchemaError, StudyError
from siloweave.privacy.ledger import Ledger
from siloweave.tables.ids import id_texts
from siloweave.tables.units import bounded_rows
from tests.app.processes import party_at, small
from tests.synthesizers.networked import over_files

UNIT = 'delta = 1e-5\nunit = "card"\nrows_per_unit = 2'
PEOPLE = 9


def with_people(folder):
    """Each row is of one of nine people, who have four or five of them."""
    for name in ("north", "south"):
        head, *rows = (folder.path / f"{name}.csv").read_text().split()
        rows = [f"{row},c{i % PEOPLE}" for i, row in enumerate(rows)]
        folder.write(f"{name}.csv", "\n".join([f"{head},card", *rows, ""]))
    schema = json.loads((folder.path / "schema.json").read_text())
    schema["columns"].append({"name": "card", "kind": "id"})
    folder.write("schema.json", json.dumps(schema))
    folder.replace("study.toml", "delta = 1e-5", UNIT)
    small(folder)


@pytest.fixture
def people(folder):
    with_people(folder)
    return folder


@pytest.fixture
def taken(monkeypatch):
    """The tables of rows that take part."""
    tables = []

    def bounded(*args, **named):
        tables.append(bounded_rows(*args, **named))
        return tables[-1]

    monkeypatch.setattr(runs, "bounded_rows", bounded)
    return tables


def most(table, name="card"):
    return max(Counter(id_texts(table, name)).values())


def test_init_proposes_the_unit_and_says_what_each_bound_keeps(folder):
    """Sixty patients with five visits each, at each of two hospitals."""
    ages = [(17 * i) % 90 for i in range(300)]
    for name, first in (("north", 131072), ("south", 262144)):
        rows = [f"{first + 977 * (i % 60)},{age},{'fm'[age % 2]}" for i, age in enumerate(ages)]
        folder.write(f"{name}.csv", "\n".join(["patient_id,age,sex", *rows, ""]))
    files = [folder.path / f"{name}.csv" for name in ("north", "south")]
    proposal = propose(files)
    (found,) = (line for line in proposal.cautions if "one patient_id has" in line)
    assert "up to 5 rows in a file. If it is a person, protect" in found
    assert "1: 20.0% of the rows, and all rows of 0% of them; 2: 40.0% of the rows" in found
    assert "5: 100.0% of the rows, and all rows of 100.0% of them" in found
    assert 'unit = "patient_id"\nrows_per_unit = 5\nparties_per_unit = 1 ' in proposal.study
    assert "20.0" not in proposal.study, "what the rows hold is in no file that others get"
    write_proposal(proposal, folder.path / "new")
    budget = Study.load(folder.path / "new").terms()
    assert (budget.unit, budget.rows_per_unit, budget.parties_per_unit) == ("patient_id", 5, 1)


def test_init_of_ids_that_do_not_repeat_protects_a_row(folder):
    text = (folder.path / "north.csv").read_text().split()
    rows = [f"{row},c{i}" for i, row in enumerate(text[1:])]
    folder.write("north.csv", "\n".join([f"{text[0]},card", *rows, ""]))
    proposal = propose([folder.path / "north.csv"])
    assert 'unit = "row"' in proposal.study
    assert not any("one card has" in line for line in proposal.cautions)


def test_a_run_says_everywhere_whom_it_protects(people, taken):
    people.replace("study.toml", UNIT, f"{UNIT}\nparties_per_unit = 2")
    found = people.json("check", "study.toml")
    assert (found["unit"], found["rows_per_unit"], found["parties_per_unit"]) == ("card", 2, 2)
    _, out, _ = people.call("check", "study.toml")
    assert "ε of a card with at most 2 rows at δ = 1e-5" in out
    assert "ε is that of the rows of a card at one party" in out
    _, out, _ = people.call("run", "study.toml")
    assert "for each card with at most 2 rows\n" in out
    assert "(differential privacy; neighbours: one card added or removed)" in out
    assert "For a card with rows at up to 2 parties: ε = " in out
    assert [most(table) for table in taken[:2]] == [2, 2]
    assert [table.num_rows for table in taken[:2]] == [2 * PEOPLE] * 2
    summary = json.loads((people.path / "run" / "run.json").read_text())
    assert (summary["unit"], summary["rows_per_unit"]) == ("card", 2)
    assert summary["epsilon_at_parties"] > 2 * summary["epsilon"]
    page = (people.path / "run" / "report.html").read_text()
    for words in (
        "<dt>unit</dt><dd>card with at most 2 rows</dd>",
        "<dt>with rows at 2 parties</dt><dd>ε = ",
        "One card with all its rows that took part, 2 at most",
        "For a card with rows at up to 2 parties, ε is",
        "may ask whether one card with at most 2 rows was used",
    ):
        assert words in page
    assert "two rows" not in page
    _, out, _ = people.call("ledger", "run")
    assert "Each ε is that of one card with at most 2 rows." in out
    assert "For a card with rows at as many parties as the study says: ε = " in out
    trail = people.json("ledger", "run")
    assert trail["at_parties"] == summary["epsilon_at_parties"]


def test_rows_of_one_person_at_two_parties_are_what_the_study_says_or_not(people):
    people.replace("study.toml", 'data = "south.csv"', 'data = "north.csv"')
    _, out, _ = people.call("check", "study.toml")
    assert "no more than 1 party: ε does not hold for more" in out
    people.replace("study.toml", UNIT, f"{UNIT}\nparties_per_unit = 2")
    _, out, _ = people.call("check", "study.toml")
    assert "The study says so: parties_per_unit = 2." in out


@pytest.mark.parametrize(
    ("budget", "error", "words"),
    [
        ('unit = "card"', BudgetError, "rows_per_unit is missing"),
        ('unit = "patient"\nrows_per_unit = 2', SchemaError, "'patient' is no column .*'card'"),
        ('unit = "age"\nrows_per_unit = 2', SchemaError, "a column of kind integer, not id"),
        ('unit = "card"\nrows_per_unit = 0', BudgetError, "rows_per_unit = 0"),
        ('unit = "card"\nrows_per_unit = -3', BudgetError, "rows_per_unit = -3"),
        ('unit = "card"\nrows_per_unit = 2.5', InputError, "rows_per_unit"),
        ('unit = "card"\nrows_per_unit = true', InputError, "rows_per_unit"),
        ('unit = "card"\nrows_per_unit = 2\nparties_per_unit = 0', BudgetError, "parties_per_unit"),
        ("rows_per_unit = 2", BudgetError, "but unit = 'row'"),
        (
            'unit = "card"\nrows_per_unit = 2\nrelation = "replace_one"',
            BudgetError,
            "number of rows is not public",
        ),
    ],
)
def test_bad_input_is_named_before_anything_is_read_or_written(people, budget, error, words):
    people.replace("study.toml", UNIT, f"delta = 1e-5\n{budget}")
    for name in ("north", "south"):
        people.write(f"{name}.csv", "age,sex,job,card\nno,row,fits,\n")
    before = people.files()
    for call in ("check", "run"):
        assert people.call(call, "study.toml")[0] != 0
    assert people.files() == before
    with pytest.raises(error, match=words):
        Study.load(people.path).setup({"north": ("age", "sex", "job", "card")} | {"south": ()})


def test_rows_without_an_id_are_refused_and_nothing_is_half_written(people):
    text = (people.path / "south.csv").read_text()
    people.write("south.csv", text.replace(",c3\n", ",\n"))
    before = people.files()
    code, _, err = people.call("run", "study.toml")
    assert code != 0
    assert "party 'south': 5 rows have no id in 'card'" in err
    assert people.files() == before
    schema = (people.path / "schema.json").read_text()
    people.write("schema.json", schema.replace('"kind": "id"', '"kind": "id", "missing": true'))
    assert people.call("run", "study.toml")[0] == 0


# Over a network


def ends_of(folder, names=("north", "south")):
    made = provision(folder.path, folder.path / "ends", trial=True)
    for name in names:
        (made[name] / f"{name}.csv").write_bytes((folder.path / f"{name}.csv").read_bytes())
    return made


def run_over(ends):
    office = office_in(ends["coordinator"])
    with ExitStack() as stack:
        names = [name for name in ends if name != "coordinator"]
        hosts = {n: stack.enter_context(party_at(ends[n], noise="seeded")) for n in names}
        folder = ends["coordinator"].parent / "spool"
        carrier = stack.enter_context(over_files(office.seals, hosts, folder))
        return execute(office.study, carrier=office.carrier(carrier), noise="seeded")[0]


def test_parties_of_a_network_bound_their_rows_as_here(people, taken, capsys):
    ends = ends_of(people)
    summary = run_over(ends)
    there = [table.num_rows for table in taken]
    here, _ = execute(Study.load(people.path), noise="seeded")
    assert there == [2 * PEOPLE] * 2
    assert summary.epsilon == here.epsilon <= 1.0
    assert (summary.unit, summary.rows_per_unit) == ("card", 2)
    rows = [
        (one / "synthetic.csv").read_text()
        for one in (Study.load(ends["coordinator"]).folder, people.path / "run")
    ]
    assert rows[0] == rows[1]
    for name in ("north", "south"):
        events = [entry.event for entry in Ledger.read(ends[name] / "ledger.jsonl").entries]
        assert min(event.sensitivity for event in events) >= 2.0


def test_a_plan_says_whom_a_study_protects(people):
    ends = ends_of(people)
    _, out, _ = people.call("party", "plan", ends["north"], "--data", ends["north"] / "north.csv")
    assert "ε of a card with at most 2 rows at δ = 1e-5" in out
    plan = plan_in(ends["north"], ends["north"] / "north.csv")
    assert plan.facts["budget"]["rows_per_unit"] == 2
    assert "card" in plan.columns


def test_all_ends_must_bound_the_same_rows(people):
    """A coordinator that plans for one row, and a party that takes two."""
    ends = ends_of(people)
    file = ends["north"] / "study.toml"
    file.write_text(file.read_text().replace("rows_per_unit = 2", "rows_per_unit = 3"))
    with pytest.raises(StudyError, match=r"budget\.rows_per_unit = 3, and there 2"):
        run_over(ends)
    assert Ledger.read(ends["north"] / "ledger.jsonl").entries == ()


def test_rows_without_an_id_are_refused_where_they_are(people):
    ends = ends_of(people)
    file = ends["south"] / "south.csv"
    file.write_text(file.read_text().replace(",c3\n", ",\n"))
    with (
        pytest.raises(SchemaError, match="party 'south': 5 rows have no id in 'card'"),
        party_at(ends["south"]),
    ):
        pass
    assert not (ends["south"] / "ledger.jsonl").exists()


def with_columns(folder, *, aligned):
    """Two parties with columns of the same visits; ids as text and as numbers."""
    lines = [row.split(",") for row in (folder.path / "north.csv").read_text().split()][1:]
    schema = json.loads((folder.path / "schema.json").read_text())
    ids = [{"name": name, "kind": "id"} for name in ("card", "visit")]
    folder.write("schema.json", json.dumps({**schema, "columns": [*schema["columns"], *ids]}))
    text = '[study]\nname = "small"\n[schema]\nfile = "schema.json"\n[output]\nrows = 50\n'
    text += f'[budget]\nepsilon = 5\n{UNIT}\n[method]\nname = "secure_two_round"\n'
    text += '[alignment]\non = ["card", "visit"]\n' if aligned else ""
    for name, own in {"clinic": [0, 1], "office": [2]}.items():
        columns = [["age", "sex", "job"][i] for i in own]
        text += f'[[parties]]\nname = "{name}"\ndata = "{name}.csv"\n'
        text += f"columns = {['card', 'visit', *columns]}\n"
        rows = [[str(i % PEOPLE), str(i), *(row[j] for j in own)] for i, row in enumerate(lines)]
        if name == "office" and aligned:
            rows = [["0", "77", "x"], *rows[::-1]]
        rows = [["card", "visit", *columns], *rows, []]
        folder.write(f"{name}.csv", "\n".join(map(",".join, rows)))
    folder.write("study.toml", text)


@pytest.mark.parametrize("aligned", [False, True], ids=["in order", "aligned"])
def test_parties_with_columns_of_the_same_people_keep_the_same_rows(folder, taken, aligned):
    with_columns(folder, aligned=aligned)
    ends = ends_of(folder, ("clinic", "office"))
    summary = run_over(ends)
    assert summary.epsilon <= 5.0
    assert [table.num_rows for table in taken] == [2 * PEOPLE] * 2
    for column in ("card", "visit"):
        assert id_texts(taken[0], column) == id_texts(taken[1], column)
    execute(Study.load(folder.path), noise="seeded")
    assert {most(table) for table in taken} == {2}
    if not aligned:  # an alignment shuffles rows with entropy of its own
        text = (Study.load(ends["coordinator"]).folder / "synthetic.csv").read_text()
        assert text == (folder.path / "run" / "synthetic.csv").read_text()
        shutil.rmtree(folder.path / "run")
        (folder.path / "office.csv").write_text("visit,job\n")
        with pytest.raises(InputError, match="'card'"):
            execute(Study.load(folder.path), noise="seeded")
