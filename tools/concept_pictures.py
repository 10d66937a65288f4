"""Draw the pictures of docs/concepts/ and the decision tree of docs/guides/choosing.md.

python tools/concept_pictures.py
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from html import escape
from pathlib import Path
from typing import NamedTuple

from siloweave.report import svg, words

ROOT = Path(__file__).parent.parent
IMAGES = ROOT / "docs" / "images"
EPSILONS = (0.1, 1.0, 3.0, 10.0)
LABELS = ((0.56, 0.5), (0.3, 0.68), (0.07, 0.87), (0.02, 1.02))
"""Where the curves' names stand: false alarms, and people found."""
DELTA = 1e-6
FALSE_ALARMS = 0.01
RAREST = 1e-4
"""The rarest result, without a person's rows, for which the odds are drawn."""
STYLE = (
    "text{font:13px system-ui,sans-serif;fill:#1b1f27}.small{font-size:11.5px;fill:#4b5260}"
    ".head{font-weight:600}.paper{fill:#fff}.grid{stroke:#dfdfd9}"
    ".box{fill:#eef1fb;stroke:#3f63d6;stroke-width:1.3}.hub{fill:#fdf3e7;stroke:#d9822b;"
    "stroke-width:1.3}.out{fill:#e8f5f0;stroke:#12806a;stroke-width:1.3}"
    ".cell{fill:#fff;stroke:#9aa2b1}.mine{fill:#3f63d6;stroke:#3f63d6}"
    ".flow{stroke:#5f6673;stroke-width:1.5;fill:none}.tip{fill:#5f6673}"
    ".c0{stroke:#3f63d6}.c1{stroke:#12806a}.c2{stroke:#d9822b}.c3{stroke:#b3323f}"
    ".curve{fill:none;stroke-width:2}.chance{stroke:#8a8f9a;stroke-dasharray:4 4}"
    ".b0{fill:#3f63d6}.b1{fill:#12806a}.b2{fill:#d9822b}.b3{fill:#b3323f}"
    "a text{fill:#2a49b0;text-decoration:underline}"
    "@media(prefers-color-scheme:dark){text{fill:#e9ebf0}.small{fill:#b3bac8}.paper{fill:#12151b}"
    ".grid{stroke:#313743}.box{fill:#1a2236}.hub{fill:#2c2418}.out{fill:#16281f}"
    ".cell{fill:#12151b;stroke:#5f6673}.flow{stroke:#959dac}.tip{fill:#959dac}"
    ".c0{stroke:#7d97f7}.c1{stroke:#4cc3a6}.c2{stroke:#f0a350}.c3{stroke:#f08a92}"
    ".b0{fill:#7d97f7}.b1{fill:#4cc3a6}.b2{fill:#f0a350}.b3{fill:#f08a92}"
    "a text{fill:#9db2ff}}"
)


class Box(NamedTuple):
    """A box with a heading, and lines below it."""

    x: float
    y: float
    width: float
    heading: str
    lines: tuple[str, ...]
    kind: str = "box"

    @property
    def height(self) -> float:
        """Return how high the box is drawn."""
        return 32.0 + 17.0 * len(self.lines)

    def draw(self) -> str:
        """Return the box."""
        body = svg.rect(self.x, self.y, self.width, self.height, self.kind, rx=6)
        body += svg.text(self.x + 10, self.y + 21, self.heading, "head")
        for place, line in enumerate(self.lines):
            body += svg.text(self.x + 10, self.y + 39 + 17 * place, line, "small")
        return body


def arrow(x1: float, y1: float, x2: float, y2: float, label: str = "") -> str:
    """Return an arrow to the right or down, and what travels on it."""
    body = svg.line(x1, y1, x2, y2, "flow")
    if x2 > x1:
        body += svg.path([(x2, y2), (x2 - 9, y2 - 5), (x2 - 9, y2 + 5)], "tip", close=True)
    else:
        body += svg.path([(x2, y2), (x2 - 5, y2 - 9), (x2 + 5, y2 - 9)], "tip", close=True)
    if label:
        body += svg.text((x1 + x2) / 2, min(y1, y2) - 8, label, "small", "middle")
    return body


def cells(x: float, y: float, rows: Sequence[int], columns: Sequence[int]) -> str:
    """Return a small table of four rows and four columns; those of a party are filled."""
    body = ""
    for row in range(4):
        for column in range(4):
            kind = "cell mine" if row in rows and column in columns else "cell"
            body += svg.rect(x + 11 * column, y + 11 * row, 11, 11, kind)
    return body


def written(name: str, width: float, height: float, body: str, title: str, desc: str) -> None:
    """Write a picture."""
    whole = f"<style>{STYLE}</style>" + svg.rect(0, 0, width, height, "paper") + body
    drawn = svg.figure(width, height, whole, title=title, desc=desc)
    text = drawn.replace("<svg ", '<svg xmlns="http://www.w3.org/2000/svg" ', 1)
    (IMAGES / name).write_text(text + "\n", "utf-8")


