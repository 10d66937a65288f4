"""Secure marginals: what every coalition of coordinator and parties pools, and what it may show.

Every run has fresh keys. A coalition has what its members receive, opened with their keys, and
every stream under a secret that a member holds (pooled.py). Noise is compared with the coins that a
coalition knows. The keys are fixed, so a test that passes does so again.
"""

from collections import defaultdict
from contextlib import contextmanager
from dataclasses import dataclass, field
from itertools import chain, combinations
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from siloweave.federation import messages
from siloweave.federation.carriers.direct import Direct
from siloweave.federation.messages import Envelope, reply_type
from siloweave.federation.site import Site
from siloweave.privacy.budget import Relation
from siloweave.protocols import secure_products as products
from siloweave.protocols.secure_marginals import coordinator as secure_coordinator
from siloweave.protocols.secure_marginals import messages as secure_messages
from siloweave.protocols.secure_marginals import party as secure_party
from siloweave.protocols.secure_marginals import plan as secure_plan
from tests.federation.sites import handlers_of
from tests.federation.small import reply_in
from tests.guarantees.pooled import is_foreseen, related
from tests.protocols.secure import (
    SIZES,
    SPLITS,
    SYNTH,
    budget_of,
    exact,
    people,
    study_of,
    without_noise,
)

COORDINATOR, ANYONE = "coordinator", bytes(32)
DOCUMENTED = {
    "concepts/threat-model.md": [
        "opened by the **first two parties of the roster**",
        "these two together could read the others' columns",
        "*The coordinator with one party* reads the columns of every other party",
    ],
    "guides/columns-split.md": ["unless the first two of three or more parties do"],
}
RUNS, ROWS = 40, 4
SLABS = [secure_plan.Slab(0, 2, 3), secure_plan.Slab(2, 4, 4)]  # the third row's proof comes early
FOUR = {"north": "ab", "south": "cd", "west": "e", "east": "f"}
PARTIES = {
    "two parties": SPLITS["two parties"],
    "three parties": SPLITS["three parties"],
    "four parties": FOUR,
}


def measured(split):
    """Tables of columns of several parties, by question; the third one repeats two of the first."""
    third = ("c", "e") if len(split) > 2 else ("b", "c")
    pairs = [("a", "c"), ("a", "e"), third]
    return [pairs, [("a", "c", "e"), ("b", "c", "e")], [pairs[0], third]]


def coalitions(split):
    """All of coordinator and parties that leave out one party or more."""
    names = [COORDINATOR, *split]
    every = chain.from_iterable(combinations(names, k) for k in range(1, len(names)))
    return [set(one) for one in every if set(split) - set(one)]


def admissible(coalition, split):
    """As the guarantee says."""
    if COORDINATOR in coalition:
        return len(coalition) == 1
    return not set(list(split)[:2]) <= coalition


CASES = [
    pytest.param(name, one, id=f"{name}: {' and '.join(sorted(one))}")
    for name, split in PARTIES.items()
    for one in coalitions(split)
]
ADMITTED = [case for case in CASES if admissible(case.values[1], PARTIES[case.values[0]])]
OTHERS = [case for case in CASES if case not in ADMITTED]


