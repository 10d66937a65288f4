"""What a private training asks of its parties (Abadi et al. 2016; Zhu et al. 2024); see method.py.

Before these, keys are exchanged and columns are counted: protocols/histograms.py.
"""

from __future__ import annotations

from siloweave.federation.messages import Public, Released, Reply, Request
from siloweave.protocols.secure_sums import Cohort


class TrainingReady(Reply, frozen=True):
    """The training can begin."""

    ready: Public[bool]


class BeginTraining(Request[TrainingReady], frozen=True, tag="dp_sgd/begin"):
    """Encode your rows with these features; `levels` units of a sum make one clip.

    Attributes:
        features: Encoders of every column, as JSON.
        levels: Of the grid on which gradients are rounded.
        rate: Probability with which a row is drawn for a step.
    """

    features: str
    levels: int
    rate: float


class Step(Cohort, frozen=True, tag="dp_sgd/step"):
    """Add up the clipped gradients of a fresh sample; `message` holds weights, as safetensors."""

    number: int
    message: bytes


class TrainedDiffusion(Reply, frozen=True):
    """A diffusion of latent rows as a safetensors file, for which nothing is paid."""

    diffusion: Released[bytes]


class TrainDiffusion(Request[TrainedDiffusion], frozen=True, tag="dp_sgd/diffusion"):
    """Train the diffusion of `DPTLDM(scope="autoencoder")` on your encoded rows, without noise.

    Attributes:
        coder: The trained autoencoder, as a file.
        shares: How frequent the target's classes are, by the paid counts; None without a target.
        seed: First weights, batches and noise of the diffusion.
    """

    coder: bytes
    shares: tuple[float, ...] | None
    seed: int
