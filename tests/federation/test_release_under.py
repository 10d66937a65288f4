"""Paying once for many releases without protection, and asking each party something of its own."""

import pytest

from siloweave.errors import LedgerError, RosterError
from siloweave.federation.messages import Envelope, Released, Reply, Request
from siloweave.federation.session import Session
from siloweave.privacy.events import Gaussian, NonPrivate
from siloweave.privacy.ledger import Ledger
from tests.federation.sites import Sites
from tests.federation.small import site_of


class Told(Reply, frozen=True):
    value: Released[int]


class Tell(Request[Told], frozen=True):
    step: int


BARE = NonPrivate("as it is")


def tell(request, site):
    """Pays at the first step, and sends at all of them."""
    kept = site.recall("entry")
    if kept is None:
        kept = site.pay(BARE, "a number at every step").encode()
        site.remember("entry", kept)
    return Told(site.release_under(kept.decode(), lambda: 10 * request.step))


def session_of(sites, handler=tell, run="r"):
    return Session(tuple(sites), Sites(sites, {Tell: handler}), run=run)


def site(name="clinic"):
    return site_of(name, ledger=Ledger(name))


def test_one_entry_pays_for_all_steps():
    sites = {"clinic": site()}
    session = session_of(sites)
    assert [session.ask(Tell(k))[0].value.value for k in range(4)] == [0, 10, 20, 30]
    assert len(sites["clinic"].ledger.entries) == 1
    assert sites["clinic"].ledger.epsilon(1e-6) == float("inf")


@pytest.mark.parametrize(
    "entry",
    [
        lambda site: "0" * 64,
        lambda site: site.pay(Gaussian(sigma=5.0, sensitivity=1.0), "a bounded release"),
        lambda site: (
            site.ledger.charge(BARE, run="other", step="1", what="x", to="coordinator").hash
        ),
        lambda site: site.ledger.charge(BARE, run="r", step="9", what="x", to="someone else").hash,
    ],
    ids=["none", "bounded", "another run", "another receiver"],
)
def test_nothing_else_pays_for_a_step(entry):
    drawn = []

    def handler(request, site):
        return Told(site.release_under(entry(site), lambda: drawn.append(1) or 1))

    with pytest.raises(LedgerError, match="does not pay for what is asked in step 0"):
        session_of({"clinic": site()}, handler).ask(Tell(0))
    assert not drawn


def derived(request, site):
    """Pays, if asked to, and sends what follows from that."""
    if request.step != 1:
        site.pay(Gaussian(sigma=5.0, sensitivity=1.0), "a bounded release")
    return Told(site.release_derived(lambda: 3))


def test_what_follows_from_a_payment_of_the_same_answer_is_free_and_nothing_else_is():
    sites = {"clinic": site()}
    session = session_of(sites, derived)
    assert session.ask(Tell(0))[0].value.entry == sites["clinic"].ledger.entries[-1].hash
    with pytest.raises(LedgerError, match="step 1 of run r has paid for nothing"):
        session.ask(Tell(1))
    assert len(sites["clinic"].ledger.entries) == 1


def test_a_stored_stream_gives_the_same_draws_again_and_others_at_another_step():
    one = site()
    drawn = []
    for step in (0, 0, 1):
        one.begin(Envelope("r", step, "coordinator", "clinic", b""))
        one.store_entropy()
        drawn.append(one.entropy.bytes(16))
        assert one.entropy.private
    assert drawn[0] == drawn[1] != drawn[2]


def test_each_party_may_be_asked_something_of_its_own_in_one_step():
    sites = {"a": site("a"), "b": site("b"), "c": site("c")}
    session = session_of(sites)
    replies = session.ask_each({"c": Tell(3), "a": Tell(1)})
    assert [reply.value.value for reply in replies] == [30, 10]
    assert session.rounds == 1
    assert {name: t.messages for name, t in session.traffic.items()} == {"a": 1, "b": 0, "c": 1}
    for wrong in ({}, {"d": Tell(1)}):
        with pytest.raises(RosterError, match="the roster is"):
            session.ask_each(wrong)
