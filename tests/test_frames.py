"""Whatever takes a `Table` takes a frame of pandas, polars or Arrow, and a path, in its place.

Every public name is in one of two lists: a new one belongs to `CALLS` if it takes rows.
"""

import math

import numpy as np
import pyarrow as pa
import pytest

import siloweave as sw
from siloweave import tables
from siloweave.attacks.shadow import Sampler
from siloweave.errors import InputError
from siloweave.evaluate.workload import negative_log_likelihood, workload_errors
from siloweave.methods.registry import METHODS

ROWS = 60
SCHEMA = sw.Schema((
    sw.Column("x", "integer", low=0, high=9),
    sw.Column("y", "continuous", low=-1.0, high=1.0, missing=True),
    sw.Column("c", "categorical", categories=("a", "b")),
    sw.Column("d", "boolean"),
)).with_fallbacks()  # fmt: skip
ENCODER = sw.Encoder(SCHEMA, bins=4)
NONE = sw.Budget(math.inf, 1e-5)
SOME = sw.Budget(4.0, 1e-5)
PAIRS = [("x", "c"), ("c", "d")]


def table(seed=0):
    rng = np.random.default_rng(seed)
    x = rng.integers(0, 10, ROWS)
    return sw.Table.from_columns({
        "x": (x, None),
        "y": (rng.uniform(-1, 1, ROWS), rng.random(ROWS) < 0.1),
        "c": (np.where(x > 4, "a", "b").astype(object), None),
        "d": (rng.random(ROWS) < 0.5, None),
    })  # fmt: skip


ONE, OTHER, THIRD = (table(seed) for seed in range(3))
IDS = sw.Table.from_columns({"id": (np.arange(9), None), "x": (np.arange(9), None)})


def as_path(rows, folder):
    path = folder / f"{len(list(folder.iterdir()))}.parquet"
    tables.write(rows, path)
    return path


KINDS = {
    "pandas": lambda rows, folder: rows.framed("pandas").to_native(),
    "polars": lambda rows, folder: rows.framed("polars").to_native(),
    "arrow": lambda rows, folder: rows.framed("arrow").to_native(),
    "path": as_path,
}


def fitted_to(method, rows, budget, **named):
    """Rows that a seeded fit draws, as text."""
    model = method.fit(rows, SCHEMA, budget=budget, seed=0, **named)
    return content(model.sample(20, seed=0))


def content(rows):
    """Values and missing ones, column by column."""
    rows = sw.read(rows)
    gone = {name: rows.missing(name) for name in rows.names}
    return {name: np.where(gone[name], None, rows.values(name)).tolist() for name in rows.names}


def found_rows(made):
    """Common ids of an alignment: the order is random."""
    first = next(iter(made.tables.values()))
    return sorted(sw.read(first).values("id").tolist())


def sampled(rows):
    return Sampler(sw.AIM(workload=PAIRS), SCHEMA, SOME, num_rows=9)(
        rows, np.random.SeedSequence(0)
    )


