"""Tables as integer codes, and back.

Every column but ids becomes one small unsigned integer per row. Text and booleans are coded by
position in the schema; numbers and datetimes by bins between declared bounds, equally wide or cut
as `Cuts` say; a missing value is the last code of a column that may have one. Nothing is learned
from the rows.

Equal-width bins of a skewed column are nearly all empty, and one holds nearly everything. So in
`ResolutionLevels` a column of numbers is counted in fine bins and in coarser ones made of 16 each,
up to 32 at most; a coarse bin is then divided as its fine ones say, but only where these differ by
more than their noise does. Hay, Rastogi, Miklau & Suciu 2010, "Boosting the accuracy of
differentially private histograms through consistency", has the hierarchy; which bins are divided is
ours.

A few rows hold much of such a column's total, and noise leaves a few rows in bins that are empty. A
row that noise puts a thousand times too far counts a thousand rows: unmended, a total came out two
to seven times too large at epsilon = 1. So beyond the last octave (the values up to a number's
double) that stands out of the noise, counts thin out from octave to octave.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import pairwise
from math import prod
from typing import Any, Literal, NamedTuple, Protocol

import msgspec
import numpy as np
from numpy.typing import NDArray

from siloweave.errors import CapacityError, DataError, SchemaError
from siloweave.tables.arrays import Bools, Floats, Ints
from siloweave.tables.bins import (
    Cuts,
    Edges,
    as_written,
    cut_edges,
    draw,
    edges_of,
    last_of,
    value_count,
)
from siloweave.tables.cells import PlacedCells, check_values, label_series, placed_cells
from siloweave.tables.column import Column
from siloweave.tables.keys import Key, fold_in, generator
from siloweave.tables.read import read
from siloweave.tables.schema import VERSION, Schema, check_columns, versioned
from siloweave.tables.table import Table, digest_of

Clique = tuple[str, ...]
"""Distinct attribute names, in domain order."""
_Unsigned = NDArray[np.unsignedinteger]
_Mask = Bools
# Bins of one column, since tables of them are made.
_MOST_BINS = 2**22
# Bins of all columns together.
_MOST_IN_ALL = 2**24


@dataclass(frozen=True)
class Domain:
    """The distinct names of attributes, in domain order, with their numbers of codes, at least 1.

    Raises:
        SchemaError: When names repeat, or sizes do not fit them.

    Example:
        >>> domain = Domain(("age", "sex"), (5, 2))
        >>> domain.shape(("age", "sex")), domain.size(), domain.canonical(("sex", "age"))
        ((5, 2), 10, ('age', 'sex'))
    """

    names: tuple[str, ...]
    sizes: tuple[int, ...]

    def __post_init__(self) -> None:
        if len(self.names) != len(self.sizes):
            raise SchemaError(
                f"a domain of {len(self.names)} names has {len(self.sizes)} sizes"
            )
        if len(set(self.names)) < len(self.names):
            raise SchemaError(
                f"a domain names an attribute twice: {', '.join(self.names)}"
            )
        if any(size < 1 for size in self.sizes):
            raise SchemaError(f"domain sizes must be at least 1, not {min(self.sizes)}")

    @cached_property
    def positions(self) -> Mapping[str, int]:
        """The position of each attribute in the domain order."""
        return {name: i for i, name in enumerate(self.names)}

    @cached_property
    def _size(self) -> Mapping[str, int]:
        """The number of codes of each attribute."""
        return dict(zip(self.names, self.sizes, strict=True))

    def position(self, name: str) -> int:
        """Return an attribute's position in the domain order; SchemaError for an unknown one."""
        if name not in self.positions:
            raise SchemaError(
                f"the domain has no attribute {name!r}; it has {', '.join(self.names)}"
            )
        return self.positions[name]

    def size_of(self, name: str) -> int:
        """Return the number of codes of an attribute."""
        return self.sizes[self.position(name)]

    def shape(self, clique: Sequence[str]) -> tuple[int, ...]:
        """Return the sizes of a clique's attributes, in the clique's order."""
        # Asked very often: look the sizes up, and find words for an error only where that fails.
        try:
            return tuple([self._size[name] for name in clique])
        except KeyError:
            return tuple(self.size_of(name) for name in clique)

    def size(self, clique: Sequence[str] | None = None) -> int:
        """Return the number of cells of a clique, or of the whole domain; 1 for the empty one."""
        sizes = self.sizes if clique is None else self.shape(clique)
        return prod(sizes)

    def canonical(self, names: Iterable[str]) -> Clique:
        """Turn names into a clique: each once, in domain order; SchemaError for an unknown one."""
        return tuple(sorted(set(names), key=self.position))

    def project(self, names: Iterable[str]) -> Domain:
        """Return the domain of some attributes, in domain order."""
        clique = self.canonical(names)
        return Domain(clique, self.shape(clique))


