"""Aligning tables as a user does: what comes back, what is refused, and going on after a kill."""

import re
from contextlib import suppress
from pathlib import Path

import pandas as pd
import polars as pl
import pytest

import siloweave as sw
from siloweave.errors import DataError, InputError, RosterError
from siloweave.privacy.ledger import Ledger
from tests.core.kills import WHERE, KilledError, Tap

BANK = pl.DataFrame({"id": [3, 1, 2, 7], "credit": [30, 10, 20, 70]})
SHOP = pl.DataFrame({"id": [2, 9, 3, 7, 8], "spent": [2.0, 9.0, 3.0, 7.0, 8.0]})


def test_tables_come_back_with_common_rows_in_one_order():
    found = sw.align_rows({"bank": BANK, "shop": SHOP}, ["id"])
    bank, shop = found.tables["bank"], found.tables["shop"]
    assert isinstance(bank, pl.DataFrame)
    assert sorted(bank["id"]) == [2, 3, 7]
    assert bank["id"].equals(shop["id"])
    assert bank["credit"].to_list() == [10 * one for one in shop["spent"]]
    assert found.report.common == 3
    assert found.report.ids == {"bank": 4, "shop": 5}
    assert found.report.leader == "bank"
    assert set(found.ledgers.epsilons.values()) == {float("inf")}
    assert found.cost.rounds > 5
    assert all(one.bytes_from_party for one in found.cost.parties.values())
    assert str(found) == str(found.report)


def test_frames_paths_and_lists_are_taken(tmp_path):
    SHOP.write_csv(tmp_path / "shop.csv")
    found = sw.align_rows([BANK.to_pandas(), tmp_path / "shop.csv"], ["id"], names=["b", "s"])
    assert isinstance(found.tables["b"], pd.DataFrame)
    assert isinstance(found.tables["s"], sw.Table)
    assert found.tables["b"]["id"].tolist() == found.tables["s"].values("id").tolist()


def test_ids_may_have_other_names_formats_and_parts():
    north = pd.DataFrame(
        {"born": ["01.02.1980", "03.04.1990", "05.06.2000"], "no": [" 0012-a", "7-B", "9-c"]}
    )
    birth = pl.Series(["1990-04-03", "1980-02-01", "2000-06-05"]).str.to_date()
    south = pl.DataFrame({"number": ["7-b", "12-A", "5-z"], "birth": birth})
    found = sw.align_rows(
        {"north": north, "south": south},
        {"north": ["born", "no"], "south": ["birth", "number"]},
        rules={"no": ["strip", "casefold", "no-leading-zeros"], "born": ["date:%d.%m.%Y"]},
    )
    assert found.report.common == 2
    assert sorted(found.tables["north"]["no"]) == [" 0012-a", "7-B"]
    where = dict(zip([" 0012-a", "7-B"], ["12-A", "7-b"], strict=True))
    assert [where[no] for no in found.tables["north"]["no"]] == found.tables["south"][
        "number"
    ].to_list()


def test_what_is_left_out_is_reported():
    bank = pl.DataFrame({"id": [1, 1, 2, None, 3, 3, 3]})
    shop = pl.DataFrame({"id": [1, 2, 3, 4]})
    kept = {"first": {1, 2, 3}, "drop": {2}}
    for duplicates, common in kept.items():
        found = sw.align_rows([bank, shop], ["id"], missing="drop", duplicates=duplicates)
        assert set(found.tables["party-1"]["id"]) == common
        assert found.report.missing == {"party-1": 1, "party-2": 0}
        assert found.report.duplicated["party-1"] == 6 - (3 if duplicates == "first" else 1)
        assert "1 without id left out" in str(found)


@pytest.mark.parametrize(
    ("bank", "words"),
    [
        ([1, 2, 2], "party 'bank': 2 of 3 rows share an id in 'id'"),
        ([1, None, 3], "party 'bank': 1 of 3 rows have no id in 'id'"),
        ([1.5, 2.0, 3.0], "party 'bank': the id column 'id' holds numbers that are not whole"),
        ([True, False, True], "party 'bank': the id column 'id' holds booleans"),
        (["0001", "0002", "0003"], "no id in id is common.*leading zeros"),
        (["S1", "S2", "S3"], "no id in id is common.*give rules"),
        ([7, 8, 9], "no id in id is common.*They look alike"),
    ],
    ids=["twice", "missing", "not whole", "booleans", "zeros", "letters", "strangers"],
)
def test_ids_that_do_not_go_together_say_what_to_check(bank, words):
    tables = {"bank": pl.DataFrame({"id": bank}), "shop": pl.DataFrame({"id": [1, 2, 3]})}
    with pytest.raises(DataError, match=words) as error:
        sw.align_rows(tables, ["id"])
    if "row" in words:
        assert "'0'" not in str(error.value)


