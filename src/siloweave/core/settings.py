"""Settings of a method, as plain values and as dataclasses; and of one run, which a `Job` has.

A setting may be a dataclass itself; a user then gives a mapping of what differs from its default.

**Guarantee**: none of its own. Under the guarantee "dp" every party's ledger is held to the budget
of the job. Seeded noise is a test mode: it protects nothing, and marks the whole fit.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass, field, fields, is_dataclass
from functools import partial
from math import inf
from pathlib import Path
from typing import Any, TypeVar, get_args, get_type_hints

import msgspec

from siloweave.errors import InputError, number, whole
from siloweave.privacy.budget import Budget
from siloweave.privacy.ledger import Identity
from siloweave.progress import Progress, Stopwatch, silent

SEEDED = "seeded"
"""Noise that anyone can repeat; and in a party's folder the file that says so."""

SAMPLE = 1_000_000.0
"""Rows of a table in a database or a Parquet file, about, that are loaded if it has more."""

NAMING_DELTA = 0.1
"""Share of delta with which a value of one unit may be named, where categories are learned."""

TRANSCRIPT = Path("coordinator") / "transcript.msgpack"
"""Where a run's folder holds what the coordinator saw."""

_Settings = TypeVar("_Settings")


# Settings of a method


def plain(settings: Mapping[str, Any]) -> dict[str, Any]:
    """Return settings as plain data for a message: lists for tuples, mappings for dataclasses."""
    values: dict[str, Any] = msgspec.json.decode(msgspec.json.encode(settings))
    return values


def settings_of(
    kind: Callable[..., _Settings], values: Any, path: str = "settings"
) -> _Settings:
    """Build a dataclass of settings from a mapping, in which settings within settings are mappings.

    Args:
        kind: The dataclass. Where one of its fields may be one of several dataclasses, the one
            that knows most of the names is taken, the first of equals.
        values: Its fields that differ from the defaults.
        path: What `values` is called, for errors.

    Raises:
        InputError: A name is unknown, a value has another type or is out of bounds; says where.

    Example:
        >>> from siloweave.models.settings import LatentSettings
        >>> settings_of(LatentSettings, {"diffusion": {"step": 10}})
        Traceback (most recent call last):
        ...
        siloweave.errors.InputError: settings.diffusion.step is no setting; ...
    """
    if not isinstance(values, Mapping):
        raise InputError(f"{path}={values!r} must be a mapping from names to values")
    hints = _hints_of(kind)
    arguments: dict[str, Any] = {}
    for name, value in values.items():
        if name not in hints:
            raise InputError(
                f"{path}.{name} is no setting; {path} may have {', '.join(sorted(hints))}"
            )
        arguments[name] = _setting(kind, hints[name], value, f"{path}.{name}")
    try:
        return kind(**arguments)
    except InputError as error:
        raise InputError(f"{path}: {error}") from error


def _hints_of(kind: Any) -> dict[str, Any]:
    """Return the type of every field of a dataclass, by name."""
    hints = get_type_hints(kind)
    return {setting.name: hints[setting.name] for setting in fields(kind)}


def _setting(owner: Any, hint: Any, value: Any, path: str) -> Any:
    """Return the checked value of one field of `owner`, whose type is `hint`."""
    kinds = [kind for kind in (hint, *get_args(hint)) if is_dataclass(kind)]
    # A synthesizer builds dataclasses of settings itself, since it knows their defaults.
    is_synthesizer = hasattr(owner, "method")
    if kinds and not is_dataclass(value) and not is_synthesizer:
        best: Any = max(kinds, key=partial(_shared_names, value))
        return settings_of(best, value, path)
    if kinds:
        return value
    try:
        return msgspec.convert(value, hint)
    except msgspec.ValidationError as error:
        raise InputError(f"{path}={value!r} cannot be used: {error}") from None


def _shared_names(values: Any, kind: Any) -> int:
    """Count the names in a mapping that are fields of a dataclass."""
    if not isinstance(values, Mapping):
        return 0
    return len(set(values) & {setting.name for setting in fields(kind)})


def merged(below: Mapping[str, Any], above: Mapping[str, Any]) -> dict[str, Any]:
    """Merge two mappings and the mappings within them; where both have a value, `above` wins.

    Example:
        >>> merged({"a": 1, "b": {"c": 2, "d": 3}}, {"b": {"c": 4}})
        {'a': 1, 'b': {'c': 4, 'd': 3}}
    """
    result = dict(below)
    for name, value in above.items():
        lower = result.get(name)
        if isinstance(lower, Mapping) and isinstance(value, Mapping):
            value = merged(lower, value)
        result[name] = value
    return result


def part_of(kind: type[_Settings], synth: object) -> _Settings:
    """Return those settings of a synthesizer that belong to a dataclass which it extends."""
    dataclass_kind: Any = kind
    return kind(
        **{
            setting.name: getattr(synth, setting.name)
            for setting in fields(dataclass_kind)
        }
    )


