"""VertiMRF on neighbours: the whole run of all parties, replayed; mutants must be caught."""

from collections import Counter
from dataclasses import replace
from fractions import Fraction
from types import SimpleNamespace

import numpy as np
import pandas as pd
import pytest

from siloweave.core import run as core
from siloweave.federation.messages import Array, Envelope, decode, decode_request, reply_type
from siloweave.federation.session import Close, InProcess
from siloweave.federation.site import Site
from siloweave.methods.vertimrf import coordinator, messages, party
from siloweave.methods.vertimrf.messages import EncodeColumns
from siloweave.methods.vertimrf.method import VertiMRF
from siloweave.privacy import mechanisms
from siloweave.privacy.budget import Budget, Relation, rho_for
from siloweave.privacy.events import Gaussian, RandomisedResponse
from siloweave.privacy.mechanisms import SeededEntropy, kept_share
from siloweave.protocols.random_fields import private_field
from siloweave.tables import Column, Schema
from tests.federation.small import reply_in
from tests.guarantees.replay import DivergenceError, _cost, record, replay
from tests.guarantees.test_vertigan_views import Own
from tests.guarantees.whole import plain

REPLACE = Budget(8.0, 1e-5, relation=Relation.REPLACE_ONE)
ADD = Budget(8.0, 1e-5)
SCHEMA = Schema(
    (
        Column("kind", "categorical", categories=("a", "b", "c")),
        Column("age", "integer", low=0, high=9),
        Column("sex", "boolean"),
        Column("pay", "integer", low=0, high=7),
        Column("town", "categorical", categories=("x", "y")),
    )
)
FIRST = "party-1"
SPLIT = (["kind", "age"], ["sex", "pay"], ["town"])
ONE, OTHER = ["a", 0, False, 0, "x"], ["c", 9, True, 7, "y"]


def people(*last, rows=30):
    rng = np.random.default_rng(2)
    frame = pd.DataFrame(
        {
            "kind": rng.choice(list("abc"), rows),
            "age": rng.integers(0, 10, rows),
            "sex": rng.random(rows) < 0.5,
            "pay": rng.integers(0, 8, rows),
            "town": rng.choice(list("xy"), rows),
        }
    )
    for row in last:
        frame.loc[len(frame)] = row
    return frame.astype({"sex": bool, "age": int, "pay": int})


def run(rows, budget=REPLACE, encoding="fo", split=SPLIT):
    made = VertiMRF(encoding=encoding, bins=10, repetitions=20, refine_steps=1)
    parts = [rows[columns] for columns in split]
    return made.fit(parts, SCHEMA, budget=budget, noise="seeded")


def twins(first, second, **named):
    """A run, its replay on a neighbour, both fits, and all that parties said in each."""
    found, said, send = [], [[], []], InProcess.send

    def sent(transport, name, frame):
        answer = send(transport, name, frame)
        asked = decode_request(decode(frame, Envelope).body, transport._handlers)
        reply = reply_in(answer, reply_type(type(asked)))
        said[-1 if found else 0].append(
            [plain(getattr(reply, one)) for one in reply.__struct_fields__]
            if not isinstance(asked, Close)
            else []
        )
        return answer

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(InProcess, "send", sent)
        tape = record(lambda: found.append(run(first, **named)))
        twin = replay(tape, lambda: found.append(run(second, **named)))
    return tape, twin, found, said


def events_of(fitted):
    return [entry.event for entries in fitted.ledgers.values() for entry in entries]


def check(first=None, second=None, **named):
    first = people(ONE) if first is None else first
    second = people(OTHER) if second is None else second
    tape, twin, found, (one, two) = twins(first, second, **named)
    events = events_of(found[0])
    assert events == events_of(found[1])
    twin.require_paid(events)
    noisy = [e for e in events if isinstance(e, Gaussian)]
    for event, moved in zip(noisy, twin.distances("l2"), strict=True):
        assert moved <= event.sensitivity * (1 + 1e-9)
    answers = [e.rho * e.count for e in events if isinstance(e, RandomisedResponse)]
    moved = [_cost(c, m) for c, m in twin.moved if c.name == "randomised_response"]
    assert sum(moved) <= sum(answers) * (1 + 1e-9)
    assert one == two, "something unpaid depends on the rows"
    return tape, twin, events


