"""Every error a user can cause, as one tree.

::

    SiloweaveError
    ├── InputError          what was given cannot be used (command line: exit code 2)
    │   ├── SchemaError     a schema is wrong, or rows do not fit it
    │   ├── DataError       a file or a table cannot be read as one
    │   ├── BudgetError     a budget is invalid, or would be overspent
    │   ├── RosterError     parties are missing, doubled or disagree
    │   └── CapacityError   the work would not fit in memory
    ├── LedgerError         a ledger was edited, cut or belongs to someone else
    └── WireError           a message is malformed, too large or not sealed

Messages name the argument, its value, the bound, and what to do next.
"""

__all__ = [
    "BudgetError",
    "CapacityError",
    "DataError",
    "InputError",
    "LedgerError",
    "RosterError",
    "SchemaError",
    "SiloweaveError",
    "WireError",
]


class SiloweaveError(Exception):
    """Base of all errors raised on purpose by siloweave."""


class InputError(SiloweaveError):
    """What the user gave cannot be used."""


class SchemaError(InputError):
    """A schema is wrong, or rows do not fit it."""


class DataError(InputError):
    """A file or a table cannot be read as one."""


class BudgetError(InputError):
    """A budget is invalid, or a release would overspend it."""


class RosterError(InputError):
    """Parties are missing, doubled, empty, or disagree with each other."""


class CapacityError(InputError):
    """The work would not fit in memory."""


class LedgerError(SiloweaveError):
    """A ledger was edited, cut, or belongs to another party or study."""


class WireError(SiloweaveError):
    """A message is malformed, too large, or carries a field nobody paid for."""
