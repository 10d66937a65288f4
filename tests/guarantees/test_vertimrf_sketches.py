"""What VertiMRF's ledgers say of its sketches is true, though it bounds nothing; and mutants.

Whole runs of all parties: without a person, with her, and with phantoms as they are drawn. She has
values that nobody else has, so that where phantoms are left out her number is in one sketch of each
column. What the ledgers say was composed exactly (privacy/sketches.py) for one number a repetition,
the same in all columns and new in each repetition, beside phantoms of its own in every sketch.
"""

from dataclasses import dataclass, field, replace
from functools import partial
from itertools import pairwise
from math import log, sqrt
from types import SimpleNamespace

import numpy as np
import pandas as pd
import pytest
from scipy import stats

from siloweave.federation.carriers.direct import Direct
from siloweave.federation.messages import Array, Envelope, decode, decode_request, reply_type
from siloweave.federation.session import Session
from siloweave.federation.site import Site
from siloweave.methods.vertimrf import messages, party
from siloweave.methods.vertimrf.messages import EncodeColumns
from siloweave.methods.vertimrf.method import VertiMRF
from siloweave.privacy import events, mechanisms
from siloweave.privacy.accountants import epsilon_of_rho
from siloweave.privacy.budget import Budget
from siloweave.privacy.events import Gaussian, Laplace, NonPrivate
from siloweave.privacy.mechanisms import SeededEntropy
from siloweave.privacy.sketches import SketchNoise, encode_rows, sketch_epsilon
from siloweave.protocols.random_fields import private_field
from tests.federation.sites import handlers_of
from tests.federation.small import reply_in
from tests.guarantees.replay import NOISE, DivergenceError, record, replay
from tests.guarantees.swapped import with_functions
from tests.guarantees.test_vertimrf import ADD, SCHEMA, SPLIT, half_charged, owned, people

MADE = VertiMRF(encoding="fm", bins=10, repetitions=300, refine_steps=1)
TIMES = {"repetitions": MADE.repetitions, "attributes": len(SCHEMA.names)}
WIDTHS = ((3, 4), (2, 4), (2,))  # bins of each party's columns
HERS = ((2, 6), (1, 5), (1,))  # sketches of her values, party by party
DELTA = ADD.delta / 4  # of the sketches, and of the histograms

OTHERS = people().assign(kind="b", sex=False, town="x")
OTHERS = OTHERS.assign(age=OTHERS.age % 5, pay=OTHERS.pay % 4)
HER = pd.DataFrame([["c", 9, True, 7, "y"]], columns=list(SCHEMA.names))
ALL = pd.concat([OTHERS, HER], ignore_index=True).astype(OTHERS.dtypes)


@dataclass
class Seen:
    """Sketches as each party sends them, and phantoms: whose entropy draws them, and how many."""

    sent: dict = field(default_factory=dict)
    drawn: list = field(default_factory=list)
    fitted: object = None


def seen(rows, phantoms=None, seed=0):
    """A run of all parties; `phantoms` stands for each largest one, or they are drawn."""
    found, send, draw = Seen(), Direct.send, SketchNoise.draw

    def sent(transport, name, frame):
        answer = send(transport, name, frame)
        asked = decode_request(decode(frame, Envelope).body, handlers_of(transport))
        if isinstance(asked, EncodeColumns):
            reply = reply_in(answer, reply_type(EncodeColumns))
            found.sent.setdefault(name, []).append(reply.encoded.value.numpy())
        return answer

    def drawn(noise, size, *, entropy):
        values = draw(noise, size, entropy=entropy)
        values = values if phantoms is None else np.full_like(values, phantoms)
        found.drawn.append((getattr(entropy, "owner", None), noise, values))
        return values

    with pytest.MonkeyPatch.context() as patch:
        owned(patch)
        patch.setattr(Direct, "send", sent)
        patch.setattr(SketchNoise, "draw", drawn)
        parts = [rows[columns] for columns in SPLIT]
        found.fitted = MADE.fit(parts, SCHEMA, budget=ADD, noise="seeded", seed=seed)
    return found


