"""SiloFuse and E2EDistr: latent diffusion over parties that hold different columns.

Shankar, Brouwer, Hai & Chen 2024, "SiloFuse: cross-silo synthetic data generation with latent
tabular diffusion models" (ICDE), Algorithms 1 and 2. In SiloFuse every party codes its rows at home
and sends the latents once; the coordinator trains a diffusion on the latents side by side, and what
it draws is cut into the parties' parts, which they decode at home. E2EDistr (section 5.1) is the
paper's baseline: encoders, denoiser and decoders are trained as one, and activations and gradients
cross the wire at every step, four matrices of (batch, latents) each. With one party SiloFuse is our
PointDiff, or with autoencoders LatentDiff, and E2EDistr takes the steps of E2E, cut where a party
ends; their code (models/coders.py, models/latent.py) this is.

**Guarantee** (none by default): the coordinator sees a code of every row, one real person each, and
with E2EDistr gradients too, over and over. The paper's theorem says that an unknown encoder cannot
be inverted for sure; it does not rule out that almost all cells come back, and `invert_run`
measures that they do. No value of a number is sent: codes are ranks or an autoencoder's, and where
cells of a column end stays at its party. They come back nearly all the same, since drawn codes and
what parties decode of them are pairs. A party of E2EDistr pays once, without bound, for all it
sends at all steps (`Site.release_under`), and once more for shares of its columns and its synthetic
columns where these are put together. Assumed public: schema, settings, order of rows.

**Guarantee** (dp, replace-one row) of SiloFuse with ``privacy="latents"``: towards readers, the
coordinator, and the other parties, also where these pool what they know. (All parties hold
something of each row. What a party holds itself it knows; what the others hold is protected from it
by their noise, which it does not know.) That is the local model of Kasiviswanathan, Lee, Nissim,
Raskhodnikova & Smith 2011 ("What can we learn privately?"), with the discrete Gaussian of Canonne,
Kamath & Steinke 2020. The coder is the sphere codes of declared features, so it reads no row. A
latent row is rounded to a grid of integers and shrunk into a ball whose radius follows from the
schema, so replacing a row moves the integers by at most the diameter, and each integer gets
discrete Gaussian noise from the party's own entropy, once a run. A person's row lies at all
parties, whose costs add up: the noise, equal at all, is the least with which all together keep to
the budget. A party's ledger holds its own share; before it pays, it adds up what all parties would
release, and refuses if that is beyond its limit. Assumed public: schema, settings, which party
holds which columns, number and order of rows.

Where this departs from the paper. The protocol is its own: latents of aligned rows sent once, one
diffusion of them side by side, decoding at home. The models inside are not, and no figure here is
of the paper's model. Defaults, with what the paper states in brackets:

* `coder` "points" is ours (models/sphere_codes.py), and not in the paper: it codes every column by
  itself, so latents do not depend on who holds it, and the diffusion is the same whatever the
  split, but for relations of numbers that it cuts. It is `PointDiff`. All points below on
  autoencoders are of ``coder="autoencoders"``.
* Autoencoders have three dense layers each way, GELU, Gaussian and categorical heads, and widths
  divided equally among the parties, as the paper's do. Hidden layers have 512 units in all (1,024),
  and there is no embedding of 32. No divergence is added (the paper names a likelihood or a
  divergence). Latents are standardised by their mean and spread.
* A latent row has an entry for each block of `Features` (for each column): a column of numbers with
  spikes or missing values has two, a wide categorical several. With the class left out that made 17
  on Adult's 15 columns, and 64 on the 42 of intrusion.
* Numbers are coded as normal scores of their quantiles, frequent values as categories (the paper
  names no such step). With points, values that five rows share keep their share of the scores, and
  a party's number that equals another of its own, or a sum of two, has an option for it (decision
  0007); relations between numbers of different parties are not seen.
* The denoiser is a projection to 128 units, to which time and class are added, and two layers of
  512, SiLU, without dropout (eight bilinear layers, GELU, dropout of .01). With points it has two
  residual blocks of 256 units instead, each conditioned on time and class, and sees numbers as
  waves (decision 0007).
* It learns the velocity, errors weighed by (1 - ᾱ)^.5 (the clean latent, by the paper's formula, or
  the noise, by its text).
* T is 1,000 (200), and 50 steps are walked by a second-order solver that puts noise back (25; the
  sampler is not named).
* Autoencoders take 4,000 steps and the diffusion at most 10,000, of 256 rows, or with points
  40,000, and fewer on small tables (500,000 for both, of 512). Rates are 1e-3 and 2e-3, falling to
  0, by AdamW, and weights are averaged (1e-3).
* The classes of `target`, where one is named, are sent in the clear and condition the diffusion, as
  LatentDiff's do (every column is coded).
* Latents travel in half precision. The coordinator holds no columns (it is one of the parties).
* Where synthetic columns are put together, rows are raked to exact shares of each column, which
  parties release for it (no such step).
* ``privacy="latents"`` is ours. Noise of one row's size on every row leaves little to learn at a
  small epsilon; that is the price of a coordinator that sees rows one by one.

E2EDistr has the same networks, except that its latents are kept within ±√3 by a tanh, its denoiser
gives the clean latent, and rows are drawn without noise. The loss is the row's negative
log-likelihood, added up over its blocks, plus the latent's squared error.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from functools import partial
from typing import Any, ClassVar

from siloweave.core import views
from siloweave.core.method import (
    COORDINATOR_TRAINING,
    PARTY_TRAINING,
    REPLIES,
    Forecast,
    Guarantee,
    Method,
    QuestionCounts,
    Setup,
)
from siloweave.core.run import Synthesizer
from siloweave.core.settings import plain
from siloweave.core.views import View, Views
from siloweave.errors import InputError, number
from siloweave.methods.silofuse import coordinator, messages, party
from siloweave.methods.silofuse.settings import E2EDistrSettings, SiloFuseSettings
from siloweave.models.settings import AutoencoderSettings, SphereCodeSettings
from siloweave.privacy.budget import refuse_several_rows
from siloweave.protocols import columns
from siloweave.protocols.networks import check_trainable, training_forecast
from siloweave.tables.features import Features
from siloweave.tables.schema import Schema

_PAPER = (
    "Shankar, Brouwer, Hai & Chen 2024, SiloFuse: cross-silo synthetic data generation with "
    "latent tabular diffusion models, ICDE"
)
_COMMON: Mapping[str, Any] = {
    "family": "latent diffusion",
    "split": "columns",
    "trust": "curator",
    "paper": _PAPER,
    "prepare": columns.columns_data,
    "facts": columns.column_facts,
    "decode": partial(columns.decoded_rows, coordinator.load_coder),
    "load": partial(
        columns.ColumnsModel.read,
        joint=coordinator.JointModel.load,
        coder=coordinator.load_coder,
    ),
    "check_schema": check_trainable,
}
_INVERTED = "nothing: most cells can be computed from the codes"


def _besides(synth: SiloFuse | E2EDistr, reply: str) -> tuple[str, tuple[str, ...]]:
    """Describe what the coordinator sees beside codes; return the words and the fields."""
    words = ""
    fields: tuple[str, ...] = ()
    if synth.target:
        words += f", the classes of {synth.target!r}"
        fields += (f"{reply}.classes", f"{reply}.options")
    if synth.shared:
        words += ", and the exact share of rows in each bin or category, without the bins' ends"
        fields += ("SharedColumns.shares",)
    return words, fields


def _latents(schema: Schema, coder: AutoencoderSettings | SphereCodeSettings) -> int:
    """Estimate the latents of a row: with sphere codes a column's bits, else one a column."""
    blocks = Features.declared(schema).blocks
    if isinstance(coder, AutoencoderSettings):
        return int(coder.latent or len(blocks))
    latents = 0
    for block in blocks:
        latents += 1 if block.kind == "number" else coder.dimensions(block.size)
    return latents


