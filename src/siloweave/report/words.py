"""Numbers, labels and results in words, as the pages print them."""

import math
import re
from collections import Counter
from collections.abc import Mapping, Sequence
from datetime import date, timedelta
from decimal import ROUND_CEILING, ROUND_FLOOR, Context
from itertools import pairwise, takewhile
from statistics import median
from typing import Any

from siloweave.progress import duration
from siloweave.report.record import Overhead

TRUST = {
    "curator": "a trusted curator sees the rows",
    "secure-sum": "the coordinator sees masked sums only",
    "mpc": "computed together by parties and coordinator",
    "local": "noise is added before anything leaves a party",
}
"""Whom a method trusts, in words."""

NO_ROOM = 0.02
"""A ceiling no further above its floor than this share of the larger leaves no room between."""

# An ε whose power of e is no float: it overflows at 709.
_NO_FACTOR = 700
# Relative; what floats may lose, so that a number that is exact is not rounded up by it.
_ROUNDING = 1e-12
# Day 0 of columns of dates.
_EPOCH = date(1970, 1, 1)
# From this size on numbers have too many digits to print whole.
_LONGEST = 1e15
# Units of numbers that have too many digits to be counted at a glance.
_LARGE = {"trillion": 1e12, "billion": 1e9, "million": 1e6}
# A smaller number is 0.
_TINY = 1e-300
# Columns named in a sentence.
_NAMED = 5


def refusing(names: Sequence[str]) -> str:
    """Describe what it means, under a guarantee, that columns refuse a table by choice."""
    listed = ", ".join(names[:_NAMED])
    if len(names) > _NAMED:
        listed += ", …"
    return (
        f'{listed}: outside = "refuse" in the schema. A run that finishes reveals that every cell '
        "of these columns fits the schema. A single row can decide that, and ε does not cover it: "
        "declare a fallback instead."
    )


def spans(edges: Sequence[float], *, whole: bool, dates: bool) -> tuple[str, ...]:
    """Describe the cells between edges, each from its first to its last number.

    Args:
        edges: Where cells begin and end; dates as days since 1970.
        whole: Whether the numbers are whole, so that a cell ends one before its edge.
        dates: Whether they are days.

    >>> spans([17, 20, 21], whole=True, dates=False)
    ('17 to 19', '20')
    >>> spans([0.0, 0.5, 1.0], whole=False, dates=False)
    ('0 to 0.5', '0.5 to 1')
    """
    labels = []
    for start, end in pairwise(edges):
        last = end - 1 if whole else end
        first_text = day(start) if dates else axis_number(start)
        last_text = day(last) if dates else axis_number(last)
        if first_text == last_text:
            labels.append(first_text)
        else:
            labels.append(f"{first_text} to {last_text}")
    return tuple(labels)


def axis_number(value: float) -> str:
    """Write a number of an axis: four digits, or thousands with separators.

    >>> axis_number(0.12345), axis_number(48842), axis_number(0)
    ('0.1235', '48,842', '0')
    """
    if 1000 <= abs(value) < _LONGEST:
        return f"{value:,.0f}"
    # So small a number ends a cell that holds 0 alone.
    if abs(value) < _TINY:
        value = 0.0
    return f"{value:.4g}"


def day(days: float) -> str:
    """Write a day that is counted from 1970; as a number where the calendar has no such day.

    >>> day(365.5)
    '1971-01-01'
    """
    try:
        return str(_EPOCH + timedelta(days=math.floor(days)))
    except OverflowError:
        return f"day {days:g}"


def epsilon(value: float) -> str:
    """Write ε with three significant digits, rounded up: the page never understates it.

    The value is first read to 12 digits, so that 1 + 2e-16 prints as 1.

    >>> epsilon(0.99871), epsilon(1.0000000000000002), epsilon(float("inf"))
    ('0.999', '1', '∞')
    """
    if math.isinf(value):
        return "∞"
    return f"{_up(value):g}"


def _up(value: float) -> float:
    """Round a number up to three significant digits, after reading it to 12."""
    near = Context(prec=12).create_decimal_from_float(value)
    rounded = Context(prec=3, rounding=ROUND_CEILING).create_decimal(near)
    return float(rounded)


def relation(name: str) -> str:
    """Describe a neighbouring relation in words.

    >>> relation("add_remove")
    'one added or removed'
    """
    phrases = {"add_remove": "one added or removed", "replace_one": "one replaced"}
    return phrases.get(name, name)


