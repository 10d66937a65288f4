"""The table of what is tested names tests that there are, for every method over split columns."""

import re
from pathlib import Path

from siloweave.methods.registry import METHODS

HERE = Path(__file__).parent
TEXT = (HERE / "README.md").read_text("utf-8")


def missing(text):
    """Tests that a page names and that are nowhere."""
    named = set(re.findall(r"`([\w/]+\.py)::(test_\w+)`", text))
    files = {file: HERE.parents[1] / file if "/" in file else HERE / file for file, _ in named}
    there = {file: path.read_text("utf-8") if path.exists() else "" for file, path in files.items()}
    return sorted(f"{file}::{name}" for file, name in named if f"def {name}(" not in there[file])


def test_every_test_that_the_table_names_is_there():
    assert len(re.findall(r"::test_", TEXT)) > 25
    assert missing(TEXT) == []
    assert missing(TEXT + "`test_audit.py::test_nothing`") == ["test_audit.py::test_nothing"]


def test_every_private_method_over_split_columns_has_its_lines():
    titles = {
        method.title.replace(" ", "")
        for method in (synth.method for synth in METHODS.values())
        if method.split == "columns" and method.guarantee(synth_of(method)).kind == "dp"
    }
    assert titles == {"SecureTwoRound", "VertiMRF", "VertiGAN"}
    for title in titles:
        assert len(re.findall(rf"^\| {title}", TEXT, re.M)) >= 2, title


def synth_of(method):
    """The method with its own settings."""
    return METHODS[method.name]()
