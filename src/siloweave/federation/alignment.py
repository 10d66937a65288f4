"""Common rows of parties that hold different columns: multi-party private set intersection.

Equality of secrets by commuting powers is due to Meadows (1986, "A more efficient cryptographic
matchmaking protocol for use in the absence of a continuously available third party") and Huberman,
Franklin and Hogg (1999, "Enhancing privacy and trust in electronic communities"). Comparing such
powers among more than two parties shows every pairwise overlap to whoever compares. So the powers
are used here as an oblivious pseudo-random function (Jarecki and Liu 2010), and what is compared
are shares of zero, which reveal nothing unless all are there (Kolesnikov, Matania, Pinkas, Rosulek
and Trieu 2017, "Practical multi-party private set intersection from symmetric-key techniques"),
handed over in tables that do not show their keys (curve.py).

1. Every pair of parties agrees on a key (X25519). The party with the fewest ids, L, leads.
2. Party i draws a secret power k_i. Its share of id y is s_i(y), the exclusive or over the others j
   of PRF(key_ij, y); all shares of one id add up to 0. It hides the map y -> s_i(y) + F_i(y), where
   F_i(y) = hash(y, H(y)^k_i) and H maps an id to the curve.
3. L sends H(x)^r of its ids, in a random order; party i returns (H(x)^r)^k_i. L undoes r, so it
   knows F_i(x) of its own ids and nothing else of k_i, and looks every x up in every table.
   Exactly where all of them hold x the shares add up to 0.
4. L puts the common ids in a random order and sends it to each party under the key of the pair.
   Parties confirm the order by a digest that only they can compute, and forget their secrets. Where
   nothing is common, they describe what their ids look like, and forget them too.

**Guarantee** (none towards parties, by design: the result is released exactly). Among semi-honest
parties and a semi-honest coordinator, in the random oracle model and under one-more
Diffie-Hellman in Curve25519 (128 bits), and with false matches below n^2 2^-128: the coordinator,
which relays everything, learns how many ids each party brings, how many of its rows have none or a
repeated one, and how many are common. A party learns how many ids the others bring and how many are
common, and which of its rows are common to *all*. Nobody learns which ids, or how many, are common
to some of the parties only, or where in a table a row stands. What ids look like (shortest and
longest, and kinds of characters, of each id column; no id) a party sends to the coordinator on
`DescribeIds`: `align` asks when no id is common, and its error shows what each party answered. A
party answers whenever it is asked, once it has been greeted, also before anything was
compared and where ids are common: it does not check, and its ledger counts each answer. A leader
and other parties who pool what they know learn what is common to the leader and the rest of the
parties. Releases are ``NonPrivate``: no noise, infinite epsilon. A cheating leader can ask for ids
that it does not hold, as many as it announced, which is never more than the asked party holds
itself, so ids that can be enumerated can be guessed: see docs/concepts/alignment.md. A coordinator
can play no party: parties sign their keys, and refuse a key or a name that the roster does not
have. Assumed: the roster's own keys reached the party unaltered.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from siloweave.errors import DataError, RosterError, WireError
from siloweave.federation import curve
from siloweave.federation.alignment_party import (
    CHUNK,
    TAG,
    AlignmentPlan,
    Blind,
    Confirm,
    DescribeIds,
    Greet,
    Hide,
    Match,
    NameRows,
    Raise,
    Rules,
    StoreRows,
    StoreTable,
    Unblind,
    check_points,
)
from siloweave.federation.curve import POINT
from siloweave.federation.expected import MOST_ROWS, CheckedReply
from siloweave.federation.messages import Public, Request
from siloweave.federation.session import Session
from siloweave.progress import Progress, silent
from siloweave.tables.ids import check_rules

_COUNTED = ("ids", "rows without id", "rows with a shared id")
_LONGEST = 200  # characters in which a party describes its ids
_FEW = 0.1  # share of the smallest party's ids below which formats may differ


@dataclass(frozen=True)
class Alignment:
    """The result of an alignment, all of it released; prints as a few lines.

    Attributes:
        on: The id columns.
        common: Rows that all parties have.
        ids: Ids that each party brought.
        missing: Rows that each party left out because they have no id.
        duplicated: Rows that each party left out because they share an id.
        leader: Who compared.
    """

    on: tuple[str, ...]
    common: int
    ids: dict[str, int]
    missing: dict[str, int]
    duplicated: dict[str, int]
    leader: str

    @property
    def share(self) -> float:
        """The common rows as a share of the fewest ids that a party brought."""
        return self.common / min(self.ids.values())

    def __str__(self) -> str:
        columns = ", ".join(self.on)
        lines = [f"{self.common:,} common rows of {len(self.ids)} parties on {columns}"]
        for name, number in self.ids.items():
            left_out = {
                "without id": self.missing[name],
                "with a shared id": self.duplicated[name],
            }
            rest = [
                f"{count:,} {reason} left out"
                for reason, count in left_out.items()
                if count
            ]
            lines.append(", ".join([f"{name}: {number:,} ids", *rest]))
        if self.share < _FEW:
            lines.append(
                f"few: {100 * self.share:.1f} % of the smallest party's ids; do all parties write "
                "them alike? Rules such as strip, casefold, digits or date make them so"
            )
        return "\n".join(lines)


def align(
    session: Session,
    on: Sequence[str],
    *,
    rules: Rules | None = None,
    chunk: int = CHUNK,
    progress: Progress = silent,
) -> Alignment:
    """Find the rows that all parties have; each party keeps them at its site, in one order.

    Args:
        session: Two parties or more; each site's rows are a `AlignmentData`.
        on: Id columns.
        rules: How ids are normalised, per column.
        chunk: Points in one message, of 32 bytes each.
        progress: Called with a text and the share that is done.

    Returns:
        What was found; `common_rows` gives each site's rows.

    Raises:
        RosterError: Fewer than two parties, or one has no ids.
        DataError: A party has missing or repeated ids that its policy refuses, or no id is common
            to all; the message says what ids look like at each party.
        WireError: A party answered with too few or wrong points, or for another alignment.
    """
    check_rules(on, rules or {})
    if len(session.roster) < 2:
        raise RosterError(
            "an alignment needs two parties or more; one has nothing to align with"
        )

    # Step 1: keys and numbers of ids. A party without an id would make every result empty.
    progress("asking for ids", 0.0)
    counts = {}
    keys = []
    replies = session.ask(Greet(tuple(on), rules or {}))
    for name, reply in zip(session.roster, replies, strict=True):
        checked = CheckedReply(name)
        counts[name] = reply.counts.value
        for quantity, least, count in zip(
            _COUNTED, (1, 0, 0), counts[name], strict=True
        ):
            checked.number(quantity, count, least=least, most=MOST_ROWS)
        keys.append(checked.mask_key("key", reply.key.value))

    # The fewest ids lead: a leader can ask for as many as it announced, and parties insist on it.
    ids = {name: party_counts[0] for name, party_counts in counts.items()}
    missing = {name: party_counts[1] for name, party_counts in counts.items()}
    duplicated = {name: party_counts[2] for name, party_counts in counts.items()}
    leader = min(session.roster, key=ids.__getitem__)
    sizes = tuple(ids.values())
    plan = AlignmentPlan(session.roster, sizes, tuple(keys), leader, chunk)

    # Steps 2 to 4.
    run = _Run(session, plan, progress)
    run.compare()
    common = run.settle()
    if not common:
        raise _nothing_common(session, on)
    return Alignment(tuple(on), common, ids, missing, duplicated, leader)


def expected_traffic(ids: Sequence[int], chunk: int = CHUNK) -> tuple[int, int]:
    """Count the most questions, and bytes without frames, that an alignment takes the leader.

    That is if all ids that it has are common; `ids` says how many each party brings.
    """
    leader_ids, tables = _sizes(ids)
    others = len(tables)
    parts = -(-leader_ids // chunk)

    # Greet, Match and Confirm, then Hide and StoreTable of each part of a table.
    questions = 3 + 2 * sum(-(-cells // chunk) for cells in tables)
    # Of each part of the leader's ids: Blind and Raise, Unblind of every other party, and at last
    # NameRows and StoreRows of every other party.
    questions += parts * (2 + others) + 2 * others * parts

    # Every table goes to the leader; its points go out once and come back of everyone.
    moved = sum(curve.SEED + curve.VALUE * cells for cells in tables)
    moved += leader_ids * (POINT * (1 + others) + TAG * others)
    return questions, moved


def expected_questions(
    ids: Sequence[int], chunk: int = CHUNK
) -> tuple[dict[type[Request[Any]], int], dict[type[Request[Any]], int]]:
    """Count how often the leader, and any other party, is asked each question at most."""
    leader_ids, tables = _sizes(ids)
    parts = -(-leader_ids // chunk)
    table_parts = [-(-cells // chunk) for cells in tables]
    parts_of_others = parts * len(tables)
    leader: dict[type[Request[Any]], int] = {
        Greet: 1,
        StoreTable: sum(table_parts),
        Blind: parts,
        Unblind: parts_of_others,
        Match: 1,
        NameRows: parts_of_others,
        Confirm: 1,
        DescribeIds: 1,
    }
    other_party: dict[type[Request[Any]], int] = {
        Greet: 1,
        Hide: max(table_parts),
        Raise: parts,
        StoreRows: parts,
        Confirm: 1,
        DescribeIds: 1,
    }
    return leader, other_party


def _sizes(ids: Sequence[int]) -> tuple[int, list[int]]:
    """Return the leader's number of ids, and the numbers of cells in all other parties' tables."""
    leader_ids, *other_ids = sorted(ids)
    return leader_ids, [curve.cells(number) for number in other_ids]


@dataclass(frozen=True)
class _Run:
    """An alignment at the coordinator, which relays the parties' messages to each other."""

    session: Session
    plan: AlignmentPlan
    progress: Progress

    def compare(self) -> None:
        """Bring every party's table to the leader, and its ids to every party and back."""
        plan = self.plan
        ask = self.session.ask
        leader = [plan.leader]
        leader_ids = plan.size(plan.leader)

        # Step 2: tables of shares. They come first: a table that was made once the leader's
        # points are known could depend on them.
        for done, party in enumerate(plan.others):
            self.progress(f"table of {party}", 0.1 + 0.4 * done / len(plan.others))
            for part in range(plan.parts(curve.cells(plan.size(party)))):
                data = self._piece(Hide(plan, part), party)
                ask(StoreTable(plan, party, part, data), leader)

        # Step 3: the leader's points to every party's power, part by part.
        parts = plan.parts(leader_ids)
        for part in range(parts):
            self.progress("comparing", 0.5 + 0.4 * part / parts)
            points = self._piece(Blind(plan, part), plan.leader)
            start, stop = plan.part(leader_ids, part, plan.leader)
            # Checked before they are relayed, so that whoever sent wrong ones is named.
            check_points(points, stop - start, plan.leader)
            replies = ask(Raise(plan, part, points), plan.others)
            for party, reply in zip(plan.others, replies, strict=True):
                self._check(reply.plan, party)
                check_points(reply.points.value, stop - start, party)
                ask(Unblind(plan, party, part, reply.points.value), leader)

    def settle(self) -> int:
        """Have every party store its common rows; return how many there are."""
        plan = self.plan
        ask = self.session.ask
        (matched,) = ask(Match(plan), [plan.leader])
        self._check(matched.plan, plan.leader)
        leader_ids = plan.size(plan.leader)
        common = CheckedReply(plan.leader).number(
            "common", matched.common.value, least=0, most=leader_ids
        )
        if not common:
            return 0

        # Step 4: the order, to each party under the key of its pair with the leader.
        self.progress("putting rows in order", 0.9)
        for party in plan.others:
            for part in range(plan.parts(common)):
                data = self._piece(NameRows(plan, party, part), plan.leader)
                ask(StoreRows(plan, common, part, data), [party])

        # Rows in another order would be joined to those of other people, and nothing would show it.
        replies = ask(Confirm(plan, common))
        digests = {
            name: reply.digest.value
            for name, reply in zip(plan.names, replies, strict=True)
        }
        deviating = [
            name for name, digest in digests.items() if digest != digests[plan.leader]
        ]
        if deviating:
            raise WireError(
                f"party {deviating[0]!r} was sent other common rows, or another order, than "
                f"{plan.leader!r} keeps; nothing was aligned. Start anew."
            )
        return common

    def _piece(self, request: Hide | Blind | NameRows, party: str) -> bytes:
        """Ask a party for one part of its data; WireError if it answers for another alignment."""
        (reply,) = self.session.ask(request, [party])
        self._check(reply.plan, party)
        return reply.data.value

    def _check(self, plan: Public[bytes], party: str) -> None:
        """Raise WireError for an answer of another alignment, whose type would fit as well."""
        if plan.value != self.plan.digest:
            raise WireError(
                f"party {party!r} answered for another alignment, or for an older one; start anew"
            )


def _nothing_common(session: Session, on: Sequence[str]) -> DataError:
    """Return the error for ids of which none is common to all; it says what to check."""
    replies = session.ask(DescribeIds())
    shapes = {
        name: reply.shape.value
        for name, reply in zip(session.roster, replies, strict=True)
    }
    # A party's text is shown on a terminal, where control characters would do as they say.
    for name, shape in shapes.items():
        if len(shape) > _LONGEST or not shape.isprintable():
            expected = f"{_LONGEST} characters of text"
            raise CheckedReply(name).wrong("a description of its ids", expected)

    descriptions = "; ".join(f"{name!r} has {shape}" for name, shape in shapes.items())
    if len(set(shapes.values())) > 1:
        hint = (
            "They are not written alike: give rules, such as strip, casefold, digits, "
            "no-leading-zeros or date."
        )
    else:
        hint = "They look alike: are they ids of the same kind, and of the same people?"
    return DataError(
        f"no id in {', '.join(on)} is common to all {len(shapes)} parties: {descriptions}. {hint} "
        "Which ids some of the parties share is not known to anyone."
    )
