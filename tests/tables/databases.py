"""Tables written into databases of each kind, with what tests of them share."""

import os
import pwd
import shutil
import socket
import sqlite3
import subprocess
import tempfile
from contextlib import contextmanager
from pathlib import Path

import numpy as np
import pytest

from siloweave.errors import SchemaError
from siloweave.tables.codes import Encoder
from siloweave.tables.column import Column
from siloweave.tables.counted import counted
from siloweave.tables.database import Database
from siloweave.tables.read import read
from siloweave.tables.schema import Schema
from siloweave.tables.table import Table
from siloweave.tables.write import write

try:
    import duckdb
except ModuleNotFoundError:
    duckdb = None
needs_duckdb = pytest.mark.skipif(
    duckdb is None, reason="duckdb is not installed: pip install 'siloweave[sql]'"
)


def in_duckdb(table: Table, folder: Path, name: str = "visits") -> Database:
    """A table of a DuckDB file, of the types that a Parquet file has."""
    write(table, folder / "rows.parquet")
    with duckdb.connect(str(folder / "rows.duckdb")) as connection:
        rows = str(folder / "rows.parquet")
        connection.execute(f"CREATE TABLE {name} AS SELECT * FROM '{rows}'").fetchall()
    return Database(f"duckdb:///{folder / 'rows.duckdb'}", table=name)


def in_sqlite(table: Table, folder: Path, name: str = "visits") -> Database:
    """A table of a SQLite file, where datetimes are texts and booleans are 0 and 1."""
    columns = []
    for one in table.names:
        values = table.values(one)
        if values.dtype.kind == "M":
            values = np.datetime_as_string(values, unit="us")
        values = values.astype(object) if values.dtype.kind != "b" else values.astype(int)
        pairs = zip(values.tolist(), table.missing(one).tolist(), strict=True)
        columns.append([None if gone else value for value, gone in pairs])
    names = ", ".join(f'"{one}"' for one in table.names)
    marks = ", ".join("?" * len(columns))
    with sqlite3.connect(folder / "rows.sqlite") as connection:
        connection.execute(f"CREATE TABLE {name} ({names})")
        rows = zip(*columns, strict=True)
        connection.executemany(f"INSERT INTO {name} VALUES ({marks})", rows)
    connection.close()
    return Database(f"sqlite:///{folder / 'rows.sqlite'}", table=name)


ODD = Schema(
    (
        Column("age", "integer", low=-5, high=5000, missing=True),
        Column("big", "integer", low=-(2**40), high=2**40),
        Column("weight", "continuous", low=-1.7, high=12.3),
        Column("loss", "continuous", low=0, high=1e-3, missing=True),
        Column("ward's", "categorical", categories=("a'b", "ü", "", "x y", "rest"), other="rest"),
        Column("code", "categorical", categories=(3, 1, 7), missing=True),
        Column("dose", "categorical", categories=(0.1, 2.5, 1e-7)),
        Column("day", "datetime", low="1950-03-01", high="2030-12-31", missing=True),
        Column("when", "datetime", low="1969-12-31T20:00:00", high="1970-01-02T00:00:00"),
        Column("note", "text", missing=True),
        Column("id", "id"),
    )
)
"""A column of each kind, with bounds and names that are easily coded wrongly."""


def odd_table(rows: int = 4000, seed: int = 0) -> Table:
    """Rows of `ODD`, many of them on the edges of bins."""
    random = np.random.default_rng(seed)

    def some(share: float) -> np.ndarray:
        return random.random(rows) < share

    edges = np.concatenate([np.linspace(-1.7, 12.3, bins + 1) for bins in (7, 16, 100, 4096)])
    near = np.concatenate([edges, np.nextafter(edges, -9), np.nextafter(edges, 99)])
    weight = random.choice(near.clip(-1.7, 12.3), rows)
    day = random.integers(-7245, 22279, rows).astype("datetime64[D]").astype("datetime64[us]")
    second = random.integers(-14400, 86401, rows).astype("datetime64[s]").astype("datetime64[us]")
    loss = random.choice(np.linspace(0, 1e-3, 33), rows)
    loss[some(0.1)] = np.nan
    return Table.from_columns(
        {
            "age": (random.integers(-5, 5001, rows), some(0.1)),
            "big": (random.integers(-(2**40), 2**40 + 1, rows), None),
            "weight": (weight, None),
            "loss": (loss, None),
            "ward's": (random.choice(np.array(["a'b", "ü", "", "x y", "odd", "z"], object), rows),
                       None),
            "code": (random.choice([3, 1, 7], rows), some(0.2)),
            "dose": (random.choice([0.1, 2.5, 1e-7], rows), None),
            "day": (day, some(0.1)),
            "when": (second, None),
            "note": (np.array(["n"] * rows, object), some(0.5)),
            "id": (np.arange(rows), None),
        }
    )  # fmt: skip


