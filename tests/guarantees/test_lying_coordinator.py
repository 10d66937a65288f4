"""A coordinator that lies in any field of any request learns nothing that was not paid for."""

import numpy as np
import pytest

import siloweave as sw
from siloweave.errors import WireError
from siloweave.federation import masking
from siloweave.federation.dropouts import MaskPlan
from siloweave.methods.flaim import party as flaim
from siloweave.privacy.budget import Budget, Relation
from siloweave.privacy.ledger import Identity
from siloweave.protocols import secure_sums
from siloweave.tables import Column, Schema
from siloweave.tables.table import Table
from tests.federation.rosters import identity_of
from tests.guarantees.lying import lies, outcome_of, some
from tests.guarantees.opened import cost_of_opened, opening
from tests.guarantees.replay import DivergenceError, record, replay
from tests.guarantees.swapped import swap
from tests.guarantees.whole import MaskedSum, paid_calls, real_cost

SCHEMA = Schema(
    (
        Column("sex", "categorical", categories=("f", "m"), missing=True),
        Column("age", "integer", low=0, high=99),
        Column("pay", "continuous", low=0.0, high=1.0),
        Column("member", "boolean"),
    )
).with_fallbacks()
OPEN = Schema(
    (
        Column("sex", "categorical", categories=("?",), other="?", missing=True),
        Column("age", "integer"),
        *SCHEMA.columns[2:],
    )
).with_fallbacks()
PAIRS = (("sex", "age"), ("age", "pay"), ("sex", "member"))


def people(number, seed):
    rng = np.random.default_rng(seed)
    gone = np.arange(number) == number - 1  # the last one is the first of its kind
    return Table.from_columns(
        {
            "sex": (rng.choice(["f", "m"], number), gone),
            "age": (rng.integers(0, 100, number), None),
            "pay": (rng.random(number), None),
            "member": (rng.random(number) < 0.5, None),
        }
    )


def neighbours(relation, number=12):
    """The first party's rows, and those of a neighbour: one more row, or another one."""
    rows, rest = people(number + 1, 0), people(9, 1)
    if relation is Relation.ADD_REMOVE:
        return [rows.take(range(number)), rest], [rows, rest]
    last = [*range(number - 1), number]
    return [rows.take(range(number)), rest], [rows.take(last), rest]


def by_columns(parts):
    """The first party's rows alone, its columns at two parties."""
    return {"p0": parts[0].select(["sex", "age"]), "p1": parts[0].select(["pay", "member"])}


def by_four(parts):
    """Two parties more, so that one may vanish."""
    return [*parts, people(9, 2), people(9, 3)]


def fit_of(made, schema=SCHEMA, relation=Relation.ADD_REMOVE, arranged=list, epsilon=6.0, **named):
    budget = Budget(epsilon, 1e-5, relation=relation)

    def study(parts):
        data = arranged(parts)
        return lambda: made.fit(data, schema, budget=budget, noise="seeded", **named)

    study.dropouts = getattr(made, "dropouts", 0)
    return study, relation


def small(kind, **settings):
    return kind(workload=PAIRS, bins=4, **settings)


_DIFFUSION = {"diffusion": {"steps": 2, "batch": 8, "hidden": [4], "embed": 4, "timesteps": 3}}
STUDIES = {
    "aim": fit_of(small(sw.AIM), arranged=lambda parts: parts[0]),
    "aim, rows replaced": fit_of(
        small(sw.AIM), relation=Relation.REPLACE_ONE, arranged=lambda parts: parts[0]
    ),
    "privmrf": fit_of(
        small(sw.PrivMRF, theta=0.01, refined=0.5, widest=2), arranged=lambda parts: parts[0]
    ),
    "privmrf, rows replaced": fit_of(
        small(sw.PrivMRF, theta=0.01, refined=0.5, widest=2),
        relation=Relation.REPLACE_ONE, arranged=lambda parts: parts[0],
    ),
    "flaim": fit_of(small(sw.FLAIM, rounds=2, participation=1.0, local_steps=2)),
    "flaim, naive": fit_of(small(sw.FLAIM, rounds=2, participation=1.0, variant="naive")),
    "two rounds": fit_of(small(sw.TwoRound)),
    "two rounds that parties leave": fit_of(small(sw.TwoRound, dropouts=1), arranged=by_four),
    "flaim that parties leave": fit_of(
        small(sw.FLAIM, rounds=1, participation=1.0, dropouts=1), arranged=by_four
    ),
    "secure two rounds": fit_of(small(sw.SecureTwoRound), arranged=by_columns, at_once=1),
    "secure two rounds, rows replaced": fit_of(
        small(sw.SecureTwoRound), relation=Relation.REPLACE_ONE, arranged=by_columns,
        at_once=1,
    ),
    "learning a schema": fit_of(
        small(sw.TwoRound, counts_share=0.0), OPEN, learn=0.8, epsilon=60.0
    ),
    "noised latents": fit_of(
        sw.SiloFuse(privacy="latents", **_DIFFUSION),
        relation=Relation.REPLACE_ONE, arranged=by_columns,
    ),
}  # fmt: skip


