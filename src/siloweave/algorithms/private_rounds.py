"""Private networks over split rows: every step is a masked sum of clipped gradients.

DP-SGD (Abadi, Chu, Goodfellow, McMahan, Mironov, Talwar & Zhang 2016, "Deep learning with
differential privacy") whose sums no single party sees (Bonawitz et al. 2017) and whose noise the
parties add in shares (Kairouz, Liu & Steinke 2021, "The distributed discrete Gaussian mechanism for
federated learning with secure aggregation").

1. One masked sum counts every column on public bins, and the rows. Encoders, the law of the label,
   the sampling rate and the divisor of gradients follow from it (private_counts.py).
2. In every step the coordinator sends the weights, and whatever else a row's loss is to be given;
   each party draws its own rows by coins of its own, clips every row's gradient, rounds the sum to
   integers, adds its share of the noise and masks; the coordinator unmasks the sum and moves the
   weights.

What is trained is a `Stepwise` (models/stepwise.py): it says what a step's message carries, what a
row's loss is given that message, and how the weights move. Of a diffusion the message is the
network. Of a GAN it is the critic and a pool of generated rows (Xie, Lin, Wang, Wang & Zhou 2018,
"Differentially private generative adversarial network": only the critic meets real rows); the
generator moves at the coordinator, by the critic and the paid counts, which is post-processing.

One party alone is the central case: its masks are empty, it adds all the noise itself, and what the
coordinator sees is its noisy sums.

**Guarantee** (dp): rows, add/remove or replace-one as each party's budget says, towards the
coordinator together with at most `tolerated` parties, and everyone who sees weights or rows of the
model. A party encodes its rows by its own declared facts, or not at all. A row pays for one look
and for every step, each entered in its party's ledger before noise is drawn; all are read at one
Renyi order, which the noisy number of rows may choose only as far as its price contains it
(privacy/orders.py). Where a row is replaced the number of rows costs nothing; of one party alone
it is public. The party computes the sensitivity itself (privacy/shared_steps.py) from how it clips
and rounds, and refuses settings that are beyond what it can pay for, hold or finish. Who is drawn,
what a row's loss draws, where in its bin a value is encoded, and the noise come from the party's
own entropy and stay there, so that sampling amplifies towards all others; it does not towards
someone who reads the party's memory. No loss leaves the party or steers anything: whether training
diverged is seen by the weights alone, which follow from noisy sums. Every noisy number is a whole
number of units, at whatever coordinate; nothing of the noise is a float. Assumed public: schema,
bins, settings, roster, and how long a party takes. The coordinator is taken to follow the protocol;
whatever it asks, weights and generated rows of any kind, a row's gradient is clipped and a party's
ledger pays for what it does.
Per-step noise holds with `tolerated` shares missing; a party that does not answer stops the run.
Noise is drawn within `mechanisms.TV_PER_DRAW` of its law, as everywhere. That a row's gradient is
the same at any place of a batch but for its last bits is taken from the compiler (seen on CPUs);
`shared_steps.moved` leaves a 1024th of the clip for them.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any, NamedTuple

import msgspec

from siloweave.algorithms.look import (
    CountColumns,
    CountRows,
    Part,
    count_columns,
    count_rows,
    look,
    look_event,
)
from siloweave.algorithms.networks import jax_key
from siloweave.algorithms.private_begin import (
    BeginTraining,
    PrivateKind,
    begin,
    begun,
    encoded,
    event_of,
    refuse_unpayable,
)
from siloweave.algorithms.private_counts import Look
from siloweave.algorithms.running import plain
from siloweave.algorithms.secure_sum import (
    Cohort,
    Counts,
    Hello,
    hello,
    meet,
    noisy_sums,
)
from siloweave.errors import InputError, WireError
from siloweave.federation.session import Session
from siloweave.federation.site import Handlers, Site
from siloweave.privacy.budget import Budget, Relation
from siloweave.privacy.events import SharedGaussian
from siloweave.privacy.shared_steps import SharedSteps, order_for, plan_steps, quantised, span
from siloweave.tables.codes import Encoder
from siloweave.tables.features import Features
from siloweave.tables.keys import fold_in

if TYPE_CHECKING:
    from siloweave.models.stepwise import Stepwise

__all__ = ["Part", "PrivateKind", "PrivatePlan", "PrivateResult", "party", "private_rounds"]


# Messages


class Step(Cohort, frozen=True, tag="private/step"):
    """Add up the clipped gradients of a fresh sample; `message` holds weights, as safetensors."""

    number: int
    message: bytes


# Party


class _Desk(NamedTuple):
    """What was asked for, what trains, rows as its losses read them, and messages by stage."""

    begin: BeginTraining
    training: Stepwise
    rows: Any
    likes: dict[int, Any]


def _desk(kind: PrivateKind, site: Site[Part]) -> _Desk:
    """Laid out once a process, from what is remembered."""
    name = ("private rounds", site.context.rpartition("/")[0], site.recall("begin"))
    if name not in site.memo:
        asked, training, features = begun(kind, site)
        site.memo[name] = _Desk(asked, training, encoded(site, features, training.rows), {})
    desk: _Desk = site.memo[name]
    return desk


def _asked(desk: _Desk, request: Step, site: Site[Part]) -> tuple[Any, Any]:
    """The network and the loss of a step; raises WireError where the request is none."""
    from siloweave.models.rounds import unpacked

    who, number = f"party {site.name!r}, step {request.number}", request.number
    if not 0 <= number < desk.training.steps:
        raise WireError(f"{who}: there are {desk.training.steps:,} steps, counted from 0")
    refuse_unpayable(who, share_sigma=request.share_sigma)
    stage = desk.training.stage(number)
    if stage not in desk.likes:
        desk.likes[stage] = desk.training.empty(stage)
    try:
        return desk.training.task(unpacked(request.message, desk.likes[stage]))
    except InputError as error:
        raise WireError(f"{who}: {error}") from error


def step(kind: PrivateKind, request: Step, site: Site[Part]) -> Counts:
    """Draw rows, sum their clipped gradients, round; then pay, add noise, mask."""
    from siloweave.models.nets import Dense
    from siloweave.privacy import gradients

    desk, size = _desk(kind, site), site.rows.table.num_rows
    asked, shares = desk.begin, len(request.keys)
    site.terms.check_cohort(site.name, request.keys, request.tolerated)  # before any work
    net, loss = _asked(desk, request, site)
    width = gradients.flat_size(net)
    try:
        span(shares)
        event = event_of(
            asked, site, share_sigma=request.share_sigma, shares=shares,
            tolerated=request.tolerated, width=width,
        )  # fmt: skip
    except InputError as error:
        raise WireError(f"party {site.name!r}, step {request.number}: {error}") from error
    picked = gradients.drawn(size, asked.rate, entropy=site.entropy)
    total = gradients.summed(
        loss, net, desk.rows, picked, clip=asked.clip, layer=Dense, entropy=site.entropy
    )
    whole = quantised(total, clip=asked.clip, levels=asked.levels, parties=shares)
    what = f"step {request.number + 1} of {kind.title}"
    return Counts(site.release_masked(event, what, whole, request.keys))


def party(kind: PrivateKind) -> Handlers:
    """A party's side: which function answers which request."""
    return {
        Hello: hello,
        CountRows: count_rows,
        CountColumns: count_columns,
        BeginTraining: partial(begin, kind),
        Step: partial(step, kind),
    }


