"""Words of a query by which one row may move others, and what is passed over."""

import sqlite3
from contextlib import closing

import pytest
from tests.tables.databases import duckdb, needs_duckdb

from siloweave.tables.database import Database
from siloweave.tables.queries import moving_words, query_warnings


@pytest.mark.parametrize(
    ("query", "words"),
    [
        ("SELECT a FROM t LIMIT 9", ["LIMIT"]),
        ("select a from t limit 9 offset 3", ["LIMIT", "OFFSET"]),
        ("SELECT a FROM t FETCH FIRST 5 ROWS ONLY", ["FETCH"]),
        ("SELECT TOP 5 a FROM t", ["TOP"]),
        ("SELECT DISTINCT a FROM t", ["DISTINCT"]),
        ("SELECT DISTINCT ON (a) a, b FROM t", ["DISTINCT"]),
        ("SELECT row_number() OVER (PARTITION BY b) AS a FROM t", ["OVER"]),
        ("SELECT avg(a) AS a FROM t GROUP BY b HAVING b > 1", ["avg()", "GROUP BY", "HAVING"]),
        ("SELECT max(a) AS a FROM t", ["max()"]),
        ("SELECT a FROM t JOIN u USING (i)", ["JOIN"]),
        ("SELECT a FROM t, u", ["a comma in FROM"]),
        ("SELECT a FROM t UNION ALL SELECT a FROM u", ["UNION"]),
        ("SELECT a FROM t EXCEPT SELECT a FROM u", ["EXCEPT"]),
        ("SELECT a FROM t WHERE a IN (SELECT b FROM u)", ["a query in a query"]),
        ("SELECT a FROM t WHERE NOT EXISTS (SELECT 1 FROM u)", ["a query in a query"]),
        ("SELECT a FROM t WHERE a > ((SELECT 1))", ["a query in a query"]),
        ("SELECT a FROM (SELECT DISTINCT a FROM t)", ["DISTINCT"]),
        ("WITH s AS (SELECT a FROM t LIMIT 1) SELECT a FROM s", ["LIMIT"]),
        ("SELECT a FROM t ORDER BY random()", ["random()"]),
        ("SELECT a FROM t TABLESAMPLE BERNOULLI (10)", ["TABLESAMPLE"]),
        ("SELECT a FROM t USING SAMPLE 10%", ["SAMPLE"]),
        ("SELECT unnest(a) AS a FROM t", ["unnest()"]),
        ("SELECT rowid AS a FROM t", ["ROWID"]),
        ("SELECT CAST(a AS INTEGER) AS a, b::date AS b FROM t", ["CAST", "::"]),
    ],
)
def test_words_by_which_a_row_may_move_others_are_named(query, words):
    assert list(moving_words(query, "duckdb")) == words


@pytest.mark.parametrize(
    ("query", "kind"),
    [
        ("SELECT a, b + 1 AS b FROM t WHERE a > 1 AND b IN (1, 2) ORDER BY a", "postgresql"),
        ("SELECT 'a LIMIT 1' AS a, 'it''s DISTINCT' AS b FROM t", "duckdb"),
        ('SELECT "limit", t.distinct, `count(` FROM t -- UNION\n', "sqlite"),
        ("SELECT [group by], [a, b] FROM t /* JOIN */ WHERE a > 1", "sqlite"),
        ("SELECT a /* JOIN /* UNION */ LIMIT */ FROM t", "postgresql"),
        (
            "SELECT $$ LIMIT $$ AS a, $x$ it's UNION $x$ AS b, E'\\' LIMIT' AS c FROM t",
            "postgresql",
        ),
        ("SELECT a IS DISTINCT FROM b AS a, c IS NOT DISTINCT FROM d AS c FROM t", "postgresql"),
        ("SELECT EXTRACT(YEAR FROM a) AS a, trim(both ' ' FROM b) AS b FROM t", "postgresql"),
        ("SELECT max(a, b) AS a, CAST(b AS INTEGER) AS b FROM t", "sqlite"),
        ("SELECT a::text AS a, CAST(b AS VARCHAR(9)) AS b, c / 2 AS c FROM t", "postgresql"),
        ("SELECT TRY_CAST(a AS INTEGER) AS a, count, total FROM t", "duckdb"),
        ("WITH s AS (SELECT a FROM t), u AS (SELECT a FROM s) SELECT a FROM u", "duckdb"),
        ("SELECT a FROM (SELECT a FROM (SELECT a, b FROM t) AS s) AS u", "duckdb"),
        ("SELECT offset, fetch, sample FROM t", "sqlite"),
        ("SELECT 'never ends LIMIT 1", "sqlite"),
        ("SELECT a FROM t /* never ends LIMIT 1", "sqlite"),
    ],
)
def test_a_query_that_goes_row_by_row_has_no_such_word(query, kind):
    assert moving_words(query, kind) == {}


