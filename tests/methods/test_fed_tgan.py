"""Networks that parties with different rows train in rounds: maths, rounds, refusals."""

import math
from functools import cache

import equinox as eqx
import jax
import msgspec
import numpy as np
import pytest
from safetensors.numpy import load, save

import siloweave as sw
from siloweave.errors import BudgetError, InputError, RosterError, SchemaError, WireError
from siloweave.federation import messages
from siloweave.federation.carriers.direct import Direct
from siloweave.federation.course import RECEIPTS, read_receipts
from siloweave.federation.messages import Envelope
from siloweave.methods.fed_tgan import party as rounds_file
from siloweave.methods.fed_tgan.coordinator import weights_of
from siloweave.methods.fed_tgan.method import _latent
from siloweave.models.denoiser import Evidence
from siloweave.models.latent import LatentDistribution
from siloweave.models.rounds import mean_of, own_key, packed, unpacked
from siloweave.models.settings import AutoencoderSettings
from siloweave.privacy.budget import Budget
from siloweave.privacy.events import NonPrivate
from siloweave.privacy.ledger import Ledger
from siloweave.protocols.networks import foreseen_blocks
from siloweave.tables import Column, Schema, Table
from tests.core.kills import WHERE, KilledError, Tap

SCHEMA = Schema(
    (
        Column("sex", "categorical", ("f", "m")),
        Column("town", "categorical", ("Ulm", "Bonn", "Jena"), missing=True),
        Column("age", "integer", low=18, high=60),
    )
).with_fallbacks()
GAN = {"batch": 20, "pac": 2, "generator": [8], "critic": [8], "noise": 4}
DIFFUSION = {"batch": 16, "hidden": [8], "embed": 8, "timesteps": 5}


def table(rows, seed=0):
    rng = np.random.default_rng(seed)
    town = rng.choice(np.array(["Ulm", "Bonn"], dtype=object), rows)
    return Table.from_columns(
        {
            "sex": (rng.choice(np.array(["f", "m"], dtype=object), rows), None),
            "town": (town, rng.random(rows) < 0.2),
            "age": (rng.integers(18, 61, rows), None),
        }
    )


PARTIES = {"north": table(60, 1), "south": table(60, 2)}


def fit(data=None, kind=sw.FedTGAN, *, settings=None, rounds=2, weights=None, **named):
    given = {} if weights is None else {"weights": weights}
    made = kind(rounds=rounds, **(GAN if settings is None else settings), **given)
    return made.fit(PARTIES if data is None else data, SCHEMA, **named)


@cache
def fitted_once():
    return fit()


@pytest.mark.parametrize(
    ("kind", "settings"),
    [
        (sw.FedTGAN, GAN | {"rate": 1e38}),
        (sw.FedTabDDPM, DIFFUSION | {"learning_rate": 1e38}),
    ],
)
def test_training_that_diverges_says_where(kind, settings):
    with pytest.raises(InputError, match=r"party 'north'.*diverged"):
        fit(kind=kind, settings=settings)


def weights_in(fitted):
    return packed(fitted.model.net.net.generator)


# Weights


def by_hand(S, rows, size=True, similar=True):
    """Section 4.2, column by column, as the paper writes it."""
    P, columns = S.shape
    away = [sum(S[i][j] / sum(S[k][j] for k in range(P)) for j in range(columns)) for i in range(P)]
    scores = []
    for i in range(P):
        factor = 1.0
        if similar:
            factor *= 1 - away[i] / sum(away)
        if size:
            factor *= rows[i] / sum(rows)
        scores.append(factor)
    total = sum(math.exp(x) for x in scores)
    return [math.exp(x) / total for x in scores]


def test_weights_are_those_of_the_paper_and_its_ablations():
    S = np.random.default_rng(0).uniform(0.01, 1.0, (5, 7))
    rows = [500, 500, 500, 500, 40_000]
    for name, how in {
        "similarity and size": {},
        "similarity": {"size": False},
        "size": {"similar": False},
        "equal": {"size": False, "similar": False},
    }.items():
        np.testing.assert_allclose(weights_of(S, rows, name), by_hand(S, rows, **how), rtol=1e-12)
    np.testing.assert_allclose(weights_of(S, rows, "rows"), np.array(rows) / sum(rows))


