"""VertiGAN: one generator whose trunk is the server's, with a head and a critic at every party.

Jiang, Zhang, Zhou & Grossklags 2023, "Distributed GAN-Based Privacy-Preserving Publication of
Vertically-Partitioned Data", PoPETs 2023(2); the setting as VertiMRF (Zhao et al., KDD 2024) runs
it for comparison. In every round the server sends hidden rows; each party takes several private
steps of its critic on its own real rows, one step of its head against the critic, and answers with
the slope of its loss at the hidden rows, which the trunk follows. Heads never leave; in the end
each party makes its own synthetic columns of the server's hidden rows.

**Guarantee** (dp): rows, add/remove or replace-one as the budget says, towards the server and
everyone who sees synthetic rows; towards the other parties under replace-one only, since each holds
the same people, so that for it no row can come or go, only change: read so, an add/remove budget of
1 is 1.6 with two parties and 1.9 with four, of 14 columns and 40,000 rows. One person's row lies at
every party, so what all parties release about it composes, and the noise is the least for which all
ledgers read together keep to the budget, at one Renyi order:

* the number of rows, common to all and asked of the first party alone (discrete Gaussian; public
  under replace-one);
* once a run the counts of every party's columns (discrete Gaussian; a row is in at most one cell of
  each table of `ResolutionLevels`, so the joint L2 sensitivity is sqrt(tables), times sqrt(2) under
  replace-one);
* all critic steps of all parties: exact integer sums of clipped gradients with exact discrete noise
  (privacy/gradients.py, privacy/shared_steps.py).

A party computes plan and sensitivities itself from the study; before it trains it reads what all
are going to pay together, and refuses if that is beyond its limit. Head, slopes and synthetic
columns are computed from the private critic (post-processing). Noise, batches and what a row's loss
draws come from the party's own entropy, fresh in every round. Once a round is paid for nothing
refuses it: networks that diverged answer with slopes that are not finite, which the server refuses.
Assumed public: schema, bounds and bins, settings, roster, and that rows are aligned. The server
sees every slope, each of them paid for. With ``private=False``: no guarantee, and every ledger says
so.

Where this departs from the paper, and why:

* The gradient penalty is of one real row and one generated row. The published replica adds the
  penalty's mean over the batch to each row's loss, so that one row moves every clipped gradient and
  the sum by up to twice the batch times the clip; nothing of its noise covers that.
* Heads start from the paid frequencies (``informed``), Adam replaces RMSprop.
* Rows are aligned, and yet no step uses it: a critic sees its own party's columns alone. That
  columns of two parties go together can only come of the trunk, and mostly it is chance.
"""

from __future__ import annotations

from contextlib import suppress
from dataclasses import dataclass, replace
from functools import partial
from math import inf
from typing import ClassVar

from siloweave.core import views
from siloweave.core.method import (
    COORDINATOR_TRAINING,
    PARTY_TRAINING,
    REPLIES,
    Forecast,
    Guarantee,
    Method,
    QuestionCounts,
    Setup,
    same_people_note,
)
from siloweave.core.run import Synthesizer
from siloweave.core.views import View, Views
from siloweave.errors import BudgetError, InputError, number
from siloweave.methods.vertigan import coordinator, messages, party
from siloweave.methods.vertigan.settings import VertiGANFitSettings
from siloweave.privacy.accountants import most_of_several
from siloweave.privacy.budget import Relation, refuse_several_rows
from siloweave.protocols import columns
from siloweave.protocols.networks import check_trainable, training_forecast
from siloweave.protocols.private_steps import MOST_NUMBERS

_MOST_BINS = 2**20


_NOISE_OR_NONE = "VertiGAN() adds noise, VertiGAN(private=False) adds none."


def _guarantee(synth: VertiGAN) -> Guarantee:
    """Return the guarantee of a run, with noise or without."""
    if not synth.private:
        nothing = "Nothing: critics are trained without noise."
        return Guarantee("none", nothing, instead=_NOISE_OR_NONE)
    return Guarantee(
        "dp",
        "Each row over all parties together, from the server and everyone who sees synthetic rows: "
        "the number of rows, the counts of all columns and every critic step are paid for. From "
        "the other parties, who hold the same people, only where the budget's neighbours replace a "
        "row. The schema is public. Which rows of two parties belong together is never used.",
        same_people=True,
        instead=_NOISE_OR_NONE,
    )


def _visibility(synth: VertiGAN) -> Views:
    """Return the lines of who sees what in a run, with noise or without."""
    slopes = "gradients of each party's loss at generated rows"
    generated = "generated rows, which depend on the gradients of all parties"
    if not synth.private:
        bare = "nothing: critics are trained without noise"
        received = f"the number of rows, and {slopes}"
        server = View(
            views.COORDINATOR, received, bare, ("VertiGANReady.rows", "Moved.slope")
        )
        others = View(views.OTHERS, generated, bare, ("TrainCritics",))
        return (
            views.own_columns(),
            server,
            others,
            columns.readers(synth.shared, bare),
        )

    counts = "noisy counts of each party's columns, and of the rows if their number is private"
    received_in = ("Counted.paid_rows", "Counted.counts", "Moved.slope")
    server = View(
        views.COORDINATOR, f"{counts}, and {slopes}", views.NOISE, received_in
    )
    same_people = (
        "as they hold the same people, the claim towards them is for rows replaced only"
    )
    sent = f"the number of rows, as it was counted, and {generated}"
    sent_in = ("BeginVertiGAN", "TrainCritics")
    others = View(views.OTHERS, sent, f"{views.NOISE}; {same_people}", sent_in)
    return (
        views.own_columns(),
        server,
        others,
        columns.readers(synth.shared, views.NOISE),
    )