@dataclass
class Seen:
    """Streams by their secret and name, and what each member received; (numbers, modulus) each."""

    split: dict
    streams: dict = field(default_factory=dict)
    received: dict = field(default_factory=lambda: defaultdict(dict))
    seeds: dict = field(default_factory=lambda: defaultdict(set))  # by who has them
    holders: dict = field(default_factory=dict)  # of each secret
    study: Any = None

    def know(self, study):
        """Who holds which secret, once a run is over."""
        parties = {name: secure_party._party(SYNTH, site) for name, site in study.sites.items()}
        self.holders = {ANYONE: {COORDINATOR, *parties}, study.secure._secret: {COORDINATOR}}
        for one, party in parties.items():
            self.holders[party.dealer] = {COORDINATOR, one}
            for other in parties.keys() - {one}:
                self.holders[party.secret(other)] = {one, other}
        for name, seeds in self.seeds.items():
            for seed in seeds:
                self.holders.setdefault(seed, {COORDINATOR}).add(name)

    def known(self, coalition):
        """Streams that a coalition can make, and what its members received, under their names.

        But for rows of its own members, and for coins of tables of their columns alone.
        """
        found = {}
        for (secret, name), words in self.streams.items():
            who = self.holders[secret] & coalition
            own = name.startswith("coins/") and set(name.split("/")[3].split("+")) <= coalition
            if who and not own:
                holders = " and ".join(sorted(self.holders[secret]))
                found[holders, name.rpartition("\0")[0] if "pad/" in name else name] = words
        for member in coalition & self.received.keys():
            for name, words in self.received[member].items():
                if name[0] not in ("M", "m", "proof", "G") or name[1] not in coalition:
                    found["" if name[0] in ("M", "m", "proof") else member, name] = words
        return found


def width(columns):
    return sum(SIZES[name] for name in columns)


_REAL = {n: getattr(products, n) for n in ("uniform", "shifts", "root_seeds", "coin_bits")}
_SEND, _SHIFTED, _OPEN_RELAYED = Direct.send, secure_party._shifted, Site.open_relayed


class Tap(Seen):
    """Notes all of that, as functions that stand in for real ones."""

    def uniform(self, secret, info, size, modulus=products.P):
        words = _REAL["uniform"](secret, info, size, modulus)
        self.streams[secret, info] = words, modulus
        return words

    def shifts(self, secret, context, rows, sizes):
        b = _REAL["shifts"](secret, context, rows, sizes)
        for k, size in enumerate(sizes):
            self.streams[secret, f"shifts/{context}/{k}"] = b[:, k], size
        return b

    def root_seeds(self, secret, context, rows, codes):
        words = _REAL["root_seeds"](secret, context, rows, codes)
        self.streams[secret, f"seeds/{context}"] = words, 2**64
        return words

    def coin_bits(self, secret, context, cells, coins):
        bits = _REAL["coin_bits"](secret, context, cells, coins)
        self.streams[secret, f"bits/{context}"] = bits, 2
        return bits

    def open_relayed(self, site, sender, data, key, secret, context):
        words = _OPEN_RELAYED(site, sender, data, key, secret, context)
        columns, own = self.split[sender], self.received[site.name]
        rows = words[:-1].reshape(-1, width(columns) + len(columns))
        own["M", sender, context] = rows[:, : width(columns)], products.P
        own["proof", sender, context] = words[-1:], products.P
        for k, name in enumerate(columns):
            own["m", sender, context, name] = rows[:, width(columns) + k], SIZES[name]
        return words

    def shifted(self, party, table, other, dealt, release):
        """Notes words of every seed that a party has of the first row."""
        clique = party.plan.as_sent(table.clique)
        (root,) = party.plan.roots([table.clique], party.domain)
        rest = np.delete(party.domain.shape(clique), clique.index(root))
        name = secure_plan.in_run(release, *clique)
        words = products._words_of(dealt.seeds[root][0], name, rest, 2**16)
        self.received[party.site.name]["H", name] = words, 2**16
        return _SHIFTED(party, table, other, dealt, release)

    def send(self, transport, name, frame):
        answer = _SEND(transport, name, frame)
        envelope = messages.decode(frame, Envelope)
        request = messages.decode_request(envelope.body, handlers_of(transport))
        reply = reply_in(answer, reply_type(type(request)))
        for one in getattr(request, "deliveries", {}).values():
            self.seeds[name].add(one.seed)
        if isinstance(request, secure_messages.ShareRows):
            cipher = np.frombuffer(reply.rows.data, "<u4", 7)
            self.received[name]["k", envelope.step] = request.proof.numpy(), products.P
            self.received[COORDINATOR]["cipher", name, envelope.step] = cipher, 2**32
        if isinstance(request, secure_messages.MeasureTables):
            self._measured(name, request, reply, envelope.step)
        return answer

    def _measured(self, name, request, reply, at):
        """All tables of one question are of two columns, or of three and equal size."""
        own, (clique, *_) = self.received[name], [table.clique for table in request.tables]
        modulus = 2**16 if len(clique) == 3 else products.P
        for other, words in request.corrections.items():
            own["Q", other] = words.numpy(), products.P
        for other, words in request.coins.items():
            own["G", other, at] = words.numpy(), modulus
        if request.cells:
            each = np.split(np.frombuffer(request.cells, "<u2"), len(request.tables))
            own |= {("C", at, k): (words, 2**16) for k, words in enumerate(each)}
        if request.seeds:
            seeds = np.frombuffer(request.seeds, "<u8")
            own["s", at], own["t", at] = (seeds, 2**64), (seeds[::2] & 1, 2)
        groups = self.study.secure.plan.groups(request.tables, name)
        sent = zip([group for group in groups if name in group.openers], reply.joint, strict=True)
        for group, one in sent:
            if group.first == name:  # the other one's are a noisy table less these
                words = one.value.numpy(), modulus
                self.received[COORDINATOR]["A", group.second, name, at] = words


