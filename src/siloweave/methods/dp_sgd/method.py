"""Networks trained under a budget, by the owner of all rows or by parties with different rows.

DP-SGD (Abadi, Chu, Goodfellow, McMahan, Mironov, Talwar & Zhang 2016, "Deep learning with
differential privacy") whose sums no single party sees (Bonawitz et al. 2017) and whose noise the
parties add in shares (Kairouz, Liu & Steinke 2021, "The distributed discrete Gaussian mechanism for
federated learning with secure aggregation").

1. One masked sum counts every column on public bins, and the rows (protocols/histograms.py).
   Encoders, the distribution of the label, the sampling rate and the divisor of gradients follow.
2. In every step the coordinator sends the weights, and whatever else a row's loss needs; each party
   draws its own units, rows or persons, by coins of its own, clips every unit's gradient, rounds
   the sum to integers, adds its share of the noise and masks; the coordinator unmasks the sum and
   moves the weights.

What is trained is a `Stepwise` (models/stepwise.py): it states what a step's message carries, what
a row's loss is given that message, and how the weights move. Of a diffusion the message is the
network. Of a GAN it is the critic and a pool of generated rows (Xie, Lin, Wang, Wang & Zhou 2018,
"Differentially private generative adversarial network": only the critic meets real rows); the
generator moves at the coordinator, by the critic and the paid counts, which is post-processing.

One party alone is the central case: its masks are empty, it adds all the noise itself, and what the
coordinator sees is its noisy sums. Zhu, Tang, Brouwer, Perez, van Dijk & Chen 2024, "Quantifying
and Mitigating Privacy Risks for Tabular Generative Models", name these three: DP-CTGAN, DP-TabDDPM
and DP-TLDM; the models are those of Xu et al. 2019 (CTGAN) and Kotelnikov et al. 2023 (TabDDPM).
Over several parties train the GAN of Zhao, Birke, Kunar & Chen 2021, "Fed-TGAN", TabDDPM, and our
diffusion of sphere codes.

**Guarantee** (dp): the unit of each party's budget, rows by add/remove or replace-one, or persons
with at most k rows by add/remove, towards the coordinator together with at most `tolerated`
parties, and everyone who sees weights or rows of the model. A party encodes its rows by its own
declared facts, or not at all. A unit pays for one noisy histogram and for every step, each entered
in its party's ledger before noise is drawn. Where units are added or removed all are read at one
Renyi order, fixed beforehand (privacy/shared_steps.py).
A person (McMahan, Ramage, Talwar & Zhang 2018, "Learning differentially private recurrent language
models", for whole persons as examples) has one coin a step, which decides about all her rows, and
the sum of their gradients is clipped once. So D and D without her differ in a step by one vector of
at most one clip, which is there with the probability of her coin: that is the event of a step of
rows, with the same sensitivity, whatever k is, and its sampling rate is that of persons. What a
row's loss takes besides the message is that row and its key; a GAN's condition is one of the row's
own categories, and a label the row's own, so no row of hers reaches another's gradient. k is paid
in the histogram: in each of its tables, and in the number of rows, all her rows may be in one cell,
so it moves k times as far. `batch` is the expected number of *rows* of a step. The rate is batch /
rows, with the noisy number of rows: a person drawn at this rate brings all her rows, so as many
rows come as are asked for, however they are spread over persons. No number of persons is counted or
paid for, and a step's memory and time are those of rows. A party reads unit and k from its own
budget, and refuses a table in which somebody has more rows before anything is paid. Her rows at
another party are another unit there: the claim holds for those at one party
(`Budget.parties_per_unit`).
Where a row is replaced they are read at the best order, and the number of rows costs nothing; of
one party alone it is public. The party computes the sensitivity itself from how it clips and
rounds, and refuses what it cannot pay for, hold or finish. Who is drawn, what a row's loss draws,
where in its bin a value is encoded, and the noise come from the party's own entropy and stay there,
so that sampling amplifies towards all others; it does not towards someone who reads the party's
memory. No loss leaves the party or steers anything: whether training diverged is seen by the
weights alone, which follow from noisy sums. Every noisy number is a whole number of units, at
whatever coordinate; nothing of the noise is a float. Assumed public: schema, bins, settings,
roster, and how long a party takes. The coordinator is taken to follow the protocol; whatever it
asks, weights and generated rows of any kind, a unit's gradient is clipped and a party's ledger pays
for what it does. At the best order that holds for rate and noise that follow the plan; chosen by
earlier answers, as a lying coordinator may, they could make delta as many times as large as there
are orders, 76. Per-step noise holds with `tolerated` shares known, and with those of `dropouts`
parties missing, which may vanish (federation/dropouts.py); one more that does not answer stops the
run. Noise is drawn within `mechanisms.TV_PER_DRAW` of its distribution, as everywhere. That a row's
gradient is the same at any place of a batch but for its last bits is taken from the compiler (seen
on CPUs); `shared_steps.moved` leaves a 1024th of the clip for them. What the budget cannot pay for
is refused before anything is read; the noise is the least for which ledgers read at most the
budget.

Departures from Zhu et al.: gradients are clipped per unit and not per batch (which bounds nothing
by itself: one row swings a clipped mean by two clips, whatever the batch), one clip holds for
encoder and decoder together, both stages of DP-TLDM are paid, batches are Poisson samples, noise is
whole numbers on a grid, and the price is read from the ledger with the accountant of its events
instead of a limit theorem. `DPTLDM(scope="autoencoder")` is the paper's scope: its second stage
reads every row without noise, which is no post-processing, so its guarantee is `partial`, its
epsilon infinite, and its ledger holds an event that says so.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import TYPE_CHECKING, Any, ClassVar, Literal

from siloweave.core import views
from siloweave.core.method import (
    COORDINATOR_TRAINING,
    Forecast,
    Guarantee,
    Method,
    QuestionCounts,
    Setup,
)
from siloweave.core.model import FeatureModel
from siloweave.core.run import Synthesizer
from siloweave.core.settings import part_of
from siloweave.core.views import View, Views
from siloweave.errors import InputError, count_of
from siloweave.methods.dp_sgd import coordinator, messages, party
from siloweave.methods.dp_sgd.party import PrivateTrainer
from siloweave.methods.dp_sgd.settings import PrivateRowsSettings, PrivateSettings
from siloweave.models.settings import (
    AutoencoderSettings,
    DiffusionSettings,
    LatentSettings,
    PrivateGANSettings,
    SphereCodeSettings,
)
from siloweave.privacy.accountants import most_of_several
from siloweave.privacy.budget import Relation
from siloweave.protocols import histograms, networks, secure_sums
from siloweave.tables.features import Features

if TYPE_CHECKING:
    from siloweave.models.stepwise import Stepwise

_ZHU = (
    "Zhu, Tang, Brouwer, Perez, van Dijk & Chen 2024, Quantifying and Mitigating Privacy Risks for "
    "Tabular Generative Models"
)
_CENTRAL = (
    "Each row, from everyone who sees the model or the synthetic table: the number of rows, the "
    "counts of all columns and every training step are paid for. The schema is public."
)
_PARTIAL = (
    "The autoencoder only: the number of rows, the counts of all columns and its steps are paid "
    "for. The diffusion is trained on encoded rows without noise and may reproduce them, so no "
    "finite epsilon holds for what is released."
)
_ROWS = (
    "Each row, from the coordinator with the help of up to {}, and everyone who sees the "
    "model or the synthetic table: the counts of all columns and every training step are paid for; "
    "only masked, noisy sums leave a party. The schema is public."
)
_SUMS = (
    "noisy counts of every column and of the rows, and noisy sums of clipped gradients"
)


# Records


def _central_guarantee(instead: str, synth: PrivateSettings) -> Guarantee:
    """Return the guarantee of a run over one party's rows."""
    if party.trains_unpaid(synth):
        return Guarantee("partial", _PARTIAL, instead=instead)
    return Guarantee("dp", _CENTRAL, instead=instead)


