"""Answer questions about many rows of a Markov random field, each with cells of its own known.

Every row names some of its codes, the evidence, and leaves the others open; rows differ in which.
One pass over the junction tree serves all rows at once: in each clique, rows that lack the same
attributes form a group, and the group's tables, cut at each row's evidence, are one array. Messages
go from the leaves to the root (Koller & Friedman 2009, section 10.2), in probabilities given the
separator, so that a branch without evidence sends nothing: its cells sum to one. Rows that know the
same are computed once.

`log_probability` is the probability of what is known, `shares` the distribution of one open
attribute, and `complete` draws all that is open, from the root down. All three are exact.

**Guarantee**: none of its own: this reads a model, so it is post-processing of what was released.
What is asked about are the caller's rows; nothing protects them, and nothing is kept of them.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from math import prod
from typing import TypeAlias

import numpy as np
from numpy.typing import NDArray

from siloweave.errors import DataError
from siloweave.models.junction_tree import Array, JunctionTree
from siloweave.models.mrf import MRF, given_others
from siloweave.tables.arrays import Bools, Floats, Ints
from siloweave.tables.codes import Clique, Codes, Domain
from siloweave.tables.keys import Key, fold_in, generator

_Attributes: TypeAlias = tuple[int, ...]

UNKNOWN = -1
"""The code of a cell that is not known."""
# Cells of a group's tables at once, 16 MB: they stay near the processor.
_CELLS = 1 << 21

# Below, attributes are places in domain order, and i, child and parent are places of cliques. Rows
# that know the same are one pattern.


def log_probability(model: MRF, known: Mapping[str, Ints]) -> Floats:
    """Return the log-probability of the attributes that each row knows, (num_rows,).

    Args:
        model: The distribution.
        known: Codes by attribute, one per row, `UNKNOWN` where a cell is to be summed out.
            Attributes that are left out are unknown in every row.

    Returns:
        Minus infinity where the model rules the row out; 0 where a row knows nothing.

    Example:
        >>> model = MRF(Domain(("a", "b"), (2, 2)), {("a", "b"): np.log([[4.0, 2], [1, 1]])}, 8)
        >>> known = {"a": np.array([0, 0]), "b": np.array([0, UNKNOWN])}
        >>> np.exp(log_probability(model, known)).round(9).tolist()
        [0.5, 0.75]
    """
    patterns = _Patterns.of(model.domain, known)
    rooted = _Rooted.of(model)
    log_totals = np.empty(len(patterns.codes))
    for places in _chunks(rooted, patterns.codes):
        upward = _Upward(rooted, patterns.codes[places])
        log_totals[places] = upward.log_total
    return log_totals[patterns.of_row]


def shares(model: MRF, known: Mapping[str, Ints], name: str) -> Floats:
    """Return the distribution of one attribute, given what a row knows, (num_rows, its codes).

    What `known` has of that attribute is not looked at.

    Raises:
        DataError: The model gives what a row knows probability 0.

    Example:
        >>> model = MRF(Domain(("a", "b"), (2, 2)), {("a", "b"): np.log([[4.0, 2], [1, 1]])}, 8)
        >>> shares(model, {"a": np.array([0, UNKNOWN])}, "b").round(3).tolist()
        [[0.667, 0.333], [0.625, 0.375]]
    """
    others = {
        attribute: codes for attribute, codes in known.items() if attribute != name
    }
    patterns = _Patterns.of(model.domain, others, count=_count(known))
    rooted = _Rooted.of(model, name)
    weights = np.empty((len(patterns.codes), model.domain.size_of(name)))
    for places in _chunks(rooted, patterns.codes, name):
        upward = _Upward(rooted, patterns.codes[places], name)
        weights[places] = upward.target_weights
    totals = weights.sum(axis=1, keepdims=True)
    _check_possible(totals[:, 0] > 0.0)
    return np.asarray((weights / totals)[patterns.of_row])


def complete(model: MRF, known: Mapping[str, Ints], *, key: Key) -> Codes:
    """Draw the attributes that rows do not know, from their exact conditional distribution.

    Args:
        model: The distribution.
        known: As `log_probability` takes it.
        key: Everything random; a row's draw depends on its place and on no other row.

    Raises:
        DataError: The model gives what a row knows probability 0.

    Example:
        >>> model = MRF(Domain(("a", "b"), (2, 2)), {("a", "b"): np.log([[9.0, 1e-9], [1, 1]])}, 8)
        >>> complete(model, {"a": np.array([0, 0])}, key=0).column("b").tolist()
        [0, 0]
    """
    domain = model.domain
    patterns = _Patterns.of(domain, known)
    rooted = _Rooted.of(model)
    completed = patterns.codes[patterns.of_row]

    # Two numbers for each row and clique, whatever is open: no draw depends on another row.
    uniform = []
    for i in range(len(rooted.cliques)):
        rng = generator(fold_in(key, "clique", i))
        uniform.append(rng.random((len(completed), 2)).T)

    # The rows of each pattern, one pattern after the other.
    order = np.argsort(patterns.of_row, kind="stable")
    counts = np.bincount(patterns.of_row, minlength=len(patterns.codes))
    ends = np.cumsum(counts)
    starts = ends - counts

    for places in _chunks(rooted, patterns.codes):
        upward = _Upward(rooted, patterns.codes[places])
        _check_possible(np.isfinite(upward.log_total))
        rows_of = [order[starts[place] : ends[place]] for place in places]
        rows = np.concatenate(rows_of)
        row_counts = [len(part) for part in rows_of]
        pattern = np.repeat(np.arange(len(places)), row_counts)
        row_uniform = [numbers[:, rows] for numbers in uniform]
        completed[rows] = upward.completed(completed[rows], pattern, row_uniform)
    columns = tuple(column.astype(np.uint64) for column in completed.T)
    return Codes(domain, columns)


def _check_possible(is_possible: Bools) -> None:
    if not is_possible.all():
        raise DataError(
            "the model gives what some rows know probability 0; change these rows, or leave some "
            "of their cells open"
        )


def _count(known: Mapping[str, Ints]) -> int:
    """Return the number of rows, which all columns must share."""
    lengths = {name: len(codes) for name, codes in known.items()}
    if len(set(lengths.values())) != 1:
        raise DataError(f"known must have columns, all of one length, not {lengths}")
    return next(iter(lengths.values()))


@dataclass(frozen=True)
class _Patterns:
    """The different sets of attributes that rows know, and the one of each row.

    Attributes:
        codes: (different rows, attributes), in domain order; `UNKNOWN` where a cell is open.
        of_row: The place in `codes` of each row.
    """

    codes: Ints
    of_row: Ints

    @classmethod
    def of(
        cls,
        domain: Domain,
        known: Mapping[str, Ints],
        *,
        count: int | None = None,
    ) -> _Patterns:
        """Check codes, given by attribute, and find which rows know the same attributes.

        Raises:
            DataError: Codes lie outside the domain, or their numbers differ.
        """
        if count is None:
            count = _count(known)
        codes = np.full((count, len(domain.names)), UNKNOWN, dtype=np.int64)
        for name in domain.canonical(known):
            column = np.asarray(known[name])
            size = domain.size_of(name)
            if column.size and not UNKNOWN <= column.min() <= column.max() < size:
                raise DataError(f"known[{name!r}] has codes outside 0..{size - 1}")
            codes[:, domain.position(name)] = column

        # Rows are compared as bytes: np.unique compares columns one by one, which is slower.
        row_type = np.dtype((np.void, codes.itemsize * codes.shape[1]))
        packed = np.ascontiguousarray(codes).view(row_type).reshape(-1)
        _, first_rows, of_row = np.unique(
            packed, return_index=True, return_inverse=True
        )
        return cls(codes[first_rows], of_row.reshape(-1))


@dataclass(frozen=True)
class _Rooted:
    """A calibrated junction tree with a root, each table conditional on what its parent shares.

    Attributes:
        domain: Of the attributes.
        cliques: Places in domain order of each clique's attributes; parents before children.
        shared: Of those, which the parent has, too.
        parents: Place of the parent; -1 at the root and where a part hangs together with nothing.
        tables: Probabilities of a clique's other attributes given those it shares, flat.
    """

    domain: Domain
    cliques: tuple[_Attributes, ...]
    shared: tuple[_Attributes, ...]
    parents: tuple[int, ...]
    tables: tuple[Array, ...]

    @classmethod
    def of(cls, model: MRF, name: str | None = None) -> _Rooted:
        """Root a model's tree at the smallest clique with an attribute, or leave its root."""
        tree = model.tree
        root = 0 if name is None else tree.home_of((name,))
        order, parents = _order_from(tree, root)
        position = model.domain.position
        cliques = []
        shared = []
        tables = []
        for i, parent in zip(order, parents, strict=True):
            clique = tree.cliques[i]
            separator: Clique = ()
            if parent >= 0:
                parent_clique = tree.cliques[order[parent]]
                separator = tuple(a for a in clique if a in parent_clique)
            new_axes = tuple(
                axis for axis, a in enumerate(clique) if a not in separator
            )
            table = given_others(model.beliefs[i], new_axes)
            cliques.append(tuple(position(a) for a in clique))
            shared.append(tuple(position(a) for a in separator))
            tables.append(np.ascontiguousarray(table).reshape(-1))
        return cls(
            model.domain, tuple(cliques), tuple(shared), tuple(parents), tuple(tables)
        )

    @cached_property
    def children(self) -> list[list[int]]:
        """The places of the children of each clique."""
        children: list[list[int]] = [[] for _ in self.cliques]
        for i, parent in enumerate(self.parents):
            if parent >= 0:
                children[parent].append(i)
        return children

    def position(self, name: str | None) -> int:
        """Return an attribute's place in domain order; -1 for none."""
        return -1 if name is None else self.domain.position(name)

    def sizes(self, attributes: Sequence[int]) -> list[int]:
        """Return the number of codes of attributes."""
        return [self.domain.sizes[a] for a in attributes]

    def broadcast_sizes(
        self, attributes: Sequence[int], present: Collection[int]
    ) -> list[int]:
        """Return `sizes`, with 1 for attributes that are not present, so that arrays broadcast."""
        sizes = self.sizes(attributes)
        for k, a in enumerate(attributes):
            if a not in present:
                sizes[k] = 1
        return sizes

    def is_active(self, is_known: Bools) -> list[Bools]:
        """Return, for each clique, which rows know anything in its branch beyond what it shares."""
        active: list[Bools] = [np.zeros(0, dtype=np.bool_)] * len(self.cliques)
        for i in reversed(range(len(self.cliques))):
            new = [a for a in self.cliques[i] if a not in self.shared[i]]
            knows_any = np.asarray(is_known[:, new].any(axis=1))
            for child in self.children[i]:
                knows_any = knows_any | active[child]
            active[i] = knows_any
        return active


