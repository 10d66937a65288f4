"""Replies that fit their type and hold nonsense: every method names the party that sent them."""

from functools import partial

import msgspec
import numpy as np
import pytest
from safetensors.numpy import load, save

import siloweave as sw
from siloweave.errors import WireError
from siloweave.federation.messages import Array
from siloweave.privacy.budget import Budget
from siloweave.protocols.schema import agree_schema
from siloweave.tables.table import Table
from tests.core.lies import lie, sealed_whole
from tests.methods import test_fed_tgan, test_vertigan
from tests.protocols import test_agree_schema, test_scoring
from tests.synthesizers import test_columns
from tests.synthesizers.cases import SCHEMA, pandas_frame

BUDGET = Budget(epsilon=1.0, delta=1e-6)
HUGE = 10**15


def instead(value):
    return lambda _: value


def filled(number, dtype=None):
    """The same array with one number everywhere."""
    return lambda array: Array.of(np.full(array.shape, number), dtype or array.dtype)


def as_type(dtype):
    return lambda array: Array.of(array.numpy().astype(np.int64), dtype)


def scaled(by):
    """Sums, sums of squares, least and largest, each times a number."""
    return lambda array: Array.of(array.numpy() * np.array(by)[:, None], "<f8")


def cut(array):
    return Array.of(array.numpy()[..., :-1], array.dtype)


def edited(**fields):
    """JSON of summaries, the last of which (a column of numbers) is changed."""

    def change(text):
        sent = msgspec.json.decode(text)
        return msgspec.json.encode([*sent[:-1], sent[-1] | fields])

    return change


def mixture(means, weights):
    """Instead of all 60 numbers."""
    modes = {"type": "modes", "means": means, "scales": [1.0], "weights": weights}
    return edited(values=[], times=[], rest=60, mixture=modes)


def shares_with(change):
    """The shares of the last column's cells, changed."""
    return lambda sent: (*sent[:-1], Array.of(np.array(change(sent[-1].numpy())), "<f8"))


def exploded(data):
    """Weights that are finite, and that nothing can be reckoned with."""
    arrays = {k: v if v.dtype.kind != "f" else np.full_like(v, 3e38) for k, v in load(data).items()}
    return save(arrays)


def raised(monkeypatch, run, words, party, question, changes):
    lie(monkeypatch, party, question, **changes)
    with pytest.raises(WireError, match=words) as refused:
        run()
    assert f"party {party!r}" in str(refused.value)


LATENTS = [
    ("options", instead(10**6), "options = 1,000,000; it must be from 1 to 2"),
    ("options", instead(0), "options = 0"),
    ("options", instead(1), "classes with the value = 1"),
    ("classes", filled(-1, "<i4"), "classes with the value = -1"),
    ("classes", filled(0, "<f4"), "classes of type <f4"),
    ("classes", cut, r"classes of shape \(59,\); it must be \(60\)"),
]
CODED = [
    *LATENTS,
    ("latents", filled(np.nan), "not finite"),
    ("latents", as_type("<i8"), "latents of type <i8"),
    ("latents", instead(Array("<f2", (HUGE, 0), b"")), "latents of shape"),
    ("columns", lambda names: ("visits",) * len(names), "columns with 'visits'"),
    ("sphere_codes", instead(((0, 50, 60),)), "a choice among 60"),
    ("latents", filled(1e30, "<f8"), r"latents of size 1e\+30; it must be finite, and 1e\+09"),
]
BEGUN = [
    *LATENTS,
    ("rows", instead(HUGE), "rows = 1,000,000,000,000,000; it must be from 1 to 2,147,483,647"),
    ("rows", instead(2**31 - 1), "party 'north' sent 60 rows and party 'south' 2,147,483,647"),
    ("rows", instead(0), "rows = 0"),
    ("latent", instead(HUGE), "latent = 1,000,000,000,000,000; it must be from 0 to 65,536"),
    ("latent", instead(-1), "latent = -1"),
]
SHARED = [
    ("shares", lambda sent: sent[:-1], "lists of shares; it must be"),
    ("shares", shares_with(lambda own: 0 * own), "sum of shares of .* = 0.0"),
    ("shares", shares_with(lambda own: 2 * own), "shares of .*; it must be"),
    ("shares", shares_with(lambda own: [-1.0, *own, 1.0]), "shares of .* the value = -1"),
    ("shares", shares_with(lambda own: np.nan * own), "shares of .* not finite"),
]
STEPS = [
    ("Forward", "latents", filled(np.nan), "latents .* not finite"),
    ("Forward", "latents", cut, "latents of shape"),
    ("Forward", "latents", filled(1e30, "<f8"), r"latents of size 1e\+30; .*diverges"),
    ("Backward", "slope", as_type("<u1"), "slope of type <u1"),
    ("Backward", "slope", cut, "slope of shape"),
    ("Backward", "loss", instead(np.nan), "loss = nan; it must be a finite number"),
]
COLUMNS = [
    *(("silofuse", "Code", *case) for case in CODED),
    *(("e2e_distr", "BeginJoint", *case) for case in BEGUN),
    *(("e2e_distr", *case) for case in STEPS),
    *(("silofuse", "ShareColumns", *case) for case in SHARED),
    ("e2e_distr", "ShareColumns", *SHARED[1]),
]


