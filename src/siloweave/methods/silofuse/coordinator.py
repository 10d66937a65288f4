"""The coordinator's side of SiloFuse and E2EDistr, and what a fit of them draws with.

Shankar et al. 2024, "SiloFuse" (ICDE), Algorithms 1 and 2, and section 5.1.

**Guarantee**: see method.py. This side reads only what was sent to it.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from siloweave.core.method import Result, Task
from siloweave.errors import InputError, WireError
from siloweave.federation.expected import MOST_ROWS, WHOLE, WIDEST, CheckedReply
from siloweave.federation.messages import Array
from siloweave.federation.session import Session
from siloweave.methods.silofuse.messages import (
    GRID,
    Backward,
    BeginJoint,
    Code,
    Coded,
    CodeNoised,
    End,
    Forward,
    JointBegun,
    declared_coder,
    released_together,
)
from siloweave.methods.silofuse.party import batch_of
from siloweave.privacy.budget import gaussian_sigma, rho_for
from siloweave.protocols.columns import cell_shares, check_same_rows, condition_of, parts_of
from siloweave.protocols.networks import NetworkModel, split_key, way_of
from siloweave.tables.arrays import Floats, Matrix
from siloweave.tables.bins import BINNED
from siloweave.tables.cells import options_of
from siloweave.tables.keys import Key, fold_in
from siloweave.tables.schema import Schema

if TYPE_CHECKING:
    from siloweave.models.coders import RowCoder
    from siloweave.tables.features import SphereCodes

_OPTIONS = 2**16  # of a choice among latents, at most: a table of its sphere codes is made
_CLASSES = 256  # of a target of numbers, at most: with more it is no single choice
_REPORTED = 50  # steps between two reports
_LOWER = "lower diffusion.learning_rate in settings, or the coder's"


# SiloFuse


def coordinate(session: Session, task: Task) -> Result:
    """Gather latents once, and train their distribution.

    Raises WireError, naming the party, where it sent what does not fit.
    """
    synth: Any = task.setup.synth
    parts, noised = parts_of(task.setup), synth.privacy == "latents"
    sent = (_noised if noised else _coded)(session, task, parts)
    rows = side_by_side(sent, task.setup.schema.names, condition_of(synth.target, parts))
    net = trained(rows, task)
    known = {} if noised or not synth.shared else cell_shares(session, parts)
    return Result(JointModel(net, known), len(rows.V), parts=tuple(map(_width, sent)))


def _width(sent: Sent) -> int:
    """Entries of a party's part of the vectors."""
    return sum(one.shape[1] for one in (sent.latents, sent.classes) if one is not None)


def trained(rows: SideBySide, task: Task) -> Any:
    """The distribution of latents; it reads no message and sends none."""
    from siloweave.models import latent

    synth: Any = task.setup.synth
    settings = synth.latent
    return latent.fit_latents(
        rows.V, rows.latent, settings.diffusion, scaled=settings.scaled, sphere_codes=rows.codes,
        facts=rows.facts, key=split_key(fold_in(task.seed, "train", "model"))[1],
        progress=task.progress, store=task.store,
    )  # fmt: skip


def _coded(session: Session, task: Task, parts: Mapping[str, Schema]) -> list[Sent]:
    synth: Any = task.setup.synth
    target, found = condition_of(synth.target, parts), {}
    for name, reply in zip(session.roster, session.ask(Code(task.seed)), strict=True):
        checked, own = CheckedReply(name), parts[name].names
        Z = checked.reals("latents", reply.latents.value, (None, None))
        count = checked.number("latents in a row", Z.shape[1], most=WIDEST)
        columns = checked.items("columns", reply.columns.value, count=count, among=("", *own))
        missing = [c for c in own if c != target and not {c, ""} & set(columns)]
        if missing:
            raise checked.wrong(f"no latents of {missing[0]!r}", "all of its columns")
        codes = checked_codes(name, reply.sphere_codes.value, columns)
        classes = _classes(name, reply, parts[name], target, len(Z))
        found[name] = Sent(Z, columns, codes, classes)
    check_same_rows({name: len(one.latents) for name, one in found.items()})
    return list(found.values())


