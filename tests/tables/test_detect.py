import re
from datetime import UTC, date, datetime, time, timedelta

import numpy as np
import pandas as pd
import polars as pl
import pytest
from msgspec.structs import replace

import siloweave as sw
from siloweave.app.init import propose
from siloweave.app.parties import misfits
from siloweave.errors import SchemaError
from siloweave.tables import Column, Encoder, Schema, Table, read, write
from siloweave.tables.cells import placed_cells
from siloweave.tables.detect import evidence
from siloweave.tables.features import Features
from siloweave.tables.forms import number_form, written_time
from siloweave.tables.joining import stacked
from siloweave.tables.relations import proposed
from siloweave.tables.schema import describe

ROWS = 400
EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


def seen(values, name="x", **others):
    return Schema.detect(pl.DataFrame({name: values, **others}))[name]


def random(seed=0):
    return np.random.default_rng(seed)


def dates(pattern, upto=28):
    days = [d for d in pd.date_range("2020-01-01", periods=900) if d.day <= upto]
    return [days[i].strftime(pattern) for i in random().integers(len(days), size=ROWS)]


@pytest.mark.parametrize("mark", ["/", "-"])
def test_an_ambiguous_date_names_both_readings_and_how_to_choose(mark):
    column = seen(dates(f"%m{mark}%d{mark}%Y", upto=12))
    assert column.kind == "datetime"
    assert column.format == f"%d{mark}%m{mark}%Y"
    for words in ("ambiguous", "%d", "%m", "no day is above 12", "Write the right one as format"):
        assert words in column.why
    assert "ambiguous" not in seen(dates(f"%m{mark}%d{mark}%Y")).why
    assert seen(dates(f"%m{mark}%d{mark}%Y")).format == f"%m{mark}%d{mark}%Y"


def test_what_else_was_seen_of_an_ambiguous_date_is_said_too():
    column = seen([*dates("%d/%m/%Y", upto=12), "n/a", "01/01/1900"])
    assert column.why.startswith("dates that are ambiguous")
    assert "'01/01/1900'; list it in missing_values" in column.why
    assert "'n/a' taken for a missing value" in column.why


def test_none_beside_another_missing_value_of_python_is_named():
    said = "'None' beside it is a category: add it to missing_values if Python wrote it"
    column = seen(["a", "b", "None", "nan"] * 20)
    assert column.missing_values == ("nan",)
    assert said in column.why
    assert said not in seen(["a", "b", "None", "n/a"] * 20).why
    assert said not in seen(["a", "b", "nan"] * 20).why


def test_an_ambiguous_date_is_read_as_the_tables_other_dates():
    for other in ("%m/%d/%Y", "%d/%m/%Y"):
        column = seen(dates("%m/%d/%Y", upto=12), born=dates(other))
        assert column.format == other
        assert "as in the table's other dates" in column.why


def test_codes_are_known_by_name_by_gaps_and_by_order_in_other_columns():
    few = random().integers(1, 7, ROWS)
    assert seen(few, "visits").kind == "integer"
    assert seen(few, "ward_code").kind == "categorical"
    assert seen(few, "Type").kind == "categorical"
    assert seen(few, "num_types").kind == "integer"
    assert seen(few, "age_group").kind == "categorical"
    assert seen(few, "num_product").kind == "integer"
    assert seen(random().choice([1, 3, 11, 25], ROWS)).kind == "categorical"
    assert seen(random().poisson(2, ROWS)).kind == "integer"
    assert seen(np.where(random().random(ROWS) < 0.6, 0, random().geometric(0.1, ROWS))).kind == (
        "integer"
    )
    wage = np.array([50.0, 10.0, 40.0, 20.0, 60.0, 30.0])[few - 1]
    noise = random(1).normal(0, 3, ROWS)
    column = seen(few, pay=np.round(wage + noise, 2))
    assert column.kind == "categorical"
    assert "in no order that another column knows" in column.why
    assert "declare it integer if that is wrong" in column.why
    assert seen(few, pay=np.round(few * 10 + noise, 2)).kind == "integer"


def test_identifiers_are_known_by_name_by_gapless_numbers_and_by_chance():
    shuffled = random().permutation(ROWS)
    assert seen(shuffled + 1).kind == "id"
    assert seen(np.sort(random().choice(10**9, ROWS, replace=False))).kind == "id"  # rising
    assert seen(random().choice(9_000, ROWS, replace=False) + 1_000).kind == "id"
    skewed = np.unique(random().lognormal(11, 1, ROWS).astype(int))
    assert seen(random().permutation(skewed)).kind == "integer"  # incomes differ, too
    assert seen(random().permutation(skewed), "customer_id").kind == "id"
    assert seen(np.sort(skewed), "seconds").kind == "integer"
    assert seen(random().normal(size=ROWS)).kind == "continuous"
    assert seen(shuffled.astype(float)).kind == "id"
    assert seen([*shuffled.astype(float), None]).kind == "id"  # as pandas holds whole numbers
    assert seen([f"K-{n:04d}/A" for n in shuffled]).format == "K-0[0-9]{3}/A"


def test_long_numbers_of_people_are_identifiers_and_no_bound_shows_one():
    """Of phones, whose area codes are few; one is in two rows, as at a family's doctor."""
    areas = np.array([212, 310, 617]) * 10**7
    phones = areas[random().integers(3, size=ROWS)] + random().permutation(10**7)[:ROWS]
    cards = (4 + 11 * random().integers(2, size=ROWS)) * 10**14
    cards += random().permutation(10**6)[:ROWS]
    for values in (phones, cards, [*phones, phones[0]]):
        column = seen(values)
        assert (column.kind, column.low, column.high) == ("id", None, None)
    assert seen(phones).format == "[1-9][0-9]{9}"
    assert seen(phones, "timestamp").kind == "integer"
    assert seen((10**9 * random().lognormal(3, 1, ROWS)).astype(int)).kind == "integer"  # GDP


@pytest.mark.parametrize("digits", [19, 20, 38])
def test_numbers_of_more_digits_than_are_modelled_are_identifiers(tmp_path, digits):
    """Hashes and accounts, also where a person has several rows; init stopped at them."""
    first = 9 * 10 ** (digits - 1)
    for values in ([first + n * n for n in range(ROWS)], [first + n % 60 for n in range(ROWS)]):
        (tmp_path / "a.csv").write_text("account,x\n" + "".join(f"{v},1\n" for v in values))
        for table in (read(tmp_path / "a.csv"), pl.DataFrame({"account": map(str, values)})):
            column = Schema.detect(table)["account"]
            assert (column.kind, column.categories, column.low) == ("id", (), None)
            assert column.format is None or re.fullmatch(column.format, str(values[7]))
    with_int64 = seen([-(2**63) + 5, 2**63 - 1] * ROWS)
    assert (with_int64.kind, with_int64.low) == ("id", None)


def visits(values, most=8):
    """Values of people, each in one row to some."""
    times = random(7).integers(1, most + 1, len(values))
    return [value for value, n in zip(values, times, strict=True) for _ in range(n)][:ROWS]


NUMBERS = random(5).choice(range(100_000, 9_000_000), ROWS, replace=False).tolist()
LETTERS = [f"{chr(97 + n % 26)}{chr(97 + n // 26)}" for n in range(ROWS)]


@pytest.mark.parametrize(
    ("name", "values", "form"),
    [
        ("patient_id", [f"P{n:07d}" for n in NUMBERS], "P[0-9]{7}"),
        ("PatientenNr", NUMBERS, None),
        ("numéro client", [f"C-{n}" for n in NUMBERS], None),
        ("código paciente", LETTERS, "[a-z]{2}"),
        ("mrn", NUMBERS, None),
        ("loan_id", NUMBERS, None),
        ("member", [f"{n:08x}" for n in NUMBERS], None),
        ("id", list(range(1, ROWS)), None),
        ("username", [f"{a}{n}" for n, a in enumerate(LETTERS)], None),
        ("x", [f"PAT-{n:07d}" for n in NUMBERS], "PAT-[0-9]{7}"),  # by their form alone
        ("x", [n * 7 % 9_000_000 + 1_000_000 for n in NUMBERS], None),
    ],
)
@pytest.mark.parametrize("frame", ["numbers or text", "text", "category"])
def test_an_identifier_with_several_rows_is_not_listed_and_says_what_is_lost(
    name, values, form, frame
):
    several = visits(values)
    texts = pd.Series(several).astype(str)
    given = {"text": texts, "category": texts.astype("category")}.get(frame, several)
    column = Schema.detect(pd.DataFrame({name: given}))[name]
    assert (column.kind, column.categories, column.low, column.high) == ("id", (), None, None)
    assert "with several rows each" in column.why
    assert "drawn anew in every row, so rows of one person are not linked" in column.why
    assert form is None or column.format == form


@pytest.mark.parametrize("form", ["P{:05d}", "SUBJ-{:04d}", "K{}", "FALL_{:04d}"])
def test_letters_and_a_number_with_several_rows_are_an_identifier_under_any_name(form):
    """As P00001 is; rooms, codes and what many rows share are not."""
    column = seen(visits([form.format(n + 1) for n in range(ROWS)]))
    assert (column.kind, column.categories) == ("id", ())
    assert "letters and a number each, with several rows each" in column.why
    often = random(3).choice(90, ROWS, p=(1 / np.arange(1, 91)) / (1 / np.arange(1, 91)).sum())
    for others in (
        [form.format(n % 12) for n in range(ROWS)],
        [form.format(n) for n in often],
        [f"Room{n:04d}" for n in visits(range(ROWS))],
        [f"{'EIJ'[n % 3]}{n:04d}" for n in random().integers(60, size=ROWS)],
    ):
        assert seen(others).kind == "categorical", others[:3]


@pytest.mark.parametrize(("values", "rows"), [([f"S{n}" for n in range(12)], 30), (NUMBERS, 40)])
def test_numbers_of_people_with_many_rows_each_are_identifiers_by_their_name(values, rows):
    several = [value for value in values[:12] for _ in range(rows)]
    assert seen(several, "subject_id").kind == "id"
    assert seen(several, "subject_group_id").kind == "categorical"


def test_a_subject_is_a_person_unless_there_are_more_pupils():
    """What is taught at a school, and who takes part in a study."""
    subjects, pupils = (
        random().choice([1, 2, 3, 4, 7, 8, 11], ROWS),
        random().integers(90, size=ROWS),
    )
    for pupil in ("pupil", "student_id", "SchülerNr"):
        column = seen(subjects, "subject_id", **{pupil: pupils + 1000})
        assert (column.kind, len(column.categories)) == ("categorical", 7)
        assert seen(subjects, "Subject", **{pupil: pupils + 1000}).kind == "categorical"
    for other in ({}, {"student": subjects % 2}, {"patient_id": pupils}, {"pupils": pupils % 5}):
        for name in ("subject_id", "Subject"):
            assert seen(subjects, name, **other).kind == "id", (name, other)
    assert seen(random().poisson(200, ROWS), "subjects").kind == "integer"
    assert seen(list("abcd") * 9, "subject").kind == "categorical"


