"""A person with a hundred rows, attacked with all that DP-CTGAN releases about her.

The adversary knows all other rows, hers, the schema and the settings, sees every noisy sum that the
coordinator sees, and asks how far each lies towards her: the counts towards her cells, and each
step's clipped sum towards her own clipped gradient under the weights of that step. Where a row is
the unit, she is found in every fit; where she is, k of her rows take part, and the scores of fits
with and without her lie within what epsilon allows.
"""

from dataclasses import dataclass, field

import numpy as np
import pandas as pd
import pytest

import siloweave as sw
from siloweave.attacks.rates import clopper_pearson, roc
from siloweave.core import party as core_party
from siloweave.methods.dp_sgd import coordinator, party
from siloweave.models.nets import Dense
from siloweave.models.rounds import unpacked
from siloweave.privacy import gradients
from siloweave.privacy.budget import Budget
from siloweave.privacy.mechanisms import SeededEntropy
from siloweave.protocols import secure_sums
from siloweave.protocols.histograms import NoisyHistogram
from siloweave.tables import Column, Schema, read
from siloweave.tables.codes import ResolutionLevels
from siloweave.tables.persons import numbered, places_of
from tests.guarantees.swapped import swap

ROWS, MOST, EPSILON, DELTA = 100, 5, 1.0, 1e-5
SCHEMA = Schema(
    (
        Column("patient", "id"),
        Column("kind", "categorical", ("a", "b", "c", "d")),
        Column("sex", "categorical", ("f", "m")),
        Column("size", "integer", low=0, high=7),
    )
).with_fallbacks()
MADE = sw.DPCTGAN(generator=(8,), critic=(8,), steps=6, batch=80, pool=40, clip=0.1)
BY_PERSON = Budget(EPSILON, DELTA, unit="patient", rows_per_unit=MOST)
BY_ROW = Budget(EPSILON, DELTA)


def others():
    """Persons with one to three rows, all of which take part whatever the key."""
    rng = np.random.default_rng(0)
    owners = np.repeat(np.arange(120), rng.integers(1, 4, 120))
    rows = len(owners)
    return pd.DataFrame(
        {
            "patient": [f"p{i}" for i in owners],
            "kind": rng.choice(["a", "b", "c"], rows),
            "sex": rng.choice(["f", "m"], rows),
            "size": rng.integers(0, 5, rows),
        }
    )


OTHERS = others()
HERS = pd.DataFrame({"patient": ["she"] * ROWS, "kind": "d", "sex": "f", "size": 7})


@dataclass
class Seen:
    """What the coordinator of one fit saw, and how it read it."""

    histogram: NoisyHistogram | None = None
    training: object = None
    features: object = None
    steps: list = field(default_factory=list)  # a message, the noisy sum, and its event's numbers

    def listen(self, patch):
        """Keep what comes in, and change nothing."""
        summed = secure_sums.noisy_sums
        features = NoisyHistogram.features
        steps = coordinator._steps

        def heard(session, asked, shapes):
            found = summed(session, asked, shapes)
            self.steps.append((asked, np.asarray(found[0][0], np.float64)))
            return found

        def read_as(histogram, numeric):
            self.histogram = histogram
            self.features = features(histogram, numeric)
            return self.features

        def trained(session, task, training, *rest):
            self.training = training
            return steps(session, task, training, *rest)

        swap(patch, coordinator, "secure_sums", noisy_sums=heard)
        patch.setattr(NoisyHistogram, "features", read_as)
        patch.setattr(coordinator, "_steps", trained)


