"""Parties agree on a schema: they compare what they declare, and pay for what they learn."""

from dataclasses import replace
from itertools import product

import numpy as np
import pytest

from siloweave.core.party import OwnerData
from siloweave.errors import BudgetError, InputError, SchemaError
from siloweave.federation.session import Session
from siloweave.privacy.accountants import Tally
from siloweave.privacy.budget import Budget, Neighbours, Relation, rho_for
from siloweave.privacy.events import SharedGaussian, ThresholdGaussian
from siloweave.privacy.mechanisms import SeededEntropy
from siloweave.protocols import schema as schemas_module
from siloweave.protocols.schema import (
    HANDLERS,
    Learning,
    agree_schema,
    clipped,
    magnitudes,
    naming_event,
    open_facts,
)
from siloweave.tables import Column, Encoder, Schema, Table
from tests.federation.rosters import site_with, terms_of
from tests.federation.sites import Sites
from tests.guarantees.replay import record, replay

LIMIT = Budget(epsilon=2.0, delta=1e-5)
LEARNING = Learning(rho=0.9 * rho_for(Budget(epsilon=2.0, delta=9e-6)), delta=1e-6)
SEX = Column("sex", "categorical", categories=("f", "m"))
TOWN = Column("town", "categorical", categories=("?",), other="?", missing=True)
AGE = Column("age", "integer")
PAY = Column("pay", "continuous", missing=True)
SCHEMA = Schema((SEX, TOWN, AGE, PAY)).with_fallbacks()


def rows(towns, ages, pay, sexes=None):
    sexes = sexes or ["f"] * len(towns)
    gone = np.array([t is None for t in towns], dtype=bool)
    lost = np.isnan(np.array(pay, dtype=float))
    return Table.from_columns(
        {
            "sex": (np.array(sexes, dtype=object), None),
            "town": (np.array(towns, dtype=object), gone),
            "age": (np.array(ages, dtype=np.int64), None),
            "pay": (np.array(pay, dtype=float), lost),
        }
    )


def clinics(seed=0, parties=3, number=2000):
    rng = np.random.default_rng(seed)
    tables = []
    for k in range(parties):
        towns = rng.choice(["Ulm", "Bonn", f"only{k}", None], p=[0.5, 0.2, 0.2, 0.1], size=number)
        towns[0] = f"rare{k}"
        pay = rng.uniform(-900, 3000, size=number)
        pay[:5] = np.nan
        tables.append(rows(list(towns), rng.integers(18, 90, size=number), pay))
    return tables


def study(tables, *, limit=LIMIT, schemas=None, seed=0, run="r", tolerated=1):
    terms, sites = terms_of([f"p{k}" for k in range(len(tables))], tolerated=tolerated), {}
    for k, table in enumerate(tables):
        held = OwnerData(table, schemas[k] if schemas else SCHEMA)
        entropy = SeededEntropy(100 * seed + k)
        sites[f"p{k}"] = site_with(f"p{k}", held, terms, limit=limit, entropy=entropy)
    return Session(list(sites), Sites(sites, HANDLERS), run=run), sites


def test_what_is_declared_alike_is_agreed_on_for_free():
    declared = Schema((SEX, Column("age", "integer", low=0, high=120))).with_fallbacks()
    parties, sites = study(clinics(), schemas=[declared] * 3)
    assert agree_schema(parties, declared) == declared
    assert all(not site.ledger.entries for site in sites.values())


def test_who_declares_something_else_is_named_with_the_columns():
    other = Schema((SEX, TOWN, Column("age", "integer", low=0, high=99), PAY)).with_fallbacks()
    fewer = Schema((SEX, TOWN, AGE)).with_fallbacks()
    parties, _ = study(clinics(), schemas=[SCHEMA, other, fewer])
    with pytest.raises(SchemaError) as caught:
        agree_schema(parties, SCHEMA, LEARNING)
    text = str(caught.value)
    assert "party 'p1', column 'age': low None against 0" in text
    assert "party 'p2', column 'pay': only in the first" in text
    assert "'p0'" not in text


def test_unreviewed_facts_do_not_leave_the_party():
    guessed = Schema((SEX, TOWN, AGE, replace_column(PAY, from_data=("missing",)))).with_fallbacks()
    parties, _ = study(clinics(parties=1), schemas=[guessed])
    with pytest.raises(SchemaError, match=r"'p0': facts about pay were taken from data"):
        agree_schema(parties, SCHEMA, LEARNING)


