"""Local decoders, for methods whose parties hold different columns of the same people.

The setting is that of vertical federated synthesis (Shankar et al. 2024, "SiloFuse"; Jiang et al.
2023, "VertiGAN", PoPETs): rows are aligned before, and row i is the same person at every party. The
coordinator's joint generator draws vectors; every party decodes its part of them into its own
columns, with a local decoder that never leaves it. The columns are put together, or stay with their
parties, as the study says.

**Guarantee**: none of its own; a method's file states its own. One person's row lies at all
parties, so what they release about it adds up: the epsilon of a fit is that of all ledgers
together. Sampling reads what was released and, in a simulation, the local decoders.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, ClassVar, Self

import msgspec
import numpy as np

from siloweave.core.conditional import Generator, Model, Wanted
from siloweave.core.constrained import constrained_rows
from siloweave.core.method import MethodSettings, Result, Setup, Task, shares_columns
from siloweave.core.model import FeatureModel, Pool
from siloweave.core.party import OwnerData, keep_synthetic
from siloweave.core.views import READERS, View
from siloweave.errors import BudgetError, InputError, WireError
from siloweave.federation.expected import MOST_ROWS, CheckedReply
from siloweave.federation.messages import Array, Public, Released, Reply, Request
from siloweave.federation.session import Session
from siloweave.federation.site import Handlers, Site
from siloweave.privacy import events, mechanisms
from siloweave.privacy.budget import Budget, Relation
from siloweave.protocols.networks import from_bytes, jax_key, saved_bytes
from siloweave.tables.arrays import Bools, Floats, Ints, Matrix
from siloweave.tables.bins import as_written
from siloweave.tables.cells import labels_of, numbers_of
from siloweave.tables.codes import Encoder
from siloweave.tables.column import Column
from siloweave.tables.features import Cells, Features, OneWay, far_off
from siloweave.tables.keys import Key, fold_in, key_at, words_of
from siloweave.tables.schema import Schema
from siloweave.tables.table import Table
from siloweave.tables.write import parquet_of

# What a party remembers: its decoder's two parts and, where rows are raked, shares to rake to.
_FEATURES = "decoder/features"
_CODER = "decoder/coder"
_ONE_WAY = "decoder/one_way"


# A party's data


def parts_of(setup: Setup) -> dict[str, Schema]:
    """Return every party's part of the schema, without ids, in roster order."""
    parts: dict[str, Schema] = {}
    for name, columns in setup.columns.items():
        parts[name] = setup.schema.select(list(columns))
    return parts


def columns_data(table: Table, setup: Setup, party: str) -> OwnerData:
    """Return a party's columns, whose rows must fit the schema."""
    schema = parts_of(setup)[party]
    columns = table.select(list(schema.names))
    # Refuses a value that does not fit now, rather than in the middle of a run.
    Encoder(schema).encode(columns)
    return OwnerData(columns, schema)


def column_facts(setup: Setup) -> dict[str, Any]:
    """Return what every party is given of a study: its settings, and who holds which columns."""
    return {**setup.synth.settings(), "parts": parts_of(setup)}


def require_replacing(budget: Budget, sent: str) -> None:
    """Refuse neighbours that differ in the number of rows, where `sent` shows it to all."""
    if budget.relation is not Relation.REPLACE_ONE:
        raise BudgetError(
            f"budget: relation = {str(budget.relation)!r}, but {sent}, so their number is known to "
            "all. Give Budget(..., relation=sw.Relation.REPLACE_ONE), which is for unit = 'row'."
        )


def condition_of(target: str | None, parts: Mapping[str, Schema]) -> str | None:
    """Return the target, unless it is the only column: then there is nothing else to learn."""
    columns = sum(len(part.names) for part in parts.values())
    return target if columns > 1 else None


def readers(shared: bool, protection: str) -> View:
    """Return what readers see: the table, or the columns that each party shows them."""
    sees = READERS.sees
    if not shared:
        sees = "the synthetic columns that their party shows them"
    return View("readers", sees, protection)


def keep_decoder(site: Site[Any], features: Features, coder: Any) -> None:
    """Remember at a party how its columns are made of the coordinator's vectors; it never leaves.

    Takes what a `LocalDecoder` has.
    """
    site.remember(_FEATURES, features.to_json().encode())
    site.remember(_CODER, saved_bytes(coder))


