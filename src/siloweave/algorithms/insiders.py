"""What a coordinator could learn about single rows from a run as it happened.

The attack is `attacks.noisy_counts`'s: a likelihood ratio of the noisy counts that it received
(Homer et al. 2008, "Resolving individuals contributing trace amounts of DNA to highly complex
mixtures", asked the same of exact counts), for an adversary who knows all other rows of the study.

**Guarantee**: none, and none is needed: it looks at releases that were paid for, and at real rows
to judge the guesses. Its result is the owner's to see, not to publish.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from siloweave.algorithms.fitted import Fitted
from siloweave.algorithms.overheard import Overheard, overheard
from siloweave.attacks.noisy_counts import NoisyCountsRisk, transcript_attack
from siloweave.core.run import TRANSCRIPT, named_parties
from siloweave.errors import InputError, RosterError
from siloweave.methods.registry import load
from siloweave.models.estimate import Measurement
from siloweave.privacy.ledger import Ledger
from siloweave.statistics.marginals import marginal
from siloweave.tables.codes import Codes, Encoder
from siloweave.tables.keys import Key, fold_in, generator
from siloweave.tables.read import read

__all__ = ["Exposure", "attack_run"]

FEWEST = 8
"""Rows that are attacked at a party, at least."""


@dataclass(frozen=True)
class Exposure:
    """What the coordinator's view of a run gives away of one party's rows.

    Attributes:
        party: Whose rows.
        marginals: Noisy marginals that its rows are in.
        risk: The attack beside what the party's ledger allows; None if it joined no sum, or has
            too few rows to judge.
        note: Why there is no risk.
    """

    party: str
    marginals: int
    risk: NoisyCountsRisk | None
    note: str = ""


def attack_run(
    folder: Path | str, data: Any, control: Any, *, targets: int = 1000, seed: Key = 0
) -> tuple[Exposure, ...]:
    """Attack a finished run of AIM, FLAIM or TwoRound from where its coordinator stands.

    The adversary knows every row of the study but those it attacks, and what it heard. One run is
    one draw of the noise, so a single risk scatters; none may be above what the ledger allows
    other than by chance. Choices, and what was learned before the run (an open schema, a look at
    single columns), are in that bound but not in the attack.

    Args:
        folder: The run's folder, with its model, transcript and ledgers.
        data: The rows of the run: one table per party by name, or one table for a central run.
        control: Rows of the same population that were in no party.
        targets: Rows attacked at a party, at most; half of them at most are the party's.
        seed: Which rows.

    Returns:
        One exposure per party, in the order of `data`.

    Raises:
        InputError: There is no transcript, it is a run of another method, or `targets` is too
            small.
        RosterError: `data` names other parties than the run.
    """
    if targets < 2 * FEWEST:
        raise InputError(f"targets={targets} must be at least {2 * FEWEST}")
    folder = Path(folder)
    fitted = load(folder / "model")
    if not isinstance(fitted, Fitted):
        raise InputError(
            f"{folder} is a run of {fitted.info.title}: marginals are attacked, as AIM, FLAIM and "
            "TwoRound tell them. For latents, as SiloFuse sends them, there is invert_run"
        )
    ledgers = _ledgers(folder)
    encoder = fitted.encoder
    parts = {name: _coded(part, encoder) for name, part in _named(data, ledgers).items()}
    others = _coded(control, encoder)
    heard = overheard(folder / TRANSCRIPT, encoder.domain)
    return tuple(
        _exposure(name, parts, others, heard, ledgers[name].rho, targets // 2, fold_in(seed, name))
        for name in parts
    )


def _named(data: Any, ledgers: dict[str, Ledger]) -> dict[str, Any]:
    if len(ledgers) == 1 and not isinstance(data, dict | list | tuple):
        return {next(iter(ledgers)): data}
    parts = named_parties(data, None)
    if set(parts) != set(ledgers):
        raise RosterError(
            f"data names {', '.join(sorted(parts))}; the run's parties are "
            f"{', '.join(sorted(ledgers))}. Give each party's rows under its name"
        )
    return parts


def _ledgers(folder: Path) -> dict[str, Ledger]:
    files = sorted((folder / "parties").glob("*/ledger.jsonl"))
    found = {ledger.owner: ledger for ledger in map(Ledger.read, files)}
    if not found:
        raise InputError(f"{folder}: there are no ledgers; give the folder of a finished run")
    return found


def _coded(part: Any, encoder: Encoder) -> Codes:
    return part if isinstance(part, Codes) else encoder.encode(read(part))


def _exposure(
    name: str,
    parts: dict[str, Codes],
    others: Codes,
    heard: list[Overheard],
    rho: float,
    count: int,
    key: Key,
) -> Exposure:
    mine = [one for one in heard if name in one.behind]
    rows = parts[name]
    count = min(count, rows.num_rows // 2, others.num_rows)
    if not mine or count < FEWEST:
        why = f"fewer than {2 * FEWEST} rows" if mine else "its rows are in no sum of this run"
        return Exposure(name, len(mine), None, why)
    order = generator(fold_in(key, "members")).permutation(rows.num_rows)
    strangers = generator(fold_in(key, "others")).permutation(others.num_rows)[:count]
    risk = transcript_attack(
        [_alone(one, name, parts) for one in mine],
        rows.take(order[:count]),
        others.take(strangers),
        rows.take(order[count:]),
        rho=rho,
    )
    return Exposure(name, len(mine), risk)


def _alone(heard: Overheard, name: str, parts: dict[str, Codes]) -> Measurement:
    """The measurement without the rows of other parties, which this adversary knows."""
    m = heard.measurement
    known = sum(marginal(parts[other], m.clique) for other in heard.behind if other != name)
    return Measurement(m.clique, np.asarray(m.counts - known, dtype=np.float64), m.sigma)
