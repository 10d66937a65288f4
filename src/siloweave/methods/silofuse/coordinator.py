"""SiloFuse: latent diffusion over parties that hold different columns of the same people.

Shankar, Brouwer, Hai & Chen 2024, "SiloFuse: cross-silo synthetic data generation with latent
tabular diffusion models" (ICDE), Algorithms 1 and 2. Every party codes its rows at home and sends
the latents once; the coordinator trains a diffusion on the latents side by side, and what it draws
is cut into the parties' parts, which they decode at home. With one party it is PointDiff, or with
autoencoders LatentDiff, whose code (models/coders.py, models/latent_law.py) this is.

**Guarantee** (none by default): the coordinator sees a code of every row, one real person each.
The paper's theorem says that an unknown encoder cannot be inverted for sure; it does not rule out
that almost all cells come back (see latent_insiders.py, which measures it). With
``privacy="latents"`` (dp, replace-one row, towards everyone, the other parties among them): each
party bounds its integer latent rows and adds discrete Gaussian noise before they leave, see
latent_noise.py. Assumed public: schema, settings, number and order of rows.

Where this departs from the paper:

* `coder` "points" (models/points.py) codes every column by itself, so latents do not depend on who
  holds it, and the diffusion is the same whatever the split: it is `PointDiff`. "autoencoders" are
  the paper's, widths divided equally among the parties.
* Latents travel in half precision. The classes of `target` are told, not coded, as LatentDiff's.

Latents of several parties as one table's: what SiloFuse and E2EDistr hear, checked and in order.

Shankar, Brouwer, Hai & Chen 2024, "SiloFuse" (ICDE), Algorithm 1, line 6: latents side by side.

**Guarantee**: none of its own; it reads what was sent.

A law of latents over parties, behind the interface of a generator; and what decodes its parts.

What SiloFuse and E2EDistr leave (Shankar et al. 2024, "SiloFuse", Algorithm 2): the coordinator's
diffusion, and at every party a coder.

**Guarantee**: none of its own; it reads no row.

The coordinator's side of E2EDistr, and the method as a user meets it.

Shankar, Brouwer, Hai & Chen 2024, "SiloFuse: cross-silo synthetic data generation with latent
tabular diffusion models" (ICDE), section 5.1. Messages and the party's side are in end_to_end.py.

**Guarantee**: none, see end_to_end.py.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

import msgspec
import numpy as np

from siloweave.algorithms.generated import Matrix
from siloweave.errors import InputError, WireError
from siloweave.federation.expected import MOST_ROWS, WHOLE, WIDEST, CheckedReply
from siloweave.federation.messages import Array, Released
from siloweave.federation.session import Session
from siloweave.methods.silofuse.messages import (
    Backward,
    BeginJoint,
    Code,
    CodeNoised,
    End,
    Forward,
    JointBegun,
    LatentNoise,
    Share,
)
from siloweave.methods.silofuse.party import (
    batch_of,
    declared_coder,
)
from siloweave.protocols.columns import ColumnsTask
from siloweave.protocols.networks import NetworkModel, jax_key, split_key, way_of
from siloweave.tables.bins import BINNED
from siloweave.tables.codes import options_of
from siloweave.tables.features import Features
from siloweave.tables.keys import Key, fold_in
from siloweave.tables.one_way import OneWay
from siloweave.tables.schema import Column, Schema

if TYPE_CHECKING:
    from siloweave.models.coders import RowCoder
    from siloweave.models.layout import SphereCodes
    from siloweave.models.settings import LatentSettings


@dataclass(frozen=True)
class SiloFusePlan:
    """What the coordinator trains, and how.

    Attributes:
        settings: Of the coder and the diffusion.
        target: A column that is told.
        half: Whether latents travel in half precision.
        shared: Whether synthetic columns are put together.
        noise: Bound and noise of latent rows; None sends them as they are.
    """

    settings: LatentSettings
    target: str | None
    half: bool
    shared: bool
    noise: LatentNoise | None = None


def silofuse(parties: Session, task: ColumnsTask, plan: SiloFusePlan) -> tuple[JointModel, int]:
    """Gather latents once, and train their law.

    Args:
        parties: Who holds the columns; one party alone is PointDiff or LatentDiff.
        task: Schema, seed, and where training is kept.
        plan: What is trained.

    Raises:
        WireError: A party sent what does not fit; the message names it.
    """
    sent = _noised(parties, task, plan) if plan.noise else _coded(parties, task, plan)
    V, latent, facts = side_by_side(sent, task.schema.names, plan.target)
    law = trained(V, latent, task, plan.settings, facts, spots_of(sent, facts["places"]))
    if plan.shared and plan.noise is None:
        parties.ask(Share())
    return JointModel(law), len(V)


def trained(
    V: Matrix,
    latent: int,
    task: ColumnsTask,
    settings: LatentSettings,
    facts: dict[str, Any],
    spots: SphereCodes = (),
) -> Any:
    """The law of latents; it reads no message and sends none."""
    from siloweave.models import latent as latents

    return latents.fit_latents(
        V,
        latent,
        settings.diffusion,
        scaled=settings.scaled,
        spots=spots,
        facts=facts,
        key=split_key(fold_in(fold_in(task.seed, "train"), "model"))[1],
        progress=task.progress,
        store=task.store,
    )


def _coded(parties: Session, task: ColumnsTask, plan: SiloFusePlan) -> Sent:
    settings = plan.settings
    request = Code(
        msgspec.json.encode(asdict(settings.autoencoder)),
        settings.numbers,
        len(parties.roster),
        plan.target,
        task.seed,
        plan.half,
        plan.shared,
    )
    replies = dict(zip(parties.roster, parties.ask(request), strict=True))
    latents: list[Matrix] = []
    columns, spots, classes, laws = [], [], None, list[str]()
    for name, reply in replies.items():
        said, own = CheckedReply(name), task.columns[name]
        latents.append(said.reals("latents", reply.latents.value, (None, None)))
        count = said.number("latents in a row", latents[-1].shape[1], most=WIDEST)
        columns.append(said.items("columns", reply.columns.value, count=count, among=("", *own)))
        check_all_told(name, columns[-1], [c for c in own if c != plan.target])
        spots.append(checked_spots(name, reply.spots.value, reply.columns.value))
        laws += law_of(name, reply, task.schema.select(own), plan.shared)
    check_same_rows({name: len(Z) for name, Z in zip(replies, latents, strict=True)})
    for i, (name, reply) in enumerate(replies.items()):  # now all agree on the number of rows
        mine = task.schema[plan.target] if plan.target in task.columns[name] else None
        told = classes_of(name, reply, mine, len(latents[0]))
        classes = classes if told is None else (i, told)
    return Sent(latents, columns, classes, laws, spots)


def _noised(parties: Session, task: ColumnsTask, plan: SiloFusePlan) -> Sent:
    assert plan.noise is not None
    per_bit = asdict(plan.settings.autoencoder)["per_bit"]
    replies = parties.ask(CodeNoised(per_bit, plan.noise))
    latents: list[Matrix] = []
    columns = []
    for name, reply in zip(parties.roster, replies, strict=True):
        coder = declared_coder(task.schema.select(task.columns[name]), per_bit)
        K = CheckedReply(name).array("latents", reply.latents.value, WHOLE, (None, coder.latent))
        latents.append((K * plan.noise.grid).astype(np.float32))
        columns.append(coder.columns)
    check_same_rows({name: len(Z) for name, Z in zip(parties.roster, latents, strict=True)})
    return Sent(latents, columns)


_OPTIONS = 2**16  # of a choice among latents, at most: a table of its points is made

_CLASSES = 256  # of a target of numbers, at most: with more it is no single choice


class Telling(Protocol):
    """What a reply may tell beside latents. Conforming: `Coded`, `Begun`."""

    @property
    def classes(self) -> tuple[Released[Array], ...]:
        """(rows,) of the target, at the party that holds it; empty elsewhere."""

    @property
    def options(self) -> tuple[Released[int], ...]:
        """How many classes there are, alike."""

    @property
    def one_way(self) -> tuple[Released[str], ...]:
        """How single columns are distributed, where they are put together."""


@dataclass(frozen=True)
class Sent:
    """Latents as they came.

    Attributes:
        latents: Every party's, in roster order.
        columns: Which column each stands for, alike.
        classes: One-hot classes of the target, and at whose place in the roster; None without.
        one_way: How single columns are distributed, as far as it was told.
        spots: Choices that are points among each party's latents; of nobody, or of all.
    """

    latents: Sequence[Matrix]
    columns: Sequence[tuple[str, ...]]
    classes: tuple[int, Matrix] | None = None
    one_way: Sequence[str] = ()
    spots: Sequence[SphereCodes] = ()


def one_hot(name: str, array: Array, options: int, rows: int) -> Matrix:
    """Classes as one-hot rows; raises WireError, naming the party, unless they fit."""
    codes = CheckedReply(name).array("classes", array, WHOLE, (rows,), least=0, most=options - 1)
    return np.asarray(np.eye(options, dtype=np.float32)[codes])


def classes_of(name: str, reply: Telling, target: Column | None, rows: int) -> Matrix | None:
    """The target's classes as one-hot rows, where a party holds it.

    Args:
        name: The party.
        reply: What it told.
        target: The target where the party holds it; None elsewhere, and nothing may be told.
        rows: Of all parties.

    Raises:
        WireError: They do not fit; names the party.
    """
    said, times = CheckedReply(name), 0 if target is None else 1
    said.items("lists of classes", reply.classes, count=times)
    said.items("numbers of options", reply.options, count=times)
    if target is None:
        return None
    most = _CLASSES if target.kind in BINNED else options_of(target)
    options = said.number("options", reply.options[0].value, least=1, most=most)
    return one_hot(name, reply.classes[0].value, options, rows)


def law_of(name: str, reply: Telling, schema: Schema, shared: bool) -> tuple[str, ...]:
    """How single columns of a party are distributed, as JSON; nothing where columns stay apart.

    Args:
        name: The party.
        reply: What it told.
        schema: Of its columns.
        shared: Whether columns are put together.

    Raises:
        WireError: It tells of other columns, of shares that they cannot have, or of some where
            nothing is shared; names the party.
    """
    said = CheckedReply(name)
    for law in said.items("laws of columns", reply.one_way, count=1 if shared else 0):
        said.json("one_way", law.value, lambda data: OneWay.from_json(data).check(schema))
    return tuple(law.value for law in reply.one_way)


def check_same_rows(counts: Mapping[str, int]) -> None:
    """Refuse parties that do not have the same rows, naming two of them; one of them is wrong."""
    first = next(iter(counts), "")
    for name in counts:
        if counts[name] != counts[first]:
            raise WireError(
                f"parties {first!r} and {name!r} sent {counts[first]:,} and {counts[name]:,} rows, "
                "and must hold the same people. Nothing was made of it: find out what runs at "
                "these parties, and start a new run"
            )


def check_all_told(name: str, columns: tuple[str, ...], own: Sequence[str]) -> None:
    """Refuse latents that leave a party's columns out; names the party.

    Args:
        name: The party.
        columns: Which column each latent stands for; "" where they stand for all.
        own: Columns that it codes.
    """
    missing = [one for one in own if one not in columns] if "" not in columns else []
    if missing:
        raise CheckedReply(name).wrong(f"no latents of {missing[0]!r}", "all of its columns")


def spots_of(sent: Sent, places: Sequence[int]) -> SphereCodes:
    """The parties' spots where `side_by_side` put their latents; none if nobody named any."""
    new = {place: i for i, place in enumerate(places)}
    found, start = [], 0
    for i, (Z, spots) in enumerate(zip(sent.latents, sent.spots, strict=False)):
        found += [s._replace(start=new[start + s.start]) for s in spots]
        start += Z.shape[1]
        if sent.classes is not None and sent.classes[0] == i:
            start += sent.classes[1].shape[1]
    return tuple(sorted(found))


