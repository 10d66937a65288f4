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
from siloweave.methods.silofuse import messages
from siloweave.methods.silofuse.party import batch_of
from siloweave.methods.silofuse.settings import E2EDistrSettings, SiloFuseSettings
from siloweave.privacy.budget import gaussian_sigma, rho_for
from siloweave.protocols import networks
from siloweave.protocols.columns import (
    cell_shares,
    check_same_rows,
    condition_of,
    parts_of,
)
from siloweave.tables.arrays import Floats, Matrix
from siloweave.tables.cells import options_of
from siloweave.tables.keys import Key, fold_in
from siloweave.tables.schema import Schema

if TYPE_CHECKING:
    from siloweave.models.coders import RowCoder
    from siloweave.tables.features import SphereCodes

# Of a choice among latents, at most: a table of its sphere codes is made.
_OPTIONS = 2**16
_CLASSES = 256  # of a target of numbers, at most: with more it is no single choice
_REPORTED = 50  # steps between two reports
_LOWER = "lower diffusion.learning_rate in settings, or the coder's"


# SiloFuse


def coordinate(session: Session, task: Task) -> Result:
    """Gather latents once, and train their distribution (Algorithm 1).

    Raises:
        WireError: Naming the party, where it sent what does not fit.
    """
    synth = task.setup.settings_as(SiloFuseSettings)
    parts = parts_of(task.setup)
    is_noised = synth.privacy == "latents"

    # Step 2: every party sends the latents of all its rows, once; Z = [Z_1 || ... || Z_M].
    gather = _noised if is_noised else _coded
    latent_parts = gather(session, task, parts)
    target = condition_of(synth.target, parts)
    rows = side_by_side(latent_parts, task.setup.schema.names, target)

    # Step 3: the diffusion learns them here; no message travels.
    net = trained(rows, task)

    # Noise protects latents: exact shares of cells would undo it.
    shares = {}
    if synth.shared and not is_noised:
        shares = cell_shares(session, parts)
    widths = tuple(_width(part) for part in latent_parts)
    return Result(JointModel(net, shares), len(rows.V), parts=widths)


def _width(part: Sent) -> int:
    """Count the entries of a party's part of the vectors."""
    latents = int(part.latents.shape[1])
    if part.classes is None:
        return latents
    return latents + int(part.classes.shape[1])


def trained(rows: SideBySide, task: Task) -> Any:
    """Train the distribution of latents, without any message."""
    from siloweave.models import latent

    synth = task.setup.settings_as(SiloFuseSettings)
    settings = synth.latent
    _, key = networks.split_key(fold_in(task.seed, "train", "model"))
    return latent.fit_latents(
        rows.V, rows.latent, settings.diffusion, scaled=settings.scaled, sphere_codes=rows.codes,
        facts=rows.facts, key=key, progress=task.progress, store=task.store,
    )  # fmt: skip


def _coded(session: Session, task: Task, parts: Mapping[str, Schema]) -> list[Sent]:
    """Ask every party for its latents without noise, and check them."""
    synth = task.setup.settings_as(SiloFuseSettings)
    target = condition_of(synth.target, parts)
    latent_parts = {}
    replies = session.ask(messages.Code(task.seed))
    for name, reply in zip(session.roster, replies, strict=True):
        checked = CheckedReply(name)
        party_columns = parts[name].names
        Z = checked.reals("latents", reply.latents.value, (None, None))
        count = checked.number("latents in a row", Z.shape[1], most=WIDEST)

        # "" stands for latents in which an autoencoder mixes all columns.
        among = ("", *party_columns)
        columns = checked.items(
            "columns", reply.columns.value, count=count, among=among
        )
        if "" not in columns:
            missing = [c for c in party_columns if c != target and c not in columns]
            if missing:
                raise checked.wrong(
                    f"no latents of {missing[0]!r}", "all of its columns"
                )

        codes = checked_codes(name, reply.sphere_codes.value, columns)
        classes = _classes(name, reply, parts[name], target, len(Z))
        latent_parts[name] = Sent(Z, columns, codes, classes)
    check_same_rows({name: len(part.latents) for name, part in latent_parts.items()})
    return list(latent_parts.values())


