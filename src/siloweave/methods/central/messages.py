"""What is asked of the owner of all rows: one trained generator; method.py has the guarantee."""

from __future__ import annotations

from siloweave.federation.messages import Released, Reply, Request


class TrainedModel(Reply, frozen=True):
    """A trained model as a safetensors file, and facts about the rows."""

    model: Released[bytes]  # the file
    features: Released[str]  # how tables become its vectors
    one_way: Released[str]  # how single columns are distributed
    rows: Released[int]  # how many there were


class Train(Request[TrainedModel], frozen=True, tag="central/train"):
    """Train the study's generator on your rows; `seed` is for whatever is random in it."""

    seed: int
