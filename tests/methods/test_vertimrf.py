"""VertiMRF over parties: budgets, keys, resumption, and what each side refuses."""

import math
from functools import cache

import msgspec
import numpy as np
import pandas as pd
import pytest

import siloweave as sw
from siloweave.core.method import Setup
from siloweave.errors import (
    BudgetError,
    CapacityError,
    InputError,
    LedgerError,
    RosterError,
    WireError,
)
from siloweave.federation.messages import Array, Public
from siloweave.federation.session import Session
from siloweave.methods.vertimrf import messages, party
from siloweave.methods.vertimrf.messages import (
    EncodeColumns,
    SealSketchKey,
    SendSketchKey,
    VertiMRFPlan,
)
from siloweave.methods.vertimrf.method import VertiMRF
from siloweave.methods.vertimrf.party import handlers
from siloweave.privacy.budget import Budget, Relation
from siloweave.privacy.events import Gaussian, Laplace, NonPrivate, RandomisedResponse
from siloweave.privacy.mechanisms import SeededEntropy
from siloweave.protocols.random_fields import FieldSettings
from siloweave.tables import Column, Encoder, Schema
from tests.core.kills import WHERE, KilledError, Tap
from tests.federation.rosters import roster_of
from tests.federation.sites import Sites
from tests.synthesizers.cases import SCHEMA, pandas_frame
from tests.synthesizers.properties import BY_SCHEMA, check_kept, check_like_the_frame, check_seeds

REPLACE = Budget(20.0, 1e-4, relation=Relation.REPLACE_ONE)
ADD = Budget(20.0, 1e-4)
SPLIT = {"north": ["town", "age", "seen"], "south": ["sex", "pay"], "west": ["member", "visits"]}
FAST = {"bins": 6, "repetitions": 40, "refine_steps": 2}
BUDGETS = {"fo": REPLACE, "fm": ADD}
every = pytest.mark.parametrize("encoding", BUDGETS)


def split(frame, by=None):
    return {name: frame[columns] for name, columns in (by or SPLIT).items()}


def fit(encoding, data=None, schema=SCHEMA, *, budget=None, noise="seeded", settings=(), **named):
    made = VertiMRF(encoding=encoding, **FAST | dict(settings))
    data = split(pandas_frame()) if data is None else data
    return made.fit(data, schema, budget=budget or BUDGETS[encoding], noise=noise, **named)


@cache
def fitted_once(encoding):
    return fit(encoding)


def events_of(fitted):
    return {n: [e.event for e in entries] for n, entries in fitted.ledgers.items()}


# What comes out


@every
def test_rows_out_are_like_rows_in(encoding):
    check_like_the_frame(
        fitted_once(encoding).sample(60, seed=0),
        60,
        **({"dtypes": BY_SCHEMA} if encoding == "fo" else {}),
    )
    check_seeds(fitted_once(encoding), fit(encoding))


@every
def test_it_is_kept_as_data_and_gives_each_party_its_columns(encoding, tmp_path):
    check_kept(fitted_once(encoding), tmp_path)
    whole, parts = (
        draw(30, seed=0)
        for draw in (fitted_once(encoding).sample, fitted_once(encoding).sample_parts)
    )
    for name, columns in SPLIT.items():
        pd.testing.assert_frame_equal(parts[name], whole[columns])
    given = fitted_once(encoding).sample(12, given={"member": True}, balanced="sex", seed=0)
    assert given["member"].all()


def dependent(rows=4000, seed=0):
    """Two columns at two parties that mostly agree, and one of 24 values."""
    rng = np.random.default_rng(seed)
    one = rng.integers(0, 2, rows)
    two = np.where(rng.random(rows) < 0.85, one, 1 - one)
    wide = rng.integers(0, 12, rows) + 12 * two
    frame = pd.DataFrame({"one": one, "two": two, "wide": wide})
    schema = Schema(
        (
            Column("one", "integer", low=0, high=1),
            Column("two", "integer", low=0, high=1),
            Column("wide", "integer", low=0, high=23),
        )
    ).with_fallbacks()
    return frame, schema


