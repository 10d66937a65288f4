"""What a run stores for its report: plain data, JSON both ways, versioned.

A `Record` holds results and ledgers, never rows and never a model. Everything that was computed
from real rows without being paid for lives in one place, `Record.owner`; `Record.public()` drops
it, and only a record without it is ever rendered for the public.
"""

from __future__ import annotations

import hashlib
import math
from typing import Any, Literal

import msgspec

from siloweave.errors import InputError

# Format of a record; one of another version is refused.
VERSION = 4

Guarantee = Literal["dp", "partial", "refuted", "none"]
Trust = Literal["curator", "secure-sum", "mpc", "local"]
Scalar = str | int | float | bool | None
Setting = Scalar | list[Scalar]


class _Plain(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The base of all parts of a record: frozen, with keyword arguments and known fields only."""


class MethodFacts(_Plain, frozen=True, kw_only=True):
    """The synthesizer that was run.

    Args:
        split: ``"rows"``, ``"columns"`` or ``"central"``.
        paper: Full citation.
        statement: What is protected, from whom; one or two sentences.
    """

    name: str
    family: str
    split: str
    trust: Trust
    guarantee: Guarantee
    paper: str
    statement: str


class BudgetTerms(_Plain, frozen=True, kw_only=True):
    """The terms that the study allowed: ε, δ, the unit and the neighbouring relation.

    Args:
        rows_per_unit: Most rows of a unit that took part; None in records of versions that bounded
            no unit but a row.
        parties_per_unit: At how many parties with split rows a unit may have rows.
    """

    epsilon: float
    delta: float
    unit: str
    relation: str
    rows_per_unit: int | None = None
    parties_per_unit: int = 1


class PartyCost(_Plain, frozen=True, kw_only=True):
    """The cost of the run to one party: what it spent, and its traffic on the wire.

    Args:
        rows_public: Its row count if that is public, else None.
        epsilon: Recomputed from its ledger; may be infinite.
        messages: Questions that it answered.
        ledger_head: Hex digest of its ledger's last line, to compare with the ledger itself.
    """

    name: str
    rows_public: int | None
    epsilon: float
    bytes_sent: int
    bytes_received: int
    messages: int
    ledger_head: str = ""


class AlignmentCost(_Plain, frozen=True, kw_only=True):
    """The cost to one party of finding the rows that all parties have; no ε covers it.

    As `PartyCost`; `releases` counts the entries in its ledger of the alignment.
    """

    name: str
    releases: int
    bytes_sent: int
    bytes_received: int
    messages: int
    ledger_head: str


class LedgerRow(_Plain, frozen=True, kw_only=True):
    """One release, as it stands in the party's ledger.

    Args:
        index: Position in that party's ledger, from 1.
        step: Part of the algorithm, for example ``"round 3: measure"``.
        what: What was released, in words.
        to: Who receives it.
        mechanism: For example ``"discrete Gaussian"``.
        parameters: The event's parameters as text.
        cumulative_epsilon: ε of everything up to and including this release.
        rho: zCDP cost of this release, if it has one.
        epsilon: Pure-DP cost of this release, if it has one.
    """

    party: str
    index: int
    step: str
    what: str
    to: str
    mechanism: str
    parameters: str
    cumulative_epsilon: float
    rho: float | None = None
    epsilon: float | None = None


class Visibility(_Plain, frozen=True, kw_only=True):
    """One line of *who could see what*: the observer, what it sees, and what protects it."""

    who: str
    sees: str
    protected_by: str


class Phase(_Plain, frozen=True, kw_only=True):
    """A stage of the run and the wall-clock seconds it took."""

    name: str
    seconds: float


class Overhead(_Plain, frozen=True, kw_only=True):
    """The seconds that a coordinator with parties elsewhere spent: its own, sealing, and waiting.

    They do not overlap. How much of its waiting parties computed it does not know, as that may
    depend on rows. A question to several parties is several messages.
    """

    own: float
    sealing: float
    waiting: float
    questions: int
    messages: int


class SchemaFact(_Plain, frozen=True, kw_only=True):
    """The way in which a fact about a column became public.

    Args:
        facts: Which facts, for example ``"categories, missing"``.
        values: What is public of the column, a fact each, such as ``"17 to 90"``; absent in early
            records, whose digests are to stay as they were.
        how: ``declared`` (known beforehand), ``paid`` (a release in the ledger) or ``free``
            (taken from the data and paid by nobody).
    """

    column: str
    kind: str
    facts: str
    how: Literal["declared", "paid", "free"]
    values: tuple[str, ...] | msgspec.UnsetType = msgspec.UNSET


class Marginal(_Plain, frozen=True, kw_only=True):
    """Distribution of one column.

    Args:
        labels: One label per code.
        proportions: One proportion per label, summing to 1.
        ordered: Whether the labels are bins in order (drawn as a histogram).
        logarithmic: Whether the bins grow by a factor instead of being equally wide.
        missing: Whether the last label stands for missing values.
        edges: Where the first bins begin and end, one more than bins; dates as days since 1970.
            Labels after those bins are described in words. Absent in early records, whose digests
            are to stay as they were; bins are then drawn with equal widths.
        others: How many categories the last label but the missing values stands for; absent where
            every label is a single category.

    Raises:
        InputError: There are more or fewer labels than proportions, or too many edges.
    """

    column: str
    kind: str
    labels: tuple[str, ...]
    proportions: tuple[float, ...]
    ordered: bool = False
    missing: bool = False
    logarithmic: bool = False
    edges: tuple[float, ...] | msgspec.UnsetType = msgspec.UNSET
    others: int | msgspec.UnsetType = msgspec.UNSET

    def __post_init__(self) -> None:
        if self.edges and len(self.edges) > len(self.labels) + 1:
            raise InputError(
                f"marginal of {self.column!r} has {len(self.edges)} edges and "
                f"{len(self.labels)} labels; give one label for each bin"
            )
        if len(self.labels) != len(self.proportions):
            raise InputError(
                f"marginal of {self.column!r} has {len(self.labels)} labels and "
                f"{len(self.proportions)} proportions; give one proportion per label"
            )


class Association(_Plain, frozen=True, kw_only=True):
    """Association of every pair of columns: a square matrix in the order of `names`, in [0, 1].

    Raises:
        InputError: The matrix is of another shape.
    """

    names: tuple[str, ...]
    values: tuple[tuple[float, ...], ...]
    measure: str = "bias-corrected Cramér's V"

    def __post_init__(self) -> None:
        width = len(self.names)
        if len(self.values) != width or any(len(row) != width for row in self.values):
            raise InputError(
                f"association matrix must be {width} x {width}, one row and one column per name"
            )


class PublicView(_Plain, frozen=True, kw_only=True):
    """The part of the result that anyone may see: synthetic facts, and cliques of the model.

    `kept`: synthetic columns stay with their parties, so that only owners see them.
    """

    num_rows: int
    marginals: tuple[Marginal, ...]
    association: Association | None = None
    cliques: tuple[tuple[str, ...], ...] = ()
    kept: bool = False


class TrainingLook(_Plain, frozen=True, kw_only=True):
    """The quality of a network on rows that were held back, at one time of its training.

    Args:
        step: Steps taken by then.
        seconds: Since the training began.
        loss: Mean loss of the rows held back; smaller is better.
    """

    step: int
    seconds: float
    loss: float


class OwnerView(_Plain, frozen=True, kw_only=True):
    """Statistics of real rows that nobody paid for, which only the rows' owner may see.

    Args:
        marginals: Real marginals, matched to the synthetic ones by column name.
        association: Real association matrix, same names as the synthetic one.
        workload_errors: Mean L1 errors by name, each in [0, 2].
        tvd: Mean total variation distance by name (``"3-way"``), each in [0, 1].
        scores: Further numbers by name (held-out likelihood, AUC, ...).
        training: Looks at rows held back, where the training held any back.
        measured: By round, all marginals that the model was fitted to, where a ledger's line names
            the first ones only. The coordinator chose them by what was paid for.
    """

    marginals: tuple[Marginal, ...] = ()
    association: Association | None = None
    workload_errors: dict[str, float] = {}
    tvd: dict[str, float] = {}
    scores: dict[str, float] = {}
    training: tuple[TrainingLook, ...] = ()
    measured: tuple[tuple[str, ...], ...] = ()


class Record(_Plain, frozen=True, kw_only=True):
    """All that a report is made of.

    Args:
        created: ISO-8601 time.
        siloweave_version: Version that made the run.
        run_by: Who ran it, as the study or the caller says; never read from a machine.
        versions: Of Python and of the libraries that computed and drew noise, by name.
        private: False for a run without privacy or with seeded noise: the page is watermarked.
        not_private_reason: Why, required when `private` is False.
        epsilon_spent: Largest ε over the parties, recomputed from their ledgers.
        epsilon_to_parties: The same towards another party, where it differs.
        epsilon_at_parties: The same of a unit with rows at several parties, where it may be so.
        overhead: Where the coordinator's time went, where the parties were elsewhere.
        parties: One entry per party, in roster order.
        ledgers: All releases of all parties, without those of an alignment.
        alignment: One entry per party, if common rows were found first.
        visibility: Who could see what, and what protects it, as the method declares it.
        simulated: Whether all parties shared one process, which then read every row.
        schema_facts: How each column's facts became public.
        assumed_public: Other facts taken as public.
        warnings: What a reader must know before relying on the result.
        settings: The synthesizer's public settings.
        owner: Real statistics for the owner's copy, or None.
        rho: zCDP cost of a unit, counted as `epsilon_spent` is; absent where a release has another
            kind of cost, and in early records, whose digests are to stay as they were.
        noisy_rows: How many rows the parties have together, counted with noise; absent where
            nobody counted, and in early records.
        verify: Pairs of a command and what it checks.
        version: Format of this record.

    Raises:
        InputError: If ε is negative or not a number, or a reason is missing.
    """

    title: str
    created: str
    siloweave_version: str
    method: MethodFacts
    budget: BudgetTerms
    private: bool
    epsilon_spent: float
    parties: tuple[PartyCost, ...]
    synthetic: PublicView
    ledgers: tuple[LedgerRow, ...] = ()
    alignment: tuple[AlignmentCost, ...] = ()
    visibility: tuple[Visibility, ...] = ()
    simulated: bool = True
    phases: tuple[Phase, ...] = ()
    schema_facts: tuple[SchemaFact, ...] = ()
    assumed_public: tuple[str, ...] = ()
    warnings: tuple[str, ...] = ()
    settings: dict[str, Setting] = {}
    owner: OwnerView | None = None
    not_private_reason: str = ""
    run_by: str = ""
    versions: dict[str, str] = {}
    epsilon_to_parties: float | None = None
    epsilon_at_parties: float | None = None
    overhead: Overhead | None = None
    rho: float | msgspec.UnsetType = msgspec.UNSET
    noisy_rows: int | msgspec.UnsetType = msgspec.UNSET
    verify: tuple[tuple[str, str], ...] = (
        (
            "siloweave ledger RUN",
            "recomputes ε of every party from its ledger, line by line",
        ),
        ("siloweave report RUN", "makes this page again from the run's record"),
    )
    version: int = VERSION

    def __post_init__(self) -> None:
        epsilons = [
            self.epsilon_spent,
            self.epsilon_to_parties or 0.0,
            self.epsilon_at_parties or 0.0,
            *(party.epsilon for party in self.parties),
        ]
        if any(math.isnan(epsilon) or epsilon < 0 for epsilon in epsilons):
            raise InputError(
                "epsilon_spent and every party's epsilon must be 0 or more; recompute them from "
                "the ledgers, and use infinity for a release without privacy"
            )
        if not self.private and not self.not_private_reason:
            raise InputError(
                "private=False needs not_private_reason: say why in one sentence"
            )

    def public(self) -> Record:
        """Return the record without `owner`, and without synthetic columns that parties keep."""
        view = self.synthetic
        if view.kept:
            view = PublicView(num_rows=view.num_rows, marginals=(), kept=True)
        return msgspec.structs.replace(self, owner=None, synthetic=view)

    def digest(self) -> str:
        """Return the hex SHA-256 of the public record's JSON: the same on both copies of a page."""
        text = self.public().to_json()
        return hashlib.sha256(text.encode()).hexdigest()

    def to_json(self) -> str:
        """Return JSON text; infinite and undefined numbers are the strings "inf" and "nan"."""
        return msgspec.json.encode(spelled(self)).decode()

    @staticmethod
    def from_json(text: str | bytes) -> Record:
        """Read a record from JSON that `to_json` wrote.

        Raises:
            InputError: If it is no record, or of another version.
        """
        try:
            data = msgspec.json.decode(text)
            # Whatever else is in the file, so that other versions and other files are named.
            fields = data if isinstance(data, dict) else {}
            version = fields.get("version")
            if version != VERSION:
                writer = fields.get("siloweave_version") or "(unnamed)"
                raise InputError(
                    f"record has version {version!r}, written by siloweave {writer}; "
                    f"this siloweave reads version {VERSION}. Make the report with the siloweave "
                    "that made the run, or run the study again"
                )
            # Not strict: infinite numbers are strings in JSON.
            return msgspec.convert(data, Record, strict=False)
        except msgspec.MsgspecError as error:
            raise InputError(
                f"not a run record: {error}; give the run's own record, or put it back from a "
                "backup"
            ) from error


def spelled(result: Any) -> Any:
    """Return a result as plain values, in which numbers that JSON lacks are texts."""
    return _spelled(msgspec.to_builtins(result))


def _spelled(value: Any) -> Any:
    """Return a plain value in which infinite and undefined numbers, at any depth, are texts."""
    if isinstance(value, float) and not math.isfinite(value):
        return repr(value)
    if isinstance(value, dict):
        return {name: _spelled(item) for name, item in value.items()}
    if isinstance(value, list | tuple):
        return [_spelled(item) for item in value]
    return value
