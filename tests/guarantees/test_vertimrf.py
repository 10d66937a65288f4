"""VertiMRF on neighbours: the whole run of all parties, replayed; mutants must be caught."""

from collections import Counter
from dataclasses import replace
from fractions import Fraction
from types import SimpleNamespace

import numpy as np
import pandas as pd
import pytest

from siloweave.core import party as core
from siloweave.federation.carriers.direct import Direct
from siloweave.federation.messages import Array, Envelope, decode, decode_request, reply_type
from siloweave.federation.session import Close, Session
from siloweave.federation.site import Site
from siloweave.methods.vertimrf import coordinator, messages, party
from siloweave.methods.vertimrf.messages import EncodeColumns
from siloweave.methods.vertimrf.method import VertiMRF
from siloweave.privacy import events, mechanisms
from siloweave.privacy.budget import Budget, Relation, rho_for
from siloweave.privacy.events import Gaussian, RandomisedResponse
from siloweave.privacy.mechanisms import SeededEntropy, kept_share
from siloweave.privacy.sketches import SketchNoise
from siloweave.protocols.random_fields import private_field
from siloweave.tables import Column, Schema
from tests.federation.sites import handlers_of
from tests.federation.small import reply_in
from tests.guarantees.replay import DivergenceError, _cost, record, replay
from tests.guarantees.swapped import with_functions
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
).with_fallbacks()
NAMES = FIRST, _, LAST = ("party-1", "party-2", "party-3")
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
    found, said, send = [], [[], []], Direct.send

    def sent(transport, name, frame):
        answer = send(transport, name, frame)
        asked = decode_request(decode(frame, Envelope).body, handlers_of(transport))
        reply = reply_in(answer, reply_type(type(asked)))
        said[-1 if found else 0].append(
            [plain(getattr(reply, one)) for one in reply.__struct_fields__]
            if not isinstance(asked, Close)
            else []
        )
        return answer

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Direct, "send", sent)
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


def owned(patch):
    """Every stream of a run with seeded noise knows which party's it is."""
    stored = Site.store_entropy

    def store(site):
        owner = site.entropy.owner
        stored(site)
        site._stream = Own(site._stream._key, owner)

    patch.setattr(core, "SeededEntropy", Own)
    patch.setattr(Site, "store_entropy", store)


def seen_by(name, rows, encoding):
    """What a party is asked, and by owner of the entropy how often noise is drawn from it."""
    asked, drawn, send = [], Counter(), Direct.send

    def sent(transport, to, frame):
        if to == name:
            asked.append(decode(frame, Envelope).body)
        return send(transport, to, frame)

    def noted(draw):
        def again(*of, entropy, **named):
            drawn[getattr(entropy, "owner", None)] += 1
            return draw(*of, entropy=entropy, **named)

        return again

    with pytest.MonkeyPatch.context() as patch:
        owned(patch)
        patch.setattr(Direct, "send", sent)
        patch.setattr(SketchNoise, "draw", noted(SketchNoise.draw))
        for mechanism in ("add_gaussian", "randomised_response"):
            patch.setattr(mechanisms, mechanism, noted(getattr(mechanisms, mechanism)))
        return run(rows, encoding=encoding), asked, drawn


def check_party(name, encoding):
    """Fail if a party learns of others' rows more than the model, or knows their noise.

    It is asked the same whatever their rows; so no sketch or answer of theirs is sent to it.
    """
    rng, one = np.random.default_rng(9), people(ONE)
    own = SPLIT[NAMES.index(name)]
    other = one.assign(**{c: rng.permutation(one[c]) for c in one.columns if c not in own})
    fitted, asked, drawn = seen_by(name, one, encoding)
    assert asked == seen_by(name, other, encoding)[1], "what it is asked depends on others' rows"
    ledgers = enumerate(fitted.ledgers.values())
    paid = {str(k): sum(entry.event.count for entry in own) for k, own in ledgers}
    assert drawn == paid, "it can make noise again that another party is charged for"


def test_another_party_is_asked_the_same_and_knows_no_noise_but_its_own():
    check_party(FIRST, "fo")


@pytest.mark.parametrize("name", [FIRST, LAST])
def test_a_party_that_has_the_key_is_sent_no_sketches_and_knows_no_phantoms_but_its_own(name):
    """The first party draws the key, and the last receives it."""
    check_party(name, "fm")


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

    patch.setattr(coordinator, "_encoded", asked)
    patch.setattr(Site, "require_first", lambda site: None)


