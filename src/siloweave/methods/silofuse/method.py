"""SiloFuse as a user meets it.

Shankar, Brouwer, Hai & Chen 2024, "SiloFuse: cross-silo synthetic data generation with latent
tabular diffusion models" (ICDE).

**Guarantee**: that of silofuse.py: none by default, dp with ``privacy="latents"``.

The coordinator's side of E2EDistr, and the method as a user meets it.

Shankar, Brouwer, Hai & Chen 2024, "SiloFuse: cross-silo synthetic data generation with latent
tabular diffusion models" (ICDE), section 5.1. Messages and the party's side are in end_to_end.py.

**Guarantee**: none, see end_to_end.py.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from math import isfinite
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar

import msgspec

from siloweave.core.fit import Model
from siloweave.core.method import (
    COORDINATOR,
    NOISE,
    NOTHING,
    OTHERS,
    Info,
    View,
    Views,
    own_columns,
)
from siloweave.core.run import merged, settings_of
from siloweave.errors import BudgetError, InputError, number
from siloweave.federation.session import Session
from siloweave.federation.site import Handlers
from siloweave.methods.central.method import E2E
from siloweave.methods.silofuse.coordinator import (
    CoderHome,
    SiloFusePlan,
    end_to_end,
    load_joint,
    silofuse,
)
from siloweave.methods.silofuse.messages import (
    LatentNoise,
)
from siloweave.methods.silofuse.party import (
    SILOFUSE_HANDLERS,
    require_replacing,
)
from siloweave.privacy.budget import Budget
from siloweave.protocols.columns import ColumnsSplit, ColumnsTask, Home
from siloweave.tables.features import Features
from siloweave.tables.schema import Schema

if TYPE_CHECKING:
    pass


PAPER = (
    "Shankar, Brouwer, Hai & Chen 2024, SiloFuse: cross-silo synthetic data generation with "
    "latent tabular diffusion models, ICDE"
)

"""Where SiloFuse and its baselines are from."""

_CODERS = ("points", "autoencoders")

_PRIVACY = ("none", "latents", "training")


_POINTS: Mapping[str, Any] = {"per_bit": 1.0}

_INVERTED = "nothing: codes may be inverted"


@dataclass(frozen=True)
class LatentColumns(ColumnsSplit):
    """What methods share that leave a law of latents, and a coder at every party."""

    takes_target: ClassVar[bool] = True

    @staticmethod
    def settings_type() -> Any:
        """The dataclass of its settings."""
        from siloweave.models.settings import LatentSettings

        return LatentSettings

    def made(self, preset: Mapping[str, Any]) -> Any:
        """`LatentSettings` from a preset and the user's own; raises InputError if one is wrong."""
        if not isinstance(self.settings, Mapping):
            raise InputError(f"settings={self.settings!r} must be a mapping from names to values")
        return settings_of(self.settings_type(), merged(preset, self.settings))

    def told(self, task: ColumnsTask) -> str | None:
        """The target, unless it is the only column."""
        return self.target if len(task.schema.names) > 1 else None

    @property
    def besides(self) -> str:
        """What the coordinator sees besides codes, in words."""
        classes = f", the classes of {self.target!r}" if self.target else ""
        return f"{classes}{', exact shares of every column' if self.shared else ''}"

    def besides_in(self, reply: str) -> tuple[str, ...]:
        """In which fields of a reply, and of others, that is."""
        classes = (f"{reply}.classes", f"{reply}.options") if self.target else ()
        return (*classes, *((f"{reply}.one_way", "Shared.columns") if self.shared else ()))

    def latents(self, schema: Schema) -> int:
        """Latents of a row, roughly: a column's bits with points, else one each."""
        from siloweave.models.settings import SphereCodeSettings

        coder = self.chosen()["autoencoder"]
        blocks = Features.declared(schema).blocks
        if set(coder) != {"per_bit"}:
            return int(coder["latent"] or len(blocks))
        points = SphereCodeSettings(**coder)
        return sum(1 if b.kind == "number" else points.dimensions(b.size) for b in blocks)

    @staticmethod
    def load(path: Path) -> Model:
        """Read the coordinator's model."""
        return load_joint(path)

    @staticmethod
    def home(features: Features, coder: bytes | None) -> Home:
        """Read what a party kept."""
        return CoderHome.of(features, coder)