def side_by_side(
    sent: Sent, names: Sequence[str], target: str | None
) -> tuple[Matrix, int, dict[str, Any]]:
    """Latents in the schema's order where each stands for a column, classes behind them.

    Args:
        sent: What came.
        names: Columns in the schema's order.
        target: The column that was told.

    Returns:
        The rows, how many entries of a row are latents, and the facts that `JointModel` needs:
        `places` of these entries in the parties' parts side by side, `columns`, `label`, and
        `one_way` as it was told.
    """
    columns = [column for part in sent.columns for column in part]
    places: list[int] = []
    start = 0
    classes: list[int] = []
    for i, Z in enumerate(sent.latents):
        places += range(start, start + Z.shape[1])
        start += Z.shape[1]
        if sent.classes is not None and sent.classes[0] == i:
            classes = list(range(start, start + sent.classes[1].shape[1]))
            start += len(classes)
    order = list(range(len(columns)))
    if all(columns):  # the same order, and so the same law, however columns are split
        rank = {name: i for i, name in enumerate(names)}
        order = sorted(order, key=lambda j: rank[columns[j]])  # stable within a column
    V = np.concatenate(sent.latents, axis=1)[:, order]
    if sent.classes is not None:
        V = np.concatenate([V, sent.classes[1]], axis=1)
    facts = {
        "places": [places[j] for j in order] + classes,
        "columns": [columns[j] for j in order],
        "label": target if classes else None,
        "one_way": list(sent.one_way),
    }
    return V, len(columns), facts


