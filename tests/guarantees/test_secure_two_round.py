"""SecureTwoRound on neighbours: whole runs over several parties, replayed, and mutants."""

from dataclasses import dataclass
from math import ceil
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
import pandas as pd
import pytest

from siloweave.federation import messages
from siloweave.federation.carriers.direct import Direct
from siloweave.federation.messages import Envelope, payments, reply_type
from siloweave.methods.secure_two_round.method import SecureTwoRound
from siloweave.privacy.accountants import of_one_person
from siloweave.privacy.budget import Budget, Relation, epsilon_of_rho, rho_for
from siloweave.privacy.events import Gaussian, SharedCoins, UpperBound
from siloweave.protocols.secure_marginals import messages as secure_messages
from siloweave.protocols.secure_marginals import party as secure_party
from siloweave.protocols.secure_marginals import plan as secure_plan
from siloweave.tables import Column, Schema
from tests.federation.sites import handlers_of
from tests.federation.small import reply_in
from tests.guarantees.opened import cost_of_opened, opening
from tests.guarantees.replay import DivergenceError, record, replay
from tests.guarantees.whole import paid_calls, plain, real_cost
from tests.protocols.secure import RELATIONS, SCHEMA, SPLITS, budget_of, people

NUMBERS = Schema((*SCHEMA.columns[:4], Column("g", "integer", low=0, high=99))).with_fallbacks()


@dataclass
class Run:
    """A fit, what opened in it, and what crossed the wire."""

    fitted: Any
    opened: list
    said: list
    unpaid: list


def run_of(frame, split, relation, *, schema=SCHEMA, before=None, epsilon=4.0, **settings):
    """One run whose noise and secrets come from a seed; `before` is what opened in its twin."""
    parts = {name: frame[list(own)] for name, own in split.items()}
    said, unpaid, send = [], [], Direct.send

    def sent(transport, name, frame):
        answer = send(transport, name, frame)
        body = messages.decode(frame, Envelope).body
        request = messages.decode_request(body, handlers_of(transport))
        reply = reply_in(answer, reply_type(type(request)))
        known = {entry.hash for entry in transport.parties[name].ledger.entries}
        unpaid.extend(payments(reply) - known)
        said.append((name, *shown(request), shown(reply)))
        return answer

    with opening(before) as tables, pytest.MonkeyPatch.context() as patch:
        patch.setattr(Direct, "send", sent)
        fitted = SecureTwoRound(final_sweeps=2, **settings).fit(
            parts, schema, budget=budget_of(relation, epsilon), noise="seeded", at_once=1
        )
    return Run(fitted, tables.found, said, unpaid)


def shown(message):
    """A message, but for words and ciphertext that are uniform to whoever does not hold a key."""
    if isinstance(message, secure_messages.Tables):
        return [plain(message.own), [one.value.shape for one in message.joint]]
    if type(message).__name__ == "Closed":
        return []  # moments and signatures; ledgers are compared below
    if hasattr(message, "deliveries"):
        hidden = {
            name: msgspec.structs.replace(one, data=bytes(len(one.data)))
            for name, one in message.deliveries.items()
        }
        message = msgspec.structs.replace(message, deliveries=hidden)
    values = [getattr(message, one) for one in message.__struct_fields__]
    sealed = hasattr(message, "rows") and not isinstance(message, messages.Request)
    is_begun = isinstance(message, secure_messages.Begun)
    return [plain(one) for one in values] if sealed or is_begun else values


def neighbours(relation, seed, schema=SCHEMA):
    """One row less, or another row, that differs in all columns."""
    frame = people(14, seed)
    if "g" in schema.names:
        rng = np.random.default_rng(seed)
        frame["g"] = rng.integers(0, 100, 14)
    if relation is Relation.ADD_REMOVE:
        return frame, frame[:-1]
    other = frame.copy()
    for column in schema.columns:
        if column.kind == "categorical":
            place = column.categories.index(frame[column.name].iloc[-1])
            other.loc[13, column.name] = column.categories[place - 1]
        else:
            other.loc[13, column.name] = 99 - int(frame[column.name].iloc[-1])
    return frame, other


