"""What a prompt and a notebook show: short, escaped, and frames and pictures of results."""

from pathlib import Path
from xml.etree import ElementTree

import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pytest

import siloweave as sw
from siloweave.errors import InputError
from tests.protocols.test_columns_split import Echo
from tests.synthesizers.cases import SCHEMA, fit, pandas_frame
from tests.synthesizers.test_columns import split

KINDS = {"pandas": pd.DataFrame, "polars": pl.DataFrame, "arrow": pa.Table}
EVIL = "<script>alert('x')</script>"


@pytest.fixture(scope="module")
def rows():
    rng = np.random.default_rng(0)
    x = rng.normal(size=60)
    text = np.array([EVIL, "b & c"], dtype=object)[rng.integers(0, 2, 60)]
    return sw.Table.from_columns({EVIL: (x, None), "y": (x**2, None), "c": (text, None)})


@pytest.fixture(scope="module")
def scores(rows):
    return sw.score(rows, rows, max_rows=30)


@pytest.fixture(scope="module")
def risks(rows):
    half, rest = rows.take(range(30)), rows.take(range(30, 60))
    return sw.attack(half, half, control=rest, targets=10, attacks=["membership", "inference"])


@pytest.fixture(scope="module")
def shadow():
    rows = sw.Table.from_columns({"x": (np.arange(60.0) / 2, None)})
    return sw.shadow_attack(
        *(lambda table, key: table, rows, [59]),
        training_size=20,
        train_sets=10,
        test_sets=10,
        key=0,
        workers=1,
        attacks=["ClosestDistance-L2"],
    )


def everything(rows, scores, risks, shadow):
    frame = pandas_frame()
    fits = [fit("flaim"), sw.GaussianCopula().fit(frame, SCHEMA), Echo().fit(split(frame), SCHEMA)]
    return [
        rows, sw.Schema.detect(rows), scores, risks, shadow, *fits, *(one.ledger for one in fits)
    ]  # fmt: skip


def test_what_is_shown_is_short_and_escaped(rows, scores, risks, shadow):
    for one in everything(rows, scores, risks, shadow):
        assert 5 < len(repr(one)) < 250, type(one)
        assert "\n" not in repr(one)
        page = one._repr_html_()
        assert "<script" not in page, type(one)
        assert len(page) < 8_000, type(one)
        ElementTree.fromstring(page)  # every element is closed


def test_wide_and_long_things_are_cut():
    wide = sw.Table.from_columns({f"column {i}": (np.arange(99), None) for i in range(200)})
    schema = sw.Schema.detect(wide)
    for one in (wide, schema):
        assert "column 19" in repr(one)
        assert "and 180 more" in repr(one)
        assert "column 21" not in one._repr_html_()
    assert "and 180 more" in schema._repr_html_()
    assert wide._repr_html_().count("<tr>") == 6


def test_a_fit_says_what_it_promises():
    private, seeded = fit("flaim"), fit("aim", noise="seeded")
    assert "of 4 at delta 1e-05" in repr(private)
    assert "3 parties" in repr(private)
    assert "NOT PRIVATE" in repr(seeded)
    assert "NOT PRIVATE" in seeded._repr_html_()
    unbounded = sw.GaussianCopula().fit(pandas_frame(), SCHEMA)
    assert "NOT PRIVATE" in repr(unbounded)
    assert "of inf" not in unbounded._repr_html_()
    assert repr(private.ledger).startswith("Ledgers(3 parties, ")


def test_scores_and_risks_are_frames(scores, risks, shadow):
    for one, names, length in (
        (scores, ("name", "value", "low", "ceiling", "floor"), len(scores.parts)),
        (risks, ("attack", "variant", "risk", "train", "control"), len(risks.parts)),
        (shadow, ("attack", "record", "risk", "accuracy", "auc"), len(shadow.risks)),
    ):
        for kind, frame in KINDS.items():
            made = one.to_frame(kind)
            assert isinstance(made, frame)
            table = sw.read(made)
            assert table.num_rows == length
            assert set(names) <= set(table.names)
        assert isinstance(one.to_frame(), pd.DataFrame)
        with pytest.raises(InputError, match="kind='excel'"):
            one.to_frame("excel")
    frame = scores.to_frame()
    assert frame["value"].tolist() == [part.value for part in scores.parts]
    assert frame["ceiling"].isna().tolist() == [part.ceiling is None for part in scores.parts]
    assert risks.to_frame("polars")["train"].to_list() == [p.train.value for p in risks.parts]


def test_a_frame_of_nothing_has_its_columns(risks):
    none = type(risks)((), (), None, None, {}, (), {}, 0.95, 0)
    assert "risk" in none.to_frame("polars").columns


def test_what_a_page_draws_is_a_picture(scores, risks, tmp_path):
    for picture in (scores.plot(), scores.plot(EVIL), scores.plot("c"), risks.plot()):
        path = picture.save(tmp_path / "a.svg")
        whole = ElementTree.fromstring(Path(path).read_text("utf-8"))
        assert whole.tag == "{http://www.w3.org/2000/svg}svg"
        assert "<script" not in picture._repr_svg_()
        style = whole.find("{http://www.w3.org/2000/svg}style").text
        assert "body" not in style  # nothing of the page around it
        used = {name for one in whole.iter() for name in one.get("class", "").split()}
        assert used
    with pytest.raises(InputError, match="column='z' was not compared"):
        scores.plot("z")
    pair = scores.pairs[0]
    assert "real beside synthetic" in scores.plot(*pair.columns)._repr_svg_()
    first, second = pair.columns
    assert scores.plot(second, first).svg == scores.plot(first, second).svg
    with pytest.raises(InputError, match="not among the pairs that differ most; these are "):
        scores.plot(first, "z")
    with pytest.raises(InputError, match=r"ends in \.svg"):
        scores.plot().save(tmp_path / "a.png")
    with pytest.raises(InputError, match="no membership attack was made"):
        type(risks)((), (), None, None, {}, (), {}, 0.95, 0).plot()
