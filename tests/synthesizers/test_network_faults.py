"""Ends that are killed, coordinators that ask for something else, and what crosses a network."""

from dataclasses import replace
from itertools import count, islice

import msgspec
import numpy as np
import polars as pl
import pytest

from siloweave.core.method import REPLIES
from siloweave.core.party import OwnerHooks, StageFacts, study_party
from siloweave.core.run import run_study
from siloweave.core.settings import agreed
from siloweave.errors import (
    DataError,
    InputError,
    LedgerError,
    SiloweaveError,
    StudyError,
    WireError,
)
from siloweave.federation import messages
from siloweave.federation.carriers.sealed import SealedCarrier
from siloweave.federation.frames import FRAME, Opened
from siloweave.federation.messages import Array, Envelope, Public
from siloweave.federation.session import Close, Session
from siloweave.methods.registry import METHODS
from siloweave.privacy.ledger import Identity, Ledger
from siloweave.protocols import columns
from siloweave.protocols.schema import LEARNING
from siloweave.tables import Column, Encoder, Schema, write
from siloweave.tables.bins import Cuts
from tests.synthesizers.networked import (
    Framed,
    ends,
    fit_over_frames,
    jobs_of,
    over_files,
    plan_of,
    setup_of,
)
from tests.synthesizers.test_network import cases, here, paid, texts
from tests.synthesizers.test_visibility import CASES, Case

STUDY = agreed({"a": "study"})
_ROWS = 40


class KilledError(Exception):
    """An end's process is gone."""


class Faulty(Framed):
    """Every end is killed at one of the questions: before it comes, or with its answer."""

    def __init__(self, seals, hosts, at, moment):
        super().__init__(seals, hosts)
        self.at, self.moment, self.number = at, moment, count(1)  # parties are asked in threads

    def answered(self, name, question):
        last = next(self.number) == self.at
        if last and self.moment == "before":
            raise KilledError
        host, seals = self.hosts[name]
        with seals.answered(question, host.reply) as answer:
            if last and self.moment == "answered":
                raise KilledError  # the answer is stored, and the nonce is not
        if last and self.moment == "sent":
            raise KilledError
        return answer


def killed_at(case, folder, at, moment):
    with ends(case, folder, STUDY) as (setup, seals, hosts):
        job = jobs_of(case, folder=folder / "office", rows=_ROWS)
        carrier = SealedCarrier(Faulty(seals, hosts, at, moment), seals)
        with pytest.raises(KilledError):
            run_study(setup, job, carrier, study=STUDY)


def check_killed(name, tmp_path, *, every):
    """Kill all ends at every such question, start them again, and compare with a whole run."""
    case = CASES[name]
    one = here(case)
    _, crossed = fit_over_frames(case, tmp_path / "whole", rows=_ROWS)
    asked = len(crossed) // 2
    assert asked >= 6
    moments = ("before", "answered", "sent")
    for number, at in enumerate(range(1, asked + 1, every)):
        for moment in moments if every == 1 else [moments[number % 3]]:
            folder = tmp_path / f"{moment}-{at}"
            killed_at(case, folder, at, moment)
            other, _ = fit_over_frames(case, folder, rows=_ROWS)
            assert paid(other) == paid(one)
            assert texts(other, tmp_path) == texts(one, tmp_path)


def test_ends_that_are_killed_continue_to_the_same_bytes(tmp_path):
    check_killed("two_round", tmp_path, every=3)


@pytest.mark.slow
@pytest.mark.parametrize("name", ["two_round", "silofuse", "secure_two_round", "flaim that learns"])
def test_ends_that_are_killed_at_any_question_continue_to_the_same_bytes(name, tmp_path):
    check_killed(name, tmp_path, every=1)


# A party believes nothing that it can compute


def asked(hosts, seals, facts, run="run", name=None):
    """What the first question of a stage is answered with."""
    name = name or next(iter(hosts))
    frame = messages.encode(Envelope(run, 0, seals.name, name, messages.encode(Close())))
    return Framed(seals, hosts).send(name, frame, messages.encode(facts) if facts else b"")


def facts_of(setup, **changed):
    facts = StageFacts(STUDY, "method", setup.schema.to_json(), "", "seeded")
    return msgspec.structs.replace(facts, **changed)