def check_sketches():
    """Fail if sketches are of anything else than what the ledgers say, or anything is not paid."""
    runs = []
    tape = record(lambda: runs.append(seen(OTHERS, phantoms=1)))
    twin = replay(tape, lambda: runs.append(seen(ALL, phantoms=1)))
    without, present = runs
    require_charged(tape, twin)
    noise = require_phantoms(without, seen(OTHERS))
    numbers = numbers_of_her(without, present)
    again = numbers_of_her(without, seen(ALL, phantoms=1, seed=1), others=False)
    assert np.mean(numbers == again) < 0.6, "her numbers are known before a run"  # 1/3 by chance
    require_stated(without.fitted, noise)
    require_shares(without.fitted, noise)


def require_charged(tape, twin):
    """All noise but the phantoms comes right after a charge that covers how far she moves it."""
    pairs = [(before, call) for before, call in pairwise(tape.calls) if call.name in NOISE]
    kinds = {"add_laplace": (Laplace, "scale", 1), "add_gaussian": (Gaussian, "sigma", 2)}
    for (charge, call), (_, moved) in zip(pairs, twin.moved, strict=True):
        kind, width, norm = kinds[call.name]
        event = charge.settings.get("event")
        assert isinstance(event, kind), f"{call.name} is not charged"
        assert getattr(event, width) == call.settings[width]
        far = np.linalg.norm(np.ravel(moved).astype(float), norm)
        assert far <= event.sensitivity * (1 + 1e-9), f"{call.name} is charged for less"


def require_phantoms(without, noisy):
    """Each party sends its sketches once, with phantoms in each that nobody else can make."""
    assert {len(sent) for sent in noisy.sent.values()} == {1}, "a party sends two sketches"
    owners = [owner for owner, *_ in noisy.drawn]
    assert owners == ["0", "1", "2"], "phantoms are not every party's own"
    for name, (_, _, values), widths in zip(noisy.sent, noisy.drawn, WIDTHS, strict=True):
        (sketches,), (bare,) = noisy.sent[name], without.sent[name]
        assert sketches.shape == (MADE.repetitions, sum(widths))
        assert values.size == sketches.size, "phantoms are not drawn for every sketch"
        both = np.maximum(bare, values.reshape(bare.shape))
        assert np.array_equal(sketches, both), "sketches lack phantoms"
    (noise,) = {noise for _, noise, _ in noisy.drawn}
    return noise


def numbers_of_her(without, present, *, others=True):
    """Her number in each repetition, which is the same everywhere and in no other sketch."""
    hers = []
    for name, cells in zip(without.sent, HERS, strict=True):
        (one,), (two,) = without.sent[name], present.sent[name]
        hers.append(two[:, cells])
        if others:
            moved = np.flatnonzero((one != two).any(axis=0))
            assert set(moved.tolist()) <= set(cells), "she is in sketches of others' values"
    numbers = np.concatenate(hers, axis=1)
    assert (numbers == numbers[:, :1]).all(), "she has several numbers"
    most = 6
    counts = np.bincount(np.minimum(numbers[:, 0], most), minlength=most + 1)[1:]
    law = 0.5 ** np.minimum(np.arange(1, most + 1), most - 1)
    p = stats.chisquare(counts, counts.sum() * law).pvalue
    assert p > 1e-4, "her numbers do not follow the law of one"
    return numbers[:, 0]


def claimed(noise):
    """What Theorem 2 takes all sketches for."""
    return noise.epsilon * 4 * sqrt(TIMES["repetitions"] * TIMES["attributes"] * log(1 / DELTA))


