"""DistAIM's servers and coordinator: what every coalition pools, and servers that vanish."""

import math
from collections import defaultdict
from contextlib import contextmanager
from dataclasses import dataclass, field
from itertools import chain, combinations

import numpy as np
import pytest

from siloweave.errors import WireError
from siloweave.federation import masking, messages
from siloweave.federation.messages import Envelope, payments
from siloweave.methods.distaim import coordinator, party
from siloweave.methods.distaim.messages import OpenTables, ShareCounts
from siloweave.methods.distaim.method import DistAIM
from siloweave.models.estimate import fit
from siloweave.privacy.events import PaidAhead
from siloweave.protocols import secure_products as products
from siloweave.protocols.secure_sums import KeyRequest
from siloweave.statistics.marginals import marginal
from tests.guarantees.pooled import is_foreseen, related
from tests.guarantees.test_distaim import PLACES, Study
from tests.guarantees.whole import BUDGET, DOMAIN, Wire, codes, random_rows
from tests.guarantees.whole import run_of as run_sites

COORDINATOR, ANYONE = "coordinator", bytes(32)
FIRST, MIDDLE, LAST = "p0", "p1", "p2"
SEEDS = range(0, 256, 8)  # X25519 reads no lower bits of a secret
SETTINGS = DistAIM(rounds=1, participation=1.0, final_sweeps=1)
ROSTERS = {
    "mixed": {f"p{k}": codes(random_rows(np.random.default_rng(k), 5)) for k in range(3)},
    "all alike": {f"p{k}": codes([(1, 2, 1)] * 5) for k in range(3)},
}
MEMBERS = (COORDINATOR, FIRST, MIDDLE, LAST)
COALITIONS = [
    set(one)
    for one in chain.from_iterable(combinations(MEMBERS, k) for k in (1, 2, 3))
    if {FIRST, MIDDLE, LAST} - set(one)
]


def admissible(coalition):
    """At most one of coordinator and servers, as the guarantee says."""
    return len(coalition - {MIDDLE}) <= 1


named = {"ids": lambda one: " and ".join(sorted(one)) if isinstance(one, set) else None}
ADMITTED = pytest.mark.parametrize(
    "coalition", [one for one in COALITIONS if admissible(one)], **named
)
OTHERS = pytest.mark.parametrize(
    "coalition", [one for one in COALITIONS if not admissible(one)], **named
)


@dataclass
class Seen:
    """One run: streams by secret and name, what members received, and tables that opened."""

    streams: dict = field(default_factory=dict)  # (numbers, modulus)
    received: dict = field(default_factory=lambda: defaultdict(dict))
    opened: list = field(default_factory=list)
    asked: list = field(default_factory=list)
    holders: dict = field(default_factory=dict)

    def known(self, coalition):
        """What a coalition can make, or was sent by others, under names without digests."""
        found = {}
        for (secret, name), words in self.streams.items():
            if self.holders[secret] & coalition:
                found[" and ".join(sorted(self.holders[secret])), name] = words
        for member in coalition & self.received.keys():
            for name, words in self.received[member].items():
                if name[0] != "V" or name[1] not in coalition:
                    found[member, name] = words
        return found

    def note_opening(self, number, name, request, reply):
        """What the coordinator is sent, and what the servers were."""
        tables = list(zip(request.cliques, request.coins, strict=True))
        sizes = [DOMAIN.size(q) for q, _ in tables]
        if name == FIRST:  # the other one's words are noisy tables less these and all V
            assert request.dealt == b"", "the first server is sent no words at all"
            self.asked += tables
            words = np.split(reply.words.value.numpy(), np.cumsum(sizes)[:-1])
            found = {("A", number, k): (one, 2**32) for k, one in enumerate(words)}
            self.received[COORDINATOR] |= found
        else:
            ends = np.cumsum(
                [n * coins.number for n, (_, coins) in zip(sizes, tables, strict=True)]
            )
            words = np.split(np.frombuffer(request.dealt, "<u4"), ends[:-1])
            found = {("G", number, k): (one, 2**32) for k, one in enumerate(words)}
            self.received[LAST] |= found

    def expected(self, coalition):
        """The noise of all cells, if what a coalition does not know of the coins were nothing."""
        found = []
        for number, (_, coins) in enumerate(self.asked):
            weights = np.repeat(coins.weights, coins.copies)
            tosses = [(self.holders[secret], words) for (secret, name), (words, _)
                      in self.streams.items() if name == ("bits", number)]  # fmt: skip
            masks = [self.holders[secret] for secret, name in self.streams
                     if name == ("coins", number)]  # fmt: skip
            known = [bits for who, bits in tosses if who & coalition]
            if LAST in coalition and masks[0] & coalition and COORDINATOR not in coalition:
                known += [bits for who, bits in tosses if COORDINATOR in who]  # of S and G
            size = tosses[0][1].shape
            found.append((np.logical_xor.reduce(known) - 0.5 if known else np.zeros(size))
                         @ weights)  # fmt: skip
        return np.concatenate(found)


