"""56 files as people have them: what is proposed is what a person would declare."""

import inspect
import json
import sys
from pathlib import Path

import pytest
from tests.tables.messy.agree import HERE, compare, read_declared

from siloweave.tables import Schema

sys.path.append(str(Path(__file__).resolve().parents[2] / "benchmarks"))
import messy_files as make

FILES = sorted(HERE.glob("*/*.json"))


@pytest.mark.parametrize("half", ["tuned", "judge"])
def test_detection_agrees_with_a_person_on_95_percent_of_the_columns(half):
    columns, bad = compare(half)
    assert columns > 130
    assert len(bad) <= 0.05 * columns, bad


@pytest.mark.parametrize("path", FILES, ids=lambda path: path.stem)
def test_no_identifier_and_no_near_unique_text_is_listed(path):
    facts = json.loads(path.read_text())
    schema = Schema.detect(read_declared(path.with_name(facts["file"])))
    for name, wanted in facts["columns"].items():
        assert schema[name].why
        if wanted["kind"] in ("id", "text"):
            assert not schema[name].categories, name
            assert not schema[name].modelled, name


INVENTED = [path for path in FILES if ".table(" not in inspect.getsource(getattr(make, path.stem))]


@pytest.mark.parametrize("path", INVENTED, ids=lambda path: path.stem)
def test_the_script_makes_the_files_of_invented_people_again(path, tmp_path):
    columns, options = getattr(make, path.stem)(make.Maker(path.stem, tmp_path))
    make.write(tmp_path, path.stem, columns, **options)
    for made in tmp_path.iterdir():
        assert made.read_bytes() == path.with_name(made.name).read_bytes()
    assert len(list(tmp_path.iterdir())) == 2