@pytest.mark.parametrize(
    ("name", "values", "form"),
    [
        ("Caller", [f"{a}smith" for a in LETTERS], "[a-z]{2}smith"),
        ("plate", [f"M-AB {n % 9000 + 1000}" for n in NUMBERS], "M-AB [0-9]{4}"),
        ("x", [":".join(re.findall("..", f"{n:012X}")) for n in NUMBERS], None),
        ("x", ["-".join(re.findall("..", f"{n * n % 2**40:012x}")) for n in NUMBERS], None),
    ],
)
def test_logins_plates_and_addresses_of_devices_are_identifiers(name, values, form):
    for several in (visits(values), values):
        column = seen(several, name)
        assert (column.kind, column.categories) == ("id", ())
        assert form is None or column.format == form
        assert column.format is None or re.fullmatch(column.format, several[7])
    assert seen([f"firm {n % 90}" for n in range(ROWS)], "employer").kind == "categorical"


def test_numbers_of_four_digits_that_all_differ_are_identifiers_if_evenly_spread():
    """As extensions of phones; incomes differ as well, and are no identifiers."""
    different = random().choice(7_000, 300, replace=False) + 2_000
    assert seen(different).kind == "id"
    skewed = np.unique((1000 + random().exponential(1500, 3 * ROWS)).astype(int))
    skewed = random().permutation(skewed[skewed < 10_000])[:300]
    assert len(skewed) == 300
    assert seen(skewed).kind == "integer"
    assert seen(different[:120]).kind == "integer"  # so few could differ by chance


def test_words_that_nearly_all_differ_are_texts_and_two_numbers_are_to_be_divided():
    towns = seen([f"{a.title()}{'dorf' if n % 2 else 'heim' * 2}" for n, a in enumerate(LETTERS)])
    assert (towns.kind, towns.categories) == ("text", ())
    assert "nearly all different" in towns.why
    for several in (1, 4):
        pressures = [f"{90 + n // several % 50}/{60 + n // several * 7 % 40}" for n in range(ROWS)]
        column = seen(pressures)
        assert (column.kind, column.categories) == ("text", ())
        assert "several numbers in one field (give each a column of its own): not" in column.why
    assert seen(["1/2", "1/4", "3/4"] * 99).kind == "categorical"


def counters_and_ids():
    random = np.random.default_rng(26)

    def rising(start, steps):
        return start + np.cumsum(steps)

    return {
        "receipt": ("id", rising(20_170, random.integers(1, 4, 300))),
        "enrolment": ("id", np.sort(random.choice(9000, 300, replace=False)) + 1001),
        "row": ("id", np.arange(1, 301)),
        "ticket": ("id", rising(480_112, random.geometric(0.4, 300))),
        "Vorgang": ("id", rising(7000, np.full(300, 10))),
        "visits_so_far": ("integer", rising(3, random.integers(1, 5, 300))),
        "odometer": ("integer", rising(12_000, random.integers(20, 400, 300))),
        "kwh": ("integer", rising(5400, random.integers(3, 26, 300))),
        "cumulative_cases": ("integer", rising(0, random.poisson(30, 300) + 1)),
        "Zählerstand": ("integer", rising(90_211, random.poisson(9, 300) + 1)),
        "steps": ("integer", rising(100, random.integers(2000, 12_000, 300))),
        "pages printed": ("integer", rising(100, random.integers(1, 40, 300))),
    }


@pytest.mark.parametrize("name", list(counters_and_ids()))
def test_counters_that_rise_from_row_to_row_are_numbers_and_running_numbers_are_not(name):
    """Steps between numbers of which some were left out by chance are less even."""
    kind, values = counters_and_ids()[name]
    assert evidence(Table.from_columns({name: (values, None)}))[name].kind == kind


@pytest.mark.parametrize(
    ("values", "kind"),
    [
        ({0: 140, 1: 50, 2: 40, 9: 10}, "categorical"),
        ({1: 90, 2: 60, 3: 40, 98: 6, 99: 4}, "categorical"),
        ({1: 90, 2: 60, 3: 40, 999: 3}, "categorical"),
        ({0: 140, 1: 50, 2: 40, 3: 9, 9: 1}, "integer"),  # children, and a large family
        ({0: 140, 1: 50, 2: 40, 3: 9, 4: 6, 5: 2, 7: 2}, "integer"),
        ({0: 140, 1: 50, 2: 40, 10: 10}, "integer"),
    ],
)
def test_few_numbers_with_a_code_for_unknown_are_codes(values, kind):
    column = np.random.default_rng(0).permutation(np.repeat([*values], [*values.values()]))
    assert evidence(Table.from_columns({"smoking": (column, None)}))["smoking"].kind == kind


@pytest.mark.parametrize("mark", ["#DIV/0!", "#N/A", "#VALUE!", "#REF!", "#NV", "#WERT!", "#¡REF!"])
def test_errors_of_a_spreadsheet_are_missing_also_beside_powers_of_ten(tmp_path, mark):
    numbers = [f"{x:.2E}" for x in np.random.default_rng(0).lognormal(0, 4, 60)]
    texts = [mark if i % 9 == 4 else text for i, text in enumerate(numbers)]
    (tmp_path / "t.csv").write_text("copies,n\n" + "".join(f"{t},1\n" for t in texts))
    table = read(tmp_path / "t.csv")
    schema = Schema.detect(table)
    assert schema["copies"].kind == "continuous"
    assert schema["copies"].missing_values == (mark,)
    assert Encoder(schema).encode(table).num_rows == 60


def test_postcodes_and_vulnerabilities_are_no_identifiers_and_days_of_a_spreadsheet_are_said():
    random = np.random.default_rng(0)
    posts = [f"{n // 1000:02d}-{n % 1000:03d}" for n in random.choice(99_999, 300, replace=False)]
    known = [f"CVE-{2015 + n % 9}-{10_000 + n * 37}" for n in random.integers(0, 60, 300)]
    columns = {
        "Kod pocztowy": (posts, None),
        "cve": (known, None),
        "Aufnahmedatum": (random.integers(44_927, 45_292, 300), None),
        "size": (random.integers(44_927, 45_292, 300), None),
    }
    found = evidence(Table.from_columns(columns))
    assert [found[name].kind for name in columns] == ["text", "categorical", "integer", "integer"]
    assert found["Kod pocztowy"].format == "postcode"
    assert "if a spreadsheet counted days from 1900 on" in found["Aufnahmedatum"].why
    assert "spreadsheet" not in found["size"].why


@pytest.mark.parametrize("code", [999, -999, -99, 888, 9997, 998, 99.9, -99.99, 9998])
def test_a_code_for_unknown_among_numbers_is_pointed_out_and_read_as_missing(tmp_path, code):
    values = [code if i % 20 == 3 else i % 37 + (0.5 if code % 1 else 0) for i in range(400)]
    (tmp_path / "t.csv").write_text("age\n" + "".join(f"{value}\n" for value in values))
    table = read(tmp_path / "t.csv")
    found = Schema.detect(table)["age"]
    assert f"{code}, far from all others: list it in missing_values if it stands for" in found.why
    named = {"missing": True, "missing_values": (str(code),), "low": 0, "high": 40}
    codes = Encoder(Schema((replace(found, **named),))).encode(table).column("age")
    assert (codes == codes.max()).tolist() == [value == code for value in values]


@pytest.mark.parametrize(
    ("below", "said"),
    [
        ([-9], "-9, far from all others: list it"),
        ([-7, -8, -9], "-7, -8 and -9, far from all others: list them"),
        ([-9, -1], ""), ([-10], ""), ([-6], ""), ([-9.5], ""),
    ],
)  # fmt: skip
@pytest.mark.parametrize("most", [8, 90])
def test_numbers_of_no_value_below_all_others_are_pointed_out(below, said, most):
    """As surveys and credit bureaus write them."""
    values = [below[i % len(below)] if i % 20 < 3 else i % most for i in range(400)]
    why = evidence(Table.from_columns({"x": (np.array(values), None)}))["x"].why
    assert ("missing_values" in why) == bool(said)
    assert said in why


AGES = random(4).integers(18, 95, 2000)
SCHOOL = random(4).integers(5, 22, 2000)
HOURS = random(4).integers(0, 80, 2000)
INCOMES = np.round(random(4).lognormal(7.5, 0.5, 2000)).astype(int)
LIKERT = random(4).integers(1, 6, 2000)


def with_codes(values, codes):
    """Values of which 4 in 100 are each of some codes."""
    mixed, draws = np.array(values, dtype=float), random(5).random(len(values))
    for place, code in enumerate(codes):
        mixed[(draws >= place * 0.04) & (draws < (place + 1) * 0.04)] = code
    return mixed if (mixed % 1).any() else mixed.astype(int)


@pytest.mark.parametrize(
    ("values", "codes"),
    [
        (AGES, [998, 999]), (AGES, [-1, -2]), (AGES, [-88, -99]), (AGES, [-99]),
        (SCHOOL, [99]), (SCHOOL, [-8, -9]), (SCHOOL, [-4, -9]),
        (HOURS, [97, 98, 99]), (INCOMES, [9999998, 9999999]), (INCOMES, [-66, -77]),
        (AGES + 90, [888, 999]), (LIKERT, [-77, -99]), (LIKERT, [97, 98, 99]),
        (HOURS, [-9, 999]), (AGES / 10, [-9.9]), (AGES / 10, [99.9]),
    ],
)  # fmt: skip
def test_several_codes_for_unknown_are_pointed_out(values, codes):
    column = seen(with_codes(values, codes))
    below, above = [c for c in codes if c < 0], [c for c in codes if c >= 0]
    *first_codes, last_code = map(str, [*below, *above])
    named = last_code
    if first_codes:
        named = f"{', '.join(first_codes)} and {last_code}"
    pronoun = "it" if len(codes) == 1 else "them"
    assert f"; {named}, far from all others: list {pronoun}" in column.why
    advice = (
        f"take {pronoun} out of the categories" if column.kind == "categorical" else "the bounds"
    )
    assert column.why.endswith(advice)


def test_codes_above_a_scale_of_ten_values_or_more_are_missing_and_of_fewer_are_categories():
    scale = seen(with_codes(SCHOOL, [77, 88, 99]))
    assert (scale.kind, scale.low, scale.high) == ("integer", 5, 21)
    assert scale.missing_values == ("77", "88", "99")
    assert "a scale from 5 to 21, and 77 and 88 and 99, far above it, taken for" in scale.why
    answers = seen(with_codes(LIKERT, [77, 88]))
    assert (answers.kind, answers.missing_values) == ("categorical", ())


