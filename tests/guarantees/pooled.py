"""What a coalition pools: numbers that hide what they carry, and noise that nobody foresees."""

import numpy as np

FIRST = 12  # numbers of each message that are compared
UNLIKELY = 1e-6


def related(views):
    """Numbers that, alone or two together, are not uniform over runs with fresh keys.

    As phases, the mean over runs of any one, and of any sum or difference of two, is near 0 where
    they are uniform and independent, and of length 1 where masks cancel.

    Args:
        views: Of each run: numbers and what they are modulo, by name.

    Returns:
        Pairs of names; a number alone is paired with None.
    """
    names = list(views[0])
    assert all(list(one) == names for one in views)
    phases, labels = [np.ones((len(views), 1))], [None]
    for name in names:
        parts = [np.asarray(one[name][0], np.float64).reshape(-1)[:FIRST] for one in views]
        phases.append(np.exp(2j * np.pi * np.array(parts) / views[0][name][1]))
        labels += [name] * phases[-1].shape[1]
    Z, different = np.hstack(phases), ~np.eye(len(labels), dtype=bool)
    far = np.log(2 * len(labels) ** 2 / UNLIKELY) * len(views)  # squares are nearly exponential
    pairs = [np.argwhere((np.abs(left.T @ Z) ** 2 > far) & different) for left in (Z, Z.conj())]
    return {(labels[i], labels[j]) for i, j in np.concatenate(pairs)}


def is_foreseen(noise, guess):
    """Whether noise is what was guessed of it; fails if it is neither that nor independent."""
    if not guess.any():
        return False
    seen = np.corrcoef(noise, guess)[0, 1]
    assert abs(seen) < 4.5 / np.sqrt(noise.size) or seen > 0.999
    return bool(seen > 0.999)
