"""How far `Schema.detect` agrees with what a person declared.

python -m tests.tables.messy.agree tuned judge
"""

import json
import sys
from pathlib import Path

from siloweave.tables import Schema, encoding_of, read
from siloweave.tables.files import is_text_file

HERE = Path(__file__).parent
ALWAYS = ("kind", "decimals", "missing", "missing_values")
DEFAULTS: dict = {"decimals": None, "missing": False, "missing_values": [], "format": None}


def wrong(column, wanted):
    """The facts of a column in which the detection differs from the person."""
    found = {
        "kind": column.kind,
        "decimals": column.decimals,
        "missing": column.missing,
        "missing_values": sorted(column.missing_values),
        "format": column.format,
    }
    facts = {name: wanted.get(name, DEFAULTS.get(name)) for name in ALWAYS}
    if "format" in wanted or wanted["kind"] not in ("id", "text"):
        facts["format"] = wanted.get("format")
    bad = {}
    for name, value in facts.items():
        allowed = value if name == "format" and isinstance(value, list) else [value]
        if found[name] not in allowed:
            bad[name] = (found[name], value)
    return bad


def read_declared(path):
    """A file in the encoding that somebody declares who has looked at all of it."""
    return read(path, encoding=encoding_of(path)) if is_text_file(path) else read(path)


def compare(half):
    """Columns of all files of a half, and what is wrong with some."""
    columns, bad = 0, []
    for path in sorted((HERE / half).glob("*.json")):
        facts = json.loads(path.read_text())
        table = read_declared(path.with_name(facts["file"]))
        schema = Schema.detect(table)
        assert list(schema.names) == list(facts["columns"]), (path.name, schema.names)
        for name, wanted in facts["columns"].items():
            columns += 1
            if found := wrong(schema[name], wanted):
                bad.append((path.stem, name, found, schema[name].why))
    return columns, bad


if __name__ == "__main__":
    for half in sys.argv[1:] or ["tuned"]:
        columns, bad = compare(half)
        for one in bad:
            print(*one, sep=" | ")
        print(f"{half}: {columns - len(bad)} of {columns} columns agree")