@pytest.fixture(autouse=True)
def same_keys(monkeypatch):
    """Keys of masks and of parties are the same on both tables."""
    monkeypatch.setattr(masking, "new_secret", lambda entropy=None: bytes([8, *bytes(31)]))
    monkeypatch.setattr(Identity, "create", classmethod(lambda cls: identity_of("anyone")))


def check(study, relation, most, path=(), told=""):
    """Fail if a lie shows more than was paid for; the share of lies that were refused.

    At most so many lies about a field are tried, or all; in requests, below this path, to the party
    that is asked first or the one that is `told`.
    """
    one, other = neighbours(relation)
    found = [lie for lie in lies(study(one), told) if lie.path[: len(path)] == path]
    found = found if most is None else some(found, most)
    assert found
    tried = (refused(study(one), study(other), lie, study.dropouts) for lie in found)
    return sum(tried) / len(found)


def refused(one, other, lie, dropouts=0):
    """Whether a lie is refused, by both of two neighbours; fails if they tell it apart, unpaid."""
    outcomes = []
    with opening() as first:
        tape = record(lambda: outcomes.append(outcome_of(one, lie)))
    try:
        with opening(first.found) as second:
            twin = replay(tape, lambda: outcomes.append(outcome_of(other, lie)))
    except DivergenceError as error:
        raise AssertionError(f"{lie}: the course depends on rows: {error}") from error
    assert outcomes[0] == outcomes[1], f"{lie}: the answer depends on rows, unpaid"
    cost_of_opened(first.found, second.found)
    for paid, (_, moved) in zip(paid_calls(tape), twin.moved, strict=True):
        cost, price = real_cost(paid, moved), paid.event.rho
        assert cost <= price * (1 + 1e-6), f"{lie}: {cost} zCDP for {paid.event}"
        if isinstance(paid.event, MaskedSum):  # every study here says that one party may help
            missed = MaskPlan.for_size(paid.event.shares, 1, dropouts).missing
            assert paid.event.tolerated == missed, f"{lie}: less zCDP for {paid.event} than said"
    return isinstance(outcomes[0], str)


some_and_all = pytest.mark.parametrize(
    "most", [pytest.param(1, id="some"), pytest.param(None, id="all", marks=pytest.mark.slow)]
)


@some_and_all
@pytest.mark.parametrize("name", STUDIES)
def test_no_lie_shows_what_was_not_paid_for(name, most):
    assert check(*STUDIES[name], most) > 1 / 4


@some_and_all
@pytest.mark.parametrize("name", [name for name in STUDIES if name.startswith("secure")])
def test_no_lie_to_a_party_that_is_dealt_words_shows_more(name, most):
    assert check(*STUDIES[name], most and 1, told="p1") > 1 / 4


def believing(patch):
    """A party that takes the shares that it is sent for what they say they are."""
    patch.setattr(flaim, "_check_baseline", lambda request, site: None)


def uncounted(patch):
    """A party that counts what it chose, and not how often it is asked to add it."""
    whole = secure_sums.masked_reply

    def once(request, site, tables, what, *, contributes, **more):
        return whole(request, site, tables, what, contributes=1, **more)

    swap(
        patch,
        flaim,
        "secure_sums",
        checked_queries=lambda queries, site: None,
        masked_reply=once,
    )


@pytest.mark.parametrize(
    ("believe", "path"), [(believing, ("baseline",)), (uncounted, ("queries",))]
)
def test_a_party_that_believes_a_message_is_caught(believe, path, monkeypatch):
    believe(monkeypatch)
    with pytest.raises(AssertionError, match=r"zCDP for|depends on rows"):
        check(*STUDIES["flaim"], None, path)


def test_a_party_makes_no_table_that_the_workload_does_not_hold(monkeypatch):
    """A message of a few bytes could name all columns, whose table no memory holds."""
    every = tuple(Column(f"x{i}", "integer", low=0, high=15) for i in range(9))
    rows = [sw.Table.from_columns({c.name: (np.arange(20) % 16, None) for c in every})] * 2
    monkeypatch.setattr(
        "siloweave.methods.flaim.coordinator._Run.together",
        lambda run, chosen: (tuple(c.name for c in every),),
    )
    with pytest.raises(WireError, match=r"asked for 1 marginals of 68,719,476,736 cells"):
        sw.FLAIM(rounds=1, participation=1.0).fit(
            rows, Schema(every).with_fallbacks(), budget=Budget(1.0, 1e-5), noise="seeded"
        )
