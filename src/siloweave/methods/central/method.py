"""Generators that the owner of all rows trains without a guarantee: copula, GANs, diffusions.

Patki, Wedge & Veeramachaneni 2016, "The Synthetic Data Vault" (Gaussian copula; CopulaGAN is in its
releases); Xu et al. 2019, "Modeling tabular data using conditional GAN" (CTGAN); Yoon, Drumright &
van der Schaar 2020, "Anonymization through data synthesis using GANs" (ADS-GAN); Zhao et al. 2021,
"CTAB-GAN"; Kotelnikov et al. 2023, "TabDDPM"; Shankar et al. 2024, "SiloFuse" (its centralised
baselines LatentDiff and E2E); Zhu et al. 2024, "DP-TLDM" (its model without privacy). All run as
one-party runs of the same federation, of one message: the coordinator asks for a trained model, and
the owner encodes, trains and releases. So both sides stand here.

**Guarantee**: none. The owner trains the generator of its own study, once a run, and releases the
weights as they were trained; its ledger says so with an event of infinite cost. Encoders, bounds
and frequencies are taken from the rows as well. That holds for ADS-GAN too: it pays its generator
for distance from real rows, which bounds nothing.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar, Literal, cast

from siloweave.core import views
from siloweave.core.conditional import Generator
from siloweave.core.method import (
    PARTY_TRAINING,
    REPLIES,
    Forecast,
    Guarantee,
    Method,
    MethodSettings,
    Result,
    Setup,
    Task,
    target_of,
)
from siloweave.core.model import FeatureModel
from siloweave.core.party import OwnerData
from siloweave.core.run import Synthesizer
from siloweave.core.settings import part_of
from siloweave.core.views import View
from siloweave.federation.session import Session
from siloweave.federation.site import Handlers, Site
from siloweave.methods.central import messages
from siloweave.models.settings import (
    POINTS_DIFFUSION,
    AutoencoderSettings,
    CopulaSettings,
    CTABSettings,
    DiffusionSettings,
    Family,
    GANSettings,
    LatentSettings,
    SphereCodeSettings,
)
from siloweave.privacy.events import NonPrivate
from siloweave.progress import Progress, silent
from siloweave.protocols import networks
from siloweave.tables.arrays import Floats, Matrix
from siloweave.tables.features import Features, OneWay
from siloweave.tables.keys import Key, fold_in

if TYPE_CHECKING:
    from siloweave.models.copula import ScoreModes

_ENCODED = 0.05  # share of the progress bar before training
_VIEWS = (
    views.CURATOR,
    View(
        "readers",
        "the model, exact shares of every column, the number of rows, and the synthetic table",
        views.BARE_READERS.protected_by,
        (
            "TrainedModel.model",
            "TrainedModel.features",
            "TrainedModel.one_way",
            "TrainedModel.rows",
        ),
    ),
)
_NOTHING = (
    "Nothing: the model is trained on the rows without noise and may reproduce them."
)
_INSTEAD = "Or use AIM, which keeps one."
_SILOFUSE = (
    "Shankar, Brouwer, Hai & Chen 2024, SiloFuse: cross-silo synthetic data generation with latent "
    "tabular diffusion models, ICDE"
)


# Both sides


@dataclass(frozen=True)
class Training:
    """The inputs of a training: the vectors, their features, and the settings.

    Attributes:
        synth: The settings.
        X: Feature vectors, one per row.
        features: How they were made.
        key: Everything random.
        progress: Called with a text and the share of the training that is done.
        store: A folder for checkpoints of this training alone; None for no checkpoints.
    """

    synth: MethodSettings
    X: Matrix
    features: Features
    key: Key
    progress: Progress = silent
    store: Path | None = None

    @property
    def target(self) -> str | None:
        """The column that the model is to draw on demand; None, also for a method without one."""
        return target_of(self.synth)

    def fitted(self, fit: Callable[..., Any], settings: type, **more: Any) -> Any:
        """Call a model's `fit` on the vectors, with those settings that `settings` has."""
        return fit(
            self.X,
            self.features.blocks,
            part_of(settings, self.synth),
            key=networks.jax_key(self.key),
            progress=self.progress,
            store=self.store,
            **more,
        )


@dataclass(frozen=True)
class OwnerTrainer:
    """The way to train and to read one kind of generator; a network is imported at its use."""

    fit: Callable[[Training], Generator]  # trains on feature vectors
    load: Callable[[Path], Generator]  # reads a model that was saved
    numeric: Any = "quantile"  # what a number becomes, see `Features.fit`
    # Refuses what does not fit.
    check_width: Callable[[Features], None] = lambda features: None