def whom(unit: str, rows: int | None) -> str:
    """Describe what is protected; None for rows that nothing bounded, as in early records.

    >>> whom("row", 1), whom("patient_id", 5), whom("patient_id", 1)
    ('row', 'patient_id with at most 5 rows', 'patient_id with at most 1 row')
    """
    if unit == "row" or rows is None:
        return unit
    noun = "row" if rows == 1 else "rows"
    return f"{unit} with at most {rows} {noun}"


def small(value: float) -> str:
    """Write a small number such as δ, rounded up as `epsilon` does.

    >>> small(1e-5), small(3.711e-5)
    ('1e-5', '3.72e-5')
    """
    return epsilon(value).replace("e-0", "e-").replace("e+0", "e")


def points(value: float) -> str:
    """Write a share's error in percentage points, with two significant digits.

    >>> points(0.01234), points(0.00005), points(0.0)
    ('1.2', '0.005', '0')
    """
    # Through a float, so that 0.005 is not printed as 5e-03.
    two_digits = float(f"{100 * value:.2g}")
    return f"{two_digits:g}"


def rounded(value: float) -> str:
    """Write a number with three significant digits; a large one in words.

    >>> rounded(0.0647), rounded(1312.4), rounded(2.67e8), rounded(3.1e40)
    ('0.0647', '1,310', '267 million', '3.1 × 10^40')
    """
    three_digits = float(f"{value:.3g}")
    size = abs(three_digits)
    if size >= _LONGEST and math.isfinite(size):
        digits, _, power = f"{three_digits:.2e}".partition("e")
        return f"{float(digits):g} × 10^{int(power)}"
    for name, unit in _LARGE.items():
        if unit <= size < _LONGEST:
            return f"{three_digits / unit:g} {name}"
    if 1000 <= size < _LONGEST:
        return f"{three_digits:,.0f}"
    return f"{three_digits:.3g}"


def count(value: float) -> str:
    """Write a whole number with thin separators.

    >>> count(48842)
    '48,842'
    """
    return f"{value:,.0f}"


def parties(number: int) -> str:
    """Write a number of parties.

    >>> parties(1), parties(1200)
    ('1 party', '1,200 parties')
    """
    noun = "party" if number == 1 else "parties"
    return f"{count(number)} {noun}"


def counted(what: str) -> str:
    """Mend the noun of what a ledger counts once; its entries are signed as they were written.

    >>> counted("1 marginals: sex×income"), counted("choice among 21 marginals")
    ('1 marginal: sex×income', 'choice among 21 marginals')
    """
    return re.sub(
        r"(?<![\w.,])1 (chosen )?(marginal|column|table|pair)s\b", r"1 \1\2", what
    )


def size(value: float) -> str:
    """Write a number of bytes in decimal units.

    >>> size(512), size(61_440), size(3.2e9), size(999_900)
    ('512 B', '61.4 kB', '3.2 GB', '1 MB')
    """
    value = float(f"{value:.3g}")
    for unit in ("B", "kB", "MB", "GB"):
        if value < 1000:
            return f"{value:.3g} {unit}"
        value /= 1000
    return f"{value:.3g} TB"


def overhead(spent: Overhead) -> str:
    """Describe where a coordinator's time went, in a few sentences."""
    sealing_ms = 1000 * spent.sealing / max(spent.messages, 1)
    waiting_s = spent.waiting / max(spent.questions, 1)
    each = f"{sealing_ms:.1f} ms a message"
    waited = f"{duration(waiting_s)} a question"
    return (
        f"The coordinator computed for {duration(spent.own)}, sealed, opened and signed for "
        f"{duration(spent.sealing)} ({each}), and waited {duration(spent.waiting)} for parties and "
        f"for what carries messages ({waited}). Part of that wait is computing at the parties. No "
        "party says how much, since it may depend on rows."
    )


def percent(value: float) -> str:
    """Write a proportion as a percentage.

    >>> percent(0.2394), percent(0.0004), percent(0)
    ('23.9%', '<0.1%', '0%')
    """
    if value == 0:
        return "0%"
    if value < 0.001:
        return "<0.1%"
    return f"{100 * value:.1f}%"


def at_most(share: float) -> str:
    """Write a bound of a proportion as a percentage, rounded up.

    >>> at_most(0.02718), at_most(0.25)
    ('2.8%', '25.0%')
    """
    thousandths = math.ceil(1000 * share * (1 - _ROUNDING))
    return percent(thousandths / 1000)


def css_text(text: str) -> str:
    r"""Write a text as it stands between quotes in a style sheet, whatever it holds.

    >>> css_text('flu "2026"</style>')
    'flu \\22 2026\\22 \\3c \\2f style\\3e '
    """
    return "".join(
        letter if letter.isalnum() or letter == " " else f"\\{ord(letter):x} "
        for letter in text
    )