def _noised(session: Session, task: Task, parts: Mapping[str, Schema]) -> list[Sent]:
    """Ask every party for its latents with noise, and check them.

    It is equal at all parties, and the least with which they together keep to the budget.
    """
    synth = task.setup.settings_as(SiloFuseSettings)
    distance = messages.released_together(1.0, parts, synth).sensitivity
    sigma = gaussian_sigma(rho_for(task.setup.budget), distance)
    latent_parts = {}
    replies = session.ask(messages.CodeNoised(sigma))
    for name, reply in zip(session.roster, replies, strict=True):
        coder = messages.declared_coder(parts[name], synth)
        shape = (None, coder.latent)
        K = CheckedReply(name).array("latents", reply.latents.value, WHOLE, shape)
        latent_parts[name] = Sent((K * messages.GRID).astype(np.float32), coder.columns)
    check_same_rows({name: len(part.latents) for name, part in latent_parts.items()})
    return list(latent_parts.values())


# What parties sent, checked


@dataclass(frozen=True)
class Sent:
    """The latents of one party's rows, and the facts that came with them."""

    latents: Matrix  # (rows, latents)
    columns: tuple[str, ...]  # which column each stands for; "" where they are mixed
    codes: SphereCodes = ()  # choices that are sphere codes among them
    # One-hot, of the target, (rows, options), at its holder.
    classes: Matrix | None = None


def _classes(
    name: str,
    reply: messages.Coded | messages.JointBegun,
    schema: Schema,
    target: str | None,
    rows: int,
) -> Matrix | None:
    """Read the classes that a party sent beside its latents, if it holds the target; else None.

    Raises:
        WireError: Naming the party; it sent more or less than the study says, or what its columns
            cannot have.
    """
    checked = CheckedReply(name)
    has_target = target in schema.names
    checked.items("lists of classes", reply.classes, count=int(has_target))
    checked.items("numbers of options", reply.options, count=int(has_target))
    if target is None or not has_target:
        return None
    column = schema[target]
    most = _CLASSES if column.is_binned else options_of(column)
    options = checked.number("options", reply.options[0].value, least=1, most=most)
    return one_hot(name, reply.classes[0].value, options, rows)


def one_hot(name: str, array: Array, options: int, rows: int) -> Matrix:
    """Turn a party's classes into one-hot rows; WireError, which names it, unless they fit."""
    codes = CheckedReply(name).array(
        "classes", array, WHOLE, (rows,), least=0, most=options - 1
    )
    return np.asarray(np.eye(options, dtype=np.float32)[codes])


def checked_codes(
    name: str, triples: Sequence[tuple[int, int, int]], columns: tuple[str, ...]
) -> SphereCodes:
    """Check a party's sphere codes, each as (first latent, dimensions, options).

    Raises:
        WireError: Naming the party; one does not fit its latents.
    """
    from siloweave.tables.features import SphereCode

    next_free = 0
    for first, dimensions, options in triples:
        # Codes come in order, and share no latent.
        is_inside = next_free <= first <= len(columns) - dimensions
        # A table of so many codes is made, and none is wider than a simplex.
        has_size = 1 <= dimensions < max(options, 2) and options <= _OPTIONS
        code_columns = set(columns[first : first + dimensions])
        is_of_one_column = len(code_columns) == 1 and "" not in code_columns
        if not (is_inside and has_size and is_of_one_column):
            raise WireError(
                f"party {name!r} says that {dimensions} latents from {first} on are a choice among "
                f"{options}, which does not fit the {len(columns)} latents that it names"
            )
        next_free = first + dimensions
    return tuple(SphereCode(*triple) for triple in triples)


