"""What a fit over split columns leaves: a joint model, and what every party kept at home.

After Shankar et al. 2024 ("SiloFuse: cross-silo synthetic data generation with latent tabular
diffusion models"): the coordinator draws vectors, every party makes its own columns of its part,
and the columns are put together or stay where they are, as the study says.

**Guarantee**: none of its own; sampling reads what was released and what stays at home with the
parties, whose sharing of columns is in their ledgers.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, fields
from pathlib import Path
from typing import Any, Protocol

import msgspec
import numpy as np

from siloweave.algorithms.generated import Generated, Matrix, Model, read_generated
from siloweave.errors import DataError, InputError
from siloweave.privacy.accountants import epsilon
from siloweave.tables.features import Features
from siloweave.tables.keys import Key, fold_in
from siloweave.tables.read import Table
from siloweave.tables.schema import Schema

__all__ = [
    "COLUMNS",
    "Home",
    "PlainHome",
    "Reader",
    "Woven",
    "WovenModel",
    "joined_features",
    "read_woven",
]

COLUMNS = "woven.json"
"""File of a saved fit that names every party's columns."""


class Home(Protocol):
    """What a party keeps: its encoders, and how its part of a vector becomes its own features.

    Conforming: `PlainHome`, and `silofuse.CoderHome`.
    """

    @property
    def features(self) -> Features:
        """Vectors of its columns to table and back."""

    @property
    def width(self) -> int:
        """Entries of its part of the coordinator's vector."""

    def decode(self, part: Matrix, *, key: Key) -> Matrix:
        """Feature vectors of its columns, from its part of the coordinator's vectors."""

    def encode(self, X: Matrix) -> Matrix:
        """Its part of vectors, from feature vectors of its columns; NaN where those are NaN."""

    def coder(self) -> bytes | None:
        """What `ColumnsSplit.home` reads again; None where there is nothing but features."""


@dataclass(frozen=True)
class PlainHome:
    """A party whose part of the coordinator's vector is its feature vector.

    Attributes:
        features: Vectors of its columns to table and back.
    """

    features: Features

    @property
    def width(self) -> int:
        """Entries of its part."""
        return self.features.width

    def decode(self, part: Matrix, *, key: Key) -> Matrix:
        """The part as it is."""
        return part

    def encode(self, X: Matrix) -> Matrix:
        """The vectors as they are."""
        return X

    def coder(self) -> bytes | None:
        """None: features are all there is."""
        return None


class Reader(Protocol):
    """What reads the files of a method; conforming: every class derived from `ColumnsSplit`."""

    @staticmethod
    def load(path: Path) -> Model:
        """Read the coordinator's model."""

    @staticmethod
    def home(features: Features, coder: bytes | None) -> Home:
        """Read what a party kept."""


def joined_features(schema: Schema, parts: Sequence[Features]) -> Features:
    """The encoders of all parties as one, columns in the schema's order."""
    encodings = {one.column: one for part in parts for one in part.encodings}
    return Features(schema, tuple(encodings[n] for n in schema.names if n in encodings))


@dataclass(frozen=True)
class WovenModel:
    """Draws the coordinator's vectors and lets every party make its columns of its part.

    Attributes:
        joint: Draws the parties' parts side by side, in roster order.
        homes: What the parties kept, in that order.
        features: Of all columns.
    """

    joint: Model
    homes: Mapping[str, Home]
    features: Features

    @property
    def takes(self) -> frozenset[str]:
        """Columns that it can be asked for."""
        return self.joint.takes

    @property
    def keeps(self) -> bool:
        """Whether rows have what is given in those columns."""
        return self.joint.keeps

    def shares(self, column: str) -> tuple[float, ...] | None:
        """How frequent each option of a column was, where the model knows."""
        return self.joint.shares(column)

    def save(self, path: Path) -> None:
        """Write the coordinator's model; the parties keep their own."""
        self.joint.save(path)

    def _parts(self) -> list[tuple[str, Home, slice, list[int]]]:
        """Per party: its name, home, place in a joint vector, and its places among features."""
        own: dict[str, list[int]] = {}
        for block in self.features.blocks:
            own.setdefault(block.column, []).extend(range(block.start, block.stop))
        found, start = [], 0
        for name, home in self.homes.items():
            places = [i for one in home.features.encodings for i in own[one.column]]
            found.append((name, home, slice(start, start + home.width), places))
            start += home.width
        return found

    def sample(self, n: int, *, key: Key, given: Matrix | None = None) -> Matrix:
        """Draw feature vectors of all columns; `given` is NaN wherever a row is free."""
        parts = self._parts()
        asked = None
        if given is not None:
            asked = np.full((n, parts[-1][2].stop), np.nan, np.float32)
            for _, home, place, places in parts:
                asked[:, place] = home.encode(given[:, places])
        drawn = self.joint.sample(n, key=key, given=asked)
        X = np.zeros((n, self.features.width), dtype=np.float32)
        for name, home, place, places in parts:
            X[:, places] = home.decode(drawn[:, place], key=fold_in(key, "home", name))
        return X


