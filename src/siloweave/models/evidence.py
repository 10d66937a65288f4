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

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from math import prod

import numpy as np
from numpy.typing import NDArray

from siloweave.errors import DataError
from siloweave.models.junction_tree import Array, JunctionTree
from siloweave.models.mrf import MRF, given_others
from siloweave.tables.arrays import Bools, Floats, Ints
from siloweave.tables.codes import Clique, Codes, Domain
from siloweave.tables.keys import Key, fold_in, generator

UNKNOWN = -1
"""The code of a cell that is not known."""
_CELLS = 1 << 21  # of a group's tables at once, 16 MB: they stay near the processor


def log_probability(model: MRF, known: Mapping[str, Ints]) -> Floats:
    """Return the natural logarithm of the probability of what each row knows, (num_rows,).

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
    rows = _Rows.of(model.domain, known)
    found = np.empty(len(rows.codes))
    rooted = _Rooted.of(model)
    for places in _chunks(rooted, rows.codes):
        found[places] = _Upward(rooted, rows.codes[places]).log_total
    return found[rows.of_row]


def shares(model: MRF, known: Mapping[str, Ints], name: str) -> Floats:
    """Return the distribution of one attribute given what each row knows, (num_rows, its codes).

    What `known` has of that attribute is not looked at.

    Raises:
        DataError: The model gives what a row knows probability 0.

    Example:
        >>> model = MRF(Domain(("a", "b"), (2, 2)), {("a", "b"): np.log([[4.0, 2], [1, 1]])}, 8)
        >>> shares(model, {"a": np.array([0, UNKNOWN])}, "b").round(3).tolist()
        [[0.667, 0.333], [0.625, 0.375]]
    """
    others = {attribute: codes for attribute, codes in known.items() if attribute != name}
    rows = _Rows.of(model.domain, others, count=_count(known))
    rooted = _Rooted.of(model, name)
    found = np.empty((len(rows.codes), model.domain.size_of(name)))
    for places in _chunks(rooted, rows.codes, name):
        found[places] = _Upward(rooted, rows.codes[places], name).target_weights
    totals = found.sum(axis=1, keepdims=True)
    _check_possible(totals[:, 0] > 0.0)
    return np.asarray((found / totals)[rows.of_row])


def complete(model: MRF, known: Mapping[str, Ints], *, key: Key) -> Codes:
    """Draw what rows do not know, each from its exact conditional distribution.

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
    rows = _Rows.of(domain, known)
    rooted = _Rooted.of(model)
    drawn = rows.codes[rows.of_row]
    keys = [fold_in(key, "clique", i) for i in range(len(rooted.cliques))]
    uniform = [generator(own).random((len(drawn), 2)).T for own in keys]
    order = np.argsort(rows.of_row, kind="stable")
    ends = np.cumsum(np.bincount(rows.of_row, minlength=len(rows.codes)))
    starts = ends - np.bincount(rows.of_row, minlength=len(rows.codes))
    for places in _chunks(rooted, rows.codes):
        upward = _Upward(rooted, rows.codes[places])
        _check_possible(np.isfinite(upward.log_total))
        own = [order[starts[place] : ends[place]] for place in places]
        at = np.concatenate(own)
        evidence = np.repeat(np.arange(len(places)), [len(part) for part in own])
        drawn[at] = upward.drawn(drawn[at], evidence, [u[:, at] for u in uniform])
    return Codes(domain, tuple(column.astype(np.uint64) for column in drawn.T))


def _check_possible(is_possible: Bools) -> None:
    if not is_possible.all():
        raise DataError(
            "the model gives what some rows know probability 0; change these rows, or leave some "
            "of their cells open"
        )


def _count(known: Mapping[str, Ints]) -> int:
    """How many rows there are."""
    lengths = {name: len(codes) for name, codes in known.items()}
    if len(set(lengths.values())) != 1:
        raise DataError(f"known must have columns, all of one length, not {lengths}")
    return next(iter(lengths.values()))