def other_bound(schema):
    return Schema(
        tuple(
            msgspec.structs.replace(c, high=c.high * 2)
            if c.kind in ("integer", "continuous")
            else c
            for c in schema.columns
        )
    ).with_fallbacks()


@pytest.mark.parametrize(
    ("changed", "run", "wrong"),
    [
        (lambda s: {"study": agreed({"a": "lie"})}, "run", "a = 'study', and there 'lie'"),
        (lambda s: {"stage": "bins"}, "run", "no run of the study|sent columns"),
        (lambda s: {"stage": "other"}, "run", "has no stage 'other'"),
        (lambda s: {"schema": other_bound(s.schema).to_json()}, "run", "declares them|otherwise"),
        (
            lambda s: {"encoder": Encoder(s.schema, bins=2).to_json()},
            "run",
            "coded otherwise",
        ),
        (lambda s: {}, "another", "no run of the study"),
        (None, "run", "knows of no run"),
    ],
    ids=["study", "stage", "no stage", "schema", "encoder", "run", "no facts"],
)
def test_a_stage_that_is_not_of_the_study_is_refused_before_it_is_paid(
    changed, run, wrong, tmp_path
):
    with ends(CASES["two_round"], tmp_path, STUDY) as (setup, seals, hosts):
        facts = facts_of(setup, **changed(setup)) if changed else None
        with pytest.raises(SiloweaveError, match=wrong):
            asked(hosts, seals, facts, run)
        assert not any(host.ledger.entries for host, _ in hosts.values())


def test_what_a_hostile_coordinator_made_long_is_not_repeated_at_full_length(tmp_path, caplog):
    long = "x" * 1_000_000
    with ends(CASES["two_round"], tmp_path, STUDY) as (setup, seals, hosts):
        for run, changed in (
            ("run", {"study": agreed({"a": long})}),
            ("run", {"stage": long}),
            (long, {}),
        ):
            with pytest.raises(SiloweaveError) as caught:
                asked(hosts, seals, facts_of(setup, **changed), run)
            assert 4000 < len(str(caught.value)) < 4100
        assert caplog.text.count("a question was refused") == 3
        assert len(caplog.text) < 20_000
    refusal = messages.Refusal("StudyError", f"no: {long}").error()  # nor by a hostile party
    assert (type(refusal), str(refusal)[:4]) == (StudyError, "no: ")
    assert str(refusal).endswith("x... (1,000,004 characters)")
    assert len(str(refusal)) < 4100


def test_a_stage_begins_with_one_set_of_facts(tmp_path):
    case = CASES["two_round"]
    with ends(case, tmp_path, STUDY) as (setup, seals, hosts):
        fine = Encoder(setup.schema, bins=case.synth.bins)
        asked(hosts, seals, facts_of(setup, encoder=fine.to_json()))
        asked(hosts, seals, facts_of(setup, encoder=fine.to_json()))  # again, as after a restart
        with pytest.raises(WireError, match="began with other facts"):
            asked(hosts, seals, facts_of(setup))


def test_rows_that_do_not_fit_are_not_counted_for_the_coordinator(tmp_path, monkeypatch):
    case = CASES["two_round"]
    with ends(case, tmp_path, STUDY) as (setup, seals, hosts):

        def prepare(table, setup, party):
            raise DataError("column 'age': 5 rows hold 'ninety'")

        monkeypatch.setattr(
            "siloweave.core.party.side_of",
            lambda setup: replace(setup.synth.method, prepare=prepare),
        )
        with pytest.raises(WireError, match="'run' failed with DataError") as caught:
            asked(hosts, seals, facts_of(setup))
        assert "5 rows" not in str(caught.value)
        assert "ninety" not in str(caught.value)


def test_a_coordinator_cuts_into_as_many_bins_as_the_study_says(tmp_path):
    case = CASES["two_round"]
    with ends(case, tmp_path, STUDY) as (setup, seals, hosts):
        plain = Encoder(setup.schema, bins=case.synth.bins)
        name = next(c.name for c in setup.schema.columns if c.kind == "integer")
        low = int(setup.schema[name].low)
        starts = tuple(range(low + 1, low + 1 + case.synth.bins))
        many = replace(plain, cuts={name: Cuts(starts)})
        with pytest.raises(WireError, match="into 6 bins; by the study these are 5 at most"):
            asked(hosts, seals, facts_of(setup, encoder=many.to_json()))