def checked_spots(
    name: str, told: Sequence[tuple[int, int, int]], columns: tuple[str, ...]
) -> SphereCodes:
    """A party's spots; raises WireError, naming it, where one does not fit its latents."""
    from siloweave.models.layout import SphereCode

    free = 0
    for first, dimensions, options in told:
        column = set(columns[first : first + dimensions])
        fits = free <= first <= len(columns) - dimensions and 1 <= dimensions < max(options, 2)
        if not (fits and options <= _OPTIONS and len(column) == 1 and "" not in column):
            raise WireError(
                f"party {name!r} says that {dimensions} latents from {first} on are a choice among "
                f"{options}, which does not fit the {len(columns)} latents that it names"
            )
        free = first + dimensions
    return tuple(SphereCode(*spot) for spot in told)


@dataclass(frozen=True)
class JointModel(NetworkModel):
    """A `LatentDistribution` whose facts say where its entries stand in the parties' parts."""

    @property
    def one_way(self) -> OneWay | None:
        """How single columns are distributed, all parties' together; None where it is not known."""
        told = [OneWay.from_json(text) for text in self.net.facts["one_way"]]
        return OneWay(tuple(one for part in told for one in part.cells)) if told else None

    @property
    def takes(self) -> frozenset[str]:
        """Columns that it can be asked for: the label; all where points code the columns."""
        label = {self.net.facts["label"]} - {None}
        columns = set(self.net.facts["columns"])
        return frozenset(label if "" in columns else label | columns)

    def shares(self, column: str) -> tuple[float, ...] | None:
        """How frequent each option of the label was; nothing of other columns."""
        label = self.net.facts["label"]
        return tuple(self.net.diffusion.label_law) if label and column == label else None

    def sample(self, n: int, *, key: Key, given: Matrix | None = None) -> Matrix:
        """Draw the parties' parts, side by side in roster order."""
        places, latent = self.net.facts["places"], self.net.latent
        told = None if given is None else given[:, places]
        way = {} if told is None else way_of(told[:, :latent])
        V = np.empty((n, len(places)), np.float32)
        V[:, places] = self.net.sample(n, key=split_key(key)[0], given=told, **way)
        return V


