"""Whole studies go on without parties that vanish, also when the coordinator starts again."""

from contextlib import contextmanager, nullcontext
from dataclasses import replace

import msgspec
import numpy as np
import pytest

import siloweave as sw
from siloweave.errors import InputError, RosterError, WireError
from siloweave.federation import messages
from siloweave.federation.carriers.direct import Direct
from siloweave.federation.dropouts import MaskPlan
from siloweave.federation.messages import Envelope
from siloweave.federation.records import ABSENCES
from siloweave.methods.dp_sgd.messages import BeginTraining
from siloweave.methods.flaim.coordinator import _Run
from siloweave.methods.flaim.messages import Select
from siloweave.privacy.budget import Budget
from siloweave.privacy.events import SharedGaussian
from siloweave.protocols.secure_sums import OpenSum
from siloweave.tables import Column, Schema
from siloweave.tables.table import Table
from tests.core.kills import KilledError
from tests.federation.sites import handlers_of
from tests.synthesizers.processes import Processes, in_processes, opened_by

SCHEMA = Schema(
    (
        Column("sex", "categorical", categories=("f", "m")),
        Column("age", "integer", low=0, high=99),
        Column("member", "boolean"),
    )
).with_fallbacks()
BUDGET = Budget(8.0, 1e-5)
PAIRS = (("sex", "age"), ("sex", "member"))
NAMES = [f"p{i}" for i in range(6)]
TINY = {"generator": (4,), "critic": (4,), "steps": 3, "batch": 60, "pool": 50, "finest_bins": 8}
STUDIES = {
    "two rounds": sw.TwoRound(workload=PAIRS, bins=4, dropouts=2),
    "flaim": sw.FLAIM(workload=PAIRS, bins=4, rounds=2, participation=1.0, dropouts=2),
    "flaim, naive": sw.FLAIM(
        workload=PAIRS, bins=4, rounds=2, participation=1.0, variant="naive", dropouts=2
    ),
    "private rounds": sw.DPFedTGAN(**TINY, dropouts=2),
}


def tables(rows=150):
    rng = np.random.default_rng(0)

    def one():
        sex = rng.integers(0, 2, rows)
        return Table.from_columns(
            {
                "sex": (np.array(["f", "m"])[sex], None),
                "age": (rng.integers(0, 50, rows) + 50 * sex, None),
                "member": (rng.random(rows) < 0.3 + 0.4 * sex, None),
            }
        )

    return {name: one() for name in NAMES}


def fit(synth, **named):
    return synth.fit(tables(), SCHEMA, budget=BUDGET, seed=1, **named)


@contextmanager
def line(seen):
    """Ask `seen(party, envelope)` before every question; it may raise."""
    send = Direct.send

    def through(self, name, frame):
        seen(name, messages.decode(frame, Envelope))
        return send(self, name, frame)

    Direct.send = through
    try:
        yield
    finally:
        Direct.send = send


def steps_of(synth):
    """Every question of a run: its run and step, and what it is."""
    found = []

    def seen(name, envelope):
        if name == NAMES[0] and b"run/close" not in envelope.body:
            kind = "open" if b"sum/open" in envelope.body else ""
            found.append((envelope.run, envelope.step, kind))

    with line(seen):
        fit(synth)
    return found


def vanishing(when):
    """Parties that are gone from a question of a run on, by name."""
    lost = set()

    def seen(name, envelope):
        if (envelope.run, envelope.step) == when.get(name):
            lost.add(name)
        if name in lost:
            raise RosterError(f"party {name!r} is not there")

    return seen


@pytest.mark.parametrize("study", STUDIES)
def test_a_study_goes_on_whenever_two_parties_vanish(study):
    synth = STUDIES[study]
    whole = [(run, step) for run, step, _ in steps_of(synth) if run == "run"]
    first = 1 if study == "private rounds" else 0  # columns are counted over all
    for step in whole[first:][:: 4 if study == "private rounds" else 2]:
        with line(vanishing({NAMES[1]: step, NAMES[4]: whole[-1]})):
            found = fit(synth)
        assert found.settings["vanished"] == [NAMES[1], NAMES[4]]
        assert set(found.ledgers) == set(NAMES) - {NAMES[1], NAMES[4]}
        assert found.epsilon <= BUDGET.epsilon
        sample = found.sample_table(300, seed=0)
        assert sample.num_rows == 300


