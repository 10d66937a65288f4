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


def split(
    secrets: Sequence[bytes], holders: int, threshold: int, entropy: Entropy
) -> list[bytes]:
    """Split seeds into shares, and return those of every holder one after the other.

    Any `threshold` holders can join them; fewer know nothing, whatever the seeds are.

    Example:
        >>> from siloweave.privacy.mechanisms import OSEntropy
        >>> shares = split([bytes(31) + b"7"], 3, 2, OSEntropy())
        >>> joined([1, 3])([shares[0], shares[2]])[-1:]
        b'7'
    """
    # Shamir 1979: per secret a polynomial of degree threshold - 1, whose constant term is the
    # secret and whose other coefficients are random. The share of holder x is its value at x.
    degree = threshold - 1
    coefficient_bytes = entropy.bytes(SEED * len(secrets) * degree)
    holder_shares: list[list[bytes]] = [[] for _ in range(holders)]
    for i, secret in enumerate(secrets):
        # Coefficients are never used for two secrets: their difference would then be open.
        drawn_bytes = coefficient_bytes[SEED * i * degree : SEED * (i + 1) * degree]
        coefficients = [
            _number(drawn_bytes[j : j + SEED]) for j in range(0, len(drawn_bytes), SEED)
        ]
        # Holders count from 1: the value at 0 is the secret itself.
        for holder, shares in enumerate(holder_shares, start=1):
            # Horner's rule.
            value = 0
            for coefficient in coefficients:
                value = (value + coefficient) * holder % PRIME
            shares.append(_bytes(value + _number(secret)))
    return [b"".join(shares) for shares in holder_shares]


def joined(places: Sequence[int]) -> Callable[[Sequence[bytes]], bytes]:
    """Return a function that joins the shares of the holders at these places (from 1) to a seed."""
    # Lagrange's interpolation at 0: each share's weight is the product of j / (j - i) over all
    # other places j. It is the same for all seeds, so that it is computed once.
    weights = []
    for i in places:
        numerator = 1
        denominator = 1
        for j in places:
            if j != i:
                numerator = numerator * j % PRIME
                denominator = denominator * (j - i) % PRIME
        weights.append(numerator * pow(denominator, -1, PRIME))

    def join(shares: Sequence[bytes]) -> bytes:
        weighted = zip(weights, shares, strict=True)
        return _bytes(sum(weight * _number(share) for weight, share in weighted))

    return join


def _number(data: bytes) -> int:
    return int.from_bytes(data, "big")


def _bytes(number: int) -> bytes:
    return (number % PRIME).to_bytes(SEED, "big")


# A sum


