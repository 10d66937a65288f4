"""Samples: which rows a method gets that needs rows, of a table that is larger than memory."""

import logging
import subprocess
import sys
from pathlib import Path

import numpy as np
import polars as pl
import pytest
from scipy import stats

import siloweave as sw
from siloweave.core import party
from siloweave.core.party import rows_to_learn, samples, share_drawn
from siloweave.core.settings import Job
from siloweave.errors import InputError
from siloweave.privacy.budget import UNBOUNDED, Budget, Relation
from siloweave.tables import write
from siloweave.tables.read import sampled, unread
from siloweave.tables.table import Table, digest_of
from tests.methods.test_fed_tgan import GAN, SCHEMA, table
from tests.tables.databases import duckdb, in_duckdb, in_sqlite, needs_duckdb

ADD, REPLACE = Relation
SECRETS = [i.to_bytes(32, "big") for i in range(400)]


def numbered(rows):
    return Table.from_columns({"id": (np.arange(rows), None)})


def ids(table):
    return table.values("id").tolist()


# Drawing


def test_each_row_is_drawn_with_the_share_alone():
    drawn = np.zeros((len(SECRETS), 50), dtype=bool)
    for i, secret in enumerate(SECRETS):
        drawn[i, ids(sampled(numbered(50), 0.3, secret))] = True
    assert stats.binomtest(int(drawn.sum()), drawn.size, 0.3).pvalue > 0.01
    assert stats.binomtest(int(drawn.sum()), drawn.size, 0.33).pvalue < 1e-6  # can reject
    each = stats.binom.cdf(drawn.sum(axis=0), len(SECRETS), 0.3)
    assert stats.kstest(each, "uniform").pvalue > 0.01
    pairs = np.corrcoef(drawn.T)[np.triu_indices(50, 1)]
    assert abs(pairs).max() < 5 / len(SECRETS) ** 0.5
    sizes = drawn.sum(axis=1)  # binomial: no fixed size
    assert 0.7 < sizes.var() / (50 * 0.3 * 0.7) < 1.4


def test_one_row_more_is_drawn_beside_the_others_or_is_not():
    found = set()
    for secret in SECRETS[:40]:
        one, more = (ids(sampled(numbered(n), 0.5, secret)) for n in (50, 51))
        assert [i for i in more if i < 50] == one
        found.add(50 in more)
    assert found == {True, False}


@needs_duckdb
def test_the_same_secret_draws_the_same_rows_and_another_draws_others(tmp_path, monkeypatch):
    database, lite = in_duckdb(numbered(3000), tmp_path), in_sqlite(numbered(3000), tmp_path)
    parquet, held = unread(tmp_path / "rows.parquet"), numbered(3000)
    for source in (database, lite, parquet, held):
        found = sampled(source, 0.1, SECRETS[0])
        assert digest_of(found) == digest_of(sampled(source, 0.1, SECRETS[0]))
        assert ids(found) == sorted(ids(found)) != ids(sampled(source, 0.1, SECRETS[1]))
        assert stats.binomtest(found.num_rows, 3000, 0.1).pvalue > 0.01
        assert found.drawn_of == 3000
    assert ids(sampled(database, 0.1, SECRETS[0])) == ids(sampled(lite, 0.1, SECRETS[0]))
    monkeypatch.setattr(sys.modules[sampled.__module__], "_BATCH_ROWS", 700)
    assert ids(sampled(parquet, 0.1, SECRETS[0])) == ids(sampled(held, 0.1, SECRETS[0]))


# What is drawn for which method


