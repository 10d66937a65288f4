"""What two rounds measure is fitted within the memory that was planned."""

import numpy as np

from siloweave.models.estimate import Measurement, fit
from siloweave.models.junction_tree import tree_cells
from siloweave.protocols.two_rounds import within_room
from siloweave.tables.codes import Domain


def test_a_model_of_fewer_pairs_is_laid_out_no_larger_than_the_plan():
    """By the greedy rule, five of these six pairs lay out a model of 96 cells, all six of 82."""
    domain = Domain(tuple("abcde"), (4, 2, 5, 3, 3))
    planned = [tuple(pair) for pair in ("ab", "ac", "ad", "bc", "be", "ce")]
    kept = [pair for pair in planned if pair != ("b", "c")]
    rng = np.random.default_rng(0)
    tables = [
        Measurement(pair, rng.uniform(5, 50, [domain.size_of(name) for name in pair]), 2.0)
        for pair in kept
    ]
    assert tree_cells(domain, kept) == 96 > tree_cells(domain, planned) == 82

    held = within_room(domain, tables, planned, 82)
    assert tree_cells(domain, [m.clique for m in held]) == 82
    assert within_room(domain, tables, planned, 96) == tables

    free, bound = (fit(domain, some, total=400.0, sweeps=200) for some in (tables, held))
    for pair in planned:  # what says nothing moves nothing
        np.testing.assert_allclose(bound.marginal(pair), free.marginal(pair), atol=0.5)
