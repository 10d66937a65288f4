"""What is drawn is written as the table was: decimals, marks, dates, booleans, identifiers."""

import re

import msgspec
import numpy as np
import pandas as pd
import pytest

import siloweave as sw
from siloweave.tables import Codes, Column, Encoder, Schema, read
from siloweave.tables.bins import as_written
from siloweave.tables.drawn import drawn_anew
from siloweave.tables.features import Features
from siloweave.tables.write import write
from tests.synthesizers.cases import parties_of
from tests.synthesizers.families import SYNTHESIZERS

ROWS = 80
WORKLOAD = (("member", "grade"), ("height", "grade"), ("paid",), ("seen",), ("smoker",))


def people():
    rng = np.random.default_rng(0)
    dates = pd.Timestamp("2021-01-01") + pd.to_timedelta(rng.integers(0, 900, ROWS), unit="D")
    visits = [f"{n:,}".replace(",", ".") for n in rng.integers(900, 1300, ROWS)]
    visits[:15] = ["n/a"] * 15
    return pd.DataFrame(
        {
            "key": [f"P{n:05d}" for n in rng.permutation(ROWS)],
            "height": np.round(rng.normal(170, 9, ROWS), 1),
            "paid": [f"$ {x:,.2f}" for x in rng.lognormal(7, 1, ROWS)],
            "visits": visits,
            "seen": dates.strftime("%d.%m.%Y"),
            "smoker": rng.choice(["N", "Y"], ROWS),
            "member": rng.integers(0, 2, ROWS),
            "grade": rng.choice([1, 2, 5], ROWS),
            "note": [f"patient {n} came on a {d:%A} and left" for n, d in enumerate(dates)],
            "empty": pd.Series([None] * ROWS, dtype="object"),
        }
    )


def schema():
    return Schema.detect(people())


def check_written(sample):
    proposed = schema()
    assert list(sample.columns) == list(proposed.names)
    assert (np.round(sample["height"], 1) == sample["height"]).all()
    assert sample["height"].between(proposed["height"].low, proposed["height"].high).all()
    assert sample["paid"].map(lambda text: bool(re.fullmatch(r"\$ [\d,]+\.\d\d", text))).all()
    known = sample["visits"].dropna()
    assert known.map(lambda text: bool(re.fullmatch(r"\d{1,3}(\.\d{3})*", text))).all()
    assert pd.to_datetime(sample["seen"], format="%d.%m.%Y").dt.year.between(2021, 2023).all()
    assert set(sample["smoker"]) <= {"N", "Y"}
    assert set(sample["member"]) <= {0, 1}
    assert set(sample["grade"]) <= {1, 2, 5}
    assert sample["key"].is_unique
    assert not set(sample["note"]) & set(people()["note"])
    assert sample["empty"].isna().all()


def test_what_is_proposed():
    found = {c.name: (c.kind, c.format, c.decimals) for c in schema().columns}
    assert found == {
        "key": ("id", "P000[0-9]{2}", None),
        "height": ("continuous", None, 1),
        "paid": ("continuous", "$ 1,234.5", 2),
        "visits": ("integer", "1.234", None),
        "seen": ("datetime", "%d.%m.%Y", None),
        "smoker": ("boolean", None, None),
        "member": ("boolean", None, None),
        "grade": ("categorical", None, None),
        "note": ("text", None, None),
        "empty": ("text", None, None),
    }
    assert schema()["visits"].missing_values == ("n/a",)


@pytest.mark.parametrize("name", sorted(SYNTHESIZERS))
def test_methods_of_marginals_write_what_they_draw(name):
    small = {"flaim": {"rounds": 1}, "distaim": {"rounds": 1}}.get(name, {})
    synth = SYNTHESIZERS[name](workload=WORKLOAD, **small)
    budget = sw.Budget(epsilon=8.0, delta=1e-5)
    fitted = synth.fit(parties_of(name, people(), 2), schema(), budget=budget, seed=0)
    if fitted.shared:
        check_written(fitted.sample(200, seed=1))
        given = fitted.sample(20, seed=1, given={"smoker": "Y"})
        assert set(given["smoker"]) == {"Y"}
    else:
        parts = fitted.sample_parts(200, seed=1)
        check_written(pd.concat(list(parts.values()), axis=1)[list(schema().names)])


@pytest.mark.parametrize("numeric", ["quantile", "modes", "standard"])
def test_networks_write_what_they_draw(numeric):
    features = Features.fit(read(people()), schema(), numeric=numeric, key=0)
    vectors = np.random.default_rng(0).normal(size=(500, features.width)).astype(np.float32)
    rows = features.decode(vectors, key=0, like=read(people()))
    check_written(drawn_anew(rows, schema(), key=0, like=read(people())).to_native())


def test_a_model_of_rows_writes_what_it_draws_and_keeps_what_is_given():
    fitted = sw.GaussianCopula().fit(people(), schema(), seed=0)
    check_written(fitted.sample(300, seed=1))
    given = fitted.sample(10, seed=1, given={"paid": "$ 1,000.00", "grade": 5})
    assert set(given["paid"]) == {"$ 1,000.00"}
    assert set(given["grade"]) == {5}


