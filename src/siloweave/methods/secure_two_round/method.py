"""TwoRound where parties hold different columns of the same people.

Ours. Plan and fit are those of TwoRound (protocols/two_rounds.py); only the way of measuring
differs. A marginal of columns of one party is counted there, with its noise. One of columns of
several is opened with noise that nobody knows (protocols/secure_marginals/). The model is
that of one owner of the whole table, with noise up to one per cent wider. What was published for
this setting either does not keep its claim (VertiMRF-FM: Zhao et al., KDD 2024, Theorem 2), or
answers with far more noise (randomised response), or never measures columns of two parties
together (VertiGAN: Jiang et al. 2023).

**Guarantee** (dp): rows over all parties together, add/remove or replace-one as the budget says,
towards the coordinator; any parties together, of three or more not both of the first two of the
study; and everyone who sees the model. protocols/secure_marginals/ and
protocols/secure_products.py say what is assumed: the coordinator follows the protocol, and does not
pool what it knows with a party; nor does the first party with the second one, where others have
columns: these two open wide tables. Under an add/remove budget
the other parties, who know whose rows are in the table, have twice its zCDP for a row that is
replaced. Assumed public: schema, roster, which columns are where, workload, and that rows are
aligned.
"""

from __future__ import annotations

import logging
from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar

from siloweave.core import views
from siloweave.core.method import (
    COORDINATOR_TRAINING,
    REPLIES,
    Guarantee,
    Method,
    Result,
    Task,
)
from siloweave.core.model import MarginalModel
from siloweave.core.run import Synthesizer
from siloweave.core.views import View, Views
from siloweave.federation.session import Session
from siloweave.models.estimate import Measurement
from siloweave.protocols.columns import columns_data
from siloweave.protocols.secure_marginals.coordinator import SecureMarginals
from siloweave.protocols.secure_marginals.forecast import secure_forecast
from siloweave.protocols.secure_marginals.party import secure_handlers
from siloweave.protocols.secure_marginals.plan import (
    SecurePlan,
    check_codes,
    only_alone,
    secure_facts,
)
from siloweave.protocols.two_rounds import TwoRoundSettings, plan_and_fit
from siloweave.protocols.workloads import queries_of
from siloweave.tables.codes import Clique
from siloweave.tables.display import listed

_log = logging.getLogger("siloweave")


def coordinate(session: Session, task: Task) -> Result:
    """Measure all pairs, plan, measure the planned tables, and fit."""
    synth = task.setup.settings_as(TwoRoundSettings)
    secure = SecureMarginals(session, task)
    queries = queries_of(synth, secure.encoder)
    measured_cliques: Sequence[Clique] = ()
    crowded_pairs: list[Clique] = []

    def measure(
        cliques: Sequence[Clique], sigmas: Sequence[float], rho: float
    ) -> list[Measurement]:
        nonlocal measured_cliques
        # There are two rounds: what follows the first measurement is the last.
        is_last = bool(measured_cliques)
        measurements = secure.measure(cliques, sigmas, last=is_last)
        measured_cliques = [measurement.clique for measurement in measurements]
        return measurements

    # Where a bound of the number of rows was paid for, the number itself is private.
    total = None if secure.plan.bound else secure.rows
    mrf, measured = plan_and_fit(
        secure.domain,
        queries,
        secure.plan.rho_tables,
        synth,
        measure,
        unit=secure.plan.unit,
        total=total,
        allowed=secure.can_measure,
        no_room=crowded_pairs.extend,
        progress=task.progress,
    )

    num_joint = sum(len(secure.plan.holders(clique)) > 1 for clique in measured_cliques)
    if not num_joint and len(secure.plan.parts) > 1:
        _log.warning(_why_apart(secure.plan, crowded_pairs))
    counts_share = synth.counts_share if secure.encoder.cuts else 0.0
    facts = {
        "queries": len(queries),
        "counts_share": counts_share,
        "joint_tables": num_joint,
    }
    model = MarginalModel(mrf, secure.encoder, tuple(measured), tuple(queries))
    return Result(model, facts=facts)


