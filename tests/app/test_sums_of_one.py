"""A coordinator that asks parties for sums over fewer of them than the study's settings say."""

from contextlib import contextmanager

import pytest

from siloweave.app.network import office_in, provision
from siloweave.core.run import open_session
from siloweave.core.settings import agreed
from siloweave.errors import SiloweaveError
from siloweave.federation.spool import Spool
from siloweave.privacy.ledger import Ledger
from siloweave.protocols.histograms import CountColumns
from siloweave.protocols.secure_sums import KeyRequest, OpenSum
from tests.app.processes import Ends, small, told, until

NAMES = ("north", "south", "east", "west", "centre")
SIGMA = 40.0


@contextmanager
def asking(folder, names, dropouts=0):
    """Parties in processes of their own, and a session of a coordinator that asks what it likes."""
    small(folder, names, **({"dropouts": dropouts} if dropouts else {}))
    made = provision(folder.path, folder.path / "ends", trial=True)
    spool = folder.path / "spool"
    office = office_in(made["coordinator"])
    setup, job = office.study.setup(), office.study.job(noise="seeded")
    stage = next(one for one in setup.synth.method.before if one.name == "bins")
    with Ends(folder.path, made, lambda name: ["--spool", str(spool)]) as ends:
        for name in ends.parties:
            ends.start(name)
        until(lambda: all("waiting for the first question" in ends.said(name) for name in names))
        carrier = office.carrier(Spool(spool, office.seals, seconds=100.0, pause=0.05))
        facts = agreed(office.study.facts())
        with open_session(stage.plan(setup), job, carrier, facts) as session:
            yield session, ends


def keys_of(session, names):
    replies = session.ask(KeyRequest(), names)
    return {name: reply.key.value for name, reply in zip(names, replies, strict=True)}


def paid(ends, name):
    return Ledger.read(ends.made[name] / "ledger.jsonl").entries


@pytest.mark.parametrize(
    "cohort",
    [
        pytest.param(("north",), id="alone", marks=pytest.mark.slow),
        pytest.param(("north", "south"), id="two of three"),
    ],
)
def test_a_party_adds_to_no_sum_over_fewer_parties_than_the_study_says(folder, cohort):
    """Alone, its words would be unmasked: the coordinator would read its own noisy counts."""
    with asking(folder, NAMES[:3]) as (session, ends):
        keys = keys_of(session, NAMES[:3])
        few = {name: keys[name] for name in cohort}
        request = CountColumns(few, SIGMA, session.plan(few).missing)
        with pytest.raises(SiloweaveError, match=r"fewer than 3\. Nothing was released"):
            session.ask(request, ["north"])
        until(lambda: "fewer than 3" in told(ends.said("north")))
        assert paid(ends, "north") == ()


def test_a_sum_does_not_open_over_fewer_parties_than_the_study_says(folder):
    """Who may vanish from a small sum is decided for it; of the study's parties more are gone."""
    with asking(folder, NAMES, dropouts=1) as (session, ends):
        keys = keys_of(session, NAMES)
        few = {name: keys[name] for name in NAMES[:4]}  # the study says so: one may be gone
        request = CountColumns(few, SIGMA, session.plan(few).missing)
        active = NAMES[:3]  # and now one more
        step = session.rounds
        replies = session.ask(request, active)
        shares = {n: r.sums.recovery.sealed["north"] for n, r in zip(active, replies, strict=True)}
        asked = OpenSum(step, active, ("west",), shares)
        with pytest.raises(SiloweaveError, match=r"fewer than 4\. Nothing was opened"):
            session.ask(asked, ["north"])
        until(lambda: "fewer than 4" in told(ends.said("north")))
