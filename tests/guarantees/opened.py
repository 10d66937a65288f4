"""What tables of several parties open to on a table and on its neighbour, for replays.

No mechanism draws their noise: it comes from secrets, which are the same for both. So what opens on
a neighbour differs from what opened before by exact counts alone, where the pads of both parties
cancel; where they do not, it is hidden by them. Replayed, the coordinator gets what opened first.
"""

from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from siloweave.privacy.coins import cost_of
from siloweave.privacy.events import UnitSharedCoins
from siloweave.protocols import secure_products as products
from siloweave.protocols.secure_marginals import party as secure_party

_CLOSED, _OPENED = secure_party._closed, products.opened


@dataclass(frozen=True)
class Table:
    """Tables that opened together: their event, cells, and whether both parties' pads cancel."""

    event: Any
    sizes: tuple[int, ...]
    clear: bool
    counts: np.ndarray


@dataclass
class Tables:
    """All that opened in a run; with those of an earlier one, that is what the coordinator gets."""

    before: list[Table] | None = None
    found: list[Table] = field(default_factory=list)
    _sent: dict[bytes, Any] = field(default_factory=dict)

    def _closed(self, party, group, dealt, tables):
        words = _CLOSED(party, group, dealt, tables)
        release = group.release(party.site.run, party.step)
        event = party.plan.event(group.kind, len(group.tables), release)
        sizes = tuple(party.domain.size(table.clique) for table in group.tables)
        self._sent[words.tobytes()] = event, sizes, party.digest(tables)
        return words

    def _opened(self, parts, half, modulus):
        counts, known = _OPENED(parts, half, modulus), [self._sent.get(p.tobytes()) for p in parts]
        assert all(known), "words were opened that no party closed"
        (event, sizes, one), (_, _, other) = known
        self.found.append(Table(event, sizes, one == other, counts))
        if self.before is None:
            return counts
        assert len(self.found) <= len(self.before), "more was opened for a neighbour"
        return self.before[len(self.found) - 1].counts


@contextmanager
def opening(before=None):
    """Tables that open meanwhile."""
    tables = Tables(before)
    secure_party._closed, products.opened = tables._closed, tables._opened
    try:
        yield tables
    finally:
        secure_party._closed, products.opened = _CLOSED, _OPENED


def _cost_of_person(event, gap):
    """Truncated zCDP of one table, whose cells move by a person's rows."""
    moved = np.abs(gap)[gap != 0].tolist()
    assert sum(moved) <= event.rows, f"{sum(moved)} rows moved, {event.rows} were charged"
    cost = sum(cost_of(event.coins, event.largest_order, event.tail, a).rho for a in moved)
    assert cost <= event.rho * (1 + 1e-9), f"{event} was charged for {cost}"
    return cost


def cost_of_opened(first, second):
    """Truncated zCDP by which neighbours differ; fails if a table moves further than it may.

    In every table as many numbers move as its event says, by 1 each, and those of a row's part; of
    a person with several rows by as many in all.
    """
    assert len(first) == len(second)
    spent = 0.0
    for one, two in zip(first, second, strict=True):
        assert (one.event, one.sizes, one.clear) == (two.event, two.sizes, two.clear)
        if not one.clear:
            continue
        gaps = np.split(two.counts - one.counts, np.cumsum(one.sizes)[:-1])
        if isinstance(one.event, UnitSharedCoins):
            spent += sum(_cost_of_person(one.event, gap) for gap in gaps)
            assert len(gaps) <= one.event.count, "a table was not charged"
            continue
        assert max(np.abs(gap).max() for gap in gaps) <= 1, f"a count moved further: {one.event}"
        moved = sum(int(np.abs(gap).sum()) for gap in gaps)
        assert moved <= one.event.count, f"{moved} numbers moved, {one.event.count} were charged"
        spent += moved * one.event.rho
    return spent