@contextmanager
def overheard(split, frame, seed, change=None):
    """A study of which all is noted; `change(patch, study)` makes it a broken copy."""
    seen = Tap(split)
    with pytest.MonkeyPatch.context() as patch:
        for name in _REAL:
            patch.setattr(products, name, getattr(seen, name))
        patch.setattr(Site, "open_relayed", lambda *named: seen.open_relayed(*named))
        patch.setattr(Direct, "send", lambda *named: seen.send(*named))
        patch.setattr(secure_party, "_shifted", seen.shifted)
        seen.study = study_of(frame, split, budget_of(Relation.REPLACE_ONE), seed=seed)
        if change is not None:
            change(patch, seen.study)
        yield seen, patch
    seen.know(seen.study)


# Words


def frames():
    alike = people(ROWS)
    alike[:] = "v"
    alike["d"] = alike["f"] = "u"
    return [people(ROWS), alike]


def views(split, frame, change=None, runs=RUNS):
    """What everyone sees of runs over a frame, with two messages of rows and no noise."""
    found = []
    for seed in range(runs):
        with overheard(split, frame, seed, change) as (seen, patch):
            without_noise(patch)
            for module in (secure_party, secure_coordinator):
                patch.setattr(module, "slabs_of", lambda owned, rows: SLABS)
            for cliques in measured(split):
                seen.study.counts(cliques)
        found.append(seen)
    return found


def shown(seen, coalition):
    """Which words of a coalition are related, in runs of the same rows."""
    return related([one.known(coalition) for one in seen])


@pytest.fixture(scope="module")
def honest():
    """Views of runs, by split and frame."""
    return {name: [views(split, frame) for frame in frames()] for name, split in PARTIES.items()}


@pytest.mark.parametrize(("name", "coalition"), ADMITTED)
def test_what_an_admissible_coalition_pools_is_uniform_whatever_the_rows(name, coalition, honest):
    for seen in honest[name]:
        assert len(seen[0].known(coalition)) > 12
        assert not shown(seen, coalition)


def renamed(patch, where, change):
    """Let a stream have another secret or name, on both sides."""
    real = products.uniform

    def uniform(secret, info, size, modulus=products.P):
        one = change(secret, info) if info.startswith(where) else (secret, info)
        return real(*one, size, modulus)

    patch.setattr(products, "uniform", uniform)


def a_mask_that_anyone_can_make(patch, study):
    renamed(patch, "rows/", lambda secret, info: (ANYONE, info))


def one_mask_for_all_messages_of_rows(patch, study):
    def alike(secret, info):
        *_, last = info.split("\0")
        return secret, "rows/" if last.isdigit() else info

    renamed(patch, "rows/", alike)


def a_pad_used_twice(patch, study):
    renamed(patch, "pad/", lambda secret, info: (secret, "pad/"))


def masks_of_coins_used_twice(patch, study):
    def alike(secret, info):
        _, run, _, *rest = info.split("/")
        return secret, "/".join(("coins", run, "0", *rest))

    renamed(patch, "coins/", alike)