@pytest.mark.parametrize(
    ("synth", "relation", "sample", "share"),
    [
        (sw.FedTGAN(), ADD, 1000, 0.5),
        (sw.FedTGAN(), ADD, 5000, 1),
        (sw.FedTGAN(), ADD, 0.1, 0.1),
        (sw.FedTGAN(), ADD, 1, 1),
        (sw.DPFedTabDDPM(), ADD, 1000, 1),  # would show the number of rows, which is private
        (sw.DPFedTabDDPM(), ADD, 0.1, 0.1),
        (sw.DPFedTabDDPM(), REPLACE, 1000, 0.5),
        (sw.SiloFuse(), ADD, 1000, 1),  # parties must have the same rows
        (sw.SiloFuse(), ADD, 0.1, 1),
    ],
)
def test_a_private_number_of_rows_decides_nothing(tmp_path, synth, relation, sample, share):
    write(numbered(2000), tmp_path / "rows.parquet")
    assert share_drawn(unread(tmp_path / "rows.parquet"), synth, relation, sample) == share
    if sample > 1:
        assert share_drawn(None, synth, relation, sample) == 1  # it is in memory already
    assert samples(synth, relation, sample) == (share < 1 or sample == 5000)


@pytest.mark.parametrize("sample", [0, -1, 1.5, float("inf"), float("nan"), "all"])
def test_what_is_no_sample_is_refused(sample):
    with pytest.raises(InputError, match="sample="):
        sw.GaussianCopula().fit(table(60), SCHEMA, sample=sample)


@needs_duckdb
@pytest.mark.parametrize("place", ["duckdb", "parquet"])
def test_a_network_trains_from_a_sample_of_a_large_table(tmp_path, place, caplog):
    caplog.set_level(logging.INFO, "siloweave")
    large = in_duckdb(table(2000), tmp_path)
    parts = {"north": large if place == "duckdb" else tmp_path / "rows.parquet",
             "south": table(60, 2)}  # fmt: skip
    synth = sw.FedTGAN(rounds=1, **GAN)
    fits = [synth.fit(parts, SCHEMA, sample=100, noise="seeded") for _ in range(2)]
    first, second = (fit.sample_table(50, seed=0) for fit in fits)
    assert digest_of(first) == digest_of(second)
    assert 60 + 50 < fits[0].num_rows < 60 + 150  # and not 2,060
    assert f"north: a sample of {fits[0].num_rows - 60} of 2,000 rows takes part" in caplog.text
    assert "south" not in caplog.text
    assert "about 100 rows were drawn" in fits[0].settings["sample"]
    page = sw.write_report(fits[0], tmp_path / "report.html").read_text()
    assert "Trained from a sample" in page
    assert "2,000" not in page
    assert "sample" not in synth.fit(parts, SCHEMA).settings  # all of them: below the limit


def test_a_share_is_drawn_of_every_table_and_rows_that_are_only_counted_are_not():
    fitted = sw.GaussianCopula().fit(table(4000), SCHEMA, sample=0.1)
    assert 300 < fitted.num_rows < 500
    counted = sw.AIM().fit(table(500), SCHEMA, budget=Budget(50.0, 1e-5), sample=0.1)
    assert 450 < counted.model.mrf.total < 550
    assert "sample" not in counted.settings


def test_a_run_that_goes_on_has_its_sample_and_another_run_draws_anew(tmp_path):
    write(table(2000), tmp_path / "rows.parquet")
    part, synth = unread(tmp_path / "rows.parquet"), sw.FedTGAN()

    def drawn(home):
        return digest_of(rows_to_learn("north", part, synth, Job(UNBOUNDED, sample=100), 0, home))

    first = drawn(tmp_path / "a")
    assert drawn(tmp_path / "a") == first
    assert len({first, drawn(tmp_path / "b"), drawn(None), drawn(None)}) == 4
    assert {p.stat().st_mode & 0o077 for p in (tmp_path / "a/store").iterdir()} == {0}


def test_a_sample_is_drawn_once(tmp_path):
    once = sampled(table(2000), 0.5, SECRETS[0])
    job = Job(UNBOUNDED, sample=0.5)
    assert rows_to_learn("north", once, sw.FedTGAN(), job, 0, None) is once


# What a bound is computed from


