"""What a coordinator recovers of real rows from the latents that it was sent.

Shankar et al. 2024 ("SiloFuse", section 4.3) argue that latents cannot be inverted while encoders
are private. The coordinator, though, needs few pairs of latent and row to fit an inverse: some
rows that leaked, or the pairs that it makes itself, since it draws latents and, where columns are
shared, is given the rows that they decode to. `attacks.inversion` fits it, and counts.

**Guarantee**: none, and none is needed: it looks at what was released, and at real rows to judge
the guesses. Its result is the owners' to see.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from itertools import groupby
from pathlib import Path
from typing import Any

import msgspec
import numpy as np

from siloweave.algorithms.generated import Matrix
from siloweave.attacks.inversion import InversionRisk, Inverter, invert
from siloweave.core.run import TRANSCRIPT, named_parties
from siloweave.errors import InputError, RosterError
from siloweave.federation import wire
from siloweave.federation.records import TranscriptRecord, read_transcript
from siloweave.methods.registry import load
from siloweave.methods.silofuse.messages import Coded, CodeNoised, Noised
from siloweave.protocols.columns import Woven
from siloweave.tables.keys import Key, fold_in
from siloweave.tables.read import Table, read

__all__ = ["Inversion", "heard_latents", "invert_run", "inverted", "recovered"]

_QUICK: tuple[Inverter, ...] = ("ridge", "neighbours")


@dataclass(frozen=True)
class Inversion:
    """What the coordinator recovers of one party's rows.

    Attributes:
        party: Whose rows.
        leaked: With an inverse fitted to a few rows that leaked; None if there are too few rows.
        made: With one fitted to pairs that the coordinator makes; None where columns stay apart.
    """

    party: str
    leaked: InversionRisk | None
    made: InversionRisk | None


def heard_latents(path: Path) -> dict[str, Matrix]:
    """Every party's latents, as the coordinator has them; told classes stand behind them.

    Args:
        path: The transcript of a SiloFuse run.

    Raises:
        InputError: There is none, or it holds no latents of all rows.
    """
    found: dict[str, Matrix] = {}
    for question, answers in groupby(read_transcript(path), key=lambda h: h.question):
        tag = msgspec.msgpack.decode(question)["type"]
        if tag in ("silofuse/code", "silofuse/code_noised"):
            found |= {heard.party: _latents(tag, question, heard) for heard in answers}
    if not found:
        raise InputError(f"{path}: holds no latents of all rows; give the folder of a SiloFuse run")
    return found


def _latents(tag: str, question: bytes, heard: TranscriptRecord) -> Matrix:
    if tag == "silofuse/code_noised":
        grid = wire.decode(question, CodeNoised).noise.grid
        noised = wire.decode(heard.answer, Noised).latents.value.numpy().astype(np.float32)
        return noised * np.float32(grid)
    reply = wire.decode(heard.answer, Coded)
    Z = np.asarray(reply.latents.value.numpy(), dtype=np.float32)
    for told, options in zip(reply.classes, reply.options, strict=True):
        codes = told.value.numpy().astype(np.int64)
        Z = np.concatenate([Z, np.eye(options.value, dtype=np.float32)[codes]], 1)
    return Z


def invert_run(
    folder: Path | str,
    data: Any,
    *,
    known: int = 50,
    pairs: int = 2_000,
    most: int = 2_000,
    seed: Key = 0,
) -> tuple[Inversion, ...]:
    """Invert the latents of a finished SiloFuse run, from where its coordinator stands.

    Args:
        folder: The run's folder, with its model and transcript.
        data: The rows of the run: one table per party, by name or in the order of the run.
        known: Rows that leaked.
        pairs: That the coordinator makes, where columns are shared.
        most: Rows that are judged at most.
        seed: Which rows leaked, which are judged, and the pairs.

    Returns:
        One entry per party.

    Raises:
        InputError: There is no transcript, or the run is not one of SiloFuse; for AIM, FLAIM and
            TwoRound there is `attack_run`.
        RosterError: `data` names other parties than the run.
    """
    fitted = load(Path(folder) / "model")
    if not isinstance(fitted, Woven):
        raise InputError(
            f"{folder} is a run of {fitted.info.title}, which sends no latents. For AIM, FLAIM and "
            "TwoRound there is attack_run"
        )
    known_as = None if isinstance(data, Mapping) else list(fitted.columns)
    tables = {name: read(part) for name, part in named_parties(data, known_as).items()}
    if set(tables) != set(fitted.columns):
        raise RosterError(
            f"data names {', '.join(tables)}; the run's parties are {', '.join(fitted.columns)}. "
            "Give each party's table under its name"
        )
    heard = heard_latents(Path(folder) / TRANSCRIPT)
    return inverted(heard, fitted, tables, known=known, pairs=pairs, most=most, key=seed)


def inverted(
    heard: Mapping[str, Matrix],
    fitted: Woven,
    tables: Mapping[str, Table],
    *,
    known: int,
    pairs: int,
    most: int,
    key: Key,
    **named: Any,
) -> tuple[Inversion, ...]:
    """The attack of `invert_run`, on what was read already."""
    made = _made(fitted, pairs, fold_in(key, "pairs")) if fitted.shared and pairs else {}
    found = []
    for name, Z in heard.items():
        own = [one.column for one in fitted.model.homes[name].features.encodings]
        rows, schema = tables[name].select(own), fitted.features.schema.select(own)
        told = {"key": fold_in(key, name), "schema": schema, "most": most, **named}
        enough = len(Z) > 2 * known
        mine = made.get(name)
        found.append(
            Inversion(
                name,
                invert(Z, rows, known, **told) if enough and known else None,
                None if mine is None else invert(Z, rows, 0, synthetic=mine, **told),
            )
        )
    return tuple(found)


def _made(fitted: Woven, count: int, key: Key) -> dict[str, tuple[Matrix, Table]]:
    """Latents that the coordinator draws, and the columns that it is given for them."""
    V = fitted.model.joint.sample(count, key=key)
    pairs, start = {}, 0
    for name, home in fitted.model.homes.items():
        part = V[:, start : start + home.width]
        start += home.width
        X = home.decode(part, key=fold_in(key, "home", name))
        pairs[name] = part, home.features.decode(X, key=fold_in(key, "values"))
    return pairs


def recovered(path: Path, fitted: Any, tables: Mapping[str, Table]) -> dict[str, float]:
    """Shares of real cells that the coordinator recovers from latents, for the owners' report.

    Quick inverses on a few rows: a lower bound of what more effort would get.

    Args:
        path: The run's transcript.
        fitted: What it left.
        tables: The parties' rows.

    Returns:
        A share per party and way, beside what the best constant guess gets; empty where the run
        sent no latents of all rows.
    """
    try:
        heard = heard_latents(path)
    except InputError:
        return {}
    found = inverted(
        heard, fitted, tables, known=50, pairs=500, most=500, key=0, methods=_QUICK
    )  # fmt: skip
    shares: dict[str, float] = {}
    for one in found:
        for way, risk in (("50 leaked rows", one.leaked), ("pairs it makes", one.made)):
            if risk is None:
                continue
            cells = [column.found for column in risk.columns]
            right = sum(c.recovered.value for c in cells) / len(cells)
            plain = sum(c.baseline.value for c in cells) / len(cells)
            shares[f"cells of {one.party} that the coordinator recovers, {way}"] = right
            shares[f"cells of {one.party} that a constant guess gets, {way}"] = plain
    return shares