# SiloFuse


_WITH_NOISE = "SiloFuse(privacy='latents') adds noise."


def _guarantee(synth: SiloFuse) -> Guarantee:
    """Return the guarantee of a run, with noise on latents or without."""
    if synth.privacy == "latents":
        return Guarantee(
            "dp",
            "Every row, against everyone: its latents are bounded and noised before they leave its "
            "parties. Neighbours replace one row.",
            title="SiloFuse (noised latents)",
            trust="local",
            instead=_WITH_NOISE,
        )
    return Guarantee(
        "none",
        "Nothing: the coordinator is sent one code for each row, and most cells can be computed "
        "from it.",
        instead=_WITH_NOISE,
    )


def _visibility(synth: SiloFuse) -> Views:
    """Return the lines of who sees what in a run."""
    others = View(
        views.OTHERS, "that they hold the same people, in the same order", views.NOTHING
    )
    if synth.privacy == "latents":
        codes = View(
            views.COORDINATOR,
            "one noisy code for each row",
            views.NOISE,
            ("Noised.latents",),
        )
        return (
            views.own_columns(),
            codes,
            others,
            columns.readers(synth.shared, views.NOISE),
        )
    words, fields = _besides(synth, "Coded")
    code_fields = ("Coded.latents", "Coded.columns", "Coded.sphere_codes", *fields)
    codes = View(
        views.COORDINATOR, f"one code for each row{words}", _INVERTED, code_fields
    )
    return (
        views.own_columns(synth.target),
        codes,
        others,
        columns.readers(synth.shared, views.BARE_READERS.protected_by),
    )


