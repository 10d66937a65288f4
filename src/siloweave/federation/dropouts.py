"""Masked sums that survive parties which vanish: self masks, and seeds shared out for each sum.

Bonawitz et al. 2017, "Practical secure aggregation for privacy-preserving machine learning",
section 4.0.2 (double masking); Bell et al. 2020, "Secure single-server aggregation with
(poly)logarithmic overhead", section 3 (masks along a sparse graph); Shamir 1979, "How to share a
secret" (over the integers modulo 2^256 - 189).

In a cohort of n, c may collude with the coordinator and D may vanish. A party adds to its words one
mask of its own and one for each of its neighbours. With its words it sends the shares of all these
masks' seeds, sealed to every party of the cohort. Then there is one question: who is in the sum
(active), who is not (dead)? A party answers, for every active one, with its share of that one's own
mask and of its masks with dead neighbours. Any n - D answers open the sum. A mask between two
active parties is never opened, nor a dead party's own one.

Departures from the papers:

* Seeds are fresh for every sum and are shared in the message that carries the words, so nothing
  that opens one sum says anything of another one. Where a dead party's secret key is rebuilt
  (Bonawitz et al.), its words in all earlier sums of the run, whose own masks were opened, would be
  read. It also takes no message: a dead party has shared nothing, and its neighbours' shares
  suffice.
* The graph is a ring on which each party is a neighbour of the k/2 on either side (Harary 1962): it
  stays connected without any k - 1 parties. Bell et al. draw a graph of O(log n) neighbours, which
  fails with some probability and must be drawn by nobody who cheats. Here k = missing + 1, rounded
  up to an even number: 14 for n = 100, c = 1, D = 10.
* There is no round in which parties sign the lists (Bonawitz et al., section 6.2). Instead n - D
  shares are needed, and the noise is sized for what different lists could open, see below.

**Guarantee**: towards the coordinator, which may lie in all it sends, and at most c parties of the
cohort: either nothing is learned, or one sum over honest parties, at least n - `missing` of them
(computationally, as in masking.py, where hashes of fresh seeds say nothing of them).

1. Each honest party answers for one pair of lists, which share no party and of which the dead are D
   at most. With m = n - c honest parties, a seed opens only if m - D of them were shown lists that
   say so. A party's own mask opens if it is active, those with others if it is dead: both only if
   2 (m - D) <= m. `vanish` is below m / 2, so never both, whatever lists are shown to whom.
2. At most m D / (m - D) honest parties are dead on the lists of m - D others, as there are m D
   places on all lists. These and c are `missing`, for which the noise is sized. With one list for
   all it would be D + c.
3. Without `missing` parties the graph is connected, and no mask on an edge between the others
   opens. Where all of their own masks open, the coordinator learns the sum over them; where one
   does not, its words are uniform, and so are those of its neighbours, and of theirs.

Parties that received different requests or cohorts cannot read each other's shares, and parties
that were shown different lists for the sum before refuse to answer. The run then ends.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from hashlib import blake2b

from cryptography.hazmat.primitives.hashes import SHA256
from cryptography.hazmat.primitives.kdf.hkdf import HKDF

from siloweave.errors import InputError, WireError, whole
from siloweave.federation import masking
from siloweave.federation.masking import Words
from siloweave.privacy.mechanisms import Entropy

PRIME = 2**256 - 189
"""Shares are integers modulo this, the largest prime below 2^256."""

SEED = 32
"""Bytes of a seed, and of a share of one."""


# Shamir's secret sharing


def split(secrets: Sequence[bytes], holders: int, threshold: int, entropy: Entropy) -> list[bytes]:
    """Shares of seeds, one after the other, for every holder.

    Any `threshold` holders can join them; fewer know nothing, whatever the seeds are.

    Example:
        >>> from siloweave.privacy.mechanisms import OSEntropy
        >>> shares = split([bytes(31) + b"7"], 3, 2, OSEntropy())
        >>> joined([1, 3])([shares[0], shares[2]])[-1:]
        b'7'
    """
    drawn = entropy.bytes(SEED * len(secrets) * (threshold - 1))
    found: list[list[bytes]] = [[] for _ in range(holders)]
    for i, secret in enumerate(secrets):
        own = drawn[SEED * i * (threshold - 1) : SEED * (i + 1) * (threshold - 1)]
        terms = [_number(own[j : j + SEED]) for j in range(0, len(own), SEED)]
        for holder, shares in enumerate(found, start=1):
            value = 0
            for term in terms:
                value = (value + term) * holder % PRIME
            shares.append(_bytes(value + _number(secret)))
    return [b"".join(shares) for shares in found]


def joined(places: Sequence[int]) -> Callable[[Sequence[bytes]], bytes]:
    """A function that makes a seed of the shares of the holders at these places, from 1."""
    weights = []
    for i in places:
        above = below = 1
        for j in places:
            if j != i:
                above, below = above * j % PRIME, below * (j - i) % PRIME
        weights.append(above * pow(below, -1, PRIME))
    return lambda shares: _bytes(sum(w * _number(s) for w, s in zip(weights, shares, strict=True)))


def _number(data: bytes) -> int:
    return int.from_bytes(data, "big")


def _bytes(number: int) -> bytes:
    return (number % PRIME).to_bytes(SEED, "big")


# A sum


@dataclass(frozen=True)
class MaskPlan:
    """Who masks with whom in one sum, and how many of them may vanish.

    Attributes:
        names: Of the cohort, sorted.
        colluders: Parties that may pool what they know with the coordinator.
        vanish: Parties that may vanish.
    """

    names: tuple[str, ...]
    colluders: int
    vanish: int

    @classmethod
    def of(cls, cohort: Iterable[str], tolerated: int, dropouts: int) -> MaskPlan:
        """The plan of a cohort; in a small one fewer parties may collude, or vanish.

        Example:
            >>> [MaskPlan.for_size(n, 1, 3).vanish for n in (1, 2, 3, 4, 5, 6, 8, 99)]
            [0, 0, 0, 1, 1, 2, 3, 3]
        """
        names = tuple(sorted(cohort))
        colluders = min(tolerated, len(names) - 1)
        return cls(names, colluders, min(dropouts, (len(names) - colluders - 1) // 2))

    @classmethod
    def for_size(cls, size: int, tolerated: int, dropouts: int) -> MaskPlan:
        """The plan of a cohort of this size, whatever its names are."""
        return cls.of(map(str, range(size)), tolerated, dropouts)

    @classmethod
    def require(cls, size: int, tolerated: int, dropouts: int) -> None:
        """Raise InputError unless so many parties of a whole roster may vanish."""
        whole("dropouts", dropouts, 0)
        if dropouts > (most := cls.for_size(size, tolerated, dropouts).vanish):
            raise InputError(
                f"dropouts={dropouts} of {size} parties, {tolerated} of which may help the "
                f"coordinator: {most} may vanish from a sum, as those that neither help it nor "
                f"vanish must be more. Take {2 * dropouts + tolerated + 1} parties, or a lower "
                "number"
            )

    @property
    def threshold(self) -> int:
        """Answers that open the sum."""
        return len(self.names) - self.vanish

    @property
    def missing(self) -> int:
        """Shares of the noise that the sum must do without, at most.

        Example:
            >>> [MaskPlan.for_size(n, 1, d).missing for n, d in ((9, 0), (9, 2), (100, 10))]
            [1, 3, 12]
        """
        honest = len(self.names) - self.colluders
        return self.colluders + honest * self.vanish // (honest - self.vanish)

    @cached_property
    def neighbours(self) -> dict[str, tuple[str, ...]]:
        """With whom each party shares a mask: with all, or with the nearest on either side."""
        size, names = len(self.names), self.names
        side = min((self.missing + 2) // 2, size // 2)
        near = [step for step in range(-side, side + 1) if step]
        return {
            name: tuple(dict.fromkeys(names[(i + step) % size] for step in near if step % size))
            for i, name in enumerate(names)
        }

    def check_lists(self, party: str, active: Sequence[str], dead: Sequence[str]) -> None:
        """Raise WireError unless the lists make up the cohort, with this party and enough others.

        Nobody is on both, or twice: the coordinator could open both masks of one party.
        """
        both = [*active, *dead]
        if sorted(both) != list(self.names) or party not in active:
            raise WireError(
                f"party {party!r} was asked to open a sum over {len(active)} parties without "
                f"{len(dead)}, and these are not the {len(self.names)} of its cohort, each once, "
                "with itself in the sum. Nothing was opened"
            )
        if len(dead) > self.vanish:
            raise WireError(
                f"party {party!r} was asked to open a sum without {len(dead)} parties; the study "
                f"says that {self.vanish} of {len(self.names)} may vanish. Nothing was opened"
            )

    def opened(self, name: str, dead: Iterable[str]) -> tuple[int, ...]:
        """Which seeds of an active party open: the first, its own, and those with dead ones."""
        dead = set(dead)
        return (0, *(i for i, n in enumerate(self.neighbours[name], start=1) if n in dead))

    def masks(self, name: str, seeds: Sequence[bytes], context: bytes, size: int) -> Words:
        """The words that a party adds, of its own seed and of those with each neighbour."""
        pairs = dict(zip(self.neighbours[name], seeds[1:], strict=True))
        return own_mask(name, seeds[0], context, size) + masking.mask(name, pairs, context, size)

    def without_masks(
        self,
        total: Words,
        digests: Mapping[str, bytes],
        answers: Mapping[str, Mapping[str, bytes]],
        context: bytes,
    ) -> Words:
        """The sum over the active parties in the clear, modulo 2^32.

        Args:
            total: Of their words.
            digests: What each active party says of its seeds, see `digests_of`.
            answers: Shares of each active party's seeds, by who answered: `threshold` or more.
            context: Of the sum.

        Raises:
            WireError: Shares do not fit what a party said of its seeds; names it.
        """
        used = sorted(answers)[: self.threshold]
        join = joined([self.names.index(name) + 1 for name in used])
        dead = [name for name in self.names if name not in digests]
        for name, said in digests.items():
            places = self.opened(name, dead)
            seeds = {}
            for i, place in enumerate(places):
                part = slice(SEED * i, SEED * (i + 1))
                seeds[place] = join([answers[holder][name][part] for holder in used])
                if digests_of([seeds[place]]) != said[SEED * place : SEED * (place + 1)]:
                    raise WireError(
                        f"a mask of party {name!r} cannot be opened: it, or one of "
                        f"{', '.join(map(repr, used))}, sent a wrong share. Nothing of the sum was "
                        "used; check which software these parties run, and start a new run"
                    )
            others = ("", *self.neighbours[name])
            pairs = {others[place]: seed for place, seed in seeds.items() if place}
            total = total - own_mask(name, seeds[0], context, total.size)
            total = total - masking.mask(name, pairs, context, total.size)
        return total


def own_mask(name: str, seed: bytes, context: bytes, size: int) -> Words:
    """The words of a party's own mask."""
    return masking.stream(seed, b"siloweave self mask\0" + context + b"\0" + name.encode(), size)


def new_seed(entropy: Entropy) -> bytes:
    """A fresh seed."""
    return _bytes(_number(entropy.bytes(SEED)))


def pair_seed(secret: bytes, info: bytes) -> bytes:
    """The seed of a mask with a neighbour, from the secret shared with it, for one sum."""
    info = b"siloweave pair seed\0" + info
    return _bytes(_number(HKDF(SHA256(), length=SEED, salt=None, info=info).derive(secret)))


def digests_of(seeds: Iterable[bytes]) -> bytes:
    """What a party says of its seeds, by which a wrong share is noticed."""
    person = b"siloweave seed"
    return b"".join(blake2b(s, digest_size=SEED, person=person).digest() for s in seeds)