def _rows_guarantee(instead: str, synth: PrivateRowsSettings) -> Guarantee:
    """Return the guarantee of a run over several parties' rows."""
    helpers = count_of(synth.tolerated, "party", "parties")
    return Guarantee("dp", _ROWS.format(helpers), instead=instead)


def _central_views(synth: PrivateSettings) -> Views:
    """Return the lines of who sees what in a run over one party's rows."""
    model = f"{_SUMS}; the model and the synthetic table"
    noised = View("readers", model, views.NOISE, ("Counts.sums",))
    if not party.trains_unpaid(synth):
        return (views.CURATOR, noised)
    diffusion = "the diffusion, and what it repeats of encoded rows"
    bare = View(
        "readers",
        diffusion,
        views.BARE_READERS.protected_by,
        ("TrainedDiffusion.diffusion",),
    )
    return (views.CURATOR, noised, bare)


def _rows_views(sent: str, synth: PrivateRowsSettings) -> Views:
    """Return the lines of who sees what, where `sent` goes to every party in each step."""
    received = f"how columns are encoded, and in every step {sent}"
    return (
        views.OWN_ROWS,
        views.masked_sums(
            synth.tolerated, "counts and of clipped gradients", dropouts=synth.dropouts
        ),
        View(views.OTHERS, received, views.OTHERS_NOISE, ("BeginTraining", "Step")),
        *views.openings(synth.dropouts),
        views.READERS,
    )