@dataclass(frozen=True)
class _Rows:
    """Rows that know different things, and which of them each row is.

    Attributes:
        codes: (different rows, attributes), in domain order; `UNKNOWN` where a cell is open.
        of_row: The place in `codes` of each row.
    """

    codes: Ints
    of_row: Ints

    @classmethod
    def of(cls, domain: Domain, known: Mapping[str, Ints], *, count: int | None = None) -> _Rows:
        """Check codes by attribute, and find rows that know the same.

        Raises:
            DataError: Codes lie outside the domain, or their numbers differ.
        """
        rows = _count(known) if count is None else count
        codes = np.full((rows, len(domain.names)), UNKNOWN, dtype=np.int64)
        for name in domain.canonical(known):
            column = np.asarray(known[name])
            if column.size and not UNKNOWN <= column.min() <= column.max() < domain.size_of(name):
                raise DataError(f"known[{name!r}] has codes outside 0..{domain.size_of(name) - 1}")
            codes[:, domain.position(name)] = column
        # Rows are compared as bytes: np.unique compares columns one by one, which is slower.
        packed = np.ascontiguousarray(codes).view(
            np.dtype((np.void, codes.itemsize * codes.shape[1]))
        )
        _, first, of_row = np.unique(packed.reshape(-1), return_index=True, return_inverse=True)
        return cls(codes[first], of_row.reshape(-1))


@dataclass(frozen=True)
class _Rooted:
    """A calibrated junction tree, rooted at some clique, each table given what its parent shares.

    Attributes:
        domain: Of the attributes.
        cliques: Places in domain order of each clique's attributes; parents before children.
        shared: Of those, which the parent has, too.
        parents: Place of the parent; -1 at the root and where a part hangs together with nothing.
        tables: Probabilities of a clique's other attributes given those it shares, flat.
    """

    domain: Domain
    cliques: tuple[tuple[int, ...], ...]
    shared: tuple[tuple[int, ...], ...]
    parents: tuple[int, ...]
    tables: tuple[Array, ...]

    @classmethod
    def of(cls, model: MRF, name: str | None = None) -> _Rooted:
        """Root a model's tree at the smallest clique that has an attribute, or where it is."""
        tree = model.tree
        root = 0 if name is None else tree.home_of((name,))
        order, parents = _from(tree, root)
        cliques, shared, tables = [], [], []
        for i, parent in zip(order, parents, strict=True):
            clique = tree.cliques[i]
            inside: Clique = ()
            if parent >= 0:
                inside = tuple(a for a in clique if a in tree.cliques[order[parent]])
            new = tuple(axis for axis, a in enumerate(clique) if a not in inside)
            table = given_others(model.beliefs[i], new)
            cliques.append(tuple(model.domain.position(a) for a in clique))
            shared.append(tuple(model.domain.position(a) for a in inside))
            tables.append(np.ascontiguousarray(table).reshape(-1))
        return cls(model.domain, tuple(cliques), tuple(shared), tuple(parents), tuple(tables))

    @cached_property
    def children(self) -> list[list[int]]:
        """Of each clique, the places of its children."""
        below: list[list[int]] = [[] for _ in self.cliques]
        for i, parent in enumerate(self.parents):
            if parent >= 0:
                below[parent].append(i)
        return below

    def position(self, name: str | None) -> int:
        """Return an attribute's place in domain order; -1 for none."""
        return -1 if name is None else self.domain.position(name)

    def sizes(self, attributes: Sequence[int]) -> list[int]:
        """How many codes attributes have."""
        return [self.domain.sizes[a] for a in attributes]

    def is_active(self, is_known: Bools) -> list[Bools]:
        """Of each clique, the rows that know anything in its branch beyond what it shares."""
        active: list[Bools] = [np.zeros(0, dtype=np.bool_)] * len(self.cliques)
        for i in reversed(range(len(self.cliques))):
            new = [a for a in self.cliques[i] if a not in self.shared[i]]
            knows = np.asarray(is_known[:, new].any(axis=1))
            for child in self.children[i]:
                knows = knows | active[child]
            active[i] = knows
        return active


def _from(tree: JunctionTree, root: int) -> tuple[list[int], list[int]]:
    """A tree's cliques from a root on, parents first, and the place of each one's parent."""
    around: list[list[int]] = [[] for _ in tree.cliques]
    for i, parent in enumerate(tree.parents):
        if parent >= 0:
            around[i].append(parent)
            around[parent].append(i)
    order, parents = [root], [-1]
    reached = {root}
    for start in range(-1, len(tree.cliques)):
        if start >= 0 and start not in reached:
            reached.add(start)
            order.append(start)
            parents.append(-1)
        at = len(parents) - 1
        while at < len(order):
            for neighbour in around[order[at]]:
                if neighbour not in reached:
                    reached.add(neighbour)
                    order.append(neighbour)
                    parents.append(at)
            at += 1
    return order, parents


