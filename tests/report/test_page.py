import math
import re
from html import unescape
from itertools import pairwise
from pathlib import Path

import msgspec
import pytest

from siloweave.errors import InputError
from siloweave.report import words
from siloweave.report.facts import facts_of
from siloweave.report.page import render
from siloweave.report.record import (
    AlignmentCost,
    Association,
    BudgetTerms,
    Marginal,
    OwnerView,
    Phase,
    PublicView,
    SchemaFact,
)
from tests.report.conftest import METHOD
from tests.report.outline import Outline

SECTIONS = [
    "verdict",
    "signoff",
    "visibility",
    "ledger",
    "columns",
    "pairs",
    "error",
    "bytes",
    "time",
    "assumed",
    "settings",
    "verify",
    "terms",
    "releases",
]
GLOSSARY = Path(__file__).resolve().parents[2] / "docs" / "glossary.md"


@pytest.fixture(scope="module")
def pages(record):
    return {audience: render(record, audience=audience) for audience in ("public", "owner")}


@pytest.mark.parametrize("audience", ["public", "owner"])
def test_page_is_well_formed_and_complete(pages, audience):
    outline = Outline(pages[audience])
    # What is measured on real rows has no section, and no empty one, in the public copy.
    expected = [i for i in SECTIONS if i != "error" or audience == "owner"]
    assert [i for i in outline.ids if i in SECTIONS] == expected
    assert len(outline.ids) == len(set(outline.ids))


@pytest.mark.parametrize("audience", ["public", "owner"])
def test_the_keyboard_reaches_what_scrolls(pages, audience):
    outline = Outline(pages[audience])
    boxes = [found for _, found in outline.tags if "scroll" in found.get("class", "").split()]
    assert len(boxes) > 5
    assert all(box["tabindex"] == "0" and box["role"] == "region" for box in boxes)
    labels = [box["aria-label"] for box in boxes]
    assert len(set(labels)) == len(labels)
    # Wide plots scroll on a phone.
    plots = [found for _, found in outline.tags if found.get("class") == "plot"]
    assert any("tabindex" in plot for plot in plots)


@pytest.mark.parametrize("audience", ["public", "owner"])
def test_page_loads_nothing(pages, audience):
    outline = Outline(pages[audience])
    assert all(link.startswith("#") and link[1:] in outline.ids for link in outline.links)
    tags = {tag for tag, _ in outline.tags}
    assert not tags & {"script", "link", "img", "iframe", "object", "embed", "base", "form"}
    assert not re.search(r"https?:|@import|url\(|javascript:|\son\w+=", pages[audience])
    assert "default-src 'none'" in pages[audience]


@pytest.mark.parametrize("audience", ["public", "owner"])
def test_page_is_small(pages, audience):
    assert len(pages[audience].encode()) < 400_000


def test_the_first_printed_page_has_the_verdict_and_who_signs(pages):
    page = pages["owner"]
    marks = ('id="verdict"', "Why green", 'id="signoff"', 'id="visibility"')
    places = [page.index(mark) for mark in marks]
    assert places == sorted(places)
    ledger = page.index("Ledger of Northgate</caption>")
    assert page.index('id="terms"') < page.index('id="releases"') < ledger


def test_warnings_do_not_push_the_sign_off_to_another_page(make):
    page = render(make())
    assert page.index('id="signoff"') < page.index("Two parties may not collude")
    assert "Before you sign, read" in page
    assert "Before you sign, read" not in render(make(warnings=()))


def test_print_keeps_headings_with_what_follows_and_signatures_whole(pages):
    style = re.search(r"@media print\{(.*)\}\s*</style>", pages["owner"], re.S).group(1)
    rules = dict(re.findall(r"([^{}]+)\{([^{}]*)\}", style))
    after = next(names for names, body in rules.items() if body == "break-after:avoid")
    assert {"h2", "h3", ".lead", "p.legend", "summary"} <= set(after.strip().split(","))
    # The legend of a figure ends it: without a break there, the figure goes with the table below.
    assert ".legend" not in after.strip().split(",")
    inside = [names for names, body in rules.items() if body == "break-inside:avoid"]
    whole = {name for names in inside for name in names.strip().split(",")}
    assert {"figure", "tr", ".signoff", ".blanks", ".whole"} <= whole
    assert "break-before:page" in rules["\n.annex"]