@dataclass(frozen=True)
class MaskPlan:
    """The plan of masks in one sum: who masks with whom, and how many parties may vanish.

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
        """Plan a cohort's sum; in a small one fewer parties may collude, or vanish.

        Example:
            >>> [MaskPlan.for_size(n, 1, 3).vanish for n in (1, 2, 3, 4, 5, 6, 8, 99)]
            [0, 0, 0, 1, 1, 2, 3, 3]
        """
        names = tuple(sorted(cohort))
        colluders = min(tolerated, len(names) - 1)
        # Below half of the honest parties, so that no party's two masks both open: point 1 above.
        honest = len(names) - colluders
        vanish = min(dropouts, (honest - 1) // 2)
        return cls(names, colluders, vanish)

    @classmethod
    def for_size(cls, size: int, tolerated: int, dropouts: int) -> MaskPlan:
        """Plan the sum of a cohort of this size, with any names."""
        return cls.of(map(str, range(size)), tolerated, dropouts)

    @classmethod
    def require(cls, size: int, tolerated: int, dropouts: int) -> None:
        """Raise InputError unless so many parties of the whole roster may vanish."""
        whole("dropouts", dropouts, 0)
        most = cls.for_size(size, tolerated, dropouts).vanish
        if dropouts > most:
            raise InputError(
                f"dropouts={dropouts} of {size} parties, {tolerated} of which may help the "
                f"coordinator: {most} may vanish from a sum, as those that neither help it nor "
                f"vanish must be more. Take {2 * dropouts + tolerated + 1} parties, or a lower "
                "number"
            )

    @property
    def threshold(self) -> int:
        """The number of answers that open the sum."""
        return len(self.names) - self.vanish

    @property
    def missing(self) -> int:
        """The most shares of the noise that the sum must do without.

        Example:
            >>> [MaskPlan.for_size(n, 1, d).missing for n, d in ((9, 0), (9, 2), (100, 10))]
            [1, 3, 12]
        """
        # m D / (m - D) honest parties may be dead on the lists of m - D others: point 2 above.
        honest = len(self.names) - self.colluders
        return self.colluders + honest * self.vanish // (honest - self.vanish)

    @cached_property
    def neighbours(self) -> dict[str, tuple[str, ...]]:
        """The parties with whom each party shares a mask: all, or the nearest on either side."""
        # A ring on which k = missing + 1 neighbours, rounded up to an even number, keep it
        # connected without any `missing` parties (Harary 1962): point 3 above.
        size = len(self.names)
        side = min((self.missing + 2) // 2, size // 2)
        offsets = [offset for offset in range(-side, side + 1) if offset]

        neighbours = {}
        for i, name in enumerate(self.names):
            # In a small cohort both sides meet: nobody is its own neighbour, or one twice.
            peers = (
                self.names[(i + offset) % size] for offset in offsets if offset % size
            )
            neighbours[name] = tuple(dict.fromkeys(peers))
        return neighbours

    def check_lists(
        self, party: str, active: Sequence[str], dead: Sequence[str]
    ) -> None:
        """Raise WireError unless two lists are the cohort, with this party in the sum.

        Nobody is on both, or twice: the coordinator could open both masks of one party.
        """
        listed = [*active, *dead]
        if sorted(listed) != list(self.names) or party not in active:
            raise WireError(
                f"party {party!r} was asked to open a sum over {len(active)} parties without "
                f"{len(dead)}, and these are not the {len(self.names)} of its cohort, each once, "
                "with itself in the sum. Nothing was opened"
            )
        # With more dead the noise that is left would be less than the sum was paid for.
        if len(dead) > self.vanish:
            raise WireError(
                f"party {party!r} was asked to open a sum without {len(dead)} parties; the study "
                f"says that {self.vanish} of {len(self.names)} may vanish. Nothing was opened"
            )

    def opened(self, name: str, dead: Iterable[str]) -> tuple[int, ...]:
        """Return which seeds of an active party open: its own (0), and those with dead parties.

        The mask between two active parties cancels in the sum, and never opens.
        """
        dead_names = set(dead)
        peers = enumerate(self.neighbours[name], start=1)
        return (0, *(place for place, peer in peers if peer in dead_names))

    def masks(
        self, name: str, seeds: Sequence[bytes], context: bytes, size: int
    ) -> Words:
        """Return the words that a party adds: of its own seed, and of those with its neighbours."""
        pair_seeds = dict(zip(self.neighbours[name], seeds[1:], strict=True))
        self_mask = own_mask(name, seeds[0], context, size)
        return self_mask + masking.mask(name, pair_seeds, context, size)

    def without_masks(
        self,
        total: Words,
        digests: Mapping[str, bytes],
        answers: Mapping[str, Mapping[str, bytes]],
        context: bytes,
    ) -> Words:
        """Take the masks off a sum over the active parties, modulo 2^32.

        Args:
            total: Of their words.
            digests: What each active party says of its seeds, see `digests_of`.
            answers: Shares of each active party's seeds, by who answered: `threshold` or more.
            context: Of the sum.

        Raises:
            WireError: Shares do not fit what a party said of its seeds; names it.
        """
        # A holder's place is that among the sorted names, as `split` dealt the shares.
        holders = sorted(answers)[: self.threshold]
        join = joined([self.names.index(name) + 1 for name in holders])
        dead = [name for name in self.names if name not in digests]
        for name, seed_digests in digests.items():
            seeds = {}
            for i, place in enumerate(self.opened(name, dead)):
                part = slice(SEED * i, SEED * (i + 1))
                seeds[place] = join([answers[holder][name][part] for holder in holders])
                # With a wrong share the seed is any number, and the sum would be one, too.
                expected = seed_digests[SEED * place : SEED * (place + 1)]
                if digests_of([seeds[place]]) != expected:
                    raise WireError(
                        f"a mask of party {name!r} cannot be opened: it, or one of "
                        f"{', '.join(map(repr, holders))}, sent a wrong share. Nothing of the sum "
                        "was used; check which software these parties run, and start a new run"
                    )
            # Place 0 is the party's own seed, and its neighbours' follow.
            peers = ("", *self.neighbours[name])
            pair_seeds = {peers[place]: seed for place, seed in seeds.items() if place}
            total = total - own_mask(name, seeds[0], context, total.size)
            total = total - masking.mask(name, pair_seeds, context, total.size)
        return total


def own_mask(name: str, seed: bytes, context: bytes, size: int) -> Words:
    """Return the words of a party's own mask, from its seed."""
    info = b"siloweave self mask\0" + context + b"\0" + name.encode()
    return masking.stream(seed, info, size)


def new_seed(entropy: Entropy) -> bytes:
    """Draw a fresh seed of a mask."""
    # Reduced modulo PRIME, as only such numbers can be shared; it loses 2^-248 of uniformity.
    return _bytes(_number(entropy.bytes(SEED)))


def pair_seed(secret: bytes, info: bytes) -> bytes:
    """Derive the seed of one sum's mask with a neighbour from the secret shared with it."""
    # Through a hash: the seed may open, and must say nothing of the secret or of other seeds.
    info = b"siloweave pair seed\0" + info
    seed = HKDF(SHA256(), length=SEED, salt=None, info=info).derive(secret)
    return _bytes(_number(seed))


def digests_of(seeds: Iterable[bytes]) -> bytes:
    """Hash a party's seeds, so that a wrong share of one is noticed."""
    person = b"siloweave seed"
    hashes = (blake2b(seed, digest_size=SEED, person=person) for seed in seeds)
    return b"".join(digest.digest() for digest in hashes)