@pytest.mark.parametrize("other", [OTHER, ["a", 9, False, 3, "x"], ["b", 0, True, 0, "y"]], ids=str)
def test_what_neighbours_cost_is_paid_by_all_parties_together(other):
    _, twin, events = check(second=people(other))
    assert sum(event.rho * event.count for event in events) <= rho_for(REPLACE) * (1 + 1e-9)
    assert twin.rho() <= rho_for(REPLACE) * (1 + 1e-9)


def test_a_row_pays_for_every_one_of_its_answers():
    """The paper charges half: d epsilon' / 2, for neighbours that add a row."""
    _, twin, events = check()
    answers = [e for e in events if isinstance(e, RandomisedResponse)]
    assert [e.count for e in answers] == [len(columns) for columns in SPLIT]
    moved = [(c, m) for c, m in twin.moved if c.name == "randomised_response"]
    assert sum(np.count_nonzero(m) for _, m in moved) == 5  # every value of the row
    assert {c.settings["epsilon"] for c, _ in moved} == {e.epsilon for e in answers}


def test_a_party_alone_and_a_party_for_each_column_pay_alike():
    for split in ([list(SCHEMA.names)], [[name] for name in SCHEMA.names]):
        _, _, events = check(split=split)
        total = sum(event.rho * event.count for event in events)
        assert 0.9 * rho_for(REPLACE) < total <= rho_for(REPLACE) * (1 + 1e-9)


def test_with_sketches_all_but_the_sketches_is_paid():
    """Fields, histograms and the number of rows, where a row is added."""
    tape, twin, *_ = twins(people(), people(OTHER), budget=ADD, encoding="fm")
    bounded = [c.settings["event"] for c in tape.charges]
    bounded = [e for e in bounded if np.isfinite(e.rho)]
    twin.require_paid(bounded)
    assert twin.distances("l1") == [1.0]
    noisy = [e for e in bounded if isinstance(e, Gaussian)]
    for event, moved in zip(noisy, twin.distances("l2"), strict=True):
        assert moved <= event.sensitivity * (1 + 1e-9)


# Another party, which holds the same people


def seen_by_first(rows):
    """What the first party is asked, and by owner of the entropy how often others draw from it."""
    asked, drawn, send, stored = [], Counter(), InProcess.send, Site.store_entropy

    def store(site):
        owner = site.entropy.owner
        stored(site)
        site._stream = Own(site._stream._key, owner)

    def sent(transport, name, frame):
        if name == FIRST:
            asked.append(decode(frame, Envelope).body)
        return send(transport, name, frame)

    def noted(draw):
        def again(*of, entropy, **named):
            drawn[getattr(entropy, "owner", None)] += 1
            return draw(*of, entropy=entropy, **named)

        return again

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(core, "SeededEntropy", Own)
        patch.setattr(InProcess, "send", sent)
        patch.setattr(Site, "store_entropy", store)
        for name in ("add_gaussian", "randomised_response"):
            patch.setattr(mechanisms, name, noted(getattr(mechanisms, name)))
        return run(rows), asked, drawn


def check_first():
    """Fail if the first party learns of others' rows more than the model, or knows their noise."""
    rng, one = np.random.default_rng(9), people(ONE)
    other = one.assign(**{name: rng.permutation(one[name]) for name in ("sex", "pay", "town")})
    fitted, asked, drawn = seen_by_first(one)
    assert asked == seen_by_first(other)[1], "what it is asked depends on others' rows"
    ledgers = enumerate(fitted.ledgers.values())
    paid = {str(k): sum(entry.event.count for entry in own) for k, own in ledgers}
    assert drawn == paid, "it can make noise again that another party is charged for"


def test_another_party_is_asked_the_same_and_knows_no_noise_but_its_own():
    check_first()


