"""A party that trains in private rounds encodes its rows by its own facts, whatever it is told."""

from dataclasses import replace

import msgspec
import pytest

from siloweave.algorithms.private_rounds import party
from siloweave.errors import WireError
from siloweave.federation import Parties
from siloweave.tables import Schema
from siloweave.tables.features import Features
from tests.guarantees.test_private_rounds import BUDGET, ENCODER, Study, begins, neighbours
from tests.guarantees.whole import run_of


@pytest.mark.parametrize(
    ("name", "fact"), [("low", 1.0), ("high", 1e3), ("missing", True), ("origin", 1)]
)
def test_a_party_encodes_by_its_own_facts_alone(name, fact):
    """Whether its rows fit others, or how many do, would tell of them, and nobody pays."""
    roster = neighbours()[0]
    run = run_of(roster, party(Study().made.kind), budget=BUDGET, facts=Study().facts())
    parties = Parties(tuple(roster), run.wire, run="r")
    own = Features.declared(ENCODER.schema)
    plans = [
        msgspec.structs.replace(plan, **{name: fact}) if hasattr(plan, name) else plan
        for plan in own.plans
    ]
    assert plans != list(own.plans)
    others = replace(own, plans=tuple(plans)).to_json()
    for told in (others, Features.declared(Schema(ENCODER.schema.columns[:1])).to_json()):
        with pytest.raises(WireError, match=r"party 'p0'.*other facts than its own"):
            parties.ask(begins(Study(), told))
    assert not any(len(site.ledger.entries) for site in run.sites.values())
