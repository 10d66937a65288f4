"""A party encodes its rows by its own facts, whatever it is sent."""

from dataclasses import replace

import msgspec
import pytest

import siloweave as sw
from siloweave.core.method import Setup
from siloweave.errors import WireError
from siloweave.federation.session import Session
from siloweave.methods.dp_sgd.messages import BeginTraining
from siloweave.protocols.schema import LEARNING
from siloweave.tables import Column, Schema
from siloweave.tables.features import Features
from tests.guarantees.test_private_rounds import ENCODER, Study, neighbours


@pytest.mark.parametrize(
    ("name", "fact"), [("low", 1.0), ("high", 1e3), ("missing", True), ("origin", 1)]
)
def test_a_party_encodes_by_its_own_facts_alone(name, fact):
    """Whether its rows fit others, or how many do, would show something of them unpaid."""
    own = Features.declared(ENCODER.schema)
    encodings = [
        msgspec.structs.replace(encoding, **{name: fact}) if hasattr(encoding, name) else encoding
        for encoding in own.encodings
    ]
    assert encodings != list(own.encodings)
    others = replace(own, encodings=tuple(encodings)).to_json()
    for sent in (
        others,
        Features.declared(Schema(ENCODER.schema.columns[:1]).with_fallbacks()).to_json(),
    ):
        refused(sent)


def line(centre, scale):
    return {"type": "line", "centre": centre, "scale": scale}


def curve(values, scores):
    return {"type": "curve", "values": values, "scores": scores}


UNSOUND = {
    "a number beyond float32": ("scale", curve([-1, 3, 4], [-1, 1, 1e300])),
    "a score for no value": ("scale", curve([-1, 4], [-1, 1, 2])),
    "scores that fall": ("scale", curve([-1, 3, 4], [1, 0, 2])),
    "a line through one point": ("scale", line(0, 0)),
    "a steep line": ("scale", line(0, 1e-200)),
    "steps without levels": ("scale", {"type": "steps", "values": [0, 1, 2], "levels": [0.5]}),
    "steps of no width": ("scale", {"type": "steps", "values": [0, 1, 2], "levels": [0, 0.5]}),
    "a mode of no width": (
        "scale", {"type": "modes", "means": [0, 1], "scales": [0, 1], "weights": [0.5, 0.5]},
    ),
    "modes without weights": (
        "scale", {"type": "modes", "means": [0, 1], "scales": [1, 1], "weights": [1]},
    ),
    "nothing at all": ("scale", None),
    "frequent values in no order": ("spikes", [2, 1]),
    "a choice among very many": ("spikes", [i / 1e6 for i in range(10**5)]),
}  # fmt: skip


@pytest.mark.parametrize("words", UNSOUND)
def test_no_value_fails_to_become_a_number(words):
    """Else the rows say, unpaid, whether one of them has it."""
    field, value = UNSOUND[words]
    whole = msgspec.json.decode(Features.declared(ENCODER.schema).to_json())
    whole["encodings"][0][field] = value
    refused(msgspec.json.encode(whole).decode())


@pytest.mark.parametrize(
    "change",
    [
        lambda encodings: encodings + encodings,
        lambda encodings: encodings[:1],
        lambda encodings: [encodings[0], {**encodings[1], "sizes": [3 * 10**6]}, encodings[2]],
    ],
)
def test_vectors_are_as_wide_as_the_schema_makes_them(change):
    """Else how many rows there are decides whether they fit into memory."""
    whole = msgspec.json.decode(Features.declared(ENCODER.schema).to_json())
    whole["encodings"] = change(whole["encodings"])
    refused(msgspec.json.encode(whole).decode())


def refused(sent):
    roster = neighbours()[0]
    run = Study().opened(roster)
    parties = Session(tuple(roster), run.wire, run="r")
    with pytest.raises(WireError, match=r"party 'p0'.*other facts than its own"):
        parties.ask(BeginTraining(sent, 100, 0.1))
    assert not any(len(site.ledger.entries) for site in run.sites.values())


@pytest.mark.parametrize("learned", [(), ("low",), ("high", "low"), ("low", "high")])
def test_bounds_that_a_party_is_sent_are_marked_as_learned(learned):
    """Rows beyond learned bounds are moved inside; others are refused, which shows, unpaid, that
    there are some, and a coordinator could ask for one bound after the other."""
    study = Schema((Column("sex", "boolean"), Column("age", "integer"))).with_fallbacks()
    setup = Setup(sw.TwoRound(), study, sw.Budget(1.0, 1e-6), ("north", "south"))
    age = Column("age", "integer", low=0, high=49, learned=learned)
    sent = replace(setup, schema=Schema((study["sex"], age)).with_fallbacks())
    if learned == ("low", "high"):
        assert LEARNING.accepts(setup, sent).schema == sent.schema
        return
    with pytest.raises(WireError, match=r"facts about age .* not marked as learned"):
        LEARNING.accepts(setup, sent)
    assert LEARNING.accepts(setup, setup) == setup
