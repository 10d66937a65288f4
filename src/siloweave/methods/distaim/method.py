"""DistAIM: parties share their counts once between servers, which open noisy tables of all.

Maddock, Cormode & Maple 2024, "FLAIM: AIM-based synthetic data generation in the federated
setting" (KDD 2024): the baseline that runs AIM on secret-shared answers, which accumulate over
rounds in which few parties take part.

* A party that takes part for the first time counts all tables of the workload's columns, one or two
  at a time, subtracts words that it draws from a secret with the first server, and sends what
  remains to the coordinator, who adds up. It is not asked again.
* To open tables, the first server draws the same words, for all who took part, and both servers
  toss coins with the coordinator as dealer (protocols/secure_products.py, steps 4 and 6). The sum
  of what all three have is the tables with noise that nobody knows.
* Servers are the first and the last party of the roster. They hold nobody's counts.

**Guarantee** (dp; `selection="simulated"`: none): rows, add/remove or replace-one as each party's
budget says, towards one of coordinator, first server and last server, together with any other
parties, and towards everyone who sees the model. Where columns are cut, and facts learned, masked
sums are counted before, whose noise is enough if `tolerated` parties help at most; with k more, of
n, they cost (n - tolerated) / (n - tolerated - k) times the zCDP. With the first server, the
coordinator has exact counts of every party; with the last one, exact sums of what is opened. Both
servers together know all noise (z, S and G), so a model shows them such sums. Coordinator and
servers are assumed to follow the protocol; a party that sends wrong counts makes tables wrong,
which is mostly refused, and learns no more by it. A row lives at one party, which pays, when it
shares its counts, for all that is opened later (`PaidAhead`); who never takes part pays for the
sums before alone.
Assumed public: domain (where numbers are cut into bins is paid for before, see
protocols/histograms.py), workload, roster, who takes part.

Where this departs from the paper, and why:

* Selection. The published one is an exponential mechanism over L1 distances inside the secure
  computation. That needs a comparison for every cell, in each round; the paper's own code does it
  in the clear. Here a plan selects, by noisy answers that are paid for (protocols/two_rounds.py).
* Time. A row pays for every table that is opened after its party joined, and a later table is of
  more rows. So all tables are opened after the last round, for the same price.
* `selection="simulated"` is the published algorithm, with exact counts at the coordinator.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import ClassVar

import msgspec

from siloweave.core import views
from siloweave.core.method import (
    COORDINATOR_TRAINING,
    REPLIES,
    Forecast,
    Guarantee,
    Method,
    QuestionCounts,
    Setup,
)
from siloweave.core.run import Synthesizer
from siloweave.core.views import View, Views
from siloweave.errors import count_of, number, whole
from siloweave.federation.messages import MAX_BYTES
from siloweave.methods.distaim import coordinator, messages, party
from siloweave.methods.distaim.settings import DistAIMSettings
from siloweave.privacy.budget import refuse_several_rows, rho_for
from siloweave.protocols import marginals, secure_sums, workloads

_COPIES = 4.0  # in memory, of the message with coins


def _guarantee(synth: DistAIM) -> Guarantee:
    """Return the guarantee of a run, with servers or simulated."""
    if synth.selection == "simulated":
        return Guarantee(
            "none",
            "Nothing is protected from the coordinator: the secure computation is simulated, and "
            "it sees each party's exact counts and the numbers of rows. Selection and noise are "
            "those of the paper. A baseline only.",
            title="DistAIM (simulated)",
            trust="curator",
            bounded=True,
        )
    return Guarantee(
        "dp",
        "Every row of every party, from the coordinator, from the parties, and from readers, as "
        "long as no two of three put together what they know: the coordinator, and the two parties "
        "that serve, the first and the last of the roster. The sums by which columns are cut hold "
        f"even if {count_of(synth.tolerated, 'party helps', 'parties help')} one of the three.",
    )


def _affordable(setup: Setup) -> None:
    """Refuse a budget whose noise cannot be made, before bins or counts are paid for."""
    synth = setup.settings_as(DistAIMSettings)
    refuse_several_rows(
        setup.budget,
        "DistAIM",
        "tables that are opened later are priced for single rows",
    )
    if synth.selection == "simulated":
        return
    budget = setup.budget
    learn = setup.learn

    # What counts of columns and open facts leave for tables.
    has_counts = learn > 0 or marginals.cuts_columns(setup)
    share = 1 - synth.counts_share * has_counts
    if learn:
        # Open facts take a tenth of delta, too.
        less_delta = msgspec.structs.replace(budget, delta=0.9 * budget.delta)
        share *= (1 - learn) * rho_for(less_delta) / rho_for(budget)
    coordinator.check_coins(synth, budget, len(_sizes(setup)), share)


def _sizes(setup: Setup) -> list[int]:
    """Count the cells of every table that parties share."""
    synth = setup.settings_as(DistAIMSettings)
    encoder = setup.encoder or workloads.first_encoder(marginals.guessed(setup), synth)
    domain = encoder.domain
    queries = workloads.queries_of(synth, encoder)
    return [domain.size(q) for q in party.places_of(domain, queries)]


def _forecast(setup: Setup, rows: int) -> Forecast:
    """Forecast a run; most bytes by far are coins, dealt to the last party."""
    synth = setup.settings_as(DistAIMSettings)
    forecast_marginals = marginals.marginal_forecast(
        lambda setup, rows, domain: (synth.rounds + 2, 1.0),
        _question_counts,
        all_pairs=True,
        waits=lambda synth: synth.rounds - 1,
    )
    forecast = forecast_marginals(setup, rows)
    if synth.selection == "simulated":
        return forecast

    sizes = _sizes(setup)
    opened_sizes = [size for size in sizes if size <= coordinator.MOST_CELLS]
    dealt_bytes = coordinator.DEALT * sum(opened_sizes)
    notes = forecast.notes
    too_large = len(sizes) - len(opened_sizes)
    if too_large:
        pairs = count_of(too_large, "pair of columns has", "pairs of columns have")
        most_cells = coordinator.MOST_CELLS
        notes += (
            f"{pairs} more than {most_cells:,.0f} cells and will not be measured",
        )

    # One message is in memory at a time.
    message_mb = 1e-6 * _COPIES * min(dealt_bytes, MAX_BYTES)
    return replace(
        forecast,
        notes=notes,
        memory_mb=forecast.memory_mb + message_mb,
        bytes_per_party=forecast.bytes_per_party + dealt_bytes,
    )


def _question_counts(setup: Setup, columns: int) -> QuestionCounts:
    """Count how often a party is asked each question at most.

    Every party sends its counts once; the two that serve open tables twice.
    """
    synth = setup.settings_as(DistAIMSettings)
    if synth.selection == "simulated":
        return {secure_sums.KeyRequest: 1, secure_sums.CountExactly: 1}
    return {secure_sums.KeyRequest: 1, messages.ShareCounts: 1, messages.OpenTables: 2}


def _visibility(synth: DistAIM) -> Views:
    """Return the lines of who sees what in a run, with servers or simulated."""
    cuts = views.masked_sums(
        synth.tolerated, "counts of columns, to cut these into bins,"
    )
    if synth.selection == "simulated":
        unprotected = "nothing: exact counts decide what is measured"
        exact = View(
            views.COORDINATOR,
            "exact counts of each party",
            views.NOTHING,
            ("ExactCounts.tables",),
        )
        bare_readers = msgspec.structs.replace(views.READERS, protected_by=unprotected)
        return (views.OWN_ROWS, cuts, exact, bare_readers)

    tables = View(
        views.COORDINATOR,
        "tables over all parties that took part, with noise",
        f"{views.NOISE}, made of coin tosses that no party sees, as long as it shares nothing with "
        "a server",
        ("CountShare.words",),
    )
    others = View(
        views.OTHERS,
        "at the two that serve, which tables are opened",
        f"{views.NOISE}, as long as they share nothing with each other",
        ("OpenTables",),
    )
    return (views.OWN_ROWS, cuts, tables, others, views.READERS)


@dataclass(frozen=True)
class DistAIM(Synthesizer, DistAIMSettings):
    """AIM over parties of which few take part in a round, on counts that two servers open.

    Args:
        degree, queries, workload, target, counts_share, max_model_mb: See `MarginalSettings`.
        bins: Bins of a column of numbers, at most.
        pairs_share, plan_sweeps, plan_shrinkage, final_sweeps, shrinkage: See `TwoRoundSettings`.
        rounds: Rounds, the paper's T.
        participation: Probability p with which a party joins a round.
        selection: "planned", from noisy counts of all pairs; or "simulated", as published, which
            is without any guarantee.
        tolerated: Parties that may pool what they know about sums that are counted before.
        gaussian_share: Share of the budget for measurements, where selection is "simulated".
        sweeps: Sweeps of the fit in a round, where selection is "simulated".

    Example:
        >>> from siloweave.datasets import adult, adult_schema
        >>> from siloweave.privacy.budget import Budget
        >>> tables = [adult().take(range(i, 900, 3)) for i in range(3)]
        >>> distaim = DistAIM(rounds=2, participation=0.9, bins=8, workload=[("sex", "income")])
        >>> fitted = distaim.fit(tables, adult_schema(), budget=Budget(1.0, 1e-6))
        >>> fitted.epsilon <= 1.0, len(fitted.ledgers)
        (True, 3)
    """

    method: ClassVar[Method] = marginals.marginal_method(
        name="distaim",
        title="DistAIM",
        split="rows",
        trust="mpc",
        paper="Maddock, Cormode & Maple 2024, FLAIM, KDD 2024",
        guarantee=_guarantee,
        visibility=_visibility,
        handlers=lambda synth: party.HANDLERS,
        coordinate=coordinator.coordinate,
        forecast=_forecast,
        affordable=_affordable,
        stores=(REPLIES, COORDINATOR_TRAINING),
    )

    def _smallest_cohort(self, parties: int) -> int:
        """Return the fewest parties that are drawn into a round."""
        return secure_sums.smallest_drawn(self.participation, parties)

    def _check_settings(self) -> None:
        """Raise InputError for settings out of bounds."""
        for name in ("rounds", "sweeps", "tolerated"):
            whole(name, getattr(self, name), 1)
        number("participation", self.participation, 0, 1, "(]")
        number("gaussian_share", self.gaussian_share, 0, 1, "()")
