"""Private training over split rows: record and replay on neighbours, and mutants that are seen."""

from dataclasses import dataclass, replace

import equinox as eqx
import jax
import msgspec
import numpy as np
import pytest

from siloweave.core.method import Setup, Task
from siloweave.errors import WireError
from siloweave.federation.session import Session
from siloweave.federation.site import Site
from siloweave.methods.dp_sgd import coordinator
from siloweave.methods.dp_sgd.messages import BeginTraining, Step
from siloweave.models.nets import MLP, Dense
from siloweave.privacy import gradients
from siloweave.privacy.budget import Budget, Relation, rho_for
from siloweave.privacy.events import SampledSharedGaussian, SharedGaussian, order_of
from siloweave.privacy.mechanisms import SeededEntropy
from siloweave.protocols import histograms
from siloweave.protocols.histograms import (
    CountColumns,
    HistogramData,
    NoisyHistogram,
    count_columns,
)
from siloweave.protocols.secure_sums import masked_reply
from siloweave.tables import Column, Schema, Table
from siloweave.tables.codes import Encoder
from siloweave.tables.features import Features
from tests.guarantees.replay import DivergenceError, Tape, record
from tests.guarantees.swapped import swap
from tests.guarantees.whole import (
    claimed_sigma,
    paid_calls,
    require_fresh_masks,
    require_fresh_noise,
    run_of,
    sums_of,
    twins,
)
from tests.synthesizers.families import PRIVATE_ROW_METHODS, takes_target

SCHEMA = (
    Schema(
        (
            Column("size", "continuous", low=-1.0, high=4.0),
            Column("kind", "categorical", ("a", "b", "c")),
            Column("sex", "categorical", ("f", "m")),
        )
    )
    .with_fallbacks()
    .placed()
)
ENCODER = Encoder(SCHEMA, 6)
DIFFUSION, GAN = "dp_fed_tabddpm", "dp_fed_tgan"
SMALL = {
    DIFFUSION: {"hidden": [6], "embed": 6, "timesteps": 5, "steps": 3, "batch": 60},
    GAN: {
        "generator": [6], "critic": [6], "noise": 4, "ratio": 2, "steps": 3, "batch": 60, "pool": 8
    },
}  # fmt: skip
BUDGET = Budget(epsilon=6.0, delta=1e-5)
CLIP = 0.01  # every row reaches it


def rows(number, seed, last=None):
    """Rows whose last one may be far from all others."""
    rng = np.random.default_rng(seed)
    size, kind = rng.uniform(-1, 0, number), rng.integers(0, 2, number)
    sex = rng.integers(0, 2, number)
    if last is not None:
        size[-1], kind[-1], sex[-1] = last
    names = np.array(["a", "b", "c"], dtype=object), np.array(["f", "m"], dtype=object)
    table = Table.from_columns(
        {"size": (size, None), "kind": (names[0][kind], None), "sex": (names[1][sex], None)}
    )
    return HistogramData(table, ENCODER, ENCODER.encode(table))


def neighbours(relation=Relation.ADD_REMOVE):
    """Three parties, of which the first has a row more, or another one, at the end."""
    others = {"p1": rows(25, 1), "p2": rows(20, 2)}
    odd = rows(30, 0, last=(4.0, 2, 0))
    if relation is Relation.REPLACE_ONE:
        return {"p0": odd, **others}, {"p0": rows(30, 0, last=(-1.0, 0, 1)), **others}
    fewer = odd.table.take(range(29))
    other = HistogramData(fewer, ENCODER, ENCODER.encode(fewer))
    return {"p0": odd, **others}, {"p0": other, **others}