def test_the_public_copy_says_where_distances_to_real_rows_are(pages):
    assert "Measured against real rows" not in pages["public"]
    assert "owner's copy only" in read(pages["public"])


def test_seconds_are_named_for_what_they_count(pages):
    text = read(pages["public"])
    assert "time of the fit" in text
    assert "The time that the terminal prints also counts reading rows, sampling" in text


def test_pictures_and_tables_are_named(pages):
    outline = Outline(pages["owner"])
    pictures = [found for tag, found in outline.tags if tag == "svg" and "role" in found]
    assert len(pictures) >= 15 + 3
    for found in pictures:
        title, description = found["aria-labelledby"].split()
        assert {title, description} <= set(outline.ids)
    assert all("scope" in found for tag, found in outline.tags if tag == "th")
    assert ("html", {"lang": "en"}) in outline.tags


def test_bars_are_as_long_as_what_they_stand_for(make):
    phases = (Phase(name="fit", seconds=3.0), Phase(name="draw", seconds=1.0))
    owner = OwnerView(tvd={"1-way": 0.25, "2-way": 1.0}, workload_errors={"all": 0.5})
    record = msgspec.structs.replace(make(["a"]), phases=phases, owner=owner)
    party = msgspec.structs.replace(record.parties[0], bytes_sent=1000, bytes_received=250)
    page = render(msgspec.structs.replace(record, parties=(party,)), audience="owner")
    bars = re.findall(r'<i class="(\w+)" style="margin-left:([\d.]+)%;width:([\d.]+)%"', page)
    assert [(kind, float(start), float(width)) for kind, start, width in bars] == [
        *(("error", 0, 25), ("error", 0, 25), ("error", 0, 100)),
        *(("sent", 0, 100), ("received", 0, 25), ("time", 0, 75), ("time", 75, 25)),
    ]
    still = (Phase(name="none", seconds=0.0),)
    Outline(render(msgspec.structs.replace(record, phases=still)))


def test_the_owners_copy_lists_all_marginals_of_a_line_that_a_ledger_cuts(record):
    names = tuple(f"marginal{number}×other" for number in range(12))
    row = msgspec.structs.replace(record.ledgers[0], what="12 marginals: marginal0×other, …")
    owner = OwnerView(measured=(names,))
    planted = msgspec.structs.replace(record, owner=owner, ledgers=(row, *record.ledgers[1:]))
    page = render(planted, audience="owner")
    assert "All 12 marginals" in page
    assert all(f"<li>{name}</li>" in page for name in names)
    assert "All of them are listed below" in page
    assert "marginal11" not in render(planted)


def canary(record):
    """The record with numbers and names in its owner part that nothing else can contain."""
    marginals = tuple(
        Marginal(
            column=m.column,
            kind=m.kind,
            labels=m.labels,
            proportions=(0.7135791, *(0.2864209 / (len(m.labels) - 1),) * (len(m.labels) - 1)),
            ordered=m.ordered,
        )
        for m in record.synthetic.marginals
    )
    names = record.synthetic.association.names
    values = tuple(tuple(0.6135 for _ in names) for _ in names)
    owner = OwnerView(
        marginals=marginals,
        association=Association(names=names, values=values, measure="canary measure"),
        workload_errors={"canary closure": 1.5791},
        tvd={"canary way": 0.83579},
        scores={"canary score": 98.7531},
    )
    return msgspec.structs.replace(record, owner=owner)