def runs_of(roster, change=None, *, noise=True, seeds=SEEDS):
    """Runs over a roster with fresh keys, honest or broken."""
    return [run_of(roster, seed, change, noise) for seed in seeds]


def opened_twice(domain, workload, total, settings, measure, **named):
    """All tables in both measurements, so that every run opens the same."""
    tables = list(PLACES)
    sigma = 1.01 * math.sqrt(len(tables) / total)
    found = [measure(tables, [sigma] * len(tables), 0.0) for _ in range(2)]
    return fit(domain, found[0], sweeps=1), []


_COUNT_WORDS, _OPENED = party.count_words, products.opened


@contextmanager
def noting(seen):
    """Note all streams, under the numbers of their tables, in the order in which these open."""
    names = {}

    def noted(name, kind, modulus):
        real = getattr(products, name)

        def made(secret, context, *shape):
            number = names.setdefault(context, len(names))
            words = real(secret, context, *shape)
            seen.streams[secret, (kind, number)] = words, modulus
            return words

        return made

    def counted(secret, price, cells):
        words = _COUNT_WORDS(secret, price, cells)
        seen.streams[secret, ("U", 0)] = words, 2**32
        return words

    def opened(*parts):
        seen.opened.append(_OPENED(*parts))
        return seen.opened[-1]

    with pytest.MonkeyPatch.context() as patch:
        for name, kind, modulus in (("coin_bits", "bits", 2), ("coin_masks", "coins", 2**32),
                                    ("pad", "pad", 2**32)):  # fmt: skip
            patch.setattr(products, name, noted(name, kind, modulus))
        patch.setattr(products, "opened", opened)
        patch.setattr(party, "count_words", counted)
        patch.setattr(coordinator, "plan_and_fit", opened_twice)
        yield patch


def no_noise(coins, z, words, modulus, *, first):
    return np.zeros(len(words), np.uint32)


def run_of(roster, seed, change, noise):
    seen = Seen()
    with noting(seen) as patch:
        if not noise:
            patch.setattr(products, "noise_share", no_noise)
        if change is not None:
            change(patch)
        run = Study(SETTINGS)(roster, seed)
    secrets = {name: site._secret() for name, site in run.sites.items()}
    secrets[COORDINATOR] = bytes([seed % 256, 2]) + bytes(30)
    seen.holders = {ANYONE: set(MEMBERS), secrets[COORDINATOR]: {COORDINATOR}}
    public = {name: masking.public_key(secret) for name, secret in secrets.items()}
    for name, secret in secrets.items():
        shared = masking.agree_with(secret, public)
        seen.holders |= {shared[other]: {name, other} for other in public}
    for number, (name, request, reply) in enumerate(run.messages()):
        if isinstance(request, ShareCounts):
            seen.received[COORDINATOR]["V", name] = reply.words.value.numpy(), 2**32
        if isinstance(request, OpenTables):
            seen.note_opening(number, name, request, reply)
    return seen


@pytest.fixture(scope="module")
def honest():
    """Runs whose noise is left out, since it hides nothing of what masks should."""
    return {name: runs_of(roster, noise=False) for name, roster in ROSTERS.items()}


@pytest.fixture(scope="module")
def noisy():
    return runs_of(ROSTERS["mixed"])


def shown(runs, coalition):
    return related([one.known(coalition) for one in runs])


@ADMITTED
@pytest.mark.parametrize("rows", ROSTERS)
def test_what_an_admissible_coalition_pools_is_uniform_whatever_the_rows(rows, coalition, honest):
    kinds = {name[0] for who in coalition for name in honest[rows][0].received.get(who, ())}
    assert kinds == {COORDINATOR: {"V", "A"}, LAST: {"G"}}.get(
        min(coalition - {MIDDLE}, default=""), set()
    )
    assert not shown(honest[rows], coalition)


def foreseen(runs, roster, coalition):
    exact = np.concatenate(
        [sum(marginal(rows, q) for rows in roster.values()).reshape(-1) for q, _ in runs[0].asked]
    )
    noise = [np.concatenate(one.opened) - exact for one in runs]
    return is_foreseen(np.concatenate(noise), np.concatenate([r.expected(coalition) for r in runs]))


@ADMITTED
def test_an_admissible_coalition_foresees_no_noise(coalition, noisy):
    assert not foreseen(noisy, ROSTERS["mixed"], coalition)


@OTHERS
def test_a_coalition_that_the_guarantee_leaves_out_knows_the_noise_or_the_counts(
    coalition, noisy, honest
):
    """So the guarantee leaves out no more than it must."""
    known = foreseen(noisy, ROSTERS["mixed"], coalition)
    assert known
    assert all(shown(runs, coalition) for runs in honest.values())


