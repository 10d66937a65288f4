"""The Gaussian copula, fitted by the owner of all rows.

Patki, Wedge & Veeramachaneni 2016, "The Synthetic Data Vault".

**Guarantee**: none, see central.py.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar, Literal

import numpy as np
from numpy.typing import NDArray

from siloweave.algorithms.central import CentralGenerator, Training
from siloweave.algorithms.generated import Matrix, Model
from siloweave.algorithms.networks import single_choices, without_guarantee
from siloweave.algorithms.outcome import Info
from siloweave.algorithms.visibility import BARE_OWNER, Views
from siloweave.tables.keys import Key

if TYPE_CHECKING:
    from siloweave.models.copula import Copula

__all__ = ["CopulaModel", "Family", "GaussianCopula", "checked_family"]

Family = Literal["beta", "norm", "truncnorm", "uniform", "gamma", "kde"]
"""A law that a numeric column may be given."""


def checked_family(family: Family) -> Family:
    """The family; raises InputError if it is unknown."""
    from siloweave.models.settings import CopulaSettings

    return CopulaSettings(family=family).family


@dataclass(frozen=True)
class CopulaModel:
    """A fitted copula behind the interface of `Generated`; what it is given, it keeps.

    Attributes:
        net: The copula.
    """

    net: Copula
    keeps: ClassVar[bool] = True

    @property
    def takes(self) -> frozenset[str]:
        """Columns that it can be asked for: all."""
        return frozenset(block.column for block in self.net.blocks)

    def shares(self, column: str) -> tuple[float, ...] | None:
        """How frequent each option of a column was, where the model knows."""
        block = single_choices(self.net.blocks).get(column)
        law = None if block is None else self.net.margins[self.net.blocks.index(block)]
        shares: NDArray[np.float64] | None = getattr(law, "shares", None)  # of categories only
        return None if shares is None else tuple(shares.tolist())

    def sample(self, n: int, *, key: Key, given: Matrix | None = None) -> Matrix:
        """Draw rows, from the conditional law of what is free where something is given."""
        return self.net.sample(n, key=key, given=given)

    def save(self, path: Path) -> None:
        """Write the model as one safetensors file."""
        self.net.save(path)


@dataclass(frozen=True)
class GaussianCopula(CentralGenerator):
    """Every column's own law, joined by correlations of normal scores; quick, and rough.

    Args:
        family: Law of a numeric column: beta, norm, truncnorm, uniform, gamma or kde.

    Example:
        >>> from siloweave.datasets import adult, adult_schema
        >>> model = GaussianCopula().fit(adult().take(range(300)), adult_schema())
        >>> len(model.sample(5)), model.epsilon
        (5, inf)
    """

    family: Family = "beta"
    info: ClassVar[Info] = without_guarantee(
        "gaussian_copula",
        "GaussianCopula",
        "copula",
        "Patki, Wedge & Veeramachaneni 2016, The Synthetic Data Vault, DSAA",
    )
    visibility: ClassVar[Views] = BARE_OWNER
    numeric: ClassVar[Any] = "standard"

    def chosen(self) -> dict[str, Any]:
        """The settings, as plain values; raises InputError if the family is unknown."""
        return {"family": checked_family(self.family)}

    @staticmethod
    def train(work: Training) -> Model:
        """Train on feature vectors."""
        from siloweave.models.copula import Copula
        from siloweave.models.settings import CopulaSettings

        settings = CopulaSettings(family=work.settings["family"])
        return CopulaModel(Copula.fit(work.X, work.features.blocks, settings, key=work.key))

    @staticmethod
    def load(path: Path) -> Model:
        """Read a model that was saved."""
        from siloweave.models.copula import Copula

        return CopulaModel(Copula.load(path))