@dataclass(frozen=True)
class SideBySide:
    """The vectors of all parties' rows side by side, as one table.

    Where each latent is of one column, columns have the schema's order.

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


def side_by_side(
    parts: Sequence[Sent], names: Sequence[str], target: str | None
) -> SideBySide:
    """Join what the parties sent, in roster order (Algorithm 1, line 6).

    `names` are the columns in the schema's order, and `target` the one whose classes were sent.
    """
    # Where each entry stands when the parties' parts, classes included, lie side by side.
    places: list[int] = []
    label_places: list[int] = []
    codes = []
    start = 0
    for part in parts:
        codes += [code._replace(start=start + code.start) for code in part.codes]
        width = part.latents.shape[1]
        places += range(start, start + width)
        start += width
        if part.classes is not None:
            label_places = list(range(start, start + part.classes.shape[1]))
            start += len(label_places)

    columns: list[str] = []
    for part in parts:
        columns += part.columns
    order = list(range(len(columns)))
    # The same order, and so the same distribution, however columns are split among parties.
    # Sorting is stable, so latents of a column stay in theirs.
    if all(columns):
        rank = {name: i for i, name in enumerate(names)}
        order.sort(key=lambda j: rank[columns[j]])

    Z = np.concatenate([part.latents for part in parts], axis=1)[:, order]
    classes = [part.classes for part in parts if part.classes is not None]
    V = np.concatenate([Z, *classes], axis=1)
    new_start = {places[j]: i for i, j in enumerate(order)}
    moved_codes = sorted(code._replace(start=new_start[code.start]) for code in codes)
    facts = {
        "places": [places[j] for j in order] + label_places,
        "columns": [columns[j] for j in order],
        "label": target if label_places else None,
    }
    return SideBySide(V, len(columns), tuple(moved_codes), facts)


# What a fit draws with


@dataclass(frozen=True)
class JointModel(networks.NetworkModel):
    """A `LatentDistribution` with the places of its entries in the parties' parts."""

    # In the run itself, if known.
    cell_shares: Mapping[str, Floats] = field(default_factory=dict)

    @property
    def takes(self) -> frozenset[str]:
        """The columns that it can be conditioned on: the label, or all with sphere codes."""
        label = {self.net.facts["label"]} - {None}
        columns = set(self.net.facts["columns"])
        # Latents in which an autoencoder mixes all columns are of no column.
        if "" in columns:
            return frozenset(label)
        return frozenset(label | columns)

    def shares(self, column: str) -> tuple[float, ...] | None:
        """Return how frequent each option of the label was; None for other columns."""
        label = self.net.facts["label"]
        if not label or column != label:
            return None
        return tuple(self.net.diffusion.label_shares)

    def sample(self, n: int, *, key: Key, given: Matrix | None = None) -> Matrix:
        """Draw the parties' parts of rows, side by side in roster order."""
        places = self.net.facts["places"]
        condition = None
        sampling = {}
        if given is not None:
            condition = given[:, places]
            # Latents that are kept in place need several walks; a label alone does not.
            sampling = networks.way_of(condition[:, : self.net.latent])

        # Algorithm 2: denoise, then put every entry where its party's part has it.
        V = np.empty((n, len(places)), np.float32)
        V[:, places] = self.net.sample(
            n, key=networks.split_key(key)[0], given=condition, **sampling
        )
        return V

    @classmethod
    def load(cls, path: Path) -> JointModel:
        """Read a model from its file."""
        from siloweave.models import latent

        return cls(latent.LatentDistribution.load(path))


def load_coder(path: Path) -> RowCoder:
    """Read a party's coder from its file."""
    from siloweave.models.coders import RowCoder

    return RowCoder.load(path)


# E2EDistr


@dataclass(frozen=True)
class _Exchange:
    """The matrices of latents that cross the wire in a step, cut at the parties' parts."""

    session: Session  # with the parties
    widths: Mapping[str, int]  # latents of every party that has something to train

    def cut(self, Z: Any) -> dict[str, Array]:
        """Cut a matrix into the parties' parts; raises InputError where training diverged."""
        Z = np.asarray(Z)
        if not np.isfinite(Z).all():
            raise InputError(f"training diverged: {_LOWER}")
        parts = {}
        start = 0
        for name, width in self.widths.items():
            parts[name] = Array.of(Z[:, start : start + width], "<f4")
            start += width
        return parts

    def forward(self, step: int, slope: Any) -> Matrix:
        """Take the step before along a slope (None at first), and ask for a batch's latents."""
        slopes = {} if slope is None else self.cut(slope)
        requests = {
            name: messages.Forward(step, slopes.get(name)) for name in self.widths
        }
        parts: list[Matrix] = []
        for name, reply in zip(requests, self.session.ask_each(requests), strict=True):
            # The first party's number of rows is everyone's.
            rows = len(parts[0]) if parts else None
            parts.append(self._matrix(name, "latents", reply.latents.value, rows))
        return np.concatenate(parts, 1)

    def backward(self, step: int, denoised: Any) -> tuple[Matrix, float]:
        """Send denoised latents; return the slopes at these, and the loss of all parties."""
        requests = {
            name: messages.Backward(step, part)
            for name, part in self.cut(denoised).items()
        }
        slopes = []
        loss = 0.0
        for name, reply in zip(requests, self.session.ask_each(requests), strict=True):
            slopes.append(self._matrix(name, "slope", reply.slope.value, len(denoised)))
            loss += CheckedReply(name).number("loss", reply.loss.value)
        return np.concatenate(slopes, 1), loss

    def _matrix(self, name: str, field: str, array: Array, rows: int | None) -> Matrix:
        """Check a party's matrix for a batch, and return it."""
        wanted = f"finite (where training diverges it is not: {_LOWER})"
        return CheckedReply(name).reals(
            field, array, (rows, self.widths[name]), finite=wanted
        )

    def end(self, step: int, slope: Any) -> None:
        """Take the last step, and have every party store its coder."""
        slopes = self.cut(slope)
        # A party that trains nothing stores its decoder of the target.
        no_slope = Array.of(np.zeros((0, 0)), "<f4")
        roster = self.session.roster
        self.session.ask_each(
            {name: messages.End(step, slopes.get(name, no_slope)) for name in roster}
        )


