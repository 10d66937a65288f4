"""SiloFuse and E2EDistr: one model however columns are split, bytes, killed runs, odd replies."""

from dataclasses import replace

import msgspec
import numpy as np
import pandas as pd
import pytest

import siloweave as sw
from siloweave.core.party import OwnerData
from siloweave.errors import InputError, LedgerError, RosterError, WireError
from siloweave.federation import messages
from siloweave.federation.carriers.direct import Direct
from siloweave.federation.messages import Array, Envelope
from siloweave.methods.silofuse import coordinator
from siloweave.methods.silofuse.coordinator import one_hot
from siloweave.methods.silofuse.messages import Activations, Backward, BeginJoint, Code, Forward
from siloweave.methods.silofuse.party import batch_of, class_codes, step_handlers
from siloweave.privacy.ledger import Ledger
from siloweave.tables import Schema
from tests.core.kills import WHERE, KilledError, Tap
from tests.federation.rosters import roster_of
from tests.synthesizers.cases import SCHEMA, pandas_frame
from tests.synthesizers.test_columns import FAST, SPLIT, fit, fitted_once, made, split

OTHER = {"a": ["visits", "sex"], "b": ["member", "pay", "town", "age"], "c": ["seen"]}
EXACT = {"half": False}


def exactly(by):
    return made("silofuse", **EXACT).fit(split(pandas_frame(), by), SCHEMA)


def test_points_make_the_same_rows_however_columns_are_split_and_as_in_one_place():
    one, other = exactly(SPLIT), exactly(OTHER)
    central = sw.PointDiff(target="member", **FAST["silofuse"])
    rows = central.fit(pandas_frame(), SCHEMA).sample(40, seed=0)
    pd.testing.assert_frame_equal(one.sample(40, seed=0), other.sample(40, seed=0))
    pd.testing.assert_frame_equal(one.sample(40, seed=0), rows)


def test_latents_in_half_precision_are_those_of_every_split():
    one = fitted_once("silofuse")
    other = made("silofuse").fit(split(pandas_frame(), OTHER), SCHEMA)
    pd.testing.assert_frame_equal(one.sample(40, seed=0), other.sample(40, seed=0))
    exact = exactly(SPLIT)
    half, full = ({n: t.bytes_from_party for n, t in f.cost.parties.items()} for f in (one, exact))
    for name, decoder in one.model.net.decoders.items():
        assert full[name] - half[name] == 2 * 60 * decoder.coder.latent


def test_bytes_do_not_depend_on_the_length_of_training(monkeypatch):
    net = fitted_once("silofuse").model.net.joint.net
    monkeypatch.setattr(coordinator, "trained", lambda *given, **named: net)
    moved = []
    for steps in (3, 500_000):
        settings = {**FAST["silofuse"]["diffusion"], "steps": steps}
        fitted = sw.SiloFuse(target="member", diffusion=settings).fit(split(pandas_frame()), SCHEMA)
        moved.append((fitted.cost.rounds, str(list(fitted.cost.parties.values()))))
    assert moved[0] == moved[1]
    assert moved[0][0] == 3


def test_bytes_of_end_to_end_are_four_matrices_a_step():
    fitted = fitted_once("e2e_distr")
    assert fitted.cost.rounds == 2 * 3 + 4
    decoder = fitted.model.net.decoders["north"]
    seen = fitted.cost.parties["north"]
    matrices = 3 * 2 * 4 * 16 * decoder.coder.latent  # steps, two each way, float32, batch
    assert matrices < seen.bytes_to_party < matrices + 2_500
    assert seen.bytes_from_party > matrices


@pytest.mark.slow
def test_autoencoders_of_the_parties_share_the_widths():
    coder = {"steps": 2, "batch": 16, "hidden": (24, 12)}
    synth = sw.SiloFuse(coder="autoencoders", autoencoder=coder, **FAST["silofuse"])
    fitted = synth.fit(split(pandas_frame()), SCHEMA)
    for name, decoder in fitted.model.net.decoders.items():
        assert decoder.coder.coder.settings.hidden == (8, 4)
        assert decoder.coder.latent == len(decoder.features.blocks), name
    assert fitted.model.net.takes == frozenset()
    assert len(fitted.sample(8, seed=0)) == 8
    with pytest.raises(InputError, match=r"autoencoder\.per_bit is no setting"):
        sw.SiloFuse(coder="autoencoders", autoencoder={"per_bit": 1.0})
    with pytest.raises(InputError, match="from names to values, or SphereCodeSettings"):
        sw.SiloFuse(autoencoder=fitted.model.net.decoders["north"].coder.coder.settings)


