"""A question of few bytes makes a party count no more cells than its own study implies."""

import numpy as np
import pytest

from siloweave.errors import WireError
from siloweave.federation import messages
from siloweave.federation.messages import Envelope
from siloweave.methods.distaim import party as distaim
from siloweave.methods.distaim.messages import OpenTables
from siloweave.methods.flaim import party as flaim
from siloweave.privacy.coins import Coins
from siloweave.privacy.events import PaidAhead
from siloweave.protocols import secure_sums
from siloweave.protocols.secure_sums import Count
from siloweave.protocols.workload import most_counted
from siloweave.tables import Codes
from siloweave.tables.codes import Domain
from tests.federation.rosters import site_with, terms_of

DOMAIN = Domain(tuple("abcde"), (400, 400, 400, 2, 2))
PAIRS = (("a", "b"), ("b", "c"), ("d", "e"))
FACTS = {"workload": PAIRS, "max_model_mb": 8.0, "variant": "oracle", "selection": "simulated"}
WIDE = ("a", "b", "c")  # 64,000,000 cells


class Counted(Codes):
    """Rows that note which tables were made."""

    made = ()

    def count(self, cliques):
        type(self).made += tuple(cliques)
        return super().count(cliques)


@pytest.fixture
def site(monkeypatch):
    monkeypatch.setattr(Counted, "made", ())
    for handlers in (flaim, distaim):
        monkeypatch.setattr(handlers, "marginal", lambda rows, q: rows.count([q])[0])
    rng = np.random.default_rng(0)
    rows = Counted(DOMAIN, tuple(rng.integers(0, s, 9).astype(np.uint16) for s in DOMAIN.sizes))
    return site_with("p", rows, terms_of(["p"], tolerated=0, facts=FACTS))


def asked(site, request, handlers):
    body = messages.encode(request)
    assert len(body) < 400
    frame = messages.encode(Envelope("r", 0, "coordinator", "p", body))
    return site.answer(frame, handlers)


def counting(*cliques):
    return Count({"p": b""}, 50.0, 0, cliques)


def test_what_a_study_counts_at_once_follows_from_its_workload_or_its_model():
    """All columns and pairs of the workload, or 8 bytes for each cell of the model."""
    sets = [*PAIRS, *((name,) for name in "abcde")]
    assert most_counted(DOMAIN, PAIRS, 1e-3) == sum(map(DOMAIN.size, sets)) == 321_208
    assert most_counted(DOMAIN, PAIRS, 8.0) == 1_000_000


@pytest.mark.parametrize(
    "cliques",
    [(WIDE,), (("a", "b"), *tuple(("a", "b", x) for x in "de"), ("a", "b", "d", "e"))],
)
def test_a_count_is_bounded_by_the_study(site, cliques):
    """One table that is too wide, or tables that are too many together."""
    with pytest.raises(WireError, match=r"workload and max_model_mb 1,000,000 cells at most"):
        asked(site, counting(*cliques), secure_sums.HANDLERS)
    assert Counted.made == ()
    asked(site, counting(*PAIRS), secure_sums.HANDLERS)
    assert set(PAIRS) <= set(Counted.made)


@pytest.mark.parametrize(
    "handlers", [flaim.HANDLERS, distaim.HANDLERS], ids=["flaim oracle", "distaim simulated"]
)
def test_exact_tables_are_those_of_the_workload(site, handlers):
    with pytest.raises(WireError, match="must be in the study's workload"):
        asked(site, secure_sums.CountExactly((WIDE,)), handlers)
    assert Counted.made == ()
    asked(site, secure_sums.CountExactly(PAIRS[2:]), handlers)
    assert Counted.made == PAIRS[2:]


def test_servers_toss_no_more_coins_than_a_message_holds(site, monkeypatch):
    def tossed(*_):
        raise AssertionError("coins were tossed")

    monkeypatch.setattr(distaim.products, "coin_bits", tossed)
    price = PaidAhead(1.0, 1e-9, 64, 1)
    many = OpenTables(
        (("a", "b"),), (Coins((1,), 2**12),), 1e-9, price, {"p": b""}, (b"", b""), b"", b""
    )
    with pytest.raises(WireError, match=r"655,360,000 coins; a message holds"):
        asked(site, many, distaim.HANDLERS)
