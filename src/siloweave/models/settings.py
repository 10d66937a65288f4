"""Settings of every model, and what values they may have.

This file imports no network library, so a method's settings are read and checked in milliseconds.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, fields
from math import ceil, inf, log2, sqrt
from numbers import Integral, Real
from operator import attrgetter
from typing import Any, Literal, NamedTuple, get_args

from siloweave.errors import InputError


class Bound(NamedTuple):
    """The values that a setting may have: as words after "must be", and as a test."""

    words: str
    holds: Callable[[Any], bool]


def at_least(low: int, *, whole: bool = True, most: float = inf) -> Bound:
    """Return the bound of whole numbers from `low` to `most`, or of all finite ones."""
    number: type = Integral if whole else Real
    words = (
        f"a whole number of {low} or more" if whole else f"finite, and {low} or more"
    )
    if most < inf:
        words += f", and {most:,} at most"

    def holds(value: Any) -> bool:
        is_number = issubclass(type(value), number)
        return is_number and low <= value < inf and value <= most

    return Bound(words, holds)


def one_of(*names: str) -> Bound:
    """Return the bound that allows some names."""
    words = "one of " + ", ".join(map(repr, names))
    return Bound(words, lambda value: value in names)


def or_none(bound: Bound) -> Bound:
    """Return a bound that allows None as well."""
    words = f"{bound.words}, or None"
    return Bound(words, lambda value: value is None or bound.holds(value))


def _each(bound: Bound, value: Any) -> bool:
    return isinstance(value, tuple) and all(map(bound.holds, value))


# Counts are int32 in compiled programs.
COUNT = at_least(1, most=2**31 - 1)
UNITS = at_least(1, most=2**16)
AMOUNT = at_least(0, whole=False)
POSITIVE = Bound("finite, and above 0", lambda value: AMOUNT.holds(value) and value > 0)
SHARE = Bound("in [0, 1)", lambda value: AMOUNT.holds(value) and value < 1)
WIDTHS = Bound(
    "at most 64 widths, of 1 or more each, and 65,536 at most",
    lambda value: _each(UNITS, value) and len(value) <= 64,
)

# Multiplications a weight and row of one step: Kaplan et al. 2020, section 2.1. Two of the six make
# the network's output, and self-conditioning makes that once more of every second row.
_MULTIPLIED = 6
_MULTIPLIED_AGAIN = 1

ACTIVATIONS = ("relu", "silu", "gelu", "tanh", "leaky_relu")
"""Of hidden layers."""
PREDICTIONS = ("noise", "clean", "velocity")
"""What a denoiser may give for numbers, see `denoiser.target`."""
CHOICE_LOSSES = ("cross-entropy", "bound")
"""Losses of categoricals, see `denoiser`."""
SCHEDULES = ("cosine", "linear")
"""Noise schedules, see `diffusion.kept_variance`."""
Family = Literal["beta", "norm", "truncnorm", "uniform", "gamma", "kde"]
"""A distribution that a numeric column may be given."""
FAMILIES: tuple[str, ...] = get_args(Family)
"""All families, the default first."""

# What a setting of a name may be, in every class that does not say otherwise.
_BOUNDS = {
    **dict.fromkeys(("hidden", "generator", "critic", "trunk", "head"), WIDTHS),
    **dict.fromkeys(("embed", "noise"), UNITS),
    **dict.fromkeys(("batch", "steps", "pac", "channels", "ratio"), COUNT),
    **dict.fromkeys(("made", "rounds", "critic_steps"), COUNT),
    **dict.fromkeys(("rate", "critic_rate", "generator_rate"), POSITIVE),
    **dict.fromkeys(("learning_rate", "block_rate"), POSITIVE),
    **dict.fromkeys(("temperature", "epsilon"), POSITIVE),
    **dict.fromkeys(("penalty", "identifiability_weight", "weight_decay"), AMOUNT),
    **dict.fromkeys(("loss_weight", "divergence", "jitter"), AMOUNT),
    **dict.fromkeys(("decay", "average", "dropout", "watched"), SHARE),
    **dict.fromkeys(
        ("passes", "clip_range", "clip", "minutes", "work"), or_none(POSITIVE)
    ),
    "pool": or_none(COUNT),
    "latent": or_none(UNITS),
    **dict.fromkeys(("epochs", "matched", "passes_from"), at_least(0)),
    "waves": at_least(0, most=16),
    "timesteps": at_least(2, most=100_000),
    "per_bit": at_least(1, whole=False),
    "betas": Bound("two numbers in [0, 1)", lambda v: _each(SHARE, v) and len(v) == 2),
    "eta": Bound("in [0, 1]", lambda value: AMOUNT.holds(value) and value <= 1),
    "act": one_of(*ACTIVATIONS),
    "prediction": one_of(*PREDICTIONS),
    "choices": one_of(*CHOICE_LOSSES),
    "schedule": one_of(*SCHEDULES),
    "heads": one_of("draw", "likeliest"),
    "numbers": one_of("mean", "draw"),
    "identifiability": or_none(one_of("nearest", "pairs")),
}


def check(settings: Any, **bounds: Bound) -> None:
    """Check settings when they are made. Lists become tuples, because JSON has lists only.

    `bounds` say what fields may be if that is not what their name may be elsewhere. The InputError
    names the field that is out of bounds.
    """
    for setting in fields(settings):
        name = setting.name
        value = getattr(settings, name)
        bound = bounds.get(name, _BOUNDS.get(name))
        if isinstance(value, list):
            value = tuple(value)
            object.__setattr__(settings, name, value)  # the dataclasses are frozen
        if bound is not None and not bound.holds(value):
            raise InputError(f"{name}={value!r} must be {bound.words}")


@dataclass(frozen=True)
class CopulaSettings:
    """The settings of a fit of a Gaussian copula.

    Attributes:
        family: Distribution of the numeric columns.
        families: Distributions of single columns by name, before `family`.
        scores: What stands for a category: the normal ``mean`` of its piece, or a ``uniform``
            draw from it, as in SDV's releases; then categories without an order are also ordered
            by frequency, as there.

    Raises:
        InputError: A name is unknown.
    """

    family: Family = "beta"
    families: Mapping[str, Family] = field(default_factory=dict)
    scores: Literal["mean", "uniform"] = "mean"

    def __post_init__(self) -> None:
        for family in (self.family, *self.families.values()):
            if family not in FAMILIES:
                raise InputError(
                    f"family={family!r} is unknown; use one of {', '.join(FAMILIES)}"
                )
        if self.scores not in ("mean", "uniform"):
            raise InputError(
                f"scores={self.scores!r} is unknown; use 'mean' or 'uniform'"
            )


@dataclass(frozen=True)
class GANSettings:
    """The settings of a GAN and of its training. The defaults are CTGAN's.

    Attributes:
        noise: Random inputs of the generator.
        generator: Units of the generator's hidden layers.
        residual: Whether each generator layer is batch-normalised and joined to its input, or
            plain.
        critic: Units of the critic's hidden layers.
        pac: Rows that the critic sees at once.
        dropout: Share of the critic's hidden units that are dropped.
        temperature: Temperature of the Gumbel-softmax.
        conditional: Whether to train with conditions on the categoricals.
        penalty: Weight of the gradient penalty.
        rate: Learning rate of Adam, for both networks.
        betas: The two decay rates of Adam's moments.
        decay: Weight decay: so many times a parameter is added to its gradient, for both networks.
        clip: Largest norm of the generator's gradient; None for no bound.
        batch: Rows in a step, a multiple of `pac`.
        epochs: Passes over the rows, each of rows // batch steps and at least one.
        average: Share of the old weights in the moving average of the generator that rows are
            drawn from; 0 draws from the last weights.
        identifiability: None, or what the distance from real rows means (ADS-GAN).
        identifiability_weight: Weight of that distance in the generator's loss.

    Raises:
        InputError: A value is out of bounds.

    Example:
        >>> GANSettings(batch=100).steps(rows=1_000)
        3000
    """

    noise: int = 128
    generator: tuple[int, ...] = (256, 256)
    residual: bool = True
    critic: tuple[int, ...] = (256, 256)
    pac: int = 10
    dropout: float = 0.5
    temperature: float = 0.2
    conditional: bool = True
    penalty: float = 10.0
    rate: float = 2e-4
    betas: tuple[float, float] = (0.5, 0.9)
    decay: float = 1e-6
    clip: float | None = None
    batch: int = 500
    epochs: int = 300
    average: float = 0.0
    identifiability: Literal["nearest", "pairs"] | None = None
    identifiability_weight: float = 0.1

    def __post_init__(self) -> None:
        check(self, noise=COUNT, decay=AMOUNT)
        if self.batch % self.pac:
            nearest = max(self.batch // self.pac, 1) * self.pac
            raise InputError(
                f"batch={self.batch} is no multiple of pac={self.pac}, so packs would not fill; "
                f"use batch={nearest}"
            )

    def steps(self, rows: int) -> int:
        """Return the number of updates in a fit to so many rows."""
        return self.epochs * max(rows // self.batch, 1)


@dataclass(frozen=True)
class CTABSettings:
    """The settings of a CTAB-GAN and of its training; the defaults are the authors'.

    Attributes:
        noise, temperature, rate, betas, decay, epochs, average: See `GANSettings`.
        channels: Channels of the critic's first convolution; doubled from layer to layer.
        epsilon: The small number in Adam's denominator.
        batch: Rows in a step.

    Raises:
        InputError: A value is out of bounds.
    """

    noise: int = 100
    channels: int = 64
    temperature: float = 0.2
    rate: float = 2e-4
    betas: tuple[float, float] = (0.5, 0.9)
    epsilon: float = 1e-3
    decay: float = 1e-5
    batch: int = 500
    epochs: int = 150
    average: float = 0.0

    def __post_init__(self) -> None:
        check(self, noise=COUNT, decay=AMOUNT, batch=at_least(2))

    def steps(self, rows: int) -> int:
        """Return the number of updates in a fit to so many rows."""
        return self.epochs * max(rows // self.batch, 1)


@dataclass(frozen=True)
class PrivateGANSettings:
    """Settings of a GAN whose critic is trained privately.

    Attributes:
        noise, generator, critic, temperature, penalty, betas, average: See `GANSettings`.
        critic_rate: Learning rate of the critic's Adam.
        generator_rate: Learning rate of the generator's Adam.
        batch: Expected number of real rows in a critic step.
        steps: Critic steps.
        ratio: Critic steps to one of the generator.
        pool: Generated rows in a critic step, and in a generator step; as many as `batch` if None.

    Raises:
        InputError: A value is out of bounds.
    """

    noise: int = 64
    generator: tuple[int, ...] = (128, 128)
    critic: tuple[int, ...] = (64, 64)
    temperature: float = 0.2
    penalty: float = 10.0
    critic_rate: float = 2e-3
    generator_rate: float = 1e-3
    betas: tuple[float, float] = (0.5, 0.9)
    batch: int = 512
    steps: int = 2_000
    ratio: int = 1
    average: float = 0.99
    pool: int | None = None

    def __post_init__(self) -> None:
        check(self)

    @property
    def plain(self) -> GANSettings:
        """The settings with which the trained generator samples."""
        return GANSettings(
            noise=self.noise,
            generator=self.generator,
            critic=self.critic,
            pac=1,
            dropout=0.0,
            temperature=self.temperature,
            batch=self.batch,
            average=self.average,
        )

    @property
    def generated(self) -> int:
        """The number of rows that the generator draws in a step."""
        return self.batch if self.pool is None else self.pool


@dataclass(frozen=True)
class VertiGANSettings:
    """Settings of the networks and of their training.

    Attributes:
        noise: Random inputs of the trunk.
        trunk: Units of the trunk's layers; the last are the entries of a hidden row, which travel.
        head: Units of a head's hidden layers.
        critic: Units of a critic's hidden layers.
        temperature: Temperature of the Gumbel-softmax.
        penalty: Weight of the gradient penalty.
        critic_rate: Learning rate of the critics' Adam.
        generator_rate: Learning rate of the Adam of trunk and heads.
        betas: The two decay rates of Adam's moments.
        batch: Expected number of real rows in a critic step.
        made: Hidden rows of a round.
        rounds: Steps of the generator, each a message to every party.
        critic_steps: Critic steps of a round.
        average: Share of the old weights in the moving average of trunk and heads.
        informed: Whether heads start from the frequencies of categories, or from random ones.

    Raises:
        InputError: A value is out of bounds.
    """

    noise: int = 64
    trunk: tuple[int, ...] = (128, 128)
    head: tuple[int, ...] = (128,)
    critic: tuple[int, ...] = (64, 64)
    temperature: float = 0.2
    penalty: float = 10.0
    critic_rate: float = 1e-3
    generator_rate: float = 5e-4
    betas: tuple[float, float] = (0.5, 0.9)
    batch: int = 512
    made: int = 256
    rounds: int = 100
    critic_steps: int = 10
    average: float = 0.9
    informed: bool = True

    def __post_init__(self) -> None:
        check(self)
        if not self.trunk:
            raise InputError(
                "trunk=() must have one layer or more; its last is what travels"
            )

    @property
    def steps(self) -> int:
        """The number of critic steps of one party."""
        return self.rounds * self.critic_steps


@dataclass(frozen=True)
class DiffusionSettings:
    """Settings of TabDDPM.

    Attributes:
        hidden: Widths of the hidden layers, or of the residual blocks.
        embed: Width of the time embedding, and of the first projection without residual blocks.
        timesteps: Steps between a row and noise, the paper's T.
        schedule: "cosine" or "linear".
        steps: Gradient steps.
        passes: How often a fit uses each row at most; None is no bound. Tables of few rows take
            fewer steps for it: more steps would memorise the rows. Private fits and joint
            trainings take all `steps`.
        passes_from: Tables of fewer rows than this are used less often than `passes`: a quarter of
            the rows half as often, with the root of their number. 0 uses all tables alike.
        batch: Rows of a gradient step.
        learning_rate: Learning rate at the start; it falls linearly to 0.
        block_rate: Learning rate of the weights in residual blocks, as a share of that of others.
        weight_decay: Weight decay of AdamW.
        decay: Share of the old weights in their moving average.
        dropout: Share of hidden units dropped in training.
        act: Activation of the hidden layers.
        residual: Whether the network has residual blocks, all of one width, which read their input
            normalised, and scaled and shifted by the time (`nets.ResidualBlocks`). False is the
            paper's: dense layers, and the time is added once, before the first.
        self_conditioned: Whether the network is shown, besides a noisy row, its own estimate of the
            clean sphere codes at the step before (self-conditioning; Chen, Zhang & Hinton 2023,
            "Analog bits"), so that categories agree. In training it is shown its estimate at the
            same time, of every second row. Where no categories are sphere codes, nothing is shown.
            Private fits and joint trainings refuse it.
        prediction: What the network predicts of numbers: "noise" (the paper's), "clean" (the row
            before the noise), or "velocity", a mixture of both that is well scaled at every time.
        loss_weight: Squared errors of numbers are weighed by (1 - ᾱ)^loss_weight, so early times
            count more than late ones; 0 weighs all equally. With "velocity", 1 is the error of the
            clean row.
        choices: The loss of categoricals: "cross-entropy", that of the clean option, or "bound",
            the paper's.
        clip_range: Largest absolute number that a row may hold; samplers clip their estimate of
            the clean row to it. None takes each number's range from the rows, which a private fit
            must not.
        eta: Noise that sampling puts back into numbers at every step, 0 to 1. With 1 a walk
            forgets the errors of earlier steps, with 0 they stay.
        waves: At how many frequencies the network is shown sines and cosines of a number besides
            the number itself: tight shapes are learned in fewer steps. 0 is the paper's.
        work: Multiplications that training takes at most, in units of 1e12: six a weight and row.
            Tables of many columns have larger networks, and take fewer steps for it. None is no
            bound. Private fits and joint trainings take all `steps`.
        matched: Rows of a pilot walk after training, at most. Drawn numbers then get, at every step
            of a walk, the mean and spread of the rows at that step's noise; categories do not.
            0, the paper's, matches nothing. These are statistics of the rows, in rounds of parties
            of all parties' rows: private fits and joint trainings refuse it.
        minutes: How long training may take at most, after some seconds of compiling. The learning
            rate then falls with the time, and what is drawn depends on the machine. None is no
            bound. Private fits, rounds of parties and joint trainings refuse it.
        watched: Share of the rows that is held back and watched: training ends early where their
            loss no longer falls, and the network that was best on them is kept. 0 learns from all
            rows. Refused where `minutes` is.

    Raises:
        InputError: A value is out of bounds.
    """

    hidden: tuple[int, ...] = (512, 512)
    embed: int = 128
    timesteps: int = 1000
    schedule: str = "cosine"
    steps: int = 10_000
    passes: float | None = 500.0
    passes_from: int = 0
    batch: int = 256
    learning_rate: float = 2e-3
    block_rate: float = 1.0
    weight_decay: float = 1e-4
    decay: float = 0.999
    dropout: float = 0.0
    act: str = "silu"
    residual: bool = False
    self_conditioned: bool = False
    prediction: str = "velocity"
    loss_weight: float = 0.0
    choices: str = "cross-entropy"
    clip_range: float | None = None
    eta: float = 1.0
    waves: int = 0
    work: float | None = None
    matched: int = 0
    minutes: float | None = None
    watched: float = 0.0

    def __post_init__(self) -> None:
        check(self)
        if self.residual and len(set(self.hidden)) != 1:
            raise InputError(
                f"hidden={self.hidden!r} must be one width, once for each block, where residual is "
                "True: give equal widths, or residual=False for layers of different widths"
            )
        if self.block_rate != 1 and not self.residual:
            raise InputError(
                f"block_rate={self.block_rate!r} has no effect without residual blocks: give "
                "residual=True, or leave it at 1"
            )

    def taken(self, rows: int, weights: int = 0) -> int:
        """Return the number of steps in a fit to so many rows, for a network of so many weights.

        Example:
            >>> DiffusionSettings(steps=10_000, batch=256, passes=500).taken(512)
            1000
            >>> DiffusionSettings(steps=10_000, batch=256, passes=500, passes_from=2048).taken(512)
            500
            >>> DiffusionSettings(batch=256, work=1.0).taken(10**6, weights=500_000)
            1303
        """
        batch = min(self.batch, rows)
        # As many as the settings say, or as few as passes or work allow.
        bounds = [self.steps]
        if self.passes is not None:
            passes = self.passes
            if rows < self.passes_from:
                passes *= sqrt(rows / self.passes_from)
            bounds.append(ceil(passes * rows / batch))
        if self.work is not None and weights:
            multiplied = _MULTIPLIED
            if self.self_conditioned:
                multiplied += _MULTIPLIED_AGAIN
            bounds.append(ceil(self.work * 1e12 / (multiplied * weights * batch)))
        return min(bounds)


POINTS_DIFFUSION = DiffusionSettings(
    hidden=(256, 256),
    steps=60_000,
    passes_from=9_000,
    block_rate=0.5,
    residual=True,
    self_conditioned=True,
    waves=6,
    work=54.0,
    matched=8192,
)
"""Of our own diffusion of sphere codes without a budget, whoever holds the rows: decision 0007."""


@dataclass(frozen=True)
class AutoencoderSettings:
    """Settings of an autoencoder.

    Attributes:
        hidden: Widths of the encoder's hidden layers; the decoder has them in reverse.
        latent: Size of a latent row; None is the number of blocks.
        divergence: Weight of KL(latent distribution || N(0, I)); 0 makes the encoder
            deterministic.
        jitter: Standard deviation of noise on latents in training, in their own units; makes
            neighbouring latents decode alike.
        steps, batch, learning_rate, weight_decay, decay, act: See `DiffusionSettings`.
        heads: What is read from a categorical head: a "draw", or its "likeliest" option. Heads
            draw independently, so columns that agree in the rows may disagree where a latent lies
            between two of them; the likeliest options fit each other and vary less.

    Raises:
        InputError: A value is out of bounds.
    """

    hidden: tuple[int, ...] = (512, 512)
    latent: int | None = None
    divergence: float = 0.0
    jitter: float = 0.0
    steps: int = 4_000
    batch: int = 256
    learning_rate: float = 1e-3
    weight_decay: float = 1e-5
    decay: float = 0.999
    act: str = "gelu"
    heads: str = "draw"

    def __post_init__(self) -> None:
        check(self)


@dataclass(frozen=True)
class SphereCodeSettings:
    """Settings of sphere codes.

    Attributes:
        per_bit: Dimensions for each bit of a categorical, at least 1: with fewer, codes would
            coincide. More make errors rarer and rows longer.

    Raises:
        InputError: The value is out of bounds.
    """

    per_bit: float = 1.0

    def __post_init__(self) -> None:
        check(self)

    def dimensions(self, size: int) -> int:
        """Return the dimensions of the codes of a categorical of this size, from 1 to size - 1."""
        bits = log2(max(size, 2))
        dimensions = ceil(self.per_bit * bits)
        # In size - 1 dimensions all points can be equally far apart: more would add nothing.
        return max(1, min(size - 1, dimensions))


# What counts only where coder and diffusion are trained one after the other.
_SEPARATE = (
    *("scaled", "autoencoder.jitter", "autoencoder.steps", "autoencoder.batch"),
    *("autoencoder.learning_rate", "autoencoder.weight_decay", "autoencoder.decay"),
    *(
        "diffusion.passes",
        "diffusion.loss_weight",
        "diffusion.choices",
        "diffusion.clip_range",
    ),
    *("diffusion.block_rate", "diffusion.self_conditioned"),
    *("diffusion.waves", "diffusion.work", "diffusion.matched"),
    *("diffusion.minutes", "diffusion.watched"),
)


@dataclass(frozen=True)
class LatentSettings:
    """Settings of a latent diffusion.

    Attributes:
        autoencoder: Settings of the autoencoder, or of sphere codes instead.
        diffusion: Settings of the diffusion; its `prediction` is "clean" when `joint`. Its steps,
            batch and rates are those of the joint training too.
        joint: Whether both are trained as one. Settings that then have no effect are refused.
        scaled: Whether latents are standardised by their mean and spread over the rows. These are
            statistics of the rows: a private fit sets this to False and uses a divergence.
        numbers: What is read from the Gaussian heads: their "mean" or a "draw".

    Raises:
        InputError: A value is out of bounds, or contradicts another.
    """

    autoencoder: AutoencoderSettings | SphereCodeSettings = field(
        default_factory=AutoencoderSettings
    )
    diffusion: DiffusionSettings = field(default_factory=DiffusionSettings)
    joint: bool = False
    scaled: bool = True
    numbers: str = "mean"

    def __post_init__(self) -> None:
        check(self)
        has_sphere_codes = isinstance(self.autoencoder, SphereCodeSettings)
        if self.joint and has_sphere_codes:
            raise InputError(
                "joint=True needs an autoencoder to train: sphere codes learn nothing"
            )
        if self.numbers == "draw" and has_sphere_codes:
            raise InputError(
                "numbers='draw' needs an autoencoder: sphere codes leave numbers as they are"
            )
        if self.joint:
            self._check_joint()

    def _check_joint(self) -> None:
        """Refuse settings that a joint training does not read."""
        if self.diffusion.prediction != "clean":
            raise InputError(
                "joint=True needs diffusion.prediction='clean': the decoder is given the denoised "
                "latent"
            )
        if self.dense.divergence:
            raise InputError(
                "joint=True has no divergence: set autoencoder.divergence=0"
            )
        defaults = LatentSettings()
        for name in _SEPARATE:
            value = attrgetter(name)(self)
            default = attrgetter(name)(defaults)
            if value != default:
                raise InputError(
                    f"{name}={value!r} has no effect where joint=True trains all as one: leave it "
                    f"at {default!r}. Steps, batch and rates are those of diffusion"
                )

    @property
    def dense(self) -> AutoencoderSettings:
        """The settings of the autoencoder; there must be one."""
        assert isinstance(self.autoencoder, AutoencoderSettings)
        return self.autoencoder