@dataclass(frozen=True)
class Study:
    """The private rounds over a roster."""

    name: str = DIFFUSION
    budget: Budget = BUDGET
    tolerated: int = 1
    handlers: object = None
    clip: float = CLIP
    steps: int = 3

    @property
    def made(self):
        kind = PRIVATE_ROW_METHODS[self.name]
        settings = SMALL[self.name] | ({"target": "sex"} if takes_target(kind) else {})
        return kind(
            **settings | {"steps": self.steps},
            clip=self.clip,
            finest_bins=6,
            tolerated=self.tolerated,
        )

    def setup(self, roster):
        """The run's public facts."""
        return Setup(self.made, SCHEMA, self.budget, tuple(roster))

    def opened(self, roster, seed=0, entropy=None):
        """Parties that wait for a coordinator."""
        made = self.made
        return run_of(
            roster, self.handlers or made.method.handlers(made), budget=self.budget, seed=seed,
            entropy=entropy, tolerated=self.tolerated, facts=made.method.facts(self.setup(roster)),
        )  # fmt: skip

    def __call__(self, roster, seed=0, entropy=None):
        run = self.opened(roster, seed, entropy)
        session = Session(tuple(roster), run.wire, run="r")
        task = Task(self.setup(roster), rho_for(self.budget), seed)
        run.model = self.made.method.coordinate(session, task)
        return run


def coins(number, rate, *, entropy):
    """The same rows for neighbours, but for the last; nothing of the entropy is used up."""
    step = np.random.default_rng(np.frombuffer(entropy.at("coins").bytes(8), "<u4"))
    return np.flatnonzero(step.random(1000)[:number] < rate)


@pytest.fixture(autouse=True)
def same_coins(monkeypatch):
    """Sampling itself is tested below; here neighbours draw alike."""
    monkeypatch.setattr(gradients, "drawn", coins)


every = pytest.mark.parametrize("name", SMALL)
_GAN_CASES = [(GAN, relation, 1) for relation in Relation]
_CASES = [*((DIFFUSION, r, t) for r in Relation for t in (1, 2)), *_GAN_CASES]


def test_no_number_of_rows_is_too_large_for_a_party(monkeypatch):
    """Whoever names a width at which vectors take 16 GiB would learn the number from a refusal."""
    encode = Features.encode

    def encode_in_little_memory(features, table, **arguments):
        with monkeypatch.context() as patched:
            # The coordinator encodes many rows that it drew.
            if table.num_rows <= 30:
                patched.setattr("siloweave.tables.features._MOST_BYTES", 1)
            return encode(features, table, **arguments)

    monkeypatch.setattr(Features, "encode", encode_in_little_memory)
    parties, _ = neighbours()
    assert Study()(parties).model


@pytest.mark.parametrize(("name", "relation", "tolerated"), _CASES)
def test_a_row_moves_what_was_paid_for_and_nothing_else(name, relation, tolerated):
    study = Study(name, Budget(6.0, 1e-5, relation=relation), tolerated)
    for seed in range(2):
        pair = twins(study, *neighbours(relation), seed=seed)
        pair.check()
        paid = paid_calls(pair.tape)
        mine = [p for p in paid if p.owner == "p0"]
        assert [type(p.event) for p in mine] == [SharedGaussian] + 3 * [SampledSharedGaussian]
        for p, (_, far) in zip(paid, pair.twin.moved, strict=True):
            assert np.linalg.norm(far.astype(float)) <= p.event.sensitivity * (
                2 if relation is Relation.REPLACE_ONE else 1
            )
        assert pair.first.ledger("p0").epsilon() > 0.9 * study.budget.epsilon
        assert weights_of(pair.first) == weights_of(pair.second)


def weights_of(run):
    network = run.model.model.net.net
    leaves = jax.tree.leaves(getattr(network, "net", None) or network.generator)
    counts = run.model.model.one_way.to_json()
    return b"".join(np.asarray(x).tobytes() for x in leaves) + counts.encode()


@every
def test_the_sensitivity_is_nearly_reached(name):
    """A row at the clip moves the sum by one clip: the bound is no fantasy."""
    pair = twins(Study(name), *neighbours())
    far = [
        np.linalg.norm(moved.astype(float)) / p.event.sensitivity
        for p, (_, moved) in zip(paid_calls(pair.tape), pair.twin.moved, strict=True)
        if isinstance(p.event, SampledSharedGaussian) and p.owner == "p0"
    ]
    assert 0.9 < max(far) <= 1


def test_one_party_is_the_central_case():
    roster, other = neighbours()
    twins(Study(), {"p0": roster["p0"]}, {"p0": other["p0"]}).check()