@pytest.mark.parametrize("lie", ["missing", "nothing"])
def test_only_what_is_open_may_be_learned(lie):
    setup, _ = setup_of(CASES["aim that learns"])
    towns = tuple(sorted({"elsewhere", "Bern"}))
    facts = {"categories": towns, "learned": ("categories",)}
    if lie == "missing":
        facts["missing"] = not setup.schema["town"].missing
    told = Schema(
        tuple(
            msgspec.structs.replace(c, **facts) if c.name == "town" else c
            for c in setup.schema.columns
        )
    ).with_fallbacks()
    if lie == "nothing":
        assert LEARNING.accepts(setup, replace(setup, schema=told)).schema == told
        return
    with pytest.raises(WireError, match="town"):
        LEARNING.accepts(setup, replace(setup, schema=told))


def test_a_party_that_keeps_another_number_of_rows_is_named(tmp_path, monkeypatch):
    def fewer(read_decoder, request, site):
        return columns.KeptColumns(Public(39, "as many as were asked for"))

    monkeypatch.setattr(columns, "keep_columns", fewer)
    with pytest.raises(WireError, match=r"'north' sent rows = 39"):
        fit_over_frames(CASES["silofuse apart"], tmp_path, rows=_ROWS)


def far_off_case():
    """Autoencoders that have hardly learned: numbers that they draw are far off."""
    case = CASES["silofuse"]
    tiny = {"hidden": [4], "steps": 3, "batch": 16}
    return replace(case, settings=case.settings | {"coder": "autoencoders", "autoencoder": tiny})


def test_numbers_that_are_far_off_are_moved_at_their_party_as_in_one_process(tmp_path):
    case, rows = far_off_case(), 150
    fitted, _ = fit_over_frames(case, tmp_path, rows=rows)
    one = here(case)
    own, other = tmp_path / "1.csv", tmp_path / "2.csv"
    write(one.sample_table(rows, seed=0), own)
    write(fitted.sample_table(rows, seed=0), other)
    assert own.read_text() == other.read_text()
    plain = one.sample_table(rows, seed=0, raked=False)
    assert not set(plain.values("pay").tolist()) >= set(fitted.sample_table().values("pay"))
    # Code, share, decode, decode more, move, close: none that the plan does not count.
    assert {name: found.messages for name, found in fitted.cost.parties.items()}["north"] == 6


@pytest.mark.parametrize(
    ("cells", "words"),
    [
        (lambda own: (), "0 lists of cells; it must be 1"),
        (lambda own: (own, own), "2 lists of cells; it must be 1"),
        (lambda own: (Array.of(own.numpy()[1:], "<u1"),), "cells of shape"),
        (lambda own: (Array.of(np.full(own.shape, 255), "<u1"),), "cells with the value = 255"),
    ],
)
def test_a_party_that_says_nonsense_of_cells_is_named(cells, words, tmp_path, monkeypatch):
    packed = columns._packed

    def changed(rows, schema, codes):
        found = packed(rows, schema, codes)
        return tuple(msgspec.structs.replace(one, cells=cells(*one.cells)) for one in found)

    monkeypatch.setattr(columns, "_packed", changed)
    with pytest.raises(WireError, match=f"'north' sent {words}"):
        fit_over_frames(CASES["silofuse"], tmp_path, rows=120)


@pytest.mark.parametrize("places", [[-1], [0, 10**6], [[0]], [0.0]])
def test_a_party_refuses_to_move_rows_that_it_has_not_drawn(places, tmp_path, monkeypatch):
    case, asked_each = far_off_case(), Session.ask_each

    def changed(session, requests, **named):
        dtype = "<f4" if isinstance(places[0], float) else "<i4"
        chosen = Array.of(np.array(places), dtype)
        requests = {
            name: msgspec.structs.replace(one, chosen=chosen) if getattr(one, "chosen", 0) else one
            for name, one in requests.items()
        }
        return asked_each(session, requests, **named)

    monkeypatch.setattr(Session, "ask_each", changed)
    with pytest.raises(WireError, match="'the coordinator' sent chosen"):
        fit_over_frames(case, tmp_path, rows=150)