def require_stated(fitted, noise):
    """Each ledger has infinite cost for sketches, once, with what they are really worth."""
    exact = sketch_epsilon(noise, delta=DELTA, **TIMES)
    for entries in fitted.ledgers.values():
        bare = [entry.event for entry in entries if isinstance(entry.event, NonPrivate)]
        assert len(bare) == 1, "sketches are not charged once"
        claim = f"claims epsilon = {claimed(noise):.3g} at"
        assert claim in bare[0].reason, "sketches have fewer phantoms than claimed"
        assert f"exactly it is {exact:.4g}," in bare[0].reason, "the ledger states less"
    assert fitted.epsilon == np.inf


def require_shares(fitted, noise):
    """The paper's own claim adds up: fields, histograms, rows and sketches, within the budget."""
    fields, values, rows = 0.0, 0.0, 0.0
    each = ADD.delta / (2 * len(SPLIT))
    for entries in fitted.ledgers.values():
        paid = [(entry.what, entry.event) for entry in entries]
        binned = sum(e.rho for what, e in paid if what.startswith("counts of the values"))
        rho = sum(e.rho for _, e in paid if isinstance(e, Gaussian)) - binned
        fields, values = fields + epsilon_of_rho(rho, each), values + binned
        rows += sum(e.sensitivity / e.scale for _, e in paid if isinstance(e, Laplace))
    parts = (fields, epsilon_of_rho(values, DELTA), rows, claimed(noise))
    assert min(parts) > 0
    assert sum(parts) <= ADD.epsilon * (1 + 1e-6), f"{parts} are more than the budget"


def test_sketches_are_what_the_ledgers_say():
    check_sketches()


# Mutants


def shared_keys(columns, sizes, *, key, repetitions):
    """One stream for all repetitions."""
    once = encode_rows(columns, sizes, key=key, repetitions=1)
    return np.repeat(once, repetitions, axis=0)


def twice(columns, sizes, **named):
    """Every row has two numbers."""
    return encode_rows([np.repeat(column, 2) for column in columns], sizes, **named)


def everywhere(columns, sizes, **named):
    """A row is in sketches of values that it does not have."""
    return encode_rows([np.append(column, 0) for column in columns], sizes, **named)


def of_each_column(columns, sizes, *, key, repetitions):
    """A row has a number of its own in each column."""
    found = [
        encode_rows([column], [size], key=bytes([i]) + key[1:], repetitions=repetitions)
        for i, (column, size) in enumerate(zip(columns, sizes, strict=True))
    ]
    return np.concatenate(found, axis=1)


def sketched(draw):
    """A party's sketches with phantoms that are drawn otherwise."""

    def sketches(synth, plan, key, site):
        sizes = messages.bin_counts(synth, site.rows.domain)
        columns = party._binned_columns(synth, site.rows)
        rows = encode_rows(columns, sizes, key=key, repetitions=synth.repetitions)
        return Array.of(np.maximum(rows, draw(plan.noise, rows.shape, site.entropy)), "<u1")

    return sketches


def without_phantoms(noise, shape, entropy):
    return np.ones(shape, np.uint8)


def phantoms_for_all_repetitions(noise, shape, entropy):
    return np.tile(noise.draw(shape[1], entropy=entropy), (shape[0], 1))


def phantoms_that_anyone_can_make(noise, shape, entropy):
    return noise.draw(shape[0] * shape[1], entropy=SeededEntropy(0)).reshape(shape)


def phantoms_left_out(noise, shape, entropy):
    drawn = noise.draw(shape[0] * shape[1], entropy=entropy).reshape(shape)
    return np.where(np.arange(shape[1]) == 0, 1, drawn)


def fewer_phantoms(noise, shape, entropy):
    bare = SketchNoise(min(10.0, 2 * noise.epsilon))
    return bare.draw(shape[0] * shape[1], entropy=entropy).reshape(shape)


def steered(answers, domain, pairs, rho, settings, **named):
    """A field whose shares follow a row."""
    odd = int(answers.site.rows.columns[0][-1]) % 2
    shares = replace(settings, scores_share=settings.scores_share * (1 + odd))
    return private_field(answers, domain, pairs, rho, shares, **named)