def test_the_model_is_that_of_all_rows_if_some_vanish_in_between():
    """What the others counted stands for all: the model keeps its number of rows."""
    synth = STUDIES["two rounds"]
    second = [s for r, s, k in steps_of(synth) if r == "run" and not k][-1]
    with line(vanishing({NAMES[1]: ("run", second), NAMES[2]: ("run", second)})):
        found = fit(synth)
    assert found.model.mrf.total == pytest.approx(6 * 150, rel=0.15)
    shares = found.model.mrf.marginal(("sex", "member"))
    assert shares[1, 1] / shares[1].sum() == pytest.approx(0.7, abs=0.12)


@pytest.mark.parametrize("study", STUDIES)
def test_one_more_than_may_vanish_ends_the_study_and_names_all(study):
    synth = STUDIES[study]
    whole = [(run, step) for run, step, _ in steps_of(synth) if run == "run"]
    gone = dict.fromkeys(NAMES[:3], whole[-1])
    with line(vanishing(gone)), pytest.raises(RosterError, match="'p0', party 'p1', party 'p2'"):
        fit(synth)


def test_without_dropouts_a_party_that_vanishes_ends_the_study_as_before():
    synth = sw.TwoRound(workload=PAIRS, bins=4)
    with line(vanishing({NAMES[1]: ("run", 1)})), pytest.raises(RosterError, match="'p1' is not"):
        fit(synth)


def test_more_dropouts_than_the_roster_allows_are_refused_before_anything_is_paid():
    with pytest.raises(InputError, match=r"dropouts=3 of 6 parties.*Take 8 parties"):
        fit(sw.TwoRound(workload=PAIRS, bins=4, dropouts=3))


@pytest.mark.parametrize("study", ["two rounds", "flaim"])
def test_every_ledger_pays_as_if_as_many_as_may_were_missing(study):
    found = fit(STUDIES[study])
    for entries in found.ledgers.values():
        sums = [e.event for e in entries if isinstance(e.event, SharedGaussian)]
        assert sums
        assert {e.tolerated for e in sums} == {MaskPlan.for_size(6, 1, 2).missing}


def test_dropouts_cost_one_question_for_every_sum():
    more = (
        fit(STUDIES["two rounds"]).cost.rounds
        - fit(sw.TwoRound(workload=PAIRS, bins=4)).cost.rounds
    )
    assert more == sum(kind == "open" for _, _, kind in steps_of(STUDIES["two rounds"])) == 3


# Different models


@pytest.mark.parametrize("study", ["flaim", "private rounds"])
def test_parties_that_are_sent_different_models_open_no_sum(study, monkeypatch):
    """One party gets the question about another model, in which a number is changed."""
    opened = told_apart(monkeypatch)
    with pytest.raises(WireError, match="the coordinator asked both something else"):
        fit(STUDIES[study])
    assert opened[-1] == opened[-len(NAMES)]  # the sum before opened, at every party


@pytest.mark.parametrize("lies", [False, True])
def test_without_dropouts_their_sum_is_nothing_and_the_next_round_ends_the_run(lies, monkeypatch):
    sums, fitted = [], _Run.fit

    def seen(run, *args):
        sums.extend(np.abs(one.counts).max() for one in run.noisy_sums)
        return fitted(run, *args)

    monkeypatch.setattr(_Run, "fit", seen)
    if lies:
        told_apart(monkeypatch)
    error = pytest.raises(WireError, match=f"was not shown that '{NAMES[1]}' received the same")
    with error if lies else nullcontext():
        fit(replace(STUDIES["flaim"], dropouts=0))
    assert bool(max(sums) > 1e6) is lies