def test_public_page_has_nothing_of_the_owner(record, make):
    planted = canary(record)
    page, owner = render(planted), render(planted, audience="owner")
    for mark in ("71.4%", "canary", "1.5791", "0.8358", "98.75"):
        assert mark not in page
        assert mark in owner
    assert page == render(make(owner=False))
    assert page == render(record)


def test_public_is_the_default_and_says_what_it_lacks(pages, record):
    assert render(record) == pages["public"]
    assert "Owner's copy. Keep it where the rows are." not in pages["public"]
    assert "owner's copy only" in read(pages["public"])


def test_owner_copy_says_that_it_is_local(pages):
    assert "Owner's copy. Keep it where the rows are." in pages["owner"]
    assert "TVD 0." in pages["owner"]


def test_owner_copy_needs_an_owner_part(make):
    with pytest.raises(InputError, match="no owner part"):
        render(make(owner=False), audience="owner")
    with pytest.raises(InputError, match="audience is 'all'"):
        render(make(), audience="all")


def test_verdict_of_a_private_run(pages):
    page = pages["public"]
    assert "Differentially private" in page
    assert "ε = 0.995" in page
    assert "NOT PRIVATE" not in page


def test_a_simulation_says_so_before_the_verdict(make):
    page = render(make())
    said = page.index("Simulation: one machine read every row.")
    assert said < page.index('class="card verdict')
    assert "this machine" in page
    for other in (
        make(simulated=False),
        make(method=msgspec.structs.replace(METHOD, split="central")),
    ):
        assert "one machine" not in render(other)
        assert "this machine" not in render(other)


def taken(record, *columns):
    """The record with facts of these columns taken from rows."""
    facts = tuple(
        msgspec.structs.replace(fact, how="free" if fact.column in columns else fact.how)
        for fact in record.schema_facts
    )
    return msgspec.structs.replace(record, schema_facts=facts)


def test_the_badge_is_amber_where_a_column_was_not_declared(record):
    page = render(taken(record, "age", "sex"))
    assert 'class="card verdict caution"' in page
    assert "Differentially private, but for its schema" in page
    assert "2 columns with facts from rows, not declared:</b> sex, age</p>" in page
    assert "As far as ε covers it, the best any attack" in page
    assert 'class="card verdict good"' in render(record)
    assert "not declared:" not in render(record)


def test_red_stays_red_where_a_column_was_not_declared(make):
    for worse in (
        make(private=False),
        make(guarantee="none"),
        make(budget=BudgetTerms(epsilon=0.5, delta=1e-5, unit="row", relation="add_remove")),
    ):
        page = render(taken(worse, "age"))
        assert 'class="card verdict bad"' in page
        assert "not declared:" not in page


def test_run_without_privacy_is_watermarked(make):
    page = render(make(private=False, epsilon_spent=math.inf))
    assert page.count("<span>NOT PRIVATE</span>") >= 4
    assert "The noise was seeded for a test." in page
    assert "no valid ε" in page
    assert "Differentially private" not in page
    assert "no sound ε covers" in page
    assert "this run does not give" in page


@pytest.mark.parametrize(
    ("guarantee", "headline"),
    [
        ("partial", "Partly private"),
        ("refuted", "Claim refuted"),
        ("none", "No privacy guarantee"),
    ],
)
def test_weaker_guarantees_are_said_and_bound_no_attack(make, guarantee, headline):
    page = render(make(guarantee=guarantee))
    assert headline in page
    assert "no sound ε covers" in page
    assert "Differentially private" not in page


def test_overspending_is_the_verdict(make):
    page = render(
        make(
            budget=BudgetTerms(
                epsilon=0.5, delta=1e-5, unit="row", relation="add or remove one row"
            )
        )
    )
    assert "Over budget" in page
    assert "Differentially private" not in page


def test_a_ledger_over_budget_still_bounds_attacks_at_what_it_costs(make):
    terms = BudgetTerms(epsilon=0.5, delta=1e-5, unit="row", relation="add or remove one row")
    assert "at most <b>2.8%</b> of the time" in render(make(budget=terms))