def under(patch, where, name, change):
    """Let a stream be drawn under another secret, or for another context."""
    real = getattr(where, name)
    patch.setattr(where, name, lambda secret, context, *rest: real(*change(secret, context), *rest))


def words_that_anyone_can_make(patch):
    under(patch, party, "count_words", lambda secret, price: (ANYONE, price))


def a_pad_used_twice(patch):
    pads = {}
    real = products.pad
    patch.setattr(products, "pad", lambda secret, name, cells, modulus: (
        pads.setdefault(cells, real(secret, name, cells, modulus))
    ))  # fmt: skip


def masks_of_coins_used_twice(patch):
    under(patch, products, "coin_masks", lambda secret, name: (secret, ""))


def masks_of_coins_that_anyone_can_make(patch):
    under(patch, products, "coin_masks", lambda secret, name: (ANYONE, name))


@pytest.mark.parametrize(
    ("mutant", "coalition"),
    [
        (words_that_anyone_can_make, {COORDINATOR}),
        (a_pad_used_twice, {COORDINATOR}),
        (masks_of_coins_used_twice, {LAST}),
        (masks_of_coins_that_anyone_can_make, {LAST}),
    ],
)
def test_a_broken_copy_shows_related_words(mutant, coalition):
    assert shown(runs_of(ROSTERS["mixed"], mutant, noise=False), coalition)


def coins_that_servers_toss_alone(patch):
    real = products.coin_bits
    patch.setattr(products, "coin_bits", lambda secret, *named: (
        real(secret, *named) & (secret[1:] != bytes([2]) + bytes(30))
    ))  # fmt: skip


def coins_that_the_coordinator_tosses_alone(patch):
    real = products.coin_bits
    patch.setattr(products, "coin_bits", lambda secret, *named: (
        real(secret, *named) & (secret[1:] == bytes([2]) + bytes(30))
    ))  # fmt: skip


@pytest.mark.parametrize(
    ("mutant", "coalition"),
    [
        (coins_that_servers_toss_alone, {FIRST}),
        (coins_that_servers_toss_alone, {LAST}),
        (coins_that_the_coordinator_tosses_alone, {COORDINATOR, MIDDLE}),
        (masks_of_coins_that_anyone_can_make, {LAST, MIDDLE}),
    ],
)
def test_a_broken_copy_lets_a_coalition_foresee_noise(mutant, coalition):
    runs = runs_of(ROSTERS["mixed"], mutant, seeds=SEEDS[:6])
    assert foreseen(runs, ROSTERS["mixed"], coalition)


# Servers that vanish

STEPS = [(KeyRequest, 1), (ShareCounts, 1), (OpenTables, 1), (OpenTables, 2)]


@pytest.mark.parametrize("answered", [False, True], ids=["before it answers", "after it"])
@pytest.mark.parametrize("server", [FIRST, LAST])
@pytest.mark.parametrize(("kind", "number"), STEPS, ids=lambda one: getattr(one, "__name__", one))
def test_a_server_that_vanishes_ends_the_run_and_nothing_is_out_that_no_ledger_has(
    kind, number, server, answered, monkeypatch
):
    send, asked, runs, opened = Wire.send, [], [], []

    def vanishing(wire, name, frame):
        if name == server:
            body = messages.decode(frame, Envelope).body
            asked.append(type(messages.decode_request(body, party.HANDLERS)))
            if asked.count(kind) == number:
                if answered:  # and its answer is lost
                    wire.inner.send(name, frame)
                raise WireError(f"party {name!r} does not answer")
        return send(wire, name, frame)

    def noted(*args, **kwargs):
        runs.append(run_sites(*args, **kwargs))
        return runs[-1]

    monkeypatch.setattr(products, "opened", lambda *parts: opened.append(0) or _OPENED(*parts))
    monkeypatch.setattr(Wire, "send", vanishing)
    monkeypatch.setattr("tests.guarantees.test_distaim.run_of", noted)
    roster = ROSTERS["mixed"]
    with pytest.raises(WireError, match=f"'{server}' does not answer"):
        Study(SETTINGS)(roster)
    (run,) = runs
    order = [one for one, _ in STEPS]
    shared = order.index(kind) + (kind is ShareCounts and answered)
    for name, site in run.sites.items():
        paid = [type(event) for event in site.ledger.events]
        assert paid in ([], [PaidAhead])
        assert site.ledger.epsilon() <= BUDGET.epsilon
        if name == server:
            assert bool(paid) == (shared > 1)
    for name, _, reply in run.messages():
        known = {entry.hash for entry in run.ledger(name).entries}
        assert payments(reply) <= known
    assert len(opened) == (len(PLACES) if number == 2 else 0), "one server alone opens nothing"