# Coordinator


@dataclass(frozen=True)
class PrivatePlan:
    """What a coordinator is to do; all of it public, and fixed before anything is read.

    Attributes:
        encoder: Columns, and the bins that are counted.
        settings: Of the network, as plain values.
        target: A column that the model is told, or None.
        budget: Most that any row may cost.
        counts_share: Share of its zCDP for the look at the columns.
        clip: Largest norm of a row's gradient.
        steps: How many.
        batch: Rows of all parties in a step, as expected.
        tolerated: Parties that may pool what they know with the coordinator.
        seed: First weights.
        progress: Called with a text and the share that is done.
    """

    encoder: Encoder
    settings: dict[str, Any]
    target: str | None
    budget: Budget
    counts_share: float
    clip: float
    steps: int
    batch: int
    tolerated: int
    seed: int
    progress: Callable[[str, float], None]

    def look(self, rho: float, parties: int) -> SharedGaussian:
        """What the look at the columns is, out of a budget of `rho` zCDP."""
        share = self.counts_share * rho
        return look_event(self.encoder, self.budget.relation, share, parties, self.tolerated)

    def order(self, look: SharedGaussian) -> int | None:
        """The Renyi order at which the run is read, see privacy/orders.py."""
        return order_for(self.budget, steps=self.steps, others=[look])

    def facts(self, look: SharedGaussian) -> dict[str, Any]:
        """What every party is given of it, see `Terms`; `look` is that of all parties."""
        own = {"settings": plain(self.settings), "target": self.target, "clip": self.clip}
        return {**own, "order": self.order(look)}