def protocol(
    name: str,
    title: str,
    holders: Sequence[tuple[Box, Sequence[int], Sequence[int]]],
    sent: str,
    hub: Box,
    out: Box,
) -> None:
    """Write the picture of a protocol: who holds what, what travels, and what comes out."""
    body = ""
    for box, rows, columns in holders:
        body += box.draw() + cells(box.x + box.width - 56, box.y + 10, rows, columns)
        end = hub.y + hub.height / 2
        if len(holders) > 1:
            end += (box.y - holders[0][0].y) / 8 - 8
        body += arrow(box.x + box.width, box.y + box.height / 2, hub.x, end)
    first = holders[0][0]
    body += svg.text((first.x + first.width + hub.x) / 2, 20, sent, "small head", "middle")
    body += hub.draw() + out.draw()
    middle = hub.y + hub.height / 2
    body += arrow(hub.x + hub.width, middle, out.x, middle)
    height = max(box.y + box.height for box in (hub, out, *[holder[0] for holder in holders])) + 16
    written(name, 860, height, body, title, f"{sent}; {hub.heading}; {out.heading}.")


def draw_protocols() -> None:
    """Draw the three protocols of docs/concepts/how-it-works.md."""
    everything = (0, 1, 2, 3)
    out = ("model, synthetic table,", "report, ledgers")
    protocol(
        "how-one-owner.svg",
        "One owner",
        [(Box(16, 40, 224, "The owner", ("all rows, all columns", "on one machine")), everything,
          everything)],
        "counts",
        Box(340, 40, 220, "Noise, then a model", ("each noisy count", "costs some ε"), "hub"),
        Box(640, 40, 204, "What leaves", out, "out"),
    )  # fmt: skip
    protocol(
        "how-rows-split.svg",
        "Rows split",
        [
            (Box(16, 40 + 84 * i, 224, name, ("its rows", "its ledger")), (i,), everything)
            for i, name in enumerate(("Party A", "Party B", "Party C"))
        ],
        "masked, noisy counts",
        Box(340, 116, 220, "Coordinator", ("adds up: masks cancel,", "noise remains"), "hub"),
        Box(640, 116, 204, "What leaves", out, "out"),
    )
    protocol(
        "how-columns-split.svg",
        "Columns split",
        [
            (Box(16, 40 + 84 * i, 224, name, ("its columns, of the", "same people")), everything,
             ((0, 1), (2, 3))[i])
            for i, name in enumerate(("Party A", "Party B"))
        ],
        "shares of rows",
        Box(340, 72, 220, "Parties, coordinator", ("count together what", "none of them sees"),
            "hub"),
        Box(640, 72, 204, "What leaves", out, "out"),
    )  # fmt: skip


def largest_share(epsilon: float) -> float:
    """Return what a suspicion of one half can become at most, by a result no rarer than RAREST.

    The chance of any result with a person's rows is at most ``attacker_power``; divided by its
    chance without them it is the factor by which her odds grow (Bayes).
    """
    factor = words.attacker_power(RAREST, epsilon, DELTA) / RAREST
    return factor / (1 + factor)


def draw_epsilon() -> None:
    """Draw the attacker's odds of docs/concepts/epsilon.md from the bound on every attack."""
    left, top, size = 60.0, 68.0, 260.0
    body = svg.text(left, 26, "Best possible attack", "head")
    for share in (0.0, 0.25, 0.5, 0.75, 1.0):
        place = top + size * (1 - share)
        body += svg.line(left, place, left + size, place, "grid")
        body += svg.text(left - 8, place + 4, f"{share:.0%}", "small", "end")
        body += svg.text(left + size * share, top + size + 18, f"{share:.0%}", "small", "middle")
    body += svg.path([(left, top + size), (left + size, top)], "curve chance")
    for place, epsilon in enumerate(EPSILONS):
        points = []
        for step in range(201):
            alarms = step / 200
            power = words.attacker_power(alarms, epsilon, DELTA)
            points.append((left + size * alarms, top + size * (1 - power)))
        body += svg.path(points, f"curve c{place}")
        label_x, label_y = LABELS[place]
        spot = (left + size * label_x, top + size * (1 - label_y))
        body += svg.text(*spot, f"ε = {epsilon:g}", "small")
    body += svg.text(left + size / 2, top + size + 38, "false alarms", "small", "middle")
    body += svg.text(left, 42, "people in the table that are found, at most", "small")

    right, width = 500.0, 210.0
    body += svg.text(right - 40, 26, "Found at most, at 1 % false alarms", "head")
    body += svg.text(right - 40, 186, "A suspicion of 50 % becomes at most", "head")
    for place, epsilon in enumerate(EPSILONS):
        power = words.attacker_power(FALSE_ALARMS, epsilon, DELTA)
        for start, share in ((42.0, power), (202.0, largest_share(epsilon))):
            y = start + 30 * place
            body += svg.text(right - 8, y + 15, f"ε = {epsilon:g}", "small", "end")
            body += svg.rect(right, y, width * share, 20, f"b{place}")
            body += svg.text(right + width * share + 6, y + 15, shown(share), "small")
    desc = "; ".join(
        f"at epsilon {epsilon:g} at most "
        f"{shown(words.attacker_power(FALSE_ALARMS, epsilon, DELTA))} are found, and a suspicion "
        f"of one half becomes at most {shown(largest_share(epsilon))}"
        for epsilon in EPSILONS
    )
    written("epsilon.svg", 800, 376, body, "What an attacker can gain at most", desc)


