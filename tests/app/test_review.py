"""`siloweave review`: a schema as a page, over real HTTP."""

import http.client
import json
import re
import socket
import subprocess
import sys
import time
import webbrowser
from contextlib import suppress
from pathlib import Path
from urllib.parse import urlsplit

import msgspec
import pytest

from siloweave.app import pages
from siloweave.app.cli import main
from siloweave.app.pages import LocalPage
from siloweave.app.review import page_of, review_of, schema_file
from siloweave.app.review_form import (
    ColumnForm,
    ConstraintForm,
    SchemaForm,
    edited,
    form_of,
    line_of,
    schema_of,
    value_of,
)
from siloweave.app.review_pictures import picture_of
from siloweave.app.review_rows import beyond_bounds
from siloweave.errors import DataError, InputError, SchemaError
from siloweave.tables.column import KINDS, Column
from siloweave.tables.constraints import CategoryRanges, Inequality, MissingTogether, Unique
from siloweave.tables.read import read
from siloweave.tables.schema import Schema

PROPOSED = Schema(
    (
        Column(
            "age",
            "integer",
            low=17,
            high=90,
            fallback="low",
            from_data=("kind", "low", "high", "missing"),
            why="73 whole numbers",
        ),
        Column("sex", "categorical", categories=("f", "m"), other="m", from_data=("kind",)),
        Column("ward", "categorical", categories=(1, 2, 3), missing=True),
        Column("came", "datetime", low="2020-01-01", high="2021-12-31", missing=True),
        Column("went", "datetime", low="2020-01-01", high="2021-12-31", missing=True),
        Column("id", "id"),
    ),
    (
        Inequality("came", "went", from_data=True, why="in 40 of 40 rows"),
        MissingTogether(columns=("came", "went"), from_data=True),
    ),
)


@pytest.fixture
def file(tmp_path):
    path = tmp_path / "schema.json"
    path.write_text(PROPOSED.to_json() + "\n")
    return path


@pytest.fixture
def review(file):
    return review_of(file)


@pytest.fixture
def page(review):
    with page_of(review) as page:
        yield page


def request(page, method="GET", name="", body=b"", token=None, **headers):
    """One request, with headers as they are given: status, headers and body."""
    parts = urlsplit(page.address)
    own = parts.path.strip("/")
    path = f"/{own if token is None else token}/{name}"
    link = http.client.HTTPConnection(parts.hostname, parts.port, timeout=10)
    link.putrequest(method, path, skip_host=True, skip_accept_encoding=True)
    sent = {"Host": parts.netloc}
    if method == "POST":
        sent |= {"Content-Type": "application/json", "Content-Length": str(len(body))}
    sent |= {key.replace("_", "-"): value for key, value in headers.items()}
    for key, value in sent.items():
        if value is not None:
            link.putheader(key, value)
    link.endheaders(body if method == "POST" else None)
    answer = link.getresponse()
    content = answer.read()
    link.close()
    return answer.status, dict(answer.headers), content


def form(review, *, rules=None, **changes):
    """The form of the file as it is, with changes of columns by name."""
    version = review.read()
    columns = [
        msgspec.structs.replace(
            form_of(column), **{"is_known": False, **changes.get(column.name, {})}
        )
        for column in version.schema.columns
    ]
    choices = rules or [ConstraintForm() for _ in version.schema.constraints]
    return SchemaForm(version.digest, tuple(columns), tuple(choices))


def save(page, form):
    status, _, body = request(page, "POST", "save", msgspec.json.encode(form))
    return status, json.loads(body)


def files(folder):
    return {path.name: path.read_bytes() for path in folder.iterdir()}


# Who is answered


def test_the_page_is_for_whoever_has_its_address(page):
    status, _, body = request(page)
    assert status == 200
    assert "73 whole numbers" in body.decode()
    assert page.address.startswith("http://127.0.0.1:")
    for token in ("", "x", "%C3%A9", page.address[-44:-2], "a" * 43):
        assert request(page, token=token)[0] == 404, token


def test_every_address_has_a_token_of_its_own(review):
    with page_of(review) as first, page_of(review) as second:
        assert urlsplit(first.address).path != urlsplit(second.address).path
        assert len(urlsplit(first.address).path) > 40


@pytest.mark.parametrize(
    "host", ["example.org", "example.org:80", "127.0.0.1", "127.0.0.1.example.org", "", None]
)
def test_a_name_of_another_site_is_refused_with_the_token_too(page, host):
    status, _, body = request(page, Host=host)
    assert status == 403
    assert b"73 whole" not in body