def numbers_as_people_write_them():
    """Columns of one CSV: how often each kind of number is written, with its decimal mark."""
    rng = np.random.default_rng(1)
    tenths, cents = np.round(rng.uniform(-9, 90, ROWS), 1), np.round(rng.uniform(0, 3000, ROWS), 2)
    tenths[:9], cents[:9] = np.arange(9), np.arange(9) / 2
    counts = rng.integers(0, 300, ROWS)
    return {
        "as few as needed": [f"{x:g}" for x in tenths],
        "all decimals": [f"{x:.2f}" for x in cents],
        "as Python writes": [f"{x}" for x in cents],
        "a zero behind tenths": [f"{x:.2f}" for x in tenths],
        "whole with zeros": [f"{x:.2f}" for x in counts],
        "whole": [f"{x}" for x in counts],
        "whole or missing": [f"{x:.1f}" if x % 7 else "" for x in counts],
        "codes with a zero": [f"{x:.1f}" for x in rng.choice([1, 2, 9], ROWS)],
        "flags with a zero": [f"{x:.1f}" for x in rng.integers(0, 2, ROWS)],
        "flags or not known": [f"{x % 2:.1f}" if x % 7 else "n/a" for x in counts],
        "weights": [f"{x:g} kg" for x in abs(tenths)],
        "weights with zeros": [f"{x:.1f} kg" for x in abs(tenths)],
        "whole weights with zeros": [f"{x:.2f} kg" for x in counts],
        "money": [f"$ {x:,.2f}" for x in cents],
        "money in steps of a half": [f"${x / 2:,.2f}" for x in counts],
        "money, whole or with cents": [f"${x / 2:,.2f}" if x % 2 else f"${x // 2}" for x in counts],
        "six decimals": [f"{x / 1e6:.6f}" for x in [*range(9), *counts[9:]]],
        "percent": [f"{x:g}%" for x in abs(tenths)],
        "comma": [f"{x:g}".replace(".", ",") for x in tenths],
        "comma with zeros": [f"{x:.2f} €".replace(".", ",") for x in tenths],
    }


def forms_of(texts, mark):
    """What is before each number, how many decimals it has, and what is behind it."""
    pattern = re.compile(rf"(-?)(\D*)[\d.,]*?\d(?:{re.escape(mark)}(\d{{1,6}}))?(\D*)")
    found = [pattern.fullmatch(text) for text in texts if text not in ("", "n/a")]
    assert None not in found
    return {(one[2], len(one[3] or ""), one[4]) for one in found}


def test_numbers_of_a_csv_come_back_in_forms_that_it_has(tmp_path):
    columns = numbers_as_people_write_them()
    pd.DataFrame(columns).to_csv(tmp_path / "in.csv", index=False)
    table = read(tmp_path / "in.csv")
    schema = Schema.detect(table)
    fitted = sw.GaussianCopula().fit(table, schema, seed=0)
    write(fitted.sample_table(1000, seed=1), tmp_path / "out.csv", fitted.schema.padded)
    drawn = pd.read_csv(tmp_path / "out.csv", dtype=str, keep_default_na=False)
    schema_of_drawn = Schema.detect(read(tmp_path / "out.csv"))
    for name, texts in columns.items():
        mark = "," if name.startswith("comma") else "."
        there, drawn_ones = forms_of(texts, mark), forms_of(drawn[name], mark)
        assert drawn_ones <= there, name
        assert drawn_ones, name
        assert schema_of_drawn[name].padded == schema[name].padded, name


def test_a_declared_form_has_all_its_decimals():
    paid = Column("paid", "continuous", format="$1,234.5", low=0, high=5, decimals=2)
    for padded, written in ((None, ["$1.50", "$2.00"]), (0, ["$1.5", "$2"]), (1, ["$1.5", "$2.0"])):
        column = msgspec.structs.replace(paid, padded=padded)
        assert as_written(column, np.array([1.5, 2.0]), None).tolist() == written


def test_a_form_has_no_powers_of_ten():
    paid = Column("paid", "continuous", format="$1,234.5", low=0, high=1e17)
    for padded, small in ((None, "$0.00001"), (2, "$0.00001"), (6, "$0.000010")):
        column = msgspec.structs.replace(paid, padded=padded)
        assert as_written(column, np.array([1e-5]), None).tolist() == [small]
    assert as_written(paid, np.array([1e17]), None).tolist() == ["$100,000,000,000,000,000"]


def test_reasons_stay_with_the_owner(tmp_path):
    fitted = sw.AIM(workload=WORKLOAD).fit(
        people(), schema(), budget=sw.Budget(epsilon=1.0, delta=1e-5), folder=tmp_path / "run"
    )
    fitted.save(tmp_path / "model")
    assert "identifier" in schema()["key"].why
    for path in tmp_path.rglob("*"):
        assert path.is_dir() or b"identifier" not in path.read_bytes(), path


@pytest.mark.parametrize("bins", [1, 3, 32, 1000])
@pytest.mark.parametrize("decimals", [0, 1, 2, 7])
def test_decimals_are_kept_in_bins_of_any_width(bins, decimals):
    column = Column("x", "continuous", low=-1.25, high=7.5, decimals=decimals)
    encoder = Encoder(Schema((column,)).with_fallbacks(), bins=bins)
    codes = np.random.default_rng(0).integers(bins, size=5000)
    values = encoder.decode(Codes(encoder.domain, (codes,)), key=0).values("x")
    assert (np.round(values, decimals) == values).all()
    assert values.min() >= -1.25
    assert values.max() <= 7.5
    if 10.0**-decimals < 8.75 / bins:  # every bin has such a number: it is drawn in its own
        again = encoder.encode(encoder.decode(Codes(encoder.domain, (codes,)), key=0))
        assert (again.column("x") == codes).all()
