"""What a party knows of a study before it is asked anything, and checks every request against.

A request says whom to sum with, how many parties may collude, how long to train. The party knows
all of that from the study, so it compares, and refuses a request that says something else.

**Guarantee**: a masked sum is taken only over parties of the roster, whose keys for masks they
signed themselves, and only with as much noise left as the study promises. A coordinator can neither
put keys of its own in the place of a party's, nor lower the number of colluders that the noise
withstands. Assumed: the roster's own keys reached the party unaltered.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from siloweave.errors import WireError, whole

__all__ = ["Terms"]

_SHOWN = 60  # characters of a value in a message


@dataclass(frozen=True)
class Terms:
    """A study's facts, as every party of it is given them once.

    Attributes:
        roster: Public key of every party, by name, in the order of the study.
        tolerated: Parties that may pool what they know with the coordinator, and the claim still
            holds. Each party knows its own share of the noise, so at least 1 where there are two
            parties or more.
        facts: What else requests may repeat: the method's public settings, by name.

    Raises:
        InputError: `tolerated` is too low, or no whole number.

    Example:
        >>> Terms({"north": b"1", "south": b"2"}, tolerated=0)
        Traceback (most recent call last):
        siloweave.errors.InputError: tolerated=0 must be a whole number, 1 or more
    """

    roster: Mapping[str, bytes] = field(default_factory=dict)
    tolerated: int = 1
    facts: Mapping[str, Any] = field(default_factory=dict)

    def __post_init__(self) -> None:
        whole("tolerated", self.tolerated, 1 if len(self.roster) > 1 else 0)

    def missing(self, size: int) -> int:
        """Shares of the noise that a sum over `size` parties must do without."""
        return min(self.tolerated, size - 1)

    def check_cohort(self, party: str, cohort: Mapping[str, bytes], tolerated: int) -> None:
        """Refuse a sum over other parties than the study's, or with less noise than it promises.

        Raises:
            WireError: Naming the party that was asked, and what is wrong.
        """
        strangers = [name for name in cohort if name not in self.roster]
        if strangers or party not in cohort:
            raise WireError(
                f"party {party!r} was asked for a sum over {_short(list(cohort))}; the roster of "
                f"the study is {_short(list(self.roster))}. Nothing was released"
            )
        if tolerated != self.missing(len(cohort)):
            raise WireError(
                f"party {party!r} was asked for a sum of {len(cohort)} parties that withstands "
                f"{tolerated} colluders; the study says {self.missing(len(cohort))}. Nothing was "
                "released"
            )

    def require(self, party: str, **said: Any) -> None:
        """Refuse a request that says something else than the study.

        Args:
            party: Who was asked.
            said: What the request says, by the name of the fact.

        Raises:
            WireError: Naming the first fact that differs.

        Example:
            >>> Terms(facts={"rounds": 10}).require("north", rounds=500)
            Traceback (most recent call last):
            siloweave.errors.WireError: party 'north': the request says rounds = 500, and ...
        """
        for name, value in said.items():
            known = self.facts.get(name)
            if name not in self.facts or known != value:
                raise WireError(
                    f"party {party!r}: the request says {name} = {_short(value)}, and the study "
                    f"says {_short(known)}. Nothing was released; the coordinator must run the "
                    "study that was agreed on"
                )


def _short(value: Any) -> str:
    text = str(value)
    return text if len(text) <= _SHOWN else text[: _SHOWN - 1] + "…"