def _forecast(trainer: PrivateTrainer, setup: Setup, rows: int) -> Forecast:
    """Forecast a run, in which networks travel both ways at every step."""
    synth = setup.synth
    steps, _ = trainer.length(synth)
    # As in the coordinator: the number of rows is public, and asked for.
    is_public = len(setup.roster) == 1 and setup.budget.relation is Relation.REPLACE_ONE
    questions: QuestionCounts = {
        secure_sums.KeyRequest: 1,
        histograms.CountColumns: 1,
        histograms.CountRows: int(is_public),
        messages.BeginTraining: 1,
        messages.Step: steps,
        messages.TrainDiffusion: int(party.trains_unpaid(synth)),
    }
    forecast = networks.training_forecast(
        setup, rows, synth.settings(), questions, lambda weights, width: 2 * 4 * weights * steps,
        numeric=trainer.numeric, private=True, bounded=False,
    )  # fmt: skip

    # A person with rows at several parties is charged by each of their ledgers.
    together = min(setup.budget.parties_per_unit, len(setup.roster))
    if together > 1 and setup.budget.private:
        epsilon = _at_parties(trainer, setup, together)
        forecast = replace(forecast, epsilon_at_parties=epsilon)
    return secure_sums.with_dropouts(forecast, setup, len(setup.roster))


def _at_parties(trainer: PrivateTrainer, setup: Setup, together: int) -> float:
    """Bound the epsilon of a unit with rows at `together` parties, by the ledgers' one order."""
    order = coordinator.training_order(trainer, setup)
    # Rows are replaced one by one alone, and such a unit is at one party.
    assert order is not None
    return most_of_several(setup.budget.epsilon, together, setup.budget.delta, order)


