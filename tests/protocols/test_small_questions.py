"""A question of few bytes makes a party count no more cells than its own study implies."""

import tracemalloc
from itertools import combinations

import numpy as np
import pandas as pd
import pytest

from siloweave.errors import SchemaError, WireError
from siloweave.federation import messages
from siloweave.federation.messages import Envelope
from siloweave.methods.distaim import party as distaim
from siloweave.methods.distaim.messages import OpenTables
from siloweave.methods.flaim import party as flaim
from siloweave.methods.secure_two_round.method import SecureTwoRound
from siloweave.models.mrf import MRF
from siloweave.privacy import events
from siloweave.privacy.coins import Coins
from siloweave.privacy.events import PaidAhead
from siloweave.protocols import random_fields, secure_sums
from siloweave.protocols import secure_products as products
from siloweave.protocols.secure_marginals import party as secure_party
from siloweave.protocols.secure_marginals.messages import MeasureTables, NoisyTable
from siloweave.protocols.secure_marginals.party import secure_handlers
from siloweave.protocols.secure_sums import Count
from siloweave.protocols.workloads import StudyWorkload, most_counted
from siloweave.tables import Codes, Column, Schema, codes
from siloweave.tables.codes import Domain, Encoder
from tests.federation.rosters import site_with, terms_of
from tests.protocols.secure import budget_of, study_of

DOMAIN = Domain(tuple("abcde"), (400, 400, 400, 2, 2))
PAIRS = (("a", "b"), ("b", "c"), ("d", "e"))
FACTS = {"workload": StudyWorkload(PAIRS, 8.0), "variant": "oracle", "selection": "simulated"}
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


@pytest.mark.parametrize("coins", [Coins((1,), 2**12), Coins((2**15,), 128), Coins((1,), 2**25)])
def test_coins_whose_masses_take_long_are_refused_before_they_are_priced(site, coins, monkeypatch):
    monkeypatch.setattr(events, "cost_of", lambda *_: pytest.fail("coins were priced"))
    price = PaidAhead(1e9, 2.0**-20, 64, 1)
    one = OpenTables((("d",),), (coins,), 1e-9, price, {"p": b""}, (b"", b""), b"", b"")
    with pytest.raises(WireError, match=r"at most|a message holds"):
        asked(site, one, distaim.HANDLERS)


def test_what_a_stage_begins_with_makes_no_more_bins_than_fit(monkeypatch):
    """A text of 1.4 kB took 760 MB, before it was compared with the party's own."""
    columns = tuple(Column(f"c{i}", "continuous", low=0, high=1) for i in range(20))
    text = "".join(Encoder(Schema(columns), 16).to_json().split())
    assert len(text) < 1400
    assert Encoder.from_json(text.replace('"bins":16', '"bins":32')).bins == 32
    monkeypatch.setattr(codes, "edges_of", lambda *_: pytest.fail("edges were made"))
    with pytest.raises(SchemaError, match="all columns together have 83,886,080; give fewer"):
        Encoder.from_json(text.replace('"bins":16', '"bins":4194304'))


def test_errors_of_a_model_hold_one_table_at_a_time(monkeypatch):
    """What 900 bytes ask for may be 60 tables, each as large as the study's model."""
    rng = np.random.default_rng(0)
    domain = Domain(tuple("abcdef"), (12,) * 6)
    rows = Codes(domain, tuple(rng.integers(0, 12, 9).astype(np.uint16) for _ in domain.names))
    model = MRF(domain, {("a",): np.zeros(12)}, 9.0)
    cliques = tuple(combinations(domain.names, 5))
    site = site_with("p", rows, terms_of(["p"], tolerated=0))
    tracemalloc.start()
    random_fields.noisy_errors(model, cliques, 50.0, site)
    _, most = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert most < 5 * 8 * 12**5  # of six tables


# Secure marginals

COLUMNS = dict.fromkeys("abcdefghijkl", 16)
FINE = Schema(
    tuple(
        Column(name, "categorical", categories=tuple(map(str, range(size))))
        for name, size in COLUMNS.items()
    )
).with_fallbacks()
PARTS = {"north": "abcdefg", "south": "hijkl"}


@pytest.fixture
def shared(monkeypatch):
    """A study of secure marginals whose rows are shared, and what makes tables, which must not."""
    rng = np.random.default_rng(0)
    frame = pd.DataFrame({name: rng.choice(list(map(str, range(16))), 9) for name in COLUMNS})
    synth = SecureTwoRound(degree=2)
    study = study_of(frame, PARTS, budget_of(epsilon=4.0), schema=FINE, synth=synth)
    study.counts([("a", "h")], 400.0)
    for module, name in (
        (secure_party, "marginal"),
        (products, "root_seeds"),
        (products, "coin_bits"),
        (events, "cost_of"),
    ):
        monkeypatch.setattr(module, name, lambda *_, name=name: pytest.fail(f"{name} was called"))
    return study


def measured(study, name, *tables):
    request = MeasureTables(tables, {}, {}, {}, b"", b"")
    body = messages.encode(request)
    assert len(body) < 1200
    site = study.sites[name]
    step = study.secure.session.rounds
    frame = messages.encode(Envelope("r", step, "coordinator", name, body))
    return site.answer(frame, secure_handlers(study.secure.plan.synth))


@pytest.mark.parametrize(
    "tables",
    [
        [NoisyTable(tuple("abcdefg"), 1e3)],  # 2 GB at one party
        [NoisyTable(tuple(q), 1e3) for q in combinations("abcdefg", 5)],
        [NoisyTable(("a", "h"), weights=(1,) * 16, copies=128 * 256)],  # coins of one table
        [NoisyTable(("a", "b", "c", "h"), weights=(1,), copies=64)],  # words of shifted codes
    ],
)
@pytest.mark.parametrize("name", PARTS)
def test_a_party_makes_no_table_that_its_study_does_not_imply(shared, name, tables):
    before = shared.sites[name].ledger.entries
    with pytest.raises(WireError, match="more than its study implies, or a message holds"):
        measured(shared, name, *tables)
    assert shared.sites[name].ledger.entries == before