def _order_from(tree: JunctionTree, root: int) -> tuple[list[int], list[int]]:
    """Return a tree's cliques from a root on, parents first, and the place of each one's parent."""
    neighbours: list[list[int]] = [[] for _ in tree.cliques]
    for i, parent in enumerate(tree.parents):
        if parent >= 0:
            neighbours[i].append(parent)
            neighbours[parent].append(i)

    # Breadth first from the root, then from every clique that was not reached: parts of a forest.
    order: list[int] = []
    parents: list[int] = []
    reached: set[int] = set()
    for start in (root, *range(len(tree.cliques))):
        if start in reached:
            continue
        reached.add(start)
        order.append(start)
        parents.append(-1)
        place = len(order) - 1
        while place < len(order):
            for neighbour in neighbours[order[place]]:
                if neighbour not in reached:
                    reached.add(neighbour)
                    order.append(neighbour)
                    parents.append(place)
            place += 1
    return order, parents


def _chunks(rooted: _Rooted, codes: Ints, target: str | None = None) -> Iterator[Ints]:
    """Yield rows in groups whose tables have few enough cells to be in memory at once."""
    is_known = codes != UNKNOWN
    active = rooted.is_active(is_known)

    # Each row's largest table: what is open of what its clique or a message needs.
    largest = np.ones(len(codes))
    for i, clique in enumerate(rooted.cliques):
        is_needed = np.zeros((len(codes), len(clique)), dtype=np.bool_)
        is_needed |= np.isin(clique, [*rooted.shared[i], rooted.position(target)])
        for child in rooted.children[i]:
            is_needed |= active[child][:, None] & np.isin(clique, rooted.shared[child])
        is_open = is_needed & ~is_known[:, list(clique)]
        cells = np.where(is_open, rooted.sizes(clique), 1.0).prod(axis=1)
        largest = np.maximum(largest, cells)

    order = np.argsort(largest, kind="stable")
    chunk = np.floor(np.cumsum(largest[order]) / _CELLS).astype(np.int64)
    ends = np.flatnonzero(np.diff(chunk)) + 1
    for rows in np.split(order, ends):
        if len(rows):
            yield rows