def answers_that_anyone_can_make(patch):
    honest = mechanisms.randomised_response

    def draw(*of, entropy):
        return honest(*of, entropy=SeededEntropy(0))

    patch.setattr(party, "mechanisms", SimpleNamespace(randomised_response=draw))


def a_key_that_follows_a_row(patch):
    """The server sends one party what another one answered."""

    def asked(session, plan):
        first, *others = session.roster
        replies = session.ask(EncodeColumns(), others)
        told = EncodeColumns(sealed=bytes(replies[0].encoded.value.data))
        return [*session.ask(told, [first]), *replies]

    patch.setattr(coordinator, "_asked", asked)
    patch.setattr(Site, "require_first", lambda site: None)


@pytest.mark.parametrize(
    ("mutant", "words"),
    [
        (answers_that_anyone_can_make, "it can make noise again"),
        (a_key_that_follows_a_row, "what it is asked depends"),
    ],
)
def test_mutants_towards_another_party_are_seen(mutant, words, monkeypatch):
    mutant(monkeypatch)
    with pytest.raises(AssertionError, match=words):
        check_first()


# Mutants


def bare(synth, plan, site):
    """The values as they are."""
    return Array.of(np.stack([c % 4 for c in site.rows.columns], axis=1), "<u1")


def steered(answers, domain, pairs, rho, settings, **named):
    """A field whose settings follow a row."""
    odd = int(answers.site.rows.columns[0][-1]) % 2
    return private_field(
        answers, domain, pairs, rho, replace(settings, theta=settings.theta / 1000**odd), **named
    )


MUTANTS = {
    "answers half charged": (
        messages, "RandomisedResponse", lambda e, count: RandomisedResponse(e, max(1, count // 2)),
    ),
    "histograms half charged": (
        messages, "Gaussian",
        lambda sigma, sensitivity: Gaussian(sigma=sigma, sensitivity=sensitivity / 2),
    ),
    "bare answers": (party, "_answers", bare),
    "steered": (party, "private_field", steered),
}  # fmt: skip


@pytest.mark.parametrize("name", MUTANTS)
def test_mutants_are_caught(name, monkeypatch):
    monkeypatch.setattr(*MUTANTS[name])
    with pytest.raises((AssertionError, DivergenceError)):
        check(people(["a", *ONE[1:]]), people(["b", *OTHER[1:]]))


def test_an_answer_is_the_true_value_as_often_as_was_charged():
    epsilon, size, rows = 0.7, 5, 200_000
    values = np.arange(rows) % size
    drawn = mechanisms.randomised_response(values, size, epsilon, entropy=SeededEntropy(5))
    moved = (drawn - values) % size
    share = np.bincount(moved, minlength=size) / rows
    other = (1 - kept_share(epsilon, size)) / (size - 1)
    assert share[0] == pytest.approx(kept_share(epsilon, size), abs=4 * 0.5 / np.sqrt(rows))
    assert share[1:] == pytest.approx(np.full(size - 1, other), abs=4 * 0.5 / np.sqrt(rows))
    ratio = share[0] / share[1:].mean()
    assert abs(np.log(ratio) - epsilon) < 0.02  # a wrong epsilon is seen
    assert abs(np.log(ratio) - 1.1 * epsilon) > 0.05


@pytest.mark.parametrize("size", [2, 3, 41])
@pytest.mark.parametrize("epsilon", [1e-6, 0.018, 1.0, 20.0])
def test_no_answer_is_more_likely_than_charged_by_exact_masses(size, epsilon):
    """The threshold as an integer, and words modulo the other values, counted exactly."""
    keep = Fraction(int(kept_share(epsilon, size) * (1 - 2.0**-40) * 2**64), 2**64)
    words, others = 2**64, size - 1
    rarest = Fraction(words // others, words)  # of another value, once not kept
    least, most = (1 - keep) * rarest, (1 - keep) * Fraction(-(-words // others), words)
    bound = Fraction(np.exp(epsilon)) * (1 - Fraction(1, 2**50))
    assert keep / least <= bound
    assert most / keep <= bound
    assert most / least <= bound
