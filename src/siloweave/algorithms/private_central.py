"""Private central generators: the owner pays for a look at the columns, then for every step.

DP-SGD (Abadi, Chu, Goodfellow, McMahan, Mironov, Talwar & Zhang 2016, "Deep learning with
differential privacy") on models of feature vectors, as one-party runs of the same federation.

**Guarantee** (dp): rows, add/remove or replace-one as the budget says, towards everyone who sees
the model, the messages or the synthetic table. Paid in this order, each entered in the ledger
before it is drawn: the number of rows (discrete Gaussian; public under replace-one), the counts of
all columns at once (discrete Gaussian; a row is in at most one cell of each table of `Grains`, so
the joint L2 sensitivity is sqrt(tables), times sqrt(2) under replace-one), all training steps
together (sampled Gaussian). Encoders, bins, frequencies of classes and conditions, the sampling
rate and the divisor of gradients follow from these.

* Rows are drawn by Poisson sampling. Who is drawn, what a row's loss draws, the noise, and where
  in its bin a value is encoded come from one secret of the owner's own entropy; the user's seed
  gives the first weights and what is drawn without rows.
* The noise multiplier is the least for which the ledger's own reading keeps to the budget. That is
  at one Renyi order, which the noisy number of rows may choose only as far as its price contains
  it (privacy/orders.py); where the number is public, rate and noise follow from nothing that was
  noised, and all readings hold.
* Counts are exact integers with exact discrete noise. Gradients, their sums and their noise are
  32-bit floats, with the limits that privacy/gradients.py tells: what rounding of sums costs is
  paid for by a bound that is generous and not proven.
* Progress tells steps and time, not losses: those are means over real rows.
* Assumed public: schema and bounds, the types that a frame or Parquet file declares for its
  columns, bins, settings, and that a run took place. How long it takes depends on the number of
  rows, which is not hidden from whoever has a clock.
* Not included: `scope="autoencoder"` of DP-TLDM, whose second stage pays nothing; its ledger says
  so with an event of infinite cost.
"""

from __future__ import annotations

import re
from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property, partial
from math import sqrt
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Any, ClassVar

import msgspec
import numpy as np
from msgspec import UNSET

from siloweave.algorithms.generated import Matrix, Model
from siloweave.algorithms.private_counts import Look
from siloweave.algorithms.running import Progress, silent
from siloweave.federation.expected import MOST_ROWS, Said
from siloweave.federation.messages import Array, Public, Released, Reply, Request
from siloweave.federation.site import Handlers, Site
from siloweave.privacy import mechanisms
from siloweave.privacy.budget import Relation, marginal_sensitivity, size_sensitivity
from siloweave.privacy.events import Event, Gaussian, NonPrivate, SampledGaussian
from siloweave.tables.codes import Codes, Encoder
from siloweave.tables.digests import digest_of
from siloweave.tables.features import Features
from siloweave.tables.grains import Grains
from siloweave.tables.read import Table

if TYPE_CHECKING:
    import jax

    from siloweave.models.train import Poisson
    from siloweave.privacy.gradients import Private

__all__ = [
    "Counted",
    "Counts",
    "Method",
    "Owned",
    "Prices",
    "Steps",
    "Train",
    "Trained",
    "Work",
    "counted",
    "party",
    "rows_in",
]

_LOSS = re.compile(r", loss [^,]*")


# Messages


class Counted(Reply, frozen=True):
    """How many rows there are, paid for or public, and every column's noisy counts."""

    paid_rows: tuple[Released[int], ...]
    known_rows: tuple[Public[int], ...]
    counts: Released[Array]


def rows_in(party: str, seen: Counted) -> int:
    """How many rows a party said that it has, at least 1; raises WireError if it does not tell."""
    told = [*(one.value for one in seen.paid_rows), *(one.value for one in seen.known_rows)]
    (rows,) = Said(party).items("numbers of rows", told, count=1)
    return max(1, Said(party).number("rows", rows, least=-MOST_ROWS, most=MOST_ROWS))


class Counts(Request[Counted], frozen=True):
    """Count your rows, and every column's codes, with discrete Gaussian noise of these widths.

    Where `rows_sigma` is None the number of rows is not asked for.
    """

    rows_sigma: float | None
    counts_sigma: float


class Trained(Reply, frozen=True):
    """The model as a safetensors file; its second entry pays, or says that nobody paid."""

    model: Released[bytes]


