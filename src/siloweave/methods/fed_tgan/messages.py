"""Fed-TGAN: parties with different rows train one CTGAN in rounds, without showing their rows.

Zhao, Birke, Kunar & Chen 2021, "Fed-TGAN: Federated learning framework for synthesizing tabular
data", sections 4.1 to 4.3.

1. Every party tells the frequencies of its categories, how many rows it has, and a variational
   Gaussian mixture of each column of numbers; the coordinator fits encoders to all of them
   (tables/pooled.py).
2. A party counts more in the mean the more rows it has and the nearer its columns are to those of
   all parties: with S_ij the Jensen-Shannon or Wasserstein distance of party i in column j, scaled
   so that a column sums to 1, SS_i = sum_j S_ij and SD_i = (1 - SS_i / sum_k SS_k) n_i / N, the
   weights are softmax(SD).
3. In every round each party trains the networks for an epoch of its rows, and the coordinator
   averages generators and critics by these weights.

**Guarantee**: none. Frequencies, mixtures and networks leave a party as they are, and its ledger
says so with an event of infinite cost, entered before anything is sent. A category that one person
holds is visible, and so is a lone value (a mode of no width).

Departures: the quantiles of a mixture stand for draws from it; columns of few or well supported
numbers are told as counts instead of mixtures; batch statistics are those of the averaged
generator's own rows instead of a mean of the parties'; the penalty is on straight lines between
rows (CTGAN's), where the authors' code interpolates on spheres. Other networks may take CTGAN's
place: see rows_split.py. One party alone trains what a central fit trains, step for step.

MD-TGAN: one generator at the coordinator, one critic at every md_party; critics change places.

Hardy, Le Merrer & Sericola 2019, "MD-GAN: Multi-discriminator generative adversarial networks for
distributed datasets", Algorithm 1, with CTGAN's networks and losses as in section 5.1 of Zhao,
Birke, Kunar & Chen 2021, "Fed-TGAN", whose baseline it is.

In every step the coordinator sends two batches of generated rows; each md_party's critic learns
from
the first beside real rows and answers how its judgement of the second changes with every entry.
The generator follows the mean of these answers. After an epoch every critic moves to the next
md_party of the roster, its moments stay behind.

**Guarantee**: none, for the reasons of fed_tgan.py, and one more: critics, which remember rows
best, are handed from md_party to md_party.

Departures: all parties get the same two batches (k = 1 of the paper); conditions of generated rows
follow everyone's frequencies, those of real rows the md_party's own.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from siloweave.federation.messages import Array, Public, Released, Reply, Request

if TYPE_CHECKING:
    pass


class Described(Reply, frozen=True):
    """How many rows there are, and what every column looks like, as JSON."""

    rows: Released[int]
    columns: Released[bytes]


class Describe(Request[Described], frozen=True, tag="rounds/describe"):
    """Summarise your rows."""


class Ready(Reply, frozen=True):
    """Sum, sum of squares, least and largest of every entry of your vectors, (4, width)."""

    sums: Released[Array]


class Prepare(Request[Ready], frozen=True, tag="rounds/prepare"):
    """Encode your rows with these features, and get ready to train."""

    features: str
    settings: bytes
    target: str | None
    seed: int
    roster: tuple[str, ...]
    rounds: int
    epochs: int


class Trained(Reply, frozen=True):
    """Networks after an epoch of a party's rows, as safetensors bytes."""

    networks: Released[bytes]


class Round(Request[Trained], frozen=True, tag="rounds/round"):
    """Train these networks on; `rows` and `sums` are those of all parties."""

    number: int
    rows: int
    sums: Array
    networks: bytes


class Judged(Reply, frozen=True):
    """How the critic's dislike changes with every entry of the rows judged, (batch, width)."""

    feedback: Released[Array]


class Judge(Request[Judged], frozen=True, tag="md_tgan/judge"):
    """Learn from the first rows beside your own, and judge the second.

    `places` and `again_places` say what each row was asked for.
    """

    number: int
    fake: Array
    places: Array
    again: Array
    again_places: Array


class Handed(Reply, frozen=True):
    """A md_party's critic, as safetensors bytes."""

    critic: Released[bytes]


class Hand(Request[Handed], frozen=True, tag="md_tgan/hand"):
    """Give your critic away after this many steps."""

    number: int


class Took(Reply, frozen=True):
    """The critic is in use."""

    done: Public[bool]


class Take(Request[Took], frozen=True, tag="md_tgan/take"):
    """Go on with this critic after so many steps."""

    number: int
    critic: bytes
