"""How a private training begins at a party: what trains, on which vectors, and what it refuses.

DP-SGD (Abadi et al. 2016, "Deep learning with differential privacy") over the rows of one party or
of several, see private_rounds.py.

**Guarantee**: that of private_rounds.py. A party computes the sensitivity and the price of a step
itself, and refuses numbers that no event can be made of, settings or a Renyi order that are not the
study's, what it cannot hold or finish, and encoders that are not of its own declared facts; all of
it before anything is paid or drawn.

Private networks over split rows: every step is a masked sum of clipped gradients.

DP-SGD (Abadi, Chu, Goodfellow, McMahan, Mironov, Talwar & Zhang 2016, "Deep learning with
differential privacy") whose sums no single party sees (Bonawitz et al. 2017) and whose noise the
parties add in shares (Kairouz, Liu & Steinke 2021, "The distributed discrete Gaussian mechanism for
federated learning with secure aggregation").

1. One masked sum counts every column on public bins, and the rows. Encoders, the law of the label,
   the sampling rate and the divisor of gradients follow from it (private_counts.py).
2. In every step the coordinator sends the weights, and whatever else a row's loss is to be given;
   each party draws its own rows by coins of its own, clips every row's gradient, rounds the sum to
   integers, adds its share of the noise and masks; the coordinator unmasks the sum and moves the
   weights.

What is trained is a `Stepwise` (models/stepwise.py): it says what a step's message carries, what a
row's loss is given that message, and how the weights move. Of a diffusion the message is the
network. Of a GAN it is the critic and a pool of generated rows (Xie, Lin, Wang, Wang & Zhou 2018,
"Differentially private generative adversarial network": only the critic meets real rows); the
generator moves at the coordinator, by the critic and the paid counts, which is post-processing.

One party alone is the central case: its masks are empty, it adds all the noise itself, and what the
coordinator sees is its noisy sums.

**Guarantee** (dp): rows, add/remove or replace-one as each party's budget says, towards the
coordinator together with at most `tolerated` parties, and everyone who sees weights or rows of the
model. A party encodes its rows by its own declared facts, or not at all. A row pays for one
noisy_histogram
and for every step, each entered in its party's ledger before noise is drawn; all are read at one
Renyi order, which the noisy number of rows may choose only as far as its price contains it
(privacy/orders.py). Where a row is replaced the number of rows costs nothing; of one party alone
it is public. The party computes the sensitivity itself (privacy/shared_steps.py) from how it clips
and rounds, and refuses settings that are beyond what it can pay for, hold or finish. Who is drawn,
what a row's loss draws, where in its bin a value is encoded, and the noise come from the party's
own entropy and stay there, so that sampling amplifies towards all others; it does not towards
someone who reads the party's memory. No loss leaves the party or steers anything: whether training
diverged is seen by the weights alone, which follow from noisy sums. Every noisy number is a whole
number of units, at whatever coordinate; nothing of the noise is a float. Assumed public: schema,
bins, settings, roster, and how long a party takes. The coordinator is taken to follow the protocol;
whatever it asks, weights and generated rows of any kind, a row's gradient is clipped and a party's
ledger pays for what it does.
Per-step noise holds with `tolerated` shares missing; a party that does not answer stops the run.
Noise is drawn within `mechanisms.TV_PER_DRAW` of its law, as everywhere. That a row's gradient is
the same at any place of a batch but for its last bits is taken from the compiler (seen on CPUs);
`shared_steps.moved` leaves a 1024th of the clip for them.

The private central generators: DP-CTGAN, DP-TabDDPM, DP-TLDM.

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

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from siloweave.federation.messages import Public, Released, Reply, Request
from siloweave.protocols.secure_sums import (
    Cohort,
)
from siloweave.tables.features import Features

if TYPE_CHECKING:
    from siloweave.models.stepwise import Stepwise


class TrainingReady(Reply, frozen=True):
    """What to train is known."""

    ready: Public[bool]


class BeginTraining(Request[TrainingReady], frozen=True, tag="private/begin"):
    """Encode your rows with these features; `levels` units of a sum make one `clip`."""

    features: str
    settings: bytes
    target: str | None
    clip: float
    levels: int
    rate: float
    order: int | None


@dataclass(frozen=True)
class PrivateKind:
    """What is trained.

    Attributes:
        title: What the ledger calls it.
        numeric: What a continuum becomes.
        made: What trains, from features, settings, a target, and how frequent each option of each
            choice is, by where its block starts; a party makes it without these.
    """

    title: str
    numeric: Any
    made: Callable[
        [Features, dict[str, Any], str | None, Mapping[int, Sequence[float]] | None], Stepwise
    ]


class Step(Cohort, frozen=True, tag="private/step"):
    """Add up the clipped gradients of a fresh sample; `message` holds weights, as safetensors."""

    number: int
    message: bytes


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
