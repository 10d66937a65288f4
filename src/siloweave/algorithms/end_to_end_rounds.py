"""The coordinator's side of E2EDistr, and the method as a user meets it.

Shankar, Brouwer, Hai & Chen 2024, "SiloFuse: cross-silo synthetic data generation with latent
tabular diffusion models" (ICDE), section 5.1. Messages and the party's side are in end_to_end.py.

**Guarantee**: none, see end_to_end.py.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any, ClassVar

import msgspec
import numpy as np

from siloweave.algorithms.columns_split import ColumnsTask
from siloweave.algorithms.diffusions import E2E
from siloweave.algorithms.end_to_end import (
    PARTY,
    Backward,
    BeginJoint,
    End,
    Forward,
    JointBegun,
    batch_of,
)
from siloweave.algorithms.generated import Matrix, Model
from siloweave.algorithms.joint import JointModel, split_key
from siloweave.algorithms.latent_methods import PAPER, LatentColumns
from siloweave.algorithms.outcome import Info
from siloweave.algorithms.sent_latents import Sent, classes_of, law_of, side_by_side
from siloweave.algorithms.silofuse import Share
from siloweave.algorithms.visibility import (
    COORDINATOR,
    NOTHING,
    OTHERS,
    View,
    Views,
    own_columns,
)
from siloweave.errors import InputError
from siloweave.federation.expected import MOST_ROWS, WIDEST, CheckedReply
from siloweave.federation.messages import Array
from siloweave.federation.session import Session
from siloweave.federation.site import Handlers
from siloweave.tables.keys import fold_in
from siloweave.tables.schema import Schema

if TYPE_CHECKING:
    from siloweave.models.settings import LatentSettings

__all__ = ["E2EDistr", "end_to_end"]

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
        latent_layout,
    )

    pace, rows = settings.diffusion, len(told)
    layout, label = latent_layout(latent, told.shape[1])
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
    return LatentDistribution.unscaled(ddpm, facts)


@dataclass(frozen=True)
class E2EDistr(LatentColumns):
    """Encoders, denoiser and decoders trained as one, over the wire at every step: a baseline.

    Args:
        target: A column whose classes are told to the denoiser; its party sends them in the clear.
        shared: Whether synthetic columns are put together.
        settings: As of `LatentDiff`; steps, batch and rates are those of ``diffusion``, and widths
            are those of all parties together.
    """

    home_share: ClassVar[float] = 0.02
    transcribed: ClassVar[bool] = False
    info: ClassVar[Info] = Info(
        "e2e_distr",
        "E2EDistr",
        "latent diffusion",
        "columns",
        "curator",
        "none",
        PAPER,
        "Nothing: the coordinator is sent codes and gradients of every row, over and over.",
    )

    @property
    def visibility(self) -> Views:
        """Who sees what of a run at these settings."""
        why = "nothing: codes may be inverted"
        sent = f"the number of rows, and codes and gradients of rows in every step{self.besides}"
        begun, steps = (
            ("JointBegun.rows", "JointBegun.latent"),
            ("Activations.latents", "Slopes.slope"),
        )
        heard = (*begun, *steps, "Slopes.loss", *self.besides_in("JointBegun"))
        told = "in every step denoised codes of their own rows and gradients, which follow all rows"
        return (
            own_columns(self.target),
            View(COORDINATOR, sent, why, heard),
            View(OTHERS, told, NOTHING, ("Forward", "Backward", "End")),
            self.readers(why),
        )

    def chosen(self) -> dict[str, Any]:
        """All settings, as plain values; raises InputError if one is wrong or unknown."""
        return asdict(self._made())

    def _made(self) -> Any:
        made = self.made(E2E().preset())
        if not made.joint:
            raise InputError("settings.joint=False is SiloFuse; leave it out")
        return made

    def moves(self, schema: Schema, rows: int, parties: int) -> tuple[int, int]:
        """Questions and bytes of a party: four matrices of latents at every step."""
        pace = self.chosen()["diffusion"]
        steps, batch = pace["steps"], min(pace["batch"], rows)
        return 2 * steps + 4, 16 * steps * batch * self.latents(schema) // parties

    def handlers(self) -> Handlers:
        """A party's side."""
        return PARTY

    def coordinate(self, parties: Session, task: ColumnsTask) -> tuple[Model, int]:
        """See end_to_end.py."""
        return end_to_end(parties, task, self._made(), self.told(task), self.shared)
