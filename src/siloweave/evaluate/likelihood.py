"""How probable held-out rows are under a fitted model."""

import warnings
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from siloweave.errors import InputError
from siloweave.evaluate.workload import require_rows
from siloweave.tables.codes import Codes, Encoder

__all__ = ["DensitySource", "negative_log_likelihood"]


class DensitySource(Protocol):
    """Anything that tells the probability of a row: a fitted model."""

    def log_density(self, codes: Codes, /) -> NDArray[np.float64]:
        """Natural log of the model's probability of each row; −inf for an impossible row."""


def negative_log_likelihood(
    model: DensitySource, codes: Any, *, encoder: Encoder | None = None
) -> float:
    """Mean negative log-likelihood of rows under a model, in nats per row.

    Lower is better. A row that the model holds impossible makes the mean infinite; the warning
    then says how many rows these are and the mean over the others.

    Args:
        model: A fitted model.
        codes: Held-out rows, at least one, in the model's domain; or a `Table`, frame or path.
        encoder: How the model codes rows; needed unless they are codes already.

    Returns:
        Nats per row; ``inf`` when a row is impossible.

    Raises:
        InputError: When there is no row, or the model gives something that is no log-probability.

    Example:
        >>> from siloweave.tables import Codes, Domain
        >>> class Coin:
        ...     def log_density(self, codes):
        ...         return np.log(np.full(codes.num_rows, 0.5))
        >>> rows = Codes(Domain(("side",), (2,)), (np.array([0, 1, 1]),))
        >>> round(negative_log_likelihood(Coin(), rows), 4)
        0.6931
    """
    if not isinstance(codes, Codes):
        if encoder is None:
            raise InputError(
                "rows that are no codes need encoder=, which the model was fitted with"
            )
        codes = encoder.encode(codes)
    require_rows(codes, "codes")
    density = np.asarray(model.log_density(codes), dtype=np.float64)
    if density.shape != (codes.num_rows,):
        raise InputError(
            f"log_density gave shape {density.shape} for {codes.num_rows} rows; it must give one "
            "number per row"
        )
    wrong = int((np.isnan(density) | (density > 1e-6)).sum())
    if wrong:
        raise InputError(
            f"log_density gave {wrong} of {codes.num_rows} rows a value that is NaN or above 0; "
            "a log-probability is at most 0, so the model is damaged: fit it again"
        )
    impossible = int(np.isneginf(density).sum())
    if impossible:
        possible = density[np.isfinite(density)]
        rest = f"{-float(possible.mean()):.4f} nats" if len(possible) else "undefined"
        warnings.warn(
            f"{impossible} of {codes.num_rows} rows have probability 0 under the model, so the "
            f"mean is infinite; over the other rows it is {rest}",
            stacklevel=2,
        )
        return float("inf")
    return -float(density.mean())