def test_a_division_is_named_where_a_zero_stops_the_query():
    query = "SELECT a / b AS a FROM t"
    assert moving_words(query, "postgresql") == {"/ (a division by 0)": "stop"}
    assert moving_words(query, "duckdb") == moving_words(query, "sqlite") == {}


@pytest.mark.parametrize(
    ("expression", "kind", "word"),
    [
        ("json_extract(a, '$.x')", "sqlite", "json_extract()"),
        ("a -> 'x'", "sqlite", "-> (of a text that is no JSON)"),
        ("a ->> 'x'", "duckdb", "-> (of a text that is no JSON)"),
        ("abs(a)", "sqlite", "abs()"),
        ("a // b", "duckdb", "// (a division by 0)"),
        ("a % b", "postgresql", "% (a division by 0)"),
        ("mod(a, b)", "duckdb", "mod()"),
        ("ln(a)", "postgresql", "ln()"),
        ("make_date(a, b, 1)", "duckdb", "make_date()"),
    ],
)
def test_what_stops_at_a_value_that_it_cannot_take_is_named(expression, kind, word):
    assert moving_words(f"SELECT {expression} AS a FROM t", kind) == {word: "stop"}


def test_signs_and_functions_that_take_every_value_are_not_named():
    assert moving_words("SELECT a % 2 AS a, b - -1 AS b FROM t", "postgresql") == {}
    assert moving_words("SELECT a % b AS a, a / b AS b, ln(a) AS c FROM t", "sqlite") == {}


def test_a_warning_says_what_a_word_means_for_the_guarantee(tmp_path):
    with closing(sqlite3.connect(tmp_path / "a.sqlite")):
        pass
    address = f"sqlite:///{tmp_path / 'a.sqlite'}"
    (warning,) = query_warnings(Database(address, query="SELECT a FROM t GROUP BY a LIMIT 9"))
    assert "the query has GROUP BY: a value is computed from several rows; LIMIT: which" in warning
    assert "The guarantee is for one row of what the query gives" in warning
    assert query_warnings(Database(address, query="SELECT a FROM t")) == []


def made_views(connection) -> None:
    for statement in (
        "CREATE TABLE stays (a INTEGER)",
        "CREATE VIEW plain AS SELECT a + 1 AS a FROM stays",
        "CREATE VIEW few AS SELECT DISTINCT a FROM plain",
        "CREATE VIEW outer_view AS SELECT a FROM few WHERE a > 1",
        "CREATE VIEW unused AS SELECT a FROM stays LIMIT 1",
    ):
        connection.execute(statement)


@needs_duckdb
@pytest.mark.parametrize("kind", ["sqlite", "duckdb"])
def test_a_view_is_a_query_too(tmp_path, kind):
    library = {"sqlite": sqlite3, "duckdb": duckdb}[kind]
    with closing(library.connect(str(tmp_path / "a.db"))) as connection:
        made_views(connection)
        connection.commit()
    address = f"{kind}:///{tmp_path / 'a.db'}"
    for source in (
        Database(address, table="few"),
        Database(address, table="outer_view"),
        Database(address, query='SELECT a FROM "outer_view"'),
    ):
        (warning,) = query_warnings(source)
        assert "the view 'few' has DISTINCT" in warning
    for source in (Database(address, table="plain"), Database(address, table="stays")):
        assert query_warnings(source) == []
