"""What a private training asks of its parties (Abadi et al. 2016; Zhu et al. 2024); see method.py.

Before these, keys are exchanged and columns are counted: protocols/histograms.py.
"""

from __future__ import annotations

from siloweave.federation.messages import Public, Released, Reply, Request
from siloweave.protocols.secure_sums import Cohort


class TrainingReady(Reply, frozen=True):
    """A confirmation that the training can begin."""

    ready: Public[bool]


class BeginTraining(Request[TrainingReady], frozen=True, tag="dp_sgd/begin"):
    """Encode your rows with these features; `levels` units of a sum make one clip."""

    features: str  # encoders of every column, as JSON
    levels: int  # of the grid on which gradients are rounded
    rate: float  # probability with which a row is drawn for a step


class Step(Cohort, frozen=True, tag="dp_sgd/step"):
    """Add up the clipped gradients of a fresh sample; `message` holds weights, as safetensors."""

    number: int
    message: bytes


class TrainedDiffusion(Reply, frozen=True):
    """A diffusion of latent rows as a safetensors file, for which nothing is paid."""

    diffusion: Released[bytes]


class TrainDiffusion(Request[TrainedDiffusion], frozen=True, tag="dp_sgd/diffusion"):
    """Train the diffusion of `DPTLDM(scope="autoencoder")` on your encoded rows, without noise."""

    coder: bytes  # the trained autoencoder, as a file
    # Of the target's classes, by the paid counts; None without it.
    shares: tuple[float, ...] | None
    seed: int  # first weights, batches and noise of the diffusion