def shorten(text: str, length: int) -> str:
    """Cut a label to `length` characters.

    >>> shorten("Married-civ-spouse", 10)
    'Married-c…'
    """
    if len(text) <= length:
        return text
    return text[: length - 1] + "…"


def first_line(text: str, length: int) -> str:
    """Cut a list of words to `length` characters, behind a comma or semicolon if there is one.

    >>> first_line("3 categories: red, green, blue", 26)
    '3 categories: red, green, …'
    >>> first_line("17 to 90", 26)
    '17 to 90'
    """
    if len(text) <= length:
        return text
    start = text[:length]
    end = max(start.rfind(","), start.rfind(";"))
    if end < 0:
        return shorten(text, length)
    return f"{start[: end + 1]} …"


def shorten_apart(texts: Sequence[str], length: int) -> list[str]:
    """Cut labels to `length` characters, so that different ones stay different if possible.

    Labels that look alike when their ends are cut lose their middle, or, where that does not help,
    what comes before the first difference.

    >>> shorten_apart(["Never", "Other service, north", "Other service, south"], 12)
    ['Never', 'Other …north', 'Other …south']
    >>> shorten_apart(["Ward in the north of town", "Ward in the south of town"], 9)
    ['…north o…', '…south o…']
    """
    short = [shorten(text, length) for text in texts]
    for shorten_differently in (_without_middle, _from_difference):
        # Labels that look like another one are replaced, if that makes any of them different.
        counts = Counter(short)
        repeated = [label for label, count in counts.items() if count > 1]
        for label in repeated:
            places = [i for i, text in enumerate(short) if text == label]
            alike = [texts[i] for i in places]
            cut = [shorten_differently(text, length, alike) for text in alike]
            if len(set(cut)) == 1:
                continue
            for i, text in zip(places, cut, strict=True):
                short[i] = text
    return short


def _without_middle(text: str, length: int, alike: Sequence[str]) -> str:
    """Cut the middle out of a label."""
    if len(text) <= length:
        return text
    end = (length - 1) // 2
    beginning = length - 1 - end
    return f"{text[:beginning]}…{text[-end:]}"


def _from_difference(text: str, length: int, alike: Sequence[str]) -> str:
    """Cut a label to the part from which it differs from similar ones."""
    columns = zip(*alike, strict=False)
    common = list(takewhile(lambda letters: len(set(letters)) == 1, columns))
    return "…" + shorten(text[len(common) :], length - 1)


def attacker_power(false_alarms: float, epsilon: float, delta: float) -> float:
    """Return the largest true positive rate of any test between two neighbouring inputs.

    ``min(1, e^ε·α + δ, 1 − e^−ε·(1 − δ − α))`` with α false alarms, 0 to 1: the bound that (ε, δ)-
    differential privacy puts on every attack (Wasserman and Zhou 2010; Kairouz, Oh and Viswanath
    2015). ε may be infinite.

    >>> round(attacker_power(0.01, 1.0, 1e-5), 4)
    0.0272
    """
    if epsilon > _NO_FACTOR:
        return 1.0
    # The bound holds for both inputs, so it limits found rows as well as missed ones.
    rising = math.exp(epsilon) * false_alarms + delta
    falling = 1 - math.exp(-epsilon) * (1 - delta - false_alarms)
    return max(0.0, min(1.0, rising, falling))


def rounded_down(value: float) -> str:
    """Write a small number that something must stay below, with three digits, rounded down.

    The value is first read to 12 digits, as `epsilon` reads it.

    >>> rounded_down(2.0475e-6), rounded_down(1e-5 - 1e-6)
    ('2.04e-6', '9e-6')
    """
    near = Context(prec=12).create_decimal_from_float(value)
    downwards = Context(prec=3, rounding=ROUND_FLOOR)
    return small(float(downwards.create_decimal(near)))


def factor(epsilon: float) -> str:
    """Write e to the power of ε with three significant digits, rounded up.

    >>> factor(1.0), factor(8.0), factor(30.0)
    ('2.72', '2,990', '1.07e+13')
    """
    if epsilon > _NO_FACTOR:
        return "∞"
    upwards = Context(prec=3, rounding=ROUND_CEILING)
    rounded = upwards.create_decimal_from_float(math.exp(epsilon))
    if 1000 <= rounded < 1e9:
        return f"{rounded:,f}"
    return small(float(rounded))