def test_a_page_keeps_to_itself(page):
    _, headers, body = request(page)
    policy = headers["Content-Security-Policy"]
    assert "default-src 'none'" in policy
    assert "frame-ancestors 'none'" in policy
    assert "unsafe" not in policy
    assert "Access-Control-Allow-Origin" not in headers
    assert headers["Cache-Control"] == "no-store"
    assert headers["Referrer-Policy"] == "no-referrer"
    text = body.decode()
    nonce = policy.split("script-src 'nonce-")[1].split("'")[0]
    assert text.count("<script") == text.count(f'<script nonce="{nonce}"') == 1
    assert " style=" not in text
    assert "http://" not in text.replace("http://www.w3.org/2000/svg", "")
    assert "https://" not in text
    _, again, _ = request(page)
    assert nonce not in again["Content-Security-Policy"]


@pytest.mark.parametrize(
    ("headers", "status"),
    [
        ({"Content_Type": "text/plain"}, 415),
        ({"Content_Type": "application/x-www-form-urlencoded"}, 415),
        ({"Content_Type": None}, 415),
        ({"Origin": "http://example.org"}, 403),
        ({"Origin": "null"}, 403),
        ({"token": "x"}, 404),
        ({"Host": "example.org"}, 403),
        ({"Content_Length": "99999999999"}, 413),
        ({"Content_Length": None}, 411),
        ({"Content_Length": "-1"}, 411),
    ],
)
def test_nothing_is_written_for_another_page(page, review, file, headers, status):
    before = files(file.parent)
    sent = form(review, age={"high": "120", "is_known": True})
    assert request(page, "POST", "save", msgspec.json.encode(sent), **headers)[0] == status
    assert request(page, "GET", "save")[0] == 404
    assert request(page, "POST", "")[0] == 404
    assert files(file.parent) == before


@pytest.mark.parametrize("method", ["OPTIONS", "PUT", "DELETE", "HEAD"])
def test_no_other_method_is_answered(page, method):
    status, headers, _ = request(page, method)
    assert status == 501
    assert not [name for name in headers if name.lower().startswith("access-control")]


@pytest.mark.parametrize("body", [b"", b"[]", b"{", b'{"version": 1}', b"\xff\xfe", b"null"])
def test_what_is_no_form_is_refused(page, file, body):
    before = files(file.parent)
    status, _, answer = request(page, "POST", "save", body)
    assert status == 400
    assert json.loads(answer)["message"].startswith("Nothing was saved")
    assert files(file.parent) == before


def test_an_invitation_leads_to_the_page_once(page, monkeypatch):
    opened = []
    monkeypatch.setattr(webbrowser, "open", lambda address: opened.append(address) or True)
    assert page.open_browser()
    (address,) = opened
    word = urlsplit(address).path.strip("/")
    assert word not in page.address
    status, headers, body = request(page, token=word)
    assert (status, body) == (303, b"")
    assert page.address.endswith(headers["Location"])
    assert request(page, token=word)[0] == 404


# What is saved


def test_a_tick_takes_the_mark_and_the_reason_away(page, review, file):
    status, answer = save(page, form(review, age={"is_known": True, "high": "120"}))
    assert (status, answer["outcome"]) == (200, "saved")
    assert "Still from rows, at least in part: 1 column and 2 constraints." in answer["message"]
    schema = Schema.from_json(file.read_bytes())
    assert schema["age"] == Column("age", "integer", low=17, high=120, fallback="low")
    rest = [column for column in PROPOSED.columns if column.name != "age"]
    assert list(schema.columns[1:]) == rest
    assert schema.constraints == PROPOSED.constraints
    assert file.read_text() == schema.to_json() + "\n"


def test_all_ticks_together_are_the_declared_schema(page, review, file):
    known = {column.name: {"is_known": True} for column in PROPOSED.columns}
    rules = [ConstraintForm(is_known=True)] * 2
    status, answer = save(page, form(review, rules=rules, **known))
    assert (status, answer["outcome"]) == (200, "saved")
    assert "Nothing in it is from rows any more." in answer["message"]
    assert Schema.from_json(file.read_bytes()) == PROPOSED.declared()
    assert "declared</span>" in request(page)[2].decode()


def test_what_comes_next_is_said_where_there_is_a_study(folder, review, monkeypatch):
    monkeypatch.chdir(folder.path)
    for place in (Path(), Path("study.toml"), Path("schema.json")):
        of_study = review_of(place)
        assert of_study.next_step == "siloweave check, then siloweave run"
    result = of_study.save(form(of_study, age={"high": "98"}))
    assert result.message.endswith("Next: siloweave check, then siloweave run.")
    assert "Next" not in review.save(form(review, age={"high": "98"})).message


def test_constraints_are_taken_out_one_by_one(page, review, file):
    rules = [ConstraintForm(is_kept=False), ConstraintForm(is_known=True)]
    assert save(page, form(review, rules=rules))[0] == 200
    (rule,) = Schema.from_json(file.read_bytes()).constraints
    assert rule == MissingTogether(columns=("came", "went"))


