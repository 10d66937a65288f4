"""The page of scores and attacks."""

import re

import numpy as np
import pytest

from siloweave.errors import InputError
from siloweave.report.page import render_comparison
from siloweave.report.plots import distances, receiver_curves, strip
from siloweave.tables import Table
from tests.report.outline import Outline


def people(seed, rows=90):
    rng = np.random.default_rng(seed)
    age = rng.normal(40, 10, rows)
    job = np.where(age + rng.normal(0, 8, rows) > 40, "<clerk>", "smith").astype(object)
    town = rng.choice(np.array(["Ulm & Bonn", "Jena"], dtype=object), rows)
    return Table.from_columns(
        {"age": (age, rng.random(rows) < 0.1), "job": (job, None), "town": (town, None)}
    )


@pytest.fixture(scope="module")
def found():
    from siloweave.attacks.attack import attack
    from siloweave.evaluate.scoring import score

    train, control, synthetic = (people(seed) for seed in (1, 2, 3))
    scores = score(train, synthetic, holdout=control)
    risks = attack(train, synthetic, control=control, targets=60)
    return scores.to_dict(), risks.to_dict()


@pytest.fixture(scope="module")
def page(found):
    return render_comparison(*found, title="People <&>", version="9.9")


def test_the_owners_page_shows_every_number(found, page):
    scores, risks = found
    outline = Outline(page)
    for section in ("scores", "columns", "pairs", "risks", "curves", "worst", "closest"):
        assert section in outline.ids
    text = re.sub(r"\s+", " ", "".join(outline.text))
    for part in scores["parts"]:
        assert part["name"] in text
    for part in risks["parts"]:
        assert f"{part['risk']:.3f}" in text
    assert "Keep it where the rows are" in text
    assert "<clerk>" in text
    assert "People <&>" in text
    assert len(outline.ids) == len(set(outline.ids))


def test_the_page_loads_nothing(page):
    outline = Outline(page)
    assert all(link.startswith("#") and link[1:] in outline.ids for link in outline.links)
    tags = {tag for tag, _ in outline.tags}
    assert not tags & {"script", "link", "img", "iframe", "object", "embed", "base", "form"}
    assert not re.search(r"https?:|@import|url\(|javascript:|\son\w+=", page)


def test_there_is_only_the_owners_copy(page):
    assert "Keep it where the rows are" in page
    assert 'class="owner"' in page


def test_a_strip_only_where_a_shuffled_table_does_worse(found):
    scores, _ = found
    part = {**scores["parts"][0], "note": "", "interval": None, "better": "higher"}
    for floor, ceiling, drawn in ((10.0, 90.0, 1), (100.0, 90.0, 0), (90.0, 90.1, 0)):
        one = {**part, "value": 80.0, "floor": floor, "ceiling": ceiling}
        page = render_comparison({**scores, "parts": [one]}, title="t", version="1")
        assert page.count("a shuffled table does as well</span>") == 1 - drawn
    lower = {**part, "value": 20.0, "floor": 90.0, "ceiling": 10.0, "better": "lower"}
    page = render_comparison({**scores, "parts": [lower]}, title="t", version="1")
    assert "a shuffled table does as well</span>" not in page


def test_what_is_drawn_is_where_it_belongs():
    middle = strip(5.0, 0.0, 10.0, (4.0, 6.0), name="x", ends=("a", "b"))
    assert 'cx="110"' in middle
    outside = [strip(v, 0.0, 10.0, None, name="x", ends=("a", "b")) for v in (-99.0, 99.0)]
    places = [float(re.search(r'cx="([\d.]+)"', one)[1]) for one in outside]
    assert 4.5 < places[0] < 18
    assert 202 < places[1] < 215.5
    curves = receiver_curves({"one": ([0.0, 0.005, 1.0], [0.0, 0.5, 1.0])})
    assert curves.count("<polyline") == 2 + 2
    assert "5 to training, 7 to control" in distances([0.0, 1.0, 2.0], [5, 1], [7, 2])


def test_bad_input(found):
    with pytest.raises(InputError, match="no scores and no risks"):
        render_comparison(title="t", version="1")