def check(split, relation, seed=0, schema=SCHEMA, **settings):
    """Fail unless neighbours differ by what was paid for, and by nothing else; what they cost."""
    one, other = neighbours(relation, seed, schema)
    runs = []

    def again():
        runs.append(run_of(other, split, relation, schema=schema, before=runs[0].opened,
                           **settings))  # fmt: skip

    tape = record(lambda: runs.append(run_of(one, split, relation, schema=schema, **settings)))
    twin = replay(tape, again)
    first, second = runs
    for paid, (call, moved) in zip(paid_calls(tape), twin.moved, strict=True):
        assert paid.call is call
        cost = real_cost(paid, moved)
        assert cost <= paid.event.rho * (1 + 1e-9), f"{paid.event} was charged for {cost}"
    joint = cost_of_opened(first.opened, second.opened)
    events = {n: [e.event for e in entries] for n, entries in first.fitted.ledgers.items()}
    assert events == {n: [e.event for e in own] for n, own in second.fitted.ledgers.items()}
    total = sum(event.rho * event.count for event in of_one_person(events.values()))
    spent = twin.rho() + joint
    assert spent <= total * (1 + 1e-9)
    assert first.fitted.epsilon <= 4.0
    assert first.said == second.said, "something unpaid depends on the rows"
    assert not first.unpaid
    pd.testing.assert_frame_equal(first.fitted.sample(9, seed=0), second.fitted.sample(9, seed=0))
    opened = {table.event for table in first.opened}
    everyone = {e for own in events.values() for e in own if isinstance(e, SharedCoins)}
    assert opened == everyone, "what opened is what was charged"
    return spent / total


@pytest.mark.parametrize("relation", RELATIONS)
@pytest.mark.parametrize("split", ["two parties", "three parties", "a party per column"])
def test_a_row_moves_what_is_paid_for_and_nothing_else(split, relation):
    used = [check(SPLITS[split], relation, seed) for seed in range(2)]
    assert max(used) > 0.9, "the ledger is not far above what a row costs"


@pytest.mark.parametrize("relation", RELATIONS)
def test_columns_that_are_cut_by_noisy_counts_too(relation):
    split = {"north": ["a", "b"], "south": ["c", "d", "g"]}
    assert check(split, relation, schema=NUMBERS, bins=4) > 0.9


@pytest.mark.parametrize("split", ["two parties", "three parties"])
def test_to_other_parties_a_replaced_row_costs_at_most_twice_a_row_that_is_added(split):
    """They know who is in the table, so that of rows added or removed nothing protects them."""
    frame, other = neighbours(Relation.REPLACE_ONE, 0)
    runs, added = [], Relation.ADD_REMOVE
    tape = record(lambda: runs.append(run_of(frame, SPLITS[split], added)))
    twin = replay(
        tape,
        lambda: runs.append(run_of(other, SPLITS[split], added, before=runs[0].opened)),
    )
    first, second = runs
    assert first.said == second.said, "something unpaid depends on the rows"
    own = [[e.event for e in entries] for entries in first.fitted.ledgers.values()]
    rho = sum(e.rho * e.count for e in of_one_person(own) if not isinstance(e, UpperBound))
    spent = twin.rho()
    for one, two in zip(first.opened, second.opened, strict=True):
        spent += one.clear * one.event.rho * np.abs(two.counts - one.counts).sum()
    assert 1.8 * rho < spent <= 2 * rho * (1 + 1e-9)


def test_the_threat_model_says_what_twice_the_zcdp_is():
    twice = epsilon_of_rho(2 * rho_for(Budget(1.0, 1e-6)), 1e-6)
    page = Path(__file__).parents[2] / "docs" / "concepts" / "threat-model.md"
    assert f"ε = 1 becomes {ceil(twice * 1e3) / 1e3} at δ = 1e-6" in page.read_text("utf-8")


def test_no_row_and_one_run_alike():
    """Whether a run starts is seen by everyone."""
    frame, runs = people(1), []
    split = SPLITS["two parties"]
    tape = record(lambda: runs.append(run_of(frame, split, Relation.ADD_REMOVE)))
    replay(
        tape,
        lambda: runs.append(run_of(frame[:0], split, Relation.ADD_REMOVE, before=runs[0].opened)),
    )
    assert runs[0].said == runs[1].said


