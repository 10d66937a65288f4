"""The coordinator's side of DP-SGD: counts, the noise to plan, and steps by noisy masked sums.

Abadi et al. 2016, "Deep learning with differential privacy"; Kairouz, Liu & Steinke 2021; see
method.py.

**Guarantee**: that of method.py. Everything here follows from public facts and from what parties
have paid for.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING, Any

from siloweave.core.method import Result, Setup, Task
from siloweave.core.model import FeatureModel
from siloweave.federation.session import Session
from siloweave.methods.dp_sgd.messages import BeginTraining, Step, TrainDiffusion
from siloweave.methods.dp_sgd.party import PrivateTrainer, trains_unpaid
from siloweave.privacy.budget import Relation, rho_for
from siloweave.privacy.events import SharedGaussian
from siloweave.privacy.shared_steps import order_for, plan_steps
from siloweave.protocols.histograms import histogram_event, noisy_histogram
from siloweave.protocols.networks import from_bytes, jax_key, saved_bytes
from siloweave.protocols.private_steps import refuse_what_learns_nothing
from siloweave.protocols.secure_sums import exchange_keys, noisy_sums
from siloweave.tables.codes import Encoder
from siloweave.tables.keys import fold_in

if TYPE_CHECKING:
    from siloweave.models.stepwise import Stepwise


def counts_event(setup: Setup) -> SharedGaussian:
    """What the noisy histogram of all columns is, out of the run's budget."""
    synth: Any = setup.synth
    encoder = Encoder(setup.schema, synth.finest_bins)
    rho = synth.counts_share * rho_for(setup.budget)
    tolerated, dropouts = getattr(synth, "tolerated", 0), getattr(synth, "dropouts", 0)
    parties = len(setup.roster)
    return histogram_event(encoder, setup.budget.neighbours, rho, parties, tolerated, dropouts)


def training_order(trainer: PrivateTrainer, setup: Setup) -> int | None:
    """The Renyi order at which the run is read, see privacy/shared_steps.py."""
    steps, _ = trainer.length(setup.synth)
    return order_for(setup.budget, steps=steps, others=[counts_event(setup)])


def study_facts(trainer: PrivateTrainer, setup: Setup) -> dict[str, Any]:
    """What a party holds requests to: the order, and how wide its share of noise on counts is."""
    sigma = counts_event(setup).share_sigma
    return {"order": training_order(trainer, setup), "counts_sigma": sigma}


def check_affordable(trainer: PrivateTrainer, setup: Setup, learn: float) -> None:
    """Refuse a budget with which the noise of a step would hide a whole batch's clipped sum."""
    left = rho_for(setup.budget) - counts_event(setup).rho
    refuse_what_learns_nothing(setup.budget, left, *trainer.length(setup.synth))


def coordinate(trainer: PrivateTrainer, session: Session, task: Task) -> Result:
    """Count columns and take all steps; one party alone is the central case.

    Raises BudgetError where the steps cannot be paid beside the noisy histogram, InputError where
    training diverged, and WireError, naming the party, for what is no answer.
    """
    from siloweave.privacy.gradients import flat_size

    setup = task.setup
    synth: Any = setup.synth
    task.progress("counting", 0.0)
    encoder, event = Encoder(setup.schema, synth.finest_bins), counts_event(setup)
    keys = exchange_keys(session, encoder.domain)
    alone = len(session.roster) == 1 and setup.budget.relation is Relation.REPLACE_ONE
    seen = noisy_histogram(session, keys, encoder, event, task.seed, public=alone)
    features, (steps, batch) = seen.features(trainer.numeric), trainer.length(synth)
    rate = min(1.0, batch / seen.rows)
    training = trainer.made(synth, features, seen.shares(features))
    task.progress("finding the noise that fits the budget", 0.0)
    nets = [training.task(training.empty(stage))[0] for stage in training.stages]
    noise = plan_steps(
        setup.budget, rate=rate, steps=steps, shares=event.shares, tolerated=event.tolerated,
        dimension=max(map(flat_size, nets)), others=[event], order=training_order(trainer, setup),
    )  # fmt: skip
    begin = BeginTraining(features.to_json(), noise.levels, rate)
    vanish = session.plan(session.roster).vanish
    session.ask_present(dict.fromkeys(session.roster, begin), vanish)
    ask = partial(Step, keys, noise.share_sigma, event.tolerated)
    unit = synth.clip / noise.levels / (rate * seen.rows)
    drawn = training.keys(jax_key(fold_in(fold_in(task.seed, "train"), "model")))
    net = training.finish(_steps(session, task, training, drawn, ask, unit), seen.rows, drawn.end)
    if trains_unpaid(synth):
        net = _with_diffusion(session, net, training, task.seed)
    target = getattr(synth, "target", None)
    model = FeatureModel(trainer.model(net), features, seen.one_way, target)
    facts = {"noise_multiplier": noise.multiplier, "rate": rate}
    facts |= {"share_sigma": noise.share_sigma, "levels": noise.levels}
    return Result(model, seen.rows, facts)


def _steps(
    session: Session, task: Task, training: Stepwise, keys: Any, ask: Callable[..., Step],
    unit: float,
) -> Any:  # fmt: skip
    """All steps; `unit` is what one integer of a sum is worth in the mean gradient."""
    import jax

    from siloweave.models.rounds import packed
    from siloweave.models.stepwise import check_finite
    from siloweave.privacy.gradients import flat_size, unflattened

    state = training.start(keys.initial)
    for number in range(training.steps):
        task.progress(f"step {number + 1:,} of {training.steps:,}", number / training.steps)
        key = jax.random.fold_in(keys.steps, number)
        message = training.message(state, key)
        net, _ = training.task(message)
        asked = ask(number, packed(message))
        (noisy,), parties = noisy_sums(session, asked, [(flat_size(net),)])
        mean = noisy * (unit * len(asked.keys) / len(parties))  # the others' rows stand for theirs
        state = training.moved(state, unflattened(mean, net), key)
        check_finite(state, number + 1)
    return state


def _with_diffusion(session: Session, coder: Any, training: Any, seed: int) -> Any:
    """A latent diffusion of the trained autoencoder, and of what the party trains on its codes."""
    from siloweave.models.latent import LatentDiffusion, LatentDistribution

    shares = tuple(training.shares) if coder.label and training.shares is not None else None
    (reply,) = session.ask(TrainDiffusion(saved_bytes(coder), shares, seed))
    found = from_bytes(reply.diffusion.value, LatentDistribution.load)
    return LatentDiffusion(coder, found, training.settings)
