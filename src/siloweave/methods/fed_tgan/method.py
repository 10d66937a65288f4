"""Networks that parties with different rows train together, without showing their rows.

Zhao, Birke, Kunar & Chen 2021, "Fed-TGAN: Federated learning framework for synthesizing tabular
data", sections 4.1 to 4.3:

1. Every party sends the frequencies of its categories, its number of rows, and a variational
   Gaussian mixture of each column of numbers; the coordinator fits encoders to all of them
   (tables/summaries.py).
2. A party counts more in the mean the more rows it has and the nearer its columns are to those of
   all parties: with S_ij the Jensen-Shannon or Wasserstein distance of party i in column j, scaled
   so that a column sums to 1, SS_i = sum_j S_ij and SD_i = (1 - SS_i / sum_k SS_k) n_i / N, the
   weights are softmax(SD).
3. In every round each party trains the networks for an epoch of its rows, and the coordinator
   averages generators and critics by these weights.

TabDDPM (Kotelnikov et al. 2023) takes CTGAN's place in the same rounds, which then are the
federated averaging of McMahan et al. 2017, "Communication-efficient learning of deep networks from
decentralized data". One party alone trains what a central fit trains, step for step.

Our diffusion of sphere codes is averaged, too, but its parties take the steps of a central fit
together: the network is conditioned on the party of a row, batches are divided among parties by
their rows, and networks are averaged every five steps (models/rounds.py,
`PooledPointLearner`).

MD-TGAN has one generator, at the coordinator, and one critic at every party: Hardy, Le Merrer &
Sericola 2019, "MD-GAN: Multi-discriminator generative adversarial networks for distributed
datasets", Algorithm 1, with CTGAN's networks and losses as in section 5.1 of Zhao et al., whose
baseline it is. In every step the coordinator sends two batches of generated rows; each party's
critic learns from the first beside real rows and answers how its judgement of the second changes
with every entry. The generator follows the mean of these answers. After an epoch every critic moves
to the next party of the roster; the moments of its optimiser stay behind.

**Guarantee**: none. Frequencies, mixtures and networks leave a party as they are, and its
ledger says so with an event of infinite cost, entered before anything is sent. A category that one
person holds is visible, and so is a lone value (a mode of no width). In MD-TGAN, critics, which
remember rows best, are handed from party to party.

Departures from Fed-TGAN: the quantiles of a mixture stand for draws from it; columns of few or well
supported numbers are sent as counts instead of mixtures; batch statistics are those of the averaged
generator's own rows instead of a mean of the parties'; the penalty is on straight lines between
rows (CTGAN's), where the authors' code interpolates on spheres; drawn rows have conditions by the
categories' real frequencies, where CTGAN draws them by the frequencies' logarithms. From MD-GAN:
all parties get the same two batches (k = 1 of the paper); conditions of generated rows follow
everyone's frequencies, those of real rows the party's own.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import partial
from typing import TYPE_CHECKING, Any, ClassVar, cast

from siloweave.core import views
from siloweave.core.method import Forecast, Guarantee, Method, QuestionCounts, Setup
from siloweave.core.model import FeatureModel
from siloweave.core.run import Synthesizer
from siloweave.core.settings import part_of
from siloweave.core.views import View, Views
from siloweave.errors import InputError
from siloweave.federation.expected import MOST_ROWS
from siloweave.methods.fed_tgan import coordinator, messages, party
from siloweave.methods.fed_tgan.party import RoundTrainer
from siloweave.methods.fed_tgan.settings import (
    CriticsSynthesizer,
    PooledRoundsSettings,
    RoundsSettings,
    RoundsSynthesizer,
    Weights,
)
from siloweave.models.settings import (
    POINTS_DIFFUSION,
    DiffusionSettings,
    GANSettings,
    LatentSettings,
    SphereCodeSettings,
)
from siloweave.protocols import networks
from siloweave.tables.features import Block, Layout

if TYPE_CHECKING:
    from siloweave.models.rounds import Learner

# For a party to read, seal, store and send a network, and to begin with its steps: between
# .02 on an idle machine and .1 on a slow one, five parties on california_housing.
_ROUND_S = 0.03
_SUMS = 8 * 4  # bytes of `Facts` for each entry of a vector, which a round begins with
_NOTHING = (
    "Nothing: every party sends exact statistics of its rows and networks trained on them, and "
    "the model may reproduce rows."
)
_PRIVATE_METHODS = (
    "DPFedTGAN, DPFedTabDDPM, DPFedPointDiff, FLAIM and TwoRound keep one over the same "
    "parties."
)


def _views(
    received: str, sent: str, received_in: tuple[str, ...], sent_in: tuple[str, ...]
) -> Views:
    """Return the lines of who sees what in a run.

    Args:
        received: What the coordinator receives besides statistics, in words.
        sent: What parties are sent besides encoders, in words.
        received_in: Fields of replies that carry `received`.
        sent_in: Requests that carry `sent`.
    """
    statistics = "each party's number of rows and exact statistics of its columns"
    statistics_in = ("Described.rows", "Described.columns", "Ready.sums")
    encoders = "how columns are encoded, which shows everyone's statistics"
    coordinator_view = View(
        views.COORDINATOR,
        f"{statistics}, {received}",
        views.NOTHING,
        (*statistics_in, *received_in),
    )
    others = View(
        views.OTHERS, f"{encoders}, and {sent}", views.NOTHING, ("Prepare", *sent_in)
    )
    return (views.OWN_ROWS, coordinator_view, others, views.BARE_READERS)


_AVERAGED = _views(
    "and its networks after every round",
    "the mean of all networks after every round",
    ("Trained.networks",),
    ("Round",),
)


def _forecast(trainer: RoundTrainer, setup: Setup, rows: int) -> Forecast:
    """Forecast a run from the epochs or steps that all its rounds amount to."""
    synth = cast(RoundsSynthesizer, setup.synth)
    settings = setup.synth.settings()
    passes = synth.all_epochs
    if passes is not None:
        # `epochs` are those of a round; a central fit has them all.
        del settings["epochs"]
        diffusion = settings.get("diffusion", settings)
        if "steps" in diffusion:
            diffusion["steps"] = passes * max(rows // diffusion["batch"], 1)
        else:
            settings["epochs"] = passes

    learner, width = _foreseen(trainer, setup)
    shared_bytes = sum(learner.sizes())
    result_bytes = learner.result_size()
    rounds = learner.num_rounds(synth.rounds, rows)
    # Networks go both ways in every round, but the last answer is the result.
    sent = rounds * (2 * shared_bytes + _SUMS * width) - shared_bytes + result_bytes
    questions: QuestionCounts = {
        messages.Describe: 1,
        messages.Prepare: 1,
        # How many rows all parties have is known once they answer.
        messages.Round: learner.num_rounds(synth.rounds, MOST_ROWS),
    }
    forecast = networks.training_forecast(
        setup, rows, settings, questions, lambda *_: sent,
        numeric=trainer.numeric, bounded=passes is None,
    )  # fmt: skip
    if passes is not None or forecast.seconds is None:
        return forecast
    # Steps of one fit are divided, so that their seconds leave out what a round takes besides.
    round_seconds = _ROUND_S * rounds * len(setup.roster)
    return replace(forecast, seconds=forecast.seconds + round_seconds)


def _foreseen(trainer: RoundTrainer, setup: Setup) -> tuple[Learner, int]:
    """Return the training that parties of this setup would do, and the width of their vectors."""
    blocks = networks.foreseen_blocks(setup.schema, trainer.numeric)
    return trainer.learner(setup.synth, blocks, len(setup.roster)), Layout(blocks).width


def _forecast_critics(trainer: RoundTrainer, setup: Setup, rows: int) -> Forecast:
    """Forecast a run of MD-TGAN, which asks parties at every step."""
    synth = cast(CriticsSynthesizer, setup.synth)
    averaging = _forecast(trainer, setup, rows)
    learner, width = _foreseen(trainer, setup)
    _, critic_bytes, *_ = learner.sizes()

    steps_of_round = synth.epochs * max(rows // len(setup.roster) // synth.batch, 1)
    steps = synth.rounds * steps_of_round
    moves = synth.rounds - 1
    questions: QuestionCounts = {
        messages.Describe: 1,
        messages.Prepare: 1,
        messages.Judge: steps,
        messages.Hand: moves,
        messages.Take: moves,
    }

    # Of a row, 4 bytes an entry: two generated ones, and what the critic answers; and the two
    # conditions they were generated under. Critics travel there and back between rounds.
    row_bytes = 3 * 4 * width + 2 * 4
    sent = steps * synth.batch * row_bytes + 2 * moves * critic_bytes
    return replace(
        averaging, questions=questions, by_rows=(messages.Judge,), bytes_per_party=sent
    )


def _method(
    trainer: RoundTrainer,
    *,
    answers: dict[Any, Any] = party.AVERAGING,
    run: Any = coordinator.coordinate,
    visibility: Callable[[Any], Views] = lambda synth: _AVERAGED,
    forecast: Callable[[RoundTrainer, Setup, int], Forecast] = _forecast,
    **facts: Any,
) -> Method:
    """Build the record of a network that parties with different rows train without noise.

    `facts` are what differs between such methods, see `Method`.
    """
    return Method(
        split="rows",
        trust="curator",
        guarantee=lambda synth: Guarantee("none", _NOTHING, instead=_PRIVATE_METHODS),
        visibility=visibility,
        prepare=networks.owner_data,
        handlers=partial(party.handlers, answers, trainer),
        coordinate=partial(run, trainer),
        load=partial(FeatureModel.load, net=trainer.model.load),
        forecast=partial(forecast, trainer),
        check_schema=networks.check_trainable,
        stores=(),
        **facts,
    )


# GANs


def _gan(synth: GANSettings, blocks: tuple[Block, ...], parties: int) -> Learner:
    """Build the training of a GAN on vectors of these blocks."""
    from siloweave.models.rounds import GANLearner

    return GANLearner(part_of(GANSettings, synth), blocks)


_GAN = RoundTrainer(_gan, networks.GANModel, "modes")


@dataclass(frozen=True)
class FedTGAN(Synthesizer, RoundsSettings, GANSettings):
    """CTGAN that parties train together, those of typical rows counting more.

    It takes the settings of `siloweave.models.settings.GANSettings`, too.

    Args:
        rounds, epochs: See `RoundsSettings`.
        weights: See `RoundsSettings`; ``"equal"`` are vanilla FL-TGAN's.

    Example:
        >>> import siloweave as sw
        >>> from siloweave.datasets import adult, adult_schema
        >>> parties = sw.split_rows(adult().take(range(300)), 2, seed=0)
        >>> small = FedTGAN(rounds=1, batch=50, generator=(8,), critic=(8,))
        >>> fitted = small.fit(parties, adult_schema())
        >>> fitted.num_rows, fitted.info.guarantee
        (300, 'none')
    """

    method: ClassVar[Method] = _method(
        _GAN,
        name="fed_tgan",
        title="Fed-TGAN",
        family="GAN",
        paper="Zhao, Birke, Kunar & Chen 2021, Fed-TGAN: Federated learning framework for "
        "synthesizing tabular data, arXiv",
    )


def _critics_views(synth: MDTGAN) -> Views:
    """Return the lines of who sees what in a run; in a single round no critic changes places."""
    received = "in every step how its critic judges generated rows"
    sent = "in every step generated rows, which depend on everyone's critics"
    if synth.rounds == 1:
        return _views(f"and {received}", sent, ("Judged.feedback",), ("Judge",))
    return _views(
        f"{received}, and after every round but the last its critic",
        f"{sent}, and after every round but the last the critic of another party",
        ("Judged.feedback", "Handed.critic"),
        ("Judge", "Take"),
    )


@dataclass(frozen=True)
class MDTGAN(Synthesizer, RoundsSettings, GANSettings):
    """CTGAN with its generator at the coordinator and a critic at every party.

    It takes the settings of `siloweave.models.settings.GANSettings`, too.

    Args:
        rounds: Critics change places between them.
        epochs: Passes over the mean number of rows of a party, in a round.
        weights: How parties' feedback is weighted in the mean, with the choices of Fed-TGAN.
        average: Any but 0 is refused: there is no moving average.
        identifiability: Any but None is refused: no distance from real rows is measured.

    Example:
        >>> MDTGAN(rounds=10, weights="rows").info.guarantee
        'none'
    """

    rounds: int = 150
    weights: Weights = "equal"

    method: ClassVar[Method] = _method(
        _GAN,
        name="md_tgan",
        title="MD-TGAN",
        family="GAN",
        paper="Hardy, Le Merrer & Sericola 2019, MD-GAN, IPDPS, with CTGAN's networks as in Zhao, "
        "Birke, Kunar & Chen 2021, Fed-TGAN",
        answers=party.CRITICS,
        run=coordinator.coordinate_critics,
        visibility=_critics_views,
        forecast=_forecast_critics,
    )

    def _check_settings(self) -> None:
        """Refuse settings of a GAN that MD-TGAN has no use for."""
        if self.average or self.identifiability:
            raise InputError(
                f"average={self.average!r}, identifiability={self.identifiability!r}: MD-TGAN has "
                "neither a moving average nor a distance from real rows; leave both out"
            )


# Diffusions


def _refuse_length(diffusion: DiffusionSettings) -> None:
    """Refuse settings by which a central fit would end its training."""
    usual = DiffusionSettings()
    for name in ("steps", "passes", "work", "minutes", "watched"):
        value = getattr(diffusion, name)
        default = getattr(usual, name)
        if value != default:
            raise InputError(
                f"{name}={value!r} does nothing here: rounds and epochs say how long the "
                f"network trains; leave it at {default!r}"
            )


def _diffusion(synth: FedTabDDPM, blocks: tuple[Block, ...], parties: int) -> Learner:
    """Build the training of a diffusion on vectors of these blocks."""
    from siloweave.models.rounds import DiffusionLearner

    return DiffusionLearner(part_of(DiffusionSettings, synth), blocks, synth.target)


@dataclass(frozen=True)
class FedTabDDPM(Synthesizer, RoundsSettings, DiffusionSettings):
    """TabDDPM that parties train together by federated averaging.

    It takes the settings of `siloweave.models.settings.DiffusionSettings`, too.

    Args:
        rounds, epochs, weights: See `RoundsSettings`.
        steps, passes, work, minutes, watched: Refused: rounds and epochs say how long the network
            trains.
        target: A column of categories that the network is conditioned on instead of diffusing it.

    Example:
        >>> FedTabDDPM(rounds=10, epochs=5).info.guarantee
        'none'
    """

    rounds: int = 100
    weights: Weights = "rows"
    target: str | None = None

    method: ClassVar[Method] = _method(
        RoundTrainer(_diffusion, networks.DiffusionModel),
        name="fed_tabddpm",
        title="FedTabDDPM",
        family="diffusion",
        paper="Kotelnikov, Baranchuk, Rubachev & Babenko 2023, TabDDPM, ICML, by the federated "
        "averaging of McMahan et al. 2017",
    )

    def _check_settings(self) -> None:
        """Refuse settings by which a central fit would end its training."""
        _refuse_length(self)


def _latent(synth: FedPointDiff, blocks: tuple[Block, ...], parties: int) -> Learner:
    """Build the training of a diffusion of sphere codes, as several parties take its steps."""
    from siloweave.models.rounds import PooledPointLearner

    settings = part_of(LatentSettings, synth)
    return PooledPointLearner.of(settings, blocks, synth.target, parties)


@dataclass(frozen=True)
class FedPointDiff(Synthesizer, PooledRoundsSettings, LatentSettings):
    """Latent diffusion whose choices are sphere codes, trained by parties as in one place.

    The parties take the steps that a central fit to all rows would take: each batch is divided
    among them by their rows, and the network is conditioned on the party of a row. So parties' rows
    may be unlike each other. Whoever has the model could draw rows that are like one party's.

    Args:
        rounds, weights: See `PooledRoundsSettings`.
        autoencoder: Settings of the sphere codes, as an object or as a mapping: ``per_bit`` only.
        diffusion: Settings of the diffusion, as an object or as a mapping of what differs, without
            ``minutes`` and ``watched``.
        joint, scaled, numbers: See `LatentSettings`.
        target: A column of categories that the diffusion is conditioned on; it is not coded.

    Example:
        >>> import siloweave as sw
        >>> from siloweave.datasets import adult, adult_schema
        >>> parties = sw.split_rows(adult().take(range(300)), 2, seed=0)
        >>> tiny = {"hidden": [8], "embed": 8, "batch": 100, "steps": 4}
        >>> fitted = FedPointDiff(rounds=2, diffusion=tiny).fit(parties, adult_schema())
        >>> fitted.num_rows, fitted.info.guarantee
        (300, 'none')
    """

    autoencoder: SphereCodeSettings = SphereCodeSettings(per_bit=1.0)
    diffusion: DiffusionSettings = POINTS_DIFFUSION
    target: str | None = None

    method: ClassVar[Method] = _method(
        RoundTrainer(_latent, networks.LatentModel),
        name="fed_point_diff",
        title="FedPointDiff",
        family="latent diffusion",
        paper="Our own: diffusion of our sphere codes, by the federated averaging of McMahan et "
        "al. 2017",
    )

    def _check_settings(self) -> None:
        """Refuse settings that would end one party's training early."""
        usual = DiffusionSettings()
        for name in ("minutes", "watched"):
            value = getattr(self.diffusion, name)
            default = getattr(usual, name)
            if value != default:
                raise InputError(
                    f"diffusion.{name}={value!r} does nothing here: all parties take equally many "
                    f"steps, by diffusion.steps, passes and work; leave it at {default!r}"
                )