def _method(
    trainer: PrivateTrainer, without_noise: str, *, sent: str = "", **facts: Any
) -> Method:
    """Build the record of a private training.

    Args:
        trainer: What is trained.
        without_noise: Name of the same method without a guarantee.
        sent: What goes to every party in each step, in words; empty where one holds all rows.
        **facts: What differs between such methods, see `Method`.
    """
    split: Literal["central", "rows"] = "central"
    trust: Literal["curator", "secure-sum"] = "curator"
    guarantee: Callable[[str, Any], Guarantee] = _central_guarantee
    visibility: Callable[[Any], Views] = _central_views
    if sent:
        split = "rows"
        trust = "secure-sum"
        guarantee = _rows_guarantee
        visibility = partial(_rows_views, sent)
    return Method(
        split=split,
        trust=trust,
        guarantee=partial(guarantee, f"Or use {without_noise}, which adds none."),
        visibility=visibility,
        prepare=party.party_data,
        facts=partial(coordinator.study_facts, trainer),
        handlers=partial(party.handlers, trainer),
        coordinate=partial(coordinator.coordinate, trainer),
        load=partial(FeatureModel.load, net=trainer.model.load),
        forecast=partial(_forecast, trainer),
        check_schema=networks.check_trainable,
        affordable=partial(coordinator.check_affordable, trainer),
        stores=(COORDINATOR_TRAINING,),
        **facts,
    )


# GANs


def _gan(
    synth: PrivateGANSettings, features: Features, shares: party.Shares | None
) -> Stepwise:
    """Build the private training steps of a GAN."""
    from siloweave.models.private_gan import GANSteps

    return GANSteps(part_of(PrivateGANSettings, synth), features.blocks, shares)


_GAN = PrivateTrainer(_gan, networks.GANModel, "modes")


@dataclass(frozen=True)
class DPCTGAN(Synthesizer, PrivateSettings, PrivateGANSettings):
    """Conditional GAN whose critic is trained privately.

    It takes the settings of `siloweave.models.settings.PrivateGANSettings`, too.

    Args:
        clip, counts_share, finest_bins: See `PrivateSettings`.

    Example:
        >>> DPCTGAN(steps=500, clip=0.5).info.guarantee
        'dp'
    """

    method: ClassVar[Method] = _method(
        _GAN, "CTGAN", name="dp_ctgan", title="DP-CTGAN", family="GAN", paper=_ZHU
    )


@dataclass(frozen=True)
class DPFedTGAN(Synthesizer, PrivateRowsSettings, PrivateGANSettings):
    """CTGAN that parties train together, every step of its critic a noisy masked sum.

    The critic alone meets real rows. Each step's message carries it and a pool of generated rows;
    the generator follows at the coordinator, from the critic and the paid counts. There are no
    weights of parties: the sum counts every row alike.

    It takes the settings of `siloweave.models.settings.PrivateGANSettings`, too.

    Args:
        batch: Expected number of real rows in a critic step, of all parties together.
        clip, counts_share, finest_bins, tolerated, dropouts: See `PrivateRowsSettings`.

    Example:
        >>> import siloweave as sw
        >>> from siloweave.datasets import adult, adult_schema
        >>> parties = sw.split_rows(adult().take(range(300)), 3, seed=0)
        >>> tiny = DPFedTGAN(generator=(8,), critic=(8,), steps=2, batch=100, pool=50)
        >>> fitted = tiny.fit(parties, adult_schema(), budget=sw.Budget(epsilon=5.0, delta=1e-5))
        >>> fitted.epsilon <= 5.0, fitted.info.guarantee
        (True, 'dp')
    """

    steps: int = 400
    batch: int = 2048
    pool: int | None = 512
    ratio: int = 2
    average: float = 0.95

    method: ClassVar[Method] = _method(
        _GAN,
        "FedTGAN",
        name="dp_fed_tgan",
        title="DPFedTGAN",
        family="GAN",
        paper="Zhao, Birke, Kunar & Chen 2021, Fed-TGAN, arXiv, its critic by DP-SGD (Abadi et al. "
        "2016; Xie et al. 2018) over masked sums (Kairouz, Liu & Steinke 2021)",
        sent="the critic and a pool of generated rows",
    )


# TabDDPM


def label_shares(
    features: Features, target: str | None, shares: party.Shares | None
) -> Sequence[float] | None:
    """Return the share of each class of a target by the paid counts; None if it is unknown."""
    starts = [block.start for block in features.blocks if block.column == target]
    return shares[starts[0]] if shares and starts else None


