"""Check Schema.to_sdv and from_sdv against the packages of SDV 1 and 2 themselves.

SDV's licence restricts what may be built with it, so no code of ours imports it: each version has
an environment of its own, and this script runs itself there. Files of metadata go back and forth.

python -m venv sdv1 && sdv1/bin/pip install "sdv<2"
python -m venv sdv2 && sdv2/bin/pip install "sdv>=2"
python tools/check_sdv.py sdv1/bin/python sdv2/bin/python
"""

from __future__ import annotations

import json
import subprocess
import sys
import tempfile
import warnings
from pathlib import Path
from typing import Any

import pandas as pd

ROWS = 60
# Facts that metadata of version 2 have a key for.
SHARED = ("name", "kind", "categories", "low", "high", "missing", "decimals", "format")


def frame() -> pd.DataFrame:
    """Return a table with a column of each kind."""
    third = ROWS // 3
    days = pd.to_datetime(["2020-01-01", "2021-02-02", "2022-03-03"] * third)
    return pd.DataFrame(
        {
            "key": [f"P{i:03d}" for i in range(ROWS)],
            "sex": ["f", "m", "m"] * third,
            "city": ["a", None, "b"] * third,
            "stage": [3, 1, 2] * third,
            "age": list(range(20, 20 + ROWS)),
            "height": [1.5, 2.25, None] * third,
            "ill": [True, False, True] * third,
            "smokes": ["N", "Y", "N"] * third,
            "day": days,
            "seen": days + pd.Timedelta(hours=10, minutes=30),
            "born": days.strftime("%d.%m.%Y"),
            "short": [f"{day.day}.{day.month}.{day.year}" for day in days],
            "mail": [f"person{i}@example.org" for i in range(ROWS)],
            "note": [f"seen {i} times, then {i * i}" for i in range(ROWS)],
        }
    )


def inside(folder: Path) -> None:
    """Run in SDV's environment: read our files, fit to the table, and write SDV's own."""
    import sdv
    from sdv.metadata import Metadata
    from sdv.single_table import GaussianCopulaSynthesizer

    warnings.simplefilter("ignore")
    rows: Any = frame()
    version = int(sdv.__version__.partition(".")[0])
    if version == 2:
        rows = {"table": rows}

    ours = Metadata.load_from_json(folder / "ours.json")
    ours.validate()
    synthesizer = GaussianCopulaSynthesizer(ours)
    synthesizer.fit(rows)
    drawn = synthesizer.sample(20)
    assert len(drawn["table"] if version == 2 else drawn) == 20
    ours.save_to_json(folder / "saved.json")

    if version == 2:
        detected = Metadata.detect_from_dataframes(rows)
    else:
        detected = Metadata.detect_from_dataframe(rows)
    detected.save_to_json(folder / "detected.json")

    from sdv.cag import FixedCombinations, Inequality, Range

    rules = [Inequality("a", "b"), Range("a", "b", "c"), FixedCombinations(["a", "b"])]
    described = [rule.get_constraint_dict() for rule in rules]
    (folder / "constraints.json").write_text(json.dumps(described))
    (folder / "version").write_text(sdv.__version__)


def schema() -> Any:
    """Return the table's schema, as somebody would declare it."""
    from siloweave import Column, Schema

    columns = (
        Column("key", "id", format="P[0-9]{3}"),
        Column("sex", "categorical", ("f", "m")),
        Column("city", "categorical", ("a", "b", "c"), missing=True),
        Column("stage", "categorical", (1, 2, 3)),
        Column("age", "integer", low=0, high=120),
        Column("height", "continuous", low=0.5, high=2.5, missing=True, decimals=2),
        Column("ill", "boolean"),
        Column("smokes", "boolean", ("N", "Y")),
        Column("day", "datetime", low="2000-01-01", high="2024-12-31"),
        Column("seen", "datetime", low="2000-01-01T00:00:00", high="2024-12-31T23:59:59"),
        Column("born", "datetime", low="1900-01-01", high="2024-12-31", format="%d.%m.%Y"),
        Column("short", "datetime", low="1900-01-01", high="2024-12-31", format="%-d.%-m.%Y"),
        Column("mail", "text", format="email"),
        Column("note", "text"),
    )
    return Schema(columns).with_fallbacks()


def check(python: str) -> str:
    """Check one version's interpreter; return which version it is."""
    import siloweave as sw

    declared = schema()
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        probe = [python, "-c", "import sdv; print(sdv.__version__)"]
        version = subprocess.run(probe, check=True, capture_output=True, text=True).stdout.strip()
        major = int(version.partition(".")[0])
        text = json.dumps(declared.to_sdv(version=major))
        (folder / "ours.json").write_text(text)
        subprocess.run([python, __file__, "--inside", name], check=True, stdout=subprocess.DEVNULL)
        saved = json.loads((folder / "saved.json").read_text())
        detected = json.loads((folder / "detected.json").read_text())
        rules = json.loads((folder / "constraints.json").read_text())

    # What we wrote, as it is and as SDV saved it again.
    if major == 1:
        assert sw.Schema.from_sdv(json.loads(text)) == declared
    read = sw.Schema.from_sdv(saved, table=frame() if major == 1 else None)
    for column, original in zip(read, declared, strict=True):
        facts = ("name", "kind", "format") if major == 1 else SHARED
        for fact in facts:
            mine, theirs = getattr(original, fact), getattr(column, fact)
            # Two facts that SDV has no words for, as to_sdv documents.
            if (original.name, fact) in {("smokes", "kind"), ("short", "low"), ("short", "high")}:
                continue
            assert mine == theirs, (version, original.name, fact, mine, theirs)

    # What SDV detects, with the rows at hand.
    found = sw.Schema.from_sdv(detected, table=frame())
    print(f"SDV {version} detects:", ", ".join(f"{c.name} {c.kind}" for c in found))
    model = sw.GaussianCopula().fit(frame(), found)
    assert len(model.sample(20)) == 20
    if major == 2:
        # Its ranges are enough: no row is needed.
        assert sw.Schema.from_sdv(detected)["stage"].categories == (3, 1, 2)

    columns = {name: {"sdtype": "numerical"} for name in "abc"}
    kept = sw.Schema.from_sdv({"columns": columns, "constraints": rules}).constraints
    assert kept == (
        sw.Inequality("a", "b"),
        sw.Inequality("a", "b", strict=True),
        sw.Inequality("b", "c", strict=True),
        sw.FixedCombinations(("a", "b")),
    ), kept
    return version


def main() -> int:
    """Check every interpreter that is named."""
    if sys.argv[1:2] == ["--inside"]:
        inside(Path(sys.argv[2]))
        return 0
    if not sys.argv[1:]:
        print("Name the interpreters of environments with SDV 1 and SDV 2.")
        return 2
    for python in sys.argv[1:]:
        version = check(python)
        print(f"SDV {version} reads and writes what Schema.to_sdv and from_sdv do.")
    return 0


if __name__ == "__main__":
    sys.exit(main())