def load_joint(path: Path) -> JointModel:
    """Read a model that was saved."""
    from siloweave.models.latent import LatentDistribution

    return JointModel(LatentDistribution.load(path))


@dataclass(frozen=True)
class CoderHome:
    """A party that keeps a coder.

    Attributes:
        features: Vectors of its columns to table and back.
        rows: The coder.
    """

    features: Features
    rows: RowCoder

    @classmethod
    def of(cls, features: Features, coder: bytes | None) -> CoderHome:
        """Read what `keep_home` remembered."""
        from siloweave.models.coders import RowCoder

        assert coder is not None
        return cls(features, RowCoder.from_bytes(coder))

    @property
    def width(self) -> int:
        """Latents, and the options of the target where it is this party's."""
        return self.rows.width

    def decode(self, part: Matrix, *, key: Key) -> Matrix:
        """Feature vectors of its columns."""
        return self.rows.decode(part, key=jax_key(key))

    def encode(self, X: Matrix) -> Matrix:
        """Its part of vectors, NaN where rows are free."""
        return self.rows.told(X)

    def coder(self) -> bytes:
        """What `of` reads again."""
        return self.rows.to_bytes()


_TOLD = 50  # steps between two reports

_LOWER = "lower diffusion.learning_rate in settings, or the coder's"


