"""Settings of private training, which its parties and its coordinator read.

See method.py for the papers.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar, Literal, Protocol

from siloweave.core.method import CountsSettings, Method
from siloweave.errors import number, whole
from siloweave.models.settings import AutoencoderSettings, DiffusionSettings
from siloweave.privacy.shared_steps import CLIPS


@dataclass(frozen=True)
class PrivateSettings(CountsSettings):
    """The settings of every private training.

    Attributes:
        clip: Largest norm of a unit's gradient: of a row's, or of the sum of a person's rows'.
        counts_share, finest_bins: See `CountsSettings`.
    """

    clip: float = 1.0

    def __post_init__(self) -> None:
        number("clip", self.clip, *CLIPS)


@dataclass(frozen=True)
class PrivateRowsSettings(PrivateSettings):
    """The further settings of a private training of several parties.

    Attributes:
        tolerated: Parties that may pool what they know with the coordinator; at most all but one.
        dropouts: Parties that may vanish once columns are counted, in the whole training.
        clip, counts_share, finest_bins: See `PrivateSettings`.
    """

    tolerated: int = 1
    dropouts: int = 0

    def __post_init__(self) -> None:
        whole("tolerated", self.tolerated, 1)
        whole("dropouts", self.dropouts, 0)


class PrivateSynthesizer(Protocol):
    """What a party reads of a method with private training, whatever network it trains."""

    method: ClassVar[Method]

    @property
    def clip(self) -> float:
        """Largest norm of a unit's gradient."""


class LatentSynthesizer(PrivateSynthesizer, Protocol):
    """What a party reads of a method that trains an autoencoder, and a diffusion of its latents."""

    @property
    def autoencoder(self) -> AutoencoderSettings:
        """How rows are encoded."""

    @property
    def diffusion(self) -> DiffusionSettings:
        """How latents are learned."""

    @property
    def numbers(self) -> Literal["mean", "draw"]:
        """Whether a decoded number is its mean, or is drawn."""