@pytest.mark.parametrize(
    ("name", "stride"),
    [
        ("silofuse", 1),
        pytest.param("e2e_distr", 4, marks=pytest.mark.slow),
        pytest.param("e2e_distr", 1, marks=pytest.mark.slow),
    ],
)
def test_a_run_killed_at_any_message_ends_like_one_that_was_not(
    name, stride, tmp_path, monkeypatch
):
    """A stride of 4 kills every party, in every way; each message when slow."""
    with monkeypatch.context() as patch:
        whole = Tap(patch)
        expected = fit(name, folder=tmp_path / "whole").sample(30, seed=0)
    assert whole.count == {"silofuse": 9, "e2e_distr": 30}[name]
    paid = [len(Ledger.read(f).entries) for f in sorted(tmp_path.glob("whole/**/ledger.jsonl"))]
    for at in range(1, whole.count + 1, stride):
        folder = tmp_path / str(at)
        with monkeypatch.context() as patch:
            Tap(patch, at, WHERE[at % 3])
            with pytest.raises(KilledError):
                fit(name, folder=folder)
        again = fit(name, folder=folder)
        pd.testing.assert_frame_equal(again.sample(30, seed=0), expected)
        files = sorted(folder.glob("parties/*/ledger.jsonl"))
        assert [len(Ledger.read(file).entries) for file in files] == paid


@pytest.mark.parametrize("options", [2, 256, 300])
def test_any_number_of_classes_can_be_told(options):
    V = np.eye(options, dtype=np.float32)[::-1]
    sent = class_codes(V)
    assert len(sent.data) == options * (1 if options <= 256 else 4)
    np.testing.assert_array_equal(one_hot("north", sent, options, options), V)


def test_batches_are_permutations_of_the_rows():
    for epoch in range(3):
        found = np.concatenate([batch_of(3 * epoch + k, 60, 20, 5) for k in range(3)])
        assert sorted(found.tolist()) == list(range(60))
    assert not np.array_equal(batch_of(0, 60, 20, 5), batch_of(0, 60, 20, 6))
    assert len(batch_of(7, 5, 20, 0)) == 5


def answering(patch, kind, change):
    """Let parties answer with handlers that are changed."""
    real = kind.method.handlers
    patch.setattr(kind, "method", replace(kind.method, handlers=lambda synth: change(real(synth))))


def tampered(table, kind, change):
    """The handlers, with one whose reply a party changes before it pays for it."""
    real = table[kind]

    def handler(request, site):
        if site.name != "south":
            return real(request, site)
        release, under = site.release, site.release_under
        site.release = lambda event, what, draw: release(event, what, lambda: change(what, draw()))
        site.release_under = lambda entry, draw: under(entry, lambda: change("", draw()))
        try:
            return real(request, site)
        finally:
            del site.release, site.release_under

    return {**table, kind: handler}


def as_nan(what, value):
    if not isinstance(value, Array) or value.dtype == "<u1":
        return value
    return Array.of(np.full(value.shape, np.nan), "<f4")


def cut(what, value):
    return Array.of(value.numpy()[:-1], value.dtype) if isinstance(value, Array) else value


def thinner(what, value):
    return Array.of(value.numpy()[:, :-1], value.dtype) if isinstance(value, Array) else value


def misplaced(what, value):
    return ((0, 50, 60),) if "options" in what else value


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (misplaced, r"party 'south' says that 50 latents from 0 on are a choice among 60"),
        (as_nan, r"party 'south'.*not finite"),
        (cut, r"party 'north' sent 60 rows and party 'south' 59"),
        (thinner, r"party 'south' sent \d columns; it must be \d"),
    ],
)
def test_a_party_that_sends_nonsense_is_named(change, message, monkeypatch, tmp_path):
    answering(monkeypatch, sw.SiloFuse, lambda table: tampered(table, Code, change))
    with pytest.raises(WireError, match=message):
        fit("silofuse", folder=tmp_path)
    assert not list(tmp_path.rglob("model*"))


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (as_nan, r"'south'.*not finite"),
        (cut, r"'south' sent"),
        (thinner, r"'south' sent \w+ of"),
    ],
)
def test_so_is_one_that_does_in_a_step(change, message, monkeypatch):
    answering(monkeypatch, sw.E2EDistr, lambda table: tampered(table, Forward, change))
    with pytest.raises(WireError, match=message):
        fit("e2e_distr")


@pytest.mark.parametrize(
    "asked", [Forward(0, None), Backward(0, Array.of(np.zeros((1, 1)), "<f4"))]
)
def test_a_step_before_the_beginning_is_refused(asked):
    site = held_by_west()
    site.begin(Envelope("r", 1, "coordinator", "west", b""))
    with pytest.raises(WireError, match=r"party 'west': a step was asked for before"):
        STEPS[type(asked)](asked, site)


