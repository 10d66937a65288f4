"""Central generators: the owner of all rows trains a model on them and releases the model.

SDV's Gaussian copula (Patki, Wedge & Veeramachaneni 2016, "The Synthetic Data Vault"), CTGAN (Xu et
al. 2019, "Modeling tabular data using conditional GAN") and TabDDPM (Kotelnikov et al. 2023,
"TabDDPM: modelling tabular data with diffusion models"), as one-party runs of the same federation.

**Guarantee**: none. The weights are released as they were trained, and the ledger says so with an
event of infinite cost; encoders, bounds and frequencies are taken from the rows as well.
"""

from __future__ import annotations

from siloweave.federation.messages import Released, Reply, Request


class TrainedModel(Reply, frozen=True):
    """A trained model as a safetensors file, and facts about the rows.

    Attributes:
        model: The file.
        features: How tables become its vectors.
        one_way: How single columns are distributed.
        rows: How many there were.
    """

    model: Released[bytes]
    features: Released[str]
    one_way: Released[str]
    rows: Released[int]


class Train(Request[TrainedModel], frozen=True, tag="central/train"):
    """Train this generator on your rows."""

    settings: bytes
    target: str | None
    seed: int
