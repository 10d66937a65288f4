"""Whatever is wrong: one clear error, its exit code, and nothing written."""

import json
import shutil

import pytest


def refused(folder, *words, code=2):
    """Run a command that must refuse with this exit code, and return its message."""
    before = folder.files()
    ended_with, out, err = folder.call(*words)
    assert ended_with == code, (out, err)
    assert out == ""
    assert folder.files() == before, "something was written"
    assert "Traceback" not in err
    return " ".join(err.split("error:", 1)[1].split())


def drop_rows(folder, name, keep):
    lines = (folder.path / name).read_text().splitlines(keepends=True)
    folder.write(name, "".join(lines[: 1 + keep]))


def missing_file(folder):
    (folder.path / "south.csv").unlink()


def column_that_the_schema_lacks(folder):
    for name in ("north.csv", "south.csv"):
        folder.replace(name, "job", "work")


def value_out_of_bounds(folder):
    folder.refuse_misfits()
    folder.replace("south.csv", "age,sex,job\n", "age,sex,job\n120,f,x\n")


def category_not_declared(folder):
    folder.refuse_misfits()
    folder.replace("south.csv", "age,sex,job\n", "age,sex,job\n20,d,x\n")


def missing_value_not_declared(folder):
    folder.refuse_misfits()
    folder.replace("south.csv", "age,sex,job\n", "age,sex,job\n20,,x\n")


def all_missing(folder):
    without_guarantee(folder)
    for name in ("north.csv", "south.csv"):
        head, *rows = (folder.path / name).read_text().splitlines()
        folder.write(name, "\n".join([head, *(row.rsplit(",", 1)[0] + "," for row in rows)]) + "\n")


def same_name_twice(folder):
    folder.replace("north.csv", "age,sex,job", "age,sex,sex")


def different_columns(folder):
    folder.replace("north.csv", "age,sex,job", "age,sex,work")


def without_guarantee(folder):
    """Under a guarantee no number of rows is refused."""
    folder.replace(
        "study.toml", '"flaim"\nrounds = 2\nparticipation = 1.0\nbins = 4', '"fed_tabddpm"'
    )
    folder.replace("study.toml", "epsilon = 1", "epsilon = inf")


def empty_party(folder):
    without_guarantee(folder)
    drop_rows(folder, "north.csv", 0)


def no_bytes(folder):
    folder.write("north.csv", "")


def one_row(folder):
    without_guarantee(folder)
    drop_rows(folder, "north.csv", 1)


def too_few_parties(folder):
    folder.replace("study.toml", '"small"', '"small"\nroster = ["north", "south", "east", "west"]')


def epsilon_zero(folder):
    folder.replace("study.toml", "epsilon = 1", "epsilon = 0")


def epsilon_negative(folder):
    folder.replace("study.toml", "epsilon = 1", "epsilon = -0.5")


def delta_one(folder):
    folder.replace("study.toml", "delta = 1e-5", "delta = 1.0")


def too_large(folder):
    many = json.dumps(["f", "m", "x", "y", *(str(i) for i in range(196))])
    folder.replace("schema.json", '["f", "m"]', many)
    folder.replace("schema.json", '["x", "y"]', many)
    folder.replace("schema.json", '"high": 99', '"high": 99999')
    folder.replace("study.toml", "bins = 4", "bins = 1000\ndegree = 3\nqueries = 64")


def more_fields(folder):
    folder.replace("south.csv", "age,sex,job\n", "age,sex,job\n20,f,x,7\n")


def no_place(folder):
    folder.replace("schema.json", ', "fallback": 0', "")


def open_quotation(folder):
    folder.write("south.csv", 'age,sex,job\n20,f,"x\n30,Secret Name,y\n')


def endless(folder):
    folder.replace("study.toml", "epsilon = 1", "epsilon = inf")


def output_is_a_file(folder):
    folder.write("run", "")


def central_method_for_two(folder):
    folder.replace("study.toml", '"flaim"\nrounds = 2\nparticipation = 1.0', '"aim"')


