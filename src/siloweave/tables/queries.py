"""What in a query may let one row of a table move other rows of the result.

A guarantee is for one row of what a query gives. A query that chooses and computes row by row
(SELECT, WHERE, arithmetic, CASE) gives one row for one row of the table, or none, so the guarantee
is for that row as well. LIMIT, a window, an aggregate or a join compare rows: one row more may then
change several of the result. Such words are found here, by reading the query as words and marks;
strings, quoted names and comments are passed over. Views that a query reads are queries, too.

Nothing is proved about a query without such words: a function, a macro or a table function of the
database's own may do the same, and is not looked at.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Literal

from siloweave.errors import DataError
from siloweave.tables.database import Database
from siloweave.tables.display import listed

Reason = Literal["choice", "values", "join", "several", "chance", "place", "stop"]
"""How a word of a query lets a row have a say in others, or in the whole."""

_WHY: dict[Reason, str] = {
    "choice": "which rows it gives depends on other rows",
    "values": "a value is computed from several rows",
    "join": "rows are put together with others, so one row may be in several of the result",
    "several": "one row may become several",
    "chance": "it draws by chance, so each time other rows or values are counted",
    "place": "a row's place may change when others do",
    "stop": "one value for which it cannot be computed stops the query, so one row decides whether "
    "there is a run",
}
_WORDS: dict[str, Reason] = {
    **dict.fromkeys(("LIMIT", "TABLESAMPLE", "QUALIFY"), "choice"),
    **dict.fromkeys(("DISTINCT", "HAVING"), "choice"),
    **dict.fromkeys(("OVER", "SUMMARIZE", "PIVOT"), "values"),
    **dict.fromkeys(("JOIN", "RECURSIVE", "UNION", "INTERSECT", "EXCEPT"), "join"),
    **dict.fromkeys(("LATERAL", "UNPIVOT"), "several"),
    **dict.fromkeys(("ROWID", "_ROWID_", "CTID"), "place"),
}
# Words that are often names of columns, by what must follow them.
_FOLLOWED: dict[str, tuple[Reason, str]] = {
    "OFFSET": ("choice", r"\d.*|\("),
    "FETCH": ("choice", "FIRST|NEXT"),
    "TOP": ("choice", r"\d.*|\("),
    "SAMPLE": ("choice", r"\d.*|\(|RESERVOIR|SYSTEM|BERNOULLI"),
    "GROUP": ("values", "BY"),
}
# Functions, by what they do: compute a value from several rows, make several rows of one, draw,
# depend on where a row is, or stop at a value that they cannot take.
_AGGREGATES = frozenset(
    [
        "any_value",
        "approx_count_distinct",
        "approx_quantile",
        "approx_top_k",
        "arbitrary",
        "arg_max",
        "arg_max_null",
        "arg_min",
        "arg_min_null",
        "array_agg",
        "avg",
        "bit_and",
        "bit_or",
        "bit_xor",
        "bitstring_agg",
        "bool_and",
        "bool_or",
        "corr",
        "count",
        "count_if",
        "count_star",
        "countif",
        "covar_pop",
        "covar_samp",
        "entropy",
        "every",
        "favg",
        "first",
        "fsum",
        "geomean",
        "geometric_mean",
        "group_concat",
        "histogram",
        "histogram_exact",
        "json_agg",
        "json_group_array",
        "json_group_object",
        "json_group_structure",
        "json_object_agg",
        "jsonb_agg",
        "jsonb_group_array",
        "jsonb_group_object",
        "jsonb_object_agg",
        "kahan_sum",
        "kurtosis",
        "kurtosis_pop",
        "last",
        "list",
        "listagg",
        "mad",
        "max",
        "max_by",
        "mean",
        "median",
        "min",
        "min_by",
        "mode",
        "percentile_cont",
        "percentile_disc",
        "product",
        "quantile",
        "quantile_cont",
        "quantile_disc",
        "range_agg",
        "range_intersect_agg",
        "regr_avgx",
        "regr_avgy",
        "regr_count",
        "regr_intercept",
        "regr_r2",
        "regr_slope",
        "regr_sxx",
        "regr_sxy",
        "regr_syy",
        "reservoir_quantile",
        "sem",
        "skewness",
        "stddev",
        "stddev_pop",
        "stddev_samp",
        "string_agg",
        "sum",
        "sum_no_overflow",
        "sumkahan",
        "total",
        "var_pop",
        "var_samp",
        "variance",
        "xmlagg",
    ]
)
_SET_FUNCTIONS = frozenset(
    [
        "explode",
        "generate_series",
        "generate_subscripts",
        "json_array_elements",
        "json_array_elements_text",
        "json_each",
        "json_each_text",
        "json_object_keys",
        "json_populate_recordset",
        "json_to_recordset",
        "json_tree",
        "jsonb_array_elements",
        "jsonb_array_elements_text",
        "jsonb_each",
        "jsonb_each_text",
        "jsonb_object_keys",
        "jsonb_path_query",
        "jsonb_to_recordset",
        "regexp_matches",
        "regexp_split_to_table",
        "string_to_table",
        "unnest",
    ]
)
_RANDOM_FUNCTIONS = frozenset(
    [
        "gen_random_uuid",
        "nextval",
        "normal_rand",
        "rand",
        "random",
        "random_normal",
        "randomblob",
        "setseed",
        "uuid",
        "uuid_generate_v1",
        "uuid_generate_v4",
        "uuidv4",
        "uuidv7",
    ]
)
_PLACE_FUNCTIONS = frozenset(["changes", "last_insert_rowid", "total_changes"])
_STRICT_FUNCTIONS = frozenset(["to_date", "to_number", "to_timestamp", "strptime"])
# Further ones, by the kind of database.
_JSON_FUNCTIONS = (
    "json",
    "json_array_length",
    "json_extract",
    "json_insert",
    "json_patch",
    "json_quote",
    "json_remove",
    "json_replace",
    "json_set",
    "json_type",
)
_DATE_FUNCTIONS = ("make_date", "make_time", "make_timestamp")
_STRICT_FUNCTIONS_OF: dict[str, frozenset[str]] = {
    "sqlite": frozenset(["abs", *_JSON_FUNCTIONS]),
    "duckdb": frozenset(
        [
            "chr",
            "decode",
            "epoch_ms",
            "factorial",
            "from_base64",
            "from_hex",
            "json_extract",
            "json_extract_string",
            "mod",
            "unhex",
            *_DATE_FUNCTIONS,
        ]
    ),
    "postgresql": frozenset(
        [
            "acos",
            "asin",
            "chr",
            "decode",
            "div",
            "exp",
            "factorial",
            "ln",
            "log",
            "log10",
            "make_interval",
            "mod",
            "pow",
            "power",
            "sqrt",
            *_DATE_FUNCTIONS,
        ]
    ),
}
# Into these types a value of any other is cast without an error.
_TEXT_TYPES = frozenset(
    [
        "text",
        "varchar",
        "character",
        "char",
        "bpchar",
        "string",
        "json",
        "jsonb",
        "name",
    ]
)
# Words that begin a clause of a query.
_CLAUSES = frozenset(
    [
        "SELECT",
        "FROM",
        "WHERE",
        "GROUP",
        "HAVING",
        "ORDER",
        "LIMIT",
        "OFFSET",
        "WINDOW",
        "QUALIFY",
        "WITH",
        "UNION",
        "INTERSECT",
        "EXCEPT",
        "FETCH",
        "FOR",
        "ON",
        "USING",
    ]
)
# Words that begin a query in parentheses.
_QUERY_WORDS = ("SELECT", "WITH", "FROM", "VALUES")
_TOKEN = re.compile(
    r"""(?P<space>\s+|--[^\n]*)
    |(?P<comment>/\*)
    |(?P<string>[eE]'(?:[^'\\]|\\.|'')*'?|'(?:[^']|'')*'?|\$(?P<tag>\w*)\$.*?(?:\$(?P=tag)\$|\Z))
    |(?P<name>"(?:[^"]|"")*"?|`[^`]*`?)
    |(?P<word>[^\W\d][\w$]*)
    |(?P<number>\.?\d[\w.]*)
    |(?P<sign>::|.)""",
    re.VERBOSE | re.DOTALL,
)


@dataclass(frozen=True)
class _Token:
    """One part of a query: a word, a quoted name, a number, a string or a sign.

    Attributes:
        kind: Which of these it is.
        text: A word in capitals, a name without its marks, any other as it is.
    """

    kind: str
    text: str

    def is_word(self, *words: str) -> bool:
        """Return whether the token is one of some words."""
        return self.kind == "word" and self.text in words

    def is_sign(self, sign: str) -> bool:
        """Return whether the token is a sign."""
        return self.kind == "sign" and self.text == sign


_NO_TOKEN = _Token("sign", "")
_OPENING = _Token("sign", "(")


def _tokens(query: str, *, brackets: bool) -> list[_Token]:
    """Split a query into words and signs, in order; in SQLite a name may stand in brackets."""
    tokens = []
    place = 0
    while place < len(query):
        if brackets and query[place] == "[":
            end = query.find("]", place)
            if end < 0:
                end = len(query)
            tokens.append(_Token("name", query[place + 1 : end]))
            place = end + 1
            continue

        match = _TOKEN.match(query, place)
        # Any character is a sign.
        assert match is not None
        place = match.end()
        kind = "string" if match["string"] is not None else str(match.lastgroup)
        text = match[0]
        if kind == "comment":
            place = _end_of_comment(query, place, nested=not brackets)
        elif kind == "word":
            tokens.append(_Token(kind, text.upper()))
        elif kind == "name":
            name = text[1:].removesuffix(text[0]).replace('""', '"')
            tokens.append(_Token(kind, name))
        elif kind != "space":
            tokens.append(_Token(kind, text))
    return tokens


def _end_of_comment(query: str, place: int, *, nested: bool) -> int:
    """Return where a comment ends; it may be nested, except in SQLite."""
    depth = 1
    for mark in re.finditer(r"/\*|\*/", query[place:]):
        if mark[0] == "*/":
            depth -= 1
        elif nested:
            depth += 1
        if not depth:
            return place + mark.end()
    return len(query)


@dataclass
class _Frame:
    """The contents of one pair of parentheses, as far as they were read.

    Attributes:
        opener: The word before them, in small letters.
        is_query: Whether a query stands in them.
        is_source: Whether a query in them is what another selects from, and no part of a condition.
        clause: The clause that the last word is in.
        commas: How many stand in them, inner ones excepted.
    """

    opener: str
    is_query: bool
    is_source: bool
    clause: str = ""
    commas: int = 0


@dataclass
class _Reading:
    """The findings in a query so far.

    Attributes:
        words: Words by which a row may move others, each with the reason, in order.
        sources: Names of what the query reads, in small letters.
    """

    words: dict[str, Reason] = field(default_factory=dict)
    sources: list[str] = field(default_factory=list)


def _read_query(query: str, kind: str) -> _Reading:
    """Find the words by which a row may move other rows, and what the query reads from."""
    tokens = _tokens(query, brackets=kind == "sqlite")
    reading = _Reading()
    # The whole query is the outermost frame; it is never closed.
    frames = [_Frame("", is_query=True, is_source=True)]
    for place, token in enumerate(tokens):
        before = tokens[place - 1] if place else _NO_TOKEN
        following = tokens[place + 1 : place + 3]
        following += [_NO_TOKEN] * (2 - len(following))
        frame = frames[-1]
        if token.is_sign("("):
            frames.append(_opened_frame(frame, before, following[0], reading))
        elif token.is_sign(")"):
            if len(frames) > 1:
                _close(frames.pop(), kind, reading)
        elif token.kind == "sign":
            _note_sign(token.text, following[0], frame, kind, reading)
        # A word beside a point is part of a name.
        elif token.kind == "word" and not (
            before.is_sign(".") or following[0].is_sign(".")
        ):
            _note_word(token.text, before, following, frame, reading)
            if token.text == "AS" and frame.opener == "cast":
                _note_cast("CAST", following[0], kind, reading)

        # What is read: a name, or the last part of one, behind FROM, JOIN or a comma in FROM.
        if token.kind in ("word", "name") and frame.is_query:
            _note_source(tokens, place, frame, reading)
    return reading


def _opened_frame(
    frame: _Frame, before: _Token, first: _Token, reading: _Reading
) -> _Frame:
    """Make the frame of parentheses that open behind a word, given the first word in them."""
    is_behind_source_word = before.is_word(
        "FROM", "JOIN", "UNION", "ALL", "INTERSECT", "EXCEPT", "LATERAL"
    )
    is_behind_as = before.is_word("AS", "MATERIALIZED")
    is_named_query = is_behind_as and frame.clause in ("WITH", "")
    is_in_list = frame.is_query and frame.clause == "FROM" and before.is_sign(",")
    # Parentheses around a query, or around others, mean what those around them do.
    is_doubled = before in (_NO_TOKEN, _OPENING) and frame.is_source
    is_source = is_behind_source_word or is_named_query or is_in_list or is_doubled

    is_query = first.is_word(*_QUERY_WORDS)
    if is_query and not is_source and not first.is_word("VALUES"):
        reading.words.setdefault("a query in a query", "join")
    opener = before.text.lower() if before.kind in ("word", "name") else ""
    return _Frame(opener, is_query, is_source)


def _close(frame: _Frame, kind: str, reading: _Reading) -> None:
    """Note the meaning of a function whose parentheses close."""
    name = frame.opener
    # With several arguments, these are of the columns of one row.
    if name in ("min", "max") and kind == "sqlite" and frame.commas:
        return
    functions_by_reason: tuple[tuple[frozenset[str], Reason], ...] = (
        (_AGGREGATES, "values"),
        (_SET_FUNCTIONS, "several"),
        (_RANDOM_FUNCTIONS, "chance"),
        (_PLACE_FUNCTIONS, "place"),
        (_strict_functions(kind), "stop"),
    )
    for functions, reason in functions_by_reason:
        if name in functions:
            reading.words.setdefault(f"{name}()", reason)


def _strict_functions(kind: str) -> frozenset[str]:
    """Return the functions of a kind of database that stop at a value that they cannot take."""
    own_functions = _STRICT_FUNCTIONS_OF.get(kind, frozenset())
    # No conversion of SQLite fails.
    if kind == "sqlite":
        return own_functions
    return _STRICT_FUNCTIONS | own_functions


def _note_sign(
    sign: str, after: _Token, frame: _Frame, kind: str, reading: _Reading
) -> None:
    """Note the meaning of a sign: a further source, or a cast, division or path that may fail."""
    if sign == ",":
        frame.commas += 1
        if frame.is_query and frame.clause == "FROM":
            reading.words.setdefault("a comma in FROM", "join")
    elif sign == "::":
        _note_cast(sign, after, kind, reading)
    # The others stop at a division by 0 of whole numbers alone, or not at all.
    elif sign == "/" and kind == "postgresql" and after.kind != "number":
        reading.words.setdefault("/ (a division by 0)", "stop")
    elif sign == "/" and kind == "duckdb" and after.is_sign("/"):
        reading.words.setdefault("// (a division by 0)", "stop")
    # Nothing follows the sign in SAMPLE 10%.
    elif (
        sign == "%"
        and kind != "sqlite"
        and (after.kind in ("word", "name") or after == _OPENING)
    ):
        reading.words.setdefault("% (a division by 0)", "stop")
    # PostgreSQL has a type for JSON, in which every text is some.
    elif sign == "-" and kind in ("duckdb", "sqlite") and after.is_sign(">"):
        reading.words.setdefault("-> (of a text that is no JSON)", "stop")


def _note_word(
    word: str,
    before: _Token,
    following: Sequence[_Token],
    frame: _Frame,
    reading: _Reading,
) -> None:
    """Note the meaning of a word, unless it is part of a name, and the clause that it begins."""
    # IS DISTINCT FROM begins no clause.
    if word in _CLAUSES and frame.is_query and not before.is_word("DISTINCT"):
        frame.clause = word
    # IS DISTINCT, or IS NOT DISTINCT, compares two values.
    if word == "DISTINCT" and before.is_word("IS", "NOT"):
        return
    if word in _WORDS:
        reading.words.setdefault(word, _WORDS[word])
    elif word in _FOLLOWED:
        reason, pattern = _FOLLOWED[word]
        if re.fullmatch(pattern, following[0].text):
            shown_word = "GROUP BY" if word == "GROUP" else word
            reading.words.setdefault(shown_word, reason)


def _note_cast(word: str, target: _Token, kind: str, reading: _Reading) -> None:
    """Note a cast to a type that not every value can have; in SQLite none fails."""
    if kind != "sqlite" and target.text.lower() not in _TEXT_TYPES:
        reading.words.setdefault(word, "stop")


def _note_source(
    tokens: Sequence[_Token], place: int, frame: _Frame, reading: _Reading
) -> None:
    """Note the name at a place, if it ends the name of a source."""
    after = tokens[place + 1] if place + 1 < len(tokens) else _NO_TOKEN
    if after.is_sign("."):
        return
    # The first part of the name decides, by what is before it.
    start = place
    while start > 1 and tokens[start - 1].is_sign("."):
        start -= 2
    before = tokens[start - 1] if start else _NO_TOKEN
    is_in_list = frame.clause == "FROM" and before.is_sign(",")
    if before.is_word("FROM", "JOIN") or is_in_list:
        reading.sources.append(tokens[place].text.lower())


def moving_words(query: str, kind: str = "") -> dict[str, Reason]:
    """Return the words of a query by which a row may move other rows, each with the reason.

    Args:
        query: A SELECT.
        kind: The kind of the database: duckdb, sqlite or postgresql.

    Example:
        >>> moving_words("SELECT age, 'LIMIT' AS note FROM stays -- DISTINCT")
        {}
        >>> moving_words("SELECT ward, COUNT(*) FROM stays GROUP BY ward LIMIT 9")
        {'count()': 'values', 'GROUP BY': 'values', 'LIMIT': 'choice'}
    """
    return _read_query(query, kind).words


# Views

_VIEWS = {
    "sqlite": "SELECT name, sql AS text FROM sqlite_master WHERE type = 'view'",
    "duckdb": "SELECT view_name AS name, sql AS text FROM duckdb_views() WHERE NOT internal",
    "postgresql": (
        "SELECT viewname::text AS name, definition AS text FROM pg_views "
        "WHERE schemaname NOT IN ('pg_catalog', 'information_schema') "
        "UNION ALL SELECT matviewname::text, definition FROM pg_matviews "
        "UNION ALL SELECT relname::text, NULL FROM pg_class WHERE relkind = 'f'"
    ),
}


def query_warnings(database: Database) -> list[str]:
    """Return warnings about how one row may move others, in a query and in views it reads.

    Example:
        >>> stays = Database("sqlite:///ward.db", query="SELECT DISTINCT age FROM stays")
        >>> query_warnings(stays)[0]
        'the query has DISTINCT: which rows it gives depends on other rows. ...'
    """
    warnings: list[str] = []
    if database.query:
        reading = _read_query(database.query, database.kind)
        warnings += _sentences("the query", reading.words)
        sources = reading.sources
    else:
        table_name = database.table.rpartition(".")[2]
        sources = [table_name.strip('"').lower()]
    return [*warnings, *_view_warnings(database, sources)]


def _view_warnings(database: Database, sources: Sequence[str]) -> Iterator[str]:
    """Yield warnings about views that are read, and about views that these read."""
    try:
        rows = database.frame(_VIEWS[database.kind]).rows()
    except DataError:
        yield (
            "the database does not say which of its tables are views, so none was looked at. A "
            "view is a query, too, by which one row may move others"
        )
        return

    views = {str(name).lower(): text for name, text in rows}
    names_to_read = list(sources)
    names_read: set[str] = set()
    while names_to_read:
        name = names_to_read.pop(0)
        if name not in views or name in names_read:
            continue
        names_read.add(name)
        text = views[name]
        # A foreign table has no text, and of some views it is not shown to everybody.
        if not text:
            yield (
                f"the text of the view {name!r} cannot be read, so it was not looked at. A view is "
                "a query, too, by which one row may move others"
            )
            continue
        reading = _read_query(text, database.kind)
        yield from _sentences(f"the view {name!r}", reading.words)
        names_to_read += reading.sources


def _sentences(query_name: str, words: dict[str, Reason]) -> Iterator[str]:
    """Yield a sentence about each reason, and about what it means for a guarantee."""
    reasons = dict.fromkeys(words.values())
    parts = [
        f"{_words_of(words, reason)}: {_WHY[reason]}"
        for reason in reasons
        if reason != "stop"
    ]
    if parts:
        yield (
            f"{query_name} has {'; '.join(parts)}. The guarantee is for one row of what the query "
            "gives, and one row of the tables behind it may move several of these: choose and "
            "compute row by row (SELECT, WHERE, CASE), or be sure that one row or person makes one "
            "row"
        )
    if "stop" in reasons:
        yield (
            f"{query_name} has {_words_of(words, 'stop')}: {_WHY['stop']}. Leave such a column as "
            "it is, since the schema reads numbers and dates in texts and has a place for what is "
            "none"
        )


def _words_of(words: dict[str, Reason], reason: Reason) -> str:
    """List the words of one reason with commas; of many, the first six."""
    words_of_reason = []
    for word, word_reason in words.items():
        if word_reason == reason:
            words_of_reason.append(word)
    return listed(words_of_reason, 6)