def _affordable(setup: Setup) -> None:
    """Refuse a budget whose noise leaves nothing to learn, before rows are aligned."""
    synth = setup.settings_as(VertiGANFitSettings)
    if synth.private:
        refuse_several_rows(
            setup.budget,
            "VertiGAN",
            "its critics clip the gradient of each row, not of each unit",
        )
    if synth.private and setup.columns:
        messages.VertiGANPlan.of(synth, columns.parts_of(setup), setup.budget)


def _forecast(setup: Setup, rows: int) -> Forecast:
    """Forecast a run, in each of whose rounds hidden rows travel there and back."""
    synth = setup.settings_as(VertiGANFitSettings)
    # Four bytes a number.
    sent = 2 * synth.rounds * 4 * synth.made * synth.trunk[-1]
    questions: QuestionCounts = {
        messages.CountOwnColumns: int(synth.private),
        messages.BeginVertiGAN: 1,
        messages.TrainCritics: synth.rounds,
    }
    settings = {**setup.synth.settings(), "steps": synth.steps}
    forecast = training_forecast(
        setup, rows, settings, questions, lambda weights, width: sent, numeric="modes",
        private=synth.private,
    )  # fmt: skip

    # The first party counts before the others do: each waits during one question.
    waits = int(synth.private and len(setup.roster) > 1)
    notes = forecast.notes
    to_parties: float | None = None
    if waits and setup.columns and setup.budget.relation is Relation.ADD_REMOVE:
        parts = {
            name: setup.schema.select(list(names))
            for name, names in setup.columns.items()
        }
        # A budget that is too small is refused later, when the run begins.
        with suppress(BudgetError):
            plan = messages.VertiGANPlan.of(synth, parts, setup.budget)
            assert plan.order is not None  # as rows are added or removed
            # Whatever the number of rows is, which decides rate and noise of a step.
            most = plan.most_of_others
            to_parties = most_of_several(most, 2, setup.budget.delta, plan.order)
            to_parties = max(to_parties, setup.budget.epsilon)
            notes = (*notes, same_people_note(to_parties))
    return replace(forecast, waits=waits, notes=notes, epsilon_to_parties=to_parties)


@dataclass(frozen=True)
class VertiGAN(Synthesizer, VertiGANFitSettings):
    """GAN over split columns: one trunk, a head and a private critic at every party.

    It takes the settings of `siloweave.models.settings.VertiGANSettings` and of
    `siloweave.core.method.CountsSettings`, too.

    Args:
        shared: Whether synthetic columns are put together; else each stays with its party.
        private: False to train without noise, and without a guarantee.
        clip: Largest norm of a row's gradient.

    Example:
        >>> VertiGAN().info.guarantee, VertiGAN(private=False).info.guarantee
        ('dp', 'none')
    """

    method: ClassVar[Method] = Method(
        name="vertigan",
        title="VertiGAN",
        family="GAN",
        split="columns",
        trust="local",
        paper="Jiang, Zhang, Zhou & Grossklags 2023, Distributed GAN-Based Privacy-Preserving "
        "Publication of Vertically-Partitioned Data, PoPETs 2023(2)",
        guarantee=_guarantee,
        visibility=_visibility,
        prepare=columns.columns_data,
        facts=columns.column_facts,
        handlers=columns.with_decoding(party.handlers, coordinator.load_head),
        coordinate=coordinator.coordinate,
        decode=partial(columns.decoded_rows, coordinator.load_head),
        load=partial(
            columns.ColumnsModel.read,
            joint=coordinator.TrunkModel.load,
            coder=coordinator.load_head,
        ),
        forecast=_forecast,
        check_schema=check_trainable,
        affordable=_affordable,
        stores=(REPLIES, COORDINATOR_TRAINING, PARTY_TRAINING),
    )

    def _check_settings(self) -> None:
        """Raise InputError for settings out of bounds, or too large for a party."""
        number("clip", self.clip, 0, inf, "()")
        widest = max(self.noise, *self.trunk, *self.head, *self.critic)
        sizes = (widest**2, self.made * widest, self.steps)
        if max(sizes) > MOST_NUMBERS or self.finest_bins > _MOST_BINS:
            raise InputError(
                "networks, hidden rows, steps or finest_bins are more than a party takes: layers "
                "times layers, made times layers, and rounds times critic_steps must be "
                f"{MOST_NUMBERS:,} at most, and finest_bins {_MOST_BINS:,}"
            )
