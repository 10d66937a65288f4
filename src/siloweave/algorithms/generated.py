"""What a central generator leaves: a model of feature vectors, its ledger, and what it cost.

**Guarantee**: none of its own; what the ledger holds is what protects the rows. Sampling reads the
model alone and is post-processing (Dwork & Roth 2014, "The algorithmic foundations of differential
privacy", proposition 2.1).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from math import ceil, inf
from pathlib import Path
from typing import Any, Protocol

import msgspec
import numpy as np
import numpy.typing as npt

from siloweave.algorithms.given import balanced_column, conditions, equally, imposed
from siloweave.algorithms.outcome import Cost, Info, Kept, Outcome, key_for, rows_asked
from siloweave.algorithms.rejection import AskedCells, accepted, shares_in
from siloweave.errors import DataError
from siloweave.models.raking import chosen, enough
from siloweave.privacy.budget import Budget, Relation
from siloweave.privacy.ledger import Entry
from siloweave.tables.codes import running
from siloweave.tables.features import Features
from siloweave.tables.keys import Key, fold_in
from siloweave.tables.one_way import OneWay
from siloweave.tables.read import Table
from siloweave.tables.schema import Schema

__all__ = ["GENERATED", "Generated", "Matrix", "Model", "read_generated"]

GENERATED = "generated.json"
"""File of a saved fit of networks."""

Matrix = npt.NDArray[np.float32]
"""Feature vectors, one per row."""

_ONE_WAY = "one_way.json"
_SPARE, _MOST = 1.5, 4.0  # rows drawn for each that raking takes, at first and at most,
_MORE = 1000  # and besides: few rows are chosen well among more of them
_FEW = 100  # fewer rows are not raked


class Model(Protocol):
    """A generator of feature vectors. Conforming: `CopulaModel`, and all `NetworkModel`."""

    @property
    def takes(self) -> frozenset[str]:
        """Columns that `given` may name."""

    @property
    def keeps(self) -> bool:
        """Whether rows have what is given in those columns; else only more often."""

    def shares(self, column: str) -> tuple[float, ...] | None:
        """How frequent each option of a column was in the rows, where the model knows."""

    def sample(self, n: int, *, key: Key, given: Matrix | None = None) -> Matrix:
        """Draw rows; `given` is NaN wherever a row is free."""

    def save(self, path: Path) -> None:
        """Write the model as one safetensors file."""


class _Saved(Kept, frozen=True, kw_only=True):
    epsilon: float | None  # None without a bound: JSON has no infinity
    delta: float
    unit: str
    relation: Relation
    num_rows: int


@dataclass(frozen=True, repr=False)
class Generated(Outcome):
    """A fitted generator.

    Attributes:
        model: Draws feature vectors.
        features: Vectors to table and back.
        info: What was run.
        budget: What was allowed; without a bound for a generator without guarantee.
        private: False if no noise was added, or if it came from a seed: then nothing here is
            protected.
        settings: The generator's public settings.
        ledgers: The owner's record.
        heads: Hash at the end of the ledger.
        cost: Bytes, rounds, seconds.
        num_rows: Rows that it was trained on.
        like: An empty table of the kind that was given, for sampling into the same kind; its types
            are the schema's under a guarantee, see `outline`.
        one_way: How single columns were distributed, as it was released; rows are raked to it.
            None where nothing is known.
        simulated: Whether all parties shared one process, which then read every row.
    """

    model: Model
    features: Features
    info: Info
    budget: Budget
    private: bool
    settings: Mapping[str, Any]
    ledgers: Mapping[str, tuple[Entry, ...]]
    heads: Mapping[str, str]
    cost: Cost
    num_rows: int
    like: Table | None = None
    one_way: OneWay | None = None
    simulated: bool = True

    @property
    def schema(self) -> Schema:
        """Facts about every column of a synthetic table."""
        return self.features.schema

    def sample_table(
        self,
        num_rows: int | None = None,
        *,
        seed: Key | None = None,
        given: Any = None,
        balanced: str | bool = False,
        tries: int = 100,
        raked: bool = True,
    ) -> Table:
        """Synthetic rows as a `Table`; the arguments are those of `sample`."""
        num_rows, seed = rows_asked(num_rows), key_for(seed)
        if given is None and balanced is False:
            return self._free(self.num_rows if num_rows is None else num_rows, seed, raked)
        features, known = self.features, [one.column for one in self.features.encodings]
        count, cells = conditions(features.schema, known, given, num_rows, self.num_rows)
        asked = [AskedCells.of(one, features, fold_in(seed, "given", one.name)) for one in cells]
        if balanced is not False:
            target = self.settings.get("target")
            column = balanced_column(features.schema, balanced, target, cells)
            even = equally(column, shares_in(self.model, features, column, seed), count, seed)
            asked.append(AskedCells.of(even, features, fold_in(seed, "given")))
        X = accepted(self.model, features, count, asked, tries=tries, key=seed)
        rows = features.decode(X, key=fold_in(seed, "values"), like=self.like)
        return imposed(rows, [one.cells for one in asked], self.like)

    def _free(self, count: int, seed: Key, raked: bool) -> Table:
        """Rows of which nothing is given."""
        law = self.one_way if raked and count >= _FEW else None
        drawn = count if law is None else ceil(_SPARE * count) + _MORE
        X = self.model.sample(drawn, key=fold_in(seed, "rows"))
        rows = self.features.decode(X, key=fold_in(seed, "values"), like=self.like)
        if law is None:
            return rows
        lack = enough(law.codes(rows), law.shares, count)
        wanted = ceil(min(drawn * lack, _MOST * count + _MORE))
        if wanted > drawn:
            more = self.model.sample(wanted - drawn, key=fold_in(seed, "more rows"))
            X = np.concatenate([X, more])
            rows = self.features.decode(X, key=fold_in(seed, "values"), like=self.like)
        kept = rows.take(chosen(law.codes(rows), law.shares, count, key=seed))
        kept = self._numbered(kept)
        return law.moved(kept, rows)

    def _numbered(self, rows: Table) -> Table:
        """Rows with ids from 1: those that were chosen have the ids of all that were drawn."""
        ids = [c.name for c in self.features.schema.columns if c.kind == "id"]
        if not ids:
            return rows
        columns: dict[str, tuple[Any, Any]] = {
            name: (running(rows.num_rows, name, self.like), None)
            if name in ids
            else (rows.values(name), rows.missing(name))
            for name in rows.names
        }
        return Table.from_columns(columns, rows)

    def sample(
        self,
        num_rows: int | None = None,
        *,
        seed: Key | None = None,
        given: Any = None,
        balanced: str | bool = False,
        tries: int = 100,
        raked: bool = True,
    ) -> Any:
        """Synthetic rows as a frame of the kind that was fitted.

        Under a guarantee, types of columns follow from the schema alone (`tables.outline`), not
        from the frame that was fitted.

        Rows of which nothing is given are raked: half as many again and 1,000 more are drawn, up to
        four times as many and 1,000 where the model makes some values too rarely, and those kept
        with which single columns are distributed as they were released (models/raking.py). Numbers
        that are still far off after that are moved in their order (tables/quantile_map.py).

        What is given is in the rows to the letter. Other columns follow it by the model's own
        conditional law where it has one: exactly for a Gaussian copula and for the target of a
        diffusion; nearly for other columns of TabDDPM and of diffusions of points, which are put in
        place again at every step.
        GANs are told categories, and all models are asked again for rows that do not match.

        Args:
            num_rows: How many; as many as the model was trained on, or as `given` has, if None.
            seed: The same seed gives the same rows; without one, every call gives others.
            given: What rows shall have: a mapping of column to value (None, NaN or NA: missing),
                or a frame with one row per wanted row, where a cell without a value is free.
            balanced: A column of categories or booleans, whose classes are then equally frequent;
                True for the target.
            tries: Rows drawn at most for each that is wanted (and 10,000 in any case), before
                matching ones are called too rare.
            raked: Whether to rake; without it, rows are as the model draws them. Fewer than 100
                rows are never raked.

        Raises:
            InputError: There is no such column, no target, `num_rows` does not fit, or matching
                rows are too rare; the message says how rare.
            SchemaError: A value is outside the schema.

        Example:
            >>> from siloweave.algorithms.copulas import GaussianCopula
            >>> from siloweave.datasets import adult, adult_schema
            >>> model = GaussianCopula().fit(adult().take(range(300)), adult_schema())
            >>> old = model.sample(4, given={"age": 60, "sex": "Female"}, balanced="income")
            >>> old["age"].tolist(), sorted(old["income"])
            ([60, 60, 60, 60], ['<=50K', '<=50K', '>50K', '>50K'])
        """
        return self.sample_table(
            num_rows, seed=seed, given=given, balanced=balanced, tries=tries, raked=raked
        ).to_native()

    def write_to(self, folder: Path) -> None:
        """Write the fit's files into an empty folder."""
        self.model.save(folder / "model.safetensors")
        (folder / "features.json").write_text(self.features.to_json())
        if self.one_way is not None:
            (folder / _ONE_WAY).write_text(self.one_way.to_json())
        self.keep(
            folder,
            _Saved,
            GENERATED,
            epsilon=self.budget.epsilon if self.budget.private else None,
            delta=self.budget.delta,
            unit=self.budget.unit,
            relation=self.budget.relation,
            num_rows=self.num_rows,
        )