@every
@pytest.mark.parametrize("consistent", [False, True])
def test_what_columns_of_two_parties_have_in_common_is_found(encoding, consistent):
    frame, schema = dependent()
    parts = [frame[["one"]], frame[["two"]], frame[["wide"]]]
    settings = {"repetitions": 5000, "bins": 24, "refined": 1.0, "consistent": consistent}
    fitted = fit(encoding, parts, schema, settings=settings)
    rows = fitted.sample(4000, seed=0)
    for pair in (["one", "two"], ["two", "wide"]):
        real, made = (one[pair].corr().iloc[0, 1] for one in (frame, rows))
        assert made == pytest.approx(real, abs=0.15), pair


@every
def test_a_party_may_hold_its_columns_in_any_order(encoding, tmp_path):
    frame, schema = dependent()
    parts = {"a": frame[["wide", "two"]], "b": frame[["one"]]}
    fitted = fit(encoding, parts, schema, settings={"bins": 24})
    fitted.save(tmp_path)
    rows = sw.load(tmp_path).sample(4000, seed=0)
    real, made = (one[["two", "wide"]].corr().iloc[0, 1] for one in (frame, rows))
    assert made == pytest.approx(real, abs=0.1)


@every
def test_every_number_of_parties_and_odd_columns_are_served(encoding):
    frame = pandas_frame()[["sex", "town", "age", "member"]].assign(town="Ulm")
    schema = SCHEMA.select(list(frame.columns))
    each = [frame[[column]] for column in frame.columns]
    assert len(fit(encoding, each, schema).sample(20, seed=0)) == 20
    alone = fit(encoding, [frame], schema)
    assert list(alone.cost.parties) == ["party-1"]
    one = split(pandas_frame()[:1])
    assert len(fit(encoding, one).sample(5, seed=0)) == 5
    wide = Schema(
        (Column("k", "categorical", categories=tuple(map(str, range(10_000)))), SCHEMA["sex"])
    ).with_fallbacks()
    many = pd.DataFrame({"k": ["3", "70"] * 30, "sex": pandas_frame()["sex"]})
    assert len(fit(encoding, [many[["k"]], many[["sex"]]], wide).sample(5, seed=0)) == 5


def test_a_party_without_rows_is_refused():
    """Nothing is bounded there, so that a party without rows is refused by name."""
    with pytest.raises(RosterError, match="'north' has no rows"):
        fit("fm", split(pandas_frame()[:0]))


# What is paid


def test_answers_spend_the_budget_over_all_parties_and_no_more():
    fitted = fit("fo", noise="os")
    assert fitted.private
    assert 0.9 * REPLACE.epsilon < fitted.epsilon <= REPLACE.epsilon
    assert max(fitted.epsilons.values()) < fitted.epsilon
    for name, events in events_of(fitted).items():
        *others, codes = events
        assert isinstance(codes, RandomisedResponse)
        assert codes.count == len(SPLIT[name])  # one answer for each column of a row
        assert all(isinstance(event, Gaussian) for event in others)
    assert fitted.num_rows is None or fitted.num_rows == 60


def test_sketches_have_no_bound_and_say_what_they_are_worth():
    fitted = fitted_once("fm")
    assert not fitted.private
    assert fitted.epsilon == math.inf
    assert fitted.info.guarantee == "refuted"
    claimed, exact = (fitted.settings[f"sketches_{kind}"] for kind in ("claimed", "exact"))
    assert claimed < ADD.epsilon
    assert exact > 2 * claimed
    events = events_of(fitted)
    assert [n for n, own in events.items() if any(isinstance(e, Laplace) for e in own)] == ["north"]
    for own in events.values():
        assert isinstance(own[-1], NonPrivate)
        assert f"{exact:.4g}" in own[-1].reason


def test_shares_are_the_published_ones():
    parts = {n: SCHEMA.select(columns) for n, columns in SPLIT.items()}
    binned = VertiMRFPlan.of(VertiMRF("fm", bins=6), parts, ADD)
    assert binned.worth[0] == pytest.approx((0.4 - 0.04) * ADD.epsilon)
    assert binned.rows.scale == pytest.approx(1 / (0.04 * ADD.epsilon))
    narrow = VertiMRFPlan.of(VertiMRF("fm", bins=3, encoded_bins=None), parts, ADD)
    assert narrow.worth[0] == pytest.approx((0.6 - 0.04) * ADD.epsilon)
    assert not narrow.values
    public = VertiMRFPlan.of(VertiMRF("fm", bins=6), parts, REPLACE)
    assert public.rows is None
    assert public.worth[0] == pytest.approx(0.4 * REPLACE.epsilon)


