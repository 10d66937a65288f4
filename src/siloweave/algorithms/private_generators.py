"""The private central generators: DP-CTGAN, DP-TabDDPM, DP-TLDM.

Zhu, Tang, Brouwer, Perez, van Dijk & Chen 2024, "Quantifying and Mitigating Privacy Risks for
Tabular Generative Models", name these three; Xu et al. 2019 (CTGAN), Kotelnikov et al. 2023
(TabDDPM) are the models.

**Guarantee**: that of private_rounds.py for a roster of one, for every row and towards everyone who
sees the model or the synthetic table. Departures from the paper: gradients are clipped per row and
not per batch (which bounds nothing by itself: one row swings a clipped mean by two clips, whatever
the batch), one clip holds for encoder and decoder together, both stages of DP-TLDM are paid,
batches are Poisson samples, noise is whole numbers on a grid, and the price is read from the ledger
with the accountant of its events instead of a limit theorem. `DPTLDM(scope="autoencoder")` is the
paper's scope: its second stage reads every row without noise, which is no post-processing, so its
guarantee is `partial`, its epsilon infinite, and its ledger holds an event that says so.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Any, ClassVar, Literal

import msgspec

from siloweave.algorithms.networks import jax_key, merged, settings_of
from siloweave.algorithms.one_owner import owner_of
from siloweave.algorithms.outcome import Info
from siloweave.algorithms.private_begin import PrivateKind, begun, encoded
from siloweave.algorithms.private_rounds import Part, PrivateResult
from siloweave.algorithms.private_training import PrivateGAN, PrivateTraining, law_of
from siloweave.algorithms.rows_split import FedPointDiff, FedTabDDPM, FedTGAN, RowsSplit
from siloweave.algorithms.visibility import CURATOR, NOISE, View, Views
from siloweave.errors import InputError, WireError
from siloweave.federation.messages import Released, Reply, Request
from siloweave.federation.session import Session
from siloweave.federation.site import Handlers, Site
from siloweave.privacy.events import NonPrivate
from siloweave.tables.features import Features
from siloweave.tables.keys import fold_in

if TYPE_CHECKING:
    from siloweave.models.settings import LatentSettings
    from siloweave.models.stepwise import Stepwise

__all__ = ["DPCTGAN", "DPTLDM", "DPTabDDPM"]

_ZHU = (
    "Zhu, Tang, Brouwer, Perez, van Dijk & Chen 2024, Quantifying and Mitigating Privacy Risks for "
    "Tabular Generative Models"
)
_STATEMENT = (
    "Each row, from everyone who sees the model or the synthetic table: the number of rows, the "
    "counts of all columns and every training step are paid for. The schema is public."
)
_PARTIAL = (
    "The autoencoder only: the number of rows, the counts of all columns and its steps are paid "
    "for. The diffusion is trained on encoded rows without noise and may reproduce them, so no "
    "finite epsilon holds for what is released."
)
_SUMS = "noisy counts of every column and of the rows, and noisy sums of clipped gradients"
_VIEWS: Views = (
    CURATOR,
    View("readers", f"{_SUMS}; the model and the synthetic table", NOISE, ("Counts.sums",)),
)


def _info(name: str, title: str, family: str, paper: str) -> Info:
    return Info(name, title, family, "central", "curator", "dp", paper, _STATEMENT)


@dataclass(frozen=True)
class PrivateGenerator(PrivateTraining):
    """What all private central generators share.

    Args:
        target, settings, clip, counts_share, bins: See `PrivateTraining`.
    """

    @property
    def instead(self) -> str:
        """The generator without DP."""
        return "the same generator without DP"

    def arranged(self, data: Any, names: Sequence[str] | None) -> Any:
        """The owner's table."""
        owner, table = owner_of(data, names)
        return {owner: table}


# DP-CTGAN