def _refuse_unpaid(settings: DiffusionSettings, where: str = "") -> None:
    """Refuse a diffusion that would read the range of rows, or count how often it saw them."""
    if settings.clip_range is None:
        raise InputError(
            f"{where}clip_range=None would read the range of the rows, which nobody has paid for; "
            "give a number, such as 4.0"
        )
    for name in ("passes", "work"):
        value = getattr(settings, name)
        if value is not None:
            raise InputError(
                f"{where}{name}={value!r} does nothing here: a private training takes all steps "
                "that are paid for; leave it at None"
            )
    if settings.matched:
        raise InputError(
            f"{where}matched={settings.matched!r} would read the mean and spread of the rows, "
            "which nobody has paid for; leave it at 0"
        )
    if settings.self_conditioned:
        raise InputError(
            f"{where}self_conditioned=True shows the network its estimate of every second row of a "
            "batch, and a private step takes each row by itself: leave it at False"
        )
    for name in ("minutes", "watched"):
        value = getattr(settings, name)
        if value:
            raise InputError(
                f"{where}{name}={value!r} would end a private training by what nobody has paid "
                "for: all steps that are paid for are taken; leave it out"
            )


def _diffusion(
    synth: DPTabDDPM | DPFedTabDDPM, features: Features, shares: party.Shares | None
) -> Stepwise:
    """Build the private training steps of a diffusion."""
    from siloweave.models.rounds import DiffusionLearner
    from siloweave.models.stepwise import DiffusionSteps

    learner = DiffusionLearner(
        part_of(DiffusionSettings, synth), features.blocks, synth.target
    )
    return DiffusionSteps(learner, label_shares(features, synth.target, shares))


_DIFFUSION = PrivateTrainer(_diffusion, networks.DiffusionModel)


@dataclass(frozen=True)
class DPTabDDPM(Synthesizer, PrivateSettings, DiffusionSettings):
    """Diffusion of numbers and choices, every step private.

    It takes the settings of `siloweave.models.settings.DiffusionSettings`, too, with smaller
    networks than without privacy (decision 0019).

    Args:
        passes: Refused: a private fit takes all `steps`.
        target: A column of categories that the network is conditioned on instead of diffusing it;
            its distribution comes from the paid counts.
        clip, counts_share, finest_bins: See `PrivateSettings`.

    Example:
        >>> DPTabDDPM(target="income", steps=500).info.guarantee
        'dp'
    """

    # Chosen on rows of Adult split again: decision 0019.
    hidden: tuple[int, ...] = (128,)
    embed: int = 64
    timesteps: int = 100
    steps: int = 1_000
    passes: float | None = None
    batch: int = 1024
    learning_rate: float = 4e-3
    weight_decay: float = 0.0
    decay: float = 0.995
    clip_range: float | None = 4.0
    eta: float = 0.0  # decision 0022
    target: str | None = None

    method: ClassVar[Method] = _method(
        _DIFFUSION,
        "TabDDPM",
        name="dp_tabddpm",
        title="DP-TabDDPM",
        family="diffusion",
        paper=_ZHU,
    )

    def _check_settings(self) -> None:
        """Refuse a diffusion that would read rows which nobody has paid for."""
        _refuse_unpaid(self)


_SMALL = DiffusionSettings(
    hidden=(128, 128), embed=64, timesteps=100, steps=400, passes=None, batch=4096,
    learning_rate=8e-3, weight_decay=0.0, decay=0.99, clip_range=4.0, eta=0.0,
)  # fmt: skip
"""Of a diffusion that parties train together under a budget; decisions 0022 and 0023."""


