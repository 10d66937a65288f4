"""Sites that know each other: what a run's start gives them, for tests that build their own."""

from hashlib import sha256

from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

from siloweave.federation.site import MemoryStore, Site, Terms
from siloweave.privacy import mechanisms
from siloweave.privacy.ledger import Identity, Ledger


def identity_of(name):
    """The same key for the same name, so that twins of a run send the same bytes."""
    return Identity(Ed25519PrivateKey.from_private_bytes(sha256(name.encode()).digest()))


def terms_of(names, *, tolerated=1, facts=None, dropouts=0):
    keys = {name: identity_of(name).public for name in names}
    return Terms(keys, tolerated, facts or {}, dropouts)


def site_with(name, rows, terms, *, limit=None, ledger=None, entropy=None, store=None, **named):
    return Site(
        name,
        rows,
        ledger=ledger or Ledger(name, limit=limit, identity=identity_of(name)),
        entropy=entropy or mechanisms.OSEntropy(),
        store=store or MemoryStore(),
        terms=terms,
        **named,
    )


def roster_of(rows, *, tolerated=1, facts=None, dropouts=0, **named):
    """A site for every name; further arguments are those of `site_with`."""
    terms = terms_of(rows, tolerated=tolerated, facts=facts, dropouts=dropouts)
    return {name: site_with(name, mine, terms, **named) for name, mine in rows.items()}