def schema_is_no_json(folder):
    folder.write("schema.json", "{")


CASES = [
    # what is wrong; words of the message; whether `check` sees it without reading rows
    (missing_file, ["party 'south'", "there is no file 'south.csv'"], True),
    (column_that_the_schema_lacks, ["'north'", "lacks its columns 'work'", "Declare them"], True),
    (value_out_of_bounds, ["'south'", "'age'", "1 row is", "0 to 99", "widen low and high"], False),
    (category_not_declared, ["'south'", "'sex'", "2 categories", "as other"], False),
    (missing_value_not_declared, ["'south'", "'sex'", "declare missing=True"], False),
    (all_missing, ["column 'job' has no value in any row of any party", "Drop it"], False),
    (same_name_twice, ["'north'", "column names twice: sex", "rename"], True),
    (different_columns, ["only 'north' has 'work'; only 'south' has 'job'", "rename"], True),
    (empty_party, ["party 'north' has no rows", "two or more", "Leave it out"], False),
    (no_bytes, ["'north'", "'north.csv' is empty", "column names"], True),
    (one_row, ["party 'north' has one row", "two or more", "Leave it out"], False),
    (too_few_parties, ["names 4 parties", "east, west", "[[parties]] entry", "Add"], True),
    (epsilon_zero, ["epsilon = 0.0 must be greater than 0", "Give a positive number"], True),
    (epsilon_negative, ["epsilon = -0.5 must be greater than 0"], True),
    (delta_one, ["delta = 1.0 must lie strictly between 0 and 1", "for example"], True),
    (
        too_large,
        ["age (1000), sex (200), job (201)", "40,200,000 cells", "80 MB", "fewer bins"],
        True,
    ),
    (more_fields, ["'south'", "more fields"], False),
    (no_place, ["'age' of the schema", "has no place there", "outside='refuse'"], True),
    (open_quotation, ["'south'", "quotation mark"], False),
    (endless, ["[budget] epsilon = inf", "adds noise"], True),
    (output_is_a_file, ["[output] folder = 'run' cannot be made", "Name another"], False),
    (central_method_for_two, ["'aim' takes one party", "has 2", "split rows"], True),
    (schema_is_no_json, ["schema.json: is not JSON", "siloweave init"], True),
]


BUDGETS = (epsilon_zero, epsilon_negative, delta_one, endless)


@pytest.mark.parametrize(("break_it", "words", "seen"), CASES, ids=[c[0].__name__ for c in CASES])
def test_run_refuses_and_writes_nothing(folder, break_it, words, seen):
    break_it(folder)
    for command in ("run", "check") if seen else ("run",):
        code = 4 if break_it in BUDGETS else 2
        message = refused(folder, command, "study.toml", code=code)
        assert "Secret" not in message
        for word in words:
            assert word in message


@pytest.mark.parametrize(
    ("row", "moved"),
    [
        (b"120,f,x", "1 in 'age'"),
        (b"20,d,x", "1 in 'sex'"),
        (b"20,,x", "1 in 'sex'"),
        (b"old,f\x81,z", "1 in 'age', 1 in 'sex', 1 in 'job'"),
    ],
)
def test_a_cell_without_a_place_is_moved_and_its_owner_is_told(folder, row, moved):
    head, *rows = (folder.path / "south.csv").read_bytes().splitlines()
    (folder.path / "south.csv").write_bytes(b"\n".join([head, row, *rows, b""]))
    code, out, err = folder.call("run", "study.toml")
    assert code == 0
    assert (
        f"south: cells that do not fit the schema, and were moved to where it has a place "
        f"for them: {moved}." in err
    )
    assert "were moved" not in out + (folder.path / "run" / "report.html").read_text()


@pytest.mark.parametrize("break_it", [missing_file, different_columns, same_name_twice, no_bytes])
def test_init_refuses_and_writes_nothing(folder, break_it):
    break_it(folder)
    refused(folder, "init", "north.csv", "south.csv", "--folder", "new")