def test_codes_above_a_scale_are_missing_beside_marks_of_missing_values(tmp_path):
    path = tmp_path / "scale.csv"
    lines = ["x", *map(str, with_codes(SCHOOL, [77, 88])), *["n.v."] * 20, ""]
    path.write_text("\n".join(lines))
    column = Schema.detect(read(path))["x"]
    assert (column.kind, column.low, column.high) == ("integer", 5, 21)
    assert column.missing_values == ("77", "88", "n.v.")
    assert "list them" not in column.why


def test_codes_for_unknown_are_pointed_out_where_numbers_have_a_form_or_marks(tmp_path):
    amounts = [f"{n % 90 + 10},5" for n in range(400)]
    amounts[::20] = ["999"] * 20
    amounts[1::40] = ["n/a"] * 10
    (tmp_path / "a.csv").write_text("x;y\n" + "".join(f"{text};1\n" for text in amounts))
    column = Schema.detect(read(tmp_path / "a.csv"))["x"]
    assert column.missing_values == ("n/a",)
    assert "999, far from all others: list it in missing_values" in column.why


def oldest():
    """Ages up to 99, of whom few are above 90, and nobody is 95 to 97."""
    ages = np.arange(100).repeat(20)
    return np.concatenate([ages[ages < 90], [90, 91, 92, 93, 94, 98, 98, 98, 99, 99, 99]])


@pytest.mark.parametrize(
    "values",
    [
        oldest(),
        np.arange(100).repeat(30),  # percentages
        np.arange(-40, 41).repeat(5),
        np.concatenate([np.arange(-2, 40).repeat(9), [-9] * 3]),
        [10, 20, 30, 40, 50, 60, 70, 80, 97, 98, 99] * 20,
    ],
)
def test_numbers_that_may_well_occur_are_no_codes_for_unknown(values):
    assert "missing_values" not in seen(values).why


@pytest.mark.parametrize("code", [1000, 60, -5, 42])
def test_other_numbers_far_from_all_others_are_not_pointed_out(code):
    assert "missing_values" not in seen([code if i % 20 == 3 else i % 37 for i in range(400)]).why
    ages = [99 if i % 20 == 3 else i % 91 for i in range(400)]
    assert "missing_values" not in seen(ages).why


def test_names_of_people_and_the_only_account_are_not_listed():
    for name in ("First name", "Nachname", "surname"):
        column = seen([f"{'ABCDEFGH'[i % 8]}nna" for i in range(400)], name)
        assert (column.kind, column.format) == ("text", "name")
    for value in ("DE02120300000000202051", "info@clinic.example"):
        assert seen([value] * 400).kind == "text"
    assert seen([f"{'ABCDEFGH'[i % 8]}nna" for i in range(400)], "product name").categories


def test_how_many_people_there_are_is_a_number():
    for name in ("students_number", "customers", "num_members", "caseload_number"):
        assert seen(random().poisson(200, ROWS), name).kind == "integer", name
    assert seen(visits(NUMBERS), "student_number").kind == "id"


def test_names_and_phones_of_people_with_several_rows_are_not_listed():
    names = [f"Anna {text.title()}er" for text in LETTERS]
    phones = [f"+49 30 {n}" for n in NUMBERS]
    for column, form in (("patient_name", "name"), ("Name", "name"), ("x", "phone")):
        found = seen(visits(phones if form == "phone" else names), column)
        assert (found.kind, found.format, found.categories) == ("text", form, ())
    assert seen(visits(names), "Manager").format == "name"
    many = [name for name in names[:5] for _ in range(80)]
    assert seen(many, "patient_name").format == "name"
    assert seen(many).kind == "categorical"


def test_what_many_rows_share_stays_a_category():
    """Towns, codes, postcodes and products; also those that have a word for a name."""
    often = random(3).choice(90, ROWS, p=(1 / np.arange(1, 91)) / (1 / np.arange(1, 91)).sum())
    for name, values in {
        "town": [f"Town{LETTERS[n]}" for n in range(90)],
        "icd": [f"{'EIJ'[n % 3]}{n:02d}.{n % 7}" for n in range(90)],
        "plz": [f"0{n}" for n in NUMBERS[:90]],
        "product_code": [f"SKU-{n}" for n in NUMBERS[:90]],
        "product_id": NUMBERS[:90],
        "product name": [f"Garden {text}" for text in LETTERS],
        "drug_name": [f"Drugol{text}" for text in LETTERS],
    }.items():
        assert seen([values[n] for n in often], name).kind == "categorical", name


def test_a_mark_beside_whole_numbers_in_a_frame_makes_no_codes_of_them(tmp_path):
    """Polars reads a column of a CSV as text where NA stands in it."""
    numbers = [str(n) for n in random().integers(0, 12, ROWS)]
    frame = pl.DataFrame({"visits": [*numbers, "NA"]})
    assert seen(numbers, "visits").kind == "categorical"  # whoever gives text means it
    path = tmp_path / "visits.csv"
    frame.write_csv(path)
    for source in (frame, path):
        column = Schema.detect(source)["visits"]
        assert (column.kind, column.missing_values) == ("integer", ("NA",))


def test_codes_of_a_csv_keep_the_zeros_at_their_ends(tmp_path):
    """Of ICD-9, 250.1 and 250.10 are two codes; as numbers they would be one."""
    codes = ["250.1", "250.10", "401.9", "428.0"]
    path = tmp_path / "codes.csv"
    path.write_text("icd9\n" + "\n".join(codes * 20) + "\n")
    column = Schema.detect(path)["icd9"]
    assert column.categories == tuple(codes)
    assert Encoder(Schema((column,)).placed()).encode(read(path)).column("icd9").tolist() == [
        0, 1, 2, 3,
    ] * 20  # fmt: skip
    # Where all have as many decimals, numbers are written as they were read.
    path.write_text("icd9\n" + "\n".join(["250.10", "401.90", "428.00"] * 20) + "\n")
    column = Schema.detect(path)["icd9"]
    assert (column.categories, column.padded) == ((250.1, 401.9, 428.0), 2)


def test_postcodes_that_are_whole_numbers_are_categories_or_not_modelled():
    """Their bounds and the numbers between them mean nothing."""
    towns = [10_115, 20_095, 50_667, 60_311, 80_331, 70_173]
    for name in ("zip", "PLZ", "postal_code", "home_zipcode"):
        column = seen(random().choice(towns, ROWS), name)
        assert (column.kind, column.categories) == ("categorical", tuple(sorted(towns))), name
        assert "6 different whole numbers in 400 rows, named as a postcode: cat" in column.why
        many = seen(random().integers(10_115, 99_999, ROWS), name)
        assert (many.kind, many.format, many.low) == ("text", "postcode", None)
    country = random().choice(random(1).integers(10_115, 99_999, 600), 5 * ROWS)
    assert seen(country, "zip").format == "postcode"  # too many to be categories
    assert seen(random().poisson(60, ROWS), "zip_count").kind == "integer"
    assert seen([*random().choice(towns, ROWS).astype(float), None], "zip").missing