def test_an_odd_party_hardly_counts_where_typical_ones_do():
    S = np.array([[0.1, 0.2], [0.12, 0.2], [0.9, 0.8]])
    found = weights_of(S, [10, 10, 80], "typical")
    assert found[2] < 0.01
    assert found.sum() == pytest.approx(1)
    same = weights_of(S[:1].repeat(3, 0), [1, 1, 2], "typical")
    np.testing.assert_allclose(same, [0.25, 0.25, 0.5])


def test_parties_that_are_all_alike_have_equal_weights():
    assert weights_of(np.zeros((4, 3)), [7] * 4).tolist() == [0.25] * 4
    assert weights_of(np.zeros((1, 3)), [7]).tolist() == [1.0]


def test_owners_keys_are_no_steps_and_no_parts_of_a_split():
    key = jax.random.key(0)
    assert own_key(key, 0) is key
    owners = [drawn_from(own_key(key, place)) for place in range(4)]
    steps = [drawn_from(jax.random.fold_in(key, step)) for step in range(9)]
    assert len(set().union(*owners)) == sum(map(len, owners))
    assert not set().union(*owners[1:]) & set().union(*steps)


def test_a_mean_takes_each_network_by_its_own_weight():
    trees = [{"a": np.float32([[k, 10.0 * k]]), "n": 3} for k in (1, 2, 4)]
    found = mean_of(trees, [0.5, 0.25, 0.25])
    assert found["a"].tolist() == [[2.0, 20.0]]
    assert found["a"].dtype == np.float32
    assert found["n"] == 3


# One party is the central case