class Train(Request[Trained], frozen=True):
    """Train, with this much noise, on samples of this rate.

    `counts`, their noise, and `rows` are what was released before: encoders and divisors come from
    them.
    """

    network: bytes
    clip: float
    target: str | None
    seed: int
    counts: Array
    counts_sigma: float
    rows: int
    rate: float
    noise_multiplier: float
    order: int | None


# Prices


@dataclass(frozen=True)
class Prices:
    """The events of a run, under one neighbouring relation."""

    relation: Relation

    def rows(self, sigma: float) -> list[Event]:
        """Of the number of rows; none where it is public."""
        moved = size_sensitivity(self.relation)
        return [Gaussian(sigma=sigma, sensitivity=moved)] if moved else []

    def counts(self, tables: int, sigma: float) -> Gaussian:
        """Of tables of counts, released together: every row is in one cell of each, or in none."""
        unit = marginal_sensitivity(self.relation, norm="l2")
        return Gaussian(sigma=sigma, sensitivity=sqrt(tables) * unit)

    def steps(
        self, noise_multiplier: float, rate: float, count: int, order: int | None
    ) -> SampledGaussian:
        """Of all steps of training, and the order at which they are read (privacy/orders.py)."""
        replaced, said = self.relation is Relation.REPLACE_ONE, UNSET if order is None else order
        return SampledGaussian(noise_multiplier, rate, replaced, count, said)


# Party


@dataclass(frozen=True)
class Owned:
    """What the owner works with.

    Attributes:
        table: Its rows.
        encoder: The public bins that are counted.
        codes: Its rows in these bins.
        relation: Which tables are neighbours.
        store: Where an interrupted training is kept, with its secret; nowhere if None.
        progress: Told how far training is.
    """

    table: Table
    encoder: Encoder
    codes: Codes
    relation: Relation
    store: Path | None = None
    progress: Progress = silent

    @property
    def prices(self) -> Prices:
        """What its releases cost."""
        return Prices(self.relation)

    def digest(self) -> bytes:
        """By which the party knows again what it brought; see `Site`."""
        return digest_of(self.table, self.codes.digest())


@dataclass(frozen=True)
class Steps:
    """Noisy steps that were paid for.

    Attributes:
        secret: A key of the owner's own entropy, from `secret_key`.
        clip: Largest norm of a row's gradient.
        rows: How many there are, paid for or public.
        rate: Probability of each row to be in a step.
        noise_multiplier: Of the event that was charged.
    """

    secret: jax.Array
    clip: float
    rows: int
    rate: float
    noise_multiplier: float

    @property
    def sampler(self) -> Poisson:
        """Who is in a batch, from the secret."""
        import jax

        from siloweave.models.train import Poisson

        return Poisson(self.rate, jax.random.fold_in(self.secret, 1))

    def gradient(self, layer: type | None, part: int = 0) -> Private:
        """The noisy gradient.

        Args:
            layer: Type of dense layers, None for a gradient per row.
            part: Which of several networks; each has noise of its own.
        """
        import jax

        from siloweave.privacy.gradients import Private

        return Private(
            jax.random.fold_in(self.secret, 2 + part),
            clip=self.clip,
            noise_multiplier=self.noise_multiplier,
            batch=self.rate * self.rows,
            layer=layer,
        )