def check_same_rows(counts: Mapping[str, int]) -> None:
    """Refuse parties that do not have the same rows, naming two of them; one of them is wrong."""
    first = next(iter(counts), "")
    for name, rows in counts.items():
        if rows != counts[first]:
            raise WireError(
                f"party {first!r} sent {counts[first]:,} rows and party {name!r} {rows:,}, and "
                "they must hold the same people. The replies were discarded: check which software "
                "these parties run, and start a new run"
            )


def release_rows(
    site: Site[Any], rows: int, event: events.Gaussian | events.Laplace | None
) -> tuple[tuple[Released[int], ...], tuple[Public[int], ...]]:
    """Return how many rows there are, from the first party alone, as all others have the same.

    Paid for, with the noise of `event`; public without one, where neighbours have equally many.
    """
    if site.name != next(iter(site.terms.roster)):
        return (), ()
    if event is None:
        why = "neighbours have the same number of rows"
        return (), (Public(rows, why),)

    def draw() -> int:
        entropy = site.entropy
        if isinstance(event, events.Laplace):
            (number,) = mechanisms.add_laplace([rows], event.scale, entropy=entropy)
        else:
            (number,) = mechanisms.add_gaussian([rows], event.sigma, entropy=entropy)
        return int(number)

    released = site.release(event, "number of rows", draw)
    return (released,), ()


def rows_sent(party: str, sent: Sequence[Released[int] | Public[int]]) -> int:
    """Return how many rows a party sent that it has, at least 1.

    Raises:
        WireError: It sent no such number.
    """
    checked = CheckedReply(party)
    numbers = [number.value for number in sent]
    (value,) = checked.items("numbers of rows", numbers, count=1)
    # With noise it may be below 0.
    rows = checked.number("rows", value, least=-MOST_ROWS, most=MOST_ROWS)
    return max(1, rows)


# Consent to put synthetic columns together


class SharedColumns(Reply, frozen=True):
    """The shares of each column's cells. Where these end, at values of rows, is not sent."""

    shares: Released[tuple[Array, ...]]


class ShareColumns(Request[SharedColumns], frozen=True, tag="columns/share"):
    """Let the columns that you decode of drawn vectors be put together with the others'."""


def share_columns(request: ShareColumns, site: Site[OwnerData]) -> SharedColumns:
    """Pay once for all that will be decoded, and for exact shares to which it is raked."""
    one_way = OneWay.of(site.rows.table, site.rows.schema)
    site.remember(_ONE_WAY, one_way.to_json().encode())
    shares = [Array.of(column_shares, "<f8") for column_shares in one_way.shares]
    why = "columns are decoded by what was learned from rows without noise"
    event = events.NonPrivate(why)
    label = "shares of every column, and synthetic columns, however many rows are drawn"
    released = site.release(event, label, lambda: tuple(shares))
    return SharedColumns(released)


def cell_shares(session: Session, parts: Mapping[str, Schema]) -> dict[str, Floats]:
    """Have columns put together, and return the shares of each one's cells.

    Raises:
        WireError: A party sent what are no shares; names it.
    """
    shares: dict[str, Floats] = {}
    replies = session.ask(ShareColumns())
    for name, reply in zip(session.roster, replies, strict=True):
        checked = CheckedReply(name)
        columns = parts[name].names
        sent = checked.items("lists of shares", reply.shares.value, count=len(columns))
        for column, array in zip(columns, sent, strict=True):
            field = f"shares of {column!r}"
            values = checked.array(field, array, ("<f8",), (None,), least=0, most=1)
            total = float(values.sum())
            checked.number(f"sum of {field}", total, least=1 - 1e-6, most=1 + 1e-6)
            shares[column] = values
    return shares


# What draws the rows


LoadCoder = Callable[[Path], Any]
"""Reads a party's coder from its file."""


