"""44 files as people have them: what is proposed is what a person would declare."""

import json

import pytest
from tests.tables.messy.agree import HERE, compare

from siloweave.tables import Schema, read

FILES = sorted(HERE.glob("*/*.json"))


@pytest.mark.parametrize("half", ["tuned", "judge"])
def test_detection_agrees_with_a_person_on_95_percent_of_the_columns(half):
    columns, bad = compare(half)
    assert columns > 130
    assert len(bad) <= 0.05 * columns, bad


@pytest.mark.parametrize("path", FILES, ids=lambda path: path.stem)
def test_no_identifier_and_no_near_unique_text_is_listed(path):
    facts = json.loads(path.read_text())
    schema = Schema.detect(read(path.with_name(facts["file"])))
    for name, wanted in facts["columns"].items():
        assert schema[name].why
        if wanted["kind"] in ("id", "text"):
            assert not schema[name].categories, name
            assert not schema[name].modelled, name