def coordinate_steps(session: Session, task: Task) -> Result:
    """Train encoders, denoiser and decoders as one network.

    Raises:
        WireError: Naming the party, where it sent what does not fit.
    """
    synth = task.setup.settings_as(E2EDistrSettings)
    parts = parts_of(task.setup)
    begun = session.ask(messages.BeginJoint(task.seed))
    replies = dict(zip(session.roster, begun, strict=True))
    empty_parts, classes = _begun(replies, task)
    target = condition_of(synth.target, parts)
    rows = side_by_side(empty_parts, task.setup.schema.names, target)

    # A party that holds the target alone has nothing to train, and is asked for nothing.
    widths = {
        name: reply.latent.value
        for name, reply in replies.items()
        if reply.latent.value
    }
    net = _trained(_Exchange(session, widths), classes, rows, task)
    shares = cell_shares(session, parts) if synth.shared else {}
    part_widths = tuple(_width(part) for part in empty_parts)
    return Result(JointModel(net, shares), len(classes), parts=part_widths)


def _begun(
    replies: Mapping[str, messages.JointBegun], task: Task
) -> tuple[list[Sent], Matrix]:
    """Ask the parties to begin, and check their facts.

    Returns the widths of what they will send, as parts without a row, and the classes of all rows:
    (rows, options), without options where the study has no target.
    """
    synth = task.setup.settings_as(E2EDistrSettings)
    schemas = parts_of(task.setup)
    target = condition_of(synth.target, schemas)
    rows_of_party: dict[str, int] = {}
    empty_parts = []
    target_classes: Matrix | None = None
    for name, reply in replies.items():
        checked = CheckedReply(name)
        n = checked.number("rows", reply.rows.value, least=1, most=MOST_ROWS)
        width = checked.number("latent", reply.latent.value, least=0, most=WIDEST)
        classes = _classes(name, reply, schemas[name], target, n)
        no_classes = None
        if classes is not None:
            target_classes = classes
            no_classes = classes[:0]
        no_latents = np.zeros((0, width), np.float32)
        rows_of_party[name] = n
        empty_parts.append(Sent(no_latents, ("",) * width, (), no_classes))

    check_same_rows(rows_of_party)
    if not any(part.columns for part in empty_parts):
        raise InputError("there is no column but the target; leave target out")
    if target_classes is None:
        target_classes = np.zeros((max(rows_of_party.values()), 0), np.float32)
    return empty_parts, target_classes


def _trained(
    exchange: _Exchange, one_hots: Matrix, rows: SideBySide, task: Task
) -> Any:
    """Take all steps, and return the distribution of latents; `one_hots` are the classes."""
    import jax
    import jax.numpy as jnp

    from siloweave.models import diffusion, latent

    synth = task.setup.settings_as(E2EDistrSettings)
    settings = synth.diffusion
    n = len(one_hots)
    layout, label = latent.latent_layout(rows.latent, one_hots.shape[1])
    initial, key = networks.split_key(fold_in(task.seed, "train", "model"))
    side = latent.DenoiserSide(settings, ())
    state = side.start(diffusion.network(layout, settings, label, initial))

    classes = np.zeros(n, np.int32)
    shares: tuple[float, ...] = ()
    if label:
        classes = one_hots.argmax(1).astype(np.int32)
        shares = tuple(float(share) for share in one_hots.mean(0))

    slope: Any = None
    for step in range(settings.steps):
        # Encoders code a batch, the denoiser answers, decoders tell the slope of the loss; back
        # through the denoiser it becomes the encoders' slope, which the next question brings.
        z = jnp.asarray(exchange.forward(step, slope))
        labels = jnp.asarray(classes[batch_of(step, n, settings.batch, task.seed)])
        noise_key = jax.random.fold_in(key, step)
        denoised = side.forward(state, z, labels, noise_key)
        denoised_slope, loss = exchange.backward(step, denoised)
        state, slope = side.turned(
            state, z, labels, noise_key, jnp.asarray(denoised_slope)
        )
        if step % _REPORTED == 0:
            progress = f"step {step + 1:,} of {settings.steps:,}, loss {loss:.4g}"
            task.progress(progress, step / settings.steps)
    exchange.end(settings.steps, slope)

    ranges = ((-latent.RANGE, latent.RANGE),) * rows.latent
    ddpm = diffusion.TabDDPMModel(
        state.average, layout, settings, label, shares, ranges
    )
    return latent.LatentDistribution.unscaled(ddpm, rows.facts)