@dataclass(frozen=True)
class LocalDecoder:
    """What stays at a party, and makes its columns of its part of the coordinator's vectors.

    Attributes:
        features: Feature vectors of its columns to table and back.
        coder: Between those and the coordinator's vectors: a `RowCoder`, or a `Head` of VertiGAN.
    """

    features: Features
    coder: Any

    @classmethod
    def of(cls, features: bytes, coder: bytes, load: LoadCoder) -> LocalDecoder:
        """Return the decoder that `keep_decoder` remembered."""
        party_features = Features.from_json(features)
        party_coder = from_bytes(coder, load)
        return cls(party_features, party_coder)

    @property
    def width(self) -> int:
        """Entries of its part of the coordinator's vector."""
        return int(self.coder.width)

    def decode(self, part: Matrix, *, key: Key) -> Matrix:
        """Return feature vectors of its columns, from its part of the coordinator's vectors."""
        X: Matrix = self.coder.decode(part, key=jax_key(key))
        return X


@dataclass(frozen=True)
class _Part:
    """A party's part of a joint vector, and of the feature vectors that are made of it.

    Attributes:
        party: Its name.
        decoder: Makes the one of the other.
        entries: Those of the joint vector.
        places: Where its features are among all.
    """

    party: str
    decoder: LocalDecoder
    entries: slice
    places: list[int]


@dataclass(frozen=True)
class JoinedGenerator:
    """Draws the coordinator's vectors and lets every party make its columns of its part.

    Attributes:
        joint: Draws the parties' parts side by side, in roster order.
        decoders: What stayed at the parties, in that order.
        features: Of all columns.
    """

    joint: Generator
    decoders: Mapping[str, LocalDecoder]
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
        """Return how frequent each option of a column was, where the model knows."""
        return self.joint.shares(column)

    def save(self, path: Path) -> None:
        """Write the coordinator's generator."""
        self.joint.save(path)

    def _parts(self) -> list[_Part]:
        """Return every party's part, in roster order."""
        column_places: dict[str, list[int]] = {}
        for block in self.features.blocks:
            places = column_places.setdefault(block.column, [])
            places.extend(range(block.start, block.stop))

        parts: list[_Part] = []
        start = 0
        for name, decoder in self.decoders.items():
            party_places: list[int] = []
            for encoding in decoder.features.encodings:
                party_places += column_places[encoding.column]
            entries = slice(start, start + decoder.width)
            parts.append(_Part(name, decoder, entries, party_places))
            start = entries.stop
        return parts

    def sample(self, n: int, *, key: Key, given: Matrix | None = None) -> Matrix:
        """Draw feature vectors of all columns; `given` is NaN wherever a row is free."""
        parts = self._parts()

        # What is given in columns becomes what is given in the coordinator's vectors.
        condition = None
        if given is not None:
            coded: list[Matrix] = []
            for part in parts:
                coder = part.decoder.coder
                coded.append(coder.encode_known(given[:, part.places]))
            condition = np.concatenate(coded, axis=1).astype(np.float32)
        Z = self.joint.sample(n, key=key, given=condition)

        # Every party decodes its part with a key of its own, the same as at home.
        X = np.zeros((n, self.features.width), dtype=np.float32)
        for part in parts:
            home_key = fold_in(key, "home", part.party)
            party_Z = Z[:, part.entries]
            X[:, part.places] = part.decoder.decode(party_Z, key=home_key)
        return X


class _SavedDecoder(msgspec.Struct, frozen=True):
    """The file beside a local decoder's coder."""

    party: str
    features: str


@dataclass(frozen=True)
class ColumnsModel(FeatureModel):
    """A generator of feature vectors whose columns are made by the parties' local decoders.

    Here, in a simulation, all decoders are in one place.
    """

    net: JoinedGenerator
    decoded_apart: ClassVar[bool] = True

    def save(self, folder: Path) -> None:
        """Write the coordinator's generator and every local decoder into a folder."""
        super().save(folder)
        # By number: names come from peers, and never become part of a path.
        for number, (name, decoder) in enumerate(self.net.decoders.items()):
            party_folder = folder / "parties" / f"{number:04d}"
            party_folder.mkdir(parents=True)
            facts = _SavedDecoder(name, decoder.features.to_json())
            file = party_folder / "features.json"
            file.write_bytes(msgspec.json.encode(facts))
            decoder.coder.save(party_folder / "coder.safetensors")

    @classmethod
    def read(
        cls, folder: Path, *, joint: Callable[[Path], Generator], coder: LoadCoder
    ) -> Self:
        """Read what `save` wrote; `joint` and `coder` read its parts."""
        whole = FeatureModel.load(folder, joint)
        decoders: dict[str, LocalDecoder] = {}
        for party_folder in sorted((folder / "parties").iterdir()):
            text = (party_folder / "features.json").read_bytes()
            saved = msgspec.json.decode(text, type=_SavedDecoder)
            features = Features.from_json(saved.features)
            party_coder = coder(party_folder / "coder.safetensors")
            decoders[saved.party] = LocalDecoder(features, party_coder)
        net = JoinedGenerator(whole.net, decoders, whole.features)
        return cls(net, whole.features, whole.one_way, whole.target)