@dataclass(frozen=True)
class DPCTGAN(PrivateGAN, PrivateGenerator):
    """Conditional GAN whose critic is trained privately.

    Args:
        settings: Of the networks and their training (`models.private_gan.PrivateGANSettings`), as a
            mapping; defaults for the rest.
        clip: Largest norm of a row's gradient.
        counts_share: Share of the budget's zCDP for the counts of columns.
        bins: Equal-width bins of a numeric column that are counted.
    """

    info: ClassVar[Info] = _info("dp_ctgan", "DP-CTGAN", "GAN", _ZHU)
    visibility: ClassVar[Views] = _VIEWS
    base: ClassVar[type[RowsSplit]] = FedTGAN

    def network(self) -> tuple[dict[str, Any], dict[str, Any]]:
        """Settings of the GAN, twice."""
        made = asdict(settings_of(self.settings_type(), self.settings))
        return made, made


# DP-TabDDPM

_DDPM: dict[str, Any] = {  # chosen on rows of Adult split again: decision 0019
    "hidden": (128,),
    "embed": 64,
    "timesteps": 100,
    "steps": 1_000,
    "batch": 1024,
    "learning_rate": 4e-3,
    "weight_decay": 0.0,
    "decay": 0.995,
    "clip_range": 4.0,
    "passes": None,
    "eta": 0.0,  # decision 0022
}


def _diffusion(given: Mapping[str, Any], title: str, where: str = "settings") -> Any:
    from siloweave.models.settings import DiffusionSettings

    made = settings_of(DiffusionSettings, merged(_DDPM, given), where)
    if made.clip_range is None:
        raise InputError(
            f"{where} has clip_range=None, which reads the range of the rows; {title} needs a "
            "number"
        )
    return made


@dataclass(frozen=True)
class DPTabDDPM(PrivateGenerator):
    """Diffusion of numbers and choices, every step private.

    Args:
        target: A column of categories that the network is told instead of diffusing it; its law
            comes from the paid counts.
        settings: Of the network and its training (`models.diffusion.DiffusionSettings`), as a
            mapping; defaults for the rest, smaller than without privacy.
        clip: Largest norm of a row's gradient.
        counts_share: Share of the budget's zCDP for the counts of columns.
        bins: Equal-width bins of a numeric column that are counted.
    """

    info: ClassVar[Info] = _info("dp_tabddpm", "DP-TabDDPM", "diffusion", _ZHU)
    visibility: ClassVar[Views] = _VIEWS
    base: ClassVar[type[RowsSplit]] = FedTabDDPM
    takes_target: ClassVar[bool] = True

    def network(self) -> tuple[dict[str, Any], dict[str, Any]]:
        """Settings of the network, twice."""
        made = asdict(_diffusion(self.settings, self.info.title))
        return made, made


# DP-TLDM

_CODER: dict[str, Any] = {
    "hidden": (256,),
    "divergence": 0.01,
    "steps": 500,
    "batch": 1024,
    "learning_rate": 3e-3,
    "weight_decay": 0.0,
    "decay": 0.99,
}


class TrainedDiffusion(Reply, frozen=True):
    """A diffusion of latent rows as a safetensors file, for which nothing is paid."""

    law: Released[bytes]


class Rest(Request[TrainedDiffusion], frozen=True, tag="dp_tldm/rest"):
    """Train the diffusion on your encoded rows, without noise.

    Attributes:
        coder: The trained autoencoder, as a file.
        law: How frequent the target's classes are, by the paid counts; None without a target.
        seed: First weights, batches and noise of the diffusion.
    """

    coder: bytes
    law: tuple[float, ...] | None
    seed: int


_UNPAID = "DP-TLDM's diffusion is trained on encoded rows without noise"