def train(
    synth: MethodSettings,
    trainer: OwnerTrainer,
    request: messages.Train,
    site: Site[OwnerData],
) -> messages.TrainedModel:
    """Encode the rows, train, and release the model, entered in the ledger as without privacy."""
    data = site.rows
    key = fold_in(request.seed, "train")
    title = synth.method.title
    # A training again and again would take time that the study does not.
    site.require_first()
    event = NonPrivate(f"{title} is trained without noise")

    site.progress("learning encoders", 0.0)
    features_key = fold_in(key, "features")
    features = Features.fit(
        data.table, data.schema, numeric=trainer.numeric, key=features_key
    )
    trainer.check_width(features)

    def training_progress(text: str, done: float) -> None:
        site.progress(text, _ENCODED + (1.0 - _ENCODED) * done)

    def trained_weights() -> bytes:
        site.progress("encoding rows", _ENCODED / 2)
        X = features.encode(data.table, key=fold_in(key, "encode"))
        model_key = fold_in(key, "model")
        training = Training(
            synth, X, features, model_key, training_progress, site.checkpoints
        )
        return networks.saved_bytes(trainer.fit(training))

    def column_shares() -> str:
        return OneWay.of(data.table, data.schema).to_json()

    # Each is entered in the ledger before it leaves.
    released_features = site.release(
        event, "encoders of every column", features.to_json
    )
    model = site.release(event, f"weights of {title}", trained_weights)
    one_way = site.release(event, "shares of every column", column_shares)
    rows = site.release(event, "number of rows", lambda: data.table.num_rows)
    return messages.TrainedModel(model, released_features, one_way, rows)


def handlers(trainer: OwnerTrainer, synth: MethodSettings) -> Handlers:
    """Return an owner's handlers for one kind of generator."""
    return {messages.Train: partial(train, synth, trainer)}


def coordinate(trainer: OwnerTrainer, session: Session, task: Task) -> Result:
    """Ask the owner for a trained model, and build the result from it."""
    (reply,) = session.ask(messages.Train(task.seed))
    net = networks.from_bytes(reply.model.value, trainer.load)
    features = Features.from_json(reply.features.value)
    one_way = OneWay.from_json(reply.one_way.value)
    model = FeatureModel(net, features, one_way, task.setup.target)
    return Result(model, reply.rows.value)


def _method(trainer: OwnerTrainer, **facts: Any) -> Method:
    """Build the record of a generator that one owner trains without noise."""

    def traffic_bytes(weights: int, width: int) -> int:
        # Weights of 4 bytes each, and about what encoders and shares take for an entry of a row.
        return int(4 * weights + 300 * width)

    def forecast(setup: Setup, rows: int) -> Forecast:
        settings = setup.synth.settings()
        return networks.training_forecast(
            setup,
            rows,
            settings,
            {messages.Train: 1},
            traffic_bytes,
            numeric=trainer.numeric,
            bounded=not settings.get("joint"),
        )

    return Method(
        split="central",
        trust="curator",
        guarantee=lambda synth: Guarantee("none", _NOTHING, instead=_INSTEAD),
        visibility=lambda synth: _VIEWS,
        prepare=networks.owner_data,
        facts=lambda setup: setup.synth.settings(),
        handlers=partial(handlers, trainer),
        coordinate=partial(coordinate, trainer),
        load=partial(FeatureModel.load, net=trainer.load),
        forecast=forecast,
        check_schema=networks.check_trainable,
        stores=(REPLIES, PARTY_TRAINING),
        party_share=lambda synth: 1.0,
        **facts,
    )


# The Gaussian copula


@dataclass(frozen=True)
class CopulaModel(networks.NetworkModel):
    """A `Copula` as a generator, which keeps the values that it is given."""

    @property
    def takes(self) -> frozenset[str]:
        """The columns that it can be conditioned on: all of them."""
        return frozenset(block.column for block in self.net.blocks)

    def shares(self, column: str) -> tuple[float, ...] | None:
        """Return how frequent each option of a column was in the rows; None if that is unknown."""
        block = networks.single_choices(self.net.blocks).get(column)
        if block is None:
            return None
        shares: Floats | None = self.net.shares(block)
        return None if shares is None else tuple(shares.tolist())

    def sample(self, n: int, *, key: Key, given: Matrix | None = None) -> Matrix:
        """Draw rows; what is free follows the conditional distribution, given what is fixed."""
        rows: Matrix = self.net.sample(n, key=key, given=given)
        return rows

    @classmethod
    def load(cls, path: Path) -> CopulaModel:
        """Read a model from its file."""
        from siloweave.models.copula import Copula

        return cls(Copula.load(path))