@pytest.mark.parametrize(
    ("kind", "central", "settings"),
    [
        (sw.FedTGAN, sw.CTGAN, GAN),
        pytest.param(sw.FedTabDDPM, sw.TabDDPM, DIFFUSION, marks=pytest.mark.slow),
        pytest.param(sw.FedPointDiff, sw.LatentDiff, {}, marks=pytest.mark.slow),
    ],
)
def test_one_party_trains_what_a_central_fit_trains(kind, central, settings):
    alone = table(450, 3)  # every number is listed, so encoders are the same
    length = {"epochs": 2} if central is sw.CTGAN else {"steps": 2 * (450 // 16)}
    if kind is sw.FedPointDiff:
        # Defaults of the two are not the same, and a scale from sums is rounded otherwise.
        settings = points(loss_weight=0.0, waves=0) | {"scaled": False}
        length = {"autoencoder": {"per_bit": 1.0}}
    ours = fit([alone], kind, settings=settings, rounds=2)
    whole = central(**settings, **length).fit(alone, SCHEMA)
    assert ours.model.features == whole.model.features
    for a, b in zip(*map(jax.tree.leaves, map(sampling, (ours, whole))), strict=True):
        np.testing.assert_array_equal(a, b)


def sampling(fitted):
    """The network that rows are drawn with."""
    net = fitted.model.net.net
    if hasattr(net, "distribution"):
        net = net.distribution.diffusion
    return net.generator if hasattr(net, "generator") else net.net


# Parties that take the steps of a central fit


POINTS = {"batch": 60, "hidden": [8], "embed": 8, "timesteps": 5, "steps": 12}


def points(**changes):
    return {"diffusion": POINTS | changes}


def pooled(owners=1, target=None, **changes):
    """What so many parties of these rows would train."""
    synth = sw.FedPointDiff(rounds=2, target=target, **points(**changes))
    return _latent(synth, foreseen_blocks(SCHEMA, "quantile"), owners)


def test_a_batch_is_divided_by_rows_and_every_party_takes_as_many_steps():
    learner = pooled(2)
    assert [learner.batch(rows, 120) for rows in (30, 90, 120)] == [15, 45, 60]
    assert learner.batch(1, 10**6) == 1  # a party of one row takes part in every step
    assert [learner.steps(rows, 120, None) for rows in (30, 90, 120)] == [12, 12, 12]
    few = pooled(2, steps=40_000, passes=3.0, passes_from=0)
    assert few.steps(30, 600, None) == 3 * 600 // 60  # passes of all rows


def test_rounds_of_a_pooled_training_have_about_five_steps():
    learner = pooled(2, steps=60)
    assert learner.steps(120, 120, 0) == 60
    assert learner.num_rounds(8000, 120) == 12
    assert learner.num_rounds(5, 120) == 5
    fitted = fit(kind=sw.FedPointDiff, settings=points(steps=11), rounds=8000)
    assert fitted.cost.rounds == 2 + 3 + 1  # the last one brings the ledgers


def test_a_state_is_whole_again_from_what_is_shared_and_what_stays():
    learner = pooled(2)
    state = learner.start(jax.random.key(0), 12)
    slope = jax.tree.map(jax.numpy.ones_like, eqx.filter(state.net, eqx.is_inexact_array))
    state = learner.update(12).moved(state, slope)
    again = learner.joined(*learner.split(state))
    assert bool(eqx.tree_equal(again, state))


def test_drawn_numbers_are_matched_to_the_rows_of_all_parties():
    """Their mean and spread follow from sums that the coordinator has anyway."""
    parties = {"north": table(300, 1), "south": table(200, 2)}

    def drawn_ages(matched):
        hurried = points(timesteps=20, learning_rate=0.6, matched=matched)
        fitted = fit(parties, sw.FedPointDiff, settings=hurried, rounds=1)
        diffusion = fitted.model.net.net.distribution.diffusion
        latents = diffusion.sample(3000, key=jax.random.key(3))
        evidence = Evidence(len(diffusion.layout.numbers), diffusion.layout.sphere_codes)
        (age,) = evidence.plain
        return latents[:, diffusion.layout.numbers[age]]

    # Latents that are numbers are scaled by the rows of all parties.
    assert drawn_ages(2000).mean() == pytest.approx(0, abs=0.1)
    assert drawn_ages(2000).std() == pytest.approx(1, abs=0.1)
    assert abs(drawn_ages(0).mean()) > 0.2


def test_a_diffusion_in_rounds_is_matched_too():
    fitted = fit(kind=sw.FedTabDDPM, settings=DIFFUSION | {"matched": 600}, rounds=1)
    assert set(fitted.model.net.net.scaling) == {"gain", "shift"}


@pytest.mark.parametrize("target", [None, "sex"])
def test_weights_of_one_partys_label_are_that_partys_own(target):
    learner = pooled(3, target)
    parts = [learner.split(learner.start(jax.random.key(k), 1))[0] for k in range(3)]
    whole = learner.together(parts, [0.2, 0.3, 0.5])
    tables = [part[0].label.weight for part in parts]
    for option, weight in enumerate(whole[0].label.weight):
        np.testing.assert_array_equal(weight, tables[option % 3][option])
    mean = mean_of([part[0].project.weight for part in parts], [0.2, 0.3, 0.5])
    np.testing.assert_array_equal(whole[0].project.weight, mean)


@pytest.mark.parametrize(("target", "options"), [(None, 3), ("sex", 6)])
def test_a_label_says_the_class_and_the_party(target, options):
    learner = pooled(3, target)
    X = np.zeros((4, learner.coder.layout.width), np.float32)
    for block in learner.coder.layout.categoricals:
        X[:, block.start] = 1.0  # the first option of each
    plain = pooled(1, target).vectors(X)
    rows = learner.vectors(X, 2)
    latent = learner.coder.latent
    np.testing.assert_array_equal(rows[:, :latent], plain[:, :latent])
    assert rows.shape == (4, latent + options)
    assert rows[:, latent:].argmax(1).tolist() == [2] * 4
    assert rows[:, latent:].sum() == 4


def test_what_is_given_says_whose_rows_are_drawn(monkeypatch):
    """A row given in part is drawn under the party of the drawn row that is most like it."""
    fitted = fit(kind=sw.FedPointDiff, settings=points() | {"target": "sex"}, rounds=1)
    net = fitted.model.net.net
    latent = net.distribution.latent
    assert net.owners == 2
    assert len(net.label_shares) == 2  # of classes, whose rows are those of both parties
    assert sum(net.label_shares) == pytest.approx(1)

    pool = np.zeros((2, latent + 4), np.float32)
    pool[0, :latent], pool[0, latent + 0] = -1.0, 1.0  # the first class, of the first party
    pool[1, :latent], pool[1, latent + 3] = 1.0, 1.0  # the second class, of the second party
    monkeypatch.setattr(LatentDistribution, "sample", lambda *_, **__: pool)
    given = np.full((4, latent + 2), np.nan, np.float32)
    given[0, 0], given[1, 0] = -0.9, 0.9
    given[2, 0], given[2, latent:] = 0.9, (1.0, 0.0)
    labels = net._with_owners(given, jax.random.key(0))[:, latent:]
    assert labels[:2].argmax(1).tolist() == [0, 3]
    assert labels[2].argmax() == 0  # the class that is asked for, though its number is not near
    assert np.isnan(labels[3]).all()


# Rounds


def test_how_many_parties_work_at_once_changes_nothing():
    one = fit(at_once=1)
    assert weights_in(one) == weights_in(fitted_once())
    assert one.cost.parties == fitted_once().cost.parties


def test_a_round_moves_networks_both_ways_and_nothing_else_grows():
    fitted = fitted_once()
    assert fitted.cost.rounds == 2 + 2 + 1  # the last one brings the ledgers
    longer = fit(rounds=4)
    one, other = (f.cost.parties["north"] for f in (fitted, longer))
    per_round = (other.bytes_from_party - one.bytes_from_party) / 2
    kept = len(weights_in(fitted))
    assert kept < per_round < 12 * kept  # generator and critic
    assert other.bytes_to_party > 4 * kept


@pytest.mark.slow
def test_each_party_is_weighted_by_its_own_rows():
    data = {"small": table(30, 4), "large": table(90, 5)}
    found = fit(data, weights="rows").settings["party_weights"]
    assert found == [0.25, 0.75]
    turned = dict(reversed(data.items()))
    assert fit(turned, weights="rows", rounds=1).settings["party_weights"] == [0.75, 0.25]


def test_the_ledger_says_so_before_anything_leaves(tmp_path, monkeypatch):
    send, seen = Direct.send, []

    def sent(transport, name, frame):
        answer = send(transport, name, frame)
        paid = [Ledger.read(f).entries for f in sorted(tmp_path.glob("parties/*/ledger.jsonl"))]
        seen.append([len(entries) for entries in paid])
        return answer

    monkeypatch.setattr(Direct, "send", sent)
    fitted = fit(folder=tmp_path, rounds=1)
    assert seen[0][0] == 1  # north has answered once, and paid
    assert seen[-1] == [1, 1]
    assert all(isinstance(e.event, NonPrivate) for es in fitted.ledgers.values() for e in es)
    assert fitted.epsilon == math.inf
    assert not fitted.private
    receipts = tmp_path / RECEIPTS  # and no transcript: thousands of networks would fill a disk
    assert list(receipts.parent.iterdir()) == [receipts]
    paid = [one.entry for one in read_receipts(receipts) if one.entry]
    assert paid == [es[0].hash for es in fitted.ledgers.values()]


# A run that is killed


@pytest.mark.parametrize("where", WHERE)
@pytest.mark.parametrize("at", [1, 4, 6])
def test_a_killed_run_goes_on_to_the_same_model(tmp_path, monkeypatch, where, at):
    with monkeypatch.context() as patch:
        Tap(patch, at, where)
        with pytest.raises(KilledError):
            fit(folder=tmp_path, at_once=1)
    if at > 1:
        with pytest.raises(InputError, match="party 'north': its rows changed since this run"):
            fit({**PARTIES, "north": table(60, 3)}, folder=tmp_path, at_once=1)
    again = fit(folder=tmp_path, at_once=1)
    assert weights_in(again) == weights_in(fitted_once())
    assert [len(entries) for entries in again.ledgers.values()] == [1, 1]


# Parties that misbehave


def misbehaving(monkeypatch, change, name="south"):
    """Let one party answer rounds with something else."""
    trained = rounds_file._trained

    def wrong(synth, trainer, request, site):
        data = trained(synth, trainer, request, site)
        return change(data, request) if site.name == name else data

    monkeypatch.setattr(rounds_file, "_trained", wrong)


def with_nan(data, request):
    arrays = load(data)
    first = sorted(arrays)[0]
    arrays[first] = np.full_like(arrays[first], np.nan)
    return save(arrays)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (with_nan, "party 'south', round 0: an array holds NaN"),
        (lambda data, request: packed([np.zeros(3, np.float32)]), "south.*other shapes"),
        (lambda data, request: b"nothing", "south.*are no arrays"),
    ],
)
def test_a_party_that_sends_no_networks_is_named(monkeypatch, change, message):
    misbehaving(monkeypatch, change)
    with pytest.raises(WireError, match=message):
        fit()