def built(hint: Any, name: str, value: Any, default: Any) -> Any:
    """Return a setting that is a dataclass, as it is or built from what differs from its default.

    Args:
        hint: The setting's type; one dataclass, or one of several.
        name: What the setting is called.
        value: The dataclass, or a mapping.
        default: What the setting is where it is not given.

    Raises:
        InputError: The value is neither, or has a name that no setting has.
    """
    kinds = [kind for kind in (hint, *get_args(hint)) if is_dataclass(kind)]
    if isinstance(value, tuple(kinds)):  # type: ignore[arg-type]
        return value
    if not isinstance(value, Mapping):
        names = " or ".join(kind.__name__ for kind in kinds)  # type: ignore[union-attr]
        raise InputError(
            f"{name}={value!r} must be a mapping from names to values, or {names}"
        )
    fitting = [
        kind
        for kind in kinds
        if set(value) <= {setting.name for setting in fields(kind)}
    ]
    if fitting and type(default) not in fitting:
        return settings_of(fitting[0], value, name)  # type: ignore[arg-type]
    return settings_of(type(default), merged(asdict(default), value), name)


# One run


@dataclass(frozen=True)
class Job:
    """The terms of one run: its budget, where it is stored, and where its noise comes from.

    Attributes:
        budget, seed, folder, run, noise, at_once, sample: As of `Synthesizer.fit`.
        progress: Called with a text and the share that is done.
        limited: Whether ledgers enforce the budget: under the guarantee "dp" alone. Elsewhere a
            party without rows is refused by name.
        tolerated: Parties that may pool what they know with the coordinator.
        dropouts: Parties of a masked sum that may vanish.
        total: Most that all runs in a party's ledger may cost together; None for a run that needs
            the ledger for itself.
        rows: How many to draw, where that takes the parties; as many as were fitted if None.
        identity: A party's key over a network; that of its folder if None.
        proofs: What the run's stages share of masked sums, see `Session`.
        asking: Seconds in which the coordinator awaits an answer.
    """

    budget: Budget
    seed: int = 0
    folder: Path | None = None
    run: str = "run"
    noise: str = "os"
    progress: Progress = silent
    limited: bool = True
    tolerated: int = 1
    dropouts: int = 0
    total: Budget | None = None
    at_once: int = 1
    rows: int | None = None
    sample: float = SAMPLE
    identity: Identity | None = None
    proofs: dict[str, dict[str, bytes]] = field(
        default_factory=dict, repr=False, compare=False
    )
    asking: Stopwatch = field(default_factory=Stopwatch, repr=False, compare=False)

    def __post_init__(self) -> None:
        """Raise InputError for values that no run can have."""
        check_sample("sample", self.sample)
        if not isinstance(self.budget, Budget):
            raise InputError(
                f"budget={self.budget!r} is no Budget; give Budget(epsilon, delta)"
            )
        whole("seed", self.seed)
        if self.noise not in ("os", SEEDED):
            raise InputError(
                f"noise={self.noise!r} must be 'os', the operating system's entropy, or "
                f"{SEEDED!r}, which protects nothing"
            )
        if self.folder is not None:
            object.__setattr__(self, "folder", Path(self.folder))

    @property
    def is_seeded(self) -> bool:
        """Whether anyone can repeat the noise, so that it protects nothing."""
        return self.noise == SEEDED

    @property
    def runs(self) -> tuple[str, str, str]:
        """The names under which the run releases: for its schema, its bins, and the rest."""
        return self.named("schema"), self.named("bins"), self.run

    @property
    def secret(self) -> bytes:
        """The secret that marks a party's own files, where others make its folder."""
        return self.identity.sign(b"siloweave store", b"") if self.identity else b""

    def named(self, stage: str) -> str:
        """Return the name under which a stage of the run releases."""
        return self.run if stage == "method" else f"{self.run}-{stage}"

    def home(self, index: int) -> Path | None:
        """Return the folder of a party on this machine, by the party's place in the roster."""
        return None if self.folder is None else self.folder / "parties" / f"{index:04d}"


def check_sample(name: str, sample: float) -> None:
    """Raise InputError for a `sample` that is neither a share of the rows nor a number of rows."""
    number(name, sample, 0, inf, "()")
    if sample > 1 and sample != int(sample):
        raise InputError(
            f"{name}={sample!r} must be a share of the rows, up to 1, or a whole number of rows"
        )


# Public facts of a run, which its ends compare


def agreed(facts: Mapping[str, Any]) -> bytes:
    """Return all public facts of a study as bytes, which are the same on every machine."""
    return msgspec.json.encode(facts, order="sorted")


def differences(mine: bytes, theirs: bytes, place: str = "there") -> list[str]:
    """Describe how public facts differ: ours, and those of another `place`.

    Example:
        >>> differences(b'{"seed": 1, "budget": {"epsilon": 1.0}}', b'{"seed": 2}')
        ["budget.epsilon = 1.0, and there 'nothing'", 'seed = 1, and there 2']
    """
    ours = _flat(msgspec.json.decode(mine))
    others = _flat(msgspec.json.decode(theirs))
    return [
        f"{name} = {ours.get(name, 'nothing')!r}, and {place} {others.get(name, 'nothing')!r}"
        for name in sorted(ours.keys() | others.keys())
        if ours.get(name) != others.get(name)
    ]


def _flat(facts: Any, head: str = "") -> dict[str, Any]:
    """Flatten nested facts into one mapping, with names such as budget.epsilon."""
    if isinstance(facts, list):
        facts = {str(place): item for place, item in enumerate(facts)}
    if not isinstance(facts, Mapping):
        return {}
    flat: dict[str, Any] = {}
    for name, value in facts.items():
        if isinstance(value, Mapping | list) and value:
            flat |= _flat(value, f"{head}{name}.")
        else:
            flat[f"{head}{name}"] = value
    return flat
