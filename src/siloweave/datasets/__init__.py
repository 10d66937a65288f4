"""The embedded real table: UCI Adult, 48,842 rows of 15 columns, CC BY 4.0 (see ADULT.txt)."""

from importlib.resources import as_file, files

from siloweave.tables.read import read
from siloweave.tables.schema import Schema
from siloweave.tables.table import Table

__all__ = ["adult", "adult_schema"]


def adult() -> Table:
    """Return the UCI Adult table; needs no network.

    Returns:
        48,842 rows (UCI's 32,561 training rows, then its 16,281 test rows) of 15 columns. Becker
        and Kohavi, 1996, https://doi.org/10.24432/C5XW20.

    Example:
        >>> adult().num_rows
        48842
    """
    file = files("siloweave.datasets") / "adult.parquet"
    with as_file(file) as path:
        return read(path)


def adult_schema() -> Schema:
    """Return the reviewed schema of `adult`: UCI's categories, and the bounds of the public table.

    The bounds of each number are the least and the largest value in `adult`, which anyone can
    read. In a study of your own rows such bounds would publish two values that no ε covers: round
    them outwards, to what was known without the rows (ages 0 to 120).

    Example:
        >>> adult_schema()["age"].low, adult_schema()["workclass"].missing
        (17, True)
    """
    file = files("siloweave.datasets") / "adult_schema.json"
    with as_file(file) as path:
        return Schema.from_json(path.read_bytes())