def _noised(session: Session, task: Task, parts: Mapping[str, Schema]) -> list[Sent]:
    """Latents with the least noise, equal at all parties, that together keeps to the budget."""
    synth: Any = task.setup.synth
    distance = released_together(1.0, parts, synth).sensitivity
    replies = session.ask(CodeNoised(gaussian_sigma(rho_for(task.setup.budget), distance)))
    found = {}
    for name, reply in zip(session.roster, replies, strict=True):
        coder = declared_coder(parts[name], synth)
        K = CheckedReply(name).array("latents", reply.latents.value, WHOLE, (None, coder.latent))
        found[name] = Sent((K * GRID).astype(np.float32), coder.columns)
    check_same_rows({name: len(one.latents) for name, one in found.items()})
    return list(found.values())


# What parties sent, checked


@dataclass(frozen=True)
class Sent:
    """What one party sent of its rows."""

    latents: Matrix  # (rows, latents)
    columns: tuple[str, ...]  # which column each stands for; "" where they are mixed
    codes: SphereCodes = ()  # choices that are sphere codes among them
    classes: Matrix | None = None  # one-hot, of the target, (rows, options), at its holder


def _classes(
    name: str, reply: Coded | JointBegun, schema: Schema, target: str | None, rows: int
) -> Matrix | None:
    """What a party sent beside latents: classes, where it holds the target.

    Raises WireError where that is more or less than the study says, or what its columns cannot
    have.
    """
    checked, own = CheckedReply(name), target in schema.names
    checked.items("lists of classes", reply.classes, count=int(own))
    checked.items("numbers of options", reply.options, count=int(own))
    if target is None or not own:
        return None
    column = schema[target]
    most = _CLASSES if column.kind in BINNED else options_of(column)
    options = checked.number("options", reply.options[0].value, least=1, most=most)
    return one_hot(name, reply.classes[0].value, options, rows)


def one_hot(name: str, array: Array, options: int, rows: int) -> Matrix:
    """Classes as one-hot rows; raises WireError, naming the party, unless they fit."""
    codes = CheckedReply(name).array("classes", array, WHOLE, (rows,), least=0, most=options - 1)
    return np.asarray(np.eye(options, dtype=np.float32)[codes])


def checked_codes(
    name: str, sent: Sequence[tuple[int, int, int]], columns: tuple[str, ...]
) -> SphereCodes:
    """A party's sphere codes; raises WireError, naming it, where one does not fit its latents."""
    from siloweave.tables.features import SphereCode

    free = 0
    for first, dimensions, options in sent:
        column = set(columns[first : first + dimensions])
        fits = free <= first <= len(columns) - dimensions and 1 <= dimensions < max(options, 2)
        if not (fits and options <= _OPTIONS and len(column) == 1 and "" not in column):
            raise WireError(
                f"party {name!r} says that {dimensions} latents from {first} on are a choice among "
                f"{options}, which does not fit the {len(columns)} latents that it names"
            )
        free = first + dimensions
    return tuple(SphereCode(*one) for one in sent)


@dataclass(frozen=True)
class SideBySide:
    """All parties' rows as one table's, columns in the schema's order where latents are of one.

    Attributes:
        V: (rows, latents + options): the classes of the target are behind the latents.
        latent: How many entries of a row are latents.
        codes: Choices that are sphere codes among them.
        facts: What `JointModel` needs: `places` of the entries in the parties' parts side by side,
            `columns` and `label`.
    """

    V: Matrix
    latent: int
    codes: SphereCodes
    facts: dict[str, Any]


