"""A run over sealed frames, whose coordinator has no table, is the run of one process."""

import msgspec
import pytest

from siloweave.errors import InputError
from siloweave.privacy.ledger import Ledger
from siloweave.tables import read, write
from tests.synthesizers.golden import saved
from tests.synthesizers.networked import fit_over_frames, over_files
from tests.synthesizers.test_visibility import CASES

_QUICK = (
    "aim that learns",
    "flaim that learns",
    "two_round",
    "secure_two_round",
    "silofuse",
    "vertigan",
    "privmrf",
    "distaim",
    "gaussian_copula",
)
_ROWS = 40


def here(case):
    return case.synth.fit(case.data(0), case.schema, noise="seeded", **case.fit)


def paid(fitted):
    return [
        [party, e.run, e.step, e.what, e.to, msgspec.to_builtins(e.event)]
        for party, entries in fitted.ledgers.items()
        for e in entries
    ]


def texts(fitted, tmp_path):
    file = tmp_path / "rows.csv"
    write(fitted.sample_table(_ROWS, seed=0), file)
    return file.read_text()


def cases(*quick):
    shared = [name for name in CASES if CASES[name].settings.get("shared", True)]
    return pytest.mark.parametrize(
        "name", [pytest.param(n, marks=[] if n in quick else pytest.mark.slow) for n in shared]
    )


def check_same(name, tmp_path, **named):
    case = CASES[name]
    one = here(case)
    other, crossed = fit_over_frames(case, tmp_path / "net", rows=_ROWS, **named)
    assert paid(other) == paid(one)
    assert texts(other, tmp_path) == texts(one, tmp_path)
    assert not other.simulated
    if case.synth.method.decode is None:
        mine, theirs = saved(one), saved(other)
        assert mine.keys() - theirs.keys() <= {"like.parquet"}  # nothing of the frames is known
        assert {n: d for n, d in theirs.items() if n != "fit.json"}.items() <= mine.items()
    for i, (party, entries) in enumerate(other.ledgers.items()):
        copy = tmp_path / "net" / "office" / "parties" / f"{i:04d}" / "ledger.jsonl"
        mine = Ledger.read(tmp_path / "net" / party / "ledger.jsonl")
        assert copy.read_bytes() == mine.path.read_bytes()
        assert mine.entries == entries
    return crossed


@cases(*_QUICK)
def test_a_run_over_frames_is_that_of_one_process(name, tmp_path):
    check_same(name, tmp_path)


@pytest.mark.parametrize(
    "name", ["silofuse apart", pytest.param("e2e_distr apart", marks=pytest.mark.slow)]
)
def test_columns_that_stay_are_those_of_one_process(name, tmp_path):
    case = CASES[name]
    one = here(case)
    other, _ = fit_over_frames(case, tmp_path / "net", rows=_ROWS)
    assert paid(other) == paid(one)
    for party, table in one.part_tables(_ROWS, seed=0).items():
        kept = read(tmp_path / "net" / party / "kept.parquet")
        write(table.select([n for n in table.names if case.schema[n].modelled]), tmp_path / "1.csv")
        write(kept, tmp_path / "2.csv")
        assert (tmp_path / "1.csv").read_text() == (tmp_path / "2.csv").read_text()
    with pytest.raises(InputError, match="each has its own of the 40 rows"):
        other.sample_parts()
    with pytest.raises(InputError, match="no joined table"):
        other.sample()


@cases("two_round", "secure_two_round", "silofuse")
def test_a_run_over_a_spool_folder_is_that_of_one_process(name, tmp_path):
    check_same(name, tmp_path, over=over_files)