def largest_cliques(monkeypatch, parties, cells):
    """Cells of the largest clique of each party's own graph, of columns of six codes."""
    own, private_field = {}, party.private_field

    def noted(answers, *facts, **named):
        field = private_field(answers, *facts, **named)
        own[answers.site.name] = max(map(answers.site.rows.domain.size, field.cliques))
        return field

    monkeypatch.setattr(party, "private_field", noted)
    names = [f"{name}{k}" for name in parties for k in range(3)]
    schema = Schema(
        tuple(Column(n, "categorical", categories=tuple("uvwxyz")) for n in names)
    ).with_fallbacks()
    same = np.random.default_rng(0).choice(list("uvwxyz"), 400)
    frame = pd.DataFrame(dict.fromkeys(names, same))  # so that every edge is worth its cells
    made = VertiMRF(clique_cells=cells, bins=6, refine_steps=1)
    split = {name: frame[[n for n in names if n[0] == name]] for name in parties}
    made.fit(split, schema, budget=replace_budget(1000.0), noise="seeded")
    plan = VertiMRFPlan.of(made, {n: schema.select(list(split[n])) for n in split}, REPLACE)
    return own, plan.field.clique_cells


def replace_budget(epsilon):
    return Budget(epsilon, 1e-4, relation=Relation.REPLACE_ONE)


@pytest.mark.parametrize("parties", ["a", "ab", "abc"])
def test_a_party_s_own_cliques_leave_room_for_those_of_all(parties, monkeypatch):
    """tau' <= tau / (m u^2), of m parties whose columns have u codes in the mean."""
    tau = 36 * 36.0 * len(parties)
    own, limit = largest_cliques(monkeypatch, parties, tau)
    assert limit == tau / (len(parties) * 6**2) == 36
    assert own == dict.fromkeys(parties, 36)


def test_a_plan_without_that_bound_lets_cliques_grow(monkeypatch):
    """Else the test above could not fail."""
    of = FieldSettings
    monkeypatch.setattr(messages, "FieldSettings", lambda theta, clique_cells: of(
        theta=theta, clique_cells=clique_cells * 36
    ))  # fmt: skip
    own, _ = largest_cliques(monkeypatch, "ab", 36 * 72.0)
    assert own == dict.fromkeys("ab", 216)


def test_budgets_and_settings_that_cannot_be_are_refused():
    with pytest.raises(BudgetError, match=r"number is known to all.*REPLACE_ONE"):
        fit("fo", budget=ADD)
    with pytest.raises(BudgetError, match="budget is missing"):
        VertiMRF().fit(split(pandas_frame()), SCHEMA)
    with pytest.raises(InputError, match="encoding='fx'"):
        VertiMRF(encoding="fx")
    with pytest.raises(InputError, match=r"values_share=0.6"):
        VertiMRF(values_share=0.6)
    with pytest.raises(InputError, match="repetitions"):
        VertiMRF(repetitions=0)
    with pytest.raises(InputError, match="fewer repetitions"):
        fit("fm", budget=Budget(1e-3, 1e-5), settings={"repetitions": 100_000})
    with pytest.raises(CapacityError, match="fewer repetitions"):
        fit("fm", settings={"repetitions": 131_072, "encoded_bins": 5000, "bins": 5000})


def wide_columns(codes, rows=60):
    """Two columns at each of two parties, of which the first have so many codes."""
    letters = [f"v{k}" for k in range(codes)]
    sizes = {"a wide": letters, "a": letters[:2], "b wide": letters, "b": letters[:2]}
    schema = Schema(
        tuple(Column(n, "categorical", categories=tuple(c)) for n, c in sizes.items())
    ).with_fallbacks()
    rng = np.random.default_rng(0)
    frame = pd.DataFrame({name: rng.choice(options, rows) for name, options in sizes.items()})
    return {p: frame[[n for n in sizes if n[0] == p]] for p in "ab"}, schema