def side_by_side(sent: Sequence[Sent], names: Sequence[str], target: str | None) -> SideBySide:
    """Join what the parties sent, in roster order (Algorithm 1, line 6).

    `names` are the columns in the schema's order, and `target` the one whose classes were sent.
    """
    places: list[int] = []
    label: list[int] = []
    codes, start = [], 0
    for one in sent:
        codes += [code._replace(start=start + code.start) for code in one.codes]
        places += range(start, start + one.latents.shape[1])
        start += one.latents.shape[1]
        if one.classes is not None:
            label = list(range(start, start + one.classes.shape[1]))
            start += len(label)
    columns = [column for one in sent for column in one.columns]
    order = list(range(len(columns)))
    if all(columns):  # the same order, and so the same distribution, however columns are split
        rank = {name: i for i, name in enumerate(names)}
        order.sort(key=lambda j: rank[columns[j]])  # stable within a column
    found = {places[j]: i for i, j in enumerate(order)}
    Z = np.concatenate([one.latents for one in sent], axis=1)[:, order]
    classes = [one.classes for one in sent if one.classes is not None]
    facts = {
        "places": [places[j] for j in order] + label,
        "columns": [columns[j] for j in order],
        "label": target if label else None,
    }
    moved = sorted(code._replace(start=found[code.start]) for code in codes)
    return SideBySide(np.concatenate([Z, *classes], axis=1), len(columns), tuple(moved), facts)


# What a fit draws with


@dataclass(frozen=True)
class JointModel(NetworkModel):
    """A `LatentDistribution` whose facts say where its entries stand in the parties' parts."""

    cell_shares: Mapping[str, Floats] = field(default_factory=dict)  # in the run itself, if known

    @property
    def takes(self) -> frozenset[str]:
        """Columns that it can be asked for: the label; all where sphere codes code the columns."""
        label = {self.net.facts["label"]} - {None}
        columns = set(self.net.facts["columns"])
        return frozenset(label if "" in columns else label | columns)

    def shares(self, column: str) -> tuple[float, ...] | None:
        """How frequent each option of the label was; nothing of other columns."""
        label = self.net.facts["label"]
        return tuple(self.net.diffusion.label_shares) if label and column == label else None

    def sample(self, n: int, *, key: Key, given: Matrix | None = None) -> Matrix:
        """Draw the parties' parts, side by side in roster order."""
        places, latent = self.net.facts["places"], self.net.latent
        asked = None if given is None else given[:, places]
        way = {} if asked is None else way_of(asked[:, :latent])
        V = np.empty((n, len(places)), np.float32)
        V[:, places] = self.net.sample(n, key=split_key(key)[0], given=asked, **way)
        return V

    @classmethod
    def load(cls, path: Path) -> JointModel:
        """Read a model that was saved."""
        from siloweave.models.latent import LatentDistribution

        return cls(LatentDistribution.load(path))


def load_coder(path: Path) -> RowCoder:
    """Read a party's coder."""
    from siloweave.models.coders import RowCoder

    return RowCoder.load(path)


# E2EDistr


@dataclass(frozen=True)
class _Exchange:
    """What crosses the wire in a step: matrices of latents, cut where a party's part ends."""

    session: Session  # with the parties
    widths: Mapping[str, int]  # latents of every party that has something to train

    def cut(self, Z: Any) -> dict[str, Array]:
        """Every party's part of a matrix; raises InputError where training diverged."""
        parts, start, Z = {}, 0, np.asarray(Z)
        if not np.isfinite(Z).all():
            raise InputError(f"training diverged: {_LOWER}")
        for name, width in self.widths.items():
            parts[name] = Array.of(Z[:, start : start + width], "<f4")
            start += width
        return parts

    def forward(self, step: int, slope: Any) -> Matrix:
        """Latents of a batch."""
        slopes = {} if slope is None else self.cut(slope)
        asked = {name: Forward(step, slopes.get(name)) for name in self.widths}
        parts: list[Matrix] = []
        for name, reply in zip(asked, self.session.ask_each(asked), strict=True):
            rows = len(parts[0]) if parts else None
            parts.append(self._fits(name, "latents", reply.latents.value, rows))
        return np.concatenate(parts, 1)

    def backward(self, step: int, back: Any) -> tuple[Matrix, float]:
        """Slopes at denoised latents, and the loss."""
        asked = {name: Backward(step, part) for name, part in self.cut(back).items()}
        slopes, loss = [], 0.0
        for name, reply in zip(asked, self.session.ask_each(asked), strict=True):
            slopes.append(self._fits(name, "slope", reply.slope.value, len(back)))
            loss += CheckedReply(name).number("loss", reply.loss.value)
        return np.concatenate(slopes, 1), loss

    def _fits(self, name: str, field: str, array: Array, rows: int | None) -> Matrix:
        wanted = f"finite (where training diverges it is not: {_LOWER})"
        return CheckedReply(name).reals(field, array, (rows, self.widths[name]), finite=wanted)

    def end(self, step: int, slope: Any) -> None:
        """Take the last step, and have every coder stored."""
        slopes, nothing = self.cut(slope), Array.of(np.zeros((0, 0)), "<f4")
        self.session.ask_each({n: End(step, slopes.get(n, nothing)) for n in self.session.roster})