# How each public function is called with rows; `f` turns a table into what it shall take.
CALLS = {
    "siloweave": {
        "AIM": lambda f: fitted_to(sw.AIM(workload=PAIRS), f(ONE), SOME, noise="seeded"),
        "FLAIM": lambda f: fitted_to(
            sw.FLAIM(workload=PAIRS, rounds=1, participation=1.0), [f(ONE), f(OTHER)], SOME,
            noise="seeded"),
        "TwoRound": lambda f: fitted_to(
            sw.TwoRound(workload=PAIRS), [f(ONE), f(OTHER)], SOME, noise="seeded"),
        "GaussianCopula": lambda f: fitted_to(sw.GaussianCopula(), f(ONE), NONE),
        "Encoder": lambda f: [c.tolist() for c in ENCODER.encode(f(ONE)).columns],
        "Fit": lambda f: [
            content(sw.AIM(workload=PAIRS)
                    .fit(ONE, SCHEMA, budget=SOME, noise="seeded")
                    .sample(given=f(ONE.select(["x", "c"])), seed=0)),
            content(sw.GaussianCopula().fit(ONE, SCHEMA)
                    .sample(given=f(ONE.select(["c"])), seed=0)),
        ],
        "Schema": lambda f: sw.Schema.detect(f(ONE)).declared().digest(),
        "align_rows": lambda f: found_rows(sw.align_rows({"a": f(IDS), "b": f(IDS)}, ["id"])),
        "attack": lambda f: sw.attack(
            f(ONE), f(OTHER), control=f(THIRD), targets=10, allow_overlap=True,
            attacks=["closest_records"]).to_json(),
        "read": lambda f: content(f(ONE)),
        "recode": lambda f: sw.recode(f(ONE), {"x": {"1": 2}}).names,
        "score": lambda f: sw.score(
            *(f(one.select(["x"])) for one in (ONE, OTHER)), max_rows=30).to_json(),
        "score_parties": lambda f: type(sw.score_parties(
            [f(ONE), f(THIRD)], f(OTHER), SCHEMA, budget=SOME)).__name__,  # its noise is fresh
        "shadow_attack": lambda f: sw.shadow_attack(
            lambda rows, key: f(sw.read(rows)), f(ONE), f(OTHER.take([0])), training_size=20,
            train_sets=10, test_sets=10, key=0, workers=1, schema=SCHEMA,
            attacks=["ClosestDistance-L2"]).worst.risk,
        "split_columns": lambda f: [
            sw.read(part).names for part in sw.split_columns(f(ONE), 2)],
        "split_rows": lambda f: [
            sw.read(part).values("x").tolist() for part in sw.split_rows(f(ONE), 3, seed=0)],
        "tvd": lambda f: (
            sw.tvd(f(ONE), f(OTHER), 2, key=0),
            sw.tvd(f(ONE), f(OTHER), 2, key=0, encoder=ENCODER)),
        "workload_error": lambda f: (
            sw.workload_error(f(ONE), f(OTHER), PAIRS),
            sw.workload_error(f(ONE), f(OTHER), PAIRS, encoder=ENCODER)),
    },
    "evaluate": {
        "negative_log_likelihood": lambda f: negative_log_likelihood(
            sw.AIM(workload=PAIRS).fit(ONE, ENCODER, budget=SOME, noise="seeded").model.mrf,
            f(ONE), encoder=ENCODER),
        "workload_errors": lambda f: workload_errors(f(ONE), f(OTHER), PAIRS),
    },
    "tables": {
        "align": lambda f: tables.align({"a": f(ONE), "b": f(OTHER)}).names,
        "clusters": lambda f: [
            part.tolist() for part in tables.clusters(f(ONE), 2, key=0, method="pca")],
        "write": lambda f: None,  # see below
    },
}  # fmt: skip
# Public names that take no rows, or take tables that `align` made of them.
TAKE_NO_ROWS = {
    "siloweave": {
        *("AlignedRows", "Budget", "Column", "Relation", "SiloweaveError", "Table", "__version__"),
        *("budget_of_separation", "load", "write_page", "Database"),
        "write_report",  # its data are read as those of `fit`
        *("CategoryRanges", "ColumnSum", "FixedCombinations", "Inequality", "MissingTogether"),
        *("Computed", "MissingUnless"),
        *("Unique",),
    },
    "tables": {
        *("Aligned", "AlignedColumn", "Category", "Clique", "Codes", "Domain", "Key", "Kind"),
        *("encoding_of", "fold_in", "generator", "iid", "label_skew", "read_batches", "synth_fs"),
    },
}
# Networks take rows as the copula does, by the same lines; tests/synthesizers fits each. What reads
# a run's folder is tested where there is one.
ELSEWHERE = {kind.__name__ for kind in METHODS.values()} | {"attack_run", "invert_run"}
FACES = {"siloweave": sw, "tables": tables}


@pytest.mark.parametrize("face", FACES)
def test_every_public_name_says_whether_it_takes_rows(face):
    known = {**CALLS["siloweave"], **CALLS[face]}.keys() | TAKE_NO_ROWS[face] | ELSEWHERE
    known |= TAKE_NO_ROWS["siloweave"]
    assert set(FACES[face].__all__) <= known
    assert not CALLS[face].keys() & TAKE_NO_ROWS[face]


@pytest.mark.parametrize(
    "name", [f"{face}.{name}" for face, calls in CALLS.items() for name in calls]
)
def test_a_frame_or_a_path_does_what_a_table_does(name, tmp_path):
    face, _, one = name.partition(".")
    call = CALLS[face][one]
    expected = call(lambda rows: rows)
    for kind, convert in KINDS.items():
        assert call(lambda rows: convert(rows, tmp_path)) == expected, kind  # noqa: B023


@pytest.mark.parametrize("kind", KINDS)
def test_a_frame_is_written_and_goes_into_shadow_models(kind, tmp_path):
    rows = KINDS[kind](ONE, tmp_path)
    tables.write(rows, tmp_path / "out.parquet")
    assert content(tmp_path / "out.parquet") == content(ONE)
    assert content(sampled(rows)) == content(sampled(ONE))


def test_a_decoded_table_is_of_the_frame_that_it_shall_be_like():
    codes = ENCODER.encode(ONE)
    like = ONE.framed("arrow").to_native()
    assert isinstance(ENCODER.decode(codes, key=0, like=like).to_native(), pa.Table)


def test_codes_or_a_model_beside_rows_need_their_encoder():
    codes = ENCODER.encode(ONE)
    with pytest.raises(InputError, match="give encoder="):
        sw.tvd(codes, OTHER, 2, key=0)
    assert sw.tvd(codes, OTHER, 2, key=0, encoder=ENCODER) == sw.tvd(
        codes, ENCODER.encode(OTHER), 2, key=0
    )
    with pytest.raises(InputError, match="rows that are no codes need encoder="):
        negative_log_likelihood(None, ONE)


def test_what_is_no_table_is_refused_by_name():
    with pytest.raises(InputError, match="cannot read a int"):
        ENCODER.encode(3)