@pytest.mark.parametrize("kind", [InputError, LedgerError])
def test_a_policy_is_asked_before_every_stage(tmp_path, kind):
    case = CASES["two_round"]
    with ends(case, tmp_path, STUDY) as (setup, seals, hosts):

        def forbidden(ledger):
            raise kind("policy.toml does not allow it: study 'asthma' has spent 2.0")

        for host, _ in hosts.values():
            host.owner = OwnerHooks(allow=forbidden)
        with pytest.raises(StudyError, match="does not allow the study any more") as caught:
            asked(hosts, seals, facts_of(setup))
        assert "asthma" not in str(caught.value)


# What crosses


def canaries():
    """Fifty values that are in rows alone: ids, and numbers with all their digits."""
    random = np.random.default_rng(5)
    numbers = random.uniform(10, 90, 50)
    names = [f"canary-{i:03d}-{v:.0f}" for i, v in enumerate(random.uniform(1e6, 1e7, 50))]
    frame = pl.DataFrame(
        {"id": names, "x": numbers, "kind": [("a", "b")[i % 2] for i in range(50)]}
    )
    schema = Schema(
        (
            Column("id", "id"),
            Column("x", "continuous", low=0.0, high=100.0),
            Column("kind", "categorical", categories=("a", "b")),
        )
    ).with_fallbacks()
    return frame, schema, names, numbers


PLANTED = {
    "two_round": {"bins": 5},
    "flaim": {"bins": 5},
    "secure_two_round": {"bins": 5},
    "silofuse": CASES["silofuse"].settings | {"target": None},
    "e2e_distr": CASES["e2e_distr"].settings | {"target": None},
    "fed_tgan": CASES["fed_tgan"].settings,
    "vertigan": CASES["vertigan"].settings,
}
"""Methods that are run on rows with canaries, and their settings."""


def planted_case(method):
    """A small study whose rows hold canaries, and what these are."""
    frame, schema, names, numbers = canaries()
    parts = [frame[:25], frame[25:]]
    if METHODS[method].method.split == "columns":
        parts = [frame[["id", "x"]], frame[["id", "kind"]]]
    case = Case(method, PLANTED[method], lambda seed: parts, schema, CASES[method].fit)
    return case, names, numbers


def holds(data, numbers):
    """Which of some numbers stand in data, as text or as floats in either order of bytes."""
    forms = [(repr(float(x)).encode(), x.tobytes(), x.byteswap().tobytes()) for x in numbers]
    return [x for x, three in zip(numbers, forms, strict=True) if any(one in data for one in three)]


DRAWN = 101  # rows are raked from 100 on, and a rank of 101 is at each fiftieth


@pytest.mark.parametrize("method", PLANTED)
def test_nothing_that_is_in_rows_alone_crosses_or_stays_at_the_coordinator(
    method, tmp_path, monkeypatch
):
    """The whole view of a spool folder's carrier, and all that the coordinator reads and stores.

    That includes synthetic rows, which parties that decode move here: hardly trained, they draw
    numbers that are far off.
    """
    case, names, numbers = planted_case(method)
    answers, read = [], Session._read

    def heard(session, asked, body, kind):
        answers.append(body)
        return read(session, asked, body, kind)

    monkeypatch.setattr(Session, "_read", heard)
    fitted, _ = fit_over_frames(case, tmp_path, over=over_files, rows=DRAWN)
    drawn = fitted.sample_table(DRAWN, seed=0)
    fitted.save(tmp_path / "office" / "fit")
    write(drawn, tmp_path / "office" / "rows.csv")
    places = (tmp_path / "spool", tmp_path / "office")
    seen, office = (b"".join(p.read_bytes() for p in d.rglob("*") if p.is_file()) for d in places)
    assert len(seen) > 5000
    assert not [name for name in names if name.encode() in seen + office]
    assert len(answers) > 3
    assert not holds(b"".join([seen, office, *answers]), numbers)
    assert not np.isin(drawn.values("x"), numbers).any()
    setup, _ = setup_of(case)
    tags = [tag.encode() for asked in plan_of(case, setup).values() for tag in asked]
    assert not [tag for tag in tags if tag in seen]  # no frame is readable
    if REPLIES in case.synth.method.stores:
        assert [tag for tag in tags if tag in office]  # the coordinator's own transcript is


