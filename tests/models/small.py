"""Small random models, and everything about them by brute force over the joint table."""

import numpy as np
from hypothesis import strategies as st

from siloweave.models.mrf import MRF
from siloweave.tables.codes import Codes, Domain
from siloweave.tables.keys import fold_in, generator


def domain_of(*sizes):
    return Domain(tuple("abcdefghij"[: len(sizes)]), sizes)


def random_model(domain, cliques, seed, *, total=100.0, spread=1.0):
    potentials = {
        c: spread * generator(fold_in(seed, i)).normal(size=domain.shape(c))
        for i, c in enumerate(cliques)
    }
    return MRF(domain, potentials, total)


def joint(model):
    """Probability of every cell of the whole domain."""
    names = model.domain.names
    log_p = np.zeros(model.domain.sizes)
    for clique, table in model.potentials.items():
        shape = [model.domain.size_of(a) if a in clique else 1 for a in names]
        log_p = log_p + table.reshape(shape)
    p = np.exp(log_p - log_p.max())
    return p / p.sum()


def summed(table, domain, clique):
    """Sum a table over the whole domain down to a clique."""
    return table.sum(axis=tuple(i for i, a in enumerate(domain.names) if a not in clique))


def all_rows(domain):
    """Every cell of the domain once, in C order."""
    cells = np.unravel_index(np.arange(domain.size()), domain.sizes)
    return Codes(domain, tuple(np.asarray(column) for column in cells))


@st.composite
def domains(draw, most=7, largest=4):
    return domain_of(*draw(st.lists(st.integers(1, largest), min_size=1, max_size=most)))


@st.composite
def cliques_of(draw, domain, largest=3):
    sets = st.sets(st.sampled_from(domain.names), min_size=1, max_size=largest)
    drawn = draw(st.lists(sets, max_size=8))
    return list(dict.fromkeys(domain.canonical(s) for s in drawn))


@st.composite
def models(draw, most=5):
    domain = draw(domains(most))
    cliques = draw(cliques_of(domain))
    spread = draw(st.sampled_from([0.1, 1.0, 20.0, 900.0]))
    return random_model(domain, cliques, draw(st.integers(0, 999)), spread=spread)