def luminance(colour):
    parts = [int(colour[i : i + 2], 16) / 255 for i in (1, 3, 5)]
    linear = [c / 12.92 if c <= 0.04045 else ((c + 0.055) / 1.055) ** 2.4 for c in parts]
    return 0.2126 * linear[0] + 0.7152 * linear[1] + 0.0722 * linear[2]


@pytest.mark.parametrize("theme", [0, 1])
def test_text_has_contrast_in_light_and_dark(pages, theme):
    """At least 4.5 to 1, as WCAG 2 asks of text."""
    block = re.findall(r":root\{([^}]*--paper:[^}]*--m0[^}]*)\}", pages["public"])[theme]
    found = {
        name: "#" + "".join(2 * c for c in value) if len(value) == 3 else "#" + value
        for name, value in re.findall(r"--([\w-]+):#([0-9a-f]+)", block)
    }
    pairs = [
        (ink, back) for ink in ("ink", "soft", "quiet") for back in ("paper", "panel", "faint")
    ]
    pairs += [("accent", "paper"), ("ink", "caution-bg"), ("panel", "bad")]
    pairs += [(tone, f"{tone}-bg") for tone in ("good", "caution", "bad")]
    pairs += [("good", "paper"), ("bad", "paper")]
    for ink, back in pairs:
        low, high = sorted(luminance(found[name]) for name in (ink, back))
        assert (high + 0.05) / (low + 0.05) >= 4.5, (ink, back)


def test_a_constraint_from_rows_is_no_further_column(record):
    rule = SchemaFact(column="age, sex", kind="constraint", facts="age and sex", how="free")
    free = taken(record, "age", "sex")
    page = render(msgspec.structs.replace(free, schema_facts=(*free.schema_facts, rule)))
    counted = "2 columns and 1 constraint"
    assert f"{counted} with facts from rows, not declared:</b> sex, age, age + sex</p>" in page
    assert f"Facts of {counted} were taken from the rows" in page


def test_free_facts_are_warned_about(make, record):
    facts = tuple(msgspec.structs.replace(f, how="free") for f in record.schema_facts)
    page = render(make(schema_facts=facts))
    assert "taken from the rows and paid by nobody" in page


def test_everything_is_escaped(make, record):
    evil = "<script>alert('x')</script>&\"<b>"
    column = Marginal(column=evil, kind=evil, labels=(evil, "b"), proportions=(0.5, 0.5))
    page = render(
        make(
            [evil, "other"],
            title=evil,
            settings={evil: evil},
            warnings=(evil,),
            synthetic=PublicView(
                num_rows=1,
                marginals=(column,),
                association=Association(names=(evil, "b"), values=((1.0, 0.5), (0.5, 1.0))),
                cliques=((evil, "b"),),
            ),
        )
    )
    assert "<script" not in page
    assert "<b>" + evil not in page
    Outline(page)


def test_empty_record_still_renders(make):
    page = render(
        msgspec.structs.replace(
            make(owner=False),
            epsilon_spent=0.0,
            ledgers=(),
            parties=(),
            visibility=(),
            phases=(),
            schema_facts=(),
            assumed_public=(),
            warnings=(),
            settings={},
            synthetic=PublicView(num_rows=0, marginals=()),
        )
    )
    Outline(page)
    assert "No release is in a ledger." in page


def test_thousand_parties_fold(make):
    record = make([f"party {i:04d}" for i in range(1000)])
    page = render(record, audience="owner")
    Outline(page)
    assert len(page.encode()) < 1_000_000
    assert "The 20 most expensive of 1,000 parties" in page
    assert page.count("<details><summary><b>party") == 20
    assert page.count('<details class="outer">') == 1