def test_a_stale_round_is_refused_by_the_party(monkeypatch):
    trained = rounds_file._trained

    def later(synth, trainer, request, site):
        stale = msgspec.structs.replace(request, number=2 * request.number)
        return trained(synth, trainer, stale, site)

    monkeypatch.setattr(rounds_file, "_trained", later)
    with pytest.raises(WireError, match=r"party 'north'.*round 2 does not follow"):
        fit(rounds=3, at_once=1)


def test_a_party_that_vanishes_stops_the_run(tmp_path, monkeypatch):
    send = Direct.send

    def gone(transport, name, frame):
        if name == "south" and messages.decode(frame, Envelope).step == 3:
            raise RosterError("party 'south' does not answer")
        return send(transport, name, frame)

    with monkeypatch.context() as patch:
        patch.setattr(Direct, "send", gone)
        with pytest.raises(RosterError, match="south"):
            fit(folder=tmp_path)
    assert weights_in(fit(folder=tmp_path)) == weights_in(fitted_once())


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda sent: sent[:-1], "'south' sent columns that cannot be read: summaries are"),
        (
            lambda sent: (sent[0], sent[0], sent[2]),
            "'south' sent columns that cannot be read: summaries are",
        ),
        (lambda sent: "nonsense", "party 'south'"),
    ],
)
def test_a_party_that_sends_other_columns_is_named(monkeypatch, change, message):
    whole = rounds_file.summarise

    def wrong(held, schema, *, numeric):
        sent = whole(held, schema, numeric=numeric)
        return change(sent) if held.num_rows == 61 else sent

    monkeypatch.setattr(rounds_file, "summarise", wrong)
    with pytest.raises(WireError, match=message):
        fit({"north": table(60, 1), "south": table(61, 2)})