def _why_apart(plan: SecurePlan, crowded_pairs: Sequence[Clique]) -> str:
    """Explain in a sentence why no table of two parties' columns is measured in the end."""
    if plan.crossing and not plan.opens_pairs:
        return only_alone(plan)
    joint_pairs = [pair for pair in crowded_pairs if len(plan.holders(pair)) > 1]
    if not plan.crossing:
        reason = "the workload names no columns of two parties together"
    elif joint_pairs:
        names = listed(["×".join(pair) for pair in joint_pairs])
        reason = (
            f"max_model_mb = {plan.synth.max_model_mb:g} has no room for tables of columns of two "
            f"parties, which were worth their noise ({names}): raise it"
        )
    else:
        epsilon = plan.budget.epsilon
        reason = f"at epsilon = {epsilon:g} no table of columns of two parties was worth its noise"
    return f"{reason}; columns of different parties are nearly independent in the synthetic table"


def _visibility(synth: SecureTwoRound) -> Views:
    """Return the lines of who sees what, and what protects it."""
    alone = "as long as it shares nothing with a party"
    counts = View(
        views.COORDINATOR,
        "an upper bound of the number of rows where that is private, and noisy tables of counts",
        f"{views.NOISE}; for tables of two parties it is made of coin tosses that no party sees, "
        f"{alone}",
        ("Begun.paid_bound", "Begun.counts", "Tables.own", "Tables.joint"),
    )
    sealed = View(
        views.COORDINATOR,
        "the parties' messages to each other",
        "keys that it lacks",
        ("SharedRows.rows",),
    )
    servers = (
        "of three or more, also as long as the first two share nothing with each other"
    )
    others = View(
        views.OTHERS,
        "the others' rows, each number under a mask, and which tables are counted",
        f"masks that the coordinator alone knows, {alone} ({servers}), and {views.NOISE}",
        ("ShareRows", "MeasureTables"),
    )
    return (views.own_columns(), counts, sealed, others, views.READERS)


@dataclass(frozen=True)
class SecureTwoRound(Synthesizer, TwoRoundSettings):
    """Split columns: noisy counts of all pairs, then one good measurement of what was planned.

    A table of columns that lie at two parties is counted without anyone seeing it, and with the
    noise that one owner of all columns would need.

    Args:
        degree, queries, workload, target, counts_share, max_model_mb: See `MarginalSettings`.
        bins: Bins of a column of numbers, at most; None for as many as rows and budget carry, up
            to 16, since a row is sent with a number for every code.
        pairs_share, plan_sweeps, plan_shrinkage, final_sweeps, shrinkage: See `TwoRoundSettings`.

    Example:
        >>> from siloweave.datasets import adult, adult_schema
        >>> from siloweave.privacy.budget import Budget
        >>> columns = ["sex", "income", "age"]
        >>> table, schema = adult().take(range(900)), adult_schema().select(columns)
        >>> parts = {"tax": table.select(["sex", "income"]), "town": table.select(["age"])}
        >>> fitted = SecureTwoRound(bins=8).fit(parts, schema, budget=Budget(1.0, 1e-6))
        >>> fitted.epsilon <= 1.0, fitted.sample_table(3, seed=0).names
        (True, ('sex', 'income', 'age'))
    """

    method: ClassVar[Method] = Method(
        name="secure_two_round",
        title="Secure TwoRound",
        family="graphical model",
        split="columns",
        trust="mpc",
        paper="siloweave's own, after Beaver (STOC 1997) and AIM (VLDB 15(11))",
        guarantee=lambda synth: Guarantee(
            "dp",
            "Each row over all parties together, from the coordinator, from the parties, and from "
            "everyone who sees the model, as long as the coordinator and a party, or the first and "
            "second of three parties or more, do not put together what they know. The schema is "
            "public. Other parties know who is in the "
            "table, so towards them choose replaced rows as neighbours: under added or removed "
            "rows, what they may learn of a row's values costs twice the zCDP.",
            same_people=True,
        ),
        visibility=_visibility,
        prepare=columns_data,
        facts=secure_facts,
        handlers=secure_handlers,
        coordinate=coordinate,
        load=MarginalModel.load,
        forecast=secure_forecast,
        affordable=check_codes,
        phase="rounds with the parties",
        stores=(REPLIES, COORDINATOR_TRAINING),
    )