@dataclass(frozen=True)
class SiloFuse(LatentColumns):
    """Coders at the parties, latents sent once, diffusion at the coordinator, decoding at home.

    Args:
        target: A column whose classes are told to the diffusion; its party sends them in the clear.
        shared: Whether synthetic columns are put together.
        settings: A mapping with the mappings ``autoencoder`` and ``diffusion``, and ``scaled`` and
            ``numbers``; defaults for the rest. Widths are those of all parties together.
        coder: "points", which codes every column by itself and needs no training, so the model is
            `PointDiff` however columns are split; or "autoencoders", the paper's, one per party.
        half: Whether latents travel in half precision.
        privacy: "none"; "latents" bounds latent rows and adds noise to them before they leave
            (dp, neighbours replace a row); "training", DP-SGD on latents that nobody sees, needs
            computation under encryption that is not built.
        clip: With "latents": radius of the ball that rows are shrunk into, as a share of the
            largest norm that the schema allows, in (0, 1].

    Example:
        >>> from siloweave.datasets import adult, adult_schema
        >>> rows, schema = adult().take(range(200)), adult_schema()
        >>> parts = {"work": rows.select(schema.names[:8]), "tax": rows.select(schema.names[8:])}
        >>> tiny = {"hidden": [8], "steps": 2, "batch": 16, "timesteps": 5}
        >>> fitted = SiloFuse(settings={"diffusion": tiny}).fit(parts, schema)
        >>> len(fitted.sample(7)), fitted.cost.rounds
        (7, 3)
    """

    coder: str = "points"
    half: bool = True
    privacy: str = "none"
    clip: float = 1.0
    info: ClassVar[Info] = Info(
        "silofuse",
        "SiloFuse",
        "latent diffusion",
        "columns",
        "curator",
        "none",
        PAPER,
        "Nothing: the coordinator is sent a code of every row, and most cells come back from it.",
    )

    @property
    def visibility(self) -> Views:
        """Who sees what of a run at these settings."""
        others = View(OTHERS, "that they hold the same people, in the same order", NOTHING)
        if self.privacy == "latents":
            codes = View(COORDINATOR, "a noisy code of every row", NOISE, ("Noised.latents",))
            return (own_columns(), codes, others, self.readers(NOISE))
        codes = View(
            COORDINATOR,
            f"a code of every row{self.besides}",
            _INVERTED,
            ("Coded.latents", "Coded.columns", "Coded.spots", *self.besides_in("Coded")),
        )
        return (own_columns(self.target), codes, others, self.readers(_INVERTED))

    @property
    def stated(self) -> Info:
        """What it is, guarantees and shows at these settings."""
        if self.privacy != "latents":
            return super().stated
        return msgspec.structs.replace(
            super().stated,
            title="SiloFuse (noised latents)",
            trust="local",
            guarantee="dp",
            statement="Every row, against everyone: its latents are bounded and noised before "
            "they leave its parties. Neighbours replace one row.",
        )

    @property
    def home_share(self) -> float:  # type: ignore[override]
        """Points learn nothing; autoencoders are half of the work."""
        return 0.02 if self.coder == "points" else 0.5

    def chosen(self) -> dict[str, Any]:
        """All settings, as plain values; raises InputError if one is wrong or unknown."""
        made = self._made()
        own = {"coder": self.coder, "half": self.half, "privacy": self.privacy}
        return {**own, **({"clip": self.clip} if self.privacy == "latents" else {}), **asdict(made)}

    def _made(self) -> Any:
        for name, value, known in (
            ("coder", self.coder, _CODERS),
            ("privacy", self.privacy, _PRIVACY),
        ):
            if value not in known:
                raise InputError(f"{name}={value!r} is none of {', '.join(known)}")
        if self.privacy == "training":
            raise NotImplementedError(
                "privacy='training' needs clipped gradients of latents that no one sees, summed "
                "under secure multi-party computation, which is not built; privacy='latents' "
                "keeps a bound today"
            )
        if self.privacy == "latents" and (self.coder != "points" or self.target is not None):
            raise InputError(
                "privacy='latents' codes all columns with points and tells no class: leave coder "
                "and target out"
            )
        number("clip", self.clip, 0, 1, "(]")
        idle = "half" if self.privacy == "latents" else "clip"
        if getattr(self, idle) != getattr(type(self), idle):
            raise InputError(
                f"{idle}={getattr(self, idle)!r} does nothing where privacy="
                f"{self.privacy!r}; leave it out"
            )
        points = {"autoencoder": _POINTS} if self.coder == "points" else {}
        told = self.coder == "points" and self.privacy == "none"  # what points say by themselves
        made = self.made({**points, "diffusion": {"loss_weight": 0.0 if told else 0.5}})
        if hasattr(made.autoencoder, "per_bit") != (self.coder == "points"):
            raise InputError(
                f"settings.autoencoder does not fit coder={self.coder!r}: points have per_bit, "
                "autoencoders do not"
            )
        if made.joint:
            raise InputError("settings.joint=True is E2EDistr; leave it out")
        return made

    def moves(self, schema: Schema, rows: int, parties: int) -> tuple[int, int]:
        """Questions and bytes of a party: latents once, whatever the number of steps."""
        size = 4 if self.privacy == "latents" or not self.half else 2
        return 3, size * rows * self.latents(schema) // parties

    def handlers(self) -> Handlers:
        """A party's side."""
        return SILOFUSE_HANDLERS

    def allowed(self, budget: Budget | None) -> Budget:
        """The budget of a run; raises BudgetError where it asks for what is not given."""
        if self.stated.guarantee != "dp":
            return super().allowed(budget)
        if budget is None or not isfinite(budget.epsilon):
            raise BudgetError(
                "privacy='latents' needs a finite epsilon, from which its noise follows; give "
                "Budget(epsilon, delta, relation=sw.Relation.REPLACE_ONE)"
            )
        require_replacing(budget)
        return budget

    def coordinate(self, parties: Session, task: ColumnsTask) -> tuple[Model, int]:
        """See silofuse.py."""
        made, noise = self._made(), None
        if self.privacy == "latents":
            parts = {name: task.schema.select(own) for name, own in task.columns.items()}
            noise = LatentNoise.for_budget(task.budget, parts, made.autoencoder.per_bit, self.clip)
        plan = SiloFusePlan(made, self.told(task), self.half, self.shared, noise)
        return silofuse(parties, task, plan)


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
        return SILOFUSE_HANDLERS

    def coordinate(self, parties: Session, task: ColumnsTask) -> tuple[Model, int]:
        """See end_to_end.py."""
        return end_to_end(parties, task, self._made(), self.told(task), self.shared)