@pytest.mark.parametrize(("method", "question", "field", "change", "words"), COLUMNS)
def test_parties_with_other_columns(method, question, field, change, words, monkeypatch):
    party = "west" if field in ("options", "classes") else "south"
    run = partial(test_columns.fit, method)
    raised(monkeypatch, run, words, party, question, {field: change})


ROWS = [
    ("Describe", "rows", instead(HUGE), "rows = 1,000,000,000,000,000"),
    ("Describe", "rows", instead(59), "rows of column 'sex' = 60; it must be from 59 to 59"),
    ("Describe", "columns", mixture([1.0, 2.0], [1.0]), "no valid mixture"),
    ("Describe", "columns", mixture([1.0], [1e12]), "no valid mixture"),
    ("Describe", "columns", edited(missing=-1), "counts below 0"),
    ("Describe", "columns", edited(missing=10**400), "counts below 0 or beyond"),
    ("Describe", "columns", edited(values=[1e300], times=[60]), "must ascend within"),
    ("Describe", "columns", instead(b"[" + b"1," * 2**22 + b"1]"), "items exceeds"),
    ("Prepare", "sums", filled(np.nan), "sums .* not finite"),
    ("Prepare", "sums", filled(-5.0), "it must be those of 60 rows"),
    ("Prepare", "sums", scaled([9, 1, 1, 1]), "it must be those of 60 rows"),
    ("Prepare", "sums", scaled([1, 9, 1, 1]), "it must be those of 60 rows"),
    ("Prepare", "sums", instead(Array.of(np.zeros((4, 3)), "<f8")), r"sums of shape \(4, 3\)"),
    ("Prepare", "sums", cut, r"sums of shape \(4, \d+\); it must be \(4, "),
    ("Prepare", "sums", as_type("<i8"), "sums of type <i8"),
    ("Prepare", "sums", scaled([1, 1, 1, 2]), "it must be those of 60 rows"),
    ("Round", "networks", instead(b"nothing"), "no arrays"),
    ("Round", "networks", exploded, "weights beyond"),
]
JUDGED = [
    ("Judge", "feedback", filled(np.nan), "feedback .* not finite"),
    ("Judge", "feedback", filled(3e38), r"feedback of size 3e\+38"),
    ("Judge", "feedback", cut, "feedback of shape"),
    ("Hand", "critic", instead(b"nothing"), "no arrays"),
    ("Hand", "critic", exploded, "weights beyond"),
]


@pytest.mark.parametrize(
    ("kind", "question", "field", "change", "words"),
    [*((sw.FedTGAN, *case) for case in ROWS), *((sw.MDTGAN, *case) for case in JUDGED)],
)
def test_parties_with_other_rows(kind, question, field, change, words, monkeypatch):
    run = partial(test_fed_tgan.fit, kind=kind)
    raised(monkeypatch, run, words, "south", question, {field: change})


