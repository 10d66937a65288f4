"""Every command on a small study, as its user meets it."""

import csv
import json
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from siloweave.app.cli import keep_programs, main
from tests.app.conftest import STUDY
from tests.app.studies import fed_tgan

_FLAIM = 'name = "flaim"\nrounds = 2\nparticipation = 1.0\nbins = 4'


def test_help_needs_nothing_heavy():
    code = (
        "import sys; from siloweave.app.cli import main; main(['--help']);"
        "heavy = {'numpy', 'scipy', 'polars', 'opendp', 'dp_accounting', 'jinja2', 'sklearn'};"
        "sys.exit(', '.join(sorted(heavy & set(sys.modules))) or 0)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    for command in ("demo", "init", "check", "run", "sample", "impute", "report", "ledger", "list"):
        assert f" {command} " in done.stdout


@pytest.mark.parametrize("words", [["impute"], ["party", "start"], ["coordinator"], ["sample"]])
def test_help_names_values_and_not_their_python_types(words, capsys):
    assert main([*words, "--help"]) == 0
    out = capsys.readouterr().out
    assert not re.search(r"--[a-z-]+ <", out)
    assert re.search(r"--(data|spool|out) [A-Z]", out)


@pytest.mark.parametrize("words", [["init"], ["review"], ["party", "start"], ["score"], ["list"]])
def test_help_shows_no_python_types_of_arguments(words, capsys):
    assert main([*words, "--help"]) == 0
    _, arguments = capsys.readouterr().out.split("Arguments:")
    assert re.match(r"\n  [A-Z_]+  ", arguments)
    assert "<" not in arguments.partition("Options:")[0]


def test_help_says_where_to_begin(capsys):
    main(["--help"])
    assert "Begin with `siloweave demo`" in capsys.readouterr().out


def test_help_of_a_choice_shows_what_can_be_chosen(capsys):
    main(["demo", "--help"])
    assert "clusters|iid" in capsys.readouterr().out


def test_compiled_programs_are_kept_where_caches_go(monkeypatch, tmp_path):
    for name in ("XDG_CACHE_HOME", "LOCALAPPDATA"):
        monkeypatch.setenv(name, str(tmp_path))
    monkeypatch.delenv("JAX_COMPILATION_CACHE_DIR")
    keep_programs()
    assert Path(os.environ["JAX_COMPILATION_CACHE_DIR"]).is_relative_to(tmp_path / "siloweave")
    monkeypatch.setenv("JAX_COMPILATION_CACHE_DIR", "")
    keep_programs()
    assert os.environ["JAX_COMPILATION_CACHE_DIR"] == ""  # nothing is kept where that is wished


def test_version(capsys):
    from siloweave import __version__

    assert main(["--version"]) == 0
    assert capsys.readouterr().out == f"siloweave {__version__}\n"


def test_list_names_what_a_study_can_use(folder):
    code, out, _ = folder.call("list")
    assert code == 0
    methods = folder.json("list")
    assert {"aim", "flaim"} <= set(methods)
    for name, info in methods.items():
        assert name in out
        assert {"split", "family", "guarantee", "trust", "paper"} <= set(info)


def test_check_says_where_no_error_is_forecast(folder):
    """FLAIM and others have no forecast of error, and that is no promise of a small one."""
    said = "is not forecast for FLAIM: `siloweave score` shows it after the run"
    assert said in " ".join(folder.json("check")["notes"])
    assert said in folder.call("check")[1]
    settings = 'name = "flaim"\nrounds = 2\nparticipation = 1.0'
    folder.replace("study.toml", settings, 'name = "two_round"')
    found = folder.json("check")
    assert found["error"] is not None
    assert not any("not forecast" in note for note in found["notes"])


def test_check_names_dates_that_may_lose_their_times(folder):
    """Bounds that are dates do not say whether rows have times of day."""
    day = '{"name": "day", "kind": "datetime", "low": "2021-01-01", "high": "2021-12-31"}'
    folder.replace(
        "schema.json", '{"name": "age"', f'{day[:-1]}, "missing": true}}, {{"name": "age"'
    )
    for name in ("north", "south"):
        path = folder.path / f"{name}.csv"
        head, *lines = path.read_text().splitlines()
        path.write_text("\n".join([f"day,{head}", *(f"2021-03-01,{line}" for line in lines), ""]))
    notes = " ".join(folder.json("check")["notes"])
    assert "day: drawn as days without times, since the bounds are dates" in notes
    folder.replace("schema.json", '"name": "day",', '"name": "day", "resolution": "day",')
    assert "days without times" not in " ".join(folder.json("check")["notes"])


@pytest.mark.parametrize(("columns", "width"), [(None, 80), ("120", 120)])
def test_tables_fit_where_they_are_piped(folder, columns, width):
    """A table is no wider than a terminal, its words are whole, and none is missing."""
    environment = {name: value for name, value in os.environ.items() if name != "COLUMNS"}
    if columns is not None:
        environment["COLUMNS"] = columns
    for call, last_word in (("check study.toml", "written."), ("list", "gaussian_copula")):
        command = [sys.executable, "-m", "siloweave", *call.split()]
        piped = subprocess.run(
            command, capture_output=True, text=True, check=True, cwd=folder.path, env=environment
        )
        assert max(map(len, piped.stdout.splitlines())) <= width
        assert last_word in piped.stdout.split()


def test_from_files_to_a_report(folder):
    code, out, _ = folder.call("init", "north.csv", "south.csv", "--folder", "new")
    assert code == 0
    assert "siloweave check new/study.toml" in out
    assert "integer, low" in out
    code, out, _ = folder.call("check", "new")
    assert code == 0
    assert "look at this first: facts about 3 columns" in out
    assert "Nothing was written." in out
    assert not (folder.path / "new/run").exists()
    code, out, err = folder.call("run", "new")
    assert code == 0
    assert "look at this first: facts about 3 columns" in err
    assert "siloweave ledger new/run" in out
    assert {"counting all pairs", "sampling", "report"} <= set(err.splitlines())
    for name in ("synthetic.csv", "report.html", "report-owner.html", "run.json"):
        assert (folder.path / "new/run" / name).is_file()
    page = (folder.path / "new/run/report.html").read_text()
    assert "Facts of 3 columns were taken from the rows" in page
    assert 'class="card verdict caution"' in page
    assert "3 columns with facts from rows, not declared:" in page
    assert "Simulation: one machine read every row." in page


def test_check_predicts_without_rows_or_writing(folder):
    for name in ("north.csv", "south.csv"):
        folder.write(name, "age,sex,job\n")  # no row is there to read
    before = folder.files()
    found = folder.json("check")
    assert found["parties"] == ["north", "south"]
    assert found["epsilon_per_party"] == 1.0
    (warning,) = found["warnings"]  # files without rows are as small as files of very few
    assert "no table that is drawn from it can be useful" in warning
    assert (found["finished"], found["resumes"]) == (False, 0)
    assert min(found["memory_mb"], found["seconds"], found["bytes_per_party"]) > 0
    assert folder.files() == before


def test_run_prints_what_it_cost_and_the_same_command_does_nothing_more(done):
    before = done.files()
    summary = done.json("run")
    assert done.files() == before
    assert summary["finished_before"] is True
    assert summary["epsilon"] <= summary["epsilon_allowed"] == 1.0
    assert [p["name"] for p in summary["parties"]] == ["north", "south"]
    assert all(p["releases"] == 8 and p["bytes_sent"] > 0 for p in summary["parties"])
    assert summary["files"]["report"] == "run/report.html"
    assert {"reading rows", "sampling", "report"} <= set(summary["seconds"])
    code, out, _ = done.call("run")
    assert code == 0
    assert "nothing was released again" in out
    assert "ε = 1 of 1 allowed, at δ = 1e-5, for each row" in out
    code, out, _ = done.call("check")
    assert "This run has finished" in out


def test_results_go_to_standard_output_alone(done):
    code, out, err = done.call("run", "--json")
    assert code == 0
    assert err.count("\n") == 1
    assert "look at this first: the files hold about" in err
    json.loads(out)


def rows_of(path):
    with path.open(newline="") as file:
        return list(csv.DictReader(file))


def test_sample_draws_rows_that_can_be_fixed_and_repeated(done):
    words = ["sample", "run", "-n", 30, "-o"]
    facts = done.json(*words, "a.csv")
    seed = facts.pop("seed")
    assert facts == {"file": "a.csv", "rows": 30, "private": True}
    assert f"--seed {seed} draws them again" in done.call(*words, "b.csv", "--seed", seed)[1]
    assert done.json(*words, "c.csv")["seed"] != seed
    a, b, c = (rows_of(done.path / f"{name}.csv") for name in "abc")
    assert len(a) == 30
    assert a == b != c
    assert {row["sex"] for row in a} <= {"f", "m"}
    done.call(*words, "d.csv", "--given", "age=40", "--given", "sex=f", "--given", "job=")
    fixed = {(row["age"], row["sex"], row["job"]) for row in rows_of(done.path / "d.csv")}
    assert fixed == {("40", "f", "")}
    done.call(*words, "f.csv", "--no-missing", "--seed", 3)
    assert all(row["job"] for row in rows_of(done.path / "f.csv"))
    done.call(*words, "e.parquet")
    assert (done.path / "e.parquet").read_bytes()[:4] == b"PAR1"


def test_impute_fills_a_file_and_changes_nothing_else(done):
    text = "sex,age,job\nf,040,\n,12,\n"
    (done.path / "gaps.csv").write_text(text)
    words = ["impute", "run", "--data", "gaps.csv", "-o"]
    facts = done.json(*words, "a.csv", "--seed", 3)
    assert facts == {"file": "a.csv", "rows": 2, "filled": 3, "private": True, "seed": 3}
    first, second = rows_of(done.path / "a.csv")
    assert (first["sex"], first["age"], second["age"]) == ("f", "040", "12")
    assert first["job"]
    assert second["job"]
    assert second["sex"] in ("f", "m")
    done.call(*words, "b.csv", "--seed", 3)
    assert rows_of(done.path / "b.csv") == [first, second]
    done.call(*words, "c.csv", "--column", "sex")
    assert [row["job"] for row in rows_of(done.path / "c.csv")] == ["", ""]
    code, _, err = done.call(*words, "a.csv")
    assert (code, "a.csv is there already" in err) == (2, True)
    code, _, err = done.call(*words, "d.csv", "--column", "height")
    assert (code, "'height' is no column of the model" in err) == (2, True)


def test_impute_keeps_the_file_that_it_reads(done):
    gaps = done.path / "gaps.csv"
    gaps.write_text("sex,age,job\nf,040,\n")
    code, _, err = done.call("impute", "run", "--data", "gaps.csv", "-o", gaps, "--overwrite")
    assert (code, "is the file of --data" in err) == (2, True)
    assert gaps.read_text() == "sex,age,job\nf,040,\n"


def test_impute_says_where_no_cell_is_missing(done):
    (done.path / "whole.csv").write_text("sex\nf\nm\n")
    code, out, _ = done.call("impute", "run", "--data", "whole.csv", "-o", "same.csv")
    assert code == 0
    assert out.startswith("No cell of 2 rows is missing")
    assert "--seed" not in out


def test_sample_replaces_no_file_unasked(done):
    real = (done.path / "north.csv").read_bytes()
    words = ["sample", "run", "-o", "north.csv", "-n", 3]
    code, _, err = done.call(*words)
    assert (code, (done.path / "north.csv").read_bytes()) == (2, real)
    assert "north.csv is there already" in err
    assert done.call(*words, "--overwrite")[0] == 0
    assert len(rows_of(done.path / "north.csv")) == 3


@pytest.mark.parametrize("audience", ["public", "owner"])
def test_report_makes_the_same_page_again(done, audience):
    made = done.path / "run" / ("report.html" if audience == "public" else "report-owner.html")
    before = made.read_text()
    done.call("report", "run", "--audience", audience, "-o", "again.html")
    assert (done.path / "again.html").read_text() == before
    made.unlink()
    assert done.json("report", "run", "--audience", audience)["file"] == str(
        made.relative_to(done.path)
    )
    assert made.read_text() == before


def test_ledger_shows_every_release_and_recomputes_epsilon(done):
    code, out, _ = done.call("ledger", "run")
    assert code == 0
    assert "north" in out
    assert "south" in out
    trail = done.json("ledger", "run", "--party", "south")
    (ledger,) = trail["ledgers"]
    assert (ledger["party"], len(ledger["entries"]), trail["delta"]) == ("south", 8, 1e-5)
    assert ledger["epsilon"] == done.json("run")["epsilon"]
    assert trail["allowed"] == 1.0
    _, out, _ = done.call("ledger", "run", "--party", "south")
    assert out.rstrip().endswith("paid: ε = 1 of 1 at δ = 1e-5")
    # At another delta nothing was allowed.
    _, out, _ = done.call("ledger", "run", "--party", "south", "--delta", "1e-9")
    assert " of 1 at δ" not in out
    smaller = done.json("ledger", "run", "--delta", "1e-9")
    assert smaller["ledgers"][0]["epsilon"] > ledger["epsilon"]
    code, out, _ = done.call("ledger", "run/parties/0000/ledger.jsonl")
    assert code == 0
    assert "choice among" in out


def test_a_run_folder_can_be_moved(done):
    (done.path / "run").rename(done.path / "moved")
    assert done.call("sample", "moved", "-o", "x.csv", "-n", 3)[0] == 0
    assert done.call("ledger", "moved")[0] == 0
    assert done.call("report", "moved")[0] == 0


def test_names_of_files_become_names_that_a_study_may_have(folder):
    (folder.path / "north.csv").rename(folder.path / "Zürich Nord.csv")
    folder.call("init", "Zürich Nord.csv", "south.csv", "--folder", "neu/ä")
    found = folder.json("check", "neu/ä/study.toml")
    assert found["parties"] == ["Zurich Nord", "south"]


def test_the_demo_runs_once(folder, monkeypatch):
    from siloweave import datasets

    small = datasets.adult().take(range(400))
    monkeypatch.setattr(datasets, "adult", lambda: small)
    from siloweave.app import init

    monkeypatch.setattr(init, "_STUDY", init._STUDY.replace("[method]", "[method]\nbins = 4"))
    summary = folder.json("demo")
    assert [p["name"] for p in summary["parties"]] == list(init.DEMO_PARTIES)
    assert summary["rows"] == 48842
    assert summary["guarantee"] == "dp"
    code, out, _ = folder.call("demo")
    assert code == 0
    assert "nothing was released again" in out
    code, _, err = folder.call("demo", "--split", "iid")
    assert code == 2
    assert "--folder" in err


@pytest.mark.parametrize("split", ["clusters", "iid"])
def test_the_demo_needs_no_extra(split, tmp_path, monkeypatch):
    from siloweave import datasets
    from siloweave.app.init import prepare

    small = datasets.adult().take(range(200))
    monkeypatch.setattr(datasets, "adult", lambda: small)
    monkeypatch.setitem(sys.modules, "umap", None)
    prepare(tmp_path / "d", split=split)
    assert len(list((tmp_path / "d/data").iterdir())) == 4


MESSY = Path(__file__).parent.parent / "tables" / "messy" / "tuned"


def test_init_says_how_files_are_written_and_why_a_column_is_what_it_is(folder):
    source = (MESSY / "b05_hospital.csv").read_bytes()
    (folder.path / "ward.csv").write_bytes(source)
    code, out, err = folder.call("init", "ward.csv", "--folder", "new")
    assert (code, err) == (0, "")
    out = " ".join(out.split())
    assert "ward: fields divided by semicolons, cp1252, names in line 1; a word" in out
    assert "a word of it reads 'Unfälle': if that is wrong, give --encoding" in out
    assert (
        "240 different texts in 240 rows of the form P[0-9]{7}, such as P0000000: an identifier"
        in out
    )
    assert "numbers written like 1234,5" in out
    study = (folder.path / "new/study.toml").read_text()
    assert 'separator = ";"\nencoding = "cp1252"\n' in study
    schema = json.loads((folder.path / "new/schema.json").read_text())
    assert "an identifier" in schema["columns"][0]["why"]
    code, out, _ = folder.call("check", "new")
    assert code == 0
    assert "drawn anew, not modelled: patient (like P[0-9]{7}), note (numbered)" in out
    # `init` has said why, and the file and the review say it.
    assert "an identifier, left out of the model" not in out
    found = folder.json("check", "new")
    assert found["columns"][0][:2] == ["patient", "id"]
    folder.replace("new/study.toml", "# queries = 64", "queries = 4")
    assert folder.call("run", "new")[0] == 0
    text = (folder.path / "new/run/synthetic.csv").read_text("utf-8")
    first = text.splitlines()[1].split(",")
    assert re.fullmatch(r"\d\d\.\d\d\.\d{4}", first[1])
    assert re.search(r'"\d+,\d"', text)
    page = (folder.path / "new/run/report.html").read_text()
    assert "an identifier" not in page  # a reason counts rows
    assert "8 columns with facts from rows, not declared:" in page
    assert "drawn anew (like P[0-9]{7}), not modelled" in page
    assert re.fullmatch("P[0-9]{7}", first[0])


def test_init_says_once_which_columns_have_the_same_codes_for_unknown(folder):
    numbers = [n % 40 + 50 for n in range(200)]
    for place in range(5):
        numbers[place], numbers[place + 5] = -9, -8
    rows = "".join(f"{number},{number + 2 * (number > 0)},{number > 0}\n" for number in numbers)
    folder.write("credit.csv", "months,limit,good\n" + rows)
    code, out, _ = folder.call("init", "credit.csv", "--folder", "new")
    assert code == 0
    words = " ".join(out.split())
    assert words.count("list them in missing_values") == 1
    assert "months, limit: -8 and -9, far from all others: list them" in words
    schema = json.loads((folder.path / "new/schema.json").read_text())
    assert all("missing_values" in column["why"] for column in schema["columns"][:2])


@pytest.mark.parametrize("width", [80, 120])
def test_the_table_of_init_fits_the_terminal(folder, monkeypatch, width):
    monkeypatch.setenv("COLUMNS", str(width))
    long = "a column with a name that is longer than any terminal's quarter, and then some"
    rows = "".join(f"{n % 40},{'abcdefgh'[n % 8]}\n" for n in range(200))
    (folder.path / "wide.csv").write_text(f'"{long}",grp\n{rows}')
    code, out, _ = folder.call("init", "wide.csv", "--folder", "new")
    assert code == 0
    assert all(len(line) <= width for line in out.splitlines())
    words = " ".join(out.split())
    assert f"{long}, integer: 40 different" in words
    assert "from rows: integer, low 0, high 39" in words


@pytest.mark.parametrize(("columns", "method"), [(20, "aim"), (150, "two_round")])
def test_init_proposes_a_method_that_ends_within_minutes(folder, columns, method):
    names = ",".join(f"x{column}" for column in range(columns))
    row = ",".join("0110101"[column % 7] for column in range(columns))
    folder.write("wide.csv", f"{names}\n" + f"{row}\n" * 30)
    code, _, _ = folder.call("init", "wide.csv", "--folder", "new")
    assert code == 0
    assert f'name = "{method}"' in (folder.path / "new/study.toml").read_text()


@pytest.mark.parametrize(("rows", "delta"), [(100_000, "1e-6"), (100_001, "1e-7")])
def test_init_writes_a_delta_that_check_does_not_call_large(folder, rows, delta):
    folder.write("long.csv", "sex,age\n" + "f,30\nm,41\n" * (rows // 2) + "f,30\n" * (rows % 2))
    code, _, _ = folder.call("init", "long.csv", "--folder", "new")
    assert code == 0
    assert f"delta = {delta} " in (folder.path / "new/study.toml").read_text()
    _, out, _ = folder.call("check", "new", "--rows")
    assert "delta" not in out.partition("look at this first")[2]


def test_init_takes_the_form_of_a_file_as_it_is_given(folder):
    folder.write("odd.csv", "1;2,5;x\n2;3,5;none\n")
    words = ("odd.csv", "--folder", "new", "--no-header", "--decimal", ",", "--missing", "none")
    code, out, _ = folder.call("init", *words)
    assert code == 0
    assert "no line of names" in out
    study = (folder.path / "new/study.toml").read_text()
    assert 'separator = ";"\nheader = false\ndecimal = ","\nmissing = ["none"]\n' in study
    columns = json.loads((folder.path / "new/schema.json").read_text())["columns"]
    assert [one["name"] for one in columns] == ["column_1", "column_2", "column_3"]
    assert (columns[1]["decimals"], columns[2]["missing"]) == (1, True)
    code, _, _ = folder.call("check", "new")
    assert code == 0


def test_a_stray_text_is_shown_to_its_owner_alone(folder):
    lines = ["x", *(f"{n / 10}" for n in range(1, 200)), "Secret Name"]
    folder.write("odd.csv", "\n".join(lines) + "\n")
    code, _, err = folder.call("init", "odd.csv", "--folder", "new")
    assert code == 0
    assert "odd, line 201, x: 'Secret Name' is no number" in err
    for name in ("study.toml", "schema.json"):
        assert "Secret" not in (folder.path / "new" / name).read_text()
    code, out, err = folder.call("run", "new")
    assert code == 0
    assert "1 in 'x'. `siloweave check --rows` shows which rows" in " ".join(err.split())
    folder.refuse_misfits("new/schema.json")
    folder.replace("new/study.toml", 'folder = "run"', 'folder = "other"')
    code, out, err = folder.call("run", "new")
    assert code == 2
    assert "1 row holds text" in err
    assert "`siloweave check --rows` shows which rows" in err
    assert "Secret" not in out + err


def test_parties_that_write_a_column_differently_are_named_before_a_study(folder):
    lines = {
        "north": [
            "sex,born,age,job",
            *(f"{'MF'[n % 2]},{n % 28 + 1:02}.03.1970,4,x" for n in range(30)),
        ],
        "south": [
            "sex,born,age,job",
            *(f"{('male', 'female')[n % 2]},1970-03-{n % 28 + 1:02},5,x" for n in range(30)),
        ],
    }
    for name, rows in lines.items():
        folder.write(f"{name}.csv", "\n".join(rows) + "\n")
    code, _, err = folder.call("init", "north.csv", "south.csv", "--folder", "new")
    assert code == 0
    assert "sex: north has F, M; south has female, male: map them first" in err
    assert "born: north has dates written as 31.01.2024 (%d.%m.%Y); south has dates" in err
    assert "age" not in err
    assert "job" not in err


def test_a_column_that_is_an_id_in_every_file_is_proposed_as_one(folder):
    for name, factor in (("a", 1), ("b", 1000)):
        rows = "".join(f"{factor * n},{n % 3}\n" for n in range(60))
        folder.write(f"{name}.csv", f"kg,dose\n{rows}")
    assert folder.call("init", "a.csv", "b.csv", "--folder", "new")[0] == 0
    columns = json.loads((folder.path / "new/schema.json").read_text())["columns"]
    assert columns[0]["kind"] == "id"
    assert "fallback" not in columns[0]


def test_check_reads_rows_where_it_is_asked_to(folder):
    unread = "Rows were not read. Before you spend ε: siloweave check --rows\n"
    assert folder.call("check")[1].endswith(unread)
    folder.replace("study.toml", '[[parties]]\nname = "south"\ndata = "south.csv"\n', "")
    assert folder.call("check")[1].endswith(unread)
    folder.write("study.toml", STUDY)
    code, out, _ = folder.call("check", "--rows")
    assert code == 0
    assert unread not in out
    assert (
        "Rows were read here, and nothing is odd: north 40, south 40. Nothing was written." in out
    )
    folder.replace("south.csv", "age,sex,job\n", "age,sex,job\n120,f,x\nold,f,x\n")
    before = folder.files()
    code, out, _ = folder.call("check", "--rows")
    assert code == 0
    assert "south, line 3 ('old'): column 'age': 1 row holds text" in out
    assert "south, line 2 ('120'): column 'age': 1 row " in out
    assert folder.files() == before
    assert "'old'" not in folder.call("check")[1]
    found = folder.json("check", "--rows")["rows"]
    assert found["count"] == {"north": 40, "south": 42}
    assert found["overlaps"] == []
    code, _, err = folder.call("run")
    assert code == 0
    assert "moved to where it has a place for them: 2 in 'age'" in err
    assert "'old'" not in err
    assert "siloweave check --rows" in err


def test_check_begins_with_what_a_newcomer_looks_for(folder):
    head = folder.call("check")[1].splitlines()[1]
    assert re.fullmatch(r"ε at most 1 · about [\d.]+ m?s", head)  # FLAIM has no forecast of error
    folder.replace("study.toml", _FLAIM, 'name = "two_round"')
    folder.replace("study.toml", '[[parties]]\nname = "south"\ndata = "south.csv"\n', "")
    found = folder.json("check")
    out = folder.call("check")[1]
    share = 100 * (found["error"]["share"] + found["error"]["share_drawn"])
    assert out.splitlines()[1].endswith(
        f"off by about ± {float(f'{share:.2g}'):g} percentage points"
    )
    assert found["rows_guessed"] is False
    assert "expected error, for 40 rows" in out
    assert "guessed" not in out


def test_check_promises_nothing_without_a_bound(folder):
    fed_tgan(folder)
    lines = folder.call("check")[1].splitlines()
    assert lines[1].startswith("ε is not bounded · about ")
    assert lines[-1].startswith("Rows were not read. To see which do not fit:")


@pytest.mark.parametrize("name", ["big.csv", "big.jsonl"])
def test_rows_that_are_guessed_from_a_size_are_said_to_be(folder, name):
    age = {"big.csv": "30,f,x\n", "big.jsonl": '{"age": 30, "sex": "f", "job": "x"}\n'}[name]
    head = "age,sex,job\n" if name == "big.csv" else ""
    folder.write(name, head + age * 20_000)
    folder.replace("study.toml", _FLAIM, 'name = "two_round"')
    folder.replace("study.toml", '"south.csv"', f'"{name}"')
    out = folder.call("check")[1]
    assert "expected error, for about " in out
    assert "(the number of rows is guessed from the files' sizes)" in out
    out = folder.call("check", "--rows")[1]
    assert "expected error, for 20,040 rows" in out
    assert "guessed" not in out


def test_one_file_for_two_parties_is_named_with_what_it_costs(folder):
    folder.write("south.csv", (folder.path / "north.csv").read_text())
    code, out, _ = folder.call("check", "--rows")
    assert code == 0
    said = "has ε = 2 at δ = 3.72e-5, not 1. Leave them out at all but one."
    assert "north and south hold the same 40 rows: was one file given to 2 parties?" in out
    assert said in out
    assert said not in folder.call("check")[1]  # no row is read
    folder.replace("study.toml", 'data = "south.csv"', 'data = "./north.csv"')
    for words in (("check",), ("run",)):
        code, out, err = folder.call(*words)
        assert code == 0
        assert "north and south name the same file, north.csv. A person with" in out + err
        assert said in out + err
    code, _, err = folder.call("init", "north.csv", "south.csv", "--folder", "new")
    assert "hold the same 40 rows" in err


def test_columns_of_the_same_people_raise_no_alarm(folder):
    """Where columns are split, rows are the same people on purpose."""
    lines = ["id,a,b,c", *(f"{n * 7919 % 10007},{n % 5},{n % 3},{n % 7}" for n in range(40))]
    folder.write("whole.csv", "\n".join(lines) + "\n")
    for name, own in (("west", "a"), ("east", "c")):
        kept = ["id", own]
        places = [lines[0].split(",").index(one) for one in kept]
        rows = [",".join(line.split(",")[i] for i in places) for line in lines]
        folder.write(f"{name}.csv", "\n".join(rows) + "\n")
    code, _, err = folder.call("init", "west.csv", "east.csv", "--folder", "new")
    assert (code, err) == (0, "")
    found = folder.json("check", "new", "--rows")["rows"]
    assert (found["differences"], found["overlaps"], found["misfits"]) == ([], [], [])


def test_three_rows_are_too_few_and_every_step_says_so(folder):
    folder.write("tiny.csv", "age,sex\n30,f\n40,m\n50,f\n")
    assert folder.call("init", "tiny.csv", "--folder", "new")[0] == 0
    said = "the noise is as large as any count of so few"
    assert said in folder.call("check", "new")[1]
    code, _, err = folder.call("run", "new")
    assert code == 0
    assert said in err
    page = (folder.path / "new/run/report.html").read_text()
    assert "noise is as large as any count of so few" in page


def test_money_is_drawn_with_the_zeros_that_the_file_has(folder):
    rows = [f"{n * 7 % 90 / 4 + 10:.2f},{n % 40 / 2:g},{'fm'[n % 2]}" for n in range(200)]
    folder.write("bills.csv", "\n".join(["fee,dose,sex", *rows]) + "\n")
    assert folder.call("init", "bills.csv", "--folder", "new")[0] == 0
    assert folder.call("run", "new")[0] == 0
    assert folder.call("sample", "new/run", "--out", "more.csv", "--rows", "50")[0] == 0
    for name in ("new/run/synthetic.csv", "more.csv"):
        drawn = [line.split(",") for line in (folder.path / name).read_text().splitlines()[1:]]
        assert all(re.fullmatch(r"\d+\.\d\d", fee) for fee, _, _ in drawn)
        assert any(fee.endswith("0") for fee, _, _ in drawn)
        assert all(re.fullmatch(r"\d+(\.[1-9])?", dose) for _, dose, _ in drawn)


def test_an_ambiguous_date_is_said_by_init_and_check_with_how_to_choose(folder):
    days = [f"{n % 12 + 1:02}/{n % 11 + 1:02}/2021,f" for n in range(60)]
    folder.write("ward.csv", "\n".join(["seen,sex", *days]) + "\n")
    said = (
        "they may be 31/01/2024 (%d/%m/%Y) or 01/31/2024 (%m/%d/%Y); read as %d/%m/%Y. "
        "Write the right one as format"
    )
    code, _, err = folder.call("init", "ward.csv", "--folder", "new")
    assert code == 0
    assert (
        f"look at this first: seen: dates that are ambiguous: no day is above 12, so {said}" in err
    )
    assert "look at this first: seen: dates that are ambiguous" in folder.call("check", "new")[1]


def test_a_file_without_names_beside_one_with_names_is_refused(folder):
    rows = "\n".join(f"{n % 50 + 20},{'fm'[n % 2]},{'xy'[n % 2]}" for n in range(60))
    folder.write("bare.csv", rows + "\n")
    code, _, err = folder.call("init", "north.csv", "bare.csv", "--folder", "new")
    assert code == 2
    assert "party 'bare': the first line of its file looks like a row" in " ".join(err.split())
    assert not (folder.path / "new").exists()
    code, out, _ = folder.call("init", "bare.csv", "--folder", "new")
    assert code == 0
    assert "no line of names (give --header if line 1 has them)" in out


def test_the_schema_of_another_table_is_named_as_such(folder):
    for name in ("north.csv", "south.csv"):
        folder.write(name, "age,sex,job\n" + "young,whole,vet\nold,cut,zoo\n" * 20)
    code, out, _ = folder.call("check", "--rows")
    assert code == 0
    assert (
        "north: none of the first 5 rows fits 3 columns: is it the schema of another table?" in out
    )
    for name in ("north.csv", "south.csv"):
        folder.write(name, "make,price\nvw,1\nbmw,2\n")
    code, _, err = folder.call("check")
    assert code == 2
    assert "Is it the schema of another table?" in err


def test_a_constraint_is_proposed_checked_and_kept(folder):
    text = "town,country,value\n" + "".join(
        f"t{i % 5},{'AT' if i % 5 < 2 else 'DE'},{i % 7}\n" for i in range(200)
    )
    (folder.path / "towns.csv").write_text(text)
    code, out, _ = folder.call("init", "towns.csv", "--folder", "new")
    assert code == 0
    assert "constraint: town and country occur in 5 combinations only" in out
    code, out, _ = folder.call("check", "new")
    assert "(every drawn row keeps: fixed combinations of town, country)" in out
    assert "look at this first: 1 constraint was taken from rows" in out
    assert folder.call("run", "new")[0] == 0
    rows = {
        tuple(line.split(",")[:2])
        for line in (folder.path / "new/run/synthetic.csv").read_text().splitlines()[1:]
    }
    assert rows <= {(f"t{i}", "AT" if i < 2 else "DE") for i in range(5)}
    assert "0 of" in (folder.path / "new/run/report.html").read_text()
    (folder.path / "towns.csv").write_text(text + "t0,DE,1\n")
    code, out, _ = folder.call("check", "new", "--rows")
    assert "towns, line 202: 1 row breaks fixed combinations of town, country" in out
    folder.replace("new/study.toml", 'folder = "run"', 'folder = "other"')
    code, _, err = folder.call("run", "new")
    assert code == 0
    assert "1 of 201 rows break fixed combinations of town, country" in err
    folder.refuse_misfits("new/schema.json")
    folder.replace("new/study.toml", 'folder = "other"', 'folder = "third"')
    code, _, err = folder.call("run", "new")
    assert code == 2
    assert "1 of 201 rows break it (row 201, counted from 1)" in err
    assert "check --rows" not in err


def test_lines_above_the_names_are_skipped_said_and_stored(folder):
    rows = "".join(f"{20 + i},{'fm'[i % 2]},{i % 7}.5,,\n" for i in range(60))
    folder.write("ward.csv", f"# exported by X\nWard 7\n\nage,sex,dose,,\n{rows}")
    code, out, _ = folder.call("init", "ward.csv", "--folder", "new")
    assert code == 0
    assert "ward: fields divided by commas, utf-8, names in line 4; what lies above it is" in out
    assert "2 empty columns at the end without a name are left out" in out
    assert "skip = 3\n" in (folder.path / "new" / "study.toml").read_text()
    folder.write("ward.csv", f"# exported by X\nWard 7\n---\nage,sex,dose,,\n{rows}")
    assert folder.call("check", "new", "--rows")[0] == 0
    assert folder.call("run", "new")[0] == 0
    assert not folder.call("init", "ward.csv", "--skip", "3", "--folder", "again")[0]
    assert "skip = 3\n" in (folder.path / "again" / "study.toml").read_text()


def test_lines_that_leave_off_empty_fields_are_read_where_the_study_says_so(folder):
    lines = [f"{20 + i},{'fm'[i % 2]},{'xy'[i % 2]}" for i in range(40)]
    lines[20:36] = [line[:-2] for line in lines[20:36]]  # as Excel does in blocks of 16
    folder.write("north.csv", "\n".join(["age,sex,job", *lines, ""]))
    code, _, said = folder.call("check", "--rows")
    assert code == 2
    assert "16 lines have too few" in said
    assert "short_lines = true in the study" in said
    study = (folder.path / "study.toml").read_text()
    said = 'data = "north.csv"\nshort_lines = true'
    folder.write("study.toml", study.replace('data = "north.csv"', said))
    assert "Rows were read here" in folder.call("check", "--rows")[1]
    assert not folder.call("init", "north.csv", "--short-lines", "--folder", "again")[0]
    assert "short_lines = true\n" in (folder.path / "again" / "study.toml").read_text()