@every
def test_pairs_of_two_parties_that_a_model_has_no_room_for_are_refused(encoding, tmp_path):
    """Their counts were made all the same: 2 GB where `check` promised 294 MB, or no end."""
    data, schema = wide_columns(12)
    whole = {"encoded_bins": None, "max_model_mb": 143 * 8e-6}
    with pytest.raises(CapacityError, match=r"in 12 and 12 values have 144 pairs .* room for 143"):
        fit(encoding, data, schema, settings=whole, folder=tmp_path)
    assert not list(tmp_path.iterdir())
    fit(encoding, data, schema, settings=whole | {"max_model_mb": 144 * 8e-6})
    fit(encoding, data, schema, settings=whole | {"encoded_bins": 4})
    fit(encoding, {"a": pd.concat(data.values(), axis=1)}, schema, settings=whole)


def test_a_party_scores_no_pair_of_its_own_that_a_model_has_no_room_for(monkeypatch):
    scored, private_field = [], party.private_field

    def noted(answers, domain, pairs, *facts, **named):
        scored.append(pairs)
        return private_field(answers, domain, pairs, *facts, **named)

    monkeypatch.setattr(party, "private_field", noted)
    data, schema = wide_columns(12)
    own = {"a": pd.concat(data.values(), axis=1)}
    for cells in (144, 143):
        fit("fo", own, schema, settings={"max_model_mb": cells * 8e-6})
    assert [pair for pair in scored[0] if pair not in scored[1]] == [("a wide", "b wide")]
    assert len(scored[1]) == 5


@every
def test_a_forecast_foresees_counts_of_pairs_of_many_values(encoding):
    _, schema = wide_columns(1000)
    budget = BUDGETS[encoding]
    apart = {"a": ("a wide", "a"), "b": ("b wide", "b")}
    together = {"a": ("a wide", "b wide"), "b": ("a", "b")}

    def forecast(bins, columns):
        synth = VertiMRF(encoding, encoded_bins=bins)
        setup = Setup(synth, schema, budget, ("a", "b"), columns)
        return synth.method.forecast(setup, 60)

    far, near = (forecast(None, columns) for columns in (apart, together))
    assert far.memory_mb > near.memory_mb + 8  # a million cells of 8 bytes, and copies
    assert forecast(None, {}).memory_mb == pytest.approx(far.memory_mb, abs=1)  # a party a column
    assert forecast(4, apart).memory_mb == pytest.approx(forecast(4, together).memory_mb, abs=0.1)
    assert (far.seconds > near.seconds + 10) == (encoding == "fm")


@every
def test_other_rows_stop_before_anything_is_released(encoding, tmp_path):
    parts = split(pandas_frame())
    parts["south"] = parts["south"][:-1]
    with pytest.raises(RosterError, match="'south' has 59 rows"):
        fit(encoding, parts, folder=tmp_path)
    assert not list(tmp_path.iterdir())


@every
def test_a_forecast_is_about_right(encoding):
    fitted = fitted_once(encoding)
    synth = VertiMRF(encoding=encoding, **FAST)
    found = synth.forecast(SCHEMA, rows=60, budget=BUDGETS[encoding], parties=3)
    assert found.rounds == fitted.cost.rounds
    sent = max(t.bytes_from_party for t in fitted.cost.parties.values())
    assert found.bytes_per_party / 20 < sent < 3 * found.bytes_per_party
    assert found.epsilon_per_party == (math.inf if encoding == "fm" else REPLACE.epsilon)


def test_its_codes_are_no_noisy_marginals_to_attack(tmp_path):
    fitted = fit("fm", folder=tmp_path)
    fitted.save(tmp_path / "model")
    with pytest.raises(InputError, match="is a run of VertiMRF-FM: noisy marginals are attacked"):
        sw.attack_run(tmp_path, split(pandas_frame()), pandas_frame(seed=1))


# Killed and resumed