def flaim():
    parts = [test_scoring.people(200, seed) for seed in (1, 2)]
    sw.FLAIM(rounds=2, bins=4).fit(parts, test_scoring.SCHEMA, budget=BUDGET)


def oracle():
    parts = [test_scoring.people(200, seed) for seed in (1, 2)]
    sw.FLAIM(rounds=1, bins=4, variant="oracle").fit(parts, test_scoring.SCHEMA, budget=BUDGET)


def aim():
    sw.AIM(bins=4).fit(test_scoring.people(200), test_scoring.SCHEMA, budget=BUDGET)


def score():
    parts = {"party-1": test_scoring.people(90, 1), "party-2": test_scoring.people(90, 2)}
    test_scoring.score_parties(
        parts, parts["party-1"], test_scoring.ENCODER, budget=BUDGET, queries=[("sex",)]
    )


def aligned():
    tables = [Table.from_columns({"id": (np.arange(n, n + 3), None)}) for n in (1, 2)]
    sw.align_rows(tables, ["id"], workers=1)


def apart():
    tables = [Table.from_columns({"id": (np.arange(n, n + 3), None)}) for n in (1, 20)]
    sw.align_rows(tables, ["id"], workers=1)


SUMS = [
    ("KeyRequest", "key", instead(b"short"), "5 bytes of key; it must be 96"),
    ("KeyRequest", "key", instead(bytes(96)), "not usable"),
    ("KeyRequest", "sizes", lambda sizes: sizes[1:], "0 sizes; it must be 1"),
    ("Count", "sums", filled(1.0, "<f4"), "sums of type <f4; it must be <u4"),
    ("Count", "sums", as_type("<i8"), "sums of type <i8"),
    ("Count", "sums", cut, "sums of shape"),
    ("Select", "indices", instead(-1), "indices = -1; it must be from 0 to"),
    ("Select", "indices", instead(HUGE), "indices = 1,000,000,000,000,000"),
]
ASKED = [
    *((flaim, *case) for case in SUMS),
    (oracle, "CountExactly", "tables", cut, "tables of shape"),
    (oracle, "CountExactly", "tables", filled(np.nan, "<f8"), "tables of type <f8"),
    (aligned, "Greet", "key", instead(b""), "0 bytes of key"),
    (aligned, "Greet", "counts", instead((0, 0, 0)), "ids = 0; it must be from 1"),
    (aligned, "Greet", "counts", instead((HUGE, 0, 0)), "ids = 1,000,000,000,000,000"),
    (aligned, "Greet", "counts", instead((3, -1, 0)), "rows without id = -1"),
    (apart, "DescribeIds", "shape", instead("\x1b[31m"), "a description of its ids"),
    (apart, "DescribeIds", "shape", instead("A" * 10**6), "a description of its ids"),
    (score, "ScoreTable", "noisy_rows", instead(HUGE), "rows = 1,000,000,000,000,000"),
]


@pytest.mark.parametrize(("run", "question", "field", "change", "words"), ASKED)
def test_sums_choices_and_alignments(run, question, field, change, words, monkeypatch):
    raised(monkeypatch, run, words, "party-2", question, {field: change})


def test_a_lone_curator(monkeypatch):
    raised(monkeypatch, aim, "index = -1", "curator", "SelectQuery", {"index": instead(-1)})


@pytest.mark.parametrize(
    ("budget", "question", "field", "change", "words"),
    [
        (test_vertigan.BUDGET, "CountOwnColumns", "paid_rows", instead(HUGE), "rows = 1,000"),
        (test_vertigan.BUDGET, "TrainCritics", "slope", filled(np.nan), "slope .* not finite"),
        (
            test_vertigan.BUDGET,
            "TrainCritics",
            "slope",
            filled(1e300, "<f8"),
            r"slope of size 1e\+300",
        ),
        (None, "BeginVertiGAN", "rows", instead(0), "rows = 0; it must be from 1"),
    ],
)
def test_heads_and_critics_at_parties(budget, question, field, change, words, monkeypatch):
    run = partial(test_vertigan.fit, budget=budget)
    raised(monkeypatch, run, words, "north", question, {field: change})