def test_further_constraints_are_read_as_the_file_writes_them(page, review, file):
    rules = [ConstraintForm(is_kept=False), ConstraintForm()]
    line = '{"constraint": "inequality", "low": "came", "high": "went", "strict": true}'
    sent = msgspec.structs.replace(form(review, rules=rules), further=f"\n{line}\n")
    assert save(page, sent)[0] == 200
    _, added = Schema.from_json(file.read_bytes()).constraints
    assert added == Inequality("came", "went", strict=True)


@pytest.mark.parametrize(
    ("further", "words"),
    [
        ("came <= went", "line 1 is no constraint"),
        ('\n{"constraint": "order"}', "line 2 is no constraint"),
        ('{"constraint": "inequality", "low": "came", "high": "left"}', "left"),
    ],
)
def test_a_line_that_is_no_constraint_is_shown_beside_them(page, review, file, further, words):
    before = files(file.parent)
    sent = msgspec.structs.replace(form(review), further=further)
    status, answer = save(page, sent)
    (problem,) = answer["problems"]
    assert (status, problem["field"], problem["column"]) == (422, "further", None)
    assert words in problem["message"]
    assert files(file.parent) == before


def test_a_form_that_changes_nothing_writes_nothing(page, review, file):
    file.write_bytes(msgspec.json.encode(json.loads(PROPOSED.to_json())))
    before = file.read_bytes(), file.stat().st_mtime_ns
    status, answer = save(page, form(review))
    assert (status, answer["outcome"]) == (200, "unchanged")
    assert (file.read_bytes(), file.stat().st_mtime_ns) == before


@pytest.mark.parametrize(
    ("column", "changes", "field", "words"),
    [
        ("age", {"low": "abc"}, "low", "must be a number"),
        ("age", {"low": "95"}, "low", "above high"),
        ("age", {"high": "17.5"}, "high", "whole number"),
        ("age", {"high": "nan"}, "high", "finite"),
        ("age", {"fallback": "5"}, "fallback", "outside its bounds"),
        ("age", {"kind": "categorical"}, "categories", "empty"),
        ("age", {"kind": "datetime"}, "low", "ISO-8601"),
        ("age", {"kind": "number"}, "kind", "use one of"),
        ("sex", {"categories": "f\nf"}, "categories", "repeat"),
        ("sex", {"other": "x"}, "other", "not among"),
        ("sex", {"categories": '"f'}, "categories", "quotation mark"),
        ("sex", {"category_type": "integer"}, "categories", "whole numbers"),
        ("ward", {"categories": "1\ntwo"}, "categories", "'two'"),
        ("ward", {"outside": "perhaps"}, "outside", "move"),
        ("came", {"zone": "Mars"}, "zone", "Mars"),
        ("came", {"resolution": "week"}, "resolution", "unknown"),
        ("id", {"format": "["}, "format", "format"),
    ],
)
def test_what_is_wrong_is_shown_beside_its_field(page, review, file, column, changes, field, words):
    before = files(file.parent)
    status, answer = save(page, form(review, **{column: changes}))
    (problem,) = answer["problems"]
    assert (status, answer["outcome"]) == (422, "refused")
    assert (PROPOSED.columns[problem["column"]].name, problem["field"]) == (column, field)
    assert words in problem["message"]
    assert repr(column) in problem["message"]
    assert files(file.parent) == before


def test_all_wrong_columns_are_shown_at_once(page, review):
    _, answer = save(page, form(review, age={"low": "x"}, sex={"other": "x"}))
    assert [problem["column"] for problem in answer["problems"]] == [0, 1]
    assert "correct 2 places" in answer["message"]


def test_what_contradicts_a_constraint_is_shown_beside_it(page, review, file):
    before = files(file.parent)
    changed = {"came": {"low": "2021-06-01"}, "went": {"high": "2021-01-01"}}
    status, answer = save(page, form(review, **changed))
    (problem,) = answer["problems"]
    assert (status, problem["constraint"], problem["column"]) == (422, 0, None)
    assert "no row can keep it" in problem["message"]
    assert files(file.parent) == before


def test_a_file_for_its_owner_alone_stays_so(page, review, file):
    for mode in (0o600, 0o644):
        file.chmod(mode)
        assert save(page, form(review, age={"high": str(100 + mode)}))[0] == 200
        assert file.stat().st_mode & 0o077 == mode & 0o077


def test_a_link_stays_a_link(file, tmp_path):
    link = tmp_path / "study" / "schema.json"
    link.parent.mkdir()
    link.symlink_to(file)
    review = review_of(link)
    assert review.save(form(review, age={"is_known": True})).outcome == "saved"
    assert link.is_symlink()
    assert Schema.from_json(file.read_bytes())["age"].from_data == ()