def one_in(probability: float) -> str:
    """Write a small probability as one in so many, never too small.

    >>> one_in(1e-5), one_in(0.0003)
    ('1 in 100,000', '1 in 3,300')
    """
    many = 1 / probability * (1 + _ROUNDING)
    # Two digits, rounded down: one in fewer is a larger probability.
    unit = 10.0 ** max(math.floor(math.log10(many)) - 1, 0)
    rounded = math.floor(many / unit) * unit
    return f"1 in {rounded:,.0f}"


def of_rows(epsilon: float, delta: float, rows: int) -> tuple[float, float]:
    """Return the ε and δ of a unit with several rows, from a bound for one row.

    ``(kε, δ (e^kε − 1) / (e^ε − 1))`` for k rows, wherever they lie (group privacy: Dwork and Roth
    2014, theorem 2.2; Vadhan 2017, lemma 2.2). δ is at most 1.

    >>> of_rows(1.0, 1e-5, 2)
    (2.0, 3.718281828459046e-05)
    """
    if rows == 1:
        return epsilon, delta
    if rows * epsilon > _NO_FACTOR:
        return rows * epsilon, 1.0
    # At ε = 0 the quotient has no value, and its limit is the number of rows.
    growth = float(rows)
    if epsilon:
        growth = math.expm1(rows * epsilon) / math.expm1(epsilon)
    return rows * epsilon, min(1.0, delta * growth)


# Results in a sentence


def found_by_attacks(risks: Mapping[str, Any]) -> tuple[str, str]:
    """Return whether attacks found anything, as a tone and sentences.

    An attack found something if its interval stays above 0 and it did better than guesses. By
    chance some would; more than chance is what fewer than 5% of runs without a leak would show, if
    attacks were independent.

    Args:
        risks: As `Risks.to_dict` gives them.
    """
    tone, text = _found(risks)
    caution = risks.get("caution", "")
    if not caution:
        return tone, text
    # What is found may be no leak, and what is not found may be hidden: neither good nor bad.
    return "caution", f"{caution} {text}"


def _found(risks: Mapping[str, Any]) -> tuple[str, str]:
    """Return a tone and sentences as `found_by_attacks`, as if control rows were no question."""
    parts = risks["parts"]
    worst = risks["worst"]
    count = len(parts)
    hits = hits_of(risks)

    unit = "row" if risks.get("unit", "row") == "row" else "person"
    caught = ""
    if worst and worst["caught"]:
        caught = f"At least one training {unit} is given away, by {worst['by']}. "

    if not count and caught:
        return "bad", caught.strip()
    if not count:
        return "caution", "No attack could be made."

    if not hits:
        nothing = f"none of {count} attacks has an interval above 0"
        if caught:
            return "bad", f"{caught}Beyond that, {nothing}."
        rows = f", and no training {unit} stands out" if worst else ""
        return "good", (
            f"Nothing was found: {nothing}{rows}. That is no proof: other attackers may know more."
        )

    # An interval is wholly above 0 by chance with half of what it leaves out.
    chance = (1 - risks["confidence"]) / 2
    best = max(hits, key=lambda part: part["low"])
    verb = "has" if len(hits) == 1 else "have"
    result = (
        f"{len(hits)} of {count} attacks {verb} an interval above 0. The strongest by its lower "
        f"end is {best['attack'].replace('_', ' ')} ({best['variant']}): its risk is at least "
        f"{best['low']:.3f}, and most likely {best['risk']:.3f}. If nothing leaked, about "
        f"{count * chance:.1f} of {count} would have such an interval by chance."
    )
    if caught or _chance_of(len(hits), count, chance) < 0.05:
        return "bad", f"{caught or 'Something was found. '}{result}"
    return "caution", f"The attacks found little more than chance would. {result}"


def hits_of(risks: Mapping[str, Any]) -> list[Mapping[str, Any]]:
    """Return the attacks that found something: more than 0, and more than guesses do."""
    return [
        part
        for part in risks["parts"]
        if part["low"] > 0 and part["train"]["value"] > part["baseline"]["value"]
    ]


def _chance_of(hits: int, count: int, chance: float) -> float:
    """Return the probability of at least so many hits in `count` independent attacks."""
    return sum(
        math.comb(count, k) * chance**k * (1 - chance) ** (count - k)
        for k in range(hits, count + 1)
    )


def has_room(part: Mapping[str, Any]) -> bool:
    """Return whether real rows score clearly better than shuffled columns."""
    ceiling = part["ceiling"]
    floor = part["floor"]
    if ceiling is None or floor is None:
        return False
    room = ceiling - floor
    if part["better"] != "higher":
        room = -room
    return bool(room > NO_ROOM * max(abs(ceiling), abs(floor)))


