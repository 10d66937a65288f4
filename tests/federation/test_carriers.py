"""Every carrier has all members of the contract, and refuses a party that it does not know."""

import inspect

import pytest

from siloweave.core.run import open_here
from siloweave.errors import RosterError, WireError
from siloweave.federation.carriers.carrier import Carrier
from siloweave.progress import Stopwatch
from tests.synthesizers.networked import in_frames, jobs_of, setup_of
from tests.synthesizers.processes import in_processes
from tests.synthesizers.test_visibility import CASES

# Of every carrier; a new one is added here.
OPENERS = {"this process": open_here, "sealed frames": in_frames, "processes": in_processes}
MEMBERS = sorted(
    {name for name in (*vars(Carrier), *Carrier.__annotations__) if not name.startswith("_")}
)


@pytest.fixture(params=OPENERS)
def carrier(request, tmp_path):
    case = CASES["two_round"]
    setup, tables = setup_of(case)
    opened = OPENERS[request.param](setup, tables, jobs_of(case, folder=tmp_path / "run"))
    yield opened
    opened.close()


def test_a_carrier_has_every_member(carrier):
    assert MEMBERS == [
        "at_once", "close", "keys", "noticed", "open", "recall", "sealing", "send", "simulated",
        "sizes",
    ]  # fmt: skip
    for name in MEMBERS:
        assert hasattr(carrier, name), name
    for name in ("open", "send", "recall", "close"):
        wanted = list(inspect.signature(getattr(Carrier, name)).parameters)[1:]
        assert list(inspect.signature(getattr(carrier, name)).parameters) == wanted
    seen = []
    carrier.noticed = lambda name, why: seen.append((name, why))
    carrier.noticed("north", "late")
    assert seen == [("north", "late")]
    assert isinstance(carrier.sealing, Stopwatch)
    assert carrier.at_once >= 1


def test_an_unknown_party_is_not_sent_anything(carrier):
    with pytest.raises(RosterError, match="nobody"):
        carrier.send("nobody", b"frame")


def test_what_a_party_elsewhere_has_stored_is_its_own(carrier):
    if carrier.simulated:
        pytest.skip("all parties are in one process")
    with pytest.raises(WireError, match="elsewhere"):
        carrier.recall(next(iter(carrier.keys)), "run", ["name"])
