"""TwoRound: noisy counts of all pairs plan what is then measured well; all parties answer twice.

Ours. It takes from FLAIM (Maddock, Cormode & Maple 2024) the setting and the masked sums, from
AIM (McKenna, Mullins, Sheldon & Miklau 2022, section 4) the weights and the score of a marginal,
and from PrivMRF (Cai, Lei, Wei & Xiao 2021) that noisy counts of all pairs show which shape the
model should have. It omits what makes FLAIM weak: no party chooses by its own skewed rows, and no
budget goes to selections or to counting the one-ways again every round.

1. All parties together measure every one- and two-way marginal of the workload's closure, with
   `pairs_share` of the budget.
2. The coordinator plans: from these counts it adds, one by one, the pair that would improve the
   workload most beyond the noise it would be measured with, while the model stays small.
3. All parties measure, once and with the rest of the budget, tables that hold what was planned,
   also of three to five columns where that lowers the expected error, each in its own noise
   (protocols/two_rounds.py). The fit uses both measurements.

**Guarantee** (dp): rows, add/remove or replace-one as each party's budget says, towards the
coordinator together with at most `tolerated` parties, and everyone who sees the model. A row pays
for two masked sums (protocols/secure_sums.py); the plan is computed from the first
(post-processing). Assumed public: domain (where numbers are cut into bins is paid for before, see
protocols/histograms.py), workload, roster. `dropouts` parties may vanish in a sum, for which its
noise is sized (federation/dropouts.py); what the others counted is then scaled to the first sum.
With one party there is no other whose masks hide its sums: the coordinator sees that party's own
noisy counts. Their noise alone protects, and it is all of the noise, so the guarantee is the same.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import ClassVar

from siloweave.core import views
from siloweave.core.method import (
    OR_PERSONS,
    Forecast,
    Guarantee,
    Method,
    QuestionCounts,
    Setup,
)
from siloweave.core.run import Synthesizer
from siloweave.core.views import View, Views
from siloweave.errors import whole
from siloweave.federation.dropouts import MaskPlan
from siloweave.methods.two_round import coordinator
from siloweave.methods.two_round.settings import TwoRoundFitSettings
from siloweave.protocols import accuracy, marginals, secure_sums
from siloweave.tables.codes import Domain


def _visibility(synth: TwoRound) -> Views:
    """Return the lines of who sees what: sums at the coordinator, plans at the other parties."""
    message_to_parties = (
        "where columns are cut, and which tables are counted in the second round"
    )
    others = View(views.OTHERS, message_to_parties, views.OTHERS_NOISE, ("Count",))
    sums = views.masked_sums(synth.tolerated, dropouts=synth.dropouts)
    return (
        views.OWN_ROWS,
        sums,
        others,
        *views.openings(synth.dropouts),
        views.READERS,
    )


def _forecast(setup: Setup, rows: int) -> Forecast:
    """Forecast a run, which uses the bins' keys again, and closes with the second sum.

    If a party vanishes, all others are asked for their ledgers once more.
    """

    def rounds(setup: Setup, rows: int, domain: Domain) -> tuple[int, float]:
        return 2, 2.0

    def questions(setup: Setup, columns: int) -> QuestionCounts:
        exchanges = 0 if marginals.cuts_columns(setup) else 1
        return {secure_sums.KeyRequest: exchanges, secure_sums.Count: 2}

    synth = setup.settings_as(TwoRoundFitSettings)
    forecast_of = marginals.marginal_forecast(
        rounds, questions, all_pairs=True, buys=_buys
    )
    return replace(forecast_of(setup, rows), closes=not synth.dropouts)


def _buys(setup: Setup, rows: int, domain: Domain) -> accuracy.Bought:
    """Return the measurements that both rounds buy, with the noise of all parties' shares."""
    # The noise is sized for the parties that remain where some vanish or pool what they know, so
    # with all of them it is wider than the budget asks for.
    synth = setup.settings_as(TwoRoundFitSettings)
    parties = len(setup.roster)
    plan = MaskPlan.for_size(parties, synth.tolerated, synth.dropouts)
    remaining_share = (parties - plan.missing) / parties
    rho = marginals.rho_of_rounds(setup) * remaining_share
    numbers = accuracy.numbers_of(setup.schema)
    return accuracy.two_round_buys(
        domain, numbers, rows, rho, synth.pairs_share, synth.shrinkage
    )


@dataclass(frozen=True)
class TwoRound(Synthesizer, TwoRoundFitSettings):
    """Two masked sums over all parties: noisy counts of all pairs, then one good measurement.

    Before them comes a noisy histogram of single columns, where there are numbers to cut. A single
    table is that of one party; no mask hides its sums then: their noise alone protects its rows.

    Args:
        degree, queries, workload, target, bins, counts_share, max_model_mb: See `MarginalSettings`.
        pairs_share, plan_sweeps, plan_shrinkage, final_sweeps, shrinkage: See `TwoRoundSettings`.
        tolerated: Parties that may pool what they know with the coordinator.
        dropouts: Parties that may vanish in one sum.

    Example:
        >>> from siloweave.datasets import adult, adult_schema
        >>> from siloweave.privacy.budget import Budget
        >>> tables = [adult().take(range(i, 900, 3)) for i in range(3)]
        >>> fitted = TwoRound(bins=8, workload=[("sex", "income")]).fit(
        ...     tables, adult_schema(), budget=Budget(1.0, 1e-6))
        >>> fitted.epsilon <= 1.0, fitted.cost.rounds
        (True, 3)
    """

    method: ClassVar[Method] = marginals.marginal_method(
        name="two_round",
        title="TwoRound",
        split="rows",
        trust="secure-sum",
        paper="siloweave's own, after FLAIM (KDD 2024) and AIM (VLDB 15(11))",
        guarantee=lambda synth: Guarantee(
            "dp",
            f"Protected: every row of every party{OR_PERSONS} against "
            "readers, the other parties, and the "
            f"coordinator with the help of up to {synth.tolerated} of them; the coordinator sees "
            "only masked, noisy sums over all parties.",
        ),
        visibility=_visibility,
        handlers=lambda synth: secure_sums.HANDLERS,
        coordinate=lambda session, task: marginals.marginal_result(
            coordinator.two_round, session, task, keys=task.setup.keys
        ),
        forecast=_forecast,
    )

    def _check_settings(self) -> None:
        """Refuse numbers of parties that cannot be."""
        whole("tolerated", self.tolerated, 1)
        whole("dropouts", self.dropouts, 0)
