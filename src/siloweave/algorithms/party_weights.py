"""How much each party's network counts in the mean of a round.

Zhao, Birke, Kunar & Chen 2021, "Fed-TGAN", section 4.2, and its ablations; McMahan et al. 2017,
"Communication-efficient learning of deep networks from decentralized data".

**Guarantee**: none of its own; distances and numbers of rows are what parties released.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal

import numpy as np
import numpy.typing as npt

__all__ = ["WEIGHTS", "Weights", "weights_of"]

Floats = npt.NDArray[np.float64]
Weights = Literal["similarity and size", "similarity", "size", "equal", "rows", "typical"]
"""How parties are weighted in a mean."""
WEIGHTS: tuple[str, ...] = Weights.__args__  # type: ignore[attr-defined]
_REACH = 0.05  # how far beyond the middle party's distance a weight falls by e


def weights_of(S: Floats, rows: Sequence[int], weights: Weights = "similarity and size") -> Floats:
    """The weights of section 4.2, or one of its ablations.

    Args:
        S: (parties, columns), distances.
        rows: Of each party.
        weights: ``similarity and size`` is the paper's; ``similarity`` and ``size`` drop the other
            factor, ``equal`` is vanilla federated learning, ``rows`` the weights n_i / N of
            federated averaging. ``typical`` is ours: n_i, times less the farther a party's mean
            distance is beyond the middle party's.

    Returns:
        (parties,), of sum 1.

    Example:
        >>> S = np.array([[0.1], [0.1], [0.8]])
        >>> weights_of(S, [10, 10, 20]).round(3).tolist()
        [0.347, 0.347, 0.306]
    """
    n = np.array(rows, dtype=np.float64) / sum(rows)
    if weights == "rows":
        return n
    if weights == "typical":
        mean = S.mean(1) if S.size else np.zeros(len(n))
        kept = n * np.exp(-np.maximum(mean - np.median(mean), 0.0) / _REACH)
        return np.asarray(kept / kept.sum())
    totals = S.sum(0)
    scaled = np.where(totals > 0, S / np.where(totals > 0, totals, 1.0), 1.0 / len(n))
    away = scaled.sum(1)
    share = away / away.sum() if away.sum() > 0 else np.full(len(n), 1.0 / len(n))
    near = 1.0 - share
    factors: dict[str, Floats] = {
        "similarity and size": near * n,
        "similarity": near,
        "size": n,
        "equal": np.zeros(len(n)),
    }
    odds = np.exp(factors[weights])
    return np.asarray(odds / odds.sum())
