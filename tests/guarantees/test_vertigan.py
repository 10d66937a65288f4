"""VertiGAN on neighbours: the whole run over two parties, from rows to weights, replayed."""

import jax
import numpy as np
import pytest

from siloweave.algorithms.vertigan_method import VertiGAN
from siloweave.models import vertigan as maths
from siloweave.privacy import SampledGaussian, bookkeeping
from tests.algorithms.test_vertigan import BUDGET, NET, SAME, halves
from tests.guarantees.replay import record, replay
from tests.guarantees.steps import taped


def run(data, clip, penalty):
    """A program is compiled for a tape, so every test has a penalty of its own."""
    net = {**NET, "rounds": 2, "penalty": penalty}
    made = VertiGAN(settings=net, clip=clip, bins=8)
    return made.fit(data, SAME, budget=BUDGET, noise="seeded")


def neighbours(clip, penalty):
    """A run on all people, and its replay without the last one, at both parties."""
    whole, found = halves(), []
    for part in whole.values():  # a person unlike all others
        part.loc[len(part) - 1] = ["c", "f"]
    less = {name: part[:-1] for name, part in whole.items()}
    with taped() as first:
        tape = record(lambda: found.append(run(whole, clip, penalty)))
    with taped(first) as second:
        twin = replay(tape, lambda: found.append(run(less, clip, penalty)))
    return found, (first, second), twin


def weights(fitted):
    nets = [fitted.model.joint.trunk.net, *(h.head.net for h in fitted.model.homes.values())]
    return [np.asarray(leaf) for net in nets for leaf in jax.tree.leaves(net)]


def test_a_person_moves_what_all_parties_paid_for_and_nothing_else():
    clip = 0.125
    (fitted, other), (first, second), twin = neighbours(clip, 7.0)
    events = [e.event for entries in fitted.ledgers.values() for e in entries]
    steps = [event for event in events if isinstance(event, SampledGaussian)]
    assert sum(event.count for event in steps) == len(first.exact) == len(second.exact) == 8
    (multiplier,) = {event.noise_multiplier for event in steps}
    assert min(first.widths) == max(first.widths) == pytest.approx(clip * multiplier, rel=1e-6)
    assert 0.5 * clip < max(second.moved) <= clip * (1 + 1e-5)
    twin.require(l2=np.sqrt(2))  # each party counts two columns
    counted = [d for d in twin.distances("l2") if d]
    assert counted == pytest.approx([1.0, np.sqrt(2), np.sqrt(2)])  # rows are counted once
    twin.require_paid(events)
    assert fitted.ledgers.keys() == other.ledgers.keys()
    for one, two in zip(weights(fitted), weights(other), strict=True):
        np.testing.assert_array_equal(one, two)
    for name, entries in fitted.ledgers.items():
        assert [e.event for e in entries] == [e.event for e in other.ledgers[name]]


@pytest.mark.slow
def test_mutants_are_seen(monkeypatch):
    """No clip, and slopes that tell the exact number of rows."""

    def unclipped(squares, mask, clip):
        return squares**0.5, mask.astype("float32")

    played = maths.play

    def leaky(settings, heads, own, hidden, rows, **how):
        own, slope = played(settings, heads, own, hidden, rows, **how)
        return own, slope if len(rows) % 2 else -slope

    monkeypatch.setattr(bookkeeping, "_scale", unclipped)
    monkeypatch.setattr(maths, "play", leaky)
    (fitted, other), (_, second), _ = neighbours(0.126, 6.0)
    assert max(second.moved) > 0.126 * 1.01
    gaps = [np.abs(a - b).max() for a, b in zip(weights(fitted), weights(other), strict=True)]
    assert max(gaps) > 0.0