class CountedRows(Protocol):
    """Rows that can be counted by their codes. Conforming: `Codes`, `DatabaseCodes`."""

    @property
    def domain(self) -> Domain:
        """The domain of the codes."""

    @property
    def num_rows(self) -> int:
        """The number of rows."""

    def count(self, cliques: Sequence[Sequence[str]]) -> list[Ints]:
        """Count the rows in every cell of each clique, see `Codes.count`."""

    def digest(self) -> bytes:
        """Return bytes by which a resumed run recognises the same rows."""


@dataclass(frozen=True, eq=False, repr=False)
class Codes:
    """The codes of a table: one unsigned array per attribute, of the smallest type that fits.

    Raises:
        DataError: When the arrays do not fit the domain or each other.

    Example:
        >>> codes = Codes(Domain(("a", "b"), (2, 3)), (np.array([0, 1]), np.array([2, 1])))
        >>> codes.flat(("a", "b")).tolist()
        [2, 4]
    """

    domain: Domain
    columns: tuple[_Unsigned, ...]

    def __post_init__(self) -> None:
        names = self.domain.names
        sizes = self.domain.sizes
        if len(self.columns) != len(names):
            raise DataError(
                f"{len(self.columns)} columns of codes for {len(names)} attributes"
            )
        if len({len(column) for column in self.columns}) > 1:
            raise DataError("columns of codes have different lengths")
        arrays = []
        for name, size, column in zip(names, sizes, self.columns, strict=True):
            array = np.asarray(column)
            if array.ndim != 1 or array.dtype.kind not in "iu":
                raise DataError(
                    f"codes of {name!r} must be one-dimensional whole numbers"
                )
            if len(array) and (int(array.min()) < 0 or int(array.max()) >= size):
                raise DataError(f"codes of {name!r} must be from 0 to {size - 1}")
            dtype = np.min_scalar_type(size - 1)
            arrays.append(array.astype(dtype, copy=False))
        object.__setattr__(self, "columns", tuple(arrays))

    def __repr__(self) -> str:
        return f"Codes({self.num_rows} rows: {', '.join(self.domain.names)})"

    @property
    def num_rows(self) -> int:
        """The number of rows."""
        return len(self.columns[0]) if self.columns else 0

    def digest(self) -> bytes:
        """Return 32 bytes that are equal for equal domain and codes; they stay with the rows."""
        return digest_of(self.domain.names, self.domain.sizes, *self.columns)

    def count(self, cliques: Sequence[Sequence[str]]) -> list[Ints]:
        """Count the rows in every cell of each clique."""
        tables = []
        for clique in cliques:
            counts = np.bincount(self.flat(clique), minlength=self.domain.size(clique))
            tables.append(counts.reshape(self.domain.shape(clique)))
        return tables

    def column(self, name: str) -> _Unsigned:
        """Return one attribute's codes, one per row."""
        return self.columns[self.domain.position(name)]

    def take(self, indices: NDArray[np.integer] | Sequence[int]) -> Codes:
        """Return the rows at some positions, in that order; positions may repeat."""
        rows = np.asarray(indices, dtype=np.intp)
        return _trusted(self.domain, tuple(column[rows] for column in self.columns))

    def flat(self, clique: Sequence[str]) -> Ints:
        """Return each row's cell in a clique's table, int64 in C order (last attribute fastest).

        Raises:
            CapacityError: When the clique has 2**63 cells or more.
        """
        positions = [self.domain.position(name) for name in clique]
        if not positions:
            return np.zeros(self.num_rows, dtype=np.int64)
        if prod(self.domain.sizes[i] for i in positions) >= 2**63:
            raise CapacityError(
                f"the clique {', '.join(clique)} has 2**63 cells or more; use fewer columns or bins"
            )
        index: Ints = self.columns[positions[0]].astype(np.int64)
        for i in positions[1:]:
            index *= self.domain.sizes[i]
            index += self.columns[i]
        return index

    @staticmethod
    def concat(parts: Sequence[Codes]) -> Codes:
        """Stack the rows of several codes, at least one; DataError if their domains differ."""
        if not parts:
            raise DataError("nothing to stack: give at least one set of codes")
        domain = parts[0].domain
        different = [i for i, part in enumerate(parts) if part.domain != domain]
        if different:
            raise DataError(
                f"part {different[0]} is coded in another domain than part 0"
            )
        columns = zip(*(part.columns for part in parts), strict=True)
        return _trusted(domain, tuple(np.concatenate(column) for column in columns))


