"""Sites with one side, behind the carrier of parties in this process."""

from siloweave.federation.carriers.direct import Direct
from siloweave.federation.session import with_closing


class SiteParty:
    """A site that answers as a party does, in one stage alone."""

    def __init__(self, site, line):
        self.site = site
        self.roster = {}
        self._line = line

    @property
    def ledger(self):
        return self.site.ledger

    @property
    def key(self):
        return self.site.ledger.key

    def begin(self, run, facts):
        """The site is there already."""

    def answer(self, frame):
        return self.site.answer(frame, self._line._handlers)

    def recall(self, run, names):
        stored = {name: self.site.recall(name, run) for name in names}
        return {name: value for name, value in stored.items() if value is not None}

    def close(self):
        """Whoever made the site closes its ledger."""


class Sites(Direct):
    """Carries frames to sites, by the parties' names."""

    def __init__(self, sites, handlers):
        self._handlers = with_closing(handlers)
        super().__init__({name: SiteParty(site, self) for name, site in sites.items()})
        self.keys = {name: party.key for name, party in self.parties.items()}


def handlers_of(carrier):
    """Return what the parties of this process answer, in all stages that have begun."""
    if isinstance(carrier, Sites):
        return carrier._handlers
    handlers: dict = {}
    for party in carrier.parties.values():
        for side in party._sides.values():
            handlers |= with_closing(side.handlers)
    return handlers
