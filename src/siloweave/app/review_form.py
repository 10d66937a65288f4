"""A schema as a form of texts, and back: what `siloweave review` shows and is sent.

A fact whose text is as it was shown keeps its value, so that looking at a schema changes nothing.

**Guarantee**: none; nothing here reads a row.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any

import msgspec
from msgspec.structs import replace

from siloweave.errors import SchemaError
from siloweave.tables.cells import bound_text
from siloweave.tables.column import FACTS, LOW, Category, Column
from siloweave.tables.constraints import CategoryRanges, Constraint
from siloweave.tables.schema import Schema

TYPES = {
    "text": "text",
    "integer": "whole numbers",
    "number": "numbers",
    "boolean": "true and false",
}
"""Types of categories, and what they are called on the page."""
_MODELLED = ("categorical", "integer", "continuous", "boolean", "datetime")
KINDS_OF = {
    "low": ("integer", "continuous", "datetime"),
    "high": ("integer", "continuous", "datetime"),
    "categories": ("categorical", "boolean"),
    "category_type": ("categorical", "boolean"),
    "other": ("categorical",),
    "fallback": _MODELLED,
    "outside": _MODELLED,
    "format": ("integer", "continuous", "datetime", "id", "text"),
    "decimals": ("continuous",),
    "padded": ("categorical", "integer", "continuous"),
    "resolution": ("datetime",),
    "zone": ("datetime",),
}
"""The kinds of column that have a fact, by its field; all others have it in every kind."""


class ColumnForm(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """One column as the page shows it; an empty text stands for a fact that it does not have.

    Attributes:
        name: The column's name, which cannot be changed.
        is_known: Whether all of its facts were known without the rows.
        categories, missing_values: One a line.
        category_type: One of `TYPES`.
    """

    name: str
    is_known: bool = False
    kind: str = ""
    low: str = ""
    high: str = ""
    missing: bool = False
    categories: str = ""
    category_type: str = "text"
    other: str = ""
    fallback: str = ""
    outside: str = ""
    format: str = ""
    decimals: str = ""
    padded: str = ""
    resolution: str = ""
    zone: str = ""
    missing_values: str = ""


class ConstraintForm(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """What becomes of a constraint.

    Attributes:
        is_kept: Whether it stays.
        is_known: Whether it was known without the rows.
        lows, highs: Of ranges by a category: the bounds of each, in the file's order; empty texts
            for none. A category without both is taken out of the constraint.
    """

    is_kept: bool = True
    is_known: bool = False
    lows: tuple[str, ...] = ()
    highs: tuple[str, ...] = ()


class SchemaForm(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A schema as the page sends it.

    Attributes:
        version: Which content of the file it began with.
        columns: All columns, in the file's order.
        constraints: All constraints of the file, in its order.
        further: New constraints, one a line, each as the file writes it.
    """

    version: str
    columns: tuple[ColumnForm, ...]
    constraints: tuple[ConstraintForm, ...] = ()
    further: str = ""


class Problem(msgspec.Struct, frozen=True):
    """What is wrong with one field of a form.

    Attributes:
        message: What is wrong, and what to do.
        column: The number of the column, from 0; None for a constraint, or the whole schema.
        constraint: The number of the constraint, from 0; None for a column, or the whole schema.
        field: The field of the column's form, or "further"; empty for the column itself.
    """

    message: str
    column: int | None = None
    constraint: int | None = None
    field: str = ""


def form_of(column: Column) -> ColumnForm:
    """Return a column as texts.

    Example:
        >>> form = form_of(Column("age", "integer", low=17, high=90, from_data=("high",)))
        >>> form.low, form.high, form.is_known
        ('17', '90', False)
    """
    missing_values = [line_of(value) for value in column.missing_values]
    return ColumnForm(
        name=column.name,
        is_known=not column.from_data,
        kind=column.kind,
        low=_text(column.low),
        high=_text(column.high),
        missing=column.missing,
        categories="\n".join(map(line_of, column.categories)),
        category_type=_type_of(column),
        other=_category_text(column.other),
        fallback=_category_text(column.fallback),
        outside=column.outside or "",
        format=column.format or "",
        decimals=_text(column.decimals),
        padded=_text(column.padded),
        resolution=column.resolution or "",
        zone=column.zone or "",
        missing_values="\n".join(missing_values),
    )


def _text(value: Category | None) -> str:
    """Return a bound or a count as text; empty for none."""
    return "" if value is None else str(value)


def _category_text(value: Category | None) -> str:
    """Return a category as text; empty for none."""
    return "" if value is None else line_of(value)


def line_of(value: Category) -> str:
    r"""Return a category as one line of a text field.

    A text that a line would not show as it is stands in quotation marks, as in JSON.

    Example:
        >>> line_of("Ulm"), line_of(" x"), line_of(""), line_of(True)
        ('Ulm', '" x"', '""', 'true')
    """
    if isinstance(value, bool):
        return "true" if value else "false"
    if not isinstance(value, str):
        return repr(value)
    is_plain = value.isprintable() and value == value.strip() and value != ""
    if is_plain and not value.startswith('"'):
        return value
    return json.dumps(value, ensure_ascii=False)