@dataclass
class _Messages:
    """The messages of a clique's branch to its parent, for rows that know anything in it.

    Attributes:
        arrays: By which attributes of the separator rows lack: a row of probabilities for each.
        places: Each row's place in its array; -1 where its branch knows nothing.
    """

    places: Ints
    arrays: dict[_Attributes, Floats] = field(default_factory=dict)


class _Upward:
    """One pass from the leaves to the root, for some of the rows.

    Args:
        rooted: The tree.
        codes: What rows know, (rows, attributes).
        target: An attribute of the root that is open; its weights are stored.
    """

    def __init__(self, rooted: _Rooted, codes: Ints, target: str | None = None) -> None:
        self.rooted = rooted
        self.is_known = codes != UNKNOWN
        self.log_total = np.zeros(len(codes))
        self.target_weights = np.empty((len(codes), 0))
        self.messages: list[_Messages] = []
        for _ in rooted.cliques:
            places = np.full(len(codes), -1, dtype=np.int64)
            self.messages.append(_Messages(places))
        # Children come after their parents: from the leaves to the root.
        active = rooted.is_active(self.is_known)
        for i in reversed(range(len(rooted.cliques))):
            self._send(i, codes, np.flatnonzero(active[i]))
        if target is not None:
            self._weigh(codes, rooted.domain.position(target))

    def groups(self, i: int, rows: Ints) -> Iterator[tuple[Ints, _Attributes]]:
        """Yield groups of rows that lack the same attributes of a clique, and these attributes."""
        clique = self.rooted.cliques[i]
        is_open = ~self.is_known[rows][:, list(clique)]
        # Bit k of a row's number is set where the row lacks attribute k of the clique.
        numbers = is_open @ (1 << np.arange(len(clique)))
        for number in np.unique(numbers):
            open_attributes = tuple(a for k, a in enumerate(clique) if number >> k & 1)
            yield rows[numbers == number], open_attributes

    def _send(self, i: int, codes: Ints, rows: Ints) -> None:
        """Compute a clique's message to its parent, for rows that know anything in its branch."""
        messages = self.messages[i]
        for group, missing in self.groups(i, rows):
            shared = tuple(a for a in missing if a in self.rooted.shared[i])
            message = self._summed(i, codes[group], group, missing, shared)
            total = message.sum(axis=1)
            with np.errstate(divide="ignore"):
                self.log_total[group] += np.log(total)
            # Messages are scaled, so that no product of many of them underflows.
            scaled = message / np.where(total > 0.0, total, 1.0)[:, None]
            before = messages.arrays.get(shared, np.empty((0, message.shape[1])))
            messages.places[group] = len(before) + np.arange(len(group))
            messages.arrays[shared] = np.concatenate([before, scaled])

    def _summed(
        self,
        i: int,
        codes: Ints,
        rows: Ints,
        missing: _Attributes,
        wanted: _Attributes,
    ) -> Floats:
        """Return a clique's table times its children's messages, summed, (rows, cells).

        Args:
            i: The clique.
            codes: Of the rows.
            rows: Their places in this pass; they lack the same attributes.
            missing: Those that they lack.
            wanted: Those of the result.
        """
        rooted = self.rooted
        senders = self.senders(i, rows, missing)
        met = tuple(a for a in missing if a in wanted or self.is_met(a, senders))
        table = self.reduced(i, codes, missing, met)
        shaped = table.reshape(len(rows), *rooted.sizes(met))
        for child in senders:
            message = self.message(child, rows, missing)
            thin = rooted.broadcast_sizes(met, rooted.shared[child])
            shaped = shaped * message.reshape(len(rows), *thin)
        axes = tuple(1 + k for k, a in enumerate(met) if a not in wanted)
        return np.asarray(shaped.sum(axis=axes).reshape(len(rows), -1))

    def reduced(
        self, i: int, codes: Ints, free: _Attributes, met: _Attributes
    ) -> Floats:
        """Return a clique's table at the rows' codes, summed to the attributes that messages meet.

        The result is (rows, cells).

        Rows with the same codes in the clique share a sum.
        """
        rooted = self.rooted
        clique = rooted.cliques[i]
        starts, offsets = _places(codes, clique, rooted.sizes(clique), free)
        distinct, of_row = np.unique(starts, return_inverse=True)
        axes = tuple(1 + k for k, a in enumerate(free) if a not in met)
        sums = [np.empty((0, prod(rooted.sizes(met))))]
        length = max(1, _CELLS // len(offsets))
        for first in range(0, len(distinct), length):
            some = distinct[first : first + length, None]
            table = rooted.tables[i][some + offsets]
            shaped = table.reshape(len(some), *rooted.sizes(free))
            sums.append(shaped.sum(axis=axes).reshape(len(some), -1))
        joined: Floats = np.concatenate(sums)
        return joined[of_row.reshape(-1)]

    def senders(self, i: int, rows: Ints, missing: _Attributes) -> list[int]:
        """Return the children with a message about attributes that these rows lack.

        What others say is a number, which is in `log_total`, or nothing.
        """
        senders = []
        for child in self.rooted.children[i]:
            is_about_missing = any(a in self.rooted.shared[child] for a in missing)
            if is_about_missing and (self.messages[child].places[rows] >= 0).any():
                senders.append(child)
        return senders

    def is_met(self, a: int, senders: Sequence[int]) -> bool:
        """Return whether a message from any of these children is about an attribute."""
        return any(a in self.rooted.shared[child] for child in senders)

    def message(self, child: int, rows: Ints, missing: Sequence[int]) -> Floats:
        """Return a child's message to rows that lack the same attributes; ones if it has none."""
        open_attributes = tuple(a for a in missing if a in self.rooted.shared[child])
        places = self.messages[child].places[rows]
        is_sent = places >= 0
        message = np.ones((len(rows), prod(self.rooted.sizes(open_attributes))))
        message[is_sent] = self.messages[child].arrays[open_attributes][places[is_sent]]
        return message

    def _weigh(self, codes: Ints, target: int) -> None:
        """Sum the root's table to the weights of the target's codes, row by row."""
        size = self.rooted.domain.sizes[target]
        self.target_weights = np.empty((len(codes), size))
        for group, missing in self.groups(0, np.arange(len(codes))):
            weights = self._summed(0, codes[group], group, missing, (target,))
            self.target_weights[group] = weights
        # A message that is one number is not multiplied in; a row where it is 0 is impossible.
        self.target_weights[np.isneginf(self.log_total)] = 0.0

    def completed(self, codes: Ints, pattern: Ints, uniform: Sequence[Floats]) -> Ints:
        """Draw what rows lack, from the root down, and return their codes.

        Args:
            codes: Of the rows to draw, (rows, attributes).
            pattern: Which of this pass's rows each of them is.
            uniform: Of each clique, two numbers between 0 and 1 for each row, (2, rows).
        """
        codes = codes.copy()
        for i, clique in enumerate(self.rooted.cliques):
            has_open = (codes[:, clique] == UNKNOWN).any(axis=1)
            rows = np.flatnonzero(has_open)
            # Groups are those of what rows knew at first, which decides their messages.
            order = np.argsort(pattern[rows], kind="stable")
            rows = rows[order]
            patterns, pattern_of_row = np.unique(pattern[rows], return_inverse=True)
            for group, missing in self.groups(i, patterns):
                is_in_group = np.isin(patterns, group)[pattern_of_row]
                self._fill(i, codes, rows[is_in_group], pattern, missing, uniform[i])
        return codes

    def _fill(
        self,
        i: int,
        codes: Ints,
        rows: Ints,
        pattern: Ints,
        missing: _Attributes,
        uniform: Floats,
    ) -> None:
        """Draw what rows lack of a clique, beyond what it shares, and write it into their codes."""
        rooted = self.rooted
        new = tuple(a for a in missing if a not in rooted.shared[i])
        senders = self.senders(i, pattern[rows], missing)
        # First what messages are about, then the rest, which they leave as it is.
        met = tuple(a for a in new if self.is_met(a, senders))
        rest = tuple(a for a in new if a not in met)
        length = max(1, _CELLS // prod(rooted.sizes(met)))
        for start in range(0, len(rows), length):
            part = rows[start : start + length]
            if met:
                weights = self.reduced(i, codes[part], new, met)
                shaped = weights.reshape(len(part), *rooted.sizes(met))
                for child in senders:
                    shaped = shaped * self._open_message(
                        child, codes[part], pattern[part], missing, met
                    )
                weights = shaped.reshape(len(part), -1)
                cells = _cells(weights, np.arange(len(part)), uniform[0, part])
                self._write(codes, part, met, cells)
            if rest:
                cells = self._alone(i, codes[part], rest, uniform[1, part])
                self._write(codes, part, rest, cells)

    def _open_message(
        self,
        child: int,
        codes: Ints,
        pattern: Ints,
        missing: _Attributes,
        met: _Attributes,
    ) -> Floats:
        """Return a child's message about attributes, once rows have codes of its other ones."""
        rooted = self.rooted
        shared = tuple(a for a in missing if a in rooted.shared[child])
        still_open = tuple(a for a in shared if a in met)
        starts, offsets = _places(codes, shared, rooted.sizes(shared), still_open)
        # Only the cells that are wanted are looked up: many rows may share a long message.
        places = self.messages[child].places[pattern]
        array = self.messages[child].arrays[shared]
        message = array[np.maximum(places, 0)[:, None], starts[:, None] + offsets]
        message[places < 0] = 1.0
        thin = rooted.broadcast_sizes(met, still_open)
        return np.asarray(message.reshape(len(codes), *thin))

    def _alone(self, i: int, codes: Ints, new: _Attributes, uniform: Floats) -> Ints:
        """Draw attributes of a clique that no message is about; many rows share one table."""
        rooted = self.rooted
        clique = rooted.cliques[i]
        starts, offsets = _places(codes, clique, rooted.sizes(clique), new)
        distinct, of_row = np.unique(starts, return_inverse=True)
        of_row = of_row.reshape(-1)
        cells = np.empty(len(codes), dtype=np.int64)
        length = max(1, _CELLS // len(offsets))
        for first in range(0, len(distinct), length):
            tables = rooted.tables[i][distinct[first : first + length, None] + offsets]
            rows = np.flatnonzero((of_row >= first) & (of_row < first + length))
            cells[rows] = _cells(tables, of_row[rows] - first, uniform[rows])
        return cells

    def _write(
        self, codes: Ints, rows: Ints, attributes: _Attributes, cells: Ints
    ) -> None:
        """Write drawn cells, of a table of some attributes, into the rows' codes."""
        columns = np.unravel_index(cells, self.rooted.sizes(attributes))
        for a, column in zip(attributes, columns, strict=True):
            codes[rows, a] = column


def _places(
    codes: Ints,
    attributes: Sequence[int],
    sizes: Sequence[int],
    free: Sequence[int],
) -> tuple[Ints, NDArray[np.intp]]:
    """Return where each row's codes are in a flat table, and the offsets of the cells of `free`.

    Args:
        codes: (rows, all attributes).
        attributes: Those of the table.
        sizes: Of these.
        free: Those that take all their codes.
    """
    starts = np.zeros(len(codes), dtype=np.int64)
    offsets = np.zeros(1, dtype=np.intp)
    stride = prod(sizes)
    for a, size in zip(attributes, sizes, strict=True):
        stride //= size
        if a in free:
            offsets = np.add.outer(offsets, np.arange(size) * stride).reshape(-1)
        else:
            starts += codes[:, a] * stride
    return starts, offsets


def _cells(tables: Floats, of_row: Ints, uniform: Floats) -> Ints:
    """Draw a cell for each row, by the weights in the row of `tables` that belongs to it."""
    cumulative = np.cumsum(tables, axis=1)
    totals = cumulative[:, -1:]
    _check_possible(totals[:, 0] > 0.0)
    cumulative /= totals

    # All distributions in one ascending array: that of row r lies between r and r + 1.
    thresholds = (cumulative + np.arange(len(tables))[:, None]).reshape(-1)
    places = np.searchsorted(thresholds, of_row + uniform, side="right")
    cells = places - of_row * tables.shape[1]

    # Rounding may lead past the last cell that is possible, or before the first.
    is_possible = tables > 0.0
    first = is_possible.argmax(axis=1)
    last = tables.shape[1] - 1 - is_possible[:, ::-1].argmax(axis=1)
    return np.asarray(np.clip(cells, first[of_row], last[of_row]))