@dataclass(frozen=True)
class DPFedTabDDPM(Synthesizer, PrivateRowsSettings, DiffusionSettings):
    """TabDDPM that parties train together, every step a noisy masked sum.

    It takes the settings of `siloweave.models.settings.DiffusionSettings`, too, with smaller
    networks than without privacy.

    Args:
        batch: Expected number of rows in a step, of all parties together.
        passes, target: See `DPTabDDPM`.
        clip, counts_share, finest_bins, tolerated, dropouts: See `PrivateRowsSettings`.

    Example:
        >>> DPFedTabDDPM(dropouts=1).info.guarantee
        'dp'
    """

    hidden: tuple[int, ...] = _SMALL.hidden
    embed: int = _SMALL.embed
    timesteps: int = _SMALL.timesteps
    steps: int = _SMALL.steps
    passes: float | None = _SMALL.passes
    batch: int = _SMALL.batch
    learning_rate: float = _SMALL.learning_rate
    weight_decay: float = _SMALL.weight_decay
    decay: float = _SMALL.decay
    clip_range: float | None = _SMALL.clip_range
    eta: float = _SMALL.eta
    target: str | None = None

    method: ClassVar[Method] = _method(
        _DIFFUSION,
        "FedTabDDPM",
        name="dp_fed_tabddpm",
        title="DPFedTabDDPM",
        family="diffusion",
        paper="Kotelnikov, Baranchuk, Rubachev & Babenko 2023, TabDDPM, ICML, by DP-SGD (Abadi et "
        "al. 2016) over masked sums (Kairouz, Liu & Steinke 2021)",
        sent="the network",
    )

    def _check_settings(self) -> None:
        """Refuse a diffusion that would read rows which nobody has paid for."""
        _refuse_unpaid(self)


# Latent diffusions


def _latent(synth: DPTLDM, features: Features, shares: party.Shares | None) -> Stepwise:
    """Build the private steps of an autoencoder, and of its diffusion where these are paid."""
    from siloweave.models.stepwise import LatentSteps

    settings = LatentSettings(
        synth.autoencoder, synth.diffusion, scaled=False, numbers=synth.numbers
    )
    target_shares = label_shares(features, synth.target, shares)
    has_paid_diffusion = not party.trains_unpaid(synth)
    return LatentSteps(
        settings, features.blocks, synth.target, target_shares, has_paid_diffusion
    )


def _latent_length(synth: DPTLDM) -> tuple[int, int]:
    """Return the number of paid steps, and the number of rows expected in each."""
    paid_steps = synth.autoencoder.steps
    if not party.trains_unpaid(synth):
        paid_steps += synth.diffusion.steps
    return paid_steps, synth.autoencoder.batch


@dataclass(frozen=True)
class DPTLDM(Synthesizer, PrivateSettings):
    """Latent diffusion: an autoencoder, then a diffusion of its latent rows.

    With ``scope="end-to-end"`` both are trained privately, their steps from one budget, with one
    noise multiplier. With ``scope="autoencoder"``, the paper's, only the first is: no finite
    epsilon follows, and the ledger says so.

    Args:
        autoencoder: Settings of the autoencoder, as an object or as a mapping of what differs from
            the default. It has the `batch` of the diffusion, and `steps` of its own.
        diffusion: Settings of the diffusion, alike.
        numbers: What is read from the Gaussian heads: their "mean" or a "draw".
        target: A column of categories that the diffusion is conditioned on.
        clip: Largest norm of a unit's gradient, over encoder and decoder together.
        counts_share, finest_bins: See `CountsSettings`.
        scope: What is private: "end-to-end" or "autoencoder".

    Example:
        >>> DPTLDM().info.guarantee, DPTLDM(scope="autoencoder").info.guarantee
        ('dp', 'partial')
    """

    autoencoder: AutoencoderSettings = AutoencoderSettings(
        hidden=(256,), divergence=0.01, steps=500, batch=1024, learning_rate=3e-3,
        weight_decay=0.0, decay=0.99,
    )  # fmt: skip
    diffusion: DiffusionSettings = DiffusionSettings(
        hidden=(128,), embed=64, timesteps=100, steps=1_000, passes=None, batch=1024,
        learning_rate=3e-3, weight_decay=0.0, decay=0.995, clip_range=4.0, eta=0.0,
    )  # fmt: skip
    numbers: str = "mean"
    target: str | None = None
    scope: Literal["end-to-end", "autoencoder"] = "end-to-end"

    method: ClassVar[Method] = _method(
        PrivateTrainer(_latent, networks.LatentModel, length=_latent_length),
        "TLDM",
        name="dp_tldm",
        title="DP-TLDM",
        family="latent diffusion",
        paper=_ZHU,
    )

    def _check_settings(self) -> None:
        """Raise InputError for settings of the two stages that contradict each other."""
        LatentSettings(numbers=self.numbers)
        _refuse_unpaid(self.diffusion, "diffusion.")
        if not self.autoencoder.divergence > 0:
            raise InputError(
                f"autoencoder.divergence={self.autoencoder.divergence} must be above 0: without it "
                "latents have no scale of their own, and theirs must not be taken from the rows"
            )
        if self.autoencoder.batch != self.diffusion.batch:
            raise InputError(
                f"autoencoder.batch={self.autoencoder.batch} and diffusion.batch="
                f"{self.diffusion.batch} must be the same: all steps are paid as one"
            )


