"""A coordinator and a party over a spool folder, with files that outlive both.

    python -m tests.federation.spooled FOLDER

is a party in a process of its own, which can be killed.
"""

import sys
from contextlib import contextmanager
from pathlib import Path
from threading import Thread

from siloweave.federation.exchanges import Nonces
from siloweave.federation.frames import Seals, keys_for, signed_roster
from siloweave.federation.session import Session, with_closing
from siloweave.federation.site import FolderStore
from siloweave.federation.spool import STOP, Spool, _to, serve
from siloweave.privacy.budget import Budget
from siloweave.privacy.ledger import Ledger
from tests.federation.rosters import identity_of, site_with, terms_of
from tests.federation.small import HANDLERS, KNOWN, Ask

LIMIT = Budget(epsilon=5.0, delta=1e-6)
STEPS = 3
ASK = Ask(500.0)


def roster_of(name="clinic"):
    return signed_roster(
        "flu", identity_of("coordinator"), {name: keys_for("flu", identity_of(name))}
    )


def coordinator(name="clinic"):
    return Seals("coordinator", identity_of("coordinator"), roster_of(name))


def spool_of(folder, *, seconds=20.0, name="clinic"):
    return Spool(folder / "spool", coordinator(name), seconds=seconds, pause=0.004)


def ledger_in(folder, name="clinic"):
    home = folder / "party"
    home.mkdir(parents=True, exist_ok=True)
    return Ledger(name, path=home / "ledger.jsonl", limit=LIMIT, identity=identity_of(name))


def serve_from(folder, *, name="clinic", spool=None, watch=None):
    """Be a party until it is told to stop."""
    home, identity = folder / "party", identity_of(name)
    with ledger_in(folder, name) as ledger:
        store, terms = FolderStore(home / "store"), terms_of({*KNOWN, name})
        site = site_with(name, (1, 2, 3), terms, ledger=ledger, store=store)
        seals = Seals(name, identity, roster_of(name), Nonces(home / "nonces"))
        handlers = with_closing(HANDLERS)
        folder = spool or folder / "spool"

        def reply(question):
            return site.answer(question.data, handlers)

        serve(folder, seals, reply, pause=0.004, watch=watch)


def stop(folder: Path, party: str) -> None:
    """End the party's `serve` over this folder, as an owner does by a file of this name."""
    box = _to(folder, party)
    box.mkdir(mode=0o700, parents=True, exist_ok=True)
    (box / STOP).touch(mode=0o600)


def entries_of(folder):
    return Ledger.read(folder / "party" / "ledger.jsonl").entries


@contextmanager
def party(folder, **named):
    """A party in a thread, told to stop at the end."""
    thread = Thread(target=serve_from, args=(folder,), kwargs=named, daemon=True)
    thread.start()
    try:
        yield thread
    finally:
        stop(named.get("spool") or folder / "spool", named.get("name", "clinic"))
        thread.join(20)
        assert not thread.is_alive()


class Listening:
    """A transport that adds every question and its answer to a list, which may outlive it."""

    sizes = {}

    def __init__(self, spool, heard):
        self.spool, self.heard = spool, heard

    def send(self, name, frame):
        answer = self.spool.send(name, frame)
        self.heard.append((frame, answer))
        return answer


def run(spool, steps=STEPS, name="clinic", ask=ASK, heard=None):
    """Ask so many times; every question and its answer."""
    heard = [] if heard is None else heard
    session = Session([name], Listening(spool, heard), run="r1")
    for _ in range(steps):
        session.ask(ask)
    return heard


if __name__ == "__main__":
    serve_from(Path(sys.argv[1]))