@dataclass(frozen=True)
class Work:
    """What a model is trained with; the owner's secret gives all that touches rows.

    Attributes:
        table: The rows.
        look: The paid counts, and what follows from them.
        network: Settings of the model.
        clip: Largest norm of a row's gradient.
        target: A column that the model is told, or None.
        seed: First weights, and what is drawn without rows.
        secret: A key of the owner's own entropy, from `secret_key`.
        request: Rate and noise.
        owned: Where the training is kept, and whom to tell.
    """

    table: Table
    look: Look
    network: dict[str, Any]
    clip: float
    target: str | None
    seed: int
    secret: jax.Array
    request: Train
    owned: Owned

    @property
    def store(self) -> Path | None:
        """Where checkpoints go."""
        return None if self.owned.store is None else self.owned.store / "steps"

    def encode(self, features: Features) -> Matrix:
        """The rows as vectors; where in its bin a value lies is drawn from the secret."""
        import jax

        high, low = np.asarray(jax.random.key_data(jax.random.fold_in(self.secret, 0))).tolist()
        return features.encode(self.table, key=(high << 32) | low)

    def shares(self, features: Features) -> dict[int, list[float]]:
        """How frequent each option of each choice is, by where its block starts; paid for."""
        return self.look.shares(features)

    def law(self, features: Features) -> list[float] | None:
        """How frequent each class of the target is; paid for. None without a target."""
        blocks = [block for block in features.blocks if block.column == self.target]
        return self.shares(features)[blocks[0].start] if blocks else None

    @cached_property
    def key(self) -> jax.Array:
        """A public key: first weights, and what is drawn without rows."""
        import jax

        return jax.random.fold_in(jax.random.key(self.seed % 2**32), self.seed // 2**32 % 2**32)

    @property
    def _steps(self) -> Steps:
        asked = self.request
        return Steps(self.secret, self.clip, asked.rows, asked.rate, asked.noise_multiplier)

    @property
    def sampler(self) -> Poisson:
        """Who is in a batch, from the secret."""
        return self._steps.sampler

    def gradient(self, layer: type | None, part: int = 0) -> Private:
        """The noisy gradient of the steps that were paid for, see `Steps.gradient`."""
        return self._steps.gradient(layer, part)

    def progress(self, text: str, done: float) -> None:
        """Tell how far it is, without the loss of real rows."""
        self.owned.progress(_LOSS.sub("", text), done)


class Method(ABC):
    """What a private generator brings: how it is trained, and which steps of it are paid."""

    title: ClassVar[str]
    numeric: ClassVar[Any] = "quantile"

    @staticmethod
    @abstractmethod
    def paid_steps(network: dict[str, Any]) -> int:
        """How many noisy steps `train` takes."""

    @staticmethod
    def unpaid(network: dict[str, Any]) -> str:
        """Why a part of it is not protected; empty where all of it is."""
        return ""

    @staticmethod
    @abstractmethod
    def train(work: Work, features: Features) -> Model:
        """Train; rows are read through `work.encode`, `work.sampler` and `work.gradient`."""


def count(request: Counts, site: Site[Owned]) -> Counted:
    """Pay for the number of rows, then for the counts of all columns at once."""
    return counted(request, site, site.rows)


def counted(request: Counts, site: Site[Any], held: Owned) -> Counted:
    """The same of what a party holds, whatever its site calls rows."""
    entropy, sigma = site.entropy, request.rows_sigma
    n, grains = held.table.num_rows, Grains(held.encoder)

    def number() -> int:
        assert sigma is not None
        exact = np.array([n], dtype=np.int64)
        return int(mechanisms.add_gaussian(exact, sigma, entropy=entropy)[0])

    def counts() -> Array:
        exact = grains.count(held.codes)
        noisy = mechanisms.add_gaussian(exact, request.counts_sigma, entropy=entropy)
        return Array.of(noisy, "<i8")

    priced = [] if sigma is None else held.prices.rows(sigma)
    paid = tuple(site.release(event, "number of rows", number) for event in priced)
    known = () if paid or sigma is None else (Public(n, "neighbours have the same number of rows"),)
    event = held.prices.counts(grains.number, request.counts_sigma)
    what = f"counts of {len(held.codes.columns)} columns in {grains.number} tables"
    return Counted(paid, known, site.release(event, what, counts))


def train(method: type[Method], request: Train, site: Site[Owned]) -> Trained:
    """Pay for all steps, then take them."""
    network = msgspec.json.decode(request.network)
    steps = method.paid_steps(network)
    event = site.rows.prices.steps(request.noise_multiplier, request.rate, steps, request.order)
    what = f"weights of {method.title}"
    draw = partial(_weights, method, network, request, site)
    reason = method.unpaid(network)
    if not reason:
        return Trained(site.release(event, what, draw))
    site.pay(event, f"{what}: the steps that are private")
    return Trained(site.release(NonPrivate(reason), what, draw))


def _weights(
    method: type[Method], network: dict[str, Any], request: Train, site: Site[Owned]
) -> bytes:
    from siloweave.privacy.gradients import secret_key

    held = site.rows
    secret = secret_key(site.entropy, store=held.store)
    counts = request.counts.numpy().astype(np.int64)
    look = Look(held.encoder, counts, request.counts_sigma, request.rows, request.seed)
    facts = (network, request.clip, request.target, request.seed)
    work = Work(held.table, look, *facts, secret, request, held)
    model = method.train(work, look.features(method.numeric))
    with TemporaryDirectory() as folder:
        model.save(Path(folder) / "model.safetensors")
        return (Path(folder) / "model.safetensors").read_bytes()


def party(method: type[Method]) -> Handlers:
    """The owner's side for one method: which function answers which request."""
    answer: Callable[..., Trained] = partial(train, method)
    return {Counts: count, Train: answer}