def _forecast(setup: Setup, rows: int) -> Forecast:
    """Forecast a run in which latents travel once, whatever the number of steps."""
    synth = setup.settings_as(SiloFuseSettings)
    is_noised = synth.privacy == "latents"
    # Integers of noised latents have four bytes.
    number_bytes = 2 if synth.half and not is_noised else 4
    sent = (
        number_bytes
        * rows
        * _latents(setup.schema, synth.latent.autoencoder)
        // len(setup.roster)
    )
    questions: QuestionCounts = {
        messages.Code: 1,
        columns.ShareColumns: int(synth.shared),
    }
    if is_noised:
        questions = {messages.CodeNoised: 1}
    return training_forecast(
        setup, rows, setup.synth.settings(), questions, lambda weights, width: sent
    )


def _affordable(setup: Setup) -> None:
    """Refuse budgets for neighbours that noise on one row's latent does not cover."""
    if setup.budget.private:
        refuse_several_rows(
            setup.budget, "SiloFuse", "the latent of each row is priced for itself"
        )
        columns.require_replacing(setup.budget, "every row sends a latent")


@dataclass(frozen=True)
class SiloFuse(Synthesizer, SiloFuseSettings):
    """Coders at the parties, latents sent once, diffusion at the coordinator, decoding at home.

    Args:
        target: A column whose classes the diffusion is conditioned on; its party sends them in the
            clear.
        shared: Whether synthetic columns are put together; else each stays with its party, and only
            `Fit.sample_parts` draws.
        autoencoder: Settings of the coder, as an object or as a mapping of what differs from the
            default: `SphereCodeSettings` with coder "points" (and None is its default),
            `AutoencoderSettings` with "autoencoders". Widths are those of all parties together.
        diffusion: Settings of the diffusion, alike. The default, from which a mapping differs, has
            a ``loss_weight`` of 0 for points without noise, since these show every cell, and of
            0.5 else.
        scaled, numbers: See `siloweave.models.settings.LatentSettings`.
        coder: "points", our sphere codes, which code every column by itself and need no training,
            so the model is `PointDiff` however columns are split; or "autoencoders", one per party,
            as in the paper, though smaller and less trained than there (this file's head lists
            every departure).
        half: Whether latents travel in half precision.
        privacy: "none"; "latents" bounds latent rows and adds noise to them before they leave
            (dp, neighbours replace a row).
        clip: With "latents": radius of the ball that rows are shrunk into, as a share of the
            largest norm that the schema allows, in (0, 1].

    Example:
        >>> from siloweave.datasets import adult, adult_schema
        >>> rows, schema = adult().take(range(200)), adult_schema()
        >>> parts = {"work": rows.select(schema.names[:8]), "tax": rows.select(schema.names[8:])}
        >>> tiny = {"hidden": [8], "steps": 2, "batch": 16, "timesteps": 5}
        >>> fitted = SiloFuse(diffusion=tiny).fit(parts, schema)
        >>> len(fitted.sample(7)), fitted.cost.rounds
        (7, 3)
    """

    method: ClassVar[Method] = Method(
        name="silofuse",
        title="SiloFuse",
        **{**_COMMON, "paper": f"{_PAPER} (the protocol; the default coder is ours)"},
        guarantee=_guarantee,
        visibility=_visibility,
        handlers=columns.with_decoding(party.handlers, coordinator.load_coder),
        coordinate=coordinator.coordinate,
        forecast=_forecast,
        affordable=_affordable,
        stores=(REPLIES, COORDINATOR_TRAINING, PARTY_TRAINING),
        # Points learn nothing.
        party_share=lambda synth: 0.02 if synth.coder == "points" else 0.5,
    )

    def _check_settings(self) -> None:
        """Raise InputError for settings that are out of bounds, or contradict each other."""
        is_noised = self.privacy == "latents"
        # The bound on a latent follows from public facts, which an autoencoder's weights are not.
        if is_noised and (self.coder != "points" or self.target is not None):
            raise InputError(
                "privacy='latents' codes all columns with points and sends no class: leave coder "
                "and target out"
            )
        number("clip", self.clip, 0, 1, "(]")
        idle = "half" if is_noised else "clip"
        if getattr(self, idle) != getattr(SiloFuse, idle):
            raise InputError(
                f"{idle}={getattr(self, idle)!r} does nothing where privacy={self.privacy!r}; "
                "leave it out"
            )
        self.latent  # noqa: B018  (raises where one of its settings is wrong)

    def settings(self) -> dict[str, Any]:
        """Return all settings as plain values, those of coder and diffusion in full."""
        latent = self.latent
        full = {
            "autoencoder": asdict(latent.autoencoder),
            "diffusion": asdict(latent.diffusion),
        }
        return {**super().settings(), **plain(full)}