def test_the_coordinator_sees_sums_under_the_noise_that_is_claimed():
    runs, roster = [], neighbours()[0]
    tape = record(lambda: runs.append(Study(steps=8)(roster)))
    fresh_noise(tape)
    require_fresh_masks(runs[0])
    steps = [s for s in sums_of(runs[0], tape) if isinstance(s.request, Step)]
    assert len(steps) == 8
    noise = np.concatenate([s.noise / claimed_sigma(s.event) for s in steps])
    assert 0.95 < noise.std() * np.sqrt(2 / 3) < 1.05  # three shares, of which one may be known
    known = np.concatenate([(s.noise - s.shares[0]) / claimed_sigma(s.event) for s in steps])
    assert 0.95 < known.std() < 1.05
    assert all(abs(s.exact).max() < 2**31 // 3 for s in steps)


def fresh_noise(tape):
    """The noise of every step differs; that of counts is too narrow to compare."""
    kept = [c for c in tape.calls if not narrow(c)]
    require_fresh_noise(Tape(kept))


def narrow(call):
    if call.name == "charge":
        return isinstance(call.settings["event"], SharedGaussian)
    return call.settings["sigma"] < 20


# Known faults are seen


def check(study=None):
    twins(study or Study(), *neighbours()).check()


def changed(name=DIFFUSION, **steps):
    """Handlers of which some are replaced."""
    made = Study(name).made
    asked = {"step": Step, "count": CountColumns}
    own = {asked[name]: handler for name, handler in steps.items()}
    return made.method.handlers(made) | own


def unclipped(real):
    """No clip at all."""

    def scale(squares, mask, clip):
        norms, _ = real(squares, mask, clip)
        return norms, mask.astype("float32")

    return scale


def factors(loss, model, rows, mask, clip, key, layer, rows_per_unit):
    return gradients.factors(
        loss, model, rows, mask, clip=clip, key=key, layer=layer, rows_per_unit=rows_per_unit
    )


def forward_only(real):
    """Norms that leave the calls backwards out, which the sum has: no bias takes part in these."""
    return lambda x, d: real(x * x[..., -1:], d)


@pytest.mark.parametrize(
    ("name", "place", "mutant"), [(DIFFUSION, "_scale", unclipped), (GAN, "_square", forward_only)]
)
def test_mutants_whose_clip_does_not_bound_what_is_summed_are_caught(
    monkeypatch, name, place, mutant
):
    monkeypatch.setattr(gradients, place, mutant(getattr(gradients, place)))
    monkeypatch.setattr(gradients, "_compiled", eqx.filter_jit(factors))  # another program
    with pytest.raises(AssertionError, match="above the declared"):
        check(Study(name))


def count_paid_once(request, site):
    """Counts all columns and pays for one."""
    codes = site.rows.codes
    sized = zip(codes.columns, codes.domain.sizes, strict=True)
    tables = [np.bincount(c, minlength=n).astype(np.int64) for c, n in sized]
    tables.append(np.array([codes.num_rows], dtype=np.int64))
    return masked_reply(request, site, tables, "counts", contributes=1)


def test_the_mutant_that_pays_for_one_column_is_caught():
    with pytest.raises(AssertionError, match=r"above|was charged"):
        check(Study(handlers=changed(count=count_paid_once)))


def of_steps(monkeypatch, change):
    """Let `change` have its way with the event and the integers of every step."""
    honest = Site.release_masked

    def release(self, event, what, counts, cohort, besides=b""):
        if isinstance(event, SampledSharedGaussian):
            event, counts = change(event, counts)
        return honest(self, event, what, counts, cohort, besides)

    monkeypatch.setattr(Site, "release_masked", release)


def test_the_mutant_that_divides_by_the_rows_drawn_is_caught(monkeypatch):
    """As if a party sent its mean gradient times the batch that was planned."""
    drawn = []

    def noted(*args, **named):
        drawn.append(coins(*args, **named))
        return drawn[-1]

    monkeypatch.setattr(gradients, "drawn", noted)
    of_steps(monkeypatch, lambda event, x: (event, np.rint(x * 60 / len(drawn[-1])).astype(int)))
    with pytest.raises(AssertionError, match=r"above|was charged"):
        check()


def test_the_mutant_that_rounds_to_another_grid_than_it_pays_for_is_caught(monkeypatch):
    of_steps(monkeypatch, lambda event, x: (event, 2 * x))
    with pytest.raises(AssertionError, match=r"above|was charged"):
        check()


def test_the_mutant_whose_share_of_the_noise_is_too_small_is_caught(monkeypatch):
    def release(self, event, what, counts, cohort, besides=b""):
        narrow = msgspec.structs.replace(event, share_sigma=max(1.0, event.share_sigma / 2))
        pay, self.pay = self.pay, lambda _, said: pay(event, said)
        try:
            return kept(self, narrow, what, counts, cohort, besides)
        finally:
            del self.pay

    kept = Site.release_masked
    monkeypatch.setattr(Site, "release_masked", release)
    with pytest.raises(AssertionError, match="was charged"):
        check()


def test_the_mutant_that_draws_the_same_noise_in_every_step_is_caught(monkeypatch):
    monkeypatch.setattr(SeededEntropy, "at", lambda self, step: SeededEntropy(self._key))
    tape = record(lambda: Study()(neighbours()[0]))
    with pytest.raises(AssertionError, match="same noise"):
        fresh_noise(tape)


def test_the_mutant_whose_rate_depends_on_the_rows_is_caught(monkeypatch):
    """A coordinator that knows the true number of rows."""
    honest = histograms.noisy_histogram
    counted = {}

    def peeking(*asked, **named):
        return replace(honest(*asked, **named), rows=counted["rows"])

    def count(request, site):
        counted["rows"] = counted.get("rows", 0) + site.rows.table.num_rows
        return count_columns(request, site)

    swap(monkeypatch, coordinator, "histograms", noisy_histogram=peeking)
    with pytest.raises((AssertionError, DivergenceError)):
        check(Study(handlers=changed(count=count)))


def test_the_mutant_whose_generator_is_told_unpaid_frequencies_is_caught(monkeypatch):
    """Rows of the pool are asked for a kind only if somebody is of that kind, as messages show."""
    honest, counted = NoisyHistogram.shares, {}

    def peeking(self, features):
        shares, seen = honest(self, features), counted.pop("kind") > 0
        return {k: seen if len(v) == 3 else v for k, v in shares.items()}

    def count(request, site):
        kinds = np.bincount(site.rows.codes.column("kind"), minlength=3)
        counted["kind"] = counted.get("kind", 0) + kinds
        return count_columns(request, site)

    monkeypatch.setattr(NoisyHistogram, "shares", peeking)
    with pytest.raises(AssertionError, match=r"depends on the rows|above the|other inputs"):
        check(Study(GAN, handlers=changed(GAN, count=count)))


# Sums and sampling


class Known:
    """Entropy that a test can follow; protects nothing."""

    def bytes(self, n):
        return bytes(range(n))


@pytest.mark.parametrize("count", [0, 7, 300])
def test_the_sum_is_that_of_every_clipped_gradient(count):
    """Against a gradient per row; several turns add up."""
    net, size = MLP(3, (4,), 2, key=jax.random.key(0), act="tanh"), gradients.CHUNK
    rows = np.random.default_rng(1).normal(size=(400, 3)).astype(np.float32)
    rows[3] = np.inf  # its gradient is not finite, and counts nothing
    picked = np.arange(count)
    found = gradients.summed(square, net, rows, picked, clip=0.3, layer=Dense, entropy=Known())
    key = jax.random.wrap_key_data(np.frombuffer(bytes(range(8)), "<u4"))
    wanted = np.zeros(gradients.flat_size(net))
    for start in range(0, count, size):
        chosen = rows[start : min(start + size, count)]
        keys = jax.random.split(key, size)[: len(chosen)]
        grads = jax.vmap(eqx.filter_grad(square), (None, 0, 0))(net, chosen, keys)
        leaves = [
            np.asarray(x, np.float64).reshape(len(chosen), -1) for x in jax.tree.leaves(grads)
        ]
        every = np.concatenate(leaves, 1)
        norms = np.linalg.norm(every, axis=1)
        scale = np.where(np.isfinite(norms), np.minimum(1, 0.3 / np.maximum(norms, 1e-30)), 0.0)
        wanted += scale @ np.where(scale[:, None] > 0, every, 0.0)
    np.testing.assert_allclose(found, wanted, rtol=1e-4, atol=1e-5)
    again = gradients.unflattened(found, net)
    assert jax.tree.structure(again) == jax.tree.structure(eqx.filter(net, eqx.is_inexact_array))
    assert (count == 0) == (not found.any())


def square(net, row, key):
    return ((net(row) + jax.random.normal(key, (2,))) ** 2).sum()


def test_the_order_of_rows_leaves_no_trace_in_a_sum():
    """64-bit sums: what float32 would lose is far above what the grid could tell."""
    net = MLP(3, (4,), 2, key=jax.random.key(0), act="tanh")
    rows = np.random.default_rng(1).normal(size=(256, 3)).astype(np.float32)

    def total(order):
        return gradients.summed(
            plain_square, net, rows, order, clip=0.3, layer=Dense, entropy=Known()
        )

    ahead, back = total(np.arange(256)), total(np.arange(256)[::-1].copy())
    assert np.linalg.norm(ahead - back) < 0.3 * 2.0**-10 / 10


def plain_square(net, row, key):
    return (net(row) ** 2).sum()


def test_every_row_is_drawn_by_a_coin_of_its_own(monkeypatch):
    monkeypatch.undo()
    entropy, seen = SeededEntropy(5), np.zeros((2000, 40))
    for one in seen:
        one[gradients.drawn(40, 0.3, entropy=entropy)] = 1
    assert abs(seen.mean() - 0.3) < 0.01
    assert abs(seen.sum(1).var() - 40 * 0.3 * 0.7) < 1.2  # binomial: no fixed size of a batch
    assert np.abs(np.corrcoef(seen.T) - np.eye(40)).max() < 0.1
    assert gradients.drawn(40, 1.0, entropy=entropy).tolist() == list(range(40))
    assert gradients.drawn(40, 1e-12, entropy=entropy).size == 0


def test_a_beginning_that_cannot_be_paid_for_is_refused():
    roster = neighbours()[0]
    parties = Session(tuple(roster), Study().opened(roster).wire, run="r")
    asked = BeginTraining(Features.declared(SCHEMA).to_json(), 100, 0.1)
    for wrong in ({"levels": 0}, {"rate": 0.0}, {"rate": -0.1}, {"rate": 1.5}, {"rate": np.nan}):
        with pytest.raises(WireError, match=rf"party 'p0'.*{next(iter(wrong))} ?="):
            parties.ask(msgspec.structs.replace(asked, **wrong))
    assert all(reply.ready.value for reply in parties.ask(asked))


@pytest.mark.parametrize("relation", Relation)
def test_all_steps_are_read_at_one_order_where_the_number_of_rows_is_hidden(relation):
    """With the histogram they spend the budget, whatever the noisy number of rows was."""
    budget = Budget(6.0, 1e-5, relation=relation)
    run = Study(budget=budget)(neighbours(relation)[0])
    for site in run.sites.values():
        counts, *steps = site.ledger.events
        (order,) = {order_of(step) for step in steps}
        if relation is Relation.REPLACE_ONE:
            assert order is None
        else:
            setup = Study(budget=budget).setup(run.sites)
            assert order == setup.synth.method.facts(setup)["order"]
            assert coordinator.counts_event(setup) == counts
        assert 0.98 * budget.epsilon < site.ledger.epsilon() <= budget.epsilon


def test_nothing_secret_comes_from_the_seed():
    """The same seed of the user, and other entropy: other batches, other noise."""
    roster = neighbours()[0]
    words = []
    for k in range(2):
        run = Study()(roster, entropy=lambda i, k=k: SeededEntropy(f"{k}/{i}".encode()))
        words.append(weights_of(run))
    assert words[0] != words[1]
