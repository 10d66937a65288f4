"""Every check of FLAIM whole fails on an implementation with a known fault."""

import math
from types import SimpleNamespace

import msgspec
import numpy as np
import pytest

from siloweave.errors import WireError
from siloweave.federation import masking
from siloweave.federation import site as site_file
from siloweave.federation.messages import Public, Released
from siloweave.federation.site import Site
from siloweave.methods.flaim import party as flaim_party
from siloweave.models.mrf import MRF
from siloweave.privacy import mechanisms
from siloweave.privacy.budget import Relation, l1_score_sensitivity
from siloweave.privacy.events import Exponential
from siloweave.privacy.mechanisms import SeededEntropy
from siloweave.protocols import secure_sums
from siloweave.protocols.secure_sums import KeyRequest, MaskKey
from tests.guarantees.flaim_whole import (
    everyone,
    replayed,
    residuals,
    thin,
    wide_rows,
)
from tests.guarantees.replay import DivergenceError, record
from tests.guarantees.swapped import with_functions
from tests.guarantees.whole import (
    DOMAIN,
    FLAIMStudy,
    require_fresh_masks,
    require_fresh_noise,
)


def half(values, sigma, *, entropy):
    return mechanisms.add_gaussian(values, sigma / 2, entropy=entropy)


def redrawn(self, event, what, draw):
    """Paid once, drawn whenever it is needed."""
    self.ledger.charge(event, run=self._at.run, step=f"kept {what}", what=what, to="stays")
    return draw()


RELEASE, MASKED, PAY = Site.release, secure_sums.masked_reply, Site.pay


def free_choice(self, event, what, draw):
    if not isinstance(event, Exponential):
        return RELEASE(self, event, what, draw)
    value = draw()
    return Released(value, "", self._sealed("", value))


def free_steps(self, event, what):
    """What the paper does: local measurements that steer a later choice cost nothing."""
    return "" if "local" in what else PAY(self, event, what)


def masked_once(request, site, tables, what, *, contributes, **more):
    return MASKED(request, site, tables, what, contributes=1, **more)


def exact_size(site, sigma):
    return float(site.rows.num_rows)


def loud_hello(request, site):
    n = site.rows.num_rows
    return MaskKey(site.mask_key(), Public(DOMAIN.names, f"{n} rows"), Public(DOMAIN.sizes, ""))


def weighted_by_rows(request, site):
    """A share of noise that grows with the party's rows."""
    share = 1.0 + request.share_sigma * (1 + site.rows.num_rows / 100)
    return secure_sums.count(msgspec.structs.replace(request, share_sigma=share), site)


def halved(neighbours):
    return l1_score_sensitivity(neighbours) / 2


def one_party_less(self, size, cells):
    """Noise that meets the claim only if everyone's share stays."""
    return max(1.0, self.sigma / math.sqrt(size)), 0


def handler(kind, function):
    return lambda patch: patch.setitem(flaim_party.HANDLERS, kind, function)


def names(where, **values):
    def patch_all(patch):
        for name, value in values.items():
            patch.setattr(where, name, value)

    return patch_all


def choose(scores, **named):
    return mechanisms.exponential(scores, **named)


HALF = SimpleNamespace(add_gaussian=half, exponential=choose)
MUTANTS = {
    "half noise in the sums": (names(site_file, mechanisms=HALF), {}, "was charged"),
    "half noise on the size": (names(flaim_party, mechanisms=HALF), {}, "was charged"),
    "half noise in local steps": (
        names(flaim_party, mechanisms=HALF), {"variant": "naive", "local_steps": 2}, "was charged",
    ),
    "one marginal charged for all one-ways": (
        names(secure_sums, masked_reply=masked_once), {}, "l2 distance 1.7",
    ),
    "one query charged for two": (
        names(flaim_party, secure_sums=with_functions(secure_sums, masked_reply=masked_once)),
        {"variant": "naive", "local_steps": 2}, "l2 distance 1.41|charged for",
    ),
    "exact n in scores": (names(flaim_party, _noisy_size=exact_size), {}, "a score moved by"),
    "exact n in naive scores": (
        names(flaim_party, _noisy_size=exact_size), {"variant": "naive"}, "a score moved by",
    ),
    "score sensitivity halved": (
        names(flaim_party, l1_score_sensitivity=halved), {}, "a score moved by",
    ),
    "naive score sensitivity halved": (
        names(flaim_party, l1_score_sensitivity=halved), {"variant": "naive"}, "a score moved by",
    ),
    "selection not charged": (names(Site, release=free_choice), {}, "without a charge"),
    "local steps not charged": (
        names(Site, pay=free_steps), {"local_steps": 2}, "without a charge",
    ),
    "a size that is drawn again": (
        names(Site, keep_private=redrawn), {"rounds": 2}, "drew twice for what it paid",
    ),
    "a public reply that tells the number of rows": (
        handler(KeyRequest, loud_hello), {}, "unpaid depends on the rows",
    ),
    "noise that depends on rows": (handler(secure_sums.Count, weighted_by_rows), {}, "became"),
}  # fmt: skip