def test_wide_table_stays_small(make):
    names = tuple(f"column {i}" for i in range(300))
    labels = tuple(f"value {i}" for i in range(1000))
    columns = tuple(
        Marginal(column=n, kind="categorical", labels=labels, proportions=(0.001,) * 1000)
        for n in names
    )
    values = tuple(tuple(((i * j) % 97) / 97 for j in range(300)) for i in range(300))
    view = PublicView(
        num_rows=9,
        marginals=columns,
        association=Association(names=names, values=values),
        cliques=tuple(pairwise(names)),
    )
    page = render(make(synthetic=view, owner=False))
    Outline(page)
    assert len(page.encode()) < 1_500_000


# What an officer reads first


def read(page):
    """The text of a page."""
    return re.sub(
        r"\s+", " ", unescape(re.sub(r"<style>.*?</style>|<[^>]+>", " ", page, flags=re.S))
    )


def test_the_first_paragraph_is_in_plain_words(pages, make):
    text = read(pages["public"])
    assert text.index("What is it suited to?") < text.index("Green: Differentially private")
    assert "finds at most 2.8% of those that were; guessing finds 1%" in text
    assert "at most 2.71 times as likely with a row as" in text
    assert "a probability of 1 in 100,000 (δ)" in text
    assert "One row, and a row is not a person. For someone with two rows, wherever" in text
    terms = BudgetTerms(epsilon=1.0, delta=1e-5, unit="patient", relation="replace_one")
    text = read(render(make(budget=terms)))
    assert "a patient as with another one instead" in text
    assert "the study says that a row stands for one patient; nothing checked it" in text


@pytest.mark.parametrize("change", [{"private": False}, {"guarantee": "none"}])
def test_a_run_that_nothing_bounds_promises_nothing_in_words(make, change):
    text = read(render(make(**change)))
    assert "give them only to those who may see the real rows" in text
    assert "Nothing bounds it" in text
    assert "times as likely" not in text
    assert "Why red" in text


def test_the_badge_gives_its_reasons(make, record):
    assert "Why green" in render(record)
    terms = BudgetTerms(epsilon=20.0, delta=1e-3, unit="row", relation="add_remove")
    page = render(make(budget=terms, epsilon_spent=12.0))
    assert 'class="card verdict caution"' in page
    assert "Amber:</b> Differentially private, with reservations" in page
    assert "ε = 12 is so large that the bound promises little" in page
    assert "a probability of 1 in 1,000 for every row" in page
    assert page.count('<li class="caution">') == 2
    less = BudgetTerms(epsilon=20.0, delta=1e-4, unit="row", relation="add_remove")
    assert 'class="card verdict good"' in render(make(budget=less, epsilon_spent=10.0))


@pytest.mark.parametrize(
    ("rows", "tone"),
    [(9_990, "good"), (10_010, "caution"), (0, "good"), (msgspec.UNSET, "good")],
)
def test_a_delta_that_is_large_for_the_rows_makes_the_badge_amber(make, rows, tone):
    page = render(make(noisy_rows=rows))
    assert f'class="card verdict {tone}"' in page
    assert ("δ = 1e-5 is large for about 10,010 rows" in page) == (rows == 10_010)
    assert ("their number, 9.99e-6." in page) == (rows == 10_010)


def test_what_no_program_knows_is_not_claimed(make):
    declared = SchemaFact(column="age", kind="integer", facts="17 to 90", how="declared")
    text = read(render(make(schema_facts=(declared,), noisy_rows=9_824, rho=0.03069)))
    assert "its authors say that nothing in it came from rows. Nothing here checks that" in text
    assert "Durations and sizes of messages are not" in text
    assert "one may equal a real row by chance" in text
    assert "The model joins 14 of 105 pairs of columns" in text
    assert "fitted to about 9,824 rows, counted with noise, of 4 parties" in text
    assert "zCDP ρ = 0.0307" in text
    twice = words.epsilon(2 * make().epsilon_spent)
    assert f"A person with several rows is protected less: with two rows, ε is {twice}." in text
    exact = read(render(make(guarantee="none")))
    assert "They may be copies of real rows" in exact
    assert "by chance" not in exact.split("Terms on this page")[0]


