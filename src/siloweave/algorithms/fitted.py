"""A fitted graphical model: it samples, also under conditions, and is saved and read.

**Guarantee**: none of its own; sampling is post-processing of what was released (Dwork &
Roth 2014, proposition 2.1).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import msgspec

from siloweave.algorithms.outcome import Cost, Info, Kept, Outcome, key_for, rows_asked
from siloweave.core.conditional import (
    GivenCells,
    balanced_column,
    completed,
    conditions,
    equally,
    imposed,
)
from siloweave.core.fit import Measured
from siloweave.errors import DataError
from siloweave.models.mrf import MRF
from siloweave.privacy.budget import Budget
from siloweave.privacy.ledger import Entry
from siloweave.tables.codes import Codes, Encoder
from siloweave.tables.keys import Key, fold_in
from siloweave.tables.read import Table
from siloweave.tables.schema import Schema

__all__ = ["Fitted", "load"]


class _Saved(Kept, frozen=True, kw_only=True):
    budget: Budget
    measured: tuple[tuple[tuple[tuple[str, ...], ...], float], ...]
    workload: tuple[tuple[str, ...], ...]


@dataclass(frozen=True, repr=False)
class Fitted(Outcome):
    """A fitted synthesizer.

    Attributes:
        model: The distribution over codes.
        encoder: Codes to table and back.
        info: What was run.
        budget: What was allowed.
        private: False if noise came from a seed: then nothing here is protected.
        settings: The synthesizer's public settings.
        ledgers: Every party's record of this and earlier runs.
        heads: Hash at the end of every ledger.
        cost: Bytes, rounds, seconds.
        measured: What each round measured, and how noisily.
        workload: The queries that the run was to get right.
        like: An empty table of the kind that was given, for sampling into the same kind; its types
            are the schema's under a guarantee, see `outline`.
        simulated: Whether all parties shared one process, which then read every row.
    """

    model: MRF
    encoder: Encoder
    info: Info
    budget: Budget
    private: bool
    settings: Mapping[str, Any]
    ledgers: Mapping[str, tuple[Entry, ...]]
    heads: Mapping[str, str]
    cost: Cost
    measured: Sequence[Measured]
    workload: Sequence[tuple[str, ...]] = ()
    like: Table | None = None
    simulated: bool = True

    @property
    def schema(self) -> Schema:
        """Facts about every column of a synthetic table."""
        return self.encoder.schema

    def sample_codes(self, num_rows: int | None = None, *, seed: Key | None = None) -> Codes:
        """Synthetic rows as codes."""
        return self.model.sample(rows_asked(num_rows), key=fold_in(key_for(seed), "rows"))

    def sample_table(
        self,
        num_rows: int | None = None,
        *,
        seed: Key | None = None,
        given: Any = None,
        balanced: str | bool = False,
    ) -> Table:
        """Synthetic rows as a `Table`; the arguments are those of `sample`."""
        num_rows, seed = rows_asked(num_rows), key_for(seed)
        cells: tuple[GivenCells, ...] = ()
        if given is None and balanced is False:
            codes = self.sample_codes(num_rows, seed=seed)
        else:
            schema, known = self.encoder.schema, self.encoder.domain.names
            total = round(self.model.total)
            count, cells = conditions(schema, known, given, num_rows, total)
            if balanced is not False:
                column = balanced_column(schema, balanced, None, cells)
                shares = self.model.marginal((column.name,)).tolist()
                cells = (*cells, equally(column, shares, count, seed))
            codes = completed(self.model, self.encoder, count, cells, seed)
        table = self.encoder.decode(codes, key=fold_in(seed, "values"), like=self.like)
        return imposed(table, cells, self.like)

    def sample(
        self,
        num_rows: int | None = None,
        *,
        seed: Key | None = None,
        given: Any = None,
        balanced: str | bool = False,
    ) -> Any:
        """Synthetic rows as a frame of the kind that was fitted.

        What is given is in the rows to the letter, and the other columns are drawn from the model's
        exact conditional distribution, for which a given number stands for its bin.

        Args:
            num_rows: How many; the estimated number of real rows, or as many as `given` has, if
                None.
            seed: The same seed gives the same rows; without one, every call gives others.
            given: What rows shall have: a mapping of column to value (None, NaN or NA: missing),
                or a frame with one row per wanted row, where a cell without a value is free.
            balanced: A column of categories or booleans, whose classes are then equally frequent.

        Raises:
            InputError: There is no such column, `num_rows` does not fit, or the model gives the
                values probability 0.
            SchemaError: A value is outside the schema.

        Example:
            >>> from siloweave.algorithms.synthesizers import AIM
            >>> from siloweave.datasets import adult, adult_schema
            >>> fitted = AIM(workload=[("sex", "income"), ("age", "income")], bins=8).fit(
            ...     adult().take(range(500)), adult_schema(), budget=Budget(1.0, 1e-6))
            >>> old = fitted.sample(4, given={"age": 60, "sex": "Female"}, balanced="income")
            >>> old["age"].tolist(), sorted(old["income"])
            ([60, 60, 60, 60], ['<=50K', '<=50K', '>50K', '>50K'])
        """
        return self.sample_table(num_rows, seed=seed, given=given, balanced=balanced).to_native()

    def write_to(self, folder: Path) -> None:
        """Write the fit's files into an empty folder."""
        self.model.save(folder / "model.safetensors")
        (folder / "encoder.json").write_text(self.encoder.to_json())
        self.keep(
            folder,
            _Saved,
            "fit.json",
            budget=self.budget,
            measured=tuple((r.cliques, r.sigma) for r in self.measured),
            workload=tuple(self.workload),
        )

    @classmethod
    def load(cls, folder: Path | str) -> Fitted:
        """Read what `save` wrote.

        Raises:
            DataError: if a file is missing, cut or of another version.
        """
        path = Path(folder)
        model = MRF.load(path / "model.safetensors")
        try:
            encoder = Encoder.from_json((path / "encoder.json").read_text())
            saved = msgspec.json.decode((path / "fit.json").read_bytes(), type=_Saved)
            like = saved.like(path)
        except (OSError, msgspec.MsgspecError, UnicodeDecodeError) as error:
            raise DataError(f"{path} cannot be read as a saved fit: {error}") from error
        return cls(
            model,
            encoder,
            saved.info,
            saved.budget,
            saved.private,
            saved.settings,
            saved.ledgers,
            saved.heads,
            saved.cost,
            tuple(Measured(cliques, sigma) for cliques, sigma in saved.measured),
            saved.workload,
            like,
        )


def load(folder: Path | str) -> Fitted:
    """Read a fit that `Fitted.save` wrote.

    Raises:
        DataError: if a file is missing, cut or of another version.
    """
    return Fitted.load(folder)
