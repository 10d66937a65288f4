import numpy as np
import pandas as pd
import polars as pl
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from siloweave.datasets import adult, adult_schema
from siloweave.errors import DataError, InputError
from siloweave.statistics.marginals import marginal
from siloweave.tables import (
    Codes,
    Domain,
    Encoder,
    Table,
    clusters,
    iid,
    label_skew,
    split_rows,
    synth_fs,
)


@pytest.fixture(scope="module")
def codes():
    return Encoder(adult_schema()).encode(adult().take(range(4000)))


def is_partition(parts, rows):
    together = np.sort(np.concatenate(parts))
    ascending = all((np.diff(part) > 0).all() for part in parts)
    return together.tolist() == list(range(rows)) and ascending and min(map(len, parts)) > 0


def apart(codes, parts):
    """Mean distance (total variation) of the parties' one-way marginals from the whole table's."""
    gaps = []
    for part in parts:
        for name in codes.domain.names:
            mine = marginal(codes.take(part), (name,)) / len(part)
            gaps.append(abs(mine - marginal(codes, (name,)) / codes.num_rows).sum() / 2)
    return float(np.mean(gaps))


@given(st.integers(1, 60), st.data())
def test_iid_is_even(rows, data):
    parties = data.draw(st.integers(1, rows))
    parts = iid(rows, parties, key=data.draw(st.integers(0, 99)))
    assert is_partition(parts, rows)
    sizes = [len(part) for part in parts]
    assert max(sizes) - min(sizes) <= 1


@settings(deadline=None)
@given(
    st.lists(st.integers(0, 3), min_size=1, max_size=60),
    st.floats(1e-3, 100) | st.just(1e-300),
    st.data(),
)
def test_label_skew_is_a_partition(labels, beta, data):
    parties = data.draw(st.integers(1, len(labels)))
    parts = label_skew(labels, parties, beta, key=data.draw(st.integers(0, 99)))
    assert is_partition(parts, len(labels))


def test_splits_differ_as_the_paper_says(codes):
    label = codes.column("income")
    even = apart(codes, iid(4000, 20, key=0))
    mild = apart(codes, label_skew(label, 20, 0.8, key=0))
    strong = apart(codes, label_skew(label, 20, 0.1, key=0))
    near = apart(codes, clusters(codes, 20, key=0, method="pca"))
    assert even < mild < strong
    assert even < near


def test_seeds_reproduce(codes):
    for split in (
        lambda key: iid(4000, 5, key=key),
        lambda key: label_skew(codes.column("sex"), 5, 0.5, key=key),
        lambda key: clusters(codes, 5, key=key, method="pca"),
    ):
        first, again, other = split(1), split(1), split(2)
        assert all((a == b).all() for a, b in zip(first, again, strict=True))
        assert any(len(a) != len(b) or (a != b).any() for a, b in zip(first, other, strict=True))


def test_clusters_are_a_partition_even_when_rows_repeat():
    same = Codes(Domain(("a",), (2,)), (np.zeros(30, int),))
    assert is_partition(clusters(same, 7, key=0, method="pca"), 30)
    two = Codes(Domain(("a", "b"), (2, 1)), (np.arange(30) % 2, np.zeros(30, int)))
    assert is_partition(clusters(two, 30, key=0, method="pca"), 30)
    assert is_partition(clusters(two, 1, key=0, method="pca"), 30)


def test_clusters_of_a_wide_domain(codes):
    wide = Codes(Domain(("a", "b"), (9000, 2)), (np.arange(300) * 30, np.arange(300) % 2))
    assert is_partition(clusters(wide, 10, key=0, method="pca"), 300)


@pytest.mark.slow  # numba compiles for half a minute
def test_umap_clusters(codes):
    pytest.importorskip("umap")
    few = codes.take(range(300))
    assert is_partition(clusters(few, 6, key=0), 300)
    assert is_partition(clusters(few.take(range(3)), 2, key=0), 3)