@dataclass(frozen=True, repr=False)
class Woven(Generated):
    """A fit over parties that hold different columns.

    Attributes:
        model: The coordinator's model and what every party kept: here, in a simulation, in one
            place.
        columns: Every party's columns, its ids among them.
    """

    model: WovenModel
    columns: Mapping[str, tuple[str, ...]] = field(default_factory=dict)

    @property
    def shared(self) -> bool:
        """Whether synthetic columns are put together."""
        return bool(self.settings.get("shared", True))

    @property
    def epsilon(self) -> float:
        """Epsilon of a whole row: what all parties together released about it."""
        events = [entry.event for entries in self.ledgers.values() for entry in entries]
        return epsilon(events, self.budget.delta)

    def sample_table(
        self, num_rows: int | None = None, *, seed: Key | None = None, **way: Any
    ) -> Table:
        """Synthetic rows of all columns; the arguments are those of `Generated.sample`.

        Raises:
            InputError: Columns stay with their parties in this study.
        """
        if not self.shared:
            raise InputError(
                "synthetic columns stay with their parties in this fit (shared=False), so there "
                "is no joined table; sample_parts() draws each party's columns"
            )
        return super().sample_table(num_rows, seed=seed, **way)

    def part_tables(
        self, num_rows: int | None = None, *, seed: Key | None = None, given: Any = None
    ) -> dict[str, Table]:
        """Every party's synthetic columns; row i is the same made-up person in all of them."""
        table = super().sample_table(num_rows, seed=seed, given=given, raked=self.shared)
        return {
            name: table.select([column for column in names if column in table.names])
            for name, names in self.columns.items()
        }

    def sample_parts(
        self, num_rows: int | None = None, *, seed: Key | None = None, given: Any = None
    ) -> dict[str, Any]:
        """Every party's synthetic columns as frames of the kind that was fitted.

        Args:
            num_rows: How many; as many as the model was trained on if None.
            seed: The same seed gives the same rows, and the rows of `sample`; without one, every
                call gives others.
            given: What rows shall have, as `Generated.sample` takes it; only where columns are
                shared, since a party would otherwise learn about another's columns.

        Returns:
            A frame per party; row i is the same made-up person in all of them.

        Raises:
            InputError: Something is given though columns stay with their parties.
        """
        if given is not None and not self.shared:
            raise InputError("given: columns stay with their parties in this fit (shared=False)")
        tables = self.part_tables(num_rows, seed=seed, given=given)
        return {name: table.to_native() for name, table in tables.items()}

    def write_to(self, folder: Path) -> None:
        """Write the coordinator's model and every home into an empty folder.

        What stays with the parties (`shared` is False) only the folder's owner may read.
        """
        super().write_to(folder)
        for i, home in enumerate(self.model.homes.values()):
            place = folder / "homes" / f"{i:04d}"
            place.mkdir(parents=True)
            (place / "features.json").write_text(home.features.to_json())
            if (coder := home.coder()) is not None:
                (place / "coder.safetensors").write_bytes(coder)
        (folder / COLUMNS).write_bytes(msgspec.json.encode(self.columns))
        if not self.shared:
            for path in (folder, *folder.rglob("*")):
                path.chmod(0o700 if path.is_dir() else 0o600)


def read_woven(folder: Path | str, kinds: Mapping[str, Reader]) -> Woven:
    """Read what `Woven.save` wrote.

    Args:
        folder: Where it was saved.
        kinds: Per name of a method, what reads its model and its homes.

    Raises:
        DataError: A file is missing, cut or of another version.
    """
    path = Path(folder)
    plain = read_generated(path, {name: kind.load for name, kind in kinds.items()})
    try:
        columns = msgspec.json.decode(
            (path / COLUMNS).read_bytes(), type=dict[str, tuple[str, ...]]
        )
        homes = {
            name: _read_home(path / "homes" / f"{i:04d}", kinds[plain.info.name])
            for i, name in enumerate(columns)
        }
    except (OSError, msgspec.MsgspecError, UnicodeDecodeError) as error:
        raise DataError(f"{path} cannot be read as a fit over split columns: {error}") from error
    facts = {field.name: getattr(plain, field.name) for field in fields(plain)}
    model = WovenModel(plain.model, homes, plain.features)
    return Woven(**{**facts, "model": model}, columns=columns)


def _read_home(folder: Path, kind: Reader) -> Home:
    file = folder / "coder.safetensors"
    features = Features.from_json((folder / "features.json").read_text())
    return kind.home(features, file.read_bytes() if file.is_file() else None)
