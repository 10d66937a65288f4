"""FLAIM: AIM over parties that hold different rows of one table.

Maddock, Cormode & Maple 2024, "FLAIM: AIM-based synthetic data generation in the federated
setting" (KDD 2024), Algorithm 1, sections 4.1 to 4.3: NaiveFLAIM, AugFLAIM (Oracle), AugFLAIM
(Private), FLAIM (Random) and FedNaiveBayes.

**Guarantee** (dp; the oracle: none): rows, add/remove or replace-one as each party's budget says,
towards the coordinator, the other parties (each may pool what it knows with `tolerated - 1` more)
and everyone who sees the model. A row lives at one party, so it pays for what that party released.
Assumed public: domain (where numbers are cut into bins is paid for before, see
protocols/histograms.py), workload, roster, who takes part in a round, and which queries a party
chose (paid for by the exponential mechanism).

Where this departs from the paper, and why:

* Scores are in counts, and the model is scaled to a noisy size of the party that is drawn once
  and paid for. With the exact size, as published, one row moves a score twice as far as accounted
  (and the reference code runs selection at twice its epsilon).
* Every local step pays for its local measurement; the paper charges nothing for those that steer
  a later choice (s > 1).
* Each party adds its share of the noise before masking, zeros for what it did not choose, so the
  coordinator never sees an exact marginal, not even one that a single party chose.
* In AugFLAIM (Private) measured tables are raked to the single columns, which every round counts
  over its whole cohort, and pairs are cleaned of noise, before a model is fitted (decision 0004).
* The size of a cohort, and of the parties behind a query, is estimated from noisy sums.
* A cohort may go on without `dropouts` parties (federation/dropouts.py): noise is sized for that.
"""

from __future__ import annotations

from dataclasses import dataclass
from math import inf
from typing import ClassVar

from msgspec.structs import replace

from siloweave.core import views
from siloweave.core.method import OR_PERSONS, Guarantee, Method, QuestionCounts, Setup
from siloweave.core.run import Synthesizer
from siloweave.core.views import View, Views
from siloweave.errors import InputError, number, whole
from siloweave.methods.flaim import coordinator, messages, party
from siloweave.methods.flaim.settings import FLAIMSettings
from siloweave.protocols import marginals, secure_sums
from siloweave.tables.codes import Domain


def _guarantee(synth: FLAIM) -> Guarantee:
    """Return the guarantee of a variant."""
    if synth.variant == "oracle":
        nothing = "Nothing is protected: true heterogeneity is used. A baseline only."
        # Noise is added here, too, as much as a budget pays for.
        return Guarantee("none", nothing, title="AugFLAIM (Oracle)", bounded=True)
    return Guarantee(
        "dp",
        f"Protected: every row of every party{OR_PERSONS} against "
        "readers, the other parties, and the "
        f"coordinator with the help of up to {synth.tolerated} of them; the coordinator sees only "
        "masked, noisy sums and noisy choices.",
    )


def _visibility(synth: FLAIM) -> Views:
    """Return the lines of who sees what in a run."""
    coordinator_views = [views.masked_sums(synth.tolerated, dropouts=synth.dropouts)]
    sent = "where columns are cut, and which queries are counted"
    carriers: tuple[str, ...] = ("Count",)
    if coordinator.chooses(synth):
        protection = "the exponential mechanism, paid for in the ledger"
        choices = "which queries each party chose"
        coordinator_views.append(
            View(views.COORDINATOR, choices, protection, ("Chosen.indices",))
        )
        sent += "; the model of every round"
        carriers = ("Count", "Select", "MeasureQueries")

    readers = views.READERS
    others_protection = views.OTHERS_NOISE
    if synth.variant == "oracle":
        exact_counts = "exact counts of each party"
        coordinator_views.append(
            View(
                views.COORDINATOR, exact_counts, views.NOTHING, ("ExactCounts.tables",)
            )
        )
        sent += "; exact shares over all rows"
        others_protection = "nothing: exact counts decide what is measured"
        readers = replace(views.READERS, protected_by=others_protection)

    others = View(views.OTHERS, sent, others_protection, carriers)
    return (
        views.OWN_ROWS,
        *coordinator_views,
        others,
        *views.openings(synth.dropouts),
        readers,
    )


def _rounds(setup: Setup, rows: int, domain: Domain) -> tuple[int, float]:
    """Return the number of rounds, T or what annealing makes of it, and a party's share of them."""
    synth = setup.settings_as(FLAIMSettings)
    rounds = synth.rounds or 8 * len(domain.names)
    return rounds, float(synth.cap or synth.participation * rounds)


