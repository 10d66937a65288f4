"""Numbers and labels in words, as the report prints them."""

import math
from decimal import ROUND_CEILING, Context
from typing import NamedTuple


class Verdict(NamedTuple):
    """How a guarantee label reads: tone (colour), headline, and what it means."""

    tone: str
    headline: str
    meaning: str


VERDICTS = {
    "dp": Verdict(
        "good",
        "Differentially private",
        "Everything computed from rows that left a party is in its ledger, and ε is recomputed "
        "from the ledgers.",
    ),
    "partial": Verdict(
        "caution",
        "Partly private",
        "Only a named stage is covered by ε. What the other stages release has no guarantee.",
    ),
    "refuted": Verdict(
        "bad",
        "Claim refuted",
        "The paper claims a guarantee that does not hold. Its own ε is shown for comparison only.",
    ),
    "none": Verdict(
        "bad",
        "No privacy guarantee",
        "The method makes no claim. Treat all that it released as if it were the rows.",
    ),
}

UNDECLARED = Verdict(
    "caution",
    "Differentially private, but for its schema",
    "Everything else that left a party is in its ledger, and ε is recomputed from the ledgers. ε "
    "does not cover what the schema says of the columns above.",
)

OVERSPENT = Verdict("bad", "Over budget", "A party's ledger costs more than this study allowed.")

NOT_PRIVATE = Verdict("bad", "Not private", "Nothing on this page may be relied on as private.")

PARTIAL_ONLY = Verdict(
    "bad",
    "Partly private",
    "Noise covers a part of what was released, and nothing covers the rest. What is not covered "
    "can give a row away whole, so no ε holds for this page or for the table.",
)

TRUST = {
    "curator": "a trusted curator sees the rows",
    "secure-sum": "the coordinator sees masked sums only",
    "mpc": "computed together by parties and coordinator",
    "local": "noise is added before anything leaves a party",
}

HOW = {"declared": "declared", "paid": "paid for", "free": "from data, free"}


def epsilon(value: float) -> str:
    """ε with three significant digits, rounded up so that the page never understates it.

    The value is first read to 12 digits, so that 1 + 2e-16 prints as 1.

    >>> epsilon(0.99871), epsilon(1.0000000000000002), epsilon(float("inf"))
    ('0.999', '1', '∞')
    """
    if math.isinf(value):
        return "∞"
    near = Context(prec=12).create_decimal_from_float(value)
    up = Context(prec=3, rounding=ROUND_CEILING).create_decimal(near)
    return f"{float(up):g}"


def relation(name: str) -> str:
    """A neighbouring relation in words.

    >>> relation("add_remove")
    'one added or removed'
    """
    known = {"add_remove": "one added or removed", "replace_one": "one replaced"}
    return known.get(name, name)


def small(value: float) -> str:
    """A small number such as δ.

    >>> small(1e-5), small(0.25)
    ('1e-5', '0.25')
    """
    if math.isinf(value):
        return "∞"
    return f"{value:.3g}".replace("e-0", "e-").replace("e+0", "e")


def count(value: float) -> str:
    """A whole number with thin separators.

    >>> count(48842)
    '48,842'
    """
    return f"{value:,.0f}"


def size(value: float) -> str:
    """Bytes in decimal units.

    >>> size(512), size(61_440), size(3.2e9)
    ('512 B', '61.4 kB', '3.2 GB')
    """
    for unit in ("B", "kB", "MB", "GB"):
        if value < 1000:
            return f"{value:.3g} {unit}"
        value /= 1000
    return f"{value:.3g} TB"


def duration(seconds: float) -> str:
    """Wall-clock time.

    >>> duration(0.0421), duration(7.25), duration(754)
    ('42 ms', '7.2 s', '12 min 34 s')
    """
    if seconds < 1:
        return f"{seconds * 1000:.0f} ms"
    if seconds < 60:
        return f"{seconds:.1f} s"
    minutes, rest = divmod(round(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours} h {minutes} min" if hours else f"{minutes} min {rest} s"


def percent(value: float) -> str:
    """A proportion as a percentage.

    >>> percent(0.2394), percent(0.0004), percent(0)
    ('23.9%', '<0.1%', '0%')
    """
    if value == 0:
        return "0%"
    return "<0.1%" if value < 0.001 else f"{100 * value:.1f}%"


def shorten(text: str, length: int) -> str:
    """Cut a label to `length` characters.

    >>> shorten("Married-civ-spouse", 10)
    'Married-c…'
    """
    return text if len(text) <= length else text[: length - 1] + "…"


def attacker_power(false_alarms: float, epsilon: float, delta: float) -> float:
    """Largest true-positive rate of any test between two neighbouring inputs.

    ``min(1, e^ε·α + δ, 1 − e^−ε·(1 − δ − α))`` with α false alarms, 0 to 1: the bound that (ε, δ)-
    differential privacy puts on every attack (Wasserman and Zhou 2010; Kairouz, Oh and Viswanath
    2015). ε may be infinite.

    >>> round(attacker_power(0.01, 1.0, 1e-5), 4)
    0.0272
    """
    if epsilon > 700:
        return 1.0
    rising = math.exp(epsilon) * false_alarms + delta
    falling = 1 - math.exp(-epsilon) * (1 - delta - false_alarms)
    return max(0.0, min(1.0, rising, falling))