def _fit_copula(training: Training) -> Generator:
    """Fit a Gaussian copula to feature vectors."""
    from siloweave.models.copula import Copula

    features = training.features
    settings = part_of(CopulaSettings, training.synth)
    copula = Copula.fit(
        training.X, features.blocks, settings, key=training.key, orders=features.orders
    )
    return CopulaModel(copula)


@dataclass(frozen=True)
class GaussianCopula(Synthesizer, CopulaSettings):
    """Every column's own distribution, joined by correlations of normal scores; quick, and rough.

    Links that rise or fall are kept: rank correlations of numbers, dates and ordered codes. What
    bends (low and high ages that are alike) is lost, and so is a link of three columns that no two
    of them have.

    Args:
        family: Distribution of a numeric column: beta, norm, truncnorm, uniform, gamma or kde.
        families, scores: See `CopulaSettings`.

    Example:
        >>> from siloweave.datasets import adult, adult_schema
        >>> model = GaussianCopula().fit(adult().take(range(300)), adult_schema())
        >>> len(model.sample(5)), model.epsilon
        (5, inf)
    """

    method: ClassVar[Method] = _method(
        OwnerTrainer(_fit_copula, CopulaModel.load, numeric="standard"),
        name="gaussian_copula",
        title="GaussianCopula",
        family="copula",
        paper="Patki, Wedge & Veeramachaneni 2016, The Synthetic Data Vault, DSAA",
    )


# GANs


def _fit_gan(training: Training) -> Generator:
    """Train CTGAN's or ADS-GAN's networks."""
    from siloweave.models.gan import fit_gan

    return networks.GANModel(training.fitted(fit_gan, GANSettings))


@dataclass(frozen=True)
class CTGAN(Synthesizer, GANSettings):
    """Conditional GAN with mode-specific normalisation; its classes are conditions, all alike.

    It takes the settings of `siloweave.models.settings.GANSettings`, with the defaults there.

    Example:
        >>> CTGAN(epochs=100, batch=1000).info.guarantee
        'none'
    """

    method: ClassVar[Method] = _method(
        OwnerTrainer(_fit_gan, networks.GANModel.load, numeric="modes"),
        name="ctgan",
        title="CTGAN",
        family="GAN",
        paper="Xu, Skoularidou, Cuesta-Infante & Veeramachaneni 2019, Modeling tabular data using "
        "conditional GAN, NeurIPS",
    )


@dataclass(frozen=True)
class ADSGAN(Synthesizer, GANSettings):
    """GAN whose generator is also paid for its distance from real rows; that protects nobody.

    As in synthcity each of the generator's layers is joined to its input, here in CTGAN's blocks. A
    plain generator was far worse within the training rows of California housing: resemblance 90.5
    against 96.3, utility 74 against 85.

    It takes the settings of `GANSettings`, with ADS-GAN's networks and rates, and no conditions or
    packs.

    Example:
        >>> ADSGAN(epochs=30).info.guarantee
        'none'
    """

    noise: int = 100
    generator: tuple[int, ...] = (500, 500)
    critic: tuple[int, ...] = (500, 500)
    pac: int = 1
    dropout: float = 0.1
    conditional: bool = False
    rate: float = 1e-3
    betas: tuple[float, float] = (0.5, 0.999)
    decay: float = 1e-3
    clip: float | None = 1.0
    batch: int = 200
    epochs: int = 60
    identifiability: Literal["nearest", "pairs"] | None = "nearest"

    method: ClassVar[Method] = _method(
        OwnerTrainer(_fit_gan, networks.GANModel.load, numeric="modes"),
        name="ads_gan",
        title="ADS-GAN",
        family="GAN",
        paper="Yoon, Drumright & van der Schaar 2020, Anonymization through data synthesis using "
        "generative adversarial networks (ADS-GAN), IEEE JBHI",
    )


def _fit_ctab(training: Training) -> Generator:
    """Train CTAB-GAN's networks, with a classifier of the target."""
    from siloweave.models.ctab import fit_ctab

    gan = training.fitted(fit_ctab, CTABSettings, labels=training.target)
    return networks.GANModel(gan)


def _fits_into_a_square(features: Features) -> None:
    """Refuse vectors that do not fit into a square together with their conditions."""
    from siloweave.models.ctab import entries
    from siloweave.models.gan_networks import side_of

    side_of(entries(features.blocks))