def _question_counts(setup: Setup, columns: int) -> QuestionCounts:
    """Count how often a party is asked each question at most.

    There are three in a round that it joins, and fewer where parties choose nothing.
    """
    synth = setup.settings_as(FLAIMSettings)
    rounds = synth.cap or synth.rounds or 8 * columns
    # One-ways are counted together in every round, or one by one before the first.
    counts = rounds if synth.variant in ("private", "naive_bayes") else columns
    if synth.variant == "random":
        return {secure_sums.KeyRequest: 1, secure_sums.Count: counts + rounds}
    choices = rounds if coordinator.chooses(synth) else 0
    exact_counts = int(synth.variant == "oracle")
    return {
        secure_sums.KeyRequest: 1,
        secure_sums.CountExactly: exact_counts,
        secure_sums.Count: counts,
        messages.Select: choices,
        messages.MeasureQueries: choices,
    }


def _waits(synth: FLAIM) -> int:
    """Count the questions in rounds that a party with a cap sits out."""
    if not synth.cap or not synth.rounds:
        return 0
    return 3 * (synth.rounds - synth.cap)


@dataclass(frozen=True)
class FLAIM(Synthesizer, FLAIMSettings):
    """AIM over parties that hold different rows, under masked sums.

    Args:
        degree, queries, workload, target, bins, counts_share, max_model_mb: See `MarginalSettings`.
        variant: "private" (AugFLAIM Private), "naive", "random", "naive_bayes", or "oracle",
            which is without any guarantee.
        rounds: Rounds, the paper's T; None anneals as AIM does, starting from 8 d.
        participation: Probability p with which a party joins a round.
        cap: Most rounds that a party joins; its rows pay for those only. Parties are then spread
            evenly over the rounds and `participation` is not used. None charges every row for
            every round.
        local_steps: Choices of a party in a round, the paper's s.
        tolerated: Parties of a cohort that may pool what they know with the coordinator.
        dropouts: Parties of a cohort that may vanish; in a small cohort fewer. One that did is not
            asked again before the run ends.
        gaussian_share: Share of the budget for measurements, the paper's r.
        size_share: Share of the budget for a party's noisy number of rows.
        sweeps: Sweeps of each fit by the coordinator.
        final_sweeps: Sweeps of the last fit.
        shrinkage: Entropy per unit of noise in the coordinator's fits; a local step has 0.5.

    Example:
        >>> from siloweave.datasets import adult, adult_schema
        >>> from siloweave.privacy.budget import Budget
        >>> tables = [adult().take(range(i, 900, 3)) for i in range(3)]
        >>> flaim = FLAIM(rounds=2, participation=1.0, bins=8, workload=[("sex", "income")])
        >>> fitted = flaim.fit(tables, adult_schema(), budget=Budget(1.0, 1e-6))
        >>> fitted.epsilon <= 1.0, len(fitted.ledgers)
        (True, 3)
    """

    method: ClassVar[Method] = marginals.marginal_method(
        name="flaim",
        title="FLAIM",
        split="rows",
        trust="secure-sum",
        paper="Maddock, Cormode & Maple 2024, FLAIM, KDD 2024",
        guarantee=_guarantee,
        visibility=_visibility,
        handlers=lambda synth: party.HANDLERS,
        coordinate=lambda session, task: marginals.marginal_result(
            coordinator.flaim, session, task, key=task.seed
        ),
        forecast=marginals.marginal_forecast(
            _rounds,
            _question_counts,
            waits=_waits,
            grown=coordinator.tree_of_noise,
        ),
    )

    def _smallest_cohort(self, parties: int) -> int:
        """Return the fewest parties of a round that are drawn, or that a cap's schedule has."""
        return coordinator.smallest_cohort(self, parties)

    def _check_settings(self) -> None:
        """Raise InputError for settings out of bounds, or that do not go together."""
        for name in ("participation", "gaussian_share"):
            number(name, getattr(self, name), 0, 1, "(]")
        for name in ("rounds", "local_steps", "cap"):
            if getattr(self, name) is not None:
                whole(name, getattr(self, name), 1)
        for name in ("tolerated", "sweeps", "final_sweeps"):
            whole(name, getattr(self, name), 1)
        whole("dropouts", self.dropouts, 0)
        number("size_share", self.size_share, 0, 1, "()")
        number("shrinkage", self.shrinkage, 0, inf, "[)")

        if self.cap is None:
            return
        # A cap spreads parties over rounds, so the number of rounds must be fixed before.
        if not (self.rounds and 1 <= self.cap <= self.rounds):
            raise InputError(
                f"cap={self.cap} must lie between 1 and a fixed number of rounds, not {self.rounds}"
            )
        # Other variants measure one-ways once, before the rounds, in cohorts that no cap spreads.
        if self.variant not in ("private", "naive_bayes"):
            raise InputError(
                f"cap={self.cap} works with 'private' and 'naive_bayes' only"
            )