def uncharged_rows(site, rows, event):
    """The number of rows with its noise, which no ledger has."""
    if site.name != next(iter(site.terms.roster)):
        return (), ()
    noisy = partial(mechanisms.add_laplace, [rows], event.scale, entropy=site.entropy)
    return (site.release_derived(lambda: int(noisy()[0])),), ()


def twice_asked(session, requests, **named):
    """Parties are asked for their codes twice."""
    if all(isinstance(request, EncodeColumns) for request in requests.values()):
        ask_each(session, requests, **named)
    return ask_each(session, requests, **named)


def uncharged(site, event, what, draw):
    """Sketches are released as if they followed from what was paid for before."""
    if isinstance(event, NonPrivate):
        return site.release_derived(draw)
    return release(site, event, what, draw)


ask_each, release = Session.ask_each, Site.release


def fewer_than_claimed(epsilon, delta, **times):
    return SketchNoise.published(2 * epsilon, delta, **times)


def encoding_overspent(synth, *given):
    """Sketches have half of the fields' share too, and the ledgers say so."""
    fair = for_sketches(synth, *given)
    more = for_sketches(replace(synth, field_share=synth.field_share / 2), *given)
    return replace(more, field_rho=fair.field_rho, rows=fair.rows)


def whole_for_each_field(budget):
    """Each party's field has what all of them are to have."""
    times = 1 if budget.delta == DELTA else len(SPLIT)
    return rho_for(Budget(times * budget.epsilon, budget.delta))


for_sketches, rho_for = messages._for_sketches, messages.rho_for

FAULTS = {
    "keys that repetitions share": (party, "encode_rows", shared_keys, "law of one"),
    "rows counted twice": (party, "encode_rows", twice, "law of one"),
    "a row among others' values": (party, "encode_rows", everywhere, "others' values"),
    "a number for each column": (party, "encode_rows", of_each_column, "several numbers"),
    "a key that is public": (
        party, "_sketch_key", lambda request, site: bytes(32), "known before a run",
    ),
    "no phantoms": (party, "_sketches", sketched(without_phantoms), "every party's own"),
    "phantoms drawn once": (
        party, "_sketches", sketched(phantoms_for_all_repetitions), "for every sketch",
    ),
    "phantoms known": (
        party, "_sketches", sketched(phantoms_that_anyone_can_make), "every party's own",
    ),
    "phantoms left out": (party, "_sketches", sketched(phantoms_left_out), "lack phantoms"),
    "fewer phantoms": (party, "_sketches", sketched(fewer_phantoms), "than claimed"),
    "two sketches": (Session, "ask_each", twice_asked, "sends two"),
    "sketches not charged": (Site, "release", uncharged, "not charged once"),
    "rows not charged": (party, "release_rows", uncharged_rows, "laplace is not charged"),
    "rows half charged": (
        messages, "events",
        with_functions(
            events, Laplace=lambda scale, sensitivity: Laplace(scale, sensitivity / 2)
        ),
        "laplace is charged for less",
    ),
    "histograms half charged": (
        messages, "events", with_functions(events, Gaussian=half_charged),
        "gaussian is charged for less",
    ),
    "fewer phantoms than planned": (
        messages, "SketchNoise", SimpleNamespace(published=fewer_than_claimed), "than claimed",
    ),
    "encoding overspent": (messages, "_for_sketches", encoding_overspent, "than the budget"),
    "fields overspent": (messages, "rho_for", whole_for_each_field, "than the budget"),
    "worth of one column": (
        messages, "sketch_epsilon",
        lambda noise, **named: sketch_epsilon(noise, **named | {"attributes": 1}), "states less",
    ),
    "steered": (party, "private_field", steered, "became charge"),
}  # fmt: skip


@pytest.mark.parametrize("name", FAULTS)
def test_mutants_are_caught(name, monkeypatch):
    *where, words = FAULTS[name]
    monkeypatch.setattr(*where)
    monkeypatch.setattr(Site, "require_first", lambda site: None)  # it refuses two sketches itself
    with pytest.raises((AssertionError, DivergenceError), match=words):
        check_sketches()
