"""VertiGAN on neighbours: the whole run over two parties, from rows to weights, replayed."""

import equinox as eqx
import jax
import numpy as np
import pytest

from siloweave.errors import WireError
from siloweave.methods.vertigan import party
from siloweave.methods.vertigan.method import VertiGAN
from siloweave.models import vertigan as maths
from siloweave.privacy import gradients
from siloweave.privacy.events import SampledSharedGaussian
from tests.core.kills import Tap
from tests.guarantees.replay import record, replay
from tests.guarantees.test_private_rounds import coins
from tests.methods.test_vertigan import BUDGET, NET, SAME, halves

STEPS = 2 * NET["critic_steps"]  # of a party, in two rounds


@pytest.fixture(autouse=True)
def same_coins(monkeypatch):
    """Neighbours draw the same rows but for the last."""
    monkeypatch.setattr(gradients, "drawn", coins)


def run(data, clip, folder=None):
    made = VertiGAN(**{**NET, "rounds": 2}, clip=clip, finest_bins=8)
    return made.fit(data, SAME, budget=BUDGET, noise="seeded", folder=folder)


def neighbours(clip):
    """A run on all people, and its replay without the last one, at both parties."""
    whole, found = halves(), []
    for part in whole.values():  # a person unlike all others
        part.loc[len(part) - 1] = ["c", "f"]
    less = {name: part[:-1] for name, part in whole.items()}
    tape = record(lambda: found.append(run(whole, clip)))
    return found, tape, replay(tape, lambda: found.append(run(less, clip)))


def weights(fitted):
    model = fitted.model.net
    nets = [model.joint.net.net, *(one.coder.net for one in model.decoders.values())]
    return [np.asarray(leaf) for net in nets for leaf in jax.tree.leaves(net)]


def steps_of(tape, fitted):
    """The noisy sums of critic steps, after the counts of both parties and of the rows."""
    (event,) = {
        entry.event
        for entries in fitted.ledgers.values()
        for entry in entries
        if isinstance(entry.event, SampledSharedGaussian)
    }
    wide = [c for c in tape.calls if c.name == "add_gaussian"]
    return event, [c for c in wide if c.settings["sigma"] == event.share_sigma]


def check():
    """Fail unless a person moves what all parties paid for, and nothing else."""
    (fitted, other), tape, twin = neighbours(0.01)
    events = [e.event for entries in fitted.ledgers.values() for e in entries]
    event, steps = steps_of(tape, fitted)
    assert sum(e.count for e in events if e == event) == len(steps) == 2 * STEPS
    assert all(call.settings["kind"] == "i" for call in steps)  # integers, and exact noise
    assert {call.answer.dtype for call in steps} == {np.dtype(np.int64)}
    far = twin.distances("l2")
    counted, moved = far[:3], far[3:]
    assert counted == pytest.approx([1.0, np.sqrt(2), np.sqrt(2)])  # rows are counted once
    assert max(moved) <= event.sensitivity, "a step moved further than it was charged for"
    twin.require_paid(events)
    assert fitted.ledgers.keys() == other.ledgers.keys()
    for one, two in zip(weights(fitted), weights(other), strict=True):
        np.testing.assert_array_equal(one, two, "weights follow from what was not paid for")
    for name, entries in fitted.ledgers.items():
        assert [e.event for e in entries] == [e.event for e in other.ledgers[name]]
    return max(moved) / event.sensitivity


def test_a_person_moves_what_all_parties_paid_for_and_nothing_else():
    assert check() > 0.5


def compiled_anew(patch):
    """Gradients by another program than that of earlier runs, which does not see a patch."""

    def factors(loss, model, rows, mask, clip, key, layer, rows_per_unit):
        return gradients.factors(
            loss, model, rows, mask, clip=clip, key=key, layer=layer, rows_per_unit=rows_per_unit
        )

    patch.setattr(gradients, "_compiled", eqx.filter_jit(factors))


def unclipped(patch):
    """Gradients are added up as they are."""

    def scale(squares, mask, clip):
        return squares**0.5, mask.astype("float32")

    patch.setattr(gradients, "_scale", scale)
    compiled_anew(patch)


def slopes_that_show_the_number_of_rows(patch):
    """Their sign says whether it is odd."""
    played = party._privately

    def leaky(state, *how):
        own, slope = played(state, *how)
        return own, slope if len(state.rows) % 2 else -slope

    patch.setattr(party, "_privately", leaky)


@pytest.mark.parametrize(
    ("mutant", "words"),
    [
        (unclipped, "a step moved further"),
        (slopes_that_show_the_number_of_rows, "weights follow from what was not paid for"),
    ],
)
def test_mutants_are_seen(mutant, words, monkeypatch):
    mutant(monkeypatch)
    with pytest.raises(AssertionError, match=words):
        check()


def test_a_round_that_was_paid_for_is_answered_once_whatever_comes_of_it(monkeypatch, tmp_path):
    """Networks that diverged answer too: a refusal could be asked for again, and drawn anew."""
    real = maths.judged

    def broken(settings, own, slope):
        moved = real(settings, own, slope)
        return jax.tree.map(lambda x: x * np.nan if eqx.is_inexact_array(x) else x, moved)

    monkeypatch.setattr(maths, "judged", broken)
    said = []
    for _ in range(2):
        with pytest.MonkeyPatch.context() as patch:
            tap = Tap(patch)
            with pytest.raises(WireError, match=r"not finite.*lower critic_rate"):
                run(halves(), 0.5, tmp_path)
        said.append(tap.answers)
    assert said[0] == said[1]  # the same bytes, and so the same draw


def test_a_sum_of_real_losses_that_overflows_aborts_nothing(monkeypatch):
    real, seen = maths.RowLoss.__call__, []

    def huge(self, critic, row, key):
        seen.append(row)
        return real(self, critic, row, key) + 3e38

    monkeypatch.setattr(maths.RowLoss, "__call__", huge)
    compiled_anew(monkeypatch)
    assert run(halves(), 0.5).epsilon <= BUDGET.epsilon
    assert seen  # the patch is in the program


def test_one_row_and_none_run_alike():
    """Whether a run starts is seen by everyone."""
    one, found = halves(1), []
    tape = record(lambda: found.append(run(one, 0.01)))
    none = {name: part[:0] for name, part in one.items()}
    twin = replay(tape, lambda: found.append(run(none, 0.01)))
    twin.require_paid([e.event for entries in found[0].ledgers.values() for e in entries])
    assert found[0].num_rows == found[1].num_rows
    for left, right in zip(weights(found[0]), weights(found[1]), strict=True):
        np.testing.assert_array_equal(left, right)