def test_epsilon_is_that_of_a_run_whose_whole_table_is_the_sample(tmp_path, monkeypatch):
    given = {}
    monkeypatch.setattr(party, "sampled", lambda *asked: given.setdefault("rows", sampled(*asked)))
    synth = sw.DPFedTabDDPM(
        hidden=[6], embed=6, timesteps=5, steps=3, batch=30, finest_bins=8, target="sex"
    )
    named = {"budget": Budget(5.0, 1e-5), "noise": "seeded"}
    drawn = synth.fit({"a": table(600)}, SCHEMA, sample=0.2, **named)
    alone = synth.fit({"a": given["rows"]}, SCHEMA, **named)
    assert 80 < given["rows"].num_rows < 160
    one, other = ([e.event for e in fit.ledgers["a"]] for fit in (drawn, alone))
    assert one == other
    assert drawn.epsilon == alone.epsilon <= 5.0
    page = sw.write_report(drawn, tmp_path / "report.html").read_text()
    assert "each row took part with a chance of 0.2" in page
    assert "ε holds for the whole table" in page


# Memory

_BEGIN = """
import sys
from pathlib import Path
import polars as pl
import siloweave as sw
from siloweave.core.settings import Job
from siloweave.core.party import rows_to_learn
from siloweave.privacy.budget import UNBOUNDED
from siloweave.tables import Column, Schema, database
from siloweave.tables.read import rows_of, unread

def peak():
    words = Path("/proc/self/status").read_text().split()
    return int(words[words.index("VmHWM:") + 1]) // 1024

database._MEMORY = "200MB"
folder = sys.argv[1]
parquet = unread(f"{folder}/rows.parquet")
duck = database.Database(f"duckdb:///{folder}/rows.duckdb", table="visits")
small = database.Database(duck.address, query="SELECT * FROM visits LIMIT 200")
schema = Schema(tuple(Column(name, "integer", low=0, high=10**6 + 2) for name in duck.names))

def train(part, sample):
    rows = rows_to_learn("a", part, sw.FedTGAN(), Job(UNBOUNDED, sample=sample), 0, None)
    assert sample == 1 or 9_000 < rows.num_rows < 11_000

def count(part):
    sw.AIM(bins=8, max_model_mb=1).fit(part, schema, budget=sw.Budget(1.0, 1e-9), seed=0)

{first}
before = peak()
{then}
print(peak() - before)
"""


def grown(folder, then, first=""):
    """Megabytes by which the peak of a process grows."""
    code = _BEGIN.replace("{first}", first).replace("{then}", then)
    asked = [sys.executable, "-c", code, str(folder)]
    return int(subprocess.run(asked, capture_output=True, text=True, check=True).stdout)


@needs_duckdb
@pytest.mark.slow
@pytest.mark.skipif(not Path("/proc/self/status").exists(), reason="reads its peak from Linux")
def test_what_is_in_memory_does_not_grow_with_the_table(tmp_path):
    """4 million rows of 16 columns are 512 MB as whole numbers."""
    number = pl.int_range(4_000_000, eager=True)
    columns = {f"c{i}": (number * (2 * i + 7919) + i) % 1_000_003 for i in range(16)}
    pl.DataFrame(columns).write_parquet(tmp_path / "rows.parquet", row_group_size=100_000)
    del columns
    with duckdb.connect(str(tmp_path / "rows.duckdb")) as connection:
        rows = str(tmp_path / "rows.parquet")
        connection.execute(f"CREATE TABLE visits AS SELECT * FROM '{rows}'").fetchall()
    all_of_it = grown(tmp_path, "train(duck, 1)", "train(small, 1)")
    assert all_of_it > 500
    assert grown(tmp_path, "train(duck, 10_000)", "train(small, 1)") < 350  # DuckDB's own are 200
    assert grown(tmp_path, "train(parquet, 10_000)") < 0.8 * all_of_it
    assert grown(tmp_path, "count(duck)", "count(small)") < 350