# Others who write


def test_a_schema_that_changed_meanwhile_stays_and_both_are_named(page, review, file):
    sent = form(review, age={"high": "120"})
    other = PROPOSED.to_json().replace("90", "99")
    file.write_text(other)
    status, answer = save(page, sent)
    beside = file.with_name("schema.review.json")
    assert (status, answer["outcome"], answer["beside"]) == (409, "beside", str(beside))
    assert str(file) in answer["message"]
    assert str(beside) in answer["message"]
    assert file.read_text() == other
    assert Schema.from_json(beside.read_bytes())["age"].high == 120
    assert answer["differences"] == ["column 'age': high 99 against 120"]
    _, answer = save(page, sent)
    assert Path(answer["beside"]).name == "schema.review-2.json"
    assert "99" in request(page)[2].decode()


def test_of_two_reviewers_the_second_sees_the_change(file):
    first = review_of(file)
    second = review_of(file)
    sent = form(second, sex={"categories": "f\nm\nx"})
    with page_of(first) as one, page_of(second) as two:
        assert save(one, form(first, age={"is_known": True}))[0] == 200
        saved = file.read_bytes()
        status, answer = save(two, sent)
    assert status == 409
    assert file.read_bytes() == saved
    theirs = Schema.from_json(Path(answer["beside"]).read_bytes())
    assert theirs["sex"].categories == ("f", "m", "x")
    assert theirs["age"].from_data == PROPOSED["age"].from_data


def test_two_reviewers_who_say_the_same_agree(file):
    first = review_of(file)
    second = review_of(file)
    sent = form(second, age={"is_known": True})
    assert first.save(form(first, age={"is_known": True})).outcome == "saved"
    assert second.save(sent).outcome == "saved"
    assert [path.name for path in file.parent.iterdir()] == ["schema.json"]


@pytest.mark.parametrize("content", [None, b"", b"{", b'{"format": "other"}'])
def test_a_schema_that_is_gone_or_damaged_meanwhile_loses_nothing(page, review, file, content):
    sent = form(review, age={"high": "120"})
    file.unlink()
    if content is not None:
        file.write_bytes(content)
    status, _, body = request(page)
    assert status == 409
    assert str(file) in body.decode()
    status, answer = save(page, sent)
    assert (status, answer["outcome"]) == (409, "beside")
    assert Schema.from_json(Path(answer["beside"]).read_bytes())["age"].high == 120
    assert (file.read_bytes() if file.exists() else None) == content


def test_a_folder_in_place_of_the_schema_is_named_and_loses_nothing(page, review, file):
    sent = form(review, age={"high": "120"})
    file.unlink()
    file.mkdir()
    status, answer = save(page, sent)
    assert (status, answer["outcome"]) == (409, "beside")
    assert "cannot be read any more (Is a directory)" in answer["message"]
    assert Schema.from_json(Path(answer["beside"]).read_bytes())["age"].high == 120
    assert file.is_dir()


def test_a_schema_that_may_not_be_read_any_more_is_named_and_loses_nothing(
    page, review, file, monkeypatch
):
    sent = form(review, age={"high": "120"})
    content = file.read_bytes()
    read_bytes = Path.read_bytes

    def refused(path):
        if path == file:
            raise PermissionError(13, "Permission denied", str(file))
        return read_bytes(path)

    monkeypatch.setattr(Path, "read_bytes", refused)
    status, answer = save(page, sent)
    monkeypatch.undo()
    assert (status, answer["outcome"]) == (409, "beside")
    assert "cannot be read any more (Permission denied)" in answer["message"]
    assert Schema.from_json(Path(answer["beside"]).read_bytes())["age"].high == 120
    assert file.read_bytes() == content


def test_a_disk_that_cannot_be_written_leaves_all_as_it_was(page, review, file, monkeypatch):
    def full(*_, **__):
        raise OSError(28, "No space left on device", str(file))

    monkeypatch.setattr("siloweave.app.review.write_whole", full)
    before = files(file.parent)
    status, answer = save(page, form(review, age={"high": "120"}))
    assert (status, answer["outcome"]) == (500, "refused")
    assert "No space left" in answer["message"]
    assert files(file.parent) == before


def test_a_form_of_another_page_is_refused(page, review, file):
    before = files(file.parent)
    sent = form(review)
    short = msgspec.structs.replace(sent, columns=sent.columns[:2])
    for wrong in (msgspec.structs.replace(sent, version="x"), short):
        status, answer = save(page, wrong)
        assert status == 409
        assert "load the page again" in answer["message"]
    assert files(file.parent) == before


# A column as a form


ODD = ("", " x", "x ", '"quoted"', "two\nlines", "tab\t", "ж\u202e", "true", "1", "\r", "\\n")