def read_generated(folder: Path | str, models: Mapping[str, Callable[[Path], Model]]) -> Generated:
    """Read what `Generated.save` wrote.

    Args:
        folder: Where it was saved.
        models: Per name of a generator, what reads its model.

    Raises:
        DataError: A file is missing, cut or of another version.
    """
    path = Path(folder)
    try:
        saved = msgspec.json.decode((path / GENERATED).read_bytes(), type=_Saved)
        features = Features.from_json((path / "features.json").read_text())
        like, law = saved.like(path), path / _ONE_WAY
        one_way = OneWay.from_json(law.read_bytes()) if law.is_file() else None
    except (OSError, msgspec.MsgspecError, UnicodeDecodeError) as error:
        raise DataError(f"{path} cannot be read as a saved generator: {error}") from error
    if saved.info.name not in models:
        raise DataError(f"{path} holds a {saved.info.name!r}, which this siloweave does not know")
    bound = inf if saved.epsilon is None else saved.epsilon
    return Generated(
        models[saved.info.name](path / "model.safetensors"),
        features,
        saved.info,
        Budget(bound, saved.delta, saved.unit, saved.relation),
        saved.private,
        saved.settings,
        saved.ledgers,
        saved.heads,
        saved.cost,
        saved.num_rows,
        like,
        one_way,
        saved.simulated,
    )