def one_shift_for_all_columns(patch, study):
    real = products.shifts
    patch.setattr(products, "shifts", lambda secret, context, rows, sizes: (
        real(secret, context, rows, [max(sizes)] * len(sizes))[:, :1] % np.array(sizes)
    ))  # fmt: skip


def words_of_a_seed_used_for_two_tables(patch, study):
    real = products.expanded
    patch.setattr(products, "expanded", lambda seeds, info, size: real(seeds, b"", size))


MUTANTS = [
    ("three parties", a_mask_that_anyone_can_make, {"north", "west"}, "M"),
    ("three parties", a_mask_that_anyone_can_make, {"south", "west"}, "M"),
    ("three parties", one_mask_for_all_messages_of_rows, {"north", "west"}, "M"),
    ("three parties", one_mask_for_all_messages_of_rows, {"south", "west"}, "M"),
    ("three parties", a_pad_used_twice, {COORDINATOR}, "A"),
    ("three parties", masks_of_coins_used_twice, {"south", "west"}, "G"),
    ("three parties", one_shift_for_all_columns, {"south", "west"}, "m"),
    ("three parties", words_of_a_seed_used_for_two_tables, {"north", "west"}, "C"),
    ("three parties", words_of_a_seed_used_for_two_tables, {"south", "west"}, "C"),
    ("two parties", a_mask_that_anyone_can_make, {"north"}, "M"),
    ("two parties", one_mask_for_all_messages_of_rows, {"south"}, "M"),
    ("two parties", a_pad_used_twice, {COORDINATOR}, "A"),
    ("two parties", masks_of_coins_used_twice, {"south"}, "G"),
    ("two parties", words_of_a_seed_used_for_two_tables, {"south"}, "C"),
]


@pytest.mark.parametrize(("name", "mutant", "coalition", "what"), MUTANTS)
def test_a_broken_copy_shows_a_coalition_related_words(name, mutant, coalition, what):
    found = shown(views(PARTIES[name], frames()[0], mutant), coalition)
    kinds = {one[1][0] for pair in found for one in pair if one is not None}
    assert what in kinds


# Noise


@dataclass(frozen=True)
class Tossed:
    """The noise of a table in one run, its coins, and who holds what of them."""

    noise: np.ndarray
    weights: np.ndarray
    halves: list  # z and r, each with who tosses it
    dealt: list  # who can make S, and who received G; together they have r

    def expected(self, coalition):
        """The noise, if what a coalition does not know of the coins were nothing."""
        known = [bits for who, bits in self.halves if who & coalition]
        if all(who & coalition for who in self.dealt) and COORDINATOR not in coalition:
            known += [bits for who, bits in self.halves if COORDINATOR in who]
        coins = np.logical_xor.reduce(known) if known else np.full(self.halves[0][1].shape, 0.5)
        return (coins - 0.5) @ self.weights


def tossed(split, change=None, runs=RUNS):
    """The noise of tables, each measured alone, in honest runs or broken ones."""
    frame, found = people(ROWS), defaultdict(list)
    firsts = [own[0] for own in split.values()]
    cliques = [q for size in (2, 3) for q in combinations(sorted(firsts), size)]
    wanted = exact(frame, cliques)
    for seed in range(runs):
        with overheard(split, frame, seed, change) as (seen, _):
            study, steps, gaps = seen.study, {}, {}
            for q in cliques:
                order = [q.index(name) for name in study.secure.plan.as_sent(q)]
                gap = study.counts([q])[q] - wanted[q]
                gaps[q], steps[q] = gap.transpose(order), study.secure.session.rounds - 1
        for q, step in steps.items():
            drawn = {kind: [(seen.holders[secret], words) for (secret, name), (words, _)
                            in seen.streams.items() if name.startswith(f"{kind}/r/{step}/")]
                     for kind in ("bits", "coins")}  # fmt: skip
            got = {name for name, own in seen.received.items()
                   if any(kind == "G" and rest[-1] == step for kind, *rest in own)}  # fmt: skip
            coins = study.secure.plan.table_for(q, 20.0).coins
            weights = np.repeat(coins.weights, coins.copies)
            ((who, _),) = drawn["coins"]
            assert len(drawn["bits"]) == 2
            found[q].append(Tossed(gaps[q].reshape(-1), weights, drawn["bits"], [who, got]))
    return found


