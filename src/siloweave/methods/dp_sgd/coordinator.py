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
from siloweave.methods.dp_sgd import messages
from siloweave.methods.dp_sgd.party import PrivateTrainer, trains_unpaid
from siloweave.methods.dp_sgd.settings import PrivateSettings
from siloweave.privacy.budget import Relation, rho_for
from siloweave.privacy.events import SharedGaussian
from siloweave.privacy.shared_steps import order_for, plan_steps
from siloweave.protocols import histograms, networks, secure_sums
from siloweave.protocols.private_steps import refuse_what_learns_nothing
from siloweave.tables.codes import Encoder
from siloweave.tables.keys import fold_in

if TYPE_CHECKING:
    from siloweave.models.stepwise import Stepwise


def counts_event(setup: Setup) -> SharedGaussian:
    """Return the event of the noisy histogram of all columns, as a share of the run's budget."""
    synth = setup.settings_as(PrivateSettings)
    encoder = Encoder(setup.schema, synth.finest_bins)
    rho = synth.counts_share * rho_for(setup.budget)
    # A method for one party's rows has neither setting.
    tolerated = getattr(synth, "tolerated", 0)
    dropouts = getattr(synth, "dropouts", 0)
    parties = len(setup.roster)
    return histograms.histogram_event(
        encoder, setup.budget.neighbours, rho, parties, tolerated, dropouts
    )


def training_order(trainer: PrivateTrainer, setup: Setup) -> int | None:
    """Return the Renyi order at which a run's ledgers are read; see privacy/shared_steps.py."""
    steps, _ = trainer.length(setup.synth)
    return order_for(setup.budget, steps=steps, others=[counts_event(setup)])


def study_facts(trainer: PrivateTrainer, setup: Setup) -> dict[str, Any]:
    """Return the facts by which a party checks requests: the order, and the noise on counts."""
    sigma = counts_event(setup).share_sigma
    return {"order": training_order(trainer, setup), "counts_sigma": sigma}


def check_affordable(trainer: PrivateTrainer, setup: Setup) -> None:
    """Refuse a budget whose noise in a step would hide the clipped sum of a whole batch."""
    steps_rho = rho_for(setup.budget) - counts_event(setup).rho
    steps, batch = trainer.length(setup.synth)
    refuse_what_learns_nothing(setup.budget, steps_rho, steps, batch)


def coordinate(trainer: PrivateTrainer, session: Session, task: Task) -> Result:
    """Count the columns and take all steps; with one party, that is the central method.

    Raises:
        BudgetError: The steps cannot be paid beside the noisy histogram.
        InputError: Training diverged.
        WireError: Naming the party, for what is no answer.
    """
    from siloweave.privacy.gradients import flat_size

    setup = task.setup
    synth = setup.settings_as(PrivateSettings)

    # A noisy histogram of each column: encoders follow from it, and nothing else reads rows
    # outside of a paid step.
    task.progress("counting", 0.0)
    encoder = Encoder(setup.schema, synth.finest_bins)
    event = counts_event(setup)
    keys = secure_sums.exchange_keys(session, encoder.domain)
    # Where a row is replaced, the number of one party's rows is the same at all neighbours.
    is_public = (
        len(session.roster) == 1 and setup.budget.relation is Relation.REPLACE_ONE
    )
    histogram = histograms.noisy_histogram(
        session, keys, encoder, event, task.seed, public=is_public
    )
    features = histogram.features(trainer.numeric)

    # The noise of a step: the least with which all steps keep to the budget.
    task.progress("finding the noise that fits the budget", 0.0)
    steps, batch = trainer.length(setup.synth)
    rate = min(1.0, batch / histogram.rows)
    training = trainer.build(setup.synth, features, histogram.shares(features))
    sizes = []
    for stage in training.stages:
        net, _ = training.task(training.empty(stage))
        sizes.append(flat_size(net))
    noise = plan_steps(
        setup.budget, rate=rate, steps=steps, shares=event.shares, tolerated=event.tolerated,
        dimension=max(sizes), others=[event], order=training_order(trainer, setup),
    )  # fmt: skip

    begin = messages.BeginTraining(features.to_json(), noise.levels, rate)
    vanish = session.plan(session.roster).vanish
    session.ask_present(dict.fromkeys(session.roster, begin), vanish)

    ask = partial(messages.Step, keys, noise.share_sigma, event.tolerated)
    # From an integer of the sum to a clipped gradient, and by the expected batch to the mean.
    unit = synth.clip / noise.levels / (rate * histogram.rows)
    training_keys = training.keys(
        networks.jax_key(fold_in(fold_in(task.seed, "train"), "model"))
    )
    state = _steps(session, task, training, training_keys, ask, unit)
    trained = training.finish(state, histogram.rows, training_keys.end)
    if trains_unpaid(setup.synth):
        trained = _with_diffusion(session, trained, training, task.seed)

    net = trainer.model(trained)
    model = FeatureModel(net, features, histogram.one_way, setup.target)
    facts = {
        "noise_multiplier": noise.multiplier,
        "rate": rate,
        "share_sigma": noise.share_sigma,
        "levels": noise.levels,
    }
    return Result(model, histogram.rows, facts)


def _steps(
    session: Session, task: Task, training: Stepwise, keys: Any, ask: Callable[..., messages.Step],
    unit: float,
) -> Any:  # fmt: skip
    """Take all steps, and return the last state of the training.

    `unit` is the worth of one integer of a sum in the mean gradient.
    """
    import jax

    from siloweave.models.rounds import packed
    from siloweave.models.stepwise import check_finite
    from siloweave.privacy.gradients import flat_size, unflattened

    state = training.start(keys.initial)
    for number in range(training.steps):
        task.progress(
            f"step {number + 1:,} of {training.steps:,}", number / training.steps
        )
        key = jax.random.fold_in(keys.steps, number)
        message = training.message(state, key)
        net, _ = training.task(message)
        request = ask(number, packed(message))
        (noisy_sum,), parties = secure_sums.noisy_sums(
            session, request, [(flat_size(net),)]
        )
        # Where a party vanished, the others' rows stand for its rows.
        mean = noisy_sum * (unit * len(request.keys) / len(parties))
        state = training.moved(state, unflattened(mean, net), key)
        check_finite(state, number + 1)
    return state


def _with_diffusion(session: Session, coder: Any, training: Any, seed: int) -> Any:
    """Have the party train a diffusion on its codes, and add it to the trained autoencoder."""
    from siloweave.models.latent import LatentDiffusion, LatentDistribution

    shares = None
    if coder.label and training.shares is not None:
        shares = tuple(training.shares)
    (reply,) = session.ask(
        messages.TrainDiffusion(networks.saved_bytes(coder), shares, seed)
    )
    distribution = networks.from_bytes(reply.diffusion.value, LatentDistribution.load)
    return LatentDiffusion(coder, distribution, training.settings)