def score(seen, settings, most, by_person):
    """The logarithm of how much likelier all releases are with her than without her.

    `most` of her rows are taken to be in it, in a step with the rate's probability; and of all
    others, whose rows the adversary knows, as many as are expected.
    """
    hers, known = read(HERS.iloc[:most]), read(OTHERS)
    encoder = seen.histogram.encoder
    levels = ResolutionLevels(encoder)
    ours, theirs = (levels.count(encoder.encode(t)).astype(np.float64) for t in (hers, known))
    found = likelier(ours, seen.histogram.counts - theirs, seen.histogram.sigma)
    whole = read(pd.concat([OTHERS, HERS.iloc[:most]]))
    rows = seen.training.rows(seen.features.encode(whole, key=0))
    first = len(OTHERS)  # where her rows begin
    mine, rest = np.arange(first, first + most), np.arange(first)
    if by_person:
        mine, rest = mine[None, :], places_of(numbered([*OTHERS["patient"]]), most=MOST)
    unit = settings["levels"] / MADE.clip * settings["rate"]
    for asked, noisy in seen.steps:
        net, loss = seen.training.task(unpacked(asked.message, seen.training.empty(0)))
        ours, theirs = (
            unit * gradients.summed(loss, net, rows, part, clip=MADE.clip, layer=Dense,
                                    entropy=SeededEntropy(asked.number))
            for part in (mine, rest)
        )  # fmt: skip
        found += likelier(ours, noisy - theirs, settings["share_sigma"])
    return found


def likelier(shift, rest, sigma):
    """The log-likelihood ratio of Gaussian noise around a shift and around 0."""
    return float(shift @ rest - shift @ shift / 2) / sigma**2


def fits(budget, number, most):
    """Scores of fits with her, and of fits without her."""
    scores = {True: [], False: []}
    for seed in range(number):
        for there in scores:
            seen = Seen()
            rows = pd.concat([OTHERS, HERS]) if there else OTHERS
            with pytest.MonkeyPatch.context() as patch:
                seen.listen(patch)
                fitted = MADE.fit(rows, SCHEMA, budget=budget, seed=2 * seed + there,
                                  noise="seeded")  # fmt: skip
            assert fitted.epsilon <= EPSILON
            by_person = not budget.by_row
            scores[there].append(score(seen, fitted.settings, most, by_person))
    return np.array(scores[True]), np.array(scores[False])


def require_within_epsilon(there, gone):
    """Fail if any threshold separates the fits better than epsilon and delta allow, for sure.

    Both ways: fits with her found among those without, and the other way round. Thresholds are
    chosen on the first half, and judged on the second.
    """
    half = len(there) // 2
    for one, other in ((there, gone), (-gone, -there)):
        levels = np.quantile(
            np.concatenate([one[:half], other[:half]]), np.linspace(0.05, 0.95, 19)
        )
        gains = [(one[:half] >= t).mean() - np.e**EPSILON * (other[:half] >= t).mean()
                 for t in levels]  # fmt: skip
        best = levels[int(np.argmax(gains))]
        found = clopper_pearson(int((one[half:] >= best).sum()), half, 0.999)
        false = clopper_pearson(int((other[half:] >= best).sum()), half, 0.999)
        assert found.low <= np.e**EPSILON * false.high + DELTA


def test_a_hundred_rows_are_found_where_a_row_is_the_unit():
    """The attack sees what there is to see: so it says something where it sees nothing."""
    there, gone = fits(BY_ROW, 4, ROWS)
    assert there.min() > gone.max()


def test_she_is_at_chance_where_she_is_the_unit():
    there, gone = fits(BY_PERSON, 20, MOST)
    assert roc(there, gone, 0.999).auc.holds(0.5)
    require_within_epsilon(there, gone)


def test_the_mutant_that_keeps_all_her_rows_is_found(monkeypatch):
    """A hundred rows are counted and five are paid for; the clip of a step alone does not help."""
    monkeypatch.setattr(core_party, "bounded_rows", lambda table, *_, **__: table)
    monkeypatch.setattr(
        party, "places_of", lambda owners, most: places_of(owners, most=ROWS)[:, :most]
    )
    there, gone = fits(BY_PERSON, 16, ROWS)
    assert roc(there, gone, 0.95).auc.low > 0.5


@pytest.mark.slow
def test_she_is_at_chance_in_two_hundred_fits_each_way():
    there, gone = fits(BY_PERSON, 200, MOST)
    found = roc(there, gone, 0.999)
    print(found.auc)
    assert found.auc.holds(0.5)
    require_within_epsilon(there, gone)