def foreseen(found, coalition, split):
    """Of which tables that have columns of others a coalition foresees the noise, and which not."""
    owners = {column: name for name, own in split.items() for column in own}
    seen = {True: set(), False: set()}
    for clique, runs in found.items():
        if not {owners[name] for name in clique} <= coalition:
            noise, guess = ([one.noise for one in runs], [one.expected(coalition) for one in runs])
            seen[is_foreseen(np.concatenate(noise), np.concatenate(guess))].add(clique)
    return seen[True], seen[False]


@pytest.fixture(scope="module")
def noises():
    return {name: tossed(split) for name, split in PARTIES.items()}


@pytest.mark.parametrize(("name", "coalition"), ADMITTED)
def test_an_admissible_coalition_foresees_no_noise(name, coalition, noises):
    known, unknown = foreseen(noises[name], coalition, PARTIES[name])
    assert unknown
    assert not known


@pytest.mark.parametrize(("name", "coalition"), OTHERS)
def test_a_coalition_that_the_guarantee_leaves_out_foresees_noise(name, coalition, noises, honest):
    """Of tables with columns of others; so the guarantee leaves out no more than it must."""
    known, unknown = foreseen(noises[name], coalition, PARTIES[name])
    assert known
    if COORDINATOR in coalition:
        assert all(shown(one, coalition) for one in honest[name])
    else:  # the first two, of tables of three columns alone
        assert {len(clique) for clique in known} == {3}
        assert all(len(clique) == 2 for clique in unknown)


def coins_that_parties_toss_alone(patch, study):
    real, dealer = products.coin_bits, study.secure._secret
    patch.setattr(products, "coin_bits", lambda secret, *named: (
        real(secret, *named) & (secret != dealer)
    ))  # fmt: skip


def coins_that_the_coordinator_tosses_alone(patch, study):
    real, dealer = products.coin_bits, study.secure._secret
    patch.setattr(products, "coin_bits", lambda secret, *named: (
        real(secret, *named) & (secret == dealer)
    ))  # fmt: skip


def coins_under_masks_that_anyone_can_make(patch, study):
    renamed(patch, "coins/", lambda secret, info: (ANYONE, info))


@pytest.mark.parametrize(
    ("name", "mutant", "coalition"),
    [
        ("three parties", coins_that_parties_toss_alone, {"north", "west"}),
        ("three parties", coins_that_parties_toss_alone, {"south", "west"}),
        ("three parties", coins_that_the_coordinator_tosses_alone, {COORDINATOR}),
        ("three parties", coins_under_masks_that_anyone_can_make, {"south", "west"}),
        ("two parties", coins_that_parties_toss_alone, {"north"}),
        ("two parties", coins_that_the_coordinator_tosses_alone, {COORDINATOR}),
        ("two parties", coins_under_masks_that_anyone_can_make, {"south"}),
    ],
)
def test_a_broken_copy_lets_a_coalition_foresee_noise(name, mutant, coalition):
    split = PARTIES[name]
    assert foreseen(tossed(split, mutant, runs=12), coalition, split)[0]


def test_the_claim_and_the_documentation_name_the_coalitions_that_are_left_out():
    """The two kinds of them that the tests above find, and no other."""
    left_out = {
        "the coordinator and a party" if COORDINATOR in one else "the first and second"
        for _, one in (case.values for case in OTHERS)
    }
    claim = SYNTH.method.guarantee(SYNTH).statement
    assert "as long as the coordinator and a party, or the first and second of three" in claim
    assert left_out == {"the coordinator and a party", "the first and second"}
    for page, words in DOCUMENTED.items():
        text = " ".join((Path(__file__).parents[2] / "docs" / page).read_text().split())
        for one in words:
            assert one in text