def _trusted(domain: Domain, columns: tuple[_Unsigned, ...]) -> Codes:
    """Make codes of columns that were checked already."""
    codes = object.__new__(Codes)
    object.__setattr__(codes, "domain", domain)
    object.__setattr__(codes, "columns", columns)
    return codes


@dataclass(frozen=True)
class ReadRows:
    """The codes of rows, and how many cells did not fit their columns.

    Attributes:
        codes: Of every row.
        moved: By column, how many cells were put where the schema declares, see `tables.cells`.
            They are of the rows: for their owner alone.
    """

    codes: Codes
    moved: Mapping[str, int]


class _File(msgspec.Struct, frozen=True):
    """An encoder file."""

    format: Literal["siloweave-encoder"]
    version: int
    columns: tuple[Column, ...]
    bins: int
    bins_per_column: dict[str, int]
    cuts: dict[str, Cuts] = {}


@dataclass(frozen=True)
class Encoder:
    """The mapping from a schema's columns to codes and back, which depends on its arguments alone.

    A categorical or boolean column has one code per value. Integers and datetimes with no more
    values than bins have one code per value, else equal-width bins of whole values; continuous
    columns have equal-width bins. ``missing`` adds a last code. Columns of kind ``id`` and
    ``text`` are left out.

    Args:
        schema: Facts about every column; numbers and datetimes need both bounds.
        bins: How many bins a column of numbers or datetimes has at most, at least 1.
        bins_per_column: Other numbers of bins for some columns.
        cuts: Where bins of some columns begin, instead of equally wide bins.

    Raises:
        SchemaError: When a bound is not declared, bins are below 1 or for no such column, or cuts
            do not rise from one bound to the other.

    Example:
        >>> schema = Schema((Column("age", "integer", low=0, high=99),))
        >>> encoder = Encoder(schema, bins=10)
        >>> table = Table.from_columns({"age": (np.array([5, 99]), None)})
        >>> encoder.encode(table).column("age").tolist()
        [0, 9]
    """

    schema: Schema
    bins: int = 32
    bins_per_column: dict[str, int] | None = None
    cuts: Mapping[str, Cuts] | None = None

    def __post_init__(self) -> None:
        bins_by_name = dict(self.bins_per_column or {})
        cuts = dict(self.cuts or {})
        object.__setattr__(self, "bins_per_column", bins_by_name)
        object.__setattr__(self, "cuts", cuts)
        for name, bins in (("bins", self.bins), *bins_by_name.items()):
            if isinstance(bins, bool) or bins < 1:
                raise SchemaError(
                    f"{name}: {bins!r} bins; give a whole number of 1 or more"
                )
            if bins > _MOST_BINS:
                raise SchemaError(f"{name}: {bins:,} bins; give {_MOST_BINS:,} or less")
        for where, names in (("bins_per_column", bins_by_name), ("cuts", cuts)):
            for name in names:
                if not self.schema[name].is_binned:
                    raise SchemaError(
                        f"{where}: column {name!r} is not binned; leave it out"
                    )
        for column in self.schema.columns:
            if column.is_binned and (column.low is None or column.high is None):
                raise SchemaError(
                    f"column {column.name!r} has no declared low and high; add both (Schema.detect "
                    "proposes them from data), or let the run learn them (learn = 0.1)"
                )
        self._check_all_bins()
        self._edges  # noqa: B018  bounds that float64 cannot bin are found here, not later

    def _check_all_bins(self) -> None:
        """Raise SchemaError if all columns together have more bins than memory holds."""
        cuts = self.cuts or {}
        total = 0.0
        for column in self.schema.coded:
            if column.is_binned and column.name not in cuts:
                total += min(self._most_bins(column.name), value_count(column))
        if total > _MOST_IN_ALL:
            raise SchemaError(
                f"bins: all columns together have {total:,.0f}; give fewer for each, and "
                f"{_MOST_IN_ALL:,} or less in all"
            )

    def _most_bins(self, name: str) -> int:
        """Return the most bins of equal width that a column may have."""
        return (self.bins_per_column or {}).get(name, self.bins)

    @cached_property
    def domain(self) -> Domain:
        """The coded attributes: every column but ids, in schema order."""
        sizes = {c.name: self._values(c) + c.missing for c in self.schema.coded}
        return Domain(tuple(sizes), tuple(sizes.values()))

    @cached_property
    def _edges(self) -> dict[str, Edges]:
        """The edges of bins, by column, for columns that have bins."""
        cuts = self.cuts or {}
        edges: dict[str, Edges] = {}
        for column in self.schema.coded:
            name = column.name
            if name in cuts:
                edges[name] = cut_edges(column, cuts[name])
            elif column.is_binned:
                edges[name] = edges_of(column, self._most_bins(name))
        return edges

    def edges(self, name: str) -> Edges:
        """Return the edges of a binned column's bins; see `bins.edges_of`."""
        return self._edges[name]

    def select(self, names: Sequence[str]) -> Encoder:
        """Return an encoder of some columns, coded as here, in the order given."""
        bins_per_column = self.bins_per_column or {}
        all_cuts = self.cuts or {}
        bins = {n: bins_per_column[n] for n in bins_per_column if n in names}
        cuts = {n: all_cuts[n] for n in all_cuts if n in names}
        return Encoder(self.schema.select(names), self.bins, bins, cuts)

    def _values(self, column: Column) -> int:
        """Count the codes of a column that stand for a value."""
        if column.is_binned:
            return len(self._edges[column.name]) - 1
        return len(column.options)

    def encode(self, table: Any) -> Codes:
        """Encode a table's rows, in their order.

        Args:
            table: A `Table`, frame or path; has every coded column of the schema, and no column
                that the schema lacks.

        Raises:
            SchemaError: When columns differ from the schema's, or rows hold a value outside it
                (says how many, never which); an unseen category goes to ``other`` if declared,
                and a number beyond bounds that were learned is moved inside.
        """
        return self.read(table).codes

    def read(self, table: Any) -> ReadRows:
        """Encode a table's rows as `encode` does, and count the cells that had to be moved."""
        table = read(table)
        check_columns(self.schema, table)
        arrays = []
        moved: dict[str, int] = {}
        for column, size in zip(self.schema.coded, self.domain.sizes, strict=True):
            cells = placed_cells(column, table)
            has_bins = column.is_binned
            codes = self._binned(column, table, cells) if has_bins else cells.values
            if cells.missing.any():
                codes = np.where(cells.missing, self._values(column), codes)
            arrays.append(codes.astype(np.min_scalar_type(size - 1)))
            num_moved = table.rows_of(cells.moved)
            if num_moved:
                moved[column.name] = num_moved
        return ReadRows(_trusted(self.domain, tuple(arrays)), moved)

    def _binned(self, column: Column, table: Table, cells: PlacedCells) -> Ints:
        """Return the bin of each cell of a column; SchemaError for values outside its bounds."""
        edges = self._edges[column.name]
        last = last_of(column)
        values = cells.values
        # Bounds that were learned are released: a refusal would show a row beyond them, unpaid.
        if {"low", "high"} <= set(column.learned):
            values = np.clip(values, edges[0], last)
        check_values(column, table, values, cells.missing, edges[0], last)
        return np.searchsorted(edges[1:-1], values, side="right")

    def decode(
        self,
        codes: Codes,
        *,
        key: Key,
        like: Any = None,
        spikes: Mapping[str, Mapping[int, float]] | None = None,
    ) -> Table:
        """Turn codes back into a table of the schema's modelled columns, in order.

        Args:
            codes: In this encoder's domain; DataError if they are not.
            key: Where inside its bin a value falls: uniform, whole where the column is.
            like: The result's frame and types are those of this `Table` or frame; a categorical
                type lists the schema's categories, whatever the table's own type lists.
            spikes: Bins of a column that hold one value alone, and that value.
        """
        if codes.domain != self.domain:
            raise DataError(
                "these codes were made by another encoder: the domains differ"
            )
        like = None if like is None else read(like)
        all_spikes = spikes or {}
        all_cuts = self.cuts or {}
        columns: dict[str, tuple[Any, _Mask | None]] = {}
        for column in self.schema.coded:
            name = column.name
            places = codes.column(name).astype(np.int64)
            if not column.is_binned:
                columns[name] = label_series(column, places), None
                continue
            is_missing = places >= self._values(column)
            places = np.where(is_missing, 0, places)
            # A stream of its own for each column: leaving one out does not change the others.
            random = generator(fold_in(key, "decode", name))
            column_spikes = all_spikes.get(name, {})
            cuts = all_cuts.get(name)
            edges = self._edges[name]
            numbers = draw(column, edges, places, random, column_spikes, cuts)
            values = as_written(column, numbers, like)
            gaps = is_missing if column.missing else None
            columns[name] = (values, gaps)
        categories = {column.name: column.categories for column in self.schema.columns}
        return Table.from_columns(columns, like, categories)

    def to_json(self) -> str:
        """Return the encoder as JSON text, with a version; `from_json` reads it back."""
        bins = self.bins_per_column or {}
        cuts = dict(self.cuts or {})
        columns = self.schema.columns
        file = _File("siloweave-encoder", VERSION, columns, self.bins, bins, cuts)
        return msgspec.json.format(msgspec.json.encode(file), indent=2).decode()

    @classmethod
    def from_json(cls, text: str | bytes) -> Encoder:
        """Read an encoder that `to_json` wrote; SchemaError names the field that is wrong."""
        file = versioned(text, _File, "an encoder file")
        return cls(Schema(file.columns), file.bins, file.bins_per_column, file.cuts)