def told_apart(monkeypatch):
    """The second party is asked about another model; at which steps sums are opened."""
    send, opened = Direct.send, []

    def through(self, name, frame):
        envelope = messages.decode(frame, Envelope)
        request = messages.decode_request(envelope.body, handlers_of(self))
        if name == NAMES[1] and type(request) is Select:
            model = msgspec.structs.replace(request.model, total=request.model.total + 1)
            request = msgspec.structs.replace(request, model=model)
        if name == NAMES[1] and type(request) is BeginTraining:
            request = msgspec.structs.replace(request, levels=request.levels + 1)
        body = messages.encode(request)
        answer = send(self, name, messages.encode(msgspec.structs.replace(envelope, body=body)))
        if type(request) is OpenSum:
            opened.append(envelope.step)
        return answer

    monkeypatch.setattr(Direct, "send", through)
    return opened


# Starting again


@pytest.mark.parametrize("study", ["two rounds", "flaim"])
@pytest.mark.parametrize("share", [0.4, 0.7, 0.95])
def test_a_coordinator_that_starts_again_goes_on_without_the_same_parties(study, share, tmp_path):
    """Though they are back: a sum opens once, over one list of parties."""
    synth = STUDIES[study]
    steps = [(run, step) for run, step, _ in steps_of(synth)]
    gone = {NAMES[1]: next(s for s in steps if s[0] == "run"), NAMES[4]: steps[-2]}
    lose = vanishing(gone)
    with line(lose):
        whole = fit(synth, folder=tmp_path / "whole", noise="seeded")
    lose, until = vanishing(gone), steps[int(share * len(steps))]

    def killed(name, envelope):
        lose(name, envelope)
        if (envelope.run, envelope.step) == until and name == NAMES[3]:
            raise KilledError

    with line(killed), pytest.raises(KilledError):
        fit(synth, folder=tmp_path / "cut", noise="seeded")
    late = {n: s for n, s in gone.items() if steps.index(s) >= steps.index(until)}
    with line(vanishing(late)):
        found = fit(synth, folder=tmp_path / "cut", noise="seeded")
    for clique, table in whole.model.mrf.potentials.items():
        np.testing.assert_array_equal(found.model.mrf.potentials[clique], table)
    assert (tmp_path / "cut" / ABSENCES).is_file()


def test_a_study_that_too_many_left_goes_on_when_they_are_back(tmp_path):
    synth = STUDIES["two rounds"]
    last = [(run, step) for run, step, _ in steps_of(synth)][-2]
    gone = dict.fromkeys(NAMES[:3], last)
    with line(vanishing(gone)), pytest.raises(RosterError):
        fit(synth, folder=tmp_path, noise="seeded")
    found, whole = fit(synth, folder=tmp_path, noise="seeded"), fit(synth, noise="seeded")
    assert "vanished" not in found.settings
    assert set(found.ledgers) == set(NAMES)
    for clique, table in whole.model.mrf.potentials.items():
        np.testing.assert_array_equal(found.model.mrf.potentials[clique], table)


@pytest.mark.slow
def test_a_process_that_is_killed_is_a_party_that_vanished(tmp_path, monkeypatch):
    synth = STUDIES["two rounds"]
    last = [(run, step) for run, step, _ in steps_of(synth)][-1]
    send = Processes.send

    def killing(self, name, frame):
        envelope = messages.decode(frame, Envelope)
        if name == NAMES[2] and (envelope.run, envelope.step) == last:
            self._running[2].kill()
            self._running[2].wait()
        return send(self, name, frame)

    monkeypatch.setattr(Processes, "send", killing)
    with opened_by(in_processes):
        found = fit(synth, folder=tmp_path, noise="seeded")
    assert found.settings["vanished"] == [NAMES[2]]
    monkeypatch.undo()
    with line(vanishing({NAMES[2]: last})):
        same = fit(synth, noise="seeded")
    for clique, table in same.model.mrf.potentials.items():
        np.testing.assert_array_equal(found.model.mrf.potentials[clique], table)
