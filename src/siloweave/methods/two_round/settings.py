"""Settings of TwoRound, which its coordinator reads."""

from __future__ import annotations

from dataclasses import dataclass

from siloweave.protocols.two_rounds import TwoRoundSettings


@dataclass(frozen=True)
class TwoRoundFitSettings(TwoRoundSettings):
    """Settings of a fit by TwoRound: those of two rounds and of masked sums.

    `TwoRound` in method.py explains each.
    """

    tolerated: int = 1
    dropouts: int = 0
