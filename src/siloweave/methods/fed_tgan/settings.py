"""Settings of Fed-TGAN, MD-TGAN and diffusions in rounds, which their parties read.

See method.py for the papers.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar, Literal, Protocol

from siloweave.core.method import Method
from siloweave.errors import whole

Weights = Literal[
    "similarity and size", "similarity", "size", "equal", "rows", "typical"
]
"""How parties are weighted in a mean."""


@dataclass(frozen=True)
class RoundsSettings:
    """The settings of parties that train together in rounds.

    Attributes:
        rounds: How often the parties' networks are averaged.
        epochs: Passes of each party over its own rows in a round.
        weights: How parties are weighted in the mean: "similarity and size", Fed-TGAN's, by which
            typical rows count more; "similarity" or "size" alone; "equal"; "rows", by the number
            of rows; or "typical", by rows too, and less for a party unlike the others.

    Raises:
        InputError: A value is out of bounds.
    """

    rounds: int = 500
    epochs: int = 1
    weights: Weights = "similarity and size"

    def __post_init__(self) -> None:
        for name in ("rounds", "epochs"):
            whole(name, getattr(self, name), 1)

    @property
    def all_epochs(self) -> int:
        """The number of passes of each party over its own rows, in all rounds."""
        return self.rounds * self.epochs


@dataclass(frozen=True)
class PooledRoundsSettings:
    """The settings of parties that take the steps of one central fit together.

    Attributes:
        rounds: How often the networks are averaged, at most once in five steps. The steps of the
            training are divided among the rounds, so more rounds send more bytes and take no more
            steps. Where parties are unlike each other, shorter rounds come nearer to
            a fit in one place.
        weights: How parties are weighted in the mean: "similarity and size", Fed-TGAN's, by which
            typical rows count more; "similarity" or "size" alone; "equal"; "rows", by the number
            of rows; or "typical", by rows too, and less for a party unlike the others.

    Raises:
        InputError: A value is out of bounds.
    """

    rounds: int = 8000
    weights: Weights = "rows"

    def __post_init__(self) -> None:
        whole("rounds", self.rounds, 1)

    @property
    def all_epochs(self) -> int | None:
        """No number of epochs (None): the network's own settings say how long it trains."""
        return None


class RoundsSynthesizer(Protocol):
    """What is read of a method that trains in rounds, whatever network it trains."""

    method: ClassVar[Method]

    @property
    def rounds(self) -> int:
        """How often the parties' networks are averaged."""

    @property
    def weights(self) -> Weights:
        """How parties are weighted in the mean."""

    @property
    def all_epochs(self) -> int | None:
        """Passes of each party over its rows in all rounds; None for the steps of a central fit."""


class CriticsSynthesizer(RoundsSynthesizer, Protocol):
    """What is read of a method whose parties have a critic each."""

    @property
    def epochs(self) -> int:
        """Passes over the mean number of rows of a party, in a round."""

    @property
    def batch(self) -> int:
        """Rows of a step."""