def test_init_does_not_replace_what_is_there(folder):
    message = refused(folder, "init", "north.csv", "south.csv")
    assert "study.toml and schema.json already there. Give --force" in message


def test_init_keeps_party_names_apart(folder):
    (folder.path / "sub").mkdir()
    shutil.copy(folder.path / "north.csv", folder.path / "sub" / "north.csv")
    message = refused(folder, "init", "north.csv", "sub/north.csv", "--folder", "new")
    assert "two files would make a party 'north'" in message
    same = refused(folder, "init", "north.csv", "sub/../north.csv", "--folder", "new")
    assert "'north.csv' is given twice" in same
    assert "would make" not in same


# A folder with a run in it.


def test_a_budget_that_is_spent(done):
    done.replace("study.toml", "epsilon = 1", "epsilon = 2")
    for command in ("run", "check"):
        message = refused(done, command, code=4)
        assert "The ε of this study is spent" in message
        assert "party 'north' has already spent epsilon = 1.0 of 2.0 at delta = 1e-05" in message
        assert 'set folder = "run2" under [output]' in message
        assert "cost ε = 3 at δ = 2e-05" in message


def test_rows_are_shown_where_a_budget_is_spent(done):
    done.replace("study.toml", "epsilon = 1", "epsilon = 2")
    done.replace("north.csv", "age,sex,job\n", "age,sex,job\n120,f,x\n")
    code, out, _ = done.call("check", "--rows")
    text = " ".join(out.split())
    assert code == 0
    assert "A run would be refused. The ε of this study is spent" in text
    assert "north, line 2 (120): column 'age'" in text


def test_the_folder_that_is_named_takes_another_run(done):
    done.replace("study.toml", "epsilon = 1", "epsilon = 2")
    (done.path / "run2").mkdir()
    assert 'folder = "run3"' in refused(done, "run", code=4)
    done.path.joinpath("study.toml").write_text(
        done.path.joinpath("study.toml").read_text() + '\n[output]\nfolder = "run3"\n'
    )
    assert done.call("run")[0] == 0
    assert done.json("run")["epsilon_allowed"] == 2
    done.replace("study.toml", "epsilon = 2", "epsilon = 1")
    assert 'folder = "run4"' in refused(done, "run", code=4)


def ledger_of(done, number):
    return done.path / f"run/parties/{number:04d}/ledger.jsonl"


def edited(path):
    lines = path.read_text().splitlines(keepends=True)
    lines[2] = lines[2].replace('"sensitivity":1', '"sensitivity":2', 1)
    path.write_text("".join(lines))


def a_line_removed(path):
    lines = path.read_text().splitlines(keepends=True)
    path.write_text("".join(lines[:2] + lines[3:]))


def its_end_cut_off(path):
    path.write_text("".join(path.read_text().splitlines(keepends=True)[:-1]))


def emptied(path):
    path.write_text("")


def removed(path):
    path.unlink()


@pytest.mark.parametrize(
    ("change", "words"),
    [
        (edited, "line 3: was edited; its hash does not fit"),
        (a_line_removed, "line 3: does not follow the line before it"),
        (its_end_cut_off, "Its end was cut off, or another copy was put in its place"),
        (emptied, "the ledger of party 'north' is gone or empty"),
        (removed, "the ledger of party 'north' is gone or empty"),
    ],
)
def test_a_ledger_that_was_changed(done, change, words):
    change(ledger_of(done, 0))
    for command in (["run"], ["check"], ["ledger", "run"]):
        message = refused(done, *command, code=5)
        assert words in message
        assert "Put back the file" in message