def rest(kind: PrivateKind, request: Rest, site: Site[Part]) -> TrainedDiffusion:
    """Note that nothing protects it, then train on every row, once a run."""
    begun_in = site.recall("rest") or site.context.encode()  # the step, asked again after a crash
    if begun_in != site.context.encode() or not _fits(kind, request.coder, site):
        raise WireError(
            f"party {site.name!r} trains one diffusion a run, of an autoencoder as the study has it"
        )
    site.remember("rest", begun_in)
    draw = partial(_diffused, kind, request, site)
    return TrainedDiffusion(
        site.release(NonPrivate(_UNPAID), "weights of DP-TLDM: the diffusion", draw)
    )


def _fits(kind: PrivateKind, file: bytes, site: Site[Part]) -> bool:
    """Whether a file says of its autoencoder what a file of the study's would say."""
    from siloweave.models.coders import RowCoder
    from siloweave.models.layout import Layout

    asked, _, features = begun(kind, site)
    settings, layout = _latent(msgspec.json.decode(asked.settings)), Layout(features.blocks)
    label = None if asked.target is None else layout.categorical_of(asked.target)
    made = {"label": label, "numbers": settings.numbers, "key": jax_key(fold_in(0, "first"))}
    own = RowCoder.untrained(layout, settings.autoencoder, **made).to_bytes()
    try:
        return bool(_head(file) == _head(own))
    except msgspec.MsgspecError:
        return False


def _head(file: bytes) -> Any:
    """Shapes of a safetensors file, and what is said of them."""
    size = int.from_bytes(file[:8], "little")
    return msgspec.json.decode(file[8 : 8 + size])


def _diffused(kind: PrivateKind, request: Rest, site: Site[Part]) -> bytes:
    from siloweave.models import latent
    from siloweave.models.coders import RowCoder

    asked, _, features = begun(kind, site)
    settings = _latent(msgspec.json.decode(asked.settings))
    coder = RowCoder.from_bytes(request.coder)
    law = latent.fit_latents(
        encoded(site, features, coder.encode), coder.latent, settings.diffusion,
        scaled=False, key=jax_key(fold_in(request.seed, "diffusion")), label_shares=request.law,
    )  # fmt: skip
    with TemporaryDirectory() as folder:
        law.save(Path(folder) / "law.safetensors")
        return (Path(folder) / "law.safetensors").read_bytes()


def _asked_for_the_rest(
    parties: Session, left: PrivateResult, settings: LatentSettings, target: str | None, seed: int
) -> Any:
    """A latent diffusion of the trained autoencoder, and of what the party trains on its codes."""
    from siloweave.models.latent import LatentDiffusion, LatentDistribution

    coder, shares = left.network, left.look.shares(left.features)
    paid = law_of(left.features, target, shares) if coder.label else None
    law = None if paid is None else tuple(paid)
    (trained,) = parties.ask(Rest(coder.to_bytes(), law, seed))
    with TemporaryDirectory() as folder:
        path = Path(folder) / "law.safetensors"
        path.write_bytes(trained.law.value)
        found = LatentDistribution.load(path)
    return LatentDiffusion(coder, found, settings)


