"""How far one row moves an R-score, over all small tables and near both bounds."""

from fractions import Fraction
from itertools import combinations_with_replacement, product

import numpy as np
import pytest

from siloweave.privacy.budget import Neighbours, Relation, r_score_sensitivity
from siloweave.statistics.marginals import r_score
from siloweave.tables.codes import Codes, Domain

CELLS = list(product(range(3), range(3)))
PAIR = Domain(("a", "b"), (3, 3))


def score_of(cells):
    rows = np.array(cells, dtype=np.int64).reshape(-1, 2)
    return r_score(Codes(PAIR, tuple(rows.T)), PAIR.names)


def exact(table):
    """The score of a table of counts, not rounded."""
    n = sum(map(sum, table))
    if not n:
        return Fraction(0)
    across, down = [sum(row) for row in table], [sum(column) for column in zip(*table, strict=True)]
    apart = sum(
        abs(n * c - across[i] * down[j]) for i, row in enumerate(table) for j, c in enumerate(row)
    )
    return Fraction(apart, 2 * n)


def test_the_score_is_the_papers_rounded_down():
    rng = np.random.default_rng(0)
    for _ in range(50):
        table = rng.integers(0, 9, (3, 3))
        cells = [cell for cell in CELLS for _ in range(table[cell])]
        assert score_of(cells) == int(exact(table.tolist()))


def test_no_neighbours_of_small_tables_are_further_apart():
    for rows in range(5):
        for table in combinations_with_replacement(CELLS, rows):
            more = [score_of([*table, cell]) for cell in CELLS]
            added = [abs(found - score_of(table)) for found in more]
            assert max(added) <= r_score_sensitivity(Neighbours(Relation.ADD_REMOVE))
            assert max(more) - min(more) <= r_score_sensitivity(Neighbours(Relation.REPLACE_ONE))


def test_the_bound_of_a_row_more_is_approached():
    one, other = ([[n, 0], [0, k]] for n, k in ((10**6, 0), (10**6, 1)))
    assert 1.99 < exact(other) - exact(one) < 2


def test_the_bound_of_another_row_is_approached_and_is_not_that_of_a_row_more():
    """A pair of values that is rarer than by chance gives a row to a pair that nobody had."""
    many, some = 10**12, 10**9

    def table(old, new):
        return [[old, 0, some], [0, new, 0], [some, 0, many]]

    moved = exact(table(0, 1)) - exact(table(1, 0))
    assert 2.99 < moved < r_score_sensitivity(Neighbours(Relation.REPLACE_ONE)) == 3


@pytest.mark.parametrize("relation", list(Relation))
def test_sums_of_many_rows_stay_whole(relation):
    """Products of counts of 2^31 rows fit 64 bits: the largest are below 2 n^2."""
    assert 2 * (2**31 - 1) ** 2 < 2**63
    assert (
        r_score_sensitivity(Neighbours(relation))
        == {"add_remove": 2.0, "replace_one": 3.0}[str(relation)]
    )