def replace_column(column, **facts):
    return Column(**{f: getattr(column, f) for f in column.__struct_fields__} | facts)


def test_open_facts_need_a_budget():
    assert list(open_facts(SCHEMA)) == ["town", "age", "pay"]
    parties, sites = study(clinics())
    with pytest.raises(SchemaError, match="leaves facts open: town, age, pay"):
        agree_schema(parties, SCHEMA)
    assert all(not site.ledger.entries for site in sites.values())
    for wrong in ({"rho": 0.0}, {"delta": 0.0}, {"delta": 1.0}):
        with pytest.raises(InputError):
            replace(LEARNING, **wrong)


@pytest.mark.parametrize("parties", [1, 3])
def test_open_facts_are_learned_and_paid_for(parties):
    tables = clinics(parties=parties)
    joined, sites = study(tables)
    agreed = agree_schema(joined, SCHEMA, LEARNING)
    assert agreed["sex"] == SCHEMA["sex"]
    expected = sorted(["Bonn", "Ulm", *(f"only{k}" for k in range(parties))])
    assert agreed["town"].categories == (*expected, "?")
    assert (agreed["age"].low, agreed["age"].high) == (16, 127)
    assert (agreed["pay"].low, agreed["pay"].high) == (-1024.0, 4096.0)
    assert {c.name: c.learned for c in agreed.columns} == {
        "sex": (),
        "town": ("categories",),
        "age": ("low", "high"),
        "pay": ("low", "high"),
    }
    assert not any(c.from_data for c in agreed.columns)
    assert Schema.from_json(agreed.to_json()) == agreed
    for site in sites.values():
        kinds = [type(event) for event in site.ledger.events]
        assert kinds == [ThresholdGaussian, SharedGaussian]
        assert site.ledger.rho <= LEARNING.rho * (1 + 1e-9)
        assert site.ledger.rho > LEARNING.rho * 0.999
        assert Tally(site.ledger.events).delta <= LEARNING.delta
        assert 0 < site.ledger.epsilon() <= LIMIT.epsilon
    for table in tables:
        Encoder(agreed).encode(clipped(table, agreed))


def test_rare_values_are_not_named():
    agreed = agree_schema(study(clinics())[0], SCHEMA, LEARNING)
    assert not any(str(v).startswith("rare") for v in agreed["town"].categories)


def test_an_empty_party_and_one_without_values_take_part():
    tables = [clinics()[0], rows([], [], []), rows([None] * 3, [5] * 3, [np.nan] * 3)]
    agreed = agree_schema(study(tables)[0], SCHEMA, LEARNING)
    assert agreed["town"].categories == ("Bonn", "Ulm", "only0", "?")


def test_too_few_rows_to_learn_bounds_is_said():
    parties, _ = study([rows(["Ulm"], [40], [1.0])])
    with pytest.raises(SchemaError, match="column 'age': no size of number is held by more than"):
        agree_schema(parties, SCHEMA, LEARNING)


def test_values_of_another_type_than_other_are_read_as_it():
    """Whole numbers under categories of text are their digits, whatever type holds them."""
    codes = Schema((Column("age", "categorical", categories=("?",), other="?"),)).with_fallbacks()
    parties, _ = study(clinics(parties=1), schemas=[codes])
    named = agree_schema(parties, codes, LEARNING)["age"].categories
    assert named[-1] == "?"
    assert all(value.isdecimal() for value in named[:-1])
    assert len(named) > 1


def test_a_budget_that_is_spent_stops_before_anything_is_drawn():
    parties, sites = study(clinics(), limit=Budget(epsilon=0.05, delta=1e-5))
    with pytest.raises(BudgetError, match="Nothing was released"):
        agree_schema(parties, SCHEMA, LEARNING)
    assert all(not site.ledger.entries for site in sites.values())


def test_a_threshold_below_the_delta_of_the_party_is_refused():
    parties, _ = study(clinics(), limit=Budget(epsilon=2.0, delta=1e-8))
    with pytest.raises(BudgetError):
        agree_schema(parties, SCHEMA, replace(LEARNING, rho=1e-3, delta=1e-6))


