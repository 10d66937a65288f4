"""The page of scores and attacks."""

import re

import numpy as np
import pytest

from siloweave.errors import InputError
from siloweave.evaluate.scoring import score
from siloweave.report import results, words
from siloweave.report.page import render, render_comparison
from siloweave.report.run_plots import distances, receiver_curves
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


def test_the_page_has_the_tables_that_are_printed(found, page):
    scores, risks = found
    text = " ".join(" ".join(Outline(page).text).split())
    tables = [results.score_table(scores["parts"]), *results.risk_tables(risks)]
    assert len(tables) == 4
    for table in tables:
        for column in table.columns:
            assert column.title in text
        for cells in table.cells:
            assert all(cell in text for cell in cells)


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
    lower = {**part, "floor": 90.0, "ceiling": 10.0, "better": "lower", "interval": (10.0, 30.0)}
    for value, at in ((20.0, 87.5), (99.0, -7.0), (-99.0, 107.0)):
        page = render_comparison(
            {**scores, "parts": [{**lower, "value": value}]}, title="t", version="1"
        )
        assert "a shuffled table does as well</span>" not in page
        assert f'<i style="left:75.0%;width:25.0%"></i><b style="left:{at}%"></b>' in page


def test_what_is_drawn_is_where_it_belongs():
    curves = receiver_curves({"one": ([0.0, 0.005, 1.0], [0.0, 0.5, 1.0])})
    assert curves.count("<polyline") == 2 + 2
    assert "5 to training, 7 to control" in distances([0.0, 1.0, 2.0], [5, 1], [7, 2])


def test_bad_input(found):
    with pytest.raises(InputError, match="nothing to show"):
        render_comparison(title="t", version="1")


def part(low, risk, name="linkability", train=0.9):
    rate = {"value": train, "low": 0.0, "high": 1.0}
    rates = {"train": rate, "control": rate, "baseline": {**rate, "value": 0.5}}
    facts = {"attack": name, "variant": "all", "note": "", "attacks": 9}
    return {**facts, **rates, "risk": risk, "low": low, "high": 1.0}


def risks(*parts, worst=None):
    return {"parts": parts, "worst": worst, "confidence": 0.95}


def test_attacks_are_ranked_by_the_lower_ends_of_their_intervals(found):
    _, whole = found
    parts = [part(0.0, 0.9, "unsure"), part(0.2, 0.3, "sure"), part(0.1, 0.8, "singling_out")]
    page = render_comparison(None, {**whole, "parts": parts}, title="t", version="1")
    table = page[page.index('<h2 id="risks"') :]
    places = [table.index(name) for name in ("sure", "singling out", "unsure")]
    assert places == sorted(places)
    assert "The strongest by its lower end is sure (all)" in page


def test_a_page_of_attacks_says_whether_anything_was_found():
    caught = {"caught": True, "by": "copies"}
    none = [part(0.0, 0.5) for _ in range(20)]
    assert words.found_by_attacks(risks(*none))[0] == "good"
    guessed = [*none, part(0.1, 0.5, train=0.4)]
    assert words.found_by_attacks(risks(*guessed))[0] == "good"
    tone, said = words.found_by_attacks(risks(*none, part(0.1, 0.5)))
    assert (tone, said.split(".")[0]) == (
        "caution",
        "The attacks found little more than chance would",
    )
    tone, said = words.found_by_attacks(risks(*none, *[part(0.1, 0.5)] * 3))
    assert (tone, said.split(".")[0]) == ("bad", "Something was found")
    assert "about 0.6 of 23 would" in said
    tone, said = words.found_by_attacks(risks(*none, worst=caught))
    assert (tone, said.split(".")[0]) == (
        "bad",
        "At least one training row is given away, by copies",
    )
    other = {**risks(*none, worst=caught), "caution": "Control is of another population."}
    tone, said = words.found_by_attacks(other)
    assert tone == "caution"
    assert said.startswith("Control is of another population. At least one training row")
    assert words.found_by_attacks(risks())[0] == "caution"
    assert words.found_by_attacks(risks(worst=caught))[0] == "bad"


