"""What Fed-TGAN and MD-TGAN ask of their parties (Zhao et al. 2021; Hardy et al. 2019).

method.py has the sources. There is no guarantee.
"""

from __future__ import annotations

from siloweave.federation.messages import Array, Public, Released, Reply, Request


class Described(Reply, frozen=True):
    """How many rows there are, and what every column looks like, as JSON."""

    rows: Released[int]
    columns: Released[bytes]


class Describe(Request[Described], frozen=True, tag="fed_tgan/describe"):
    """Send the number of your rows, and a summary of every column."""


class Ready(Reply, frozen=True):
    """Sum, sum of squares, least and largest of every entry of your vectors, (4, width)."""

    sums: Released[Array]


class Prepare(Request[Ready], frozen=True, tag="fed_tgan/prepare"):
    """Encode your rows with these features; `seed` is for first weights, batches and encoding."""

    features: str
    seed: int


class Trained(Reply, frozen=True):
    """The networks of a party after a round of its own steps, as safetensors bytes."""

    networks: Released[bytes]


class Round(Request[Trained], frozen=True, tag="fed_tgan/round"):
    """Continue the training of these networks; `rows` and `sums` are those of all parties."""

    number: int
    rows: int
    sums: Array
    networks: bytes


# MD-TGAN


class Judged(Reply, frozen=True):
    """How the critic's dislike changes with every entry of the rows judged, (batch, width)."""

    feedback: Released[Array]


class Judge(Request[Judged], frozen=True, tag="md_tgan/judge"):
    """Learn from the first rows beside your own, and judge the second.

    `places` and `again_places` are the conditions that each row was generated under.
    """

    number: int
    fake: Array
    places: Array
    again: Array
    again_places: Array


class Handed(Reply, frozen=True):
    """A party's critic, as safetensors bytes."""

    critic: Released[bytes]


class Hand(Request[Handed], frozen=True, tag="md_tgan/hand"):
    """Send your critic as it is after this many steps."""

    number: int


class Took(Reply, frozen=True):
    """A confirmation that the critic is in use."""

    done: Public[bool]


class Take(Request[Took], frozen=True, tag="md_tgan/take"):
    """Continue with this critic, which another party has trained for so many steps."""

    number: int
    critic: bytes