def coordinate_steps(session: Session, task: Task) -> Result:
    """Train encoders, denoiser and decoders as one.

    Raises WireError, naming the party, where it sent what does not fit.
    """
    synth: Any = task.setup.synth
    begun = dict(zip(session.roster, session.ask(BeginJoint(task.seed)), strict=True))
    sent, classes = _begun(begun, task)
    target = condition_of(synth.target, parts_of(task.setup))
    rows = side_by_side(sent, task.setup.schema.names, target)
    widths = {name: one.latent.value for name, one in begun.items() if one.latent.value}
    net = _trained(_Exchange(session, widths), classes, rows, task)
    known = cell_shares(session, parts_of(task.setup)) if synth.shared else {}
    return Result(JointModel(net, known), len(classes), parts=tuple(map(_width, sent)))


def _begun(begun: Mapping[str, JointBegun], task: Task) -> tuple[list[Sent], Matrix]:
    """What is known of latents that are not sent yet, no row of them; and the classes, if any."""
    synth: Any = task.setup.synth
    parts, counts = parts_of(task.setup), dict[str, int]()
    target = condition_of(synth.target, parts)
    sent, one_hots = [], list[Matrix]()
    for name, reply in begun.items():
        checked = CheckedReply(name)
        counts[name] = checked.number("rows", reply.rows.value, least=1, most=MOST_ROWS)
        width = checked.number("latent", reply.latent.value, least=0, most=WIDEST)
        V = _classes(name, reply, parts[name], target, counts[name])
        none_yet, shape = np.zeros((0, width), np.float32), None if V is None else V[:0]
        sent.append(Sent(none_yet, ("",) * width, (), shape))
        one_hots += [] if V is None else [V]
    check_same_rows(counts)
    if not any(one.columns for one in sent):
        raise InputError("there is no column but the target; leave target out")
    return sent, one_hots[0] if one_hots else np.zeros((max(counts.values()), 0), np.float32)


def _trained(exchange: _Exchange, one_hots: Matrix, rows: SideBySide, task: Task) -> Any:
    """All steps, and what they leave of the coordinator's side; `one_hots` are the classes."""
    import jax
    import jax.numpy as jnp

    from siloweave.models import diffusion
    from siloweave.models.latent import RANGE, DenoiserSide, LatentDistribution, latent_layout

    synth: Any = task.setup.synth
    pace, n, latent = synth.diffusion, len(one_hots), rows.latent
    layout, label = latent_layout(latent, one_hots.shape[1])
    initial, key = split_key(fold_in(task.seed, "train", "model"))
    side = DenoiserSide(pace, ())
    state = side.start(diffusion.network(layout, pace, label, initial))
    classes = one_hots.argmax(1).astype(np.int32) if label else np.zeros(n, np.int32)
    slope: Any = None
    for step in range(pace.steps):
        z = jnp.asarray(exchange.forward(step, slope))
        labels = jnp.asarray(classes[batch_of(step, n, pace.batch, task.seed)])
        noise = jax.random.fold_in(key, step)
        at_back, loss = exchange.backward(step, side.forward(state, z, labels, noise))
        state, slope = side.turned(state, z, labels, noise, jnp.asarray(at_back))
        if step % _REPORTED == 0:
            share = step / pace.steps
            task.progress(f"step {step + 1:,} of {pace.steps:,}, loss {loss:.4g}", share)
    exchange.end(pace.steps, slope)
    shares = tuple(float(p) for p in one_hots.mean(0)) if label else ()
    ranges = ((-RANGE, RANGE),) * latent
    ddpm = diffusion.TabDDPMModel(state.average, layout, pace, label, shares, ranges)
    return LatentDistribution.unscaled(ddpm, rows.facts)