# Counts at several resolution levels

# A bin has so many bins of the next level.
_BRANCH = 16
# The coarsest level has at most so many bins.
_COARSE = 32
# Parts differ from equal shares by so many standard deviations of a chi-squared.
_DOUBT = 3.0


def consistent(counts: NDArray[Any], total: float) -> Floats:
    """Return the nearest counts that are not negative and sum to `total` (above 0).

    Noise makes empty cells look occupied half of the time; what is subtracted from all cells alike
    until the sum is right empties most of them again (projection onto a simplex). Counts below the
    largest are as good, and leave it above a sum that rounding would lose beside it.
    """
    values = np.asarray(counts, dtype=np.float64) - np.max(counts)
    falling = np.sort(values)[::-1]
    # What would be subtracted if only the so many largest counts stayed above 0.
    thresholds = (np.cumsum(falling) - total) / np.arange(1, len(values) + 1)
    last_above = np.flatnonzero(falling > thresholds)[-1]
    projected: Floats = np.maximum(values - thresholds[last_above], 0.0)
    return projected


class _TableSize(NamedTuple):
    """The size of a table of counts: its column, the fine bins in one bin, and its cells."""

    name: str
    width: int
    cells: int


def _bins_of(values: int, width: int) -> int:
    """Count the bins of a width that hold so many fine ones; the last may hold fewer."""
    return -(-values // width)


@dataclass(frozen=True)
class ResolutionLevels:
    """Tables of counts at several widths of bins: one per column, or more if it has many bins.

    A row is in one cell of each table, or in no cell of a finer one where its value is missing.
    The encoder's codes are the finest level.
    """

    encoder: Encoder

    @cached_property
    def widths(self) -> dict[str, tuple[int, ...]]:
        """The number of the finest bins in one bin of each level, the coarsest level first."""
        widths_by_name = {}
        for name in self.encoder.domain.names:
            widths = [1]
            if self.encoder.schema[name].is_binned:
                while _bins_of(self._value_codes(name), widths[0]) > _COARSE:
                    widths.insert(0, widths[0] * _BRANCH)
            widths_by_name[name] = tuple(widths)
        return widths_by_name

    def _value_codes(self, name: str) -> int:
        """Count the codes of a column that stand for a value."""
        return self.encoder.domain.size_of(name) - self.encoder.schema[name].missing

    @cached_property
    def _sizes(self) -> list[_TableSize]:
        """The size of each table, the coarsest of a column first."""
        sizes = []
        for name, widths in self.widths.items():
            for i, width in enumerate(widths):
                # A missing value is in the coarsest table alone.
                has_missing = self.encoder.schema[name].missing and i == 0
                bins = _bins_of(self._value_codes(name), width)
                sizes.append(_TableSize(name, width, bins + has_missing))
        return sizes

    @property
    def number(self) -> int:
        """The number of tables."""
        return len(self._sizes)

    @property
    def cells(self) -> int:
        """The number of cells in all tables."""
        return sum(size.cells for size in self._sizes)

    def count(self, rows: CountedRows) -> Ints:
        """Return exact counts of all tables one after the other, (cells,)."""
        names = self.encoder.domain.names
        one_way = rows.count([(name,) for name in names])
        counts = dict(zip(names, one_way, strict=True))
        tables = []
        for name, width, cells in self._sizes:
            codes = np.arange(len(counts[name]))
            # A missing value is the last cell of the coarsest table, and beyond that of finer ones.
            is_coarsest = width == self.widths[name][0]
            missing_place = cells - 1 if is_coarsest else cells
            is_value = codes < self._value_codes(name)
            places = np.where(is_value, codes // width, missing_place)
            table = np.zeros(cells + 1, dtype=np.int64)
            np.add.at(table, places, counts[name])
            tables.append(table[:cells])
        return np.concatenate(tables)

    def columns(
        self, counts: NDArray[Any], rows: int, sigma: float
    ) -> dict[str, Floats]:
        """Combine all levels into each column's counts, which are 0 or more and sum to `rows`.

        `counts` are noisy, (cells,), with noise of deviation `sigma`; DataError if of other tables.
        """
        if np.shape(counts) != (self.cells,):
            cells = f"{self.number} tables have {self.cells} cells"
            raise DataError(f"counts have shape {np.shape(counts)}; {cells}")
        ends = np.cumsum([size.cells for size in self._sizes])
        tables = np.split(np.asarray(counts), ends[:-1])

        columns: dict[str, Floats] = {}
        levels: dict[str, list[LevelCounts]] = {}
        for (name, width, _), table in zip(self._sizes, tables, strict=True):
            values = self._value_codes(name)
            bins = _bins_of(values, width)
            levels.setdefault(name, []).append(LevelCounts(width, table[:bins]))
            if name in columns:
                fine = columns[name][:values]
                columns[name][:values] = _divided(fine, table, width, sigma)
            else:
                coarse = consistent(table, float(rows))
                columns[name] = np.append(
                    _spread(coarse[:bins], width, values), coarse[bins:]
                )

        # Bins that were cut are narrower near 0 (`octaves`): the column may be skewed.
        for name in self.encoder.cuts or {}:
            edges = self.encoder.edges(name)
            values = self._value_codes(name)
            fine = columns[name][:values]
            columns[name][:values] = thinned(fine, levels[name], edges, sigma)
        return columns


def _spread(bins: Floats, width: int, size: int) -> Floats:
    """Share each bin's count equally among its finest bins; the last bin may have fewer."""
    fine = np.arange(size) // width
    spread: Floats = bins[fine] / np.bincount(fine)[fine]
    return spread


def _divided(fine: Floats, counts: NDArray[Any], width: int, sigma: float) -> Floats:
    """Divide the bins of finest counts by the noisy counts of the next finer level.

    A bin is divided only where its parts differ from equal shares by more than noise does: the sum
    of squares is then three deviations above what a chi-squared distribution expects.
    """
    place = np.arange(len(fine)) // width
    # The bins as far as coarser levels say.
    parts: Floats = np.bincount(place, weights=fine).astype(np.float64)
    for start in range(0, len(parts), _BRANCH):
        siblings = slice(start, start + _BRANCH)
        noisy = counts[siblings]
        rows = float(parts[siblings].sum())
        squares = float(((noisy - parts[siblings]) ** 2).sum())
        chi_squared = squares / max(sigma, 1e-9) ** 2
        limit = len(noisy) + _DOUBT * (2.0 * len(noisy)) ** 0.5
        if rows > 0.0 and chi_squared > limit:
            parts[siblings] = consistent(noisy, rows)
    return _spread(parts, width, len(fine))


# The far end of a skewed column

_SHARE = 0.5
"""Of an octave's rows the next one has no more: a tail that thins out more slowly has no mean."""
# In deviations of noise; some twenty octaves are looked at.
_STANDS_OUT = 3.5
# In deviations of noise, of one counted bin: there are many.
_SINGLE = 4.5
# No octave begins in so many fine bins next to 0.
_INNER = 64
# In deviations of what noise explains: thinned counts agree with noisy ones up to here.
_AGREES = 2.5


class LevelCounts(NamedTuple):
    """The noisy counts of a column's bins on one level.

    Attributes:
        width: Fine bins in each bin of this level; the last one may hold fewer.
        counts: One for each bin.
    """

    width: int
    counts: NDArray[Any]


def thinned(
    fine: Floats, levels: Sequence[LevelCounts], edges: NDArray[Any], sigma: float
) -> Floats:
    """Thin out the far ends of a column's counts, where noise hides how many rows there are.

    Args:
        fine: Counts of the fine bins as far as the levels show them, 0 or more.
        levels: The noisy counts, coarsest level first; the last has width 1.
        edges: Of the fine bins, one more than these.
        sigma: Standard deviation of the noise.

    Example:
        >>> edges = np.concatenate([np.arange(64), 2.0 ** np.linspace(6, 16, 641)])
        >>> exact = np.where(edges[:-1] < 100, 50.0, 0.0)
        >>> noisy = exact + np.random.default_rng(0).normal(0, 5, len(exact))
        >>> clipped = np.maximum(noisy, 0)
        >>> thin = thinned(clipped, [LevelCounts(1, noisy)], edges, 5.0)
        >>> middles = (edges[:-1] + edges[1:]) / 2
        >>> [round(float(counts @ middles / counts.sum())) for counts in (exact, clipped, thin)]
        [51, 1874, 240]
    """
    for octaves in (_octaves(edges, sign=1), _octaves(edges, sign=-1)):
        if len(octaves) > 2:
            fine = _thinned_side(fine, levels, octaves, sigma)
    return fine


def _octaves(edges: NDArray[Any], sign: int) -> list[int]:
    """Return the fine bins at which octaves begin on one side of 0, from near 0 to the end."""
    values = np.asarray(edges, dtype=np.float64)
    end = values[-1]
    last_place = len(values) - 1
    if sign < 0:
        end = -values[0]
        last_place = 0
    far = float(end)
    first_beyond_0 = int(np.searchsorted(values, 0.0))
    bounds = [last_place]
    while far > 0:
        far /= 2
        place = int(np.searchsorted(values, sign * far))
        if abs(place - first_beyond_0) <= _INNER or place == bounds[-1]:
            break
        bounds.append(place)
    return bounds[::-1]


def _thinned_side(
    fine: Floats, levels: Sequence[LevelCounts], octaves: Sequence[int], sigma: float
) -> Floats:
    """Thin out one side, beyond the furthest octave that stands out of the noise.

    Where noise is as large as what there is, an octave near 0 may be the furthest that stands out,
    of evenly spread rows. So they go nearer to 0 only where rows are seen there, and the tail
    begins at the nearest octave that the noisy counts do not contradict.
    """
    rows = float(fine.sum())
    last = _last_that_stands_out(levels, octaves, rows, sigma)
    if last is None:
        return fine
    beyond = _rows_beyond(levels, octaves, last + 1, rows)
    if rows - beyond.rows < _AGREES * sigma * beyond.bins**0.5:
        return fine

    # The last octave has none beyond it.
    for octave in range(last, len(octaves) - 2):
        thin = _thinned_beyond(fine, octaves, octave)
        if _agrees(thin, levels, octaves, octave + 1, sigma):
            return thin
    return fine


def _thinned_beyond(fine: Floats, octaves: Sequence[int], last: int) -> Floats:
    """Thin out the octaves beyond one of them, see `thinned`."""
    bins = [slice(*sorted(pair)) for pair in pairwise(octaves)]
    tail = bins[last + 1 :]

    # From octave to octave the tail has the share that the last two have, but half at most.
    rows = float(fine[bins[last]].sum())
    rows_before = float(fine[bins[last - 1]].sum()) if last else 0.0
    share = min(_SHARE, rows / rows_before) if rows_before > 0 else _SHARE
    expected = rows * share ** np.arange(1, len(tail) + 1)
    # What noise leaves there is seldom less than there is, and mostly more.
    tail_rows = sum(float(fine[octave].sum()) for octave in tail)
    if expected.sum() > tail_rows:
        expected *= tail_rows / expected.sum()

    # The tail's other rows go to all bins nearer to 0, so that the number of rows stays.
    total = float(fine.sum())
    changed = fine.copy()
    for octave in tail:
        changed[octave] = 0.0
    nearer = float(changed.sum())
    if nearer <= 0:
        return fine
    changed *= (total - float(expected.sum())) / nearer
    for octave, count in zip(tail, expected, strict=True):
        changed[octave] = count / (octave.stop - octave.start)
    return changed


def _agrees(
    thin: Floats,
    levels: Sequence[LevelCounts],
    octaves: Sequence[int],
    first: int,
    sigma: float,
) -> bool:
    """Return whether noise explains how noisy counts differ from thinned ones.

    Args:
        thin: Thinned counts of the fine bins.
        levels: The noisy counts.
        octaves: Where octaves begin.
        first: The first octave of the tail.
        sigma: Standard deviation of the noise.
    """
    # All bins of the coarsest level together, by the sum of squares, as in `_divided`.
    width, counts = levels[0]
    parts = np.bincount(np.arange(len(thin)) // width, weights=thin)
    squares = float(((counts - parts) ** 2).sum())
    chi_squared = squares / max(sigma, 1e-9) ** 2
    if chi_squared > len(counts) + _AGREES * (2.0 * len(counts)) ** 0.5:
        return False

    # The ends of the tail as a whole, whose rows may be too few in each bin to be noticed.
    rows = float(thin.sum())
    for octave in range(first, len(octaves) - 1):
        beyond = _rows_beyond(levels, octaves, octave, rows)
        end = slice(*sorted((octaves[octave], octaves[-1])))
        excess = beyond.rows - float(thin[end].sum())
        if excess > _AGREES * sigma * beyond.bins**0.5:
            return False
    return True


def _last_that_stands_out(
    levels: Sequence[LevelCounts], octaves: Sequence[int], rows: float, sigma: float
) -> int | None:
    """Return the furthest octave whose rows stand out of the noise, or None.

    Rows do where there are many from the octave on, or many in one bin of the second coarsest
    level; and those before the second octave where there are many of them.
    """
    middle = levels[min(1, len(levels) - 1)]
    for octave in range(len(octaves) - 2, 0, -1):
        beyond = _rows_beyond(levels, octaves, octave, rows)
        if beyond.rows > _STANDS_OUT * sigma * beyond.bins**0.5:
            return octave
        first, stop = sorted(octaves[octave : octave + 2])
        inside = middle.counts[-(-first // middle.width) : -(-stop // middle.width)]
        if len(inside) and inside.max() > _SINGLE * sigma:
            return octave
    beyond = _rows_beyond(levels, octaves, 1, rows)
    near = _Sum(rows - beyond.rows, beyond.bins)
    return 0 if near.rows > _STANDS_OUT * sigma * near.bins**0.5 else None


def _rows_beyond(
    levels: Sequence[LevelCounts], octaves: Sequence[int], octave: int, rows: float
) -> _Sum:
    """Estimate the number of rows from an octave on, away from 0."""
    above = _Sums(levels, rows).from_bin(octaves[octave])
    is_upper = octaves[-1] > octaves[0]
    return above if is_upper else _Sum(rows - above.rows, above.bins)


class _Sum(NamedTuple):
    """A noisy number of rows, and the number of counted bins in it."""

    rows: float
    bins: int


@dataclass(frozen=True)
class _Sums:
    """Sums of noisy counts from as few counted bins as possible, as their noise adds up."""

    levels: Sequence[LevelCounts]
    rows: float

    def from_bin(self, place: int) -> _Sum:
        """Estimate the rows from a fine bin on, to the last bin."""
        size = len(self.levels[-1].counts)
        return self._within(0, 0, size, _Sum(self.rows, 0), place)

    def _within(
        self, depth: int, first: int, stop: int, whole: _Sum, place: int
    ) -> _Sum:
        """Estimate the rows in [place, stop), where [first, stop) has `whole`.

        They are the bins beyond, or what is left of the whole without the bins before.
        """
        if place <= first:
            return whole
        if place >= stop or depth == len(self.levels):
            return _Sum(0.0, 0)
        width, counts = self.levels[depth]
        cut = place // width
        bins = range(first // width, -(-stop // width))
        beyond = [bin_ for bin_ in bins if bin_ * width >= place]
        before = [bin_ for bin_ in bins if (bin_ + 1) * width <= place]
        part = _Sum(0.0, 0)
        rest = _Sum(0.0, 0)
        if place % width:
            # The place is inside a bin, which finer levels divide.
            bin_ = _Sum(float(counts[cut]), 1)
            bin_stop = min((cut + 1) * width, stop)
            part = self._within(depth + 1, cut * width, bin_stop, bin_, place)
            rest = _Sum(bin_.rows - part.rows, part.bins + 1)

        # Two ways to the same number: the one of fewer counted bins has less noise.
        added = _Sum(float(counts[beyond].sum()) + part.rows, len(beyond) + part.bins)
        rows_before = float(counts[before].sum())
        rows_left = whole.rows - rows_before - rest.rows
        subtracted = _Sum(rows_left, whole.bins + len(before) + rest.bins)
        return min(added, subtracted, key=lambda way: way.bins)