def test_no_proposed_constraint_lists_an_identifier_with_several_rows():
    people = visits([f"P{n:07d}" for n in NUMBERS])
    sex = ["mf"[int(one[1:]) % 2] for one in people]
    table = read(pl.DataFrame({"patient_id": people, "sex": sex, "y": [1.5, 2.25] * (ROWS // 2)}))
    listed = Column("patient_id", "categorical", tuple(sorted({*people})))
    known = Schema((listed, Column("sex", "categorical", ("f", "m"))))
    often = read(pl.concat([table.to_native()] * 3))
    assert [one.columns for one in proposed(often, known.columns)] == [("patient_id", "sex")]
    assert proposed(often, Schema.detect(often).columns) == ()


def test_capital_letters_that_are_no_money_begin_no_number():
    assert seen([f"SKU-{20_100 + n % 9}" for n in range(ROWS)]).kind == "categorical"
    assert seen([f"PAT{n}" for n in NUMBERS]).kind == "id"
    assert seen([f"CHF {n}" for n in NUMBERS]).kind == "integer"


def test_near_unique_text_is_never_listed():
    words = [f"w{n}" for n in range(50)]
    notes = [" ".join(random(i).choice(words, 6)) for i in range(ROWS)]
    for values in (notes, [*notes[:-8], *notes[:8]], [f"a{n // 2}" for n in range(ROWS)]):
        column = seen(values)
        assert column.kind in ("text", "id")
        assert column.categories == ()
    many = [f"town {n % 90}" for n in range(ROWS)]
    assert seen(many).kind == "categorical"


def test_few_whole_numbers_that_a_frame_holds_as_text_are_codes(tmp_path):
    texts = [str(n) for n in random().integers(0, 5, ROWS)]
    assert seen(texts).categories == ("0", "1", "2", "3", "4")
    assert seen(["0", "1"] * 20).categories == ("0", "1")
    many = seen([str(n) for n in random().integers(0, 500, ROWS)])
    assert (many.kind, many.format) == ("integer", "1234")
    path = tmp_path / "t.csv"
    path.write_text("x,y\n" + "0,1\n1,2\n?,5\n" * 9)  # a CSV holds text, whatever it is
    schema = Schema.detect(read(path))
    assert (schema["x"].categories, schema["x"].missing_values) == ((0, 1), ("?",))


def test_decimals_are_those_of_the_rows():
    assert seen(np.round(random().normal(size=ROWS), 3)).decimals == 3
    assert seen(random().normal(size=ROWS)).decimals in (None, 15)
    assert seen([0.1, 2.5, 1e-9]).decimals == 9
    assert seen([1e300, 0.5]).decimals is None
    assert seen(random().normal(size=ROWS) * 1e6).why == "numbers of more than 15 decimals"
    levels = seen(random().choice([92.201, 93.1, 94.767], ROWS))
    assert levels.kind == "continuous"
    assert "3 different ones; if no other can occur, declare it categorical" in levels.why
    whole = seen([1.0, 2.0, 7.0])
    assert (whole.kind, whole.decimals) == ("integer", None)


@pytest.mark.parametrize(
    ("numbers", "decimals"),
    [
        (0.1 * random().integers(0, 100, ROWS), 1),
        (100 - random().integers(0, 10_000, ROWS) / 100, 2),
        (random().integers(1, 20, ROWS) * 19.99, 2),
        (random().integers(0, 1000, ROWS) / 1000 * 100, 1),
        ([4.999999999999999, 2.5, 1.25], 2),
        ([0.1 + 0.2 - 0.3, 7.0, 0.1 + 0.2], 1),
        ([56.99999999999999, 57.0, 3.0], 0),
    ],
)
def test_rounding_errors_are_no_decimals(numbers, decimals):
    column = seen(numbers)
    assert (column.kind, column.decimals) == ("continuous", decimals)
    assert "rounding errors" in column.why
    assert column.low <= min(numbers)
    assert column.high >= max(numbers)
    for bound in (column.low, column.high):
        assert bound == round(bound, decimals)


def test_decimals_that_mean_something_are_no_rounding_errors():
    wide = np.array([1e9, 0.5, 1e-6, 2e-6, 7e-9])
    assert seen(wide).decimals is None
    assert seen(random().integers(1, 100, ROWS) / 3).decimals is None
    assert seen(10.0 ** random().uniform(-12, 6, ROWS)).decimals is None
    assert seen([1 / 3, 2 / 3]).decimals in (None, 15)
    assert "rounding" not in seen(random().normal(size=ROWS)).why
    assert "rounding" not in seen([0.1, 2.5, 1e-9]).why


def test_a_bound_of_minus_zero_is_zero():
    column = seen([-0.0, 0.0, 1.5] * 9)
    assert str(column.low) == "0.0"
    assert str(seen([-2.5, -0.0, 0.0] * 9).high) == "0.0"


@pytest.mark.parametrize("kind", ["polars", "pandas", "arrow", "Float32"])
def test_numbers_of_32_bits_have_the_decimals_that_they_were_given(kind):
    frame = pl.DataFrame({"x": [8.9, 0.1, None] * 9}, schema={"x": pl.Float32})
    given = {"polars": frame, "arrow": frame.to_arrow()}.get(kind, frame.to_pandas())
    table = read(given.astype(kind) if kind == "Float32" else given)
    assert table.values("x")[:2].tolist() == [8.9, 0.1]
    assert Schema.detect(table)["x"].decimals == 1


def test_spellings_of_missing_values_are_proposed():
    numbers = [str(n) for n in random().integers(100, size=ROWS)]
    for mark in ("NA", "n/a", "-", "?", "NULL", ".", "none"):
        column = seen([*numbers, mark])
        assert (column.kind, column.missing, column.missing_values) == ("integer", True, (mark,))
        assert repr(mark) in column.why
    groups = ["a", "b", "c"] * 20
    assert seen([*groups, "N/A"]).missing_values == ("N/A",)
    assert seen([*groups, "None"]).categories == ("None", "a", "b", "c")  # may be a category
    assert seen(["+", "-"] * 20).categories == ("+", "-")
    schema = Schema.detect(pl.DataFrame({"x": [*groups, "N/A"]}))
    assert Encoder(schema).encode(pl.DataFrame({"x": ["N/A", "b"]})).column("x").tolist() == [3, 1]


@pytest.mark.parametrize(
    ("form", "written"),
    [
        ("iban", "DE## #### #### #### #### ##"),
        ("iban", "NO## #### #### ###"),
        ("phone", "+1 (555) ###-####"),
        ("phone", "001-###-###-####x##"),
        ("phone", "###-###-####"),
        ("phone", "+4917########"),
        ("phone", "0044 20 #### ####"),
        ("phone", "(###)###-####|###.###.####|##########|+1-###-###-####x###|001-###-###-####"),
        (None, "AB##########"),  # an identifier that is too short for an IBAN
        (None, "00####-###"),
    ],
)
def test_accounts_and_phones_are_known_in_their_usual_forms(form, written):
    digits, forms = random(), written.split("|")
    texts = [
        re.sub("#", lambda _: str(digits.integers(10)), forms[i % len(forms)]) for i in range(ROWS)
    ]
    column = seen(texts)
    assert column.kind == ("text" if form else "id")
    assert column.format == form or form is None


@pytest.mark.parametrize(
    "words",
    [
        "yes no",
        "YES No",
        "oui non",
        "ja nein",
        "si no",
        "sí no",
        "vrai faux",
        "Wahr Falsch",
        "J N",
        "O N",
        "tak nie",
        "ano ne",
        "igen nem",
        "evet hayır",
        "Kyllä Ei",
        "да нет",
        "Да Не",
    ],
)
def test_two_words_are_booleans_and_are_drawn_as_they_are_written(tmp_path, words):
    true, false = words.split()
    for spaces in ("", " "):
        (tmp_path / "a.csv").write_text("x,y\n" + f"{spaces}{true},1\n{spaces}{false},2\n" * 9)
        table = read(tmp_path / "a.csv")
        schema = Schema.detect(table)
        column = schema["x"]
        assert (column.kind, column.categories) == ("boolean", (spaces + false, spaces + true))
        encoder = Encoder(schema)
        drawn = encoder.decode(encoder.encode(table), key=0, like=table)
        assert drawn.values("x").tolist() == [spaces + true, spaces + false] * 9


def test_categories_that_differ_in_capitals_or_spaces_alone_are_pointed_out(tmp_path):
    (tmp_path / "a.csv").write_text("x,y\n" + "yes,a\nYes, a\nNO,b\nno,c\n" * 9)
    table = read(tmp_path / "a.csv")
    schema = Schema.detect(table)
    assert [one.kind for one in schema.columns] == ["categorical"] * 2
    assert (
        "2 differ from another in capital letters, spaces or look-alikes alone" in schema["x"].why
    )
    assert "1 differs from another" in schema["y"].why
    assert "write them alike in the file if they mean the same" in schema["y"].why
    assert Encoder(schema).encode(table).column("y")[:4].tolist() == [1, 0, 2, 3]
    assert "differ from" not in seen(["a", "b", "b c"] * 9).why


def test_fields_of_spaces_alone_are_missing(tmp_path):
    """As fixed-width exports have them; and empty texts of a frame."""
    (tmp_path / "a.csv").write_text("age,ward,born\n" + "41.5, a,2020-01-31\n , ,  \n" * 30)
    frame = pl.DataFrame({"age": ["41.5", " "], "ward": ["a", ""], "born": ["2020-01-31", "  "]})
    for table in (read(tmp_path / "a.csv"), frame[[0, 1] * 30]):
        schema = Schema.detect(table)
        assert [one.kind for one in schema.columns] == ["continuous", "categorical", "datetime"]
        assert [one.missing for one in schema.columns] == [True, True, True]
        assert len(schema["ward"].categories) == 1
        codes = Encoder(schema).encode(table)
        gone = [column.tolist()[1] for column in codes.columns]
        assert gone == [size - 1 for size in codes.domain.sizes]


def test_a_column_of_mostly_numbers_or_dates_says_so():
    numbers = random().normal(50, 20, ROWS).round(1).astype(str).tolist()
    column = seen([*numbers[:-40], *["about 0.5", "9 or 10"] * 20])
    assert column.kind == "text"
    assert "all but 40 rows hold numbers, and it is modelled as such if the others" in column.why
    assert "0.5" not in column.why
    column = seen([*dates("%Y-%m-%d")[:-40], *["2020-05", "2021"] * 20])
    assert "all but 40 rows hold dates" in column.why
    assert "hold" not in seen(["a", "b", "7"] * 100).why


def test_few_words_and_limits_in_several_rows_among_many_numbers_are_missing_values():
    """As laboratories write what they cannot measure, offices what they do not publish."""
    numbers = random().normal(50, 20, ROWS).round(1).astype(str).tolist()
    for marks in (["<0.5", ">100"], ["≤ 5", "90+"], ["x"], ["hemolysed", "..."], ["< 0.5 mg/l"]):
        column = seen([*numbers, *marks * 20])
        assert (column.kind, column.decimals) == ("continuous", 1), marks
        assert (column.missing, column.missing_values) == (True, tuple(sorted(marks)))
        assert all(repr(mark) in column.why for mark in marks)
        assert ("instead of a limit" in column.why) == any(re.search("[0-9]", m) for m in marks)
    mostly = seen([*numbers[:100], *["not done"] * 300])
    assert (mostly.kind, mostly.missing_values) == ("continuous", ("not done",))
    ends = seen([*dates("%Y%m%d"), *["00000000"] * 900])
    assert (ends.kind, ends.format, ends.missing_values) == ("datetime", "%Y%m%d", ("00000000",))
    ends = seen([*dates("%d.%m.%Y"), *["open"] * 9])
    assert (ends.kind, ends.missing_values) == ("datetime", ("open",))


def test_words_that_may_be_categories_or_names_are_no_missing_values():
    few = [str(n) for n in random().integers(1, 13, ROWS)]
    assert "K" in seen([*few, *["K"] * 9], "grade").categories  # of the kindergarten
    rooms = [str(101 + n * n % 97) for n in range(ROWS)]
    assert "ICU" in seen([*rooms, *["ICU"] * 90], "room").categories
    numbers = [f"{x:.1f}" for x in random().normal(50, 9, ROWS)]
    once = seen([*numbers, "Meyer", "Huber", "Huber"])
    assert (once.kind, once.missing_values) == ("continuous", ())
    assert "other text in 3 of 403 rows" in once.why
    assert seen([*numbers, *list("abcdef") * 9]).missing_values == ()


def test_durations_are_no_addresses_of_computers():
    lengths = [f"{i // 60 % 40}:{i % 60:02}:{i * 7 % 60:02}" for i in range(ROWS)]
    assert seen(lengths).format != "ip"
    days = [f"{i % 40}:{i % 60:02}" for i in range(ROWS)]
    over = [f"{'+-'[i % 2]}{i % 5}:{i * 7 % 60:02}" for i in range(ROWS)]
    spans = [f"{i % 9} days, {text}" for i, text in enumerate(lengths)]  # as Python writes them
    for texts in (days, over, spans, [f"{i % 40}h {i * 7 % 60:02}m" for i in range(ROWS)]):
        column = seen(texts)
        assert (column.kind, column.categories) == ("text", ())
        assert "durations (write each as a number, such as minutes): not modelled" in column.why
    codes = [f"{n % 97}a{n % 89}f" for n in NUMBERS]
    assert "durations" not in seen(codes).why
    assert seen([f"2001:db8::{i:x}" for i in range(ROWS)]).format == "ip"


def test_negative_amounts_in_brackets_are_numbers(tmp_path):
    (tmp_path / "a.csv").write_text("paid,x\n" + "(12.50),1\n8.25,2\n(7.00),3\n9.75,4\n" * 20)
    column = Schema.detect(read(tmp_path / "a.csv"))["paid"]
    assert (column.kind, column.format, column.low, column.high) == (
        "continuous",
        "1234.5",
        -12.5,
        9.75,
    )


@pytest.mark.parametrize("text", ["3.5-", "\u22123.5"])
def test_negative_numbers_as_offices_write_them_are_read_from_a_file(tmp_path, text):
    """A minus behind, and the sign that is no hyphen: at the latter `init` stopped."""
    (tmp_path / "a.csv").write_text(f"x,y\n{text},1\n" + "8.25,2\n7.00,3\n9.75,4\n" * 20)
    table = read(tmp_path / "a.csv")
    column = Schema.detect(table)["x"]
    assert (column.kind, column.format, column.low) == ("continuous", "1234.5", -3.5)
    assert table.floats("x", column.format)[0][:2].tolist() == [-3.5, 8.25]


@pytest.mark.parametrize(
    ("some", "words"),
    [("({})", "9 rows are in brackets: read"), ("-{}", ""), ("[{}]", ""), ("{}-", "")],
)
def test_numbers_in_brackets_are_asked_about(tmp_path, some, words):
    """Accounts write negative numbers so, official statistics uncertain ones."""
    shares = [f"{2 + n % 50},{n % 10}" for n in range(ROWS)]
    shares[::50] = [some.format(text) for text in shares[::50]]
    shares[7] = "/"
    shares[3] = some.format(shares[3])
    (tmp_path / "a.csv").write_text("Anteil;x\n" + "".join(f"{text};1\n" for text in shares))
    found = propose([tmp_path / "a.csv"])
    assert words in found.schema["Anteil"].why
    asked = [line for line in found.cautions if "delete the brackets in the file" in line]
    assert len(asked) == bool(words)
    if words:
        assert asked[0].startswith("Anteil: numbers written like 1234,5")
        assert found.schema["Anteil"].low < 0
        signed = seen([*shares, "-3,5"])
        assert "in brackets, and others have a sign: read as negative" in signed.why


def test_marks_behind_numbers_are_to_have_a_column_of_their_own():
    numbers = [f"{n % 97 + n % 10 / 10} {'bpe'[n % 3]}".rstrip("b") for n in range(ROWS)]
    why = seen([*numbers, *[":"] * 20]).why
    assert "numbers with marks or units beside them (e, p): write these into a column" in why
    assert "named as missing where the file is read" not in why  # which would not be enough
    assert "beside" not in seen([f"{n} kg" for n in range(ROWS)]).why
    assert "beside" not in seen([f"{n}{'AB'[n % 2]}" for n in range(12)] * 9).why


@pytest.mark.parametrize(
    "text",
    ["{} kg", "{} KG", "{} Jahre", "{} years", "{} mmol/L", "{} EUR", "{}岁", "{},000円", "{} °C"],
)
def test_a_unit_that_all_numbers_share_is_one(text):
    column = seen([text.format(1 + n % 90) for n in range(ROWS)])
    form = text.replace("{},000", "1,234").replace("{}", "1234")
    assert (column.kind, column.format) == ("integer", form)


@pytest.mark.parametrize("text", ["1{:03d} AMS", "{} Berlin", "{}B"])
def test_letters_behind_numbers_that_look_like_no_unit_are_none(text):
    column = seen([text.format(1 + n % 90) for n in range(ROWS)])
    assert column.kind in ("categorical", "text")
    letters = text.split("}")[1].strip()
    assert f"numbers beside {letters}: if that is a unit, declare the column" in column.why


@pytest.mark.parametrize("texts", [("{} mg", "{} ml"), ("€{}.50", "${}.50"), ("{} EUR", "{} USD")])
def test_numbers_of_several_units_are_no_numbers(texts):
    """Those of the rarer unit would be moved to the fallback, as if they were slips."""
    usual, rare = texts
    cells = [usual.format(1 + n % 90) for n in range(ROWS - 3)]
    column = seen([*cells, rare.format(3), rare.format(4), rare.format(5)])
    assert column.kind in ("categorical", "text")
    assert "or all numbers in one unit, and it is modelled as numbers" in column.why
    few = seen([text.format(n % 4) for n in range(ROWS) for text in texts])
    assert (few.kind, len(few.categories)) == ("categorical", 8)


def test_numbers_with_and_without_a_unit_are_to_be_written_alike():
    column = seen([f"{1 + n % 90}" + " %" * (n % 2) for n in range(ROWS)])
    assert column.kind in ("categorical", "text")
    assert "numbers with and without %: write all of them alike" in column.why
    percent = seen([f"%{n % 90}" for n in range(ROWS)])  # as Turkish has it
    assert (percent.kind, percent.format, percent.high) == ("integer", "%1234", 89)


def test_points_divide_thousands_beside_decimal_commas(tmp_path):
    path = tmp_path / "t.csv"
    rows = [f"{1 + n % 97}.{n * 37 % 1000:03d};{n % 90},5\n" for n in range(ROWS)]
    path.write_text("sold;paid\n" + "".join(rows))
    table = read(path)
    column = Schema.detect(table)["sold"]
    assert (column.kind, column.format, column.low) == ("integer", "1.234", 1000)
    assert "divide thousands here, since other columns have a comma" in column.why
    assert not placed_cells(column, table).missing.any()
    alone = Schema.detect(table.select(["sold"]))["sold"]
    assert (alone.kind, alone.format, alone.decimals) == ("continuous", None, 3)


@pytest.mark.parametrize(
    ("name", "form"),
    [("x", "%Hh%M"), ("x", "%-Hh%M"), ("x", "%H:%M Uhr"), ("Tid", "%H.%M"), ("dep_time", "%H%M")],
)
def test_times_of_day_are_known_by_their_letters_or_the_name(tmp_path, name, form):
    minutes = random().integers(0, 1440, ROWS).tolist()
    texts = [written_time(EPOCH + timedelta(minutes=minute), form) for minute in minutes]
    path = tmp_path / "t.csv"
    path.write_text(f"{name},y\n" + "".join(f"{text},1\n" for text in texts))
    table = read(path)
    column = Schema.detect(table)[name]
    assert (column.kind, column.format) == ("datetime", form)
    cells = placed_cells(column, table)
    assert cells.values.tolist() == minutes
    if name != "x":
        assert seen(texts).kind == "text"


def test_midnight_as_24_is_named():
    column = seen([f"{n % 24:02d}:{n % 60:02d}" for n in range(ROWS)] + ["24:00"] * 30)
    assert column.kind == "text"
    assert "30 rows hold 24:00, which is no time of day here: write 00:00" in column.why


def test_years_of_two_digits_that_may_be_of_the_century_before_are_named():
    births = [f"{1 + n % 28:02d}.01.{30 + n % 65}" for n in range(ROWS)]
    assert "with years up to 2069: write four digits if they are earlier" in seen(births).why
    recent = [f"{1 + n % 28:02d}.01.{10 + n % 15}" for n in range(ROWS)]
    assert "write four digits" not in seen(recent).why


def test_numbers_named_as_ids_are_no_seconds_from_1970():
    seconds = (1_500_000_000 + random().choice(10**8, ROWS, replace=False)).tolist()
    assert "seconds from 1970 on" in seen(seconds, "unix").why
    milliseconds = [1000 * second + second % 999 for second in seconds]
    assert "milliseconds from 1970 on" in seen(milliseconds, "timestamp").why
    for name in ("timestamp_id", "x"):
        assert seen(seconds, name).kind == "id"


def test_durations_and_places_in_one_field_are_named():
    assert "durations" in seen([f"PT{n % 5}H{n % 60}M" for n in range(ROWS)]).why
    places = [f"{48 + n / 1000:.4f}, {16 - n / 700:.4f}" for n in range(ROWS)]
    assert "several numbers in one field" in seen(places).why


@pytest.mark.parametrize("form", ["{};{}", "{}|{}", "{}, {}", "[{}, {}]", "{{{},{}}}"])
def test_lists_in_a_field_are_named(form):
    lists = [form.format("abcd"[n % 4], "abcd"[n // 4 % 4]) for n in range(ROWS)]
    assert "several values in one field" in seen(lists).why
    cities = [f"City{n % 30}, {'AB'[n % 2]}" for n in range(ROWS)]
    assert "several values" not in seen(cities).why


def test_a_period_with_a_letter_is_no_identifier():
    weeks = [f"W{1 + n % 52}" for n in range(ROWS)]
    assert seen(weeks, "week").kind == "categorical"
    assert seen(weeks, "x").kind == "id"


def test_a_byte_order_mark_in_a_cell_is_named():
    column = seen(["a", "b"] * 30 + ["\ufeffa"])
    assert "1 differs from another in capital letters, spaces or look-alikes alone" in column.why


def test_a_number_without_the_unit_is_a_slip():
    column = seen([*(f"{1 + n % 90} mg" for n in range(ROWS)), "12"])
    assert (column.kind, column.format) == ("integer", "1234 mg")
    assert "other text in 1 of" in column.why


def test_a_comma_before_three_digits_is_a_decimal_mark_in_a_file_of_semicolons(tmp_path):
    for separator, facts in {";": ("continuous", 3), "|": ("integer", None)}.items():
        rows = (f"{n},{n * 37 % 1000:03d}{separator}{n}\n" for n in range(1, 200))
        (tmp_path / "a.csv").write_text(f"x{separator}y\n" + "".join(rows))
        column = Schema.detect(read(tmp_path / "a.csv"))["x"]
        assert (column.kind, column.decimals) == facts
    (tmp_path / "a.csv").write_text("x;y\n" + "".join(f"{n * 777:,};{n}\n" for n in range(1, 99)))
    assert Schema.detect(read(tmp_path / "a.csv"))["x"].format == "1,234"  # 777 has no mark


def test_one_text_among_numbers_does_not_make_categories():
    numbers = [f"{x:.1f}" for x in random().normal(50, 9, ROWS)]
    column = seen([*numbers, "see note"])
    assert (column.kind, column.decimals) == ("continuous", 1)
    assert "other text in 1 of 401 rows" in column.why
    assert "see note" not in column.why
    table = pl.DataFrame({"x": [*numbers, "see note"]})
    with pytest.raises(SchemaError, match=r"1 row holds text.*missing_values"):
        Encoder(Schema((column,))).encode(table)
    assert read(table).unread("x", column.format).tolist() == [ROWS]


@pytest.mark.parametrize(
    ("texts", "form", "values"),
    [
        (["$1,250.50", "-$80.00", "($5.25)"], "$1,234.5", [1250.5, -80, -5.25]),
        (["1.250,50 €", "-80,00 €", "5,25 €"], "1.234,5 €", [1250.5, -80, 5.25]),
        (["1 250,50", "80,00", "5,25"], "1 234,5", [1250.5, 80, 5.25]),
        (["12,5 %", "3,0 %", "100,0 %"], "1234,5 %", [12.5, 3, 100]),
        (["CHF 1'250.50", "CHF 80.00", "CHF 5.25"], "CHF 1'234.5", [1250.5, 80, 5.25]),
        (["1,250,000", "80", "1,250"], "1,234", [1250000, 80, 1250]),
        (["2.5 kg", "10.0 kg", "0.5 kg"], "1234.5 kg", [2.5, 10, 0.5]),
        (["28.3 l/100km", "7.0 l/100km"], "1234.5 l/100km", [28.3, 7]),
        (["3.71V", "4.05V"], "1234.5V", [3.71, 4.05]),
        (["12.5 Tage", "3.0 Tage"], "1234.5 Tage", [12.5, 3]),
        (["1.250,50-", "80,00", "5,25"], "1.234,5", [-1250.5, 80, 5.25]),
        (["1.250,50- EUR", "80,00 EUR"], "1.234,5 EUR", [-1250.5, 80]),
        (["\u22123.5", "0.5", "12.0"], "1234.5", [-3.5, 0.5, 12]),
    ],
)
def test_written_numbers_are_read_and_written_again(texts, form, values):
    column = seen(texts * 20)
    assert column.format == form
    table = read(pl.DataFrame({"x": texts}))
    assert table.floats("x", form)[0].tolist() == values
    again = number_form(form).written(np.array(values), column.decimals)
    assert read(pl.DataFrame({"x": again.tolist()})).floats("x", form)[0].tolist() == values


@pytest.mark.parametrize("text", ["1.234,5", "12,34.5", "1 234", "$12.5", "12.5 kg", "", "abc"])
def test_a_number_in_another_form_is_refused(text):
    with pytest.raises(SchemaError, match="1 row holds text"):
        read(pl.DataFrame({"x": [text]})).floats("x", "1,234.5")


@pytest.mark.parametrize("form", ["", "12", "1.234.5", "1234.56", "%Y", "euro"])
def test_a_form_that_shows_no_number_is_refused(form):
    with pytest.raises(SchemaError, match=r"column 'x': format: .*how 1234.5"):
        Column("x", "continuous", format=form)


@pytest.mark.parametrize(
    ("facts", "words"),
    [
        ({"kind": "integer", "decimals": 1}, "decimals=1"),
        ({"kind": "continuous", "decimals": 16}, "0 to 15"),
        ({"kind": "integer", "padded": "2"}, "padded='2'"),
        ({"kind": "continuous", "padded": 16}, "0 to 15"),
        ({"kind": "categorical", "categories": ("a",), "padded": 1}, "column of numbers"),
        ({"kind": "text", "format": "haiku"}, "email"),
        ({"kind": "id", "format": "P[0-9"}, "format"),
        ({"kind": "boolean", "categories": ("a", "b", "c")}, "two categories"),
        ({"kind": "boolean", "format": "Y"}, "takes no format"),
        ({"kind": "text", "categories": ("a",)}, "takes no categories"),
    ],
)
def test_new_facts_that_contradict_each_other_are_refused(facts, words):
    with pytest.raises(SchemaError, match="column 'x'") as caught:
        Column("x", **facts)
    assert words in str(caught.value)


def test_every_form_of_time_is_read_and_written_again():
    times = pd.date_range("2021-03-01", periods=ROWS, freq="7h11min13s")
    for form in ("%H:%M", "%I:%M %p", "%d %b %Y", "%B %d, %Y", "%d.%m.%y", "%Y-%m-%dT%H:%M:%S%z",
                 "%Y-%m-%dT%H:%M:%SZ", "%Y-%m-%d %H:%M:%S.%f", "%d/%m/%Y %H:%M",
                 "%Y/%m/%d %I:%M:%S %p GMT+2"):  # fmt: skip
        texts = [t.strftime(form.replace("%z", "+02:00")) for t in times]
        frame = pd.DataFrame({"x": texts})
        schema = Schema.detect(frame)
        assert schema["x"].format == form, schema["x"]
        encoder = Encoder(schema, bins=10**4)
        drawn = encoder.decode(encoder.encode(frame), key=0, like=frame)
        again, _ = drawn.datetimes("x", form)
        first, _ = read(frame).datetimes("x", form)
        assert np.abs(again - first).max() <= 1e6 * 86_400 * 2, form
        assert type(drawn.values("x")[0]) is str


@pytest.mark.parametrize(
    "form", ["%Y-%m", "%Y/%m", "%m/%Y", "%-m/%Y", "%m.%Y", "%b %Y", "%B %Y", "%b-%y"]
)
def test_months_of_many_years_are_dates_and_of_few_categories(form):
    months = pd.date_range("1990-01-01", periods=300, freq="MS")
    texts = [months[i].strftime(form) for i in random().integers(300, size=ROWS)]
    frame = pl.DataFrame({"x": texts})
    schema = Schema.detect(frame)
    assert (schema["x"].kind, schema["x"].format) == ("datetime", form)
    encoder = Encoder(schema, bins=10**4)
    drawn = encoder.decode(encoder.encode(read(frame)), key=0, like=read(frame))
    assert drawn.values("x").tolist() == texts
    few = Schema.detect(pl.DataFrame({"x": texts[:40] * 10}))["x"]
    assert (few.kind, len(few.categories)) == ("categorical", len(set(texts[:40])))


@pytest.mark.parametrize("library", ["polars", "pandas", "arrow"])
def test_times_of_day_that_a_frame_holds_as_such_are_those_of_text(library):
    times = [time(i % 24, i * 7 % 60, i % 3) for i in range(ROWS)]
    frame = pl.DataFrame({"x": [None, *times[1:]]})
    frame = {"pandas": frame.to_pandas, "arrow": frame.to_arrow}.get(library, lambda: frame)()
    column = Schema.detect(frame)["x"]
    assert (column.kind, column.format, column.missing) == ("datetime", "%H:%M:%S", True)
    assert read(frame).values("x").tolist() == [None, *map(str, times[1:])]


@pytest.mark.parametrize("kind", [pd.DataFrame, pl.DataFrame])
def test_months_that_are_whole_numbers_are_dates_and_come_back_as_such(kind):
    numbers = (random().integers(1990, 2020, ROWS) * 100 + random(1).integers(1, 13, ROWS)).tolist()
    frame = kind({"x": numbers})
    schema = Schema.detect(frame)
    assert (schema["x"].kind, schema["x"].format) == ("datetime", "%Y%m")
    encoder = Encoder(schema, bins=10**5)
    drawn = encoder.decode(encoder.encode(read(frame)), key=0, like=read(frame))
    assert drawn.values("x").tolist() == numbers
    assert seen([*numbers, 202013]).kind == "integer"
    assert seen([202001, 202002, 202003] * 99).kind != "datetime"


def test_infinite_numbers_are_strays_with_their_places(tmp_path):
    frame = pl.DataFrame({"x": random().normal(size=ROWS).round(1), "y": [1.0, 0.0] * (ROWS // 2)})
    frame[5, "x"], frame[9, "x"], frame[7, "y"] = float("inf"), float("-inf"), float("inf")
    write(frame, tmp_path / "a.csv")
    write(frame, tmp_path / "a.parquet")
    for name, place in (("a.csv", "line {}"), ("a.parquet", "row {}")):
        table = read(tmp_path / name)
        found = propose([tmp_path / name])
        x, y = found.schema.columns
        assert (x.kind, x.decimals, x.missing, y.categories) == ("continuous", 1, False, (0, 1))
        assert abs(x.low) < 9 > abs(x.high)
        assert "2 of 400 rows hold infinite numbers: correct them, or make" in x.why
        first = place.format(7 if name == "a.csv" else 6)
        assert (
            found.cautions[0] == f"a, {first}, x: inf is infinite. Correct it, or make it missing"
        )
        assert len(found.cautions) == 3
        with pytest.raises(SchemaError, match="'x': 2 rows hold infinite"):
            Features.fit(table.select(["x"]), found.schema.select(["x"]), key=0)
        with pytest.raises(SchemaError, match="'x': 2 rows hold infinite numbers; correct them"):
            Encoder(found.schema.select(["x"])).encode(table.select(["x"]))
        places = f"a, {first} (inf), {place.format(10 + (name == 'a.csv'))} (-inf)"
        odd, *_ = misfits("a", table.select(["x"]), found.schema.select(["x"]), 16)
        assert odd.startswith(f"{places}: column 'x': 2 rows hold")
        whole = Encoder(Schema((Column("y", "integer", low=0, high=1),)))
        with pytest.raises(SchemaError, match="'y': 1 row holds infinite numbers"):
            whole.encode(table.select(["y"]))
    corrected = read(tmp_path / "a.csv", missing=["inf", "-inf"])
    assert Schema.detect(corrected)["x"].missing
    with pytest.raises(SchemaError, match="'x' has no value in any row"):
        describe(read(pl.DataFrame({"x": [float("inf")]})), "x", kind="continuous")


def test_dates_that_stand_for_none_are_pointed_out_and_not_taken():
    years = [f"{2015 + day // 360}-{day % 12 + 1:02}-{day % 28 + 1:02}" for day in range(ROWS)]
    column = seen([*years, "9999-12-31", "1900-01-01", "9999-12-31"])
    assert "far from all other dates: '9999-12-31' and '1900-01-01'; list it in" in column.why
    assert (column.high, column.missing, column.missing_values) == ("9999-12-31", False, ())
    schema = Schema.detect(pl.DataFrame({"x": [*years, "9999-12-31"]}))
    told = replace(schema["x"], missing=True, missing_values=("9999-12-31",), high="2016-12-31")
    table = pl.DataFrame({"x": ["9999-12-31", "2015-01-01"]})
    assert Encoder(Schema((told,)), 8).encode(table).column("x").tolist() == [8, 0]
    born = [f"{1921 + day % 90}-{day % 12 + 1:02}-{day % 28 + 1:02}" for day in range(ROWS)]
    for others in ([*born, "1900-01-01"], [*years, "9999-10-09"], ["9999-12-31"] * 9):
        assert "far from" not in seen(others).why
    held = pd.Series(pd.to_datetime([*years, "2262-01-01"]))
    assert "'2262-01-01'; make it missing in the table if" in seen(held).why
    assert seen(held[:-1]).why == "datetimes"


ZONED = "%Y-%m-%dT%H:%M:%S"


@pytest.mark.parametrize(
    ("first", "last", "form", "drawn"),
    [
        ("2024-01-05T10:00:00Z", "2024-02-06T11:30:00+02:00", f"{ZONED}%z", r".*:\d\d\+00:00"),
        ("2024-01-05T10:00:00Z", "2024-02-06T11:30:00Z", f"{ZONED}Z", r".*:\d\dZ"),
        ("2024-01-05 10:00:00 UTC", "2024-02-06 11:30:10 UTC", "%Y-%m-%d %H:%M:%S UTC", ".* UTC"),
        ("Fri, 05 Jan 2024 10:00:00 +0000", "Tue, 06 Feb 2024 11:30:10 +0100",
         "%a, %d %b %Y %H:%M:%S %z", r"\w{3}, \d\d (Jan|Feb) 2024 \d\d:\d\d:\d\d \+0000"),
        ("Mon, 05 Jan 2024 10:00:00 GMT", "Mon, 06 Feb 2024 11:30:10 GMT",  # the wrong days
         "%a, %d %b %Y %H:%M:%S GMT", r"(Fri|Sat|Sun|Mon|Tue|Wed|Thu), \d\d .* GMT"),
        ("05 Jan 2024 10:00:00 GMT", "06 Feb 2024 11:30:10 GMT", "%d %b %Y %H:%M:%S GMT", ".*GMT"),
        ("Fri 05 Jan 2024", "Tue 06 Feb 2024", "%a %d %b %Y", r"[MTWFS]\w\w \d\d (Jan|Feb) 2024"),
        ("Fri, 01/05/2024", "Sat, 02/17/2024", "%a, %m/%d/%Y", r"[MTWFS]\w\w, 0[12]/\d\d/2024"),
        ("3.1.2020", "14.11.2021", "%-d.%-m.%Y", r"[1-9]\d?\.[1-9]\d?\.202\d"),
        ("03.01.2020", "14.11.2021", "%d.%m.%Y", r"\d\d\.\d\d\.202\d"),
        ("3.1.2020 09:05", "14.11.2021 10:30", "%-d.%-m.%Y %H:%M", r"[1-9].* \d\d:\d\d"),
        ("1/5/2024 3:04 PM", "11/15/2024 12:04 AM", "%-m/%-d/%Y %-I:%M %p", r"[1-9].* [1-9].*M"),
        ("9:05", "10:30", "%-H:%M", r"(9|10):\d\d"),
        ("10:00:00.123", "11:30:00.456", "%H:%M:%S.%f", r"\d\d:\d\d:\d\d\.\d{3}"),
        ("2024-01-05 10:00:00.123", "2024-02-06 11:30:00.4", "%Y-%m-%d %H:%M:%S.%f", r".*\.\d{3}"),
        ("2024-01-05T10:00:00.123456", "2024-02-06T11:30:00", f"{ZONED}.%f", r".*\.\d{6}"),
    ],
)  # fmt: skip
def test_times_are_drawn_as_they_are_written(first, last, form, drawn):
    frame = pl.DataFrame({"x": [first, last] * 20})
    schema = Schema.detect(frame)
    assert (schema["x"].kind, schema["x"].format) == ("datetime", form)
    encoder = Encoder(schema)
    texts = encoder.decode(encoder.encode(frame), key=0, like=frame).values("x").tolist()
    assert all(re.fullmatch(drawn, text) for text in texts), texts
    again, _ = read(pl.DataFrame({"x": texts})).datetimes("x", form)
    ends, _ = read(frame).datetimes("x", form)
    assert ends.min() <= again.min() <= again.max() <= ends.max()


def test_an_ambiguous_date_without_zeros_names_both_readings():
    column = seen([f"{day % 12 + 1}/{day % 7 + 1}/2020" for day in range(ROWS)])
    assert column.format == "%-d/%-m/%Y"
    assert "may be 31/1/2024 (%-d/%-m/%Y) or 1/31/2024 (%-m/%-d/%Y)" in column.why
    other = [f"1/{day % 28 + 1}/2020" for day in range(ROWS)]
    both = Schema.detect(pl.DataFrame({"x": ["3/4/2020"] * ROWS, "y": other}))
    assert both["x"].format == "%-m/%-d/%Y"


def test_milliseconds_are_the_steps_of_bounds_with_three_digits():
    column = Column("t", "datetime", low="2020-01-01T00:00:00.000", high="2020-01-01T00:00:00.002")
    encoder = Encoder(Schema((column,)))
    times = np.array(["2020-01-01T00:00:00.001", "2020-01-01T00:00:00.002"], "datetime64[us]")
    table = Table.from_columns({"t": (times, None)})
    codes = encoder.encode(table)
    assert codes.domain.sizes == (3,)
    assert encoder.decode(codes, key=0, like=table).values("t").tolist() == times.tolist()


def test_days_of_whole_numbers_stay_whole_numbers():
    frame = pd.DataFrame({"x": [20240131, 20240201, 20231224]})
    schema = Schema.detect(frame)
    assert (schema["x"].kind, schema["x"].format) == ("datetime", "%Y%m%d")
    assert (schema["x"].low, schema["x"].high) == ("2023-12-24", "2024-02-01")
    encoder = Encoder(schema, bins=100)
    assert encoder.decode(encoder.encode(frame), key=0, like=frame).to_native().equals(frame)


def test_reasons_are_no_facts():
    schema = Schema.detect(pl.DataFrame({"x": [f"a{n}" for n in range(30)], "y": [1, 2, 3] * 10}))
    assert all(column.why for column in schema.columns)
    assert Schema.from_json(schema.to_json()) == schema
    bare = schema.without_reasons()
    assert not any(column.why for column in bare.columns)
    assert bare.without_reasons() is bare
    assert (bare.digest(), bare.differences(schema)) == (schema.digest(), [])
    assert not any(column.why for column in schema.declared().columns)


def test_sdv_metadata_have_patterns():
    schema = Schema((Column("key", "id", format="P[0-9]{3}"), Column("note", "text")))
    metadata = schema.to_sdv(version=1)
    columns = metadata["tables"]["table"]["columns"]
    assert columns["key"] == {"sdtype": "id", "regex_format": "P[0-9]{3}"}
    assert columns["note"]["sdtype"] == "unknown"
    assert Schema.from_sdv(metadata) == schema


def test_a_schema_of_another_table_says_so():
    schema = Schema.detect(pl.DataFrame({"a": [1, 2], "b": [1, 2]}))
    with pytest.raises(SchemaError, match="schema of another table"):
        Encoder(schema).encode(pl.DataFrame({"c": [1]}))


def days(count=ROWS):
    return [f"{2015 + i % 6}{1 + i % 12:02d}{1 + i % 28:02d}" for i in range(count)]


def test_a_last_day_of_all_is_said_of_dates_that_are_whole_numbers(tmp_path):
    ends = ["99991231" if i % 9 == 0 else day for i, day in enumerate(days())]
    write(pl.DataFrame({"until": ends, "x": days()}), tmp_path / "a.csv")
    until = Schema.detect(read(tmp_path / "a.csv"))["until"]
    assert (until.kind, until.format, until.high) == ("datetime", "%Y%m%d", "9999-12-31")
    assert "far from all other dates: '99991231'; name it as missing where the file" in until.why
    until = Schema.detect(read(tmp_path / "a.csv", missing=["99991231"]))["until"]
    assert (until.kind, until.missing, until.high[:4]) == ("datetime", True, "2020")
    for odd in (["99990615"], ["99991231", "10000101", "29991231"], ["999912"], ["20201301"]):
        frame = pl.DataFrame({"x": [*days(300), *odd * 50], "y": [0.5] * (300 + 50 * len(odd))})
        write(frame, tmp_path / "b.csv")
        assert Schema.detect(read(tmp_path / "b.csv"))["x"].kind == "integer", odd


@pytest.mark.parametrize("zone", ["Z", " UTC", "+02:00", "-0500"])
def test_times_with_and_without_a_zone_are_named_as_such(zone):
    when = [f"2020-01-{1 + i % 28:02d}T{i % 24:02d}:{i % 60:02d}:00" for i in range(ROWS)]
    mixed = [f"{text}{zone if i % 5 == 0 else ''}" for i, text in enumerate(when)]
    found = Schema.detect(Table.from_columns({"t": (mixed, None)}))["t"]
    assert found.kind == "text"
    assert re.search(r"of \d+ different times have a zone.*the others have none", found.why)
    alike = Schema.detect(Table.from_columns({"t": ([f"{t}{zone}" for t in when], None)}))["t"]
    assert alike.kind == "datetime"
    zoned = [f"{text}{zone if i % 5 else ' GMT'}" for i, text in enumerate(when)]
    assert "have none" not in Schema.detect(Table.from_columns({"t": (zoned, None)}))["t"].why


def test_numbers_with_a_zero_in_front_that_are_no_phones():
    rng = random()
    for form in ("0{:02d}.{:05d}", "0{} {}", "A0{:02d} {:04d}"):
        texts = [form.format(*pair) for pair in rng.integers(0, 100, (ROWS, 2)).tolist()]
        assert Schema.detect(Table.from_columns({"x": (texts, None)}))["x"].format != "phone"


@pytest.mark.parametrize(
    ("form", "some", "kind", "padded"),
    [
        ("{:.2f}", "", "continuous", 2),
        (" {:.2f} ", "", "continuous", 2),
        ("{:.2f}", "n/a", "continuous", 2),
        ("{}", "", "continuous", 1),  # as Python writes 2.0 beside 1.75
        ("{:g}", "", "continuous", 0),
        ("{:g}", "n/a", "continuous", 0),
        ("{:.1f}3", "", "continuous", 2),  # none ends with a zero
        ("{:.1f}0", "", "continuous", 2),  # one decimal, and a zero behind it
        ("{:.0f}.00", "", "integer", 2),
        ("{:.0f}.00", "n/a", "integer", 2),
        ("{:.0f}", "", "integer", None),
        ("{:.2f}e-3", "", "continuous", 0),
        ("{:g} kg", "", "continuous", 0),
        ("{} kg", "", "continuous", 1),
        ("${:,.2f}", "", "continuous", 2),
        ("{:.0f}.00 kg", "", "integer", 2),
        ("{:.0f} kg", "", "integer", None),
    ],
)
def test_the_fewest_decimals_of_a_number_are_known_with_zeros_at_the_end(
    tmp_path, form, some, kind, padded
):
    numbers = [form.format(i * i / 20 + 0.2) for i in range(100)]
    lines = [f"{text},k\n" for text in (*numbers, some)]
    (tmp_path / "a.csv").write_text("x,y\n" + "".join(lines))
    found = Schema.detect(read(tmp_path / "a.csv"))["x"]
    known = padded is not None
    assert (found.kind, found.padded, "padded" in found.from_data) == (kind, padded, known)
    assert Schema.detect(pl.DataFrame({"x": [1.5, 2.25] * 20}))["x"].padded is None


def test_decimals_with_zeros_are_those_of_all_files(tmp_path):
    texts = {"a": ["1.50", "2.00"], "b": ["3.10", "4.25"], "c": ["3.1", "4.25"], "d": ["3", "4"]}
    texts["empty"] = ["", ""]
    for name, values in texts.items():
        (tmp_path / f"{name}.csv").write_text("x,y\n" + "".join(f"{v},k\n" for v in values * 20))
    a, *others = (read(tmp_path / f"{name}.csv") for name in texts)
    pooled = [Schema.detect(stacked([a, one]))["x"].padded for one in others]
    assert pooled == [2, 1, 0, 2]


def test_decimals_are_those_of_numbers():
    for kind in ("integer", "continuous", "categorical", "boolean"):
        some = {} if kind in ("integer", "continuous") else {"categories": (1.0, 2.0)}
        assert Column("x", kind, padded=2, **some).padded == 2
    with pytest.raises(SchemaError, match="padded=16; a column of numbers may have 0 to 15"):
        Column("x", "integer", padded=16)
    with pytest.raises(SchemaError, match="padded=1; a column of numbers"):
        Column("x", "categorical", categories=("a", "b"), padded=1)
    with pytest.raises(SchemaError, match="padded=1; a column of numbers"):
        Column("x", "boolean", padded=1)
    with pytest.raises(SchemaError, match="decimals=1; a continuous column may have 0 to 15"):
        Column("x", "integer", decimals=1)


def test_numbers_of_a_form_may_have_more_decimals_than_are_modelled():
    texts = [f"{x} kg" for x in random().uniform(1, 2, ROWS)]
    found = Schema.detect(Table.from_columns({"x": (texts, None)}))["x"]
    assert (found.kind, found.format, found.decimals) == ("continuous", "1234.5 kg", None)


def test_a_form_without_decimals_has_none():
    form = number_form("1,234 kg")
    assert form.written(np.array([12.5, 1234.5625, -0.75]), 2).tolist() == [
        "12 kg",
        "1,235 kg",
        "-1 kg",
    ]
    assert form.written(np.array([12.5]), None, 2).tolist() == ["12 kg"]


@pytest.mark.parametrize("name", ["pupil", "Alunno", "Élève", "teacher", "Employee"])
def test_names_of_a_class_are_no_categories_however_many_rows_each_has(name):
    rng = random()
    people = [f"{first} {last}" for first in ("Ada", "Bo", "Eva", "Jan", "Lea") for last in
              ("Rossi", "De Luca", "D'Angelo", "Berg", "Novak", "Silva")]  # fmt: skip
    texts = rng.choice(people, 10 * len(people) * 5)
    found = Schema.detect(Table.from_columns({name: (texts, None)}))[name]
    assert (found.kind, found.format) == ("text", "name")
    few = rng.choice(["Part Time", "Full Time", "On Leave"], ROWS)
    assert Schema.detect(Table.from_columns({name: (few, None)}))[name].kind == "categorical"
    places = Schema.detect(Table.from_columns({"place": (texts, None)}))["place"]
    assert places.kind == "categorical"


NAMES = {
    "Ada": "Auer", "Bo": "Berg", "Cem": "Conti", "Dora": "Dvorak", "Emil": "Egger",
    "Fritz": "Fuchs", "Gina": "Gruber", "Hans": "Haas", "Ida": "Ivanov", "Jan": "Jansen",
    "Karl": "Kovacs", "Lea": "Lang", "Max": "Moser", "Nora": "Novak", "Otto": "Olsen",
    "Paula": "Popov", "Rosa": "Rossi", "Sven": "Silva", "Tina": "Toth", "Uwe": "Weber",
}  # fmt: skip
PEOPLE = [" ".join(one) for one in NAMES.items()]


@pytest.mark.parametrize("name", ["Author", "Doctor", "Team", "Arzt", "students", "seen_by"])
@pytest.mark.parametrize("form", ["{} {}", "Dr. {} {}", "{1}, {0}", "{} van der {}", "Dr. {1}"])
def test_names_of_people_are_no_categories_whatever_the_column_is_called(name, form):
    people = [form.format(*one) for one in NAMES.items()]
    for spelled in (people, list(map(str.upper, people))):
        texts = random().choice(spelled, 100 * len(people))
        found = Schema.detect(Table.from_columns({name: (texts, None)}))[name]
        assert (found.kind, found.format) == ("text", "name")
    few = random().choice(people[:19], 100 * len(people))
    assert Schema.detect(Table.from_columns({name: (few, None)}))[name].kind == "categorical"


TITLES = {
    "two lists crossed": [f"{a} {b}" for a in ("Gold", "Silver", "Basic", "Student", "Family")
                          for b in ("Yearly", "Monthly", "Weekly", "Daily")],
    "one last word": [f"{one} Street" for one in NAMES],
    "one first word": [f"Saint {one}" for one in NAMES],
    "few last words": [f"{one} {('Manager', 'Engineer', 'Assistant')[i % 3]}"
                       for i, one in enumerate(NAMES)],
    "single words among them": [*NAMES, *PEOPLE],
}  # fmt: skip


@pytest.mark.parametrize("titles", TITLES)
@pytest.mark.parametrize("name", ["membership", "students", "utilisation", "x"])
def test_titles_that_share_words_are_categories(name, titles):
    texts = random().choice(TITLES[titles], 100 * len(TITLES[titles]))
    assert Schema.detect(Table.from_columns({name: (texts, None)}))[name].kind == "categorical"


@pytest.mark.parametrize("name", ["department", "job_title", "city", "diagnosis"])
def test_a_column_of_places_or_things_by_its_name_holds_no_people(name):
    texts = random().choice(PEOPLE, 2000)
    assert Schema.detect(Table.from_columns({name: (texts, None)}))[name].kind == "categorical"


def test_fields_of_hl7_are_no_ids_but_for_those_that_number_people(tmp_path):
    path = tmp_path / "t.csv"
    rows = [f"{10_000 + 7 * (n % 60)},{'MFUOA'[n % 5]},{n % 6},A{n % 90}\n" for n in range(300)]
    path.write_text("PID-3,PID-8,PID.16,PID_18\n" + "".join(rows))
    schema = Schema.detect(read(path))
    kinds = {column.name: column.kind for column in schema.columns}
    assert kinds == {"PID-3": "id", "PID-8": "categorical", "PID.16": "integer", "PID_18": "id"}


def test_a_time_of_hl7_is_one_whatever_its_field_is_called(tmp_path):
    path = tmp_path / "t.csv"
    rows = [f"2024{n % 12 + 1:02d}{n % 28 + 1:02d}{n % 24:02d}{n % 60:02d}\n" for n in range(300)]
    path.write_text("PID-33\n" + "".join(rows))
    assert Schema.detect(read(path))["PID-33"].format == "%Y%m%d%H%M"


def test_codes_like_powers_of_ten_are_texts_and_say_so(tmp_path):
    path = tmp_path / "t.csv"
    codes = ["2E10", "1E05", "3e11", "412"]
    path.write_text("product,dose\n" + "".join(f"{codes[n % 4]},{n % 9}E+02\n" for n in range(300)))
    table = read(path)
    schema = Schema.detect(table)
    assert schema["product"].kind == "categorical"
    assert sorted(schema["product"].categories) == sorted(codes)
    assert "codes here" in schema["product"].why
    assert table.text_counts("product")["2E10"] == 75
    assert (table.kind("product"), table.kind("dose")) == ("text", "numbers")
    path.write_text("dose\n" + "2E10\n0.5\n" * 99)
    assert Schema.detect(read(path))["dose"].kind == "continuous"


@pytest.mark.parametrize(
    ("form", "wanted"), [("%G-W%V", "2024-02-26"), ("%G-W%V-%u", "2024-02-29")]
)
def test_iso_weeks_are_dates(tmp_path, form, wanted):
    path = tmp_path / "t.csv"
    days = [date(2023, 1, 1) + timedelta(days=n) for n in range(600)]
    path.write_text("week\n" + "".join(f"{day.strftime(form)}\n" for day in days))
    table = read(path)
    column = Schema.detect(table)["week"]
    assert (column.kind, column.format) == ("datetime", form)
    assert "dates written as" in column.why
    row = days.index(date(2024, 2, 29))
    when, _ = table.datetimes("week", form)
    assert str(when[row].astype("datetime64[us]").astype("datetime64[D]")) == wanted
    # A week that a year lacks is no date.
    path.write_text("week\n" + "2023-W53-1\n")
    with pytest.raises(SchemaError):
        read(path).datetimes("week", "%G-W%V-%u")


def test_weeks_of_one_year_are_categories(tmp_path):
    path = tmp_path / "t.csv"
    path.write_text("week\n" + "".join(f"2024-W{n % 52 + 1:02d}\n" for n in range(600)))
    assert Schema.detect(read(path))["week"].kind == "categorical"


@pytest.mark.parametrize("form", ["%Y-%d-%m", "%Y/%d/%m"])
def test_a_year_may_have_its_day_before_its_month(form):
    assert seen(dates(form)).format == form


def test_dates_of_early_days_stay_those_of_iso():
    column = seen(dates("%Y-%m-%d", upto=12))
    assert column.format == "%Y-%m-%d"
    assert "ambiguous" not in column.why


def test_days_of_a_year_are_dates_where_the_name_says_so():
    assert seen(dates("%Y-%j"), "visit_date").format == "%Y-%j"
    assert seen(dates("%Y-%j"), "case").kind != "datetime"
    numbers = [int(text) for text in dates("%Y%j")]
    column = seen(numbers, "Aufnahmedatum")
    assert (column.kind, column.format, column.low[:7]) == ("datetime", "%Y%j", "2020-01")
    assert seen(numbers, "amount").kind != "datetime"
    early = [day for day in dates("%Y%m%d") if int(day[4:6]) < 4]
    assert seen([int(day) for day in early], "visit_date").format == "%Y%m%d"


def test_drawn_days_of_a_year_are_whole_numbers_again():
    frame = pl.DataFrame({"visit_date": [int(text) for text in dates("%Y%j")]})
    schema = Schema.detect(frame).declared()
    drawn = sw.GaussianCopula().fit(frame, schema).sample(50, seed=1)
    assert drawn["visit_date"].dtype == pl.Int64
    assert (drawn["visit_date"] % 1000).is_between(1, 366).all()


@pytest.mark.parametrize(
    "cells",
    [
        [2.5] * 40,
        ["$5.00"] * 40,
        ["5 %"] * 40,
        ["2020-01-31"] * 40,
        ["12:30"] * 40,
        [True] * 40,
        [pd.Timestamp("2020-01-31")] * 40,
        [timedelta(hours=1)] * 40,
    ],
    ids=lambda cells: str(cells[0]),
)
def test_one_value_in_all_rows_is_called_constant_whatever_its_kind(cells):
    column = Schema.detect(pd.DataFrame({"x": cells}))["x"]
    assert column.kind not in ("categorical", "text", "id")
    assert "constant: one " in column.why
    assert "in every row" in column.why
    half = pd.DataFrame({"x": pd.Series(cells[:20] + [None] * 20, dtype=object)})
    assert "constant: one " in Schema.detect(half)["x"].why
    two = Schema.detect(pd.DataFrame({"x": cells, "y": range(40)}))["y"]
    assert "constant" not in two.why
