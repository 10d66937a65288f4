"""What the coordinator saw can be read again from the run's folder."""

import numpy as np
import pytest
from tests.core.kills import KilledError, Tap
from tests.core.test_resume import BUDGET, PARTIES, SCHEMA, tables

import siloweave as sw
from siloweave.audit.transcripts import noisy_marginals
from siloweave.core.settings import TRANSCRIPT
from siloweave.errors import InputError, RosterError, WireError
from siloweave.federation import messages
from siloweave.federation.carriers.direct import Direct
from siloweave.federation.messages import Envelope
from siloweave.federation.records import FolderTranscript, TranscriptRecord, read_transcript
from siloweave.statistics.marginals import marginal
from siloweave.tables.bins import cuts_of
from siloweave.tables.codes import Domain


@pytest.fixture(autouse=True)
def fewer(monkeypatch):
    """Fewer bins than were asked for may be left: only a run's own encoder reads its tables."""

    def cut(column, edges, weights, bins, *, exact=False):
        return cuts_of(column, edges, weights, bins - 1, exact=exact)

    monkeypatch.setattr("siloweave.protocols.histograms.cuts_of", cut)


@pytest.mark.parametrize(
    "method", [sw.FLAIM(bins=8), sw.TwoRound(bins=8), sw.FLAIM(bins=8, variant="naive")]
)
def test_every_noisy_marginal_of_a_run_is_read(method, tmp_path):
    parts = tables()
    fitted = method.fit(parts, SCHEMA, budget=BUDGET, seed=1, folder=tmp_path)
    coded = [fitted.model.encoder.encode(part) for part in parts]
    found = noisy_marginals(tmp_path / TRANSCRIPT, fitted.model.encoder.domain)
    public = [(clique, taken.sigma) for taken in fitted.model.measured for clique in taken.cliques]
    assert sorted(o.measurement.clique for o in found) == sorted(clique for clique, _ in public)
    sigmas = sorted(o.measurement.sigma for o in found)
    assert sigmas == pytest.approx(sorted(sigma for _, sigma in public))
    for seen in found:
        m = seen.measurement
        everyone = sum(marginal(c, m.clique) for c in coded)
        if len(m.clique) == 1 and len(seen.cohort) == PARTIES:
            assert np.abs(m.counts - everyone).max() < 7 * m.sigma


def test_sums_are_read_whose_parties_vanished(tmp_path, monkeypatch):
    """Each from what was masked and what opened it; counts are of those who are in it."""
    parts = [table for start in (0, 1) for table in tables(start)]
    names, send = [f"p{i}" for i in range(len(parts))], Direct.send

    def vanishing(self, name, frame):
        envelope = messages.decode(frame, Envelope)
        if name == "p1" and (envelope.run, envelope.step >= 2) == ("run", True):
            raise RosterError("gone")
        return send(self, name, frame)

    monkeypatch.setattr(Direct, "send", vanishing)
    method = sw.TwoRound(bins=8, dropouts=1)
    fitted = method.fit(parts, SCHEMA, budget=BUDGET, seed=1, folder=tmp_path, names=names)
    coded = dict(zip(names, map(fitted.model.encoder.encode, parts), strict=True))
    found = noisy_marginals(tmp_path / TRANSCRIPT, fitted.model.encoder.domain, dropouts=1)
    public = [clique for taken in fitted.model.measured for clique in taken.cliques]
    assert sorted(o.measurement.clique for o in found) == sorted(public)
    assert {len(o.cohort) for o in found} == {len(parts), len(parts) - 1}
    for seen in found:
        m = seen.measurement
        counted = sum(marginal(coded[name], m.clique) for name in seen.cohort)
        assert np.abs(m.counts - counted).max() < 7 * m.sigma
    with pytest.raises(WireError, match="bytes of digests"):  # of another study
        noisy_marginals(tmp_path / TRANSCRIPT, fitted.model.encoder.domain)


def test_a_run_that_was_cut_short_is_read_once(tmp_path, monkeypatch):
    parts = tables()
    whole, cut = tmp_path / "whole", tmp_path / "cut"
    settings = {"budget": BUDGET, "seed": 1, "noise": "seeded"}
    sw.FLAIM(bins=8).fit(parts, SCHEMA, folder=whole, **settings)
    with monkeypatch.context() as patch:
        Tap(patch, at=30)
        with pytest.raises(KilledError):
            sw.FLAIM(bins=8).fit(parts, SCHEMA, folder=cut, **settings)
    before = list(read_transcript(cut / TRANSCRIPT))
    fitted = sw.FLAIM(bins=8).fit(parts, SCHEMA, folder=cut, **settings)
    domain = fitted.model.encoder.domain
    again = noisy_marginals(cut / TRANSCRIPT, domain)
    first = noisy_marginals(whole / TRANSCRIPT, domain)
    assert len(before) == 29
    assert [o.contributors for o in again] == [o.contributors for o in first]
    for one, other in zip(again, first, strict=True):
        np.testing.assert_array_equal(one.measurement.counts, other.measurement.counts)


def test_a_central_run_is_read_too(tmp_path):
    part = tables()[0]
    fitted = sw.AIM(bins=8).fit(part, SCHEMA, budget=BUDGET, folder=tmp_path)
    found = noisy_marginals(tmp_path / TRANSCRIPT, fitted.model.encoder.domain)
    assert [o.measurement.clique for o in found] == [
        c for r in fitted.model.measured for c in r.cliques
    ]


def test_without_a_folder_nothing_is_kept(tmp_path):
    with pytest.raises(InputError, match="no transcript"):
        noisy_marginals(tmp_path / TRANSCRIPT, Domain(("a",), (2,)))


def test_a_transcript_is_for_its_owner_and_of_its_domain(tmp_path):
    sw.FLAIM(bins=8).fit(tables(), SCHEMA, budget=BUDGET, folder=tmp_path)
    path = tmp_path / TRANSCRIPT
    assert path.stat().st_mode & 0o077 == 0
    with pytest.raises(WireError, match="the domain lacks"):
        noisy_marginals(path, Domain(("sex",), (2,)))


def test_a_record_that_was_cut_short_is_taken_off(tmp_path):
    path = tmp_path / "transcript.msgpack"
    seen = [TranscriptRecord("run", i, "p", b"question", bytes([i]) * 9) for i in range(3)]
    file = FolderTranscript(path)
    for one in seen[:2]:
        file.record(one)
    path.write_bytes(path.read_bytes()[:-4])
    assert list(read_transcript(path)) == seen[:1]
    FolderTranscript(path).record(seen[2])
    assert list(read_transcript(path)) == [seen[0], seen[2]]


def test_a_damaged_transcript_is_said_to_be(tmp_path):
    path = tmp_path / "transcript.msgpack"
    FolderTranscript(path).record(TranscriptRecord("run", 0, "p", b"question", b"answer"))
    path.write_bytes(
        path.read_bytes().replace(b"question", b"questi\xffn").replace(b"run", b"r\xffn")
    )
    with pytest.raises(WireError, match="damaged"):
        list(read_transcript(path))