def shown(share: float) -> str:
    """Return a bound as a percentage that is rounded up, but never to 100."""
    return "over 99.9 %" if share > 0.999 else words.at_most(share).replace("%", " %")


class Answer(NamedTuple):
    """A leaf of the decision tree: a method, where it is explained, and what it promises."""

    method: str
    page: str
    note: str


class Question(NamedTuple):
    """A question, and the answers with what follows."""

    text: str
    branches: tuple[tuple[str, Question | Answer], ...]


TREE = Question(
    "Who holds the table?",
    (
        (
            "One party",
            Question(
                "Does the result leave the organisation?",
                (
                    ("yes", Answer("aim", "#one-party-with-a-guarantee", "bounded by ε")),
                    (
                        "yes, and columns have few codes",
                        Answer("two_round", "#one-party-with-a-guarantee", "bounded by ε"),
                    ),
                    (
                        "no",
                        Answer(
                            "point_diff",
                            "#one-party-without-a-guarantee",
                            "no guarantee; may repeat rows",
                        ),
                    ),
                ),
            ),
        ),
        (
            "Different rows",
            Question(
                "Can all parties answer four times?",
                (
                    ("yes", Answer("two_round", "#several-parties", "bounded by ε")),
                    ("some come and go", Answer("flaim", "#several-parties", "bounded by ε")),
                    (
                        "a network is wanted",
                        Answer("dp_fed_point_diff", "rows-split-networks.md", "bounded by ε"),
                    ),
                ),
            ),
        ),
        (
            "Different columns",
            Question(
                "Does the result leave the organisations?",
                (
                    ("yes", Answer("secure_two_round", "columns-split.md", "bounded by ε")),
                    ("no", Answer("silofuse", "columns-split.md", "no guarantee")),
                ),
            ),
        ),
    ),
)


def leaves(question: Question) -> list[tuple[str, Question, str, Answer]]:
    """Return who holds the table, the question to them, the answer, and the method."""
    found = []
    for holder, asked in question.branches:
        assert isinstance(asked, Question)
        for answer, method in asked.branches:
            assert isinstance(method, Answer)
            found.append((holder, asked, answer, method))
    return found


def target(page: str) -> str:
    """Return where an answer leads in the built site, from the folder of pictures."""
    file, _, anchor = page.partition("#")
    name = file.removesuffix(".md") or "choosing"
    return f"../guides/{name}.html" + (f"#{anchor}" if anchor else "")


def draw_tree() -> None:
    """Draw the decision tree; its methods are links where the picture is opened by itself."""
    rows = leaves(TREE)
    pitch, top = 46.0, 54.0
    body = svg.text(20, 28, TREE.text, "head")
    body += svg.text(560, 28, "Take", "head")
    seen: set[str] = set()
    for place, (holder, asked, answer, method) in enumerate(rows):
        y = top + pitch * place
        if holder not in seen:
            seen.add(holder)
            several = len(asked.branches)
            middle = y + pitch * (several - 1) / 2
            body += Box(4, middle - 6, 228, holder, ()).draw()
            body += svg.text(252, y - 8, asked.text, "small head")
            for step in range(several):
                reached = y + pitch * step + 12
                points = [(232.0, middle + 10), (242.0, middle + 10), (242.0, reached)]
                body += svg.path([*points, (252.0, reached)], "flow")
        body += svg.text(258, y + 16, answer)
        body += arrow(478, y + 12, 548, y + 12)
        body += svg.rect(552, y - 5, 292, 34, "out", rx=6)
        named = svg.text(562, y + 17, method.method, "head")
        body += f'<a href="{escape(target(method.page))}">{named}</a>'
        body += svg.text(834, y + 17, method.note, "small", "end")
    desc = "; ".join(f"{holder}, {answer}: {method.method}" for holder, _, answer, method in rows)
    written("choosing.svg", 860, top + pitch * len(rows), body, "Which method to take", desc)


def tree_in_words() -> str:
    """Return the same tree as a nested list, with links that work on every page."""
    lines = []
    for holder, asked in TREE.branches:
        assert isinstance(asked, Question)
        lines.append(f"- **{holder}.** {asked.text}")
        for answer, method in asked.branches:
            assert isinstance(method, Answer)
            said = answer[0].upper() + answer[1:]
            lines.append(f"    - {said}: [`{method.method}`]({method.page}), {method.note}.")
    return "\n".join(lines)


def main() -> None:
    """Draw everything, and write the list of the tree into its page."""
    draw_protocols()
    draw_epsilon()
    draw_tree()
    sys.path.insert(0, str(ROOT / "benchmarks"))
    from marked import fill

    fill(ROOT / "docs" / "guides" / "choosing.md", "tree", tree_in_words())


if __name__ == "__main__":
    main()