@pytest.mark.parametrize("how", ["flip", "cut"])
def test_a_stored_reply_that_was_changed(done, how):
    (done.path / "run/run.json").unlink()  # as after a crash just before the end
    for file in (done.path / "run/parties/0001/store").iterdir():
        data = bytearray(file.read_bytes())
        data[len(data) // 2] ^= 1
        file.write_bytes(bytes(data) if how == "flip" else bytes(data[:-5]))
    message = refused(done, "run", code=5)
    assert "is damaged or cut off" in message
    assert "agree on a new budget" in message


def test_rows_that_changed_in_the_middle_of_a_run(done):
    (done.path / "run/run.json").unlink()
    with (done.path / "north.csv").open("a") as file:
        file.write("20,f,x\n")
    message = refused(done, "run", code=3)
    assert "party 'north': its rows changed since this run began" in message


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["run", "nope.toml"], "there is no study file 'nope.toml'"),
        (["sample", "nope", "-o", "x.csv"], "nope: holds no finished run"),
        (["sample", "run", "-o", "x.txt"], "the name must end in .csv or .parquet"),
        (["sample", "run", "-o", "no/x.csv"], "its folder does not exist"),
        (["sample", "run", "-o", "x.csv", "--given", "age"], "must read column=value"),
        (["sample", "run", "-o", "x.csv", "--given", "aeg=3"], "did you mean 'age'?"),
        (["sample", "run", "-o", "x.csv", "--given", "age=100"], "must lie between 0 and 99"),
        (["sample", "run", "-o", "x.csv", "--given", "sex=z"], "It has f, m"),
        (["report", "run", "-o", "no/x.html"], "its folder does not exist"),
        (["report", "run", "-o", "run"], "a page needs the name of a file that ends in .html"),
        (["report", "nope"], "nope: holds no finished run"),
        (["ledger", "nope"], "is no run's folder and no ledger file"),
        (["ledger", "run", "--party", "nord"], "did you mean 'north'?"),
        (["ledger", "run", "--delta", "2"], "delta=2.0 must be a number in (0, 1)"),
    ],
)
def test_a_wrong_argument(done, words, message):
    assert message in refused(done, *words)


@pytest.mark.parametrize("words", [["weave"], ["run", "--fast"], ["sample", "run"]])
def test_a_word_that_does_not_exist(folder, words):
    code, out, err = folder.call(*words)
    assert (code, out) == (2, "")
    assert "Usage:" in err


@pytest.mark.parametrize(
    ("file", "words"),
    [
        ("run.json", ["sample", "run", "-o", "x.csv"]),
        ("model/model.safetensors", ["sample", "run", "-o", "x.csv"]),
        ("model/encoder.json", ["sample", "run", "-o", "x.csv"]),
        ("model/fit.json", ["sample", "run", "-o", "x.csv"]),
        ("record.json", ["report", "run"]),
    ],
)
@pytest.mark.parametrize("change", ["cut", "gone"])
def test_a_run_with_a_broken_file(done, file, words, change):
    path = done.path / "run" / file
    if change == "gone":
        path.unlink()
    else:
        path.write_bytes(path.read_bytes()[:-20])
    assert str(path.parent.relative_to(done.path)) in refused(done, *words)


def test_a_record_of_the_format_before_is_refused_with_what_wrote_it(done):
    path = done.path / "run/record.json"
    path.write_text(path.read_text().replace('"version":4', '"version":3'))
    said = refused(done, "report", "run")
    assert "version 3, written by siloweave 0.1.0" in said
    assert "run the study again" in said


def test_a_finished_run_says_what_it_no_longer_has(done):
    (done.path / "run/synthetic.csv").unlink()
    with (done.path / "study.toml").open("a") as file:
        file.write("\n[output]\nrows = 7777\n")
    code, _, err = done.call("run")
    assert code == 0
    told = " ".join(err.split())
    assert "synthetic.csv is not there any more" in told
    assert "[output] rows = 7777, and this run drew" in told
    assert "`siloweave sample`" in told


def test_columns_that_refuse_by_choice_are_named_by_check_and_by_the_report(folder):
    folder.refuse_misfits()
    said = 'age, sex, job: outside = "refuse" in the schema'
    code, out, _ = folder.call("check")
    assert code == 0
    assert said in " ".join(out.split())
    assert folder.call("run")[0] == 0
    assert (
        "A single row can decide that, and ε does not cover it"
        in (folder.path / "run/report.html").read_text()
    )