@pytest.mark.parametrize("value", [*ODD, 0, -5, 2**60, 0.1, 1e-300, -0.0, True, False])
def test_a_category_comes_back_from_its_line(value):
    kinds = {str: "text", bool: "boolean", int: "integer", float: "number"}
    line = line_of(value)
    assert "\n" not in line
    assert "\r" not in line
    again = value_of(line, kinds[type(value)])
    assert (type(again), repr(again)) == (type(value), repr(value))


def test_a_form_as_it_was_shown_changes_no_column():
    columns = [
        *PROPOSED.columns,
        Column("odd", "categorical", categories=ODD, other=" x", fallback=""),
        Column("yes", "boolean", categories=("N", "Y"), fallback="N"),
        Column("flag", "boolean", fallback=False),
        Column("x", "continuous", low=0.1, high=1e300, decimals=2, padded=1, fallback=0.25),
        Column("note", "text", missing_values=("", " -"), format="email"),
        Column("late", "datetime", format="%d.%m.%Y %H:%M", resolution="hour", zone="+01:00"),
        Column("n", "integer", outside="refuse", learned=("low",), low=1, high=2),
    ]
    for column in columns:
        form = form_of(column)
        assert edited(column, msgspec.structs.replace(form, is_known=False)) == column
        windows = {
            name: getattr(form, name).replace("\n", "\r\n")
            for name in ("categories", "missing_values")
        }
        assert edited(column, msgspec.structs.replace(form, is_known=False, **windows)) == column


def test_another_type_of_the_same_values_is_a_change(page, review, file):
    assert save(page, form(review, ward={"category_type": "number"}))[1]["outcome"] == "saved"
    assert Schema.from_json(file.read_bytes())["ward"].categories == (1.0, 2.0, 3.0)
    assert "1.0" in file.read_text()


def test_another_kind_drops_what_it_lacks():
    column = PROPOSED["age"]
    form = msgspec.structs.replace(
        form_of(column), kind="categorical", categories="17\n18", category_type="integer"
    )
    changed = edited(column, form)
    expected = Column(
        "age",
        "categorical",
        categories=(17, 18),
        fallback=17,
        from_data=("kind", "missing"),
        why=column.why,
    )
    assert changed == msgspec.structs.replace(expected, from_data=changed.from_data)
    assert set(changed.from_data) == {"kind", "missing"}
    back = msgspec.structs.replace(form_of(changed), kind="integer", low="0", high="120")
    assert edited(changed, back).fallback == "low"
    for kind in ("id", "text"):
        plain = edited(column, msgspec.structs.replace(form_of(column), kind=kind))
        assert (plain.low, plain.high, plain.fallback, plain.kind) == (None, None, None, kind)


def test_a_learned_fact_that_is_typed_is_declared():
    column = Column("n", "integer", low=1, high=9, learned=("low", "high"))
    form = msgspec.structs.replace(form_of(column), high="20")
    assert edited(column, form).learned == ("low",)


def test_a_constraint_on_a_column_that_is_not_modelled_any_more_is_shown():
    base = Schema(PROPOSED.columns, (Unique(("ward",)), Unique(("ward", "sex"))))
    columns = [form_of(column) for column in base.columns]
    columns[2] = msgspec.structs.replace(columns[2], kind="id")
    sent = SchemaForm("", tuple(columns), (ConstraintForm(is_kept=False), ConstraintForm()))
    schema, (problem,) = schema_of(base, sent)
    assert schema is None
    assert (problem.constraint, "not modelled" in problem.message) == (1, True)


def test_the_page_has_a_labelled_field_for_every_fact(page):
    text = request(page)[2].decode()
    for name in ColumnForm.__struct_fields__:
        if name == "name":
            continue
        assert f'id="c0-{name}"' in text
        assert (
            f'for="c0-{name}"' in text or '<label class="tick big"><input type="checkbox" ' in text
        )
    for kind in KINDS:
        assert f'<option value="{kind}"' in text


def test_names_and_values_are_text_on_the_page(tmp_path):
    nasty = "</textarea><script>alert(1)</script>"
    schema = Schema((Column(nasty, "categorical", categories=(nasty, "\nfirst"), why=nasty),))
    path = tmp_path / "schema.json"
    path.write_text(schema.to_json())
    review = review_of(path)
    with page_of(review) as page:
        text = request(page)[2].decode()
        assert "alert(1)</script>" not in text.split("<script nonce")[0]
        assert review.save(form(review)).outcome == "unchanged"


# Ranges by a category