def value_of(line: str, category_type: str) -> Category:
    """Return the category that a line stands for; SchemaError where it is of another type.

    Example:
        >>> value_of("17", "integer"), value_of("17", "text"), value_of('" x"', "text")
        (17, '17', ' x')
    """
    line = line.strip()
    if category_type == "text":
        if not line.startswith('"'):
            return line
        try:
            text: str = msgspec.json.decode(line, type=str)
        except msgspec.DecodeError:
            raise SchemaError(
                f"{line} begins with a quotation mark and is no text of JSON; end it with one, "
                r"and write a quotation mark inside as \""
            ) from None
        return text
    try:
        if category_type == "boolean":
            return {"true": True, "false": False}[line.lower()]
        if category_type == "integer":
            return int(line)
        return {"number": float}[category_type](line)
    except (ValueError, KeyError):
        type_name = TYPES.get(category_type, category_type)
        raise SchemaError(
            f"{line!r} does not fit categories that are {type_name}; correct it, or choose "
            "another type"
        ) from None


def _type_of(column: Column) -> str:
    """Return the type of a column's categories, as `TYPES` has it."""
    if not column.options:
        return "text"
    for kind, name in ((bool, "boolean"), (int, "integer"), (float, "number")):
        if isinstance(column.options[0], kind):
            return name
    return "text"


def edited(column: Column, form: ColumnForm) -> Column:
    """Return a column with the facts of a form that differ from those shown.

    A column that was known beforehand has no `from_data` and no `why` any more, as of
    `Schema.declared`. Of another kind it loses the facts that this kind has not.

    Raises:
        SchemaError: A fact cannot be read, or contradicts another one.
    """
    shown = form_of(column)
    changes: dict[str, Any] = {}
    for field in ColumnForm.__struct_fields__:
        if field in ("name", "is_known", "category_type"):
            continue
        if form.kind not in KINDS_OF.get(field, (form.kind,)):
            changes[field] = () if field == "categories" else None
        elif _differs(field, form, shown):
            changes[field] = _fact(column.name, field, form)

    if form.kind != column.kind:
        _adapt_fallback(column, form, changes)
    changed = {field for field in changes if changes[field] != getattr(column, field)}
    existing = [fact for fact in FACTS if form.kind in KINDS_OF.get(fact, (form.kind,))]
    changes["learned"] = tuple(fact for fact in column.learned if fact not in changed)
    changes["from_data"] = tuple(fact for fact in column.from_data if fact in existing)
    if form.is_known and column.from_data:
        changes["from_data"] = ()
        changes["why"] = ""
    return replace(column, **changes)


def _differs(field: str, form: ColumnForm, shown: ColumnForm) -> bool:
    """Return whether a field is not as it was shown; categories of another type differ, too."""
    names = [field]
    has_types = field in ("categories", "other", "fallback") and form.categories
    # Of another kind, a fallback that was not typed is adapted to it.
    if has_types and (field != "fallback" or form.kind == shown.kind):
        names.append("category_type")
    for name in names:
        text = _normal(name, getattr(form, name))
        if text != _normal(name, getattr(shown, name)):
            return True
    return False


def _normal(field: str, value: Any) -> Any:
    """Return a field's value as browsers send it: line ends are of one sort, or dropped."""
    if not isinstance(value, str):
        return value
    lines = value.splitlines()
    separator = "\n" if field in ("categories", "missing_values") else ""
    return separator.join(lines).strip()


def _adapt_fallback(column: Column, form: ColumnForm, changes: dict[str, Any]) -> None:
    """Replace the lower bound as a fallback by the first category, or the other way round.

    A fallback that was typed stays as it is.
    """
    if column.fallback is None or "fallback" in changes:
        return
    had_options = column.is_choice
    has_options = form.kind in ("categorical", "boolean")
    if had_options and not has_options:
        changes["fallback"] = LOW
    elif has_options and not had_options:
        categories = changes.get("categories") or column.categories or (False,)
        changes["fallback"] = categories[0]


def _fact(name: str, field: str, form: ColumnForm) -> Any:
    """Return the value of a field; SchemaError, which names column and field."""
    value = getattr(form, field)
    if field in ("kind", "missing"):
        return value
    lines = [line for line in value.splitlines() if line.strip()]
    try:
        if field == "categories":
            return tuple(value_of(line, form.category_type) for line in lines)
        if field == "missing_values":
            return tuple(value_of(line, "text") for line in lines)
        if not value.strip():
            return None
        return _single_fact(field, value.strip(), form)
    except SchemaError as error:
        raise SchemaError(f"column {name!r}: {field}: {error}") from None


