"""What attacks found: frozen values with intervals, in words, as JSON and as frames."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import msgspec

from siloweave.attacks.rates import (
    AboveAll,
    Operating,
    Rate,
    Roc,
    ThresholdRisk,
    privacy_risk,
    wilson,
)
from siloweave.errors import InputError
from siloweave.report.results import risk_lines, risk_table, risk_tables
from siloweave.report.words import found_by_attacks
from siloweave.tables.display import html_table
from siloweave.tables.origin import Frame
from siloweave.tables.write import frame_of

if TYPE_CHECKING:
    from siloweave.report.svg import Picture


class RiskPart(msgspec.Struct, frozen=True):
    """One attack against training rows, and the same against control rows.

    Attributes:
        attack: Its name, such as ``linkability``.
        variant: Which form of it, such as ``multivariate`` or a secret column.
        risk: (train - control) / (1 - control), cut to [0, 1]; 2 * accuracy - 1 for membership.
        low: Lower end of its interval.
        high: Upper end.
        train: Success on training rows. Membership: members that are found.
        control: Success on control rows. Membership: others called members.
        baseline: Success of guessing at random on training rows.
        attacks: How many guesses were made on training rows.
        note: What limits the number; empty if nothing.
    """

    attack: str
    variant: str
    risk: float
    low: float
    high: float
    train: Rate
    control: Rate
    baseline: Rate
    attacks: int
    note: str = ""


class Membership(msgspec.Struct, frozen=True):
    """Scores that should separate training rows from control rows.

    Attributes:
        attack: Its name.
        roc: The curve, with the area under it.
        at: Points of the curve at false positive rates of 0.1% and 1%.
        threshold: Guesses with a threshold from one half of the rows, judged on the other.
        noise: The risk that as many attackers who guess reach by chance at as many test rows: the
            best of them, on average.
        above_all: Members whose score is above every other's.
    """

    attack: str
    roc: Roc
    at: tuple[Operating, ...]
    threshold: ThresholdRisk
    noise: float
    above_all: AboveAll


class Copies(msgspec.Struct, frozen=True):
    """Rows that the synthetic table holds exactly.

    Attributes:
        rows: ``all``, or ``once`` for rows that occur once in training and control together.
        train: Share of the training rows that it holds.
        control: Share of the control rows that it holds.
        risk: (train - control) / (1 - control), with its interval.
        low: Lower end.
        high: Upper end.
        p_value: Chance of so many more training rows if neither kind were favoured (Fisher).
    """

    rows: str
    train: Rate
    control: Rate
    risk: float
    low: float
    high: float
    p_value: float


class WorstRecord(msgspec.Struct, frozen=True):
    """Whether any training row is given away, whatever the mean over rows.

    Attributes:
        caught: Whether some measure is too unlikely to be chance, all measures allowed for.
        p_value: The smallest chance, times the number of measures (Bonferroni), at most 1.
        measures: How many measures there are.
        by: The measure with the smallest chance.
        copies: Exact copies, of all rows and of rows that occur once.
        rows: Places of up to ten training rows that are copied or closest; for the owner only.
    """

    caught: bool
    p_value: float
    measures: int
    by: str
    copies: tuple[Copies, ...]
    rows: tuple[int, ...]


class Histogram(msgspec.Struct, frozen=True):
    """The counts of values between edges; the last bin holds its right edge.

    There is one edge more than counts.
    """

    edges: tuple[float, ...]
    counts: tuple[int, ...]


class ClosestRecords(msgspec.Struct, frozen=True):
    """Gower distance from synthetic rows to the closest real one.

    Attributes:
        to_train: Distances to the closest training row.
        to_control: Distances to the closest of as many control rows, over the same edges.
        closer_to_train: Share of synthetic rows closer to training rows, ties counting half; 0.5
            where nothing was memorised.
        median_to_train: The median distance.
        median_to_control: The median distance.
        rows: How many rows of each kind were compared with.
    """

    to_train: Histogram
    to_control: Histogram
    closer_to_train: Rate
    median_to_train: float
    median_to_control: float
    rows: int


class Risks(msgspec.Struct, frozen=True):
    """The gains of attackers without shadow models from a synthetic table.

    Attributes:
        parts: One line an attack and variant.
        memberships: Membership attacks with their curves.
        worst: The worst record; None if it was not asked for.
        closest: Distances to the closest record; None if they were not asked for.
        not_measured: Attack, and why it could not be made.
        notes: What holds for the whole run.
        rows: Of each table.
        confidence: Of every interval, each on its own; `worst` allows for all its measures.
        seed: Of every draw.
        unit: What is attacked: ``row``, or the id column that says whose rows are whose.
        units: How many of them `train` and `control` have.
        caution: Why nothing here may be a leak, since control rows look like another population;
            empty if they do not.
    """

    parts: tuple[RiskPart, ...]
    memberships: tuple[Membership, ...]
    worst: WorstRecord | None
    closest: ClosestRecords | None
    not_measured: dict[str, str]
    notes: tuple[str, ...]
    rows: dict[str, int]
    confidence: float
    seed: int
    unit: str = "row"
    units: dict[str, int] = {}
    caution: str = ""

    def part(self, attack: str, variant: str | None = None) -> RiskPart:
        """Return the part of an attack; `variant` chooses among several."""
        of_attack = [part for part in self.parts if part.attack == attack]
        matches = [part for part in of_attack if variant in (None, part.variant)]
        if len(matches) == 1:
            return matches[0]

        choices = ", ".join(
            f"{part.attack} ({part.variant})" for part in matches or self.parts
        )
        count = "more than one part" if matches else "no part"
        text = f"there is {count}; choose from {choices}"
        if attack in self.not_measured:
            text = f"not measured: {self.not_measured[attack]}"
        raise InputError(f"attack={attack!r}, variant={variant!r}: {text}")

    def membership(self, attack: str) -> Membership:
        """Return the result of a membership attack, by the attack's name."""
        by_name = {result.attack: result for result in self.memberships}
        if attack in by_name:
            return by_name[attack]
        names = ", ".join(by_name) or "none"
        raise InputError(f"attack={attack!r} is no membership attack of these: {names}")

    @property
    def highest(self) -> RiskPart:
        """The part with the highest risk."""
        if not self.parts:
            raise InputError("no attack could be made; see not_measured")
        return max(self.parts, key=lambda part: part.risk)

    def to_dict(self) -> dict[str, Any]:
        """Return everything as plain values."""
        builtins: dict[str, Any] = msgspec.to_builtins(self)
        return builtins

    def to_json(self) -> str:
        """Return everything as JSON; an infinite threshold becomes null."""
        return msgspec.json.encode(self).decode()

    def to_frame(self, kind: Frame | None = None) -> Any:
        """Return `parts` as a frame of one row per attack and variant, with rates as their values.

        Args:
            kind: ``pandas``, ``polars`` or ``arrow``; pandas where it is installed, else polars, if
                None.
        """
        rows = []
        for part in self.parts:
            row = msgspec.structs.asdict(part)
            row["train"] = part.train.value
            row["control"] = part.control.value
            row["baseline"] = part.baseline.value
            rows.append(row)
        return frame_of(rows, RiskPart.__struct_fields__, kind)

    def plot(self) -> Picture:
        """Draw the receiver curves of all membership attacks, as the report's page of risks does.

        A notebook shows the picture, and its `save` stores it as SVG.
        """
        from siloweave.report.run_plots import receiver_curves
        from siloweave.report.svg import Picture

        if not self.memberships:
            raise InputError(
                "no membership attack was made; add 'membership' to attacks="
            )
        curves = {}
        for result in self.memberships:
            curves[result.attack] = (result.roc.fpr, result.roc.tpr)
        return Picture(receiver_curves(curves))

    def __repr__(self) -> str:
        rows = ", ".join(f"{count} {name}" for name, count in self.rows.items())
        return f"Risks({len(self.parts)} attacks with {rows} rows)"

    def _repr_html_(self) -> str:
        table = risk_table(self.to_dict())
        return html_table(repr(self), table.names, table.cells)

    def __str__(self) -> str:
        risks = self.to_dict()
        _, summary = found_by_attacks(risks)
        lines = [summary]
        for table in risk_tables(risks):
            lines += table.lines()
        return "\n".join([*lines, *risk_lines(risks)])


def compared(
    attack: str,
    variant: str,
    train: tuple[float, float],
    control: tuple[float, float],
    baseline: tuple[float, float],
    *,
    attacks: int,
    note: str = "",
    confidence: float = 0.95,
) -> RiskPart:
    """Make a part from successes and trials on training rows, control rows, and by guessing."""
    risk = privacy_risk(train, control, confidence)
    guess = wilson(*baseline, confidence)
    notes = [note] if note else []
    if risk.train.value <= guess.value:
        notes.append(
            "no better than guessing at random, so it says nothing about the rows"
        )
    control_successes, control_trials = control
    if control_successes >= control_trials:
        notes.append("it always succeeds on control rows, so no excess can be measured")
    return RiskPart(
        attack=attack,
        variant=variant,
        risk=risk.value,
        low=risk.low,
        high=risk.high,
        train=risk.train,
        control=risk.control,
        baseline=guess,
        attacks=attacks,
        note="; ".join(notes),
    )
