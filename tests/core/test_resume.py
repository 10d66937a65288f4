"""A run that is killed goes on where it was: nothing is drawn or paid for twice.

Killed means: an exception at some message, before the party answers it, while it answers (after it
paid, before its reply is on disk), or after it answered (the reply is lost). Then the same folder,
run and seed again.
"""

from shutil import rmtree

import numpy as np
import pytest

from siloweave.errors import InputError, LedgerError, WireError
from siloweave.methods.aim.method import AIM
from siloweave.methods.distaim.method import DistAIM
from siloweave.methods.flaim.method import FLAIM
from siloweave.privacy.budget import Budget
from siloweave.privacy.ledger import Ledger
from siloweave.tables import Column, Schema, Table
from tests.core.kills import WHERE, KilledError, Tap

SCHEMA = Schema(
    (
        Column("sex", "categorical", categories=("f", "m")),
        Column("town", "categorical", categories=("Ulm", "Bonn", "Jena")),
        Column("age", "integer", low=0, high=99),
    )
).with_fallbacks()
BUDGET = Budget(epsilon=3.0, delta=1e-5)
PARTIES = 4


def tables(seed=0):
    rng = np.random.default_rng(seed)
    return [
        Table.from_columns(
            {
                "sex": (rng.choice(np.array(["f", "m"], dtype=object), size=30), None),
                "town": (rng.choice(np.array(["Ulm", "Bonn", "Jena"], dtype=object), 30), None),
                "age": (rng.integers(0, 100, size=30), None),
            }
        )
        for _ in range(PARTIES)
    ]


def fit(folder, *, noise="seeded", synthesizer=None, run="r", seed=0):
    workload = [("sex", "town"), ("town", "age")]
    flaim = FLAIM(rounds=3, participation=0.6, bins=4, local_steps=2, workload=workload)
    data = tables(seed)
    if isinstance(synthesizer, AIM):
        data = data[0]
    return (synthesizer or flaim).fit(
        data, SCHEMA, budget=BUDGET, seed=3, folder=folder, run=run, noise=noise
    )


def ledgers(folder):
    """Events of every party that are on disk."""
    paths = sorted((folder / "parties").glob("*/ledger.jsonl"))
    return [Ledger.read(path) for path in paths]


def keys(folder):
    return [
        [(e.run, e.step, e.event, e.hash) for e in ledger.entries] for ledger in ledgers(folder)
    ]


def same_model(one, other):
    assert one.model.mrf.total == other.model.mrf.total
    assert one.model.mrf.potentials.keys() == other.model.mrf.potentials.keys()
    for clique, table in one.model.mrf.potentials.items():
        np.testing.assert_array_equal(table, other.model.mrf.potentials[clique])


@pytest.fixture(scope="module")
def whole(tmp_path_factory):
    """A run that nothing interrupted, and how many messages it took."""
    with pytest.MonkeyPatch.context() as patch:
        tap = Tap(patch)
        folder = tmp_path_factory.mktemp("whole")
        return fit(folder), tap.count, [ledger.events for ledger in ledgers(folder)]


@pytest.mark.parametrize("where", WHERE)
@pytest.mark.parametrize("share", [0.0, 0.3, 0.7, 1.0])
def test_a_killed_run_goes_on_to_the_same_end(whole, tmp_path, share, where):
    fitted, messages, events = whole
    at = 1 + round(share * (messages - 1))
    with pytest.MonkeyPatch.context() as patch:
        first = Tap(patch, at, where)
        with pytest.raises(KilledError):
            fit(tmp_path)
    before = keys(tmp_path)
    paid = [ledger.rho for ledger in ledgers(tmp_path)]
    with pytest.MonkeyPatch.context() as patch:
        second = Tap(patch)
        again = fit(tmp_path)
    for step, answer in first.answers.items():
        assert second.answers[step] == answer, "a second draw was sent"
    after = keys(tmp_path)
    for old, new in zip(before, after, strict=True):
        assert new[: len(old)] == old
        assert len({(run, step) for run, step, _, _ in new}) == len(new)
    for cost, ledger in zip(paid, ledgers(tmp_path), strict=True):
        assert cost <= ledger.rho
    assert [ledger.events for ledger in ledgers(tmp_path)] == events
    same_model(again, fitted)
    assert again.epsilon == fitted.epsilon <= BUDGET.epsilon