def test_a_category_that_is_not_declared_is_refused_before_anything_leaves(tmp_path):
    odd = Table.from_columns(
        {
            "sex": (np.array(["f", "x"], dtype=object), None),
            "town": (np.array(["Ulm", "Bonn"], dtype=object), None),
            "age": (np.array([20, 30]), None),
        }
    )
    with pytest.raises(SchemaError, match=r"party 'south'.*'sex'"):
        fit({"north": table(60), "south": odd}, folder=tmp_path)
    assert not list(tmp_path.rglob("ledger.jsonl"))


@pytest.mark.slow
def test_a_party_of_one_row_takes_part():
    fitted = fit({"north": table(60), "lone": table(1, 9)}, rounds=1)
    assert fitted.num_rows == 61
    assert len(fitted.sample(10, seed=0)) == 10


def test_what_cannot_be_is_refused_before_anything_is_read():
    with pytest.raises(BudgetError, match=r"adds no noise.*DPFedTGAN"):
        fit("nowhere.csv", budget=Budget(1.0, 1e-6))
    with pytest.raises(RosterError, match="data has no party"):
        fit([])
    with pytest.raises(RosterError, match="party 'b' has no rows"):
        fit({"a": table(10), "b": table(10).take([])})


@pytest.mark.parametrize(
    ("kind", "wrong", "words"),
    [
        (sw.FedTGAN, {"rounds": 0}, "rounds=0 must be a whole number"),
        (sw.FedTGAN, {"epochs": 1.5}, "epochs=1.5 must be a whole number"),
        (sw.FedTGAN, {"weights": "mine"}, "weights='mine' must be one of"),
        (sw.FedTGAN, {"wings": 2}, "FedTGAN takes no wings"),
        (sw.FedTGAN, {"target": "sex"}, "FedTGAN takes no target"),
        (sw.MDTGAN, {"average": 0.5}, r"average=0\.5.*MD-TGAN has"),
        (sw.FedTabDDPM, {"steps": 5}, "^steps=5 does nothing here: rounds and epochs"),
        (sw.DPTabDDPM, {"matched": 9}, "^matched=9 would read the mean and spread"),
        (sw.DPTabDDPM, {"self_conditioned": True}, "^self_conditioned=True shows the network"),
        (
            sw.FedPointDiff,
            {"diffusion": {"minutes": 5.0}},
            r"^diffusion\.minutes=5\.0 does nothing",
        ),
        (sw.FedPointDiff, {"epochs": 2}, "FedPointDiff takes no epochs"),
        (sw.FedPointDiff, {"autoencoder": {"hidden": [8]}}, r"autoencoder\.hidden is no setting"),
        (
            sw.FedPointDiff,
            {"autoencoder": AutoencoderSettings()},
            r"mapping.*or SphereCodeSettings",
        ),
    ],
)
def test_settings_that_are_wrong_or_would_do_nothing_are_refused(kind, wrong, words):
    with pytest.raises(InputError, match=words):
        kind(**wrong)