@pytest.mark.parametrize("kind", ["integer", "continuous"])
def test_every_number_lies_inside_the_bounds_of_its_bin(kind):
    column = Column("age", kind)
    for value in [-(2**61), -5, -1, 0, 1, 2, 3, 4, 1000, 2**40]:
        table = Table.from_columns(
            {"age": (np.full(500, value, dtype=np.int64 if kind == "integer" else float), None)}
        )
        schema = Schema((column,)).with_fallbacks()
        agreed = agree_schema(study([table], schemas=[schema])[0], schema, LEARNING)
        low, high = agreed["age"].low, agreed["age"].high
        assert low <= value <= high
        assert high - low <= abs(value)
    assert magnitudes(column).size < 130


def test_numbers_of_the_largest_size_still_give_bounds():
    schema = Schema((AGE,)).with_fallbacks()
    table = Table.from_columns({"age": (np.array([2**62, -(2**62)] * 300), None)})
    agreed = agree_schema(study([table], schemas=[schema])[0], schema, LEARNING)
    assert (agreed["age"].low, agreed["age"].high) == (1 - 2**62, 2**62 - 1)
    assert set(clipped(table, agreed).values("age").tolist()) == {1 - 2**62, 2**62 - 1}


# Guarantee: record on one table, replay on a neighbour.


def pair(table, other, relation):
    """How far the first party's inputs moved, and its ledger: same calls and same charges."""
    limit = Budget(epsilon=2.0, delta=1e-5, relation=relation)
    learning = replace(LEARNING, neighbours=Neighbours(relation))
    background = clinics(seed=5, parties=1, number=300)[0]
    ledgers = []

    def run(mine):
        parties, sites = study([mine, background], limit=limit)
        ledgers.append(sites["p0"].ledger)
        agree_schema(parties, SCHEMA, learning)

    tape = record(lambda: run(table))
    twin = replay(tape, lambda: run(other))
    assert ledgers[0].events == ledgers[1].events
    return twin, ledgers[0]


def neighbours(seed):
    """Same values named or not, one row more or another row."""
    rng = np.random.default_rng(seed)
    number = int(rng.integers(5, 40))
    towns = [*rng.choice(["Ulm", "Bonn", None], size=number - 3), "Ulm", "Bonn", None]
    ages, pay = rng.integers(-3, 99, size=number), rng.normal(0, 100, size=number)
    more = rows([*towns, "Ulm"], [*ages, 2**40], [*pay, np.nan])
    swapped = rows(["Bonn", *towns[1:]], [77, *ages[1:]], [-1e30, *pay[1:]])
    base = rows(towns, ages, pay)
    yield base, more, Relation.ADD_REMOVE
    yield more, base, Relation.ADD_REMOVE
    yield base, swapped, Relation.REPLACE_ONE


@pytest.mark.parametrize("seed", range(6))
def test_neighbours_with_the_same_values_are_as_close_as_was_paid_for(seed):
    for table, other, relation in neighbours(seed):
        unit = 1.0 if relation is Relation.ADD_REMOVE else 2**0.5
        twin, ledger = pair(table, other, relation)
        named, _, sized, _ = twin.distances("l2")
        assert named <= unit * (1 + 1e-9)
        assert sized <= unit * 2**0.5 * (1 + 1e-9)
        spent = [
            named**2 / (2 * ledger.events[0].sigma ** 2),
            sized**2 / (2 * ledger.events[1].sigma_total ** 2),
        ]
        for cost, event in zip(spent, ledger.events, strict=True):
            assert cost <= event.rho * (1 + 1e-9)


def test_a_value_that_one_neighbour_lacks_passes_with_at_most_delta():
    """Its count is 1, so its chance is a tail of the noise; the rest of the release is the same."""
    sigma, threshold = 3.0, LEARNING.threshold(3.0, 1)
    event = ThresholdGaussian(sigma=sigma, sensitivity=1.0, threshold=threshold)
    masses = np.exp(-(np.arange(-200, 201) ** 2) / (2 * sigma**2))
    tail = masses[np.arange(-200, 201) + 1 >= threshold].sum() / masses.sum()
    assert tail <= Tally([event]).delta <= LEARNING.delta