def test_a_page_of_scores_begins_with_a_sentence(found):
    scores, _ = found
    one = {"name": "a", "value": 0.5, "ceiling": 1.0, "floor": 0.0, "better": "higher"}
    better_shuffled = {**one, "name": "c", "better": "lower"}
    parts = [one, {**one, "name": "b", "value": 0.9}, {**one, "ceiling": 0.0}, better_shuffled]
    said = words.scored({"parts": parts, "settings": {}})
    assert said.startswith("With shuffled columns at 0%")
    assert "70.0% in the median of 2 measures. The lowest is a, at 50.0%." in said
    assert "No measure here" in words.scored({"parts": [{**one, "ceiling": None}], "settings": {}})
    other = {"caution": "The holdout looks like another population."}
    cautious = words.scored({"parts": parts, "settings": other})
    assert cautious == f"The holdout looks like another population. {said}"
    page = render_comparison(scores, title="t", version="1")
    sentence = page.index('<p class="sentence">With shuffled columns at 0%')
    assert page.index("<h1>t</h1>") < sentence < page.index('<h2 id="scores">')


def test_only_the_owners_report_shows_attacks(found, record):
    _, whole = found
    page = render(record, audience="owner", risks=whole)
    outline = Outline(page)
    assert [i for i in outline.ids if i in ("error", "risks", "curves", "bytes")] == [
        *("error", "risks", "curves", "bytes"),
    ]
    assert words.found_by_attacks(whole)[1] in page
    assert 'id="risks"' not in render(record, audience="owner")
    with pytest.raises(InputError, match="for the owner's copy"):
        render(record, risks=whole)


def test_skewed_columns_have_a_logarithmic_axis():
    rng = np.random.default_rng(0)
    pay = np.where(rng.random(400) < 0.5, 0.0, np.exp(rng.normal(6, 2, 400)))
    tables = [Table.from_columns({"pay": (pay, None), "age": (pay % 40, None)}) for _ in range(2)]
    page = render_comparison(score(*tables).to_dict(), title="t", version="1")
    assert page.count("logarithmic axis") == 1


def scales(seed, rows=200):
    """Three columns of numbers, two of which depend on each other in one table."""
    rng = np.random.default_rng(seed)
    age = rng.normal(40, 10, rows)
    height = rng.normal(170, 8, rows)
    weight = height - 100 + rng.normal(0, 4, rows)
    if seed > 1:
        rng.shuffle(weight)
    town = rng.choice(np.array(["Bonn", "Jena"], dtype=object), rows)
    return Table.from_columns(
        {"age": (age, None), "height": (height, None), "weight": (weight, None),
         "town": (town, None)}
    )  # fmt: skip


def enlarged(page):
    """The names of the pictures that a reader can enlarge."""
    return re.findall(r'<input type="checkbox" aria-label="Enlarge ([^"]+)">', page)


def test_a_dense_picture_can_be_enlarged_and_a_small_one_not(found, page):
    assert enlarged(page) == []
    scores = score(scales(1), scales(2)).to_dict()
    pairs = [pair["columns"] for pair in scores["pairs"]]
    dense = [" and ".join(columns) for columns in pairs if "town" not in columns]
    assert "height and weight" in dense
    page = render_comparison(scores, None, title="Scales", version="9.9")
    assert enlarged(page) == dense
    outline = Outline(page)
    assert not {"script", "form"} & {tag for tag, _ in outline.tags}


def test_a_heat_map_of_many_columns_can_be_enlarged(found):
    scores, _ = found
    names = [f"c{n}" for n in range(30)]
    strengths = [[0.1] * 30 for _ in names]
    wide = {"names": names, "real": strengths, "synthetic": strengths}
    page = render_comparison({**scores, "associations": wide}, None, title="W", version="9.9")
    assert enlarged(page) == ["the heat map of associations"]