def _gathered(
    load: LoadCoder, joint: Any, setup: Setup, session: Session
) -> ColumnsModel:
    """Return the coordinator's generator together with the local decoders of all parties.

    Only a simulation reads these.

    Args:
        load: Reads a party's coder.
        joint: What the coordinator trained.
        setup: Of the run.
        session: Asks the parties, which are in this process.
    """
    decoders: dict[str, LocalDecoder] = {}
    cells: dict[str, Cells] = {}
    memories = session.recall((_FEATURES, _CODER, _ONE_WAY))
    for name, stored in memories.items():
        if _FEATURES not in stored or _CODER not in stored:
            raise WireError(
                f"party {name!r}: this run has trained nothing that could decode"
            )
        features = stored[_FEATURES]
        coder = stored[_CODER]
        decoders[name] = LocalDecoder.of(features, coder, load)
        if _ONE_WAY in stored:
            one_way = OneWay.from_json(stored[_ONE_WAY])
            for column_cells in one_way.cells:
                cells[column_cells.column.name] = column_cells

    # Columns are in the order of the schema, whoever has them.
    encodings: dict[str, Any] = {}
    for decoder in decoders.values():
        for encoding in decoder.features.encodings:
            encodings[encoding.column] = encoding
    names = [name for name in setup.schema.names if name in encodings]
    ordered_encodings = tuple(encodings[name] for name in names)
    all_features = Features(setup.schema, ordered_encodings)
    net = JoinedGenerator(joint, decoders, all_features)
    raked_to = None
    if cells:
        raked_to = OneWay(tuple(cells[name] for name in names))
    return ColumnsModel(net, all_features, raked_to, setup.target)


# Drawing rows over a network, where decoders are elsewhere