def _chunks(rooted: _Rooted, codes: Ints, target: str | None = None) -> Iterator[Ints]:
    """Rows, in groups whose tables have few enough cells to be held at once."""
    is_known = codes != UNKNOWN
    active = rooted.is_active(is_known)
    largest = np.ones(len(codes))
    for i, clique in enumerate(rooted.cliques):
        is_kept = np.zeros((len(codes), len(clique)), dtype=np.bool_)
        is_kept |= np.isin(clique, [*rooted.shared[i], rooted.position(target)])
        for child in rooted.children[i]:
            is_kept |= active[child][:, None] & np.isin(clique, rooted.shared[child])
        is_open = is_kept & ~is_known[:, list(clique)]
        largest = np.maximum(largest, np.where(is_open, rooted.sizes(clique), 1.0).prod(axis=1))
    order = np.argsort(largest, kind="stable")
    group = np.floor(np.cumsum(largest[order]) / _CELLS).astype(np.int64)
    ends = np.flatnonzero(np.diff(group)) + 1
    yield from (part for part in np.split(order, ends) if len(part))


@dataclass
class _Messages:
    """What a clique's branch says to its parent, of rows that know anything in it.

    Attributes:
        arrays: By which attributes of the separator rows lack: a row of probabilities for each.
        places: Each row's place in its array; -1 where its branch knows nothing.
    """

    places: Ints
    arrays: dict[tuple[int, ...], Floats] = field(default_factory=dict)