@pytest.mark.slow  # numba compiles for half a minute
def test_umap_spreads_a_crowd_of_copies(codes):
    pytest.importorskip("umap")
    often = codes.take(np.concatenate([np.zeros(codes.num_rows, int), np.arange(codes.num_rows)]))
    parts = clusters(often, 10, key=0, method="umap")
    assert is_partition(parts, often.num_rows)
    assert max(map(len, parts)) < codes.num_rows  # the copies alone are that many
    again = clusters(often, 10, key=0, method="umap")
    assert all(np.array_equal(one, other) for one, other in zip(parts, again, strict=True))


def test_umap_missing_says_what_to_do(codes, monkeypatch):
    monkeypatch.setattr("siloweave.tables.split.find_spec", lambda name: None)
    with pytest.raises(InputError, match=r"\.\[umap\].*method='pca'"):
        clusters(codes, 3, key=0)
    parts = split_rows(codes, 3, by="clusters", seed=0)
    assert sum(part.num_rows for part in parts) == 4000


def test_split_rows_gives_what_it_was_given(codes, tmp_path):
    table = adult().take(range(200))
    frame = table.to_native()
    parts = split_rows(frame, 4, by="clusters", seed=0, method="pca")
    assert all(isinstance(part, pd.DataFrame) for part in parts)
    rows = pd.concat(parts).sort_values(list(frame.columns)).reset_index(drop=True)
    pd.testing.assert_frame_equal(rows, frame.sort_values(list(frame), ignore_index=True))
    parts = split_rows(pl.from_pandas(frame), 3, seed=0)
    assert all(isinstance(part, pl.DataFrame) for part in parts)
    assert all(isinstance(part, Table) for part in split_rows(table, 3, seed=0))
    assert all(isinstance(part, Codes) for part in split_rows(codes, 3, seed=0))
    path = tmp_path / "t.csv"
    frame.to_csv(path, index=False)
    assert all(isinstance(part, Table) for part in split_rows(path, 3, seed=0))
    assert all(isinstance(part, Table) for part in split_rows(str(path), 3, seed=0))


def test_label_skew_by_a_named_column(codes):
    parts = split_rows(adult().take(range(500)), 2, by="label_skew", seed=0, label="workclass")
    assert sum(part.num_rows for part in parts) == 500
    assert len(split_rows(codes, 2, by="label_skew", seed=0, beta=0.1)) == 2


def test_a_column_without_values_does_not_stop_clustering():
    frame = pl.DataFrame({"a": [1, 2, 30, 40], "b": [None] * 4})
    parts = split_rows(frame, 2, by="clusters", seed=0, method="pca")
    assert sum(part.height for part in parts) == 4


def test_bad_arguments(codes):
    with pytest.raises(DataError, match="3 rows cannot be spread over 4"):
        iid(3, 4, key=0)
    with pytest.raises(DataError, match="0 rows"):
        label_skew([], 1, 1.0, key=0)
    with pytest.raises(InputError, match="parties=0"):
        split_rows(codes, 0, seed=0)
    with pytest.raises(InputError, match="by='size'"):
        split_rows(codes, 2, by="size", seed=0)
    with pytest.raises(InputError, match="method='tsne'"):
        clusters(codes, 2, key=0, method="tsne")
    with pytest.raises(InputError, match="beta=0"):
        label_skew([1, 2], 2, 0, key=0)
    with pytest.raises(InputError, match="exponent=0"):
        synth_fs(0, key=0)
    with pytest.raises(InputError, match="parties, rows"):
        synth_fs(1, key=0, rows=0)


def test_synth_fs_skew_falls_with_the_exponent():
    def spread(exponent):
        parts = synth_fs(exponent, key=0)
        assert (len(parts), parts[0].num_rows, parts[0].domain.sizes) == (100, 500, (41,) * 10)
        return np.std([[column.mean() for column in part.columns] for part in parts])

    assert spread(1.0) > spread(2.0) > spread(5.0)