@dataclass(frozen=True)
class CTABGAN(Synthesizer, CTABSettings):
    """Convolutional GAN of rows folded into squares; at most 1,024 entries with all conditions.

    It takes the settings of `siloweave.models.settings.CTABSettings`, too.

    Args:
        target: A column of categories that a classifier must agree on with generated rows.

    Example:
        >>> CTABGAN(target="income", epochs=50).info.guarantee
        'none'
    """

    target: str | None = None

    method: ClassVar[Method] = _method(
        OwnerTrainer(
            _fit_ctab,
            networks.GANModel.load,
            numeric="modes",
            check_width=_fits_into_a_square,
        ),
        name="ctab_gan",
        title="CTAB-GAN",
        family="GAN",
        paper="Zhao, Kunar, Birke & Chen 2021, CTAB-GAN: Effective table data synthesizing, ACML",
    )


@dataclass(frozen=True)
class _ScoredGAN(networks.GANModel):
    """A GAN of normal scores, whose draws go back through the columns' own distributions."""

    scores: ScoreModes

    def sample(self, n: int, *, key: Key, given: Matrix | None = None) -> Matrix:
        """Draw rows: given values become normal scores, and drawn scores become values again."""
        given_scores = None if given is None else self.scores.moved(given)
        drawn_scores = super().sample(n, key=key, given=given_scores)
        return self.scores.decode(drawn_scores)

    @classmethod
    def load(cls, path: Path) -> _ScoredGAN:
        """Read a model from its file."""
        from siloweave.models.copula import ScoreModes
        from siloweave.models.gan import GAN

        gan = GAN.load(path)
        return cls(gan, ScoreModes.from_facts(gan.note["scores"]))


def _fit_scored(training: Training) -> Generator:
    """Train CopulaGAN: CTGAN's networks on normal scores."""
    from siloweave.models.copula import ScoreModes
    from siloweave.models.gan import fit_gan

    synth = cast(CopulaGAN, training.synth)
    scores = ScoreModes.fit(training.X, training.features.blocks, synth.family)
    X = scores.encode(training.X, key=fold_in(training.key, "modes"))
    gan = fit_gan(
        X,
        scores.inner,
        part_of(GANSettings, synth),
        key=networks.jax_key(training.key),
        progress=training.progress,
        store=training.store,
        note={"scores": scores.to_facts()},
    )
    return _ScoredGAN(gan, scores)


@dataclass(frozen=True)
class CopulaGAN(Synthesizer, GANSettings):
    """CTGAN on normal scores: numbers go through their own distribution first, and back through it.

    That is a transform, not a likelihood; dependence is what the GAN learns.

    It takes the settings of `GANSettings`, too.

    Args:
        family: Distribution of a numeric column: beta, norm, truncnorm, uniform, gamma or kde.

    Example:
        >>> CopulaGAN(family="norm", epochs=100).info.guarantee
        'none'
    """

    family: Family = "beta"

    method: ClassVar[Method] = _method(
        OwnerTrainer(_fit_scored, _ScoredGAN.load, numeric="standard"),
        name="copula_gan",
        title="CopulaGAN",
        family="GAN",
        paper="Patki, Wedge & Veeramachaneni 2016, The Synthetic Data Vault, DSAA (its releases "
        "since 0.4 hold CopulaGAN), with Xu et al. 2019, NeurIPS",
    )


# Diffusions


def _fit_diffusion(training: Training) -> Generator:
    """Train TabDDPM's network."""
    from siloweave.models import diffusion

    target = training.target
    network = training.fitted(diffusion.fit, DiffusionSettings, labels=target)
    return networks.DiffusionModel(network)


@dataclass(frozen=True)
class TabDDPM(Synthesizer, DiffusionSettings):
    """Diffusion: Gaussian for numbers, multinomial for choices.

    It takes the settings of `siloweave.models.settings.DiffusionSettings`, too.

    Args:
        target: A column of categories that the network is conditioned on instead of diffusing it.

    Example:
        >>> TabDDPM(target="income", steps=5_000).info.guarantee
        'none'
    """

    target: str | None = None

    method: ClassVar[Method] = _method(
        OwnerTrainer(_fit_diffusion, networks.DiffusionModel.load),
        name="tabddpm",
        title="TabDDPM",
        family="diffusion",
        paper="Kotelnikov, Baranchuk, Rubachev & Babenko 2023, TabDDPM: modelling tabular data "
        "with diffusion models, ICML",
    )


def _fit_latent(training: Training) -> Generator:
    """Train a coder, then a diffusion of its latent rows."""
    from siloweave.models import latent

    trained = training.fitted(latent.fit, LatentSettings, labels=training.target)
    return networks.LatentModel(trained)