@pytest.mark.parametrize("audience", ["public", "owner"])
def test_every_printed_page_says_what_it_is_of(make, audience):
    record = make(title='flu "2026"</style><b>')
    page = render(record, audience=audience)
    Outline(page)
    [edges] = re.findall(r"<style>\s*@page\{(.*?)</style>", page, flags=re.S)
    whose = "Owner's copy: keep it where the rows are" if audience == "owner" else "Public report"
    assert f'@top-left{{content:"{whose}"}}' in edges
    assert r'@top-right{content:"flu \22 2026\22 \3c \2f style\3e \3c b\3e "}' in edges
    assert f'@bottom-left{{content:"record sha256 {record.digest()}"}}' in edges
    assert 'content:"page " counter(page) " of " counter(pages)' in edges


def test_a_line_of_the_annex_that_is_cut_says_so(make, record):
    first, *rest = record.ledgers
    cut = msgspec.structs.replace(first, what="120 marginals: age, sex, …")
    assert "the ledger file itself names no more" in read(render(make(ledgers=(cut, *rest))))
    assert "the ledger file itself names no more" not in read(render(record))


def test_the_sign_off_has_a_line_for_each_decision(record):
    text = read(render(record))
    for line in ("recipient", "purpose", "conditions", "review date", "rows per person"):
        assert f" {line} " in text
    assert "other releases of these rows" in text
    assert "Whoever signs needs no command" in text


def test_what_was_assumed_public_is_shown_itself(make):
    names = ", ".join(f"category-{number}" for number in range(40))
    facts = (
        SchemaFact(
            column="age",
            kind="integer",
            facts="low",
            how="paid",
            values=("17 to 90", "never missing"),
        ),
        SchemaFact(
            column="job",
            kind="categorical",
            facts="kind and domain",
            how="declared",
            values=(f"40 categories: {names}",),
        ),
    )
    text = read(render(make(schema_facts=facts)))
    table, annex = text.split("Annex: assumed public, in full The lines")
    assert "age integer 17 to 90; never missing paid for low" in table
    assert "category-5, …" in table
    assert "category-39" not in table
    assert names in annex
    # A record of an earlier version has names of facts alone, and no annex of them.
    assert "in full" not in read(render(make()))


def test_a_run_whose_unit_is_another_says_so(make):
    terms = BudgetTerms(
        epsilon=1.0, delta=1e-5, unit="card", relation="add_remove", rows_per_unit=2
    )
    text = read(render(make(budget=terms)))
    assert "In this run a unit is a card with at most 2 rows." in text
    assert "A person with several rows" not in text


def test_an_alignment_makes_the_badge_amber(make):
    found = AlignmentCost(
        name="north", releases=1, bytes_sent=1, bytes_received=1, messages=1, ledger_head=""
    )
    page = render(make(alignment=(found,)))
    assert 'class="card verdict caution"' in page
    assert "found by comparing ids, and ε does not cover that" in page


def test_the_sign_off_has_who_is_stated_and_no_name_of_the_machine(make, monkeypatch):
    for name in ("USER", "LOGNAME", "USERNAME", "HOSTNAME"):
        monkeypatch.setenv(name, "canary-of-the-machine")
    page = render(make(run_by="Ada <data office>", versions={"jax": "0.1.2"}))
    text = read(page)
    assert "run by Ada <data office>" in text
    assert "jax 0.1.2" in text
    assert "canary" not in page
    assert "not stated (run_by = " in read(render(make()))
    assert "decision" in text


