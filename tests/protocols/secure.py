"""A small study of secure marginals, and parties and coordinators that send something else."""

from dataclasses import dataclass
from typing import Any

import msgspec
import numpy as np
import pandas as pd

from siloweave.core.method import Setup, Task
from siloweave.core.party import OwnerData
from siloweave.federation import messages
from siloweave.federation.carriers.direct import Direct
from siloweave.federation.messages import Envelope
from siloweave.federation.session import Session
from siloweave.federation.site import MemoryStore
from siloweave.methods.secure_two_round.method import SecureTwoRound
from siloweave.privacy import mechanisms
from siloweave.privacy.budget import Budget, Relation
from siloweave.privacy.mechanisms import SeededEntropy
from siloweave.protocols import secure_products as products
from siloweave.protocols.secure_marginals import coordinator, plan
from siloweave.protocols.secure_marginals.coordinator import RowBounds, SecureMarginals
from siloweave.protocols.secure_marginals.messages import MeasureTables, Tables
from siloweave.protocols.secure_marginals.party import secure_handlers
from siloweave.protocols.secure_marginals.plan import secure_facts
from siloweave.statistics.marginals import marginal
from siloweave.tables import Column, Schema, read
from siloweave.tables.codes import Encoder
from tests.federation.rosters import site_with, terms_of
from tests.federation.sites import Sites, handlers_of
from tests.federation.small import reply_in

SIZES = {"a": 3, "b": 3, "c": 4, "d": 2, "e": 3, "f": 2}
SCHEMA = Schema(
    tuple(Column(n, "categorical", categories=tuple("uvwxy"[:k])) for n, k in SIZES.items())
).with_fallbacks()
SPLITS = {
    "two parties": {"north": "abd", "south": "cef"},
    "two that take turns": {"north": "ace", "south": "bdf"},
    "three parties": {"north": "ab", "south": "cd", "west": "ef"},
    "four parties": {"north": "af", "south": "b", "west": "cd", "east": "e"},
    "one party": {"north": "abcdef"},
    "a party per column": {f"p{n}": n for n in SIZES},
}
TWO = SPLITS["two parties"]
RELATIONS = (Relation.ADD_REMOVE, Relation.REPLACE_ONE)
SYNTH = SecureTwoRound(degree=3)
PAIR = (("a", "c"),)


def full_at(patch, most):
    """Have messages of the protocol hold no more bytes."""
    for module in (plan, coordinator):
        patch.setattr(module, "MAX_BYTES", most)


def budget_of(relation=Relation.ADD_REMOVE, epsilon=20.0):
    return Budget(epsilon, 1e-6, relation=relation)


def people(rows=30, seed=0):
    rng = np.random.default_rng(seed)
    return pd.DataFrame({c.name: rng.choice(c.categories, rows) for c in SCHEMA.columns})


@dataclass
class Study:
    """A coordinator, the parties that it asks, and what it is to know."""

    secure: SecureMarginals
    sites: dict[str, Any]

    def counts(self, cliques, sigma=20.0):
        found = self.secure.measure(list(cliques), [float(sigma)] * len(cliques))
        return {one.clique: one.counts for one in found}


def study_of(
    frame, split, budget=None, *, synth=SYNTH, schema=SCHEMA, run="r", seed=None, given=None
):
    """Sites with their columns, and the coordinator after its first question.

    `given` are the tables of parties that hold other rows.
    """
    budget = budget or budget_of()
    columns = {name: tuple(own) for name, own in split.items()}
    setup = Setup(synth, schema, budget, tuple(columns), columns)
    terms, sites = terms_of(columns, facts=secure_facts(setup)), {}
    for name, own in columns.items():
        table = read((given or {}).get(name, frame)[list(own)])
        entropy = None if seed is None else SeededEntropy(f"{seed}/{name}")
        rows = OwnerData(table, schema.select(list(own)))
        sites[name] = site_with(name, rows, terms, limit=budget, entropy=entropy,
                                store=MemoryStore())  # fmt: skip
    session = Session(tuple(columns), Sites(sites, secure_handlers(synth)), run=run)
    source = {} if seed is None else {"entropy": SeededEntropy(f"{seed}/coordinator")}
    return Study(SecureMarginals(session, Task(setup, 1.0, 0, **source)), sites)


def exact(frame, cliques, schema=SCHEMA):
    codes = Encoder(schema).encode(read(frame))
    return {clique: marginal(codes, clique) for clique in cliques}


def without_noise(patch):
    """Counts as they are."""

    def nothing(coins, z, words, modulus, *, first):
        return np.zeros(len(words), dtype=np.uint32)

    patch.setattr(products, "noise_share", nothing)
    patch.setattr(mechanisms, "add_gaussian", lambda values, sigma, *, entropy: values)


def ask_otherwise(patch, party, question, change):
    """Let a party be asked something else than the coordinator meant to, at every such question."""
    send = Direct.send

    def sent(transport, name, frame):
        envelope = messages.decode(frame, Envelope)
        request = messages.decode_request(envelope.body, handlers_of(transport))
        if name == party and type(request).__name__ == question:
            body = messages.encode(change(request))
            frame = messages.encode(msgspec.structs.replace(envelope, body=body))
        return send(transport, name, frame)

    patch.setattr(Direct, "send", sent)


def without_case(patch, case, rows):
    """A copy of the check of opened tables that takes the largest count, or the sum, for good."""
    after = RowBounds.after

    class Blind(np.ndarray):
        def max(self):
            return 0 if case == "a count" else np.asarray(self).max()

        def sum(self):
            return rows if case == "a sum" else np.asarray(self).sum()

    patch.setattr(RowBounds, "after", lambda bounds, who, clique, counts, coins: (
        after(bounds, who, clique, counts.view(Blind), coins)
    ))  # fmt: skip


def words_sent(patch):
    """What parties send of tables that two open, in the order in which they are asked."""
    send, found = Direct.send, []

    def sent(transport, name, frame):
        answer = send(transport, name, frame)
        body = messages.decode(frame, Envelope).body
        if isinstance(messages.decode_request(body, handlers_of(transport)), MeasureTables):
            found.extend(one.value.numpy() for one in reply_in(answer, Tables).joint)
        return answer

    patch.setattr(Direct, "send", sent)
    return found


def with_fields(**fields):
    """A change of a request's fields: values, or functions of them."""

    def changed(request):
        new = {n: v(getattr(request, n)) if callable(v) else v for n, v in fields.items()}
        return msgspec.structs.replace(request, **new)

    return changed