def secure():
    parts = test_columns.split(pandas_frame())
    workload = [("town", "sex"), ("age", "seen"), ("pay", "member")]
    made = sw.SecureTwoRound(bins=4, workload=workload, final_sweeps=1)
    made.fit(parts, SCHEMA, budget=Budget(4.0, 1e-5), at_once=1)


@sealed_whole
def dropped(items):
    return items[:-1]


@sealed_whole
def doubled(items):
    return items * 2


def relayed(**fields):
    @sealed_whole
    def change(sent):
        new = {name: made(getattr(sent, name)) for name, made in fields.items()}
        return msgspec.structs.replace(sent, **new)

    return change


def renamed(keys):
    return {f"{name}x": key for name, key in keys.items()}


@pytest.mark.parametrize(
    ("party", "question", "field", "change", "words"),
    [
        ("south", "Begin", "key", instead(b"short"), "5 bytes of key; it must be 96"),
        ("south", "Begin", "key", instead(bytes(96)), "not usable"),
        ("north", "Begin", "paid_bound", instead(HUGE), "rows = 1,000,000,000,000,000"),
        ("north", "Begin", "paid_bound", instead(-1), "rows = -1; it must be from 0"),
        ("north", "Begin", "paid_bound", dropped, "0 bounds; it must be 1"),
        ("north", "Begin", "paid_bound", doubled, "2 bounds; it must be 1"),
        ("north", "Begin", "counts", cut, "counts of shape"),
        ("north", "Begin", "counts", filled(1.0, "<f8"), "counts of type <f8"),
        ("south", "Begin", "counts", dropped, "0 histograms; it must be 1"),
        ("south", "ShareRows", "rows", relayed(data=lambda d: d[:-4]), "bytes of rows; it must be"),
        ("south", "ShareRows", "rows", relayed(data=instead(b"")), "0 bytes of rows"),
        ("south", "ShareRows", "rows", relayed(keys=instead({})), "0 keys of rows; it must be 2"),
        ("south", "ShareRows", "rows", relayed(keys=renamed), "keys of rows with 'northx'"),
        ("north", "MeasureTables", "own", cut, "counts of shape"),
        ("north", "MeasureTables", "own", filled(1.0, "<f4"), "counts of type <f4"),
        ("north", "MeasureTables", "own", dropped, "groups of tables; it must be"),
        ("north", "MeasureTables", "own", filled(10**6), "counts with the value = 1,000,000"),
        ("north", "MeasureTables", "own", filled(-(10**6)), "counts with the value = -1,000,000"),
        ("south", "MeasureTables", "joint", filled(2**32 - 1), "counts with the value = 4,294,967"),
        ("south", "MeasureTables", "joint", cut, "counts of shape"),
        ("south", "MeasureTables", "joint", as_type("<i8"), "counts of type <i8; it must be <u4"),
        ("south", "MeasureTables", "joint", dropped, "groups of tables; it must be"),
        ("south", "MeasureTables", "joint", doubled, "groups of tables; it must be"),
    ],
)
def test_secure_marginals(party, question, field, change, words, monkeypatch):
    raised(monkeypatch, secure, words, party, question, {field: change})


@pytest.mark.parametrize(
    ("question", "field", "change", "words"),
    [
        ("Declare", "schema", instead("[]"), "schema that cannot be read"),
        ("Declare", "key", instead(b""), "0 bytes of key"),
        ("Name", "values", instead((1, 2)), "a value of column 'town', '1'; .* of type str"),
        ("Name", "values", instead(("x" * 300,)), "at most 256 characters"),
    ],
)
def test_schemas(question, field, change, words, monkeypatch):
    parties, _ = test_agree_schema.study(test_agree_schema.clinics())
    run = partial(agree_schema, parties, test_agree_schema.SCHEMA, test_agree_schema.LEARNING)
    raised(monkeypatch, run, words, "p1", question, {field: change})