def test_terms_of_a_page_are_explained_and_those_of_the_glossary(pages):
    glossary = GLOSSARY.read_text("utf-8")
    known = set(re.findall(r"^## (.+)$", glossary, re.MULTILINE)) | {"synthetic"}
    known |= set(re.findall(r"^Written (\w)\.", glossary, re.MULTILINE))
    # Words of a measure and of settings, which no other page uses.
    known |= {"closure", "Cramér's V", "roster", "sweeps"}
    assert words.TERMS.keys() <= known
    assert "neighbours" not in dict(words.terms_in("<td>membership: neighbours</td>"))
    shown = words.terms_in(pages["owner"])
    assert "neighbours" in dict(shown)
    assert {"ledger", "ε", "TVD", "clique"} <= {term for term, _ in shown}
    assert all(meaning in read(pages["owner"]) for _, meaning in shown)
    assert "curator" not in {term for term, _ in shown}


def test_invented_links_are_named_to_the_owner_alone(record, make):
    names = record.synthetic.association.names
    apart = [[float(i == j) for j in range(len(names))] for i in range(len(names))]
    real = Association(names=names, values=tuple(map(tuple, apart)))
    apart[3][4] = apart[4][3] = 0.54
    apart[0][1] = apart[1][0] = 0.14
    drawn = Association(names=names, values=tuple(map(tuple, apart)))
    view = msgspec.structs.replace(record.synthetic, association=drawn)
    owner = msgspec.structs.replace(record.owner, association=real)
    whole = msgspec.structs.replace(record, synthetic=view, owner=owner)
    page = read(render(whole, audience="owner"))
    sentence = "go together in the synthetic rows (0.54), and not in the real ones (0.00)"
    assert f"{names[3]} and {names[4]} {sentence}" in page
    assert page.count("do not take this link for a finding") == 1
    assert sentence not in read(render(whole))
    assert sentence not in read(render(make(synthetic=view, owner=None), audience="public"))


def test_links_beyond_the_first_six_are_counted(record):
    names = record.synthetic.association.names
    apart = [[float(i == j) for j in range(len(names))] for i in range(len(names))]
    drawn = Association(names=names, values=tuple(map(tuple, apart)))
    view = msgspec.structs.replace(record.synthetic, association=drawn)
    for place, sentence in (
        (8, "1 more pair has lost its link."),
        (9, "2 more pairs have lost their link."),
    ):
        apart[0][1:place] = [1.0] * (place - 1)
        real = Association(names=names, values=tuple(map(tuple, apart)))
        owner = msgspec.structs.replace(record.owner, association=real)
        whole = msgspec.structs.replace(record, synthetic=view, owner=owner)
        assert len(facts_of(whole).lost_links) == place - 1
        assert facts_of(whole.public()).lost_links == ()
        page = read(render(whole, audience="owner"))
        assert page.count("go together in the real rows") == 6
        assert sentence in page


def test_lost_links_are_the_first_warning_of_the_owner_alone(record, make):
    names = record.synthetic.association.names
    apart = tuple(tuple(float(i == j) for j in range(len(names))) for i in range(len(names)))
    view = msgspec.structs.replace(
        record.synthetic, association=Association(names=names, values=apart)
    )
    joined = [list(row) for row in apart]
    joined[3][4] = joined[4][3] = 1.0
    joined[0][1] = joined[1][0] = 0.29
    owner = msgspec.structs.replace(
        record.owner, association=Association(names=names, values=tuple(map(tuple, joined)))
    )
    page = read(render(make(synthetic=view, owner=None), audience="public"))
    assert "go together in the real rows" not in page
    whole = msgspec.structs.replace(record, synthetic=view, owner=owner)
    page = read(render(whole, audience="owner"))
    said = f"{names[3]} and {names[4]} go together in the real rows (1.00), and not in the"
    assert page.index(said) < page.index("Two parties may not collude")
    assert page.count("go together in the real rows") == 1
    assert "go together in the real rows" not in read(render(whole))
    apart = msgspec.structs.replace(whole, synthetic=msgspec.structs.replace(view, kept=True))
    assert "go together in the real rows" not in read(render(apart, audience="owner"))