class PrivateResult(NamedTuple):
    """What a run leaves: the model, the paid look at the columns, the noise, and the rate."""

    network: Any
    look: Look
    features: Features
    noise: SharedSteps
    rate: float


def private_rounds(
    parties: Session, kind: PrivateKind, plan: PrivatePlan, event: SharedGaussian
) -> PrivateResult:
    """Run the look and all steps over a roster.

    Args:
        parties: Who holds the rows; one party alone is the central case.
        kind: What is trained.
        plan: How.
        event: The look, from `PrivatePlan.look`.

    Raises:
        BudgetError: The steps cannot be paid beside the look.
        WireError: A party sent what is no answer; names it.
    """
    from siloweave.privacy.gradients import flat_size

    plan.progress("counting", 0.0)
    keys = meet(parties, plan.encoder.domain)
    alone = len(parties.roster) == 1 and plan.budget.relation is Relation.REPLACE_ONE
    seen = look(parties, keys, plan.encoder, event, plan.seed, public=alone)
    features, rate = seen.features(kind.numeric), min(1.0, plan.batch / seen.rows)
    training = kind.made(features, plan.settings, plan.target, seen.shares(features))
    plan.progress("finding the noise that fits the budget", 0.0)
    tasks = [training.task(training.empty(stage)) for stage in training.stages]
    order = plan.order(event)
    noise = plan_steps(
        plan.budget, rate=rate, steps=plan.steps, shares=event.shares, tolerated=event.tolerated,
        dimension=max(flat_size(net) for net, _ in tasks), others=[event], order=order,
    )  # fmt: skip
    setup = (features.to_json(), msgspec.json.encode(plan.settings), plan.target)
    parties.ask(BeginTraining(*setup, plan.clip, noise.levels, rate, order))
    asked = partial(Step, keys, noise.share_sigma, event.tolerated)
    unit = plan.clip / noise.levels / (rate * seen.rows)
    drawn = training.keys(jax_key(fold_in(fold_in(plan.seed, "train"), "model")))
    state = _steps(parties, plan, training, drawn, asked, unit)
    return PrivateResult(training.finish(state, seen.rows, drawn.end), seen, features, noise, rate)


def _steps(
    parties: Session, plan: PrivatePlan, training: Stepwise, keys: Any, asked: Callable[..., Step],
    unit: float,
) -> Any:  # fmt: skip
    """All steps; `unit` is what one integer of a sum is worth in the mean gradient."""
    import jax

    from siloweave.models.rounds import packed
    from siloweave.models.stepwise import check_finite
    from siloweave.privacy.gradients import flat_size, unflattened

    state = training.start(keys.initial)
    for number in range(plan.steps):
        plan.progress(f"step {number + 1:,} of {plan.steps:,}", number / plan.steps)
        key = jax.random.fold_in(keys.steps, number)
        message = training.message(state, key)
        net, _ = training.task(message)
        (noisy,) = noisy_sums(parties, asked(number, packed(message)), [(flat_size(net),)])
        state = training.moved(state, unflattened(noisy * unit, net), key)
        check_finite(state, number + 1)
    return state