def _single_fact(field: str, text: str, form: ColumnForm) -> Any:
    """Return the value of a field of one line that is not empty."""
    has_options = form.kind in ("categorical", "boolean")
    if field == "other" or (field == "fallback" and has_options):
        return value_of(text, form.category_type)
    if field in ("decimals", "padded"):
        return _number(text, (int,))
    is_number = form.kind in ("integer", "continuous")
    if field in ("low", "high", "fallback") and is_number and text != LOW:
        return _number(text, (int, float))
    # `Column` says what is wrong with it.
    return text


def _number(text: str, kinds: Sequence[type]) -> Any:
    """Return the number in a text, or the text itself, which `Column` refuses."""
    for kind in kinds:
        try:
            return kind(text)
        except ValueError:
            continue
    return text


def schema_of(base: Schema, form: SchemaForm) -> tuple[Schema | None, list[Problem]]:
    """Return the schema that a form makes of the one that it was shown with.

    Returns:
        The schema, as `Schema` reads it from a file; None, with the problems, if there are some.

    Raises:
        SchemaError: The form is not one of this schema.
    """
    names = tuple(column.name for column in form.columns)
    if names != base.names or len(form.constraints) != len(base.constraints):
        raise SchemaError(
            "the form has other columns or constraints than the schema; load the page again"
        )
    columns: list[Column] = []
    problems: list[Problem] = []
    for number, column in enumerate(base.columns):
        try:
            columns.append(edited(column, form.columns[number]))
        except SchemaError as error:
            message = str(error)
            field = _field_in(message)
            problems.append(Problem(message, column=number, field=field))
    if problems:
        return None, problems

    kept_rules = _kept_constraints(base, form)
    numbers = list(kept_rules)
    rules = list(kept_rules.values())
    try:
        rules += _further_constraints(form.further)
    except SchemaError as error:
        return None, [Problem(str(error), field="further")]
    try:
        schema = Schema(tuple(columns), tuple(rules))
        # As the file will be read: nothing is written that could not be opened again.
        return Schema.from_json(schema.to_json()), []
    except SchemaError as error:
        message = str(error)
        named = [place for place, rule in enumerate(rules) if rule.words in message]
        constraint = None
        if named:
            longest = max(named, key=lambda place: len(rules[place].words))
            if longest >= len(numbers):
                return None, [Problem(message, field="further")]
            constraint = numbers[longest]
        return None, [Problem(message, constraint=constraint)]


def _kept_constraints(base: Schema, form: SchemaForm) -> dict[int, Constraint]:
    """Return the constraints of the file that stay, by their number in it."""
    rules: dict[int, Constraint] = {}
    for number, rule in enumerate(base.constraints):
        choice = form.constraints[number]
        if isinstance(rule, CategoryRanges) and choice.lows:
            rule = _ranges_edited(rule, base[rule.column], choice)
        if choice.is_known and rule.from_data:
            rule = replace(rule, from_data=False, why="")
        if choice.is_kept:
            rules[number] = rule
    return rules


def _ranges_edited(
    rule: CategoryRanges, column: Column, choice: ConstraintForm
) -> CategoryRanges:
    """Return ranges with the bounds of a form that differ from those shown.

    Raises:
        SchemaError: The form has bounds of other categories.
    """
    if not len(choice.lows) == len(choice.highs) == len(rule.ranges):
        raise SchemaError(
            "the form has other ranges than the schema; load the page again"
        )
    ranges: list[Any] = []
    for number, (category, low, high) in enumerate(rule.ranges):
        new_low = _bound_edited(column, low, choice.lows[number])
        new_high = _bound_edited(column, high, choice.highs[number])
        if new_low is not None or new_high is not None:
            ranges.append((category, new_low, new_high))
    return replace(rule, ranges=tuple(ranges))


def _bound_edited(column: Column, bound: Any, text: str) -> Any:
    """Return a bound as it was, if its text is as it was shown; else what was typed."""
    text = text.strip()
    if text == bound_text(column, bound):
        return bound
    if not text:
        return None
    return text if column.is_datetime else _number(text, (int, float))


def _further_constraints(text: str) -> list[Constraint]:
    """Read new constraints, one a line; SchemaError for a line that cannot be read."""
    rules: list[Constraint] = []
    for number, line in enumerate(text.splitlines(), 1):
        if not line.strip():
            continue
        try:
            rule: Constraint = msgspec.json.decode(line, type=Constraint)
        except msgspec.MsgspecError as error:
            raise SchemaError(
                f"line {number} is no constraint: {error}. Write one as the schema's file has it, "
                "such as "
                '{"constraint": "inequality", "low": "admitted", "high": "discharged"}'
            ) from None
        # Whoever types it has not computed it from the rows.
        rules.append(replace(rule, from_data=False, why=""))
    return rules


def _field_in(message: str) -> str:
    """Return the field that an error is about: the first one that it names after the column."""
    words = message.partition("': ")[2]
    places = {}
    for field in ColumnForm.__struct_fields__:
        if field in ("name", "is_known", "category_type", "kind", "missing"):
            continue
        # "missing" also stands in many sentences that are about another fact.
        place = words.find(field)
        if place >= 0:
            places[field] = place
    if not places:
        return "kind"
    return min(places, key=lambda field: (places[field], -len(field)))