RANGED = Schema(
    (
        Column("born", "datetime", low="1900-01-01", high="2020-12-31", format="%d.%m.%Y"),
        Column("member", "categorical", categories=("adult", "junior", "senior")),
        Column("fee", "continuous", low=0.0, high=100.0),
    ),
    (
        CategoryRanges(
            "born",
            "member",
            (
                ("senior", None, "1959-06-18T00:00:00"),
                ("adult", "1961-02-03T00:00:00", "2006-11-30T00:00:00"),
                ("junior", "2008-04-05T00:00:00", None),
            ),
            from_data=True,
            why="born is at most 1959-06-18T00:00:00 where member is 'senior', and so on",
        ),
        CategoryRanges("fee", "member", (("junior", 0.0, 20.5),)),
    ),
)


@pytest.fixture
def ranged(tmp_path):
    path = tmp_path / "schema.json"
    path.write_text(RANGED.to_json() + "\n")
    return review_of(path)


def bounds(**changes):
    shown = {
        "lows": ("", "1961-02-03", "2008-04-05"),
        "highs": ("1959-06-18", "2006-11-30", ""),
    }
    return [ConstraintForm(**{**shown, **changes}), ConstraintForm(lows=("0.0",), highs=("20.5",))]


def test_every_range_is_shown_in_the_resolution_of_its_column(ranged):
    with page_of(ranged) as page:
        text = request(page)[2].decode()
    for category, low, high in zip(("senior", "adult", "junior"), *vars_of(bounds()), strict=True):
        assert f"born where member is <b>{category}</b>" in text
        assert f'data-bound="lows" value="{low}"' in text
        assert f'data-bound="highs" value="{high}"' in text
    assert "and so on" not in text
    assert text.count("the most extreme values in your rows") == 1
    assert "&#34;constraint&#34;:&#34;category_ranges&#34;,&#34;column&#34;:&#34;fee&#34;" in text


def test_the_page_says_what_to_do_for_another_name_of_a_column(ranged):
    with page_of(ranged) as page:
        text = request(page)[2].decode()
    assert "rename them in the file, run <code>siloweave init</code> again" in text
    assert 'data-field="name"' not in text


def vars_of(rules):
    return rules[0].lows, rules[0].highs


def test_ranges_as_they_were_shown_stay_as_they_were(ranged):
    assert ranged.save(form(ranged, rules=bounds())).outcome == "unchanged"


def test_bounds_of_ranges_are_corrected(ranged):
    rules = bounds(lows=("", "1960-01-01", ""), highs=("1959-06-18", "2007-12-31", ""))
    rules[1] = ConstraintForm(lows=("0.0",), highs=("25",))
    assert ranged.save(form(ranged, rules=rules)).outcome == "saved"
    born, fee = ranged.read().schema.constraints
    assert born.ranges == (
        ("senior", None, "1959-06-18T00:00:00"),
        ("adult", "1960-01-01", "2007-12-31"),
    )
    assert fee.ranges == (("junior", 0.0, 25),)


@pytest.mark.parametrize(
    ("rules", "number", "words"),
    [
        (bounds(highs=("1899", "2006-11-30", "")), 0, "1899"),
        (bounds(highs=("1899-01-01", "2006-11-30", "")), 0, "of 'senior': at most '1899-01-01'"),
        (bounds(lows=("", "", ""), highs=("", "", "")), 0, "ranges is empty"),
        ([bounds()[0], ConstraintForm(lows=("cheap",), highs=("20.5",))], 1, "cheap"),
    ],
)
def test_a_range_that_cannot_be_is_shown_beside_its_constraint(ranged, rules, number, words):
    result = ranged.save(form(ranged, rules=rules))
    (problem,) = result.problems
    assert (result.outcome, problem.constraint) == ("refused", number)
    assert words in problem.message
    assert "None" not in problem.message


def test_ranges_of_another_page_are_refused(ranged):
    with pytest.raises(SchemaError, match="other ranges"):
        ranged.save(form(ranged, rules=bounds(lows=("",))))


# Pictures


def test_a_study_that_names_one_file_needs_no_data(folder):
    assert not review_of(folder.path).pictures  # it names two
    south = '[[parties]]\nname = "south"\ndata = "south.csv"\n'
    folder.replace("study.toml", south, "")
    for place in (folder.path, folder.path / "schema.json"):
        review = review_of(place)
        assert set(review.pictures) == {"age", "sex", "job"}
        with page_of(review) as page:
            text = request(page)[2].decode()
        assert "north.csv</code>, which the study names" in text
        assert "--data" not in text


def test_a_file_that_nobody_asked_for_stops_no_review(folder):
    south = '[[parties]]\nname = "south"\ndata = "south.csv"\n'
    folder.replace("study.toml", south, "")
    folder.write("north.csv", "a,b\n1,2\n")
    review = review_of(folder.path)
    with page_of(review) as page:
        text = request(page)[2].decode()
    assert "There are no pictures: " in text
    assert "no column of the schema" in text
    (folder.path / "north.csv").unlink()
    with page_of(review_of(folder.path)) as page:
        assert '<code class="word">--data FILE</code>' in request(page)[2].decode()
    folder.write("study.toml", "[")
    assert not review_of(folder.path / "schema.json").pictures


