"""A coordinator that lies to parties without a guarantee gets an answer or a refusal, no more.

Nothing here is private. A request that is malformed or oversized must still end in one of our own
errors, and take no more memory than the study itself.
"""

import tracemalloc
from functools import partial

import msgspec
import pytest

import siloweave as sw
from siloweave.errors import WireError
from siloweave.federation import messages
from siloweave.federation.carriers.direct import Direct
from siloweave.federation.session import Session
from siloweave.methods.central.messages import Train
from siloweave.methods.dp_sgd.method import DPTLDM
from siloweave.privacy import mechanisms
from siloweave.privacy.budget import Budget
from tests.guarantees.lying import lies, outcome_of, request_in, sent_through, some
from tests.guarantees.test_lying_coordinator import (
    SCHEMA,
    by_columns,
    neighbours,
    same_keys,
    some_and_all,
)

__all__ = ["same_keys"]  # for every test here

NET = {"steps": 2, "batch": 8, "hidden": [4], "embed": 4, "timesteps": 3}
CODER = {"steps": 2, "batch": 8, "hidden": [4]}
GAN = {"batch": 4, "pac": 2, "generator": [4], "critic": [4]}
LATENT = {"autoencoder": {"hidden": [4]}, "diffusion": NET}
MORE_BYTES = 2**22  # for a message that is larger than it should be


def central(made, **named):
    return lambda parts: lambda: made.fit(parts[0], SCHEMA, **named)


def over_rows(made):
    return lambda parts: lambda: made.fit(parts, SCHEMA)


def over_columns(made):
    return lambda parts: lambda: made.fit(by_columns(parts), SCHEMA)


STUDIES = {
    "copula": central(sw.GaussianCopula()),
    "tabddpm": central(sw.TabDDPM(**NET)),
    "fed_tabddpm": over_rows(
        sw.FedTabDDPM(batch=8, hidden=(4,), embed=4, timesteps=3, rounds=2)
    ),
    "fed_point_diff": over_rows(sw.FedPointDiff(rounds=2, diffusion=NET)),
    "fed_tgan": over_rows(sw.FedTGAN(**GAN, rounds=2)),
    "md_tgan": over_rows(sw.MDTGAN(**GAN, rounds=2)),
    "silofuse": over_columns(sw.SiloFuse(diffusion=NET, target="sex")),
    "e2e_distr": over_columns(sw.E2EDistr(**LATENT, target="sex")),
    "vertigan": over_columns(
        sw.VertiGAN(
            private=False,
            noise=4, trunk=(6,), head=(6,), critic=(4,), batch=30, made=4, rounds=2, critic_steps=1,
        )
    ),
    "dp_tldm, the autoencoder alone": central(
        DPTLDM(
            autoencoder=CODER, diffusion=NET, finest_bins=4, scope="autoencoder",
            target="sex",
        ),
        budget=Budget(60.0, 1e-5), noise="seeded",
    ),
}  # fmt: skip
_QUICK = {"copula", "tabddpm", "fed_tabddpm", "md_tgan", "e2e_distr"}
_EVERY = [pytest.param(n, marks=[] if n in _QUICK else pytest.mark.slow) for n in STUDIES]


def taken_by(run):
    """Most bytes that were held at once."""
    tracemalloc.start()
    try:
        run()
        return tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()


@some_and_all
@pytest.mark.parametrize("name", _EVERY)
def test_every_lie_ends_in_an_answer_or_in_our_own_error(name, most):
    study = STUDIES[name](neighbours(Budget(1.0, 1e-5).relation)[0])
    found = lies(study)
    mechanisms._gaussian_table.cache_clear()  # a study needs one for each width of its noise
    usual = taken_by(study)
    for lie in found if most is None else some(found, most):
        taken = taken_by(
            partial(outcome_of, study, lie)
        )  # whatever is none of our errors is raised
        assert taken < 2 * usual + MORE_BYTES, f"{lie} took {taken:,} bytes, not {usual:,}"


def altered(study, kind, change):
    """Run a study in which every request of a kind is changed before it is sent."""
    send = Direct.send

    def seen(transport, party, frame):
        envelope, request = request_in(transport, frame)
        if type(request).__name__ == kind:
            body = messages.encode(change(request))
            frame = messages.encode(msgspec.structs.replace(envelope, body=body))
        return send(transport, party, frame)

    with sent_through(seen):
        return study()


def parts():
    return neighbours(Budget(1.0, 1e-5).relation)[0]


def test_an_autoencoder_of_another_size_is_refused_before_it_is_made():
    """Its file says how large it is, and nothing of what it says had been compared."""

    def larger(request):
        size = int.from_bytes(request.coder[:8], "little")
        head = request.coder[8 : 8 + size].replace(b"[4]", b"[9]")
        assert head != request.coder[8 : 8 + size]
        coder = request.coder[:8] + head + request.coder[8 + size :]
        return msgspec.structs.replace(request, coder=coder)

    study = STUDIES["dp_tldm, the autoencoder alone"](parts())
    with pytest.raises(WireError, match=r"'curator' trains one diffusion a run, of an autoencoder"):
        altered(study, "TrainDiffusion", larger)


def test_counts_under_less_noise_than_the_study_says_are_refused():
    """No limit would stop it: the second stage is not bounded, so the ledger has none."""

    def bare(request):
        return msgspec.structs.replace(request, share_sigma=request.share_sigma / 1000)

    study = STUDIES["dp_tldm, the autoencoder alone"](parts())
    with pytest.raises(WireError, match=r"'curator' was asked for counts under noise of width"):
        altered(study, "CountColumns", bare)


def test_latents_of_another_shape_are_refused():
    def longer(request):
        back = request.back.numpy().repeat(3, axis=0)
        return msgspec.structs.replace(request, back=type(request.back).of(back, "<f4"))

    with pytest.raises(WireError, match=r"back of shape \(24, 1\)"):
        altered(STUDIES["e2e_distr"](parts()), "Backward", longer)


def test_an_owner_trains_once_a_run(monkeypatch):
    ask, refusals = Session.ask, []

    def twice(self, request, *named, **more):
        replies = ask(self, request, *named, **more)
        if isinstance(request, Train):
            with pytest.raises(WireError, match="may only come first") as refused:
                ask(self, request)
            refusals.append(refused)
        return replies

    monkeypatch.setattr(Session, "ask", twice)
    STUDIES["copula"](parts())()
    assert len(refusals) == 1