@dataclass(frozen=True)
class DPTLDM(PrivateGenerator):
    """Latent diffusion: an autoencoder, then a diffusion of its latent rows.

    With ``scope="end-to-end"`` both are trained privately, their steps from one budget, with one
    noise multiplier; `settings` say how many steps each takes. With ``scope="autoencoder"``, the
    paper's, only the first is: no finite epsilon follows, and the ledger says so.

    Args:
        target: A column of categories that the diffusion is told.
        settings: ``{"autoencoder": {...}, "diffusion": {...}, "numbers": "mean"}`` with settings of
            `models.autoencoder` and `models.diffusion`; defaults for the rest. Both have the same
            `batch`.
        clip: Largest norm of a row's gradient, over encoder and decoder together.
        counts_share: Share of the budget's zCDP for the counts of columns.
        bins: Equal-width bins of a numeric column that are counted.
        scope: What is private.
    """

    scope: Literal["end-to-end", "autoencoder"] = "end-to-end"
    info: ClassVar[Info] = _info("dp_tldm", "DP-TLDM", "latent diffusion", _ZHU)
    base: ClassVar[type[RowsSplit]] = FedPointDiff  # whose models are latent diffusions too
    takes_target: ClassVar[bool] = True

    @property
    def visibility(self) -> Views:
        """Who sees what of a run at these settings."""
        if self.scope == "end-to-end":
            return _VIEWS
        sees = "the diffusion, and what it repeats of encoded rows"
        return (
            *_VIEWS,
            View("readers", sees, "nothing: no noise was added", ("TrainedDiffusion.law",)),
        )

    @property
    def stated(self) -> Info:
        """What it is, guarantees and shows at these settings."""
        if self.scope == "end-to-end":
            return super().stated
        return msgspec.structs.replace(super().stated, guarantee="partial", statement=_PARTIAL)

    def network(self) -> tuple[dict[str, Any], dict[str, Any]]:
        """Settings of both stages, and the steps that are paid for with their batch."""
        from siloweave.models.settings import AutoencoderSettings

        if self.scope not in ("end-to-end", "autoencoder"):
            raise InputError(f"scope={self.scope!r} is neither 'end-to-end' nor 'autoencoder'")
        parts: dict[str, Any] = {"autoencoder": {}, "diffusion": {}, "numbers": "mean"}
        for name in self.settings:
            if name not in parts:
                raise InputError(
                    f"settings has {name!r}, which DP-TLDM does not know; it has {', '.join(parts)}"
                )
        chosen: dict[str, Any] = {**parts, **self.settings}
        where = "settings.autoencoder"
        own = merged(_CODER, chosen["autoencoder"])
        coder = settings_of(AutoencoderSettings, own, where)
        ours = merged({"learning_rate": 3e-3}, chosen["diffusion"])
        latent = _diffusion(ours, self.info.title, "settings.diffusion")
        if not coder.divergence > 0:
            raise InputError(
                f"{where} has divergence={coder.divergence}; it must be above 0: without it "
                "latents have no scale of their own, and theirs must not be taken from the rows"
            )
        if coder.batch != latent.batch:
            raise InputError(
                f"batch={coder.batch} of the autoencoder and batch={latent.batch} of the diffusion "
                "must be the same: all steps are paid as one"
            )
        made = {"autoencoder": asdict(coder), "diffusion": asdict(latent)}
        steps = coder.steps + (latent.steps if self.scope == "end-to-end" else 0)
        whole = {**made, "numbers": chosen["numbers"], "scope": self.scope, "batch": coder.batch}
        return whole, {"steps": steps, "batch": coder.batch}

    @classmethod
    def training(
        cls,
        features: Features,
        settings: dict[str, Any],
        target: str | None,
        shares: Mapping[int, Sequence[float]] | None,
    ) -> Stepwise:
        """The autoencoder, and with the whole scope its latents' diffusion."""
        from siloweave.models.stepwise import LatentSteps

        law, both = law_of(features, target, shares), settings["scope"] == "end-to-end"
        return LatentSteps(_latent(settings), features.blocks, target, law, both)

    def handlers(self) -> Handlers:
        """A party's side; with the paper's scope it also trains without noise."""
        known = super().handlers()
        return known if self.scope == "end-to-end" else {**known, Rest: partial(rest, self.kind)}

    def finished(self, parties: Session, left: PrivateResult, seed: int) -> Any:
        """The whole model; with the paper's scope the party trains the rest of it."""
        if self.scope == "end-to-end":
            return left.network
        settings = _latent(self.network()[0])
        return _asked_for_the_rest(parties, left, settings, self.target, seed)


def _latent(settings: Mapping[str, Any]) -> LatentSettings:
    from siloweave.models.settings import AutoencoderSettings, DiffusionSettings, LatentSettings

    return LatentSettings(
        settings_of(AutoencoderSettings, settings["autoencoder"], "settings.autoencoder"),
        settings_of(DiffusionSettings, settings["diffusion"], "settings.diffusion"),
        scaled=False,
        numbers=settings["numbers"],
    )