def test_cells_beyond_the_bounds_are_counted_where_they_are_saved(folder):
    folder.write("rows.csv", "age,sex,job\n" + "".join(f"{age},f,x\n" for age in range(60)))
    review = review_of(folder.path, "rows.csv")
    result = review.save(form(review, age={"low": "1", "high": "49", "fallback": "1"}))
    assert result.outcome == "saved"
    assert result.beyond == (
        "1 of 60 cells of age is below 1",
        "10 of 60 cells of age are above 49",
    )
    without_rows = review_of(folder.path)
    assert without_rows.save(form(without_rows, age={"high": "48"})).beyond == ()


@pytest.mark.parametrize(
    ("column", "sentences"),
    [
        (Column("day", "datetime", high="2020-01-02"), ()),
        (
            Column("day", "datetime", high="2020-01-01"),
            ("1 of 4 cells of day is above 2020-01-01",),
        ),
        (
            Column("day", "datetime", low="2020-01-02T12:00:00"),
            ("1 of 4 cells of day is below 2020-01-02T12:00:00",),
        ),
        (Column("euro", "continuous", high=2.5, format="1.234,5 €"), ()),
        (
            Column("euro", "continuous", high=2.0, format="1.234,5 €"),
            ("1 of 4 cells of euro is above 2.0",),
        ),
        (Column("word", "integer", low=0, high=1), ()),
        (Column("elsewhere", "integer", low=0, high=1), ()),
    ],
)
def test_bounds_include_their_own_day_and_are_read_by_the_form(folder, column, sentences):
    rows = '2020-01-01,"2,5 €",a\n2020-01-02T18:00:00,"1,5 €",b\n,,c\n,,d\n'
    folder.write("rows.csv", f"day,euro,word\n{rows}")
    assert beyond_bounds(Schema((column,)), read(folder.path / "rows.csv")) == sentences


def test_dates_are_drawn_as_a_histogram(folder):
    days = "".join(f"{1 + day % 28}.{1 + day % 12}.{1950 + day}\n" for day in range(60))
    folder.write("days.csv", f"born\n{days}")
    column = Column("born", "datetime", format="%-d.%-m.%Y")
    picture = picture_of(column, read(folder.path / "days.csv"))
    assert "Values from 1950-01-01 to 2009-12-04" in picture
    assert "others" not in picture


def test_equally_frequent_numbers_have_equal_bars_also_in_a_last_bin_of_fewer(folder):
    ages = "\n".join(str(age) for age in range(18, 91))
    folder.write("ages.csv", f"age\n{ages}\n")
    picture = picture_of(Column("age", "integer"), read(folder.path / "ages.csv"))
    heights = set(re.findall(r'<rect [^>]*height="([\d.]+)"', picture))
    assert len(heights) == 1
    assert "90 to below 91: 1.4%" in picture


def test_pictures_are_for_the_eyes_alone(folder):
    review = review_of(folder.path, "north.csv")
    assert set(review.pictures) == {"age", "sex", "job"}
    with page_of(review) as page:
        text = request(page)[2].decode()
    assert text.count('<div class="plot-small"><svg') == 3
    before = folder.path.joinpath("schema.json").read_bytes()
    assert review.save(form(review)).outcome == "unchanged"
    assert folder.path.joinpath("schema.json").read_bytes() == before


def test_every_kind_has_a_picture_or_none(folder):
    folder.write(
        "odd.csv",
        "n,x,day,c,one,empty,id\n1,0.5,2020-01-01,a,7,,p1\n5,1e9,2021-03-04,b,7,,p2\n"
        "n/a,-3,,a,7,,p3\n",
    )
    table = read(folder.path / "odd.csv")
    cases = {
        Column("n", "integer", missing_values=("n/a",)): "Values from 1 to 5; 33.3% are missing",
        Column("x", "continuous"): "Values from -3 to 1,000,000,000",
        Column("day", "datetime"): "Values from 2020-01-01 to 2021-03-04",
        Column("c", "categorical", categories=("a", "b")): "2 values",
        Column("one", "integer"): "Values from 7 to 7",
        Column("empty", "categorical", categories=("a",), missing=True): "0 values",
    }
    for column, words in cases.items():
        picture = picture_of(column, table)
        assert words in picture, picture
        assert "style=" not in picture
    assert picture_of(Column("id", "id"), table) == ""


def test_the_study_says_how_its_file_is_read(folder):
    rows = folder.path.joinpath("north.csv").read_text().replace(",", ";")
    folder.write("north.csv", rows)
    folder.replace("study.toml", 'data = "north.csv"', 'data = "north.csv"\nseparator = ";"')
    assert set(review_of(folder.path, "north.csv").pictures) == {"age", "sex", "job"}