def sketches_for_the_first(patch):
    """The server sends one party what another one encoded."""
    asked = Session.ask_each

    def told(session, requests, **named):
        first, *others = requests
        if not isinstance(requests[first], EncodeColumns):
            return asked(session, requests, **named)
        replies = asked(session, {name: requests[name] for name in others}, **named)
        sealed = bytes(replies[0].encoded.value.data)[:100]
        return [*asked(session, {first: EncodeColumns(sealed=sealed)}, **named), *replies]

    patch.setattr(Session, "ask_each", told)
    patch.setattr(Site, "require_first", lambda site: None)


def phantoms_that_anyone_can_make(patch):
    honest = party._sketches

    def sketches(*given):
        *settings, site = given
        return honest(*settings, SimpleNamespace(rows=site.rows, entropy=SeededEntropy(0)))

    patch.setattr(party, "_sketches", sketches)


@pytest.mark.parametrize(
    ("mutant", "encoding", "words"),
    [
        (answers_that_anyone_can_make, "fo", "it can make noise again"),
        (a_key_that_follows_a_row, "fo", "what it is asked depends"),
        (phantoms_that_anyone_can_make, "fm", "it can make noise again"),
        (sketches_for_the_first, "fm", "what it is asked depends"),
    ],
)
def test_mutants_towards_another_party_are_seen(mutant, encoding, words, monkeypatch):
    mutant(monkeypatch)
    with pytest.raises(AssertionError, match=words):
        check_party(FIRST, encoding)


# Parties that help the server


def check_coalition(names):
    """Fail if some parties and the server learn more of a row than the others have paid for.

    Parties that pool what they know hold their own columns of the row, so the neighbour has other
    values at the others alone, who must pay for all that moves.
    """
    one = people(ONE)
    theirs = [c for name, own in zip(NAMES, SPLIT, strict=True) if name not in names for c in own]
    other = people(OTHER).assign(**{c: one[c] for c in one.columns if c not in theirs})
    _, twin, (fitted, _), (said, again) = twins(one, other)
    entries = [e for name, own in fitted.ledgers.items() if name not in names for e in own]
    twin.require_paid([entry.event for entry in entries])
    assert twin.rho() > 0
    assert said == again, "something unpaid depends on the others' rows"
    for name in names:
        check_party(name, "fo")


@pytest.mark.parametrize("names", [(FIRST,), (LAST,), (FIRST, LAST)], ids=len)
def test_parties_that_help_the_server_learn_what_the_others_paid_for_and_no_more(names):
    check_coalition(names)


def one_party_pays(plan):
    """The first party's ledger has answers of all; the budget is kept."""
    answer, *_ = plan.encoding.values()
    each = dict.fromkeys(plan.encoding, RandomisedResponse(answer.epsilon, 1))
    first = next(iter(each))
    return replace(plan, encoding=each | {first: RandomisedResponse(answer.epsilon, 6 - len(each))})


def others_draw_from(patch):
    """All parties draw answers from what the first of them can make again."""
    honest = mechanisms.randomised_response

    def draw(*of, entropy):
        return honest(*of, entropy=Own(b"0/0"))

    patch.setattr(party, "mechanisms", SimpleNamespace(randomised_response=draw))


def paid_by_one(patch):
    honest = messages.VertiMRFPlan.of
    patch.setattr(messages.VertiMRFPlan, "of", lambda *given: one_party_pays(honest(*given)))


@pytest.mark.parametrize("mutant", [paid_by_one, others_draw_from, answers_that_anyone_can_make])
def test_mutants_are_seen_by_a_party_that_helps_the_server(mutant, monkeypatch):
    mutant(monkeypatch)
    with pytest.raises(AssertionError):
        check_coalition((FIRST,))


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


def half_charged(sigma, sensitivity):
    return Gaussian(sigma=sigma, sensitivity=sensitivity / 2)


MUTANTS = {
    "answers half charged": (
        messages, "events",
        with_functions(
            events,
            RandomisedResponse=lambda e, count: RandomisedResponse(e, max(1, count // 2)),
        ),
    ),
    "histograms half charged": (messages, "events", with_functions(events, Gaussian=half_charged)),
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