def related(rows=300):
    """Return rows whose columns follow one hidden number, so that pairs are worth their noise."""
    hidden = np.random.default_rng(0).integers(12, size=rows)
    return pd.DataFrame(
        {c.name: np.array(c.categories)[hidden % len(c.categories)] for c in SCHEMA.columns}
    )


def test_what_one_row_pays_is_divided_as_the_settings_say():
    fitted = run_of(related(), SPLITS["three parties"], Relation.ADD_REMOVE).fitted
    own = [[e.event for e in entries] for entries in fitted.ledgers.values()]
    together = of_one_person(own)
    assert [isinstance(e, UpperBound) for e in own[0]].count(True) == 1
    assert not any(isinstance(e, UpperBound) for entries in own[1:] for e in entries)
    shares = {kind: sum(e.rho * e.count for e in together if isinstance(e, kind))
              for kind in (UpperBound, Gaussian, SharedCoins)}  # fmt: skip
    total = sum(shares.values())
    assert shares[UpperBound] / total == pytest.approx(0.005, rel=0.1)
    assert shares[SharedCoins] > shares[Gaussian]
    assert 0.85 * 4.0 < fitted.epsilon <= 4.0


# Mutants


def charged_once(patch):
    """Two cells move where a row is replaced; one is charged."""
    patch.setattr(secure_plan.SecurePlan, "moved", 1)


def a_table_left_out(patch):
    honest = secure_plan.SecurePlan.event

    def event(plan, kind, count, release):
        return honest(plan, kind, max(1, count - 1), release)

    patch.setattr(secure_plan.SecurePlan, "event", event)


def own_tables_as_one(patch):
    """The root of the number of own tables is forgotten."""
    honest = secure_plan.SecurePlan.event

    def event(plan, kind, count, release):
        found = honest(plan, kind, count, release)
        alone = isinstance(found, Gaussian)
        return Gaussian(sigma=kind.sigma, sensitivity=plan.unit) if alone else found

    patch.setattr(secure_plan.SecurePlan, "event", event)


def rows_that_count_three_times(patch):
    honest = secure_party._Party.share_of

    def share_of(party, other):
        return honest(party, other) * np.uint32(3)

    patch.setattr(secure_party._Party, "share_of", share_of)


def plans_that_look_at_rows(patch):
    honest = secure_party._closed

    def closed(party, group, dealt, tables):
        if party.site.rows.table.num_rows % 2:
            party.site.pay(Gaussian(sigma=1e4, sensitivity=1.0), "more for an odd number of rows")
        return honest(party, group, dealt, tables)

    patch.setattr("tests.guarantees.opened._CLOSED", closed)


def an_exact_number_of_rows(patch):
    patch.setattr(secure_party, "_bound_of", lambda rows, bound, entropy: max(1, rows))


def padding_that_is_left(patch):
    """Rows that are missing are counted with the codes 0."""
    patch.setattr(
        secure_party, "_without_missing", lambda party, share, other, modulus: share.reshape(-1)
    )


@pytest.mark.parametrize(
    ("mutant", "relation"),
    [
        (charged_once, Relation.REPLACE_ONE),
        (a_table_left_out, Relation.ADD_REMOVE),
        (a_table_left_out, Relation.REPLACE_ONE),
        (own_tables_as_one, Relation.ADD_REMOVE),
        (rows_that_count_three_times, Relation.REPLACE_ONE),
        (plans_that_look_at_rows, Relation.ADD_REMOVE),
        (an_exact_number_of_rows, Relation.ADD_REMOVE),
        (padding_that_is_left, Relation.ADD_REMOVE),
    ],
)
def test_mutants_are_seen(mutant, relation, monkeypatch):
    check(SPLITS["two parties"], relation)
    mutant(monkeypatch)
    with pytest.raises((AssertionError, DivergenceError)):
        _ = [check(SPLITS["two parties"], relation, seed) for seed in range(3)]
