"""Written numbers with marks in places of their own, and with a plus sign."""

import numpy as np
import pandas as pd
import pytest

from siloweave.errors import SchemaError
from siloweave.tables import Schema, read
from siloweave.tables.forms import number_form

ROWS = 120
RNG = np.random.default_rng(3)
FORMS = {
    "12,34,567": RNG.integers(-5_000_000, 9_000_000, ROWS),
    "₹ 12,34,567.5": RNG.integers(0, 9_000_000, ROWS) / 4,
    "+1234": RNG.integers(-40, 41, ROWS),
    "+1,234.5%": RNG.integers(-9_000, 9_000, ROWS) / 2,
    "+$1234": RNG.integers(-90, 90, ROWS),
}


@pytest.mark.parametrize("form", FORMS)
def test_numbers_are_recognised_by_what_their_form_writes(form):
    numbers = FORMS[form]
    texts = number_form(form).written(numbers, 2)
    table = read(pd.DataFrame({"x": texts}))
    column = Schema.detect(table)["x"]
    assert column.format == form
    assert column.kind == ("integer" if numbers.dtype == np.int64 else "continuous")
    assert table.floats("x", form)[0].tolist() == numbers.tolist()


def test_marks_of_india_stand_before_the_last_three_digits_and_every_two_then():
    texts = number_form("12,34,567.5").written(np.array([123456789.5, -98765, 999, 0.25]), 2, 0)
    assert texts.tolist() == ["12,34,56,789.5", "-98,765", "999", "0.25"]


@pytest.mark.parametrize("form", ["12,34.567", "1,23,456", "12345"])
def test_other_examples_are_refused(form):
    with pytest.raises(SchemaError, match="must show how"):
        number_form(form)


def test_identifiers_of_pairs_of_digits_are_no_numbers():
    codes = [f"{a},{b},{c}" for a, b, c in RNG.integers(10, 99, (ROWS, 3))]
    assert Schema.detect(pd.DataFrame({"x": codes}))["x"].kind == "id"


def test_a_plus_before_some_numbers_alone_is_not_drawn():
    texts = [f"+{n}" if row % 2 else str(n) for row, n in enumerate(RNG.integers(1, 99, ROWS))]
    assert Schema.detect(pd.DataFrame({"x": texts}))["x"].format == "1234"


def test_few_codes_are_categories_however_long_one_is():
    codes = RNG.choice(["1", "2", "3", "9" * 20], ROWS)
    assert Schema.detect(pd.DataFrame({"x": codes}))["x"].kind == "categorical"
    keys = [f"{n}{10**20 + n}" for n in range(ROWS)]
    assert Schema.detect(pd.DataFrame({"x": keys}))["x"].kind == "id"


def test_few_doses_with_gaps_are_categories_and_counts_of_a_unit_are_numbers():
    doses = RNG.choice(["5 mg", "10 mg", "20 mg", "40 mg"], ROWS)
    assert Schema.detect(pd.DataFrame({"x": doses}))["x"].kind == "categorical"
    decades = RNG.choice(["1990s", "2000s"], ROWS)
    assert Schema.detect(pd.DataFrame({"x": decades}))["x"].kind == "categorical"
    stars = [f"{n} stars" for n in RNG.integers(1, 6, ROWS)]
    assert Schema.detect(pd.DataFrame({"x": stars}))["x"].kind == "integer"


def test_thousands_may_be_a_unit():
    column = Schema.detect(pd.DataFrame({"x": [f"${n}k" for n in RNG.integers(9, 200, ROWS)]}))["x"]
    assert (column.kind, column.format) == ("integer", "$1234k")
    few = Schema.detect(pd.DataFrame({"x": RNG.choice(["1,0", "1,3", "1,7", "5,0"], ROWS)}))["x"]
    assert "4 different ones; if no other can occur, declare it categorical" in few.why


@pytest.mark.parametrize(
    ("texts", "words"),
    [
        ([f"{a}/{b}/{c}" for a, b, c in RNG.integers(1, 11, (ROWS, 3))], "several numbers"),
        ([f"({a:.3f}, {b:.3f})" for a, b in RNG.normal(40, 5, (ROWS, 2))], "several numbers"),
        ([f"{a}/{b} mmHg" for a, b in RNG.integers(60, 180, (ROWS, 2))], "several numbers"),
        ([f"{a}°{b}'{c}\"N" for a, b, c in RNG.integers(0, 60, (ROWS, 3))], "degrees of a place"),
    ],
    ids=["scores", "places", "blood pressure", "degrees"],
)
def test_numbers_in_one_field_are_no_identifiers(texts, words):
    column = Schema.detect(pd.DataFrame({"x": texts}))["x"]
    assert column.kind == "text"
    assert words in column.why


def test_periods_of_years_are_categories():
    years = [f"{y}-{y + n}" for y, n in RNG.integers((1990, 1), (2015, 4), (400, 2))]
    assert Schema.detect(pd.DataFrame({"x": years}))["x"].kind == "categorical"


@pytest.mark.parametrize("pair", [("Zürich", "Zu\u0308rich"), ("A-1", "A–1"), ("O'Neil", "O’Neil")])
def test_categories_that_look_alike_are_named(pair):
    column = Schema.detect(pd.DataFrame({"x": RNG.choice([*pair, "Bern"], ROWS)}))["x"]
    assert "1 differs from another in capital letters, spaces or look-alikes alone" in column.why


@pytest.mark.parametrize(("separator", "mark"), [(",", "."), (";", ",")])
def test_a_mark_is_one_of_decimals_where_other_columns_have_it_so(tmp_path, separator, mark):
    """An imputed 10.251 among whole years of school is no ten thousand."""
    years = [*map(str, RNG.integers(1, 18, ROWS - 20)), *["10" + mark + "251"] * 20]
    wages = [f"{wage:.2f}".replace(".", mark) for wage in RNG.uniform(1, 9, ROWS)]
    lines = ["school" + separator + "wage"]
    lines += [separator.join(row) for row in zip(years, wages, strict=True)]
    path = tmp_path / "rows.csv"
    path.write_text("\n".join(lines) + "\n")
    column = Schema.detect(path)["school"]
    assert (column.kind, column.decimals) == ("continuous", 3)
    assert column.high == 17

    # Without such a column, whole numbers have it between thousands.
    path.write_text("\n".join(["school" + separator + "x", *(y + separator + "1" for y in years)]))
    if mark == ".":
        assert Schema.detect(path)["school"].format == "1.234"


def test_two_marks_in_one_number_are_between_thousands_whatever_other_columns_have(tmp_path):
    path = tmp_path / "rows.csv"
    numbers = [f"{n:,}".replace(",", ".") for n in RNG.integers(1_000_000, 9_000_000, ROWS)]
    path.write_text("\n".join(["x,y", *(f"{number},0.5" for number in numbers)]))
    assert Schema.detect(path)["x"].format == "1.234"