class _Upward:
    """One pass from the leaves to the root, for some rows.

    Args:
        rooted: The tree.
        codes: What rows know, (rows, attributes).
        target: An attribute of the root that is open; its weights are kept.
    """

    def __init__(self, rooted: _Rooted, codes: Ints, target: str | None = None) -> None:
        self.rooted = rooted
        self.is_known = codes != UNKNOWN
        self.log_total = np.zeros(len(codes))
        self.target_weights = np.empty((len(codes), 0))
        self.messages = [_Messages(np.full(len(codes), -1, dtype=np.int64)) for _ in rooted.cliques]
        for i, active in reversed(list(enumerate(rooted.is_active(self.is_known)))):
            self._send(i, codes, np.flatnonzero(active))
        if target is not None:
            self._weigh(codes, rooted.domain.position(target))

    def groups(self, i: int, rows: Ints) -> Iterator[tuple[Ints, tuple[int, ...]]]:
        """Rows that lack the same attributes of a clique, and these."""
        clique = self.rooted.cliques[i]
        lacks = ~self.is_known[rows][:, list(clique)]
        pattern = lacks @ (1 << np.arange(len(clique)))
        for number in np.unique(pattern):
            own = rows[pattern == number]
            yield own, tuple(a for k, a in enumerate(clique) if number >> k & 1)

    def _send(self, i: int, codes: Ints, rows: Ints) -> None:
        messages = self.messages[i]
        for own, missing in self.groups(i, rows):
            kept = tuple(a for a in missing if a in self.rooted.shared[i])
            summed = self._summed(i, codes[own], own, missing, kept)
            total = summed.sum(axis=1)
            with np.errstate(divide="ignore"):
                self.log_total[own] += np.log(total)
            # Messages are scaled, so that no product of many of them underflows.
            scaled = summed / np.where(total > 0.0, total, 1.0)[:, None]
            before = messages.arrays.get(kept, np.empty((0, summed.shape[1])))
            messages.places[own] = len(before) + np.arange(len(own))
            messages.arrays[kept] = np.concatenate([before, scaled])

    def _summed(
        self, i: int, codes: Ints, rows: Ints, missing: tuple[int, ...], kept: tuple[int, ...]
    ) -> Floats:
        """A clique's table times what its children say, over what is kept, (rows, cells).

        Args:
            i: The clique.
            codes: Of the rows.
            rows: Their places in this pass; they lack the same attributes.
            missing: Those that they lack.
            kept: Those of the result.
        """
        rooted = self.rooted
        senders = self.senders(i, rows, missing)
        met = tuple(a for a in missing if a in kept or self.is_met(a, senders))
        table = self.reduced(i, codes, missing, met)
        for child in senders:
            thin = [s if a in rooted.shared[child] else 1 for a, s in _with_sizes(rooted, met)]
            full = table.reshape(len(rows), *rooted.sizes(met))
            said = self.message(child, rows, missing).reshape(len(rows), *thin)
            table = (full * said).reshape(len(rows), -1)
        gone = tuple(1 + k for k, a in enumerate(met) if a not in kept)
        full = table.reshape(len(rows), *rooted.sizes(met))
        return np.asarray(full.sum(axis=gone).reshape(len(rows), -1))

    def reduced(self, i: int, codes: Ints, free: tuple[int, ...], met: tuple[int, ...]) -> Floats:
        """A clique's table at the rows' codes, summed to what messages meet, (rows, cells).

        Rows with the same codes in the clique share a sum.
        """
        rooted, clique = self.rooted, self.rooted.cliques[i]
        start, steps = _places(codes, clique, rooted.sizes(clique), free)
        cuts, of_row = np.unique(start, return_inverse=True)
        gone = tuple(1 + k for k, a in enumerate(free) if a not in met)
        sums = [np.empty((0, prod(rooted.sizes(met))))]
        step = max(1, _CELLS // len(steps))
        for first in range(0, len(cuts), step):
            part = rooted.tables[i][cuts[first : first + step, None] + steps]
            full = part.reshape(len(part), *rooted.sizes(free))
            sums.append(full.sum(axis=gone).reshape(len(part), -1))
        found: Floats = np.concatenate(sums)[of_row.reshape(-1)]
        return found

    def senders(self, i: int, rows: Ints, missing: tuple[int, ...]) -> list[int]:
        """Children that say something on attributes which these rows lack.

        What others say is a number, which is in `log_total`, or nothing.
        """
        return [
            child
            for child in self.rooted.children[i]
            if any(a in self.rooted.shared[child] for a in missing)
            and (self.messages[child].places[rows] >= 0).any()
        ]

    def is_met(self, a: int, senders: Sequence[int]) -> bool:
        """Whether any of these children says something on an attribute."""
        return any(a in self.rooted.shared[child] for child in senders)

    def message(self, child: int, rows: Ints, missing: Sequence[int]) -> Floats:
        """What a child says to rows that lack the same; ones where its branch knows nothing."""
        open_attributes = tuple(a for a in missing if a in self.rooted.shared[child])
        places = self.messages[child].places[rows]
        is_sent = places >= 0
        found = np.ones((len(rows), prod(self.rooted.sizes(open_attributes))))
        found[is_sent] = self.messages[child].arrays[open_attributes][places[is_sent]]
        return found

    def _weigh(self, codes: Ints, target: int) -> None:
        """Sum the root's table to its target."""
        self.target_weights = np.empty((len(codes), self.rooted.domain.sizes[target]))
        for own, missing in self.groups(0, np.arange(len(codes))):
            self.target_weights[own] = self._summed(0, codes[own], own, missing, (target,))
        self.target_weights[np.isneginf(self.log_total)] = 0.0

    def drawn(self, codes: Ints, evidence: Ints, uniform: Sequence[Floats]) -> Ints:
        """Draw what is open, from the root down.

        Args:
            codes: Of the rows to draw, (rows, attributes).
            evidence: Which of this pass's rows each of them is.
            uniform: Of each clique, two numbers between 0 and 1 for each row, (2, rows).
        """
        rooted, codes = self.rooted, codes.copy()
        for i, clique in enumerate(rooted.cliques):
            lacks = (codes[:, clique] == UNKNOWN).any(axis=1)
            at = np.flatnonzero(lacks)
            # Groups are those of what rows knew at first, which decides their messages.
            order = np.argsort(evidence[at], kind="stable")
            at = at[order]
            seen, back = np.unique(evidence[at], return_inverse=True)
            for own, missing in self.groups(i, seen):
                is_own = np.isin(seen, own)[back]
                rows = at[is_own]
                new = tuple(a for a in missing if a not in rooted.shared[i])
                senders = self.senders(i, evidence[rows], missing)
                # First what messages are about, then the rest, which they leave as it is.
                met = tuple(a for a in new if self.is_met(a, senders))
                rest = tuple(a for a in new if a not in met)
                step = max(1, _CELLS // prod(rooted.sizes(met)))
                for start in range(0, len(rows), step):
                    part = rows[start : start + step]
                    if met:
                        weights = self.reduced(i, codes[part], new, met)
                        for child in senders:
                            said = self._said(child, codes[part], evidence[part], missing, met)
                            full = weights.reshape(len(part), *rooted.sizes(met))
                            weights = (full * said).reshape(len(part), -1)
                        chosen = _cells(weights, np.arange(len(part)), uniform[i][0, part])
                        self._write(codes, part, met, chosen)
                    if rest:
                        chosen = self._alone(i, codes[part], rest, uniform[i][1, part])
                        self._write(codes, part, rest, chosen)
        return codes

    def _said(
        self,
        child: int,
        codes: Ints,
        evidence: Ints,
        missing: tuple[int, ...],
        met: tuple[int, ...],
    ) -> Floats:
        """What a child says on attributes, where others that it shares are drawn already."""
        rooted = self.rooted
        inside = tuple(a for a in missing if a in rooted.shared[child])
        open_now = tuple(a for a in inside if a in met)
        first, along = _places(codes, inside, rooted.sizes(inside), open_now)
        # Only the cells that are wanted are looked up: many rows may share a long message.
        places = self.messages[child].places[evidence]
        array = self.messages[child].arrays[inside]
        picked = array[np.maximum(places, 0)[:, None], first[:, None] + along]
        picked[places < 0] = 1.0
        thin = [size if a in open_now else 1 for a, size in _with_sizes(rooted, met)]
        return np.asarray(picked.reshape(len(codes), *thin))

    def _alone(self, i: int, codes: Ints, new: tuple[int, ...], uniform: Floats) -> Ints:
        """Draw attributes of a clique that no message is about; rows share distributions."""
        rooted, clique = self.rooted, self.rooted.cliques[i]
        start, steps = _places(codes, clique, rooted.sizes(clique), new)
        cuts, of_row = np.unique(start, return_inverse=True)
        of_row = of_row.reshape(-1)
        chosen = np.empty(len(codes), dtype=np.int64)
        step = max(1, _CELLS // len(steps))
        for first in range(0, len(cuts), step):
            tables = rooted.tables[i][cuts[first : first + step, None] + steps]
            here = np.flatnonzero((of_row >= first) & (of_row < first + step))
            chosen[here] = _cells(tables, of_row[here] - first, uniform[here])
        return chosen

    def _write(self, codes: Ints, rows: Ints, attributes: tuple[int, ...], cells: Ints) -> None:
        """Put cells of a table of some attributes into the rows' codes."""
        split = np.unravel_index(cells, self.rooted.sizes(attributes))
        for a, column in zip(attributes, split, strict=True):
            codes[rows, a] = column


def _with_sizes(rooted: _Rooted, attributes: Sequence[int]) -> Iterator[tuple[int, int]]:
    yield from zip(attributes, rooted.sizes(attributes), strict=True)


def _places(
    codes: Ints, attributes: Sequence[int], sizes: Sequence[int], free: Sequence[int]
) -> tuple[Ints, NDArray[np.intp]]:
    """Where rows' codes stand in a flat table, and how far from there the cells of `free` are.

    Args:
        codes: (rows, all attributes).
        attributes: Those of the table.
        sizes: Of these.
        free: Those that take all their codes.
    """
    start = np.zeros(len(codes), dtype=np.int64)
    along = np.zeros(1, dtype=np.intp)
    stride = prod(sizes)
    for a, size in zip(attributes, sizes, strict=True):
        stride //= size
        if a in free:
            along = np.add.outer(along, np.arange(size) * stride).reshape(-1)
        else:
            start += codes[:, a] * stride
    return start, along


def _cells(tables: Floats, of_row: Ints, uniform: Floats) -> Ints:
    """Draw a cell for each row, from the row of `tables` (weights) that is its own."""
    cumulative = np.cumsum(tables, axis=1)
    totals = cumulative[:, -1:]
    _check_possible(totals[:, 0] > 0.0)
    cumulative /= totals
    # All distributions in one ascending array: that of row r lies between r and r + 1.
    steps = (cumulative + np.arange(len(tables))[:, None]).reshape(-1)
    found = np.searchsorted(steps, of_row + uniform, side="right") - of_row * tables.shape[1]
    # Rounding may lead past the last cell that is possible, or before the first.
    is_possible = tables > 0.0
    last = tables.shape[1] - 1 - is_possible[:, ::-1].argmax(axis=1)
    return np.asarray(np.clip(found, is_possible.argmax(axis=1)[of_row], last[of_row]))