_latent = partial(
    _method,
    OwnerTrainer(_fit_latent, networks.LatentModel.load),
    family="latent diffusion",
)
_points = partial(
    _method,
    OwnerTrainer(_fit_latent, networks.LatentModel.load, numeric="ranks"),
    family="latent diffusion",
)


@dataclass(frozen=True)
class LatentDiff(Synthesizer, LatentSettings):
    """Autoencoder, then Gaussian diffusion of its latent rows: SiloFuse without silos.

    Early decisions count more than the last touch. The order of the two trainings is the paper's;
    networks, steps and sampler are not, and methods/silofuse/method.py lists how they differ.

    Args:
        target: A column of categories that the diffusion is conditioned on; it is not encoded.
        autoencoder: Settings of the autoencoder, as an object or as a mapping of what differs from
            the default.
        diffusion: Settings of the diffusion, alike.
        joint, scaled, numbers: See `siloweave.models.settings.LatentSettings`.

    Example:
        >>> LatentDiff(diffusion={"steps": 500}).diffusion.steps
        500
        >>> LatentDiff(diffusion={"step": 10})
        Traceback (most recent call last):
        ...
        siloweave.errors.InputError: diffusion.step is no setting; ...
    """

    diffusion: DiffusionSettings = DiffusionSettings(loss_weight=0.5)
    target: str | None = None

    method: ClassVar[Method] = _latent(
        name="latent_diff", title="LatentDiff", paper=_SILOFUSE
    )


_WIDE = (256, 256, 256)


@dataclass(frozen=True)
class TLDM(Synthesizer, LatentSettings):
    """Variational autoencoder, then diffusion of its latent rows that predicts the noise.

    Networks are of 3 x 256 units, with a divergence.

    Args:
        target, autoencoder, diffusion, joint, scaled, numbers: See `LatentDiff`.

    Example:
        >>> TLDM(diffusion={"steps": 500}).diffusion.hidden
        (256, 256, 256)
    """

    autoencoder: AutoencoderSettings = AutoencoderSettings(
        hidden=_WIDE, divergence=1e-3
    )
    diffusion: DiffusionSettings = DiffusionSettings(hidden=_WIDE, prediction="noise")
    target: str | None = None

    method: ClassVar[Method] = _latent(
        name="tldm",
        title="TLDM",
        paper="Zhu, Tang, Brouwer, Perez, van Dijk & Chen 2024, Quantifying and mitigating privacy "
        "risks for tabular generative models (DP-TLDM), arXiv",
    )


@dataclass(frozen=True)
class E2E(Synthesizer, LatentSettings):
    """Encoder, denoiser and decoder trained as one: the baseline that SiloFuse is compared with.

    Steps, batch and rates are those of ``diffusion``, and what a joint training makes no use of is
    refused. Rows are drawn without noise (decision 0022). Networks and steps differ from the
    paper's as those of `LatentDiff` do.

    Args:
        target, autoencoder, diffusion, scaled, numbers: See `LatentDiff`.

    Example:
        >>> E2E(diffusion={"steps": 500}).diffusion.prediction
        'clean'
    """

    joint: bool = field(default=True, init=False)
    diffusion: DiffusionSettings = DiffusionSettings(prediction="clean", eta=0.0)
    target: str | None = None

    method: ClassVar[Method] = _latent(name="e2e", title="E2E", paper=_SILOFUSE)


@dataclass(frozen=True)
class PointDiff(Synthesizer, LatentSettings):
    """Gaussian diffusion of rows whose choices are sphere codes; any column can be given.

    Our own latent diffusion: its coder learns nothing and loses nothing, so all training goes to
    the diffusion. A number that five rows or more share is drawn exactly and as often as they have
    it, a number that equals another column or the sum of two in some rows does so in as many drawn
    ones, and the network sees numbers as waves, by which it learns tight shapes.

    Args:
        autoencoder: Settings of the sphere codes, as an object or as a mapping: ``per_bit`` only.
        target, diffusion, joint, scaled, numbers: See `LatentDiff`.

    Example:
        >>> from siloweave.datasets import adult, adult_schema
        >>> short = PointDiff(diffusion={"hidden": [8], "embed": 8, "minutes": 0.01})
        >>> len(short.fit(adult().take(range(200)), adult_schema()).sample(5))
        5
    """

    autoencoder: SphereCodeSettings = SphereCodeSettings(per_bit=1.0)
    diffusion: DiffusionSettings = POINTS_DIFFUSION
    target: str | None = None

    method: ClassVar[Method] = _points(
        name="point_diff",
        title="PointDiff",
        paper="Our own: Gaussian diffusion of our sphere codes, a kind of the analog bits of Chen, "
        "Zhang & Hinton 2023, ICLR",
    )
