import json
import math

import msgspec
import pytest

from siloweave.errors import InputError
from siloweave.report.record import Association, Marginal, Record


def test_json_both_ways(record):
    assert Record.from_json(record.to_json()) == record


def test_infinite_cost_survives_json(make):
    record = make(private=False, epsilon_spent=math.inf)
    text = record.to_json()
    json.loads(text, parse_constant=lambda name: pytest.fail(f"{name} is no JSON"))
    assert Record.from_json(text).epsilon_spent == math.inf
    assert Record.from_json(text) == record


def test_words_in_settings_stay_words(make):
    record = make(settings={"name": "inf", "kind": "nan", "rate": "0.1", "many": ["1", "2"]})
    assert Record.from_json(record.to_json()).settings == record.settings


def test_frozen(record):
    with pytest.raises(AttributeError):
        record.title = "another"


def test_public_drops_the_owner_part_and_only_it(record):
    public = record.public()
    assert public.owner is None
    assert msgspec.structs.replace(public, owner=record.owner) == record


def test_digest_is_of_the_public_part(record, make):
    assert record.digest() == record.public().digest()
    assert record.digest() != make(title="another").digest()


@pytest.mark.parametrize("text", ["", "{", "[]", '"record"', '{"version": 1}', "null"])
def test_what_is_no_record_is_refused(text):
    with pytest.raises(InputError):
        Record.from_json(text)


@pytest.mark.parametrize("version", [0, 1, 2, "3", None])
def test_other_versions_are_refused_with_what_wrote_them(record, version):
    data = json.loads(record.to_json())
    data["version"] = version
    said = rf"version {version!r}, written by siloweave 0\.1\.0; .* reads version 4\. Make the"
    with pytest.raises(InputError, match=said):
        Record.from_json(json.dumps(data))


def test_unknown_field_is_refused(record):
    data = json.loads(record.to_json())
    data["rows"] = [[39, "Private"]]
    with pytest.raises(InputError, match="rows"):
        Record.from_json(json.dumps(data))


@pytest.mark.parametrize("epsilon", [-1.0, math.nan])
def test_impossible_epsilon_is_refused(make, epsilon):
    with pytest.raises(InputError, match="epsilon_spent"):
        make(epsilon_spent=epsilon)


def test_not_private_needs_a_reason(make):
    with pytest.raises(InputError, match="not_private_reason"):
        make(private=False, not_private_reason="")


def test_shapes_are_checked():
    with pytest.raises(InputError, match="'age' has 2 labels and 1 proportions"):
        Marginal(column="age", kind="integer", labels=("a", "b"), proportions=(1.0,))
    with pytest.raises(InputError, match="2 x 2"):
        Association(names=("a", "b"), values=((1.0, 0.5),))