def test_bytes_that_are_no_networks_are_refused():
    like = {"w": np.float32([1.0, 2.0])}
    assert unpacked(packed(like), like)["w"].tolist() == [1.0, 2.0]
    for wrong, message in (
        (b"", "no arrays"),
        (packed({"w": np.float64([1.0, 2.0])}), "other shapes"),
        (packed({"w": np.float32([1.0, np.inf])}), "NaN or an infinity"),
    ):
        with pytest.raises(sw.SiloweaveError, match=message):
            unpacked(wrong, like)


# MD-TGAN


def test_the_coordinator_and_every_party_draw_from_keys_of_their_own(monkeypatch):
    from siloweave.models import gan

    keys = {"asked_rows": [], "judged": []}
    for name in keys:
        real = getattr(gan, name)

        def noted(*given, real=real, name=name):
            keys[name].append(given[-1])
            return real(*given)

        monkeypatch.setattr(gan, name, noted)
    fit(kind=sw.MDTGAN, rounds=1)
    used = [drawn_from(key) for key in keys["asked_rows"] + keys["judged"]]
    assert len(used) == 3 + 2 * 3
    assert len(set().union(*used)) == sum(map(len, used))


def drawn_from(key):
    """A key and its children, as they may be split or folded."""
    family = [key, *jax.random.split(key, 4)]
    return {tuple(jax.random.key_data(one).tolist()) for one in family}


@pytest.mark.slow
def test_critics_change_places_and_a_killed_run_goes_on(tmp_path, monkeypatch):
    whole = fit(kind=sw.MDTGAN, rounds=2)
    steps = 2 * (60 // 20)
    assert whole.cost.rounds == 2 + steps + 2 + 1  # two questions to change places once
    with monkeypatch.context() as patch:
        Tap(patch, 2 * (2 + 3 + 1) + 1, WHERE[2])  # north has taken south's critic
        with pytest.raises(KilledError):
            fit(kind=sw.MDTGAN, rounds=2, folder=tmp_path, at_once=1)
    again = fit(kind=sw.MDTGAN, rounds=2, folder=tmp_path, at_once=1)
    assert weights_in(again) == weights_in(whole)


@pytest.mark.slow
def test_feedback_of_another_shape_is_refused(monkeypatch):
    of = rounds_file.Array.of
    monkeypatch.setattr(
        rounds_file.Array, "of", lambda x, kind: of(x[:3] if x.ndim == 2 else x, kind)
    )
    with pytest.raises((WireError, TypeError, ValueError), match=r"north|shape|match"):
        fit(kind=sw.MDTGAN, rounds=1)