@every
@pytest.mark.parametrize("where", WHERE)
def test_a_run_that_was_killed_goes_on_and_gives_the_same(encoding, where, tmp_path):
    with pytest.MonkeyPatch.context() as patch:
        Tap(patch, {"fo": 2, "fm": 6}[encoding], where)  # a party's encoding
        with pytest.raises(KilledError):
            fit(encoding, folder=tmp_path)
    fitted = fit(encoding, folder=tmp_path)
    pd.testing.assert_frame_equal(
        fitted.sample(20, seed=0), fitted_once(encoding).sample(20, seed=0)
    )
    assert events_of(fitted) == events_of(fitted_once(encoding))


def test_a_party_killed_inside_its_answer_draws_the_same_again(tmp_path, monkeypatch):
    """With the operating system's entropy: what was drawn before decides what is asked next."""
    real, fields = party.private_field, []

    def killed(*args, **named):
        fields.append(real(*args, **named))
        if len(fields) == 1:
            raise KilledError
        return fields[-1]

    monkeypatch.setattr(party, "private_field", killed)
    monkeypatch.setattr("siloweave.federation.site.Site._answered", _without_refusals)
    with pytest.raises(KilledError):
        fit("fo", folder=tmp_path, noise="os")
    fitted = fit("fo", folder=tmp_path, noise="os")
    assert fitted.epsilon <= REPLACE.epsilon
    first, again = (np.concatenate([m.counts.ravel() for m in f.measured]) for f in fields[:2])
    assert np.array_equal(first, again)


def _without_refusals(site, envelope, digest, handlers):
    """As `Site._answered` where the process is gone: nothing is stored of a failure."""
    from siloweave.federation import messages

    request = messages.decode_request(envelope.body, handlers)
    site._charged = []
    site.begin(envelope)
    reply = handlers[type(request)](request, site)
    return messages.encode(envelope.answered(messages.encode(reply)))


# What each side refuses


def sites_of(encoding="fm", names=("a", "b", "c"), budget=ADD):
    synth = VertiMRF(encoding=encoding, **FAST)
    frame = pandas_frame()
    parts = {n: SCHEMA.select(c) for n, c in zip(names, SPLIT.values(), strict=False)}
    data = {n: Encoder(p, synth.bins).encode(frame[list(p.names)]) for n, p in parts.items()}
    facts = {**synth.settings(), "parts": parts, "budget": budget}
    unbounded = msgspec.structs.replace(budget, epsilon=math.inf)
    sites = roster_of(
        data, facts=facts, limit=unbounded if encoding == "fm" else budget, entropy=SeededEntropy(1)
    )
    return sites, Session(tuple(sites), Sites(sites, handlers(synth)), run="r")


def keyed(session):
    return dict(
        zip(session.roster, (r.key.value for r in session.ask(SendSketchKey())), strict=True)
    )


def sealed_by(session, keys):
    first, *others = session.roster
    (reply,) = session.ask(SealSketchKey({n: keys[n] for n in others}), [first])
    return dict(zip(others, (one.value for one in reply.keys), strict=True))


def test_all_parties_have_one_key_and_the_coordinator_never_sees_it():
    _, session = sites_of()
    keys = keyed(session)
    texts = sealed_by(session, keys)
    requests = {"a": EncodeColumns()} | {n: EncodeColumns(keys["a"], texts[n]) for n in "bc"}
    seen = []
    with pytest.MonkeyPatch.context() as patch:
        real = party.encode_rows
        patch.setattr(
            party, "encode_rows", lambda *a, key, **k: seen.append(key) or real(*a, key=key, **k)
        )
        replies = session.ask_each(requests)
    assert len(set(seen)) == 1
    assert len(seen) == 3
    whole = b"".join([*keys.values(), *texts.values(), *map(msgspec.msgpack.encode, replies)])
    assert seen[0] not in whole
    again = sites_of()[1]  # another run has another key: it is drawn, not derived
    assert sealed_by(again, keyed(again)).keys() == texts.keys()