# E2EDistr


def _visibility_steps(synth: E2EDistr) -> Views:
    """Return the lines of who sees what in a run of many steps."""
    words, fields = _besides(synth, "JointBegun")
    received = f"the number of rows, codes and gradients of rows in every step{words}"
    step_fields = ("Activations.latents", "Slopes.slope", "Slopes.loss")
    received_in = ("JointBegun.rows", "JointBegun.latent", *step_fields, *fields)
    sent = "in every step, denoised codes and gradients of the rows, computed from all columns"
    return (
        views.own_columns(synth.target),
        View(views.COORDINATOR, received, _INVERTED, received_in),
        View(views.OTHERS, sent, views.NOTHING, ("Forward", "Backward", "End")),
        columns.readers(synth.shared, views.BARE_READERS.protected_by),
    )


def _forecast_steps(setup: Setup, rows: int) -> Forecast:
    """Forecast a run in which four matrices of latents travel at every step."""
    synth = setup.settings_as(E2EDistrSettings)
    steps = synth.diffusion.steps
    batch = min(synth.diffusion.batch, rows)
    # Four matrices, of four bytes a number.
    latents = _latents(setup.schema, synth.autoencoder)
    sent = 4 * 4 * steps * batch * latents // len(setup.roster)
    questions: QuestionCounts = {
        messages.BeginJoint: 1,
        messages.Forward: steps,
        messages.Backward: steps,
        messages.End: 1,
        columns.ShareColumns: int(synth.shared),
    }
    return training_forecast(
        setup,
        rows,
        setup.synth.settings(),
        questions,
        lambda weights, width: sent,
        bounded=False,
    )


@dataclass(frozen=True)
class E2EDistr(Synthesizer, E2EDistrSettings):
    """Encoders, denoiser and decoders trained as one, over the wire at every step: a baseline.

    Args:
        target, shared: See `SiloFuse`.
        autoencoder: Settings of the autoencoders, as an object or as a mapping of what differs from
            the default; widths are those of all parties together.
        diffusion: Settings of the diffusion, alike; its steps, batch and rates are those of the
            joint training.
        scaled, numbers: See `siloweave.models.settings.LatentSettings`; what a joint training
            makes no use of is refused.

    Example:
        >>> E2EDistr(diffusion={"steps": 500}, shared=False).diffusion.steps
        500
    """

    method: ClassVar[Method] = Method(
        name="e2e_distr",
        title="E2EDistr",
        **_COMMON,
        guarantee=lambda synth: Guarantee(
            "none",
            "Nothing: the coordinator is sent codes and gradients of every row, over and over.",
            instead="Or use SiloFuse(privacy='latents'), which adds noise.",
        ),
        visibility=_visibility_steps,
        handlers=columns.with_decoding(party.step_handlers, coordinator.load_coder),
        coordinate=coordinator.coordinate_steps,
        forecast=_forecast_steps,
        party_share=lambda synth: 0.02,
        stores=(COORDINATOR_TRAINING, PARTY_TRAINING),
    )
