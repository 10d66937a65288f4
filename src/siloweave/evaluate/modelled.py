"""The likelihood of held-out rows, where there is a model behind the synthetic table."""

import warnings
from typing import Any

import numpy as np

from siloweave.errors import SiloweaveError
from siloweave.evaluate.likelihood import DensitySource, negative_log_likelihood
from siloweave.evaluate.scores import NotMeasured, Score
from siloweave.evaluate.sides import Sheet
from siloweave.tables.codes import Codes, Encoder
from siloweave.tables.read import read

__all__ = ["add_likelihood", "independent_likelihood"]

NAME = "negative log-likelihood"


def add_likelihood(
    sheet: Sheet, real: Any, holdout: Any, model: DensitySource | None, encoder: Encoder | None
) -> None:
    """Add the mean negative log-likelihood of the holdout, or why it is not there."""
    if model is None or encoder is None:
        reason = "it takes the model behind the synthetic rows; give model= and encoder="
        sheet.gaps.append(NotMeasured(NAME, reason))
        return
    try:
        seen = encoder.encode(read(real))
        rows = seen if holdout is None else encoder.encode(read(holdout))
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            value = negative_log_likelihood(model, rows)
    except SiloweaveError as error:
        sheet.gaps.append(NotMeasured(NAME, str(error)))
        return
    if not np.isfinite(value):
        sheet.gaps.append(NotMeasured(NAME, "; ".join(str(w.message) for w in caught)))
        return
    note = "of the holdout rows"
    if holdout is None:
        note = "of the rows the model learnt from, as there is no holdout: learning by heart pays"
    sheet.parts.append(
        Score(
            NAME,
            "likelihood",
            value,
            None,
            independent_likelihood(seen, rows),
            "lower",
            "nats per row",
            "FLAIM, KDD 2024",
            f"{note}; no ceiling, as nobody knows the true law; floor: independent columns",
        )
    )


def independent_likelihood(seen: Codes, rows: Codes) -> float:
    """Mean negative log-likelihood under independent columns, in nats per row.

    Args:
        seen: Rows whose shares are the model, half a row added to every code.
        rows: Rows to score, in the same domain.

    Returns:
        Nats per row.

    Example:
        >>> from siloweave.tables import Domain
        >>> coin = Codes(Domain(("side",), (2,)), (np.array([0, 1]),))
        >>> round(independent_likelihood(coin, coin), 4)
        0.6931
    """
    total = 0.0
    for size, ours, theirs in zip(seen.domain.sizes, seen.columns, rows.columns, strict=True):
        shares = (np.bincount(ours, minlength=size) + 0.5) / (len(ours) + 0.5 * size)
        total -= float(np.log(shares[theirs]).mean())
    return total