@pytest.mark.parametrize("which", ["text", "receiver", "sealer", "order", "stranger", "first"])
def test_a_coordinator_that_changes_keys_is_refused_and_nothing_is_paid(which):
    sites, session = sites_of()
    keys = keyed(session)
    if which in ("order", "stranger", "first"):
        asked = {"order": "cb", "stranger": "bd", "first": "ac"}[which]
        request = SealSketchKey({n: keys.get(n, keys["b"]) for n in asked})
        with pytest.raises(WireError, match="asked to seal a key"):
            session.ask(request, ["b" if which == "first" else "a"])
    else:
        texts = sealed_by(session, keys)
        changed = {
            "text": (keys["a"], texts["b"][:-1] + bytes([texts["b"][-1] ^ 1])),
            "receiver": (keys["a"], texts["c"]),
            "sealer": (keys["c"], texts["b"]),
        }[which]
        with pytest.raises(WireError, match=r"was changed, or is meant|did not sign"):
            session.ask(EncodeColumns(*changed), ["b"])
    assert not any(site.ledger.entries for site in sites.values())


@every
def test_a_party_encodes_once_a_run(encoding):
    budget = BUDGETS[encoding]
    sites, session = sites_of(encoding, names=("a",), budget=budget)
    session.ask(EncodeColumns())
    paid = len(sites["a"].ledger.entries)
    with pytest.raises(WireError, match="may only come first"):
        session.ask(EncodeColumns())
    assert len(sites["a"].ledger.entries) == paid


def test_sketches_before_a_key_are_refused():
    _, session = sites_of()
    with pytest.raises(WireError, match="before it had drawn their key"):
        session.ask(EncodeColumns(), ["a"])


def _forged(reply, name):
    """A reply with one part that cannot be."""
    sent = reply.field.value

    def field(**changes):
        model = msgspec.structs.replace(sent.model, **changes.pop("model", {}))
        value = msgspec.structs.replace(sent, model=model, **changes)
        return {"field": msgspec.structs.replace(reply.field, value=value)}

    def coded(array):
        return {"encoded": msgspec.structs.replace(reply.encoded, value=array)}

    codes = reply.encoded.value.numpy()
    changes = {
        "clique": lambda: field(edges=(("sex", "wings"),)),
        "order": lambda: field(edges=(tuple(reversed(sent.model.cliques[0])) * 2,)),
        "tables": lambda: field(model={"tables": sent.model.tables[1:]}),
        "shape": lambda: field(
            model={"tables": (Array.of(np.zeros(3), "<f4"), *sent.model.tables[1:])}
        ),
        "huge": lambda: field(
            model={"tables": tuple(Array.of(t.numpy() + 1e9, "<f4") for t in sent.model.tables)}
        ),
        "empty": lambda: field(edges=((),)),
        "other rows": lambda: coded(Array.of(codes[:-1], "<u1")),
        "total": lambda: field(model={"total": -1.0}),
        "sigma": lambda: field(sigma=math.nan),
        "codes": lambda: coded(Array.of(codes + 200, "<u1")),
        "width": lambda: coded(Array.of(codes[:, 1:], "<u1")),
        "rows": lambda: {"known_rows": (Public(2**40, ""),)},
        "no rows": lambda: {"known_rows": ()},
        "values": lambda: {"values": ()},
    }
    return msgspec.structs.replace(reply, **changes[name]())


@pytest.mark.parametrize(
    "name",
    ["clique", "order", "tables", "shape", "total", "sigma", "codes", "width", "rows", "no rows",
     "values", "huge", "empty", "other rows"],
)  # fmt: skip
def test_a_party_that_sends_what_cannot_be_is_named(name, monkeypatch):
    real = Session.ask

    def ask(session, request, *args, **named):
        replies = real(session, request, *args, **named)
        if isinstance(request, EncodeColumns):
            return [_forged(replies[0], name), *replies[1:]]
        return replies

    monkeypatch.setattr(Session, "ask", ask)
    with pytest.raises(WireError, match="party 'north' sent"):
        fit("fo")


def test_nothing_follows_from_an_answer_that_paid_for_nothing():
    sites, _ = sites_of()
    with pytest.raises(LedgerError, match="has paid for nothing"):
        sites["a"].release_derived(lambda: 1)


def test_the_registry_and_the_face_have_it():
    assert sw.VertiMRF is VertiMRF
    assert VertiMRF().info.title == "VertiMRF-FO"
    assert VertiMRF("fm").info.title == "VertiMRF-FM"