@pytest.mark.parametrize("k", [2, 5, 20])
def test_the_threshold_for_a_person_is_the_lowest_that_her_rows_allow(k):
    """Her k rows may bring k new values, or one value k times, or anything between."""
    learning = replace(LEARNING, neighbours=Neighbours(rows=k))
    for sigma, columns in product((1.0, 3.0, 40.0), (1, 4)):
        threshold = learning.threshold(sigma, columns)
        assert threshold > LEARNING.threshold(sigma, columns)
        event = naming_event(learning.neighbours, sigma, threshold)
        assert event.sensitivity == k
        assert event.delta <= LEARNING.delta / columns
        lower = naming_event(learning.neighbours, sigma, threshold - 1)
        assert lower.delta > LEARNING.delta / columns


def test_a_person_with_all_her_rows_is_as_close_as_was_paid_for():
    """Record and replay with one person of three rows more, whose values others hold, too."""
    limit = Budget(epsilon=9.0, delta=1e-5, unit="patient", rows_per_unit=3)
    learning = replace(LEARNING, rho=9 * LEARNING.rho, neighbours=limit.neighbours)
    background = clinics(seed=5, parties=1, number=300)[0]
    towns, ages = ["Ulm", "Bonn", None] * 4, list(range(12))
    base = rows(towns, ages, [1.0] * 12)
    more = rows([*towns, "Ulm", "Ulm", "Ulm"], [*ages, 9, 9, 9], [1.0] * 15)
    ledgers = []

    def run(mine):
        parties, sites = study([mine, background], limit=limit)
        ledgers.append(sites["p0"].ledger)
        agree_schema(parties, SCHEMA, learning)

    tape = record(lambda: run(base))
    twin = replay(tape, lambda: run(more))
    assert ledgers[0].events == ledgers[1].events
    named, _, sized, _ = twin.distances("l2")
    assert (named, sized) == (3.0, pytest.approx(3.0 * 2**0.5))
    spent = [event.rho for event in ledgers[0].events]
    assert named**2 / (2 * ledgers[0].events[0].sigma ** 2) <= spent[0] * (1 + 1e-9)
    assert sized**2 / (2 * ledgers[0].events[1].sigma_total ** 2) <= spent[1] * (1 + 1e-9)


def test_only_values_that_occur_get_noise():
    """Noise on all of a public list would name values that nobody holds."""
    table = rows(["Ulm"] * 50 + ["new"], [40] * 51, [1.0] * 51)
    schema = Schema(
        (SEX, TOWN, replace_column(AGE, low=0, high=99), declared_pay())
    ).with_fallbacks()
    tape = record(lambda: agree_schema(study([table], schemas=[schema])[0], schema, LEARNING))
    (noise,) = (c for c in tape.calls if c.name == "add_gaussian")
    assert sorted(noise.values.tolist()) == [1, 50]


def declared_pay():
    return replace_column(PAY, low=0.0, high=1e4)


# Mutants.


def test_a_list_that_depends_on_a_single_row_is_noticed(monkeypatch):
    """Half the threshold: a value that one row holds is named once in a few runs."""
    monkeypatch.setattr(Learning, "threshold", lambda self, sigma, columns: 2)
    parties, _ = study(clinics())
    with pytest.raises(BudgetError, match="would have spent inf"):
        agree_schema(parties, SCHEMA, LEARNING)


def of_one_row(neighbours, sigma, threshold):
    return ThresholdGaussian(sigma, 1.0, threshold)


def test_the_forgotten_square_root_of_two_is_noticed(monkeypatch):
    monkeypatch.setattr(schemas_module, "naming_event", of_one_row)
    base, other = [rows(["Ulm", "Bonn", t], [1] * 3, [1.0] * 3) for t in ("Ulm", "Bonn")]
    twin, ledger = pair(base, other, Relation.REPLACE_ONE)
    named = twin.distances("l2")[0]
    assert named**2 / (2 * ledger.events[0].sigma ** 2) > 1.9 * ledger.events[0].rho


def test_noise_that_is_left_out_is_noticed(monkeypatch):
    base = rows(["Ulm", "Ulm"], [40, 40], [1.0, 1.0])
    more = rows(["Ulm"] * 3, [40] * 3, [1.0] * 3)
    monkeypatch.setattr(schemas_module, "mechanisms", Bare)
    twin, _ = pair(base, more, Relation.ADD_REMOVE)
    assert len(twin.distances("l2")) == 2  # four without the mutant


class Bare:
    """No noise at all."""

    @staticmethod
    def add_gaussian(values, sigma, *, entropy):
        return values