@dataclass
class _Loop:
    """The coordinator between steps."""

    parties: Session
    widths: dict[str, int]

    def scattered(self, Z: Any) -> dict[str, Array]:
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
        slopes = {} if slope is None else self.scattered(slope)
        asked = {name: Forward(step, slopes.get(name)) for name in self.widths}
        replies = zip(asked, self.parties.ask_each(asked), strict=True)
        parts: list[Matrix] = []
        for name, reply in replies:
            rows = len(parts[0]) if parts else None
            parts.append(self._fits(name, "latents", reply.latents.value, rows))
        return np.concatenate(parts, 1)

    def backward(self, step: int, back: Any) -> tuple[Matrix, float]:
        """Slopes at denoised latents, and the loss."""
        parts = self.scattered(back)
        asked = {name: Backward(step, part) for name, part in parts.items()}
        replies = self.parties.ask_each(asked)
        slopes, loss = [], 0.0
        for name, reply in zip(asked, replies, strict=True):
            slopes.append(self._fits(name, "slope", reply.slope.value, len(back)))
            loss += CheckedReply(name).number("loss", reply.loss.value)
        return np.concatenate(slopes, 1), loss

    def _fits(self, name: str, field: str, array: Array, rows: int | None) -> Matrix:
        wanted = f"finite (where training diverges it is not: {_LOWER})"
        return CheckedReply(name).reals(field, array, (rows, self.widths[name]), finite=wanted)

    def end(self, step: int, slope: Any) -> None:
        """Take the last step, and have every coder kept."""
        slopes, nothing = self.scattered(slope), Array.of(np.zeros((0, 0)), "<f4")
        self.parties.ask_each({n: End(step, slopes.get(n, nothing)) for n in self.parties.roster})