class DrawnColumn(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A synthetic column: positions among its options, or numbers; and where it has no value."""

    values: Array
    missing: Array
    # Where the party released shares of cells: the cell that each row is in.
    cells: tuple[Array, ...]


class DrawnColumns(Reply, frozen=True):
    """A party's synthetic columns, in the order of its schema."""

    columns: Released[tuple[DrawnColumn, ...]]


class DecodeColumns(Request[DrawnColumns], frozen=True, tag="columns/decode"):
    """Make your columns of your part of drawn vectors, drawn in one batch or more.

    `words` lead from the seed to the key of rows that are drawn again. With `chosen`, answer with
    the rows at these places, whose numbers are moved where they are far off.
    """

    seed: int
    batches: tuple[Array, ...]
    words: tuple[int, ...] = ()
    chosen: Array | None = None


class KeptColumns(Reply, frozen=True):
    """How many rows of its synthetic columns a party keeps."""

    rows: Public[int]


class KeepColumns(Request[KeptColumns], frozen=True, tag="columns/keep"):
    """Make your columns of your part of drawn vectors, and keep them."""

    seed: int
    batches: tuple[Array, ...]


# Names of both batches of rows that a question may have, as `FeatureModel` names their keys.
_BATCHES = ("rows", "more rows")
# Words that lead from a seed to a key, at most.
_MOST_WORDS = 16
# Rows of a batch, at most.
_MOST_DRAWN = 2**24
# Questions for columns where rows may be drawn again, at most.
_MOST_DECODED = 32


def most_decoded(setup: Setup) -> int:
    """Return how often a party is asked to decode columns that are shared, at most.

    Raking may ask for more rows once, and once for numbers to be moved; rows that break a
    constraint are drawn again.
    """
    return 3 if setup.modelled.is_identity else _MOST_DECODED


def decode_columns(
    load: LoadCoder, request: DecodeColumns, site: Site[OwnerData]
) -> DrawnColumns:
    """Decode, at home, and send synthetic columns; their bytes depend on the request alone."""
    rows, schema = _decoded(load, request, site, request.words)
    stored = site.recall(_ONE_WAY)
    one_way = OneWay(()) if stored is None else OneWay.from_json(stored)
    codes = one_way.codes(rows)

    # The coordinator chose rows by the cells that an earlier answer had.
    if request.chosen is not None:
        checked = CheckedReply("the coordinator")
        last = rows.num_rows - 1
        places = checked.array(
            "chosen", request.chosen, ("<i4",), (None,), least=0, most=last
        )
        rows = one_way.moved(rows.take(places), rows)
        codes = []
    released = site.release_made(lambda: _packed(rows, schema, codes))
    return DrawnColumns(released)


def keep_columns(
    load: LoadCoder, request: KeepColumns, site: Site[OwnerData]
) -> KeptColumns:
    """Decode, and keep synthetic columns at home; asked again, they are the same."""
    rows, _ = _decoded(load, request, site)
    keep_synthetic(site, rows, request.seed)
    number = Public(rows.num_rows, "as many as were asked for")
    return KeptColumns(number)


def _decoded(
    load: LoadCoder,
    request: DecodeColumns | KeepColumns,
    site: Site[OwnerData],
    words: tuple[int, ...] = (),
) -> tuple[Table, Schema]:
    """Return a party's columns of drawn vectors, and their schema.

    Raises:
        WireError: The run has trained nothing yet, or the vectors do not fit its decoder.
    """
    features = site.recall(_FEATURES)
    coder = site.recall(_CODER)
    if features is None or coder is None:
        raise WireError(
            f"party {site.name!r}: this run has trained nothing that could decode"
        )
    decoder = LocalDecoder.of(features, coder, load)

    # The coordinator's numbers bound how much is decoded, and which keys are made.
    number = len(request.batches)
    has_room = 0 < number <= len(_BATCHES) and len(words) <= _MOST_WORDS
    makes_key = request.seed >= 0 and all(0 <= word < 2**32 for word in words)
    if not has_room or not makes_key:
        raise WireError(f"party {site.name!r}: {number} batches cannot be decoded")
    checked = CheckedReply("the coordinator")
    shape = (None, decoder.width)
    parts = [checked.reals("vectors", batch, shape) for batch in request.batches]
    checked.number("rows", max(map(len, parts)), most=_MOST_DRAWN)

    # Keys as in a simulation, where `FeatureModel` and `JoinedGenerator` make them.
    seed = key_at(request.seed, words)
    vectors: list[Matrix] = []
    for name, Z in zip(_BATCHES, parts, strict=False):
        key = fold_in(fold_in(seed, name), "home", site.name)
        vectors.append(decoder.decode(Z, key=key))
    X = np.concatenate(vectors, dtype=np.float32)
    rows = decoder.features.decode(X, key=fold_in(seed, "values"))
    return rows, decoder.features.schema


def with_decoding(
    handlers: Callable[[Any], Handlers], load: LoadCoder
) -> Callable[[Any], Handlers]:
    """Return a party's side of a method, and of drawing rows over a network."""

    def handlers_with_decoding(synth: MethodSettings) -> Handlers:
        decoding: Handlers = {KeepColumns: partial(keep_columns, load)}
        if shares_columns(synth):
            decoding = {DecodeColumns: partial(decode_columns, load)}
        return {**handlers(synth), **decoding}

    return handlers_with_decoding


def _packed(
    rows: Table, schema: Schema, codes: Sequence[Ints]
) -> tuple[DrawnColumn, ...]:
    """Return columns as they are sent, with the cell of each row where it is in `codes`."""
    columns: list[DrawnColumn] = []
    for index, column in enumerate(schema.columns):
        if column.is_continuous:
            numbers, missing = numbers_of(column, rows)
            values = Array.of(numbers, "<f8")
        elif column.is_binned:
            numbers, missing = numbers_of(column, rows)
            values = Array.of(numbers, "<i8")
        else:
            places = rows.lookup(column.name, column.options)
            missing = places < 0
            # A place among the options for every row: without a value, the first one.
            values = Array.of(np.where(missing, 0, places), "<i4")

        flags = Array.of(missing, "<u1")
        cells: tuple[Array, ...] = ()
        if codes:
            cells = (Array.of(codes[index], "<u1"),)
        columns.append(DrawnColumn(values, flags, cells))
    return tuple(columns)


def _unpacked(
    checked: CheckedReply, column: Column, sent: DrawnColumn, count: int
) -> tuple[Any, Bools | None]:
    """Return a column's cells, and where they are missing if they may be.

    Raises:
        WireError: What was sent is no such column; names the party.
    """
    shape = (count,)
    dtypes = ("<f8",) if column.is_continuous else ("<i4", "<i8")
    low: float = -np.inf
    high: float = np.inf
    if not column.is_binned:
        low = 0
        high = len(column.options) - 1
    values = checked.array(
        column.name, sent.values, dtypes, shape, least=low, most=high
    )
    flags = checked.array("missing", sent.missing, ("<u1",), shape, least=0, most=1)

    if column.is_binned:
        cells: Any = as_written(column, values, None)
    else:
        cells, _ = labels_of(column, values.astype(np.int64))
    if not column.missing:
        return cells, None
    return cells, flags > 0


def _cut(
    setup: Setup, result: Result, batches: Sequence[Matrix]
) -> Iterator[tuple[str, tuple[Array, ...]]]:
    """Yield every party's part of drawn vectors."""
    start = 0
    for name, width in zip(setup.roster, result.parts, strict=False):
        stop = start + width
        parts = [batch[:, start:stop] for batch in batches]
        yield name, tuple(Array.of(part, "<f4") for part in parts)
        start = stop


@dataclass(frozen=True, kw_only=True)
class _FarDecoder(FeatureModel):
    """Rows whose columns the parties make, during a run, as often as it may ask for them.

    Attributes:
        session: With the parties.
        task: The run's.
        result: The coordinator's generator, and the widths of the parties' parts.
        steps: Numbers of the questions that may still be asked.
        cell_shares: Shares of every column's cells; empty where rows are not raked.
    """

    session: Session
    task: Task
    result: Result
    steps: Iterator[int]
    cell_shares: Mapping[str, Floats]
    decoded_apart: ClassVar[bool] = True

    @property
    def shares(self) -> list[Floats] | None:
        """Shares of every column's cells, as the parties released them."""
        if not self.cell_shares:
            return None
        return [self.cell_shares[column.name] for column in self.schema.coded]

    def decoded(self, batches: Sequence[Matrix], seed: Key, like: Table | None) -> Pool:
        """Ask the parties for their columns."""
        words = words_of(seed)
        requests: dict[str, DecodeColumns] = {}
        for name, vectors in _cut(self.task.setup, self.result, batches):
            requests[name] = DecodeColumns(self.task.seed, vectors, words)
        count = sum(map(len, batches))
        rows, codes = self._ask(requests, count)

        def is_far_off(column: Column, places: Ints) -> bool:
            shares = self.cell_shares[column.name]
            chosen_codes = codes[column.name][places]
            return far_off(column, chosen_codes, shares)

        def take_rows(places: Ints) -> Table:
            """Take rows; where a column is far off, parties are asked once more, and move it."""
            if not any(is_far_off(column, places) for column in self.schema.coded):
                return rows.take(places)
            chosen = Array.of(places, "<i4")
            moved_requests: dict[str, DecodeColumns] = {}
            for name, request in requests.items():
                moved_request = msgspec.structs.replace(request, chosen=chosen)
                moved_requests[name] = moved_request
            moved_rows, _ = self._ask(moved_requests, len(places))
            return moved_rows

        return Pool(rows, lambda: [codes[name] for name in rows.names], take_rows)

    def _ask(
        self, requests: Mapping[str, DecodeColumns], count: int
    ) -> tuple[Table, dict[str, Ints]]:
        """Return columns that parties made, and of drawn rows also the cell of each."""
        setup = self.task.setup
        # Each question is a step of the run, of which a study declares how many there may be.
        step = next(self.steps, None)
        if step is None:
            raise InputError(
                f"rows that keep the schema's constraints are too rare: parties decoded rows "
                f"{most_decoded(setup)} times, and do so no more often. Ask for fewer rows, or "
                "loosen a constraint"
            )

        columns: dict[str, tuple[Any, Bools | None]] = {}
        codes: dict[str, Ints] = {}
        parts = parts_of(setup)
        # The closing goes along with the first question, as mostly no other follows.
        replies = self.session.ask_each(requests, last=step == 0)
        for (name, request), reply in zip(requests.items(), replies, strict=True):
            checked = CheckedReply(name)
            part = parts[name]
            sent_columns = checked.items(
                "columns", reply.columns.value, count=len(part.columns)
            )
            has_cells = bool(self.cell_shares) and request.chosen is None
            for column, sent in zip(part.columns, sent_columns, strict=True):
                columns[column.name] = _unpacked(checked, column, sent, count)
                checked.items("lists of cells", sent.cells, count=int(has_cells))
                for cells in sent.cells:
                    codes[column.name] = self._codes(checked, column, cells, count)
        ordered = {column.name: columns[column.name] for column in setup.schema.coded}
        return Table.from_columns(ordered), codes

    def _codes(
        self, checked: CheckedReply, column: Column, sent: Array, count: int
    ) -> Ints:
        """Return the cell that each row of a column is in; WireError if there is no such cell."""
        most = len(self.cell_shares[column.name]) - 1
        codes = checked.array("cells", sent, ("<u1",), (count,), least=0, most=most)
        return codes.astype(np.int64)


@dataclass(frozen=True)
class DrawnRows:
    """Rows that parties made of what was drawn; further ones take the parties again.

    Attributes:
        num_rows: How many.
        schema: Facts about all columns, as they are declared.
        rows: All of them, which keep the schema's constraints; None where every party has its own
            columns, and nobody has more.
    """

    num_rows: int
    schema: Schema
    rows: Table | None = None

    def draw(self, wanted: Wanted, num_rows: int | None, like: Table | None) -> Table:
        """Return the rows, as they were drawn.

        Raises:
            InputError: They are not here, or others are asked for.
        """
        if self.rows is None:
            raise InputError(
                f"synthetic columns stay with their parties (shared=False): each has its own of "
                f"the {self.num_rows:,} rows that this run drew, and others take a run with them"
            )
        # Conditions, or more rows, would take other vectors and the decoders again.
        if not wanted.free or wanted.num_rows not in (None, self.num_rows):
            raise InputError(
                f"what decodes rows stays with the parties: this run drew {self.num_rows:,}, "
                "without conditions, and others take a run with them"
            )
        return self.rows

    def with_values(self, names: Sequence[str]) -> DrawnRows:
        """Return the rows themselves."""
        return self

    def save(self, folder: Path) -> None:
        """Write the rows that are here."""
        if self.rows is not None:
            file = folder / "rows.parquet"
            file.write_bytes(parquet_of(self.rows))


def decoded_rows(
    load: LoadCoder, session: Session, task: Task, result: Result, count: int | None
) -> Model:
    """Return what draws rows of the coordinator's generator, whose columns the parties decode.

    In a simulation that is a model, since all decoders are in this process. Between organisations
    the parties decode as many rows as the study asks for, at home. Constraints are public: the
    coordinator finds synthetic rows that break one, and has others decoded in their place.

    Raises:
        WireError: A party sent what does not fit; names it.
        InputError: Rows that keep a constraint are too rare.
    """
    setup = task.setup
    joint: Any = result.model
    if session.simulated:
        return _gathered(load, joint, setup, session)

    # Where columns stay with their parties, each makes its own, and says only how many rows.
    if not setup.shared:
        number = (result.num_rows or 1) if count is None else count
        key = fold_in(task.seed, _BATCHES[0])
        batches = [joint.sample(number, key=key)]
        requests: dict[str, KeepColumns] = {}
        for name, vectors in _cut(setup, result, batches):
            requests[name] = KeepColumns(task.seed, vectors)
        replies = session.ask_each(requests, last=True)
        for name, reply in zip(requests, replies, strict=True):
            checked = CheckedReply(name)
            checked.number("rows", reply.rows.value, least=number, most=number)
        return DrawnRows(number, setup.declared)

    # Else they are sent and put together, and drawn again where they break a constraint.
    model = _FarDecoder(
        joint,
        Features.declared(setup.schema),
        target=setup.target,
        session=session,
        task=task,
        result=result,
        steps=iter(range(most_decoded(setup))),
        cell_shares=getattr(joint, "cell_shares", {}),
    )
    wanted = Wanted(count, task.seed)
    rows = constrained_rows(setup.modelled, model, wanted, result.num_rows, None)
    return DrawnRows(rows.num_rows, setup.declared, rows)