@pytest.mark.parametrize(
    ("arguments", "kind", "words"),
    [
        ({"on": "id"}, InputError, "must be a list of one or more id columns"),
        ({"on": []}, InputError, "must be a list of one or more id columns"),
        ({"on": ["id", "id"]}, InputError, "names 'id' twice"),
        ({"on": ["nr"]}, DataError, "party 'bank': there is no id column 'nr'; name one"),
        ({"on": {"bank": ["id"]}}, InputError, "'shop' is only in one"),
        ({"on": {"bank": ["id"], "shop": ["id", "spent"]}}, InputError, "names 1 or 2 id columns"),
        ({"rules": ["upper"]}, InputError, "rule 'upper' of 'id' is unknown; use strip"),
        ({"rules": "strip"}, InputError, "must be a list"),
        ({"rules": {"nr": ["strip"]}}, InputError, "rules are given for 'nr'"),
        ({"missing": "keep"}, InputError, "missing='keep' is unknown"),
        ({"duplicates": "all"}, InputError, "duplicates='all' is unknown"),
        ({"most": 0}, InputError, "most=0 must be a whole number, 1 or more"),
        ({"workers": 0}, InputError, "workers=0 must be a whole number, 1 or more"),
        ({"chunk": 0}, InputError, "chunk=0 must be a whole number, 1 or more"),
        ({"most": 4}, RosterError, "lets nobody bring more than most = 4 ids"),
        ({"data": {"bank": BANK}}, RosterError, "has 1 party; an alignment needs two"),
        ({"data": BANK}, RosterError, "give one table per party"),
        ({"data": [BANK, SHOP.head(0)]}, RosterError, "'party-2' has no row with an id"),
    ],
    ids=str,
)
def test_bad_input_names_what_is_wrong(arguments, kind, words):
    given = {"data": {"bank": BANK, "shop": SHOP}, "on": ["id"]} | arguments
    data, on = given.pop("data"), given.pop("on")
    with pytest.raises(kind, match=words):
        sw.align_rows(data, on, **given)


THREE = [pl.DataFrame({"id": list(range(start, start + 9))}) for start in (0, 2, 4)]


def aligned(folder):
    return sw.align_rows(THREE, ["id"], folder=folder, chunk=64, workers=1)


@pytest.mark.parametrize("where", WHERE)
def test_a_killed_alignment_goes_on_at_any_message(tmp_path, where):
    """Killed at every message in turn; each attempt repeats what was answered, byte by byte."""
    answers, at = {}, 0
    while True:
        at += 1
        with pytest.MonkeyPatch.context() as patch:
            tap = Tap(patch, at, where)
            try:
                found = aligned(tmp_path)
            except KilledError:
                found = None
        for step, answer in tap.answers.items():
            assert answers.setdefault(step, answer) == answer, "an answer was drawn again"
        if found is not None:
            break
    assert at > 20
    ids = [table["id"].to_list() for table in found.tables.values()]
    assert sorted(ids[0]) == list(range(4, 9))
    assert ids[0] == ids[1] == ids[2]
    for path in (tmp_path / "parties").glob("*/ledger.jsonl"):
        steps = [(entry.run, entry.step) for entry in Ledger.read(path).entries]
        assert len(set(steps)) == len(steps) >= 3


def test_a_finished_alignment_that_is_started_again_gives_the_same_order(tmp_path):
    first, again = aligned(tmp_path), aligned(tmp_path)
    for name, table in first.tables.items():
        assert table.equals(again.tables[name])
    assert first.ledgers.entries == again.ledgers.entries


def test_an_alignment_without_common_rows_says_so_again(tmp_path):
    for _ in range(2):
        with pytest.raises(DataError, match="no id in id is common to all 2 parties"):
            sw.align_rows([BANK, SHOP.filter(pl.col("id") > 7)], ["id"], folder=tmp_path)


@pytest.mark.parametrize("at", [2, 9, None])
def test_other_rows_are_never_joined_with_those_of_an_earlier_start(tmp_path, at):
    """As many, with other ids or in another order: nothing on the wire would tell."""
    with pytest.MonkeyPatch.context() as patch, suppress(KilledError):
        Tap(patch, at, WHERE[2])
        aligned(tmp_path)
    for other in (THREE[1].reverse(), THREE[1].with_columns(pl.all().shift(-1).fill_null(99))):
        with pytest.raises(InputError, match="'party-2': its rows changed since this run began"):
            sw.align_rows([THREE[0], other, THREE[2]], ["id"], folder=tmp_path, chunk=64, workers=1)
    aligned(tmp_path)


def test_an_alignment_goes_on_only_by_the_id_columns_that_it_began_with(tmp_path):
    shop = SHOP.with_columns(other=pl.col("id") + 1)
    tables, at = {"bank": BANK, "shop": shop}, {"folder": tmp_path, "workers": 1}
    sw.align_rows(tables, {"bank": ["id"], "shop": ["id"]}, **at)
    with pytest.raises(InputError, match=r"'shop': its rows changed .* or the schema or settings"):
        sw.align_rows(tables, {"bank": ["id"], "shop": ["other"]}, **at)
    with pytest.raises(InputError, match=r"'bank': its rows changed .* or the schema or settings"):
        sw.align_rows(tables, ["id"], duplicates="first", **at)
    assert sw.align_rows(tables, ["id"], folder=tmp_path, workers=2).report.common == 3


def test_the_page_on_alignment_works_as_written(capsys):
    page = Path(__file__).parents[2] / "docs" / "concepts" / "alignment.md"
    (example,) = re.findall(r"```python\n(.*?)```", page.read_text("utf-8"), re.DOTALL)
    names = {}
    exec(compile(example, page.name, "exec"), names)
    assert capsys.readouterr().out.startswith("2 common rows of 2 parties on id\n")
    assert sorted(names["found"].tables["bank"]["id"]) == ["A-2", "A-3"]