def test_a_stale_step_is_refused(monkeypatch):
    def late(table):
        def answer(request, site):
            stale = msgspec.structs.replace(request, step=max(0, request.step - 1))
            return table[Forward](stale if request.step == 2 else request, site)

        return {**table, Forward: answer}

    answering(monkeypatch, sw.E2EDistr, late)
    with pytest.raises(WireError, match=r"stale|no state after step"):
        fit("e2e_distr")


def test_two_runs_in_one_process_share_no_state():
    """Step by step in turn, each goes as it does alone."""
    alone = [walked(["a"]), walked(["b"])]
    turns = walked(["a", "b"])
    for run, found in zip("ab", alone, strict=True):
        for one, other in zip(found[run], turns[run], strict=True):
            np.testing.assert_array_equal(one, other)
    assert not np.array_equal(alone[0]["a"][1], alone[1]["b"][1])


def held_by_west():
    schema = Schema(tuple(SCHEMA[name] for name in SPLIT["west"])).with_fallbacks()
    part = OwnerData(sw.read(pandas_frame()[list(schema.names)]), schema)
    return roster_of({"west": part}, facts={"parts": {"west": schema}})["west"]


STEPS = step_handlers(made("e2e_distr", target=None, shared=False))


def walked(runs):
    """Latents of three steps of each run, at one party that is asked in turn."""
    site = held_by_west()
    found = {run: [] for run in runs}

    def ask(run, number, request):
        site.begin(Envelope(run, number, "coordinator", "west", b""))
        return STEPS[type(request)](request, site)

    for run in runs:
        ask(run, 0, BeginJoint(ord(run)))
    for step in range(3):
        for run in runs:
            slope = Array.of(np.ones_like(found[run][-1]), "<f4") if step else None
            found[run].append(ask(run, 2 * step + 1, Forward(step, slope)).latents.value.numpy())
        for run in runs:
            ask(run, 2 * step + 2, Backward(step, Array.of(found[run][-1], "<f4")))
    return found


@pytest.mark.parametrize("name", ["silofuse", "e2e_distr"])
def test_a_party_that_vanishes_stops_the_run_and_comes_back(name, monkeypatch, tmp_path):
    send = Direct.send

    def gone(transport, party, frame):
        if party == "west" and messages.decode(frame, Envelope).step == 1:
            raise RosterError("party 'west' is not there")
        return send(transport, party, frame)

    with monkeypatch.context() as patch:
        patch.setattr(Direct, "send", gone)
        with pytest.raises(RosterError, match="'west'"):
            fit(name, folder=tmp_path)
    expected = fitted_once(name).sample(20, seed=0)
    pd.testing.assert_frame_equal(fit(name, folder=tmp_path).sample(20, seed=0), expected)


def test_what_was_paid_once_covers_only_its_own_run_and_receiver(monkeypatch):
    def unpaid(table):
        def answer(request, site):
            reply = table[Forward](request, site)
            return Activations(site.release_under("0" * 64, lambda: reply.latents.value))

        return {**table, Forward: answer}

    answering(monkeypatch, sw.E2EDistr, unpaid)
    with pytest.raises(LedgerError, match="does not pay for"):
        fit("e2e_distr")


@pytest.mark.parametrize(
    ("settings", "said"),
    [
        ({"privacy": "latents", "half": False, "target": None}, "half=False does nothing"),
        ({"clip": 0.3}, "clip=0.3 does nothing"),
    ],
)
def test_what_would_do_nothing_is_refused(settings, said):
    with pytest.raises(InputError, match=said):
        sw.SiloFuse(**settings)


@pytest.mark.parametrize("kind", [sw.SiloFuse, sw.E2EDistr, sw.VertiGAN])
def test_rows_that_do_not_fit_are_refused_by_name_before_anything_is_paid(kind, tmp_path):
    frame = pandas_frame()
    frame.loc[3, "age"] = 400
    budget = sw.Budget(5.0, 1e-5) if kind is sw.VertiGAN else None
    with pytest.raises(InputError, match=r"party 'north': column 'age'"):
        kind().fit(split(frame), SCHEMA.refusing(), budget=budget, folder=tmp_path)
    assert not list(tmp_path.rglob("ledger.jsonl"))


def test_training_that_diverges_blames_the_rate():
    settings = FAST["e2e_distr"]["diffusion"] | {"learning_rate": 1e38}
    with pytest.raises((InputError, WireError), match=r"lower diffusion\.learning_rate"):
        sw.E2EDistr(diffusion=settings).fit(split(pandas_frame()), SCHEMA)


def test_columns_that_stay_with_their_parties_cost_no_sharing():
    apart = made("silofuse", shared=False).fit(split(pandas_frame()), SCHEMA)
    assert apart.cost.rounds == 2
    whats = {entry.what for entries in apart.ledgers.values() for entry in entries}
    assert not any("synthetic" in what or "shares" in what for what in whats)
    assert set(apart.sample_parts(4, seed=0)) == set(SPLIT)
