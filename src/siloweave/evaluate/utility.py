"""How well a classifier does on real rows when it has only seen synthetic ones."""

import warnings
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from siloweave.errors import InputError
from siloweave.evaluate.boosting import one_thread
from siloweave.evaluate.workload import require_rows, require_same_domain
from siloweave.tables.codes import Codes
from siloweave.tables.keys import Key, generator

__all__ = ["train_on_synthetic"]

Boosting = Literal["histogram", "exact"]


def train_on_synthetic(
    synthetic: Codes,
    real_test: Codes,
    target: str,
    *,
    key: Key,
    boosting: Boosting = "histogram",
) -> float:
    """AUC on real rows of gradient boosting trained on synthetic rows.

    100 trees of depth 4 with learning rate 0.1, as FLAIM's experiments (Maddock, Cormode and
    Maple, KDD 2024); the features are the codes of all other attributes. With more than two
    classes it is the unweighted mean of one-vs-rest AUCs over the classes in the real rows; a
    class that the synthetic table never shows counts 0.5.

    Args:
        synthetic: Rows to train on.
        real_test: Real rows to test on, in the same domain, with two classes or more.
        target: The attribute to predict.
        key: Seeds the trees.
        boosting: ``"histogram"`` finds splits over histograms of codes and is many times faster;
            ``"exact"`` searches every split, as FLAIM's code. State which when comparing.

    Returns:
        AUC in [0, 1]; NaN, with a warning that says why, when the synthetic rows have one class.

    Raises:
        InputError: When a table is empty, domains differ, there is no feature, `boosting` is
            unknown, or the real rows have one class, for which AUC is not defined.

    Example:
        >>> from siloweave.tables import Codes, Domain
        >>> domain = Domain(("x", "y"), (2, 2))
        >>> x = np.arange(80) % 2
        >>> rows = Codes(domain, (x, x))
        >>> train_on_synthetic(rows, rows, "y", key=0)
        1.0
    """
    require_rows(synthetic, "synthetic")
    require_rows(real_test, "real_test")
    require_same_domain(real_test, synthetic)
    known = real_test.domain.names
    if target not in known:
        raise InputError(f"target={target!r} is no attribute; choose from {', '.join(known)}")
    if len(known) < 2:
        raise InputError(f"target={target!r} is the only attribute; there is nothing to learn from")
    truth, seen = real_test.column(target), np.unique(synthetic.column(target))
    if len(np.unique(truth)) < 2:
        raise InputError(
            f"real_test has one class of {target!r}, for which AUC is not defined; choose another "
            "target, or rows with two classes"
        )
    if len(seen) < 2:
        warnings.warn(
            f"AUC is NaN: all {synthetic.num_rows} synthetic rows have the same {target!r}, so "
            "there is nothing to learn",
            stacklevel=2,
        )
        return float("nan")
    model = _classifier(boosting, key)
    with one_thread():
        model.fit(_features(synthetic, target), synthetic.column(target))
        probability = model.predict_proba(_features(real_test, target))
    return _macro_auc(truth, probability, seen)


def _features(codes: Codes, target: str) -> NDArray[np.float32]:
    """Codes of every other attribute, one column each."""
    others = [name for name in codes.domain.names if name != target]
    return np.column_stack([codes.column(name).astype(np.float32) for name in others])


def _classifier(boosting: Boosting, key: Key) -> Any:
    from sklearn.ensemble import GradientBoostingClassifier, HistGradientBoostingClassifier

    seed = int(generator(key).integers(2**31))
    if boosting == "histogram":
        return HistGradientBoostingClassifier(
            max_iter=100, max_depth=4, learning_rate=0.1, early_stopping=False, random_state=seed
        )
    if boosting == "exact":
        return GradientBoostingClassifier(
            n_estimators=100, max_depth=4, learning_rate=0.1, random_state=seed
        )
    raise InputError(f'boosting={boosting!r} must be "histogram" or "exact"')


def _macro_auc(truth: NDArray[Any], probability: NDArray[np.float64], seen: NDArray[Any]) -> float:
    """Mean one-vs-rest AUC over the classes in `truth`."""
    from sklearn.metrics import roc_auc_score

    place = {int(label): i for i, label in enumerate(seen)}
    areas = []
    for label in np.unique(truth):
        column = place.get(int(label))
        if column is None:
            areas.append(0.5)
        else:
            areas.append(float(roc_auc_score(truth == label, probability[:, column])))
    return float(np.mean(areas))