def _sphere_codes(
    synth: DPFedPointDiff, features: Features, shares: party.Shares | None
) -> Stepwise:
    """Build the private training steps of a diffusion of sphere codes."""
    from siloweave.models.rounds import SphereCodeLearner
    from siloweave.models.stepwise import DiffusionSteps

    settings = LatentSettings(synth.autoencoder, synth.diffusion, scaled=False)
    learner = SphereCodeLearner.of(settings, features.blocks, synth.target)
    return DiffusionSteps(learner, label_shares(features, synth.target, shares))


@dataclass(frozen=True)
class DPFedPointDiff(Synthesizer, PrivateRowsSettings):
    """Latent diffusion whose choices are sphere codes, every step a noisy masked sum.

    Args:
        autoencoder: Settings of the sphere codes, as an object or as a mapping: ``per_bit`` only.
        diffusion: Settings of the diffusion, as an object or as a mapping of what differs from the
            default.
        target: A column of categories that the diffusion is conditioned on; it is not coded.
        clip, counts_share, finest_bins, tolerated, dropouts: See `PrivateRowsSettings`.

    Example:
        >>> import siloweave as sw
        >>> from siloweave.datasets import adult, adult_schema
        >>> parties = sw.split_rows(adult().take(range(300)), 3, seed=0)
        >>> tiny = DPFedPointDiff(diffusion={"hidden": [8], "embed": 8, "steps": 2, "batch": 100})
        >>> fitted = tiny.fit(parties, adult_schema(), budget=sw.Budget(epsilon=5.0, delta=1e-5))
        >>> fitted.epsilon <= 5.0, fitted.info.guarantee
        (True, 'dp')
    """

    autoencoder: SphereCodeSettings = SphereCodeSettings(per_bit=1.0)
    diffusion: DiffusionSettings = _SMALL
    target: str | None = None

    method: ClassVar[Method] = _method(
        PrivateTrainer(
            _sphere_codes,
            networks.LatentModel,
            length=lambda synth: (synth.diffusion.steps, synth.diffusion.batch),
        ),
        "FedPointDiff",
        name="dp_fed_point_diff",
        title="DPFedPointDiff",
        family="latent diffusion",
        paper="Our own: diffusion of our sphere codes, by DP-SGD (Abadi et al. 2016) over masked "
        "sums (Kairouz, Liu & Steinke 2021)",
        sent="the network",
    )

    def _check_settings(self) -> None:
        """Refuse a diffusion that would read rows which nobody has paid for."""
        _refuse_unpaid(self.diffusion, "diffusion.")