def scored(scores: Mapping[str, Any]) -> str:
    """Sum up scores in a few words; they are those of `Scores.to_dict`, with ceiling and floor.

    Measures that shuffled columns pass as well as real rows, or better, do not count.
    """
    parts = scores["parts"]
    caution = scores["settings"].get("caution", "")
    if caution:
        return f"{caution} {_reached(parts)}"
    return _reached(parts)


def _reached(parts: Sequence[Mapping[str, Any]]) -> str:
    """Say how far scores are on the way from their floors to their ceilings."""
    # How far each score is on the way from its floor to its ceiling, from 0 to 1.
    reached = {}
    for part in filter(has_room, parts):
        share = (part["value"] - part["floor"]) / (part["ceiling"] - part["floor"])
        reached[part["name"]] = min(max(share, 0.0), 1.0)
    if not reached:
        return (
            "No measure here separates real rows from shuffled columns, so these scores do not say "
            "whether columns go together as they do in the real table."
        )
    worst = min(reached, key=reached.__getitem__)
    noun = "measure" if len(reached) == 1 else "measures"
    return (
        f"With shuffled columns at 0% and real rows at 100%, the synthetic table is at "
        f"{percent(median(reached.values()))} in the median of {len(reached)} {noun}. "
        f"The lowest is {worst}, at {percent(reached[worst])}."
    )


# Terms

TERMS: Mapping[str, tuple[str, str]] = {
    "alignment": (
        r"alignments?",
        "finding which row of each party is about the same person",
    ),
    "clique": (r"cliques?", "a set of columns that the model joins directly"),
    "closure": (
        r"closure",
        "the queries of a workload, and all combinations of columns within them",
    ),
    "control": (
        r"control rows?",
        "real rows that were not learnt from, to compare attacks with",
    ),
    "coordinator": (
        r"coordinator",
        "the computer that asks the parties and fits the model",
    ),
    "Cramér's V": (
        r"Cram[ée]r(?:'|&#39;|’)s V",
        "how strongly two columns go together: 0 is not at all, 1 is fully",
    ),
    "curator": (r"curator", "someone who sees all rows and computes with them"),
    "discrete Gaussian": (r"discrete Gaussian", "noise in whole numbers, bell-shaped"),
    "exponential mechanism": (
        r"exponential( mechanism)?",
        "a random choice; better is likelier",
    ),
    "ledger": (
        r"ledgers?",
        "a party's signed list of all that it released; ε follows from it",
    ),
    "marginal": (
        r"marginals?",
        "the counts of all combinations of values of some columns",
    ),
    "masked sum": (
        r"masked|masks",
        "a sum over parties in which no single part can be seen",
    ),
    "membership": (r"membership", "an attack: was this row among those learnt from?"),
    "neighbours": (
        # Not the attack by neighbours, which is a name in a table.
        r"(?<!membership: )[Nn]eighbours(?=:?\s+[a-z])",
        "two tables that differ in one unit; ε compares both",
    ),
    "party": (r"party|parties", "an organisation that holds real rows or columns"),
    "release": (r"releases?", "anything computed from rows that left a party"),
    "roster": (r"roster", "the list of a study's parties, fixed before it begins"),
    "sweeps": (
        r"(?:\w+_)?sweeps?",
        "passes over all measurements, by which the model is fitted",
    ),
    "synthetic": (
        r"synthetic",
        "drawn from a model; a row may equal a real one by chance, or copy it without a guarantee",
    ),
    "TVD": (
        r"TVD|total variation",
        "distance of distributions: 0 is equal, 1 is disjoint",
    ),
    "unit": (r"unit", "what ε protects: one row, unless the study says otherwise"),
    "workload": (
        r"workload",
        "the combinations of columns that the table should reproduce",
    ),
    "δ": (r"δ|delta", "the probability that the bound of ε leaves out"),
    "ε": (
        r"ε|epsilon",
        "the bound: what one unit may change is at most a factor of e^ε",
    ),
    "ρ": (r"ρ", "a measure of loss (zCDP) that adds up exactly over releases"),
}
"""Terms of the pages: what finds each in a text, and what it means. `docs/glossary.md` has most."""


def terms_in(page: str) -> list[tuple[str, str]]:
    """Return the terms that occur on a page, with what each means.

    >>> [term for term, _ in terms_in("<p class='ledger'>ε = 1 over both parties</p>")]
    ['party', 'ε']
    """
    # Without tags, whose classes and names are no words of the page.
    text = re.sub(r"<style>.*?</style>|<[^>]*>", " ", page, flags=re.DOTALL)
    return [
        (term, meaning)
        for term, (pattern, meaning) in TERMS.items()
        if re.search(rf"(?<!\w)(?:{pattern})(?!\w)", text)
    ]
