"""What generators made of networks share: settings by name, and models behind one interface.

The networks are those of the papers that each generator names, such as Xu et al. 2019, "Modeling
tabular data using conditional GAN".

**Guarantee**: none of its own; what a run releases is in its ledger, see central.py.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Mapping
from dataclasses import asdict, dataclass, field, fields, is_dataclass
from functools import partial
from pathlib import Path
from typing import Any, ClassVar, NamedTuple, TypeVar, get_args, get_type_hints

import msgspec
import numpy as np

from siloweave.algorithms.central import CentralGenerator, Training
from siloweave.algorithms.generated import Matrix, Model
from siloweave.algorithms.outcome import Info
from siloweave.errors import InputError
from siloweave.tables.features import Block
from siloweave.tables.keys import Key, generator

__all__ = [
    "Net",
    "NetworkGenerator",
    "NetworkModel",
    "jax_key",
    "merged",
    "settings_of",
    "single_choices",
    "way_of",
    "without_guarantee",
]

_Settings = TypeVar("_Settings")
_WALKS = 4


def without_guarantee(name: str, title: str, family: str, paper: str) -> Info:
    """Facts about a generator that is trained without noise."""
    statement = "Nothing: the model is trained on the rows without noise and may reproduce them."
    return Info(name, title, family, "central", "curator", "none", paper, statement)


def jax_key(key: Key) -> Any:
    """A key of JAX that depends on one of ours."""
    import jax

    return jax.random.key(int(generator(key).integers(2**31)))


def single_choices(blocks: Iterable[Block]) -> dict[str, Block]:
    """The columns that are one choice and nothing else, and their blocks."""
    seen: dict[str, list[Block]] = {}
    for block in blocks:
        seen.setdefault(block.column, []).append(block)
    return {n: b[0] for n, b in seen.items() if len(b) == 1 and b[0].kind == "categorical"}


def merged(below: Mapping[str, Any], above: Mapping[str, Any]) -> dict[str, Any]:
    """Two mappings as one; `above` wins, and mappings within are merged the same way.

    Example:
        >>> merged({"a": 1, "b": {"c": 2, "d": 3}}, {"b": {"c": 4}})
        {'a': 1, 'b': {'c': 4, 'd': 3}}
    """
    both = dict(below)
    for name, value in above.items():
        old = both.get(name)
        if isinstance(old, Mapping) and isinstance(value, Mapping):
            value = merged(old, value)
        both[name] = value
    return both


def settings_of(
    kind: Callable[..., _Settings], values: Mapping[str, Any], path: str = "settings"
) -> _Settings:
    """A dataclass of settings from a mapping; settings within settings are mappings too.

    Args:
        kind: The dataclass. Where one of its fields may be one of several dataclasses, the one
            that knows most of the names is taken, the first of equals.
        values: Its fields that differ from the defaults.
        path: What `values` is called, for errors.

    Raises:
        InputError: A name is unknown, a value has another type or is out of bounds; says where.
    """
    if not isinstance(values, Mapping):
        raise InputError(f"{path}={values!r} must be a mapping from names to values")
    known = get_type_hints(kind)
    made: dict[str, Any] = {}
    for name, value in values.items():
        if name not in known:
            raise InputError(
                f"{path}.{name} is no setting; {path} may have {', '.join(sorted(known))}"
            )
        inner = [one for one in (known[name], *get_args(known[name])) if is_dataclass(one)]
        if inner:
            best: Any = max(inner, key=partial(_named_in, value))
            made[name] = settings_of(best, value, f"{path}.{name}")
            continue
        try:
            made[name] = msgspec.convert(value, known[name])
        except msgspec.ValidationError as error:
            raise InputError(f"{path}.{name}={value!r} cannot be used: {error}") from None
    try:
        return kind(**made)
    except InputError as error:
        raise InputError(f"{path}: {error}") from None


def _named_in(values: Any, kind: Any) -> int:
    """How many of the names a dataclass has."""
    names = set(values) if isinstance(values, Mapping) else set()
    return len(names & {one.name for one in fields(kind)})


def way_of(kept: Matrix) -> dict[str, Any]:
    """How a diffusion is sampled whose columns are kept in place but where they are NaN.

    Where something is kept, each step is walked several times: nearer to the conditional law.
    """
    if np.isnan(kept).all():
        return {"sampler": "solver"}
    return {"sampler": "ddim", "eta": 1.0, "resamples": _WALKS}


@dataclass(frozen=True)
class NetworkModel(ABC):
    """A fitted network behind the interface of `Generated`: it draws with our keys.

    Attributes:
        net: The fitted model of `models`.
    """

    net: Any
    keeps: ClassVar[bool] = True

    @property
    @abstractmethod
    def takes(self) -> frozenset[str]:
        """Columns that it can be asked for."""

    @abstractmethod
    def shares(self, column: str) -> tuple[float, ...] | None:
        """How frequent each option of a column was, where the model knows."""

    @abstractmethod
    def sample(self, n: int, *, key: Key, given: Matrix | None = None) -> Matrix:
        """Draw rows."""

    def save(self, path: Path) -> None:
        """Write the model as one safetensors file."""
        self.net.save(path)


class Net(NamedTuple):
    """Where a generator's network is; its file is loaded when it is needed.

    Attributes:
        home: Loads the module.
        settings: Name of the dataclass of its settings.
        fit: Name of the function that trains it.
        kept: Name of the class that reads what was saved.
        model: What a fitted network is behind.
    """

    home: Callable[[], Any]
    settings: str
    fit: str
    kept: str
    model: type[NetworkModel]

    def named(self, name: str) -> Any:
        """Something of the module."""
        return getattr(self.home(), name)


@dataclass(frozen=True)
class NetworkGenerator(CentralGenerator):
    """A generator whose model has a dataclass of settings.

    Args:
        settings: Of the network and its training, as a mapping; defaults for the rest.
    """

    settings: Mapping[str, Any] = field(default_factory=dict)
    net: ClassVar[Net]

    @classmethod
    def settings_type(cls) -> Any:
        """The dataclass of its settings."""
        return cls.net.named(cls.net.settings)

    @classmethod
    def train(cls, work: Training) -> Model:
        """Train on feature vectors."""
        made = cls.net.named(cls.net.fit)(
            work.X,
            work.features.blocks,
            settings_of(cls.settings_type(), work.settings),
            key=jax_key(work.key),
            labels=work.target,
            progress=work.progress,
            store=work.store,
        )
        return cls.net.model(made)

    @classmethod
    def load(cls, path: Path) -> Model:
        """Read a model that was saved."""
        return cls.net.model(cls.net.named(cls.net.kept).load(path))

    def preset(self) -> Mapping[str, Any]:
        """What this generator sets that its settings do not by default."""
        return {}

    def chosen(self) -> dict[str, Any]:
        """All settings, as plain values; raises InputError if one is wrong or unknown."""
        if not isinstance(self.settings, Mapping):
            raise InputError(f"settings={self.settings!r} must be a mapping from names to values")
        made = settings_of(self.settings_type(), merged(self.preset(), self.settings))
        return asdict(made)
