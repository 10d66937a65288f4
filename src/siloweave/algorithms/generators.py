"""The central generators: Gaussian copula, CTGAN, TabDDPM.

Patki, Wedge & Veeramachaneni 2016, "The Synthetic Data Vault"; Xu et al. 2019, "Modeling tabular
data using conditional GAN"; Kotelnikov et al. 2023, "TabDDPM: modelling tabular data with
diffusion models".

**Guarantee**: none, see central.py.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, fields
from pathlib import Path
from typing import Any, ClassVar, Literal

from siloweave.algorithms.central import CentralGenerator
from siloweave.algorithms.fitted import Fitted, Info
from siloweave.algorithms.generated import Generated, Matrix, Model, read_generated
from siloweave.algorithms.running import Progress
from siloweave.errors import InputError
from siloweave.tables.features import Features
from siloweave.tables.keys import Key, generator

__all__ = ["CTGAN", "GENERATORS", "GaussianCopula", "TabDDPM", "load"]


def _jax_key(key: Key) -> Any:
    import jax

    return jax.random.key(int(generator(key).integers(2**31)))


@dataclass(frozen=True)
class _Drawn:
    """A model that draws with keys of JAX, drawing with ours."""

    model: Any

    def sample(self, n: int, *, key: Key) -> Matrix:
        """Draw rows."""
        rows: Matrix = self.model.sample(n, key=_jax_key(key))
        return rows

    def save(self, path: Path) -> None:
        """Write the model as one safetensors file."""
        self.model.save(path)


def _info(name: str, title: str, family: str, paper: str) -> Info:
    statement = "Nothing: the model is trained on the rows without noise and may reproduce them."
    return Info(name, title, family, "central", "curator", "none", paper, statement)


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

    family: Literal["beta", "norm", "truncnorm", "uniform", "gamma", "kde"] = "beta"
    info: ClassVar[Info] = _info(
        "gaussian_copula",
        "GaussianCopula",
        "copula",
        "Patki, Wedge & Veeramachaneni 2016, The Synthetic Data Vault, DSAA",
    )
    numeric: ClassVar[Any] = "standard"

    def chosen(self) -> dict[str, Any]:
        """The settings, as plain values; raises InputError if the family is unknown."""
        from siloweave.models.copula import CopulaSettings

        return {"family": CopulaSettings(family=self.family).family}

    @staticmethod
    def train(
        X: Matrix,
        features: Features,
        settings: dict[str, Any],
        target: str | None,
        key: Key,
        progress: Progress,
    ) -> Model:
        """Train on feature vectors."""
        from siloweave.models.copula import CopulaSettings
        from siloweave.models.copula import GaussianCopula as Copula

        return Copula.fit(X, features.blocks, CopulaSettings(family=settings["family"]), key=key)

    @staticmethod
    def load(path: Path) -> Model:
        """Read a model that was saved."""
        from siloweave.models.copula import GaussianCopula as Copula

        return Copula.load(path)


@dataclass(frozen=True)
class _Neural(CentralGenerator):
    """A generator whose model has a dataclass of settings.

    Args:
        settings: Of the network and its training, as a mapping; defaults for the rest.
    """

    settings: Mapping[str, Any] = field(default_factory=dict)

    @staticmethod
    @abstractmethod
    def settings_type() -> Any:
        """The dataclass of its settings."""

    def chosen(self) -> dict[str, Any]:
        """All settings, as plain values; raises InputError if one is wrong or unknown."""
        kind = self.settings_type()
        known = [one.name for one in fields(kind)]
        for name in self.settings:
            if name not in known:
                raise InputError(
                    f"settings has {name!r}, which {self.info.title} does not know; it has "
                    f"{', '.join(known)}"
                )
        return asdict(kind(**self.settings))


@dataclass(frozen=True)
class CTGAN(_Neural):
    """Conditional GAN with mode-specific normalisation; its classes are conditions, all alike.

    Args:
        settings: Of the network and its training, as a mapping; CTGAN's defaults for the rest.
    """

    info: ClassVar[Info] = _info(
        "ctgan",
        "CTGAN",
        "GAN",
        "Xu, Skoularidou, Cuesta-Infante & Veeramachaneni 2019, Modeling tabular data using "
        "conditional GAN, NeurIPS",
    )
    numeric: ClassVar[Any] = "modes"

    @staticmethod
    def settings_type() -> Any:
        """The dataclass of its settings."""
        from siloweave.models.gan import GANSettings

        return GANSettings

    @staticmethod
    def train(
        X: Matrix,
        features: Features,
        settings: dict[str, Any],
        target: str | None,
        key: Key,
        progress: Progress,
    ) -> Model:
        """Train on feature vectors."""
        from siloweave.models.gan import GANSettings, fit_gan

        chosen = GANSettings(**settings)
        made = fit_gan(X, features.blocks, chosen, key=_jax_key(key), progress=progress)
        return _Drawn(made)

    @staticmethod
    def load(path: Path) -> Model:
        """Read a model that was saved."""
        from siloweave.models.draws import GAN

        return _Drawn(GAN.load(path))


@dataclass(frozen=True)
class TabDDPM(_Neural):
    """Diffusion: Gaussian for numbers, multinomial for choices.

    Args:
        target: A column of categories that the network is told instead of diffusing it.
        settings: Of the network and its training, as a mapping; defaults for the rest.
    """

    info: ClassVar[Info] = _info(
        "tabddpm",
        "TabDDPM",
        "diffusion",
        "Kotelnikov, Baranchuk, Rubachev & Babenko 2023, TabDDPM: modelling tabular data with "
        "diffusion models, ICML",
    )
    takes_target: ClassVar[bool] = True

    @staticmethod
    def settings_type() -> Any:
        """The dataclass of its settings."""
        from siloweave.models.diffusion import DiffusionSettings

        return DiffusionSettings

    @staticmethod
    def train(
        X: Matrix,
        features: Features,
        settings: dict[str, Any],
        target: str | None,
        key: Key,
        progress: Progress,
    ) -> Model:
        """Train on feature vectors."""
        from siloweave.models.diffusion import DiffusionSettings, fit

        made = fit(
            X,
            features.blocks,
            DiffusionSettings(**settings),
            key=_jax_key(key),
            labels=target,
            progress=lambda text, done: progress(text, done or 0.0),
        )
        return _Drawn(made)

    @staticmethod
    def load(path: Path) -> Model:
        """Read a model that was saved."""
        from siloweave.models.diffusion import TabDDPM as Diffusion

        return _Drawn(Diffusion.load(path))


GENERATORS: dict[str, type[CentralGenerator]] = {
    kind.info.name: kind for kind in (GaussianCopula, CTGAN, TabDDPM)
}
"""Every central generator by its name."""


def load(folder: Path | str) -> Fitted | Generated:
    """Read a fit of any kind that `save` wrote.

    Raises:
        DataError: A file is missing, cut or of another version.
    """
    if (Path(folder) / "generated.json").is_file():
        return read_generated(folder, {name: kind.load for name, kind in GENERATORS.items()})
    return Fitted.load(folder)