def test_what_was_released_before_the_crash_is_in_the_ledger(whole, tmp_path):
    """Every reply that reached the coordinator was paid for, on disk."""
    _, messages, _ = whole
    with pytest.MonkeyPatch.context() as patch:
        tap = Tap(patch, messages // 2, WHERE[2])
        with pytest.raises(KilledError):
            fit(tmp_path)
    paid = {
        (entry.run, f"party-{k + 1}", entry.step.split(".")[0])
        for k, ledger in enumerate(ledgers(tmp_path))
        for entry in ledger.entries
    }
    released = {(run, name, str(step)) for run, name, step in tap.answers if step > 0}
    assert released <= paid
    assert len(released) > 3


def test_killed_again_and_again(whole, tmp_path):
    fitted, messages, events = whole
    with pytest.MonkeyPatch.context() as patch:
        for at in range(2, messages, 5):
            patch.undo()
            Tap(patch, at, WHERE[at % 3])
            with pytest.raises(KilledError):
                fit(tmp_path)
    same_model(fit(tmp_path), fitted)
    assert [ledger.events for ledger in ledgers(tmp_path)] == events


@pytest.mark.parametrize("where", WHERE)
def test_with_real_noise_nothing_is_drawn_twice(whole, tmp_path, where):
    _, messages, _ = whole
    with pytest.MonkeyPatch.context() as patch:
        first = Tap(patch, 2 * messages // 3, where)
        with pytest.raises(KilledError):
            fit(tmp_path, noise="os")
    before = keys(tmp_path)
    with pytest.MonkeyPatch.context() as patch:
        second = Tap(patch)
        fitted = fit(tmp_path, noise="os")
    assert fitted.private
    assert all(second.answers[step] == answer for step, answer in first.answers.items())
    for old, new in zip(before, keys(tmp_path), strict=True):
        assert new[: len(old)] == old
    assert fitted.epsilon <= BUDGET.epsilon


def test_a_finished_run_that_is_started_again_costs_nothing_more(tmp_path):
    one = fit(tmp_path, noise="os")
    before = keys(tmp_path)
    same_model(fit(tmp_path, noise="os"), one)
    assert keys(tmp_path) == before


def test_aim_goes_on_too(tmp_path):
    aim = AIM(bins=4, workload=[("sex", "town"), ("town", "age")])
    fitted = fit(tmp_path / "whole", synthesizer=aim)
    for at in (1, 2, 4):
        folder = tmp_path / str(at)
        with pytest.MonkeyPatch.context() as patch:
            Tap(patch, at, WHERE[1])
            with pytest.raises(KilledError):
                fit(folder, synthesizer=aim)
        same_model(fit(folder, synthesizer=aim), fitted)
        assert ledgers(folder)[0].events == ledgers(tmp_path / "whole")[0].events


def test_another_study_under_the_same_run_is_refused(tmp_path):
    """Its first question that differs is one that was answered before."""
    fit(tmp_path)
    before = keys(tmp_path)
    other = FLAIM(rounds=3, participation=1.0, bins=4, workload=[("town", "age")])
    with pytest.raises(WireError, match="Start a new run"):
        fit(tmp_path, synthesizer=other)
    for old, new in zip(before, keys(tmp_path), strict=True):
        assert new[: len(old)] == old


def test_a_party_whose_store_is_gone_draws_nothing_anew(tmp_path):
    """Its ledger is there, and would take the same steps for paid."""
    fit(tmp_path)
    before = keys(tmp_path)
    rmtree(tmp_path / "parties" / "0001" / "store")
    with pytest.raises(LedgerError, match=r"party 'party-2': .* its store does not know that run"):
        fit(tmp_path)
    assert keys(tmp_path) == before


def test_a_run_does_not_go_on_with_other_rows(tmp_path):
    fit(tmp_path)
    before = keys(tmp_path)
    with pytest.raises(InputError, match="party 'party-1': its rows changed since this run began"):
        fit(tmp_path, seed=1)
    assert keys(tmp_path) == before
    fit(tmp_path)


@pytest.mark.parametrize("where", WHERE)
def test_coins_that_were_dealt_before_a_crash_are_dealt_again(tmp_path, where):
    """The coordinator of DistAIM has a secret of its own, without which its requests differ."""
    distaim = DistAIM(rounds=2, participation=1.0, bins=4, workload=[("sex", "town")])
    with pytest.MonkeyPatch.context() as patch:
        whole = Tap(patch)
        fit(tmp_path / "whole", synthesizer=distaim)
    for back in (0, 3):  # the last table that a server opens, and the first
        folder = tmp_path / str(back)
        with pytest.MonkeyPatch.context() as patch:
            first = Tap(patch, whole.count - PARTIES - back, where)
            with pytest.raises(KilledError):
                fit(folder, synthesizer=distaim, noise="os")
        with pytest.MonkeyPatch.context() as patch:
            second = Tap(patch)
            again = fit(folder, synthesizer=distaim, noise="os")
        assert {step: second.answers[step] for step in first.answers} == first.answers
        assert [len(ledger.entries) for ledger in ledgers(folder)] == [1] * PARTIES
        assert again.epsilon <= BUDGET.epsilon


def test_a_folder_that_is_a_file_is_refused_before_anything_is_read(tmp_path):
    (tmp_path / "notes.txt").write_text("mine")
    with pytest.raises(InputError, match=r"folder='.*notes\.txt' is a file; name a new folder"):
        AIM().fit("nowhere.csv", SCHEMA, budget=BUDGET, folder=tmp_path / "notes.txt")
    assert (tmp_path / "notes.txt").read_text() == "mine"
