"""A small table whose law is known."""

import numpy as np

from siloweave.tables.features import Block

BLOCKS = (
    Block("x", 0, 1, "number"),
    Block("c", 1, 3, "categorical"),
    Block("y", 4, 2, "categorical"),
)
JOINT = np.array([[0.35, 0.05], [0.05, 0.25], [0.1, 0.2]])  # of c and y


def toy(n, seed=0):
    """x is a mixture: around -2 where y = 0 and around 1 where y = 1; c goes with y."""
    rng = np.random.default_rng(seed)
    c, y = np.divmod(rng.choice(6, n, p=JOINT.ravel()), 2)
    X = np.zeros((n, 6), np.float32)
    X[:, 0] = np.where(y == 0, -2 + 0.3 * rng.normal(size=n), 1 + 0.5 * rng.normal(size=n))
    X[np.arange(n), 1 + c] = X[np.arange(n), 4 + y] = 1
    return X


def joint_of(X):
    """Shares of c and y together."""
    return np.einsum("nc,ny->cy", X[:, 1:4], X[:, 4:]) / len(X)