def test_a_flipped_bit_anywhere_is_refused_and_changes_nothing(tmp_path):
    case = CASES["two_round"]
    with ends(case, tmp_path, STUDY) as (setup, seals, hosts):
        name = setup.roster[0]
        frame = messages.encode(Envelope("run", 0, seals.name, name, messages.encode(Close())))
        question = seals.ask(name, frame, messages.encode(facts_of(setup)))
        host, own = hosts[name]
        for i in range(0, len(question), 97):
            bad = bytearray(question)
            bad[i] ^= 1 << (i % 8)
            with pytest.raises(WireError), own.answered(bytes(bad), host.reply):
                pass
        with own.answered(question, host.reply) as answer:
            assert answer
        with pytest.raises(WireError, match="comes again"), own.answered(question, host.reply):
            pass
        assert Ledger.read(tmp_path / name / "ledger.jsonl").entries == ()


def test_a_study_that_is_refused_leaves_no_ledger_behind(tmp_path):
    case = CASES["two_round"]
    setup, tables = setup_of(case)
    name = setup.roster[0]

    def forbidden(ledger):
        raise InputError("policy.toml does not allow it")

    with pytest.raises(InputError, match="does not allow it"):
        study_party(
            name, setup, STUDY, tables[name], jobs_of(case, identity=Identity.create()), tmp_path,
            {}, owner=OwnerHooks(allow=forbidden),
        )  # fmt: skip
    assert not (tmp_path / "ledger.jsonl").exists()


# A party answers no more than the plan says


class Recorded(Framed):
    """Remembers the last question of each kind to each party, as the party opened it."""

    def __init__(self, seals, hosts):
        super().__init__(seals, hosts)
        self.last = {}

    def answered(self, name, question):
        opened = self.hosts[name][1].open(question, self.seals.name)
        envelope = messages.decode(opened.data, Envelope)
        for one in (envelope, envelope.next) if envelope.then else (envelope,):
            tag = msgspec.msgpack.decode(one.body)["type"]
            self.last[name, one.run, tag] = msgspec.structs.replace(one, then=b"")
        return super().answered(name, question)


@cases("two_round", "flaim that learns", "silofuse", "secure_two_round")
def test_a_question_more_than_the_plan_counts_is_refused(name, tmp_path):
    """Also after a restart of the party; and one that comes again is still answered."""
    case = CASES[name]
    with ends(case, tmp_path, STUDY) as (setup, seals, hosts):
        carrier = Recorded(seals, hosts)
        job = jobs_of(case, folder=tmp_path / "office", rows=_ROWS)
        run_study(setup, job, SealedCarrier(carrier, seals), study=STUDY)
        plan = {
            (p, run): hosts[p][0]._sites[run][0].terms.question_limits for p, run, _ in carrier.last
        }
        steps = count(1000)  # none twice
        for (party, run, tag), asked_last in carrier.last.items():
            host, most = hosts[party][0], plan[party, run][tag]
            if most > 9:
                continue  # a step of a training
            reasons = []
            for step in islice(steps, 1 + int(most)):
                again = msgspec.structs.replace(asked_last, step=step)
                before = len(host.ledger.entries)
                host._sides.clear()
                host._sites.clear()
                try:
                    host.reply(Opened(FRAME, messages.encode(again), b""))
                    reasons.append("")
                except SiloweaveError as error:
                    reasons.append(str(error))
            assert f"times in run {run!r}; by the study's plan it answers {most}" in reasons[-1]
            assert len(host.ledger.entries) == before
            host.reply(Opened(FRAME, messages.encode(asked_last), b""))


def test_a_question_of_no_stage_of_the_plan_is_refused(tmp_path):
    with ends(CASES["two_round"], tmp_path, STUDY) as (setup, seals, hosts):
        host, _ = hosts[setup.roster[0]]
        host.question_limits = {"bins": {}}
        with pytest.raises(WireError, match="by the study's plan it answers 0"):
            asked(hosts, seals, facts_of(setup))