def end_to_end(
    parties: Session, task: ColumnsTask, settings: LatentSettings, target: str | None, shared: bool
) -> tuple[JointModel, int]:
    """Train everything as one.

    Args:
        parties: Who holds the columns.
        task: Schema and seed.
        settings: Of coders and diffusion; steps, batch and rates are the diffusion's.
        target: A column that is told.
        shared: Whether synthetic columns are put together.

    Raises:
        WireError: A party sent what does not fit; the message names it.
    """
    text = msgspec.json.encode(asdict(settings))
    begun = parties.ask(BeginJoint(text, len(parties.roster), target, task.seed, shared))
    replies = dict(zip(parties.roster, begun, strict=True))
    sent, told = _sent(replies, task, target, shared)
    _, latent, facts = side_by_side(sent, task.schema.names, target)
    widths = {name: one.latent.value for name, one in replies.items() if one.latent.value}
    law = _trained(_Loop(parties, widths), told, latent, task, settings, facts)
    if shared:
        parties.ask(Share())
    return JointModel(law), len(told)


def _sent(
    begun: Mapping[str, JointBegun], task: ColumnsTask, target: str | None, shared: bool
) -> tuple[Sent, Matrix]:
    """What is known of latents that are not sent yet, no row of them; and the classes, if any."""
    first, rows, latents, laws = next(iter(begun)), MOST_ROWS, list[Matrix](), list[str]()
    for name, reply in begun.items():
        said = CheckedReply(name)
        told = said.number("rows", reply.rows.value, least=1, most=MOST_ROWS)
        rows = told if name == first else rows
        if told != rows:
            raise said.wrong(f"rows = {told:,}", f"{rows:,}, as many as {first!r} has")
        width = said.number("latent", reply.latent.value, least=0, most=WIDEST)
        latents.append(np.zeros((0, width), np.float32))
        laws += law_of(name, reply, task.schema.select(task.columns[name]), shared)
    if not any(Z.shape[1] for Z in latents):
        raise InputError("there is no column but the target; leave target out")
    classes, found = None, np.zeros((rows, 0), np.float32)
    for i, (name, reply) in enumerate(begun.items()):  # now all agree on the number of rows
        mine = task.schema[target] if target in task.columns[name] else None
        V = classes_of(name, reply, mine, rows)
        if V is not None:
            classes, found = (i, V[:0]), V
    return Sent(latents, [("",) * Z.shape[1] for Z in latents], classes, laws), found


def _trained(
    loop: _Loop, told: Matrix, latent: int, task: ColumnsTask, settings: LatentSettings, facts: Any
) -> Any:
    """All steps, and what they leave of the coordinator's side; `told` are classes, one-hot."""
    import jax
    import jax.numpy as jnp

    from siloweave.models import diffusion
    from siloweave.models.latent import (
        RANGE,
        DenoiserSide,
        LatentDistribution,
        latent_blocks,
        told_block,
    )
    from siloweave.models.layout import Layout

    pace, rows = settings.diffusion, len(told)
    layout = Layout(latent_blocks(latent, told.shape[1]))
    label = told_block(layout, told.shape[1])
    born, key = split_key(fold_in(fold_in(task.seed, "train"), "model"))
    side = DenoiserSide(pace, ())
    state = side.start(diffusion.network(layout, pace, label, born))
    classes = told.argmax(1).astype(np.int32) if label else np.zeros(rows, np.int32)
    slope: Any = None
    for step in range(pace.steps):
        z = jnp.asarray(loop.forward(step, slope))
        labels = jnp.asarray(classes[batch_of(step, rows, pace.batch, task.seed)])
        noise = jax.random.fold_in(key, step)
        at_back, loss = loop.backward(step, side.forward(state, z, labels, noise))
        state, slope = side.turned(state, z, labels, noise, jnp.asarray(at_back))
        if step % _TOLD == 0:
            share = step / pace.steps
            task.progress(f"step {step + 1:,} of {pace.steps:,}, loss {loss:.4g}", share)
    loop.end(pace.steps, slope)
    law = tuple(float(p) for p in told.mean(0)) if label else ()
    ranges = ((-RANGE, RANGE),) * latent
    ddpm = diffusion.TabDDPMModel(state.average, layout, pace, label, law, ranges)
    return LatentDistribution(
        ddpm, np.zeros(latent, np.float32), np.ones(latent, np.float32), facts
    )