# The command


def test_a_folder_a_study_or_a_schema_is_opened(folder, tmp_path):
    path = folder.path / "schema.json"
    assert schema_file(folder.path)[0] == path
    assert schema_file(folder.path / "study.toml")[0] == path
    assert schema_file(path) == (path, None)
    alone = tmp_path / "alone"
    alone.mkdir()
    with pytest.raises(InputError, match=r"no study\.toml and no schema\.json"):
        schema_file(alone)
    (alone / "schema.json").write_bytes(path.read_bytes())
    assert schema_file(alone) == (alone / "schema.json", None)


@pytest.mark.parametrize(
    ("name", "content", "words"),
    [
        ("no.json", None, "cannot be read"),
        ("empty.json", b"", "is empty. Put its last copy back"),
        ("rows.csv", b"age,sex\n1,f\n", "not a schema file"),
        ("rows.csv", b"age,sex\n1,f\n", "name the rows by --data"),
        ("sdv.json", b'{"columns": {}}', "not a schema file"),
        ("new.json", b'{"format": "siloweave-schema", "version": 99, "columns": []}', "version"),
        ("bytes.json", b"\xff\xfe{", "not a schema file"),
    ],
)
def test_a_file_that_is_no_schema_is_an_error(folder, name, content, words):
    if content is not None:
        folder.path.joinpath(name).write_bytes(content)
    before = folder.files()
    code, out, err = folder.call("review", name, "--no-browser")
    assert (code, out) == (2, "")
    assert name in err.replace("\n", "")
    assert words in " ".join(err.split())
    assert folder.files() == before
    with pytest.raises((DataError, SchemaError)):
        review_of(folder.path / name)


def test_rows_of_another_table_are_an_error(folder):
    folder.write("other.csv", "a,b\n1,2\n")
    code, _, err = folder.call("review", "schema.json", "--data", "other.csv", "--no-browser")
    assert code == 2
    assert "no column of the schema" in " ".join(err.split())


def test_a_port_in_use_is_an_error(folder):
    with socket.socket() as other:
        other.bind(("127.0.0.1", 0))
        other.listen()
        port = other.getsockname()[1]
        code, _, err = folder.call("review", "schema.json", "--port", port, "--no-browser")
    assert code == 2
    assert f"--port {port}: cannot be used" in " ".join(err.split())
    assert folder.call("review", "schema.json", "--port", 70_000)[0] == 2
    with pytest.raises(InputError, match="--port -1"):
        LocalPage({}, -1)


@pytest.mark.parametrize("failure", [False, webbrowser.Error("no browser")])
def test_without_a_browser_the_address_is_printed(folder, monkeypatch, failure):
    def opened(_):
        if failure:
            raise failure
        return False

    def interrupted():
        raise KeyboardInterrupt

    monkeypatch.setattr(webbrowser, "open", opened)
    monkeypatch.setattr(pages, "_wait", interrupted)
    code, out, err = folder.call("review", ".")
    assert code == 0
    assert out.startswith("The review is at http://127.0.0.1:")
    assert "No browser could be opened: open that address." in err


def test_the_command_serves_until_it_is_interrupted(folder):
    words = [sys.executable, "-m", "siloweave", "review", str(folder.path), "--no-browser"]
    with subprocess.Popen(words, stdout=subprocess.PIPE, stderr=subprocess.PIPE) as process:
        try:
            address = process.stdout.readline().decode().split()[-1]
            link = http.client.HTTPConnection(urlsplit(address).netloc, timeout=30)
            link.request("GET", urlsplit(address).path)
            assert link.getresponse().status == 200
            link.close()
            process.send_signal(2)
            assert process.wait(30) == 0
            end = process.stdout.read().decode()
            assert end == f"Next: siloweave check {folder.path}, then siloweave run {folder.path}\n"
        finally:
            with suppress(ProcessLookupError):
                process.kill()


def test_a_connection_that_breaks_off_prints_nothing(page, capfd):
    parts = urlsplit(page.address)
    with socket.create_connection((parts.hostname, parts.port)) as link:
        link.sendall(b"POST /x HTTP/1.1\r\nHost: a\r\n")
    with socket.create_connection((parts.hostname, parts.port)) as link:
        head = f"POST {parts.path}save HTTP/1.1\r\nHost: {parts.netloc}\r\n"
        link.sendall(f"{head}Content-Type: application/json\r\nContent-Length: 50\r\n\r\n".encode())
    time.sleep(0.2)
    assert request(page)[0] == 200
    assert capfd.readouterr() == ("", "")


def test_the_command_is_listed(capsys):
    assert main(["--help"]) == 0
    assert " review " in capsys.readouterr().out
