"""Columns whose type says what they hold, as the rules see them."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import numpy as np

from siloweave.tables.arrays import Floats, Ints
from siloweave.tables.decimals import MOST_DECIMALS, decimals_of
from siloweave.tables.kinds.thresholds import ENOUGH, FLOAT_BITS
from siloweave.tables.kinds.times import TimeSteps, far_off, steps_of
from siloweave.tables.table import Table


@dataclass(frozen=True)
class StoredColumn:
    """A column of a frame or a file, of whatever type."""

    name: str
    table: Table

    @property
    def _kind(self) -> str:
        """The column's type in words."""
        return self.table.kind(self.name)

    @cached_property
    def unit(self) -> str | None:
        """The unit of durations; None for a column of anything else."""
        return self.table.unit(self.name)

    @cached_property
    def decimals(self) -> int | None:
        """The most decimals of durations in their unit; None if more than are modelled."""
        values, is_missing = self.table.floats(self.name, self.unit)
        distinct: Floats = np.unique(values[~is_missing])
        return decimals_of(distinct, MOST_DECIMALS, FLOAT_BITS)

    @cached_property
    def _when(self) -> Ints:
        """The different datetimes, in microseconds."""
        values, _ = self.table.datetimes(self.name)
        distinct: Ints = np.unique(values[~self.table.missing(self.name)])
        return distinct

    @property
    def zone(self) -> str | None:
        """The time zone of datetimes; None without one."""
        return self.table.zone(self.name)

    @property
    def zone_note(self) -> str:
        """The time zone of datetimes, in words."""
        return f" of the time zone {self.zone}" if self.zone else ""

    @cached_property
    def steps(self) -> TimeSteps:
        """How fine the datetimes are."""
        return steps_of(self._when, None)

    @property
    def far(self) -> str:
        """A note on datetimes that are far from all others; empty without such."""
        times = self._when.view("datetime64[us]")
        days = np.datetime_as_string(times, unit="D").tolist()
        return far_off(self._when, days, "make it missing in the table")

    @property
    def months_note(self) -> str:
        """A note on datetimes that are all the first day of a month; empty for others."""
        days = self._when.view("datetime64[us]")
        firsts = days.astype("datetime64[M]").astype("datetime64[us]")
        if len(days) < ENOUGH or (days != firsts).any():
            return ""
        return (
            "; all are the first day of a month, and drawn ones may be any day: write months as "
            "text, such as 2024-01, if that matters"
        )

    def is_empty(self) -> bool:
        """Return whether no row has a value."""
        return bool(self.table.missing(self.name).all())

    def has_levels(self) -> bool:
        """Return whether the column's type or its value labels list its values."""
        return self.table.levels(self.name) is not None

    def has_booleans(self) -> bool:
        """Return whether the values are booleans."""
        return self._kind == "booleans"

    def has_datetimes(self) -> bool:
        """Return whether the values are datetimes."""
        return self._kind == "datetimes"

    def has_whole_durations(self) -> bool:
        """Return whether the values are durations, all of whole units."""
        return self.has_durations() and self._kind == "whole numbers"

    def has_durations(self) -> bool:
        """Return whether the values are durations."""
        return self._kind != "text" and self.unit is not None