# PostgreSQL

SECRET = "hunter2"
"""The password of the server."""
BINARIES = [*Path("/usr/lib/postgresql").glob("*/bin"), *map(Path, os.get_exec_path())]
HERE = next((one for one in BINARIES if (one / "initdb").exists()), None)


@contextmanager
def postgresql_server():
    """The address of a PostgreSQL server of these tests, on a free port of this machine.

    Its folder is not one of pytest's: another pytest that starts closes theirs to other users.
    """
    pytest.importorskip("adbc_driver_postgresql", reason="pip install 'siloweave[sql]'")
    if HERE is None:
        pytest.skip("PostgreSQL is not installed: there is no initdb; apt-get install postgresql")
    user: dict = {}
    if os.getuid() == 0:  # the server refuses to run as root
        other = next((p for p in pwd.getpwall() if p.pw_name in ("postgres", "nobody")), None)
        if other is None:
            pytest.skip("PostgreSQL does not run as root, and there is no user for it")
        user = {"user": other.pw_uid, "group": other.pw_gid, "extra_groups": []}
    folder = Path(tempfile.mkdtemp(prefix="postgresql-"))
    if user:
        os.chown(folder, user["user"], user["group"])
    (folder / "secret").write_text(SECRET)
    (folder / "secret").chmod(0o644)
    with socket.socket() as end:
        end.bind(("127.0.0.1", 0))
        port = end.getsockname()[1]
    made = [HERE / "initdb", "-D", folder / "data", "-U", "ana", "-A", "scram-sha-256",
            f"--pwfile={folder / 'secret'}"]  # fmt: skip
    subprocess.run(made, check=True, capture_output=True, cwd="/", **user)
    asked = f"-c listen_addresses=127.0.0.1 -p {port} -k {folder}"
    control = [HERE / "pg_ctl", "-D", folder / "data", "-l", folder / "log", "-w"]
    started = [*control, "-o", asked, "start"]
    subprocess.run(started, check=True, stdout=subprocess.DEVNULL, cwd="/", **user)
    try:
        yield f"postgresql://ana@127.0.0.1:{port}/postgres"
    finally:
        stopped = [*control, "-m", "immediate", "stop"]
        subprocess.run(stopped, check=True, stdout=subprocess.DEVNULL, cwd="/", **user)
        shutil.rmtree(folder, ignore_errors=True)


_STAY = Column("stay", "continuous", low=0, high=60, format="days", missing=True, decimals=2)
_INTERVALS = (
    "'2 days'", "'36 hours'", "'1 month 2 days'", "'-1 day'", "'0.001 seconds'", "NULL",
    "'2 days'", "'200000000 days'", "'-200000000 days'",
)  # fmt: skip
STAYS = (
    f"SELECT * FROM (VALUES {', '.join(f'(CAST({one} AS INTERVAL))' for one in _INTERVALS)}) "
    "AS v(stay)"
)
_IN_DAYS = [2, 1.5, 32, -1, 0.001 / 86_400, None, 2, 9.2e12 / 86_400, -9.2e12 / 86_400]


def check_intervals(database):
    """The database counts intervals as the table in memory is counted."""
    table = read(database)
    assert table.kind("stay") == "numbers"
    numbers, gone = table.floats("stay", "days")
    assert np.where(gone, -7.5, numbers) == pytest.approx(
        [-7.5 if days is None else days for days in _IN_DAYS]
    )
    encoder = Encoder(Schema((_STAY,)).placed(), 16)
    codes = encoder.encode(table).count([("stay",)])[0]
    assert codes[-1] == 1
    here = counted(database, encoder)
    assert here.count([("stay",)])[0].tolist() == codes.tolist()
    assert here.moved == {"stay": 3}
    whole = Encoder(Schema((Column("stay", "integer", low=0, high=60, format="hours"),)), 16)
    with pytest.raises(SchemaError, match="3 rows hold no whole number"):
        counted(database, whole)