@pytest.mark.parametrize("name", MUTANTS)
def test_mutants_are_caught(name, monkeypatch):
    mutate, settings, words = MUTANTS[name]
    settings = everyone(rounds=1) if not settings else everyone(**{"rounds": 1} | settings)
    replayed(settings)
    mutate(monkeypatch)
    with pytest.raises((AssertionError, DivergenceError), match=words):
        replayed(settings)


@pytest.mark.parametrize(
    ("where", "name"),
    [
        (secure_sums, "marginal_sensitivity"),
        (flaim_party, "marginal_sensitivity"),
        (flaim_party, "l1_score_sensitivity"),
    ],
)
def test_the_forgotten_factor_of_replace_one_is_caught(where, name, monkeypatch):
    settings = everyone(rounds=1, local_steps=2)
    replayed(settings, Relation.REPLACE_ONE)
    monkeypatch.setattr(where, name, lambda relation, norm="l1": 1.0)
    with pytest.raises(AssertionError, match=r"l2 distance|a score moved|was charged for"):
        replayed(settings, Relation.REPLACE_ONE)


def silent(values, sigma, *, entropy):
    """Noise only where this party has something to say."""
    return np.where(values == 0, 0, mechanisms.add_gaussian(values, sigma, entropy=entropy))


def test_shares_that_stay_away_are_caught(monkeypatch):
    monkeypatch.setattr(site_file, "mechanisms", SimpleNamespace(add_gaussian=silent))
    with pytest.raises(AssertionError, match="other noise than was drawn"):
        residuals(1)


def test_colluders_who_were_forgotten_are_caught(monkeypatch):
    """Enough noise for outsiders, too little once a colluder subtracts its share."""
    monkeypatch.setattr(secure_sums.SumNoise, "share", one_party_less)
    with pytest.raises(WireError, match="withstands 0 colluders; the study says 1"):
        residuals(1)


@pytest.mark.parametrize("who", ["every draw", "every party"])
def test_noise_that_is_used_again_is_caught(who, monkeypatch):
    roster = wide_rows()
    study = thin()
    if who == "every draw":

        def again(values, sigma, *, entropy):
            return mechanisms.add_gaussian(values, sigma, entropy=SeededEntropy(99))

        monkeypatch.setattr(site_file, "mechanisms", SimpleNamespace(add_gaussian=again))
    else:
        study = FLAIMStudy(
            study.settings, study.budget, workload=study.workload,
            entropy=lambda k: SeededEntropy(1),
        )  # fmt: skip
    with pytest.raises(AssertionError, match="have the same noise"):
        require_fresh_noise(record(lambda: study(roster)))


@pytest.mark.parametrize("fault", ["no context", "no mask"])
def test_masks_that_are_used_twice_or_missing_are_caught(fault, monkeypatch):
    roster = wide_rows()
    real = masking.mask

    def same(name, shared, context, size):
        words = real(name, shared, b"", size)
        return np.zeros_like(words) if fault == "no mask" else words

    monkeypatch.setattr(masking, "mask", same)
    run = thin()(roster)
    assert isinstance(run.model, MRF)
    with pytest.raises(AssertionError, match="missing or was used twice"):
        require_fresh_masks(run)
